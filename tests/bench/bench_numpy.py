#!/usr/bin/env python3
"""The CPU engine beside NumPy, on the same machine in one run: sum, min and var of 256 MiB of f32 and f64, and all that a
description of the data takes, which NumPy computes one by one.

usage: bench_numpy.py path/to/bench_cpu
"""

import re
import subprocess
import sys
import time

import numpy as np

BYTES = 256 << 20


def best_gb_per_s(compute, array):
    """Of several runs the fastest: other processes only ever make a run slower."""
    best = float("inf")
    for _ in range(7):
        start = time.perf_counter()
        compute(array)
        best = min(best, time.perf_counter() - start)
    return array.nbytes / best / 1e9


def describe(array):
    return (np.isnan(array).sum(), array.min(), array.max(), array.argmin(), array.argmax(), array.sum(dtype=np.float64),
            array.mean(dtype=np.float64), array.var(dtype=np.float64), np.linalg.norm(array))


COMPUTATIONS = {
    "describe": describe,
    "sum": lambda array: array.sum(dtype=np.float64),
    "min": np.min,
    "var": lambda array: array.var(dtype=np.float64),
}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    ours = subprocess.run([sys.argv[1], "--describe"], check=True, capture_output=True, text=True, timeout=300).stdout
    rates = {(dtype, name): float(rate)
             for dtype, name, rate in re.findall(r"^(f32|f64) (\w+) +([\d.]+) GB/s", ours, re.MULTILINE)}
    print(ours.splitlines()[0])
    print(f"{'256 MiB':<14} {'reduced':>12} {'NumPy ' + np.__version__:>16}")
    for (dtype, name), rate in rates.items():
        array = np.random.default_rng(1).random(BYTES // int(dtype[1:]) * 8, dtype="f" + str(int(dtype[1:]) // 8))
        theirs = best_gb_per_s(COMPUTATIONS[name], array)
        print(f"{dtype} {name:<10} {rate:>7.2f} GB/s {theirs:>11.2f} GB/s {rate / theirs:>6.1f}x")


if __name__ == "__main__":
    main()

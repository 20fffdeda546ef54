#!/usr/bin/env python3
"""Exact sums beside math.fsum and NumPy's sum on the same arrays, in one run: time, and how far each is from the exact
sum, by Python's rational numbers, in units of the last place of that.

usage: bench_exact.py path/to/reduced path/to/reducectl
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from fractions import Fraction

import numpy as np

COUNT = 8 << 20  # 64 MiB of f64


def arrays():
    random = np.random.default_rng(1)
    yield "uniform in [0, 1)", random.random(COUNT)
    yield "normal", random.standard_normal(COUNT)
    yield "lognormal, sigma 5", random.lognormal(0, 5, COUNT)
    half = random.standard_normal(COUNT // 2) * 2.0 ** random.integers(0, 60, COUNT // 2)
    cancelling = np.concatenate([half, -half])
    cancelling[0] += 1
    random.shuffle(cancelling)
    yield "cancels but for rounding", cancelling


def exact_sum(array):
    """As a whole number of 2^-1074, by exponent: at most a few thousand additions of large numbers."""
    mantissa, exponent = np.frexp(array)
    units = (mantissa * 2.0**53).astype(np.int64)
    total = 0
    for e in np.unique(exponent):
        some = units[exponent == e]
        low, high = some & 0xFFFFFFFF, some >> 32  # of each the sum fits in 64 bits
        total += ((int(high.sum()) << 32) + int(low.sum())) << (int(e) - 53 + 1074)
    return Fraction(total, 2**1074)


def timed(compute):
    best = math.inf
    for _ in range(5):
        start = time.perf_counter()
        value = compute()
        best = min(best, time.perf_counter() - start)
    return value, best * 1e3


def reduced(reducectl, server, path, precision):
    def ask():
        out = subprocess.run([reducectl, "reduce", path, "--op", "sum", "--precision", precision, "--json", "--server",
                              server, "--timeout", "60s", "--via", "region"], check=True, capture_output=True, text=True)
        return json.loads(out.stdout)

    replies = [ask() for _ in range(25)]
    return replies[0]["results"]["sum"], min(r["timing_us"]["kernel"] for r in replies) / 1e3


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    daemon, reducectl = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        server = f"unix:{folder}/socket"
        ready = os.path.join(folder, "ready")
        process = subprocess.Popen([daemon, f"--listen={server}", f"--ready_file={ready}"], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        try:
            while not os.path.exists(ready):
                time.sleep(0.05)
            path = os.path.join(folder, "array.npy")
            print(f"{COUNT} f64, {COUNT * 8 >> 20} MiB; milliseconds, and the error in units of the last place")
            for name, array in arrays():
                np.save(path, array)
                true = exact_sum(array)
                unit = Fraction(math.ulp(float(true)))
                values = array.tolist()
                for who, (value, ms) in {
                        "reduced exact": reduced(reducectl, server, path, "exact"),
                        "reduced f64": reduced(reducectl, server, path, "f64"),
                        "numpy.sum": timed(lambda: float(array.sum())),
                        "math.fsum": timed(lambda: math.fsum(values)),
                }.items():
                    error = float(abs(Fraction(value) - true) / unit)
                    print(f"{name:<26} {who:<14} {ms:>9.2f} ms {error:>12.3g}")
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()

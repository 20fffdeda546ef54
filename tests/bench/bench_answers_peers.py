#!/usr/bin/env python3
"""Ops about the distribution and about two arrays in this process, beside NumPy, pandas and polars: how many times as long these take.

usage: bench_answers_peers.py [MIB [REPEATS]], with the Python package on PYTHONPATH
"""

import importlib.util
import os
import sys
import time

import numpy as np

import reduced


def best(call, repeats):
    """The least of some times, in seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def peers(x, y, whole, pd, pl):
    """By question: our call, and the peers' calls by name."""
    series, frame = pd.Series(x), pl.Series(x)
    return {
        "median": (lambda c: c.median(x), {"numpy": lambda: np.median(x), "polars": frame.median}),
        "histogram": (lambda c: c.histogram(x, 256, (-4, 4)), {"numpy": lambda: np.histogram(x, 256, (-4, 4))}),
        "topk(10)": (lambda c: c.topk(x, 10), {"numpy.partition": lambda: np.partition(x, -10)}),
        "distinct, exact, of 1000": (lambda c: c.distinct(whole, exact=True), {"pandas": pd.Series(whole).nunique}),
        "describe": (lambda c: c.describe(x), {"pandas": series.describe, "polars": frame.describe}),
        "weighted mean": (lambda c: c.mean(x, weights=y), {"numpy.average": lambda: np.average(x, weights=y)}),
        "corr": (lambda c: c.corr(x, y), {"numpy.corrcoef": lambda: np.corrcoef(x, y)}),
        "compare": (lambda c: c.compare(x, y, rtol=1e-5), {"numpy.allclose": lambda: np.allclose(x, y, rtol=1e-5)}),
        "dot": (lambda c: c.dot(x, y), {"numpy.dot (BLAS, not exact)": lambda: np.dot(x, y)}),
        "skew": (lambda c: c.skew(x), {"pandas": series.skew}),
    }


def main():
    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 256
    repeats = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    if any(importlib.util.find_spec(name) is None for name in ("pandas", "polars")):
        sys.exit("bench_answers_peers.py: got no pandas or polars; allowed: both installed")
    import pandas as pd
    import polars as pl

    random = np.random.default_rng(1)
    client = reduced.connect("local:")
    print(f"{mib} MiB, {os.cpu_count()} cores; the peer's time / ours")
    for dtype in ("f4", "f8"):
        count = (mib << 20) // np.dtype(dtype).itemsize
        x, y = (random.standard_normal(count, np.dtype(dtype)) for _ in range(2))
        whole = random.integers(0, 1000, count).astype(dtype)
        for name, (ours, theirs) in peers(x, y, whole, pd, pl).items():
            mine = best(lambda: ours(client), repeats)
            ratios = ", ".join(f"{peer} {best(call, repeats) / mine:.2f}" for peer, call in theirs.items())
            print(f"{dtype}  {name:26} {mine * 1e3:8.1f} ms   {ratios}", flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Reductions of segments, by keys and under masks on the CPU engine, in this process, beside NumPy: GB/s of the array and what lies
beside it together, the share of the rate at which the whole array is summed in f64, which is nearly that of reading it, and how many
times as fast as NumPy.

usage: PYTHONPATH=... bench_groups.py [MIB [DTYPE ...]]
"""

import sys
import time

import numpy as np
import reduced

MIB = int(sys.argv[1]) if len(sys.argv) > 1 else 256
DTYPES = sys.argv[2:] or ["f4", "f8", "i4"]
OPS = ["sum", "max", "argmax"]


def best_us(compute):
    """Of several runs the fastest: other processes only ever make a run slower."""
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        compute()
        best = min(best, time.perf_counter() - start)
    return best * 1e6


def power_law(random, elements):
    lengths = (random.pareto(1.2, elements // 16) * 4).astype("i8") + 1
    return np.minimum(np.append(0, np.cumsum(lengths)), elements)


def segments(offsets):
    starts = offsets[:-1][np.diff(offsets) > 0]  # reduceat takes an empty one for its first element
    return {"segments": offsets}, {
        "sum": lambda x, wide: np.add.reduceat(x, starts, dtype=wide),
        "max": lambda x, wide: np.maximum.reduceat(x, starts)}, offsets.nbytes


def keys(labels, groups):
    asked = {"keys": labels} if groups is None else {"keys": labels, "groups": groups}

    def ids():
        """Of NumPy: 0, 1, ... by which it can index."""
        return labels if groups is not None else np.unique(labels, return_inverse=True)[1]

    def largest(x, wide):
        places = ids()
        out = np.full(places.max() + 1, -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min, x.dtype)
        np.maximum.at(out, places, x)
        return out

    return asked, {"sum": lambda x, wide: np.bincount(ids(), weights=x), "max": largest}, labels.nbytes


def where(mask):
    return {"where": mask}, {
        "sum": lambda x, wide: x.sum(where=mask, dtype=wide),
        "max": lambda x, wide: x.max(where=mask, initial=x.dtype.type(0)),
        "argmax": lambda x, wide: np.where(mask, x, x.dtype.type(0)).argmax()}, mask.nbytes


def cases(random, elements):
    yield "16 a segment", segments(np.sort(random.integers(0, elements, elements // 16)))
    yield "power law", segments(power_law(random, elements))
    yield "half in one", segments(np.append(np.arange(0, elements // 2, 64), [elements]))
    yield "keys < 16", keys(random.integers(0, 16, elements, "i4"), 16)
    yield "keys < 4096", keys(random.integers(0, 4096, elements, "i4"), 4096)
    yield "keys < 4096, found", keys(random.integers(0, 4096, elements, "i4"), None)
    yield "keys < 1 Mi", keys(random.integers(0, 1 << 20, elements, "i4"), 1 << 20)
    yield "1 Mi far apart, found", keys(random.integers(0, 1 << 20, elements, "i8") * 4_398_046_511_093 - (1 << 62), None)
    yield "where, 50%", where(random.random(elements) < 0.5)
    yield "where, 99%", where(random.random(elements) < 0.99)


def main():
    client = reduced.connect("local:")
    print(f"{MIB} MiB; GB/s, share of the whole array's sum, times NumPy {np.__version__}'s rate")
    for dtype in DTYPES:
        elements = (MIB << 20) // np.dtype(dtype).itemsize
        random = np.random.default_rng(1)
        data = (random.random(elements) * 1000).astype(dtype)
        wide = "i8" if data.dtype.kind == "i" else "f8"
        whole = best_us(lambda: client.sum(data, precision="f64"))
        rate = data.nbytes / whole
        print(f"{dtype} whole array {rate / 1e3:6.1f} GB/s")
        for name, (asked, theirs, beside) in cases(random, elements):
            cells = []
            for op in OPS:
                ours = best_us(lambda: client.reduce(data, op, empty="fill", **asked))
                got = (data.nbytes + beside) / ours
                times = f"{best_us(lambda: theirs[op](data, wide)) / ours:6.2f}x" if op in theirs else "      -"
                cells.append(f"{op} {got / 1e3:6.2f} {got / rate:5.2f} {times}")
            print(f"{dtype} {name:21} " + "   ".join(cells), flush=True)


if __name__ == "__main__":
    main()

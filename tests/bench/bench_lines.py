#!/usr/bin/env python3
"""Lines of NumPy, pandas and polars beside the line of `reduced` that answers the same, of `local:`, in one run: the time of each, and
how many times as fast as the other `reduced` is. Arrays lie as the line's user has them: strided, transposed, masked, in the other byte
order, in columns.

usage: bench_lines.py [MIB [NAME...]]    # 64 MiB of each array by default; lines whose names begin so
"""

import os
import sys

import numpy as np
import pandas as pd
import polars as pl
import reduced
from peers import best_ms

C = reduced.connect("local:")
RANDOM = np.random.default_rng(1)
RUNS = 7


def many(call, times):
    """A call that is too short to be timed alone."""
    def run():
        for _ in range(times):
            call()
    return run


def lines(elements):
    """What each line is, what it is compared with, and both calls, for arrays of f64."""
    x = RANDOM.normal(size=elements)
    table = x.reshape(-1, 64)
    yield "sum", "numpy.sum", lambda: C.sum(x), lambda: np.sum(x)
    yield "x[::2]", "numpy.sum", lambda: C.sum(x[::2]), lambda: np.sum(x[::2])
    yield "x[:, :32]", "numpy.sum", lambda: C.sum(table[:, :32]), lambda: np.sum(table[:, :32])
    yield "x[:, :32] axis=0", "numpy.sum", lambda: C.sum(table[:, :32], axis=0), lambda: np.sum(table[:, :32], axis=0)
    swapped = x.astype(">f8")
    yield "big-endian", "numpy.sum", lambda: C.sum(swapped), lambda: np.sum(swapped)
    fortran = np.asfortranarray(table)
    yield "F order axis=0", "numpy.sum", lambda: C.sum(fortran, axis=0), lambda: np.sum(fortran, axis=0)
    yield "F order axis=1", "numpy.sum", lambda: C.sum(fortran, axis=1), lambda: np.sum(fortran, axis=1)
    holes = np.where(RANDOM.random(table.shape) < 0.1, np.nan, table)
    turned = np.ascontiguousarray(holes.T).T
    yield "nanmean of x.T", "numpy.nanmean", lambda: C.mean(turned, axis=0, nan="omit"), lambda: np.nanmean(turned, axis=0)
    mask = RANDOM.random(table.shape) < 0.5
    yield "where", "numpy.sum", lambda: C.sum(table, where=mask), lambda: np.sum(table, where=mask)
    yield "where axis=0", "numpy.sum", lambda: C.sum(table, axis=0, where=mask), lambda: np.sum(table, axis=0, where=mask)
    yield "where axis=1", "numpy.sum", lambda: C.sum(table, axis=1, where=mask), lambda: np.sum(table, axis=1, where=mask)
    frame = pd.DataFrame({f"c{i}": RANDOM.normal(size=elements // 8) for i in range(8)})
    yield "DataFrame mean", "pandas", lambda: C.mean(frame, axis=0), lambda: frame.mean()
    numbers = pd.Series(RANDOM.integers(0, 1000, elements), dtype="Int64").mask(pd.Series(RANDOM.random(elements) < 0.1))
    yield "Int64 with NA", "pandas", lambda: C.sum(numbers), lambda: numbers.sum()
    of_polars = pl.from_pandas(numbers)
    yield "polars with nulls", "polars", lambda: C.sum(of_polars), lambda: of_polars.sum()
    months = np.arange(elements // 8192) % 12
    rows = x[:elements // 8192 * 8192].reshape(-1, 8192)
    yield ("12 keys, rows of 8192", "numpy loop", lambda: C.mean(rows, keys=months, groups=12),
           lambda: [rows[months == month].mean(axis=0) for month in range(12)])
    for groups in (1_000, 500_000):
        keys = RANDOM.integers(0, groups, elements)
        yield f"{groups} keys", "numpy.bincount", lambda keys=keys, groups=groups: C.sum(x, keys=keys, groups=groups), lambda keys=keys: np.bincount(keys, x)
        yield (f"{groups} keys, found", "pandas", lambda keys=keys: C.sum(x, keys=keys),
               lambda keys=keys: pd.Series(x).groupby(keys).sum())
    series = pd.Series(x)
    for groups in (1_000, 500_000):
        names = np.array([f"name {number}" for number in range(groups)])[RANDOM.integers(0, groups, elements)]
        text, table_of_polars = pd.Series(names), pl.DataFrame({"k": names.tolist(), "v": x})
        yield f"{groups} strings", "pandas", lambda text=text: C.sum(series, keys=text), lambda text=text: series.groupby(text).sum()
        yield (f"{groups} strings, polars", "polars", lambda table=table_of_polars: C.sum(table["v"], keys=table["k"]),
               lambda table=table_of_polars: table.group_by("k").agg(pl.col("v").sum()).sort("k"))
        category = text.astype("category")
        yield (f"{groups} categories", "pandas", lambda category=category: C.sum(series, keys=category),
               lambda category=category: series.groupby(category, observed=True).sum())
    seconds = pd.Series(np.datetime64("2020-01-01", "s") + RANDOM.integers(0, 3 * 365 * 86400, elements))
    yield ("by month", "pandas", lambda: C.mean(series, keys=seconds, bucket="month"),
           lambda: series.groupby(seconds.dt.to_period("M")).mean())
    keys = np.sort(RANDOM.integers(0, 1000, elements))
    yield "sorted keys", "pandas", lambda: C.sum(x, keys=keys), lambda: pd.Series(x).groupby(keys).sum()
    few = x[:128].copy()
    yield "1 KiB, 1000 times", "numpy.sum", many(lambda: C.sum(few), 1000), many(lambda: np.sum(few), 1000)


def main():
    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    names = tuple(sys.argv[2:])
    print(f"{len(os.sched_getaffinity(0))} cores, {mib} MiB of f64; NumPy {np.__version__}, pandas {pd.__version__}, polars {pl.__version__}")
    print(f"{'':24} {'ms':>9} {'other ms':>9} {'times':>7}")
    for name, other, ours, theirs in lines(mib << 17):
        if names and not name.startswith(names):
            continue
        ours_ms, theirs_ms = best_ms(ours, RUNS), best_ms(theirs, RUNS)
        print(f"{name:24} {ours_ms:9.2f} {theirs_ms:9.2f} {theirs_ms / ours_ms:7.2f}  {other}", flush=True)


if __name__ == "__main__":
    main()

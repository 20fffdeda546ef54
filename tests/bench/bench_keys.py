#!/usr/bin/env python3
"""GROUP BY keys beside pandas and polars in one run: codes of the keys by `encode_keys` and by `pandas.factorize`, both sorted, and
sums of f64 by key, of `local:`, of pandas' groupby and of polars' group_by, which does not sort. The time of each, and how many times
as fast as the others `reduced` is.

usage: bench_keys.py [ROWS]    # 8 Mi by default
"""

import os
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import reduced
from peers import best_ms
from reduced import _core

C = reduced.connect("local:")
RUNS = 3


def kinds(rows):
    """Names, keys as encode_keys takes them, and as a Series of pandas and a Series of polars."""
    random = np.random.default_rng(1)
    for groups in (1_000, 500_000):
        numbers = random.integers(0, groups, rows)
        names = np.array([f"customer-{i:06}" for i in range(groups)], object)
        for order in ("", ", sorted"):
            numbers = np.sort(numbers) if order else numbers
            text = pa.array(names).cast(pa.string()).take(pa.array(numbers))
            offsets = np.frombuffer(text.buffers()[1], np.int32, rows + 1)
            data = np.frombuffer(text.buffers()[2], np.uint8)
            yield f"{groups} strings{order}", ("utf8", offsets, data, None), pd.Series(text.to_pandas(), dtype="str"), pl.from_arrow(text)
            far = numbers * 1_000_000_007
            yield f"{groups} integers{order}", ("numbers", far, None), pd.Series(far), pl.Series(far)


def main():
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 23
    x = np.random.default_rng(2).normal(size=rows)
    print(f"{len(os.sched_getaffinity(0))} cores, {rows} rows; NumPy {np.__version__}, pandas {pd.__version__}, polars {pl.__version__}")
    print(f"{'ms':24} {'codes':>8} {'factorize':>10} {'times':>6} {'sum':>8} {'pandas':>8} {'times':>6} {'polars':>8} {'times':>6}")
    for name, column, of_pandas, of_polars in kinds(rows):

        def codes(column=column):
            return _core.encode_keys([column], True, "drop")

        def total(codes=codes):
            numbers, groups, _ = codes()
            return C.sum(x, keys=numbers, groups=groups)

        frame = pd.DataFrame({"key": of_pandas, "x": x})
        table = pl.DataFrame({"key": of_polars, "x": x})
        times = [
            best_ms(codes, RUNS),
            best_ms(lambda: pd.factorize(of_pandas, sort=True), RUNS),  # noqa: B023
            best_ms(total, RUNS),
            best_ms(lambda: frame.groupby("key").x.sum(), RUNS),  # noqa: B023
            best_ms(lambda: table.group_by("key").agg(pl.col("x").sum()), RUNS),  # noqa: B023
        ]
        print(f"{name:24} {times[0]:8.1f} {times[1]:10.1f} {times[1] / times[0]:6.2f} {times[2]:8.1f} {times[3]:8.1f} {times[3] / times[2]:6.2f} "
              f"{times[4]:8.1f} {times[4] / times[2]:6.2f}", flush=True)


if __name__ == "__main__":
    main()

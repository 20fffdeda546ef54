#!/usr/bin/env python3
"""Reductions along axes on the CPU engine, in this process, beside NumPy: GB/s of each class of layouts, and the share of the rate
at which the whole array is summed in f64, which is nearly that of reading it.

With NANS, a share such as 0.01, floats alone are measured, of which so many are NaN and omitted, beside NumPy's nansum and the
like; 0: none. PRECISION is exact, as by default, or f64.

usage: PYTHONPATH=... bench_axes.py [MIB [NANS [PRECISION]]]
"""

import sys
import time
import warnings

import numpy as np
import reduced

MIB = int(sys.argv[1]) if len(sys.argv) > 1 else 256
NANS = (float(sys.argv[2]) if len(sys.argv) > 2 else 0) or None
PRECISION = sys.argv[3] if len(sys.argv) > 3 else "exact"
# Rows of the array, and the axis: of 4 to 64 Ki elements a row, few and many columns, a middle axis, two outer axes.
LAYOUTS = [("rows of 4", (-1, 4), 1), ("rows of 31", (-1, 31), 1), ("rows of 128", (-1, 128), 1), ("rows of 4096", (-1, 4096), 1),
           ("4 rows", (4, -1), 1), ("columns, 3", (-1, 3), 0), ("columns, 64", (-1, 64), 0), ("columns, 4096", (-1, 4096), 0),
           ("middle", (-1, 64, 256), 1), ("two outer", (-1, 64, 256), (0, 1))]
OPS = ["sum", "var", "max", "argmax", "count_nonzero"] if NANS is None else ["sum", "var", "max", "argmax"]
OPTIONS = {"precision": PRECISION} | ({} if NANS is None else {"nan": "omit", "empty": "fill"})


def best_us(compute):
    """Of several runs the fastest: other processes only ever make a run slower."""
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        compute()
        best = min(best, time.perf_counter() - start)
    return best * 1e6


def numpys(op, array, axis):
    """A call of NumPy's; None: it has none for this array."""
    wide = {"sum": "i8" if array.dtype.kind == "i" else "f8", "var": "f8"}
    keywords = {"dtype": wide[op]} if op in wide else {}
    function = getattr(np, op if NANS is None else f"nan{op}")
    try:
        function(array, axis=axis, **keywords)
    except ValueError:  # nanargmax of nothing but NaNs
        return None
    return lambda: function(array, axis=axis, **keywords)


def main():
    warnings.simplefilter("ignore")  # NumPy's, of outputs of nothing but NaNs
    client = reduced.connect("local:")
    print(f"{MIB} MiB; GB/s, share of the whole array's sum, times NumPy {np.__version__}'s rate")
    for dtype in ("f4", "f8", "i4", "i8") if NANS is None else ("f4", "f8"):
        elements = (MIB << 20) // np.dtype(dtype).itemsize
        data = (np.random.default_rng(1).random(elements) * 1000).astype(dtype)
        if NANS is not None:
            data[np.random.default_rng(2).random(elements) < NANS] = np.nan
        whole = best_us(lambda data=data: client.sum(data, precision="f64"))
        print(f"{dtype} whole array {data.nbytes / whole / 1e3:6.1f} GB/s")
        for name, shape, axis in LAYOUTS:
            fixed = -int(np.prod(shape))
            array = data[:elements // fixed * fixed].reshape(shape)
            cells = []
            for op in OPS:
                if op == "argmax" and isinstance(axis, tuple):
                    continue  # NumPy has one axis
                ours = best_us(lambda array=array, op=op: client.reduce(array, op, axis=axis, **OPTIONS))
                numpy = numpys(op, array, axis)
                theirs = best_us(numpy) if numpy is not None else float("nan")
                cells.append(f"{op} {array.nbytes / ours / 1e3:6.2f} {whole / ours * array.nbytes / data.nbytes:5.2f} {theirs / ours:6.2f}x")
            print(f"{dtype} {name:14} " + "   ".join(cells), flush=True)


if __name__ == "__main__":
    main()

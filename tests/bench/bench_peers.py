#!/usr/bin/env python3
"""What PyTorch and CuPy, where they are installed, take for the cells of bench_matrix on the same GPU, and how many times as fast
`reduced` is. A peer without the dtype or the op has no figure; sums of several ops are the peer's one after the other.

usage: bench_peers.py MATRIX_JSON [MIB [SECONDS]]    MATRIX_JSON: of `bench_matrix --json=...`, as large; MIB: of the arrays (1024);
SECONDS: that a peer may take (30), whose other cells are left out
"""

import json
import pathlib
import statistics
import sys
import time

MATRIX = {cell["key"]: cell["gb_per_s"] for cell in json.loads(pathlib.Path(sys.argv[1]).read_text())["cells"]}
BYTES = (int(sys.argv[2]) if len(sys.argv) > 2 else 1024) << 20
SECONDS = float(sys.argv[3]) if len(sys.argv) > 3 else 30
RUNS = 3
WIDTHS = {"bool": 1, "i8": 1, "i32": 4, "i64": 8, "f16": 2, "bf16": 2, "f32": 4, "f64": 8}
FLOATS = ("f16", "bf16", "f32", "f64")
OPS = ("sum", "mean", "prod", "min", "max", "argmax", "var", "l2", "any", "count_nonzero", "nan_count")
SETS = {"sum,max": ("sum", "max"), "mean,std": ("mean", "std"), "describe": ("nan_count", "min", "max", "mean", "std", "argmin", "argmax")}


def timed(call, event, elapsed_ms):
    """The median time that the GPU takes."""
    times = []
    for _ in range(RUNS + 1):
        begin, end = event(), event()
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(elapsed_ms(begin, end) / 1e3)
    return statistics.median(times[1:])


def torch_peer():
    import torch

    dtypes = {"bool": torch.bool, "i8": torch.int8, "i32": torch.int32, "i64": torch.int64, "f16": torch.float16, "bf16": torch.bfloat16,
              "f32": torch.float32, "f64": torch.float64}
    ops = {op: getattr(torch, op) for op in ("sum", "mean", "prod", "argmin", "argmax", "any", "std", "count_nonzero")}
    ops |= {"min": torch.amin, "max": torch.amax, "var": torch.var, "l2": torch.linalg.vector_norm, "nan_count": lambda x: torch.isnan(x).sum()}

    def array(dtype):
        count = BYTES // WIDTHS[dtype]
        if dtype in FLOATS:
            return torch.empty(count, dtype=dtypes[dtype], device="cuda").uniform_(-1, 1)
        return torch.randint(0, 2 if dtype == "bool" else 100, (count,), device="cuda", dtype=torch.uint8 if dtype == "bool" else dtypes[dtype]).to(dtypes[dtype])

    return array, ops, lambda call: timed(call, lambda: torch.cuda.Event(enable_timing=True), lambda a, b: a.elapsed_time(b)), torch.cuda.empty_cache


def cupy_peer():
    import cupy

    dtypes = {"bool": "?", "i8": "i1", "i32": "i4", "i64": "i8", "f16": "f2", "f32": "f4", "f64": "f8"}
    ops = {op: getattr(cupy, op) for op in ("sum", "mean", "prod", "min", "max", "argmin", "argmax", "var", "std", "any", "count_nonzero")}
    ops |= {"l2": cupy.linalg.norm, "nan_count": lambda x: cupy.isnan(x).sum()}

    def array(dtype):
        count = BYTES // WIDTHS[dtype]
        values = cupy.resize(cupy.random.uniform(-1, 1, 1 << 20) if dtype in FLOATS else cupy.random.randint(0, 2 if dtype == "bool" else 100, 1 << 20), count)
        return values.astype(dtypes[dtype])

    return array, ops, lambda call: timed(call, cupy.cuda.Event, cupy.cuda.get_elapsed_time), cupy.get_default_memory_pool().free_all_blocks


def rows_of(name, peer):
    """(times as fast, line) of each cell that the peer has, too."""
    array, ops, seconds, free = peer
    end = time.monotonic() + SECONDS
    for dtype in WIDTHS:
        try:
            x = array(dtype)
        except (KeyError, RuntimeError, TypeError) as error:
            print(f"{name}: no {dtype}: {str(error).splitlines()[0]}", file=sys.stderr)
            continue
        for title, names in ({op: (op,) for op in OPS} | SETS).items():
            if time.monotonic() > end:
                print(f"{name}: no time for {title} of {dtype} and what follows", file=sys.stderr)
                return
            yield from row(name, dtype, title, names, x, ops, seconds)
        del x
        free()


def row(name, dtype, title, names, x, ops, seconds):
    ours = MATRIX.get(f"{dtype} {'propagate exact' if dtype in FLOATS else ' '} {title} of uniform")
    if ours is None:
        return
    try:
        theirs = BYTES / seconds(lambda: [ops[op](x) for op in names]) / 1e9
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return  # the peer has no such op of this dtype
    yield ours / theirs, f"{dtype:5} {title:14} {ours:7.0f} GB/s   {name} {theirs:7.0f}   {ours / theirs:8.2f}x"


def main():
    rows = []
    for name, make in (("torch", torch_peer), ("cupy", cupy_peer)):
        try:
            peer = make()
        except ImportError:
            print(f"{name}: not installed", file=sys.stderr)
            continue
        rows += rows_of(name, peer)
    for _, line in sorted(rows):
        print(line)
    slower = sum(times < 1 for times, _ in rows)
    print(f"{slower} of {len(rows)} cells are slower than the peer's")


main()

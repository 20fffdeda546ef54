#!/usr/bin/env python3
"""What bench_layouts measured beside PyTorch and CuPy on the same shapes, where they are installed: GB/s of each, of the same bytes,
and how many times their rate `reduced` reaches. Theirs are timed by events, so that calls which the host takes longer for than
the GPU are as slow as they seem.

usage: bench_layouts.py LAYOUTS.json    # bench_layouts --json=LAYOUTS.json; with the same --mib there must be room for as much again
"""

import json
import sys

from peers import load

DTYPES = {"f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16", "i8": "int8", "i32": "int32"}
RUNS = 5


def torch_call(torch, array, op, axes):
    """The call that answers the same, or None. PyTorch rounds sums of floats to their own precision."""
    if op == "sum":
        return lambda: torch.sum(array, dim=axes)
    if op == "argmax" and len(axes) == 1:
        return lambda: torch.argmax(array, dim=axes[0])
    if op == "var" and array.dtype.is_floating_point:
        return lambda: torch.var(array, dim=axes, correction=0)
    return None


def cupy_call(cupy, array, op, axes):
    if op == "sum":
        return lambda: cupy.sum(array, axis=axes)
    if op == "argmax" and len(axes) == 1:
        return lambda: cupy.argmax(array, axis=axes[0])
    if op == "var":
        return lambda: cupy.var(array, axis=axes)
    return None


def best_us(events, call):
    """Of several runs the fastest, in microseconds on the GPU's clock."""
    call()
    best = float("inf")
    for _ in range(RUNS):
        begin, end = events(), events()
        begin.record()
        call()
        end.record()
        end.synchronize()
        best = min(best, elapsed_us(begin, end))
    return best


def elapsed_us(begin, end):
    if hasattr(begin, "elapsed_time"):
        return 1e3 * begin.elapsed_time(end)
    return 1e3 * load("cupy").cuda.get_elapsed_time(begin, end)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        measured = json.load(file)
    torch, cupy = load("torch"), load("cupy")
    print(f"{measured['device']}, {measured['mib']} MiB, plain read {measured['read_gb_per_s']:.0f} GB/s; times the rate of: "
          f"torch {getattr(torch, '__version__', '-')}, cupy {getattr(cupy, '__version__', '-')}")
    for cell in measured["cells"]:
        line = f"{cell['dtype']:5} {cell['op']:9} {cell['name']:24} {cell['gb_per_s']:6.0f} GB/s"
        peers = []
        if torch is not None:
            array = torch.ones(cell["shape"], device="cuda", dtype=getattr(torch, DTYPES[cell["dtype"]]))
            peers.append(("torch", torch_call(torch, array, cell["op"], tuple(cell["axes"])), lambda: torch.cuda.Event(enable_timing=True)))
        if cupy is not None and cell["dtype"] != "bf16" and cell["us"] < 1e4:
            array = cupy.ones(cell["shape"], dtype=DTYPES[cell["dtype"]])
            peers.append(("cupy", cupy_call(cupy, array, cell["op"], tuple(cell["axes"])), cupy.cuda.Event))
        for name, call, events in peers:
            if call is None:
                line += f"  {name:5}      -"
                continue
            line += f"  {name:5} {best_us(events, call) / cell['us']:6.2f}x"
        print(line, flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What bench_groups_cuda measured beside PyTorch and CuPy on data of the same kinds, where they are installed: GB/s of each, of the
array alone, and how many times their rate `reduced` reaches, by the time of its kernels and of its calls. What lies beside the
array is on the GPU. Theirs are timed by events, until the answers are on the GPU; the calls of `reduced` end with answers in host
memory. The worst cells come first.

usage: bench_groups_peers.py GROUPS.json    # bench_groups_cuda MIB REPEATS GROUPS.json
"""

import json
import re
import sys

from peers import load

RUNS = 5


class Torch:
    """Its calls by kind of question: of the array x, and of what lies beside it."""
    name = "torch"

    def __init__(self, torch):
        self.torch = torch
        torch.manual_seed(1)

    def array(self, elements, dtype):
        if dtype == "i32":
            return self.torch.randint(-2**31, 2**31 - 1, (elements,), device="cuda", dtype=self.torch.int32)
        return self.torch.rand(elements, device="cuda") * 2 - 1

    def segments(self, x, op, offsets):
        if op != "sum" or not x.dtype.is_floating_point:
            return None
        offsets = self.torch.from_numpy(offsets).cuda()
        return lambda: self.torch.segment_reduce(x, "sum", offsets=offsets, unsafe=True)

    def labels(self, rows, groups):
        return self.torch.randint(0, groups, (rows,), device="cuda", dtype=self.torch.int32)

    def keys(self, x, op, labels, groups):
        if op == "sum":
            return lambda: self.torch.zeros(groups, device="cuda", dtype=x.dtype).index_add_(0, labels, x)
        return None

    def found(self, x, op, labels):
        def call():
            keys, places = self.torch.unique(labels, return_inverse=True)
            return self.torch.zeros(len(keys), device="cuda", dtype=x.dtype).index_add_(0, places, x)
        return call if op == "sum" else None

    def where(self, x, op, percent):
        mask = self.torch.rand(len(x), device="cuda") * 100 < percent
        if op == "sum":
            return lambda: self.torch.where(mask, x, 0).sum()
        if op == "argmax":
            return lambda: self.torch.where(mask, x, float("-inf")).argmax()
        if op == "var" and x.dtype.is_floating_point:
            return lambda: x[mask].var(correction=0)
        return None

    def events(self):
        return self.torch.cuda.Event(enable_timing=True)

    @staticmethod
    def elapsed_us(begin, end):
        return 1e3 * begin.elapsed_time(end)


class Cupy:
    """The same of CuPy."""
    name = "cupy"

    def __init__(self, cupy):
        self.cupy = cupy
        cupy.random.seed(1)

    def array(self, elements, dtype):
        if dtype == "i32":
            return self.cupy.random.randint(-2**31, 2**31 - 1, elements, dtype="int32")
        return self.cupy.random.random(elements, dtype="float32") * 2 - 1

    def segments(self, x, op, offsets):
        starts = self.cupy.asarray(offsets[:-1][offsets[:-1] < offsets[1:]])
        return (lambda: self.cupy.add.reduceat(x, starts)) if op == "sum" else None

    def labels(self, rows, groups):
        return self.cupy.random.randint(0, groups, rows, dtype="int32")

    def keys(self, x, op, labels, groups):
        return (lambda: self.cupy.bincount(labels, weights=x, minlength=groups)) if op == "sum" else None

    def found(self, x, op, labels):
        def call():
            places = self.cupy.unique(labels, return_inverse=True)[1]
            return self.cupy.bincount(places, weights=x)
        return call if op == "sum" else None

    def where(self, x, op, percent):
        mask = self.cupy.random.random(len(x), dtype="float32") * 100 < percent
        if op == "sum":
            return lambda: self.cupy.where(mask, x, 0).sum()
        if op == "argmax" and x.dtype.kind == "f":
            return lambda: self.cupy.where(mask, x, -self.cupy.inf).argmax()
        if op == "var":
            return lambda: x[mask].var()
        return None

    def events(self):
        return self.cupy.cuda.Event()

    def elapsed_us(self, begin, end):
        return 1e3 * self.cupy.cuda.get_elapsed_time(begin, end)


def offsets_of(name, elements):
    """As bench_groups_cuda has them, in host memory, or None."""
    import numpy as np
    if match := re.fullmatch(r"(\d+) a segment", name):
        return np.append(np.arange(0, elements, int(match[1])), elements)
    if name == "power law":
        lengths = 1 + (4 * (np.random.default_rng(1).random(elements // 8) ** (-1 / 1.2) - 1)).astype("i8")
        ends = np.cumsum(lengths)
        return np.concatenate(([0], ends[ends < elements], [elements]))
    if name == "half in one":
        return np.append(np.arange(0, elements // 2, 64), elements)
    return None


def call_of(peer, cell, elements):
    """The call that answers the same, or None."""
    (op,) = cell["ops"]
    x = peer.array(elements, cell["dtype"])
    if (offsets := offsets_of(cell["name"], elements)) is not None:
        return peer.segments(x, op, offsets)
    if match := re.fullmatch(r"keys < (\d+)(, found)?", cell["name"]):
        labels = peer.labels(len(x), int(match[1]))
        return peer.found(x, op, labels) if match[2] else peer.keys(x, op, labels, int(match[1]))
    if match := re.fullmatch(r"where, (\d+)%", cell["name"]):
        return peer.where(x, op, int(match[1]))
    return None


def best_us(peer, call):
    """Of several runs the fastest, in microseconds on the GPU's clock."""
    call()
    best = float("inf")
    for _ in range(RUNS):
        begin, end = peer.events(), peer.events()
        begin.record()
        call()
        end.record()
        end.synchronize()
        best = min(best, peer.elapsed_us(begin, end))
    return best


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        measured = json.load(file)
    elements = (measured["mib"] << 20) // 4
    peers = [peer(module) for peer, module in ((Torch, load("torch")), (Cupy, load("cupy"))) if module is not None]
    print(f"{measured['device']}, {measured['mib']} MiB, plain read {measured['read_gb_per_s']:.0f} GB/s; times the rate of: "
          f"torch {getattr(load('torch'), '__version__', '-')}, cupy {getattr(load('cupy'), '__version__', '-')}")
    lines = []
    for cell in measured["cells"]:
        if cell["beside"] != "gpu" or len(cell["ops"]) != 1:
            continue
        ratios = {}
        for peer in peers:
            call = call_of(peer, cell, elements)
            if call is not None:
                ratios[peer.name] = best_us(peer, call)
        if ratios:
            fastest = min(ratios.values())
            line = f"{cell['dtype']:4} {cell['ops'][0]:7} {cell['name']:20} {4e-3 * elements / cell['us']:6.0f} GB/s"
            for name, us in ratios.items():
                line += f"  {name} kernels {us / cell['kernel_us']:6.2f}x, call {us / cell['us']:6.2f}x"
            lines.append((fastest / cell["kernel_us"], line))
    for _, line in sorted(lines):
        print(line)


if __name__ == "__main__":
    main()

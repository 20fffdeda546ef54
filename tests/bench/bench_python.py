#!/usr/bin/env python3
"""The Python package beside the C++ library on one server, also with tensors of a GPU where there are PyTorch and one, and
`local:` beside NumPy and math.fsum, in one run.

usage: bench_python.py BUILD [TIMES [SECONDS]]    BUILD: a build whose test python_wheel has run; TIMES: rounds, of which the
best count (3); SECONDS: of calls for each figure (1)
"""

import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import threading
import time

BUILD = pathlib.Path(sys.argv[1]).resolve()
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 3
SECONDS = float(sys.argv[3]) if len(sys.argv) > 3 else 1.0
SITE = BUILD / "tests/python/site"
ALL_OPS = ["sum", "var", "argmin", "argmax", "prod", "l1", "l2", "nan_count", "range"]
sys.path.insert(0, str(SITE))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
os.environ["REDUCED"] = str(BUILD / "server/reduced")

import harness  # noqa: E402
import numpy as np  # noqa: E402

import reduced  # noqa: E402

assert pathlib.Path(reduced.__file__).parent.parent == SITE, reduced.__file__


def median_us(call, seconds=SECONDS):
    call()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e6


def library_us(server, source, size):
    """The same for the C++ library."""
    run = subprocess.run([BUILD / "tests/bench/bench_client", server, str(SECONDS), source, str(size)], check=True, capture_output=True, timeout=300)
    return json.loads(run.stdout)["median_us"]


def row(name, mine, other_name, other):
    """The best of rounds that take turns."""
    times = [(mine(), other()) for _ in range(ROUNDS)]
    here, there = (min(of_one) for of_one in zip(*times))
    print(f"{name:34} {here:10.1f} us   {other_name:9} {there:10.1f} us   ratio {here / there:.3g}   {here - there:+.1f} us", flush=True)


def gpu(server, client):
    """Tensors that the server reads where they are, and what PyTorch's own sum takes."""
    try:
        import torch
    except ImportError:
        return
    if not torch.cuda.is_available():
        return
    with client.session(via="ring") as session:
        for size in (4 << 10, 1 << 20):
            tensor = torch.zeros(size // 4, device="cuda")
            row(f"CUDA tensor by IPC, ring, {size >> 10} KiB", lambda: median_us(lambda: session.sum(tensor)), "C++",
                lambda: library_us(server.unix, "gpu", size))
            row(f"CUDA tensor by IPC, ring, {size >> 10} KiB", lambda: median_us(lambda: session.sum(tensor)), "torch",
                lambda: median_us(lambda: tensor.sum().item()))


def threads_ratio(threads, array, ops):
    """Calls a second of so many threads, over those of one. The calling thread computes arrays of up to 256 KiB."""
    local = reduced.connect("local:")

    def rate(count):
        done = [0] * count
        end = time.perf_counter() + SECONDS

        def work(i):
            while time.perf_counter() < end:
                local.reduce(array, ops)
                done[i] += 1

        workers = [threading.Thread(target=work, args=(i,)) for i in range(count)]
        for each in workers:
            each.start()
        for each in workers:
            each.join()
        return sum(done)

    return max(rate(threads) / rate(1) for _ in range(ROUNDS))


def import_ms():
    def run(program):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], check=True, env=os.environ | {"PYTHONPATH": str(SITE)})
        return (time.perf_counter() - began) * 1e3

    runs = range(5 * ROUNDS)
    return min(run("import numpy, reduced") for _ in runs) - min(run("import numpy") for _ in runs)


def main():
    server = harness.Server()
    try:
        client = reduced.connect(server.unix, timeout=60)
        for name, source, size in (("call, 1 KiB inline", "inline", 1 << 10), ("call in a session, 1 KiB", "session", 1 << 10),
                                   ("call in a ring, 1 KiB", "ring", 1 << 10), ("stream, 1 GiB", "stream", 1 << 30), ("shared memory, 1 GiB", "region", 1 << 30)):
            reducer = client.session(via=source) if source in ("session", "ring") else client
            array = reduced.empty(size // 4, "f4") if source == "region" else np.empty(size // 4, "f4")
            array[:] = 1
            row(name, lambda: median_us(lambda: reducer.sum(array)), "C++", lambda: library_us(server.unix, source, size))
            del array
        tensors = [np.ones(256, "f4") for _ in range(1000)]
        row("1,000 of 1 KiB in reduce_many", lambda: median_us(lambda: client.reduce_many(tensors, "sum")), "a loop",
            lambda: median_us(lambda: [client.reduce(each, "sum") for each in tensors]))
        gpu(server, client)
        client.close()
    finally:
        server.stop()
    local, large, small = reduced.connect("local:"), np.random.default_rng(1).normal(size=8 << 20), np.ones(256, "f4")
    row("local: exact sum, 64 MiB of f64", lambda: median_us(lambda: local.sum(large)), "numpy.sum", lambda: median_us(large.sum))
    row("local: exact sum, 64 MiB of f64", lambda: median_us(lambda: local.sum(large)), "math.fsum",
        lambda: median_us(lambda: math.fsum(large), 0))
    row("local: call, 1 KiB", lambda: median_us(lambda: local.sum(small)), "numpy.sum", lambda: median_us(small.sum))
    tensors = [np.ones(256, "f4") for _ in range(1000)]
    for ops in ("sum", "fingerprint"):
        row(f"local: 1,000 of 1 KiB, {ops}", lambda: median_us(lambda: local.reduce_many(tensors, ops)), "a loop",
            lambda: median_us(lambda: [local.reduce(each, ops) for each in tensors]))
    cores = len(os.sched_getaffinity(0))
    random = np.random.default_rng(2)
    wide = np.ldexp(random.normal(size=60_000), random.integers(-30, 30, 60_000)).astype("f4")  # a tenth of a millisecond and more for all ops
    for threads in sorted({min(cores, 4), cores}):
        print(f"{threads} threads over one, local: all ops, 60 binades {threads_ratio(threads, wide, ALL_OPS):.2f}, sums {threads_ratio(threads, wide, ['sum']):.2f}",
              flush=True)
    print(f"import, in addition to NumPy's        {import_ms():.0f} ms")
    for wheel in (BUILD / "tests/python/wheels").glob("*.whl"):
        print(f"wheel                              {wheel.stat().st_size / 1e6:.1f} MB  {wheel.name}")


main()

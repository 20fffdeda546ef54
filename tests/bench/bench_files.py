#!/usr/bin/env python3
"""How fast reducectl reads text, beside DuckDB (PyPI: duckdb) and Miller (Debian: miller), which are left out if they are
not there. Each sums columns of the same CSV files, which are in the page cache; the sums are compared.

For each: GB of the file per second of the clock, and per second of processor time of the process, all its threads
together: medians, in turns. That of reducectl is of the whole process, which also sends the numbers to a server.

usage: bench_files.py BUILD [REPEATS [MIB]]
"""

import json
import math
import os
import pathlib
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TIMEOUT_S = 300
BLOCK_ROWS = 20_000  # of random rows, which are repeated


def row_floats(generator):
    return ",".join(f"{generator.uniform(-1000, 1000):.6f}" for _ in range(4))


def row_integers(generator):
    return ",".join(str(generator.randint(-(10**9), 10**9)) for _ in range(4))


def row_mixed(generator):
    words = ("Berlin", "Oslo", "New York", "Tokyo")
    return (f'2026-11-{generator.randint(1, 30)},{generator.choice(words)},"{generator.choice(words)}, again",'
            f"{generator.randint(0, 100)},{generator.uniform(0, 1):.4f},{generator.choice(words)},ok,x,y,z")


# Name, columns, those that are summed, one row.
FILES = (
    ("4 of 4 columns, floats", "abcd", "abcd", row_floats),
    ("4 of 4 columns, integers", "abcd", "abcd", row_integers),
    ("1 of 10 columns, others text", "abcdefghij", "e", row_mixed),
)


def write(path, columns, row, size):
    generator = random.Random(1)
    block = "".join(row(generator) + "\n" for _ in range(BLOCK_ROWS)).encode()
    with open(path, "wb") as file:
        file.write((",".join(columns) + "\n").encode())
        for _ in range(max(1, size // len(block))):
            file.write(block)
    return path.stat().st_size


def timed(command):
    """What a command prints, the seconds that it takes, and those of the processor."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    output = subprocess.run(command, check=True, capture_output=True, timeout=TIMEOUT_S).stdout
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return output, wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def by_reducectl(reducectl, address, path, columns):
    options = [option for column in columns for option in ("--column", column)]
    output, wall, cpu = timed([reducectl, "reduce", path, *options, "--op", "sum", "--json", "--server", address])
    return [json.loads(line)["results"]["sum"] for line in output.splitlines()], wall, cpu


DUCKDB = """
import json, resource, sys, time
import duckdb
path, columns, threads = sys.argv[1:]
connection = duckdb.connect(config={"threads": int(threads)})
sums = ", ".join(f"sum({column})" for column in columns)
cpu = lambda: sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
begin, start = cpu(), time.perf_counter()
row = connection.execute(f"select {sums} from read_csv(?)", [path]).fetchone()
print(json.dumps([list(map(float, row)), time.perf_counter() - start, cpu() - begin]))
"""


def by_duckdb(threads, path, columns):
    """The query alone: without the start of Python."""
    return json.loads(timed([sys.executable, "-c", DUCKDB, path, columns, str(threads)])[0])


def by_miller(path, columns):
    output, wall, cpu = timed(["mlr", "--icsv", "--ojson", "stats1", "-a", "sum", "-f", ",".join(columns), path])
    (row,) = json.loads(output)
    return [row[f"{column}_sum"] for column in columns], wall, cpu


def tools(reducectl, address):
    every = {"reducectl": lambda path, columns: by_reducectl(reducectl, address, path, columns)}
    try:
        import duckdb
        cores = os.cpu_count()
        every[f"DuckDB {duckdb.__version__}, 1 thread"] = lambda path, columns: by_duckdb(1, path, columns)
        every[f"DuckDB {duckdb.__version__}, {cores} threads"] = lambda path, columns: by_duckdb(cores, path, columns)
    except ImportError:
        print("without DuckDB: pip install duckdb")
    if shutil.which("mlr") is None:
        print("without Miller: apt install miller")
    else:
        version = subprocess.run(["mlr", "--version"], check=True, capture_output=True).stdout.decode().split()[-1]
        every[f"Miller {version}"] = by_miller
    return every


def measure(every, path, columns, size, repeats):
    runs = {name: [] for name in every}
    for _ in range(repeats):
        for name, run in every.items():
            sums, wall, cpu = run(path, columns)
            runs[name].append((wall, cpu))
            expected = runs.setdefault("sums", sums)
            if not all(math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-3) for a, b in zip(sums, expected, strict=True)):
                sys.exit(f"{name}: got sums {sums}; reducectl has {expected}")
    del runs["sums"]
    for name, times in runs.items():
        wall, cpu = map(statistics.median, zip(*times))
        print(f"  {name:<28} {size / wall / 1e9:>8.2f} {size / cpu / 1e9:>18.2f}", flush=True)


def main():
    if len(sys.argv) not in (2, 3, 4):
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1])
    repeats, mib = (int(argument) for argument in (*sys.argv[2:], *("5", "128")[len(sys.argv) - 2:]))
    with tempfile.TemporaryDirectory() as folder:
        address, ready = f"unix:{folder}/socket", pathlib.Path(folder) / "ready"
        server = subprocess.Popen([build / "server/reduced", f"--listen={address}", f"--ready_file={ready}"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + TIMEOUT_S
            while not ready.exists() and server.poll() is None and time.monotonic() < deadline:
                time.sleep(0.01)
            every = tools(build / "client/reducectl", address)
            for name, columns, summed, row in FILES:
                path = pathlib.Path(folder) / "data.csv"
                size = write(path, columns, row, mib << 20)
                print(f"{name}, {size / 1e6:.0f} MB\n  {'':<28} {'GB/s':>8} {'GB per CPU second':>18}")
                measure(every, path, summed, size, repeats)
            load = os.getloadavg()[0]
            print(f"load average at the end: {load:.2f}, of {os.cpu_count()} cores")
        finally:
            server.terminate()
            server.wait(TIMEOUT_S)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Calls per second of one server, by callers, processor cores and gRPC's polling strategy.

Starts the server of an installed tree once for each row, confined to some cores where the row says so, loads it with
`reducectl loadtest` (256 bytes inline, a connection for each caller), and prints one table. The load runs on the cores
that are left, or on all of them beside a server that is not confined.

    tests/bench/bench_callers.py TREE [--cores 8,16,32,all] [--strategies default,poll] [--callers 1,4,16,64,8x8]
    tests/bench/bench_callers.py TREE --cuda --via ring_resident --size 4Ki,4Ki,4Ki,4Ki   # an array on each of 4 GPUs
"""

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROCESS_START_S = 30


class Server:
    """A server on a Unix socket of its own, for a `with` block."""

    def __init__(self, tree: Path, cores: list[int], cuda: bool, environment: dict[str, str]) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.address = f"unix:{self.folder.name}/socket"
        ready = Path(self.folder.name) / "ready"
        with open(Path(self.folder.name) / "log", "wb") as log:
            self.process = subprocess.Popen(
                [
                    *("taskset", "-c", ",".join(map(str, cores))),
                    *(str(tree / "bin/reduced"), f"--cuda={cuda}", "--metrics_listen="),
                    *(f"--listen={self.address}", f"--ready_file={ready}"),
                ],
                env=os.environ | environment,
                stdout=log,
                stderr=log,
            )
        end = time.monotonic() + PROCESS_START_S
        while not ready.exists():
            if self.process.poll() is not None or time.monotonic() > end:
                self.__exit__()
                sys.exit("the server did not start")
            time.sleep(0.01)

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()


def load(
    arguments: argparse.Namespace, server: Server, cores: list[int], processes: int, each: int
) -> tuple[float, float]:
    """Thousand calls a second of all processes together, and the greatest of their medians in microseconds."""
    running = [
        subprocess.Popen(
            [
                *("taskset", "-c", ",".join(map(str, cores))),
                *(str(arguments.tree / "bin/reducectl"), "--server", server.address, "loadtest"),
                *("--size", arguments.size, "--via", arguments.via, "--concurrency", str(each), "--connections", str(each)),
                *("--warmup", "300ms", "--duration", f"{arguments.seconds}s", "--stability", "100%", "--csv", "-"),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(processes)
    ]
    calls_per_s, median_us = 0.0, 0.0
    for process in running:
        output, _ = process.communicate()
        if process.returncode != 0:
            sys.exit(f"loadtest: exit status {process.returncode}")
        row = next(csv.DictReader(output.splitlines()))
        calls_per_s += float(row["requests_per_s"])
        median_us = max(median_us, float(row["uncorrected_p50_us"]))
    return calls_per_s / 1e3, median_us


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path, help="the installed tree: bin/reduced, bin/reducectl")
    parser.add_argument("--cores", default="8,16,32,all", help="that the server is confined to, as a list")
    parser.add_argument("--strategies", default="default,poll", help="of gRPC, as a list (GRPC_POLL_STRATEGY)")
    parser.add_argument("--callers", default="1,4,16,64", help="as a list; 8x8: 8 processes of 8 callers each")
    parser.add_argument("--via", default="inline", help="as reducectl loadtest has it; default: inline")
    parser.add_argument("--size", default="256", help="as reducectl loadtest has it; default: 256")
    parser.add_argument("--cuda", action="store_true", help="the server uses the GPUs")
    parser.add_argument("--seconds", type=float, default=0.7, help="that each figure is measured for; default: 0.7")
    arguments = parser.parse_args()
    usable = sorted(os.sched_getaffinity(0))
    columns = arguments.callers.split(",")
    print(f"{len(usable)} cores; thousand calls/s, p50 in us; by callers")
    print("cores  strategy " + "".join(f"{column:>17}" for column in columns))
    for text in arguments.cores.split(","):
        count = len(usable) if text == "all" else int(text)
        if count > len(usable):
            continue
        for strategy in arguments.strategies.split(","):
            environment = {} if strategy == "default" else {"GRPC_POLL_STRATEGY": strategy}
            line = f"{text:<6} {strategy:<9}"
            with Server(arguments.tree, usable[:count], arguments.cuda, environment) as server:
                for column in columns:
                    processes, _, each = column.rpartition("x")
                    rate, median = load(arguments, server, usable[count:] or usable, int(processes or 1), int(each))
                    line += f"{rate:9.1f}{median:8.0f}"
            print(line, flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""A server under mixed traffic, clients that are killed, connections that break and requests that are wrong, for as long
as it is told; the judgement whether it still answers rightly and whether anything piles up.

The time has cycles. In each the traffic runs, then stops; the server must become idle, and is measured: its memory,
descriptors, threads, GPU memory, and its latency beside that of a server that has just started. A row for each cycle and
the judgement are printed. Exit status: 0, if nothing is wrong with it; else 1.

usage: soak.py [--minutes 60] [--cycle 60] [--seed 1] [--build DIR | --tree DIR] [-- SERVER_FLAG...]
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
IDLE_S = 45  # a cancelled call may need --progress_timeout to be noticed
# Expected to be 0 when nothing happens.
GAUGES = ("streams", "sessions", "arrays", "regions", "memory_bytes", "lanes_busy", "queue_length", "array_bytes")
# How much more than in the first quarter of the cycles.
HEAP_GROWTH_BYTES = 8 << 20  # allocated and not freed
OTHER_GROWTH_BYTES = 24 << 20  # resident, without the heaps: each of 8 keeps up to 32 MiB, which it may come to late
GPU_GROWTH_BYTES = 16 << 20
DESCRIPTOR_GROWTH = 4
THREAD_GROWTH = max(4, os.cpu_count() or 1)  # TBB has one for each core, once it needs them
EXECUTORS = ("default-executo", "resolver-execut")  # gRPC's: likewise up to two each for each core, which are not counted
HEAP_ALIGNMENT = 64 << 20  # of all heaps of glibc but the first
LATENCY_GROWTH = 1.25
UNSTABLE = 8  # how a load test ends whose windows differ


class Soak:
    def __init__(self, options):
        self.options = options
        self.random = random.Random(options.seed)
        self.faults = []  # what was wrong, in words
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        self.file = self.folder / "elements"
        self.file.write_bytes(bytes([1, 0, 0, 0]) * (2 << 20))  # i32, all of them 1
        # What killed clients leave behind goes within a cycle.
        options.flags = ["--array_ttl=20s", *options.flags]
        self.server = harness.Server(*options.flags)
        self.gpu = "reduced_gpu_memory_used_bytes" in self.metrics()
        self.ends = 0.0

    # What clients do. Each runs again and again until the cycle's traffic ends.

    def mixed(self, rng):
        """Right answers to all kinds of requests."""
        kinds = [
            {"weight": 20, "op": ["sum", "mean"], "size": "1Ki..64Ki", "via": "session"},
            {"weight": 10, "op": "var", "dtype": "i32", "size": "4Ki..1Mi", "via": "inline"},
            {"weight": 4, "op": "argmax", "dtype": "f64", "size": "1Mi..8Mi", "via": "stream"},
            {"weight": 4, "op": ["min", "max"], "dtype": "f16", "size": "64Ki..4Mi", "via": "region"},
            {"weight": 4, "op": "sum", "dtype": "i64", "size": "64Ki..4Mi", "via": "resident"},
        ]
        if self.gpu:
            kinds = [kind | {"engine": engine, "weight": kind["weight"]} for kind in kinds for engine in ("cpu", "cuda")]
        profile = self.folder / "profile.json"
        if not profile.exists():
            profile.write_text(json.dumps({"mix": kinds}))
        seconds = max(1, min(10, self.left()))
        self.run("loadtest", "--profile", profile, "--concurrency", "4", "--warmup", "0s", "--duration", f"{seconds}s",
                 "--verify", "100%", "--seed", rng.randrange(1 << 30), codes=(0, UNSTABLE))

    def arrays(self, rng):
        """Resident arrays, some left to expire."""
        out = self.run("--json", "arrays", "put", self.file, "--dtype", "i32", "--ttl", "15s")
        name = re.search(r'"id": ?"([^"]+)"', out)[1]
        if '"sum": 2097152' not in self.run("--json", "reduce", "--array", name, "--op", "sum"):
            self.fault(f"resident array {name}: a wrong sum")
        if rng.random() < 0.5:
            self.run("arrays", "delete", name)

    def killed(self, rng):
        """Clients that end without a word."""
        via = rng.choice(("inline", "stream", "session", "region", "resident"))
        with subprocess.Popen(
            harness.command("loadtest", "--via", via, "--size", "16Mi", "--concurrency", "2", "--duration", "30s"),
            env=harness.environment(self.server.unix), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ) as client:
            time.sleep(rng.uniform(0.05, 1.5))  # the fault itself
            client.kill()

    def broken(self, rng):
        """Connections that break in the middle; a client may try again, and is right then."""
        proxy = fault_proxy.FaultProxy(self.server.tcp, rng.randrange(8 << 20), rng.choice(("close", "reset", "stall")), 1)
        try:
            out = self.run("--json", "reduce", self.file, "--dtype", "i32", "--op", "sum", "--timeout", "2s",
                           "--via", rng.choice(("inline", "stream")), server=proxy.address, codes=(0, 3, 4))
            if out and '"sum": 2097152' not in out:
                self.fault("a connection that broke: a wrong sum")
        finally:
            if not proxy.close():
                self.fault("the proxy did not end")

    def wrong(self, rng):
        """What no honest client sends."""
        rubbish = rng.randbytes(rng.randrange(1, 5000))
        host, port = self.server.tcp.rsplit(":", 1)
        with socket.create_connection((host, int(port)), harness.DEADLINE_S) as connection, contextlib.suppress(OSError):
            connection.sendall(rng.choice((b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")) + rubbish)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door, contextlib.suppress(OSError):
            door.settimeout(harness.DEADLINE_S)
            door.connect(self.server.unix.removeprefix("unix:") + ".regions")
            with open(self.file, "rb") as file:
                socket.send_fds(door, [rng.choice((b'{"shareMemory": {}}', rubbish))], [file.fileno()])
                door.recv(4096)
        self.run("reduce", self.file, "--dtype", "f32", "--op", "argmax", "--pipeline", "warp", codes=(2, 4))
        self.run("reduce", "--array", "none", codes=(4,))

    def operator(self, _):
        """Looks, and reloads."""
        self.run("--json", "info")
        self.metrics()
        self.server.process.send_signal(signal.SIGHUP)
        time.sleep(min(1, self.left()))  # it looks now and then

    # The rest measures and judges.

    def left(self):
        return max(0.0, self.ends - time.monotonic())

    def fault(self, text):
        self.faults.append(text)
        if len(self.faults) <= 20:
            print("FAULT:", text, flush=True)

    def run(self, *arguments, server=None, codes=(0,)):
        """What reducectl prints; it must exit with one of the codes."""
        done = subprocess.run(
            harness.command(*arguments), capture_output=True, timeout=4 * harness.DEADLINE_S, check=False,
            env=harness.environment(server or self.server.unix),
        )
        if done.returncode not in codes:
            self.fault(f"{' '.join(map(str, arguments))}: exit status {done.returncode}: {(done.stderr or done.stdout).decode()[-1000:]}")
        return done.stdout.decode()

    def repeat(self, what):
        rng = random.Random(self.random.random())
        count = 0
        while self.left() > 0:
            what(rng)
            count += 1
        return count

    def metrics(self):
        """The sum over all labels of each metric."""
        with urllib.request.urlopen(self.server.http() + "metrics", timeout=harness.DEADLINE_S) as answer:
            lines = answer.read().decode().splitlines()
        sums = {}
        for line in lines:
            if not line.startswith("#"):
                name, value = re.fullmatch(r"(\w+)(?:\{.*\})? (\S+)", line).groups()
                sums[name] = sums.get(name, 0) + float(value)
        return sums

    def await_idle(self):
        """The metrics, once nothing is under way."""
        deadline = time.monotonic() + IDLE_S
        while True:
            metrics = self.metrics()
            busy = {name: metrics[f"reduced_{name}"] for name in GAUGES if metrics.get(f"reduced_{name}", 0) > 0}
            if not busy:
                return metrics
            if time.monotonic() > deadline:
                self.fault(f"not idle after {IDLE_S} s: {busy}")
                return metrics
            time.sleep(0.2)

    def process(self):
        """Resident memory, resident memory without the heaps, GPU memory (in bytes), descriptors and threads. Memory is the least
        of some seconds, since an idle server trims it, that of a GPU within 10 s."""
        folder = pathlib.Path(f"/proc/{self.server.process.pid}")
        rss, other, gpu = [], [], []
        deadline = time.monotonic() + (12 if self.gpu else min(8, self.options.cycle / 4))
        while time.monotonic() < deadline:
            rss.append(int(re.search(r"VmRSS:\s+(\d+)", (folder / "status").read_text())[1]) << 10)
            other.append(rss[-1] - self.heaps())
            if self.gpu:
                gpu.append(self.metrics()["reduced_gpu_memory_used_bytes"])
            time.sleep(0.5)
        names = [(folder / "task" / task / "comm").read_text().strip() for task in os.listdir(folder / "task")]
        threads = sum(name not in EXECUTORS for name in names)
        return min(rss), min(other), min(gpu, default=0), len(os.listdir(folder / "fd")), threads

    def heaps(self):
        """Bytes of the heaps that are resident."""
        total, heap = 0, False
        for line in pathlib.Path(f"/proc/{self.server.process.pid}/smaps").read_text().splitlines():
            if mapping := re.match(r"([0-9a-f]+)-\S+ rw-p \S+ 00:00 0\s*(.*)$", line):
                heap = mapping[2] == "[heap]" or (not mapping[2] and int(mapping[1], 16) % HEAP_ALIGNMENT == 0)
            elif re.match(r"[0-9a-f]+-", line):
                heap = False
            elif heap and (size := re.match(r"Rss:\s+(\d+)", line)):
                total += int(size[1]) << 10
        return total

    def latency_us(self):
        """The median of small requests: of this server and of one that has just started, in turns."""
        fresh = harness.Server(*self.options.flags)
        medians = {self.server: [], fresh: []}
        try:
            for server in (fresh, self.server) * 3:
                out = self.run("loadtest", "--via", "session", "--count", "3000", "--warmup", "100ms", "--json", "-",
                               server=server.unix, codes=(0, UNSTABLE))
                medians[server].append(median_us(json.loads(out)))
        finally:
            fresh.stop()
        return min(medians[self.server]), min(medians[fresh])

    def cycle(self):
        self.ends = time.monotonic() + self.options.cycle * 0.7
        clients = (self.mixed, self.arrays, self.killed, self.broken, self.wrong, self.operator)
        with concurrent.futures.ThreadPoolExecutor(len(clients)) as pool:
            for done in [pool.submit(self.repeat, client) for client in clients]:
                done.result()
        metrics = self.await_idle()
        rss, other, gpu, descriptors, threads = self.process()
        heap = self.metrics()["reduced_heap_used_bytes"]
        aged, fresh = self.latency_us()
        return {
            "calls": metrics["reduced_calls_total"],
            "refused": metrics.get("reduced_rejects_total", 0),
            "rss": rss,
            "heap": heap,
            "other": other,
            "descriptors": descriptors,
            "threads": threads,
            "gpu": gpu,
            "aged": aged,
            "fresh": fresh,
        }

    def judge(self, rows):
        quarter = max(1, len(rows) // 4)
        first, last = rows[:quarter], rows[-quarter:]

        def grown(name, limit, unit=1, suffix="", of=statistics.median):
            begin, end = (of(row[name] for row in part) for part in (first, last))
            print(f"{name}: {begin / unit:.0f}{suffix} at first, {end / unit:.0f}{suffix} at last; allowed: "
                  f"{limit / unit:.0f}{suffix} more")
            if end > begin + limit:
                self.fault(f"{name} grew")

        # The least: what leaks is never given back.
        grown("heap", HEAP_GROWTH_BYTES, 1 << 20, " MiB", min)
        grown("other", OTHER_GROWTH_BYTES, 1 << 20, " MiB", min)
        grown("descriptors", DESCRIPTOR_GROWTH)
        grown("threads", THREAD_GROWTH)
        if self.gpu:
            grown("gpu", GPU_GROWTH_BYTES, 1 << 20, " MiB")
        ratio = statistics.median(row["aged"] / row["fresh"] for row in last)
        print(f"latency: {ratio:.2f} of a fresh server's at last; allowed: {LATENCY_GROWTH}")
        if ratio > LATENCY_GROWTH:
            self.fault("latency grew")

    def soak(self):
        print(f"{'minute':>6} {'calls':>9} {'refused':>8} {'RSS MiB':>8} {'heap MiB':>8} {'descr.':>7} {'threads':>8} {'GPU MiB':>8} "
              f"{'p50 us':>8} {'fresh':>8}", flush=True)
        begin = time.monotonic()
        rows = []
        while (minutes := (time.monotonic() - begin) / 60) < self.options.minutes:
            row = self.cycle()
            rows.append(row)
            print(f"{minutes:6.1f} {row['calls']:9.0f} {row['refused']:8.0f} {row['rss'] / (1 << 20):8.1f} {row['heap'] / (1 << 20):8.1f} "
                  f"{row['descriptors']:7} {row['threads']:8} {row['gpu'] / (1 << 20):8.1f} {row['aged']:8.1f} "
                  f"{row['fresh']:8.1f}", flush=True)
        self.judge(rows)
        log = self.server.log()
        if (status := self.server.stop()) != 0:
            self.fault(f"the server ended with {status}:\n{log[-2000:]}")
        print(f"{len(self.faults)} faults in {len(rows)} cycles")
        return 1 if self.faults else 0

    def end(self):
        """However it went: leaves no process and no file."""
        if self.server.process.poll() is None:
            self.server.stop(signal.SIGKILL)
        self.temporary.cleanup()


def median_us(result):
    """Of the one load of a load test."""
    (load,) = result["steps"]
    return load["latency_us"]["corrected"]["p50"]


def main():
    own, flags = sys.argv[1:], []
    if "--" in own:
        at = own.index("--")
        own, flags = own[:at], own[at + 1 :]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--cycle", type=float, default=60, help="seconds; 0.7 of them with traffic")
    parser.add_argument("--seed", type=int, default=1)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--build", type=pathlib.Path, default=ROOT / "build/native")
    where.add_argument("--tree", type=pathlib.Path, help="an installed tree")
    options = parser.parse_args(own)
    options.flags = flags
    programs = (
        (options.tree / "bin/reduced", options.tree / "bin/reducectl")
        if options.tree
        else (options.build / "server/reduced", options.build / "client/reducectl")
    )
    for name, program in zip(("REDUCED", "REDUCECTL"), programs):
        os.environ.setdefault(name, str(program))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    soak = Soak(options)
    try:
        return soak.soak()
    finally:
        soak.end()


if __name__ == "__main__":
    import fault_proxy
    import harness

    sys.exit(main())

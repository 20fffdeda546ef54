#!/usr/bin/env python3
"""What a server with one lane on one thread does under more load than it can answer: goodput (answers within the deadline)
as a share of the peak just before and after, latencies of the accepted requests, the time that refusals take in the server,
and its memory. Then the latency of an honest caller, alone and beside other callers that flood the server; these are another
user (uid) if the script runs as root, else the same one.

Large arrays are in shared memory, so that requests cost the load generator little. It runs at a lower priority on the same
machine, which must have nothing else to do: else its latencies are those of a process that waits for a processor.

usage: bench_overload.py BUILD [SECONDS]
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

TIMEOUT_S = 60
TARGET_MS = 100
DEADLINE_MS = 500
STRANGER = 12345  # a uid
SERVER = ["--cuda=false", "--cpu_threads=1", "--cpu_lanes=1", f"--queue_target={TARGET_MS}ms", "--log_format=json"]
LARGE = ["--via", "region", "--size", "16Mi"]  # some milliseconds each
HONEST = {"4 KiB inline": ["--via", "inline", "--size", "4Ki"], "16 MiB region": LARGE}
ATTACKS = {
    "uploads of 4 MiB inline": ["--via", "inline", "--size", "4Mi", "--concurrency", "64", "--connections", "8"],
    "streams of 64 MiB": ["--via", "stream", "--size", "64Mi", "--concurrency", "16", "--connections", "8"],
    "tiny calls": ["--via", "inline", "--size", "64", "--concurrency", "64", "--connections", "8"],
    "16 MiB region": [*LARGE, "--concurrency", "256"],
}


class Server:
    def __init__(self, build, folder, *flags):
        self.reducectl, self.folder = build / "client/reducectl", folder
        self.address, ready, self.log = f"unix:{folder}/socket", folder / "ready", folder / "log"
        os.chmod(folder, 0o755)
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [build / "server/reduced", f"--listen={self.address}", f"--ready_file={ready}", "--unix_socket_mode=0666",
                 "--metrics_listen=", *SERVER, *flags], stderr=log)
        deadline = time.monotonic() + TIMEOUT_S
        while not ready.exists() and self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)

    def load(self, seconds, *arguments, user=None):
        """The figures of one load, as reducectl prints them."""
        command = [self.reducectl, "loadtest", "--server", self.address, "--duration", f"{seconds}s", "--warmup", "1500ms",
                   "--verify", "0%", "--json", "-", *arguments]
        run = subprocess.run(["nice", *command], capture_output=True, timeout=TIMEOUT_S + seconds, user=user, cwd="/")
        try:
            return json.loads(run.stdout)["steps"][0]
        except (ValueError, KeyError, IndexError):
            sys.exit(f"{command}: {run.stderr.decode()}")

    def rss_mib(self, what="VmRSS"):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(what + ":"):
                return int(line.split()[1]) / 1024
        return 0

    def refusal_times_ms(self):
        """How long each refusal took in the server, from the lines of its log."""
        times = []
        for line in self.log.read_text(errors="replace").splitlines():
            try:
                call = json.loads(line)
            except ValueError:
                continue
            if call.get("status") == "RESOURCE_EXHAUSTED":
                times.append(call["total_us"] / 1e3)
        return sorted(times)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(TIMEOUT_S)


def percentile(values, percent):
    return values[min(len(values) - 1, int(len(values) * percent / 100))] if values else float("nan")


def latency_ms(step, name, which="uncorrected"):
    return step["latency_us"][which][name] / 1e3


def overload(build, seconds):
    with tempfile.TemporaryDirectory() as folder, Server(build, pathlib.Path(folder)) as server:
        def peak_now():  # other work of the machine comes and goes
            return server.load(seconds, *LARGE, "--concurrency", "4", *deadline)["requests_per_s"]

        deadline = ["--timeout", f"{DEADLINE_MS}ms"]
        peak = peak_now()
        print(f"peak goodput {peak:.1f}/s; --queue_target {TARGET_MS} ms, open loop with deadlines of {DEADLINE_MS} ms")
        print(f"{'offered':>16} {'goodput':>8} {'p50 ms':>8} {'p99 ms':>8} {'p99/target':>10} {'queue p99':>9} {'refused':>8} {'RSS MiB':>8}")
        loads = {f"{x}x": ["--concurrency", "1024", "--threads", "8", "--arrivals", "poisson", *deadline] for x in (1, 2, 10)}
        loads["512 callers"] = ["--concurrency", "512", "--threads", "8"]
        for name, load in loads.items():
            rate = ["--rate", str(max(1, round(float(name[:-1]) * peak)))] if name.endswith("x") else []
            step = server.load(seconds, *LARGE, *rate, *load)
            after = peak_now()
            refused = sum(error["count"] for error in step["errors"].values())
            p99, queued = latency_ms(step, "p99"), latency_ms(step, "p99", "queue")
            goodput = step["requests_per_s"] / ((peak + after) / 2)
            peak = after
            print(f"{name:>16} {goodput:>8.2f} {latency_ms(step, 'p50'):>8.1f} {p99:>8.1f} {p99 / TARGET_MS:>10.2f} "
                  f"{queued:>9.1f} {refused / step['seconds']:>6.0f}/s {server.rss_mib():>8.0f}", flush=True)
    with tempfile.TemporaryDirectory() as folder, Server(build, pathlib.Path(folder), "--log_level=debug") as server:
        server.load(min(seconds, 3), *LARGE, "--rate", str(round(5 * peak)), "--concurrency", "1024", "--threads", "8",
                    "--timeout", f"{DEADLINE_MS}ms")
        times = server.refusal_times_ms()  # the log has ten of them
        print(f"{len(times)} refusals in the server: p50 {percentile(times, 50):.3f} ms, p99 {percentile(times, 99):.3f} ms, "
              f"max {percentile(times, 100):.3f} ms")


def honest(build, seconds):
    attacker = STRANGER if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory() as folder, Server(build, pathlib.Path(folder)) as server:
        alone = {kind: server.load(seconds, *load) for kind, load in HONEST.items()}
        print(f"{'honest caller':>16} {'beside':>26} {'p50 ms':>8} {'p99 ms':>8} {'p99 ratio':>9} {'failed':>7} {'RSS MiB':>8}")
        for kind, step in alone.items():
            print(f"{kind:>16} {'nobody':>26} {latency_ms(step, 'p50'):>8.2f} {latency_ms(step, 'p99'):>8.2f}")
        for attack, flood in ATTACKS.items():
            for kind, load in HONEST.items():
                loader = threading.Thread(target=server.load, args=(seconds + 1, *flood, "--threads", "2"), kwargs={"user": attacker})
                loader.start()
                time.sleep(1)  # its warm-up
                step = server.load(seconds, *load)
                loader.join()
                failed = sum(error["count"] for error in step["errors"].values())
                print(f"{kind:>16} {attack:>26} {latency_ms(step, 'p50'):>8.2f} {latency_ms(step, 'p99'):>8.2f} "
                      f"{latency_ms(step, 'p99') / latency_ms(alone[kind], 'p99'):>9.2f} {failed:>7} "
                      f"{server.rss_mib():>8.0f}", flush=True)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    build, seconds = pathlib.Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) == 3 else 5
    overload(build, seconds)
    honest(build, seconds)


if __name__ == "__main__":
    main()

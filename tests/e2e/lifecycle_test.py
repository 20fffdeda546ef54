"""Servers that come and go, and clients that do."""

import os
import pathlib
import re
import signal
import subprocess
import time
import unittest

import harness
from fault_proxy import FaultProxy
from harness import DATA, np


class StopTest(unittest.TestCase):
    def test_sigterm_and_sigint_end_it_well(self):
        for how in (signal.SIGTERM, signal.SIGINT):
            self.assertEqual(harness.Server().stop(how), 0, how)

    def test_other_signals_leave_it_serving(self):
        server = harness.Server()
        for how in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            server.process.send_signal(how)
            run = subprocess.run(
                harness.command("health"),
                capture_output=True,
                timeout=harness.DEADLINE_S,
                env=harness.environment(server.tcp),
                check=False,
            )
            self.assertEqual(run.returncode, 0, (how, run.stderr))
        self.assertEqual(server.stop(), 0)

    def test_its_address_is_free_again(self):
        first = harness.Server()
        address = first.tcp
        self.assertEqual(first.stop(), 0)
        run = subprocess.run(
            harness.command("info"),
            capture_output=True,
            timeout=harness.DEADLINE_S,
            env=harness.environment(address),
            check=False,
        )
        self.assertEqual(run.returncode, 3)
        self.assertIn(f"no reduced server answers at {address}".encode(), run.stderr)


class HeapsTest(unittest.TestCase):
    def test_many_threads_share_few_heaps(self):
        """Each heap of glibc keeps up to 32 MiB; by default there are eight for each core, if there are as many threads."""
        server = harness.Server("--cpu_threads=32", before=("/usr/bin/env", "GLIBC_TUNABLES=glibc.malloc.arena_max=256"))
        run = subprocess.run(
            harness.command("loadtest", "--via", "inline", "--size", "4Ki", "--concurrency", "64", "--count", "4000", "--stability", "100%"),
            capture_output=True, timeout=harness.DEADLINE_S, env=harness.environment(server.unix), check=False,
        )
        maps = pathlib.Path(f"/proc/{server.process.pid}/maps").read_text()
        threads = len(os.listdir(f"/proc/{server.process.pid}/task"))
        self.assertEqual(server.stop(), 0)
        self.assertEqual(run.returncode, 0, run.stderr)
        # Heaps but the first one begin at multiples of 64 MiB, whose first pages are readable.
        begins = re.findall(r"^([0-9a-f]+)-\S+ rw-p 00000000 00:00 0\s*$", maps, re.MULTILINE)
        heaps = [begin for begin in begins if int(begin, 16) % (64 << 20) == 0]
        self.assertGreater(threads, 32)
        self.assertLessEqual(len(heaps), 8, f"{threads} threads")


class KilledClientTest(harness.ServedTest):
    def test_a_client_killed_while_it_sends(self):
        path = self.folder / "zeros.bin"
        with open(path, "wb") as file:
            file.truncate(48 << 20)
        for _ in range(3):
            cut = FaultProxy(self.server.tcp, 8 << 20)
            client = subprocess.Popen(
                harness.command("reduce", path, "--dtype", "u8", "--op", "sum", "--timeout", "60s"),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=harness.environment(cut.address),
            )
            self.assertTrue(cut.reached.wait(harness.DEADLINE_S))
            client.kill()
            output, _ = client.communicate(timeout=harness.DEADLINE_S)
            self.assertEqual((client.returncode, output), (-signal.SIGKILL, b""))
            self.assertTrue(cut.close())
        self.check_nothing_is_left()

    def test_clients_killed_at_any_time(self):
        path = self.save(np.zeros(4 << 20))
        for n, wait_ms in enumerate(range(0, 200, 10)):
            client = subprocess.Popen(
                harness.command("reduce", *[path] * 3, "--op", "sum,var,argmax", "--via", ("auto", "session")[n % 2]),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=harness.environment(self.server.unix),
            )
            try:
                client.wait(wait_ms / 1000)
            except subprocess.TimeoutExpired:
                client.kill()
            client.wait(harness.DEADLINE_S)
        self.check_nothing_is_left()

    def check_nothing_is_left(self):
        """The server answers, and soon has no lane busy."""
        self.assertEqual(self.reduce(DATA / "co2.npy", "nan_count")["results"], {"nan_count": 59})
        deadline = time.monotonic() + harness.DEADLINE_S
        while True:
            (info,) = self.answers("info")
            idle = all(device["lanes_busy"] == 0 and device["queue_length"] == 0 for device in info["devices"])
            if idle and not any(info["usage"].values()):
                return
            self.assertLess(time.monotonic(), deadline, info)


class ManyClientsTest(harness.ServedTest):
    def test_a_client_ends_once_it_is_answered(self):
        # gRPC's clean-up takes 10 seconds if it begins before the last call is quite over.
        path = self.save(np.zeros(1 << 19))
        for _ in range(20):
            start = time.monotonic()
            self.reduce(path, "sum")
            self.assertLess(time.monotonic() - start, 8)
        for _ in range(20):
            start = time.monotonic()
            self.answers("reduce", *[path] * 5, "--op", "sum", "--via", "session")
            self.assertLess(time.monotonic() - start, 8)

    def test_at_once(self):
        paths = [self.save(np.full(100000, n, dtype="i4"), f"{n}.npy") for n in range(8)]
        clients = [
            subprocess.Popen(
                harness.command("--json", "reduce", *paths, "--op", "min,max", "--timeout", "60s"),
                stdout=subprocess.PIPE,
                env=harness.environment((self.server.unix, self.server.tcp)[n % 2]),
            )
            for n in range(8)
        ]
        for client in clients:
            output, _ = client.communicate(timeout=harness.DEADLINE_S)
            self.assertEqual(client.returncode, 0)
            for n, line in enumerate(output.splitlines()):
                self.assertIn(f'"results": {{"min": {n}, "max": {n}}}'.encode(), line)


if __name__ == "__main__":
    unittest.main()

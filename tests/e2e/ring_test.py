"""Sessions through shared memory: reducectl, clients and servers that are killed, and what an idle server costs."""

import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

import harness
from harness import np

IDLE_RINGS = 64


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class RingTest(harness.ServedTest):
    flags = ("--max_sessions=100",)

    def rings(self):
        self.assertEqual(self.server.metric("reduced_rings_limit")[""], 100)
        return self.server.metric("reduced_rings")[""]

    def await_rings(self, count):
        deadline = time.monotonic() + harness.DEADLINE_S
        while self.rings() != count:
            self.assertLess(time.monotonic(), deadline, f"rings: {self.rings()} instead of {count}")
            time.sleep(0.01)

    def test_reduce(self):
        files = [self.save(np.arange(n, dtype=np.float32), f"{n}.npy") for n in (1, 10, 100_000, 3_000_000)]
        ops = "sum,mean,argmax,std"
        expected = self.answers("reduce", *files, "--op", ops, "--via", "session")
        answers = self.answers("reduce", *files, "--op", ops, "--via", "ring")
        self.assertEqual([answer["results"] for answer in answers], [answer["results"] for answer in expected])
        self.assertEqual([answer["via"] for answer in answers], ["ring", "ring", "ring", "session"])  # 12 MB have no room
        self.check_failure(2, ["--state", "--via ring"], "reduce", files[0], "--via", "ring", "--state", self.folder / "s")
        self.check_failure(4, ["min"], "reduce", self.save(np.zeros(0), "none.npy"), "--op", "min", "--via", "ring")
        self.await_rings(0)

    def test_a_remote_server(self):
        """Over TCP, too, as long as it is on this machine."""
        (answer,) = self.answers(
            "reduce", self.save(np.arange(10)), "--op", "sum", "--via", "ring", server=self.server.tcp
        )
        self.assertEqual((answer["results"], answer["via"]), ({"sum": 45}, "ring"))

    def test_sources_in_metrics(self):
        self.reduce(self.save(np.arange(10)), "sum", "--via", "ring")
        samples = self.server.metric("reduced_requests_total")
        self.assertTrue(any('source="ring"' in labels for labels in samples), samples)

    def start_load(self):
        load = subprocess.Popen(
            harness.command("loadtest", "--via", "ring", "--concurrency", "4", "--duration", "60s", "--warmup", "0s"),
            env=harness.environment(self.server.unix),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.addCleanup(load.communicate)
        self.addCleanup(load.kill)
        return load

    def test_a_client_that_is_killed(self):
        before = self.server.metric("reduced_memory_bytes")[""]
        for _ in range(3):
            load = self.start_load()
            self.await_rings(1)
            load.send_signal(signal.SIGKILL)
            load.wait(harness.DEADLINE_S)
            self.await_rings(0)
        self.assertEqual(self.server.metric("reduced_memory_bytes")[""], before)
        self.assertEqual(self.reduce(self.save(np.arange(10)), "sum", "--via", "ring")["results"], {"sum": 45})


class EndsTest(unittest.TestCase):
    def test_a_server_that_is_killed(self):
        """Nobody wakes its clients: they notice by themselves."""
        server = harness.Server()
        load = subprocess.Popen(
            harness.command("loadtest", "--via", "ring", "--concurrency", "4", "--duration", "2s", "--warmup", "0s"),
            env=harness.environment(server.unix),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.addCleanup(load.communicate)
        self.addCleanup(load.kill)
        deadline = time.monotonic() + harness.DEADLINE_S
        while not any('source="ring"' in labels for labels in server.metric("reduced_requests_total")):
            self.assertLess(time.monotonic(), deadline)
        self.assertEqual(server.stop(signal.SIGKILL), -signal.SIGKILL)
        out, _ = load.communicate(timeout=harness.DEADLINE_S)
        self.assertIn(load.returncode, (3, 4), out.decode())  # the tester asks the server about itself at the end
        self.assertRegex(out, rb"was lost|no reduced server answers")  # what was sent again finds nobody

    def test_idle_rings_cost_nothing(self):
        server = harness.Server()
        self.addCleanup(server.stop)
        command = harness.command("loadtest", "--via", "ring", "--connections", IDLE_RINGS, "--concurrency", IDLE_RINGS,
                                  "--rate", "1", "--arrivals", "constant", "--duration", "60s", "--warmup", "0s")  # fmt: skip
        load = subprocess.Popen(
            command, env=harness.environment(server.unix), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self.addCleanup(load.communicate)
        self.addCleanup(load.kill)
        deadline = time.monotonic() + harness.DEADLINE_S
        while server.metric("reduced_rings")[""] != IDLE_RINGS:
            self.assertIsNone(load.poll())
            self.assertLess(time.monotonic(), deadline)
        time.sleep(1)  # the probes of the load
        used, start = cpu_seconds(server.process.pid), time.monotonic()
        time.sleep(3)
        share = (cpu_seconds(server.process.pid) - used) / (time.monotonic() - start)
        print(f"idle with {IDLE_RINGS} rings: {100 * share:.1f}% of a core", file=sys.stderr)
        self.assertLess(share, 0.1)  # a poller that spins has 1; the rest is noise of other tests


if __name__ == "__main__":
    unittest.main()

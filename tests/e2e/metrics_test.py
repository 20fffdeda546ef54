"""Metrics over HTTP, as Prometheus reads them: counts equal to what was asked, and nothing of a client's text in a label."""

import os
import pathlib
import re
import shutil
import socket
import subprocess
import time
import unittest
import urllib.error
import urllib.request

import harness
from harness import np

SAMPLE = re.compile(r"^(?P<name>[a-z_:]+)(?:\{(?P<labels>.*)\})? (?P<value>[^ ]+)$")
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')


def samples(text):
    """{(name, frozenset of labels): value}"""
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = SAMPLE.match(line)
            assert match, line
            found[match["name"], frozenset(LABEL.findall(match["labels"] or ""))] = float(match["value"])
    return found


def total(found, name, **labels):
    """The sum over the samples that have these labels."""
    wanted = set(labels.items())
    return sum(value for (sample, has), value in found.items() if sample == name and wanted <= has)


class MetricsTest(harness.ServedTest):
    def scrape(self):
        with urllib.request.urlopen(self.server.http() + "metrics", timeout=harness.DEADLINE_S) as answer:
            self.assertIn("text/plain", answer.headers["Content-Type"])
            return answer.read().decode()

    def test_counts_are_those_of_what_was_asked(self):
        before = samples(self.scrape())
        small = self.save(np.arange(1000, dtype=np.float32))
        for _ in range(3):
            self.reduce(small, "sum", "--via", "inline")
        self.reduce(small, "min,max", "--via", "inline")
        self.reduce(small, "sum", "--via", "stream")
        self.check_failure(4, ["bit_and"], "reduce", small, "--op", "bit_and", "--via", "inline")
        after = samples(self.scrape())

        def added(name, **labels):
            return total(after, name, **labels) - total(before, name, **labels)

        inline = {"dtype": "f32", "source": "inline", "engine": "cpu", "pipeline": "tiled_simd", "status": "OK"}
        self.assertEqual(added("reduced_requests_total", op="sum", **inline), 3)
        self.assertEqual(added("reduced_requests_total", op="several", **inline), 1)
        self.assertEqual(added("reduced_requests_total", op="sum", source="stream", status="OK"), 1)
        self.assertEqual(added("reduced_requests_total", status="INVALID_ARGUMENT"), 1)
        self.assertEqual(added("reduced_requests_total"), 6)
        self.assertEqual(added("reduced_stage_seconds_count", stage="total"), 6)
        self.assertEqual(added("reduced_stage_seconds_count", stage="kernel", engine="cpu"), 5)
        self.assertEqual(added("reduced_request_bytes_count", source="inline"), 4)
        self.assertEqual(added("reduced_request_bytes_sum", source="inline"), 16000)
        self.assertEqual(added("reduced_calls_total", rpc="reduce_stream", status="OK"), 1)
        self.assertEqual(added("reduced_call_seconds_count", rpc="reduce"), 5)
        self.assertEqual(added("reduced_call_seconds_count", rpc="reduce_stream"), 1)
        here = {"kind": "peer", "caller": f"uid {os.getuid()}"}
        self.assertGreaterEqual(added("reduced_caller_calls_total", **here), 6)
        self.assertEqual(added("reduced_caller_failures_total", **here), 1)
        self.assertEqual(added("reduced_caller_bytes_total", **here), 20000)
        self.assertEqual(added("reduced_caller_calls_total"), added("reduced_calls_total"))

    def test_gauges_are_those_of_the_moment(self):
        array = self.save(np.ones(1 << 20, np.uint8))
        (kept,) = self.answers("arrays", "put", array)
        held = samples(self.scrape())
        self.assertEqual(total(held, "reduced_arrays"), 1)
        self.assertEqual(total(held, "reduced_array_bytes", device="cpu"), 1 << 20)
        self.answers("arrays", "delete", kept["id"])
        self.assertEqual(total(samples(self.scrape()), "reduced_arrays"), 0)
        self.assertEqual(total(held, "reduced_build_info"), 1)
        self.assertEqual(total(held, "reduced_queue_limit", device="cpu"), 256)

    def test_the_process_itself(self):
        before = samples(self.scrape())
        process = pathlib.Path(f"/proc/{self.server.process.pid}")
        connections = [socket.create_connection(self.server.tcp.rsplit(":", 1)) for _ in range(10)]
        self.reduce(self.save(np.ones(1 << 20, np.float32)), "sum", "--via", "stream")
        after = samples(self.scrape())
        for connection in connections:
            connection.close()
        self.assertGreaterEqual(total(after, "process_open_fds"), 10 + total(before, "process_open_fds"))
        self.assertLess(total(after, "process_open_fds"), total(after, "process_max_fds"))
        self.assertGreater(total(after, "process_cpu_seconds_total"), total(before, "process_cpu_seconds_total"))
        kib = int(re.search(r"VmRSS:\s+(\d+)", (process / "status").read_text())[1])
        self.assertAlmostEqual(total(after, "process_resident_memory_bytes") / (kib << 10), 1, delta=0.3)
        self.assertGreater(total(after, "process_virtual_memory_bytes"), total(after, "process_resident_memory_bytes"))
        self.assertLess(total(after, "reduced_heap_used_bytes"), total(after, "process_resident_memory_bytes"))
        self.assertAlmostEqual(total(after, "process_threads"), len(list((process / "task").iterdir())), delta=4)
        self.assertEqual(total(after, "reduced_draining"), 0)
        self.assertEqual(total(after, "reduced_serving"), 1)
        self.assertEqual(total(after, "reduced_devices_left_out"), 0)
        started = total(after, "process_start_time_seconds")
        self.assertEqual(started, total(before, "process_start_time_seconds"), "restarts are seen by its changes")
        ticks = int((process / "stat").read_text().rsplit(")", 1)[1].split()[19])
        booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        self.assertAlmostEqual(started, booted + ticks / os.sysconf("SC_CLK_TCK"), delta=2)

    def test_only_pages_that_there_are_and_only_to_read(self):
        for path, method, code in (("nothing", "GET", 404), ("metrics", "POST", 405), ("metrics/x", "GET", 404)):
            request = urllib.request.Request(self.server.http() + path, method=method)
            with self.assertRaises(urllib.error.HTTPError) as error:
                urllib.request.urlopen(request, timeout=harness.DEADLINE_S)
            self.assertEqual(error.exception.code, code, path)
            error.exception.close()

    def test_promtool_finds_no_fault(self):
        promtool = shutil.which("promtool")
        if promtool is None:
            self.skipTest("no promtool (Debian: prometheus)")
        self.reduce(self.save(np.ones(10, np.int32)), "sum")
        text = self.scrape()
        run = subprocess.run(
            [promtool, "check", "metrics"],
            input=text.encode(),
            capture_output=True,
            timeout=harness.DEADLINE_S,
            check=False,
        )
        self.assertEqual((run.returncode, run.stdout + run.stderr), (0, b""), text)


class AddressTest(unittest.TestCase):
    def test_an_address_that_is_taken(self):
        server = harness.Server()
        self.addCleanup(server.stop)
        address = server.http().removeprefix("http://").rstrip("/")
        with self.assertRaisesRegex(RuntimeError, f"cannot listen on {address}: Address already in use"):
            harness.Server(f"--metrics_listen={address}")

    def test_what_is_not_an_address(self):
        with self.assertRaisesRegex(RuntimeError, "--metrics_listen: got 'here'; allowed: host:port"):
            harness.Server("--metrics_listen=here")

    def test_off(self):
        server = harness.Server("--metrics_listen=")
        log = server.await_log(" serves on ")
        self.assertEqual(server.stop(), 0)
        self.assertNotIn("http://", log)


if __name__ == "__main__":
    unittest.main()

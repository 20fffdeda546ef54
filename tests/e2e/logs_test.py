"""The log as JSON: every line an object, whatever clients say. A log that nobody reads stops nothing."""

import fcntl
import json
import os
import re
import signal
import sys
import threading
import time
import unittest
import urllib.request

import harness
from harness import np

try:
    import grpc
except ImportError:
    print("SKIPPED: some of the clients here are grpcio, which isn't there (Debian: python3-grpcio)")
    sys.exit(harness.SKIPPED)


class JsonTest(harness.ServedTest):
    flags = ("--log_format=json", "--log_level=debug", "--slow_request=1ns")

    def lines(self):
        return [json.loads(line) for line in self.server.await_log('"INVALID_ARGUMENT".*\n').splitlines()]

    def test_calls(self):
        path = self.save(np.ones(100, np.float32))
        self.reduce(path, "sum,max")
        self.check_failure(4, ["no such"], "reduce", path, "--op", "sum", "--pipeline", 'no such"}\n{"level":"none')
        lines = self.lines()
        self.assertLessEqual({line["level"] for line in lines}, {"debug", "info", "warning"})
        self.assertTrue(all(line["time"].endswith("Z") for line in lines))
        calls = [line for line in lines if line["message"] == "call" and line["rpc"] == "reduce"]
        self.assertEqual([call["status"] for call in calls], ["OK", "INVALID_ARGUMENT"])
        self.assertEqual((calls[0]["ops"], calls[0]["count"], calls[0]["bytes"]), (["sum", "max"], 100, 400))
        self.assertTrue(calls[0]["slow"])
        self.assertGreater(calls[0]["stages_us"]["kernel"], 0)
        self.assertEqual(len({call["request_id"] for call in calls}), 2)
        self.assertIn("no such", calls[1]["error"])


class SlowTest(harness.ServedTest):
    flags = ("--log_format=json", "--log_level=debug", "--slow_request=300ms")

    def test_a_slow_client_is_not_a_slow_server(self):
        def messages():
            yield b"\x0a\x0b" b"\x0a\x06\x08\x0d\x12\x02\xe8\x07" b"\x12\x01\x01"  # header {array {F64, [1000]}, ops: SUM}
            yield b"\x12\xa0\x1f" + bytes(4000)  # chunk
            time.sleep(1)  # a client that has nothing to send
            yield b"\x12\xa0\x1f" + bytes(4000)

        with grpc.insecure_channel(self.server.tcp) as channel:
            channel.stream_unary("/reduced.v1.Reduction/ReduceStream")(messages(), timeout=harness.DEADLINE_S)
        log = self.server.await_log('"rpc":"reduce_stream".*\n')
        (call,) = [line for line in map(json.loads, log.splitlines()) if line.get("rpc") == "reduce_stream"]
        self.assertEqual(call["status"], "OK", call)
        self.assertNotIn("slow", call)
        self.assertGreater(call["stages_us"]["client"], 900_000)
        self.assertGreater(call["total_us"], 900_000)
        self.assertLess(call["server_us"], 300_000)


class TextTest(unittest.TestCase):
    def test_off(self):
        server = harness.Server("--log_level=off")
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.process.wait(harness.DEADLINE_S), 0)
        self.assertEqual(server.log(), "")
        server.stop()

    def test_an_unknown_format(self):
        with self.assertRaisesRegex(RuntimeError, "--log_format: got 'xml'; allowed: text, json"):
            harness.Server("--log_format=xml")


class UnreadPipe:
    """A full pipe, for a server's standard error, that is not read before `read`."""

    def __init__(self):
        self._reading, self.writing = os.pipe()
        fcntl.fcntl(self.writing, fcntl.F_SETPIPE_SZ, 4096)
        # Opened once more: that `writing` blocks is known to whoever else has it.
        self._filling = os.open(f"/proc/self/fd/{self.writing}", os.O_WRONLY | os.O_NONBLOCK)
        self.fill()

    def fill(self):
        try:
            while True:
                os.write(self._filling, b"#" * 4096)
        except BlockingIOError:
            pass

    def read(self, until):
        """Reads whole lines until one has `until` in it; gives them."""
        text, found = b"", threading.Event()

        def run():
            nonlocal text
            while until not in text or not text.endswith(b"\n"):
                text += os.read(self._reading, 1 << 16)
            found.set()

        threading.Thread(target=run, daemon=True).start()
        if not found.wait(harness.DEADLINE_S):
            raise AssertionError(f"no {until} in {text[-2000:]}")
        return text.lstrip(b"#").decode().splitlines()

    def close(self):
        for fd in (self._reading, self.writing, self._filling):
            os.close(fd)


class UnreadTest(harness.ServedTest):
    flags = ("--log_format=json", "--log_level=debug")

    @classmethod
    def setUpClass(cls):
        cls.pipe = UnreadPipe()
        cls.server = harness.Server(*cls.flags, stderr=cls.pipe.writing)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.pipe.close()

    def send_bad(self, requests):
        """Requests that fail. Of every second one, whose options.pipeline is no UTF-8, libprotobuf writes a line of its own."""
        with grpc.insecure_channel(self.server.tcp) as channel:
            call = channel.unary_unary("/reduced.v1.Reduction/Reduce")
            for _ in range(requests // 100):
                running = [call.future((b"", b"\x1a\x06\x12\x04bad\xff")[n % 2], timeout=10) for n in range(100)]
                codes = {each.code() for each in running}
                self.assertTrue(codes.isdisjoint({grpc.StatusCode.OK, grpc.StatusCode.DEADLINE_EXCEEDED}), codes)

    def check_it_serves(self):
        self.assertEqual(self.run_reducectl("health", "--timeout", "10s").returncode, 0)
        self.assertEqual(self.reduce(harness.DATA / "co2.npy", "nan_count")["results"], {"nan_count": 59})

    def test_calls_health_and_the_end_go_on(self):
        self.send_bad(8000)
        self.check_it_serves()

        log = [json.loads(line) for line in self.pipe.read(b"lines of the log were dropped")]
        about_utf8 = [line for line in log if "UTF-8" in line["message"]]
        self.assertGreater(len(about_utf8), 0)
        self.assertLess(len(about_utf8), 400, "libprotobuf's lines are limited as others are: of 4000, 10 in 10 s")
        report = [line["message"] for line in log if "were dropped" in line["message"]]
        (dropped,) = (int(re.match(r"(\d+) lines of the log were dropped", text)[1]) for text in report)
        self.assertGreater(dropped, 0)
        http = next(re.search(r"at (http://\S+/)", line["message"])[1] for line in log if "http://" in line["message"])
        with urllib.request.urlopen(http + "metrics", timeout=harness.DEADLINE_S) as answer:
            metrics = answer.read().decode()
        self.assertGreaterEqual(int(re.search(r"^reduced_log_dropped_lines_total (\d+)$", metrics, re.M)[1]), dropped)

        self.pipe.fill()
        self.send_bad(1000)
        self.check_it_serves()
        start = time.monotonic()
        self.assertEqual(self.server.stop(), 0)
        self.assertLess(time.monotonic() - start, 5)


if __name__ == "__main__":
    unittest.main()

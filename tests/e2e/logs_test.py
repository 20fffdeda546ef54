"""The log as JSON: every line an object, whatever clients say."""

import json
import signal
import unittest

import harness
from harness import np


class JsonTest(harness.ServedTest):
    flags = ("--log_format=json", "--log_level=debug", "--slow_request=1ns")

    def lines(self):
        return [json.loads(line) for line in self.server.log().splitlines()]

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


if __name__ == "__main__":
    unittest.main()

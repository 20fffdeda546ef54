"""Arrays that stay on the server: put, reduced, listed and deleted by reducectl, and what becomes of them otherwise."""

import signal
import subprocess
import time
import unittest

import harness
from harness import DATA, np

USAGE, SERVER = 2, 4


class ArraysTest(harness.ServedTest):
    flags = ("--cpu_array_bytes=1MiB", "--max_array_ttl=2h")

    def text(self, *arguments, **keywords):
        run = self.run_reducectl(*arguments, **keywords)
        self.assertEqual((run.returncode, run.stderr), (0, b""))
        return run.stdout.decode()

    def put(self, *arguments, **keywords):
        """The id. The array goes with the test."""
        array_id = self.text("arrays", "put", *arguments, **keywords)
        self.assertRegex(array_id, r"\A[0-9a-f]{32}\n\Z")
        self.addCleanup(self.run_reducectl, "arrays", "delete", array_id.strip())
        return array_id.strip()

    def used(self):
        (info,) = self.answers("info")
        return info["usage"]["arrays"], info["usage"]["streams"], info["devices"][0]["array_bytes"]

    def await_idle(self):
        deadline = time.monotonic() + harness.DEADLINE_S
        while self.used() != (0, 0, 0):
            self.assertLess(time.monotonic(), deadline, self.used())

    def test_put_reduce_list_delete(self):
        npy = self.put(DATA / "co2.npy")
        csv = self.put(DATA / "co2.csv", "--column", "co2", "--ttl", "10m")
        raw = self.put("-", "--dtype", "i16", "--shape", "10,5", stdin=np.arange(50, dtype="i2").tobytes())
        self.assertEqual(self.used(), (3, 0, 2284 * 4 + 2284 * 8 + 100))

        answers = self.answers("reduce", "--op", "sum,max", "--nan", "omit", "--array", npy, csv, raw)
        self.assertEqual([answer["source"] for answer in answers], [npy, csv, raw])
        self.assertEqual([answer["results"]["max"] for answer in answers], [373.9, 373.9, 49])
        self.assertEqual(answers[2]["results"]["sum"], 1225)
        self.assertEqual([answer["bytes"] for answer in answers], [2284 * 4, 2284 * 8, 100])
        for answer in answers:
            self.assertEqual((answer["via"], answer["device"]), ("resident", "cpu"))
            self.assertNotIn("dtype", answer)
        lines = self.text("reduce", "--array", raw, "--op", "sum", "-v").splitlines()
        self.assertEqual(lines[0], f"{raw}: 50 elements, 100 bytes")
        self.assertRegex(lines[1], r"\A  sum +1225\Z")
        self.assertRegex(lines[2], r"\A  ran on +cpu, pipeline \S+, precision f64, resident array: .+")
        for array, ran_on in ((npy, "cpu, exact, "), (raw, r"cpu, [0-9]")):
            self.assertRegex(self.text("reduce", "--array", array, "--op", "mean", "--nan", "omit"), rf"\n  ran on +{ran_on}")

        listed = self.answers("arrays", "list")
        self.assertEqual([array["id"] for array in listed], [npy, csv, raw])
        self.assertEqual([array["dtype"] for array in listed], ["f32", "f64", "i16"])
        self.assertEqual([array["shape"] for array in listed], [[2284], [2284], [10, 5]])
        self.assertEqual({(array["device"], array["users"]) for array in listed}, {("cpu", 0)})
        self.assertRegex(listed[0]["owner"], r"\A.+@.+\Z")
        for array, ttl_s in zip(listed, (3600, 600, 3600)):
            self.assertGreaterEqual(array["age_s"], 0)
            self.assertTrue(ttl_s - harness.DEADLINE_S < array["expires_in_s"] <= ttl_s, array)
        table = self.text("arrays", "list").splitlines()
        self.assertRegex(table[0], r"\AID +DTYPE +SHAPE +SIZE +DEVICE +OWNER +AGE +EXPIRES IN +USERS\Z")
        self.assertRegex(table[3], rf"\A{raw}  i16 +\(10, 5\) +100 bytes +cpu +\S+@\S+ +\S+ +59m\d+s +0\Z")

        self.assertEqual(self.text("arrays", "delete", npy, raw), "")
        self.assertEqual([array["id"] for array in self.answers("arrays", "list")], [csv])
        self.check_failure(SERVER, [f"array_id: got '{npy}', of no resident array", "NOT_FOUND"], "reduce", "--array", npy)
        self.text("arrays", "delete", csv)
        self.assertEqual(self.used(), (0, 0, 0))

    def test_json_of_put(self):
        (array,) = self.answers("arrays", "put", DATA / "co2.npy", "--owner", "me")
        self.addCleanup(self.run_reducectl, "arrays", "delete", array["id"], "--owner", "me")
        self.assertEqual(
            list(array),
            ["source", "id", "dtype", "shape", "bytes", "device", "owner", "age_s", "expires_in_s", "users"],
        )
        self.assertEqual((array["source"], array["owner"]), (str(DATA / "co2.npy"), "me"))
        (listed,) = self.answers("arrays", "list", "--owner", "me")
        self.assertEqual(listed["id"], array["id"])
        self.assertEqual(self.answers("arrays", "list", "--owner", "you"), [])
        messages = ["owner: got 'you'; allowed: the array's owner, 'me'", "PERMISSION_DENIED"]
        self.check_failure(SERVER, messages, "arrays", "delete", array["id"], "--owner", "you")

    def test_errors(self):
        npy = DATA / "co2.npy"
        for arguments, messages in (
            (("arrays",), ["arrays: subcommand: got none; allowed: put, list, get, delete"]),
            (("arrays", "keep"), ["keep"]),
            (("arrays", "put"), ["FILE"]),
            (("arrays", "put", npy, "--ttl", "0s"), ['--ttl: got "0s"; allowed: positive durations']),
            (("arrays", "put", npy, "--format", "raw"), ["--dtype"]),
            (("arrays", "delete"), ["ID"]),
            (("reduce", "--array", "x", "--via", "inline"), ["--array", "--via"]),
            (("reduce", "--array", "x", "--dtype", "f32"), ["--array", "--dtype"]),
        ):
            with self.subTest(arguments=arguments):
                self.check_failure(USAGE, messages, *arguments)
        for arguments, messages in (
            ((npy, "--ttl", "3h"), ["ttl_ms: got 10800000", "to 7200000", "INVALID_ARGUMENT"]),
            ((npy, "--owner", "x" * 65), ["owner: got 65 bytes", "INVALID_ARGUMENT"]),
            ((npy, "--device", "tpu:0"), ["'tpu:0'", "allowed: cpu", "FAILED_PRECONDITION"]),
            ((npy, "--device", "cuda:*"), ["device: got 'cuda:*'", "allowed: cpu", "FAILED_PRECONDITION"]),
        ):
            with self.subTest(arguments=arguments):
                self.check_failure(SERVER, messages, "arrays", "put", *arguments)
        self.assertEqual(self.used(), (0, 0, 0))

    def test_several_are_deleted_and_the_first_failure_is_the_exit_code(self):
        good = self.put(DATA / "co2.npy")
        self.check_failure(SERVER, ["array_id: got 'bad', of no resident array"], "arrays", "delete", "bad", good)
        self.assertEqual(self.answers("arrays", "list"), [])
        self.assertEqual(self.used(), (0, 0, 0))

    def test_longest_ttl(self):
        self.put(DATA / "co2.npy", "--ttl", "2h")
        self.check_failure(SERVER, ["ttl_ms: got 7200001"], "arrays", "put", DATA / "co2.npy", "--ttl", "7200001ms")

    def test_full(self):
        first = self.put(self.save(np.zeros(600_000, dtype="u1"), "first.npy"))
        second = self.save(np.zeros(500_000, dtype="u1"), "second.npy")
        messages = ["array of 500000 bytes", "take 600000 of the 1048576 bytes", "RESOURCE_EXHAUSTED"]
        self.check_failure(SERVER, messages, "arrays", "put", second)
        self.assertEqual(self.used(), (1, 0, 600_000))
        self.text("arrays", "delete", first)
        self.put(second)

    def test_expires(self):
        self.put(DATA / "co2.npy", "--ttl", "1ms")
        self.await_idle()

    def test_a_client_killed_while_it_puts(self):
        path = self.save(np.zeros(1_000_000, dtype="u1"))
        for wait_ms in range(0, 40, 4):
            client = subprocess.Popen(
                harness.command("arrays", "put", path, "--ttl", "1s"),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=harness.environment(self.server.unix),
            )
            try:
                client.wait(wait_ms / 1000)
            except subprocess.TimeoutExpired:
                client.kill()
            client.wait(harness.DEADLINE_S)
        self.await_idle()


class StopTest(unittest.TestCase):
    def test_a_server_with_arrays_ends_well(self):
        server = harness.Server()
        run = subprocess.run(
            harness.command("arrays", "put", DATA / "co2.npy"),
            capture_output=True,
            timeout=harness.DEADLINE_S,
            env=harness.environment(server.unix),
            check=False,
        )
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(server.stop(signal.SIGTERM), 0)


if __name__ == "__main__":
    unittest.main()

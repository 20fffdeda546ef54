"""Memory that other processes share: clients that end without a word."""

import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import harness

# Shares 4 bytes, prints the token, and lives until it is killed.
SHARER = """
import json, os, signal, socket, sys
memory = os.memfd_create("test")
os.write(memory, b"\\x07\\0\\0\\0")
door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
door.connect(sys.argv[1])
socket.send_fds(door, [b'{"shareMemory": {}}'], [memory])
print(json.loads(door.recv(4096))["token"], flush=True)
signal.pause()
"""


class LongPathTest(unittest.TestCase):
    def test_a_long_socket_path(self):
        """The path of a socket has at most 107 bytes: what the server adds for regions has room in 2 of them, or isn't there."""
        for size, suffix in ((99, ".regions"), (100, ".r"), (105, ".r"), (107, None)):
            with self.subTest(size), tempfile.TemporaryDirectory() as folder:
                path = f"{folder}/{'x' * (size - len(folder) - 1)}"
                server = harness.Server(f"--listen=127.0.0.1:0,unix:{path}")
                try:
                    (pathlib.Path(folder) / "a.npy").write_bytes((harness.DATA / "co2.npy").read_bytes())
                    via = ["--via", "region"] if suffix else []
                    run = subprocess.run(
                        harness.command("--json", "reduce", f"{folder}/a.npy", "--op", "count", *via),
                        capture_output=True, timeout=harness.DEADLINE_S, env=harness.environment(server.unix), check=False,
                    )  # fmt: skip
                    self.assertEqual(run.returncode, 0, run.stderr.decode())
                    self.assertEqual(pathlib.Path(path + (suffix or ".r")).exists(), suffix is not None)
                    self.assertEqual("no region socket: its path" in server.log(), suffix is None)
                finally:
                    self.assertEqual(server.stop(), 0)


class RegionsTest(harness.ServedTest):
    def regions(self):
        (info,) = self.answers("info")
        return info["usage"]["regions"]

    def test_a_client_that_is_killed(self):
        before = self.regions()
        door = self.server.unix.removeprefix("unix:") + ".regions"
        with subprocess.Popen([sys.executable, "-c", SHARER, door], stdout=subprocess.PIPE) as sharer:
            try:
                self.assertEqual(len(sharer.stdout.readline().strip()), 32)
                self.assertEqual(self.regions(), before + 1)
            finally:
                sharer.send_signal(signal.SIGKILL)
                sharer.wait(harness.DEADLINE_S)
        deadline = time.monotonic() + harness.DEADLINE_S
        while self.regions() != before:
            self.assertLess(time.monotonic(), deadline, "the region outlives the process that shared it")
        self.assertEqual(self.reduce(self.save(harness.np.arange(5)), "sum")["results"], {"sum": 10})


if __name__ == "__main__":
    unittest.main()

"""Runs the server and reducectl: the binaries that the environment's REDUCED and REDUCECTL name.

Every wait has a deadline, and whatever was started is stopped when its test ends.
"""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
DEADLINE_S = 60
SKIPPED = 77  # ctest's SKIP_RETURN_CODE

try:
    import numpy as np
except ImportError:
    print("SKIPPED: these tests compare with NumPy, which", sys.executable, "doesn't have (Debian: python3-numpy)")
    sys.exit(SKIPPED)


class Server:
    """A server on a free TCP port and a Unix socket. Ready once constructed."""

    def __init__(self, *flags):
        self._directory = tempfile.TemporaryDirectory()
        directory = pathlib.Path(self._directory.name)
        ready = directory / "ready"
        self._log = open(directory / "log", "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [os.environ["REDUCED"], f"--listen=127.0.0.1:0,unix:{directory}/socket", f"--ready_file={ready}",
             "--metrics_listen=127.0.0.1:0", *flags],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=environment(),
        )
        deadline = time.monotonic() + DEADLINE_S
        while not (ready.exists() and ready.read_text().endswith("\n")):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise RuntimeError(f"the server isn't ready (exit status {self.process.wait()}):\n{self.log()}")
            time.sleep(0.01)
        self.tcp, self.unix = ready.read_text().split()

    def log(self):
        self._log.seek(0)
        return self._log.read()

    def http(self):
        """Where metrics are: "http://127.0.0.1:PORT/"."""
        return re.search(r"at (http://[^\s\"]+/)", self.log())[1]

    def stop(self, how=signal.SIGTERM):
        """Sends a signal, once; gives the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            return self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self._log.close()
            self._directory.cleanup()


def command(*arguments):
    return [os.environ["REDUCECTL"], *map(str, arguments)]


def environment(server=None):
    """This process's, with the server's address and nothing else of what reducectl reads, REDUCED_..."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("REDUCED_")}
    return env if server is None else env | {"REDUCED_SERVER": server}


class Cut:
    """Passes the first `limit` bytes that one client sends on to a server, then holds it up until `go_on` or `close`."""

    def __init__(self, address, limit):
        host, port = address.rsplit(":", 1)
        self._limit = limit
        self.reached, self._going_on = threading.Event(), threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(DEADLINE_S)
        self._server = socket.create_connection((host, int(port)), DEADLINE_S)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        client, _ = self._listener.accept()
        client.settimeout(DEADLINE_S)
        back = threading.Thread(target=self._answer, args=(client,), daemon=True)
        back.start()
        with client, self._server:
            self._pass(client)
            self.reached.set()
            self._going_on.wait(DEADLINE_S)
            self._pass(client)

    def _pass(self, client):
        while self._limit > 0 and (piece := client.recv(1 << 16)):
            self._server.sendall(piece)
            self._limit -= len(piece)

    def _answer(self, client):
        try:
            while piece := self._server.recv(1 << 16):
                client.sendall(piece)
        except OSError:
            pass  # the connection was cut

    def go_on(self):
        self._limit = float("inf")
        self._going_on.set()

    def close(self):
        self._going_on.set()
        self._thread.join(DEADLINE_S)
        self._listener.close()
        return not self._thread.is_alive()


class ServedTest(unittest.TestCase):
    """Has a server, a folder for files, and reducectl."""

    flags = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.flags)

    @classmethod
    def tearDownClass(cls):
        log = cls.server.log()
        status = cls.server.stop()
        if status != 0:
            raise AssertionError(f"the server ended with {status}:\n{log}")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_reducectl(self, *arguments, server=None, stdin=b""):
        return subprocess.run(
            command(*arguments),
            input=stdin,
            capture_output=True,
            timeout=DEADLINE_S,
            env=environment(server or self.server.unix),
            check=False,
        )

    def save(self, array, name="array.npy"):
        path = self.folder / name
        np.save(path, array)
        return path

    def answers(self, *arguments, **keywords):
        """What `reducectl --json` prints, a dict for each line. It has to succeed."""
        run = self.run_reducectl("--json", *arguments, **keywords)
        self.assertEqual(run.returncode, 0, run.stderr.decode())
        self.assertEqual(run.stderr, b"")
        return [json.loads(line) for line in run.stdout.splitlines()]

    def reduce(self, source, ops, *arguments, **keywords):
        """The one answer about one source."""
        (answer,) = self.answers("reduce", source, "--op", ops, *arguments, **keywords)
        return answer

    def check_failure(self, code, messages, *arguments, **keywords):
        """reducectl exits with this code, prints nothing but one line of error, and that has all messages in it."""
        run = self.run_reducectl(*arguments, **keywords)
        error = run.stderr.decode()
        self.assertEqual(run.returncode, code, error)
        self.assertEqual(run.stdout, b"")
        self.assertRegex(error, r"\Areducectl: [^\n]+\n\Z")
        for message in messages:
            self.assertIn(message, error)

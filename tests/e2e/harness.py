"""Runs the server and reducectl: the binaries that the environment's REDUCED and REDUCECTL name.

Every wait has a deadline, and whatever was started is stopped when its test ends.
"""

import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
DEADLINE_S = 60
SKIPPED = 77  # ctest's SKIP_RETURN_CODE

try:
    import numpy as np
except ImportError:
    print("SKIPPED: these tests compare with NumPy, which", sys.executable, "doesn't have (Debian: python3-numpy)")
    sys.exit(SKIPPED)


class Server:
    """A server on a free TCP port and a Unix socket, which may open so many `descriptors`. Ready once constructed.
    `stderr`: for its log, instead of a file. `before`: a command that runs it. `program`: instead of REDUCED."""

    def __init__(self, *flags, stderr=subprocess.STDOUT, before=(), descriptors=None, program=None):
        self._directory = tempfile.TemporaryDirectory()
        directory = pathlib.Path(self._directory.name)
        ready = directory / "ready"
        # Appended to: the server shares this file's position, which reading moves.
        self._log = open(directory / "log", "a+", encoding="utf-8")
        self.process = subprocess.Popen(
            [*before, program or os.environ["REDUCED"], f"--listen=127.0.0.1:0,unix:{directory}/socket", f"--ready_file={ready}",
             "--metrics_listen=127.0.0.1:0", *flags],
            stdout=self._log,
            stderr=stderr,
            env=environment(),
            preexec_fn=descriptors and (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))),
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

    def await_log(self, pattern, count=1):
        """The log, once the pattern is in it so often: the server's answers don't wait for its log."""
        deadline = time.monotonic() + DEADLINE_S
        while len(re.findall(pattern, log := self.log())) < count:
            if time.monotonic() > deadline:
                raise AssertionError(f"no {pattern} in the log:\n{log}")
            time.sleep(0.01)
        return log

    def http(self):
        """Where metrics are: "http://127.0.0.1:PORT/"."""
        return re.search(r"at (http://[^\s\"]+/)", self.await_log("at http://.*\n"))[1]

    def metric(self, name):
        """The samples of one metric: the value of each set of labels, like '{files="tokens"}', or ""."""
        with urllib.request.urlopen(self.http() + "metrics", timeout=DEADLINE_S) as answer:
            text = answer.read().decode()
        return {labels: float(value) for labels, value in re.findall(rf"^{name}(|{{.*}}) (\S+)$", text, re.MULTILINE)}

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

"""A server under deploy/seccomp.json serves whatever it serves otherwise, and can do little else."""

import errno
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import unittest
import urllib.request

import harness
from harness import DATA, np

try:
    import seccomp  # noqa: F401, of confine.py
except ImportError:
    print("SKIPPED: no seccomp module (Debian: python3-seccomp)")
    sys.exit(harness.SKIPPED)

HERE = pathlib.Path(__file__).resolve().parent
PROFILE = HERE.parent.parent / "deploy" / "seccomp.json"
CONFINE = (sys.executable, "-B", str(HERE / "confine.py"), str(PROFILE))


class ConfinedTest(harness.ServedTest):
    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server("--log_level=debug", before=(*CONFINE, "--"))

    def test_it_is_confined(self):
        status = pathlib.Path(f"/proc/{self.server.process.pid}/status").read_text()
        self.assertRegex(status, r"\nSeccomp:\s2\n")
        self.assertRegex(status, r"\nNoNewPrivs:\s1\n")

    def test_every_source_and_address(self):
        path = self.save(np.arange(1_000_000, dtype=np.float32))
        for server in (self.server.unix, self.server.tcp):
            for via in ("inline", "session", "stream"):
                with self.subTest(server=server, via=via):
                    answer = self.reduce(path, "max", "--via", via, server=server)
                    self.assertEqual(answer["results"], {"max": 999999})
        self.assertEqual(self.reduce(path, "max", "--via", "region")["results"], {"max": 999999})
        (array,) = self.answers("arrays", "put", path)
        (answer,) = self.answers("reduce", "--array", array["id"], "--op", "max")
        self.assertEqual(answer["results"], {"max": 999999})

    def test_descriptors_whose_close_may_block(self):
        """They go to a helper process: without one, the connections of their sender would wait for ever."""
        (info,) = self.answers("info")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
            door.settimeout(harness.DEADLINE_S)
            door.connect(info["region_socket"])
            with socket.socket() as unwanted:
                socket.send_fds(door, [b'{"shareMemory": {}}'], [unwanted.fileno()])
            self.assertIn("code", json.loads(door.recv(4096)))
            memory = os.memfd_create("numbers")
            self.addCleanup(os.close, memory)
            os.write(memory, bytes(4096))
            socket.send_fds(door, [b'{"shareMemory": {}}'], [memory])
            self.assertIn("token", json.loads(door.recv(4096)))

    def test_monitoring(self):
        self.assertEqual(self.run_reducectl("health").returncode, 0)
        self.answers("info")
        for page in ("metrics", "status.json", ""):
            with urllib.request.urlopen(self.server.http() + page, timeout=harness.DEADLINE_S) as answer:
                self.assertEqual(answer.status, 200)

    def test_it_reloads_and_drains(self):
        server = harness.Server(before=(*CONFINE, "--"))
        server.process.send_signal(signal.SIGHUP)
        server.await_log("are read again")
        self.reduce(DATA / "co2.npy", "nan_count", server=server.tcp)
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.process.wait(harness.DEADLINE_S), 0)
        self.assertIn("reduced stopped", server.log())
        server.stop()

    def test_the_command_of_the_health_check(self):
        run = subprocess.run(
            [*CONFINE, "--", *harness.command("health", "--timeout", "10s")],
            capture_output=True,
            timeout=harness.DEADLINE_S,
            env=harness.environment(self.server.unix),
            check=False,
        )
        self.assertEqual((run.returncode, run.stdout), (0, b"SERVING\n"), run.stderr)


class ProfileTest(unittest.TestCase):
    def test_what_it_refuses(self):
        run = subprocess.run([*CONFINE, "--probe"], capture_output=True, timeout=harness.DEADLINE_S, check=True)
        errors = json.loads(run.stdout)
        self.assertGreater(len(errors), 15)
        self.assertEqual({name: error for name, error in errors.items() if error != errno.ENOSYS}, {})

    def test_a_server_needs_these(self):
        for name in ("clone", "listen", "mmap", "socket"):
            with self.subTest(without=name), self.assertRaisesRegex(RuntimeError, "the server isn't ready"):
                harness.Server(before=(*CONFINE, "--without", name, "--")).stop()

    def test_its_groups_say_why(self):
        profile = json.loads(PROFILE.read_text())
        self.assertEqual((profile["defaultAction"], profile["defaultErrnoRet"]), ("SCMP_ACT_ERRNO", errno.ENOSYS))
        names = []
        for group in profile["syscalls"]:
            self.assertTrue(re.fullmatch(r"[A-Z].*\.", group["comment"]), group)
            names += group["names"] if "args" not in group else []
        self.assertEqual(len(names), len(set(names)), "a call is in two groups")


if __name__ == "__main__":
    unittest.main()

"""Connections that break: through a proxy that cuts, resets and stalls them. Nothing hangs, each call has one error that
says what happened, calls that are safe to repeat are, and the server keeps nothing of what came halfway."""

import io
import json
import signal
import time
import unittest

import harness
from fault_proxy import FaultProxy
from harness import np

CONNECTION, SERVER = 3, 4
BYTES = 24 << 20


class FaultTest(harness.ServedTest):
    def setUp(self):
        super().setUp()
        self.large = self.folder / "zeros.bin"
        with open(self.large, "wb") as file:
            file.truncate(BYTES)
        self.small = self.save(np.arange(5000, dtype="f8"), "small.npy")

    def proxy(self, *arguments, **keywords):
        proxy = FaultProxy(self.server.tcp, *arguments, **keywords)
        self.addCleanup(lambda: self.assertTrue(proxy.close()))
        return proxy

    def check_nothing_is_left(self):
        """The server is idle and holds no array, by what it says itself."""
        deadline = time.monotonic() + harness.DEADLINE_S
        while True:
            (info,) = self.answers("info")
            usage = info["usage"] | {"bytes": sum(device["array_bytes"] for device in info["devices"])}
            if not any(usage.values()):
                return
            self.assertLess(time.monotonic(), deadline, usage)
            time.sleep(0.02)

    def test_an_upload_that_breaks_off_says_how_far_it_came(self):
        for fault in ("close", "reset"):
            for after in (1 << 20, 8 << 20):
                for command in (("reduce", "--op", "sum", "--via", "stream", "--connections", "1"), ("arrays", "put")):
                    with self.subTest(fault=fault, after=after, command=command[0]):
                        proxy = self.proxy(after, fault)
                        messages = [f"the connection to {proxy.address} was lost (", f" of {BYTES} bytes were sent"]
                        self.check_failure(CONNECTION, messages, *command, self.large, "--dtype", "u8", server=proxy.address)
                        self.check_nothing_is_left()

    def test_one_of_several_connections(self):
        large = self.folder / "larger.bin"
        with open(large, "wb") as file:
            file.truncate(48 << 20)
        for fault in ("close", "reset"):
            proxy = self.proxy(6 << 20, fault, times=1)
            arguments = ("--dtype", "u8", "--connections", "4", "--timeout", "60s")
            answer = self.reduce(large, "sum", *arguments, server=proxy.address)  # the whole upload is repeated
            self.assertEqual((answer["results"], answer["attempts"]), ({"sum": 0}, 2))
            self.check_nothing_is_left()

    def test_a_stall_lasts_no_longer_than_the_timeout(self):
        for fault in ("hold", "stall"):
            for command in (
                ("reduce", self.small, "--op", "sum", "--via", "stream"),
                ("reduce", self.small, "--op", "sum", "--via", "inline"),
                ("arrays", "put", self.small),
                ("reduce", self.small, self.small, "--op", "sum", "--via", "session"),
                ("info",),
            ):
                with self.subTest(fault=fault, command=command):
                    proxy = self.proxy(200, fault)
                    start = time.monotonic()
                    run = self.run_reducectl(*command, "--timeout", "700ms", server=proxy.address)
                    self.assertLess(time.monotonic() - start, 20)
                    self.assertEqual(run.returncode, SERVER, run.stderr)
                    self.assertIn(b"DEADLINE_EXCEEDED", run.stderr)
                    self.assertTrue(proxy.close())
                    self.check_nothing_is_left()

    def test_nor_does_a_server_that_reads_no_more(self):
        """What the client has begun to write would never be written."""
        commands = [("reduce", "--op", "sum", "--via", via) for via in ("stream", "inline", "session")]
        for command in (*commands, ("arrays", "put")):
            with self.subTest(command=command):
                proxy = self.proxy(1 << 20, "stall")
                self.check_ends_late(command, proxy.address)
                self.assertTrue(proxy.close())
                self.check_nothing_is_left()
        self.server.process.send_signal(signal.SIGSTOP)
        try:
            for command in commands[:2]:
                self.check_ends_late(command, self.server.unix)
        finally:
            self.server.process.send_signal(signal.SIGCONT)
        self.check_nothing_is_left()

    def check_ends_late(self, command, server):
        start = time.monotonic()
        run = self.run_reducectl(*command, self.large, "--dtype", "u8", "--timeout", "700ms", server=server)
        self.assertLess(time.monotonic() - start, 20)
        self.assertEqual(run.returncode, SERVER, run.stderr)
        self.assertIn(b"DEADLINE_EXCEEDED", run.stderr)

    def test_wherever_a_connection_breaks(self):
        """Every call ends: with the right answer, or with one line that names the server."""
        for fault in ("close", "reset"):
            for after in (0, 9, 24, 300, 20_000):
                for via in ("inline", "stream", "session"):
                    with self.subTest(fault=fault, after=after, via=via):
                        proxy = self.proxy(after, fault)
                        run = self.run_reducectl(
                            "--json", "reduce", self.small, "--op", "sum", "--via", via, "--timeout", "2s", server=proxy.address
                        )
                        if run.returncode == 0:
                            self.assertEqual(json.loads(run.stdout)["results"], {"sum": 12497500})
                        else:
                            self.assertEqual(run.returncode, CONNECTION, run.stderr)
                            self.assertRegex(run.stderr.decode(), rf"\Areducectl: [^\n]*{proxy.address}[^\n]*\n\Z")
        self.check_nothing_is_left()

    def test_what_is_safe_to_repeat_is_repeated(self):
        for fault in ("close", "reset"):
            for after in (0, 24, 300, 20_000):
                with self.subTest(fault=fault, after=after):
                    proxy = self.proxy(after, fault, times=1)
                    answer = self.reduce(self.small, "sum", "--via", "inline", "--timeout", "20s", server=proxy.address)
                    self.assertEqual(answer["results"], {"sum": 12497500})
                    self.assertIn(answer["attempts"], (2, 3, 4))  # connecting again may take longer than one delay
        proxy = self.proxy(20_000, "reset", times=1)
        answer = self.reduce(self.small, "sum", "--via", "stream", "--timeout", "20s", server=proxy.address)
        self.assertEqual((answer["results"], answer["attempts"]), ({"sum": 12497500}, 2))

    def test_what_can_be_read_only_once_is_not(self):
        proxy = self.proxy(20_000, "reset", times=1)
        messages = [f"the connection to {proxy.address} was lost", "can be read only once"]
        npy = io.BytesIO()
        np.save(npy, np.zeros(8 << 20, dtype="u1"))
        arguments = ("reduce", "-", "--op", "sum", "--via", "stream")
        self.check_failure(CONNECTION, messages, *arguments, server=proxy.address, stdin=npy.getvalue())

    def test_a_session_that_breaks_fails_all_that_is_in_flight(self):
        many = [self.small] * 12
        proxy = self.proxy(150_000, "reset")
        run = self.run_reducectl("reduce", *many, "--op", "sum", "--via", "session", "--timeout", "20s", server=proxy.address)
        self.assertEqual(run.returncode, CONNECTION)
        errors = run.stderr.decode().splitlines()
        self.assertEqual(len(errors) + run.stdout.count(b"12497500"), len(many))
        for error in errors:
            self.assertIn(f"the connection to {proxy.address} was lost", error)
        self.check_nothing_is_left()


if __name__ == "__main__":
    unittest.main()

"""Frames of HTTP/2 that cost a server more than their sender: calls that are reset at once, header blocks without end,
frames that bring neither a call nor data. Over TCP, a Unix socket and TLS."""

import contextlib
import pathlib
import select
import shutil
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request

import harness
from connections_test import PREFACE, connect
from metrics_test import samples, total

HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 1, 3, 4, 6, 8, 9
END_HEADERS = 4
CANCEL = struct.pack(">I", 8)
MIB = 1 << 20
MANY = 20_000  # resets or frames
ENDS_WITHIN_S = 5
MOST_MIB = 128  # that the server may grow by: 20,000 calls that were reset took 500
BLOCK = 64 << 10  # bytes of a header block that are too many


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name, value):
    """A header that isn't in the tables of HPACK."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def call_headers(method):
    return b"\x83\x86" + b"".join(  # POST, http
        literal(*header)
        for header in ((b":path", method), (b":authority", b"x"), (b"te", b"trailers"), (b"content-type", b"application/grpc"))
    )


INFO = call_headers(b"/reduced.v1.Reduction/GetServerInfo")


def resets(headers):
    """Calls that are reset at once."""
    for first in range(1, 2 * MANY, 200):
        yield b"".join(
            frame(HEADERS, END_HEADERS, stream, headers) + frame(RST_STREAM, 0, stream, CANCEL)
            for stream in range(first, first + 200, 2)
        )


def header_block(piece):
    """A header block of these pieces, without end: 64 MiB or many frames."""
    yield frame(HEADERS, 0, 1, INFO)
    for _ in range(min(64 * MIB // max(len(piece), 1), MANY) // 100):
        yield frame(CONTINUATION, 0, 1, piece) * 100


def idle(one):
    """Frames that bring neither a call nor data."""
    for _ in range(MANY // 100):
        yield one * 100


ATTACKS = {
    "resets": lambda: resets(INFO),
    "resets of a method that isn't there": lambda: resets(call_headers(b"/no/method")),
    "many headers": lambda: header_block(literal(b"a", b"b" * 100) * 100),
    "one long header": lambda: header_block(b"x" * 16384),
    "empty continuations": lambda: header_block(b""),
    "pings": lambda: idle(frame(PING, 0, 0, b"12345678")),
    "windows": lambda: idle(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1))),
    "settings": lambda: idle(frame(SETTINGS, 0, 0, struct.pack(">HI", 3, 100))),
}


class Http2Test(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)

    def serve(self, *flags):
        server = harness.Server(*flags)
        self.addCleanup(lambda: self.assertEqual(server.stop(), 0))
        return server

    def ended(self, server):
        with urllib.request.urlopen(server.http() + "metrics", timeout=harness.DEADLINE_S) as answer:
            return total(samples(answer.read().decode()), "reduced_connections_refused_total", reason="frames")

    def resident_mib(self, server):
        (size,) = server.metric("process_resident_memory_bytes").values()
        return size / MIB

    def health(self, server):
        run = subprocess.run(
            harness.command("health", "--timeout", "10s"), capture_output=True, timeout=harness.DEADLINE_S,
            env=harness.environment(server.unix), check=False,
        )
        return run.returncode, (run.stdout + run.stderr).decode()

    @staticmethod
    def attack(connection, pieces):
        """Sends the pieces and reads meanwhile; returns whether the server ends the connection, before or after the last of them. One
        thread does both, since Python's TLS sockets are not for two."""
        later = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
        with connection:
            connection.setblocking(False)
            left = memoryview(PREFACE + frame(SETTINGS, 0, 0))
            ends = time.monotonic() + harness.DEADLINE_S
            while time.monotonic() < ends:
                waits = True
                try:
                    if left:
                        left = left[connection.send(left) :]
                        waits = False
                except later:
                    pass
                except OSError:
                    return True
                if left is not None and not left:
                    left = next(pieces, None)
                    if left is None:
                        ends = time.monotonic() + ENDS_WITHIN_S
                    else:
                        left = memoryview(left)
                try:
                    if not connection.recv(1 << 16):
                        return True
                    waits = False
                except later:
                    pass
                except OSError:
                    return True
                if waits:
                    select.select([connection], [connection] if left else [], [], 0.05)
            return False

    @staticmethod
    def close(connection):
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    @staticmethod
    def drain(connection):
        try:
            while connection.recv(1 << 16):
                pass
        except OSError:
            pass

    def await_read(self, connection):
        """Until the server has read what was sent, for it answers a ping, or has ended the connection."""
        connection.settimeout(harness.DEADLINE_S)
        try:
            connection.sendall(frame(PING, 0, 0, b"are read"))
            received = b""
            while b"are read" not in received:
                piece = connection.recv(1 << 16)
                if not piece:
                    return
                received += piece
        except TimeoutError:
            self.fail("the server does not read")
        except OSError:
            pass  # it has ended

    def check_attacks(self, server, open_connection):
        before = self.resident_mib(server)
        for name, pieces in ATTACKS.items():
            with self.subTest(name):
                self.assertTrue(self.attack(open_connection(), pieces()), "the connection goes on")
                self.assertEqual(self.health(server), (0, "SERVING\n"))
                self.assertLess(self.resident_mib(server) - before, MOST_MIB)
        self.assertGreaterEqual(self.ended(server), len(ATTACKS) - 2)  # gRPC itself ends those who ping, and some others
        server.await_log("connections: ended one of .*: it sent ")

    def test_over_tcp(self):
        server = self.serve()
        self.check_attacks(server, lambda: connect(server.tcp))

    def test_over_a_unix_socket(self):
        server = self.serve()
        self.check_attacks(server, lambda: connect(server.unix))

    @unittest.skipIf(shutil.which("openssl") is None, "openssl, which makes a certificate, isn't installed")
    def test_over_tls(self):
        cert, key = self.folder / "cert", self.folder / "key"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
             "/CN=localhost", "-keyout", key, "-out", cert], check=True, capture_output=True, timeout=harness.DEADLINE_S,
        )
        server = self.serve(f"--tls_cert={cert}", f"--tls_key={key}")
        context = ssl.create_default_context(cafile=str(cert))
        context.check_hostname = False
        context.set_alpn_protocols(["h2"])
        self.check_attacks(server, lambda: context.wrap_socket(connect(server.tcp)))

    def test_the_connections_of_a_peer_share_what_they_may(self):
        server = self.serve()
        with contextlib.ExitStack() as stack:
            for _ in range(4):
                connection = stack.enter_context(connect(server.tcp))
                pieces = resets(INFO)
                connection.sendall(PREFACE + frame(SETTINGS, 0, 0) + b"".join(next(pieces) for _ in range(10)))  # 1,000
                self.await_read(connection)  # else all four share it evenly, and end
            deadline = time.monotonic() + harness.DEADLINE_S
            while self.ended(server) == 0:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.05)
            self.assertLess(self.ended(server), 4)
        self.assertEqual(self.health(server), (0, "SERVING\n"))

    def test_a_client_that_cancels_is_honest(self):
        """A thousand pings, or resets, over many seconds are not many; nor are half of the calls."""
        server = self.serve()
        with connect(server.tcp) as connection:
            connection.sendall(PREFACE + frame(SETTINGS, 0, 0))
            reader = threading.Thread(target=self.drain, args=(connection,))
            reader.start()
            for first in range(1, 20_000, 20):
                for stream in range(first, first + 20, 4):  # every second one is reset, the other ends with an error
                    connection.sendall(
                        frame(HEADERS, END_HEADERS, stream, INFO) + frame(RST_STREAM, 0, stream, CANCEL)
                        + frame(HEADERS, END_HEADERS | 1, stream + 2, INFO)
                    )
            self.assertEqual(self.ended(server), 0)
            self.close(connection)
            reader.join(harness.DEADLINE_S)
        self.assertEqual(self.health(server), (0, "SERVING\n"))


if __name__ == "__main__":
    unittest.main()

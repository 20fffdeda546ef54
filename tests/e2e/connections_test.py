"""Clients that only connect: more than the server has descriptors, all from one peer, silent ones, idle ones."""

import os
import resource
import selectors
import socket
import subprocess
import time
import unittest
import urllib.request

import harness
from metrics_test import samples, total

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def connect(address, source=None):
    """A connection to what the ready file names."""
    if address.startswith("unix:"):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(harness.DEADLINE_S)
        connection.connect(address.removeprefix("unix:"))
        return connection
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), harness.DEADLINE_S, source and (source, 0))


def ended(connections, count, within_s=harness.DEADLINE_S):
    """Waits until the server has ended so many of the connections; gives those that it has ended by then."""
    over = set()
    deadline = time.monotonic() + within_s
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ)
        while len(over) < count and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                try:
                    if key.fileobj.recv(1 << 16):
                        continue
                except OSError:
                    pass
                selector.unregister(key.fileobj)
                over.add(key.fileobj)
    return over


class ConnectionsTest(unittest.TestCase):
    def serve(self, *flags, **keywords):
        server = harness.Server(*flags, **keywords)
        self.addCleanup(lambda: self.assertEqual(server.stop(), 0))
        self.server = server
        return server

    def open(self, count, address, source=None):
        """So many connections, which end with the test."""
        made = []
        for _ in range(count):
            made.append(connect(address, source))
            self.addCleanup(made[-1].close)
        return made

    def scrape(self):
        with urllib.request.urlopen(self.server.http() + "metrics", timeout=harness.DEADLINE_S) as answer:
            return samples(answer.read().decode())

    def refused(self, **labels):
        return total(self.scrape(), "reduced_connections_refused_total", **labels)

    def await_connections(self, count):
        deadline = time.monotonic() + harness.DEADLINE_S
        while (now := total(self.scrape(), "reduced_connections")) != count:
            self.assertLess(time.monotonic(), deadline, now)
            time.sleep(0.05)

    def health(self, address):
        """The exit status of reducectl, and what it prints."""
        run = subprocess.run(
            harness.command("health", "--timeout", "10s"),
            capture_output=True,
            timeout=harness.DEADLINE_S,
            env=harness.environment(address),
            check=False,
        )
        return run.returncode, (run.stdout + run.stderr).decode()

    def processor_share(self, seconds):
        """The share of one core that the server takes in the next seconds."""
        path = f"/proc/{self.server.process.pid}/stat"

        def ticks():
            with open(path, encoding="ascii") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            return int(fields[11]) + int(fields[12])

        before, began = ticks(), time.monotonic()
        time.sleep(seconds)
        return (ticks() - before) * TICK_S / (time.monotonic() - began)

    def check_flood(self, address):
        """200 connections to a server of 64 descriptors."""
        made = self.open(200, address)
        over = ended(made, 200 - 64)
        self.assertGreaterEqual(len(over), 200 - 64)
        self.assertLess(len(over), 200)
        # Monitoring still has descriptors, and nothing spins.
        found = self.scrape()
        self.assertGreaterEqual(total(found, "reduced_connections_refused_total"), len(over))
        self.assertLessEqual(total(found, "reduced_connections"), total(found, "reduced_connections_limit"))
        self.assertLess(self.processor_share(1), 0.5)
        for connection in made:
            connection.close()
        self.await_connections(0)
        self.assertEqual(self.health(address), (0, "SERVING\n"))

    def test_more_connections_than_descriptors(self):
        server = self.serve(descriptors=64)
        for address in (server.tcp, server.unix):
            with self.subTest(address):
                self.check_flood(address)
        # The same warning isn't logged for each.
        self.assertIn("connections: refused one of", server.log())
        self.assertLess(server.log().count("connections: refused one of"), 200)

    def test_silent_connections_delay_no_scrape(self):
        server = self.serve("--max_connections_per_peer=600")
        metrics = server.http().removeprefix("http://").rstrip("/")
        self.open(500, server.tcp)
        self.open(500, server.unix)
        for began in (b"", b"GET /metr", b"GET /status.json HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            with self.subTest(began):
                for connection in self.open(1000, metrics):
                    try:
                        connection.sendall(began)
                    except OSError:
                        pass  # the server has closed it
                start = time.monotonic()
                for _ in range(3):
                    self.scrape()
                self.assertLess(time.monotonic() - start, 3)

    def test_one_peer_leaves_room_for_others(self):
        server = self.serve("--max_connections_per_peer=4")
        first = self.open(10, server.tcp, "127.0.0.1")
        self.assertEqual(len(ended(first, 6)), 6)
        self.assertEqual(self.refused(reason="peer"), 6)
        second = self.open(4, server.tcp, "127.0.0.2")
        by_user = self.open(6, server.unix)
        self.assertEqual(len(ended(by_user, 2)), 2)
        self.assertEqual(len(ended(second, 1, within_s=0)), 0)
        self.await_connections(12)
        for connection in first:
            connection.close()
        self.await_connections(8)
        self.assertEqual(self.health(server.tcp), (0, "SERVING\n"))

    def test_all_peers_together(self):
        server = self.serve("--max_connections=6", "--max_connections_per_peer=4")
        made = [*self.open(4, server.tcp, "127.0.0.1"), *self.open(4, server.tcp, "127.0.0.2")]
        over = ended(made, 2)
        self.assertEqual(len(over), 2)
        self.assertEqual(self.refused(reason="connections"), 2)
        code, text = self.health(server.unix)
        self.assertEqual(code, 3, text)  # at once, not after its timeout
        made[0].close()
        self.await_connections(5)
        self.assertEqual(self.health(server.unix), (0, "SERVING\n"))

    def test_a_silent_connection_ends(self):
        server = self.serve("--handshake_timeout=300ms")
        made = [*self.open(2, server.tcp), *self.open(2, server.unix)]
        for connection in (made[0], made[2]):
            connection.sendall(PREFACE)
        self.assertEqual(len(ended(made, 4)), 4)
        self.await_connections(0)

    def test_an_idle_connection_ends(self):
        server = self.serve("--max_connection_idle=1s", "--handshake_timeout=300ms")
        made = [*self.open(1, server.tcp), *self.open(1, server.unix)]
        for connection in made:
            connection.sendall(PREFACE + SETTINGS)
        self.assertEqual(len(ended(made, 2)), 2)
        self.assertEqual(self.health(server.tcp), (0, "SERVING\n"))

    def test_a_vanished_peer_is_noticed(self):
        server = self.serve("--keepalive_time=1s", "--keepalive_timeout=1s", "--handshake_timeout=300ms")
        made = [*self.open(1, server.tcp), *self.open(1, server.unix)]
        for connection in made:
            connection.sendall(PREFACE + SETTINGS)  # and never answers a ping
        self.assertEqual(len(ended(made, 2)), 2)

    def test_health_says_when_nobody_can_connect(self):
        server = self.serve()
        watch = subprocess.Popen(
            harness.command("health", "--watch", "--timeout", f"{harness.DEADLINE_S}s"),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=harness.environment(server.unix),
        )
        self.addCleanup(watch.communicate)
        self.addCleanup(watch.kill)
        lines = iter(watch.stdout.readline, b"")
        self.assertEqual(next(lines), b"SERVING\n")
        soft, hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (3, hard))  # fewer than it has open
        waiting = self.open(2, server.unix)
        self.assertEqual(next(lines), b"NOT_SERVING\n")
        self.assertLess(self.processor_share(1), 0.5)
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (soft, hard))
        self.assertEqual(next(lines), b"SERVING\n")
        for connection in waiting:
            connection.close()
        self.assertEqual(self.health(server.unix), (0, "SERVING\n"))


if __name__ == "__main__":
    unittest.main()

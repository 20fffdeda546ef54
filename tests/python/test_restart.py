"""Servers that restart while 10 callers use them: reductions lose nothing, by single calls, streams, sessions and rings.

REDUCED_RESTARTS: how many rolling restarts of two servers there are; 4 by default.
"""

import asyncio
import collections
import functools
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import threading
import time

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

import harness  # noqa: E402
import reduced  # noqa: E402
import reduced.aio  # noqa: E402

RESTARTS = int(os.environ.get("REDUCED_RESTARTS", "4"))
SMALL = np.arange(1000.0)
LARGE = np.arange(1 << 19, dtype=np.float64)  # 4 MiB


class Servers:
    """So many servers, each of which can be replaced by another one at the same addresses."""

    def __init__(self, folder, count, *flags):
        self.folder, self.flags = folder, flags
        self.running = [self._start(name, 0) for name in range(count)]
        self.tcp = ",".join(server.tcp for server in self.running)
        self.unix = f"unix:{folder}/0"

    def _start(self, name, port):
        return harness.Server(f"--listen=127.0.0.1:{port},unix:{self.folder}/{name}", *self.flags)

    def restart(self, name, how=signal.SIGTERM):
        port = self.running[name].tcp.rpartition(":")[2]
        self.stop(name, how)
        self.running[name] = self._start(name, port)

    def stop(self, name, how=signal.SIGTERM):
        server, self.running[name] = self.running[name], None
        log = server.log()
        assert server.stop(how) == (0 if how == signal.SIGTERM else -how), log

    def close(self):
        for name, server in enumerate(self.running):
            if server is not None:
                self.stop(name)


class Callers:
    """10 of them, each of which asks again and again until the end, and remembers what failed."""

    def __init__(self, address, **options):
        self.address, self.options = address, {"timeout": 30.0} | options
        self.answers, self.failures = collections.Counter(), []
        self._ended = threading.Event()
        callers = [self._unary, self._unary, self._stream, self._stream, self._session, self._session, self._ring, self._aio,
                   functools.partial(self._many, "session"), functools.partial(self._many, "ring")]
        self._threads = [threading.Thread(target=caller, daemon=True) for caller in callers]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        self.await_more()
        return self

    def __exit__(self, *_):
        self._ended.set()
        for thread in self._threads:
            thread.join(harness.DEADLINE_S)
            assert not thread.is_alive()

    def await_more(self):
        """Until every kind has had 20 answers more."""
        wanted = {kind: self.answers[kind] + 20 for kind in ("unary", "stream", "session", "ring", "aio", "aio stream", "session many", "ring many")}
        deadline = time.monotonic() + harness.DEADLINE_S
        while any(self.answers[kind] < count for kind, count in wanted.items()) and not self.failures:
            assert time.monotonic() < deadline, self.answers
            time.sleep(0.01)
        assert not self.failures, self.failures[:10]

    def _note(self, kind, array, result):
        self.answers[kind] += 1
        if (result.sum, result.argmax) != (array.sum(), len(array) - 1):
            self.failures.append(f"{kind}: wrong: {result}")

    def _ask(self, kind, array, reduce):
        while not self._ended.is_set() and not self.failures:
            try:
                self._note(kind, array, reduce(array, ["sum", "argmax"]))
            except reduced.Error as error:
                self.failures.append(f"{kind}: {error!r}")

    def _connect(self):
        return reduced.connect(self.address, **self.options)

    def _unary(self):
        with self._connect() as client:
            self._ask("unary", SMALL, client.reduce)

    def _stream(self):
        with self._connect() as client:
            self._ask("stream", LARGE, lambda array, ops: client.reduce(array, ops, via="stream"))

    def _session(self):
        with self._connect() as client, client.session(via="session") as session:
            self._ask("session", SMALL, session.reduce)

    def _ring(self):
        with self._connect() as client, client.session(via="ring") as session:
            self._ask("ring", SMALL, session.reduce)

    def _many(self, via):
        with self._connect() as client, client.session(via=via) as session:
            self._ask(f"{via} many", SMALL, lambda array, ops: session.reduce_many([array] * 20, ops)[-1])

    def _aio(self):
        async def ask(client, kind, array, via):
            while not self._ended.is_set() and not self.failures:
                try:
                    self._note(kind, array, await client.reduce(array, ["sum", "argmax"], via=via))
                except reduced.Error as error:
                    self.failures.append(f"{kind}: {error!r}")

        async def main():
            async with reduced.aio.connect(self.address, **self.options) as client:
                await asyncio.gather(ask(client, "aio", SMALL, "inline"), ask(client, "aio stream", LARGE, "stream"))

        asyncio.run(main())


@pytest.fixture
def serve():
    """Starts servers, in a folder whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory() as folder:
        started = []

        def start(count, *flags):
            started.append(Servers(folder, count, *flags))
            return started[-1]

        yield start
        for servers in started:
            servers.close()


def test_rolling_restarts_of_two_servers(serve):
    servers = serve(2)
    with Callers(servers.tcp) as callers:
        for i in range(RESTARTS):
            servers.restart(i % 2)
            callers.await_more()
    print(dict(callers.answers))
    assert not callers.failures


def test_servers_that_are_killed(serve):
    servers = serve(2)
    with Callers(servers.tcp) as callers:
        for name in (0, 1):
            servers.restart(name, signal.SIGKILL)
            callers.await_more()
    assert not callers.failures


@pytest.mark.parametrize("address", ["tcp", "unix"])
def test_callers_wait_for_the_only_server(serve, address):
    servers = serve(1)
    with Callers(getattr(servers, address)) as callers:
        for _ in range(2):
            servers.restart(0)
            callers.await_more()
    assert not callers.failures


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with openssl")
def test_with_tls(serve, tmp_path):
    import secured

    authority = secured.Authority(tmp_path, "ours")
    cert, key = authority.issue("server")
    servers = serve(2, f"--tls_cert={cert}", f"--tls_key={key}")
    with Callers(servers.tcp, tls_ca=str(authority.cert), tls_server_name="localhost") as callers:
        for name in (0, 1):
            servers.restart(name)
            callers.await_more()
    assert not callers.failures


def test_without_a_server_the_error_says_so(serve):
    """In time: a client that has had an answer waits until its deadline, and one that has not doesn't."""
    servers = serve(1)
    with reduced.connect(servers.unix, timeout=1.0) as client, client.session() as session:
        assert client.sum(SMALL) == session.sum(SMALL) == SMALL.sum()
        servers.stop(0)
        for caller in (client, session):
            start = time.monotonic()
            with pytest.raises(reduced.UnavailableError, match="waited for a server"):
                caller.sum(SMALL)
            assert 0.5 < time.monotonic() - start < 5
    start = time.monotonic()
    with reduced.connect(servers.unix, timeout=30.0) as client:
        with pytest.raises(reduced.UnavailableError, match="no reduced server answers at .*; tried 4 times"):
            client.sum(SMALL)
    assert time.monotonic() - start < 15


def test_resident_arrays_end_with_their_server(serve):
    servers = serve(1)
    with reduced.connect(servers.unix, timeout=30.0) as client:
        array = client.put(SMALL)
        servers.restart(0)
        with pytest.raises(reduced.NotFoundError):
            client.sum(array)
        assert client.sum(client.put(SMALL)) == SMALL.sum()

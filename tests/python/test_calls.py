"""How calls behave: threads, Ctrl-C, errors of servers, asyncio, sessions, the end of the process."""

import asyncio
import hashlib
import math
import multiprocessing
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

import harness
import numpy as np
import pytest
import reduced
import reduced.aio

DEADLINE_S = 60


def run(program, *arguments, **options):
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=DEADLINE_S, check=False,
                          **options)


@pytest.fixture
def listening():
    with socket.create_server(("127.0.0.1", 0)) as listens:
        listens.settimeout(DEADLINE_S)
        yield listens


@pytest.fixture
def silent(listening):
    """The address of a server that accepts connections, and never answers."""
    return f"127.0.0.1:{listening.getsockname()[1]}"


def test_errors_of_servers(silent, server):
    with reduced.connect("127.0.0.1:1", timeout=0.5, max_attempts=1) as client:
        with pytest.raises(reduced.UnavailableError, match="127.0.0.1:1") as unavailable:
            client.sum([1.0])
        assert isinstance(unavailable.value, ConnectionError) and unavailable.value.code == "UNAVAILABLE"
    with reduced.connect(silent, timeout=0.2) as client:
        with pytest.raises(TimeoutError, match="no answer") as late:
            client.sum([1.0])
        assert isinstance(late.value, reduced.DeadlineExceededError)
    with reduced.connect(server.unix) as client, pytest.raises(reduced.InvalidArgumentError) as refused:
        client.sum([1.0], block_size=7)
    assert refused.value.request_id and refused.value.retry_after is None
    for bad in ({"server": ""}, {"server": "unix:"}, {"timeout": -1.0}, {"connections": 65}, {"max_attempts": 0},
                {"tls_ca": "/nonexistent"}, {"token_file": pathlib.Path("/nonexistent")}):
        with pytest.raises(reduced.InvalidArgumentError):
            reduced.connect(**bad)
    for bad, message in (({"server": 7}, "server: got 7; allowed: strings"), ({"timeout": "x"}, "timeout: got 'x'; allowed: seconds"),
                         ({"timeout": None}, "timeout: got None; allowed: seconds"), ({"tls_ca": 1}, "tls_ca: got 1; allowed: strings"),
                         ({"connections": 1.5}, "connections: got 1.5; allowed: whole numbers"),
                         ({"token_file": b"x"}, "token_file: got b'x'; allowed: strings")):
        with pytest.raises(TypeError, match=f"^{message}$"):
            reduced.connect(**bad)


def test_tokens(tmp_path):
    token = "a" * 32
    (tmp_path / "tokens").write_text(f"alice {hashlib.sha256(token.encode()).hexdigest()}\n")
    (tmp_path / "token").write_text(token)
    (tmp_path / "tokens").chmod(0o600)
    server = harness.Server(f"--token_file={tmp_path}/tokens")
    try:
        with reduced.connect(server.unix, token_file=tmp_path / "token") as client:
            assert client.sum([1.0, 2.0]) == 3
            with client.put([1.0]) as resident:  # belongs to alice, whose token it is
                assert client.sum(resident) == 1
            with pytest.raises(reduced.PermissionDeniedError, match="allowed: your identity, 'alice'"):
                client.put([1.0], owner="bob")
        with reduced.connect(server.unix) as client, pytest.raises(reduced.UnauthenticatedError):
            client.sum([1.0])
    finally:
        server.stop()


def test_the_environment_names_the_server(server, monkeypatch):
    monkeypatch.setenv("REDUCED_SERVER", server.unix)
    with reduced.connect() as client:
        assert client.sum([1.0]) == 1 and server.unix in repr(client)
        assert client.info()["version"] == reduced.__version__
        assert client.info()["devices"][0]["name"] == "cpu"


def test_what_is_closed(server):
    client = reduced.connect(server.unix)
    session = client.session()
    client.close()
    client.close()
    assert session.sum([1.0]) == 1  # it may outlive its client
    session.close()
    for closed in (client, session):
        with pytest.raises(reduced.FailedPreconditionError, match="closed"):
            closed.sum([1.0])


def test_what_sessions_go_through(remote, local):
    for via, expected in (("auto", "ring"), ("ring", "ring"), ("session", "session")):
        with remote.session(via=via) as session:
            assert (session.via, session.why_not_ring, session.sum([1.0, 2.0])) == (expected, "", 3)
    assert local.session().via == "local"
    with pytest.raises(reduced.InvalidArgumentError, match="via: got \"smoke\"; allowed: auto, session, ring"):
        remote.session(via="smoke")


def test_other_threads_run_meanwhile(silent):
    """The GIL is released: a call that waits does not stop this thread."""
    with reduced.connect(silent, timeout=1.5) as client:
        waiting = threading.Thread(target=lambda: pytest.raises(TimeoutError, client.sum, [1.0]))
        waiting.start()
        counted = 0
        while waiting.is_alive():
            counted += 1
        waiting.join()
    assert counted > 10_000


def test_threads_share_a_client(client):
    array = np.random.default_rng(3).normal(size=20_000)
    right = math.fsum(array)
    failures = []

    def work():
        for _ in range(50):
            if client.sum(array) != right:
                failures.append("wrong")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert not failures


CTRL_C = """
import sys
import numpy as np, reduced
how, server = sys.argv[1:]
client = reduced.connect(server, timeout=600)
array = np.ones(3 if how == "inline" else 3_000_000)
try:
    (client.put if how == "put" else client.sum)(array)
except KeyboardInterrupt:
    print("interrupted", reduced.connect("local:").sum([1.0]), flush=True)
"""


@pytest.mark.parametrize("how", ["inline", "stream", "put"])
def test_ctrl_c(silent, listening, how):
    program = subprocess.Popen([sys.executable, "-c", CTRL_C, how, silent], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        connection, _ = listening.accept()  # the call is under way
        with connection:
            program.send_signal(signal.SIGINT)
            assert program.communicate(timeout=DEADLINE_S) == ("interrupted 1.0\n", "")
    finally:
        program.kill()
        program.wait()


def test_ctrl_c_in_the_engine(local):
    """A handler that raises ends a reduction of this process."""
    class Alarm(Exception):
        pass

    def ring(_signal, _frame):
        raise Alarm

    array = np.ones(30_000_000)
    before = signal.signal(signal.SIGALRM, ring)
    try:
        with pytest.raises(Alarm):
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            while True:
                local.reduce(array, "prod", pipeline="sequential")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert local.sum([1.0]) == 1


def test_sessions_take_arrays_of_any_size(remote):
    """Larger than a message, which is 64 MiB: streamed, or stored for the time of a request, with what is beside them."""
    array = np.arange(9_000_000, dtype="f8")
    mask, keys = array % 3 == 0, (array % 7).astype("i8")
    for via in ("ring", "session"):
        with remote.session(via=via) as session:
            assert session.sum(array) == array.sum() and session.sum(array, where=mask) == array.sum(where=mask)
            assert np.array_equal(session.sum(array.reshape(3000, 3000), axis=0, where=mask.reshape(3000, 3000)), array.reshape(3000, 3000).sum(axis=0, where=mask.reshape(3000, 3000)))
            assert np.array_equal(session.sum(array, keys=keys), np.bincount(keys, array)) and session.sum(array[:9], keys=keys[:9]).tolist() == [7, 9, 2, 3, 4, 5, 6]
            assert session.median(array) == 4499999.5 and session.dot(array[:10], array[:10]) == 285


def total(server, numbers):
    with reduced.connect(server) as client:
        return client.sum(numbers)


def test_asyncio_has_sessions(server):
    async def main():
        async with reduced.aio.connect(server.unix) as client:
            for via in ("ring", "session"):
                async with await client.session(via=via) as session:
                    assert session.via == via and (await asyncio.gather(*(session.sum([1, each]) for each in range(9)))) == list(range(1, 10))
                    result = await session.reduce(np.array([1.0, 2.0, 4.0]), "sum,max", keys=["a", "b", "a"])
                    assert result.group_keys.tolist() == ["a", "b"] and result.sum.tolist() == [5, 2]
                    assert await session.median([1, 2, 9]) == 2 and (await session.describe([1, 2])).max == 2
                with pytest.raises(reduced.FailedPreconditionError):
                    await session.sum([1])
            assert await client.sum([1, 2]) == 3

    asyncio.run(main())


def test_processes_that_are_spawned(server):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.starmap(total, [(server.unix, [1, 2]), ("local:", [3, 4])]) == [3, 7]


def test_the_end_of_the_process(server):
    """Open clients, sessions, arrays and memory do not delay it, whatever is collected first."""
    done = run("""
import sys, reduced, threading
client = reduced.connect(sys.argv[1])
session, resident, shared = client.session(), client.put([1.0]), reduced.empty(10)
print(client.sum(shared), session.sum(resident), reduced.connect("local:").sum([2.0] * 100000))
threading.Thread(target=client.sum, args=([1.0],)).start()
""", server.unix)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0.0 1.0 200000.0\n", "")


@pytest.mark.parametrize("order", ["first", "last"])
def test_grpcio_in_the_same_process(server, order):
    """Its gRPC is another than the package's; both use one server in turn."""
    done = run("""
import sys
order = sys.argv[2]
if order == "first":
    import grpc
import reduced
client = reduced.connect(sys.argv[1])
assert client.sum([1.0]) == 1
import grpc
channel = grpc.insecure_channel(sys.argv[1])
grpc.channel_ready_future(channel).result(20)
assert client.sum([1.0]) == 1
print("both")
""", server.unix, order)
    assert done.stdout == "both\n", done.stderr


def test_asyncio(server, silent):
    async def main():
        async with reduced.aio.connect(server.unix) as client:
            array = np.arange(100.0)
            assert await asyncio.gather(*(client.sum(array) for _ in range(100))) == [4950] * 100
            result = await client.reduce(array, ["max", "argmax"])
            assert (result.max, result.argmax) == (99, 99)
            assert (await client.describe(array)).count == 100
            resident = await client.put(array)
            assert await client.mean(resident) == 49.5
            await asyncio.to_thread(resident.close)
            with pytest.raises(reduced.InvalidArgumentError):
                await client.sum(array, nan="x")
            with pytest.raises(TypeError, match="^ddof: got 1.5; allowed: whole numbers$"):
                await client.sum(array, ddof=1.5)
        async with reduced.aio.connect(silent, timeout=600) as client:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(client.sum(array), 0.2)
            waiting = asyncio.ensure_future(client.sum(np.ones(10**6)))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        async with reduced.aio.connect("local:") as client:
            assert await client.sum(array) == 4950

    began = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - began < DEADLINE_S

"""Forks of processes that have clients: each process has connections of its own."""

import asyncio
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
import reduced
import reduced.aio

DEADLINE_S = 60
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def in_fork(work):
    """What `work` returns in a fork of this process, as text."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(DEADLINE_S)
        try:
            text = work()
        except BaseException as error:  # noqa: BLE001
            text = f"{type(error).__name__}: {error}"
        os.write(write, str(text).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        text = answer.read().decode()
    assert os.waitpid(child, 0)[1] == 0
    return text


def test_clients_work_in_the_child(server, local):
    array, large = np.arange(100.0), np.ones(3_000_000)
    assert local.sum(large) == len(large)
    assert in_fork(lambda: (local.sum(large), reduced.connect("local:").max(array))) == "(np.float64(3000000.0), np.float64(99.0))"
    for address in (server.unix, server.tcp):
        with reduced.connect(address, timeout=DEADLINE_S) as client, client.session() as session:
            shared, resident = reduced.empty(10), client.put(array)
            shared[:] = 1

            def all_right():
                with client.session() as own, reduced.connect(address) as another, another.put(array) as put:
                    assert own.via == session.via and own.sum(array) == 4950 and another.max(put) == 99
                assert client.sum(array) == client.sum(resident) == 4950 and client.sum(shared) == 10
                assert client.sum(large) == len(large) and client.sum(array, keys=["a", "b"] * 50).tolist() == [2450, 2500]
                return "all right"

            for _ in range(3):
                assert all_right() == in_fork(all_right) == in_fork(lambda: in_fork(all_right)) == "all right"
                assert session.sum(array) == 4950
            of_parent = "FailedPreconditionError: fork: got a session of the process that forked this one; allowed: sessions that this"
            assert in_fork(lambda: session.sum(array)).startswith(of_parent)
            assert in_fork(lambda: (client.close(), session.close(), resident.close())) == "(None, None, None)"
            assert all_right() and session.sum(array) == 4950  # what the child has closed is its own
            resident.close()
    assert in_fork(lambda: client.sum(array)) == "FailedPreconditionError: the connection is closed"


@pytest.mark.parametrize("via", ["ring", "session"])
def test_forks_while_threads_call(server, via):
    """Calls go on in the parent, also those in the middle of a stream, and none of their bytes go to the child."""
    array, large = np.arange(100.0), np.ones(2_000_000)
    wrong, over = [], threading.Event()
    with reduced.connect(server.unix, timeout=DEADLINE_S) as client, client.session(via=via) as session:
        def call():
            while not over.is_set():
                try:
                    assert client.sum(array) == session.sum(array) == 4950 and client.sum(large, via="stream") == len(large)
                except BaseException as error:  # noqa: BLE001
                    wrong.append(error)
                    return

        threads = [threading.Thread(target=call) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(15):
                assert in_fork(lambda: client.sum(array)) == "4950.0"
        finally:
            over.set()
            for thread in threads:
                thread.join()
    assert wrong == []


def test_a_fork_that_no_call_lets_pass(server):
    """A call that cannot pause: gRPC does not work in the child, which says so, and goes on in the parent."""
    with socket.create_server(("127.0.0.1", 0)) as silent, reduced.connect(server.unix) as client:
        unanswered = reduced.connect(f"127.0.0.1:{silent.getsockname()[1]}", timeout=4)
        said = []

        def ask():
            try:
                unanswered.info()
            except reduced.DeadlineExceededError:
                said.append("late")

        assert client.sum([1.0]) == 1
        thread = threading.Thread(target=ask)
        thread.start()
        silent.settimeout(DEADLINE_S)
        with silent.accept()[0]:  # the call is under way
            refused = "FailedPreconditionError: fork: got a process that was forked while another thread was in a call"
            assert in_fork(lambda: client.sum([1.0])).startswith(refused)
            assert in_fork(lambda: reduced.connect(server.unix)).startswith(refused)
            assert in_fork(lambda: (reduced.connect("local:").sum([1.0]), client.close())) == "(np.float64(1.0), None)"
            assert client.sum([1.0]) == 1
            thread.join()
    assert said == ["late"]


def test_asyncio_in_the_child(server):
    client = reduced.aio.connect(server.unix)

    async def both():
        async with await client.session() as session:
            return await asyncio.gather(client.sum([1, 2]), session.sum([3, 4]))

    assert asyncio.run(both()) == [3, 7]
    assert in_fork(lambda: [int(each) for each in asyncio.run(both())]) == "[3, 7]"
    assert asyncio.run(both()) == [3, 7]
    asyncio.run(client.close())


client = None


def sum_of(numbers):
    return int(client.sum(numbers))


def test_processes_that_are_forked(server):
    """As workers of gunicorn and of PyTorch's DataLoader have what was made before the fork."""
    global client
    with reduced.connect(server.unix) as client:
        assert client.sum([1, 2]) == 3
        with multiprocessing.get_context("fork").Pool(3) as pool:
            assert pool.map(sum_of, [[each, 1] for each in range(20)], chunksize=1) == list(range(1, 21))
        assert client.sum([1, 2]) == 3


def test_the_end_of_the_child(server):
    """It ends as other processes do, and says nothing."""
    program = """
import os, sys, threading, reduced
client, local = reduced.connect(sys.argv[1]), reduced.connect("local:")
session, resident, shared = client.session(), client.put([1.0]), reduced.empty(10)
waits = threading.Event()
threading.Thread(target=lambda: (client.sum([1.0]), waits.wait())).start()
print(client.sum(shared), session.sum(resident), flush=True)
if os.fork() == 0:
    print(client.sum(shared), client.sum(resident), local.sum([1.0]), flush=True)
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.wait()[1]), client.sum(resident))
waits.set()
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program, server.unix], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0.0 1.0\n0.0 1.0 1.0\n3 1.0\n", "")


def test_other_programs_keep_their_grpc(server):
    """What the package tells gRPC by the environment is gone afterwards."""
    program = """
import os, sys, reduced
before = dict(os.environ)
reduced.connect(sys.argv[1]).sum([1.0])
said = os.popen("env").read()
print("GRPC_POLL_STRATEGY=epoll1" in said, "GRPC_ENABLE_FORK_SUPPORT" in said, dict(os.environ) == before)
"""
    done = subprocess.run([sys.executable, "-c", program, server.unix], capture_output=True, text=True, timeout=DEADLINE_S, check=False,
                          env=os.environ | {"GRPC_POLL_STRATEGY": "epoll1"})
    assert (done.stdout, done.stderr) == ("True False True\n", "")

"""Shared memory, resident arrays, and that nothing is left of either."""

import functools
import gc
import json
import os
import re
import subprocess
import time

import harness
import numpy as np
import pytest
import reduced

DEADLINE_S = 60


def await_usage(client, **usage):
    """Waits until the server has so many regions, arrays or sessions."""
    deadline = time.monotonic() + DEADLINE_S
    while {name: client.info()["usage"][name] for name in usage} != usage:
        assert time.monotonic() < deadline, client.info()["usage"]
        time.sleep(0.01)


def test_empty_is_an_array():
    array = reduced.empty((3, 4), "f4")
    assert array.shape == (3, 4) and array.dtype == np.float32 and array.flags.c_contiguous and array.flags.writeable
    assert not array.any()
    array[:] = 2
    assert array.sum() == 24
    assert reduced.empty(5).dtype == np.float64 and reduced.empty(()).shape == ()
    assert reduced.empty(0).size == 0 and reduced.empty((0, 3), "i4").shape == (0, 3)
    for shape, dtype, error in [(-1, "f8", ValueError), ((2, -3), "f8", ValueError), (3, "c16", TypeError), (3, object, TypeError),
                                (1 << 60, "f8", ValueError), (1 << 58, "f8", reduced.ResourceExhaustedError), ("a", "f8", (TypeError, ValueError))]:
        with pytest.raises(error):
            reduced.empty(shape, dtype)


def test_shared_memory_is_read_where_it_is(remote, local):
    array = reduced.empty((100, 100), "f4")
    array[:] = np.arange(10000).reshape(100, 100)
    for client in (remote, local):
        assert client.reduce(array, "sum").via == ("region" if client is remote else "local")
        assert client.sum(array) == 49995000
    array[50, 50] = 1e6
    result = remote.reduce(array, ["max", "argmax"])
    assert (result.via, result.max, result.argmax) == ("region", 1e6, 5050)
    part = array[50:60].reshape(-1)[3:]
    result = remote.reduce(part, ["argmax", "count"])
    assert (result.via, result.argmax, result.count) == ("region", 47, 997)
    transposed = remote.reduce(array.T, ["sum"])
    assert transposed.via == "region" and transposed.sum == array.sum(dtype="f8")
    assert remote.reduce(array.view("u1")[7:9003:1].reshape(-1)[1:-1], "count").via in ("region", "inline")
    assert remote.reduce(array, "sum", via="inline").via == "inline"
    assert remote.reduce(array[:, ::2], "sum").via == "region"
    assert remote.reduce(array, "sum", via="region").via == "region"
    with pytest.raises(reduced.InvalidArgumentError, match="via: got region for an array in other memory"):
        remote.reduce(np.ones(3), "sum", via="region")


def test_regions_end_with_the_array_and_with_the_client(remote, server):
    gc.collect()
    await_usage(remote, regions=0)
    array = reduced.empty(10)
    view = array[2:]
    assert remote.reduce(view, "sum").via == "region"
    del array
    assert remote.info()["usage"]["regions"] == 1
    del view
    await_usage(remote, regions=0)
    array = reduced.empty(10)
    with reduced.connect(server.unix) as other:
        assert other.reduce(array, "sum").via == "region"
        assert remote.reduce(array, "sum").via == "region"
        assert remote.info()["usage"]["regions"] == 2
    await_usage(remote, regions=1)
    assert remote.reduce(array, "sum").via == "region"


def test_a_server_that_is_started_again(tmp_path):
    """Its regions are gone with the one before: the memory is shared again."""
    def start():
        ready = tmp_path / "ready"
        ready.unlink(missing_ok=True)
        server = subprocess.Popen([os.environ["REDUCED"], f"--listen=unix:{tmp_path}/socket", f"--ready_file={ready}", "--metrics_listen="],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + DEADLINE_S
        while not ready.exists():
            assert server.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        return server

    array = reduced.empty(1000)
    array[:] = 1
    with reduced.connect(f"unix:{tmp_path}/socket", timeout=DEADLINE_S) as client:
        for end in (subprocess.Popen.terminate, subprocess.Popen.kill, subprocess.Popen.terminate):
            server = start()
            try:
                for _ in range(2):
                    result = client.reduce(array, "sum")
                    assert (result.via, result.sum) == ("region", 1000)
            finally:
                end(server)
                server.wait(DEADLINE_S)


def test_servers_without_regions_are_sent_the_elements():
    server = harness.Server("--region_socket=")
    try:
        with reduced.connect(server.unix) as client:
            array = reduced.empty(1000)
            array[:] = 1
            result = client.reduce(array, "sum")
            assert (result.via, result.sum) == ("inline", 1000)
            with pytest.raises(reduced.FailedPreconditionError, match="no region socket"):
                client.sum(array, via="region")
    finally:
        server.stop()


def test_resident_arrays(remote, local):
    array = np.arange(12.0).reshape(3, 4)
    for client in (remote, local):
        with client.put(array) as resident:
            assert resident.shape == (3, 4) and resident.dtype == np.float64 and resident.nbytes == 96 and resident.device == "cpu"
            result = client.reduce(resident, ["sum", "argmax"])
            assert (result.sum, result.argmax) == (66, 11) and result.via in ("resident", "local")
            assert client.mean(resident) == 5.5
        with pytest.raises(ValueError, match="closed"):
            client.sum(resident)
        resident.close()
    array[0, 0] = 1e6
    assert local.put(array[:, ::2]).shape == (3, 2)
    gc.collect()
    await_usage(remote, arrays=0)
    with remote.put(array, ttl=3600, owner="me") as resident:
        with remote.session() as session:
            assert session.max(resident) == 1e6
        with pytest.raises(reduced.InvalidArgumentError, match="local"):
            local.sum(resident)
        await_usage(remote, arrays=1)
    await_usage(remote, arrays=0)
    with pytest.raises(reduced.FailedPreconditionError, match="device"):
        remote.put(array, device="cuda:9")
    with pytest.raises(reduced.FailedPreconditionError, match=r"device: got 'cuda:\*'; allowed: cpu"):
        remote.put(array, device="cuda:*")
    with pytest.raises(reduced.InvalidArgumentError, match="ttl"):
        remote.put(array, ttl=-1)
    for client in (remote, local):
        for bad, message in (({"ttl": "5s"}, "ttl: got '5s'; allowed: seconds"), ({"timeout": "5s"}, "timeout: got '5s'; allowed: seconds, or None"),
                             ({"owner": 5}, "owner: got 5; allowed: strings, or None"), ({"device": 0}, "device: got 0; allowed: strings")):
            with pytest.raises(TypeError, match=f"^{message}$"):
                client.put(array, **bad)
        with client.put(array) as resident, pytest.raises(TypeError, match="^timeout: got '5s'; allowed: seconds, or None$"):
            resident.get(timeout="5s")


def reducectl(server, *arguments):
    return subprocess.run([os.environ["REDUCECTL"], "--server", server.unix, "--json", "arrays", *arguments], capture_output=True, text=True,
                          timeout=DEADLINE_S, check=False)


def listed(server):
    return {array["id"]: array for array in map(json.loads, reducectl(server, "list").stdout.splitlines())}


def test_owners(remote, server):
    """Python and reducectl delete what the other has put; other owners do not."""
    array = np.ones((2, 3))
    put = reducectl(server, "put", harness.DATA / "co2.npy")
    theirs = json.loads(put.stdout)
    assert re.fullmatch(".+@.+", theirs["owner"])
    ours = [remote.put(array), remote.sum(array, axis=0, keep=True)]
    assert {listed(server)[each.id]["owner"] for each in ours} == {theirs["owner"]}
    assert reducectl(server, "delete", theirs["id"], *(each.id for each in ours)).returncode == 0 and listed(server) == {}
    for each in ours:
        each.close()  # is gone already, which is no error
    for owner in ("", "me"):
        for store in (remote.put, functools.partial(remote.sum, axis=0, keep=True)):
            resident = store(array, owner=owner)
            assert listed(server)[resident.id]["owner"] == owner
            refused = reducectl(server, "delete", resident.id)
            assert refused.returncode != 0 and "PERMISSION_DENIED" in refused.stderr
            resident.close()
            assert listed(server) == {}


def test_how_long_results_stay(remote, server):
    array = np.ones((2, 3))
    kept = [remote.sum(array, axis=0, keep=True, **options) for options in ({}, {"ttl": 0}, {"ttl": 600}, {"ttl": 0.05})]
    left = [listed(server).get(each.id, {"expires_in_s": 0})["expires_in_s"] for each in kept]
    assert left[0] > 3000 and left[1] > 3000 and 500 < left[2] <= 600 and left[3] <= 0.05
    with pytest.raises(reduced.InvalidArgumentError, match="ttl"):
        remote.sum(array, axis=0, keep=True, ttl=-1)
    for each in kept:
        each.close()


def used():
    gc.collect()
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), sum(
        int(line.split()[1]) for line in open("/proc/self/status", encoding="ascii") if line.startswith("RssAnon"))


def test_nothing_is_left(server, local):
    def everything(client, times):
        small = np.ones(10)
        for _ in range(times):
            shared = reduced.empty(100)
            client.reduce(shared, "sum", state=True).state.results
            client.sum(small)
            with client.put(small) as resident:
                client.sum(resident)
            local.reduce(small, "sum,argmax", state=True)
            for bad in ({"nan": "x"}, {"engine": "cuda"}):
                with pytest.raises(reduced.Error):
                    client.sum(small, **bad)

    with reduced.connect(server.unix) as client:
        everything(client, 300)
        files, threads, memory_kb = used()
        everything(client, 1500)
        after = used()
        assert after[0] <= files + 2 and after[1] <= threads + 4, (after, files, threads)
        assert after[2] - memory_kb < 8 << 10, "KiB"
        for _ in range(20):
            with client.session() as session:
                session.sum([1.0])
        await_usage(client, regions=0, arrays=0, sessions=0, streams=0)
    for _ in range(30):
        with reduced.connect(server.unix) as client:
            client.sum(reduced.empty(3))
    assert used()[0] <= files + 2

"""Arrays of a GPU, by CUDA IPC: with a server whose GPU is fake, in a process whose driver is."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
import types

import numpy as np
import pytest
import reduced
import reduced.aio
from test_memory import await_usage

if not os.environ.get("REDUCED_FAKE_GPU"):
    pytest.skip("this build has no fake GPU", allow_module_level=True)

import harness  # noqa: E402
from fake_gpu import Pieces, Segment, Tensor, WithDlpack, WithInterface, bfloat16, driver, import_torch  # noqa: E402

DEADLINE_S = 60


def await_nothing(client):
    """Until the server has no regions, and then this process no events, whose end comes after that of their regions."""
    gc.collect()
    await_usage(client, regions=0)
    deadline = time.monotonic() + DEADLINE_S
    while driver.fake_events() > 0:
        assert time.monotonic() < deadline
        time.sleep(0.01)


KINDS = [WithInterface, WithDlpack, Tensor]


@pytest.fixture(scope="module")
def gpu_server():
    before, os.environ["REDUCED"] = os.environ["REDUCED"], os.environ["REDUCED_FAKE_GPU"]
    try:
        running = harness.Server()
    finally:
        os.environ["REDUCED"] = before
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="module")
def gpu(gpu_server):
    with reduced.connect(gpu_server.unix, timeout=60) as client:
        yield client


@pytest.fixture(autouse=True)
def torch(monkeypatch):
    yield import_torch(monkeypatch)
    driver.fake_set_ready(1)


@pytest.mark.parametrize("kind", KINDS)
def test_reduced_where_it_is(gpu, kind):
    x = np.arange(24, dtype="f4").reshape(2, 3, 4)
    array = Segment(4096).array(x, kind, offset=256)
    result = gpu.reduce(array, ["sum", "max", "argmax"])
    assert (result.sum, result.max, result.argmax, result.size) == (276, 23, 23, 24)
    assert (result.via, result.ran_on.engine, result.ran_on.device) == ("region", "cuda", "cuda:0")
    assert gpu.mean(array[1, 2]) == x[1, 2].mean() and gpu.reduce(array, "sum", state=True).state.results.sum == 276
    assert gpu.describe(array, nan="propagate").max == 23 and gpu.sum(array, via="region", timeout=50) == 276
    for via in ("session", "ring"):
        with gpu.session(via=via) as session:
            assert session.reduce(array, "sum,argmin").sum == 276
    assert gpu.sum(array, axis=(0, 2)).tolist() == x.sum(axis=(0, 2)).tolist()
    with pytest.raises(reduced.InvalidArgumentError, match="via: got inline for an array in memory of a GPU; allowed: auto, region"):
        gpu.sum(array, via="inline")
    with pytest.raises(reduced.FailedPreconditionError):
        gpu.sum(array, engine="cpu")


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_beside(gpu, kind):
    x = np.arange(24, dtype="f4").reshape(6, 4)
    mask = x % 5 != 0
    keys, offsets, lengths = np.array([3, 1, 3, 3, 1, 7], "i4"), np.array([0, 2, 6]), np.array([2, 4])
    array = Segment(4096).array(x, kind)

    def there(side):
        return Segment(4096).array(side, kind, offset=512)

    result = gpu.reduce(array, "sum,argmax", axis=0, where=there(mask))
    assert result.ran_on.engine == "cuda" and result.sum.tolist() == x.sum(axis=0, where=mask).tolist()
    assert gpu.sum(array, where=there(mask)) == x.sum(where=mask)
    expected = [x[keys == key].sum(axis=0).tolist() for key in (1, 3, 7)]
    result = gpu.reduce(array, "sum", keys=there(keys))
    assert result.group_keys.tolist() == [1, 3, 7] and result.sum.tolist() == expected
    assert gpu.reduce(array, "sum", keys=there(keys), groups=8).sum.tolist()[1::2] == [expected[0], expected[1], [0] * 4, expected[2]]
    for segments in ({"segments": there(offsets)}, {"lengths": there(lengths)}):
        assert gpu.max(array, **segments).tolist() == [x[:2].max(axis=0).tolist(), x[2:].max(axis=0).tolist()]
    # Whatever holds the array, if the GPU reduces it.
    with gpu.put(x, device="cuda:0") as resident:
        assert np.array_equal(resident.get(), x)
        assert gpu.reduce(resident, "sum", keys=there(keys)).sum.tolist() == expected
        assert resident.shards == ()
    with gpu.put(x, device="cuda:*") as resident:
        assert resident.device == "cuda:*" and sum(count for _, _, _, count in resident.shards) == x.size
        assert resident.shards[0][:2] == ("cuda:0", 0) and np.array_equal(resident.get(), x)
        assert gpu.reduce(resident, "sum", keys=keys).sum.tolist() == expected
    assert gpu.reduce(x, "sum", keys=there(keys), engine="cuda").sum.tolist() == expected
    with pytest.raises(reduced.FailedPreconditionError, match="^keys: got an array in the memory of cuda:0 for the engine of cpu"):
        gpu.sum(x, keys=there(keys))
    with pytest.raises(reduced.InvalidArgumentError, match="^where: "):
        gpu.sum(array, where=there(mask[0]))
    with pytest.raises(reduced.InvalidArgumentError, match="keys"):
        gpu.sum(array, keys=there(x[0]))


def test_sides_with_strides(gpu):
    x = np.arange(12.0).reshape(4, 3)
    mask = x.T % 2 == 0
    assert gpu.sum(Segment(256).array(x, WithDlpack), where=Segment(64).array(mask, WithDlpack).T) == 30


def test_arrays_beside_are_not_for_the_engine_of_this_process(local):
    for side in ({"where": np.ones(4, "?")}, {"keys": np.zeros(4, "i4")}):
        there = {name: Segment(64).array(elements, Tensor) for name, elements in side.items()}
        with pytest.raises(TypeError, match="a CUDA device; allowed: host memory"):
            local.sum(np.ones(4), **there)


@pytest.mark.parametrize("dtype", ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"])
def test_dtypes(gpu, dtype):
    x = np.array([1, 0, 3, 2]).astype(dtype)
    for kind in KINDS:
        result = gpu.reduce(Segment(64).array(x, kind), ["count_nonzero", "max"])
        assert (result.count_nonzero, result.max) == (3, x.max())


def test_bfloat16(gpu):
    import ml_dtypes
    x = np.array([1.5, -2, 0.0078125], ml_dtypes.bfloat16)
    assert gpu.sum(Segment(64).array(x.view("u2"), bfloat16)) == -0.4921875


def test_what_has_no_dtype_of_the_service(gpu, local):
    with pytest.raises(TypeError, match="dtype: got complex64; allowed: bool"):
        gpu.sum(Segment(64).array(np.ones(2, "c8"), WithInterface))
    with pytest.raises(TypeError, match="dtype: got torch.complex64"):
        gpu.sum(Segment(64).array(np.ones(2, "c8"), Tensor))
    with pytest.raises(TypeError, match="byte order"):
        gpu.sum(Segment(64).array(np.ones(2, ">f4"), WithInterface))
    with pytest.raises(TypeError, match="a CUDA device; allowed: host memory"):
        local.sum(Segment(64).array(np.ones(2), Tensor))
    with pytest.raises(TypeError, match="a CUDA device; allowed: host memory"):
        gpu.put(Segment(64).array(np.ones(2), Tensor))


@pytest.mark.parametrize("kind", KINDS)
def test_copies_in_host_memory(gpu, local, kind):
    """What cannot be shared, and what nobody shares."""
    x = np.array([[3.0, np.nan], [1, 2]])
    here, there = Segment(256).array(x, kind), Segment(256, capable=False).array(x, kind)
    with pytest.raises(reduced.Error, match="can't share.*copy=True"):
        gpu.sum(there)
    for caller, array in ((gpu, there), (gpu, here), (local, here)):
        result = caller.reduce(array, "sum,max", nan="omit", copy=True)
        assert (result.sum, result.max) == (6, 3) and result.ran_on.engine == "cpu" and result.via != "region"
        assert caller.nan_count(array, copy=True) == 1 and caller.describe(array, copy=True).missing == 1
        assert caller.sum(array, 0, nan="omit", copy=True).tolist() == [4, 2]
        many = caller.reduce_many({"x": array, "y": x[0]}, "nan_count", copy=True)
        assert [each.nan_count for each in many.values()] == [1, 1]
        beside = {"where": Segment(64).array(~np.isnan(x), kind), "keys": Segment(64).array(np.array([1, 0], "i4"), kind)}
        assert caller.sum(array, copy=True, **beside).tolist() == [[1, 2], [3, 0]]
        assert caller.dot(array, Segment(64).array(np.ones((2, 2)), kind), nan="omit", copy=True) == 6
    assert gpu.sum(here, nan="omit", copy=False) == 6 and gpu.sum(x, nan="omit", copy=True) == 6
    with pytest.raises(TypeError, match="copy: got 'yes'"):
        gpu.sum(here, copy="yes")


def test_copies_of_coroutines(gpu_server):
    array = Segment(64, capable=False).array(np.arange(4.0), WithDlpack)

    async def ask():
        async with reduced.aio.connect(gpu_server.unix) as client:
            described = await client.describe(array, copy=True)
            return await client.sum(array, copy=True), await client.reduce_many([array], "sum", copy=True), described.max

    total, many, most = asyncio.run(ask())
    assert (total, many[0].sum, most) == (6, 6, 3)


def test_orders_of_memory(gpu):
    x = np.arange(24.0).reshape(2, 3, 4)
    for kind in KINDS[1:]:
        for view in (x.transpose(2, 0, 1), np.asfortranarray(x), x[:, ::2], x[..., 1], np.broadcast_to(x[0, 0], (3, 4)), x[::-1], x[:, ::-1, ::2]):
            segment = Segment(4096)
            base = view if view.base is None else x
            here = segment.bytes[: base.nbytes].view("f8")
            here[:] = base.ravel(order="K")
            strided = np.lib.stride_tricks.as_strided(here, view.shape, view.strides)
            offset = view.__array_interface__["data"][0] - base.__array_interface__["data"][0]
            if offset:
                strided = np.lib.stride_tricks.as_strided(here[offset // 8 :], view.shape, view.strides)
            assert np.array_equal(strided, view)
            array = kind(segment, strided)
            result = gpu.reduce(array, ["sum", "argmax", "argmin"])
            assert (result.sum, result.argmax, result.argmin) == (view.sum(), view.argmax(), view.argmin())
            assert gpu.sum(array) == view.sum()
    reversed_ = Segment(4096).array(x, WithInterface)[::-1, :, ::-1]
    assert gpu.sum(reversed_) == 276  # as it lies
    assert gpu.argmax(reversed_) == x[::-1, :, ::-1].argmax()


@pytest.mark.parametrize("kind", KINDS)
def test_strides(gpu, kind):
    """The server gathers the elements, in the memory of the GPU."""
    x = np.random.default_rng(6).normal(size=(30, 40)).astype("f4")
    array = kind(segment := Segment(8192), segment.array(x, WithInterface).host)
    for cut in (np.s_[:, ::2], np.s_[1::3], np.s_[:, 5], np.s_[4:, :7]):
        view, here = x[cut], array[cut]
        assert gpu.reduce(here, "max,argmax").argmax == view.argmax() and gpu.median(here) == np.median(view.astype("f8"))
        assert np.array_equal(gpu.max(here, axis=0), view.max(axis=0))
        with gpu.session(via="ring") as session:
            assert session.min(here) == view.min()
    given = {"columns": array[:, ::2], "whole": array, "row": array[3]}
    found = gpu.reduce_many(given, "max,count")
    assert [found[name].max for name in given] == [x[:, ::2].max(), x.max(), x[3].max()]
    assert gpu.max(array[:, ::2], where=kind(segment := Segment(8192), segment.array(np.repeat(x > 0, 2, axis=0), WithInterface).host)[::2, ::2]) == x[:, ::2].max()


def test_no_elements(gpu):
    for kind in KINDS:
        result = gpu.reduce(Segment(64).array(np.empty((0, 3), "f4"), kind), "sum,count")
        assert (result.sum, result.count) == (0, 0)


def test_regions_are_of_allocations_and_end_with_their_arrays(gpu):
    gc.collect()
    await_usage(gpu, regions=0)
    segment = Segment(4096)
    first, second = segment.array(np.ones(4), Tensor), segment.array(np.full(4, 2.0), Tensor, offset=64)
    for _ in range(3):
        assert gpu.sum(first) == 4 and gpu.sum(second[1:]) == 6
        await_usage(gpu, regions=1)
    del first
    gc.collect()
    assert gpu.sum(second.detach()) == 8  # what is gone at once keeps the storage's region
    await_usage(gpu, regions=1)
    del second
    await_nothing(gpu)
    segment = Segment(4096)
    whole = segment.array(np.ones((2, 4)), WithInterface)
    assert gpu.sum(whole[1]) == 4
    await_usage(gpu, regions=1)
    del whole
    gc.collect()
    await_usage(gpu, regions=0)


def test_small_tensors_in_a_loop_share_their_allocation_once(gpu):
    """Also if none of them lives as long as the next; a large one is not kept for that."""
    segment = Segment(4096)
    first = driver.fake_created()
    for i in range(20):
        assert gpu.sum(segment.array(np.full(4, float(i)), Tensor)) == 4 * i
    assert driver.fake_created() < first + 5  # once, but on a machine that stands still at times
    await_nothing(gpu)
    del segment
    large, first = Segment(4 << 20), driver.fake_created()
    for _ in range(3):
        assert gpu.sum(large.array(np.ones(4), Tensor)) == 4
        gc.collect()
    assert driver.fake_created() == first + 3


def test_memory_that_was_freed_and_allocated_again(gpu):
    """At the same address another allocation is another region, also of an array that still lives."""
    segment = Segment(4096)
    tensor = segment.array(np.ones(4), Tensor)
    assert gpu.sum(tensor) == 4
    driver.fake_reallocate(segment.address)
    assert gpu.sum(tensor) == 4
    await_usage(gpu, regions=1)
    for i in range(20):
        segment = Segment(4096)
        assert gpu.sum(segment.array(np.full(4, float(i)), Tensor)) == 4 * i
        gc.collect()
    del tensor
    gc.collect()
    await_usage(gpu, regions=0)


def test_clients_share_for_themselves(gpu_server, gpu):
    tensor = Segment(4096).array(np.ones(4), Tensor)
    with reduced.connect(gpu_server.unix) as other:
        assert gpu.sum(tensor) == other.sum(tensor) == 4
        await_usage(gpu, regions=2)
    await_usage(gpu, regions=1)
    with reduced.connect(gpu_server.unix) as other, other.session() as session:
        other.close()
        assert session.sum(tensor) == 4


def test_streams(gpu, torch):
    """An event says what the server waits for, if the stream has work. It is not recorded for another stream before that
    work is done."""
    tensor = Segment(4096).array(np.ones(4), Tensor)
    before = driver.fake_recorded()
    driver.fake_set_ready(0)
    for _ in range(3):
        gpu.sum(tensor)
    assert driver.fake_recorded() == before + 3
    waits = driver.fake_waits()
    torch.cuda_stream = 9
    gpu.sum(tensor)
    gpu.sum(tensor)
    assert driver.fake_waits() == waits + 1
    driver.fake_set_ready(1)
    torch.cuda_stream = 7
    recorded = driver.fake_recorded()
    gpu.sum(tensor)
    assert (driver.fake_waits(), driver.fake_recorded()) == (waits + 1, recorded)


def test_the_stream_of_older_versions_of_torch(gpu, monkeypatch):
    import_torch(monkeypatch, stream=3, private=False)
    assert gpu.sum(Segment(64).array(np.ones(4), Tensor)) == 4


def test_asyncio(gpu_server):
    array = Segment(4096).array(np.arange(6.0), WithDlpack)

    async def run():
        async with reduced.aio.connect(gpu_server.unix) as client:
            results = await asyncio.gather(client.sum(array), client.reduce(array, "argmax"), client.describe(array))
            return results[0], results[1].argmax, results[2].argmin

    assert asyncio.run(run()) == (15, 5, 0)


def test_asyncio_along_axes(gpu_server):
    x = np.arange(6.0).reshape(2, 3)
    array = Segment(4096).array(x, WithDlpack)
    keys, mask = Segment(64).array(np.array([4, 2], "i8"), Tensor), Segment(64).array(x > 1, WithInterface)

    async def run():
        async with reduced.aio.connect(gpu_server.unix) as client:
            flipped = await client.sum(array.T, axis=0)
            grouped = await client.reduce(array, "sum", keys=keys, where=mask)
            none = await client.sum(np.ones((0, 3)), where=Segment(64).array(np.ones((0, 3), "?"), WithDlpack), axis=0)
            assert none.tolist() == [0, 0, 0]
            return flipped.tolist(), grouped.sum.tolist(), grouped.group_keys.tolist()

    assert asyncio.run(run()) == (x.T.sum(axis=0).tolist(), [[3, 4, 5], [0, 0, 2]], [2, 4])


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_of_virtual_memory(gpu, kind):
    """As PyTorch's expandable segments: arrays that begin in the middle of a piece and span others."""
    await_nothing(gpu)
    segment = Pieces(5)
    x = np.arange(3 * Pieces.BYTES // 4, dtype="f4")
    array = segment.array(x, kind, offset=Pieces.BYTES // 2)
    result = gpu.reduce(array, ["sum", "argmax"])
    assert (result.sum, result.argmax, result.via, result.ran_on.device) == (x.sum(dtype="f8"), len(x) - 1, "region", "cuda:0")
    assert gpu.sum(array[100:20_000]) == x[100:20_000].sum(dtype="f8")
    with gpu.session(via="ring") as session:
        assert session.sum(array) == x.sum(dtype="f8")
    await_usage(gpu, regions=1)  # its views lie in its pieces
    assert driver.fake_handles() == 0 and driver.fake_contexts() == 1
    assert gpu.sum(array, where=Segment(x.size).array(x % 2 == 0, kind)) == x[::2].sum(dtype="f8")
    del array
    await_nothing(gpu)
    assert driver.fake_contexts() == 0


def test_pieces_that_are_freed_and_made_again(gpu):
    """At the same address others are another region, also where only the last piece is another."""
    segment = Pieces(3)
    tensor = segment.array(np.ones(3 * Pieces.BYTES // 8), Tensor)
    count = tensor.shape[0]
    for piece in (0, 2):
        assert gpu.sum(tensor) == count
        created = driver.fake_created()
        assert gpu.sum(tensor[5:]) == count - 5
        assert driver.fake_created() == created
        driver.fake_reallocate(segment.address + piece * Pieces.BYTES)
        assert gpu.sum(tensor) == count
        assert driver.fake_created() == created + 1
    del tensor
    await_nothing(gpu)


def test_a_view_shares_the_pieces_of_its_storage(gpu):
    await_nothing(gpu)
    segment = Pieces(300)  # in several packets
    tensor = segment.array(np.ones(300 * Pieces.BYTES // 8), Tensor)
    count = tensor.shape[0]
    step = count // 100
    for begin in reversed(range(0, count, step)):
        assert gpu.sum(tensor[begin : begin + step]) == min(step, count - begin)
    await_usage(gpu, regions=1)
    beyond = segment.array(np.ones(8), WithInterface, offset=300 * Pieces.BYTES - 64)
    beyond.shape = (9,)
    with pytest.raises(reduced.InvalidArgumentError, match="shape: got 72 bytes; allowed: the .* of the allocation"):
        gpu.sum(beyond)


def test_memory_that_cannot_be_shared(gpu):
    """As a stream-ordered pool's."""
    for kind in KINDS:
        with pytest.raises(reduced.InvalidArgumentError, match="CUDA can't share, such as a stream-ordered pool's"):
            gpu.sum(Segment(64, capable=False).array(np.ones(4), kind))
    with pytest.raises(reduced.InvalidArgumentError, match="array: got a pointer to other memory; allowed: memory of a CUDA device"):
        gpu.sum(WithInterface(None, np.ones(4)))
    short = Segment(64).array(np.ones(4), WithInterface)
    short.shape = (9,)
    with pytest.raises(reduced.InvalidArgumentError, match="shape: got 72 bytes; allowed: the 64 of the allocation"):
        gpu.sum(short)


def test_a_server_that_does_not_see_the_gpu(gpu, remote):
    tensor = Segment(64).array(np.ones(4), Tensor)
    with pytest.raises(reduced.FailedPreconditionError, match="of this process's cuda:0 .*device_uuid: got .*no CUDA engine"):
        remote.sum(tensor)
    driver.fake_set_uuid(ord("b"))
    try:
        with pytest.raises(reduced.FailedPreconditionError, match="cuda:0 .62206661.*: device_uuid: got 62206661.*; allowed: 61206661"):
            gpu.sum(tensor)
    finally:
        driver.fake_set_uuid(ord("a"))
    assert gpu.sum(tensor) == 4


def test_a_server_that_is_started_again(tmp_path):
    tensor, mask = Segment(4096).array(np.ones(4), Tensor), Segment(64).array(np.array([1, 1, 0, 1], "?"), Tensor)
    with reduced.connect(f"unix:{tmp_path}/socket", timeout=60) as client:
        for _ in range(3):
            ready = tmp_path / "ready"
            ready.unlink(missing_ok=True)
            server = subprocess.Popen([os.environ["REDUCED_FAKE_GPU"], f"--listen=unix:{tmp_path}/socket", f"--ready_file={ready}",
                                       "--metrics_listen="], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                while not ready.exists():
                    assert server.poll() is None
                for _ in range(2):
                    assert client.sum(tensor, where=mask) == 3
                    assert client.sum(np.ones(4), where=mask, engine="cuda") == 3
                    assert client.sum(tensor) == 4
            finally:
                server.kill()
                server.wait(60)


def test_threads(gpu):
    segment = Segment(1 << 16)
    tensors = [segment.array(np.full(8, float(i)), Tensor, offset=64 * i) for i in range(16)]

    def work(i):
        for _ in range(50):
            assert gpu.sum(tensors[i]) == 8 * i
            other = Segment(64).array(np.ones(4), Tensor)
            assert gpu.sum(other) == 4

    workers = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    await_usage(gpu, regions=1)


def test_fingerprints(gpu_server, remote, server):
    from reduced.torch import fingerprint
    x = {"a": np.arange(6, dtype="f4").reshape(2, 3), "b": np.ones(3), "c": np.empty((0, 2), "f4")}
    there = {name: Segment(256).array(each, Tensor) for name, each in x.items()}
    whole = fingerprint(x)
    recorded = driver.fake_recorded()
    driver.fake_set_ready(0)
    assert fingerprint(there) == whole and driver.fake_recorded() == recorded
    assert fingerprint(there, server=gpu_server.unix) == whole and driver.fake_recorded() == recorded + 2
    driver.fake_set_ready(1)
    assert fingerprint(there, server=server.unix) == whole  # copied: the server has no GPU


def test_a_model_takes_one_call(gpu_server, server, monkeypatch):
    from reduced.torch import fingerprint, gradient_norm, statistics
    random = np.random.default_rng(4)
    x = {f"{dtype} {size}": random.normal(size=size).astype(dtype) for dtype in ("f2", "f4", "f8") for size in (0, 1, 700, 9000)}
    x["steps"] = np.arange(5)
    there = {name: Segment(max(each.nbytes, 1)).array(each, Tensor) for name, each in x.items()}
    table, prints = repr(statistics(x)), fingerprint(x)

    def norm_of(tensors, address):
        return gradient_norm([types.SimpleNamespace(grad=each) for name, each in tensors.items() if name != "steps"], server=address)

    norm = norm_of(x, "local:")
    calls = []
    reduce_many = reduced.Client.reduce_many

    def counted(self, *args, **options):
        calls.append(args)
        return reduce_many(self, *args, **options)

    monkeypatch.setattr(reduced.Client, "reduce_many", counted)
    for tensors, address in ((there, gpu_server.unix), (x, gpu_server.unix), (x, server.unix)):
        del calls[:]
        assert repr(statistics(tensors, server=address)) == table and fingerprint(tensors, server=address) == prints
        assert norm_of(tensors, address) == norm and len(calls) == 3
    assert repr(statistics(there, server=server.unix)) == table  # copied: the server has no GPU


def test_nothing_is_left(gpu):
    def used():
        await_nothing(gpu)
        return len(os.listdir("/proc/self/fd"))

    def work(times):
        kept = Segment(4096).array(np.ones(4), Tensor)
        for _ in range(times):
            assert gpu.sum(kept.detach()) == 4
            gpu.sum(Segment(64).array(np.ones(4), WithDlpack))

    work(50)
    before = used()
    work(1000)
    assert used() <= before + 2


def test_a_process_without_a_driver():
    """And one whose fork has an array."""
    without = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    program = """
import reduced
class Array:
    shape = (1,)
    __cuda_array_interface__ = {"shape": (1,), "typestr": "<f4", "data": (4096, False), "version": 3}
try:
    reduced.connect("unix:/nowhere").sum(Array())
except reduced.FailedPreconditionError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", program], env=without, capture_output=True, text=True, timeout=60, check=True)
    assert "no CUDA driver" in run.stdout or "array: CUDA's" in run.stdout or "has no GPU" in run.stdout


def test_the_end_of_a_process_that_has_arrays(gpu_server):
    program = f"""
import numpy as np, reduced
from fake_gpu import Segment, WithDlpack
client = reduced.connect({gpu_server.unix!r})
array = Segment(64).array(np.ones(4), WithDlpack)
print(client.sum(array))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True,
                         env=os.environ | {"PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], *sys.path])})
    assert (run.stdout, run.stderr) == ("4.0\n", "")


def test_forks(gpu):
    tensor = Segment(4096).array(np.ones(4), Tensor)
    assert gpu.sum(tensor) == 4
    child = os.fork()
    if child == 0:
        status = 1
        try:
            gpu.sum(tensor)
        except reduced.FailedPreconditionError:
            del tensor
            gc.collect()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert gpu.sum(tensor) == 4

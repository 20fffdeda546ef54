"""Arrays with strides and of the other byte order: described where they lie, in shared memory, messages, rings and streams, and not copied."""

import itertools
import tracemalloc

import numpy as np
import pytest
import reduced
from reduced import _core

OPS = "sum,mean,std,min,max,argmin,argmax,count,fingerprint"


def lying(elements, memory, random):
    """Those elements in `memory`, bytes of it, with strides, dimensions in some order, reversed or not, in some byte order."""
    order = random.permutation(elements.ndim)
    steps = random.integers(1, 4, elements.ndim)
    shape = [int(elements.shape[dim] * steps[dim]) for dim in order]
    dtype = elements.dtype.newbyteorder(random.choice(["<", ">"]))
    begin = int(random.integers(0, 9))
    room = memory[begin : begin + int(np.prod(shape)) * dtype.itemsize].view(dtype).reshape(shape)
    view = room[*(slice(None, None, int(steps[dim]) * int(random.choice([-1, 1]))) for dim in order), ...]
    view = view.transpose(np.argsort(order))
    view = view[*(slice(size) for size in elements.shape), ...]
    view[...] = elements
    return view


def same(found, right):
    assert list(found) == list(right)
    for op in right:
        assert np.array_equal(found[op], right[op], equal_nan=True), op


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8"])
def test_random_layouts_on_every_client(client, local, dtype):
    random = np.random.default_rng(8)
    for shape in [(), (1,), (50,), (7, 9), (4, 5, 6), (2, 1, 3, 4), (700, 600)]:
        for shared in (False, True):
            elements = np.asarray(random.normal(size=shape) if dtype[0] == "f" else random.integers(0, 100, shape)).astype(dtype)
            nbytes = 3 ** len(shape) * elements.nbytes + 64
            memory = reduced.empty(nbytes, "u1") if shared else np.empty(nbytes, "u1")
            view = lying(elements, memory, random)
            assert np.array_equal(view, elements)
            same(client.reduce(view, OPS), local.reduce(elements, OPS))
            for axis in range(len(shape)):
                same(client.reduce(view, "sum,max,argmin,median", axis=axis), local.reduce(elements, "sum,max,argmin,median", axis=axis))
            mask = random.random(shape) < 0.7
            same(client.reduce(view, "sum,count,max", where=mask, empty="fill"), local.reduce(elements, "sum,count,max", where=mask, empty="fill"))
            if shape:
                keys = random.integers(0, 3, shape[0])
                same(client.reduce(view, "sum", keys=keys), local.reduce(elements, "sum", keys=keys))
            same(client.reduce(view, "median,topk(1),distinct"), local.reduce(elements, "median,topk(1),distinct"))


def test_by_every_way(remote):
    elements = np.random.default_rng(3).normal(size=(1000, 900))
    shared = reduced.empty((2000, 900))
    for view in (shared[::2], shared[::-2], shared.reshape(1000, 1800)[:, ::2], shared.reshape(1000, 1800)[:, 900:],
                 shared.view(">f8")[1000:], np.lib.stride_tricks.as_strided(shared, (1000, 900), (8, 8000))):
        view[...] = elements
        right = {"sum": elements.sum(), "max": elements.max(), "argmax": int(elements.argmax())}
        for options in ({}, {"via": "region"}, {"via": "inline"}, {"via": "stream"}):
            found = remote.reduce(view, list(right), **options)
            assert found.via == options.get("via", "region")
            assert found.max == right["max"] and found.argmax == right["argmax"] and found.sum == pytest.approx(right["sum"])
        rows = remote.reduce(view, "max,argmax", axis=1)
        assert np.array_equal(rows.max, elements.max(axis=1)) and np.array_equal(rows.argmax, elements.argmax(axis=1))
        with remote.put(view) as there:
            assert np.array_equal(there.get(), elements)
    own = elements[:, ::2]
    for via in ("inline", "stream"):
        assert remote.reduce(own, "max", via=via).max == own.max()
    with pytest.raises(reduced.InvalidArgumentError, match="via: got region for an array in other memory"):
        remote.reduce(own, "max", via="region")


def test_small_arrays_of_shared_memory_stay_there(remote):
    shared = reduced.empty((6, 4), "i4")
    shared[:] = np.arange(24).reshape(6, 4)
    for view in (shared[:, 1], shared[::-1, ::2], shared.T[1:3], shared.view(">i4")[1:3], np.broadcast_to(shared[2:3, 3], (5, 5))):
        found = remote.reduce(view, "sum,argmax,count", via="region")
        assert (found.via, found.sum, found.argmax, found.count) == ("region", view.sum(), view.argmax(), view.size)
    assert remote.reduce(shared[:0, ::2], "count").count == 0
    assert remote.reduce(shared.view(">i4")[2, 1, ...], "sum", via="region").sum == int(shared.view(">i4")[2, 1, ...])


def test_many(remote, local):
    shared = reduced.empty((400, 4))
    shared[:] = np.random.default_rng(1).normal(size=(400, 4))
    large = np.random.default_rng(2).normal(size=(600_000, 2))
    arrays = {"columns": shared[:, ::2], "swapped": shared.view(">f8"), "rows": shared[::3], "large": large[:, 0], "dense": shared, "backwards": large[::-1]}
    for client in (remote, local):
        for name, found in client.reduce_many(arrays, "max,count").items():
            plain = np.ascontiguousarray(arrays[name])
            assert np.array_equal(found.max, plain.max(), equal_nan=True) and found.count == plain.size, name


def test_missing_elements_and_pairs(client, local):
    random = np.random.default_rng(4)
    wide = np.ma.masked_less(random.normal(size=(800, 1000)), -1)[:, ::2]
    same(client.reduce(wide, "sum,count"), local.reduce(np.ma.array(wide.data.copy(), mask=wide.mask.copy()), "sum,count"))
    x, y = random.normal(size=(2, 800, 1000))[..., ::2]
    assert client.dot(x, y) == local.dot(x.copy(), y.copy())


def test_nothing_is_copied(client):
    shared = reduced.empty((2000, 1000))
    shared[:] = 1
    given = [shared[:, ::2], shared[::2], shared.view("u8").view(">f8")]
    if not isinstance(client, reduced.Session):  # in messages arrays are copied by the library, as dense ones are
        given += [np.ones((2000, 1000))[:, ::2], np.ones((1000, 1000)).astype(">f8")]
    for view in given:
        client.sum(view)
        tracemalloc.start()
        client.sum(view)
        client.max(view, axis=0)
        client.median(view)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < view.nbytes / 8


def test_memory_lives_as_long_as_the_call(local):
    def total():
        return local.sum(np.ones((1000, 1000))[:, ::2])

    assert [total() for _ in range(20)] == [500_000] * 20


def test_what_the_module_refuses():
    array = np.ones(4)
    for shape, strides in [((2,), ()), ((), (8,)), ((1,) * 65, (8,) * 65), ((0,), (8,)), ((3,), (1 << 62,))]:
        with pytest.raises(ValueError, match="strides: got"):
            _core.Strided(array, array.ctypes.data, 8, shape, strides, False)


def test_bfloat16_and_floats_of_8_bits(remote, local):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e5m2):
        shared = reduced.empty((30, 20), dtype)
        shared[...] = np.arange(600).reshape(30, 20) % 7
        for client, view in itertools.product((remote, local), (shared[:, ::2], shared[::-1, 3])):
            assert client.sum(view) == view.astype("f8").sum() and client.reduce(view, "max").max == 6
        assert remote.reduce(shared[:, ::2], "sum").via == "region"

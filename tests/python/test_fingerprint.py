"""Fingerprints: against Python's integers, in every partition, of parts of any shape, and by every client."""

import asyncio
import itertools

import dask.array
import ml_dtypes
import numpy as np
import pytest
import reduced
import reduced.aio
import reduced.dask

P = 2**61 - 1
BASES = (0x0D413CCCFE779921, 0x176CF5D0B09954E7)  # the first 61 bits of the roots of 2 and 3 after the point
DTYPES = ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", ml_dtypes.bfloat16]


def right(array, positions=None):
    """As the proto defines it. `positions`: of the elements; by default their numbers in C order."""
    array = np.ascontiguousarray(array)
    size = array.dtype.itemsize
    words = array.reshape(-1).view({1: "u1", 2: "u2", 4: "u4", 8: "u4"}[size]).tolist()
    each = 2 if size == 8 else 1
    positions = range(array.size) if positions is None else positions
    places = [int(position) * each + half for position in positions for half in range(each)]
    assert len(places) == len(words)
    return "".join(f"{(size + a * sum((word + 1) * pow(a, place, P) for place, word in zip(places, words))) % P:016x}" for a in BASES)


def bits(random, dtype, shape):
    """Elements of any bits, NaNs with payloads among them."""
    dtype = np.dtype(dtype)
    if dtype == bool:
        return random.random(shape) < 0.5
    return random.integers(0, 256, (*shape, dtype.itemsize), np.uint8).view(dtype).reshape(shape)


def of_state(states):
    return reduced.fingerprint_text(reduced.State.merge(states).results.fingerprint)


@pytest.mark.parametrize("dtype", DTYPES)
def test_by_every_client(client, dtype):
    random = np.random.default_rng(1)
    for shape in [(0,), (), (1,), (3, 0, 2), (2, 3, 4), (15,), (16,), (17,), (4099,)]:
        x = bits(random, dtype, shape)
        assert client.fingerprint(x) == right(x)
        assert client.fingerprint(np.asfortranarray(x)) == right(x)
        if x.size > 1:
            assert client.fingerprint(x.T) == right(x.T) and client.fingerprint(x[::-1]) == right(x[::-1])
    x = bits(random, dtype, (6, 5))
    assert client.fingerprint(x, nan="omit") == right(x)  # bits have no policy
    assert client.fingerprint(x, axis=1).tolist() == [right(row) for row in x]
    assert client.fingerprint(x, axis=0, keepdims=True).tolist() == [[right(column) for column in x.T]]
    assert client.fingerprint(x, axis=()).tolist() == [[right(each) for each in row] for row in x]
    assert client.fingerprint(x, segments=np.array([0, 2, 2, 6])).tolist() == [[right(part) for part in x[a:b].T] for a, b in [(0, 2), (2, 2), (2, 6)]]
    keys = np.array([1, 0, 1, 1, 0, 3])
    rows = [np.flatnonzero(keys == group) for group in range(4)]
    assert client.fingerprint(x, keys=keys, groups=4).tolist() == [[right(column[at], at) for column in x.T] for at in rows]
    assert client.fingerprint(x[:, 0], keys=keys, groups=4).tolist() == [right(x[at, 0], at) for at in rows]
    where = random.random(x.shape) < 0.6
    assert client.fingerprint(x, where=where) == right(x[where], np.flatnonzero(where))
    assert client.fingerprint(x, where=where, axis=1).tolist() == [right(row[there], np.flatnonzero(there)) for row, there in zip(x, where)]
    assert (client.fingerprint(x, where=where, keys=keys, groups=4).tolist()
            == [[right(column[at][there[at]], at[there[at]]) for column, there in zip(x.T, where.T)] for at in rows])


def test_large_arrays(client):
    random = np.random.default_rng(2)
    x = bits(random, "f4", (300_000,))
    where = random.random(x.shape) < 0.5
    keys = np.arange(len(x)) // 7 % 3
    assert client.fingerprint(x) == right(x)
    assert client.fingerprint(x, where=where) == right(x[where], np.flatnonzero(where))
    got = client.fingerprint(x[:30_000], keys=keys[:30_000], groups=3).tolist()
    assert got == [right(x[:30_000][keys[:30_000] == group], np.flatnonzero(keys[:30_000] == group)) for group in range(3)]


def test_every_change_counts(local):
    x = np.array([0.0, 1.0, 2.0, 0.0], "f4")
    others = [x[[1, 0, 2, 3]], np.append(x, np.float32(0)), x[:3], x.astype("f8"), -x, x.view("i2"), np.nextafter(x, np.float32(9)),
              np.zeros(4, "f4"), np.zeros(5, "f4"), np.zeros(0, "f4")]
    texts = [local.fingerprint(each) for each in [x, *others]]
    assert len(set(texts)) == len(texts)
    assert local.fingerprint(x.view("i4")) == local.fingerprint(x) == local.fingerprint(x.reshape(2, 2))
    nan = np.array([0x7FC00000, 0x7FC00001, 0xFFC00000], "u4").view("f4")
    assert len({local.fingerprint(nan[[i]]) for i in range(3)}) == 3
    # What is left out is not there, and what is zero is.
    assert local.fingerprint(np.array([0, 5]), where=[True, False]) != local.fingerprint(np.array([5, 0]), where=[False, True])


def cuts(size, parts):
    edges = [size * i // parts for i in range(parts + 1)]
    return list(itertools.pairwise(edges))


@pytest.mark.parametrize("ranks", range(1, 8))
def test_parts_of_a_tensor(local, remote, ranks):
    """Every way to cut a 3-d tensor over ranks along one dimension or two."""
    random = np.random.default_rng(ranks)
    for number, dtype in enumerate(["u1", ml_dtypes.bfloat16, "f4", "f8"]):
        client = (local, remote)[number % 2]
        x = bits(random, dtype, (5, 7, 6))
        whole = right(x)
        for along in [*itertools.combinations(range(3), 1), *itertools.combinations(range(3), 2)]:
            ends = [cuts(size, ranks if axis in along else 1) for axis, size in enumerate(x.shape)]
            states = []
            for begins in itertools.product(*ends):
                block = x[tuple(slice(*each) for each in begins)]
                op = f"fingerprint(shape=5,7,6;offset={','.join(str(begin) for begin, _ in begins)})"
                states.append(client.reduce(block, op, state=True).state)
            random.shuffle(states)
            assert of_state(states) == whole
            if along == (0,):  # consecutive parts need not know where they are
                assert of_state([client.reduce(x[slice(*each)], "fingerprint", state=True).state for each in ends[0]]) == whole
    shard = x[1:3, 2:5]
    flat = np.arange(x.size).reshape(x.shape)[1:3, 2:5].reshape(-1)
    assert local.fingerprint(shard, shape=(5, 7, 6), offset=(1, 2, 0)) == right(shard, flat)
    where = random.random(shard.shape) < 0.5
    assert remote.fingerprint(shard, shape=(5, 7, 6), offset=(1, 2, 0), where=where) == right(shard[where], flat[where.reshape(-1)])
    # A part twice in the place of another is seen, zeros too.
    zeros = np.zeros((2, 3), "f4")
    twice = [local.reduce(zeros, "fingerprint(shape=4,3)", state=True).state] * 2
    assert of_state(twice) != local.fingerprint(np.zeros((4, 3), "f4"))


def test_rows_cannot_interleave(local):
    left, right_half = (local.reduce(np.ones((2, 2)), "fingerprint", state=True).state for _ in range(2))
    with pytest.raises(reduced.InvalidArgumentError, match="rows: got several with op fingerprint; allowed: 1, or fingerprint with the shape"):
        reduced.State.merge([left, right_half], rows=2)
    with pytest.raises(reduced.InvalidArgumentError, match="ops: got another than the first state has"):
        reduced.State.merge([left, local.reduce(np.ones((2, 2)), "fingerprint(shape=4,2)", state=True).state])


def test_dask():
    x = bits(np.random.default_rng(4), "f4", (20, 30))
    for chunks in [(20, 30), (7, 30), (20, 11), (7, 11)]:
        blocks = dask.array.from_array(x, chunks=chunks)
        found = reduced.dask.reduce(blocks, ["fingerprint", "argmax"]).compute()
        assert reduced.fingerprint_text(found["fingerprint"]) == right(x)
        if chunks[0] == 20:
            found = reduced.dask.reduce(blocks, "fingerprint", axis=0).compute()
            assert reduced.fingerprint_text(found["fingerprint"]).tolist() == [right(column) for column in x.T]
    with pytest.raises(ValueError, match="fingerprint: got an array that is cut along several of the dimensions that are reduced, with"):
        reduced.dask.reduce(blocks, "fingerprint", where=x > 0)


def test_what_is_refused(client):
    x = np.ones((2, 3))
    for options, message in [
        ({"shape": (4,)}, r"fingerprint.shape: got \[4\] for an array of shape \[2, 3\]; allowed: as many dimensions"),
        ({"shape": (4, 3), "offset": (3, 0)}, r"fingerprint.offset\[0\]: got 3 with a part of 2; allowed: a part within the 4 of shape"),
        ({"shape": (4, 3), "offset": (1,)}, r"fingerprint.offset: got 1 numbers; allowed: none, or 2, as shape has"),
        ({"shape": (4, 3), "offset": (5, 0)}, r"fingerprint.offset\[0\]: got 5; allowed: 0 to 4"),
        ({"shape": (4, 3), "offset": (-1, 0)}, r"fingerprint.offset\[0\]: got -1; allowed: 0 to 4"),
        ({"shape": (-4, 3)}, r"fingerprint.shape\[0\]: got -4; allowed: 0 and more"),
        ({"shape": (2**40, 2**40)}, r"fingerprint.shape\[1\]: got 1099511627776; allowed: 0 and more, with a product of at most"),
        ({"shape": (2, 3), "axis": 0}, "fingerprint.shape: got it with axes; allowed: with where, and with one output"),
        ({"shape": (2, 3), "keys": np.array([0, 1])}, "fingerprint.shape: got it with keys; allowed"),
    ]:
        with pytest.raises(reduced.InvalidArgumentError, match=message):
            client.fingerprint(x, **options)
    with pytest.raises(ValueError, match="offset: got it without shape"):
        client.fingerprint(x, offset=(0, 0))
    for op in ("fingerprint(3)", "fingerprint(shape=a)", "fingerprint(size=3)"):
        with pytest.raises(reduced.InvalidArgumentError, match="fingerprint"):
            client.reduce(x, op)


def test_awaited(server):
    async def ask():
        async with reduced.aio.connect(server.unix) as client:
            return await client.fingerprint(np.arange(7))

    assert asyncio.run(ask()) == right(np.arange(7))


def test_kept(remote):
    x = np.arange(6, dtype="f4").reshape(2, 3)
    with remote.fingerprint(x, axis=1, keep=True) as kept:
        assert reduced.fingerprint_text(kept.get()).tolist() == [right(row) for row in x]
    with remote.put(x) as resident:
        assert remote.fingerprint(resident) == right(x)

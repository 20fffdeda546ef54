"""reduce_many: the results are those of each array alone, whatever it is, and an error has the array's name."""

import asyncio
import os
import subprocess

import ml_dtypes
import numpy as np
import pytest
import reduced
import reduced.aio

DTYPES = ["bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", ml_dtypes.bfloat16]


def arrays():
    random = np.random.default_rng(3)
    return {f"{np.dtype(dtype).name} {size}": (random.normal(size=size) * 9).astype("i1").astype(dtype)
            for dtype in DTYPES for size in (0, 1, 1000, 300_000)}


def shown(result):
    return [(op, np.asarray(result[op]).tobytes()) for op in result], sorted(result.errors), result.size


@pytest.mark.parametrize("ops", ["sum,max,argmin,mean,std,l2,count", "fingerprint,topk(3),count,median"])
def test_as_each_alone(client, ops):
    given = arrays()
    given["strided"] = np.arange(12.0).reshape(3, 4)[:, ::2]
    given["Fortran"] = np.asfortranarray(np.arange(12, dtype="f4").reshape(3, 4))
    given["large and strided"] = np.arange(2_000_000.0)[::-1]
    given["big endian"] = np.arange(5, dtype=">f8")
    given["a list"] = [1, 5, 2]
    given["shared"] = reduced.empty(70_000, "f4")
    many = client.reduce_many(given, ops)
    assert list(many) == list(given)
    for name, array in given.items():
        assert shown(many[name]) == shown(client.reduce(array, ops)), name
        assert repr(many[name]).splitlines()[:-1] == repr(client.reduce(array, ops)).splitlines()[:-1]
    as_list = client.reduce_many(list(given.values()), ops)
    assert [shown(each) for each in as_list] == [shown(each) for each in many.values()]


def test_options_are_common(client):
    x = {"a": np.array([[1.0, np.nan], [3.0, 4.0]]), "b": np.array([[np.nan, 2], [5, 6]], "f4")}
    assert {name: each.sum for name, each in client.reduce_many(x, "sum", nan="omit").items()} == {"a": 8.0, "b": 13.0}
    along = client.reduce_many(x, "max", axis=0, nan="omit")
    assert along["a"].max.tolist() == [3, 4] and along["b"].max.tolist() == [5, 6]
    states = client.reduce_many(x, "l2", state=True, results=False, nan="omit")
    assert states["a"].state == client.reduce(x["a"], "l2", state=True, results=False, nan="omit").state
    assert client.reduce_many(tuple(x.values()), ["count"])[1]["count"] == 4


def test_what_goes_by_itself(client):
    masked = np.ma.MaskedArray([1.0, 2.0, 4.0], [False, True, False])
    times = np.array(["2024-01-01", "2024-03-01"], "M8[D]")
    many = client.reduce_many({"masked": masked, "times": times, "plain": np.ones(3)}, "max,count")
    assert many["masked"]["count"] == 2 and many["masked"].max == 4
    assert many["times"].max == np.datetime64("2024-03-01") and many["plain"]["count"] == 3


def test_resident_arrays(remote, local):
    for client in (remote, local):
        with client.put(np.arange(10)) as a, client.put(np.ones(3, "f4")) as b:
            many = client.reduce_many({"a": a, "here": np.arange(4), "b": b}, "sum")
            assert [int(each.sum) for each in many.values()] == [45, 6, 3]
        with pytest.raises(ValueError, match="array: got one that is closed") as closed:
            client.reduce_many({"here": np.arange(4), "gone": a}, "sum")
        assert closed.value.__notes__ == ["of gone"]


def test_a_resident_array_that_is_gone(server):
    with reduced.connect(server.unix) as client, client.put(np.arange(10), owner="o") as a:
        subprocess.run([os.environ["REDUCECTL"], "--server", server.unix, "arrays", "delete", a.id, "--owner", "o"], check=True)
        with pytest.raises(reduced.NotFoundError, match=r"^operands\[2\]\.array_id: got") as gone:
            client.reduce_many({"masked": np.ma.MaskedArray([1.0], [True]), "here": np.ones(2), "there": a}, "sum")
        assert gone.value.__notes__ == ["of there"]


def test_errors(client):
    ones = np.ones(3)
    with pytest.raises(reduced.InvalidArgumentError, match="arrays: got none; allowed: 1 or more"):
        client.reduce_many({}, "sum")
    with pytest.raises(TypeError, match="arrays: got ndarray; allowed: a mapping of names to arrays, or a sequence of them"):
        client.reduce_many(ones, "sum")
    with pytest.raises(TypeError, match="dtype: got complex128") as wrong:
        client.reduce_many({"a": ones, "b": np.ones(2, complex)}, "sum")
    assert wrong.value.__notes__ == ["of b"]
    with pytest.raises(reduced.InvalidArgumentError, match='op: got "some"'):
        client.reduce_many([ones], "some")
    with pytest.raises(reduced.InvalidArgumentError, match=r"^operands\[1\]: op bit_and: got dtype f64") as wrong:
        client.reduce_many({"a": np.arange(2), "b": ones}, "bit_and")
    assert wrong.value.__notes__ == ["of b"]
    with pytest.raises(TypeError, match="nan"):
        client.reduce_many([ones], "sum", nan=1)
    # An op without an answer.
    large = np.full(4, 2**62)
    many = client.reduce_many([large, np.arange(3)], "sum,max")
    assert many[0].max == 2**62 and many[1].sum == 3
    with pytest.raises(reduced.OutOfRangeError, match="integer overflow"):
        many[0].sum
    with pytest.raises(reduced.OutOfRangeError, match=r"^operands\[0\]: integer overflow"):
        client.reduce_many([large, np.arange(3)], "sum")


def test_many_small_arrays(client):
    x = [np.full(1 + i % 50, i, "f4") for i in range(3000)]
    many = client.reduce_many(x, "max,sum")
    assert [float(each.max) for each in many] == list(range(3000))
    assert [float(each.sum) for each in many] == [i * (1 + i % 50) for i in range(3000)]


@pytest.mark.parametrize("via", ["session", "ring"])
def test_requests_of_a_session(remote, via):
    with remote.session(via=via) as session, remote.put(np.arange(10)) as array:
        small = session.reduce_many({"resident": array, "inline": np.ones(3), "shared": reduced.empty(0, "f4")}, "sum,count")
        assert {name: each.via for name, each in small.items()} == dict.fromkeys(small, via)
        assert int(small["resident"].sum) == 45 and small["inline"]["count"] == 3
        # What is larger than a message, or a ring, goes as a client sends it.
        large = np.ones(20_000_000)
        many = session.reduce_many([large, array, np.asfortranarray(np.ones((3, 4)))], "sum")
        assert [float(each.sum) for each in many] == [20_000_000, 45, 12]
        assert [each.via for each in many] == ["stream", via, via]
        with pytest.raises(reduced.NotFoundError, match=r"^operands\[1\]\.array_id: got"):
            with remote.put(np.ones(2)) as gone:
                subprocess.run([os.environ["REDUCECTL"], "--server", remote.server, "arrays", "delete", gone.id], check=True)
                session.reduce_many([array, gone], "sum")
    with pytest.raises(reduced.Error, match="closed"):
        session.reduce_many([np.ones(2)], "sum")


def test_aio_session(server):
    async def main():
        async with reduced.aio.connect(server.unix) as client, await client.session(via="ring") as session:
            return await asyncio.gather(*(session.reduce_many({"a": np.arange(i), "b": [1.5]}, "sum,count") for i in range(8)))

    for i, many in enumerate(asyncio.run(main())):
        assert many["a"].sum == sum(range(i)) and many["b"]["count"] == 1 and many["b"].via == "ring"


@pytest.mark.parametrize("address", ["local:", "unix"])
def test_aio(server, address):
    async def main():
        async with reduced.aio.connect(server.unix if address == "unix" else address) as client:
            many = await client.reduce_many({"a": np.arange(5), "b": [1.5]}, "sum,max")
            both = await client.reduce_many([np.arange(5), np.ones(2)], "sum")
            with pytest.raises(reduced.InvalidArgumentError, match="arrays: got none"):
                await client.reduce_many([], "sum")
            return many, both

    many, both = asyncio.run(main())
    assert many["a"].max == 4 and many["b"].sum == 1.5 and [float(each.sum) for each in both] == [10, 2]

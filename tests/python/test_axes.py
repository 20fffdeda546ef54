"""Reductions along axes, with every kind of client that has them, against NumPy and against reductions of the slices."""

import pickle

import blocks
import numpy as np
import pytest
import reduced


@pytest.fixture(scope="module", params=["unix", "local"])
def client(request, server):
    with reduced.connect(server.unix if request.param == "unix" else "local:", timeout=60) as connected:
        yield connected


SHAPES = [((4, 5, 6), 0), ((4, 5, 6), 1), ((4, 5, 6), -1), ((4, 5, 6), (0, 2)), ((4, 5, 6), (2, 0)), ((7,), 0), ((3, 1, 2), 1),
          ((70, 40), 0), ((70, 40), 1), ((0, 3), 0), ((3, 0), 0)]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
def test_sums_as_numpy(client, shape, axis, keepdims):
    array = np.random.default_rng(1).integers(-1000, 1000, shape)
    result = client.reduce(array, "sum,count", axis=axis, keepdims=keepdims)
    assert isinstance(result, reduced.ArrayResult)
    right = array.sum(axis=axis, keepdims=keepdims)
    assert result.sum.dtype == np.int64 and result.sum.shape == right.shape and np.array_equal(result.sum, right)
    assert np.all(result.count == (array.size // right.size if right.size else 0))
    assert np.array_equal(client.sum(array, axis=axis, keepdims=keepdims), right)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "u1", "?"])
def test_each_output_is_that_of_its_slice(client, dtype):
    array = (np.random.default_rng(2).normal(size=(12, 9)) * 50).astype(dtype)
    ops = "sum,mean,std,min,max,argmin,argmax,any,l2".split(",")
    columns = client.reduce(array, ops, axis=0, ddof=1)
    rows = client.reduce(array, ops, axis=-1, ddof=1)
    for op in ops:
        for i in range(9):
            assert columns[op][i].tobytes() == np.asarray(client.reduce(array[:, i], op, ddof=1)[op]).tobytes(), (op, i)
        assert rows[op].tobytes() == np.array([client.reduce(row, op, ddof=1)[op] for row in array], rows[op].dtype).tobytes()


def test_layouts_and_sources(client):
    array = np.asfortranarray(np.random.default_rng(3).normal(size=(30, 20)))
    assert np.array_equal(client.argmax(array, axis=1), array.argmax(axis=1))
    assert np.array_equal(client.max(array[::-1, ::2], axis=0), array[::-1, ::2].max(axis=0))
    with client.put(array) as resident:
        assert np.array_equal(client.min(resident, axis=0), array.min(axis=0))
        assert client.min(resident, keepdims=True).shape == (1, 1)
    shared = reduced.empty((30, 20))
    shared[:] = array
    assert np.array_equal(client.max(shared, axis=0), array.max(axis=0))


def test_scalars_and_all_axes(client):
    assert client.sum(np.float64(3), keepdims=True).shape == ()
    assert client.sum(np.ones((2, 3)), axis=(0, 1)).shape == ()
    assert client.sum(np.ones((2, 3)), axis=None) == 6
    assert np.array_equal(client.sum(np.ones((2, 3), "i4"), axis=()), np.ones((2, 3)))


def test_outputs_without_elements(client):
    nothing = np.ones((3, 0), "f4")
    with pytest.raises(reduced.InvalidArgumentError, match="op min"):
        client.min(nothing, axis=1)
    assert np.isnan(client.min(nothing, axis=1, empty="fill")).all()
    assert np.array_equal(client.argmin(nothing, axis=1, empty="fill"), [-1, -1, -1])


def test_wrong_axes(client):
    with pytest.raises(reduced.InvalidArgumentError, match=r"^axis\[0\]: got 2; allowed: -2 to 1"):
        client.sum(np.ones((2, 2)), axis=2)
    for axis in ("x", 1.5, (0, "x")):
        with pytest.raises(TypeError, match=r"^axis: got .*; allowed: whole numbers, tuples of them, or None$"):
            client.sum(np.ones((2, 2)), axis=axis)
    with pytest.raises(ValueError, match="^axis: got .*; allowed: whole numbers of 32 bits$"):
        client.sum(np.ones((2, 2)), axis=(0, 2**40))
    with pytest.raises(reduced.InvalidArgumentError, match="state: got true with segments"):
        client.reduce(np.ones(3), "sum", segments=np.array([0, 2]), state=True)
    with pytest.raises(ValueError, match="empty: got 'fill' alone; allowed: with axis"):
        client.sum(np.ones((2, 2)), empty="fill")


def test_results_are_arrays_of_their_own(client):
    result = client.reduce(np.ones((2, 3)), "sum,mean", axis=0)
    result.sum[0] = 7
    assert result["sum"][0] == 7 and result.mean[0] == 1
    again = pickle.loads(pickle.dumps(result))
    assert type(again) is type(result) and np.array_equal(again.sum, result.sum) and again.ran_on == result.ran_on
    assert "sum\n" in repr(result) and result.size == 6


@pytest.mark.parametrize("via", ["session", "ring"])
def test_sessions_have_the_same_answers(remote, via):
    random = np.random.default_rng(11)
    with remote.session(via=via) as session:
        for _ in range(150):
            array, options = blocks.question_of(random)
            ops = [str(op) for op in random.choice(blocks.OPS, random.integers(1, 7), replace=False)]
            mine, right = (blocks.answer(lambda to=to: to.reduce(array, ops, **options)) for to in (session, remote))
            if isinstance(right, reduced.Error):
                assert (type(mine), str(mine)) == (type(right), str(right))
                continue
            blocks.assert_same(mine, right)
            assert mine.via == via
            assert {op: str(error) for op, error in mine.errors.items()} == {op: str(error) for op, error in right.errors.items()}


@pytest.mark.parametrize("via", ["session", "ring"])
def test_large_answers_of_sessions(remote, via):
    """What has no room in the ring goes in messages, whatever takes the room: the elements, what lies beside them, or the answer."""
    rows = np.arange(12.0).reshape(3, 4)
    with remote.session(via=via) as session, remote.put(rows) as there:
        for array, options in ((np.ones((1000, 1000), "i1"), {"axis": 1}), (np.ones(200_000, "i1"), {"where": np.arange(200_000) % 3 == 0}),
                               (np.ones((600_000, 2), "i1"), {"axis": 1}), (np.ones(10), {"keys": np.arange(10) * 0, "groups": 1_000_000}),
                               (np.ones(100_000), {"keys": np.arange(100_000) % 7}), (there, {"axis": 0}), (there, {"where": rows > 3})):
            mine, right = session.reduce(array, "sum,max,median", empty="fill", **options), remote.reduce(array, "sum,max,median", empty="fill",
                                                                                                    **options)
            blocks.assert_same(mine, right)
        assert session.sum(rows, axis=0).tolist() == [12, 15, 18, 21]
        with session.reduce(rows, "sum", axis=0, keep=True).sum as kept:
            assert kept.get().tolist() == [12, 15, 18, 21] and session.max(kept) == 21
            state = session.reduce(rows, "median", state=True, results=False).state
        assert reduced.State.merge([state]).brackets["median"][0] <= 5.5


def test_results_that_are_kept_feed_the_next_reduction(client):
    array = np.arange(24, dtype="f4").reshape(2, 3, 4)

    def stored():
        return client.info()["devices"][0].get("array_bytes", 0)

    before = stored()
    result = client.reduce(array, "sum,argmax", axis=1, keep=True)
    assert isinstance(result.sum, reduced.ResidentArray) and (result.sum.dtype, result.sum.shape) == (np.float64, (2, 4))
    assert result.argmax.dtype == np.uint64 and "ResidentArray(float64 (2, 4), cpu)" in repr(result)
    assert np.array_equal(result.sum.get(), array.sum(axis=1)) and result.argmax.get(timeout=50).tolist() == [[2] * 4] * 2
    assert np.array_equal(client.max(result.sum, axis=-1), array.sum(axis=1).max(axis=-1))
    with client.sum(array, where=array > 3, keep=True) as total:
        assert total.shape == () and total.get() == array[array > 3].sum()
    with pytest.raises(ValueError, match="array: got one that is closed; allowed: an open one"):
        total.get()
    assert stored() - before == (0 if client.server == "local:" else 2 * 8 * 8)
    del result
    assert stored() == before
    with client.put(array) as there, pytest.raises(ValueError, match="groups: got 0 alone"):
        client.sum(there, groups=0)
    with pytest.raises(ValueError, match="keep: got True alone; allowed: with axis, where, segments, lengths or keys"):
        client.sum(array, keep=True)
    for name, value in (("ttl", 5), ("owner", "me")):
        with pytest.raises(ValueError, match=f"^{name}: got {value!r} alone; allowed: with keep"):
            client.sum(array, **{name: value})
        with pytest.raises(ValueError, match="^ttl, owner: got them without keep; allowed: with keep"):
            client.sum(array, axis=0, **{name: value})
    assert client.sum(array, keep=False) == array.sum()


def test_results_that_are_kept_by_a_session_of_this_process(local):
    with local.session() as session:
        assert session.sum(np.ones((2, 3)), axis=0, keep=True).get().tolist() == [2, 2, 2]


def test_the_timeout_of_a_copy(remote):
    with remote.put(np.ones(3)) as there, pytest.raises(reduced.InvalidArgumentError, match="timeout: got 0"):
        there.get(timeout=0)


def test_keys_beside_results_that_are_kept(client):
    result = client.reduce(np.array([1, 2, 4]), "sum", keys=np.array([7, -3, 7], "i2"), keep=True)
    assert result.group_keys.tolist() == [-3, 7] and result.group_keys.dtype == np.int16 and result.sum.get().tolist() == [2, 5]


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i8", "f2", "f4", "f8"])
def test_what_is_put_comes_back(client, dtype):
    for shape in ((3, 5), (0, 4), (), (300_000,)):
        x = np.random.default_rng(5).integers(0, 2, shape).astype(dtype)
        with client.put(x) as there:
            back = there.get()
            assert back.dtype == x.dtype and back.shape == x.shape and np.array_equal(back, x)
            back[...] = 0
            assert np.array_equal(there.get(), x)

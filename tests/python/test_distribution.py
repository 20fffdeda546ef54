"""Medians, quantiles, histograms, top k, distinct values and summaries: against NumPy and sorting."""

import asyncio
import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import reduced
import reduced.aio

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
METHODS = ["linear", "lower", "higher", "nearest", "midpoint"]


@pytest.fixture(params=["remote", "local", "session", "ring"])
def whole(request):
    """A client, or a session of one."""
    if request.param in ("remote", "local"):
        yield request.getfixturevalue(request.param)
        return
    with request.getfixturevalue("remote").session(via=request.param) as session:
        yield session


@pytest.fixture
def store(whole, request):
    """Stores an array, as a session cannot by itself."""
    return (request.getfixturevalue("remote") if isinstance(whole, reduced.Session) else whole).put


def elements(random, dtype, shape):
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        array = random.normal(size=shape).astype(dtype)
        return np.round(array, 1) if random.random() < 0.5 else array
    if dtype.kind == "b":
        return random.random(shape) < 0.3
    limits = np.iinfo(dtype)
    bound = random.choice([5, limits.max // 2])
    return random.integers(max(limits.min, -bound), bound, shape, dtype=np.int64 if dtype != np.uint64 else np.uint64).astype(dtype)


def cases(seed, count=60):
    random = np.random.default_rng(seed)
    for number in range(count):
        shape = tuple(random.integers(1, 12, random.integers(1, 4)))
        if number % 5 == 0:
            shape = (int(random.choice([1, 2, 3, 1000, 5000])),)
        yield random, elements(random, DTYPES[number % len(DTYPES)], shape)


def in_f64(array):
    return array.astype(np.float64)


def test_edges_that_are_no_f64(whole):
    with pytest.raises(ValueError, match="^bins: got whole numbers beyond"):
        whole.histogram(np.arange(5), bins=np.array([2**60, 2**60 + 1, 2**61]))
    assert whole.histogram(np.array([2**60]), bins=np.array([0, 2**60, 2**61]))[0].tolist() == [0, 1]


def test_names_of_ops_may_have_spaces(whole):
    assert list(whole.reduce(np.arange(5.0), [" sum", "quantile(0.5) "])) == ["sum", "quantile(0.5)"]


def test_quantiles_are_those_of_numpy(whole):
    for random, array in cases(1):
        q = np.concatenate([[0, 1, 0.5], random.random(3)])
        for method in METHODS:
            values = in_f64(array) if method in ("linear", "midpoint") else array
            if values.dtype == bool:
                values = array.astype(np.uint8)
            for axis in (None, *range(array.ndim)):
                right = np.quantile(values, q, method=method, axis=axis)
                got = whole.quantile(array, q, method=method, axis=axis)
                assert got.shape == right.shape
                np.testing.assert_array_equal(got, right.astype(got.dtype), f"{array.dtype} {array.shape} {method} {axis}")
        kept = whole.quantile(array, 0.25, axis=0, keepdims=True)
        np.testing.assert_array_equal(kept, np.quantile(in_f64(array), 0.25, axis=0, keepdims=True))
        median = whole.median(array)
        middle = [Fraction(each.item()) for each in np.sort(array.ravel())[[(array.size - 1) // 2, array.size // 2]]]
        assert median == float(sum(middle) / 2) and isinstance(median, np.float64)
        assert whole.median(array, method="lower").dtype == array.dtype


def test_shapes_of_q(whole):
    x = np.arange(10.0)
    assert whole.quantile(x, 0.5) == 4.5 and np.ndim(whole.quantile(x, 0.5)) == 0
    assert whole.quantile(x, [0.5]).shape == (1,)
    np.testing.assert_array_equal(whole.quantile(x, [[0, 1], [0.5, 0.25]]), np.quantile(x, [[0, 1], [0.5, 0.25]]))
    np.testing.assert_array_equal(whole.quantile(x.reshape(2, 5), [[0, 1]], axis=1), np.quantile(x.reshape(2, 5), [[0, 1]], axis=1))
    for wrong in (-0.1, 1.5, math.nan, [0.5, 2]):
        with pytest.raises(ValueError, match=r"quantile\.q\["):
            whole.quantile(x, wrong)
    with pytest.raises(ValueError, match="method=linear"):
        whole.quantile(x, 0.5, method="best")
    with pytest.raises(ValueError, match="^q: got none; allowed: 1 to 1024"):
        whole.quantile(x, [])
    with pytest.raises(ValueError, match=r"got 1\.0000000000000002;"):
        whole.quantile(x, 1.0000000000000002)
    for wrong in (math.inf, math.nan):
        with pytest.raises(ValueError, match="^bins: got the edge .*; allowed: finite edges"):
            whole.histogram(x, bins=[0, 1, wrong])


def test_histograms_are_those_of_numpy(whole):
    for random, array in cases(2):
        bins = int(random.choice([1, 3, 10, 64]))
        counted = array.astype(np.uint8) if array.dtype == bool else array
        for bounds in (None, (-1.0, 3.0)):
            if array.dtype.itemsize == 8 and array.dtype.kind in "iu" and np.abs(counted.astype(float)).max() > 2**53:
                continue  # NumPy rounds these elements to f64
            if array.dtype == np.float16 and bins == 64:
                continue  # NumPy's edges have no width there
            counts, edges = whole.histogram(array, bins, bounds)
            right_counts, right_edges = np.histogram(counted, bins, bounds)
            np.testing.assert_array_equal(edges, right_edges)
            assert edges.dtype == right_edges.dtype and counts.dtype == right_counts.dtype
            np.testing.assert_array_equal(counts, right_counts, f"{array.dtype} {array.shape} {bins} {bounds}")
        given = np.sort(random.integers(-4, 5, 6))
        counts, edges = whole.histogram(array, given)
        np.testing.assert_array_equal(counts, np.histogram(counted, given)[0], f"{array.dtype} {given}")
        assert edges is given or np.array_equal(edges, given)


def test_histograms_of_special_arrays(whole):
    for array in (np.array([]), np.array([], np.float32), np.full(4, 7), np.array([1.5]), np.array([0, 1, 1, 2], "i1")):
        counts, edges = whole.histogram(array, 4)
        right = np.histogram(array, 4)
        np.testing.assert_array_equal(counts, right[0])
        np.testing.assert_array_equal(edges, right[1])
        assert edges.dtype == right[1].dtype
    with pytest.raises(ValueError, match="not finite"):
        whole.histogram(np.array([1, np.nan]))
    assert whole.histogram(np.array([1, np.nan, 3]), 2, nan="omit")[0].tolist() == [1, 1]
    assert whole.histogram([1, 2, 2], bins=[0, 2, 2, 3])[0].tolist() == np.histogram([1, 2, 2], bins=[0, 2, 2, 3])[0].tolist()
    assert whole.histogram([1, 2, 2], bins=[0, 2, 2])[0].tolist() == np.histogram([1, 2, 2], bins=[0, 2, 2])[0].tolist()
    with pytest.raises(ValueError, match="descend"):
        whole.histogram([1], bins=[2, 1])
    with pytest.raises(TypeError, match="bins"):
        whole.histogram([1], bins="auto")
    rows = np.array([[1, 2, 3], [3, 3, 9]])
    assert whole.histogram(rows, [0, 2, 4], axis=1)[0].tolist() == [[1, 2], [0, 2]]
    assert whole.histogram(rows, 2, axis=1)[1].tolist() == [1, 5, 9]
    counts, _ = whole.histogram(np.array([1.0, 2, 3, 4]), [0, 2.5, 5], keys=np.array([1, 0, 1, 1]))
    assert counts.tolist() == [[1, 0], [1, 2]]


def test_top(whole):
    for _, array in cases(3, 30):
        flat = array.ravel()
        k = min(3, flat.size)
        down = np.argsort(-flat.astype(object), kind="stable")[:k]
        values, indexes = whole.topk(array, k)
        np.testing.assert_array_equal(indexes, down)
        np.testing.assert_array_equal(values, flat[down])
        assert values.dtype == array.dtype and indexes.dtype == np.int64
        up = np.argsort(flat, kind="stable")[:k]
        got = whole.bottomk(array, k)
        np.testing.assert_array_equal(got.indexes, up)
        np.testing.assert_array_equal(got.values, flat[up])
        np.testing.assert_array_equal(whole.argtopk(array.T, k), np.argsort(-array.T.ravel().astype(object), kind="stable")[:k])
    rows = np.array([[5, 1, 9], [2, 8, 8]])
    assert whole.topk(rows, 2, axis=1).values.tolist() == [[9, 5], [8, 8]]
    assert whole.topk(rows, 2, axis=1).indexes.tolist() == [[2, 0], [1, 2]]
    with pytest.raises(ValueError, match="at least 4"):
        whole.topk([1, 2, 3], 4)
    assert whole.topk([1.0, 2.0], 3, empty="fill").indexes.tolist() == [1, 0, -1]
    assert np.isnan(whole.topk([1.0, math.nan, 2.0], 1).values[0]) and whole.topk([1.0, math.nan, 2.0], 1, nan="omit").values[0] == 2


def test_distinct_and_mode(whole):
    for _, array in cases(4, 24):
        assert whole.distinct(array, exact=True) == len(np.unique(array))
        assert type(whole.distinct(array)) is int
        if array.dtype.itemsize <= 2:
            assert whole.distinct(array) == len(np.unique(array))
            values, counts = np.unique(array, return_counts=True)
            assert whole.mode(array) == values[np.argmax(counts)]
    assert whole.distinct_exact(np.array([0.0, -0.0, math.nan, math.nan])) == 2
    assert abs(whole.distinct(np.arange(100_000)) - 100_000) < 5_000
    assert whole.mode(np.array([1, 2, 2], ml_dtypes.bfloat16)) == 2


def test_several_ops_of_one_call(whole):
    x = np.array([4.0, 1.0, 3.0])
    r = whole.reduce(x, "sum, median,quantile(0, 1),topk(2),count")
    assert list(r) == ["sum", "median", "quantile(0, 1)", "topk(2)", "count"]
    assert r.sum == 8 and r.median == 3 and r.quantile.tolist() == [1, 4] and r["topk(2)"].tolist() == [4, 3]
    assert type(r["count"]) is int and r.size == 3 and "median          3.0" in repr(r)
    r = whole.reduce(x, ["median", "histogram(0,4,2)"], where=x > 1)
    assert r.median == 3.5 and r.histogram.tolist() == [0, 2]
    by = whole.reduce(np.arange(6.0), ["median", "topk(2)"], keys=np.array([0, 1, 0, 1, 0, 1]))
    assert by.median.tolist() == [2, 3] and by["topk(2)"].tolist() == [[4, 2], [5, 3]]
    masked = np.ma.MaskedArray([1, 2, 30], [False, False, True])
    assert whole.median(masked) == 1.5 and whole.topk(masked, 1).values.tolist() == [2]


def test_what_is_refused(whole):
    for ops in ("medain", "quantile()", "topk(x)", "sum()", "quantile(0.5"):
        with pytest.raises(ValueError, match="op: got"):
            whole.reduce([1.0], ops)
    with pytest.raises(reduced.UnimplementedError):
        whole.reduce([1.0], "median", pipeline="sequential")


def test_resident_arrays(whole, store):
    x = np.arange(100.0)
    with store(x.reshape(10, 10)) as array:
        assert whole.median(array) == 49.5 and whole.histogram(array, 2)[0].tolist() == [50, 50]
        assert whole.quantile(array, [0, 1], axis=0).shape == (2, 10)
    with whole.reduce(x.reshape(10, 10), "median", axis=1, keep=True).median as kept:
        assert kept.get().tolist() == np.quantile(x.reshape(10, 10), 0.5, axis=1).tolist()


def test_what_is_kept(whole, store):
    x = np.arange(100.0)
    rows = x.reshape(10, 10)
    with whole.median(x, keep=True) as kept:
        assert kept.shape == () and kept.get() == 49.5
    with whole.quantile(rows, [0.25, 0.5], axis=0, keep=True) as kept:
        np.testing.assert_array_equal(kept.get(), np.quantile(rows, [0.25, 0.5], axis=0).T)
    counts, edges = whole.histogram(x, 4, keep=True)
    with counts:
        assert counts.get().tolist() == [25, 25, 25, 25] and len(edges) == 5
    with pytest.raises(ValueError, match="^bins: got edges of which some are equal with keep"):
        whole.histogram(x, [0, 1, 1, 2], keep=True)
    r = whole.describe(rows, axis=0, keep=True)
    assert r["quantile(0.25,0.5,0.75)"].shape == (10, 3) and r["25%"] is None and r["max"].shape == (10,)
    assert "allowed: ['quantile(0.25,0.5,0.75)']" in str(r.errors["25%"])
    with store(np.empty(0)) as empty, whole.median(empty, keep=True) as kept:  # of nothing
        assert math.isnan(kept.get())


def test_summaries(whole):
    x = np.array([3.0, 1.0, math.nan, 2.0, 10.0])
    r = whole.describe(x)
    assert list(r)[:9] == ["count", "missing", "mean", "std", "min", "25%", "50%", "75%", "max"]
    assert (r["25%"], r["50%"], r["75%"]) == tuple(np.nanquantile(x, [0.25, 0.5, 0.75])) and r.missing == 1 and r.count == 4
    rows = np.array([[1.0, 2.0, 4.0], [5.0, 5.0, 8.0]])
    r = whole.describe(rows, axis=1)
    np.testing.assert_array_equal(r["75%"], np.quantile(rows, 0.75, axis=1))
    r = whole.describe(rows[0], keys=np.array([1, 0, 1]))
    assert r["50%"].tolist() == [2, 2.5] and r["max"].tolist() == [2, 4]


def test_with_await():
    async def main():
        async with reduced.aio.connect("local:") as client:
            x = np.arange(10.0)
            assert await client.median(x) == 4.5
            assert (await client.quantile(x, [0, 1])).tolist() == [0, 9]
            assert (await client.histogram(x, 2))[0].tolist() == [5, 5]
            assert (await client.topk(x, 2)).indexes.tolist() == [9, 8]
            assert await client.distinct(x) == 10

    asyncio.run(main())


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i8", "u4", "u2", "i1"])
@pytest.mark.parametrize("data", ["normal", "equal", "close", "two", "nans"])
def test_chunks_have_the_quantiles_of_numpy(dtype, data):
    da = pytest.importorskip("dask.array")
    import reduced.dask

    random = np.random.default_rng(3)
    array = {"normal": 30 * random.normal(size=100_000), "equal": np.full(100_000, 3.5), "close": 1 + random.random(100_000) * 1e-9,
             "two": random.integers(0, 2, 100_000), "nans": np.where(random.random(100_000) < 0.3, np.nan, random.normal(size=100_000))}[data]
    array = (array if dtype[0] == "f" else np.abs(np.nan_to_num(array))).astype(dtype)
    q = [0, 0.1, 0.25, 0.5, 0.77, 1]
    with np.errstate(all="ignore"):
        wide = array.astype("f8") if dtype[0] == "f" else array
        right, median = np.nanquantile(wide, q), np.nanmedian(wide)
    name = f"quantile({','.join(map(str, q))})"
    r = reduced.dask.reduce(da.from_array(array, chunks=33_333), ["median", name], nan="omit").compute(scheduler="threads")
    assert np.array_equal(r[name], right) and r["median"] == median
    if data == "nans" and dtype[0] == "f":
        r = reduced.dask.reduce(da.from_array(array, chunks=33_333), "median").compute(scheduler="threads")
        assert np.isnan(r["median"])


def test_medians_that_peers_get_wrong():
    da = pytest.importorskip("dask.array")
    import reduced.dask

    for size in range(1, 7):
        assert reduced.dask.reduce(da.from_array(np.array([-1, 0, 0, 0, 1, 1.0]), size), "median")["median"].compute() == 0
    assert reduced.dask.reduce(da.arange(1, 101, chunks=7), "median")["median"].compute() == 50.5


def test_chunks_by_states(whole):
    da = pytest.importorskip("dask.array")
    import reduced.dask

    x = np.random.default_rng(4).integers(0, 50, 9_000).astype(np.int16)
    r = reduced.dask.reduce(da.from_array(x, 1_234), "mode,topk(3),argtopk(3),histogram(0,50,5),distinct,distinct_exact").compute()
    alone = whole.reduce(x, "mode,topk(3),argtopk(3),histogram(0,50,5),distinct,distinct_exact")
    assert list(r) == list(alone)
    assert all(np.array_equal(r[op], alone[op]) for op in r)


def test_states(whole):
    x = np.arange(10.0)
    first, second = (whole.reduce(part, "topk(2),argtopk(2),sum,histogram(0,10,2)", state=True).state for part in (x[:7], x[7:]))
    merged = reduced.State.merge([first, second]).results
    assert merged["topk(2)"].tolist() == [9, 8] and merged["argtopk(2)"].tolist() == [9, 8] and merged["sum"] == 45
    assert merged.histogram.tolist() == [5, 5]
    median = whole.reduce(x, "median,sum", state=True).state.results
    assert median["sum"] == 45
    with pytest.raises(reduced.InvalidArgumentError, match="got a state with the highest 20 of 64 bits"):
        _ = median["median"]
    assert whole.reduce(x, "median(bits=64)", state=True).state.results.median == 4.5
    with pytest.raises(reduced.InvalidArgumentError, match="calls.0..quantile.counts.within: got prefixes without omit_results"):
        whole.reduce(x, "median(bits=64;within_bits=1;within=1)")


def test_brackets(whole):
    x = np.random.default_rng(5).normal(size=2_000)
    parts = [whole.reduce(part, "median,sum,quantile(0.1,0.9)", state=True).state for part in (x[:700], x[700:])]
    state = reduced.State.merge(parts)
    assert list(state.brackets) == ["median", "quantile(0.1,0.9)"]
    for op, right in (("median", np.median(x)), ("quantile(0.1,0.9)", np.quantile(x, [0.1, 0.9]))):
        low, high = state.brackets[op]
        assert np.all(low <= right) and np.all(right <= high) and np.all(high - low <= np.abs(right) * 2.0**-7)
    low, high = whole.reduce(x.astype(np.int16), "median", state=True).state.brackets["median"]
    assert low == high == np.median(x.astype(np.int16))
    assert whole.reduce(x, "sum", state=True).state.brackets == {}

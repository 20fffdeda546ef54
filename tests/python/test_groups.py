"""Reductions of segments, by keys and under masks, with every kind of client that has them, against NumPy."""

import pickle

import numpy as np
import pytest
import reduced


@pytest.fixture(scope="module", params=["unix", "local"])
def client(request, server):
    with reduced.connect(server.unix if request.param == "unix" else "local:", timeout=60) as connected:
        yield connected


@pytest.fixture
def random():
    return np.random.default_rng(5)


@pytest.mark.parametrize("shape", [(1000,), (50, 7), (6, 5, 4)], ids=str)
def test_where_as_numpy(client, random, shape):
    array = random.integers(-1000, 1000, shape)
    mask = random.random(shape) < 0.4
    for axis in [None, 0, -1, tuple(range(len(shape)))]:
        assert np.array_equal(client.sum(array, axis=axis, where=mask), array.sum(axis=axis, where=mask))
        assert np.array_equal(client.count(array, axis=axis, where=mask), mask.sum(axis=axis))
        right = array.max(axis=axis, where=mask, initial=np.iinfo(np.int64).min)
        assert np.array_equal(client.max(array, axis=axis, where=mask, empty="fill"), right)
    kept = client.sum(array, where=mask, keepdims=True)
    assert kept.shape == (1,) * len(shape)


def test_where_broadcasts(client, random):
    array = random.normal(size=(30, 4))
    rows = random.random((30, 1)) < 0.5
    assert client.argmax(array, where=rows) == np.where(np.broadcast_to(rows, array.shape), array, -np.inf).argmax()
    assert np.array_equal(client.min(array, axis=0, where=rows), array.min(axis=0, where=rows, initial=np.inf))
    assert np.array_equal(client.sum(array.astype("i4"), axis=1, where=np.array([True, False, False, True])),
                          array.astype("i4")[:, [0, 3]].sum(axis=1))


@pytest.mark.parametrize("index", ["i4", "i8"])
def test_segments_as_reduceat(client, random, index):
    array = random.integers(-9, 9, (400, 3)).astype("f4")
    cuts = np.unique(random.integers(0, 400, 20))
    offsets = np.append(cuts, 400).astype(index)
    assert np.array_equal(client.sum(array, segments=offsets), np.add.reduceat(array, cuts, axis=0, dtype="f8"))
    assert np.array_equal(client.max(array, segments=offsets), np.maximum.reduceat(array, cuts, axis=0))
    lengths = np.diff(np.append(0, offsets)).astype(index)
    assert np.array_equal(client.min(array, lengths=lengths, empty="fill"),
                          np.minimum.reduceat(array, np.unique(np.append(0, cuts)), axis=0)[-len(lengths):]
                          if cuts[0] else np.vstack([np.full(3, np.nan, "f4"), np.minimum.reduceat(array, cuts, axis=0)]),
                          equal_nan=True)


@pytest.mark.parametrize("dtype", ["i1", "u2", "i4", "u8"])
def test_keys_as_unique(client, random, dtype):
    array = random.normal(size=5000).astype("f4")
    keys = random.integers(0, 90, 5000).astype(dtype)
    result = client.reduce(array, "sum,argmax,count,std", keys=keys)
    groups, counts = np.unique(keys, return_counts=True)
    assert result.group_keys.dtype == keys.dtype and np.array_equal(result.group_keys, groups)
    assert np.array_equal(result["count"], counts)
    for i, key in enumerate(groups):
        own = client.reduce(array[keys == key], "sum,std")
        assert (result["sum"][i], result["std"][i]) == (own.sum, own.std)
        assert result.argmax[i] == np.flatnonzero(keys == key)[array[keys == key].argmax()]
    given = client.reduce(array, "count", keys=keys, groups=200)
    assert given.group_keys is None and np.array_equal(given["count"], np.bincount(keys.astype("i8"), minlength=200))


def test_keys_and_where(client, random):
    array = random.integers(0, 100, (60, 2))
    keys, mask = random.integers(-4, 4, 60), random.random((60, 2)) < 0.5
    result = client.reduce(array, ["sum"], keys=keys, groups=3, outside="drop", where=mask)
    for key in range(3):
        chosen = keys == key
        assert np.array_equal(result.sum[key], array[chosen].sum(axis=0, where=mask[chosen]))


def test_resident_arrays_beside(client, random):
    array, keys = random.normal(size=100), random.integers(0, 3, 100)
    with client.put(array) as values, client.put(keys) as labels, client.put(array > 0) as mask:
        assert np.array_equal(client.sum(values, keys=labels, where=mask), client.sum(array, keys=keys, where=array > 0))


def test_results_are_pickled_with_their_keys(client):
    result = client.reduce(np.arange(4.0), "sum", keys=np.array([5, 1, 5, 1]))
    again = pickle.loads(pickle.dumps(result))
    assert np.array_equal(again.group_keys, [1, 5]) and np.array_equal(again.sum, [4, 2])


ERRORS = [
    ({"keys": np.zeros(3, "i4"), "axis": 0}, ValueError, "keys: got it beside axis; allowed: one of axis"),
    ({"keys": np.zeros(3, "i4"), "segments": np.zeros(3, "i4")}, ValueError, "keys: got it beside segments"),
    ({"keys": np.zeros(3, "i4"), "keepdims": True}, ValueError, "keepdims: got True with keys"),
    ({"keys": np.zeros(3, "i4"), "outside": "drop"}, ValueError, "outside: got it without groups"),
    ({"keys": np.zeros(3, "i4"), "outside": "keep", "groups": 2}, ValueError, "outside: got 'keep'; allowed: 'error', 'drop'"),
    ({"keys": np.zeros(3, "i4"), "groups": 0}, ValueError, "groups: got 0; allowed: 1 or more"),
    ({"groups": 2}, ValueError, "groups: got 2 alone; allowed: with keys"),
    ({"axis": 0, "groups": 2}, ValueError, "groups, outside: got them without keys"),
    ({"axis": (), "where": np.zeros(3, "?")}, ValueError, r"^axis: got \(\) with where; allowed: one dimension or more, or None$"),
    ({"empty": "fill"}, ValueError, "empty: got 'fill' alone; allowed: with axis"),
    ({"where": np.zeros(3, "i4")}, TypeError, "where: got int32; allowed: bool"),
    ({"where": np.zeros(2, "?")}, ValueError, r"^where: got shape \(2,\); allowed: a shape that broadcasts to \(3,\)$"),
    ({"where": np.zeros((2, 3), "?")}, ValueError, r"^where: got shape \(2, 3\); allowed: a shape that broadcasts to \(3,\)$"),
    ({"keys": np.zeros(2, "i4")}, reduced.InvalidArgumentError, "^keys: got 2 keys; allowed: as many as dimension 0"),
    ({"keys": np.zeros(3, "c8")}, TypeError, "^keys: got complex64; allowed: integers, strings, categories"),
    ({"keys": np.array(["a", "b", "c"]), "groups": 3}, TypeError, "^groups: got it with keys of type ndarray; allowed: integer keys, none of them missing"),
    ({"keys": np.ma.masked_equal([0, 1, 2], 1), "groups": 3}, TypeError, "^groups: got it with keys of type MaskedArray; allowed: integer keys"),
    ({"keys": np.array([0, 1, 2]), "groups": 2}, reduced.OutOfRangeError, r"^keys\[2\]: got 2; allowed: 0 to 1, or outside: 'drop'$"),
    ({"segments": np.array([0, 2, 1])}, reduced.InvalidArgumentError, r"^segments\[2\]: got 1; allowed: 2 to 3"),
    ({"lengths": np.array([0, 2])}, reduced.InvalidArgumentError, "^lengths: got a sum of 2; allowed: 3"),
    ({"segments": np.array([[0, 3]])}, reduced.InvalidArgumentError, "^segments: got an array of 2 dimensions"),
    ({"segments": np.zeros(2, "u4")}, reduced.InvalidArgumentError, "^segments: got u32; allowed: i32, i64"),
]


@pytest.mark.parametrize(("options", "error", "message"), ERRORS, ids=lambda each: None)
def test_errors(client, options, error, message):
    with pytest.raises(error, match=message):
        client.sum(np.ones(3), **options)
    with pytest.raises(reduced.InvalidArgumentError, match="^op min: got an empty array; allowed: at least 1 element"):
        client.min(np.ones(3), where=np.zeros(3, "?"))


def test_closed_arrays_beside(client):
    keys = client.put(np.zeros(3, "i4"))
    keys.close()
    with pytest.raises(ValueError, match="keys: got an array that is closed|array"):
        client.sum(np.ones(3), keys=keys)


def test_masked_arrays_and_columns_with_missing_values(client, random):
    array = np.ma.masked_less(random.normal(size=(20, 3)), 0)
    result = client.reduce(array, "sum,argmin,count")
    assert (result["count"], result.argmin) == (array.count(), array.argmin())
    assert result.sum == client.sum(array.compressed()) and isinstance(result.sum, np.float64)
    assert np.array_equal(client.count(array, axis=0, where=np.array([True, False, True])), array.count(axis=0) * [1, 0, 1])
    assert client.describe(array)["max"] == array.max()
    with pytest.raises(ValueError, match=r"^where: got shape \(2,\); allowed: a shape that broadcasts to \(20, 3\)$"):
        client.sum(array, where=np.array([True, False]))
    pandas = pytest.importorskip("pandas")
    column = pandas.Series([5, None, 2, 9], dtype="Int64")
    assert client.sum(column) == 16 and client.argmax(column) == 3 and client.mean(column) == column.mean()
    flags = pandas.Series([True, None, False], dtype="boolean")
    assert (client.count(flags), client.all(flags)) == (2, False)
    assert client.sum(np.ones(4), keys=column).tolist() == [1, 1, 1] and client.sum(np.ones(4), keys=column, missing="group").tolist() == [1, 1, 1, 1]
    with pytest.raises(TypeError, match="^array: got a Series with missing values; allowed: without"):
        client.put(column)
    with pytest.raises(TypeError, match="^array: got missing elements with state; allowed: without"):
        client.reduce(array, "sum", state=True)


def test_arrow_arrays_with_nulls(client):
    pa = pytest.importorskip("pyarrow")
    for dtype in (pa.int8(), pa.uint16(), pa.int64(), pa.float16(), pa.float32(), pa.float64()):
        array = pa.array([1, 2, None, 4, None], dtype)
        assert client.sum(array) == 7 and client.sum(array[1:4]) == 6
        result = client.reduce(array[1:], "max,argmax,count,mean")
        assert (result.max, result.argmax, result["count"], result.mean) == (4, 2, 2, 3)
        assert client.sum(pa.chunked_array([array, array[3:]])) == 11 and client.sum(pa.chunked_array([array])) == 7
        assert client.sum(pa.nulls(3, dtype)) == 0
    flags = pa.array([True, None, False, True])
    assert (client.count_nonzero(flags), client.count(flags), client.all(flags[1:])) == (2, 3, False)
    floats = pa.array([1.0, np.nan, None])  # NaN is an element
    assert np.isnan(client.sum(floats)) and client.sum(floats, nan="omit") == 1 and client.nan_count(floats) == 1
    assert client.describe(pa.array([3, None, 5])).std == np.sqrt(2)
    with pytest.raises(TypeError, match="^array: got an Int64Array with missing values; allowed: without"):
        client.put(pa.array([1, None]))


def test_arrow_arrays_beside(client):
    pa = pytest.importorskip("pyarrow")
    lists = pa.array([[1, 2], None, [], [4, None, 8], [16]])
    for array in (lists, lists[1:], lists[2:4], lists[5:]):
        right = [sum(filter(None, each or [])) for each in array.to_pylist()]
        assert client.sum(array.values, segments=array.offsets).tolist() == right
        assert client.count(array.values, segments=array.offsets).tolist() == [
            sum(each is not None for each in part or []) for part in array.to_pylist()]
    values = pa.array([1.5, 2.5, 4.0])
    assert client.sum(values, where=pa.array([True, False, True])) == 5.5
    assert client.sum(values, keys=pa.array([7, 3, 7], pa.int16())).tolist() == [2.5, 5.5]
    assert client.sum(values, keys=pa.array([7, None, 7])).tolist() == [5.5]
    assert client.sum(values, where=pa.array([True, None, True])) == 5.5  # what is missing is not True
    with pytest.raises(TypeError, match=r"^where: dtype: got object, such as None at \[1\]; allowed: bool"):
        client.sum(values, where=[True, None, True])
    assert client.sum(pa.array([1, None, 4]), where=np.array([True, True, False])) == 1
    assert client.reduce(pa.array([1, None, 4]), "sum,argmax", axis=0).argmax == 2


OPS = ["sum", "mean", "var", "l1", "l2", "min", "max", "range", "argmin", "argmax", "any", "all", "count", "count_nonzero", "nan_count"]


def elements(random, dtype, shape):
    if dtype.startswith("f"):
        array = (random.normal(size=shape) * 10.0 ** random.integers(-3, 4, shape)).astype(dtype)
        for value in (np.nan, np.inf, -np.inf, -0.0):
            array[random.random(shape) < 0.001] = value
        return array
    return random.integers(0, 100, shape).astype(dtype)


def same(one, other):
    for op in OPS:
        np.testing.assert_array_equal(one[op], other[op], err_msg=op)


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i1", "i8", "?"])
@pytest.mark.parametrize("shape", [(9000, 5), (3000, 33), (40, 700), (1, 9), (20_000, 2), (6, 50, 40), (50, 1000, 3)], ids=str)
@pytest.mark.parametrize("nan", ["propagate", "omit"])
def test_masked_columns_are_masked_rows(client, random, dtype, shape, nan):
    """Outputs whose elements are side by side have the answers of those that lie one after the other."""
    array = elements(random, dtype, shape)
    for share in (0.5, 0.01, 1.0):
        mask = random.random(shape) < share
        columns = client.reduce(array, OPS, axis=0, where=mask, nan=nan, empty="fill")
        rows = client.reduce(np.ascontiguousarray(np.moveaxis(array, 0, -1)), OPS, axis=-1,
                             where=np.ascontiguousarray(np.moveaxis(mask, 0, -1)), nan=nan, empty="fill")
        same(columns, rows)


@pytest.mark.parametrize("dtype", ["f8", "f4", "i2", "u8"])
@pytest.mark.parametrize("columns", [(), (1,), (6,), (100,)], ids=str)
@pytest.mark.parametrize("nan", ["propagate", "omit"])
def test_keys_of_any_kind_have_the_rows_of_their_group(client, random, dtype, columns, nan):
    """Given and found keys, in order, nearly in order, in a small range, far apart, with a mask: what each group alone answers."""
    rows = 3000
    array = elements(random, dtype, (rows, *columns))
    keys = np.sort(random.integers(-20, 20, rows))
    nearly = keys.copy()
    nearly[-1] = -30
    for given in (keys, nearly, random.permutation(keys), keys * 2**40, np.full(rows, 7), np.arange(rows), keys.astype("i1"), np.sort(keys % 7).astype("u8")):
        result = client.reduce(array, OPS, keys=given, nan=nan, empty="fill")
        np.testing.assert_array_equal(result.group_keys, np.unique(given))
        masked = client.reduce(array, OPS, keys=given, nan=nan, empty="fill", where=np.ones((rows, *columns), bool))
        same(result, masked)
        some = random.permutation(len(result.group_keys))[:5]
        for group in some:
            at = np.flatnonzero(given == result.group_keys[group])
            alone = client.reduce(array[at], OPS, axis=0, nan=nan, empty="fill")
            for op in OPS:
                right = alone[op]
                if op in ("argmin", "argmax"):  # of a group without elements there is no index
                    right = np.where(right < len(at), at[np.minimum(right, len(at) - 1).astype(int)], right)
                np.testing.assert_array_equal(result[op][group], right, err_msg=op)
        if given.min() >= 0 and given.max() < 100:
            groups = client.reduce(array, OPS, keys=given, groups=100, nan=nan, empty="fill")
            for op in OPS:
                np.testing.assert_array_equal(groups[op][result.group_keys.astype(int)], result[op], err_msg=op)
        medians = client.median(array, keys=given)
        np.testing.assert_array_equal(medians, client.median(array, keys=given, where=np.ones((rows, *columns), bool)))
        if not columns:
            parts = [client.reduce(array[cut], "sum,max,argmax", keys=given[cut], nan=nan, empty="fill", state=True).state
                     for cut in (slice(0, 1000), slice(1000, rows))]
            merged = reduced.State.merge(parts).results
            np.testing.assert_array_equal(merged.group_keys, result.group_keys)
            np.testing.assert_array_equal(merged["argmax"], result["argmax"])

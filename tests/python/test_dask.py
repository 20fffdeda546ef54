"""reduced.dask: the bits of the whole array, whatever the chunks and the workers."""

import math
import os

import blocks
import dask
import dask.array as da
import numpy as np
import pytest
import reduced
import reduced.dask
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reduced._arrays import dtype_name

ANY_CUT = ["sum", "mean", "var", "std", "l1", "l2", "sum_squares", "min", "max", "range", "any", "all", "count", "count_nonzero", "nan_count"]
PROPERTY = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def here():
    with dask.config.set(scheduler="threads"):
        yield


def array_of(size, nans=False):
    array = np.random.default_rng(size).normal(size=size) * 10.0 ** np.random.default_rng(size + 1).integers(-300, 150, size)
    if nans:
        array[::7] = np.nan
    return array


@PROPERTY
@given(data=st.data())
def test_any_chunks_have_the_same_bits(local, data):
    shape = tuple(data.draw(st.lists(st.integers(1, 30), min_size=1, max_size=3)))
    array = array_of(math.prod(shape), nans=data.draw(st.booleans())).reshape(shape)
    chunks = tuple(data.draw(st.integers(1, extent)) for extent in shape)
    nan = data.draw(st.sampled_from(["propagate", "omit"]))
    try:
        right = local.reduce(array, ANY_CUT, nan=nan, ddof=1)
    except reduced.InvalidArgumentError as error:
        with pytest.raises(reduced.InvalidArgumentError, match=str(error).partition(":")[0]):
            reduced.dask.reduce(da.from_array(array, chunks), ANY_CUT, nan=nan, ddof=1).compute()
        return
    results = reduced.dask.reduce(da.from_array(array, chunks), ANY_CUT, nan=nan, ddof=1).compute()
    assert {op: np.asarray(value).tobytes() for op, value in results.items()} == {
        op: np.asarray(value).tobytes() for op, value in right.items()}


@settings(PROPERTY, max_examples=120)
@given(question=blocks.questions(), data=st.data())
def test_any_question_of_any_chunks(local, question, data):
    random, array, options = question
    if options.get("axis") != () and data.draw(st.integers(0, 3)) == 0:
        array = np.ma.MaskedArray(array, random.random(array.shape) < 0.3)
    chunks = tuple(blocks.cut_of(random, extent) for extent in array.shape)
    lazy = dict(options)
    for name in ("keys", "where"):
        if name in options and data.draw(st.booleans()):
            if name == "where" and data.draw(st.booleans()):
                options[name] = np.ma.MaskedArray(options[name], random.random(options[name].shape) < 0.2)
            lazy[name] = da.from_array(options[name], tuple(blocks.cut_of(random, extent) for extent in options[name].shape))
    results = blocks.answer(lambda: reduced.dask.reduce(da.from_array(array, chunks), blocks.OPS, **lazy).compute())
    right = blocks.answer(lambda: local.reduce(array, blocks.OPS, **options))
    if isinstance(array, np.ma.MaskedArray) and options.keys().isdisjoint({"axis", "keys", "where", "keepdims"}):
        blocks.assert_same_answer(results, right if isinstance(right, reduced.Error) else whole_of(right))
    else:
        blocks.assert_same_answer(results, right)


@settings(PROPERTY, max_examples=80)
@given(question=blocks.questions(), data=st.data())
def test_any_question_about_two_arrays(local, question, data):
    random, array, options = question
    options = {**options, "overflow": "wrap", **blocks.others_of(random, array)}
    if options.get("axis") != () and random.integers(3) == 0:
        name = random.choice(["y", "weights"])
        options[name] = np.ma.MaskedArray(options[name], random.random(options[name].shape) < 0.3)
        options.setdefault("axis", tuple(range(array.ndim))) if "keys" not in options else None
    chunks = tuple(blocks.cut_of(random, extent) for extent in array.shape)
    lazy = dict(options)
    for name in ("keys", "where", "y", "weights"):
        if name in options and data.draw(st.booleans()):
            lazy[name] = da.from_array(options[name], tuple(blocks.cut_of(random, extent) for extent in options[name].shape))
    ops = [str(op) for op in random.choice(blocks.PAIR_OPS, 4, replace=False)]
    lacks = {name for name in ("y", "weights") if not any(reduced._core.operands.get(op.partition("(")[0]) == name for op in ops)}
    given, lazy = ({name: value for name, value in each.items() if name not in lacks} for each in (options, lazy))
    results = blocks.answer(lambda: reduced.dask.reduce(da.from_array(array, chunks), ops, **lazy).compute())
    blocks.assert_same_answer(results, blocks.answer(lambda: local.reduce(array, ops, **given)))


def test_two_arrays(local):
    x, y = np.arange(24.0).reshape(4, 6), np.arange(24.0).reshape(4, 6) ** 0.5
    lazy, beside = da.from_array(x, (3, 4)), da.from_array(y, (2, 5))
    assert reduced.dask.reduce(lazy, "corr,median", y=beside).compute().corr == local.corr(x, y)
    assert reduced.dask.reduce(lazy, "corr,median", y=beside).compute().median == local.median(x)
    masked = np.ma.MaskedArray(y, y < 2)
    together = reduced.dask.reduce(lazy, "median,dot", y=da.from_array(masked, (2, 3))).compute()  # both without what y lacks
    assert together.median == local.median(x[y >= 2]) and together.dot == local.dot(x[y >= 2], y[y >= 2])
    rows = np.arange(4)
    for weights in (rows, da.from_array(rows, 3), rows[:, None]):
        mean = reduced.dask.reduce(lazy, "weighted_mean", weights=weights, axis=0).compute().weighted_mean
        np.testing.assert_array_equal(mean, local.mean(x, weights=rows, axis=0))
    assert reduced.dask.reduce(lazy.astype("i8"), "dot", y=beside).compute().dot == local.dot(x, y)
    for wrong, said in ((np.ones(5), "^y: got shape"), (da.ones(5), "^y: got shape")):
        with pytest.raises(ValueError, match=said):
            reduced.dask.reduce(lazy, "dot", y=wrong)
    with pytest.raises(ValueError, match="^y: got it with sum"):
        reduced.dask.reduce(lazy, "sum", y=beside)
    with pytest.raises(ValueError, match="^y: got none with op dot"):
        reduced.dask.reduce(lazy, "dot")


def whole_of(results):
    """Results of one output of a masked array as those of an array."""
    values = {op: np.asarray(value) for op, value in results.items()}
    whole = reduced.Results([(op, dtype_name(value.dtype), value if value.ndim > 0 else value.item()) for op, value in values.items()],
                            results.size)
    whole.errors = results.errors
    return whole


def test_an_op_without_an_answer_takes_no_other_with_it(local):
    whole = np.array([[2**62, 2**62, 1], [2**62, 1, 2]])
    array = da.from_array(whole, (1, 2))
    results = reduced.dask.reduce(array, "sum,mean,max").compute()
    assert dict(results) == {"mean": whole.astype(float).mean(), "max": 2**62} and list(results.errors) == ["sum"]
    with pytest.raises(reduced.OutOfRangeError, match="integer overflow: the sum"):
        results["sum"]
    of_rows = reduced.dask.reduce(array, "mean,sum", axis=1).compute()
    assert list(of_rows) == ["mean"] and str(of_rows.errors["sum"]).startswith("output [0]: integer overflow")
    with pytest.raises(reduced.OutOfRangeError, match=r"^output \[0\]: integer overflow"):
        reduced.dask.reduce(array, "sum", axis=1).compute()
    nothing = da.from_array(np.full(5, np.nan), 2)
    two = {"axis": 1, "where": np.array([[True, True, False], [False, False, False]])}  # no sum of the first, no min of the second
    for lazy, options in ((array, {**two, "overflow": "error"}), (array, {**two, "empty": "error"}), (array, two),
                          (array, {}), (array, {"axis": 0}), (array, {"axis": 1}), (array, {"where": array < 0}), (nothing, {}),
                          (nothing, {"axis": 0}), (nothing[:0], {}), (array, {"keys": [1, 2]})):
        asked = {name: option.compute() if hasattr(option, "compute") else option for name, option in options.items()}
        summary, right = reduced.dask.describe(lazy, **options).compute(), local.describe(lazy.compute(), **asked)
        blocks.assert_same(summary, right)
        assert all(summary[op] is None for op in summary.errors)
        assert all(np.array_equal(np.ma.getmaskarray(summary[op]), np.ma.getmaskarray(right[op])) for op in summary)


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 7, 100])
def test_every_op_in_parts(local, remote, server, parts):
    array = array_of(1000)
    ops = [op for op in reduced.ops if op not in reduced._core.distribution and not op.startswith(("bit", "prod"))]
    right = local.reduce(array, ops)
    for place in ("local:", server.unix):
        results = reduced.dask.reduce(da.from_array(array, math.ceil(1000 / parts)), ops, server=place).compute()
        assert dict(results) == dict(right) == dict(remote.reduce(array, ops))
    whole = np.arange(1, 1001)
    bits = reduced.dask.reduce(da.from_array(whole, math.ceil(1000 / parts)), "bit_and,bit_or,bit_xor,prod", overflow="wrap").compute()
    assert dict(bits) == dict(local.reduce(whole, "bit_and,bit_or,bit_xor,prod", overflow="wrap"))


def test_sums_of_many_equal_elements(local):
    array = da.full((128, 128, 128), 1.9)
    for chunks in (128, (16, 128, 128), (50, 60, 128), (128, 37, 70)):
        assert reduced.dask.reduce(array.rechunk(chunks), "sum").compute().sum.hex() == "0x1.e666666666666p+21"
        planes = reduced.dask.reduce(array.rechunk(chunks), "sum", axis=(0, 2)).compute().sum
        assert np.array_equal(planes, np.full(128, float.fromhex("0x1.e666666666666p+14")))


def test_positions(local):
    array = array_of(600).reshape(60, 10)
    for chunks in ((7, 10), (60, 10), (60, 5), (1, 3), (23, 7)):
        results = reduced.dask.reduce(da.from_array(array, chunks), "argmin,argmax").compute()
        assert results.argmin == array.argmin() and results.argmax == array.argmax()
        assert dict(reduced.dask.describe(da.from_array(array, chunks)).compute()) == dict(local.describe(array))


def test_quantiles_of_arrays_that_are_made_of_others(local):
    array = array_of(600).reshape(60, 10)
    whole = da.from_array(array, (7, 4))
    for lazy in (whole[3:, ::2], whole.rechunk((5, 10)), whole.T, whole + 1, da.concatenate([whole, whole[:1]]), whole[whole[:, 0] > 0],
                 da.arange(100, chunks=7).rechunk(9), da.from_array(array > 0, 11).rechunk(4).astype("i4")):
        for options in ({}, {"axis": 0}):
            blocks.assert_same(reduced.dask.reduce(lazy, "median,quantile(0.1)", **options).compute(),
                               local.reduce(lazy.compute(), "median,quantile(0.1)", **options))


def test_lazy_arrays():
    array = da.arange(1000, chunks=100, dtype="f8")
    evens = array[array % 2 == 0]  # of unknown sizes
    assert reduced.dask.reduce(evens, "count,sum").compute() == {"count": 500, "sum": 249500}
    nothing = array[array < 0]
    assert reduced.dask.reduce(nothing, "count,sum").compute() == {"count": 0, "sum": 0}
    with pytest.raises(reduced.InvalidArgumentError, match="min"):
        reduced.dask.reduce(nothing, "min").compute()
    result = reduced.dask.reduce((array + 1).reshape(10, 100).T, ["sum", "max"])
    assert dask.compute(result["sum"], result["max"]) == (500500, 1000)
    for wrong in (np.ones(3), [1, 2], "x"):
        with pytest.raises(TypeError, match="array: got"):
            reduced.dask.reduce(wrong, "sum")
    with pytest.raises(reduced.InvalidArgumentError, match="medium"):
        reduced.dask.reduce(array, "medium").compute()


def test_chunks_of_unknown_sizes(local):
    array = np.arange(60.0).reshape(12, 5)
    rows = da.from_array(array, (4, 3))
    some = rows[rows[:, 0] % 2 == 0]
    right = array[array[:, 0] % 2 == 0]
    keys = np.arange(12) % 3
    some_keys = da.from_array(keys, 4)[rows[:, 0] % 2 == 0]
    for options in ({"axis": 0}, {"axis": 1}, {"keys": some_keys}, {"axis": 0, "where": some > 20}):
        asked = {name: option.compute() if hasattr(option, "compute") else option for name, option in options.items()}
        ops = "sum" if options == {"axis": 1} else "sum,argmax"
        blocks.assert_same(reduced.dask.reduce(some, ops, **options).compute(), local.reduce(right, ops, **asked))
    assert reduced.dask.reduce(some[:, :3], "argmax").compute().argmax == 17
    for options, message in (
            ({}, "chunks: got unknown sizes for argmin or argmax"),
            ({"axis": 0, "where": right > 20}, "where: got an array in memory"),
            ({"keys": keys[::2]}, "keys: got an array in memory"),
            ({"keys": some_keys.compute_chunk_sizes().rechunk(1)}, "keys: got .* chunks")):
        with pytest.raises(ValueError, match=message):
            reduced.dask.reduce(some, "argmax", **options)
    with pytest.raises(ValueError, match="where: got shape"):
        reduced.dask.reduce(some[:, 0], "sum", where=da.ones(3, chunks=1, dtype=bool)).compute()
    summary = reduced.dask.describe(some).compute()
    assert "argmax" not in summary and summary["75%"] == np.quantile(right, 0.75) and summary.max == right.max()


def test_missing_elements(local):
    lazy = da.ma.masked_array(da.arange(6, chunks=2), mask=da.from_array(np.arange(6) == 3, 3))
    results = reduced.dask.reduce(lazy, "sum,count,argmax").compute()
    assert dict(results) == {"sum": 12, "count": 5, "argmax": 5} and not isinstance(results, reduced.ArrayResults)
    assert dict(reduced.dask.describe(lazy).compute()) == dict(local.describe(np.ma.masked_equal(np.arange(6), 3)))
    nothing = da.ma.masked_array(da.arange(6, chunks=2), mask=True)
    assert reduced.dask.reduce(nothing, "sum,count").compute() == {"sum": 0, "count": 0}
    assert reduced.dask.reduce(nothing, "min", empty="fill").compute().min == np.iinfo(int).max
    with pytest.raises(reduced.InvalidArgumentError, match="^op min: got an empty array"):
        reduced.dask.reduce(nothing, "min").compute()
    hidden = da.arange(6, chunks=2).map_blocks(np.ma.masked_equal, 3, meta=np.empty(0, int))
    with pytest.raises(TypeError, match="array: got missing elements in a chunk"):
        reduced.dask.reduce(hidden, "sum").compute()
    assert reduced.dask.reduce(hidden, "sum", axis=0).compute().sum == 12
    # A group whose elements are all missing is a group of none.
    for chunks in (3, 2, 1):
        groups = reduced.dask.reduce(lazy.rechunk(chunks), "sum,count", keys=[1, 1, 2, 9, 2, 1]).compute()
        assert list(groups.group_keys) == [1, 2, 9] and list(groups["count"]) == [3, 2, 0] and list(groups.sum) == [6, 6, 0]
    with pytest.raises(reduced.InvalidArgumentError, match=r"^output \[2\]: op min"):
        reduced.dask.reduce(lazy, "min", keys=[1, 1, 2, 9, 2, 1]).compute()


def test_errors_name_outputs_of_the_whole(local):
    array = np.zeros((7, 5), int)
    array[5, 4] = array[6, 3] = array[6, 4] = 2**62  # of row 6 and of column 4 the sum does not fit
    keys = np.arange(1, 8) // 2
    for options in ({"axis": 1}, {"axis": 0}, {"axis": 0, "keepdims": True}, {"keys": keys}, {"keys": keys, "groups": 4}):
        right = blocks.answer(lambda: local.reduce(array, "sum", **options))
        assert isinstance(right, reduced.OutOfRangeError)
        for chunks in ((7, 5), (3, 2), (7, 1), (1, 5)):
            assert str(blocks.answer(lambda: reduced.dask.reduce(da.from_array(array, chunks), "sum", **options).compute())) == str(right)


def test_what_is_refused_before_anything_runs():
    ran = []
    array = da.ones((4, 4), chunks=2).map_blocks(lambda block: ran.append(block) or block, meta=np.empty((0, 0)))
    keys = np.arange(4)
    for options, error, message in (
            ({"segments": [0, 4]}, ValueError, "segments: got it for an array in blocks; allowed: axis, keys, where"),
            ({"lengths": [4]}, ValueError, "lengths: got it"),
            ({"keep": True, "axis": 0}, ValueError, "keep: got True for an array in blocks; allowed: False"),
            ({"state": True}, ValueError, "state: got True"), ({"results": False}, ValueError, "results: got False"),
            ({"axis": 2}, ValueError, r"axis\[0\]: got 2; allowed: -2 to 1"),
            ({"axis": (0, -2)}, ValueError, r"axis\[1\]: got -2, dimension 0"),
            ({"axis": 0, "keys": keys}, ValueError, "keys: got it beside axis"),
            ({"keys": keys[:3]}, ValueError, r"keys: got shape \(3,\)"),
            ({"keys": keys.reshape(2, 2)}, ValueError, "keys: got ndarray of shape"),
            ({"keys": da.arange(5)}, ValueError, r"keys: got shape \(5,\)"),
            ({"keys": keys, "keepdims": True}, ValueError, "keepdims: got True with keys"),
            ({"groups": 3}, ValueError, "groups: got 3 alone; allowed: with keys"),
            ({"where": np.ones(3, bool)}, ValueError, r"where: got shape \(3,\)"),
            ({"where": da.ones(3, dtype=bool)}, ValueError, r"where: got shape \(3,\)"),
            ({"where": np.ones(4)}, TypeError, "where: got float64; allowed: bool"),
            ({"where": da.ones(4)}, TypeError, "where: got float64"),
            ({"keys": da.ones(4, dtype="c16")}, TypeError, "keys: got complex128; allowed: integers, strings"), ({"axis": "x"}, TypeError, "axis: got 'x'"),
            ({"empty": "fill"}, ValueError, "empty: got 'fill' alone"),
            ({"empty": "x", "axis": 0}, reduced.InvalidArgumentError, "empty"),
            ({"nan": "x"}, reduced.InvalidArgumentError, "nan"), ({"ddof": -1}, reduced.InvalidArgumentError, "ddof")):
        with pytest.raises(error, match=message):
            reduced.dask.reduce(array, "sum", **options)
    with pytest.raises(reduced.InvalidArgumentError, match="bit_and"):
        reduced.dask.reduce(array, "bit_and")
    assert not ran


class Variable:
    """As xarray's."""

    def __init__(self, data):
        self.data = data


def test_what_has_a_dask_array():
    assert reduced.dask.reduce(Variable(da.ones((4, 4), chunks=2)), "sum").compute().sum == 16


def test_parts_without_an_answer():
    array = da.from_array(np.array([np.nan, np.nan, 3.0, 1.0]), 2)
    assert reduced.dask.reduce(array, "min,argmax", nan="omit").compute() == {"min": 1, "argmax": 2}
    large = da.from_array(np.array([2**62, 2**62, -(2**62), -(2**62)]), 2)
    assert reduced.dask.reduce(large, "sum").compute().sum == 0


def columns():
    """Columns of every kind of dtype that pandas has for numbers, with what they are in NumPy."""
    pandas, frames = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    floats, integers = array_of(1000, nans=True), np.random.default_rng(3).integers(-(2**24), 2**24, 1000)
    flags = integers % 3 == 0
    for array, dtypes in ((floats, ["float64", "Float64", "double[pyarrow]"]), (integers, ["int64", "Int64", "int64[pyarrow]"]),
                          ((floats % 7).astype("f4"), ["float32", "Float32", "float[pyarrow]"]), (flags, ["bool", "boolean", "bool[pyarrow]"])):
        for dtype in dtypes:
            if "pyarrow" in dtype:
                pytest.importorskip("pyarrow")
            column = pandas.Series(array).astype(dtype)
            yield array, column, frames.from_pandas(pandas.DataFrame({"x": column}), npartitions=7)["x"]


def test_columns_of_dataframes(local):
    for array, column, lazy in columns():
        nan = "omit" if array.dtype.kind == "f" else "propagate"
        right = dict(local.reduce(array, [*ANY_CUT, "argmin", "argmax"], nan=nan))
        if array.dtype.kind == "f" and not isinstance(column.dtype, np.dtype):
            right["nan_count"] = 0  # the conversion makes missing elements of NaNs
        assert dict(local.reduce(column, [*ANY_CUT, "argmin", "argmax"], nan=nan)) == right, column.dtype
        results = reduced.dask.reduce(lazy, [*ANY_CUT, "argmin", "argmax"], nan=nan).compute()
        assert dict(results) == right, column.dtype
        assert dict(reduced.dask.describe(lazy).compute()) == dict(local.describe(column)), column.dtype
    assert reduced.dask.reduce(lazy[lazy & ~lazy], "sum,count").compute() == {"sum": 0, "count": 0}


def test_columns_by_keys(local):
    for array, column, lazy in columns():
        pandas, frames = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
        keys = np.random.default_rng(1).integers(0, 5, len(array))
        frame = frames.from_pandas(pandas.DataFrame({"x": column, "k": keys}), npartitions=7)
        right = local.reduce(array, "sum,max,argmax", keys=keys, nan="omit")
        blocks.assert_same(reduced.dask.reduce(frame["x"], "sum,max,argmax", keys=frame["k"], nan="omit").compute(), right)
        even = local.reduce(array, "sum,argmax", where=keys % 2 == 0, nan="omit")
        of_even = reduced.dask.reduce(frame["x"], "sum,argmax", where=frame["k"] % 2 == 0, nan="omit")
        blocks.assert_same(of_even.compute(), even)
    with pytest.raises(ValueError, match="keys: got .* chunks, some of unknown sizes"):
        reduced.dask.reduce(frame["x"], "sum", keys=frame["k"].repartition(npartitions=2))


def test_columns_that_are_refused(local):
    pandas, frames = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    missing = pandas.Series([1, None], dtype="Int64")
    column = frames.from_pandas(pandas.DataFrame({"x": pandas.Series([1, None, 3, 2**53 + 1], dtype="Int64")}), npartitions=2)["x"]
    assert dict(reduced.dask.reduce(column, "sum,count,argmax,max").compute()) == {
        "sum": 2**53 + 5, "count": 3, "argmax": 3, "max": 2**53 + 1}
    for given, message in ((pandas.Series(["a", "b"]), "dtype: got "), (pandas.Series([1, 2], dtype="M8[ns]"), "op sum: got datetime64")):
        with pytest.raises(TypeError, match=message):
            local.reduce(given, "sum", state=True)
        with pytest.raises(TypeError, match=message):
            reduced.dask.reduce(frames.from_pandas(pandas.DataFrame({"x": given}), npartitions=1)["x"], "sum").compute()
    with pytest.raises(TypeError, match="^option: got unknown; allowed: nan, "):
        reduced.dask.reduce(da.ones(3), "sum", unknown=1)
    assert local.sum(missing.dropna()) == local.sum(missing) == 1 and local.nan_count(missing.astype("Float64")) == 0
    with pytest.raises(TypeError, match="array: got DataFrame; allowed: .* a column of a dask DataFrame"):
        reduced.dask.reduce(frames.from_pandas(pandas.DataFrame({"x": [1.0]}), npartitions=1), "sum")


def die_once(block, marker):
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return block
    os._exit(1)


def test_processes_one_of_which_dies(local, server, tmp_path):
    distributed = pytest.importorskip("distributed")
    array = array_of(10_000)
    right = dict(local.reduce(array, ANY_CUT))
    with dask.config.set({"distributed.worker.daemon": False}), distributed.LocalCluster(
            n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None) as cluster, distributed.Client(cluster) as workers:
        for place in ("local:", server.unix):
            chunks = da.from_array(array, 700).map_blocks(die_once, str(tmp_path / place.replace("/", "_")), meta=np.empty(0))
            results = workers.compute(reduced.dask.reduce(chunks, ANY_CUT, server=place)).result(timeout=120)
            assert dict(results) == right
        *_, (column, _, lazy) = columns()
        results = workers.compute(reduced.dask.reduce(lazy, ANY_CUT)).result(timeout=120)
        assert dict(results) == dict(local.reduce(column, ANY_CUT))

"""reduced.dask: the bits of the whole array, whatever the chunks and the workers."""

import math
import os

import dask
import dask.array as da
import numpy as np
import pytest
import reduced
import reduced.dask
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 7, 100])
def test_every_op_in_parts(local, remote, server, parts):
    array = array_of(1000)
    ops = [op for op in reduced.ops if not op.startswith(("bit", "prod"))]
    right = local.reduce(array, ops)
    for place in ("local:", server.unix):
        results = reduced.dask.reduce(da.from_array(array, math.ceil(1000 / parts)), ops, server=place).compute()
        assert dict(results) == dict(right) == dict(remote.reduce(array, ops))
    whole = np.arange(1, 1001)
    bits = reduced.dask.reduce(da.from_array(whole, math.ceil(1000 / parts)), "bit_and,bit_or,bit_xor,prod", overflow="wrap").compute()
    assert dict(bits) == dict(local.reduce(whole, "bit_and,bit_or,bit_xor,prod", overflow="wrap"))


def test_positions(local):
    array = array_of(600).reshape(60, 10)
    for chunks in ((7, 10), (60, 10)):
        results = reduced.dask.reduce(da.from_array(array, chunks), "argmin,argmax").compute()
        assert results.argmin == array.argmin() and results.argmax == array.argmax()
    with pytest.raises(ValueError, match="chunks: got .* allowed: blocks along the first axis only"):
        reduced.dask.reduce(da.from_array(array, (60, 5)), "sum,argmin")
    assert list(reduced.dask.describe(da.from_array(array, (60, 5))).compute()) == [
        "count", "nan_count", "mean", "std", "min", "max", "sum"]
    assert dict(reduced.dask.describe(da.from_array(array, (7, 10))).compute()) == dict(local.describe(array))


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
    with pytest.raises(reduced.InvalidArgumentError, match="median"):
        reduced.dask.reduce(array, "median").compute()


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
        right = local.reduce(array, [*ANY_CUT, "argmin", "argmax"], nan=nan)
        assert dict(local.reduce(column, [*ANY_CUT, "argmin", "argmax"], nan=nan)) == dict(right), column.dtype
        results = reduced.dask.reduce(lazy, [*ANY_CUT, "argmin", "argmax"], nan=nan).compute()
        assert dict(results) == dict(right), column.dtype
        assert dict(reduced.dask.describe(lazy).compute()) == dict(local.describe(array)), column.dtype
    assert reduced.dask.reduce(lazy[lazy & ~lazy], "sum,count").compute() == {"sum": 0, "count": 0}


def test_columns_that_are_refused(local):
    pandas, frames = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    missing = pandas.Series([1, None], dtype="Int64")
    for given, message in ((missing, "array: got a column of Int64 with missing values; allowed: without"),
                           (pandas.Series(["a", "b"]), "dtype: got "), (pandas.Series([1, 2], dtype="M8[ns]"), "dtype: got datetime64")):
        with pytest.raises(TypeError, match=message):
            local.reduce(given, "sum", state=True)
        with pytest.raises(TypeError, match=message):
            reduced.dask.reduce(frames.from_pandas(pandas.DataFrame({"x": given}), npartitions=1)["x"], "sum").compute()
    with pytest.raises(TypeError, match="^option: got unknown; allowed: nan, "):
        reduced.dask.reduce(da.ones(3), "sum", unknown=1)
    assert local.sum(missing.dropna()) == local.sum(missing) == 1 and local.nan_count(missing.astype("Float64")) == 1
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

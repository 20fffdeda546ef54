"""Every container, dtype, pattern of missing elements and layout against Arrow's own values; what is refused; groups of missing elements."""

import array
import asyncio
import collections
import math
import multiprocessing
import pickle
import signal
import subprocess
import sys
import time
from typing import NamedTuple

import numpy as np
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pandas")
pytest.importorskip("polars")

import containers  # noqa: E402
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
import pandas as pd  # noqa: E402
import polars as pl  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.compute as pc  # noqa: E402
import reduced  # noqa: E402
import reduced.aio  # noqa: E402

OPS = ["sum", "min", "max", "count", "mean"]
# Which of 24 elements are missing.
PATTERNS = {"none": (), "one": (7,), "some": (0, 3, 8, 9, 15, 23), "all": range(24)}


@pytest.fixture(scope="module", params=["unix", "local"])
def client(request, server):
    with reduced.connect(server.unix if request.param == "unix" else "local:", timeout=60) as connected:
        yield connected


def elements(name):
    """Some of which a float64 does not hold, if the dtype has such."""
    if name == "bool":
        return [i % 3 == 0 for i in range(24)]
    if name.startswith("float"):
        return [i * 0.25 - 2 for i in range(24)]
    info = np.iinfo(name)
    large = [info.max // 2 + 1 if info.min == 0 else info.max // 8, *(abs(info.max // 64 - 2 * i) for i in range(1, 12))]
    return [*large, *([-each for each in large[:10]] if info.min < 0 else [*range(10)]), 0, 1]


def right(arrow):
    """What Arrow says, exactly."""
    there = arrow.drop_null()
    if arrow.type in (pa.bool_(), pa.float16()):  # of which Arrow has no sum
        arrow = arrow.cast(pa.uint8() if arrow.type == pa.bool_() else pa.float64())
    answers = {"count": pc.count(arrow).as_py(), "sum": pc.sum(arrow).as_py() or 0}
    if there:
        answers |= {"min": pc.min(arrow).as_py(), "max": pc.max(arrow).as_py()}
    return answers


@pytest.mark.parametrize("name", [*containers.MISSING, *containers.FULL])
def test_against_arrow(client, name):
    assert len(containers.MISSING) + len(containers.FULL) >= 40
    make = containers.MISSING.get(name) or containers.FULL[name]
    for dtype, arrow_type in containers.TYPES.items():
        for pattern in PATTERNS if name in containers.MISSING else ["none"]:
            arrow = pa.array([None if i in PATTERNS[pattern] else each for i, each in enumerate(elements(dtype))], arrow_type)
            try:
                given = make(arrow)
            except containers.Unsupported:
                continue
            answers = right(arrow)
            result = client.reduce(given, OPS)
            case = (name, dtype, pattern)
            assert {op: result[op] for op in answers} == answers, case
            if pattern == "all":
                assert math.isnan(result.mean) and set(result.errors) == {"min", "max"}, case
                continue
            assert result.mean == pytest.approx(answers["sum"] / answers["count"], rel=1e-15), case
            if not name.startswith(("list", "tuple", "nested", "deque")):
                assert result.max.dtype == np.dtype(dtype), case


def test_nan_is_a_value_and_null_is_none(client):
    arrow = pa.array([1.0, math.nan, None, 4.0])
    for given in (arrow, pl.Series([1.0, math.nan, None, 4.0]), pd.Series(pd.arrays.ArrowExtensionArray(arrow)),
                  np.ma.MaskedArray([1.0, math.nan, 5.0, 4.0], [False, False, True, False])):
        assert math.isnan(client.sum(given)) and client.nan_count(given) == 1 and client.count(given) == 3
        assert client.sum(given, nan="omit") == 5 and client.argmax(given, nan="omit") == 3
    floats = pd.Series([1.0, None, 4.0], dtype="Float64")  # pandas makes NA of NaN
    assert (client.sum(floats), client.count(floats), client.nan_count(floats)) == (5, 2, 0)
    assert math.isnan(client.sum(pd.Series([1.0, None])))  # a float64 of NumPy, where NaN is all there is


def listed(values):
    """Results of any container as a list: of a frame of polars its only row, or its last column."""
    if isinstance(values, pl.DataFrame):
        return list(values.row(0)) if values.height == 1 and "key" not in values.columns else values.to_series(-1).to_list()
    values = values.to_numpy(dtype=object, na_value=None).ravel() if isinstance(values, pd.Series | pd.DataFrame) else np.ma.ravel(values)
    return values.tolist()


def test_frames_keep_integers(client):
    big = 2**53 + 1
    for frame in (pl.DataFrame({"a": [big, None], "b": [1, 2]}), pa.table({"a": [big, None], "b": [1, 2]}),
                  pd.DataFrame({"a": [big, None], "b": [1, 2]}, dtype="int64[pyarrow]"),
                  pd.DataFrame({"a": pd.array([big, None], dtype="Int64"), "b": [1, 2]}),
                  pd.DataFrame({"a": pd.array([big, None], dtype="Int64"), "b": np.array([1, 2], "u1")})):
        result = client.reduce(frame, "sum,count,max", axis=0)
        assert (listed(result.sum), listed(result["count"]), listed(result.max)) == ([big, 3], [1, 2], [big, 2])
        assert listed(client.sum(frame, axis=1)) == [big + 1, 2] and client.argmax(frame) == 0
    unsigned = pd.DataFrame({"a": np.array([2**63, 4], "u8"), "b": [1, 2]})
    assert client.sum(unsigned, axis=0).tolist() == [2**63 + 4, 3]
    assert client.sum(pl.DataFrame({"a": [2**53, 4], "b": [1.5, 2]}), axis=0).row(0) == (2**53 + 4, 3.5)
    assert client.sum(pl.DataFrame({"a": [None, 4], "b": [1.5, 2]}, schema={"a": pl.Int64, "b": pl.Float64}), axis=0).row(0) == (4, 3.5)
    for frame, message in ((pl.DataFrame({"a": [big, 4], "b": [1.5, 2]}),
                            "array: got 9007199254740993 in column 'a' beside other dtypes; allowed: integers that float64 holds"),
                           (pd.DataFrame({"a": [-1, 4], "b": np.array([2**63, 2], "u8")}), "array: got 9223372036854775808 in column 'b'"),
                           (pd.DataFrame({"a": [1], "b": ["x"]}), "array: column 'b': dtype: got str"),
                           (pl.DataFrame({"a": [1], "b": ["x"]}), "array: got column 'b' of string; allowed: bool"),
                           (pd.DataFrame({"a": [1], "b": pd.to_datetime([1])}), "array: column 'b': dtype: got datetime64.*; allowed: bool")):
        with pytest.raises(TypeError, match=f"^{message}"):
            client.sum(frame)
    assert client.sum(pl.DataFrame({"a": [[1, 2], [3, 4]]}, schema={"a": pl.Array(pl.Int64, 2)}).get_column("a").to_arrow(), axis=0).tolist() == [4, 6]
    assert client.sum(pl.DataFrame()) == 0 and client.sum(pd.DataFrame()) == 0


def test_rows_that_are_missing(client):
    rows = pa.array([{"x": 1, "y": 2}, None, {"x": None, "y": 8}])
    assert client.sum(rows, axis=0).tolist() == [1, 10] and client.count(rows, axis=1).tolist() == [2, 0, 1]
    lists = pa.array([[1, 2], None, [None, 8]], pa.list_(pa.int64(), 2))
    assert client.sum(lists, axis=0).tolist() == [1, 10] and client.count(lists[1:]) == 1


class Point(NamedTuple):
    x: float
    y: float


def test_numbers_of_python(client):
    for given, total in (([2**63, 1], 2**63 + 1), ([[2**63], [1]], 2**63 + 1), ([np.uint64(2**63), 1], 2**63 + 1), ([2**64 - 1], 2**64 - 1),
                         ([-(2**63), 5], 5 - 2**63), ((2**53 + 1,), 2**53 + 1), ([True, 2], 3), ([2**60, 0.5], float(2**60)), (2**63, 2**63),
                         ([np.int64(2**53 + 1), np.ma.masked], 2**53 + 1), ([np.array([2**53 + 1]), np.array([1], "i1")], 2**53 + 2),
                         ([collections.deque([2**63]), (1,)], 2**63 + 1),
                         ([array.array("Q", [2**63]), array.array("q", [1])], 2**63 + 1), ([(2**53 + 1, 1), [2, 3]], 2**53 + 7), ([np.full(3, 2**43 + 1)] * 100_000, 300_000 * (2**43 + 1)),
                         (range(2**53, 2**53 + 2), 2**54 + 1), ([2**62] * 3 + [-(2**62)] * 3, 0)):
        assert client.sum(given) == total and type(client.sum(given).item()) is type(total)
    for given, message in (([2**63, -1], "array: got integers from -1 to 9223372036854775808; allowed: those of int64, or those of uint64"),
                           ([Point(2**53 + 1, 0.5)], "array: got 9007199254740993 beside floats"),
                           ([Point(2**53 + 1, 1), [0.5, 1]], "array: got 9007199254740993 in"),
                           ([array.array("Q", [2**63]), array.array("q", [-1])], "array: got 9223372036854775808 in"),
                           ([2**64], "array: got integers from 18446744073709551616"), (2**64, r"array: got 18446744073709551616"),
                           ([2**53 + 1, 0.5], "array: got 9007199254740993 beside floats; allowed: integers that float64 holds"),
                           ([np.int64(2**53 + 1), np.float32(1)], "array: got 9007199254740993 beside floats"),
                           ([np.array([2**53 + 1]), np.array([0.5])], r"array: got 9007199254740993 in \[0\] beside other dtypes"),
                           ([[1, 2], [3]], "array: got sequences that are no array"),
                           ([np.ones(2), np.ones(3)], "array: got sequences that are no array"), ([np.ones(2), np.ones(3, "i1")], "array: got a list of arrays of shapes")):
        with pytest.raises(TypeError, match=f"^{message}"):
            client.sum(given)
    long = list(range(2**62, 2**62 + 600_000))
    assert client.max(long) == 2**62 + 599_999 and client.max([*long, 2**63]) == 2**63
    for given in ([*long, 0.5], [0.5] * 2**18 + long):
        with pytest.raises(TypeError, match="beside .*; allowed: integers that float64 holds"):
            client.max(given)


# Columns of a frame: a dtype, and the bounds of its elements.
COLUMNS = {"i1": (-(2**7), 2**7), "u1": (0, 2**8), "i4": (-(2**31), 2**31), "i8": (-(2**63), 2**63), "u8": (0, 2**64), "u8 small": (0, 2**40),
           "f8": (-8, 8), "i8 small": (-(2**50), 2**50)}
KINDS = {"arrow": lambda columns: pa.table(columns), "polars": lambda columns: pl.DataFrame({name: pl.from_arrow(each) for name, each in columns.items()}),
         "batch": lambda columns: pa.table(columns).combine_chunks().to_batches()[0],
         "pandas": lambda columns: pa.table(columns).to_pandas(types_mapper=pd.ArrowDtype),
         "nullable": lambda columns: pd.DataFrame({name: nullable(each) for name, each in columns.items()})}


def nullable(arrow):
    kind = pd.arrays.FloatingArray if arrow.type == pa.float64() else pd.arrays.IntegerArray
    arrow = arrow.combine_chunks()
    return kind(np.asarray(arrow.fill_null(0)), np.asarray(arrow.is_null()))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_frames_are_exact_or_refused(local, data):
    """Random columns, nulls, chunks and slices: what is answered is exact; what is refused fits no dtype."""
    length, lists = data.draw(st.integers(1, 20)), {}
    for i, kind in enumerate(data.draw(st.lists(st.sampled_from(list(COLUMNS)), min_size=1, max_size=4))):
        low, high = COLUMNS[kind]
        numbers = st.integers(low, high - 1) if kind[0] != "f" else st.integers(low, high).map(lambda each: each / 4)
        lists[f"c{i}"] = kind[:2], data.draw(st.lists(st.none() | numbers, min_size=length, max_size=length))
    columns = {}
    for name, (kind, values) in lists.items():
        ends = sorted(data.draw(st.lists(st.integers(0, length), max_size=3)))
        whole = pa.array([None, *values, 1], pa.from_numpy_dtype(kind))[1 : 1 + length]
        columns[name] = pa.chunked_array([whole[begin:end] for begin, end in zip([0, *ends], [*ends, length])])
    frame = KINDS[data.draw(st.sampled_from(list(KINDS)))](columns)
    there = [[each for each in values if each is not None] for _, values in lists.values()]
    everything, floats = [each for column in there for each in column], any(kind == "f8" for kind, _ in lists.values())
    kept = all(float(each) == each for each in everything) if floats and len(lists) > 1 else \
        min(everything, default=0) >= 0 or max(everything, default=0) < 2**63
    by_columns = isinstance(frame, pl.DataFrame | pd.DataFrame)  # along the rows, each in its own dtype
    for axis in (0, 1):
        try:
            result = local.reduce(frame, "min,max,count,sum", axis=axis, empty="fill", overflow="wrap")
        except TypeError as error:
            assert not kept and "holds, or one dtype" in str(error) and (axis == 1 or not by_columns)
            continue
        assert kept or axis == 0 and by_columns
        if axis == 1:
            continue
        assert listed(result["count"]) == list(map(len, there))
        for i, (column, (kind, _)) in enumerate(zip(there, lists.values())):
            low, high, total = (listed(result[op])[i] for op in ("min", "max", "sum"))
            assert not column or (low, high) == (min(column), max(column))
            wraps = kind != "f8" and (by_columns or not floats)
            assert (int(total) - sum(map(int, column))) % 2**64 == 0 if wraps else total == math.fsum(column)


class Refuses:
    """As a tensor of a dtype that NumPy has none for."""

    def __init__(self, dtype):
        self.dtype, self.shape = dtype, (2,)

    def __dlpack__(self, **_):
        raise BufferError(f"{self.dtype} is not supported by dlpack")

    def __dlpack_device__(self):
        return (1, 0)


def test_what_is_refused_names_its_cause(client):
    import ml_dtypes

    for given, message in (
        ([1, None], r"dtype: got object, such as None at \[1\]; allowed: bool, int8"),
        (np.array([[1, None]]), r"dtype: .* None at \[0, 1\]"),
        (np.array([1, 2**70]), r"array: got 1180591620717411303424 at \[1\]; allowed: integers of 64 bits"),
        (np.array([1, 2.5], object), "dtype: got object, of numbers; allowed: .* after a cast"),
        ([1, pd.NA], r"dtype: got object, such as pandas.*NAType at \[1\]"),
        ({1, 2}, "array: got set; allowed: arrays, and sequences of numbers"),
        (None, "array: got None"),
        (iter([1]), "array: got list_iterator"),
        ([1, "a"], "dtype: got <U"),
        (np.zeros(2, complex), "dtype: got complex128; .* real and imaginary"),
        (np.zeros(2, "M8[ns]"), r"op sum: got datetime64; allowed: .*, max, mean"),
        (np.zeros(2, ml_dtypes.float8_e4m3fnuz), "dtype: got float8_e4m3fnuz; .* after a cast"),
        (pd.Series([pd.Timestamp(0)]), "op sum: got datetime64"),
        (pd.period_range("2020", periods=2), r"dtype: got period\[D\]"),
        (pd.Series(["a"], dtype="category"), "dtype: got category; .* their codes"),
        (pl.Series([1.5]).cast(pl.Decimal(10, 2)), "array: got a Series of Decimal"),
        (pl.Series([None]), "array: got a Series of Null"),
        (pl.Series(["a"], dtype=pl.Categorical), "array: got a Series of Categorical; .* their codes"),
        (pa.array([1]).dictionary_encode(), "array: got a DictionaryArray of dictionary"),
        (pa.array([1], pa.time32("s")), r"array: got a Time32Array of time32\[s\]; .* of times their integers"),
        (Refuses("torch.float8_e5m2fnuz"), "dtype: got torch.float8_e5m2fnuz"),
        (Refuses("torch.float8_e5m2"), "array: got a Refuses of f8_e5m2 that DLPack does not export; allowed: dense arrays"),
        (Refuses("torch.float32"), "array: got a Refuses of torch.float32 that DLPack does not export .*; allowed: dense arrays"),
    ):
        with pytest.raises(TypeError, match=f"^{message}"):
            client.sum(given)
    with pytest.raises(TypeError, match="^array: got a Series with missing values; allowed: without"):
        client.put(pl.Series([1, None]))
    assert client.sum([1, 2], keys=pl.Series([1, None])).tolist() == [1]
    with client.session() as session:
        assert session.sum(pl.Series([1, None])) == 1 and session.median(pl.Series([1, None, 4])) == 2.5


def test_torch(client):
    torch = pytest.importorskip("torch")
    tensor = torch.arange(6, dtype=torch.float32).reshape(2, 3).requires_grad_()
    assert client.sum(tensor) == 15 and client.sum([tensor, tensor], axis=0).tolist() == [[0, 2, 4], [6, 8, 10]]
    assert client.sum((tensor * 2).T) == 30 and client.sum(tensor.to(torch.bfloat16)) == 15
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        assert client.sum(tensor.to(dtype)) == 15 and client.argmax(tensor.to(dtype).T) == 5
    for given, message in ((tensor.to(torch.float8_e4m3fnuz), "dtype: got torch.float8_e4m3fnuz"), (tensor.to("meta"), "array: got a Tensor"),
                           (tensor.to_sparse(), "array: got a Tensor")):
        with pytest.raises(TypeError, match=f"^{message}"):
            client.sum(given)


MASKS = {"numpy.ma": np.ma.MaskedArray([True, True, False, True], [False, True, False, False]), "polars": pl.Series([True, None, False, True]),
         "pyarrow": pa.array([True, None, False, True]), "chunked": pa.chunked_array([[True, None], [False, True]]),
         "pandas": pd.array([True, None, False, True], dtype="boolean"), "list": [True, False, False, True],
         "frame": pl.DataFrame({"x": [True, None, False, True]})}


@pytest.mark.parametrize("mask", MASKS)
def test_what_is_missing_in_where_is_not_true(client, mask):
    array, where = np.array([1, 2, 4, 8]), MASKS[mask]
    if mask == "frame":
        array = array.reshape(4, 1)
    assert client.reduce(array, "sum,count", where=where) == {"sum": 9, "count": 2}
    if mask != "frame":
        assert client.sum(pl.Series([None, 2, 4, 8]), where=where) == 8
        assert client.describe(array, where=where).max == 8


def grouped():
    """Keys of groups, of which 3 has no element, in all containers; a masked group's memory holds other values."""
    values, gone = [7, 1, 2, 9], [True, False, False, True]
    floats = np.array([np.nan, 1, 2, np.nan])
    return {"float": floats, "numpy.ma": np.ma.MaskedArray(values, gone), "polars": pl.Series([None, 1, 2, None]), "pyarrow": pa.array([None, 1, 2, None]),
            "pandas": pd.array([None, 1, 2, None], dtype="Int64"), "pandas float": pd.array([None, 1, 2, None], dtype="Float64"),
            "pandas of Arrow": pd.Series([None, 1, 2, None], dtype="int64[pyarrow]"), "two columns": pl.DataFrame({"a": [None, 1, 2, None]})}


@pytest.mark.parametrize("container", grouped())
def test_groups_without_elements_stay(client, container):
    given, keys = grouped()[container], np.array([3, 5, 5, 9], "i2")
    result = client.reduce(given, "count,sum,mean,nan_count,argmax", keys=keys, nan="omit", empty="fill")
    assert result.group_keys.tolist() == [3, 5, 9] and result.group_keys.dtype == np.int16
    assert listed(result["count"]) == [0, 2, 0] and listed(result.sum) == [0, 3, 0] and listed(result.argmax) in ([-1, 2, -1], [None, 2, None])
    assert [None if each is None or np.isnan(each) else each for each in listed(result.mean)] == [None, 1.5, None]
    with pytest.raises(reduced.InvalidArgumentError, match=r"output \[0(, 0)?\]: op min: got an"):
        client.min(given, keys=keys, nan="omit", empty="error")
    known = client.count(given, keys=keys, groups=10, nan="omit")
    assert listed(known) == [0, 0, 0, 0, 0, 2, 0, 0, 0, 0]
    # A filter by where is that of SQL: what it leaves nothing of is no group.
    chosen = np.array([True, True, True, False]).reshape(-1, *[1] * (np.ndim(given) - 1))
    kept = client.reduce(given, "count", keys=keys, nan="omit", where=chosen)
    assert kept.group_keys.tolist() == [3, 5] and listed(kept["count"]) == [0, 2]
    summary = client.describe(given, keys=keys)
    for op, value in (("min", 1), ("max", 2), ("argmin", 1), ("argmax", 2), ("sum", 3), ("count", 2), ("mean", 1.5)):
        assert listed(summary[op])[1] == value, op
    for op in ("min", "max"):
        assert [each is None or np.isnan(each) for each in listed(summary[op])] == [True, False, True]


def test_groups_agree_with_pandas(client):
    random = np.random.default_rng(3)
    for _ in range(20):
        keys, values = random.integers(0, 40, 60), random.integers(-(2**62), 2**62, 60) // 60
        missing = random.random(60) < random.choice([0.1, 0.5, 0.95])
        column = pd.Series(pd.arrays.IntegerArray(values, missing))
        groups = column.groupby(keys)
        result = client.reduce(column, "sum,count,min,max", keys=keys, empty="fill")
        assert np.array_equal(result.group_keys, groups.count().index) and np.array_equal(result["count"], groups.count())
        assert np.array_equal(result.sum, groups.sum()) and np.array_equal(result.max[result["count"] > 0], groups.max().dropna())


def test_an_op_without_an_answer_leaves_the_others_theirs(client):
    wide = np.array([-1303487490025821099, -8371390547526583103, -2572374159461887095])
    result = client.reduce(wide, ["mean", "sum", "max", "prod"])
    assert result.mean == -4.0824173990047636e18 and result.max == wide.max() and list(result) == ["mean", "max"] and list(result.errors) == ["sum", "prod"]
    assert repr(result).splitlines()[1] == "sum     -"
    for read in (lambda: result.sum, lambda: result["sum"], lambda: pickle.loads(pickle.dumps(result)).sum):
        with pytest.raises(OverflowError, match="the sum of this i64 array is -12247252197014291297"):
            read()
    with pytest.raises(OverflowError):
        client.sum(wide)
    with pytest.raises(OverflowError):
        client.reduce(wide, "sum,prod")
    result = client.reduce(np.empty(0), "sum,min,argmax")
    assert dict(result) == {"sum": 0} and list(result.errors) == ["min", "argmax"]
    with pytest.raises(reduced.InvalidArgumentError, match="^op min: got an empty array"):
        _ = result.min
    result = client.reduce(np.array([2**62, 2**62, 5]), "sum,mean", keys=np.array([1, 1, 2]))
    assert result.mean.tolist() == [2.0**62, 5] and result.group_keys.tolist() == [1, 2]
    with pytest.raises(OverflowError, match=r"^output \[0\]: integer overflow"):
        _ = result.sum
    for wrong in ({"engine": "none"}, {"keys": [1]}, {"nan": "maybe"}):  # an error of the request stays one
        with pytest.raises(reduced.InvalidArgumentError):
            client.reduce(wide, "mean,sum,max", **wrong)
    with pytest.raises(reduced.OutOfRangeError, match=r"^keys\[2\]"):
        client.reduce(wide, "mean,sum,max", keys=np.array([0, 1, 2]), groups=2)


def test_describe_has_what_there_is(client):
    for given in (np.array([2**62, 2**62]), pl.Series([2**62, None, 2**62]), pd.array([2**62, None, 2**62], dtype="Int64")):
        result = client.describe(given)
        assert (result.sum, result.mean, result.max, result.argmin, result.std) == (None, 2.0**62, 2**62, 0, 0)
        assert "sum" in result.errors and "sum" not in result and isinstance(result.errors["sum"], OverflowError)
        assert pickle.loads(pickle.dumps(result)).sum is None
    for nothing in (np.empty(0), pl.Series([None], dtype=pl.Int8), np.array([math.nan])):
        result = client.describe(nothing)
        assert (result.min, result.argmax, result["count"], result.sum) == (None, None, 0, 0) and math.isnan(result.mean)
    shown = repr(client.describe(np.empty(0))).splitlines()
    assert [line for line in shown if line.endswith(" -")] == ["min        -", "max        -", "argmin     -", "argmax     -"]
    result = client.describe(np.array([2**62, 2**62, 5]), keys=np.array([1, 1, 2]))
    assert np.ma.getmaskarray(result.sum).tolist() == [True, False] and result.sum[1] == 5 and result.max.tolist() == [2**62, 5]
    result = client.describe(np.array([[2**63, 2**63], [1, 2]], "u8"), axis=1)
    assert np.ma.getmaskarray(result.sum).tolist() == [True, False] and result.sum[1] == 3
    assert client.describe(np.array([[1, 2], [3, 4]]), axis=0).sum.tolist() == [4, 6] and type(client.describe(np.ones((2, 2)), axis=0).sum) is np.ndarray
    with pytest.raises(reduced.InvalidArgumentError):
        client.describe([1.0], engine="none")


def test_a_summary_of_sums_masks_what_does_not_fit(client):
    """Also what wraps to where it saturates."""
    random = np.random.default_rng(4)
    for dtype in ("i8", "u8"):
        info = np.iinfo(dtype)
        for _ in range(200):
            array = random.choice(np.array([info.min, info.max, 0, 1, info.max // 2], dtype), (3, random.integers(1, 6)))
            exact = [sum(map(int, row)) for row in array]
            found = client.describe(array, axis=1).sum
            assert np.ma.getmaskarray(found).tolist() == [not info.min <= each <= info.max for each in exact]
            assert all(gone or value == each for value, each, gone in zip(np.ma.getdata(found).tolist(), exact, np.ma.getmaskarray(found)))


def test_clients_pickle(client):
    again = pickle.loads(pickle.dumps(client))
    with again:
        assert again.server == client.server and again.sum([1, 2]) == 3 and again._timeout == client._timeout
    with reduced.connect("127.0.0.1:1", timeout=0.25, max_attempts=1, connections=3) as given:
        assert pickle.loads(pickle.dumps(given))._connected_by == given._connected_by
    cloudpickle = pytest.importorskip("cloudpickle")  # dask's
    total = pickle.loads(cloudpickle.dumps(lambda numbers: client.sum(numbers)))
    assert total([4]) == 4
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(client.sum, [[1, 2], [3]]) == [3, 3]


class Alarm(Exception):
    pass


def lateness(work):
    """How long after a signal its handler ran while `work` did, in seconds; None: `work` ended before."""
    due = [0.0]

    def ring(_signal, _frame):
        raise Alarm(time.monotonic() - due[0])

    before = signal.signal(signal.SIGALRM, ring)
    try:
        due[0] = time.monotonic() + 0.01
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        work()
    except Alarm as alarm:
        return alarm.args[0]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return None


def copies():
    size = 24_000_000
    column = pa.array(np.zeros(size))
    bits = np.zeros(size, bool)
    return {
        "transposed": lambda: ("argmax", np.zeros((6000, 4000)).T),
        "strided": lambda: ("median", np.zeros((size, 2))[:, 0]),
        "the other byte order": lambda: ("median", np.zeros(size, ">f8")),
        "chunks": lambda: ("sum", pa.chunked_array([column] * 2)),
        "frame": lambda: ("sum", pl.DataFrame({"a": np.zeros(size // 2), "b": np.zeros(size // 2, "i8")})),
        "pandas": lambda: ("median", pd.arrays.IntegerArray(np.zeros(size, "i8"), bits)),
        "pandas in blocks": lambda: ("sum", pd.concat([pd.Series(np.zeros(size // 2))] * 2, axis=1)),
        "mask": lambda: ("sum", np.ma.MaskedArray(np.zeros(size * 4, "i1"), np.zeros(size * 4, bool))),
        "list": lambda: ("sum", [1.0] * 8_000_000),
        "put": lambda: ("put", np.zeros(size * 2)),
    }


@pytest.mark.parametrize("what", copies())
def test_signals_interrupt_copies(local, what):
    method, array = copies()[what]()
    late = [lateness(lambda: getattr(local, method)(array)) for _ in range(8)]
    assert min((each for each in late if each is not None), default=0) < 0.05, late
    assert any(each is not None for each in late), late


def test_a_cancelled_task_ends_while_its_array_is_copied():
    array = np.zeros((9_000, 8_000)).T

    async def lateness_of_cancel():
        async with reduced.aio.connect("local:") as client:
            task = asyncio.ensure_future(client.argmax(array))
            await asyncio.sleep(0.03)
            began = time.monotonic()
            assert task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return time.monotonic() - began

    late = [asyncio.run(lateness_of_cancel()) for _ in range(5)]
    assert min(late) < 0.05, late


def test_libraries_are_not_imported():
    subprocess.run([sys.executable, "-c", "import sys, reduced; reduced.connect('local:').sum([1, 2.5]); "
                    "assert not {'pyarrow', 'pandas', 'polars', 'torch'} & set(sys.modules)"], check=True, timeout=60)

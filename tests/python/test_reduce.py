"""Every op and dtype, with every kind of client, against obvious code."""

import math
import pickle

import ml_dtypes
import numpy as np
import oracle
import pytest
import reduced
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

DTYPES = [np.dtype(name) for name in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")]
BF16 = np.dtype(ml_dtypes.bfloat16)
INTEGERS_ONLY = {"bit_and", "bit_or", "bit_xor"}
# One server for all examples of a property.
PROPERTY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def supported(dtype):
    return [op for op in reduced.ops if op not in reduced._core.distribution and (op not in INTEGERS_ONLY or dtype.kind in "iub")]


def sample(dtype, size=1000):
    random = np.random.default_rng(1)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return random.integers(info.min // 2, info.max // 2, size, dtype=dtype, endpoint=True) // (1 << max(0, info.bits - 20))
    if dtype.kind == "b":
        return random.integers(0, 2, size).astype(bool)
    return random.normal(size=size).astype(dtype)


def bits(result):
    """The results in a form that tells -0 and NaNs apart."""
    return {op: (type(value).__name__, np.asarray(value).tobytes()) for op, value in result.items()}


@pytest.mark.parametrize("dtype", [*DTYPES, BF16], ids=str)
def test_every_op(client, dtype):
    array = sample(dtype)
    ops = supported(dtype)
    result = client.reduce(array, ops, ddof=1, overflow="wrap")
    assert list(result) == ops and len(result) == len(ops) and result.size == 1000
    wide = array.astype(np.float64) if dtype == BF16 else array
    for op, right in (oracle.exact(wide, ddof=1) | oracle.numpy_answers(wide)).items():
        assert result[op] == right, op
        assert getattr(result, op) == result[op]
        assert getattr(client, op)(array, **({"ddof": 1} if op in ("var", "std") else {})) == right, op


@pytest.mark.parametrize(("dtype", "op", "result_dtype"), [
    ("f4", "sum", np.float64), ("f4", "max", np.float32), ("f2", "min", np.float16), ("i2", "sum", np.int64), ("u1", "sum", np.uint64),
    ("i8", "mean", np.float64), ("i4", "max", np.int32), ("?", "max", np.bool_), ("i4", "any", np.bool_), ("f8", "argmax", int),
    ("f8", "nan_count", int), ("f8", "count", int), ("u8", "bit_or", np.uint64), (BF16, "max", ml_dtypes.bfloat16),
], ids=str)
def test_types_of_results(local, dtype, op, result_dtype):
    assert type(getattr(local, op)(np.ones(3, dtype))) is result_dtype


@PROPERTY
@given(array=hnp.arrays(st.sampled_from(DTYPES), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=40)))
def test_a_server_and_local_have_the_same_bits(remote, local, array):
    ops = [op for op in supported(array.dtype) if array.size > 0 or op not in ("min", "max", "argmin", "argmax", "range")]
    for nan in ("propagate", "omit"):
        try:
            there = remote.reduce(array, ops, nan=nan, overflow="saturate", state=True)
        except reduced.InvalidArgumentError as error:  # no element that is no NaN
            with pytest.raises(reduced.InvalidArgumentError, match=str(error).partition(":")[0]):
                local.reduce(array, ops, nan=nan, overflow="saturate", state=True)
            continue
        here = local.reduce(array, ops, nan=nan, overflow="saturate", state=True)
        assert bits(here) == bits(there)
        assert here.state == there.state
        assert bits(here.state.results) == bits(there)


@PROPERTY
@given(array=hnp.arrays(st.sampled_from(["f4", "f8"]), st.integers(0, 300),
                        elements={"allow_nan": False, "allow_infinity": False}))
def test_sums_are_rounded_once(local, array):
    right = oracle.exact(array)
    for op, value in local.reduce(array, list(right)).items():
        assert value == right[op] or (math.isnan(value) and math.isnan(right[op])), op


@PROPERTY
@given(array=hnp.arrays(st.sampled_from(["i1", "u4", "i8"]), st.integers(1, 300)))
def test_integers(local, array):
    right = oracle.exact(array) | oracle.numpy_answers(array)
    for op, value in right.items():
        if op in ("sum", "l1", "sum_squares") and not fits(value, local.count, op, array.dtype):
            with pytest.raises(reduced.OutOfRangeError):
                local.reduce(array, op)
        else:
            assert local.reduce(array, op)[op] == value, op


def fits(value, _count, op, dtype):
    signed = op == "sum" and dtype.kind == "i"
    return -(2**63) <= value < 2**63 if signed else value < 2**64


def test_nans(client):
    array = np.array([1, np.nan, 3, np.nan])
    assert math.isnan(client.sum(array))
    assert client.argmax(array) == 1
    result = client.reduce(array, "sum,count,nan_count,max", nan="omit")
    assert dict(result) == {"sum": 4, "count": 2, "nan_count": 2, "max": 3}


def test_options(local, remote):
    array = np.array([2**62, 2**62], np.int64)
    for client in (local, remote):
        assert client.sum(array, overflow="saturate") == 2**63 - 1
        assert client.sum(array, overflow="wrap") == -(2**63)
        with pytest.raises(OverflowError, match="9223372036854775808"):
            client.sum(array)
        plain = client.reduce(np.ones(10), "sum", precision="f64")
        assert plain.ran_on.precision == "f64" and plain.ran_on.engine == "cpu"
        rung = client.reduce(np.ones(10), "sum", pipeline="sequential")
        assert rung.ran_on.pipeline == "sequential" and rung.sum == 10


def test_describe(client):
    result = client.describe([1.0, 3.0, math.nan])
    names = ["count", "missing", "mean", "std", "min", "25%", "50%", "75%", "max", "argmin", "argmax", "sum", "nan_count"]
    assert list(result) == names
    assert result.count == 2 and result.std == math.sqrt(2) and result.argmax == 1
    for nothing in ([], [math.nan]):
        result = client.describe(np.array(nothing, float))
        assert result.count == 0 and "min" not in result and math.isnan(result.mean)
    with pytest.raises(reduced.InvalidArgumentError):
        client.describe([1.0], engine="none")


def test_how_results_are_shown(local, remote):
    result = remote.reduce(np.array([1.0, 2.0]), ["sum", "argmax"])
    assert repr(result).splitlines()[:2] == ["sum     3.0", "argmax  1"]
    assert repr(result).splitlines()[2].startswith("ran on  cpu, exact, ")
    page = result._repr_html_()
    assert ">3.0</td>" in page and "kernel" in page and page.count("<table>") == page.count("</table>") == 2
    assert {"kernel", "total"} <= set(result.timing) and result.timing["total"] > 0
    assert result.via == "inline" and result.attempts == 1 and result.state is None
    assert result.ran_on.device == "cpu" and result.ran_on.reason
    assert local.reduce([1.0], "sum").via == "local"
    with pytest.raises(AttributeError, match="mean: got an op that was not asked for"):
        _ = result.mean
    with pytest.raises(AttributeError):
        _ = result.nothing
    assert "sum" in dir(result) and "argmax" in result and "mean" not in result


def test_results_pickle(client):
    result = client.reduce(np.array([1.0, np.nan], ml_dtypes.bfloat16), ["sum", "max", "nan_count"], state=True, nan="omit")
    other = pickle.loads(pickle.dumps(result))
    assert dict(other) == dict(result) and repr(other) == repr(result) and other.timing == result.timing
    assert (other.ran_on, other.via, other.size, other.attempts) == (result.ran_on, result.via, 2, 1)
    assert other.state == result.state and dict(pickle.loads(pickle.dumps(result.state.results))) == dict(result)


def test_large_arrays(client):
    array = np.random.default_rng(2).normal(size=3_000_000)
    if isinstance(client, reduced.Session):
        array = array[:10_000]
    result = client.reduce(array, ["sum", "max", "argmin"])
    assert result.sum == math.fsum(array) and result.max == array.max() and result.argmin == array.argmin()

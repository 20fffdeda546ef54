"""Ops about two arrays, comparisons and assert_close: against fractions and NumPy."""

import asyncio
import math
import pickle
from fractions import Fraction

import ml_dtypes
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import reduced
import reduced.aio
import reduced.testing

PAIRS = [op for op, operand in reduced._core.operands.items() if operand == "y" and op != "compare"]
WEIGHTED = ["sum", "mean", "var", "std"]


@pytest.fixture(params=["remote", "local"])
def whole(request):
    return request.getfixturevalue(request.param)


def rounded(value):
    """A fraction as f64, ties to even; of a square root see `root`."""
    return float(value)


def root(square):
    """The square root of a fraction, rounded once: by integers of 300 bits."""
    if square == 0:
        return 0.0
    shift = 300 - (square.numerator.bit_length() - square.denominator.bit_length()) // 2
    scaled = square.numerator * 4**shift // square.denominator if shift >= 0 else square.numerator // (square.denominator * 4**-shift)
    low = math.isqrt(scaled)
    sticky = Fraction(2 * low + 1, 2) if low * low != square * Fraction(4) ** shift else Fraction(low)
    return float(sticky / Fraction(2) ** shift)


def right(op, x, y, ddof=0):
    """What an op answers, of elements that are finite."""
    x, y = [Fraction(each) for each in x.ravel().tolist()], [Fraction(each) for each in y.ravel().tolist()]
    n, sx, sy, sxy = len(x), sum(x), sum(y), sum(a * b for a, b in zip(x, y))
    sxx, syy = sum(a * a for a in x), sum(b * b for b in y)
    cxy, cxx, cyy = n * sxy - sx * sy, n * sxx - sx * sx, n * syy - sy * sy
    if op in ("dot", "weighted_sum"):
        return rounded(sxy)
    if op == "cov":
        return rounded(cxy / (n * (n - ddof))) if n > ddof else math.nan
    if op == "corr":
        return math.copysign(root(cxy * cxy / (cxx * cyy)), cxy) if cxx * cyy else math.nan
    if op == "slope":
        return rounded(cxy / cxx) if cxx else math.nan
    if op == "intercept":
        return rounded((sy - cxy / cxx * sx) / n) if cxx else math.nan
    if op == "distance_l1":
        return rounded(sum(abs(a - b) for a, b in zip(x, y)))
    if op == "distance_l2":
        return root(sum(((a - b) ** 2 for a, b in zip(x, y)), Fraction(0)))
    if op == "distance_max":
        return rounded(max((abs(a - b) for a, b in zip(x, y)), default=0))
    if op == "cosine":
        return math.copysign(root(sxy * sxy / (sxx * syy)), sxy) if sxx * syy else math.nan
    if op == "weighted_mean":
        return rounded(sxy / sy) if sy else math.nan
    if sy - ddof <= 0:
        return math.nan
    square = (sum(b * a * a for a, b in zip(x, y)) - sxy * sxy / sy) / (sy - ddof)
    return rounded(square) if op == "weighted_var" else root(square)


def arrays(random, number, shape):
    dtypes = ["f8", "f4", "f2", "i4", "u1", "i8"]
    for dtype in (dtypes[number % 6], dtypes[(number // 2) % 6]):
        if dtype[0] == "f":
            yield random.normal(size=shape, scale=10.0 ** random.integers(-3, 4)).astype(dtype)
        else:
            yield random.integers(0 if dtype[0] == "u" else -100, 100, shape).astype(dtype)


def same(got, wanted):
    np.testing.assert_array_equal(np.asarray(got, np.float64), np.asarray(wanted, np.float64))


def test_ops_are_exact(whole):
    random = np.random.default_rng(1)
    for number in range(24):
        shape = tuple(random.integers(1, 9, random.integers(1, 4)))
        x, y = arrays(random, number, shape)
        results = whole.reduce(x, PAIRS, y=y, ddof=1)
        for op in PAIRS:
            same(results[op], right(op, x, y, 1))
            assert getattr(whole, op)(x, y, ddof=1) == results[op] or math.isnan(results[op])
        weights = np.abs(y)
        for op in WEIGHTED:
            same(getattr(whole, op)(x, weights=weights), right(f"weighted_{op}", x, weights))
            same(getattr(whole, f"weighted_{op}")(x, weights, ddof=1), right(f"weighted_{op}", x, weights, 1))


def test_as_numpy_has_them(whole):
    random = np.random.default_rng(2)
    x, y, w = random.normal(size=(4, 6)), random.normal(size=(4, 6)), random.random((4, 6))
    assert whole.cov(x[0], y[0]) == pytest.approx(np.cov(x[0], y[0])[0, 1], rel=1e-12)  # ddof is 1 by default
    assert whole.corr(x[0], y[0]) == pytest.approx(np.corrcoef(x[0], y[0])[0, 1], rel=1e-12)
    np.testing.assert_allclose(whole.mean(x, weights=w, axis=1), np.average(x, axis=1, weights=w), rtol=1e-14)
    np.testing.assert_allclose(whole.dot(x, y, axis=1), (x * y).sum(1), rtol=1e-12)
    assert whole.dot([1e308, 1, -1e308], [10, 1, 10]) == 1.0
    assert whole.cosine(x, x) == 1.0 and math.isnan(whole.corr(x[0], np.ones(6)))
    i, u = np.array([2**62, -1]), np.array([1, 2], np.uint64)
    assert whole.dot(i, u) == 2**62 - 2 and whole.dot(i, u).dtype == np.int64
    assert whole.dot(u, u).dtype == np.uint64 and whole.dot(np.array([True, True]), [3, 4]) == 7
    with pytest.raises(OverflowError, match="^dot: |overflow"):
        whole.dot(i, i)
    assert whole.dot(i, i, overflow="wrap") == 1


def lower_quantile(x, weights, q):
    """By fractions: the least element up to which the weights are q times their sum or more."""
    pairs = sorted((value, Fraction(weight)) for value, weight in zip(x.ravel().tolist(), weights.ravel().tolist()) if weight != 0)
    target, total = Fraction(q) * sum(weight for _, weight in pairs), Fraction(0)
    for value, weight in pairs:
        total += weight
        if total >= target:
            return value
    return math.nan


def test_weighted_quantiles_are_exact(whole):
    random = np.random.default_rng(6)
    q = [0.5, 0, 1, 0.1, 1 / 3, 5e-324, 0.9]
    for number in range(24):
        shape = tuple(random.integers(1, 40, random.integers(1, 3)))
        x, weights = arrays(random, number, shape)
        weights = np.abs(weights)
        x.ravel()[:: 3] = x.ravel()[0]  # ties
        weights.ravel()[1:][random.random(weights.size - 1) < 0.3] = 0
        weights[0] = 1
        got = whole.quantile(x, q, weights=weights)
        same(got, [lower_quantile(x, weights, each) for each in q])
        if x.dtype.kind == weights.dtype.kind:
            assert got.dtype == x.dtype
        assert whole.median(x, weights=weights) == got[0] == whole.weighted_median(x, weights)
        columns = whole.weighted_quantile(x, q, weights, axis=0).reshape(len(q), -1)
        for number, (column, beside) in enumerate(zip(x.reshape(shape[0], -1).T, weights.reshape(shape[0], -1).T)):
            same(columns[:, number], [lower_quantile(column, beside, each) for each in q])
    assert whole.quantile([1.0, 2, 3], 0.5, weights=[1e308, 5e-324, 1e308]) == 2.0
    assert math.isnan(whole.median([1.0, 2], weights=[0, 0])) and math.isnan(whole.median([1.0, np.nan], weights=[1, 0]))
    assert whole.median([1.0, np.nan, 3], weights=[1, 9, 2], nan="omit") == 3


def test_weighted_quantiles_as_numpy_has_them(whole):
    random = np.random.default_rng(7)
    x, weights = random.normal(size=(30, 8)), random.integers(0, 5, (30, 8)).astype(float)
    weights[0] = 1
    q = [0, 0.25, 0.7, 1]
    for axis, beside in ((None, weights), (0, weights), (1, weights + 1)):
        wanted = np.quantile(x, q, axis=axis, weights=beside, method="inverted_cdf")
        got = whole.quantile(x, q, axis=axis, weights=beside, method="inverted_cdf")
        np.testing.assert_array_equal(got[1:], wanted[1:])  # not all versions of NumPy leave weights of 0 out
    np.testing.assert_array_equal(got, wanted)
    rows = random.random(30)
    np.testing.assert_array_equal(whole.median(x, axis=0, weights=rows), np.quantile(x, 0.5, axis=0, weights=rows, method="inverted_cdf"))
    by_key = whole.median(x, weights=weights, keys=np.arange(30) % 4)
    for key in range(4):
        same(by_key[key], whole.median(x[key::4], weights=weights[key::4], axis=0))
    where = x > 0
    assert whole.median(x, weights=weights, where=where) == whole.median(x[where], weights=weights[where])
    frame = pd.DataFrame({"a": [3, 1, 2], "b": [5, 5, 4]})
    assert whole.median(frame["a"], weights=frame["b"]) == 2
    assert whole.reduce(x, "weighted_median,weighted_quantile(0.5),mean", weights=weights).weighted_median == whole.median(x, weights=weights)


def test_weighted_quantiles_that_are_refused(whole):
    with pytest.raises(ValueError, match="^weights: got 1 below 0 with op weighted_median; allowed: 0 or more"):
        whole.median([1.0, 2], weights=[1, -1])
    with pytest.raises(ValueError, match="^method: got 'linear' with weights; allowed: 'inverted_cdf'"):
        whole.quantile([1.0, 2], 0.5, weights=[1, 1], method="linear")
    with pytest.raises(ValueError, match="method"):
        whole.quantile([1.0, 2], 0.5, method="inverted_cdf")
    with pytest.raises(ValueError, match="got 1.5; allowed: 0 to 1"):
        whole.quantile([1.0, 2], 1.5, weights=[1, 1])
    with pytest.raises(ValueError, match="got no element with a weight above 0; allowed: at least 1"):
        whole.median([1, 2], weights=[0, 0])
    with pytest.raises(NotImplementedError, match="^(return_)?state: got true with op weighted_median"):
        whole.reduce([1.0, 2], "weighted_median", weights=[1, 1], state=True)


def test_streams(remote):
    random = np.random.default_rng(8)
    x, y = random.normal(size=(700, 1000)), random.normal(size=(700, 1000)).astype("f4")
    ops = "dot,corr,compare(rtol=0.5),weighted_var,sum"
    whole, streamed = (remote.reduce(x, ops, y=y, weights=x, via=via) for via in ("auto", "stream"))
    assert streamed.via == "stream"
    for op in whole:
        np.testing.assert_array_equal(streamed[op], whole[op])
    assert remote.mean(x, weights=np.abs(y), via="stream") == remote.mean(x, weights=np.abs(y))
    with pytest.raises(NotImplementedError, match="axes: got some in a stream"):
        remote.dot(x, y, axis=0, via="stream")
    with pytest.raises(NotImplementedError, match=r"weights: got shape \[1000\] in a stream"):
        remote.mean(x, weights=x[0], via="stream")
    with pytest.raises(NotImplementedError, match="weighted_median in a stream"):
        remote.median(x, weights=np.abs(x), via="stream")


def test_weights_of_the_reduced_dimensions_alone(whole):
    random = np.random.default_rng(3)
    x = random.normal(size=(3, 3, 4))
    for axis in (0, 1, 2, -1, (0, 1), (1, 2), (0, 2), (2, 0), [0, 1]):
        axes = axis if isinstance(axis, tuple | list) else (axis,)
        w = random.random(tuple(x.shape[each] for each in axes))
        alike = np.expand_dims(w.transpose(np.argsort([each % 3 for each in axes])), tuple(each for each in range(3) if each not in [a % 3 for a in axes]))
        same(whole.mean(x, weights=w, axis=axis), whole.mean(x, weights=np.broadcast_to(alike, x.shape), axis=axis))
    rows = np.array([1.0, 2.0, 5.0])
    same(whole.mean(x, weights=rows, keys=[1, 2, 1]), whole.mean(x, weights=rows[:, None, None], keys=[1, 2, 1]))
    same(whole.mean(x, weights=rows, lengths=[1, 2]), whole.mean(x, weights=rows[:, None, None], lengths=[1, 2]))
    same(whole.mean(x, weights=rows, axis=0), whole.mean(x, weights=rows[:, None, None], axis=0))
    with pytest.raises(ValueError, match=r"^weights: got shape \(4,\) for reduced dimensions of \(3,\); allowed: \(3,\), or as many dimensions"):
        whole.mean(x, weights=np.ones(4), axis=0)
    with whole.put(rows) as kept:
        if whole.server == "local:":
            same(whole.mean(x, weights=kept, axis=0), whole.mean(x, weights=rows, axis=0))
        else:
            with pytest.raises(ValueError, match=r"^weights: got ResidentArray of shape \(3,\); allowed: of shape \(3, 1, 1\)"):
                whole.mean(x, weights=kept, axis=0)
    with whole.put(rows[:, None, None]) as kept:
        same(whole.mean(x, weights=kept, axis=0), whole.mean(x, weights=rows, axis=0))


def test_shapes_broadcast(whole):
    x = np.arange(6.0).reshape(2, 3)
    same(whole.dot(x, np.array([1.0, 2, 3]), axis=1), [8, 26])
    same(whole.dot(x, np.array([[1.0], [2]])), 3 + 24)
    same(whole.dot(np.array([1.0, 2, 3]), x), 34)
    same(whole.dot(2.0, x, axis=1), [6, 24])
    assert whole.compare(x, 3.0).mismatches == 5
    for wrong in (np.ones(2), np.ones((3, 3)), np.ones((1, 2, 4))):
        with pytest.raises(ValueError, match="^y: got shape .* with an array of .*; allowed: shapes that broadcast"):
            whole.dot(x, wrong)
    with pytest.raises(ValueError, match=r"^weights: got shape \(2, 3\); allowed: a shape that broadcasts to \(3,\)"):
        whole.mean(np.ones(3), weights=x)


def test_layouts(whole):
    """Both arrays are read in C order, whatever their memory."""
    x, y = np.arange(12.0).reshape(3, 4) ** 2, np.arange(12.0).reshape(3, 4) + 1
    for one in (x, np.asfortranarray(x), x[::-1][::-1], x.astype(">f8")):
        for other in (y, np.asfortranarray(y), y[:, ::-1][:, ::-1], y.astype(">f8")):
            assert whole.dot(one, other) == (x * y).sum()
    assert whole.dot(x.T, y.T) == (x * y).sum() and whole.dot(x.T, y.reshape(4, 3)) == (x.T * y.reshape(4, 3)).sum()
    shared, beside = reduced.empty((3, 4)), reduced.empty((3, 4))
    shared[:], beside[:] = x, y
    for one in (shared, x):
        for other in (beside, y, beside[1:]):
            if other.shape == one.shape:
                assert whole.dot(one, other) == (x * y).sum()


def test_resident_arrays(whole):
    x, y = np.arange(5.0), np.arange(5.0) ** 2
    with whole.put(x) as a, whole.put(y) as b:
        for one in (a, x):
            for other in (b, y):
                assert whole.dot(one, other) == 100 and whole.compare(one, other).index == (2,)
        assert whole.mean(a, weights=b) == 100 / 30
        assert whole.dot(a, [0, 0, 0, 0, 1]) == 4
    with pytest.raises(ValueError, match="^y: got an array that is closed"):
        whole.dot(x, b)
    with whole.put(np.arange(5)) as ints:
        if whole.server == "local:":
            assert whole.dot(ints, y) == 100
        else:
            with pytest.raises(TypeError, match="^array: got i64 beside y of f64; allowed: floats"):
                whole.dot(ints, y)


def test_large_arrays(remote):
    x = np.arange(3_000_000, dtype="f4") % 7
    y = np.arange(3_000_000, dtype="f4") % 5
    assert remote.dot(x, y) == np.dot(x.astype("f8"), y.astype("f8"))
    assert remote.compare(x, y).mismatches == (x != y).sum()


def test_dtypes_that_differ(whole):
    ints, floats = np.array([1, 2, 3], "i4"), np.array([0.5, 0.25, 1.0], "f4")
    assert whole.dot(ints, floats) == whole.dot(floats, ints) == 4.0
    assert whole.mean(np.array([True, False, True]), weights=floats) == 1.5 / 1.75
    assert whole.dot(np.array([2**53, 1]), [0.5, 1.0]) == 2.0**52 + 1
    assert whole.dot(np.array([1.0, 2.0], ml_dtypes.bfloat16), np.array([3, 4])) == 11
    assert whole.compare(ints, floats).mismatches == 3
    with pytest.raises(TypeError, match=r"^array: got i64 beside y of f64, and in it 9007199254740993, which is no float64"):
        whole.dot(np.array([1, 2**53 + 1]), [0.5, 1.0])
    with pytest.raises(TypeError, match=r"^weights: got u64 beside array of f32, and in it 18446744073709551615"):
        whole.mean(floats, weights=np.array([1, 2, 2**64 - 1], np.uint64))
    with pytest.raises(TypeError, match="^array: got i32 beside y of f32; allowed: floats, as by astype, or integers only"):
        whole.reduce(ints, "sum,dot", y=floats)
    assert whole.reduce(ints, "sum,dot", y=ints).sum == 6
    with pytest.raises(TypeError, match="^y: dtype: got complex64"):
        whole.dot(floats, floats * 1j)


def test_missing_elements(whole):
    """A pair of which one is missing is left out, also of other ops."""
    x, y = np.array([1.0, 2, 3, 4]), [5.0, None, 7.0, 9.0]
    wanted = 1 * 5 + 3 * 7 + 4 * 9
    masked = np.ma.MaskedArray([5.0, 0, 7, 9], [False, True, False, False])
    for other in (pl.Series(y), pa.array(y), pd.array(y, "Float64"), pd.Series(y, dtype="Float64"), masked):
        assert whole.dot(x, other) == wanted and whole.dot(other, x) == wanted
        assert whole.reduce(x, "count,dot", y=other)["count"] == 3
        assert whole.mean(x, weights=other) == wanted / 21
        assert whole.dot(pl.Series([None, 2.0, 3.0, 4.0]), other) == 57
        assert whole.dot(x, other, where=x < 4) == 26
        r = whole.reduce(x, "dot,count", y=other, keys=[3, 1, 3, 3])
        assert r.group_keys.tolist() == [1, 3] and r.dot.tolist() == [0, wanted] and r["count"].tolist() == [0, 3]
        same(whole.mean(np.array([x, x]), weights=other, axis=1), [wanted / 21] * 2)
        assert whole.compare(x, other).mismatches == 3
        with pytest.raises(TypeError, match="missing"):
            whole.reduce(x, "dot", y=other, state=True)
    same(whole.mean(np.array([x, x]).T, weights=masked, axis=0), [wanted / 21] * 2)
    assert whole.dot([1.0, math.nan, 3.0], [1.0, 1.0, math.nan], nan="omit") == 1.0
    assert math.isnan(whole.dot([1.0, math.nan], [1.0, 0.0]))


def test_partitions(whole):
    random = np.random.default_rng(4)
    x, y = random.normal(size=(6, 5)), random.normal(size=(6, 5)).astype("f4")
    keys, where = np.array([2, 0, 2, 1, 0, 2]), random.random((6, 5)) < 0.6
    for op in PAIRS:
        same(getattr(whole, op)(x, y, axis=0, ddof=1), [right(op, x[:, i], y[:, i], 1) for i in range(5)])
        same(getattr(whole, op)(x, y, where=where, ddof=1), right(op, x[where], y[where], 1))
        same(getattr(whole, op)(x, y, keys=keys, ddof=1), [[right(op, x[keys == k, i], y[keys == k, i], 1) for i in range(5)] for k in range(3)])
        same(getattr(whole, op)(x, y, lengths=[2, 4], ddof=1), [[right(op, x[r, i], y[r, i], 1) for i in range(5)] for r in (slice(0, 2), slice(2, 6))])
    assert whole.dot(x, y, axis=1, keepdims=True).shape == (6, 1)
    kept = whole.corr(x, y, axis=0, keep=True)
    same(kept.get(), whole.corr(x, y, axis=0))


def test_states(whole):
    random = np.random.default_rng(5)
    x, y = random.normal(size=40), random.normal(size=40)
    ops = [*PAIRS, "compare(rtol=0.5)", "sum"]
    states = [whole.reduce(x[a:b], ops, y=y[a:b], state=True).state for a, b in ((0, 7), (7, 7), (7, 30), (30, 40))]
    merged = reduced.State.merge(pickle.loads(pickle.dumps(states))).results
    direct = whole.reduce(x, ops, y=y)
    for op in ops[:-2]:
        assert merged[op] == direct[op]
    assert merged.sum == direct.sum
    np.testing.assert_array_equal(merged[merged_name(merged, "compare")], direct["compare(rtol=0.5)"])
    by_key = [whole.reduce(x[a:b], "weighted_mean", weights=y[a:b] ** 2, keys=np.arange(a, b) % 3, state=True).state for a, b in ((0, 20), (20, 40))]
    same(reduced.State.merge(by_key).results.weighted_mean, whole.weighted_mean(x, y**2, keys=np.arange(40) % 3))
    other = whole.reduce(x.astype("f4"), "dot", y=y, state=True).state
    with pytest.raises(ValueError):
        reduced.State.merge([whole.reduce(x, "dot", y=y.astype("f4"), state=True).state, whole.reduce(x, "dot", y=y, state=True).state])
    assert other.results.dot == whole.dot(x.astype("f4"), y)


def merged_name(results, op):
    return next(name for name in results if name.startswith(op))


def test_arguments(whole):
    x = np.ones(3)
    with pytest.raises(ValueError, match="^y: got it with sum; allowed: with one of dot, cov"):
        whole.sum(x, y=x)
    with pytest.raises(ValueError, match="^weights: got it with max; allowed: with one of weighted_sum"):
        whole.max(x, weights=x)
    with pytest.raises(ValueError, match="^weights: got it with mean;"):
        whole.reduce(x, "mean", weights=x)
    with pytest.raises(ValueError, match="^y: got none with op dot"):
        whole.reduce(x, "dot")
    with pytest.raises(ValueError, match="rtol: got -1"):
        whole.compare(x, x, rtol=-1)
    assert whole.dot(array=x, y=x) == whole.dot(x, y=x) == 3
    r = whole.reduce(x, "dot,weighted_mean,count", y=x, weights=x)
    assert r.dot == 3 and r.weighted_mean == 1 and r["count"] == 3 and "dot" in repr(r)


def test_skew_and_kurtosis(whole):
    x = np.array([1.0, 2, 3, 10])
    d = x - x.mean()
    m2, m3, m4 = ((d**power).mean() for power in (2, 3, 4))
    assert whole.skew(x) == pytest.approx(m3 / m2**1.5, rel=1e-12) and whole.kurtosis(x) == pytest.approx(m4 / m2**2 - 3, rel=1e-12)
    assert math.isnan(whole.skew([2, 2])) and math.isnan(whole.kurtosis(np.array([])))


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i1", "i8", "u8"])
@pytest.mark.parametrize("columns", [1, 3, 7])
def test_matrices_are_exact(whole, dtype, columns):
    random = np.random.default_rng(columns)
    for n in (1, 2, 5, 40):
        x = random.integers(-100, 100, (n, columns)).astype(dtype)
        if dtype in ("i8", "u8"):
            x += np.array(2**62 + 1, dtype)  # no doubles
        if dtype == "f8":
            x = random.normal(size=x.shape) * 2.0 ** random.integers(-60, 60, x.shape)
        for op, ddof in (("cov", 0), ("cov", 1), ("corr", 0)):
            got = getattr(whole, f"{op}_matrix")(x, ddof=ddof)
            same(got, [[right(op, a, b, ddof) for b in x.T] for a in x.T])


def test_matrices_are_those_of_pairs(whole):
    random = np.random.default_rng(7)
    for shape in ((30_011, 5), (3_001, 64), (70_001, 2)):
        x = random.normal(size=shape).astype("f4")
        got, corr = whole.cov_matrix(x), whole.corr_matrix(x)
        np.testing.assert_array_equal(got, got.T)
        np.testing.assert_allclose(got, np.cov(x.astype("f8"), rowvar=False), rtol=1e-12, atol=1e-15)
        assert (np.diag(corr) == 1).all()
        for i, j in [(0, 0), (0, shape[1] - 1), (shape[1] // 2, shape[1] - 1)]:
            assert got[i, j] == whole.cov(x[:, i].copy(), x[:, j].copy())
            assert corr[i, j] == whole.corr(x[:, i].copy(), x[:, j].copy())


def test_matrices_along_axes_and_of_missing_elements(whole):
    random = np.random.default_rng(7)
    x = random.normal(size=(4, 500, 6))
    got = whole.cov_matrix(x, axis=(1, 2))
    assert got.shape == (4, 6, 6)
    for each, rows in zip(got, x):
        np.testing.assert_array_equal(each, whole.cov_matrix(rows))
    np.testing.assert_array_equal(whole.cov_matrix(x), whole.cov_matrix(x.reshape(-1, 6)))
    np.testing.assert_array_equal(whole.cov_matrix(np.asfortranarray(x[0])), got[0])
    square = random.normal(size=(6, 6))
    np.testing.assert_allclose(whole.cov_matrix(square.T), np.cov(square, rowvar=True), rtol=1e-12)
    table = x[0].copy()
    table[random.random(table.shape) < 0.1] = np.nan
    frame = pd.DataFrame(table)
    np.testing.assert_allclose(whole.cov_matrix(table, nan="omit"), frame.cov(), rtol=1e-12)
    np.testing.assert_allclose(whole.corr_matrix(table, nan="omit"), frame.corr(), rtol=1e-12)
    table[:, 1:] = x[0][:, 1:]
    got = whole.cov_matrix(table)
    assert np.isnan(got[0]).all() and np.isnan(got[:, 0]).all() and np.isfinite(got[1:, 1:]).all()
    table[0, 0] = np.inf
    assert np.isnan(whole.cov_matrix(table, nan="omit")[0, 0])


def test_matrices_of_nothing_and_errors(whole):
    assert np.isnan(whole.cov_matrix(np.ones((0, 3)))).all()
    assert np.isnan(whole.cov_matrix(np.ones((1, 3)))).all()
    assert (whole.cov_matrix(np.ones((1, 3)), ddof=0) == 0).all()
    assert np.isnan(whole.corr_matrix(np.ones((9, 3)))).all()
    with pytest.raises(ValueError, match="columns: got 65; allowed: 1 to 64"):
        whole.cov_matrix(np.ones((2, 65)))
    with pytest.raises(ValueError, match=r"array: got shape \(4,\); allowed: two dimensions"):
        whole.cov_matrix(np.ones(4))
    with pytest.raises(ValueError, match="got axes without the last dimension"):
        whole.cov_matrix(np.ones((4, 3)), axis=0)
    with pytest.raises(ValueError, match="got 2 columns; allowed: 3, the size of the last dimension"):
        whole.reduce(np.ones((4, 3)), "cov_matrix(2)")
    with pytest.raises(ValueError, match="got 10 elements; allowed: whole rows of 3"):
        whole.reduce(np.ones(10), "cov_matrix(3)")
    with pytest.raises(ValueError, match="op cov_matrix: got where; allowed: axes, segments"):
        whole.cov_matrix(np.ones((4, 3)), where=np.ones((4, 3), bool))
    with pytest.raises(TypeError, match="array: got missing elements; allowed: NaN"):
        whole.cov_matrix(np.ma.masked_array(np.ones((4, 3)), np.eye(4, 3, dtype=bool)))
    with pytest.raises(ValueError, match="got OP_COV_MATRIX without parameters"):
        whole.reduce(np.ones((4, 3)), "cov_matrix")
    for text in ("cov_matrix()", "cov_matrix(1.5)", "corr_matrix(2,3)", "corr_matrix(k=2)"):
        with pytest.raises(ValueError, match=r"_matrix\(COLUMNS\)"):
            whole.reduce(np.ones((4, 3)), text)


def test_states_of_matrices(whole):
    random = np.random.default_rng(7)
    x = random.normal(size=(1000, 9)).astype("f4")
    parts = [whole.reduce(x[begin:end], "cov_matrix(9),corr_matrix(9)", ddof=1, state=True).state
             for begin, end in ((0, 1), (1, 400), (400, 400), (400, 1000))]
    merged = reduced.State.merge(parts).results
    np.testing.assert_array_equal(merged["cov_matrix(9)"], whole.cov_matrix(x))
    np.testing.assert_array_equal(merged["corr_matrix(9)"], whole.corr_matrix(x))


def test_compare(whole):
    x = np.array([[1.0, 2.0, -0.0], [math.nan, 5.0, math.inf]])
    y = np.array([[1.0, 2.5, 0.0], [math.nan, 4.0, math.inf]])
    r = whole.compare(x, y)
    assert (r.equal, r.mismatches, r.first, r.index, r.first_x, r.first_y) == (False, 3, 1, (0, 1), 2.0, 2.5)
    assert (r.max_abs, r.max_abs_index, r.max_rel, r.max_rel_index) == (1.0, 4, 0.25, 4)
    assert type(r.mismatches) is type(r.first) is type(r.max_ulp) is int and r.different_bits == 3
    assert whole.compare(x, y, equal_nan=True).mismatches == 2
    assert whole.compare(x, y, equal_nan=True, rtol=0.25).equal is True
    assert "3 of 6 do not match, the first at (0, 1): 2.0 and 2.5" in str(r)
    assert pickle.loads(pickle.dumps(r)) == r and pickle.loads(pickle.dumps(r)).index == (0, 1)
    r = whole.compare(x[0], x[0])
    assert r.equal and r.first is None and r.index is None and r.first_x is None and r.max_abs == 0 and str(r).startswith("all match")
    r = whole.compare(np.array([]), np.array([]))
    assert r.equal and r.max_abs is None and r.rmse is None and r.max_abs_index is None
    random = np.random.default_rng(6)
    for dtype in ("f2", "f4", "f8"):
        a = random.normal(size=200).astype(dtype)
        b = (a * (1 + random.normal(size=200, scale=1e-3))).astype(dtype)
        for rtol, atol in ((0, 0), (1e-3, 0), (0, 1e-3), (1e-4, 1e-4)):
            wanted = ~np.isclose(a.astype("f8"), b.astype("f8"), rtol, atol)
            r = whole.compare(a, b, rtol=rtol, atol=atol)
            assert r.mismatches == wanted.sum() and r.first == (int(wanted.argmax()) if wanted.any() else None)
            assert r.first_x is None or r.first_x.dtype == a.dtype


def test_compare_of_64_bit_integers(whole):
    x = np.array([[2**62, 2**60 + 1], [7, 8]])
    y = np.array([[2**62, 2**60], [7, 9]])
    r = whole.compare(x, y)
    assert (int(r.first_x), int(r.first_y), r.max_abs) == (2**60 + 1, 2**60, 1)
    r = whole.compare(x, y, axis=0)
    assert r.first.tolist() == [-1, 0] and r.first_x.tolist() == [None, 2**60 + 1] and r.equal.tolist() == [True, False]
    r = whole.compare(x, y, axis=1)
    assert r.first.tolist() == [1, 1] and r.first_x.tolist() == [2**60 + 1, 8] and r.first_y.tolist() == [2**60, 9]
    r = whole.compare(x, y, keys=[5, 5])
    assert r.first.tolist() == [[-1, 0]] and r.first_y.tolist() == [[None, 2**60]]
    with pytest.raises(AttributeError, match="^index: got a comparison along axes"):
        r.index
    with whole.put(x) as a:
        assert int(whole.compare(a, y).first_x) == 2**60 + 1
    u = np.array([2**64 - 1], np.uint64)
    assert int(whole.compare(u, np.array([-1])).first_x) == 2**64 - 1


def test_aio(server):
    async def ask():
        async with reduced.aio.connect(server.unix) as c:
            x, y = np.arange(4.0), np.ones(4)
            assert await c.dot(x, y) == 6 and await c.mean(x, weights=y) == 1.5
            assert (await c.compare(x, y)).mismatches == 3
            assert (await c.reduce(x, "dot,corr", y=x)).corr == 1
    asyncio.run(ask())


class OnGpu:
    """As an array of CuPy, which `get` copies."""

    __cuda_array_interface__ = {}

    def __init__(self, array):
        self.array = array

    def get(self):
        return self.array


def test_assert_close():
    close = reduced.testing.assert_close
    x = np.array([1.0, 2.0, 3.0])
    close(x, x)
    close(x, x + 5e-8)
    close(x.astype("f4"), x.astype("f4") * np.float32(1.000001))
    close([1, 2], [1, 2])
    close(np.array([math.nan]), np.array([math.nan]), equal_nan=True)
    close({"a": x, "b": [x, {"c": 1.0}]}, {"a": x, "b": [x, {"c": 1.0}]})
    close([x, x[:2]], [x, x[:2]])
    close(pl.Series([1, None]), pl.Series([1, None]))
    close(x, np.array([1, 2, 3]), check_dtype=False)
    close(None, None)
    for actual, expected, said in (
            (x, x + [0, 0.5, 0], r"^1 of 3 elements are not close \(33\.3%\)\n  the first at \(1,\): actual 2\.0, expected 2\.5\n  greatest absolute difference: 0\.5 at \(1,\), up to 1e-07"),
            (np.array([1, 2]), np.array([1, 3]), r"^1 of 2 elements are not equal .*\n.*actual 2, expected 3"),
            (x, x[:2], r"^got shape \(3,\), expected \(2,\)$"),
            (x, x.astype("f4"), "^got dtype f64, expected f32$"),
            (np.array([math.nan]), np.array([math.nan]), "^1 of 1 elements are not close"),
            ({"a": x}, {"b": x}, r"^\['a'\]: only actual has it\n\['b'\]: only expected has it$"),
            ({"a": [x, x]}, {"a": [x, x + 1]}, r"^\['a'\]\[1\]: 3 of 3"),
            ({"a": x}, x, "^got dict, expected ndarray$"),
            (pl.Series([1, None]), pl.Series([1, 2]), r"^got missing elements in other places, the first at \(1,\), which is missing in actual$"),
    ):
        with pytest.raises(AssertionError, match=said):
            close(actual, expected)
    with pytest.raises(AssertionError, match="^mine$"):
        close(x, x + 1, msg="mine")
    with pytest.raises(AssertionError, match="^mine: 3 of 3"):
        close(x, x + 1, msg=lambda said: f"mine: {said}")
    with pytest.raises(ValueError, match="^atol: got None with rtol; allowed: both, or none"):
        close(x, x, rtol=1e-3)
    close(x, x + 1e-3, rtol=0, atol=1e-2)
    close(OnGpu(x), x, check_dtype=False)
    with pytest.raises(AssertionError, match="^3 of 3"):
        close(x, OnGpu(x + 1))
    with pytest.raises(TypeError, match="^expected: "):
        close(x, x * 1j)


def test_assert_close_is_that_of_torch():
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(7)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32):
        for scale in (1e-9, 1e-7, 1e-6, 1e-4, 1e-2):
            x = torch.from_numpy(random.normal(size=20) * 10).to(dtype)
            y = (x * (1 + scale * random.normal())).to(dtype)
            outcomes = []
            for close in (torch.testing.assert_close, reduced.testing.assert_close):
                try:
                    close(x, y)
                    outcomes.append(True)
                except AssertionError:
                    outcomes.append(False)
            assert outcomes[0] == outcomes[1], (dtype, scale)


@pytest.mark.parametrize("via", ["session", "ring"])
def test_sessions(remote, via):
    x, y = np.arange(6.0).reshape(2, 3), np.array([1.0, 2.0, 3.0])
    with remote.session(via=via) as session:
        assert session.dot(x, y) == 34 and session.dot(x, y, axis=1).tolist() == [8, 26]
        assert session.mean(x, weights=y, axis=1).tolist() == remote.mean(x, weights=y, axis=1).tolist()
        assert session.compare(x, y).index == (0, 0)
        assert session.dot([1.0, 2.0], pl.Series([3.0, None])) == 3

"""Reductions of datetime64 and timedelta64: NaT is missing, and nothing is rounded but means and medians, to the nearest unit."""

import datetime
import statistics
from fractions import Fraction

import numpy as np
import pytest
import reduced
from hypothesis import example, given, settings
from hypothesis import strategies as st

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

DAYS = np.array(["2020-01-03", "NaT", "2020-01-01", "2020-01-08"], "M8[D]")


def test_datetimes(client):
    result = client.reduce(DAYS, "min, max, mean, median, range, count, argmin, argmax, nan_count")
    assert dict(result) == {"min": DAYS[2], "max": DAYS[3], "mean": DAYS[0] + 1, "median": DAYS[0], "range": np.timedelta64(7, "D"), "count": 3, "argmin": 2,
                            "argmax": 3, "nan_count": 1}
    assert type(result.max) is np.datetime64 and result.max.dtype == "M8[D]" and result.range.dtype == "m8[D]"
    assert client.max(DAYS, nan="omit") == DAYS[3] and client.count(DAYS, nan="omit") == 3
    known = client.reduce(DAYS, "min,max,mean,median,range,argmin,argmax", nan="propagate")
    assert all(np.isnat(known[op]) for op in ("min", "max", "mean", "median", "range")) and known.argmin == known.argmax == 1
    assert client.topk(DAYS, 2).values.tolist() == [datetime.date(2020, 1, 8), datetime.date(2020, 1, 3)] and client.topk(DAYS, 2).indexes.tolist() == [3, 0]
    assert client.quantile(DAYS, [0, 1], method="lower").tolist() == [DAYS[2].item(), DAYS[3].item()]
    assert client.distinct(DAYS[[0, 0, 1, 2]], exact=True) == 2
    swapped = DAYS.astype(">M8[D]")
    assert client.max(swapped) == DAYS[3] and client.max(np.ma.MaskedArray(DAYS, [0, 0, 0, 1])) == DAYS[0]
    grid = DAYS.reshape(2, 2)
    assert client.max(grid, axis=0).tolist() == [DAYS[0].item(), DAYS[3].item()] and client.min(grid, 1).tolist() == [DAYS[0].item(), DAYS[2].item()]
    assert np.isnat(client.max(grid, axis=1, nan="propagate")).tolist() == [True, False]
    assert client.argmax(grid, axis=1, nan="propagate").tolist() == [1, 1]
    keyed = client.reduce(DAYS, "max,mean,count", keys=["a", "b", "a", "a"], empty="fill")
    assert np.isnat(keyed.max).tolist() == [False, True] and np.isnat(keyed["mean"]).tolist() == [False, True] and keyed["count"].tolist() == [3, 0]
    with pytest.raises(reduced.InvalidArgumentError, match="op max: got an"):
        client.max(DAYS, keys=["a", "b", "a", "a"])
    assert np.isnat(client.mean(DAYS[1:2])) and client.count(DAYS[1:2]) == 0


def test_timedeltas(client):
    lengths = np.array([2**53 + 1, 0, "NaT"], "m8[ns]")
    assert client.sum(lengths) == np.timedelta64(2**53 + 1, "ns") and client.max(lengths) == lengths[0] and client.mean(lengths) == np.timedelta64(2**52, "ns")
    assert client.sum(lengths).dtype == "m8[ns]" and client.sum(lengths[2:]) == np.timedelta64(0, "ns")
    assert client.sum(lengths.reshape(3, 1), axis=0).dtype == "m8[ns]" and np.isnat(client.sum(lengths, nan="propagate"))
    with pytest.raises(OverflowError):
        client.sum(np.array([2**62, 2**62], "m8[s]"))
    wide = client.reduce(np.array([2**62, 2**62], "m8[s]"), "sum,mean")
    assert wide.mean == np.timedelta64(2**62, "s") and "sum" in wide.errors
    with pytest.raises(OverflowError, match="^op range: got a range that timedelta64.s. does not hold"):
        client.range(np.array([2**62 + 1, -(2**62)], "m8[s]"))


def test_what_has_no_meaning(client):
    lengths = DAYS - DAYS[0]
    for call, message in ((lambda: client.sum(DAYS), "op sum: got datetime64; allowed: argbottomk, .* max, mean"), (lambda: client.std(DAYS), "op std: got datetime64"),
                          (lambda: client.prod(lengths), "op prod: got timedelta64"), (lambda: client.quantile(DAYS, 0.5), "op quantile"),
                          (lambda: client.reduce(DAYS, "max", state=True), "state: got it for datetime64"), (lambda: client.mean(DAYS, weights=[1, 2, 3, 4]), "op weighted_mean|array"),
                          (lambda: client.describe(DAYS), "op std"), (lambda: client.dot(DAYS, DAYS), "array: |dtype: "),
                          (lambda: client.histogram(DAYS), "dtype: got datetime64|op histogram")):
        with pytest.raises(TypeError, match=f"^{message}"):
            call()


def test_containers(client):
    stamps = ["2024-03-31 00:30", None, "2024-03-31 05:00"]
    naive, zoned = pd.Series(pd.to_datetime(stamps), name="t"), pd.Series(pd.to_datetime(stamps), name="t").dt.tz_localize("Europe/Berlin")
    lengths = pd.Series(pd.to_timedelta([1, None, 3], "s"), name="d")
    for column in (naive, zoned, lengths):
        for op in ("min", "max", "mean", "median"):
            assert getattr(client, op)(column) == getattr(column, op)() and type(getattr(client, op)(column)) is type(column.max()), op
            keys = pd.Series(["a", "b", "a"], name="k")
            right = getattr(column.groupby(keys), op)()
            pd.testing.assert_series_equal(getattr(client, op)(column, keys=keys), right)
        assert client.count(column) == 2 and client.argmax(column) == 2
    assert client.sum(lengths) == lengths.sum()
    frame = pd.DataFrame({"t": naive, "u": naive + pd.Timedelta("1D")})
    pd.testing.assert_series_equal(client.max(frame, axis=0), frame.max())
    of_arrow = pa.array([datetime.datetime(2020, 1, 2), None, datetime.datetime(2020, 1, 1)], pa.timestamp("us"))
    assert client.max(of_arrow) == np.datetime64("2020-01-02") and client.max(pa.chunked_array([of_arrow, of_arrow[:1]])) == np.datetime64("2020-01-02")
    assert client.min(pa.array([datetime.date(2020, 1, 2), datetime.date(1960, 1, 2)])) == np.datetime64("1960-01-02")
    for dtype in (pl.Datetime("ms"), pl.Datetime("ns"), pl.Date):
        column = pl.Series("t", [datetime.date(2020, 1, 2), None, datetime.date(2020, 1, 4)]).cast(dtype)
        assert client.max(column) == column.max() and client.mean(column.cast(pl.Datetime("us"))) == column.cast(pl.Datetime("us")).mean()
        assert client.max(column, keys=["x", "y", "x"]).rows() == [("x", column.max()), ("y", None)]
    duration = pl.Series("d", [datetime.timedelta(seconds=1), datetime.timedelta(seconds=5)])
    assert client.sum(duration) == duration.sum() and client.sum(duration, keys=[1, 1])["d"].dtype == pl.Duration("us")


NUMBERS = st.integers(-(2**63) + 1, 2**63 - 1)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(NUMBERS, st.integers(2**63 - 3, 2**63 - 1), st.integers(-3, 3)), min_size=1, max_size=9))
@example([2**63 - 1] * 3 + [2**63 - 2])
@example([-(2**63) + 1] * 2 + [-(2**63) + 2])
@example([1, 2])
@example([2, 3])
@example([-1, -2])
def test_means_and_medians_are_exact(numbers):
    client = reduced.connect("local:")
    times = np.array(numbers, "i8").view("M8[ns]")
    found = client.reduce(times, "mean,median,min,max")
    assert int(found["mean"].view("i8")) == round(Fraction(sum(numbers), len(numbers)))
    assert int(found["median"].view("i8")) == round(statistics.median([Fraction(each) for each in numbers]))
    assert (int(found.min.view("i8")), int(found.max.view("i8"))) == (min(numbers), max(numbers))

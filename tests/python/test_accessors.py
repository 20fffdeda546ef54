"""`df.reduced` and its groups: pandas' own lines and results, with exact sums."""

import inspect
import subprocess
import sys

import numpy as np
import pytest
import reduced

pd = pytest.importorskip("pandas")

import reduced.pandas  # noqa: E402


@pytest.fixture
def frame():
    random = np.random.default_rng(6)
    rows = 200
    return pd.DataFrame({"shop": pd.Series(random.choice(["b", "a", "c", None], rows)), "size": pd.Categorical(random.choice(["s", "m"], rows), ["s", "m", "l"]),
                         "day": pd.date_range("2024-01-01", periods=rows, freq="7h"), "n": pd.array(random.choice([1, 2, 3, None], rows), dtype="Int64"),
                         "price": random.integers(0, 50, rows) / 4, "gap": np.where(random.random(rows) < 0.3, np.nan, random.integers(0, 9, rows))},
                        index=random.permutation(rows))


def test_groups(frame):
    for by in ("shop", ["shop", "size"], frame["shop"], [frame["shop"], frame["n"] > 1], frame["price"] > 5):
        ours, theirs = frame.reduced.groupby(by)[["n", "price", "gap"]], frame.groupby(by, observed=True)[["n", "price", "gap"]]
        for op in ("sum", "mean", "min", "max", "count", "std", "var", "median"):
            pd.testing.assert_frame_equal(getattr(ours, op)(), getattr(theirs, op)(), rtol=1e-14)
        pd.testing.assert_frame_equal(ours.agg(["sum", "max"]), theirs.agg(["sum", "max"]))
        pd.testing.assert_frame_equal(ours.agg({"n": "sum", "gap": "mean"}), theirs.agg({"n": "sum", "gap": "mean"}))
        pd.testing.assert_frame_equal(ours.agg({"n": ["sum", "nunique"], "gap": ["mean"]}), theirs.agg({"n": ["sum", "nunique"], "gap": ["mean"]}))
        pd.testing.assert_frame_equal(ours.agg(total=("price", "sum"), most=("n", "max"), least=("price", "min")),
                                      theirs.agg(total=("price", "sum"), most=("n", "max"), least=("price", "min")))
        pd.testing.assert_series_equal(ours["price"].sum(), frame.groupby(by, observed=True)["price"].sum())
        pd.testing.assert_frame_equal(ours["price"].agg(["min", "max"]), frame.groupby(by, observed=True)["price"].agg(["min", "max"]))
        pd.testing.assert_series_equal(ours.size(), theirs.size())
    pd.testing.assert_frame_equal(frame.reduced.groupby("shop", sort=False)[["price"]].sum(), frame.groupby("shop", sort=False)[["price"]].sum())
    pd.testing.assert_frame_equal(frame.reduced.groupby("shop", dropna=False)[["price"]].sum(), frame.groupby("shop", dropna=False)[["price"]].sum())
    pd.testing.assert_frame_equal(frame.drop(columns=["day", "size"]).reduced.groupby("shop").max(), frame.drop(columns=["day", "size"]).groupby("shop").max())
    months = frame.reduced.groupby("day", bucket="month")["price"].sum()
    right = frame.set_index("day")["price"].resample("MS").sum()
    pd.testing.assert_series_equal(months, right, check_freq=False)
    assert frame["price"].reduced.groupby(frame["shop"]).mean().equals(frame["price"].groupby(frame["shop"]).mean())
    assert frame.reduced.groupby("shop").mean(numeric_only=True).columns.tolist() == ["n", "price", "gap"]
    for call, error, message in ((lambda: frame.reduced.groupby("shop").sum(), TypeError, "array: column 'size'"), (lambda: frame.reduced.groupby("x"), ValueError, "keys: got 'x'"),
                                 (lambda: frame.reduced.groupby("shop").agg({"x": "sum"}), ValueError, "agg: got column 'x'"),
                                 (lambda: frame.reduced.groupby("shop").agg(), TypeError, "agg: got no ops")):
        with pytest.raises(error, match=f"^{message}"):
            call()


def test_without_groups(frame):
    numbers = frame[["n", "price", "gap"]]
    for op in ("sum", "mean", "std", "count", "median"):
        pd.testing.assert_series_equal(getattr(numbers.reduced, op)(), getattr(numbers, op)(), check_dtype=False, rtol=1e-14)
    pd.testing.assert_series_equal(numbers[["price", "gap"]].reduced.mean(axis=1), numbers[["price", "gap"]].mean(axis=1))
    pd.testing.assert_series_equal(frame.reduced.max(numeric_only=True), frame.max(numeric_only=True), check_dtype=False)
    assert frame["gap"].reduced.mean() == frame["gap"].mean() and np.isnan(frame["gap"].reduced.mean(skipna=False))
    assert frame["price"].reduced.std() == pytest.approx(frame["price"].std(), rel=1e-14)
    assert frame["price"].reduced.agg("sum, max").to_dict() == {"sum": frame["price"].sum(), "max": frame["price"].max()}
    assert numbers.reduced.agg(["sum", "mean"]).loc["sum", "price"] == frame["price"].sum()
    floats = frame[["price", "gap"]]
    pd.testing.assert_frame_equal(floats.reduced.cov_matrix(), floats.cov(), rtol=1e-12)
    pd.testing.assert_frame_equal(floats.reduced.corr_matrix(), floats.corr(), rtol=1e-12)
    pd.testing.assert_frame_equal(floats.reduced.quantile([0.25, 0.5]), floats.quantile([0.25, 0.5]))
    with pytest.raises(TypeError, match="^skipna: got it beside nan"):
        frame["gap"].reduced.sum(skipna=True, nan="omit")
    assert "axis" in inspect.signature(numbers.reduced.sum).parameters and "sum" in dir(numbers.reduced)


def test_they_ask_a_client(frame, server):
    with reduced.connect(server.unix) as client:
        reduced.pandas.use(client)
        try:
            assert frame["price"].reduced.sum() == frame["price"].sum()
        finally:
            reduced.pandas.use(None)


def test_nothing_is_imported_before_it_is_asked_for():
    subprocess.run([sys.executable, "-c", "import sys, reduced; assert not {'pandas', 'xarray', 'polars', 'pyarrow'} & set(sys.modules)"], check=True, timeout=60)
    exits = subprocess.run([sys.executable, "-c", "import pandas, reduced.pandas; print(pandas.Series([1, 2]).reduced.sum())"], check=True, timeout=60,
                           capture_output=True, text=True)
    assert exits.stdout == "3\n" and "leaked" not in exits.stderr

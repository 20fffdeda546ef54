"""Keys of any kind and labels: pandas in, pandas out, and so polars. Oracles: pandas, polars, and exact sums of fractions."""

import collections
import datetime
import pickle
from fractions import Fraction

import numpy as np
import pytest
import reduced
from hypothesis import given, settings
from hypothesis import strategies as st

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

FRUIT = ["kiwi", "fig", "kiwi", "äpfel", "fig", "kiwi"]
VALUES = np.array([1, 2, 4, 8, 16, 32])
RIGHT = {"fig": 18, "kiwi": 37, "äpfel": 8}


def dictionary(result):
    """The labels and sums of a result, in order."""
    labels = result.group_keys
    labels = labels.to_pylist() if hasattr(labels, "to_pylist") else labels.to_list() if hasattr(labels, "to_list") else labels.tolist() if hasattr(labels, "tolist") else list(labels)
    sums = result.sum
    sums = sums["v"] if isinstance(sums, pl.DataFrame) else sums
    return dict(zip(labels, sums.to_list() if hasattr(sums, "to_list") else sums.tolist(), strict=True))


STRINGS = {
    "list": lambda: FRUIT, "U": lambda: np.array(FRUIT), "big-endian U": lambda: np.array(FRUIT).astype(">U9"), "U by steps": lambda: np.repeat(np.array(FRUIT), 2)[::2],
    "StringDType": lambda: np.array(FRUIT, np.dtypes.StringDType()), "object": lambda: np.array(FRUIT, object), "pandas str": lambda: pd.Series(FRUIT),
    "pandas object": lambda: pd.Series(FRUIT, dtype=object), "pandas string": lambda: pd.array(FRUIT, dtype="string[python]"),
    "pandas of Arrow": lambda: pd.Series(FRUIT, dtype=pd.ArrowDtype(pa.string())), "Index": lambda: pd.Index(FRUIT), "polars": lambda: pl.Series(FRUIT),
    "pyarrow": lambda: pa.array(FRUIT), "pyarrow large": lambda: pa.array(FRUIT, pa.large_string()), "views": lambda: pa.array(FRUIT, pa.string_view()),
    "slice": lambda: pa.array(["x", *FRUIT, "y"])[1:7], "chunks": lambda: pa.chunked_array([FRUIT[:2], [], FRUIT[2:]]),
    "categories of polars": lambda: pl.Series(FRUIT, dtype=pl.Categorical), "dictionary": lambda: pa.array(FRUIT).dictionary_encode(),
    "dictionary of Arrow in pandas": lambda: pd.Series(pa.array(FRUIT).dictionary_encode().to_pylist(), dtype=pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))),
}


@pytest.mark.parametrize("kind", STRINGS)
def test_strings_of_every_container(client, kind):
    keys = STRINGS[kind]()
    result = client.reduce(VALUES, "sum,count", keys=keys)
    assert isinstance(result.sum, np.ndarray) and list(dictionary(result).items()) == list(RIGHT.items())
    first = client.reduce(VALUES, "sum", keys=keys, sort=False)
    assert list(dictionary(first)) == ["kiwi", "fig", "äpfel"] and dictionary(first) == RIGHT
    assert client.sum(pl.Series("v", VALUES), keys=keys).columns[1] == "v"
    again = pickle.loads(pickle.dumps(result))
    assert dictionary(again) == RIGHT


def test_labels_have_the_type_that_keys_came_with(local):
    def labels(keys, **options):
        return local.reduce(np.arange(len(keys)), "sum", keys=keys, **options).group_keys

    assert labels(np.array(FRUIT)).dtype == np.dtype("U5") and labels(np.array([b"b", b"a"])).tolist() == [b"a", b"b"]
    assert isinstance(labels(np.array(FRUIT, np.dtypes.StringDType())).dtype, np.dtypes.StringDType)
    for keys in (pd.Series(FRUIT, name="k"), pd.Series(FRUIT, dtype=object, name="k"), pd.Series([2, 1, 2], dtype="Int16", name="k"),
                 pd.Series([2, 1, 2], dtype="u1", name="k"), pd.Series(FRUIT, dtype="category", name="k"), pd.Series([True, False], name="k"),
                 pd.Series(pd.to_datetime(["2020-02-01", "2020-01-01"]), name="k"), pd.Series([1.5, 0.5], dtype="f4", name="k"),
                 pd.Series(pd.to_datetime(["2020-02-01", "2020-01-01"]).tz_localize("Asia/Kolkata"), name="k"),
                 pd.Series(pd.period_range("2020-01", periods=3, freq="M"), name="k"), pd.Series(pd.interval_range(0, 3), name="k"),
                 pd.Series([1, 2, 1], dtype="int64[pyarrow]", name="k"), pd.Series(pd.to_timedelta([3, 1], "s"), name="k")):
        right = pd.Series(np.arange(len(keys))).groupby(keys, observed=True).sum()
        pd.testing.assert_index_equal(labels(keys), right.index)
        pd.testing.assert_series_equal(local.sum(pd.Series(np.arange(len(keys))), keys=keys), right)
    for keys in (pl.Series("k", FRUIT), pl.Series("k", [3, 1], dtype=pl.UInt8), pl.Series("k", [True, False]), pl.Series("k", FRUIT, dtype=pl.Enum(["fig", "kiwi", "äpfel"])),
                 pl.Series("k", [datetime.date(2020, 1, 2), datetime.date(2020, 1, 1)]), pl.Series("k", [datetime.datetime(2020, 1, 2)] * 2), pl.Series("k", [0.5, -1.0])):
        assert labels(keys).dtype == keys.dtype and labels(keys).to_list() == sorted(set(keys.to_list()))
        out = local.sum(pl.Series("v", np.arange(len(keys))), keys=keys)
        right = pl.DataFrame({"k": keys, "v": np.arange(len(keys))}).group_by("k").sum().sort("k")
        assert out.equals(right) and out.schema == right.schema
    assert labels(pa.array(["b", "a"])).type == pa.string()
    both = local.reduce(VALUES, "sum", keys=[FRUIT, pd.Series([1, 1, 2, 1, 1, 2])])
    assert isinstance(both.group_keys, tuple) and both.group_keys[0].tolist() == ["fig", "kiwi", "kiwi", "äpfel"] and both.group_keys[1].tolist() == [1, 1, 2, 1]
    assert both.sum.tolist() == [18, 1, 36, 8]


def test_plain_integers_are_as_before(client):
    keys = np.array([7, 3, 7, 9, 3, 7], "i2")
    result = client.reduce(VALUES, "sum,min", keys=keys)
    assert result.group_keys.dtype == np.int16 and result.group_keys.tolist() == [3, 7, 9] and result.sum.tolist() == [18, 37, 8]
    given = client.reduce(VALUES, "sum", keys=keys, groups=10)
    assert given.group_keys is None and given.sum.tolist() == [0, 0, 0, 18, 0, 0, 0, 37, 0, 8]
    assert client.sum(VALUES, keys=keys.tolist(), sort=False).tolist() == [37, 18, 8]
    labelled = client.sum(pd.Series(VALUES, name="v"), keys=pd.Series(keys, name="k"), groups=10)
    assert labelled.name == "v" and labelled.index.name == "k" and labelled[7] == 37 and len(labelled) == 10


MISSING = {
    "object": ["b", None, "a", None], "numpy object": np.array(["b", np.nan, "a", None], object), "pandas": pd.Series(["b", None, "a", pd.NA]),
    "string": pd.array(["b", None, "a", None], dtype="string"), "Int64": pd.array([2, None, 1, None], dtype="Int64"), "category": pd.Categorical(["b", None, "a", None]),
    "polars": pl.Series(["b", None, "a", None]), "polars int": pl.Series([2, None, 1, None]), "arrow": pa.array(["b", None, "a", None]),
    "float": np.array([2.0, np.nan, 1.0, np.nan]), "float of pandas": pd.Series([2.0, np.nan, 1.0, np.nan]), "masked": np.ma.MaskedArray([2, 9, 1, 8], [0, 1, 0, 1]),
    "times": np.array(["2020-01-02", "NaT", "2020-01-01", "NaT"], "M8[s]"), "times of pandas": pd.to_datetime(["2020-01-02", None, "2020-01-01", None]),
    "boolean": pd.array([True, None, False, None], dtype="boolean"), "dictionary": pa.array(["b", None, "a", None]).dictionary_encode(),
    "dictionary with a null": pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 1], pa.int8()), pa.array(["b", None, "a"])),
    "dates": [datetime.date(2020, 1, 2), None, datetime.date(2020, 1, 1), None], "tuples": np.array([("b", 1), None, ("a", 2), None], object),
}


@pytest.mark.parametrize("kind", MISSING)
def test_missing_keys_are_dropped_or_a_group(local, kind):
    keys = MISSING[kind]
    values = np.array([1, 2, 4, 8])
    dropped = local.reduce(values, "sum", keys=keys)
    assert dropped.sum.tolist() == [4, 1] and len(dropped.group_keys) == 2
    grouped = local.reduce(values, "sum", keys=keys, missing="group")
    assert grouped.sum.tolist() == [4, 1, 10] and len(grouped.group_keys) == 3
    last = grouped.group_keys[2]
    last = last.as_py() if hasattr(last, "as_py") else last
    assert last is None or last is np.ma.masked or pd.isna(last)
    assert local.sum(values, keys=keys, missing="group", sort=False).tolist() == [1, 10, 4]
    table = local.sum(pd.Series(values, name="v"), keys=keys, missing="group")
    assert table.tolist() == [4, 1, 10] and pd.isna(table.index).tolist() == [False, False, True]
    frame = local.sum(pl.Series("v", values), keys=keys, missing="group")
    assert frame["v"].to_list() == [4, 1, 10] and frame.to_series(0).is_null().to_list()[:2] == [False, False]


def test_all_keys_missing_and_no_rows(client):
    for keys in (pd.Series([None, None], dtype=object), np.array([np.nan, np.nan]), pl.Series([None, None], dtype=pl.String)):
        result = client.reduce(np.ones(2), "sum,max,count", keys=keys)
        assert len(result.group_keys) == 0 and result.sum.shape == result.max.shape == result["count"].shape == (0,)
        assert client.sum(np.ones((2, 3)), keys=keys).shape == (0, 3)
        assert client.sum(np.ones(2), keys=keys, missing="group").tolist() == [2]
    empty = pd.Series([], dtype="f8", name="v")
    keys = pd.Series([], dtype="category", name="k")
    assert client.mean(empty, keys=keys).empty and client.mean(empty, keys=keys).index.name == "k"
    frame = client.sum(pd.DataFrame({"k": ["a", None], "x": [1, 2], "y": [0.5, 2]}).iloc[1:], keys="k")
    assert frame.shape == (0, 2) and frame.columns.tolist() == ["x", "y"] and frame.dtypes.tolist() == [np.int64, np.float64]
    assert client.sum(pl.DataFrame({"k": [None], "x": [1]}, schema={"k": pl.String, "x": pl.Int64}), keys="k").height == 0


def test_where_and_keys(local):
    keys, values = pd.Series(FRUIT, name="k"), pd.Series(VALUES, name="v")
    mask = pd.Series([False, True, True, False, True, True])
    right = values[mask].groupby(keys[mask], sort=False).sum()
    pd.testing.assert_series_equal(local.sum(values, keys=keys, where=mask, sort=False), right)
    pd.testing.assert_series_equal(local.sum(values, keys=keys, where=mask), right.sort_index())
    pd.testing.assert_series_equal(local.sum(values, keys=keys, where=mask.sample(frac=1, random_state=1)), right.sort_index())
    assert local.sum(VALUES, keys=FRUIT, where=np.zeros(6, "?")).shape == (0,)
    columns = np.zeros((6, 2), "?")
    columns[1, 0] = columns[4, 1] = True
    result = local.reduce(np.stack([VALUES, VALUES], 1), "sum", keys=FRUIT, where=columns)
    assert result.group_keys.tolist() == ["fig"] and result.sum.tolist() == [[2, 16]]
    with local.put(mask.to_numpy()) as resident, pytest.raises(TypeError, match="^where: got a mask in the memory of a server"):
        local.sum(VALUES, keys=FRUIT, where=resident)


def test_masks_of_frames_and_integer_keys(local):
    frame = pd.DataFrame({"k": [1, 1, 2, 3], "x": [1, 2, 4, 8], "y": [1.5, 2.5, 4.5, 8.5]})
    mask = pd.DataFrame({"x": [True, True, False, False], "y": [False, False, True, False]})
    found = local.reduce(frame, "sum,max", keys="k", where=mask)
    assert found.group_keys.tolist() == [1, 2] and found.sum["x"].tolist() == [3, 0] and found.sum["y"].tolist() == [0, 4.5]
    assert found.max["x"].isna().tolist() == [False, True] and found.max["y"].isna().tolist() == [True, False]
    assert local.sum(frame.drop(columns="k"), keys=frame["k"], where=mask).equals(found.sum.rename_axis("k"))


def test_series_are_aligned_as_pandas_aligns_them(local):
    index = pd.Index([5, 3, 9, 3, 1, 7])
    values = pd.Series(VALUES, index=index, name="v")
    keys = pd.Series({9: "a", 1: "b", 3: "b", 5: "a", 8: "z", 7: "a"}, name="k")
    pd.testing.assert_series_equal(local.sum(values, keys=keys), values.groupby(keys).sum())
    fewer = keys.drop(7)
    pd.testing.assert_series_equal(local.sum(values, keys=fewer), values.groupby(fewer).sum())
    numbers = pd.Series({9: 1, 1: 2, 3: 2, 5: 1}, name="k")
    assert local.sum(values, keys=numbers).to_dict() == {1: 5, 2: 26} and local.sum(values, keys=numbers).index.dtype == "Int64"
    assert local.sum(values, keys=keys.to_numpy()).to_dict() == {"a": 41, "b": 6, "z": 16}  # an array has no index
    with pytest.raises(ValueError, match="^keys: got another index than the array's, with duplicates; allowed: the same index"):
        local.sum(values, keys=pd.Series(FRUIT, index=[1, 1, 2, 3, 4, 5]))
    pd.testing.assert_series_equal(local.sum(values, keys=pd.Series(FRUIT, index=index, name="k")), values.groupby(pd.Series(FRUIT, index=index, name="k")).sum())
    for short in (pd.Series(FRUIT[:4]), FRUIT[:4], np.array(FRUIT[:4]), pl.Series(FRUIT[:4])):
        with pytest.raises(ValueError, match="^keys: got 4 "):
            local.sum(pd.Series(VALUES), keys=short)
    weights = pd.Series([1.0, 2, 3, 4], index=list("dcba"))
    array = pd.Series([1.0, 10, 100, 1000], index=list("abcd"))
    assert local.mean(array, weights=weights) == np.average([1, 10, 100, 1000], weights=[4, 3, 2, 1])
    assert local.corr(array, weights) == local.corr(array.to_numpy(), weights.to_numpy()[::-1])
    assert local.compare(array, array.sample(frac=1, random_state=4)).equal
    with pytest.raises(ValueError, match="^y: got 3 items, without 1 labels of the array's index"):
        local.dot(array, weights.iloc[:3])
    one = pd.DataFrame({"x": array, "y": 2 * array})
    assert local.mean(one, weights=weights, axis=0).tolist() == [local.mean(array, weights=weights)] * 1 + [2 * local.mean(array, weights=weights)]
    assert local.sum(one, 0, where=pd.Series([True, False, True, False], index=list("abcd"))).to_dict() == {"x": 101, "y": 202}
    assert local.sum(one, 0, where=pd.DataFrame({"y": True, "x": [True, False, True, False]}, index=list("abcd"))).to_dict() == {"x": 101, "y": 2222}


def test_frames_of_pandas(local):
    frame = pd.DataFrame({"shop": ["b", "a", "b", "a"], "month": [1, 1, 2, 1], "price": [1.5, 2.5, 4.0, 8.0], "n": [2**53 + 1, 2, 3, 4], "ok": [True, False, True, True],
                          "q": pd.array([1, None, None, None], dtype="Int64")}, index=list("wxyz"))
    right = frame.groupby(["shop", "month"])[["price", "n", "ok", "q"]]
    found = local.reduce(frame, "sum,count", keys=["shop", "month"])
    pd.testing.assert_frame_equal(found.sum, right.sum(), check_dtype=False)
    assert found.sum.dtypes.tolist()[:2] == [np.float64, np.int64] and found.sum.dtypes["q"] == "Int64" and found.sum["n"].iloc[1] == 2**53 + 1
    pd.testing.assert_index_equal(found.group_keys, right.sum().index)
    pd.testing.assert_frame_equal(found["count"], right.count())
    pd.testing.assert_frame_equal(local.max(frame[["shop", "price", "q"]], keys="shop"), frame.groupby("shop")[["price", "q"]].max())
    pd.testing.assert_frame_equal(local.max(frame[["price", "q"]], keys=[frame["shop"], frame["month"] > 1]), frame.groupby(["shop", frame["month"] > 1])[["price", "q"]].max())
    numbers = frame[["price", "n"]]
    pd.testing.assert_series_equal(local.min(numbers, 0), numbers.min())
    assert local.max(numbers, axis=0).tolist() == [8.0, 2**53 + 1] and local.max(numbers, axis=0).dtype == object  # no float64 has the integer
    pd.testing.assert_series_equal(local.mean(frame[["price"]], axis="columns"), frame[["price"]].mean(axis=1))
    pd.testing.assert_series_equal(local.argmax(numbers, axis="index"), pd.Series({"price": 3, "n": 0}))
    assert local.sum(frame[["price"]]) == 16 and isinstance(local.sum(frame["price"]), np.float64)
    assert local.sum(frame[["price", "ok"]], axis=0, keepdims=True).shape == (1, 2) and local.sum(frame[["n"]], axis=0, keepdims=True).dtype == np.int64
    with pytest.raises(TypeError, match="^array: column 'shop': "):
        local.sum(frame, keys="month")
    for wrong, message in (("nowhere", "keys: got 'nowhere'; allowed: columns, or the names of columns and index levels, which are 'shop'"), ):
        with pytest.raises(ValueError, match=message):
            local.sum(frame, keys=wrong)
    twice = pd.DataFrame([[1, 2.5], [3, 4.5]], columns=["x", "x"])
    pd.testing.assert_frame_equal(local.sum(twice, keys=["b", "b"]), pd.DataFrame([[4, 7.0]], columns=["x", "x"], index=["b"]))
    levels = frame[["price", "n"]].set_index(pd.MultiIndex.from_arrays([[1, 2, 1, 2], list("ppqq")], names=["one", "two"]))
    pd.testing.assert_frame_equal(local.sum(levels, keys="two"), levels.groupby("two").sum())
    pd.testing.assert_series_equal(local.sum(levels[["price"]], axis=1), levels[["price"]].sum(axis=1))
    wide = pd.DataFrame(np.arange(12).reshape(4, 3), columns=list("abc"))
    for each in (wide, pd.DataFrame(np.asfortranarray(wide), columns=list("abc")), wide.assign(b=wide["b"].astype("i4"))):
        pd.testing.assert_frame_equal(local.sum(each, keys=list("xyxy")), each.groupby(list("xyxy")).sum(), check_dtype=False)
        pd.testing.assert_series_equal(local.mean(each, axis=0), each.mean())
        pd.testing.assert_series_equal(local.median(each, 0), each.median())
        pd.testing.assert_frame_equal(local.quantile(each, [0.25, 0.5], 0), each.quantile([0.25, 0.5]))
        pd.testing.assert_frame_equal(local.median(each, keys=list("xyxy")), each.groupby(list("xyxy")).median())
    segments = local.sum(wide, lengths=[1, 3])
    assert segments.columns.tolist() == list("abc") and segments["a"].tolist() == [0, 18]


def test_groups_without_elements_are_missing(local):
    keys = pd.Series(["a", "b", "a"], name="k")
    for dtype in ("Int64", "UInt8", "boolean", "Float64", "int64[pyarrow]"):
        column = pd.Series([1, None, 1], dtype=dtype, name="v")
        pd.testing.assert_series_equal(local.max(column, keys=keys), column.groupby(keys).max(), check_dtype=False)
        assert local.count(column, keys=keys).tolist() == [2, 0]
    floats = pd.Series([1.5, np.nan, 2.5], name="v")
    pd.testing.assert_series_equal(local.min(floats, keys=keys, nan="omit"), floats.groupby(keys).min())
    assert local.max(pl.Series("v", [1, None, 5]), keys=keys)["v"].to_list() == [5, None]
    assert local.max(pd.DataFrame({"x": [1, 2, 3]}), axis=1, where=np.array([[True], [False], [True]])).tolist()[0] == 1
    assert pd.isna(local.max(pd.DataFrame({"x": [1, 2, 3]}), axis=1, where=np.array([[True], [False], [True]]))[1])
    with pytest.raises(reduced.InvalidArgumentError, match="^output .1.: op min: got an"):
        local.min(pd.Series([1, None, 1], dtype="Int64"), keys=keys, empty="error")
    used = pd.Series(["x", "y"], dtype=pd.CategoricalDtype(["z", "y", "x", "w"]), name="k")
    pd.testing.assert_series_equal(local.sum(pd.Series([1, 2]), keys=used), pd.Series([1, 2]).groupby(used, observed=True).sum())
    assert local.sum(pd.Series([1, 2]), keys=used).index.tolist() == ["y", "x"]
    described = local.describe(pd.Series([1, None, 3], dtype="Int64"), keys=keys)
    assert described.min.isna().tolist() == [False, True] and described.max["a"] == 3 and described["count"].tolist() == [2, 0]


def test_polars(local):
    frame = pl.DataFrame({"shop": ["b", "a", None, "b"], "price": [1.5, 2.5, 8.0, 4.0], "n": [2**53 + 1, None, 5, 2]})
    right = frame.drop_nulls("shop").group_by("shop").agg(pl.col("price").sum(), pl.col("n").sum()).sort("shop")
    assert local.sum(frame, keys="shop").equals(right)
    assert local.sum(frame.drop("n"), keys="shop", missing="group", sort=False)["shop"].to_list() == ["b", "a", None]
    assert local.max(frame.drop("shop"), axis=0).equals(frame.drop("shop").max())
    assert local.sum(frame[["price"]], axis=1).to_list() == frame["price"].to_list()
    assert local.sum(frame["price"], keys=[frame["shop"], frame["price"] > 2]).columns == ["shop", "price", "price_sum"]
    renamed = local.sum(frame["price"], keys=frame["price"])
    assert renamed.columns == ["price", "price_sum"] and renamed["price"].to_list() == renamed["price_sum"].to_list()
    several = local.reduce(frame, "sum", keys=["shop", "n"], missing="group").sum
    assert several.columns == ["shop", "n", "price"] and several.rows() == [("a", None, 2.5), ("b", 2, 4.0), ("b", 2**53 + 1, 1.5), (None, 5, 8.0)]
    zoned = pl.Series("t", [datetime.datetime(2024, 3, 30, 23), datetime.datetime(2024, 3, 31, 23)]).dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Paris")
    assert local.sum(pl.Series("v", [1, 2]), keys=zoned, bucket="month").rows() == [(zoned.dt.truncate("1mo")[0], 1), (zoned.dt.truncate("1mo")[1], 2)]
    assert local.max(zoned) == zoned.max() and local.max(pl.Series("t", zoned), keys=[1, 1])["t"].to_list() == [zoned.max()]
    assert local.sum(frame["price"], where=frame["n"].is_not_null()) == 13.5


def test_other_keys(local):
    assert local.reduce(VALUES, "sum", keys=[1.5, -0.0, 0.0, 1.5, float("nan"), 2]).sum.tolist() == [6, 9, 32]
    assert local.reduce(VALUES, "sum", keys=np.array([1.5, 0, 0, 1.5, 2, 2], "f2")).sum.tolist() == [6, 9, 48]
    assert local.reduce(VALUES, "sum", keys=np.array([True, False] * 3)).group_keys.tolist() == [False, True]
    rows = np.array(list(zip(FRUIT, [1, 1, 1, 2, 2, 1])), [("fruit", "U5"), ("n", "i4")])
    assert local.reduce(VALUES, "sum", keys=rows).sum.tolist() == [2, 16, 37, 8]
    assert local.reduce(VALUES, "sum", keys=pd.DataFrame({"x": FRUIT, "y": 1})).group_keys.names == ["x", "y"]
    assert local.reduce(VALUES, "sum", keys=pa.table({"x": FRUIT, "y": [1] * 6})).sum.tolist() == [18, 37, 8]
    assert local.reduce(VALUES, "sum", keys=pl.DataFrame({"x": FRUIT, "y": [1] * 6})).group_keys.columns == ["x", "y"]
    assert local.sum(VALUES, keys=pa.array([1, 1, 1, 2, 2, None], pa.decimal128(5, 2))).tolist() == [7, 24]
    doubled = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3, 2, 0], pa.int8()), pa.array(["kiwi", "fig", "kiwi", "fig"]))
    assert dictionary(local.reduce(VALUES, "sum", keys=doubled)) == {"fig": 10, "kiwi": 53}
    assert local.sum(VALUES, keys=np.array(["", "", "", "a", "", ""])).tolist() == [55, 8] and local.sum(VALUES, keys=np.array([""] * 6)).tolist() == [63]
    for keys, error, message in (
        (np.zeros(6, complex), TypeError, "keys: got complex128; allowed: integers, strings"), (np.zeros((6, 1), "U1"), TypeError, "keys: got an array of 2 dim"),
        ([{}] * 6, TypeError, "keys: got objects that have no order or no hash"), ([(1, 2)] * 6, TypeError, "keys: got tuples"),
        ("shop", ValueError, "keys: got 'shop'|keys"), (np.array([1, "a", 2.5, None, 3, 4], object), TypeError, "keys: got objects that have no order"),
    ):
        with pytest.raises(error, match=f"^{message}"):
            local.sum(VALUES, keys=keys)
    for options, error, message in (
        ({"keys": FRUIT, "groups": 3}, TypeError, "groups: got it with keys of"), ({"keys": pd.array([1, None] * 3, dtype="Int64"), "groups": 3}, TypeError, "groups: got it"),
        ({"keys": FRUIT, "missing": "keep"}, ValueError, "missing: got 'keep'; allowed: 'drop', 'group'"), ({"missing": "group"}, ValueError, "missing: got it without keys"),
        ({"keys": FRUIT, "bucket": "month"}, TypeError, "bucket: got 'month' for keys of str; allowed: for keys that are times"),
        ({"bucket": "month"}, ValueError, "bucket: got it without keys"), ({"keys": FRUIT, "sort": "no"}, TypeError, "sort: got 'no'; allowed: True, False"),
        ({"keys": FRUIT, "axis": 0}, ValueError, "keys: got it beside axis"), ({"axis": "time"}, TypeError, "axis: got 'time'; allowed: whole numbers"),
        ({"keys": FRUIT, "outside": "drop"}, ValueError, "outside: got it without groups"),
    ):
        with pytest.raises(error, match=f"^{message}"):
            local.sum(VALUES, **options)


def test_buckets(local):
    times = np.array(["2023-12-31T23:59:59.999", "2024-01-01", "2024-02-29T12:15", "1969-12-31T22:00", "2024-01-07T01:00"], "M8[ms]")
    for bucket, right in (("year", times.astype("M8[Y]")), ("month", times.astype("M8[M]")), ("day", times.astype("M8[D]")), ("h", times.astype("M8[h]")),
                          ("15min", pd.DatetimeIndex(times).floor("15min").to_numpy()), ("2day", pd.DatetimeIndex(times).floor("2D").to_numpy()),
                          ("quarter", pd.DatetimeIndex(times).to_period("Q").start_time.to_numpy()), ("week", pd.DatetimeIndex(times).to_period("W").start_time.to_numpy()),
                          ("30 s", pd.DatetimeIndex(times).floor("30s").to_numpy())):
        keys, counts = np.unique(right.astype("M8[ms]"), return_counts=True)
        result = local.reduce(np.ones(5), "count", keys=times, bucket=bucket)
        assert result.group_keys.dtype == times.dtype and np.array_equal(result.group_keys, keys) and np.array_equal(result["count"], counts), bucket
        of_pandas = local.count(pd.Series(np.ones(5)), keys=pd.Series(times, name="t"), bucket=bucket)
        assert of_pandas.index.dtype == np.dtype("M8[ms]") and of_pandas.index.name == "t" and np.array_equal(of_pandas.index.to_numpy(), keys)
        for other in (pl.Series("t", times), pa.array(times), pd.Series(times, dtype=pd.ArrowDtype(pa.timestamp("ms"))), pa.chunked_array([times[:2], times[2:]])):
            assert local.reduce(np.ones(5), "count", keys=other, bucket=bucket)["count"].tolist() == counts.tolist(), (bucket, type(other))
    mixed = local.count(np.ones(5), keys=[["a", "b", "a", "b", "a"], times], bucket="year")
    assert mixed.tolist() == [1, 2, 1, 1]
    lengths = np.array([-1, 59, 60, 3600], "m8[s]")
    assert local.reduce(np.ones(4), "count", keys=lengths, bucket="1min").group_keys.astype(int).tolist() == [-60, 0, 60, 3600]
    assert local.reduce(np.ones(3), "count", keys=[datetime.date(2020, 1, 31), datetime.date(2020, 1, 1), None], bucket="month")["count"].tolist() == [2]
    stamps = [pd.Timestamp("2020-01-31 00:00:00.000000001"), pd.NaT, pd.Timestamp("2020-01-31")]
    assert local.count(np.ones(3), keys=stamps).tolist() == [1, 1] and local.count(np.ones(3), keys=stamps, bucket="month").tolist() == [2]
    utc, west = datetime.timezone.utc, datetime.timezone(datetime.timedelta(hours=-1))
    zoned = [datetime.datetime(2020, 1, 1, 1, tzinfo=utc), None, datetime.datetime(2020, 1, 1, 0, tzinfo=west)]
    assert local.count(np.ones(3), keys=zoned).tolist() == [2]
    with pytest.raises(TypeError, match="^bucket: got 'day' for keys of a list of times with a zone"):
        local.count(np.ones(3), keys=zoned, bucket="day")
    assert local.count(np.ones(3), keys=[["a"] * 3, [datetime.date(2020, 1, 31), None, datetime.date(2020, 1, 1)]], bucket="month").tolist() == [2]
    assert local.reduce(np.ones(2), "count", keys=np.array(["2020-01-01", "2020-01-02"], "M8[D]"), bucket="1h").group_keys.dtype == "M8[D]"
    for bucket, error in (("fortnight", ValueError), ("0day", ValueError), ("2month", ValueError), ("1M", ValueError), (3, TypeError)):
        with pytest.raises(error, match="^bucket: got "):
            local.sum(np.ones(5), keys=times, bucket=bucket)
    early = np.array([np.iinfo("i8").min + 1, 0], "i8").view("M8[ns]")
    for bucket in ("month", "day", "1h"):
        with pytest.raises(OverflowError, match="^bucket: got a time whose "):
            local.sum(np.ones(2), keys=early, bucket=bucket)
    far = np.array(["-20000-05-06", "20000-05-06T01", "NaT"], "M8[s]")
    assert local.reduce(np.ones(3), "sum", keys=far, bucket="month").group_keys.tolist() == far[:2].astype("M8[M]").astype("M8[s]").tolist()
    with pytest.raises(TypeError, match="^bucket: got 'month' for timedelta64"):
        local.sum(np.ones(4), keys=lengths, bucket="month")


def test_buckets_of_a_zone(local):
    """The clock of New York: days are 23 to 25 hours long, and an hour comes twice."""
    times = pd.Series(pd.date_range("2024-03-09 12:00", "2024-03-11 12:00", freq="1h", tz="America/New_York"), name="t")
    values = pd.Series(np.arange(len(times)), name="v")
    right = values.groupby(times.dt.floor("D")).sum()
    pd.testing.assert_series_equal(local.sum(values, keys=times, bucket="day"), right)
    autumn = pd.Series(pd.date_range("2024-11-03 00:30", periods=4, freq="1h", tz="America/New_York"))
    assert local.count(pd.Series(np.ones(4)), keys=autumn, bucket="1h").tolist() == [1, 2, 1]
    assert local.count(pd.Series(np.ones(4)), keys=autumn).tolist() == [1, 1, 1, 1]
    assert local.count(pd.Series(np.ones(4)), keys=autumn.astype(pd.ArrowDtype(pa.timestamp("ns", "America/New_York"))), bucket="1h").tolist() == [1, 2, 1]
    month = local.count(np.ones(len(times)), keys=times.dt.tz_convert("Asia/Tokyo"), bucket="month")
    assert month.tolist() == [len(times)]


KEYS = {
    "str": (st.one_of(st.none(), st.sampled_from(["", "a", "b", "ab", "ä", "\U0001f600", "zz\x00z"])), "str"),
    "object": (st.one_of(st.none(), st.sampled_from(["", "a", "b", "B", "ä"])), object),
    "category": (st.one_of(st.none(), st.sampled_from(["b", "a", "c"])), pd.CategoricalDtype(["c", "a", "unused", "b"])),
    "Int64": (st.one_of(st.none(), st.integers(-2, 2), st.just(2**63 - 1)), "Int64"),
    "u1": (st.integers(0, 3), "u1"),
    "f8": (st.one_of(st.none(), st.sampled_from([0.0, -1.5, 2.5, np.inf])), "f8"),
    "boolean": (st.one_of(st.none(), st.booleans()), "boolean"),
    "times": (st.one_of(st.none(), st.sampled_from([pd.Timestamp("1960-01-01"), pd.Timestamp("2024-02-29 01:02:03")])), "M8[us]"),
    "arrow": (st.one_of(st.none(), st.sampled_from(["x", "y"])), pd.ArrowDtype(pa.string())),
}


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_as_pandas(data):
    """Sums, counts and greatest values of groups: the labels are those of pandas, with their dtype; the values exact."""
    client = reduced.connect("local:")
    rows = data.draw(st.integers(0, 12))
    number = data.draw(st.integers(1, 3))
    keys = []
    for place in range(number):
        values, dtype = KEYS[data.draw(st.sampled_from(sorted(KEYS)))]
        column = data.draw(st.lists(values, min_size=rows, max_size=rows))
        keys.append(pd.Series(column, dtype=dtype, name=data.draw(st.sampled_from([None, f"k{place}"]))))
    elements = data.draw(st.lists(st.one_of(st.none(), st.integers(-(2**58), 2**58)), min_size=rows, max_size=rows))
    series = pd.Series(elements, dtype="Int64", name="v")
    index = pd.Index(data.draw(st.permutations(range(rows))))
    series.index = index
    for key in keys:
        key.index = index
    if data.draw(st.booleans()):  # keys in another order, with the same labels
        keys = [key.sort_index() for key in keys]
    sort, dropna = data.draw(st.booleans()), data.draw(st.booleans())
    given_keys = keys if number > 1 else keys[0]
    found = client.reduce(series, "sum,count,max", keys=given_keys, sort=sort, missing="drop" if dropna else "group")
    groups = series.groupby(given_keys, sort=sort, dropna=dropna, observed=True)
    right = groups.sum()
    if number == 1:
        if found.sum.index.dtype == object and found.sum.index.hasnans:  # None is what was missing, which pandas makes NaN of
            found.sum.index, found.max.index = (pd.Index([np.nan if pd.isna(key) else key for key in each.index], dtype=right.index.dtype, name=each.index.name)
                                                for each in (found.sum, found.max))
            found.group_keys = found.sum.index
        pd.testing.assert_series_equal(found.sum, right)
        pd.testing.assert_series_equal(found.max, groups.max())
        pd.testing.assert_index_equal(found.group_keys, right.index)
    else:
        assert found.sum.index.names == right.index.names and found.sum.index.nlevels == number
        assert [tuple("nan" if pd.isna(each) else each for each in row) for row in found.sum.index] == [
            tuple("nan" if pd.isna(each) else each for each in row) for row in right.index]
    assert found.sum.tolist() == right.tolist() and found["count"].tolist() == groups.count().tolist()
    exact = collections.defaultdict(list)
    for row, element in zip(zip(*(key.reindex(index).tolist() if not key.empty else [] for key in keys)), elements):
        exact[tuple("nan" if pd.isna(each) else each for each in row)].append(element)
    for label, value in zip(found.sum.index, found.sum):
        label = label if number > 1 else (label,)
        own = [each for each in exact[tuple("nan" if pd.isna(each) else each for each in label)] if each is not None]
        assert value == sum(map(Fraction, own), Fraction(0))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_as_polars(data):
    client = reduced.connect("local:")
    rows = data.draw(st.integers(1, 12))
    frame = pl.DataFrame({"k": data.draw(st.lists(st.one_of(st.none(), st.sampled_from(["a", "b", "long enough to be no inline view", ""])), min_size=rows, max_size=rows)),
                          "n": data.draw(st.lists(st.one_of(st.none(), st.integers(0, 2)), min_size=rows, max_size=rows)),
                          "v": data.draw(st.lists(st.one_of(st.none(), st.integers(-9, 9)), min_size=rows, max_size=rows))},
                         schema={"k": pl.String, "n": pl.Int8, "v": pl.Int64})
    found = client.reduce(frame, "sum,max", keys=["k", "n"], missing="group")
    right = frame.group_by("k", "n").agg(pl.col("v").sum()).sort("k", "n", nulls_last=True)
    assert found.sum.rows() == right.rows() and found.sum.schema == right.schema
    assert found.max.rows() == frame.group_by("k", "n").agg(pl.col("v").max()).sort("k", "n", nulls_last=True).rows()


def test_many_keys_are_the_same_on_every_client(client):
    random = np.random.default_rng(8)
    names = np.array([f"name {number}" for number in range(5000)])
    keys, values = pd.Series(random.choice(names, 100_000), name="k"), pd.Series(random.integers(-9, 9, 100_000), name="v")
    pd.testing.assert_series_equal(client.sum(values, keys=keys), values.groupby(keys).sum())
    pd.testing.assert_series_equal(client.median(values, keys=keys), values.groupby(keys).median())

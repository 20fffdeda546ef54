"""GROUP BY keys of any kind as codes, beside pandas and NumPy."""

import random

import numpy as np
import pandas as pd
import pytest

import reduced
from reduced import _core


def utf8(texts, dtype=np.int32):
    """As Arrow has them. None: missing."""
    encoded = [("?" if text is None else text).encode("utf-8", "surrogatepass") if not isinstance(text, bytes) else text
               for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)]).astype(dtype)
    data = np.frombuffer(b"".join(encoded), np.uint8)
    return "utf8", offsets, data, np.array([text is not None for text in texts], bool)


def fixed(texts, kind):
    array = np.array([*texts, b"" if kind == "S" else ""], kind)  # one more, since no array of 0 has a width
    unit = np.uint8 if kind == "S" else np.uint32
    return ("bytes" if kind == "S" else "ucs4", array.view(unit).reshape(len(array), -1)[:-1], None)


def expect(columns, keys):
    """`keys`: a list or an array for each column, with None or NaN where a key is missing."""
    frame = pd.DataFrame({f"k{i}": pd.Series(column, dtype=object if isinstance(column, list) else None)
                          for i, column in enumerate(keys)})
    for sort in (True, False):
        for missing in ("drop", "group"):
            grouped = frame.groupby(list(frame), sort=sort, dropna=missing == "drop")
            codes, groups, first = _core.encode_keys(columns, sort, missing)
            assert codes.dtype == np.int32 and first.dtype == np.int64
            np.testing.assert_array_equal(codes, grouped.ngroup().to_numpy(dtype=float, na_value=-1))
            assert groups == len(first) == grouped.ngroups
            assert [codes[row] for row in first] == list(range(groups))
            seen = {}
            for row, code in enumerate(codes.tolist()):
                if code >= 0:
                    seen.setdefault(code, row)
            assert [seen[group] for group in range(groups)] == first.tolist()


WORDS = {
    "few": ["north", "south", "", "north", "east", "sou", "south\x00", "é", "z", "😀", "\uffff"],
    "one": ["only"],
    "none": [],
    "long": ["a" * 100_000 + end for end in "cbacb"],
    "same prefix": [f"customer-{i * 7919 % 300:06}" for i in range(3000)],
    "many": [f"{i * 7919 % 40_009}" for i in range(50_000)],
}


@pytest.mark.parametrize("name", WORDS)
def test_text(name):
    words = WORDS[name]
    some = [None if i % 5 == 2 else word for i, word in enumerate(words)]
    for keys in (words, some, [None] * len(words)):
        expect([utf8(keys)], [keys])
        expect([utf8(keys, np.int64)], [keys])
        expect([("objects", keys, None)], [keys])
        expect([("objects", np.array([*keys, ""], object)[:-1], None)], [keys])
    plain = [word.rstrip("\0") for word in words]
    expect([fixed(words, "U")], [plain])
    expect([fixed([word.encode() for word in words], "S")], [[word.encode() for word in plain]])


NUMBERS = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"]


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("count", [0, 1, 1000, 30_000])
def test_numbers(dtype, count):
    rng = np.random.default_rng(count)
    raw = rng.integers(0, 256, (count, np.dtype(dtype).itemsize), np.uint8)
    near = rng.integers(0, 100, count).astype(dtype)
    for keys in (near, np.resize(raw.view(dtype).reshape(-1) if dtype != "?" else raw[:, 0] > 99, count)):
        if keys.dtype.kind == "f":
            keys[::7] = np.nan
            keys[1::11] = -0.0
            keys[2::11] = 0.0
        expect([("numbers", keys, None)], [keys])
    valid = rng.integers(0, 3, count) > 0
    if near.dtype.kind == "f":
        masked = np.where(valid, near, np.nan).astype(dtype)
    else:
        masked = (pd.arrays.BooleanArray if dtype == "?" else pd.arrays.IntegerArray)(near, ~valid)
    expect([("numbers", near, valid)], [masked])


def test_several_columns():
    rng = random.Random(5)
    shops = [rng.choice(["north", "south", None, "ost"]) for _ in range(20_000)]
    months = np.array([rng.randrange(-3, 9) for _ in shops])
    prices = np.array([rng.choice([1.5, np.nan, -2.0, 1e300]) for _ in shops])
    expect([utf8(shops), ("numbers", months, None)], [shops, months])
    expect([("numbers", prices, None), ("objects", shops, None), ("numbers", months, None)], [prices, shops, months])


def test_which_objects_are_missing():
    keys = ["b", None, float("nan"), pd.NA, np.float64("nan"), np.str_("a"), "b"]
    codes, groups, first = _core.encode_keys([("objects", keys, None)], True, "drop")
    assert (codes.tolist(), groups, first.tolist()) == ([1, -1, -1, -1, -1, 0, 1], 2, [5, 0])
    codes, groups, first = _core.encode_keys([("objects", np.array(keys, object), None)], False, "group")
    assert (codes.tolist(), groups, first.tolist()) == ([0, 1, 1, 1, 1, 2, 0], 3, [0, 1, 5])


def test_text_that_is_no_unicode():
    # By code points: half of a surrogate pair lies below the last characters of the first plane.
    keys = ["\udc80", "\uffff", "\ud800", "\U0001f600", "\udc80"]
    for column in (("objects", keys, None), utf8(keys), fixed(keys, "U")):
        codes, _, first = _core.encode_keys([column], True, "drop")
        assert codes.tolist() == [1, 2, 0, 3, 1] and first.tolist() == [2, 0, 1, 3]
    codes, _, _ = _core.encode_keys([utf8([b"\xff\xfe", b"\xff", b"\x00", b"\x80"])], True, "drop")
    assert codes.tolist() == [3, 2, 0, 1]


def test_arrays_that_cannot_be_written():
    keys = np.array([3, 1, 3])
    keys.flags.writeable = False
    assert _core.encode_keys([("numbers", keys, None)], True, "drop")[0].tolist() == [1, 0, 1]


@pytest.mark.parametrize("column, message", [
    (("objects", ["a", 5], None), r"keys\[1\]: got int; allowed: str, None, NaN, pandas.NA"),
    (("objects", ["a", b"b"], None), r"keys\[1\]: got bytes; allowed: str"),
    (("objects", ["a", 1.5], None), r"keys\[1\]: got float; allowed: str"),
    (("objects", np.arange(2), None), r"keys\[1\]: got an array of another dtype; allowed: a list or an array of objects"),
    (("numbers", np.arange(4)[::2], None), r"keys\[1\]: got ndarray; allowed: an array of numbers of one dimension in C"),
    (("numbers", np.zeros((2, 1)), None), r"keys\[1\]: got 2 dimensions; allowed: an array of numbers of one dim"),
    (("numbers", np.zeros(2, ">i4"), None), r"keys\[1\]: got an array of another dtype; allowed: bool, integers, f4"),
    (("numbers", np.zeros(2, "f2"), None), r"keys\[1\]: got an array of another dtype; allowed: bool, integers, f4"),
    (("numbers", [1, 2], None), r"keys\[1\]: got list; allowed: an array of numbers"),
    (("numbers", np.zeros(2), np.ones(3, bool)), r"keys\[1\]: got a validity of 3 rows; allowed: the 2 of the keys"),
    (("numbers", np.zeros(2), np.ones(2, "u1")), r"keys\[1\]: got an array of u8; allowed: bool"),
    (("utf8", np.zeros(3, "u4"), np.zeros(2, "u1"), None), r"keys\[1\]: got an array of u32; allowed: i64"),
    (("words", np.zeros(2), None), r"keys\[1\]: got words; allowed: a tuple of numbers, bytes, ucs4, utf8 or objects"),
    (("numbers", np.zeros(2)), r"keys\[1\]: got tuple; allowed: a tuple of numbers"),
    ("numbers", r"keys\[1\]: got str; allowed: a tuple of numbers"),
])
def test_what_is_refused(column, message):
    with pytest.raises(TypeError, match=message):
        _core.encode_keys([("numbers", np.arange(2), None), column], True, "drop")


def test_what_the_library_refuses():
    for columns, missing, message in [
        ([], "drop", "keys: got no column"),
        ([("numbers", np.arange(2), None), ("numbers", np.arange(3), None)], "drop", r"keys\[1\]: got 3 rows; allowed: the 2 of"),
        ([("numbers", np.arange(2), None)], "keep", "missing: got keep; allowed: drop, group"),
        ([("utf8", np.array([0, 5]), np.zeros(3, "u1"), None)], "drop", r"keys\[0\]: got offsets from 0 to 5; allowed"),
        ([("utf8", np.array([0, 2, 1, 3]), np.zeros(3, "u1"), None)], "drop", r"keys\[0\]: got offsets .* that descend"),
        ([("utf8", np.zeros(0, "i4"), np.zeros(3, "u1"), None)], "drop", r"keys\[0\]: got no offsets"),
    ]:
        with pytest.raises(reduced.InvalidArgumentError, match=message):
            _core.encode_keys(columns, True, missing)

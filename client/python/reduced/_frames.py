"""Series and frames: what those of pandas and polars have in common; pandas' names and indexes, and results that have them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reduced import _core
from reduced._containers import read
from reduced._keys import Groups, is_column
from reduced._labels import Answer, Container, Part
from reduced._options import Options

_DISTRIBUTION = frozenset(_core.distribution)
# Ops whose results are int64, whatever the dtype of a column of pandas.
_NUMBERS = frozenset({"distinct", "distinct_exact", "nan_count", "missing"})


def _name(op: str) -> str:
    return op.partition("(")[0].strip()


def axes(options: Options, ndim: int) -> tuple[int, ...] | None:
    """The dimensions that are reduced; None: those that `axis` does not say."""
    axis = options.get("axis")
    if axis is None:
        return None
    listed = axis if isinstance(axis, tuple | list) else (axis,)
    return tuple(int(each) % ndim if ndim > 0 and isinstance(each, int | np.integer) else 0 for each in listed)


def grouped(options: Options) -> bool:
    """Whether outputs are groups of rows."""
    return any(options.get(name) is not None for name in ("keys", "segments", "lengths"))


def _by_columns(names: Sequence[str], options: Options) -> bool:
    """Whether each column of a frame is reduced by itself."""
    along_rows = grouped(options) or axes(options, 2) == (0,)
    kept = any(options.get(name) for name in ("keepdims", "state", "keep"))
    return along_rows and not kept and not any(_name(op) in _DISTRIBUTION or _name(op) == "compare" for op in names)


def _trailing(op: str, size: int) -> list[Any]:
    """The labels of the last dimension of answers that are arrays."""
    if _name(op) in ("quantile", "weighted_quantile"):
        numbers = op.partition("(")[2].partition(")")[0].partition(";")[0].split(",")
        if len(numbers) == size:
            return [float(number) for number in numbers]
    return list(range(size))


def _side_of_column(side: Any, number: int, columns: int) -> Any:
    """What belongs to one column of a mask, y or weights beside a frame."""
    if side is None or np.ndim(side) != 2:
        return side
    array = side if isinstance(side, np.ndarray) or hasattr(side, "iloc") else np.asarray(side)
    width = array.shape[1]
    if width not in (1, columns):
        return side  # an error, of the whole
    at = 0 if width == 1 else number
    return array.iloc[:, at] if hasattr(array, "iloc") else array[:, at]


class Frames(Container):
    """What pandas and polars have in common."""

    fills = True
    split = False  # whether the columns of a frame are reduced by themselves

    @property
    def is_frame(self) -> bool:
        return len(self.shape) == 2

    def columns(self) -> list[tuple[Any, Any]]:
        """Names and columns."""
        raise NotImplementedError

    def _in_one(self, options: Options) -> bool:
        """Whether a frame is one array already."""
        return False

    def parts(self, names: Sequence[str], options: Options) -> list[Part]:
        columns = self.columns() if self.is_frame and _by_columns(names, options) and not self._in_one(options) else []
        if not columns:
            return [Part(self.array, options)]
        self.split = True
        found = []
        for number, (name, column) in enumerate(columns):
            own: Any = {**options}
            for side in ("where", "y", "weights"):
                if own.get(side) is not None:
                    own[side] = _side_of_column(own[side], number, len(columns))
            found.append(Part(column, own, f"column {name!r}"))
        return found


class Pandas(Frames):
    def __init__(self, array: Any) -> None:
        import pandas  # type: ignore[import-untyped]

        self.pandas = pandas
        super().__init__(pandas.Series(array, name=array.name, copy=False) if isinstance(array, pandas.Index) else array)
        self.by_position = isinstance(array, pandas.Index)

    @functools.cached_property
    def dtypes(self) -> list[Any]:
        return list(self.array.dtypes) if self.is_frame else [self.array.dtype]

    def columns(self) -> list[tuple[Any, Any]]:
        return [(name, self.array.iloc[:, number]) for number, name in enumerate(self.array.columns)]

    def _in_one(self, options: Options) -> bool:
        dtypes = set(self.dtypes)
        if len(dtypes) != 1 or not isinstance(self.dtypes[0], np.dtype) or self.dtypes[0].kind not in "biuf":
            return False
        first = self.array.iloc[:1]
        values = self.array.to_numpy() if np.may_share_memory(first.to_numpy(), first.iloc[:, 0].to_numpy()) else None
        return values is not None and (bool(values.flags.c_contiguous) or not grouped(options))

    def empty(self) -> Container:
        return Pandas(self.array.iloc[:0])

    def resolved(self, options: Options) -> tuple[Container, Options]:
        given: Any = dict(options)
        of: Pandas = self
        if isinstance(given.get("axis"), str):
            names = {"index": 0, "columns": 1} if self.is_frame else {"index": 0}
            if given["axis"] not in names:
                raise ValueError(f"axis: got {given['axis']!r}; allowed: numbers, {', '.join(names)}")
            given["axis"] = names[given["axis"]]
        if given.get("keys") is not None:
            of, given["keys"] = self._keys(given["keys"])
        where = given.get("where")
        if self._is_labelled(where):
            where = self._aligned("where", where, absent="missing")
            if self.is_frame and isinstance(where, self.pandas.DataFrame):
                where = where.reindex(columns=of.array.columns) if not where.columns.equals(of.array.columns) else where
            elif self.is_frame:
                where = as_column(where)
            given["where"] = where
        for role in ("y", "weights"):
            side = given.get(role)
            if not self._is_labelled(side):
                continue
            columns = self.is_frame and isinstance(side, self.pandas.Series) and axes(given, 2) == (1,)
            side = self._aligned(role, side, index=of.array.columns if columns else None)
            if isinstance(side, self.pandas.DataFrame) and self.is_frame and not side.columns.equals(of.array.columns):
                raise ValueError(f"{role}: got columns {list(side.columns)}; allowed: those of the array, {list(of.array.columns)}")
            whole = role == "y" or not grouped(given) and given.get("axis") is None
            given[role] = as_column(side) if whole and isinstance(side, self.pandas.Series) and self.is_frame and not columns else side
        return of, given

    def _is_labelled(self, side: Any) -> bool:
        return isinstance(side, self.pandas.Series | self.pandas.DataFrame)

    def _keys(self, keys: Any) -> tuple[Pandas, Any]:
        """Columns of keys, by name or aligned; and what is left to be reduced, which has no columns that were named."""
        if isinstance(keys, Groups):
            return self, keys
        frame = self.array
        of = self
        index = frame.index

        def is_name(each: Any) -> bool:
            return isinstance(each, Hashable) and not self._is_labelled(each) and (
                self.is_frame and _has(frame.columns, each) or each is not None and each in index.names)

        def named(name: Any) -> Any:
            if self.is_frame and _has(frame.columns, name):
                column = frame[name]
                if column.ndim != 1:
                    raise ValueError(f"keys: got {name!r}, which several columns are named; allowed: the name of one")
                return column
            return index.get_level_values(name)

        if isinstance(keys, str | bytes):
            if not is_name(keys):
                there = [*(frame.columns if self.is_frame else []), *(name for name in index.names if name is not None)]
                raise ValueError(f"keys: got {keys!r}; allowed: columns, or the names of columns and index levels, which are "
                                 f"{', '.join(map(repr, there)) or 'none'}")
            names, found = [keys], named(keys)
        elif isinstance(keys, list | tuple) and len(keys) > 0 and any(isinstance(each, str) for each in keys) and all(
                is_name(each) or is_column(each) for each in keys):
            names = [each for each in keys if is_name(each)]
            found = [named(each) if is_name(each) else self._aligned_keys(each) for each in keys]
        elif isinstance(keys, list | tuple) and any(self._is_labelled(each) for each in keys):
            names, found = [], [self._aligned_keys(each) for each in keys]
        else:
            names, found = [], self._aligned_keys(keys)
        if self.is_frame and names:
            of = Pandas(frame.drop(columns=[name for name in names if _has(frame.columns, name)]))
        return of, found

    def _aligned_keys(self, keys: Any) -> Any:
        return self._aligned("keys", keys, absent="missing") if self._is_labelled(keys) else keys

    def _aligned(self, name: str, side: Any, absent: str = "error", index: Any = None) -> Any:
        """A Series or frame in the order of this index, as pandas aligns them. `absent`: labels that it lacks are an error, or missing."""
        index = self.array.index if index is None else index
        if self.by_position or side.index is index or side.index.equals(index):
            if len(side) != len(index):
                raise ValueError(f"{name}: got {len(side)} items; allowed: {len(index)}")
            return side
        if not side.index.is_unique:
            raise ValueError(f"{name}: got another index than the array's, with duplicates; allowed: the same index, or labels that occur once")
        places = side.index.get_indexer(index)
        lacks = int((places < 0).sum())
        plain = isinstance(side.index, self.pandas.RangeIndex) and isinstance(index, self.pandas.RangeIndex)
        if lacks > 0 and (absent == "error" or plain):
            raise ValueError(f"{name}: got {len(side)} items, without {lacks} labels of the array's index; allowed: one for each of its "
                             f"{len(index)} items")
        if lacks == 0:
            return side.iloc[places]
        if isinstance(side, self.pandas.DataFrame):
            return self.pandas.concat([self._with_missing(side.iloc[:, i], places) for i in range(side.shape[1])], axis=1)
        return self._with_missing(side, places)

    def _with_missing(self, side: Any, places: npt.NDArray[np.intp]) -> Any:
        """Items of a Series, missing ones where a place is -1, in a dtype that has them: integers stay integers."""
        array = side.array
        if isinstance(side.dtype, np.dtype) and side.dtype.kind in "biu":
            array = self.pandas.array(array, dtype=_nullable(side.dtype))
        return self.pandas.Series(self.pandas.api.extensions.take(array, places, allow_fill=True), name=side.name, index=None)

    def labelled(self, op: str, answers: list[Answer], groups: Groups | None, options: Options, leading: Any = None) -> Any:
        dims = self._dims(groups, answers, options)
        dtypes = self.dtypes
        if _name(op) in _NUMBERS:
            dtypes = [np.dtype(np.int64)] * len(dtypes)
        name = None if self.is_frame else self.array.name
        if self.split:
            columns = [self._typed(each, dtype) for each, dtype in zip(answers, dtypes)]
            if len(dims) == 1:
                return self.pandas.Series(_together(columns), index=dims[0], name=name)
            frame = self.pandas.DataFrame(dict(enumerate(columns)), index=dims[0])
            frame.columns = dims[1]
            return frame
        values = np.asarray(answers[0].values)
        if leading is not None:
            if not dims:
                return values  # of the whole array
            dims = [self.pandas.Index(leading), *dims]
        if values.ndim > len(dims):
            dims = [*dims, self.pandas.Index(_trailing(op, values.shape[-1]))]
        one = dtypes[0] if len(set(dtypes)) == 1 else None
        if values.ndim == 0:
            typed = self._typed(Answer(values[None], None), one)[0]
            return typed if values.dtype.kind in "mM" else answers[0].values
        if values.ndim > 2 or values.shape != tuple(map(len, dims)):
            return values
        if values.ndim == 1:
            return self.pandas.Series(self._typed(answers[0], one), index=dims[0], name=name)
        none = answers[0].none
        by_column = self.is_frame and values.shape[1] == len(dtypes) and dims[1] is self.array.columns
        plain = all(isinstance(dtype, np.dtype) for dtype in dtypes) and values.dtype.kind not in "mM"
        if (none is None or not none.any() or values.dtype.kind == "f") and (plain or not by_column):
            return self.pandas.DataFrame(values, index=dims[0], columns=dims[1])
        frame = self.pandas.DataFrame({i: self._typed(Answer(values[:, i], None if none is None else none[:, i]), dtypes[i] if by_column else one)
                                       for i in range(values.shape[1])}, index=dims[0])
        frame.columns = dims[1]
        return frame

    def matrix(self, values: Any) -> Any:
        if np.ndim(values) != 2:
            return values
        return self.pandas.DataFrame(values, index=self.array.columns, columns=self.array.columns)

    def _dims(self, groups: Groups | None, answers: list[Answer], options: Options) -> list[Any]:
        """The index of each dimension of the outputs."""
        of_array = [self.array.index, self.array.columns] if self.is_frame else [self.array.index]
        if groups is not None:
            return [self._index(groups), *of_array[1:]]
        if grouped(options):
            return [self.pandas.RangeIndex(np.shape(answers[0].values)[0]), *of_array[1:]]
        gone = axes(options, len(of_array))
        return [] if gone is None else [index for axis, index in enumerate(of_array) if axis not in gone]

    def _index(self, groups: Groups) -> Any:
        labels = [_of_pandas(self.pandas, each) for each in groups.labels]
        if len(labels) == 1:
            return self.pandas.Index(labels[0], name=groups.names[0])
        return self.pandas.MultiIndex.from_arrays(labels, names=groups.names)

    def _typed(self, answer: Answer, dtype: Any) -> Any:
        """The results of a column as an array of pandas that has missing values if its dtype has, or some output has no element."""
        values, none = np.asarray(answer.values), answer.none
        if values.dtype.kind in "mM":
            if isinstance(dtype, self.pandas.DatetimeTZDtype) and values.dtype.kind == "M":
                return self.pandas.DatetimeIndex(np.atleast_1d(values)).tz_localize("UTC").tz_convert(dtype.tz).array
            return self.pandas.array(np.atleast_1d(values))
        values = np.atleast_1d(values)
        lacks = none is not None and bool(np.any(none)) and values.dtype.kind in "biu"
        arrow = isinstance(dtype, self.pandas.ArrowDtype)
        masked = isinstance(getattr(dtype, "numpy_dtype", None), np.dtype) and not isinstance(dtype, np.dtype) and not arrow
        if not (lacks or arrow or masked) or values.dtype.name not in _NULLABLE:
            return values
        if arrow:
            import pyarrow  # type: ignore[import-untyped]

            found = self.pandas.array(values, dtype=self.pandas.ArrowDtype(pyarrow.from_numpy_dtype(values.dtype)))
        else:
            found = self.pandas.array(values, dtype=_nullable(values.dtype))
        if lacks:
            found[np.atleast_1d(np.asarray(none))] = self.pandas.NA
        return found


# The dtypes of pandas that have missing values, by those of NumPy.
_NULLABLE = {"bool": "boolean", **{name.lower(): name for name in ("Float32", "Float64", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")}}


def _nullable(dtype: np.dtype[Any]) -> str:
    return _NULLABLE[dtype.newbyteorder("=").name]


def _has(columns: Any, name: Any) -> bool:
    try:
        return name in columns
    except TypeError:
        return False


def as_column(side: Any) -> Any:
    """A Series beside a frame: the same for all columns."""
    values, there = read(side)
    column = np.asarray(values).reshape(-1, 1)
    return column if there is None else np.ma.MaskedArray(column, ~there.reshape(-1, 1))


def _together(columns: list[Any]) -> Any:
    """One result of each column as one array. Integers beside floats stay exact: objects, if a float64 does not hold one."""
    if len({str(column.dtype) for column in columns}) > 1:
        columns = [column.to_numpy() if hasattr(column.dtype, "numpy_dtype") and not column.isna().any() else column for column in columns]
    scalars = [column[0] for column in columns]
    dtypes = {column.dtype for column in columns}
    if len(dtypes) > 1 and all(isinstance(dtype, np.dtype) and dtype.kind in "biuf" for dtype in dtypes):
        common = np.result_type(*dtypes)
        exact = common.kind != "f" or all(int(common.type(each)) == int(each) for each in scalars if isinstance(each, np.integer))
        return np.array(scalars, common if exact else object)
    if len(dtypes) == 1:
        pandas = sys.modules["pandas"]
        first = columns[0]
        if isinstance(first, np.ndarray):
            return np.concatenate(columns)
        return type(first)._concat_same_type(columns) if hasattr(first, "_concat_same_type") else pandas.array(scalars, dtype=first.dtype)
    return np.array([*scalars, None], object)[:-1]


def _of_pandas(pandas: Any, labels: Any) -> Any:
    """Labels of any container as pandas has them."""
    if isinstance(labels, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(labels)
        if not mask.any():
            return np.ma.getdata(labels)
        data = np.ma.getdata(labels)
        found = pandas.array(data, dtype=_nullable(data.dtype) if data.dtype.kind in "biu" else None)
        found[mask] = pandas.NA if data.dtype.kind not in "mM" else pandas.NaT
        return found
    if hasattr(labels, "to_pandas"):
        kind = str(getattr(labels, "type", ""))
        return (labels.cast(labels.type.value_type) if kind.startswith("dictionary") else labels).to_pandas()
    return labels

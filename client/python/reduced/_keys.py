"""Keys of any kind: columns of strings, categories, times and numbers become codes, which the engine groups by.

A column is what `_core.encode_keys` reads of it, and where the label of an item is found again: the labels of groups are items of the
column itself, and so have its type. Integers without missing ones are not encoded: the engine finds their groups.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reduced import _core, _times
from reduced._containers import read
from reduced._copies import Mask

Codes = npt.NDArray[np.signedinteger[Any]]

_ALLOWED = "integers, strings, categories, booleans, times, floats, or a list of such columns"


class Column(NamedTuple):
    """A column of keys. `encoded`: as `_core.encode_keys` takes it; `source`: what labels are taken from."""

    encoded: tuple[Any, ...]
    source: Any
    name: Any = None

    @property
    def integers(self) -> npt.NDArray[Any] | None:
        """The keys, if they are integers and none is missing."""
        if self.encoded[0] == "numbers" and self.encoded[2] is None and self.encoded[1].dtype.kind in "iu":
            keys: npt.NDArray[Any] = self.encoded[1]
            return keys
        return None


class Groups(NamedTuple):
    """Which group each item is in, from 0; -1: in none. `number`: of groups. `labels`: those of the groups, in one column for each of the keys."""

    codes: Codes
    number: int
    labels: list[Any]
    names: list[Any]

    def of_rows(self, rows: Mask, sort: bool) -> Groups:
        """The groups that have some of these rows."""
        codes = np.where(rows, self.codes, -1)
        rest = np.flatnonzero(codes >= 0)
        first: npt.NDArray[np.int64] = np.full(self.number, len(codes), np.int64)
        first[codes[rest][::-1]] = rest[::-1]  # of equal indexes the last one stays
        there = np.flatnonzero(first < len(codes))
        if len(there) == self.number and (sort or bool((np.diff(first) > 0).all())):
            return self._replace(codes=codes)
        order = there if sort else there[np.argsort(first[there])]
        place = np.full(self.number + 1, -1, self.codes.dtype)
        place[order] = np.arange(len(order))
        return Groups(place[codes], len(order), [taken(labels, order) for labels in self.labels], self.names)


def columns_of(keys: Any) -> list[Any] | None:
    """The columns of several keys. None: `keys` is one column."""
    if isinstance(keys, list | tuple):
        if len(keys) > 0 and all(isinstance(each, tuple) for each in keys):
            raise TypeError("keys: got tuples; allowed: several keys as a list of columns, each a list or an array")
        return list(keys) if len(keys) > 0 and all(map(is_column, keys)) else None
    if isinstance(keys, np.ndarray) and keys.dtype.names:
        return [Column(_column(keys[name], None).encoded, keys[name], name) for name in keys.dtype.names]
    pandas, polars, arrow = (sys.modules.get(name) for name in ("pandas", "polars", "pyarrow"))
    if pandas is not None and isinstance(keys, pandas.DataFrame):
        return [keys.iloc[:, i] for i in range(keys.shape[1])]
    if pandas is not None and isinstance(keys, pandas.MultiIndex):
        return [keys.get_level_values(i) for i in range(keys.nlevels)]
    if polars is not None and isinstance(keys, polars.DataFrame):
        return list(keys.get_columns())
    if arrow is not None and isinstance(keys, arrow.Table | arrow.RecordBatch):
        return [_Named(column, name) for column, name in zip(keys.columns, keys.column_names)]
    return None


def is_column(each: Any) -> bool:
    """Whether an object has keys, and is no key itself."""
    if isinstance(each, np.generic | str | bytes):
        return False
    return isinstance(each, list | range) or any(hasattr(each, name) for name in ("__array__", "__arrow_c_array__", "__arrow_c_stream__"))


class _Named(NamedTuple):
    """A column whose container does not say its name."""

    column: Any
    name: str


def column(keys: Any, bucket: str | None = None) -> Column:
    """One column of keys. TypeError: it has elements that are no keys."""
    if isinstance(keys, Column):
        return keys
    if isinstance(keys, _Named):
        return _column(keys.column, bucket)._replace(name=keys.name)
    try:
        return _column(keys, bucket)
    except TypeError as error:
        said = str(error).removeprefix("array: ")
        raise TypeError(said if said.startswith(("keys: ", "bucket: ")) else f"keys: {said.partition('; allowed')[0]}; allowed: {_ALLOWED}") from None


def _column(keys: Any, bucket: str | None) -> Column:
    if hasattr(keys, "__dask_graph__") and keys.__dask_graph__() is not None:
        keys = keys.compute()
    xarray, pandas, polars = (sys.modules.get(name) for name in ("xarray", "pandas", "polars"))
    if xarray is not None and isinstance(keys, xarray.DataArray):
        index = keys.to_index() if keys.ndim == 1 and keys.dtype.kind == "O" else keys.to_numpy()
        return _column(index, bucket)._replace(name=keys.name)
    if pandas is not None and isinstance(keys, pandas.Series | pandas.Index | pandas.api.extensions.ExtensionArray):
        return _of_pandas(pandas, keys, bucket)
    if polars is not None and isinstance(keys, polars.Series):
        return _of_polars(polars, keys, bucket)
    if hasattr(keys, "__arrow_c_array__") or hasattr(keys, "__arrow_c_stream__"):
        return _of_arrow(keys, keys, bucket)
    if isinstance(keys, list | tuple):
        return _of_list(list(keys), bucket)
    return _of_array(keys if isinstance(keys, np.ndarray) else read(keys)[0], keys, bucket)


def _of_array(array: Any, source: Any, bucket: str | None) -> Column:
    array = np.asanyarray(array)
    if array.ndim != 1:
        raise TypeError(f"got an array of {array.ndim} dimensions")
    there: Mask | None = None
    if isinstance(array, np.ma.MaskedArray):
        there = None if array.mask is np.ma.nomask else ~np.ma.getmaskarray(array)
        array = np.ma.getdata(array)
    kind = array.dtype.kind
    if kind in "mM":
        if bucket is not None:
            array = _times.floored(array, bucket)
            source = array if there is None else np.ma.MaskedArray(array, ~there)
        return Column(_numbers(_native(array).view(np.int64), _both(there, ~np.isnat(array))), source)
    _without(bucket, array.dtype)
    if kind in "biu":
        return Column(_numbers(array, there), source)
    if kind == "f":
        if array.dtype.itemsize > 8:
            raise TypeError(f"got {array.dtype}")
        wide = array.astype(np.float64 if array.dtype.itemsize == 8 else np.float32)
        return Column(_numbers(wide + wide.dtype.type(0), _both(there, ~np.isnan(wide))), source)  # -0 is 0
    if kind in "US":
        units = _native(array)
        width = units.dtype.itemsize // (4 if kind == "U" else 1)
        plain = units.view(np.uint32 if kind == "U" else np.uint8) if width > 0 else np.zeros(0, np.uint8)
        if width == 0:  # empty strings alone
            return Column(_numbers(np.zeros(len(array), np.int8), there), source)
        return Column(("ucs4" if kind == "U" else "bytes", plain.reshape(len(array), width), there), source)
    if kind in "OT":
        objects = array.astype(object) if kind == "T" else array
        return Column(_objects(objects.tolist() if there is None else [each if ok else None for each, ok in zip(objects.tolist(), there)]), source)
    raise TypeError(f"got {array.dtype}")


def _of_list(keys: list[Any], bucket: str | None) -> Column:
    kinds = {type(each) for each in keys}
    if kinds and all(issubclass(kind, str) for kind in kinds):
        _without(bucket, "str")
        return Column(("objects", keys, None), keys)
    if all(issubclass(kind, int | float | np.number | np.bool_) for kind in kinds):
        array = read(keys)[0]
        if isinstance(array, np.ndarray) and array.dtype != object:
            return _of_array(array, array, bucket)
    kinds -= {type(None)}
    if any(kind.__module__.startswith("pandas.") and hasattr(kind, "to_numpy") for kind in kinds):  # its times, which may be finer than Python's
        return _of_pandas(sys.modules["pandas"], sys.modules["pandas"].Series(keys), bucket)
    if any(getattr(each, "tzinfo", None) is not None for each in keys):
        _without(bucket, "a list of times with a zone")
        return Column(_objects(keys), keys)
    for kind_of_time, dtype in (((datetime.date, np.datetime64), "M8"), ((datetime.timedelta, np.timedelta64), "m8")):
        if kinds and all(issubclass(kind, kind_of_time) for kind in kinds):
            array = np.array(keys, dtype if any(issubclass(kind, np.generic) for kind in kinds) else f"{dtype}[us]")
            return _of_array(array, array, bucket)
    _without(bucket, "a list")
    return Column(_objects(keys), keys)


def _of_pandas(pandas: Any, keys: Any, bucket: str | None) -> Column:
    name = getattr(keys, "name", None)
    if isinstance(keys, pandas.MultiIndex):
        raise TypeError("got a MultiIndex beside other columns")
    array = keys if isinstance(keys, pandas.api.extensions.ExtensionArray) else keys.array
    dtype = array.dtype
    if isinstance(dtype, pandas.CategoricalDtype):
        _without(bucket, "category")
        codes = np.asarray(array.codes)
        return Column(_numbers(codes, _unless_all(codes >= 0)), array, name)
    if isinstance(dtype, pandas.DatetimeTZDtype) or isinstance(dtype, np.dtype) and dtype.kind in "mM":
        if bucket is not None:
            zone = getattr(dtype, "tz", None)
            clock = array if zone is None else array.tz_localize(None)
            floored = pandas.array(_times.floored(clock.to_numpy(), bucket))
            array = floored if zone is None else floored.tz_localize(zone, ambiguous=np.ones(len(floored), bool), nonexistent="shift_forward")
            units = clock if zone is None else floored
            numbers = floored.to_numpy() if zone is not None else array.to_numpy()
            return Column(_numbers(numbers.view(np.int64), _unless_all(~np.asarray(units.isna()))), array, name)
        return Column(_numbers(np.asarray(array.view("i8")), _unless_all(~np.asarray(array.isna()))), array, name)
    if isinstance(dtype, pandas.ArrowDtype) or isinstance(dtype, pandas.StringDtype) and dtype.storage == "pyarrow":
        return _of_arrow(array.__arrow_array__(), array, bucket)._replace(name=name)
    if isinstance(array, pandas.arrays.NumpyExtensionArray):
        plain = array.to_numpy()
        if plain.dtype != object:
            return _of_array(plain, array, bucket)._replace(name=name)
        dtype = plain.dtype
    _without(bucket, dtype)
    if isinstance(getattr(dtype, "numpy_dtype", None), np.dtype):
        values, there = read(array)
        encoded = _of_array(values, values, None).encoded
        return Column(_numbers(encoded[1], encoded[2] if there is None else _both(encoded[2], there)), array, name)
    if isinstance(dtype, pandas.StringDtype) or dtype == object:
        return Column(_objects(np.asarray(array, object).tolist()), array, name)
    codes, _ = pandas.factorize(array, sort=True)  # periods, intervals and the like
    return Column(_numbers(codes, _unless_all(codes >= 0)), array, name)


def _of_polars(polars: Any, keys: Any, bucket: str | None) -> Column:
    dtype, name = keys.dtype, keys.name or None
    if dtype == polars.Enum:
        _without(bucket, dtype)
        physical = keys.to_physical()
        return Column(_numbers(physical.fill_null(0).to_numpy(), _unless_all(keys.is_not_null().to_numpy())), keys, name)
    if dtype in (polars.Datetime, polars.Date, polars.Duration):
        clock = keys.dt.replace_time_zone(None) if getattr(dtype, "time_zone", None) and bucket is not None else keys
        found = _of_array(clock.to_numpy(), keys, bucket)
        if bucket is not None:
            floored = polars.Series(keys.name, found.source).cast(clock.dtype)
            zone = getattr(dtype, "time_zone", None)
            keys = floored if zone is None else floored.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
        return Column(found.encoded, keys, name)
    _without(bucket, dtype)
    if dtype.is_numeric() and not dtype.is_decimal() or dtype == polars.Boolean:
        values, there = read(keys)
        encoded = _of_array(values, values, None).encoded
        return Column(_numbers(encoded[1], encoded[2] if there is None else _both(encoded[2], there)), keys, name)
    if dtype in (polars.String, polars.Categorical):
        if "pyarrow" in sys.modules or _has_arrow():
            return _of_arrow(keys, keys, None)._replace(name=name)
        return Column(("objects", keys.cast(polars.String).to_list(), None), keys, name)
    return Column(_objects(keys.to_list()), keys, name)


def _has_arrow() -> bool:
    try:
        import pyarrow  # type: ignore[import-untyped]  # noqa: F401
    except ImportError:
        return False
    return True


def _of_arrow(keys: Any, source: Any, bucket: str | None) -> Column:
    """Of what has Arrow's C data interface."""
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    chunked = keys if isinstance(keys, pa.ChunkedArray) else pa.chunked_array([keys]) if isinstance(keys, pa.Array) else pa.chunked_array(keys)
    kind = chunked.type
    there = _unless_all(chunked.is_valid().to_numpy()) if chunked.null_count > 0 else None
    if pa.types.is_dictionary(kind):
        _without(bucket, kind)
        array = chunked.unify_dictionaries().combine_chunks()
        array = array.chunk(0) if isinstance(array, pa.ChunkedArray) and array.num_chunks else array
        if len(array) == 0:
            return Column(_numbers(np.zeros(0, np.int32), None), source)
        # The same value may be in a dictionary twice, and codes of Arrow have no order of their own.
        rank, _, _ = _core.encode_keys([_of_arrow(array.dictionary, None, None).encoded], True, "drop")
        indices = array.indices.fill_null(0).to_numpy(zero_copy_only=False)
        codes = rank[indices] if len(rank) > 0 else np.full(len(indices), -1, np.int32)
        if there is not None:
            codes = np.where(there, codes, -1)
        return Column(_numbers(codes, _unless_all(codes >= 0)), source)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_duration(kind):
        clock = pc.local_timestamp(chunked) if getattr(kind, "tz", None) and bucket is not None else chunked
        found = _of_array(clock.to_numpy(), None, bucket)
        if bucket is not None:
            source = _like(source, pa.array(found.source, clock.type, mask=None if there is None else ~there), kind, pc)
        return Column(found.encoded, source)
    _without(bucket, kind)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        values, valid = read(chunked)
        encoded = _of_array(values, values, None).encoded
        return Column(_numbers(encoded[1], encoded[2] if valid is None else _both(encoded[2], valid)), source)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view():
        wide = pa.types.is_large_string(kind) or chunked.nbytes >= 1 << 31 or kind == pa.string_view()
        array = pa.concat_arrays(chunked.cast(pa.large_string() if wide else pa.string()).chunks or [pa.array([], pa.string())])
        _, offsets, data = array.buffers()
        width = np.int64 if pa.types.is_large_string(array.type) else np.int32
        ends = np.zeros(1, width) if offsets is None else np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1]
        return Column(("utf8", ends, np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8), there), source)
    return Column(_objects(chunked.to_pylist()), source)


def _like(source: Any, floored: Any, kind: Any, pc: Any) -> Any:
    """Buckets of Arrow as the container of the column has them, in its zone."""
    zone = getattr(kind, "tz", None)
    if zone is not None:
        floored = pc.assume_timezone(floored, zone, ambiguous="earliest", nonexistent="latest")
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(source, pandas.api.extensions.ExtensionArray):
        return pandas.arrays.ArrowExtensionArray(floored)
    return floored


def _objects(values: list[Any]) -> tuple[Any, ...]:
    """Objects of Python: strings, or others that have hashes."""
    if all(isinstance(each, str) or is_missing(each) for each in values):
        return "objects", [each if isinstance(each, str) else None for each in values], None
    seen: dict[Any, int] = {}
    try:
        codes = np.fromiter((-1 if is_missing(each) else seen.setdefault(each, len(seen)) for each in values), np.int64, len(values))
        place = {each: number for number, each in enumerate(sorted(seen))}
    except TypeError as error:
        raise TypeError(f"keys: got objects that have no order or no hash ({error}); allowed: {_ALLOWED}") from None
    rank = np.array([place[each] for each in seen] + [-1])
    codes = rank[codes]
    return _numbers(codes, _unless_all(codes >= 0))


def is_missing(value: Any) -> bool:
    """Whether an object of Python is None, NaN, NaT or pandas.NA."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating | np.datetime64 | np.timedelta64) and bool(value != value)


def _native(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.ascontiguousarray(array, array.dtype.newbyteorder("="))


def _numbers(values: npt.NDArray[Any], there: Mask | None) -> tuple[Any, ...]:
    return "numbers", _native(values), there


def _unless_all(there: Mask) -> Mask | None:
    return None if there.all() else there


def _both(one: Mask | None, other: Mask) -> Mask | None:
    return _unless_all(other if one is None else one & other)


def _without(bucket: str | None, dtype: Any) -> None:
    if bucket is not None:
        raise TypeError(f"bucket: got {bucket!r} for keys of {dtype}; allowed: for keys that are times")


def taken(source: Any, rows: npt.NDArray[np.int64]) -> Any:
    """Some items of a column, as its container has them; of a list an ndarray."""
    if isinstance(source, list):
        items = [source[row] for row in rows]
        if all(isinstance(each, str) for each in items):
            return np.array(items, None if items else "U1")
        found = np.empty(len(items), object)
        found[:] = items
        return found
    if isinstance(source, np.ndarray):
        return source[rows]
    if hasattr(source, "gather"):
        return source.gather(rows)
    if str(getattr(source, "type", "")) == "string_view":  # which pyarrow does not take
        return source.cast("string").take(rows).cast("string_view")
    return source.take(rows) if hasattr(source, "take") else np.asarray(source)[rows]


def _are_times(keys: Any) -> bool:
    """Whether a column has times, of any container."""
    if isinstance(keys, list):
        return any(isinstance(each, datetime.date | datetime.timedelta | np.datetime64 | np.timedelta64) for each in keys)
    dtype = getattr(keys.column if isinstance(keys, _Named) else keys, "dtype", getattr(keys, "type", None))
    return str(dtype).lower().startswith(("datetime", "timestamp", "date", "timedelta", "duration", "<m8", ">m8"))


def columns(keys: Any, bucket: str | None) -> list[Column]:
    """All columns of keys. With several, `bucket` is for those that are times."""
    if bucket is not None:
        _times.check_bucket(bucket)
    if isinstance(keys, str | bytes):
        raise ValueError(f"keys: got {keys!r}; allowed: columns, and names of those of a frame or of coordinates of xarray")
    several = columns_of(keys)
    if several is None:
        return [column(keys, bucket)]
    if not several:
        raise ValueError("keys: got no column; allowed: one or more")
    if bucket is not None and not any(map(_are_times, several)):
        raise TypeError(f"bucket: got {bucket!r} for keys of which none are times; allowed: for keys that are times")
    return [column(each, bucket if _are_times(each) else None) for each in several]


def encode(columns: Sequence[Column], rows: int, missing: str, sort: bool, present: Mask | None = None) -> Groups:
    """The groups of items by their keys. `present`: the rows that count; None: all. ValueError: a column has another number of items."""
    for each in columns:
        if length(each) != rows:
            raise ValueError(f"keys: got {length(each)} keys; allowed: as many as dimension 0 has items, which are {rows}")
    codes, count, first = _core.encode_keys([each.encoded for each in columns], sort, missing)
    groups = Groups(codes, count, [taken(each.source, first) for each in columns], [each.name for each in columns])
    return groups if present is None else groups.of_rows(present, sort)


def length(column: Column) -> int:
    """How many items a column has."""
    kind, values = column.encoded[:2]
    items: int = len(values)
    return items - 1 if kind == "utf8" else items


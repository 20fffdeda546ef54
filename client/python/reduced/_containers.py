"""What containers hold: the elements as an ndarray, and which of them are missing.

What offers Arrow's C data interface (polars, pyarrow, DuckDB and others) is read by it, before NumPy sees it, which makes floats of
integers with nulls. A missing element is the same in every container: a null of Arrow or polars, NA of pandas, a masked element.
NaN is a value.
"""

from __future__ import annotations

import array as arrays
import itertools
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from reduced import _core
from reduced._copies import PIECE, Array, Mask, Part, assemble, both, pieces, unless_all

_ALLOWED = "bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, float32, float64, bfloat16, float8_e4m3fn, float8_e5m2, float8_e8m0fnu"
# What to do instead, by the names of dtypes.
_ADVICE = (
    (r"(?i)date|time|duration|interval|period", "; of times their integers, such as x.view('i8') or a cast to int64"),
    (r"(?i)complex", "; of complex numbers their real and imaginary parts"),
    (r"(?i)float[84]|int[24]$|decimal|longdouble|float128", "; others after a cast"),
    (r"(?i)categor|dictionary|enum", "; of categories their codes"),
)

# Formats of Arrow whose elements lie together, and names of others for messages.
_NUMPY = {"c": "i1", "C": "u1", "s": "i2", "S": "u2", "i": "i4", "I": "u4", "l": "i8", "L": "u8", "e": "f2", "f": "f4", "g": "f8"}
_OTHERS = {"n": "null", "u": "string", "U": "string", "vu": "string", "z": "binary", "Z": "binary", "vz": "binary", "d": "decimal",
           "td": "date", "tt": "time", "ts": "timestamp", "tD": "duration", "ti": "interval", "+s": "struct", "+l": "list",
           "+L": "list", "+v": "list", "+m": "map", "+u": "union", "+r": "run-end encoded", "w": "fixed-size binary"}


def a_or_an(kind: type) -> str:
    return f"{'an' if kind.__name__[0] in 'AEIOUaeiou' else 'a'} {kind.__name__}"


def refused(what: str, dtype: Any) -> TypeError:
    """The error of elements that are no numbers, or numbers of another kind."""
    advice = next((text for pattern, text in _ADVICE if re.search(pattern, str(dtype))), "")
    return TypeError(f"{what}; allowed: {_ALLOWED}{advice}")


def refused_objects(array: Array) -> TypeError:
    """The error of an array of objects, which names one that is no number, or a number that is too large."""
    index: tuple[int, ...] = ()
    each: Any = None
    for index, each in np.ndenumerate(array):
        if type(each) is int and not -(2**63) <= each < 2**64:
            return TypeError(f"array: got {each} at [{', '.join(map(str, index))}]; allowed: integers of 64 bits")
        if not isinstance(each, int | float | np.generic):
            break
    else:
        return TypeError(f"dtype: got object, of numbers; allowed: {_ALLOWED}, such as after a cast")
    kind = "None" if each is None else f"{type(each).__module__}.{type(each).__qualname__}".removeprefix("builtins.")
    if array.ndim == 0:
        return TypeError(f"array: got {kind}; allowed: arrays, and sequences of numbers")
    return refused(f"dtype: got object, such as {kind} at [{', '.join(map(str, index))}]", kind)


def read(array: Any) -> tuple[Any, Mask | None]:
    """The elements of an array-like, and which of them are not missing; None: all are there.

    Arrays of a GPU, and what only DLPack or the buffer protocol shows, are given back as they are.
    """
    if isinstance(array, np.ndarray):
        return _masked(array) if isinstance(array, np.ma.MaskedArray) else (array, None)
    if isinstance(array, list | tuple | range):
        return _sequence(array)[:2]
    if hasattr(array, "__dask_graph__") and array.__dask_graph__() is not None:  # whose mask np.asarray would drop
        array = array.compute()
        return read(array.data if isinstance(getattr(array, "data", None), np.ma.MaskedArray) else array)  # of xarray
    pandas = _pandas(array)
    if pandas is not None:
        return pandas[:2]
    kind = type(array)
    if hasattr(kind, "__cuda_array_interface__") or not getattr(array, "is_cpu", True):
        return array, None
    if hasattr(array, "__arrow_c_array__") or hasattr(array, "__arrow_c_stream__"):
        return _arrow(array)[:2]
    if isinstance(array, Sequence) and not isinstance(array, str | bytes | bytearray | memoryview | arrays.array | np.generic):
        return _sequence(list(array))[:2]
    return array, None


def _masked(array: np.ma.MaskedArray[Any, Any]) -> tuple[Array, Mask | None]:
    if array.mask is np.ma.nomask or array.dtype.names is not None:
        return np.ma.getdata(array), None
    mask: Mask = np.ma.getmaskarray(array)
    there: Mask = np.empty(mask.shape, np.bool_)
    for index in pieces(mask.shape):
        there[index] = ~mask[index]
    return np.ma.getdata(array), unless_all(there)


# By Arrow's C data interface.


def _arrow(array: Any) -> Part:
    if hasattr(array, "__arrow_c_array__"):
        schema, chunks = _core.arrow_array(*array.__arrow_c_array__())
    else:
        schema, chunks = _core.arrow_stream(array.__arrow_c_stream__())
    shown = getattr(array, "type", getattr(array, "dtype", None))
    return _chunks(schema, [(chunk, chunk.offset, chunk.length) for chunk in chunks], a_or_an(type(array)), shown)


def _chunks(schema: _core.ArrowSchema, chunks: list[tuple[_core.ArrowNode, int, int]], where: str, shown: Any = None) -> Part:
    """Elements of consecutive arrays of Arrow. Of each: the array, the first element in its memory, and how many there are."""
    format_, _, has_dictionary, children = schema
    length = sum(count for _, _, count in chunks)
    if format_ == "+s":
        nodes = [(chunk.children, first, count) for chunk, first, count in chunks]
        columns = []
        for i, child in enumerate(children):
            inner = [(node[i], node[i].offset + first, count) for node, first, count in nodes]
            columns.append(_chunks(child, inner, f"column {child[1]!r}")._replace(name=f"column {child[1]!r}"))
        return _with_rows(_frame(length, columns), chunks)
    if format_.startswith("+w:"):
        size = int(format_[3:])
        inner = [(chunk.children[0], chunk.children[0].offset + first * size, count * size) for chunk, first, count in chunks]
        values, there, _ = _chunks(children[0], inner, where, shown)
        shape = (length, size, *values.shape[1:])
        return _with_rows(Part(values.reshape(shape), None if there is None else there.reshape(shape)), chunks)
    times = None if has_dictionary else _times(format_)
    if times is not None:
        part = _chunks(("i" if format_ == "tdD" else "l", schema[1], False, []), chunks, where, shown)
        return part._replace(values=part.values.astype(np.int64, copy=False).view(times))
    if has_dictionary or format_ not in _NUMPY and format_ != "b":
        name = "dictionary" if has_dictionary else _OTHERS.get(format_, _OTHERS.get(format_[:2], _OTHERS.get(format_[:1], format_)))
        raise refused(f"array: got {where} of {shown or name}", f"{shown} {name}")
    parts = []
    for chunk, first, count in chunks:
        if format_ == "b":
            bits = _bits(chunk, 1, first, count)
            values = np.ones(count, np.bool_) if bits is None else bits
        else:
            dtype = np.dtype(_NUMPY[format_])
            values = chunk.bytes(1, first * dtype.itemsize, count * dtype.itemsize).view(dtype)
        parts.append(Part(values, _bits(chunk, 0, first, count) if chunk.null_count != 0 else None))
    return _joined(parts or [Part(np.empty(0, np.dtype(_NUMPY.get(format_, "?"))), None)])


def _times(format_: str) -> str | None:
    """The dtype of NumPy for a format of dates, timestamps and durations. None: it is another."""
    if format_ in ("tdD", "tdm"):
        return "M8[D]" if format_ == "tdD" else "M8[ms]"
    kind = {"ts": "M8", "tD": "m8"}.get(format_[:2])
    return f"{kind}[{'s' if format_[2] == 's' else format_[2] + 's'}]" if kind else None


def _with_rows(part: Part, chunks: list[tuple[_core.ArrowNode, int, int]]) -> Part:
    """Elements of rows, some of which may be missing as a whole."""
    rows = _joined([Part(np.empty(count, np.bool_), _bits(chunk, 0, first, count)) for chunk, first, count in chunks]).there
    if rows is None:
        return part
    shape = part.values.shape
    of_rows: Mask = np.broadcast_to(rows.reshape(-1, *[1] * (len(shape) - 1)), shape)
    return part._replace(there=of_rows if part.there is None else both(part.there, of_rows))


def _bits(chunk: _core.ArrowNode, buffer: int, first: int, count: int) -> Mask | None:
    """Bits of a buffer. None: all are set, as those of a validity that is not there."""
    if not chunk.has(buffer):
        return None
    bits: Mask = np.empty(count, np.bool_)
    for begin in range(0, count, PIECE):
        end = min(begin + PIECE, count)
        skip = (first + begin) % 8
        packed = chunk.bytes(buffer, (first + begin) // 8, (skip + end - begin + 7) // 8)
        bits[begin:end] = np.unpackbits(packed, count=skip + end - begin, bitorder="little")[skip:]
    return unless_all(bits)


def _joined(parts: list[Part]) -> Part:
    """Parts one after the other along the first dimension."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Part(np.empty(0, np.bool_), None)
    shapes = {part.values.shape[1:] for part in parts}
    if len(shapes) > 1:
        raise TypeError(f"array: got rows of shapes {', '.join(map(str, sorted(shapes)))}; allowed: one shape")
    ends = list(itertools.accumulate(len(part.values) for part in parts))
    places = (slice(end - len(part.values), end) for part, end in zip(parts, ends))
    return _assembled((ends[-1], *parts[0].values.shape[1:]), parts, places)


def _assembled(shape: tuple[int, ...], parts: list[Part], places: Iterable[Any], order: Any = "C") -> Part:
    """As `assemble`, of parts that may have other elements than numbers."""
    for values, _, name in parts:
        if values.dtype.kind not in "biuf" and values.dtype.name not in _ALLOWED.split(", "):
            error = refused_objects(values) if values.dtype == object else refused(f"dtype: got {values.dtype}", values.dtype)
            raise TypeError(f"array: {name}: {error}" if name else str(error))
    return assemble(shape, parts, places, order)


def _frame(length: int, columns: list[Part]) -> Part:
    """Columns beside each other, each in one piece of the memory."""
    shape = (length, len(columns))
    if not columns:
        return Part(np.empty(shape), None)
    if len(columns) == 1:
        values, there, _ = columns[0]
        return Part(values.reshape(shape), None if there is None else there.reshape(shape))
    for column in columns:
        if column.values.ndim != 1:
            raise TypeError(f"array: got {column.name} of {column.values.ndim} dimensions; allowed: 1")
    return _assembled(shape, columns, ((slice(None), i) for i in range(len(columns))), "F")


# Of pandas, whose own Arrow interface takes NaN for missing.


def _pandas(array: Any) -> Part | None:
    """None: it is nothing of pandas."""
    pandas = sys.modules.get("pandas")
    if pandas is None or not hasattr(pandas, "DataFrame"):
        return None
    if isinstance(array, pandas.DataFrame):
        dtypes = set(array.dtypes)
        if len(dtypes) == 1 and isinstance(array.dtypes.iloc[0], np.dtype):
            first = array.iloc[:1]  # a view, if the columns are one array; else all would be copied in one call
            if array.size <= PIECE or np.may_share_memory(first.to_numpy(), first.iloc[:, 0].to_numpy()):
                return Part(array.to_numpy(), None)
        columns = []
        for i, name in enumerate(array.columns):
            try:
                column = _pandas(array.iloc[:, i])
            except TypeError as error:
                raise TypeError(f"array: column {name!r}: {str(error).removeprefix('array: ')}") from None
            assert column is not None
            columns.append(column._replace(name=f"column {name!r}"))
        return _frame(len(array), columns)
    if isinstance(array, pandas.Series | pandas.Index):
        array = array.array
    if not isinstance(array, pandas.api.extensions.ExtensionArray):
        return None
    dtype = array.dtype
    if isinstance(dtype, pandas.DatetimeTZDtype) or isinstance(dtype, np.dtype) and dtype.kind in "mM":
        return Part(array.to_numpy(dtype=f"M8[{dtype.unit}]") if isinstance(dtype, pandas.DatetimeTZDtype) else array.to_numpy(), None)
    if isinstance(dtype, pandas.ArrowDtype):
        column = array.__arrow_array__()
        return _arrow(column)
    numpy_dtype = getattr(dtype, "numpy_dtype", None)
    if not isinstance(numpy_dtype, np.dtype):
        if isinstance(dtype, pandas.SparseDtype):
            return Part(np.asarray(array, dtype.subtype), None)
        raise refused(f"dtype: got {dtype}", dtype)
    if isinstance(array, pandas.arrays.NumpyExtensionArray):
        return Part(array.to_numpy(), None)
    data, gone = getattr(array, "_data", None), getattr(array, "_mask", None)
    if type(data) is type(gone) is np.ndarray and data.dtype == numpy_dtype and gone.dtype == np.bool_:  # without a copy
        there = np.empty(len(array), np.bool_)
        for piece in pieces(there.shape):
            there[piece] = ~gone[piece]
        return Part(data, unless_all(there))
    values, there = np.empty(len(array), numpy_dtype), np.empty(len(array), np.bool_)
    for piece in pieces(values.shape):
        part = array[piece[0]] if piece else array
        values[piece] = part.to_numpy(dtype=numpy_dtype, na_value=0)
        there[piece] = ~part.isna()
    return Part(values, unless_all(there))


# Of Python.

_NESTED = {list, tuple, range}
_NUMBERS = {int, float, bool}


def _sequence(given: Sequence[Any]) -> Part:
    """Numbers of Python, in lists of any depth, and arrays of one shape."""
    if len(given) > PIECE:  # in pieces, between which Python handles signals
        return _joined([_sequence(given[begin : begin + PIECE]) for begin in range(0, len(given), PIECE)])
    leaves, kinds = given, set(map(type, given))
    while kinds and kinds <= _NESTED:
        if max(map(len, leaves)) > PIECE:
            return _stacked(given)
        leaves = list(itertools.chain.from_iterable(leaves))
        kinds = set(map(type, leaves))
    if not kinds <= _NUMBERS and any(map(_is_array, kinds)):
        size = leaves[0].size if leaves is given and kinds == {np.ndarray} and len({each.dtype for each in leaves}) == 1 else PIECE
        rows = PIECE // max(size, 1)  # of equal arrays, which NumPy stacks in one call
        if rows < 2:
            return _stacked(given)
        if len(given) > rows:
            return _joined([_sequence(given[begin : begin + rows]) for begin in range(0, len(given), rows)])
    try:
        values = np.asarray(given)
    except ValueError as error:
        raise TypeError(f"array: got sequences that are no array ({error}); allowed: rows of one length") from None
    if values.dtype.kind not in "fO" or values.size != len(leaves) or kinds == {float} or not any(map(_is_integer, kinds)):
        return Part(values, None)
    if all(_is_integer(kind) for kind in kinds):
        low, high = min(map(int, leaves)), max(map(int, leaves))
        if not (low >= -(2**63) and high < 2**63 or low >= 0 and high < 2**64):
            raise TypeError(f"array: got integers from {low} to {high}; allowed: those of int64, or those of uint64")
        return Part(np.array(given, np.uint64 if high >= 2**63 else np.int64), None)
    if values.dtype.kind == "f":
        for value, leaf in zip(values.ravel().tolist(), leaves):
            if isinstance(leaf, int | np.integer) and value != int(leaf):
                raise TypeError(f"array: got {leaf} beside floats; allowed: integers that {values.dtype} holds, or integers only")
    return Part(values, None)


def _is_integer(kind: type) -> bool:
    return issubclass(kind, int | np.integer | np.bool_)


def _is_array(kind: type) -> bool:
    """Whether objects of a type have elements of their own."""
    if issubclass(kind, np.generic | str | bytes):
        return False
    return issubclass(kind, Sequence | memoryview) or any(
        hasattr(kind, name) for name in ("__array__", "__dlpack__", "__arrow_c_array__", "__arrow_c_stream__", "__array_interface__"))


def _stacked(given: Iterable[Any]) -> Part:
    """Arrays of one shape, one after the other along a new first dimension."""
    parts = []
    for i, each in enumerate(given):
        if each is np.ma.masked:  # a float64 by itself, which would make floats of the others
            parts.append(Part(np.zeros((), np.bool_), np.zeros((), np.bool_)))
            continue
        values, there = read(each)
        if not isinstance(values, np.ndarray):
            values = on_host(values)
        parts.append(Part(values, there, f"[{i}]"))
    shapes = {part.values.shape for part in parts}
    if len(shapes) > 1:
        raise TypeError(f"array: got a list of arrays of shapes {', '.join(map(str, sorted(shapes)))}; allowed: one shape")
    return _assembled((len(parts), *shapes.pop()), parts, ((i, ...) for i in range(len(parts))))


def on_host(array: Any) -> Array:
    """An array of DLPack in host memory, or what else NumPy makes one of."""
    if not hasattr(array, "__dlpack__"):
        return np.asarray(array)
    try:
        return np.from_dlpack(without_gradient(array))
    except (BufferError, RuntimeError, TypeError, ValueError, NotImplementedError) as error:
        dtype = getattr(array, "dtype", "another")
        if str(dtype).rpartition(".")[2] in _ALLOWED.split(", "):
            raise TypeError(f"array: got {a_or_an(type(array))} of {dtype} that DLPack does not export ({error}); allowed: dense "
                            "arrays in host memory") from None
        raise refused(f"dtype: got {dtype}", dtype) from None


def without_gradient(array: Any) -> Any:
    """A tensor of PyTorch as its elements are, which DLPack exports: without its gradient, and negated if that was put off."""
    if getattr(array, "requires_grad", False) and hasattr(array, "detach"):
        array = array.detach()
    if hasattr(array, "resolve_neg") and array.is_neg():
        array = array.resolve_neg()
    return array

"""The same elements in every container that people have: what test_containers.py reduces.

A container is made of an Arrow array of 24 elements. `MISSING` can have missing elements, `FULL` can't.
"""

import array
import collections

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

LENGTH = 24
TYPES = {"bool": pa.bool_(), "int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64(), "uint8": pa.uint8(),
         "uint16": pa.uint16(), "uint32": pa.uint32(), "uint64": pa.uint64(), "float16": pa.float16(), "float32": pa.float32(),
         "float64": pa.float64()}
# As pandas and polars spell them.
_NAMES = {name: name[:2].upper() + name[2:] if name[0] == "u" else name.capitalize() for name in TYPES}


class Unsupported(Exception):
    """The library has no such container."""


def name_of(arrow):
    return {value: name for name, value in TYPES.items()}[arrow.type]


def values(arrow):
    """The elements as NumPy has them; 0 for missing ones."""
    return np.array([0 if each is None else each for each in arrow.to_pylist()], name_of(arrow))


def mask(arrow):
    return np.array([each is None for each in arrow.to_pylist()])


def masked(arrow):
    return np.ma.MaskedArray(values(arrow), mask(arrow))


def polars(arrow):
    if arrow.type == pa.float16() and not hasattr(pl, "Float16"):
        raise Unsupported
    return pl.Series("x", arrow.to_pylist(), dtype=getattr(pl, "Boolean" if arrow.type == pa.bool_() else _NAMES[name_of(arrow)]))


def nullable(arrow):
    if arrow.type == pa.float16():
        raise Unsupported
    kind = {"b": pd.arrays.BooleanArray, "i": pd.arrays.IntegerArray, "u": pd.arrays.IntegerArray, "f": pd.arrays.FloatingArray}
    return kind[name_of(arrow)[0]](values(arrow), mask(arrow))  # pd.array would round large integers on the way


def arrow_backed(arrow):
    return pd.arrays.ArrowExtensionArray(pa.chunked_array([arrow]))


def chunks(arrow):
    return [arrow[:5], arrow[5:5], arrow[5:18], arrow[18:]]


def padded(arrow, before=3, after=2):
    """A part of a longer array, whose offset is no multiple of 8."""
    return pa.concat_arrays([arrow[:before], arrow, arrow[:after]])[before : before + LENGTH]


def rows(x):
    return x.reshape(4, 6)


def shows(given, *names):
    """An object that has nothing but some methods of another."""
    return type("Shows", (), {name: (lambda name: lambda self, *arguments, **options: getattr(given, name)(*arguments, **options))(name)
                              for name in names})()


class Tensor:
    """As PyTorch's tensors that require a gradient: DLPack takes what they are detached from."""

    requires_grad = True

    def __init__(self, given):
        self._given, self.dtype, self.shape = given, given.dtype, given.shape

    def __dlpack__(self, **_):
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")

    def __dlpack_device__(self):
        return (1, 0)

    def detach(self):
        return self._given


def dask_masked(arrow):
    import dask.array as da

    return da.from_array(masked(arrow), chunks=7)


def strided(x):
    wide = np.zeros((len(x), 3), x.dtype)
    wide[:, 1] = x
    return wide[:, 1]


def unaligned(x):
    raw = np.zeros(x.nbytes + 1, np.uint8)
    raw[1:] = np.frombuffer(x.tobytes(), np.uint8)
    return raw[1:].view(x.dtype)


def mixed_frame(arrow):
    """A frame with a column of pandas' own dtype and one of NumPy's, without elements of its own."""
    return pd.DataFrame({"x": nullable(arrow), "y": np.zeros(LENGTH, name_of(arrow))})[["x"]]


MISSING = {
    "pyarrow.Array": lambda a: a,
    "pyarrow.Array, sliced": padded,
    "pyarrow.ChunkedArray of 1": lambda a: pa.chunked_array([a]),
    "pyarrow.ChunkedArray of 4": lambda a: pa.chunked_array(chunks(a)),
    "pyarrow.ChunkedArray, sliced": lambda a: pa.chunked_array([a[:4], *chunks(a), a[:3]])[4 : 4 + LENGTH],
    "pyarrow.Table": lambda a: pa.table({"x": a}),
    "pyarrow.Table of two columns": lambda a: pa.table({"x": a[:12], "y": a[12:]}),
    "pyarrow.Table in chunks": lambda a: pa.table({"x": pa.chunked_array(chunks(a))}),
    "pyarrow.RecordBatch": lambda a: pa.record_batch({"x": a[:8], "y": a[8:16], "z": padded(a)[16:]}),
    "pyarrow.RecordBatch, sliced": lambda a: pa.record_batch({"x": padded(a)})[0:LENGTH],
    "pyarrow.RecordBatchReader": lambda a: pa.table({"x": pa.chunked_array(chunks(a))}).to_reader(),
    "pyarrow.StructArray": lambda a: pa.StructArray.from_arrays([a[:12], a[12:]], ["x", "y"]),
    "pyarrow.StructArray, sliced": lambda a: pa.StructArray.from_arrays([pa.concat_arrays([a[:5], a])], ["x"])[5:],
    "pyarrow.FixedSizeListArray": lambda a: pa.FixedSizeListArray.from_arrays(a, 3),
    "pyarrow.FixedSizeListArray, sliced": lambda a: pa.FixedSizeListArray.from_arrays(pa.concat_arrays([a[:6], a]), 3)[2:],
    "polars.Series": polars,
    "polars.Series in chunks": lambda a: polars(a[:5]).append(polars(a[5:])),
    "polars.Series, sliced": lambda a: polars(pa.concat_arrays([a[:5], a]))[5:],
    "polars.DataFrame": lambda a: pl.DataFrame({"x": polars(a)}),
    "polars.DataFrame of two columns": lambda a: pl.DataFrame({"x": polars(a[:12]), "y": polars(a[12:])}),
    "polars.DataFrame in chunks": lambda a: pl.DataFrame({"x": polars(a[:7])}).vstack(pl.DataFrame({"x": polars(a[7:])})),
    "pandas.array": nullable,
    "pandas.Series, nullable": lambda a: pd.Series(nullable(a)),
    "pandas.Series.values, nullable": lambda a: pd.Series(nullable(a)).values,
    "pandas.Index, nullable": lambda a: pd.Index(nullable(a)),
    "pandas.DataFrame, nullable": lambda a: pd.DataFrame({"x": nullable(a[:12]), "y": nullable(a[12:])}),
    "pandas.DataFrame, a column of a mixed one": mixed_frame,
    "pandas.Series of Arrow": lambda a: pd.Series(arrow_backed(a)),
    "pandas.Series.array of Arrow": arrow_backed,
    "pandas.Index of Arrow": lambda a: pd.Index(arrow_backed(a)),
    "pandas.DataFrame of Arrow": lambda a: pd.DataFrame({"x": arrow_backed(a[:12]), "y": arrow_backed(a[12:])}),
    "numpy.ma": masked,
    "numpy.ma, reversed": lambda a: masked(a)[::-1],
    "numpy.ma, Fortran order": lambda a: rows(masked(a)).T,
    "list of numpy.ma": lambda a: list(rows(masked(a))),
    "nested list of numpy.ma": lambda a: [[row[:3], row[3:]] for row in rows(masked(a))],
    "list with numpy.ma.masked": lambda a: [np.ma.masked if gone else each for each, gone in zip(values(a), mask(a))],
    "list of polars.Series": lambda a: [polars(a[:12]), polars(a[12:])],
    "list of pandas.Series": lambda a: [pd.Series(nullable(a[:12])), pd.Series(nullable(a[12:]))],
    "tuple of pyarrow.Array": lambda a: (a[:8], a[8:16], a[16:]),
    "what has only __arrow_c_array__": lambda a: shows(padded(a), "__arrow_c_array__"),
    "what has only __arrow_c_stream__": lambda a: shows(pa.chunked_array(chunks(a)), "__arrow_c_stream__"),
    "dask.array of numpy.ma": dask_masked,
}

FULL = {
    "ndarray": values,
    "ndarray, the other byte order": lambda a: values(a).astype(values(a).dtype.newbyteorder()),
    "ndarray, reversed": lambda a: values(a)[::-1],
    "ndarray, Fortran order": lambda a: np.asfortranarray(rows(values(a))),
    "ndarray, strided": lambda a: strided(values(a)),
    "ndarray, broadcast": lambda a: np.broadcast_to(values(a), (1, LENGTH)),
    "ndarray, unaligned": lambda a: unaligned(values(a)),
    "ndarray, read-only": lambda a: np.frombuffer(values(a).tobytes(), values(a).dtype),
    "a subclass of ndarray": lambda a: rows(values(a)).view(np.recarray),
    "numpy.ma without a mask": lambda a: np.ma.asarray(values(a)),
    "memoryview": lambda a: memoryview(values(a)),
    "pandas.Series": lambda a: pd.Series(values(a)),
    "pandas.Series, strided": lambda a: pd.Series(np.repeat(values(a), 2))[::2],
    "pandas.Index": lambda a: pd.Index(values(a)) if a.type != pa.float16() else pd.Series(values(a)),
    "pandas.DataFrame": lambda a: pd.DataFrame(rows(values(a))),
    "pandas.DataFrame in blocks": lambda a: pd.concat([pd.DataFrame(values(a)[:12].reshape(4, 3)), pd.DataFrame(values(a)[12:].reshape(4, 3))], axis=1),
    "pandas.SparseArray": lambda a: pd.arrays.SparseArray(values(a)),
    "what has only DLPack": lambda a: shows(values(a), "__dlpack__", "__dlpack_device__"),
    "what requires a gradient": lambda a: Tensor(values(a)),
    "what has only __array__": lambda a: shows(values(a), "__array__"),
    "list": lambda a: values(a).tolist(),
    "tuple": lambda a: tuple(values(a).tolist()),
    "nested list": lambda a: rows(values(a)).tolist(),
    "deque": lambda a: collections.deque(values(a).tolist()),
    "list of NumPy scalars": lambda a: list(values(a)),
    "list of ndarrays": lambda a: list(rows(values(a))),
    "list of what requires a gradient": lambda a: [Tensor(row) for row in rows(values(a))],
    "array.array": lambda a: array.array(values(a).dtype.char, values(a).tolist()) if a.type not in (pa.bool_(), pa.float16()) else values(a),
}

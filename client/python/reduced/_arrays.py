"""What can be reduced, as memory that the service reads: without a copy where an array's memory allows that."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reduced import _core
from reduced._containers import a_or_an, on_host, read, refused, refused_objects, without_gradient
from reduced._copies import PIECE, both, contiguous
from reduced._cuda import CudaElements, cuda_elements, layout_of
from reduced._options import Options, check_options

_NUMPY: dict[str, type[np.generic]] = {
    "bool": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "u8": np.uint8, "u16": np.uint16,
    "u32": np.uint32, "u64": np.uint64, "f16": np.float16, "f32": np.float32, "f64": np.float64,
}
_NAMES: dict[np.dtype[Any], str] = {np.dtype(scalar): name for name, scalar in _NUMPY.items()}
_NAMES[np.dtype(np.longlong)] = "i64"
_NAMES[np.dtype(np.ulonglong)] = "u64"
# Those that NumPy has from the package ml_dtypes, by the names that these have there and in PyTorch.
FROM_ML_DTYPES = {"bfloat16": "bf16", "float8_e4m3fn": "f8_e4m3fn", "float8_e5m2": "f8_e5m2", "float8_e8m0fnu": "f8_e8m0fnu"}
_ML_NAMES = {name: scalar for scalar, name in FROM_ML_DTYPES.items()}

# Kinds of devices of DLPack whose memory this process reads: the CPU's, and pinned memory of CUDA.
_HOST = (1, 3)
_CUDA = 2


class Elements(NamedTuple):
    """Memory in C order, or described by strides, and what its elements are."""

    buffer: Any
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return self.buffer.nbytes if isinstance(self.buffer, _core.Strided) else memoryview(self.buffer).nbytes


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """NumPy's dtype for one of the service: bf16 and floats of 8 bits have those of ml_dtypes. TypeError: it is not installed, or older."""
    if dtype in _ML_NAMES:
        try:
            import ml_dtypes

            found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_NAMES[dtype]))
        except (AttributeError, ImportError):
            raise TypeError(f"dtype: got {dtype}; allowed: with the package ml_dtypes, which is not installed or older") from None
        return found
    return np.dtype(_NUMPY[dtype])


def bits_dtype(dtype: str) -> np.dtype[Any]:
    """A dtype of NumPy's own for the memory of elements of one of the service."""
    return np.dtype(_NUMPY.get(dtype) or (np.uint16 if dtype == "bf16" else np.uint8))


def dtype_name(dtype: np.dtype[Any]) -> str:
    """The service's name of a dtype in either byte order."""
    name = _NAMES.get(dtype.newbyteorder("="))
    if name is None and dtype.itemsize <= 2:
        name = FROM_ML_DTYPES.get(dtype.name)
    if name is None:
        raise refused(f"dtype: got {dtype}", dtype)
    return name


def plain_dtype(array: npt.NDArray[Any]) -> str | None:
    """The service's name of the dtype of an array whose memory can be read as it is, in C order."""
    return _NAMES.get(array.dtype) if array.flags.c_contiguous else None


def elements(array: Any, *, ordered: bool) -> Elements:
    """The elements of an array-like. `ordered`: in C order; else in the order of the memory, if that saves a copy."""
    here = located(array, ordered=ordered, gpu=False)
    assert isinstance(here, Elements)
    return here


def located(array: Any, *, ordered: bool, gpu: bool = True, strided: bool = False) -> Elements | CudaElements:
    """The same; `gpu`: or those of an array that a GPU has, where they are; `strided`: or described, where they would be copied."""
    if type(array) is np.ndarray:
        name = _NAMES.get(array.dtype)
        if name is not None and array.flags.c_contiguous:
            return Elements(array, name, array.shape)
    if isinstance(array, Elements | CudaElements):
        return array
    given = type(array)
    array, there = read(array)
    if there is not None:
        raise TypeError(f"array: got {a_or_an(given)} with missing values; allowed: without (see fill_null, drop_null, fillna, dropna, "
                        "filled, compressed), or as the array of a reduction")
    if not isinstance(array, np.ndarray):
        device = _device(array)
        if device == _CUDA and gpu:
            layout = layout_of(array)
            if 0 in layout.shape:
                return Elements(np.empty(0, np.uint8), layout.dtype, layout.shape)
            return cuda_elements(layout, ordered=ordered)
        if device is not None and device not in _HOST:
            raise TypeError(f"array: got {_DEVICES.get(device, 'memory of another device')}; allowed: host memory (copy it "
                            "there, by copy=True of a reduction, .cpu() or .get())")
        narrow = FROM_ML_DTYPES.get(str(getattr(array, "dtype", "")).rpartition(".")[2])
        if device is not None and narrow is not None:
            array = without_gradient(array)
            if narrow != "bf16" and hasattr(array, "untyped_storage"):  # PyTorch's own, which DLPack may not export
                array = array.view(sys.modules["torch"].uint8)
            try:
                bits = _dense(_core.bits(array), ordered)
            except TypeError:
                raise TypeError(f"array: got {a_or_an(given)} of {narrow} that DLPack does not export; allowed: dense arrays in host "
                                "memory") from None
            return Elements(bits, narrow, bits.shape)
        array = on_host(array) if device is not None else array
    array = np.asarray(array)
    if array.dtype == object:
        raise refused_objects(array)
    name = dtype_name(array.dtype)
    if name in _ML_NAMES:
        array = array.view(bits_dtype(name))
    described = _described(array, ordered) if strided else None
    if described is not None:
        return Elements(described, name, array.shape)
    array = _dense(array, ordered)
    return Elements(array, name, array.shape)


def with_mask(array: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]] | None:
    """The elements of an array that lacks some, and where it has them. None: it lacks none."""
    values, there = read(array)
    return None if there is None else (values, there)


def mask_of(where: Any, shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """What `where` says of each element of an array of that shape. A missing value is not True, as in SQL and pandas."""
    try:
        values, there = read(where)
        mask = np.asarray(values)
        if mask.dtype == object:
            raise refused_objects(mask)
    except TypeError as error:
        raise TypeError(f"where: {str(error).removeprefix('array: ')}") from None
    if mask.dtype != np.bool_:
        raise TypeError(f"where: got {mask.dtype}; allowed: bool")
    if there is not None:
        mask = both(mask, there)
    try:
        return np.broadcast_to(mask, shape)
    except ValueError:
        raise ValueError(f"where: got shape {mask.shape}; allowed: a shape that broadcasts to {shape}") from None


_DEVICES = {2: "memory of a CUDA device", 7: "memory of a Vulkan device", 8: "memory of a Metal device", 10: "memory of a ROCm device",
            13: "CUDA's managed memory"}


def _device(array: Any) -> int | None:
    """The kind of device that holds the array, as DLPack counts them. None: the array does not say. TypeError: it has no number."""
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        try:
            return int(array.__dlpack_device__()[0])
        except (BufferError, RuntimeError, TypeError, ValueError, NotImplementedError) as error:
            raise TypeError(f"array: got {a_or_an(type(array))} whose memory DLPack does not name ({error}); allowed: host memory") from None
    return None if getattr(array, "__cuda_array_interface__", None) is None else _CUDA


def on_gpu(array: Any) -> bool:
    """Whether a GPU of CUDA has the array."""
    try:
        return type(array) is not np.ndarray and _device(array) == _CUDA
    except TypeError:  # whoever reads it says why not
        return False


def on_request(array: Any, options: Options) -> tuple[Any, Options]:
    """The array and the options without `copy`; if that is True, those that a GPU has are copied to host memory, after the work of their
    stream."""
    if "copy" not in options:
        return array, options
    check_options({"copy": options["copy"]})
    rest: Any = {name: value for name, value in options.items() if name != "copy"}
    if options["copy"]:
        array = _copied(array)
        rest = {name: _copied(value) for name, value in rest.items()}
    return array, rest


def _copied(array: Any) -> Any:
    """A copy in host memory of an array that a GPU has; else the array."""
    if not on_gpu(array):
        return array
    for name in ("cpu", "get", "copy_to_host"):  # PyTorch, CuPy, Numba
        if (copy := getattr(without_gradient(array), name, None)) is not None:
            return copy()
    return np.asarray(array)


def _described(array: npt.NDArray[Any], ordered: bool) -> _core.Strided | None:
    """An array that would have to be copied, as what reads it where it lies. None: it need not be, or is so small that a copy takes less
    time and its memory is of this process alone.
    """
    if array.size == 0 or (array.flags.c_contiguous and array.dtype.isnative):
        return None
    if not ordered:
        by_memory = _by_memory(array)
        if by_memory.flags.c_contiguous and by_memory.dtype.isnative:
            return None
    address = array.__array_interface__["data"][0]
    if array.size <= PIECE and not _core.is_shared(address):
        return None
    return _core.Strided(array, address, array.itemsize, array.shape, array.strides, not array.dtype.isnative)


def _by_memory(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The elements in the order of their addresses."""
    index: tuple[Any, ...] = tuple(slice(None, None, -1 if stride < 0 else 1) for stride in array.strides)
    forwards = array[(*index, ...)]
    return forwards.transpose(sorted(range(array.ndim), key=lambda axis: -forwards.strides[axis]))


def _dense(array: npt.NDArray[Any], ordered: bool) -> npt.NDArray[Any]:
    """The elements in the byte order of this machine, next to each other: in C order if `ordered`, else in that of the memory."""
    if not array.flags.c_contiguous and not ordered:
        by_memory = _by_memory(array)
        if by_memory.flags.c_contiguous:
            array = by_memory
    return contiguous(array, array.dtype if array.dtype.isnative else array.dtype.newbyteorder("="))


def empty(shape: int | Sequence[int], dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
    """An array of zeros in shared memory, which a server on this machine reads where it is: nothing is sent.

    It, and what is cut from it, reduces by `via="region"` at a server that can read it, and is sent to others. Do
    not change it while it is reduced.

    >>> import reduced
    >>> x = reduced.empty((2, 3), "f4")
    >>> x[:] = 1
    >>> print(reduced.connect("local:").sum(x))
    6.0
    """
    wanted = np.dtype(dtype)
    dtype_name(wanted)
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(extent < 0 for extent in extents):
        raise ValueError(f"shape: got {extents}; allowed: dimensions of 0 and more")
    nbytes = math.prod(extents) * wanted.itemsize
    if nbytes >= 1 << 63:
        raise ValueError(f"shape: got {extents} of {wanted}; allowed: less than 2^63 bytes")
    array: npt.NDArray[Any] = _core.empty(nbytes).view(wanted).reshape(extents)
    return array

"""What can be reduced: everything that NumPy can see as an array, without a copy where its memory allows that."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reduced import _core
from reduced._cuda import CudaElements, cuda_elements, layout_of

_NUMPY: dict[str, type[np.generic]] = {
    "bool": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "u8": np.uint8, "u16": np.uint16,
    "u32": np.uint32, "u64": np.uint64, "f16": np.float16, "f32": np.float32, "f64": np.float64,
}
_NAMES: dict[np.dtype[Any], str] = {np.dtype(scalar): name for name, scalar in _NUMPY.items()}
_NAMES[np.dtype(np.longlong)] = "i64"
_NAMES[np.dtype(np.ulonglong)] = "u64"

# Kinds of devices of DLPack whose memory this process reads: the CPU's, and pinned memory of CUDA.
_HOST = (1, 3)
_CUDA = 2


class Elements(NamedTuple):
    """Memory in C order, and what its elements are."""

    buffer: Any
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return memoryview(self.buffer).nbytes


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """NumPy's dtype for one of the service. bf16 is that of ml_dtypes."""
    if dtype == "bf16":
        try:
            import ml_dtypes
        except ImportError:
            raise TypeError("dtype: got bf16; allowed: with the package ml_dtypes, which is not installed") from None
        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(_NUMPY[dtype])


def dtype_name(dtype: np.dtype[Any]) -> str:
    """The service's name of a dtype in either byte order."""
    name = _NAMES.get(dtype.newbyteorder("="))
    if name is None and dtype.name == "bfloat16" and dtype.itemsize == 2:
        name = "bf16"
    if name is None:
        allowed = ", ".join(np.dtype(scalar).name for scalar in _NUMPY.values())
        raise TypeError(f"dtype: got {dtype}; allowed: {allowed}, bfloat16")
    return name


def elements(array: Any, *, ordered: bool) -> Elements:
    """The elements of an array-like. `ordered`: in C order; else in the order of the memory, if that saves a copy."""
    here = located(array, ordered=ordered, gpu=False)
    assert isinstance(here, Elements)
    return here


def located(array: Any, *, ordered: bool, gpu: bool = True) -> Elements | CudaElements:
    """The same; `gpu`: or those of an array that a GPU has, where they are."""
    if type(array) is np.ndarray:
        name = _NAMES.get(array.dtype)
        if name is not None and array.flags.c_contiguous:
            return Elements(array, name, array.shape)
    if isinstance(array, Elements | CudaElements):
        return array
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError("array: got a masked array; allowed: arrays without a mask (see its methods filled and compressed), or as the "
                        "array of a reduction")
    arrow = _arrow(array)
    if arrow is not None:
        if arrow.null_count > 0:
            raise TypeError(f"array: got an Arrow array of {arrow.type} with nulls; allowed: without (drop_null, fill_null)")
        array = _arrow_values(arrow)
    if not isinstance(array, np.ndarray):
        device = _device(array)
        if device == _CUDA and gpu:
            layout = layout_of(array)
            if 0 in layout.shape:
                return Elements(np.empty(0, np.uint8), layout.dtype, layout.shape)
            return cuda_elements(array, layout, ordered=ordered)
        if device is not None and device not in _HOST:
            raise TypeError(f"array: got {_DEVICES.get(device, 'memory of another device')}; allowed: host memory (copy it "
                            "there, for instance by .cpu() or .get())")
        if device is not None and str(getattr(array, "dtype", "")).endswith("bfloat16"):
            bits = _dense(_core.bits16(array), ordered)
            return Elements(bits, "bf16", bits.shape)
        array = np.from_dlpack(array) if device is not None else _column(array)
    name = dtype_name(array.dtype)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    array = _dense(array, ordered)
    return Elements(array.view(np.uint16) if name == "bf16" else array, name, array.shape)


def with_mask(array: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]] | None:
    """The elements of an array that lacks some, and where it has them: a masked array, an Arrow array with nulls, or a pandas column
    of integers or booleans with missing values. None: it is another one."""
    if isinstance(array, np.ma.MaskedArray):
        return np.ma.getdata(array), ~np.ma.getmaskarray(array)
    arrow = _arrow(array)
    if arrow is not None:
        return (_arrow_values(arrow), _arrow_validity(arrow)) if arrow.null_count > 0 else None
    dtype = getattr(getattr(array, "dtype", None), "numpy_dtype", None)
    if not isinstance(dtype, np.dtype) or dtype.kind not in "biu" or not hasattr(array, "to_numpy"):
        return None
    missing = array.isna().to_numpy()
    return (array.to_numpy(dtype=dtype, na_value=0), ~missing) if missing.any() else None


_DEVICES = {2: "memory of a CUDA device", 7: "memory of a Vulkan device", 8: "memory of a Metal device", 10: "memory of a ROCm device",
            13: "CUDA's managed memory"}


def _device(array: Any) -> int | None:
    """The kind of device that holds the array, as DLPack counts them. None: the array does not say."""
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return int(array.__dlpack_device__()[0])
    return None if getattr(array, "__cuda_array_interface__", None) is None else _CUDA


def on_gpu(array: Any) -> bool:
    """Whether a GPU of CUDA has the array."""
    return type(array) is not np.ndarray and _device(array) == _CUDA


def _column(array: Any) -> npt.NDArray[Any]:
    """A pandas column of a nullable or Arrow dtype, with NaN for missing floats; anything else as NumPy sees it."""
    dtype = getattr(getattr(array, "dtype", None), "numpy_dtype", None)
    if not isinstance(dtype, np.dtype) or dtype.kind not in "biuf" or not hasattr(array, "to_numpy"):
        return np.asarray(array)
    if dtype.kind != "f" and array.isna().any():
        raise TypeError(f"array: got a column of {array.dtype} with missing values; allowed: without (dropna, fillna)")
    column: npt.NDArray[Any] = array.to_numpy(dtype=dtype, na_value=np.nan if dtype.kind == "f" else 0)
    return column


def _arrow(array: Any) -> Any | None:
    """An array of pyarrow in host memory, in one piece. None: it is another one. TypeError: its elements are no numbers or bool."""
    pyarrow = sys.modules.get("pyarrow")
    if pyarrow is None or not isinstance(array, pyarrow.Array | pyarrow.ChunkedArray) or not getattr(array, "is_cpu", True):
        return None
    types = pyarrow.types
    if not any(is_one(array.type) for is_one in (types.is_integer, types.is_floating, types.is_boolean)):
        raise TypeError(f"array: got an Arrow array of {array.type}; allowed: numbers and bool")
    if isinstance(array, pyarrow.Array):
        return array
    return array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()


def _arrow_buffer(arrow: Any, index: int, dtype: Any) -> npt.NDArray[Any]:
    """A buffer of an Arrow array as elements of a dtype of Arrow; a copy, if they are bits."""
    part = sys.modules["pyarrow"].Array.from_buffers(dtype, len(arrow), [None, arrow.buffers()[index]], offset=arrow.offset)
    elements: npt.NDArray[Any] = part.to_numpy(zero_copy_only=False)
    return elements


def _arrow_values(arrow: Any) -> npt.NDArray[Any]:
    """The elements of an Arrow array; of those that are null, whatever is in their memory."""
    return _arrow_buffer(arrow, 1, arrow.type)


def _arrow_validity(arrow: Any) -> npt.NDArray[np.bool_]:
    """Which elements of an Arrow array that has nulls are none."""
    return _arrow_buffer(arrow, 0, sys.modules["pyarrow"].bool_())


def _dense(array: npt.NDArray[Any], ordered: bool) -> npt.NDArray[Any]:
    if array.flags.c_contiguous:
        return array
    if not ordered:
        forwards = array[tuple(slice(None, None, -1 if stride < 0 else 1) for stride in array.strides)]
        by_stride = forwards.transpose(sorted(range(array.ndim), key=lambda axis: -forwards.strides[axis]))
        if by_stride.flags.c_contiguous:
            return by_stride
    return np.ascontiguousarray(array)

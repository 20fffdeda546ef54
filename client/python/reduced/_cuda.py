"""Arrays in memory of a GPU: where their elements lie, whose work writes them, and how long their servers may keep a region.

A server reads such an array where it is, by CUDA IPC, which shares whole allocations, or by descriptors of the pieces of CUDA's
virtual memory management in which it lies. These are shared once with each server, as long as an array lives in them that was
reduced: a framework's allocator gives no memory back before.
"""

from __future__ import annotations

import math
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from reduced import _core

# DLPack's kinds of elements, as far as their sizes go on.
_KINDS = {0: "i", 1: "u", 2: "f", 4: "bf"}
_WHOLE_KINDS = {6: "bool", 10: "f8_e4m3fn", 12: "f8_e5m2", 14: "f8_e8m0fnu"}
# PyTorch's names.
_TORCH = {"bool": "bool", "uint8": "u8", "bfloat16": "bf16", "float16": "f16", "float32": "f32", "float64": "f64"}
_TORCH |= {"float8_e4m3fn": "f8_e4m3fn", "float8_e5m2": "f8_e5m2", "float8_e8m0fnu": "f8_e8m0fnu"}
_TORCH |= {f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)} | {f"uint{bits}": f"u{bits}" for bits in (16, 32, 64)}
# A loop that makes a small tensor in each turn, such as a loss, would have its allocation shared again in each: of those of
# PyTorch the last one in an allocation lives for so much longer, unless it is larger.
_LINGER_S = 0.5
_LINGER_BYTES = 1 << 20
# The stream that others wait for, as DLPack and the driver number it.
_LEGACY_STREAM = 1


class CudaElements(NamedTuple):
    """Memory of a GPU, and what its elements are."""

    buffer: _core.SharedCuda
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    owner: Any


class Layout(NamedTuple):
    """Elements as an object has them, with strides in elements, and what lives as long as their memory."""

    address: int
    dtype: str
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    stream: int
    owner: Any
    memory: tuple[int, int] = (0, 0)  # what the owner has, if that is known: its address and bytes


def cuda_elements(layout: Layout, *, ordered: bool) -> CudaElements:
    """The elements of an array of a GPU, one at least. `ordered`: in C order; else as they lie, if that saves a copy.

    The server copies those that do not lie together, on the GPU.
    """
    dense = _dense(layout.shape, layout.strides, ordered)
    shape, first = (layout.shape, 0) if dense is None else dense
    strides = None if dense is not None else [stride * layout.itemsize for stride in layout.strides]
    address = layout.address + first * layout.itemsize
    shared = _core.SharedCuda(address, layout.dtype, shape, layout.stream, layout.memory, strides)
    _keep(layout.owner, shared)
    return CudaElements(shared, layout.dtype, shape, math.prod(shape) * layout.itemsize, layout.owner)


def layout_of(array: Any) -> Layout:
    """To be asked by the thread that uses the array: a stream is current in a thread."""
    if hasattr(array, "untyped_storage") and "torch" in sys.modules:
        return _of_torch(array)
    if hasattr(array, "__dlpack__"):
        # The legacy stream waits for what writes the array.
        address, kind, bits, shape, strides = _core.cuda_layout(array.__dlpack__(stream=_LEGACY_STREAM))
        dtype = _WHOLE_KINDS.get(kind) or f"{_KINDS.get(kind, 'kind')}{bits}"
        # CuPy divides the bytes of negative ones as unsigned numbers.
        below_zero = (1 << 64) // (bits // 8 or 1)
        strides = tuple(stride - below_zero if stride >= below_zero // 2 else stride for stride in strides)
        return Layout(address, _known(dtype, array), bits // 8, shape, strides, _LEGACY_STREAM, _owner(array))
    return _of_interface(array)


def _of_torch(tensor: Any) -> Layout:
    """Without DLPack, which takes longer, and does not take what has a gradient."""
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    dtype = _known(_TORCH.get(str(tensor.dtype).rpartition(".")[2], ""), tensor)
    torch = sys.modules["torch"]
    raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # 4 us faster
    if raw_stream is not None:
        stream = raw_stream(tensor.get_device())
    else:
        stream = torch.cuda.current_stream(tensor.device).cuda_stream
    storage = tensor.untyped_storage()
    return Layout(tensor.data_ptr(), dtype, tensor.element_size(), tuple(tensor.shape), tensor.stride(), stream, storage,
                  (storage.data_ptr(), storage.nbytes()))


def _of_interface(array: Any) -> Layout:
    """By __cuda_array_interface__, version 3 or older: https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html"""
    interface = array.__cuda_array_interface__
    if interface.get("mask") is not None:
        raise TypeError("array: got an array of a GPU with a mask; allowed: arrays without a mask")
    dtype, shape = np.dtype(interface["typestr"]), tuple(interface["shape"])
    name = "bool" if dtype.kind == "b" else f"{dtype.kind}{dtype.itemsize * 8}"
    if not dtype.isnative:
        raise TypeError(f"dtype: got {dtype} in memory of a GPU; allowed: the byte order of this machine")
    strides, step = interface.get("strides"), 1
    if strides is None:
        strides = []
        for extent in reversed(shape):
            strides.insert(0, step)
            step *= extent
    elif any(stride % dtype.itemsize for stride in strides):
        raise TypeError(f"array: got strides of {strides} bytes; allowed: multiples of {dtype.itemsize}")
    else:
        strides = [stride // dtype.itemsize for stride in strides]
    return Layout(interface["data"][0], _known(name, array), dtype.itemsize, shape, tuple(strides),
                   interface.get("stream") or _LEGACY_STREAM, _owner(array))


def _known(dtype: str, array: Any) -> str:
    if dtype not in _core.dtypes:
        raise TypeError(f"dtype: got {getattr(array, 'dtype', 'another')}; allowed: {', '.join(_core.dtypes)}")
    return dtype


def _dense(shape: tuple[int, ...], strides: Sequence[int], ordered: bool) -> tuple[tuple[int, ...], int] | None:
    """A shape in whose C order the elements lie together, and the first of them; None: there is none."""
    axes = [axis for axis in range(len(shape)) if shape[axis] != 1]
    first = 0
    if not ordered:
        first = sum(min(0, strides[axis] * (shape[axis] - 1)) for axis in axes)
        axes.sort(key=lambda axis: -abs(strides[axis]))
    step = 1
    for axis in reversed(axes):
        if (strides[axis] if ordered else abs(strides[axis])) != step:
            return None
        step *= shape[axis]
    return (shape if ordered else tuple(shape[axis] for axis in axes)), first


def _owner(array: Any) -> Any:
    """What lives as long as the memory of an array and its views: the array that they are cut from, where they say."""
    base = getattr(array, "base", None)
    return array if base is None else base


class _Kept(weakref.ref[Any]):
    """Keeps the allocation of an owner that lives."""

    __slots__ = ("key", "shared")
    key: int
    shared: _core.SharedCuda


_kept: dict[int, _Kept] = {}


def _keep(owner: Any, shared: _core.SharedCuda) -> None:
    """The allocation's regions stay until the owner's life ends, or that of the last owner in it."""
    key = id(owner)
    known = _kept.get(key)
    if known is not None and known() is owner and known.shared.allocation == shared.allocation:
        return
    try:
        kept = _Kept(owner, _forget)
    except TypeError:  # it has no weak references: the region ends with the call
        return
    kept.key, kept.shared = key, shared
    _kept[key] = kept
    if hasattr(owner, "nbytes") and callable(owner.nbytes) and owner.nbytes() <= _LINGER_BYTES:  # a torch.UntypedStorage
        _linger(owner, shared.allocation)


def _forget(ended: weakref.ref[Any], kept: dict[int, _Kept] = _kept) -> None:
    assert isinstance(ended, _Kept)
    if kept.get(ended.key) is ended:
        del kept[ended.key]


# By allocation: the last small owner, and when it was reduced.
_last: dict[int, tuple[Any, float]] = {}
_lingering = threading.RLock()  # the end of an owner may run anything
_sweeper: threading.Thread | None = None


def _linger(owner: Any, allocation: int) -> None:
    global _sweeper
    with _lingering:
        _last[allocation] = owner, time.monotonic()
        if _sweeper is None:
            _sweeper = threading.Thread(target=_sweep, name="reduced.cuda", daemon=True)
            _sweeper.start()


def _sweep() -> None:
    global _sweeper
    while True:
        time.sleep(_LINGER_S / 2)
        before = time.monotonic() - _LINGER_S
        with _lingering:
            ended = [_last.pop(allocation) for allocation, (_, since) in list(_last.items()) if since < before]
            if not _last:
                _sweeper = None
                return
        ended.clear()


def forget_all() -> None:
    """At the end of the process, before what owners and regions need is gone."""
    _last.clear()
    _kept.clear()

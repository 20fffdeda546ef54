"""The other arrays of ops about two, `y` and `weights`, as the array that is reduced takes them; and what `compare` answers."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reduced import _core
from reduced._arrays import Elements, dtype_name, located, numpy_dtype
from reduced._containers import read
from reduced._copies import Mask, Part, both, contiguous, fill_exactly
from reduced._cuda import CudaElements
from reduced._distribution import Plan, op_text
from reduced._options import OPERANDS, Options

# Options by which dimension 0 is reduced.
_BY_ROWS = ("segments", "lengths", "keys")


def _shape(array: Any) -> tuple[int, ...]:
    return tuple(array.shape) if hasattr(array, "shape") else np.shape(array)


def _operand(name: str, array: Any, gpu: bool) -> tuple[Any, Mask | None]:
    """An array as Elements, CudaElements or one that a server has, and which of its elements are not missing."""
    if hasattr(array, "_on_server"):  # a ResidentArray
        held = array._held(name)
        return held if isinstance(held, Elements) else array, None
    if isinstance(array, Elements | CudaElements):
        return array, None
    try:
        values, there = read(array)
        return located(values, ordered=True, gpu=gpu), there
    except TypeError as error:
        raise TypeError(f"{name}: {str(error).removeprefix('array: ')}") from None


def _ndarray(given: Elements) -> npt.NDArray[Any]:
    return np.asarray(given.buffer).reshape(given.shape)


def dtype_of(array: Any) -> str:
    """The service's name of the dtype of what `fitted` gives."""
    return array.dtype if isinstance(array, Elements | CudaElements) else dtype_name(array.dtype)


def placed(weights: Any, shape: tuple[int, ...], options: Options) -> Any:
    """Weights that have the dimensions that are reduced alone, as `numpy.average` takes them, with all dimensions of the array."""
    axis = options.get("axis")
    axes: tuple[int, ...] = ()
    if any(options.get(name) is not None for name in _BY_ROWS):
        axes = (0,)
    elif axis is not None:
        axes = tuple(map(operator.index, axis if isinstance(axis, tuple | list) else (axis,)))
    given = _shape(weights)
    ndim = len(shape)
    if len(given) != len(axes) or len(given) in (0, ndim) or any(not -ndim <= each < ndim for each in axes):
        return weights
    axes = tuple(each % ndim for each in axes)
    wanted = tuple(shape[each] for each in axes)
    if given != wanted:
        raise ValueError(f"weights: got shape {given} for reduced dimensions of {wanted}; allowed: {wanted}, or as many dimensions as "
                         f"the array has, which are {ndim}")
    if axes == tuple(range(ndim - len(axes), ndim)):
        return weights  # as they broadcast
    whole = tuple(shape[each] if each in axes else 1 for each in range(ndim))
    if isinstance(weights, Elements):
        return weights._replace(buffer=contiguous(_ndarray(weights).transpose(np.argsort(axes)), weights.buffer.dtype), shape=whole)
    if hasattr(weights, "reshape") and axes == tuple(sorted(axes)):  # of a GPU
        return weights.reshape(whole)
    raise ValueError(f"weights: got {type(weights).__name__} of shape {given}; allowed: of shape {whole}")


def fitted(array: Any, there: Mask | None, names: Sequence[str], options: Options, *, gpu: bool) -> tuple[Any, Mask | None, Options]:
    """An array, which of its elements are not missing, and options, in which `y` and `weights` fit the array: they broadcast to it, floats
    are with floats, and what they lack is missing.
    """
    asked = {OPERANDS.get(name.partition("(")[0].strip()) for name in names}
    there_of: list[Mask] = [] if there is None else [there]
    x, missing = _operand("array", array, gpu)
    if missing is not None:
        there_of.append(missing)
    others: dict[str, Any] = {}
    masks: dict[str, Mask | None] = {}
    for role in ("y", "weights"):
        other: Any = options.get(role)
        if other is None:
            continue
        if role not in asked:
            allowed = ", ".join(op for op, operand in OPERANDS.items() if operand == role)
            raise ValueError(f"{role}: got it with {', '.join(names)}; allowed: with one of {allowed}")
        others[role], masks[role] = _operand(role, other, gpu)
    if "y" in others:
        x, there_of = _broadcast(x, there_of, _shape(others["y"]))
    shape = _shape(x)
    for role, other in others.items():
        mask, before = masks[role], _shape(other)
        if role == "weights":
            other = placed(other, shape, options)
            if mask is not None:
                mask = placed(Elements(mask, "bool", before), shape, options).buffer.reshape(_shape(other))
        try:
            fits = np.broadcast_shapes(_shape(other), shape) == shape
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(f"{role}: got shape {_shape(other)}; allowed: a shape that broadcasts to {shape}")
        if mask is not None:
            there_of.append(np.broadcast_to(mask, shape))
        others[role] = other
    every = {"array": x, **others}
    dtypes = {name: dtype_of(each) for name, each in every.items()}
    if len({"f" in dtype for dtype in dtypes.values()}) > 1:
        only_pairs = all(OPERANDS.get(name.partition("(")[0].strip()) for name in names)
        for name, each in every.items():
            if "f" in dtypes[name]:
                continue
            floats = ", ".join(f"{other} of {dtype}" for other, dtype in dtypes.items() if "f" in dtype)
            if not isinstance(each, Elements) or name == "array" and not only_pairs:
                raise TypeError(f"{name}: got {dtypes[name]} beside {floats}; allowed: floats, as by astype, or integers only")
            every[name] = _floats(name, each, floats, there_of[0] if name == "array" and there_of else masks.get(name))
    there = None
    for mask in there_of:
        there = mask if there is None else both(there, mask)
    fitting: Options = {**options}
    if "y" in others:
        fitting["y"] = every["y"]
    if "weights" in others:
        fitting["weights"] = every["weights"]
    return every["array"], there, fitting


class Matrix(NamedTuple):
    """Answers whose last two dimensions are both those of the columns."""

    values: Any


def matrix(array: Any, options: Options, op: str) -> Plan:
    """`op` of each two columns of an array of two dimensions or more."""
    if hasattr(array, "_on_server"):
        values: Any = array
    else:
        values, there = read(array)
        if there is not None:
            raise TypeError("array: got missing elements; allowed: NaN in their places, with nan='omit'")
    shape = _shape(values)
    if len(shape) < 2:
        raise ValueError(f"array: got shape {shape}; allowed: two dimensions or more, of which the last one has the columns")
    name = op_text(op, (shape[-1],))
    return Matrix((yield values, (name,), options)[name])


def in_memory(role: str, other: Any, shape: tuple[int, ...], options: Options) -> npt.NDArray[Any]:
    """y or weights of this process as an array of a shape; a masked one, if elements are missing."""
    given, there = _operand(role, other, False)
    if not isinstance(given, Elements):
        raise TypeError(f"{role}: got {type(given).__name__}; allowed: arrays in host memory")
    arrays = [given] if there is None else [given, Elements(there, "bool", given.shape)]
    if role == "weights":
        arrays = [placed(each, shape, options) for each in arrays]
    try:
        values, *mask = (np.broadcast_to(_ndarray(each).view(numpy_dtype(each.dtype)), shape) for each in arrays)
    except ValueError:
        raise ValueError(f"{role}: got shape {given.shape}; allowed: a shape that broadcasts to {shape}") from None
    return np.ma.MaskedArray(values, ~mask[0]) if mask else values


def _broadcast(x: Any, there: list[Mask], other: tuple[int, ...]) -> tuple[Any, list[Mask]]:
    """The array and its masks, as NumPy broadcasts them with y."""
    try:
        shape = np.broadcast_shapes(_shape(x), other)
    except ValueError:
        raise ValueError(f"y: got shape {other} with an array of {_shape(x)}; allowed: shapes that broadcast") from None
    if shape == _shape(x) or not isinstance(x, Elements):
        return x, there
    buffer = contiguous(np.broadcast_to(_ndarray(x), shape), x.buffer.dtype)
    return Elements(buffer, x.dtype, shape), [np.broadcast_to(mask, shape) for mask in there]


def _floats(name: str, given: Elements, floats: str, there: Mask | None) -> Elements:
    """Integers as float64. TypeError: one is none."""
    values: npt.NDArray[np.float64] = np.empty(given.shape)
    array = _ndarray(given)
    try:
        fill_exactly(values, Part(array.view(np.uint8) if array.dtype == np.bool_ else array,
                                  there if there is None or there.shape == given.shape else None))
    except TypeError as error:
        number = str(error).partition("got ")[2].partition(" ")[0]
        raise TypeError(f"{name}: got {given.dtype} beside {floats}, and in it {number}, which is no float64; allowed: integers that are, "
                        "or integers only") from None
    return Elements(values, "f64", given.shape)


_COUNTS = ("mismatches", "different_bits")
_INDEXES = ("first", "max_abs_index", "max_rel_index", "max_ulp_index")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """How two arrays, x and y, differ; from `Client.compare`. Indexes are those of C order.

    mismatches: how many pairs do not match. first, first_x, first_y: the index and the elements of the first of them.
    max_abs, max_rel, max_ulp: the greatest |x - y|, |x - y| / |y|, and number of representable values from x to y (of the wider dtype; of
    integers |x - y|), of pairs without NaN; each with its index. different_bits: how many pairs have other bits. rmse: the square root of
    the mean of (x - y)^2, exact and rounded once.

    A figure that does not exist is None. Along axes, by keys and in segments each figure is an ndarray; there an index that does not
    exist is -1, and an element that does not exist is NaN, or masked among integers.
    """

    mismatches: Any
    first: Any
    first_x: Any
    first_y: Any
    max_abs: Any
    max_abs_index: Any
    max_rel: Any
    max_rel_index: Any
    max_ulp: Any
    max_ulp_index: Any
    different_bits: Any
    rmse: Any
    shape: tuple[int, ...]  # of x
    size: int  # how many pairs there are, also those that were left out
    whole: bool  # it is about all of x

    @property
    def equal(self) -> Any:
        """Whether all pairs match."""
        return self.mismatches == 0

    @property
    def index(self) -> tuple[int, ...] | None:
        """`first` as an index of each dimension."""
        if not self.whole:
            raise AttributeError("index: got a comparison along axes, by keys or of segments; allowed: first")
        return self._at(self.first)

    def _at(self, index: int | None) -> tuple[int, ...] | None:
        return None if index is None else tuple(map(int, np.unravel_index(index, self.shape)))

    def __str__(self) -> str:
        if not self.whole:
            return repr(self)
        lines = ["all match" if self.equal else f"{self.mismatches} of {self.size} do not match, the first at "
                 f"{self._at(self.first)}: {self.first_x} and {self.first_y}"]
        for what, name in (("absolute difference", "max_abs"), ("relative difference", "max_rel"), ("difference in ulps", "max_ulp")):
            value = getattr(self, name)
            if value is not None:
                lines.append(f"greatest {what}: {value}" + (f" at {self._at(getattr(self, name + '_index'))}" if value != 0 else ""))
        lines.append(f"other bits: {self.different_bits} of {self.size}")
        if self.rmse is not None:
            lines.append(f"root of the mean square: {self.rmse}")
        return "\n".join(lines)


def compare(array: Any, options: Options, rtol: float, atol: float, equal_nan: bool) -> Plan:
    name = op_text("compare", (), rtol=repr(float(rtol)), atol=repr(float(atol)), equal_nan="true" if equal_nan else None)
    results = yield array, (name,), options
    figures = results[name]
    if not isinstance(figures, np.ndarray):  # kept on the server
        return figures
    x, _ = _operand("array", array, True)
    other, _ = _operand("y", options["y"], True)
    x, _ = _broadcast(x, [], _shape(other))
    whole = figures.ndim == 1 and not any(options.get(each) is not None for each in (*_BY_ROWS, "axis"))
    of: dict[str, Any] = {}
    for number, each in enumerate(_core.figures):
        values = figures[..., number]
        if each in _COUNTS:
            values = values.astype(np.int64)
        elif each in _INDEXES:
            values = np.where(np.isnan(values), -1, values).astype(np.int64)
        of[each] = values
    for each, operand in (("first_x", x), ("first_y", other)):
        of[each] = _elements_at(operand, _shape(x), of["first"], of[each], options)
    if whole:
        of = {each: values.item() if each in _COUNTS else _or_none(each, values) for each, values in of.items()}
    return Comparison(**of, shape=_shape(x), size=math.prod(_shape(x)), whole=whole)


def _or_none(name: str, value: Any) -> Any:
    """A value without dimensions; None: there is none."""
    if name in _INDEXES:
        return None if value < 0 else value.item()
    if name in ("first_x", "first_y"):
        return None if value is np.ma.masked else value[()]
    if np.isnan(value):
        return None
    return int(value) if name == "max_ulp" and np.isfinite(value) else value.item()


def _elements_at(operand: Any, shape: tuple[int, ...], first: Any, values: npt.NDArray[np.float64], options: Options) -> Any:
    """The elements that differ first, in their own dtype. `values`: rounded to float64."""
    name = dtype_of(operand)
    try:
        dtype = numpy_dtype(name)
    except TypeError:  # without ml_dtypes: those of bf16 and of 8 bits are float32s
        dtype = np.dtype(np.float32)
    none = first < 0
    if dtype.kind not in "iub":
        found = values.astype(dtype)
        return found if found.ndim > 0 else np.ma.masked if none else found
    if none.all():
        found = np.zeros(values.shape, dtype)
    elif dtype.itemsize < 8 or np.nanmax(np.abs(values)) < 2.0**53:
        found = np.where(none, 0, values).astype(dtype)
    else:
        every = np.broadcast_to(_on_host(operand), shape)
        kept = [each for each in range(len(shape)) if each not in _reduced(shape, options)]
        rows = every.transpose([*_reduced(shape, options), *kept]).reshape(-1, *(shape[each] for each in kept))
        at = np.maximum(first, 0).reshape(-1, *(shape[each] for each in kept))
        found = np.take_along_axis(rows, at, 0).reshape(values.shape)
    return np.ma.MaskedArray(found, none) if found.ndim > 0 else np.ma.masked if none else found


def _reduced(shape: tuple[int, ...], options: Options) -> list[int]:
    axis = options.get("axis")
    if any(options.get(name) is not None for name in _BY_ROWS):
        return [0]
    axes = range(len(shape)) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    return sorted(each % len(shape) for each in axes)


def _on_host(operand: Any) -> npt.NDArray[Any]:
    if isinstance(operand, Elements):
        return _ndarray(operand)
    if isinstance(operand, CudaElements):
        raise TypeError("array: got 64-bit integers beyond 2**53 that differ in memory of a GPU; allowed: host memory (copy it there, for "
                        "instance by .cpu() or .get())")
    elements: npt.NDArray[Any] = operand.get()
    return elements

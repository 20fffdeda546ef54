"""Copies of arrays, in pieces between which Python handles signals, and into dtypes that hold every element.

NumPy copies an array in one call, during which nothing handles Ctrl-C. A piece takes some milliseconds. Between pieces the call of a
cancelled task ends, too.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reduced import _core
from reduced._errors import CancelledError

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Index = tuple[int | slice, ...]

# Elements of a piece, and of one that several threads copy.
PIECE = 1 << 18
_LARGE = 1 << 22


class Part(NamedTuple):
    """Elements of a larger array, such as a column. `there`: which of them are not missing; None: all. `name`: for errors."""

    values: Array
    there: Mask | None
    name: str = ""


_thread = threading.local()


@contextlib.contextmanager
def interruptible(ended: threading.Event) -> Iterator[None]:
    """Copies of this thread end with a CancelledError when the event is set."""
    _thread.ended = ended
    try:
        yield
    finally:
        _thread.ended = None


def _check() -> None:
    ended = getattr(_thread, "ended", None)
    if ended is not None and ended.is_set():
        raise CancelledError("the call was interrupted while its array was copied")


def pieces(shape: Sequence[int], most: int = PIECE) -> Iterator[Index]:
    """Indexes that cut an array of that shape into pieces of at most so many elements, in C order."""
    rest = math.prod(shape[1:])
    if not shape or shape[0] * rest <= most:
        yield ()
    elif rest > most:
        for i in range(shape[0]):
            for index in pieces(shape[1:], most):
                _check()
                yield (i, *index)
    else:
        for i in range(0, shape[0], most // rest):
            _check()
            yield (slice(i, i + most // rest),)


def fill(to: Array, given: Array) -> None:
    """Copies an array to one of the same shape, converting the elements as `astype` does."""
    if not _is_gathered(to, given):
        for index in pieces(given.shape):
            to[index] = given[index]
        return
    for index in pieces(given.shape, _LARGE):
        piece = given[index]
        _core.gather(piece.__array_interface__["data"][0], piece.itemsize, piece.shape, piece.strides, not given.dtype.isnative,
                     to[index].reshape(-1).view(np.uint8))


def _is_gathered(to: Array, given: Array) -> bool:
    """Whether a copy has the bits of the elements, or these in the other byte order, and is worth several threads."""
    return (given.size > PIECE and given.dtype.kind in "biuf" and given.itemsize <= 8 and given.dtype.newbyteorder("=") == to.dtype
            and to.dtype.isnative and to.flags.c_contiguous and to.shape == given.shape)


def contiguous(array: Array, dtype: np.dtype[Any]) -> Array:
    """A copy in C order, of a dtype; the array itself if it is that."""
    if array.size <= PIECE:
        return np.asarray(array, dtype, "C")
    if array.flags.c_contiguous and dtype == array.dtype:
        return array
    copy = np.empty(array.shape, dtype)
    fill(copy, array)
    return copy


def copied(array: Array) -> Array:
    """A copy in C order."""
    copy = np.empty(array.shape, array.dtype)
    fill(copy, array)
    return copy


def both(one: Mask, other: Mask) -> Mask:
    """Where both masks, of one shape, are True."""
    result: Mask = np.empty(one.shape, np.bool_)
    for index in pieces(one.shape):
        result[index] = one[index] & other[index]
    return result


def unless_all(there: Mask) -> Mask | None:
    """The mask; None if all of it is True."""
    return None if all(there[index].all() for index in pieces(there.shape)) else there


def assemble(shape: tuple[int, ...], parts: Sequence[Part], places: Iterable[Any], order: Any = "C") -> Part:
    """One array, whose elements at each of `places` are those of a part.

    Its dtype holds every element of every part. TypeError: there is none; the error names the part and the element.
    """
    dtype = _common(parts)
    values = np.empty(shape, dtype, order)
    there = None if all(part.there is None for part in parts) else np.ones(shape, np.bool_, order)
    for part, place in zip(parts, places, strict=True):
        fill_exactly(values[place], part)
        if there is not None and part.there is not None:
            fill(there[place], part.there)
    return Part(values, there)


def _is_wide(dtype: np.dtype[Any]) -> bool:
    """Of integers: float64 does not hold all of them."""
    return dtype.kind in "iu" and dtype.itemsize == 8


def _common(parts: Sequence[Part]) -> np.dtype[Any]:
    """The dtype for all elements; of int64 and uint64 one of them, where NumPy has float64."""
    dtypes = {part.values.dtype.newbyteorder("=") for part in parts}
    if any(dtype.kind not in "biu" for dtype in dtypes) or np.dtype(np.uint64) not in dtypes:
        return np.result_type(*dtypes)
    signed = (part for part in parts if part.values.dtype.kind == "i")
    negative = any(_where_there(part, index, part.values[index] < 0).any() for part in signed for index in pieces(part.values.shape))
    return np.dtype(np.int64 if negative else np.uint64)


def _where_there(part: Part, index: Index, mask: Mask) -> Mask:
    return mask if part.there is None else mask & part.there[index]


def fill_exactly(to: Array, part: Part) -> None:
    """Copies elements that are not missing as equal ones of another dtype. TypeError: there is none; it names the element."""
    dtype = part.values.dtype
    if dtype.kind not in "iu" or dtype.newbyteorder("=") == to.dtype or not _is_wide(dtype) and not _is_wide(to.dtype):
        return fill(to, part.values)
    for index in pieces(part.values.shape):
        piece = part.values[index]
        wrong = _where_there(part, index, _not_held(piece, to.dtype))
        if wrong.any():
            raise TypeError(f"array: got {piece[wrong].flat[0]}{part.name and f' in {part.name}'} beside other dtypes; allowed: integers "
                            f"that {to.dtype} holds, or one dtype")
        with np.errstate(invalid="ignore"):  # of what is missing
            to[index] = piece


def _not_held(piece: Array, dtype: np.dtype[Any]) -> Mask:
    """Which integers have no equal in a dtype, which is one of 64 bits."""
    wrong: Mask
    if dtype.kind == "f":
        wrong = np.asarray((piece > 2**53) | (piece < -(2**53)))
        if wrong.any():
            wrong[wrong] = [int(float(each)) != each for each in piece[wrong].tolist()]
    elif dtype.kind == "u":
        wrong = np.asarray(piece < 0)
    else:
        wrong = np.asarray(piece > 2**63 - 1)
    return wrong

"""Dense arrays whose dimensions lie in another order than C's: reduced as they lie, and the results put in order."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reduced._arrays import mask_of
from reduced._result import Result

# Options with which results are not put in order here, or are about rows.
_OTHERS = ("segments", "lengths", "keys", "y", "weights", "keep")


class Lying(NamedTuple):
    """An array in C order that has the elements of another, dimensions in another order or reversed. `order`: of each dimension of the
    results, which one of them it is; `reverse`: the dimensions of the results that are reversed then."""

    array: npt.NDArray[Any]
    axis: tuple[int, ...]
    where: npt.NDArray[np.bool_] | None
    order: tuple[int, ...]
    reverse: tuple[int, ...]

    @property
    def in_order(self) -> bool:
        """Whether the results are those of the other array as they are."""
        return not self.reverse and self.order == tuple(range(len(self.order)))

    def restored(self, result: Result) -> Result:
        """The results of the other array."""
        if self.in_order:
            return result
        for op, (dtype, values) in result._results.items():
            ordered = values.transpose([*self.order, *range(len(self.order), values.ndim)])
            result._results[op] = dtype, np.flip(ordered, self.reverse)
        return result


def lying(array: Any, names: Sequence[str], partition: Mapping[str, Any], positions: frozenset[str]) -> Lying | None:
    """An array as it lies in memory. `positions`: the ops whose answers are places. None: it is in C order, no dense array, or what is asked
    depends on C order."""
    if not isinstance(array, np.ndarray) or array.ndim < 2 or array.flags.c_contiguous or array.size == 0:
        return None
    if any(partition.get(name) is not None and partition.get(name) is not False for name in _OTHERS):
        return None
    if any(name.startswith(("cov_matrix", "corr_matrix")) for name in names):  # whose columns are those of the last dimension
        return None
    axis = partition.get("axis")
    axes = range(array.ndim) if axis is None else [operator.index(each) for each in (axis if isinstance(axis, tuple | list) else (axis,))]
    reduced = {each % array.ndim for each in axes}
    if not reduced or len(reduced) != len(axes) or any(not -array.ndim <= each < array.ndim for each in axes):
        return None  # an error, which names it, or nothing to reduce
    flipped = {dim for dim, stride in enumerate(array.strides) if stride < 0}
    if not positions.isdisjoint(name.partition("(")[0].strip() for name in names) and (len(reduced) != 1 or reduced & flipped):
        return None
    forwards = tuple(slice(None, None, -1 if dim in flipped else 1) for dim in range(array.ndim))
    order = sorted(range(array.ndim), key=lambda dim: -abs(array.strides[dim]))
    by_stride = array[forwards].transpose(order)
    if not by_stride.flags.c_contiguous:
        return None
    where = partition.get("where")
    if where is not None:
        if hasattr(where, "_on_server") or not isinstance(where, np.ndarray):
            return None
        where = mask_of(where, array.shape)[forwards].transpose(order)
    left = [dim for dim in order if partition.get("keepdims") or dim not in reduced]
    return Lying(by_stride, tuple(order.index(dim) for dim in sorted(reduced)), where, tuple(int(each) for each in np.argsort(left)),
                 tuple(place for place, dim in enumerate(sorted(left)) if dim in flipped and dim not in reduced))

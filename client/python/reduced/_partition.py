"""What is asked of an array beside ops: which outputs there are, and the arrays beside it; and arrays that a server stores."""

from __future__ import annotations

import math
import operator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from reduced import _core
from reduced._arrays import Elements, located, mask_of, numpy_dtype, on_gpu
from reduced._copies import contiguous
from reduced._cuda import CudaElements
from reduced._options import check

if TYPE_CHECKING:
    from reduced._client import _Reducer

GROUPED = ("segments", "lengths", "keys")
OTHERS = ("y", "weights")
# Options, and what they go with.
BESIDE = {"groups": "keys", "outside": "keys", "empty": "axis, where, segments, lengths or keys",
           "keep": "axis, where, segments, lengths or keys", "ttl": "keep", "owner": "keep"}


class ResidentArray:
    """An array that a server stores, to be reduced any number of times; `Client.put` and the option `keep` make it.

    Leaving its `with` block, `close` or the end of its life deletes it.
    """

    def __init__(self, dtype: str, shape: tuple[int, ...], client: _Reducer, held: _core.Resident | Elements) -> None:
        self.dtype: np.dtype[Any] = numpy_dtype(dtype)
        self.shape = shape
        self.nbytes = math.prod(shape) * self.dtype.itemsize
        self._client = client
        self._on_server: _core.Resident | None = None if isinstance(held, Elements) else held
        self._here: Elements | None = held if isinstance(held, Elements) else None
        self.id = self._on_server.id if self._on_server is not None else ""
        self.device = self._on_server.device if self._on_server is not None else "cpu"
        # Of each GPU that the array is cut over: its name, the first index of the first dimension that it has, how many of these, and how
        # many elements; empty: the array is not cut.
        self.shards: tuple[tuple[str, int, int, int], ...] = self._on_server.shards if self._on_server is not None else ()

    def get(self, *, timeout: float | None = None) -> npt.NDArray[Any]:
        """A copy of its elements, also of an array in the memory of a GPU.

        `timeout`: in seconds, by default the client's and a second more for each 64 MiB.

        >>> import numpy as np, reduced
        >>> with reduced.connect("local:").put(np.arange(3)) as a:
        ...     print(a.get())
        [0 1 2]
        """
        check(float | None, timeout=timeout)
        return self._client._get(self, timeout)

    def _held(self, name: str = "array") -> _core.Resident | Elements:
        """Where its elements are. `name`: in the error of an array that is closed."""
        held = self._here if self._on_server is None else self._on_server
        if held is None:
            raise ValueError(f"{name}: got {'one' if name == 'array' else 'an array'} that is closed; allowed: an open one")
        return held

    def close(self) -> None:
        """Deletes the array. May be called any number of times."""
        if self._on_server is not None:
            self._on_server.close()
        self._on_server = self._here = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ResidentArray({self.dtype} {self.shape}, {self.device})"


def arguments(held: _core.Resident | Elements | CudaElements) -> tuple[Any, str, tuple[int, ...]]:
    """By which the library takes an array: what has its elements, dtype and shape."""
    return (held, "", ()) if isinstance(held, _core.Resident) else held[:3]


def side_of(name: str, array: Any, held: list[Any] | None) -> tuple[Any, str, tuple[int, ...]]:
    """The arguments of an array beside the one that is reduced. `held`: gets what keeps the memory of one of a GPU; None: there may
    be none.
    """
    if isinstance(array, ResidentArray):
        return arguments(array._held(name))
    try:
        given = located(array, ordered=True, gpu=held is not None)
    except TypeError as error:
        said = str(error).removeprefix("array: ")
        if name == "keys" and "with missing values" not in said and " device" not in said:
            said = f"{said.partition(';')[0]}; allowed: integers, such as numpy.unique(keys, return_inverse=True)[1] of others"
        raise TypeError(f"{name}: {said}") from None
    if isinstance(given, CudaElements):
        assert held is not None
        held.append(given)
    return arguments(given)


def partition_of(shape: tuple[int, ...], given: dict[str, Any], held: list[Any] | None) -> _core.Partition:
    """What `axis` and the other options ask of an array of that shape. `held`: as of side_of; None, too, in this
    process, where nothing is kept on a server.
    """
    grouped = [name for name in GROUPED if given.get(name) is not None]
    axis, groups, outside = given.get("axis"), given.get("groups"), given.get("outside")
    if len(grouped) + (axis is not None) > 1:
        raise ValueError(f"{grouped[-1]}: got it beside {grouped[0] if axis is None else 'axis'}; allowed: one of axis, "
                         "segments, lengths, keys")
    if axis is not None:
        axes = [operator.index(each) for each in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    else:
        axes = [] if grouped else list(range(len(shape)))
    if grouped and given.get("keepdims"):
        raise ValueError(f"keepdims: got True with {grouped[0]}; allowed: with axis, or alone")
    if "keys" not in grouped and (groups is not None or outside is not None):
        raise ValueError("groups, outside: got them without keys; allowed: with keys")
    if outside not in (None, "error", "drop"):
        raise ValueError(f"outside: got {outside!r}; allowed: 'error', 'drop'")
    if groups is not None and operator.index(groups) < 1:
        raise ValueError(f"groups: got {groups}; allowed: 1 or more, or None")
    if groups is None and outside is not None:
        raise ValueError("outside: got it without groups; allowed: with groups")
    partition = _core.Partition(axes, bool(given.get("keepdims", False)), given.get("empty", "error"))
    if "keys" in grouped:
        partition.keys(*side_of("keys", given["keys"], held), groups or 0, outside == "drop")
    elif grouped:
        partition.segments(*side_of(grouped[0], given[grouped[0]], held), grouped[0] == "lengths")
    where = given.get("where")
    if where is not None and axis is not None and not axes:
        raise ValueError("axis: got () with where; allowed: one dimension or more, or None")
    if isinstance(where, (ResidentArray, Elements, CudaElements)) or on_gpu(where):
        partition.where(*side_of("where", where, held))
    elif where is not None:
        partition.where(contiguous(mask_of(where, shape), np.dtype(np.bool_)), "bool", shape)
    for role in OTHERS:
        if given.get(role) is not None:
            partition.other(*side_of(role, given[role], held), role == "weights")
    if given.get("keep"):
        if held is not None:
            partition.keep(given.get("owner") or "", given.get("ttl", 0))
    elif "ttl" in given or given.get("owner") is not None:
        raise ValueError("ttl, owner: got them without keep; allowed: with keep")
    return partition

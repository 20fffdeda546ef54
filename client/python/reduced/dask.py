"""Reductions of dask arrays and columns: each chunk becomes a state where it is, and the states merge in a tree.

The exact results have the same bits as those of the whole array, whatever the chunks, workers and schedulers. A worker reduces
its chunks by `"local:"`, in its own process, or by a server near it: `server=`, or the setting `reduced.server` of dask.

>>> import dask.array as da, reduced.dask
>>> x = da.arange(1000, chunks=300)
>>> r = reduced.dask.reduce(x, ["sum", "mean", "argmax"])
>>> print(r.compute())
sum     499500
mean    499.5
argmax  999
>>> print(r["mean"].compute())
499.5

A column of a dask DataFrame likewise: `reduced.dask.reduce(frame["price"], "mean,argmax")`, where positions count from the first row.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import dask
import numpy as np
from dask.delayed import delayed
from typing import Unpack

from reduced import _client
from reduced._ops import Options, check_options
from reduced._result import Results
from reduced._state import State

# How many states one task merges.
_FAN_IN = 16


def reduce(array: Any, ops: str | Sequence[str], *, server: str | None = None, **options: Unpack[Options]) -> Any:
    """A dask value of the `Results` of the whole array: `.compute()`, or an op of it, such as `["sum"]`.

    `array`: a dask array, also of unknown chunk sizes, what has one as `.data` (xarray), or a column of a dask DataFrame, of the
    dtypes that `Client.reduce` takes of pandas. `options`: those of `Client.reduce`. ValueError: argmin or argmax of an array
    that is cut along another axis than the first.
    """
    chunks = _chunks(array)
    names = _client.names_of(ops)
    check_options(options)
    if not _client._POSITIONS.isdisjoint(names) and chunks.cut_across:
        raise ValueError(f"chunks: got {chunks.numblocks} blocks for argmin or argmax; allowed: blocks along the first axis only")
    place = server if server is not None else dask.config.get("reduced.server", _client.LOCAL)
    of_chunk = delayed(_state, pure=True)
    parts = [of_chunk(block, names, options, place) for block in chunks.blocks]
    while len(parts) > 1:
        parts = [delayed(_merge, pure=True)(parts[i : i + _FAN_IN]) for i in range(0, len(parts), _FAN_IN)]
    return delayed(_results, pure=True)(parts[0] if parts else None, chunks.empty, names, options)


def describe(array: Any, *, server: str | None = None, **options: Unpack[Options]) -> Any:
    """A dask value of what `Client.describe` answers, without argmin and argmax where `reduce` refuses them."""
    cut_across = _chunks(array).cut_across
    names = [op for op in _client._DESCRIBE if not (cut_across and op in _client._POSITIONS)]
    asked: Options = {"nan": "omit", "ddof": 1, **options}
    return reduce(array, names, server=server, **asked)


class _Chunks(NamedTuple):
    """The chunks of an array or the partitions of a column."""

    blocks: list[Any]  # delayed, in C order of the chunks
    numblocks: tuple[int, ...]
    empty: Any  # of the same dtype, without elements

    @property
    def cut_across(self) -> bool:
        """Along another axis than the first: then chunks are not consecutive elements."""
        return any(blocks != 1 for blocks in self.numblocks[1:])


def _chunks(array: Any) -> _Chunks:
    chunks: Any = array if hasattr(array, "numblocks") else getattr(array, "data", None)
    if hasattr(chunks, "numblocks"):
        return _Chunks(list(chunks.to_delayed().ravel()), chunks.numblocks, np.empty(0, chunks.dtype))
    if hasattr(array, "npartitions") and hasattr(array, "to_delayed") and getattr(array, "ndim", 0) == 1:
        return _Chunks(list(array.to_delayed()), (array.npartitions,), array._meta)
    raise TypeError(f"array: got {type(array).__name__}; allowed: a dask array, what has one as .data, or a column of a dask DataFrame")


@functools.lru_cache(maxsize=8)
def _connected(server: str, _process: int) -> _client.Client:
    return _client.connect(server)


def _state(block: Any, ops: list[str], options: Options, server: str) -> State | None:
    """None: the chunk is empty, which adds nothing."""
    if np.size(block) == 0:
        return None
    return _connected(server, os.getpid())._state(block, ops, options)


def _merge(parts: list[State | None]) -> State | None:
    states = [part for part in parts if part is not None]
    return State.merge(states) if states else None


def _results(state: State | None, empty: Any, ops: list[str], options: Options) -> Results:
    if state is not None:
        return state.results
    return _client.connect(_client.LOCAL).reduce(empty, ops, **options)

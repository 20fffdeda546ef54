"""Reductions of dask arrays: each chunk becomes a state where it is, and the states merge in a tree.

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
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

import dask
import numpy as np
from dask.delayed import delayed
from typing import Unpack

from reduced import _client
from reduced._ops import Options
from reduced._result import Results
from reduced._state import State

# How many states one task merges.
_FAN_IN = 16


def reduce(array: Any, ops: str | Sequence[str], *, server: str | None = None, **options: Unpack[Options]) -> Any:
    """A dask value of the `Results` of the whole array: `.compute()`, or an op of it, such as `["sum"]`.

    `array`: a dask array, also of unknown chunk sizes, or what has one as `.data` (xarray). `options`: those of
    `Client.reduce`. ValueError: argmin or argmax of an array that is cut along another axis than the first. At a server, a
    chunk that has no answer by itself is an error: one of NaNs only, for `min` with `nan="omit"`, or whose integer sum
    overflows. In `"local:"` it is none.
    """
    chunks = _chunks(array)
    names = ops.split(",") if isinstance(ops, str) else list(ops)
    ordered = not _client._POSITIONS.isdisjoint(names)
    if ordered and any(blocks != 1 for blocks in chunks.numblocks[1:]):
        raise ValueError(f"chunks: got {chunks.numblocks} blocks for argmin or argmax; allowed: blocks along the first axis only")
    place = server if server is not None else dask.config.get("reduced.server", _client.LOCAL)
    of_chunk = delayed(_state, pure=True)
    parts = [of_chunk(block, names, options, place) for block in chunks.to_delayed().ravel()]
    while len(parts) > 1:
        parts = [delayed(_merge, pure=True)(parts[i : i + _FAN_IN]) for i in range(0, len(parts), _FAN_IN)]
    return delayed(_results, pure=True)(parts[0] if parts else None, str(chunks.dtype), names, options)


def describe(array: Any, *, server: str | None = None, **options: Unpack[Options]) -> Any:
    """A dask value of what `Client.describe` answers, without argmin and argmax where `reduce` refuses them."""
    cut = any(blocks != 1 for blocks in _chunks(array).numblocks[1:])
    names = [op for op in _client._DESCRIBE if not (cut and op in _client._POSITIONS)]
    asked: Options = {"nan": "omit", "ddof": 1, **options}
    return reduce(array, names, server=server, **asked)


def _chunks(array: Any) -> Any:
    chunks = array if hasattr(array, "numblocks") else getattr(array, "data", None)
    if not hasattr(chunks, "numblocks"):
        raise TypeError(f"array: got {type(array).__name__}; allowed: a dask array, or what has one as .data")
    return chunks


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


def _results(state: State | None, dtype: str, ops: list[str], options: Options) -> Results:
    if state is not None:
        return state.results
    return _client.connect(_client.LOCAL).reduce(np.empty(0, dtype), ops, **options)

"""Reductions of dask arrays and columns: each chunk becomes a state where it is, and the states merge in a tree.

The exact results have the same bits as those of the whole array, whatever the chunks, workers and schedulers. A worker reduces
its chunks by `"local:"`, in its own process, or by a server near it: `server=`, or the setting `reduced.server` of dask.

>>> import dask.array as da, numpy as np, reduced.dask
>>> x = da.arange(1000, chunks=300)
>>> r = reduced.dask.reduce(x, ["sum", "mean", "argmax"])
>>> print(r.compute())
sum     499500
mean    499.5
argmax  999
>>> print(r["mean"].compute())
499.5

Along axes, by keys and under a mask the results are those of the whole array, too, however it is cut:

>>> y = da.arange(16, chunks=3).reshape(4, 4).rechunk((2, 3))
>>> print(reduced.dask.reduce(y, ["sum", "argmax"], axis=1, where=y % 5 != 0).compute())
sum
[ 6 17 28 39]
argmax
[3 3 3 2]

Medians and quantiles are exact: `reduced.dask.reduce(x, "median,quantile(0.9)")`. Chunks are read again in rounds, of 32 bits in two and of
64 bits in three, each of which asks for more bits of the elements that may be the answer; `persist()` what is slow to compute. The
partitions of a column of a DataFrame, and chunks of slices and the like, are not read again: workers hold them until the last round.

A column of a dask DataFrame likewise: `reduced.dask.reduce(frame["price"], "mean,argmax")`, where positions count from the first row,
and `keys=frame["shop"]` groups. Keys are of any kind: strings, times with `bucket="month"`, categories, several columns.

>>> days = da.from_array(np.arange("2024-01-30", "2024-02-03", dtype="M8[D]"), chunks=3)
>>> r = reduced.dask.reduce(da.ones(4, chunks=2), "sum", keys=days, bucket="month").compute()
>>> print(r.group_keys, r.sum)
['2024-01-01' '2024-02-01'] [2. 2.]
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import dask
import dask.array
import numpy as np
from dask.delayed import delayed
from dask.graph_manipulation import bind
from dask.highlevelgraph import MaterializedLayer
from typing import Unpack

from reduced import _block_keys, _blocks, _client
from reduced._arrays import mask_of
from reduced._keys import columns_of
from reduced._options import Options, named
from reduced._pairs import in_memory, placed
from reduced._partition import ResidentArray, side_of
from reduced._result import ArrayResults, Results


@named
def reduce(array: Any, ops: str | Sequence[str], *, server: str | None = None, **options: Unpack[Options]) -> Any:
    """A dask value of the `Results` of the whole array: `.compute()`, or an op of it, such as `["sum"]`.

    `array`: a dask array, also of unknown chunk sizes and with masked chunks, what has one as `.data` (xarray), or a column of a dask
    DataFrame, of the dtypes that `Client.reduce` takes of pandas. `options`: those of `Client.reduce` but for `segments`, `lengths`,
    `keep` and `state`. `keys`, `where`, `y` and `weights` are arrays in memory, or of dask, which are cut as the array is; several columns of
    keys are a list of these, or a dask DataFrame. ValueError: chunks of
    unknown sizes where results depend on them: beside `keys` and the like in memory, and for argmin, argmax, argtopk or argbottomk of an
    array that is cut along several of the dimensions that are reduced.
    """
    cut = _cut(array)
    given_keys, of_keys = options.get("keys"), options
    options, coded = _block_keys.plain(options)
    others = {role: _other(role, options[role], cut, options) for role in ("y", "weights") if options.get(role) is not None}
    asked = _blocks.question(_client.names_of(ops), options, len(cut.chunks), missing=cut.missing or any(each.missing for each in others.values()),
                             others={role: each.empty for role, each in others.items()})
    _blocks.check(asked, cut.dtype, options)
    if not _blocks.knows_places(asked, cut.chunks):
        raise ValueError("chunks: got unknown sizes for argmin or argmax, or for argtopk or argbottomk, along several dimensions that "
                         "are cut; allowed: known ones (see compute_chunk_sizes)")
    asked = _blocks.placing(asked, cut.chunks)
    sides = {"where": _where(options.get("where"), cut)}
    if coded:
        asked = asked._replace(coded=True)
        sides["keys"], groups = _codes(given_keys, of_keys, cut)
    else:
        sides["keys"] = _keys(given_keys, cut)
    sides |= {role: each.blocks for role, each in others.items()}
    near = server if server is not None else dask.config.get("reduced.server", _client.LOCAL)
    every = _blocks.outputs(asked, cut.chunks)
    alone = not asked.scalar and all(len(blocks) == 1 for blocks in every)
    starts = _blocks.starts_of(cut.chunks)
    # Dask takes the more time for a task the more arguments it has.
    of_chunk = delayed(functools.partial(_blocks.part, asked=asked, server=near, alone=alone), pure=True)
    merge = delayed(_blocks.merge, pure=True)
    results = delayed(functools.partial(_blocks.results, asked=asked, nothing=cut.empty), pure=True)
    parts = []
    for number, (block, start) in enumerate(zip(cut.blocks, starts)):
        given = {name: side[number] for name, side in sides.items() if side[number] is not None}
        parts.append(of_chunk(block, starts=start, **given) if alone or asked.whole else of_chunk(block, **given))
    wholes = [_blocks.tree([parts[number] for number in blocks], asked, cut.chunks, merge) for blocks in every]
    rounds = 0 if alone else asked.rounds(cut.dtype)
    again = delayed(functools.partial(_blocks.part_again, asked=asked, server=near), pure=True)
    next_round = delayed(_blocks.next_round, pure=True)
    if rounds > 0:
        wholes = [next_round(whole) for whole in wholes]
    for _ in range(rounds):
        # Chunks are computed again, after the round before: nobody has to store them until then.
        again_array, again_keys, again_where = (_after(each, wholes) for each in (array, given_keys, options.get("where")))
        cut = _cut(again_array)
        sides = {"keys": sides["keys"] if coded else _keys(again_keys, cut), "where": _where(again_where, cut)}
        sides |= {role: each.blocks for role, each in others.items() if each.missing}
        for output, (blocks, before) in enumerate(zip(every, wholes)):
            parts = []
            for number in blocks:
                given = {name: side[number] for name, side in sides.items() if side[number] is not None}
                parts.append(again(cut.blocks[number], before, **given))
            wholes[output] = next_round(_blocks.tree(parts, asked._replace(names=[]), cut.chunks, merge), before)
    answers = [results(whole, starts=starts[blocks[0]]) for whole, blocks in zip(wholes, every)]
    counts = [len(cut.chunks[dimension]) for dimension in asked.kept]
    joined = answers[0] if len(answers) == 1 else delayed(_blocks.join, pure=True)(answers, asked, counts, cut.empty)
    return delayed(_block_keys.labelled, pure=True)(joined, groups) if coded else joined


@named
def describe(array: Any, *, server: str | None = None, **options: Unpack[Options]) -> Any:
    """A dask value of what `Client.describe` answers, exactly, but without argmin and argmax where `reduce` refuses them. The
    quartiles take rounds, as those of `reduce`."""
    asked: Options = {"nan": "omit", "ddof": 1, **options}
    cut = _cut(array)
    names = [*_client._DESCRIBE, _client._QUARTILES]
    if not _blocks.knows_places(_blocks.question(names, asked, len(cut.chunks), missing=cut.missing), cut.chunks):
        names = [op for op in names if op not in _client._POSITIONS]
    fills = any(options.get(name) is not None for name in ("axis", "keys", "where"))
    filled: Options = {"empty": "fill", "overflow": "wrap", **asked}
    results = reduce(array, names, server=server, **(filled if fills else asked))
    return delayed(_summary, pure=True)(results, fills and "empty" not in options, fills and "overflow" not in options)


def _summary(results: Results, masks_extrema: bool, masks_sum: bool) -> Results:
    """Results of which those without an answer are None, or masked."""
    results._describes(_client._QUARTILES, _client._DESCRIBED)
    return results._masked(masks_extrema, masks_sum) if isinstance(results, ArrayResults) else results


class _Cut(NamedTuple):
    """The chunks of an array or the partitions of a column."""

    blocks: list[Any]  # delayed, in C order of the chunks
    chunks: _blocks.Chunks
    empty: Any  # of the same dtype, without elements
    missing: bool  # whether elements may be missing

    @property
    def dtype(self) -> Any:
        """NumPy's."""
        return getattr(self.empty.dtype, "numpy_dtype", self.empty.dtype)

    @property
    def known(self) -> bool:
        return not any(math.isnan(size) for sizes in self.chunks for size in sizes)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(sum(sizes)) for sizes in self.chunks)


def _lazy(array: Any) -> Any | None:
    """The dask array or column that an array is or has. None: it has none."""
    if isinstance(array, np.ndarray):  # whose `data` is an error, if it has times
        return None
    chunks = array if hasattr(array, "numblocks") else getattr(array, "data", None)
    if hasattr(chunks, "numblocks"):
        return chunks
    return array if hasattr(array, "npartitions") and hasattr(array, "to_delayed") and getattr(array, "ndim", 0) == 1 else None


def _after(array: Any, wholes: list[Any]) -> Any:
    """An array of dask whose chunks are computed after `wholes`; an array that is not dask's is returned as it is.

    When `bind` of dask 2024.12 and later copies tasks of slices, changed chunks and the like, they still depend on the tasks that it
    has renamed. Such chunks stay, too.
    """
    lazy = _lazy(array)
    if lazy is None or not hasattr(lazy, "numblocks"):
        return array
    tasks = (task for layer in lazy.__dask_graph__().layers.values() if isinstance(layer, MaterializedLayer) for task in layer.values())
    return array if any(getattr(task, "dependencies", None) for task in tasks) else bind(lazy, wholes)


def _cut(array: Any) -> _Cut:
    lazy = _lazy(array)
    if lazy is None:
        raise TypeError(f"array: got {type(array).__name__}; allowed: a dask array, what has one as .data, or a column of a dask DataFrame")
    if hasattr(lazy, "numblocks"):
        masked = isinstance(lazy._meta, np.ma.MaskedArray)
        return _Cut(list(lazy.to_delayed().ravel()), lazy.chunks, np.empty(0, lazy.dtype), masked)
    return _Cut(list(lazy.to_delayed()), ((math.nan,) * lazy.npartitions,), lazy._meta, hasattr(lazy._meta.dtype, "numpy_dtype"))


def _keys(keys: Any, cut: _Cut) -> list[Any]:
    """The keys of each block."""
    if keys is None:
        return [None] * len(cut.blocks)
    lazy = _lazy(keys)
    if lazy is not None:
        along = _chunked_alike("keys", lazy, cut.chunks[:1])
    else:
        in_memory, _, shape = side_of("keys", keys, None)
        if isinstance(keys, ResidentArray) or len(shape) != 1:
            raise ValueError(f"keys: got {type(keys).__name__} of shape {shape}; allowed: an array of 1 dimension in memory, or of dask")
        along = _slices("keys", np.asarray(in_memory), cut.chunks[:1])
    return [along[number * len(along) // len(cut.blocks)] for number in range(len(cut.blocks))]


def _codes(keys: Any, options: Options, cut: _Cut) -> tuple[list[Any], Any]:
    """The keys of each block as codes, and the groups that they are codes of: in memory, or of dask."""
    frame = getattr(keys, "ndim", 0) == 2 and hasattr(keys, "npartitions")
    several = [keys[name] for name in keys.columns] if frame else columns_of(keys)
    columns = [keys] if several is None else several
    present = None if options.get("where") is None or options.get("sort", True) else _rows(options["where"], cut)
    if not any(_lazy(column) is not None for column in columns):
        in_memory = present is None or all(isinstance(each, np.ndarray) for each in present)
        groups = _block_keys.encode(keys, options, np.concatenate(present) if present and in_memory else None)
        along, found = _slices("keys", groups.codes, cut.chunks[:1]), _block_keys.table([groups], options)
        along = [_block_keys.codes(groups._replace(codes=each), found, 0) for each in along]
        return [along[number * len(along) // len(cut.blocks)] for number in range(len(cut.blocks))], found.groups
    of_columns = [_slices("keys", column, cut.chunks[:1]) if _lazy(column) is None else _chunked_alike("keys", _lazy(column), cut.chunks[:1])
                  for column in columns]
    empty = [column[:0] if _lazy(column) is None else _cut(column).empty for column in columns]
    _block_keys.encode(empty[0] if several is None else empty, options)  # raises what every block would
    of_blocks = [each[0] if several is None else list(each) for each in zip(*of_columns)]
    asked: Any = {name: value for name, value in options.items() if name in ("bucket", "missing", "sort")}
    encode = delayed(functools.partial(_block_keys.encode, options=asked))
    encoded = [encode(block) if present is None else encode(block, present=rows)
               for block, rows in zip(of_blocks, present or of_blocks)]
    table = delayed(_block_keys.table)([delayed(_block_keys.without_codes)(each) for each in encoded], asked)
    along = [delayed(_block_keys.codes)(each, table, number) for number, each in enumerate(encoded)]
    return [along[number * len(along) // len(cut.blocks)] for number in range(len(cut.blocks))], table.groups


def _rows(where: Any, cut: _Cut) -> list[Any]:
    """Which rows have an element that counts, in the blocks of dimension 0."""
    others = tuple(range(1, len(cut.chunks)))
    lazy = _lazy(where)
    if lazy is None:
        return _slices("where", np.asarray(mask_of(where, cut.shape)).any(axis=others), cut.chunks[:1])
    return _chunked_alike("where", _broadcast("where", lazy, cut).any(axis=others) if others else lazy, cut.chunks[:1])


def _where(where: Any, cut: _Cut) -> list[Any]:
    """The mask of each block."""
    if where is None:
        return [None] * len(cut.blocks)
    lazy = _lazy(where)
    if lazy is not None and hasattr(lazy, "numblocks"):
        lazy = lazy.map_blocks(_filled, meta=np.empty((0,) * lazy.ndim, lazy.dtype))  # broadcast_to drops what is masked
    if lazy is not None:
        lazy = _broadcast("where", lazy, cut)
        return _chunked_alike("where", lazy, cut.chunks)
    return _slices("where", mask_of(where, cut.shape) if cut.known else where, cut.chunks)


def _other(role: str, other: Any, cut: _Cut, options: Options) -> _Cut:
    """y or the weights, cut as the array is."""
    lazy = _lazy(other)
    if lazy is None:
        array = in_memory(role, other, cut.shape, options) if cut.known else np.asarray(other)
        return _Cut(_slices(role, array, cut.chunks), cut.chunks, np.empty(0, array.dtype), isinstance(array, np.ma.MaskedArray))
    if hasattr(lazy, "numblocks") and cut.known and not np.isnan(lazy.shape).any():
        lazy = placed(lazy, cut.shape, options) if role == "weights" else lazy
        if isinstance(lazy._meta, np.ma.MaskedArray) and lazy.shape != cut.shape:  # broadcast_to drops what is masked
            data, mask = (_broadcast(role, part(lazy), cut) for part in (dask.array.ma.getdata, dask.array.ma.getmaskarray))
            lazy = dask.array.ma.masked_array(data, mask)
        elif lazy.shape != cut.shape:
            lazy = _broadcast(role, lazy, cut)
    of_lazy = _cut(lazy)
    return of_lazy._replace(blocks=_chunked_alike(role, lazy, cut.chunks))


def _broadcast(name: str, lazy: Any, cut: _Cut) -> Any:
    """An array of dask with the shape of another, if both are known."""
    if not hasattr(lazy, "numblocks") or not cut.known or np.isnan(lazy.shape).any():
        return lazy
    one_block = {axis: -1 for axis, size in enumerate(lazy.shape) if size == 1}
    try:
        return dask.array.broadcast_to(lazy.rechunk(one_block), cut.shape)  # type: ignore[no-untyped-call]
    except ValueError:
        raise ValueError(f"{name}: got shape {lazy.shape}; allowed: a shape that broadcasts to {cut.shape}") from None


def _filled(mask: Any) -> Any:
    """A mask in which what is missing is not True."""
    return mask.filled(False) if isinstance(mask, np.ma.MaskedArray) else mask


def _chunked_alike(name: str, lazy: Any, chunks: _blocks.Chunks) -> list[Any]:
    """The blocks of a dask array beside another, cut as that is."""
    cut = _cut(lazy)
    if len(cut.chunks) != len(chunks):
        raise ValueError(f"{name}: got {len(cut.chunks)} dimensions; allowed: {len(chunks)}")
    if hasattr(lazy, "numblocks") and cut.known and _Cut([], chunks, None, False).known:
        shape = _Cut([], chunks, None, False).shape
        if cut.shape != shape:
            raise ValueError(f"{name}: got shape {cut.shape}; allowed: {shape}")
        if 0 in shape:  # dask leaves some of these as they are cut
            return [np.zeros(tuple(map(int, sizes)), lazy.dtype) for sizes in itertools.product(*chunks)]
        return list(lazy.rechunk(chunks).to_delayed().ravel())
    counts = tuple(map(len, chunks))
    if tuple(map(len, cut.chunks)) != counts:
        raise ValueError(f"{name}: got {tuple(map(len, cut.chunks))} chunks, some of unknown sizes; allowed: {counts}, as the array has")
    return cut.blocks


def _slices(name: str, array: Any, chunks: _blocks.Chunks) -> list[Any]:
    """The blocks of an array in memory beside another, cut as that is."""
    cut = _Cut([], chunks, None, False)
    if not cut.known:
        raise ValueError(f"{name}: got an array in memory, for chunks of unknown sizes; allowed: an array of dask that is cut alike, or "
                         "known sizes (see compute_chunk_sizes)")
    shape = tuple(array.shape) if hasattr(array, "shape") else (len(array),)
    if shape != cut.shape:
        raise ValueError(f"{name}: got shape {shape}; allowed: {cut.shape}")
    places = [tuple(slice(int(begin), int(begin + size)) for begin, size in zip(block, sizes))
              for block, sizes in zip(_blocks.starts_of(chunks), itertools.product(*chunks))]
    return [array[place[0] if len(place) == 1 else place] for place in places]

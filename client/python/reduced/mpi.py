"""Reductions of an array whose parts are in the ranks of an MPI communicator, by mpi4py.

Each rank reduces its part to a state by `"local:"`, or a server near it: of about a kilobyte for each output, and more for ops of the
distribution, such as a median. The states merge in the order of the ranks, and every rank has the results of the whole array: with
the bits that one server gives for it, however it is cut.
Medians and quantiles of 32 and 64 bits take two or three reads of the parts, and as many collective calls.

    from mpi4py import MPI
    import reduced.mpi

    results = reduced.mpi.allreduce(MPI.COMM_WORLD, part, ["mean", "argmax"])
    by_shop = reduced.mpi.allreduce(MPI.COMM_WORLD, rows, "sum", keys=shops_of_rows)
    columns = reduced.mpi.allreduce(MPI.COMM_WORLD, block, "max", axis=0, begin=(first_row, first_column))

`mpirun -n 4 python -m reduced.mpi FILE.npy...` prints the results of .npy files, of which each rank reads its share.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from typing import Unpack

from reduced import _block_keys, _blocks, _client
from reduced._arrays import Elements, dtype_name, elements, mask_of, numpy_dtype, with_mask
from reduced._errors import Error
from reduced._keys import Groups
from reduced._options import Options, check
from reduced._pairs import in_memory
from reduced._result import Results

# Options that are the same on all ranks, but for axis.
_SAME = ("nan", "ddof", "overflow", "precision", "keepdims", "groups", "outside", "empty", "bucket", "missing", "sort")


def allreduce(comm: Any, array: Any, ops: str | Sequence[str], *, server: str = _client.LOCAL, begin: int | Sequence[int] | None = None,
              **options: Unpack[Options]) -> Results:
    """The results of the parts of all ranks of an mpi4py communicator together, at every rank. Collective.

    `array`: this rank's part, which may be empty, and whose missing elements are left out. It follows those of the ranks before: in
    C order, or along dimension 0 with `axis`, `keys` or `keepdims`. `begin`: or it is the block of the whole array that begins at this
    index, where all ranks give one, and the parts form a grid. `options`: those of `Client.reduce` but for `segments`, `lengths`,
    `keep` and `state`; `keys`, `where`, `y` and `weights` are those of the part. Ranks whose part is not empty have the same dtype, and all ranks
    the same ops and other options. If a rank cannot reduce its part, every rank raises that error (of the lowest such rank).
    """
    return _allreduce(comm, lambda: array, ops, server, begin, options)


class _Part(NamedTuple):
    """What the other ranks have to know of a part."""

    question: tuple[Any, ...]  # the ops first
    shape: tuple[int, ...]
    begin: tuple[int, ...] | None
    dtype: str
    others: dict[str, str]  # the dtypes of y and the weights
    missing: bool  # it lacks elements, or y or the weights do
    masked: bool  # by `where`
    in_order: bool  # parts are consecutive elements of the whole array
    groups: Groups | None  # of keys that are no integers, without codes

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def _allreduce(comm: Any, load: Callable[[], Any], ops: str | Sequence[str], server: str, begin: int | Sequence[int] | None,
               options: Options) -> Results:
    def read() -> tuple[Any, dict[str, Any], _Part]:
        names = _client.names_of(ops)
        plain, coded = _block_keys.plain(options)
        check(int | tuple[int, ...] | None, begin=begin)
        array = _elements(load())
        where = None if options.get("where") is None else mask_of(options["where"], array.shape)
        sides: dict[str, Any] = {role: in_memory(role, options[role], array.shape, options) for role in ("y", "weights")
                                 if options.get(role) is not None}
        masked = any(isinstance(each, np.ma.MaskedArray) for each in (array, *sides.values()))
        asked = _blocks.question(names, plain, len(array.shape), missing=False)
        keys: Any = options.get("keys")
        if coded:
            rows = None if where is None else np.asarray(where.any(axis=tuple(range(1, where.ndim))))
            keys = _block_keys.encode(keys, options, rows)
        axes = None if options.get("axis") is None else asked.reduced
        at = None if begin is None else tuple(begin) if isinstance(begin, Sequence) else (begin,)
        part = _Part(
            question=(names, axes, asked.keyed, coded, [options.get(name) for name in _SAME], list(sides)), shape=array.shape, begin=at,
            groups=_block_keys.without_codes(keys) if coded else None,
            dtype=array.dtype if isinstance(array, Elements) else dtype_name(array.dtype),
            others={role: dtype_name(each.dtype) for role, each in sides.items()}, missing=masked, masked=where is not None,
            in_order=at is None and axes is None and not asked.keyed and not options.get("keepdims"))
        return array, {"keys": keys, "where": where, **sides}, part

    options_of_keys = options
    (array, sides, mine), read_error = _outcome(read, (None, {}, None))
    ranks: list[_Part] = _gathered(comm, mine, read_error)
    _check_same(ranks)
    options, coded = _block_keys.plain(options)
    first = next((each for each in ranks if each.size > 0), ranks[0])
    nothing = np.empty(0, numpy_dtype(first.dtype))
    if sides["where"] is None and any(each.masked for each in ranks):
        sides["where"] = np.broadcast_to(np.True_, array.shape)
        options = {**options, "where": sides["where"]}
    asked = _blocks.question(mine.question[0], options, len(array.shape), missing=any(each.missing for each in ranks),
                             others={role: np.empty(0, numpy_dtype(dtype)) for role, dtype in first.others.items()})
    chunks, order = _arranged(ranks)
    if coded:
        in_rows = sorted(range(len(ranks)), key=lambda rank: (ranks[rank].begin or (0,))[0])
        table = _block_keys.table([groups for rank in in_rows if (groups := ranks[rank].groups) is not None], options_of_keys)
        sides["keys"] = _block_keys.codes(sides["keys"], table, in_rows.index(comm.Get_rank()))
        asked = asked._replace(coded=True)
    if not mine.in_order:
        asked = _blocks.placing(asked, chunks)
    cut = asked._replace(reduced=(0,), kept=()) if mine.in_order else asked
    every = _blocks.outputs(cut, chunks) if order else []
    alone = not asked.scalar and all(len(blocks) == 1 for blocks in every)
    starts = _blocks.starts_of(chunks)
    number = order.index(comm.Get_rank()) if comm.Get_rank() in order else None
    part, error = _outcome(lambda: _blocks.part(array, asked, server, alone and number is not None, () if number is None else starts[number],
                                                **sides), None)
    parts = _gathered(comm, part, error)
    if not order:
        none = _blocks.results(parts[0], asked, nothing)
        return _block_keys.labelled(none, table.groups) if coded else none
    wholes = [_blocks.tree([parts[order[number]] for number in blocks], cut, chunks, _blocks.merge) for blocks in every]
    if asked.rounds(nothing.dtype) > 0 and not alone:
        wholes = _after_rounds(comm, wholes, every, order, lambda before: _blocks.part_again(array, before, asked, server, **sides))
    answers = [_blocks.results(whole, asked, nothing, starts[blocks[0]]) for whole, blocks in zip(wholes, every)]
    joined = _blocks.join(answers, asked, [len(chunks[dimension]) for dimension in cut.kept], nothing)
    return _block_keys.labelled(joined, table.groups) if coded else joined


def _after_rounds(comm: Any, wholes: list[_blocks.Part], every: list[list[int]], order: list[int],
                  again: Callable[[_blocks.Round], _blocks.Part]) -> list[_blocks.Part]:
    """What is known of each block of outputs after as many rounds as its quantiles take. `again`: what this rank adds to the next."""
    rounds = [_blocks.next_round(whole) for whole in wholes]
    mine = next((number for number, blocks in enumerate(every) if comm.Get_rank() in [order[block] for block in blocks]), None)
    while any(each.ops for each in rounds):
        part, error = _outcome(lambda: None if mine is None else again(rounds[mine]), None)
        parts = _gathered(comm, part, error)
        rounds = [_blocks.next_round(_blocks.merge([parts[order[block]] for block in blocks]), before)
                  for blocks, before in zip(every, rounds)]
    return [each.whole for each in rounds]


def _elements(given: Any) -> Any:
    """A part in memory, as what has a shape and a dtype: a masked array, if it lacks elements."""
    masked = with_mask(given)
    if masked is not None:
        return masked[0] if masked[1].all() else np.ma.MaskedArray(masked[0], ~masked[1])
    return given if isinstance(given, np.ndarray) else elements(given, ordered=True)


def _outcome(work: Callable[[], Any], otherwise: Any) -> tuple[Any, Exception | None]:
    """What some work gives, or its error: every rank must get to the next collective call, whatever the error."""
    try:
        return work(), None
    except Exception as error:
        return otherwise, error if isinstance(error, Error | TypeError | ValueError | OSError) else RuntimeError(repr(error))


def _gathered(comm: Any, mine: Any, error: Exception | None) -> list[Any]:
    """What each rank has. Raises the error of the lowest rank that has one."""
    every: list[tuple[Any, Exception | None]] = comm.allgather((mine, error))
    for rank, (_, failed) in enumerate(every):
        if failed is not None:
            failed.add_note(f"of rank {rank}")
            raise failed
    return [there for there, _ in every]


def _check_same(ranks: list[_Part]) -> None:
    """ValueError: ranks ask different questions."""
    first = ranks[0]
    for rank, each in enumerate(ranks):
        if each.question != first.question:
            raise ValueError(f"options: got others on rank {rank} than on rank 0; allowed: the same ops and options on all ranks")
        if (each.begin is None) != (first.begin is None):
            raise ValueError(f"begin: got it on rank {rank if first.begin is None else 0}, and not on rank "
                             f"{0 if first.begin is None else rank}; allowed: on all ranks, or none")
        if each.begin is not None and (len(each.begin) != len(each.shape) or any(start < 0 for start in each.begin)):
            raise ValueError(f"begin: got {each.begin} on rank {rank}, for a part of {len(each.shape)} dimensions; allowed: as many "
                             "numbers of 0 and more")


def _arranged(ranks: list[_Part]) -> tuple[_blocks.Chunks, list[int]]:
    """How the parts make up the whole array: its chunks, and the rank that has each of them in C order. Empty parts are in it only if
    all are empty, and the results have a shape. ValueError: parts overlap, leave gaps or are no grid."""
    order = [rank for rank, each in enumerate(ranks) if each.size > 0]
    if ranks[0].in_order:
        return (tuple(ranks[rank].size for rank in order),), order
    order = order or [rank for rank, each in enumerate(ranks) if each.shape[:1] > (0,)]
    order = order or ([0] if ranks[0].begin is None else list(range(len(ranks))))
    shapes = [ranks[rank].shape for rank in order]
    begins = [ranks[rank].begin or () for rank in order]
    if ranks[0].begin is None:
        rows = [0, *itertools.accumulate(shape[0] if shape else 1 for shape in shapes)]
        begins = [(row, *[0] * (len(shape) - 1)) for row, shape in zip(rows, shapes)]
    what = "" if ranks[0].begin is None else "begin: "
    edges = [sorted({begin[axis] for begin in begins if axis < len(begin)}) for axis in range(len(shapes[0]))]
    ends = [max(begin[axis] + shape[axis] for begin, shape in zip(begins, shapes) if axis < len(shape))
            for axis in range(len(shapes[0]))]
    chunks = tuple(tuple(after - before for before, after in itertools.pairwise([*edge, end])) for edge, end in zip(edges, ends))
    at: dict[tuple[int, ...], int] = {}
    for rank, begin, shape in zip(order, begins, shapes):
        index = tuple(edge.index(start) for edge, start in zip(edges, begin))
        expected = tuple(sizes[number] for sizes, number in zip(chunks, index))
        if len(shape) != len(chunks) or shape != expected:
            raise ValueError(f"{what}got a part of {shape} at {begin} on rank {rank}; allowed: of {expected}, so that the parts form a grid")
        if index in at:
            raise ValueError(f"{what}got {begin} on ranks {at[index]} and {rank}; allowed: each once")
        at[index] = rank
    if len(at) < math.prod(map(len, chunks)) or any(edge[0] != 0 for edge in edges):
        raise ValueError(f"{what}got {len(at)} parts, which leave gaps in an array of {tuple(ends)}; allowed: parts that form a grid")
    return chunks, [at[index] for index in sorted(at)]


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m reduced.mpi`: returns the exit status."""
    from mpi4py import MPI

    parser = argparse.ArgumentParser(prog="python -m reduced.mpi", description="Reduces .npy files, of which each rank of mpirun "
                                     "reads its share.")
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--op", default="count,nan_count,mean,std,min,max,sum", help="the ops, with commas (default: %(default)s)")
    parser.add_argument("--nan", default="propagate", choices=["propagate", "omit"])
    parser.add_argument("--ddof", type=int, default=0)
    parser.add_argument("--server", default=_client.LOCAL, help="a server near each rank (default: %(default)s)")
    wanted = parser.parse_args(arguments)
    comm = MPI.COMM_WORLD
    status = 0
    for file in wanted.files:
        options: Options = {"nan": wanted.nan, "ddof": wanted.ddof}
        try:
            results = _allreduce(comm, functools.partial(_share, file, comm.Get_rank(), comm.Get_size()), wanted.op, wanted.server, None,
                                 options)
        except (Error, TypeError, ValueError, OSError, RuntimeError) as error:
            if comm.Get_rank() == 0:
                print(f"{file}: {error}", file=sys.stderr)
            status = 1
            continue
        if comm.Get_rank() == 0:
            print(file, *repr(results).splitlines(), sep="\n  ", flush=True)
    return status


def _share(file: str, rank: int, ranks: int) -> Any:
    """The elements of a rank: consecutive ones, in the order of the file's memory, which is C order if it is."""
    whole = np.load(file, mmap_mode="r")
    if not whole.flags.c_contiguous:
        raise ValueError(f"{file}: got an array in Fortran order; allowed: C order")
    flat = whole.reshape(-1)
    return flat[flat.size * rank // ranks : flat.size * (rank + 1) // ranks]


if __name__ == "__main__":
    sys.exit(main())

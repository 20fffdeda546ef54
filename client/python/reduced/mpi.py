"""Reductions of an array whose parts are in the ranks of an MPI communicator, by mpi4py.

Each rank reduces its part to a state of about a kilobyte by `"local:"`, or a server near it. The states merge in the order of
the ranks, and every rank has the results of the whole array: with the bits that one server gives for it, however it is cut.

    from mpi4py import MPI
    import reduced.mpi

    results = reduced.mpi.allreduce(MPI.COMM_WORLD, part, ["mean", "argmax"])

`mpirun -n 4 python -m reduced.mpi FILE.npy...` prints the results of .npy files, of which each rank reads its share.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from typing import Unpack

from reduced import _client
from reduced._arrays import with_mask
from reduced._errors import Error
from reduced._ops import Options
from reduced._result import Results
from reduced._state import State


def allreduce(comm: Any, array: Any, ops: str | Sequence[str], *, server: str = _client.LOCAL,
              **options: Unpack[Options]) -> Results:
    """The results of the parts of all ranks of an mpi4py communicator together, at every rank. Collective.

    `array`: this rank's part, which follows those of the ranks before in C order. It may be empty, but has no missing elements.
    Ranks whose part is not empty have the same dtype, and all ranks the same ops and options. If a rank cannot reduce its part,
    every rank raises that error (of the lowest such rank).
    """
    return _allreduce(comm, lambda: array, ops, server, options)


def _allreduce(comm: Any, load: Callable[[], Any], ops: str | Sequence[str], server: str, options: Options) -> Results:
    names = _client.names_of(ops)
    mine: State | np.dtype[Any] | Exception  # a dtype: there is no element here
    try:
        given = load()
        masked = with_mask(given)
        if masked is not None and not masked[1].all():
            raise TypeError("array: got missing elements; allowed: none (see compressed, drop_null and dropna)")
        part = np.asarray(given)
        mine = _connected(server, os.getpid())._state(part, names, options) if part.size > 0 else part.dtype
    except Exception as error:  # every rank must get there, whatever the error
        mine = error if isinstance(error, Error | TypeError | ValueError | OSError) else RuntimeError(repr(error))
    parts: list[State | np.dtype[Any] | Exception] = comm.allgather(mine)
    for rank, of_rank in enumerate(parts):
        if isinstance(of_rank, Exception):
            of_rank.add_note(f"of rank {rank}")
            raise of_rank
    states = [state for state in parts if isinstance(state, State)]
    if not states:
        return _client.connect(_client.LOCAL).reduce(np.empty(0, parts[0]), names, **options)
    return State.merge(states).results


@functools.lru_cache(maxsize=8)
def _connected(server: str, _process: int) -> _client.Client:
    return _client.connect(server)


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
            results = _allreduce(comm, functools.partial(_share, file, comm.Get_rank(), comm.Get_size()), wanted.op, wanted.server, options)
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

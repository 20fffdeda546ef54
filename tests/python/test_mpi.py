"""reduced.mpi under mpirun: the bits of the whole array at every rank, and the same errors."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import reduced

DEADLINE_S = 120
MPIRUN = pathlib.Path(sys.executable).parent / "mpirun"
pytest.importorskip("mpi4py")
if not MPIRUN.exists():
    pytest.skip(f"there is no {MPIRUN}", allow_module_level=True)


def run(ranks, *program):
    return subprocess.run(
        [MPIRUN, "--allow-run-as-root", "--oversubscribe", "--mca", "btl", "self,sm", "--mca", "pml", "ob1", "-n", str(ranks),
         sys.executable, *program], capture_output=True, text=True, timeout=DEADLINE_S, check=False, env=os.environ)


PROGRAM = """
import pickle, sys
import numpy as np
from mpi4py import MPI
import reduced, reduced.mpi

comm, server = MPI.COMM_WORLD, sys.argv[2]
array = np.load(sys.argv[1])
rank, ranks = comm.Get_rank(), comm.Get_size()
cuts = [0, *sorted(np.random.default_rng(ranks).integers(0, array.size, ranks - 1)), array.size]
part = array[cuts[rank]:cuts[rank + 1]]
ops = [op for op in reduced.ops if not op.startswith("bit") and op != "prod"]
right = reduced.connect("local:").reduce(array, ops, ddof=1)
results = reduced.mpi.allreduce(comm, part, ops, ddof=1, server=server)
assert dict(results) == dict(right), (results, right)

nans = np.full(10, np.nan) if rank < ranks - 1 else np.array([3.0, np.nan, 1.0])
least = reduced.mpi.allreduce(comm, nans, "min,argmin,count", nan="omit")
assert dict(least) == {"min": 1, "argmin": 10 * (ranks - 1) + 2, "count": 2}, least
assert reduced.mpi.allreduce(comm, [], "sum,count") == {"sum": 0, "count": 0}

def error(part, ops):
    try:
        reduced.mpi.allreduce(comm, part, ops)
    except Exception as error:
        return type(error).__name__, str(error), error.__notes__ if hasattr(error, "__notes__") else []

assert error([], "min")[0] == "InvalidArgumentError"
kind, message, notes = error(["text"] if rank == ranks - 1 else [1.0], "sum")
assert kind == "TypeError" and "dtype: got" in message and notes == [f"of rank {ranks - 1}"], (kind, message, notes)
kind, message, _ = error(np.ma.masked_array([1.0, 2.0], [False, rank == 0]), "sum")
assert kind == "TypeError" and "array: got missing elements" in message, (kind, message)
assert reduced.mpi.allreduce(comm, np.ma.masked_array([1.0, 2.0]), "sum").sum == 3 * ranks
assert error([1.0], "median")[0] == "InvalidArgumentError"
if ranks > 1:
    assert error([1.0] if rank == 0 else [1], "sum")[0] == "InvalidArgumentError"
assert reduced.mpi.allreduce(comm, [1.0], "sum").sum == ranks
print("right", flush=True)
"""


@pytest.mark.parametrize("ranks", [1, 3, 7])
def test_allreduce(tmp_path, server, ranks):
    array = np.random.default_rng(5).normal(size=5000) * 10.0 ** np.random.default_rng(6).integers(-300, 150, 5000)
    np.save(tmp_path / "a.npy", array)
    done = run(ranks, "-c", PROGRAM, tmp_path / "a.npy", server.unix if ranks == 3 else "local:")
    assert (done.returncode, done.stdout) == (0, "right\n" * ranks), done.stderr


def test_files(tmp_path, local):
    array = np.arange(1000.0).reshape(10, 100)
    np.save(tmp_path / "a.npy", array)
    np.save(tmp_path / "f.npy", np.asfortranarray(array))
    done = run(3, "-m", "reduced.mpi", tmp_path / "a.npy", "--op", "sum,argmax,std", "--ddof", "1")
    right = local.reduce(array, "sum,argmax,std", ddof=1)
    assert done.stdout == f"{tmp_path}/a.npy\n  sum     {right.sum}\n  argmax  999\n  std     {right.std}\n", done.stderr
    wrong = run(3, "-m", "reduced.mpi", tmp_path / "none.npy", tmp_path / "f.npy", tmp_path / "a.npy", "--op", "count")
    assert wrong.returncode == 1 and wrong.stdout == f"{tmp_path}/a.npy\n  count  1000\n"
    assert "none.npy" in wrong.stderr and "f.npy: got an array in Fortran order" in wrong.stderr
    assert reduced.__version__

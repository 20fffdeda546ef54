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
ops = [op for op in reduced.ops if op not in reduced._core.distribution and not op.startswith("bit") and op != "prod"]
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
masked = np.ma.masked_array([1.0, 2.0], [False, rank == 0])
assert dict(reduced.mpi.allreduce(comm, masked, "sum,count,argmax")) == {
    "sum": 3 * ranks - 2, "count": 2 * ranks - 1, "argmax": 3 if ranks > 1 else 0}
assert reduced.mpi.allreduce(comm, np.ma.masked_array([1.0, 2.0]), "sum").sum == 3 * ranks
assert error([1.0], "medium")[0] == "InvalidArgumentError"
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


BLOCKS = """
import sys
import numpy as np
from mpi4py import MPI
import reduced, reduced.mpi

sys.path.insert(0, sys.argv[1])
import blocks

comm, local = MPI.COMM_WORLD, reduced.connect("local:")
rank, ranks = comm.Get_rank(), comm.Get_size()


def parts_of(random, shape, grid):
    # The slices of each rank's part: rows, or blocks of a grid of random sizes.
    counts = [ranks] + [1] * (len(shape) - 1)
    if grid:
        at = int(random.integers(len(shape)))
        counts = [2 if axis == at and ranks % 2 == 0 else 1 for axis in range(len(shape))]
        counts[int(random.integers(len(shape)))] *= ranks // np.prod(counts)
    cuts = []
    for count, extent in zip(counts, shape):
        inner = sorted(random.permutation(extent - 1)[:count - 1] + 1) if grid else sorted(random.integers(0, extent + 1, count - 1))
        if len(inner) < count - 1:
            return None
        cuts.append([slice(int(a), int(b)) for a, b in zip([0, *inner], [*inner, extent])])
    order = random.permutation(ranks) if grid else range(ranks)
    return [tuple(cuts[axis][i] for axis, i in enumerate(np.unravel_index(n, counts))) for n in order]


done = 0
for seed in range(int(sys.argv[2])):
    random = np.random.default_rng(seed)
    array, options = blocks.question_of(random)
    if "where" in options:
        options["where"] = np.broadcast_to(options["where"], array.shape)
    if random.integers(3) == 0 and options.get("axis") != ():
        array = np.ma.MaskedArray(array, random.random(array.shape) < 0.3)
    grid = bool(random.integers(2)) and array.size > 0
    parts = parts_of(random, array.shape, grid)
    if parts is None:
        continue
    part, own = parts[rank], dict(options)
    if "keys" in own:
        own["keys"] = own["keys"][part[0]]
    if "where" in own:
        own["where"] = own["where"][part]
    if grid:
        own["begin"] = tuple(extent.start for extent in part)
    ops = blocks.OPS if random.integers(2) else [str(op) for op in random.choice(blocks.OPS, 3, replace=False)]
    mine = blocks.answer(lambda: reduced.mpi.allreduce(comm, array[part], ops, **own))
    right = blocks.answer(lambda: local.reduce(array, ops, **options))
    if isinstance(right, reduced.ArrayResults) and options.keys().isdisjoint({"axis", "keys", "where", "keepdims"}):
        right = reduced.mpi.allreduce(MPI.COMM_SELF, array, ops, **options)
    try:
        blocks.assert_same_answer(mine, right)
    except AssertionError as error:
        raise AssertionError((seed, array, options, parts, ops)) from error
    done += 1

for seed in range(40):
    random = np.random.default_rng(seed)
    array, options = blocks.question_of(random)
    options = {**options, "overflow": "wrap", **blocks.others_of(random, array)}
    options["weights"] = np.broadcast_to(options["weights"], array.shape)
    if "where" in options:
        options["where"] = np.broadcast_to(options["where"], array.shape)
    part = parts_of(random, array.shape, False)[rank]
    own = {name: value[part[0]] if name == "keys" else value[part] if name in ("where", "y", "weights") else value
           for name, value in options.items()}
    if options.keys().isdisjoint({"axis", "keys", "keepdims"}) and array.ndim > 1:
        options["axis"] = own["axis"] = 0
    ops = [str(op) for op in random.choice(["dot", "cov", "corr", "slope", "distance_l2", "cosine", "sum"], 3, replace=False)]
    ops += ["weighted_mean", "weighted_var", "compare(rtol=0.25)"]
    mine = blocks.answer(lambda: reduced.mpi.allreduce(comm, array[part], ops, **own))
    right = blocks.answer(lambda: local.reduce(array, ops, **options))
    if isinstance(right, reduced.ArrayResults) or isinstance(mine, Exception):
        blocks.assert_same_answer(mine, right)
    else:
        assert all(np.array_equal(mine[op], right[op], equal_nan=True) for op in right), (mine, right)

equal = np.full((128 * (rank + 1) // ranks - 128 * rank // ranks, 128, 128), 1.9)
assert reduced.mpi.allreduce(comm, equal, "sum").sum.hex() == "0x1.e666666666666p+21"
sums = np.arange(16.0).reshape(4, 4)
rows = np.array_split(sums, ranks)[rank]
assert reduced.mpi.allreduce(comm, rows, "sum", axis=1).sum.tolist() == [6, 22, 38, 54]
columns = np.array_split(np.arange(4), ranks)[rank]
answer = reduced.mpi.allreduce(comm, sums[:, columns], "argmax,argmin", begin=(0, columns[0] if len(columns) else 4))
assert dict(answer) == {"argmax": 15, "argmin": 0}, answer


def error(part, ops="sum", **options):
    try:
        reduced.mpi.allreduce(comm, part, ops, **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


assert error(rows, segments=[0, 1]).startswith("ValueError: segments: got it"), error(rows, segments=[0, 1])
assert error(rows, axis=2) == "ValueError: axis[0]: got 2; allowed: -2 to 1"
if ranks > 1:
    assert error(rows, axis=rank % 2).startswith("ValueError: options: got others on rank 1 than on rank 0"), error(rows, axis=rank % 2)
    assert error(rows, "sum" if rank else "max").startswith("ValueError: options: got others on rank")
    wrong = error(np.ones((2, 3 + rank % 2)), axis=0)
    assert wrong == "ValueError: got a part of (2, 3) at (0, 0) on rank 0; allowed: of (2, 4), so that the parts form a grid", wrong
    wrong = error(np.ones((2, 3)), begin=(0, 0))
    assert wrong == "ValueError: begin: got (0, 0) on ranks 0 and 1; allowed: each once", wrong
    wrong = error(np.ones((2, 3)), begin=(3 * rank, 0))
    assert wrong == "ValueError: begin: got a part of (2, 3) at (0, 0) on rank 0; allowed: of (3, 3), so that the parts form a grid", wrong
    wrong = error(np.ones((2, 3)), begin=(2 * rank + 1, 0))
    assert wrong.startswith(f"ValueError: begin: got {ranks} parts, which leave gaps in an array of {(2 * ranks + 1, 3)}"), wrong
    assert error(rows, begin=(0, 0) if rank else None).startswith("ValueError: begin: got it on rank 1, and not on rank 0")
    assert error(rows, begin=(0,)).startswith("ValueError: begin: got (0,) on rank 0, for a part of 2 dimensions")
    wrong = error(rows, begin=(0.5, rank))
    assert wrong == "TypeError: begin: got (0.5, 0); allowed: whole numbers, tuples of them, or None", wrong
    wrong = error(rows, "sum" if rank else 5)
    assert wrong == "TypeError: ops: got 5; allowed: strings", wrong
    line = reduced.mpi.allreduce(comm, np.full(2, rank), "argmax", axis=0, begin=2 * (ranks - 1 - rank)).argmax
    assert line == 0, line
    groups = reduced.mpi.allreduce(comm, np.ma.masked_array([1.0, 2.0], [rank == 0, False]), "sum,count", keys=[rank, 100])
    assert groups.group_keys.tolist() == [*range(ranks), 100] and groups["count"].tolist() == [0, *[1] * (ranks - 1), ranks]
print(done > int(sys.argv[2]) // 2, flush=True)
"""


@pytest.mark.parametrize(("ranks", "questions"), [(1, 60), (3, 150), (4, 100)])
def test_any_question_of_any_parts(ranks, questions):
    done = run(ranks, "-c", BLOCKS, pathlib.Path(__file__).parent, str(questions))
    assert (done.returncode, done.stdout) == (0, "True\n" * ranks), done.stderr


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

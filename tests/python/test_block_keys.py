"""Keys of any kind for arrays in blocks, of dask and MPI: the groups, their order and their results are those of the whole array."""

import dask
import dask.array as da
import numpy as np
import pytest
import reduced
import reduced.dask
import test_mpi

OPS = ["sum", "argmax", "median", "count"]
N = 600
RANDOM = np.random.default_rng(5)
WORDS = np.array(["pear", "fig", "apple", "kiwi"])[RANDOM.integers(0, 4, N)]
DAYS = np.datetime64("2024-01-30") + RANDOM.integers(0, 70, N).astype("m8[D]")
FLOATS = np.where(RANDOM.random(N) < 0.2, np.nan, RANDOM.integers(0, 3, N).astype(float))
FLAGS = RANDOM.random(N) < 0.5


@pytest.fixture(autouse=True)
def here():
    with dask.config.set(scheduler="threads"):
        yield


def columns(keys):
    if isinstance(keys, tuple):
        return [np.asarray(each) for each in keys]
    return [keys.get_level_values(i) for i in range(keys.nlevels)] if hasattr(keys, "levels") else [keys]


def assert_same(found, right):
    assert type(found.group_keys) is type(right.group_keys)
    for one, other in zip(columns(found.group_keys), columns(right.group_keys), strict=True):
        if hasattr(other, "equals"):
            assert one.equals(other) and one.name == other.name and one.dtype == other.dtype
        else:
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
    assert found.errors.keys() == right.errors.keys()
    for op in right:
        np.testing.assert_array_equal(np.asarray(found[op]), np.asarray(right[op]))


@pytest.mark.parametrize("keys, options", [
    (WORDS, {}), (WORDS, {"sort": False}), (DAYS, {"bucket": "month"}), (FLOATS, {}), (FLOATS, {"missing": "group"}), (FLAGS, {}),
    (RANDOM.integers(-2, 5, N), {"sort": False}), (WORDS.tolist(), {}), ([WORDS, FLAGS], {}), ([WORDS, DAYS, FLOATS], {"bucket": "month"}),
    ([WORDS, DAYS, FLOATS], {"bucket": "month", "missing": "group", "sort": False})])
def test_arrays_of_dask(local, keys, options):
    rows = RANDOM.normal(size=(N, 3))
    where = RANDOM.random((N, 3)) < 0.6
    for array, chunks, mask in ((rows[:, 0], 170, None), (rows[:, 0], 170, where[:, 0]), (rows, (170, 2), None), (rows, (N, 3), where)):
        given = {**options, **({} if mask is None else {"where": mask})}
        right = local.reduce(array, OPS, keys=keys, **given)
        assert_same(reduced.dask.reduce(da.from_array(array, chunks), OPS, keys=keys, **given).compute(), right)
        if mask is not None:
            given["where"] = da.from_array(mask, 120)
        several = isinstance(keys, list) and not isinstance(keys[0], str)
        lazy = [da.from_array(each, 170) for each in keys] if several else da.from_array(np.array(keys), 99)
        assert_same(reduced.dask.reduce(da.from_array(array, chunks), OPS, keys=lazy, **given).compute(), right)


def test_columns_of_dask(local):
    pandas, frames = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    frame = pandas.DataFrame({
        "x": RANDOM.normal(size=N), "word": WORDS, "day": DAYS.astype("M8[ns]"), "n": pandas.array(RANDOM.integers(0, 5, N), "Int64"),
        "size": pandas.Categorical(WORDS, categories=["pear", "kiwi", "fig", "apple", "plum"], ordered=True)})
    frame.loc[::7, "n"] = pandas.NA
    lazy = frames.from_pandas(frame, npartitions=5)
    for keys, options in (("word", {}), ("day", {"bucket": "month"}), ("size", {}), ("n", {}), ("n", {"missing": "group"}),
                          (["word", "size"], {}), (["n", "word"], {"sort": False, "missing": "group"})):
        found = reduced.dask.reduce(lazy["x"], OPS, keys=lazy[keys], **options).compute()
        of_frame = frame[keys].astype({"word": lazy.dtypes["word"]}) if isinstance(keys, list) and "word" in keys else frame[keys].astype(lazy.dtypes[keys])
        assert_same(found, local.reduce(frame["x"].to_numpy(), OPS, keys=of_frame, **options))


def test_masked_elements_and_no_group(local):
    array = np.ma.MaskedArray([1.0, 2.0, 3.0, 4.0], [False, True, False, False])
    found = reduced.dask.reduce(da.from_array(array, 2), "sum,count", keys=["b", "a", "b", "c"]).compute()
    assert found.group_keys.tolist() == ["a", "b", "c"] and found.sum.tolist() == [0, 4, 4] and found["count"].tolist() == [0, 2, 1]
    none = reduced.dask.reduce(da.ones(4, chunks=2), "sum", keys=np.full(4, np.nan)).compute()
    assert len(none.group_keys) == 0 and none.sum.tolist() == []


def test_wrong_keys():
    array = da.ones(N, chunks=170)
    for options, kind, said in (
            ({"keys": WORDS, "groups": 4}, TypeError, "groups: got it with keys that become codes; allowed: integer keys"),
            ({"keys": [WORDS, "x"]}, TypeError, "keys: got "), ({"keys": WORDS[:5]}, ValueError, r"keys: got shape \(5,\); allowed: \(600,\)"),
            ({"keys": da.from_array(WORDS[:5])}, ValueError, r"keys: got shape \(5,\); allowed: \(600,\)"),
            ({"bucket": "month"}, ValueError, "bucket: got it without keys"), ({"keys": WORDS, "bucket": "month"}, TypeError, "bucket: got 'month' for keys of"),
            ({"keys": WORDS, "missing": "x"}, (ValueError, reduced.InvalidArgumentError), "missing: got x; allowed: drop, group"),
            ({"keys": da.from_array(WORDS), "bucket": "month"}, TypeError, "bucket: got 'month' for keys of"),
            ({"keys": np.ones(N, complex)}, TypeError, "keys: got complex128; allowed: integers, strings")):
        with pytest.raises(kind, match=said):
            reduced.dask.reduce(array, "sum", **options)


PROGRAM = """
import numpy as np
from mpi4py import MPI
import reduced, reduced.mpi

comm = MPI.COMM_WORLD
rank, ranks = comm.Get_rank(), comm.Get_size()
random = np.random.default_rng(3)
n = 500
array = random.normal(size=(n, 2))
words = np.array(["pear", "fig", "apple"])[random.integers(0, 3, n)]
days = np.datetime64("2024-01-30") + random.integers(0, 70, n).astype("m8[D]")
floats = np.where(random.random(n) < 0.2, np.nan, random.integers(0, 3, n))
where = random.random((n, 2)) < 0.5
words[:n // ranks] = "plum"  # which only rank 0 has
own = slice(n * rank // ranks, n * (rank + 1) // ranks)
for keys, options in (([words], {}), ([words], {"sort": False}), ([days], {"bucket": "month"}), ([words, floats], {}),
                      ([floats], {"missing": "group"}), ([floats, words], {"missing": "group", "sort": False, "where": where})):
    right = reduced.connect("local:").reduce(array, "sum,argmax,median", keys=keys, **options)
    mine = {**options, "where": where[own]} if "where" in options else options
    found = reduced.mpi.allreduce(comm, array[own], "sum,argmax,median", keys=[each[own] for each in keys], **mine)
    for one, other in zip(*(each.group_keys if isinstance(each.group_keys, tuple) else [each.group_keys] for each in (found, right)), strict=True):
        np.testing.assert_array_equal(one, other)
    for op in right:
        np.testing.assert_array_equal(found[op], right[op])
column = reduced.mpi.allreduce(comm, array[:, rank % 2:rank % 2 + 1][: n if rank < 2 else 0], "sum", keys=words if rank < 2 else words[:0],
                               begin=(0, rank) if rank < 2 else (0, 0)) if ranks == 2 else None
if column is not None:
    np.testing.assert_array_equal(column.sum, reduced.connect("local:").sum(array, keys=words))
try:
    reduced.mpi.allreduce(comm, array[own], "sum", keys=words[own] if rank else random.integers(0, 3, n)[own])
except ValueError as error:
    assert "options: got others on rank" in str(error), error
else:
    assert ranks == 1
print("done")
"""


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_of_mpi(ranks):
    done = test_mpi.run(ranks, "-c", PROGRAM)
    assert done.returncode == 0 and done.stdout.split() == ["done"] * ranks, done.stderr

"""Floats of 8 bits against ml_dtypes and NumPy: all 256 codes of each."""

import numpy as np
import pytest
from test_arrays import Exported

import reduced
import reduced.testing

ml_dtypes = pytest.importorskip("ml_dtypes")

NAMES = {"float8_e4m3fn": "f8_e4m3fn", "float8_e5m2": "f8_e5m2", "float8_e8m0fnu": "f8_e8m0fnu"}


@pytest.fixture(params=NAMES)
def dtype(request):
    return np.dtype(getattr(ml_dtypes, request.param))


def codes(dtype):
    return np.arange(256, dtype="u1").view(dtype)


def numbers(dtype):
    """Those that are finite, each several times, in random order."""
    every = codes(dtype)
    finite = every[np.isfinite(every.astype("f8"))]
    return np.random.default_rng(8).permutation(np.tile(finite, 41))


def same(a, b):
    return np.array_equal(np.asarray(a, "f8"), np.asarray(b, "f8"), equal_nan=True)


def test_every_code(client, dtype):
    every = codes(dtype)
    wide = every.astype("f8")
    for value, expected in zip(client.max(every.reshape(256, 1), axis=1), wide):
        assert same(value, expected)
    assert same(client.sum(every.reshape(256, 1), axis=1), wide)
    assert client.reduce(every, "nan_count").nan_count == np.isnan(wide).sum()
    assert client.count_nonzero(every) == np.count_nonzero(wide)
    found = client.reduce(every, "sum,min,max,argmin,argmax,distinct", nan="omit")
    if dtype.name == "float8_e5m2":  # has both infinities
        assert np.isnan(found.sum)
    else:
        assert found.sum == sum(int(each * 2.0**127) for each in wide[np.isfinite(wide)].tolist()) / 2**127
    assert (found.min, found.max) == (np.nanmin(wide), np.nanmax(wide)) and found.min.dtype == found.max.dtype == dtype
    assert (found.argmin, found.argmax) == (np.nanargmin(wide), np.nanargmax(wide))
    assert found.distinct == len(np.unique(wide[~np.isnan(wide)]))


def test_ops_of_numbers(client, dtype):
    x = numbers(dtype)
    wide = x.astype("f8")
    found = client.reduce(x, "sum,mean,l1,l2,sum_squares,var,std,min,max,argmin,argmax,range,count,nan_count,any,all")
    exact = [int(each * 2.0**127) for each in wide.tolist()]
    assert found.sum == sum(exact) / 2**127 and found.l1 == sum(map(abs, exact)) / 2**127
    assert found.sum_squares == sum(each * each for each in exact) / 2**254
    for op, expected in (("mean", wide.mean()), ("l2", np.linalg.norm(wide)), ("var", wide.var()), ("std", wide.std())):
        assert np.isclose(found[op], expected, rtol=1e-12, atol=1e-15), op
    assert (found.min, found.max, found.range) == (wide.min(), wide.max(), wide.max() - wide.min())
    assert wide[found.argmin] == wide.min() and wide[found.argmax] == wide.max() and found.count == len(x)
    assert same(client.median(x), np.median(wide)) and same(client.quantile(x, [0.1, 0.9]), np.quantile(wide, [0.1, 0.9]))
    lower = client.quantile(x, [0.3, 0.7], method="lower")
    assert lower.dtype == dtype and same(lower, np.quantile(wide, [0.3, 0.7], method="lower"))
    edges = np.linspace(-3, 5, 17)
    assert np.array_equal(client.histogram(x, edges)[0], np.histogram(wide, edges)[0])
    top = client.topk(x, 7)
    assert same(top[0] if isinstance(top, tuple) else top, np.sort(wide)[::-1][:7])
    assert client.reduce(x, "distinct_exact").distinct_exact == len(np.unique(wide))
    values, counts = np.unique(np.append(wide, wide[5]), return_counts=True)
    assert same(client.mode(np.append(x, x[5:6])), values[counts.argmax()])


def test_partitions(client, dtype):
    x = np.tile(numbers(dtype), 3)[:24000]
    keys = np.arange(24000) % 37
    where = np.random.default_rng(3).random((40, 600)) < 0.7
    wide, table = x.astype("f8"), x.reshape(40, 600)
    ops = "sum,min,max,argmax,var,count_nonzero,median"
    for axis in (0, 1):
        found, rows = client.reduce(table, ops, axis=axis), wide.reshape(40, 600)
        assert same(found.sum, rows.sum(axis)) or dtype.name == "float8_e8m0fnu"
        assert found.min.dtype == dtype and same(found.min, rows.min(axis)) and same(found.max, rows.max(axis))
        assert np.array_equal(found.argmax, rows.argmax(axis)) and np.array_equal(found.count_nonzero, np.count_nonzero(rows, axis))
        assert np.allclose(found["var"], rows.var(axis), rtol=1e-11) and same(found.median, np.median(rows, axis))
    by_key = client.reduce(x, "sum,min,count,median", keys=keys, groups=37)
    for key in range(37):
        own = wide[keys == key]
        assert np.isclose(by_key.sum[key], own.sum(), rtol=1e-12, atol=1e-9)
        assert (by_key.min[key], by_key.count[key], by_key.median[key]) == (own.min(), len(own), np.median(own))
    masked = client.reduce(table, "sum,max", axis=1, where=where)
    assert same(masked.max, [row[kept].max() for row, kept in zip(wide.reshape(40, 600), where)])
    bounds = np.array([0, 5, 5000, 24000])
    found = client.reduce(x, "min,mean", segments=bounds)
    assert same(found.min, [wide[a:b].min() for a, b in zip(bounds, bounds[1:])])


def test_pairs(client, dtype):
    x = numbers(dtype)[:999]
    y = np.random.default_rng(1).normal(size=999).astype("f4")
    wide = x.astype("f8")
    assert np.isclose(client.dot(x, y), wide @ y.astype("f8"), rtol=1e-12)
    assert client.dot(x, x) == client.reduce(x, "sum_squares").sum_squares
    found = client.compare(x, x[::-1].copy())
    assert found.mismatches == np.count_nonzero(wide != wide[::-1])
    assert client.compare(x, x).different_bits == 0
    assert client.compare(x, wide).max_abs == 0  # an f64 beside it
    following = np.array([0x38, 0x39], "u1").view(dtype)
    assert client.compare(following[:1], following[1:]).max_ulp == 1
    reduced.testing.assert_close(x, x)


def test_fingerprints_are_of_the_bytes(client, dtype):
    every = codes(dtype)
    assert client.fingerprint(every) == client.fingerprint(every.view("u1"))
    assert client.fingerprint(every[::-1].copy()) != client.fingerprint(every)


def test_states(client, dtype):
    x = numbers(dtype)
    states = [client.reduce(part, "sum,min,argmax,var,distinct", state=True).state for part in np.array_split(x, 3)]
    merged, whole = reduced.State.merge(states).results, client.reduce(x, "sum,min,argmax,var,distinct")
    for op in ("sum", "min", "argmax", "distinct"):
        assert merged[op] == whole[op], op
    assert np.isclose(merged["var"], whole["var"], rtol=1e-12)


def test_where_they_come_from(client, dtype):
    x = numbers(dtype)
    total = client.sum(x)
    assert client.sum(np.asfortranarray(x[:9000].reshape(90, 100))) == client.sum(x[:9000])
    assert client.sum(x[::2].copy()) == client.sum(x[::2])
    # As PyTorch's tensors, which NumPy cannot import.
    assert client.sum(Exported(x.view("u1"), f"torch.{dtype.name}")) == total
    assert client.argmax(Exported(x[:6].view("u1").reshape(2, 3).T, f"torch.{dtype.name}")) == x[:6].reshape(2, 3).T.astype("f8").argmax()


def test_resident(remote, dtype):
    x = numbers(dtype)
    with remote.put(x) as resident:
        assert resident.dtype == dtype and np.array_equal(resident.get().view("u1"), x.view("u1"))
        assert remote.sum(resident) == remote.sum(x)
    with remote.max(x[:9000].reshape(90, 100), axis=1, keep=True) as kept:
        assert kept.dtype == dtype and same(kept.get(), x[:9000].astype("f8").reshape(90, 100).max(1))


def test_other_floats_of_8_bits_are_refused(client):
    for name in ("float8_e4m3", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e3m4", "float4_e2m1fn", "int4"):
        if hasattr(ml_dtypes, name):
            with pytest.raises(TypeError, match=f"dtype: got {name}; allowed: .*, float8_e4m3fn, float8_e5m2, float8_e8m0fnu"):
                client.sum(np.zeros(3, getattr(ml_dtypes, name)))

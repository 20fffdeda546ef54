"""States merge, pickle and compare, without a server; whatever the bytes."""

import copy
import math
import os
import pickle
import subprocess

import numpy as np
import pytest
import reduced
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from reduced import State

PROPERTY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
EXACT = ["sum", "mean", "var", "l1", "l2", "min", "max", "argmin", "argmax", "count", "nan_count"]


def state_of(client, array, ops=EXACT, **options):
    return client.reduce(array, ops, state=True, **options).state


@PROPERTY
@given(array=hnp.arrays(st.sampled_from(["f4", "f8", "i4"]), st.integers(2, 200)), data=st.data())
def test_parts_have_the_state_of_the_whole(local, remote, array, data):
    cuts = sorted(data.draw(st.lists(st.integers(1, array.size - 1), unique=True, max_size=5)))
    states = [local._state(part, EXACT, {}) for part in np.split(array, cuts)]
    whole = state_of(remote, array)
    assert State.merge(states) == whole
    middle = data.draw(st.integers(1, len(states)))
    assert State.merge([State.merge(part) for part in (states[:middle], states[middle:]) if part]) == whole
    assert State.merge(states).size == array.size


def test_an_op_without_an_answer_takes_no_other_with_it(local):
    for options in ({}, {"axis": 0}, {"axis": ()}):
        results = state_of(local, np.array([2**62, 2**62]), ["max", "sum", "mean"], results=False, **options).results
        wrong = set() if options.get("axis") == () else {"sum"}
        assert results.errors.keys() == wrong and list(results) == [op for op in ("max", "sum", "mean") if op not in wrong]
        assert np.all(results.max == 2**62) and np.all(results["mean"] == 2.0**62)
        if wrong:
            with pytest.raises(reduced.OutOfRangeError, match="^integer overflow: the sum"):
                _ = results.sum
    with pytest.raises(reduced.OutOfRangeError, match="integer overflow: the sum"):
        _ = state_of(local, np.array([2**62, 2**62]), ["sum"], results=False).results


def test_parts_without_an_answer(local):
    states = [local._state(np.array(part), ["min", "sum"], {"nan": "omit"}) for part in ([math.nan], [math.nan, 2.0])]
    with pytest.raises(reduced.InvalidArgumentError, match="min"):
        _ = states[0].results.min
    assert State.merge(states).results.min == 2
    half = np.array([2**62, 2**62])
    large = [local._state(part, ["sum"], {}) for part in (half, -half)]
    with pytest.raises(OverflowError):
        _ = large[0].results
    assert State.merge(large).results.sum == 0


def test_a_state_is_a_value(local):
    state = state_of(local, np.arange(5.0))
    for other in (pickle.loads(pickle.dumps(state)), copy.deepcopy(state), State(bytes(state))):
        assert other == state and hash(other) == hash(state) and dict(other.results) == dict(state.results)
    assert state != state_of(local, np.arange(6.0)) and state != "a state"
    assert repr(state).startswith("State(5 elements, ")


def test_reducectl_writes_the_same(local, tmp_path):
    array = np.arange(100.0)
    np.save(tmp_path / "a.npy", array)
    first, second = state_of(local, array[:50], ["sum"]), state_of(local, array[50:], ["sum"])
    for name, state in (("1", first), ("2", second)):
        (tmp_path / name).write_bytes(bytes(state))
    merged = subprocess.run([os.environ["REDUCECTL"], "merge", tmp_path / "1", tmp_path / "2", "--state", tmp_path / "whole"],
                            capture_output=True, text=True, timeout=60, check=True)
    assert "4950" in merged.stdout
    assert State((tmp_path / "whole").read_bytes()) == State.merge([first, second])


def test_states_that_do_not_go_together(local):
    of_floats, of_ints, of_arrays = state_of(local, [1.0]), state_of(local, [1]), state_of(local, [1.0], axis=0)
    with pytest.raises(reduced.InvalidArgumentError, match=r"states\[1\]: dtype"):
        State.merge([of_floats, of_ints])
    with pytest.raises(reduced.InvalidArgumentError, match=r"^states\[1\]: got a state of arrays of results; allowed: of one result for "
                       "each op, as the first is$"):
        State.merge([of_floats, of_arrays])
    with pytest.raises(reduced.InvalidArgumentError, match=r"^states\[1\]: got a state of one result for each op; allowed: of arrays of "
                       "results, as the first is$"):
        State.merge([of_arrays, of_floats])
    with pytest.raises(reduced.InvalidArgumentError, match="states: got none"):
        State.merge([])
    for other in (state_of(local, [1.0], ["sum"]), state_of(local, [1.0], nan="omit"), state_of(local, [1.0], ddof=1)):
        with pytest.raises(reduced.InvalidArgumentError, match=r"states\[1\]"):
            State.merge([of_floats, other])


@PROPERTY
@given(array=hnp.arrays(st.sampled_from(["f4", "i1"]), hnp.array_shapes(min_dims=2, max_dims=4, min_side=2, max_side=6)), data=st.data())
def test_blocks_have_the_state_of_the_whole(local, array, data):
    axis = data.draw(st.integers(0, array.ndim - 1))
    kept = data.draw(st.sampled_from([None, *range(array.ndim)]).filter(lambda kept: kept != axis))
    cuts = sorted(data.draw(st.lists(st.integers(0, array.shape[axis]), max_size=3)))
    options = {} if kept is None else {"axis": tuple(dimension for dimension in range(array.ndim) if dimension != kept)}
    blocks = [block for block in np.split(array, cuts, axis) if block.size > 0]
    rows = math.prod(extent for dimension, extent in enumerate(array.shape[:axis]) if dimension != kept)
    merged = State.merge([local._state(block, EXACT, {"nan": "omit", **options}) for block in blocks], rows=rows)
    assert merged == local._state(array, EXACT, {"nan": "omit", **options})


def test_rows_that_parts_do_not_have(local):
    with pytest.raises(reduced.InvalidArgumentError, match=r"states\[0\]: count: got 4 with 3 rows; allowed: as many elements in each row"):
        State.merge([state_of(local, np.arange(4))], rows=3)
    with pytest.raises(reduced.InvalidArgumentError, match="rows: got 0; allowed: 1 or more"):
        State.merge([state_of(local, np.arange(4))], rows=0)
    with pytest.raises(TypeError, match="rows: got 1.5; allowed: whole numbers"):
        State.merge([state_of(local, np.arange(4))], rows=1.5)


@PROPERTY
@given(array=hnp.arrays(st.sampled_from(["f4", "f8", "i2"]), hnp.array_shapes(min_dims=2, max_dims=3, min_side=2, max_side=9)),
       data=st.data())
def test_parts_of_arrays_of_results(local, remote, array, data):
    axis = data.draw(st.integers(0, array.ndim - 1))
    where = data.draw(st.none() | hnp.arrays("?", array.shape))
    cut = data.draw(st.integers(1, array.shape[axis] - 1))
    options = {"axis": axis, "nan": "omit", "empty": "fill"}
    masks = [None, None] if where is None else np.split(where, [cut], axis)
    states = [client.reduce(part, EXACT, state=True, results=False, **options, **({} if mask is None else {"where": mask})).state
              for client, part, mask in zip((local, remote), np.split(array, [cut], axis), masks)]
    whole = remote.reduce(array, EXACT, **options, **({} if where is None else {"where": where}), state=True)
    merged = State.merge(states)
    assert merged == whole.state == State(bytes(merged)) and merged.size == array.size
    results = merged.results
    assert isinstance(results, reduced.ArrayResults) and results.group_keys is None and list(results) == EXACT
    for op in EXACT:
        assert results[op].dtype == whole[op].dtype and results[op].tobytes() == whole[op].tobytes(), op


def test_parts_by_keys(local, remote):
    random = np.random.default_rng(5)
    array, keys = random.normal(size=(1000, 2)) * 10.0 ** random.integers(-30, 30, (1000, 2)), random.integers(-9, 9, 1000)
    found = [client.reduce(array[rows], "sum,argmax", keys=keys[rows], state=True)
             for client, rows in ((local, slice(0, 3)), (remote, slice(3, 1000)))]
    assert all(np.array_equal(part.state.results.sum, part.sum) for part in found)
    whole = remote.reduce(array, "sum,argmax", keys=keys)
    merged = State.merge(part.state for part in found).results
    assert np.array_equal(merged.group_keys, whole.group_keys) and np.array_equal(merged.group_keys, np.unique(keys))
    assert merged.sum.tobytes() == whole.sum.tobytes() and np.array_equal(merged.argmax, whole.argmax)
    state = pickle.loads(pickle.dumps(found[0].state))
    assert state == found[0].state and repr(state).startswith("State(6 elements, ")
    with pytest.raises(reduced.InvalidArgumentError, match=r"states\[1\]"):
        State.merge([state, remote.reduce(array[:3], "sum,argmax", axis=0, state=True).state])
    with pytest.raises(reduced.ResourceExhaustedError, match="states of 1000000000 outputs"):
        local.reduce(array[:3, 0], "sum", keys=keys[:3] * 0, groups=10**9, state=True, results=False)
    with pytest.raises(reduced.InvalidArgumentError, match="results: got false without"):
        local.reduce(array, "sum", axis=0, results=False)
    copied = pickle.loads(pickle.dumps(whole))
    assert np.array_equal(copied.group_keys, whole.group_keys) and np.array_equal(copied.sum, whole.sum) and copied.state is None


@PROPERTY
@given(data=st.data())
def test_hostile_bytes(local, data):
    good = bytearray(bytes(state_of(local, np.arange(10.0), **data.draw(st.sampled_from([{}, {"axis": ()}])))))
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    for given_bytes in (bytes(damaged), bytes(good[: data.draw(st.integers(0, len(good)))]), data.draw(st.binary(max_size=200))):
        try:
            _ = State(given_bytes).results  # a number was changed
        except (reduced.InvalidArgumentError, reduced.OutOfRangeError):
            pass
    for nothing in (b"", b"\0", b"not a state"):
        with pytest.raises(reduced.InvalidArgumentError, match=r"states\[0\]: got \d+ bytes"):
            State(nothing)

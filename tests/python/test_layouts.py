"""Arrays in any order of dimensions along axes: not copied, and with the results, positions and errors of the same array in C order."""

import itertools
import pickle
import tracemalloc

import numpy as np
import pytest
import reduced

OPS = "sum,mean,min,max,argmin,argmax,count,std,median,topk(2)"


def layouts(array):
    """The same elements in every order of the dimensions, and reversed."""
    for order in itertools.permutations(range(array.ndim)):
        back = np.argsort(order)
        there = np.ascontiguousarray(array.transpose(order)).transpose(back)
        yield order, there
        yield (*order, "reversed"), np.ascontiguousarray(array[::-1].transpose(order)).transpose(back)[::-1]
        yield (*order, "last reversed"), np.ascontiguousarray(array[..., ::-1].transpose(order)).transpose(back)[..., ::-1]
    yield "big-endian", np.asfortranarray(array).astype(array.dtype.newbyteorder(">"), order="K")
    yield "steps", np.repeat(array, 2, axis=-1)[..., ::2]
    yield "equal", np.broadcast_to(array[:1], array.shape)


@pytest.mark.parametrize("shape", [(4, 3), (3, 1, 5), (2, 3, 4), (1, 4)], ids=str)
def test_every_order_of_dimensions(local, shape):
    random = np.random.default_rng(3)
    array = random.integers(-5, 5, shape).astype("f8")
    axes = [axis for count in range(1, len(shape) + 1) for axis in itertools.permutations(range(len(shape)), count)]
    mask = random.random(shape) < 0.6
    for name, given in layouts(array):
        assert given.shape == shape
        plain = np.ascontiguousarray(given)
        for axis in axes:
            for options in ({}, {"keepdims": True}, {"where": mask, "empty": "fill"}, {"where": np.asfortranarray(mask), "empty": "fill"}, {"where": mask[:1], "empty": "fill"}):
                found, right = (local.reduce(each, OPS, axis=axis, **options) for each in (given, plain))
                assert list(found) == list(right)
                for op in right:
                    assert found[op].shape == right[op].shape and np.array_equal(found[op], right[op], equal_nan=True), (name, axis, op, options.keys())
        found, right = (local.reduce(each, OPS, where=mask, empty="fill") for each in (given, plain))
        assert all(np.array_equal(found[op], right[op], equal_nan=True) for op in right)


def test_on_every_client(client):
    array = np.asfortranarray(np.random.default_rng(2).normal(size=(40, 30, 5)))
    for axis in (0, 1, (0, 2), (1, 2)):
        assert np.array_equal(client.sum(array, axis), client.sum(array.copy("C"), axis))
    assert np.array_equal(client.argmax(array, axis=1), array.argmax(axis=1)) and np.array_equal(client.argmax(array.T, axis=(0, 1)), client.argmax(array.T.copy(), axis=(0, 1)))
    again = pickle.loads(pickle.dumps(client.reduce(array, "sum", axis=0)))
    assert np.array_equal(again.sum, client.sum(array, 0))


def test_errors_name_the_output_of_the_array(local):
    array = np.asfortranarray(np.ones((3, 2, 4)))
    mask = np.ones((3, 2, 4), "?")
    mask[2, :, 1] = False
    with pytest.raises(reduced.InvalidArgumentError, match=r"^output \[2, 1\]: op min: got an"):
        local.min(array, axis=1, where=mask)
    partly = local.reduce(array, "min,count", axis=1, where=mask)
    assert str(partly.errors["min"]).startswith("output [2, 1]: ") and partly["count"][2, 1] == 0
    wide = np.asfortranarray(np.full((2, 3), 2**62))
    wide[1, 2] = 0
    with pytest.raises(OverflowError, match=r"^output \[0\]|integer"):
        local.sum(wide, axis=0)
    for axis, message in ((3, "axis"), ((0, 0), "axis"), (-4, "axis")):
        with pytest.raises(ValueError, match=message):
            local.sum(array, axis=axis)


def test_nothing_is_copied(local):
    array = np.asfortranarray(np.ones((1000, 1000)))
    local.sum(array, axis=0)
    for given, axis in ((array, 0), (array, 1), (array.T, 1), (array[::-1], 0), (np.ones((100, 100, 100)).transpose(1, 2, 0), (0, 2))):
        tracemalloc.start()
        local.sum(given, axis=axis)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < given.nbytes / 4

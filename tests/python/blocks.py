"""Arrays, how they are cut, and what is asked of them, for tests of blocks; and whether results are the same."""

import numpy as np
import reduced
from hypothesis import strategies as st

OPS = ["sum", "mean", "var", "std", "l1", "l2", "sum_squares", "min", "max", "range", "argmin", "argmax", "any", "all", "count",
       "count_nonzero", "nan_count", "median", "quantile(0.25,1,0.1;method=nearest)", "quantile(0.5)", "histogram(-1,2,5)", "topk(2)",
       "argtopk( 3)", "bottomk(1)", "argbottomk(2)", "distinct", "distinct_exact"]
# With y and weights.
PAIR_OPS = ["dot", "cov", "corr", "slope", "intercept", "distance_l1", "distance_l2", "distance_max", "cosine", "weighted_sum", "weighted_mean",
            "weighted_var", "weighted_std", "compare(rtol=0.5)", "compare(equal_nan=true)", "sum", "argmax", "median"]
DTYPES = ["f4", "f8", "f2", "i1", "i4", "i8", "u2", "u8", "?"]


def array_of(random, shape, dtype):
    """Elements of many magnitudes, equal ones, and special ones of floats."""
    dtype = np.dtype(dtype)
    if dtype.kind != "f":
        return random.integers(0, 2 if dtype.kind == "b" else 9, shape).astype(dtype)
    array = random.normal(size=shape) * 10.0 ** random.integers(-3, 4, shape)
    special = random.choice([0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 4.0], shape)
    return np.where(random.random(shape) < random.choice([0, 0.3, 1]), special, array).astype(dtype)


def cut_of(random, extent):
    """The sizes of parts of so many elements, some of which may be 0."""
    cuts = sorted(random.integers(0, extent + 1, random.integers(0, 4)))
    return tuple(int(size) for size in np.diff([0, *cuts, extent]))


def question_of(random, dimensions=3):
    """An array, and options of its reduction, of which keys and where are in memory."""
    ndim = int(random.integers(1, dimensions + 1))
    shape = tuple(int(extent) for extent in random.integers(1, 9, ndim))
    if random.integers(10) == 0:
        shape = (*shape[:-1], 0)
    array = array_of(random, shape, random.choice(DTYPES))
    options = {"nan": str(random.choice(["propagate", "omit"])), "ddof": int(random.integers(2))}
    kind = random.choice(["whole", "axis", "axis", "keys", "keepdims"])
    if kind == "axis":
        axes = tuple(int(axis - ndim * random.integers(2)) for axis in random.permutation(ndim)[: random.integers(0, ndim + 1)])
        options["axis"] = axes[0] if len(axes) == 1 else axes
    if kind == "keys":
        options["keys"] = random.integers(-2, 4, shape[0]).astype(random.choice(["i1", "i8"]))
        if random.integers(2):
            options |= {"groups": int(random.integers(1, 6)), "outside": "drop"}
    if kind == "keepdims" or (kind == "axis" and random.integers(2)):
        options["keepdims"] = True
    if options.get("axis") != () and random.integers(2):
        where = random.random(shape) < random.choice([0.1, 0.7, 1])
        options["where"] = where[tuple(slice(0, 1) if random.random() < 0.2 and extent > 0 else slice(None) for extent in shape)]
    if options.keys() & {"axis", "keys", "where"}:
        options["empty"] = str(random.choice(["error", "fill", "fill"]))
    return array, options


def others_of(random, array):
    """y and weights of an array, whose dtypes go with it; one of them may broadcast."""
    dtypes = [dtype for dtype in DTYPES if (dtype[0] == "f") == (array.dtype.kind == "f")]
    y, weights = (array_of(random, array.shape, random.choice(dtypes)) for _ in range(2))
    y = np.where(random.random(y.shape) < 0.5, y, array).astype(y.dtype)
    if random.integers(3) == 0 and 0 not in array.shape:
        weights = weights[tuple(slice(0, 1) if random.random() < 0.4 else slice(None) for _ in array.shape)]
    return {"y": y, "weights": weights}


@st.composite
def questions(draw):
    """A random generator, and what question_of gives."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return random, *question_of(random)


def assert_same(results, right):
    """The bits, but for the sign of NaNs, the dtypes and the shapes."""
    values, errors = dict(right), right.errors
    assert list(results) == list(values) and results.errors.keys() == errors.keys()
    assert all(type(results.errors[op]) is type(error) for op, error in errors.items())
    for op, value in values.items():
        value, mine = np.asarray(value), np.asarray(results[op])
        assert (mine.dtype, mine.shape) == (value.dtype, value.shape), op
        known = value == value
        assert np.array_equal(known, mine == mine) and mine[known].tobytes() == value[known].tobytes(), (op, mine, value)
    assert isinstance(results, reduced.ArrayResults) == isinstance(right, reduced.ArrayResults)
    if isinstance(right, reduced.ArrayResults):
        assert (results.group_keys is None) == (right.group_keys is None)
        if right.group_keys is not None:
            assert results.group_keys.dtype == right.group_keys.dtype and np.array_equal(results.group_keys, right.group_keys)


def answer(reduce):
    """The results of the ops that have one, or the error of all."""
    try:
        return reduce()
    except reduced.Error as error:
        return error


def assert_same_answer(mine, right):
    """Results that are the same, or errors of one kind, of whichever output and op."""
    if isinstance(right, reduced.Error):
        assert type(mine) is type(right), (mine, right)
    else:
        assert not isinstance(mine, Exception), mine
        assert_same(mine, right)

"""A method for each op, for all that has `reduce`."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar, Unpack, overload

import numpy.typing as npt

from reduced import _distribution, _pairs
from reduced._distribution import Plan
from reduced._options import Along, AlongOptions, Axis, AxisOptions, Interpolation, KeyOptions, OneOptions, Options, WholeOptions, along, named

if TYPE_CHECKING:
    from reduced._partition import ResidentArray

    # Arrays without labels, of which the results of an op are known: numbers of whole arrays, else arrays.
    Plain: TypeAlias = npt.NDArray[Any] | Sequence[float] | Sequence[Sequence[float]] | ResidentArray

# What methods give, or what is to be awaited: numbers of the array's dtype or one near it, floats, counts and indexes, truth values; arrays;
# what histogram, topk, compare and fingerprint give.
N = TypeVar("N", covariant=True)
F = TypeVar("F", covariant=True)
I = TypeVar("I", covariant=True)  # noqa: E741
B = TypeVar("B", covariant=True)
A = TypeVar("A", covariant=True)
H = TypeVar("H", covariant=True)
T = TypeVar("T", covariant=True)
C = TypeVar("C", covariant=True)
S = TypeVar("S", covariant=True)


class Reduction(Protocol[T, A]):
    """A method of an op of one array. What has labels, such as a frame, gives what has labels."""

    @overload
    def __call__(self, array: Plain, axis: None = None, *, weights: Any = None, **options: Unpack[WholeOptions]) -> T: ...
    @overload
    def __call__(self, array: Plain, axis: Along, *, weights: Any = None, **options: Unpack[AlongOptions]) -> A: ...
    @overload
    def __call__(self, array: Plain, axis: None = None, *, keys: Any, weights: Any = None, **options: Unpack[KeyOptions]) -> A: ...
    @overload
    def __call__(self, array: Any, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any: ...


class Pair(Protocol[T, A]):
    """A method of an op of two arrays."""

    @overload
    def __call__(self, array: Plain, y: Any, *, axis: None = None, **options: Unpack[WholeOptions]) -> T: ...
    @overload
    def __call__(self, array: Plain, y: Any, *, axis: Along, **options: Unpack[AlongOptions]) -> A: ...
    @overload
    def __call__(self, array: Any, y: Any, **options: Unpack[OneOptions]) -> Any: ...


class Weighted(Protocol[T, A]):
    """A method of an op of an array and its weights."""

    @overload
    def __call__(self, array: Plain, weights: Any, *, axis: None = None, **options: Unpack[WholeOptions]) -> T: ...
    @overload
    def __call__(self, array: Plain, weights: Any, *, axis: Along, **options: Unpack[AlongOptions]) -> A: ...
    @overload
    def __call__(self, array: Any, weights: Any, **options: Unpack[OneOptions]) -> Any: ...


def _reduction(op: str, doc: str, *, weighted: bool = False) -> Any:
    """`weighted`: with the option `weights` it is the weighted op."""

    def method(self: Any, array: Any, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        return self._one(op, array, along(axis, options))

    def with_weights(self: Any, array: Any, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        return self._one(op if options.get("weights") is None else f"weighted_{op}", array, along(axis, options))

    return _called(op, doc, with_weights if weighted else method)


def _pair(op: str, doc: str, **defaults: Any) -> Any:
    def method(self: Any, array: Any, y: Any, **options: Unpack[OneOptions]) -> Any:
        return self._one(op, array, {**defaults, **options, "y": y})

    return _called(op, doc, method)


def _weighted(op: str, doc: str) -> Any:
    def method(self: Any, array: Any, weights: Any, **options: Unpack[OneOptions]) -> Any:
        return self._one(op, array, {**options, "weights": weights})

    return _called(op, doc, method)


def _called(op: str, doc: str, method: Any) -> Any:
    method.__name__, method.__qualname__, method.__doc__ = op, f"Ops.{op}", doc
    return method


class Ops(Generic[N, F, I, B, A, H, T, C, S]):
    """Each method is one op of `reduce`, with its options, and gives the result alone.

    To ask for several ops at once is one call of `reduce`, which reads the array once.
    """

    def _one(self, op: str, array: Any, options: Options) -> Any:
        raise NotImplementedError

    def _planned(self, plan_of: Callable[[Any, Options], Plan], array: Any, options: Options) -> Any:
        raise NotImplementedError

    sum: Reduction[N, A] = _reduction("sum", "Sum of the elements; 0 if empty. With `weights`: of their products.", weighted=True)
    prod: Reduction[N, A] = _reduction("prod", "Product of the elements; 1 if empty.")
    min: Reduction[N, A] = _reduction("min", "Smallest element; -0 is below +0.")
    max: Reduction[N, A] = _reduction("max", "Largest element; +0 is above -0.")
    range: Reduction[N, A] = _reduction("range", "`max` - `min`, as `numpy.ptp`.")
    argmin: Reduction[I, A] = _reduction("argmin", "Index of `min` in C order; the lowest on ties, the first NaN wins.")
    argmax: Reduction[I, A] = _reduction("argmax", "Index of `max` in C order; the lowest on ties, the first NaN wins.")
    mean: Reduction[F, A] = _reduction("mean",
        """Arithmetic mean; NaN if empty. With `weights`: `numpy.average`, exactly; NaN if they add up to 0.

    >>> import numpy as np, reduced
    >>> c = reduced.connect("local:")
    >>> print(c.mean(np.array([[1.0, 2.0], [4.0, 8.0]]), weights=[3, 1], axis=0))
    [1.75 3.5 ]
    """, weighted=True)

    var: Reduction[F, A] = _reduction("var",
        "Variance, divided by n - ddof; NaN if n <= ddof. With `weights`: the weighted one, divided by their sum - ddof.", weighted=True)
    std: Reduction[F, A] = _reduction("std", "Square root of `var`.", weighted=True)
    sum_squares: Reduction[N, A] = _reduction("sum_squares", "Sum of the squared elements.")
    l1: Reduction[N, A] = _reduction("l1", "Sum of the absolute values.")
    l2: Reduction[F, A] = _reduction("l2", "Euclidean norm, as `numpy.linalg.norm` of all elements.")
    any: Reduction[B, A] = _reduction("any", "True if an element is non-zero; NaN is.")
    all: Reduction[B, A] = _reduction("all", "True if no element is zero.")
    count: Reduction[I, A] = _reduction("count", "How many elements there are, without omitted NaNs.")
    count_nonzero: Reduction[I, A] = _reduction("count_nonzero", "How many elements are non-zero; NaN is.")
    nan_count: Reduction[I, A] = _reduction("nan_count", "How many elements are NaN; 0 for integers.")
    bit_and: Reduction[N, A] = _reduction("bit_and", "Bitwise and of integers; all ones if empty.")
    bit_or: Reduction[N, A] = _reduction("bit_or", "Bitwise or of integers; 0 if empty.")
    bit_xor: Reduction[N, A] = _reduction("bit_xor", "Bitwise exclusive or of integers; 0 if empty.")

    @overload
    def median(self, array: Plain, axis: Axis = None, *, method: Interpolation | None = None, **options: Unpack[AxisOptions]) -> N | A: ...
    @overload
    def median(self, array: Any, axis: Axis = None, *, method: Interpolation | None = None, **options: Unpack[AxisOptions]) -> Any: ...
    def median(self, array: Any, axis: Axis = None, *, method: Interpolation | None = None, **options: Unpack[AxisOptions]) -> Any:
        """The median, exactly; float64 unless `method` is "lower", "higher" or "nearest", or there are `weights`. See `quantile`."""
        return self._planned(functools.partial(_distribution.median, method=method), array, along(axis, options))

    @overload
    def quantile(self, array: Plain, q: npt.ArrayLike, axis: Axis = None, *, method: Interpolation | None = None, **options: Unpack[AxisOptions]) -> N | A: ...
    @overload
    def quantile(self, array: Any, q: npt.ArrayLike, axis: Axis = None, *, method: Interpolation | None = None, **options: Unpack[AxisOptions]) -> Any: ...
    def quantile(self, array: Any, q: npt.ArrayLike, axis: Axis = None, *, method: Interpolation | None = None, **options: Unpack[AxisOptions]) -> Any:
        """Quantiles, exactly, as `numpy.quantile`: with the dimensions of `q` first, of a number without.

        `method`: "linear" (by default) and "midpoint" are float64, "lower", "higher" and "nearest" elements of the array. With `weights`
        "inverted_cdf", an element: the least one up to which the weights add up to q times their sum, without rounding. ValueError: a weight
        is below 0. Up to 1024 at once, in a few reads. With `keep` they are a `ResidentArray`, whose last dimension is that of the quantiles.

        >>> import numpy as np, reduced
        >>> c = reduced.connect("local:")
        >>> print(c.quantile(np.arange(1, 101), [0.25, 0.5, 0.75]), c.median([-1, 0, 0, 0, 1, 1]))
        [25.75 50.5  75.25] 0.0
        >>> print(c.quantile([1, 2, 3], [0.5, 0.75], weights=[3, 1, 1]), c.median([1.5, 9.0], weights=[1, 1]))
        [1 2] 1.5
        """
        return self._planned(functools.partial(_distribution.quantile, q=q, method=method), array, along(axis, options))

    @overload
    def histogram(self, array: Plain, bins: Any = 10, range: tuple[float, float] | None = None, **options: Unpack[Options]) -> H: ...
    @overload
    def histogram(self, array: Any, bins: Any = 10, range: tuple[float, float] | None = None, **options: Unpack[Options]) -> Any: ...
    def histogram(self, array: Any, bins: Any = 10, range: tuple[float, float] | None = None, **options: Unpack[Options]) -> Any:
        """The counts of elements in bins, and the edges of these, as `numpy.histogram`.

        `bins`: how many, from `range`, or from the smallest element to the largest; or their edges, finite and ascending. With `axis`,
        `segments`, `lengths` or `keys` the last dimension of the counts is that of the bins. With `keep` no two edges are equal.

        >>> import numpy as np, reduced
        >>> print(*reduced.connect("local:").histogram(np.array([1, 2, 2, 9]), bins=[0, 2, 4, 9]))
        [1 2 1] [0 2 4 9]
        """
        return self._planned(functools.partial(_distribution.histogram, bins=bins, range=range), array, options)

    @overload
    def topk(self, array: Plain, k: int, axis: Axis = None, **options: Unpack[AxisOptions]) -> T: ...
    @overload
    def topk(self, array: Any, k: int, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any: ...
    def topk(self, array: Any, k: int, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """The k largest elements, descending, and their indexes: `values` and `indexes`. The lowest index comes first on ties, and NaN
        before all numbers. With `axis` and the like in the last dimension.

        >>> import reduced
        >>> print(*reduced.connect("local:").topk([3, 9, 5, 9], 2))
        [9 9] [1 3]
        """
        return self._planned(functools.partial(_distribution.top, op="topk", k=k), array, along(axis, options))

    @overload
    def bottomk(self, array: Plain, k: int, axis: Axis = None, **options: Unpack[AxisOptions]) -> T: ...
    @overload
    def bottomk(self, array: Any, k: int, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any: ...
    def bottomk(self, array: Any, k: int, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """The k smallest elements, ascending, and their indexes: as `topk`."""
        return self._planned(functools.partial(_distribution.top, op="bottomk", k=k), array, along(axis, options))

    @overload
    def argtopk(self, array: Plain, k: int, axis: Axis = None, **options: Unpack[AxisOptions]) -> A: ...
    @overload
    def argtopk(self, array: Any, k: int, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any: ...
    def argtopk(self, array: Any, k: int, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """The indexes of `topk` alone."""
        return self._one(f"argtopk({operator.index(k)})", array, along(axis, options))

    @overload
    def argbottomk(self, array: Plain, k: int, axis: Axis = None, **options: Unpack[AxisOptions]) -> A: ...
    @overload
    def argbottomk(self, array: Any, k: int, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any: ...
    def argbottomk(self, array: Any, k: int, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """The indexes of `bottomk` alone."""
        return self._one(f"argbottomk({operator.index(k)})", array, along(axis, options))

    @overload
    def distinct(self, array: Plain, axis: Axis = None, *, exact: bool = False, **options: Unpack[AxisOptions]) -> I | A: ...
    @overload
    def distinct(self, array: Any, axis: Axis = None, *, exact: bool = False, **options: Unpack[AxisOptions]) -> Any: ...
    def distinct(self, array: Any, axis: Axis = None, *, exact: bool = False, **options: Unpack[AxisOptions]) -> Any:
        """How many different values there are: -0 and 0 are one, and so are all NaNs. Of dtypes of more than 16 bits an estimate, with a
        standard error of 0.81%, the same on every engine; `exact`: exactly.
        """
        return self._one("distinct_exact" if exact else "distinct", array, along(axis, options))

    distinct_exact: Reduction[I, A] = _reduction("distinct_exact", "`distinct`, exactly.")
    mode: Reduction[N, A] = _reduction("mode", "The most frequent value, the lowest on ties; of dtypes of 8 and 16 bits.")
    skew: Reduction[F, A] = _reduction("skew",
        "Skewness of the population, as `scipy.stats.skew`; NaN if the elements are equal, or there is none.")
    kurtosis: Reduction[F, A] = _reduction("kurtosis",
        "Excess kurtosis of the population, as `scipy.stats.kurtosis`; NaN if the elements are equal, or there is none.")

    @overload
    def fingerprint(self, array: Plain, axis: Axis = None, *, shape: Sequence[int] | None = None, offset: Sequence[int] | None = None, **options: Unpack[AxisOptions]) -> S | A: ...
    @overload
    def fingerprint(self, array: Any, axis: Axis = None, *, shape: Sequence[int] | None = None, offset: Sequence[int] | None = None, **options: Unpack[AxisOptions]) -> Any: ...
    def fingerprint(self, array: Any, axis: Axis = None, *, shape: Sequence[int] | None = None, offset: Sequence[int] | None = None,
                    **options: Unpack[AxisOptions]) -> Any:
        """128 bits that tell whether an array is the same array: of the bits of all elements and their places, as 32 hexadecimal digits;
        with `axis` and the like an array of such texts. NaNs and -0 count as their bits; neither the dtype does but for its size, nor the shape.

        `shape`, `offset`: the array is a part of one of this shape, and begins at this index of it. Then the states of all parts merge to
        the fingerprint of that. It finds accidents, not attacks; of 2**32 elements that differ by one the chance of not seeing it is 2**-58
        or less (`FingerprintParameters` in reduced.proto).

        >>> import numpy as np, reduced
        >>> c, x = reduced.connect("local:"), np.arange(6, dtype="f4").reshape(2, 3)
        >>> print(c.fingerprint(x))
        1a2dfac9be0a90df0f02d3d679d41a8d
        >>> parts = [f"fingerprint(shape=2,3;offset=0,{first})" for first in (0, 1)]
        >>> states = [c.reduce(part, op, state=True).state for part, op in zip((x[:, :1], x[:, 1:]), parts)]
        >>> reduced.fingerprint_text(reduced.State.merge(states).results.fingerprint) == c.fingerprint(x)
        True
        """
        return self._planned(functools.partial(_distribution.fingerprint, shape=shape, offset=offset), array, along(axis, options))

    weighted_sum: Weighted[N, A] = _weighted("weighted_sum", "`sum` with weights.")
    weighted_mean: Weighted[F, A] = _weighted("weighted_mean", "`mean` with weights.")
    weighted_var: Weighted[F, A] = _weighted("weighted_var", "`var` with weights.")
    weighted_std: Weighted[F, A] = _weighted("weighted_std", "`std` with weights.")
    weighted_median: Weighted[N, A] = _weighted("weighted_median", "`median` with weights.")

    @overload
    def weighted_quantile(self, array: Plain, q: npt.ArrayLike, weights: Any, **options: Unpack[OneOptions]) -> N | A: ...
    @overload
    def weighted_quantile(self, array: Any, q: npt.ArrayLike, weights: Any, **options: Unpack[OneOptions]) -> Any: ...
    def weighted_quantile(self, array: Any, q: npt.ArrayLike, weights: Any, **options: Unpack[OneOptions]) -> Any:
        """`quantile` with weights."""
        both: Any = {**options, "weights": weights}
        return self.quantile(array, q, **both)

    dot: Pair[N, A] = _pair("dot", """Sum of the products of two arrays, rounded once; with `axis` as `numpy.vecdot`.

    >>> import reduced
    >>> print(reduced.connect("local:").dot([1e308, 1.0, -1e308], [10.0, 1.0, 10.0]))
    1.0
    """)

    cov: Pair[F, A] = _pair("cov",
        "Covariance of two arrays, divided by n - ddof; `ddof` is 1 by default, as in `numpy.cov` and pandas; NaN if n <= ddof.", ddof=1)
    corr: Pair[F, A] = _pair("corr", """Pearson correlation of two arrays; NaN if one is constant.

    >>> import numpy as np, reduced
    >>> x, y = np.array([[1.0, 2.0, 4.0], [3.0, 3.0, 3.0]]), np.array([2.0, 4.0, 8.0])
    >>> print(reduced.connect("local:").corr(x, y, axis=1))
    [ 1. nan]
    """)

    @overload
    def cov_matrix(self, array: Plain, **options: Unpack[Options]) -> A: ...
    @overload
    def cov_matrix(self, array: Any, **options: Unpack[Options]) -> Any: ...
    def cov_matrix(self, array: Any, **options: Unpack[Options]) -> Any:
        """Covariances of each two columns of an array, along its last dimension of 1 to 64, in one read: as
        `numpy.cov(array, rowvar=False)`. Divided by n - ddof; `ddof` is 1 by default. `axis`: all dimensions of the array but those of
        the results, which have two more, with the columns. With nan='omit' a pair of columns lacks the rows in which one of the two is
        NaN, as in pandas. There is no `where`, and there are no `keys`.
        """
        given: Options = {**options}
        return self._planned(functools.partial(_pairs.matrix, op="cov_matrix"), array, {"ddof": 1, **given})

    @overload
    def corr_matrix(self, array: Plain, **options: Unpack[Options]) -> A: ...
    @overload
    def corr_matrix(self, array: Any, **options: Unpack[Options]) -> Any: ...
    def corr_matrix(self, array: Any, **options: Unpack[Options]) -> Any:
        """Pearson correlations of each two columns of an array, as `cov_matrix` takes it; NaN of a constant column.

        >>> import numpy as np, reduced
        >>> print(reduced.connect("local:").corr_matrix(np.array([[1.0, 6.0], [2.0, 4.0], [4.0, 0.0]])))
        [[ 1. -1.]
         [-1.  1.]]
        """
        return self._planned(functools.partial(_pairs.matrix, op="corr_matrix"), array, options)

    slope: Pair[F, A] = _pair("slope",
        "Slope of the line y = slope x + intercept with the least squares, x being the array; NaN if that is constant.")
    intercept: Pair[F, A] = _pair("intercept", "Intercept of the line of `slope`.")
    distance_l1: Pair[N, A] = _pair("distance_l1", "Sum of |x - y| of two arrays.")
    distance_l2: Pair[F, A] = _pair("distance_l2", "Euclidean distance of two arrays.")
    distance_max: Pair[N, A] = _pair("distance_max", "Largest |x - y| of two arrays; 0 if empty.")
    cosine: Pair[F, A] = _pair("cosine", "Cosine of the angle between two arrays; NaN if one has zeros only.")

    @overload
    def compare(self, array: Plain, y: Any, *, rtol: float = 0, atol: float = 0, equal_nan: bool = False, **options: Unpack[OneOptions]) -> C: ...
    @overload
    def compare(self, array: Any, y: Any, *, rtol: float = 0, atol: float = 0, equal_nan: bool = False, **options: Unpack[OneOptions]) -> Any: ...
    def compare(self, array: Any, y: Any, *, rtol: float = 0, atol: float = 0, equal_nan: bool = False,
                **options: Unpack[OneOptions]) -> Any:
        """Where and how far two arrays differ, in one read of both: a `Comparison`. Two elements match if they are equal, or finite and
        |x - y| <= atol + rtol |y|, as in `numpy.isclose`, or both NaN with `equal_nan`.

        >>> import numpy as np, reduced
        >>> r = reduced.connect("local:").compare(np.array([1.0, 2.0, 3.0]), [1.0, 2.5, 3.0])
        >>> print(r.equal, r.mismatches, r.index, r.max_abs)
        False 1 (1,) 0.5
        """
        asked: Any = {**options, "y": y}
        return self._planned(functools.partial(_pairs.compare, rtol=rtol, atol=atol, equal_nan=equal_nan), array, asked)


for _method in list(vars(Ops).values()):
    if inspect.isfunction(_method) and not _method.__name__.startswith("_"):
        named(_method)

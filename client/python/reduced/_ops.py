"""A method for each op, for all that has `reduce`."""

from __future__ import annotations

import functools
import inspect
import operator
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict, TypeVar, cast, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt
from typing import TYPE_CHECKING, Unpack

from reduced import _core

if TYPE_CHECKING:
    from reduced._distribution import Plan

# The ops about two arrays, and the option that has the other one.
OPERANDS = _core.operands


Axis: TypeAlias = int | str | Sequence[int] | Sequence[str] | None
Nan: TypeAlias = Literal["propagate", "omit"]
Overflow: TypeAlias = Literal["error", "wrap", "saturate"]
Precision: TypeAlias = Literal["", "exact", "f64"]
Engine: TypeAlias = Literal["auto", "cpu", "cuda"]
Via: TypeAlias = Literal["auto", "inline", "stream", "region"]
Outside: TypeAlias = Literal["error", "drop"]
Empty: TypeAlias = Literal["error", "fill"]
Missing: TypeAlias = Literal["drop", "group"]
Method: TypeAlias = Literal["linear", "lower", "higher", "midpoint", "nearest"]


class _Options(TypedDict, total=False):
    """The options of a reduction but for `axis`, which methods also take as a positional argument: see `Options`."""

    nan: Nan
    ddof: int
    overflow: Overflow
    precision: Precision
    engine: Engine
    device: str
    pipeline: str
    block_size: int
    via: Via
    timeout: float | None
    state: bool
    results: bool
    keepdims: bool
    segments: Any
    lengths: Any
    keys: Any
    groups: int | None
    outside: Outside
    bucket: str | None
    missing: Missing
    sort: bool
    where: Any
    empty: Empty
    keep: bool
    ttl: float
    owner: str | None
    keep_attrs: bool


class OneOptions(_Options, total=False):
    """The options of a reduction of one array: see `Options`."""

    axis: Axis


class AxisOptions(_Options, total=False):
    """The options of a method that takes `axis` as a positional argument, too: see `Options`."""

    y: Any
    weights: Any


class Options(OneOptions, total=False):
    """The options of a reduction. A line has the type of an option, its default, and what it says.

    nan: str = "propagate". "omit" leaves NaNs out. NaTs are left out unless "propagate" is given.
    ddof: int = 0. var, std and cov divide by n - ddof, weighted_var and weighted_std by the sum of the weights - ddof.
    overflow: str = "error". Of integer sums and products; or "wrap", "saturate".
    precision: str = "". Of float sums: "exact" or "f64"; by default exact, if the pipeline can.
    engine: str = "auto". Or "cpu", "cuda".
    device: str = "". Such as "cuda:1"; by default any.
    pipeline: str = "". One of the ladder; by default the engine's.
    block_size: int = 0. The threads of a block, for pipelines that take it; 0: the pipeline's.
    via: str = "auto". How the elements reach the server; or "inline", "stream", "region".
    timeout: float | None = None. In seconds; None: the client's, and a second more for each 64 MiB.
    state: bool = False. True fills in `Result.state`.
    results: bool = True. False, with `state`: no results, which a part of an array may not have by itself.

    Those of arrays of results. At most one of `axis`, `segments`, `lengths` and `keys` is given, and `where` with any of them or alone.

    axis: int | str | Sequence[int] | Sequence[str] | None = None. The dimensions to reduce, of xarray by name; (): none, each element is
        an output; None: all.
    keepdims: bool = False. True: results have dimensions of 1 in place of those that were reduced.
    segments: array = None. Offsets of segments of the first dimension, int32 or int64, one more than segments.
    lengths: array = None. The lengths of segments of the first dimension, which add up to its size.
    keys: array = None. One for each item of the first dimension: items with the same key are a group. Integers, strings, categories, booleans,
        times or floats; a list of several such columns, or a frame; of a frame or an xarray object also the names of its own.
    groups: int | None = None. Of integer keys: 0 to groups - 1; None: those that there are, ascending (`ArrayResult.group_keys`).
    outside: str = "error". Other keys, with `groups`; "drop" leaves them out.
    bucket: str | None = None. Keys that are times count as the start of their "year", "quarter", "month", "week" (from Monday) or "day", or
        of stretches of a fixed length since 1970, such as "1h", "15min", "30s". Times with a zone count as the clock there shows them.
    missing: str = "drop". Leaves out items whose key is missing, in any of several columns; "group": missing is a key, the last one.
    sort: bool = True. Groups ascend by key; False: they have the order in which their keys first appear.
    where: array = None. bool, of a shape that broadcasts to the array's: only elements where it is True are there.
    empty: str = "error". min, max, argmin, argmax and range of no element: "fill" gives NaN for floats, for integers what any
        element would replace (range: 0), and -1 for an index. Likewise what topk and bottomk lack. By default outputs of pandas, polars and
        xarray have NaN or a missing value there.
    keep: bool = False. True: results are `ResidentArray`s on the server.
    ttl: float = 0. In seconds, with `keep`: results expire when they are idle for this long; 0: the server's default.
    owner: str | None = None. With `keep`: as of `Client.put`.
    keep_attrs: bool = False. True: results of xarray have the attributes of what was reduced.

    The other array of ops about two. Its shape broadcasts to the array's. Integers of one beside floats of the other become float64, if
    they can exactly. A pair of which one is missing is left out, and with nan="omit" one that has a NaN.

    y: array = None. Of dot, cov, corr and the like; the array and it broadcast as in NumPy.
    weights: array = None. Of weighted_mean and its like, and of the methods sum, mean, var and std. Those of the reduced dimensions
        alone will do, as in `numpy.average`.
    """

    y: Any
    weights: Any


# The values that options have when they are not given. The first ones are of every reduction, the others of arrays of results.
DEFAULTS: Options = {"engine": "auto", "device": "", "pipeline": "", "precision": "", "nan": "propagate", "overflow": "error", "ddof": 0,
                     "block_size": 0, "via": "auto", "timeout": None, "state": False, "results": True}
_OTHERS: Options = {"axis": None, "keepdims": False, "segments": None, "lengths": None, "keys": None, "groups": None, "outside": "error",
                    "bucket": None, "missing": "drop", "sort": True, "where": None, "empty": "error", "keep": False, "ttl": 0, "owner": None,
                    "keep_attrs": False, "y": None, "weights": None}


def _along(axis: Axis, options: AxisOptions) -> Options:
    return cast(Options, options if axis is None else {"axis": axis, **options})


_F = TypeVar("_F", bound=Callable[..., Any])


def named(function: _F) -> _F:
    """Shows each option of a function as a parameter of its signature, which help and completion read. Options remain those of its
    `**options`, by which type checkers know them."""
    signature = inspect.signature(function)
    given = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    annotations: dict[str, str] = {name: annotation for kind in (_Options, OneOptions, Options) for name, annotation in _written(kind).items()}
    every: dict[str, Any] = {**_OTHERS, **DEFAULTS}
    options = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=every[name], annotation=annotation)
               for name, annotation in annotations.items() if name not in signature.parameters]
    function.__signature__ = signature.replace(parameters=[*given, *options])  # type: ignore[attr-defined]
    return function


def _written(options: type) -> dict[str, str]:
    """The types of options as the source has them."""
    return {name: getattr(kind, "__forward_arg__", str(kind)) for name, kind in options.__annotations__.items()}


def _is_int(value: Any) -> bool:
    return isinstance(value, int | np.integer)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating)


# Of a type: whether a value has it, and which do, in words. Numbers with a point are times.
_KINDS: dict[Any, tuple[Callable[[Any], bool], str]] = {
    Any: (lambda value: True, "anything"),
    bool: (lambda value: isinstance(value, bool | np.bool_), "True, False"),
    float: (_is_number, "seconds"),
    float | None: (lambda value: value is None or _is_number(value), "seconds, or None"),
    int: (_is_int, "whole numbers"),
    int | None: (lambda value: value is None or _is_int(value), "whole numbers, or None"),
    **dict.fromkeys((Axis, int | tuple[int, ...] | None), (
        lambda value: value is None or (all(map(_is_int, value)) if isinstance(value, tuple | list) else _is_int(value)),
        "whole numbers, tuples of them, or None")),
    str: (lambda value: isinstance(value, str), "strings"),
    str | None: (lambda value: value is None or isinstance(value, str), "strings, or None"),
}
OPTIONS: dict[str, Any] = {name: str if get_origin(kind) is Literal else kind for name, kind in get_type_hints(Options).items()}
# Values that this process knows; the engine knows those of the others.
_VALUES: dict[str, tuple[str, ...]] = {"missing": get_args(Missing), "outside": get_args(Outside), "empty": get_args(Empty)}
_WHOLE = (int, int | None, Axis, int | tuple[int, ...] | None)
_OF_64_BITS = frozenset({"begin", "ddof", "groups", "rows"})


def check(kind: Any, **values: Any) -> None:
    """TypeError: a value has another type; it is named. ValueError: it is too large."""
    has_it, allowed = _KINDS[kind]
    for name, value in values.items():
        if not has_it(value):
            raise TypeError(f"{name}: got {reprlib.repr(value)}; allowed: {allowed}")
        bits = 64 if name in _OF_64_BITS else 32
        numbers = value if isinstance(value, tuple | list) else (value,)
        if kind in _WHOLE and any(number is not None and int(number).bit_length() >= bits for number in numbers):
            raise ValueError(f"{name}: got {reprlib.repr(value)}; allowed: whole numbers of {bits} bits")


def check_options(options: Mapping[str, Any]) -> None:
    """TypeError: there is no such option, or it has another type."""
    for name, value in options.items():
        if name not in OPTIONS:
            raise TypeError(f"option: got {name}; allowed: {', '.join(OPTIONS)}")
        check(OPTIONS[name], **{name: value})


class Ops:
    """Each method is one op of `reduce`, with its options, and gives the result alone.

    To ask for several ops at once is one call of `reduce`, which reads the array once.
    """

    def _one(self, op: str, array: Any, options: Options) -> Any:
        raise NotImplementedError

    def _planned(self, plan_of: Callable[[Any, Options], Plan], array: Any, options: Options) -> Any:
        raise NotImplementedError

    def _two(self, op: str, array: Any, options: OneOptions, **other: Any) -> Any:
        both: Any = {**options, **other}
        return self._one(op, array, both)

    def _weighted(self, op: str, array: Any, options: Options) -> Any:
        return self._one(op if options.get("weights") is None else f"weighted_{op}", array, options)

    def sum(self, array: Any, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """Sum of the elements; 0 if empty. With `weights`: of their products."""
        return self._weighted("sum", array, _along(axis, options))

    def prod(self, array: Any, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """Product of the elements; 1 if empty."""
        return self._one("prod", array, _along(axis, options))

    def min(self, array: Any, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """Smallest element; -0 is below +0."""
        return self._one("min", array, _along(axis, options))

    def max(self, array: Any, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """Largest element; +0 is above -0."""
        return self._one("max", array, _along(axis, options))

    def range(self, array: Any, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """`max` - `min`, as `numpy.ptp`."""
        return self._one("range", array, _along(axis, options))

    def argmin(self, array: Any, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """Index of `min` in C order; the lowest on ties, the first NaN wins."""
        return self._one("argmin", array, _along(axis, options))

    def argmax(self, array: Any, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """Index of `max` in C order; the lowest on ties, the first NaN wins."""
        return self._one("argmax", array, _along(axis, options))

    def mean(self, array: Any, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """Arithmetic mean; NaN if empty. With `weights`: `numpy.average`, exactly; NaN if they add up to 0.

        >>> import numpy as np, reduced
        >>> c = reduced.connect("local:")
        >>> print(c.mean(np.array([[1.0, 2.0], [4.0, 8.0]]), weights=[3, 1], axis=0))
        [1.75 3.5 ]
        """
        return self._weighted("mean", array, _along(axis, options))

    def var(self, array: Any, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """Variance, divided by n - ddof; NaN if n <= ddof. With `weights`: the weighted one, divided by their sum - ddof."""
        return self._weighted("var", array, _along(axis, options))

    def std(self, array: Any, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """Square root of `var`."""
        return self._weighted("std", array, _along(axis, options))

    def sum_squares(self, array: Any, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """Sum of the squared elements."""
        return self._one("sum_squares", array, _along(axis, options))

    def l1(self, array: Any, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """Sum of the absolute values."""
        return self._one("l1", array, _along(axis, options))

    def l2(self, array: Any, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """Euclidean norm, as `numpy.linalg.norm` of all elements."""
        return self._one("l2", array, _along(axis, options))

    def any(self, array: Any, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """True if an element is non-zero; NaN is."""
        return self._one("any", array, _along(axis, options))

    def all(self, array: Any, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """True if no element is zero."""
        return self._one("all", array, _along(axis, options))

    def count(self, array: Any, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """How many elements there are, without omitted NaNs."""
        return self._one("count", array, _along(axis, options))

    def count_nonzero(self, array: Any, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """How many elements are non-zero; NaN is."""
        return self._one("count_nonzero", array, _along(axis, options))

    def nan_count(self, array: Any, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """How many elements are NaN; 0 for integers."""
        return self._one("nan_count", array, _along(axis, options))

    def bit_and(self, array: Any, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """Bitwise and of integers; all ones if empty."""
        return self._one("bit_and", array, _along(axis, options))

    def bit_or(self, array: Any, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """Bitwise or of integers; 0 if empty."""
        return self._one("bit_or", array, _along(axis, options))

    def bit_xor(self, array: Any, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """Bitwise exclusive or of integers; 0 if empty."""
        return self._one("bit_xor", array, _along(axis, options))

    def median(self, array: Any, axis: Axis = None, *, method: Method = "linear", **options: Unpack[AxisOptions]) -> Any:
        """The median, exactly; float64 unless `method` is "lower", "higher" or "nearest". See `quantile`."""
        from reduced import _distribution

        return self._planned(functools.partial(_distribution.median, method=method), array, _along(axis, options))

    def quantile(self, array: Any, q: npt.ArrayLike, axis: Axis = None, *, method: Method = "linear", **options: Unpack[AxisOptions]) -> Any:
        """Quantiles, exactly, as `numpy.quantile`: with the dimensions of `q` first, of a number without.

        `method`: "linear" and "midpoint" are float64, "lower", "higher" and "nearest" elements of the array. Up to 1024 at once, in a few reads.
        With `keep` they are a `ResidentArray`, whose last dimension is that of the quantiles.

        >>> import numpy as np, reduced
        >>> c = reduced.connect("local:")
        >>> print(c.quantile(np.arange(1, 101), [0.25, 0.5, 0.75]), c.median([-1, 0, 0, 0, 1, 1]))
        [25.75 50.5  75.25] 0.0
        """
        from reduced import _distribution

        return self._planned(functools.partial(_distribution.quantile, q=q, method=method), array, _along(axis, options))

    def histogram(self, array: Any, bins: Any = 10, range: tuple[float, float] | None = None, **options: Unpack[Options]) -> Any:
        """The counts of elements in bins, and the edges of these, as `numpy.histogram`.

        `bins`: how many, from `range`, or from the smallest element to the largest; or their edges, finite and ascending. With `axis`,
        `segments`, `lengths` or `keys` the last dimension of the counts is that of the bins. With `keep` no two edges are equal.

        >>> import numpy as np, reduced
        >>> print(*reduced.connect("local:").histogram(np.array([1, 2, 2, 9]), bins=[0, 2, 4, 9]))
        [1 2 1] [0 2 4 9]
        """
        from reduced import _distribution

        return self._planned(functools.partial(_distribution.histogram, bins=bins, range=range), array, options)

    def topk(self, array: Any, k: int, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """The k largest elements, descending, and their indexes: `values` and `indexes`. The lowest index comes first on ties, and NaN
        before all numbers. With `axis` and the like in the last dimension.

        >>> import reduced
        >>> print(*reduced.connect("local:").topk([3, 9, 5, 9], 2))
        [9 9] [1 3]
        """
        from reduced import _distribution

        return self._planned(functools.partial(_distribution.top, op="topk", k=k), array, _along(axis, options))

    def bottomk(self, array: Any, k: int, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """The k smallest elements, ascending, and their indexes: as `topk`."""
        from reduced import _distribution

        return self._planned(functools.partial(_distribution.top, op="bottomk", k=k), array, _along(axis, options))

    def argtopk(self, array: Any, k: int, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """The indexes of `topk` alone."""
        return self._one(f"argtopk({operator.index(k)})", array, _along(axis, options))

    def argbottomk(self, array: Any, k: int, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """The indexes of `bottomk` alone."""
        return self._one(f"argbottomk({operator.index(k)})", array, _along(axis, options))

    def distinct(self, array: Any, axis: Axis = None, *, exact: bool = False, **options: Unpack[AxisOptions]) -> Any:
        """How many different values there are: -0 and 0 are one, and so are all NaNs. Of dtypes of more than 16 bits an estimate, with a
        standard error of 0.81%, the same on every engine; `exact`: exactly.
        """
        return self._one("distinct_exact" if exact else "distinct", array, _along(axis, options))

    def distinct_exact(self, array: Any, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """`distinct`, exactly."""
        return self._one("distinct_exact", array, _along(axis, options))

    def mode(self, array: Any, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """The most frequent value, the lowest on ties; of dtypes of 8 and 16 bits."""
        return self._one("mode", array, _along(axis, options))

    def skew(self, array: Any, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """Skewness of the population, as `scipy.stats.skew`; NaN if the elements are equal, or there is none."""
        return self._one("skew", array, _along(axis, options))

    def kurtosis(self, array: Any, axis: Axis = None, **options: Unpack[AxisOptions]) -> Any:
        """Excess kurtosis of the population, as `scipy.stats.kurtosis`; NaN if the elements are equal, or there is none."""
        return self._one("kurtosis", array, _along(axis, options))

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
        from reduced import _distribution

        return self._planned(functools.partial(_distribution.fingerprint, shape=shape, offset=offset), array, _along(axis, options))

    def weighted_sum(self, array: Any, weights: Any, **options: Unpack[OneOptions]) -> Any:
        """`sum` with weights."""
        return self._two("weighted_sum", array, options, weights=weights)

    def weighted_mean(self, array: Any, weights: Any, **options: Unpack[OneOptions]) -> Any:
        """`mean` with weights."""
        return self._two("weighted_mean", array, options, weights=weights)

    def weighted_var(self, array: Any, weights: Any, **options: Unpack[OneOptions]) -> Any:
        """`var` with weights."""
        return self._two("weighted_var", array, options, weights=weights)

    def weighted_std(self, array: Any, weights: Any, **options: Unpack[OneOptions]) -> Any:
        """`std` with weights."""
        return self._two("weighted_std", array, options, weights=weights)

    def dot(self, array: Any, y: Any, **options: Unpack[OneOptions]) -> Any:
        """Sum of the products of two arrays, rounded once; with `axis` as `numpy.vecdot`.

        >>> import reduced
        >>> print(reduced.connect("local:").dot([1e308, 1.0, -1e308], [10.0, 1.0, 10.0]))
        1.0
        """
        return self._two("dot", array, options, y=y)

    def cov(self, array: Any, y: Any, **options: Unpack[OneOptions]) -> Any:
        """Covariance of two arrays, divided by n - ddof; `ddof` is 1 by default, as in `numpy.cov` and pandas; NaN if n <= ddof."""
        return self._two("cov", array, {"ddof": 1, **options}, y=y)

    def corr(self, array: Any, y: Any, **options: Unpack[OneOptions]) -> Any:
        """Pearson correlation of two arrays; NaN if one is constant.

        >>> import numpy as np, reduced
        >>> x, y = np.array([[1.0, 2.0, 4.0], [3.0, 3.0, 3.0]]), np.array([2.0, 4.0, 8.0])
        >>> print(reduced.connect("local:").corr(x, y, axis=1))
        [ 1. nan]
        """
        return self._two("corr", array, options, y=y)

    def cov_matrix(self, array: Any, **options: Unpack[Options]) -> Any:
        """Covariances of each two columns of an array, along its last dimension of 1 to 64, in one read: as
        `numpy.cov(array, rowvar=False)`. Divided by n - ddof; `ddof` is 1 by default. `axis`: all dimensions of the array but those of
        the results, which have two more, with the columns. With nan='omit' a pair of columns lacks the rows in which one of the two is
        NaN, as in pandas. There is no `where`, and there are no `keys`.
        """
        from reduced import _pairs

        given: Options = {**options}
        return self._planned(functools.partial(_pairs.matrix, op="cov_matrix"), array, {"ddof": 1, **given})

    def corr_matrix(self, array: Any, **options: Unpack[Options]) -> Any:
        """Pearson correlations of each two columns of an array, as `cov_matrix` takes it; NaN of a constant column.

        >>> import numpy as np, reduced
        >>> print(reduced.connect("local:").corr_matrix(np.array([[1.0, 6.0], [2.0, 4.0], [4.0, 0.0]])))
        [[ 1. -1.]
         [-1.  1.]]
        """
        from reduced import _pairs

        return self._planned(functools.partial(_pairs.matrix, op="corr_matrix"), array, options)

    def slope(self, array: Any, y: Any, **options: Unpack[OneOptions]) -> Any:
        """Slope of the line y = slope x + intercept with the least squares, x being the array; NaN if that is constant."""
        return self._two("slope", array, options, y=y)

    def intercept(self, array: Any, y: Any, **options: Unpack[OneOptions]) -> Any:
        """Intercept of the line of `slope`."""
        return self._two("intercept", array, options, y=y)

    def distance_l1(self, array: Any, y: Any, **options: Unpack[OneOptions]) -> Any:
        """Sum of |x - y| of two arrays."""
        return self._two("distance_l1", array, options, y=y)

    def distance_l2(self, array: Any, y: Any, **options: Unpack[OneOptions]) -> Any:
        """Euclidean distance of two arrays."""
        return self._two("distance_l2", array, options, y=y)

    def distance_max(self, array: Any, y: Any, **options: Unpack[OneOptions]) -> Any:
        """Largest |x - y| of two arrays; 0 if empty."""
        return self._two("distance_max", array, options, y=y)

    def cosine(self, array: Any, y: Any, **options: Unpack[OneOptions]) -> Any:
        """Cosine of the angle between two arrays; NaN if one has zeros only."""
        return self._two("cosine", array, options, y=y)

    def compare(self, array: Any, y: Any, *, rtol: float = 0, atol: float = 0, equal_nan: bool = False,
                **options: Unpack[OneOptions]) -> Any:
        """Where and how far two arrays differ, in one read of both: a `Comparison`. Two elements match if they are equal, or finite and
        |x - y| <= atol + rtol |y|, as in `numpy.isclose`, or both NaN with `equal_nan`.

        >>> import numpy as np, reduced
        >>> r = reduced.connect("local:").compare(np.array([1.0, 2.0, 3.0]), [1.0, 2.5, 3.0])
        >>> print(r.equal, r.mismatches, r.index, r.max_abs)
        False 1 (1,) 0.5
        """
        from reduced import _pairs

        asked: Any = {**options, "y": y}
        return self._planned(functools.partial(_pairs.compare, rtol=rtol, atol=atol, equal_nan=equal_nan), array, asked)


for _method in list(vars(Ops).values()):
    if inspect.isfunction(_method) and not _method.__name__.startswith("_"):
        named(_method)

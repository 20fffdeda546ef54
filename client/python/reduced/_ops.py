"""A method for each op, for all that has `reduce`."""

from __future__ import annotations

from typing import Any, TypedDict

from typing import Unpack


class Options(TypedDict, total=False):
    """The options of a reduction; what is absent is as in parentheses."""

    engine: str  # "auto", "cpu" or "cuda" ("auto")
    device: str  # such as "cuda:1" (any)
    pipeline: str  # a pipeline of the ladder (the engine's default)
    precision: str  # of float sums: "exact" or "f64" (exact, if the pipeline can)
    nan: str  # "propagate" or "omit" ("propagate")
    overflow: str  # of integer sums and products: "error", "wrap" or "saturate" ("error")
    ddof: int  # var and std divide by n - ddof (0)
    block_size: int  # threads of a block, for pipelines that take it (0: their default)
    via: str  # "auto", "inline", "stream" or "region" ("auto")
    timeout: float | None  # seconds (the client's, and a second more for each 64 MiB)
    axis: int | tuple[int, ...] | None  # the dimensions to reduce: results are then ndarrays (all of them: scalars)
    keepdims: bool  # results have dimensions of 1 in place of those that were reduced (False)
    where: Any  # bool, of a shape that broadcasts to the array's: only elements where it is True are there (all)
    # Results are ndarrays with an item for each segment or group; at most one of axis, segments, lengths and keys.
    segments: Any  # offsets of segments of the first dimension, int32 or int64, one more than segments
    lengths: Any  # lengths of segments of the first dimension, which add up to its size
    keys: Any  # integers, one for each item of the first dimension: those with the same key are a group
    groups: int | None  # of keys: 0 to groups - 1 (those that there are, ascending: ArrayResult.group_keys)
    outside: str  # other keys, with groups: "error" or "drop" ("error")
    keep: bool  # with axis, where, segments, lengths or keys: the results are `ResidentArray`s on the server (False)
    empty: str  # min, max, argmin, argmax and range of no element, of ndarrays of results: "error" or "fill" ("error")
    state: bool  # fills in Result.state (False)
    results: bool  # False, with state: no results, which a part of an array may not have by itself (True)


class Ops:
    """Each method is one op of `reduce`, with its options, and gives the result alone.

    To ask for several ops at once is one call of `reduce`, which reads the array once.
    """

    def _one(self, op: str, array: Any, options: Options) -> Any:
        raise NotImplementedError

    def sum(self, array: Any, **options: Unpack[Options]) -> Any:
        """Sum of the elements; 0 if empty."""
        return self._one("sum", array, options)

    def prod(self, array: Any, **options: Unpack[Options]) -> Any:
        """Product of the elements; 1 if empty."""
        return self._one("prod", array, options)

    def min(self, array: Any, **options: Unpack[Options]) -> Any:
        """Smallest element; -0 is below +0."""
        return self._one("min", array, options)

    def max(self, array: Any, **options: Unpack[Options]) -> Any:
        """Largest element; +0 is above -0."""
        return self._one("max", array, options)

    def range(self, array: Any, **options: Unpack[Options]) -> Any:
        """`max` - `min`, as `numpy.ptp`."""
        return self._one("range", array, options)

    def argmin(self, array: Any, **options: Unpack[Options]) -> Any:
        """Index of `min` in C order; the lowest on ties, the first NaN wins."""
        return self._one("argmin", array, options)

    def argmax(self, array: Any, **options: Unpack[Options]) -> Any:
        """Index of `max` in C order; the lowest on ties, the first NaN wins."""
        return self._one("argmax", array, options)

    def mean(self, array: Any, **options: Unpack[Options]) -> Any:
        """Arithmetic mean; NaN if empty."""
        return self._one("mean", array, options)

    def var(self, array: Any, **options: Unpack[Options]) -> Any:
        """Variance, divided by n - ddof; NaN if n <= ddof."""
        return self._one("var", array, options)

    def std(self, array: Any, **options: Unpack[Options]) -> Any:
        """Square root of `var`."""
        return self._one("std", array, options)

    def sum_squares(self, array: Any, **options: Unpack[Options]) -> Any:
        """Sum of the squared elements."""
        return self._one("sum_squares", array, options)

    def l1(self, array: Any, **options: Unpack[Options]) -> Any:
        """Sum of the absolute values."""
        return self._one("l1", array, options)

    def l2(self, array: Any, **options: Unpack[Options]) -> Any:
        """Euclidean norm, as `numpy.linalg.norm` of all elements."""
        return self._one("l2", array, options)

    def any(self, array: Any, **options: Unpack[Options]) -> Any:
        """True if an element is non-zero; NaN is."""
        return self._one("any", array, options)

    def all(self, array: Any, **options: Unpack[Options]) -> Any:
        """True if no element is zero."""
        return self._one("all", array, options)

    def count(self, array: Any, **options: Unpack[Options]) -> Any:
        """How many elements there are, without omitted NaNs."""
        return self._one("count", array, options)

    def count_nonzero(self, array: Any, **options: Unpack[Options]) -> Any:
        """How many elements are non-zero; NaN is."""
        return self._one("count_nonzero", array, options)

    def nan_count(self, array: Any, **options: Unpack[Options]) -> Any:
        """How many elements are NaN; 0 for integers."""
        return self._one("nan_count", array, options)

    def bit_and(self, array: Any, **options: Unpack[Options]) -> Any:
        """Bitwise and of integers; all ones if empty."""
        return self._one("bit_and", array, options)

    def bit_or(self, array: Any, **options: Unpack[Options]) -> Any:
        """Bitwise or of integers; 0 if empty."""
        return self._one("bit_or", array, options)

    def bit_xor(self, array: Any, **options: Unpack[Options]) -> Any:
        """Bitwise exclusive or of integers; 0 if empty."""
        return self._one("bit_xor", array, options)

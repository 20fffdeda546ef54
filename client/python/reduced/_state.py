"""States: partial results, which merge without a server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from reduced import _core
from reduced._options import check
from reduced._result import ArrayResults, Results


def _merge(states: list[bytes], state: bool = False, rows: int = 1) -> tuple[Any, int, bytes, Any]:
    merge = _core.merge_arrays if states and _core.of_arrays(states[0]) else _core.merge
    return merge(states, results=False, state=state, rows=rows)


class Bracket(NamedTuple):
    """What a quantile is at least and at most."""

    low: Any
    high: Any


class State:
    """All that is known of a part of an array: about a kilobyte for each output, however large the part. Ops of the distribution
    take more: a median up to some megabytes, `distinct_exact` some bytes for each value.

    `Client.reduce(..., state=True).state` is one, and so is what `reducectl reduce --state FILE` writes: `bytes(state)` and
    `State(data)` convert. States of consecutive parts merge into that of the whole array, in any process, on any machine;
    exact results have the same bits however the array was cut. States pickle, and are equal if their bytes are.

    >>> import reduced
    >>> c = reduced.connect("local:")
    >>> first = c.reduce([0.1, 0.2], ["sum", "max"], state=True).state
    >>> second = c.reduce([0.3], ["sum", "max"], state=True).state
    >>> whole = reduced.State.merge([first, second])
    >>> print(whole.results)
    sum  0.6
    max  0.3

    Those of reductions along axes, by keys and under a mask have the state of every output. Parts follow each other along
    the first of the dimensions that are reduced, or along dimension 0 by keys, and a key that a part lacks has no element
    there. Blocks of an array that is cut along several dimensions merge along the last of these first (`rows`). `results` are then `ArrayResults`.

    >>> a, b = (c.reduce(x, "sum", keys=k, state=True).state for x, k in (([1.5, 2.0], [7, 3]), ([4.0], [7])))
    >>> r = reduced.State.merge([a, b]).results
    >>> print(r.group_keys, r.sum)
    [3 7] [2.  5.5]

    Bytes that are no state are an InvalidArgumentError.
    """

    __slots__ = ("_bytes",)

    def __init__(self, data: bytes) -> None:
        self._bytes = _merge([bytes(data)], state=True)[2]

    @classmethod
    def merge(cls, states: Iterable[State], *, rows: int = 1) -> State:
        """The state of consecutive parts together, in the order of the array.

        `rows`: of parts that lie side by side, as blocks of an array that is cut along another than the first of the dimensions
        that are reduced: as many as the dimensions before have elements together. Only `argmin`, `argmax`,
        `argtopk` and `argbottomk` depend on it.

        >>> import numpy as np, reduced
        >>> c, x = reduced.connect("local:"), np.arange(6).reshape(2, 3)
        >>> left, right = (c.reduce(block, "argmax", state=True).state for block in (x[:, :2], x[:, 2:]))
        >>> print(reduced.State.merge([left, right], rows=2).results.argmax)
        5

        InvalidArgumentError: there is no state, or they are of different questions, or have not as many elements in each row.
        """
        check(int, rows=rows)
        return cls._of(_merge([state._bytes for state in states], state=True, rows=rows)[2])

    @classmethod
    def _of(cls, data: bytes) -> State:
        state = cls.__new__(cls)
        state._bytes = data
        return state

    @property
    def results(self) -> Results:
        """The results for the elements of the state.

        An op that has none does not take the others with it: see `Results.errors`. If no op has one, it is raised:
        InvalidArgumentError, such as of `min` if there are only NaNs and they are omitted; OutOfRangeError, of an integer sum
        or product that overflows.
        """
        found: Results
        if _core.of_arrays(self._bytes):
            arrays, size, _, statuses = _core.merge_arrays([self._bytes], results=True, state=False, rows=1)
            found = ArrayResults._of_arrays(arrays, size)
        else:
            results, size, _, statuses = _core.merge([self._bytes], results=True, state=False, rows=1)
            found = Results(results, size)
        found._take_errors(statuses)
        return found

    @property
    def brackets(self) -> dict[str, Bracket]:
        """What each `median` and `quantile` of the state is at least and at most, where elements cannot be read again. `results` has
        them only if they are exact. Of floats, but for those next to 0, the bounds are within 2**-8 of each other; of 8 and 16 bits they
        are equal.

        >>> import numpy as np, reduced
        >>> state = reduced.connect("local:").reduce(np.arange(1.0, 1000.0), "median", state=True).state
        >>> low, high = state.brackets["median"]
        >>> bool(low <= 500 <= high < low * (1 + 2**-8))
        True

        InvalidArgumentError: the state has no results of any op.
        """
        if not _core.of_arrays(self._bytes):
            return {}
        low, high = (ArrayResults._of_arrays(bounds, self.size) for bounds in _core.brackets(self._bytes))
        return {op: Bracket(low[op], high[op]) for op in low}

    @property
    def size(self) -> int:
        """The number of elements."""
        return _merge([self._bytes])[1]

    def __bytes__(self) -> bytes:
        return self._bytes

    def __reduce__(self) -> tuple[Any, ...]:
        return State, (self._bytes,)

    def __eq__(self, other: object) -> bool:
        return self._bytes == other._bytes if isinstance(other, State) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._bytes)

    def __repr__(self) -> str:
        return f"State({self.size} elements, {len(self._bytes)} bytes)"

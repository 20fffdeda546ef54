"""Results, and how they are shown."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from reduced import _core
from reduced._arrays import numpy_dtype
from reduced._errors import Error, InvalidArgumentError, OutOfRangeError, UnimplementedError, error_of

if TYPE_CHECKING:
    from reduced._partition import ResidentArray
    from reduced._state import State

# Ops whose results are Python's int, as NumPy's count_nonzero gives one: indexes and counts.
_INTS = frozenset({"argmin", "argmax", "count", "count_nonzero", "nan_count", "distinct", "distinct_exact", "missing"})
# Likewise of ops whose answers are arrays, which are int64.
_INT_ARRAYS = frozenset({"histogram", "argtopk", "argbottomk"})


def scalar_of(value: _core.Value) -> Any:
    """What a caller gets of one op's value."""
    op, dtype, found = value
    return found if op in _INTS else _scalar(dtype, found)


def _name(op: str) -> str:
    """The name of an op that may have parameters."""
    return op.partition("(")[0]


def _array(op: str, dtype: str, shape: tuple[int, ...], elements: npt.NDArray[Any]) -> npt.NDArray[Any]:
    counts = _name(op) in _INTS or _name(op) in _INT_ARRAYS
    return elements.view(np.int64 if counts else numpy_dtype(dtype)).reshape(shape)


class Results(Mapping[str, Any]):
    """The results of some ops, by their names: `results["argmax"]` or `results.argmax`.

    A result is a NumPy scalar of the dtype that the op answers with (`sum` of floats: float64, `max`: the array's), except
    that indexes and counts are `int`. `size` is the number of elements. `errors` has those of the ops that the array has no answer
    to. They are no items; to read one raises its error, or gives None if it is of `describe`.

    >>> import reduced
    >>> r = reduced.connect("local:").reduce([1.0, 2.0, 4.0], ["sum", "argmax"])
    >>> print(r.sum, r["argmax"], r.size, list(r))
    7.0 2 3 ['sum', 'argmax']
    """

    errors: Mapping[str, Error] = MappingProxyType({})
    _raises = True  # False: an op that has an error is None
    _order: Sequence[str] = ()  # of all ops, where some have errors

    def __init__(self, results: Sequence[_core.Value], size: int) -> None:
        self._results: dict[str, tuple[str, Any]] = {op: (dtype, value) for op, dtype, value in results}
        self.size = size

    def _take_errors(self, statuses: Sequence[_core.OpStatus]) -> None:
        """Takes the errors. `statuses`: of all ops, in their order; none, if all are OK."""
        errors = {op: error_of(number, message) for op, number, message in statuses if number != 0}
        if errors:
            self.errors, self._order = errors, [op for op, _, _ in statuses]

    def __getitem__(self, op: str) -> Any:
        if op in self.errors:
            return self._without(op)
        dtype, value = self._results[op]
        return value if op in _INTS or not dtype or isinstance(value, np.ndarray) else _scalar(dtype, value)

    def _without(self, op: str) -> None:
        if self._raises:
            raise self.errors[op].with_traceback(None)

    def _shown(self) -> list[tuple[str, str]]:
        """All ops in their order, and their results as texts."""
        names = sorted([*self, *self.errors], key=self._order.index) if self.errors else list(self)
        return [(op, "-" if op in self.errors else str(self[op])) for op in names]

    def _describes(self, quartiles: str, names: Sequence[str], without: Error | None = None) -> None:
        """Makes it a summary of these names, in which what has no answer is None. `quartiles`: the op that answers with all three.
        `without`: why it was not asked for."""
        found = dict(self._results)
        found["missing"] = found["nan_count"]
        dtype, array = found.pop(quartiles, ("f64", None))
        errors = dict(self.errors)
        why = errors.pop(quartiles, None)
        for index, name in enumerate(("25%", "50%", "75%")):
            if name not in names:
                continue
            if array is not None and isinstance(array, np.ndarray):
                found[name] = dtype, array[..., index] if array.ndim > 1 else array[index]
            elif array is not None:  # kept on the server
                found[quartiles] = dtype, array
                errors[name] = UnimplementedError(f"{name}: got keep=True, with which the quartiles are one array; allowed: [{quartiles!r}]")
            else:
                errors[name] = why or without or UnimplementedError(f"{name}: got no answer")
        self._results = {name: found[name] for name in (*names, quartiles) if name in found}
        self.errors, self._order, self._raises = errors, list(names), False

    def __contains__(self, op: object) -> bool:
        return op in self._results

    def __getattr__(self, op: str) -> Any:
        if not op.startswith("_") and (op in self._results or op in self.errors):
            return self[op]
        if not op.startswith("_"):
            named = [each for each in (*self._results, *self.errors) if _name(each) == op]  # with parameters
            if len(named) == 1:
                return self[named[0]]
        raise AttributeError(f"{op}: got an op that was not asked for; there are: {', '.join(self._results)}"
                             if op in _core.ops else f"no attribute {op}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._results]

    def _rows(self) -> list[tuple[str, str]]:
        return self._shown()

    def __repr__(self) -> str:
        rows = self._rows()
        width = max((len(name) for name, _ in rows), default=0)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)

    def _repr_html_(self) -> str:
        cells = "".join(f"<tr><th style='text-align:left'>{html.escape(name)}</th><td style='text-align:right'>"
                        f"{html.escape(value)}</td></tr>" for name, value in self._rows())
        return f"<table>{cells}</table>"


class Execution(NamedTuple):
    """What ran: the engine, its device and pipeline, the precision of float sums, and why this engine was chosen."""

    engine: str
    device: str
    pipeline: str
    precision: str
    reason: str

    def __str__(self) -> str:
        return f"{self.device}, {self.precision}"


class _Reply(NamedTuple):
    """What a pickled Result has in the place of the library's reply."""

    via: str
    size: int
    attempts: int
    results: list[_core.Value]
    statuses: list[_core.OpStatus]
    state: bytes
    execution: tuple[str, str, str, str, str]
    stages: dict[str, float]


class Result(Results):
    """What one `reduce` answers: the results, what ran, and the time of each stage.

    `ran_on` is an `Execution`; `timing` the microseconds of each stage that happened, and of the whole on the server
    (`"total"`); `via` how the elements got there; `attempts` how often the request was sent; `state` a `State`, if it was
    asked for, else None. It prints as a table; in a notebook with bars for the stages.
    """

    def __init__(self, reply: _core.Reply | _Reply) -> None:
        super().__init__(reply.results, reply.size)
        self._take_errors(reply.statuses)
        self._reply = reply

    def __reduce__(self) -> tuple[Any, ...]:
        reply = _Reply(*(getattr(self._reply, field) for field in _Reply._fields))
        return type(self), (reply,), {name: value for name, value in self.__dict__.items() if name != "_reply"}

    @classmethod
    def _of_whole(cls, reply: _core.ArrayReply) -> Result:
        """The results of a whole array that come as arrays: those without dimensions are values."""
        result = cls(reply.rest)
        result._take_errors(reply.statuses)
        for op, dtype, shape, elements in reply.take():
            assert isinstance(elements, np.ndarray)
            array = _array(op, dtype, shape, elements)
            result._results[op] = dtype, array if shape else array.item()
        return result

    @classmethod
    def _of_many(cls, reply: _core.Reply, names: Sequence[str]) -> Result:
        """One of many results. `names`: of the ops."""
        result = cls(reply)
        arrays = reply.take()
        if arrays:
            found = {op: (dtype, _array(op, dtype, shape, elements)) for op, dtype, shape, elements in arrays if isinstance(elements, np.ndarray)}
            found.update(result._results)
            result._results = {op: found[op] for op in names if op in found}
            result._order = names
        return result

    @property
    def ran_on(self) -> Execution:
        return Execution(*self._reply.execution)

    @property
    def timing(self) -> dict[str, float]:
        return dict(self._reply.stages)

    @property
    def via(self) -> str:
        return self._reply.via

    @property
    def attempts(self) -> int:
        return self._reply.attempts

    @property
    def state(self) -> State | None:
        from reduced._state import State

        state = self._reply.state
        return State(state) if state else None

    def _rows(self) -> list[tuple[str, str]]:
        return [*super()._rows(), ("ran on", f"{self.ran_on}, {_time(self.timing['total'])}")]

    def _repr_html_(self) -> str:
        stages = self.timing
        total = stages.pop("total")
        bars = "".join(
            f"<tr><th style='text-align:left'>{name.replace('_', ' ')}</th><td>{_time(us)}</td><td style='width:16em'>"
            f"<div style='background:#76b900;height:.8em;width:{100 * min(1, us / total) if total > 0 else 0:.1f}%'></div></td></tr>"
            for name, us in stages.items())
        return f"{super()._repr_html_()}<table>{bars}</table>"


def _scalar(dtype: str, value: bool | int | float) -> Any:
    try:
        return numpy_dtype(dtype).type(value)
    except TypeError:  # without ml_dtypes: those of bf16 and of 8 bits are float32s
        return np.float32(value)


def _time(us: float) -> str:
    for unit, scale in (("us", 1.0), ("ms", 1e3)):
        if us < 1000 * scale:
            return f"{us / scale:.3g} {unit}"
    return f"{us / 1e6:.3g} s"


class ArrayResults(Results):
    """Results that are ndarrays: `Results` of reductions along axes, by keys or under a mask.

    Indexes and counts are int64, and the index of no element (`empty="fill"`) is -1. `group_keys`: the keys of the
    groups, ascending, if they were found; else None. With the option `keep` results are `ResidentArray`s, in which indexes and
    counts are uint64.
    """

    group_keys: npt.NDArray[Any] | None = None

    def _take(self, arrays: Sequence[_core.Array], kept: Callable[..., ResidentArray] | None = None) -> None:
        """Takes the results. `kept`: makes a `ResidentArray` of each, of its dtype, shape and elements; None: they are ndarrays."""
        found: dict[str, Any] = {}
        for op, dtype, shape, elements in arrays:
            if kept is not None:
                found[op] = kept(dtype, shape, elements)
            else:
                assert isinstance(elements, np.ndarray)
                found[op] = _array(op, dtype, shape, elements)
        keys = found.pop("", None)
        if keys is not None and kept is not None:
            with keys:
                keys = keys.get()
        self.group_keys = keys
        self._results = {op: (array.dtype.name, array) for op, array in found.items()}

    @classmethod
    def _of_arrays(cls, arrays: Sequence[_core.Array], size: int) -> ArrayResults:
        results = ArrayResults([], size)
        results._take(arrays)
        return results

    def __getitem__(self, op: str) -> Any:
        if op in self.errors:
            return self._without(op)
        array = self._results[op][1]
        return array[()] if isinstance(array, np.ndarray) else array  # a scalar, if it has no dimensions

    def __repr__(self) -> str:
        return "\n".join(f"{op}\n{array}" for op, array in self._shown())

    def _masked(self, masks_extrema: bool, masks_sum: bool) -> Self:
        """With what has no answer masked, of a summary with empty="fill" and overflow="wrap"; an error if it has no dimensions."""
        arrays = {op: array for op, (_, array) in self._results.items()}
        none = arrays["count"] == 0
        without = dict.fromkeys((op for op in ("min", "max", "argmin", "argmax") if op in arrays), none) if masks_extrema else {}
        if masks_sum and arrays["sum"].dtype.kind in "iu":
            # The mean is that of the exact sum. What wraps is 2^64 or more from it, far more than the rounding of a product.
            right = np.where(none, 0, arrays["mean"]) * arrays["count"]
            without["sum"] = np.abs(right - arrays["sum"].astype(np.float64)) > 2.0**62
        errors: dict[str, Error] = {}
        for op, missing in without.items():
            array = arrays[op]
            if array.ndim > 0 and missing.any() and array.dtype.kind in "biu" and op not in _INTS:
                self._results[op] = array.dtype.name, np.ma.MaskedArray(array, missing)
            elif array.ndim == 0 and missing:
                del self._results[op]
                errors[op] = (OutOfRangeError(f"integer overflow: the sum of this array is about {right}, which {array.dtype} doesn't hold")
                                   if op == "sum" else InvalidArgumentError(f"op {op}: got no element; allowed: at least 1"))
        if errors:
            self.errors = {**self.errors, **errors}
        return self


class ArrayResult(ArrayResults, Result):
    """What one `reduce` along axes, of segments, by keys or under a mask answers: a `Result` and `ArrayResults`.

    >>> import numpy as np, reduced
    >>> r = reduced.connect("local:").reduce(np.arange(6).reshape(2, 3), "sum,argmax", axis=1)
    >>> print(r.sum, r["argmax"])
    [ 3 12] [2 2]
    >>> r = reduced.connect("local:").reduce(np.array([1.5, 2.5, 4.0]), "sum,count", keys=np.array([7, 3, 7]))
    >>> print(r.group_keys, r.sum, r["count"])
    [3 7] [2.5 5.5] [1 2]
    """

    @staticmethod
    def _of(reply: _core.ArrayReply, kept: Callable[..., ResidentArray] | None) -> ArrayResult:
        result = ArrayResult(reply.rest)
        result._take_errors(reply.statuses)
        result._take(reply.take(), kept)
        return result

    def _among(self, groups: npt.NDArray[Any], of_none: Result, errors: Mapping[str, Error], ops: Sequence[str]) -> ArrayResult:
        """The results of more groups, in the order of their keys: those that this has none of have the results `of_none`, or `errors`."""
        assert self.group_keys is not None
        place = np.searchsorted(groups, self.group_keys)
        if errors:
            self.errors, self._order = {**self.errors, **errors}, ops
            self._results = {op: result for op, result in self._results.items() if op not in errors}
        for op, (dtype, array) in self._results.items():
            every = np.repeat(of_none[op], len(groups), axis=0)
            every[place] = array
            self._results[op] = dtype, every
        self.group_keys = groups
        return self

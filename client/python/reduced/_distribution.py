"""What the methods of `Ops` ask about the distribution of an array.

A plan is a generator of reductions, which it yields as arguments of `reduce`; it is sent their results, and returns its own. So
clients that wait and those that are awaited ask the same.
"""

from __future__ import annotations

import operator
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reduced._arrays import FROM_ML_DTYPES, Elements, located, numpy_dtype
from reduced._containers import read
from reduced._cuda import CudaElements
from reduced._options import Options
from reduced._result import Results

Plan = Generator[tuple[Any, Sequence[str], Options], Results, Any]

# Options that say which outputs there are, not which elements.
_OUTPUTS = ("axis", "keepdims", "segments", "lengths", "keys", "groups", "outside", "empty", "keep", "ttl", "owner")


class Top(NamedTuple):
    """Elements, and their indexes."""

    values: Any
    indexes: Any


class Quantiles(NamedTuple):
    """Values along a first dimension, of several quantiles."""

    values: Any
    q: Any


def op_text(op: str, numbers: Sequence[Any], **named: str | None) -> str:
    """An op with parameters. Numbers are written exactly."""
    arguments = [",".join(map(repr, numbers))] if len(numbers) > 0 else []
    arguments += [f"{name}={value}" for name, value in named.items() if value is not None]
    return f"{op}({';'.join(arguments)})" if arguments else op


def _quantiles(op: str, numbers: Sequence[float], options: Options, method: str | None) -> str:
    """The text of `median` or `quantile`, or with weights of the weighted one."""
    if options.get("weights") is None:
        return op_text(op, numbers, method=None if method == "linear" else method)
    if method not in (None, "inverted_cdf"):
        raise ValueError(f"method: got {method!r} with weights; allowed: 'inverted_cdf', or none")
    return op_text(f"weighted_{op}", numbers)


def median(array: Any, options: Options, method: str | None) -> Plan:
    name = _quantiles("median", (), options, method)
    return (yield array, (name,), options)[name]


def quantile(array: Any, options: Options, q: npt.ArrayLike, method: str | None) -> Plan:
    wanted = np.asarray(q, np.float64)
    if wanted.size == 0:
        raise ValueError("q: got none; allowed: 1 to 1024 numbers from 0 to 1")
    name = _quantiles("quantile", wanted.ravel().tolist(), options, method)
    answers = (yield array, (name,), options)[name]
    if not isinstance(answers, np.ndarray):  # kept on the server
        return answers
    first = np.moveaxis(answers, -1, 0)
    if wanted.ndim != 1:
        return first.reshape(wanted.shape + first.shape[1:])[()]
    return Quantiles(first, wanted)


def top(array: Any, options: Options, op: str, k: int) -> Plan:
    values, indexes = (op_text(name, (operator.index(k),)) for name in (op, f"arg{op}"))
    results = yield array, (values, indexes), options
    return Top(results[values], results[indexes])


def fingerprint_text(words: npt.ArrayLike) -> Any:
    """The text of the two numbers that `fingerprint` answers with in `reduce`: 32 hexadecimal digits; of an array of such answers, whose
    last dimension they are, an array of texts."""
    pairs = np.asarray(words, np.uint64)
    texts = [f"{first:016x}{second:016x}" for first, second in pairs.reshape(-1, 2).tolist()]
    return texts[0] if pairs.ndim == 1 else np.array(texts, "U32").reshape(pairs.shape[:-1])


def fingerprint(array: Any, options: Options, shape: Sequence[int] | None, offset: Sequence[int] | None) -> Plan:
    if shape is None and offset is not None:
        raise ValueError("offset: got it without shape; allowed: with the shape of the whole array")
    name = op_text("fingerprint", (), shape=_numbers(shape) or None, offset=_numbers(offset) or None)
    found = (yield array, (name,), options)[name]
    return fingerprint_text(found) if isinstance(found, np.ndarray) else found


def _numbers(given: Sequence[int] | None) -> str:
    return ",".join(str(operator.index(each)) for each in given or ())


def histogram(array: Any, options: Options, bins: Any, range: tuple[float, float] | None) -> Plan:
    if np.ndim(bins) == 1:
        edges = np.asarray(bins)
        if range is not None:
            raise ValueError("range: got it with edges; allowed: with a number of bins")
    elif isinstance(bins, str) or np.ndim(bins) != 0:
        raise TypeError(f"bins: got {bins!r}; allowed: a number of bins, or their edges")
    else:
        dtype = _dtype(array)
        ends: list[Any] = []  # of the elements
        if range is None:
            alone: Any = {name: value for name, value in options.items() if name not in _OUTPUTS}
            found = yield array, ("count", "min", "max"), alone
            if found["count"] > 0:
                ends = [found["min"], found["max"]]
        edges = np.histogram_bin_edges(np.array(ends, dtype), operator.index(bins), range)
    asked, place = _strictly_ascending(edges)
    if options.get("keep") and not np.array_equal(asked, edges):
        raise ValueError("bins: got edges of which some are equal with keep; allowed: strictly ascending edges, or keep=False")
    name = op_text("histogram", (), edges=",".join(map(repr, asked.tolist())))
    found = (yield array, (name,), options)[name]
    if not isinstance(found, np.ndarray):
        return found, edges
    counts = found[..., np.maximum(place, 0)]
    counts[..., place < 0] = 0
    return counts, edges


def _dtype(array: Any) -> np.dtype[Any]:
    """The dtype by which `numpy.histogram` chooses that of the edges."""
    dtype = getattr(array, "dtype", None)
    if not isinstance(dtype, np.dtype) or dtype == object:
        values = array if isinstance(array, Elements | CudaElements) else read(array)[0]
        name = located(values, ordered=False).dtype
        dtype = np.dtype(np.float32) if name in FROM_ML_DTYPES.values() else numpy_dtype(name)
    if dtype == np.bool_:
        return np.dtype(np.uint8)  # as NumPy counts them
    return dtype if dtype.kind in "iuf" and dtype.name not in FROM_ML_DTYPES else np.dtype(np.float32)


def _strictly_ascending(edges: npt.NDArray[Any]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.intp]]:
    """Edges of which no two are equal, and for each bin of `edges` the bin between these that has its elements; -1: there are none."""
    given = edges.astype(np.float64)
    if edges.dtype.kind in "iu" and [int(edge) for edge in given.tolist()] != edges.tolist():
        raise ValueError("bins: got whole numbers beyond 2**53 that are no float64; allowed: those that are")
    if not np.all(np.isfinite(given)):
        raise ValueError(f"bins: got the edge {given[~np.isfinite(given)][0]}; allowed: finite edges, up to {np.finfo(np.float64).max}")
    if np.any(given[:-1] > given[1:]):
        raise ValueError("bins: got edges that descend; allowed: ascending ones")
    asked = np.unique(given)
    place = np.searchsorted(asked, given[:-1])
    place[given[:-1] == given[1:]] = -1
    if len(given) > 1 and given[-2] == given[-1]:  # the last bin has what is equal to both of its edges
        place[-1] = len(asked) - 1
        asked = np.append(asked, [np.nextafter(given[-1], np.inf), np.nextafter(np.nextafter(given[-1], np.inf), np.inf)])
    return asked, place

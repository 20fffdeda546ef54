"""Assertions about arrays, for tests: exact, one read of both arrays, and where they differ.

>>> import numpy as np, reduced.testing
>>> reduced.testing.assert_close(np.array([1.0, 2.0]), np.array([1.0, 2.0 + 1e-9]))
>>> try:
...     reduced.testing.assert_close({"a": np.ones(3), "b": np.array([1.0, 2.0, 9.0])}, {"a": np.ones(3), "b": np.array([1.0, 2.5, 3.0])})
... except AssertionError as error:
...     print(error)
['b']: 2 of 3 elements are not close (66.7%)
  the first at (1,): actual 2.0, expected 2.5
  greatest absolute difference: 6.0 at (2,), up to 1e-07 allowed
  greatest relative difference: 2.0 at (2,), up to 1e-07 allowed
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from reduced import _client
from reduced._arrays import on_gpu
from reduced._copies import unless_all
from reduced._pairs import _operand, _shape, dtype_of

# rtol and atol of a dtype, as torch.testing has them; of others both are 0.
_TOLERANCES = {"f16": (1e-3, 1e-5), "bf16": (1.6e-2, 1e-5), "f32": (1.3e-6, 1e-5), "f64": (1e-7, 1e-7)}
_SHOWN = 10  # differences of containers


def assert_close(actual: Any, expected: Any, *, rtol: float | None = None, atol: float | None = None, equal_nan: bool = False,
                 check_dtype: bool = True, msg: str | Callable[[str], str] | None = None, server: str = _client.LOCAL) -> None:
    """AssertionError: two arrays differ by more than tolerances, and where and how much they do.

    Elements are close if they are equal, or finite and |actual - expected| <= atol + rtol |expected|, or both NaN with `equal_nan`: as in
    `numpy.isclose` and `torch.testing.assert_close`. `rtol`, `atol`: both or none; by default those of torch for the dtypes, the larger
    ones of two. Shapes must be equal, and the dtypes, if `check_dtype` and both arrays have one, and so must the places of missing
    elements. Mappings and sequences of arrays are compared by their keys and positions. `msg`: the message, or makes it of this one's.
    `server`: where the arrays are compared, by default in this process, to which arrays of a GPU are copied.
    """
    if (rtol is None) != (atol is None):
        raise ValueError(f"{'atol' if atol is None else 'rtol'}: got None with {'rtol' if atol is None else 'atol'}; allowed: both, or none")
    client = _client.connected(server)
    found = []
    for name, one, other in _pairs(actual, expected, ""):
        said = one if other is _ALONE else _difference(client, one, other, rtol, atol, equal_nan, check_dtype)
        if said:
            found.append(f"{name}: {said}" if name else said)
    if not found:
        return
    shown = "\n".join(found[:_SHOWN] + ([f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []))
    raise AssertionError(msg(shown) if callable(msg) else msg if msg is not None else shown)


_ALONE = object()


def _pairs(actual: Any, expected: Any, name: str) -> Iterator[tuple[str, Any, Any]]:
    """Arrays by their names; or what differs before there are any, with _ALONE."""
    for kind, is_one in (("a mapping", _is_mapping), ("a sequence of arrays", _is_sequence)):
        if not is_one(actual) and not is_one(expected):
            continue
        if not (is_one(actual) and is_one(expected)):
            if kind == "a mapping" or _is_sequence(actual) and not _is_plain(expected) or _is_sequence(expected) and not _is_plain(actual):
                yield name, f"got {type(actual).__name__}, expected {type(expected).__name__}", _ALONE
                return
        one, other = (each if _is_mapping(each) else dict(enumerate(each)) for each in (actual, expected))
        for key in [*one, *(key for key in other if key not in one)]:
            where = f"{name}[{key!r}]"
            if key not in one or key not in other:
                yield where, f"only {'actual' if key in one else 'expected'} has it", _ALONE
            else:
                yield from _pairs(one[key], other[key], where)
        return
    yield name, actual, expected


def _is_mapping(given: Any) -> bool:
    return isinstance(given, Mapping)


def _is_plain(given: Any) -> bool:
    return isinstance(given, list | tuple)


def _is_sequence(given: Any) -> bool:
    """Whether it holds arrays. Sequences of numbers are arrays."""
    return _is_plain(given) and any(_is_mapping(each) or _is_sequence(each) or each is None or np.ndim(each) > 0 and not _is_plain(each)
                                    for each in given)


def _difference(client: _client.Client, actual: Any, expected: Any, rtol: float | None, atol: float | None, equal_nan: bool,
                check_dtype: bool) -> str:
    """How two arrays differ; empty: they are close."""
    if actual is None and expected is None:
        return ""
    arrays, missing = [], []
    for name, given in (("actual", actual), ("expected", expected)):
        if client.server == _client.LOCAL and on_gpu(given):
            copy = getattr(given, "cpu", None) or getattr(given, "get", None)
            given = copy() if copy is not None else np.asarray(given)
        array, there = _operand(name, given, True)
        arrays.append(array)
        missing.append(there)
    shapes, dtypes = [_shape(each) for each in arrays], [dtype_of(each) for each in arrays]
    if shapes[0] != shapes[1]:
        return f"got shape {shapes[0]}, expected {shapes[1]}"
    if check_dtype and dtypes[0] != dtypes[1] and all(hasattr(each, "dtype") for each in (actual, expected)):
        return f"got dtype {dtypes[0]}, expected {dtypes[1]}"
    if any(there is not None for there in missing):
        there, also = (np.ones(shapes[0], np.bool_) if each is None else each for each in missing)
        if unless_all(there == also) is not None:
            at = tuple(map(int, np.argwhere(there != also)[0]))
            return f"got missing elements in other places, the first at {at}, which is missing in {'expected' if there[at] else 'actual'}"
    if rtol is None or atol is None:
        rtol, atol = map(max, *(_TOLERANCES.get(dtype, (0.0, 0.0)) for dtype in dtypes))
    where: Any = {} if missing[0] is None else {"where": missing[0]}
    found = client.compare(arrays[0], arrays[1], rtol=rtol, atol=atol, equal_nan=equal_nan, **where)
    if found.equal:
        return ""
    shown = "equal" if rtol == atol == 0 else "close"
    lines = [f"{found.mismatches} of {found.size} elements are not {shown} ({found.mismatches / found.size:.1%})",
             f"the first at {found.index}: actual {found.first_x}, expected {found.first_y}"]
    for what, value, at, allowed in (("absolute", found.max_abs, found.max_abs_index, atol), ("relative", found.max_rel, found.max_rel_index, rtol)):
        if value is not None:
            lines.append(f"greatest {what} difference: {value} at {found._at(at)}" + (f", up to {allowed} allowed" if shown == "close" else ""))
    return "\n  ".join(lines)

"""Many arrays in one call."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from reduced import _core, _labels
from reduced._arrays import Elements, located, on_request
from reduced._containers import read
from reduced._cuda import CudaElements
from reduced._errors import Error, InvalidArgumentError
from reduced._options import DEFAULTS, Options
from reduced._partition import arguments
from reduced._result import Result

if TYPE_CHECKING:
    from reduced._client import _Reducer

_INDEX = re.compile(r"^operands\[(\d+)\]")


def keyed(arrays: Any) -> tuple[list[Any], list[Any], bool]:
    """The keys, the arrays, and whether they are a mapping. Of a sequence the keys are its indexes.

    TypeError, InvalidArgumentError: they are neither, or none.
    """
    mapping = isinstance(arrays, Mapping)
    if not mapping and (not isinstance(arrays, Sequence) or isinstance(arrays, str | bytes)):
        raise TypeError(f"arrays: got {type(arrays).__name__}; allowed: a mapping of names to arrays, or a sequence of them")
    keys, values = list(arrays) if mapping else list(range(len(arrays))), list(arrays.values() if mapping else arrays)
    if not keys:
        raise InvalidArgumentError("arrays: got none; allowed: 1 or more")
    return keys, values, mapping


@contextmanager
def of(key: Any) -> Iterator[None]:
    """Notes in an error which array it is about."""
    try:
        yield
    except (Error, TypeError, ValueError) as error:
        error.add_note(f"of {key}")
        raise


def _given(reducer: _Reducer, array: Any, ordered: bool, options: Options) -> Any:
    """What the library takes of an array; None: the array takes more than that, and goes by itself."""
    if not hasattr(array, "_on_server"):
        if type(array) is not np.ndarray and not isinstance(array, Elements | CudaElements):
            if _labels.concern(array, options):
                return None
            array, there = read(array)
            if there is not None:
                return None
        if isinstance(array, np.ndarray) and array.dtype.kind in "mM":
            return None
        return located(array, ordered=ordered, gpu=reducer._reads_gpus, strided=True)
    return array._held()


def reduce_many(reducer: _Reducer, arrays: Any, names: Sequence[str], positions: bool, options: Options,
                interrupt: _core.Interrupt | None) -> Any:
    """`positions`: whether an op depends on where elements are."""
    keys, values, mapping = keyed(arrays)
    values = [on_request(array, options)[0] for array in values]
    _, options = on_request(None, options)
    results: list[Any] = [None] * len(keys)
    together: list[int] = []  # the places of those that go in one call
    given: list[Any] = []
    plain = options.keys() <= DEFAULTS.keys()
    key: Any = None
    try:
        for place, (key, array) in enumerate(zip(keys, values, strict=True)):
            each = _given(reducer, array, positions, options) if plain else None
            if each is None:
                results[place] = reducer._reduce(array, names, options, interrupt)
            else:
                together.append(place)
                given.append(each)
    except (Error, TypeError, ValueError) as error:
        error.add_note(f"of {key}")
        raise
    if together:
        own = reducer._options_for(None, options, sum(each.nbytes for each in given if not isinstance(each, _core.Resident)))
        try:
            replies = reducer._core.reduce_many([arguments(each) for each in given], names, own, interrupt)
        except Error as error:
            if (found := _INDEX.match(str(error))) is not None:
                place = together[int(found[1])]
                error.args = (f"operands[{place}]{str(error)[found.end():]}",)
                error.add_note(f"of {keys[place]}")
            raise
        for place, reply in zip(together, replies, strict=True):
            results[place] = Result._of_many(reply, names)
    return dict(zip(keys, results, strict=True)) if mapping else results

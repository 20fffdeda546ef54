"""Keys of arrays in blocks that are no plain integers: each block numbers its own groups, and those of all blocks become codes of one
table, by the values of their keys. States of blocks then have keys that mean the same everywhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from reduced import _keys, _labels
from reduced._copies import Mask
from reduced._keys import Codes, Groups
from reduced._options import Options, check_options
from reduced._result import ArrayResults, Results

_DEFAULTS = {"bucket": None, "missing": "drop", "sort": True}


class Table(NamedTuple):
    """The groups of all blocks. `places`: for each block the codes of its groups here."""

    groups: Groups  # without codes
    places: list[Codes]


def plain(options: Options) -> tuple[Options, bool]:
    """Options of integer keys, and whether keys have to become codes. ValueError, TypeError: options that do not go together."""
    check_options(options)
    given: Any = {name: value for name, value in options.items() if name not in _DEFAULTS}
    others = [name for name, default in _DEFAULTS.items() if options.get(name, default) != default]
    keys = options.get("keys")
    if keys is None:
        if others:
            raise ValueError(f"{others[0]}: got it without keys; allowed: with keys")
        return given, False
    if isinstance(keys, list | tuple | range):
        integers = all(isinstance(each, int | np.integer) and not isinstance(each, bool) for each in keys)
    else:
        integers = not hasattr(keys, "columns") and getattr(getattr(keys, "dtype", None), "kind", "O") in "iu" and isinstance(keys.dtype, np.dtype)
    if integers and not others:
        return given, False
    for name in ("groups", "outside"):
        if options.get(name) is not None:
            raise TypeError(f"{name}: got it with keys that become codes; allowed: integer keys, with bucket, missing and sort as by default")
    given["keys"] = np.empty(0, np.int64)
    return given, True


def encode(keys: Any, options: Options, present: Mask | None = None) -> Groups:
    """The groups of a block. `present`: the rows that count; None: all."""
    columns = _keys.columns(keys, options.get("bucket"))
    return _keys.encode(columns, _keys.length(columns[0]), options.get("missing", "drop"), False, present)


def without_codes(groups: Groups) -> Groups:
    """What of the groups of a block the table is made of, which is small."""
    return groups._replace(codes=np.empty(0, np.int32))


def table(blocks: Sequence[Groups], options: Options) -> Table:
    """The groups of all blocks, in whose order those come that appear first."""
    labels = [_joined([block.labels[number] for block in blocks]) for number in range(len(blocks[0].labels))]
    columns = [_keys.column(each)._replace(name=name) for each, name in zip(labels, blocks[0].names)]
    sizes = [block.number for block in blocks]
    groups = _keys.encode(columns, sum(sizes), options.get("missing", "drop"), options.get("sort", True))
    return Table(without_codes(groups), np.split(groups.codes, np.cumsum(sizes)[:-1]))


def codes(groups: Groups, whole: Table, number: int) -> Codes:
    """The codes of the items of a block; -1: an item is in no group. `number`: of the block."""
    return np.append(whole.places[number], whole.places[number].dtype.type(-1))[groups.codes]


def labelled(results: Results, groups: Groups) -> Results:
    """Results by codes as those by the keys themselves."""
    if isinstance(results, ArrayResults) and results.group_keys is not None:
        there = np.asarray(results.group_keys, np.int64)
        results.group_keys = _labels.together(groups._replace(labels=[_keys.taken(labels, there) for labels in groups.labels]))
    return results


def _joined(labels: list[Any]) -> Any:
    """Labels of all blocks in one column, of the container that these have."""
    first = labels[0]
    if all(isinstance(each, np.ndarray) for each in labels):
        return (np.ma.concatenate if any(isinstance(each, np.ma.MaskedArray) for each in labels) else np.concatenate)(labels)
    for package, kind in (("polars", "Series"), ("pyarrow", "Array")):
        module = sys.modules.get(package)
        if module is not None and all(isinstance(each, getattr(module, kind)) for each in labels):
            return module.concat(labels) if package == "polars" else module.concat_arrays(labels)
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(first, pandas.api.extensions.ExtensionArray):
        return pandas.concat([pandas.Series(each) for each in labels], ignore_index=True).array
    raise TypeError(f"keys: got {type(first).__name__} in blocks; allowed: arrays of NumPy, pandas, polars and pyarrow")

"""DataArrays and Datasets of xarray: dimensions by name, and results with the coordinates that are left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import xarray

from reduced._keys import Groups
from reduced._labels import Answer, Ask, Container, Part
from reduced._options import Options
from reduced._result import Result

_BY_ROWS = ("keys", "segments", "lengths")


def container(array: Any) -> Container:
    return Dataset(array) if isinstance(array, xarray.Dataset) else DataArray(array)


def _reduced(options: Options, dims: Sequence[Any], ndim: int | None = None) -> tuple[Any, ...] | None:
    """The names of the dimensions that are reduced; None: all. ValueError: there is no such dimension."""
    axis = options.get("axis")
    if axis is None:
        return None
    named = []
    for each in axis if isinstance(axis, tuple | list) else (axis,):
        if isinstance(each, int | np.integer) and each not in dims:
            if ndim is None:
                raise TypeError(f"axis: got {each} for a Dataset; allowed: names of dimensions, {', '.join(map(repr, dims))}")
            if not -ndim <= each < ndim:
                raise ValueError(f"axis: got {each}; allowed: {-ndim} to {ndim - 1}, or {', '.join(map(repr, dims))}")
            each = dims[int(each)]
        if each not in dims:
            raise ValueError(f"axis: got {each!r}; allowed: {', '.join(map(repr, dims)) or 'none: there are no dimensions'}")
        named.append(each)
    if len(set(named)) < len(named):
        raise ValueError(f"axis: got {named}; allowed: each dimension once")
    return tuple(named)


class DataArray(Container):
    """An array with named dimensions. `by`: the name of the dimension of groups. `original`: the dimensions in the order that results have."""

    fills = keeps_dims = True

    def __init__(self, array: Any, attrs: bool = True, by: Any = None, original: tuple[Any, ...] = ()) -> None:
        super().__init__(array)
        self.attrs = attrs
        self.by = by
        self.original = original or tuple(array.dims)

    def resolved(self, options: Options) -> tuple[Container, Options]:
        given: Any = dict(options)
        array = self.array
        attrs = bool(given.pop("keep_attrs", True))
        keys = given.get("keys")
        by: Any = None
        if keys is not None and not isinstance(keys, Groups):
            array, given["keys"], by = _keyed(array, keys)
        named = _reduced(given, array.dims, array.ndim)
        if named is not None:
            given["axis"] = tuple(array.dims.index(each) for each in named)
        for side in ("where", "y", "weights"):
            beside = given.get(side)
            if beside is None:
                continue
            alone = side == "weights" and keys is not None and np.ndim(beside) == 1  # of the dimension that is reduced
            if not isinstance(beside, xarray.DataArray) and array.dims != self.array.dims and not alone:
                if np.shape(beside) != self.array.shape:
                    raise ValueError(f"{side}: got shape {np.shape(beside)} beside keys along {array.dims[0]!r}; allowed: {self.array.shape}, or a DataArray")
                beside = xarray.DataArray(beside, dims=self.array.dims)
            given[side] = _beside(side, beside, array) if isinstance(beside, xarray.DataArray) else beside
        return DataArray(array, attrs, by, tuple(self.array.dims)), given

    def empty(self) -> Container:
        return DataArray(self.array[:0], self.attrs, self.by, self.original)

    def parts(self, names: Sequence[str], options: Options) -> list[Part]:
        return [Part(self.array.data, options)]

    def ask(self, ask: Ask, part: Part, names: Sequence[str]) -> Result:
        blocks = self.array.chunks is not None and self.server is not None and self.array.dtype.kind not in "mM"
        if not blocks or any(part.options.get(name) is not None for name in ("state", "keep", "segments", "lengths")):
            return ask(part.array, names, part.options)
        import reduced.dask

        found: Result = reduced.dask.reduce(part.array, list(names), server=self.server, **part.options).compute()
        return found

    def labelled(self, op: str, answers: list[Answer], groups: Groups | None, options: Options, leading: Any = None) -> Any:
        values, none = np.asarray(answers[0].values), answers[0].none
        if none is not None and bool(np.any(none)) and values.dtype.kind in "biu" and not op.startswith("arg"):
            values = _with_nan(op, values, none)
        dims = list(self.array.dims)
        coords: dict[Any, Any] = {}
        if any(options.get(name) is not None for name in _BY_ROWS):
            gone = {dims[0]}
            dims[0] = self.by if self.by is not None else "group" if options.get("keys") is not None else "segment"
        else:
            named = _reduced(options, dims, len(dims))
            gone = set(dims) if named is None else set(named)
            if named is None and not options.get("keepdims"):
                return answers[0].values
            dims = dims if options.get("keepdims") else [each for each in dims if each not in gone]
        for name, coord in self.array.coords.items():
            if not gone & set(coord.dims):
                coords[name] = coord
        if groups is not None:
            coords.pop(dims[0], None)
            coords.update(_labels(groups, dims[0]))
        if leading is not None:
            dims = ["quantile", *dims]
            coords["quantile"] = np.asarray(leading, np.float64)
        extra = values.ndim - len(dims)
        found = xarray.DataArray(values, dims=[*dims, *(f"{op or 'k'}_{i}" if i else op.partition("(")[0] or "k" for i in range(extra))], name=self.array.name,
                                 attrs=self.array.attrs if self.attrs else None)
        found = found.assign_coords(coords)
        order = [self.by if each in gone and self.by is not None else each for each in self.original]
        order = [each for each in order if each in found.dims]
        return found.transpose(*(["quantile"] if leading is not None else []), *order, ...) if extra == 0 and len(order) > 1 else found


def _with_nan(op: str, values: Any, none: Any) -> Any:
    """Integers as floats, NaN where an output has no element, as xarray has it."""
    floats = values.astype(np.float64)
    if bool(np.any((floats.astype(object) != values.astype(object)) & ~none)):
        raise ValueError(f"op {op}: got no element in some outputs, and integers that are no float64 in others; allowed: empty='error'")
    return np.where(none, np.nan, floats)


def _keyed(array: Any, keys: Any) -> tuple[Any, Any, Any]:
    """An array of which the first dimension is that of the keys; these as plain columns; and the name of the dimension of groups."""
    listed = keys if isinstance(keys, list | tuple) and len(keys) > 0 and any(isinstance(each, str | xarray.DataArray) for each in keys) and (
        all(isinstance(each, xarray.DataArray) or isinstance(each, str) and _is_coord(array, each) for each in keys)) else [keys]
    found, dims = [], []
    for each in listed:
        if isinstance(each, str):
            each = _coord(array, each)
        if isinstance(each, xarray.DataArray):
            if each.ndim != 1 or each.dims[0] not in array.dims:
                raise ValueError(f"keys: got dimensions {each.dims}; allowed: one of {array.dims}")
            dim = each.dims[0]
            if dim in each.indexes and dim in array.indexes and not each.indexes[dim].equals(array.indexes[dim]):
                raise ValueError(f"keys: got another index along {dim!r} than the array's; allowed: the same (see xarray.align)")
            dims.append(dim)
        found.append(each)
    if not dims:
        return array, keys, "group"
    if len(set(dims)) > 1:
        raise ValueError(f"keys: got columns along {', '.join(map(repr, dict.fromkeys(dims)))}; allowed: along one dimension")
    by = found[0].name if len(found) == 1 else "group"
    by = by if by is not None and (by == dims[0] or by not in array.dims) else "group"
    return array.transpose(dims[0], ...), found if len(found) > 1 else found[0], by


def _coord(array: Any, name: str) -> Any:
    if not _is_coord(array, name):
        raise ValueError(f"keys: got {name!r}; allowed: columns, or the names of coordinates, {', '.join(map(repr, array.coords))}, also with "
                         "a part of a time, such as 'time.month'")
    return array[name]


def _is_coord(array: Any, name: str) -> bool:
    try:
        array[name]
    except (KeyError, ValueError, AttributeError):
        return False
    return True


def _beside(side: str, given: Any, array: Any) -> Any:
    """The plain array of a DataArray beside another: its dimensions are those of the array by name, and so are its labels."""
    if not set(given.dims) <= set(array.dims):
        raise ValueError(f"{side}: got dimensions {given.dims}; allowed: {array.dims}")
    for dim in given.dims:
        if dim in given.indexes and dim in array.indexes and not given.indexes[dim].equals(array.indexes[dim]):
            raise ValueError(f"{side}: got another index along {dim!r} than the array's; allowed: the same (see xarray.align)")
    whole = given.expand_dims([dim for dim in array.dims if dim not in given.dims]).transpose(*array.dims)
    return whole.data if whole.chunks is not None else whole.to_numpy()


def _labels(groups: Groups, dim: Any) -> dict[Any, Any]:
    """The coordinates of groups."""
    if len(groups.labels) == 1:
        labels = groups.labels[0]
        return {dim: (dim, np.asarray(labels, object) if isinstance(labels, np.ma.MaskedArray) else labels)}
    import pandas  # type: ignore[import-untyped]

    names = [name if name is not None else f"key_{number}" for number, name in enumerate(groups.names)]
    index = pandas.MultiIndex.from_arrays([np.asarray(each) if not hasattr(each, "dtype") else each for each in groups.labels], names=names)
    return dict(xarray.Coordinates.from_pandas_multiindex(index, dim))


class Dataset(Container):
    """Several arrays, each of which is reduced by itself. Variables without the dimensions that are reduced stay as they are."""

    def members(self, options: Options) -> list[Part]:
        given: Any = dict(options)
        self.attrs = bool(given.get("keep_attrs", True))
        for side in ("segments", "lengths"):
            if given.get(side) is not None:
                raise TypeError(f"{side}: got it for a Dataset; allowed: for a DataArray")
        named = _reduced(options, tuple(self.array.dims))
        gone: set[Any] = set(self.array.dims) if named is None else set(named)
        own = set()
        if given.get("keys") is not None:
            listed = given["keys"] if isinstance(given["keys"], list | tuple) else [given["keys"]]
            if not all(isinstance(each, str | xarray.DataArray) for each in listed):
                raise TypeError("keys: got columns without a dimension, for a Dataset; allowed: names of coordinates and variables, and DataArrays")
            of_keys = [_coord(self.array, each) if isinstance(each, str) else each for each in listed]
            gone = {dim for each in of_keys for dim in each.dims}
            own = {each for each in listed if isinstance(each, str)}
            given["keys"] = of_keys
        parts = []
        self.left = []
        for name, variable in self.array.data_vars.items():
            dims = tuple(dim for dim in variable.dims if dim in gone)
            if name in own:
                continue
            if not dims:
                self.left.append(name)
                continue
            parts.append(Part(variable, given if named is None else cast(Options, {**given, "axis": dims}), f"variable {name!r}"))
        if not parts:
            raise ValueError("array: got a Dataset without variables along the dimensions that are reduced; allowed: one or more")
        self.names = [part.array.name for part in parts]
        return parts

    def labelled(self, op: str, answers: list[Answer], groups: Groups | None, options: Options, leading: Any = None) -> Any:
        found = {name: each.values for name, each in zip(self.names, answers)}
        return xarray.Dataset({**found, **{name: self.array[name] for name in self.left}}, attrs=self.array.attrs if self.attrs else None)

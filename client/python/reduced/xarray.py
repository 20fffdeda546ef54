"""The accessor `reduced` of xarray: `da.reduced.mean("time")`, `ds.reduced.groupby("time.month").mean()`. Importing this registers it.

Defaults are those of xarray: NaN is left out. Attributes are kept, unless `keep_attrs=False`.

>>> import numpy as np, xarray as xr, reduced.xarray
>>> da = xr.DataArray([[0.1, 0.2, 0.3], [1e16, 1.0, -1e16]], dims=("station", "time"), coords={"station": ["a", "b"]})
>>> print(da.reduced.sum("time").to_series().to_dict())
{'a': 0.6, 'b': 1.0}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import xarray

from reduced._accessors import Where, skipping, with_ops

_where = Where()
use = _where.use


class _Accessor:
    def __init__(self, array: Any) -> None:
        self._array = array

    def _one(self, op: str, *arguments: Any, dim: Any = None, **options: Any) -> Any:
        given = skipping(options)
        if dim is not None:
            given["axis"] = dim
        return getattr(_where.client, op)(self._array, *arguments, **given)

    def agg(self, ops: str | Sequence[str], dim: Any = None, **options: Any) -> Any:
        """The results of several ops in one read: `reduced.Result`, with an item for each."""
        return _where.client.reduce(self._array, ops, axis=dim, **skipping(options))

    def groupby(self, by: Any, *, bucket: str | None = None) -> GroupBy:
        """Groups along one dimension: `by` is the name of a coordinate (`"time"`), a part of one (`"time.month"`), a DataArray of one
        dimension, or a list of these. `bucket`: as of `reduced.Options`, such as `groupby("time", bucket="month")`."""
        return GroupBy(self._array, by, bucket)


@xarray.register_dataarray_accessor("reduced")  # type: ignore[no-untyped-call]
@with_ops("_one")
class DataArrayAccessor(_Accessor):
    """`da.reduced.mean("time")`, and every other op of `reduced.Client`."""


@xarray.register_dataset_accessor("reduced")  # type: ignore[no-untyped-call]
@with_ops("_one")
class DatasetAccessor(_Accessor):
    """`ds.reduced.mean("time")`, and every other op of `reduced.Client`."""


@with_ops("_one")
class GroupBy:
    """Groups of a DataArray or a Dataset: `agg`, and a method for each op."""

    def __init__(self, array: Any, by: Any, bucket: str | None) -> None:
        self._array = array
        self._keys: dict[str, Any] = {"keys": by} if bucket is None else {"keys": by, "bucket": bucket}

    def _one(self, op: str, *arguments: Any, **options: Any) -> Any:
        return getattr(_where.client, op)(self._array, *arguments, **self._keys, **skipping(options))

    def agg(self, ops: str | Sequence[str], **options: Any) -> Any:
        """The results of several ops in one read: `reduced.Result`, with an item for each."""
        return _where.client.reduce(self._array, ops, **self._keys, **skipping(options))

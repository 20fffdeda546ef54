"""The accessor `reduced` of pandas: `df.reduced.groupby("shop").agg("sum")`. Importing this registers it.

The lines are those of pandas, and so are defaults: NaN is left out, `ddof` is 1, a frame is reduced along its rows. Sums and means are
exact, and integers stay integers.

>>> import pandas as pd, reduced.pandas
>>> df = pd.DataFrame({"shop": ["b", "a", "b"], "price": [0.25, 0.5, 0.125], "n": [1, 2, 3]})
>>> df.reduced.groupby("shop")["price"].sum()
shop
a    0.500
b    0.375
Name: price, dtype: float64
>>> print(df.reduced.groupby("shop").agg(total=("price", "sum"), most=("n", "max")).to_dict())
{'total': {'a': 0.5, 'b': 0.375}, 'most': {'a': 2, 'b': 3}}
>>> print(df["price"].reduced.sum(), df[["price", "n"]].reduced.max().to_dict())
0.875 {'price': 0.5, 'n': 3.0}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas  # type: ignore[import-untyped]

from reduced import _keys, _labels
from reduced._accessors import Where, skipping, with_ops
from reduced._client import names_of
from reduced._keys import Groups

_where = Where()
use = _where.use

# As pandas names what the ops are called otherwise.
_PANDAS = {"nunique": "distinct_exact"}


def _defaults(options: dict[str, Any]) -> dict[str, Any]:
    return {"ddof": 1, **skipping(options)}


def _numeric(frame: pandas.DataFrame, only: bool) -> pandas.DataFrame:
    return frame.select_dtypes(["number", "bool"]) if only else frame


@pandas.api.extensions.register_series_accessor("reduced")
@with_ops("_one")
class SeriesAccessor:
    """`series.reduced.mean()`, and every other op of `reduced.Client`."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def _one(self, op: str, *arguments: Any, **options: Any) -> Any:
        return getattr(_where.client, op)(self._array, *arguments, **_defaults(options))

    def agg(self, ops: str | Sequence[str], **options: Any) -> Any:
        """A Series of the results of several ops, in one read; of one op its result."""
        return _aggregated(self._array, ops, _defaults(options))

    def groupby(self, by: Any, *, sort: bool = True, dropna: bool = True, bucket: str | None = None) -> GroupBy:
        """As `pandas.Series.groupby`. `bucket`: as of `reduced.Options`."""
        return GroupBy(self._array, by, sort, dropna, bucket)


@pandas.api.extensions.register_dataframe_accessor("reduced")
@with_ops("_one")
class DataFrameAccessor:
    """`frame.reduced.mean()`, along the rows by default, and every other op of `reduced.Client`."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def _one(self, op: str, *arguments: Any, numeric_only: bool = False, **options: Any) -> Any:
        given = _defaults(options)
        if op not in ("topk", "bottomk", "argtopk", "argbottomk", "quantile", "weighted_quantile", "histogram") and arguments:
            given["axis"], arguments = arguments[0], arguments[1:]
        if op not in ("cov_matrix", "corr_matrix"):  # whose answers are those of all rows
            given.setdefault("axis", 0)
        return getattr(_where.client, op)(_numeric(self._array, numeric_only), *arguments, **given)

    def agg(self, ops: str | Sequence[str], *, numeric_only: bool = False, **options: Any) -> Any:
        """A frame of the results of several ops for each column, in one read; of one op a Series."""
        frame = _numeric(self._array, numeric_only)
        if isinstance(ops, str) and len(names_of(ops)) == 1:
            return self._one(ops.strip(), numeric_only=numeric_only, **options)
        found = {name: _aggregated(frame.iloc[:, number], ops, _defaults(options)) for number, name in enumerate(frame.columns)}
        return pandas.DataFrame(found)

    def groupby(self, by: Any, *, sort: bool = True, dropna: bool = True, bucket: str | None = None) -> GroupBy:
        """As `pandas.DataFrame.groupby`: `by` is the name of a column or an index level, a column, or a list of these. `bucket`: as of
        `reduced.Options`."""
        return GroupBy(self._array, by, sort, dropna, bucket)


def _aggregated(column: Any, ops: str | Sequence[str], options: dict[str, Any]) -> Any:
    names = names_of(ops)
    found = _where.client.reduce(column, [_PANDAS.get(name, name) for name in names], **options)
    results = [found[_PANDAS.get(name, name)] for name in names]
    return results[0] if isinstance(ops, str) and len(names) == 1 else pandas.Series(results, index=names, name=column.name)


@with_ops("_one")
class GroupBy:
    """Groups of a Series or a frame, as those of pandas: `agg`, `size`, a method for each op, and columns by `[...]`."""

    def __init__(self, array: Any, by: Any, sort: bool, dropna: bool, bucket: str | None, _of: tuple[Any, Groups] | None = None) -> None:
        if _of is None:
            options: Any = {"keys": by, "sort": sort, "missing": "drop" if dropna else "group"}
            of, resolved = _labels.container(array).resolved(options | ({"bucket": bucket} if bucket is not None else {}))
            columns = _keys.columns(resolved["keys"], bucket)
            _of = of.array, _keys.encode(columns, len(array), resolved["missing"], sort)
        self._array, self._groups = _of

    def __getitem__(self, columns: Any) -> GroupBy:
        return GroupBy(None, None, True, True, None, (self._array[columns], self._groups))

    def _one(self, op: str, *arguments: Any, numeric_only: bool = False, **options: Any) -> Any:
        array = _numeric(self._array, numeric_only) if self._array.ndim == 2 else self._array
        return getattr(_where.client, op)(array, *arguments, keys=self._groups, **_defaults(options))

    def nunique(self) -> Any:
        """How many different values each group has."""
        return self._one("distinct_exact")

    def size(self) -> Any:
        """How many items each group has, also missing ones."""
        codes = self._groups.codes
        counts = np.bincount(codes[codes >= 0], minlength=self._groups.number)
        return _where.client.sum(pandas.Series(counts), keys=self._groups._replace(codes=np.arange(self._groups.number)))

    def agg(self, ops: str | Sequence[str] | Mapping[Any, str | Sequence[str]] | None = None, **named: tuple[Any, str]) -> Any:
        """As `agg` of pandas, each column in one read: an op, a list of ops, a mapping of columns to these, or names with a column and an
        op each (`total=("price", "sum")`)."""
        if named and ops is None:
            found = {column: self._of_column(column, [op for name, op in named.values() if name == column])
                     for column in dict.fromkeys(column for column, _ in named.values())}
            return pandas.DataFrame({name: found[column][op] for name, (column, op) in named.items()})
        if isinstance(ops, Mapping):
            several = any(not isinstance(each, str) for each in ops.values())
            found = {column: self._of_column(column, names_of(each)) for column, each in ops.items()}
            return pandas.DataFrame({(column, op) if several else column: values for column in found for op, values in found[column].items()})
        if ops is None or named:
            raise TypeError("agg: got no ops, or ops beside named ones; allowed: one of them")
        names = names_of(ops)
        if isinstance(ops, str) and len(names) == 1:
            return self._one(_PANDAS.get(names[0], names[0]))
        if self._array.ndim == 1:
            return pandas.DataFrame(self._results(self._array, names))
        every = {column: self._of_column(column, names) for column in self._array.columns}
        return pandas.DataFrame({(column, op): values for column, results in every.items() for op, values in results.items()})

    def _of_column(self, column: Any, names: Sequence[str]) -> dict[str, Any]:
        if self._array.ndim == 1 or column not in self._array.columns:
            raise ValueError(f"agg: got column {column!r}; allowed: {', '.join(map(repr, getattr(self._array, 'columns', [])))}")
        return self._results(self._array[column], names)

    def _results(self, column: Any, names: Sequence[str]) -> dict[str, Any]:
        found = _where.client.reduce(column, [_PANDAS.get(name, name) for name in names], keys=self._groups, **_defaults({}))
        return {name: found[_PANDAS.get(name, name)] for name in names}

"""Series and frames of polars: their names, and results beside the labels of their groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reduced._frames import Frames, as_column, axes, grouped
from reduced._keys import Groups, is_column, is_missing
from reduced._labels import Answer, Container
from reduced._options import Options


class Polars(Frames):
    def __init__(self, array: Any) -> None:
        import polars

        self.polars = polars
        super().__init__(array)

    @property
    def is_frame(self) -> bool:
        return isinstance(self.array, self.polars.DataFrame)

    def columns(self) -> list[tuple[Any, Any]]:
        return [(column.name, column) for column in self.array.get_columns()]

    def empty(self) -> Container:
        return Polars(self.array[:0])

    def resolved(self, options: Options) -> tuple[Container, Options]:
        given: Any = dict(options)
        keys = given.get("keys")
        of = self
        rows = grouped(given) or axes(given, 2) == (0,)  # where weights may be of the rows alone
        for side in ("where", "y", "weights"):
            if isinstance(given.get(side), self.polars.Series) and self.is_frame and not (side == "weights" and (rows or axes(given, 2) == (1,))):
                given[side] = as_column(given[side])
        listed = keys if isinstance(keys, list | tuple) else [keys]
        names = [each for each in listed if isinstance(each, str)] if keys is not None else []
        if names and self.is_frame and (isinstance(keys, str) or all(
                isinstance(each, str) and each in self.array.columns or is_column(each) for each in listed)):
            for name in names:
                if name not in self.array.columns:
                    raise ValueError(f"keys: got {name!r}; allowed: columns, or their names, which are {', '.join(map(repr, self.array.columns))}")
            found = [self.array[each] if isinstance(each, str) else each for each in listed]
            given["keys"] = found[0] if isinstance(keys, str) else found
            of = Polars(self.array.drop(names))
        elif isinstance(keys, str):
            raise ValueError(f"keys: got {keys!r}; allowed: columns")
        return of, given

    def labelled(self, op: str, answers: list[Answer], groups: Groups | None, options: Options, leading: Any = None) -> Any:
        dtypes = self.array.dtypes if self.is_frame else [self.array.dtype]
        if self.split:
            return self._beside(groups, [self._typed(each, dtype, name) for each, dtype, (name, _) in zip(answers, dtypes, self.columns())], op)
        values, none = np.asarray(answers[0].values), answers[0].none
        if leading is not None:
            if self.is_frame or values.ndim != 2:
                return values
            return self._beside(groups, [self._typed(Answer(each, None), dtypes[0], str(q)) for q, each in zip(leading, values)], op)
        if values.ndim == 0:
            return self._typed(Answer(values[None], None), dtypes[0], "")[0] if values.dtype.kind in "mM" else answers[0].values
        if not self.is_frame:
            return self._beside(groups, [self._typed(answers[0], dtypes[0], self.array.name)], op)
        gone, rows = axes(options, 2), groups is not None or grouped(options)
        if rows or gone == (0,):
            if not rows:
                values, none = values[None], None if none is None else none[None]
            columns = [Answer(values[:, i], None if none is None else none[:, i]) for i in range(self.shape[1])]
            return self._beside(groups, [self._typed(each, None, name) for each, (name, _) in zip(columns, self.columns())], op)
        return self._typed(answers[0], None, "") if gone == (1,) else values

    def matrix(self, values: Any) -> Any:
        return self.polars.DataFrame(dict(zip(self.array.columns, np.asarray(values).T))) if np.ndim(values) == 2 else values

    def _beside(self, groups: Groups | None, columns: list[Any], op: str) -> Any:
        """Results beside the labels of their groups."""
        if groups is None:
            return self.polars.DataFrame(columns) if self.is_frame else columns[0]
        several = len(groups.labels) > 1
        columns = [column if column.name else column.alias(op or "value") for column in columns]
        taken = {column.name for column in columns}
        labels = []
        for number, (label, name) in enumerate(zip(groups.labels, groups.names)):
            name = str(name) if name else f"key_{number}" if several else "key"
            if name in taken:
                columns = [column.alias(f"{name}_{op}") if column.name == name else column for column in columns]
            taken.add(name)
            labels.append(_of_polars(self.polars, name, label))
        return self.polars.DataFrame([*labels, *columns])

    def _typed(self, answer: Answer, dtype: Any, name: str) -> Any:
        values = np.atleast_1d(np.asarray(answer.values))
        none = answer.none
        found = self.polars.Series(name, _unit_of_polars(values))
        zone = getattr(dtype, "time_zone", None)
        if values.dtype.kind == "M" and zone is not None:
            found = found.dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
        if none is not None and bool(np.any(none)) and values.dtype.kind in "biu":
            found = self.polars.select(self.polars.when(~self.polars.Series(np.atleast_1d(none))).then(found).alias(name)).to_series()
        return found


def _of_polars(polars: Any, name: str, labels: Any) -> Any:
    """Labels of any container as polars has them."""
    if isinstance(labels, polars.Series):
        return labels.alias(name)
    if isinstance(labels, np.ndarray) and not isinstance(labels, np.ma.MaskedArray) and labels.dtype.kind not in "OSUT":
        return polars.Series(name, _unit_of_polars(labels))
    items = labels.to_pylist() if hasattr(labels, "to_pylist") else labels.tolist()
    items = [None if is_missing(each) else each for each in items]
    try:
        return polars.Series(name, items)
    except TypeError:  # objects of several types
        return polars.Series(name, items, dtype=polars.Object)


def _unit_of_polars(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Times in a unit that polars has."""
    if values.dtype.kind not in "mM" or np.datetime_data(values.dtype) in (("D", 1), ("ms", 1), ("us", 1), ("ns", 1)) and values.dtype != "m8[D]":
        return values
    return values.astype(f"{values.dtype.kind}8[ms]")

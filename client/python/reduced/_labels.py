"""Labels: what reductions of labelled arrays ask of plain ones, and the labels that results get.

A container (`_frames.py`, `_polars.py`, `_dims.py`) is an array with labels. It resolves names and aligns what is beside it, so that only positions are
left; says which plain arrays are to be reduced, the columns of a frame by themselves, so that each keeps its dtype; and labels their
results. Keys that are no plain integers are encoded here (`_keys.py`).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from reduced import _keys
from reduced._arrays import Elements, mask_of, on_gpu
from reduced._containers import read
from reduced._copies import Mask
from reduced._cuda import CudaElements
from reduced._distribution import Quantiles, Top
from reduced._errors import Error
from reduced._keys import Column, Groups
from reduced._options import Options, check_options
from reduced._pairs import Matrix
from reduced._result import ArrayResults, Result

Ask = Callable[[Any, Sequence[str], Options], Result]
_T = TypeVar("_T")

_OPTIONS = frozenset({"bucket", "missing", "sort", "keep_attrs"})
_LABELLED = frozenset({"pandas", "polars", "xarray"})  # packages
# Which outputs there are.
_OUTPUTS = ("axis", "segments", "lengths", "keys", "where")
_EXTREMA = frozenset({"min", "max", "range", "argmin", "argmax"})


def concern(array: Any, options: Options) -> bool:
    """Whether an array may have labels, or options ask for more than positions."""
    kind: Any = type(array)
    if _may_have_labels(kind):
        return True
    keys = options.get("keys")
    return not _OPTIONS.isdisjoint(options) or keys is not None and not (type(keys) is np.ndarray and keys.dtype.kind in "iu")


@functools.lru_cache(maxsize=256)
def _may_have_labels(kind: type) -> bool:
    return any(base.__module__.partition(".")[0] in _LABELLED for base in kind.__mro__)


class Part(NamedTuple):
    """A plain array that is reduced by itself, such as a column. `name`: for errors; empty: it is all there is."""

    array: Any
    options: Options
    name: str = ""


class Answer(NamedTuple):
    """What a part answers to one op. `none`: which outputs have no element; None: that is not known, or there is no such output."""

    values: Any
    none: Mask | None


class Container:
    """An array without labels, and the base of those with labels."""

    # Whether outputs of no element are missing values, and whether results with keepdims are labelled.
    fills = keeps_dims = False
    server: str | None = "local:"  # where blocks are reduced

    def __init__(self, array: Any) -> None:
        self.array = array

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape) if hasattr(self.array, "shape") else np.shape(self.array)

    def resolved(self, options: Options) -> tuple[Container, Options]:
        """Options of positions alone, but for keys, which are columns of any kind; and what is reduced by them."""
        return self, options

    def members(self, options: Options) -> list[Part] | None:
        """The arrays of a container of several; None: it is one."""
        return None

    def parts(self, names: Sequence[str], options: Options) -> list[Part]:
        return [Part(self.array, options)]

    def empty(self) -> Container:
        """The same without rows."""
        if hasattr(self.array, "_on_server"):
            return Container(np.empty((0, *self.shape[1:]), self.array.dtype))
        return Container(np.asarray(read(self.array)[0])[:0])

    def labelled(self, op: str, answers: list[Answer], groups: Groups | None, options: Options, leading: Any = None) -> Any:
        """The results of one op, of all parts. `leading`: the quantiles of the first dimension, if there is one."""
        return answers[0].values

    def matrix(self, values: Any) -> Any:
        """Answers whose last two dimensions are both those of the columns."""
        return values

    def ask(self, ask: Ask, part: Part, names: Sequence[str]) -> Result:
        return ask(part.array, names, part.options)


def together(groups: Groups) -> Any:
    """The labels of groups in the container that their columns have; of several columns that have none in common a tuple of them."""
    if len(groups.labels) == 1:
        return _shown(groups.labels[0], groups.names[0])
    pandas, polars = sys.modules.get("pandas"), sys.modules.get("polars")
    if pandas is not None and all(isinstance(each, pandas.api.extensions.ExtensionArray) for each in groups.labels):
        return pandas.MultiIndex.from_arrays(groups.labels, names=groups.names)
    if polars is not None and all(isinstance(each, polars.Series) for each in groups.labels):
        return polars.DataFrame(groups.labels)
    return tuple(_shown(labels, name) for labels, name in zip(groups.labels, groups.names))


def _shown(labels: Any, name: Any) -> Any:
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(labels, pandas.api.extensions.ExtensionArray):
        return pandas.Index(labels, name=name)
    return labels


def container(array: Any) -> Container:
    """The labels that an array has."""
    if isinstance(array, np.ndarray | list | tuple | Elements | CudaElements):
        return Container(array)
    pandas, polars, xarray = (sys.modules.get(name) for name in ("pandas", "polars", "xarray"))
    if pandas is not None and hasattr(pandas, "DataFrame") and isinstance(array, pandas.Series | pandas.DataFrame | pandas.Index):
        from reduced._frames import Pandas

        return Pandas(array)
    if polars is not None and hasattr(polars, "DataFrame") and isinstance(array, polars.Series | polars.DataFrame):
        from reduced._polars import Polars

        return Polars(array)
    if xarray is not None and hasattr(xarray, "DataArray") and isinstance(array, xarray.DataArray | xarray.Dataset):
        from reduced import _dims

        return _dims.container(array)
    return Container(array)


def reduce(ask: Ask, array: Any, names: Sequence[str], options: Options, server: str | None = "local:") -> Result:
    """The labelled results of an array. `ask`: reduces a plain one. `server`: for blocks of dask; None: they are computed first."""
    counted = options.get("groups") is not None
    of = container(array)
    several = of.members(options)
    if several is not None:
        every = [_of_part(each, functools.partial(reduce, ask, each.array, names, each.options, server)) for each in several]
        return _combined(of, every, names, None, options, False)
    of, options = of.resolved(options)
    of.server = server
    check_options(options)
    of, options, groups, column = grouped(of, options)
    kept = options.get("keep") or options.get("state") or options.get("keepdims") and not of.keeps_dims
    fills = (of.fills and not kept and options.get("empty") != "error" and any(options.get(name) is not None for name in _OUTPUTS)
             and not _EXTREMA.isdisjoint(names))
    asked = [*names, "count"] if fills and "count" not in names else names
    parts = of.parts(asked, {**options, "empty": "fill"} if fills else options)
    found = [_of_part(part, functools.partial(of.ask, ask, part, asked)) for part in parts]
    result = found[0]
    keys = getattr(result, "group_keys", None)
    if column is not None and keys is not None:
        groups = Groups(np.empty(0, np.int64), len(keys), [revived(column, keys)], [column.name])
    if not kept and type(of) is not Container:
        result = _combined(of, found, names, groups, options, fills)
    if groups is not None and not counted and isinstance(result, ArrayResults):
        result.group_keys = together(groups)
    return result


def planned(run: Callable[[Any, Options], Any], array: Any, options: Options) -> Any:
    """The labelled value of a plan (`_distribution.py`). `run`: the value of one for a plain array."""
    if not concern(array, options):
        return _unlabelled(run(array, options))
    of = container(array)
    several = of.members(options)
    if several is not None:
        answers = [Answer(_of_part(each, functools.partial(planned, run, each.array, each.options)), None) for each in several]
        if all(isinstance(each.values, Top) for each in answers):
            return Top(*(of.labelled("", [Answer(each.values[i], None) for each in answers], None, options) for i in range(2)))
        return of.labelled("", answers, None, options)
    of, options = of.resolved(options)
    check_options(options)
    of, options, groups, _ = grouped(of, options, finds=type(of) is Container)
    part, = of.parts(("median",), options)
    value = run(part.array, part.options)
    if type(of) is Container or options.get("keep") or options.get("keepdims") and not of.keeps_dims:
        return _unlabelled(value)

    return _labelled(of, value, groups, options)


def _labelled(of: Container, value: Any, groups: Groups | None, options: Options) -> Any:
    """The labelled value of a plan."""
    leading = None
    if isinstance(value, Quantiles):
        value, leading = value
    if isinstance(value, Matrix):
        return of.matrix(value.values)
    if isinstance(value, np.ndarray | np.generic):
        return of.labelled("", [Answer(value, None)], groups, options, leading)
    if isinstance(value, Top):
        return Top(*(_labelled(of, each, groups, options) for each in value))
    return (_labelled(of, value[0], groups, options), value[1]) if isinstance(value, tuple) else value  # a histogram


def _unlabelled(value: Any) -> Any:
    return value.values if isinstance(value, Quantiles | Matrix) else value


def _of_part(part: Part, answer: Callable[[], _T]) -> _T:
    """What a part answers. An error names the part."""
    try:
        return answer()
    except (Error, TypeError, ValueError) as error:
        if part.name:
            said = str(error.args[0] if error.args else error)
            error.args = (f"array: {part.name}: {said.removeprefix('array: ')}", *error.args[1:])
        raise


def _combined(of: Container, found: list[Result], names: Sequence[str], groups: Groups | None, options: Options, fills: bool) -> Result:
    """The results of all parts as those of one array with labels."""
    result = type(found[0]).__new__(type(found[0]))
    result.__dict__.update(found[0].__dict__)
    result.size = sum(each.size for each in found)
    errors = {op: each.errors[op] for op in names for each in reversed(found) if op in each.errors}
    if errors and len(errors) == len(set(names)):
        raise next(iter(errors.values()))
    arrays = isinstance(result, ArrayResults)
    result._results = {}
    for op in names:
        if op in errors:
            continue
        answers = []
        for each in found:
            dtype, values = each._results[op]
            none = np.asarray(each._results["count"][1]) == 0 if fills and op in _EXTREMA else None
            if isinstance(values, np.ma.MaskedArray):
                values, none = np.ma.getdata(values), np.ma.getmaskarray(values)
            answers.append(Answer(values if arrays or not dtype else each[op], none))
        result._results[op] = "", of.labelled(op, answers, groups, options)
    result.errors, result._order = errors, list(names)
    return result


# Keys.


def _elsewhere(array: Any) -> bool:
    """Whether an array is in the memory of a server or a GPU."""
    return hasattr(array, "_on_server") or isinstance(array, CudaElements) or on_gpu(array)


def grouped(of: Container, options: Options, finds: bool = True) -> tuple[Container, Options, Groups | None, Column | None]:
    """The options of plain integer keys, and the groups that these are codes of. The column: of integers, which the engine finds the
    groups of, if it may (`finds`)."""
    plain: Any = {name: value for name, value in options.items() if name not in ("bucket", "missing", "sort", "keep_attrs")}
    keys, bucket, missing, sort = options.get("keys"), options.get("bucket"), options.get("missing", "drop"), options.get("sort", True)
    if keys is None:
        for name, default in (("bucket", None), ("missing", "drop"), ("sort", True)):
            if options.get(name, default) != default:
                raise ValueError(f"{name}: got it without keys; allowed: with keys")
        return of, plain, None, None
    if missing not in ("drop", "group"):
        raise ValueError(f"missing: got {missing!r}; allowed: 'drop', 'group'")
    count = options.get("groups")
    if isinstance(keys, Elements) or _elsewhere(keys):
        if bucket is not None or not sort:
            raise TypeError("keys: got keys in the memory of a server or a GPU with bucket or sort; allowed: keys in host memory")
        return of, plain, None, None
    groups = keys if isinstance(keys, Groups) else None
    if groups is None:
        columns = _keys.columns(keys, bucket)
        one = columns[0] if len(columns) == 1 else None
        # A mask of a frame may leave a group no item in some of the columns, of which each is asked by itself.
        finds = finds and (type(of) is Container or len(np.shape(options.get("where", ()))) < 2)
        if one is not None and one.integers is not None and (count is not None or finds and sort and _revives(one)):
            plain["keys"] = one.integers
            numbered = None if count is None or type(of) is Container else Groups(one.integers, count, [np.arange(count)], [one.name])
            return of, plain, numbered, one if count is None else None
        if count is not None:
            raise TypeError(f"groups: got it with keys of {_said(columns)}; allowed: integer keys, none of them missing")
        if options.get("outside") is not None:
            raise ValueError("outside: got it without groups; allowed: with groups")
        if options.get("state"):  # which has the codes of the groups, and others have other codes
            raise TypeError(f"state: got True with keys of {_said(columns)}; allowed: with integer keys, none of them missing")
        rows = of.shape[0] if of.shape else 0
        groups = _keys.encode(columns, rows, missing, bool(sort))
    where = options.get("where")
    if where is not None:
        if _elsewhere(where) or isinstance(where, Elements):
            raise TypeError("where: got a mask in the memory of a server or a GPU with keys that are no integers; allowed: one in host memory")
        mask = mask_of(where, of.shape)
        groups = groups.of_rows(np.asarray(mask.any(axis=tuple(range(1, mask.ndim)))), bool(sort))
    plain["keys"] = groups.codes
    if groups.number > 0:
        plain["groups"] = groups.number
        if bool((groups.codes < 0).any()):
            plain["outside"] = "drop"
        return of, plain, groups, None
    plain["keys"] = np.empty(0, np.int64)
    plain.pop("where", None)
    for role in ("y", "weights"):
        if plain.get(role) is not None:
            plain[role] = container(plain[role]).empty().array
    return of.empty(), plain, groups, None


def _said(columns: list[Column]) -> str:
    return "several columns" if len(columns) > 1 else f"type {type(columns[0].source).__name__}"


def _revives(column: Column) -> bool:
    """Whether keys become labels of their column again without the column."""
    source = column.source
    if isinstance(source, np.ndarray):
        return source.dtype.kind in "iu"
    pandas, polars = sys.modules.get("pandas"), sys.modules.get("polars")
    if pandas is not None and isinstance(source, pandas.api.extensions.ExtensionArray):
        return isinstance(source, pandas.Categorical) or isinstance(source, pandas.arrays.NumpyExtensionArray)
    return polars is not None and isinstance(source, polars.Series) and source.dtype.is_integer()


def revived(column: Column, keys: npt.NDArray[Any]) -> Any:
    """Labels of keys that are integers of a column."""
    pandas, polars = sys.modules.get("pandas"), sys.modules.get("polars")
    if pandas is not None and isinstance(column.source, pandas.Categorical):
        return pandas.Categorical.from_codes(keys, dtype=column.source.dtype)
    if pandas is not None and isinstance(column.source, pandas.api.extensions.ExtensionArray):
        return pandas.array(keys, dtype=column.source.dtype)
    if polars is not None and isinstance(column.source, polars.Series):
        return polars.Series(column.source.name, keys).cast(column.source.dtype)
    return keys

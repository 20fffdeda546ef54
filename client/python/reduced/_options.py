"""The options of reductions: their types, their defaults, and the checks of their values."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict, TypeVar, cast, get_args, get_origin, get_type_hints

import numpy as np

from reduced import _core

# The ops about two arrays, and the option that has the other one.
OPERANDS = _core.operands


Along: TypeAlias = int | str | Sequence[int] | Sequence[str]
Axis: TypeAlias = Along | None
Nan: TypeAlias = Literal["propagate", "omit"]
Overflow: TypeAlias = Literal["error", "wrap", "saturate"]
Precision: TypeAlias = Literal["", "exact", "f64"]
Engine: TypeAlias = Literal["auto", "cpu", "cuda"]
Via: TypeAlias = Literal["auto", "inline", "stream", "region"]
Outside: TypeAlias = Literal["error", "drop"]
Empty: TypeAlias = Literal["error", "fill"]
Missing: TypeAlias = Literal["drop", "group"]
Interpolation: TypeAlias = Literal["linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf"]


class WholeOptions(TypedDict, total=False):
    """The options with which a reduction of a whole array has one answer: see `Options`."""

    nan: Nan
    ddof: int
    overflow: Overflow
    precision: Precision
    engine: Engine
    device: str
    pipeline: str
    block_size: int
    via: Via
    copy: bool
    timeout: float | None
    state: bool
    results: bool
    where: Any
    empty: Empty
    ttl: float
    owner: str | None
    keep_attrs: bool


class AlongOptions(WholeOptions, total=False):
    """The same along axes."""

    keepdims: bool


class KeyOptions(WholeOptions, total=False):
    """The same by keys."""

    groups: int | None
    outside: Outside
    bucket: str | None
    missing: Missing
    sort: bool


class _Options(WholeOptions, total=False):
    """The options of a reduction but for `axis`, which methods also take as a positional argument: see `Options`."""

    keepdims: bool
    segments: Any
    lengths: Any
    keys: Any
    groups: int | None
    outside: Outside
    bucket: str | None
    missing: Missing
    sort: bool
    keep: bool


class OneOptions(_Options, total=False):
    """The options of a reduction of one array: see `Options`."""

    axis: Axis


class AxisOptions(_Options, total=False):
    """The options of a method that takes `axis` as a positional argument, too: see `Options`."""

    y: Any
    weights: Any


class Options(OneOptions, total=False):
    """The options of a reduction. A line has the type of an option, its default, and what it says.

    nan: str = "propagate". "omit" leaves NaNs out. NaTs are left out unless "propagate" is given.
    ddof: int = 0. var, std and cov divide by n - ddof, weighted_var and weighted_std by the sum of the weights - ddof.
    overflow: str = "error". Of integer sums and products; or "wrap", "saturate".
    precision: str = "". Of float sums: "exact" or "f64"; by default exact, if the pipeline can.
    engine: str = "auto". Or "cpu", "cuda".
    device: str = "". Such as "cuda:1"; by default any.
    pipeline: str = "". One of the ladder; by default the engine's.
    block_size: int = 0. The threads of a block, for pipelines that take it; 0: the pipeline's.
    via: str = "auto". How the elements reach the server; or "inline", "stream", "region".
    copy: bool = False. True: arrays of a GPU are copied to host memory first, as is needed where a server cannot read them.
    timeout: float | None = None. In seconds; None: the client's, and a second more for each 64 MiB.
    state: bool = False. True fills in `Result.state`.
    results: bool = True. False, with `state`: no results, which a part of an array may not have by itself.

    Those of arrays of results. At most one of `axis`, `segments`, `lengths` and `keys` is given, and `where` with any of them or alone.

    axis: int | str | Sequence[int] | Sequence[str] | None = None. The dimensions to reduce, of xarray by name; (): none, each element is
        an output; None: all.
    keepdims: bool = False. True: results have dimensions of 1 in place of those that were reduced.
    segments: array = None. Offsets of segments of the first dimension, int32 or int64, one more than segments.
    lengths: array = None. The lengths of segments of the first dimension, which add up to its size.
    keys: array = None. One for each item of the first dimension: items with the same key are a group. Integers, strings, categories, booleans,
        times or floats; a list of several such columns, or a frame; of a frame or an xarray object also the names of its own.
    groups: int | None = None. Of integer keys: 0 to groups - 1; None: those that there are, ascending (`ArrayResult.group_keys`).
    outside: str = "error". Other keys, with `groups`; "drop" leaves them out.
    bucket: str | None = None. Keys that are times count as the start of their "year", "quarter", "month", "week" (from Monday) or "day", or
        of stretches of a fixed length since 1970, such as "1h", "15min", "30s". Times with a zone count as the clock there shows them.
    missing: str = "drop". Leaves out items whose key is missing, in any of several columns; "group": missing is a key, the last one.
    sort: bool = True. Groups ascend by key; False: they have the order in which their keys first appear.
    where: array = None. bool, of a shape that broadcasts to the array's: only elements where it is True are there.
    empty: str = "error". min, max, argmin, argmax and range of no element: "fill" gives NaN for floats, for integers what any
        element would replace (range: 0), and -1 for an index. Likewise what topk and bottomk lack. By default outputs of pandas, polars and
        xarray have NaN or a missing value there.
    keep: bool = False. True: results are `ResidentArray`s on the server.
    ttl: float = 0. In seconds, with `keep`: results expire when they are idle for this long; 0: the server's default.
    owner: str | None = None. With `keep`: as of `Client.put`.
    keep_attrs: bool = False. True: results of xarray have the attributes of what was reduced.

    The other array of ops about two. Its shape broadcasts to the array's. Integers of one beside floats of the other become float64, if
    they can exactly. A pair of which one is missing is left out, and with nan="omit" one that has a NaN.

    y: array = None. Of dot, cov, corr and the like; the array and it broadcast as in NumPy.
    weights: array = None. Of weighted_mean and its like, and of the methods sum, mean, var, std, median and quantile. Those of the
        reduced dimensions alone will do, as in `numpy.average`.
    """

    y: Any
    weights: Any


# The values that options have when they are not given. The library has the first ones with every reduction; the others are those of
# arrays of results, and what the package itself does.
DEFAULTS: Options = {"engine": "auto", "device": "", "pipeline": "", "precision": "", "nan": "propagate", "overflow": "error", "ddof": 0,
                     "block_size": 0, "via": "auto", "timeout": None, "state": False, "results": True}
_OTHERS: Options = {"axis": None, "keepdims": False, "segments": None, "lengths": None, "keys": None, "groups": None, "outside": "error",
                    "bucket": None, "missing": "drop", "sort": True, "where": None, "empty": "error", "keep": False, "ttl": 0, "owner": None,
                    "keep_attrs": False, "copy": False, "y": None, "weights": None}


def along(axis: Axis, options: AxisOptions) -> Options:
    return cast(Options, options if axis is None else {"axis": axis, **options})


_F = TypeVar("_F", bound=Callable[..., Any])


def named(function: _F) -> _F:
    """Shows each option of a function as a parameter of its signature, which help and completion read. Options remain those of its
    `**options`, by which type checkers know them."""
    signature = inspect.signature(function)
    given = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    annotations: dict[str, str] = {name: annotation for kind in (_Options, OneOptions, Options) for name, annotation in _written(kind).items()}
    every: dict[str, Any] = {**_OTHERS, **DEFAULTS}
    options = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=every[name], annotation=annotation)
               for name, annotation in annotations.items() if name not in signature.parameters]
    function.__signature__ = signature.replace(parameters=[*given, *options])  # type: ignore[attr-defined]
    return function


def _written(options: type) -> dict[str, str]:
    """The types of options as the source has them."""
    return {name: getattr(kind, "__forward_arg__", str(kind)) for name, kind in options.__annotations__.items()}


def _is_int(value: Any) -> bool:
    return isinstance(value, int | np.integer)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating)


# Of a type: whether a value has it, and which do, in words. Numbers with a point are times.
_KINDS: dict[Any, tuple[Callable[[Any], bool], str]] = {
    Any: (lambda value: True, "anything"),
    bool: (lambda value: isinstance(value, bool | np.bool_), "True, False"),
    float: (_is_number, "seconds"),
    float | None: (lambda value: value is None or _is_number(value), "seconds, or None"),
    int: (_is_int, "whole numbers"),
    int | None: (lambda value: value is None or _is_int(value), "whole numbers, or None"),
    **dict.fromkeys((Axis, int | tuple[int, ...] | None), (
        lambda value: value is None or (all(map(_is_int, value)) if isinstance(value, tuple | list) else _is_int(value)),
        "whole numbers, tuples of them, or None")),
    str: (lambda value: isinstance(value, str), "strings"),
    str | None: (lambda value: value is None or isinstance(value, str), "strings, or None"),
}
OPTIONS: dict[str, Any] = {name: str if get_origin(kind) is Literal else kind for name, kind in get_type_hints(Options).items()}
# Values that this process knows; the engine knows those of the others.
_VALUES: dict[str, tuple[str, ...]] = {"missing": get_args(Missing), "outside": get_args(Outside), "empty": get_args(Empty)}
_WHOLE = (int, int | None, Axis, int | tuple[int, ...] | None)
_OF_64_BITS = frozenset({"begin", "ddof", "groups", "rows"})


def check(kind: Any, **values: Any) -> None:
    """TypeError: a value has another type; it is named. ValueError: it is too large."""
    has_it, allowed = _KINDS[kind]
    for name, value in values.items():
        if not has_it(value):
            raise TypeError(f"{name}: got {reprlib.repr(value)}; allowed: {allowed}")
        bits = 64 if name in _OF_64_BITS else 32
        numbers = value if isinstance(value, tuple | list) else (value,)
        if kind in _WHOLE and any(number is not None and int(number).bit_length() >= bits for number in numbers):
            raise ValueError(f"{name}: got {reprlib.repr(value)}; allowed: whole numbers of {bits} bits")


def check_options(options: Mapping[str, Any]) -> None:
    """TypeError: there is no such option, or it has another type."""
    for name, value in options.items():
        if name not in OPTIONS:
            raise TypeError(f"option: got {name}; allowed: {', '.join(OPTIONS)}")
        check(OPTIONS[name], **{name: value})

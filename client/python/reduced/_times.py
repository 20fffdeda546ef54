"""Times: buckets of keys, and reductions of datetime64 and timedelta64.

The engine reduces their integers. NaT is missing: it is left out, unless nan="propagate" is given, by which an output that has a NaT is
NaT, as in NumPy. Nothing is rounded but means and medians, which are the exact ones to the nearest unit, ties to even.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reduced._copies import Mask, both
from reduced._errors import Error, InvalidArgumentError, OutOfRangeError
from reduced._options import Options
from reduced._result import ArrayResults, Result

Times = npt.NDArray[Any]
Ask = Callable[[Any, Mask | None, Sequence[str], Options], Result]

# Units of NumPy, and fixed buckets, in ns.
_UNITS = {"W": 604_800_000_000_000, "D": 86_400_000_000_000, "h": 3_600_000_000_000, "m": 60_000_000_000, "s": 1_000_000_000, "ms": 1_000_000,
          "us": 1000, "ns": 1}
_LENGTHS = {"day": 86_400_000_000_000, "d": 86_400_000_000_000, "hour": 3_600_000_000_000, "h": 3_600_000_000_000,
            "minute": 60_000_000_000, "min": 60_000_000_000, "second": 1_000_000_000, "s": 1_000_000_000, "ms": 1_000_000, "us": 1000, "ns": 1}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_BUCKET = re.compile(r"(\d*)([a-z]+)")


def check_bucket(bucket: str) -> tuple[int, str]:
    """How many of which unit. TypeError, ValueError: it is no bucket."""
    if not isinstance(bucket, str):
        raise TypeError(f"bucket: got {bucket!r}; allowed: strings")
    said = _BUCKET.fullmatch(bucket.replace(" ", ""))
    count = int(said[1] or 1) if said else 0
    unit = said[2] if said else ""
    calendar = unit in _MONTHS or unit == "week"
    if count < 1 or count * _LENGTHS.get(unit, 1) >= 1 << 63 or not (calendar or unit in _LENGTHS) or calendar and count > 1:
        raise ValueError(f"bucket: got {bucket!r}; allowed: year, quarter, month, week, or a number of day, h, min, s, ms or us, such as 15min")
    return count, unit


def floored(times: Times, bucket: str) -> Times:
    """The start of the bucket of each time, in the same unit. NaT stays."""
    count, unit = check_bucket(bucket)
    dtype = times.dtype.newbyteorder("=")
    times = times.astype(dtype, copy=False)
    name, multiple = np.datetime_data(dtype)
    of_unit = multiple * _UNITS.get(name, 0)  # in ns
    numbers, nat = times.view(np.int64), np.isnat(times)
    some = bool(nat.any())
    if unit in _MONTHS or unit == "week":
        if dtype.kind == "m":
            raise TypeError(f"bucket: got {bucket!r} for timedelta64; allowed: of a fixed length, such as day, 1h, 15min")
        if of_unit == 0 or _UNITS["D"] % of_unit != 0:
            return np.asarray(np.where(nat, times, _starts(times, unit).astype(dtype)))
        # Of a table of the days that there may be, which are far fewer than times.
        per_day = _UNITS["D"] // of_unit
        days = numbers // per_day
        there = days[~nat] if some else days
        if there.size == 0:
            return times
        low, high = int(there.min()), int(there.max())
        if high - low > there.size + (1 << 20):
            starts = _starts(times.astype("M8[D]"), unit).view(np.int64) * per_day
        else:
            table = _starts(np.arange(low, high + 1).view("M8[D]"), unit).view(np.int64) * per_day
            days -= low
            if some:
                days[nat] = 0
            starts = table[days]
    else:
        if of_unit == 0:
            raise TypeError(f"bucket: got {bucket!r} for {dtype}; allowed: year, quarter, month, or times in ns to weeks")
        length = count * _LENGTHS[unit]
        if length % of_unit != 0:
            if of_unit % length != 0:
                raise ValueError(f"bucket: got {bucket!r} for {dtype}; allowed: whole multiples of its unit, or parts of it")
            return times  # no two of them are in one bucket
        step = length // of_unit
        starts = numbers // step * step
    late = starts > numbers
    if bool((late & ~nat if some else late).any()):
        raise OverflowError(f"bucket: got a time whose {bucket} begins before the first time of {dtype}")
    return np.where(nat, numbers, starts).view(dtype) if some else starts.view(dtype)


def _starts(times: Times, unit: str) -> Times:
    """The first day of the week, month, quarter or year of each time."""
    if unit == "week":
        days = times.astype("M8[D]").view(np.int64)
        return (days - (days + 3) % 7).view("M8[D]")  # day 0 was a Thursday
    months = times.astype("M8[M]").view(np.int64)
    return (months - months % _MONTHS[unit]).view("M8[M]").astype("M8[D]")


# Ops whose answers are times of the same kind, those that are lengths of time, and counts and indexes.
_SAME = frozenset({"min", "max", "mean", "median", "quantile", "topk", "bottomk"})
_LENGTH = frozenset({"range", "sum"})
_NUMBERS = frozenset({"argmin", "argmax", "argtopk", "argbottomk", "count", "distinct", "distinct_exact", "nan_count"})
_MEDIAN = ("median(method=lower)", "median(method=higher)")
_NAT = np.iinfo(np.int64).min


def _name(op: str) -> str:
    return op.partition("(")[0].strip()


def check(names: Sequence[str], kind: str, options: Options) -> None:
    """TypeError: an op or an option has no meaning for times."""
    allowed = sorted((_SAME | _LENGTH | _NUMBERS) - ({"sum"} if kind == "M" else set()))
    for op in names:
        if _name(op) not in allowed or _name(op) == "quantile" and not re.search(r"method=(lower|higher|nearest)\b", op):
            of = "datetime64" if kind == "M" else "timedelta64"
            raise TypeError(f"op {op}: got {of}; allowed: {', '.join(allowed)} (quantile by method lower, higher, nearest)")
    for name in ("state", "keep", "y", "weights"):
        if options.get(name) is not None and options.get(name) is not False:
            raise TypeError(f"{name}: got it for {'datetime64' if kind == 'M' else 'timedelta64'}; allowed: for numbers")


def reduce(answer: Ask, times: Times, there: Mask | None, names: Sequence[str], options: Options) -> Result:
    """The results of times. `answer`: reduces numbers, of which those in a mask are there."""
    dtype = times.dtype.newbyteorder("=")
    check(names, dtype.kind, options)
    nats, propagates = np.isnat(times), options.get("nan") == "propagate"
    some = bool(nats.any())
    rest: Options = {**options, "nan": "propagate"}
    present = there if not some else ~nats if there is None else both(there, ~nats)
    numbers = times.astype(dtype, copy=False).view(np.int64)
    found: dict[str, Any] = {}
    errors: dict[str, Error] = {}
    result: Result | None = None

    def ask(elements: Any, mask: Mask | None, ops: Sequence[str], given: Options) -> dict[str, Any]:
        """The answers by op. Those without one are in `errors`."""
        nonlocal result
        try:
            one = answer(elements, mask, ops, given)
        except (InvalidArgumentError, OutOfRangeError) as error:
            errors.update(dict.fromkeys(ops, error))
            return {}
        result = one if result is None else result
        errors.update(one.errors)
        return {op: np.asarray(one._results[op][1]) for op in one}

    in_parts = there is not None or some or _in_parts(options)
    lacks = options.get("empty") == "fill"
    plain = [op for op in names if op not in ("mean", "median", "nan_count")]
    if plain:
        found = ask(numbers, present, plain if not lacks or "count" in plain else [*plain, "count"], rest)
    if "mean" in names or "median" in names:
        exact: Options = {**rest, "overflow": "wrap", "empty": "fill"} if in_parts else {**rest, "overflow": "wrap"}
        of_numbers = ask(numbers, present, ("mean", "sum", "count", *(_MEDIAN if "median" in names else ())), exact)
        if of_numbers:
            found["mean"] = _mean(*(of_numbers[op] for op in ("mean", "sum", "count")))
        if _MEDIAN[0] in of_numbers:
            found["median"] = np.where(of_numbers["count"] == 0, _NAT, _middle(*(of_numbers[op] for op in _MEDIAN)))
    if "nan_count" in names:
        of_nats = ask(nats, there, ("count_nonzero",), rest)
        if of_nats:
            found["nan_count"] = of_nats["count_nonzero"]
    none = found["count"] == 0 if lacks and "count" in found else None
    first: tuple[Any, Any] | None = None
    if propagates and some:
        places = answer(nats, there, ("any", "argmax"), {**rest, "empty": "fill"} if there is not None or _in_parts(options) else rest)
        first = np.asarray(places._results["any"][1]).astype(bool), np.asarray(places._results["argmax"][1])
    if result is None:
        raise next(iter(errors.values()))
    result._results, failed = {}, {}
    for op in names:
        values = found.get(op)
        why = None if values is not None else next(errors[each] for each in (op, *_MEDIAN, "mean", "count_nonzero") if each in errors)
        if why is None and values is not None:
            try:
                values = _times(op, values, dtype, none, first)
            except OutOfRangeError as error:
                why = error
        if why is not None:
            failed[op] = why
        elif values is not None:
            number = values.ndim == 0 and not isinstance(result, ArrayResults)
            result._results[op] = "", values.item() if number and _name(op) in _NUMBERS else values[()] if number else values
    if failed and len(failed) == len(names):
        raise next(iter(failed.values()))
    result.errors, result._order = failed, list(names)
    return result


def _in_parts(options: Options) -> bool:
    return any(options.get(name) is not None for name in ("axis", "segments", "lengths", "keys", "where")) or bool(options.get("keepdims"))


def _times(op: str, values: Times, dtype: np.dtype[Any], none: Any, first: tuple[Any, Any] | None) -> Times:
    """Integers as times. `none`: which outputs have no element; `first`: which have a NaT, and its index."""
    name = _name(op)
    if name in _NUMBERS:
        if first is not None and name in ("argmin", "argmax"):
            values = np.where(first[0], first[1], values)
        return values
    unit = dtype if name in _SAME or dtype.kind == "m" else np.dtype(dtype.str.replace("M8", "m8"))
    if name == "range":
        if bool((values > np.iinfo(np.int64).max).any()):
            raise OutOfRangeError(f"op range: got a range that {unit} does not hold")
        values = values.astype(np.int64)
    nat = np.zeros(values.shape, bool)
    for mask in (none if name != "sum" else None, None if first is None else first[0]):
        if mask is not None:
            nat |= np.asarray(mask).reshape(np.shape(mask) + (1,) * (values.ndim - np.ndim(mask)))
    return np.where(nat, _NAT, values).astype(np.int64).view(unit)


def _mean(mean: Times, wrapped: Times, count: Times) -> Times:
    """Exact means to the nearest integer, ties to even. `mean`: the same rounded to float64; `wrapped`: the sum modulo 2^64; `count`: of elements."""
    near = np.clip(np.nan_to_num(np.rint(mean)), -(2.0**63), 2.0**63 - 1024).astype(np.int64)
    each = np.maximum(count, 1).astype(np.int64)
    with np.errstate(over="ignore"):
        # What is left is less than 2^63, since a mean as float64 is off by less than 1024.
        left = (wrapped.astype(np.int64).view(np.uint64) - near.view(np.uint64) * each.view(np.uint64)).view(np.int64)
        whole, part = np.divmod(left, each)
        whole = near + whole
        up = (2 * part > each) | ((2 * part == each) & (whole % 2 != 0))
    return np.where(count == 0, _NAT, whole + up)


def _middle(low: Times, high: Times) -> Times:
    """Halfway between integers, ties to even."""
    with np.errstate(over="ignore"):
        between = high.view(np.uint64) - low.view(np.uint64)
        middle = (low.view(np.uint64) + (between >> np.uint64(1))).view(np.int64)
    return np.asarray(middle + ((between % np.uint64(2) == 1) & (middle % 2 != 0)))

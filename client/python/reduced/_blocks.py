"""Arrays in blocks: what each block adds to the results, and how the blocks make up the whole array.

A block becomes a `State` of the outputs that it has elements of; states of blocks that share outputs merge along one dimension after
the other; the results of blocks that share none are put side by side. Quantiles take rounds: the merged state tells which elements of
the blocks are of interest, and those are asked for next (`next_round`, `part_again`).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from reduced import _client, _core
from reduced._arrays import Elements, dtype_name, mask_of, with_mask
from reduced._errors import Error
from reduced._distribution import op_text
from reduced._options import OPERANDS, Options, check_options
from reduced._pairs import fitted
from reduced._result import ArrayResults, Results
from reduced._state import State

# How many states merge at once.
_FAN_IN = 16
# Options of what a server gives back, which are those of each block, and their defaults.
_OF_ANSWERS = {"state": False, "results": True, "keep": False, "ttl": 0, "owner": None}
# Options that say where a block is reduced.
_PLACES = ("engine", "device", "pipeline", "block_size", "via", "timeout")
# Ops whose answer for one output has a dimension of its own.
_ARRAYS = frozenset({"quantile", "weighted_quantile", "histogram", "topk", "bottomk", "argtopk", "argbottomk", "compare", "fingerprint"})
_QUANTILES = frozenset({"median", "quantile"})
_OTHERS = ("y", "weights")

# The sizes of the blocks along each dimension. nan: unknown.
Chunks = tuple[tuple[float, ...], ...]


def _name(op: str) -> str:
    """The name of an op that may have parameters."""
    return op.partition("(")[0].strip()


class Question(NamedTuple):
    """What is asked of an array: the same of each block."""

    names: list[str]
    options: Options  # without keys, where, y and weights, which are those of the block
    reduced: tuple[int, ...]  # dimensions
    kept: tuple[int, ...]
    keyed: bool
    scalar: bool  # the results are those of the whole array
    others: tuple[tuple[str, Any], ...] = ()  # y and weights, if there are any, and no element of each
    whole: tuple[int, ...] = ()  # the shape of the array, if fingerprints of blocks have to know where these lie
    coded: bool = False  # keys are codes, of which -1 is that of no group

    @property
    def ordered(self) -> bool:
        """Whether the places of elements matter."""
        return not _client._POSITIONS.isdisjoint(map(_name, self.names))

    def name_in_blocks(self, op: str, starts: Sequence[float] = ()) -> str:
        """What an op is called in a block that begins there, and without `starts` in states."""
        if not self.whole or _name(op) != "fingerprint":
            return op
        return op_text("fingerprint", (), shape=",".join(map(str, self.whole)), offset=",".join(str(int(each)) for each in starts) or None)

    def rounds(self, dtype: Any) -> int:
        """How many rounds may follow the first one, for elements of this dtype."""
        selects = not _QUANTILES.isdisjoint(map(_name, self.names))
        return {4: 1, 8: 2}.get(getattr(dtype, "itemsize", 0), 0) if selects else 0

    def elsewhere(self, shape: Sequence[int]) -> dict[str, Any]:
        """The options without those that say where a block is reduced, for an array of that shape."""
        options = {name: value for name, value in self.options.items() if name not in _PLACES}
        return options | {role: np.ones(shape, nothing.dtype) for role, nothing in self.others if _takes(role, self.names)}

    @property
    def across(self) -> tuple[int, ...]:
        """The dimensions of the results that blocks of outputs lie along, one for each of `kept`."""
        if self.keyed:
            return self.kept
        return self.kept if self.options.get("keepdims") else tuple(range(len(self.kept)))


def _takes(side: str, names: Sequence[str]) -> bool:
    """Whether what is asked takes an array beside the one that is reduced: y and the weights only if an op does."""
    return side not in _OTHERS or any(OPERANDS.get(_name(op)) == side for op in names)


def question(names: list[str], options: Options, ndim: int, *, missing: bool, others: Mapping[str, Any] = MappingProxyType({})) -> Question:
    """`missing`: whether elements of some blocks may be missing. `others`: no element of y and of the weights, if there are any.
    TypeError, ValueError: what no array in blocks can be asked."""
    check_options(options)
    given: Any = dict(options)
    for name in ("segments", "lengths"):  # they have no states, and a segment may begin in one block and end in another
        if given.pop(name, None) is not None:
            raise ValueError(f"{name}: got it for an array in blocks; allowed: axis, keys, where (segments are groups by "
                             "keys=numpy.repeat(numpy.arange(n), lengths), groups=n)")
    for name, default in _OF_ANSWERS.items():
        value = given.pop(name, default)
        if value != default:
            raise ValueError(f"{name}: got {value!r} for an array in blocks; allowed: {default!r}")
    keyed, masked = given.pop("keys", None) is not None, given.pop("where", None) is not None
    for role in _OTHERS:
        given.pop(role, None)
    axis = given.get("axis")
    if keyed and axis is not None:
        raise ValueError("keys: got it beside axis; allowed: one of axis, segments, lengths, keys")
    if keyed and ndim == 0:
        raise ValueError("keys: got it for an array of no dimensions; allowed: of one dimension or more")
    if keyed:
        reduced: tuple[int, ...] = (0,)
    elif axis is None:
        reduced = tuple(range(ndim))
    else:
        reduced = _dimensions(axis, ndim)
    kept = tuple(dimension for dimension in range(ndim) if dimension not in reduced)
    scalar = axis is None and not keyed and not masked and not given.get("keepdims")
    if axis is None and not keyed and (missing or not scalar) and ndim > 0:
        given["axis"] = reduced  # so that blocks that lack elements and blocks that lack none have states of one kind
    return Question(names, given, reduced, kept, keyed, scalar, tuple(others.items()))


def _dimensions(axis: int | Sequence[int], ndim: int) -> tuple[int, ...]:
    """The dimensions that `axis` names, ascending. ValueError: there is no such dimension, or it is named twice."""
    axes = [operator.index(each) for each in (axis if isinstance(axis, tuple | list) else (axis,))]
    for number, each in enumerate(axes):
        if not -ndim <= each < ndim:
            raise ValueError(f"axis[{number}]: got {each}; allowed: "
                             + (f"{-ndim} to {ndim - 1}" if ndim else "none, since the array is a scalar"))
        if each % ndim in [before % ndim for before in axes[:number]]:
            raise ValueError(f"axis[{number}]: got {each}, dimension {each % ndim} again; allowed: each once")
    return tuple(sorted(each % ndim for each in axes))


def check(asked: Question, dtype: Any, options: Options) -> None:
    """Raises what a reduction of any array of these dimensions and this dtype raises, before one runs."""
    ndim = len(asked.reduced) + len(asked.kept)
    try:
        dtype_name(dtype)
    except (TypeError, AttributeError):
        return  # the blocks say more about it
    sample = asked.elsewhere((1,) * ndim)
    for role in _OTHERS:
        if role not in sample and options.get(role) is not None:
            sample[role] = np.ones((1,) * ndim)  # which is an error
    if asked.keyed:
        sample["keys"] = np.zeros(1, _dtype_of(options["keys"], np.dtype(np.int64)))
        sample["groups"] = None if sample.get("groups") is None else min(sample["groups"], 1)
    if options.get("where") is not None:
        sample["where"] = np.ones((1,) * ndim, _dtype_of(options["where"], np.dtype(np.bool_)))
    if _client.of_distribution(asked.names) is not None and sample.get("empty") in (None, "error"):
        sample["empty"] = "fill"  # topk of more than one element
    _here()._reduce_plain(np.ones((1,) * ndim, dtype), asked.names, cast(Options, sample), None)


def _dtype_of(side: Any, otherwise: np.dtype[Any]) -> np.dtype[Any]:
    """NumPy's dtype of an array. `otherwise`: if it does not say."""
    dtype = side.dtype if hasattr(side, "dtype") else np.asarray(side).dtype
    dtype = getattr(dtype, "numpy_dtype", dtype)
    return dtype if isinstance(dtype, np.dtype) else otherwise


class Nothing(NamedTuple):
    """A block without elements, which adds nothing."""

    shape: tuple[int, ...]


class Grouped(NamedTuple):
    """Outputs by keys that were found, where elements are missing."""

    state: State
    groups: npt.NDArray[Any]  # all keys, also those of missing elements only


Part = State | Grouped | ArrayResults | Nothing


def _here() -> _client.Client:
    return _client.connected(_client.LOCAL)


def part(block: Any, asked: Question, server: str, alone: bool = False, starts: Sequence[float] = (), **sides: Any) -> Part:
    """What a block adds. `alone`: no other block has elements of its outputs: it has their results. `starts`: where it begins. `sides`:
    the blocks of keys, where, y and weights, if there are any; the last three have its shape."""
    shape = tuple(np.shape(block))
    sides = {name: side for name, side in sides.items() if side is not None}
    for name, side in sides.items():
        if name != "keys" and tuple(np.shape(side)) != shape:
            raise ValueError(f"{name}: got shape {tuple(np.shape(side))} for a block of {shape}; allowed: chunks like those of the array")
    if math.prod(shape) == 0 and not asked.keyed:
        return Nothing(shape)
    if asked.coded and (sides["keys"] < 0).any():
        of_group = np.broadcast_to((sides["keys"] >= 0).reshape(-1, *(1 for _ in shape[1:])), shape)
        sides["where"] = of_group if "where" not in sides else of_group & mask_of(sides["where"], shape)
    # In a later round no op may take y. What it lacks is missing, as in the first one.
    lacks = [with_mask(sides.pop(role)) for role in _OTHERS if role in sides and not _takes(role, asked.names)]
    client = _client.connected(server)
    names = [asked.name_in_blocks(op, starts) for op in asked.names]
    options: Any = {**asked.options, **sides}
    if alone:
        with _named(asked, starts):
            return _arrays(client._reduce_plain(block, asked.names, options, None), asked, starts)
    values, there = (block, None) if type(block) is np.ndarray or isinstance(block, Elements) else with_mask(block) or (block, None)
    if not sides.keys().isdisjoint(_OTHERS):
        values, there, options = fitted(values, there, asked.names, options, gpu=False)
    for mask in (each[1] for each in lacks if each is not None):
        there = mask if there is None else there & mask
    if there is None or there.all():
        return client._state(values, names, options)
    if asked.scalar and "axis" not in options and there.ndim > 0:
        raise TypeError("array: got missing elements in a chunk; allowed: in an array whose _meta says that it may lack some")
    where = options.get("where")
    counted = {name: value for name, value in options.items() if name not in _OTHERS}
    groups = getattr(client._reduce_plain(values, ("count",), cast(Options, counted), None), "group_keys", None) if asked.keyed else None
    options["where"] = there if where is None else there & mask_of(where, shape)
    state = client._state(values, names, options)
    return state if groups is None else Grouped(state, groups)


def merge(parts: Sequence[Part], rows: int = 1) -> Part:
    """What parts add that follow each other. `rows`: as of `State.merge`."""
    states = [each.state if isinstance(each, Grouped) else each for each in parts if isinstance(each, State | Grouped)]
    if not states:
        return parts[0]
    state = State.merge(states, rows=rows)
    groups = [each.groups for each in parts if isinstance(each, Grouped)]
    return Grouped(state, functools.reduce(np.union1d, groups)) if groups else state


class Round(NamedTuple):
    """All that is known of some outputs after a round, and what is to be asked of their blocks in the next one."""

    whole: Part
    ops: list[str]


def next_round(answer: Part, before: Round | None = None) -> Round:
    """`answer`: what the blocks added to a round together. `before`: None: it was the first one."""
    whole = answer if before is None else before.whole
    if not isinstance(whole, State | Grouped) or (before is not None and not before.ops):
        return Round(whole, [])
    known, ops = _core.next_quantile_round(bytes(_state(whole)), b"" if before is None else bytes(_state(answer)))
    state = State._of(known)
    return Round(whole._replace(state=state) if isinstance(whole, Grouped) else state, ops)


def _state(part: Part) -> State:
    state = part.state if isinstance(part, Grouped) else part
    assert isinstance(state, State)
    return state


def part_again(block: Any, before: Round, asked: Question, server: str, **sides: Any) -> Part:
    """What a block adds to the round that follows."""
    if not before.ops:
        return Nothing(tuple(np.shape(block)))
    return part(block, asked._replace(names=before.ops), server, **sides)


def results(whole: Part | Round, asked: Question, nothing: Any, starts: Sequence[float] = ()) -> Results:
    """The results of outputs from all that their blocks add. `nothing`: what has the dtype of the array, and no element."""
    if isinstance(whole, Round):
        whole = whole.whole
    if isinstance(whole, ArrayResults):
        return whole
    found: Results
    with _named(asked, starts):
        if isinstance(whole, Nothing):
            array = nothing if len(whole.shape) == 1 else np.empty(whole.shape, nothing.dtype)
            found = _here()._reduce_plain(array, asked.names, cast(Options, asked.elsewhere(array.shape)), None)
        else:
            found = (whole.state if isinstance(whole, Grouped) else whole).results
    arrays = _arrays(found, asked, starts)
    if isinstance(whole, Grouped):
        return _with_groups(arrays, np.union1d(np.asarray(arrays.group_keys), whole.groups), asked, nothing)
    if not asked.scalar:
        return arrays
    values = Results([(op, dtype_name(array.dtype), array if array.ndim > 0 else array.item())
                      for op, (_, array) in arrays._results.items()], found.size)
    values.errors, values._order = arrays.errors, asked.names
    return values


def _arrays(found: Results, asked: Question, starts: Sequence[float]) -> ArrayResults:
    """Results as those of arrays, and the errors of the ops that have none."""
    arrays, errors = ArrayResults([], found.size), {}
    for op in asked.names:
        # States name their results in one way.
        named = asked.name_in_blocks(op)
        name = next((each for each in (op, named) if each in found or each in found.errors), _core.canonical_op(op))
        if name in found.errors:
            errors[op] = _moved(found.errors[name], asked, starts)
        else:
            array = np.asarray(found[name])
            arrays._results[op] = (array.dtype.name, array)
    arrays.group_keys = getattr(found, "group_keys", None)
    arrays.errors, arrays._order = errors, asked.names
    return arrays


def join(answers: Sequence[Results], asked: Question, counts: Sequence[int], nothing: Any) -> Results:
    """The results of all outputs. `answers`: those of blocks of outputs, in C order; `counts`: how many blocks each of the kept
    dimensions has."""
    if len(answers) == 1:
        return answers[0]
    whole = ArrayResults([], sum(answer.size for answer in answers))
    found = [answer for answer in answers if isinstance(answer, ArrayResults)]
    if asked.keyed and asked.options.get("groups") is None:
        # A mask may leave a group no element in some of the columns; blocks without columns have all groups.
        some = [answer for answer in found if 0 not in _columns(answer)] or found
        every = functools.reduce(np.union1d, [np.asarray(answer.group_keys) for answer in some])
        whole.group_keys = every
        found = [_with_groups(answer, every, asked, nothing) for answer in found]
    whole._order = asked.names
    whole.errors = {op: error for answer in reversed(found) for op, error in answer.errors.items()}
    for op in asked.names:
        if op in whole.errors:
            continue
        blocks = [answer._results[op][1] for answer in found]
        for count, axis in zip(reversed(counts), reversed(asked.across)):
            blocks = [np.concatenate(blocks[i:i + count], axis) for i in range(0, len(blocks), count)]
        whole._results[op] = (blocks[0].dtype.name, blocks[0])
    if whole.errors and not whole._results:
        raise next(iter(whole.errors.values()))
    return whole


def _columns(answer: ArrayResults) -> tuple[int, ...]:
    """The dimensions of the outputs of each group."""
    op, (_, array) = next(iter(answer._results.items()))
    dimensions: tuple[int, ...] = array.shape[1:]
    return dimensions[:-1] if _name(op) in _ARRAYS else dimensions


def _with_groups(found: ArrayResults, groups: npt.NDArray[Any], asked: Question, nothing: Any) -> ArrayResults:
    """Results with more groups, of no element."""
    assert found.group_keys is not None
    if len(found.group_keys) == len(groups):
        return found
    columns, more = _columns(found), ArrayResults([], found.size)
    more.group_keys, more.errors, more._order = groups, found.errors, asked.names
    if 0 in columns:
        more._results = {op: (name, np.empty((len(groups), *array.shape[1:]), array.dtype)) for op, (name, array) in found._results.items()}
        return more
    array = np.empty((0, *columns), nothing.dtype) if columns else nothing
    one: Any = {**asked.elsewhere(array.shape), "keys": np.empty(0, groups.dtype), "groups": 1}
    first = int(np.flatnonzero(~np.isin(groups, found.group_keys))[0])
    with _named(asked, (), first):
        none = _here()._reduce_plain(array, list(found), one, None)
    more.errors = {**found.errors} | {op: _moved(error, asked, (), first) for op, error in none.errors.items()}
    for op, (name, of_found) in found._results.items():
        if op in none.errors:
            continue
        of_all = np.repeat(none[op], len(groups), axis=0)
        of_all[np.searchsorted(groups, found.group_keys)] = of_found
        more._results[op] = (name, of_all)
    return more


def outputs(asked: Question, chunks: Chunks) -> list[list[int]]:
    """Of each block of outputs, in C order, the blocks of the array that have elements of it: their numbers, in C order."""
    counts = [len(sizes) for sizes in chunks]
    numbers: npt.NDArray[np.int64] = np.arange(math.prod(counts)).reshape(counts).transpose([*asked.kept, *asked.reduced])
    together = math.prod(counts[dimension] for dimension in asked.reduced)
    return [[int(number) for number in blocks] for blocks in numbers.reshape(-1, together)]


def tree(parts: list[Any], asked: Question, chunks: Chunks, merge_some: Callable[[list[Any], int], Any]) -> Any:
    """What the parts of one block of outputs add together. `merge_some`: merges some, given as many rows as they lie in."""
    sizes: Chunks = tuple(chunks[dimension] for dimension in asked.reduced)
    if not needs_places(asked, chunks):
        sizes = ((0,) * len(parts),)
    for last in reversed(range(len(sizes))):
        count, merged = len(sizes[last]), []
        for number, before in enumerate(itertools.product(*sizes[:last])):
            run = parts[number * count:(number + 1) * count]
            while len(run) > 1:
                run = [merge_some(run[i:i + _FAN_IN], int(math.prod(before))) for i in range(0, len(run), _FAN_IN)]
            merged += run
        parts = merged
    return parts[0]


def needs_places(asked: Question, chunks: Chunks) -> bool:
    """Whether blocks have to know where they lie, since those of an output are no consecutive elements of it."""
    return asked.ordered and any(len(chunks[dimension]) > 1 for dimension in asked.reduced[1:])


def placing(asked: Question, chunks: Chunks) -> Question:
    """The question in which blocks know where they lie for fingerprints, if these cannot be put together otherwise. ValueError: they
    cannot be."""
    if "fingerprint" not in asked.names or not needs_places(asked, chunks):
        return asked
    if not asked.scalar or "axis" in asked.options:
        raise ValueError("fingerprint: got an array that is cut along several of the dimensions that are reduced, with axis, keys, where, "
                         "keepdims or missing elements; allowed: without, or an array that is cut along the first of them")
    if any(math.isnan(size) for sizes in chunks for size in sizes):
        raise ValueError("chunks: got unknown sizes for fingerprint along several dimensions that are cut; allowed: known ones (see "
                         "compute_chunk_sizes)")
    return asked._replace(whole=tuple(int(sum(sizes)) for sizes in chunks))


def knows_places(asked: Question, chunks: Chunks) -> bool:
    """Whether the sizes are known that blocks have to know where they lie."""
    cut = [number for number, dimension in enumerate(asked.reduced) if len(chunks[dimension]) > 1]
    before = asked.reduced[:cut[-1]] if needs_places(asked, chunks) else ()
    return not any(math.isnan(size) for dimension in before for size in chunks[dimension])


def starts_of(chunks: Chunks) -> list[tuple[float, ...]]:
    """Where each block begins, in C order of the blocks."""
    edges = [[0, *itertools.accumulate(sizes[:-1])] for sizes in chunks]
    return list(itertools.product(*edges))


_OUTPUT = re.compile(r"output \[([\d, ]+)\]: ")


def _moved(error: Error, asked: Question, starts: Sequence[float], group: int = 0) -> Error:
    """Makes an error name an output as of the whole array. `starts`: where the block begins; none: where the array does. `group`: of
    the groups of the whole, that of the first of the block."""
    said = _OUTPUT.match(str(error))
    if said is None:
        return error
    index = [int(number) for number in said[1].split(",")]
    if not asked.keyed and len(index) > len(asked.kept):  # with keepdims
        index = [index[dimension] for dimension in asked.kept]
    begin = [group] * asked.keyed + [starts[dimension] if starts else 0 for dimension in asked.kept]
    if all(map(math.isfinite, begin)):
        moved = ", ".join(str(int(first) + each) for first, each in zip(begin, index))
        error.args = ((f"output [{moved}]: " if moved else "") + str(error)[said.end():], *error.args[1:])
    else:
        error.add_note("output: counted from the first of a block of outputs")
    return error


@contextlib.contextmanager
def _named(asked: Question, starts: Sequence[float], group: int = 0) -> Iterator[None]:
    """The same of an error that is raised."""
    try:
        yield
    except Error as error:
        _moved(error, asked, starts, group)
        raise

"""Fingerprints, statistics and gradient norms of PyTorch modules and state dicts, each in one call.

Fingerprints are 128 bits of every tensor, the same however the tensor is cut and wherever it is: for checkpoints that were resharded,
downloads, and weights that a trainer sent to its workers. If the fingerprints differ, so do the weights, and `differences` names the tensors. A bit that changed and elements that changed places are seen; of accidents that change many
elements one in 2**58 or fewer is not (`Client.fingerprint`). It is no protection against somebody who means it.

    before = reduced.torch.fingerprint(model)
    ...
    parts = gathered(reduced.torch.fingerprint(model))   # of all ranks, whose tensors are DTensors
    print(before.differences(reduced.torch.Fingerprint.merge(parts)))

Tensors on a GPU are reduced where they are, if `server` is one that sees the GPU; else they are copied to the host, some at a
time. The results are the same. torch itself is not imported, unless there are DTensors: what has `state_dict`, and mappings of names to
tensors or arrays, will do.

>>> import numpy as np, reduced.torch
>>> weights = {"layer.weight": np.arange(6, dtype="f4").reshape(2, 3), "layer.bias": np.ones(3, "f4")}
>>> whole = reduced.torch.fingerprint(weights)
>>> print(whole)
layer.weight  f32 (2, 3), 1a2dfac9be0a90df0f02d3d679d41a8d
layer.bias    f32 (3,), 03a9d3b6a71df91703f94effefa62fa5
>>> left, right = {"layer.weight": weights["layer.weight"][:, :1]}, {"layer.weight": weights["layer.weight"][:, 1:]}
>>> shards = [reduced.torch.fingerprint(left, places={"layer.weight": ((2, 3), (0, 0))}),
...           reduced.torch.fingerprint(right, places={"layer.weight": ((2, 3), (0, 1))}),
...           reduced.torch.fingerprint({"layer.bias": weights["layer.bias"]})]
>>> whole == reduced.torch.Fingerprint.merge(shards)
True
>>> weights["layer.bias"][1] += 1e-6
>>> whole.differences(reduced.torch.fingerprint(weights))
['layer.bias']
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from reduced import _client, _core
from reduced._arrays import elements, located, on_gpu
from reduced._distribution import fingerprint_text, op_text
from reduced._errors import FailedPreconditionError, InvalidArgumentError
from reduced._many import of
from reduced._result import Result
from reduced._state import State

# What modules add to their state that need not be a tensor.
_EXTRA_STATE = "_extra_state"
# Dtypes of a byte that the service lacks, as .safetensors files call them: their bytes are read.
_BYTES = {"float8_e4m3fnuz": "f8_e4m3fnuz", "float8_e5m2fnuz": "f8_e5m2fnuz"}

_STATISTICS = ("count", "nan_count", "min", "max", "mean", "std", "l2")
# Tensors that are copied to the host go in calls of about this many bytes.
_TOGETHER = 64 << 20

# The shape of a tensor, and the index of the first element of a part of it.
Place = tuple[Sequence[int], Sequence[int]]


class Print(NamedTuple):
    """What a fingerprint has of a tensor. `missing`: how many of its elements are in no part; `fingerprint` is then that of the others."""

    dtype: str  # the service's name, such as "f32"
    shape: tuple[int, ...]
    fingerprint: str
    missing: int = 0

    def __str__(self) -> str:
        missing = f", without {self.missing} elements" if self.missing else ""
        return f"{self.dtype} {self.shape}, {self.fingerprint}{missing}"


class _Where(NamedTuple):
    whole: tuple[int, ...]  # the shape of the tensor
    offset: tuple[int, ...]
    shape: tuple[int, ...]  # of the part


class _Part(NamedTuple):
    dtype: str
    state: State


class Fingerprint(Mapping[str, Print]):
    """The `Print` of each tensor, by its name; from `fingerprint`. Fingerprints pickle, and are equal if all prints are."""

    def __init__(self, parts: Mapping[str, Mapping[_Where, _Part]]) -> None:
        self._parts = {name: dict(of_name) for name, of_name in parts.items()}
        self._prints = {name: _print(name, of_name) for name, of_name in self._parts.items()}

    @classmethod
    def merge(cls, parts: Iterable[Fingerprint]) -> Fingerprint:
        """That of whole tensors from those of their parts, in any order. A part that several ranks have counts once.

        InvalidArgumentError: a tensor has several shapes or dtypes, parts at the same place differ, or parts overlap.
        """
        every: dict[str, dict[_Where, _Part]] = {}
        for fingerprint in parts:
            for name, of_name in fingerprint._parts.items():
                for where, part in of_name.items():
                    if every.setdefault(name, {}).setdefault(where, part) != part:
                        raise InvalidArgumentError(f"parts: got two of {name} at {where.offset} of {where.whole} that differ; allowed: equal "
                                                   "ones (see places)")
        return cls(every)

    def differences(self, other: Fingerprint) -> list[str]:
        """The names of the tensors that differ, or that only one of the two has."""
        names = [*self, *(name for name in other if name not in self)]
        return [name for name in names if self.get(name) != other.get(name)]

    def hexdigest(self) -> str:
        """All of it as one short text, whatever the order of the names: what `reducectl fingerprint` prints of a .safetensors file of
        these tensors. ValueError: elements are missing."""
        lines = []
        for name in sorted(self, key=str.encode):
            if self[name].missing:
                raise ValueError(f"parts: got {name} without {self[name].missing} elements; allowed: all parts")
            lines.append(json.dumps([name, self[name].dtype, self[name].shape, self[name].fingerprint], separators=(",", ":"), ensure_ascii=False))
        text = "".join(f"{line}\n" for line in lines).encode()
        return str(_client.connected(_client.LOCAL).fingerprint(np.frombuffer(text, np.uint8)))

    def __getitem__(self, name: str) -> Print:
        return self._prints[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._prints)

    def __len__(self) -> int:
        return len(self._prints)

    def __eq__(self, other: object) -> bool:
        return not self.differences(other) if isinstance(other, Fingerprint) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self._prints.items()))

    def __repr__(self) -> str:
        width = max(map(len, self), default=0)
        return "\n".join(f"{name:<{width}}  {found}" for name, found in self._prints.items())


def fingerprint(module: Any, *, places: Mapping[str, Place] | None = None, server: str = _client.LOCAL) -> Fingerprint:
    """The fingerprint of each tensor of a module, of its `state_dict()`, or of any mapping of names to tensors or arrays.

    Of a DTensor, which knows its place, this rank's shard. `places`: of tensors that are parts of larger ones, by their names: the shape of
    the whole tensor, and the index of the part's first element in it. `Fingerprint.merge` puts the parts together. What modules add to
    their state that need not be a tensor ("_extra_state") is passed over. TypeError: a tensor has a dtype that the service lacks, such as
    complex numbers (but the floats of 8 bits without a zero of either sign, whose bytes are read); its name is in the error's notes.
    """
    tensors = _tensors(module)
    for name in places or ():
        if name not in tensors:
            raise ValueError(f"places: got {name!r}, which is no tensor; allowed: the names of tensors")
    client = _client.connected(server)
    wheres, dtypes = {}, {}
    by_op: dict[str, dict[str, Any]] = {}  # a part's place is a parameter of its op
    for name, tensor in tensors.items():
        with of(name):
            part, place = _local(tensor, (places or {}).get(name))
            raw = _BYTES.get(str(getattr(part, "dtype", "")).removeprefix("torch."))
            if raw is not None:
                part = part.view(np.uint8 if isinstance(part, np.ndarray) else sys.modules["torch"].uint8)
            shape = tuple(map(int, np.shape(part) if not hasattr(part, "shape") else part.shape))
            where = _Where(shape, (0,) * len(shape), shape)
            if place is not None:
                where = _Where(tuple(map(int, place[0])), tuple(map(int, place[1])), shape)
            whole = where.whole == shape and not any(where.offset)
            op = "fingerprint" if whole else op_text("fingerprint", (), shape=",".join(map(str, where.whole)) or None,
                                                     offset=",".join(map(str, where.offset)) or None)
            by_op.setdefault(op, {})[name] = part
            wheres[name], dtypes[name] = where, raw
    parts: dict[str, Mapping[_Where, _Part]] = dict.fromkeys(wheres, {})
    for op, of_op in by_op.items():
        for name, (dtype, result) in _reduced(client, of_op, (op,), state=True, results=False).items():
            assert result.state is not None
            parts[name] = {wheres[name]: _Part(dtypes[name] or dtype, result.state)}
    return Fingerprint(parts)


class Statistics(dict[str, Result]):
    """A `Result` of each tensor, by its name; from `statistics`. It prints as a table."""

    def __repr__(self) -> str:
        rows = [["", *_STATISTICS], *([name, *(text for _, text in result._shown())] for name, result in self.items())]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join([row[0].ljust(widths[0]), *(text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True))])
                         for row in rows)


def statistics(module: Any, *, server: str = _client.LOCAL) -> Statistics:
    """count, nan_count, min, max, mean, std and l2 of each tensor of a module, of its `state_dict()`, or of any mapping of names to
    tensors or arrays, in one call.

    NaNs are left out, also of count; infinities are not. What has no answer, such as the min of no element, is None. mean, std and l2
    are the exact ones, rounded once: the same on every device. Of a DTensor they are those of this rank's shard. Errors: as of
    `fingerprint`, but fp8 is TypeError.

    >>> import numpy as np, reduced.torch
    >>> print(reduced.torch.statistics({"weight": np.array([3, -4, np.nan], "f4"), "bias": np.zeros(2, "f2")}))
            count  nan_count   min  max  mean  std   l2
    weight      2          1  -4.0  3.0  -0.5  3.5  5.0
    bias        2          0   0.0  0.0   0.0  0.0  0.0
    """
    tensors = {}
    for name, tensor in _tensors(module).items():
        with of(name):
            tensors[name] = _local(tensor, ())[0]
    found = _reduced(_client.connected(server), tensors, _STATISTICS, nan="omit")
    statistics = Statistics((name, result) for name, (_, result) in found.items())
    for result in statistics.values():
        result._raises = False
    return statistics


def gradient_norm(parameters: Any, *, gather: Callable[[State], Iterable[State]] | None = None, server: str = _client.LOCAL) -> float:
    """The l2 norm over the elements of all gradients, exact and rounded once, whatever their dtypes, order and device: the total norm of
    `torch.nn.utils.clip_grad_norm_`, which rounds on the way and may overflow.

    `parameters`: a module, a parameter, or an iterable of them. Those whose `grad` is None are passed over; without any gradient the
    norm is 0. A NaN makes it NaN. `gather`: where ranks have parts of the gradients, each element on one rank: gets this rank's `State`
    and returns those of all ranks, as torch.distributed's `all_gather_object` does; every rank calls it, and gets the same norm.
    ValueError: a gradient is a DTensor, and there is no `gather`. TypeError: something has no `grad`.

    >>> import numpy as np, reduced.torch
    >>> class Parameter:
    ...     def __init__(self, grad): self.grad = grad
    >>> reduced.torch.gradient_norm([Parameter(np.array([3.0], "f4")), Parameter(None), Parameter(np.array([4.0], "f2"))])
    5.0
    """
    if hasattr(parameters, "parameters"):
        parameters = parameters.parameters()
    elif hasattr(parameters, "grad"):
        parameters = [parameters]
    gradients = {}
    for index, parameter in enumerate(parameters):
        if not hasattr(parameter, "grad"):
            raise TypeError(f"parameters: got {type(parameter).__name__}; allowed: a module, a parameter, or an iterable of parameters")
        if parameter.grad is None:
            continue
        with of(f"parameter {index}"):
            if gather is None and hasattr(parameter.grad, "placements"):
                raise ValueError("gather: got none for a DTensor, of which this rank has a part; allowed: a function (see gather)")
            gradients[f"parameter {index}"] = _local(parameter.grad, ())[0]
    # Of no element, for a rank without gradients.
    nothing = {"nothing": np.empty(0, np.float64)}
    found = _reduced(_client.connected(server), gradients or nothing, ("l2",), state=True, results=False)
    state = _as_one([result.state for _, result in found.values() if result.state is not None])
    norm: float = _as_one(list(gather(state)) if gather is not None else [state]).results["l2"].item()
    return norm


def _as_one(states: Sequence[State]) -> State:
    """The state of floats of several dtypes together, as f64."""
    return State._of(_core.merge([bytes(state) for state in states], results=False, state=True, rows=1, as_f64=True)[2])


def _tensors(module: Any) -> dict[str, Any]:
    """The tensors of a module or a mapping, by their names."""
    tensors = module.state_dict() if hasattr(module, "state_dict") else module
    if not isinstance(tensors, Mapping):
        raise TypeError(f"module: got {type(module).__name__}; allowed: what has state_dict(), or a mapping of names to tensors")
    return {name: tensor for name, tensor in tensors.items() if name.rpartition(".")[2] != _EXTRA_STATE}


def _local(tensor: Any, place: Any) -> tuple[Any, Any]:
    """What this process has of a tensor, and where that is in the whole one: `place`, or that of a DTensor. ValueError: neither is given."""
    if place is None and hasattr(tensor, "placements"):
        place = _place_of(tensor)
    for method in ("to_local", "detach"):  # of a DTensor; of a parameter, which has a gradient
        if hasattr(tensor, method):
            before = tuple(tensor.shape)
            tensor = getattr(tensor, method)()
            if place is None and tuple(tensor.shape) != before:
                raise ValueError(f"places: got none for a part of {tuple(tensor.shape)} of a tensor of {before}; allowed: its place")
    return tensor, place


def _reduced(client: _client.Client, tensors: Mapping[str, Any], ops: Sequence[str], **options: Any) -> dict[str, tuple[str, Result]]:
    """The dtypes and the results of tensors: where they are, if the server can read them there, else copied to the host some at a time."""
    there: dict[str, Any] = {}
    if client.server != _client.LOCAL:
        for name, tensor in tensors.items():
            if on_gpu(tensor):
                with suppress(FailedPreconditionError, InvalidArgumentError):  # of memory that cannot be shared
                    there[name] = located(tensor, ordered=True)
    found: dict[str, Result] = {}
    try:
        found = client.reduce_many(there, ops, **options) if there else {}
    except (FailedPreconditionError, InvalidArgumentError):
        pass  # the server can't read them there
    dtypes = {name: there[name].dtype for name in found}
    here: dict[str, Any] = {}
    nbytes = 0
    rest = [name for name in tensors if name not in found]
    for name in rest:
        with of(name):
            tensor = tensors[name]
            here[name] = elements(tensor.cpu() if hasattr(tensor, "cpu") else tensor, ordered=True)
        dtypes[name] = here[name].dtype
        nbytes += here[name].nbytes
        if nbytes >= _TOGETHER or name == rest[-1]:
            found.update(client.reduce_many(here, ops, **options))
            here, nbytes = {}, 0
    return {name: (dtypes[name], found[name]) for name in tensors}


def _place_of(tensor: Any) -> Place:
    """Of this rank's shard of a DTensor. ValueError: its elements are sums that are still to be added up."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset  # type: ignore[import-not-found]

    if any(placement.is_partial() for placement in tensor.placements):
        raise ValueError("placements: got a partial one; allowed: Shard and Replicate (see redistribute)")
    _, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return tuple(tensor.shape), tuple(offset)


def _print(name: str, parts: Mapping[_Where, _Part]) -> Print:
    """InvalidArgumentError: the parts are not those of one tensor."""
    kinds = sorted({(part.dtype, where.whole) for where, part in parts.items()})
    if len(kinds) > 1:
        found = " and of ".join(f"{dtype} {shape}" for dtype, shape in kinds[:2])
        raise InvalidArgumentError(f"parts: got {name} of {found}; allowed: one dtype and shape (see places)")
    dtype, shape = kinds[0]
    missing = math.prod(shape) - sum(math.prod(where.shape) for where in parts)
    if missing < 0:
        raise InvalidArgumentError(f"parts: got {name} with {-missing} elements more than {shape} has; allowed: parts that do not overlap")
    # Beside a part that is the whole tensor, whose state has no place, others have no elements.
    states = [part.state for where, part in parts.items() if 0 not in where.shape] or [next(iter(parts.values())).state]
    results = State.merge(states).results
    return Print(dtype, shape, fingerprint_text(next(iter(results.values()))), missing)

"""Fingerprints of PyTorch modules and state dicts: 128 bits of every tensor, the same however the tensor is cut and wherever it is.

For checkpoints that were resharded, downloads, and weights that a trainer sent to its workers: if the fingerprints differ, so do the
weights, and `differences` names the tensors. A bit that changed and elements that changed places are seen; of accidents that change many
elements one in 2**58 or fewer is not (`Client.fingerprint`). It is no protection against somebody who means it.

    before = reduced.torch.fingerprint(model)
    ...
    parts = gathered(reduced.torch.fingerprint(model))   # of all ranks, whose tensors are DTensors
    print(before.differences(reduced.torch.Fingerprint.merge(parts)))

Tensors on a GPU are reduced where they are, if `server` is one that sees the GPU; else they are copied to the host, one at a
time. The fingerprint is the same. torch itself is not imported, unless there are DTensors: what has `state_dict`, and mappings of names to
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from reduced import _client
from reduced._arrays import elements, located, on_gpu
from reduced._distribution import fingerprint_text, op_text
from reduced._errors import Error, FailedPreconditionError, InvalidArgumentError
from reduced._state import State

# What modules add to their state that need not be a tensor.
_EXTRA_STATE = "_extra_state"
# Dtypes of a byte that the service lacks, as .safetensors files call them: their bytes are read.
_BYTES = {"float8_e4m3fn": "f8_e4m3", "float8_e5m2": "f8_e5m2", "float8_e8m0fnu": "f8_e8m0", "float8_e4m3fnuz": "f8_e4m3fnuz",
          "float8_e5m2fnuz": "f8_e5m2fnuz"}

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
    complex numbers (but fp8, whose bytes are read); its name is in the error's notes.
    """
    tensors = module.state_dict() if hasattr(module, "state_dict") else module
    if not isinstance(tensors, Mapping):
        raise TypeError(f"module: got {type(module).__name__}; allowed: what has state_dict(), or a mapping of names to tensors")
    for name in places or ():
        if name not in tensors:
            raise ValueError(f"places: got {name!r}, which is no tensor; allowed: the names of tensors")
    client = _client.connected(server)
    parts = {}
    for name, tensor in tensors.items():
        if name.rpartition(".")[2] == _EXTRA_STATE:
            continue
        try:
            parts[name] = dict([_part(client, tensor, (places or {}).get(name))])
        except (Error, TypeError, ValueError) as error:
            error.add_note(f"of {name}")
            raise
    return Fingerprint(parts)


def _part(client: _client.Client, tensor: Any, place: Place | None) -> tuple[_Where, _Part]:
    if place is None and hasattr(tensor, "placements"):
        place = _place_of(tensor)
    for method in ("to_local", "detach"):  # of a DTensor; of a parameter, which has a gradient
        if hasattr(tensor, method):
            before = tuple(tensor.shape)
            tensor = getattr(tensor, method)()
            if place is None and tuple(tensor.shape) != before:
                raise ValueError(f"places: got none for a part of {tuple(tensor.shape)} of a tensor of {before}; allowed: its place")
    raw = _BYTES.get(str(getattr(tensor, "dtype", "")).removeprefix("torch."))
    if raw is not None:
        tensor = tensor.view(np.uint8 if isinstance(tensor, np.ndarray) else sys.modules["torch"].uint8)
    shape = tuple(map(int, np.shape(tensor) if not hasattr(tensor, "shape") else tensor.shape))
    where = _Where(shape, (0,) * len(shape), shape)
    if place is not None:
        where = _Where(tuple(map(int, place[0])), tuple(map(int, place[1])), shape)
    name = op_text("fingerprint", (), shape=",".join(map(str, where.whole)) or None, offset=",".join(map(str, where.offset)) or None)
    if client.server != _client.LOCAL and on_gpu(tensor):
        try:
            there = located(tensor, ordered=True)
            return where, _Part(raw or there.dtype, client._state(there, (name,), {}))
        except (FailedPreconditionError, InvalidArgumentError):
            pass  # the server can't read it there
    if hasattr(tensor, "cpu"):
        tensor = tensor.cpu()
    here = elements(tensor, ordered=True)
    return where, _Part(raw or here.dtype, client._state(here, (name,), {}))


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
    results = State.merge(part.state for part in parts.values()).results
    return Print(dtype, shape, fingerprint_text(next(iter(results.values()))), missing)

"""Fingerprints of PyTorch modules and state dicts: the exact sums of every tensor, the same however the tensors are cut or lie.

For checkpoints that were resharded, and weights that were sent from a trainer to its workers: if the fingerprints differ, so do the
weights, and `differences` names the tensors. Equal fingerprints are a strong sign, and no proof: elements of a tensor that changed
places, and changes whose sums and sums of squares cancel, are not seen. It is no protection against somebody who means it.

    before = reduced.torch.fingerprint(model)
    ...
    after = reduced.torch.Fingerprint.merge(reduced.torch.fingerprint(shard) for shard in shards)   # parts of each tensor
    print(before == after, before.differences(after))

Tensors on a GPU are reduced where they are, if `server` is one that sees the GPU; else they are copied to the host, one at a
time. The fingerprint is the same. torch itself is not imported: what has `state_dict`, and mappings of names to
tensors or arrays, will do.

>>> import numpy as np, reduced.torch
>>> weights = {"layer.weight": np.arange(6, dtype="f4").reshape(2, 3), "layer.bias": np.ones(3, "f4")}
>>> whole = reduced.torch.fingerprint(weights)
>>> print(whole)
layer.weight  float32, 6 elements, sum 15.0, sum of squares 55.0
layer.bias    float32, 3 elements, sum 3.0, sum of squares 3.0
>>> shards = [{name: part for name, part in zip(weights, cut)} for cut in zip(*(np.array_split(each, 2) for each in weights.values()))]
>>> whole == reduced.torch.Fingerprint.merge(map(reduced.torch.fingerprint, shards))
True
>>> weights["layer.bias"][1] += 1e-6
>>> whole.differences(reduced.torch.fingerprint(weights))
['layer.bias']
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from reduced import _client
from reduced._arrays import elements, located, on_gpu
from reduced._errors import Error, FailedPreconditionError, InvalidArgumentError
from reduced._ops import Options
from reduced._state import State

_OPS = ("sum", "sum_squares", "nan_count")
_OPTIONS: Options = {"nan": "omit", "overflow": "wrap"}
# What modules add to their state that need not be a tensor.
_EXTRA_STATE = "_extra_state"


class Sums(NamedTuple):
    """What a fingerprint has of a tensor. Sums of floats are rounded once; those of integers are modulo 2^64. NaNs are left out."""

    dtype: str  # the service's name, such as "f32"
    size: int
    sum: float | int
    sum_squares: float | int
    nan_count: int

    def __str__(self) -> str:
        nans = f", {self.nan_count} NaN" if self.nan_count else ""
        name = {"b": "bool", "f": "float", "i": "int", "u": "uint"}[self.dtype[0]]
        dtype = {"bool": "bool", "bf16": "bfloat16"}.get(self.dtype, name + self.dtype[1:])
        return f"{dtype}, {self.size} elements, sum {self.sum}, sum of squares {self.sum_squares}{nans}"


class Fingerprint(Mapping[str, Sums]):
    """The `Sums` of each tensor, by its name; from `fingerprint`. Fingerprints pickle, and are equal if all sums are."""

    def __init__(self, states: Mapping[str, tuple[str, State]]) -> None:
        self._states = dict(states)
        self._sums = {name: _sums(dtype, state) for name, (dtype, state) in self._states.items()}

    @classmethod
    def merge(cls, parts: Iterable[Fingerprint]) -> Fingerprint:
        """That of whole tensors from those of their parts, in any order. Each element must be in one part.

        Tensors that are in one of the parts only stay as they are. InvalidArgumentError: a name has several dtypes.
        """
        states: dict[str, tuple[str, State]] = {}
        for part in parts:
            for name, (dtype, state) in part._states.items():
                if name not in states:
                    states[name] = dtype, state
                elif states[name][0] != dtype:
                    raise InvalidArgumentError(f"parts: got {name} of {states[name][0]} and of {dtype}; allowed: one dtype")
                else:
                    states[name] = dtype, State.merge([states[name][1], state])
        return cls(states)

    def differences(self, other: Fingerprint) -> list[str]:
        """The names of the tensors that differ, or that only one of the two has."""
        names = [*self, *(name for name in other if name not in self)]
        return [name for name in names if _text(self.get(name)) != _text(other.get(name))]

    def hexdigest(self) -> str:
        """All of it as one short text, for logs: the SHA-256 of names and sums, whatever their order."""
        return hashlib.sha256("".join(f"{name}\0{_text(self[name])}\n" for name in sorted(self)).encode()).hexdigest()

    def __getitem__(self, name: str) -> Sums:
        return self._sums[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sums)

    def __len__(self) -> int:
        return len(self._sums)

    def __eq__(self, other: object) -> bool:
        return not self.differences(other) if isinstance(other, Fingerprint) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it is a mapping

    def __reduce__(self) -> tuple[Any, ...]:
        return Fingerprint, (self._states,)

    def __repr__(self) -> str:
        width = max((len(name) for name in self), default=0)
        return "\n".join(f"{name:<{width}}  {sums}" for name, sums in self.items())


def fingerprint(module: Any, *, server: str = _client.LOCAL) -> Fingerprint:
    """The fingerprint of a module's parameters and buffers, or of a mapping of names to tensors, such as a state dict.

    `module`: what has `state_dict()`, or a mapping; of a DTensor the local shard is taken, for `Fingerprint.merge`. `server`: where
    the tensors are reduced, by default in this process. TypeError: a tensor has a dtype that the service does not know, such as
    complex numbers; its name is in the error's notes.
    """
    tensors = module.state_dict() if hasattr(module, "state_dict") else module
    if not isinstance(tensors, Mapping):
        raise TypeError(f"module: got {type(module).__name__}; allowed: what has state_dict(), or a mapping of names to tensors")
    client = _connected(server, os.getpid())
    states = {}
    for name, tensor in tensors.items():
        if name.rpartition(".")[2] == _EXTRA_STATE:
            continue
        try:
            states[name] = _state(client, tensor)
        except (Error, TypeError, ValueError) as error:
            error.add_note(f"of {name}")
            raise
    return Fingerprint(states)


def _state(client: _client.Client, tensor: Any) -> tuple[str, State]:
    for method in ("to_local", "detach"):  # of a DTensor; of a parameter, which has a gradient
        if hasattr(tensor, method):
            tensor = getattr(tensor, method)()
    if client.server != _client.LOCAL and on_gpu(tensor):
        try:
            there = located(tensor, ordered=False)
            return there.dtype, client._state(there, _OPS, _OPTIONS)
        except (FailedPreconditionError, InvalidArgumentError):
            pass  # the server can't read it there
    if hasattr(tensor, "cpu"):
        tensor = tensor.cpu()
    here = elements(tensor, ordered=False)
    return here.dtype, client._state(tensor, _OPS, _OPTIONS)


@functools.lru_cache(maxsize=8)
def _connected(server: str, _process: int) -> _client.Client:
    return _client.connect(server)


def _sums(dtype: str, state: State) -> Sums:
    results = state.results
    return Sums(dtype, results.size, results["sum"].item(), results["sum_squares"].item(), results["nan_count"])


def _text(sums: Sums | None) -> str:
    """The same text for the same bits."""
    if sums is None:
        return ""
    return " ".join(value.hex() if isinstance(value, float) else str(value) for value in sums)

"""What the accessors of pandas and xarray have in common."""

from __future__ import annotations

import atexit
import inspect
from collections.abc import Callable
from typing import Any

from reduced import _core
from reduced._client import LOCAL, Client, connected

OPS = tuple(op for op in _core.ops if op not in _core.operands)


class Where:
    """The client that accessors ask: that of `use`, else the engine of this process."""

    def __init__(self) -> None:
        self._used: Client | None = None
        atexit.register(self._forget)  # pandas and xarray keep accessors longer than the module of clients lives

    def _forget(self) -> None:
        self._used = None

    def use(self, client: Client | None) -> None:
        """Lets accessors ask a client; None: the engine of this process, as at first."""
        self._used = client

    @property
    def client(self) -> Client:
        return self._used if self._used is not None else connected(LOCAL)


def with_ops(call: str) -> Callable[[type], type]:
    """Gives a class a method for each op, which `call`, one of its methods, answers. Their signatures are those of `Client`."""

    def methods(kind: type) -> type:
        for op in OPS:
            if op in vars(kind):
                continue

            def method(self: Any, *arguments: Any, _op: str = op, **options: Any) -> Any:
                return getattr(self, call)(_op, *arguments, **options)

            of_client = getattr(Client, op)
            method.__name__, method.__qualname__, method.__doc__ = op, f"{kind.__name__}.{op}", of_client.__doc__
            parameters = [each for each in inspect.signature(of_client).parameters.values() if each.name != "array"]
            method.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
            setattr(kind, op, method)
        return kind

    return methods


def skipping(options: dict[str, Any]) -> dict[str, Any]:
    """Options in which `skipna` is `nan`: NaNs are left out unless something else is asked."""
    given = {"nan": "omit", **options}
    skipna = given.pop("skipna", None)
    if skipna is not None and "nan" in options:
        raise TypeError("skipna: got it beside nan; allowed: one of them")
    if skipna is not None:
        given["nan"] = "omit" if skipna else "propagate"
    return given

"""The same with `await`: `reduced.aio.connect(...)`.

A call runs on a thread of its client, so that the event loop goes on. A call whose task is cancelled ends within some
hundredths of a second, on the server, too, and its task waits for that: then nothing reads the array any more.

>>> import asyncio, reduced.aio
>>> async def main():
...     async with reduced.aio.connect("local:") as c:
...         return await asyncio.gather(c.sum([1, 2, 3]), c.max([1, 2, 3]))
>>> print(*asyncio.run(main()))
6 3
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import numpy as np
import numpy.typing as npt

from reduced import _core
from reduced import _client
from reduced._client import names_of
from reduced._copies import interruptible
from reduced._distribution import Plan, Top
from reduced._many import keyed
from reduced._ops import Ops
from reduced._options import Options, named
from reduced._pairs import Comparison
from reduced._partition import ResidentArray
from reduced._result import Result

_T = TypeVar("_T")


class _Reducer(Ops[Awaitable[np.number[Any]], Awaitable[np.float64], Awaitable[int], Awaitable[np.bool_], Awaitable[npt.NDArray[Any]],
                   Awaitable[tuple[npt.NDArray[Any], npt.NDArray[Any]]], Awaitable[Top], Awaitable[Comparison], Awaitable[str]]):
    """Wraps what reduces; its calls run on threads."""

    def __init__(self, client: _client._Reducer, threads: Callable[[int], ThreadPoolExecutor]) -> None:
        self._wraps = client
        self._threads = threads  # of this process

    @named
    async def reduce(self, array: Any, ops: str | Sequence[str], **options: Unpack[Options]) -> Result:
        """As `reduced.Client.reduce`."""
        names = names_of(ops)
        array, options = self._wraps._located(array, names, options)
        return await self._run(self._wraps._reduce, array, names, options)

    @named
    async def reduce_many(self, arrays: Mapping[Any, Any] | Sequence[Any], ops: str | Sequence[str], **options: Unpack[Options]) -> Any:
        """As `reduced.Client.reduce_many`."""
        names = names_of(ops)
        keys, values, mapping = keyed(arrays)
        values = [self._wraps._located(array, names, options)[0] for array in values]
        return await self._run(self._wraps._reduce_many, dict(zip(keys, values, strict=True)) if mapping else values, names, options)

    @named
    async def describe(self, array: Any, **options: Unpack[Options]) -> Result:
        """As `reduced.Client.describe`."""
        array, options = self._wraps._located(array, ("argmin",), options)
        return await self._run(self._wraps._describe, array, options)

    async def close(self) -> None:
        """Closes it, after the calls that are under way."""
        await asyncio.to_thread(self._close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.close()

    def _close(self) -> None:
        self._wraps.close()

    async def _one(self, op: str, array: Any, options: Options) -> Any:
        array, options = self._wraps._located(array, (op,), options)
        return (await self._run(self._wraps._reduce, array, (op,), options))[op]

    async def _planned(self, plan_of: Callable[[Any, Options], Plan], array: Any, options: Options) -> Any:
        array, options = self._wraps._located(array, ("argmin",), options)
        return await self._run(self._wraps._planned, plan_of, array, options)

    async def _run(self, call: Callable[..., _T], *arguments: Any) -> _T:
        interrupt, ended = _core.Interrupt(), threading.Event()

        def run() -> _T:
            with interruptible(ended):
                return call(*arguments, interrupt)

        running = asyncio.get_running_loop().run_in_executor(self._threads(os.getpid()), run)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            interrupt.set()
            ended.set()
            await asyncio.wait([running])
            running.exception()  # which its caller no longer wants
            raise


class Client(_Reducer):
    """Wraps a `reduced.Client`; `threads` of its calls run at a time, and others wait."""

    def __init__(self, client: _client.Client, threads: int = 32) -> None:
        # A fork has none of its parent's threads.
        super().__init__(client, functools.lru_cache(maxsize=1)(lambda _process: ThreadPoolExecutor(threads, thread_name_prefix="reduced.aio")))
        self.client = client
        self._count = threads

    def __reduce__(self) -> tuple[Any, ...]:
        return Client, (self.client, self._count)

    async def put(self, array: Any, *, device: str = "", owner: str | None = None, ttl: float = 0,
                  timeout: float | None = None) -> ResidentArray:
        """As `reduced.Client.put`. The array is a plain `ResidentArray`, whose `get` and `close` block."""
        return await self._run(self.client._put, array, device, owner, ttl, timeout)

    async def session(self, *, via: str = "auto") -> Session:
        """As `reduced.Client.session`. Its calls run on the client's threads.

        >>> import asyncio, reduced.aio
        >>> async def main():
        ...     async with reduced.aio.connect("local:") as c, await c.session() as s:
        ...         return await s.sum([1, 2, 3])
        >>> print(asyncio.run(main()))
        6
        """
        return Session(await asyncio.wrap_future(self._threads(os.getpid()).submit(self.client.session, via=via)), self._threads)

    def _close(self) -> None:
        self._threads(os.getpid()).shutdown()
        super()._close()


class Session(_Reducer):
    """Wraps a `reduced.Session`."""

    def __init__(self, session: _client.Session, threads: Callable[[int], ThreadPoolExecutor]) -> None:
        super().__init__(session, threads)
        self.via, self.why_not_ring = session.via, session.why_not_ring


@functools.wraps(_client.connect)
def connect(*arguments: Any, threads: int = 32, **options: Any) -> Client:
    return Client(_client.connect(*arguments, **options), threads)

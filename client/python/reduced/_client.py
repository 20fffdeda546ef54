"""Clients: of a server, of one of its sessions, and of the engine in this process."""

from __future__ import annotations

import atexit
import functools
import os
import re
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

import numpy as np
import numpy.typing as npt

from reduced import _core, _labels, _layouts, _many, _times
from reduced._arrays import Elements, bits_dtype, elements, located, mask_of, on_gpu, on_request, plain_dtype
from reduced._containers import read
from reduced._copies import PIECE, both, copied
from reduced._cuda import CudaElements, forget_all
from reduced._distribution import Plan, Top
from reduced._errors import Error, InvalidArgumentError, ResourceExhaustedError, UnimplementedError
from reduced._ops import Ops
from reduced._options import DEFAULTS, OPTIONS, Options, check, check_options, named
from reduced._pairs import Comparison, dtype_of, fitted, placed
from reduced._partition import BESIDE, GROUPED, OTHERS, ResidentArray, arguments, partition_of
from reduced._result import ArrayResult, Result, scalar_of
from reduced._state import State

LOCAL = "local:"
_DEFAULT_SERVER = "127.0.0.1:50051"
_POSITIONS = frozenset({"argmin", "argmax", "argtopk", "argbottomk", "compare", "cov_matrix", "corr_matrix", "fingerprint"})
_DISTRIBUTION = frozenset(_core.distribution)
_ACCUMULATED = frozenset(_core.ops) - _DISTRIBUTION
# A call of a large array has a second more for each of these.
_BYTES_PER_SECOND = 64 << 20

# As `reducectl describe` has them, without the quartiles.
_DESCRIBE = ("count", "nan_count", "mean", "std", "min", "max", "argmin", "argmax", "sum")
_QUARTILES = "quantile(0.25,0.5,0.75)"
_DESCRIBED = ("count", "missing", "mean", "std", "min", "25%", "50%", "75%", "max", "argmin", "argmax", "sum", "nan_count")


_PARTITION = OPTIONS.keys() - DEFAULTS.keys()


@functools.lru_cache(maxsize=256, typed=True)
def _options(**options: Unpack[Options]) -> _core.Options:
    check_options(options)
    given: dict[str, Any] = {**DEFAULTS, **options}
    return _core.options(**{name: value.item() if isinstance(value, np.generic) else value for name, value in given.items()})


def names_of(ops: str | Sequence[str]) -> list[str]:
    """The names of ops. TypeError: one is no string."""
    names = _core.split_ops(ops) if isinstance(ops, str) else list(ops) if isinstance(ops, Iterable) else [ops]
    for name in names:
        check(str, ops=name)
    return [name.strip() for name in names]


def of_distribution(names: Sequence[str]) -> str | None:
    """The first op that is one of the distribution, which makes the answers arrays."""
    for name in names:
        if name in _DISTRIBUTION or (name.endswith(")") and name.partition("(")[0].strip() in _DISTRIBUTION):
            return name
    return None


def _nothing(array: Any, shape: tuple[int, ...]) -> Elements:
    """No items of an array's dtype, each of the shape that those of `shape` have."""
    return Elements(np.empty(0, np.uint8), dtype_of(array), (0, *shape[1:]))


class _Reducer(Ops[np.number[Any], np.float64, int, np.bool_, npt.NDArray[Any], tuple[npt.NDArray[Any], npt.NDArray[Any]], Top, Comparison, str]):
    """What reduces arrays. Thread-safe."""

    def __init__(self, core: _core.Reducer, timeout: float | None) -> None:
        self._core = core
        self._timeout = timeout
        self._opener: _Reducer = self  # of a session the client
        self._server: str | None = LOCAL  # where blocks of an array reach what this reaches; None: they do not
        self._reads_gpus = not isinstance(core, _core.Local)
        _open.add(self)

    @named
    def reduce(self, array: Any, ops: str | Sequence[str], **options: Unpack[Options]) -> Result:
        """Reduces an array by one or more ops, in one read, or a few for quantiles and the like. With `axis`, `where`, `segments`, `lengths` or `keys` the
        results are ndarrays: see `ArrayResult`.

        `array`: an ndarray; what has Arrow's C data interface (polars, pyarrow), pandas columns, frames and masked arrays, whose
        missing elements are left out; what has the buffer protocol or DLPack on the CPU (PyTorch, JAX); sequences of numbers; a
        `ResidentArray`; or an array of a GPU (PyTorch, CuPy, JAX, Numba), which a server on this machine reads where it is, after
        the work of its stream. `ops`: names, as a sequence or with commas between. The memory of arrays
        in Fortran order and of transposed ones is read as it lies unless an op is argmin, argmax, argtopk, argbottomk or fingerprint; that of
        other arrays with strides, and of the other byte order, element by element. See `Options` for the options.

        An op to which the array has no answer, such as an integer sum that overflows, does not take the others with it: the
        result raises the op's error when that op is read. If no op has an answer, the call raises it.

        >>> import numpy as np, reduced
        >>> c = reduced.connect("local:")
        >>> r = c.reduce(np.array([3.0, np.nan, 1.0]), "sum,nan_count", nan="omit")
        >>> print(r.sum, r.nan_count)
        4.0 1
        """
        return self._reduce(array, names_of(ops), options, None)

    @named
    def reduce_many(self, arrays: Mapping[Any, Any] | Sequence[Any], ops: str | Sequence[str], **options: Unpack[Options]) -> Any:
        """Reduces many arrays by the same ops: of a mapping a dict of a `Result` each, of a sequence a list. The results are those of
        `reduce` of each, for the cost of the bytes and some microseconds an array: small arrays, resident ones, and those of a GPU or in
        `reduced.empty` go together in calls of a server, in requests of a session or its ring, and on one thread of "local:".

        Options are common to all arrays; with those of arrays of results, such as `axis`, each array is a call. `timeout` is for all
        together. An error that is about an array has its name in its notes, and ends the call; but an op to which an array has no answer
        is as in `reduce`. InvalidArgumentError: there is no array.

        >>> import numpy as np, reduced
        >>> c = reduced.connect("local:")
        >>> r = c.reduce_many({"weight": np.array([3.0, 4.0], "f4"), "steps": np.arange(5)}, "l2,max")
        >>> print(r["weight"].l2, r["steps"].max)
        5.0 4
        """
        return self._reduce_many(arrays, names_of(ops), options, None)

    @named
    def describe(self, array: Any, **options: Unpack[Options]) -> Result:
        """count, missing, mean, std (ddof 1), min, 25%, 50%, 75% and max, as pandas has them, then argmin, argmax and sum, without NaNs.

        `missing` counts these (also by its op's name, `nan_count`).
        What has no answer is None, such as the `min` of no element and a sum of integers that overflows, and is shown as `-`. In
        ndarrays it is NaN for floats, -1 for indexes, and masked for integers.
        """
        return self._describe(array, options, None)

    def close(self) -> None:
        """Ends what this holds at the server. May be called any number of times."""
        self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _reduce(self, array: Any, names: Sequence[str], options: Options, interrupt: _core.Interrupt | None) -> Result:
        array, options = on_request(array, options)
        if not _labels.concern(array, options):
            return self._reduce_plain(array, names, options, interrupt)
        return _labels.reduce(functools.partial(self._reduce_plain, interrupt=interrupt), array, names, options, self._server)

    def _reduce_many(self, arrays: Any, names: Sequence[str], options: Options, interrupt: _core.Interrupt | None) -> Any:
        positions = any(name.partition("(")[0].strip() in _POSITIONS for name in names)
        return _many.reduce_many(self, arrays, names, positions, options, interrupt)

    def _reduce_plain(self, array: Any, names: Sequence[str], options: Options, interrupt: _core.Interrupt | None) -> Result:
        """Without labels."""
        there = None
        if type(array) is not np.ndarray and not isinstance(array, ResidentArray | Elements | CudaElements):
            array, there = read(array)
        if options.get("y") is not None or options.get("weights") is not None:
            array, there, options = fitted(array, there, names, options, gpu=self._reads_gpus)
        if isinstance(array, np.ndarray) and array.dtype.kind in "mM":
            return _times.reduce(functools.partial(self._answer, interrupt=interrupt), array, there, names, options)
        return self._answer(array, there, names, options, interrupt)

    def _answer(self, array: Any, there: npt.NDArray[np.bool_] | None, names: Sequence[str], options: Options,
                interrupt: _core.Interrupt | None) -> Result:
        """The answers of the elements that are not missing. `there`: which these are; None: all."""
        if there is None:
            return self._ask(array, names, options, interrupt)
        if options.get("state"):
            raise TypeError("array: got missing elements with state; allowed: without (see fill_null, drop_null, fillna, dropna, filled, "
                            "compressed), or with where")
        where, keys = options.get("where"), options.get("keys")
        present: Options = {**options, "where": there if where is None else both(mask_of(where, there.shape), there)}
        if keys is None or options.get("groups") is not None:
            return self._ask(array, names, present, interrupt)
        # A key whose elements are all missing is a group of none, as in SQL and pandas. The server leaves its key out.
        found = self._ask(array, names, present, interrupt)
        asked: Options = {"keys": keys} if where is None else {"keys": keys, "where": where}
        on_server = any(isinstance(each, ResidentArray | CudaElements) or on_gpu(each) for each in (keys, where))
        finder = self if on_server else _Reducer(_core.Local(), None)  # here: the array need not be sent twice
        groups = finder._ask(array, ("count",), asked, interrupt).group_keys
        assert isinstance(found, ArrayResult) and found.group_keys is not None and groups is not None
        if len(groups) == len(found.group_keys):
            return found
        if options.get("keep"):
            raise InvalidArgumentError("keep: got True by keys, one of which has missing elements only; allowed: with groups, or False")
        others: Any = {role: _nothing(options.get(role), array.shape) for role in OTHERS if options.get(role) is not None}
        nothing: Options = {**options, "where": None, "keys": np.empty(0, groups.dtype), "groups": 1, **others}
        first = int(np.flatnonzero(~np.isin(groups, found.group_keys))[0])

        def of_first(error: Error) -> Error:
            return type(error)(f"output [{first}]: {re.sub(r'^output .*?: ', '', str(error))}")

        try:
            of_none = self._ask(_nothing(array, array.shape), list(found), nothing, interrupt)
        except InvalidArgumentError as error:
            raise of_first(error) from None
        return found._among(groups, of_none, {op: of_first(error) for op, error in of_none.errors.items()}, names)

    def _ask(self, array: Any, names: Sequence[str], options: Options, interrupt: _core.Interrupt | None) -> Result:
        if not _PARTITION.isdisjoint(options):
            check_options(options)
            whole: Any = dict(options)
            partition = {name: whole.pop(name) for name in _PARTITION if name in whole}
            if any(partition.get(name) is not None for name in ("axis", "where", *GROUPED)) or partition.get("keepdims"):
                lying = None if options.get("state") else _layouts.lying(array, names, partition, _POSITIONS)
                if lying is not None:
                    try:
                        result = self._reduce_array(lying.array, names, {**partition, "axis": lying.axis, "where": lying.where}, whole, interrupt)
                        if lying.in_order or not result.errors:
                            return lying.restored(result)
                    except Error as error:
                        if lying.in_order or "output [" not in str(error):
                            raise
                    # An error names an output of the array itself.
                return self._reduce_array(array, names, partition, whole, interrupt)
            if of_distribution(names) is not None:
                return self._reduce_whole(array, names, partition, whole, interrupt)
            for name, beside in BESIDE.items():
                if partition.get(name) is not None and partition[name] is not False:
                    raise ValueError(f"{name}: got {partition[name]!r} alone; allowed: with {beside}")
            options = whole
        elif of_distribution(names) is not None:
            return self._reduce_whole(array, names, {}, options, interrupt)
        given: _core.Resident | Elements | CudaElements
        if isinstance(array, ResidentArray):
            given = array._held()
        else:
            ordered = not _POSITIONS.isdisjoint(names)
            given = located(array, ordered=ordered, gpu=self._reads_gpus, strided=True)
        return Result(self._core.reduce(*arguments(given), names, self._options_for(given, options), interrupt))

    def _reduce_whole(self, array: Any, names: Sequence[str], partition: dict[str, Any], options: Options,
                      interrupt: _core.Interrupt | None) -> Result:
        """With an op of the distribution."""
        if not isinstance(array, ResidentArray):
            ordered = any(name.partition("(")[0].strip() in _POSITIONS for name in names)
            array = located(array, ordered=ordered, gpu=self._reads_gpus, strided=True)
        if partition.get("keep"):
            return self._reduce_array(array, names, partition, options, interrupt)
        return self._reduce_array(array, names, partition, options, interrupt, lambda reply, kept: Result._of_whole(reply))

    def _located(self, array: Any, names: Sequence[str], options: Options) -> tuple[Any, Options]:
        """The array and the options with what this thread knows of arrays of a GPU, which is their streams."""
        array, options = on_request(array, options)
        if not self._reads_gpus:
            return array, options
        if on_gpu(array):
            ordered = not _POSITIONS.isdisjoint(names)
            array = located(array, ordered=ordered or not _PARTITION.isdisjoint(options))
        there: Any = dict(options)
        if on_gpu(there.get("weights")):
            there["weights"] = placed(there["weights"], tuple(array.shape) if hasattr(array, "shape") else np.shape(array), options)
        for name in ("where", *GROUPED, *OTHERS):
            if on_gpu(there.get(name)):
                there[name] = located(there[name], ordered=True)
        return array, there

    def _reduce_array(self, array: Any, names: Sequence[str], partition: dict[str, Any], options: Options,
                      interrupt: _core.Interrupt | None, result_of: Callable[..., Result] = ArrayResult._of) -> Result:
        given: _core.Resident | Elements | CudaElements
        if isinstance(array, ResidentArray):
            given = array._held()
        else:
            array = given = array if isinstance(array, Elements | CudaElements) else located(array, ordered=True, gpu=self._reads_gpus,
                                                                                                    strided=True)
        held: list[Any] | None = [] if self._reads_gpus else None  # until the answer is there
        if partition.get("keep"):
            partition["owner"] = self._owner(partition.get("owner"))
        core_partition = partition_of(array.shape, partition, held)
        kept = self._kept if partition.get("keep") else None
        others = [partition[role] for role in OTHERS if isinstance(partition.get(role), Elements)]
        own = self._options_for(given, options, sum(other.nbytes for other in others))
        return result_of(self._core.reduce_array(*arguments(given), names, own, core_partition, interrupt), kept)

    def _get(self, array: ResidentArray, timeout: float | None) -> npt.NDArray[Any]:
        held = array._held()
        if isinstance(held, Elements):
            return copied(held.buffer).view(array.dtype)
        core = self._opener._core
        assert isinstance(core, _core.Remote) and self._timeout is not None
        if timeout is None:
            timeout = self._timeout + array.nbytes // _BYTES_PER_SECOND
        _, shape, elements = core.get(array.id, timeout)
        return elements.view(array.dtype).reshape(shape)

    def _kept(self, dtype: str, shape: tuple[int, ...], array: _core.Bytes | _core.Resident) -> ResidentArray:
        """A result that the server has kept or, in this process, that has come as its bytes."""
        if isinstance(array, _core.Resident):
            return ResidentArray(dtype, shape, self, array)
        elements = array.view(bits_dtype(dtype)).reshape(shape)
        return ResidentArray(dtype, shape, self, Elements(elements, dtype, shape))

    def _options_for(self, given: _core.Resident | Elements | CudaElements | None, options: Options, beside: int = 0) -> _core.Options:
        """`given`: what the timeout is for, unless the server has it. `beside`: the bytes that are sent, too."""
        if self._timeout is not None and options.get("timeout") is None:
            nbytes = beside if given is None or isinstance(given, _core.Resident) else beside + given.nbytes
            if nbytes >= _BYTES_PER_SECOND:
                options = {**options, "timeout": self._timeout + nbytes // _BYTES_PER_SECOND}
        try:
            return _options(**options)
        except TypeError:
            check_options(options)  # one that has no hash is of another type
            raise

    def _owner(self, owner: str | None) -> str:
        """The owner of what the server stores. None: the default."""
        if owner is not None:
            return owner
        return self._opener._core.default_owner if isinstance(self._opener._core, _core.Remote) else ""

    def _describe(self, array: Any, options: Options, interrupt: _core.Interrupt | None) -> Result:
        array, options = on_request(array, options)
        if not _labels.concern(array, options):
            return self._describe_plain(array, options, interrupt)
        return _labels.reduce(lambda plain, _, given: self._describe_plain(plain, given, interrupt), array, _DESCRIBED, options, None)

    def _describe_plain(self, array: Any, options: Options, interrupt: _core.Interrupt | None) -> Result:
        """Without labels."""
        asked: Options = {"nan": "omit", "ddof": 1, **options}
        there = None
        if not isinstance(array, ResidentArray | Elements | CudaElements):
            array, there = read(array)
            if isinstance(array, np.ndarray) and array.dtype.kind in "mM":
                _times.check(_DESCRIBE, array.dtype.kind, options)
        fills = not options.get("keep") and (there is not None or any(options.get(name) is not None for name in ("axis", "where", *GROUPED)))
        asked = {"empty": "fill", "overflow": "wrap", **asked} if fills else asked
        without: Error | None = None  # why there are no quartiles
        try:
            result = self._answer(array, there, (*_DESCRIBE, _QUARTILES), asked, interrupt)
        except (UnimplementedError, ResourceExhaustedError) as why:  # too large to be read as a whole, say
            without = why
            result = self._answer(array, there, _DESCRIBE, asked, interrupt)
        result._describes(_QUARTILES, _DESCRIBED, without)
        if fills:
            assert isinstance(result, ArrayResult)
            result._masked("empty" not in options, "overflow" not in options)
        return result

    def _one(self, op: str, array: Any, options: Options) -> Any:
        # What a small array takes most of its time for: nothing has to be looked at twice.
        if not options and type(array) is np.ndarray and array.size <= PIECE and op in _ACCUMULATED and (dtype := plain_dtype(array)):
            reply = self._core.reduce(array, dtype, array.shape, (op,), _options(), None)
            return Result(reply)[op] if reply.statuses else scalar_of(reply.results[0])
        return self._reduce(array, (op,), options, None)[op]

    def _planned(self, plan_of: Callable[[Any, Options], Plan], array: Any, options: Options, interrupt: _core.Interrupt | None = None) -> Any:
        return _labels.planned(functools.partial(self._run, plan_of, interrupt=interrupt), array, options)

    def _run(self, plan_of: Callable[[Any, Options], Plan], array: Any, options: Options, *, interrupt: _core.Interrupt | None) -> Any:
        """The value of a plan for a plain array."""
        plan = plan_of(array, options)
        try:
            array, names, options = next(plan)
            while True:
                array, names, options = plan.send(self._reduce_plain(array, names, options, interrupt))
        except StopIteration as end:
            return end.value


class Session(_Reducer):
    """Many small reductions over one call: each takes less time than a call. Any number of threads can share it.

    `via` says how its requests reach the server: "ring", through shared memory; "session", in messages; "local", not at all.
    `why_not_ring`: why a session of `via="auto"` is no ring; empty if it is one, or none was wanted.
    """

    def __init__(self, core: _core.Reducer, client: _Reducer) -> None:
        super().__init__(core, client._timeout)
        self._opener, self._server = client, client._server
        self.via, self.why_not_ring = "local", ""
        if isinstance(core, _core.RemoteSession):
            self.via, self.why_not_ring = core.via, core.why_not_ring


class Client(_Reducer):
    """A client of a server, or of the engine in this process: see `connect`."""

    def __init__(self, core: _core.Reducer, server: str, timeout: float | None, options: dict[str, Any]) -> None:
        super().__init__(core, timeout)
        self.server = server
        self._server = None if any(options.get(name) for name in ("token_file", "tls_ca", "tls_cert", "tls_key", "tls_server_name")) else server
        self._connected_by = options

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles as its address and options: the other process connects by itself."""
        return functools.partial(connect, self.server, **self._connected_by), ()

    def put(self, array: Any, *, device: str = "", owner: str | None = None, ttl: float = 0,
            timeout: float | None = None) -> ResidentArray:
        """Stores a copy of an array on the server, to be reduced any number of times.

        `device`: where, by default on the first GPU or, without one, in the server's memory; "cuda:*": cut along the first dimension
        over all GPUs, which reduce it at the same time (`shards` says where what is). `owner`: a name that whoever deletes
        the array gives, by default user@host, as reducectl's, and none if the client has a token or a certificate, to whose identity it
        belongs; "": none. `ttl`: the seconds after which it expires if it is idle; 0: the server's default.

        >>> import numpy as np, reduced
        >>> c = reduced.connect("local:")
        >>> with c.put(np.arange(5)) as a:
        ...     print(c.mean(a), c.max(a))
        2.0 4
        """
        return self._put(array, device, owner, ttl, timeout, None)

    def session(self, *, via: str = "auto") -> Session:
        """Opens a session. Arrays are sent in it, whatever their size.

        `via`: "ring" sends requests through memory that a server on this machine shares with this process, in a fraction of
        the time of a message; "session" sends messages; "auto" is "ring" where that works.

        >>> import numpy as np, reduced
        >>> with reduced.connect("local:").session() as s:
        ...     print(s.sum(np.arange(4)))
        6
        """
        check(str, via=via)
        if isinstance(self._core, _core.Remote):
            return Session(self._core.session(via), self)
        return Session(self._core, self)

    def info(self) -> dict[str, Any]:
        """The server's version, uptime in seconds, devices, limits and usage."""
        if isinstance(self._core, _core.Remote):
            return self._core.info()
        return {"version": _core.version, "devices": [{"name": "cpu", "engine": "cpu"}]}

    def __repr__(self) -> str:
        return f"Client({self.server!r})"

    def _put(self, array: Any, device: str, owner: str | None, ttl: float, timeout: float | None,
             interrupt: _core.Interrupt | None) -> ResidentArray:
        check(str, device=device)
        check(str | None, owner=owner)
        check(float, ttl=ttl)
        check(float | None, timeout=timeout)
        given = elements(array, ordered=True)
        if not isinstance(self._core, _core.Remote):
            return ResidentArray(given.dtype, given.shape, self, given._replace(buffer=copied(np.asarray(given.buffer))))
        if timeout is None and self._timeout is not None:
            timeout = self._timeout + given.nbytes // _BYTES_PER_SECOND
        return ResidentArray(given.dtype, given.shape, self,
                             self._core.put(given.buffer, given.dtype, given.shape, device=device, owner=self._owner(owner),
                                            ttl=ttl, timeout=timeout, interrupt=interrupt))

    def _state(self, array: Any, ops: Sequence[str], options: Options) -> State:
        """The state of a part of an array, also of one that has no results by itself."""
        state = self._reduce_plain(array, ops, {**options, "state": True, "results": False}, None).state
        assert state is not None
        return state


def connect(server: str | None = None, *, timeout: float = 5.0, token_file: str | os.PathLike[str] = "", tls_ca: str = "",
            tls_cert: str = "", tls_key: str = "", tls_server_name: str = "", connections: int = 0,
            max_attempts: int = 4) -> Client:
    """A client of the server at an address, which connects when it first needs to.

    `server`: `"host:port"`, `"unix:/path"`, a list `"host:port,host:port"` or another of gRPC's targets; by default the
    environment's REDUCED_SERVER, else 127.0.0.1:50051. `"local:"` has no server: the CPU engine runs in this process, with
    the same bits. `timeout`: of calls, in seconds. `token_file`: of the token that is sent with every call, over TLS, to a
    Unix socket or a loopback address. `tls_ca`: the PEM file of the CA certificates, or `"system"`; empty: no TLS.
    `connections`: how many a large array may use (0: 4 on a machine of 8 cores or more, else 1). `max_attempts`: how
    often a call is sent at most that a server does not answer since it stops, or whose connection is lost. Reductions survive a
    restart of the server that takes less than `timeout`, in sessions, too.
    """
    address = server if server is not None else os.environ.get("REDUCED_SERVER") or _DEFAULT_SERVER
    token_file = os.fspath(token_file)
    check(float, timeout=timeout)
    check(int, connections=connections, max_attempts=max_attempts)
    check(str, server=address, token_file=token_file, tls_ca=tls_ca, tls_cert=tls_cert, tls_key=tls_key, tls_server_name=tls_server_name)
    options: dict[str, Any] = {"timeout": timeout, "connections": connections, "max_attempts": max_attempts, "tls_ca": tls_ca,
                               "tls_cert": tls_cert, "tls_key": tls_key, "tls_server_name": tls_server_name, "token_file": token_file}
    if address == LOCAL:
        return Client(_core.Local(), address, None, options)
    return Client(_core.connect(address, **options), address, timeout, options)


@functools.lru_cache(maxsize=8)
def connected(server: str) -> Client:
    """A client that this module keeps."""
    return connect(server)


_open: weakref.WeakSet[_Reducer] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for reducer in list(_open):
        reducer.close()
    connected.cache_clear()
    forget_all()
    _options.cache_clear()  # others may keep this module longer than the one that its options are of

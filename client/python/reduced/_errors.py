"""Exceptions: one class for each status that the service has."""

from __future__ import annotations

import re


class Error(Exception):
    """What every error of a server or of the library is.

    `request_id` is the id by which the server's log knows the call, or empty. `retry_after` is how many seconds the
    server asks to wait before the next attempt, or None.
    """

    code = "UNKNOWN"
    request_id: str = ""
    retry_after: float | None = None


class CancelledError(Error):
    """The call was cancelled, or interrupted by its caller."""

    code = "CANCELLED"


class UnknownError(Error):
    """An error that has no other class."""


class InvalidArgumentError(Error, ValueError):
    """The request is wrong, whatever the server's state: an unknown op, a shape that does not fit the elements."""

    code = "INVALID_ARGUMENT"


class DeadlineExceededError(Error, TimeoutError):
    """The timeout passed before the answer came."""

    code = "DEADLINE_EXCEEDED"


class NotFoundError(Error, LookupError):
    """A resident array or region that the server does not have (any more)."""

    code = "NOT_FOUND"


class AlreadyExistsError(Error):
    """Something is there already."""

    code = "ALREADY_EXISTS"


class PermissionDeniedError(Error, PermissionError):
    """The caller may not do that: the array belongs to another."""

    code = "PERMISSION_DENIED"


class ResourceExhaustedError(Error):
    """A limit, a quota or the memory does not allow the request now; see `retry_after`."""

    code = "RESOURCE_EXHAUSTED"


class FailedPreconditionError(Error):
    """The request cannot work as things are: there is no such device; the connection is closed or of another process."""

    code = "FAILED_PRECONDITION"


class AbortedError(Error):
    """Another part of the same upload failed."""

    code = "ABORTED"


class OutOfRangeError(Error, OverflowError):
    """An integer result does not fit its type, or elements lie beyond the end of a region."""

    code = "OUT_OF_RANGE"


class UnimplementedError(Error, NotImplementedError):
    """The server does not know the call, or the pipeline does not support the request."""

    code = "UNIMPLEMENTED"


class InternalError(Error):
    """The server or the library has a fault: the answer is none to what was asked."""

    code = "INTERNAL"


class UnavailableError(Error, ConnectionError):
    """No server answers, it is going away, or the connection was lost."""

    code = "UNAVAILABLE"


class DataLossError(Error):
    """Data was lost or damaged."""

    code = "DATA_LOSS"


class UnauthenticatedError(Error):
    """The server does not know the caller: the token or certificate is missing or wrong."""

    code = "UNAUTHENTICATED"


# By the number of the status.
_CLASSES = (
    UnknownError, CancelledError, UnknownError, InvalidArgumentError, DeadlineExceededError, NotFoundError, AlreadyExistsError,
    PermissionDeniedError, ResourceExhaustedError, FailedPreconditionError, AbortedError, OutOfRangeError, UnimplementedError,
    InternalError, UnavailableError, DataLossError, UnauthenticatedError,
)


# The fields of the service whose options are called otherwise here.
_OPTIONS = {"nan_policy": "nan", "overflow_policy": "overflow", "return_state": "state", "axes.axis": "axis", "segments.offsets": "segments",
            "segments.lengths": "lengths", "keys.keys": "keys", "where.elements": "where"}
_FIELD = re.compile(rf"(?:(?<=^)|(?<=: ))({'|'.join(map(re.escape, _OPTIONS))})(?=: |\[)")
_DROP = re.compile(r"or outside: DROP$")


def error_of(number: int, message: bytes) -> Error:
    """The error of a status."""
    text = _FIELD.sub(lambda field: _OPTIONS[field[1]], message.decode(errors="backslashreplace"))
    text = _DROP.sub("or outside: 'drop'", text)
    return (_CLASSES[number] if 0 <= number < len(_CLASSES) else UnknownError)(text)


def raise_status(number: int, message: bytes, request_id: str, retry_after: float | None) -> None:
    """Raises the error of a status. The module _core calls this."""
    error = error_of(number, message)
    error.request_id = request_id
    error.retry_after = retry_after
    try:
        raise error
    finally:
        del error  # its traceback has this frame, which would keep it, and the arrays of the frames above, in a cycle

"""Exact reductions of arrays, by a `reduced` server or in this process.

>>> import numpy as np, reduced
>>> c = reduced.connect("local:")
>>> x = np.array([1e16, 1.0, -1e16])
>>> print(c.sum(x), x.sum())
1.0 0.0
"""

from reduced._arrays import empty
from reduced._client import Client, Session, connect
from reduced._core import dtypes, ops
from reduced._core import version as __version__
from reduced._distribution import fingerprint_text
from reduced._errors import (
    AbortedError,
    AlreadyExistsError,
    CancelledError,
    DataLossError,
    DeadlineExceededError,
    Error,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
    UnknownError,
)
from reduced._options import Options
from reduced._pairs import Comparison
from reduced._partition import ResidentArray
from reduced._result import ArrayResult, ArrayResults, Execution, Result, Results
from reduced._state import State

__all__ = [
    "AbortedError", "AlreadyExistsError", "ArrayResult", "ArrayResults", "CancelledError", "Client", "Comparison", "DataLossError",
    "DeadlineExceededError", "Error", "Execution", "FailedPreconditionError", "InternalError", "InvalidArgumentError",
    "NotFoundError", "Options", "OutOfRangeError", "PermissionDeniedError", "ResidentArray", "ResourceExhaustedError", "Result",
    "Results", "Session", "State", "UnauthenticatedError", "UnavailableError", "UnimplementedError", "UnknownError",
    "__version__", "connect", "dtypes", "empty", "fingerprint_text", "ops",
]

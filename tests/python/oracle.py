"""What each op answers, by obvious code: Python's integers and fractions, and NumPy."""

import fractions
import math

import numpy as np


def exact(array, ddof=0):
    """sum, mean, var, std, sum_squares, l1 and l2 of finite numbers, rounded once (std and l2: of the rounded square)."""
    numbers = [fractions.Fraction(int(x) if array.dtype.kind in "iub" else float(x)) for x in array.ravel()]
    n = len(numbers)
    total = sum(numbers, fractions.Fraction())
    squares = sum((x * x for x in numbers), fractions.Fraction())
    results = {"sum": total, "l1": sum(map(abs, numbers), fractions.Fraction()), "sum_squares": squares}
    if n > 0:
        results["mean"] = total / n
    if n > ddof:
        results["var"] = (squares - total * total / n) / (n - ddof)
    rounded = {}
    for op, value in results.items():
        whole = array.dtype.kind in "iub" and op in ("sum", "l1", "sum_squares")
        rounded[op] = int(value) if whole else _nearest(value)
    rounded["l2"] = _root(squares)
    rounded["std"] = _root(results["var"]) if n > ddof else math.nan
    rounded.setdefault("mean", math.nan)
    rounded.setdefault("var", math.nan)
    return rounded


def _nearest(value):
    try:
        return value.numerator / value.denominator  # Python rounds the quotient of integers once
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _root(value):
    """The square root of a fraction, rounded once to a double (to 2^-1000 in magnitude)."""
    if value == 0:
        return 0.0
    # An integer root with more than 64 bits, and a sticky bit.
    shift = max(0, 160 - (value.numerator.bit_length() - value.denominator.bit_length()))
    shift += shift % 2
    scaled, rest = divmod(value.numerator << shift, value.denominator)
    root = math.isqrt(scaled)
    sticky = rest != 0 or root * root != scaled
    return _nearest(fractions.Fraction(root * 2 + sticky, 2) / (1 << (shift // 2)))


def numpy_answers(array):
    """The ops that NumPy answers exactly, of a non-empty array without NaNs."""
    answers = {
        "min": array.min(), "max": array.max(), "argmin": int(array.argmin()), "argmax": int(array.argmax()),
        "any": array.any(), "all": array.all(), "count": array.size, "count_nonzero": int(np.count_nonzero(array)), "nan_count": 0,
    }
    if array.dtype.kind in "iu":
        answers |= {"bit_and": np.bitwise_and.reduce(array, axis=None), "bit_or": np.bitwise_or.reduce(array, axis=None),
                    "bit_xor": np.bitwise_xor.reduce(array, axis=None)}
    return answers

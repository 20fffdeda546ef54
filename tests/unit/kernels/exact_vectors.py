#!/usr/bin/env python3
"""Writes exact_vectors.inc: arrays and what their exact sums are, rounded once, by Python's rational numbers.

usage: exact_vectors.py > exact_vectors.inc
"""

import math
import random
import struct
from fractions import Fraction

random.seed(20261121)


def nearest(value, root=False):
    """The double nearest to a rational number >= 0, or to its root, ties to even."""
    if value == 0:
        return 0.0
    below = 0  # as bits: the largest double that isn't above
    beyond = 0x7FF0000000000000
    as_double = lambda bits: Fraction(2) ** 1024 if bits == 0x7FF0000000000000 else Fraction(
        struct.unpack("<d", struct.pack("<Q", bits))[0])
    target = lambda x: x * x if root else x
    while beyond - below > 1:
        middle = (below + beyond) // 2
        if target(as_double(middle)) <= value:
            below = middle
        else:
            beyond = middle
    middle = target((as_double(below) + as_double(beyond)) / 2)
    up = value > middle or (value == middle and below & 1)
    return struct.unpack("<d", struct.pack("<Q", beyond if up else below))[0]


def signed(value):
    return -nearest(-value) if value < 0 else nearest(value)


def answers(array, ddof):
    exact = [Fraction(x) for x in array]
    n, total, squares = len(exact), sum(exact), sum(x * x for x in exact)
    only_minus_zero = all(x == 0 and math.copysign(1, x) < 0 for x in array)
    zero = -0.0 if only_minus_zero else 0.0
    total_rounded = signed(total) if total else zero
    if not math.isinf(total_rounded):
        try:
            assert math.fsum(array) == total_rounded
        except OverflowError:  # of an intermediate sum, which fsum can't have
            pass
    variance = (n * squares - total * total) / (n * (n - ddof)) if n > ddof else None
    return [total_rounded, signed(total / n) if total else zero, nearest(sum(map(abs, exact))), nearest(squares),
            nearest(squares, root=True), math.nan if variance is None else nearest(variance),
            math.nan if variance is None else nearest(variance, root=True)]


def any_double(low, high):
    return math.ldexp(random.choice((-1, 1)) * (1 + random.getrandbits(52) / 2**52), random.randint(low, high))


def narrow(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def ill_conditioned(n, exponent):
    """Large numbers that all but cancel: of condition 2^exponent or so."""
    half = [any_double(0, exponent) for _ in range(n)]
    array = half + [-x for x in half] + [any_double(-20, 0)]
    random.shuffle(array)
    return array


ARRAYS = [
    ("f64", [1.0]), ("f64", [-0.0]), ("f64", [-0.0, -0.0, -0.0]), ("f64", [-0.0, 0.0]), ("f64", [1.5, -1.5]),
    ("f64", [1.0, 2.0**-53]), ("f64", [1.0, 2.0**-53, 2.0**-1074]), ("f64", [1.0, 2.0**-52, 2.0**-53]),
    ("f64", [1.0, 2.0**-53, -2.0**-1074]), ("f64", [-1.0, -2.0**-53]), ("f64", [1e308, 1e308, -1e308]),
    ("f64", [1.7976931348623157e308, 2.0**969]), ("f64", [1.7976931348623157e308, 2.0**970]),
    ("f64", [1.7976931348623157e308, 2.0**970, -2.0**-1074]), ("f64", [1.7976931348623157e308] * 3),
    ("f64", [2.0**-1074] * 5), ("f64", [2.0**-1074, -2.0**-1074]), ("f64", [2.0**-1022, -2.0**-1074]),
    ("f64", [1e30, 1.0, -1e30]), ("f64", [1e16, 1.0, 1.0]), ("f64", [0.1] * 10), ("f64", [3.0, 4.0]),
    ("f64", [2.0**-537, 2.0**-538]), ("f64", [2.0**512, 2.0**511]), ("f64", [-(2.0**53 - 1)] * 7),
    ("f64", [2.0**600, 2.0**-600, -2.0**600]), ("f64", [1.0 + 2.0**-52, 1.0, 1.0 - 2.0**-53]),
    ("f32", [narrow(0.1)] * 10), ("f32", [2.0**-149, 2.0**127]), ("f32", [2.0**127] * 4 + [-2.0**-149]),
    ("f32", [16777216.0, 1.0, 1.0]),
]
for exponent in (20, 50, 100, 300):
    ARRAYS.append(("f64", ill_conditioned(10, exponent)))
for low, high in ((-1074 + 52, 1020), (-30, 30), (-500, 500), (-1022, -1000), (-5, 0)):
    ARRAYS.append(("f64", [any_double(low, high) for _ in range(20)]))
for low, high in ((-149 + 23, 126), (-30, 30), (-3, 0)):
    ARRAYS.append(("f32", [narrow(any_double(low, high)) for _ in range(20)]))


def literal(x):
    return "kNan" if math.isnan(x) else "kInfinity" if x == math.inf else "-kInfinity" if x == -math.inf else x.hex()


def main():
    print("// Made by exact_vectors.py. {dtype, ddof, elements, {sum, mean, l1, sum_squares, l2, var, std}}")
    for i, (dtype, array) in enumerate(ARRAYS):
        ddof = i % 2
        row = ", ".join(map(literal, array))
        print(f"{{DType::k{dtype.upper()}, {ddof}, {{{row}}},\n {{{', '.join(map(literal, answers(array, ddof)))}}}}},")


if __name__ == "__main__":
    main()

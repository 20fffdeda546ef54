#!/usr/bin/env python3
"""Writes pair_vectors.inc: pairs of elements, and what ops about them answer, by Python's rational numbers.

usage: pair_vectors.py > pair_vectors.inc
"""

import math
import random
import struct
from fractions import Fraction

random.seed(20261128)

FORMATS = {"f16": "<e", "f32": "<f", "f64": "<d", "i8": "<b", "u8": "<B", "i32": "<i", "u32": "<I", "i64": "<q", "u64": "<Q"}
NAN = math.nan


def bits_of(dtype, value):
    """The bits of an element, as a number."""
    if dtype == "bf16":
        return struct.unpack("<I", struct.pack("<f", value))[0] >> 16
    return int.from_bytes(struct.pack(FORMATS[dtype], value), "little")


def value_of(dtype, bits):
    if dtype == "bf16":
        return struct.unpack("<f", struct.pack("<I", bits << 16))[0]
    return struct.unpack(FORMATS[dtype], bits.to_bytes(struct.calcsize(FORMATS[dtype]), "little"))[0]


def is_float(dtype):
    return dtype[0] == "f" or dtype == "bf16"


def double_of(bits):
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


def nearest(value, root=False):
    """The double nearest to a rational number, or to the root of one, ties to even."""
    if value < 0:
        return -nearest(-value)
    below, beyond = 0, 0x7FF0000000000000
    as_fraction = lambda bits: Fraction(2) ** 1024 if bits == 0x7FF0000000000000 else Fraction(double_of(bits))
    target = lambda x: x * x if root else x
    while beyond - below > 1:
        middle = (below + beyond) // 2
        if target(as_fraction(middle)) <= value:
            below = middle
        else:
            beyond = middle
    middle = target((as_fraction(below) + as_fraction(beyond)) / 2)
    return double_of(beyond if value > middle or (value == middle and below & 1) else below)


def signed_root(square, sign):
    if square is None or sign == 0:
        return NAN if square is None else 0.0
    return nearest(square, root=True) * (-1 if sign < 0 else 1)


def ratio(a, b):
    return None if b == 0 else a / b


def special(op, pairs):
    """The answer where an element is infinite."""
    if op in ("dot", "weighted_sum"):
        return sum(x * y for x, y in pairs if math.isinf(x) or math.isinf(y))
    if op == "weighted_mean":
        weights = sum(Fraction(y) for _, y in pairs if not math.isinf(y))
        if any(math.isinf(y) for _, y in pairs) or weights == 0:
            return NAN
        return sum(x * y for x, y in pairs if math.isinf(x)) * (1 if weights > 0 else -1)
    if op in ("distance_l1", "distance_l2", "distance_max"):
        return sum(abs(x - y) for x, y in pairs if math.isinf(x) or math.isinf(y))
    return NAN


def answer(op, pairs, ddof, omit):
    """Of pairs of numbers: a float, or a whole number."""
    not_number = lambda pair: any(isinstance(v, float) and math.isnan(v) for v in pair)
    if any(map(not_number, pairs)):
        if not omit:
            return NAN
        pairs = [pair for pair in pairs if not not_number(pair)]
    if any(isinstance(v, float) and math.isinf(v) for pair in pairs for v in pair):
        return special(op, pairs)
    xs, ys = [Fraction(x) for x, _ in pairs], [Fraction(y) for _, y in pairs]
    n, sum_x, sum_y = len(pairs), sum(xs), sum(ys)
    products = sum(x * y for x, y in zip(xs, ys))
    spread = lambda a, b: sum(p * q for p, q in zip(a, b)) - Fraction(sum(a) * sum(b), n)
    if op in ("dot", "weighted_sum"):
        return products
    if op == "weighted_mean":
        return NAN if sum_y == 0 else nearest(products / sum_y)
    if op in ("weighted_var", "weighted_std"):
        if sum_y <= 0 or sum_y <= ddof:
            return NAN
        variance = sum(w * (x - products / sum_y) ** 2 for x, w in zip(xs, ys)) / (sum_y - ddof)
        return nearest(variance) if op == "weighted_var" else NAN if variance < 0 else nearest(variance, root=True)
    if op == "distance_l1":
        return nearest(Fraction(sum(abs(x - y) for x, y in zip(xs, ys))))
    if op == "distance_l2":
        return nearest(Fraction(sum((x - y) ** 2 for x, y in zip(xs, ys))), root=True)
    if op == "distance_max":
        return nearest(max((abs(x - y) for x, y in zip(xs, ys)), default=Fraction(0)))
    if op == "cosine":
        square = ratio(Fraction(products**2), sum(x * x for x in xs) * sum(y * y for y in ys))
        return signed_root(square, products)
    if op == "cov":
        return NAN if n <= ddof else nearest(spread(xs, ys) / (n - ddof))
    if n == 0 or spread(xs, xs) == 0:
        return NAN
    if op == "corr":
        return signed_root(ratio(spread(xs, ys) ** 2, spread(xs, xs) * spread(ys, ys)), spread(xs, ys))
    slope = spread(xs, ys) / spread(xs, xs)
    if op == "slope":
        return nearest(slope)
    if op == "intercept":
        return nearest((sum_y - slope * sum_x) / n)
    moment = lambda power: sum((x - Fraction(sum_x, n)) ** power for x in xs) / n
    if op == "skew":
        return signed_root(moment(3) ** 2 / moment(2) ** 3, moment(3))
    return nearest(moment(4) / moment(2) ** 2 - 3)


def steps(dtype, value):
    """How many values of the dtype there are from 0 to this one, with its sign."""
    if not is_float(dtype):
        return value
    return bits_of(dtype, abs(value)) * (-1 if value < 0 else 1)


def figures(dtype, xs, other, ys, omit, rtol, atol, equal_nan):
    """The answer of compare."""
    lattice = dtype if dtype == other else "f64" if "f64" in (dtype, other) else "f32"
    mismatches, different, first, best = 0, 0, [NAN] * 3, [(-1, NAN)] * 3
    squares, n, not_finite = Fraction(0), 0, 0.0
    for i, (x, y) in enumerate(zip(xs, ys)):
        not_number = x != x or y != y
        if not_number and omit:
            continue
        n += 1
        different += bits_of("f64", x) != bits_of("f64", y) if is_float(dtype) else x != y
        infinite = not not_number and (math.isinf(x) or math.isinf(y))
        distance = 0.0 if x == y else NAN if not_number else math.inf if infinite else nearest(abs(Fraction(x) - Fraction(y)))
        match = x == y or (x != x and y != y and equal_nan) or (
            not infinite and not not_number and distance <= atol + rtol * abs(float(y)))
        if not match:
            first = [i, float(x), float(y)] if mismatches == 0 else first
            mismatches += 1
        if not_number:
            not_finite += 0.0 if match else NAN
            continue
        if infinite:
            not_finite += distance
        else:
            squares += (Fraction(x) - Fraction(y)) ** 2
        relative = 0.0 if distance == 0 else math.inf if y == 0 or infinite else distance / abs(float(y))
        apart = float(abs(steps(lattice, x) - steps(lattice, y))) if is_float(dtype) else distance
        for k, figure in enumerate((distance, relative, apart)):
            if figure > best[k][0]:
                best[k] = (figure, i)
    best = [figure if figure[0] >= 0 else (NAN, NAN) for figure in best]
    rmse = NAN if n == 0 else not_finite if not_finite != 0 else nearest(squares / n, root=True)
    return [mismatches, *first, *best[0], *best[1], *best[2], different, rmse]


def any_double(low, high):
    return math.ldexp(random.choice((-1, 1)) * (1 + random.getrandbits(52) / 2**52), random.randint(low, high))


def narrow(dtype, value):
    if dtype == "bf16":
        return value_of(dtype, bits_of("f32", value) >> 16)
    return value_of(dtype, bits_of(dtype, value))


def uniform(dtype, n):
    if is_float(dtype):
        return [narrow(dtype, random.uniform(-2, 2)) for _ in range(n)]
    bits = 8 * struct.calcsize(FORMATS[dtype])
    return [value_of(dtype, random.getrandbits(bits)) for _ in range(n)]


OPS = ["dot", "weighted_sum", "weighted_mean", "weighted_var", "weighted_std", "cov", "corr", "slope", "intercept",
       "distance_l1", "distance_l2", "distance_max", "cosine", "skew", "kurtosis"]
TINY, HUGE, LARGEST = 2.0**-1074, 2.0**1023, 1.7976931348623157e308

# dtype, x, dtype of y, y
PAIRS = [
    ("f64", [1e308, 1, -1e308], "f64", [10.0, 1, 10]),
    ("f64", [], "f64", []),
    ("f64", [3.0], "f64", [-2.5]),
    ("f64", [1.0, 2.0], "f64", [0.5, -4.0]),
    ("f64", [7.0, 7.0, 7.0], "f64", [1.0, 2.0, 3.0]),
    ("f64", [1.0, 2.0, 3.0], "f64", [-1.0, -1.0, -1.0]),
    ("f64", [1e-200, 1.0, 1e-200], "f64", [1e-200, 2.0**-60, 3e-200]),
    ("f64", [TINY, 3 * TINY, 2.0**-1022], "f64", [2 * TINY, TINY, -TINY]),
    ("f64", [LARGEST, -LARGEST, 1.0], "f64", [LARGEST, LARGEST, TINY]),
    ("f64", [HUGE, HUGE], "f64", [-HUGE, HUGE]),
    ("f64", [0.0, -0.0, 0.0], "f64", [-1.0, 1.0, 0.0]),
    ("f64", [0.1, 0.2, 0.3], "f64", [0.1, 0.2, 0.3]),
    ("f64", [1 + 2.0**-52, 1.0], "f64", [1 - 2.0**-53, -1.0]),
    ("f64", [math.inf, 1.0, 2.0], "f64", [1.0, 2.0, 3.0]),
    ("f64", [math.inf, 1.0, 2.0], "f64", [0.0, 2.0, 3.0]),
    ("f64", [math.inf, math.inf, 2.0], "f64", [-1.0, 2.0, -3.0]),
    ("f64", [1.0, 1.0, 2.0], "f64", [math.inf, 2.0, 3.0]),
    ("f64", [math.inf, 1.0], "f64", [math.inf, 2.0]),
    ("f64", [1.0, NAN, 3.0, 5.0], "f64", [2.0, 3.0, NAN, 1.0]),
    ("f32", [NAN, 1.0], "f64", [1.0, math.inf]),
    ("f32", [2.0**-149, 2.0**127, -(2.0**127)], "f32", [2.0**-149, 2.0**127, 2.0**100]),
    ("f16", [2.0**-24, 65504.0, 1.0], "bf16", [2.0**-133, 2.0**127, 3.0]),
    ("f16", [65504.0, math.inf], "f16", [-65504.0, 2.0]),
    ("i64", [2**63 - 1, -(2**63), 5], "u64", [2**64 - 1, 2**63, 1]),
    ("u64", [2**64 - 1] * 3, "u64", [2**64 - 1, 1, 0]),
    ("i64", [-(2**63)] * 2, "i64", [-(2**63), 2**63 - 1]),
    ("i64", [2**53 + 1, 2**53], "i64", [1, -1]),
    ("i8", [-128, 127, 3], "u8", [255, 255, 0]),
    ("u32", [2**32 - 1] * 4, "i32", [-(2**31), 2**31 - 1, 1, 2]),
]
for dtype, other in (("f64", "f64"), ("f64", "f32"), ("f32", "f32"), ("f16", "f64"), ("bf16", "bf16"), ("i8", "i8"), ("i64", "i32"),
                     ("u64", "u64")):
    PAIRS.append((dtype, uniform(dtype, 12), other, uniform(other, 12)))
for low, high in ((-1074 + 52, 1020), (-30, 30), (-500, 500), (-1022, -1000), (900, 1020)):
    PAIRS.append(("f64", [any_double(low, high) for _ in range(11)], "f64", [any_double(low, high) for _ in range(11)]))
base = [1e6 + random.random() for _ in range(10)]
PAIRS.append(("f64", base, "f64", [3 * x + random.random() * 1e-6 for x in base]))

# Of compare: whether NaNs are omitted, rtol, atol, equal_nan.
RULES = [(False, 0.0, 0.0, False), (False, 1e-5, 1e-8, True), (True, 0.5, 0.0, False)]

NEAR = [1.0, 1.0 + 2.0**-52, -0.0, 1e300, -5.0, TINY]
COMPARED = [
    ("f64", NEAR, "f64", NEAR),
    ("f64", NEAR, "f64", [1.0, 1.0, 0.0, 1.00001e300, -5.5, 0.0]),
    ("f64", [math.inf, math.inf, 1.0, NAN, NAN], "f64", [math.inf, -math.inf, math.inf, NAN, 1.0]),
    ("f64", [], "f64", []),
    ("f32", [1.0, 2.0**-149, -(2.0**-149)], "f32", [1.0 + 2.0**-23, -(2.0**-149), 2.0**-149]),
    ("f16", [1.0, 65504.0, -(2.0**-24)], "f16", [1.0 + 2.0**-10, math.inf, 2.0**-24]),
    ("bf16", [1.0, 3.0], "bf16", [1.0 + 2.0**-7, math.inf]),
    ("f16", [1.0, 2.0], "bf16", [1.0 + 2.0**-7, 2.0]),
    ("f32", [1.0, 0.5], "f64", [1.0 + 2.0**-52, 0.5]),
    ("i64", [2**63 - 1, 5, -(2**63)], "u64", [2**64 - 1, 5, 2**63]),
    ("i32", [1, 2, 3, 4], "i8", [1, 2, 4, -4]),
    ("u8", [0, 255, 9], "u8", [255, 0, 9]),
]


def literal(value):
    return hex(bits_of("f64", float(value)))


def row(dtype, xs, other, ys, variants):
    list_of = lambda values: "{" + ", ".join(values) + "}"
    print(f'{{"{dtype}", "{other}", {list_of(hex(bits_of(dtype, x)) for x in xs)},\n'
          f" {list_of(hex(bits_of(other, y)) for y in ys)},\n {{" + ",\n  ".join(map(list_of, variants)) + "}},")


def answer_bits(op, dtype, xs, ys, ddof, omit):
    # One array, or two.
    found = answer(op, list(zip(xs, [0] * len(xs) if op in ("skew", "kurtosis") else ys)), ddof, omit)
    if op in ("dot", "weighted_sum") and not is_float(dtype):
        return hex(int(found) % 2**64)  # as wrapping has it
    return literal(nearest(found) if isinstance(found, (Fraction, int)) else found)


def main():
    print("// Made by pair_vectors.py. {dtype, dtype of y, bits of x, bits of y,")
    print("// {answers to OPS of ddof 0, the same of ddof 1 without NaN}} or, of compare, {figures, for each of RULES}}")
    for dtype, xs, other, ys in PAIRS:
        row(dtype, xs, other, ys,
            [[answer_bits(op, dtype, xs, ys, ddof, omit) for op in OPS] for ddof, omit in ((0, False), (1, True))])
    for dtype, xs, other, ys in COMPARED:
        row(dtype, xs, other, ys, [map(literal, figures(dtype, xs, other, ys, *rules)) for rules in RULES])


if __name__ == "__main__":
    main()

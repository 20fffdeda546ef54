"""A seeded corpus of requests for compare_builds.py: every partition, dtype, op, policy, source and kind of error.

Request `number` of a seed is the same on every machine: its random bits come from Python's generator, and NumPy only
computes with integers. Elements are hard ones: NaNs with payloads, infinities, both zeros, subnormals, exponents of the
whole range, sums that cancel, ties, extreme integers.
"""

import dataclasses
import math
import random

import numpy as np

import corpus_errors

# pylint: disable=no-member  # of the generated module

SIZES = {"any": ([8, 64, 500, 3000, 40000, 1 << 20], [12, 20, 28, 22, 13, 5]), "small": ([4, 40, 300], [1, 2, 1])}
MOST_STATES = 3000  # outputs whose states are asked for: each is some hundred bytes
# Of a dtype: bits, and of floats those of the mantissa.
INTEGERS = {"BOOL": 8, "I8": 8, "I16": 16, "I32": 32, "I64": 64, "U8": 8, "U16": 16, "U32": 32, "U64": 64}
FLOATS = {"F16": (16, 10), "BF16": (16, 7), "F32": (32, 23), "F64": (64, 52)}
OPS = range(1, 22)
BITWISE = range(17, 20)  # no floats
COMMON = [[1], [1, 5], [3, 4], [11, 12], [3, 4, 11, 12], [20, 5, 7, 3, 4], [1, 5, 6, 7], [8, 10], [1, 8, 9], [2]]
PRODUCT = 2


@dataclasses.dataclass
class Case:
    """Requests with all of their elements inline, which compare_builds.py may send in other ways."""

    requests: list  # several: of one session, or parts whose states are merged
    number: int = 0
    source: str = "inline"  # or stream, parts, session, resident, region
    sides: str = "inline"  # where arrays beside the elements are: inline, resident or region
    cuts: tuple = ()  # of a stream: the bytes where chunks begin; of parts: the elements where parts begin, and their end
    width: int = 0  # bytes of an element
    skew: int = 0  # of a region: bytes before the elements
    sealed: bool = True  # of a region: the server maps it, else it reads it
    merge: dict = None  # the fields of a MergeRequest besides the states
    spoiled: str = ""  # what makes the request an error, probably

    def label(self):
        """What the requests do not say."""
        sides = self.sides if any(map(corpus_errors.sides_of, self.requests)) else ""
        fields = {"source": self.source, "sides": sides, "cuts": self.cuts, "merged": self.merge, "spoiled": self.spoiled}
        if "region" in (fields["source"], fields["sides"]):
            fields |= {"skew": self.skew, "sealed": self.sealed}
        return ", ".join(f"{name} {value}" for name, value in fields.items() if value)


class Generator:
    """Makes the cases of a seed. `pb`: the generated module of reduced.proto."""

    def __init__(self, pb, seed, distribution=False):
        """`distribution`: the requests are for ops of the distribution, which older builds do not have."""
        self.pb, self.seed, self.distribution = pb, seed, distribution

    def case(self, number):
        self.random = random.Random(f"{self.seed} {number}")
        case = self.any_case()
        case.number = number
        return case

    def any_case(self):
        kind = self.pick({"one": 84, "session": 4, "merge": 12})
        if self.distribution:  # which sessions and states do not have
            kind = "one"
        if kind == "session":
            requests = [self.request(self.size("small"), "whole") for _ in range(self.random.randint(2, 8))]
            return Case(requests, "session")
        if kind == "merge":
            return self.merge()
        request = self.request(self.size("any"), self.pick({"whole": 30, "axes": 27, "segments": 15, "keys": 18, "where": 10}))
        case = Case([request], sides=self.pick({"inline": 8, "resident": 1, "region": 1}),
                    skew=self.random.choice([0, 0, 1, 2, 4, 8, 13]), sealed=self.random.random() < 0.7)
        whole = not self.partitioned(request) and not self.distribution
        case.source = self.pick({"inline": 55, "stream": 15, "parts": 10, "session": 5, "resident": 10, "region": 10} if whole else
                                {"inline": 70, "stream": 1, "session": 1, "resident": 14, "region": 14})
        if not whole and not request.return_state:
            if self.random.random() < 0.06:
                request.keep.owner = "corpus"
            elif self.random.random() < 0.06:
                request.write_to.offset = 64 * self.random.randint(0, 3)
        if case.source == "stream":
            size = len(request.inline_data)
            case.cuts = self.ascending(0, size, max(self.random.randint(0, 4), size >> 20))
        elif case.source == "parts":
            count = math.prod(request.array.shape)
            case.cuts = [0, *self.ascending(0, count, self.random.randint(1, 4)), count]
            case.width = len(request.inline_data) // max(1, count)
        if self.random.random() < 0.08:
            case.spoiled = self.random.choice(sorted(corpus_errors.SPOILERS))
            corpus_errors.SPOILERS[case.spoiled](self, request)
        return case

    # Choices.

    def pick(self, weights):
        return self.random.choices(list(weights), list(weights.values()))[0]

    def size(self, kind):
        """The most elements of an array."""
        return self.random.choices(*SIZES[kind])[0]

    def ascending(self, first, last, count):
        return sorted(self.random.randint(first, last) for _ in range(count))

    @staticmethod
    def partitioned(request):
        return any(request.HasField(field) for field in ("axes", "segments", "keys", "where"))

    def shape(self, most, dimensions):
        """So many sizes of every magnitude, of which the product is at most `most`."""
        sizes = []
        for _ in range(dimensions):
            sizes.append(max(1, min(most, round(most ** self.random.random()))))
            most //= sizes[-1]
        self.random.shuffle(sizes)
        if sizes and self.random.random() < 0.03:
            sizes[self.random.randrange(len(sizes))] = 0
        return sizes

    # Elements, as unsigned integers of the width of the dtype.

    def bits(self, width, count):
        return np.frombuffer(self.random.randbytes(count * width // 8), dtype=f"<u{width // 8}").copy()

    def below(self, limit, count):
        return self.bits(64, count) % np.uint64(limit)

    def shuffled(self, array):
        return array[np.argsort(self.bits(64, len(array)), kind="stable")]

    def elements(self, dtype, count, product=False):
        if dtype == "BOOL":
            set_ = self.bits(8, count) < self.random.choice([0, 3, 128, 250, 255])
            return np.where(set_, self.bits(8, count) | 1 if self.random.random() < 0.3 else 1, 0).astype("<u1")
        make = self.integers if dtype in INTEGERS else self.floats
        return make(dtype, count, product).astype(f"<u{(INTEGERS.get(dtype) or FLOATS[dtype][0]) // 8}")

    def integers(self, dtype, count, product):
        width = INTEGERS[dtype]
        extremes = [0, 1, (1 << width) - 1, 1 << (width - 1), (1 << (width - 1)) - 1]
        palette = lambda values: np.array(values, dtype=f"<u{width // 8}")[self.below(len(values), count)]
        kind = "units" if product and self.random.random() < 0.7 else self.pick(
            {"any": 30, "small": 25, "few": 15, "extremes": 10, "constant": 10, "ramp": 10})
        if kind == "any":
            return self.bits(width, count)
        if kind == "small":
            signed = dtype.startswith("I")
            return ((self.bits(64, count) % np.uint64(100)) - np.uint64(50 * signed)).astype(f"<u{width // 8}")
        if kind == "units":
            return palette([1] * self.random.choice([1, 20, 400]) + self.random.sample([2, 3, extremes[2]], 2))
        if kind == "few":
            return palette([self.random.getrandbits(width) for _ in range(3)] + self.random.sample(extremes, 2))
        if kind == "extremes":
            return palette(extremes)
        start = self.random.getrandbits(width)
        step = np.uint64(0 if kind == "constant" else self.random.choice([1, 3, (1 << 64) - 1]))
        return (np.uint64(start) + step * np.arange(count, dtype="<u8")).astype(f"<u{width // 8}")

    def floats(self, dtype, count, product):
        width, mantissa = FLOATS[dtype]
        unsigned = f"<u{width // 8}"
        top = (1 << (width - 1 - mantissa)) - 1  # the exponent of infinities and NaNs
        whole = lambda value: np.array(value, dtype=unsigned)
        kind = "near" if product and self.random.random() < 0.7 else self.pick(
            {"near": 30, "wide": 15, "tiny": 6, "huge": 6, "short": 12, "few": 8, "cancel": 10, "constant": 5, "zeros": 8})
        # The exponents: how many, from which one on.
        first, many = {"wide": (0, top), "tiny": (0, 3), "huge": (top - 3, 3), "cancel": (0, top)}.get(
            kind, (top // 2 - 2, self.random.choice([1, 4])))
        values = (self.bits(width, count) & whole((1 << mantissa) - 1)) | (
            (self.below(many, count).astype(unsigned) + whole(first)) << whole(mantissa))
        if self.random.random() < 0.8:
            values ^= self.bits(width, count) & whole(1 << (width - 1))
        if kind == "short":
            values &= ~whole((1 << (mantissa - min(mantissa, 3))) - 1)
        elif kind == "few" and count:
            values = values[self.below(min(count, 4), count)]
        elif kind == "constant" and count:
            values[:] = values[0]
        elif kind == "zeros":
            values &= whole((1 << (width - 1)) if self.random.random() < 0.6 else 0)
            if self.random.random() < 0.3:
                values[:] = 1 << (width - 1)
        elif kind == "cancel":
            half = values[: count // 2]
            rest = self.below(1 << min(width, 63), count - 2 * len(half)).astype(unsigned) >> whole(2)
            values = self.shuffled(np.concatenate([half, half ^ whole(1 << (width - 1)), rest]))
        if self.random.random() < 0.35:
            sign, infinity = 1 << (width - 1), top << mantissa
            nans = [infinity | 1 << (mantissa - 1), sign | infinity | 1 << (mantissa - 1), infinity | 1,
                    sign | infinity | self.random.randrange(1, 1 << mantissa)]
            special = self.random.choice(
                [nans, nans, [infinity], [sign | infinity], [infinity, sign | infinity], [0, sign], [1, sign | 1], [infinity - 1],
                 [infinity, *nans]])
            places = self.below(max(1, count), self.random.choice([1, 2, 5, 1 + count // 10, 2 * count]) if count else 0)
            values[places] = np.array(special, dtype=unsigned)[self.below(len(special), len(places))]
        return values

    # Requests.

    def array(self, dtype, shape, elements, into):
        """Fills in the spec and the elements of a request or of an array beside one."""
        into.array.dtype = self.pb.DType.Value(f"DTYPE_{dtype}")
        into.array.shape.extend(shape)
        into.inline_data = elements.tobytes()

    def ops(self, dtype):
        allowed = [op for op in OPS if dtype in INTEGERS or op not in BITWISE]
        kind = self.pick({"some": 60, "common": 30, "all": 10})
        if kind == "common":
            return self.random.choice(COMMON)
        if kind == "all":
            return [op for op in allowed if op != PRODUCT or self.random.random() < 0.5]
        return [self.random.choice(allowed) for _ in range(self.random.randint(1, 4))]

    def calls(self, dtype, request):
        """Ops of the distribution, most of them right."""
        names = [name for name in self.pb.Op.keys() if self.pb.Op.Value(name) >= self.pb.OP_MEDIAN]
        for name in self.random.choices(names, k=self.random.randint(1, 3)):
            call = request.calls.add(op=self.pb.Op.Value(name))
            if name in ("OP_MEDIAN", "OP_QUANTILE"):
                call.quantile.method = self.random.randint(0, 5)
                qs = [0, 1, 0.5, 0.25, 1 / 3, self.random.random()]
                call.quantile.q.extend(self.random.choices(qs, k=self.random.choice([1, 2, 3, 9])) if name == "OP_QUANTILE" else [])
            elif name == "OP_HISTOGRAM":
                low = self.random.choice([-100, -1, 0, 0.5])
                if self.random.random() < 0.5:
                    call.histogram.uniform.low, call.histogram.uniform.high = low, low + self.random.choice([1, 7, 300])
                    call.histogram.uniform.bins = self.random.choice([1, 2, 10, 256])
                else:
                    call.histogram.edges.edge.extend(sorted({low, *(self.random.uniform(-10, 10) for _ in range(4))}))
            elif name.endswith("K"):
                call.top.k = self.random.choice([1, 2, 5, 100])
        if self.random.random() < 0.3:
            request.calls.add(op=self.random.choice([1, 3, 5, 20]))

    def options(self, request, whole):
        options = request.options
        options.engine = self.random.choice([0, 0, 1])
        options.precision = self.random.choice([0, 0, 0, 1, 2])
        options.nan_policy = self.random.choice([0, 1, 2, 2])
        options.overflow_policy = self.random.choice([0, 1, 2, 2, 3])
        options.ddof = self.random.choice([0, 0, 0, 1, 1, 2, 50])
        options.device = self.random.choice(["", "", "", "cpu"])
        if whole and self.random.random() < 0.12:
            options.pipeline = self.random.choice(["tiled_simd", "sequential", "recursive_pairs"])

    def question(self, dtype, request, whole):
        if self.distribution:
            self.calls(dtype, request)
        else:
            request.ops.extend(self.ops(dtype))
        self.options(request, whole)
        if not whole or self.distribution:
            request.empty = self.random.choice([0, 1, 2, 2])

    def request(self, most, partition):
        request = self.pb.ReduceRequest()
        dtype = self.random.choice([*INTEGERS, *FLOATS, *FLOATS])
        self.question(dtype, request, partition == "whole")
        if self.random.random() < 0.04:
            most = 0
        dimensions = {"whole": [0, 1, 1, 1, 1, 2, 3], "where": [0, 1, 1, 2, 3], "axes": [0, 1, 2, 2, 2, 3, 3, 4, 5, 8]}.get(
            partition, [1, 1, 1, 2, 2, 3])
        shape = self.shape(most, self.random.choice(dimensions)) if most else [0]
        if partition == "keys" and shape[0] < 20 and self.random.random() < 0.8:
            shape.sort(reverse=True)
        self.array(dtype, shape, self.elements(dtype, math.prod(shape), PRODUCT in request.ops), request)
        if partition == "axes":
            axes = [axis - self.random.choice([0, 0, len(shape)]) for axis in range(len(shape)) if self.random.random() < 0.5]
            request.axes.axis.extend(self.random.sample(axes, len(axes)))
            request.axes.keepdims = self.random.random() < 0.3
        elif partition == "segments":
            self.segments(request.segments, shape[0])
        elif partition == "keys":
            self.keys(request.keys, shape[0])
        if partition == "where" or (partition != "whole" and self.random.random() < 0.3):
            self.mask(request.where, shape)
        if partition != "segments" and self.random.random() < 0.2 and most <= MOST_STATES:
            request.return_state = True
            request.omit_results = self.random.random() < 0.3
        return request

    def segments(self, segments, rows):
        many = self.random.choice([0, 1, 2, 5, 1 + rows // 40, 1 + rows // 4, rows, 2 * rows])
        kind = self.pick({"random": 6, "even": 3, "skewed": 2})
        if kind == "even":
            bounds = [rows * i // max(1, many) for i in range(many + 1)]
        elif kind == "skewed":
            bounds = sorted(min(rows, self.random.randint(0, 5 + rows // 50)) for _ in range(many)) + [rows]
        else:
            bounds = self.ascending(0, rows, many + 1)
        width = self.random.choice([32, 64])
        if many and self.random.random() < 0.4:
            bounds[0], bounds[-1] = 0, rows
            bounds = [after - before for before, after in zip(bounds, bounds[1:])]
            into = segments.lengths
        else:
            into = segments.offsets
        self.array(f"I{width}", [len(bounds)], np.array(bounds, dtype=f"<i{width // 8}"), into)

    def keys(self, keys, rows):
        dtype = self.random.choice([name for name in INTEGERS if name != "BOOL"])
        width = INTEGERS[dtype]
        most = 1 << (width - dtype.startswith("I"))
        groups = min(most, self.random.choice([1, 2, 5, 30, 200, 1 + rows // 3, 1 + rows * 4]))
        values = self.below(groups, rows)
        if self.random.random() < 0.3:  # few of them often
            values = np.minimum(values, self.below(groups, rows) % np.uint64(3))
        if self.random.random() < 0.2:
            values = np.sort(values)
        if self.random.random() < 0.5:
            keys.groups = groups
            keys.outside = self.random.choice([0, 1, 2, 2])
            if rows and self.random.random() < 0.4:
                wrong = self.random.choice([groups, most - 1, (1 << 64) - 1])
                values[self.below(rows, self.random.randint(1, 3))] = np.uint64(wrong)
        elif self.random.random() < 0.4:
            values = values * np.uint64(self.random.getrandbits(64) | 1)  # far apart
        elif self.random.random() < 0.4:
            values = values + np.uint64(self.random.getrandbits(64))
        self.array(dtype, [rows], values.astype(f"<u{width // 8}"), keys.keys)

    def mask(self, mask, shape):
        count = math.prod(shape)
        density = self.random.choice([0, 2, 25, 128, 250, 256])
        kept = self.bits(8, count) < density
        if self.random.random() < 0.2:
            kept = np.sort(kept)
        if self.random.random() < 0.5:
            self.array("BOOL", shape, np.where(kept, self.random.choice([1, 1, 2, 255]), 0).astype("<u1"), mask.elements)
            return
        mask.first_bit = self.random.choice([0, 0, 1, 7, 8, 13])
        bits = np.concatenate([self.bits(8, mask.first_bit) & 1, kept.astype("<u1"), self.bits(8, 5) & 1])
        packed = np.packbits(bits, bitorder="little")
        self.array("U8", [len(packed)], packed, mask.bits)

    def merge(self):
        """The parts of an array, along its first dimension, whose states are merged; some parts do not go together."""
        partition = self.pick({"whole": 5, "axes": 3, "keys": 3, "where": 2})
        dtype = self.random.choice([*INTEGERS, *FLOATS, *FLOATS])
        question = self.pb.ReduceRequest(return_state=True, omit_results=self.random.random() < 0.4)
        self.question(dtype, question, partition == "whole")
        inner = self.shape(20, 1) if partition != "whole" and self.random.random() < 0.5 else []
        requests = []
        for _ in range(self.random.randint(1, 4)):
            request = self.pb.ReduceRequest()
            request.CopyFrom(question)
            shape = [self.random.choice([0, 1, 2, 30, self.size("small")]), *inner]
            self.array(dtype, shape, self.elements(dtype, math.prod(shape), PRODUCT in request.ops), request)
            if partition == "axes":
                request.axes.axis.append(0)
            elif partition == "keys":
                if not requests:
                    groups = self.random.choice([0, 3, 40])
                request.keys.groups = groups
                keys = self.below(groups or 50, shape[0])
                self.array("I32", shape[:1], keys.astype("<u4"), request.keys.keys)
            if partition == "where" or (partition != "whole" and self.random.random() < 0.3):
                self.mask(request.where, shape)
            if self.random.random() < 0.03:
                corpus_errors.ask_otherwise(self, request)
            requests.append(request)
        merge = {"return_state": self.random.random() < 0.6, "omit_results": self.random.random() < 0.2}
        return Case(requests, merge=merge)

"""Requests that are errors, for corpus.py: what can be wrong with one."""


def assign(path, *values):
    """Sets a field, `a.b`, to one of the values."""

    def spoil(generator, request):
        *way, field = path.split(".")
        for step in way:
            request = getattr(request, step)
        value = generator.random.choice(values)
        if isinstance(value, list):
            getattr(request, field)[:] = value
        else:
            setattr(request, field, value)

    return spoil


def cut_elements(generator, request):
    request.inline_data = request.inline_data[: -generator.random.choice([1, 2, 8])] or b"12345"


def sides_of(request):
    """The arrays beside the elements that the request has."""
    sides = []
    for partition, fields in {"segments": ("offsets", "lengths"), "keys": ("keys",), "where": ("elements", "bits")}.items():
        if request.HasField(partition):
            message = getattr(request, partition)
            sides += [getattr(message, field) for field in fields if message.HasField(field)]
    return sides


def cut_sides(generator, request):
    for side in sides_of(request):
        if side.array.shape:
            size = len(side.inline_data) // max(1, side.array.shape[0])
            less = generator.random.choice([0, max(0, side.array.shape[0] - 1)])
            side.inline_data = side.inline_data[: less * size]
            side.array.shape[0] = less


def scramble_sides(generator, request):
    for side in sides_of(request):
        if side.inline_data:
            at = generator.random.randrange(len(side.inline_data))
            side.inline_data = side.inline_data[:at] + b"\xff" + side.inline_data[at + 1 :]


def retype_sides(generator, request):
    for side in sides_of(request):
        side.array.dtype = generator.random.choice([0, 1, 3, 4, 6, 12, 13, 77])


def add_partition(generator, request):
    if request.HasField("axes"):
        generator.segments(request.segments, 10)
    else:
        request.axes.axis.append(0)


def unknown_policy(generator, request):
    field = generator.random.choice(["precision", "nan_policy", "overflow_policy"])
    setattr(request.options, field, generator.random.choice([7, 99]))


def ask_otherwise(generator, request):
    """Makes the state of a part one that does not go with those of the others."""
    changes = [("options.ddof", 3), ("options.nan_policy", 1, 2), ("empty", 2), ("ops", [1, 1]), ("array.dtype", 12)]
    assign(*generator.random.choice(changes))(generator, request)


SPOILERS = {
    "another partition": add_partition,
    "axes": assign("axes.axis", [5], [-7], [0, 0], [0, -1], [2147483647]),
    "bytes": cut_elements,
    "count": assign("array.shape", [3], [-1], [2, -5], [1 << 41], [1 << 40, 1 << 40], [0, 1 << 62, 8], [1] * 65),
    "ddof": assign("options.ddof", -1),
    "device": assign("options.device", "cuda:0", "tpu", "x" * 70),
    "dtype": assign("array.dtype", 0, 14, 99),
    "empty": assign("empty", 1, 2, 9),
    "engine": assign("options.engine", 2, 9),
    "first bit": assign("where.first_bit", -1, 1, 1 << 62),
    "groups": assign("keys.groups", -1, 1, 3, 1 << 33, (1 << 63) - 1),
    "keep": assign("keep.owner", "corpus"),
    "no source": lambda generator, request: request.ClearField("inline_data"),
    "no states": assign("omit_results", True),
    "ops": assign("ops", [], [0], [92], [1] * 33, [17, 1], [3, 4], [11]),
    "outside": assign("keys.outside", 0, 1, 2, 7),
    "pipeline": assign("options.pipeline", "single_pass", "nonsense", "tiled_simd", "sequential", "y" * 70, "\n"),
    "policies": unknown_policy,
    "block size": assign("options.block_size", 128, 100, -1),
    "scrambled sides": scramble_sides,
    "short sides": cut_sides,
    "states": assign("return_state", True),
    "types of sides": retype_sides,
    "unaligned": assign("write_to.offset", 1, -64, 1 << 40),
    "where": lambda generator, request: request.where.SetInParent(),
    "segments": lambda generator, request: request.segments.SetInParent(),
}

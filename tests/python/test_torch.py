"""reduced.torch: fingerprints are the same however tensors are cut, and wherever they are, and change with the weights."""

import itertools
import pickle

import ml_dtypes
import numpy as np
import pytest
import reduced
import reduced.torch
from reduced.torch import Fingerprint, fingerprint, gradient_norm, statistics


class Tensor:
    """What is used of a tensor of PyTorch, with its memory in a DTensor's shard or on a device."""

    def __init__(self, array, *, on_gpu=False, local=None):
        self._array, self._on_gpu, self._local = array, on_gpu, local
        self.shape, self.dtype = array.shape, f"torch.{array.dtype}"

    def detach(self):
        return self

    def cpu(self):
        return Tensor(self._array)

    def to_local(self):
        return self if self._local is None else Tensor(self._local, on_gpu=self._on_gpu)

    def __dlpack_device__(self):
        return (2 if self._on_gpu else 1, 0)

    def __dlpack__(self, **options):
        array = self._array.view(np.uint16) if self._array.dtype == ml_dtypes.bfloat16 else self._array
        return array.__dlpack__(**options)


class Module:
    def __init__(self, tensors):
        self._tensors = tensors

    def state_dict(self):
        return self._tensors


def weights():
    random = np.random.default_rng(20)
    return {
        "embed.weight": (random.normal(size=(300, 20)) * 10.0 ** random.integers(-30, 30, (300, 20))).astype("f4"),
        "layer.weight": random.normal(size=(64, 48)).astype(ml_dtypes.bfloat16),
        "layer.bias": random.normal(size=48).astype("f2"),
        "norm.scale": random.normal(size=7) * 1e150,
        "norm.steps": np.array(12345),
        "norm.large": random.integers(-(2**62), 2**62, 1001),
        "mask": random.integers(0, 2, (5, 5)) == 1,
        "nothing": np.empty((0, 4), "f4"),
    }


def test_the_same_wherever_they_are(server):
    arrays = weights()
    whole = fingerprint(arrays)
    local = reduced.connect("local:")
    assert list(whole) == list(arrays)
    for name, array in arrays.items():
        assert whole[name] == (reduced._arrays.dtype_name(array.dtype), array.shape, local.fingerprint(array), 0)
    for other in (
        {name: array.copy(order="F") for name, array in arrays.items()},
        dict(reversed(arrays.items())),
        {name: Tensor(array) for name, array in arrays.items() if array.dtype != bool} | {"mask": arrays["mask"]},
        {name: Tensor(array, on_gpu=True) for name, array in arrays.items() if array.dtype != bool} | {"mask": arrays["mask"]},
    ):
        assert fingerprint(other) == whole == fingerprint(Module(other)) and not whole.differences(fingerprint(other))
        assert fingerprint(other).hexdigest() == whole.hexdigest()
    assert fingerprint(arrays, server=server.unix) == whole == pickle.loads(pickle.dumps(whole))
    assert whole != {} and f"layer.bias    f2 (48,), {whole['layer.bias'].fingerprint}".replace("f2", "f16") in repr(whole)
    assert len({whole, fingerprint(arrays)}) == 1


def test_one_rank_has_all_and_the_others_nothing():
    for shape in ((6,), (1,), (3, 2), (0,), (0, 3)):
        array = np.arange(np.prod(shape), dtype="f4").reshape(shape)
        of_none = [fingerprint({"a": array[len(array):]}, places={"a": (shape, (len(array), *[0] * (array.ndim - 1)))}) for _ in range(2)]
        of_all = fingerprint({"a": array}, places={"a": (shape, (0,) * array.ndim)})
        for parts in ([of_all, *of_none], [*of_none, of_all], [Fingerprint.merge(of_none), of_all]):
            assert Fingerprint.merge(parts) == fingerprint({"a": array}) and Fingerprint.merge(parts)["a"].missing == 0
        assert Fingerprint.merge(of_none)["a"].missing == array.size


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_the_same_under_any_sharding(ranks, server):
    arrays = weights()
    whole = fingerprint(arrays)
    for axis in (0, -1):
        shards = []
        for rank in range(ranks):
            shard, places = {}, {}
            for name, array in arrays.items():
                if array.ndim == 0:
                    shard[name] = array  # each rank has it
                    continue
                begin, end = (array.shape[axis] * each // ranks for each in (rank, rank + 1))
                part = array.take(range(begin, end), axis)
                shard[name] = Tensor(array, local=part) if array.dtype != bool else part
                places[name] = array.shape, tuple(begin if number == axis % array.ndim else 0 for number in range(array.ndim))
            shards.append(fingerprint(shard, places=places, server=(server.unix, "local:")[rank % 2]))
        for order in itertools.islice(itertools.permutations(shards), 3):
            assert Fingerprint.merge(pickle.loads(pickle.dumps(order))) == whole
        twice = Fingerprint.merge([*shards, *shards])  # replicas
        assert twice == whole and twice.hexdigest() == whole.hexdigest()
        if ranks > 1:
            some = Fingerprint.merge(shards[1:])
            assert some != whole and some["embed.weight"].missing == arrays["embed.weight"].size - sum(
                np.prod(where.shape) for where in some._parts["embed.weight"])
            assert "without" in repr(some)
            with pytest.raises(ValueError, match="parts: got embed.weight without"):
                some.hexdigest()
    by_layer = [fingerprint({name: array}) for name, array in arrays.items()]  # a pipeline's stages
    assert Fingerprint.merge(by_layer) == whole


def test_changes_are_seen():
    whole = fingerprint(weights())
    for name, changed in [("embed.weight", -0.0), ("layer.weight", 1.0), ("norm.scale", np.nan), ("norm.large", 7), ("mask", None)]:
        arrays = weights()
        flat = arrays[name].reshape(-1)
        flat[3] = changed if changed is not None else not flat[3]
        assert whole.differences(fingerprint(arrays)) == [name]
    arrays = weights()
    arrays["layer.bias"] = arrays["layer.bias"].astype("f4")  # no value changes
    arrays["norm.scale"] = arrays["norm.scale"].reshape(7, 1)
    arrays["embed.weight"][[3, 200]] = arrays["embed.weight"][[200, 3]]
    arrays["norm.large"] = arrays["norm.large"].view("u8")
    del arrays["mask"]
    arrays["new"] = np.ones(3)
    assert whole.differences(fingerprint(arrays)) == ["embed.weight", "layer.bias", "norm.scale", "norm.large", "mask", "new"]
    # Two tensors of equal content that changed their names, and two of other content that did.
    swapped = {"a": np.ones(2), "b": np.ones(2), "c": np.zeros(2)}
    assert fingerprint({"b": swapped["a"], "a": swapped["b"], "c": swapped["c"]}) == fingerprint(swapped)
    assert fingerprint({"a": swapped["a"], "b": swapped["c"], "c": swapped["b"]}).differences(fingerprint(swapped)) == ["b", "c"]


def test_fp8():
    x = np.arange(12, dtype="u1").reshape(3, 4)
    found = fingerprint({"a": x.view(ml_dtypes.float8_e4m3fn), "b": x.view(ml_dtypes.float8_e5m2), "c": x})
    assert [found[name].dtype for name in "abc"] == ["f8_e4m3fn", "f8_e5m2", "u8"]
    assert len({each.fingerprint for each in found.values()}) == 1 and len(set(found.values())) == 3
    halves = [fingerprint({"a": x[:, i:i + 2].view(ml_dtypes.float8_e4m3fn)}, places={"a": ((3, 4), (0, i))}) for i in (0, 2)]
    assert Fingerprint.merge(halves)["a"] == found["a"]
    # One that the service lacks, by its bytes.
    (other,) = fingerprint({"a": x.view(ml_dtypes.float8_e4m3fnuz)}).values()
    assert other == found["c"]._replace(dtype="f8_e4m3fnuz")


def test_what_is_refused():
    with pytest.raises(TypeError, match="dtype: got complex128") as refused:
        fingerprint({"a": np.ones(2), "b": np.ones(2, complex)})
    assert refused.value.__notes__ == ["of b"]
    with pytest.raises(TypeError, match="module: got list; allowed: what has state_dict"):
        fingerprint([np.ones(2)])
    with pytest.raises(ValueError, match="places: got 'b', which is no tensor; allowed: the names of tensors"):
        fingerprint({"a": np.ones(2)}, places={"b": ((2,), (0,))})
    with pytest.raises(ValueError, match=r"places: got none for a part of \(2,\) of a tensor of \(4,\); allowed: its place"):
        fingerprint({"a": Tensor(np.ones(4), local=np.ones(2))})
    with pytest.raises(reduced.InvalidArgumentError, match=r"fingerprint.offset\[0\]: got 3 with a part of 2"):
        fingerprint({"a": np.ones(2)}, places={"a": ((4,), (3,))})

    def merge(*parts):
        return Fingerprint.merge([fingerprint({"a": array}, places=place and {"a": place}) for array, place in parts])

    ones = np.ones(2)
    with pytest.raises(reduced.InvalidArgumentError, match=r"parts: got a of f32 \(2,\) and of f64 \(2,\); allowed: one dtype and shape"):
        merge((ones[:1], ((2,), (0,))), (np.ones(1, "f4"), ((2,), (1,))))
    with pytest.raises(reduced.InvalidArgumentError, match=r"parts: got a of f64 \(2,\) and of f64 \(4,\); allowed: one dtype and shape"):
        merge((ones, None), (ones, ((4,), (2,))))
    with pytest.raises(reduced.InvalidArgumentError, match=r"parts: got two of a at \(0,\) of \(2,\) that differ"):
        merge((ones, None), (np.zeros(2), None))
    with pytest.raises(reduced.InvalidArgumentError, match="parts: got a with 1 elements more than"):
        merge((ones, ((3,), (0,))), (ones, ((3,), (1,))))
    assert list(fingerprint({"layer._extra_state": object(), "_extra_state": None, "a": np.ones(1)})) == ["a"]


def test_statistics(server):
    arrays = weights()
    arrays["with NaN"] = np.array([1, np.nan, 3], "f4")
    names = ("count", "nan_count", "min", "max", "mean", "std", "l2")
    local = reduced.connect("local:")
    tensors = {name: Tensor(array, on_gpu=name < "m") for name, array in arrays.items() if array.dtype != bool}
    on_gpu = Module({"_extra_state": None, **arrays, **tensors})
    for module, address in ((on_gpu, "local:"), (arrays, "local:"), (arrays, server.unix)):
        found = statistics(module, server=address)
        assert list(found) == list(arrays)
        for name, array in arrays.items():
            expected = local.reduce(array, names, nan="omit")
            np.testing.assert_equal({op: found[name][op] for op in expected}, dict(expected), name)
            assert [op for op in names if found[name][op] is None] == list(expected.errors)
    rows = repr(found).splitlines()
    assert rows[0].split() == list(names) and len(rows) == 1 + len(arrays) and len(set(map(len, rows))) == 1
    assert rows[-1].split() == ["with", "NaN", "2", "1", "1.0", "3.0", "2.0", "1.0", "3.1622776601683795"]
    assert rows[-2].split() == ["nothing", "0", "0", "-", "-", "nan", "nan", "0.0"]
    assert found["nothing"].min is None and statistics({}) == {}
    with pytest.raises(TypeError, match="dtype: got complex128") as refused:
        statistics({"a": np.ones(2, complex)})
    assert refused.value.__notes__ == ["of a"]


class Parameter:
    def __init__(self, grad):
        self.grad = grad


def test_gradient_norm(server):
    random = np.random.default_rng(9)
    gradients = [(random.normal(size=(7, size)) * 10.0 ** random.integers(-20, 20, (7, size))).astype(dtype)
                 for size, dtype in ((1, "f8"), (300, "f4"), (5, ml_dtypes.bfloat16), (60_000, "f4"), (0, "f4"))]
    gradients.append(random.normal(size=40).astype("f2"))
    norm = float(reduced.connect("local:").l2(np.concatenate([each.astype("f8").reshape(-1) for each in gradients])))
    parameters = [Parameter(None), *map(Parameter, gradients)]
    for address in ("local:", server.unix):
        assert gradient_norm(parameters, server=address) == norm == gradient_norm(reversed(parameters), server=address)
        assert gradient_norm([Parameter(Tensor(each)) for each in gradients], server=address) == norm
    assert gradient_norm(Parameter(np.array([3.0, -4.0]))) == 5 and gradient_norm([Parameter(None)]) == 0 == gradient_norm([])
    assert np.isnan(gradient_norm([Parameter(np.array([1.0])), Parameter(np.array([np.nan], "f4"))]))
    assert gradient_norm([Parameter(np.array([3 * 2.0**700])), Parameter(np.array([2.0**702]))]) == 5 * 2.0**700  # no square overflows

    class Model:
        def parameters(self):
            return iter(parameters)

    assert gradient_norm(Model()) == norm
    # Ranks, of which each has a part, and one has none.
    states = []
    for part in (parameters[:2], parameters[2:4], parameters[4:], []):
        gradient_norm(part, gather=lambda state: [states.append(pickle.loads(pickle.dumps(state))), state][1:])
    assert all(gradient_norm(part, gather=lambda state: states) == norm for part in (parameters[:2], []))
    shard = Tensor(np.ones(4), local=np.ones(2))
    shard.placements = ()
    with pytest.raises(ValueError, match="gather: got none for a DTensor"):
        gradient_norm([Parameter(shard)])
    assert gradient_norm([Parameter(shard)], gather=lambda state: [state, state]) == 2
    with pytest.raises(TypeError, match="parameters: got ndarray; allowed: a module, a parameter, or an iterable of parameters"):
        gradient_norm([np.ones(3)])


def test_torch():
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)).to(torch.bfloat16)
    whole = fingerprint(model)
    assert list(whole) == list(model.state_dict()) and whole["0.weight"].dtype == "bf16"
    assert fingerprint(model.to(memory_format=torch.channels_last)) == whole
    halves = []
    for half in range(2):
        shard, places = {}, {}
        for name, each in model.state_dict().items():
            flat = torch.atleast_1d(each)
            shard[name] = torch.tensor_split(flat, 2)[half]
            places[name] = flat.shape, (half * -(-len(flat) // 2), *[0] * (flat.ndim - 1))
        halves.append(fingerprint(shard, places=places))
    merged = Fingerprint.merge(halves)
    assert all(merged[name].fingerprint == each.fingerprint for name, each in whole.items())
    fp8 = torch.arange(8, dtype=torch.float32).to(torch.float8_e4m3fn)
    assert fingerprint({"a": fp8})["a"].dtype == "f8_e4m3fn"
    with torch.no_grad():
        model[0].weight.view(-1)[5] += 1
    assert whole.differences(fingerprint(model)) == ["0.weight"]
    if torch.cuda.is_available():
        before = fingerprint(model)
        assert fingerprint(model.cuda()) == before

"""reduced.torch: fingerprints are the same however tensors are cut or lie, and change with the weights."""

import itertools
import pickle

import ml_dtypes
import numpy as np
import pytest
import reduced
import reduced.torch
from reduced.torch import Fingerprint, fingerprint


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


def test_the_same_however_they_lie(server):
    arrays = weights()
    whole = fingerprint(arrays)
    assert list(whole) == list(arrays) and whole["norm.steps"] == ("i64", 1, 12345, 12345**2, 0)
    assert whole["mask"].sum == arrays["mask"].sum() and whole["layer.weight"].dtype == "bf16"
    assert whole["nothing"] == ("f32", 0, 0.0, 0.0, 0)
    for other in (
        {name: np.asfortranarray(array) for name, array in arrays.items()},
        {name: array.T[..., ::-1] if array.ndim else array for name, array in arrays.items()},
        {name: array.ravel() for name, array in reversed(arrays.items())},
        {name: Tensor(array) for name, array in arrays.items() if array.dtype != bool} | {"mask": arrays["mask"]},
        {name: Tensor(array, on_gpu=True) for name, array in arrays.items() if array.dtype != bool} | {"mask": arrays["mask"]},
    ):
        assert fingerprint(other) == whole == fingerprint(Module(other)) and not whole.differences(fingerprint(other))
        assert fingerprint(other).hexdigest() == whole.hexdigest()
    assert fingerprint(arrays, server=server.unix) == whole == pickle.loads(pickle.dumps(whole))
    assert whole != {} and "layer.bias    float16, 48 elements, sum " in repr(whole)


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_the_same_under_any_sharding(ranks):
    arrays = weights()
    whole = fingerprint(arrays)
    for axis in (0, -1):
        cuts = {name: np.array_split(np.atleast_1d(array), ranks, axis=axis) for name, array in arrays.items()}
        shards = [fingerprint({name: Tensor(arrays[name], local=cut[rank]) if array.dtype != bool else cut[rank]
                               for (name, cut), array in zip(cuts.items(), arrays.values())}) for rank in range(ranks)]
        for order in itertools.islice(itertools.permutations(shards), 3):
            assert Fingerprint.merge(pickle.loads(pickle.dumps(order))) == whole
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
    del arrays["mask"]
    arrays["new"] = np.ones(3)
    assert whole.differences(fingerprint(arrays)) == ["layer.bias", "mask", "new"]
    nans = fingerprint({"x": np.array([1.0, np.nan, np.inf])})
    assert nans == fingerprint({"x": np.array([np.inf, np.nan, 1.0])}) and nans["x"].nan_count == 1 and ", 1 NaN" in repr(nans)


def test_what_is_refused():
    with pytest.raises(TypeError, match="dtype: got complex128") as refused:
        fingerprint({"a": np.ones(2), "b": np.ones(2, complex)})
    assert refused.value.__notes__ == ["of b"]
    with pytest.raises(TypeError, match="module: got list; allowed: what has state_dict"):
        fingerprint([np.ones(2)])
    with pytest.raises(reduced.InvalidArgumentError, match="parts: got a of f64 and of f32; allowed: one dtype"):
        Fingerprint.merge([fingerprint({"a": np.ones(2)}), fingerprint({"a": np.ones(2, "f4")})])
    assert list(fingerprint({"layer._extra_state": object(), "_extra_state": None, "a": np.ones(1)})) == ["a"]


def test_torch():
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)).to(torch.bfloat16)
    whole = fingerprint(model)
    assert list(whole) == list(model.state_dict()) and whole["0.weight"].dtype == "bf16"
    assert fingerprint(model.to(memory_format=torch.channels_last)) == whole
    halves = [{name: part for name, part in zip(model.state_dict(), cut)}
              for cut in zip(*(torch.tensor_split(torch.atleast_1d(each), 2) for each in model.state_dict().values()))]
    assert Fingerprint.merge(map(fingerprint, halves)) == whole
    with torch.no_grad():
        model[0].weight.view(-1)[5] += 1
    assert whole.differences(fingerprint(model)) == ["0.weight"]
    if torch.cuda.is_available():
        before = fingerprint(model)
        assert fingerprint(model.cuda()) == before

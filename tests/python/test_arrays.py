"""What can be reduced, how its memory is read, and what is refused."""

import array as arrays
import contextlib
import gc
import itertools
import math
import subprocess
import sys
import weakref

import ml_dtypes
import numpy as np
import pytest
import reduced
from reduced._arrays import elements


def shares(array):
    """Whether the memory of an array is read as it is."""
    return np.shares_memory(np.asarray(elements(array, ordered=False).buffer), array)


def test_what_has_the_buffer_protocol(client):
    for given in (arrays.array("d", [1, 2]), memoryview(np.array([1.0, 2.0])), np.array([1, 2], "f4").data):
        assert client.sum(given) == 3
    assert client.sum(memoryview(b"\x01\x02")) == 3 and client.sum(bytearray(b"\x01\x02")) == 3


def test_sequences_and_scalars(client):
    assert client.sum([[1, 2], [3, 4]]) == 10
    assert client.sum(5) == 5 and client.sum(np.float32(2.5)) == 2.5
    assert client.sum([]) == 0


def test_orders_of_memory(client):
    array = np.arange(24.0).reshape(2, 3, 4)
    for view in (np.asfortranarray(array), array.transpose(1, 2, 0), array[::-1], array[:, ::-1, ::-1], array.T):
        assert shares(view)
        result = client.reduce(view, ["sum", "argmax", "max"])
        assert result.sum == 276 and result.argmax == view.argmax() and result.max == 23
        assert client.sum(view) == 276 and client.argmin(view) == view.argmin()
    for view in (array[:, ::2], array[..., 1], np.broadcast_to(array[0], (5, 3, 4)), array[::-1, :, 1:3]):
        assert not shares(view)
        result = client.reduce(view, ["sum", "argmax", "argmin"])
        assert (result.sum, result.argmax, result.argmin, result.size) == (view.sum(), view.argmax(), view.argmin(), view.size)


def test_dimensions_of_nothing(client):
    assert client.sum(np.empty((0, 3))) == 0 and client.prod(np.empty((3, 0), "i4", order="F")) == 1
    assert client.sum(np.array(7.0)) == 7
    with pytest.raises(ValueError, match="min"):
        client.min(np.empty((0, 3)))


def test_alignment_and_byte_order(client):
    raw = np.zeros(8 * 100 + 1, np.uint8)
    unaligned = raw[1:].view("f8")
    unaligned[:] = 0.5
    assert client.sum(unaligned) == 50
    assert client.reduce(np.array([1, 2, 258], ">i4"), "sum,argmax").sum == 261
    assert client.sum(np.array([1.5], ">f2")) == 1.5


def test_subclasses_and_memory_maps(client, tmp_path):
    np.save(tmp_path / "a.npy", np.arange(1000.0))
    assert client.sum(np.load(tmp_path / "a.npy", mmap_mode="r")) == 499500
    records = np.zeros(4, [("a", "i4"), ("b", "f8")])
    records["b"] = 2
    assert client.sum(records["b"]) == 8


class Exported:
    """An array that has nothing but DLPack."""

    def __init__(self, array, dtype=None):
        self._array = array
        self.dtype = dtype or array.dtype
        self.shape = array.shape

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def test_dlpack(client):
    assert client.sum(Exported(np.array([1.0, 2.0]))) == 3
    assert client.argmax(Exported(np.arange(6).reshape(2, 3).T)) == 5


def test_bfloat16(client):
    array = np.array([1.5, -2, 0.0078125], ml_dtypes.bfloat16)
    result = client.reduce(array, "sum,min,argmin")
    assert result.sum == -0.4921875 and result.min == -2 and result.argmin == 1
    assert client.sum(np.asfortranarray(np.ones((3, 4), ml_dtypes.bfloat16))) == 12
    assert client.sum(np.ones((3, 4), ml_dtypes.bfloat16)[:, ::2]) == 6
    # As PyTorch's tensors: a bfloat16 that NumPy cannot import.
    assert client.sum(Exported(array.view(np.uint16), "torch.bfloat16")) == -0.4921875
    square = np.arange(12, dtype=ml_dtypes.bfloat16).reshape(3, 4).view(np.uint16)
    assert client.argmax(Exported(square.T, "torch.bfloat16")) == 11
    assert client.reduce(Exported(square[:, 1:3], "torch.bfloat16"), "sum,argmax").sum == 33
    assert client.max(Exported(square[1, 1:2].reshape(()), "torch.bfloat16")) == 5


class OnDevice:
    def __init__(self, kind):
        self._kind = kind

    def __dlpack__(self, **_):
        raise AssertionError("its memory cannot be read here")

    def __dlpack_device__(self):
        return (self._kind, 0)


def test_what_is_refused(client):
    class Cuda:
        __cuda_array_interface__ = {"shape": (1,), "typestr": "<f4", "data": (1, False), "version": 3}

    for given, message in [
        (np.zeros(2, complex), "dtype: got complex128; allowed: bool, int8"), (np.array(["a"]), "dtype: got <U1"),
        (np.array([object()]), "dtype: got object"), ([1, None], "dtype: got object"), (np.zeros(2, "M8[s]"), "op sum: got datetime64"),
        (np.zeros(2, np.longdouble), "dtype: got "), (np.zeros(2, [("a", "i4")]), "dtype: got "),
        (OnDevice(13), "array: got CUDA's managed memory"),
        (OnDevice(10), "array: got memory of a ROCm device"), (OnDevice(99), "another device"),
    ]:
        with pytest.raises(TypeError, match=message):
            client.sum(given)
    with pytest.raises((TypeError, reduced.Error), match="CUDA"):  # test_cuda.py and test_gpu.py have what is reduced
        client.sum(Cuda())
    for bad, message in [
        ({"nan": "maybe"}, '^nan: got "maybe"; allowed: propagate, omit'), ({"ddof": -1}, "ddof: got -1"),
        ({"engine": "tpu"}, 'engine: got "tpu"'), ({"pipeline": "none"}, "pipeline"), ({"precision": "f16"}, 'precision: got "f16"'),
        ({"overflow": "x"}, '^overflow: got "x"'), ({"timeout": 0}, "timeout"), ({"timeout": -1}, "timeout"),
    ]:
        with pytest.raises(reduced.InvalidArgumentError, match=message) as caught:
            client.var([1.0], **bad)
        assert isinstance(caught.value, ValueError) and caught.value.code == "INVALID_ARGUMENT"
    for ops, message in [("medium", 'op: got "medium"; allowed: sum'), ([], "ops: got none"), ("", 'op: got ""'),
                         ("bit_or", "bit_or")]:
        with pytest.raises(ValueError, match=message):
            client.reduce([1.0], ops)
    for ops in (1, [1], ["sum", None]):
        with pytest.raises(TypeError, match="^ops: got (1|None); allowed: strings$"):
            client.reduce([1.0], ops)
    with pytest.raises(reduced.FailedPreconditionError):
        client.sum([1.0], engine="cuda")
    with pytest.raises(reduced.FailedPreconditionError, match="device: got"):
        client.sum([1.0], device="cuda:7")


def test_options_of_other_types(client):
    for bad, message in [
        ({"timeout": "1s"}, "timeout: got '1s'; allowed: seconds, or None"), ({"ddof": 1.5}, "ddof: got 1.5; allowed: whole numbers"),
        ({"ddof": "1"}, "ddof: got '1'; allowed: whole numbers"), ({"ddof": [1]}, r"ddof: got \[1\]; allowed: whole numbers"),
        ({"ddof": np.float32(1.5)}, r"ddof: got np.float32\(1.5\); allowed: whole numbers"), ({"nan": None}, "nan: got None; allowed: strings"),
        ({"state": 1}, "state: got 1; allowed: True, False"), ({"keepdims": 1}, "keepdims: got 1; allowed: True, False"),
        ({"keys": [1], "groups": "x"}, "groups: got 'x'; allowed: whole numbers, or None"), ({"empty": 0, "axis": 0}, "empty: got 0; allowed: strings"),
        ({"ttl": "5s", "axis": 0, "keep": True}, "ttl: got '5s'; allowed: seconds"),
        ({"owner": 5, "axis": 0, "keep": True}, "owner: got 5; allowed: strings, or None"),
        *(({"unknown": 0, **others}, f"option: got unknown; allowed: {', '.join(reduced.Options.__annotations__)}") for others in ({}, {"axis": 0})),
    ]:
        with pytest.raises(TypeError, match=f"^{message}$"):
            client.var([1.0], **bad)
    for bad in ({"ddof": 2**63}, {"block_size": 2**31}):
        with pytest.raises(ValueError, match=r"^\w+: got \d+; allowed: whole numbers of \d\d bits$"):
            client.var([1.0], **bad)
    right = client.var([1.0, 2.0], ddof=1)
    assert client.var([1.0, 2.0], ddof=np.int8(1), timeout=np.float32(50), nan=np.str_("omit"), results=np.True_) == right
    assert client.var([1.0, 2.0], ddof=1, timeout=None) == right


def test_arrow_arrays(client):
    pa = pytest.importorskip("pyarrow")
    for dtype in (pa.int8(), pa.uint16(), pa.int64(), pa.float16(), pa.float32(), pa.float64()):
        array = pa.array([1, 2, 4, 8, None], dtype)[:4]
        assert client.sum(array) == 15 and client.argmax(array[1:3]) == 1 and client.sum(pa.array([], dtype)) == 0
        assert client.sum(pa.chunked_array([array, array[3:]])) == 23 and client.sum(pa.chunked_array([array])) == 15
        assert client.sum(pa.chunked_array([], dtype)) == 0
    flags = pa.array([True, False, False, True])
    assert (client.count_nonzero(flags), client.all(flags[3:]), client.any(flags[1:3])) == (2, True, False)
    assert shares(pa.array([1, 2, 3])[1:])
    for bad, what in ((pa.array([[1]]), "a ListArray of list<item: int64>"), (pa.array(["a"]), "a StringArray of string"),
                      (pa.chunked_array([["a"]]), "a ChunkedArray of string"),
                      (pa.array([1], pa.time32("s")), r"a Time32Array of time32\[s\]"),
                      (pa.array([1]).dictionary_encode(), "a DictionaryArray of dictionary<.*>")):
        for options in ({}, {"state": True}):
            with pytest.raises(TypeError, match=f"^array: got {what}; allowed: bool, int8, "):
                client.reduce(bad, "sum", **options)


def test_pyarrow_is_not_imported():
    subprocess.run([sys.executable, "-c", "import sys, reduced; reduced.connect('local:').sum([1]); assert 'pyarrow' not in sys.modules"],
                   check=True, timeout=60)


def test_special_values(client):
    assert math.copysign(1, client.min(np.array([0.0, -0.0]))) == -1
    assert client.sum(np.array([np.inf, 1])) == math.inf and math.isnan(client.sum(np.array([np.inf, -np.inf])))
    assert client.sum(np.array([5e-324, 5e-324])) == 1e-323


@pytest.mark.parametrize("dtype", ["f8", ">f8", "f4", ">f4", "i2", ">i2", "u1", "?", "f2", ">u8"])
def test_large_arrays_of_any_layout(dtype):
    """Copies by several threads: what NumPy's copy has."""
    from reduced import _copies

    random = np.random.default_rng(3)
    base = random.integers(0, 100, (160, 70, 61)).astype(dtype)
    long = random.integers(0, 100, 2_000_003).astype(dtype)
    views = [base.transpose(axes) for axes in itertools.permutations(range(3))]
    views += [base[::2], base[:, :, ::3], base[:, 3:40], base[::-1], base[:, ::-1, ::-1], base.T[::2, 1:], np.broadcast_to(base[0], base.shape)]
    views += [long[::2], long[::-1], long[1::3], long.reshape(1, -1, 1)[:, ::2], np.broadcast_to(long[:1], 600_000), np.asfortranarray(long[:2_000_000].reshape(2, -1))]
    local = reduced.connect("local:")
    for view in views:
        copy = _copies.copied(view.astype(view.dtype.newbyteorder("="))) if view.dtype.isnative else None
        right = np.ascontiguousarray(view).astype(view.dtype.newbyteorder("="))
        got = _copies.contiguous(view, right.dtype)
        assert got.flags.c_contiguous and got.dtype == right.dtype and got.shape == right.shape
        np.testing.assert_array_equal(got, right)
        assert copy is None or np.array_equal(copy, right)
        assert local.sum(view) == local.sum(right)
        assert local.argmax(view) == local.argmax(right)
    if dtype == "f8":
        assert local.sum(long[::2], pipeline="sequential") == local.sum(long[::2].copy(), pipeline="sequential")


def test_an_error_keeps_no_array(local):
    array = np.zeros(0)
    alive = weakref.ref(array)
    gc.disable()
    try:
        with contextlib.suppress(ValueError):
            local.max(array)
        del array
        assert alive() is None
    finally:
        gc.enable()

"""Arrays of a GPU that there is not: over tests/fake_cuda/fake_driver.cc, which stands in for this process's libcuda."""

import ctypes
import sys
import types

import numpy as np

driver = ctypes.CDLL("libcuda.so.1")
driver.fake_allocate.restype = ctypes.c_uint64
driver.fake_allocate.argtypes = [ctypes.c_size_t, ctypes.c_int]
driver.fake_allocate_pieces.restype = ctypes.c_uint64
driver.fake_allocate_pieces.argtypes = [ctypes.c_int, ctypes.c_size_t]
for name in ("fake_free", "fake_free_pieces", "fake_reallocate"):
    getattr(driver, name).argtypes = [ctypes.c_uint64]


class Segment:
    """Memory of cudaMalloc, which lives as long as this; `capable`: it has an IPC handle."""

    def __init__(self, nbytes, capable=True):
        self.address = driver.fake_allocate(nbytes, capable)
        assert self.address != 0
        self.bytes = np.frombuffer((ctypes.c_uint8 * nbytes).from_address(self.address), np.uint8)

    def __del__(self):
        driver.fake_free(self.address)

    def array(self, elements, kind, offset=0):
        """An array in it, of one of the kinds below."""
        elements = np.asarray(elements)
        here = self.bytes[offset : offset + elements.nbytes].view(elements.dtype).reshape(elements.shape)
        here[...] = elements
        return kind(self, here)


class Pieces(Segment):
    """Pieces of CUDA's virtual memory management, mapped one behind the other, as an expandable segment of PyTorch's is."""

    BYTES = 64 << 10

    def __init__(self, count):
        self.address = driver.fake_allocate_pieces(count, self.BYTES)
        assert self.address != 0
        self.bytes = np.frombuffer((ctypes.c_uint8 * (count * self.BYTES)).from_address(self.address), np.uint8)

    def __del__(self):
        driver.fake_free_pieces(self.address)


class WithInterface:
    """As Numba's: __cuda_array_interface__ alone."""

    def __init__(self, segment, host, base=None):
        self.segment, self.host, self.base, self.stream = segment, host, base, None
        self.dtype, self.shape = host.dtype, host.shape

    @property
    def __cuda_array_interface__(self):
        address = self.host.__array_interface__["data"]
        return {"shape": self.shape, "typestr": self.host.dtype.str, "data": address, "version": 3, "stream": self.stream,
                "strides": None if self.host.flags.c_contiguous else self.host.strides}

    def copy_to_host(self):
        return self.host.copy()

    def __getitem__(self, cut):
        return type(self)(self.segment, self.host[cut], self)

    @property
    def T(self):
        return type(self)(self.segment, self.host.T, self)


class WithDlpack(WithInterface):
    """As CuPy's."""

    flags = None
    copy_to_host = None

    def get(self):
        return self.host.copy()

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, *, stream):
        assert stream == 1
        capsule = self.host.__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        tensor = pointer(capsule, b"dltensor")
        ctypes.c_int32.from_address(tensor + 8).value = 2  # DLTensor.device.device_type
        strides = ctypes.c_void_p.from_address(tensor + 32).value
        for axis in range(self.host.ndim if strides else 0):
            stride, size = ctypes.c_int64.from_address(strides + 8 * axis), self.host.itemsize
            if stride.value < 0:  # CuPy divides bytes as unsigned numbers
                stride.value = ((1 << 64) + stride.value * size) // size
        return capsule


class Storage:
    """A torch.UntypedStorage, which has the memory."""

    def __init__(self, segment):
        self.segment = segment

    def data_ptr(self):
        return self.segment.address

    def nbytes(self):
        return len(self.segment.bytes)


class Tensor:
    """A torch.Tensor, which shares its storage with its views; on the current stream."""

    def __init__(self, segment, host, storage=None, dtype=None):
        self._host, self._storage = host, storage or Storage(segment)
        self.dtype, self.shape, self.device = f"torch.{dtype or host.dtype}", host.shape, "cuda:0"

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, **_):
        raise BufferError("Can't export tensors that require gradient")

    def untyped_storage(self):
        return self._storage

    def is_neg(self):
        return False

    def get_device(self):
        return 0

    def data_ptr(self):
        return self._host.__array_interface__["data"][0] if self._host.size else 0

    def element_size(self):
        return self._host.itemsize

    def stride(self):
        return tuple(stride // self._host.itemsize for stride in self._host.strides)

    def detach(self):
        return Tensor(None, self._host, self._storage, self.dtype.partition(".")[2])

    def cpu(self):
        return self._host

    def __getitem__(self, cut):
        return Tensor(None, self._host[cut], self._storage)


def bfloat16(segment, host):
    """Bits of bfloat16 as a Tensor of them."""
    return Tensor(segment, host, None, "bfloat16")


def import_torch(monkeypatch, stream=7, private=True):
    """A module torch with a current stream, `private`: which it has a fast function for."""
    current = types.SimpleNamespace(cuda_stream=stream)
    of_module = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda device: current.cuda_stream) if private else types.SimpleNamespace()
    torch = types.SimpleNamespace(_C=of_module, cuda=types.SimpleNamespace(current_stream=lambda device: current))
    monkeypatch.setitem(sys.modules, "torch", torch)
    return current

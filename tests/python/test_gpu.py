"""Arrays of a real GPU: of PyTorch, CuPy, JAX and Numba where they are installed, reduced by the server's GPU where they are."""

import gc
import math
import os

import numpy as np
import pytest
import reduced
from reduced.torch import Fingerprint, fingerprint
from test_memory import await_usage

try:
    import torch
except ImportError:
    pytest.skip("no torch", allow_module_level=True)
if not torch.cuda.is_available():
    assert not os.environ.get("REDUCED_REQUIRE_GPU"), "no GPU"
    pytest.skip("no GPU", allow_module_level=True)

DTYPES = [torch.bool, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.float16, torch.bfloat16, torch.float32,
          torch.float64]


def of_gpu(result):
    return (result.via, result.ran_on.engine, result.ran_on.device) == ("region", "cuda", "cuda:0")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_live_tensors(remote, local, dtype):
    """Tensors of any dtype, from any element on, that change between calls."""
    x = (torch.randn(100_003, device="cuda") * 100).to(dtype)
    for view in (x, x[3:], x[1:1001].reshape(10, 100).T, x[7:8]):
        result = remote.reduce(view, ["sum", "max", "nan_count"])
        assert of_gpu(result) and result.sum == local.sum(view.cpu()) and result.max == local.max(view.cpu())
    x[5] = 1
    x[6:] = 0
    assert remote.count_nonzero(x) == local.count_nonzero(x.cpu())


def test_exact(remote):
    x = torch.randn(1 << 20, device="cuda", dtype=torch.float64) * 10.0 ** torch.randint(-200, 200, (1 << 20,), device="cuda").double()
    assert remote.sum(x) == math.fsum(x.cpu().numpy())


def test_orders_of_memory(remote):
    x = torch.arange(24.0, device="cuda").reshape(2, 3, 4)
    for view in (x.permute(2, 0, 1), x[:, ::2], x[..., 1], x[0, 0].expand(3, 4), x[1:], x.mT):
        here = view.cpu().numpy()
        result = remote.reduce(view, ["sum", "argmax", "argmin"])
        assert of_gpu(result) and (result.sum, result.argmax, result.argmin) == (here.sum(), here.argmax(), here.argmin())
        assert remote.sum(view) == here.sum()
    assert np.array_equal(remote.sum(x, axis=(0, 2)), x.cpu().numpy().sum(axis=(0, 2)))
    assert remote.sum(torch.empty((0, 3), device="cuda")) == 0
    assert remote.sum(torch.tensor(7.0, device="cuda")) == 7


def test_gradients_and_views(remote):
    weight = torch.nn.Parameter(torch.ones(1000, device="cuda"))
    loss = (weight * 2).sum()
    loss.backward()
    assert remote.sum(weight) == 1000 and remote.sum(weight.grad) == 2000 and remote.sum(loss) == 2000
    z = torch.complex(torch.zeros(8, device="cuda"), torch.ones(8, device="cuda")).conj()
    assert z.imag.is_neg() and remote.sum(z.imag) == -8
    with pytest.raises(TypeError, match="complex64"):
        remote.sum(z)


def test_the_work_of_its_stream_is_waited_for(remote):
    """A tensor whose elements a stream has still to write, behind tens of milliseconds of other work."""
    busy = torch.randn(4096, 4096, device="cuda")
    with remote.session() as session:
        for stream in (torch.cuda.default_stream(), torch.cuda.Stream(), torch.cuda.Stream()):
            with torch.cuda.stream(stream):
                x = torch.zeros(1 << 20, device="cuda")
                for caller in (remote, session):
                    assert caller.sum(x) == x.sum().item()
                    for _ in range(20):
                        busy @ busy
                    x += 1
                    assert caller.max(x) == caller.min(x)
                assert remote.sum(x) == 2 << 20
            torch.cuda.synchronize()


def test_memory_that_is_freed_and_allocated_again(remote):
    """Each tensor has memory of its own, at addresses that return, and empty_cache gives it back to the driver."""
    gc.collect()
    await_usage(remote, regions=0)
    for i in range(30):
        x = torch.full((8 << 20,), float(i), device="cuda")
        assert remote.sum(x) == i * (8 << 20)
        del x
        if i % 3 == 0:
            torch.cuda.empty_cache()
    y = torch.full((100,), 3.0, device="cuda")
    z = torch.ones(100, device="cuda")
    assert remote.sum(y) == 300 and remote.sum(z) == 100
    await_usage(remote, regions=1)  # one segment of torch's allocator
    del y
    assert remote.sum(z.detach()) == 100
    await_usage(remote, regions=1)
    del z
    await_usage(remote, regions=0)


def test_nothing_is_left(remote):
    def used():
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    kept = torch.ones(1000, device="cuda")
    assert remote.sum(kept) == 1000
    before = used()
    with remote.session() as session:
        for i in range(10_000):
            x = torch.full((100,), float(i % 7), device="cuda")
            assert session.sum(x) == 100 * (i % 7)
    for i in range(300):  # memory of its own each
        assert remote.sum(torch.full((3 << 20,), 1.0, device="cuda")) == 3 << 20
        if i % 50 == 0:
            torch.cuda.empty_cache()
    assert used() <= before + 2
    del x
    await_usage(remote, regions=1)
    del kept
    await_usage(remote, regions=0)


def test_expandable_segments(remote):
    """In a process of its own, as the allocator is chosen at its start: a small tensor, and some over many pieces of 20 MiB."""
    program = f"""
import gc
import reduced, torch
from test_memory import await_usage
c = reduced.connect({remote.server!r}, timeout=60)
small = torch.arange(1000, device="cuda")
large = torch.arange(50_000_000, device="cuda", dtype=torch.int32) % 1000
flat = torch.ones(7 << 30, device="cuda", dtype=torch.int8)  # in 359 pieces, which take several packets
assert c.sum(small) == 499500
for view in large, large[5_000_001:], large[6_000_000:6_000_010]:
    result = c.reduce(view, ["sum", "max"])
    assert (result.via, result.ran_on.device) == ("region", "cuda:0")
    assert (result.sum, result.max) == (int(view.sum()), int(view.max())), result
assert c.sum(flat) == 7 << 30
busy = torch.randn(4096, 4096, device="cuda")
for _ in range(20):
    busy @ busy
large += 1
assert c.max(large) == 1000
for i in range(10):
    y = torch.full((30 << 20,), float(i), device="cuda")
    assert c.sum(y) == i * (30 << 20)
    del y
    torch.cuda.empty_cache()
del small, large, flat, view
gc.collect()
await_usage(c, regions=0)
print("all")
"""
    import subprocess
    import sys
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300,
                         env=os.environ | {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "PYTORCH_ALLOC_CONF": "expandable_segments:True",
                                           "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *filter(None, sys.path)])})
    assert run.stdout == "all\n", run


def test_what_cannot_be_reduced_there(remote, local):
    x = torch.ones(8, device="cuda")
    with pytest.raises(TypeError, match="a CUDA device; allowed: host memory"):
        local.sum(x)
    with pytest.raises(reduced.InvalidArgumentError, match="via: got inline"):
        remote.sum(x, via="inline")


def test_fingerprints(server):
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3), torch.nn.BatchNorm2d(64), torch.nn.Linear(512, 512)).to(torch.bfloat16)
    on_cpu = fingerprint(model)
    there = model.cuda()
    assert fingerprint(there) == fingerprint(there, server=server.unix) == on_cpu
    assert fingerprint(there.to(memory_format=torch.channels_last), server=server.unix) == on_cpu
    halves = []
    for half in range(2):
        shard, places = {}, {}
        for name, each in there.state_dict().items():
            flat = torch.atleast_1d(each)
            begin = half * -(-len(flat) // 2)
            shard[name] = torch.tensor_split(flat, 2)[half]
            places[name] = flat.shape, (begin, *[0] * (flat.ndim - 1))
        halves.append(fingerprint(shard, places=places, server=server.unix))
    merged = Fingerprint.merge(halves)
    assert all(merged[name].fingerprint == each.fingerprint for name, each in on_cpu.items())
    with torch.no_grad():
        there[2].weight.view(-1)[5] += 1
    assert on_cpu.differences(fingerprint(there, server=server.unix)) == ["2.weight"]


def test_cupy(remote):
    cupy = pytest.importorskip("cupy")
    x = cupy.arange(24, dtype="f4").reshape(2, 3, 4)
    for view in (x, x[1], x.transpose(2, 0, 1), x[:, ::2], x[::-1], cupy.asfortranarray(x)):
        result = remote.reduce(view, ["sum", "argmax"])
        assert of_gpu(result) and (result.sum, result.argmax) == (float(view.sum()), int(view.argmax()))
        assert remote.sum(view) == float(view.sum())
    for dtype in "?", "i1", "u2", "u4", "i8", "f2", "f8":
        assert remote.count_nonzero(cupy.ones(1000, dtype)) == 1000
    with cupy.cuda.Stream(non_blocking=True):
        y = cupy.zeros(1 << 20)
        for _ in range(200):
            y += 1
        assert remote.sum(y) == 200 << 20


def test_jax(remote):
    jax = pytest.importorskip("jax")
    x = jax.device_put(np.arange(1000, dtype="f4").reshape(10, 100))
    result = remote.reduce(x + 1, "sum,argmax")
    assert of_gpu(result) and (result.sum, result.argmax) == (500500, 999)
    assert remote.sum(x.astype("bfloat16")) == float(np.asarray(x.astype("bfloat16")).astype("f8").sum())


def test_numba(remote):
    cuda = pytest.importorskip("numba.cuda")
    x = cuda.to_device(np.arange(1000.0).reshape(10, 100))
    assert remote.sum(x) == 499500 and remote.argmax(x[2]) == 99

"""The package: types, examples, metadata, what the wheel carries."""

import doctest
import importlib
import inspect
import json
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest
import reduced
import reduced.aio
import reduced.dask
from reduced import _options

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEADLINE_S = 240
# What manylinux takes for granted on every system.
SYSTEM = re.compile(r"^(linux-vdso|ld-linux[\w-]*|/lib64/ld-linux[\w-]*|libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|libz)\.so")


def site():
    return pathlib.Path(reduced.__file__).parent


def test_it_is_the_wheel_that_is_tested():
    assert site().parent == pathlib.Path(os.environ["PYTHONPATH"])
    assert not (ROOT / "client/python") in site().parents


USER = """
from typing import Any, assert_type
import numpy as np
import numpy.typing as npt
import reduced, reduced.aio
from reduced._distribution import Top

client: reduced.Client = reduced.connect("local:")
x: npt.NDArray[np.float32] = np.ones((2, 3), "f4")
frame: Any = None
assert_type(client.mean(x), np.float64)
assert_type(client.sum(x, nan="omit", where=x > 0), np.number[Any])
assert_type(client.sum([1, 2], weights=[3, 4]), np.number[Any])
assert_type(client.argmax(x), int)
assert_type(client.any(x), np.bool_)
assert_type(client.sum(x, 0), npt.NDArray[Any])
assert_type(client.sum(x, axis=(0, 1), keepdims=True), npt.NDArray[Any])
assert_type(client.count(x, keys=["a", "b"], sort=False), npt.NDArray[Any])
assert_type(client.sum(frame), Any)
assert_type(client.corr(x, x), np.float64)
assert_type(client.corr(x, x, axis=1), npt.NDArray[Any])
assert_type(client.weighted_mean(x, weights=x), np.float64)
assert_type(client.median(x), np.number[Any] | npt.NDArray[Any])
assert_type(client.topk(x, 3), Top)
assert_type(client.histogram(x), tuple[npt.NDArray[Any], npt.NDArray[Any]])
assert_type(client.compare(x, x), reduced.Comparison)
assert_type(client.cov_matrix(x), npt.NDArray[Any])
assert_type(client.fingerprint(x), str | npt.NDArray[Any])
assert_type(client.session().std(x, ddof=1), np.float64)
result = client.reduce(x, ["sum"], nan="omit", ddof=1, state=True)
assert_type(result, reduced.Result)
assert_type(result.state, reduced.State | None)
assert_type(client.describe(x), reduced.Result)
assert_type(result.ran_on.engine, str)
client.sum(np.ones((2, 2)), 0, nan="omit", empty="fill")
client.sum([1.0], wrong=1)  # type: ignore[call-overload]
client.sum([1.0], ddof="x")  # type: ignore[call-overload]
client.sum([1.0], nan="skip")  # type: ignore[call-overload]
client.mean(x, 0, dtype="f4")  # type: ignore[call-overload]
client.reduce(np.ones(3), "sum, mean", axis="time", missing="keep")  # type: ignore[arg-type]
client.median(np.ones(3), 0, method="cubic")  # type: ignore[call-overload]


async def main() -> None:
    async with reduced.aio.connect("local:") as awaited, await awaited.session(via="auto") as session:
        assert_type(await awaited.mean(x), np.float64)
        assert_type(await session.sum(x, axis=0), npt.NDArray[Any])
        assert_type(await session.median(frame), Any)
        assert_type(await session.reduce(x, "sum", keys=["a", "b"], sort=False), reduced.Result)
"""


def test_types(tmp_path):
    (tmp_path / "user.py").write_text(USER)
    checked = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", "-p", "reduced"],
                             capture_output=True, text=True, timeout=DEADLINE_S, env=os.environ | {"MYPYPATH": os.environ["PYTHONPATH"]})
    assert checked.returncode == 0, checked.stdout
    used = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", "--cache-dir", tmp_path / "cache",
                           tmp_path / "user.py"],
                          capture_output=True, text=True, timeout=DEADLINE_S, env=os.environ | {"MYPYPATH": os.environ["PYTHONPATH"]})
    assert used.returncode == 0, used.stdout


def test_stubs_are_those_of_the_module():
    stub = (site() / "_core.pyi").read_text(encoding="utf-8")
    named = set(re.findall(r"^(?:class|def) (\w+)|^(\w+): (?!TypeAlias)", stub, re.MULTILINE))
    names = {name for groups in named for name in groups if name}
    assert names == {name for name in dir(reduced._core) if not name.startswith("__")}


@pytest.mark.parametrize("module", ["", "aio", "dask", "pandas", "testing", "torch", "xarray", "_arrays", "_client", "_ops", "_partition", "_result", "_state"])
def test_examples(module):
    name = f"reduced.{module}" if module else "reduced"
    if not (site() / f"{module or '__init__'}.py").exists():
        pytest.skip(f"there is no {name}")
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried > 0 and failed == 0


@pytest.mark.parametrize("page", ["README.md", "GROUPBY.md", "WEIGHTS.md"])
def test_examples_of_the_pages(page):
    failed, tried = doctest.testfile(str(ROOT / "client/python" / page), module_relative=False)
    assert tried > 10 and failed == 0


def test_options_are_parameters():
    """For completion and help: every option with its default, in the place where the method has it."""
    for owner, method in ((reduced.Client, "sum"), (reduced.Client, "reduce"), (reduced.Session, "median"), (reduced.aio.Client, "quantile"), (reduced.aio.Session, "describe"),
                          (reduced.dask, "reduce")):
        parameters = inspect.signature(getattr(owner, method)).parameters
        left_out = {"y", "weights"} if method == "dot" else set()
        assert set(reduced.Options.__annotations__) - left_out <= set(parameters), method
        assert all(each.kind is not each.VAR_KEYWORD for each in parameters.values())
        assert parameters["nan"].default == "propagate" and parameters["keys"].default is None
    assert list(inspect.signature(reduced.Client.sum).parameters)[:3] == ["self", "array", "axis"]
    assert "y" in inspect.signature(reduced.Client.dot).parameters


def test_every_option_is_documented():
    readme = (ROOT / "client/python/README.md").read_text(encoding="utf-8")
    for name, kind in reduced.Options.__annotations__.items():
        line = re.search(rf"^ +{name}: (.+?) = (.+?)\. \S", reduced.Options.__doc__, re.MULTILINE)
        assert line and line[1] in (kind.__forward_arg__, "array", "str", "int | str | Sequence[int] | Sequence[str] | None"), name
        assert f"`{name}`" in readme, name
    for name, default in _options.DEFAULTS.items():
        assert f" {name}: " in reduced.Options.__doc__ and f'= {json.dumps(default) if isinstance(default, str) else default}. ' in reduced.Options.__doc__


def test_every_op_has_a_method():
    for op in reduced.ops:
        assert getattr(reduced.Client, op).__doc__


def test_version():
    version = re.search(r"project\(reduced VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))[1]
    assert reduced.__version__ == version
    metadata, = site().parent.glob("reduced-*.dist-info/METADATA")
    assert f"\nVersion: {version}\n" in metadata.read_text(encoding="utf-8")


def test_the_wheel_carries_what_it_needs():
    wheel, = pathlib.Path(os.environ["REDUCED_WHEELS"]).glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "manylinux" in wheel.name and "reduced/py.typed" in names and "reduced/_core.pyi" in names
    assert not [name for name in names if "__pycache__" in name or name.endswith((".cc", ".h", ".txt", ".toml")) and "dist-info" not in name]
    assert wheel.stat().st_size <= 20e6
    module, = site().glob("_core*.so")
    needed = subprocess.run(["ldd", module], capture_output=True, text=True, timeout=60, check=True).stdout
    for line in needed.splitlines():
        name, _, where = line.strip().partition(" => ")
        assert SYSTEM.match(name) or "/reduced.libs/" in where, line


def test_what_it_exports():
    """Its symbols are its own: another gRPC or protobuf in the process is not in their way."""
    module, = site().glob("_core*.so")
    symbols = subprocess.run(["nm", "-D", "--defined-only", module], capture_output=True, text=True, timeout=60, check=True).stdout
    strong = [line.split()[-1] for line in symbols.splitlines() if line.split()[-2] == "T"]
    assert [name for name in strong if name not in ("PyInit__core", "_init", "_fini")] == []

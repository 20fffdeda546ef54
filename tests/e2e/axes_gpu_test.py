"""Reductions along axes by reducectl on a GPU: the CPU engine's answers, also of what has no room there."""

import unittest

import harness
from harness import np


class GpuAxesTest(harness.ServedTest):
    flags = ("--cuda_array_bytes=32MiB", "--max_result_bytes=64MiB")

    def setUp(self):
        super().setUp()
        info = self.answers("info")[0]
        if not any(device["engine"] == "cuda" for device in info["devices"]):
            self.skipTest(info["no_cuda_reason"])
        self.random = np.random.default_rng(1)

    def results(self, engine, source, ops, *arguments):
        """What --out writes, by op."""
        out = self.folder / (engine + "-{op}.npy")
        run = self.run_reducectl("reduce", source, "--engine", engine, "--op", ops, *arguments, "--out", out)
        self.assertEqual((run.returncode, run.stderr), (0, b""))
        return {op: np.load(self.folder / f"{engine}-{op}.npy") for op in ops.split(",")}

    def test_as_the_cpu(self):
        for shape, axis in [((4, 5, 6), "0,2"), ((300, 7), "0"), ((7, 300), "1"), ((3, 200, 5), "1"), ((1000, 300), "-1"), ((50, 16), "1")]:
            array = self.random.normal(size=shape) * 10.0 ** self.random.integers(-5, 5, shape)
            array.flat[3] = np.nan
            for dtype in ("f4", "f8", "i4"):
                with np.errstate(invalid="ignore"):
                    path = self.save(array.astype(dtype))
                for ops in ("sum,mean", "max,argmin", "var", "l1,any"):
                    for nan in ("propagate", "omit"):
                        arguments = (path, ops, "--axis=" + axis, "--nan", nan)
                        expected, got = self.results("cpu", *arguments), self.results("cuda", *arguments)
                        for op, values in expected.items():
                            self.assertEqual(values.tobytes(), got[op].tobytes(), (shape, axis, dtype, op, nan))

    def test_more_than_there_is_room_for(self):
        for shape in ((3000, 3000), (6_000_000, 3)):
            path = self.save(self.random.normal(size=shape))
            expected, got = (self.results(engine, path, "sum,argmax", "--axis=0") for engine in ("cpu", "cuda"))
            for op, values in expected.items():
                self.assertEqual(values.tobytes(), got[op].tobytes(), (shape, op))


if __name__ == "__main__":
    unittest.main()

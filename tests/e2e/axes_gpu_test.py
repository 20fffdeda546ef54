"""Arrays of results by reducectl on a GPU: the CPU engine's answers, also of what has no room there."""

import os
import sys
import unittest

import harness
from harness import np


class GpuAxesTest(harness.ServedTest):
    flags = ("--cuda_array_bytes=32MiB", "--max_result_bytes=64MiB")

    def setUp(self):
        super().setUp()
        info = self.answers("info")[0]
        if not any(device["engine"] == "cuda" for device in info["devices"]):
            self.assertNotIn("REDUCED_REQUIRE_GPU", os.environ, info["no_cuda_reason"])
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

    def test_groups_as_the_cpu(self):
        rows = 20_000
        offsets = np.sort(self.random.integers(0, rows, 300)).astype("i8")
        few = self.save(self.random.integers(-2, 9, rows).astype("i2"), "few.npy")
        many = self.save(self.random.integers(0, 30_000, rows).astype("i4"), "many.npy")
        mask = self.save(self.random.random(rows) < 0.7, "mask.npy")
        segments = self.save(np.concatenate(([0, 0], offsets, [rows])), "offsets.npy")
        for beside in (
            ("--segments", segments),
            ("--segments", segments, "--where", mask),
            ("--keys", few, "--groups", "9", "--outside=drop"),
            ("--keys", many, "--groups", "30000"),
            ("--keys", many, "--groups=any", "--out-keys", self.folder / "keys.npy"),
            ("--where", mask),
        ):
            for dtype in ("f4", "f8", "f2", "i1", "i8", "u4"):
                array = self.random.normal(size=rows) * 50.0
                array[7::1000] = 0 if dtype[0] in "iu" else np.nan
                path = self.save(np.abs(array).astype(dtype) if dtype == "u4" else array.astype(dtype))
                for ops in ("sum,mean,count", "max,argmin,min", "var,l2", "l1,any", "bit_xor,bit_or"):
                    if dtype[0] == "f" and ops.startswith("bit"):
                        continue
                    arguments = (path, ops, "--empty=fill", "--nan=omit", *beside)
                    expected, got = self.results("cpu", *arguments), self.results("cuda", *arguments)
                    for op, values in expected.items():
                        self.assertEqual(values.tobytes(), got[op].tobytes(), (beside, dtype, op))

    def test_more_than_there_is_room_for(self):
        for shape in ((3000, 3000), (6_000_000, 3)):
            path = self.save(self.random.normal(size=shape))
            expected, got = (self.results(engine, path, "sum,argmax", "--axis=0") for engine in ("cpu", "cuda"))
            for op, values in expected.items():
                self.assertEqual(values.tobytes(), got[op].tobytes(), (shape, op))

    def test_groups_of_more_than_there_is_room_for(self):
        rows = 5_000_000  # 40 MB
        path = self.save(self.random.normal(size=rows))
        keys = self.save(self.random.integers(0, 10, rows).astype("i4"), "keys.npy")
        offsets = self.save(np.array([0, 7, 2_000_000, 2_000_000, rows]), "offsets.npy")
        mask = self.save(self.random.random(rows) < 0.5, "mask.npy")
        for beside in (("--segments", offsets), ("--where", mask), ("--keys", keys, "--groups=10"), ("--keys", keys, "--groups=any")):
            arguments = (path, "sum,argmax", "--empty=fill", *beside)
            expected, got = self.results("cpu", *arguments), self.results("cuda", *arguments)
            for op, values in expected.items():
                self.assertEqual(values.tobytes(), got[op].tobytes(), (beside, op))


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    sys.exit(harness.SKIPPED if len(result.skipped) == result.testsRun else not result.wasSuccessful())

"""Reductions along axes by reducectl: against NumPy, to files, kept on the server, and back."""

import math
import os
import tempfile
import unittest

import harness
from harness import np

USAGE, SERVER, DATA_ERROR = 2, 4, 5


class AxesTest(harness.ServedTest):
    flags = ("--cpu_array_bytes=96MiB", "--max_result_bytes=1MiB", "--cuda=false")

    def setUp(self):
        super().setUp()
        self.random = np.random.default_rng(1)

    def text(self, *arguments):
        run = self.run_reducectl(*arguments)
        self.assertEqual((run.returncode, run.stderr), (0, b""))
        return run.stdout.decode()

    def results(self, source, ops, *arguments):
        """What --out writes, by op."""
        self.text("reduce", source, "--op", ops, *arguments, "--out", self.folder / "out-{op}.npy")
        return {op: np.load(self.folder / f"out-{op}.npy") for op in ops.split(",")}

    def test_as_numpy(self):
        shapes = [((4, 5, 6), (0, 2)), ((4, 5, 6), (-1,)), ((300, 7), (0,)), ((7, 300), (1,)), ((3, 200, 5), (1,)), ((9,), (0,)),
                  ((1000, 300), (0,)), ((300, 1000), (1,)), ((2, 3, 2, 3), (1, 3))]
        for shape, axes in shapes:
            array = self.random.integers(-1000, 1000, shape).astype("i4")
            path = self.save(array)
            for keepdims in (False, True):
                axis = "--axis=" + ",".join(map(str, axes))
                got = self.results(path, "sum,max,min,argmax", axis, *["--keepdims"] * keepdims)
                for op in ("sum", "max", "min"):
                    right = getattr(array, op)(axis=axes, keepdims=keepdims)
                    self.assertEqual(got[op].shape, right.shape, (shape, axes))
                    self.assertTrue(np.array_equal(got[op], right), (shape, axes, op))
                self.assertEqual((got["sum"].dtype, got["max"].dtype, got["argmax"].dtype), (np.int64, np.int32, np.uint64))
                if len(axes) == 1:
                    self.assertTrue(np.array_equal(got["argmax"].ravel(), array.argmax(axis=axes[0]).ravel()))

    def test_every_output_is_that_of_its_slice(self):
        array = (self.random.normal(size=(6, 40)) * 10.0 ** self.random.integers(-30, 30, (6, 40))).astype("f4")
        got = self.results(self.save(array), "sum,mean,std", "--axis", "1", "--nan", "omit")
        for i, row in enumerate(array):
            alone = self.reduce(self.save(row, "row.npy"), "sum,mean,std")["results"]
            for op, values in got.items():
                self.assertEqual(values[i], alone[op])

    def test_sources(self):
        array = self.random.normal(size=(50, 60)).astype("f8")
        right = array.max(axis=0)
        for order in ("C", "F"):
            path = self.save(np.asarray(array, order=order))
            for via in ("auto", "inline", "region"):
                self.assertTrue(np.array_equal(self.results(path, "max", "--axis", "0", "--via", via)["max"], right))
        large = self.random.normal(size=(5000, 1000)).astype("f8")  # 40 MB: stored for the time of the request
        got = self.results(self.save(large), "max,argmin", "--axis", "1")
        self.assertTrue(np.array_equal(got["max"], large.max(axis=1)))
        self.assertTrue(np.array_equal(got["argmin"], large.argmin(axis=1)))
        (info,) = self.answers("info")
        self.assertEqual((info["usage"]["arrays"], info["devices"][0]["array_bytes"]), (0, 0))

    def test_keep_and_get(self):
        array = self.random.normal(size=(20, 30, 4)).astype("f4")
        answer = self.reduce(self.save(array), "max,sum", "--axis", "1", "--keep")
        kept = answer["results"]
        self.assertEqual(kept["max"]["shape"], [20, 4])
        again = self.answers("reduce", "--array", kept["max"]["id"], "--op", "max", "--axis", "-1")[0]["results"]["max"]
        self.assertEqual(again["values"], [float(x) for x in map(str, array.max(axis=(1, 2)))])
        self.text("arrays", "get", kept["max"]["id"], "--out", self.folder / "max.npy")
        self.assertTrue(np.array_equal(np.load(self.folder / "max.npy"), array.max(axis=1)))
        self.assertTrue(self.text("arrays", "get", kept["sum"]["id"]).startswith("f64 (20, 4)\n[["))
        for result in kept.values():
            self.text("arrays", "delete", result["id"])
        self.check_failure(SERVER, ["of no resident array"], "arrays", "get", kept["sum"]["id"])

    def test_written_to_shared_memory(self):
        array = self.random.normal(size=(300_000, 3)).astype("f4")  # sums of 2.4 MB, more than fits in an answer
        path = self.save(array)
        with tempfile.NamedTemporaryFile(dir="/dev/shm") as memory:
            os.posix_fallocate(memory.fileno(), 0, 4 << 20)
            write = ["--axis", "1", "--write-to", memory.name]
            results = self.reduce(path, "sum,max", *write, "--write-offset", "128")["results"]
            self.assertEqual([results[op]["written_at"] for op in ("sum", "max")], [128, 128 + 300_000 * 8])
            self.assertEqual({each["file"] for each in results.values()}, {memory.name})
            shared = np.memmap(memory.name, "u1", "r")
            sums = shared[128:].view("f8")[:300_000]
            self.assertTrue(np.array_equal(sums, [math.fsum(row) for row in array.tolist()]))
            self.assertTrue(np.array_equal(shared[results["max"]["written_at"]:].view("f4")[:300_000], array.max(axis=1)))
            self.assertFalse(shared[:128].any())
            self.assertEqual(self.text("reduce", path, "--op", "max", *write, "--quiet"), "0\n")
            self.assertIn(f"written to {memory.name} from byte 0\n", self.text("reduce", path, "--op", "max", *write))
            self.check_failure(SERVER, ["write_to: got results of 2400000 bytes from byte 2097152 on"],
                               "reduce", path, "--op", "sum", *write, "--write-offset", 2 << 20)
            self.check_failure(SERVER, ["write_to.offset: got 1; allowed: multiples of 64"], "reduce", path, *write, "--op", "max",
                               "--write-offset", "1")
            self.check_failure(SERVER, ["write_to: got it at local:"], "reduce", path, *write, "--server", "local:")
            self.check_failure(USAGE, ["--write-to", "--keep"], "reduce", path, *write, "--keep")
            os.truncate(memory.name, 0)
            self.check_failure(SERVER, ["writable: got empty memory; allowed:"], "reduce", path, *write)
        self.check_failure(USAGE, ["--write-offset"], "reduce", path, "--axis", "1", "--write-offset", "64")
        self.check_failure(SERVER, [memory.name, "No such file"], "reduce", path, *write)

    def test_printed_as_numpy_does(self):
        path = self.save(np.arange(12, dtype="i4").reshape(2, 2, 3))
        self.assertEqual(self.text("reduce", path, "--op", "max", "--axis", "1").splitlines()[1:],
                         ["max: i32 (2, 3)", *str(np.array([[3, 4, 5], [9, 10, 11]])).splitlines()])
        for place in ([], ["--server", "local:"]):
            self.assertEqual(self.text("reduce", path, "--op", "max", "--axis", "1", "--quiet", *place).splitlines(),
                             str(np.array([[3, 4, 5], [9, 10, 11]])).splitlines())
        self.check_failure(SERVER, ["keep: got it at local:"], "reduce", path, "--axis", "1", "--keep", "--server", "local:")
        wide = np.arange(2000 * 3, dtype="i4").reshape(3, 2000)
        self.assertEqual(self.text("reduce", self.save(wide, "wide.npy"), "--op", "max", "--axis", "0").splitlines()[2:],
                         str(wide.max(axis=0)).splitlines())
        cube = np.arange(20 * 20 * 20, dtype="i4").reshape(20, 20, 20, 1)
        self.assertEqual(self.text("reduce", self.save(cube, "cube.npy"), "--op", "max", "--axis", "3").split("\n", 2)[2],
                         str(cube.max(axis=3)) + "\n")
        answer = self.reduce(path, "max", "--axis", "0")["results"]["max"]
        self.assertEqual(answer, {"dtype": "i32", "shape": [2, 3], "values": [[6, 7, 8], [9, 10, 11]]})

    def test_errors(self):
        path = self.save(np.full((3, 2), 2**62, "i8"))
        self.check_failure(SERVER, ["output [0]: integer overflow", "OUT_OF_RANGE"], "reduce", path, "--op", "sum", "--axis", "0")
        self.check_failure(SERVER, ["axes.axis[0]: got 2; allowed: -2 to 1"], "reduce", path, "--op", "sum", "--axis", "2")
        self.check_failure(USAGE, ["--axis", "whole numbers"], "reduce", path, "--axis", "a")
        self.check_failure(USAGE, ["--keep", "requires --axis"], "reduce", path, "--keep")
        self.check_failure(USAGE, ["{op}"], "reduce", path, "--axis", "0", "--op", "sum,max", "--out", "x.npy")
        self.check_failure(USAGE, ["--via", "got stream"], "reduce", path, "--axis", "0", "--via", "stream")
        empty = self.save(np.ones((3, 0), "f4"))
        self.check_failure(SERVER, ["op min"], "reduce", empty, "--op", "min", "--axis", "1")
        self.assertEqual(self.reduce(empty, "min", "--axis", "1", "--empty", "fill")["results"]["min"]["values"], ["NaN"] * 3)
        large = self.save(np.ones((400_000, 1), "u1"))
        self.check_failure(SERVER, ["results of 3200000 bytes; allowed: 1048576"], "reduce", large, "--op", "sum", "--axis", "1")
        kept = self.reduce(large, "sum", "--axis", "1", "--keep")["results"]["sum"]
        self.text("arrays", "delete", kept["id"])


if __name__ == "__main__":
    unittest.main()

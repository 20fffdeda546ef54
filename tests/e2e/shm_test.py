"""Inputs that the server reads in shared memory instead of being sent them."""

import pathlib
import unittest

import harness
from harness import DATA, np

CONNECTION, SERVER, DATA_ERROR = 3, 4, 5
LARGE = 2 << 20  # elements of f32: more than is needed for --via auto to share a file


class ShmTest(harness.ServedTest):
    def check(self, source, ops, want, *arguments, via="region", **keywords):
        answer = self.reduce(source, ops, *arguments, **keywords)
        self.assertEqual((answer["via"], answer["results"]), (via, want))

    def tearDown(self):
        (info,) = self.answers("info")
        self.assertEqual(info["usage"]["regions"], 0, "a region stays")

    def test_each_format(self):
        array = np.arange(1000, dtype="i2")
        npy = self.save(array)
        raw = self.folder / "raw.bin"
        raw.write_bytes(b"xyz" + array.tobytes())
        csv = self.folder / "numbers.csv"
        csv.write_text("n,x\n1,2\n3,\n")
        for source, arguments, want in (
            (npy, (), {"sum": 499500, "max": 999}),
            (raw, ("--dtype", "i16", "--offset", "3"), {"sum": 499500, "max": 999}),
            (raw, ("--dtype", "i16", "--offset", "1003", "--shape", "10,50"), {"sum": 374750, "max": 999}),
            (csv, ("--column", "n"), {"sum": 4.0, "max": 3.0}),
            (csv, ("--column", "x", "--nan", "omit"), {"sum": 2.0, "max": 2.0}),
        ):
            with self.subTest(source=source, arguments=arguments):
                self.check(source, "sum,max", want, "--via", "region", *arguments)
                # Of the same from standard input, a copy is shared.
                format = ("--format", "csv") if source is csv else ()
                self.check("-", "sum,max", want, "--via", "region", *format, *arguments, stdin=source.read_bytes())

    def test_every_dtype_and_size(self):
        for dtype in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"):
            array = np.arange(100).astype(dtype)
            self.check(self.save(array), "argmax", {"argmax": int(array.argmax())}, "--via", "region")
        random = np.random.default_rng(3)
        for length in (1, 1023, 4096 - 32, 4096, 4097, 1_000_003):
            array = random.integers(-100, 100, length, dtype="i1")
            want = {"sum": int(array.sum(dtype="i8")), "min": int(array.min()), "argmin": int(array.argmin())}
            self.check(self.save(array), ",".join(want), want, "--via", "region")

    def test_empty_arrays(self):
        self.check(self.save(np.ones(0)), "sum,prod", {"sum": 0.0, "prod": 1.0}, "--via", "region")
        empty = self.folder / "empty.bin"
        empty.write_bytes(b"")
        self.check(empty, "sum", {"sum": 0}, "--via", "region", "--dtype", "u8")
        self.check("-", "sum", {"sum": 0}, "--via", "region", "--dtype", "u8")
        self.check_failure(SERVER, ["min", "INVALID_ARGUMENT"], "reduce", empty, "--dtype", "u8", "--op", "min", "--via", "region")

    def test_a_tcp_address_of_the_same_machine(self):
        self.check(self.save(np.arange(10)), "sum", {"sum": 45}, "--via", "region", server=self.server.tcp)

    def test_auto_shares_large_files_with_a_server_on_a_unix_socket(self):
        array = np.ones(LARGE, dtype="f4")
        path, want = self.save(array), {"sum": float(LARGE)}
        self.check(path, "sum", want)
        self.check(path, "sum", want, server=self.server.tcp, via="stream")
        self.check("-", "sum", want, stdin=path.read_bytes(), via="stream")
        self.check(path, "sum", want, "--via", "stream", via="stream")
        self.check(path, "sum", want, "--via", "inline", via="inline")
        self.check(self.save(array[: LARGE // 8]), "sum", {"sum": LARGE / 8}, via="stream")
        self.check(DATA / "co2.npy", "nan_count", {"nan_count": 59}, via="inline")

    def test_several_files(self):
        lengths = [LARGE, 1, 0, 1000, LARGE + 1]
        paths = [self.save(np.ones(n, dtype="u4"), f"{n}.npy") for n in lengths]
        answers = self.answers("reduce", *paths, "--op", "sum", "--via", "region")
        self.assertEqual([answer["results"]["sum"] for answer in answers], lengths)
        self.assertEqual({answer["via"] for answer in answers}, {"region"})
        answers = self.answers("reduce", *paths, "--op", "sum")
        self.assertEqual([answer["via"] for answer in answers], ["region", "inline", "inline", "inline", "region"])
        run = self.run_reducectl("reduce", paths[0], self.folder / "missing", paths[1], "--via", "region", "--json")
        self.assertEqual((run.returncode, len(run.stdout.splitlines())), (DATA_ERROR, 2), run.stderr)

    def test_the_table_says_so(self):
        run = self.run_reducectl("reduce", DATA / "co2.npy", "--op", "nan_count", "--via", "region", "-v")
        self.assertEqual((run.returncode, run.stderr), (0, b""))
        self.assertIn(b", precision f64, read in a region: ", run.stdout)

    def test_bad_inputs(self):
        path = self.folder / "short.npy"
        path.write_bytes((DATA / "co2.npy").read_bytes()[:-3])
        self.check_failure(DATA_ERROR, ["is truncated"], "reduce", path, "--via", "region")
        messages = ["no reduced server answers at unix:/does/not/exist"]
        self.check_failure(CONNECTION, messages, "reduce", DATA / "co2.npy", "--via", "region", server="unix:/does/not/exist")
        large = self.save(np.ones(LARGE, dtype="f4"))
        self.check_failure(CONNECTION, messages, "reduce", large, server="unix:/does/not/exist")


class NoRegionSocketTest(harness.ServedTest):
    flags = ("--region_socket=",)

    def test_auto_streams(self):
        answer = self.reduce(self.save(np.ones(LARGE, dtype="f4")), "sum")
        self.assertEqual((answer["via"], answer["results"]), ("stream", {"sum": float(LARGE)}))

    def test_region_is_refused(self):
        messages = [f"{self.server.unix} has no region socket: memory can't be shared with it", "FAILED_PRECONDITION"]
        self.check_failure(SERVER, messages, "reduce", DATA / "co2.npy", "--via", "region")


class LostRegionSocketTest(harness.ServedTest):
    """As of a server on another machine, or in another container."""

    def test_out_of_reach(self):
        door = pathlib.Path(self.server.unix.removeprefix("unix:") + ".regions")
        door.unlink()
        answer = self.reduce(self.save(np.ones(LARGE, dtype="f4")), "sum")
        self.assertEqual((answer["via"], answer["results"]), ("stream", {"sum": float(LARGE)}))
        messages = [str(door), "can't connect to the server's region socket", "No such file or directory", "FAILED_PRECONDITION"]
        self.check_failure(SERVER, messages, "reduce", DATA / "co2.npy", "--via", "region")


if __name__ == "__main__":
    unittest.main()

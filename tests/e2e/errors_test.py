"""Bad input of every kind: the exit code, and a message that says what, got, allowed."""

import io
import pathlib
import resource
import subprocess
import unittest

import harness
from harness import DATA, np

USAGE, CONNECTION, SERVER, DATA_ERROR = 2, 3, 4, 5


class UsageTest(harness.ServedTest):
    def test_names_cannot_speak_to_the_terminal(self):
        hostile = self.folder / "\x1b]0;title\x07.csv"
        hostile.write_text("\x1b[2J,b\n1,2\n")
        run = self.run_reducectl("reduce", hostile)
        self.assertEqual(run.returncode, DATA_ERROR)
        self.assertNotIn(b"\x1b", run.stderr)
        self.assertIn(rb"\x1b]0;title\x07.csv", run.stderr)
        run = self.run_reducectl("reduce", hostile, "--column", "b")
        self.assertEqual(run.returncode, 0)
        self.assertNotIn(b"\x1b", run.stdout)

    def test_command_line(self):
        npy = DATA / "co2.npy"
        for arguments, messages in (
            ((), ["command: got none; allowed: reduce, merge, arrays, "]),
            (("shrink",), ["shrink"]),
            (("reduce",), ["FILE"]),
            (("reduce", npy, "--op", "sum,median"), ['"median"', "allowed: sum, prod, "]),
            (("reduce", npy, "--engine", "tpu"), ['"tpu"', "allowed: auto, cpu, cuda"]),
            (("reduce", npy, "--nan", "skip"), ['"skip"', "allowed: propagate, omit"]),
            (("reduce", npy, "--overflow", "clamp"), ['"clamp"', "allowed: error, wrap, saturate"]),
            (("reduce", npy, "--dtype", "float"), ['"float"', "allowed: bool, i8, "]),
            (("reduce", npy, "--ddof", "-1"), ["--ddof"]),
            (("reduce", npy, "--ddof", "one"), ["--ddof"]),
            (("reduce", npy, "--block", "0"), ["--block", 'got "0"; allowed: whole numbers from 1']),
            (("reduce", npy, "--connections", "0"), ["--connections", 'got "0"; allowed: whole numbers from 1']),
            (("reduce", npy, "--connections", "65"), ["connections: got 65; allowed: 1 to 64"]),
            (("reduce", npy, "--offset", "8"), ["--dtype"]),
            (("reduce", npy, "--via", "post"), ['"post"', "allowed: auto, inline, stream, session, region"]),
            (("reduce", npy, "--dtype", "u8", "--shape", "2,-1"), ['--shape: got "2,-1"; allowed: ']),
            (("reduce", npy, "--format", "raw"), ["--dtype"]),
            (("reduce", npy, "--format", "npy", "--dtype", "u8"), ["--dtype"]),
            (("reduce", npy, "--timeout", "5"), ['--timeout: got "5"; allowed: positive durations']),
            (("reduce", npy, "--timeout=-5s"), ['--timeout: got "-5s"; allowed: ']),
            (("info", "--server", "nowhere"), ['server: got "nowhere"; allowed: host:port']),
            (("completion", "fish"), ['"fish"', "allowed: bash"]),
        ):
            with self.subTest(arguments=arguments):
                self.check_failure(USAGE, messages, *arguments)


class ConnectionTest(harness.ServedTest):
    def test_nobody_answers(self):
        for server, reason in (("unix:/does/not/exist", "no such file or directory"), ("127.0.0.1:1", "connection refused")):
            for arguments in (("info",), ("ops",), ("pipelines",), ("ladder",), ("reduce", DATA / "co2.npy")):
                with self.subTest(server=server, command=arguments[0]):
                    messages = [f"no reduced server answers at {server} ({reason})", "start a server with `reduced`", "--server"]
                    self.check_failure(CONNECTION, messages, *arguments, server=server)
            npy = DATA / "co2.npy"
            self.check_failure(CONNECTION, messages, "reduce", npy, npy, "--via", "session", server=server)


class ServerErrorTest(harness.ServedTest):
    flags = ("--max_message_bytes=1MiB",)

    def test_refusals(self):
        floats, empty = self.save(np.ones(3), "floats.npy"), self.save(np.ones(0), "empty.npy")
        for arguments, messages in (
            ((floats, "--op", "bit_and"), ["bit_and", "f64", "INVALID_ARGUMENT"]),
            ((floats, "--op", "sum", "--pipeline", "magic"), ["magic", "INVALID_ARGUMENT"]),
            ((floats, "--op", "sum", "--pipeline", "sequential", "--block", "64"), ["block size", "INVALID_ARGUMENT"]),
            ((empty, "--op", "min"), ["min", "INVALID_ARGUMENT"]),
            ((empty, "--op", "argmax"), ["argmax", "INVALID_ARGUMENT"]),
        ):
            with self.subTest(arguments=arguments):
                self.check_failure(SERVER, messages, "reduce", *arguments)

    def test_too_large_a_request(self):
        path = self.save(np.zeros(2 << 20, dtype="u1"))
        self.check_failure(SERVER, [str(1 << 20), "RESOURCE_EXHAUSTED"], "reduce", path, "--op", "sum", "--via", "inline")
        self.assertEqual(self.reduce(path, "count_nonzero")["results"], {"count_nonzero": 0})  # by a stream
        self.assertEqual(self.reduce(self.save(np.ones(1000)), "sum")["results"]["sum"], 1000)

    def test_a_session_goes_on_after_an_error(self):
        large = self.save(np.zeros(2 << 20, dtype="u1"), "large.npy")
        good, empty = self.save(np.ones(3), "good.npy"), self.save(np.ones(0), "empty.npy")
        missing = self.folder / "missing.npy"
        run = self.run_reducectl(
            "reduce", good, empty, missing, large, good, "--op", "min", "--json", "--via", "session"
        )
        self.assertEqual(run.returncode, SERVER)  # of the first failure
        self.assertEqual(run.stdout.count(b'"results": {"min": 1.0}'), 2)
        errors = run.stderr.decode().splitlines()
        self.assertEqual(len(errors), 3)
        for error, messages in zip(
            errors,
            (
                [str(empty), "min", "INVALID_ARGUMENT"],
                [str(missing), "No such file"],
                [str(large), "the request is larger than", str(1 << 20), "RESOURCE_EXHAUSTED"],
            ),
        ):
            for message in messages:
                self.assertIn(message, error)
        self.check_failure(DATA_ERROR, ["No such file"], "reduce", missing, "--via", "session")

    def test_cuda_where_there_is_none(self):
        (info,) = self.answers("info")
        if any(device["engine"] == "cuda" for device in info["devices"]):
            self.skipTest("there is a CUDA device here")
        self.assertTrue(info["no_cuda_reason"])
        messages = ["cuda", info["no_cuda_reason"], "FAILED_PRECONDITION"]
        self.check_failure(SERVER, messages, "reduce", DATA / "co2.npy", "--engine", "cuda")

    def test_other_inputs_are_still_answered(self):
        good, empty = self.save(np.ones(3), "good.npy"), self.save(np.ones(0), "empty.npy")
        run = self.run_reducectl("reduce", good, empty, self.folder / "missing.npy", good, "--op", "min", "--json")
        self.assertEqual(run.returncode, SERVER)  # of the first failure
        self.assertEqual(run.stdout.count(b'"results": {"min": 1.0}'), 2)
        self.assertEqual(len(run.stderr.splitlines()), 2)


class DeadlineTest(harness.ServedTest):
    def test_one_millisecond_for_a_large_array(self):
        path = self.folder / "zeros.bin"
        with open(path, "wb") as file:
            file.truncate(48 << 20)
        messages = [f"no answer from {self.server.unix} within 1ms", "DEADLINE_EXCEEDED"]
        self.check_failure(SERVER, messages, "reduce", path, "--dtype", "u8", "--op", "sum", "--timeout", "1ms")
        path = self.save(np.zeros(4 << 20))
        messages = ["DEADLINE_EXCEEDED", "within 3ms"]
        self.check_failure(SERVER, messages, "reduce", path, "--op", "var", "--via", "session", "--timeout", "3ms")


class InputTest(harness.ServedTest):
    def npy(self, array, **keywords):
        file = io.BytesIO()
        np.lib.format.write_array(file, array, **keywords)
        return file.getvalue()

    def test_bad_files(self):
        good = self.npy(np.arange(10, dtype="f4"))
        for name, content, messages in (
            ("short.npy", good[:-3], ["is truncated: got 37 bytes of data; allowed: 40"]),
            ("header.npy", good[:50], ["is truncated", "header"]),
            ("long.npy", good + b"x", ["data: got 41 bytes; allowed: 40"]),
            ("fortran.npy", self.npy(np.asfortranarray(np.ones((3, 4)))), ["Fortran order", "C order"]),
            ("object.npy", self.npy(np.array([1, None]), allow_pickle=True), ["objects"]),
            ("big.npy", self.npy(np.ones(3, dtype=">f8")), ["big-endian", "little-endian"]),
            ("three.npy", self.npy(np.ones(3), version=(3, 0)), ["format version: got 3.0; allowed: 1.0 and 2.0"]),
            ("complex.npy", self.npy(np.ones(3, dtype="c8")), ["c8", "allowed"]),
            ("text.npy", self.npy(np.array(["a", "b"])), ["U1", "allowed"]),
            ("fields.npy", self.npy(np.ones(3, dtype=[("a", "f4")])), ["'a'", "allowed"]),
            ("not.npy", b"something else", ["isn't a .npy file"]),
            ("empty.npy", b"", ["isn't a .npy file"]),
            ("unknown.bin", b"12345", ["has an unknown format", "--dtype"]),
            ("text.csv", b"a\n1\ntwo\n", ["line 3", '"a"', '"two"']),
            ("columns.csv", b"a,b\n1,2\n", ["2 columns (a, b)", "--column"]),
            ("quote.csv", b'a\n"1\n', ["bad CSV"]),
            ("empty.csv", b"", ["empty"]),
        ):
            with self.subTest(name=name):
                path = self.folder / name
                path.write_bytes(content)
                self.check_failure(DATA_ERROR, [f"reducectl: {path}: ", *messages], "reduce", path)

    def test_bad_raw(self):
        path = self.folder / "raw.bin"
        path.write_bytes(bytes(10))
        for arguments, messages in (
            (("--dtype", "f32"), ["10 bytes", "allowed: multiples of the 4 bytes of f32"]),
            (("--dtype", "u8", "--offset", 11), ["offset: got 11; allowed: 0 to 10"]),
            (("--dtype", "u8", "--shape", "3,4"), ["10 bytes", "(3, 4)", "12"]),
        ):
            self.check_failure(DATA_ERROR, messages, "reduce", path, *arguments)
        npy = self.save(np.ones(3))
        self.check_failure(DATA_ERROR, [".npy", "--format raw"], "reduce", npy, "--dtype", "f64")

    def test_larger_than_memory(self):
        path = self.folder / "large.bin"
        with open(path, "wb") as file:
            file.truncate(8 << 30)  # takes no room on the disk
        for via, message in (
            ("auto", "is too large for the memory of this process\n"),
            ("stream", "is too large for the memory of this process\n"),
            ("region", f"can't allocate {8 << 30} bytes of shared memory: mmap: Cannot allocate memory\n"),
        ):
            run = subprocess.run(
                harness.command("reduce", path, "--dtype", "u8", "--via", via),
                capture_output=True,
                timeout=harness.DEADLINE_S,
                env=harness.environment(self.server.unix),
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)),
                check=False,
            )
            self.assertEqual((run.returncode, run.stdout), (DATA_ERROR, b""))
            self.assertIn(f"reducectl: {path}: {message}", run.stderr.decode())

    def test_unreadable(self):
        self.check_failure(DATA_ERROR, ["No such file or directory"], "reduce", self.folder / "missing.npy")
        self.check_failure(DATA_ERROR, ["Is a directory"], "reduce", self.folder)
        self.check_failure(DATA_ERROR, ['column: got "co"; allowed: ', "date, co2"], "reduce", DATA / "co2.csv", "--column", "co")


class OutputTest(harness.ServedTest):
    @unittest.skipUnless(pathlib.Path("/dev/full").exists(), "there is no /dev/full")
    def test_output_that_can_not_be_written(self):
        with open("/dev/full", "wb") as full:
            run = subprocess.run(
                harness.command("reduce", DATA / "co2.npy"),
                stdout=full,
                stderr=subprocess.PIPE,
                timeout=harness.DEADLINE_S,
                env=harness.environment(self.server.unix),
                check=False,
            )
        self.assertEqual((run.returncode, run.stderr), (1, b"reducectl: can't write to standard output\n"))


if __name__ == "__main__":
    unittest.main()

"""Bad input of every kind: the exit code, and a message that says what, got, allowed."""

import gzip
import io
import os
import pathlib
import resource
import subprocess
import threading
import time
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

    def test_hostile_text_in_files_stays_text(self):
        """Headers of .npy and CSV, in errors, tables and JSON: no control character, no mark of direction reaches the
        terminal as it is, and what is wrong with an input takes one line."""
        hostile = "\x1b[2J\x07\r\n\x00\x7f\x9b31m\u202e\u2066\u2028"
        csv = "a" + hostile.replace("\n", "")  # a line feed ends a row

        def npy(header):
            encoded = header.encode()
            return b"\x93NUMPY\x01\x00" + len(encoded).to_bytes(2, "little") + encoded

        for name, content, arguments in (
            ("descr.npy", npy("{'descr': '%s', 'fortran_order': False, 'shape': (1,)}" % hostile), ()),
            ("key.npy", npy("{'%s': 1}" % hostile), ()),
            ("order.npy", npy("{'descr': '<f8', 'fortran_order': %s, 'shape': (1,)}" % hostile), ()),
            ("shape.npy", npy("{'descr': '<f8', 'fortran_order': False, 'shape': (%s,)}" % hostile), ()),
            ("all.npy", npy(hostile), ()),
            ("magic.npy", hostile.encode(), ()),
            ("names.csv", f"{csv},b\n1,2\n".encode(), ()),
            ("quoted.csv", f'"{hostile}",b\n1,2\n'.encode(), ()),
            ("value.csv", f"a\n{csv}\n".encode(), ()),
            ("value.csv", f"{csv}\n1\nx\n".encode(), ()),
            ("column.csv", b"a,b\n1,2\n", ("--column", hostile.replace("\0", ""))),
            ("nul.csv", b"a\n1\0" + bytes(1000), ()),
            ("latin1.csv", b"\x9b31m\xff,b\n1,2\n", ()),
        ):
            path = self.folder / name
            path.write_bytes(content)
            for json in ((), ("--json",)):
                with self.subTest(name=name, content=content, json=json):
                    run = self.run_reducectl(*json, "reduce", path, *arguments)
                    self.check_printable(run)
                    self.assertEqual(run.returncode, DATA_ERROR)
                    self.assertEqual(run.stderr.count(b"\n"), 1, run.stderr)
        path = self.folder / "good\x1b[2J\x9b\u202e\n.csv"
        path.write_bytes(f"{csv},b\n1,2\n".encode())
        for arguments in (("reduce", path), ("--json", "reduce", path), ("--json", "arrays", "put", path), ("merge", path)):
            with self.subTest(arguments=arguments):
                self.check_printable(self.run_reducectl(*arguments, *(("--column", "0") if "merge" not in arguments else ())))

    def check_printable(self, run):
        for text in (run.stdout, run.stderr):
            bad = [c for c in text.decode() if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u202e\u2066\u2028")]
            self.assertEqual(bad, [], text)

    def test_command_line(self):
        npy = DATA / "co2.npy"
        for arguments, messages in (
            ((), ["command: got none; allowed: reduce, describe, histogram, compare, fingerprint, corr, merge, arrays, "]),
            (("shrink",), ['command: got "shrink"; allowed: reduce, describe, histogram, compare, fingerprint, corr, merge, arrays, ', "; see reducectl --help"]),
            (("help", "reduce"), ['command: got "help"; allowed: reduce, ']),
            (("arrays", "show", "x"), ['arrays: subcommand: got "show"; allowed: put, list, get, delete; see reducectl arrays --help']),
            (("reduce", "--bogus", npy), ['reduce: option: got "--bogus"; allowed: those of reducectl reduce --help']),
            (("--bogus=1",), ['option: got "--bogus=1"; allowed: those of reducectl --help']),
            (("info", "x", "y"), ['info: got "x"; allowed: no further arguments; see reducectl info --help']),
            (("reduce",), ["FILE", "see reducectl reduce --help"]),
            (("reduce", npy, "--op", "sum,medain"), ['"medain"', "allowed: sum, prod, "]),
            (("reduce", npy, "--engine", "tpu"), ['"tpu"', "allowed: auto, cpu, cuda"]),
            (("reduce", npy, "--nan", "skip"), ['"skip"', "allowed: propagate, omit"]),
            (("reduce", npy, "--overflow", "clamp"), ['"clamp"', "allowed: error, wrap, saturate"]),
            (("reduce", npy, "--dtype", "float"), ['"float"', "allowed: bool, i8, "]),
            (("reduce", npy, "--ddof", "-1"), ['--ddof: got "-1"; allowed: whole numbers from 0;']),
            (("reduce", npy, "--ddof", "one"), ['--ddof: got "one"; allowed: whole numbers from 0;']),
            (("reduce", npy, "--dtype", "u8", "--offset", "-1"), ['--offset: got "-1"; allowed: numbers of bytes like 128 or 4Ki']),
            (("reduce", npy, "--dtype", "u8", "--offset", "1.5Ki"), ['--offset: got "1.5Ki"; allowed: numbers of bytes']),
            (("reduce", npy, "--block", "0"), ["--block", 'got "0"; allowed: whole numbers from 1']),
            (("reduce", npy, "--connections", "0"), ["--connections", 'got "0"; allowed: whole numbers from 1']),
            (("reduce", npy, "--connections", "65"), ["connections: got 65; allowed: 1 to 64"]),
            (("reduce", npy, "--offset", "8"), ["--dtype"]),
            (("reduce", npy, "--via", "post"), ['"post"', "allowed: auto, inline, stream, session, ring, region"]),
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
            ("object.npy", self.npy(np.array([1, None]), allow_pickle=True), ["objects"]),
            ("complex.npy", self.npy(np.ones(3, dtype="c8")), ["c8", "allowed"]),
            ("text.npy", self.npy(np.array(["a", "b"])), ["U1", "allowed"]),
            ("fields.npy", self.npy(np.ones(3, dtype=[("a", "f4")])), ["'a'", "allowed"]),
            ("not.npy", b"something else", ["isn't a .npy file"]),
            ("empty.npy", b"", ["isn't a .npy file"]),
            ("unknown.bin", b"\x001234", ["has an unknown format", "--dtype"]),
            ("nul.csv", b"a,b\n1,\0\n", ["isn't text", "NUL"]),
            ("utf16.csv", "a\n1\n".encode("utf-16"), ["got UTF-16; allowed: UTF-8"]),
            ("ragged.csv", b"a\n1\n1,2\n", ["line 3: got 2 fields; allowed: 1, as line 1 has"]),
            ("large.csv", b"a\n18446744073709551616\n", ["line 2", "whole numbers from -2^63 to 2^64 - 1", "--dtype"]),
            ("both.csv", b"a,7\nb,8\n", ["line 1: header: got both text and numbers (a, 7)", "--header"]),
            ("not.npz", b"PK\x03\x04 no zip archive", ["bad .npz file"]),
            ("cut.csv.gz", gzip.compress(b"a\n1\n2\n")[:-9], ["bad gzip data: it is truncated"]),
            ("not.csv.zst", b"\x28\xb5\x2f\xfd nothing of the kind", ["bad Zstandard data"]),
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
            (("--dtype", "u8", "--offset", "1KiB"), ["offset: got 1024; allowed: 0 to 10"]),
            (("--dtype", "u8", "--shape", "3,4"), ["10 bytes", "(3, 4)", "12"]),
        ):
            self.check_failure(DATA_ERROR, messages, "reduce", path, *arguments)
        npy = self.save(np.ones(3))
        self.check_failure(DATA_ERROR, [".npy", "--format raw"], "reduce", npy, "--dtype", "f64")

    def test_larger_than_memory(self):
        path = self.folder / "large.bin"
        with open(path, "wb") as file:
            file.truncate(8 << 30)  # takes no room on the disk
        for arguments, message in (
            (("--via", "session"), "is too large for the memory of this process\n"),
            (("--via", "region"), f"can't allocate {8 << 30} bytes of shared memory: mmap: Cannot allocate memory\n"),
        ):
            run = subprocess.run(
                harness.command("reduce", path, "--dtype", "u8", *arguments),
                capture_output=True,
                timeout=harness.DEADLINE_S,
                env=harness.environment(self.server.unix),
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)),
                check=False,
            )
            self.assertEqual((run.returncode, run.stdout), (DATA_ERROR, b""))
            self.assertIn(f"reducectl: {path}: {message}", run.stderr.decode())

    def check_late(self, started, timeout_s, *arguments, **keywords):
        self.check_failure(DATA_ERROR, [f"hasn't ended within {timeout_s}"], *arguments, **keywords)
        self.assertLess(time.monotonic() - started, 20)

    def test_inputs_without_an_end_keep_the_timeout(self):
        fifo = self.folder / "fifo.csv"
        os.mkfifo(fifo)
        commands = (("reduce", fifo), ("reduce", fifo, "--via", "session"), ("arrays", "put", fifo), ("merge", fifo),
                    ("ladder", "--from", fifo), ("loadtest", "compare", fifo, fifo))  # fmt: skip
        for command in commands:
            with self.subTest(command=command):  # nobody writes
                self.check_late(time.monotonic(), "300ms", *command, "--timeout", "300ms")
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        writer = os.open(fifo, os.O_WRONLY)
        self.addCleanup(os.close, writer)
        os.close(reader)
        for command in commands:
            with self.subTest(command=command):  # somebody might
                self.check_late(time.monotonic(), "300ms", *command, "--timeout", "300ms")
        zeros = ("--dtype", "u8")
        self.check_late(time.monotonic(), "50ms", "reduce", "/dev/zero", *zeros, "--timeout", "50ms")
        self.check_late(time.monotonic(), "50ms", "merge", "/dev/zero", "--timeout", "50ms")
        read, write = os.pipe()
        self.addCleanup(os.close, write)
        run = subprocess.run(
            harness.command("reduce", "-", *zeros, "--timeout", "300ms"),
            stdin=read,
            capture_output=True,
            timeout=harness.DEADLINE_S,
            env=harness.environment(self.server.unix),
            check=False,
        )
        os.close(read)
        self.assertEqual((run.returncode, run.stderr), (DATA_ERROR, b"reducectl: -: hasn't ended within 300ms\n"))

    def test_a_fifo_that_ends_is_an_input(self):
        fifo = self.folder / "fifo"
        os.mkfifo(fifo)
        for timeout in ((), ("--timeout", "30s")):
            writer = threading.Thread(target=lambda: fifo.write_bytes(bytes(range(200)) * 1000))
            writer.start()
            answer = self.reduce(fifo, "sum", "--dtype", "u8", *timeout)
            writer.join(harness.DEADLINE_S)
            self.assertEqual(answer["results"], {"sum": 19_900_000})

    def test_endless_inputs_end_before_the_memory(self):
        limit = 2 << 30
        for command in (("reduce", "/dev/zero", "--dtype", "u8"), ("merge", "/dev/zero")):
            run = subprocess.run(
                harness.command(*command),
                capture_output=True,
                timeout=harness.DEADLINE_S,
                env=harness.environment(self.server.unix),
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
                check=False,
            )
            self.assertEqual((run.returncode, run.stdout), (DATA_ERROR, b""), run.stderr)
            allowed = "allowed: at most that, a third of the memory that is available"
            self.assertEqual(
                run.stderr.decode(), f"reducectl: /dev/zero: input: got more than {limit // 3} bytes; {allowed}\n"
            )

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

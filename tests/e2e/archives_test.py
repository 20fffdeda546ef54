"""Containers of arrays as people have them: compressed, in zip archives, written by scipy, by Python 2 and by NumPy 2."""

import bz2
import gzip
import io
import json
import lzma
import resource
import shutil
import subprocess
import unittest
import zipfile

import harness
from harness import np

DATA_ERROR = 5


def npy(header, data):
    """A .npy file with this header, as other writers than NumPy make it."""
    header = header.encode() + b"\n"
    return b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + data


class ArchivesTest(harness.ServedTest):
    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content)
        return path

    def zip(self, name, files):
        path = self.folder / name
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for file, content in files.items():
                archive.writestr(file, content)
        return path

    def lines(self, *arguments, code=DATA_ERROR):
        """What is printed on standard output and standard error, of a command that fails."""
        run = self.run_reducectl(*arguments)
        self.assertEqual(run.returncode, code, run.stderr)
        return run.stdout.decode().splitlines(), run.stderr.decode().splitlines()

    def save_sparse(self):
        """As scipy.sparse.save_npz does."""
        path = self.folder / "sparse.npz"
        np.savez_compressed(path, indices=np.array([0, 2, 1], "i4"), indptr=np.array([0, 2, 3], "i4"),
                            format=np.array(b"csr"), shape=np.array([2, 3]), data=np.array([1.5, 2.5, 4.0]))
        return path


class CompressedTest(ArchivesTest):
    text = b"n\n" + b"".join(b"%d\n" % i for i in range(50_000))
    total = 50_000 * 49_999 // 2

    def variants(self):
        text = self.text
        yield "padded.csv.gz", gzip.compress(text) + bytes(512)
        yield "members.csv.gz", gzip.compress(text[:999]) + bytes(7) + gzip.compress(text[999:]) + bytes(100_000)
        yield "a.csv.bz2", bz2.compress(text[:999]) + bz2.compress(text[999:]) + bytes(3)
        yield "a.csv.xz", lzma.compress(text[:999]) + lzma.compress(text[999:]) + bytes(512)
        yield "a.csv.zip", self.zip("x.zip", {"a/a.csv": text, "__MACOSX/a/._a.csv": b"\0\5\x16\7"}).read_bytes()
        for name, command in (("long.csv.zst", ["zstd", "--long=31", "-c"]), ("parts.csv.zst", ["pzstd", "-p", "3", "-c"])):
            if shutil.which(command[0]):
                yield name, subprocess.run(command, input=text, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout

    def test_each_is_read_and_none_is_read_in_part(self):
        for name, content in self.variants():
            with self.subTest(name=name):
                path = self.write(name, content)
                self.assertEqual(self.reduce(path, "sum,count")["results"], {"sum": self.total, "count": 50_000})
                self.assertEqual(self.reduce("-", "sum", stdin=content)["results"]["sum"], self.total)
                end = len(content.rstrip(b"\0"))
                for size in (end // 3, end // 2, end - 25):
                    self.check_failure(DATA_ERROR, ["bad "], "reduce", self.write(name, content[:size]))
                damaged = bytearray(content)
                damaged[end // 2] ^= 4
                self.check_failure(DATA_ERROR, [f"{name}: "], "reduce", self.write(name, damaged))

    def test_arrays(self):
        array = np.random.default_rng(7).integers(0, 1000, 700_000)
        saved = io.BytesIO()
        np.save(saved, array)
        for name, content in (("a.npy.xz", lzma.compress(saved.getvalue(), preset=0)), ("a.npy.bz2", bz2.compress(saved.getvalue(), 1))):
            path = self.write(name, content)
            for arguments in ((), ("--via", "region"), ("--axis", "0"), ("--axis", "0", "--server", "local:")):
                self.assertEqual(self.reduce(path, "sum", *arguments)["results"]["sum"], array.sum())
        raw = self.write("a.bin.xz", lzma.compress(array.tobytes(), preset=0))
        self.assertEqual(self.reduce(raw, "sum", "--dtype", "i64")["results"]["sum"], array.sum())

    def test_what_is_no_container_of_numbers(self):
        for name, content, message in (
            ("a.csv.lzma", lzma.compress(b"1\n", lzma.FORMAT_ALONE), "is compressed with LZMA (.lzma); allowed: .npy"),
            ("a.csv", b"PAR1\x15\0\x15", "is a Parquet file; allowed: .npy"),
            ("a.h5", b"\x89HDF\r\n\x1a\n\0", "is an HDF5 or NetCDF-4 file; allowed: .npy"),
            ("a.csv.gz", gzip.compress(gzip.compress(b"1\n")), "is gzip data within gzip data; allowed: compressed once"),
            ("a.csv.gz", gzip.compress(b"1\n") + b"# made by hand\n", "bad gzip data: incorrect header check, in what follows"),
            ("a.zip", self.zip("x.zip", {"a.csv": b"1\n", "b.csv": b"2\n"}).read_bytes(), "a zip archive of 2 files (a.csv, b.csv)"),
            ("a.npz", self.zip("x.zip", {"a.csv": b"1\n", "b.csv": b"2\n"}).read_bytes(), "a zip archive of 2 files (a.csv, b.csv)"),
        ):
            self.check_failure(DATA_ERROR, [message], "reduce", self.write(name, content))

    def test_windows_that_the_memory_has_no_room_for(self):
        limit = 1 << 30
        path = self.write("a.csv.zst", b"\x28\xb5\x2f\xfd\0\xa8" + b"\x01\0\0")  # 2^31
        run = subprocess.run(
            harness.command("reduce", path, "--server", "local:"),
            capture_output=True,
            timeout=harness.DEADLINE_S,
            env=harness.environment(),
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
            check=False,
        )
        self.assertEqual((run.returncode, run.stdout), (DATA_ERROR, b""))
        self.assertIn(b"bad Zstandard data: its window is larger than 536870912 bytes; allowed: at most that, half", run.stderr)


class NpzTest(ArchivesTest):
    def test_an_array_of_text_among_others(self):
        path = self.folder / "a.npz"
        np.savez(path, a=np.array([0, 1, 2]), b=np.array(["x"]), c=np.array([0, 1, 2, 3]))
        for arguments in ((), ("--via", "session"), ("--via", "region"), ("--server", "local:"), ("--axis", "0")):
            output, errors = self.lines("reduce", path, "--op", "sum", "-q", *arguments)
            separator = "\t"
            self.assertEqual(output, [f"a{separator}3", f"c{separator}6"], arguments)
            self.assertEqual(len(errors), 1)
            self.assertRegex(errors[0], r'\Areducectl: \S+: array "b": dtype: got \'<U1\'; allowed: b1, ')
        output, errors = self.lines("describe", path)
        self.assertEqual([line.split()[1:3] for line in output[1:]], [["a", "i64"], ["c", "i64"]])
        self.assertEqual(len(errors), 1)
        ids, errors = self.lines("arrays", "put", path)
        self.assertEqual((len(ids), len(errors)), (2, 1))
        for id, total in zip(ids, (3, 6)):
            (answer,) = self.answers("reduce", "--array", id, "--op", "sum")
            self.assertEqual(answer["results"]["sum"], total)
            self.text("arrays", "delete", id)

    def text(self, *arguments):
        run = self.run_reducectl(*arguments)
        self.assertEqual((run.returncode, run.stderr), (0, b""))
        return run.stdout.decode()

    def test_sparse_matrices(self):
        path = self.save_sparse()
        output, errors = self.lines("--json", "reduce", path, "--op", "sum")
        got = {answer["array"]: answer["results"]["sum"] for answer in map(json.loads, output)}
        self.assertEqual(got, {"indices": 3, "indptr": 5, "shape": 5, "data": 8.0})
        self.assertEqual(len(errors), 1)
        self.assertIn("array \"format\": dtype: got '|S3'", errors[0])
        self.assertEqual(self.text("reduce", path, "--array", "data", "--op", "sum", "-q"), "8.0\n")
        rows = self.text("reduce", path, "--array", "data", "--op", "sum", "--segments", f"{path}:indptr", "-q")
        self.assertEqual(rows, "[4.0 4.0]\n")
        self.check_failure(DATA_ERROR, ["--segments", 'array "format": dtype'], "reduce", path, "--array", "data", "--segments",
                           f"{path}:format")

    def test_names_can_not_move_the_cursor(self):
        path = self.zip("a.npz", {"a\x1b[2J\n.npy": b"nothing", "b\x9b.npy": b"nothing"})
        run = self.run_reducectl("reduce", path)
        self.assertEqual(run.returncode, DATA_ERROR)
        for byte in (b"\x1b", b"\x9b", b"\x07"):
            self.assertNotIn(byte, run.stderr.replace(b"\xc2\x9b", b"?").replace("\u2190".encode(), b"?"))
        self.assertEqual(run.stderr.count(b"\n"), 2)

    def test_what_is_no_array_is_said(self):
        path = self.folder / "a.npz"
        np.savez(path, a=np.arange(3))
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("readme.txt", "hello")
        note = "is read as a .npz file, without what isn't .npy in it: readme.txt"
        run = self.run_reducectl("reduce", path, "--op", "sum", "-q")
        self.assertEqual((run.returncode, run.stdout, run.stderr.decode()), (0, b"3\n", f"reducectl: {path}: {note}\n"))

    def test_sizes_that_are_not_there(self):
        huge = npy("{'descr': '<f8', 'fortran_order': True, 'shape': (1000000, 1000000), }", b"x")
        good = npy("{'descr': '<f8', 'fortran_order': True, 'shape': (2, 1), }", np.ones(2).tobytes())
        path = self.zip("a.npz", {"a.npy": huge, "b.npy": good})
        output, errors = self.lines("reduce", path, "--op", "sum,argmax", "-q")
        self.assertEqual(output, ["b\t2.0\t0"])
        self.assertIn('array "a": is truncated: got 1 bytes of data; allowed: 8000000000000', errors[0])
        self.check_failure(DATA_ERROR, ["allowed: at most", "a third of the memory"], "reduce",
                           self.write("a.npy.gz", gzip.compress(huge)), "--op", "argmax")


class NpyTest(ArchivesTest):
    def test_headers_of_others(self):
        data = np.arange(6.0).tobytes()
        for header in (
            "{'descr': '<f8', 'fortran_order': False, 'shape': (3L, 2L), }",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (np.int64(3), np.int64(2)), }",
            "{u'shape': (3, 2L), u'fortran_order': False, u'descr': u'=f8'}",
            "{'descr': 'float64', 'fortran_order': False, 'shape': (3, 2)}",
        ):
            answer = self.reduce(self.write("a.npy", npy(header, data)), "sum")
            self.assertEqual((answer["dtype"], answer["shape"], answer["results"]["sum"]), ("f64", [3, 2], 15.0), header)

    def test_bf16_without_a_type(self):
        data = (np.array([1, 2, -0.5], "f4").view("u4") >> 16).astype("u2").tobytes()
        header = "{'descr': '|V2', 'fortran_order': False, 'shape': (3,), }"
        path = self.write("a.npy", npy(header, data))
        self.check_failure(DATA_ERROR, ["dtype: got '|V2'; allowed: ", "|V2 with --dtype bf16"], "reduce", path)
        for arguments in ((), ("--format", "npy")):
            answer = self.reduce(path, "sum", "--dtype", "bf16", *arguments)
            self.assertEqual((answer["dtype"], answer["results"]["sum"]), ("bf16", 2.5))
        path = self.write("a.npy", npy(header.replace("V2", "V1"), data[:3]))
        self.check_failure(DATA_ERROR, ["dtype: got '|V1'; allowed: "], "reduce", path, "--dtype", "bf16")
        self.check_failure(DATA_ERROR, ["got bf16 for a .npy file, which has its own dtype, f64"], "reduce",
                           self.save(np.ones(3)), "--dtype", "bf16")

    def test_floats_of_8_bits(self):
        data, shape = bytes([0x38, 0xC0, 0x01]), "'fortran_order': False, 'shape': (3,), }"
        # As ml_dtypes saves f8_e5m2, which has an unambiguous name.
        path = self.write("a.npy", npy("{'descr': '<f1', " + shape, bytes([0x3C, 0xC0, 0x01])))
        for arguments in ((), ("--dtype", "f8_e5m2")):
            answer = self.reduce(path, "sum,min", *arguments)
            self.assertEqual((answer["dtype"], answer["results"]), ("f8_e5m2", {"sum": -1 + 2**-16, "min": -2.0}))
        self.check_failure(DATA_ERROR, ["got f8_e4m3fn for a .npy file, which has its own dtype, f8_e5m2"], "reduce", path, "--dtype", "f8_e4m3fn")
        # As it and NumPy save the others: any of them.
        for order in "<|":
            path = self.write("a.npy", npy("{'descr': '" + order + "V1', " + shape, data))
            self.check_failure(DATA_ERROR, [f"dtype: got '{order}V1'; allowed: ", "with --dtype f8_e4m3fn, f8_e5m2 or f8_e8m0fnu"], "reduce", path)
            self.check_failure(DATA_ERROR, [f"dtype: got '{order}V1'; allowed: "], "reduce", path, "--dtype", "bf16")
            for dtype, found in (("f8_e4m3fn", -1 + 2**-9), ("f8_e8m0fnu", 2.0**-71 + 2.0**65 + 2.0**-126)):
                answer = self.reduce(path, "sum", "--dtype", dtype)
                self.assertEqual((answer["dtype"], answer["results"]["sum"]), (dtype, found))
        self.check_failure(DATA_ERROR, ["dtype: got '|V2'; allowed: "], "reduce",
                           self.write("a.npy", npy("{'descr': '|V2', " + shape, data * 2)), "--dtype", "f8_e4m3fn")

    def test_two_arrays_in_one_file(self):
        saved = io.BytesIO()
        np.save(saved, np.arange(3))
        np.save(saved, np.arange(5))
        message = ["data: got another array after the first one, as a second numpy.save appends it"]
        self.check_failure(DATA_ERROR, message, "reduce", self.write("a.npy", saved.getvalue()))
        self.check_failure(DATA_ERROR, message, "reduce", self.write("a.npy.xz", lzma.compress(saved.getvalue(), preset=0)))
        self.check_failure(DATA_ERROR, message, "reduce", "-", stdin=saved.getvalue())


if __name__ == "__main__":
    unittest.main()

"""Files as people have them: what reducectl reads, and how much memory that takes."""

import gzip
import io
import json
import os
import shutil
import subprocess
import threading
import unittest

import harness
from harness import np

USAGE, DATA_ERROR = 2, 5


class FilesTest(harness.ServedTest):
    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def results(self, *arguments, **keywords):
        """For each array: its column or name, its dtype, and the results."""
        return [
            (answer.get("column") or answer.get("array"), answer["dtype"], *answer["results"].values())
            for answer in self.answers("reduce", *arguments, **keywords)
        ]

    def sums(self, *arguments, **keywords):
        return self.results(*arguments, "--op", "sum", **keywords)


class TextTest(FilesTest):
    def test_headers(self):
        years = self.write("years.csv", "2019,2020\n1.5,2.5\n3,4\n")
        self.assertEqual(self.sums(years, "--column", "2020"), [("2020", "f64", 6.5)])
        message = "line 1: header: got different whole numbers only (2019, 2020); add --header yes "
        self.check_failure(DATA_ERROR, [message, "line 2 (1.5, 2.5)", "--header no"], "reduce", years, "--column", "0")
        self.assertEqual(self.sums(years, "--column", "0", "--header", "no"), [("0", "f64", 2023.5)])
        self.assertEqual(self.sums(years, "--column", "0", "--header", "yes"), [("2019", "f64", 4.5)])
        for text, column, total in (("7,8\n1,2\n", "8", 2), ("-7,8\n1,2\n", "1", 10), ("8,8\n1,2\n", "1", 10)):
            path = self.write("numbers.csv", text)
            self.assertEqual(self.sums(path, "--column", column), [(column, "i64", total)])
        for text in ("a,7\nb,8\n", "1e999\n2\n3\n", "0x10\n2\n", "0 1 2 3 4 5\n", "0,1,2,3\n4,5,6,7\n", "ada,null\nbob,3\n", "-\n2\n"):
            path = self.write("both.csv", text)
            self.check_failure(DATA_ERROR, ["line 1: header: got ", "--header yes", "--header no"], "describe", path)

    def test_missing_fields_of_whole_numbers(self):
        path = self.write("gaps.csv", "id,v,k\na,1582218195625938945,1\nb,,2\nc,123,1\n")
        ops = ("--column", "v", "--op", "max,sum,count,nan_count,argmin", "--nan", "omit")
        want = [("v", "i64", 1582218195625938945, 1582218195625939068, 2, 1, 2)]
        for more in ((), ("--dtype", "i64"), ("--via", "session"), ("--via", "stream"), ("--via", "region"), ("--via", "ring")):
            self.assertEqual(self.results(path, *ops, *more), want, more)
        self.assertEqual(self.results(path, "--column", "v", "--op", "count,nan_count"), [("v", "i64", 3, 1)])
        message = 'line 3: column "v": got a missing field; allowed: elements of i64'
        self.check_failure(DATA_ERROR, [message, "--nan omit"], "reduce", path, "--column", "v")
        self.check_failure(DATA_ERROR, [message], "arrays", "put", path, "--column", "v")
        self.check_failure(DATA_ERROR, ['--keys: line 3: column "v": got a missing field; allowed: integers'], "reduce", path, "--column",
                           "k", "--keys", f"{path}:v", "--groups", "9")
        (dropped,) = self.answers("reduce", path, "--column", "k", "--op", "sum", "--keys", f"{path}:v")
        self.assertEqual((dropped["keys"]["values"], dropped["rows_without_key"]), ([123, 1582218195625938945], 1))
        self.check_failure(DATA_ERROR, [message], "reduce", path, "--column", "v", "--keys", f"{path}:k")
        self.check_failure(DATA_ERROR, ["missing elements", "--state"], "reduce", path, *ops, "--state", self.folder / "state")
        state = ("reduce", path, "--column", "v", "--op", "sum,count", "--nan", "omit", "--state", self.folder / "state")
        self.assertEqual(self.run_reducectl(*state).returncode, 0)
        (merged,) = self.answers("merge", self.folder / "state")
        self.assertEqual(merged["results"], {"sum": 1582218195625939068, "count": 2})
        (groups,) = self.answers("reduce", path, *ops[:2], "--op", "sum,count,nan_count", "--nan", "omit", "--keys", f"{path}:k")
        self.assertEqual(groups["keys"]["values"], [1, 2])
        self.assertEqual([result["values"] for result in groups["results"].values()], [[1582218195625939068, 0], [2, 0], [0, 1]])
        mask = self.save(np.array([True, True, False]), "mask.npy")
        (some,) = self.answers("reduce", path, *ops[:2], "--op", "sum,count,nan_count", "--nan", "omit", "--where", mask)
        self.assertEqual(list(some["results"].values()), [1582218195625938945, 1, 1])

    def test_whole_numbers_beside_others(self):
        path = self.write("n.csv", "v\n9007199254740993\n0.5\n")
        self.check_failure(DATA_ERROR, ['line 3: column "v": got "0.5"', "line 2 has 9007199254740993"], "reduce", path)
        self.assertEqual(self.sums(path, "--dtype", "f64"), [("v", "f64", 9007199254740992.5)])
        self.assertEqual(self.sums(self.write("n.csv", "v\n1e3\n9007199254740993\n")), [("v", "i64", 9007199254741993)])
        self.assertEqual(self.results(self.write("n.csv", "v\n1\n18446744073709551615\n"), "--op", "max"), [("v", "u64", 2**64 - 1)])

    def test_rows_with_a_number_sign(self):
        self.assertEqual(self.sums(self.write("t.csv", "tag,n\n#a,1\n#b,2\nc,3\n"), "--column", "n"), [("n", "i64", 6)])
        self.assertEqual(self.sums(self.write("t.csv", "#id,x\n1,2\n"), "--column", "x"), [("x", "i64", 2)])
        path = self.write("t.csv", "v\n1\n#2\n3\n")
        self.check_failure(DATA_ERROR, ["line 3", '"#2"'], "reduce", path)
        run = self.run_reducectl("reduce", path, "--comment", "#", "--op", "sum", "-q")
        self.assertEqual((run.returncode, run.stdout), (0, b"4\n"))
        self.assertIn(b"line 3 (#2) is skipped as a comment\n", run.stderr)

    def test_decimal_commas(self):
        for text, total in (("k;v\na;1.234\nb;2.500\n", 3734), ("k;v\na;1.234,5\nb;2,5\n", 1237.0), ("k;v\na;1 234,5\nb;2'000\n", 3234.5)):
            path = self.write("t.csv", text)
            ((_, _, got),) = self.sums(path, "--column", "v", "--decimal", ",")
            self.assertEqual(got, total)
        path = self.write("t.csv", "k;v;w\na;1,5;1\nb;2,5;2\n")
        run = self.run_reducectl("describe", path)
        self.assertEqual(run.returncode, DATA_ERROR)
        self.assertIn(b'column "v": got "1,5"; allowed: numbers in the range of f64; --decimal , reads it as 1.5', run.stderr)
        self.assertIn(b": w  i64", run.stdout)

    def test_words_for_missing_values(self):
        for word in ("-1.#IND", ".", "\\N", "****", "-9999", "-"):
            path = self.write("t.csv", f"v\n1\n{word}\n3\n")
            got = self.results(path, "--missing", f"?,{word}", "--nan", "omit", "--op", "sum,nan_count")
            self.assertEqual(got, [("v", "i64", 4, 1)])

    def test_rows_that_are_not_like_their_header(self):
        for text, column, total in (
            ("A,B,C\n1,4,7,\n2,5,8,\n3,6,9,", "B", 15),
            ('"x" "y"\n"1" 2 3\n"2" 4 5\n', "y", 8),
            ("x\ty\n1\t2\t3\n2\t4\t5\n", "x", 6),
        ):
            run = self.run_reducectl("reduce", self.write("t.csv", text), "--column", column, "--op", "sum", "-q")
            self.assertEqual((run.returncode, run.stdout), (0, b"%d\n" % total), run.stderr)
            self.assertIn(b"row", run.stderr)
        self.assertEqual(self.sums(self.write("t.csv", "a\r1\r2\r")), [("a", "i64", 3)])
        self.check_failure(DATA_ERROR, ["line 2", "--decimal ,", "--delimiter ,"], "reduce", self.write("t.csv", "x\n1,5\n2,5\n"))

    def test_json_lines(self):
        text = '{"a": 1, "b": "x"}\n{"a": 9007199254740993, "c": 2.5}\n{"a": null}\n'
        for path in (self.write("t.jsonl", text), self.write("t.txt", text)):
            self.assertEqual(self.results(path, "--column", "a", "--op", "sum", "--nan", "omit"), [("a", "i64", 9007199254740994)])
            self.assertEqual(self.results(path, "--column", "c", "--op", "count,nan_count"), [("c", "f64", 3, 2)])
        self.check_failure(DATA_ERROR, ["line 2: bad JSON"], "reduce", self.write("t.jsonl", '{"a": 1}\n{"a": 2\n'))

    def test_rows_have_as_many_fields_as_the_header(self):
        for rows, line in (("b;a\n1,5;2\n1;2;3\n", 3), ("a,b\n1\n", 2), ("a\n1\n1,5\n", 3)):
            path = self.write("ragged.csv", rows)
            self.check_failure(DATA_ERROR, [f"line {line}: got "], "reduce", path, "--column", "a")

    def test_integers_are_exact(self):
        path = self.write("n.csv", "n\n9007199254740993\n")
        self.assertEqual(self.sums(path), [("n", "i64", 9007199254740993)])
        self.assertEqual(self.sums(path, "--dtype", "f64"), [("n", "f64", 9007199254740992.0)])
        path = self.write("n.csv", "n\n18446744073709551616\n")
        self.check_failure(DATA_ERROR, ["line 2", "-2^63 to 2^64 - 1", "--dtype f64"], "reduce", path)
        self.assertEqual(self.sums(self.write("n.csv", "1\n2.5\n")), [("0", "f64", 3.5)])
        self.assertEqual(self.sums(self.write("n.csv", "1\n2\n"), "--dtype", "i16"), [("0", "i16", 3)])

    def test_delimiters(self):
        for text in ("a;b\n1;2\n", "a\tb\n1\t2\n", "a b\n1   2\n", "a|b\n1|2\n", "a,b\n1,2\n"):
            self.assertEqual(self.sums("-", "--column", "b", stdin=text.encode()), [("b", "i64", 2)])
        odd = self.write("odd.txt", "a:b\n1:2\n")
        self.assertEqual(self.sums(odd, "--delimiter", ":", "--column", "b"), [("b", "i64", 2)])
        german = self.write("german.csv", "a;b\n1,5;2\n")
        self.check_failure(DATA_ERROR, ['got "1,5"', "--decimal ,"], "reduce", german, "--column", "a")
        self.assertEqual(self.sums(german, "--column", "a", "--decimal", ","), [("a", "f64", 1.5)])
        for arguments, message in (
            (("--delimiter", "ab"), '--delimiter: got "ab"; allowed: one character'),
            (("--header", "maybe"), '--header: got "maybe"; allowed: auto, yes, no'),
            (("--decimal", ";"), '--decimal: got ";"; allowed: . and ,'),
        ):
            self.check_failure(USAGE, [message], "reduce", german, *arguments)

    def test_fields(self):
        text = '\ufeffid,n,ok\n1,1234,True\n2,NA,False\n3,null,True\n4,,True\n'
        path = self.write("fields.csv", text)
        got = self.results(path, "--column", "all", "--op", "sum,nan_count", "--nan", "omit")
        self.assertEqual(got, [("id", "i64", 10, 0), ("n", "i64", 1234, 3), ("ok", "bool", 3, 0)])
        self.assertEqual(self.sums(path, "--column", "ok", "--column", "id"), [("ok", "bool", 3), ("id", "i64", 10)])

    def test_every_column(self):
        path = self.write("t.csv", "name,x,y\nada,1,0.5\nbob,2,0.25\n")
        run = self.run_reducectl("reduce", path, "--column", "all", "--op", "sum", "-q")
        self.assertEqual((run.returncode, run.stdout), (0, b"x\t3\ny\t0.75\n"))
        self.assertEqual(run.stderr.decode(), f'reducectl: {path}: column "name" isn\'t numbers, and is left out: line 2 has "ada"\n')
        self.check_failure(DATA_ERROR, ["3 columns (name, x, y)", "--column all"], "reduce", path)

    def test_a_header_without_rows(self):
        for text in ("price\n", "a,b\n"):
            path = self.write("one.csv", text)
            run = self.run_reducectl("reduce", path, "--column", "0", "--op", "sum", "-q")
            self.assertEqual((run.returncode, run.stdout), (0, b"0.0\n"), run.stderr)
            self.assertIn(f"reducectl: {path}: line 1 ({text[0]}", run.stderr.decode())
            self.assertIn(") is taken as the header, and no row follows it\n", run.stderr.decode())

    def test_describe_what_has_no_minimum_or_no_sum(self):
        path = self.folder / "missing.csv"
        path.write_text("a,none,large\n1,NA,9223372036854775807\n2,,1\n")
        empty, zero = self.save(np.zeros((0, 5)), "empty.npy"), self.save(np.full(3, np.nan), "nan.npy")
        run = self.run_reducectl("describe", path, empty, zero)
        self.assertEqual(run.returncode, 0, run.stderr.decode())
        self.assertRegex(run.stderr.decode(), r"\Areducectl: \S+: column large: integer overflow: the sum [^\n]+\n\Z")
        lines = [line.split()[-13:] for line in run.stdout.decode().splitlines()]
        self.assertEqual(lines[1][:3] + lines[1][4:],
                         ["i64", "2", "0", "0.7071067811865476", "1", "1.25", "1.5", "1.75", "2", "0", "1", "3"])
        nothing = ["NaN", "NaN", "-", "NaN", "NaN", "NaN", "-", "-", "-", "0.0"]
        self.assertEqual(lines[2], ["f64", "0", "2", *nothing])
        self.assertEqual((lines[3][:3], lines[3][5], lines[3][9:]), (["i64", "2", "0"], "1", ["9223372036854775807", "1", "0", "-"]))
        self.assertEqual(lines[4:], [["f64", "0", "0", *nothing], ["f64", "0", "3", *nothing]])
        run = self.run_reducectl("--json", "describe", path)
        (a, none, large) = (json.loads(line)["results"] for line in run.stdout.splitlines())
        self.assertEqual((a["min"], none["min"], none["argmax"], large["sum"], large["max"]), (1, None, None, None, 2**63 - 1))

    def test_describe(self):
        path = self.write("t.csv", "x,y\n1,0.5\n2,NA\n4,0.25\n")
        x, y = self.answers("describe", path)
        want = {"count": 3, "missing": 0, "mean": 7 / 3, "std": 1.5275252316519468, "min": 1, "25%": 1.5, "50%": 2, "75%": 3, "max": 4,
                "argmin": 0, "argmax": 2, "sum": 7}  # fmt: skip
        self.assertEqual(x["results"], want | {"nan_count": 0})
        self.assertEqual((x["column"], x["dtype"], x["ddof"]), ("x", "i64", 1))
        y = y["results"]
        self.assertEqual((y["nan_count"], y["mean"], y["argmin"], y["sum"]), (1, 0.375, 2, 0.75))
        (v,) = self.answers("describe", self.write("v.csv", "v\nNA\n9007199254740993\n1\n"))
        exact = {"dtype": "i64", "count": 2, "nan_count": 1, "argmin": 2, "argmax": 1, "max": 2**53 + 1, "sum": 2**53 + 2}
        self.assertEqual({name: (v | v["results"])[name] for name in exact}, exact)
        run = self.run_reducectl("describe", path, self.save(np.arange(5)))
        self.assertEqual((run.returncode, run.stderr), (0, b""))
        lines = run.stdout.decode().splitlines()
        self.assertEqual(lines[0].split(), ["DTYPE", *map(str.upper, want)])
        self.assertEqual([line.split()[:2] for line in lines[1:3]], [[f"{path}:", "x"], [f"{path}:", "y"]])
        self.assertEqual(lines[3].split()[1:3], ["i64", "5"])

    def test_long_texts_come_in_pieces(self):
        """One column has other numbers in a later piece only, another one a NaN."""
        rows = 1 << 20
        numbers = np.random.default_rng(3).integers(-1000, 1000, rows)
        header = ",".join(f"c{i}" for i in range(40))
        tail = "," + ",".join("1" * 38)
        with open(self.folder / "long.csv", "w") as file:
            file.write(header + "\n")
            for i, n in enumerate(numbers):
                file.write(f"{n},{0.5 if i == rows - 5 else i % 3}{tail}\n")
        arguments = ("--op", "sum,argmax,count,std", "--column", "c0", "--column", "c1", "--column", "all")
        answers = self.answers("reduce", self.folder / "long.csv", *arguments)
        other = np.arange(rows) % 3
        want = [int(numbers.sum()), int(numbers.argmax()), rows, np.std(numbers)]
        self.assertEqual(len(answers), 42)
        for answer, dtype, total in ((answers[0], "i64", want[0]), (answers[1], "f64", other.sum() - other[-5] + 0.5)):
            self.assertEqual((answer["dtype"], answer["results"]["sum"]), (dtype, total))
        self.assertEqual([answers[0]["results"][op] for op in ("argmax", "count")], want[1:3])
        self.assertAlmostEqual(answers[0]["results"]["std"], want[3], places=9)
        self.assertEqual(answers[41]["results"]["sum"], rows)

    def test_pieces_need_no_results_by_themselves(self):
        """One column has no value for most of its rows, in another one the sum overflows until the last rows."""
        rows, large = 10 << 20, 2**62
        with open(self.folder / "long.csv", "w") as file:
            file.write("x,y\n")
            for _ in range(16):
                file.write(f",{large // 8}\n")
            file.write(",0\n" * rows)
            file.write(f"3,{-large}\n5,{-large}\n")
        (x,) = self.answers("reduce", self.folder / "long.csv", "--column", "x", "--op", "min,argmin,nan_count", "--nan", "omit")
        self.assertEqual(list(x["results"].values()), [3, rows + 16, rows + 16])
        self.assertEqual(x["dtype"], "i64")
        (y,) = self.answers("reduce", self.folder / "long.csv", "--column", "y", "--op", "sum")
        self.assertEqual(y["results"]["sum"], 0)


class NumpyTest(FilesTest):
    def test_npz(self):
        arrays = {"x": np.arange(12, dtype="f4").reshape(3, 4), "y": np.arange(300000), "big": np.ones(3, ">i2")}
        want = [("x", "f32", 66.0), ("y", "i64", 44999850000), ("big", "i16", 3)]
        for save in (np.savez, np.savez_compressed):
            path = self.folder / "arrays.npz"
            save(path, **arrays)
            self.assertEqual(self.sums(path), want)
            self.assertEqual(self.sums("-", stdin=path.read_bytes()), want)
            self.assertEqual(self.sums(path, "--array", "y"), want[1:2])
            self.assertEqual(self.sums(path, "--via", "region"), want)
            self.assertEqual(self.sums(path, "--via", "session"), want)
        self.check_failure(DATA_ERROR, ['array: got "z"; allowed: x, y, big'], "reduce", path, "--array", "z")
        self.check_failure(DATA_ERROR, ["is a .npz file", "--format raw"], "reduce", path, "--dtype", "u8")
        npy = self.save(np.ones(3))
        self.check_failure(DATA_ERROR, ["a .npz or .safetensors file, which this isn't"], "reduce", npy, "--array", "x")
        np.savez(path, a=np.array([1, None]))
        self.check_failure(DATA_ERROR, ['array "a": dtype: got Python objects'], "reduce", path)

    def test_orders(self):
        random = np.random.default_rng(4)
        for shape in ((3, 4), (5, 1), (2, 3, 4), (700, 900)):
            for dtype in ("<f4", ">f4", ">i8", "i1"):
                array = random.integers(0, 9, shape).astype(dtype)  # with many equal ones: the first counts
                path = self.save(np.asfortranarray(array))
                want = {"sum": array.sum(dtype="f8"), "argmin": int(array.argmin()), "argmax": int(array.argmax())}
                for arguments in ((), ("--via", "region"), ("--via", "session"), ("--via", "stream")):
                    if "session" in arguments and array.nbytes > 1 << 20:
                        continue
                    got = self.reduce(path, "sum,argmin,argmax", *arguments)
                    self.assertEqual(got["results"], want, (shape, dtype, arguments))
                self.assertEqual(self.reduce(path, "sum")["results"]["sum"], want["sum"])
                id = self.answers("arrays", "put", path)[0]["id"]
                (got,) = self.answers("reduce", "--array", id, "--op", "argmin,argmax")
                self.assertEqual(got["results"], {name: want[name] for name in ("argmin", "argmax")})

    def test_version_3_and_bf16(self):
        path = self.folder / "three.npy"
        with open(path, "wb") as file:
            np.lib.format.write_array(file, np.arange(5), version=(3, 0))
        self.assertEqual(self.reduce(path, "sum")["results"]["sum"], 10)
        saved = io.BytesIO()
        np.save(saved, (np.array([1, 2, -0.5], "f4").view("u4") >> 16).astype("u2"))
        path.write_bytes(saved.getvalue().replace(b"'<u2'", b"'<V2'"))
        answer = self.reduce(path, "sum")
        self.assertEqual((answer["dtype"], answer["results"]["sum"]), ("bf16", 2.5))


class CompressedTest(FilesTest):
    def compressed(self, content):
        yield ".gz", gzip.compress(content[:1000]) + gzip.compress(content[1000:], 1)  # two members
        if shutil.which("zstd"):
            yield ".zst", subprocess.run(["zstd", "-c"], input=content, stdout=subprocess.PIPE, check=True).stdout

    def test_all_formats(self):
        array = np.random.default_rng(5).integers(0, 100, 600000)
        npy = io.BytesIO()
        np.save(npy, array)
        csv = "n\n" + "\n".join(map(str, array[:5000])) + "\n"
        for name, content, arguments, want in (
            ("a.npy", npy.getvalue(), (), array.sum()),
            ("a.csv", csv.encode(), (), array[:5000].sum()),
            ("a.bin", array.tobytes(), ("--dtype", "i64"), array.sum()),
        ):
            for suffix, bytes in self.compressed(content):
                with self.subTest(name=name, suffix=suffix):
                    path = self.write(name + suffix, bytes)
                    self.assertEqual(self.reduce(path, "sum", *arguments)["results"]["sum"], want)
                    if not arguments:
                        self.assertEqual(self.reduce("-", "sum", stdin=bytes)["results"]["sum"], want)

    def test_damage(self):
        npy = io.BytesIO()
        np.save(npy, np.random.default_rng(6).random(600000))
        whole = gzip.compress(npy.getvalue(), 1)
        for name, content, message in (
            ("cut.npy.gz", whole[: len(whole) // 2], "bad gzip data: it is truncated"),
            ("bad.npy.gz", whole[:100000] + b"?" * 1000 + whole[101000:], "bad gzip data"),
            ("long.npy.gz", gzip.compress(npy.getvalue() + b"x", 1), "data: got more bytes than the array has"),
            ("short.npy.gz", gzip.compress(npy.getvalue()[:-5], 1), "is truncated"),
        ):
            path = self.write(name, content)
            self.check_failure(DATA_ERROR, [message], "reduce", path)
            self.check_failure(DATA_ERROR, [message], "arrays", "put", path)


class MemoryTest(FilesTest):
    def peak(self, *arguments, stdin=None):
        """The most memory of reducectl, in MiB, and what it printed."""
        server = {"REDUCED_SERVER": self.server.tcp}
        run = subprocess.Popen(
            ["/usr/bin/env", "python3", "-c",
             "import resource, subprocess, sys; code = subprocess.call(sys.argv[1:]);"
             "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10, file=sys.stderr); sys.exit(code)",
             *harness.command(*arguments)],
            stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=harness.environment() | server,
        )  # fmt: skip
        output, error = run.communicate(timeout=harness.DEADLINE_S)
        self.assertEqual(run.returncode, 0, error)
        return int(error), output.decode()

    def test_large_files_are_read_as_they_are_sent(self):
        path = self.folder / "large.bin"
        with open(path, "wb") as file:
            file.truncate(512 << 20)
            file.write(b"\1")
        for arguments in (("reduce", path, "--dtype", "u8", "--op", "sum", "-q"),):
            peak, output = self.peak(*arguments)
            self.assertEqual(output, "1\n")
            self.assertLess(peak, 200)
        with open(path, "rb") as file:
            header = io.BytesIO()
            np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (300 << 20,)})
            run = subprocess.Popen(["sh", "-c", f"cat; head -c {300 << 20} /dev/zero"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            run.stdin.write(header.getvalue())
            run.stdin.close()
            peak, output = self.peak("reduce", "-", "--op", "count,sum", "-q", stdin=run.stdout)
            run.stdout.close()
            self.assertEqual((run.wait(harness.DEADLINE_S), output), (0, f"{300 << 20}\t0\n"))
            self.assertLess(peak, 200)

    def test_reading_is_a_stage(self):
        array = np.zeros(3000000)
        self.assertGreater(self.reduce(self.save(array), "sum")["timing_us"]["read"], 0)
        self.assertGreater(self.reduce(self.save(array), "sum", "--via", "stream")["timing_us"]["read"], 0)


class EndsTest(FilesTest):
    def test_what_is_no_file_of_numbers(self):
        for source in ("/dev/zero", "/dev/urandom", self.write("x", b"\x7fELF\0\0")):
            run = self.run_reducectl("reduce", source)
            self.assertEqual((run.returncode, run.stdout), (DATA_ERROR, b""))
            self.assertRegex(run.stderr.decode(), r"\Areducectl: \S+: (has an unknown format|isn't text)[ -~]*\n\Z")
        for source in ("/dev/null", self.write("empty", b"")):
            self.check_failure(DATA_ERROR, ["is empty"], "reduce", source)

    def test_a_fifo(self):
        fifo = self.folder / "fifo"
        os.mkfifo(fifo)
        writer = threading.Thread(target=fifo.write_text, args=("x\n1\n2\n",))
        writer.start()
        self.assertEqual(self.sums(fifo), [("x", "i64", 3)])
        writer.join()


if __name__ == "__main__":
    unittest.main()

"""GROUP BY columns of text by reducectl: against Python's csv, datetime and Fraction, by a server and in this process."""

import collections
import csv
import datetime
import fractions
import itertools
import json
import os
import random
import unittest

import harness
from harness import np

USAGE, SERVER, DATA_ERROR = 2, 4, 5
SEED = int(os.environ.get("REDUCED_SEED", "1"))
SHOPS = ["north", "South", "Zürich, West", 'the "old" one', "", "東京", "a\nb", "na", "10", "x y", " x y"]


def nearest(exact):
    return float(exact)  # of a Fraction, rounded once


def label(field):
    """The key of a field of CSV: None if it is missing."""
    return None if field.strip().lower() in ("", "na") else field


class GroupByTest(harness.ServedTest):
    flags = ("--cuda=false",)

    def setUp(self):
        super().setUp()
        self.random = random.Random(SEED)

    def write(self, name, rows, delimiter=","):
        path = self.folder / name
        with open(path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file, delimiter=delimiter, lineterminator="\n").writerows(rows)
        return path

    def sales(self, rows=400):
        """Rows of shop, month, price, date and ok, under a header."""
        start = datetime.datetime(2023, 12, 25)
        table = []
        for _ in range(rows):
            date = start + datetime.timedelta(minutes=self.random.randrange(800_000))
            table.append([
                self.random.choice(SHOPS),
                self.random.choice(["1", "2", "10", "-3", ""]),
                f"{self.random.randrange(-10**6, 10**6)}.{self.random.randrange(10**4):04}",
                date.strftime(self.random.choice(["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S"])),
                self.random.choice(["true", "false", ""]),
            ])  # fmt: skip
        return table

    def sums(self, table, key_of, drop=True):
        """By key the sum of prices, rounded once, in the order of first rows."""
        groups = collections.OrderedDict()
        for row in table:
            key = key_of(row)
            if drop and None in key:
                continue
            groups[key] = groups.get(key, 0) + fractions.Fraction(float(row[2]))
        return {key: nearest(total) for key, total in groups.items()}

    @staticmethod
    def ascending(sums):
        """Numbers as numbers, text by code points, what is missing last."""
        return dict(sorted(sums.items(), key=lambda item: [(part is None, part if part is not None else 0) for part in item[0]]))

    def answer(self, *arguments):
        """Labels by group, and the results of each op."""
        (answer,) = self.answers(*arguments)
        keys = answer["keys"] if isinstance(answer["keys"], list) else [answer["keys"]]
        labels = list(zip(*(column["values"] for column in keys), strict=True))
        return labels, {op: result["values"] for op, result in answer["results"].items()}, answer

    def expect(self, want, *arguments):
        for place in ([], ["--server", "local:"]):
            labels, results, _ = self.answer(*arguments, "--op", "sum", *place)
            self.assertEqual(labels, list(want))
            self.assertEqual(results["sum"], list(want.values()))

    def test_one_key_and_several(self):
        table = self.sales()
        path = self.write("sales.csv", [["shop", "month", "price", "date", "ok"], *table])
        price = ("reduce", path, "--column", "price")

        def shop(row):
            return (label(row[0]),)

        def both(row):
            return (label(row[0]), int(row[1]) if row[1] else None)

        def month(row):
            return (both(row)[1],)

        for keys, key_of in (("shop", shop), ("shop,month", both), ("0,1", both), ("month", month), (f"{path}:shop,month", both)):
            self.expect(self.ascending(self.sums(table, key_of)), *price, "--keys", keys)
            self.expect(self.sums(table, key_of), *price, "--keys", keys, "--sort=false")
            self.expect(self.ascending(self.sums(table, key_of, drop=False)), *price, "--keys", keys, "--missing-keys", "group")
            self.expect(self.sums(table, key_of, drop=False), *price, "--keys", keys, "--missing-keys=group", "--sort", "false")
        _, results, answer = self.answer(*price, "--keys", "shop", "--op", "count,sum")
        self.assertEqual(answer["rows_without_key"], sum(label(row[0]) is None for row in table))
        self.assertEqual(sum(results["count"]) + answer["rows_without_key"], len(table))

    def test_other_kinds_of_text(self):
        table = [row for row in self.sales(100) if "\n" not in row[0]]
        want = self.ascending(self.sums(table, lambda row: (label(row[0]),)))
        path = self.write("sales.tsv", [["shop", "month", "price", "date", "ok"], *table], "\t")
        self.expect(want, "reduce", path, "--column", "price", "--keys", "shop")
        lines = self.folder / "sales.jsonl"
        lines.write_text("".join(json.dumps({"price": float(row[2]), "shop": row[0]}, ensure_ascii=i % 2 == 0) + "\n"
                                 for i, row in enumerate(table)))
        self.expect(want, "reduce", lines, "--column", "price", "--keys", "shop")
        # What cannot be read twice.
        run = self.run_reducectl("--json", "reduce", "-", "--column", "price", "--keys", "shop", "--op", "sum", stdin=path.read_bytes())
        self.assertEqual(json.loads(run.stdout)["results"]["sum"]["values"], list(want.values()))

    def test_types_of_keys(self):
        path = self.write("t.csv", [["v", "number", "real", "mixed", "truth", "gap"],
                                    *zip("1234", ("10", "9", "10", "-1"), ("0.5", "-0.0", "0", "1e3"), ("10", "9", "x", "9"),
                                         ("true", "false", "True", "false"), ("3", "", "3", "18446744073709551615"))])  # fmt: skip
        for column, dtype, labels, sums in (
            ("number", "i64", [-1, 9, 10], [4, 2, 4]),
            ("real", "f64", [0.0, 0.5, 1000.0], [5, 1, 4]),
            ("mixed", "text", ["10", "9", "x"], [1, 6, 3]),
            ("truth", "bool", [False, True], [6, 4]),
            ("gap", "u64", [3, 2**64 - 1], [4, 4]),
        ):
            got, results, answer = self.answer("reduce", path, "--column", "v", "--keys", column, "--op", "sum")
            self.assertEqual((answer["keys"]["name"], answer["keys"]["dtype"]), (column, dtype))
            self.assertEqual((got, results["sum"]), ([(each,) for each in labels], sums))
        run = self.run_reducectl("reduce", path, "--column", "v", "--keys", "mixed", "--op", "sum")
        self.assertIn(b'column "mixed" is text, since line 4 has "x", though others are numbers', run.stderr)
        zeros = self.write("z.csv", [["v", "zip"], ["1", "01234"], ["2", "1234"]])
        run = self.run_reducectl("reduce", zeros, "--column", "v", "--keys", "zip", "--op", "sum")
        self.assertIn(b"zeros in front are no part, first in line 2", run.stderr)

    def test_buckets_of_dates(self):
        table = self.sales()
        path = self.write("sales.csv", [["shop", "month", "price", "date", "ok"], *table])
        units = {
            "year": lambda t: f"{t:%Y}",
            "quarter": lambda t: f"{t:%Y}-{(t.month - 1) // 3 * 3 + 1:02}",
            "month": lambda t: f"{t:%Y-%m}",
            "week": lambda t: f"{t - datetime.timedelta(days=t.weekday()):%Y-%m-%d}",
            "day": lambda t: f"{t:%Y-%m-%d}",
            "hour": lambda t: f"{t:%Y-%m-%dT%H:00}",
            "6h": lambda t: f"{t:%Y-%m-%d}T{t.hour // 6 * 6:02}:00",
            "15m": lambda t: f"{t:%Y-%m-%dT%H}:{t.minute // 15 * 15:02}",
            "minute": lambda t: f"{t:%Y-%m-%dT%H:%M}",
            "30s": lambda t: f"{t:%Y-%m-%dT%H:%M}:{t.second // 30 * 30:02}",
            "second": lambda t: f"{t:%Y-%m-%dT%H:%M:%S}",
        }
        for unit, text in units.items():
            want = self.ascending(self.sums(table, lambda row: (text(datetime.datetime.fromisoformat(row[3])),)))  # noqa: B023
            for keys in ("date", f"{path}:date"):
                self.expect(want, "reduce", path, "--column", "price", "--keys", keys, "--bucket", unit)
        both = self.ascending(self.sums(table, lambda row: (label(row[0]), f"{datetime.datetime.fromisoformat(row[3]):%Y-%m}")))
        self.expect(both, "reduce", path, "--column", "price", "--keys", "shop,date", "--bucket", "month")

    def test_times_with_offsets_are_utc(self):
        path = self.write("t.csv", [["v", "t"], ["1", "2026-03-01T00:30+01:00"], ["2", "2026-02-28T23:30:00.5Z"],
                                    ["4", "2026-03-01T23:59:59-00:01"], ["8", "1969-12-31T23:00Z"]])  # fmt: skip
        labels, results, answer = self.answer("reduce", path, "--column", "v", "--keys", "t", "--bucket", "6h", "--op", "sum")
        self.assertEqual(labels, [("1969-12-31T18:00",), ("2026-02-28T18:00",), ("2026-03-02T00:00",)])
        self.assertEqual(results["sum"], [8, 3, 4])
        self.assertIn('--keys: column "t": times are UTC', answer["notes"])

    def test_what_is_no_date(self):
        for bad, unit in (("2026-13-01", "month"), ("2026-02-30", "day"), ("yesterday", "day"), ("2026-03-01T25:00", "hour"),
                          ("2026-03", "month"), ("20260301", "day"), ("2026-03-01T06:30X", "day"), ("2026-03-01T06", "day"),
                          ("2026-03-01T06:30+1", "day"), ("2026-03-01Z", "day"), ("03/01/2026", "day")):  # fmt: skip
            path = self.write("t.csv", [["v", "t"], ["1", "2026-03-01"], ["2", ""], ["3", bad]])
            self.check_failure(DATA_ERROR, [f'line 4: column "t": got "{bad}"; allowed: dates in ISO 8601'], "reduce", path, "--column",
                               "v", "--keys", "t", "--bucket", unit)
        path = self.write("t.csv", [["v", "t"], ["1", "2026-03-01T06:30Z"], ["3", "2026-03-01T06:30"]])
        self.check_failure(DATA_ERROR, ["line 3", "allowed: times with Z or an offset, as line 2 has"], "reduce", path, "--column", "v",
                           "--keys", "t", "--bucket", "day")
        for bad in ("fortnight", "5h", "7m", "0h", "48h", "1.5h", "2month", ""):
            self.check_failure(USAGE, ["--bucket", f'got "{bad}"'], "reduce", path, "--column", "v", "--keys", "t", "--bucket", bad)

    def test_where(self):
        table = self.sales()
        path = self.write("sales.csv", [["shop", "month", "price", "date", "ok"], *table])
        conditions = {
            "price > 0": lambda row: fractions.Fraction(float(row[2])) > 0,
            "price<=-12.5": lambda row: fractions.Fraction(float(row[2])) <= fractions.Fraction("-12.5"),
            "month == 10": lambda row: row[1] == "10",
            "month != 10": lambda row: row[1] not in ("", "10"),
            "month >= 2": lambda row: row[1] in ("2", "10"),
            "shop == north": lambda row: row[0] == "north",
            "shop == 'Zürich, West'": lambda row: row[0] == "Zürich, West",
            'shop != "x y"': lambda row: label(row[0]) is not None and row[0] != "x y",
            "shop < b": lambda row: label(row[0]) is not None and row[0] < "b",
            "date >= 2025-01-01": lambda row: row[3] >= "2025-01-01",
            "ok": lambda row: row[4] == "true",
            "ok == false": lambda row: row[4] == "false",
            f"{path}:ok": lambda row: row[4] == "true",
        }
        for condition, holds in conditions.items():
            kept = [row for row in table if holds(row)]
            self.assertTrue(kept, condition)
            self.expect(self.ascending(self.sums(kept, lambda row: (label(row[0]),))), "reduce", path, "--column", "price", "--keys", "shop",
                        "--where", condition)  # fmt: skip
            (answer,) = self.answers("reduce", path, "--column", "price", "--op", "sum,count", "--where", condition)
            self.assertEqual(answer["results"], {"sum": nearest(sum(fractions.Fraction(float(row[2])) for row in kept)), "count": len(kept)})
        mask = self.folder / "mask.npy"
        np.save(mask, np.array([row[4] == "true" for row in table]))
        bits = self.folder / "bits.npy"
        np.save(bits, np.packbits(np.load(mask), bitorder="little"))
        want = self.ascending(self.sums([row for row in table if row[4] == "true"], lambda row: (label(row[0]),)))
        for where in (mask, bits):
            self.expect(want, "reduce", path, "--column", "price", "--keys", "shop", "--where", where)

    def test_nothing_is_left(self):
        path = self.write("t.csv", [["v", "k"], ["1", "a"], ["2", "a"]])
        for place in ([], ["--server", "local:"]):
            labels, results, _ = self.answer("reduce", path, "--column", "v", "--keys", "k", "--where", "v > 5", "--op", "min,sum", *place)
            self.assertEqual((labels, results), ([], {"min": [], "sum": []}))

    def test_whole_numbers_are_compared_as_they_are(self):
        path = self.write("t.csv", [["v"], ["9007199254740993"], ["9007199254740992"], ["-9223372036854775808"]])
        for condition, count in (("v == 9007199254740993", 1), ("v > 9007199254740992", 1), ("v < -9223372036854775807", 1),
                                 ("v > 9007199254740992.5", 1), ("v >= 18446744073709551615", 0)):  # fmt: skip
            (answer,) = self.answers("reduce", path, "--column", "v", "--op", "count", "--where", condition)
            self.assertEqual(answer["results"]["count"], count, condition)

    def test_missing_values_of_whole_numbers(self):
        path = self.write("t.csv", [["v", "k"], [2**60 + 1, "a"], ["", "b"], [3, "a"], ["", "a"]])
        labels, results, _ = self.answer("reduce", path, "--column", "v", "--keys", "k", "--nan", "omit", "--op", "sum,count,nan_count")
        self.assertEqual((labels, results), ([("a",), ("b",)], {"sum": [2**60 + 4, 0], "count": [2, 0], "nan_count": [1, 1]}))

    def test_files_of_results(self):
        table = self.sales(60)
        path = self.write("sales.csv", [["shop", "month", "price", "date", "ok"], *table])
        both = self.ascending(self.sums(table, lambda row: (label(row[0]), int(row[1]) if row[1] else None), drop=False))
        group = ("reduce", path, "--column", "price", "--keys", "shop,month", "--missing-keys", "group")
        for name in ("out.csv", "out.json"):
            run = self.run_reducectl(*group, "--op", "sum,count,topk(2)", "--empty", "fill", "--out", self.folder / name)
            self.assertEqual((run.returncode, run.stderr), (0, b""))
        with open(self.folder / "out.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(list(rows[0]), ["shop", "month", "sum", "count", "topk(2)[0]", "topk(2)[1]"])
        self.assertEqual({(row["shop"] or None, int(row["month"]) if row["month"] else None): float(row["sum"]) for row in rows}, both)
        objects = json.loads((self.folder / "out.json").read_text(encoding="utf-8"))
        self.assertEqual({(row["shop"], row["month"]): row["sum"] for row in objects}, both)
        self.assertEqual([str(each) for row in objects for each in row["topk(2)"]],
                         [row[name] for row in rows for name in ("topk(2)[0]", "topk(2)[1]")])
        one = ("reduce", path, "--column", "price", "--keys", "shop", "--op", "sum")
        self.assertEqual(self.run_reducectl(*one, "--out", self.folder / "s.npy", "--out-keys", self.folder / "k.npy").returncode, 0)
        want = self.ascending(self.sums(table, lambda row: (label(row[0]),)))
        self.assertEqual(np.load(self.folder / "k.npy").tolist(), [key for (key,) in want])
        self.assertEqual(np.load(self.folder / "k.npy").dtype.kind, "U")
        self.assertEqual(np.load(self.folder / "s.npy").tolist(), list(want.values()))
        np.save(self.folder / "keys.npy", np.array([3, 1] * 30))
        self.run_reducectl("reduce", path, "--column", "price", "--op", "count", "--keys", self.folder / "keys.npy", "--out",
                           self.folder / "ints.csv")
        self.assertEqual((self.folder / "ints.csv").read_text(), "key,count\n1,30\n3,30\n")

    def test_table(self):
        path = self.write("t.csv", [["price", "shop", "month"], ["1.5", "Zürich", "10"], ["2", "b", "9"], ["3", "b", "9"], ["4", "", "1"]])
        run = self.run_reducectl("reduce", path, "--column", "price", "--keys", "shop,month", "--op", "sum,count")
        title, *lines = run.stdout.decode().splitlines()
        self.assertTrue(title.startswith(f"{path}, column price: 4 elements, 32 bytes, 1 without a key left out, ran on cpu"), title)
        self.assertEqual(lines, ["  shop    month  sum  count", "  Zürich  10     1.5      1", "  b       9      5.0      2"])
        run = self.run_reducectl("reduce", path, "--column", "price", "--keys", "shop,month", "--op", "sum", "-q")
        self.assertEqual(run.stdout.decode(), '["Zürich" "b"]\n[10 9]\n[1.5 5.0]\n')
        many = self.write("many.csv", [["v", "k"], *((str(i), f"k{i:04}") for i in range(2000))])
        run = self.run_reducectl("reduce", many, "--column", "v", "--keys", "k", "--op", "sum")
        lines = run.stdout.decode().splitlines()[1:]
        self.assertEqual(len(lines), 12)
        self.assertEqual([lines[1].split(), lines[6].split(), lines[11].split()], [["k0000", "0"], ["...", "..."], ["k1999", "1999"]])

    def test_several_inputs_and_columns(self):
        first = self.write("a.csv", [["x", "y", "k"], ["1", "2", "a"], ["3", "4", "b"]])
        second = self.write("b.csv", [["k", "x", "y"], ["c", "5", "6"]])
        answers = self.answers("reduce", first, second, "--column", "x", "--column", "y", "--keys", "k", "--op", "sum", "--where", "x > 0")
        got = [(answer["column"], answer["keys"]["values"], answer["results"]["sum"]["values"]) for answer in answers]
        self.assertEqual(got, [("x", ["a", "b"], [1, 3]), ("y", ["a", "b"], [2, 4]), ("x", ["c"], [5]), ("y", ["c"], [6])])

    def test_weights_and_another_array(self):
        path = self.write("t.csv", [["v", "w", "k"], ["1", "1", "a"], ["3", "3", "a"], ["5", "2", "b"], ["7", "9", ""]])
        labels, results, _ = self.answer("reduce", path, "--column", "v", "--weights", f"{path}:w", "--keys", "k", "--op", "weighted_mean")
        self.assertEqual((labels, results["weighted_mean"]), ([("a",), ("b",)], [2.5, 5.0]))

    def test_states_have_integers_as_keys(self):
        parts = [self.write(f"{i}.csv", [["v", "k"], *rows]) for i, rows in enumerate(([["1", "7"], ["2", "5"]], [["4", "7"], ["8", "6"]]))]
        states = [f"{part}.state" for part in parts]
        for part, state in zip(parts, states, strict=True):
            self.assertEqual(self.run_reducectl("reduce", part, "--column", "v", "--keys", "k", "--op", "sum", "--state", state).returncode, 0)
        (merged,) = self.answers("merge", *states)
        self.assertEqual((merged["keys"]["values"], merged["results"]["sum"]["values"]), ([5, 6, 7], [2, 8, 5]))
        text = self.write("t.csv", [["v", "k", "l"], ["1", "a", "1"], ["2", "", "2"]])
        for option in (("--state", states[0]), ("--groups", "3"), ("--keep",)):
            for keys, message in (("k", 'line 2: column "k": got "a"; allowed: integers'), ("k,l", "got several columns")):
                self.check_failure(DATA_ERROR, ["--keys: ", message], "reduce", text, "--column", "v", "--keys", keys, *option)

    def test_names_of_files_and_columns(self):
        path = self.write("t.csv", [["v", "k"], ["1", "a"], ["2", "b"], ["4", "a"]])
        os.chdir(self.folder)
        self.addCleanup(os.chdir, "/")
        with open("k", "w", encoding="utf-8") as file:
            file.write("7\n7\n8\n")
        command = ("reduce", path, "--column", "v", "--op", "sum")
        self.check_failure(USAGE, [f"--keys: got k, which is both a file and a column of {path}; allowed: ./k for the file, {path}:k"],
                           *command, "--keys", "k")
        self.check_failure(USAGE, ["--where: got k, which is both a file and a column"], *command, "--where", "k")
        self.assertEqual(self.answer(*command, "--keys", "./k")[0], [(7,), (8,)])
        self.assertEqual(self.answer(*command, "--keys", f"{path}:k")[0], [("a",), ("b",)])

    def test_errors(self):
        path = self.write("t.csv", [["v", "k", "n"], ["1", "a", "5"], ["2", "b", ""]])
        command = ("reduce", path, "--column", "v", "--op", "sum")
        short = self.write("short.csv", [["k"], ["a"]])
        for code, messages, arguments in (
            (DATA_ERROR, [f"reducectl: {path}: ", 'column: got "shop"; allowed: v, k, n', "--keys shop is no file"], ("--keys", "shop")),
            (DATA_ERROR, ['column: got "x.csv:k"', "--keys x.csv:k is no file"], ("--keys", "x.csv:k")),
            (USAGE, ['--keys: got "k,"; allowed: names with commas between them'], ("--keys", "k,")),
            (DATA_ERROR, ["--keys: got 1 rows; allowed: the 2 of the input"], ("--keys", short)),
            (DATA_ERROR, ["--where: got 1 rows; allowed: the 2 of the input"], ("--where", self.write("one.csv", [["m"], ["1"]]))),
            (DATA_ERROR, ['--where: line 2: column "k": got "a"; allowed: 0 and 1, or true and false'], ("--where", "k")),
            (DATA_ERROR, ['--where: line 2: column "n": got "5"; allowed: 0 and 1, or true and false'], ("--where", "n")),
            (DATA_ERROR, ['--where: line 2: column "k": got "a"; allowed: numbers, beside 3'], ("--where", "k > 3")),
            (DATA_ERROR, ['--where: got "x", beside column "v" of numbers; allowed: a number'], ("--where", "v > x")),
            (DATA_ERROR, ['--where: got text, "1", beside column "v" of numbers'], ("--where", "v == '1'")),
            (DATA_ERROR, ['column: got "w"; allowed: v, k, n', "--where w > 1 is no file"], ("--where", "w > 1")),
            (USAGE, ['--where: got "v => 1"; allowed: a column, one of < <= > >= == !='], ("--where", "v => 1")),
            (USAGE, ['--where: got "v = 1"'], ("--where", "v = 1")),
            (USAGE, ['--where: got "v > 1 & v < 2"'], ("--where", "v > 1 & v < 2")),
            (USAGE, ['--where: got "> 1"'], ("--where", "> 1")),
            (USAGE, ['--where: got the value "NA", which is a missing one'], ("--where", "k == NA")),
            (USAGE, ["--bucket: requires --keys"], ("--bucket", "day")),
            (USAGE, ["--sort false: requires --keys"], ("--sort", "false")),
            (USAGE, ["--sort", 'got "no"; allowed: true, false'], ("--keys", "k", "--sort", "no")),
            (USAGE, ["--missing-keys", "allowed: drop, group"], ("--keys", "k", "--missing-keys", "keep")),
            (USAGE, ["--missing-keys group: requires no --groups"], ("--keys", "n", "--groups", "9", "--missing-keys", "group")),
            (USAGE, ["--out to a .csv or .json file: requires --keys"], ("--axis", "0", "--out", "x.csv")),
            (USAGE, ["got two columns of the name k"], ("--keys", "k,k", "--out", self.folder / "x.csv")),
            (USAGE, ["got --out-keys for 2 columns of keys; allowed: one"], ("--keys", "k,n", "--out-keys", self.folder / "k.npy")),
        ):
            self.check_failure(code, messages, *command, *arguments)
        keys = self.folder / "keys.npy"
        np.save(keys, np.array([1, 2]))
        self.check_failure(USAGE, ["--bucket", "allowed: columns of text"], *command, "--keys", keys, "--bucket", "day")
        self.check_failure(DATA_ERROR, ["is a .npy file", "--keys shop is no file"], "reduce", keys, "--keys", "shop")
        raw = ("reduce", keys, "--format", "npy", "--op", "sum")
        self.check_failure(DATA_ERROR, ["has no columns; allowed: text, or files for --keys and --where"], *raw, "--keys", "shop")
        self.check_failure(DATA_ERROR, ["has no columns; allowed: text"], *raw, "--where", "shop > 1")
        objects = self.folder / "t.jsonl"
        objects.write_text('{"v": 1, "k": "a"}\n{"v": 2, "k": ["b"]}\n')
        self.check_failure(DATA_ERROR, ['line 2: column "k": got a list; allowed: text, a number'], "reduce", objects, "--column", "v",
                           "--keys", "k")

    def test_many_groups(self):
        table = [[f"id-{self.random.randrange(30_000):05}", str(self.random.randrange(10**9))] for _ in range(60_000)]
        path = self.write("many.csv", [["id", "v"], *table])
        want = collections.Counter()
        for key, value in table:
            want[key] += int(value)
        labels, results, _ = self.answer("reduce", path, "--column", "v", "--keys", "id", "--op", "sum,count")
        self.assertEqual(dict(zip(itertools.chain.from_iterable(labels), results["sum"], strict=True)), dict(want))
        self.assertEqual(labels, sorted(labels))


if __name__ == "__main__":
    unittest.main()

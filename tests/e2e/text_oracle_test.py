"""Random tables in random dialects: whatever reducectl reads has the values that Python's csv and exact fractions give.

A table is made of values, written in a dialect, and read back by reducectl, which is told all, some or nothing of the
dialect. It may refuse: a wrong value with exit status 0 is the failure. REDUCED_SEED repeats a run, REDUCED_SECONDS
prolongs it.
"""

import csv
import fractions
import io
import json
import math
import os
import pathlib
import random
import subprocess
import tempfile
import time
import unittest

import harness

SECONDS = float(os.environ.get("REDUCED_SECONDS", "15"))
SEED = int(os.environ.get("REDUCED_SEED", "37"))
OPS = ("sum", "min", "max", "argmin", "argmax", "count", "nan_count")
WORDS = ("", "NA", "NaN", "null", "#N/A")
OWN_WORDS = ("-", ".", "\\N", "****", "1.#QNAN", "-9999")
NARROW_SPACE, NO_BREAK_SPACE = "\u202f", "\u00a0"


class Dialect:
    """How a table is written, and the options that say so."""

    def __init__(self, rng):
        self.delimiter = rng.choice([",", ";", "\t", "|", " "])
        self.decimal = rng.choice([".", ".", ","]) if self.delimiter != "," or rng.random() < 0.2 else "."
        self.groups = rng.choice(["", "", "", ".,"[self.decimal == "."], "'", NARROW_SPACE, NO_BREAK_SPACE])
        self.quoting = rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
        self.end = rng.choice(["\n", "\n", "\r\n", "\r"])
        self.words = [rng.choice(WORDS)] + ([rng.choice(OWN_WORDS)] if rng.random() < 0.4 else [])
        self.comment = rng.choice(["", "", "#", "%", "//"])
        self.header = rng.choice(["names", "names", "names", "labels", "none"])
        self.trailing = self.delimiter != " " and rng.random() < 0.15
        self.row_names = self.header == "names" and not self.trailing and rng.random() < 0.15
        self.byte_order_mark = rng.random() < 0.1

    def options(self, rng, told):
        """`told`: with which probability each property is."""
        options = []
        for known, arguments in (
            (True, ("--delimiter", {"\t": "tab", " ": "space"}.get(self.delimiter, self.delimiter))),
            (True, ("--decimal", self.decimal)),
            (self.comment, ("--comment", self.comment)),
            (True, ("--header", "no" if self.header == "none" else "yes")),
        ):
            if known and rng.random() < told:
                options += arguments
        own = [word for word in self.words if word in OWN_WORDS]
        if own and rng.random() < max(told, 0.5):
            options += ["--missing", ",".join(own)]
        return options

    def number(self, text, rng):
        """Decimal text in this dialect."""
        sign, whole, rest = "", text, ""
        if whole[0] == "-":
            sign, whole = "-", whole[1:]
        if "." in whole:
            whole, rest = whole.split(".")
            rest = self.decimal + rest
        if self.groups and len(whole) > 3 and whole.isdigit() and rng.random() < 0.7:
            first = len(whole) % 3
            whole = self.groups.join(([whole[:first]] if first else []) + [whole[i : i + 3] for i in range(first, len(whole), 3)])
        return sign + whole + rest


def value_text(kind, rng):
    """A number in decimal digits with a point."""
    if kind == "small":
        return str(rng.randrange(-2000, 2000))
    if kind == "large":
        return str(rng.choice([2**53 + 1, -(2**53) - 1, 2**62 + 1, rng.randrange(-(2**63), 2**63), rng.randrange(10**6)]))
    if kind == "unsigned":
        return str(rng.choice([2**63, 2**64 - 1, rng.randrange(2**64), 7]))
    if kind == "decimal":
        return f"{rng.randrange(-10**6, 10**6) / 10**rng.randrange(1, 5):.{rng.randrange(1, 6)}f}"
    if kind == "exponent":
        return rng.choice(["1e3", "-2.5e-3", "6.02e23", "1E2", "4.9e-324"])
    if kind == "whole decimal":
        return f"{rng.randrange(-1000, 1000)}.0"
    return value_text(rng.choice(["small", "large", "unsigned", "decimal", "exponent", "whole decimal"]), rng)


def make_table(rng, dialect, comment_told):
    """The bytes, and of each column its name and fields as they are meant: a fraction, None for a missing one, or text."""
    rows, width = rng.randrange(1, 12), rng.randrange(1, 5)
    kinds = [rng.choice(["small", "large", "unsigned", "decimal", "exponent", "whole decimal", "mixed", "text", "tags"])
             for _ in range(width)]  # fmt: skip
    gaps = [rng.choice([0, 0, 0.3]) for _ in range(width)]
    if dialect.header == "labels":
        names = [str(year) for year in sorted(rng.sample(range(1990, 2030), width))]
        if width == 1:
            names = ["value"]
    else:
        # Above one column a name with # can't be told from a comment, and need not be.
        names = rng.sample(["id", "n", "price", "x y", 'a"b', "Σ"] + ["#tag"] * (width > 1), width)
    if dialect.delimiter == " ":
        names = [name.replace(" ", "_").replace('"', "") for name in names]
    if comment_told and dialect.comment == "#":
        names = [name.replace("#", "_") for name in names]
    columns = [[] for _ in range(width)]
    fields = []
    for _ in range(rows):
        row = []
        for i, kind in enumerate(kinds):
            if rng.random() < gaps[i]:
                word = rng.choice(dialect.words)
                columns[i].append(("word", word))
                row.append('""' if word == "" and dialect.delimiter == " " else word)
            elif kind in ("text", "tags"):
                text = rng.choice(["ada", "bob", "x,y", "c;d"] if kind == "text" else ["#a", "#b", "c", "#DIV/0!"])
                text = text.replace(dialect.delimiter, "_").replace("#", "_" if comment_told and dialect.comment == "#" else "#")
                columns[i].append(("text", text))
                row.append(text)
            else:
                text = value_text(kind, rng)
                columns[i].append(("number", text))
                row.append(dialect.number(text, rng))
        fields.append(row)
    out = io.StringIO()
    writer = csv.writer(out, delimiter=dialect.delimiter, quoting=dialect.quoting, lineterminator=dialect.end)
    raw = dialect.delimiter == " "  # an empty field has to be quoted, and a quoted one is not quoted again
    def write(row):  # fmt: skip
        if raw:
            out.write(" ".join(f'"{field}"' if " " in field else field for field in row) + dialect.end)
        else:
            writer.writerow(row + ([""] if dialect.trailing and dialect.quoting != csv.QUOTE_ALL else []))
    if (dialect.comment == "#" or comment_told) and rng.random() < 0.5:
        out.write(dialect.comment + " made by hand" + dialect.end)
    if dialect.header != "none":
        if dialect.trailing and rng.random() < 0.5 and not raw:
            writer.writerow(names)
        else:
            write(names)
    for number, row in enumerate(fields):
        if dialect.comment and rng.random() < 0.1:
            # Only --comment says that this is no row.
            out.write(dialect.comment + (dialect.delimiter if comment_told else "-").join("12" for _ in row) + dialect.end)
        write(([f"row{number}"] if dialect.row_names else []) + row)
    text = ("\ufeff" if dialect.byte_order_mark else "") + out.getvalue()
    if dialect.header == "none":
        names = [str(i) for i in range(width)]
    return text.encode(), dict(zip(names, columns))


def nearest(value):
    return float(value)  # of a Fraction: correctly rounded


def expected(fields, dtype, own_words):
    """The results of a column that was read, by exact arithmetic; None: it can't be read."""
    values = []
    for kind, text in fields:
        if kind == "number" and not (text == "-9999" and "-9999" in own_words):
            values.append(fractions.Fraction(text))
        elif kind == "word" and text == "-9999" and "-9999" not in own_words:
            values.append(fractions.Fraction(-9999))
        elif kind == "number" or (kind == "word" and (text in WORDS or text in own_words)):
            values.append(None)
        else:
            return None
    if dtype == "f64":
        # Only numbers with a point or an exponent may be rounded.
        for (_, text), value in zip(fields, values):
            if value is not None and text.lstrip("-").isdigit() and fractions.Fraction(nearest(value)) != value:
                return None
        values = [None if value is None else nearest(value) for value in values]
    there = [(value, index) for index, value in enumerate(values) if value is not None]
    results = {"count": len(there), "nan_count": len(values) - len(there)}
    results["sum"] = math.fsum(value for value, _ in there) if dtype == "f64" else sum(value for value, _ in there)
    if there:
        smallest, largest = min(there)[0], max(there)[0]
        results |= {"min": smallest, "max": largest}
        results |= {"argmin": values.index(smallest), "argmax": values.index(largest)}
    return results


class TextOracleTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "table.csv"

    def run_local(self, *arguments):
        run = subprocess.run(
            harness.command("--server", "local:", "--json", *arguments),
            capture_output=True, timeout=harness.DEADLINE_S, env=harness.environment(), check=False,
        )  # fmt: skip
        return run, [json.loads(line) for line in run.stdout.splitlines()]

    def check_same(self, got, want, context):
        for op, value in want.items():
            if op in got and got[op] is not None:
                self.assertEqual(fractions.Fraction(got[op]), fractions.Fraction(value), (op, got, want, context))

    def test_what_is_read_is_right(self):
        rng = random.Random(SEED)
        deadline = time.monotonic() + SECONDS
        tables = read = columns_read = 0
        while time.monotonic() < deadline:
            dialect = Dialect(rng)
            told = rng.choice([0, 0.5, 1])
            options = dialect.options(rng, told)
            if dialect.groups == "." and "--decimal" not in options and dialect.delimiter != ";":
                dialect.groups = ""  # only semicolons make a point doubtful
            content, table = make_table(rng, dialect, "--comment" in options)
            self.path.write_bytes(content)
            own = options[options.index("--missing") + 1].split(",") if "--missing" in options else []
            if rng.random() < 0.5:
                arguments = ("describe", self.path, *options)
            else:
                arguments = ("reduce", self.path, "--column", "all", "--nan", "omit", "--op", ",".join(OPS), *options)
            run, answers = self.run_local(*arguments)
            context = (SEED, content, arguments, run.stderr.decode())
            self.assertIn(run.returncode, (0, 3, 4, 5), context)
            self.assertTrue(run.returncode == 0 or run.stderr, context)
            tables += 1
            notes = run.stderr.decode() + "".join(note for answer in answers for note in answer.get("notes", []))
            if "is taken as two fields; if " in notes:  # both are possible: it is said
                continue
            read += run.returncode == 0
            for answer in answers:
                self.assertIn(answer.get("column", "0"), table, context)
                fields = table[answer.get("column", "0")]
                if f'column "{answer.get("column", "0")}": points are decimal points' in notes:
                    continue  # it is said
                if answer["dtype"] == "text":  # of words
                    self.assertIsNone(expected(fields, "f64", own), (answer, context))
                    self.assertEqual(answer["results"]["count"] + answer["results"]["missing"], len(fields), (answer, context))
                    continue
                want = expected(fields, answer["dtype"], own)
                self.assertIsNotNone(want, (answer, context))
                self.check_same(answer.get("results", answer), want, context)
                columns_read += 1
            if run.returncode == 0:  # what is left out has no number, and is named
                for name, fields in table.items():
                    if name not in [answer.get("column", "0") for answer in answers]:
                        self.assertIn(name, notes, context)
                        blank = all(text.strip() == "" for _, text in fields)  # behind the last delimiter of each row
                        self.assertTrue(blank or expected(fields, "f64", own) is None, context)
        print(f"{tables} tables, {read} read as a whole, {columns_read} columns compared, seed {SEED}")
        self.assertGreater(columns_read, tables / 4)

    def test_groups_of_columns_with_gaps(self):
        rng = random.Random(SEED + 1)
        for _ in range(12):
            rows = [(rng.randrange(4), None if rng.random() < 0.4 else rng.randrange(-(2**62), 2**62)) for _ in range(20)]
            self.path.write_text("k,v\n" + "".join(f"{key},{'' if value is None else value}\n" for key, value in rows))
            run, (answer,) = self.run_local(
                "reduce", self.path, "--column", "v", "--keys", f"{self.path}:k", "--op", "mean,nan_count,count,argmax",
                "--nan", "omit", "--empty", "fill",
            )  # fmt: skip
            self.assertEqual(run.returncode, 0, run.stderr)
            keys = sorted({key for key, _ in rows})
            groups = [[value for key, value in rows if key == wanted] for wanted in keys]
            there = [[value for value in group if value is not None] for group in groups]
            results = {op: result["values"] for op, result in answer["results"].items()}
            self.assertEqual(answer["keys"]["values"], keys)
            self.assertEqual(results["count"], [len(group) for group in there])
            self.assertEqual(results["nan_count"], [group.count(None) for group in groups])
            for group, mean, argmax, key in zip(there, results["mean"], results["argmax"], keys):
                if group:
                    self.assertEqual(mean, nearest(fractions.Fraction(sum(group), len(group))))
                    self.assertEqual(argmax, rows.index((key, max(group))))


if __name__ == "__main__":
    unittest.main()

"""Two arrays by reducectl: reduce with --y and --weights, compare, corr."""

import json
import math
import unittest
from fractions import Fraction

import harness
from harness import np

OK, DIFFERENT, USAGE, SERVER, DATA = 0, 1, 2, 4, 5
LOCAL = ("--server", "local:")


class PairsTest(harness.ServedTest):
    def setUp(self):
        super().setUp()
        self.random = np.random.default_rng(11)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def values(self, *arguments):
        """The results of each op, which are the same at a server and in the process of reducectl."""
        found = []
        for place in ((), LOCAL):
            (answer,) = self.answers("reduce", *arguments, *place)
            found.append({op: each["values"] if isinstance(each, dict) else each for op, each in answer["results"].items()})
        self.assertEqual(found[0], found[1])
        return found[0]

    def compare(self, code, *arguments):
        """What `compare --json` prints, which has to be the same at a server and in the process of reducectl."""
        found = []
        for place in ((), LOCAL):
            run = self.run_reducectl("--json", "compare", *arguments, *place)
            self.assertEqual(run.returncode, code, run.stderr.decode())
            found.append([json.loads(line) for line in run.stdout.splitlines()])
        self.assertEqual(found[0], found[1])
        return found[0]

    @staticmethod
    def quantile(elements, weights, q):
        """The least element up to which the weights add up to q times their sum."""
        least = Fraction(q) * sum(map(Fraction, weights))
        so_far = 0
        for element, weight in sorted(zip(elements, weights)):
            so_far += Fraction(weight)
            if so_far >= least:
                return element
        raise AssertionError("no weights")

    def test_reduce_with_y_and_weights(self):
        x, y = self.random.normal(size=(40, 5)), self.random.normal(size=(40, 5)).astype("f4")
        a, b = self.save(x), self.save(y, "y.npy")
        got = self.values(a, "--op", "dot,corr,distance_max,sum", "--y", b)
        dot = float(sum(Fraction(p) * Fraction(q) for p, q in zip(x.ravel().tolist(), y.ravel().tolist())))
        self.assertEqual(got["dot"], dot)
        self.assertAlmostEqual(got["corr"], np.corrcoef(x.ravel(), y.ravel())[0, 1], delta=1e-12)
        self.assertEqual(got["distance_max"], np.abs(x - y).max())
        np.testing.assert_allclose(self.values(a, "--op", "cov", "--y", b, "--axis", "0", "--ddof", "1")["cov"],
                                   [np.cov(x[:, i], y[:, i])[0, 1] for i in range(5)], rtol=1e-12)
        rows = self.random.random(40)
        w = self.save(rows, "w.npy")
        np.testing.assert_allclose(self.values(a, "--op", "weighted_mean", "--weights", w, "--axis", "0")["weighted_mean"],
                                   np.average(x, axis=0, weights=rows), rtol=1e-14)
        keys = self.save(np.arange(40) % 3, "k.npy")
        got = self.values(a, "--op", "weighted_mean", "--weights", w, "--keys", keys)["weighted_mean"]
        np.testing.assert_allclose(got, [np.average(x[k::3], axis=0, weights=rows[k::3]) for k in range(3)], rtol=1e-13)
        got = self.values(a, "--op", "weighted_median,weighted_quantile(0.1,0.9)", "--weights", w, "--axis", "0")
        wanted = np.array([[self.quantile(column.tolist(), rows.tolist(), q) for column in x.T] for q in (0.5, 0.1, 0.9)])
        np.testing.assert_array_equal(got["weighted_median"], wanted[0])
        np.testing.assert_array_equal(got["weighted_quantile(0.1,0.9)"], wanted[1:].T)
        where = self.save(x > 0, "where.npy")
        self.assertEqual(self.values(a, "--op", "dot", "--y", b, "--where", where)["dot"],
                         float(sum(Fraction(p) * Fraction(q) for p, q in zip(x[x > 0].tolist(), y[x > 0].tolist()))))
        columns = self.save(np.arange(5.0), "columns.npy")
        np.testing.assert_allclose(self.values(a, "--op", "dot", "--y", columns, "--axis", "1")["dot"], x @ np.arange(5.0), rtol=1e-12)
        archive = self.folder / "both.npz"
        np.savez(archive, x=x, y=y)
        self.assertEqual(self.values(archive, "--array", "x", "--op", "dot", "--y", f"{archive}:y")["dot"], dot)
        (streamed,) = self.answers("reduce", a, "--op", "dot,compare", "--y", b, "--via", "stream")
        self.assertEqual((streamed["results"]["dot"], streamed["via"]), (dot, "stream"))
        self.check_failure(USAGE, ["--via: got stream; allowed: auto, inline, session, ring, region for arrays of results"],
                           "reduce", a, "--op", "sum", "--axis", "0", "--via", "stream")
        self.check_failure(SERVER, ["axes: got some in a stream"], "reduce", a, "--op", "dot", "--y", b, "--axis", "0", "--via", "stream")
        raw, other = self.folder / "x.bin", self.folder / "y.bin"
        x.tofile(raw)
        y.astype("f8").tofile(other)
        self.assertEqual(self.values(raw, "--dtype", "f64", "--op", "dot", "--y", other)["dot"], dot)
        (put,) = self.answers("arrays", "put", b, "--device", "cpu")
        self.assertEqual(self.answers("reduce", a, "--op", "dot", "--y", f"@{put['id']}")[0]["results"]["dot"], dot)

    def test_states_of_two_arrays(self):
        x, y = self.random.normal(size=100), self.random.normal(size=100)
        states = []
        for part, rows in enumerate((slice(0, 30), slice(30, 100))):
            states.append(self.folder / f"{part}.state")
            self.answers("reduce", self.save(x[rows]), "--op", "corr,dot", "--y", self.save(y[rows], "y.npy"), "--state", states[-1])
        (merged,) = self.answers("merge", *states)
        self.assertEqual(merged["results"], self.values(self.save(x), "--op", "corr,dot", "--y", self.save(y, "y.npy")))

    def test_columns_of_texts(self):
        table = self.write("t.csv", "price;pieces;shop\n1,5;2;1\n2,5;;2\n4,25;3;1\n")
        options = ("--column", "price", "--delimiter", ";", "--decimal", ",", "--op", "weighted_mean,weighted_sum", "--weights", f"{table}:pieces")
        self.assertEqual(self.values(table, *options, "--nan", "omit"), {"weighted_mean": 15.75 / 5, "weighted_sum": 15.75})
        self.check_failure(DATA, ["--weights ", "pieces"], "reduce", table, *options)
        ints = self.write("i.csv", "a,b,c\n1,2,0.5\n3,4,1.5\n,5,2\n")
        self.assertEqual(self.values(ints, "--column", "b", "--op", "dot", "--y", f"{ints}:c"), {"dot": 17.0})
        self.assertEqual(self.values(ints, "--column", "a", "--op", "dot", "--y", f"{ints}:b", "--nan", "omit"), {"dot": 14.0})
        self.assertEqual(self.values(ints, "--column", "b", "--op", "dot,sum", "--y", f"{ints}:b"), {"dot": 45, "sum": 11})
        self.check_failure(SERVER, ["op: got sum of i64 beside floats"], "reduce", ints, "--column", "b", "--op", "dot,sum", "--y", f"{ints}:c")
        wide = self.write("w.csv", "a,b\n9007199254740993,0.5\n")
        self.check_failure(SERVER, ["got 9007199254740993 beside floats"], "reduce", wide, "--column", "a", "--op", "dot", "--y", f"{wide}:b")

    def test_wrong_options(self):
        a, b = self.save(np.ones(3)), self.save(np.ones(4), "b.npy")
        self.check_failure(USAGE, ["--op dot: --y is required"], "reduce", a, "--op", "dot")
        self.check_failure(USAGE, ["--op weighted_mean: --weights is required"], "reduce", a, "--op", "weighted_mean")
        self.check_failure(SERVER, ["weights: got 3 below 0 with op weighted_median; allowed: 0 or more"], "reduce", a, "--op", "weighted_median",
                           "--weights", self.save(-np.ones(3), "minus.npy"))
        self.check_failure(USAGE, ["allowed: weighted_quantile(Q,...)"], "reduce", a, "--op", "weighted_quantile(0.5;method=lower)", "--weights", a)
        self.check_failure(USAGE, ["--y", "requires an op like dot"], "reduce", a, "--op", "sum", "--y", a)
        self.check_failure(USAGE, ["--weights", "requires an op like weighted_sum"], "reduce", a, "--weights", a)
        self.check_failure(DATA, ["--y ", "nothing.npy"], "reduce", a, "--op", "dot", "--y", self.folder / "nothing.npy")
        for place in ((), LOCAL):
            self.check_failure(SERVER, ["y: got shape [4]; allowed: [3]"], "reduce", a, "--op", "dot", "--y", b, *place)
            self.check_failure(SERVER, ["weights: got shape (3) for reduced dimensions of (2)"], "reduce", self.save(np.ones((2, 3)), "c.npy"),
                               "--op", "weighted_mean", "--weights", a, "--axis", "0", *place)
        self.check_failure(USAGE, ["FILE"], "compare", a)
        for option, wrong in (("--rtol", "-1"), ("--atol", "nan"), ("--rtol", "x")):
            self.check_failure(USAGE, [f'{option}: got "{wrong}"; allowed: numbers from 0'], "compare", a, a, option, wrong)
        self.check_failure(DATA, ["nothing.npy"], "compare", a, self.folder / "nothing.npy")

    def test_compare_leaves_no_column_out(self):
        first, second = self.write("1.csv", "n,text\n1,x\n2,y\n"), self.write("2.csv", "n,text\n1,x\n2,other\n")
        for place in ((), LOCAL):
            run = self.run_reducectl("compare", first, second, *place)
            self.assertEqual((run.returncode, run.stdout), (DATA, b""))
            self.assertEqual(run.stderr.decode().count('.csv: column "text": got texts; allowed: numbers; --column names the columns to compare\n'), 2)
            run = self.run_reducectl("compare", first, second, "--column", "n", *place)
            self.assertEqual((run.returncode, run.stdout.decode().rpartition(": ")[2]), (OK, "equal, 2 elements\n"))

    def test_compare(self):
        x = self.random.normal(size=(3, 4)).astype("f4")
        y = x.copy()
        a = self.save(x)
        (same,) = self.compare(OK, a, a)
        self.assertEqual((same["equal"], same["count"], same["results"]["mismatches"], same["results"]["first"]), (True, 12, 0, None))
        y[1, 2] += 0.5
        y[2, 0] *= np.float32(1 + 1e-6)
        b = self.save(y, "b.npy")
        (got,) = self.compare(DIFFERENT, a, b)
        figures = got["results"]
        self.assertEqual((figures["mismatches"], figures["first"], figures["first_index"], figures["max_abs_index"]), (2, 6, [1, 2], 6))
        self.assertEqual((np.float32(figures["first_x"]), np.float32(figures["first_y"])), (x[1, 2], y[1, 2]))
        self.assertEqual(figures["max_abs"], abs(float(x[1, 2]) - float(y[1, 2])))
        (got,) = self.compare(DIFFERENT, a, b, "--rtol", "1e-5")
        self.assertEqual(got["results"]["mismatches"], 1)
        self.compare(OK, a, b, "--rtol", "1e-5", "--atol", "0.6")
        run = self.run_reducectl("compare", a, b)
        self.assertEqual((run.returncode, run.stderr), (DIFFERENT, b""))
        self.assertRegex(run.stdout.decode(), r"(?m)^.* and .*: 2 of 12 elements differ\n  first +\[1, 2\]: \S+ and \S+\n  max_abs +\S+ at \[1, 2\]$")
        run = self.run_reducectl("compare", a, a)
        self.assertIn(": equal, 12 elements\n", run.stdout.decode())
        self.assertEqual(self.run_reducectl("compare", a, b, "-q").stdout, b"")
        self.assertEqual(self.run_reducectl("compare", a, b, "-q").returncode, DIFFERENT)
        nan = self.save(np.array([1.0, math.nan]), "nan.npy")
        self.compare(DIFFERENT, nan, nan)
        self.compare(OK, nan, nan, "--equal-nan")

    def test_compare_what_differs_beside_elements(self):
        a = self.save(np.arange(6.0))
        (got,) = self.compare(DIFFERENT, a, self.save(np.arange(6.0).reshape(2, 3), "b.npy"))
        self.assertEqual((got["equal"], got["difference"]), (False, "the shapes differ: f64 (6) and f64 (2, 3)"))
        (got,) = self.compare(DIFFERENT, a, self.save(np.zeros(()), "scalar.npy"))
        (got,) = self.compare(OK, a, self.save(np.arange(6, dtype="i4"), "c.npy"))
        self.assertEqual(got["dtypes"], ["f64", "i32"])
        self.assertIn(", of f64 and i32\n", self.run_reducectl("compare", a, self.folder / "c.npy").stdout.decode())
        (got,) = self.compare(DIFFERENT, self.save(np.array([2**60 + 1, 5]), "i.npy"), self.save(np.array([2**60, 5]), "j.npy"))
        self.assertEqual((got["results"]["first_x"], got["results"]["first_y"], got["results"]["max_abs"]), (2**60 + 1, 2**60, 1))
        for arrays in ((np.zeros((0, 3)), np.zeros((0, 3))), (np.zeros(()), np.zeros(())), (np.array([True]), np.array([True]))):
            self.compare(OK, self.save(arrays[0], "e.npy"), self.save(arrays[1], "f.npy"))
        fortran = self.save(np.asfortranarray(np.arange(6.0).reshape(2, 3)), "fortran.npy")
        self.compare(OK, fortran, self.folder / "b.npy")

    def test_compare_archives_and_texts_by_name(self):
        one, two = self.folder / "one.npz", self.folder / "two.npz"
        np.savez(one, a=np.ones(3), b=np.zeros(2), c=np.ones(1))
        np.savez(two, c=np.ones(1), b=np.ones(2), d=np.ones(1))
        got = {each["array"]: each for each in self.compare(DIFFERENT, one, two)}
        self.assertEqual({name: each["equal"] for name, each in got.items()}, {"a": False, "b": False, "c": True, "d": False})
        self.assertEqual((got["a"]["difference"], got["d"]["difference"]), (f"only {one} has it", f"only {two} has it"))
        self.assertEqual(self.compare(OK, one, two, "--array", "c")[0]["array"], "c")
        p, q = self.write("p.csv", "x,y\n1,2.5\n2,3.5\n"), self.write("q.csv", "y,x\n2.5,1\n3.5,3\n")
        got = {each["array"]: each["equal"] for each in self.compare(DIFFERENT, p, q)}
        self.assertEqual(got, {"x": False, "y": True})
        self.compare(OK, p, q, "--column", "y")
        self.compare(OK, self.write("r.csv", "x\n1\n2\n"), self.save(np.array([1, 2]), "r.npy"))
        m, n = self.write("m.csv", "x\n1\nNA\n3\n"), self.write("n.csv", "x\n1\n2\n3\n")
        self.assertEqual(self.compare(DIFFERENT, m, n)[0]["results"]["first_index"], [1])
        self.compare(OK, m, m, "--equal-nan")
        raw = self.folder / "raw.bin"
        np.arange(4, dtype="f4").tofile(raw)
        self.compare(OK, raw, raw, "--dtype", "f32", "--shape", "2,2")

    def test_corr(self):
        table = self.random.normal(size=(50, 3))
        text = self.write("t.csv", "a,b,c,name\n" + "".join(f"{','.join(map(repr, row))},x\n" for row in table.tolist()))
        for place in ((), LOCAL):
            (got,) = self.answers("corr", text, "--column", "a,b,c", *place)
            self.assertEqual((got["columns"], got["count"]), (["a", "b", "c"], 50))
            np.testing.assert_allclose(got["results"]["corr"], np.corrcoef(table.T), rtol=1e-12)
            self.assertEqual([got["results"]["corr"][i][i] for i in range(3)], [1, 1, 1])
            (got,) = self.answers("corr", self.save(table), "--cov", *place)
            np.testing.assert_allclose(got["results"]["cov"], np.cov(table.T), rtol=1e-12)
            self.assertEqual((got["columns"], got["ddof"]), (["0", "1", "2"], 1))
        (got,) = self.answers("corr", self.folder / "array.npy", "--cov", "--ddof", "0")
        np.testing.assert_allclose(got["results"]["cov"], np.cov(table.T, ddof=0), rtol=1e-12)
        np.savez(self.folder / "a.npz", p=table[:, 0], q=table[:, 1])
        (got,) = self.answers("corr", self.folder / "a.npz")
        self.assertEqual(got["columns"], ["p", "q"])
        run = self.run_reducectl("corr", self.folder / "a.npz")
        self.assertRegex(run.stdout.decode(), r"^\S+: corr, 50 rows, ran on cpu\n +p +q\n  p +1\.0 +\S+\n  q +\S+ +1\.0\n$")

    def test_columns_of_several_dtypes(self):
        flags = self.random.random(60) < 0.5
        columns = {"f": self.random.normal(size=60).astype("f4"), "d": self.random.normal(size=60), "i": self.random.integers(-9, 9, 60),
                   "u": self.random.integers(0, 9, 60).astype("u1"), "b": flags}
        np.savez(self.folder / "c.npz", **columns)
        table = np.stack([column.astype("f8") for column in columns.values()])
        for place in ((), LOCAL):
            (got,) = self.answers("corr", self.folder / "c.npz", *place)
            self.assertEqual(got["columns"], list(columns))
            np.testing.assert_allclose(got["results"]["corr"], np.corrcoef(table), rtol=1e-12)
        dot = self.values(self.save(columns["d"], "d.npy"), "--op", "dot", "--y", self.save(flags, "b.npy"))["dot"]
        self.assertEqual(dot, float(sum(map(Fraction, columns["d"][flags].tolist()))))
        np.savez(self.folder / "i.npz", a=np.array([2**53 + 1, 0, 5]), b=np.array([1, 2, 4], "i2"))
        self.check_failure(DATA, ["got 9007199254740993"], "corr", self.folder / "i.npz")
        many = self.save(self.random.normal(size=(5, 65)), "many.npy")
        self.check_failure(DATA, ["columns: got 65; allowed: 2 to 64"], "corr", many)

    def test_corr_of_missing_and_constant_columns(self):
        path = self.write("m.csv", "a,b,c\n1,2,7\n2,,7\n3,5,7\n4,9,7\n")
        run = self.run_reducectl("corr", path)
        self.assertEqual(run.returncode, DATA)
        self.assertIn("--nan omit", run.stderr.decode())
        (got,) = self.answers("corr", path, "--nan", "omit")
        corr = got["results"]["corr"]
        self.assertAlmostEqual(corr[0][1], np.corrcoef([1, 3, 4], [2, 5, 9])[0, 1], delta=1e-12)
        self.assertEqual((corr[2], corr[0][0]), (["NaN"] * 3, 1))
        self.check_failure(DATA, ["columns: got 1; allowed: 2 to 64"], "corr", path, "--column", "a")
        self.check_failure(DATA, ["columns: got 1; allowed: 2 to 64"], "corr", self.save(np.ones(3)))
        np.savez(self.folder / "bad.npz", p=np.ones(3), q=np.ones(4))
        self.check_failure(DATA, ["got arrays of shapes (3) and (4)"], "corr", self.folder / "bad.npz")


if __name__ == "__main__":
    unittest.main()

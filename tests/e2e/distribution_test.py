"""Medians, quantiles, histograms, top k and distinct counts by reducectl: against NumPy and sorting."""

import json
import unittest

import harness
from harness import np

USAGE, SERVER, DATA = 2, 4, 5
METHODS = ("linear", "lower", "higher", "nearest", "midpoint")
QS = (0, 0.1, 0.25, 0.5, 0.75, 0.999, 1)


class DistributionTest(harness.ServedTest):
    def setUp(self):
        super().setUp()
        self.random = np.random.default_rng(3)

    def arrays(self):
        normal = self.random.normal(size=997)
        return {"f8": normal, "f4": normal.astype("f4"), "f2": normal.astype("f2"), "i4": self.random.integers(-50, 50, 1000).astype("i4"),
                "u1": self.random.integers(0, 9, 4000).astype("u1"), "i8": self.random.integers(-2**62, 2**62, 333)}

    def values(self, path, ops, *arguments, places=((), ("--server", "local:"), ("--via", "session"), ("--via", "ring"))):
        """The values of each op, which are the same at a server, in its sessions and in the process of reducectl."""
        found = []
        for place in places:
            (answer,) = self.answers("reduce", path, "--op", ops, *arguments, *place)
            found.append([each["values"] if isinstance(each, dict) else each for each in answer["results"].values()])
        self.assertTrue(all(each == found[0] for each in found))
        return found[0]

    def test_as_numpy(self):
        for name, array in self.arrays().items():
            path = self.save(array)
            qs = ",".join(map(str, QS))
            ops = ["median", *(f"quantile({qs};method={method})" for method in METHODS), "topk(5)", "argtopk(5)", "bottomk(3)",
                   "argbottomk(3)", "distinct_exact", "histogram(-1,1,7)", "histogram(edges=-1,0,0.5,8)"]
            got = self.values(path, ",".join(ops))
            wide = array.astype("f8") if array.dtype.kind == "f" else array
            right = [float(np.median(wide.astype("f8")))]
            right += [np.quantile(wide.astype("f8") if method in ("linear", "midpoint") else array, QS, method=method).tolist()
                      for method in METHODS]
            down = sorted(range(array.size), key=lambda i: (-array[i].item(), i))
            up = sorted(range(array.size), key=lambda i: (array[i].item(), i))
            right += [array[down[:5]].tolist(), down[:5], array[up[:3]].tolist(), up[:3], len(np.unique(array)),
                      np.histogram(wide, np.linspace(-1, 1, 8))[0].tolist(), np.histogram(wide, [-1, 0, 0.5, 8])[0].tolist()]
            for op, mine, theirs in zip(ops, got, right):
                if name in ("f4", "f2") and op.startswith(("topk", "bottomk", "quantile")) and "linear" not in op and "midpoint" not in op:
                    mine, theirs = np.array(mine, name), np.array(theirs, name)  # the shortest decimals are those of the dtype
                np.testing.assert_array_equal(np.array(mine), np.array(theirs), f"{name} {op}")

    def test_along_axes_by_keys_and_under_masks(self):
        array = self.random.normal(size=(40, 6))
        path = self.save(array)
        (got,) = self.values(path, "quantile(0.25,0.5)", "--axis", "0")
        np.testing.assert_array_equal(got, np.moveaxis(np.quantile(array, [0.25, 0.5], axis=0), 0, -1))
        (got,) = self.values(path, "median", "--axis", "1")
        np.testing.assert_array_equal(got, np.median(array, axis=1))
        keys = self.random.integers(0, 3, 40)
        (got,) = self.values(path, "topk(2)", "--keys", self.save(keys, "keys.npy"))
        for key, rows in enumerate(got):
            np.testing.assert_array_equal(rows, np.sort(array[keys == key], axis=0)[::-1][:2].T)
        mask = array > 0
        where = self.save(mask, "mask.npy")
        (median, counts) = self.values(path, "median,histogram(0,3,3)", "--where", where)
        self.assertEqual(median, np.median(array[mask]))
        self.assertEqual(counts, np.histogram(array[mask], np.linspace(0, 3, 4))[0].tolist())
        offsets = self.save(np.array([0, 10, 10, 40]), "offsets.npy")
        (got,) = self.values(self.save(array[:, 0].copy(), "one.npy"), "median", "--segments", offsets)
        self.assertEqual((got[0], got[1], got[2]), (np.median(array[:10, 0]), "NaN", np.median(array[10:, 0])))

    def test_nan(self):
        path = self.save(np.array([3, np.nan, 1, 2.0]))
        self.assertEqual(self.values(path, "median,topk(2),histogram(0,3,3)"), ["NaN", ["NaN", 3], [0, 1, 2]])
        self.assertEqual(self.values(path, "median,topk(2)", "--nan", "omit"), [2, [3, 2]])
        text = self.folder / "t.csv"
        text.write_text("a\n5\nNA\n1\n9\n")
        self.assertEqual(self.values(text, "median,argtopk(2)", "--nan", "omit"), [5, [3, 0]])

    def test_text_and_files(self):
        path = self.save(np.array([3, 1, 2.0, 2]))
        run = self.run_reducectl("reduce", path, "--op", "median,quantile(0.5, 1),distinct")
        self.assertEqual(run.returncode, 0, run.stderr)
        lines = run.stdout.decode().splitlines()
        self.assertIn("4 elements", lines[0])
        self.assertEqual(lines[1:], ["median: 2.0", "quantile(0.5, 1): f64 (2)", "[2.0 3.0]", "distinct: 3"])
        run = self.run_reducectl("reduce", path, "--op", "median", "-q")
        self.assertEqual(run.stdout, b"2.0\n")
        run = self.run_reducectl("reduce", path, "--op", "median,topk(2)", "-q")
        self.assertEqual(run.stdout, b"2.0\n[3.0 2.0]\n")
        out = self.folder / "top.npy"
        self.assertEqual(self.run_reducectl("reduce", path, "--op", "topk(3)", "--out", out).returncode, 0)
        np.testing.assert_array_equal(np.load(out), [3, 2, 2])

    def test_resident_arrays_and_regions(self):
        array = self.random.normal(size=1000)
        path = self.save(array)
        id = self.run_reducectl("arrays", "put", path).stdout.decode().split()[0]
        (answer,) = self.answers("reduce", "--array", id, "--op", "sum,median")
        self.assertEqual(answer["results"]["median"], np.median(array))
        (answer,) = self.answers("reduce", path, "--via", "region", "--op", "median")
        self.assertEqual(answer["results"]["median"], np.median(array))
        run = self.run_reducectl("reduce", "--array", id, "--op", "quantile(0.5,0.9)", "--keep")
        self.assertRegex(run.stdout.decode(), r"kept as \S+")

    def test_what_is_refused(self):
        path = self.save(np.array([3, 1, 2.0]))
        for op, message in (("medain", '--op: got "medain"; allowed: sum, prod'),
                            ("quantile", '--op: got "quantile"; allowed: quantile(Q,...'),
                            ("topk(x)", '--op: got "topk(x)"; allowed: topk(K)'),
                            ("sum()", '--op: got "sum()"; allowed: sum, which has no parameters')):
            self.check_failure(USAGE, [message], "reduce", path, "--op", op)
        for op, message in (("quantile(0.5,1.5)", "calls[0].quantile.q[1]: got 1.5; allowed: 0 to 1"),
                            ("sum,topk(0)", "calls[1].top.k: got 0; allowed: 1 to 1024"),
                            ("topk(1025)", "calls[0].top.k: got 1025; allowed: 1 to 1024"),
                            ("histogram(1,0,5)", "calls[0].histogram.uniform.high: got 0 with low 1; "),
                            ("histogram(edges=0,2,1)", "calls[0].histogram.edges.edge[2]: got 1 after 2"),
                            ("quantile(1.0000000000000002)", "calls[0].quantile.q[0]: got 1.0000000000000002; allowed: 0 to 1"),
                            ("histogram(edges=0,inf)", "calls[0].histogram.edges.edge[1]: got inf; allowed: finite numbers"),
                            ("topk(4)", "at least 4")):
            for place in ((), ("--server", "local:")):
                run = self.run_reducectl("reduce", path, "--op", op, *place)
                self.assertNotEqual(run.returncode, 0)
                self.assertIn(message, run.stderr.decode())
        self.check_failure(USAGE, ["--via: got stream; allowed: auto, inline, session, ring, region"], "reduce", path, "--op", "median",
                           "--via", "stream")

    def test_headers_that_promise_too_much(self):
        header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000000000,), }".ljust(117) + b"\n"
        path = self.folder / "huge.npy"
        path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(16))
        for place in ((), ("--server", "local:")):
            for source, stdin in ((path, None), ("-", path.read_bytes())):
                run = self.run_reducectl("reduce", source, "--op", "median", *place, stdin=stdin or b"")
                self.assertGreater(run.returncode, 0, run.stderr)  # not a signal
                self.assertEqual(run.stdout, b"")
                self.assertIn(b"reducectl: ", run.stderr)

    def test_histogram(self):
        array = self.random.normal(size=500)
        array[7] = np.nan
        path = self.save(array)
        there = array[~np.isnan(array)]
        for arguments, bins, bounds in (((), 10, None), (("--bins", "7"), 7, None), (("--range=-1,1",), 10, (-1, 1))):
            counts, edges = np.histogram(there, bins, bounds)
            for place in ((), ("--server", "local:")):
                (answer,) = self.answers("histogram", path, *arguments, *place)
                results = answer["results"]
                self.assertEqual((results["counts"], results["edges"]), (counts.tolist(), edges.tolist()))
                self.assertEqual((results["outside"], results["nan_count"]), (499 - counts.sum(), 1))
        (answer,) = self.answers("histogram", path, "--edges=0,0.5,3")
        self.assertEqual(answer["results"]["counts"], np.histogram(there, [0, 0.5, 3])[0].tolist())
        positive = self.save(np.array([1, 5, 20, 100.0, 99]), "positive.npy")
        (answer,) = self.answers("histogram", positive, "--log", "--bins", "2")
        self.assertEqual((answer["results"]["counts"], answer["results"]["edges"][0], answer["results"]["edges"][2]), ([2, 3], 1, 100))
        run = self.run_reducectl("histogram", positive, "--bins", "2", "--svg", self.folder / "h.svg")
        lines = run.stdout.decode().splitlines()
        self.assertEqual((run.returncode, lines[0]), (0, f"{positive}: 5 elements"))
        self.assertEqual([line.split() for line in lines[1:]],
                         [["[1.0,", "50.5)", "3", "#" * 40], ["[50.5,", "100.0]", "2", "#" * 27]])
        self.assertIn("<rect", (self.folder / "h.svg").read_text())
        text = self.folder / "t.csv"
        text.write_text("a,b\n1,x\nNA,y\n3,x\n")
        (answer,) = self.answers("histogram", text, "--column", "a", "--bins", "2")
        self.assertEqual((answer["results"]["counts"], answer["results"]["nan_count"]), ([1, 1], 1))
        self.check_failure(USAGE, ["--range"], "histogram", path, "--range", "1,0")
        run = self.run_reducectl("histogram", path, "--log")
        self.assertIn("--log: got elements from -", run.stderr.decode())

    def test_describe(self):
        array = self.random.normal(size=101)
        path = self.save(array)
        for place in ((), ("--server", "local:")):
            (answer,) = self.answers("describe", path, *place)
            results = answer["results"]
            self.assertEqual(list(results)[:9], ["count", "missing", "mean", "std", "min", "25%", "50%", "75%", "max"])
            self.assertEqual([results[name] for name in ("25%", "50%", "75%")], np.quantile(array, [0.25, 0.5, 0.75]).tolist())
        text = self.folder / "t.csv"
        text.write_text("name,n\nbob,1\namy,2\nbob,3\n,4\n")
        (name, n) = self.answers("describe", text)
        self.assertEqual(name["results"], {"count": 3, "missing": 1, "distinct": 2, "most_frequent": "bob", "frequency": 2})
        self.assertEqual((name["dtype"], name["column"], n["results"]["50%"]), ("text", "name", 2.5))
        run = self.run_reducectl("describe", text)
        self.assertEqual((run.returncode, run.stderr), (0, b""))
        head, first, second = (line.split() for line in run.stdout.decode().splitlines())
        self.assertEqual(head[:9] + head[-4:], ["DTYPE", "COUNT", "MISSING", "MEAN", "STD", "MIN", "25%", "50%", "75%",
                                                "DISTINCT", "MOST", "FREQUENT", "TIMES"])
        self.assertEqual((first[2:5], first[-3:], second[-3:]), (["text", "3", "1"], ["2", "bob", "2"], ["-", "-", "-"]))

    def test_describe_of_texts(self):
        """Each column of texts has how many there are, how many different ones, and the most frequent: of quoted fields, too."""
        rows = [('"Bob, jr"', "Paris", "1"), ('"Al ""x"""', "NA", "2"), ('"Bob, jr"', "", "3"), ("", "Rome", "NA"), ('"two\nlines"', "Rome", "4")]
        right = {"name": {"count": 4, "missing": 1, "distinct": 3, "most_frequent": "Bob, jr", "frequency": 2},
                 "city": {"count": 3, "missing": 2, "distinct": 2, "most_frequent": "Rome", "frequency": 2}}
        for suffix, comma in ((".csv", ","), (".csv", ";"), (".tsv", "\t")):
            path = self.folder / f"t{suffix}"
            path.write_text("".join(comma.join(row) + "\n" for row in [("name", "city", "n"), *rows]))
            for place in ((), ("--server", "local:")):
                with self.subTest(comma=comma, place=place):
                    name, city, n = self.answers("describe", path, *place)
                    self.assertEqual({each["column"]: each["results"] for each in (name, city)}, right)
                    self.assertEqual([n["results"][each] for each in ("count", "missing", "50%", "max")], [4, 1, 2.5, 4])
        ties = self.folder / "ties.tsv"
        ties.write_text("a\nb\na\n")
        self.assertEqual(self.answers("describe", ties, "--header", "no")[0]["results"]["most_frequent"], "a")

    def test_loadtest(self):
        run = self.run_reducectl("--json", "loadtest", "--op", "median", "--size", "4Ki", "--duration", "300ms", "--concurrency", "2",
                                 "--stability", "100%")
        self.assertEqual(run.returncode, 0, run.stderr)
        # Requests at a rate wait for no answer; such arrays would else be streamed or stored.
        run = self.run_reducectl("--json", "loadtest", "--op", "median", "--size", "1Mi", "--duration", "300ms", "--rate", "20",
                                 "--stability", "100%")
        self.assertEqual(run.returncode, 0, run.stderr)

    def test_ops_say_how_they_are_written(self):
        for place in ((), ("--server", "local:")):
            run = self.run_reducectl("--json", "ops", *place)
            usages = {line["op"]: line.get("usage") for line in map(json.loads, run.stdout.splitlines())}
            self.assertEqual((usages["topk"], usages["sum"]), ("topk(K)", None))

    def test_indexes_count_missing_elements_and_are_of_c_order(self):
        path = self.folder / "missing.csv"
        path.write_text("v\nNA\n5\nNA\n7\n1\n")
        got = self.values(path, "argtopk(2), argbottomk(1),argmax", "--nan", "omit")
        self.assertEqual(got, [[3, 1], [4], 3])
        self.check_failure(SERVER, ["missing elements"], "reduce", path, "--op", "argtopk(2)", "--nan", "omit", "--state", self.folder / "s")
        array = np.asfortranarray([[1.0, 9.0, 2.0], [8.0, 3.0, 4.0]])
        self.assertEqual(self.values(self.save(array), "argtopk(2),argmax"), [[1, 3], 1])

    def test_states_merge(self):
        array = self.random.normal(size=1000).astype("f4")
        ops = "topk(5),argtopk(5),bottomk(2),argbottomk(3),distinct,distinct_exact,histogram(-1,1,7),sum,median(bits=32)"
        states = []
        for number, part in enumerate(np.split(array, [300, 301, 999])):
            states.append(self.folder / f"{number}.state")
            place = ("--server", "local:") if number == 1 else ()
            run = self.run_reducectl("reduce", self.save(part), "--op", ops, "--state", states[-1], *place)
            # A single element has a state, and no five largest ones.
            self.assertEqual(run.returncode, SERVER if part.size < 5 else 0, run.stderr)
        whole = self.values(self.save(array), ops)
        run = self.run_reducectl("--json", "merge", *states)
        self.assertEqual(run.returncode, 0, run.stderr)
        merged = json.loads(run.stdout)["results"]
        self.assertEqual([each["values"] if isinstance(each, dict) else each for each in merged.values()], whole)
        self.assertIn("topk(5)", merged)
        self.assertIn("median", merged)

    def test_the_state_of_a_median_has_no_answer(self):
        path = self.save(self.random.normal(size=100))
        state = self.folder / "median.state"
        self.answers("reduce", path, "--op", "median,max", "--state", state)
        run = self.run_reducectl("merge", state)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn(b"op median: got a state with the highest 20 of 64 bits of the elements", run.stderr)
        self.assertIn(b"max", run.stdout)


class WithoutRoomTest(harness.ServedTest):
    flags = ("--cpu_array_bytes=1Mi",)

    def test_a_summary_without_quartiles(self):
        array = np.random.default_rng(4).normal(size=1_000_000)  # too large for a message, and for the arrays of the server
        path = self.save(array)
        run = self.run_reducectl("--server", self.server.tcp, "--json", "describe", path)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn(b"without quartiles: ", run.stderr)
        results = json.loads(run.stdout)["results"]
        self.assertEqual((results["count"], results["max"], results["50%"]), (array.size, array.max(), None))
        (local,) = self.answers("describe", path, "--server", "local:")
        self.assertEqual(local["results"]["50%"], np.median(array))


if __name__ == "__main__":
    unittest.main()

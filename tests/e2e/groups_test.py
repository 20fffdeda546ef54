"""Reductions of segments, by keys and under masks by reducectl: against NumPy, to files, kept, and in this process."""

import unittest

import harness
from harness import np

USAGE, SERVER, DATA_ERROR = 2, 4, 5


class GroupsTest(harness.ServedTest):
    flags = ("--cpu_array_bytes=256MiB", "--max_result_bytes=1MiB", "--cuda=false")

    def setUp(self):
        super().setUp()
        self.random = np.random.default_rng(2)

    def text(self, *arguments):
        run = self.run_reducectl(*arguments)
        self.assertEqual((run.returncode, run.stderr), (0, b""))
        return run.stdout.decode()

    def values(self, source, ops, *arguments):
        """The results by op, and the keys."""
        answer = self.reduce(source, ops, *arguments)
        results = {op: result["values"] if isinstance(result, dict) else result for op, result in answer["results"].items()}
        if "keys" in answer:
            results["keys"] = answer["keys"]["values"]
        return results

    def test_keys(self):
        array = self.random.integers(-1000, 1000, 5000).astype("i4")
        keys = self.random.integers(-3, 40, 5000)
        path, keys_path = self.save(array), self.save(keys, "keys.npy")
        groups, counts = np.unique(keys, return_counts=True)
        for place in ([], ["--server", "local:"]):
            got = self.values(path, "sum,max,argmin,count", "--keys", keys_path, *place)
            self.assertEqual(got["keys"], groups.tolist())
            self.assertEqual(got["count"], counts.tolist())
            self.assertEqual(got["sum"], [int(array[keys == key].sum()) for key in groups])
            self.assertEqual(got["argmin"], [int(np.flatnonzero(keys == key)[array[keys == key].argmin()]) for key in groups])
        got = self.values(path, "sum", "--keys", keys_path, "--groups", "10", "--outside", "drop")
        self.assertEqual(got, {"sum": [int(array[keys == key].sum()) for key in range(10)]})
        self.text("reduce", path, "--op", "max", "--keys", keys_path, "--out", self.folder / "{op}.npy", "--out-keys",
                  self.folder / "found.npy")
        self.assertTrue(np.array_equal(np.load(self.folder / "found.npy"), groups))
        self.assertEqual(np.load(self.folder / "max.npy").tolist(), [int(array[keys == key].max()) for key in groups])
        lines = self.text("reduce", path, "--op", "count", "--keys", keys_path, "--quiet")
        self.assertEqual(lines.split("]\n")[0].split(), str(groups)[:-1].split())

    def test_segments(self):
        table = self.random.normal(size=(300, 4)).astype("f4")
        offsets = np.array([0, 0, 10, 299, 300], "i4")
        path = self.save(table)
        got = self.values(path, "sum,count", "--segments", self.save(offsets, "offsets.npy"), "--empty", "fill")
        self.assertEqual(got["count"], [[int(n)] * 4 for n in np.diff(offsets)])
        for i, (begin, end) in enumerate(zip(offsets, offsets[1:])):
            for column in range(4):
                part = self.save(np.ascontiguousarray(table[begin:end, column]), "part.npy")
                self.assertEqual(got["sum"][i][column], self.reduce(part, "sum")["results"]["sum"])
        text = self.folder / "lengths.csv"
        text.write_text("\n".join(map(str, np.diff(offsets))))
        self.assertEqual(self.values(path, "sum", "--lengths", text)["sum"], got["sum"])

    def test_masks(self):
        array = self.random.integers(0, 100, (30, 50)).astype("u1")
        mask = self.random.random((30, 50)) < 0.3
        path = self.save(array)
        bits = self.save(np.packbits(mask.ravel(), bitorder="little"), "bits.npy")
        for where in (self.save(mask, "mask.npy"), bits):
            self.assertEqual(self.values(path, "sum,argmax", "--where", where),
                             {"sum": int(array.sum(where=mask)), "argmax": int(np.where(mask, array.astype("i4"), -1).argmax())})
            self.assertEqual(self.values(path, "sum", "--axis", "0", "--where", where)["sum"], array.sum(axis=0, where=mask).tolist())

    def test_kept(self):
        array = self.random.integers(0, 9, 100)
        path, keys = self.save(array), self.save(array % 3, "keys.npy")
        answer = self.reduce(path, "sum", "--keys", keys, "--keep")
        ids = [answer["keys"]["id"], answer["results"]["sum"]["id"]]
        self.text("arrays", "get", ids[0], "--out", self.folder / "got.npy")
        self.assertEqual(np.load(self.folder / "got.npy").tolist(), [0, 1, 2])
        for each in ids:
            self.text("arrays", "delete", each)

    def test_large_arrays_are_stored_for_the_time_of_the_request(self):
        array = self.random.normal(size=6_000_000)
        keys, mask = self.random.integers(0, 5, 6_000_000).astype("i4"), self.random.random(6_000_000) < 0.5
        got = self.values(self.save(array), "count,max", "--keys", self.save(keys, "keys.npy"), "--where",
                          self.save(mask, "mask.npy"))
        self.assertEqual(got["count"], [int((mask & (keys == key)).sum()) for key in range(5)])
        self.assertEqual(got["max"], [array[mask & (keys == key)].max() for key in range(5)])
        (info,) = self.answers("info")
        self.assertEqual((info["usage"]["arrays"], info["devices"][0]["array_bytes"]), (0, 0))

    def test_errors(self):
        path, keys = self.save(np.arange(4.0)), self.save(np.array([0, 1, 5, 1]), "keys.npy")
        self.check_failure(SERVER, ["keys[2]: got 5; allowed: 0 to 1", "OUT_OF_RANGE"], "reduce", path, "--keys", keys, "--groups", "2")
        self.check_failure(SERVER, ["segments.offsets[3]: got 1; allowed: 5"], "reduce", self.save(np.arange(9.0), "nine.npy"),
                           "--segments", keys)
        self.check_failure(SERVER, ["where.elements: got i64; allowed: bool"], "reduce", path, "--where", keys)
        self.check_failure(SERVER, ["keys.keys: got f64; allowed: integers"], "reduce", path, "--keys", path, "--server", "local:")
        self.check_failure(DATA_ERROR, ["--keys", "none.npy"], "reduce", path, "--keys", self.folder / "none.npy")
        self.check_failure(USAGE, ["exclude each other"], "reduce", path, "--keys", keys, "--axis", "0")
        self.check_failure(USAGE, ["--groups", "any, or a number from 1 on"], "reduce", path, "--keys", keys, "--groups", "0")
        self.check_failure(USAGE, ["--outside", "requires --keys and --groups N"], "reduce", path, "--keys", keys, "--outside", "drop")
        self.check_failure(USAGE, ["--groups", "requires --keys"], "reduce", path, "--where", keys, "--groups", "2")
        self.check_failure(USAGE, ["--out-keys", "requires --keys"], "reduce", path, "--where", keys, "--out-keys", "k.npy")
        self.check_failure(USAGE, ["--keepdims", "requires --axis"], "reduce", path, "--keys", keys, "--keepdims")
        self.check_failure(USAGE, ["--groups", "requires --keys"], "reduce", path, "--groups", "3")
        for option in (["--out", "x.npy"], ["--keep"], ["--empty", "fill"], ["--write-to", "x"]):
            self.check_failure(USAGE, [option[0], "requires --axis, --segments"], "reduce", path, *option)
        self.check_failure(USAGE, ["--ttl", "requires --keep"], "reduce", path, "--keys", keys, "--ttl", "1m")
        self.check_failure(USAGE, ["--out", "the name of an input"], "reduce", path, "--op", "sum", "--axis", "0", "--out", path)
        self.check_failure(USAGE, ["--out", "the name of an input"], "reduce", path, "--keys", keys, "--out-keys", keys)

    def test_names_of_one_array_or_column(self):
        text = self.folder / "sales.csv"
        text.write_text("price,shop,note\n1.5,7,a\n2.5,3,b\n3.0,7,c\n")
        price = ["reduce", text, "--column", "price", "--op", "sum"]
        answer = self.answers(*price, "--keys", f"{text}:shop")[0]
        self.assertEqual((answer["column"], answer["dtype"]), ("price", "f64"))
        self.assertEqual((answer["keys"]["values"], answer["results"]["sum"]["values"]), ([3, 7], [2.5, 4.5]))
        self.assertTrue(self.text(*price, "--keys", f"{text}:shop").startswith(f"{text}, column price: 3 elements"))
        np.savez(self.folder / "z.npz", a=np.arange(3.0), b=np.array([5, 6, 5]))
        archive = self.folder / "z.npz"
        got = self.values(archive, "sum", "--array", "a", "--keys", f"{archive}:b")
        self.assertEqual(got, {"sum": [2.0, 1.0], "keys": [5, 6]})
        colon = self.save(np.array([1, 1, 2]), "x:y.npy")  # a file of that whole name comes first
        self.assertEqual(self.values(archive, "count", "--array", "a", "--keys", colon)["keys"], [1, 2])
        self.check_failure(USAGE, ["--out-keys", "the name of an input"], *price, "--keys", f"{archive}:b", "--out-keys", archive)
        for reason, keys in (("got 2 arrays (a, b); choose one as FILE:NAME", archive),
                             ("got 3 columns (price, shop, note); choose one as FILE:NAME", text),
                             ("got \"c\"; allowed: a, b", f"{archive}:c"), ("size", f"{text}:size"), ("all", f"{text}:all"),
                             ("got the name c in a .npy file", f"{self.save(np.arange(3), 'one.npy')}:c")):
            self.check_failure(DATA_ERROR, [f"reducectl: --keys {keys}: ", reason], *price, "--keys", keys)

    def test_resident_arrays_beside_another(self):
        array = self.random.integers(0, 9, 60)
        sides = {"--keys": array % 3, "--segments": np.array([0, 10, 60]), "--where": array > 4}
        path = self.save(array)
        for option, side in sides.items():
            file = self.save(side, "side.npy")
            name = self.text("arrays", "put", file).strip()
            self.assertEqual(self.values(path, "sum,count", option, f"@{name}"), self.values(path, "sum,count", option, file))
            self.text("arrays", "delete", name)
            self.check_failure(SERVER, [name, "NOT_FOUND"], "reduce", path, option, f"@{name}")
        self.check_failure(SERVER, ["keys: got an array of a server; allowed: in memory"], "reduce", path, "--keys", "@x", "--server", "local:")

    def test_bits_of_a_mask_are_as_many_as_elements(self):
        path, bytes_ = self.save(np.arange(5.0)), self.save(np.array([1, 0, 1, 1, 0], "u1"), "bytes.npy")
        self.check_failure(DATA_ERROR, ["--where", "got u8 (5); allowed: bool (5), or u8 (1), whose bits are the elements"], "reduce",
                           path, "--where", bytes_)

    def test_owner_and_time_to_live_of_what_is_kept(self):
        path = self.save(np.arange(4.0))
        answer = self.reduce(path, "sum", "--keys", self.save(np.array([0, 1, 0, 1]), "keys.npy"), "--keep", "--owner", "me", "--ttl", "100s")
        kept = {each["id"]: each for each in self.answers("arrays", "list", "--owner", "me")}
        self.assertEqual(set(kept), {answer["keys"]["id"], answer["results"]["sum"]["id"]})
        for each in kept.values():
            self.assertLess(each["expires_in_s"], 101)
            self.text("arrays", "delete", each["id"], "--owner", "me")


    def test_states_of_parts_merge(self):
        values = (self.random.normal(size=900) * 10.0 ** self.random.integers(-30, 30, 900)).astype("f4")
        keys = np.sort(self.random.integers(0, 40, 900)).astype("i4")  # so that each part lacks most of them
        ops = "sum,var,argmax"
        states = []
        for i, (begin, end) in enumerate(((0, 100), (100, 101), (101, 900))):
            states.append(self.folder / f"{i}.state")
            self.run_reducectl("reduce", self.save(values[begin:end], f"v{i}.npy"), "--op", ops, "--keys",
                               self.save(keys[begin:end], f"k{i}.npy"), "--state", states[-1])
        run = self.run_reducectl("merge", *states, "--out", self.folder / "m-{op}.npy", "--out-keys", self.folder / "m-keys.npy",
                                 "--state", self.folder / "all.state")
        self.assertEqual((run.returncode, run.stderr), (0, b""))
        run = self.run_reducectl("reduce", self.save(values, "v.npy"), "--op", ops, "--keys", self.save(keys, "k.npy"), "--out",
                                 self.folder / "w-{op}.npy", "--out-keys", self.folder / "w-keys.npy")
        self.assertEqual((run.returncode, run.stderr), (0, b""))
        for name in [*ops.split(","), "keys"]:
            merged, whole = (np.load(self.folder / f"{which}-{name}.npy") for which in "mw")
            self.assertEqual((merged.dtype, merged.tobytes()), (whole.dtype, whole.tobytes()), name)
        again = self.answers("merge", self.folder / "all.state")[0]
        self.assertEqual((again["count"], again["keys"]["values"]), (900, np.unique(keys).tolist()))
        self.assertEqual(again["results"]["argmax"]["values"], np.load(self.folder / "w-argmax.npy").tolist())
        self.check_failure(2, ["--state"], "reduce", self.folder / "v.npy", "--lengths", self.folder / "k.npy", "--state", "x")
        self.check_failure(5, ["{op}"], "merge", *states, "--out", "x.npy")


if __name__ == "__main__":
    unittest.main()

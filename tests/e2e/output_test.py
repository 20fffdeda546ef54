"""What commands print: one shape of JSON, notes, names beside results, and what to do without a server."""

import json
import unittest
import zipfile

import harness
from harness import np

CONNECTION, DATA_ERROR = 3, 5
NO_SERVER = "127.0.0.1:1"
LOCAL = "reduce, describe, histogram, compare, fingerprint, corr, info, ops and pipelines need none with --server local:"


class OutputTest(harness.ServedTest):
    def text(self, *arguments):
        run = self.run_reducectl(*arguments)
        self.assertEqual((run.returncode, run.stderr), (0, b""))
        return run.stdout.decode()

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path


class JsonTest(OutputTest):
    def test_commands_have_one_shape(self):
        path = self.save(np.array([[1.5, 2.0], [np.nan, 4.0]]))
        mask = self.save(np.array([[True, True], [False, False]]), "mask.npy")
        (reduced,) = self.answers("reduce", path, "--op", "sum,std", "--nan", "omit")
        (described,) = self.answers("describe", path)
        (masked,) = self.answers("reduce", path, "--op", "sum", "--where", mask)
        (along,) = self.answers("reduce", path, "--op", "max", "--axis", "0", "--nan", "omit")
        self.assertEqual(list(reduced), list(described))
        only = {"ddof"}
        for answer in (masked, along):
            self.assertEqual([field for field in reduced if field not in only], list(answer))
        for answer in (reduced, described, masked, along):
            self.assertEqual((answer["source"], answer["dtype"], answer["shape"]), (str(path), "f64", [2, 2]))
        self.assertEqual(described["results"]["sum"], reduced["results"]["sum"])
        self.assertEqual(list(described["results"]),
                         ["count", "missing", "mean", "std", "min", "25%", "50%", "75%", "max", "argmin", "argmax", "sum", "nan_count"])
        self.assertEqual(described["results"]["nan_count"], 1)
        self.assertEqual(masked["results"], {"sum": 3.5})
        self.assertEqual(along["results"]["max"]["values"], [1.5, 4.0])


class OpErrorTest(OutputTest):
    OVERFLOW = "integer overflow: the sum of this i64 array is 9223372036854775808, which i64 doesn't hold"
    PLACES = ((), ("--server", "local:"))

    def test_an_op_without_an_answer_takes_no_other_with_it(self):
        path = self.save(np.array([2**62, 2**62]))
        for place in (*self.PLACES, ("--via", "stream"), ("--via", "session"), ("--via", "ring"), ("--via", "region")):
            run = self.run_reducectl("reduce", path, "--op", "mean,sum,max", "-q", *place)
            self.assertEqual((run.returncode, run.stdout), (4, b"4611686018427387904.0\t-\t4611686018427387904\n"), place)
            self.assertEqual(run.stderr.decode().splitlines(),
                             [f"reducectl: {path}: {self.OVERFLOW}; overflow policies wrap and saturate give a result (OUT_OF_RANGE)"])
            run = self.run_reducectl("--json", "reduce", path, "--op", "mean,sum,max", *place)
            self.assertEqual(run.returncode, 4)
            answer = json.loads(run.stdout)
            self.assertEqual(answer["results"], {"mean": 2.0**62, "sum": None, "max": 2**62})
            self.assertEqual(answer["errors"]["sum"]["code"], "OUT_OF_RANGE")
            self.assertEqual(answer["errors"]["sum"]["message"][:len(self.OVERFLOW)], self.OVERFLOW)
        text = self.run_reducectl("reduce", path, "--op", "mean,sum").stdout.decode()
        self.assertIn("  sum     -\n", text)

    def test_if_no_op_has_an_answer_there_is_none(self):
        path, empty = self.save(np.array([2**62, 2**62])), self.save(np.zeros(0), "empty.npy")
        for place in self.PLACES:
            run = self.run_reducectl("--json", "reduce", path, "--op", "sum,prod", *place)
            self.assertEqual((run.returncode, run.stdout), (4, b""))
            self.assertIn(self.OVERFLOW, run.stderr.decode())
            run = self.run_reducectl("reduce", empty, "--op", "min,count,argmax", "-q", *place)
            self.assertEqual((run.returncode, run.stdout), (4, b"-\t0\t-\n"))
            self.assertEqual([line.split(": ")[2] for line in run.stderr.decode().splitlines()], ["op min", "op argmax"])

    def test_arrays_of_results(self):
        path = self.save(np.array([[2**62, 2**62], [1, 2]]))
        out = str(self.folder / "r-{op}.npy")
        for place in self.PLACES:
            run = self.run_reducectl("--json", "reduce", path, "--op", "sum,mean", "--axis", "1", *place)
            self.assertEqual(run.returncode, 4)
            self.assertIn(f"{path}: output [0]: {self.OVERFLOW}", run.stderr.decode())
            answer = json.loads(run.stdout)
            self.assertIsNone(answer["results"]["sum"])
            self.assertEqual(answer["results"]["mean"]["values"], [2.0**62, 1.5])
            self.assertEqual(list(answer["errors"]), ["sum"])
            run = self.run_reducectl("reduce", path, "--op", "sum,mean", "--axis", "1", "--out", out, *place)
            self.assertEqual((run.returncode, (self.folder / "r-sum.npy").exists()), (4, False))
            self.assertEqual(np.load(self.folder / "r-mean.npy").tolist(), [2.0**62, 1.5])

    def test_merged_states(self):
        path, state = self.save(np.array([2**62, 2**62])), self.folder / "state"
        run = self.run_reducectl("reduce", path, "--op", "sum,max", "--state", state)
        self.assertEqual(run.returncode, 4)
        run = self.run_reducectl("--json", "merge", state)
        self.assertEqual((run.returncode, json.loads(run.stdout)["results"]), (5, {"sum": None, "max": 2**62}))
        self.assertIn(self.OVERFLOW, run.stderr.decode())


class ScalarTest(OutputTest):
    def test_a_mask_alone_gives_scalars(self):
        path = self.save(np.array([1.0, 2.0, 4.0]))
        mask = self.save(np.array([True, False, True]), "mask.npy")
        for place in ((), ("--server", "local:")):
            lines = self.text("reduce", path, "--op", "sum,max", "--where", mask, *place).splitlines()
            self.assertRegex(lines[0], r"array.npy: \d elements, 24 bytes, ran on cpu, ")
            self.assertEqual(lines[1:], ["  sum  5.0", "  max  4.0"])
            self.assertEqual(self.text("reduce", path, "--op", "sum,max", "--where", mask, "-q", *place), "5.0\t4.0\n")
        self.assertEqual(self.text("reduce", path, "--op", "sum", "--axis", "0", "-q"), "7.0\n")
        answer = self.reduce(path, "max", "--axis", "0", "--keepdims")
        self.assertEqual(answer["results"]["max"], {"dtype": "f64", "shape": [1], "values": [4.0]})
        out = self.folder / "r.npy"
        self.reduce(path, "max", "--where", mask, "--out", out)
        self.assertEqual(np.load(out), 4.0)

    def test_states_of_them_merge_to_scalars(self):
        mask = self.save(np.array([True, False, True]), "mask.npy")
        states = []
        for i in range(2):
            path = self.save(np.array([1.0, 2.0, 4.0]) + i)
            states.append(self.folder / f"{i}.state")
            self.reduce(path, "sum", "--where", mask, "--state", states[-1])
        self.assertEqual(self.text("merge", *states).splitlines()[1:], ["  sum  12.0"])
        (merged,) = self.answers("merge", *states)
        self.assertEqual(merged["results"], {"sum": 12.0})


class QuietTest(OutputTest):
    def test_several_columns_and_arrays_have_names(self):
        table = self.write("t.csv", "x,y\n1,2\n3,4\n")
        self.assertEqual(self.text("reduce", table, "--column", "all", "--op", "sum,max", "-q"), "x\t4\t3\ny\t6\t4\n")
        self.assertEqual(self.text("reduce", table, "--column", "y", "--op", "sum,max", "-q"), "6\t4\n")
        two = self.folder / "two.npz"
        np.savez(two, a=np.arange(3), b=np.arange(4.0))
        self.assertEqual(self.text("reduce", two, "--op", "sum", "-q"), "a\t3\nb\t6.0\n")
        self.assertEqual(self.text("reduce", two, "--op", "sum", "-q", "--via", "session"), "a\t3\nb\t6.0\n")
        self.assertEqual(self.text("reduce", two, "--op", "sum", "-q", "--array", "b"), "6.0\n")
        one = self.folder / "one.npz"
        np.savez(one, a=np.arange(3))
        self.assertEqual(self.text("reduce", one, "--op", "sum", "-q"), "3\n")
        keys = self.save(np.array([5, 5]), "keys.npy")
        text = self.text("reduce", table, "--column", "all", "--op", "sum", "-q", "--keys", keys)
        self.assertEqual(text, "x\n[5]\n[4]\ny\n[5]\n[6]\n")

    def test_a_column_that_fails_does_not_rename_the_others(self):
        two = self.folder / "two.npz"
        np.savez(two, a=np.array(["x"]), b=np.arange(4.0))
        run = self.run_reducectl("reduce", two, "--op", "sum", "-q")
        self.assertEqual((run.returncode, run.stdout), (DATA_ERROR, b"b\t6.0\n"))


class DescribeTest(OutputTest):
    def test_one_column_that_is_bad_hides_no_other(self):
        for text, names, messages in (
            ("x,y,z\n1,2,3\n4,oops,6\n", ["x", "z"], ['line 3: column "y": got "oops"']),
            ("x;y\n1;2,5\n4;7,5\n", ["x"], ['column "y"', "--decimal ,"]),
        ):
            path = self.write("t.csv", text)
            run = self.run_reducectl("describe", path)
            self.assertEqual(run.returncode, DATA_ERROR, run.stderr)
            rows = [line.split()[1] for line in run.stdout.decode().splitlines()[1:]]
            self.assertEqual(rows, names)
            for message in messages:
                self.assertIn(message, run.stderr.decode())
            run = self.run_reducectl("--json", "describe", path)
            self.assertEqual(run.returncode, DATA_ERROR, run.stderr)
            self.assertEqual([json.loads(line)["column"] for line in run.stdout.splitlines()], names)
            run = self.run_reducectl("reduce", path, "--column", "all", "--op", "count", "-q")
            self.assertEqual((run.returncode, run.stdout.decode()), (DATA_ERROR, "".join(f"{name}\t2\n" for name in names)))


class NotesTest(OutputTest):
    def test_those_of_a_text_are_with_its_columns(self):
        path = self.write("t.csv", "A,B,C\n1,4,7,\n2,5,8,\n3,6,9,\n")
        for command in (("reduce", "--column", "B", "--op", "sum"), ("describe", "--column", "B"),
                        ("reduce", "--column", "B", "--op", "sum", "--axis", "0"), ("arrays", "put", "--column", "B")):
            (answer,) = self.answers(*command, path)
            self.assertTrue(answer["notes"], command)
            self.assertEqual(answer.get("results", {"sum": 15})["sum"], 15)
            run = self.run_reducectl(*command, path)
            self.assertEqual(run.stderr.decode(), "".join(f"reducectl: {path}: {note}\n" for note in answer["notes"]))

    def test_they_are_in_every_output(self):
        path = self.write("t.csv", "x;y\n1;2\n3;4\n")
        np.savez(self.folder / "k.npz", a=np.array([1, 1]))
        # What text infers is for its own tests: here a note that no array of a file has, and one of a file beside it.
        keys = self.folder / "k.npz"
        with zipfile.ZipFile(keys, "a") as archive:
            archive.writestr("about.txt", "")
        note = "is read as a .npz file, without what isn't .npy in it: about.txt"
        run = self.run_reducectl("--json", "reduce", keys, "--op", "sum")
        self.assertEqual((run.returncode, run.stderr.decode()), (0, f"reducectl: {keys}: {note}\n"))
        command = ("reduce", path, "--column", "y", "--op", "sum", "--keys", keys)
        (answer,) = self.answers(*command)
        self.assertEqual(answer["notes"], [f"--keys {keys}: {note}"])
        run = self.run_reducectl(*command, "-q")
        self.assertEqual((run.stdout, run.stderr.decode()), (b"[1]\n[6]\n", f"reducectl: --keys {keys}: {note}\n"))


class ConnectionTest(OutputTest):
    def test_every_command_says_once_that_local_needs_no_server(self):
        array = self.save(np.ones(3))
        for command in (["reduce", array], ["reduce", array, array], ["reduce", array, "--axis", "0"], ["describe", array, array],
                        ["arrays", "list"], ["arrays", "put", array, array], ["reduce", "--array", "a", "b"], ["info"], ["ops"],
                        ["pipelines"], ["ladder"], ["loadtest"], ["health"]):
            with self.subTest(command=command[0]):
                run = self.run_reducectl(*command, "--timeout", "5s", server=NO_SERVER)
                self.assertIn(run.returncode, (CONNECTION, 9), run.stderr)
                self.assertEqual(run.stderr.decode().count("--server local:"), 1, run.stderr)
                self.assertEqual(run.stderr.decode().count(LOCAL), 1, run.stderr)


class EscapesTest(OutputTest):
    def test_errors_escape_what_they_quote(self):
        evil = "a\x1b[2J\x07b"
        path = self.write(f"{evil}.csv", f"{evil},y\n{evil},1\n2,x\n")
        mask = self.save(np.ones(2), "mask.npy")
        for command in (
            ["reduce", path],
            ["reduce", path, "--column", evil],
            ["reduce", path, "--column", "0", "--header", "yes"],
            ["reduce", path, "--column", "0", "--where", f"{mask}:{evil}"],
            ["reduce", path, "--op", evil],
            ["reduce", path, "--via", evil],
            ["reduce", path, "--server", evil],
            ["reduce", path, "--array", evil],
            ["reduce", "--array", evil],
            ["describe", path],
            ["arrays", "delete", evil],
            ["arrays", "put", path],
            ["merge", path],
            [evil],
            ["reduce", path, f"--{evil}"],
            ["loadtest", "--profile", path],
            ["loadtest", "compare", path, path],
            ["ladder", "--from", path],
        ):
            run = self.run_reducectl(*command, "--timeout", "5s")
            self.assertNotEqual(run.returncode, 0, command)
            self.assertTrue(run.stderr)
            for output in (run.stdout, run.stderr):
                self.assertNotRegex(output.decode(), r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", command)


if __name__ == "__main__":
    unittest.main()

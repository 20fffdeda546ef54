"""Ladders: what is measured, how it is shown and stored, and what is refused."""

import csv
import io
import json
import unittest
import xml.etree.ElementTree

import harness

OUTPUT, USAGE, SERVER, DATA_ERROR, WRONG = 1, 2, 4, 5, 6
CPU = ["sequential", "recursive_pairs", "tiled_simd"]
SVG = "{http://www.w3.org/2000/svg}"


class LadderTest(harness.ServedTest):
    # Only the pipelines that every machine has, whether the server has others or not.
    small = ("--n", "1Ki", "--repeats", "3", "--pipeline", ",".join(CPU))

    def ladder(self, *arguments, **keywords):
        """What `reducectl ladder` prints; it has to succeed."""
        run = self.run_reducectl("ladder", *arguments, **keywords)
        self.assertEqual((run.returncode, run.stderr), (0, b""), run.stderr.decode())
        return run.stdout.decode()

    def store(self, text, name="ladder.json"):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path


class MeasuringTest(LadderTest):
    def test_table(self):
        lines = self.ladder(*self.small, "--dtype", "f64", "--fill", "1.5").splitlines()
        self.assertEqual(lines[0], "sum of 1024 f64 (8.00 KiB, all 1.5) = 1536.0; medians of 3")
        self.assertRegex(lines[1], r"\A  cpu  \S.*; fastest plain read: [\d.]+ GB/s\Z")
        self.assertRegex(lines[2], r"\A  PIPELINE +TIME +SPREAD +STEP +TOTAL +READS +GB/s +ROOFLINE ")
        self.assertEqual([line.split()[0] for line in lines[3:]], CPU)
        for line in lines[3:]:
            self.assertRegex(line, r" [\d.]+ .?s +\+-[\d.]+% .+ [\d.]+x +[\d.]+ KiB +[\d.]+ +[\d.]+% .* always +ok\Z")

    def test_json(self):
        (run,) = self.answers("ladder", *self.small, "--dtype", "i64", "--op", "max", "--seed", "7")
        self.assertEqual(
            list(run), ["op", "dtype", "count", "seed", "bytes", "expected", "version", "devices", "steps"]
        )
        self.assertEqual([run[key] for key in ("op", "dtype", "count", "seed", "bytes")], ["max", "i64", 1024, 7, 8192])
        self.assertEqual([step["pipeline"] for step in run["steps"]], CPU)
        for step in run["steps"]:
            self.assertEqual((step["engine"], step["device"], len(step["kernel_us"])), ("cpu", "cpu", 3))
            self.assertEqual(step["value"], run["expected"])
            self.assertGreater(min(step["kernel_us"]), 0)
            self.assertTrue(step["correct"] and step["same_bits"] and step["promised_bits"])
            # It works in place.
            self.assertEqual("scratch_copy_us" in step, step["pipeline"] == "recursive_pairs")

    def test_csv(self):
        rows = list(csv.DictReader(io.StringIO(self.ladder(*self.small, "--csv"))))
        self.assertEqual([row["pipeline"] for row in rows], CPU)
        for row in rows:
            self.assertEqual((row["op"], row["dtype"], row["count"], row["repeats"]), ("sum", "i32", "1024", "3"))
            self.assertEqual((row["correct"], row["same_bits"], row["block_size"]), ("true", "true", ""))
            self.assertTrue(float(row["min_us"]) <= float(row["median_us"]) <= float(row["max_us"]))
            # Sums have 8 bytes where a copy is reduced in place.
            self.assertEqual(row["read_bytes"], "8192" if row["pipeline"] == "recursive_pairs" else "4096")
            self.assertAlmostEqual(float(row["gb_per_s"]), float(row["read_bytes"]) / float(row["median_us"]) / 1e3)
        self.assertEqual((rows[0]["step_up"], rows[0]["total_up"]), ("", "1.0"))

    def test_svg_and_stored_runs(self):
        stored = self.store(self.ladder(*self.small, "--json", "--svg", self.folder / "measured.svg"))
        table = self.ladder("--from", stored, "--svg", self.folder / "stored.svg", server="unix:/does/not/exist")
        self.assertEqual(table, self.ladder("--from", "-", stdin=stored.read_bytes()))
        self.assertEqual(self.ladder("--from", stored, "--json"), stored.read_text())
        self.assertEqual((self.folder / "measured.svg").read_bytes(), (self.folder / "stored.svg").read_bytes())
        root = xml.etree.ElementTree.parse(self.folder / "stored.svg").getroot()
        self.assertEqual((root.tag, root.get("role")), (SVG + "svg", "img"))
        texts = [element.text for element in root.iter(SVG + "text")]
        for text in ("sum of 1024 i32", "4.00 KiB, random, seed 0", *CPU):
            self.assertIn(text, texts)
        self.assertFalse(list(root.iter(SVG + "script")))

    def test_odd_names_are_escaped(self):
        run = json.loads(self.ladder(*self.small, "--json"))
        name = "<a & \"b\"> \N{SNOWMAN} \x01"
        run["steps"][0]["pipeline"] = run["devices"]["cpu"] = name
        self.ladder("--from", self.store(json.dumps(run)), "--svg", self.folder / "odd.svg")
        root = xml.etree.ElementTree.parse(self.folder / "odd.svg").getroot()
        self.assertIn("<a & \"b\"> \N{SNOWMAN} \\x01", [element.text.strip() for element in root.iter(SVG + "text")])

    def test_without_a_dtype_and_a_number_both_classic_arrays(self):
        runs = self.answers("ladder", "--pipeline", "tiled_simd", "--repeats", "1")
        self.assertEqual(
            [(run["op"], run["dtype"], run["count"], run.get("fill")) for run in runs],
            [("sum", "i32", 1 << 24, None), ("sum", "f64", 100 << 20, 1.23)],
        )
        (run,) = self.answers("ladder", "--dtype", "u8", "--pipeline", "tiled_simd", "--repeats", "1")
        self.assertEqual((run["dtype"], run["count"]), ("u8", 1 << 24))

    def test_numbers_of_elements_are_written_like_sizes(self):
        for text, count in (("4096", 4096), ("4Ki", 4096), ("4KiB", 4096), ("1MiB", 1 << 20)):
            (run,) = self.answers("ladder", "--dtype", "u8", "--n", text, "--pipeline", "tiled_simd", "--repeats", "1")
            self.assertEqual(run["count"], count, text)

    def test_the_seed_decides_on_the_array(self):
        def expected(*arguments):
            (run,) = self.answers("ladder", *self.small, "--dtype", "f32", *arguments)
            return run["expected"]

        self.assertEqual(expected("--seed", "1"), expected("--seed", "1"))
        self.assertNotEqual(expected("--seed", "1"), expected("--seed", "2"))


class ProductTest(LadderTest):
    product = ("--matmul", "--n", "40", "--m", "30", "--k", "7", "--repeats", "3", "--pipeline", "matmul_host")

    def test_table(self):
        lines = self.ladder(*self.product).splitlines()
        self.assertEqual(lines[0], "product of 30 x 7 and 7 x 40 f32 (6.60 KiB, random, seed 0); medians of 3")
        self.assertRegex(lines[2], r"\A  PIPELINE +TIME +SPREAD +STEP +TOTAL +GFLOP/s +PEAK +CONFLICTS ")
        self.assertRegex(lines[3], r"\A  matmul_host .* always +ok\Z")

    def test_json_csv_and_svg(self):
        for arguments in (("--dtype", "i32"), ("--dtype", "f64", "--source-fill"), ("--k", "0")):
            with self.subTest(arguments=arguments):
                options = [each for each in self.product if "--k" not in arguments or each not in ("--k", "7")]
                stored = self.store(self.ladder(*options, *arguments, "--json"))
                (run,) = [json.loads(line) for line in stored.read_text().splitlines()]
                self.assertEqual((run["matmul"]["m"], run["matmul"]["n"]), (30, 40))
                self.assertEqual(run["operations"], 2 * 30 * 40 * run["matmul"]["k"])
                self.assertTrue(run["steps"][0]["correct"] and run["steps"][0]["same_bits"])
                self.assertEqual(self.ladder("--from", stored, "--json"), stored.read_text())
                (row,) = csv.DictReader(io.StringIO(self.ladder("--from", stored, "--csv")))
                self.assertEqual((row["op"], row["m"], row["n"], row["count"]), ("matmul", "30", "40", ""))
                self.ladder("--from", stored, "--svg", self.folder / "product.svg")
                xml.etree.ElementTree.parse(self.folder / "product.svg")

    def test_what_is_refused(self):
        for arguments, code, said in (
            (("--matmul", "--dtype", "u8"), USAGE, b"i32, f32, f64"),
            (("--matmul", "--n", "2Mi"), USAGE, b"matmul.m: got 2097152"),
            (("--matmul", "--pipeline", "cub"), USAGE, b"pipelines: got 'cub' for matrix products; allowed: matmul_host, matmul_global"),
            (("--matmul", "--tile", "5"), USAGE, b"--tile"),
            (("--matmul", "--op", "max"), USAGE, b"--op"),
            (("--m", "5"), USAGE, b"--matmul"),
        ):
            with self.subTest(arguments=arguments):
                run = self.run_reducectl("ladder", *arguments)
                self.assertIn(said, run.stderr)
                self.assertNotEqual(run.returncode, 0)


class VerdictTest(LadderTest):
    def test_exit_code_of_wrong_results(self):
        good = json.loads(self.ladder(*self.small, "--json"))
        for change, shown in (
            ({"correct": False, "value": 12}, b"WRONG: 12\n"),
            ({"same_bits": False}, b"BROKEN"),
        ):
            with self.subTest(change=change):
                run = good | {"steps": good["steps"][:2] + [good["steps"][2] | change]}
                result = self.run_reducectl("ladder", "--from", self.store(json.dumps(run)))
                self.assertEqual(result.returncode, WRONG)
                self.assertIn(shown, result.stdout)
        # Nothing was promised.
        step = good["steps"][2] | {"same_bits": False, "promised_bits": False}
        self.assertRegex(self.ladder("--from", self.store(json.dumps(good | {"steps": [step]}))), r" no +ok\n\Z")


class SweepTest(LadderTest):
    def test_stored_sweep(self):
        run = json.loads(self.ladder(*self.small, "--json"))
        sizes = [64, 128, 1024]
        run["block_sizes"] = sizes
        run["steps"] = [
            run["steps"][0]
            | {
                "occupancy": {
                    "block_size": size,
                    "registers": 32,
                    "shared_bytes": 4 * size,
                    "blocks_per_multiprocessor": 1536 // size,
                    "max_threads_per_multiprocessor": 2048,
                }
            }
            for size in sizes
        ]
        path = self.store(json.dumps(run))
        lines = self.ladder("--from", path).splitlines()
        self.assertRegex(lines[0], r"; sequential\Z")
        self.assertRegex(lines[2], r"\A  BLOCK +TIME .*BLOCKS/SM +WARPS/SM +OCCUPANCY +REGISTERS +SHARED +SHARED/SM ")
        self.assertEqual([line.split()[0] for line in lines[3:]], list(map(str, sizes)))
        self.assertRegex(lines[3], r" 24 +48 +75\.0% +32 +256 bytes +6\.00 KiB ")
        self.assertRegex(lines[5], r" 1 +32 +50\.0% +32 +4\.00 KiB +4\.00 KiB ")

    def test_measured_sweep(self):
        engines = {device["engine"] for device in self.answers("info")[0]["devices"]}
        pipelines = [row for row in self.answers("pipelines") if row["block_sizes"] and row["engine"] in engines]
        if not pipelines:
            self.skipTest("no pipeline of this server has a choice of block sizes")
        name, sizes = pipelines[0]["pipeline"], pipelines[0]["block_sizes"]
        (run,) = self.answers("ladder", "--n", "1Mi", "--pipeline", name, "--sweep-block")
        self.assertEqual([step["occupancy"]["block_size"] for step in run["steps"]], sizes)


class RefusalTest(LadderTest):
    def test_command_line(self):
        for arguments, messages in (
            (("--n", "0"), ["--n", 'got "0"; allowed: numbers of elements', "16Mi"]),
            (("--n", "-1"), ['got "-1"; allowed: numbers of elements']),
            (("--n", "1.5Mi"), ['got "1.5Mi"; allowed: numbers of elements']),
            (("--n", "8589934592Gi"), ['got "8589934592Gi"; allowed: numbers of elements']),
            (("--n", "1MiKi"), ['got "1MiKi"; allowed: numbers of elements']),
            (("--n", "1MB"), ['got "1MB"; allowed: numbers of elements']),
            (("--n", "Ki"), ['got "Ki"; allowed: numbers of elements']),
            (("--dtype", "f24"), ['"f24"', "allowed: bool, i8, "]),
            (("--op", "medium"), ['"medium"', "allowed: sum, prod, "]),
            (("--fill", "much"), ['--fill: got "much"; allowed: numbers']),
            (("--seed", "-1"), ['got "-1"; allowed: whole numbers from 0']),
            (("--repeats", "0"), ["--repeats", 'got "0"; allowed: whole numbers from 1']),
            (("--block", "0,64"), ["--block", 'got "0"; allowed: whole numbers from 1']),
            (("--sweep-block",), ["--sweep-block", "exactly one --pipeline"]),
            (("--sweep-block", "--pipeline", "sequential,tiled_simd"), ["exactly one --pipeline"]),
            (("--sweep-block", "--pipeline", "sequential", "--block", "64"), ["--sweep-block", "--block"]),
            (("--sweep-block", "--pipeline", "sequential"), ["--sweep-block: got pipeline sequential, which has no choice of block sizes; allowed: "]),
            (("--csv", "--json"), ["--csv", "--json"]),
            (("--from", "a.json", "--n", "5"), ["--from", "--n"]),
            (("--from", "a.json", "--sweep-block"), ["--from", "--sweep-block"]),
        ):
            with self.subTest(arguments=arguments):
                self.check_failure(USAGE, messages, "ladder", *arguments)

    def test_what_the_server_refuses(self):
        (info,) = self.answers("info")
        too_many = info["limits"]["max_ladder_bytes"] // 8 + 1
        for arguments, messages in (
            (("--pipeline", "magic"), ["magic", *CPU, "INVALID_ARGUMENT"]),
            (("--pipeline", "magic", "--sweep-block"), ["magic", "INVALID_ARGUMENT"]),
            (("--pipeline", "sequential", "--op", "argmax"), ["sequential", "argmax", "tiled_simd", "UNIMPLEMENTED"]),
            (("--pipeline", "sequential", "--dtype", "f16"), ["sequential", "f16", "tiled_simd", "UNIMPLEMENTED"]),
            (("--pipeline", "sequential", "--block", "64"), ["sequential", "block_sizes", "INVALID_ARGUMENT"]),
            (("--block", "100"), ["100", "64, 128, 256, 512, 1024", "INVALID_ARGUMENT"]),
            (("--repeats", "1001"), ["1001", "1000", "INVALID_ARGUMENT"]),
            (("--op", "bit_and", "--dtype", "f32"), ["bit_and", "f32", "INVALID_ARGUMENT"]),
            (("--dtype", "u8", "--fill", "256"), ["256", "u8", "INVALID_ARGUMENT"]),
            (("--dtype", "f64", "--n", too_many), [str(too_many), "INVALID_ARGUMENT"]),
        ):
            with self.subTest(arguments=arguments):
                n = () if "--n" in arguments else ("--n", "1Ki")
                self.check_failure(SERVER, messages, "ladder", *n, *arguments)

    def test_deadline(self):
        messages = [f"no answer from {self.server.unix} within 20ms", "DEADLINE_EXCEEDED"]
        self.check_failure(SERVER, messages, "ladder", "--n", "64Mi", "--timeout", "20ms")

    def test_bad_files(self):
        run = json.loads(self.ladder(*self.small, "--json"))
        timeless = run | {"steps": [run["steps"][0] | {"kernel_us": []}]}
        for name, text, messages in (
            ("empty.json", "", ["no ladder in it"]),
            ("text.json", "\nnot JSON", ["line 2 is not what `reducectl ladder --json` prints"]),
            ("other.json", '{"op": "sum"}', ["line 1", "dtype"]),
            ("none.json", json.dumps(run | {"steps": []}), ["line 1", "steps: got none"]),
            ("times.json", json.dumps(timeless), ["kernel_us of step sequential: got none"]),
        ):
            with self.subTest(name=name):
                path = self.store(text, name)
                self.check_failure(DATA_ERROR, [str(path), *messages], "ladder", "--from", path)
        self.check_failure(DATA_ERROR, ["No such file"], "ladder", "--from", self.folder / "missing.json")

    def test_a_plot_that_cannot_be_written(self):
        path = self.folder / "missing" / "plot.svg"
        run = self.run_reducectl("ladder", *self.small, "--svg", path)
        message = f"reducectl: {path}: cannot be written: No such file or directory\n"
        self.assertEqual((run.returncode, run.stderr.decode()), (OUTPUT, message))
        self.assertIn(b"tiled_simd", run.stdout)


if __name__ == "__main__":
    unittest.main()

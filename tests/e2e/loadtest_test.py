"""reducectl loadtest: what it measures, what it notices, and the server that it starts."""

import csv
import html.parser
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import harness

OUTPUT, USAGE, CONNECTION, SERVER, DATA_ERROR, MISSED, UNSTABLE = 1, 2, 3, 4, 5, 7, 8
INTERRUPTED = 130
TWO_ARRAYS = {"dot", "weighted_sum", "weighted_mean", "weighted_var", "weighted_std", "cov", "corr", "slope", "intercept", "distance_l1",
              "distance_l2", "distance_max", "cosine", "compare", "weighted_median", "weighted_quantile"}
QUICK = ("--warmup", "0", "--count", "200", "--stability", "100%")


def gone(pid):
    """Whether a process has ended, though nobody may have reaped it yet."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_for(condition):
    deadline = time.monotonic() + harness.DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.01)


class LoadtestTest(harness.ServedTest):
    def loadtest(self, *arguments, code=0):
        """The run, as --json has it."""
        run = self.run_reducectl("loadtest", "--json", "-", *arguments)
        self.assertEqual(run.returncode, code, run.stderr.decode())
        return json.loads(run.stdout)

    def save_run(self, path, *arguments):
        path.write_text(json.dumps(self.loadtest(*arguments)))


class MeasuringTest(LoadtestTest):
    def test_every_way_in(self):
        for via in ("auto", "inline", "stream", "session", "ring", "resident", "region", "ring_resident", "ring_region"):
            for more in ((), ("--include-fill",), ("--threads", "1")):
                with self.subTest(via=via, more=more):
                    (step,) = self.loadtest(
                        *QUICK, "--concurrency", "3", "--connections", "2", "--via", via, "--verify", "100%", *more
                    )["steps"]
                    self.assertEqual((step["requests"], step["verified"], step["wrong"]), (200, 200, 0))
                    self.assertEqual(step["errors"], {})
                    latency = step["latency_us"]
                    self.assertLessEqual(latency["corrected"]["p50"], latency["corrected"]["p99"])
                    self.assertEqual("client" in latency, "--include-fill" in more)
                    self.assertIn("network", latency)

    def test_memory_of_a_gpu(self):
        arguments = (*QUICK, "--concurrency", "3", "--size", "4Ki,1Mi", "--via", "device_region", "--verify", "100%")
        for more in ((), ("--include-fill",)):
            run = self.run_reducectl("loadtest", "--json", "-", *arguments, *more)
            if run.returncode == 0:
                (step,) = json.loads(run.stdout)["steps"]
                self.assertEqual((step["requests"], step["verified"], step["wrong"], step["errors"]), (200, 200, 0, {}))
            else:  # no GPU here, or a reducectl that was built without CUDA
                self.assertEqual((run.returncode, run.stdout), (USAGE, b""), run.stderr)
                self.assertRegex(run.stderr, rb"\Areducectl: loadtest: --via device_region: this [^\n]*(CUDA|GPU)[^\n]*\n\Z")
                self.assertFalse(os.path.exists("/dev/nvidiactl") and b"no GPU" in run.stderr, run.stderr)

    def test_what_the_server_was_told_is_in_the_run(self):
        server = harness.Server("--cpu_lanes=3")
        try:
            run = self.run_reducectl("loadtest", "--json", "-", *QUICK, server=server.unix)
            for when in ("server_before", "server_after"):
                flags = json.loads(run.stdout)[when]["flags"]
                self.assertEqual(flags["cpu_lanes"], {"value": "3", "source": "--cpu_lanes"})
                self.assertEqual(flags["queue_limit"]["source"], "default")
        finally:
            server.stop()

    def test_every_op_and_dtype_is_verified(self):
        parameters = {"quantile": "(0,0.3,0.5,1)", "weighted_quantile": "(0.5)", "histogram": "(-2,2,7)", **dict.fromkeys(("topk", "bottomk", "argtopk", "argbottomk"), "(1)")}
        for op in self.answers("ops"):
            with self.subTest(op=op["op"]):
                if op["op"] in TWO_ARRAYS:
                    text = op["op"] + parameters.get(op["op"], "")
                    self.check_failure(2, [f"op: got {text}; allowed: ops about one array"], "loadtest", "--op", text)
                    continue
                if op["op"] in ("cov_matrix", "corr_matrix"):
                    self.check_failure(4, [f"op: got {op['op']}(2), which is not verified"], "loadtest", "--op", f"{op['op']}(2)")
                    continue
                run = self.loadtest(
                    *QUICK, "--op", op["op"] + parameters.get(op["op"], ""), "--dtype", ",".join(op["dtypes"]), "--size", "8,4Ki,1Mi", "--verify", "100%"
                )
                (step,) = run["steps"]
                self.assertEqual((step["verified"], step["wrong"], step["errors"]), (200, 0, {}))

    def test_answers_that_are_arrays(self):
        ops = "sum,median,quantile(0.1,0.9;method=lower),topk(20),argbottomk(20),histogram(-2,2,16),distinct,max"
        for via in ("auto", "inline", "session", "ring", "resident", "region", "ring_resident", "ring_region"):
            for more in ((), ("--include-fill", "--threads", "1") if "resident" not in via else ("--threads", "1")):
                with self.subTest(via=via, more=more):
                    (step,) = self.loadtest(*QUICK, "--op", ops, "--dtype", "f32,i16", "--concurrency", "3", "--via", via, "--verify",
                                            "100%", *more)["steps"]
                    self.assertEqual((step["verified"], step["wrong"], step["errors"]), (200, 0, {}))
        stream = ("--via", "stream", "--verify", "100%")
        (step,) = self.loadtest(*QUICK, *stream, "--op", "topk(20),distinct,histogram(-2,2,16)", "--size", "64Ki")["steps"]
        self.assertEqual((step["verified"], step["wrong"]), (200, 0))
        (step,) = self.loadtest(*QUICK, *stream, "--op", "median,mode", "--dtype", "f16")["steps"]
        self.assertEqual((step["verified"], step["wrong"]), (200, 0))

    def test_what_it_cannot_ask(self):
        for arguments, code, message in (
            (("--op", "median", "--via", "stream"), SERVER, b"median of f32 in a stream, whose elements are read once"),
            (("--op", "mode"), SERVER, b"op mode: got dtype f32; allowed: dtypes of 8 and 16 bits"),
            (("--op", "topk(100)", "--size", "64"), SERVER, b"got 16 elements for topk(100); allowed: 100 and more"),
            (("--op", "quantile(1.5)"), SERVER, b"got 1.5; allowed: 0 to 1"),
            (("--op", "quantile"), USAGE, b'--op: got "quantile"; allowed: quantile(Q,...'),
        ):
            with self.subTest(arguments=arguments):
                run = self.run_reducectl("loadtest", *QUICK, *arguments)
                self.assertEqual(run.returncode, code, run.stderr)
                self.assertIn(message, run.stderr)

    def test_mixes(self):
        profile = self.folder / "mix.json"
        kinds = [
            {"weight": 3, "op": ["sum", "mean"], "size": "1Ki..64Ki", "via": "session", "precision": "f64"},
            {"op": "argmax", "dtype": "i16", "size": "1Mi", "via": "region", "engine": "cpu"},
        ]
        profile.write_text(json.dumps({"mix": kinds}))
        run = self.loadtest(*QUICK, "--profile", profile, "--concurrency", "2", "--verify", "100%")
        self.assertEqual([kind["weight"] for kind in run["kinds"]], [3, 1])
        self.assertEqual([kind["precision"] for kind in run["kinds"]], ["f64", ""])
        self.assertEqual(run["steps"][0]["verified"], 200)
        self.assertEqual(run["server_before"]["version"], run["server_after"]["version"])
        self.assertGreater(run["server_after"]["uptime_s"], 0)

    def test_sweeps_and_files(self):
        names = ["concurrency 1", "concurrency 2", "concurrency 4"]
        files = {name: self.folder / name for name in ("json", "csv", "html", "histogram")}
        options = [word for name, path in files.items() for word in (f"--{name}", path)]
        run = self.run_reducectl("loadtest", *QUICK, "--concurrency", "1..4", *options)
        self.assertEqual((run.returncode, run.stderr), (0, b""), run.stderr.decode())
        text = run.stdout.decode()
        for word in (*names, "LATENCY", "p99.99", "network", "kernel", "REQUESTS/S", "no errors"):
            self.assertIn(word, text)
        result = json.loads(files["json"].read_text())
        steps = result["steps"]
        self.assertEqual([step["name"] for step in steps], names)
        self.assertEqual(sum(bucket[2] for bucket in steps[0]["corrected_ns"]), 200)
        rows = list(csv.DictReader(files["csv"].read_text().splitlines()))
        self.assertEqual([row["load"] for row in rows], names)
        self.assertAlmostEqual(float(rows[0]["corrected_p99_us"]), steps[0]["latency_us"]["corrected"]["p99"], places=1)
        self.assertEqual(files["histogram"].read_text().count("#[Max"), 3)
        page = files["html"].read_text()
        html.parser.HTMLParser().feed(page)
        in_page = re.search(r'<script type="application/json" id="data">(.*)</script>', page).group(1)
        self.assertEqual([step["name"] for step in json.loads(in_page)["run"]["steps"]], names)
        same = self.run_reducectl("loadtest", "compare", files["json"], files["json"])
        self.assertEqual((same.returncode, same.stderr), (0, b""))
        self.assertNotIn(b"WORSE", same.stdout)
        for step in steps:
            step["requests_per_s"] /= 9
        slower = self.folder / "slower"
        slower.write_text(json.dumps(result))
        worse = self.run_reducectl("loadtest", "compare", files["json"], slower)
        windows = all(len(step["windows"]) >= 3 for step in steps)  # of fewer the noise isn't known
        self.assertEqual(worse.returncode, MISSED if windows else 0)

    @unittest.skipIf(shutil.which("chromium") is None, "chromium isn't installed")
    def test_the_page_draws_its_plots(self):
        page = self.folder / "page.html"
        for load, dashed in ((("--concurrency", "1,2"), False), (("--rate", "500", "--concurrency", "4"), True)):
            run = self.run_reducectl("loadtest", *QUICK, *load, "--html", page)
            self.assertEqual(run.returncode, 0, run.stderr.decode())
            dom = subprocess.run(
                ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={self.folder}/profile",
                 "--virtual-time-budget=4000", "--dump-dom", page.as_uri()],
                capture_output=True,
                timeout=harness.DEADLINE_S,
                check=True,
            ).stdout.decode()  # fmt: skip
            body = dom[: dom.index("<script")]
            self.assertEqual(body.count("<svg"), 3)
            self.assertEqual('class="curve dashed"' in body, dashed)
            self.assertNotIn("NaN", body)
            for word in ("verified", "requests/s answered", "percentile", "network", "kernel", "p99.99", load[0][2:6]):
                self.assertIn(word, body)

    def test_progress_on_a_terminal(self):
        terminal, end = os.openpty()
        self.addCleanup(os.close, terminal)
        run = subprocess.Popen(
            harness.command("loadtest", "--duration", "1s", "--warmup", "0", "--stability", "100%"),
            stdout=subprocess.DEVNULL,
            stderr=end,
            env=harness.environment(self.server.unix),
        )
        os.close(end)
        shown = b""
        try:
            while piece := os.read(terminal, 1 << 16):
                shown += piece
        except OSError:
            pass  # the other end is closed
        self.assertEqual(run.wait(harness.DEADLINE_S), 0)
        self.assertRegex(shown, rb"concurrency 1: [1-9]\d* requests/s, p50 \S+ .s, p99 \S+ \ws, 0 errors, 0 s")
        self.assertTrue(shown.endswith(b"\r\x1b[K"), shown)

    def test_a_stall_shows_in_the_corrected_figures_only(self):
        path = self.folder / "stall.json"
        arguments = ["--rate", "300", "--concurrency", "2", "--duration", "4s", "--warmup", "0", "--stability", "100%"]
        tool = subprocess.Popen(
            harness.command("loadtest", *arguments, "--json", path),
            stdout=subprocess.PIPE,
            env=harness.environment(self.server.unix),
        )
        try:
            for _ in range(3):
                tool.stdout.readline()  # what the run is: after these it begins
            self.server.process.send_signal(signal.SIGSTOP)
            time.sleep(1)  # the stall itself
            self.server.process.send_signal(signal.SIGCONT)
            tool.communicate(timeout=harness.DEADLINE_S)
        finally:
            self.server.process.send_signal(signal.SIGCONT)
            tool.kill()
            tool.wait()
        (step,) = json.loads(path.read_text())["steps"]
        self.assertEqual(step["errors"], {})
        self.assertGreater(step["latency_us"]["corrected"]["p90"], 300e3)
        self.assertLess(step["latency_us"]["uncorrected"]["p90"], 100e3)
        self.assertGreater(step["latency_us"]["uncorrected"]["max"], 500e3)


class VerdictTest(LoadtestTest):
    def test_exit_codes(self):
        self.loadtest(*QUICK, "--slo", "p99=1m")
        step = self.loadtest(*QUICK, "--slo", "p50=1ns,max=1m", code=MISSED)["steps"][0]
        self.assertRegex(step["slo_missed"][0], r"\Ap50=1ns: \d")
        self.assertEqual(len(step["slo_missed"]), 1)
        self.loadtest("--warmup", "0", "--duration", "1s", "--stability", "0%", code=UNSTABLE)

    def test_nothing_measured_is_a_failure(self):
        arguments = ("loadtest", "--rate", "0.001", "--arrivals", "poisson", "--warmup", "0", "--duration", "100ms")
        run = self.run_reducectl(*arguments)
        self.assertEqual((run.returncode, run.stderr), (SERVER, b""))
        self.assertIn(b"NO REQUEST WAS MEASURED", run.stdout)
        self.assertNotIn(b"no errors", run.stdout)

    def test_a_run_says_when_where_and_how_it_was(self):
        result = self.loadtest(*QUICK, "--op", "sum,max")
        self.assertRegex(result["date"], r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|\+00:00)\Z")
        self.assertEqual(result["host"], os.uname().nodename)
        self.assertTrue(result["command"].endswith(f"loadtest --json - {' '.join(QUICK)} --op sum,max"), result["command"])

    def test_compare(self):
        runs = []
        for i, size in enumerate(("4Ki", "4Ki", "8Ki")):
            runs.append(self.folder / f"{i}.json")
            self.save_run(runs[-1], *QUICK, "--size", size)
        refused = ["different workloads: size: got [4096] and [8192]"]
        self.check_failure(DATA_ERROR, refused, "loadtest", "compare", runs[0], runs[2])
        both = self.run_reducectl("loadtest", "compare", f"{runs[0]},{runs[1]}", f"{runs[1]},{runs[0]}")
        self.assertEqual((both.returncode, both.stderr), (0, b""))
        self.assertIn(b"no difference", both.stdout)

    def test_an_idle_generator_is_not_saturated(self):
        (step,) = self.loadtest("--rate", "20", "--warmup", "0", "--duration", "1s")["steps"]
        self.assertNotIn("of the latency", step["generator"]["saturated"])

    def test_find_max(self):
        arguments = ("--find-max", "--rate", "50..200", "--warmup", "0", "--duration", "100ms", "--stability", "100%")
        self.assertEqual(self.loadtest(*arguments, "--slo", "p50=10s")["max_rate"], 200)
        self.assertEqual(self.loadtest(*arguments, "--slo", "p50=1ns", code=MISSED)["max_rate"], 0)

    def test_find_max_says_nothing_of_an_unstable_load(self):
        arguments = ("--find-max", "--rate", "1000..2000", "--warmup", "0", "--duration", "1s", "--stability", "0%")
        result = self.loadtest(*arguments, "--slo", "p50=10s", code=UNSTABLE)
        self.assertNotIn("max_rate", result)
        self.assertRegex(result["no_verdict"], r"\Arate 1000 was not stable; ")
        self.assertEqual([step["name"] for step in result["steps"]], ["rate 1000"] * 3)

    def test_find_max_keeps_what_it_has_met(self):
        # Of so few requests stability can't be told, so that low rates are met; higher ones are never stable enough.
        arguments = ("--find-max", "--rate", "20..4000", "--warmup", "0", "--duration", "500ms", "--stability", "0%")
        result = self.loadtest(*arguments, "--slo", "p50=10s", code=UNSTABLE)
        self.assertNotIn("max_rate", result)
        self.assertRegex(result["no_verdict"], r"\Arate \d+ was not stable; ")
        met = max(step["rate"] for step in result["steps"] if step["name"] not in result["no_verdict"])
        self.assertEqual(result["met_rate"], met)
        run = self.run_reducectl("loadtest", *arguments, "--slo", "p50=10s")
        self.assertEqual(run.returncode, UNSTABLE)
        self.assertRegex(run.stdout.decode(), r"\nno verdict: rate .*\np50=10s is met at least up to \d+ requests/s\n\Z")

    def test_command_line(self):
        for arguments, messages in (
            (("--concurrency", "0"), ["--concurrency", 'got "0"; allowed: loads like', "4..64"]),
            (("--concurrency", "1.5"), ["--concurrency", "whole numbers from 1 to 4096"]),
            (("--concurrency", "9999"), ["--concurrency", "whole numbers from 1 to 4096"]),
            (("--rate", "fast"), ["--rate", 'got "fast"; allowed: loads like']),
            (("--rate", "100", "--concurrency", "1,2"), ["--concurrency", "--rate"]),
            (("--arrivals", "poisson"), ["--arrivals", "requires --rate"]),
            (("--arrivals", "bursts", "--rate", "1"), ["bursts", "allowed: constant, poisson"]),
            (("--duration", "soon"), ["--duration", 'got "soon"; allowed: durations']),
            (("--duration", "1s", "--count", "5"), ["--duration", "--count"]),
            (("--count", "0"), ["--count", 'got "0"; allowed: whole numbers from 1']),
            (("--slo", "p99"), ["--slo", 'got "p99"; allowed: objectives', "p99=2ms"]),
            (("--find-max",), ["--find-max", "--slo"]),
            (("--size", "4K"), ['reducectl: --size: got "4K"; allowed: ']),
            (("--via", "post"), ["--via", '"post"', "resident"]),
            (("--op", "sum,medium"), ["--op", '"medium"', "allowed: sum, "]),
            (("--dtype", "f24"), ["--dtype", '"f24"']),
            (("--verify", "1"), ["--verify", 'got "1"; allowed: percentages']),
            (("--threads", "1000"), ["--threads", "from 1 to 256"]),
            (("--connections", "0"), ["--connections", "from 1 to 1024"]),
            (("--server-flag=--cpu_lanes=2",), ["--server-flag", "REDUCED_SERVER"]),
            (("--via", "resident", "--include-fill", "--threads", "1", "--concurrency", "2"), ["--include-fill", "--threads"]),
            (("compare", "one"), ["FILE"]),
        ):
            with self.subTest(arguments=arguments):
                self.check_failure(USAGE, messages, "loadtest", *arguments)

    def test_what_cannot_be(self):
        self.check_failure(SERVER, ["bit_and of f32 can't be verified"], "loadtest", *QUICK, "--op", "bit_and")
        refused = ["bit_and", "f32", "INVALID_ARGUMENT"]
        self.check_failure(SERVER, refused, "loadtest", *QUICK, "--op", "bit_and", "--verify", "0%")
        self.check_failure(SERVER, ["4098", "f32"], "loadtest", *QUICK, "--size", "4098")
        inexact = ("--pipeline", "sequential", "--precision", "exact")
        self.check_failure(SERVER, ["pipeline: got sequential for sum of f32, exactly; allowed: "], "loadtest", *QUICK, *inexact)
        nowhere = "unix:/does/not/exist"
        self.check_failure(CONNECTION, [nowhere], "loadtest", *QUICK, server=nowhere)
        profile = self.folder / "profile"
        profile.write_text('{"mix": [{"sice": 1}]}')
        self.check_failure(DATA_ERROR, [str(profile), "sice"], "loadtest", *QUICK, "--profile", profile)
        self.check_failure(DATA_ERROR, ["No such file"], "loadtest", *QUICK, "--profile", self.folder / "none")
        self.check_failure(DATA_ERROR, ["the first is not"], "loadtest", "compare", profile, profile)
        missing = self.folder / "missing" / "file"
        run = self.run_reducectl("loadtest", *QUICK, "--csv", missing)
        message = f"reducectl: {missing}: cannot be written: No such file or directory\n"
        self.assertEqual((run.returncode, run.stderr.decode()), (OUTPUT, message))


class SpawnTest(unittest.TestCase):
    """Without an address it starts a server: the one of these tests, which it finds in PATH."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.env = harness.environment() | {
            "PATH": f"{pathlib.Path(os.environ['REDUCED']).parent}:{os.environ['PATH']}",
            "TMPDIR": str(self.folder),
        }

    def start(self, *arguments):
        tool = subprocess.Popen(
            harness.command("loadtest", *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env
        )
        self.addCleanup(tool.__exit__, None, None, None)  # closes the pipes and waits
        self.addCleanup(tool.kill)
        return tool

    def start_and_find_server(self):
        """A run that has begun, and the process of its server."""
        tool = self.start("--duration", "1h", "--warmup", "0")
        for _ in range(3):
            self.assertTrue(tool.stdout.readline())
        (server,) = map(int, pathlib.Path(f"/proc/{tool.pid}/task/{tool.pid}/children").read_text().split())
        self.assertFalse(gone(server))
        self.assertEqual([path.stat().st_mode & 0o777 for path in self.folder.iterdir()], [0o700])
        return tool, server

    def test_it_comes_and_goes(self):
        run = subprocess.run(
            harness.command("loadtest", *QUICK, "--json", "-", "--server-flag=--cpu_lanes=1"),
            capture_output=True,
            timeout=harness.DEADLINE_S,
            env=self.env,
            check=False,
        )
        self.assertEqual((run.returncode, run.stderr), (0, b""), run.stderr.decode())
        result = json.loads(run.stdout)
        self.assertTrue(result["spawned"])
        self.assertEqual(result["server_before"]["devices"][0]["lanes"], 1)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_it_does_not_survive_a_killed_tool(self):
        tool, server = self.start_and_find_server()
        tool.send_signal(signal.SIGKILL)
        wait_for(lambda: gone(server))

    def test_an_interrupt_ends_both_with_what_was_measured(self):
        for how in (signal.SIGINT, signal.SIGTERM):
            tool, server = self.start_and_find_server()
            tool.send_signal(how)
            output, error = tool.communicate(timeout=harness.DEADLINE_S)
            self.assertEqual((tool.returncode, error), (INTERRUPTED, b""))
            self.assertIn(b"requests/s", output)
            self.assertIn(b"interrupted", output)
            self.assertTrue(gone(server))
            self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_server_that_cannot_start(self):
        tool = self.start(*QUICK, "--server-flag=--no_such_flag")
        _, error = tool.communicate(timeout=harness.DEADLINE_S)
        self.assertEqual(tool.returncode, CONNECTION)
        self.assertIn(b"no_such_flag", error)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_no_server_to_start(self):
        self.env["PATH"] = str(self.folder)
        tool = self.start(*QUICK)
        _, error = tool.communicate(timeout=harness.DEADLINE_S)
        self.assertEqual(tool.returncode, CONNECTION)
        self.assertIn(b"no program `reduced`", error)


if __name__ == "__main__":
    unittest.main()

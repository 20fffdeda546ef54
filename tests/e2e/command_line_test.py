"""How reducectl is told things, and how it shows answers."""

import json
import os
import pty
import re
import subprocess
import threading
import unittest

import harness
from fault_proxy import FaultProxy
from harness import DATA, np


class OptionsTest(harness.ServedTest):
    def test_common_options_before_and_after_the_command(self):
        nowhere = "unix:/does/not/exist"
        for arguments in (
            ("--server", self.server.tcp, "--json", "--timeout", "20s", "ops"),
            ("ops", "--server", self.server.tcp, "--json", "--timeout", "20s"),
            ("--json", "ops", f"--server={self.server.tcp}"),
        ):
            run = self.run_reducectl(*arguments, server=nowhere)
            self.assertEqual(run.returncode, 0, run.stderr.decode())
            self.assertEqual(json.loads(run.stdout.splitlines()[0])["op"], "sum")

    def test_server_from_the_environment(self):
        for address in (self.server.tcp, self.server.unix):
            (info,) = self.answers("info", server=address)
            self.assertEqual(info["server"], address)

    def test_help_and_version(self):
        run = self.run_reducectl("--help")
        self.assertEqual(run.returncode, 0)
        for word in ("reduce", "merge", "arrays", "ladder", "info", "ops", "pipelines", "--server", "REDUCED_SERVER", "Exit codes:"):
            self.assertIn(word, run.stdout.decode())
        run = self.run_reducectl("reduce", "--help")
        self.assertEqual(run.returncode, 0)
        self.assertIn("Options of all commands", run.stdout.decode())
        self.assertNotIn("Exit codes:", run.stdout.decode())
        self.assertRegex(self.run_reducectl("--version").stdout, rb"\Areducectl \d+\.\d+\.\d+\n\Z")

    def test_ops_can_be_repeated_and_come_before_files(self):
        (answer,) = self.answers("reduce", "--op", "sum,max", "--op", "argmax", DATA / "co2.npy", "--nan", "omit")
        self.assertEqual(list(answer["results"]), ["sum", "max", "argmax"])

    def test_files_named_like_commands_or_options(self):
        array = np.arange(5)
        for name in ("info", "--json"):
            path = self.folder / name
            path.write_bytes(self.save(array).read_bytes())
            run = subprocess.run(
                harness.command("--json", "reduce", "--op", "sum", "--", name),
                cwd=self.folder,
                capture_output=True,
                timeout=harness.DEADLINE_S,
                env=harness.environment(self.server.unix),
                check=False,
            )
            self.assertEqual(run.returncode, 0, run.stderr.decode())
            self.assertEqual(json.loads(run.stdout)["results"], {"sum": 10})


class StandardInputTest(harness.ServedTest):
    def test_each_format(self):
        array = np.arange(1000, dtype="i2")
        npy = self.save(array).read_bytes()
        for stdin, arguments in (
            (npy, ()),
            (npy, ("--format", "npy")),
            (array.tobytes(), ("--dtype", "i16")),
            (b"xyz" + array.tobytes(), ("--dtype", "i16", "--offset", "3", "--shape", "10,100")),
            (bytes(1024) + array.tobytes(), ("--dtype", "i16", "--offset", "1KiB", "--shape", "10,100")),
            (npy, ("--format", "raw", "--dtype", "i16", "--offset", len(npy) - 2000)),
        ):
            answer = self.reduce("-", "sum", *arguments, stdin=stdin)
            self.assertEqual((answer["source"], answer["dtype"], answer["results"]["sum"]), ("-", "i16", 499500))
        text = "\n".join(map(str, array)).encode()
        for arguments in (("--format", "csv"), ("--column", "0")):
            self.assertEqual(self.reduce("-", "sum", *arguments, stdin=text)["results"]["sum"], 499500.0)


class JsonTest(harness.ServedTest):
    def test_one_object_a_line(self):
        paths = [self.save(np.arange(n, dtype="u1"), f"{n}.npy") for n in (3, 5)]
        answers = self.answers("reduce", *paths, "--op", "sum,argmax", "--engine", "cpu")
        self.assertEqual([answer["source"] for answer in answers], [str(path) for path in paths])
        self.assertEqual([answer["results"] for answer in answers], [{"sum": 3, "argmax": 2}, {"sum": 10, "argmax": 4}])
        for answer in answers:
            self.assertEqual(
                list(answer),
                ["source", "dtype", "shape", "count", "via", "results", "engine", "device", "pipeline", "precision", "reason"]
                + ["timing_us", "bytes", "attempts"],
            )
            self.assertEqual((answer["dtype"], answer["precision"], answer["bytes"]), ("u8", "f64", answer["count"]))
            self.assertTrue(answer["pipeline"])
            timing = answer["timing_us"]
            self.assertGreaterEqual(timing["round_trip"], timing["total"])
            self.assertGreaterEqual(timing["total"], timing["kernel"])
            # Nothing was copied anywhere.
            self.assertFalse({"host_copy", "host_to_device", "device_to_host"} & set(timing))

    def test_one_session_answers_in_the_order_of_the_inputs(self):
        # Large ones between small ones, which are answered before them, and more than are sent ahead.
        lengths = [3_000_000, 1, 2, 3, 2_000_000, *range(4, 24)]
        paths = [self.save(np.ones(n, dtype="u1"), f"{n}.npy") for n in lengths]
        answers = self.answers("reduce", *paths, "--op", "sum", "--via", "session", "--timeout", "60s")
        self.assertEqual([answer["source"] for answer in answers], [str(path) for path in paths])
        self.assertEqual([answer["results"]["sum"] for answer in answers], lengths)
        self.assertEqual({answer["via"] for answer in answers}, {"session"})
        for answer in answers:
            self.assertGreaterEqual(answer["timing_us"]["round_trip"], answer["timing_us"]["total"])
        (info,) = self.answers("info")
        self.assertEqual(info["usage"]["sessions"], 0)

    def test_odd_file_names(self):
        path = self.save(np.ones(1), 'quote" and \N{SNOWMAN}.npy')
        self.assertEqual(self.reduce(path, "sum")["source"], str(path))

    def test_info_ops_and_pipelines(self):
        (info,) = self.answers("info")
        self.assertRegex(info["version"], r"\A\d+\.\d+\.\d+\Z")
        self.assertGreaterEqual(info["uptime_s"], 0)
        self.assertEqual(
            set(info["limits"]),
            {"max_message_bytes", "max_elements", "max_ops", "max_ladder_bytes", "max_result_bytes", "max_streams", "max_sessions", "max_ring_bytes"}
            | {"max_operands", "max_session_requests", "session_idle_timeout_s", "default_array_ttl_s", "max_array_ttl_s"},
        )
        self.assertEqual(info["limits"]["default_array_ttl_s"], 3600)
        self.assertEqual(info["usage"], {"streams": 0, "sessions": 0, "arrays": 0, "regions": 0, "rings": 0})
        self.assertEqual(len(info["dtypes"]), 16)
        cpu = next(device for device in info["devices"] if device["name"] == "cpu")
        self.assertGreater(cpu["host_gb_per_s"], 0)
        self.assertEqual((cpu["array_bytes"], cpu["array_bytes_limit"]), (0, 1 << 30))
        self.assertEqual(cpu["links"], [])
        self.assertGreaterEqual(cpu["reduced_bytes"], cpu["reductions"])
        ops = {op["op"]: op for op in self.answers("ops")}
        self.assertEqual(len(ops), 52)
        self.assertEqual(ops["sum"]["dtypes"], info["dtypes"])
        self.assertNotIn("f32", ops["bit_xor"]["dtypes"])
        pipelines = self.answers("pipelines")
        self.assertTrue(any(row["engine"] == "cpu" and row["default_of_engine"] for row in pipelines))
        for row in pipelines:
            self.assertTrue(row["pipeline"] and row["summary"] and row["origin"] and row["ops"] and row["dtypes"])
            self.assertTrue(row["fused"] or not row["default_of_engine"])
            self.assertIn(row["fixed_order"], (True, False))
            self.assertIsInstance(row["block_sizes"], list)


class TableTest(harness.ServedTest):
    def text(self, *arguments):
        run = self.run_reducectl(*arguments)
        self.assertEqual((run.returncode, run.stderr), (0, b""))
        return run.stdout.decode()

    def test_reduce(self):
        path = self.save(np.arange(12, dtype="i8").reshape(3, 4))
        lines = self.text("reduce", path, "--op", "sum,mean", "--verbose").splitlines()
        self.assertEqual(lines[0], f"{path}: i64 (3, 4), 96 bytes")
        self.assertRegex(lines[1], r"\A  sum +66\Z")
        self.assertRegex(lines[2], r"\A  mean +5\.5\Z")
        self.assertRegex(lines[3], r"\A  ran on +\S+, pipeline \S+, precision f64, sent inline: .+")
        self.assertIn("sent session: ", self.text("reduce", path, "--via", "session", "-v"))
        self.assertRegex(lines[4], r"\A  time +.*kernel [\d.]+ .?s.*total [\d.]+ .?s.*; round trip [\d.]+ .?s\Z")
        self.assertEqual(len(lines), 5)
        short = self.text("reduce", path, "--op", "sum,std", "--ddof", "1").splitlines()
        self.assertRegex(short[2], r"\A  std \(ddof 1\) +3\.605551275463989\Z")
        self.assertRegex(short[3], r"\A  ran on +\S+, [\d.]+ .?s\Z")  # no precision: these are no floats
        floats = self.text("reduce", self.save(np.ones(3)), "--op", "sum,max").splitlines()
        self.assertRegex(floats[3], r"\A  ran on +\S+, exact, [\d.]+ .?s\Z")
        self.assertRegex(self.text("reduce", path, "--op", "max").splitlines()[2], r"\A  ran on +\S+, [\d.]+ .?s\Z")

    def test_quiet(self):
        path = self.save(np.arange(12, dtype="i8"))
        self.assertEqual(self.text("reduce", path, "--op", "sum", "-q"), "66\n")
        self.assertEqual(self.text("reduce", path, path, "--op", "sum,mean", "--quiet"), "66\t5.5\n" * 2)

    def test_a_nan_says_how_many_and_what_to_do(self):
        path = self.save(np.array([1, np.nan, 2, np.nan]))
        for via in ("inline", "stream", "region"):
            text = self.text("reduce", path, "--op", "mean", "--via", via)
            self.assertRegex(text, r"(?m)^  mean +NaN\n  NaN +2 of 4 elements; leave them out with --nan omit$")
        self.assertEqual(self.answers("reduce", path, "--op", "sum")[0]["nan_count"], 2)
        self.assertNotIn("nan_count", self.answers("reduce", path, "--op", "sum", "--nan", "omit")[0])

    def test_names_of_options_with_underscores(self):
        run = self.run_reducectl("loadtest", "--warmup=0", "--count=5", "--include_fill", "--json=-")
        self.assertTrue(json.loads(run.stdout)["include_fill"], run.stderr)

    def test_info_ops_and_pipelines(self):
        info = self.text("info")
        for pattern in (
            r"^server +unix:\S+, version \S+, up \d",
            r"^limits +\S+ MiB per message.* 256 sessions of 64 requests$",
            r"^in use +0 streams, 0 sessions, 0 arrays, 0 regions, 0 rings$",
            r"^regions +\S+\.regions$",
            r"^cpu ",
            r"calibration: ",
            r"work: \d+ reductions of .+, \d+%",
            r"arrays: 0 bytes of 1",
        ):
            self.assertTrue(re.search(pattern, info, re.MULTILINE), info)
        self.assertRegex(self.text("ops"), r"(?m)^bit_and .*bool,i8,i16,i32,i64,u8,u16,u32,u64$")
        pipelines = self.text("pipelines")
        self.assertRegex(pipelines, r"(?m)^tiled_simd +cpu \(default\) +all +any +all +- +always +\[\d+\] +\S")
        self.assertRegex(pipelines, r"(?m)^sequential +cpu +\[1\] +one +\[2\] +- +always +\[\d+\] +\S")
        self.assertRegex(pipelines, r"(?m)^\[1\] +sum, prod, min")


class ProgressTest(harness.ServedTest):
    """What is drawn on a terminal while an upload is held up for longer than a second."""

    def upload(self, *arguments):
        """The standard output, and what the terminal got."""
        path = self.folder / "zeros.bin"
        with open(path, "wb") as file:
            file.truncate(48 << 20)
        cut = FaultProxy(self.server.tcp, 8 << 20)
        terminal, stderr = pty.openpty()
        client = subprocess.Popen(
            harness.command(*arguments, path, "--dtype", "u8", "--timeout", "60s"),
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=harness.environment(cut.address),
        )
        os.close(stderr)
        self.assertTrue(cut.reached.wait(harness.DEADLINE_S))
        threading.Timer(1.2, cut.go_on).start()
        output, _ = client.communicate(timeout=harness.DEADLINE_S)
        self.assertTrue(cut.close())
        drawn = b""
        try:
            while piece := os.read(terminal, 1 << 16):
                drawn += piece
        except OSError:
            pass  # the end of a terminal that nobody has open any more
        os.close(terminal)
        self.assertEqual(client.returncode, 0, drawn)
        return output.decode(), drawn.decode()

    def check_line(self, drawn):
        erase = "\r\x1b[K"
        first, *lines, last = drawn.split(erase)
        self.assertEqual((first, last), ("", ""), "text before the line, or after it was erased")
        self.assertTrue(lines)
        for line in lines:
            self.assertRegex(line, r"\A[\d.]+ MiB of 48\.0 MiB, [\d.]+%, [\d.]+ [MG]B/s, \d+s? left\Z")

    def test_reduce(self):
        output, drawn = self.upload("reduce", "--op", "sum")
        self.assertRegex(output, r"\A\S+: u8 \(50331648\), 48\.0 MiB\n  sum +0\n")
        self.check_line(drawn)

    def test_put(self):
        output, drawn = self.upload("arrays", "put")
        self.assertRegex(output, r"\A[0-9a-f]{32}\n\Z")
        self.check_line(drawn)

    def test_none_with_json(self):
        output, drawn = self.upload("reduce", "--op", "sum", "--json")
        self.assertEqual((json.loads(output)["results"], drawn), ({"sum": 0}, ""))


class ServerFlagsTest(unittest.TestCase):
    def test_names_with_dashes_and_sizes_without_b(self):
        for flags in (("--memory-bytes=512Mi", "--drain-timeout", "3s"), ("--memory_bytes=512MiB", "--drain_timeout=3s")):
            run = subprocess.run(
                [os.environ["REDUCED"], *flags, "--print-config"],
                capture_output=True,
                timeout=harness.DEADLINE_S,
                env=harness.environment(),
                check=False,
                text=True,
            )
            self.assertEqual((run.returncode, run.stderr), (0, ""))
            self.assertRegex(run.stdout, r"(?m)^memory_bytes = 512MiB")
            self.assertRegex(run.stdout, r"(?m)^drain_timeout = 3s")


class CompletionTest(harness.ServedTest):
    def complete(self, *words):
        """What bash offers for the last of the words."""
        script = """
            set -euo pipefail
            source /dev/stdin < <("$1" completion bash)
            shift
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
            _reducectl
            printf '%s\\n' "${COMPREPLY[@]}"
        """
        run = subprocess.run(
            ["bash", "-c", script, "bash", *harness.command(), "reducectl", *words],
            capture_output=True,
            timeout=harness.DEADLINE_S,
            cwd=DATA,
            check=False,
        )
        self.assertEqual((run.returncode, run.stderr), (0, b""), words)
        return run.stdout.decode().split()

    def test_completes(self):
        for words, offered in (
            (("",), ["reduce", "describe", "histogram", "compare", "fingerprint", "corr", "merge", "arrays", "ladder", "loadtest", "info", "ops", "pipelines", "health", "doctor", "completion"]),
            (("re",), ["reduce"]),
            (("--server", "host:1", "pipe"), ["pipelines"]),
            (("--ser",), ["--server"]),
            (("ops", "--js"), ["--json"]),
            (("reduce", "--engine", "c"), ["cpu", "cuda"]),
            (("reduce", "--op", "arg"), ["argmin", "argmax", "argtopk", "argbottomk"]),
            (("reduce", "--op", "sum,arg"), ["sum,argmin", "sum,argmax", "sum,argtopk", "sum,argbottomk"]),
            (("reduce", "--nan", ""), ["propagate", "omit"]),
            (("reduce", "--dt"), ["--dtype"]),
            (("reduce", "--via", "s"), ["stream", "session"]),
            (("reduce", "--via", "r"), ["ring", "region"]),
            (("merge", "co2.n"), ["co2.npy"]),
            (("reduce", "--dtype", "f"), ["f16", "f32", "f64", "f8_e4m3fn", "f8_e5m2", "f8_e8m0fnu"]),
            (("reduce", "co2.n"), ["co2.npy"]),
            (("reduce", "--ddof", ""), []),
            (("reduce", "--conn"), ["--connections"]),
            (("reduce", "--connections", ""), []),
            (("reduce", "--arr"), ["--array"]),
            (("arrays", ""), ["put", "list", "get", "delete"]),
            (("--json", "arrays", "l"), ["list"]),
            (("arrays", "put", "co2.n"), ["co2.npy"]),
            (("arrays", "put", "--dtype", "f"), ["f16", "f32", "f64", "f8_e4m3fn", "f8_e5m2", "f8_e8m0fnu"]),
            (("arrays", "put", "--tt"), ["--ttl"]),
            (("arrays", "put", "--tls"), ["--tls-ca", "--tls-cert", "--tls-key", "--tls-server-name"]),
            (("info", "--token-file", "co2.n"), ["co2.npy"]),
            (("arrays", "list", "--ow"), ["--owner"]),
            (("arrays", "delete", "--owner", ""), []),
            (("ladder", "--sw"), ["--sweep-block"]),
            (("ladder", "--dtype", "i"), ["i8", "i16", "i32", "i64"]),
            (("ladder", "--n", ""), []),
            (("ladder", "--from", "co2.n"), ["co2.npy"]),
            (("loadtest", "--via", ""), ["auto", "inline", "stream", "session", "ring", "resident", "region", "device_region", "ring_resident", "ring_region", "ring_device_region"]),
            (("loadtest", "--dtype", "f"), ["f16", "f32", "f64", "f8_e4m3fn", "f8_e5m2", "f8_e8m0fnu"]),
            (("health", "--wa"), ["--watch"]),
            (("completion", ""), ["bash"]),
        ):
            with self.subTest(words=words):
                self.assertEqual(self.complete(*words), offered)


if __name__ == "__main__":
    unittest.main()

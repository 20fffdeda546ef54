"""Operating a server: health, drain, a rolling restart that loses nothing, configuration."""

import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import harness
from harness import np

try:
    import grpc
except ImportError:
    print("SKIPPED: some of the clients here are grpcio, which isn't there (Debian: python3-grpcio)")
    sys.exit(harness.SKIPPED)

SERVICE_CONFIG = json.dumps(
    {
        "loadBalancingConfig": [{"round_robin": {}}],
        "healthCheckConfig": {"serviceName": "reduced.v1.Reduction"},
    }
)


def reducectl(*arguments, server=None):
    return subprocess.run(
        harness.command(*arguments),
        capture_output=True,
        timeout=harness.DEADLINE_S,
        env=harness.environment(server),
        check=False,
        text=True,
    )


def await_true(condition):
    deadline = time.monotonic() + harness.DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("not in time")
        time.sleep(0.01)


def await_health(address, text):
    await_true(lambda: reducectl("health", server=address).stdout.strip() == text)


class HealthTest(harness.ServedTest):
    def test_serving(self):
        for server in (self.server.tcp, self.server.unix):
            run = reducectl("health", server=server)
            self.assertEqual((run.returncode, run.stdout, run.stderr), (0, "SERVING\n", ""))
        (answer,) = self.answers("health")
        self.assertEqual(answer, {"server": self.server.unix, "health": "SERVING"})

    def test_watching_for_a_while(self):
        run = reducectl("health", "--watch", "--timeout", "300ms", server=self.server.unix)
        self.assertEqual((run.returncode, run.stdout, run.stderr), (0, "SERVING\n", ""))

    def test_nobody_there(self):
        self.check_failure(3, ["no reduced server answers at 127.0.0.1:1"], "health", server="127.0.0.1:1")

    def test_a_server_that_says_nothing(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            start = time.monotonic()
            run = reducectl("health", "--timeout", "300ms", server=address)
            self.assertLess(time.monotonic() - start, harness.DEADLINE_S / 2)
        self.assertIn(run.returncode, (3, 4), run.stderr)
        self.assertEqual(run.stdout, "")


class DoctorTest(harness.ServedTest):
    def levels(self, *arguments, server):
        run = reducectl("doctor", "--json", *arguments, server=server)
        self.assertEqual(run.stderr, "")
        findings = [json.loads(line) for line in run.stdout.splitlines()]
        for finding in findings:
            self.assertEqual(list(finding), ["check", "level", "text", "remedy"])
            self.assertEqual(finding["remedy"] == "", finding["level"] == "ok", finding)
        return run.returncode, {finding["check"]: finding["level"] for finding in findings}

    def test_with_a_server(self):
        _, levels = self.levels(server=self.server.unix)
        for check in ("socket", "server", "health", "engines", "regions", "namespaces"):
            self.assertEqual(levels[check], "ok", check)
        self.assertLessEqual({"driver", "memory", "shm", "limits", "clock"}, set(levels))
        _, levels = self.levels(server=self.server.tcp)
        self.assertEqual((levels["server"], levels["regions"], "socket" in levels), ("ok", "ok", False))

    def test_without_one(self):
        code, levels = self.levels(server="unix:/no/such/socket")
        self.assertEqual((code, levels["socket"], levels["server"]), (9, "fail", "fail"))

    def test_without_one_at_the_default_address(self):
        run = reducectl("doctor", "--timeout", "1s")
        if "ok    server" not in run.stdout:  # nothing of this machine's listens there
            self.assertEqual((run.returncode, run.stderr), (9, ""))
            self.assertRegex(run.stdout, r"(?m)^fail +server +.*127.0.0.1:50051.*, the default address")

    def test_for_people(self):
        run = reducectl("doctor", server="unix:/no/such/socket")
        self.assertEqual((run.returncode, run.stderr), (9, ""))
        self.assertRegex(run.stdout, r"(?m)^fail +server +no reduced server answers at unix:/no/such/socket")
        self.assertRegex(run.stdout, r"(?m)^ +-> start a server with `reduced`")


class DrainTest(unittest.TestCase):
    def test_serves_for_the_delay_and_says_that_it_goes(self):
        server = harness.Server("--drain_delay=2s")
        watch = subprocess.Popen(
            harness.command("health", "--watch"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=harness.environment(server.unix),
            text=True,
        )
        self.addCleanup(watch.kill)
        self.assertEqual(watch.stdout.readline(), "SERVING\n")
        start = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(watch.stdout.readline(), "NOT_SERVING\n")
        self.assertEqual(server.metric("reduced_draining"), {"": 1})
        self.assertEqual(server.metric("reduced_serving"), {"": 0})
        run = reducectl("health", server=server.unix)
        self.assertEqual((run.returncode, run.stdout), (9, "NOT_SERVING\n"))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "array.npy"
            np.save(path, np.arange(1000.0))
            run = reducectl("--json", "reduce", path, "--op", "sum", server=server.unix)
            self.assertEqual((run.returncode, json.loads(run.stdout)["results"]), (0, {"sum": 499500.0}), run.stderr)
        self.assertEqual(server.process.wait(harness.DEADLINE_S), 0)
        self.assertGreaterEqual(time.monotonic() - start, 2)
        output, error = watch.communicate(timeout=harness.DEADLINE_S)
        self.assertEqual((watch.returncode, output), (3, ""), error)
        server.stop()

    def test_a_second_signal_does_not_wait(self):
        server = harness.Server("--drain_delay=10m")
        server.process.send_signal(signal.SIGTERM)
        await_health(server.unix, "NOT_SERVING")
        self.assertEqual(server.stop(), 128 + signal.SIGTERM)


class Load(threading.Thread):
    """Asks for a sum again and again, of whichever server says that it serves."""

    def __init__(self, target, request, right):
        super().__init__(daemon=True)
        self._target, self._request, self._right = target, request, right
        self._ended = threading.Event()
        self.answered, self.failures = 0, []

    def run(self):
        options = [
            ("grpc.service_config", SERVICE_CONFIG),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 200),
        ]
        with grpc.insecure_channel(self._target, options) as channel:
            reduce = channel.unary_unary("/reduced.v1.Reduction/Reduce")
            while not self._ended.is_set():
                try:
                    answer = reduce(self._request, timeout=harness.DEADLINE_S, wait_for_ready=True)
                except grpc.RpcError as error:
                    self.failures.append(str(error))
                    continue
                self.answered += 1
                if self._right not in answer:
                    self.failures.append(f"wrong: {answer!r}")

    def stop(self):
        self._ended.set()
        self.join(harness.DEADLINE_S)


class RollingRestartTest(unittest.TestCase):
    def start(self, name, port=0):
        return harness.Server(
            f"--listen=127.0.0.1:{port},unix:{self.folder}/{name}", "--drain_delay=1s", "--log_level=debug"
        )

    def request(self):
        """Of the sum of 1, 2, 3 and 4, and what is in its answer: 10.0."""
        text = f'array {{ dtype: DTYPE_F64 shape: 4 }} ops: OP_SUM inline_data: "{"".join(self.octal())}"'
        protos = pathlib.Path(__file__).resolve().parent.parent.parent / "proto"
        encoded = subprocess.run(
            [os.environ["PROTOC"], "--encode=reduced.v1.ReduceRequest", f"-I{protos}", "reduced/v1/reduced.proto"],
            input=text.encode(),
            capture_output=True,
            timeout=harness.DEADLINE_S,
            check=True,
            cwd=protos,
        )
        return encoded.stdout, struct.pack("<d", 10.0)

    def octal(self):
        return (f"\\{byte:03o}" for byte in struct.pack("<4d", 1, 2, 3, 4))

    def answers_of(self, server):
        return server.log().count("status=OK")

    def test_loses_no_request(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        servers = {}
        self.addCleanup(lambda: [server.process.kill() for server in servers.values()])
        for name in "ab":
            servers[name] = self.start(name)
        request, right = self.request()
        target = "ipv4:" + ",".join(server.tcp for server in servers.values())
        loads = [Load(target, request, right) for _ in range(4)]
        for load in loads:
            load.start()
        try:
            for server in servers.values():
                await_true(lambda server=server: self.answers_of(server) > 100)
            for name in "ab":
                port = servers[name].tcp.rsplit(":", 1)[1]
                servers[name].process.send_signal(signal.SIGTERM)
                self.assertEqual(servers[name].process.wait(harness.DEADLINE_S), 0)
                servers[name].stop()
                servers[name] = self.start(name, port)
                await_true(lambda name=name: self.answers_of(servers[name]) > 100)
        finally:
            for load in loads:
                load.stop()
        for load in loads:
            self.assertEqual(load.failures, [])
            self.assertGreater(load.answered, 100)
        for server in servers.values():
            self.assertEqual(server.stop(), 0)


class ConfigurationTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def reduced(self, *flags, **variables):
        return subprocess.run(
            [os.environ["REDUCED"], *flags],
            capture_output=True,
            timeout=harness.DEADLINE_S,
            env=harness.environment() | variables,
            check=False,
            text=True,
        )

    def test_what_is_printed_is_a_file_that_says_the_same(self):
        first = self.reduced("--print_config", "--cpu_lanes=3", "--listen=unix:/tmp/x", REDUCED_FLAG_MAX_OPS="9")
        self.assertEqual((first.returncode, first.stderr), (0, ""))
        self.assertRegex(first.stdout, r"(?m)^cpu_lanes = 3 +# --cpu_lanes$")
        self.assertRegex(first.stdout, r"(?m)^max_ops = 9 +# REDUCED_FLAG_MAX_OPS$")
        self.assertRegex(first.stdout, r"(?m)^drain_delay = 0 +# default$")
        path = self.folder / "reduced.conf"
        path.write_text(first.stdout)
        second = self.reduced("--print_config", f"--config_file={path}")
        self.assertEqual((second.returncode, second.stderr), (0, ""))

        def values(text):
            return [line.split("  #")[0].strip() for line in text.splitlines() if "config_file =" not in line]

        self.assertEqual(values(first.stdout), values(second.stdout))
        self.assertGreater(len(values(first.stdout)), 20)

    def test_checking(self):
        run = self.reduced("--check_config")
        self.assertEqual((run.returncode, run.stdout, run.stderr), (0, "ok\n", ""))
        path = self.folder / "reduced.conf"
        path.write_text("cpu_lanes = 3\nmax_opps = 3\n")
        for flags, variables, says in (
            (["--queue_limit=0"], {}, "--queue_limit: got 0; allowed: 1"),
            (["--listen=unix:/no/such/folder/socket"], {}, "/no/such/folder/socket"),
            ([f"--config_file={path}"], {}, f"{path}:2: unknown flag 'max_opps'"),
            (["--config_file=/no/such"], {}, "cannot read /no/such: No such file"),
            ([], {"REDUCED_FLAG_LISTENN": "x"}, "REDUCED_FLAG_LISTENN: unknown flag 'listenn'"),
            ([], {"REDUCED_LISTEN": "x"}, "the variable of --listen is REDUCED_FLAG_LISTEN"),
            ([f"--flagfile={path}"], {}, "--flagfile is not supported"),
            (["--listen=127.0.0.1:1,0.0.0.0:1", "--allow_plaintext"], {}, "--listen: got 0.0.0.0:1, which is taken by --listen="),
            (["--listen=unix:/tmp/a,unix:/tmp/./a"], {}, "--listen: got unix:/tmp/./a, which is taken by --listen=unix:/tmp/a;"),
            (["--listen=unix:/tmp/a,unix:/tmp/a.regions"], {}, "--region_socket: got /tmp/a.regions, which is taken by"),
            (["--listen=127.0.0.1:1", "--metrics_listen=127.1:1"], {}, "--metrics_listen: got 127.1:1, which is taken by"),
            (["--listen=a\n\x1b[31mb"], {}, "--listen: got 'a\\n\\x1b[31mb', which has no port"),
        ):
            run = self.reduced("--check_config", *flags, **variables)
            self.assertEqual((run.returncode, run.stdout), (1, ""), says)
            self.assertRegex(run.stderr, r"\Areduced: [^\n]+\n\Z")
            self.assertIn(says, run.stderr)

    def test_a_server_tells_its_flags(self):
        server = harness.Server("--cpu_lanes=3")
        try:
            run = reducectl("--json", "info", server=server.unix)
            flags = json.loads(run.stdout)["flags"]
            self.assertEqual(flags["cpu_lanes"], {"value": "3", "source": "--cpu_lanes"})
            self.assertEqual(flags["drain_timeout"], {"value": "10s", "source": "default"})
        finally:
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()

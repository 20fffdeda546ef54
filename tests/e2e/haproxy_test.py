"""deploy/haproxy.cfg, as it is shipped, in the real HAProxy before a real server; the client is grpcio."""

import os
import pathlib
import queue
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings

import harness
from harness import DEADLINE_S, np

ROOT = harness.DATA.parent.parent
CONFIG = ROOT / "deploy" / "haproxy.cfg"
CHUNK_BYTES = 1 << 20
SERVICE = "/reduced.v1.Reduction/"
HEALTH = "/grpc.health.v1.Health/Check"
SERVING = b"\x08\x01"


def skip(reason):
    print("SKIPPED:", reason)
    sys.exit(harness.SKIPPED)


os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it says at length what the tests provoke
try:
    import grpc
except ImportError:
    skip("the client is grpcio, which isn't there (Debian: python3-grpcio)")


def setUpModule():
    for program in ("haproxy", "openssl"):
        if shutil.which(program) is None:
            skip(f"{program} isn't installed (deploy/dependencies.sh check)")
    if os.geteuid() != 0:
        skip("the configuration has HAProxy change its user and root folder, which takes root")
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    EdgeTest.files = pathlib.Path(folder.name)
    make_certificate(EdgeTest.files)
    protos = ROOT / "proto"
    subprocess.run(
        [os.environ["PROTOC"], f"--python_out={folder.name}", f"-I{protos}", protos / "reduced/v1/reduced.proto"],
        timeout=DEADLINE_S,
        check=True,
    )
    sys.path.insert(0, folder.name)
    global pb
    from reduced.v1 import reduced_pb2 as pb  # pylint: disable=import-outside-toplevel


def make_certificate(folder):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", folder / "key.pem", "-out", folder / "ca.pem"],
        stderr=subprocess.DEVNULL,
        timeout=DEADLINE_S,
        check=True,
    )  # fmt: skip
    (folder / "edge.pem").write_bytes((folder / "ca.pem").read_bytes() + (folder / "key.pem").read_bytes())


class Edge:
    """HAProxy with the shipped configuration, on a port that the kernel picked."""

    def __init__(self, files, backend, **settings):
        self._log = tempfile.TemporaryFile("a+", encoding="utf-8")  # as in harness.py
        with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
            self.port = listener.getsockname()[1]
            self.process = subprocess.Popen(
                ["haproxy", "-db", "-f", CONFIG],
                env=os.environ | {
                    "EDGE_LISTEN": f"fd@{listener.fileno()}",
                    "EDGE_CERT": str(files / "edge.pem"),
                    "EDGE_BACKEND": backend,
                    **settings,
                },
                pass_fds=[listener.fileno()],
                stdout=self._log,
                stderr=subprocess.STDOUT,
            )  # fmt: skip

    def log(self):
        self._log.seek(0)
        return self._log.read()

    def stop(self):
        self.process.terminate()
        try:
            return self.process.wait(DEADLINE_S)
        finally:
            self.process.kill()
            self._log.close()


class EdgeTest(unittest.TestCase):
    files = None

    def setUp(self):
        self.server = harness.Server("--drain_timeout=30s")
        self.addCleanup(self.server.stop)

    def start(self, **settings):
        self.edge = Edge(self.files, self.server.tcp, **settings)
        self.addCleanup(self.edge.stop)
        self.channel = self.connect()
        return self.edge

    def connect(self, **options):
        credentials = grpc.ssl_channel_credentials((self.files / "ca.pem").read_bytes())
        # Else channels share connections.
        options = [("grpc.use_local_subchannel_pool", 1), *options.items()]
        channel = grpc.secure_channel(f"localhost:{self.edge.port}", credentials, options)
        self.addCleanup(channel.close)
        return channel

    def health(self, channel=None, wait=True):
        return (channel or self.channel).unary_unary(HEALTH)(b"", timeout=DEADLINE_S, wait_for_ready=wait)

    def check_code(self, code, call, *arguments):
        with self.assertRaises(grpc.RpcError) as caught:
            call(*arguments)
        self.assertEqual(caught.exception.code(), code, caught.exception.details())

    def header(self, count):
        return pb.ReduceRequest(ops=[pb.OP_SUM], array=pb.ArraySpec(dtype=pb.DTYPE_F64, shape=[count]))

    def reduce(self, array, metadata=None):
        request = self.header(len(array))
        request.inline_data = array.tobytes()
        call = self.channel.unary_unary(
            SERVICE + "Reduce", type(request).SerializeToString, pb.ReduceResponse.FromString
        )
        return call(request, timeout=DEADLINE_S, metadata=metadata).results[0].value.f

    def stream(self, parts):
        """The future of what a ReduceStream of these messages is answered."""
        call = self.channel.stream_unary(
            SERVICE + "ReduceStream", pb.ReduceStreamRequest.SerializeToString, pb.ReduceResponse.FromString
        )
        return call.future(parts, timeout=DEADLINE_S)

    def parts(self, array):
        yield pb.ReduceStreamRequest(header=self.header(len(array)))
        data = memoryview(array.tobytes())
        for at in range(0, len(data), CHUNK_BYTES):
            yield pb.ReduceStreamRequest(chunk=bytes(data[at : at + CHUNK_BYTES]))

    def held_stream(self):
        """A stream of one number that the server has begun, and what sends the number."""
        messages = queue.Queue()
        messages.put(pb.ReduceStreamRequest(header=self.header(1)))
        self.addCleanup(messages.put, None)
        future = self.stream(iter(messages.get, None))

        def finish():
            messages.put(pb.ReduceStreamRequest(chunk=np.array([42.0]).tobytes()))
            messages.put(None)
            return future.result(DEADLINE_S).results[0].value.f

        return finish

    def await_streams(self, count):
        run = ["--json", "info"]
        deadline = time.monotonic() + DEADLINE_S
        while f'"streams": {count}' not in subprocess.run(
            harness.command(*run), capture_output=True, text=True, timeout=DEADLINE_S,
            env=harness.environment(self.server.unix), check=False,
        ).stdout:  # fmt: skip
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

    def await_log(self, text):
        deadline = time.monotonic() + DEADLINE_S
        while text not in self.edge.log():
            self.assertIsNone(self.edge.process.poll(), self.edge.log())
            self.assertLess(time.monotonic(), deadline, self.edge.log())
            time.sleep(0.02)

    def tls(self, alpn="h2", newest=ssl.TLSVersion.MAXIMUM_SUPPORTED):
        """A connection, once shaken hands on."""
        context = ssl.create_default_context(cafile=self.files / "ca.pem")
        if newest < ssl.TLSVersion.TLSv1_2:
            context.set_ciphers("DEFAULT:@SECLEVEL=0")  # this side would do
            warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        context.maximum_version = newest
        if alpn:
            context.set_alpn_protocols([alpn])
        tcp = socket.create_connection(("127.0.0.1", self.edge.port), DEADLINE_S)
        self.addCleanup(tcp.close)
        connection = context.wrap_socket(tcp, server_hostname="localhost")
        self.addCleanup(connection.close)
        return connection


class CallsTest(EdgeTest):
    def test_the_configuration_is_clean(self):
        run = subprocess.run(
            ["haproxy", "-c", "-f", CONFIG],
            env=os.environ | {"EDGE_CERT": str(self.files / "edge.pem")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        self.assertEqual(run.returncode, 0, run.stdout)
        self.assertNotRegex(run.stdout, "WARNING|ALERT")

    def test_unary_stream_and_session(self):
        self.start()
        self.assertEqual(self.health(), SERVING)
        self.assertEqual(self.reduce(np.arange(1000.0)), 499500)

        array = np.random.default_rng(11).integers(0, 1 << 20, 8 << 20).astype("f8")  # 64 MiB, sums without rounding
        start = time.monotonic()
        self.assertEqual(self.stream(self.parts(array)).result(DEADLINE_S).results[0].value.f, array.sum())
        print(f"{array.nbytes / (time.monotonic() - start) / 1e6:.0f} MB/s")

        requests = queue.Queue()
        self.addCleanup(requests.put, None)
        session = self.channel.stream_stream(
            SERVICE + "Session", pb.SessionRequest.SerializeToString, pb.SessionResponse.FromString
        )
        answers = session(iter(requests.get, None), timeout=DEADLINE_S)
        for n in range(1, 4):  # each once the one before is answered: nothing is held back
            request = self.header(n)
            request.inline_data = np.full(n, 2.0).tobytes()
            requests.put(pb.SessionRequest(id=n, reduce=request))
            answer = next(answers)
            self.assertEqual((answer.id, answer.response.results[0].value.f), (n, 2.0 * n))

    def test_what_is_not_a_call_of_these_services(self):
        self.start()
        self.health()
        reflection = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
        for method in (reflection, "/other.Service/Method", SERVICE + "No"):
            call = self.channel.unary_unary(method)
            self.check_code(grpc.StatusCode.UNIMPLEMENTED, lambda: call(b"", timeout=DEADLINE_S))

    def test_errors_come_through(self):
        self.start()
        self.health()
        call = self.channel.unary_unary(SERVICE + "Reduce")
        self.check_code(grpc.StatusCode.INVALID_ARGUMENT, lambda: call(b"", timeout=DEADLINE_S))

    def test_the_log_has_neither_bodies_nor_credentials(self):
        self.start()
        self.health()
        secret = b"SECRETS!"
        self.reduce(np.frombuffer(secret * 100), metadata=[("authorization", "Bearer SECRETS!")])
        self.await_log("POST /reduced.v1.Reduction/Reduce status=200")
        self.assertNotIn("SECRET", self.edge.log())


class RefusedTest(EdgeTest):
    def test_clients_without_tls_or_http2(self):
        self.start()
        self.assertEqual(self.health(), SERVING)
        plain = grpc.insecure_channel(f"localhost:{self.edge.port}")
        self.addCleanup(plain.close)
        self.check_code(grpc.StatusCode.UNAVAILABLE, lambda: plain.unary_unary(HEALTH)(b"", timeout=DEADLINE_S))
        with self.assertRaises(OSError):
            self.tls(newest=ssl.TLSVersion.TLSv1_1)
        self.assertEqual(self.tls().selected_alpn_protocol(), "h2")
        for alpn in (None, "http/1.1"):
            with self.assertRaises(OSError):
                connection = self.tls(alpn=alpn)
                connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                if connection.recv(1) == b"":
                    raise ConnectionResetError
        self.assertEqual(self.health(), SERVING)

    def let_in(self):
        """A connection, at the second attempt or later if HAProxy refuses one too many: each of its threads counts a
        connection before it knows whether another thread has accepted it."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                return self.tls()
            except OSError:
                self.assertLess(time.monotonic(), deadline)

    def check_cap(self, **settings):
        """Three connections are let in, the fourth is not, until one of them goes."""
        self.start(**settings)
        self.assertEqual(self.health(), SERVING)  # the first
        open_ones = [self.let_in(), self.let_in()]
        for _ in range(3):
            with self.assertRaises(OSError):
                self.tls()
        self.check_code(grpc.StatusCode.UNAVAILABLE, lambda: self.health(self.connect(), wait=False))
        self.assertEqual(self.health(), SERVING)
        open_ones.pop().close()
        self.assertEqual(self.health(self.connect()), SERVING)

    def test_more_connections_than_a_client_may_have(self):
        self.check_cap(EDGE_MAX_CONNECTIONS_PER_CLIENT="3")

    def test_more_connections_than_there_may_be(self):
        self.check_cap(EDGE_MAX_CONNECTIONS="3")

    def test_more_calls_than_the_server_is_to_have(self):
        self.start(EDGE_MAX_CALLS="2")
        self.health()
        held = [self.held_stream(), self.held_stream()]
        self.await_streams(2)
        self.check_code(grpc.StatusCode.UNAVAILABLE, self.reduce, np.ones(1))
        self.assertEqual([finish() for finish in held], [42, 42])
        self.assertEqual(self.reduce(np.ones(5)), 5)


class BackendTest(EdgeTest):
    def test_a_server_that_drains_gets_no_new_calls_and_finishes_the_others(self):
        self.start()
        self.health()
        finish = self.held_stream()
        self.await_streams(1)
        self.server.process.send_signal(signal.SIGTERM)
        self.await_log("Server reduced/first is DOWN")
        self.check_code(grpc.StatusCode.UNAVAILABLE, self.reduce, np.ones(1))
        self.assertEqual(finish(), 42)
        self.assertEqual(self.server.process.wait(DEADLINE_S), 0)

    def drain_under_load(self):
        """Calls go on while the server stops; codes and words of those that failed, and the seconds of the longest."""
        self.start()
        self.health()
        enough = threading.Event()
        failed = []

        def call():
            while not enough.is_set():
                start = time.monotonic()
                try:
                    self.reduce(np.ones(10))
                except grpc.RpcError as error:
                    failed.append((error.code(), error.details(), time.monotonic() - start))

        callers = [threading.Thread(target=call) for _ in range(4)]
        for caller in callers:
            caller.start()
        self.server.process.send_signal(signal.SIGTERM)
        self.await_log("Server reduced/first is DOWN")
        count = len(failed)
        deadline = time.monotonic() + DEADLINE_S
        while len(failed) < count + 100 and time.monotonic() < deadline:
            time.sleep(0.02)
        enough.set()
        for caller in callers:
            caller.join(DEADLINE_S)
            self.assertFalse(caller.is_alive())
        self.assertGreaterEqual(len(failed), 100)
        return {(code, details) for code, details, _ in failed}, max(seconds for _, _, seconds in failed)

    def test_a_drain_under_load(self):
        failures, longest = self.drain_under_load()
        codes = {code for code, _ in failures}
        self.assertIn(grpc.StatusCode.UNAVAILABLE, codes)
        self.assertLessEqual(codes, {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}, failures)
        self.assertLess(longest, 10)

    def test_a_drain_under_load_with_a_delay(self):
        """No call meets a server that drains: those that fail are HAProxy's own refusals, once it knows."""
        self.server = harness.Server("--drain_timeout=30s", "--drain_delay=5s")
        self.addCleanup(self.server.stop)
        failures, longest = self.drain_under_load()
        ((code, details),) = failures
        self.assertEqual(code, grpc.StatusCode.UNAVAILABLE)
        self.assertIn("503", details)
        self.assertLess(longest, 1)

    def test_a_server_that_is_gone_and_comes_back(self):
        self.start()
        self.health()
        address = self.server.tcp
        self.server.process.kill()
        self.server.process.wait(DEADLINE_S)
        self.check_code(grpc.StatusCode.UNAVAILABLE, self.reduce, np.ones(1))
        self.await_log("Server reduced/first is DOWN")
        self.check_code(grpc.StatusCode.UNAVAILABLE, self.reduce, np.ones(1))
        other = harness.Server(f"--listen={address},unix:{self.files}/socket")
        self.addCleanup(other.stop)
        self.await_log("Server reduced/first is UP")
        self.assertEqual(self.reduce(np.ones(3)), 3)


if __name__ == "__main__":
    unittest.main()

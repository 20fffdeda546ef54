"""TLS, client certificates, tokens and identities: the real binaries, with certificates that openssl makes."""

import hashlib
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

import harness
from harness import DATA, np

try:
    import grpc
except ImportError:
    print("SKIPPED: some of the clients here are grpcio, which isn't there (Debian: python3-grpcio)")
    sys.exit(harness.SKIPPED)

USAGE, CONNECTION, SERVER = 2, 3, 4

if shutil.which("openssl") is None:
    print("SKIPPED: these tests make certificates with openssl, which isn't installed")
    sys.exit(harness.SKIPPED)


class Authority:
    """Makes certificates, in a folder of its own."""

    def __init__(self, folder, name):
        self.folder = pathlib.Path(folder) / name
        self.folder.mkdir()
        self.cert, self.key = self._key("ca")
        self._openssl(
            "req", "-x509", "-new", "-key", self.key, "-subj", f"/CN={name}", "-days", "10", "-out", self.cert,
            "-addext", "basicConstraints=critical,CA:TRUE",
        )

    def _openssl(self, *arguments):
        subprocess.run(
            ["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=harness.DEADLINE_S
        )

    def _key(self, name):
        key = self.folder / f"{name}.key"
        self._openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key)
        return self.folder / f"{name}.crt", key

    def issue(self, name, common_name="localhost", days=10, names="DNS:localhost,IP:127.0.0.1", rsa_bits=None):
        """Certificate and key."""
        cert, key = self._key(name)
        if rsa_bits is not None:
            self._openssl("genrsa", "-out", key, rsa_bits)
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={names}\n")
        self._openssl("req", "-new", "-key", key, "-subj", f"/CN={common_name}", "-out", request)
        # Ended before it began, if days is negative: openssl doesn't mind.
        self._openssl(
            "x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self.key, "-CAcreateserial",
            "-days", days, "-extfile", extensions, "-out", cert,
        )
        return cert, key


class SecurityTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls._made = tempfile.TemporaryDirectory()
        cls.ours = Authority(cls._made.name, "ours")
        cls.theirs = Authority(cls._made.name, "theirs")
        cls.cert, cls.key = cls.ours.issue("server")

    @classmethod
    def tearDownClass(cls):
        cls._made.cleanup()

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def serve(self, *flags):
        server = harness.Server(*map(str, flags))
        self.addCleanup(lambda: self.assertEqual(server.stop(), 0))
        return server

    def serve_tls(self, *flags):
        return self.serve(f"--tls_cert={self.cert}", f"--tls_key={self.key}", *flags)

    def tokens(self, **tokens):
        """A token file for the server; the clients' are beside it, named by identity."""
        lines = ["# who may call", ""]
        for identity, token in tokens.items():
            lines.append(f"{identity} {hashlib.sha256(token.encode()).hexdigest()}  # {len(token)}")
            (self.folder / identity).write_text(token + "\n")
        path = self.folder / "tokens"
        path.write_text("\n".join(lines) + "\n")
        return path

    def reducectl(self, address, *arguments, env=None):
        return subprocess.run(
            harness.command(*arguments),
            input=b"",
            capture_output=True,
            timeout=harness.DEADLINE_S,
            env=harness.environment(address) | (env or {}),
            check=False,
        )

    def works(self, address, *options, env=None):
        run = self.reducectl(address, *options, "reduce", DATA / "co2.npy", "--op", "max", "--nan", "omit", env=env)
        self.assertEqual(run.returncode, 0, run.stderr.decode())
        self.assertIn(b"373.9", run.stdout)

    def fails(self, code, messages, address, *arguments, env=None):
        run = self.reducectl(address, *arguments, env=env)
        error = run.stderr.decode()
        self.assertEqual((run.returncode, run.stdout), (code, b""), error)
        self.assertRegex(error, r"\Areducectl: [^\n]+\n\Z")
        for message in messages:
            self.assertIn(message, error)

    def refuses_to_start(self, messages, *flags):
        run = subprocess.run(
            [os.environ["REDUCED"], *map(str, flags)], capture_output=True, timeout=harness.DEADLINE_S, check=False
        )
        error = run.stderr.decode()
        self.assertEqual(run.returncode, 1, error)
        for message in messages:
            self.assertIn(message, error)

    def await_log(self, server, pattern, count=1):
        deadline = time.monotonic() + harness.DEADLINE_S
        while len(re.findall(pattern, server.log())) < count:
            self.assertLess(time.monotonic(), deadline, server.log())
            time.sleep(0.01)

    # TLS

    def test_tls(self):
        server = self.serve_tls()
        port = server.tcp.rsplit(":", 1)[1]
        ca = ("--tls-ca", self.ours.cert)
        self.works(server.tcp, *ca)
        self.works(f"localhost:{port}", *ca)
        self.works(server.tcp, env={"REDUCED_TLS_CA": str(self.ours.cert)})
        self.works(server.unix)  # plaintext, with and without TLS options
        self.works(server.unix, *ca)
        for arguments in (
            ("--tls-ca", self.theirs.cert),
            ("--tls-ca", "system"),
        ):
            self.fails(CONNECTION, ["TLS", "certificate verify failed"], server.tcp, *arguments, "info")
        self.fails(CONNECTION, ["it may require TLS", "--tls-ca"], server.tcp, "info")
        self.fails(CONNECTION, ["no TLS connection", "wrong version number"], self.serve().tcp, *ca, "info")

        load = self.reducectl(server.tcp, *ca, "loadtest", "--duration", "200ms", "--warmup", "0s", "--via", "session")
        self.assertIn(load.returncode, (0, 8), load.stderr.decode())
        self.assertIn(b"requests/s", load.stdout)

    def test_server_name(self):
        cert, key = self.ours.issue("named", "gpu-7", names="DNS:gpu-7.example")
        server = self.serve(f"--tls_cert={cert}", f"--tls_key={key}")
        ca = ("--tls-ca", self.ours.cert)
        messages = ["no TLS connection with 127.0.0.1:", "its certificate is for another name", "--tls-server-name"]
        self.fails(CONNECTION, messages, server.tcp, *ca, "info")
        self.works(server.tcp, *ca, "--tls-server-name", "gpu-7.example")

    def test_expired(self):
        cert, key = self.ours.issue("expired", days=-1)
        server = self.serve(f"--tls_cert={cert}", f"--tls_key={key}")
        self.assertRegex(server.log(), r"expired\.crt: the certificate expired on \d{4}-.*: clients refuse it")
        self.fails(CONNECTION, ["certificate verify failed"], server.tcp, "--tls-ca", self.ours.cert, "info")

    def test_client_certificates(self):
        server = self.serve_tls(f"--tls_client_ca={self.ours.cert}")
        ca = ("--tls-ca", self.ours.cert)

        def with_cert(pair):
            return (*ca, "--tls-cert", pair[0], "--tls-key", pair[1])

        self.works(server.tcp, *with_cert(self.ours.issue("alice", "alice")))
        for pair in (self.theirs.issue("mallory", "mallory"), self.ours.issue("late", "late", days=-1)):
            self.fails(CONNECTION, ["a client certificate that it trusts"], server.tcp, *with_cert(pair), "info")
        self.fails(CONNECTION, ["a client certificate", "--tls-cert"], server.tcp, *ca, "info")
        self.works(server.unix)

    def test_new_certificates(self):
        cert, key = self.folder / "server.crt", self.folder / "server.key"

        def install(pair):
            for source, target in zip(pair, (cert, key)):
                new = self.folder / "new"
                shutil.copy(source, new)
                new.rename(target)

        install((self.cert, self.key))
        server = self.serve(f"--tls_cert={cert}", f"--tls_key={key}", "--credentials_refresh=20ms")
        credentials = grpc.ssl_channel_credentials(self.ours.cert.read_bytes())
        with grpc.secure_channel(server.tcp, credentials) as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check")
            self.assertEqual(check(b"", timeout=harness.DEADLINE_S), b"\x08\x01")
            install(self.theirs.issue("replaced"))
            self.await_log(server, "new certificates from ")
            self.assertEqual(check(b"", timeout=harness.DEADLINE_S), b"\x08\x01")  # the connection lives
            self.works(server.tcp, "--tls-ca", self.theirs.cert)
            self.fails(CONNECTION, ["certificate verify failed"], server.tcp, "--tls-ca", self.ours.cert, "info")
        # What is wrong changes nothing, and is said once.
        cert.write_text("nonsense")
        self.await_log(server, "--tls_cert: .*server.crt: has no certificate in PEM format; the previous certificates stay")
        cert.unlink()
        self.await_log(server, "--tls_cert: .*server.crt: can't be read: No such file or directory; the previous certificates")
        self.works(server.tcp, "--tls-ca", self.theirs.cert)
        self.assertEqual(server.log().count("has no certificate"), 1)
        install(self.theirs.issue("weak", rsa_bits=1024))
        self.await_log(server, "--tls_cert: .*server.crt: is rejected by OpenSSL: ee key too small; the previous certificates")
        self.works(server.tcp, "--tls-ca", self.theirs.cert)
        install((self.cert, self.key))
        self.await_log(server, "new certificates from ", 2)
        self.works(server.tcp, "--tls-ca", self.ours.cert)

    def test_bad_files(self):
        other = self.ours.issue("other")[1]
        nothing, text = self.folder / "nothing", self.folder / "text"
        text.write_text("no PEM\n")
        cut = self.folder / "cut"
        cut.write_text(self.cert.read_text()[:300])
        encrypted = self.folder / "encrypted"
        subprocess.run(
            ["openssl", "pkcs8", "-topk8", "-in", self.key, "-passout", "pass:x", "-out", encrypted],
            check=True, capture_output=True, timeout=harness.DEADLINE_S,
        )
        weak, weak_key = self.ours.issue("weak", rsa_bits=1024)
        chain = self.folder / "chain"
        chain.write_text(self.cert.read_text() + weak.read_text())
        for cert, key, client_ca, messages in (
            (weak, weak_key, "", ["--tls_cert", f"{weak}: is rejected by OpenSSL: ee key too small"]),
            (chain, self.key, "", ["--tls_cert", f"{chain}: is rejected by OpenSSL: ca key too small"]),
            (self.cert, "", "", ["--tls_cert requires --tls_key"]),
            ("", self.key, "", ["--tls_key requires --tls_cert"]),
            ("", "", self.ours.cert, ["--tls_client_ca requires --tls_cert and --tls_key"]),
            (nothing, self.key, "", ["--tls_cert", f"{nothing}: can't be read: No such file or directory"]),
            (self.folder, self.key, "", ["--tls_cert", "can't be read: Is a directory"]),
            (text, self.key, "", ["--tls_cert", f"{text}: has no certificate in PEM format"]),
            (cut, self.key, "", ["--tls_cert", f"{cut}: has a certificate that can't be read"]),
            (self.cert, nothing, "", ["--tls_key", f"{nothing}: can't be read"]),
            (self.cert, self.cert, "", ["--tls_key", "has no private key in PEM format"]),
            (self.cert, encrypted, "", ["--tls_key", "has no private key in PEM format, unencrypted"]),
            (self.cert, other, "", ["--tls_key", f"{other}: is not the key of the first certificate in {self.cert}"]),
            (self.cert, self.key, text, ["--tls_client_ca", f"{text}: has no certificate in PEM format"]),
        ):
            with self.subTest(messages=messages):
                flags = (
                    "--listen=127.0.0.1:0", f"--tls_cert={cert}", f"--tls_key={key}", f"--tls_client_ca={client_ca}",
                )
                self.refuses_to_start(messages, *flags)
                self.refuses_to_start(messages, "--check_config", *flags)

    def test_plaintext_beyond_this_machine(self):
        for address in ("0.0.0.0:0", "[::]:0", f"{socket.gethostname()}:0"):
            with self.subTest(address=address):
                try:
                    host = address.rsplit(":", 1)[0].strip("[]")
                    if all(i[4][0].startswith("127.") or i[4][0] == "::1" for i in socket.getaddrinfo(host, 0)):
                        continue  # a name of this machine only
                except OSError:
                    continue
                self.refuses_to_start([f"--listen: got {address}", "--tls_cert", "--allow_plaintext"], f"--listen={address}")
        for i, flags in enumerate((("--allow_plaintext",), (f"--tls_cert={self.cert}", f"--tls_key={self.key}"))):
            server = self.serve(*flags, f"--listen=0.0.0.0:0,unix:{self.folder}/socket{i}")
            self.assertRegex(server.tcp, r"\A0\.0\.0\.0:\d+\Z")
        self.serve(f"--listen=localhost:0,unix:{self.folder}/other")

    def test_socket_mode(self):
        for flags, mode in (((), None), (("--unix_socket_mode=0600",), 0o600), (("--unix_socket_mode=666",), 0o666)):
            server = self.serve(*flags)
            path = pathlib.Path(server.unix.removeprefix("unix:"))
            for each in (path, path.with_name(path.name + ".regions")):
                umask = os.umask(0o22)
                os.umask(umask)
                self.assertEqual(each.stat().st_mode & 0o777, 0o777 & ~umask if mode is None else mode, each)
            self.works(server.unix)

    # Tokens

    def test_tokens(self):
        path = self.tokens(alice="open sesame".replace(" ", "-"), bob="b" * 64)
        server = self.serve(f"--token_file={path}", "--log_level=debug")
        for address in (server.tcp, server.unix):
            self.works(address, "--token-file", self.folder / "alice")
            self.works(address, env={"REDUCED_TOKEN_FILE": str(self.folder / "bob")})
            self.fails(SERVER, ["requires a token", "UNAUTHENTICATED"], address, "info")
            (self.folder / "bad").write_text("open-sesame!")
            self.fails(
                SERVER, ["is unknown to this server", "UNAUTHENTICATED"],
                address, "info", "--token-file", self.folder / "bad",
            )
            load = self.reducectl(
                address, "loadtest", "--duration", "200ms", "--warmup", "0s", "--via", "session",
                "--token-file", self.folder / "alice",
            )
            self.assertIn(load.returncode, (0, 8), load.stderr.decode())
        self.assertIn(" caller=alice peer=", server.log())
        self.assertIn(" caller=bob peer=", server.log())
        self.assertNotIn("sesame", server.log())

    def test_who_runs_the_server_sees_the_arrays_of_all(self):
        server = self.serve(f"--token_file={self.tokens(alice='a', bob='b')}", "--metrics_listen=127.0.0.1:0")
        np.save(self.folder / "kept.npy", np.ones(9, np.int16))
        for who in ("alice", "bob"):
            put = self.reducectl(
                server.tcp, "arrays", "put", self.folder / "kept.npy", "--token-file", self.folder / who
            )
            self.assertEqual(put.returncode, 0, put.stderr.decode())
        with urllib.request.urlopen(server.http() + "status.json", timeout=harness.DEADLINE_S) as answer:
            status = json.load(answer)
        self.assertEqual([array["owner"] for array in status["arrays"]], ["alice", "bob"])

    def test_tokens_over_tls(self):
        path = self.tokens(alice="secret")
        server = self.serve_tls(f"--token_file={path}")
        ca = ("--tls-ca", self.ours.cert)
        self.works(server.tcp, *ca, "--token-file", self.folder / "alice")
        self.fails(SERVER, ["requires a token", "UNAUTHENTICATED"], server.tcp, *ca, "info")
        self.fails(SERVER, ["requires a token", "UNAUTHENTICATED"], server.unix, "info")

    def test_where_a_token_is_sent(self):
        (self.folder / "token").write_text("secret")
        for address in ("192.0.2.1:50051", "example.invalid:50051", "[2001:db8::1]:50051"):
            self.fails(USAGE, [f"token_file: got a token for {address} without TLS"], address, "info", "--token-file",
                       self.folder / "token")
        for text, message in (("", "has no token"), ("two words", "has no token"), ("x" * 5000, "has no token")):
            (self.folder / "token").write_text(text)
            self.fails(USAGE, [message, "token_file"], "127.0.0.1:1", "info", "--token-file", self.folder / "token")
        self.fails(USAGE, ["can't be read", "No such file"], "127.0.0.1:1", "info", "--token-file", "/nowhere")
        self.fails(USAGE, ["can't be read", "Is a directory"], "127.0.0.1:1", "info", "--token-file", self.folder)
        for arguments, message in (
            (("--tls-ca", "/nowhere"), 'tls_ca "/nowhere" can\'t be read'),
            (("--tls-ca", self.key), "has no certificate"),
            (("--tls-ca", self.ours.cert, "--tls-cert", self.cert), "tls_cert requires tls_key"),
            (("--tls-ca", self.ours.cert, "--tls-key", self.key), "tls_key requires tls_cert"),
            (("--tls-cert", self.cert, "--tls-key", self.key), "tls_cert requires tls_ca"),
            (("--tls-server-name", "x"), "tls_server_name requires tls_ca"),
        ):
            self.fails(USAGE, [message], "127.0.0.1:1", "info", *arguments)

    def test_refused_calls_are_counted(self):
        def refused(server):
            with urllib.request.urlopen(server.http() + "metrics", timeout=harness.DEADLINE_S) as answer:
                return re.search(r"^reduced_unauthenticated_total (\S+)$", answer.read().decode(), re.MULTILINE)[1]

        path = self.tokens(alice="secret")
        server = self.serve(f"--token_file={path}", "--metrics_listen=127.0.0.1:0", "--credentials_refresh=20ms")
        self.assertEqual(refused(server), "0")
        with grpc.insecure_channel(server.tcp) as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check")
            for metadata in ((), (("authorization", "Bearer guessed"),)):
                with self.assertRaises(grpc.RpcError) as raised:
                    check(b"", timeout=harness.DEADLINE_S, metadata=metadata)
                self.assertEqual(raised.exception.code(), grpc.StatusCode.UNAUTHENTICATED)
            check(b"", timeout=harness.DEADLINE_S, metadata=(("authorization", "Bearer secret"),))
        self.await_log(server, "without a valid token were refused")
        self.assertEqual(refused(server), "2")  # the log doesn't count from 0 again
        with urllib.request.urlopen(server.http() + "status.json", timeout=harness.DEADLINE_S) as answer:
            errors = json.load(answer)["errors"]
        self.assertEqual([(e["rpc"], e["status"], e["count"]) for e in errors],
                         [("/grpc.health.v1.Health/Check", "UNAUTHENTICATED", 1)] * 2)  # fmt: skip
        self.assertIn("unknown", errors[0]["message"])
        self.assertIn("requires a token", errors[1]["message"])
        self.assertEqual(refused(self.serve("--metrics_listen=127.0.0.1:0")), "0")

    def test_new_tokens(self):
        path = self.tokens(alice="first")
        server = self.serve(f"--token_file={path}", "--credentials_refresh=20ms")
        first = self.folder / "first"
        (self.folder / "alice").rename(first)
        self.works(server.tcp, "--token-file", first)
        self.tokens(alice="second", bob="third")
        self.await_log(server, "2 new tokens from .*tokens")
        for name in ("alice", "bob"):
            self.works(server.tcp, "--token-file", self.folder / name)
        self.fails(SERVER, ["UNAUTHENTICATED"], server.tcp, "info", "--token-file", first)
        path.write_text("alice\n")
        self.await_log(server, "--token_file: .*tokens:1: .*; the previous tokens stay in use")
        path.unlink()
        self.await_log(server, "--token_file: .*tokens: can't be read: No such file or directory; the previous tokens")
        self.works(server.tcp, "--token-file", self.folder / "bob")

    def test_malformed_tokens(self):
        digest = hashlib.sha256(b"x").hexdigest()
        path = self.folder / "tokens"
        for text, message in (
            ("", "has no tokens"),
            ("# nobody\n\n", "has no tokens"),
            (f"alice {digest}\nhunter2\n", ":2: got 1 words; allowed: an identity and the SHA-256 of its token"),
            (f"alice {digest} bob\n", ":1: got 3 words; allowed"),
            ("\nalice hunter2\n", ":2: the second word is not 64 hexadecimal digits"),
            (f"alice {digest}0\n", ":1: the second word is not 64 hexadecimal digits"),
            (f"{'a' * 65} {digest}\n", ":1: the identity is not 1 to 64 printable ASCII characters"),
            (f"\x07 {digest}\n", ":1: the identity is not"),
            (f"alice {digest}\nbob {digest}\n", ":2: another identity has the same token"),
        ):
            with self.subTest(message=message):
                path.write_text(text)
                self.refuses_to_start(["--token_file", str(path), message], "--listen=127.0.0.1:0",
                                      f"--token_file={path}")
        run = subprocess.run(
            [os.environ["REDUCED"], "--listen=127.0.0.1:0", f"--token_file={path}"], capture_output=True,
            timeout=harness.DEADLINE_S, check=False,
        )
        self.assertNotIn(digest.encode(), run.stderr)
        self.refuses_to_start(["--token_file: /nowhere: can't be read"], "--token_file=/nowhere")
        for flag in ("--open_health", "--max_identity_requests=1", "--max_identity_array_bytes=1"):
            self.refuses_to_start([flag.split("=")[0] + " requires --token_file"], flag)

    def test_open_health(self):
        path = self.tokens(alice="secret")
        for flags, open_to_all in (((), False), (("--open_health",), True)):
            server = self.serve(f"--token_file={path}", *flags)
            with grpc.insecure_channel(server.tcp) as channel:
                check = channel.unary_unary("/grpc.health.v1.Health/Check")
                if open_to_all:
                    self.assertEqual(check(b"", timeout=harness.DEADLINE_S), b"\x08\x01")
                else:
                    with self.assertRaises(grpc.RpcError) as refused:
                        check(b"", timeout=harness.DEADLINE_S)
                    self.assertEqual(refused.exception.code(), grpc.StatusCode.UNAUTHENTICATED)
            self.fails(SERVER, ["UNAUTHENTICATED"], server.tcp, "info")

    # Identities

    def put(self, address, *options):
        run = self.reducectl(address, *options, "arrays", "put", DATA / "co2.npy")
        self.assertEqual(run.returncode, 0, run.stderr.decode())
        return run.stdout.decode().strip()

    def check_arrays(self, address, alice, bob):
        """Two callers, by the options that each has."""
        array_id = self.put(address, *alice)
        for caller, ids in ((alice, [array_id]), (bob, [])):
            listed = self.reducectl(address, *caller, "--json", "arrays", "list").stdout.decode()
            self.assertEqual(re.findall(r'"id": "(\w+)"', listed), ids)
        self.assertIn('"owner": "alice"', self.reducectl(address, *alice, "--json", "arrays", "list").stdout.decode())
        denied = ["belongs to another identity", "PERMISSION_DENIED"]
        self.fails(SERVER, denied, address, *bob, "reduce", "--array", array_id)
        self.fails(SERVER, denied, address, *bob, "arrays", "delete", array_id)
        pretended = ["owner: got 'alice'; allowed: your identity, 'bob'", "PERMISSION_DENIED"]
        self.fails(SERVER, pretended, address, *bob, "arrays", "delete", array_id, "--owner", "alice")
        self.fails(SERVER, pretended, address, *bob, "arrays", "list", "--owner", "alice")
        self.fails(SERVER, pretended, address, *bob, "arrays", "put", DATA / "co2.npy", "--owner", "alice")
        run = self.reducectl(address, *alice, "reduce", "--array", array_id, "--op", "nan_count")
        self.assertIn(b"59", run.stdout, run.stderr)
        run = self.reducectl(address, *alice, "arrays", "delete", array_id)
        self.assertEqual(run.returncode, 0, run.stderr)

    def test_arrays_of_tokens(self):
        server = self.serve(f"--token_file={self.tokens(alice='a', bob='b')}")
        self.check_arrays(
            server.tcp, ("--token-file", self.folder / "alice"), ("--token-file", self.folder / "bob")
        )

    def test_arrays_of_certificates(self):
        server = self.serve_tls(f"--tls_client_ca={self.ours.cert}")
        alice, bob = (
            ("--tls-ca", self.ours.cert, "--tls-cert", pair[0], "--tls-key", pair[1])
            for pair in (self.ours.issue("a", "alice"), self.ours.issue("b", "bob"))
        )
        self.check_arrays(server.tcp, alice, bob)
        # Nobody in particular, at the Unix socket.
        array_id = self.put(server.unix)
        self.fails(SERVER, ["belongs to another identity"], server.tcp, *alice, "arrays", "delete", array_id)
        self.assertEqual(self.reducectl(server.unix, "arrays", "delete", array_id).returncode, 0)

    def test_a_token_goes_before_a_certificate(self):
        path = self.tokens(alice="a", bob="b")
        server = self.serve_tls(f"--tls_client_ca={self.ours.cert}", f"--token_file={path}")
        cert, key = self.ours.issue("c", "carol")
        options = ("--tls-ca", self.ours.cert, "--tls-cert", cert, "--tls-key", key)
        self.fails(SERVER, ["requires a token"], server.tcp, *options, "info")
        self.check_arrays(
            server.tcp, (*options, "--token-file", self.folder / "alice"), (*options, "--token-file", self.folder / "bob")
        )

    def test_array_bytes(self):
        path = self.tokens(alice="a", bob="b")
        server = self.serve(f"--token_file={path}", "--max_identity_array_bytes=10000")  # co2.npy has 9136
        alice, bob = (("--token-file", self.folder / name) for name in ("alice", "bob"))
        array_id = self.put(server.tcp, *alice)
        full = ["resident arrays of identity 'alice' take 9136 bytes, and this array 9136; allowed: 10000", "--max_identity_array_bytes", "RESOURCE_EXHAUSTED"]
        self.fails(SERVER, full, server.tcp, *alice, "arrays", "put", DATA / "co2.npy")
        self.put(server.tcp, *bob)
        self.assertEqual(self.reducectl(server.tcp, *alice, "arrays", "delete", array_id).returncode, 0)
        self.put(server.tcp, *alice)

    def test_requests_at_once(self):
        path = self.tokens(alice="a", bob="b")
        server = self.serve(f"--token_file={path}", "--max_identity_requests=1")
        array = self.folder / "array.npy"
        np.save(array, np.zeros(1 << 20, dtype="f4"))
        cut = harness.Cut(server.tcp, 1 << 20)
        self.addCleanup(cut.close)
        alice = ("--token-file", self.folder / "alice")
        slow = subprocess.Popen(
            harness.command(*alice, "--timeout", "60s", "reduce", array, "--via", "stream", "--op", "count_nonzero"),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=harness.environment(cut.address),
        )
        self.addCleanup(slow.communicate)
        self.addCleanup(slow.kill)
        self.assertTrue(cut.reached.wait(harness.DEADLINE_S))
        full = ["identity 'alice' has 1 requests in progress", "--max_identity_requests", "try again in",
                "RESOURCE_EXHAUSTED"]  # fmt: skip
        self.fails(SERVER, full, server.tcp, *alice, "reduce", DATA / "co2.npy")
        self.works(server.tcp, "--token-file", self.folder / "bob")
        cut.go_on()
        out, error = slow.communicate(timeout=harness.DEADLINE_S)
        self.assertEqual(slow.returncode, 0, error)
        self.assertIn(b"count_nonzero  0", out)
        for _ in range(20):  # as soon as one is answered the next may come
            self.works(server.tcp, *alice)
        np.save(array, np.ones(1 << 22, dtype="f4"))
        for _ in range(3):  # over however many connections an array comes
            big = self.reducectl(
                server.tcp, *alice, "reduce", array, "--op", "sum", "--via", "stream", "--connections", "4"
            )
            self.assertEqual(big.returncode, 0, big.stderr.decode())
            self.assertIn(b"4194304", big.stdout)
        load = self.reducectl(server.tcp, *alice, "loadtest", "--concurrency", "1", "--duration", "300ms")
        self.assertIn(load.returncode, (0, 8), load.stdout.decode() + load.stderr.decode())


if __name__ == "__main__":
    unittest.main()

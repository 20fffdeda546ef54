"""Tokens and identities: the real binaries."""

import concurrent.futures
import contextlib
import hashlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
import unittest
import urllib.request

import harness
from connections_test import PREFACE, SETTINGS, connect
from fault_proxy import FaultProxy
from harness import DATA, np
from http2_test import END_HEADERS, HEADERS, INFO, frame
from secured import SecuredTest

try:
    import grpc
except ImportError:
    print("SKIPPED: some of the clients here are grpcio, which isn't there (Debian: python3-grpcio)")
    sys.exit(harness.SKIPPED)

USAGE, SERVER = 2, 4


class TokensTest(SecuredTest):
    def test_tokens(self):
        path = self.tokens(alice="open sesame".replace(" ", "-"), bob="b" * 64)
        server = self.serve(f"--token_file={path}", "--log_level=debug")
        for address in (server.tcp, server.unix):
            self.works(address, "--token-file", self.folder / "alice")
            self.works(address, env={"REDUCED_TOKEN_FILE": str(self.folder / "bob")})
            self.fails(SERVER, ["requires a token", "UNAUTHENTICATED", "see --token-file"], address, "info")
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
        server.await_log(" caller=alice peer=")
        server.await_log(" caller=bob peer=")
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
        self.assertEqual(refused(server), "2")
        with urllib.request.urlopen(server.http() + "status.json", timeout=harness.DEADLINE_S) as answer:
            errors = json.load(answer)["errors"]
        self.assertEqual([(e["rpc"], e["status"], e["count"]) for e in errors],
                         [("/grpc.health.v1.Health/Check", "UNAUTHENTICATED", 1)] * 2)  # fmt: skip
        self.assertIn("unknown", errors[0]["message"])
        self.assertIn("requires a token", errors[1]["message"])
        self.assertEqual({e["peer"] for e in errors}, {"127.0.0.1"})
        self.assertEqual(refused(self.serve("--metrics_listen=127.0.0.1:0")), "0")

    def test_the_peers_of_refused_and_failed_calls(self):
        """In the log, on the status page and in counters; over TCP, TLS and a Unix socket."""
        path = self.tokens(alice="secret")
        user = f"uid {os.getuid()}"
        for server, ca in ((self.serve(f"--token_file={path}"), ()),
                           (self.serve_tls(f"--token_file={path}"), ("--tls-ca", self.ours.cert))):  # fmt: skip
            peers = {server.tcp: "127.0.0.1", server.unix: user}
            for address, peer in peers.items():
                options = ca if address == server.tcp else ()
                for _ in range(2):
                    self.fails(SERVER, ["requires a token"], address, *options, "info")
                server.await_log(rf"refused a call of {peer}: this server requires a token: .*; method /reduced.v1.Reduction/")
                run = self.reducectl(address, *options, "--token-file", self.folder / "alice", "reduce", DATA / "co2.npy", "--op", "sum",
                                     "--pipeline", "none-such")  # fmt: skip
                self.assertEqual(run.returncode, SERVER, run.stderr.decode())
            with urllib.request.urlopen(server.http() + "status.json", timeout=harness.DEADLINE_S) as answer:
                status = json.load(answer)
            self.assertEqual({(e["status"], e["peer"]) for e in status["errors"]},
                             {(code, peer) for code in ("UNAUTHENTICATED", "INVALID_ARGUMENT") for peer in peers.values()})  # fmt: skip
            refused = server.metric("reduced_caller_unauthenticated_total")
            for peer in peers.values():
                self.assertGreaterEqual(refused[f'{{kind="peer",caller="{peer}"}}'], 2)
                self.assertIn(peer, {c["caller"] for c in status["callers"] if c["unauthenticated"] >= 2})
            self.assertEqual(server.metric("reduced_caller_failures_total")['{kind="identity",caller="alice"}'], 2)

    def test_refusals_are_of_the_peers_that_they_came_from(self):
        """Also when many connect at once: from the n-th of eight addresses come 4 connections with n calls each."""
        path = self.tokens(alice="secret")
        peers = {f"127.0.0.{n + 1}": n for n in range(1, 9)}
        context = ssl.create_default_context(cafile=self.ours.cert)
        context.set_alpn_protocols(["h2"])

        def call(address, peer, secured):
            connection = connect(address, peer)
            if secured:
                connection = context.wrap_socket(connection, server_hostname="localhost")
            calls = (frame(HEADERS, END_HEADERS, 2 * i + 1, INFO) for i in range(peers[peer]))
            connection.sendall(PREFACE + SETTINGS + b"".join(calls))
            return connection

        for secured, serve in ((False, self.serve), (True, self.serve_tls)):
            server = serve(f"--token_file={path}")
            with concurrent.futures.ThreadPoolExecutor(16) as pool, contextlib.ExitStack() as open_until_then:
                for connection in pool.map(lambda peer: call(server.tcp, peer, secured), [*peers] * 4):
                    open_until_then.enter_context(connection)
                deadline = time.monotonic() + harness.DEADLINE_S
                while server.metric("reduced_unauthenticated_total")[""] < 4 * sum(peers.values()):
                    self.assertLess(time.monotonic(), deadline)
                    time.sleep(0.01)
            refused = server.metric("reduced_caller_unauthenticated_total")
            self.assertEqual(refused, {f'{{kind="peer",caller="{peer}"}}': 4 * n for peer, n in peers.items()}
                             | {'{kind="other",caller="other"}': 0})  # fmt: skip

    def test_new_tokens(self):
        path = self.tokens(alice="first")
        server = self.serve(f"--token_file={path}", "--credentials_refresh=20ms")
        first = self.folder / "first"
        (self.folder / "alice").rename(first)
        self.works(server.tcp, "--token-file", first)
        self.tokens(alice="second", bob="third")
        server.await_log("2 new tokens from .*tokens")
        for name in ("alice", "bob"):
            self.works(server.tcp, "--token-file", self.folder / name)
        self.fails(SERVER, ["UNAUTHENTICATED"], server.tcp, "info", "--token-file", first)
        path.write_text("alice\n")
        server.await_log("--token_file: .*tokens:1: .*; the previous tokens stay in use")
        path.unlink()
        server.await_log("--token_file: .*tokens: can't be read: No such file or directory; the previous tokens")
        self.works(server.tcp, "--token-file", self.folder / "bob")
        self.assertEqual(server.metric("reduced_reload_failed"), {'{files="tokens"}': 1})
        self.assertEqual(server.metric("reduced_certificate_expiry_time_seconds"), {})
        self.tokens(alice="second", bob="third")
        server.await_log("the tokens can be read again, and are the ones in use")
        self.assertEqual(server.metric("reduced_reload_failed"), {'{files="tokens"}': 0})

    def test_an_emptied_file_withdraws_its_tokens(self):
        for text in ("", "# nobody\n\n"):
            with self.subTest(text=text):
                path = self.tokens(alice="first")
                server = self.serve(f"--token_file={path}", "--credentials_refresh=20ms")
                self.works(server.tcp, "--token-file", self.folder / "alice")
                path.write_text(text)
                server.await_log("--token_file: .*tokens has no tokens any more: every call is refused")
                self.fails(SERVER, ["UNAUTHENTICATED"], server.tcp, "info", "--token-file", self.folder / "alice")
                self.assertEqual(server.metric("reduced_reload_failed"), {'{files="tokens"}': 0})
                self.tokens(alice="first")
                server.await_log("1 new tokens from .*tokens")
                self.works(server.tcp, "--token-file", self.folder / "alice")

    def test_a_file_that_cannot_be_read_withdraws_nothing(self):
        path = self.tokens(alice="first")
        server = self.serve(f"--token_file={path}", "--credentials_refresh=20ms")
        path.unlink()
        path.mkdir()
        server.await_log("--token_file: .*tokens: can't be read: Is a directory; the previous tokens stay in use")
        self.works(server.tcp, "--token-file", self.folder / "alice")
        self.assertEqual(server.metric("reduced_reload_failed"), {'{files="tokens"}': 1})

    def test_permissions_that_are_too_wide(self):
        path = self.tokens(alice="first")
        path.chmod(0o646)
        self.serve(f"--token_file={path}").await_log(r"tokens: every user of this machine can write it \(mode 0646\): chmod o-w it")
        path.chmod(0o644)
        self.assertNotIn("every user", self.serve(f"--token_file={path}").log())

    def test_the_recipes_of_the_readme(self):
        readme = (harness.DATA.parent.parent / "server/README.md").read_text()
        recipes = [block for block in re.findall(r"```sh\n(.*?)```", readme, re.DOTALL) if "openssl " in block]
        self.assertEqual(len(recipes), 2)
        commands = "\n".join(recipes).replace("host.example.com", "localhost")
        commands = "".join(line for line in commands.splitlines(keepends=True) if not line.startswith("reduce"))
        subprocess.run(["sh", "-euc", f"umask 022; {commands}"], cwd=self.folder, check=True, capture_output=True,
                       timeout=harness.DEADLINE_S)  # fmt: skip
        self.assertEqual({file.name: oct(file.stat().st_mode & 0o777) for file in self.folder.iterdir()},
                         {name: "0o600" for name in ("ca.key", "ca.crt", "ca.srl", "server.key", "server.csr", "server.crt",
                                                     "alice.token", "tokens")})  # fmt: skip
        files = {name: self.folder / name for name in ("server.crt", "server.key", "tokens", "ca.crt", "alice.token")}
        server = self.serve(f"--tls_cert={files['server.crt']}", f"--tls_key={files['server.key']}", f"--token_file={files['tokens']}")
        address = server.tcp.replace("127.0.0.1", "localhost")
        self.works(address, "--tls-ca", files["ca.crt"], "--token-file", files["alice.token"])

    def test_sighup_reloads_tokens(self):
        path = self.tokens(alice="first")
        server = self.serve(f"--token_file={path}", "--credentials_refresh=24h")
        (self.folder / "alice").rename(self.folder / "first")
        self.tokens(alice="second")
        server.process.send_signal(signal.SIGHUP)
        server.await_log("1 new tokens from .*tokens")
        self.works(server.tcp, "--token-file", self.folder / "alice")
        server.process.send_signal(signal.SIGHUP)
        server.await_log("read again, as asked: nothing has changed")
        self.fails(SERVER, ["UNAUTHENTICATED"], server.tcp, "info", "--token-file", self.folder / "first")

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
        self.refuses_to_start(["--open_health requires --token_file"], "--open_health")

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
        # An anonymous caller, at the Unix socket.
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
        full = ["identity 'alice' has 9136 bytes of resident arrays and asks for 9136 more; allowed: 10000", "--max_identity_array_bytes", "RESOURCE_EXHAUSTED"]
        self.fails(SERVER, full, server.tcp, *alice, "arrays", "put", DATA / "co2.npy")
        self.put(server.tcp, *bob)
        self.assertEqual(self.reducectl(server.tcp, *alice, "arrays", "delete", array_id).returncode, 0)
        self.put(server.tcp, *alice)

    def test_requests_at_once(self):
        path = self.tokens(alice="a", bob="b")
        server = self.serve(f"--token_file={path}", "--max_identity_requests=1")
        array = self.folder / "array.npy"
        np.save(array, np.zeros(1 << 20, dtype="f4"))
        cut = FaultProxy(server.tcp, 1 << 20)
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

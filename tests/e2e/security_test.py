"""TLS, client certificates and who may listen where: the real binaries."""

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import unittest

import harness
from secured import SecuredTest

try:
    import grpc
except ImportError:
    print("SKIPPED: some of the clients here are grpcio, which isn't there (Debian: python3-grpcio)")
    sys.exit(harness.SKIPPED)

CONNECTION = 3


class SecurityTest(SecuredTest):
    def test_a_silent_connection_to_tls_ends(self):
        server = self.serve_tls("--handshake_timeout=300ms")
        host, port = server.tcp.rsplit(":", 1)
        with socket.create_connection((host, int(port)), harness.DEADLINE_S) as silent:
            self.assertEqual(silent.recv(1), b"")
        self.works(server.tcp, "--tls-ca", self.ours.cert)

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
        self.fails(CONNECTION, ["speaks no TLS", "leave out --tls-ca"], self.serve().tcp, *ca, "info")

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
        server.await_log(r"expired\.crt: the certificate expired on \d{4}-.*: clients refuse it")
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

        def expiry():
            end = self.ours.expiry(cert)
            self.assertEqual(server.metric("reduced_certificate_expiry_time_seconds"), {"": end})

        install((self.cert, self.key))
        server = self.serve(f"--tls_cert={cert}", f"--tls_key={key}", "--credentials_refresh=20ms")
        expiry()
        self.assertEqual(server.metric("reduced_reload_failed"), {'{files="certificates"}': 0})
        credentials = grpc.ssl_channel_credentials(self.ours.cert.read_bytes())
        with grpc.secure_channel(server.tcp, credentials) as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check")
            self.assertEqual(check(b"", timeout=harness.DEADLINE_S), b"\x08\x01")
            install(self.theirs.issue("replaced"))
            server.await_log(r"new certificates from .*server\.crt, which expire on \d{4}-.*: new connections use them")
            expiry()
            self.assertEqual(check(b"", timeout=harness.DEADLINE_S), b"\x08\x01")  # the connection lives
            self.works(server.tcp, "--tls-ca", self.theirs.cert)
            self.fails(CONNECTION, ["certificate verify failed"], server.tcp, "--tls-ca", self.ours.cert, "info")
        # What is wrong changes nothing, and is said once.
        cert.write_text("nonsense")
        server.await_log("--tls_cert: .*server.crt: has no certificate in PEM format; the previous certificates stay")
        self.assertEqual(server.metric("reduced_reload_failed"), {'{files="certificates"}': 1})
        cert.unlink()
        server.await_log("--tls_cert: .*server.crt: can't be read: No such file or directory; the previous certificates")
        self.works(server.tcp, "--tls-ca", self.theirs.cert)
        self.assertEqual(server.log().count("has no certificate"), 1)
        install(self.theirs.issue("weak", rsa_bits=1024))
        server.await_log("--tls_cert: .*server.crt: is rejected by OpenSSL: ee key too small; the previous certificates")
        self.works(server.tcp, "--tls-ca", self.theirs.cert)
        install((self.cert, self.key))
        server.await_log("new certificates from ", 2)
        self.assertEqual(server.metric("reduced_reload_failed"), {'{files="certificates"}': 0})
        self.works(server.tcp, "--tls-ca", self.ours.cert)

    def test_certificates_that_come_back(self):
        cert, gone = self.folder / "server.crt", self.folder / "gone"
        shutil.copy(self.cert, cert)
        server = self.serve(f"--tls_cert={cert}", f"--tls_key={self.key}", "--credentials_refresh=20ms")
        cert.rename(gone)
        server.await_log("can't be read: No such file or directory; the previous certificates stay in use")
        gone.rename(cert)
        server.await_log("the certificates can be read again, and are the ones in use")

    def test_an_emptied_authority_withdraws_nothing(self):
        authority = self.folder / "clients.crt"
        shutil.copy(self.ours.cert, authority)
        server = self.serve_tls(f"--tls_client_ca={authority}", "--credentials_refresh=20ms")
        authority.write_text("")
        server.await_log("--tls_client_ca: .*clients.crt: has no certificate in PEM format; the previous certificates")
        alice = self.ours.issue("alice", "alice")
        self.works(server.tcp, "--tls-ca", self.ours.cert, "--tls-cert", alice[0], "--tls-key", alice[1])
        shutil.copy(self.theirs.cert, authority)
        server.await_log("new certificates from ")
        self.fails(CONNECTION, ["a client certificate that it trusts"], server.tcp, "--tls-ca", self.ours.cert,
                   "--tls-cert", alice[0], "--tls-key", alice[1], "info")

    def test_a_key_that_everybody_can_read(self):
        key = self.folder / "server.key"
        shutil.copy(self.key, key)
        for mode, said in ((0o600, 0), (0o640, 0), (0o644, 1), (0o602, 1)):
            with self.subTest(mode=mode):
                key.chmod(mode)
                server = self.serve(f"--tls_cert={self.cert}", f"--tls_key={key}")
                self.assertEqual(server.log().count("server.key: every user of this machine can "), said)

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


if __name__ == "__main__":
    unittest.main()

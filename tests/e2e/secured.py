"""Servers with TLS and tokens: certificates that openssl makes, token files, and reducectl as their client."""

import hashlib
import os
import pathlib
import shutil
import ssl
import subprocess
import sys
import tempfile
import unittest

import harness
from harness import DATA

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
        return subprocess.run(
            ["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=harness.DEADLINE_S
        ).stdout.decode()

    def expiry(self, cert):
        """In seconds since 1970."""
        end = self._openssl("x509", "-in", cert, "-noout", "-enddate").strip().removeprefix("notAfter=")
        return ssl.cert_time_to_seconds(end)

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


class SecuredTest(unittest.TestCase):
    """Servers with certificates and tokens, and their clients. Each class has its own authorities."""

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

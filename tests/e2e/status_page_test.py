"""The status page, in a browser: what it shows, and that a client's text is text and nothing else."""

import html
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request

import harness
from harness import np

HOSTILE = "<img src=x onerror=alert(1)>"


class FiguresTest(harness.ServedTest):
    """What the page asks the server for."""

    def status(self):
        with urllib.request.urlopen(self.server.http() + "status.json", timeout=harness.DEADLINE_S) as answer:
            self.assertEqual(answer.headers["Content-Type"], "application/json")
            return json.load(answer)

    def test_what_is_kept_and_what_went_wrong(self):
        path = self.save(np.zeros((5, 7), np.int16))
        (kept,) = self.answers("arrays", "put", path, "--owner", HOSTILE)
        self.check_failure(4, ["no_such"], "reduce", path, "--op", "sum", "--pipeline", "no_such")
        status = self.status()
        (array,) = status["arrays"]
        self.assertEqual((array["owner"], array["dtype"], array["shape"], array["bytes"]), (HOSTILE, "i16", [5, 7], 70))
        self.assertNotIn(kept["id"], json.dumps(status), "who knows the id can use the array")
        self.assertTrue(kept["id"].startswith(array["id"].rstrip(".")))
        self.assertEqual(status["errors"][0]["status"], "INVALID_ARGUMENT")
        self.assertIn("no_such", status["errors"][0]["message"])
        self.assertEqual(status["errors"][0]["peer"], f"uid {os.getuid()}")
        self.assertEqual(status["errors_total"], 1)
        self.assertIs(status["serving"], True)
        (caller,) = status["callers"]
        self.assertEqual((caller["kind"], caller["caller"], caller["failures"]), ("peer", f"uid {os.getuid()}", 1))
        self.assertEqual(status["devices"][0]["name"], "cpu")
        self.assertIn(["metrics_listen", "127.0.0.1:0"], status["flags"])

    def test_the_answer_names_what_the_page_may_do(self):
        nonces = set()
        for _ in range(2):
            with urllib.request.urlopen(self.server.http(), timeout=harness.DEADLINE_S) as answer:
                policy = answer.headers["Content-Security-Policy"]
                page = answer.read().decode()
            self.assertTrue(policy.startswith("default-src 'none';"), policy)
            (nonce,) = set(re.findall(r"'nonce-([0-9a-f]{32})'", policy))
            self.assertEqual(page.count(f'nonce="{nonce}"'), 2)
            self.assertNotRegex(page, r"(?:src|href)=\"(?:https?:)?//")
            nonces.add(nonce)
        self.assertEqual(len(nonces), 2)

    def test_pages_from_elsewhere_cannot_read_it(self):
        def ask(path, host):
            request = urllib.request.Request(self.server.http() + path, headers={"Host": host})
            try:
                with urllib.request.urlopen(request, timeout=harness.DEADLINE_S) as answer:
                    return answer.status
            except urllib.error.HTTPError as error:
                error.close()
                return error.code

        for path in ("", "status.json"):
            self.assertEqual(ask(path, "rebound.example:9464"), 403)
            self.assertEqual(ask(path, "localhost:9464"), 200)
        self.assertEqual(ask("metrics", "rebound.example:9464"), 200)

    def test_off(self):
        server = harness.Server("--status_page=false")
        self.addCleanup(server.stop)
        with urllib.request.urlopen(server.http() + "metrics", timeout=harness.DEADLINE_S) as answer:
            self.assertEqual(answer.status, 200)
        for path in ("", "status.json"):
            with self.assertRaises(urllib.error.HTTPError) as error:
                urllib.request.urlopen(server.http() + path, timeout=harness.DEADLINE_S)
            self.assertEqual(error.exception.code, 404)
            error.exception.close()


class BrowserTest(harness.ServedTest):
    def setUp(self):
        super().setUp()
        self.chromium = shutil.which("chromium")
        if self.chromium is None:
            self.skipTest("no chromium (Debian: chromium)")

    def browse(self, *arguments):
        return subprocess.run(
            [
                self.chromium,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                f"--user-data-dir={self.folder}/profile",
                "--window-size=1280,1700",
                "--virtual-time-budget=4000",
                *arguments,
                self.server.http(),
            ],
            capture_output=True,
            timeout=harness.DEADLINE_S,
            check=True,
        ).stdout.decode()

    def test_a_person_reads_what_there_is(self):
        path = self.save(np.ones(100, np.float64))
        self.answers("arrays", "put", path, "--owner", HOSTILE)
        self.reduce(path, "sum")
        self.check_failure(4, [HOSTILE], "reduce", path, "--op", "sum", "--pipeline", HOSTILE)
        page = self.browse("--dump-dom")
        self.assertNotIn("<img", page)
        text = html.unescape(re.sub(r"<[^>]*>", " ", page[page.index("<body") : page.index("<script")]))
        for says in ("live", "cpu", "lanes busy", "Recent errors", "INVALID_ARGUMENT", f"pipeline: got '{HOSTILE}'",
                     "Resident arrays (1)", "800 bytes", "--max_streams", "0 of 64", "Callers", f"uid {os.getuid()}"):  # fmt: skip
            self.assertIn(says, text)
        self.assertIn('<svg class="spark"', page)
        self.assertRegex(text, r"memory\s+(0|[\d.]+ [KM]iB|\d+) ?(bytes)? of [\d.]+ [GM]iB", "in units, not in bytes")

    def test_it_can_be_seen(self):
        picture = self.folder / "page.png"
        self.browse(f"--screenshot={picture}")
        data = picture.read_bytes()
        self.assertEqual(data[:8], b"\x89PNG\r\n\x1a\n")
        self.assertGreater(len(data), 20_000, "a blank page is smaller")


if __name__ == "__main__":
    if shutil.which("chromium") is None:
        print("no chromium (Debian: chromium): the page is not looked at, only its figures", file=sys.stderr)
    harness.unittest.main()

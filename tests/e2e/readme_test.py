"""The shell of the READMEs: commands are run as they stand there, and what they print is as shown but for the times."""

import os
import pathlib
import re
import subprocess
import unittest

import harness
from harness import DATA, np

ROOT = DATA.parent.parent
# Those of the others build, install or run containers; tokens_test.py runs the recipes of server/README.md.
SHELL = ("client/README.md", "proto/README.md")
CONSOLE = ("README.md",)

# In place of reducectl: load tests are short, so that objectives are missed and spreads are large.
WRAPPER = """#!/bin/sh
case "$1 $2" in
  "loadtest compare") cp "$3" "$4" ;;
  "loadtest --find-max") set -- "$@" --duration 300ms --warmup 0s ;;
  loadtest*) set -- "$@" --count 50 --warmup 0s ;;
esac
"$REDUCECTL" "$@"
status=$?
case "$1 $status" in
  "loadtest 7" | "loadtest 8") exit 0 ;;
  *) exit "$status" ;;
esac
"""


def blocks(document, language):
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def without_times(text):
    """Without times, and why an engine ran, which differ from run to run and from machine to machine."""
    text = re.sub(r"\b\d+(\.\d+)? [mu]?s\b", "TIME", text)
    text = re.sub(r'("(?:read|receive|kernel|total|round_trip)"): [\d.]+', r"\1: TIME", text)
    return re.sub(r'"reason": "[^"]*"', '"reason": ""', text)


class ReadmeTest(harness.ServedTest):
    def shell(self, script, folder, path):
        run = subprocess.run(
            ["sh", "-euc", script], cwd=folder, capture_output=True, timeout=2 * harness.DEADLINE_S, check=False,
            env=harness.environment(self.server.unix) | {"PATH": f"{path}:{os.environ['PATH']}"},
        )
        self.assertEqual(run.returncode, 0, f"{script}\n{run.stdout.decode()}{run.stderr.decode()}")
        return run.stdout.decode()

    def test_shell(self):
        wrapper = self.folder / "bin/reducectl"
        wrapper.parent.mkdir()
        wrapper.write_text(WRAPPER)
        wrapper.chmod(0o755)
        for name in ("samples", "first", "rest"):
            self.save(np.arange(1000, dtype="f4"), f"{name}.npy")
        self.save(np.arange(24, dtype="f4").reshape(2, 3, 4), "x.npy")
        self.save(np.arange(24, dtype="f4").reshape(2, 3, 4) + 1, "y.npy")
        self.save(np.arange(24).reshape(2, 3, 4) % 2 == 0, "mask.npy")
        for part in ("", "1", "2"):
            self.save(np.arange(100.0), f"prices{part}.npy")
            self.save(np.arange(100) % 7, f"shops{part}.npy")
        self.save(np.arange(100.0), "values.npy")
        (self.folder / "sales.csv").write_text(
            "shop,month,date,price,pieces\nnorth,9,2026-09-01,1.5,2\nnorth,10,2026-10-03,2,1\nnorth,9,2026-09-30,4,5\n"
            "south,9,2026-09-02,3,1\nsouth,9,2026-09-02,4,1\n")
        self.save(np.arange(24.0).reshape(2, 3, 4), "temperature.npy")
        self.save(np.arange(12.0).reshape(3, 4), "area.npy")
        self.save(np.arange(20.0).reshape(4, 5), "shard.npy")
        self.save(np.array([0, 30, 100]), "offsets.npy")
        self.addCleanup(pathlib.Path("/dev/shm/sums").unlink, missing_ok=True)
        (profile,) = blocks("client/README.md", "json")
        (self.folder / "mix.json").write_text(profile)
        seen = 0
        for document in SHELL:
            for block in blocks(document, "sh"):
                with self.subTest(document=document, block=block):
                    seen += 1
                    self.shell(re.sub(r"--server \w+:\d+ ", "", block), self.folder, wrapper.parent)
        self.assertEqual(seen, 11)

    def test_console(self):
        path = pathlib.Path(os.environ["REDUCECTL"]).parent
        seen = 0
        for document in CONSOLE:
            for session in blocks(document, "console"):
                for command, shown in re.findall(r"^\$ (.*)\n((?:[^$\n].*\n|\n(?=[^$]))*)", session, re.MULTILINE):
                    if not (DATA / command.split()[2]).exists():
                        continue
                    with self.subTest(document=document, command=command):
                        seen += 1
                        printed = self.shell(command, DATA, path)
                        self.assertEqual(without_times(printed).strip(), without_times(shown).strip())
        self.assertEqual(seen, 3)


if __name__ == "__main__":
    unittest.main()

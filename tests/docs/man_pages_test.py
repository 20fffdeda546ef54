"""The man pages have every option and command that --help has, and render without a warning.

Needs groff and, of Python, nothing but its standard library. REDUCED_BUILD is the build that made the pages.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import documents_test

SKIPPED = 77  # ctest's SKIP_RETURN_CODE
PAGES = pathlib.Path(os.environ["REDUCED_BUILD"]) / "deploy"


def rendered(page):
    """The page as text without formatting, and what groff has to say about it."""
    run = subprocess.run(["groff", "-man", "-Tascii", "-P-c", "-P-b", "-P-u", "-rLL=200n", "-rHY=0", "-ww", PAGES / page],
                         capture_output=True, text=True, timeout=60, check=True)
    return run.stdout, run.stderr


class ManPagesTest(unittest.TestCase):
    def check(self, page, sections, options):
        text, warnings = rendered(page)
        self.assertEqual(warnings, "")
        self.assertEqual([section for section in sections if f"\n{section}\n" not in text], [], text[:2000])
        listed = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text))
        self.assertEqual(options - listed, set())
        return text

    def test_server(self):
        options = documents_test.help_of("REDUCED")
        self.assertGreater(len(options), 30)
        self.check("reduced.8", ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "SEE ALSO"), options)

    def test_command_line(self):
        options = documents_test.every_option() - documents_test.help_of("REDUCED")
        self.assertGreater(len(options), 30)
        text = self.check("reducectl.1", ("NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "OPTIONS", "EXIT STATUS", "ENVIRONMENT",
                                          "SEE ALSO"), options)
        for command in documents_test.subcommands():
            self.assertRegex(text, rf"\n   {command}\n +reducectl {command}\b")


if __name__ == "__main__":
    if shutil.which("groff") is None:
        print("SKIPPED: groff isn't installed (deploy/dependencies.sh test)")
        sys.exit(SKIPPED)
    unittest.main()

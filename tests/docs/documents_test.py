"""The documents say what is so: links and paths lead somewhere, and the commands and flags in them exist.

Needs no network, and of Python nothing but its standard library. The environment's REDUCED and REDUCECTL name the programs.
"""

import functools
import json
import os
import pathlib
import re
import shlex
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDERS = ("client", "deploy", "kernels", "proto", "server", "tests")
README_LINES = 200
KERNELS_LINES = 350
FIGURES = ROOT / "tests/bench/figures"
# Flags in the text that are other programs': docker's, CMake's, ctest's, the benchmarks'.
OTHER_FLAGS = {
    "--build", "--cflags", "--check", "--cpus", "--describe", "--fingerprint", "--goals", "--gpus", "--group-add", "--format", "--help", "--install", "--libs",
    "--memory", "--mib", "--only", "--ops",
    "--preset", "--runs", "--sizes", "--sweep", "--target", "--test-dir", "--tool", "--user",
}
# Options of reducectl whose values are names that --help lists.
NAMES = ("--via", "--engine", "--precision", "--nan", "--overflow")


def documents():
    """Every document of the tree, but for what a build has put there."""
    found = [*ROOT.glob("*.md"), *(ROOT / ".github").rglob("*.md")]
    for folder in FOLDERS:
        found += (ROOT / folder).rglob("*.md")
    return sorted(found)


class Document:
    """A Markdown file, taken apart: its blocks of code, and the text around them."""

    def __init__(self, path):
        self.path = path
        self.lines = path.read_text(encoding="utf-8").splitlines()
        self.blocks = []  # (language, lines)
        text, block = [], None
        for line in self.lines:
            fence = re.match(r"\s*```(\w*)", line)
            if fence and block is None:
                block = (fence.group(1), [])
            elif fence:
                self.blocks.append(block)
                block = None
            elif block is not None:
                block[1].append(line)
            else:
                text.append(line)
        assert block is None, f"{path}: a block of code does not end"
        self.text = "\n".join(text)

    def links(self):
        prose = re.sub(r"`[^`]*`", lambda match: re.sub(r"[\[\]()]", "", match.group()), self.text)
        return re.findall(r"\]\(([^)\s]+)\)", prose)

    def code_spans(self):
        return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", self.text)]

    def anchors(self):
        """Those that GitHub gives the headings."""
        seen = {}
        for line in self.text.splitlines():
            heading = re.match(r"#+\s+(.*?)\s*#*$", line)
            if heading:
                slug = re.sub(r"[^\w\- ]", "", heading.group(1).lower()).replace(" ", "-")
                count = seen.get(slug, 0)
                seen[slug] = count + 1
                yield f"{slug}-{count}" if count else slug

    def commands(self):
        """The shell commands of its blocks, as lists of words."""
        for language, lines in self.blocks:
            if language == "console":
                lines = [line[2:] for line in lines if line.startswith("$ ")]
            elif language != "sh":
                continue
            for line in "\n".join(lines).replace("\\\n", " ").splitlines():
                lexer = shlex.shlex(line.replace("$(", " ").replace(")", " "), posix=True, punctuation_chars=";&|")
                lexer.whitespace_split = True
                command = []
                for word in lexer:
                    if set(word) <= set(";&|"):
                        yield command
                        command = []
                    else:
                        command.append(word)
                yield command


@functools.cache
def help_text(program, *command):
    return subprocess.run([os.environ[program], *command, "--help"], check=True, capture_output=True, text=True,
                          timeout=30).stdout


@functools.cache
def help_of(program, *command):
    """The options that a program's --help names."""
    return frozenset(re.findall(r"(?<![\w-])--[a-z][\w-]*", help_text(program, *command)))


@functools.cache
def subcommands(*command):
    listed = re.search(r"(?:Subc|C)ommands:\n((?:  .*\n)+)", help_text("REDUCECTL", *command))
    return tuple(re.findall(r"^  (\w+) ", listed.group(1), re.MULTILINE)) if listed else ()


def command_of(words):
    """The command of reducectl that these words of a command line name, such as ("arrays", "put")."""
    command = []
    for word in words:
        if word in subcommands(*command):
            command.append(word)
            if not subcommands(*command):
                break
    return tuple(command)


def has_value(command, option, value):
    """Whether the help of an option names this value."""
    described = re.search(rf"^ +{option}\b(?:.*\n)(?: {{8,}}.*\n)*", help_text("REDUCECTL", *command), re.MULTILINE)
    return described is None or re.search(rf"\b{value}\b", described.group()) is not None


def wrong_options(words):
    """What reducectl does not have of the options in its command line, and of their values where those are names."""
    command = command_of(words)
    options = help_of("REDUCECTL") | help_of("REDUCECTL", *command)
    wrong = []
    for word, following in zip(words, [*words[1:], ""]):
        option = re.match(r"--[\w-]+", word)
        if option and option.group() not in options:
            wrong.append(word)
        elif word in NAMES and not has_value(command, word, following):
            wrong.append(f"{word} {following}")
    return wrong


@functools.cache
def every_option():
    every = set(help_of("REDUCED"))
    waiting = [()]
    while waiting:
        command = waiting.pop()
        every |= help_of("REDUCECTL", *command)
        waiting += [(*command, name) for name in subcommands(*command)]
    return every


class DocumentsTest(unittest.TestCase):
    """Each test looks at every document and lists all that is wrong."""

    @classmethod
    def setUpClass(cls):
        cls.documents = [Document(path) for path in documents()]

    def setUp(self):
        self.checked = 0
        self.faults = []

    def check(self, document, right, fault):
        self.checked += 1
        if not right:
            self.faults.append(f"{document.path.relative_to(ROOT)}: {fault}")

    def conclude(self, at_least):
        self.assertFalse(self.faults, "\n" + "\n".join(self.faults))
        self.assertGreater(self.checked, at_least, "the documents are not taken apart as they should be")

    def test_every_folder_of_users_has_one(self):
        for folder in FOLDERS:
            self.assertTrue((ROOT / folder / "README.md").is_file(), folder)

    def test_the_first_one_is_short(self):
        self.assertLessEqual(len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()), README_LINES)
        self.assertLessEqual(len((ROOT / "kernels/README.md").read_text(encoding="utf-8").splitlines()), KERNELS_LINES)

    def test_links_lead_somewhere(self):
        anchors = {document.path: set(document.anchors()) for document in self.documents}
        for document in self.documents:
            for link in document.links():
                if re.match(r"[a-z]+:", link):
                    continue
                path, _, anchor = link.partition("#")
                target = (document.path.parent / path).resolve() if path else document.path
                self.check(document, target.exists(), f"{link}: no such file")
                if anchor:
                    self.check(document, anchor in anchors.get(target, ()), f"{link}: no such heading")
        self.conclude(at_least=50)

    def test_figures_are_those_of_their_source(self):
        """Every number of a paragraph, list item or row that links to a file of figures stands in that file."""
        number = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?![\w,]*\w)|(?<![\w.,])\d[\d,]*(?:\.\d+)?(?=x\b)")

        def numbers(text):
            return {found.replace(",", "").rstrip(".") for found in number.findall(text)}

        for document in self.documents:
            if document.path.parent == FIGURES:
                continue
            for part in re.split(r"\n\s*\n|\n(?=- |\|)", document.text):
                sources = [path for path in re.findall(r"\]\(([^)#\s]*figures/[\w.]+\.md)", part) if not path.endswith("README.md")]
                if not sources:
                    continue
                said = numbers(re.sub(r"\[[^\]]*\]\([^)]*\)|`[^`]*`", " ", part))
                known = set().union(*(numbers((document.path.parent / path).read_text(encoding="utf-8")) for path in sources))
                self.check(document, said <= known, f"{', '.join(sources)} has no {', '.join(sorted(said - known))}")
        self.conclude(at_least=15)

    def test_the_picture_shows_what_there_is(self):
        """Every node of the architecture is a path of this tree, and the picture was drawn from that text."""
        text = (ROOT / "server/architecture.dot").read_text(encoding="utf-8")
        drawn = (ROOT / "server/architecture.svg").read_text(encoding="utf-8")
        nodes = re.findall(r'^ *"([\w./]+)" \[label=', text, re.MULTILINE)
        self.assertGreater(len(nodes), 10)
        for node in nodes:
            self.assertTrue((ROOT / node).exists(), node)
        for path in re.findall(r"label=\"\w+: (proto/\w+)\"", text):
            self.assertTrue((ROOT / path).exists(), path)
        self.assertEqual(set(nodes), set(re.findall(r'<g id="node\d+" class="node">\s*<title>([^<]*)</title>', drawn)))
        for label in re.findall(r'label="([^"]*)"', text):
            for line in label.split("\\n"):
                self.assertIn(f">{line.replace(chr(39), '&#39;')}</text>", drawn)
        self.assertEqual(text.count("->"), drawn.count('class="edge"'))

    def test_paths_exist(self):
        pattern = re.compile(rf"(?:{'|'.join(FOLDERS)}|\.ci|\.github)/[\w./*-]+")
        for document in self.documents:
            for span in document.code_spans():
                if pattern.fullmatch(span):
                    found = any(any(folder.glob(span)) for folder in (ROOT, document.path.parent))
                    self.check(document, found, f"{span}: no such file")
        self.conclude(at_least=20)

    def test_commands_exist(self):
        for document in self.documents:
            for words in document.commands():
                names = [os.path.basename(word) for word in words]
                flags = {re.match(r"--[\w-]+", word).group() for word in words if re.match(r"--[a-z]", word)}
                line = " ".join(words)
                if {"docker", "podman", "cmake"} & set(names):
                    continue
                if "reducectl" in names:
                    wrong = wrong_options(words[names.index("reducectl") + 1:])
                    self.check(document, not wrong, f"{line}: reducectl has no {', '.join(wrong)}")
                elif "reduced" in names[:2]:
                    unknown = flags - help_of("REDUCED")
                    self.check(document, not unknown, f"{line}: reduced has no {unknown}")
                elif words and re.match(r"(deploy|tests|\.ci)/", words[0]):
                    self.check(document, (ROOT / words[0]).is_file(), f"{line}: no such script")
        self.conclude(at_least=20)

    def test_flags_exist(self):
        known = every_option() | OTHER_FLAGS
        for document in self.documents:
            if document.path.name == "CHANGELOG.md":  # names flags of the past
                continue
            for span in document.code_spans():
                for word in span.split():
                    flag = re.match(r"--[a-z][\w-]*", word)
                    if flag and not word.endswith("..."):
                        self.check(document, flag.group() in known, f"{span}: no program has this option")
                for option, value in re.findall(rf"({'|'.join(NAMES)}) (\w+)(?!\w*\|)", span):
                    named = has_value(("reduce",), option, value) or has_value(("loadtest",), option, value)
                    self.check(document, named, f"{span}: no command has {option} {value}")
                for name in re.findall(r"\bREDUCED_FLAG_([A-Z]\w+)", span):
                    self.check(document, name == "NAME" or f"--{name.lower()}" in known, f"{span}: reduced has no such flag")
        self.conclude(at_least=50)

    def test_programs_compile(self):
        """The C++ of a document is one program, block after block."""
        before = """
            #include <algorithm>
            #include <cstdint>
            #include <iostream>
            #include <vector>
            #include "reduced/client.h"
            #include "reduced/group_keys.h"
            #include "reduced/merge.h"
            std::vector<float> Samples();
            int main() {
        """
        seen = 0
        for document in self.documents:
            blocks = ["\n".join(lines) for language, lines in document.blocks if language == "cpp"]
            if not blocks:
                continue
            seen += len(blocks)
            compiled = subprocess.run(
                [os.environ["CXX"], "-std=c++20", "-fsyntax-only", f"-I{ROOT}/client", f"-I{os.environ['REDUCED_BUILD']}/client/include",
                 "-x", "c++", "-"],
                input="\n".join([before, *blocks, "}"]), capture_output=True, text=True, timeout=120, check=False,
            )
            self.assertEqual(compiled.returncode, 0, f"{document.path}: {compiled.stderr}")
        self.assertGreater(seen, 3)

    def test_presets_exist(self):
        presets = json.loads((ROOT / "CMakePresets.json").read_text(encoding="utf-8"))
        names = {preset["name"] for kind in presets.values() if isinstance(kind, list) for preset in kind
                 if not preset.get("hidden")}
        for document in self.documents:
            for name in re.findall(r"--preset[ =](\w[\w-]*)", "\n".join(document.lines)):
                self.check(document, name in names, f"--preset {name}: no such preset")
        self.conclude(at_least=5)


if __name__ == "__main__":
    unittest.main()

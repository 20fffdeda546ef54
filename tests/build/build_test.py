"""What configuring a build promises: the tests that ctest sees, and rooms that include only what they link."""

import collections
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEADLINE_S = 120


def run(*command, cwd=ROOT):
    """The exit status of a command and all that it printed."""
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=DEADLINE_S,
                          check=False)
    return done.returncode, done.stdout


class BuildTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def configure(self, source, *options):
        return run(os.environ["CMAKE"], "-S", source, "-B", self.folder / "build", "-G", "Ninja", *options)

    def test_the_quickstart_leaves_the_tests_alone(self):
        """deploy/quickstart.sh and tests/run.sh share a build: ctest must see neither none of the tests nor old ones."""

        def tests():
            status, output = run(os.environ["CTEST"], "--test-dir", self.folder / "build", "--show-only")
            self.assertEqual(status, 0, output)
            return int(re.search(r"Total Tests: (\d+)", output)[1])

        def configure(options):
            status, output = run("bash", "-c", f"source deploy/setup.sh && configure '{self.folder}/build' -DREDUCED_CUDA=OFF {options}")
            self.assertEqual(status, 0, output)

        def options_of(script):
            return re.search(r'^configure "\$build"(.*)$', (ROOT / script).read_text(encoding="utf-8"), re.MULTILINE)[1]

        configure(options_of("tests/run.sh"))
        found = tests()
        self.assertGreater(found, 50)
        configure(options_of("deploy/quickstart.sh"))
        self.assertEqual(tests(), found)
        configure("-DREDUCED_TESTS=OFF")
        self.assertEqual(tests(), 0)

    def of_setup(self, command, **environment):
        """What a function of deploy/setup.sh prints, with only these programs in addition to the shell's."""
        path = f"{self.folder}:/usr/bin:/bin"
        done = subprocess.run(["bash", "-c", f"source deploy/setup.sh && {command}"], cwd=ROOT, env={"PATH": path, **environment},
                              capture_output=True, text=True, timeout=DEADLINE_S, check=True)
        return done.stdout.strip(), done.stderr

    def test_cuda_is_built_where_there_is_a_gpu(self):
        if os.path.exists("/usr/bin/nvidia-smi"):
            self.skipTest("this machine has the driver's program")
        option, told = self.of_setup("cuda_option")
        self.assertEqual(option, "OFF")
        self.assertIn("REDUCED_CUDA=ON", told)
        self.assertEqual(self.of_setup("cuda_option", REDUCED_CUDA="ON"), ("ON", ""))
        program = self.folder / "nvidia-smi"
        program.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA H100 (UUID: GPU-0)'\n")
        program.chmod(0o755)
        self.assertEqual(self.of_setup("cuda_option"), ("AUTO", ""))
        program.write_text("#!/bin/sh\necho 'No devices were found'\n")
        self.assertEqual(self.of_setup("cuda_option")[0], "OFF")

    def test_the_programs_do_not_see_the_options_of_the_build(self):
        self.assertEqual(self.of_setup("env | grep -c ^REDUCED_ || true", REDUCED_CUDA="ON", REDUCED_VECTOR_TARGETS="AVX2"), ("0", ""))
        self.assertEqual(self.of_setup("cuda_option", REDUCED_CUDA="ON"), ("ON", ""))

    def test_vectors_are_those_of_this_machine(self):
        flags = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\nflags")[2].partition("\n")[0].split()
        needs = {"HWY_AVX3": "avx512vl", "HWY_AVX2": "avx2", "HWY_SSE4": "sse4_2"}
        subprocess.run([os.environ["CMAKE"], "-S", ROOT, "-B", self.folder / "native", "-G", "Ninja", "-DREDUCED_CUDA=OFF", "-DREDUCED_TESTS=OFF",
                        "-DREDUCED_PYTHON=OFF", "-DREDUCED_VECTOR_TARGETS=NATIVE"], check=True, capture_output=True)
        found = set(re.findall(r"-DREDUCED_VECTOR_TARGETS=(\w+)", (self.folder / "native" / "build.ninja").read_text(encoding="utf-8")))
        best = next((target for target, flag in needs.items() if flag in flags), None)
        self.assertEqual(found, {best} if best else set())

    def room(self, name, text, links=""):
        """A room `kernels/NAME` of one header, as the target NAME."""
        folder = self.folder / "kernels" / name
        folder.mkdir(parents=True)
        (folder / "it.h").write_text(text)
        with open(self.folder / "CMakeLists.txt", "a", encoding="utf-8") as file:
            file.write(f"add_library({name} INTERFACE)\ntarget_link_libraries({name} INTERFACE {links})\n"
                       f"reduced_room({name} kernels/{name})\n")

    def test_a_room_includes_only_what_it_links(self):
        (self.folder / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(rooms LANGUAGES NONE)\n"
                                                    f"include({ROOT}/deploy/rooms.cmake)\n")
        self.room("low", "// includes nothing\n")
        self.room("middle", '#include "kernels/low/it.h"\n', "low")
        self.room("high", '#include "kernels/low/it.h"\n#include "kernels/middle/it.h"\n', "middle")
        status, output = self.configure(self.folder)
        self.assertEqual(status, 0, output)

        (self.folder / "kernels/low/it.h").write_text('#include "kernels/high/it.h"\n')
        status, output = self.configure(self.folder)
        self.assertNotEqual(status, 0, output)
        self.assertIn("kernels/low/it.h includes kernels/high/it.h, but low does not link high", output)

        (self.folder / "kernels/low/it.h").write_text("")
        (self.folder / "kernels/low/new").mkdir()
        (self.folder / "kernels/low/new/it.h").write_text("")
        status, output = self.configure(self.folder)
        self.assertNotEqual(status, 0, output)
        self.assertIn("kernels/low/new/it.h is in no room", output)


def types_of(source):
    """The types that a source defines for others: their namespace and name. Those of unnamed namespaces are its own."""
    namespaces = []
    for line in source.read_text(encoding="utf-8").splitlines():
        if opened := re.match(r"namespace ?([\w:]*) \{$", line):
            namespaces.append(opened[1])
        elif re.match(r"\}  // namespace", line) and namespaces:
            namespaces.pop()
        elif "" not in namespaces and (found := re.match(r"(?:struct|class|enum class|union) (?:REDUCED_EXPORT )?(\w+)(?: final)?(?: : [^;(]*)? \{", line)):
            yield "::".join([*namespaces, found[1]])


class NamesTest(unittest.TestCase):
    def test_no_type_is_defined_twice(self):
        """The linker takes one destructor for both, whichever."""
        where = collections.defaultdict(set)
        for room in ("proto", "kernels", "server", "client"):
            for suffix in ("h", "cuh", "cc", "cu"):
                for source in (ROOT / room).rglob(f"*.{suffix}"):
                    for name in types_of(source):
                        where[name].add(str(source.relative_to(ROOT)))
        self.assertGreater(len(where), 500)
        self.assertEqual({name: files for name, files in where.items() if len(files) > 1}, {})


if __name__ == "__main__":
    unittest.main()

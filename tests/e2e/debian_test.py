"""The .deb that CPack makes of this build: unpacked it runs as it is, and a bare Debian installs, runs and removes it."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import containers
import harness
from harness import DATA, DEADLINE_S

PACKAGE = None  # the path of the .deb
PROGRAMS = ("reduced", "reducectl")

# What a person does with the package, within a container. Its last line says that all of it went well.
INSTALL = r"""
set -e
dpkg --install /package/*.deb
test "$(dpkg-query --show --showformat='${Status}' reduced)" = "install ok installed"
reduced --version
reduced --check_config
reduced --listen=unix:/tmp/socket --metrics_listen= --ready_file=/tmp/ready &
for i in $(seq 300); do test -s /tmp/ready && break; sleep 0.1; done
reducectl --server unix:/tmp/socket reduce /data/co2.npy --op mean,nan_count --nan omit --json
kill -TERM $!
wait $!
dpkg --remove reduced
test ! -e /opt/reduced -a ! -e /usr/bin/reduced -a -e /etc/reduced/environment
dpkg --purge reduced
test ! -e /etc/reduced
echo all went well
"""


def setUpModule():
    global PACKAGE
    for program in ("cpack", "dpkg-deb"):
        if shutil.which(program) is None:
            print(f"SKIPPED: {program} isn't installed")
            sys.exit(harness.SKIPPED)
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    subprocess.run(
        ["cpack", "-G", "DEB", "--config", f"{os.environ['REDUCED_BUILD']}/CPackConfig.cmake", "-B", folder.name,
         "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=4 * DEADLINE_S, check=True,
    )  # fmt: skip
    (PACKAGE,) = pathlib.Path(folder.name).glob("*.deb")


class UnpackedTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        subprocess.run(["dpkg-deb", "--extract", PACKAGE, cls.root], timeout=DEADLINE_S, check=True)

    def test_programs_run_with_an_empty_environment(self):
        for program in PROGRAMS:
            run = subprocess.run([self.root / "opt/reduced/bin" / program, "--version"], env={}, stdout=subprocess.PIPE,
                                 timeout=DEADLINE_S, check=True)
            self.assertRegex(run.stdout.decode(), r"\d+\.\d+\.\d+")

    def test_links_lead_into_the_package(self):
        links = [path for path in (self.root / "usr").rglob("*") if path.is_symlink()]
        self.assertEqual(len(links), 5)
        for link in links:
            self.assertTrue((self.root / str(link.readlink()).lstrip("/")).is_file(), link)

    def test_service_and_user_are_there(self):
        unit = (self.root / "usr/lib/systemd/system/reduced.service").read_text()
        self.assertIn("ExecStart=/opt/reduced/bin/reduced\n", unit)
        self.assertRegex((self.root / "usr/lib/sysusers.d/reduced.conf").read_text(), r"(?m)^u reduced ")

    def test_nothing_of_the_tests_is_in_it(self):
        self.assertFalse((self.root / "opt/reduced/libexec").exists())


class InstalledTest(unittest.TestCase):
    def test_a_bare_debian_takes_it(self):
        try:
            containers.require()
            base = containers.base_image("minbase")
            containers.require_running(base)
        except containers.Unavailable as reason:
            self.skipTest(str(reason))
        run = containers.podman(
            "run", "--rm", "--network=none", *containers.OPTIONS, f"--volume={PACKAGE.parent}:/package:ro",
            f"--volume={DATA}:/data:ro", base, "sh", "-c", INSTALL, check=False,
        )  # fmt: skip
        text = run.stdout.decode()
        self.assertEqual(run.returncode, 0, text + run.stderr.decode())
        self.assertIn('"nan_count": 59', text)
        self.assertTrue(text.endswith("all went well\n"), text)


if __name__ == "__main__":
    unittest.main()

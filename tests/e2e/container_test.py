"""The image of deploy/Dockerfile, built and run by podman: as it is meant to be run, with nothing allowed that it can do
without.

The image's programs are those of this build, on a base of nothing but Debian's glibc. That base stays in podman's store
for the next run; whatever else is made here is removed. With REDUCED_FROM_SOURCE set, the image is built from the sources
instead, as users do it, which takes as long as a build does.
"""

import atexit
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

import containers
import harness
from containers import base_image, output, podman
from fault_proxy import FaultProxy
from harness import DATA, DEADLINE_S, np

ROOT = DATA.parent.parent
BUILD_DEADLINE_S = 3000
FROM_SOURCE = bool(os.environ.get("REDUCED_FROM_SOURCE"))
USER = 10001  # of the image, and its group
CONNECTION = 3  # reducectl's exit code
SECCOMP = f"--security-opt=seccomp={ROOT / 'deploy' / 'seccomp.json'}"  # of servers
REDUCECTL = "/opt/reduced/bin/reducectl"
CONFINED = (
    "--read-only",
    "--cap-drop=all",
    "--security-opt=no-new-privileges",
    *containers.OPTIONS,
)


def built_image():
    """The id of the image under test."""
    with tempfile.TemporaryDirectory() as folder:
        ids = pathlib.Path(folder) / "id"
        options = ["--isolation=chroot", "--network=host", "--format=docker", "--layers=false", f"--iidfile={ids}"]
        dockerfile = ROOT / "deploy" / "Dockerfile"
        if FROM_SOURCE:
            base = base_image("minbase")
            options += [f"--build-arg=BUILD_IMAGE={base}", f"--build-arg=RUNTIME_IMAGE={base}"]
            context = ROOT
        else:
            base = base_image("extract", "--include=libc6")
            options += [f"--build-arg=BUILD_IMAGE={base}", f"--build-arg=RUNTIME_IMAGE={base}", "--target=prebuilt"]
            context = pathlib.Path(folder) / "tree"
            subprocess.run(
                ["cmake", "--install", os.environ["REDUCED_BUILD"], "--prefix", context, "--strip"],
                stdout=subprocess.DEVNULL,
                timeout=DEADLINE_S,
                check=True,
            )
        containers.require_running(base, *CONFINED)
        podman("build", *options, "--build-arg=REVISION=tested", "-f", dockerfile, context, timeout=BUILD_DEADLINE_S)
        image = ids.read_text().strip()
        atexit.register(podman, "rmi", "--force", image, check=False)
        return image


def setUpModule():
    try:
        containers.require()
        ContainerTest.image = built_image()
    except containers.Unavailable as reason:
        print("SKIPPED:", reason)
        sys.exit(harness.SKIPPED)


class ContainerTest(unittest.TestCase):
    image = None

    def setUp(self):
        # What the containers share: the folder of the sockets.
        self.volume = output("volume", "create")
        self.addCleanup(podman, "volume", "rm", "--force", self.volume, check=False)
        self.folder = pathlib.Path(output("volume", "inspect", self.volume, "--format", "{{.Mountpoint}}"))

    def start(self, *arguments, network="none"):
        """A server's id, once it serves."""
        container = output(
            "run", "--detach", *CONFINED, SECCOMP, f"--network={network}", f"--volume={self.volume}:/run/reduced", self.image,
            *arguments,
        )
        self.addCleanup(podman, "rm", "--force", "--time=0", container, check=False)
        self.await_log(container, " serves on ")
        return container

    def start_on_tcp(self):
        """The id of a server on the host's network, and its address there."""
        listen = "--listen=unix:/run/reduced/socket,127.0.0.1:0"
        container = self.start(listen, "--unix_socket_mode=0660", "--ready_file=/run/reduced/ready", network="host")
        return container, (self.folder / "ready").read_text().split()[1]

    def log(self, container):
        run = podman("logs", container)
        return (run.stdout + run.stderr).decode()

    def await_log(self, container, text):
        deadline = time.monotonic() + DEADLINE_S
        while text not in (log := self.log(container)):
            self.assertEqual(self.state(container)["Status"], "running", log)
            self.assertLess(time.monotonic(), deadline, log)
            time.sleep(0.05)

    def state(self, container):
        return json.loads(output("inspect", container, "--format", "{{json .State}}"))

    def await_exit(self, container):
        return int(output("wait", container))

    def reducectl(self, *arguments, user=f"20001:{USER}", network="none", stdin=b""):
        """By a container of its own. A foreign user, in the group that may use the sockets."""
        return podman(
            "run", "--rm", "--interactive", *CONFINED, f"--network={network}", f"--user={user}",
            f"--volume={self.volume}:/run/reduced", f"--entrypoint={REDUCECTL}", self.image, "--json", *arguments,
            check=False, input=stdin,
        )  # fmt: skip

    def answer(self, run):
        self.assertEqual(run.returncode, 0, run.stderr.decode())
        return json.loads(run.stdout)

    def reduce(self, array, via, **keywords):
        dtype = array.dtype.kind + str(8 * array.dtype.itemsize)
        arguments = ("reduce", "-", "--dtype", dtype, "--op", "max,argmax", "--via", via)
        answer = self.answer(self.reducectl(*arguments, stdin=array.tobytes(), **keywords))
        self.assertEqual(answer["via"], via)
        self.assertEqual(answer["results"], {"max": float(array.max()), "argmax": int(array.argmax())})


class ImageTest(ContainerTest):
    def test_what_it_says_of_itself(self):
        image = json.loads(output("image", "inspect", self.image))[0]
        config = image["Config"]
        self.assertEqual(config["User"], f"{USER}:{USER}")
        self.assertEqual(config["StopSignal"], "SIGTERM")
        self.assertEqual(config["Entrypoint"], ["/opt/reduced/bin/reduced"])
        self.assertEqual(image["Healthcheck"]["Test"], ["CMD", REDUCECTL, "health", "--timeout", "2s"])
        labels = {name.removeprefix("org.opencontainers.image."): value for name, value in image["Labels"].items()}
        self.assertEqual((labels["title"], labels["licenses"], labels["revision"]), ("reduced", "Apache-2.0", "tested"))
        version = output("run", "--rm", *CONFINED, "--network=none", self.image, "--version")
        self.assertEqual(version, "reduced " + labels["version"])
        print(f"the image has {image['Size'] / 1e6:.1f} MB")
        self.assertLess(image["Size"], 300e6 if FROM_SOURCE else 100e6)

    def test_nothing_in_it_can_be_changed_by_its_user(self):
        mount = pathlib.Path(output("image", "mount", self.image))
        self.addCleanup(podman, "image", "unmount", self.image)
        for path in (mount / "opt").rglob("*"):
            status = path.lstat()
            self.assertEqual((status.st_uid, status.st_gid), (0, 0), path)
            self.assertFalse(path.is_symlink() is False and status.st_mode & 0o6022, path)
        status = (mount / "run/reduced").stat()
        self.assertEqual((status.st_uid, status.st_gid, status.st_mode & 0o7777), (USER, USER, 0o755))


class ConfinementTest(ContainerTest):
    def test_it_has_no_rights(self):
        process = pathlib.Path("/proc") / str(self.state(self.start())["Pid"])
        status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines())
        self.assertEqual((status["Uid"], status["Gid"]), ("\t".join([str(USER)] * 4), "\t".join([str(USER)] * 4)))
        for capabilities in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(int(status[capabilities], 16), 0, capabilities)
        self.assertEqual(status["NoNewPrivs"], "1")
        (root,) = [line for line in (process / "mountinfo").read_text().splitlines() if line.split()[4] == "/"]
        self.assertIn("ro", root.split()[5].split(","))

    def test_its_root_is_read_only(self):
        run = podman("run", "--rm", *CONFINED, "--network=none", self.image, "--listen=unix:/opt/socket", check=False)
        self.assertEqual(run.returncode, 1)
        self.assertIn(b"reduced: cannot listen on unix:/opt/socket: ", run.stderr)


class ServingTest(ContainerTest):
    def test_tcp(self):
        _, address = self.start_on_tcp()
        run = subprocess.run(
            harness.command("--json", "reduce", DATA / "co2.npy", "--op", "nan_count"),
            capture_output=True,
            timeout=DEADLINE_S,
            env=harness.environment(address),
            check=False,
        )
        self.assertEqual(self.answer(run)["results"], {"nan_count": 59})

    def test_the_default_command(self):
        container = self.start()
        # A container beside it in its network, like those of a pod. It doesn't need the folder of the sockets.
        address = ("--server", "127.0.0.1:50051")
        run = self.reducectl(*address, "info", network=f"container:{container}", user="20001:20001")
        self.assertEqual(self.answer(run)["usage"]["regions"], 0)
        run = self.reducectl(*address, "info")
        self.assertEqual(run.returncode, CONNECTION, run.stderr.decode())

    def test_unix_socket(self):
        self.start()
        random = np.random.default_rng(5)
        for size, via in ((1000, "inline"), (4 << 20, "stream")):
            self.reduce(random.random(size), via)

    def test_shared_memory_with_only_the_folder_of_the_sockets_in_common(self):
        self.start()
        random = np.random.default_rng(7)
        for size in (1000, 16 << 20):
            self.reduce(random.integers(-1000, 1000, size, dtype="i4"), "region")
        self.assertEqual(self.answer(self.reducectl("info"))["usage"]["regions"], 0)

    def test_the_sockets_are_for_the_user_and_the_group(self):
        self.start()
        for name in ("socket", "socket.regions"):
            status = (self.folder / name).stat()
            self.assertEqual((status.st_uid, status.st_gid, status.st_mode & 0o777), (USER, USER, 0o660), name)
        self.answer(self.reducectl("info", user=f"{USER}:20001"))
        for user in ("20001:20001", "0:0"):  # root without capabilities is a user like any other
            run = self.reducectl("info", user=user)
            self.assertEqual((run.returncode, run.stdout), (CONNECTION, b""), user)
            self.assertIn(b"unix:/run/reduced/socket", run.stderr)


class HealthTest(ContainerTest):
    def check(self, container):
        return podman("healthcheck", "run", container, check=False).returncode

    def test_a_server_that_serves_then_drains(self):
        container = self.start("--listen=unix:/run/reduced/socket", "--drain_delay=10m")
        self.assertEqual(self.check(container), 0)
        podman("kill", "--signal=TERM", container)
        deadline = time.monotonic() + DEADLINE_S
        while self.check(container) == 0:
            self.assertLess(time.monotonic(), deadline, self.log(container))
        self.assertEqual(self.state(container)["Status"], "running", self.log(container))

    def test_no_server_where_it_should_be(self):
        self.assertEqual(self.check(self.start("--listen=unix:/run/reduced/another")), 1)


class StopTest(ContainerTest):
    def test_stop(self):
        container = self.start()
        start = time.monotonic()
        podman("stop", "--time", DEADLINE_S, container)
        self.assertLess(time.monotonic() - start, DEADLINE_S / 2)
        self.assertEqual(self.state(container)["ExitCode"], 0, self.log(container))
        self.assertIn("reduced stopped", self.log(container))
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_sigterm_lets_running_requests_finish(self):
        container, address = self.start_on_tcp()
        array = np.arange(4 << 20, dtype="f8")
        cut = FaultProxy(address, array.nbytes // 2)
        self.addCleanup(cut.close)
        with tempfile.NamedTemporaryFile(suffix=".npy") as file:
            np.save(file, array)
            file.flush()
            client = subprocess.Popen(
                harness.command("--json", "reduce", file.name, "--op", "max", "--via", "stream", "--timeout", "60s"),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=harness.environment(cut.address),
            )
            self.addCleanup(client.kill)
            self.assertTrue(cut.reached.wait(DEADLINE_S))
            podman("kill", "--signal=TERM", container)
            self.await_log(container, "draining")
            refused = self.reducectl("reduce", "-", "--dtype", "u8", "--op", "sum", stdin=b"\1\2\3")
            cut.go_on()
            out, error = client.communicate(timeout=DEADLINE_S)
        self.assertEqual(client.returncode, 0, error.decode())
        self.assertEqual(json.loads(out)["results"], {"max": array.max()})
        self.assertEqual(refused.returncode, CONNECTION, refused.stderr.decode())
        self.assertEqual(self.await_exit(container), 0, self.log(container))

    def test_it_starts_again_where_it_was_killed(self):
        container = self.start()
        podman("kill", "--signal=KILL", container)
        self.assertEqual(self.await_exit(container), 128 + 9)
        self.assertTrue((self.folder / "socket").is_socket(), "nothing is left behind to be in the way")
        podman("start", container)
        deadline = time.monotonic() + DEADLINE_S
        while (run := self.reducectl("info")).returncode != 0:
            self.assertLess(time.monotonic(), deadline, run.stderr.decode() + self.log(container))
        self.reduce(np.arange(1000, dtype="i4"), "region")


if __name__ == "__main__":
    unittest.main()

"""Containers, by podman as root, and the images of Debian that tests use as a base.

Those images stay in podman's store for the next run.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile

from harness import DEADLINE_S

# Of every `podman run`. Limits are given, as the defaults are more than a machine may allow.
OPTIONS = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024", "--log-driver=k8s-file", "--pull=never")


class Unavailable(Exception):
    """There can be no container on this machine; why."""


def podman(*arguments, check=True, timeout=DEADLINE_S, **keywords):
    run = subprocess.run(
        ["podman", "--runtime", "runc", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=timeout,
        check=False,
        **keywords,
    )
    if check and run.returncode != 0:
        raise AssertionError(f"podman {' '.join(map(str, arguments))}: {run.returncode}\n{run.stderr.decode()}")
    return run


def output(*arguments, **keywords):
    return podman(*arguments, **keywords).stdout.decode().strip()


def base_image(variant, *options):
    """The name of an image of Debian packages, which is made unless podman has it."""
    name = f"localhost/reduced-test-base:{variant}"
    if podman("image", "exists", name, check=False).returncode == 0:
        return name
    with tempfile.TemporaryDirectory() as folder:
        tar = pathlib.Path(folder) / "base.tar"
        run = subprocess.run(
            ["timeout", "240", "mmdebstrap", "--quiet", f"--variant={variant}", *options, "bookworm", str(tar)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if run.returncode != 0:
            raise Unavailable("mmdebstrap can't make a base image: " + run.stdout.decode()[-500:])
        podman("import", tar, name)
    return name


def require_running(image, *options):
    """Raises Unavailable if podman can't run a container of the image. The loader is all that each image has."""
    run = podman("run", "--rm", *OPTIONS, *options, "--network=none", image, "/lib64/ld-linux-x86-64.so.2", "--version", check=False)
    if run.returncode != 0:
        raise Unavailable("podman can't run a container: " + run.stderr.decode()[-500:])


def require():
    """Raises Unavailable where podman can't run a container, as far as can be seen without an image."""
    for program in ("podman", "runc", "mmdebstrap"):
        if shutil.which(program) is None:
            raise Unavailable(f"{program} isn't installed (deploy/dependencies.sh check)")
    if os.geteuid() != 0:
        raise Unavailable("podman is run as root here")
    run = podman("info", check=False)
    if run.returncode != 0:
        raise Unavailable("podman doesn't work: " + run.stderr.decode()[-500:])

"""Runs a program under a seccomp profile of containers, as their runtime would.

usage: confine.py PROFILE [--without NAME] -- PROGRAM [ARGUMENT]...
       confine.py PROFILE --probe

--without: the profile without this system call. --probe: prints, as JSON, the error of each of a few calls that a server
must not make, or null where it was not refused.
"""

import ctypes
import json
import os
import socket
import sys

import seccomp

OPERATORS = {"SCMP_CMP_EQ": seccomp.EQ, "SCMP_CMP_MASKED_EQ": seccomp.MASKED_EQ}
LIBC = ctypes.CDLL(None, use_errno=True)


def load(profile, without):
    """From now on this process has the profile. The names that this machine's architecture lacks are left out."""
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    rules = seccomp.SyscallFilter(defaction=seccomp.ERRNO(profile["defaultErrnoRet"]))
    for group in profile["syscalls"]:
        assert group["action"] == "SCMP_ACT_ALLOW"
        arguments = [
            seccomp.Arg(each["index"], OPERATORS[each["op"]], each["value"], each.get("valueTwo", 0))
            for each in group.get("args", ())
        ]
        for name in group["names"]:
            if name != without and seccomp.resolve_syscall(seccomp.Arch(), name) >= 0:
                rules.add_rule(seccomp.ALLOW, name, *arguments)
    rules.load()


def call(name, *arguments):
    """The error of a system call, without glibc's own checks."""
    ctypes.set_errno(0)
    number = seccomp.resolve_syscall(seccomp.Arch(), name)
    return ctypes.get_errno() if LIBC.syscall(number, *arguments) < 0 else None


def probe():
    refused = {
        name: call(name, 0, 0, 0, 0, 0, 0)
        for name in ("ptrace", "bpf", "unshare", "setns", "mount", "keyctl", "add_key", "perf_event_open", "userfaultfd",
                     "io_uring_setup", "process_vm_writev", "init_module", "kexec_load", "chroot", "setuid", "execveat", "vfork")
    }  # fmt: skip
    for name, family in {"packets": socket.AF_PACKET, "netlink": socket.AF_NETLINK, "vsock": socket.AF_VSOCK}.items():
        refused[name] = call("socket", int(family), int(socket.SOCK_RAW), 0)
    # SIGCHLD and no CLONE_THREAD: fork. A child would end at once.
    child = LIBC.syscall(seccomp.resolve_syscall(seccomp.Arch(), "clone"), 17, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    refused["fork"] = ctypes.get_errno() if child < 0 else None
    print(json.dumps(refused))


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        profile = json.load(file)
    if sys.argv[2] == "--probe":
        load(profile, None)
        return probe()
    program = sys.argv[sys.argv.index("--") + 1 :]
    load(profile, sys.argv[3] if sys.argv[2] == "--without" else None)
    os.execv(program[0], program)


if __name__ == "__main__":
    main()

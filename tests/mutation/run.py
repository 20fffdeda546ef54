#!/usr/bin/env python3
"""Mutation testing: plants each fault of faults.toml, one at a time, and sees whether the tests that should catch it do.

    tests/mutation/run.py                  # every fault
    tests/mutation/run.py natural quota    # those with one of these texts in their file, name or tests
    tests/mutation/run.py --check          # builds nothing: each fault's text is in its file, and once

Works on a copy of this tree in build/mutation, which is built without CUDA. Prints a line for each fault, caught or
survived, and closes with the rate. Don't pause it: a test that does not end in time counts as one that fails. Exits
with 1 if the rate is below 95%, if a fault could not be tried, or if a test fails without any.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import time

try:
    import tomllib
except ImportError:
    print("SKIPPED: Python 3.11 reads faults.toml")
    sys.exit(77)  # ctest's SKIP_RETURN_CODE

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WORK = ROOT / "build" / "mutation"
SOURCE, BUILD = WORK / "source", WORK / "build"
LEAST = 0.95
# A fault may make a test wait: at least so long, and so many times as long as it takes without a fault.
TEST_TIMEOUT_S, TEST_SLOWDOWN = 90, 5
CONFIGURE = ["-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O1", "-DCMAKE_UNITY_BUILD=ON",
             "-DREDUCED_CUDA=OFF", "-DREDUCED_TESTS=ON", "-DREDUCED_FAILPOINTS=ON"]
# What a test of ctest, named by its prefix, is built from.
TARGETS = {
    "kernels": ["kernels_test"], "server": ["server_test"], "codec": ["server_test"], "client": ["client_test"],
    "service": ["service_test"], "contract": ["engine_contract_test"], "fake": ["fake_device_test"],
    "fuzz": ["fuzz_replay"], "e2e": ["reduced", "reducectl"],
}


def targets_of(tests):
    return sorted({target for test in tests for target in TARGETS[test.split("_")[0]]})


def faults_of(texts):
    """The faults of the table with one of the texts, or all; those with the same programs one after the other."""
    table = tomllib.loads((pathlib.Path(__file__).parent / "faults.toml").read_text())["fault"]
    for fault in table:
        fault["tests"] = fault["tests"].split()
    chosen = [fault for fault in table if not texts
              or any(text in " ".join([fault["file"], fault["name"], *fault["tests"]]) for text in texts)]
    return sorted(chosen, key=lambda fault: targets_of(fault["tests"]))


def broken(fault):
    """What is wrong with the row, or None."""
    if fault["old"] == fault["new"]:
        return "the fault changes nothing"
    path = ROOT / fault["file"]
    count = path.read_text().count(fault["old"]) if path.exists() else 0
    return None if count == 1 else f"the text is {count} times in its file; allowed: once"


def copy_tree():
    """Makes SOURCE what git would commit here. Files that are the same stay as old as they are."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout
    names = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
    for name in names:
        to = SOURCE / name
        if not to.is_file() or to.read_bytes() != (ROOT / name).read_bytes():
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, to)
    for path in [path for path in SOURCE.rglob("*") if path.is_file()]:
        if str(path.relative_to(SOURCE)) not in names:
            path.unlink()


def build(targets):
    """What the compiler says if it fails, else None."""
    run = subprocess.run(["cmake", "--build", BUILD, "--target", *targets], capture_output=True, text=True, check=False)
    return None if run.returncode == 0 else run.stdout + run.stderr


def failures(tests, seconds):
    """The tests that fail, as ctest names them; the first only if there are several. Says if one did not end in time, of
    those that should take `seconds`, a table which this fills in if none fails."""
    timeout = max(TEST_TIMEOUT_S, *(TEST_SLOWDOWN * seconds.get(test, 60) for test in tests))
    run = subprocess.run(
        ["ctest", "--test-dir", BUILD, "--tests-regex", f"^({'|'.join(tests)})$", "--timeout", str(round(timeout)),
         "--stop-on-failure", "--no-tests=error", "--output-on-failure"], capture_output=True, text=True, check=False)
    (WORK / "last.log").write_text(run.stdout + run.stderr)
    if run.returncode == 0:
        for name, passed in re.findall(r"Test +#\d+: (\S+) .*Passed +([\d.]+) sec", run.stdout):
            seconds.setdefault(name, float(passed))
        return []
    failed = [name + (", which did not end in time" if how == "Timeout" else "")
              for name, how in re.findall(r"Test +#\d+: (\S+) .*\*\*\*(?!Skipped)(\w*)", run.stdout)]
    return failed or ["ctest: see " + str(WORK / "last.log")]


def try_fault(fault, seconds):
    """"caught", "survived" or "error", and why."""
    path = SOURCE / fault["file"]
    text = path.read_text()
    path.write_text(text.replace(fault["old"], fault["new"]))
    try:
        if (output := build(targets_of(fault["tests"]))) is not None:
            return "error", "it does not compile:\n" + output[-3000:]
        failed = failures(fault["tests"], seconds)
        return ("caught", failed[0]) if failed else ("survived", " ".join(fault["tests"]))
    finally:
        path.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="*", metavar="TEXT")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    faults = faults_of(arguments.texts)
    wrong = [f"{fault['file']}: {fault['name']}: {why}" for fault in faults if (why := broken(fault))]
    if not faults:
        wrong.append(f"no fault has one of {arguments.texts}")
    if wrong:
        return "\n".join(wrong)
    if arguments.check:
        print(f"{len(faults)} faults")
        return 0

    copy_tree()
    subprocess.run(["cmake", "-S", SOURCE, "-B", BUILD, "-G", "Ninja", *CONFIGURE], check=True, stdout=subprocess.DEVNULL)
    tests = sorted({test for fault in faults for test in fault["tests"]})
    if (output := build(targets_of(tests))) is not None:
        return "without a fault it does not compile:\n" + output[-3000:]
    seconds = {}
    if failed := failures(tests, seconds):
        return f"without a fault this test fails: {failed[0]}"
    counts = {"caught": 0, "survived": 0, "error": 0}
    for fault in faults:
        began = time.monotonic()
        result, why = try_fault(fault, seconds)
        counts[result] += 1
        print(f"{result:8}  {fault['file']}: {fault['name']}  [{why}]  {time.monotonic() - began:.0f} s", flush=True)
    rate = counts["caught"] / len(faults)
    print(f"{counts['caught']} of {len(faults)} faults caught ({rate:.1%}); survived: {counts['survived']}; "
          f"could not be tried: {counts['error']}")
    return 0 if rate >= LEAST and counts["error"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())

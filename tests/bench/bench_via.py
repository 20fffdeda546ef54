#!/usr/bin/env python3
"""How long reducectl takes to have a file reduced that the server reads in shared memory, and one that is streamed to it,
over a Unix socket: medians, in turns, of the round trip and of the whole process. The files are in the page cache.

usage: bench_via.py BUILD [REPEATS]
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

SIZES_MIB = (1, 2, 3, 4, 8, 16, 64, 256)
TIMEOUT_S = 60


def run_ms(reducectl, address, path, via):
    """The round trip, which begins once the file is read, and the whole run."""
    start = time.perf_counter()
    answer = subprocess.run(
        [reducectl, "reduce", path, "--dtype", "i32", "--op", "sum", "--via", via, "--json", "--server", address],
        check=True,
        capture_output=True,
        timeout=TIMEOUT_S,
    ).stdout
    whole = time.perf_counter() - start
    return json.loads(answer)["timing_us"]["round_trip"] / 1e3, whole * 1e3


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    build, repeats = pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) == 3 else 15
    with tempfile.TemporaryDirectory() as folder:
        address, ready, path = f"unix:{folder}/socket", pathlib.Path(folder) / "ready", pathlib.Path(folder) / "data"
        server = subprocess.Popen([build / "server/reduced", f"--listen={address}", f"--ready_file={ready}"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + TIMEOUT_S
            while not ready.exists() and server.poll() is None and time.monotonic() < deadline:
                time.sleep(0.01)
            print(f"{'ms':>8} {'round trip: region':>18} {'stream':>8} {'whole: region':>13} {'stream':>8}")
            for mib in SIZES_MIB:
                path.write_bytes(os.urandom(mib << 20))
                runs = {"region": [], "stream": []}
                for _ in range(repeats):
                    for via, times in runs.items():
                        times.append(run_ms(build / "client/reducectl", address, path, via))
                (region, region_whole), (stream, stream_whole) = (map(statistics.median, zip(*runs[via])) for via in runs)
                print(f"{mib:>4} MiB {region:>18.2f} {stream:>8.2f} {region_whole:>13.1f} {stream_whole:>8.1f}", flush=True)
        finally:
            server.terminate()
            server.wait(TIMEOUT_S)


if __name__ == "__main__":
    main()

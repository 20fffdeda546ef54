"""reduced/mpi.h: ranks of mpirun have the bits of one server, and the same errors. MPI_RANKS is the program of a rank."""

import os
import subprocess
import sys
import unittest

import harness

DEADLINE_S = 120


class MpiTest(harness.ServedTest):
    def test_ranks(self):
        for ranks in (1, 3, 7):
            with self.subTest(ranks=ranks):
                done = subprocess.run(
                    [os.environ["MPIRUN"], "--allow-run-as-root", "--oversubscribe", "--mca", "btl", "self,vader", "--mca", "pml", "ob1",
                     "-n", str(ranks), os.environ["MPI_RANKS"], self.server.unix],
                    capture_output=True, text=True, timeout=DEADLINE_S, check=False)
                self.assertEqual((done.returncode, done.stdout), (0, "right\n" * ranks), done.stderr)


if __name__ == "__main__":
    if not os.environ.get("MPI_RANKS"):
        print("SKIPPED: the build has found no MPI (Debian: libopenmpi-dev)")
        sys.exit(harness.SKIPPED)
    unittest.main()

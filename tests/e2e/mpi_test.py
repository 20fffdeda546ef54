"""reduced/mpi.h: ranks of mpirun have the bits of one server, and the same errors. MPI_RANKS is the program of a rank."""

import os
import subprocess
import sys
import unittest

import harness

DEADLINE_S = 120
# Of Open MPI: more ranks than cores, as root, over shared memory alone. Others ignore these.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMPI_MCA_btl": "self,vader", "OMPI_MCA_pml": "ob1",
}


class MpiTest(harness.ServedTest):
    def test_ranks(self):
        for ranks in (1, 3, 7):
            with self.subTest(ranks=ranks):
                done = subprocess.run([os.environ["MPIRUN"], "-n", str(ranks), os.environ["MPI_RANKS"], self.server.unix],
                                      capture_output=True, text=True, timeout=DEADLINE_S, check=False, env=harness.environment() | OPEN_MPI)
                self.assertEqual((done.returncode, done.stdout), (0, "right\n" * ranks), done.stderr)


if __name__ == "__main__":
    if not os.environ.get("MPI_RANKS"):
        print("SKIPPED: the build has found no MPI (Debian: libopenmpi-dev)")
        sys.exit(harness.SKIPPED)
    unittest.main()

"""reducectl --server local:, the CPU engine in its own process, against the same commands at a server."""

import gzip
import json
import unittest

import harness
from harness import np

USAGE, SERVER, DATA = 2, 4, 5
OPS = "sum,mean,var,std,min,max,range,argmin,argmax,sum_squares,l1,l2,any,all,count,count_nonzero,nan_count"
INTEGER_OPS = OPS + ",prod,bit_and,bit_or,bit_xor"


class LocalTest(harness.ServedTest):
    def compare(self, *arguments, stdin=b""):
        """Both answer every array of the sources alike, and with the same state if it is one."""
        here = self.answers(*arguments, server="local:", stdin=stdin)
        there = self.answers(*arguments, stdin=stdin)
        self.assertEqual(len(here), len(there))
        for mine, servers in zip(here, there):
            for field in ("source", "column", "array", "dtype", "count", "results", "ddof", "nan_count", "engine", "device",
                          "pipeline", "precision", "bytes", "shape"):
                self.assertEqual(json.dumps(mine.get(field)), json.dumps(servers.get(field)), field)
            self.assertEqual(mine.get("via", "local"), "local")
        return here

    def states(self, *arguments):
        states = []
        for server in ("local:", self.server.unix):
            self.answers("reduce", *arguments, "--state", self.folder / "state", server=server)
            states.append((self.folder / "state").read_bytes())
        self.assertEqual(*states)

    def test_the_same_bits(self):
        random = np.random.default_rng(20)
        floats = random.normal(size=(1201, 1001)) * 10.0 ** random.integers(-200, 200, (1201, 1001))
        floats[7, 7] = np.nan
        large = self.save(floats, "large.npy")  # is read piece by piece
        small = self.save((floats[:7, :11] % 7).astype("f4"), "small.npy")
        fortran = self.save(np.asfortranarray(floats), "fortran.npy")
        integers = self.save(random.integers(-100, 100, 3_000_001).astype("i2"), "integers.npy")
        for nan in ("omit", "propagate"):
            self.compare("reduce", large, small, fortran, "--op", OPS, "--nan", nan, "--ddof", "1")
        self.compare("reduce", integers, "--op", INTEGER_OPS, "--overflow", "wrap")
        self.compare("reduce", self.save(np.empty((0, 3), "f4"), "empty.npy"), "--op", "sum,all,count")
        for each in (large, small, fortran):
            self.states(each, "--op", OPS, "--nan", "omit")
        np.savez(self.folder / "two.npz", a=floats, b=np.arange(5))
        self.compare("reduce", self.folder / "two.npz", "--op", "sum,argmax")
        self.compare("describe", large, integers, self.folder / "two.npz")

    def test_every_source(self):
        raw = np.arange(2_000_000, dtype="u2").tobytes()
        (self.folder / "raw.gz").write_bytes(gzip.compress(raw, 1))
        self.compare("reduce", self.folder / "raw.gz", "--dtype", "u16", "--op", "sum,argmax")
        self.compare("reduce", "-", "--dtype", "u16", "--op", "sum,argmax", stdin=raw)
        lines = "".join(f"{i},{i / 7!r},{'' if i % 5 == 0 else i}\n" for i in range(50_000))
        (self.folder / "a.csv").write_text("a,b,c\n" + lines)
        self.compare("describe", self.folder / "a.csv")
        self.compare("reduce", "-", "--column", "b", "--op", OPS, "--format", "csv", stdin=("a,b,c\n" + lines).encode())

    def test_what_it_runs(self):
        (answer,) = self.answers("reduce", self.save(np.arange(3.0)), "--op", "sum", "--pipeline", "sequential",
                                 server="local:")
        self.assertEqual((answer["pipeline"], answer["reason"]), ("sequential", "local: has no other"))
        self.assertIn("in this process", self.run_reducectl("reduce", self.save(np.arange(3.0)), "-v", server="local:").stdout.decode())
        self.assertEqual(self.answers("ops", server="local:"), self.answers("ops"))
        cpu = [pipeline for pipeline in self.answers("pipelines") if pipeline["engine"] == "cpu"]
        self.assertEqual(self.answers("pipelines", server="local:"), cpu)
        (info,), (servers,) = self.answers("info", server="local:"), self.answers("info")
        self.assertEqual((info["server"], info["version"], info["dtypes"]), ("local:", servers["version"], servers["dtypes"]))
        self.assertEqual(info["devices"][0]["model"], servers["devices"][0]["model"])
        text = self.run_reducectl("info", server="local:").stdout.decode()
        self.assertIn("in this process", text)
        self.assertIn("calibration", text)

    def test_who_takes_it(self):
        array = self.save(np.arange(12.0).reshape(4, 3))
        commands = {"reduce": [array], "describe": [array], "histogram": [array], "compare": [array, array], "fingerprint": [array],
                    "corr": [array], "info": [], "ops": [], "pipelines": []}
        for command, arguments in commands.items():
            self.assertTrue(self.answers(command, *arguments, server="local:"), command)
        *names, last = commands
        error = f"server: got \"local:\"; allowed: the address of a server; local: is for {', '.join(names)} and {last}"
        for command in (["health"], ["doctor"], ["ladder"], ["arrays", "list"], ["arrays", "put", array], ["loadtest"]):
            self.check_failure(USAGE, [error], *command, server="local:")

    def test_errors(self):
        array = self.save(np.arange(3.0))
        self.check_failure(USAGE, ["got --array without files with --server local:; allowed: files"], "reduce", "--array", "x",
                           server="local:")
        for via in ("inline", "stream", "session", "region"):
            self.check_failure(USAGE, [f"got --via {via} with --server local:; allowed: auto"], "reduce", array, "--via", via,
                               server="local:")
        self.check_failure(SERVER, ["engine: got cuda; allowed: auto, cpu"], "reduce", array, "--engine", "cuda", server="local:")
        self.check_failure(SERVER, ["min"], "reduce", self.save(np.empty(0), "empty.npy"), "--op", "min", server="local:")
        self.check_failure(DATA, ["none.npy"], "reduce", self.folder / "none.npy", server="local:")
        truncated = self.folder / "truncated.npy"
        truncated.write_bytes(array.read_bytes()[:-1])
        self.check_failure(DATA, ["truncated.npy"], "reduce", truncated, server="local:")


if __name__ == "__main__":
    unittest.main()

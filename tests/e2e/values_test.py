"""What reducectl answers, against NumPy and, where it is exact, Python's own integers."""

import math
import resource
import signal
import subprocess
import unittest

import harness
from harness import DATA, np

INTEGERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
FLOATS = ["f2", "f4", "f8"]
NAMES = {"?": "bool"} | {code: f"{code[0]}{8 * int(code[1])}" for code in INTEGERS + FLOATS}
FLOAT_OPS = "sum,prod,min,max,mean,var,std,sum_squares,l1,l2,argmin,argmax,any,all,count_nonzero,nan_count"
ALL_OPS = FLOAT_OPS + ",bit_and,bit_or,bit_xor"


def wrapped(value, signed):
    """value modulo 2^64."""
    value %= 1 << 64
    return value - (1 << 64) if signed and value >= 1 << 63 else value


def expected(array):
    """What every op answers about a non-empty array without NaNs, integers under the wrap policy."""
    flat = array.ravel()
    exact = [float(x) if flat.dtype.kind == "f" else int(x) for x in flat]
    answers = {
        "min": flat.min().item(),
        "max": flat.max().item(),
        "argmin": int(flat.argmin()),
        "argmax": int(flat.argmax()),
        "any": bool(flat.any()),
        "all": bool(flat.all()),
        "count_nonzero": int(np.count_nonzero(flat)),
        "nan_count": 0,
        "mean": math.fsum(exact) / len(exact) if flat.dtype.kind == "f" else sum(exact) / len(exact),
        "l2": math.sqrt(math.fsum(float(x) * float(x) for x in exact)),
    }
    mean = answers["mean"]
    answers["var"] = math.fsum((x - mean) ** 2 for x in exact) / len(exact)
    answers["std"] = math.sqrt(answers["var"])
    if flat.dtype.kind == "f":
        answers["sum"] = math.fsum(exact)
        answers["prod"] = math.prod(exact)
        answers["l1"] = math.fsum(map(abs, exact))
        answers["sum_squares"] = math.fsum(x * x for x in exact)
    else:
        signed = flat.dtype.kind == "i"
        answers["sum"] = wrapped(sum(exact), signed)
        answers["prod"] = wrapped(math.prod(exact), signed)
        answers["l1"] = wrapped(sum(map(abs, exact)), False)
        answers["sum_squares"] = wrapped(sum(x * x for x in exact), False)
        for op, reduce in (("bit_and", np.bitwise_and), ("bit_or", np.bitwise_or), ("bit_xor", np.bitwise_xor)):
            answers[op] = reduce.reduce(flat).item()
    return answers


class ValuesTest(harness.ServedTest):
    def check(self, answer, array, name):
        want = expected(array)
        self.assertEqual(answer["dtype"], name)
        self.assertEqual(answer["count"], array.size)
        for op, got in answer["results"].items():
            with self.subTest(dtype=name, op=op):
                self.assertIs(type(got), type(want[op]))
                if op in ("min", "max") and isinstance(got, float):
                    # The decimal needn't be the value, but must read back as it in the array's own dtype.
                    self.assertEqual(array.dtype.type(got), want[op])
                elif isinstance(got, float):
                    self.assertTrue(math.isclose(got, want[op], rel_tol=1e-11), f"{got} != {want[op]}")
                else:
                    self.assertEqual(got, want[op])

    def test_every_integer_dtype(self):
        random = np.random.default_rng(1)
        for code in INTEGERS:
            limits = np.iinfo(code)
            array = random.integers(limits.min, limits.max, (37, 29), dtype=code, endpoint=True)
            answer = self.reduce(self.save(array), ALL_OPS, "--overflow", "wrap")
            self.check(answer, array, NAMES[code])

    def test_bool(self):
        array = np.random.default_rng(2).integers(0, 2, 1001).astype("?")
        self.check(self.reduce(self.save(array), ALL_OPS), array, "bool")

    def test_every_float_dtype(self):
        random = np.random.default_rng(3)
        for code in FLOATS:
            array = random.normal(1, 0.5, (7, 11, 13)).astype(code)
            self.check(self.reduce(self.save(array), FLOAT_OPS), array, NAMES[code])

    def test_floats_of_8_bits_as_raw(self):
        # All numbers of each, from the definitions of the OCP specifications.
        def number(bits, fraction_bits, bias):
            exponent, fraction = (bits & 0x7F) >> fraction_bits, bits & (1 << fraction_bits) - 1
            magnitude = math.ldexp(fraction + ((1 << fraction_bits) if exponent else 0), max(exponent, 1) - bias - fraction_bits)
            return -magnitude if bits & 0x80 else magnitude

        for dtype, numbers in (
            ("f8_e4m3fn", {bits: number(bits, 3, 7) for bits in range(256) if bits & 0x7F != 0x7F}),
            ("f8_e5m2", {bits: number(bits, 2, 15) for bits in range(256) if bits & 0x7F < 0x7C}),
            ("f8_e8m0fnu", {bits: 2.0**(bits - 127) for bits in range(255)}),
        ):
            bits = np.random.default_rng(6).choice(list(numbers), 5000).astype("u1")
            values = np.array([numbers[each] for each in bits.tolist()])
            path = self.folder / f"{dtype}.bin"
            path.write_bytes(b"head" + bits.tobytes())
            answer = self.reduce(path, "sum,min,max,argmax,nan_count,median", "--dtype", dtype, "--offset", 4)
            self.assertEqual((answer["dtype"], answer["count"]), (dtype, 5000))
            exact = sum(int(each * 2**127) for each in values.tolist()) / 2**127
            self.assertEqual(answer["results"], {"sum": exact, "min": values.min(), "max": values.max(), "argmax": values.argmax(), "nan_count": 0,
                                                 "median": float(np.median(values))})
            for wrong in (0x7F, 0xFF):
                path.write_bytes(bits.tobytes() + bytes([wrong]))
                nan = wrong not in numbers
                found = self.reduce(path, "nan_count,count", "--dtype", dtype)["results"]
                self.assertEqual(found, {"nan_count": int(nan), "count": 5001})

    def test_bf16_as_raw(self):
        bits = (np.random.default_rng(4).normal(0, 3, 1000).astype("f4").view("u4") >> 16).astype("u2")
        array = (bits.astype("u4") << 16).view("f4")
        path = self.folder / "bf16.bin"
        path.write_bytes(b"head" + bits.tobytes())
        answer = self.reduce(path, "sum,mean,min,argmax", "--dtype", "bf16", "--offset", 4)
        want = expected(array)
        self.assertEqual((answer["dtype"], answer["count"]), ("bf16", 1000))
        self.assertTrue(math.isclose(answer["results"]["sum"], want["sum"], rel_tol=1e-11))
        self.assertTrue(math.isclose(answer["results"]["mean"], want["mean"], rel_tol=1e-11))
        self.assertEqual(answer["results"]["argmax"], want["argmax"])
        # Within half a unit in the last place of bf16, so that it reads back as the same value.
        self.assertTrue(math.isclose(answer["results"]["min"], want["min"], rel_tol=2**-8))

    def test_lengths(self):
        random = np.random.default_rng(5)
        for length in (1, 2, 31, 32, 33, 1023, 4097, 1000003):
            array = random.integers(-1000, 1000, length, dtype="i4")
            answer = self.reduce(self.save(array), "sum,min,max,argmin,argmax")
            want = expected(array)
            self.assertEqual(answer["results"], {op: want[op] for op in answer["results"]})

    def test_ways_to_send(self):
        array = np.random.default_rng(8).integers(-(2**31), 2**31, 700001, dtype="i4")
        path = self.save(array)
        want = {"sum": int(array.sum(dtype="i8")), "min": int(array.min()), "argmax": int(array.argmax())}
        for arguments, via in (((), "stream"), (("--via", "stream"), "stream"), (("--via", "inline"), "inline")):
            with self.subTest(arguments=arguments):
                answer = self.reduce(path, ",".join(want), *arguments)
                self.assertEqual((answer["via"], answer["results"]), (via, want))
        for length in (0, 1, 1000):
            answer = self.reduce(self.save(array[:length]), "sum", "--via", "stream")
            self.assertEqual((answer["via"], answer["results"]["sum"]), ("stream", sum(int(x) for x in array[:length])))
        self.assertEqual(self.reduce(self.save(array[:1000]), "sum")["via"], "inline")

    def test_several_connections(self):
        array = np.random.default_rng(9).integers(-(2**31), 2**31, 9000001, dtype="i4")  # 34 MiB
        path = self.save(array)
        want = {"sum": int(array.sum(dtype="i8")), "argmin": int(array.argmin()), "argmax": int(array.argmax())}
        for connections in ("1", "3", "64"):
            with self.subTest(connections=connections):
                answer = self.reduce(path, ",".join(want), "--via", "stream", "--connections", connections)
                self.assertEqual((answer["via"], answer["results"]), ("stream", want))
                self.assertEqual((answer["count"], answer["bytes"]), (array.size, array.nbytes))

    def test_exact_sums(self):
        random = np.random.default_rng(10)
        half = random.standard_normal(50001) * 2.0 ** random.integers(-200, 200, 50001)
        array = np.concatenate([half, -half, random.standard_normal(7)])
        random.shuffle(array)
        want = {"sum": math.fsum(array), "l1": math.fsum(np.abs(array))}
        path = self.save(array)
        for via in ("inline", "stream", "session", "region"):
            answer = self.reduce(path, "sum,l1", "--precision", "exact", "--via", via)
            self.assertEqual((answer["precision"], answer["results"]), ("exact", want))
        by_default = self.reduce(path, "sum,l1")
        self.assertEqual((by_default["precision"], by_default["results"]), ("exact", want))
        self.assertEqual(self.reduce(path, "sum", "--precision", "f64")["precision"], "f64")
        self.assertEqual(self.reduce(path, "sum", "--pipeline", "sequential")["precision"], "f64")

    def test_states_merge(self):
        array = np.random.default_rng(11).standard_normal(30001).astype("f4")
        ops = "sum,var,l2,argmin,argmax,nan_count"
        whole = self.reduce(self.save(array), ops, "--precision", "exact")
        states = []
        for i, part in enumerate(np.split(array, [1, 20000])):
            states.append(self.folder / f"{i}.state")
            self.reduce(self.save(part), ops, "--precision", "exact", "--state", states[-1])
        (merged,) = self.answers("merge", *states)
        self.assertEqual(merged, {"count": array.size, "results": whole["results"]})
        first = self.folder / "first.state"
        self.answers("merge", *states[:2], "--state", first)
        (again,) = self.answers("merge", first, states[2])
        self.assertEqual(again, merged)
        no_server = f"unix:{self.folder}/nobody"
        table = self.run_reducectl("merge", *states, server=no_server).stdout.decode()
        self.assertIn("30001 elements\n  sum", table)
        self.assertIn(str(whole["results"]["sum"]), table)

    def test_what_is_no_state_is_refused(self):
        path = self.save(np.ones(3))
        state, other = self.folder / "state", self.folder / "other"
        self.reduce(path, "sum", "--state", state)
        self.reduce(path, "mean", "--state", other)
        self.check_failure(5, [f"{other}: ops: got another than the first state has"], "merge", state, other)
        self.check_failure(5, [f"{path}: ", "aren't a state"], "merge", path)
        self.check_failure(5, ["nowhere"], "merge", self.folder / "nowhere")
        self.check_failure(2, ["--state", "got 2 inputs"], "reduce", path, path, "--state", state)
        # A state is replaced as a whole or stays as it was.
        before = state.read_bytes()
        link = self.folder / "link"
        link.symlink_to(state)

        def only_small_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))

        run = subprocess.run(
            harness.command("reduce", self.save(np.arange(9.0)), "--op", "sum,min,var", "--state", link),
            capture_output=True,
            timeout=harness.DEADLINE_S,
            env=harness.environment(self.server.unix),
            preexec_fn=only_small_files,
            check=False,
        )
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertIn(b"cannot be written: File too large", run.stderr)
        self.assertEqual(state.read_bytes(), before)
        self.assertEqual([each for each in self.folder.iterdir() if each.suffix[1:].isdigit()], [])
        self.reduce(path, "min", "--state", link)
        self.assertTrue(link.is_symlink())
        self.assertNotEqual(state.read_bytes(), before)

    def test_extreme_integers_are_exact(self):
        array = np.array([2**63 - 1, -(2**63), 2**63 - 1], dtype="i8")
        answer = self.reduce(self.save(array), "sum,min,max,argmin")
        self.assertEqual(answer["results"], {"sum": 2**63 - 2, "min": -(2**63), "max": 2**63 - 1, "argmin": 1})
        array = np.array([2**64 - 1], dtype="u8")
        self.assertEqual(self.reduce(self.save(array), "max")["results"], {"max": 2**64 - 1})

    def test_overflow_policies(self):
        path = self.save(np.array([2**63 - 1, 1], dtype="i8"))
        self.check_failure(4, ["sum", "(OUT_OF_RANGE)"], "reduce", path, "--op", "sum")
        self.assertEqual(self.reduce(path, "sum", "--overflow", "wrap")["results"]["sum"], -(2**63))
        self.assertEqual(self.reduce(path, "sum", "--overflow", "saturate")["results"]["sum"], 2**63 - 1)

    def test_a_decimal_is_the_shortest_of_its_dtype(self):
        for code in FLOATS:
            path = self.save(np.array([0.1, 0.3], dtype=code))
            run = self.run_reducectl("reduce", path, "--op", "min,max", "--json")
            self.assertIn(b'"min": 0.1, "max": 0.3}', run.stdout)

    def test_nan_and_infinities(self):
        path = self.save(np.array([1, np.inf, 3, np.nan, -2], dtype="f4"))
        self.assertEqual(
            self.reduce(path, "sum,min,max,argmin,argmax,nan_count,any,all")["results"],
            {"sum": "NaN", "min": "NaN", "max": "NaN", "argmin": 3, "argmax": 3, "nan_count": 1, "any": True, "all": True},
        )
        self.assertEqual(
            self.reduce(path, "sum,min,max,argmin,argmax,nan_count", "--nan", "omit")["results"],
            {"sum": "Infinity", "min": -2.0, "max": "Infinity", "argmin": 4, "argmax": 1, "nan_count": 1},
        )
        path = self.save(np.array([-np.inf, 0], dtype="f8"))
        self.assertEqual(self.reduce(path, "sum,mean")["results"], {"sum": "-Infinity", "mean": "-Infinity"})

    def test_empty_and_scalar(self):
        path = self.save(np.zeros((3, 0), dtype="f4"))
        answer = self.reduce(path, "sum,prod,any,all,count_nonzero,mean")
        self.assertEqual(answer["count"], 0)
        self.assertEqual(
            answer["results"], {"sum": 0.0, "prod": 1.0, "any": False, "all": True, "count_nonzero": 0, "mean": "NaN"}
        )
        answer = self.reduce(self.save(np.array(2.5)), "sum,argmin")
        self.assertEqual((answer["count"], answer["results"]), (1, {"sum": 2.5, "argmin": 0}))

    def test_ddof(self):
        path = self.save(np.array([1.0, 2, 4]))
        self.assertTrue(math.isclose(self.reduce(path, "var", "--ddof", 1)["results"]["var"], 7 / 3, rel_tol=1e-14))
        self.assertEqual(self.reduce(path, "var", "--ddof", 3)["results"]["var"], "NaN")

    def test_engine_and_pipeline_are_reported(self):
        answer = self.reduce(self.save(np.ones(10)), "sum", "--engine", "cpu")
        self.assertEqual((answer["engine"], answer["device"]), ("cpu", "cpu"))
        again = self.reduce(self.save(np.ones(10)), "sum", "--pipeline", answer["pipeline"])
        self.assertEqual((again["engine"], again["pipeline"]), ("cpu", answer["pipeline"]))


class MaunaLoaTest(harness.ServedTest):
    """The sums are Python's math.fsum over the values as f64; the rest follows from them."""

    def test_npy(self):
        results = self.reduce(DATA / "co2.npy", "sum,min,argmin,nan_count,count_nonzero")["results"]
        self.assertEqual(
            results, {"sum": "NaN", "min": "NaN", "argmin": 6, "nan_count": 59, "count_nonzero": 2284}
        )

    def check(self, answer, dtype, total, mean, variance):
        results = answer["results"]
        self.assertEqual((answer["dtype"], answer["count"]), (dtype, 2284))
        self.assertEqual(
            {op: results[op] for op in ("min", "max", "argmin", "argmax", "nan_count")},
            {"min": 313.0, "max": 373.9, "argmin": 32, "argmax": 2250, "nan_count": 59},
        )
        for op, want in (("sum", total), ("mean", mean), ("var", variance)):
            self.assertTrue(math.isclose(results[op], want, rel_tol=1e-13), f"{op}: {results[op]} != {want}")

    def test_npy_without_the_gaps(self):
        answer = self.reduce(
            DATA / "co2.npy", "sum,mean,var,min,max,argmin,argmax,nan_count", "--nan", "omit"
        )
        self.check(answer, "f32", 756816.5004882812, 340.1422474104635, 289.0021522794738)

    def test_csv_without_the_gaps(self):
        for column in ("co2", "1"):
            answer = self.reduce(
                DATA / "co2.csv", "sum,mean,var,min,max,argmin,argmax,nan_count", "--column", column, "--nan", "omit"
            )
            self.check(answer, "f64", 756816.5, 340.1422471910112, 289.00215225350337)


if __name__ == "__main__":
    unittest.main()

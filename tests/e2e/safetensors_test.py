"""Models in .safetensors files by reducectl: fingerprints, comparisons, statistics, and files that are none."""

import gzip
import json
import struct
import unittest

import harness
from harness import np

OK, DIFFERENT, DATA = 0, 1, 5
LOCAL = ("--server", "local:")
P = 2**61 - 1
BASES = (0x0D413CCCFE779921, 0x176CF5D0B09954E7)
# Arrays of integers with a name are the bits of another dtype.
NAMES = {"float32": "F32", "float64": "F64", "float16": "F16", "int64": "I64", "uint8": "U8", "bool": "BOOL", "complex64": "C64"}
BITS = {"layer.weight": "BF16", "layer.scale": "F8_E4M3", "layer.small": "F8_E5M2", "layer.power": "F8_E8M0", "layer.other": "F8_E4M3FNUZ"}


def fingerprint(data, size):
    """By the formula of the proto, of the bytes of elements of so many bytes."""
    width = min(size, 4)
    words = [int.from_bytes(data[i : i + width], "little") for i in range(0, len(data), width)]
    return "".join(f"{(size + a * sum((word + 1) * pow(a, j, P) for j, word in enumerate(words))) % P:016x}" for a in BASES)


def of_model(lines):
    """Of [name, dtype, shape, fingerprint] of each tensor."""
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in sorted(lines))
    return fingerprint(text.encode(), 1)


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def file_of(header, data=b"", size=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + data


def model_of(tensors, **metadata):
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, array in tensors.items():
        header[name] = entry(BITS.get(name) or NAMES[array.dtype.name], list(array.shape), len(data), len(data) + array.nbytes)
        data += array.tobytes()
    return file_of(header, data)


class SafetensorsTest(harness.ServedTest):
    def setUp(self):
        super().setUp()
        random = np.random.default_rng(5)
        self.tensors = {
            "embed.weight": random.normal(size=(300, 40)).astype("f4"),
            "layer.weight": (random.normal(size=(4, 6)).astype("f4").view("u4") >> 16).astype("u2"),
            "layer.scale": np.array([0x38, 0xB9, 0x07], "u1"),
            "layer.small": np.array([0x3C, 0xC0, 0x01, 0x7C], "u1"),  # 1, -2, 2^-16, an infinity
            "layer.power": np.array([127, 0, 130, 254], "u1"),  # 1, 2^-127, 8, 2^127
            "layer.other": np.array([0x38, 0xB9, 0x07], "u1"),
            "waves": (random.normal(size=4) + 1j).astype("c8"),
            "steps": np.array(12345),
            "mask": np.array([True, False, True]),
            "nothing": np.zeros((0, 3), "f2"),
        }
        self.raw = {"waves": "c64", "layer.other": "f8_e4m3fnuz"}
        self.dtypes = self.raw | {"layer.scale": "f8_e4m3fn", "layer.small": "f8_e5m2", "layer.power": "f8_e8m0fnu", "embed.weight": "f32", "layer.weight": "bf16", "steps": "i64", "mask": "bool", "nothing": "f16"}

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content)
        return path

    def lines(self, *arguments, code=OK):
        """The objects that are printed, which are the same at a server and in the process of reducectl."""
        found = []
        for place in ((), LOCAL):
            run = self.run_reducectl("--json", *arguments, *place)
            self.assertEqual(run.returncode, code, run.stderr.decode())
            found.append([json.loads(line) for line in run.stdout.splitlines()])
        self.assertEqual(found[0], found[1])
        return found[0]

    def right(self):
        """[name, dtype, shape, fingerprint] of each tensor."""
        return [[name, self.dtypes[name], list(array.shape), fingerprint(array.tobytes(), array.dtype.itemsize)]
                for name, array in self.tensors.items()]

    def sharded(self):
        names = list(self.tensors)
        files = {"m-1.safetensors": names[3:], "m-2.safetensors": names[:3]}
        for file, some in files.items():
            self.write(file, model_of({name: self.tensors[name] for name in some}))
        return self.write("m.safetensors.index.json", json.dumps({
            "metadata": {"total_size": 1}, "weight_map": {name: file for file, some in files.items() for name in some}}).encode())

    def test_fingerprints(self):
        right, model = self.right(), of_model(self.right())
        path = self.write("m.safetensors", model_of(self.tensors, format="pt"))
        index = self.sharded()
        for source in (path, index, self.write("m.safetensors.gz", gzip.compress(path.read_bytes())), self.write("unnamed", path.read_bytes())):
            *tensors, whole = self.lines("fingerprint", source)
            self.assertEqual(sorted([each["array"], each["dtype"], each["shape"], each["fingerprint"]] for each in tensors), sorted(right))
            self.assertEqual((whole["fingerprint"], whole["arrays"]), (model, len(right)))
        self.assertEqual([each["array"] for each in self.lines("fingerprint", path)[:-1]], list(self.tensors))  # in the order of the file
        run = self.run_reducectl("fingerprint", "-q", path, index)
        self.assertEqual(run.stdout.decode(), f"{model}  {path}\n{model}  {index}\n")
        one, whole = self.lines("fingerprint", path, "--array", "steps")
        self.assertEqual(one["fingerprint"], right[list(self.tensors).index("steps")][3])
        self.assertNotEqual(whole["fingerprint"], model)

    def test_other_files_have_fingerprints_too(self):
        array = np.arange(24, dtype="f8").reshape(4, 6)
        found = fingerprint(array.tobytes(), 8)
        for path in (self.save(array), self.save(np.asfortranarray(array), "fortran.npy")):
            self.assertEqual(self.lines("fingerprint", path)[-1]["fingerprint"], found)
            (answer,) = self.answers("reduce", path, "--op", "fingerprint")
            self.assertEqual(answer["results"]["fingerprint"], found)
        run = self.run_reducectl("reduce", path, "--op", "fingerprint", "--axis", "1", "-q")
        self.assertEqual(run.stdout.decode().split(), (f"[{' '.join(fingerprint(row.tobytes(), 8) for row in array)}]").split())
        states = []
        for number, (rows, columns) in enumerate([(slice(0, 2), slice(0, 6)), (slice(2, 4), slice(0, 1)), (slice(2, 4), slice(1, 6))]):
            part = self.save(np.ascontiguousarray(array[rows, columns]), f"part{number}.npy")
            states.insert(0, self.folder / f"{number}.state")
            self.run_reducectl("reduce", part, "--op", f"fingerprint(shape=4,6;offset={rows.start},{columns.start})", "--state", states[0])
        self.assertIn(found, self.run_reducectl("merge", *states).stdout.decode())

    def test_statistics(self):
        path = self.write("m.safetensors", model_of(self.tensors))
        run = self.run_reducectl("--json", "describe", path)
        self.assertEqual(run.returncode, DATA)
        self.assertIn("tensor 'layer.other' is not read: dtype F8_E4M3FNUZ\n", run.stderr.decode())
        described = {each["array"]: each["results"] for each in map(json.loads, run.stdout.splitlines())}
        self.assertEqual(list(described), [name for name in self.tensors if name not in self.raw])
        self.assertEqual(described["embed.weight"]["max"], float(str(self.tensors["embed.weight"].max())))
        (answer,) = self.answers("reduce", path, "--array", "layer.weight", "--op", "sum")
        self.assertEqual(answer["results"]["sum"], float((self.tensors["layer.weight"].astype("u4") << 16).view("f4").astype("f8").sum()))
        self.assertEqual((described["layer.scale"]["min"], described["layer.scale"]["max"]), (-1.125, 1.0))
        for name, dtype, results in (("layer.scale", "f8_e4m3fn", {"sum": -0.125 + 7 * 2**-9, "max": 1.0, "argmin": 1}),
                                     ("layer.small", "f8_e5m2", {"sum": "Infinity", "min": -2.0, "argmax": 3}),
                                     ("layer.power", "f8_e8m0fnu", {"sum": 2.0**127, "min": 2.0**-127, "argmax": 3})):
            (answer,) = self.answers("reduce", path, "--array", name, "--op", ",".join(results))
            self.assertEqual((answer["dtype"], answer["results"]), (dtype, results))
        run = self.run_reducectl("reduce", path, "--array", "none")
        self.assertIn("array: got 'none'; allowed: 'embed.weight', 'layer.weight'", run.stderr.decode())

    def test_comparisons(self):
        before = self.write("a.safetensors", model_of(self.tensors))
        self.assertTrue(all(each["equal"] for each in self.lines("compare", before, self.sharded())))
        tensors = {name: array.copy() for name, array in self.tensors.items()}
        tensors["layer.weight"][1, 2] = 0x4110  # 9
        tensors["layer.scale"][1] = 2
        tensors["layer.other"][1] = 2
        tensors["steps"] = np.array([12345])
        tensors["waves"] = tensors["waves"].view("f4")
        del tensors["mask"]
        tensors["new"] = np.ones(2)
        after = self.write("b.safetensors", model_of(tensors))
        found = {each["array"]: each for each in self.lines("compare", before, after, code=DIFFERENT)}
        self.assertEqual([name for name, each in found.items() if each["equal"]], ["embed.weight", "layer.small", "layer.power", "nothing"])
        self.assertEqual(found["layer.weight"]["results"]["first_index"], [1, 2])
        self.assertEqual((found["layer.scale"]["dtypes"], found["layer.scale"]["results"]["first_index"]), (["f8_e4m3fn"] * 2, [1]))
        self.assertEqual((found["layer.other"]["bytes_of"], found["layer.other"]["results"]["first_index"]), ("F8_E4M3FNUZ", [1]))
        self.assertEqual(found["steps"]["difference"], "the shapes differ: i64 () and i64 (1)")
        self.assertEqual(found["waves"]["difference"], "the dtypes differ: C64 and f32")
        self.assertEqual(found["mask"]["difference"], f"only {before} has it")
        self.assertEqual(found["new"]["difference"], f"only {after} has it")
        bits = self.tensors["layer.other"]
        other = self.write("c.safetensors", file_of({"layer.other": entry("U8", [3], 0, 3)}, bits.tobytes()))
        (one,) = (each for each in self.lines("compare", before, other, code=DIFFERENT) if each["array"] == "layer.other")
        self.assertEqual(one["difference"], "the dtypes differ: F8_E4M3FNUZ and u8")

    def test_what_is_refused(self):
        u8 = entry("U8", [2], 0, 2)
        for content, message in [
            (b"\1\2", "got 2 bytes; allowed: 8 and more"),
            (file_of({}, size=2**63), "header: got 9223372036854775808 bytes; allowed: up to 2"),
            (file_of(b"[]"), "header: got no JSON; allowed: an object"),
            (file_of(b'{"a":' + b"[" * 100_000), "header: tensor 'a': got a list; allowed: an object with dtype, shape and data_offsets"),
            (file_of(b'{"a":{"dtype":' + b'{"a":' * 100_000), "header: tensor 'a'.dtype: got an object; allowed: a text"),
            (file_of(b'{"\xff":{}}'), "header: got no JSON in UTF-8 from byte"),
            (file_of(b'{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"a":{}}', bytes(2)), "header: got the name 'a' twice; allowed: once"),
            (file_of({"a": {"dtype": "U8", "shape": [2]}}, bytes(2)), "header: tensor 'a': got no data_offsets; allowed: one"),
            (file_of({"a": u8 | {"strides": [1]}}, bytes(2)), "got a field 'strides'; allowed: an object with dtype, shape and data_offsets"),
            (file_of({"a": u8 | {"shape": [-2]}}, bytes(2)), "tensor 'a'.shape: got -2; allowed: a list of up to 64 lengths"),
            (file_of({"a": u8 | {"shape": [1] * 65}}, bytes(2)), "tensor 'a'.shape: got more than 64 numbers"),
            (file_of({"a": u8 | {"data_offsets": [0, 2, 4]}}, bytes(2)), "tensor 'a'.data_offsets: got more than 2 numbers"),
            (file_of({"a": u8, "b": entry("U8", [2], 1, 3)}, bytes(3)), "tensor 'b'.data_offsets: got 1 after 2; allowed: neither holes nor"),
            (file_of({"a": u8, "b": entry("U8", [2], 3, 5)}, bytes(5)), "tensor 'b'.data_offsets: got 3 after 2; allowed: neither holes nor"),
            (file_of({"a": u8}, bytes(1)), "tensor 'a'.data_offsets: got 2; allowed: 0 to 1, the bytes of the file after the header"),
            (file_of({"a": u8}, bytes(3)), "data: got 3 bytes; allowed: 2, which the tensors have"),
            (file_of({"a": entry("F32", [2**62, 2**62], 0, 0)}), "got 0 bytes; allowed: a whole number below 2^61, of F32"),
            (file_of({"a": entry("F32", [3], 0, 2)}, bytes(2)), "got 2 bytes; allowed: 12, of F32 (3)"),
            (file_of({"__metadata__": {"a": 1}}), "header: __metadata__.a: got 1; allowed: texts"),
            (file_of({}), "has no tensor"),
        ]:
            run = self.run_reducectl("fingerprint", self.write("bad.safetensors", content))
            self.assertEqual(run.returncode, DATA)
            self.assertIn(message, run.stderr.decode())
            self.assertEqual(run.stdout, b"")
        self.sharded()
        for index, message in [
            ({"weight_map": {"steps": "../m-1.safetensors"}}, "weight_map.'steps': got '../m-1.safetensors'; allowed: the name of a file in the folder"),
            ({"weight_map": {"steps": "m-2.safetensors"}}, "got 'steps' in 'm-2.safetensors', which lacks it; allowed: tensors that the file has"),
            ({"weight_map": {"steps": "m-3.safetensors"}}, "'m-3.safetensors': can't be opened: No such file"),
            ({"weight_map": {"steps": 1}}, "weight_map.'steps': got 1; allowed: the name of a file"),
            ({"metadata": {}}, "got no weight_map; allowed: one"),
        ]:
            run = self.run_reducectl("fingerprint", self.write("bad.safetensors.index.json", json.dumps(index).encode()))
            self.assertEqual(run.returncode, DATA)
            self.assertIn(message, run.stderr.decode())
        run = self.run_reducectl("fingerprint", self.write("some.safetensors.index.json", b'{"weight_map":{"steps":"m-1.safetensors"}}'))
        self.assertIn("is read without 6 tensors of 'm-1.safetensors' that it does not name", run.stderr.decode())
        run = self.run_reducectl("reduce", self.folder / "m-1.safetensors", "--dtype", "f32")
        self.assertIn("is a .safetensors file, which has its own dtype", run.stderr.decode())


if __name__ == "__main__":
    unittest.main()

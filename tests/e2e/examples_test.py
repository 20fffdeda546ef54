"""The clients of proto/examples, which have nothing but the .proto."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import harness

PROTO = pathlib.Path(__file__).resolve().parent.parent.parent / "proto"
EXAMPLES = PROTO / "examples"


class ExamplesTest(harness.ServedTest):
    def setUp(self):
        super().setUp()
        self.shell([os.environ["PROTOC"], f"--python_out={self.folder}", f"-I{PROTO}", PROTO / "reduced/v1/reduced.proto"])

    def shell(self, command, **keywords):
        run = subprocess.run(
            command,
            env=os.environ | {"PYTHONPATH": str(self.folder)},
            capture_output=True,
            timeout=harness.DEADLINE_S,
            check=False,
            **keywords,
        )
        self.assertEqual(run.returncode, 0, run.stderr.decode())
        return run.stdout.decode()

    def test_every_example_is_tested(self):
        self.assertEqual({file.name for file in EXAMPLES.iterdir() if file.is_file()}, {"grpcurl.sh", "large_answer.py", "reduce.py", "regions.py", "ring.py"})

    def test_reduce(self):
        out = self.shell([sys.executable, "-B", EXAMPLES / "reduce.py", self.server.tcp])
        answer = r"\{'OP_SUM': 499999500000.0, 'OP_MAX': 999999.0\} in \d+ us on cpu\n"
        self.assertRegex(out, rf"\A{answer}{answer}INVALID_ARGUMENT: op bit_and: [^\n]*: [0-9a-f]+-[0-9a-f]+\n\Z")

    def test_regions(self):
        out = self.shell([sys.executable, "-B", EXAMPLES / "regions.py", self.server.unix])
        self.assertEqual(out, "499999500000.0\n")

    def test_large_answer(self):
        out = self.shell([sys.executable, "-B", EXAMPLES / "large_answer.py", self.server.unix])
        answer = r": 8000000 bytes, 1.0 to 3999997.0\n"
        self.assertRegex(
            out, rf"\ARESOURCE_EXHAUSTED: [^\n]*4194304\)\nin the response{answer}in chunks{answer}in a region{answer}\Z"
        )
        self.assertEqual(self.server.metric("reduced_arrays"), {"": 0}, "it deletes what it kept")

    def test_ring(self):
        out = self.shell([sys.executable, "-B", EXAMPLES / "ring.py", self.server.unix])
        time = r" \([\d.]+ us\)\n"
        self.assertRegex(out, rf"\A6.0{time}499500.0{time}4999950000.0{time}\Z")

    def test_the_request_of_grpcurl(self):
        """As JSON of protobuf, whether or not grpcurl is there."""
        body = re.search(r"-d '(\{.*?\})'", (EXAMPLES / "grpcurl.sh").read_text(), re.DOTALL)[1]
        program = """if True:
            import sys, grpc
            from google.protobuf import json_format
            from reduced.v1 import reduced_pb2 as pb
            request = json_format.Parse(sys.stdin.read(), pb.ReduceRequest())
            call = grpc.insecure_channel(sys.argv[1]).unary_unary(
                "/reduced.v1.Reduction/Reduce", pb.ReduceRequest.SerializeToString, pb.ReduceResponse.FromString)
            print([result.value.f for result in call(request, timeout=10).results])
        """
        out = self.shell([sys.executable, "-B", "-c", program, self.server.tcp], input=body.encode())
        self.assertEqual(out, "[10.0, 2.5]\n")

    @unittest.skipIf(shutil.which("grpcurl") is None, "grpcurl isn't installed")
    def test_grpcurl(self):
        self.assertIn('"f": 2.5', self.shell([EXAMPLES / "grpcurl.sh", self.server.tcp]))


if __name__ == "__main__":
    unittest.main()

"""A server in a control group of 1 GiB, attacked: what clients send makes it refuse, and never takes it away from others."""

import concurrent.futures
import contextlib
import importlib
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import unittest

import grpc
import harness
import numpy as np

LIMIT = 1 << 30
PROTOS = pathlib.Path(__file__).resolve().parent.parent.parent / "proto"
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED


class ControlGroup:
    """Of this test alone, with a limit of memory; version 1 or 2. Raises OSError where none can be made."""

    def __init__(self):
        for top, limit, peak in (
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
            ("/sys/fs/cgroup", "memory.max", "memory.peak"),
        ):
            self._folder = pathlib.Path(top) / f"reduced_test_{os.getpid()}"
            self._peak = self._folder / peak
            with contextlib.suppress(OSError):
                self._folder.mkdir()
                if (self._folder / limit).exists():
                    (self._folder / limit).write_text(str(LIMIT))
                    return
                self._folder.rmdir()
        raise OSError("no control group of memory can be made here")

    def command(self):
        """What starts a program in it."""
        return ("/bin/sh", "-c", f'echo $$ > {self._folder}/cgroup.procs && exec "$@"', "sh")

    def peak(self):
        return int(self._peak.read_text())

    def remove(self):
        self._folder.rmdir()


class MemoryLimitTest(harness.ServedTest):
    @classmethod
    def setUpClass(cls):
        try:
            cls.group = ControlGroup()
        except OSError as why:
            raise unittest.SkipTest(str(why)) from None
        cls.addClassCleanup(cls.group.remove)
        protos = tempfile.TemporaryDirectory()
        cls.addClassCleanup(protos.cleanup)
        subprocess.run(
            [os.environ["PROTOC"], f"--python_out={protos.name}", f"-I{PROTOS}", PROTOS / "reduced/v1/reduced.proto"],
            timeout=harness.DEADLINE_S,
            check=True,
        )
        sys.path.insert(0, protos.name)
        cls.pb = importlib.import_module("reduced.v1.reduced_pb2")
        # No machine reads the whole of the sparse file in this time, and each reads a part of it.
        cls.server = harness.Server("--cuda=false", "--max_run_time=30s", before=cls.group.command())

    def setUp(self):
        super().setUp()
        self.channel = grpc.insecure_channel(
            self.server.unix, options=[("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        )
        self.addCleanup(self.channel.close)

    def tearDown(self):
        """Whatever was done to it, the server serves, within its limit."""
        self.assertIsNone(self.server.process.poll(), self.server.log())
        answer = self.reduce(self.save(np.arange(100_000, dtype=np.int32)), "sum", "--via", "inline")
        self.assertEqual(answer["results"]["sum"], 4999950000)
        self.assertLessEqual(self.group.peak(), LIMIT)

    def call(self, method, message, timeout=harness.DEADLINE_S):
        """Sends the bytes; gives the status."""
        rpc = self.channel.unary_unary(f"/reduced.v1.Reduction/{method}")
        try:
            rpc(message, timeout=timeout)
            return grpc.StatusCode.OK, ""
        except grpc.RpcError as error:
            return error.code(), error.details()

    def test_the_budget_knows_the_limit(self):
        self.assertRegex(self.server.log(), r"memory: 576 MiB for requests, 192 MiB for the transport's buffers")

    def test_uploads_that_wait_for_a_lane(self):
        elements = bytes(60 << 20)
        request = self.pb.ReduceRequest(ops=[self.pb.OP_SUM, self.pb.OP_VAR], inline_data=elements)
        request.array.CopyFrom(self.pb.ArraySpec(dtype=self.pb.DTYPE_I8, shape=[len(elements)]))
        message = request.SerializeToString()
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            statuses = list(pool.map(lambda _: self.call("Reduce", message), range(48)))
        codes = {code for code, _ in statuses}
        self.assertIn(grpc.StatusCode.OK, codes, statuses[:3])
        self.assertLessEqual(codes, {grpc.StatusCode.OK, EXHAUSTED, grpc.StatusCode.UNAVAILABLE}, statuses[:3])

    def test_a_ladder_of_4_gib(self):
        run = self.run_reducectl("ladder", "--n", "1Gi", "--dtype", "i32", "--pipeline", "sequential,recursive_pairs")
        self.assertEqual(run.returncode, 4)
        self.assertRegex(run.stderr.decode(), r"no memory for the array of a ladder, 4294967296 bytes")
        # The array fits, the scratch memory of the rung doesn't.
        run = self.run_reducectl("ladder", "--n", "64Mi", "--dtype", "i32", "--pipeline", "recursive_pairs")
        self.assertEqual(run.returncode, 4)
        self.assertRegex(run.stderr.decode(), r"pipeline recursive_pairs needs memory of its own")

    def test_millions_of_states_in_one_message(self):
        code, details = self.call("Merge", b"\x0a\x00" * (31 << 20))
        self.assertEqual(code, grpc.StatusCode.INVALID_ARGUMENT, details)

    def test_messages_of_fields_that_nobody_knows(self):
        unknown = b"\x7a\x00" * (31 << 20)
        length = b"\x80\x80\x80\x1f"  # of them
        for method, message in (
            ("Reduce", unknown),
            ("Merge", b"\x0a" + length + unknown),
            ("Merge", b"\x1a" + length + unknown),
        ):
            code, details = self.call(method, message)
            self.assertEqual(code, grpc.StatusCode.INVALID_ARGUMENT, details)
            self.assertRegex(details, "more than 1000 unknown fields")

    def test_a_file_of_8_tib_that_takes_no_memory(self):
        info = self.pb.GetServerInfoResponse.FromString(
            self.channel.unary_unary("/reduced.v1.Reduction/GetServerInfo")(b"", timeout=harness.DEADLINE_S)
        )
        memory = os.memfd_create("sparse")
        self.addCleanup(os.close, memory)
        os.ftruncate(memory, 8 << 40)
        door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(door.close)
        door.settimeout(harness.DEADLINE_S)
        door.connect(info.region_socket)
        socket.send_fds(door, [b'{"shareMemory": {}}'], [memory])
        token = re.search(rb'"token": ?"([^"]+)"', door.recv(4096))[1].decode()

        def request(tib):
            whole = self.pb.ReduceRequest(ops=[self.pb.OP_SUM], region=self.pb.RegionPart(token=token))
            whole.array.CopyFrom(self.pb.ArraySpec(dtype=self.pb.DTYPE_I64, shape=[int(tib * (1 << 37))]))
            return whole.SerializeToString()

        code, details = self.call("Reduce", request(8))
        self.assertEqual(code, grpc.StatusCode.INVALID_ARGUMENT, details)
        self.assertIn("--max_run_time", details)
        # Shorter ones run, are given up before they end, and leave their lanes and the queue to others at once.
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            codes = set(pool.map(lambda _: self.call("Reduce", request(1 / 64), timeout=0.05)[0], range(8)))
        self.assertLessEqual(codes, {grpc.StatusCode.DEADLINE_EXCEEDED, EXHAUSTED})
        honest = self.reduce(self.save(np.ones(1 << 20)), "sum", "--via", "inline", "--timeout", "10s")
        self.assertEqual(honest["results"]["sum"], 1 << 20)

    def test_arrays_beyond_the_budget(self):
        path = self.save(np.zeros(40 << 20, dtype=np.int8))
        kept = []
        for _ in range(20):
            run = self.run_reducectl("--json", "arrays", "put", path)
            if run.returncode != 0:
                self.assertRegex(run.stderr.decode(), "RESOURCE_EXHAUSTED")
                break
            kept.append(re.search(rb'"id": ?"([^"]+)"', run.stdout)[1].decode())
        else:
            self.fail("800 MiB were kept")
        self.assertGreater(len(kept), 5)
        self.assertEqual(self.run_reducectl("arrays", "delete", *kept).returncode, 0)


if __name__ == "__main__":
    unittest.main()

"""Clients that never read: every RPC, over many streams and connections whose windows are 0. What the server holds for them is in
its budget until they are gone, leaves room for other callers, and comes back."""

import importlib
import os
import pathlib
import select
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import grpc
import harness
import numpy as np
from connections_test import PREFACE, connect
from http2_test import END_HEADERS, HEADERS, MIB, SETTINGS, WINDOW_UPDATE, call_headers, frame

DATA, GOAWAY = 0, 7
END_STREAM = 1
INITIAL_WINDOW_SIZE = 4
PROTOS = pathlib.Path(__file__).resolve().parent.parent.parent / "proto"

BUDGET_MIB = 256  # for requests: --memory_bytes less what the transport has
TRANSPORT_MIB = 128  # twice --max_message_bytes and more
# Beside it: small calls, connections, what gRPC has for each call, and messages that arrive.
CONSTANT_MIB = 128
HEAPS_MIB = 256  # free memory that the process keeps
PATIENCE_S = 2  # for the server to read a message
OUTPUTS = 1 << 20  # 8 MiB of results


class Unread:
    """A connection that grants no window, whose server sends nothing but headers."""

    def __init__(self, address, source=None, window=0):
        self._socket = connect(address, source)
        self._socket.setblocking(False)
        self._stream = -1
        self._left = b""
        self._received = b""
        self._window = {0: 65535}
        self._initial = 65535
        self.open = True
        self._out = bytearray(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, window)))

    def call(self, method, *messages, end=True):
        """Begins a call with the messages, and sends what the server's window allows within seconds; false: the connection ended."""
        self._stream += 2
        self._window[self._stream] = self._initial
        self._out += frame(HEADERS, END_HEADERS, self._stream, call_headers(f"/reduced.v1.Reduction/{method}".encode()))
        data = memoryview(b"".join(struct.pack(">BI", 0, len(message)) + message for message in messages))
        first = True
        deadline = time.monotonic() + PATIENCE_S
        while first or data:
            first = False
            size = min(len(data), 16384, self._window[0], self._window[self._stream])
            if data and size <= 0:
                if not self._step(0.05):
                    return False
                if time.monotonic() > deadline:
                    return True  # the server doesn't read either
                continue
            piece, data = data[:size], data[size:]
            for stream in (0, self._stream):
                self._window[stream] -= size
            self._out += frame(DATA, END_STREAM if end and not data else 0, self._stream, piece)
            if len(self._out) > MIB and not self._step(0):
                return False
        return self._step(0)

    def flush(self):
        while self._out and self._step(0.05):
            pass
        return self.open

    def _step(self, wait_s):
        """Sends and receives what is possible; false: the connection has ended."""
        select.select([self._socket], [self._socket] if self._out else [], [], wait_s)
        try:
            while self._out:
                del self._out[: self._socket.send(self._out[: 1 << 18])]
        except BlockingIOError:
            pass
        except OSError:
            self.open = False
        try:
            while self.open:
                piece = self._socket.recv(1 << 16)
                self.open = bool(piece)
                self._received += piece
        except BlockingIOError:
            pass
        except OSError:
            self.open = False
        while len(self._received) >= 9 and len(self._received) >= 9 + (size := int.from_bytes(self._received[:3], "big")):
            kind, flags, stream = self._received[3], self._received[4], int.from_bytes(self._received[5:9], "big")
            payload, self._received = self._received[9 : 9 + size], self._received[9 + size :]
            if kind == SETTINGS and not flags & 1:
                for at in range(0, size, 6):
                    name, value = struct.unpack_from(">HI", payload, at)
                    if name == INITIAL_WINDOW_SIZE:
                        for each in self._window:
                            self._window[each] += (value - self._initial) if each else 0
                        self._initial = value
                self._out += frame(SETTINGS, 1, 0)
            elif kind == WINDOW_UPDATE:
                self._window[stream] = self._window.get(stream, 0) + int.from_bytes(payload, "big")
            elif kind == GOAWAY:
                self.open = False
        return self.open

    def close(self):
        self._socket.close()


class UnreadTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        protos = tempfile.TemporaryDirectory()
        cls.addClassCleanup(protos.cleanup)
        subprocess.run(
            [os.environ["PROTOC"], f"--python_out={protos.name}", f"-I{PROTOS}", PROTOS / "reduced/v1/reduced.proto"],
            timeout=harness.DEADLINE_S,
            check=True,
        )
        sys.path.insert(0, protos.name)
        cls.pb = importlib.import_module("reduced.v1.reduced_pb2")

    def serve(self, *flags):
        self.server = harness.Server(
            "--cuda=false", f"--memory_bytes={BUDGET_MIB + TRANSPORT_MIB}MiB", f"--memory_quota_bytes={TRANSPORT_MIB}MiB",
            "--max_message_bytes=16MiB", "--progress_timeout=20s", *flags,
        )  # fmt: skip
        self.addCleanup(lambda: self.assertEqual(self.server.stop(), 0))
        self.channel = grpc.insecure_channel(
            self.server.unix, options=[("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        )
        self.addCleanup(self.channel.close)
        self.connections = []
        self.addCleanup(lambda: [connection.close() for connection in self.connections])
        self.most_mib = 0

    def metric(self, name):
        (value,) = self.server.metric(name).values()
        return value

    def memory_mib(self):
        return self.metric("reduced_memory_bytes") / MIB

    def resident_mib(self):
        """Now; the most of all times is kept."""
        resident = self.metric("process_resident_memory_bytes") / MIB
        self.most_mib = max(self.most_mib, resident)
        return resident

    def request(self, outputs=OUTPUTS, **more):
        """A few bytes whose results have so many elements: sums of nothing."""
        request = self.pb.ReduceRequest(ops=[self.pb.OP_SUM], axes=self.pb.Axes(axis=[0]), inline_data=b"", **more)
        request.array.CopyFrom(self.pb.ArraySpec(dtype=self.pb.DTYPE_I8, shape=[0, outputs]))
        return request

    def small(self):
        request = self.pb.ReduceRequest(ops=[self.pb.OP_SUM], inline_data=b"1234")
        request.array.CopyFrom(self.pb.ArraySpec(dtype=self.pb.DTYPE_I8, shape=[4]))
        return request

    def rpc(self, method, request, answer):
        return answer.FromString(
            self.channel.unary_unary(f"/reduced.v1.Reduction/{method}")(request.SerializeToString(), timeout=harness.DEADLINE_S)
        )

    def attack(self, method, *messages, connections, streams, end=True, source=None):
        for _ in range(connections):
            connection = Unread(self.server.tcp, source)
            self.connections.append(connection)
            for _ in range(streams):
                if not connection.call(method, *messages, end=end):
                    break
            connection.flush()
            self.resident_mib()

    def check_honest(self):
        """A caller at another peer is served, with more than a few bytes."""
        answer = self.rpc("Reduce", self.request(outputs=1 << 17), self.pb.ReduceResponse)
        self.assertEqual(len(answer.arrays[0].data), 1 << 20)
        self.assertEqual(self.rpc("Reduce", self.small(), self.pb.ReduceResponse).results[0].value.i, sum(b"1234"))
        self.rpc("GetServerInfo", self.pb.GetServerInfoRequest(), self.pb.GetServerInfoResponse)

    def check_bounded(self, before_mib):
        deadline = time.monotonic() + harness.DEADLINE_S
        while (heap := self.metric("reduced_heap_used_bytes") / MIB) > (counted := self.memory_mib()) + CONSTANT_MIB:
            self.assertLess(time.monotonic(), deadline, f"{heap} MiB are held, of which the metric knows {counted}")
            time.sleep(0.05)
        for _ in range(3):
            self.check_honest()
            self.resident_mib()
        self.assertLess(self.most_mib - before_mib, BUDGET_MIB + CONSTANT_MIB + HEAPS_MIB)
        self.assertLessEqual(counted, BUDGET_MIB + 16)

    def check_returned(self, to_mib=1):
        for connection in self.connections:
            connection.close()
        self.connections.clear()
        deadline = time.monotonic() + harness.DEADLINE_S
        while (left := self.memory_mib()) > to_mib:
            self.assertLess(time.monotonic(), deadline, f"{left} MiB are held")
            time.sleep(0.05)

    def put(self, elements):
        header = self.pb.PutArrayRequest()
        header.header.array.CopyFrom(self.pb.ArraySpec(dtype=self.pb.DTYPE_I8, shape=[len(elements)]))
        chunks = [self.pb.PutArrayRequest(chunk=elements[at : at + MIB]) for at in range(0, len(elements), MIB)]
        put = self.channel.stream_unary("/reduced.v1.Reduction/PutArray")
        messages = iter([header.SerializeToString(), *(chunk.SerializeToString() for chunk in chunks)])
        return self.pb.PutArrayResponse.FromString(put(messages, timeout=harness.DEADLINE_S)).array.id

    def attacks(self):
        """For each RPC its messages, and over how many connections and streams."""
        pb = self.pb
        reduce = self.request().SerializeToString()
        states = self.request(outputs=40_000, return_state=True, omit_results=True)
        states.array.shape[0] = 1
        states.inline_data = bytes(40_000)
        states.ops.extend([pb.OP_VAR, pb.OP_MIN, pb.OP_MAX, pb.OP_ARGMIN])
        states = self.rpc("Reduce", states, pb.ReduceResponse).arrays_state
        merge = pb.MergeRequest(arrays=[states], return_state=True).SerializeToString()
        array = self.put(bytes(8 * MIB))
        for _ in range(255):
            self.put(b"1")
        stream = pb.ReduceStreamRequest(header=self.small())
        stream.header.ClearField("inline_data")
        stream.header.return_state = True
        chunk = pb.ReduceStreamRequest(chunk=b"1234")
        put = pb.PutArrayRequest()
        put.header.array.CopyFrom(pb.ArraySpec(dtype=pb.DTYPE_I8, shape=[0]))
        put.header.ttl_ms = 1000
        large = self.small()
        large.inline_data = bytes(MIB)
        large.array.shape[0] = MIB
        many = pb.ReduceManyRequest(operands=[pb.SideArray(array=large.array, inline_data=b"1" * 1000) for _ in range(1000)])
        many.question.ops.extend([pb.OP_VAR, pb.OP_MIN, pb.OP_MAX, pb.OP_ARGMIN])
        many.question.return_state = True
        for operand in many.operands:
            operand.array.shape[0] = 1000
        session = [
            pb.SessionRequest(id=i, reduce=large).SerializeToString() for i in range(1, 5)
        ]
        ladder = pb.LadderRequest(count=1000, dtype=pb.DTYPE_I32, op=pb.OP_SUM, repeats=1)
        return {
            "Reduce": ([reduce], 4, 10),
            "Reduce with large elements": ([large.SerializeToString()], 2, 40),
            "ReduceMany": ([many.SerializeToString()], 2, 40),
            "Merge": ([merge], 2, 20),
            "GetArray": ([pb.GetArrayRequest(id=array).SerializeToString()], 4, 50),
            "ListArrays": ([b""], 2, 500),
            "GetServerInfo": ([b""], 2, 500),
            "DeleteArray": ([pb.DeleteArrayRequest(id="nothing").SerializeToString()], 2, 500),
            "ReduceStream": ([stream.SerializeToString(), chunk.SerializeToString()], 2, 200),
            "PutArray": ([put.SerializeToString()], 2, 100),
            "Session": (session, 2, 50),
            "Ladder": ([ladder.SerializeToString()], 2, 50),
        }

    def test_every_rpc(self):
        self.serve()
        attacks = self.attacks()
        self.assertEqual(
            {name.split()[0] for name in attacks},
            {method.name for method in self.pb.DESCRIPTOR.services_by_name["Reduction"].methods},
        )
        held = self.memory_mib()  # the arrays
        for name, (messages, connections, streams) in attacks.items():
            with self.subTest(name):
                self.most_mib = 0
                before = self.resident_mib()
                self.attack(name.split()[0], *messages, connections=connections, streams=streams)
                self.check_bounded(before)
                self.check_returned(held + 1)

    def test_a_flood_of_calls(self):
        """Small calls without end, none of which is read."""
        self.serve("--max_concurrent_streams=2000")
        before = self.resident_mib()
        self.attack("Reduce", self.small().SerializeToString(), connections=10, streams=2000)
        self.check_bounded(before)
        self.check_returned()


if __name__ == "__main__":
    unittest.main()

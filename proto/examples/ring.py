"""A client of a session's ring in another language: sums arrays through memory that it shares with the server.

    protoc --python_out=. -Iproto proto/reduced/v1/reduced.proto
    PYTHONPATH=. python3 proto/examples/ring.py unix:/run/reduced/socket

proto/ring/README.md explains each step. This one polls for its answers; see there for how to sleep.
"""

import array
import json
import mmap
import os
import queue
import socket
import struct
import sys
import time

import grpc
from reduced.v1 import reduced_pb2 as pb

SUBMISSION = struct.Struct("<QQI8BI16sqqQQQQQQQ64s72x")  # as in proto/ring/README.md; the sequence number is first
SUBMISSION_BYTES, COMPLETION_BYTES = 256, 1024
REDUCE, FROM_ARENA, DONE = 1, 1, 2


class Ring:
    """The memory, once the session has it. One request at a time, which always has completion 0."""

    def __init__(self, path, token):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
            door.connect(path)
            door.send(json.dumps({"takeRing": {"token": token}}).encode())
            reply, files, _, _ = socket.recv_fds(door, 4096, 2)
        reply = json.loads(reply)
        if reply.get("code"):
            sys.exit(reply["message"])
        memory, self.doorbell = files
        self.memory = mmap.mmap(memory, int(reply["bytes"]))
        os.close(memory)
        magic, version, self.slots = struct.unpack_from("<3I", self.memory)
        if (magic, version) != (0x676E6972, 1):
            sys.exit(f"a ring of version {version}")
        self.submissions, self.completions, self.arena, self.arena_bytes = struct.unpack_from("<4Q", self.memory, 16)
        self.submitted = 0

    def word(self, offset):
        return struct.unpack_from("<I", self.memory, offset)[0]

    def sum(self, numbers):
        """Of an array.array("d"), with the microseconds that the server took."""
        elements = numbers.tobytes()
        self.memory[self.arena : self.arena + len(elements)] = elements
        struct.pack_into("<I", self.memory, self.completions, 0)  # pending
        slot = self.submissions + self.submitted % self.slots * SUBMISSION_BYTES
        submission = SUBMISSION.pack(
            0, self.submitted, 0, REDUCE, FROM_ARENA, pb.DTYPE_F64, 0, 0, 0, 0, 1, 0, bytes([pb.OP_SUM]),
            len(numbers), 0, 10_000_000, 0, len(elements), 0, 0, 0, 0, b"")  # fmt: skip
        self.memory[slot + 8 : slot + SUBMISSION_BYTES] = submission[8:]
        self.submitted += 1
        struct.pack_into("<Q", self.memory, slot, self.submitted)  # published
        os.write(self.doorbell, struct.pack("<Q", 1))  # always: Python has no memory barrier to look whether it sleeps
        deadline = time.monotonic() + 10
        while self.word(self.completions) != DONE:
            if time.monotonic() > deadline or self.word(256):
                sys.exit("the ring has ended")
        answer = self.completions
        code, identity = struct.unpack_from("<IQ", self.memory, answer + 4)
        if code:
            sys.exit(self.memory[answer + 304 : answer + COMPLETION_BYTES].split(b"\0")[0].decode())
        assert identity == self.submitted - 1
        return struct.unpack_from("<d", self.memory, answer + 128)[0], struct.unpack_from("<d", self.memory, answer + 120)[0]


def main(address):
    requests = queue.SimpleQueue()
    with grpc.insecure_channel(address) as channel:
        info = channel.unary_unary(
            "/reduced.v1.Reduction/GetServerInfo", pb.GetServerInfoRequest.SerializeToString, pb.GetServerInfoResponse.FromString
        )(pb.GetServerInfoRequest(), timeout=10)
        session = channel.stream_stream(
            "/reduced.v1.Reduction/Session", pb.SessionRequest.SerializeToString, pb.SessionResponse.FromString
        )(iter(requests.get, None))
        requests.put(pb.SessionRequest(id=1, open_ring=pb.OpenRing(slots=4)))
        opened = next(session)
        if opened.code:
            sys.exit(opened.message)
        ring = Ring(info.region_socket, opened.ring.token)
        for count in (4, 1000, 100_000):
            total, micros = ring.sum(array.array("d", range(count)))
            print(f"{total} ({micros:.1f} us)")
        requests.put(None)  # the session ends, and the ring with it


if __name__ == "__main__":
    main(sys.argv[1])

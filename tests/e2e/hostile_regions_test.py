"""What hostile processes hand to the region socket: descriptors whose close blocks, memory with holes, silence."""

import contextlib
import ctypes
import fcntl
import importlib
import json
import mmap
import os
import pathlib
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import grpc
import harness

PROTOS = pathlib.Path(__file__).resolve().parent.parent.parent / "proto"
SOON_S = 10  # what the server has to do at once
BYTES = 8 << 20
SHARE = b'{"shareMemory": {}}'
PIN = b'{"shareMemory": {"pin": true}}'
F_SEAL_FUTURE_WRITE = 0x10
FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE = 1, 2
STRANGER = 12345  # a uid
libc = ctypes.CDLL(None, use_errno=True)


def fallocate(file, mode, offset, size):
    if libc.fallocate(file, mode, ctypes.c_long(offset), ctypes.c_long(size)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def lingering_socket(test):
    """A TCP socket that nobody reads from, with unsent data and ten minutes for sending it after its last close."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        lingering = socket.create_connection(listener.getsockname())
        reader, _ = listener.accept()
    test.addCleanup(reader.close)
    lingering.setblocking(False)
    try:
        while lingering.send(bytes(1 << 16)):
            pass
    except BlockingIOError:
        pass
    lingering.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 600))
    return lingering


class SilentFuse:
    """A FUSE file system with one file, in this process. Without an answer to FLUSH each close of the file waits until
    `end`. So does that in a child process: start none before."""

    INIT, LOOKUP, GETATTR, OPEN, FLUSH = 26, 1, 3, 14, 25
    UNANSWERED = (2, 42)  # FORGET, BATCH_FORGET

    def __init__(self, folder):
        self._folder = str(folder).encode()
        self._device = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self._device},rootmode=40000,user_id=0,group_id=0".encode()
        if libc.mount(b"silent", self._folder, b"fuse", 0, options) != 0:
            raise OSError(ctypes.get_errno(), "mount")
        self.flushed = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self.file = os.open(folder / "file", os.O_RDONLY)

    @staticmethod
    def _attributes(node):
        mode = 0o40755 if node == 1 else 0o100644
        return struct.pack("<QQQQQQIIIIIIIIII", node, 4096, 8, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def _serve(self):
        while True:
            try:
                request = os.read(self._device, 1 << 20)
            except OSError:
                return  # aborted
            _, opcode, unique, node = struct.unpack_from("<IIQQ", request)
            valid = (1000, 0)  # attributes and entries stay as they are
            if opcode == self.FLUSH:
                self.flushed.set()
            if opcode in (self.FLUSH, *self.UNANSWERED):
                continue
            answer = {
                self.INIT: lambda: struct.pack("<IIIIHHIIHHI28x", 7, 31, 1 << 16, 0, 8, 4, 1 << 16, 1, 16, 0, 0),
                self.LOOKUP: lambda: struct.pack("<QQQQII", 2, 0, *valid, 0, 0) + self._attributes(2),
                self.GETATTR: lambda: struct.pack("<QII", valid[0], 0, 0) + self._attributes(node),
                self.OPEN: lambda: struct.pack("<QII", 1, 0, 0),
            }.get(opcode)
            body = answer() if answer else b""
            os.write(self._device, struct.pack("<IiQ", 16 + len(body), 0 if answer else -38, unique) + body)

    def end(self):
        """Aborts what waits for an answer."""
        libc.umount2(self._folder, 1)  # MNT_FORCE
        with contextlib.suppress(OSError):  # it is closed, but not flushed
            os.close(self.file)
        libc.umount2(self._folder, 2)  # MNT_DETACH
        self._thread.join(harness.DEADLINE_S)
        os.close(self._device)


class HostileRegionsTest(unittest.TestCase):
    flags = ()

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

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        os.chmod(self.folder, 0o755)
        self.path = str(self.folder / "regions")

    def start(self, *flags):
        server = harness.Server(f"--region_socket={self.path}", "--unix_socket_mode=0666", *flags)
        self.addCleanup(lambda: server.process.poll() is None and server.stop(signal.SIGKILL))
        return server

    def connect(self, uid=None):
        door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(door.close)
        door.settimeout(SOON_S)
        if uid is not None:
            os.seteuid(uid)
        try:
            door.connect(self.path)
        finally:
            if uid is not None:
                os.seteuid(0)
        return door

    def needs_root(self):
        if os.geteuid() != 0:
            self.skipTest("needs root, for a second user")

    def ask(self, door, text, files=()):
        socket.send_fds(door, [text], list(files))
        return json.loads(door.recv(4096))

    def memory(self, seals=0, size=BYTES):
        """A memfd of ones."""
        file = os.memfd_create("test", os.MFD_ALLOW_SEALING)
        self.addCleanup(os.close, file)
        os.write(file, struct.pack("<i", 1) * (size // 4))
        if seals:
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
        return file

    def sum(self, server, token, size=BYTES):
        pb = self.pb
        request = pb.ReduceRequest(ops=[pb.OP_SUM], region=pb.RegionPart(token=token))
        request.array.CopyFrom(pb.ArraySpec(dtype=pb.DTYPE_I32, shape=[size // 4]))
        with grpc.insecure_channel(server.unix) as channel:
            reduce = channel.unary_unary("/reduced.v1.Reduction/Reduce", pb.ReduceRequest.SerializeToString,
                                         pb.ReduceResponse.FromString)
            return reduce(request, timeout=SOON_S).results[0].value.i

    def check_serves(self, server):
        """A process shares memory, and has it reduced."""
        reply = self.ask(self.connect(), SHARE, [self.memory()])
        self.assertNotIn("code", reply, reply)
        self.assertEqual(self.sum(server, reply["token"]), BYTES // 4)

    def helpers(self, server):
        pgrep = ["pgrep", "-P", str(server.process.pid)]
        return subprocess.run(pgrep, stdout=subprocess.PIPE, timeout=SOON_S, check=False).stdout.split()

    def check_stops(self, server):
        begin = time.monotonic()
        self.assertEqual(server.stop(), 0)
        self.assertLess(time.monotonic() - begin, SOON_S)


class BlockingClose(HostileRegionsTest):
    def test_honest_clients_need_no_helper(self):
        server = self.start()
        self.check_serves(server)
        impatient = self.connect()
        socket.send_fds(impatient, [SHARE], [self.memory()])
        self.connect().close()
        select.select([impatient], [], [], SOON_S)
        impatient.close()  # with a reply that nobody has read
        self.check_serves(server)
        self.assertEqual(self.helpers(server), [])
        with open("/dev/null", "rb") as device:
            self.ask(self.connect(), SHARE, [device.fileno()])
        self.assertEqual(len(self.helpers(server)), 1)
        self.check_stops(server)

    def hand_over(self, server, packets):
        """Sends the packets, (text, sockets), and closes the sockets, so that the last close is the server's."""
        door = self.connect()
        server.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, server.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # all its threads have stopped
        try:
            for text, sockets in packets:
                socket.send_fds(door, [text], [each.fileno() for each in sockets])
                for each in sockets:
                    each.close()
        finally:
            server.process.send_signal(signal.SIGCONT)
        return door

    def test_sockets_that_linger(self):
        server = self.start()
        door = self.hand_over(server, [(SHARE, [lingering_socket(self)])])
        self.assertIn("got a socket", json.loads(door.recv(4096))["message"])
        self.check_serves(server)
        door = self.hand_over(server, [(SHARE, [lingering_socket(self) for _ in range(20)])])
        self.assertIn("got more", json.loads(door.recv(4096))["message"])
        self.check_serves(server)
        self.check_stops(server)

    def test_sockets_that_linger_in_packets_that_nobody_receives(self):
        server = self.start()
        # Nobody takes the answer to the first packet, which ends the connection with the second one in its queue.
        self.hand_over(server, [(b"hello", []), (SHARE, [lingering_socket(self)])]).close()
        self.check_serves(server)
        self.check_stops(server)

    def test_sockets_that_linger_at_the_end(self):
        server = self.start()
        self.hand_over(server, [(SHARE, [lingering_socket(self) for _ in range(20)])])
        self.check_stops(server)

    def test_more_sockets_than_the_server_has_descriptors_for(self):
        server = self.start()
        used = max(map(int, os.listdir(f"/proc/{server.process.pid}/fd")))
        limit = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (used + 12, limit[1]))
        door = self.hand_over(server, [(SHARE, [lingering_socket(self) for _ in range(20)])])
        self.assertIn("no file descriptor left", json.loads(door.recv(4096))["message"])
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, limit)
        self.check_serves(server)
        self.check_stops(server)

    def fuse_file_at(self, server):
        """A stranger has handed a file over whose close never ends."""
        self.needs_root()
        mount = self.folder / "mount"
        mount.mkdir()
        try:
            fuse = SilentFuse(mount)
        except OSError as error:
            self.skipTest(f"no FUSE: {error}")
        self.addCleanup(fuse.end)
        door = self.connect(STRANGER)
        socket.send_fds(door, [SHARE], [fuse.file])
        self.assertTrue(fuse.flushed.wait(SOON_S))
        self.assertIn("got a file on disk", json.loads(door.recv(4096))["message"])
        return server

    def test_a_file_whose_close_never_ends(self):
        server = self.fuse_file_at(self.start())
        self.check_serves(server)
        self.check_stops(server)
        # Its helper lives on, but none of its sockets.
        host, port = server.tcp.rsplit(":", 1)
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), SOON_S)

    def test_sigkill_beside_a_file_whose_close_never_ends(self):
        server = self.fuse_file_at(self.start())
        self.check_serves(server)
        self.assertEqual(server.stop(signal.SIGKILL), -signal.SIGKILL)


class Holes(HostileRegionsTest):
    SIZE_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW

    def check_sum_allocates_nothing(self, server, memory, expected):
        reply = self.ask(self.connect(), SHARE, [memory])
        blocks = os.fstat(memory).st_blocks
        self.assertEqual(self.sum(server, reply["token"]), expected)
        self.assertEqual(os.fstat(memory).st_blocks, blocks, "reading a hole has filled it")

    def test_punched_into_memory_that_keeps_its_size(self):
        server = self.start()
        memory = self.memory(self.SIZE_SEALS)
        door = self.connect()
        reply = self.ask(door, SHARE, [memory])
        self.assertEqual(self.sum(server, reply["token"]), BYTES // 4)
        fallocate(memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BYTES)
        self.assertEqual(self.sum(server, reply["token"]), 0)
        self.assertEqual(os.fstat(memory).st_blocks, 0, "reading a hole has filled it")
        refused = self.ask(door, PIN, [memory])
        self.assertIn("F_SEAL_FUTURE_WRITE", refused["message"])

    def test_hidden_by_blocks_beyond_the_end(self):
        server = self.start()
        memory = os.memfd_create("test", os.MFD_ALLOW_SEALING)
        self.addCleanup(os.close, memory)
        os.ftruncate(memory, BYTES)
        fallocate(memory, FALLOC_FL_KEEP_SIZE, BYTES, BYTES)
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, self.SIZE_SEALS | fcntl.F_SEAL_WRITE)
        self.check_sum_allocates_nothing(server, memory, 0)

    def test_cannot_come_into_mapped_memory(self):
        server = self.start()
        memory = self.memory(self.SIZE_SEALS)
        with mmap.mmap(memory, BYTES) as mapping:
            fcntl.fcntl(memory, fcntl.F_ADD_SEALS, F_SEAL_FUTURE_WRITE)
            os.lseek(memory, 12, os.SEEK_SET)
            reply = self.ask(self.connect(), PIN, [memory])
            self.assertNotIn("code", reply, reply)  # what is pinned is mapped
            self.assertEqual(os.lseek(memory, 0, os.SEEK_CUR), 12)
            mapping[0] = 3  # its owner still writes
            self.assertEqual(self.sum(server, reply["token"]), BYTES // 4 + 2)
            with self.assertRaises(PermissionError):
                fallocate(memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096)
            with self.assertRaises(PermissionError):
                mapping.madvise(mmap.MADV_REMOVE, 0, 4096)


class Silence(HostileRegionsTest):
    def is_open(self, door):
        """False once the server has closed it; True if it has not within a second."""
        door.settimeout(1)
        try:
            return door.recv(1) != b""
        except TimeoutError:
            return True

    def test_connections_that_share_nothing(self):
        server = self.start("--region_idle_timeout=100ms", "--max_region_connections=4")
        sharer = self.connect()
        reply = self.ask(sharer, SHARE, [self.memory()])
        for _ in range(3):  # more than half; those beyond it are closed at once
            silent = self.connect()
            self.assertFalse(self.is_open(silent))
        # A connection that shares something may be silent.
        self.assertEqual(self.sum(server, reply["token"]), BYTES // 4)
        self.assertEqual(self.ask(sharer, b'{"release": {"token": "%s"}}' % reply["token"].encode()), {})
        self.assertFalse(self.is_open(sharer))
        self.check_serves(server)
        self.check_stops(server)

    def test_a_user_who_takes_all_places(self):
        self.needs_root()
        server = self.start("--max_region_connections=4")
        doors = [self.connect(STRANGER) for _ in range(8)]
        self.check_serves(server)
        self.assertEqual([self.is_open(door) for door in doors], [True] * 2 + [False] * 6)
        self.assertEqual(server.metric("reduced_connections_refused_total")['{reason="regions"}'], 6)
        self.check_stops(server)


if __name__ == "__main__":
    unittest.main()

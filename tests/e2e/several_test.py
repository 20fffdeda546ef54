"""A client of several servers: parts of large arrays go to all of them, found by a list or by DNS, and the answer is that of one."""

import json
import pathlib
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import unittest

import harness
from harness import np

OPS = "sum,mean,std,min,max,argmin,argmax,l1,l2,nan_count"


class Resolver:
    """A DNS server on a free port of this machine, which gives every name these IPv4 addresses."""

    def __init__(self, addresses):
        self.addresses = addresses
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self):
        while True:
            query, peer = self._socket.recvfrom(1024)
            if not query:
                return
            self._socket.sendto(self._answer(query), peer)

    def _answer(self, query):
        end = query.index(b"\0", 12) + 5  # the name, its type and class
        kind = struct.unpack(">H", query[end - 4 : end - 2])[0]
        addresses = self.addresses if kind == 1 else []  # A
        header = query[:2] + struct.pack(">HHHHH", 0x8580, 1, len(addresses), 0, 0)
        records = [struct.pack(">HHHIH", 0xC00C, 1, 1, 60, 4) + socket.inet_aton(address) for address in addresses]
        return header + query[12:end] + b"".join(records)

    def close(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", ("127.0.0.1", self.port))
        self._thread.join()
        self._socket.close()


def streams(server):
    """How many streams a server has answered."""
    return server.metric("reduced_calls_total")['{rpc="reduce_stream",status="OK"}']


class SeveralTest(unittest.TestCase):
    """Two servers with the same port, at 127.0.0.1 and 127.0.0.2."""

    run_reducectl = harness.ServedTest.run_reducectl
    answers = harness.ServedTest.answers
    reduce = harness.ServedTest.reduce

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.array = pathlib.Path(folder.name) / "large.npy"
        random = np.random.default_rng(6)
        elements = random.normal(size=9 << 20) * 10.0 ** random.integers(-100, 100, 9 << 20)  # 72 MiB
        elements[5_000_000] = np.nan
        np.save(self.array, elements)
        first = harness.Server()
        self.addCleanup(first.stop)
        self.port = first.tcp.rpartition(":")[2]
        second = harness.Server(f"--listen=127.0.0.2:{self.port},unix:{folder.name}/socket")
        self.addCleanup(second.stop)
        self.servers = [first, second]
        self.list = f"127.0.0.1:{self.port},127.0.0.2:{self.port}"
        self.right = self.reduce(self.array, OPS, "--nan", "omit", server=first.unix)
        self.before = [streams(server) for server in self.servers]

    def check(self, address, *arguments):
        answer = self.reduce(self.array, OPS, "--nan", "omit", *arguments, server=address)
        self.assertEqual(answer["results"], self.right["results"])
        self.assertEqual((answer["count"], answer["via"], answer["bytes"]), (self.right["count"], "stream", self.right["bytes"]))
        self.assertRegex(answer["reason"], "; in [0-9]+ parts, over the servers of the address$")
        return answer

    def check_both(self):
        for server, before in zip(self.servers, self.before):
            deadline = time.monotonic() + harness.DEADLINE_S  # the metrics follow the answer
            while streams(server) == before and time.monotonic() < deadline:
                pass
            self.assertGreater(streams(server), before)

    def test_a_list(self):
        self.check(self.list)
        self.check_both()
        self.check(f"ipv4:{self.list}", "--connections", "3")

    def test_a_name(self):
        resolver = Resolver(["127.0.0.1", "127.0.0.2"])
        self.addCleanup(resolver.close)
        self.check(f"dns://127.0.0.1:{resolver.port}/reduced.example:{self.port}")
        self.check_both()

    def test_ops_of_the_distribution(self):
        ops = "sum,median,quantile(0.1, 0.9),topk(3),argtopk(3),distinct"
        (right,) = self.answers("reduce", self.array, "--op", ops, "--nan", "omit", server=self.servers[0].unix)
        (answer,) = self.answers("reduce", self.array, "--op", ops, "--nan", "omit", server=self.list)
        self.assertEqual(answer["results"], right["results"])
        run = self.run_reducectl("loadtest", "--json", "-", "--via", "stream", "--dtype", "i16", "--size", "4Mi", "--count", "8", "--op",
                                 "topk( 3 ),median,mode,histogram(-9, 9, 4),distinct,sum", "--warmup", "0", "--stability", "100%",
                                 "--verify", "100%", server=self.list)
        self.assertEqual(run.returncode, 0, run.stderr)
        (step,) = json.loads(run.stdout)["steps"]
        self.assertEqual((step["verified"], step["wrong"], step["errors"]), (8, 0, {}))
        self.check_both()

    def test_one_of_them_is_killed(self):
        """The answer is right, or says that a server is gone."""
        process = subprocess.Popen(harness.command("reduce", self.array, "--json", "--op", "sum", "--nan", "omit"),
                                   env=harness.environment(self.list), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        deadline = time.monotonic() + harness.DEADLINE_S
        while process.poll() is None and streams(self.servers[1]) == self.before[1] and time.monotonic() < deadline:
            pass
        self.servers[1].process.send_signal(signal.SIGKILL)
        output, error = process.communicate(timeout=harness.DEADLINE_S)
        if process.returncode == 0:
            self.assertIn(f'"sum":{self.right["results"]["sum"]!r}', output.decode().replace(" ", ""))
        else:
            self.assertEqual((process.returncode, output), (3, b""))
            self.assertIn("127.0.0.2", error.decode())
        self.servers[1].process.wait(harness.DEADLINE_S)
        self.check(self.list)  # the other one reduces all parts

    def test_a_part_without_an_answer(self):
        np.save(self.array, np.where(np.arange(9 << 20) < 8 << 20, np.nan, 1.5))
        answer = self.reduce(self.array, "min,argmin", "--nan", "omit", server=self.list)
        self.assertEqual(answer["results"], {"min": 1.5, "argmin": 8 << 20})


if __name__ == "__main__":
    unittest.main()

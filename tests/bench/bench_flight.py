#!/usr/bin/env python3
"""What Arrow Flight's DoPut carries over a Unix socket, to set beside bench_stream: processes that each put an equal part of
an array of f32, in batches of 1 MiB, to a server that reads the batches and does nothing with them. Needs pyarrow.

usage: bench_flight.py [CLIENTS [MIB]]   default 4 clients, 1024 MiB
"""

import multiprocessing
import os
import statistics
import sys
import tempfile
import time

import numpy
import pyarrow
import pyarrow.flight

ROUNDS = 7
BATCH_BYTES = 1 << 20
DEADLINE_S = 120


class Discards(pyarrow.flight.FlightServerBase):
    def do_put(self, context, descriptor, reader, writer):
        received = 0
        for chunk in reader:
            received += chunk.data.num_rows
        writer.write(received.to_bytes(8, "little"))


def serve(location, ready):
    server = Discards(location)
    ready.set()
    server.serve()


def put(location, nbytes, start, times):
    batch = pyarrow.record_batch([pyarrow.array(numpy.random.rand(BATCH_BYTES // 4).astype(numpy.float32))], ["x"])
    client = pyarrow.flight.connect(location)
    for turn in range(ROUNDS + 1):
        start.wait(DEADLINE_S)
        begin = time.monotonic()
        writer, answers = client.do_put(pyarrow.flight.FlightDescriptor.for_path("x"), batch.schema)
        for _ in range(nbytes // BATCH_BYTES):
            writer.write_batch(batch)
        writer.done_writing()
        received = int.from_bytes(answers.read().to_pybytes(), "little")
        end = time.monotonic()
        writer.close()
        if received * 4 != nbytes:
            raise RuntimeError(f"{received * 4} bytes arrived of {nbytes}")
        times.put((turn, begin, end))


def main():
    if len(sys.argv) > 3:
        sys.exit(__doc__)
    clients = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    nbytes = (int(sys.argv[2]) if len(sys.argv) > 2 else 1024) << 20
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        location = f"grpc+unix://{folder}/socket"
        ready, start, times = spawn.Event(), spawn.Barrier(clients), spawn.Queue()
        server = spawn.Process(target=serve, args=(location, ready), daemon=True)
        server.start()
        if not ready.wait(DEADLINE_S):
            sys.exit("bench_flight: the server did not start")
        senders = [
            spawn.Process(target=put, args=(location, nbytes // clients, start, times), daemon=True)
            for _ in range(clients)
        ]
        for sender in senders:
            sender.start()
        turns = [[] for _ in range(ROUNDS + 1)]
        for _ in range(clients * len(turns)):
            turn, begin, end = times.get(timeout=DEADLINE_S)
            turns[turn].append((begin, end))
        for sender in senders:
            sender.join(DEADLINE_S)
        server.terminate()
        server.join(DEADLINE_S)
    rates = [nbytes / (max(end for _, end in spans) - min(begin for begin, _ in spans)) / 1e9 for spans in turns]
    print(
        f"Arrow Flight {pyarrow.__version__} DoPut, {clients} clients, {nbytes >> 20} MiB of f32 in batches of 1 MiB, "
        f"{os.cpu_count()} cores: {statistics.median(rates[1:]):.2f} GB/s"
    )


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""An answer of 8 MB through gRPC's own client, whose channels refuse messages of more than 4 MiB: three ways to get it.

    protoc --python_out=. -Iproto proto/reduced/v1/reduced.proto
    PYTHONPATH=. python3 proto/examples/large_answer.py unix:/run/reduced/socket

The third way, a region, needs the server on the same machine and a Unix socket; the others work anywhere.
"""

import array
import json
import mmap
import os
import socket
import sys

import grpc
from reduced.v1 import reduced_pb2 as pb

ROWS = 1_000_000  # of two f32 each; the sum of each row is an f64
ANY_SIZE = [("grpc.max_receive_message_length", -1)]  # for what the server sends: see --max_result_bytes


def row_sums():
    request = pb.ReduceRequest(array=pb.ArraySpec(dtype=pb.DTYPE_F32, shape=[ROWS, 2]), ops=[pb.OP_SUM], axes=pb.Axes(axis=[1]))
    request.inline_data = array.array("f", range(2 * ROWS)).tobytes()
    return request


def reduce(channel, request):
    call = channel.unary_unary("/reduced.v1.Reduction/Reduce", pb.ReduceRequest.SerializeToString, pb.ReduceResponse.FromString)
    return call(request, timeout=60)


def in_the_response(channel):
    """The simplest, if the channel was made with a larger limit."""
    return reduce(channel, row_sums()).arrays[0].data


def in_chunks(channel):
    """Through any channel: the results stay on the server as a resident array, which GetArray sends in chunks of 1 MiB."""
    request = row_sums()
    request.keep.ttl_ms = 60_000
    kept = reduce(channel, request).arrays[0].kept
    get = channel.unary_stream("/reduced.v1.Reduction/GetArray", pb.GetArrayRequest.SerializeToString, pb.GetArrayResponse.FromString)
    data = b"".join(part.chunk for part in get(pb.GetArrayRequest(id=kept.id), timeout=60))
    delete = channel.unary_unary(
        "/reduced.v1.Reduction/DeleteArray", pb.DeleteArrayRequest.SerializeToString, pb.DeleteArrayResponse.FromString
    )
    delete(pb.DeleteArrayRequest(id=kept.id), timeout=60)
    return data


def in_a_region(channel, path):
    """Through any channel: the server writes the results to memory that this process shares."""
    memory = os.memfd_create("results")
    os.posix_fallocate(memory, 0, 8 * ROWS)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door, mmap.mmap(memory, 8 * ROWS) as results:
        door.connect(path)
        socket.send_fds(door, [b'{"shareMemory": {"writable": true}}'], [memory])
        region = json.loads(door.recv(4096))
        if region.get("code"):
            sys.exit(region["message"])
        request = row_sums()
        request.write_to.token = region["token"]
        begin = reduce(channel, request).arrays[0].written_at
        return results[begin : begin + 8 * ROWS]


def main(address):
    with grpc.insecure_channel(address) as channel, grpc.insecure_channel(address, ANY_SIZE) as large:
        try:
            in_the_response(channel)
        except grpc.RpcError as error:
            print(error.code().name, error.details(), sep=": ")
        answers = {"in the response": in_the_response(large), "in chunks": in_chunks(channel)}
        info = channel.unary_unary(
            "/reduced.v1.Reduction/GetServerInfo", pb.GetServerInfoRequest.SerializeToString, pb.GetServerInfoResponse.FromString
        )(pb.GetServerInfoRequest(), timeout=60)
        if info.region_socket:
            answers["in a region"] = in_a_region(channel, info.region_socket)
    for how, data in answers.items():
        sums = array.array("d", data)
        print(f"{how}: {len(data)} bytes, {sums[0]} to {sums[-1]}")


if __name__ == "__main__":
    main(sys.argv[1])

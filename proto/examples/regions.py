"""A client in another language: shares an array with the server and has it summed, with the standard library and grpcio.

    protoc --python_out=. -Iproto proto/reduced/v1/reduced.proto
    PYTHONPATH=. python3 proto/examples/regions.py unix:/run/reduced/socket
"""

import array
import json
import os
import socket
import sys

import grpc
from reduced.v1 import reduced_pb2 as pb


def call(channel, method, request, response):
    rpc = channel.unary_unary(f"/reduced.v1.Reduction/{method}", type(request).SerializeToString, response.FromString)
    return rpc(request, timeout=10)


def main(address):
    numbers = array.array("d", range(1_000_000))
    memory = os.memfd_create("numbers")
    os.write(memory, numbers.tobytes())
    with grpc.insecure_channel(address) as channel, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.connect(call(channel, "GetServerInfo", pb.GetServerInfoRequest(), pb.GetServerInfoResponse).region_socket)
        socket.send_fds(door, [b'{"shareMemory": {}}'], [memory])
        region = json.loads(door.recv(4096))
        if region.get("code"):
            sys.exit(region["message"])
        request = pb.ReduceRequest(ops=[pb.OP_SUM], region=pb.RegionPart(token=region["token"]))
        request.array.CopyFrom(pb.ArraySpec(dtype=pb.DTYPE_F64, shape=[len(numbers)]))
        print(call(channel, "Reduce", request, pb.ReduceResponse).results[0].value.f)


if __name__ == "__main__":
    main(sys.argv[1])

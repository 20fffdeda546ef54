#!/usr/bin/env python3
"""A client made from the .proto alone: the sum and the largest of some numbers, in one message and as a stream.

    protoc --python_out=. -Iproto proto/reduced/v1/reduced.proto
    PYTHONPATH=. python3 proto/examples/reduce.py 127.0.0.1:50051

It needs protobuf and grpcio (Debian: protobuf-compiler python3-protobuf python3-grpcio).
"""

import array
import sys

import grpc
from reduced.v1 import reduced_pb2 as pb

CHUNK_BYTES = 1 << 20


def ask(numbers, ops):
    """A request without its elements."""
    return pb.ReduceRequest(array=pb.ArraySpec(dtype=pb.DTYPE_F64, shape=[len(numbers)]), ops=ops)


def reduce_inline(channel, numbers, ops):
    """For arrays up to Limits.max_message_bytes, 64 MiB by default."""
    request = ask(numbers, ops)
    request.inline_data = numbers.tobytes()  # little-endian, one after the other
    call = channel.unary_unary("/reduced.v1.Reduction/Reduce", type(request).SerializeToString, pb.ReduceResponse.FromString)
    return call(request, timeout=10)


def reduce_stream(channel, numbers, ops):
    """For arrays of any size: the header, then the bytes in chunks."""

    def messages():
        yield pb.ReduceStreamRequest(header=ask(numbers, ops))
        elements = memoryview(numbers).cast("B")
        for begin in range(0, len(elements), CHUNK_BYTES):
            yield pb.ReduceStreamRequest(chunk=bytes(elements[begin : begin + CHUNK_BYTES]))

    call = channel.stream_unary(
        "/reduced.v1.Reduction/ReduceStream", pb.ReduceStreamRequest.SerializeToString, pb.ReduceResponse.FromString
    )
    return call(messages(), timeout=60)


def main(address):
    numbers = array.array("d", range(1_000_000))
    with grpc.insecure_channel(address) as channel:
        for reduce in (reduce_inline, reduce_stream):
            response = reduce(channel, numbers, [pb.OP_SUM, pb.OP_MAX])
            values = {pb.Op.Name(result.op): getattr(result.value, result.value.WhichOneof("value")) for result in response.results}
            print(values, f"in {response.timing.total_us:.0f} us on {response.execution.device}")
        try:
            reduce_inline(channel, numbers, [pb.OP_BIT_AND])
        except grpc.RpcError as error:
            print(error.code().name, error.details(), dict(error.trailing_metadata())["x-request-id"], sep=": ")


if __name__ == "__main__":
    main(sys.argv[1])

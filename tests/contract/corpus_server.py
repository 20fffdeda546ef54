"""How compare_builds.py asks a server: the cases of a corpus, sent as each of them says, and the answers as bytes.

Python's parser of messages would lose what the answers are compared for, such as the bits of NaNs: they are taken apart here.
"""

import dataclasses
import fcntl
import importlib
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile

import grpc

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
import corpus_errors  # pylint: disable=wrong-import-position
import harness  # pylint: disable=wrong-import-position

PROTOS = pathlib.Path(__file__).resolve().parents[2] / "proto"
DEADLINE_S = 60
FLAGS = {"cuda": "false", "cpu_threads": "4", "log_level": "warning"}
REGION_BYTES = 1 << 20  # for results; those of some requests have no room
MERGED_STATES = {5: 1, 8: 3}  # fields of ReduceResponse with a state, and those of MergeRequest for it


def load_proto():
    """The module of reduced.proto, generated anew."""
    with tempfile.TemporaryDirectory() as folder:
        protoc = [os.environ.get("PROTOC", "protoc"), f"--python_out={folder}", f"-I{PROTOS}"]
        subprocess.run([*protoc, PROTOS / "reduced/v1/reduced.proto"], timeout=DEADLINE_S, check=True)
        sys.path.insert(0, folder)
        try:
            return importlib.import_module("reduced.v1.reduced_pb2")
        finally:
            sys.path.remove(folder)


def varint(value):
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def fields(message):
    """The number, the content and all bytes of each field."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        begin, tag = at, number()
        if tag & 7 == 2:
            size = number()
            at += size
            yield tag >> 3, message[at - size : at], message[begin:at]
        else:
            content = at
            at = {0: at, 1: at + 8, 5: at + 4}[tag & 7]
            if tag & 7 == 0:
                number()
            yield tag >> 3, message[content:at], message[begin:at]


def enclosed(number, content):
    """A field that is a message or bytes."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def without(message, *numbers):
    return b"".join(whole for number, _, whole in fields(message) if number not in numbers)


def comparable(response):
    """A ReduceResponse without its timing (4) and the reason (5) of its execution (3)."""
    return b"".join(enclosed(3, without(content, 5)) if number == 3 else whole
                    for number, content, whole in fields(response) if number != 4)


@dataclasses.dataclass
class Answer:
    """One answer: of a call, or what it left in a region or as a resident array."""

    content: bytes  # a message or elements; of an error its text
    what: str  # the name of the message, "elements", or the status of an error

    @property
    def is_error(self):
        return self.what.isupper()

    @property
    def error_class(self):
        """The status of an error and the field that its message names, or what it says if it names none."""
        text = self.content.decode()
        field = re.match(r"[\w.\[\], ]+(?=: )", text)
        return self.what, re.sub(r"\d+", "#", field[0] if field else text)


def _serialized(message):
    return message if isinstance(message, bytes) else message.SerializeToString()


def _error(code, text):
    return Answer(text.encode(), next(status.name for status in grpc.StatusCode if status.value[0] == code))


def _failed(error):
    """The answer of a call that failed. The server has to be there."""
    if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        raise RuntimeError(f"a call failed: {error.code().name}: {error.details()}")
    return Answer(error.details().encode(), error.code().name)


class Server:
    """A server of one build, with `flags` beside FLAGS or instead of them. `ask` is not thread-safe."""

    def __init__(self, pb, program, flags):
        self.pb = pb
        flags = FLAGS | dict(flag.removeprefix("--").split("=", 1) for flag in flags)
        self._server = harness.Server(*(f"--{name}={value}" for name, value in flags.items()), program=program)
        self._channel = grpc.insecure_channel(self._server.unix, options=[
            ("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)])
        info = self._call("GetServerInfo", pb.GetServerInfoRequest(), pb.GetServerInfoResponse.FromString)
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._door.settimeout(DEADLINE_S)
        self._door.connect(info.region_socket)

    def stop(self):
        self._door.close()
        self._channel.close()
        log = self._server.log()
        if self._server.stop() != 0:
            raise RuntimeError(f"the server failed:\n{log}")

    def ask(self, case):
        """The answers to a case."""
        self._tokens, self._arrays, self._written = [], [], None
        try:
            answers = self._merge(case) if case.merge is not None else self._send(case)
            if self._written is not None:
                answers.append(Answer(os.pread(self._written, REGION_BYTES, 0), "elements"))
            return answers
        finally:
            if self._written is not None:
                os.close(self._written)
            for array in self._arrays:
                self._call("DeleteArray", self.pb.DeleteArrayRequest(id=array.id, owner=array.owner), bytes)
            for token in self._tokens:
                self._ask_door({"release": {"token": token}})

    # Calls.

    def _method(self, kind, name, response=bytes):
        return getattr(self._channel, kind)(f"/reduced.v1.Reduction/{name}", _serialized, response)

    def _call(self, name, request, response):
        return self._method("unary_unary", name, response)(request, timeout=DEADLINE_S)

    def _ask_door(self, request, *descriptors):
        socket.send_fds(self._door, [json.dumps(request).encode()], descriptors)
        answer = json.loads(self._door.recv(4096))
        if answer.get("code"):
            raise RuntimeError(f"the region socket refuses {request}: {answer}")
        return answer.get("token")

    def _send(self, case):
        if case.source == "session":
            return self._session(case.requests)
        if case.source in ("stream", "parts"):
            return self._stream(case)
        return self._reduce(case, case.requests[0])

    def _reduce(self, case, request):
        try:
            response = self._call("Reduce", self._placed(case, request), bytes)
        except grpc.RpcError as error:
            return [_failed(error)]
        if request.HasField("keep"):
            return self._kept(response)
        return [Answer(comparable(response), "ReduceResponse")]

    def _kept(self, response):
        """The response without what is random, and the arrays that were kept."""
        message = self.pb.ReduceResponse.FromString(comparable(response))
        answers = [Answer(b"", "ReduceResponse")]
        for result in [*message.arrays, message.keys] if message.HasField("keys") else message.arrays:
            self._arrays.append(self.pb.ArrayInfo.FromString(result.kept.SerializeToString()))
            chunks = self._method("unary_stream", "GetArray", self.pb.GetArrayResponse.FromString)(
                self.pb.GetArrayRequest(id=result.kept.id), timeout=DEADLINE_S)
            answers.append(Answer(b"".join(message.chunk for message in chunks), "elements"))
            for field in ("id", "age_ms", "expires_in_ms"):
                result.kept.ClearField(field)
        answers[0].content = message.SerializeToString()
        return answers

    def _session(self, requests):
        messages = [self.pb.SessionRequest(id=i, reduce=request) for i, request in enumerate(requests)]
        try:
            responses = list(self._method("stream_stream", "Session")(iter(messages), timeout=DEADLINE_S))
        except grpc.RpcError as error:
            return [_failed(error)]
        answers = {}
        for response in responses:
            message = self.pb.SessionResponse.FromString(response)
            reduced = [content for number, content, _ in fields(response) if number == 4]
            answers[message.id] = (_error(message.code, message.message) if message.code else
                                   Answer(comparable(reduced[0]), "ReduceResponse"))
        return [answers[i] for i in sorted(answers)]

    def _stream(self, case):
        """The array as one stream, cut into chunks, or as parts at once, of which any may have the error."""
        header = self.pb.ReduceRequest.FromString(case.requests[0].SerializeToString())
        data = header.inline_data
        header.ClearField("inline_data")

        def messages(data, cuts, part=None):
            yield self.pb.ReduceStreamRequest(header=header, stream_part=part)
            bounds = [0, *cuts, len(data)]
            for begin, end in zip(bounds, bounds[1:]):
                yield self.pb.ReduceStreamRequest(chunk=data[begin:end])

        call = self._method("stream_unary", "ReduceStream")
        if case.source == "stream":
            calls = [call.future(messages(data, case.cuts), timeout=DEADLINE_S)]
        else:
            upload = os.urandom(8).hex()
            calls = []
            for index, (first, end) in enumerate(zip(case.cuts, case.cuts[1:])):
                part = self.pb.StreamPart(upload=upload, parts=len(case.cuts) - 1, index=index, first=first, count=end - first)
                elements = data[first * case.width : end * case.width]
                calls.append(call.future(messages(elements, [], part), timeout=DEADLINE_S))
        answers = []
        for each in calls:
            try:
                answers.append(Answer(comparable(each.result()), "ReduceResponse"))
            except grpc.RpcError as error:
                answers.append(_failed(error))
        errors = [answer for answer in answers if answer.is_error and answer.what != "ABORTED"]
        if len(calls) > 1 and errors:
            errors = [Answer(re.sub(rb"\d+", b"#", error.content), error.what) for error in errors]
            return [min(errors, key=lambda error: (error.what, error.content))]
        return answers

    def _merge(self, case):
        """The answers of the parts, and of their states."""
        answers, states = [], b""
        for request in case.requests:
            answers += self._reduce(case, request)
            for number, content, _ in fields(answers[-1].content) if not answers[-1].is_error else ():
                if number in MERGED_STATES:
                    states += enclosed(MERGED_STATES[number], content)
        question = self.pb.MergeRequest(**case.merge).SerializeToString()
        try:
            merged = self._method("unary_unary", "Merge")(states + question, timeout=DEADLINE_S)
            answers.append(Answer(merged, "MergeResponse"))
        except grpc.RpcError as error:
            answers.append(_failed(error))
        return answers

    # Where elements are.

    def _placed(self, case, request):
        """The request with its elements where the case has them."""
        request = self.pb.ReduceRequest.FromString(request.SerializeToString())
        self._place(request, case.source, case)
        for side in corpus_errors.sides_of(request):
            self._place(side, case.sides, case)
        if request.HasField("write_to"):
            self._written = os.memfd_create("results")
            os.posix_fallocate(self._written, 0, REGION_BYTES)
            request.write_to.token = self._share(self._written, writable=True)
        return request

    def _place(self, message, source, case):
        if source == "resident" and not case.spoiled:
            message.array_id = self._put(message)
        elif source == "region":
            memory = os.memfd_create("elements", os.MFD_ALLOW_SEALING)
            os.write(memory, bytes(case.skew) + message.inline_data)
            if case.sealed:
                fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
            message.region.token = self._share(memory)
            message.region.offset = case.skew
            os.close(memory)

    def _share(self, descriptor, writable=False):
        token = self._ask_door({"shareMemory": {"writable": writable}}, descriptor)
        self._tokens.append(token)
        return token

    def _put(self, message):
        def messages():
            yield self.pb.PutArrayRequest(header=self.pb.PutArrayHeader(array=message.array, owner="corpus"))
            for begin in range(0, len(message.inline_data), 1 << 20):
                yield self.pb.PutArrayRequest(chunk=message.inline_data[begin : begin + (1 << 20)])

        put = self._method("stream_unary", "PutArray", self.pb.PutArrayResponse.FromString)(messages(), timeout=DEADLINE_S)
        self._arrays.append(put.array)
        message.ClearField("array")
        return put.array.id

#!/usr/bin/env python3
"""Compares two builds of `reduced`: both answer a seeded corpus of requests (corpus.py), and the answers are compared byte for
byte, as they came on the wire: results, keys, states, arrays that were kept or written to a region, merged states, and what
ran. Of errors the status and the field are compared; a message that is worded differently is only counted. Times, the
reason of the placement and random ids are left out.

    compare_builds.py --before OLD/reduced --after NEW/reduced                # exits with 1 if an answer differs
    compare_builds.py --after OLD/reduced --record old.answers                # the answers, for a machine without OLD/reduced
    compare_builds.py --against old.answers --after NEW/reduced
    compare_builds.py --before OLD/reduced --after NEW/reduced --only 4711    # prints the request and the answers, whole
    compare_builds.py ... --after_flag=--cpu_threads=1                        # a flag of one of the two servers

It needs grpcio, protobuf and NumPy (Debian: python3-grpcio python3-protobuf python3-numpy) and `protoc`, or PROTOC.
"""

import argparse
import base64
import collections
import concurrent.futures
import gzip
import hashlib
import json
import math
import re
import sys

from google.protobuf import text_format

import corpus
from corpus_server import Answer, Server, load_proto

PRINTED = 20  # differences; the others are only counted


class Recorded:
    """The answers that a build gave earlier: a line of JSON for each case."""

    def __init__(self, path):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            self._rows = {row["number"]: row for row in map(json.loads, lines)}

    def ask(self, case):
        row = self._rows.get(case.number)
        if row is None or row["case"] != digest(case):
            raise SystemExit(f"request {case.number} is not the one whose answers were recorded: another seed, engine or corpus")
        return [Answer(base64.b64decode(content), what) for what, content in row["answers"]]

    def stop(self):
        pass


class Record:
    def __init__(self, path):
        self._file = gzip.open(path, "wt", compresslevel=1, encoding="utf-8")

    def add(self, case, answers):
        contents = [(answer.what, base64.b64encode(answer.content).decode()) for answer in answers]
        self._file.write(json.dumps({"number": case.number, "case": digest(case), "answers": contents}) + "\n")

    def close(self):
        self._file.close()


def digest(case):
    return hashlib.sha256(b"".join(request.SerializeToString() for request in case.requests)).hexdigest()


# Differences.


def same(before, after):
    if before.is_error and after.is_error:
        return before.error_class == after.error_class
    return before == after


def shown(pb, answer, whole=False):
    """An answer, in words."""
    if answer.is_error:
        return f"{answer.what}: {answer.content.decode()}"
    if answer.what == "elements":
        return shortened(answer.content, whole)
    return text_of(getattr(pb, answer.what).FromString(answer.content), whole)


def shortened(data, whole=False):
    return data.hex() if whole or len(data) <= 64 else f"{data[:64].hex()}... ({len(data)} bytes)"


def text_of(message, whole=False):
    """A message on one line, its elements as shortened hexadecimal digits."""
    short = type(message).FromString(message.SerializeToString())

    def shorten(part):
        for field, value in part.ListFields():
            if field.type == field.TYPE_BYTES:
                setattr(part, field.name, shortened(value, whole).encode())
            elif field.type == field.TYPE_MESSAGE:
                for each in value if field.label == field.LABEL_REPEATED else [value]:
                    shorten(each)

    shorten(short)
    text = text_format.MessageToString(short, as_one_line=True)
    return text if whole or len(text) < 3000 else f"{text[:3000]}..."


def first_difference(pb, before, after):
    """Where two answers that are no errors differ first: in which element of which result, else in which byte."""

    def differs(before, after, width=1):
        at = next((i for i, (b, a) in enumerate(zip(before, after)) if b != a), min(len(before), len(after))) // width * width
        return at // width, before[at : at + width].hex(), after[at : at + width].hex()

    if before.what == after.what and before.what != "elements":
        arrays = [getattr(pb, answer.what).FromString(answer.content) for answer in (before, after)]
        for b, a in zip(*(message.arrays for message in arrays)):
            count = max(1, math.prod(b.array.shape))
            if b.array == a.array and b.data != a.data and len(b.data) % count == 0:
                differing = differs(b.data, a.data, len(b.data) // count)
                return "{} of output {}: {} and {} (little-endian)".format(pb.Op.Name(b.op), *differing)
    return "byte {}: {} and {}".format(*differs(before.content, after.content))


# Differences that are meant: what changed, and whether the answers to a case differ so.


def names_no_scalar(case, before, after):
    return case.merge is not None and all(
        same(b, a) or (b.what == a.what and b.content.replace(b"output []: ", b"") == a.content) for b, a in zip(before, after))


KNOWN = {
    # Since 0.2.0. `[]` names nothing, and Reduce has never said it.
    "Merge does not name the only output of a mask in an error": names_no_scalar,
}


def report(pb, case, before, after, whole):
    """What differs between the answers of a case."""
    lines = [f"request {case.number} ({case.label()})", *(f"  {text_of(request, whole)}" for request in case.requests)]
    if len(before) != len(after):
        lines.append(f"  {len(before)} answers and {len(after)}")
    for i, (b, a) in enumerate(zip(before, after)):
        if whole or not same(b, a):
            lines += [f"  answer {i}, before: {shown(pb, b, whole)}", f"  answer {i}, after:  {shown(pb, a, whole)}"]
        if not same(b, a) and not b.is_error and not a.is_error:
            lines.append(f"  answer {i} differs first in {first_difference(pb, b, a)}")
    return "\n".join(lines)


class Comparison:
    """Counts what is alike and prints what is not."""

    def __init__(self, pb, whole):
        self.pb, self.whole = pb, whole
        self.different = 0
        self.known, self.reworded = collections.Counter(), {}
        self.statuses = collections.Counter()

    def add(self, case, before, after):
        for answer in after:
            self.statuses[answer.what if answer.is_error else "OK"] += 1
        for b, a in zip(before, after):
            if b.is_error and same(b, a) and b != a:
                text = re.sub(r"\d+", "#", a.content.decode())
                self.reworded.setdefault(text, (case.number, b.content.decode(), a.content.decode()))
        different = len(before) != len(after) or not all(map(same, before, after))
        if different:
            name = next((name for name, is_known in KNOWN.items() if is_known(case, before, after)), None)
            different = name is None
            if not different:
                self.known[name] += 1
        self.different += different
        if self.whole or (different and self.different <= PRINTED):
            print(report(self.pb, case, before, after, self.whole), flush=True)


def set_engine(pb, case, engine):
    for request in case.requests:
        if not request.options.pipeline and not case.spoiled:
            request.options.engine = pb.Engine.Value(f"ENGINE_{engine.upper()}")
            request.options.device = ""


def arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--requests", type=int, default=10000)
    parser.add_argument("--distribution", action="store_true", help="requests for medians, histograms and the like, which both builds have")
    parser.add_argument("--only", type=int, help="one request, by its number")
    before = parser.add_mutually_exclusive_group()
    before.add_argument("--before", help="a program `reduced`")
    before.add_argument("--against", help="a file of --record")
    parser.add_argument("--after", required=True, help="the program `reduced` to compare or to record")
    parser.add_argument("--record", help="a file for the answers of --after")
    parser.add_argument("--before_flag", action="append", default=[], help="of the server of --before, such as --cpu_threads=1")
    parser.add_argument("--after_flag", action="append", default=[], help="of the server of --after")
    parser.add_argument("--engine", choices=("cpu", "cuda"), help="of the requests that name no pipeline")
    return parser.parse_args(argv)


def main(argv):
    options = arguments(argv)
    pb = load_proto()
    builds, record = [], None
    comparison = Comparison(pb, options.only is not None)
    numbers = range(options.requests) if options.only is None else [options.only]
    generator = corpus.Generator(pb, options.seed, options.distribution)
    try:
        cuda = [f"--cuda={options.engine == 'cuda'}".lower()]
        if options.before:
            builds.append(Server(pb, options.before, cuda + options.before_flag))
        elif options.against:
            builds.append(Recorded(options.against))
        builds.append(Server(pb, options.after, cuda + options.after_flag))
        record = Record(options.record) if options.record else None
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for number in numbers:
                case = generator.case(number)
                if options.engine:
                    set_engine(pb, case, options.engine)
                answers = list(pool.map(lambda build: build.ask(case), builds))  # pylint: disable=cell-var-from-loop
                comparison.add(case, answers[0], answers[-1])
                if record is not None:
                    record.add(case, answers[-1])
    finally:
        for build in builds:
            build.stop()
        if record is not None:
            record.close()
    statuses = ", ".join(f"{status} {count}" for status, count in sorted(comparison.statuses.items()))
    for number, before, after in comparison.reworded.values():
        print(f"worded differently, for instance in request {number}:\n  before: {before}\n  after:  {after}")
    for name, count in comparison.known.items():
        print(f"as it should be, in {count} requests: {name}")
    print(f"{len(numbers)} requests of seed {options.seed} ({statuses}): {comparison.different} differ")
    return 1 if comparison.different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

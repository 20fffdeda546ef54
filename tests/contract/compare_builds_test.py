"""compare_builds.py: a build agrees with itself, whatever its threads; a planted difference is found; the corpus has every kind."""

import base64
import collections
import contextlib
import gzip
import io
import json
import os
import pathlib
import re
import sys
import tempfile
import unittest

try:
    import grpc  # pylint: disable=unused-import
    import google.protobuf  # pylint: disable=unused-import
except ImportError:
    print("SKIPPED: the client is grpcio, which isn't there (Debian: python3-grpcio python3-protobuf)")
    sys.exit(77)

import compare_builds
import corpus
import corpus_errors
import corpus_server

REQUESTS = 300
SUM_ALONE = bytes.fromhex("0a0f0801120b080d11")  # results { op: OP_SUM value { dtype: DTYPE_F64 f: ...


def last_array(content):
    """The last array of results of a ReduceResponse that ends with it, else nothing."""
    arrays = [field for number, field, _ in corpus_server.fields(content) if number == 6]
    return arrays[-1] if arrays and content.endswith(arrays[-1]) else b""


# Changes of answers: which answers can have it, and what it makes of them.
PLANTED = {
    "a bit of a result": (lambda what, content: what == "ReduceResponse" and content.startswith(SUM_ALONE),
                          lambda what, content: (what, content[:9] + bytes([content[9] ^ 1]) + content[10:])),
    "a bit of an array": (lambda what, content: what == "ReduceResponse" and len(last_array(content)) > 30,
                          lambda what, content: (what, content[:-1] + bytes([content[-1] ^ 128]))),
    "another status": (lambda what, content: what == "OUT_OF_RANGE", lambda what, content: ("INVALID_ARGUMENT", content)),
    "another field": (lambda what, content: content.startswith(b"op "),
                      lambda what, content: (what, content.replace(b"op", b"ops", 1))),
    "no state": (lambda what, content: what == "ReduceResponse" and corpus_server.without(content, 5) != content,
                 lambda what, content: (what, corpus_server.without(content, 5))),
    "other words": (lambda what, content: content.startswith(b"op min: got"),
                    lambda what, content: (what, content.replace(b"got", b"received"))),
}


def compare(*arguments):
    """The exit status and what is printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = compare_builds.main([*arguments, "--after", os.environ["REDUCED"], f"--requests={REQUESTS}", "--seed=7"])
    return status, printed.getvalue()


class CompareBuildsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.record = pathlib.Path(folder.name) / "answers"
        status, printed = compare(f"--record={cls.record}", "--after_flag=--cpu_threads=1")
        assert status == 0, printed
        with gzip.open(cls.record, "rt", encoding="utf-8") as lines:
            cls.rows = [json.loads(line) for line in lines]

    def compare_with(self, rows):
        """Compares the server with a record of these rows."""
        path = self.record.with_name("changed")
        with gzip.open(path, "wt", encoding="utf-8") as lines:
            lines.writelines(json.dumps(row) + "\n" for row in rows)
        return compare(f"--against={path}", "--after_flag=--cpu_threads=3")

    def test_a_build_agrees_with_itself(self):
        status, printed = self.compare_with(self.rows)
        self.assertEqual(status, 0, printed)
        self.assertRegex(printed, rf"^{REQUESTS} requests of seed 7 \(.*\): 0 differ\n$")

    def test_planted_differences_are_found(self):
        """One in the first answer of another case each, as PLANTED says."""
        planted = {}
        left = dict(PLANTED)
        rows = json.loads(json.dumps(self.rows))
        for row in rows:
            for answer in row["answers"]:
                what, content = answer[0], base64.b64decode(answer[1])
                name = next((name for name, (is_wanted, _) in left.items() if is_wanted(what, content)), None)
                if name is not None:
                    planted[name] = row["number"]
                    answer[0], content = left.pop(name)[1](what, content)
                    answer[1] = base64.b64encode(content).decode()
                    break
        self.assertEqual(left, {}, "the record has no such answers")
        status, printed = self.compare_with(rows)
        self.assertEqual(status, 1, printed)
        reworded = planted.pop("other words")
        self.assertIn(f"worded differently, for instance in request {reworded}:\n  before: op min: received ", printed)
        found = [int(number) for number in re.findall(r"(?m)^request (\d+) \(", printed)]
        self.assertEqual(found, sorted(planted.values()), printed)
        self.assertEqual(len(re.findall(r"(?m)^  answer \d+, (before|after):", printed)), 2 * len(planted), printed)
        self.assertRegex(printed, r"differs first in OP_\w+ of output \d+: [0-9a-f]+ and [0-9a-f]+ ")
        self.assertTrue(printed.endswith(f"): {len(planted)} differ\n"), printed)

    def test_a_record_of_other_requests_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "request 0 is not the one"):
            self.compare_with([row | {"number": row["number"] ^ 1} for row in self.rows])


class CorpusTest(unittest.TestCase):
    def test_it_has_every_kind(self):
        pb = corpus_server.load_proto()
        generator = corpus.Generator(pb, 1)
        seen = collections.Counter()
        for number in range(2500):
            case = generator.case(number)
            seen.update([case.source, f"sides {case.sides}", case.spoiled, f"merge {case.merge is not None}"])
            for request in case.requests:
                seen.update([request.WhichOneof("source"), f"dtype {request.array.dtype}", f"state {request.return_state}"])
                seen.update(f"op {op}" for op in request.ops)
                seen.update(field.name for field, _ in request.ListFields())
                seen.update(f"{field.name} {value}" for field, value in request.options.ListFields())
        enumerations = {"op": corpus.OPS, "dtype": range(1, 14), "nan_policy": (1, 2), "overflow_policy": (1, 2, 3),
                        "precision": (1, 2)}
        wanted = [f"{name} {value}" for name, values in enumerations.items() for value in values]
        wanted += ["inline", "stream", "parts", "session", "resident", "region", "sides inline", "sides resident", "sides region",
                   "axes", "segments", "keys", "where", "keep", "write_to", "empty", "state True", "merge True",
                   *corpus_errors.SPOILERS]
        self.assertEqual([name for name in wanted if seen[name] == 0], [])

    def test_a_seed_is_the_same_corpus_again(self):
        pb = corpus_server.load_proto()
        first, second = corpus.Generator(pb, 3), corpus.Generator(pb, 3)
        for number in (5, 2, 9, 5):
            self.assertEqual(compare_builds.digest(first.case(number)), compare_builds.digest(second.case(number)))
        self.assertNotEqual(compare_builds.digest(first.case(1)), compare_builds.digest(corpus.Generator(pb, 4).case(1)))


if __name__ == "__main__":
    unittest.main()

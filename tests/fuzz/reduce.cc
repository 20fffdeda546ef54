// Whole requests on the CPU engine: every answer against the oracle of the tests, and the same array in two parts.
//
// The input: dtype, policies, precision and ddof, where the array is cut, its alignment, the op that is compared with
// the slow oracle of exact sums, then the elements.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_format.h"
#include "kernels/algebra/finalize.h"
#include "kernels/cpu/engine.h"
#include "kernels/exact/answers.h"
#include "proto/codec/state_codec.h"
#include "proto/codec/values.h"
#include "reduced/v1/reduced.pb.h"
#include "server/wire/request.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/data.h"
#include "tests/support/exact_oracle.h"
#include "tests/support/oracle.h"
#include "tests/support/runs.h"

namespace reduced::fuzz {
namespace {

constexpr std::size_t kMostBytes = 16384;        // of elements
constexpr std::size_t kMostForExactOracle = 16;  // elements: it is slow

Engine& CpuEngine() {
  static Engine* const engine = MakeCpuEngine(EngineOptions{.cpu_threads = 1, .cpu_lanes = 1}).release();
  return *engine;
}

State StateOf(const ReduceSpec& spec, const void* data) {
  absl::StatusOr<Answer> result =
      test::ReduceAndWait(CpuEngine(), Job{.spec = spec, .array = {.data = data, .space = MemorySpace::kHost}});
  Require(result.ok(), "a reduction ends", result.status().message());
  return std::move(result->state);
}

// The state on its way to a client and back.
State Carried(const ReduceSpec& spec, const State& state) {
  v1::State message;
  ToProto(spec, state, &message);
  absl::StatusOr<StateOfSpec> read = ParseState(message, {});
  Require(read.ok(), "the state of a reduction is a state", read.status().message());
  return std::move(read->state);
}

// The elements of an array of floats.
std::vector<double> Elements(DType dtype, const void* data, std::int64_t count) {
  std::vector<double> elements;
  for (std::int64_t i = 0; i < count; ++i) {
    const test::Facts one = test::Study(dtype, static_cast<const std::byte*>(data) + i * RowOf(dtype).bytes, 1);
    elements.push_back(one.nans == 1 ? test::kNan : std::get<double>(one.lowest_value.value));
  }
  return elements;
}

absl::StatusOr<Value> AnswerTo(ReduceSpec spec, Op op, const State& state) {
  spec.ops = {op};
  const absl::StatusOr<std::vector<Value>> values = Finalize(spec, state);
  if (!values.ok()) return values.status();
  return values->at(0);
}

bool IsExact(const ReduceSpec& spec, Op op) { return spec.precision == Precision::kExact && IsExactOp(op, spec.dtype); }

// `schoolbook`: an op to compare with the exact oracle.
void CheckAnswers(const test::Facts& facts, const std::vector<double>& elements, const ReduceSpec& spec,
                  std::optional<Op> schoolbook, const State& state, absl::string_view how) {
  for (const Op op : spec.ops) {
    const absl::StatusOr<Value> got = AnswerTo(spec, op, state);
    std::string wrong;
    if (!IsExact(spec, op)) {
      wrong = test::Mismatch(test::Expect(facts, spec, op), got);
    } else if (op == schoolbook && elements.size() <= kMostForExactOracle) {
      test::Expected exact;
      exact.value = {DType::kF64, test::ExactlyBySchoolbook(op, elements, spec.nan_policy, spec.ddof)};
      wrong = test::Mismatch(exact, got);
    }
    Require(wrong.empty(), "the answer is that of the oracle",
            absl::StrFormat("%s: %s of %s: %s", how, RowOf(op).name, test::Describe(spec, "array"), wrong));
  }
}

}  // namespace

FUZZ_TARGET(reduce) {
  v1::ReduceRequest request;
  const DTypeRow& dtype = kDTypes[input.Choice(std::size(kDTypes))];
  request.mutable_array()->set_dtype(ToProto(dtype.dtype));
  v1::ReduceOptions& options = *request.mutable_options();
  options.set_nan_policy(static_cast<v1::NanPolicy>(input.Choice(3)));
  options.set_overflow_policy(static_cast<v1::OverflowPolicy>(input.Choice(4)));
  options.set_precision(static_cast<v1::Precision>(input.Choice(3)));
  options.set_ddof(static_cast<std::int64_t>(input.Choice(4)));
  const std::size_t at = input.Number<std::uint16_t>();
  const std::size_t misalignment = input.Choice(64);
  const std::size_t schoolbook = input.Number();
  const absl::string_view given = input.Take(kMostBytes);
  const std::int64_t count = static_cast<std::int64_t>(given.size()) / dtype.bytes;
  request.mutable_array()->add_shape(count);
  for (const Op op : test::OpsOf(dtype.dtype)) {
    if (count > 0 || !RowOf(op).error_if_empty) request.add_ops(ToProto(op));
  }

  server::RequestLimits limits;
  server::ArrayShape shape;
  const absl::StatusOr<Question> question = server::ParseHeader(request, limits, &shape);
  Require(question.ok(), "the request is good", question.status().message());
  const ReduceSpec* const spec = &question->spec;

  test::Bytes bytes(static_cast<std::size_t>(shape.bytes));
  if (!bytes.empty()) std::memcpy(bytes.data(), given.data(), bytes.size());
  const test::ExactArray array(bytes, misalignment);
  const test::Facts facts = test::Study(dtype.dtype, array.data(), count);
  const State whole = Carried(*spec, StateOf(*spec, array.data()));
  std::vector<double> elements;
  if (dtype.is_float) elements = Elements(dtype.dtype, array.data(), count);
  CheckAnswers(facts, elements, *spec, spec->ops[schoolbook % spec->ops.size()], whole, "whole");

  // In two parts.
  ReduceSpec first = *spec, second = *spec;
  first.count = static_cast<std::int64_t>(at) % (count + 1);
  second.count = count - first.count;
  const auto* const begin = static_cast<const std::byte*>(array.data());
  State parts = Carried(first, StateOf(first, begin));
  State rest = Carried(second, StateOf(second, begin + first.count * dtype.bytes));
  Shift(first.count, &rest);
  Combine(rest, &parts);
  CheckAnswers(facts, elements, *spec, std::nullopt, parts, "parts");
  for (const Op op : spec->ops) {
    if (!IsExact(*spec, op)) continue;
    const auto from_whole = AnswerTo(*spec, op, whole), from_parts = AnswerTo(*spec, op, parts);
    Require(from_whole.ok() && from_parts.ok(), "an exact answer is there");
    Require(test::SameBits(*from_whole, *from_parts), "an exact answer does not depend on the cut",
            std::string(RowOf(op).name));
  }
}

}  // namespace reduced::fuzz

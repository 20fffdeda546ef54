#include "proto/codec/arrays_state.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/algebra/finalize.h"
#include "kernels/algebra/layout.h"
#include "kernels/exact/answers.h"
#include "kernels/folds/fold.h"
#include "proto/codec/op_call.h"
#include "proto/codec/values.h"

namespace reduced {
namespace {

constexpr std::uint32_t kArraysVersion = 1;
constexpr int kMaxResultDimensions = 64;
constexpr std::size_t kOutputsBetweenStops = 1024;  // some milliseconds

// The state of no element.
State NoElement(const ReduceSpec& spec) {
  State state;
  if (ExactAccumulatorsFor(spec) != 0) state.exact = std::make_unique<ExactSums>();
  return state;
}

ReduceSpec WithCount(ReduceSpec spec, std::int64_t count) {
  spec.count = count;
  return spec;
}

absl::Status Refused(absl::string_view what) { return absl::InvalidArgumentError(what); }

// The number of outputs of that shape. INVALID_ARGUMENT: it is none.
absl::StatusOr<std::int64_t> OutputsOf(const google::protobuf::RepeatedField<std::int64_t>& shape) {
  if (shape.size() > kMaxResultDimensions) {
    return Refused(
        absl::StrFormat("shape: got %d dimensions; allowed: at most %d", shape.size(), kMaxResultDimensions));
  }
  std::int64_t outputs = 1;
  bool empty = false;
  for (const std::int64_t size : shape) {
    if (size < 0) return Refused(absl::StrFormat("shape: got %d; allowed: 0 and more", size));
    empty = empty || size == 0;
  }
  for (const std::int64_t size : shape) {
    if (!empty && __builtin_mul_overflow(outputs, size, &outputs)) {
      return Refused("shape: got more outputs than 64 bits can count; allowed: as many as there are states");
    }
  }
  return empty ? 0 : outputs;
}

// Calls `visit` with a value of the C++ type of a dtype of integers; false: it is another dtype.
template <class Visit>
bool VisitKey(DType dtype, const Visit& visit) {
  return VisitDType(dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (std::is_integral_v<T>) visit(T{});
    return std::is_integral_v<T>;
  });
}

// Keys that ascend. INVALID_ARGUMENT: others.
absl::Status ReadKeys(const v1::ArrayResult& from, std::int64_t groups, DType* dtype, std::vector<__int128>* keys) {
  const std::optional<DType> known = DTypeFromNumber(from.array().dtype());
  if (from.array().shape_size() != 1 || from.array().shape(0) != groups) {
    return Refused(absl::StrFormat("keys.array.shape: got another; allowed: (%d), one for each group", groups));
  }
  bool fits = true;
  const bool integers = known.has_value() && VisitKey(*known, [&]<class Key>(Key key) {
                          fits = from.data().size() / sizeof(Key) == static_cast<std::size_t>(groups) &&
                                 from.data().size() % sizeof(Key) == 0;
                          for (std::size_t i = 0; fits && i < static_cast<std::size_t>(groups); ++i) {
                            std::memcpy(&key, from.data().data() + i * sizeof(Key), sizeof(Key));
                            keys->push_back(key);
                          }
                        });
  if (!integers) return Refused("keys.array.dtype: got another; allowed: integers");
  if (!fits) return Refused(absl::StrFormat("keys.data: got %d bytes; allowed: %d keys", from.data().size(), groups));
  for (std::size_t i = 1; i < keys->size(); ++i) {
    if ((*keys)[i] <= (*keys)[i - 1])
      return Refused(absl::StrFormat("keys.data: got key %d out of order; allowed: ascending", i));
  }
  *dtype = *known;
  return absl::OkStatus();
}

void WriteKeys(DType dtype, const std::vector<__int128>& keys, v1::ArrayResult* to) {
  to->mutable_array()->set_dtype(ToProto(dtype));
  to->mutable_array()->add_shape(static_cast<std::int64_t>(keys.size()));
  std::string& data = *to->mutable_data();
  VisitKey(dtype, [&]<class Key>(Key key) {
    data.resize(keys.size() * sizeof(Key));
    for (std::size_t i = 0; i < keys.size(); ++i) {
      key = static_cast<Key>(keys[i]);
      std::memcpy(data.data() + i * sizeof(Key), &key, sizeof(Key));
    }
  });
}

// Whether parts may lie side by side: the places in a fingerprint's sum of powers can be moved together only.
absl::Status CheckCanInterleave(const ReduceSpec& spec) {
  for (const OpCall& call : spec.ops) {
    if (call.op != Op::kFingerprint || call.given().shard.has_value()) continue;
    return Refused(
        "rows: got several with op fingerprint; allowed: 1, or fingerprint with the shape of the whole array");
  }
  return absl::OkStatus();
}

}  // namespace

std::int64_t LeastStateBytes(const ReduceSpec& spec) {
  v1::State none;
  ToProto(WithCount(spec, 0), NoElement(spec), &none, /*ops=*/AnsweredByAccumulators(spec));
  return static_cast<std::int64_t>(none.ByteSizeLong());
}

std::int64_t EntriesBytes(const State& state) {
  std::int64_t bytes = 0;
  for (const Entries& each : state.entries) bytes += each.bytes();
  return bytes;
}

void AddOutput(const ReduceSpec& spec, const State& state, v1::ArraysState* to) {
  ToProto(WithCount(spec, state.partial.count), state, to->add_outputs(), /*ops=*/AnsweredByAccumulators(spec));
}

void ToProto(const ReduceSpec& spec, std::int64_t positions, const std::vector<State>& outputs, v1::ArraysState* to) {
  to->set_version(kArraysVersion);
  ToProto(WithCount(spec, 0), NoElement(spec), to->mutable_question());
  to->set_empty(static_cast<v1::EmptyPolicy>(spec.empty_policy));
  to->set_count(spec.count);
  to->set_positions(positions);
  for (const State& state : outputs) AddOutput(spec, state, to);
}

absl::Status ArraysMerger::CheckStop(std::size_t output) const {
  return why_stop_ != nullptr && output % kOutputsBetweenStops == 0 ? why_stop_() : absl::OkStatus();
}

absl::Status ArraysMerger::Parse(const v1::ArraysState& part, Whole* to) const {
  if (part.version() != kArraysVersion) {
    return Refused(absl::StrFormat("version: got %d; allowed: %d", part.version(), kArraysVersion));
  }
  if (!v1::EmptyPolicy_IsValid(part.empty()) || part.empty() == v1::EMPTY_POLICY_DEFAULT) {
    return Refused(absl::StrFormat("empty: got %d; allowed: 1 to %d", part.empty(), v1::EmptyPolicy_MAX));
  }
  for (const auto& [field, value] : {std::pair("count", part.count()), {"positions", part.positions()}}) {
    if (value < 0 || value > limits_.max_elements) {
      return Refused(absl::StrFormat("%s: got %d; allowed: 0 to %d", field, value, limits_.max_elements));
    }
  }
  StateLimits none = limits_;
  none.max_elements = 0;
  none.calls = true;
  absl::StatusOr<StateOfSpec> question = ParseState(part.question(), none);
  if (!question.ok()) return Refused(absl::StrCat("question: ", question.status().message()));
  to->question = std::move(question->spec);
  to->question.count = part.count();
  to->question.empty_policy = static_cast<EmptyPolicy>(part.empty());
  to->positions = part.positions();
  const absl::StatusOr<std::int64_t> outputs = OutputsOf(part.shape());
  if (!outputs.ok()) return outputs.status();
  if (*outputs != part.outputs_size()) {
    return Refused(
        absl::StrFormat("outputs: got %d states; allowed: %d, as shape says", part.outputs_size(), *outputs));
  }
  to->shape.assign(part.shape().begin(), part.shape().end());
  if (part.has_keys()) {
    if (to->shape.empty()) return Refused("shape: got no dimension with keys; allowed: the number of keys first");
    const absl::Status status = ReadKeys(part.keys(), to->shape.front(), &to->key_dtype.emplace(), &to->keys);
    if (!status.ok()) return status;
  }
  StateLimits each = limits_;
  each.max_elements = std::min(part.positions(), part.count());
  each.positions = part.positions();
  if (!AnsweredByAccumulators(to->question)) each.question = &to->question;
  for (int i = 0; i < part.outputs_size(); ++i) {
    if (absl::Status stop = CheckStop(static_cast<std::size_t>(i)); !stop.ok()) return stop;
    absl::StatusOr<StateOfSpec> output = ParseState(part.outputs(i), each);
    absl::Status status = output.status();
    if (status.ok()) status = CheckSameQuestion(to->question, output->spec);
    if (!status.ok()) return Refused(absl::StrCat("outputs[", i, "]: ", status.message()));
    to->outputs.push_back(std::move(output->state));
  }
  return absl::OkStatus();
}

absl::Status ArraysMerger::Append(const v1::ArraysState& part, absl::string_view name) {
  Whole parsed;
  absl::Status status = Parse(part, &parsed);
  if (status.ok()) status = CheckRows("positions", parsed.positions, part_rows_);
  if (status.ok() && part_rows_.count > 1) status = CheckCanInterleave(parsed.question);
  if (status.ok() && whole_.has_value()) status = CheckFollows(parsed);
  if (status.ok()) status = Add(std::move(parsed));
  if (!absl::IsInvalidArgument(status)) return status;
  return absl::Status(status.code(), absl::StrCat(name, ": ", status.message()));
}

absl::Status ArraysMerger::CheckFollows(const Whole& part) const {
  const Whole& whole = *whole_;
  if (absl::Status status = CheckSameQuestion(whole.question, part.question); !status.ok()) return status;
  if (part.question.empty_policy != whole.question.empty_policy) {
    return Refused("empty: got another than the first state has; allowed: the same in all of them");
  }
  if (part.key_dtype != whole.key_dtype) {
    return Refused("keys.array.dtype: got another than the first state has; allowed: the same in all of them");
  }
  const bool keyed = whole.key_dtype.has_value();
  if (part.shape.size() != whole.shape.size() ||
      !std::equal(part.shape.begin() + keyed, part.shape.end(), whole.shape.begin() + keyed)) {
    return Refused("shape: got another than the first state has; allowed: the same in all of them, but for the keys");
  }
  for (const auto& [field, got, before] : {std::tuple("count", part.question.count, whole.question.count),
                                           {"positions", part.positions, whole.positions}}) {
    if (got > limits_.max_elements - before) {
      return Refused(absl::StrFormat("%s: got %d after %d of the states before; allowed: %d together", field, got,
                                     before, limits_.max_elements));
    }
  }
  return absl::OkStatus();
}

absl::Status ArraysMerger::Add(Whole part) {
  const bool keyed = part.key_dtype.has_value();
  if (!whole_.has_value()) {  // of no element yet
    whole_.emplace(Whole{.question = WithCount(part.question, 0), .shape = part.shape, .key_dtype = part.key_dtype});
  }
  Whole& whole = *whole_;
  // Outputs without keys are one row.
  const std::size_t rows = keyed ? part.keys.size() : 1;
  const std::size_t columns = rows == 0 ? 0 : part.outputs.size() / rows;
  for (std::size_t row = 0; row < rows; ++row) {
    if (absl::Status stop = CheckStop(row); !stop.ok()) return stop;
    const std::size_t into = keyed ? rows_.try_emplace(part.keys[row], rows_.size()).first->second : 0;
    for (std::size_t column = 0; column < columns; ++column) {
      if (absl::Status stop = CheckStop(row * columns + column); !stop.ok()) return stop;
      State& output = part.outputs[row * columns + column];
      Place(part_rows_, whole.positions, part.positions, &output);
      const std::size_t at = into * columns + column;
      if (at == whole.outputs.size()) {  // the first of its row
        whole.outputs.push_back(std::move(output));
      } else {
        entries_bytes_ -= EntriesBytes(whole.outputs[at]);
        Combine(output, &whole.outputs[at]);
      }
      entries_bytes_ += EntriesBytes(whole.outputs[at]);
    }
  }
  whole.question.count += part.question.count;
  whole.positions += part.positions;
  return absl::OkStatus();
}

std::int64_t ArraysMerger::distribution_bytes() const {
  constexpr std::int64_t kCopies = 2;  // before and after a part is merged; as a message and encoded
  if (!whole_.has_value()) return 0;
  std::int64_t answer = 0;
  for (const OpCall& call : whole_->question.ops) {
    if (!HasAccumulator(call)) answer += ResultBytes(call, whole_->question.dtype);
  }
  return kCopies * (2 * entries_bytes_ + outputs() * answer);
}

void ArraysMerger::SortByKeys() {
  Whole& whole = *whole_;
  const std::size_t columns = rows_.empty() ? 0 : whole.outputs.size() / rows_.size();
  std::vector<State> outputs;
  outputs.reserve(whole.outputs.size());
  for (const auto& [key, row] : rows_) {
    whole.keys.push_back(key);
    const auto first = whole.outputs.begin() + static_cast<std::ptrdiff_t>(row * columns);
    std::move(first, first + static_cast<std::ptrdiff_t>(columns), std::back_inserter(outputs));
  }
  whole.outputs = std::move(outputs);
  whole.shape.front() = static_cast<std::int64_t>(whole.keys.size());
}

absl::Status ArraysMerger::Answer(bool op_errors, v1::MergeResponse* response) const {
  const Whole& whole = *whole_;
  ReduceSpec asked = whole.question;
  struct Result {
    std::byte* data = nullptr;                 // null: it has an error
    std::unique_ptr<DistributionFold> fold{};  // of an op of the distribution
    std::size_t entries = 0;                   // of the state, likewise
  };
  // The message bounds what folds take.
  const FoldLimits limits{[](std::int64_t) { return absl::OkStatus(); }, [](std::int64_t) {},
                          [this] { return why_stop_ == nullptr ? absl::OkStatus() : why_stop_(); }};
  std::vector<Result> results;
  std::size_t entries = 0;
  std::int64_t bytes = 0;  // of all answers
  for (const OpCall& op : asked.ops) {
    bytes += outputs() * ResultBytes(op, asked.dtype);
    if (bytes > std::numeric_limits<int>::max()) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("outputs: got %d, whose results have %d bytes or more; allowed: results of %d bytes",
                          outputs(), bytes, std::numeric_limits<int>::max()));
    }
    const DType dtype = ResultDType(op, asked.dtype);
    const std::vector<std::int64_t> answer = AnswerShape(op);
    v1::ArrayResult* const result = response->add_arrays();
    result->set_op(ToProto(op.op));
    result->mutable_array()->set_dtype(ToProto(dtype));
    result->mutable_array()->mutable_shape()->Add(whole.shape.begin(), whole.shape.end());
    result->mutable_array()->mutable_shape()->Add(answer.begin(), answer.end());
    result->mutable_data()->resize(whole.outputs.size() * static_cast<std::size_t>(ResultBytes(op, asked.dtype)));
    Result& added = results.emplace_back(Result{reinterpret_cast<std::byte*>(result->mutable_data()->data())});
    if (HasAccumulator(op)) continue;
    added.fold = MakeDistributionFold(op, asked, limits);
    added.entries = entries++;
  }
  const Layout names{.outputs = static_cast<std::int64_t>(whole.outputs.size()), .shape = whole.shape};
  absl::Status first_error;  // of an op
  for (std::size_t i = 0; i < whole.outputs.size(); ++i) {
    if (absl::Status stop = CheckStop(i); !stop.ok()) return stop;
    const State& output = whole.outputs[i];
    asked.count = output.partial.count;
    for (std::size_t op = 0; op < results.size(); ++op) {
      Result& result = results[op];
      if (result.data == nullptr) continue;
      std::byte* const to = result.data + i * static_cast<std::size_t>(ResultBytes(asked.ops[op], asked.dtype));
      absl::Status status;
      if (result.fold != nullptr) {
        status = AnswerFromState(output.entries[result.entries], *result.fold, to);
      } else {
        const absl::StatusOr<Value> value = Finalize(asked, asked.ops[op], output);
        status = value.status();
        if (value.ok()) StoreValue(*value, to);
      }
      if (status.ok()) continue;
      const absl::Status error = OutputError(names, static_cast<std::int64_t>(i), status);
      if (!op_errors) return error;
      first_error.Update(error);
      ToProto(error, response->mutable_arrays(static_cast<int>(op))->mutable_error());  // in the place of the data
      result.data = nullptr;
    }
  }
  const bool some =
      std::any_of(results.begin(), results.end(), [](const Result& each) { return each.data != nullptr; });
  return some ? absl::OkStatus() : first_error;
}

absl::Status ArraysMerger::Finish(const WantedOfMerge& wanted, v1::MergeResponse* response) {
  if (!whole_.has_value()) return Refused("states: got none; allowed: at least 1");
  if (whole_->key_dtype.has_value()) SortByKeys();
  const Whole& whole = *whole_;
  if (wanted.results) {
    if (absl::Status status = Answer(wanted.op_errors, response); !status.ok()) return status;
  }
  if (whole.key_dtype.has_value()) WriteKeys(*whole.key_dtype, whole.keys, response->mutable_keys());
  response->set_count(whole.question.count);
  if (!wanted.state) return absl::OkStatus();
  v1::ArraysState& state = *response->mutable_arrays_state();
  ToProto(whole.question, whole.positions, {}, &state);
  for (std::size_t i = 0; i < whole.outputs.size(); ++i) {
    if (absl::Status stop = CheckStop(i); !stop.ok()) return stop;
    AddOutput(whole.question, whole.outputs[i], &state);
  }
  state.mutable_shape()->Add(whole.shape.begin(), whole.shape.end());
  if (whole.key_dtype.has_value()) *state.mutable_keys() = response->keys();
  return absl::OkStatus();
}

absl::Status AnswerWhole(const ReduceSpec& spec, const State& state, const WantedOfMerge& wanted,
                         v1::ReduceResponse* response) {
  v1::ArraysState part;
  ToProto(spec, spec.count, {}, &part);
  AddOutput(spec, state, &part);
  ArraysMerger merger({});
  v1::MergeResponse merged;
  absl::Status status = merger.Append(part, "state");
  if (status.ok()) status = merger.Finish(wanted, &merged);
  response->mutable_arrays()->Swap(merged.mutable_arrays());
  if (wanted.state) response->mutable_arrays_state()->Swap(merged.mutable_arrays_state());
  return status;
}

}  // namespace reduced

#include "proto/codec/arrays_state.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
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
#include "proto/codec/merge.h"
#include "proto/codec/values.h"

namespace reduced {
namespace {

constexpr std::uint32_t kArraysVersion = 1;
constexpr int kMaxResultDimensions = 64;

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

}  // namespace

void ToProto(const ReduceSpec& spec, std::int64_t positions, const std::vector<State>& outputs, v1::ArraysState* to) {
  to->set_version(kArraysVersion);
  ToProto(WithCount(spec, 0), NoElement(spec), to->mutable_question());
  to->set_empty(static_cast<v1::EmptyPolicy>(spec.empty_policy));
  to->set_count(spec.count);
  to->set_positions(positions);
  for (const State& state : outputs) ToProto(WithCount(spec, state.partial.count), state, to->add_outputs());
}

std::int64_t ArraysMerger::Whole::columns() const {
  std::int64_t columns = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) columns *= shape[i];
  return columns;
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
    if (to->shape.empty()) return Refused("shape: got no dimension; allowed with keys: the number of keys first");
    const absl::Status status = ReadKeys(part.keys(), to->shape.front(), &to->key_dtype.emplace(), &to->keys);
    if (!status.ok()) return status;
  }
  StateLimits each = limits_;
  each.max_elements = std::min(part.positions(), part.count());
  each.positions = part.positions();
  for (int i = 0; i < part.outputs_size(); ++i) {
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
  if (status.ok() && !whole_.has_value()) {
    whole_ = std::move(parsed);
  } else if (status.ok()) {
    status = AppendPart(std::move(parsed));
  }
  return status.ok() ? status : absl::Status(status.code(), absl::StrCat(name, ": ", status.message()));
}

absl::Status ArraysMerger::AppendPart(Whole part) {
  Whole& whole = *whole_;
  if (absl::Status status = CheckSameQuestion(whole.question, part.question); !status.ok()) return status;
  if (part.question.empty_policy != whole.question.empty_policy) {
    return Refused("empty: differs from that of the first state; allowed: the same in all of them");
  }
  if (part.key_dtype != whole.key_dtype) {
    return Refused("keys: differ from those of the first state in their dtype; allowed: the same in all of them");
  }
  const bool keyed = whole.key_dtype.has_value();
  if (part.shape.size() != whole.shape.size() ||
      !std::equal(part.shape.begin() + keyed, part.shape.end(), whole.shape.begin() + keyed)) {
    return Refused("shape: differs from that of the first state; allowed: the same in all of them, but for the keys");
  }
  for (const auto& [field, got, before] : {std::tuple("count", part.question.count, whole.question.count),
                                           {"positions", part.positions, whole.positions}}) {
    if (got > limits_.max_elements - before) {
      return Refused(absl::StrFormat("%s: got %d after %d of the states before; allowed together: %d", field, got,
                                     before, limits_.max_elements));
    }
  }
  for (State& state : part.outputs) Shift(whole.positions, &state);
  if (!keyed) {
    for (std::size_t i = 0; i < part.outputs.size(); ++i) Combine(part.outputs[i], &whole.outputs[i]);
  } else {
    // Both have their keys in order.
    const auto columns = static_cast<std::size_t>(whole.columns());
    std::vector<__int128> keys;
    std::vector<State> outputs;
    std::size_t a = 0;
    std::size_t b = 0;
    while (a < whole.keys.size() || b < part.keys.size()) {
      const bool mine = a < whole.keys.size() && (b == part.keys.size() || whole.keys[a] <= part.keys[b]);
      const bool others = b < part.keys.size() && (a == whole.keys.size() || part.keys[b] <= whole.keys[a]);
      keys.push_back(mine ? whole.keys[a] : part.keys[b]);
      for (std::size_t column = 0; column < columns; ++column) {
        State* const first = mine ? &whole.outputs[a * columns + column] : nullptr;
        State* const second = others ? &part.outputs[b * columns + column] : nullptr;
        outputs.push_back(std::move(mine ? *first : *second));
        if (mine && others) Combine(*second, &outputs.back());
      }
      a += mine;
      b += others;
    }
    whole.keys = std::move(keys);
    whole.outputs = std::move(outputs);
    whole.shape.front() = static_cast<std::int64_t>(whole.keys.size());
  }
  whole.question.count += part.question.count;
  whole.positions += part.positions;
  return absl::OkStatus();
}

absl::Status ArraysMerger::Finish(bool return_state, v1::MergeResponse* response, bool results) const {
  if (!whole_.has_value()) return Refused("states: got none; allowed: at least 1");
  const Whole& whole = *whole_;
  const auto describe = [&whole](DType dtype, v1::ArraySpec* array) {
    array->set_dtype(ToProto(dtype));
    array->mutable_shape()->Add(whole.shape.begin(), whole.shape.end());
  };
  if (results) {
    std::vector<std::byte*> data;
    for (const Op op : whole.question.ops) {
      const DType dtype = ResultDType(op, whole.question.dtype);
      v1::ArrayResult* const result = response->add_arrays();
      result->set_op(ToProto(op));
      describe(dtype, result->mutable_array());
      result->mutable_data()->resize(whole.outputs.size() * static_cast<std::size_t>(RowOf(dtype).bytes));
      data.push_back(reinterpret_cast<std::byte*>(result->mutable_data()->data()));
    }
    Layout names;
    names.shape = whole.shape;
    for (std::size_t i = 0; i < whole.outputs.size(); ++i) {
      const State& state = whole.outputs[i];
      const absl::StatusOr<std::vector<Value>> values = Finalize(WithCount(whole.question, state.partial.count), state);
      if (!values.ok()) {
        return absl::Status(values.status().code(),
                            absl::StrCat("output ", OutputName(names, static_cast<std::int64_t>(i)), ": ",
                                         std::string(values.status().message())));
      }
      for (std::size_t op = 0; op < data.size(); ++op) {
        const Value& value = (*values)[op];
        StoreValue(value, data[op] + i * static_cast<std::size_t>(RowOf(value.dtype).bytes));
      }
    }
  }
  if (whole.key_dtype.has_value()) WriteKeys(*whole.key_dtype, whole.keys, response->mutable_keys());
  response->set_count(whole.question.count);
  if (!return_state) return absl::OkStatus();
  v1::ArraysState& state = *response->mutable_arrays_state();
  ToProto(whole.question, whole.positions, whole.outputs, &state);
  state.mutable_shape()->Add(whole.shape.begin(), whole.shape.end());
  if (whole.key_dtype.has_value()) *state.mutable_keys() = response->keys();
  return absl::OkStatus();
}

}  // namespace reduced

#include "proto/codec/state_codec.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "kernels/algebra/float_format.h"
#include "kernels/algebra/validate.h"
#include "kernels/exact/answers.h"
#include "proto/codec/entries_codec.h"
#include "proto/codec/op_call.h"
#include "proto/codec/state_check.h"
#include "proto/codec/values.h"
#include "proto/codec/word_bytes.h"

namespace reduced {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr std::uint32_t kVersion = 1;

absl::Status Wrong(absl::string_view what) { return absl::InvalidArgumentError(what); }

bool Has(AccumulatorSet set, AccumulatorSet any_of) { return (set & any_of) != 0; }

// ---- the tables: every field of message State but those that say what is asked

// Where a field is in a State. Rows are written and read by the same pointers: only a reader's State is written to.
using Place =
    std::variant<double& (*)(State&), std::int64_t& (*)(State&), std::uint64_t& (*)(State&), bool& (*)(State&)>;
#define REDUCED_AT(member) +[](State& state) -> decltype((state.member)) { return state.member; }

enum class Is {
  kAnything,
  kCount,     // from 0 to the number of elements
  kIndex,     // absent if there is no such element
  kKey,       // absent if there is no index
  kExponent,  // so small that no number of states overflows it
};
enum class Of { kAll, kFloats, kIntegers };  // the dtypes that read it; it is written for all of them

struct FieldRow {
  const char* name;
  Place place;
  Is is = Is::kAnything;
  Of of = Of::kAll;
};

// A message whose fields are those of the State one by one.
struct MessageRow {
  const char* name;
  AccumulatorSet accumulators;  // that it is needed for, ...
  bool exact;                   // ... by exact sums
  std::span<const FieldRow> fields;
};

constexpr FieldRow kMoments[] = {{"count", REDUCED_AT(partial.moments.count), Is::kCount},
                                 {"float_pivot", REDUCED_AT(partial.moments.pivot)},
                                 {"offset", REDUCED_AT(partial.moments.offset)},
                                 {"m2", REDUCED_AT(partial.moments.m2)}};

constexpr FieldRow kProduct[] = {
    {"mantissa", REDUCED_AT(partial.float_product.mantissa), Is::kAnything, Of::kFloats},
    {"exponent", REDUCED_AT(partial.float_product.exponent), Is::kExponent, Of::kFloats},
    {"wrapped", REDUCED_AT(partial.int_product.wrapped), Is::kAnything, Of::kIntegers},
    {"magnitude", REDUCED_AT(partial.int_product.magnitude), Is::kAnything, Of::kIntegers},
    {"negative", REDUCED_AT(partial.int_product.negative), Is::kAnything, Of::kIntegers},
    {"zero", REDUCED_AT(partial.int_product.zero), Is::kAnything, Of::kIntegers},
    {"overflowed", REDUCED_AT(partial.int_product.overflowed), Is::kAnything, Of::kIntegers}};

constexpr FieldRow kExtrema[] = {{"min_index", REDUCED_AT(partial.extrema.min_index), Is::kIndex},
                                 {"max_index", REDUCED_AT(partial.extrema.max_index), Is::kIndex},
                                 {"nan_index", REDUCED_AT(partial.extrema.nan_index), Is::kIndex},
                                 {"min_key", REDUCED_AT(partial.extrema.min_key), Is::kKey},
                                 {"max_key", REDUCED_AT(partial.extrema.max_key), Is::kKey}};

constexpr FieldRow kBits[] = {{"bit_and", REDUCED_AT(partial.bits_and)},
                              {"bit_or", REDUCED_AT(partial.bits_or)},
                              {"bit_xor", REDUCED_AT(partial.bits_xor)}};

constexpr FieldRow kCounts[] = {{"nonzero", REDUCED_AT(partial.nonzero), Is::kCount},
                                {"nan", REDUCED_AT(partial.nan), Is::kCount}};

constexpr FieldRow kNonFinite[] = {{"nan", REDUCED_AT(exact->nans), Is::kCount},
                                   {"positive_infinity", REDUCED_AT(exact->positive_infinities), Is::kCount},
                                   {"negative_infinity", REDUCED_AT(exact->negative_infinities), Is::kCount},
                                   {"not_only_negative_zeros", REDUCED_AT(exact->not_only_negative_zeros)}};
#undef REDUCED_AT

constexpr MessageRow kMessages[] = {
    {"non_finite", kExactAccumulators, true, kNonFinite},
    {"moments", SetOf(Accumulator::kMoments), false, kMoments},
    {"product", SetOf(Accumulator::kProduct), false, kProduct},
    {"extrema", SetOf(Accumulator::kExtrema), false, kExtrema},
    {"bits", SetOf(Accumulator::kBits), false, kBits},
    {"counts", SetOf(Accumulator::kCounts), false, kCounts},
};

// A sum, which is a StateNumber: of floats, of integers or exact.
struct SumRow {
  const char* name;
  Accumulator accumulator;
  bool is_signed;
  double Partial::*f64;
  void* (*integer)(Partial&);  // its words, least significant first, ...
  std::size_t integer_bytes;   // ... and how many bytes they take
  std::span<std::uint64_t> (*fixed_point)(ExactSums&);
  int power;          // of an element: its square is added, or itself
  int fraction_bits;  // of fixed_point
};

constexpr SumRow kSums[] = {
    {"sum", Accumulator::kSum, true, &Partial::float_sum, +[](Partial& p) -> void* { return &p.int_sum; },
     sizeof(Partial::int_sum), +[](ExactSums& s) { return std::span(s.sum.word.data(), s.sum.word.size()); }, 1, 1074},
    {"abs_sum", Accumulator::kAbsSum, false, &Partial::float_abs_sum,
     +[](Partial& p) -> void* { return &p.int_abs_sum; }, sizeof(Partial::int_abs_sum),
     +[](ExactSums& s) { return std::span(s.abs_sum.word.data(), s.abs_sum.word.size()); }, 1, 1074},
    {"sum_squares", Accumulator::kSumSquares, false, &Partial::float_sum_squares,
     +[](Partial& p) -> void* { return &p.int_sum_squares; }, sizeof(Partial::int_sum_squares),
     +[](ExactSums& s) { return std::span(s.sum_squares.word.data(), s.sum_squares.word.size()); }, 2, 2148},
};

// ---- fields and messages

const FieldDescriptor* FieldOf(const Message& message, const char* name) {
  return message.GetDescriptor()->FindFieldByName(name);
}

void Set(Message* message, const FieldDescriptor* field, double value) {
  message->GetReflection()->SetDouble(message, field, value);
}
void Set(Message* message, const FieldDescriptor* field, std::int64_t value) {
  message->GetReflection()->SetInt64(message, field, value);
}
void Set(Message* message, const FieldDescriptor* field, std::uint64_t value) {
  message->GetReflection()->SetUInt64(message, field, value);
}
void Set(Message* message, const FieldDescriptor* field, bool value) {
  message->GetReflection()->SetBool(message, field, value);
}
void Get(const Message& message, const FieldDescriptor* field, double* value) {
  *value = message.GetReflection()->GetDouble(message, field);
}
void Get(const Message& message, const FieldDescriptor* field, std::int64_t* value) {
  *value = message.GetReflection()->GetInt64(message, field);
}
void Get(const Message& message, const FieldDescriptor* field, std::uint64_t* value) {
  *value = message.GetReflection()->GetUInt64(message, field);
}
void Get(const Message& message, const FieldDescriptor* field, bool* value) {
  *value = message.GetReflection()->GetBool(message, field);
}

void WriteMessage(const MessageRow& row, State& from, v1::State* to) {
  Message* const message = to->GetReflection()->MutableMessage(to, FieldOf(*to, row.name));
  for (const FieldRow& field : row.fields) {
    if (field.is == Is::kKey && from.partial.extrema.min_index == kNoIndex) continue;
    if (field.is == Is::kIndex && std::get<std::int64_t& (*)(State&)>(field.place)(from) == kNoIndex) continue;
    std::visit([&](auto place) { Set(message, FieldOf(*message, field.name), place(from)); }, field.place);
  }
}

absl::Status CheckField(const MessageRow& row, const FieldRow& field, std::int64_t value, std::int64_t count,
                        std::optional<std::int64_t> positions) {
  constexpr std::int64_t kLargestExponent = std::int64_t{1} << 53;
  const std::string name = absl::StrCat(row.name, ".", field.name);
  if (field.is == Is::kCount) return CheckCount(name, value, count);
  if (field.is == Is::kIndex && (value < 0 || value >= positions.value_or(count))) {
    return Wrong(absl::StrFormat("%s: got %d; allowed: less than %s, which is %d", name, value,
                                 positions.has_value() ? "positions" : "count", positions.value_or(count)));
  }
  if (field.is == Is::kExponent && (value < -kLargestExponent || value > kLargestExponent)) {
    return Wrong(absl::StrFormat("%s: got %d; allowed: -2^53 to 2^53", name, value));
  }
  return absl::OkStatus();
}

absl::Status ReadMessage(const MessageRow& row, const v1::State& from, const ReduceSpec& spec,
                         std::optional<std::int64_t> positions, State* to) {
  const Message& message = from.GetReflection()->GetMessage(from, FieldOf(from, row.name));
  const Of dtype_is = RowOf(spec.dtype).is_float ? Of::kFloats : Of::kIntegers;
  absl::Status status;
  for (const FieldRow& field : row.fields) {
    const FieldDescriptor* const descriptor = FieldOf(message, field.name);
    if (field.of != Of::kAll && field.of != dtype_is) continue;
    if (field.is == Is::kKey && to->partial.extrema.min_index == kNoIndex) continue;
    if (field.is == Is::kIndex && !message.GetReflection()->HasField(message, descriptor)) continue;
    std::visit([&](auto place) { Get(message, descriptor, &place(*to)); }, field.place);
    if (const auto* const place = std::get_if<std::int64_t& (*)(State&)>(&field.place)) {
      status.Update(CheckField(row, field, (*place)(*to), spec.count, positions));
    }
  }
  return status;
}

// ---- sums

void WriteSum(const SumRow& row, const ReduceSpec& spec, bool exact, State& from, v1::State* to) {
  auto* const number = static_cast<v1::StateNumber*>(to->GetReflection()->MutableMessage(to, FieldOf(*to, row.name)));
  if (exact) {
    number->set_fixed_point(EncodeWords(row.fixed_point(*from.exact)));
  } else if (RowOf(spec.dtype).is_float) {
    number->set_f64(from.partial.*row.f64);
  } else {
    std::array<std::uint64_t, 3> words{};
    std::memcpy(words.data(), row.integer(from.partial), row.integer_bytes);
    number->set_integer(EncodeWords(std::span(words).first(row.integer_bytes / sizeof(std::uint64_t))));
  }
}

// The bits before the binary point of the largest magnitude of an element.
int WholeBits(DType dtype) {
  return VisitDType(dtype, []<class T>(std::type_identity<T>) {
    if constexpr (kIsFloat<T>) return FloatFormat<T>::kTop;
    return std::is_same_v<T, Bool> ? 1 : static_cast<int>(8 * sizeof(T));
  });
}

// Reads a number that sums up `count` elements of `element_bits` at most.
absl::Status ReadWords(absl::string_view field, const std::string& bytes, std::int64_t count, int element_bits,
                       bool is_signed, std::span<std::uint64_t> words) {
  if (!DecodeWords(bytes, words)) {
    return Wrong(absl::StrFormat("%s: got %d bytes; allowed: at most %d", field, bytes.size(), words.size_bytes()));
  }
  if (!is_signed && words.back() >> 63 != 0) {
    return Wrong(absl::StrCat(field, ": got a negative number; allowed: 0 or more"));
  }
  // A bound on magnitudes, so that the sum of two sums is within its own.
  if (IsWithin(words, static_cast<std::uint64_t>(count), element_bits)) return absl::OkStatus();
  return Wrong(absl::StrFormat("%s: got a number of %d bits; allowed: what %d elements can sum to, at most %d x 2^%d",
                               field, std::max(BitWidth(words), 1), count, count, element_bits));
}

absl::Status ReadSum(const SumRow& row, const v1::State& from, const ReduceSpec& spec, State* to) {
  const auto& number =
      static_cast<const v1::StateNumber&>(from.GetReflection()->GetMessage(from, FieldOf(from, row.name)));
  const bool exact = to->exact != nullptr;
  const bool is_float = RowOf(spec.dtype).is_float;
  const auto wanted = exact      ? v1::StateNumber::kFixedPoint
                      : is_float ? v1::StateNumber::kF64
                                 : v1::StateNumber::kInteger;
  if (number.number_case() != wanted) {
    const auto name_of = [](int field) {
      return field == 0 ? std::string("nothing") : v1::StateNumber::descriptor()->FindFieldByNumber(field)->name();
    };
    return Wrong(absl::StrCat(row.name, ": got ", name_of(number.number_case()), "; allowed: ", name_of(wanted)));
  }
  const std::string field = absl::StrCat(row.name, exact ? ".fixed_point" : ".integer");
  const int element_bits = row.power * WholeBits(spec.dtype);
  if (exact) {
    return ReadWords(field, number.fixed_point(), spec.count, row.fraction_bits + element_bits, row.is_signed,
                     row.fixed_point(*to->exact));
  }
  if (is_float) {
    to->partial.*row.f64 = number.f64();
    return absl::OkStatus();
  }
  std::array<std::uint64_t, 3> words{};
  absl::Status status = ReadWords(field, number.integer(), spec.count, element_bits, row.is_signed, words);
  if (status.ok()) std::memcpy(row.integer(to->partial), words.data(), row.integer_bytes);
  return status;
}

// ---- what is asked

absl::Status ReadSpec(const v1::State& state, const StateLimits& limits, ReduceSpec* spec) {
  if (state.version() != kVersion) {
    return Wrong(absl::StrFormat("version: got %d; allowed: %d", state.version(), kVersion));
  }
  const std::optional<DType> dtype = DTypeFromNumber(state.dtype());
  if (!dtype.has_value()) {
    return Wrong(absl::StrFormat("dtype: got %d; allowed: 1 to %d", state.dtype(), std::size(kDTypes)));
  }
  if (!limits.calls && !state.calls().empty()) {
    return Wrong(
        absl::StrFormat("calls: got %d; allowed: none but in the question of an ArraysState", state.calls_size()));
  }
  const int ops = state.ops_size() + state.calls_size();
  if (limits.question != nullptr) {
    if (ops > 0) return Wrong("ops: got some; allowed: those of the question");
    spec->ops = limits.question->ops;
  } else if (ops == 0 || ops > limits.max_ops || (ops > state.ops_size() && ops > state.calls_size())) {
    return Wrong(absl::StrFormat("ops: got %d of them; allowed: 1 to %d", ops, limits.max_ops));
  }
  if (limits.question == nullptr) {
    absl::StatusOr<std::vector<OpCall>> calls = ParseCalls(state.calls(), *dtype);
    if (!calls.ok()) return calls.status();
    spec->ops = *std::move(calls);
    for (const OpCall& call : spec->ops) {
      if (IsWeightedQuantile(call.op)) {
        return Wrong(absl::StrFormat("calls: got %s; allowed: ops that have states", RowOf(call.op).name));
      }
      if (OtherOf(call.op) == OtherOperand::kNone || call.given().other.has_value()) continue;
      return Wrong(absl::StrFormat("calls.other: got none with op %s; allowed: a dtype", RowOf(call.op).name));
    }
  }
  for (const int number : state.ops()) {
    const std::optional<Op> op = OpFromNumber(number);
    if (!op.has_value()) return Wrong(absl::StrFormat("ops: got %d; allowed: 1 to %d", number, std::size(kOps)));
    if (IsOfDistribution(number)) {
      return Wrong(absl::StrFormat("ops: got %s; allowed: ops that have states", RowOf(*op).name));
    }
    spec->ops.push_back(*op);
  }
  for (const auto& [field, got, most] :
       {std::tuple<const char*, int, int>{"precision", state.precision(), v1::Precision_MAX},
        {"nan_policy", state.nan_policy(), v1::NanPolicy_MAX},
        {"overflow_policy", state.overflow_policy(), v1::OverflowPolicy_MAX}}) {
    if (got < 1 || got > most) return Wrong(absl::StrFormat("%s: got %d; allowed: 1 to %d", field, got, most));
  }
  if (absl::Status status = CheckCount("count", state.count(), limits.max_elements); !status.ok()) return status;
  spec->dtype = *dtype;
  spec->count = state.count();
  spec->precision = static_cast<Precision>(state.precision());
  spec->nan_policy = static_cast<NanPolicy>(state.nan_policy());
  spec->overflow_policy = static_cast<OverflowPolicy>(state.overflow_policy());
  spec->ddof = state.ddof();
  if (limits.question != nullptr) return absl::OkStatus();  // has been validated
  ReduceSpec not_empty = *spec;  // a part may be empty, though it would be an error of the whole
  not_empty.count = std::max<std::int64_t>(not_empty.count, 1);
  return ValidateOps(not_empty);
}

}  // namespace

void ToProto(const ReduceSpec& spec, const State& from, v1::State* to, bool ops) {
  const AccumulatorSet set = AccumulatorsFor(spec);
  const AccumulatorSet exact_set = ExactAccumulatorsFor(spec);
  to->set_version(kVersion);
  to->set_dtype(ToProto(spec.dtype));
  to->set_count(spec.count);
  const bool called = !AnsweredByAccumulators(spec);
  for (const OpCall& call : spec.ops) {
    if (!called) {
      to->add_ops(ToProto(call.op));
    } else if (ops) {
      ToProto(call, to->add_calls());
    }
  }
  for (const OpCall& call : spec.ops) {
    if (!HasAccumulator(call)) to->add_entries();
  }
  for (std::size_t i = 0; i < from.entries.size(); ++i) {
    ToProto(from.entries[i], to->mutable_entries(static_cast<int>(i)));
  }
  to->set_precision(exact_set != 0 ? v1::PRECISION_EXACT : v1::PRECISION_F64);
  to->set_nan_policy(static_cast<v1::NanPolicy>(spec.nan_policy));
  to->set_overflow_policy(static_cast<v1::OverflowPolicy>(spec.overflow_policy));
  to->set_ddof(spec.ddof);
  State& state = const_cast<State&>(from);  // the tables' pointers are those of readers too; nothing is written to it
  for (const SumRow& row : kSums) {
    const bool exact = Has(exact_set, SetOf(row.accumulator));
    if (exact || Has(set, SetOf(row.accumulator))) WriteSum(row, spec, exact, state, to);
  }
  for (const MessageRow& row : kMessages) {
    if (Has(row.exact ? exact_set : set, row.accumulators)) WriteMessage(row, state, to);
  }
}

absl::StatusOr<StateOfSpec> ParseState(const v1::State& from, const StateLimits& limits) {
  StateOfSpec read;
  absl::Status status = ReadSpec(from, limits, &read.spec);
  if (!status.ok()) return status;
  const AccumulatorSet set = AccumulatorsFor(read.spec);
  const AccumulatorSet exact_set = ExactAccumulatorsFor(read.spec);
  read.state.partial.count = read.spec.count;
  if (exact_set != 0) read.state.exact = std::make_unique<ExactSums>();
  // Reads a field that the state must have if it is `wanted`.
  const auto take = [&](const char* field, bool wanted, auto read_field) {
    if (!wanted || !status.ok()) return;
    const bool has = from.GetReflection()->HasField(from, FieldOf(from, field));
    status = has ? read_field() : Wrong(absl::StrCat(field, ": got none; allowed: one, which the ops require"));
  };
  for (const SumRow& row : kSums) {
    take(row.name, Has(set | exact_set, SetOf(row.accumulator)),
         [&] { return ReadSum(row, from, read.spec, &read.state); });
  }
  for (const MessageRow& row : kMessages) {
    take(row.name, Has(row.exact ? exact_set : set, row.accumulators),
         [&] { return ReadMessage(row, from, read.spec, limits.positions, &read.state); });
  }
  int entries = 0;
  const auto wanted = std::count_if(read.spec.ops.begin(), read.spec.ops.end(), std::not_fn(HasAccumulator));
  if (status.ok() && from.entries_size() != wanted) {
    status = Wrong(absl::StrFormat("entries: got %d; allowed: %d, one for each op of the distribution",
                                   from.entries_size(), wanted));
  }
  for (const OpCall& call : read.spec.ops) {
    if (HasAccumulator(call) || !status.ok()) continue;
    status = ParseEntries(from.entries(entries), read.spec, call, limits.positions.value_or(read.spec.count),
                          &read.state.entries.emplace_back());
    if (!status.ok()) status = Wrong(absl::StrCat("entries[", entries, "].", status.message()));
    ++entries;
  }
  if (status.ok()) status = CheckState(read.spec, read.state);
  if (!status.ok()) return status;
  return read;
}

}  // namespace reduced

#include "server/wire/state.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/algebra/finalize.h"
#include "kernels/algebra/order_key.h"
#include "kernels/engine/pipelines.h"
#include "kernels/exact/answers.h"
#include "server/wire/request.h"
#include "server/wire/word_bytes.h"

namespace reduced::server {
namespace {

constexpr std::uint32_t kVersion = 1;

absl::Status Wrong(absl::string_view what) { return absl::InvalidArgumentError(what); }

bool Has(AccumulatorSet set, Accumulator a) { return (set & SetOf(a)) != 0; }

std::array<std::uint64_t, 2> WordsOf(UInt128 value) {
  return {static_cast<std::uint64_t>(value), static_cast<std::uint64_t>(value >> 64)};
}

// A number that sums up `count` elements of `element_bits` at most.
absl::Status ParseNumber(absl::string_view field, const std::string& bytes, std::int64_t count, int element_bits,
                         bool is_signed, std::span<std::uint64_t> words) {
  if (!Decode(bytes, words)) {
    return Wrong(absl::StrFormat("%s has %d bytes, at most %d are allowed", field, bytes.size(), words.size_bytes()));
  }
  if (!is_signed && words.back() >> 63 != 0) return Wrong(absl::StrCat(field, " is negative"));
  const int allowed = count == 0 ? 0 : element_bits + std::bit_width(static_cast<std::uint64_t>(count));
  if (BitsOf(words) > allowed) return Wrong(absl::StrFormat("%s is larger than %d elements can sum to", field, count));
  return absl::OkStatus();
}

// ---- the sums

// What a sum is made of: where it is kept, of floats, of integers and exactly.
struct SumField {
  Accumulator accumulator;
  const char* name;
  const v1::StateNumber& (v1::State::*get)() const;
  bool (v1::State::*has)() const;
  v1::StateNumber* (v1::State::*mutate)();
  double Partial::*float_sum;
  int integer_bits;  // of an element's share
  int fixed_bits;
};

constexpr SumField kSums[] = {
    {Accumulator::kSum, "sum", &v1::State::sum, &v1::State::has_sum, &v1::State::mutable_sum, &Partial::float_sum, 64,
     2098},
    {Accumulator::kAbsSum, "abs_sum", &v1::State::abs_sum, &v1::State::has_abs_sum, &v1::State::mutable_abs_sum,
     &Partial::float_abs_sum, 64, 2098},
    {Accumulator::kSumSquares, "sum_squares", &v1::State::sum_squares, &v1::State::has_sum_squares,
     &v1::State::mutable_sum_squares, &Partial::float_sum_squares, 128, 4196}};

// The words of an exact sum.
template <class Sums>
auto WordsOf(Accumulator accumulator, Sums& sums) {
  using Words = std::span<std::conditional_t<std::is_const_v<Sums>, const std::uint64_t, std::uint64_t>>;
  if (accumulator == Accumulator::kSum) return Words(sums.sum.word);
  if (accumulator == Accumulator::kAbsSum) return Words(sums.abs_sum.word);
  return Words(sums.sum_squares.word);
}

std::string EncodeInteger(Accumulator accumulator, const Partial& partial) {
  if (accumulator == Accumulator::kSum) return Encode(WordsOf(static_cast<UInt128>(partial.int_sum)));
  if (accumulator == Accumulator::kAbsSum) return Encode(WordsOf(partial.int_abs_sum));
  return Encode(partial.int_sum_squares.word);
}

void StoreInteger(Accumulator accumulator, std::span<const std::uint64_t> words, Partial* partial) {
  const UInt128 low = (static_cast<UInt128>(words[1]) << 64) | words[0];
  if (accumulator == Accumulator::kSum) {
    partial->int_sum = static_cast<Int128>(low);
  } else if (accumulator == Accumulator::kAbsSum) {
    partial->int_abs_sum = low;
  } else {
    std::copy(words.begin(), words.end(), partial->int_sum_squares.word);
  }
}

absl::Status ParseSum(const SumField& field, const v1::StateNumber& number, Known* known) {
  const ReduceSpec& spec = known->spec;
  const bool is_signed = field.accumulator == Accumulator::kSum;
  if (known->state.exact != nullptr) {
    if (!number.has_fixed_point()) return Wrong(absl::StrCat(field.name, " is not a fixed_point"));
    return ParseNumber(absl::StrCat(field.name, ".fixed_point"), number.fixed_point(), spec.count, field.fixed_bits,
                       is_signed, WordsOf(field.accumulator, *known->state.exact));
  }
  if (RowOf(spec.dtype).is_float) {
    if (!number.has_f64()) return Wrong(absl::StrCat(field.name, " is not an f64"));
    known->state.partial.*field.float_sum = number.f64();
    return absl::OkStatus();
  }
  if (!number.has_integer()) return Wrong(absl::StrCat(field.name, " is not an integer"));
  std::array<std::uint64_t, 3> words{};
  absl::Status status = ParseNumber(absl::StrCat(field.name, ".integer"), number.integer(), spec.count,
                                    field.integer_bits, is_signed, words);
  if (status.ok()) StoreInteger(field.accumulator, words, &known->state.partial);
  return status;
}

// ---- the others

absl::Status ParseCount(absl::string_view field, std::int64_t value, std::int64_t count) {
  if (value >= 0 && value <= count) return absl::OkStatus();
  return Wrong(absl::StrFormat("%s is %d of %d elements", field, value, count));
}

absl::Status ParseMoments(const v1::StateMoments& from, std::int64_t count, MomentsState* to) {
  *to = {from.count(), from.float_pivot(), from.offset(), from.m2()};
  return ParseCount("moments.count", from.count(), count);
}

absl::Status ParseProduct(const v1::StateProduct& from, const ReduceSpec& spec, Partial* to) {
  if (!RowOf(spec.dtype).is_float) {
    to->int_product = {from.wrapped(), from.magnitude(), from.negative(), from.zero(), from.overflowed()};
    return absl::OkStatus();
  }
  // So that no number of states overflows it.
  constexpr std::int64_t kMost = std::int64_t{1} << 53;
  if (from.exponent() < -kMost || from.exponent() > kMost) {
    return Wrong(absl::StrFormat("product.exponent is %d, allowed are -2^53 to 2^53", from.exponent()));
  }
  to->float_product = {from.mantissa(), from.exponent()};
  return absl::OkStatus();
}

// The least and the largest key of dtype.
std::pair<std::int64_t, std::int64_t> KeysOf(DType dtype) {
  return VisitDType(dtype, []<class T>(std::type_identity<T>) -> std::pair<std::int64_t, std::int64_t> {
    using Limits = std::numeric_limits<typename OrderKey<T>::Type>;
    if constexpr (std::is_same_v<T, Bool>) return {0, 1};
    if constexpr (kIsFloat<T>) {  // the infinities
      const auto infinity = std::is_same_v<T, Half>       ? std::int64_t{0x7c00}
                            : std::is_same_v<T, BFloat16> ? std::int64_t{0x7f80}
                            : std::is_same_v<T, float>    ? std::int64_t{0x7f800000}
                                                          : std::int64_t{0x7ff0000000000000};
      return {~infinity, infinity};
    }
    return {WidenKey(Limits::min()), WidenKey(Limits::max())};
  });
}

absl::Status ParseExtrema(const v1::StateExtrema& from, const ReduceSpec& spec, ExtremaState* to) {
  const auto index = [&](absl::string_view field, bool has, std::int64_t value, std::int64_t* index_of) {
    if (!has) return absl::OkStatus();
    *index_of = value;
    if (value >= 0 && value < spec.count) return absl::OkStatus();
    return Wrong(absl::StrFormat("%s is %d of %d elements", field, value, spec.count));
  };
  absl::Status status = index("extrema.min_index", from.has_min_index(), from.min_index(), &to->min_index);
  status.Update(index("extrema.max_index", from.has_max_index(), from.max_index(), &to->max_index));
  status.Update(index("extrema.nan_index", from.has_nan_index(), from.nan_index(), &to->nan_index));
  if (!status.ok()) return status;
  if (from.has_min_index() != from.has_max_index()) return Wrong("extrema has only one of min_index and max_index");
  if (!from.has_min_index()) return absl::OkStatus();
  const auto [least, most] = KeysOf(spec.dtype);
  if (from.min_key() < least || from.max_key() > most || from.min_key() > from.max_key()) {
    return Wrong(absl::StrFormat("extrema has keys %d to %d, those of %s are %d to %d", from.min_key(), from.max_key(),
                                 RowOf(spec.dtype).name, least, most));
  }
  to->min_key = from.min_key();
  to->max_key = from.max_key();
  return absl::OkStatus();
}

absl::Status ParseNonFinite(const v1::StateNonFinite& from, std::int64_t count, ExactSums* to) {
  absl::Status status = ParseCount("non_finite.nan", from.nan(), count);
  if (status.ok()) {
    status = ParseCount("non_finite.positive_infinity", from.positive_infinity(), count - from.nan());
  }
  if (status.ok()) {
    status = ParseCount("non_finite.negative_infinity", from.negative_infinity(),
                        count - from.nan() - from.positive_infinity());
  }
  to->nans = from.nan();
  to->positive_infinities = from.positive_infinity();
  to->negative_infinities = from.negative_infinity();
  to->not_only_negative_zeros = from.not_only_negative_zeros();
  return status;
}

// ---- all of it

absl::Status ParseSpec(const v1::State& state, const RequestLimits& limits, ReduceSpec* spec) {
  if (state.version() != kVersion) {
    return Wrong(absl::StrFormat("version is %d, this server knows %d", state.version(), kVersion));
  }
  const std::optional<DType> dtype = DTypeFromNumber(state.dtype());
  if (!dtype.has_value()) return Wrong(absl::StrFormat("dtype is %d, which is none", state.dtype()));
  if (state.ops().empty() || state.ops_size() > limits.max_ops) {
    return Wrong(absl::StrFormat("ops has %d operations, allowed are 1 to %d", state.ops_size(), limits.max_ops));
  }
  for (const int number : state.ops()) {
    const std::optional<Op> op = OpFromNumber(number);
    if (!op.has_value()) return Wrong(absl::StrFormat("ops has %d, which is none", number));
    spec->ops.push_back(*op);
  }
  const auto within = [](int value, int most) { return value >= 1 && value <= most; };
  if (!within(state.precision(), v1::Precision_MAX) || !within(state.nan_policy(), v1::NanPolicy_MAX) ||
      !within(state.overflow_policy(), v1::OverflowPolicy_MAX)) {
    return Wrong(absl::StrFormat(
        "precision, nan_policy and overflow_policy are %d, %d, %d, allowed are 1 to %d, %d, %d", state.precision(),
        state.nan_policy(), state.overflow_policy(), v1::Precision_MAX, v1::NanPolicy_MAX, v1::OverflowPolicy_MAX));
  }
  if (state.count() < 0 || state.count() > limits.max_elements) {
    return Wrong(absl::StrFormat("count is %d, allowed are 0 to %d", state.count(), limits.max_elements));
  }
  spec->dtype = *dtype;
  spec->count = state.count();
  spec->precision = static_cast<Precision>(state.precision());
  spec->nan_policy = static_cast<NanPolicy>(state.nan_policy());
  spec->overflow_policy = static_cast<OverflowPolicy>(state.overflow_policy());
  spec->ddof = state.ddof();
  ReduceSpec of_some = *spec;  // a part may be empty, though of the whole it would be an error
  of_some.count = std::max<std::int64_t>(of_some.count, 1);
  return ValidateSpec(of_some);
}

absl::Status Mismatch(absl::string_view what) {
  return Wrong(absl::StrCat("it doesn't go with the first: its ", what, " must be the same"));
}

absl::Status CheckSameQuestion(const ReduceSpec& first, const ReduceSpec& spec) {
  if (spec.dtype != first.dtype) return Mismatch("dtype");
  if (spec.ops != first.ops) return Mismatch("ops");
  if (WantsExactSums(spec) != WantsExactSums(first)) return Mismatch("precision");
  if (spec.nan_policy != first.nan_policy) return Mismatch("nan_policy");
  if (spec.overflow_policy != first.overflow_policy) return Mismatch("overflow_policy");
  if (spec.ddof != first.ddof) return Mismatch("ddof");
  return absl::OkStatus();
}

// Appends the part that follows.
absl::Status AppendPart(Known part, const RequestLimits& limits, Known* whole) {
  absl::Status status = CheckSameQuestion(whole->spec, part.spec);
  if (!status.ok()) return status;
  if (part.spec.count > limits.max_elements - whole->spec.count) {
    return Wrong(absl::StrFormat("with it there are more elements than the %d that are allowed", limits.max_elements));
  }
  Shift(whole->spec.count, &part.state);
  Combine(part.state, &whole->state);
  whole->spec.count += part.spec.count;
  return absl::OkStatus();
}

}  // namespace

void ToProto(const ReduceSpec& spec, const State& from, v1::State* state) {
  const Partial& partial = from.partial;
  const ExactSums* const exact = from.exact.get();
  const AccumulatorSet set = AccumulatorsFor(spec);
  const AccumulatorSet exact_set = ExactAccumulatorsFor(spec);
  state->set_version(kVersion);
  state->set_dtype(ToProto(spec.dtype));
  state->set_count(spec.count);
  for (const Op op : spec.ops) state->add_ops(ToProto(op));
  state->set_precision(exact_set != 0 ? v1::PRECISION_EXACT : v1::PRECISION_F64);
  state->set_nan_policy(static_cast<v1::NanPolicy>(spec.nan_policy));
  state->set_overflow_policy(static_cast<v1::OverflowPolicy>(spec.overflow_policy));
  state->set_ddof(spec.ddof);
  for (const SumField& field : kSums) {
    if (Has(exact_set, field.accumulator)) {
      (state->*field.mutate)()->set_fixed_point(Encode(WordsOf(field.accumulator, *exact)));
    } else if (Has(set, field.accumulator) && RowOf(spec.dtype).is_float) {
      (state->*field.mutate)()->set_f64(partial.*field.float_sum);
    } else if (Has(set, field.accumulator)) {
      (state->*field.mutate)()->set_integer(EncodeInteger(field.accumulator, partial));
    }
  }
  if (exact_set != 0) {
    v1::StateNonFinite& to = *state->mutable_non_finite();
    to.set_nan(exact->nans);
    to.set_positive_infinity(exact->positive_infinities);
    to.set_negative_infinity(exact->negative_infinities);
    to.set_not_only_negative_zeros(exact->not_only_negative_zeros);
  }
  if (Has(set, Accumulator::kMoments)) {
    v1::StateMoments& to = *state->mutable_moments();
    to.set_count(partial.moments.count);
    to.set_float_pivot(partial.moments.pivot);
    to.set_offset(partial.moments.offset);
    to.set_m2(partial.moments.m2);
  }
  if (Has(set, Accumulator::kProduct)) {
    v1::StateProduct& to = *state->mutable_product();
    to.set_mantissa(partial.float_product.mantissa);
    to.set_exponent(partial.float_product.exponent);
    to.set_wrapped(partial.int_product.wrapped);
    to.set_magnitude(partial.int_product.magnitude);
    to.set_negative(partial.int_product.negative);
    to.set_zero(partial.int_product.zero);
    to.set_overflowed(partial.int_product.overflowed);
  }
  if (Has(set, Accumulator::kExtrema)) {
    v1::StateExtrema& to = *state->mutable_extrema();
    const ExtremaState& extrema = partial.extrema;
    if (extrema.nan_index != kNoIndex) to.set_nan_index(extrema.nan_index);
    if (extrema.min_index != kNoIndex) {
      to.set_min_index(extrema.min_index);
      to.set_max_index(extrema.max_index);
      to.set_min_key(extrema.min_key);
      to.set_max_key(extrema.max_key);
    }
  }
  if (Has(set, Accumulator::kBits)) {
    state->mutable_bits()->set_bit_and(partial.bits_and);
    state->mutable_bits()->set_bit_or(partial.bits_or);
    state->mutable_bits()->set_bit_xor(partial.bits_xor);
  }
  if (Has(set, Accumulator::kCounts)) {
    state->mutable_counts()->set_nonzero(partial.nonzero);
    state->mutable_counts()->set_nan(partial.nan);
  }
}

absl::StatusOr<Known> ParseState(const v1::State& state, const RequestLimits& limits) {
  Known known;
  absl::Status status = ParseSpec(state, limits, &known.spec);
  if (!status.ok()) return status;
  const ReduceSpec& spec = known.spec;
  const AccumulatorSet set = AccumulatorsFor(spec);
  const AccumulatorSet exact_set = ExactAccumulatorsFor(spec);
  known.state.partial.count = spec.count;
  if (exact_set != 0) known.state.exact = std::make_unique<ExactSums>();
  // Runs `parse` if the state must have the field; an error if it hasn't.
  const auto take = [&](absl::string_view field, bool wanted, bool has, auto parse) {
    if (!wanted || !status.ok()) return;
    status = has ? parse() : Wrong(absl::StrCat("it has no ", field, ", which its ops need"));
  };
  for (const SumField& field : kSums) {
    take(field.name, Has(set | exact_set, field.accumulator), (state.*field.has)(),
         [&] { return ParseSum(field, (state.*field.get)(), &known); });
  }
  take("non_finite", exact_set != 0, state.has_non_finite(),
       [&] { return ParseNonFinite(state.non_finite(), spec.count, &*known.state.exact); });
  take("moments", Has(set, Accumulator::kMoments), state.has_moments(),
       [&] { return ParseMoments(state.moments(), spec.count, &known.state.partial.moments); });
  take("product", Has(set, Accumulator::kProduct), state.has_product(),
       [&] { return ParseProduct(state.product(), spec, &known.state.partial); });
  take("extrema", Has(set, Accumulator::kExtrema), state.has_extrema(),
       [&] { return ParseExtrema(state.extrema(), spec, &known.state.partial.extrema); });
  take("bits", Has(set, Accumulator::kBits), state.has_bits(), [&] {
    known.state.partial.bits_and = state.bits().bit_and();
    known.state.partial.bits_or = state.bits().bit_or();
    known.state.partial.bits_xor = state.bits().bit_xor();
    return absl::OkStatus();
  });
  take("counts", Has(set, Accumulator::kCounts), state.has_counts(), [&] {
    known.state.partial.nonzero = state.counts().nonzero();
    known.state.partial.nan = state.counts().nan();
    absl::Status counted = ParseCount("counts.nonzero", known.state.partial.nonzero, spec.count);
    counted.Update(ParseCount("counts.nan", known.state.partial.nan, known.state.partial.nonzero));
    return counted;
  });
  if (!status.ok()) return status;
  return known;
}

absl::Status MergeStates(const v1::MergeRequest& request, const RequestLimits& limits, v1::MergeResponse* response) {
  if (request.states().empty()) return Wrong("states has none, at least 1 is needed");
  std::optional<Known> whole;
  for (int i = 0; i < request.states_size(); ++i) {
    absl::StatusOr<Known> part = ParseState(request.states(i), limits);
    absl::Status status = part.status();
    if (status.ok() && !whole.has_value()) {
      whole = *std::move(part);
    } else if (status.ok()) {
      status = AppendPart(*std::move(part), limits, &*whole);
    }
    if (!status.ok()) return absl::Status(status.code(), absl::StrFormat("states[%d]: %s", i, status.message()));
  }
  const absl::StatusOr<std::vector<Value>> values = Finalize(whole->spec, whole->state);
  if (!values.ok()) return values.status();
  for (std::size_t i = 0; i < values->size(); ++i) {
    v1::Result* const out = response->add_results();
    out->set_op(ToProto(whole->spec.ops[i]));
    ToProto((*values)[i], out->mutable_value());
  }
  response->set_count(whole->spec.count);
  if (request.return_state()) ToProto(whole->spec, whole->state, response->mutable_state());
  return absl::OkStatus();
}

}  // namespace reduced::server

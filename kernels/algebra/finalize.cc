#include "kernels/algebra/finalize.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/algebra/accumulator.h"
#include "kernels/algebra/answer.h"
#include "kernels/algebra/float_format.h"
#include "kernels/exact/answers.h"

namespace reduced {
namespace {

ExactInteger ExactOf(Int128 value) {
  const auto bits = static_cast<UInt128>(value);
  const bool negative = value < 0;
  return {negative, negative ? UInt128{0} - bits : bits, false, static_cast<std::uint64_t>(bits)};
}

ExactInteger ExactOf(const UInt192& value) {
  const UInt128 low = (UInt128{value.word[1]} << 64) | value.word[0];
  return {false, low, value.word[2] != 0, value.word[0]};
}

ExactInteger ExactOf(const IntProduct& product) {
  if (product.zero) return {};
  return {product.negative, product.magnitude, product.overflowed, product.wrapped};
}

Value FloatValue(Op op, const ReduceSpec& spec, double value) { return {ResultDType(op, spec.dtype), value}; }

// The element whose order key is `key`.
Value ElementFromKey(DType dtype, std::int64_t key) {
  return VisitDType(dtype, [&]<class T>(std::type_identity<T>) -> Value {
    if constexpr (kIsFloat<T>) {
      return {dtype, ToDouble(std::bit_cast<T>(BitsOfKey<T>(static_cast<typename OrderKey<T>::Type>(key))))};
    } else if constexpr (std::is_same_v<T, Bool>) {
      return {dtype, key != 0};
    } else if constexpr (kIsSigned<T>) {
      return {dtype, key};
    } else {
      return {dtype, sizeof(T) == 8 ? static_cast<std::uint64_t>(key) ^ (std::uint64_t{1} << 63)
                                    : static_cast<std::uint64_t>(key)};
    }
  });
}

// The bit pattern of an integer or bool element.
Value ElementFromBits(DType dtype, std::uint64_t bits) {
  if (dtype == DType::kBool) return {dtype, (bits & 1) != 0};
  const int unused = 64 - 8 * RowOf(dtype).bytes;
  if (RowOf(dtype).is_signed) return {dtype, static_cast<std::int64_t>(bits << unused) >> unused};
  return {dtype, (bits << unused) >> unused};
}

// max - min: of floats in f64, of integers exactly, as their keys differ by what they do.
Value RangeOf(const ReduceSpec& spec, const ExtremaState& extrema) {
  if (!RowOf(spec.dtype).is_float) {
    return {DType::kU64, static_cast<std::uint64_t>(extrema.max_key) - static_cast<std::uint64_t>(extrema.min_key)};
  }
  const Value max = ElementFromKey(spec.dtype, extrema.max_key);
  const Value min = ElementFromKey(spec.dtype, extrema.min_key);
  return FloatValue(Op::kRange, spec, std::get<double>(max.value) - std::get<double>(min.value));
}

absl::StatusOr<Value> FinalizeExtremum(const ReduceSpec& spec, Op op, const ExtremaState& extrema) {
  if (extrema.nan_index != kNoIndex && spec.nan_policy == NanPolicy::kPropagate) {
    if (HasPosition(op)) return Value{DType::kU64, static_cast<std::uint64_t>(extrema.nan_index)};
    return Value{ResultDType(op, spec.dtype), std::nan("")};
  }
  const std::int64_t index = IsOfLowest(op) ? extrema.min_index : extrema.max_index;
  if (index == kNoIndex && spec.empty_policy == EmptyPolicy::kFill) return EmptyValue(op, spec.dtype);
  if (index == kNoIndex) {
    return absl::InvalidArgumentError(
        absl::StrFormat("op %s: got %s; allowed: at least 1 element%s", RowOf(op).name,
                        spec.count == 0 ? "an empty array" : absl::StrCat("an array of ", spec.count),
                        spec.nan_policy == NanPolicy::kOmit ? " that is not NaN" : ""));
  }
  if (HasPosition(op)) return Value{DType::kU64, static_cast<std::uint64_t>(index)};
  if (op == Op::kRange) return RangeOf(spec, extrema);
  return ElementFromKey(spec.dtype, IsOfLowest(op) ? extrema.min_key : extrema.max_key);
}

absl::StatusOr<Value> FinalizeOne(const ReduceSpec& spec, Op op, const Partial& partial) {
  const bool is_float = RowOf(spec.dtype).is_float;
  const bool omit = spec.nan_policy == NanPolicy::kOmit;
  const ElementCounts counts{partial.count, partial.nonzero, partial.nan};
  const std::int64_t counted = CountAnswer(Op::kCount, counts, omit);
  switch (op) {
    case Op::kSum:
      if (is_float) return FloatValue(op, spec, partial.float_sum);
      return FitInteger(spec, op, ExactOf(partial.int_sum));
    case Op::kMean:
      if (!is_float) return FloatValue(op, spec, IntegerAnswer(spec, op, partial));
      return FloatValue(op, spec, counted == 0 ? std::nan("") : partial.float_sum / static_cast<double>(counted));
    case Op::kL1:
      if (is_float) return FloatValue(op, spec, partial.float_abs_sum);
      return FitInteger(spec, op, {false, partial.int_abs_sum, false, static_cast<std::uint64_t>(partial.int_abs_sum)});
    case Op::kSumSquares:
      if (is_float) return FloatValue(op, spec, partial.float_sum_squares);
      return FitInteger(spec, op, ExactOf(partial.int_sum_squares));
    case Op::kL2:
      if (!is_float) return FloatValue(op, spec, IntegerAnswer(spec, op, partial));
      return FloatValue(op, spec, std::sqrt(partial.float_sum_squares));
    case Op::kVar:
    case Op::kStd: {
      if (!is_float) return FloatValue(op, spec, IntegerAnswer(spec, op, partial));
      if (counted <= spec.ddof) return FloatValue(op, spec, std::nan(""));
      const double var = partial.moments.m2 / static_cast<double>(counted - spec.ddof);
      return FloatValue(op, spec, op == Op::kVar ? var : std::sqrt(var));
    }
    case Op::kProd:
      if (is_float) return FloatValue(op, spec, ProductAnswer(partial.float_product));
      return FitInteger(spec, op, ExactOf(partial.int_product));
    case Op::kMin:
    case Op::kMax:
    case Op::kArgmin:
    case Op::kArgmax:
    case Op::kRange:
      return FinalizeExtremum(spec, op, partial.extrema);
    case Op::kAny:
    case Op::kAll:
      return Value{DType::kBool, CountAnswer(op, counts, omit) != 0};
    case Op::kCount:
    case Op::kCountNonzero:
    case Op::kNanCount:
      return Value{DType::kU64, static_cast<std::uint64_t>(CountAnswer(op, counts, omit))};
    case Op::kBitAnd:
      return ElementFromBits(spec.dtype, partial.bits_and);
    case Op::kBitOr:
      return ElementFromBits(spec.dtype, partial.bits_or);
    case Op::kBitXor:
      return ElementFromBits(spec.dtype, partial.bits_xor);
    default:
      break;  // has no state
  }
  __builtin_unreachable();
}

}  // namespace

absl::StatusOr<Value> FitInteger(const ReduceSpec& spec, const OpCall& call, const ExactInteger& exact) {
  const DType dtype = ResultDType(call, spec.dtype);
  const bool is_signed = dtype == DType::kI64;
  const bool fits = !exact.beyond && exact.magnitude <= LargestMagnitude(exact.negative, !is_signed) &&
                    (is_signed || !exact.negative);
  std::uint64_t bits = exact.wrapped;
  if (!fits && spec.overflow_policy == OverflowPolicy::kError) {
    const std::string value = exact.beyond
                                  ? std::string("beyond 64 bits")
                                  : absl::StrFormat("%s%d", exact.negative ? "-" : "",
                                                    absl::MakeUint128(static_cast<std::uint64_t>(exact.magnitude >> 64),
                                                                      static_cast<std::uint64_t>(exact.magnitude)));
    return absl::OutOfRangeError(absl::StrFormat(
        "integer overflow: the %s of this %s array is %s, which %s doesn't hold; overflow policies wrap and saturate "
        "give a result",
        RowOf(call.op).name, RowOf(spec.dtype).name, value, RowOf(dtype).name));
  }
  if (!fits && spec.overflow_policy == OverflowPolicy::kSaturate) bits = SaturatedBits(exact.negative, !is_signed);
  if (is_signed) return Value{dtype, static_cast<std::int64_t>(bits)};
  return Value{dtype, bits};
}

absl::StatusOr<Value> Finalize(const ReduceSpec& spec, Op op, const State& state) {
  if (state.exact != nullptr && IsExactOp(op, spec.dtype)) {
    return FloatValue(op, spec, ExactAnswer(spec, op, state.partial.count, *state.exact));
  }
  return FinalizeOne(spec, op, state.partial);
}

absl::StatusOr<std::vector<Value>> Finalize(const ReduceSpec& spec, const State& state) {
  std::vector<Value> values;
  values.reserve(spec.ops.size());
  for (const Op op : spec.ops) {
    absl::StatusOr<Value> value = Finalize(spec, op, state);
    if (!value.ok()) return value.status();
    values.push_back(*value);
  }
  return values;
}

absl::StatusOr<std::vector<absl::StatusOr<Value>>> FinalizeEach(const ReduceSpec& spec, const State& state,
                                                                bool op_errors) {
  std::vector<absl::StatusOr<Value>> values;
  values.reserve(spec.ops.size());
  bool some = false;
  for (const Op op : spec.ops) {
    values.push_back(Finalize(spec, op, state));
    if (!values.back().ok() && !op_errors) return values.back().status();
    some = some || values.back().ok();
  }
  if (!some && !values.empty()) return values.front().status();
  return values;
}

Value EmptyValue(Op op, DType dtype) {
  if (HasPosition(op)) return {DType::kU64, std::numeric_limits<std::uint64_t>::max()};
  if (RowOf(dtype).is_float) return {ResultDType(op, dtype), std::nan("")};
  if (op == Op::kRange) return {DType::kU64, std::uint64_t{0}};
  // What the bits of an integer of all ones, and all but the sign, are.
  const bool is_min = op == Op::kMin || op == Op::kBottomK;
  if (dtype == DType::kBool) return {dtype, is_min};
  if (!RowOf(dtype).is_signed) return ElementFromBits(dtype, is_min ? ~std::uint64_t{0} : 0);
  const std::uint64_t largest = (std::uint64_t{1} << (8 * RowOf(dtype).bytes - 1)) - 1;
  return ElementFromBits(dtype, is_min ? largest : ~largest);
}

void StoreValue(const Value& value, std::byte* to) {
  VisitDType(value.dtype, [&]<class T>(std::type_identity<T>) {
    T element;
    if constexpr (kIsFloat<T>) {
      element = FromDouble<T>(std::get<double>(value.value));
    } else if constexpr (std::is_same_v<T, Bool>) {
      element = {static_cast<std::uint8_t>(std::get<bool>(value.value) ? 1 : 0)};
    } else if constexpr (kIsSigned<T>) {
      element = static_cast<T>(std::get<std::int64_t>(value.value));
    } else {
      element = static_cast<T>(std::get<std::uint64_t>(value.value));
    }
    std::memcpy(to, &element, sizeof element);
  });
}

void StoreAnswer(const Value& answer, std::byte* array, std::int64_t output) {
  StoreValue(answer, array + output * RowOf(answer.dtype).bytes);
}

}  // namespace reduced

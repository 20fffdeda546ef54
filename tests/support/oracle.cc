#include "tests/support/oracle.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <type_traits>

#include "tests/support/exact_oracle.h"

namespace reduced::test {
namespace {

constexpr double kMax = std::numeric_limits<double>::max();
constexpr double kTiny = std::numeric_limits<double>::denorm_min();
constexpr double kRounding = 0x1p-53;

struct Element {
  bool is_nan = false;
  bool sign = false;   // the sign bit, of zeros too
  Int128 integer = 0;  // integers and bool
  double real = 0;     // floats
};

// A 16-bit float by the definition of its format.
double DecodeFloat16(std::uint16_t bits, int exponent_bits) {
  const int fraction_bits = 15 - exponent_bits;
  const int all_ones = (1 << exponent_bits) - 1;
  const int bias = all_ones / 2;
  const int exponent = (bits >> fraction_bits) & all_ones;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  double magnitude = 0;
  if (exponent == all_ones) {
    magnitude = fraction == 0 ? kInfinity : kNan;
  } else if (exponent == 0) {
    magnitude = std::ldexp(fraction, 1 - bias - fraction_bits);
  } else {
    magnitude = std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

// By the definitions of the OCP specifications.
template <class T>
double DecodeFloat8(T x) {
  if constexpr (std::is_same_v<T, F8E8M0>) return x.bits == 255 ? kNan : std::ldexp(1, x.bits - 127);
  const int fraction_bits = std::is_same_v<T, F8E4M3> ? 3 : 2, bias = std::is_same_v<T, F8E4M3> ? 7 : 15;
  const int exponent = (x.bits & 0x7f) >> fraction_bits, fraction = x.bits & ((1 << fraction_bits) - 1);
  double magnitude = exponent == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits)
                                   : std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
  if (std::is_same_v<T, F8E4M3> && (x.bits & 0x7f) == 0x7f) magnitude = kNan;
  if (std::is_same_v<T, F8E5M2> && exponent == 31) magnitude = fraction == 0 ? kInfinity : kNan;
  return (x.bits & 0x80) != 0 ? -magnitude : magnitude;
}

template <class T>
Element Decode(T x) {
  Element e;
  if constexpr (std::is_same_v<T, Bool>) {
    e.integer = x.byte == 0 ? 0 : 1;
  } else if constexpr (std::is_integral_v<T>) {
    e.integer = x;
    e.sign = x < T{0};
  } else {
    if constexpr (std::is_same_v<T, Half>) {
      e.real = DecodeFloat16(x.bits, 5);
    } else if constexpr (std::is_same_v<T, BFloat16>) {
      e.real = DecodeFloat16(x.bits, 8);
    } else if constexpr (kIsF8<T>) {
      e.real = DecodeFloat8(x);
    } else {
      e.real = static_cast<double>(x);
    }
    e.is_nan = std::isnan(e.real);
    e.sign = std::signbit(e.real);
  }
  return e;
}

template <class T>
Element At(const void* data, std::int64_t i) {
  T x;
  std::memcpy(&x, static_cast<const std::byte*>(data) + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
  return Decode(x);
}

Value ValueOf(DType dtype, const Element& e) {
  if (RowOf(dtype).is_float) return {dtype, e.real};
  if (dtype == DType::kBool) return {dtype, e.integer != 0};
  if (RowOf(dtype).is_signed) return {dtype, static_cast<std::int64_t>(e.integer)};
  return {dtype, static_cast<std::uint64_t>(e.integer)};
}

// -0 is below +0.
bool Below(const Element& a, const Element& b) {
  if (a.integer != b.integer) return a.integer < b.integer;
  if (a.real != b.real) return a.real < b.real;
  return a.real == 0 && a.sign && !b.sign;
}

void AddInteger(const Element& e, Facts* f) {
  const UInt128 magnitude = static_cast<UInt128>(e.integer < 0 ? -e.integer : e.integer);
  const auto bits = static_cast<std::uint64_t>(e.integer);
  f->sum += e.integer;
  f->abs_sum += magnitude;
  const UInt128 square = magnitude * magnitude;
  f->sum_squares += square;
  if (f->sum_squares < square) ++f->sum_squares_high;
  if (magnitude != 0 && (f->product >> 64) == 0) f->product *= magnitude;
  f->wrapped_product *= bits;
  f->negative_product = f->negative_product != (e.integer < 0);
  f->bits_and &= bits;
  f->bits_or |= bits;
  f->bits_xor ^= bits;
}

void AddReal(const Element& e, Facts* f) {
  const Real x = e.real;
  const Real magnitude = std::fabs(e.real);
  f->real_sum += x;
  f->real_abs_sum += magnitude;
  f->real_sum_squares += x * x;
  (e.sign ? f->negatives : f->positives) = true;
  f->negative_sign = f->negative_sign != e.sign;
  if (std::isinf(e.real)) {
    ++f->infinities;
    return;
  }
  f->finite_abs_sum += magnitude;
  if (e.real == 0) return;
  int exponent = 0;
  f->mantissa *= std::frexp(std::fabs(e.real), &exponent);
  f->exponent += exponent;
  if (f->mantissa < Real{0x1p-512}) {  // a product of halves: keep it in range
    f->mantissa *= Real{0x1p512};
    f->exponent -= 512;
  }
}

template <class T>
Facts StudyElements(const void* data, std::int64_t count) {
  Facts f;
  f.dtype = kDTypeOf<T>;
  f.count = count;
  Element lowest, highest;
  for (std::int64_t i = 0; i < count; ++i) {
    const Element e = At<T>(data, i);
    if (e.is_nan) {
      if (++f.nans == 1) f.first_nan = i;
      continue;
    }
    if (e.integer != 0 || e.real != 0) ++f.nonzero;
    if (f.lowest < 0 || Below(e, lowest)) {
      lowest = e;
      f.lowest = i;
    }
    if (f.highest < 0 || Below(highest, e)) {
      highest = e;
      f.highest = i;
    }
    if (kIsFloat<T>) {
      AddReal(e, &f);
    } else {
      AddInteger(e, &f);
    }
  }
  f.lowest_value = ValueOf(f.dtype, lowest);
  f.highest_value = ValueOf(f.dtype, highest);
  const std::int64_t counted = count - f.nans;
  if (counted == 0 || f.infinities > 0) return f;

  // Two passes; the sum of deviations corrects for the rounding of the mean.
  const auto real = [](const Element& e) { return kIsFloat<T> ? Real{e.real} : static_cast<Real>(e.integer); };
  const Real mean = (kIsFloat<T> ? f.real_sum : static_cast<Real>(f.sum)) / static_cast<Real>(counted);
  f.largest_deviation = std::max(real(highest) - mean, mean - real(lowest));
  Real squares = 0;
  Real deviations = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const Element e = At<T>(data, i);
    if (e.is_nan) continue;
    const Real deviation = real(e) - mean;
    squares += deviation * deviation;
    deviations += deviation;
  }
  f.variance_sum = squares - deviations * deviations / static_cast<Real>(counted);
  if (f.variance_sum < 0) f.variance_sum = 0;
  return f;
}

Expected Fail(absl::StatusCode code) {
  Expected e;
  e.code = code;
  return e;
}

Expected Exactly(Value value) {
  Expected e;
  e.dtype = value.dtype;
  e.value = value;
  return e;
}

Expected Anything() {
  Expected e;
  e.exact = false;
  e.low = -kInfinity;
  e.high = kInfinity;
  e.may_be_nan = true;
  return e;
}

// The doubles from low to high, and those next to them where these are none.
Expected Between(Real low, Real high) {
  Expected e;
  e.exact = false;
  e.low = static_cast<double>(low);
  e.high = static_cast<double>(high);
  if (Real{e.low} != low) e.low = std::nextafter(e.low, -kInfinity);
  if (Real{e.high} != high) e.high = std::nextafter(e.high, kInfinity);
  return e;
}

Expected Within(Real value, Real error) {
  const auto nearest = static_cast<double>(value);
  if (std::isnan(nearest)) return Exactly({DType::kF64, kNan});
  if (Real{nearest} == value && std::isinf(nearest)) return Between(value, value);
  return Between(value - error, value + error);
}

Expected SquareRoot(Expected e) {
  if (e.exact) return e;  // NaN
  e.low = e.low > 0 ? std::sqrt(e.low) * (1 - 2 * kRounding) : 0;
  e.high = std::sqrt(e.high) * (1 + 2 * kRounding);
  return e;
}

struct Whole {
  bool negative = false;
  UInt128 magnitude = 0;
  bool beyond = false;  // the magnitude is larger than 128 bits hold
  std::uint64_t wrapped = 0;
};

Expected ExpectWhole(const ReduceSpec& spec, Op op, const Whole& whole) {
  const DType dtype = ResultDType(op, spec.dtype);
  const bool is_signed = dtype == DType::kI64;
  UInt128 largest = std::numeric_limits<std::uint64_t>::max();
  if (is_signed) largest = UInt128{1} << 63;
  if (is_signed && !whole.negative) --largest;
  std::uint64_t bits = whole.wrapped;
  if (whole.beyond || whole.magnitude > largest) {
    if (spec.overflow_policy == OverflowPolicy::kError) return Fail(absl::StatusCode::kOutOfRange);
    if (spec.overflow_policy == OverflowPolicy::kSaturate) bits = static_cast<std::uint64_t>(largest);
    // The least i64 is its own negative modulo 2^64: nothing to do for a negative result.
  }
  if (is_signed) return Exactly({dtype, static_cast<std::int64_t>(bits)});
  return Exactly({dtype, bits});
}

Expected ExpectSum(const Facts& f, Real n, Real divisor) {
  const Real error = n * kRounding * f.finite_abs_sum;
  const bool overflows = f.finite_abs_sum + error > Real{kMax};
  if (overflows && f.positives && f.negatives) return Anything();
  const Real division = divisor == 1 ? Real{0} : kRounding * f.finite_abs_sum / divisor + kTiny;
  Expected e = Within(f.real_sum / divisor, error / divisor + division);
  if (overflows) (f.positives ? e.high : e.low) = f.positives ? kInfinity : -kInfinity;
  return e;
}

Expected ExpectMean(const Facts& f, std::int64_t counted) {
  if (counted == 0) return Exactly({DType::kF64, kNan});
  const auto n = static_cast<Real>(counted);
  return ExpectSum(f, n, n);
}

Expected ExpectSumSquares(const Facts& f, Real n) {
  return Within(f.real_sum_squares, (n + 1) * kRounding * f.real_sum_squares + n * kTiny);
}

Expected ExpectOfIntegers(const Facts& f, const ReduceSpec& spec, Op op) {
  const IntegerSums sums{static_cast<std::uint64_t>(f.count), f.sum, f.sum_squares, f.sum_squares_high};
  return Exactly({DType::kF64, IntegersBySchoolbook(op, sums, spec.ddof)});
}

Expected ExpectVariance(const Facts& f, const ReduceSpec& spec, std::int64_t counted) {
  if (counted <= spec.ddof || f.infinities > 0) return Exactly({DType::kF64, kNan});
  const auto n = static_cast<Real>(counted);
  const Real worst = f.variance_sum + n * f.largest_deviation * f.largest_deviation;
  if (8 * worst > Real{kMax}) return Anything();  // of either sign: the excess is infinite too
  const auto divisor = static_cast<Real>(counted - spec.ddof);
  const Real variance = f.variance_sum / divisor;
  if (variance == 0) return Between(0, 0);
  return Within(variance, (2 * n * kRounding * worst + n * kTiny) / divisor + kTiny);
}

Expected ExpectRealProduct(const Facts& f, Real n) {
  const bool zero = f.nonzero < f.count - f.nans;
  if (zero && f.infinities > 0) return Exactly({DType::kF64, kNan});
  if (zero) return Between(0, 0);
  if (f.infinities > 0) return Exactly({DType::kF64, f.negative_sign ? -kInfinity : kInfinity});
  Real scale = 1;
  for (std::int64_t e = 0; e < std::min<std::int64_t>(std::abs(f.exponent), 8000); ++e)
    scale *= f.exponent < 0 ? 0.5 : 2;
  const Real magnitude = f.mantissa * scale;
  const Real error = n * kRounding * magnitude + (f.exponent < 0 ? Real{kTiny} : Real{0});
  const Expected e = Within(magnitude, error);
  if (!f.negative_sign) return e;
  Expected negated = e;
  negated.low = -e.high;
  negated.high = -e.low;
  return negated;
}

Expected ExpectExtremum(const Facts& f, const ReduceSpec& spec, Op op) {
  const bool wants_index = op == Op::kArgmin || op == Op::kArgmax;
  const bool wants_lowest = op == Op::kMin || op == Op::kArgmin;
  if (f.nans > 0 && spec.nan_policy == NanPolicy::kPropagate) {
    if (wants_index) return Exactly({DType::kU64, static_cast<std::uint64_t>(f.first_nan)});
    return Exactly({spec.dtype, kNan});
  }
  const std::int64_t index = wants_lowest ? f.lowest : f.highest;
  if (index < 0) return Fail(absl::StatusCode::kInvalidArgument);
  if (wants_index) return Exactly({DType::kU64, static_cast<std::uint64_t>(index)});
  return Exactly(wants_lowest ? f.lowest_value : f.highest_value);
}

Expected ExpectRange(const Facts& f, const ReduceSpec& spec) {
  const Expected low = ExpectExtremum(f, spec, Op::kMin);
  const Expected high = ExpectExtremum(f, spec, Op::kMax);
  if (low.code != absl::StatusCode::kOk) return low;
  if (RowOf(f.dtype).is_float) {
    return Exactly({DType::kF64, std::get<double>(high.value.value) - std::get<double>(low.value.value)});
  }
  const auto wide = [](const Value& value) {
    return std::visit([](auto x) { return static_cast<Int128>(x); }, value.value);
  };
  return Exactly({DType::kU64, static_cast<std::uint64_t>(wide(high.value) - wide(low.value))});
}

// The low bytes of `bits` as an element.
Expected ExpectBits(DType dtype, std::uint64_t bits) {
  return VisitDType(dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (std::is_integral_v<T>) {
      Element e;
      e.integer = static_cast<T>(bits);
      return Exactly(ValueOf(dtype, e));
    } else {
      return Exactly({dtype, (bits & 1) != 0});
    }
  });
}

}  // namespace

Facts Study(DType dtype, const void* data, std::int64_t count) {
  return VisitDType(dtype, [&]<class T>(std::type_identity<T>) { return StudyElements<T>(data, count); });
}

Expected Expect(const Facts& f, const ReduceSpec& spec, Op op) {
  const bool is_float = RowOf(f.dtype).is_float;
  const bool omit = spec.nan_policy == NanPolicy::kOmit;
  const std::int64_t counted = f.count - (omit ? f.nans : 0);
  const std::int64_t nonzero = f.nonzero + (omit ? 0 : f.nans);
  const auto n = static_cast<Real>(counted);
  if (f.nans > 0 && !omit && ResultDType(op, f.dtype) == DType::kF64 && op != Op::kMin && op != Op::kMax) {
    return Exactly({DType::kF64, kNan});  // whatever is computed from the NaNs' values is NaN
  }
  switch (op) {
    case Op::kSum:
      if (is_float) return ExpectSum(f, n, 1);
      return ExpectWhole(
          spec, op,
          {f.sum < 0, static_cast<UInt128>(f.sum < 0 ? -f.sum : f.sum), false, static_cast<std::uint64_t>(f.sum)});
    case Op::kProd:
      if (is_float) return ExpectRealProduct(f, n);
      if (f.nonzero < f.count) return ExpectWhole(spec, op, {});
      return ExpectWhole(spec, op, {f.negative_product, f.product, false, f.wrapped_product});
    case Op::kMean:
      return is_float ? ExpectMean(f, counted) : ExpectOfIntegers(f, spec, op);
    case Op::kVar:
      return is_float ? ExpectVariance(f, spec, counted) : ExpectOfIntegers(f, spec, op);
    case Op::kStd:
      return is_float ? SquareRoot(ExpectVariance(f, spec, counted)) : ExpectOfIntegers(f, spec, op);
    case Op::kSumSquares:
      if (is_float) return ExpectSumSquares(f, n);
      return ExpectWhole(spec, op,
                         {false, f.sum_squares, f.sum_squares_high != 0, static_cast<std::uint64_t>(f.sum_squares)});
    case Op::kL1:
      if (is_float) return Within(f.real_abs_sum, n * kRounding * f.real_abs_sum);
      return ExpectWhole(spec, op, {false, f.abs_sum, false, static_cast<std::uint64_t>(f.abs_sum)});
    case Op::kL2:
      return is_float ? SquareRoot(ExpectSumSquares(f, n)) : ExpectOfIntegers(f, spec, op);
    case Op::kMin:
    case Op::kMax:
    case Op::kArgmin:
    case Op::kArgmax:
      return ExpectExtremum(f, spec, op);
    case Op::kRange:
      return ExpectRange(f, spec);
    case Op::kAny:
      return Exactly({DType::kBool, nonzero > 0});
    case Op::kAll:
      return Exactly({DType::kBool, nonzero == counted});
    case Op::kCount:
      return Exactly({DType::kU64, static_cast<std::uint64_t>(counted)});
    case Op::kCountNonzero:
      return Exactly({DType::kU64, static_cast<std::uint64_t>(nonzero)});
    case Op::kNanCount:
      return Exactly({DType::kU64, static_cast<std::uint64_t>(f.nans)});
    case Op::kBitAnd:
      return ExpectBits(f.dtype, f.bits_and);
    case Op::kBitOr:
      return ExpectBits(f.dtype, f.bits_or);
    case Op::kBitXor:
      return ExpectBits(f.dtype, f.bits_xor);
    default:
      break;  // has no state
  }
  return Fail(absl::StatusCode::kUnimplemented);  // a new op: give it its case
}

}  // namespace reduced::test

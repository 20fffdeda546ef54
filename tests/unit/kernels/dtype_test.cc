#include "kernels/algebra/dtype.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <type_traits>

#include "gtest/gtest.h"
#include "kernels/algebra/float_format.h"

namespace reduced {
namespace {

TEST(DType, NumbersAreDense) {
  int number = 0;
  for (const DTypeRow& row : kDTypes) {
    EXPECT_EQ(static_cast<int>(row.dtype), ++number) << row.name;
    EXPECT_EQ(&RowOf(row.dtype), &row);
  }
}

TEST(DType, IsFoundByNameAndNumber) {
  std::set<std::string> names;
  for (const DTypeRow& row : kDTypes) {
    EXPECT_TRUE(names.insert(std::string(row.name)).second) << row.name;
    EXPECT_EQ(DTypeFromName(row.name), row.dtype);
    EXPECT_EQ(DTypeFromNumber(static_cast<int>(row.dtype)), row.dtype);
  }
  for (const char* const name : {"", "F32", "float32", "f3", "f322"}) EXPECT_FALSE(DTypeFromName(name).has_value());
  for (const int number : {-1, 0, static_cast<int>(std::size(kDTypes)) + 1}) {
    EXPECT_FALSE(DTypeFromNumber(number).has_value());
  }
}

TEST(DType, RowsDescribeTheirTypes) {
  for (const DTypeRow& row : kDTypes) {
    VisitDType(row.dtype, [&]<class T>(std::type_identity<T>) {
      EXPECT_EQ(kDTypeOf<T>, row.dtype);
      EXPECT_EQ(sizeof(T), static_cast<std::size_t>(row.bytes));
      EXPECT_EQ(alignof(T), sizeof(T));
      EXPECT_TRUE(std::is_trivially_copyable_v<T>);
    });
    const bool is_float = row.name[0] == 'f' || row.name == "bf16";
    EXPECT_EQ(row.is_float, is_float) << row.name;
    EXPECT_EQ(row.is_signed, is_float || row.name[0] == 'i') << row.name;
  }
}

// The value of 1 sign bit, `exponent_bits` and a fraction, as IEEE 754 defines it.
double Decode16(int bits, int exponent_bits) {
  const int fraction_bits = 15 - exponent_bits;
  const int exponent = (bits & 0x7fff) >> fraction_bits;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  double magnitude = 0;
  if (exponent == 2 * bias + 1) {
    magnitude = fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else {
    const double significand = (exponent == 0 ? 0.0 : 1.0) + static_cast<double>(fraction) / (1 << fraction_bits);
    magnitude = significand * std::pow(2.0, (exponent == 0 ? 1 : exponent) - bias);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

template <class T>
class DType16 : public ::testing::Test {};
using Floats16 = ::testing::Types<Half, BFloat16>;
TYPED_TEST_SUITE(DType16, Floats16);

TYPED_TEST(DType16, EveryBitPattern) {
  for (int bits = 0; bits < 65536; ++bits) {
    const TypeParam x{static_cast<std::uint16_t>(bits)};
    const double expected = Decode16(bits, std::is_same_v<TypeParam, Half> ? 5 : 8);
    ASSERT_EQ(IsNan(x), std::isnan(expected)) << bits;
    ASSERT_EQ(IsNonzero(x), expected != 0) << bits;  // NaN is non-zero
    ASSERT_EQ(std::isnan(ToDouble(x)), std::isnan(expected)) << bits;
    if (std::isnan(expected)) continue;
    ASSERT_EQ(ToDouble(x), expected) << bits;
    ASSERT_EQ(std::signbit(ToDouble(x)), std::signbit(expected)) << bits;
  }
}

// Neighbours' midpoints go to the even one, what is beside them to the nearer, what is beyond the largest to infinity.
TYPED_TEST(DType16, FromDoubleIsTheNearest) {
  using Format = FloatFormat<TypeParam>;
  for (int bits = 0; bits < int{Format::kInfinity}; ++bits) {
    const auto at = [](int b) { return TypeParam{static_cast<std::uint16_t>(b)}; };
    const double here = ToDouble(at(bits));
    ASSERT_EQ(FromDouble<TypeParam>(here).bits, bits);
    ASSERT_EQ(FromDouble<TypeParam>(-here).bits, bits | 0x8000);
    const bool last = bits + 1 == int{Format::kInfinity};
    const double step = last ? here - ToDouble(at(bits - 1)) : ToDouble(at(bits + 1)) - here;
    const double middle = here + step / 2;
    ASSERT_EQ(FromDouble<TypeParam>(middle).bits, bits + (bits & 1)) << here;
    ASSERT_EQ(FromDouble<TypeParam>(std::nextafter(middle, 0)).bits, bits);
    ASSERT_EQ(FromDouble<TypeParam>(std::nextafter(middle, HUGE_VAL)).bits, bits + 1);
  }
  EXPECT_EQ(FromDouble<TypeParam>(HUGE_VAL).bits, int{Format::kInfinity});
  EXPECT_EQ(FromDouble<TypeParam>(1e300).bits, int{Format::kInfinity});
  EXPECT_TRUE(IsNan(FromDouble<TypeParam>(NAN)));
}

// Floats of 8 bits, from the definitions of the OCP specifications: bits, and the value in units of 2^-unit.
template <class T>
class DType8 : public ::testing::Test {
 public:
  static constexpr bool kScale = std::is_same_v<T, F8E8M0>, kE4M3 = std::is_same_v<T, F8E4M3>;

  static double Decode(int bits) {
    if (kScale) return bits == 255 ? kNan : std::exp2(bits - 127);
    const int fraction_bits = kE4M3 ? 3 : 2, steps = 1 << fraction_bits;
    const int exponent = (bits & 0x7f) / steps, fraction = bits % steps;
    double magnitude = exponent == 0 ? fraction : (steps + fraction) * std::exp2(exponent - 1);
    magnitude *= std::exp2(kE4M3 ? -9 : -16);
    if (kE4M3 && (bits & 0x7f) == 0x7f) magnitude = kNan;
    if (!kE4M3 && exponent == 31) magnitude = fraction == 0 ? HUGE_VAL : kNan;
    return bits < 0x80 ? magnitude : -magnitude;
  }

 private:
  static constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
};
using Floats8 = ::testing::Types<F8E4M3, F8E5M2, F8E8M0>;
TYPED_TEST_SUITE(DType8, Floats8);

TYPED_TEST(DType8, EveryBitPattern) {
  for (int bits = 0; bits < 256; ++bits) {
    const TypeParam x{static_cast<std::uint8_t>(bits)};
    const double expected = TestFixture::Decode(bits);
    EXPECT_EQ(IsNan(x), std::isnan(expected)) << bits;
    EXPECT_EQ(IsFinite(x), std::isfinite(expected)) << bits;
    EXPECT_EQ(IsNonzero(x), expected != 0) << bits;
    EXPECT_EQ(std::isnan(ToDouble(x)), std::isnan(expected)) << bits;
    using Wide = typename WideOf<TypeParam>::Type;
    const double wide = ToDouble(FromDouble<Wide>(ToDouble(x)));
    EXPECT_EQ(std::isnan(wide), std::isnan(expected)) << bits;
    EXPECT_EQ(IsNan(FromDouble<TypeParam>(ToDouble(x))), IsNan(x)) << bits;
    if (std::isnan(expected)) continue;
    EXPECT_EQ(ToDouble(x), expected) << bits;
    EXPECT_EQ(wide, expected) << bits;
    EXPECT_EQ(std::signbit(ToDouble(x)), std::signbit(expected)) << bits;
    EXPECT_EQ(FromDouble<TypeParam>(expected).bits, bits);
    EXPECT_EQ(FromNumber<TypeParam>(expected)->bits, bits);
  }
  EXPECT_EQ(ToDouble(F8E4M3{0x7e}), 448);
  EXPECT_EQ(ToDouble(F8E4M3{1}), 0x1p-9);
  EXPECT_EQ(ToDouble(F8E5M2{0x7b}), 57344);
  EXPECT_EQ(ToDouble(F8E5M2{1}), 0x1p-16);
  EXPECT_EQ(ToDouble(F8E8M0{0}), 0x1p-127);
  EXPECT_EQ(ToDouble(F8E8M0{254}), 0x1p127);
}

TYPED_TEST(DType8, FromDoubleIsTheNearest) {
  constexpr int kHighest = FloatFormat<TypeParam>::kInfinity;
  for (int bits = 0; bits < kHighest - 1; ++bits) {
    const double here = TestFixture::Decode(bits), next = TestFixture::Decode(bits + 1);
    if (!std::isfinite(next)) break;
    const double middle = here + (next - here) / 2;
    // A scale has no fraction: its ties go to the larger one. All between the two least ones do, as in ml_dtypes.
    const int tie = TestFixture::kScale ? bits + 1 : bits + (bits & 1);
    const bool least = TestFixture::kScale && bits == 0;
    EXPECT_EQ(FromDouble<TypeParam>(middle).bits, tie) << here;
    EXPECT_EQ(FromDouble<TypeParam>(std::nextafter(middle, 0)).bits, least ? 1 : bits) << here;
    EXPECT_EQ(FromDouble<TypeParam>(std::nextafter(middle, HUGE_VAL)).bits, bits + 1) << here;
  }
  for (const double beyond : {1e300, HUGE_VAL, -1e300, -HUGE_VAL}) {
    const TypeParam x = FromDouble<TypeParam>(beyond);
    EXPECT_FALSE(IsFinite(x)) << beyond;
    EXPECT_EQ(IsNan(x), !(std::is_same_v<TypeParam, F8E5M2>)) << beyond;
  }
  EXPECT_FALSE(FromNumber<TypeParam>(1e300).has_value());
  EXPECT_EQ(FromNumber<TypeParam>(HUGE_VAL).has_value(), (std::is_same_v<TypeParam, F8E5M2>));
  EXPECT_TRUE(IsNan(*FromNumber<TypeParam>(NAN)));
}

TEST(DType, WhatFloatsOf8BitsCannotHold) {
  EXPECT_EQ(FromNumber<F8E4M3>(464)->bits, 0x7e);  // halfway to 480, whose bits are a NaN's
  EXPECT_FALSE(FromNumber<F8E4M3>(464.1).has_value());
  EXPECT_EQ(FromNumber<F8E5M2>(61439)->bits, 0x7b);
  EXPECT_FALSE(FromNumber<F8E5M2>(61440).has_value());
  for (const double x : {0.0, -0.0, -1.0}) EXPECT_FALSE(FromNumber<F8E8M0>(x).has_value());
}

TEST(DType, PredicatesOfWiderFloats) {
  const double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const double x : {0.0, -0.0, 1.0, -1.0, 0x1p-149, -0x1p-149, std::numeric_limits<double>::infinity()}) {
    EXPECT_FALSE(IsNan(x));
    EXPECT_FALSE(IsNan(static_cast<float>(x)));
    EXPECT_EQ(IsNonzero(x), std::fpclassify(x) != FP_ZERO);
    EXPECT_EQ(IsNonzero(static_cast<float>(x)), std::fpclassify(x) != FP_ZERO);
    EXPECT_EQ(ToDouble(static_cast<float>(x)), x);
  }
  for (const double x : {kNan, -kNan}) {
    EXPECT_TRUE(IsNan(x));
    EXPECT_TRUE(IsNan(static_cast<float>(x)));
    EXPECT_TRUE(IsNonzero(x));
    EXPECT_TRUE(IsNonzero(static_cast<float>(x)));
  }
  EXPECT_TRUE(IsNonzero(std::numeric_limits<double>::denorm_min()));
  EXPECT_TRUE(IsNan(std::bit_cast<float>(0x7f800001U)));  // signalling
}

TEST(DType, EveryByteButZeroIsTrue) {
  for (int byte = 0; byte < 256; ++byte) {
    const Bool x{static_cast<std::uint8_t>(byte)};
    EXPECT_EQ(IsNonzero(x), byte != 0);
    EXPECT_EQ(ToInteger(x), byte != 0 ? 1 : 0);
    EXPECT_FALSE(IsNan(x));
  }
}

}  // namespace
}  // namespace reduced

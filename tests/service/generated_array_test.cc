// The arrays that ladders are about: what they are filled with, and that they are the same whoever makes them.
#include "server/sources/generated_array.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/algebra/float_format.h"

namespace reduced::server {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

absl::Status GoOn() { return absl::OkStatus(); }

template <class T>
std::vector<T> GeneratedElements(const Contents& contents, std::int64_t count, int threads = 1) {
  const std::int64_t bytes = count * static_cast<std::int64_t>(sizeof(T));
  const absl::StatusOr<GeneratedArray> array = GeneratedArray::Generate(contents, bytes, threads, GoOn);
  EXPECT_TRUE(array.ok()) << array.status();
  std::vector<T> elements(static_cast<std::size_t>(count));
  std::memcpy(static_cast<void*>(elements.data()), array->data(), static_cast<std::size_t>(bytes));
  return elements;
}

// An element as a number.
template <class T>
double NumberOf(T element) {
  if constexpr (kIsFloat<T>) {
    return ToDouble(element);
  } else {
    return static_cast<double>(ToInteger(element));
  }
}

// The element that `value` becomes, as a number.
double FilledWith(DType dtype, double value) {
  const absl::StatusOr<std::uint64_t> word = FillWord(dtype, value);
  EXPECT_TRUE(word.ok()) << word.status();
  const Contents contents{.dtype = dtype, .fill = *word};
  EXPECT_THAT(GeneratedElements<std::uint64_t>(contents, 9), Each(*word));
  return VisitDType(dtype,
                    [&]<class T>(std::type_identity<T>) { return NumberOf(GeneratedElements<T>(contents, 8).back()); });
}

TEST(FillTest, IntegersAreExact) {
  EXPECT_EQ(FilledWith(DType::kI8, -128), -128);
  EXPECT_EQ(FilledWith(DType::kU16, 65535), 65535);
  EXPECT_EQ(FilledWith(DType::kI64, -0x1p63), -0x1p63);
  EXPECT_EQ(FilledWith(DType::kU64, 0x1.fffffffffffffp63), 0x1.fffffffffffffp63);
  EXPECT_EQ(FilledWith(DType::kBool, 1), 1);
  EXPECT_EQ(FilledWith(DType::kI32, -0.0), 0);
}

TEST(FillTest, FloatsAreTheNearest) {
  struct Case {
    DType dtype;
    double value, nearest;
  };
  for (const Case& each : {Case{DType::kF64, 0.1, 0.1},
                           {DType::kF32, 0.1, 0.1F},
                           {DType::kF16, 1, 1},
                           {DType::kF16, 0.1, 0x1.998p-4},
                           {DType::kF16, 65504, 65504},
                           {DType::kF16, 65519.9, 65504},  // just below the middle to 2^16
                           {DType::kF16, 1 + 0x1p-11, 1},  // ties to even
                           {DType::kF16, 1 + 0x3p-11, 1 + 0x1p-9},
                           {DType::kF16, 2 - 0x1p-12, 2},    // carries
                           {DType::kF16, 0x1p-24, 0x1p-24},  // the least subnormal
                           {DType::kF16, 0x1.1p-25, 0x1p-24},
                           {DType::kF16, 0x1p-25, 0},
                           {DType::kF16, 0x1.ff8p-15, 0x1.ff8p-15},  // the largest subnormal
                           {DType::kF16, 0x1.ffcp-15, 0x1p-14},      // ties to the least normal
                           {DType::kBF16, -3.140625, -3.140625},
                           {DType::kBF16, 0.1, 0x1.9ap-4},
                           {DType::kBF16, 0x1p-133, 0x1p-133},
                           {DType::kBF16, 0x1.fep127, 0x1.fep127},
                           {DType::kF8E4M3, 0.1, 0x1.ap-4},
                           {DType::kF8E4M3, 464, 448},
                           {DType::kF8E5M2, 0.1, 0x1.8p-4},
                           {DType::kF8E5M2, 61439, 57344}}) {
    for (const double sign : {1.0, -1.0}) {
      EXPECT_EQ(FilledWith(each.dtype, sign * each.value), sign * each.nearest) << RowOf(each.dtype).name;
    }
  }
  for (const DTypeRow& row : kDTypes) {
    if (!row.is_float) continue;
    EXPECT_TRUE(std::isnan(FilledWith(row.dtype, std::nan("")))) << row.name;
    if (row.dtype == DType::kF8E4M3 || row.dtype == DType::kF8E8M0) continue;  // have no infinity, or no zero
    EXPECT_EQ(FilledWith(row.dtype, -HUGE_VAL), -HUGE_VAL) << row.name;
    EXPECT_TRUE(std::signbit(FilledWith(row.dtype, -0.0))) << row.name;
  }
}

TEST(FillTest, WhatIsNoElementIsRefused) {
  struct Case {
    DType dtype;
    double value;
    std::string got, allowed;
  };
  for (const Case& each : {Case{DType::kI32, 1.5, "1.5", "from -2147483648 to 2147483647"},
                           {DType::kI32, 300000000000, "300000000000", "i32"},
                           {DType::kI32, 2147483648, "2147483648", "2147483647"},
                           {DType::kI8, -129, "-129", "-128 to 127"},
                           {DType::kI64, 0x1p63, "9.2233720368547758e+18", "9223372036854775807"},
                           {DType::kU64, 0x1p64, "1.8446744073709552e+19", "18446744073709551615"},
                           {DType::kU8, -1, "-1", "0 to 255"},
                           {DType::kI16, std::nan(""), "nan", "i16"},
                           {DType::kU32, HUGE_VAL, "inf", "u32"},
                           {DType::kBool, 2, "2", "0 and 1"},
                           {DType::kBool, 0.5, "0.5", "0 and 1"},
                           {DType::kF16, 65520, "65520", "f16"},
                           {DType::kBF16, 0x1.ffp127, "3.39", "bf16"},
                           {DType::kF8E4M3, 465, "465", "f8_e4m3fn; allowed: numbers of its range and NaN"},
                           {DType::kF8E4M3, HUGE_VAL, "inf", "f8_e4m3fn"},
                           {DType::kF8E5M2, 61440, "61440", "numbers of its range, NaN and infinities"},
                           {DType::kF8E8M0, 0, "got 0 of f8_e8m0fnu", "numbers of its range and NaN"},
                           {DType::kF8E8M0, -1, "-1", "f8_e8m0fnu"},
                           {DType::kF32, 1e300, "1.0000000000000001e+300", "f32"}}) {
    const absl::Status status = FillWord(each.dtype, each.value).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << each.got;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(each.got), HasSubstr(each.allowed)));
  }
}

// Floats in [-1, 1), integers over half their range: all of it, evenly.
TEST(RandomTest, CoversItsRange) {
  for (const DTypeRow& row : kDTypes) {
    SCOPED_TRACE(std::string(row.name));
    VisitDType(row.dtype, [&]<class T>(std::type_identity<T>) {
      double low = 0;
      double high = 1;
      double step = 0;  // of floats of 8 bits
      if constexpr (std::is_same_v<T, F8E8M0>) {
        for (const T& element : GeneratedElements<T>({.dtype = row.dtype, .seed = 1}, 1000)) {
          EXPECT_GE(NumberOf(element), 0x1p-8);
          EXPECT_LT(NumberOf(element), 0x1p8);
        }
        return;
      } else if constexpr (kIsFloat<T>) {
        low = -1;
        if (kIsF8<T>) step = std::exp2(-FloatFormat<T>::kSignificant);
      } else if constexpr (!std::is_same_v<T, Bool>) {
        low = static_cast<double>(std::numeric_limits<T>::min() / 2);
        high = static_cast<double>(std::numeric_limits<T>::max() / 2) + 1;
      }
      constexpr int kCount = 20'000;
      double sum = 0;
      double least = HUGE_VAL;
      double most = -HUGE_VAL;
      for (const T& element : GeneratedElements<T>({.dtype = row.dtype, .seed = 1}, kCount)) {
        const double x = NumberOf(element);
        sum += x;
        least = std::min(least, x);
        most = std::max(most, x);
      }
      const double width = high - low;
      EXPECT_GE(least, low);
      EXPECT_LT(least, low + 0.01 * width);
      if constexpr (std::is_same_v<T, Bool>) {
        EXPECT_EQ(most, 1);
      } else {
        EXPECT_LT(most, high);
        EXPECT_GT(most, high - step - 0.02 * width);
        EXPECT_NEAR(sum / kCount, (low + high - step) / 2, 0.02 * width);
      }
    });
  }
}

TEST(RandomTest, TheSameSeedIsTheSameArrayWhoeverMakesIt) {
  constexpr std::int64_t kCount = 5'000'003;  // several stretches, and not a whole number of words
  const Contents contents{.dtype = DType::kI16, .seed = 3};
  const std::vector<std::int16_t> alone = GeneratedElements<std::int16_t>(contents, kCount);
  EXPECT_EQ(alone, GeneratedElements<std::int16_t>(contents, kCount, 4));
  EXPECT_NE(alone, GeneratedElements<std::int16_t>({.dtype = DType::kI16, .seed = 4}, kCount));
}

// Seeds that differ by the generator's step must not give one sequence from two starts.
TEST(RandomTest, SeedsAreNotShifts) {
  const std::uint64_t step = 0x9e3779b97f4a7c15;
  const auto a = GeneratedElements<std::int64_t>({.dtype = DType::kI64, .seed = 0}, 100);
  const auto b = GeneratedElements<std::int64_t>({.dtype = DType::kI64, .seed = step}, 100);
  EXPECT_NE(a[1], b[0]);
  EXPECT_NE(a[0], b[1]);
}

TEST(MakeTest, StopsWhenAsked) {
  constexpr std::int64_t kBytes = 64 << 20;
  for (const int threads : {1, 3}) {
    std::atomic<int> asked = 0;
    const auto stop_soon = [&asked] { return ++asked > 3 ? absl::CancelledError("enough") : absl::OkStatus(); };
    const absl::Status status = GeneratedArray::Generate({.dtype = DType::kF32}, kBytes, threads, stop_soon).status();
    EXPECT_EQ(status, absl::CancelledError("enough"));
    EXPECT_LE(asked, 3 + threads + 1);
  }
}

TEST(MakeTest, NoMemoryIsAnError) {
  const absl::Status status = GeneratedArray::Generate({}, std::int64_t{1} << 60, 1, GoOn).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("1152921504606846976 bytes"));
}

}  // namespace
}  // namespace reduced::server

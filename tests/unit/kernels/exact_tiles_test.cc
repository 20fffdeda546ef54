// The tile functions of exact sums, of every vector target that this machine can run: the same state, to the bit, as
// adding element after element, whatever the array, its order and its cuts.
#include "kernels/cpu/exact_tiles.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/tiles.h"
#include "tests/support/data.h"
#include "tests/support/runs.h"
#include "tests/unit/kernels/only_target.h"

namespace reduced {
namespace {

using test::Bytes;
using test::OnlyTarget;

constexpr DType kFloats[] = {DType::kF16,    DType::kBF16,   DType::kF32,   DType::kF64,
                             DType::kF8E4M3, DType::kF8E5M2, DType::kF8E8M0};

ExactSums ByElement(DType dtype, const void* array, std::int64_t count, AccumulatorSet set) {
  return VisitDType(dtype, [&]<class T>(std::type_identity<T>) {
    ExactSums sums;
    if constexpr (kIsFloat<T>) {
      for (std::int64_t i = 0; i < count; ++i) {
        T x;
        std::memcpy(&x, static_cast<const std::byte*>(array) + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
        Add(ToDouble(x), set, /*elsewhere=*/false, &sums);
      }
    }
    return sums;
  });
}

// By every target, in calls of at most `cut` elements.
void ExpectSameSums(DType dtype, const void* array, std::int64_t count, std::int64_t cut, const std::string& what) {
  for (AccumulatorSet set = 1; set <= kExactAccumulators; ++set) {
    const ExactSums expected = ByElement(dtype, array, count, set);
    for (const std::int64_t target : VectorTargets()) {
      const OnlyTarget only(target);
      ExactFolder folder(dtype, set);
      for (std::int64_t i = 0; i < count; i += cut) {
        folder.Fold(static_cast<const std::byte*>(array) + i * RowOf(dtype).bytes, std::min(cut, count - i));
      }
      EXPECT_TRUE(folder.sums() == expected) << RowOf(dtype).name << "[" << count << "] " << what << ", sums " << set
                                             << ", by " << hwy::TargetName(static_cast<std::uint32_t>(target));
    }
  }
}

TEST(ExactTiles, SumAsElementByElement) {
  for (const DType dtype : kFloats) {
    for (const test::DataKindRow& kind : test::kDataKinds) {
      for (const std::int64_t count :
           {0, 1, 3, 15, 16, 17, 33, 1023, 1024, 2047, 2048, 2049, test::kSlowBuild ? 5003 : 20'011}) {
        const Bytes array = test::MakeData(kind.kind, dtype, count, static_cast<std::uint64_t>(count));
        for (const std::size_t misalignment : {0, 1}) {
          const test::ExactArray exact(array, misalignment);
          ExpectSameSums(dtype, exact.data(), count, std::max<std::int64_t>(count, 1), std::string(kind.name));
        }
      }
    }
  }
}

// Where extrema are wanted, too, the extent of a tile comes from these.
TEST(ExactTiles, SumTilesOfWhichExtremaGiveTheExtent) {
  constexpr AccumulatorSet kOthers = SetOf(Accumulator::kExtrema) | SetOf(Accumulator::kCounts);
  constexpr AccumulatorSet kSums = SetOf(Accumulator::kSum) | SetOf(Accumulator::kSumSquares);
  for (const DType dtype : kFloats) {
    for (const test::DataKindRow& kind : test::kDataKinds) {
      for (const NanPolicy policy : {NanPolicy::kPropagate, NanPolicy::kOmit}) {
        const std::int64_t tile = kTileBytes / RowOf(dtype).bytes;
        const std::int64_t count = 3 * tile + 5;
        const Bytes array = test::MakeData(kind.kind, dtype, count, 17);
        const ExactSums expected = ByElement(dtype, array.data(), count, kSums);
        for (const std::int64_t target : VectorTargets()) {
          const OnlyTarget only(target);
          const TilePlan plan(dtype, kOthers, policy);
          ExactFolder folder(dtype, kSums);
          Partial partial;
          for (std::int64_t i = 0; i < count; i += tile) {
            const std::byte* const at = array.data() + i * RowOf(dtype).bytes;
            std::optional<Extent> extent = Extent();  // that of the tile before must not stay
            plan.Fold(at, i, std::min(tile, count - i), &partial, &extent);
            folder.Fold(at, std::min(tile, count - i), extent);
          }
          EXPECT_TRUE(folder.sums() == expected) << RowOf(dtype).name << " " << kind.name << ", by "
                                                 << hwy::TargetName(static_cast<std::uint32_t>(target));
        }
      }
    }
  }
}

TEST(ExactTiles, DontDependOnTheCuts) {
  for (const DType dtype : kFloats) {
    const Bytes array = test::MakeData(test::DataKind::kFull, dtype, 9001, 3);
    for (const std::int64_t cut : {1, 7, 100, 2048, 5000}) {
      ExpectSameSums(dtype, array.data(), 9001, cut, "cut every " + std::to_string(cut));
    }
  }
}

// NaNs and infinities come in some tiles and not in others, and at every place of a tile.
TEST(ExactTiles, CountSpecialsAndSumTheRest) {
  constexpr std::int64_t kCount = 40'003;
  for (const DType dtype : kFloats) {
    const Bytes numbers = test::MakeData(test::DataKind::kUniform, dtype, kCount, 11);
    const Bytes specials[] = {test::MakeData(test::DataKind::kAllNan, dtype, kCount, 12),
                              test::MakeData(test::DataKind::kInfinities, dtype, kCount, 12)};
    for (const std::int64_t every : {1, 3, 97, 5003}) {
      Bytes array = numbers;
      const auto bytes = static_cast<std::size_t>(RowOf(dtype).bytes);
      for (std::int64_t i = every - 1; i < kCount; i += every) {
        if (i / 9000 % 2 == 1) continue;  // stretches without
        const std::size_t at = static_cast<std::size_t>(i) * bytes;
        std::memcpy(array.data() + at, specials[i / every % 2].data() + at, bytes);
      }
      ExpectSameSums(dtype, array.data(), kCount, 1 << 20, "a special every " + std::to_string(every));
    }
  }
}

// Tiles of numbers from 2^low to 2^high, some of them zero: what the bins hold, what they don't, and what f64 can't
// anchor; in turns, so that the next tile is never as expected.
TEST(ExactTiles, SumNumbersOfAnyRange) {
  std::mt19937_64 random(7);
  const std::pair<int, int> ranges[] = {{0, 0},         {-10, 0},       {-41, 0},     {-60, 0},     {-300, 0},
                                        {-1074, 0},     {-1074, 1023},  {900, 1023},  {1008, 1012}, {1023, 1023},
                                        {-1074, -1070}, {-1022, -1000}, {-490, -470}, {490, 520},   {-600, 600}};
  std::vector<double> all;
  std::vector<float> all_narrow;
  for (int round = 0; round < 3; ++round) {
    for (const auto& [low, high] : ranges) {
      for (int i = 0; i < 3000; ++i) {
        const int exponent = std::uniform_int_distribution<int>(low, high)(random);
        double x = std::ldexp(1 + std::ldexp(static_cast<double>(random() >> 12), -52), exponent);
        if (random() % 2 == 0) x = -x;
        if (round == 1 && random() % 4 == 0) x = 0;
        all.push_back(x);
        const auto narrow = static_cast<float>(std::ldexp(x, -exponent + exponent / 8));
        all_narrow.push_back(narrow);
      }
    }
  }
  ExpectSameSums(DType::kF64, all.data(), static_cast<std::int64_t>(all.size()), 1 << 20, "ranges");
  ExpectSameSums(DType::kF32, all_narrow.data(), static_cast<std::int64_t>(all_narrow.size()), 1 << 20, "ranges");
  std::shuffle(all.begin(), all.end(), random);
  ExpectSameSums(DType::kF64, all.data(), static_cast<std::int64_t>(all.size()), 1 << 20, "ranges, shuffled");
}

// Bins are filled to their end by a tile of numbers that are all the largest that was expected, of one sign.
TEST(ExactTiles, HoldTilesOfTheLargestNumbers) {
  for (const int exponent : {-1000, -480, 0, 499, 1009, 1023}) {
    for (const double mantissa : {1.0, 2 - 0x1p-52, -1.0, -(2 - 0x1p-52)}) {
      const std::vector<double> array(50'000, std::ldexp(mantissa, exponent));
      ExpectSameSums(DType::kF64, array.data(), 50'000, 1 << 20, "2^" + std::to_string(exponent));
    }
  }
  for (const float x : {1.0F, std::numeric_limits<float>::max(), -std::numeric_limits<float>::max(), 0x1p-149F}) {
    const std::vector<float> array(50'000, x);
    ExpectSameSums(DType::kF32, array.data(), 50'000, 1 << 20, "equal");
  }
}

// A tile of the largest numbers of one sign and a small one: as far apart as bins take, more, and less.
TEST(ExactTiles, HoldTilesOfNumbersThatAreJustNearEnough) {
  std::mt19937_64 random(9);
  for (const std::int64_t count : {31, 64, 1008, 1023, 1024, 2016, 2032, 2047, 2048}) {
    for (int digits = 30; digits <= 100;
         digits += test::kSlowBuild ? 7 : 1) {  // from the largest's first to the smallest's last
      const std::string what = std::to_string(digits) + " digits";
      for (const int sign : {1, -1}) {
        std::vector<double> wide(static_cast<std::size_t>(count), sign * (2 - 0x1p-52));
        wide[static_cast<std::size_t>(count / 2)] = std::ldexp(1, 53 - digits);
        ExpectSameSums(DType::kF64, wide.data(), count, count, what);
        for (double& x : wide) x *= 1 - std::ldexp(static_cast<double>(random() >> 11), -55);  // squares lose more
        ExpectSameSums(DType::kF64, wide.data(), count, count, what);
        std::vector<float> array(static_cast<std::size_t>(count), static_cast<float>(sign) * (2 - 0x1p-23F));
        array[static_cast<std::size_t>(count / 2)] = std::ldexp(1.0F, 24 - digits);
        ExpectSameSums(DType::kF32, array.data(), count, count, what);
        std::vector<std::uint16_t> narrow;  // bf16
        for (const float x : array) narrow.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16));
        ExpectSameSums(DType::kBF16, narrow.data(), count, count, what);
      }
    }
  }
}

// Elements of f64 of one sign whose limbs are as large as they can be, for limbs of every length.
TEST(ExactTiles, HoldTilesOfTheLargestLimbs) {
  for (const int digits : {60, 66, 67, 68, 69, 70, 71, 72}) {
    for (int first = 19; first <= 24; ++first) {
      for (int second = first + 22; second <= first + 24; ++second) {
        for (const double high : {1.0, -1.0}) {
          for (const double low : {1.0, -1.0}) {
            const double x = 2 - high * std::ldexp(1, -first) - low * std::ldexp(1, -second);
            std::vector<double> array(1024, x < 2 ? x : x / 2);
            array[5] = std::ldexp(1, 53 - digits);
            ExpectSameSums(DType::kF64, array.data(), 1024, 1024,
                           std::to_string(digits) + " digits, 2 - " + std::to_string(high) + " x 2^-" +
                               std::to_string(first) + " - " + std::to_string(low) + " x 2^-" + std::to_string(second));
          }
        }
      }
    }
  }
}

// Tiles of f64 that are near to each other, wherever they are: where bins and products can be had, and where not.
TEST(ExactTiles, SumNearNumbersOfAnySize) {
  std::mt19937_64 random(8);
  for (int exponent = -1074; exponent <= 1020; exponent += exponent < -1000 || exponent > 900 ? 1 : 7) {
    std::vector<double> array(256);
    for (double& x : array) x = std::ldexp(static_cast<double>(random() >> 11) * 0x1p-50 - 4, exponent);
    ExpectSameSums(DType::kF64, array.data(), 256, 256, "2^" + std::to_string(exponent));
  }
}

// What isn't finite is counted wherever in a tile it is, and zeros are told apart.
TEST(ExactTiles, FindWhatIsNotANumberAmongNearOnes) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float odd : {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity, 0.0F, -0.0F}) {
    for (const float other : {1.5F, -0.0F}) {
      for (const std::size_t at : {0, 15, 1000, 2031, 2047, 2060, 2066}) {
        std::vector<float> array(2067, other);
        array[at] = odd;
        ExpectSameSums(DType::kF32, array.data(), 2067, 2067, std::to_string(odd) + " at " + std::to_string(at));
      }
    }
  }
}

}  // namespace
}  // namespace reduced

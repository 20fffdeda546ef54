// How floats fall apart into the bins of tables by key, and sums become answers: nothing is lost.
#include "kernels/cuda/key_entries.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/exact/answers.h"
#include "kernels/exact/sums.h"

namespace reduced {
namespace {

template <class T>
class KeyEntries : public ::testing::Test {
 protected:
  using Word = typename FloatFormat<T>::Word;
  static constexpr int kBins = sizeof(T) == 8 ? 3 : 2;

  // Finite, of exponents up to `spread` powers of two below what the folds know the means of.
  Word RandomWord(int spread) {
    using Format = FloatFormat<T>;
    const int field = 2 * Format::kBias - (sizeof(Word) == 8 ? 100 : 14) -
                      static_cast<int>(random_() % static_cast<unsigned>(spread + 1));
    const auto sign = static_cast<Word>(static_cast<Word>(random_() & 1) << (8 * sizeof(Word) - 1));
    const auto fraction = static_cast<Word>(random_() & ((std::uint64_t{1} << Format::kFraction) - 1));
    return static_cast<Word>(sign | static_cast<Word>(static_cast<Word>(field < 0 ? 0 : field) << Format::kFraction) |
                             fraction);
  }

  // Adds an element's parts to bins, as the table has them; false: it is listed.
  template <int kParts>
  static bool Add(Word word, const KeyUnits& units, KeyRecord* record) {
    std::int64_t part[kParts];
    const KeyTerm term = TermOf<T>(word, units, part);
    if (term == KeyTerm::kNegativeZero) record->flags |= kKeyNegativeZero;
    if (term == KeyTerm::kNegativeZero) return true;
    if (term == KeyTerm::kLow) {
      record->bins[2] += static_cast<std::uint64_t>(part[0]);
    } else if (kParts == 1) {
      record->bins[0] += static_cast<std::uint32_t>(part[0]);
      record->bins[1] += static_cast<std::uint64_t>(part[0] >> 32);
    } else {
      for (int b = 0; b < kParts; ++b) record->bins[b] += static_cast<std::uint64_t>(part[b]);
    }
    return term != KeyTerm::kListed;
  }

  // How many of some elements are listed; the answers from the others are right.
  int Listed(bool shared, int spread, int room) {
    constexpr std::int64_t kRows = 3000;
    std::vector<Word> words;
    Word largest = 0;
    for (std::int64_t i = 0; i < kRows; ++i) {
      words.push_back(RandomWord(spread));
      largest = std::max(largest, static_cast<Word>(words.back() & ~(Word{1} << (8 * sizeof(Word) - 1))));
    }
    KeyAnswersLaunch launch;
    const KeyBins bins = KeyBinsFor<T>(kRows, shared);
    launch.table.bins_used = bins.count;
    std::copy(std::begin(bins.place), std::end(bins.place), launch.table.place);
    KeyUnits units = KeyUnitsFor<T>(largest, room, shared ? 1 : kBins, shared ? KeyBinBits(1, kRows) : bins.place[1]);
    if (shared) units.low = bins.place[0];
    launch.unit = KeyUnitOf<T>(units);
    KeyRecord record;
    ExactSums exact;
    std::int64_t count = 0;
    for (const Word word : words) {
      if (!(shared ? Add<1>(word, units, &record) : Add<kBins>(word, units, &record))) continue;
      reduced::Add(ToDouble(BitsAs<T>(word)), SetOf(Accumulator::kSum), false, &exact);
      ++count;
    }
    QuickFloatSum<T> fold;
    FoldOf(record, launch, &fold);
    double answers[2] = {};
    const QuickAnswer to[] = {{Op::kSum, reinterpret_cast<std::byte*>(&answers[0])},
                              {Op::kMean, reinterpret_cast<std::byte*>(&answers[1])}};
    QuickElements of = launch.elements;
    of.count = count;
    EXPECT_TRUE(count == 0 || fold.Finish(to, 2, 0, of));
    const ReduceSpec spec;
    for (const int i : {0, 1}) {
      if (count == 0) continue;
      EXPECT_EQ(answers[i], ExactAnswer(spec, to[i].op, count, exact)) << RowOf(to[i].op).name;
    }
    return static_cast<int>(kRows - count);
  }

  std::mt19937_64 random_{5};
};
using Floats = ::testing::Types<Half, BFloat16, float, double>;
TYPED_TEST_SUITE(KeyEntries, Floats);

TYPED_TEST(KeyEntries, NothingIsLost) {
  constexpr int kAll = 2 * FloatFormat<TypeParam>::kBias;
  for (const int spread : {0, 3, 15, 30, 45, kAll}) {
    for (const int room : {0, kSampledRoom}) {
      SCOPED_TRACE(::testing::Message() << spread << " powers of two, room for " << room);
      const int listed = this->Listed(/*shared=*/false, spread, room);
      if (spread <= 40) {
        EXPECT_EQ(listed, 0);
      }
      if (spread == kAll && kAll > 100) {
        EXPECT_GT(listed, 0);
      }
      if (sizeof(TypeParam) == 8) continue;
      const int listed_in_shared = this->Listed(/*shared=*/true, spread, room);
      if (spread <= 30) {
        EXPECT_EQ(listed_in_shared, 0);
      }
    }
  }
}

// Entries of extrema have the order of the elements, and rows decide between equal ones.
TEST(KeyExtrema, EntriesHaveTheOrderOfElements) {
  QuickElements of;
  of.fold = 0x7fffffff;
  of.infinity = FloatFormat<float>::kInfinity;
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> ascending = {-infinity, -3, -1e-45F, -0.0F, 0.0F, 1e-45F, 2, infinity};
  const auto entry = [&](float x, bool highest, std::uint32_t row) {
    const auto key = QuickExtremum<4>::KeyOf(BitsAs<std::uint32_t>(x), of);
    return EntryOf<4>(key, IsNanKey<4>(key, of), highest, row);
  };
  for (std::size_t i = 0; i + 1 < ascending.size(); ++i) {
    EXPECT_LT(entry(ascending[i], true, 7), entry(ascending[i + 1], true, 9));
    EXPECT_GT(entry(ascending[i], false, 9), entry(ascending[i + 1], false, 7));
    EXPECT_GT(entry(ascending[i], true, 7), entry(ascending[i], true, 8));
    EXPECT_GT(entry(ascending[i], false, 7), entry(ascending[i], false, 8));
  }
  for (const float nan : {std::nanf(""), -std::nanf("")}) {
    EXPECT_GT(entry(nan, true, 100), entry(infinity, true, 0));
    EXPECT_GT(entry(nan, false, 100), entry(-infinity, false, 0));
    EXPECT_GT(entry(nan, false, 0), entry(nan, false, 100));
  }
}

}  // namespace
}  // namespace reduced

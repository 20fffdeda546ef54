// Fingerprints: the polynomial that reduced.proto defines, by every vector target; of parts of any shape, which merge
// to that of the whole; and what must change it.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/algebra/polynomial.h"
#include "kernels/algebra/state.h"
#include "kernels/cpu/tiles.h"
#include "kernels/folds/fingerprint_tiles.h"
#include "kernels/folds/fold.h"
#include "tests/support/data.h"
#include "tests/unit/kernels/only_target.h"

namespace reduced {
namespace {

using test::Bytes;
using test::OnlyTarget;

const FoldLimits& UnlimitedMemory() {
  static const FoldLimits& limits = *new FoldLimits{.take = [](std::int64_t) { return absl::OkStatus(); },
                                                    .give = [](std::int64_t) {},
                                                    .why_stop = [] { return absl::OkStatus(); }};
  return limits;
}

std::unique_ptr<DistributionFold> FingerprintFoldOf(DType dtype, OpCall call = Op::kFingerprint) {
  return MakeDistributionFold(call, {.dtype = dtype, .ops = {call}}, UnlimitedMemory());
}

Residues WordsOf(DistributionFold& fold) {
  Residues answer{};
  EXPECT_EQ(fold.Finish([](std::int64_t rank) { return rank; }, reinterpret_cast<std::byte*>(answer.data())),
            absl::OkStatus());
  return answer;
}

Residues FingerprintOf(DType dtype, const Bytes& array) {
  const auto fold = FingerprintFoldOf(dtype);
  const std::int64_t count = std::ssize(array) / RowOf(dtype).bytes;
  EXPECT_EQ(fold->Begin(count), absl::OkStatus());
  EXPECT_EQ(fold->Add(array.data(), nullptr, 0, count), absl::OkStatus());
  return WordsOf(*fold);
}

Bytes RandomBytes(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(size);
  for (std::byte& each : bytes) each = static_cast<std::byte>(random());
  return bytes;
}

TEST(Polynomial, PowersAndProducts) {
  EXPECT_EQ(Residue(kPrime), 0U);
  EXPECT_EQ(Residue(~std::uint64_t{0}), 7U);
  EXPECT_EQ(ResidueOfProduct(kPrime - 1, kPrime - 1), 1U);
  // Each base generates the group: no power with a prime factor of p - 1 less is 1.
  for (const std::uint64_t factor : {2, 3, 5, 7, 11, 13, 31, 41, 61, 151, 331, 1321}) {
    for (const std::uint64_t power : PowersOfBases((kPrime - 1) / factor)) EXPECT_NE(power, 1U) << factor;
  }
  EXPECT_EQ(PowersOfBases(kPrime - 1), (Residues{1, 1}));
  EXPECT_EQ(PowersOfBases(1), kPolynomialBases);
}

// As Python's integers have it: (s + a * sum((w + 1) * pow(a, j, p) for j, w in enumerate(words))) % p.
TEST(Fingerprint, IsThePolynomialOfTheProto) {
  struct Known {
    DType dtype;
    std::vector<std::uint8_t> bytes;
    Residues answer;
  };
  const Known table[] = {
      {DType::kU8, {}, {0x0000000000000001, 0x0000000000000001}},
      {DType::kF64, {}, {0x0000000000000008, 0x0000000000000008}},
      {DType::kI8, {0}, {0x0d413cccfe779922, 0x176cf5d0b09954e8}},
      {DType::kBool, {1, 0, 2}, {0x12461907eabd8591, 0x1ab9b9dafea3d9e6}},
      {DType::kF16,
       {40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59},
       {0x0c34d2295fde27ac, 0x143cb25b1e5cae77}},
      {DType::kF32, {0, 0, 0, 128}, {0x0c7d095db37c8c59, 0x0fb9a0448e4d2c2e}},
      {DType::kU32,
       {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
        255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
        255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
        255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255},
       {0x09a78e7446843822, 0x13609d3ead6eb406}},
      {DType::kF64, {255, 255, 255, 255, 255, 255, 255, 31}, {0x056281a1479e7d2b, 0x0b7bccbc00f510e0}},
      {DType::kI64, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {0x15d63f7f5c0f0710, 0x0add6ff28351a33e}},
      {DType::kBF16,
       {161, 67,  154, 98,  223, 84,  79,  55,  252, 112, 111, 79,  241, 111, 14,  37,  216, 32,
        67,  255, 83,  65,  28,  149, 173, 172, 48,  122, 139, 135, 7,   144, 70,  180, 223, 89,
        102, 205, 141, 13,  187, 49,  147, 149, 254, 59,  58,  115, 75,  168, 241, 163, 220, 56,
        5,   188, 216, 214, 162, 0,   207, 240, 219, 132, 79,  188, 98,  238, 114, 84},
       {0x0e85c5a2d53519b4, 0x047bd9dacbe1683f}},
  };
  for (const auto& [dtype, bytes, answer] : table) {
    Bytes array(bytes.size());
    std::memcpy(array.data(), bytes.data(), bytes.size());
    EXPECT_EQ(FingerprintOf(dtype, array), answer) << RowOf(dtype).name << ", " << bytes.size() << " bytes";
  }
}

TEST(Fingerprint, EveryTargetAddsTheSamePolynomial) {
  const Bytes bytes = RandomBytes(70'001, 1);
  for (const std::int64_t target : VectorTargets()) {
    const OnlyTarget only(target);
    for (const int width : {1, 2, 4}) {
      for (const std::int64_t count : {0, 1, 3, 8, 15, 16, 17, 31, 33, 64, 100, 1000, 2047, 2048, 2049, 4097, 17'000}) {
        Residues sum{};
        for (std::int64_t i = count - 1; i >= 0; --i) {
          std::uint64_t word = 0;
          std::memcpy(&word, bytes.data() + 1 + i * width, static_cast<std::size_t>(width));
          sum = MultipliedAndAdded(sum, kPolynomialBases, {word, word});
        }
        EXPECT_EQ(PolynomialOfWords(bytes.data() + 1, width, count), sum) << count << " words of " << width;
      }
    }
    const Bytes ones(1 << 20, std::byte{0xff});  // the largest sums
    for (const int width : {1, 2, 4}) {
      const std::int64_t count = (1 << 20) / width;
      Residues sum{};
      const std::uint64_t word = (std::uint64_t{1} << (8 * width)) - 1;
      for (std::int64_t i = 0; i < count; ++i) sum = MultipliedAndAdded(sum, kPolynomialBases, {word, word});
      EXPECT_EQ(PolynomialOfWords(ones.data(), width, count), sum) << width;
    }
  }
}

// One bit, two elements that changed places, a zero more, another width: each changes it; the dtype does not.
TEST(Fingerprint, SeesEachChange) {
  for (const DTypeRow& dtype : kDTypes) {
    Bytes array = RandomBytes(static_cast<std::size_t>(100 * dtype.bytes), 2);
    const Residues before = FingerprintOf(dtype.dtype, array);
    for (std::size_t bit = 0; bit < 8 * array.size(); ++bit) {
      array[bit / 8] ^= std::byte{1} << (bit % 8);
      const Residues after = FingerprintOf(dtype.dtype, array);
      EXPECT_NE(after[0], before[0]) << dtype.name << ", bit " << bit;
      EXPECT_NE(after[1], before[1]) << dtype.name << ", bit " << bit;
      array[bit / 8] ^= std::byte{1} << (bit % 8);
    }
    Bytes swapped = array;
    std::swap_ranges(swapped.begin(), swapped.begin() + dtype.bytes, swapped.end() - dtype.bytes);
    EXPECT_EQ(FingerprintOf(dtype.dtype, swapped) == before, swapped == array) << dtype.name;
    Bytes more = array;
    more.resize(array.size() + static_cast<std::size_t>(dtype.bytes));
    EXPECT_NE(FingerprintOf(dtype.dtype, more), before) << dtype.name;
    for (const DTypeRow& other : kDTypes) {
      const bool same = FingerprintOf(other.dtype, Bytes(16)) == FingerprintOf(dtype.dtype, Bytes(16));
      EXPECT_EQ(same, other.bytes == dtype.bytes) << dtype.name << ", " << other.name;
      const bool same_of_none = FingerprintOf(other.dtype, {}) == FingerprintOf(dtype.dtype, {});
      EXPECT_EQ(same_of_none, other.bytes == dtype.bytes) << dtype.name << ", " << other.name;
    }
  }
  // A multiple of p is no zero.
  Bytes zero(8), prime(8);
  std::memcpy(prime.data(), &kPrime, sizeof(kPrime));
  EXPECT_NE(FingerprintOf(DType::kF64, zero), FingerprintOf(DType::kF64, prime));
}

// The states of a tensor that is cut along any dimensions merge in any order, by element or by block.
TEST(Fingerprint, PartsOfAnyShapeMerge) {
  const std::vector<std::int64_t> shape = {5, 7, 9};
  std::mt19937_64 random(3);
  for (const DType dtype : {DType::kU8, DType::kBF16, DType::kF32, DType::kI64}) {
    const std::int64_t width = RowOf(dtype).bytes;
    const Bytes array = RandomBytes(static_cast<std::size_t>(5 * 7 * 9 * width), 4);
    const Residues whole = FingerprintOf(dtype, array);
    for (int round = 0; round < 20; ++round) {
      std::vector<std::vector<std::int64_t>> cuts;
      for (const std::int64_t size : shape) {
        auto& of_dimension = cuts.emplace_back(std::vector<std::int64_t>{0, size});
        for (int i = 0; i < round % 4; ++i) {
          of_dimension.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(size + 1)));
        }
        std::sort(of_dimension.begin(), of_dimension.end());
      }
      std::vector<State> parts;
      for (std::size_t i = 0; i + 1 < cuts[0].size(); ++i) {
        for (std::size_t j = 0; j + 1 < cuts[1].size(); ++j) {
          for (std::size_t k = 0; k + 1 < cuts[2].size(); ++k) {
            const std::vector<std::int64_t> offset = {cuts[0][i], cuts[1][j], cuts[2][k]};
            const std::vector<std::int64_t> part = {cuts[0][i + 1] - offset[0], cuts[1][j + 1] - offset[1],
                                                    cuts[2][k + 1] - offset[2]};
            Bytes elements;
            for (std::int64_t x = 0; x < part[0]; ++x) {
              for (std::int64_t y = 0; y < part[1]; ++y) {
                const std::int64_t at = ((offset[0] + x) * 7 + offset[1] + y) * 9 + offset[2];
                elements.insert(elements.end(), array.begin() + at * width, array.begin() + (at + part[2]) * width);
              }
            }
            const std::int64_t count = std::ssize(elements) / width, cut = count / 3;
            const OpCall call(Op::kFingerprint, {.shard = Shard{.whole = shape, .offset = offset, .part = part}});
            // Two stretches, the second of which knows where it begins.
            for (const auto& [begin, end] : {std::pair(std::int64_t{0}, cut), {cut, count}}) {
              const auto fold = FingerprintFoldOf(dtype, StartingAt(begin, call));
              ASSERT_EQ(fold->Begin(end - begin), absl::OkStatus());
              ASSERT_EQ(fold->Add(elements.data() + begin * width, nullptr, 0, end - begin), absl::OkStatus());
              State& state = parts.emplace_back();
              state.entries.push_back(NoEntries(call, dtype));
              ASSERT_EQ(fold->Save([](std::int64_t rank) { return rank; }, &state.entries[0]), absl::OkStatus());
              Shift(begin, &state);  // moves nothing
            }
          }
        }
      }
      std::shuffle(parts.begin(), parts.end(), random);
      State merged;
      for (const State& part : parts) Combine(part, &merged);
      const auto fold = FingerprintFoldOf(dtype);
      ASSERT_EQ(fold->Load(merged.entries[0]), absl::OkStatus());
      EXPECT_EQ(WordsOf(*fold), whole) << RowOf(dtype).name << ", " << parts.size() << " parts";
    }
  }
}

// Elements at positions, in runs and alone, are where a mask leaves them.
TEST(Fingerprint, PositionsCount) {
  std::mt19937_64 random(5);
  for (const DType dtype : {DType::kU8, DType::kI16, DType::kF32, DType::kF64}) {
    const std::int64_t width = RowOf(dtype).bytes, all = 3000;
    const Bytes array = RandomBytes(static_cast<std::size_t>(all * width), 6);
    for (const std::uint64_t sparse : {2, 40, 1500}) {
      Bytes kept;
      std::vector<std::int64_t> positions;
      State one_by_one;
      for (std::int64_t i = 0; i < all; ++i) {
        if (sparse == 40 ? random() % 40 == 0 : random() % sparse != 0) continue;
        positions.push_back(i);
        kept.insert(kept.end(), array.begin() + i * width, array.begin() + (i + 1) * width);
        const auto fold = FingerprintFoldOf(dtype);
        ASSERT_EQ(fold->Begin(1), absl::OkStatus());
        ASSERT_EQ(fold->Add(array.data() + i * width, nullptr, 0, 1), absl::OkStatus());
        State state;
        state.entries.push_back(NoEntries(Op::kFingerprint, dtype));
        ASSERT_EQ(fold->Save([](std::int64_t rank) { return rank; }, &state.entries[0]), absl::OkStatus());
        Shift(i, &state);
        Combine(state, &one_by_one);
      }
      const auto fold = FingerprintFoldOf(dtype), loaded = FingerprintFoldOf(dtype);
      const auto count = std::ssize(positions);
      ASSERT_EQ(fold->Begin(count), absl::OkStatus());
      ASSERT_EQ(fold->Add(kept.data(), positions.data(), 0, count), absl::OkStatus());
      ASSERT_EQ(loaded->Load(one_by_one.entries[0]), absl::OkStatus());
      EXPECT_EQ(WordsOf(*fold), WordsOf(*loaded)) << RowOf(dtype).name << ", " << sparse;
    }
  }
}

// Of more than 2^32 elements, by a state that lies far out.
TEST(Fingerprint, LargePositions) {
  const OpCall call(Op::kFingerprint, {.shard = Shard{.whole = {std::int64_t{1} << 40, 1 << 10},
                                                      .offset = {(std::int64_t{1} << 40) - 2, 3},
                                                      .part = {2, 4}}});
  const Bytes array = RandomBytes(std::size_t{8} * 8, 7);
  const auto fold = FingerprintFoldOf(DType::kF64, call);
  ASSERT_EQ(fold->Begin(8), absl::OkStatus());
  ASSERT_EQ(fold->Add(array.data(), nullptr, 0, 8), absl::OkStatus());
  Residues sum{8, 8};
  for (std::uint64_t i = 0; i < 8; ++i) {
    const std::uint64_t at = ((std::uint64_t{1} << 40) - 2 + i / 4) * 1024 + 3 + i % 4;
    for (std::uint64_t half = 0; half < 2; ++half) {
      std::uint64_t word = 0;
      std::memcpy(&word, array.data() + 8 * i + 4 * half, 4);
      ++word;
      sum = MultipliedAndAdded({word, word}, PowersOfBases(2 * at + half + 1), sum);
    }
  }
  EXPECT_EQ(WordsOf(*fold), sum);
}

}  // namespace
}  // namespace reduced

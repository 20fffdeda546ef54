// The fold of fingerprint: for each base a the sum of (w_j + 1) a^j modulo p over the words that are there, j being the
// position of a word in the output or, of a part of a larger array, in that (OpParameters::shard). A word is an element
// of up to 4 bytes, as an unsigned number; elements of 8 bytes are two words, the lower one first. Adding 1 tells a
// zero from a word that is not there. The answer is, for each base, the bytes of an element plus a times the sum.
#include "kernels/folds/fingerprint.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <span>

#include "kernels/folds/elements.h"
#include "kernels/folds/fingerprint_tiles.h"
#include "kernels/folds/folds.h"

namespace reduced {
namespace {

// 1 / (a - 1), as the power p - 2, for each base.
Residues InverseOfBasesMinusOne() {
  Residues inverse{}, square{};
  inverse.fill(1);
  for (std::size_t b = 0; b < square.size(); ++b) square[b] = kPolynomialBases[b] - 1;
  for (std::uint64_t rest = kPrime - 2; rest != 0; rest >>= 1) {
    if ((rest & 1) != 0) inverse = MultipliedAndAdded(inverse, square, {});
    square = MultipliedAndAdded(square, square, {});
  }
  return inverse;
}

}  // namespace

// (a^count - 1) / (a - 1)
Residues SumOfPowers(std::uint64_t count) {
  static const Residues inverse = InverseOfBasesMinusOne();
  Residues power = PowersOfBases(count);
  for (std::uint64_t& each : power) each += kPrime - 1;
  return MultipliedAndAdded(power, inverse, {});
}

PlaceOfPart PlaceOf(const Shard& shard) {
  PlaceOfPart place{.layout = {.elements = std::accumulate(shard.part.begin(), shard.part.end(), std::int64_t{1},
                                                           std::multiplies<>())}};
  std::vector<Dimension>& dimensions = place.layout.reduced;
  std::int64_t stride = 1;
  for (std::size_t i = shard.whole.size(); i-- > 0; stride *= shard.whole[i]) {
    if (!shard.offset.empty()) place.begin += shard.offset[i] * stride;
    const std::int64_t size = shard.part[i];
    if (size == 1) continue;
    if (!dimensions.empty() && dimensions.front().size * dimensions.front().stride == stride) {
      dimensions.front().size *= size;
    } else {
      dimensions.insert(dimensions.begin(), {size, stride});
    }
  }
  return place;
}

namespace {

class FingerprintFold final : public FoldOf<FingerprintFold> {
 public:
  FingerprintFold(const OpCall& call, const ReduceSpec& spec, const FoldLimits& limits)
      : FoldOf(call, spec, limits),
        bytes_(RowOf(spec.dtype).bytes),
        words_(WordsOfElement(spec.dtype)),
        is_part_(call.given().shard.has_value()),
        first_(is_part_ ? call.given().shard->first : 0) {
    if (is_part_ && !call.given().shard->part.empty()) place_ = PlaceOf(*call.given().shard);
  }

  absl::Status Begin(std::int64_t count) override {
    count_ = count;
    sum_ = {};
    return absl::OkStatus();
  }
  // `positions`: of each element, as indexes count them; null: the ranks.
  absl::Status Add(const void* elements, const void* positions, std::int64_t first, std::int64_t count) override {
    const auto* data = static_cast<const std::byte*>(elements);
    const auto position = [&](std::int64_t i) {
      return positions == nullptr ? first + i : ElementAt<std::int64_t>(positions, i);
    };
    const std::int64_t neighbours = place_.layout.run();  // in the whole array
    for (std::int64_t i = 0; i < count;) {
      std::int64_t at = position(i), end = count;
      if (positions != nullptr) {
        for (end = i + 1; end < count && position(end) == at + (end - i);) ++end;
      }
      if (is_part_) {
        at += first_;
        end = std::min(end, i + neighbours - at % neighbours);
        at = place_.begin + place_.layout.At(at);
      }
      AddRun(data + i * bytes_, at, end - i);
      i = end;
    }
    return absl::OkStatus();
  }

  absl::Status Merge(DistributionFold& part) override {
    AddTerms(static_cast<FingerprintFold&>(part).sum_);
    return absl::OkStatus();
  }

  absl::Status Finish(IndexOf /*index_of*/, std::byte* answers) override {
    const auto bytes = static_cast<std::uint64_t>(bytes_);
    const Residues answer = MultipliedAndAdded(sum_, kPolynomialBases, {bytes, bytes});
    for (std::size_t b = 0; b < answer.size(); ++b) StoreAt(answer[b], static_cast<std::int64_t>(b), answers);
    return absl::OkStatus();
  }

  absl::Status Save(IndexOf /*index_of*/, Entries* to) override {
    if (count_ == 0) return absl::OkStatus();
    for (std::size_t b = 0; b < sum_.size(); ++b) to->Add(b, sum_[b]);
    return absl::OkStatus();
  }
  absl::Status Load(const Entries& from) override {
    sum_ = {};
    for (std::size_t i = 0; i < from.keys.size(); ++i) sum_[from.keys[i]] = from.values[i];
    return absl::OkStatus();
  }

 private:
  void AddTerms(const Residues& more) {
    for (std::size_t b = 0; b < sum_.size(); ++b) sum_[b] = Residue(sum_[b] + more[b]);
  }

  // Adds elements that are neighbours.
  void AddRun(const std::byte* elements, std::int64_t position, std::int64_t count) {
    constexpr std::int64_t kShort = 16;
    const int bytes = bytes_ / words_;
    const std::int64_t words = count * words_;
    // Of near elements the power is a product of known ones.
    const std::uint64_t exponent = static_cast<std::uint64_t>(position) * static_cast<std::uint64_t>(words_);
    Residues power = PowersOfBases(exponent < next_ ? exponent : exponent - next_);
    if (exponent >= next_) power = MultipliedAndAdded(power, power_of_next_, {});
    if (words <= kShort) {
      for (std::int64_t i = 0; i < words; ++i) {
        std::uint64_t word = 0;  // little-endian, as elements are
        std::memcpy(&word, elements + i * bytes, static_cast<std::size_t>(bytes));
        ++word;
        sum_ = MultipliedAndAdded({word, word}, power, sum_);
        power = MultipliedAndAdded(power, kPolynomialBases, {});
      }
      next_ = exponent + static_cast<std::uint64_t>(words);
      power_of_next_ = power;
      return;
    }
    Residues run = PolynomialOfWords(elements, bytes, words);
    const Residues ones = SumOfPowers(static_cast<std::uint64_t>(words));
    for (std::size_t b = 0; b < run.size(); ++b) run[b] = Residue(run[b] + ones[b]);
    sum_ = MultipliedAndAdded(run, power, sum_);
  }

  const int bytes_, words_;  // of an element
  const bool is_part_;
  const std::int64_t first_;
  PlaceOfPart place_{};
  std::int64_t count_ = 0;
  Residues sum_{};
  std::uint64_t next_ = 0;  // a word's position
  Residues power_of_next_ = PowersOfBases(0);
};

}  // namespace

std::unique_ptr<DistributionFold> MakeFingerprintFold(const OpCall& call, const ReduceSpec& spec,
                                                      const FoldLimits& limits) {
  return std::make_unique<FingerprintFold>(call, spec, limits);
}

}  // namespace reduced

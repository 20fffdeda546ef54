// The fold of cov_matrix and corr_matrix: an output is rows of neighbouring elements, and each pair of columns has
// exact sums as cov and corr of two arrays have them. A tile of rows is transposed once, and then added to every pair.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "kernels/folds/elements.h"
#include "kernels/folds/fold_array.h"
#include "kernels/folds/folds.h"
#include "kernels/folds/pair_sums.h"
#include "kernels/folds/term_tiles.h"

namespace reduced {
namespace {

constexpr std::int64_t kTileRows = kTermTileElements;
constexpr std::int64_t kTileBytes = kTileRows * static_cast<std::int64_t>(sizeof(double));
constexpr std::int64_t kTileAlignment = 64;

// Writes column c of rows of elements of Word's size to `to` + c kTileRows.
template <class Word>
void Transpose(const std::byte* rows, std::int64_t count, std::int64_t columns, std::byte* to) {
  for (std::int64_t row = 0; row < count; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      StoreAt(ElementAt<Word>(rows, row * columns + column), column * kTileRows + row, to);
    }
  }
}

class MatrixFold final : public FoldOf<MatrixFold> {
 public:
  MatrixFold(const OpCall& call, const ReduceSpec& spec, const FoldLimits& limits)
      : FoldOf(call, spec, limits),
        columns_(call.given().columns),
        width_(RowOf(spec.dtype).bytes),
        lease_(limits),
        elements_(limits),
        doubles_(limits),
        magnitudes_(static_cast<std::size_t>(columns_)),
        finite_(static_cast<std::size_t>(columns_)) {}

  absl::Status Begin(std::int64_t count) override {
    count_ = count;
    fragments_.clear();
    for (TermSums& pair : pairs_) pair.Clear();
    if (!pairs_.empty()) return absl::OkStatus();
    constexpr std::int64_t kPairBytes = 5 << 10;
    absl::Status status = lease_.Hold(PairsOfColumns(columns_) * kPairBytes);
    if (status.ok()) status = elements_.Resize(columns_ * kTileRows * width_);
    if (status.ok()) status = doubles_.Resize(columns_ * kTileBytes + kTileAlignment);
    if (!status.ok()) return status;
    pairs_.reserve(static_cast<std::size_t>(PairsOfColumns(columns_)));
    while (std::ssize(pairs_) < PairsOfColumns(columns_)) pairs_.emplace_back(call_, spec_);
    return absl::OkStatus();
  }

  absl::Status Add(const void* elements, const void* /*others*/, std::int64_t first, std::int64_t count) override {
    const auto* at = static_cast<const std::byte*>(elements);
    while (count > 0) {
      const std::int64_t column = first % columns_;
      const bool whole = column == 0 && count >= columns_;
      const std::int64_t number = whole ? std::min(count / columns_, kTileRows) * columns_ : 1;
      if (whole) {
        if (absl::Status why = limits_.why_stop(); !why.ok()) return why;
        AddRows(at, number / columns_);
      } else {
        AddToFragment(first / columns_, column, at);
      }
      at += number * width_;
      first += number;
      count -= number;
    }
    return absl::OkStatus();
  }

  absl::Status Merge(DistributionFold& part) override {
    auto& other = static_cast<MatrixFold&>(part);
    for (std::size_t i = 0; i < pairs_.size(); ++i) pairs_[i].Merge(other.pairs_[i]);
    for (const auto& [row, fragment] : other.fragments_) {
      for (std::int64_t column = 0; column < columns_; ++column) {
        if ((fragment.known >> column & 1) == 0) continue;
        AddToFragment(row, column, fragment.elements.data() + column * width_);
      }
    }
    return absl::OkStatus();
  }

  absl::Status Finish(IndexOf /*index_of*/, std::byte* answers) override {
    if (absl::Status status = CheckRows(); !status.ok()) return status;
    auto pair = pairs_.begin();
    for (std::int64_t i = 0; i < columns_; ++i) {
      for (std::int64_t j = i; j < columns_; ++j) {
        const double answer = PairSumsAnswer(call_.op, *pair++, spec_.ddof);
        StoreAt(answer, i * columns_ + j, answers);
        StoreAt(answer, j * columns_ + i, answers);
      }
    }
    return absl::OkStatus();
  }

  absl::Status Save(IndexOf /*index_of*/, Entries* to) override {
    if (absl::Status status = CheckRows(); !status.ok()) return status;
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      Entries entries;
      pairs_[i].Save(&entries);
      for (std::size_t k = 0; k < entries.keys.size(); ++k) to->Add(entries.keys[k] + FirstKey(i), entries.values[k]);
    }
    return absl::OkStatus();
  }

  absl::Status Load(const Entries& from) override {
    if (absl::Status status = Begin(0); !status.ok()) return status;
    std::size_t at = 0;
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      Entries entries;
      for (; at < from.keys.size() && from.keys[at] < FirstKey(i + 1); ++at) {
        entries.Add(from.keys[at] - FirstKey(i), from.values[at]);
      }
      if (absl::Status status = pairs_[i].Load(entries); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  // The elements of a row of which others are in other parts.
  struct Fragment {
    std::vector<std::byte> elements;
    std::uint64_t known = 0;  // bit c: that of column c
  };
  static_assert(kMaxColumns <= 64);

  std::uint64_t FirstKey(std::size_t pair) const {
    return IntegerKey(pair * (kTermCounts + TermsOf(call_.op).size()), 0);
  }

  absl::Status CheckRows() const {
    if (count_ % columns_ == 0 && fragments_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrFormat("op %s: got %d elements; allowed: whole rows of %d", RowOf(call_.op).name, count_, columns_));
  }

  void AddToFragment(std::int64_t row, std::int64_t column, const std::byte* element) {
    Fragment& fragment = fragments_[row];
    fragment.elements.resize(static_cast<std::size_t>(columns_ * width_));
    std::memcpy(fragment.elements.data() + column * width_, element, static_cast<std::size_t>(width_));
    fragment.known |= std::uint64_t{1} << column;
    if (std::popcount(fragment.known) < columns_) return;
    AddRows(fragment.elements.data(), 1);
    fragments_.erase(row);
  }

  void AddRows(const std::byte* rows, std::int64_t count) {
    std::byte* const elements = elements_.data();
    VisitDType(spec_.dtype, [&]<class T>(std::type_identity<T>) { Transpose<T>(rows, count, columns_, elements); });
    const std::int64_t column_bytes = kTileRows * width_;
    const Magnitudes of_dtype = MagnitudesOf(spec_.dtype);
    const auto begin = reinterpret_cast<std::uintptr_t>(doubles_.data());
    auto* const doubles = reinterpret_cast<double*>(doubles_.data() + (kTileAlignment - begin % kTileAlignment));
    for (std::int64_t i = 0; i < columns_; ++i) {
      const auto column = static_cast<std::size_t>(i);
      magnitudes_[column] = {};
      finite_[column] = LoadTermTileOf(spec_.dtype, elements + i * column_bytes, count, of_dtype,
                                       doubles + i * kTileRows, &magnitudes_[column]);
    }
    auto pair = pairs_.begin();
    for (std::int64_t i = 0; i < columns_; ++i) {
      for (std::int64_t j = i; j < columns_; ++j, ++pair) {
        const auto x = static_cast<std::size_t>(i), y = static_cast<std::size_t>(j);
        if (finite_[x] && finite_[y]) {
          pair->Add({.x = doubles + i * kTileRows,
                     .y = doubles + j * kTileRows,
                     .count = count,
                     .of_x = magnitudes_[x],
                     .of_y = magnitudes_[y]});
        } else {
          pair->Add(elements + i * column_bytes, elements + j * column_bytes, count);
        }
      }
    }
  }

  const std::int64_t columns_;
  const std::int64_t width_;  // bytes of an element
  std::int64_t count_ = 0;
  FoldLease lease_;  // of pairs_
  std::vector<TermSums> pairs_;
  std::map<std::int64_t, Fragment> fragments_;  // by row; two of each block that was added at most
  // Scratch memory of AddRows: a tile, column by column, as elements and as doubles; the magnitudes of each column, and
  // whether all of its elements are finite doubles.
  FoldArray<std::byte> elements_;
  FoldArray<std::byte> doubles_;
  std::vector<Magnitudes> magnitudes_;
  std::vector<bool> finite_;
};

}  // namespace

std::unique_ptr<DistributionFold> MakeMatrixFold(const OpCall& call, const ReduceSpec& spec, const FoldLimits& limits) {
  return std::make_unique<MatrixFold>(call, spec, limits);
}

}  // namespace reduced

// The fake device's kernels of ops about distributions.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cuda/column_products.h"
#include "kernels/cuda/compare.h"
#include "kernels/cuda/count_bytes.h"
#include "kernels/cuda/count_words.h"
#include "kernels/cuda/fingerprint.h"
#include "kernels/cuda/histogram.h"
#include "kernels/cuda/pair_slices.h"
#include "kernels/cuda/pair_sums.h"
#include "kernels/cuda/selection.h"
#include "kernels/cuda/sketch.h"
#include "kernels/folds/fingerprint_tiles.h"
#include "kernels/folds/histogram_bins.h"
#include "kernels/folds/sketch.h"
#include "tests/fake_cuda/fake_cuda.h"

namespace reduced {
namespace {

template <class Kernel>
cudaError_t LaunchDistribution(Kernel kernel) {
  bool runs = false;
  const cudaError_t error = fake_cuda::BeginLaunch(&runs);
  if (runs) kernel();
  return error;
}

// Calls visit(key, index) for each element that has a key.
template <class Visit>
void ForEachKey(const KeyFormat& format, const void* data, std::int64_t count, const Visit& visit,
                std::int64_t stretch = 1) {
  const auto each = [&]<class Word>(Word) {
    for (std::int64_t i = 0; i < count; ++i) {
      if (i * static_cast<std::int64_t>(sizeof(Word)) / 128 % stretch != 0) continue;
      Word raw;
      std::memcpy(&raw, static_cast<const std::byte*>(data) + i * static_cast<std::int64_t>(sizeof(Word)),
                  sizeof(Word));
      bool counts = true;
      const Word key = KeyOf(raw, format, &counts);
      if (counts) visit(key, i);
    }
  };
  if (format.bytes == 1) each(std::uint8_t{});
  if (format.bytes == 2) each(std::uint16_t{});
  if (format.bytes == 4) each(std::uint32_t{});
  if (format.bytes == 8) each(std::uint64_t{});
}

// Gathers a key, if there is room for it.
void Append(const KeyFormat& format, std::uint64_t key, void* gather, std::int64_t room, unsigned long long* gathered) {
  const auto at = static_cast<std::int64_t>((*gathered)++), bytes = static_cast<std::int64_t>(format.bytes);
  if (at < room) std::memcpy(static_cast<std::byte*>(gather) + at * bytes, &key, static_cast<std::size_t>(bytes));
}

// Adds a x b, or a if b is 1, to digits of units 2^unit, 32 bits of a factor at a time.
void AddToDigits(double a, double b, bool negate, int unit, unsigned long long* digits) {
  int a_exponent = 0, b_exponent = 0;
  const double a_mantissa = std::ldexp(std::frexp(a, &a_exponent), 53),
               b_mantissa = std::ldexp(std::frexp(b, &b_exponent), 53);
  auto product = static_cast<Int128>(a_mantissa) * static_cast<Int128>(b_mantissa);
  int exponent = a_exponent + b_exponent - 106 - unit;
  for (; product != 0 && product % 2 == 0; product /= 2) ++exponent;
  if (negate) product = -product;
  const int shift = exponent % 32;
  for (int i = exponent / 32; product != 0; ++i, product /= Int128{1} << 32) {
    const std::int64_t piece = static_cast<std::int64_t>(product % (Int128{1} << 32)) * (std::int64_t{1} << shift);
    digits[i] += static_cast<std::uint32_t>(piece);
    digits[i + 1] += static_cast<unsigned long long>(piece >> 32);
  }
}

// Adds a pair to the sums of some terms.
void AddPair(double x, double y, std::span<const SumTerm> terms, PairDigits* out) {
  if (std::isnan(x) || std::isnan(y)) {
    ++out->nans;
  } else if (std::isinf(x) || std::isinf(y)) {
    ++out->infinities;
  } else {
    for (std::size_t t = 0; t < terms.size(); ++t) {
      const SumTerm term = terms[t];
      const auto add = [&](double a, double b, bool negate = false) {
        AddToDigits(a, b, negate, PairUnit(term), out->digit[t]);
      };
      if (term == SumTerm::kX) add(x, 1);
      if (term == SumTerm::kY) add(y, 1);
      if (term == SumTerm::kXX) add(x, x);
      if (term == SumTerm::kXY) add(x, y);
      if (term == SumTerm::kYY) add(y, y);
      if (term == SumTerm::kDistance) add(x, 1, x < y), add(y, 1, x >= y);
    }
  }
}

// Where element `position` of an output lies in both arrays.
std::pair<std::int64_t, std::int64_t> PairAt(const PairArray& array, std::int64_t output, std::int64_t position) {
  std::int64_t x = 0, y = 0;
  for (const auto& [dimensions, number] : {std::pair(&array.kept, output), std::pair(&array.reduced, position)}) {
    std::int64_t left = number;
    for (int i = dimensions->count - 1; i >= 0; --i) {
      x += left % dimensions->size[i] * dimensions->x[i];
      y += left % dimensions->size[i] * dimensions->y[i];
      left /= dimensions->size[i];
    }
  }
  return {x, y};
}

// Calls visit(x, y) with the arrays, if they are of floats.
template <class Visit>
void VisitFloats(DType dtype, const void* x, const void* y, const Visit& visit) {
  VisitDType(dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (kIsFloat<T>) visit(static_cast<const T*>(x), static_cast<const T*>(y));
  });
}

template <PairFamily kFamily>
void FoldPairs(const PairSlicesLaunch& launch) {
  VisitFloats(launch.dtype, launch.array.x, launch.array.y, [&]<class T>(const T* x_data, const T* y_data) {
    using Fold = PairFold<T, kFamily>;
    for (std::int64_t output = 0; output < launch.array.outputs; ++output) {
      Fold folds[2];  // of the halves of the output
      for (std::int64_t first = 0; first < launch.array.elements; first += Fold::kTile) {
        T x[Fold::kTile] = {}, y[Fold::kTile] = {};
        for (std::int64_t i = 0; i < std::min<std::int64_t>(Fold::kTile, launch.array.elements - first); ++i) {
          const auto [x_at, y_at] = PairAt(launch.array, output, first + i);
          x[i] = x_data[x_at];
          y[i] = y_data[y_at];
        }
        folds[first < launch.array.elements / 2 ? 0 : 1].Add(x, y);
      }
      folds[0].Merge(folds[1]);
      bool known = true;
      for (int i = 0; i < launch.ops; ++i) {
        known = folds[0].Answer(launch.op[i], launch.question, &launch.answers[i][output]) && known;
      }
      if (!known) launch.open[output / 32] |= std::uint32_t{1} << (output % 32);
    }
  });
}

}  // namespace

bool HasPairKernel(std::span<const SumTerm> terms) {
  constexpr Op kOps[] = {Op::kDot, Op::kWeightedMean, Op::kCorr, Op::kCosine, Op::kDistanceL1};
  return std::ranges::any_of(kOps, [&](Op op) { return std::ranges::equal(terms, TermsOf(op)); });
}

cudaError_t LaunchPairSums(const PairSumsLaunch& launch) {
  return LaunchDistribution([&] {
    VisitFloats(launch.dtype, launch.x, launch.y, [&](const auto* x, const auto* y) {
      for (std::int64_t i = 0; i < launch.count; ++i) AddPair(ToDouble(x[i]), ToDouble(y[i]), launch.terms, launch.out);
    });
  });
}

cudaError_t LaunchPairSlices(const PairSlicesLaunch& launch) {
  return LaunchDistribution([&] {
    if (launch.family == PairFamily::kMeans) FoldPairs<PairFamily::kMeans>(launch);
    if (launch.family == PairFamily::kMoments) FoldPairs<PairFamily::kMoments>(launch);
    if (launch.family == PairFamily::kDistances) FoldPairs<PairFamily::kDistances>(launch);
  });
}

cudaError_t LaunchPairDigits(const PairDigitsLaunch& launch) {
  return LaunchDistribution([&] {
    VisitFloats(launch.dtype, launch.array.x, launch.array.y, [&](const auto* x, const auto* y) {
      for (std::int64_t i = 0; i < launch.count; ++i) {
        for (std::int64_t position = 0; position < launch.array.elements; ++position) {
          const auto [x_at, y_at] = PairAt(launch.array, launch.which[i], position);
          AddPair(ToDouble(x[x_at]), ToDouble(y[y_at]), launch.terms, launch.out + i);
        }
      }
    });
  });
}

cudaError_t LaunchColumnProducts(const ColumnProductsLaunch& launch) {
  return LaunchDistribution([&] {
    VisitFloats(launch.dtype, launch.data, nullptr, [&](const auto* data, const auto*) {
      for (std::int64_t row = 0; row < launch.rows; ++row) {
        ColumnDigits* out = launch.out;
        const auto at = [&](int column) { return ToDouble(data[row * launch.columns + column]); };
        for (int a = 0; a < launch.columns; ++a) {
          for (int b = a; b < launch.columns; ++b, ++out) {
            if (!std::isfinite(at(a)) || !std::isfinite(at(b))) {
              *launch.not_finite = 1;
            } else {
              AddToDigits(at(a), at(b), false, ColumnDigits::kUnit, out->digit);
            }
          }
        }
        for (int a = 0; a < launch.columns; ++a, ++out) {
          if (std::isfinite(at(a))) AddToDigits(at(a), 1, false, ColumnDigits::kUnit, out->digit);
        }
      }
    });
  });
}

int FingerprintBlocks(std::int64_t /*bytes*/, std::int64_t /*stretches*/, int /*multiprocessors*/) { return 2; }

// The first block has everything.
// The polynomial of words, with powers that count from the beginning of their vector.
Residues PolynomialOf(const void* data, int word_bytes, std::int64_t words) {
  const std::uintptr_t beyond = reinterpret_cast<std::uintptr_t>(data) % 16;
  const Residues of_first = PowersOfBases(beyond / static_cast<unsigned>(word_bytes));
  return MultipliedAndAdded(PolynomialOfWords(static_cast<const std::byte*>(data), word_bytes, words), of_first, {});
}

cudaError_t LaunchFingerprint(const FingerprintLaunch& launch) {
  return LaunchDistribution([&] {
    for (unsigned i = 0; launch.table.blocks > 0 && i < launch.table.first[launch.table.blocks]; ++i) {
      const ManyPiece& piece = launch.table.pieces[i];
      launch.sums[i] = PolynomialOf(piece.data, launch.word_bytes, piece.count);
    }
    for (std::int64_t i = 0; launch.table.blocks == 0 && i < launch.stretches; ++i) {
      Residues* const sums = launch.sums + i * launch.blocks;
      std::fill_n(sums, launch.blocks, Residues{});
      sums[0] = PolynomialOf(launch.data + i * launch.bytes, launch.word_bytes, launch.bytes / launch.word_bytes);
    }
  });
}

int CompareBlocks(DType /*dtype*/, std::int64_t /*count*/, int /*multiprocessors*/) { return 3; }

cudaError_t LaunchCompare(const CompareLaunch& launch) {
  return LaunchDistribution([&] {
    VisitPairType(launch.dtype, [&]<class T>(T) {
      const auto* const x = static_cast<const T*>(launch.x);
      const auto* const y = static_cast<const T*>(launch.y);
      for (int block = 0; block < launch.blocks; ++block) {  // each has a piece
        PairFigures<T> figures;
        for (std::int64_t i = launch.count * block / launch.blocks; i < launch.count * (block + 1) / launch.blocks;
             ++i) {
          if (!figures.Add(x[i], y[i], i, launch.rules)) continue;
          const unsigned long long at = (*launch.gathered)++;
          if (at >= launch.room) continue;
          static_cast<T*>(launch.gathered_x)[at] = x[i];
          static_cast<T*>(launch.gathered_y)[at] = y[i];
        }
        ComparedPairs out;
        std::copy(std::begin(figures.count), std::end(figures.count), out.count);
        if (!kIsFloat<T>) std::copy(std::begin(figures.squares), std::end(figures.squares), out.squares);
        for (std::size_t r = 0; r < kComparisonRecords; ++r) {
          ComparedPairs::Record& record = out.record[r] = figures.record(static_cast<int>(r));
          if (record.index == ComparedPairs::kNone) continue;
          std::memcpy(&record.x, x + record.index, sizeof(T));
          std::memcpy(&record.y, y + record.index, sizeof(T));
        }
        launch.out[block] = out;
      }
    });
  });
}

cudaError_t LaunchCountKeys(const CountKeysLaunch& launch) {
  return LaunchDistribution([&] {
    CountedKeys& counted = *launch.counted;
    auto* const counts = reinterpret_cast<unsigned long long*>(&counted + 1);
    const std::uint64_t most = ~std::uint64_t{0} >> (64 - 8 * launch.format.bytes);
    ForEachKey(
        launch.format, launch.data, launch.count,
        [&](std::uint64_t key, std::int64_t) {
          const bool is_number = key >= launch.format.least && key <= launch.format.greatest;
          if (IsPlain(launch.format) && !is_number) ++counted.others;
          for (int r = 0; r < launch.count_of_ranges; ++r) {
            const KeyRange64& range = launch.ranges[r];
            if (range.lo > launch.format.least && (key >= range.lo || !is_number)) ++counted.at_least[r];
            if (key < range.lo || key - range.lo > range.span) continue;
            const std::uint64_t digit = launch.digit == 0 ? 0 : (key - range.lo) >> range.shift;
            ++counts[(static_cast<std::uint64_t>(r) << launch.digit) + digit];
            counted.inverse_least[r] = std::max<unsigned long long>(counted.inverse_least[r], ~key & most);
            counted.largest[r] = std::max<unsigned long long>(counted.largest[r], key);
            if (launch.gather == nullptr || range.span == 0) continue;
            Append(launch.format, key, launch.gather, launch.room, &counted.gathered);
          }
        },
        launch.stretch);
  });
}

cudaError_t LaunchCountCells(const CountCellsLaunch& launch) {
  return LaunchDistribution([&] {
    ForEachKey(launch.format, launch.data, launch.count, [&](std::uint64_t key, std::int64_t) {
      if (key < launch.format.least || key > launch.format.greatest) return;
      const std::uint64_t beyond = key - launch.lo, cell = beyond >> launch.shift;
      const bool is_outside = key < launch.lo || beyond > launch.span;
      const std::uint32_t entry =
          launch.cells[is_outside ? CountCellsLaunch::kCells + (key < launch.lo ? 0 : 1) : cell];
      const std::uint64_t rest = is_outside ? 0 : (beyond - (cell << launch.shift)) >> entry % 64;
      const std::uint64_t bin = (entry & ~CountCellsLaunch::kHasWanted) / 64 + rest;
      if (launch.wanted == nullptr) {
        ++launch.counts[bin];
      } else if ((launch.wanted[bin / 32] >> bin % 32 & 1) != 0) {
        Append(launch.format, key, launch.gather, launch.room, launch.gathered);
      }
    });
  });
}

cudaError_t LaunchCountBytes(const CountBytesLaunch& launch) {
  return LaunchDistribution([&] {
    const auto* const bytes = static_cast<const std::uint8_t*>(launch.data);
    for (std::int64_t i = 0; i < launch.count; ++i) ++launch.out->counts[bytes[i]];
    if (!launch.finds_places) return;
    std::uint64_t least = 0xff, greatest = 0;
    KeyFormat numbers = launch.format;
    numbers.omit_nan = true;
    const auto note = [&](std::int64_t index, unsigned long long* inverse) {
      *inverse = std::max(*inverse, ~static_cast<unsigned long long>(launch.base_index + index));
    };
    ForEachKey(numbers, bytes, launch.count, [&](std::uint64_t key, std::int64_t) {
      least = std::min(least, key);
      greatest = std::max(greatest, key);
    });
    ForEachKey(launch.format, bytes, launch.count, [&](std::uint64_t key, std::int64_t index) {
      if (key == 0xff) return note(index, &launch.out->inverse_nan);
      if (key == least) note(index, &launch.out->inverse_least);
      if (key == greatest) note(index, &launch.out->inverse_greatest);
    });
  });
}

cudaError_t LaunchCountWords(const CountWordsLaunch& launch) {
  return LaunchDistribution([&] {
    const auto* const words = static_cast<const std::uint16_t*>(launch.data);
    for (std::int64_t i = 0; i < launch.count; ++i) ++launch.out->counts[words[i]];
  });
}

cudaError_t LaunchGatherKeys(const GatherKeysLaunch& launch) {
  return LaunchDistribution([&] {
    const auto* const data = static_cast<const std::byte*>(launch.data) + launch.first * launch.format.bytes;
    std::vector<bool> unwanted(static_cast<std::size_t>(launch.count));
    ForEachKey(Plain(launch.format), data, launch.count, [&](std::uint64_t key, std::int64_t index) {
      const bool is = launch.has_unwanted && key >= launch.first_unwanted && key <= launch.last_unwanted;
      unwanted[static_cast<std::size_t>(index)] = is;
    });
    ForEachKey(launch.format, data, launch.count, [&](std::uint64_t key, std::int64_t index) {
      if (key < launch.least || key > launch.most || unwanted[static_cast<std::size_t>(index)]) return;
      const auto at = static_cast<std::int64_t>((*launch.found)++);
      if (at < launch.room) launch.keys[at] = {key, launch.first + index};
    });
  });
}

cudaError_t LaunchSketch(const SketchLaunch& launch) {
  return LaunchDistribution([&] {
    ForEachKey(launch.format, launch.data, launch.count, [&](std::uint64_t key, std::int64_t) {
      std::uint32_t& most = launch.registers[RegisterOf(HashOf(key))];
      most = std::max(most, ZerosOf(HashOf(key)));
    });
  });
}

cudaError_t LaunchHistogram(const HistogramLaunch& launch) {
  return LaunchDistribution([&] {
    VisitDType(launch.dtype, [&]<class T>(std::type_identity<T>) {
      const BinFinder<T>& finder = *static_cast<const BinFinder<T>*>(launch.finder);
      for (std::int64_t i = 0; i < launch.count; ++i) {
        const T x = static_cast<const T*>(launch.data)[i];
        const auto value = BinFinder<T>::ValueOf(x);
        if (finder.Has(value)) ++launch.counts[finder.BinOf(x, value)];
      }
    });
  });
}

}  // namespace reduced

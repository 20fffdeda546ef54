// The kernels of the fake device: what kernels/cuda/*.cu and kernels/ladder/*.cu define, on the host, by the CPU
// engine's inner loops.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/algebra/accumulator.h"
#include "kernels/algebra/spec.h"
#include "kernels/cpu/exact_tiles.h"
#include "kernels/cpu/quick_sums.h"
#include "kernels/cpu/tiles.h"
#include "kernels/cuda/exact_sums.h"
#include "kernels/cuda/find_groups.h"
#include "kernels/cuda/groups.h"
#include "kernels/cuda/key_entries.h"
#include "kernels/cuda/key_quantiles.h"
#include "kernels/cuda/key_tables.h"
#include "kernels/cuda/many_arrays.h"
#include "kernels/cuda/pipeline.h"
#include "kernels/cuda/quantiles.h"
#include "kernels/cuda/quick_kinds.h"
#include "kernels/cuda/quick_slices.h"
#include "kernels/cuda/slices.h"
#include "kernels/cuda/strided.h"
#include "kernels/engine/pipelines.h"
#include "kernels/folds/elements.h"
#include "kernels/folds/quantile_answers.h"
#include "kernels/matmul/cublas.h"
#include "kernels/matmul/host.h"
#include "kernels/matmul/launch.h"
#include "tests/fake_cuda/fake_cuda.h"

namespace reduced {
namespace {

// The kernel that `kernel` does, if the fake device runs one.
template <class Kernel>
cudaError_t LaunchOnHost(KernelTimes* times, Kernel kernel) {
  bool runs = false;
  const cudaError_t error = fake_cuda::BeginLaunch(&runs);
  if (!runs) return error;
  kernel();
  if (times != nullptr) {
    times->begin_ns = 1;
    std::atomic_ref(times->end_ns).store(1001, std::memory_order_release);
  }
  return error;
}

cudaError_t Fold(const Launch& launch, const void* data) {
  return LaunchOnHost(launch.times, [&] {
    Partial partial;
    const AccumulatorSet counts = SetOf(Accumulator::kCounts);
    TilePlan(launch.dtype, launch.accumulators | (launch.omit_nan ? counts : 0),  // whoever drops NaNs counts them
             launch.omit_nan ? NanPolicy::kOmit : NanPolicy::kPropagate)
        .Fold(data, launch.base_index, launch.count, &partial);
    partial.count = launch.count;
    if ((launch.accumulators & counts) == 0) partial.nonzero = partial.nan = 0;  // the exact sums' kernel adds them
    *launch.out = partial;
  });
}

std::size_t BytesOf(const Launch& launch) { return static_cast<std::size_t>(launch.count * RowOf(launch.dtype).bytes); }

cudaError_t FoldArray(const Launch& launch) { return Fold(launch, launch.data); }
cudaError_t FoldScratch(const Launch& launch) { return Fold(launch, launch.scratch); }
cudaError_t CopyToScratch(const Launch& launch) {
  return LaunchOnHost(nullptr, [&] { std::memcpy(launch.scratch, launch.data, BytesOf(launch)); });
}
cudaError_t Describe(const Launch& launch, Occupancy* occupancy) {
  *occupancy = {.block_size = launch.block_size == 0 ? kDefaultBlockSize : launch.block_size,
                .registers = 32,
                .blocks_per_multiprocessor = 2,
                .max_threads_per_multiprocessor = 2048};
  return cudaSuccess;
}
bool KeepsTime(const Launch& launch) {
  return launch.count * RowOf(launch.dtype).bytes <= kMaxTimedBytes && !launch.omit_nan;
}

// The digits of a number of exact/sums.h.
template <std::size_t kDigits, class Number>
void Split(const Number& number, unsigned long long (&digits)[kDigits]) {
  for (std::size_t i = 0; i < number.word.size(); ++i) {
    digits[2 * i] = static_cast<std::uint32_t>(number.word[i]);
    digits[2 * i + 1] = number.word[i] >> 32;
  }
  auto& top = digits[kDigits - 1];  // the one with the sign
  top = static_cast<unsigned long long>(static_cast<std::int64_t>(static_cast<std::int32_t>(top)));
}

void Split(const ExactSums& sums, ExactDigits* out) {
  Split(sums.sum, out->sum);
  Split(sums.abs_sum, out->abs_sum);
  Split(sums.sum_squares, out->sum_squares);
  out->nans = static_cast<unsigned long long>(sums.nans);
  out->positive_infinities = static_cast<unsigned long long>(sums.positive_infinities);
  out->negative_infinities = static_cast<unsigned long long>(sums.negative_infinities);
  out->not_only_negative_zeros = sums.not_only_negative_zeros ? 1 : 0;
}

std::int64_t OffsetOf(const SliceDimensions& dimensions, std::int64_t index) {
  std::int64_t offset = 0;
  for (int i = dimensions.count; i-- > 0;) {
    offset += index % dimensions.size[i] * dimensions.stride[i];
    index /= dimensions.size[i];
  }
  return offset;
}

bool IsKept(const GroupArray& array, std::int64_t index) {
  if (array.mask == nullptr) return true;
  const std::int64_t bit = array.first_bit + index;
  return array.mask_bits ? (array.mask[bit / 8] >> (bit % 8) & 1) != 0 : array.mask[index] != 0;
}

// What a mask leaves of a part.
struct GroupElements {
  std::vector<std::byte> bytes;
  std::vector<std::int64_t> indexes;  // as answers call them
};
GroupElements ElementsOf(const GroupArray& array, const GroupPart& part, std::size_t width) {
  GroupElements elements;
  for (std::int64_t i = part.begin; i < part.end; ++i) {
    std::int64_t index = i;
    std::int64_t at = 0;
    if (array.rows != nullptr) {
      index = array.rows[part.start + i];
      at = index * array.columns + part.column;
    } else {
      at = part.start + OffsetOf(array.reduced, i);
    }
    if (!IsKept(array, at)) continue;
    const auto* const from = static_cast<const std::byte*>(array.data) + static_cast<std::size_t>(at) * width;
    elements.bytes.insert(elements.bytes.end(), from, from + width);
    elements.indexes.push_back(index);
  }
  return elements;
}

GroupPart WholeOutput(const GroupOutputs& outputs, const GroupArray& array, std::int64_t output) {
  if (outputs.bounds == nullptr) return {.start = OffsetOf(outputs.kept, output), .end = outputs.elements};
  const std::int64_t begin = outputs.bounds[output / outputs.columns];
  const std::int64_t column = output % outputs.columns;
  const std::int64_t start = array.rows != nullptr ? begin : begin * outputs.columns + column;
  return {.start = start, .column = column, .end = outputs.bounds[output / outputs.columns + 1] - begin};
}

// The first of n elements, word(i), and what stands for those that aren't there.
template <int kCount, class Fold, class WordAt>
QuickTile<typename Fold::Word, kCount> TileOf(std::int64_t n, WordAt word, const QuickElements& of) {
  QuickTile<typename Fold::Word, kCount> x{};
  for (int i = 0; i < kCount; ++i) x.Set(i, i < n ? PreparedWord(word(i), of) : Fold::Padding(x[0], of));
  return x;
}

// The fold of the elements of a group, or of a part of it, a few at a time.
template <class Fold>
Fold FoldOfElements(const GroupElements& elements, const QuickElements& of) {
  using Word = typename Fold::Word;
  constexpr int kAtOnce = 4;
  const std::int64_t count = std::ssize(elements.indexes);
  Fold fold;
  for (std::int64_t at = 0; at < count; at += kAtOnce) {
    const auto word = [&](int k) {
      Word of_element;
      std::memcpy(&of_element, elements.bytes.data() + static_cast<std::size_t>(at + k) * sizeof(Word), sizeof(Word));
      return of_element;
    };
    const std::int64_t n = count - at;
    const auto position = [&](int k) {
      return static_cast<std::uint32_t>(elements.indexes[static_cast<std::size_t>(k < n ? at + k : at)]);
    };
    const auto tile = TileOf<kAtOnce, Fold>(n, word, of);
    fold.Add(tile, kAtOnce, position, of);
    if constexpr (requires { Fold::kCountsPadding; }) {
      if (n < kAtOnce) fold.Forget(static_cast<int>(kAtOnce - n), tile[0], of);
    }
  }
  return fold;
}

template <class Fold>
void FoldGroupsQuickly(const QuickGroupsLaunch& launch) {
  for (std::int64_t i = 0; i < launch.count; ++i) {
    const GroupPart part = WholeOutput(launch.outputs, launch.array, launch.first + i);
    std::uint8_t left = kTooLong;
    if (part.end <= launch.longest_of_warp) {
      const GroupElements elements = ElementsOf(launch.array, part, sizeof(typename Fold::Word));
      QuickElements of = launch.elements;
      of.count = std::ssize(elements.indexes);
      const Fold fold = FoldOfElements<Fold>(elements, of);
      left = of.count > 0 && fold.Finish(launch.answers, launch.ops, i, of) ? kAnswered : kNotKnown;
    }
    if (!launch.after || left != kAnswered) launch.left[i] = left;
  }
}

template <class Fold>
void FoldPartsQuickly(const QuickPartsLaunch& launch) {
  for (std::int64_t i = 0; i < launch.count; ++i) {
    const GroupElements elements = ElementsOf(launch.array, launch.parts[i], sizeof(typename Fold::Word));
    const Fold fold = FoldOfElements<Fold>(elements, launch.elements);
    std::memcpy(launch.folds[i].fold, static_cast<const void*>(&fold), sizeof(fold));
    launch.folds[i].count = std::ssize(elements.indexes);
  }
}

// Outputs by the folds of quick_slices.h: as many of each as the plan has folds of it and lanes of a row, each of which
// takes every so-many-th few elements.
template <class Fold>
void FoldSlicesQuickly(const QuickLaunch& launch) {
  constexpr int kAtOnce = 8;
  const SliceArray& array = launch.array;
  const std::int64_t shares = std::min<std::int64_t>(launch.plan.folds() * launch.plan.lanes, 64);
  for (std::int64_t output = 0; output < array.outputs; ++output) {
    const auto* const start = static_cast<const typename Fold::Word*>(array.data) + OffsetOf(array.kept, output);
    Fold all;
    for (std::int64_t share = 0; share < shares; ++share) {
      Fold fold;
      for (std::int64_t at = share * kAtOnce; at < array.elements; at += shares * kAtOnce) {
        const auto word = [&](int i) { return start[OffsetOf(array.reduced, at + i)]; };
        const auto position = [&](int i) { return static_cast<std::uint32_t>(at + i); };
        const std::int64_t n = array.elements - at;
        fold.Add(TileOf<kAtOnce, Fold>(n, word, launch.elements), static_cast<int>(std::min<std::int64_t>(kAtOnce, n)),
                 position, launch.elements);
      }
      all.Merge(fold);
    }
    if (all.Finish(launch.answers, launch.ops, output, launch.elements)) continue;
    const std::uint32_t bit = std::uint32_t{1} << (output % 32);
    *launch.redone += (launch.redo[output / 32] & bit) == 0 ? 1 : 0;
    launch.redo[output / 32] |= bit;
  }
}
template <QuickKind kKind>
cudaError_t FoldSlicesQuickly(const QuickLaunch& launch) {
  return VisitQuickFold<kKind>(launch.elements.dtype, cudaErrorNotSupported, [&]<class Fold>(std::type_identity<Fold>) {
    return LaunchOnHost(nullptr, [&] { FoldSlicesQuickly<Fold>(launch); });
  });
}

cudaError_t Multiply(const MatmulLaunch& launch) {
  return LaunchOnHost(nullptr, [&] {
    const MatmulSpec spec{.dtype = launch.dtype, .m = launch.m, .n = launch.n, .k = launch.k};
    std::vector<std::byte> transposed(static_cast<std::size_t>(spec.bytes_b()));
    MultiplyOnHost(spec, launch.a, launch.b, transposed.data(), launch.c, [] { return false; });
  });
}
cudaError_t DescribeMultiply(const MatmulLaunch&, Occupancy* occupancy) {
  *occupancy = {
      .block_size = 256, .registers = 32, .blocks_per_multiprocessor = 2, .max_threads_per_multiprocessor = 2048};
  return cudaSuccess;
}
constexpr MatmulKernel kProduct = {&Multiply, &DescribeMultiply};

constexpr CudaPipeline kInPlaceRung = {&BytesOf, &CopyToScratch, &FoldScratch, &Describe, &BytesOf};

}  // namespace

cudaError_t LaunchExactSums(const ExactLaunch& launch) {
  return LaunchOnHost(launch.times, [&] {
    ExactFolder folder(launch.dtype, launch.accumulators);
    folder.Fold(launch.data, launch.count);
    Split(folder.sums(), launch.out);
    if (launch.others == 0) return;
    TilePlan(launch.dtype, launch.others, launch.omit_nan ? NanPolicy::kOmit : NanPolicy::kPropagate)
        .Fold(launch.data, launch.base_index, launch.count, launch.partial);
  });
}

// One of them does for both: pieces have digits, if the accumulators do.
cudaError_t LaunchManySums(const ManyLaunch& launch) {
  return LaunchOnHost(nullptr, [&] {
    const TilePlan plan(launch.dtype, launch.others, launch.omit_nan ? NanPolicy::kOmit : NanPolicy::kPropagate);
    for (unsigned i = 0; i < launch.table.first[launch.table.blocks]; ++i) {
      const ManyPiece& piece = launch.table.pieces[i];
      Partial& partial = launch.partials[i] = Partial{};
      if (launch.others != 0) plan.Fold(piece.data, piece.base_index, piece.count, &partial);
      partial.count = piece.count;
      if (launch.exact_accumulators == 0) continue;
      ExactFolder folder(launch.dtype, launch.exact_accumulators);
      folder.Fold(piece.data, piece.count);
      launch.digits[i] = ExactDigits{};
      Split(folder.sums(), launch.digits + i);
    }
  });
}
cudaError_t LaunchManyFolds(const ManyLaunch& launch) { return LaunchManySums(launch); }

bool ExactSumsKeepTime(const ExactLaunch& launch) { return launch.count * RowOf(launch.dtype).bytes <= kMaxTimedBytes; }

cudaError_t LaunchSliceStates(const SliceStatesLaunch& launch) {
  return LaunchOnHost(nullptr, [&] {
    const SliceArray& array = launch.array;
    const auto width = static_cast<std::size_t>(RowOf(launch.dtype).bytes);
    const TilePlan plan(launch.dtype, launch.accumulators, launch.omit_nan ? NanPolicy::kOmit : NanPolicy::kPropagate);
    const std::int64_t size = (array.elements + launch.parts - 1) / launch.parts;
    for (int i = 0; i < launch.count * launch.parts; ++i) {
      const int which = i / launch.parts;
      const std::int64_t output = launch.which != nullptr ? launch.which[which] : launch.first + which;
      const std::int64_t begin = std::min(array.elements, i % launch.parts * size);
      const std::int64_t end = std::min(array.elements, begin + size);
      std::vector<std::byte> part(static_cast<std::size_t>(end - begin) * width);
      const auto* const start = static_cast<const std::byte*>(array.data) + OffsetOf(array.kept, output) * width;
      for (std::int64_t at = begin; at < end; ++at) {
        std::memcpy(part.data() + (at - begin) * width, start + OffsetOf(array.reduced, at) * width, width);
      }
      launch.partials[i] = Partial{};
      plan.Fold(part.data(), begin, end - begin, launch.partials + i);
      if (launch.digits == nullptr) continue;
      ExactFolder folder(launch.dtype, launch.exact_accumulators);
      folder.Fold(part.data(), end - begin);
      launch.digits[i] = ExactDigits{};
      Split(folder.sums(), launch.digits + i);
    }
  });
}

cudaError_t LaunchGroupStates(const GroupStatesLaunch& launch) {
  return LaunchOnHost(nullptr, [&] {
    const GroupArray& array = launch.array;
    const auto width = static_cast<std::size_t>(RowOf(launch.dtype).bytes);
    const TilePlan plan(launch.dtype, launch.accumulators, launch.omit_nan ? NanPolicy::kOmit : NanPolicy::kPropagate);
    for (int i = 0; i < launch.count; ++i) {
      const GroupElements elements = ElementsOf(array, launch.parts[i], width);
      const auto count = static_cast<std::int64_t>(elements.indexes.size());
      Partial& partial = launch.partials[i] = Partial{};
      plan.Fold(elements.bytes.data(), 0, count, &partial);
      partial.count = count;
      ExtremaState& extrema = partial.extrema;
      for (std::int64_t* const index : {&extrema.min_index, &extrema.max_index, &extrema.nan_index}) {
        if (*index != kNoIndex) *index = elements.indexes[static_cast<std::size_t>(*index)];
      }
      if (launch.digits == nullptr) continue;
      ExactFolder folder(launch.dtype, launch.exact_accumulators);
      folder.Fold(elements.bytes.data(), count);
      launch.digits[i] = ExactDigits{};
      Split(folder.sums(), launch.digits + i);
    }
  });
}

cudaError_t LaunchQuickGroups(const QuickGroupsLaunch& launch) {
  return VisitQuickFold(launch.kind, launch.elements.dtype, cudaErrorNotSupported,
                        [&]<class Fold>(std::type_identity<Fold>) {
                          return LaunchOnHost(nullptr, [&] { FoldGroupsQuickly<Fold>(launch); });
                        });
}

// What a launch of quantiles asks of each output, and where the answers go.
struct AskedQuantiles {
  explicit AskedQuantiles(const QuantilesLaunch& of)
      : launch(of),
        call(of.is_median ? Op::kMedian : Op::kQuantile,
             {.quantiles = std::vector<double>(of.quantiles, of.quantiles + of.of_each), .method = of.method}),
        spec{.dtype = of.dtype,
             .nan_policy = of.omit_nan ? NanPolicy::kOmit : NanPolicy::kPropagate,
             .empty_policy = EmptyPolicy::kFill} {}

  template <class T>
  void Answer(std::int64_t output, std::int64_t count, std::int64_t nans, const std::vector<std::int64_t>& ranks,
              const std::vector<typename SortKey<T>::Type>& selected) const {
    const std::int64_t bytes = launch.of_each * RowOf(ResultDType(call, launch.dtype)).bytes;
    launch.left[output] = count == nans && (nans == 0 || launch.omit_nan) ? kNotKnown : kAnswered;
    FinishQuantiles<T>(call, spec, count, count - nans, ranks, selected, launch.answers + output * bytes).IgnoreError();
  }

  const QuantilesLaunch& launch;
  OpCall call;
  ReduceSpec spec;
};

cudaError_t LaunchQuantiles(const QuantilesLaunch& launch) {
  return LaunchOnHost(nullptr, [&] {
    VisitDType(launch.dtype, [&]<class T>(std::type_identity<T>) {
      const AskedQuantiles asked(launch);
      for (std::int64_t i = 0; i < launch.count; ++i) {
        const GroupPart part = WholeOutput(launch.outputs, launch.array, launch.first + i);
        launch.left[i] = kTooLong;
        if (part.end > launch.longest) continue;
        std::vector<typename SortKey<T>::Type> keys, selected;
        const GroupElements elements = ElementsOf(launch.array, part, sizeof(T));
        const std::int64_t count = std::ssize(elements.indexes);
        for (std::int64_t at = 0; at < count; ++at) {
          keys.push_back(SortKey<T>::Of(ElementAt<T>(elements.bytes.data(), at)));
        }
        std::sort(keys.begin(), keys.end());
        const std::int64_t nans = kIsFloat<T> ? std::count(keys.begin(), keys.end(), SortKey<T>::kNan) : 0;
        const std::vector<std::int64_t> ranks = QuantileRanks(asked.call, asked.spec, count, count - nans);
        for (const std::int64_t rank : ranks) selected.push_back(keys[static_cast<std::size_t>(rank)]);
        asked.Answer<T>(i, count, nans, ranks, selected);
      }
    });
  });
}

cudaError_t LaunchQuickParts(const QuickPartsLaunch& launch) {
  return VisitQuickFold(launch.kind, launch.elements.dtype, cudaErrorNotSupported,
                        [&]<class Fold>(std::type_identity<Fold>) {
                          return LaunchOnHost(nullptr, [&] { FoldPartsQuickly<Fold>(launch); });
                        });
}

cudaError_t LaunchLocate(const LocateLaunch& launch) {
  return LaunchOnHost(nullptr, [&] {
    for (std::int64_t i = 0; i < launch.count; ++i) {
      launch.wholes[i] = WholeOutput(launch.outputs, launch.array, launch.numbers[i]);
    }
  });
}

cudaError_t LaunchCheckOffsets(const CheckOffsetsLaunch& launch) {
  return LaunchOnHost(nullptr, [&] {
    *launch.checks = {.bad = kNoneBad};
    for (std::int64_t i = launch.count; i-- > 0;) {
      const auto offset = [&](std::int64_t at) {
        return launch.dtype == DType::kI32 ? static_cast<const std::int32_t*>(launch.offsets)[at]
                                           : static_cast<const std::int64_t*>(launch.offsets)[at];
      };
      launch.bounds[i] = offset(i);
      if (offset(i) < (i == 0 ? 0 : offset(i - 1)) || offset(i) > launch.rows) launch.checks->bad = i;
    }
    launch.checks->first = launch.bounds[0];
    launch.checks->last = launch.bounds[launch.count - 1];
  });
}

bool IsThere(const GroupArray& array, std::int64_t row) {
  bool there = array.mask == nullptr;
  for (std::int64_t i = 0; i < array.columns; ++i) there = there || IsKept(array, row * array.columns + i);
  return there;
}

cudaError_t LaunchCheckKeys(const CheckKeysLaunch& launch) {
  return LaunchOnHost(nullptr, [&] {
    *launch.checks = {.bad = kNoneBad};
    VisitDType(launch.dtype, [&]<class T>(std::type_identity<T>) {
      if constexpr (std::is_integral_v<T>) {
        for (std::int64_t row = launch.rows; row-- > 0;) {
          const bool there = IsThere(launch.array, row);
          const auto key =
              static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<const T*>(launch.keys)[row]));
          const bool within = key < static_cast<std::uint64_t>(launch.groups);
          if (there && !within && !launch.drop) launch.checks->bad = row;
          launch.ids[row] = static_cast<std::uint32_t>(there && within ? key : launch.groups);
        }
      }
    });
  });
}

// Calls f with each row that is there, and its key as KeyRange has it.
template <class Function>
void ForEachKey(const KeysToFind& keys, Function f) {
  VisitDType(keys.dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (std::is_integral_v<T>) {
      using Word = std::make_unsigned_t<T>;
      constexpr Word kFlip = std::is_signed_v<T> ? Word(Word{1} << (8 * sizeof(Word) - 1)) : Word{0};
      for (std::int64_t row = 0; row < keys.rows; ++row) {
        if (IsThere(keys.array, row)) f(row, std::uint64_t{Word(static_cast<const Word*>(keys.keys)[row] ^ kFlip)});
      }
    }
  });
}

cudaError_t LaunchKeyRange(const KeyRangeLaunch& launch) {
  return LaunchOnHost(nullptr, [&] {
    *launch.range = {.least = UINT64_MAX, .greatest = 0};
    ForEachKey(launch.keys, [&](std::int64_t, std::uint64_t key) {
      launch.range->least = std::min(launch.range->least, key);
      launch.range->greatest = std::max(launch.range->greatest, key);
    });
  });
}

bool CanFindKeys(const FindKeysLaunch&) { return true; }

cudaError_t FindKeysScratch(const FindKeysLaunch&, std::size_t* bytes) {
  *bytes = 1;
  return cudaSuccess;
}

cudaError_t LaunchFindKeys(const FindKeysLaunch& launch) {
  return LaunchOnHost(nullptr, [&] {
    std::map<std::uint64_t, std::pair<std::int64_t, std::uint32_t>> found;  // a row of each key, and its group
    ForEachKey(launch.keys, [&](std::int64_t row, std::uint64_t key) { found[key] = {row, 0}; });
    const auto width = static_cast<std::size_t>(RowOf(launch.keys.dtype).bytes);
    std::uint32_t group = 0;
    for (auto& [key, of] : found) {
      std::memcpy(static_cast<std::byte*>(launch.found) + group * width,
                  static_cast<const std::byte*>(launch.keys.keys) + static_cast<std::size_t>(of.first) * width, width);
      of.second = group++;
    }
    *launch.groups = group;
    std::fill_n(launch.ids, launch.keys.rows, kNoKey);
    ForEachKey(launch.keys, [&](std::int64_t row, std::uint64_t key) { launch.ids[row] = found[key].second; });
  });
}

cudaError_t LaunchNumberRows(std::uint32_t* numbers, std::int64_t rows, cudaStream_t) {
  return LaunchOnHost(nullptr, [=] { std::iota(numbers, numbers + rows, 0u); });
}

cudaError_t SortByGroupScratch(const SortByGroupLaunch&, std::size_t* bytes) {
  *bytes = 1;
  return cudaSuccess;
}

cudaError_t LaunchSortByGroup(const SortByGroupLaunch& launch) {
  return LaunchOnHost(nullptr, [&] {
    std::vector<std::uint32_t> order(static_cast<std::size_t>(launch.rows));
    std::iota(order.begin(), order.end(), 0u);
    const auto part = [&](std::uint32_t row) { return launch.ids[row] >> launch.low_bit; };
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return part(a) < part(b); });
    const auto width = static_cast<std::size_t>(launch.value_bytes);
    for (std::size_t i = 0; i < order.size(); ++i) {
      launch.sorted_ids[i] = launch.ids[order[i]];
      std::memcpy(static_cast<std::byte*>(launch.sorted_values) + i * width,
                  static_cast<const std::byte*>(launch.values) + order[i] * width, width);
    }
  });
}

cudaError_t LaunchFindBounds(const FindBoundsLaunch& launch) {
  return LaunchOnHost(nullptr, [&] {
    const std::uint32_t* const end = launch.sorted_ids + launch.rows;
    for (std::int64_t group = 0; group <= launch.groups; ++group) {
      launch.bounds[group] = std::lower_bound(launch.sorted_ids, end, group) - launch.sorted_ids;
    }
  });
}

void SetKeyFlag(const KeyTable& table, std::int64_t group, std::uint32_t flag) {
  table.flags[group / 4] |= flag << (8 * (group % 4));
}

// Calls f with each row that is there and has a group. Keys are read once each.
template <class Function>
void ForEachKeyedRow(const KeyTablesLaunch& launch, Function f) {
  VisitDType(launch.key_dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (std::is_integral_v<T>) {
      for (std::int64_t row = launch.rows; row-- > 0;) {
        if (!IsKept(launch.array, row)) continue;
        const T key = *(static_cast<const volatile T*>(launch.keys) + row);
        const auto group = static_cast<std::uint64_t>(static_cast<std::int64_t>(key));
        if (group < static_cast<std::uint64_t>(launch.table.groups)) {
          f(row, static_cast<std::int64_t>(group));
        } else if (!launch.drop) {
          launch.header->bad = static_cast<std::uint64_t>(launch.rows - row);
        }
      }
    }
  });
}

cudaError_t LaunchSampleKeys(const KeyBracketsLaunch& launch) {
  return LaunchOnHost(nullptr, [&] {
    VisitDType(launch.rows.elements.dtype, [&]<class T>(std::type_identity<T>) {
      std::fill_n(launch.sample_ids, launch.samples(), kNoKey);
      KeyTablesLaunch rows = launch.rows;
      rows.drop = true;
      ForEachKeyedRow(rows, [&](std::int64_t row, std::int64_t group) {
        constexpr std::int64_t kTogether = KeyBracketsLaunch::kSampledTogether;
        constexpr std::int64_t kStretch = kTogether * KeyBracketsLaunch::kRowsOfSample;
        const std::int64_t sample = row / kStretch * kTogether + row % kTogether;
        if (sample >= launch.samples() || row != KeyBracketsLaunch::RowOf(sample)) return;
        const auto x = ElementAt<T>(static_cast<const std::byte*>(rows.array.data), row);
        if (!IsNan(x)) launch.sample_ids[sample] = static_cast<std::uint32_t>(group);
        static_cast<typename SortKey<T>::Type*>(launch.sample_keys)[sample] = SortKey<T>::Of(x);
      });
    });
  });
}

// Brackets of a thirtieth of the sample around each quantile.
template <class T>
void SetEnds(const KeyBracketsLaunch& launch, std::int64_t group) {
  using Key = typename SortKey<T>::Type;
  const KeyBrackets& brackets = launch.brackets;
  std::vector<Key> sample, ends;
  std::vector<std::pair<Key, Key>> each;
  for (std::int64_t i = launch.sample_bounds[group]; i < launch.sample_bounds[group + 1]; ++i) {
    sample.push_back(static_cast<const Key*>(launch.sorted_sample)[i]);
  }
  std::sort(sample.begin(), sample.end());
  for (int i = 0; i < brackets.quantiles; ++i) {
    const auto rank = static_cast<std::int64_t>(launch.quantiles[i] * static_cast<double>(sample.size()));
    const std::int64_t reach = std::ssize(sample) / 64 + 2, low = rank - reach, high = rank + reach;
    each.emplace_back(low < 0 ? Key{0} : sample[static_cast<std::size_t>(low)],
                      high >= std::ssize(sample) ? static_cast<Key>(SortKey<T>::kMost - (kIsFloat<T> ? 1 : 0))
                                                 : sample[static_cast<std::size_t>(high)]);
    ends.push_back(each.back().first);
    ends.push_back(each.back().second);
  }
  std::sort(ends.begin(), ends.end());
  std::copy(ends.begin(), ends.end(), static_cast<Key*>(brackets.ends) + group * brackets.ends_of_each());
  unsigned collected = 0;
  for (std::size_t i = 1; i < ends.size(); ++i) {
    for (const auto& [low, high] : each) collected |= low <= ends[i - 1] && ends[i] <= high ? 1U << i : 0;
  }
  brackets.collected[group] = static_cast<std::uint8_t>(collected);
}

struct RankPlace {
  int slot = 0;
  std::int64_t before = 0;
};
RankPlace PlaceOf(const KeyBrackets& brackets, std::int64_t group, std::int64_t rank) {
  const std::uint32_t* const counts = brackets.counts + group * brackets.slots();
  RankPlace place;
  while (place.slot < brackets.slots() - 2 && rank >= place.before + counts[place.slot]) {
    place.before += counts[place.slot++];
  }
  return place;
}

cudaError_t LaunchKeyBrackets(const KeyBracketsLaunch& launch) {
  return LaunchOnHost(nullptr, [&] {
    VisitDType(launch.rows.elements.dtype, [&]<class T>(std::type_identity<T>) {
      using Key = typename SortKey<T>::Type;
      const KeyBrackets& brackets = launch.brackets;
      KeyTablesHeader& header = *launch.rows.header;
      for (std::int64_t group = 0; group < brackets.groups; ++group) SetEnds<T>(launch, group);
      ForEachKeyedRow(launch.rows, [&](std::int64_t row, std::int64_t group) {
        const Key key = SortKey<T>::Of(ElementAt<T>(static_cast<const std::byte*>(launch.rows.array.data), row));
        const Key* const ends = static_cast<const Key*>(brackets.ends) + group * brackets.ends_of_each();
        const Key* const at = std::lower_bound(ends, ends + brackets.ends_of_each(), key);
        const auto below = static_cast<int>(at - ends);
        const bool is_end = below < brackets.ends_of_each() && *at == key;
        const bool is_nan = kIsFloat<T> && key == SortKey<T>::kMost;
        ++brackets.counts[group * brackets.slots() + 2 * below + (is_end || is_nan ? 1 : 0)];
        if (is_end || (brackets.collected[group] >> below & 1) == 0) return;
        const std::uint32_t to = header.listed++;
        if (to >= launch.room) return;
        launch.intervals[to] = static_cast<std::uint32_t>(group * brackets.intervals() + below - 1);
        static_cast<Key*>(launch.keys)[to] = key;
      });
      for (std::int64_t group = 0; group < brackets.groups; ++group) {
        const std::uint32_t* const counts = brackets.counts + group * brackets.slots();
        const auto ranked = std::accumulate(counts, counts + brackets.slots() - 1, std::int64_t{0});
        for (int i = 0; i < brackets.quantiles && ranked > 0; ++i) {
          const QuantilePoint point = PointOf(launch.quantiles[i], ranked, QuantileMethod::kLinear);
          for (const std::int64_t rank : {point.lower, point.higher}) {
            const int slot = PlaceOf(brackets, group, rank).slot;
            if (slot % 2 == 0 && (brackets.collected[group] >> (slot / 2) & 1) == 0) ++header.unsure;
          }
        }
      }
      if (header.listed > launch.room) return;
      std::uint32_t first = 0;
      for (std::int64_t i = 0; i < brackets.groups * brackets.intervals(); ++i) {
        const std::int64_t group = i / brackets.intervals(), end = i % brackets.intervals() + 1;
        brackets.first[i] = first;
        if ((brackets.collected[group] >> end & 1) != 0) first += brackets.counts[group * brackets.slots() + 2 * end];
      }
      for (std::uint32_t i = 0; i < header.listed; ++i) {
        const std::uint32_t interval = launch.intervals[i];
        static_cast<Key*>(brackets.keys)[brackets.first[interval] + launch.placed[interval]++] =
            static_cast<const Key*>(launch.keys)[i];
      }
    });
  });
}

cudaError_t LaunchBracketAnswers(const QuantilesLaunch& launch, const KeyBrackets& brackets) {
  return LaunchOnHost(nullptr, [&] {
    VisitDType(launch.dtype, [&]<class T>(std::type_identity<T>) {
      using Key = typename SortKey<T>::Type;
      const AskedQuantiles asked(launch);
      for (std::int64_t i = 0; i < launch.count; ++i) {
        const std::int64_t group = launch.first + i;
        const std::uint32_t* const counts = brackets.counts + group * brackets.slots();
        const auto ranked = std::accumulate(counts, counts + brackets.slots() - 1, std::int64_t{0});
        const std::int64_t nans = counts[brackets.slots() - 1];
        std::vector<Key> selected;
        const std::vector<std::int64_t> ranks = QuantileRanks(asked.call, asked.spec, ranked + nans, ranked);
        for (const std::int64_t rank : ranks) {
          const RankPlace place = PlaceOf(brackets, group, rank);
          if (place.slot % 2 != 0) {
            selected.push_back(
                static_cast<const Key*>(brackets.ends)[group * brackets.ends_of_each() + place.slot / 2]);
            continue;
          }
          const std::uint32_t first = brackets.first[group * brackets.intervals() + place.slot / 2 - 1];
          const auto* const keys = static_cast<const Key*>(brackets.keys) + first;
          std::vector<Key> some(keys, keys + counts[place.slot]);
          std::sort(some.begin(), some.end());
          selected.push_back(some[static_cast<std::size_t>(rank - place.before)]);
        }
        asked.Answer<T>(i, ranked + nans, nans, ranks, selected);
      }
    });
  });
}

// Samples that have the key of one far from them.
void SampleKeys(const KeyTablesLaunch& launch) {
  const std::int64_t apart = launch.rows / KeyTablesLaunch::kSamples;
  if (apart == 0 || !launch.sampled) return;
  const auto width = static_cast<std::size_t>(RowOf(launch.key_dtype).bytes);
  const auto* const keys = static_cast<const std::byte*>(launch.keys);
  constexpr std::int64_t kFar = KeyTablesLaunch::kSamples / 32;
  for (std::int64_t i = kFar; i < KeyTablesLaunch::kSamples; ++i) {
    const auto at = static_cast<std::size_t>(i * apart) * width;
    const auto far = static_cast<std::size_t>((i - kFar) * apart) * width;
    launch.header->pairs += std::memcmp(keys + at, keys + far, width) == 0 ? 1 : 0;
  }
}

// Adds the rows of an array of T, as of floats or of words of integers, to sums of so many parts.
template <class T, int kParts>
void AddKeySums(const KeyTablesLaunch& launch) {
  using Word = WordOfBytes<sizeof(T)>;
  const KeyTable& table = launch.table;
  const bool adds = table.bins_used > 0;
  const auto* const data = static_cast<const Word*>(launch.array.data);
  const auto nan_at = [&](std::int64_t group) {
    if (table.nans != nullptr) ++table.nans[group];
  };
  KeyUnits units;
  if constexpr (kIsFloat<T>) {
    std::uint64_t largest = 0;
    const std::int64_t apart = launch.sampled ? std::max<std::int64_t>(launch.rows / KeyTablesLaunch::kSamples, 1) : 1;
    for (std::int64_t row = 0; row < launch.rows; row += apart) {
      const std::uint64_t magnitude = data[row] & launch.elements.magnitude;
      if (magnitude < FloatFormat<T>::kInfinity && IsKept(launch.array, row)) largest = std::max(largest, magnitude);
    }
    units = KeyUnitsFor<T>(largest, launch.sampled ? kSampledRoom : 0, kParts,
                           launch.shared ? KeyBinBits(1, launch.rows) : table.place[1]);
    if (launch.shared) units.low = table.place[0];
    if (adds) launch.header->unit = KeyUnitOf<T>(units);
  }
  // What an element adds to the bins, and whether it counts.
  const auto take = [&](Word word, std::int64_t group, std::int64_t(&part)[kParts]) {
    if constexpr (!kIsFloat<T>) {
      IntegerTermOf(word, launch.elements, part);
      return true;
    } else {
      const bool nan = IsNan(std::bit_cast<T>(word));
      if (nan) nan_at(group);
      if (nan && launch.elements.omit_nan) return false;
      if (!adds) return true;
      switch (TermOf<T>(word, units, part)) {
        case KeyTerm::kFits:
          break;
        case KeyTerm::kLow:
          table.bins[2][group] += static_cast<std::uint64_t>(part[0]);
          part[0] = 0;
          break;
        case KeyTerm::kNegativeZero:
          SetKeyFlag(table, group, kKeyNegativeZero);
          launch.header->negative_zeros = 1;
          break;
        case KeyTerm::kNan:
          SetKeyFlag(table, group, kKeyNan);
          break;
        case KeyTerm::kPositiveInfinity:
          SetKeyFlag(table, group, kKeyPositiveInfinity);
          break;
        case KeyTerm::kNegativeInfinity:
          SetKeyFlag(table, group, kKeyNegativeInfinity);
          break;
        case KeyTerm::kListed:
          if (const std::uint32_t at = launch.header->listed++; at < KeyTablesLaunch::kMostListed) {
            launch.listed[at] = {ToDouble(std::bit_cast<T>(word)), static_cast<std::uint64_t>(group)};
          }
          SetKeyFlag(table, group, kKeyListed);
          break;
      }
      return true;
    }
  };
  ForEachKeyedRow(launch, [&](std::int64_t row, std::int64_t group) {
    std::int64_t part[kParts] = {};
    const bool counts = take(data[row], group, part);
    if (counts && table.counts != nullptr) ++table.counts[group];
    if (!adds) return;
    if (launch.shared) {
      table.bins[0][group] += static_cast<std::uint32_t>(part[0]);
      table.bins[1][group] += static_cast<std::uint64_t>(part[0] >> 32);
    } else {
      for (int b = 0; b < kParts; ++b) table.bins[b][group] += static_cast<std::uint64_t>(part[b]);
    }
  });
  if constexpr (kIsFloat<T>) {
    if (launch.header->negative_zeros == 0) return;
    ForEachKeyedRow(launch, [&](std::int64_t row, std::int64_t group) {
      const T x = std::bit_cast<T>(data[row]);
      if (IsNan(x) ? !launch.elements.omit_nan : IsNonzero(x) || data[row] == 0) SetKeyFlag(table, group, kKeyOther);
    });
  }
}

cudaError_t LaunchKeySums(const KeyTablesLaunch& launch) {
  return LaunchOnHost(nullptr, [&] {
    if (!launch.shared) SampleKeys(launch);
    if (!launch.shared && IsSkewed(launch.header->pairs, launch.table)) return;
    VisitDType(launch.elements.dtype, [&]<class T>(std::type_identity<T>) {
      using Element = std::conditional_t<kIsFloat<T>, T, WordOfBytes<sizeof(T)>>;
      constexpr int kParts = (kIsFloat<T> ? 2 : 1) + (sizeof(T) == 8 ? 1 : 0);
      if (launch.shared) {
        if constexpr (sizeof(T) <= 4) AddKeySums<Element, 1>(launch);
      } else {
        AddKeySums<Element, kParts>(launch);
      }
    });
  });
}

template <int kBytes>
void AddKeyExtrema(const KeyTablesLaunch& launch) {
  const KeyTable& table = launch.table;
  const auto* const data = static_cast<const WordOfBytes<kBytes>*>(launch.array.data);
  ForEachKeyedRow(launch, [&](std::int64_t row, std::int64_t group) {
    const auto key = QuickExtremum<kBytes>::KeyOf(PreparedWord(data[row], launch.elements), launch.elements);
    const bool nan = IsNanKey<kBytes>(key, launch.elements);
    if (nan && table.nans != nullptr) ++table.nans[group];
    if (nan && launch.elements.omit_nan) return;
    if (table.counts != nullptr) ++table.counts[group];
    for (int i = 0; i < 2; ++i) {
      if (table.extrema[i] == nullptr) continue;
      const std::uint64_t entry = EntryOf<kBytes>(key, nan, i == 1, static_cast<std::uint32_t>(row));
      if (entry == 0) SetKeyFlag(table, group, i == 0 ? kKeyLowestIsZero : kKeyHighestIsZero);
      // Rows come from the last to the first.
      if (entry < table.extrema[i][group]) continue;
      table.extrema[i][group] = entry;
      if (table.at[i] != nullptr) table.at[i][group] = static_cast<std::uint32_t>(row);
    }
  });
}

cudaError_t LaunchKeyExtrema(const KeyTablesLaunch& launch) {
  return LaunchOnHost(nullptr, [&] {
    if (!launch.shared) SampleKeys(launch);
    if (!launch.shared && IsSkewed(launch.header->pairs, launch.table)) return;
    VisitDType(launch.elements.dtype,
               [&]<class T>(std::type_identity<T>) { AddKeyExtrema<static_cast<int>(sizeof(T))>(launch); });
  });
}

template <QuickKind kKind>
cudaError_t AnswerKeys(const KeyAnswersLaunch& launch) {
  return VisitQuickFold<kKind>(launch.elements.dtype, cudaErrorNotSupported, [&]<class Fold>(std::type_identity<Fold>) {
    return LaunchOnHost(nullptr, [&] {
      for (std::int64_t i = 0; i < launch.count; ++i) {
        const std::uint8_t left = AnswerKey<Fold>(launch, launch.first + i, i) ? kAnswered : kNotKnown;
        if (!launch.after || left != kAnswered) launch.left[i] = left;
      }
    });
  });
}
cudaError_t LaunchKeyAnswers(const KeyAnswersLaunch& launch) {
  return launch.kind == QuickKind::kExtrema ? AnswerKeys<QuickKind::kExtrema>(launch)
                                            : AnswerKeys<QuickKind::kSums>(launch);
}

cudaError_t LaunchKeyRecords(const KeyRecordsLaunch& launch) {
  return LaunchOnHost(nullptr, [&] {
    for (std::int64_t i = 0; i < launch.count; ++i) launch.records[i] = KeyRecordOf(launch.table, launch.groups[i]);
  });
}

cudaError_t LaunchQuickSums(const QuickLaunch& launch) { return FoldSlicesQuickly<QuickKind::kSums>(launch); }
cudaError_t LaunchQuickMoments(const QuickLaunch& launch) { return FoldSlicesQuickly<QuickKind::kMoments>(launch); }
cudaError_t LaunchQuickExtrema(const QuickLaunch& launch) { return FoldSlicesQuickly<QuickKind::kExtrema>(launch); }
cudaError_t LaunchQuickCounts(const QuickLaunch& launch) { return FoldSlicesQuickly<QuickKind::kCounts>(launch); }
cudaError_t LaunchQuickBits(const QuickLaunch& launch) { return FoldSlicesQuickly<QuickKind::kBits>(launch); }
cudaError_t LaunchQuickProducts(const QuickLaunch& launch) { return FoldSlicesQuickly<QuickKind::kProducts>(launch); }

cudaError_t LaunchGather(const GatherLaunch& launch) {
  return LaunchOnHost(nullptr, [&] {
    for (std::int64_t i = 0; i < launch.count; ++i) {
      std::int64_t rest = launch.first + i;
      const std::byte* from = launch.data;
      for (int d = launch.dimensions; d-- > 0; rest /= launch.sizes[d]) {
        from += rest % launch.sizes[d] * launch.strides[d];
      }
      auto* const to = static_cast<std::byte*>(launch.to) + i * launch.width;
      std::memcpy(to, from, static_cast<std::size_t>(launch.width));
      if (launch.swaps) std::reverse(to, to + launch.width);
    }
  });
}

cudaError_t LaunchReadAll(const void*, std::int64_t, int, cudaStream_t) {
  return LaunchOnHost(nullptr, [] {});
}

cudaError_t LaunchMatmulPeak(DType, int, int, void*, cudaStream_t, double* operations) {
  *operations = 1;
  return LaunchOnHost(nullptr, [] {});
}

const MatmulKernel kMatmulGlobal = kProduct, kMatmulShared1 = kProduct, kMatmulShared2 = kProduct;
const MatmulKernel kMatmulShared3 = kProduct, kMatmulShared4 = kProduct, kMatmulShared5 = kProduct;
const MatmulKernel kMatmulRegisterTile = kProduct, kMatmulTensorF64 = kProduct;
const MatmulKernel kMatmulCublas = {&Multiply, nullptr};
absl::Status CublasStatus() { return absl::OkStatus(); }

const CudaPipeline kSinglePass = {nullptr, nullptr, &FoldArray, nullptr, nullptr, &KeepsTime};
const CudaPipeline kCub = {&BytesOf, nullptr, &FoldArray, nullptr};
const CudaPipeline kNeighbored = kInPlaceRung, kNeighboredLess = kInPlaceRung, kInterleaved = kInPlaceRung;
const CudaPipeline kUnroll2 = kInPlaceRung, kUnroll4 = kInPlaceRung, kUnroll8 = kInPlaceRung;
const CudaPipeline kUnrollWarps2 = kInPlaceRung, kUnrollWarps8 = kInPlaceRung;
const CudaPipeline kCompleteUnroll8 = kInPlaceRung, kTemplateUnroll8 = kInPlaceRung;
const CudaPipeline kSharedNeighbored = kInPlaceRung, kSharedNeighboredLess = kInPlaceRung;
const CudaPipeline kSharedInterleaved = kInPlaceRung, kSharedUnrollWarp = kInPlaceRung, kSharedAtomic = kInPlaceRung;
const CudaPipeline kWarpSync = kInPlaceRung, kWarpShuffle = kInPlaceRung, kCooperativeGroups = kInPlaceRung;
const CudaPipeline kTwoLevelShuffle = kInPlaceRung, kGridStrideTwoPass = kInPlaceRung;
const CudaPipeline kSharedFirstAdd = kInPlaceRung, kCooperativeGroupsTree = kInPlaceRung;
const CudaPipeline kDivergentMap = kInPlaceRung, kUniformMap = kInPlaceRung;

}  // namespace reduced

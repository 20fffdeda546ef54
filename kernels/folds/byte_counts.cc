#include "kernels/folds/byte_counts.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "kernels/algebra/accumulator.h"
#include "kernels/algebra/sort_key.h"
#include "kernels/exact/answers.h"
#include "kernels/exact/terms.h"
#include "kernels/folds/elements.h"
#include "kernels/folds/histogram_bins.h"
#include "kernels/folds/quantile_answers.h"
#include "kernels/folds/term_sums.h"

namespace reduced {
namespace {

using Counts = std::span<const unsigned long long>;  // by the bits of an element

template <class T>
T ElementOf(int value) {
  return std::bit_cast<T>(static_cast<std::conditional_t<sizeof(T) == 1, std::uint8_t, std::uint16_t>>(value));
}

// Calls visit(std::type_identity<T>{}) for the C++ type of a dtype of at most so many bytes.
template <std::size_t kBytes, class Visitor>
void VisitNarrowDType(DType dtype, const Visitor& visit) {
  VisitDType(dtype, [&]<class T>(std::type_identity<T> type) {
    if constexpr (sizeof(T) <= kBytes) visit(type);
  });
}

// Horner's rule, by which what adds elements adds as many copies of each as there are: for each bit of the counts, the
// highest first, twice() doubles what is known, and add(values) adds those whose counts have the bit.
template <class Twice, class Add>
void AddCopies(const ByteCounts& counts, const Twice& twice, const Add& add) {
  unsigned long long bits = 0;
  for (const unsigned long long count : counts.counts) bits |= count;
  std::vector<std::uint8_t> values;
  for (int bit = std::bit_width(bits) - 1; bit >= 0; --bit) {
    twice();
    values.clear();
    for (int value = 0; value < kByteValues; ++value) {
      if ((counts.counts[value] >> bit & 1) != 0) values.push_back(static_cast<std::uint8_t>(value));
    }
    add(values);
  }
}

// A product whose mantissa has twice the precision of a double, since squaring doubles what rounding took from it.
struct LongProduct {
  FloatProduct product;
  double rest = 0;  // of the mantissa

  void Multiply(const LongProduct& by) {
    const double a = product.mantissa, b = by.product.mantissa;
    const double high = a * b, low = std::fma(a, b, -high) + (a * by.rest + rest * b);
    FloatProduct next{high + low, product.exponent + by.product.exponent};
    const bool has_rest = std::isfinite(next.mantissa) && next.mantissa != 0;
    rest = has_rest ? low - (next.mantissa - high) : 0;
    if (!has_rest) next.mantissa = high;  // 0, infinite or NaN, as is what `low` was computed from
    const std::int64_t before = next.exponent;
    Normalize(next);
    rest = std::ldexp(rest, static_cast<int>(before - next.exponent));
    product = next;
  }
};

template <class T>
FloatProduct ProductOfCounts(const ByteCounts& counts, bool omits_nans) {
  LongProduct all;
  AddCopies(
      counts, [&] { all.Multiply(LongProduct(all)); },
      [&](const std::vector<std::uint8_t>& values) {
        for (const std::uint8_t value : values) {
          const auto x = ElementOf<T>(value);
          if (omits_nans && IsNan(x)) continue;
          LongProduct factor{{ToDouble(x), 0}};
          Normalize(factor.product);
          all.Multiply(factor);
        }
      });
  return all.product;
}

ByteCounts WithoutCopies(ByteCounts counts) {
  for (unsigned long long& count : counts.counts) count = std::min(count, 1ULL);
  return counts;
}

template <class T>
void AddAccumulators(const ByteCounts& counts, AccumulatorSet set, bool omits_nans, Partial* into) {
  AllAccumulators<T>::ForEach([&]<class A>(std::type_identity<A>) {
    if ((SetOf(A::kAccumulator) & set) == 0) return;
    if constexpr (kIsFloat<T> && A::kAccumulator == Accumulator::kProduct) {
      into->float_product = ProductOfCounts<T>(counts, omits_nans);
      return;
    }
    const bool are_equal = A::kAccumulator == Accumulator::kExtrema;  // one copy tells as much as many
    const bool skips_nans = omits_nans && A::kAccumulator != Accumulator::kCounts;
    typename A::State state = A::Settle({});
    AddCopies(
        are_equal ? WithoutCopies(counts) : counts, [&] { A::Merge(state, typename A::State(state)); },
        [&](const std::vector<std::uint8_t>& values) {
          typename A::Local some{};
          for (const std::uint8_t value : values) {
            const auto x = ElementOf<T>(value);
            if (!skips_nans || !IsNan(x)) A::Add(some, x, 0);
          }
          A::Merge(state, A::Settle(some));
        });
    A::Store(state, into);
  });
}

// Adds `copies` of a float, which have a sum and a sum of squares that are doubles: no more than 2^44 at a time.
void AddExactly(double x, std::int64_t copies, AccumulatorSet set, ExactSums* into) {
  constexpr std::int64_t kMost = std::int64_t{1} << 44;
  constexpr int kDigits = std::numeric_limits<double>::digits;
  if (copies == 0) return;
  if (!std::isfinite(x)) {
    (std::isnan(x) ? into->nans : x > 0 ? into->positive_infinities : into->negative_infinities) += copies;
    if (std::isinf(x) && (set & SetOf(Accumulator::kSum)) != 0) into->not_only_negative_zeros = true;
    return;
  }
  for (std::int64_t some = 0; copies > 0; copies -= some) {
    some = std::min(copies, kMost);
    const auto number = static_cast<double>(some);
    Add(x * number, set & ~SetOf(Accumulator::kSumSquares), /*elsewhere=*/false, into);
    if ((set & SetOf(Accumulator::kSumSquares)) == 0 || x == 0) continue;
    int exponent = 0;
    const double mantissa = std::frexp(x * x * number, &exponent);
    into->sum_squares.Add(static_cast<std::int64_t>(std::ldexp(mantissa, kDigits)), exponent - kDigits);
  }
}

// How many elements have each sort key; `zeros_join`: -0 has the key of +0.
template <class T>
std::vector<std::uint64_t> CountsOfKeys(Counts counts, bool zeros_join) {
  std::vector<std::uint64_t> of_key(counts.size());
  for (std::size_t value = 0; value < counts.size(); ++value) {
    const auto x = ElementOf<T>(static_cast<int>(value));
    of_key[zeros_join ? SortKey<T>::OfValue(x) : SortKey<T>::Of(x)] += counts[value];
  }
  return of_key;
}

// The state of mode and of different values.
template <class T>
Entries KeyEntries(const OpCall& call, const ReduceSpec& spec, Counts counts) {
  Entries entries = NoEntries(call, spec.dtype);
  const bool are_different = entries.rule == EntriesRule::kUnion;
  std::vector<std::uint64_t> of_key = CountsOfKeys<T>(counts, /*zeros_join=*/true);
  if (kIsFloat<T> && are_different && spec.nan_policy == NanPolicy::kOmit) of_key[SortKey<T>::kNan] = 0;
  for (std::size_t key = 0; key < of_key.size(); ++key) {
    if (of_key[key] == 0) continue;
    entries.keys.push_back(key);
    if (!are_different) entries.values.push_back(of_key[key]);
  }
  return entries;
}

template <class T>
absl::Status AnswerQuantiles(const OpCall& call, const ReduceSpec& spec, Counts counts, std::byte* answers) {
  const std::vector<std::uint64_t> of_key = CountsOfKeys<T>(counts, /*zeros_join=*/false);
  const auto nans = static_cast<std::int64_t>(kIsFloat<T> ? of_key[SortKey<T>::kNan] : 0);
  const std::vector<std::int64_t> ranks = QuantileRanks(call, spec, spec.count, spec.count - nans);
  std::vector<typename SortKey<T>::Type> keys;
  std::int64_t below = 0;
  for (std::size_t key = 0; key < of_key.size() && keys.size() < ranks.size(); ++key) {
    below += static_cast<std::int64_t>(of_key[key]);
    while (keys.size() < ranks.size() && ranks[keys.size()] < below) {
      keys.push_back(static_cast<typename SortKey<T>::Type>(key));
    }
  }
  keys.resize(ranks.size());  // another process may have changed the elements
  return FinishQuantiles<T>(call, spec, spec.count, spec.count - nans, ranks, keys, answers);
}

template <class T>
Entries BinEntries(const OpCall& call, const ReduceSpec& spec, Counts counts) {
  const HistogramBins<T> bins(call.given().edges);
  const BinFinder<T>& finder = bins.finder();
  Entries entries = NoEntries(call, spec.dtype);
  if (finder.used == 0) return entries;
  const std::vector<std::uint64_t> of_key = CountsOfKeys<T>(counts, /*zeros_join=*/false);
  for (std::size_t key = 0; key < of_key.size(); ++key) {
    const T x = SortKey<T>::Element(static_cast<typename SortKey<T>::Type>(key));
    const auto value = BinFinder<T>::ValueOf(x);
    if (of_key[key] == 0 || !finder.Has(value)) continue;
    const auto bin = static_cast<std::uint64_t>(std::min(finder.BinOf(x, value), finder.used - 1));
    if (entries.keys.empty() || entries.keys.back() != bin) entries.Add(bin, 0);
    entries.values.back() += of_key[key];
  }
  return entries;
}

Entries TermEntries(const OpCall& call, const ReduceSpec& spec, Counts of_value) {
  ByteCounts counts;
  std::ranges::copy(of_value, counts.counts);
  TermSums sums(call, spec);
  AddCopies(
      counts, [&] { sums.Merge(sums); },
      [&](const std::vector<std::uint8_t>& values) { sums.Add(values.data(), nullptr, std::ssize(values)); });
  Entries entries = NoEntries(call, spec.dtype);
  sums.Save(&entries);
  return entries;
}

// Gives a fold of topk or bottomk the k best elements.
template <class T>
absl::Status AddBest(const OpCall& call, const ReduceSpec& spec, Counts counts, DistributionFold* fold) {
  const std::vector<std::uint64_t> of_key = CountsOfKeys<T>(counts, /*zeros_join=*/false);
  constexpr bool kHasNan = kIsFloat<T>;
  std::vector<T> best;
  const auto add = [&](std::size_t key) {
    const auto room = static_cast<std::uint64_t>(call.given().k - std::ssize(best));
    best.insert(best.end(), std::min<std::uint64_t>(of_key[key], room),
                SortKey<T>::Element(static_cast<typename SortKey<T>::Type>(key)));
  };
  constexpr std::size_t kLast = SortKey<T>::kMost;
  if (kHasNan && spec.nan_policy == NanPolicy::kPropagate) add(kLast);
  for (std::size_t i = 0; i <= kLast - (kHasNan ? 1 : 0) && std::ssize(best) < call.given().k; ++i) {
    add(call.op == Op::kBottomK ? i : kLast - (kHasNan ? 1 : 0) - i);
  }
  return fold->Add(best.data(), nullptr, 0, std::ssize(best));
}

}  // namespace

bool AnsweredByCounts(const OpCall& call, DType dtype) {
  const int bytes = RowOf(dtype).bytes;
  if (bytes > 2) return false;
  switch (call.op) {
    case Op::kMedian:
    case Op::kQuantile:
    case Op::kHistogram:
    case Op::kTopK:
    case Op::kBottomK:
    case Op::kDistinct:
    case Op::kDistinctExact:
    case Op::kMode:
      return true;
    default:
      return bytes == 1 && (HasAccumulator(call) || call.op == Op::kSkew || call.op == Op::kKurtosis);
  }
}

State StateOfCounts(const ReduceSpec& spec, const ByteCounts& counts) {
  State state;
  Partial& partial = state.partial;
  partial.count = spec.count;
  const bool omits_nans = spec.nan_policy == NanPolicy::kOmit;
  const AccumulatorSet exact = ExactAccumulatorsFor(spec);
  if (exact != 0) state.exact = std::make_unique<ExactSums>();
  VisitNarrowDType<1>(spec.dtype, [&]<class T>(std::type_identity<T>) {
    AddAccumulators<T>(counts, AccumulatorsFor(spec), omits_nans, &partial);
    for (int value = 0; kIsFloat<T> && exact != 0 && value < kByteValues; ++value) {
      if constexpr (kIsFloat<T>) {
        AddExactly(ToDouble(ElementOf<T>(value)), static_cast<std::int64_t>(counts.counts[value]), exact,
                   state.exact.get());
      }
    }
  });
  const auto place = [](unsigned long long inverse, std::int64_t* index) {
    if (*index != kNoIndex && inverse != 0) *index = static_cast<std::int64_t>(~inverse);
  };
  place(counts.inverse_least, &partial.extrema.min_index);
  place(counts.inverse_greatest, &partial.extrema.max_index);
  place(counts.inverse_nan, &partial.extrema.nan_index);
  return state;
}

absl::Status AnswerFromCounts(const OpCall& call, const ReduceSpec& spec, Counts counts, const FoldLimits& limits,
                              std::byte* answers) {
  const std::unique_ptr<DistributionFold> fold = MakeDistributionFold(call, spec, limits);
  absl::Status status;
  VisitNarrowDType<2>(spec.dtype, [&]<class T>(std::type_identity<T>) {
    if (call.op == Op::kTopK || call.op == Op::kBottomK) {
      status = fold->Begin(spec.count);
      if (status.ok()) status = AddBest<T>(call, spec, counts, fold.get());
      if (status.ok()) status = fold->Finish([](std::int64_t rank) { return rank; }, answers);
      return;
    }
    if (IsQuantile(call)) {
      status = AnswerQuantiles<T>(call, spec, counts, answers);
      return;
    }
    const bool has_terms = !TermsOf(call.op).empty();
    status = AnswerFromState(has_terms                   ? TermEntries(call, spec, counts)
                             : call.op == Op::kHistogram ? BinEntries<T>(call, spec, counts)
                                                         : KeyEntries<T>(call, spec, counts),
                             *fold, answers);
  });
  return status;
}

}  // namespace reduced

#include "kernels/cpu/quick_answers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "kernels/algebra/finalize.h"
#include "kernels/algebra/float_format.h"

namespace reduced {
namespace {

static_assert(kQuickOutputs <= QuickExtrema::kMost);

// What is found: sums of terms, extrema and bits, as a set of bits.
constexpr unsigned Bit(Term term) { return 1U << static_cast<int>(term); }
constexpr unsigned kExtrema = 1U << kTerms;
constexpr unsigned kFirstBits = kExtrema << 1;

constexpr std::size_t BitsIndex(Op op) { return static_cast<std::size_t>(op) - static_cast<std::size_t>(Op::kBitAnd); }
static_assert(BitsIndex(Op::kBitXor) == 2);

// What answers one of spec's ops; absent: it is not answered quickly.
std::optional<unsigned> TakesOf(Op op, const ReduceSpec& spec) {
  const unsigned nans = RowOf(spec.dtype).is_float ? Bit(Term::kNan) : 0;
  const unsigned omitted = spec.nan_policy == NanPolicy::kOmit ? nans : 0;
  switch (RowOf(op).accumulator) {
    case Accumulator::kSum:
      return Bit(Term::kElement) | (op == Op::kMean ? omitted : 0);
    case Accumulator::kAbsSum:
      return Bit(Term::kMagnitude);
    case Accumulator::kSumSquares:
      return Bit(Term::kSquare);
    case Accumulator::kMoments:
      return Bit(Term::kElement) | Bit(Term::kSquare) | omitted;
    case Accumulator::kExtrema:
      return kExtrema;
    case Accumulator::kCounts:
      if (op == Op::kCount) return omitted;
      return op == Op::kNanCount ? nans : Bit(Term::kNonzero) | omitted;
    case Accumulator::kBits:
      return kFirstBits << BitsIndex(op);
    case Accumulator::kProduct:
    case Accumulator::kNone:
      return std::nullopt;
  }
  __builtin_unreachable();
}

constexpr unsigned kRounded = Bit(Term::kElement) | Bit(Term::kMagnitude) | Bit(Term::kSquare);

// Whether the bits of a T, one of the floats, are a NaN's.
template <class T, class Word>
bool IsNanBits(Word bits) {
  return IsNan(std::bit_cast<T>(bits));  // of f32 and f64 one instruction for a vector
}

// Of `count` neighbouring elements of a dtype of floats: whether one is NaN.
bool HasNan(DType dtype, const std::byte* from, std::int64_t count) {
  return VisitDType(dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (kIsFloat<T>) {
      using Word = typename FloatFormat<T>::Word;
      Word found = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        Word bits;
        std::memcpy(&bits, from + i * static_cast<std::int64_t>(sizeof(bits)), sizeof(bits));
        found |= IsNanBits<T>(bits) ? Word{1} : Word{0};
      }
      return found != 0;
    }
    return false;
  });
}

// Copies them; -0, which changes no sum, in place of NaNs.
void CopyWithoutNans(DType dtype, const std::byte* from, std::int64_t count, std::byte* to) {
  VisitDType(dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (kIsFloat<T>) {
      using Word = typename FloatFormat<T>::Word;
      constexpr auto kNothing = static_cast<Word>(Word{1} << (8 * sizeof(Word) - 1));
      for (std::int64_t i = 0; i < count; ++i) {
        Word bits;
        std::memcpy(&bits, from + i * static_cast<std::int64_t>(sizeof(bits)), sizeof(bits));
        bits = IsNanBits<T>(bits) ? kNothing : bits;
        std::memcpy(to + i * static_cast<std::int64_t>(sizeof(bits)), &bits, sizeof(bits));
      }
    }
  });
}

// Room of this thread for at least so many bytes; of copies without NaNs, and of widened ones.
template <bool kWidened = false>
std::byte* Room(std::int64_t bytes) {
  thread_local std::vector<std::byte> room;
  if (std::ssize(room) < bytes) room.resize(static_cast<std::size_t>(bytes));
  return room.data();
}

}  // namespace

std::optional<QuickAnswers> QuickAnswers::For(const ReduceSpec& spec) {
  QuickAnswers quick(spec);
  unsigned takes = 0;
  for (const Op op : spec.ops) {
    const std::optional<unsigned> more = TakesOf(op, spec);
    if (!more.has_value()) return std::nullopt;
    takes |= *more;
    quick.positions_ = With(op, quick.positions_);
  }
  for (int term = 0; term < kTerms; ++term) {
    if ((takes & (1U << term)) == 0) continue;
    QuickSumsOf& of = quick.sums_[static_cast<std::size_t>(term)];
    of = QuickSumsFor(spec.dtype, static_cast<Term>(term));
    if (of.rows == nullptr) return std::nullopt;
  }
  if ((takes & kExtrema) != 0) {
    quick.extrema_ = QuickExtremaFor(spec.dtype, spec.nan_policy);
    if (!quick.takes_extrema()) return std::nullopt;
  }
  for (const Op op : {Op::kBitAnd, Op::kBitOr, Op::kBitXor}) {
    if ((takes & (kFirstBits << BitsIndex(op))) == 0) continue;
    QuickBitsOf& of = quick.bits_[BitsIndex(op)];
    of = QuickBitsFor(spec.dtype, op);
    if (of.rows == nullptr) return std::nullopt;
  }
  quick.stores_ = QuickStoresFor();
  quick.copies_ = quick.omits_nans() && (takes & (kRounded | Bit(Term::kNan))) != 0;
  return quick;
}

bool QuickAnswers::omits_nans() const { return RowOf(spec_.dtype).is_float && spec_.nan_policy == NanPolicy::kOmit; }

std::int64_t QuickAnswers::BytesOf(Op op) const { return RowOf(ResultDType(op, given_)).bytes; }

template <class Function>
void QuickAnswers::ForTerms(const Function& function) const {
  for (std::size_t term = 0; term < sums_.size(); ++term) {
    if (sums_[term].rows != nullptr) function(sums_[term], term);
  }
}

bool QuickAnswers::takes_bits() const {
  return std::any_of(bits_.begin(), bits_.end(), [](const QuickBitsOf& of) { return of.rows != nullptr; });
}

template <class Function>
void QuickAnswers::ForBits(const Function& function) const {
  for (std::size_t i = 0; i < bits_.size(); ++i) {
    if (bits_[i].rows != nullptr) function(bits_[i], i);
  }
}

template <class Find>
void QuickAnswers::FindSums(std::int64_t count, bool omits, const Find& find, QuickFound* found) const {
  ForTerms([&](const QuickSumsOf& of, std::size_t term) {
    const bool rounded = (kRounded & (1U << term)) != 0;
    if (static_cast<Term>(term) == Term::kNan && omits_nans() && !omits) {
      ClearSums(count, &found->sums[term]);  // it is known already
    } else if (!rounded || !omits) {
      find(of, &found->sums[term]);
    }
  });
}

template <class Find>
void QuickAnswers::FindSumsOfCopy(const Find& find, QuickFound* found) const {
  ForTerms([&](const QuickSumsOf& of, std::size_t term) {
    if ((kRounded & (1U << term)) != 0) find(of, &found->sums[term]);
  });
}

void QuickAnswers::FindColumns(const Layout& layout, const std::byte* start, std::int64_t count,
                               QuickFound* found) const {
  if (widen_ == nullptr) return FindInColumns(layout, start, count, found);
  const Dimension inner = layout.reduced.empty() ? Dimension{.size = 1} : layout.reduced.back();
  const std::int64_t row = count * RowOf(spec_.dtype).bytes;
  const std::int64_t most = std::clamp<std::int64_t>(kQuickBytes / row, 1, inner.size);
  std::byte* const wide = Room<true>(most * row);
  const auto some_found = std::make_unique_for_overwrite<QuickFound>();
  Clear(count, found);
  for (std::int64_t first = 0; first < layout.elements;) {
    const std::int64_t n = std::min(most, inner.size - first % inner.size);
    const std::byte* from = start + layout.At(first);
    for (std::int64_t r = 0; r < n; ++r, from += inner.stride) widen_(from, count, wide + r * row);
    const Layout some{.outputs = count, .elements = n, .reduced = {{.size = n, .stride = count}}};
    FindInColumns(some, wide, count, some_found.get());
    Merge(*some_found, 0, count, first, /*step=*/1, found);
    first += n;
  }
}

void QuickAnswers::FindRows(const std::byte* start, std::int64_t elements, std::int64_t count,
                            QuickFound* found) const {
  if (widen_ == nullptr) return FindInRows(start, elements, count, found);
  std::byte* const wide = Room<true>(count * elements * RowOf(spec_.dtype).bytes);
  widen_(start, count * elements, wide);
  FindInRows(wide, elements, count, found);
}

void QuickAnswers::FindSegments(const std::byte* start, const std::int64_t* bounds, std::int64_t count,
                                QuickFound* found) const {
  if (widen_ == nullptr) return FindInSegments(start, bounds, count, found);
  std::byte* const wide = Room<true>((bounds[count] - bounds[0]) * RowOf(spec_.dtype).bytes);
  widen_(start + bounds[0], bounds[count] - bounds[0], wide);
  std::int64_t of_wide[kQuickOutputs + 1];
  for (std::int64_t i = 0; i <= count; ++i) of_wide[i] = bounds[i] - bounds[0];
  FindInSegments(wide, of_wide, count, found);
}

void QuickAnswers::FindInColumns(const Layout& layout, const std::byte* start, std::int64_t count,
                                 QuickFound* found) const {
  const std::int64_t width = RowOf(spec_.dtype).bytes;
  const Dimension inner = layout.reduced.empty() ? Dimension{.size = 1} : layout.reduced.back();
  bool omits = false;
  for (std::int64_t run = 0; copies_ && !omits && run < layout.elements; run += inner.size) {
    const std::byte* const rows = start + layout.At(run) * width;
    for (std::int64_t i = 0; i < inner.size && !omits; ++i) {
      omits = HasNan(spec_.dtype, rows + i * inner.stride * width, count);
    }
  }
  FindSums(
      count, omits, [&](const QuickSumsOf& of, QuickSums* sums) { of.columns(layout, start, count, sums); }, found);
  if (takes_extrema()) extrema_.columns(layout, start, count, positions_, &found->extrema);
  ForBits([&](const QuickBitsOf& of, std::size_t i) { of.columns(layout, start, count, &found->bits[i]); });
  if (!omits) return;
  const std::int64_t row = count * width;
  const std::int64_t most = std::clamp<std::int64_t>(kQuickBytes / row, 1, inner.size);
  std::byte* const copy = Room(most * row);
  FindSumsOfCopy([&](const QuickSumsOf&, QuickSums* sums) { ClearSums(count, sums); }, found);
  for (std::int64_t run = 0; run < layout.elements; run += inner.size) {
    const std::byte* const rows = start + layout.At(run) * width;
    for (std::int64_t i = 0; i < inner.size; i += most) {
      const std::int64_t n = std::min(most, inner.size - i);
      for (std::int64_t r = 0; r < n; ++r) {
        CopyWithoutNans(spec_.dtype, rows + (i + r) * inner.stride * width, count, copy + r * row);
      }
      const Layout some{.outputs = count, .elements = n, .reduced = {{.size = n, .stride = count}}};
      const auto add = [&](const QuickSumsOf& of, QuickSums* sums) {
        QuickSums more;
        of.columns(some, copy, count, &more);
        MergeSums(more, 0, count, sums);
      };
      FindSumsOfCopy(add, found);
    }
  }
}

void QuickAnswers::FindInRows(const std::byte* start, std::int64_t elements, std::int64_t count,
                              QuickFound* found) const {
  const bool omits = copies_ && HasNan(spec_.dtype, start, count * elements);
  FindSums(
      count, omits, [&](const QuickSumsOf& of, QuickSums* sums) { of.rows(start, elements, count, sums); }, found);
  if (takes_extrema()) extrema_.rows(start, elements, count, positions_, &found->extrema);
  ForBits([&](const QuickBitsOf& of, std::size_t i) { of.rows(start, elements, count, &found->bits[i]); });
  if (!omits) return;
  std::byte* const copy = Room(count * elements * RowOf(spec_.dtype).bytes);
  CopyWithoutNans(spec_.dtype, start, count * elements, copy);
  FindSumsOfCopy([&](const QuickSumsOf& of, QuickSums* sums) { of.rows(copy, elements, count, sums); }, found);
}

void QuickAnswers::FindInSegments(const std::byte* start, const std::int64_t* bounds, std::int64_t count,
                                  QuickFound* found) const {
  const std::int64_t elements = bounds[count] - bounds[0];
  const std::byte* const from = start + bounds[0] * RowOf(spec_.dtype).bytes;
  const bool omits = copies_ && HasNan(spec_.dtype, from, elements);
  FindSums(
      count, omits, [&](const QuickSumsOf& of, QuickSums* sums) { of.segments(start, bounds, count, sums); }, found);
  if (takes_extrema()) extrema_.segments(start, bounds, count, positions_, &found->extrema);
  ForBits([&](const QuickBitsOf& of, std::size_t i) { of.segments(start, bounds, count, &found->bits[i]); });
  if (!omits) return;
  std::byte* const copy = Room(elements * RowOf(spec_.dtype).bytes);
  CopyWithoutNans(spec_.dtype, from, elements, copy);
  std::int64_t of_copy[kQuickOutputs + 1];
  for (std::int64_t i = 0; i <= count; ++i) of_copy[i] = bounds[i] - bounds[0];
  FindSumsOfCopy([&](const QuickSumsOf& of, QuickSums* sums) { of.segments(copy, of_copy, count, sums); }, found);
}

void QuickAnswers::Clear(std::int64_t count, QuickFound* found) const {
  ForTerms([&](const QuickSumsOf&, std::size_t term) { ClearSums(count, &found->sums[term]); });
  if (takes_extrema()) extrema_.clear(count, &found->extrema);
  ForBits([&](const QuickBitsOf& of, std::size_t i) { of.clear(count, &found->bits[i]); });
}

void QuickAnswers::Merge(const QuickFound& from, std::int64_t at, std::int64_t count, std::int64_t offset,
                         std::int64_t step, QuickFound* found) const {
  ForTerms([&](const QuickSumsOf&, std::size_t term) { MergeSums(from.sums[term], at, count, &found->sums[term]); });
  if (takes_extrema()) extrema_.merge(from.extrema, at, count, offset, step, positions_, &found->extrema);
  ForBits([&](const QuickBitsOf& of, std::size_t i) { of.merge(from.bits[i], at, count, &found->bits[i]); });
}

std::int64_t QuickAnswers::Counted(const QuickFound& found, Term term, std::int64_t i) const {
  return takes(term) ? static_cast<std::int64_t>(found.of(term).sum[i]) : 0;
}

void QuickAnswers::StoreCounts(Op op, const QuickFound& found, std::int64_t first, std::int64_t count,
                               const std::int64_t* elements, std::byte* out) const {
  for (std::int64_t g = 0; g < count; ++g) {
    const ElementCounts counts{elements[g], Counted(found, Term::kNonzero, first + g),
                               Counted(found, Term::kNan, first + g)};
    const std::int64_t number = CountAnswer(op, counts, omits_nans());
    if (BytesOf(op) == 1) {  // any and all
      out[g] = static_cast<std::byte>(number);
    } else {
      std::memcpy(out + g * static_cast<std::int64_t>(sizeof(number)), &number, sizeof(number));
    }
  }
}

void QuickAnswers::Store(const QuickFound& found, const std::int64_t* elements, std::int64_t count,
                         const std::vector<std::byte*>& answers, std::int64_t first, bool* known) const {
  if (takes_extrema() && found.extrema.any_nan) {
    for (std::int64_t i = 0; i < count; ++i) known[i] = known[i] && !found.extrema.has_nan[i];
  }
  const QuickSums& elements_sums = found.of(Term::kElement);
  const QuickSums& squares = found.of(Term::kSquare);
  std::int64_t without_nans[kQuickOutputs];
  const std::int64_t* const counted = omits_nans() ? without_nans : elements;
  for (std::int64_t i = 0; omits_nans() && i < count; ++i) {
    without_nans[i] = elements[i] - Counted(found, Term::kNan, i);
    // The sum of nothing is 0, and only that of nothing but -0 is -0: there may be NaNs besides it.
    const double sum = elements_sums.sum[i];
    if (takes(Term::kElement) && sum == 0 && std::signbit(sum)) known[i] = false;
  }
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const Op op = spec_.ops[i];
    std::byte* const out = answers[i] + first * BytesOf(op);
    switch (RowOf(op).accumulator) {
      case Accumulator::kSum:
        if (op == Op::kMean) {
          stores_.means(elements_sums, count, counted, out, known);
        } else {
          StoreSums(op, elements_sums, count, out, known);
        }
        break;
      case Accumulator::kAbsSum:
        StoreSums(op, found.of(Term::kMagnitude), count, out, known);
        break;
      case Accumulator::kSumSquares:
      case Accumulator::kMoments:
        if (op == Op::kSumSquares) {
          StoreSums(op, squares, count, out, known);
        } else {
          stores_.moments(op, elements_sums, squares, count, counted, spec_.ddof, out, known);
        }
        break;
      case Accumulator::kCounts:
        StoreCounts(op, found, 0, count, elements, out);
        break;
      case Accumulator::kBits:
        bits_[BitsIndex(op)].store(found.bits[BitsIndex(op)], count, out);
        break;
      default:
        StoreExtrema(found.extrema, op, 0, count, out);
        break;
    }
  }
}

void QuickAnswers::StoreExtrema(const QuickExtrema& extrema, Op op, std::int64_t first, std::int64_t count,
                                std::byte* out) const {
  if (widen_ == nullptr || ResultDType(op, given_) != given_) return extrema_.store(extrema, op, first, count, out);
  std::byte wide[kQuickOutputs * sizeof(Half)];
  extrema_.store(extrema, op, first, count, wide);
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, wide + i * static_cast<std::int64_t>(sizeof(bits)), sizeof(bits));
    StoreValue({given_, spec_.dtype == DType::kF16 ? ToDouble(Half{bits}) : ToDouble(BFloat16{bits})}, out + i);
  }
}

void QuickAnswers::StoreSums(Op op, const QuickSums& sums, std::int64_t count, std::byte* out, bool* known) const {
  const DType result = ResultDType(op, spec_.dtype);
  const auto store = result == DType::kF64   ? stores_.f64_sums
                     : result == DType::kI64 ? stores_.i64_sums
                                             : stores_.u64_sums;
  store(sums, count, out, known);
}

bool QuickAnswers::MayBeSpecial(const QuickFound& found, std::int64_t i) const {
  if (!RowOf(spec_.dtype).is_float) return false;
  bool special = takes_extrema() && found.extrema.has_nan[i];
  ForTerms([&](const QuickSumsOf&, std::size_t term) { special = special || !std::isfinite(found.sums[term].sum[i]); });
  return special;
}

void QuickAnswers::Look(const std::byte* elements, std::int64_t count, std::int64_t stride, std::int64_t position,
                        Specials* specials) const {
  if (specials->first_nan.has_value()) return;
  VisitDType(given_, [&]<class T>(std::type_identity<T>) {
    if constexpr (kIsFloat<T>) {
      for (std::int64_t i = 0; i < count; ++i) {
        T x;
        std::memcpy(&x, elements + i * stride, sizeof(x));
        if (IsFinite(x)) continue;
        if (IsNan(x)) {
          if (omits_nans()) continue;
          specials->first_nan = position + i;
          return;
        }
        (ToDouble(x) > 0 ? specials->positive_infinity : specials->negative_infinity) = true;
      }
    }
  });
}

bool QuickAnswers::StoreSpecial(const QuickFound& found, std::int64_t i, const Specials& specials,
                                std::int64_t elements, const std::vector<std::byte*>& answers,
                                std::int64_t output) const {
  const SpecialValues values = specials.values();
  if (!values.any()) return false;
  for (std::size_t k = 0; k < answers.size(); ++k) {
    const Op op = spec_.ops[k];
    std::byte* const out = answers[k] + output * BytesOf(op);
    const auto store = [&](auto value) { StoreValue({ResultDType(op, given_), value}, out); };
    switch (RowOf(op).accumulator) {
      case Accumulator::kSum:
      case Accumulator::kAbsSum:
      case Accumulator::kSumSquares:
      case Accumulator::kMoments:
        store(SpecialAnswer(op, values));
        break;
      case Accumulator::kCounts:
        StoreCounts(op, found, i, 1, &elements, out);
        break;
      default:
        if (!values.nan) {
          StoreExtrema(found.extrema, op, i, 1, out);
        } else if (HasPosition(op)) {
          store(static_cast<std::uint64_t>(*specials.first_nan));
        } else {
          store(std::numeric_limits<double>::quiet_NaN());
        }
        break;
    }
  }
  return true;
}

}  // namespace reduced

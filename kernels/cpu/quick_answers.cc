#include "kernels/cpu/quick_answers.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/algebra/finalize.h"
#include "kernels/algebra/float_format.h"

namespace reduced {
namespace {

static_assert(kQuickOutputs <= QuickExtrema::kMost);

// What is found: sums of terms and extrema, as a set of bits.
constexpr unsigned Bit(Term term) { return 1U << static_cast<int>(term); }
constexpr unsigned kExtrema = 1U << kTerms;

// What answers one of spec's ops; absent: it is not answered quickly.
std::optional<unsigned> TakesOf(Op op, const ReduceSpec& spec) {
  const unsigned nans = RowOf(spec.dtype).is_float ? Bit(Term::kNan) : 0;
  const unsigned omitted = spec.nan_policy == NanPolicy::kOmit ? nans : 0;
  switch (RowOf(op).accumulator) {
    case Accumulator::kSum:
      return Bit(Term::kElement);
    case Accumulator::kAbsSum:
      return Bit(Term::kMagnitude);
    case Accumulator::kSumSquares:
      return Bit(Term::kSquare);
    case Accumulator::kMoments:
      return Bit(Term::kElement) | Bit(Term::kSquare);
    case Accumulator::kExtrema:
      return kExtrema;
    case Accumulator::kCounts:
      if (op == Op::kCount) return omitted;
      return op == Op::kNanCount ? nans : Bit(Term::kNonzero) | omitted;
    case Accumulator::kProduct:
    case Accumulator::kBits:
      return std::nullopt;
  }
  __builtin_unreachable();
}

}  // namespace

std::optional<QuickAnswers> QuickAnswers::For(const ReduceSpec& spec) {
  constexpr unsigned kRounded = Bit(Term::kElement) | Bit(Term::kMagnitude) | Bit(Term::kSquare);
  QuickAnswers quick(spec);
  unsigned takes = 0;
  for (const Op op : spec.ops) {
    const std::optional<unsigned> more = TakesOf(op, spec);
    if (!more.has_value()) return std::nullopt;
    takes |= *more;
    quick.positions_ = With(op, quick.positions_);
  }
  if ((takes & kRounded) != 0 && RowOf(spec.dtype).is_float && spec.precision != Precision::kExact) return std::nullopt;
  for (int term = 0; term < kTerms; ++term) {
    if ((takes & (1U << term)) == 0) continue;
    QuickSumsOf& of = quick.sums_[static_cast<std::size_t>(term)];
    of = QuickSumsFor(spec.dtype, static_cast<Term>(term));
    if (of.rows == nullptr) return std::nullopt;
  }
  if ((takes & kExtrema) != 0) {
    quick.extrema_ = QuickExtremaFor(spec.dtype);
    if (!quick.takes_extrema()) return std::nullopt;
  }
  quick.stores_ = QuickStoresFor();
  return quick;
}

bool QuickAnswers::omits_nans() const { return RowOf(spec_.dtype).is_float && spec_.nan_policy == NanPolicy::kOmit; }

std::int64_t QuickAnswers::BytesOf(Op op) const { return RowOf(ResultDType(op, spec_.dtype)).bytes; }

template <class Function>
void QuickAnswers::ForTerms(const Function& function) const {
  for (std::size_t term = 0; term < sums_.size(); ++term) {
    if (sums_[term].rows != nullptr) function(sums_[term], term);
  }
}

void QuickAnswers::FindColumns(const Layout& layout, const std::byte* start, std::int64_t count,
                               QuickFound* found) const {
  ForTerms([&](const QuickSumsOf& of, std::size_t term) { of.columns(layout, start, count, &found->sums[term]); });
  if (takes_extrema()) extrema_.columns(layout, start, count, positions_, &found->extrema);
}

void QuickAnswers::FindRows(const std::byte* start, std::int64_t elements, std::int64_t count,
                            QuickFound* found) const {
  ForTerms([&](const QuickSumsOf& of, std::size_t term) { of.rows(start, elements, count, &found->sums[term]); });
  if (takes_extrema()) extrema_.rows(start, elements, count, positions_, &found->extrema);
}

void QuickAnswers::FindSegments(const std::byte* start, const std::int64_t* bounds, std::int64_t count,
                                QuickFound* found) const {
  ForTerms([&](const QuickSumsOf& of, std::size_t term) { of.segments(start, bounds, count, &found->sums[term]); });
  if (takes_extrema()) extrema_.segments(start, bounds, count, positions_, &found->extrema);
}

void QuickAnswers::Clear(std::int64_t count, QuickFound* found) const {
  ForTerms([&](const QuickSumsOf&, std::size_t term) { ClearSums(count, &found->sums[term]); });
  if (takes_extrema()) extrema_.clear(count, &found->extrema);
}

void QuickAnswers::Merge(const QuickFound& from, std::int64_t at, std::int64_t count, std::int64_t offset,
                         std::int64_t step, QuickFound* found) const {
  ForTerms([&](const QuickSumsOf&, std::size_t term) { MergeSums(from.sums[term], at, count, &found->sums[term]); });
  if (takes_extrema()) extrema_.merge(from.extrema, at, count, offset, step, positions_, &found->extrema);
}

std::int64_t QuickAnswers::Counted(const QuickFound& found, Term term, std::int64_t i) const {
  return takes(term) ? static_cast<std::int64_t>(found.of(term).sum[i]) : 0;
}

void QuickAnswers::StoreCounts(Op op, const QuickFound& found, std::int64_t first, std::int64_t count,
                               const std::int64_t* elements, std::byte* out) const {
  for (std::int64_t g = 0; g < count; ++g) {
    const std::int64_t nans = Counted(found, Term::kNan, first + g);
    const std::int64_t omitted = omits_nans() ? nans : 0;
    const std::int64_t counted = elements[g] - omitted;
    const std::int64_t nonzero = Counted(found, Term::kNonzero, first + g) - omitted;
    if (op == Op::kAny || op == Op::kAll) {
      out[g] = std::byte{op == Op::kAny ? nonzero > 0 : nonzero == counted};
      continue;
    }
    const std::int64_t number = op == Op::kCount ? counted : op == Op::kNanCount ? nans : nonzero;
    std::memcpy(out + g * static_cast<std::int64_t>(sizeof(number)), &number, sizeof(number));
  }
}

void QuickAnswers::Store(const QuickFound& found, const std::int64_t* elements, std::int64_t count,
                         const std::vector<std::byte*>& answers, std::int64_t first, bool* known) const {
  if (takes_extrema() && found.extrema.any_nan) {
    for (std::int64_t i = 0; i < count; ++i) known[i] = known[i] && !found.extrema.has_nan[i];
  }
  const QuickSums& elements_sums = found.of(Term::kElement);
  const QuickSums& squares = found.of(Term::kSquare);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const Op op = spec_.ops[i];
    std::byte* const out = answers[i] + first * BytesOf(op);
    switch (RowOf(op).accumulator) {
      case Accumulator::kSum:
        if (op == Op::kMean) {
          stores_.means(elements_sums, count, elements, out, known);
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
          stores_.moments(op, elements_sums, squares, count, elements, spec_.ddof, out, known);
        }
        break;
      case Accumulator::kCounts:
        StoreCounts(op, found, 0, count, elements, out);
        break;
      default:
        extrema_.store(found.extrema, op, 0, count, out);
        break;
    }
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
  VisitDType(spec_.dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (kIsFloat<T>) {
      using Format = FloatFormat<T>;
      using Word = typename Format::Word;
      constexpr Word kMagnitude = std::numeric_limits<Word>::max() / 2;
      for (std::int64_t i = 0; i < count; ++i) {
        Word bits;
        std::memcpy(&bits, elements + i * stride, sizeof(bits));
        const Word magnitude = bits & kMagnitude;
        if (magnitude < Format::kInfinity) continue;
        if (magnitude > Format::kInfinity) {
          specials->first_nan = position + i;
          return;
        }
        (bits == magnitude ? specials->positive_infinity : specials->negative_infinity) = true;
      }
    }
  });
}

bool QuickAnswers::StoreSpecial(const QuickFound& found, std::int64_t i, const Specials& specials,
                                std::int64_t elements, const std::vector<std::byte*>& answers,
                                std::int64_t output) const {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const bool nan = specials.first_nan.has_value();
  if (!specials.any() || (nan && omits_nans())) return false;
  const bool both = specials.positive_infinity && specials.negative_infinity;
  const double sum = nan || both ? kNan : specials.positive_infinity ? kInfinity : -kInfinity;
  for (std::size_t k = 0; k < answers.size(); ++k) {
    const Op op = spec_.ops[k];
    std::byte* const out = answers[k] + output * BytesOf(op);
    const auto store = [&](auto value) { StoreValue({ResultDType(op, spec_.dtype), value}, out); };
    switch (RowOf(op).accumulator) {
      case Accumulator::kSum:
        store(sum);
        break;
      case Accumulator::kMoments:
        store(kNan);
        break;
      case Accumulator::kAbsSum:
      case Accumulator::kSumSquares:
        store(nan ? kNan : kInfinity);
        break;
      case Accumulator::kCounts:
        StoreCounts(op, found, i, 1, &elements, out);
        break;
      default:
        if (!nan) {
          extrema_.store(found.extrema, op, i, 1, out);
        } else if (HasPosition(op)) {
          store(static_cast<std::uint64_t>(*specials.first_nan));
        } else {
          store(kNan);
        }
        break;
    }
  }
  return true;
}

}  // namespace reduced

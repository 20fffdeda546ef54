#include "kernels/cpu/quick_answers.h"

#include <cstring>
#include <limits>

#include "kernels/algebra/finalize.h"
#include "kernels/algebra/float_format.h"

namespace reduced {
namespace {

static_assert(kQuickOutputs <= QuickExtrema::kMost);

// What answers an op: sums of terms, as a set of bits, and extrema.
constexpr unsigned Bit(Term term) { return 1U << static_cast<int>(term); }
constexpr unsigned kExtrema = 1U << kTerms;

// The same for one of `dtype`; absent: the op is not answered quickly.
std::optional<unsigned> TakesOf(Op op, DType dtype, NanPolicy policy) {
  const bool is_float = RowOf(dtype).is_float;
  const unsigned nans = is_float ? Bit(Term::kNan) : 0;
  const unsigned omitted = policy == NanPolicy::kOmit ? nans : 0;
  switch (op) {
    case Op::kSum:
    case Op::kMean:
      return Bit(Term::kElement);
    case Op::kVar:
    case Op::kStd:
      return Bit(Term::kElement) | Bit(Term::kSquare);
    case Op::kSumSquares:
    case Op::kL2:
      return Bit(Term::kSquare);
    case Op::kL1:
      return Bit(Term::kMagnitude);
    case Op::kMin:
    case Op::kMax:
    case Op::kArgmin:
    case Op::kArgmax:
    case Op::kRange:
      return kExtrema;
    case Op::kAny:
    case Op::kAll:
    case Op::kCountNonzero:
      return Bit(Term::kNonzero) | omitted;
    case Op::kCount:
      return omitted;
    case Op::kNanCount:
      return nans;
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<QuickAnswers> QuickAnswers::For(const ReduceSpec& spec) {
  constexpr unsigned kRounded = Bit(Term::kElement) | Bit(Term::kMagnitude) | Bit(Term::kSquare);
  QuickAnswers quick(spec);
  unsigned takes = 0;
  for (const Op op : spec.ops) {
    const std::optional<unsigned> more = TakesOf(op, spec.dtype, spec.nan_policy);
    if (!more.has_value()) return std::nullopt;
    takes |= *more;
    quick.positions_ = With(op, quick.positions_);
  }
  if ((takes & kRounded) != 0 && RowOf(spec.dtype).is_float && spec.precision != Precision::kExact) return std::nullopt;
  for (int term = 0; term < kTerms; ++term) {
    if ((takes & (1U << term)) == 0) continue;
    QuickSumsOf& of = quick.sums_[static_cast<std::size_t>(term)];
    of = QuickSumsFor(spec.dtype, static_cast<Term>(term));
    if (of.store == nullptr) return std::nullopt;
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
    if (sums_[term].store != nullptr) function(sums_[term], term);
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
  const auto store = [&](Term term, std::byte* out) {
    sums_[static_cast<std::size_t>(term)].store(found.of(term), count, out, known);
  };
  for (std::size_t op = 0; op < answers.size(); ++op) {
    const Op asked = spec_.ops[op];
    std::byte* const out = answers[op] + first * BytesOf(asked);
    switch (asked) {
      case Op::kSum:
        store(Term::kElement, out);
        break;
      case Op::kL1:
        store(Term::kMagnitude, out);
        break;
      case Op::kSumSquares:
        store(Term::kSquare, out);
        break;
      case Op::kMean:
        stores_.means(found.of(Term::kElement), count, elements, out, known);
        break;
      case Op::kVar:
      case Op::kStd:
      case Op::kL2:
        stores_.moments(asked, found.of(Term::kElement), found.of(Term::kSquare), count, elements, spec_.ddof, out,
                        known);
        break;
      case Op::kAny:
      case Op::kAll:
      case Op::kCountNonzero:
      case Op::kCount:
      case Op::kNanCount:
        StoreCounts(asked, found, 0, count, elements, out);
        break;
      default:
        extrema_.store(found.extrema, asked, 0, count, out);
        break;
    }
  }
}

bool QuickAnswers::MayBeSpecial() const { return RowOf(spec_.dtype).is_float; }

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
  for (std::size_t op = 0; op < answers.size(); ++op) {
    const Op asked = spec_.ops[op];
    std::byte* const out = answers[op] + output * BytesOf(asked);
    const auto store = [&](auto value) { StoreValue({ResultDType(asked, spec_.dtype), value}, out); };
    switch (asked) {
      case Op::kSum:
      case Op::kMean:
        store(sum);
        break;
      case Op::kVar:
      case Op::kStd:
        store(kNan);
        break;
      case Op::kL1:
      case Op::kSumSquares:
      case Op::kL2:
        store(nan ? kNan : kInfinity);
        break;
      case Op::kAny:
      case Op::kAll:
      case Op::kCountNonzero:
      case Op::kCount:
      case Op::kNanCount:
        StoreCounts(asked, found, i, 1, &elements, out);
        break;
      default:
        if (!nan) {
          extrema_.store(found.extrema, asked, i, 1, out);
        } else if (HasPosition(asked)) {
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

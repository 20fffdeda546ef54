#include "kernels/cpu/quick_answers.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/algebra/finalize.h"
#include "kernels/algebra/float_format.h"

namespace reduced {
namespace {

// What an op takes; absent: it is not answered quickly.
struct Takes {
  bool sums = false;
  bool magnitudes = false;
  bool squares = false;
  bool extrema = false;
};
std::optional<Takes> TakesOf(Op op) {
  switch (op) {
    case Op::kSum:
    case Op::kMean:
      return Takes{.sums = true};
    case Op::kVar:
    case Op::kStd:
      return Takes{.sums = true, .squares = true};
    case Op::kSumSquares:
    case Op::kL2:
      return Takes{.squares = true};
    case Op::kL1:
      return Takes{.magnitudes = true};
    case Op::kMin:
    case Op::kMax:
    case Op::kArgmin:
    case Op::kArgmax:
    case Op::kRange:
      return Takes{.extrema = true};
    case Op::kCount:
    case Op::kNanCount:
      return Takes{};
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<QuickAnswers> QuickAnswers::For(const ReduceSpec& spec) {
  const bool is_float = RowOf(spec.dtype).is_float;
  QuickAnswers quick(spec);
  Takes takes;
  for (const Op op : spec.ops) {
    const std::optional<Takes> more = TakesOf(op);
    if (!more.has_value()) return std::nullopt;
    const bool adds = more->sums || more->magnitudes || more->squares;
    if (adds && is_float && spec.precision != Precision::kExact) return std::nullopt;
    takes.sums |= more->sums;
    takes.magnitudes |= more->magnitudes;
    takes.squares |= more->squares;
    takes.extrema |= more->extrema;
    quick.positions_ = With(op, quick.positions_);
    quick.counts_nans_ |= op == Op::kNanCount;
    // How many NaNs there are; that there is one shows in the extrema.
    if (is_float && (op == Op::kNanCount || (op == Op::kCount && quick.omits_nans()))) takes.extrema = true;
  }
  const auto take = [&](bool taken, Term term, QuickSumsOf* of) {
    if (taken) *of = QuickSumsFor(spec.dtype, term);
    return !taken || of->store != nullptr;
  };
  if (!take(takes.sums, Term::kElement, &quick.sums_) ||
      !take(takes.magnitudes, Term::kMagnitude, &quick.magnitudes_) ||
      !take(takes.squares, Term::kSquare, &quick.squares_)) {
    return std::nullopt;
  }
  if (takes.extrema) quick.extrema_ = QuickExtremaFor(spec.dtype);
  if (takes.extrema && !quick.extrema()) return std::nullopt;
  quick.stores_ = QuickStoresFor();
  return quick;
}

bool QuickAnswers::omits_nans() const { return RowOf(spec_.dtype).is_float && spec_.nan_policy == NanPolicy::kOmit; }

std::int64_t QuickAnswers::BytesOf(Op op) const { return RowOf(ResultDType(op, spec_.dtype)).bytes; }

void QuickAnswers::FindColumns(const Layout& layout, const std::byte* start, std::int64_t count,
                               QuickFound* found) const {
  if (sums()) sums_.columns(layout, start, count, &found->sums);
  if (magnitudes()) magnitudes_.columns(layout, start, count, &found->magnitudes);
  if (squares()) squares_.columns(layout, start, count, &found->squares);
  if (extrema()) extrema_.columns(layout, start, count, positions_, &found->extrema);
}

void QuickAnswers::FindRows(const std::byte* start, std::int64_t elements, std::int64_t count,
                            QuickFound* found) const {
  if (sums()) sums_.rows(start, elements, count, &found->sums);
  if (magnitudes()) magnitudes_.rows(start, elements, count, &found->magnitudes);
  if (squares()) squares_.rows(start, elements, count, &found->squares);
  if (extrema()) extrema_.rows(start, elements, count, positions_, &found->extrema);
}

void QuickAnswers::FindSegments(const std::byte* start, const std::int64_t* bounds, std::int64_t count,
                                QuickFound* found) const {
  if (sums()) sums_.segments(start, bounds, count, &found->sums);
  if (magnitudes()) magnitudes_.segments(start, bounds, count, &found->magnitudes);
  if (squares()) squares_.segments(start, bounds, count, &found->squares);
  if (extrema()) extrema_.segments(start, bounds, count, positions_, &found->extrema);
}

void QuickAnswers::Clear(std::int64_t count, QuickFound* found) const {
  if (sums()) ClearSums(count, &found->sums);
  if (magnitudes()) ClearSums(count, &found->magnitudes);
  if (squares()) ClearSums(count, &found->squares);
  if (extrema()) extrema_.clear(count, &found->extrema);
}

void QuickAnswers::Merge(const QuickFound& from, std::int64_t at, std::int64_t count, std::int64_t offset,
                         std::int64_t step, QuickFound* found) const {
  if (sums()) MergeSums(from.sums, at, count, &found->sums);
  if (magnitudes()) MergeSums(from.magnitudes, at, count, &found->magnitudes);
  if (squares()) MergeSums(from.squares, at, count, &found->squares);
  if (extrema()) extrema_.merge(from.extrema, at, count, offset, step, positions_, &found->extrema);
}

void QuickAnswers::Store(const QuickFound& found, const std::int64_t* elements, std::int64_t count,
                         const std::vector<std::byte*>& answers, std::int64_t first, bool* known) const {
  if (extrema() && found.extrema.any_nan) {
    for (std::int64_t i = 0; i < count; ++i) known[i] = known[i] && !found.extrema.has_nan[i];
  }
  for (std::size_t op = 0; op < answers.size(); ++op) {
    const Op asked = spec_.ops[op];
    std::byte* const out = answers[op] + first * BytesOf(asked);
    switch (asked) {
      case Op::kSum:
        sums_.store(found.sums, count, out, known);
        break;
      case Op::kL1:
        magnitudes_.store(found.magnitudes, count, out, known);
        break;
      case Op::kSumSquares:
        squares_.store(found.squares, count, out, known);
        break;
      case Op::kMean:
        stores_.means(found.sums, count, elements, out, known);
        break;
      case Op::kVar:
      case Op::kStd:
      case Op::kL2:
        stores_.moments(asked, found.sums, found.squares, count, elements, spec_.ddof, out, known);
        break;
      case Op::kCount:
        std::memcpy(out, elements, static_cast<std::size_t>(count) * sizeof(std::int64_t));
        break;
      case Op::kNanCount:
        std::memset(out, 0, static_cast<std::size_t>(count) * sizeof(std::int64_t));
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
  const bool all = counts_nans_ || omits_nans();
  if (specials->nans > 0 && !all) return;
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
        if (magnitude == Format::kInfinity) {
          (bits == magnitude ? specials->positive_infinity : specials->negative_infinity) = true;
          continue;
        }
        if (specials->nans++ == 0) specials->first_nan = position + i;
        if (!all) return;
      }
    }
  });
}

bool QuickAnswers::StoreSpecial(const QuickFound& found, std::int64_t i, const Specials& specials,
                                std::int64_t elements, const std::vector<std::byte*>& answers,
                                std::int64_t output) const {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const bool nan = specials.nans > 0;
  if (!specials.any() || (nan && omits_nans())) return false;
  const bool both = specials.positive_infinity && specials.negative_infinity;
  const double sum = nan || both ? kNan : specials.positive_infinity ? kInfinity : -kInfinity;
  for (std::size_t op = 0; op < answers.size(); ++op) {
    const Op asked = spec_.ops[op];
    const DType dtype = ResultDType(asked, spec_.dtype);
    std::byte* const out = answers[op] + output * BytesOf(asked);
    const auto store = [&](auto value) { StoreValue({dtype, value}, out); };
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
      case Op::kCount:
        store(static_cast<std::uint64_t>(elements));
        break;
      case Op::kNanCount:
        store(static_cast<std::uint64_t>(specials.nans));
        break;
      default:
        if (!nan) {
          extrema_.store(found.extrema, asked, i, 1, out);
        } else if (HasPosition(asked)) {
          store(static_cast<std::uint64_t>(specials.first_nan));
        } else {
          store(kNan);
        }
        break;
    }
  }
  return true;
}

}  // namespace reduced

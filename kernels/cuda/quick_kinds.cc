#include "kernels/cuda/quick_kinds.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/algebra/float_format.h"
#include "kernels/algebra/spec.h"

namespace reduced {

namespace {

// What the words of elements of that dtype are to the folds of a kind.
QuickElements ElementsOf(DType dtype, QuickKind kind) {
  return VisitDType(dtype, [&]<class T>(std::type_identity<T>) {
    constexpr int kBits = 8 * sizeof(T);
    constexpr std::uint64_t kTop = std::uint64_t{1} << (kBits - 1);
    QuickElements of{.dtype = dtype};
    of.magnitude = kTop | (kTop - 1);
    of.infinity = kBits == 64 ? std::numeric_limits<std::int64_t>::max() : std::numeric_limits<std::int32_t>::max();
    if constexpr (kIsFloat<T>) {
      using Format = FloatFormat<T>;
      of.fold = of.magnitude = kTop - 1;
      of.infinity = Format::kInfinity;
      of.quiet_nan = Format::kNan;
    } else if constexpr (std::is_same_v<T, Bool>) {
      of.is_bool = true;
    } else {
      of.is_unsigned = !std::is_signed_v<T> || kind == QuickKind::kMagnitudes;
      of.flip = of.is_unsigned && kind != QuickKind::kBits ? kTop : 0;
    }
    of.absolute = kind == QuickKind::kMagnitudes;
    return of;
  });
}

// That of an op by itself.
QuickKind KindOf(Op op, DType dtype) {
  switch (op) {
    case Op::kSum:
    case Op::kMean:
      return QuickKind::kSums;
    case Op::kL1:  // the sum, of elements that are never negative
      return RowOf(dtype).is_float || RowOf(dtype).is_signed ? QuickKind::kMagnitudes : QuickKind::kSums;
    case Op::kVar:
    case Op::kStd:
    case Op::kSumSquares:
    case Op::kL2:
      return QuickKind::kMoments;
    case Op::kMin:
    case Op::kMax:
    case Op::kArgmin:
    case Op::kArgmax:
    case Op::kRange:
      return QuickKind::kExtrema;
    case Op::kAny:
    case Op::kAll:
    case Op::kCountNonzero:
    case Op::kNanCount:
    case Op::kCount:
      return QuickKind::kCounts;
    case Op::kBitAnd:
    case Op::kBitOr:
    case Op::kBitXor:
      return QuickKind::kBits;
    case Op::kProd:
      return QuickKind::kProducts;
    default:
      break;  // has no state: CudaLane::ReduceDistributions answers it
  }
  __builtin_unreachable();
}

// The kind of an op that is asked for with others: of several that could answer it, a kind that another op needs
// anyway.
QuickKind KindAmong(Op op, const std::vector<OpCall>& ops, DType dtype) {
  const auto any_kind = [](Op each) { return each == Op::kCount || each == Op::kNanCount; };
  if (any_kind(op)) {
    const auto other = std::find_if_not(ops.begin(), ops.end(), any_kind);
    if (other != ops.end()) return KindAmong(*other, ops, dtype);
  }
  const QuickKind kind = KindOf(op, dtype);
  const auto has_moments = [&](Op each) { return KindOf(each, dtype) == QuickKind::kMoments; };
  const bool sums = kind == QuickKind::kSums && op != Op::kL1;
  const bool moments = sums && std::any_of(ops.begin(), ops.end(), has_moments);
  return moments ? QuickKind::kMoments : kind;
}

}  // namespace

std::vector<QuickOps> QuickOpsOf(const ReduceSpec& spec) {
  std::vector<QuickOps> kinds;
  for (const QuickKind kind : kQuickKinds) {
    QuickOps of{.kind = kind, .elements = ElementsOf(spec.dtype, kind)};
    of.elements.ddof = spec.ddof;
    of.elements.wraps = spec.overflow_policy == OverflowPolicy::kWrap;
    of.elements.saturates = spec.overflow_policy == OverflowPolicy::kSaturate;
    of.elements.omit_nan = spec.nan_policy == NanPolicy::kOmit;
    for (std::size_t i = 0; i < spec.ops.size(); ++i) {
      const Op op = spec.ops[i];
      if (KindAmong(op, spec.ops, spec.dtype) != kind) continue;
      if (of.positions.size() == kMostQuickOps) return {};
      of.answers[of.positions.size()].op = op;
      of.positions.push_back(i);
      of.elements.positions_low |= op == Op::kArgmin;
      of.elements.positions_high |= op == Op::kArgmax;
    }
    if (!of.positions.empty()) kinds.push_back(std::move(of));
  }
  return kinds;
}

}  // namespace reduced

// Which fold of quick_folds.h answers an op.
#ifndef REDUCED_KERNELS_CUDA_QUICK_KINDS_H_
#define REDUCED_KERNELS_CUDA_QUICK_KINDS_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "kernels/algebra/dtype.h"
#include "kernels/algebra/op.h"
#include "kernels/cuda/quick_bits.h"
#include "kernels/cuda/quick_extrema.h"
#include "kernels/cuda/quick_moments.h"
#include "kernels/cuda/quick_products.h"
#include "kernels/cuda/quick_sums.h"
#include "kernels/cuda/quick_wide_moments.h"

namespace reduced {

struct ReduceSpec;

// The ops that one launch answers. Moments answer what sums do, too, and all kinds `count` and `nan_count`. Magnitudes
// are sums of absolute values, by the folds of sums.
enum class QuickKind : std::uint8_t { kSums, kMagnitudes, kMoments, kExtrema, kCounts, kBits, kProducts };
inline constexpr QuickKind kQuickKinds[] = {QuickKind::kSums,    QuickKind::kMagnitudes, QuickKind::kMoments,
                                            QuickKind::kExtrema, QuickKind::kCounts,     QuickKind::kBits,
                                            QuickKind::kProducts};

// The ops of a request that one kind answers.
struct QuickOps {
  QuickKind kind = QuickKind::kSums;
  QuickElements elements{};                 // without their count
  std::vector<std::size_t> positions{};     // of these ops among all
  QuickAnswer answers[kMostQuickOps] = {};  // to these ops, with no place to go to yet
};
// Sorts all ops of a request by kind. Empty: a kind has more than kMostQuickOps of them, so that the request is to be
// answered from states.
std::vector<QuickOps> QuickOpsOf(const ReduceSpec& spec);

// An output has fewer elements than that: their positions, and how many are NaN, have 32 bits; sums of integers of up
// to 32 bits have 64, and variances a bound for 2^31.
constexpr std::int64_t EndOfQuickElements(QuickKind kind, DType dtype) {
  const bool sums = kind == QuickKind::kSums || kind == QuickKind::kMagnitudes;
  const bool narrow = kind == QuickKind::kMoments || (sums && !RowOf(dtype).is_float && RowOf(dtype).bytes <= 4);
  return narrow ? std::int64_t{1} << 31 : (std::int64_t{1} << 32) - 1;
}

template <QuickKind kKind, class T>
consteval auto QuickFoldType() {
  constexpr int kBytes = sizeof(T);
  if constexpr (kKind == QuickKind::kSums && kIsFloat<T>) {
    return std::type_identity<QuickFloatSum<T>>();
  } else if constexpr (kKind == QuickKind::kSums) {
    return std::type_identity<QuickIntegerSum<kBytes>>();
  } else if constexpr (kKind == QuickKind::kMoments && kIsFloat<T>) {
    return std::type_identity<QuickFloatMoments<T>>();
  } else if constexpr (kKind == QuickKind::kMoments && kBytes <= 4) {
    return std::type_identity<QuickIntegerMoments<kBytes>>();
  } else if constexpr (kKind == QuickKind::kMoments) {
    return std::type_identity<QuickWideMoments>();
  } else if constexpr (kKind == QuickKind::kExtrema) {
    return std::type_identity<QuickExtremum<kBytes>>();
  } else if constexpr (kKind == QuickKind::kCounts) {
    return std::type_identity<QuickCount<kBytes>>();
  } else if constexpr (kKind == QuickKind::kBits && !kIsFloat<T>) {
    return std::type_identity<QuickBitwise<kBytes>>();
  } else if constexpr (kKind == QuickKind::kProducts && kIsFloat<T>) {
    return std::type_identity<QuickFloatProduct<T>>();
  } else if constexpr (kKind == QuickKind::kProducts) {
    return std::type_identity<QuickIntegerProduct<kBytes>>();
  } else {
    return std::type_identity<void>();
  }
}
// What elements of T are folded to; void, where the kind has no fold for them.
template <QuickKind kKind, class T>
using QuickFold = typename decltype(QuickFoldType<kKind, T>())::type;

// Calls f(std::type_identity<Fold>()) for elements of that dtype, and returns what it does; `none` if there is no fold.
template <QuickKind kKind, class Result, class Function>
Result VisitQuickFold(DType dtype, Result none, Function f) {
  return VisitDType(dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (std::is_void_v<QuickFold<kKind, T>>) {
      return none;
    } else {
      return f(std::type_identity<QuickFold<kKind, T>>());
    }
  });
}
template <class Result, class Function>
Result VisitQuickFold(QuickKind kind, DType dtype, Result none, Function f) {
  switch (kind) {
    case QuickKind::kSums:
    case QuickKind::kMagnitudes:
      return VisitQuickFold<QuickKind::kSums>(dtype, none, f);
    case QuickKind::kMoments:
      return VisitQuickFold<QuickKind::kMoments>(dtype, none, f);
    case QuickKind::kExtrema:
      return VisitQuickFold<QuickKind::kExtrema>(dtype, none, f);
    case QuickKind::kCounts:
      return VisitQuickFold<QuickKind::kCounts>(dtype, none, f);
    case QuickKind::kBits:
      return VisitQuickFold<QuickKind::kBits>(dtype, none, f);
    case QuickKind::kProducts:
      return VisitQuickFold<QuickKind::kProducts>(dtype, none, f);
  }
  __builtin_unreachable();
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_QUICK_KINDS_H_

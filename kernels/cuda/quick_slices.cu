// Reductions along axes that are answered on the device: which kernels there are, and those of integers.
#include "kernels/cuda/quick_slices.cuh"

namespace reduced {
namespace {

// The bundle that has the op's accumulators; all do that come after it, but for extrema and powers.
SliceBundle BundleOf(Op op) {
  switch (RowOf(op).accumulator) {
    case Accumulator::kSum:
      return SliceBundle::kSums;
    case Accumulator::kExtrema:
      return SliceBundle::kExtrema;
    case Accumulator::kSumSquares:
    case Accumulator::kMoments:
      return SliceBundle::kPowers;
    case Accumulator::kCounts:
      return SliceBundle::kDescription;
    default:
      return SliceBundle::kNone;
  }
}

SliceBundle Both(SliceBundle a, SliceBundle b) {
  if (a == b) return a;
  const bool extrema = a == SliceBundle::kExtrema || b == SliceBundle::kExtrema;
  return extrema ? SliceBundle::kDescription : std::max(a, b);
}

// Null: none.
const QuickSlicesOf* KernelsOf(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return &kQuickF16;
    case DType::kBF16:
      return &kQuickBF16;
    case DType::kF32:
      return &kQuickF32;
    case DType::kF64:
      return &kQuickF64;
    case DType::kI8:
      return &kQuickI8;
    case DType::kI16:
      return &kQuickI16;
    case DType::kI32:
      return &kQuickI32;
    case DType::kI64:
      return &kQuickI64;
    case DType::kU8:
      return &kQuickU8;
    default:
      return nullptr;
  }
}

}  // namespace

const QuickSlicesOf kQuickI8 = MakeQuickSlices<std::int8_t>();
const QuickSlicesOf kQuickI16 = MakeQuickSlices<std::int16_t>();
const QuickSlicesOf kQuickI32 = MakeQuickSlices<std::int32_t>();
const QuickSlicesOf kQuickI64 = MakeQuickSlices<std::int64_t>();
const QuickSlicesOf kQuickU8 = MakeQuickSlices<std::uint8_t>();

SliceBundle SliceBundleFor(DType dtype, const Op* ops, std::size_t count, bool omit_nan) {
  if (KernelsOf(dtype) == nullptr || count > kMaxSliceOps) return SliceBundle::kNone;
  SliceBundle bundle = BundleOf(ops[0]);
  for (std::size_t i = 0; i < count; ++i) {
    const SliceBundle also = BundleOf(ops[i]);
    if (also == SliceBundle::kNone) return SliceBundle::kNone;
    bundle = Both(bundle, also);
  }
  if (RowOf(dtype).is_float) {
    // Extrema look at NaNs anyway; sums leave them out only there.
    return omit_nan && bundle != SliceBundle::kExtrema ? SliceBundle::kDescription : bundle;
  }
  return bundle == SliceBundle::kSums || bundle == SliceBundle::kExtrema ? bundle : SliceBundle::kNone;
}

QuickSlicesPlan PlanOf(const QuickSlices& slices) { return {KernelsOf(slices.dtype)->states_bytes(slices)}; }

cudaError_t LaunchQuickSlices(const QuickSlices& slices) { return KernelsOf(slices.dtype)->launch(slices); }

}  // namespace reduced

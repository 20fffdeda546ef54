// The kernels of the fake device: what kernels/cuda/*.cu and kernels/ladder/*.cu define, on the host, by the CPU
// engine's inner loops.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "kernels/algebra/spec.h"
#include "kernels/cpu/exact_tiles.h"
#include "kernels/cpu/tiles.h"
#include "kernels/cuda/exact_sums.h"
#include "kernels/cuda/pipeline.h"
#include "kernels/cuda/quick_extrema.h"
#include "kernels/cuda/quick_moments.h"
#include "kernels/cuda/quick_slices.h"
#include "kernels/cuda/quick_sums.h"
#include "kernels/cuda/slices.h"
#include "kernels/engine/pipelines.h"
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

// Outputs by the folds of quick_slices.h: as many of each as the plan has folds of it and lanes of a row, each of which
// takes every so-many-th few elements.
template <class QuickFold>
cudaError_t FoldQuickly(const QuickLaunch& launch) {
  return LaunchOnHost(nullptr, [&] {
    using Word = typename QuickFold::Word;
    constexpr int kAtOnce = 8;
    const SliceArray& array = launch.array;
    const std::int64_t shares = std::min<std::int64_t>(launch.plan.folds() * launch.plan.lanes, 64);
    for (std::int64_t output = 0; output < array.outputs; ++output) {
      const Word* const start = static_cast<const Word*>(array.data) + OffsetOf(array.kept, output);
      QuickFold all;
      for (std::int64_t share = 0; share < shares; ++share) {
        QuickFold fold;
        for (std::int64_t at = share * kAtOnce; at < array.elements; at += shares * kAtOnce) {
          Word x[kAtOnce];
          const int n = static_cast<int>(std::min<std::int64_t>(kAtOnce, array.elements - at));
          for (int i = 0; i < kAtOnce; ++i) {
            x[i] = i < n ? PreparedWord(start[OffsetOf(array.reduced, at + i)], launch.elements)
                         : QuickFold::Absent(x[0], launch.elements);
          }
          fold.Add(
              x, n, [&](int i) { return static_cast<std::uint32_t>(at + i); }, launch.elements);
        }
        all.Merge(fold);
      }
      if (all.Finish(launch.answers, launch.ops, output, launch.elements)) continue;
      const std::uint32_t bit = std::uint32_t{1} << (output % 32);
      *launch.redone += (launch.redo[output / 32] & bit) == 0 ? 1 : 0;
      launch.redo[output / 32] |= bit;
    }
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

cudaError_t LaunchQuickSums(const QuickLaunch& launch) {
  return VisitDType(launch.elements.dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (kIsFloat<T>) {
      return FoldQuickly<QuickFloatSum<T>>(launch);
    } else {
      return FoldQuickly<QuickIntegerSum<sizeof(T)>>(launch);
    }
  });
}
cudaError_t LaunchQuickMoments(const QuickLaunch& launch) {
  return VisitDType(launch.elements.dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (kIsFloat<T>) {
      return FoldQuickly<QuickFloatMoments<T>>(launch);
    } else if constexpr (sizeof(T) <= 4) {
      return FoldQuickly<QuickIntegerMoments<sizeof(T)>>(launch);
    } else {
      return cudaErrorNotSupported;
    }
  });
}
cudaError_t LaunchQuickExtrema(const QuickLaunch& launch) {
  return VisitDType(launch.elements.dtype,
                    [&]<class T>(std::type_identity<T>) { return FoldQuickly<QuickExtremum<sizeof(T)>>(launch); });
}
cudaError_t LaunchQuickCounts(const QuickLaunch& launch) {
  return VisitDType(launch.elements.dtype,
                    [&]<class T>(std::type_identity<T>) { return FoldQuickly<QuickCount<sizeof(T)>>(launch); });
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

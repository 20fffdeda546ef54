// Answers from tables by key, a thread for each group: see key_entries.h.
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/each_item.cuh"
#include "kernels/cuda/key_entries.h"
#include "kernels/cuda/key_tables.h"
#include "kernels/cuda/quick_kinds.h"

namespace reduced {
namespace {

template <class Fold>
__global__ void __launch_bounds__(kItemThreads) KeyAnswersKernel(const __grid_constant__ KeyAnswersLaunch launch) {
  ForEachItem(launch.count, [&](std::int64_t i) {
    const std::uint8_t left = AnswerKey<Fold>(launch, launch.first + i, i) ? kAnswered : kNotKnown;
    if (!launch.after || left != kAnswered) launch.left[i] = left;
  });
}

__global__ void __launch_bounds__(kItemThreads) KeyRecordsKernel(const __grid_constant__ KeyRecordsLaunch launch) {
  ForEachItem(launch.count, [&](std::int64_t i) { launch.records[i] = KeyRecordOf(launch.table, launch.groups[i]); });
}

template <QuickKind kKind>
cudaError_t Launch(const KeyAnswersLaunch& launch) {
  return VisitQuickFold<kKind>(launch.elements.dtype, cudaErrorNotSupported, [&]<class Fold>(std::type_identity<Fold>) {
    KeyAnswersKernel<Fold><<<BlocksForItems(launch.count), kItemThreads, 0, launch.stream>>>(launch);
    return cudaGetLastError();
  });
}

}  // namespace

cudaError_t LaunchKeyAnswers(const KeyAnswersLaunch& launch) {
  return launch.kind == QuickKind::kExtrema ? Launch<QuickKind::kExtrema>(launch) : Launch<QuickKind::kSums>(launch);
}

cudaError_t LaunchKeyRecords(const KeyRecordsLaunch& launch) {
  KeyRecordsKernel<<<BlocksForItems(launch.count), kItemThreads, 0, launch.stream>>>(launch);
  return cudaGetLastError();
}

}  // namespace reduced

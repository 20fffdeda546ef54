// Counts of bins in the shared memory of each block, if it has room. Of even bins the position of an element tells its
// bin, but near edges. Of other bins a table does, which has the bins of equally many keys each.
#include <algorithm>
#include <bit>

#include "kernels/cuda/histogram.h"
#include "kernels/cuda/visit_elements.cuh"
#include "kernels/folds/histogram_bins.h"

namespace reduced {
namespace {

constexpr int kThreads = 512;
constexpr int kCellBits = 11, kCells = 1 << kCellBits;
constexpr std::int64_t kOwnBytes = 4 * kCells + 64;  // of shared memory, beside counts and bins

// Where counts and the bins' smallest elements are.
enum class Where { kShared, kCountsShared, kGlobal };

// The bins of cells of equally many keys.
template <class T>
class KeyCells {
 public:
  // By a whole block. `cells`: kCells of shared memory.
  __device__ KeyCells(const BinFinder<T>& finder, std::uint32_t* cells)
      : finder_(finder), cells_(cells), first_(KeyOf(finder.first)) {
    if (finder.even) return;  // nobody asks
    const auto span = static_cast<Word>(KeyOf(finder.last) - first_);
    while (span >> shift_ >= kCells) ++shift_;
    const auto bin_of = [&](Word beyond) {
      return finder.Search(BinFinder<T>::ValueOf(Key::Element(static_cast<Word>(first_ + beyond))));
    };
    for (int i = threadIdx.x; i <= static_cast<int>(span >> shift_); i += kThreads) {
      const auto begin = static_cast<Word>(static_cast<Word>(i) << shift_);
      const auto rest = static_cast<Word>(span - begin), most = static_cast<Word>((Word{1} << shift_) - 1);
      const int bin = bin_of(begin);
      cells_[i] = static_cast<std::uint32_t>(bin) << 1 | (bin_of(begin + (rest < most ? rest : most)) == bin ? 0 : 1);
    }
  }
  // Of an element that some bin has.
  __device__ int BinOf(typename BinFinder<T>::Value value) const {
    const std::uint32_t cell = cells_[static_cast<Word>(KeyOf(value) - first_) >> shift_];
    return (cell & 1) == 0 ? static_cast<int>(cell >> 1) : finder_.Search(value);
  }

 private:
  using Key = SortKey<T>;
  using Word = typename Key::Type;
  static __device__ Word KeyOf(typename BinFinder<T>::Value value) { return Key::Of(value); }

  const BinFinder<T>& finder_;
  std::uint32_t* const cells_;
  const Word first_;
  int shift_ = 0;
};

template <class T, Where kWhere>
__global__ void __launch_bounds__(kThreads, 2)
    CountBins(const T* data, std::int64_t count, BinFinder<T> finder, unsigned long long* total) {
  extern __shared__ unsigned shared[];
  __shared__ std::uint32_t cells_memory[kCells];
  const int entries = finder.used + 1;
  if (kWhere != Where::kGlobal) {
    for (int i = threadIdx.x; i < entries; i += kThreads) shared[i] = 0;
  }
  if (kWhere == Where::kShared) {
    // Behind an even number of counters.
    auto* const lowest = reinterpret_cast<typename BinFinder<T>::Value*>(shared + entries / 2 * 2 + 2);
    for (int i = threadIdx.x; i < entries; i += kThreads) lowest[i] = finder.lowest[i];
    finder.lowest = lowest;
    __syncthreads();
  }
  const KeyCells<T> cells(finder, cells_memory);
  __syncthreads();
  const bool is_even = finder.even;
  VisitElements(data, count, 1, [&](T x, bool is_there, std::int64_t) {
    if (!is_there) return;
    int bin = 0;
    if (!is_even || !finder.PositionTells(x, &bin)) {
      bin = entries;  // a counter that nobody asks for
      if (finder.Has(x)) bin = is_even ? finder.NearGuess(x, x) : cells.BinOf(x);
    }
    if (kWhere != Where::kGlobal) {
      atomicAdd(&shared[bin], 1U);
    } else if (bin < entries) {
      atomicAdd(&total[bin], 1ULL);
    }
  });
  if (kWhere == Where::kGlobal) return;
  __syncthreads();
  for (int i = threadIdx.x; i < entries; i += kThreads) {
    if (shared[i] > 0) atomicAdd(&total[i], static_cast<unsigned long long>(shared[i]));
  }
}

template <class T, Where kWhere>
cudaError_t Launch(const HistogramLaunch& launch, std::int64_t shared) {
  // All that a block can have: other threads launch it with more or less.
  const cudaError_t error = cudaFuncSetAttribute(CountBins<T, kWhere>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                 static_cast<int>(launch.shared_bytes - kOwnBytes));
  if (error != cudaSuccess) return error;
  constexpr std::int64_t kElements = 16 / sizeof(T) * kThreads;
  const auto blocks = static_cast<int>(
      std::clamp<std::int64_t>((launch.count + kElements - 1) / kElements, 1, 2 * launch.multiprocessors));
  CountBins<T, kWhere><<<blocks, kThreads, static_cast<std::size_t>(shared), launch.stream>>>(
      static_cast<const T*>(launch.data), launch.count, *static_cast<const BinFinder<T>*>(launch.finder),
      launch.counts);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchHistogram(const HistogramLaunch& launch) {
  return VisitDType(launch.dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (sizeof(T) <= 2) {  // are counted by their values (count_bytes.h, count_words.h)
      return cudaErrorInvalidValue;
    } else {
      const std::int64_t most = launch.shared_bytes - kOwnBytes;
      const std::int64_t counts = (launch.bins + 1) / 2 * 8 + 8;
      const std::int64_t both = counts + (launch.bins + 1) * std::int64_t{sizeof(T)};
      if (both <= most) return Launch<T, Where::kShared>(launch, both);
      if (counts <= most) return Launch<T, Where::kCountsShared>(launch, counts);
      return Launch<T, Where::kGlobal>(launch, 0);
    }
  });
}

}  // namespace reduced

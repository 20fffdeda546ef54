// Sums by key: see key_tables.h and key_entries.h.
//
// In shared memory a sum is 64 bits as two words of 32, since those are what shared memory adds to by itself; the
// elements have so few bits that a block's rows do not overflow it; those with bits below are added in global memory.
// Few groups have several copies of their words, so that the threads of a warp rarely wait for each other. In global
// memory the caches add to bins of 64 bits, and nothing is read.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/algebra/dtype.h"
#include "kernels/cuda/device_reduce.cuh"
#include "kernels/cuda/each_item.cuh"
#include "kernels/cuda/key_entries.h"
#include "kernels/cuda/key_tables.h"
#include "kernels/cuda/keyed_rows.cuh"
#include "kernels/cuda/sample_rows.cuh"

namespace reduced {
namespace {

constexpr int kSharedThreads = 1024;  // one block of each multiprocessor
constexpr int kGlobalThreads = 256;
constexpr int kGlobalBlocks = 4;  // of each multiprocessor, all of them there at once
constexpr int kQuadsAtOnce = 2;
constexpr std::int64_t kCopiedWords = 1 << 12;  // groups times copies in shared memory
constexpr int kMostCopies = 32;

// What kernels are compiled for: floats, and integers and bool of one size.
template <class T>
using SumElement = std::conditional_t<kIsFloat<T>, T, WordOfBytes<sizeof(T)>>;

template <class T>
inline constexpr int kGlobalBins = (kIsFloat<T> ? 2 : 1) + (sizeof(T) == 8 ? 1 : 0);

template <class T>
__device__ inline KeyUnits UnitsFor(const KeyTablesLaunch& launch, int bins, int bits) {
  if constexpr (kIsFloat<T>) {
    if (launch.table.bins_used == 0)
      return {.bits = 1, .base = 1, .span = 2 * FloatFormat<T>::kBias - 1};  // all finite
    return KeyUnitsFor<T>(launch.header->largest, launch.sampled ? kSampledRoom : 0, bins, bits);
  } else {
    return {};
  }
}

// What an element adds: its parts in the bins, and how many elements it is.
template <int kBins>
struct Taken {
  std::int64_t part[kBins] = {};
  std::uint32_t count = 1;
};

// Takes a float that does not just fit the bins: sets the group's flags and list entries. nans: the number of the
// group's NaNs, or null.
template <class T, int kBins>
__device__ __noinline__ Taken<kBins> TakeSeldom(const KeyTablesLaunch& launch, KeyUnits units,
                                                typename FloatFormat<T>::Word word, std::uint32_t group,
                                                unsigned* nans) {
  Taken<kBins> taken;
  const bool adds = launch.table.bins_used > 0;
  KeyTablesHeader* const header = launch.header;
  std::uint32_t flag = 0;
  switch (TermOf<T>(word, units, taken.part)) {
    case KeyTerm::kFits:
      return taken;
    case KeyTerm::kLow:
      if (adds) AddInGlobal(launch.table.bins[2] + group, taken.part[0]);
      taken.part[0] = 0;
      return taken;
    case KeyTerm::kNan:
      if (nans != nullptr) atomicAdd(nans, 1U);
      if (launch.elements.omit_nan) taken.count = 0;
      flag = launch.elements.omit_nan ? 0 : kKeyNan;
      break;
    case KeyTerm::kNegativeZero:
      if (LoadRelaxed(&header->negative_zeros) == 0) atomicOr(&header->negative_zeros, 1U);
      flag = kKeyNegativeZero;
      break;
    case KeyTerm::kPositiveInfinity:
      flag = kKeyPositiveInfinity;
      break;
    case KeyTerm::kNegativeInfinity:
      flag = kKeyNegativeInfinity;
      break;
    case KeyTerm::kListed:
      if (!adds) return taken;
      const unsigned at = atomicAdd(&header->listed, 1U);
      if (at < KeyTablesLaunch::kMostListed) launch.listed[at] = {ToDouble(BitsAs<T>(word)), group};
      flag = kKeyListed;
      break;
  }
  if (adds && flag != 0) SetKeyFlag(launch.table, group, flag);
  return taken;
}

template <class T, int kBins>
__device__ __forceinline__ Taken<kBins> TakeElement(const KeyTablesLaunch& launch, const KeyUnits& units,
                                                    WordOfBytes<sizeof(T)> word, std::uint32_t group, unsigned* nans) {
  Taken<kBins> taken;
  if constexpr (!kIsFloat<T>) {
    IntegerTermOf(word, launch.elements, taken.part);
  } else {
    const ScaledFloat<T> x(word, units);
    if (x.fits(units)) {
      if (launch.table.bins_used > 0) x.Split(units, taken.part);
    } else if (word != 0) {
      return TakeSeldom<T, kBins>(launch, units, word, group, nans);
    }
  }
  return taken;
}

// The table is not complete anyway.
__device__ inline bool HasListedTooMany(const KeyTablesLaunch& launch) {
  return launch.listed != nullptr && LoadRelaxed(&launch.header->listed) > KeyTablesLaunch::kMostListed;
}

// Elements of a quad that have one group become one, the last: sorted keys would have threads wait for each other.
template <int kBins>
__device__ __forceinline__ void JoinEqual(std::uint32_t (&group)[kQuadRows], std::int64_t (&part)[kQuadRows][kBins],
                                          std::uint32_t (&count)[kQuadRows]) {
  if (group[0] != group[1] || group[1] != group[2] || group[2] != group[3]) return;
#pragma unroll
  for (int k = 0; k < kQuadRows - 1; ++k) {
#pragma unroll
    for (int b = 0; b < kBins; ++b) part[kQuadRows - 1][b] += part[k][b];
    count[kQuadRows - 1] += count[k];
    group[k] = kNoGroup;
  }
}

// Floats of up to 32 bits as multiples of a unit, by an addition: beside 1.5 2^52 units a double has no bits below one.
constexpr int kFixedBits = 51;  // that such multiples may have
template <class T, bool = kIsFloat<T>>
struct FixedPoint {  // integers are such multiples
  __device__ explicit FixedPoint(const KeyUnits&) {}
};
template <class T>
struct FixedPoint<T, true> {
  using Word = WordOfBytes<sizeof(T)>;
  static constexpr Word kSign = static_cast<Word>(Word{1} << (8 * sizeof(Word) - 1));

  double anchor;
  Word end;  // of the magnitudes that fit

  // units: of one bin.
  __device__ explicit FixedPoint(const KeyUnits& units)
      : end(static_cast<Word>(Word(units.base + units.span + 1) << FloatFormat<T>::kFraction)) {
    constexpr std::int64_t kFraction = 52, kBias = 1023;
    const int unit = KeyUnitOf<T>(units) + units.low;
    anchor = __longlong_as_double((unit + kFraction + kBias) << kFraction | std::int64_t{1} << (kFraction - 1));
  }
  // No NaN, no infinity, nothing too large, and not -0.
  __device__ __forceinline__ bool takes(Word word) const {
    return static_cast<Word>(word & static_cast<Word>(kSign - 1)) < end && word != kSign;
  }
  // How many units that is; *exact: it is a multiple, if takes().
  __device__ __forceinline__ std::int64_t Of(Word word, bool* exact) const {
    const double x = ToDouble(BitsAs<T>(word));
    const double moved = x + anchor;
    *exact = moved - anchor == x;
    return __double_as_longlong(moved) - __double_as_longlong(anchor);
  }
};

// Sums of a block in shared memory, each as two words of 32 bits, with copies of a group's next to each other.
template <class T>
struct SharedSums {
  unsigned* low;
  unsigned* high;
  unsigned* counts;  // these two only if the table has them
  unsigned* nans;
  unsigned copies;
  unsigned copy;  // of this thread
  KeyUnits units;
  FixedPoint<T> fixed;

  // Adds the rows of a quad: nearly always all have groups, and elements that fit, by as few instructions as that
  // takes.
  __device__ __forceinline__ void Add(const KeyTablesLaunch& launch, const Quad<sizeof(T)>& quad,
                                      const std::uint32_t (&group)[kQuadRows]) const {
    const bool adds = launch.table.bins_used > 0;
    std::int64_t part[kQuadRows];
    // Of bools as integers, so that nothing is branched on before all is known.
    unsigned plain = 1;
    unsigned differ = 0;
#pragma unroll
    for (int k = 0; k < kQuadRows; ++k) {
      const auto word = quad.elements.At(k);
      plain &= group[k] != kNoGroup ? 1U : 0U;
      differ |= group[k] ^ group[0];
      if constexpr (kIsFloat<T>) {
        bool exact;
        part[k] = fixed.Of(word, &exact);
        plain &= exact || !adds ? 1U : 0U;
        plain &= fixed.takes(word) ? 1U : 0U;
      } else {
        std::int64_t one[1];
        IntegerTermOf(word, launch.elements, one);
        part[k] = one[0];
      }
    }
    if (plain == 0 || differ == 0) {
      AddSeldom(*this, launch, quad.elements, {{group[0], group[1], group[2], group[3]}});
      return;
    }
    unsigned at[kQuadRows];
#pragma unroll
    for (int k = 0; k < kQuadRows; ++k) at[k] = group[k] * copies + copy;
    if (adds) {
      // The lower words of all first, so that none waits for another; then what they carried.
      unsigned before[kQuadRows];
#pragma unroll
      for (int k = 0; k < kQuadRows; ++k) before[k] = atomicAdd(low + at[k], static_cast<unsigned>(part[k]));
#pragma unroll
      for (int k = 0; k < kQuadRows; ++k) {
        const unsigned carry = before[k] > ~static_cast<unsigned>(part[k]) ? 1 : 0;
        const unsigned upper = static_cast<unsigned>(part[k] >> 32) + carry;
        if (upper != 0) atomicAdd(high + at[k], upper);
      }
    }
    if (launch.table.counts != nullptr) {
#pragma unroll
      for (int k = 0; k < kQuadRows; ++k) atomicAdd(counts + at[k], 1U);
    }
  }

 private:
  // Rows of any kind, one after the other; those that all have one group, such as sorted keys, become one row first:
  // threads would wait for each other.
  __device__ __noinline__ static void AddSeldom(const SharedSums to, const KeyTablesLaunch& launch,
                                                FourElements<sizeof(T)> elements, FourKeys groups) {
    std::int64_t part[kQuadRows][1] = {};
    std::uint32_t count[kQuadRows] = {};
#pragma unroll
    for (int k = 0; k < kQuadRows; ++k) {
      if (groups.key[k] == kNoGroup) continue;
      unsigned* const nan = launch.table.nans == nullptr ? nullptr : to.nans + groups.key[k] * to.copies + to.copy;
      const auto taken = TakeElement<T, 1>(launch, to.units, elements.At(k), groups.key[k], nan);
      part[k][0] = taken.part[0];
      count[k] = taken.count;
    }
    JoinEqual(groups.key, part, count);
#pragma unroll
    for (int k = 0; k < kQuadRows; ++k) {
      if (groups.key[k] == kNoGroup) continue;
      const unsigned at = groups.key[k] * to.copies + to.copy;
      if (launch.table.counts != nullptr) atomicAdd(to.counts + at, count[k]);
      if (launch.table.bins_used == 0 || part[k][0] == 0) continue;
      const auto lower = static_cast<unsigned>(part[k][0]);
      const bool carried = lower != 0 && atomicAdd(to.low + at, lower) > ~lower;
      const unsigned upper = static_cast<unsigned>(part[k][0] >> 32) + (carried ? 1U : 0U);
      if (upper != 0) atomicAdd(to.high + at, upper);
    }
  }
};

template <class T>
__global__ void __launch_bounds__(kSharedThreads)
    SharedSumsKernel(const __grid_constant__ KeyTablesLaunch launch, const QuadPlan plan, int copies, int bits) {
  extern __shared__ unsigned words[];
  const KeyTable& table = launch.table;
  const auto groups = static_cast<unsigned>(table.groups);
  const unsigned places = groups * static_cast<unsigned>(copies);
  const bool adds = table.bins_used > 0;
  unsigned* const low = words;
  unsigned* const high = low + (adds ? places : 0);
  unsigned* const counts = high + (adds ? places : 0);
  unsigned* const nans = counts + (table.counts != nullptr ? places : 0);
  unsigned* const end = nans + (table.nans != nullptr ? places : 0);
  for (unsigned* word = words + threadIdx.x; word < end; word += kSharedThreads) *word = 0;
  __syncthreads();
  KeyUnits units = UnitsFor<T>(launch, 1, bits);
  units.low = table.place[0];
  const SharedSums<T> sums{.low = low,
                           .high = high,
                           .counts = counts,
                           .nans = nans,
                           .copies = static_cast<unsigned>(copies),
                           .copy = threadIdx.x % static_cast<unsigned>(copies),
                           .units = units,
                           .fixed = FixedPoint<T>(units)};
  ForEachQuad<sizeof(T), kQuadsAtOnce>(
      launch, plan, [&] { return HasListedTooMany(launch); },
      [&](const Quad<sizeof(T)>& quad, std::uint32_t(&group)[kQuadRows]) { sums.Add(launch, quad, group); });
  __syncthreads();
  // Blocks begin at different groups.
  const auto begin = static_cast<unsigned>(std::uint64_t{groups} * blockIdx.x / gridDim.x);
  for (unsigned i = threadIdx.x; i < groups; i += kSharedThreads) {
    const unsigned group = i + begin < groups ? i + begin : i + begin - groups;
    unsigned long long lower = 0;
    long long upper = 0;
    unsigned count = 0, nan = 0;
    for (unsigned at = group * copies; at < (group + 1) * copies; ++at) {
      if (adds) {
        lower += low[at];
        upper += static_cast<int>(high[at]);
      }
      if (table.counts != nullptr) count += counts[at];
      if (table.nans != nullptr) nan += nans[at];
    }
    if (lower != 0) atomicAdd(reinterpret_cast<unsigned long long*>(table.bins[0]) + group, lower);
    if (upper != 0) {
      atomicAdd(reinterpret_cast<unsigned long long*>(table.bins[1]) + group, static_cast<unsigned long long>(upper));
    }
    if (count != 0) atomicAdd(table.counts + group, count);
    if (nan != 0) atomicAdd(table.nans + group, nan);
  }
  if constexpr (kIsFloat<T>) {
    if (blockIdx.x == 0 && threadIdx.x == 0) launch.header->unit = KeyUnitOf<T>(units);
  }
}

template <class T>
__global__ void __launch_bounds__(kGlobalThreads, kGlobalBlocks)
    GlobalSumsKernel(const __grid_constant__ KeyTablesLaunch launch, const QuadPlan plan, int bits) {
  constexpr int kBins = kGlobalBins<T>;
  const KeyTable& table = launch.table;
  if (IsSkewed(launch.header->pairs, table)) return;
  const bool adds = table.bins_used > 0;
  const KeyUnits units = UnitsFor<T>(launch, kBins, bits);
  // Those of a warp have different copies, and so have neighbouring warps.
  const unsigned thread = blockIdx.x * kGlobalThreads + threadIdx.x;
  const std::int64_t copy = table.groups * (thread % static_cast<unsigned>(table.copies));
  ForEachQuad<sizeof(T), sizeof(T) == 8 ? 1 : kQuadsAtOnce>(
      launch, plan, [&] { return HasListedTooMany(launch); },
      [&](const Quad<sizeof(T)>& quad, std::uint32_t(&group)[kQuadRows]) {
        std::int64_t part[kQuadRows][kBins] = {};
        std::uint32_t count[kQuadRows] = {};
#pragma unroll
        for (int k = 0; k < kQuadRows; ++k) {
          if (group[k] == kNoGroup) continue;
          unsigned* const nan = table.nans == nullptr ? nullptr : table.nans + copy + group[k];
          const auto taken = TakeElement<T, kBins>(launch, units, quad.elements.At(k), group[k], nan);
#pragma unroll
          for (int b = 0; b < kBins; ++b) part[k][b] = taken.part[b];
          count[k] = taken.count;
        }
        JoinEqual(group, part, count);
#pragma unroll
        for (int k = 0; k < kQuadRows; ++k) {
          if (group[k] == kNoGroup) continue;
          const std::int64_t at = copy + group[k];
          if (adds) {
#pragma unroll
            for (int b = 0; b < kBins; ++b) {
              if (part[k][b] == 0) continue;
              atomicAdd(reinterpret_cast<unsigned long long*>(table.bins[b]) + at,
                        static_cast<unsigned long long>(part[k][b]));
            }
          }
          if (table.counts != nullptr && count[k] != 0) atomicAdd(table.counts + at, count[k]);
        }
      });
  if constexpr (kIsFloat<T>) {
    if (thread == 0) launch.header->unit = KeyUnitOf<T>(units);
  }
}

// Adds the other copies of the groups' entries to the first: a block for each group.
constexpr int kMergeThreads = 128;
__global__ void __launch_bounds__(kMergeThreads) MergeCopiesKernel(const __grid_constant__ KeyTable table) {
  const std::int64_t group = blockIdx.x;
  const auto merge = [&](auto* words) {
    using Word = std::conditional_t<sizeof(*words) == 8, unsigned long long, unsigned>;
    Word sum = 0;
    for (int copy = 1 + static_cast<int>(threadIdx.x); copy < table.copies; copy += kMergeThreads) {
      sum += words[copy * table.groups + group];
    }
#pragma unroll
    for (int distance = kWarpSize / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(kFullWarp, sum, distance);
    if (threadIdx.x % kWarpSize == 0 && sum != 0) atomicAdd(reinterpret_cast<Word*>(words) + group, sum);
  };
  for (int b = 0; b < table.bins_used; ++b) merge(table.bins[b]);
  if (table.counts != nullptr) merge(table.counts);
  if (table.nans != nullptr) merge(table.nans);
}

// Whether there are groups whose sum is 0 or -0: they have -0, and what else they have adds up to 0.
__global__ void __launch_bounds__(kItemThreads) FindUnsureKernel(const __grid_constant__ KeyTablesLaunch launch) {
  if (launch.header->negative_zeros == 0) return;
  const KeyTable& table = launch.table;
  ForEachItem(table.groups, [&](std::int64_t group) {
    if ((KeyFlagsOf(table, group) & kKeyNegativeZero) == 0 || TotalOf(KeyRecordOf(table, group), table) != 0) return;
    if (LoadRelaxed(&launch.header->unsure) == 0) atomicOr(&launch.header->unsure, 1U);
  });
}
// Finds the other elements that groups with -0 have.
template <int kBytes>
__global__ void __launch_bounds__(kGlobalThreads, kGlobalBlocks)
    FindOthersKernel(const __grid_constant__ KeyTablesLaunch launch, const QuadPlan plan) {
  using Word = WordOfBytes<kBytes>;
  if (launch.header->unsure == 0) return;
  ForEachQuad<kBytes, 1>(
      launch, plan, [] { return false; },
      [&](const Quad<kBytes>& quad, std::uint32_t(&group)[kQuadRows]) {
#pragma unroll
        for (int k = 0; k < kQuadRows; ++k) {
          const Word word = quad.elements.At(k);
          const auto magnitude = static_cast<Word>(word & static_cast<Word>(launch.elements.magnitude));
          const bool nan = magnitude > static_cast<Word>(launch.elements.infinity);
          if (group[k] == kNoGroup || (magnitude == 0 && word != 0) || (nan && launch.elements.omit_nan)) continue;
          SetKeyFlag(launch.table, group[k], kKeyOther);
        }
      });
}

template <class T>
cudaError_t AddToShared(const KeyTablesLaunch& launch) {
  const QuadPlan plan = QuadsOf(launch);
  const auto blocks = static_cast<unsigned>(
      std::clamp<std::int64_t>(plan.quads / (kQuadsAtOnce * kSharedThreads), 1, std::int64_t{launch.multiprocessors}));
  const std::int64_t turns =
      (plan.quads + std::int64_t{blocks} * kSharedThreads - 1) / (std::int64_t{blocks} * kSharedThreads);
  const auto room = static_cast<unsigned>(std::max<std::int64_t>(1, kCopiedWords / launch.table.groups));
  const int copies = std::min<int>(kMostCopies, static_cast<int>(std::bit_floor(room)));
  const auto shared_bytes = static_cast<int>(SharedBytesOf(launch.table) * copies);
  const cudaError_t error = AllowShared(launch, SharedSumsKernel<T>);
  if (error != cudaSuccess) return error;
  const int bits = std::min(KeyBinBits(1, turns * kSharedThreads * kQuadRows), kFixedBits);
  SharedSumsKernel<T><<<blocks, kSharedThreads, shared_bytes, launch.stream>>>(launch, plan, copies, bits);
  return cudaGetLastError();
}

template <class T>
cudaError_t AddToGlobal(const KeyTablesLaunch& launch) {
  const QuadPlan plan = QuadsOf(launch);
  const auto blocks = static_cast<unsigned>(
      std::clamp<std::int64_t>(plan.quads / kGlobalThreads, 1, std::int64_t{kGlobalBlocks} * launch.multiprocessors));
  GlobalSumsKernel<T><<<blocks, kGlobalThreads, 0, launch.stream>>>(launch, plan, launch.table.place[1]);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess || launch.table.copies == 1) return error;
  MergeCopiesKernel<<<static_cast<unsigned>(launch.table.groups), kMergeThreads, 0, launch.stream>>>(launch.table);
  return cudaGetLastError();
}

// Tells 0 from -0, where there is that.
template <class T>
cudaError_t TellZeros(const KeyTablesLaunch& launch) {
  const QuadPlan plan = QuadsOf(launch);
  FindUnsureKernel<<<BlocksForItems(launch.table.groups), kItemThreads, 0, launch.stream>>>(launch);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  const auto blocks = static_cast<unsigned>(
      std::clamp<std::int64_t>(plan.quads / kGlobalThreads, 1, std::int64_t{kGlobalBlocks} * launch.multiprocessors));
  FindOthersKernel<sizeof(T)><<<blocks, kGlobalThreads, 0, launch.stream>>>(launch, plan);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchKeySums(const KeyTablesLaunch& launch) {
  const bool floats = RowOf(launch.elements.dtype).is_float && launch.table.bins_used > 0;
  if (floats || !launch.shared) {
    const cudaError_t error = LaunchSampleRows(launch, launch.sampled ? KeyTablesLaunch::kSamples : launch.rows);
    if (error != cudaSuccess) return error;
  }
  return VisitDType(launch.elements.dtype, [&]<class T>(std::type_identity<T>) {
    using Element = SumElement<T>;
    cudaError_t error = cudaErrorInvalidValue;
    if constexpr (sizeof(T) <= 4) {
      if (launch.shared) error = AddToShared<Element>(launch);
    }
    if (!launch.shared) error = AddToGlobal<Element>(launch);
    if constexpr (kIsFloat<T>) {
      if (error == cudaSuccess && floats) error = TellZeros<T>(launch);
    }
    return error;
  });
}

}  // namespace reduced

// Quantiles by key on a CUDA device without sorting the rows: the launches that CudaLane::GroupReduction::FillBrackets
// and AnswerQuantiles are made of.
//
// A sample tells for each group and quantile a bracket of keys (algebra/sort_key.h) that almost surely has the wanted
// ranks. One pass over all rows counts for each group the elements between, and at, the ends of its brackets, and
// collects the few within, from which the wanted ranks are selected: the algorithm of R. W. Floyd and R. L. Rivest
// (SELECT, Communications of the ACM 18, 1975), for all groups at once.
#ifndef REDUCED_KERNELS_CUDA_KEY_QUANTILES_H_
#define REDUCED_KERNELS_CUDA_KEY_QUANTILES_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/key_tables.h"
#include "kernels/cuda/quantiles.h"

namespace reduced {

// What has been counted and collected, in device memory. The ends of a group's brackets, E of them, cut its keys into
// 2 E + 1 slots: slot 2 i + 1 is end i itself, slot 2 i what is below it and above the end before; the last slot, 2 E +
// 1, are NaNs. What slots 2 to 2 E - 2 have is collected, unless it is within no bracket.
struct KeyBrackets {
  static constexpr int kMostQuantiles = 4;

  std::int64_t groups = 0;
  int quantiles = 0;                  // different ones, of all ops
  void* ends = nullptr;               // keys: of each group ends_of_each() of them, ascending
  std::uint8_t* collected = nullptr;  // of each group: bit i: what slot 2 i has is collected
  std::uint32_t* counts = nullptr;    // of each group: the elements in each slot
  // The collected keys by group and slot, in any order: those of slot 2 i of group g, which is interval g intervals() +
  // i - 1, from first[interval] on.
  void* keys = nullptr;
  std::uint32_t* first = nullptr;

  REDUCED_HD constexpr int ends_of_each() const { return 2 * quantiles; }
  REDUCED_HD constexpr int slots() const { return 2 * ends_of_each() + 2; }
  REDUCED_HD constexpr int intervals() const { return ends_of_each() - 1; }
};

struct KeyBracketsLaunch {
  static constexpr std::int64_t kRowsOfSample = 64;    // of which one is looked at
  static constexpr std::int64_t kSampledTogether = 4;  // neighbours

  // Keys are collected in stretches of so many, of which the rest are of no group.
  static constexpr std::uint32_t kStretch = 256;

  // The rows. Of the table there are the groups alone; the header's `listed` are the keys for which room was taken,
  // more than `room`: not all rows were looked at; its `unsure` are wanted ranks that no bracket has.
  KeyTablesLaunch rows{};
  bool omit_nan = false;
  const double* quantiles = nullptr;  // device memory: KeyBrackets::quantiles of them, ascending
  KeyBrackets brackets{};             // counts: zeros
  // Device memory for `room` keys that are collected, and the interval of each, or kNoKey.
  void* keys = nullptr;
  std::uint32_t* intervals = nullptr;
  std::uint32_t room = 0;
  std::uint32_t* placed = nullptr;  // device memory, zeros: of each interval, how many keys are in brackets.keys
  // Device memory for the group, or kNoKey, and the key of each row of the sample.
  std::uint32_t* sample_ids = nullptr;
  void* sample_keys = nullptr;
  // The same by group, and where each group begins. Of LaunchKeyBrackets.
  const void* sorted_sample = nullptr;
  const std::int64_t* sample_bounds = nullptr;

  constexpr std::int64_t samples() const { return rows.rows / (kRowsOfSample * kSampledTogether) * kSampledTogether; }
  // The row of a sample. Not always as far from the one before: what has a period would be seen wrong.
  static REDUCED_HD std::int64_t RowOf(std::int64_t sample) {
    const std::int64_t stretch = sample / kSampledTogether;
    const std::int64_t jitter = static_cast<std::uint32_t>(stretch) * 2654435761U % kRowsOfSample;
    return (stretch * kRowsOfSample + jitter) * kSampledTogether + sample % kSampledTogether;
  }
};
// Bytes of a block's shared memory that brackets take at least.
constexpr std::int64_t SharedBytesOf(const KeyBrackets& brackets, std::int64_t width) {
  return (brackets.groups + 1) * (brackets.ends_of_each() * width + 4 * (brackets.slots() | 1) + 1) + 16;
}
// Looks at the sample.
cudaError_t LaunchSampleKeys(const KeyBracketsLaunch& launch);
// Sets the ends, counts and collects.
cudaError_t LaunchKeyBrackets(const KeyBracketsLaunch& launch);
// Answers as LaunchQuantiles does; of its launch, `array`, `outputs` and `keys` are of no use.
cudaError_t LaunchBracketAnswers(const QuantilesLaunch& launch, const KeyBrackets& brackets);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_KEY_QUANTILES_H_

// Reductions by key on a CUDA device without sorting the rows: a table has an entry for each group, to which the
// threads add rows in any order.
//
// A sum is added up in bins, integers of 64 bits in a unit that follows from the largest magnitude: key_entries.h says
// how an element falls apart into them. An extremum is an integer that is the greater the closer an element is to it.
// Tables of few groups are in shared memory, one for each block, which adds it to the one in global memory at the end;
// those of many groups are in global memory alone.
#ifndef REDUCED_KERNELS_CUDA_KEY_TABLES_H_
#define REDUCED_KERNELS_CUDA_KEY_TABLES_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/algebra/dtype.h"
#include "kernels/cuda/groups.h"
#include "kernels/cuda/quick_folds.h"

namespace reduced {

inline constexpr int kMostKeyBins = 3;

// Entries of all groups, in device memory. Null: not wanted, or not of these elements.
struct KeyTable {
  std::int64_t groups = 0;
  // Of all but the flags there may be several, which few groups have so that threads rarely wait for each other: entry
  // c groups + g is of group g. MergeCopies adds them to the first.
  int copies = 1;
  int bins_used = 0;
  int place[kMostKeyBins] = {};  // a sum is that of bin[b] 2^place[b] units
  std::uint64_t* bins[kMostKeyBins] = {};
  std::uint64_t* extrema[2] = {};   // the lowest, the highest: as EntryOf has it; 0: none
  std::uint32_t* at[2] = {};        // of elements of 64 bits: the first rows that have these
  std::uint32_t* counts = nullptr;  // elements, without NaNs that are left out
  std::uint32_t* nans = nullptr;
  std::uint32_t* flags = nullptr;  // a byte of KeyFlags for each group, four in a word
};

// What rows have been seen in a group, as far as its sum needs it.
enum KeyFlags : std::uint32_t {
  kKeyNegativeZero = 1,
  kKeyOther = 2,  // a number other than -0; known only where there is -0 and all else adds up to 0
  kKeyPositiveInfinity = 4,
  kKeyNegativeInfinity = 8,
  kKeyNan = 16,
  kKeyListed = 32,
  kKeyLowestIsZero = 64,  // there is an element whose entry is 0, which else stands for none
  kKeyHighestIsZero = 128,
};

// An element that no bin takes, because it is too large or has too low bits.
struct ListedElement {
  double value = 0;
  std::uint64_t group = 0;  // as wide as the value: all bytes go to the host, and padding would not be initialized
};

// What a launch finds out beside the table, in device memory; zeros before it.
struct KeyTablesHeader {
  std::uint64_t largest = 0;         // pattern of the largest finite magnitude that was looked at
  std::uint64_t bad = 0;             // the number of rows less the first one whose key is outside; 0: there is none
  std::uint32_t listed = 0;          // elements; more than there was room for: the table is not complete
  std::uint32_t negative_zeros = 0;  // not 0: there are some
  std::uint32_t pairs = 0;           // samples that have the key of one far from them
  std::uint32_t unsure = 0;          // groups whose sum is 0 or -0
  std::int32_t unit = 0;             // of sums, as a power of two; 0 for integers
  std::uint32_t unused = 0;
};

struct KeyTablesLaunch {
  static constexpr std::uint32_t kMostListed = 1 << 14;
  static constexpr std::int64_t kSamples = 1 << 14;
  static constexpr std::int64_t kEndOfRows = (std::int64_t{1} << 31) - 64;  // fewer rows than that, and groups

  QuickElements elements;  // without their count
  GroupArray array;        // of one column; its mask, unless the keys heed it
  DType key_dtype = DType::kI32;
  const void* keys = nullptr;  // aligned to their size. Others may change them
  bool drop = false;           // rows with keys outside have no group
  std::int64_t rows = 0;       // > 0
  KeyTable table;              // zeros, and kNowhere in `at`
  // The table is one of each block's shared memory first. Extrema, and sums of elements of up to 32 bits.
  bool shared = false;
  // Of sums of floats: the unit follows from the largest magnitude of some rows, and there is some room above; else
  // from that of all.
  bool sampled = false;
  int multiprocessors = 1;
  std::int64_t most_shared_bytes = 0;  // that a block can have
  KeyTablesHeader* header = nullptr;
  ListedElement* listed = nullptr;  // room for kMostListed; null: not sums of floats
  cudaStream_t stream = nullptr;
};
// Bytes of a block's shared memory that a table takes.
constexpr std::int64_t SharedBytesOf(const KeyTable& table) {
  int words = table.bins_used > 0 ? 2 : 0;
  for (const std::uint64_t* const extrema : table.extrema) words += extrema != nullptr ? 2 : 0;
  for (const std::uint32_t* const counts : {table.counts, table.nans}) words += counts != nullptr ? 1 : 0;
  return table.groups * words * std::int64_t{sizeof(std::uint32_t)};
}
// Whether so many rows have the same group, as the pairs among the samples say, that threads would wait for each other
// in global memory: then nothing is added to a table there, and it is not complete.
REDUCED_HD bool IsSkewed(std::uint32_t pairs, const KeyTable& table) {
  constexpr std::uint32_t kMostPairs = 32;
  return pairs > kMostPairs * static_cast<std::uint32_t>(table.copies);
}
// Adds all rows to the table: sums, extrema. A table has one or the other, and may have counts.
cudaError_t LaunchKeySums(const KeyTablesLaunch& launch);
cudaError_t LaunchKeyExtrema(const KeyTablesLaunch& launch);

// Answers from a table, one for each group.
struct KeyAnswersLaunch {
  QuickElements elements;             // as of the table, without their count
  QuickKind kind = QuickKind::kSums;  // or kExtrema
  KeyTable table;
  int unit = 0;
  std::int64_t first = 0;  // group
  std::int64_t count = 0;  // > 0
  QuickAnswer answers[kMostQuickOps] = {};
  // What the ops answer where no element counts, as bits; fills: extrema, too.
  std::uint64_t empty[kMostQuickOps] = {};
  bool fills = false;
  int ops = 0;
  std::uint8_t* left = nullptr;  // of each group: kAnswered or kNotKnown
  bool after = false;            // another launch for the same groups has set `left`
  cudaStream_t stream = nullptr;
};
cudaError_t LaunchKeyAnswers(const KeyAnswersLaunch& launch);

// All entries of a group.
struct KeyRecord {
  std::uint64_t bins[kMostKeyBins] = {};
  std::uint64_t extrema[2] = {};
  std::uint32_t at[2] = {};
  std::uint32_t count = 0;
  std::uint32_t nans = 0;
  std::uint32_t flags = 0;
  std::uint32_t unused = 0;
};
struct KeyRecordsLaunch {
  KeyTable table{};
  const std::int64_t* groups = nullptr;  // device memory
  std::int64_t count = 0;                // of them, > 0
  KeyRecord* records = nullptr;          // device memory
  cudaStream_t stream = nullptr;
};
cudaError_t LaunchKeyRecords(const KeyRecordsLaunch& launch);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_KEY_TABLES_H_

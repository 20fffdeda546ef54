// CudaLane::WholeArray: answers ops about distributions of one array in device memory, by kernels. The host narrows
// what a kernel looks for between its passes, and finishes by the formulas of the CPU engine's folds (kernels/folds).
#ifndef REDUCED_KERNELS_CUDA_WHOLE_ARRAY_H_
#define REDUCED_KERNELS_CUDA_WHOLE_ARRAY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/cuda/lane.h"
#include "kernels/cuda/selection.h"
#include "kernels/folds/byte_counts.h"

namespace reduced {

class TermSums;

class CudaLane::WholeArray {
 public:
  // On an error, what is in flight is to be waited for before this goes.
  WholeArray(CudaLane& lane, const Job& job, CudaArrays& arrays, Timing* timing)
      : lane_(lane), job_(job), arrays_(arrays), timing_(timing) {}

  // Whether there are kernels for an op of the job.
  static bool Answers(const Job& job, const OpCall& call);
  // Whether these find what the op's state has.
  static bool HasState(Op op) { return op == Op::kFingerprint || OtherOf(op) != OtherOperand::kNone; }

  // Answers one op of the `count` > 0 elements at `data`, which are aligned to their size, and as many at `other`;
  // null: the op has no other operand. `answers` may be null if `state`, of ops that have one, is not: then it gets the
  // entries. *op_error: as of DistributionFold::Finish. RESOURCE_EXHAUSTED: the device has no memory. UNIMPLEMENTED:
  // these elements have no kernel.
  absl::Status Answer(const OpCall& call, const std::byte* data, const std::byte* other, std::int64_t count,
                      std::byte* answers, Entries* state, absl::Status* op_error);

 private:
  // Elements, or keys that were gathered.
  struct Source {
    KeyFormat format{};
    const std::byte* data = nullptr;
    std::int64_t count = 0;
  };
  // A range of keys that has wanted ranks.
  struct Bracket {
    std::uint64_t lo = 0;
    std::uint64_t hi = 0;
    std::int64_t below = 0;  // elements with lesser keys
    std::int64_t size = 0;   // elements in it
    std::size_t first = 0;   // of the ranks, and one more than the last
    std::size_t last = 0;
  };
  // What a pass counted.
  struct Counted {
    CountedKeys head{};
    std::vector<std::uint64_t> counts{};
    int bytes = 0;              // of a key
    int digit = 0;              // bits that a bracket is counted by
    std::vector<int> shifts{};  // of each bracket

    std::int64_t total() const {
      return static_cast<std::int64_t>(std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}));
    }
    const std::uint64_t* Of(std::size_t bracket) const { return counts.data() + (bracket << digit); }
    // Where the keys are that were gathered.
    std::int64_t bytes_before_keys() const { return std::int64_t{sizeof(head)} + 8 * std::ssize(counts); }
  };
  // The keys of ascending ranks among the elements that are no NaNs.
  struct Selected {
    std::int64_t numbers = 0;
    std::vector<std::int64_t> ranks{};
    std::vector<std::uint64_t> keys{};
  };
  // The ranks to select among so many.
  using RanksOf = absl::FunctionRef<std::vector<std::int64_t>(std::int64_t numbers)>;

  absl::StatusOr<std::byte*> Allocate(std::int64_t bytes, std::unique_ptr<ArrayMemory>* memory);
  // Runs launches, waits for them, and copies what they leave to the host.
  absl::Status Run(absl::FunctionRef<cudaError_t()> launches, const std::byte* from, std::int64_t bytes,
                   const std::vector<Region>& regions);

  absl::Status Histogram(const OpCall& call, const std::byte* data, std::int64_t count, std::byte* answers);
  absl::Status Quantiles(const OpCall& call, const std::byte* data, std::int64_t count, std::byte* answers,
                         absl::Status* op_error);

  absl::Status Top(const OpCall& call, const std::byte* data, std::int64_t count, std::byte* answers,
                   absl::Status* op_error);
  // The state of an op.
  absl::StatusOr<Entries> StateOf(const OpCall& call, const std::byte* data, const std::byte* other,
                                  std::int64_t count);
  static bool AnswersFingerprint(const Job& job, const OpCall& call);
  absl::StatusOr<Entries> Fingerprint(const OpCall& call, const std::byte* data, std::int64_t count);
  static bool AnswersPairs(const Job& job, const OpCall& call);
  absl::StatusOr<Entries> Pairs(const OpCall& call, const std::byte* data, const std::byte* other, std::int64_t count);
  // Adds the sums of all finite pairs. *nans, *infinities: how many other ones there are.
  absl::Status AddPairSums(const OpCall& call, const std::byte* data, const std::byte* other, std::int64_t count,
                           TermSums* sums, std::int64_t* nans, std::int64_t* infinities);
  // Of compare and distance_max.
  absl::StatusOr<Entries> Compare(const OpCall& call, const std::byte* data, const std::byte* other,
                                  std::int64_t count);
  // Of elements of 8 and 16 bits: all ops that AnsweredByCounts, but for those of accumulators that have kernels.
  static bool IsFromCounts(const Job& job, const OpCall& call);
  absl::Status FromCounts(const OpCall& call, const std::byte* data, std::int64_t count, std::byte* answers,
                          absl::Status* op_error);
  // Sets counts_, once for all ops of an array; of 8 bits byte_counts_, too.
  absl::Status CountValues(const std::byte* data, std::int64_t count);
  absl::Status Distinct(const std::byte* data, std::int64_t count, std::byte* answers);

  // Of folds that take little memory, which nobody counts.
  FoldLimits UncountedLimits() const;

  static std::uint64_t MostKey(int bytes) { return ~std::uint64_t{0} >> (64 - 8 * bytes); }
  // The most bits that a pass over keys of so many bytes counts by.
  static int MostDigit(int bytes) { return bytes == 8 ? 13 : 12; }
  // Bits of the keys of brackets that a pass counts by: at most `most`, and as many as a block has room for.
  int DigitFor(std::size_t brackets, bool gathers, int most) const;
  // Counts the keys of at most kMostRanges brackets, by at most `digit` bits. `gathered`: null, or gets at most `room`
  // of the keys of brackets with several. few: they come to the host, too.
  absl::Status CountPass(const Source& source, std::int64_t stretch, const std::vector<Bracket>& brackets, int digit,
                         std::int64_t room, std::unique_ptr<ArrayMemory>* gathered, std::vector<std::byte>* few,
                         Counted* counted);
  static Source Candidates(int bytes, const ArrayMemory& memory, std::int64_t begin, std::int64_t count);
  static void TakePart(std::uint64_t lo, std::uint64_t hi, std::int64_t size, const std::vector<std::int64_t>& ranks,
                       Bracket* rest, std::vector<Bracket>* parts);
  // The parts of brackets that have the ranks.
  static std::vector<Bracket> Narrowed(const std::vector<Bracket>& brackets, const Counted& counted,
                                       const std::vector<std::int64_t>& ranks, std::vector<std::uint64_t>* found);
  static void Settle(std::vector<Bracket>* brackets, std::vector<std::uint64_t>* found);
  // Selects the keys of ascending ranks that lie in brackets.
  absl::Status Select(const Source& source, std::vector<Bracket> brackets, const std::vector<std::int64_t>& ranks,
                      std::vector<std::uint64_t>* found);
  absl::Status SelectInSome(Source source, std::vector<Bracket> brackets, const std::vector<std::int64_t>& ranks,
                            std::vector<std::uint64_t>* found);
  static void SelectFew(int bytes, const std::vector<std::byte>& keys, const std::vector<Bracket>& brackets,
                        const std::vector<std::int64_t>& ranks, std::vector<std::uint64_t>* found);
  absl::Status BracketsFromSample(const Source& source, const OpCall& call, std::vector<Bracket>* brackets);
  absl::Status SelectInBrackets(const Source& source, const RanksOf& ranks_of, std::vector<Bracket> brackets,
                                Selected* selected, bool* known);
  absl::Status SelectMany(const Source& source, const RanksOf& ranks_of, Selected* selected);
  absl::Status SelectOnHost(const Source& candidates, Selected* selected);
  absl::Status SelectFromAll(const Source& source, const RanksOf& ranks_of, Selected* selected);

  absl::Status Gather(const Source& source, std::int64_t first, std::int64_t count, std::uint64_t least,
                      std::uint64_t most, std::vector<FoundKey>* found, std::int64_t* number);
  absl::Status BoundFromSample(const Source& source, std::int64_t k, std::uint64_t* bound);
  absl::Status SelectLast(const Source& source, std::int64_t k, std::uint64_t* last, std::int64_t* total);
  absl::Status CountLast(const Source& source, std::int64_t k, std::uint64_t* last, std::int64_t* total,
                         std::int64_t* below);
  absl::Status GatherLeast(const Source& source, std::int64_t k, std::vector<FoundKey>* found);

  CudaLane& lane_;
  const Job& job_;
  CudaArrays& arrays_;
  Timing* const timing_;
  std::vector<std::unique_ptr<ArrayMemory>> memory_;  // of launches that may be in flight
  ByteCounts byte_counts_;
  std::vector<unsigned long long> counts_;  // by the bits of an element of 8 or 16 bits
  const std::byte* counted_ = nullptr;      // the elements that counts_ is of, so many
  std::int64_t counted_elements_ = 0;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_WHOLE_ARRAY_H_

// CudaLane::WholeArray: ops about two arrays, from exact sums of pairs (pair_sums.h), and comparisons (compare.h).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <tuple>
#include <type_traits>
#include <vector>

#include "kernels/cuda/compare.h"
#include "kernels/cuda/pair_sums.h"
#include "kernels/cuda/whole_array.h"
#include "kernels/folds/distances.h"
#include "kernels/folds/fold.h"
#include "kernels/folds/term_sums.h"

namespace reduced {
namespace {

bool HasSquaredDistance(Op op) { return op == Op::kDistanceL2 || op == Op::kCompare; }

// The terms whose sums a kernel adds up for an op: all that answer it, and seldom more. None: no kernel does.
std::span<const SumTerm> KernelTermsOf(Op op) {
  if (HasSquaredDistance(op)) return TermsOf(Op::kCosine);  // (x - y)^2 = x^2 - 2 x y + y^2
  for (const Op each : {Op::kDot, Op::kWeightedMean, Op::kCosine, Op::kCorr, Op::kDistanceL1}) {
    const std::span<const SumTerm> terms = TermsOf(each);
    const auto has = [terms](SumTerm term) { return std::ranges::find(terms, term) != terms.end(); };
    if (!TermsOf(op).empty() && std::ranges::all_of(TermsOf(op), has)) return terms;
  }
  return {};
}

// The value of an element with these bits.
double ValueOfBits(DType dtype, std::uint64_t bits) {
  return VisitDType(dtype, [&]<class T>(std::type_identity<T>) {
    T element;
    std::memcpy(&element, &bits, sizeof(element));
    return static_cast<double>(ExactValue(element));
  });
}

// Adds what a block has.
void Join(const ComparedPairs& block, ComparedPairs* all) {
  for (int i = 0; i < kPairCounts; ++i) all->count[i] += block.count[i];
  for (std::size_t i = 0; i < kComparisonRecords; ++i) {
    const ComparedPairs::Record &more = block.record[i], &best = all->record[i];
    if (std::tie(more.rank, more.index) < std::tie(best.rank, best.index)) all->record[i] = more;
  }
}

}  // namespace

bool CudaLane::WholeArray::AnswersPairs(const Job& job, const OpCall& call) {
  const OtherArray& other = OtherOf(job, call);
  if (!HasKernels(job.spec.dtype) || other.array.dtype != job.spec.dtype || !other.broadcast.empty()) return false;
  if (call.op == Op::kCompare || call.op == Op::kDistanceMax) return true;
  return RowOf(job.spec.dtype).is_float && HasPairKernel(KernelTermsOf(call.op));
}

absl::Status CudaLane::WholeArray::AddPairSums(const OpCall& call, const std::byte* data, const std::byte* other,
                                               std::int64_t count, TermSums* sums, std::int64_t* nans,
                                               std::int64_t* infinities) {
  const absl::StatusOr<std::byte*> room = Allocate(sizeof(PairDigits), &memory_.emplace_back());
  if (!room.ok()) return room.status();
  const std::span<const SumTerm> terms = KernelTermsOf(call.op);
  const auto digits = std::make_unique<PairDigits>();
  for (std::int64_t first = 0; first < count; first += PairDigits::kMostPairs) {
    const std::int64_t begin = first * RowOf(job_.spec.dtype).bytes;
    const PairSumsLaunch launch{.dtype = job_.spec.dtype,
                                .terms = terms,
                                .x = data + begin,
                                .y = other + begin,
                                .count = std::min(PairDigits::kMostPairs, count - first),
                                .out = reinterpret_cast<PairDigits*>(*room),
                                .multiprocessors = lane_.multiprocessors_,
                                .stream = lane_.kernel_stream_};
    const auto launches = [&] {
      const cudaError_t error = cudaMemsetAsync(*room, 0, sizeof(PairDigits), lane_.kernel_stream_);
      return error == cudaSuccess ? LaunchPairSums(launch) : error;
    };
    const absl::Status status =
        Run(launches, *room, sizeof(*digits), {{0, sizeof(*digits), reinterpret_cast<std::byte*>(digits.get())}});
    if (!status.ok()) return status;
    *nans += static_cast<std::int64_t>(digits->nans);
    *infinities += static_cast<std::int64_t>(digits->infinities);
    for (std::size_t i = 0; i < terms.size(); ++i) {
      const SumTerm term = terms[i];
      if (std::ranges::find(TermsOf(call.op), term) != TermsOf(call.op).end()) {
        sums->AddDigits(term, 1, digits->digit[i], PairUnit(term));
      } else if (HasSquaredDistance(call.op)) {
        sums->AddDigits(SumTerm::kSquaredDistance, term == SumTerm::kXY ? -2 : 1, digits->digit[i], PairUnit(term));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Entries> CudaLane::WholeArray::Pairs(const OpCall& call, const std::byte* data, const std::byte* other,
                                                    std::int64_t count) {
  TermSums sums(call, job_.spec);
  std::int64_t nans = 0, infinities = 0;
  const absl::Status status = AddPairSums(call, data, other, count, &sums, &nans, &infinities);
  if (!status.ok()) return status;
  if (infinities > 0) return absl::UnimplementedError("pairs: got infinities; allowed: finite elements, NaN");
  const bool omits = job_.spec.nan_policy == NanPolicy::kOmit;
  sums.AddCount(TermCount::kElements, omits ? count - nans : count);
  if (!omits) sums.AddCount(TermCount::kUndefined, nans);
  Entries state = NoEntries(call, job_.spec.dtype);
  sums.Save(&state);
  return state;
}

absl::StatusOr<Entries> CudaLane::WholeArray::Compare(const OpCall& call, const std::byte* data, const std::byte* other,
                                                      std::int64_t count) {
  constexpr std::int64_t kMostGathered = 1 << 14;  // pairs whose squares the host adds sooner than another pass
  constexpr std::int64_t kHead = 16;
  const DTypeRow& row = RowOf(job_.spec.dtype);
  const bool sums_floats = call.op == Op::kCompare && row.is_float;
  const int blocks = CompareBlocks(row.dtype, count, lane_.multiprocessors_);
  const std::int64_t found_bytes = blocks * std::int64_t{sizeof(ComparedPairs)};
  const std::int64_t room = sums_floats ? std::min(count, kMostGathered) : 0;
  const absl::StatusOr<std::byte*> memory =
      Allocate(kHead + found_bytes + 2 * room * row.bytes, &memory_.emplace_back());
  if (!memory.ok()) return memory.status();
  std::byte* const gathered_data = *memory + kHead + found_bytes;
  const CompareLaunch launch{.dtype = row.dtype,
                             .x = data,
                             .y = other,
                             .count = count,
                             .rules = {.rtol = call.given().rtol,
                                       .atol = call.given().atol,
                                       .equal_nan = call.given().equal_nan,
                                       .omits_nans = job_.spec.nan_policy == NanPolicy::kOmit,
                                       .is_signed = row.is_signed,
                                       .is_bool = row.dtype == DType::kBool},
                             .blocks = blocks,
                             .out = reinterpret_cast<ComparedPairs*>(*memory + kHead),
                             .gathered = reinterpret_cast<unsigned long long*>(*memory),
                             .gathered_x = gathered_data,
                             .gathered_y = gathered_data + room * row.bytes,
                             .room = static_cast<unsigned>(room),
                             .stream = lane_.kernel_stream_};
  const auto launches = [&] {
    const cudaError_t error = cudaMemsetAsync(*memory, 0, kHead, lane_.kernel_stream_);
    return error == cudaSuccess ? LaunchCompare(launch) : error;
  };
  unsigned long long head = 0;
  std::vector<ComparedPairs> found(static_cast<std::size_t>(blocks));
  absl::Status status = Run(launches, *memory, kHead + found_bytes,
                            {{0, sizeof(head), reinterpret_cast<std::byte*>(&head)},
                             {kHead, found_bytes, reinterpret_cast<std::byte*>(found.data())}});
  if (!status.ok()) return status;
  ComparedPairs all;
  for (const ComparedPairs& block : found) Join(block, &all);
  const auto counted = [&all](PairCount which) { return static_cast<std::int64_t>(all.count[which]); };

  Entries state = NoEntries(call, row.dtype);
  if (call.op == Op::kDistanceMax) {
    const ComparedPairs::Record& greatest = all.record[static_cast<std::size_t>(ComparisonRecord::kAbs)];
    std::uint64_t bits = greatest.index == ComparedPairs::kNone ? 0 : ~greatest.rank;
    if (counted(kUndefined) + counted(kEqualInfinities) > 0) {  // a distance is NaN
      bits = BitsOfDistance(std::numeric_limits<double>::quiet_NaN());
    }
    if (bits != 0) state.Add(0, bits);
    return state;
  }
  TermSums sums(call, job_.spec);
  sums.AddCount(TermCount::kElements, count - counted(kOmitted));
  sums.AddCount(TermCount::kUndefined, counted(kUndefined));
  sums.AddCount(TermCount::kPositive, counted(kInfinite));
  const auto gathered = static_cast<std::int64_t>(head);
  if (gathered > room) {
    std::int64_t nans = 0, infinities = 0;  // which were counted
    status = AddPairSums(call, data, other, count, &sums, &nans, &infinities);
  } else if (gathered > 0) {
    const std::int64_t bytes = gathered * row.bytes;
    std::vector<std::byte> x(static_cast<std::size_t>(bytes)), y(x.size());
    status = lane_.CopyToHost(job_, gathered_data, (room + gathered) * row.bytes,
                              {{0, bytes, x.data()}, {room * row.bytes, bytes, y.data()}}, timing_);
    if (status.ok()) sums.Add(x.data(), y.data(), gathered);
    sums.AddCount(TermCount::kElements, -gathered);  // counted twice
  }
  if (!status.ok()) return status;
  for (const ComparedPairs& block : found) {
    if (!row.is_float) sums.AddDigits(SumTerm::kSquaredDistance, 1, block.squares, 0);
  }
  sums.Save(&state);
  const auto add = [&state](std::uint64_t key, std::uint64_t value) {
    if (value != 0) state.Add(key, value);
  };
  add(IntegerKey(kMismatches, 0), all.count[kMismatched]);
  add(IntegerKey(kDifferentBits, 0), all.count[kOfOtherBits]);
  for (std::size_t i = 0; i < kComparisonRecords; ++i) {
    const ComparedPairs::Record& record = all.record[i];
    if (record.index == ComparedPairs::kNone) continue;
    const auto bits = [&](std::uint64_t of) { return BitsOfDistance(ValueOfBits(row.dtype, of)); };
    const std::uint64_t words[kRecordWords] = {record.rank, record.index, bits(record.x), bits(record.y)};
    for (std::size_t word = 0; word < kRecordWords; ++word) state.Add(RecordKey(i, word), words[word]);
  }
  return state;
}

}  // namespace reduced

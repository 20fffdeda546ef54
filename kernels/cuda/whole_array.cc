#include "kernels/cuda/whole_array.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "kernels/cuda/histogram.h"
#include "kernels/cuda/stage_range.h"
#include "kernels/cuda/status.h"
#include "kernels/exact/terms.h"
#include "kernels/folds/elements.h"
#include "kernels/folds/fold.h"
#include "kernels/folds/histogram_bins.h"
#include "kernels/folds/quantile_answers.h"
#include "kernels/system/failpoint.h"

namespace reduced {
namespace {

constexpr std::int64_t kFewKeys = 1 << 13;  // are selected from by the host

}  // namespace

int CudaLane::WholeArray::DigitFor(int bytes, std::size_t brackets, std::int64_t shared_bytes, int most) {
  constexpr std::int64_t kMostShared = std::int64_t{128} << 10;
  const auto entries = static_cast<std::uint64_t>(std::min(shared_bytes, kMostShared)) / 4 / brackets;
  return std::min({8 * bytes, most, static_cast<int>(std::bit_width(entries)) - 1});
}

bool CudaLane::WholeArray::Answers(const Job& job, const OpCall& call) {
  if (call.op == Op::kFingerprint) return AnswersFingerprint(job, call);
  if (OtherOf(call.op) != OtherOperand::kNone) return AnswersPairs(job, call);
  if (IsFromCounts(job, call)) return true;
  if (call.op == Op::kDistinctExact) return RowOf(job.spec.dtype).bytes == 2;
  return !HasAccumulator(call) && TermsOf(call.op).empty();
}

absl::Status CudaLane::WholeArray::Answer(const OpCall& call, const std::byte* data, const std::byte* other,
                                          std::int64_t count, std::byte* answers, Entries* state,
                                          absl::Status* op_error) {
  memory_.clear();
  if (absl::Status why = WhyStop(job_); !why.ok()) return why;
  if (HasState(call.op)) {
    absl::StatusOr<Entries> found = StateOf(call, data, other, count);
    if (!found.ok()) return found.status();
    const FoldLimits limits = UncountedLimits();
    absl::Status status;
    if (answers != nullptr) status = AnswerFromState(*found, *MakeDistributionFold(call, job_.spec, limits), answers);
    if (state != nullptr) *state = *std::move(found);
    return status;
  }
  if (IsFromCounts(job_, call)) return FromCounts(call, data, count, answers, op_error);
  switch (call.op) {
    case Op::kHistogram:
      return Histogram(call, data, count, answers);
    case Op::kMedian:
    case Op::kQuantile:
      return Quantiles(call, data, count, answers, op_error);
    case Op::kTopK:
    case Op::kBottomK:
    case Op::kArgTopK:
    case Op::kArgBottomK:
      return Top(call, data, count, answers, op_error);
    default:
      return RowOf(job_.spec.dtype).bytes == 2 ? CountEachKey(call, data, count, answers, op_error)
                                               : Distinct(data, count, answers);
  }
}

absl::StatusOr<Entries> CudaLane::WholeArray::StateOf(const OpCall& call, const std::byte* data, const std::byte* other,
                                                      std::int64_t count) {
  if (call.op == Op::kFingerprint) return Fingerprint(call, data, count);
  if (call.op == Op::kCompare || call.op == Op::kDistanceMax) return Compare(call, data, other, count);
  return Pairs(call, data, other, count);
}

absl::StatusOr<std::byte*> CudaLane::WholeArray::Allocate(std::int64_t bytes, std::unique_ptr<ArrayMemory>* memory) {
  absl::StatusOr<std::unique_ptr<ArrayMemory>> room = arrays_.Allocate(bytes);
  if (!room.ok()) return room.status();
  *memory = *std::move(room);
  return static_cast<std::byte*>(const_cast<void*>((*memory)->array().data));
}

absl::Status CudaLane::WholeArray::Run(absl::FunctionRef<cudaError_t()> launches, const std::byte* from,
                                       std::int64_t bytes, const std::vector<Region>& regions) {
  if (absl::Status why = WhyStop(job_); !why.ok()) return why;
  Slot& slot = lane_.slots_[kSlots - 1];
  cudaGetLastError();  // launches would report what earlier calls of this thread failed with
  REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.kernel_begin, lane_.kernel_stream_));
  const cudaError_t error = FAILPOINT("cuda/launch") ? cudaErrorLaunchOutOfResources : launches();
  if (error != cudaSuccess) return DeviceError(error, "launching a pass over an array");
  REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.kernel_end, lane_.kernel_stream_));
  if (absl::Status status = lane_.CopyToHost(job_, from, bytes, regions, timing_); !status.ok()) return status;
  return AddTime(slot.kernel_begin, slot.kernel_end, &Timing::kernel_us, timing_);
}

absl::Status CudaLane::WholeArray::Histogram(const OpCall& call, const std::byte* data, std::int64_t count,
                                             std::byte* answers) {
  return VisitDType(job_.spec.dtype, [&]<class T>(std::type_identity<T>) -> absl::Status {
    using Value = typename BinFinder<T>::Value;
    const HistogramBins<T> bins(call.given().edges);
    BinFinder<T> finder = bins.finder();
    const std::int64_t entries = finder.used + 1;
    std::vector<std::uint64_t> counts(static_cast<std::size_t>(entries));
    if (finder.used > 0) {
      const std::int64_t counts_bytes = entries * 8, lowest_bytes = entries * std::int64_t{sizeof(Value)};
      const absl::StatusOr<std::byte*> room = Allocate(counts_bytes + lowest_bytes, &memory_.emplace_back());
      if (!room.ok()) return room.status();
      const Value* const lowest = std::exchange(finder.lowest, reinterpret_cast<const Value*>(*room + counts_bytes));
      const HistogramLaunch launch{.dtype = job_.spec.dtype,
                                   .data = data,
                                   .count = count,
                                   .finder = &finder,
                                   .bins = finder.used,
                                   .counts = reinterpret_cast<unsigned long long*>(*room),
                                   .shared_bytes = lane_.shared_bytes_,
                                   .multiprocessors = lane_.multiprocessors_,
                                   .stream = lane_.kernel_stream_};
      const auto launches = [&] {
        cudaError_t error = cudaMemsetAsync(*room, 0, static_cast<std::size_t>(counts_bytes), lane_.kernel_stream_);
        if (error == cudaSuccess) {
          error = cudaMemcpyAsync(*room + counts_bytes, lowest, static_cast<std::size_t>(lowest_bytes),
                                  cudaMemcpyHostToDevice, lane_.kernel_stream_);
        }
        return error == cudaSuccess ? LaunchHistogram(launch) : error;
      };
      const absl::Status status =
          Run(launches, *room, counts_bytes, {{0, counts_bytes, reinterpret_cast<std::byte*>(counts.data())}});
      if (!status.ok()) return status;
    }
    for (std::int64_t bin = 0; bin < bins.bins(); ++bin) StoreAt(bins.In(bin, counts.data()), bin, answers);
    return absl::OkStatus();
  });
}

absl::Status CudaLane::WholeArray::CountPass(const Source& source, std::int64_t stretch,
                                             const std::vector<Bracket>& brackets, std::int64_t room, int chunk,
                                             std::unique_ptr<ArrayMemory>* gathered, std::vector<std::byte>* few,
                                             Counted* counted) {
  const int bytes = source.format.bytes;
  CountKeysLaunch launch{.format = source.format,
                         .data = source.data,
                         .count = source.count,
                         .stretch = stretch,
                         .count_of_ranges = static_cast<int>(brackets.size()),
                         .digit = counted->digit > 0
                                      ? counted->digit
                                      : DigitFor(bytes, brackets.size(), lane_.shared_bytes_, bytes == 8 ? 13 : 12),
                         .room = gathered == nullptr ? 0 : room,
                         .chunk = chunk,
                         .most_shared_bytes = lane_.shared_bytes_,
                         .multiprocessors = lane_.multiprocessors_,
                         .stream = lane_.kernel_stream_};
  counted->digit = launch.digit;
  counted->shifts.clear();
  for (std::size_t i = 0; i < brackets.size(); ++i) {
    const std::uint64_t span = brackets[i].hi - brackets[i].lo;
    const int shift = std::max(0, static_cast<int>(std::bit_width(span)) - launch.digit);
    launch.ranges[i] = {brackets[i].lo, span, shift};
    counted->shifts.push_back(shift);
  }
  // The counts, and then the keys, so that they come in one go.
  std::unique_ptr<ArrayMemory> own;
  std::unique_ptr<ArrayMemory>* const memory = gathered == nullptr ? &own : gathered;
  const std::int64_t count_bytes = launch.bytes();
  const absl::StatusOr<std::byte*> data = Allocate(count_bytes + launch.room * bytes, memory);
  if (!data.ok()) return data.status();
  launch.counted = reinterpret_cast<CountedKeys*>(*data);
  if (gathered != nullptr) launch.gather = *data + count_bytes;
  counted->counts.assign(static_cast<std::size_t>(launch.counts()), 0);
  std::vector<Region> regions = {
      {0, sizeof(CountedKeys), reinterpret_cast<std::byte*>(&counted->head)},
      {sizeof(CountedKeys), 8 * launch.counts(), reinterpret_cast<std::byte*>(counted->counts.data())}};
  std::int64_t copied = count_bytes;
  if (few != nullptr) {
    few->resize(static_cast<std::size_t>(launch.room * bytes));
    regions.push_back({count_bytes, launch.room * bytes, few->data()});
    copied += launch.room * bytes;
  }
  const auto launches = [&] {
    const cudaError_t error = cudaMemsetAsync(*data, 0, static_cast<std::size_t>(count_bytes), lane_.kernel_stream_);
    return error == cudaSuccess ? LaunchCountKeys(launch) : error;
  };
  const absl::Status status = Run(launches, *data, copied, regions);
  if (!status.ok()) memory_.push_back(std::move(*memory));  // it may be in use
  if (!status.ok()) return status;
  counted->bounds.clear();
  for (std::size_t i = 0; brackets.size() <= CountedKeys::kBoundedRanges && i < brackets.size(); ++i) {
    counted->bounds.emplace_back(~counted->head.inverse_least[i] & MostKey(bytes), counted->head.largest[i]);
  }
  if (few != nullptr) {
    few->resize(std::min<std::size_t>(few->size(), counted->head.gathered * static_cast<std::size_t>(bytes)));
  }
  return status;
}

std::vector<CudaLane::WholeArray::Bracket> CudaLane::WholeArray::Narrowed(const std::vector<Bracket>& brackets,
                                                                          const Counted& counted,
                                                                          const std::vector<std::int64_t>& ranks,
                                                                          std::vector<std::uint64_t>* found) {
  std::vector<Bracket> narrowed;
  for (std::size_t i = 0; i < brackets.size(); ++i) {
    const Bracket& bracket = brackets[i];
    const int shift = counted.shifts[i];
    const std::uint64_t last_digit = (bracket.hi - bracket.lo) >> shift;
    Bracket part = bracket;
    part.last = part.first;
    for (std::uint64_t digit = 0; digit <= last_digit && part.last < bracket.last; ++digit) {
      part.size = static_cast<std::int64_t>(counted.Of(i)[digit]);
      while (part.last < bracket.last && ranks[part.last] < part.below + part.size) ++part.last;
      if (part.last > part.first) {
        part.lo = bracket.lo + (digit << shift);
        part.hi = part.lo + std::min(bracket.hi - part.lo, (std::uint64_t{1} << shift) - 1);
        if (i < counted.bounds.size()) {
          part.lo = std::max(part.lo, counted.bounds[i].first);
          part.hi = std::min(part.hi, counted.bounds[i].second);
        }
        if (part.lo < part.hi) {
          narrowed.push_back(part);
        } else {
          std::fill_n(found->begin() + static_cast<std::ptrdiff_t>(part.first), part.last - part.first, part.lo);
        }
        part.first = part.last;
      }
      part.below += part.size;
    }
    // Another process may have changed the elements since they were counted: they need not have the ranks.
    std::fill_n(found->begin() + static_cast<std::ptrdiff_t>(part.last), bracket.last - part.last, bracket.hi);
  }
  return narrowed;
}

absl::Status CudaLane::WholeArray::Select(const Source& source, const std::vector<Bracket>& brackets,
                                          const std::vector<std::int64_t>& ranks, std::vector<std::uint64_t>* found) {
  const std::size_t held = memory_.size();
  for (std::size_t i = 0; i < brackets.size(); i += CountedKeys::kMostRanges) {
    const std::size_t end = std::min<std::size_t>(brackets.size(), i + CountedKeys::kMostRanges);
    const std::vector<Bracket> some(brackets.begin() + static_cast<std::ptrdiff_t>(i),
                                    brackets.begin() + static_cast<std::ptrdiff_t>(end));
    if (absl::Status status = SelectInSome(source, some, ranks, found); !status.ok()) return status;
    memory_.resize(held);  // all passes are over
  }
  return absl::OkStatus();
}

absl::Status CudaLane::WholeArray::SelectInSome(Source source, std::vector<Bracket> brackets,
                                                const std::vector<std::int64_t>& ranks,
                                                std::vector<std::uint64_t>* found) {
  bool has_candidates = false;
  while (!brackets.empty()) {
    std::int64_t left = 0;
    for (const Bracket& bracket : brackets) left += bracket.size;
    // Candidates are written once and read once or more; keys of 8 and 16 bits are known after the next pass. What is
    // unused of chunks has the largest key, which no bracket may have, then.
    const bool are_few = left <= kFewKeys;
    const int bytes = source.format.bytes;
    const bool gathers =
        are_few || (bytes > 2 && !has_candidates && left <= source.count / 4 && brackets.back().hi < MostKey(bytes));
    // A warp leaves a chunk when at most 31 of its places are unused, and one at its end.
    static_assert(kGatherChunk >= 16 * 31);
    const std::int64_t room = are_few ? left : left + left / 15 + UnusedOfChunks(lane_.multiprocessors_);
    std::unique_ptr<ArrayMemory> gathered;
    std::vector<std::byte> few;
    Counted counted;
    absl::Status status = CountPass(source, 1, brackets, room, are_few ? 0 : kGatherChunk,
                                    gathers ? &gathered : nullptr, are_few ? &few : nullptr, &counted);
    if (absl::IsResourceExhausted(status) && gathers && !are_few) {  // without candidates, then
      status = CountPass(source, 1, brackets, 0, 0, nullptr, nullptr, &counted);
    }
    if (!status.ok()) return status;
    if (are_few) {
      SelectFew(bytes, few, brackets, ranks, found);
      return absl::OkStatus();
    }
    brackets = Narrowed(brackets, counted, ranks, found);
    // Another process may have changed the elements meanwhile, so that not all have room.
    const auto candidates = static_cast<std::int64_t>(counted.head.gathered);
    if (gathered != nullptr && candidates <= room) {
      has_candidates = true;
      source = {.format = {.bytes = bytes, .greatest = MostKey(bytes)},  // of keys
                .data = static_cast<const std::byte*>(gathered->array().data) + sizeof(CountedKeys) +
                        8 * counted.counts.size(),
                .count = candidates};
      memory_.push_back(std::move(gathered));
    }
    // The ranks of a bracket may be in several parts of it.
    if (brackets.size() > CountedKeys::kMostRanges) return Select(source, brackets, ranks, found);
  }
  return absl::OkStatus();
}

void CudaLane::WholeArray::SelectFew(int bytes, const std::vector<std::byte>& keys,
                                     const std::vector<Bracket>& brackets, const std::vector<std::int64_t>& ranks,
                                     std::vector<std::uint64_t>* found) {
  std::vector<std::uint64_t> all(keys.size() / static_cast<std::size_t>(bytes));
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::memcpy(&all[i], keys.data() + i * static_cast<std::size_t>(bytes), static_cast<std::size_t>(bytes));
  }
  for (const Bracket& bracket : brackets) {
    const auto is_in = [&](std::uint64_t key) { return key >= bracket.lo && key <= bracket.hi; };
    const auto end = std::partition(all.begin(), all.end(), is_in);
    for (std::size_t i = bracket.first; i < bracket.last; ++i) {
      if (end == all.begin()) {  // another process has changed the elements since they were counted
        (*found)[i] = bracket.lo;
        continue;
      }
      const auto at = all.begin() + std::clamp<std::int64_t>(ranks[i] - bracket.below, 0, end - all.begin() - 1);
      std::nth_element(all.begin(), at, end);
      (*found)[i] = *at;
    }
  }
}

absl::Status CudaLane::WholeArray::Quantiles(const OpCall& call, const std::byte* data, std::int64_t count,
                                             std::byte* answers, absl::Status* op_error) {
  return VisitDType(job_.spec.dtype, [&]<class T>(std::type_identity<T>) -> absl::Status {
    using Word = typename SortKey<T>::Type;
    // NaNs have no key within these.
    const Source source{Plain(KeyFormatOf<T>()), data, count};
    const std::vector<Bracket> all = {{.lo = source.format.least, .hi = source.format.greatest, .size = count}};
    Counted counted;
    absl::Status status = CountPass(source, 1, all, 0, 0, nullptr, nullptr, &counted);
    if (!status.ok()) return status;
    const std::int64_t numbers = counted.total();
    const std::vector<std::int64_t> ranks = QuantileRanks(call, job_.spec, count, numbers);
    std::vector<std::uint64_t> found(ranks.size());
    if (!ranks.empty()) {
      std::vector<Bracket> root = all;
      root[0].last = ranks.size();
      status = Select(source, Narrowed(root, counted, ranks, &found), ranks, &found);
      if (!status.ok()) return status;
    }
    *op_error = FinishQuantiles<T>(call, job_.spec, count, numbers, ranks,
                                   std::vector<Word>(found.begin(), found.end()), answers);
    return absl::OkStatus();
  });
}

}  // namespace reduced

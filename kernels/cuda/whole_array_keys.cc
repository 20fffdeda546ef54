// CudaLane::WholeArray: the ops that take the elements with the best keys, or count different ones.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "kernels/algebra/finalize.h"
#include "kernels/cuda/count_bytes.h"
#include "kernels/cuda/count_words.h"
#include "kernels/cuda/sketch.h"
#include "kernels/cuda/whole_array.h"
#include "kernels/folds/elements.h"
#include "kernels/folds/fold.h"
#include "kernels/folds/sketch.h"

namespace reduced {
namespace {

constexpr std::int64_t kMostFound = 1 << 16;                   // elements that are gathered at a time
constexpr std::int64_t kFirstFound = 1 << 11;                  // of these, that come to the host with their number
constexpr std::int64_t kSampleBytes = std::int64_t{16} << 20;  // of an array
constexpr int kDigit = 12;                                     // bits of keys that a pass counts by
constexpr std::int64_t kFewSampled = 4;                        // whose key is a bound that is near enough

}  // namespace

// Elements with keys from `least` to `most`, in no order; more than kMostFound: some of them.
absl::Status CudaLane::WholeArray::Gather(const Source& source, std::int64_t first, std::int64_t count,
                                          std::uint64_t least, std::uint64_t most, std::vector<FoundKey>* found,
                                          std::int64_t* number) {
  constexpr std::int64_t kHead = sizeof(FoundKey);
  const std::int64_t room = std::min(count, kMostFound);
  const absl::StatusOr<std::byte*> data =
      Allocate(kHead + room * std::int64_t{sizeof(FoundKey)}, &memory_.emplace_back());
  if (!data.ok()) return data.status();
  GatherKeysLaunch launch{.format = source.format,
                          .data = source.data,
                          .first = first,
                          .count = count,
                          .least = least,
                          .most = most,
                          .found = reinterpret_cast<unsigned long long*>(*data),
                          .keys = reinterpret_cast<FoundKey*>(*data + kHead),
                          .room = room,
                          .multiprocessors = lane_.multiprocessors_,
                          .stream = lane_.kernel_stream_};
  // Numbers with greater keys than `most`. Descending keys are inverted ones; those of NaNs may come before all others.
  const KeyFormat& format = source.format;
  launch.first_unwanted = format.descends ? format.least : std::max(format.least, most + (format.nan_first ? 0 : 1));
  launch.last_unwanted = format.greatest;  // NaNs' plain keys lie beyond
  if (format.descends) launch.last_unwanted = std::min(format.greatest, (~most & MostKey(format.bytes)) - 1);
  launch.has_unwanted = most < MostKey(format.bytes) && launch.first_unwanted <= launch.last_unwanted &&
                        (!format.descends || (~most & MostKey(format.bytes)) > format.least);
  unsigned long long has = 0;
  const std::int64_t at_once = std::min(room, kFirstFound) * std::int64_t{sizeof(FoundKey)};
  std::vector<FoundKey> keys(static_cast<std::size_t>(room));
  auto* const to = reinterpret_cast<std::byte*>(keys.data());
  const auto launches = [&] {
    const cudaError_t error = cudaMemsetAsync(*data, 0, kHead, lane_.kernel_stream_);
    return error == cudaSuccess ? LaunchGatherKeys(launch) : error;
  };
  absl::Status status = Run(launches, *data, kHead + at_once,
                            {{0, sizeof(has), reinterpret_cast<std::byte*>(&has)}, {kHead, at_once, to}});
  if (!status.ok()) return status;
  *number = static_cast<std::int64_t>(has);
  keys.resize(static_cast<std::size_t>(std::min(*number, room)));
  const std::int64_t more = std::ssize(keys) * std::int64_t{sizeof(FoundKey)} - at_once;
  if (more > 0) {
    status = lane_.CopyToHost(job_, *data + kHead + at_once, more, {{0, more, to + at_once}}, timing_);
  }
  if (!status.ok()) return status;
  memory_.pop_back();
  found->insert(found->end(), keys.begin(), keys.end());
  return status;
}

// A key that is the k-th one of a sample's share of k, and some more: so all elements with the k least keys probably
// have lesser ones.
absl::Status CudaLane::WholeArray::BoundFromSample(const Source& source, std::int64_t k, std::uint64_t* bound) {
  constexpr int kPasses = 4;
  const std::int64_t stretch = source.count * source.format.bytes / kSampleBytes;
  if (stretch < 2) return absl::OkStatus();  // all of them are gathered, or selected from
  const double share = static_cast<double>(k) / static_cast<double>(stretch);
  const std::vector<std::int64_t> ranks = {static_cast<std::int64_t>(share + 4 * std::sqrt(share)) + 4};
  std::vector<Bracket> brackets = {{.lo = 0, .hi = *bound, .size = source.count, .last = 1}};
  std::vector<std::uint64_t> found = {*bound};
  for (int pass = 0; pass < kPasses && !brackets.empty() && brackets[0].size > kFewSampled; ++pass) {
    Counted counted;
    const absl::Status status = CountPass(source, stretch, brackets, kDigit, 0, nullptr, nullptr, &counted);
    if (!status.ok()) return status;
    brackets = Narrowed(brackets, counted, ranks, &found);
    Settle(&brackets, &found);
  }
  *bound = brackets.empty() ? found[0] : brackets[0].hi;
  return absl::OkStatus();
}

// The k-th key, if there are as many: `total`.
absl::Status CudaLane::WholeArray::SelectLast(const Source& source, std::int64_t k, std::uint64_t* last,
                                              std::int64_t* total) {
  Counted counted;
  const std::vector<Bracket> all = {{.lo = 0, .hi = *last, .size = source.count, .last = 1}};
  absl::Status status = CountPass(source, 1, all, kDigit, 0, nullptr, nullptr, &counted);
  if (!status.ok()) return status;
  *total = counted.total();
  if (*total <= k) return status;
  const std::vector<std::int64_t> ranks = {k - 1};
  std::vector<std::uint64_t> found = {*last};
  status = Select(source, Narrowed(all, counted, ranks, &found), ranks, &found);
  *last = found[0];
  return status;
}

// The same of 8 and 16 bits; and how many elements have lesser keys.
absl::Status CudaLane::WholeArray::CountLast(const Source& source, std::int64_t k, std::uint64_t* last,
                                             std::int64_t* total, std::int64_t* below) {
  if (absl::Status status = CountValues(source.data, source.count); !status.ok()) return status;
  std::vector<std::int64_t> of_key(counts_.size());
  for (std::size_t value = 0; value < counts_.size(); ++value) {
    bool counts = true;
    const std::size_t key = source.format.bytes == 1 ? KeyOf(static_cast<std::uint8_t>(value), source.format, &counts)
                                                     : KeyOf(static_cast<std::uint16_t>(value), source.format, &counts);
    if (counts) of_key[key] += static_cast<std::int64_t>(counts_[value]);
  }
  for (std::size_t key = 0; key < of_key.size(); ++key) {
    if (*total < k) {
      *last = key;
      *below = *total;
    }
    *total += of_key[key];
  }
  return absl::OkStatus();
}

// All elements that are among those with the k least keys, of equal ones those with the least indexes, and maybe more.
absl::Status CudaLane::WholeArray::GatherLeast(const Source& source, std::int64_t k, std::vector<FoundKey>* found) {
  const std::uint64_t most = MostKey(source.format.bytes);
  std::uint64_t bound = most;
  std::int64_t number = 0;
  absl::Status status;
  if (source.format.bytes > 1) status = BoundFromSample(source, k, &bound);
  if (status.ok() && (bound < most || source.count <= kMostFound)) {
    status = Gather(source, 0, source.count, 0, bound, found, &number);
    if (status.ok() && number <= kMostFound && (number >= k || bound == most)) return status;
  }
  if (!status.ok()) return status;
  // The sample misled, or many elements are equal: the k-th key is selected.
  found->clear();
  std::uint64_t last = most;
  std::int64_t total = 0, below = k;  // if it is not known
  status = source.format.bytes > 2 ? SelectLast(source, k, &last, &total) : CountLast(source, k, &last, &total, &below);
  if (!status.ok()) return status;
  if (total <= k) return Gather(source, 0, source.count, 0, most, found, &number);
  if (last > 0 && below > 0) status = Gather(source, 0, source.count, 0, last - 1, found, &number);
  // Of those that have that very key the first ones, from stretches that grow where there are none.
  std::int64_t length = std::int64_t{1} << 20;
  for (std::int64_t begin = 0; status.ok() && begin < source.count && std::ssize(*found) < k;) {
    const std::int64_t count = std::min(length, source.count - begin);
    const std::size_t before = found->size();
    status = Gather(source, begin, count, last, last, found, &number);
    if (number > kMostFound) {
      found->resize(before);
      length = std::max(kMostFound, length / 16);
      continue;
    }
    begin += count;
    if (number == 0) length *= 4;
  }
  return status;
}

FoldLimits CudaLane::WholeArray::UncountedLimits() const {
  return {.take = [](std::int64_t) { return absl::OkStatus(); },
          .give = [](std::int64_t) {},
          .why_stop = [this] { return WhyStop(job_); }};
}

absl::Status CudaLane::WholeArray::Top(const OpCall& call, const std::byte* data, std::int64_t count,
                                       std::byte* answers, absl::Status* op_error) {
  return VisitDType(job_.spec.dtype, [&]<class T>(std::type_identity<T>) -> absl::Status {
    using Key = SortKey<T>;
    Source source{KeyFormatOf<T>(), data, count};
    // NaNs are the best of all, unless they are left out.
    source.format.omit_nan = job_.spec.nan_policy == NanPolicy::kOmit;
    source.format.descends = call.op == Op::kTopK || call.op == Op::kArgTopK;
    source.format.nan_first = kIsFloat<T> && !source.format.descends;
    const std::int64_t k = call.given().k;
    std::vector<FoundKey> found;
    if (absl::Status status = GatherLeast(source, k, &found); !status.ok()) return status;
    const auto better = [](const FoundKey& a, const FoundKey& b) {
      return a.key != b.key ? a.key < b.key : a.index < b.index;
    };
    if (std::ssize(found) > k) {
      std::nth_element(found.begin(), found.begin() + k, found.end(), better);
      found.resize(static_cast<std::size_t>(k));
    }
    std::sort(found.begin(), found.end(), [](const FoundKey& a, const FoundKey& b) { return a.index < b.index; });
    const FoldLimits limits = UncountedLimits();  // at most 1,024 elements
    const auto fold = MakeDistributionFold(call, job_.spec, limits);
    if (absl::Status status = fold->Begin(count); !status.ok()) return status;
    for (const FoundKey& each : found) {
      auto key = static_cast<typename Key::Type>(source.format.descends ? ~each.key : each.key);
      if (source.format.nan_first) --key;
      const T element = Key::Element(key);
      if (absl::Status status = fold->Add(&element, nullptr, each.index, 1); !status.ok()) return status;
    }
    *op_error = fold->Finish([](std::int64_t rank) { return rank; }, answers);
    return absl::OkStatus();
  });
}

absl::Status CudaLane::WholeArray::Distinct(const std::byte* data, std::int64_t count, std::byte* answers) {
  const absl::StatusOr<std::byte*> room =
      Allocate(kRegisters * std::int64_t{sizeof(std::uint32_t)}, &memory_.emplace_back());
  if (!room.ok()) return room.status();
  SketchLaunch launch{.data = data,
                      .count = count,
                      .registers = reinterpret_cast<std::uint32_t*>(*room),
                      .multiprocessors = lane_.multiprocessors_,
                      .stream = lane_.kernel_stream_};
  launch.format = VisitDType(job_.spec.dtype, []<class T>(std::type_identity<T>) { return KeyFormatOf<T>(); });
  launch.format.zeros_join = true;
  launch.format.omit_nan = job_.spec.nan_policy == NanPolicy::kOmit;
  std::vector<std::uint32_t> words(kRegisters);
  constexpr std::int64_t kBytes = kRegisters * std::int64_t{sizeof(std::uint32_t)};
  const auto launches = [&] {
    const cudaError_t error = cudaMemsetAsync(*room, 0, kBytes, lane_.kernel_stream_);
    return error == cudaSuccess ? LaunchSketch(launch) : error;
  };
  const absl::Status status = Run(launches, *room, kBytes, {{0, kBytes, reinterpret_cast<std::byte*>(words.data())}});
  if (!status.ok()) return status;
  std::array<std::uint8_t, kRegisters> registers;
  std::transform(words.begin(), words.end(), registers.begin(),
                 [](std::uint32_t word) { return static_cast<std::uint8_t>(word); });
  StoreAt(EstimateDistinct(registers), 0, answers);
  return absl::OkStatus();
}

bool CudaLane::WholeArray::IsFromCounts(const Job& job, const OpCall& call) {
  return AnsweredByCounts(call, job.spec.dtype) && (!HasAccumulator(call) || !HasKernels(job.spec.dtype));
}

absl::Status CudaLane::WholeArray::CountValues(const std::byte* data, std::int64_t count) {
  if (counted_ == data && counted_elements_ == count) return absl::OkStatus();
  const bool are_bytes = RowOf(job_.spec.dtype).bytes == 1;
  const std::int64_t bytes = are_bytes ? sizeof(ByteCounts) : sizeof(WordCounts);
  const absl::StatusOr<std::byte*> room = Allocate(bytes, &memory_.emplace_back());
  if (!room.ok()) return room.status();
  CountBytesLaunch launch{.data = data,
                          .count = count,
                          .out = reinterpret_cast<ByteCounts*>(*room),
                          .multiprocessors = lane_.multiprocessors_,
                          .stream = lane_.kernel_stream_};
  launch.finds_places =
      !HasKernels(job_.spec.dtype) && std::ranges::any_of(job_.spec.ops, [](Op op) { return HasPosition(op); });
  launch.format = VisitDType(job_.spec.dtype, []<class T>(std::type_identity<T>) { return KeyFormatOf<T>(); });
  launch.format.omit_nan = job_.spec.nan_policy == NanPolicy::kOmit;
  const CountWordsLaunch of_words{.data = data,
                                  .count = count,
                                  .out = reinterpret_cast<WordCounts*>(*room),
                                  .most_shared_bytes = lane_.shared_bytes_,
                                  .multiprocessors = lane_.multiprocessors_,
                                  .stream = lane_.kernel_stream_};
  const auto launches = [&] {
    const cudaError_t error = cudaMemsetAsync(*room, 0, static_cast<std::size_t>(bytes), lane_.kernel_stream_);
    if (error != cudaSuccess) return error;
    return are_bytes ? LaunchCountBytes(launch) : LaunchCountWords(of_words);
  };
  counts_.resize(are_bytes ? kByteValues : kWordValues);
  auto* const to = reinterpret_cast<std::byte*>(are_bytes ? byte_counts_.counts : counts_.data());
  const std::int64_t copied = are_bytes ? bytes : kWordValues * 8;
  const absl::Status status = Run(launches, *room, copied, {{0, copied, to}});
  if (are_bytes) std::ranges::copy(byte_counts_.counts, counts_.begin());
  counted_ = status.ok() ? data : nullptr;
  counted_elements_ = count;
  return status;
}

absl::Status CudaLane::WholeArray::FromCounts(const OpCall& call, const std::byte* data, std::int64_t count,
                                              std::byte* answers, absl::Status* op_error) {
  if (absl::Status status = CountValues(data, count); !status.ok()) return status;
  ReduceSpec one = job_.spec;
  one.count = count;
  one.ops = {call};
  if (!HasAccumulator(call)) {
    *op_error = AnswerFromCounts(call, one, counts_, UncountedLimits(), answers);
    return absl::OkStatus();
  }
  const absl::StatusOr<Value> answer = Finalize(one, call.op, StateOfCounts(one, byte_counts_));
  if (answer.ok()) StoreValue(*answer, answers);
  *op_error = answer.status();
  return absl::OkStatus();
}

}  // namespace reduced

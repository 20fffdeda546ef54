// CudaLane::WholeArray: passes that count the keys of brackets, and radix selection by them.
#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <utility>

#include "kernels/cuda/whole_array.h"
#include "kernels/folds/select_keys.h"

namespace reduced {
namespace {

constexpr std::int64_t kFewKeys = 1 << 13;  // are selected from by the host

std::vector<std::uint64_t> KeysOf(int bytes, const std::vector<std::byte>& raw) {
  const auto size = static_cast<std::size_t>(bytes);
  std::vector<std::uint64_t> keys(raw.size() / size);
  for (std::size_t i = 0; i < keys.size(); ++i) std::memcpy(&keys[i], raw.data() + i * size, size);
  return keys;
}

}  // namespace

// Bits of the keys of brackets that a pass counts by: at most `most`, and as many as a block has room for.
int CudaLane::WholeArray::DigitFor(std::size_t brackets, bool gathers, int most) const {
  constexpr std::int64_t kMostShared = std::int64_t{112} << 10;  // two blocks have room on most devices
  const std::int64_t room = std::min(lane_.shared_bytes_ - kOwnSharedBytes, kMostShared) - (gathers ? kGatherBytes : 0);
  const auto entries = static_cast<std::uint64_t>(room / 4) / brackets;
  return std::min(static_cast<int>(std::bit_width(entries)) - 1, most);
}

absl::Status CudaLane::WholeArray::CountPass(const Source& source, std::int64_t stretch,
                                             const std::vector<Bracket>& brackets, int digit, std::int64_t room,
                                             std::unique_ptr<ArrayMemory>* gathered, std::vector<std::byte>* few,
                                             Counted* counted) {
  const int bytes = source.format.bytes;
  CountKeysLaunch launch{.format = source.format,
                         .data = source.data,
                         .count = source.count,
                         .stretch = stretch,
                         .count_of_ranges = static_cast<int>(brackets.size()),
                         .digit = DigitFor(brackets.size(), gathered != nullptr, digit),
                         .room = gathered == nullptr ? 0 : room,
                         .most_shared_bytes = lane_.shared_bytes_,
                         .multiprocessors = lane_.multiprocessors_,
                         .stream = lane_.kernel_stream_};
  counted->digit = launch.digit;
  counted->bytes = bytes;
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
  if (few != nullptr) {
    few->resize(std::min<std::size_t>(few->size(), counted->head.gathered * static_cast<std::size_t>(bytes)));
  }
  return status;
}

// Keys that were gathered, from `begin` of device memory on.
CudaLane::WholeArray::Source CudaLane::WholeArray::Candidates(int bytes, const ArrayMemory& memory, std::int64_t begin,
                                                              std::int64_t count) {
  return {.format = {.bytes = bytes, .greatest = MostKey(bytes)},
          .data = static_cast<const std::byte*>(memory.array().data) + begin,
          .count = count};
}

// Adds the keys [lo, hi] of `size` elements, which are the next ones of `rest`, to `parts`, if they have a rank.
void CudaLane::WholeArray::TakePart(std::uint64_t lo, std::uint64_t hi, std::int64_t size,
                                    const std::vector<std::int64_t>& ranks, Bracket* rest,
                                    std::vector<Bracket>* parts) {
  Bracket part{.lo = lo, .hi = hi, .below = rest->below, .size = size, .first = rest->first, .last = rest->first};
  while (part.last < rest->last && ranks[part.last] < part.below + size) ++part.last;
  if (part.last > part.first) parts->push_back(part);
  rest->first = part.last;
  rest->below += size;
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
    const std::uint64_t least = ~counted.head.inverse_least[i], largest = counted.head.largest[i];
    Bracket rest = bracket;
    for (std::uint64_t digit = 0; digit <= last_digit && rest.first < rest.last; ++digit) {
      const std::uint64_t lo = bracket.lo + (digit << shift);
      const std::uint64_t hi = lo + std::min(bracket.hi - lo, (std::uint64_t{1} << shift) - 1);
      TakePart(std::max(lo, least & MostKey(counted.bytes)), std::min(hi, largest),
               static_cast<std::int64_t>(counted.Of(i)[digit]), ranks, &rest, &narrowed);
    }
    // Another process may have changed the elements since they were counted: they need not have the ranks.
    std::fill_n(found->begin() + static_cast<std::ptrdiff_t>(rest.first), rest.last - rest.first, bracket.hi);
  }
  return narrowed;
}

// The ranks of brackets of one key are found.
void CudaLane::WholeArray::Settle(std::vector<Bracket>* brackets, std::vector<std::uint64_t>* found) {
  std::erase_if(*brackets, [found](const Bracket& bracket) {
    if (bracket.lo < bracket.hi) return false;
    std::fill_n(found->begin() + static_cast<std::ptrdiff_t>(bracket.first), bracket.last - bracket.first, bracket.lo);
    return true;
  });
}

absl::Status CudaLane::WholeArray::Select(const Source& source, std::vector<Bracket> brackets,
                                          const std::vector<std::int64_t>& ranks, std::vector<std::uint64_t>* found) {
  Settle(&brackets, found);
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
  const int bytes = source.format.bytes;
  while (!brackets.empty()) {
    std::int64_t left = 0;
    for (const Bracket& bracket : brackets) left += bracket.size;
    // Candidates are written once and read once or more.
    const bool are_few = left <= kFewKeys;
    const bool gathers = are_few || left <= source.count / 4;
    std::unique_ptr<ArrayMemory> gathered;
    std::vector<std::byte> few;
    Counted counted;
    absl::Status status = CountPass(source, 1, brackets, MostDigit(bytes), left, gathers ? &gathered : nullptr,
                                    are_few ? &few : nullptr, &counted);
    if (absl::IsResourceExhausted(status) && gathers && !are_few) {  // without candidates, then
      status = CountPass(source, 1, brackets, MostDigit(bytes), 0, nullptr, nullptr, &counted);
    }
    if (!status.ok()) return status;
    if (are_few) {
      SelectFew(bytes, few, brackets, ranks, found);
      return absl::OkStatus();
    }
    brackets = Narrowed(brackets, counted, ranks, found);
    Settle(&brackets, found);
    // Another process may have changed the elements meanwhile, so that not all have room.
    const auto candidates = static_cast<std::int64_t>(counted.head.gathered);
    if (gathered != nullptr && candidates <= left && candidates > 0) {
      source = Candidates(bytes, *gathered, counted.bytes_before_keys(), candidates);
      memory_.push_back(std::move(gathered));
    }
    // The ranks of a bracket may be in several parts of it.
    if (brackets.size() > CountedKeys::kMostRanges) return Select(source, std::move(brackets), ranks, found);
  }
  return absl::OkStatus();
}

void CudaLane::WholeArray::SelectFew(int bytes, const std::vector<std::byte>& keys,
                                     const std::vector<Bracket>& brackets, const std::vector<std::int64_t>& ranks,
                                     std::vector<std::uint64_t>* found) {
  std::vector<std::uint64_t> all = KeysOf(bytes, keys);
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

// Of keys that were gathered.
absl::Status CudaLane::WholeArray::SelectOnHost(const Source& candidates, Selected* selected) {
  const int bytes = candidates.format.bytes;
  std::vector<std::byte> raw(static_cast<std::size_t>(candidates.count * bytes));
  absl::Status status =
      lane_.CopyToHost(job_, candidates.data, std::ssize(raw), {{0, std::ssize(raw), raw.data()}}, timing_);
  if (!status.ok()) return status;
  std::vector<std::uint64_t> keys = KeysOf(bytes, raw);
  selected->keys.resize(selected->ranks.size());
  return SelectKeys(std::span(keys), selected->ranks, selected->keys.data(), UncountedLimits());
}

}  // namespace reduced

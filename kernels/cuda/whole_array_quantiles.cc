// CudaLane::WholeArray: median and quantile, and the selection of elements by their ranks.
//
// A few quantiles of a long array lie in brackets, which a sample tells: one read counts what is below each and gathers
// what is in it, a few percent of the elements, from which the answers are selected. Where a bracket turns out to miss
// a rank, and in short arrays, the highest bits of all keys are counted first.
//
// Many quantiles are told by counts in bins that are narrow where a sample has many elements; a second read gathers the
// bins that have one.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "kernels/cuda/whole_array.h"
#include "kernels/folds/quantile_answers.h"

namespace reduced {
namespace {

constexpr std::int64_t kSomeKeys = 1 << 17;  // are selected from by the host
constexpr std::int64_t kSampledBytes = std::int64_t{4} << 20;
constexpr std::int64_t kSamplePieceBytes = 128;                     // of the sample
constexpr std::size_t kMostSampled = CountedKeys::kMostRanges / 2;  // brackets, of two bounds each

}  // namespace

// Sets up to kMostRanges brackets, ascending, that probably have the ranks; none: the array is short, or the op asks
// for too much. After R. W. Floyd and R. L. Rivest, as folds/brackets.h does. Sizes are estimates.
absl::Status CudaLane::WholeArray::BracketsFromSample(const Source& source, const OpCall& call,
                                                      std::vector<Bracket>* brackets) {
  const int bytes = source.format.bytes;
  const std::int64_t stretch = source.count * bytes / kSampledBytes;
  std::vector<Bracket> parts = {{.lo = source.format.least, .hi = source.format.greatest, .size = source.count}};
  if (stretch < 8 || QuantilesOf(call).size() > kMostSampled) return absl::OkStatus();
  Counted counted;
  absl::Status status = CountPass(source, stretch, parts, MostDigit(bytes), 0, nullptr, nullptr, &counted);
  if (!status.ok()) return status;
  const std::int64_t sampled = counted.total();
  // Neighbours are often alike: of a piece of the sample, no more than eight elements are taken to be independent.
  const std::int64_t alike = kSamplePieceBytes / bytes / 8;
  if (sampled < 1024 * alike) return absl::OkStatus();
  std::vector<std::int64_t> bounds;  // ranks in the sample: the lower and the upper one of each bracket
  for (const std::int64_t rank : QuantileRanks(call, job_.spec, sampled, sampled)) {
    // Four standard deviations of a rank, and a little for ranks near the ends.
    const auto below = static_cast<double>(rank), above = static_cast<double>(sampled - rank);
    const double deviation = std::sqrt(below * above / static_cast<double>(sampled) * static_cast<double>(alike));
    const std::int64_t width = 16 * alike + static_cast<std::int64_t>(4 * deviation);
    if (!bounds.empty() && rank - width <= bounds.back()) {
      bounds.back() = rank + width;
    } else {
      bounds.insert(bounds.end(), {rank - width, rank + width});
    }
  }
  std::vector<std::int64_t> there;
  for (const std::int64_t bound : bounds) {
    if (bound >= 0 && bound < sampled && (there.empty() || there.back() < bound)) there.push_back(bound);
  }
  // What is known of the keys of these ranks.
  std::vector<Bracket> known(there.size());
  std::vector<std::uint64_t> unused(there.size());
  parts[0].last = there.size();
  for (int pass = 0;; ++pass) {
    parts = Narrowed(parts, counted, there, &unused);
    for (const Bracket& part : parts) std::fill_n(&known[part.first], part.last - part.first, part);
    std::erase_if(parts, [&](const Bracket& part) { return part.lo == part.hi || part.size < sampled / 1024; });
    if (parts.empty() || pass == 2) break;
    status = CountPass(source, stretch, parts, MostDigit(bytes), 0, nullptr, nullptr, &counted);
    if (!status.ok()) return status;
  }
  const auto bracket_of = [&](std::int64_t bound) {
    if (bound < 0) return Bracket{.lo = source.format.least, .hi = source.format.least};
    if (bound >= sampled) return Bracket{.lo = source.format.greatest, .hi = source.format.greatest};
    return known[static_cast<std::size_t>(std::lower_bound(there.begin(), there.end(), bound) - there.begin())];
  };
  // Keys that many elements have are brackets of their own.
  const auto is_frequent = [&](const Bracket& part) { return part.lo == part.hi && part.size > sampled / 64; };
  const auto add = [&](std::uint64_t lo, std::uint64_t hi, std::int64_t size) {
    if (!brackets->empty() && hi <= brackets->back().hi) return;
    if (!brackets->empty()) lo = std::max(lo, brackets->back().hi + 1);
    brackets->push_back({.lo = lo, .hi = hi, .size = size * stretch});
  };
  for (std::size_t i = 0; i < bounds.size(); i += 2) {
    const Bracket lower = bracket_of(bounds[i]), upper = bracket_of(bounds[i + 1]);
    const std::int64_t size =
        bounds[i + 1] - bounds[i] + (is_frequent(lower) ? 0 : lower.size) + (is_frequent(upper) ? 0 : upper.size);
    if (is_frequent(lower)) add(lower.lo, lower.lo, lower.size);
    if (is_frequent(upper) && upper.lo > lower.lo) {
      add(lower.lo, upper.lo - 1, size);
      add(upper.lo, upper.lo, upper.size);
    } else {
      add(lower.lo, upper.hi, size);
    }
  }
  if (brackets->size() > CountedKeys::kMostRanges) brackets->clear();
  return absl::OkStatus();
}

// Answers from brackets: *known, if they have all ranks.
absl::Status CudaLane::WholeArray::SelectInBrackets(const Source& source, const RanksOf& ranks_of,
                                                    std::vector<Bracket> brackets, Selected* selected, bool* known) {
  std::int64_t size = 0;
  for (const Bracket& bracket : brackets) size += bracket.lo < bracket.hi ? bracket.size : 0;
  const bool gathers = size <= source.count / 8;
  const std::int64_t room = size + size / 4 + kSomeKeys;
  std::unique_ptr<ArrayMemory> gathered;
  Counted counted;
  absl::Status status = CountPass(source, 1, brackets, gathers ? 0 : MostDigit(source.format.bytes), room,
                                  gathers ? &gathered : nullptr, nullptr, &counted);
  if (!status.ok()) return status;
  selected->numbers = source.count - static_cast<std::int64_t>(counted.head.others);
  selected->ranks = ranks_of(selected->numbers);
  selected->keys.assign(selected->ranks.size(), 0);
  std::size_t rank = 0;
  for (std::size_t i = 0; i < brackets.size(); ++i) {
    Bracket& bracket = brackets[i];
    const bool is_lowest = bracket.lo == source.format.least;
    bracket.below = is_lowest ? 0 : source.count - static_cast<std::int64_t>(counted.head.at_least[i]);
    bracket.size = static_cast<std::int64_t>(std::accumulate(counted.Of(i), counted.Of(i + 1), std::uint64_t{0}));
    bracket.first = rank;
    if (rank < selected->ranks.size() && selected->ranks[rank] < bracket.below) return status;
    while (rank < selected->ranks.size() && selected->ranks[rank] < bracket.below + bracket.size) ++rank;
    bracket.last = rank;
  }
  *known = rank == selected->ranks.size();
  if (!*known) return status;
  Source some = source;
  const auto candidates = static_cast<std::int64_t>(counted.head.gathered);
  if (!gathers) {
    brackets = Narrowed(brackets, counted, selected->ranks, &selected->keys);
  } else if (candidates > 0 && candidates <= room) {
    some = Candidates(source.format.bytes, *gathered, counted.bytes_before_keys(), candidates);
  }
  if (gathered != nullptr) memory_.push_back(std::move(gathered));
  std::erase_if(brackets, [](const Bracket& bracket) { return bracket.first == bracket.last; });
  return Select(some, std::move(brackets), selected->ranks, &selected->keys);
}

// Many ranks at once.
absl::Status CudaLane::WholeArray::SelectMany(const Source& source, const RanksOf& ranks_of, Selected* selected) {
  const int bytes = source.format.bytes;
  const std::int64_t stretch = std::max<std::int64_t>(1, source.count * bytes / kSampledBytes);
  // The cells have the keys of the sample.
  Bracket cells{.lo = source.format.least, .hi = source.format.greatest};
  Counted counted;
  for (int pass = 0; pass < 2; ++pass) {
    absl::Status status =
        CountPass(source, stretch, {cells}, CountCellsLaunch::kCellBits, 0, nullptr, nullptr, &counted);
    if (!status.ok()) return status;
    if (counted.total() == 0 || pass == 1) break;
    cells.lo = ~counted.head.inverse_least[0] & MostKey(bytes);
    cells.hi = counted.head.largest[0];
  }
  CountCellsLaunch launch{.format = source.format,
                          .data = source.data,
                          .count = source.count,
                          .lo = cells.lo,
                          .span = cells.hi - cells.lo,
                          .shift = counted.shifts[0],
                          .most_shared_bytes = lane_.shared_bytes_,
                          .multiprocessors = lane_.multiprocessors_,
                          .stream = lane_.kernel_stream_};
  constexpr std::size_t kBelow = CountCellsLaunch::kCells, kAbove = kBelow + 1;
  std::vector<std::uint32_t> entries(kAbove + 1);
  const auto total = static_cast<double>(std::max<std::int64_t>(1, counted.total()));
  const auto used = static_cast<std::size_t>(launch.span >> launch.shift) + 1;
  for (std::size_t cell = 0; cell < used; ++cell) {
    constexpr int kMostBins = CountCellsLaunch::kMostBins - CountCellsLaunch::kCells;  // beyond one for each cell
    const auto bins = static_cast<std::uint64_t>(static_cast<double>(counted.counts[cell]) / total * kMostBins);
    const int bits = std::clamp(static_cast<int>(std::bit_width(bins)) - 1, 0, launch.shift);
    entries[cell] = static_cast<std::uint32_t>(launch.bins << 6 | (launch.shift - bits));
    launch.bins += 1 << bits;
  }
  const int most_shift = 8 * bytes - 1;
  entries[kBelow] = static_cast<std::uint32_t>(launch.bins << 6 | most_shift);
  entries[kAbove] = static_cast<std::uint32_t>((launch.bins + 1) << 6 | most_shift);

  std::vector<std::uint64_t> counts(static_cast<std::size_t>(launch.bins) + 2);
  std::vector<std::uint32_t> wanted(counts.size() / 32 + 1);
  const auto counts_bytes = std::ssize(counts) * 8, entries_bytes = std::ssize(entries) * 4;
  const std::int64_t head = (counts_bytes + entries_bytes + std::ssize(wanted) * 4 + 7) / 8 * 8;
  const auto run = [&](std::int64_t room, std::unique_ptr<ArrayMemory>* memory, std::uint64_t* to,
                       std::int64_t copied) {
    const absl::StatusOr<std::byte*> data = Allocate(head + room * bytes, memory);
    if (!data.ok()) return data.status();
    launch.counts = launch.gathered = reinterpret_cast<unsigned long long*>(*data);
    launch.cells = reinterpret_cast<const std::uint32_t*>(*data + counts_bytes);
    if (room > 0) launch.wanted = launch.cells + entries.size();
    launch.gather = *data + head;
    launch.room = room;
    const auto upload = [&](const std::vector<std::uint32_t>& words, std::int64_t begin) {
      return cudaMemcpyAsync(*data + begin, words.data(), words.size() * 4, cudaMemcpyHostToDevice,
                             lane_.kernel_stream_);
    };
    const auto launches = [&] {
      cudaError_t error = cudaMemsetAsync(*data, 0, static_cast<std::size_t>(counts_bytes), lane_.kernel_stream_);
      if (error == cudaSuccess) error = upload(entries, counts_bytes);
      if (error == cudaSuccess) error = upload(wanted, counts_bytes + entries_bytes);
      return error == cudaSuccess ? LaunchCountCells(launch) : error;
    };
    absl::Status status = Run(launches, *data, copied, {{0, copied, reinterpret_cast<std::byte*>(to)}});
    if (!status.ok()) memory_.push_back(std::move(*memory));  // it may be in use
    return status;
  };
  std::unique_ptr<ArrayMemory> memory;
  absl::Status status = run(0, &memory, counts.data(), counts_bytes);
  if (!status.ok()) return status;
  selected->numbers = static_cast<std::int64_t>(std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}));
  selected->ranks = ranks_of(selected->numbers);
  selected->keys.assign(selected->ranks.size(), cells.hi);

  // The bins that have ranks. Those of many elements are narrowed, those of few gathered.
  std::vector<Bracket> large, small;
  Bracket rest{.last = selected->ranks.size()};
  std::int64_t left = 0;
  const auto take = [&](std::uint64_t lo, std::uint64_t hi, std::size_t bin, std::size_t cell) {
    const auto size = static_cast<std::int64_t>(counts[bin]);
    std::vector<Bracket> part;
    TakePart(lo, hi, size, selected->ranks, &rest, &part);
    Settle(&part, &selected->keys);
    if (part.empty()) return;
    const bool is_large = size > kSomeKeys && size > source.count / 64;
    (is_large ? large : small).push_back(part[0]);
    if (is_large) return;
    left += size;
    wanted[bin / 32] |= std::uint32_t{1} << bin % 32;
    entries[cell] |= CountCellsLaunch::kHasWanted;
  };
  const auto bins = static_cast<std::size_t>(launch.bins);
  if (cells.lo > source.format.least) take(source.format.least, cells.lo - 1, bins, kBelow);
  for (std::size_t cell = 0; cell < used; ++cell) {
    const std::uint64_t first = cells.lo + (std::uint64_t{cell} << launch.shift);
    const std::uint64_t last = first + std::min(cells.hi - first, (std::uint64_t{1} << launch.shift) - 1);
    const std::uint32_t bits = entries[cell] % 64;
    for (std::uint64_t i = 0; i <= (last - first) >> bits && rest.first < rest.last; ++i) {
      const std::uint64_t lo = first + (i << bits);
      take(lo, lo + std::min(last - lo, (std::uint64_t{1} << bits) - 1),
           (entries[cell] & ~CountCellsLaunch::kHasWanted) / 64 + i, cell);
    }
  }
  if (cells.hi < source.format.greatest) take(cells.hi + 1, source.format.greatest, bins + 1, kAbove);
  if (left > kSomeKeys && left > source.count / 2) {  // gathering them would not help
    large.insert(large.end(), small.begin(), small.end());
    small.clear();
  }
  status = Select(source, std::move(large), selected->ranks, &selected->keys);
  if (!status.ok() || small.empty()) return status;

  std::uint64_t gathered = 0;
  status = run(left, &memory, &gathered, sizeof(gathered));
  if (!status.ok()) return status;
  Selected among;
  left = 0;
  for (const Bracket& bracket : small) {
    for (std::size_t i = bracket.first; i < bracket.last; ++i) {
      among.ranks.push_back(selected->ranks[i] - bracket.below + left);
    }
    left += bracket.size;
  }
  if (static_cast<std::int64_t>(gathered) != left) return status;  // another process has changed the elements
  const Source candidates = Candidates(bytes, *memory, head, left);
  memory_.push_back(std::move(memory));
  status = left <= kSomeKeys ? SelectOnHost(candidates, &among)
                             : SelectMany(
                                   candidates, [ranks = among.ranks](std::int64_t) { return ranks; }, &among);
  memory_.pop_back();
  std::size_t at = 0;
  for (const Bracket& bracket : small) {
    for (std::size_t i = bracket.first; i < bracket.last && status.ok(); ++i) selected->keys[i] = among.keys[at++];
  }
  return status;
}

// By the highest bits of all keys first.
absl::Status CudaLane::WholeArray::SelectFromAll(const Source& source, const RanksOf& ranks_of, Selected* selected) {
  std::vector<Bracket> all = {{.lo = source.format.least, .hi = source.format.greatest, .size = source.count}};
  Counted counted;
  absl::Status status = CountPass(source, 1, all, MostDigit(source.format.bytes), 0, nullptr, nullptr, &counted);
  if (!status.ok()) return status;
  selected->numbers = counted.total();
  selected->ranks = ranks_of(selected->numbers);
  selected->keys.assign(selected->ranks.size(), 0);
  all[0].last = selected->ranks.size();
  return Select(source, Narrowed(all, counted, selected->ranks, &selected->keys), selected->ranks, &selected->keys);
}

absl::Status CudaLane::WholeArray::Quantiles(const OpCall& call, const std::byte* data, std::int64_t count,
                                             std::byte* answers, absl::Status* op_error) {
  return VisitDType(job_.spec.dtype, [&]<class T>(std::type_identity<T>) -> absl::Status {
    using Word = typename SortKey<T>::Type;
    // NaNs have no key within these.
    const Source source{Plain(KeyFormatOf<T>()), data, count};
    const auto ranks_of = [&](std::int64_t numbers) { return QuantileRanks(call, job_.spec, count, numbers); };
    Selected selected;
    std::vector<Bracket> brackets;
    bool known = false;
    absl::Status status = BracketsFromSample(source, call, &brackets);
    if (status.ok() && !brackets.empty()) {
      status = SelectInBrackets(source, ranks_of, std::move(brackets), &selected, &known);
    }
    // Without memory for what is gathered, the array is read more often.
    if (status.ok() && !known && QuantilesOf(call).size() > kMostSampled) {
      status = SelectMany(source, ranks_of, &selected);
      known = status.ok();
    }
    if (absl::IsResourceExhausted(status) || (status.ok() && !known)) {
      status = SelectFromAll(source, ranks_of, &selected);
    }
    if (!status.ok()) return status;
    *op_error = FinishQuantiles<T>(call, job_.spec, count, selected.numbers, selected.ranks,
                                   std::vector<Word>(selected.keys.begin(), selected.keys.end()), answers);
    return absl::OkStatus();
  });
}

}  // namespace reduced

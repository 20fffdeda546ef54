// CudaLane::WholeArray: fingerprints, from the polynomials of what lies together in the array that they are of.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/cuda/fingerprint.h"
#include "kernels/cuda/whole_array.h"
#include "kernels/folds/fingerprint.h"

namespace reduced {
namespace {

// The host copies and adds shorter runs sooner than a block for each.
constexpr std::int64_t kLeastRunBytes = std::int64_t{16} << 10;

}  // namespace

Residues FromFirstWord(const Residues& sum, const void* data, int word_bytes) {
  // Words before the first, which are zeros, make powers greater. p - 1 is the order of the bases.
  const std::uintptr_t before = reinterpret_cast<std::uintptr_t>(data) % 16 / static_cast<unsigned>(word_bytes);
  return before == 0 ? sum : MultipliedAndAdded(sum, PowersOfBases(kPrime - 1 - before), {});
}

bool CudaLane::WholeArray::AnswersFingerprint(const Job& job, const OpCall& call) {
  const std::optional<Shard>& shard = call.given().shard;
  if (!shard.has_value()) return true;
  if (shard->part.empty() || shard->first != 0 || job.partition->layout.outputs != 1) return false;
  const Layout part = PlaceOf(*shard).layout;
  return part.elements == job.partition->layout.elements && part.run() * RowOf(job.spec.dtype).bytes >= kLeastRunBytes;
}

absl::StatusOr<Entries> CudaLane::WholeArray::Fingerprint(const OpCall& call, const std::byte* data,
                                                          std::int64_t count) {
  const DType dtype = job_.spec.dtype;
  const int words_of_element = WordsOfElement(dtype), word_bytes = RowOf(dtype).bytes / words_of_element;
  const PlaceOfPart place = call.given().shard.has_value() ? PlaceOf(*call.given().shard) : PlaceOfPart{};
  // Elements that are neighbours in the whole array: so many, from each multiple of that on.
  const std::int64_t run = call.given().shard.has_value() ? place.layout.run() : count;
  const std::int64_t run_bytes = run * RowOf(dtype).bytes;
  const Residues of_tile = PowersOfBases(static_cast<std::uint64_t>(kFingerprintTileBytes / word_bytes));
  const Residues ones = SumOfPowers(static_cast<std::uint64_t>(run * words_of_element));
  Residues sum{};
  for (std::int64_t first = 0; first < count / run; first += FingerprintLaunch::kMostStretches) {
    FingerprintLaunch launch{.data = data + first * run_bytes,
                             .word_bytes = word_bytes,
                             .bytes = run_bytes,
                             .stretches = std::min(FingerprintLaunch::kMostStretches, count / run - first),
                             .stream = lane_.kernel_stream_};
    launch.blocks = FingerprintBlocks(run_bytes, launch.stretches, lane_.multiprocessors_);
    std::vector<Residues> sums(static_cast<std::size_t>(launch.stretches * launch.blocks));
    const std::int64_t bytes = std::ssize(sums) * std::int64_t{sizeof(Residues)};
    memory_.clear();
    const absl::StatusOr<std::byte*> room = Allocate(bytes, &memory_.emplace_back());
    if (!room.ok()) return room.status();
    launch.sums = reinterpret_cast<Residues*>(*room);
    const absl::Status status = Run([&] { return LaunchFingerprint(launch); }, *room, bytes,
                                    {{0, bytes, reinterpret_cast<std::byte*>(sums.data())}});
    if (!status.ok()) return status;
    for (std::int64_t i = 0; i < launch.stretches; ++i) {
      const Residues* const of_blocks = &sums[static_cast<std::size_t>(i * launch.blocks)];
      Residues polynomial{};
      for (int b = launch.blocks; b-- > 0;) polynomial = MultipliedAndAdded(polynomial, of_tile, of_blocks[b]);
      polynomial = FromFirstWord(polynomial, launch.data + i * run_bytes, word_bytes);
      for (std::size_t base = 0; base < ones.size(); ++base) polynomial[base] = Residue(polynomial[base] + ones[base]);
      const std::int64_t begin = place.begin + place.layout.At((first + i) * run);
      const Residues power = PowersOfBases(static_cast<std::uint64_t>(begin) * static_cast<unsigned>(words_of_element));
      sum = MultipliedAndAdded(polynomial, power, sum);
    }
  }
  Entries state = NoEntries(call, dtype);
  for (std::size_t base = 0; base < sum.size(); ++base) state.Add(base, sum[base]);
  return state;
}

}  // namespace reduced

#include "kernels/cpu/read_all.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/targets.h"
// Compiled again for each vector target
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/read_all.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reduced {
namespace HWY_NAMESPACE {

// Eight loads in flight; with kAhead, of lines that were asked for before.
template <bool kAhead>
std::uint64_t Read(const std::byte* data, std::int64_t bytes) {
  using D = hn::ScalableTag<std::uint64_t>;
  constexpr D kTag;
  constexpr int kLoads = 8;
  constexpr std::int64_t kVectorBytes = sizeof(std::uint64_t) * hn::MaxLanes(D());
  constexpr std::int64_t kStepBytes = kLoads * kVectorBytes;
  auto even = hn::Zero(kTag);
  auto odd = hn::Zero(kTag);
  std::int64_t done = 0;
  for (; done + kStepBytes <= bytes; done += kStepBytes) {
#if HWY_TARGET != HWY_SCALAR
    if constexpr (kAhead) FetchAhead(data + done, kStepBytes);
#endif
    for (int i = 0; i < kLoads; i += 2) {
      const std::byte* const p = data + done + i * kVectorBytes;
      even = hn::Or(even, hn::LoadU(kTag, reinterpret_cast<const std::uint64_t*>(p)));
      odd = hn::Or(odd, hn::LoadU(kTag, reinterpret_cast<const std::uint64_t*>(p + kVectorBytes)));
    }
  }
  alignas(64) std::uint64_t lanes[hn::MaxLanes(D())];
  hn::Store(hn::Or(even, odd), kTag, lanes);
  std::uint64_t seen = 0;
  for (const std::uint64_t lane : lanes) seen |= lane;
  for (; done < bytes; done += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + done, std::min<std::int64_t>(sizeof word, bytes - done));
    seen |= word;
  }
  return seen;
}

std::uint64_t ReadBy(const std::byte* data, std::int64_t bytes, int way) {
  return way == 0 ? Read<true>(data, bytes) : Read<false>(data, bytes);
}

}  // namespace HWY_NAMESPACE
}  // namespace reduced
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reduced {

HWY_EXPORT(ReadBy);

std::uint64_t ReadAll(const std::byte* data, std::int64_t bytes, int way) {
  return HWY_DYNAMIC_DISPATCH(ReadBy)(data, bytes, way);
}

}  // namespace reduced
#endif

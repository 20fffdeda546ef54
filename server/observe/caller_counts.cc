#include "server/observe/caller_counts.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/escaping.h"

namespace reduced::server {

void CallerCounts::AddCall(const Caller& caller, bool ok, std::int64_t bytes) {
  Place& place = PlaceOf(caller);
  place.counts[kCalls].fetch_add(1, std::memory_order_relaxed);
  if (!ok) place.counts[kFailures].fetch_add(1, std::memory_order_relaxed);
  if (ok && bytes > 0) place.counts[kBytes].fetch_add(static_cast<std::uint64_t>(bytes), std::memory_order_relaxed);
}

void CallerCounts::AddUnauthenticated(const Caller& caller) {
  PlaceOf(caller).counts[kUnauthenticated].fetch_add(1, std::memory_order_relaxed);
}

CallerCounts::Place& CallerCounts::PlaceOf(const Caller& caller) {
  Place& others = places_.back();
  if (caller.key == 0) return others;
  if (Place* const place = Find(caller.key); place != nullptr) return *place;
  if (full_.load(std::memory_order_relaxed)) return others;
  const absl::MutexLock lock(&mutex_);
  if (Place* const place = Find(caller.key); place != nullptr) return *place;  // another thread was first
  if (Place* const place = Settle(caller); place != nullptr) return *place;
  full_.store(true, std::memory_order_relaxed);
  return others;
}

// Nearly always the first place that it looks at.
CallerCounts::Place* CallerCounts::Find(std::uint64_t key) {
  for (std::size_t i = 0; i < kMost; ++i) {
    const std::size_t at = (key + i) % kMost;
    if (keys_[at].load(std::memory_order_acquire) == key) return &places_[at];
  }
  return nullptr;
}

// Gives the caller the next free place, else that which has been idle for longest; null: all are in use.
CallerCounts::Place* CallerCounts::Settle(const Caller& caller) {
  std::size_t best = kMost;
  for (std::size_t i = 0; i < kMost; ++i) {
    const std::size_t at = (caller.key + i) % kMost;
    if (keys_[at].load(std::memory_order_relaxed) == 0) {
      best = at;
      break;
    }
    if (tenants_[at].idle >= kIdle && (best == kMost || tenants_[at].idle > tenants_[best].idle)) best = at;
  }
  if (best == kMost) return nullptr;
  const bool identified = !caller.identity.empty();
  tenants_[best] = {.identified = identified, .name = absl::CHexEscape(identified ? caller.identity : caller.account)};
  for (auto& count : places_[best].counts) count.store(0, std::memory_order_relaxed);
  keys_[best].store(caller.key, std::memory_order_release);
  return &places_[best];
}

void CallerCounts::Tick() {
  const absl::MutexLock lock(&mutex_);
  full_.store(false, std::memory_order_relaxed);
  for (std::size_t at = 0; at < kMost; ++at) {
    if (keys_[at].load(std::memory_order_relaxed) == 0) continue;
    const auto& counts = places_[at].counts;
    const std::uint64_t now = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
    tenants_[at].idle = now == tenants_[at].seen ? tenants_[at].idle + 1 : 0;
    tenants_[at].seen = now;
  }
}

std::vector<CallerCounts::Row> CallerCounts::Read() const {
  std::vector<Row> rows;
  const auto add = [&rows](std::string_view kind, std::string name, const Place& place) {
    Row& row = rows.emplace_back(Row{kind, std::move(name)});
    for (std::size_t i = 0; i < kCounts; ++i) row.counts[i] = place.counts[i].load(std::memory_order_relaxed);
  };
  {
    const absl::MutexLock lock(&mutex_);
    for (std::size_t at = 0; at < kMost; ++at) {
      if (keys_[at].load(std::memory_order_relaxed) == 0) continue;
      add(tenants_[at].identified ? "identity" : "peer", tenants_[at].name, places_[at]);
    }
  }
  add("other", "other", places_.back());
  return rows;
}

}  // namespace reduced::server

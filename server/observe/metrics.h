// Counters and histograms of calls, for Prometheus.
//
// Calls are counted in tables that enums index, without locks; labels are made only when the metrics are read. Labels
// are names from the server's own tables and, of callers, identities that were proved and addresses; never text that a
// client made up.
#ifndef REDUCED_SERVER_OBSERVE_METRICS_H_
#define REDUCED_SERVER_OBSERVE_METRICS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "prometheus/metric_family.h"
#include "server/observe/call_record.h"
#include "server/observe/caller_counts.h"
#include "server/observe/histogram.h"

namespace reduced::server {

using StageCounts = Histogram<kTimeBoundsNs>::Counts;

// Counts by key. Beyond kMaxKeys keys, further ones are counted together. Thread-safe, lock-free.
class KeyedCounts {
 public:
  static constexpr int kMaxKeys = 4096;

  void Add(std::uint32_t key);  // below 2^31

  std::vector<std::pair<std::uint32_t, std::uint64_t>> Read() const;  // key and count, by key
  std::uint64_t others() const { return others_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kSlots = 2 * kMaxKeys;
  static constexpr std::uint32_t kTaken = std::uint32_t{1} << 31;  // set in the key of a slot in use
  struct Slot {
    std::atomic<std::uint32_t> key = 0;
    std::atomic<std::uint64_t> count = 0;
  };

  const std::unique_ptr<Slot[]> slots_ = std::make_unique<Slot[]>(kSlots);
  std::atomic<int> keys_ = 0;
  std::atomic<std::uint64_t> others_ = 0;
};

// Thread-safe.
class CallMetrics {
 public:
  // `caller`: for whom the call counts; null or without an account: nobody.
  void Record(const CallRecord& record, const Caller* caller);
  // A call that was refused for its token.
  void RecordUnauthenticated(const Caller& caller) { callers_.AddUnauthenticated(caller); }
  // To be called once a second.
  void Tick() { callers_.Tick(); }

  // In the order of the page.
  std::vector<prometheus::MetricFamily> Collect() const;

  // Over all engines, for the history.
  StageCounts ReadStage(std::size_t stage) const;  // of kStageNames
  std::uint64_t calls() const;                     // that have ended
  std::uint64_t errors() const;                    // of these, those with a status other than OK
  std::vector<CallerCounts::Row> callers() const { return callers_.Read(); }

 private:
  static constexpr std::size_t kStatusCodes = 17;
  static constexpr std::size_t kEngines = 3;

  StageCounts ReadStage(std::size_t stage, std::size_t engine) const;
  StageCounts ReadLatency(std::size_t rpc) const;

  std::array<std::array<std::atomic<std::uint64_t>, kStatusCodes>, std::size(kRpcs)> calls_{};
  CallerCounts callers_;
  KeyedCounts reductions_;
  std::array<std::array<Histogram<kTimeBoundsNs>, kEngines>, kTotalStage> stages_;
  std::array<std::array<Histogram<kTimeBoundsNs>, kEngines>, std::size(kRpcs)> totals_;  // of total_us
  std::array<Histogram<kTimeBoundsNs>, std::size(kRpcs)> without_client_;  // of server_us, where it is another time
  std::array<Histogram<kByteBounds>, kSourceNames.size()> bytes_;
};

// The name of a status code from 0 to 16, such as "INVALID_ARGUMENT".
std::string_view NameOfStatus(int code);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_OBSERVE_METRICS_H_

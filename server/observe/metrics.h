// What is counted of calls, and how Prometheus is told.
//
// Everything is a table that the numbers of enums index, or that their combinations are found in: no label is put
// together before somebody asks for the metrics, and no thread waits for another. Labels are names that the server
// itself has; nothing that a client writes becomes one.
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
#include "server/observe/histogram.h"

namespace reduced::server {

enum class Stage : std::uint8_t {
  kQueue,
  kReceive,
  kCopy,
  kHostToDevice,
  kScratchCopy,
  kKernel,
  kDeviceToHost,
  kTotal
};
inline constexpr std::array<std::string_view, 8> kStageNames = {"queue",        "receive", "copy", "h2d",
                                                                "scratch_copy", "kernel",  "d2h",  "total"};
inline constexpr std::size_t kStages = kStageNames.size();

using StageCounts = Histogram<kTimeBoundsNs>::Counts;

// Counts by key, of which there may be kMaxKeys; whatever comes with further ones is counted together. Thread-safe,
// without a lock.
class KeyedCounts {
 public:
  static constexpr int kMaxKeys = 4096;

  void Add(std::uint32_t key);  // below 2^31

  std::vector<std::pair<std::uint32_t, std::uint64_t>> Read() const;  // key and count, by key
  std::uint64_t others() const { return others_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kSlots = 2 * kMaxKeys;
  static constexpr std::uint32_t kTaken = std::uint32_t{1} << 31;  // set in a slot that has a key
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
  void Record(const CallRecord& record);

  // In the order that they are shown.
  std::vector<prometheus::MetricFamily> Collect() const;

  // What a history is made of: of every engine together.
  StageCounts ReadStage(Stage stage) const;
  std::uint64_t calls() const;   // that ended
  std::uint64_t errors() const;  // of these, those that did not end well

 private:
  static constexpr std::size_t kStatusCodes = 17;
  static constexpr std::size_t kEngines = 3;

  void Observe(Stage stage, EngineKind engine, double us);

  std::array<std::array<std::atomic<std::uint64_t>, kStatusCodes>, kRpcNames.size()> calls_{};
  KeyedCounts reductions_;
  std::array<std::array<Histogram<kTimeBoundsNs>, kEngines>, kStages> stages_;
  std::array<Histogram<kByteBounds>, kSourceNames.size()> bytes_;
};

// "OK", "INVALID_ARGUMENT" ... of a code from 0 to 16.
std::string_view NameOfStatus(int code);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_OBSERVE_METRICS_H_

#include "server/observe/metrics.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "kernels/algebra/dtype.h"
#include "kernels/algebra/op.h"
#include "kernels/engine/engines.h"
#include "kernels/engine/pipelines.h"

namespace reduced::server {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr std::array<std::string_view, 17> kStatusNames = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

// In the order of CallerCounts::Count.
constexpr struct {
  const char* name;
  const char* help;
} kCallerMetrics[CallerCounts::kCounts] = {
    {"reduced_caller_calls_total", "Calls that ended, by caller."},
    {"reduced_caller_failures_total", "Of these, calls with a status other than OK."},
    {"reduced_caller_unauthenticated_total", "Calls refused because they had no valid token, by peer."},
    {"reduced_caller_bytes_total", "Bytes of the arrays of calls that succeeded, by caller."},
};

// The labels of one reduction are packed into a number, a field each.
struct Field {
  int shift;
  std::uint32_t mask;
  constexpr std::uint32_t Of(std::uint32_t key) const { return (key >> shift) & mask; }
  constexpr std::uint32_t Put(std::size_t value) const { return (static_cast<std::uint32_t>(value) & mask) << shift; }
};
constexpr Field kOp{0, 63};
constexpr Field kDType{6, 31};
constexpr Field kSource{11, 7};
constexpr Field kEngine{14, 3};
constexpr Field kPipeline{16, 127};
constexpr Field kStatus{23, 31};

constexpr std::size_t kSeveralOps = 63;
static_assert(std::size(kOps) < kSeveralOps && std::size(kDTypes) < 31 && kSourceNames.size() <= 7);

int CodeOf(const absl::Status& status) {
  const int code = static_cast<int>(status.code());
  return code >= 0 && code < static_cast<int>(kStatusNames.size()) ? code
                                                                   : static_cast<int>(absl::StatusCode::kUnknown);
}

std::int64_t Nanoseconds(double us) { return std::llround(us * 1e3); }

// 0: none.
std::size_t NumberOfPipeline(std::string_view name) {
  const PipelineRow* const row = name.empty() ? nullptr : FindPipeline(name);
  return row == nullptr ? 0 : static_cast<std::size_t>(row - Pipelines().data()) + 1;
}

std::uint32_t KeyOf(const CallRecord& record) {
  std::size_t op = 0;
  std::size_t dtype = 0;
  std::string_view pipeline = record.pipeline;
  if (record.spec != nullptr && !record.spec->ops.empty()) {
    op = record.spec->ops.size() > 1 ? kSeveralOps : static_cast<std::size_t>(record.spec->ops.front().op);
    dtype = static_cast<std::size_t>(record.spec->dtype);
    if (pipeline.empty()) pipeline = record.spec->pipeline;
  }
  return kOp.Put(op) | kDType.Put(dtype) | kSource.Put(static_cast<std::size_t>(record.source)) |
         kEngine.Put(static_cast<std::size_t>(record.engine)) | kPipeline.Put(NumberOfPipeline(pipeline)) |
         kStatus.Put(static_cast<std::size_t>(CodeOf(record.status)));
}

ClientMetric Counter(std::vector<ClientMetric::Label> labels, std::uint64_t value) {
  ClientMetric metric;
  metric.label = std::move(labels);
  metric.counter.value = static_cast<double>(value);
  return metric;
}

ClientMetric::Label Label(std::string_view name, std::string_view value) {
  return {std::string(name), std::string(value)};
}

ClientMetric OfKey(std::uint32_t key, std::uint64_t count) {
  constexpr std::string_view kNone = "none";
  const std::size_t op = kOp.Of(key);
  const std::size_t dtype = kDType.Of(key);
  const std::size_t engine = kEngine.Of(key);
  const std::size_t pipeline = kPipeline.Of(key);
  return Counter(
      {Label("op", op == 0             ? kNone
                   : op == kSeveralOps ? "several"
                                       : kOps[op - 1].name),
       Label("dtype", dtype == 0 ? kNone : kDTypes[dtype - 1].name), Label("source", kSourceNames[kSource.Of(key)]),
       Label("engine", engine == 0 ? kNone : NameOf(static_cast<EngineKind>(engine))),
       Label("pipeline", pipeline == 0 ? kNone : Pipelines()[pipeline - 1].name),
       Label("status", kStatusNames[kStatus.Of(key)])},
      count);
}

// `scale`: units of the histogram per unit of the metric.
template <std::size_t N>
ClientMetric OfHistogram(std::vector<ClientMetric::Label> labels, const HistogramCounts<N>& counts,
                         const std::array<std::int64_t, N>& bounds, double scale) {
  ClientMetric metric;
  metric.label = std::move(labels);
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < N; ++i) {
    below += counts.counts[i];
    metric.histogram.bucket.push_back({below, static_cast<double>(bounds[i]) / scale});
  }
  metric.histogram.sample_count = below + counts.counts[N];
  metric.histogram.bucket.push_back({metric.histogram.sample_count, HUGE_VAL});
  metric.histogram.sample_sum = static_cast<double>(counts.sum) / scale;
  return metric;
}

MetricFamily Family(std::string name, std::string help, MetricType type) {
  MetricFamily family;
  family.name = std::move(name);
  family.help = std::move(help);
  family.type = type;
  return family;
}

}  // namespace

void KeyedCounts::Add(std::uint32_t key) {
  const std::uint32_t wanted = key | kTaken;
  for (std::size_t i = (key * 0x9e3779b1U) >> 16;; ++i) {
    Slot& slot = slots_[i % kSlots];
    std::uint32_t there = slot.key.load(std::memory_order_relaxed);
    if (there == 0) {
      if (keys_.fetch_add(1, std::memory_order_relaxed) >= kMaxKeys) {
        keys_.fetch_sub(1, std::memory_order_relaxed);
        others_.fetch_add(1, std::memory_order_relaxed);
        return;
      }
      if (slot.key.compare_exchange_strong(there, wanted, std::memory_order_relaxed)) {
        there = wanted;
      } else {
        keys_.fetch_sub(1, std::memory_order_relaxed);  // another thread took the slot: `there` is its key
      }
    }
    if (there == wanted) {
      slot.count.fetch_add(1, std::memory_order_relaxed);
      return;
    }
  }
}

std::vector<std::pair<std::uint32_t, std::uint64_t>> KeyedCounts::Read() const {
  std::vector<std::pair<std::uint32_t, std::uint64_t>> all;
  for (std::size_t i = 0; i < kSlots; ++i) {
    const std::uint32_t key = slots_[i].key.load(std::memory_order_relaxed);
    if (key != 0) all.emplace_back(key & ~kTaken, slots_[i].count.load(std::memory_order_relaxed));
  }
  std::sort(all.begin(), all.end());
  return all;
}

std::string_view NameOfStatus(int code) { return kStatusNames[static_cast<std::size_t>(code)]; }

void CallMetrics::Record(const CallRecord& record, const Caller* caller) {
  const auto rpc = static_cast<std::size_t>(record.rpc);
  calls_[rpc][static_cast<std::size_t>(CodeOf(record.status))].fetch_add(1, std::memory_order_relaxed);
  totals_[rpc][static_cast<std::size_t>(record.engine)].Add(Nanoseconds(record.total_us));
  if (record.client_us.has_value()) without_client_[rpc].Add(Nanoseconds(record.server_us()));
  if (caller != nullptr && !caller->account.empty()) callers_.AddCall(*caller, record.status.ok(), record.bytes);
  if (!RowOf(record.rpc).reduction) return;
  reductions_.Add(KeyOf(record));
  for (std::size_t stage = 0; stage < kTotalStage; ++stage) {
    const std::optional<double> us = record.StageMicros(stage);
    if (us.has_value()) stages_[stage][static_cast<std::size_t>(record.engine)].Add(Nanoseconds(*us));
  }
  if (record.status.ok()) bytes_[static_cast<std::size_t>(record.source)].Add(record.bytes);
}

std::vector<MetricFamily> CallMetrics::Collect() const {
  MetricFamily calls =
      Family("reduced_calls_total", "Calls that ended, by RPC and status; each request of a session is a call.",
             MetricType::Counter);
  MetricFamily rejects =
      Family("reduced_rejects_total", "Calls refused because a queue, a limit or a budget was exhausted.",
             MetricType::Counter);
  for (std::size_t rpc = 0; rpc < calls_.size(); ++rpc) {
    for (std::size_t code = 0; code < kStatusCodes; ++code) {
      const std::uint64_t count = calls_[rpc][code].load(std::memory_order_relaxed);
      if (count > 0 || code == 0) {
        calls.metric.push_back(Counter({Label("rpc", kRpcs[rpc].name), Label("status", kStatusNames[code])}, count));
      }
      if (code == static_cast<std::size_t>(absl::StatusCode::kResourceExhausted)) {
        rejects.metric.push_back(Counter({Label("rpc", kRpcs[rpc].name)}, count));
      }
    }
  }

  MetricFamily latency = Family("reduced_call_seconds",
                                "Time that the server took for a call, without that in which it waited for the client.",
                                MetricType::Histogram);
  for (std::size_t rpc = 0; rpc < totals_.size(); ++rpc) {
    const StageCounts counts = ReadLatency(rpc);
    if (counts.total() == 0) continue;
    latency.metric.push_back(OfHistogram({Label("rpc", kRpcs[rpc].name)}, counts, kTimeBoundsNs, 1e9));
  }

  MetricFamily requests =
      Family("reduced_requests_total", "Reductions that ended, by op, dtype, source, engine, pipeline and status.",
             MetricType::Counter);
  for (const auto& [key, count] : reductions_.Read()) requests.metric.push_back(OfKey(key, count));
  if (const std::uint64_t others = reductions_.others(); others > 0) {
    std::vector<ClientMetric::Label> labels;
    for (const char* const name : {"op", "dtype", "source", "engine", "pipeline", "status"}) {
      labels.push_back(Label(name, "other"));
    }
    requests.metric.push_back(Counter(std::move(labels), others));
  }

  MetricFamily seconds =
      Family("reduced_stage_seconds", "Time of each stage of a reduction; total: from arrival to response.",
             MetricType::Histogram);
  for (std::size_t stage = 0; stage < kStages; ++stage) {
    for (std::size_t engine = 0; engine < kEngines; ++engine) {
      const StageCounts counts = ReadStage(stage, engine);
      if (counts.total() == 0) continue;
      const std::string_view name = engine == 0 ? "none" : NameOf(static_cast<EngineKind>(engine));
      seconds.metric.push_back(
          OfHistogram({Label("stage", kStageNames[stage]), Label("engine", name)}, counts, kTimeBoundsNs, 1e9));
    }
  }

  MetricFamily bytes =
      Family("reduced_request_bytes", "Bytes of the arrays that were reduced, by source.", MetricType::Histogram);
  for (std::size_t source = 1; source < bytes_.size(); ++source) {
    bytes.metric.push_back(OfHistogram({Label("source", kSourceNames[source])}, bytes_[source].Read(), kByteBounds, 1));
  }
  std::vector<MetricFamily> all = {std::move(calls),    std::move(rejects), std::move(latency),
                                   std::move(requests), std::move(seconds), std::move(bytes)};
  const std::vector<CallerCounts::Row> callers = callers_.Read();
  for (std::size_t i = 0; i < CallerCounts::kCounts; ++i) {
    MetricFamily& family =
        all.emplace_back(Family(kCallerMetrics[i].name, kCallerMetrics[i].help, MetricType::Counter));
    for (const CallerCounts::Row& row : callers) {
      family.metric.push_back(Counter({Label("kind", row.kind), Label("caller", row.name)}, row.counts[i]));
    }
  }
  return all;
}

StageCounts CallMetrics::ReadStage(std::size_t stage) const {
  StageCounts all;
  for (std::size_t engine = 0; engine < kEngines; ++engine) all += ReadStage(stage, engine);
  return all;
}

StageCounts CallMetrics::ReadStage(std::size_t stage, std::size_t engine) const {
  if (stage != kTotalStage) return stages_[stage][engine].Read();
  StageCounts all;
  for (const RpcRow& row : kRpcs) {
    if (row.reduction) all += totals_[static_cast<std::size_t>(row.rpc)][engine].Read();
  }
  return all;
}

// All calls of an RPC have a time of their client, or none has.
StageCounts CallMetrics::ReadLatency(std::size_t rpc) const {
  StageCounts counts = without_client_[rpc].Read();
  if (counts.total() > 0) return counts;
  for (const auto& of_engine : totals_[rpc]) counts += of_engine.Read();
  return counts;
}

std::uint64_t CallMetrics::calls() const {
  std::uint64_t sum = 0;
  for (const auto& of_rpc : calls_) {
    for (const auto& count : of_rpc) sum += count.load(std::memory_order_relaxed);
  }
  return sum;
}

std::uint64_t CallMetrics::errors() const {
  std::uint64_t ok = 0;
  for (const auto& of_rpc : calls_) ok += of_rpc[0].load(std::memory_order_relaxed);
  const std::uint64_t all = calls();
  return all > ok ? all - ok : 0;
}

}  // namespace reduced::server

#include "server/observe/metrics.h"

#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/algebra/dtype.h"
#include "kernels/algebra/op.h"
#include "kernels/engine/pipelines.h"

namespace reduced::server {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using testing::IsSupersetOf;
using testing::Pair;

using Labels = std::map<std::string, std::string>;

Labels LabelsOf(const ClientMetric& metric) {
  Labels labels;
  for (const ClientMetric::Label& label : metric.label) labels[label.name] = label.value;
  return labels;
}

const MetricFamily& FamilyOf(const std::vector<MetricFamily>& families, const std::string& name) {
  for (const MetricFamily& family : families) {
    if (family.name == name) return family;
  }
  ADD_FAILURE() << "no " << name;
  return families.front();
}

double Sum(const MetricFamily& family) {
  double sum = 0;
  for (const ClientMetric& metric : family.metric) sum += metric.counter.value;
  return sum;
}

TEST(KeyedCountsTest, ThreadsLoseNothing) {
  constexpr int kThreads = 4;
  constexpr std::uint32_t kKeys = 300;
  constexpr int kRounds = 100;
  KeyedCounts counts;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&counts] {
      for (int round = 0; round < kRounds; ++round) {
        for (std::uint32_t key = 0; key < kKeys; ++key) counts.Add(key << 20);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto read = counts.Read();
  ASSERT_EQ(read.size(), kKeys);
  for (std::uint32_t i = 0; i < kKeys; ++i) EXPECT_THAT(read[i], Pair(i << 20, kThreads * kRounds));
  EXPECT_EQ(counts.others(), 0U);
}

TEST(KeyedCountsTest, WhatIsTooMuchIsCountedTogether) {
  KeyedCounts counts;
  for (std::uint32_t key = 0; key < 10'000; ++key) counts.Add(key * 7919);
  EXPECT_EQ(counts.Read().size(), static_cast<std::size_t>(KeyedCounts::kMaxKeys));
  EXPECT_EQ(counts.others(), 10'000U - KeyedCounts::kMaxKeys);
  counts.Add(0);  // one that there is
  EXPECT_EQ(counts.others(), 10'000U - KeyedCounts::kMaxKeys);
  EXPECT_THAT(counts.Read().front(), Pair(0U, 2U));
}

TEST(CallMetricsTest, LabelsSayWhatTheReductionWas) {
  CallMetrics metrics;
  ReduceSpec spec;
  spec.dtype = DType::kBF16;
  spec.ops = {Op::kBitXor};
  CallRecord record{.rpc = Rpc::kReduceStream, .spec = &spec, .source = Source::kStream, .engine = EngineKind::kCpu};
  record.pipeline = Pipelines().back().name;
  record.bytes = 64;
  record.total_us = 10;
  record.timing.kernel_us = 5;
  metrics.Record(record, nullptr);
  metrics.Record(record, nullptr);

  const std::vector<MetricFamily> families = metrics.Collect();
  const MetricFamily& requests = FamilyOf(families, "reduced_requests_total");
  ASSERT_EQ(requests.metric.size(), 1U);
  EXPECT_EQ(requests.metric[0].counter.value, 2);
  EXPECT_EQ(LabelsOf(requests.metric[0]), (Labels{{"op", "bit_xor"},
                                                  {"dtype", "bf16"},
                                                  {"source", "stream"},
                                                  {"engine", "cpu"},
                                                  {"pipeline", std::string(Pipelines().back().name)},
                                                  {"status", "OK"}}));
  const MetricFamily& seconds = FamilyOf(families, "reduced_stage_seconds");
  ASSERT_EQ(seconds.metric.size(), 2U) << "stages that there were, of the engine that ran";
  EXPECT_EQ(LabelsOf(seconds.metric[0]), (Labels{{"stage", "kernel"}, {"engine", "cpu"}}));
  EXPECT_DOUBLE_EQ(seconds.metric[0].histogram.sample_sum, 10e-6);
  EXPECT_EQ(seconds.metric[0].histogram.sample_count, 2U);
  const MetricFamily& latency = FamilyOf(families, "reduced_call_seconds");
  ASSERT_EQ(latency.metric.size(), 1U);
  EXPECT_EQ(LabelsOf(latency.metric[0]), (Labels{{"rpc", "reduce_stream"}}));
  EXPECT_DOUBLE_EQ(latency.metric[0].histogram.sample_sum, 20e-6);
  EXPECT_EQ(metrics.calls(), 2U);
  EXPECT_EQ(metrics.errors(), 0U);
}

TEST(CallMetricsTest, EveryRowOfTheTablesHasALabelOfItsOwn) {
  CallMetrics metrics;
  std::set<std::string> names;
  for (const OpRow& op : kOps) {
    for (const DTypeRow& dtype : kDTypes) {
      ReduceSpec spec;
      spec.dtype = dtype.dtype;
      spec.ops = {op.op};
      metrics.Record({.spec = &spec}, nullptr);
    }
  }
  for (const PipelineRow& row : Pipelines()) {
    CallRecord record{.engine = row.engine};
    record.pipeline = row.name;
    metrics.Record(record, nullptr);
  }
  for (int code = 0; code <= 16; ++code) {
    CallRecord record;
    record.status = absl::Status(static_cast<absl::StatusCode>(code), "");
    metrics.Record(record, nullptr);
  }
  const std::vector<MetricFamily> families = metrics.Collect();
  const MetricFamily& requests = FamilyOf(families, "reduced_requests_total");
  std::map<std::string, std::set<std::string>> seen;
  for (const ClientMetric& metric : requests.metric) {
    for (const auto& [name, value] : LabelsOf(metric)) seen[name].insert(value);
  }
  EXPECT_EQ(seen["op"].size(), std::size(kOps) + 1);
  EXPECT_EQ(seen["dtype"].size(), std::size(kDTypes) + 1);
  EXPECT_EQ(seen["pipeline"].size(), Pipelines().size() + 1);
  EXPECT_EQ(seen["status"].size(), 17U);
  EXPECT_EQ(Sum(requests), static_cast<double>(metrics.calls()));
  EXPECT_EQ(metrics.errors(), 16U);
}

TEST(CallMetricsTest, NothingOfAClientsTextIsALabel) {
  CallMetrics metrics;
  ReduceSpec spec;
  spec.ops = {Op::kSum};
  for (int i = 0; i < 100; ++i) {
    spec.pipeline = "hostile" + std::to_string(i);
    metrics.Record({.spec = &spec, .status = absl::InvalidArgumentError(spec.pipeline)}, nullptr);
  }
  const std::vector<MetricFamily> families = metrics.Collect();
  const MetricFamily& requests = FamilyOf(families, "reduced_requests_total");
  ASSERT_EQ(requests.metric.size(), 1U);
  EXPECT_THAT(LabelsOf(requests.metric[0]),
              IsSupersetOf({Pair("pipeline", "none"), Pair("status", "INVALID_ARGUMENT")}));
}

TEST(CallMetricsTest, OnlyReductionsAreReductions) {
  CallMetrics metrics;
  for (std::size_t rpc = 0; rpc < std::size(kRpcs); ++rpc) metrics.Record({.rpc = static_cast<Rpc>(rpc)}, nullptr);
  const std::vector<MetricFamily> families = metrics.Collect();
  EXPECT_EQ(Sum(FamilyOf(families, "reduced_calls_total")), static_cast<double>(std::size(kRpcs)));
  EXPECT_EQ(Sum(FamilyOf(families, "reduced_requests_total")), 4) << "Reduce, ReduceMany, ReduceStream, Session";
}

TEST(CallMetricsTest, TheTimeOfACallIsWithoutThatOfItsClient) {
  CallMetrics metrics;
  CallRecord record{.rpc = Rpc::kPutArray};
  record.total_us = 50;
  record.client_us = 40;
  metrics.Record(record, nullptr);
  const std::vector<MetricFamily> families = metrics.Collect();
  EXPECT_DOUBLE_EQ(FamilyOf(families, "reduced_call_seconds").metric.at(0).histogram.sample_sum, 10e-6);
}

TEST(CallMetricsTest, CallsAndBytesOfACaller) {
  CallMetrics metrics;
  const Caller alice("alice");
  CallRecord record{.rpc = Rpc::kPutArray, .caller = &alice};
  record.bytes = 64;
  metrics.Record(record, &alice);
  record.status = absl::NotFoundError("");
  metrics.Record(record, &alice);
  metrics.Record(record, nullptr);  // whose, nobody knows
  metrics.RecordUnauthenticated(Caller("", "192.0.2.1"));
  const std::vector<MetricFamily> families = metrics.Collect();
  const auto count = [&families](const std::string& name, const std::string& kind, const std::string& caller) {
    for (const ClientMetric& metric : FamilyOf(families, name).metric) {
      if (LabelsOf(metric) == Labels{{"kind", kind}, {"caller", caller}}) return metric.counter.value;
    }
    return -1.0;
  };
  EXPECT_EQ(count("reduced_caller_calls_total", "identity", "alice"), 2);
  EXPECT_EQ(count("reduced_caller_failures_total", "identity", "alice"), 1);
  EXPECT_EQ(count("reduced_caller_bytes_total", "identity", "alice"), 64);
  EXPECT_EQ(count("reduced_caller_unauthenticated_total", "peer", "192.0.2.1"), 1);
  EXPECT_EQ(count("reduced_caller_calls_total", "other", "other"), 0) << "there before the first";
}

TEST(CallMetricsTest, RejectsAreOfWhatWasFull) {
  CallMetrics metrics;
  metrics.Record({.rpc = Rpc::kSession, .status = absl::ResourceExhaustedError("full")}, nullptr);
  metrics.Record({.rpc = Rpc::kSession, .status = absl::UnavailableError("draining")}, nullptr);
  const std::vector<MetricFamily> families = metrics.Collect();
  const MetricFamily& rejects = FamilyOf(families, "reduced_rejects_total");
  EXPECT_EQ(rejects.metric.size(), std::size(kRpcs)) << "there before the first";
  for (const ClientMetric& metric : rejects.metric) {
    EXPECT_EQ(metric.counter.value, LabelsOf(metric)["rpc"] == "session" ? 1 : 0);
  }
}

}  // namespace
}  // namespace reduced::server

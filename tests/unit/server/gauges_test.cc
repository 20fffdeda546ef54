#include "server/observe/gauges.h"

#include <string>

#include "gtest/gtest.h"

namespace reduced::server {
namespace {

// The one sample of a metric, or of one of its labels.
double ValueOf(const Snapshot& snapshot, const std::string& name, const std::string& label = "") {
  for (const prometheus::MetricFamily& family : CollectGauges(snapshot, /*nvml=*/nullptr)) {
    if (family.name != name) continue;
    for (const prometheus::ClientMetric& metric : family.metric) {
      if (!label.empty() && metric.label.at(0).value != label) continue;
      return family.type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value;
    }
  }
  ADD_FAILURE() << "no " << name << " " << label;
  return -1;
}

TEST(GaugesTest, WhatEachDeviceHasDone) {
  Snapshot snapshot;
  snapshot.devices = {{.name = "cpu", .reductions = 3, .reduced_bytes = 12},
                      {.name = "cuda:1", .reductions = 2, .reduced_bytes = 800}};
  EXPECT_EQ(ValueOf(snapshot, "reduced_device_reductions_total", "cpu"), 3);
  EXPECT_EQ(ValueOf(snapshot, "reduced_device_reductions_total", "cuda:1"), 2);
  EXPECT_EQ(ValueOf(snapshot, "reduced_device_bytes_total", "cuda:1"), 800);
}

TEST(GaugesTest, WhatAlertsAskFor) {
  Snapshot snapshot;
  EXPECT_EQ(ValueOf(snapshot, "reduced_serving"), 1);
  EXPECT_EQ(ValueOf(snapshot, "reduced_draining"), 0);
  EXPECT_EQ(ValueOf(snapshot, "reduced_devices_left_out"), 0);
  snapshot.serving = false;
  snapshot.left_out = {{"cuda:1", "no memory left"}, {"cuda:3", "it is lost"}};
  snapshot.refused_connections = {{"connections", 0}, {"peer", 3}};
  snapshot.dropped_log_lines = 4;
  EXPECT_EQ(ValueOf(snapshot, "reduced_serving"), 0);
  EXPECT_EQ(ValueOf(snapshot, "reduced_draining"), 0) << "nobody told it to stop";
  EXPECT_EQ(ValueOf(snapshot, "reduced_devices_left_out"), 2);
  EXPECT_EQ(ValueOf(snapshot, "reduced_connections_refused_total", "connections"), 0);
  EXPECT_EQ(ValueOf(snapshot, "reduced_connections_refused_total", "peer"), 3);
  EXPECT_EQ(ValueOf(snapshot, "reduced_log_dropped_lines_total"), 4);
}

}  // namespace
}  // namespace reduced::server

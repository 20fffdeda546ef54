// An engine that reduces nothing, for targets that need one to be there: it starts at once.
#ifndef REDUCED_TESTS_FUZZ_NO_ENGINE_H_
#define REDUCED_TESTS_FUZZ_NO_ENGINE_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/engines.h"

namespace reduced::fuzz {

class NoEngine final : public Engine {
 public:
  EngineKind kind() const override { return EngineKind::kCpu; }
  DeviceInfo info() const override { return {.name = "cpu", .model = "none", .lanes = 1}; }
  Calibration calibration() const override { return {.fixed_us = 1, .host_gb_per_s = 1}; }
  void Reduce(Job /*job*/, Done done) override { std::move(done)(absl::UnavailableError("there is no engine")); }
  void Measure(Job /*job*/, int /*repeats*/, Measured done) override {
    std::move(done)(absl::UnavailableError("there is no engine"));
  }
  absl::StatusOr<std::unique_ptr<ArrayMemory>> Allocate(std::int64_t /*bytes*/, std::uint64_t /*caller*/) override {
    return absl::ResourceExhaustedError("there is no engine");
  }
};

// Such an engine and no other, for the life of the process.
inline const Engines& NoEngines() {
  static const Engines* const engines = [] {
    std::vector<std::unique_ptr<Engine>> all;
    all.push_back(std::make_unique<NoEngine>());
    return Engines::Of(std::move(all), "this is a test").release();
  }();
  return *engines;
}

}  // namespace reduced::fuzz

#endif  // REDUCED_TESTS_FUZZ_NO_ENGINE_H_

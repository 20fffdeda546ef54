#include "kernels/engine/engines.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/engine/pipelines.h"

namespace reduced {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// An engine to be placed on: it reduces nothing.
class FakeEngine : public Engine {
 public:
  FakeEngine(EngineKind kind, Calibration calibration) : kind_(kind), calibration_(calibration) {}
  EngineKind kind() const override { return kind_; }
  DeviceInfo info() const override { return {.name = std::string(NameOf(kind_))}; }
  Calibration calibration() const override { return calibration_; }
  void Reduce(Job, Done done) override { std::move(done)(absl::UnimplementedError("a fake")); }
  void Measure(Job, int, Measured done) override { std::move(done)(absl::UnimplementedError("a fake")); }
  absl::StatusOr<std::unique_ptr<ArrayMemory>> Allocate(std::int64_t) override {
    return absl::UnimplementedError("a fake");
  }

 private:
  const EngineKind kind_;
  const Calibration calibration_;
};

std::unique_ptr<Engines> CpuOnly() {
  std::vector<std::unique_ptr<Engine>> all;
  all.push_back(std::make_unique<FakeEngine>(EngineKind::kCpu, Calibration{1, 10}));
  return Engines::Of(std::move(all), "no driver");
}

// CUDA is the faster from 20 KB up: 1 us + bytes / 10 GB/s against 2 us + bytes / 20 GB/s.
std::unique_ptr<Engines> Both() {
  std::vector<std::unique_ptr<Engine>> all;
  all.push_back(std::make_unique<FakeEngine>(EngineKind::kCpu, Calibration{1, 10}));
  all.push_back(std::make_unique<FakeEngine>(EngineKind::kCuda, Calibration{2, 20}));
  return Engines::Of(std::move(all), "");
}

ReduceSpec SpecOf(std::int64_t count) {
  ReduceSpec spec;
  spec.dtype = DType::kI32;
  spec.count = count;
  spec.ops = {Op::kSum};
  return spec;
}

EngineKind KindOf(const absl::StatusOr<Placement>& placement) {
  EXPECT_TRUE(placement.ok()) << placement.status().ToString();
  return placement.ok() ? placement->engine->kind() : EngineKind::kAuto;
}

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

TEST(Engines, NamesOfKinds) {
  EXPECT_EQ(NameOf(EngineKind::kAuto), "auto");
  EXPECT_EQ(NameOf(EngineKind::kCpu), "cpu");
  EXPECT_EQ(NameOf(EngineKind::kCuda), "cuda");
}

TEST(Engines, GetGivesTheKindOrSaysWhyNot) {
  const auto both = Both();
  EXPECT_EQ(both->all().size(), 2U);
  EXPECT_EQ((*both->Get(EngineKind::kCpu))->kind(), EngineKind::kCpu);
  EXPECT_EQ((*both->Get(EngineKind::kCuda))->kind(), EngineKind::kCuda);
  EXPECT_EQ((*both->Get(EngineKind::kAuto))->kind(), EngineKind::kCpu);
  EXPECT_TRUE(both->no_cuda_reason().empty());
  const auto cpu = CpuOnly();
  EXPECT_EQ(cpu->no_cuda_reason(), "no driver");
  const absl::Status status = cpu->Get(EngineKind::kCuda).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(MessageOf(status), AllOf(HasSubstr("cuda"), HasSubstr("no driver")));
}

TEST(Engines, OnDeviceGivesTheNamedOrTheFirstGpuOrTheCpu) {
  const auto both = Both();
  EXPECT_EQ((*both->OnDevice("cpu"))->kind(), EngineKind::kCpu);
  EXPECT_EQ((*both->OnDevice("cuda"))->kind(), EngineKind::kCuda);
  EXPECT_EQ((*both->OnDevice(""))->kind(), EngineKind::kCuda);
  EXPECT_EQ((*CpuOnly()->OnDevice(""))->kind(), EngineKind::kCpu);
  const absl::Status status = CpuOnly()->OnDevice("cuda\n" + std::string(1000, 'x')).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(MessageOf(status), AllOf(HasSubstr("'cuda\\nxxx"), HasSubstr("has cpu"), HasSubstr("no driver")));
  EXPECT_LT(MessageOf(status).size(), 200U);
}

TEST(Engines, TheEngineAskedForIsTaken) {
  const auto both = Both();
  ReduceSpec spec = SpecOf(1);
  spec.engine = EngineKind::kCuda;
  EXPECT_EQ(KindOf(both->Place(spec, {})), EngineKind::kCuda);
  spec = SpecOf(1 << 30);
  spec.engine = EngineKind::kCpu;
  const auto placement = both->Place(spec, {});
  EXPECT_EQ(KindOf(placement), EngineKind::kCpu);
  EXPECT_THAT(placement->reason, HasSubstr("asked for"));
}

TEST(Engines, TheEngineAskedForIsNotThere) {
  ReduceSpec spec = SpecOf(1);
  spec.engine = EngineKind::kCuda;
  const absl::Status status = CpuOnly()->Place(spec, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(MessageOf(status), HasSubstr("no driver"));
}

TEST(Engines, APipelineIsPlacedOnItsEngine) {
  const auto both = Both();
  for (const PipelineRow& pipeline : Pipelines()) {
    ReduceSpec spec = SpecOf(pipeline.engine == EngineKind::kCpu ? 1 << 30 : 1);
    spec.pipeline = std::string(pipeline.name);
    const auto placement = both->Place(spec, {});
    EXPECT_EQ(KindOf(placement), pipeline.engine) << pipeline.name;
    EXPECT_THAT(placement->reason, HasSubstr(spec.pipeline));
  }
}

TEST(Engines, DeviceMemoryIsReducedOnItsDevice) {
  const int something = 0;
  const ArrayRef array{&something, MemorySpace::kDevice};
  EXPECT_EQ(KindOf(Both()->Place(SpecOf(1), array)), EngineKind::kCuda);
  EXPECT_EQ(CpuOnly()->Place(SpecOf(1), array).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Engines, AutoTakesTheOnePredictedToBeDoneFirst) {
  const auto both = Both();
  const auto small = both->Place(SpecOf(4900), {});  // 19.6 KB: 2.96 us against 2.98
  EXPECT_EQ(KindOf(small), EngineKind::kCpu);
  EXPECT_THAT(small->reason, AllOf(HasSubstr("predicted"), HasSubstr("cpu 3.0 us"), HasSubstr("cuda 3.0 us")));
  const auto large = both->Place(SpecOf(5100), {});  // 20.4 KB: 3.04 us against 3.02
  EXPECT_EQ(KindOf(large), EngineKind::kCuda);
  EXPECT_EQ(KindOf(both->Place(SpecOf(0), {})), EngineKind::kCpu);
  // Past what 64 bits of bytes hold.
  EXPECT_EQ(KindOf(both->Place(SpecOf(std::int64_t{1} << 62), {})), EngineKind::kCuda);
  const auto cpu = CpuOnly();
  const auto only = cpu->Place(SpecOf(1 << 30), {});
  EXPECT_EQ(KindOf(only), EngineKind::kCpu);
  EXPECT_THAT(only->reason, AllOf(HasSubstr("only engine"), HasSubstr("no driver")));
}

TEST(Engines, StartWithoutCudaSaysSo) {
  EngineOptions options;
  options.cuda = false;
  const auto engines = Engines::Start(options);
  ASSERT_TRUE(engines.ok()) << engines.status().ToString();
  ASSERT_EQ((*engines)->all().size(), 1U);
  EXPECT_EQ((*engines)->all()[0]->kind(), EngineKind::kCpu);
  EXPECT_FALSE((*engines)->no_cuda_reason().empty());
}

}  // namespace
}  // namespace reduced

#include "kernels/engine/engines.h"

#include <memory>
#include <set>
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
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What an engine to be placed on is like.
struct Fake {
  EngineKind kind = EngineKind::kCpu;
  Calibration calibration{1, 10};
  int ordinal = kNoDevice;
  double waiting_us = 0;
  std::int64_t room = 0;  // for arrays
  std::string uuid{};
  absl::Status health{};
  std::set<const void*>* registered = nullptr;  // what is registered in this process; null: Pin isn't for this engine
};

// It reduces nothing.
class FakeEngine : public Engine {
 public:
  explicit FakeEngine(Fake fake) : fake_(std::move(fake)) {}
  EngineKind kind() const override { return fake_.kind; }
  DeviceInfo info() const override {
    return {.name = fake_.ordinal == kNoDevice ? "cpu" : "cuda:" + std::to_string(fake_.ordinal),
            .ordinal = fake_.ordinal,
            .uuid = fake_.uuid,
            .array_bytes = 100,
            .array_bytes_limit = 100 + fake_.room};
  }
  Calibration calibration() const override { return fake_.calibration; }
  double waiting_us(std::int64_t) const override { return fake_.waiting_us; }
  absl::Status Health() override { return fake_.health; }
  void Reduce(Job, Done done) override { std::move(done)(absl::UnimplementedError("a fake")); }
  void Measure(Job, int, Measured done) override { std::move(done)(absl::UnimplementedError("a fake")); }
  absl::StatusOr<std::unique_ptr<ArrayMemory>> Allocate(std::int64_t, std::uint64_t) override {
    return absl::UnimplementedError("a fake");
  }
  // As cudaHostRegister: a range that is registered already is an error.
  absl::StatusOr<std::shared_ptr<const void>> Pin(const void* data, std::int64_t) override {
    if (fake_.registered == nullptr) return nullptr;
    if (!fake_.registered->insert(data).second) return absl::FailedPreconditionError("already registered");
    return std::shared_ptr<const void>(data, [all = fake_.registered](const void* range) { all->erase(range); });
  }
  absl::StatusOr<std::shared_ptr<const void>> Import(int file) override {
    return std::make_shared<const int>(100 * fake_.ordinal + file);
  }
  absl::StatusOr<HeldArray> Open(const SharedDeviceMemory&) override {
    return HeldArray{.array = {.space = MemorySpace::kDevice, .device = fake_.ordinal}};
  }

 private:
  const Fake fake_;
};

Fake Gpu(int ordinal) { return {EngineKind::kCuda, {2, 20}, ordinal}; }

std::unique_ptr<Engines> EnginesOf(const std::vector<Fake>& fakes, std::string no_cuda_reason = "") {
  std::vector<std::unique_ptr<Engine>> all;
  for (const Fake& fake : fakes) all.push_back(std::make_unique<FakeEngine>(fake));
  return Engines::Of(std::move(all), std::move(no_cuda_reason));
}

std::unique_ptr<Engines> CpuOnly() { return EnginesOf({Fake{}}, "no driver"); }

// CUDA is the faster from 20 KB up: 1 us + bytes / 10 GB/s against 2 us + bytes / 20 GB/s.
std::unique_ptr<Engines> Both() { return EnginesOf({Fake{}, Gpu(0)}); }

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

std::string NameOf(const absl::StatusOr<Placement>& placement) {
  EXPECT_TRUE(placement.ok()) << placement.status().ToString();
  return placement.ok() ? placement->engine->info().name : "";
}

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

TEST(Engines, NamesOfKinds) {
  EXPECT_EQ(NameOf(EngineKind::kAuto), "auto");
  EXPECT_EQ(NameOf(EngineKind::kCpu), "cpu");
  EXPECT_EQ(NameOf(EngineKind::kCuda), "cuda");
}

TEST(Measurements, AreOneAfterAnother) {
  const auto measured = [](std::vector<double> kernel_us, std::optional<double> copy_us, double read_gb_per_s) {
    Measurement measurement{.ran = {EngineKind::kCpu, "cpu", "recursive_pairs"},
                            .kernel_us = std::move(kernel_us),
                            .states = {},
                            .scratch_copy_us = copy_us,
                            .read_gb_per_s = read_gb_per_s,
                            .occupancy = {}};
    measurement.states.resize(measurement.kernel_us.size());
    return measurement;
  };
  Measurement all;
  Append(measured({1, 2, 3}, 10, 50), &all);
  EXPECT_EQ(all.ran.pipeline, "recursive_pairs");
  EXPECT_THAT(all.kernel_us, testing::ElementsAre(1, 2, 3));
  EXPECT_EQ(all.scratch_copy_us, 10);
  Append(measured({4}, 2, 60), &all);
  EXPECT_THAT(all.kernel_us, testing::ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(all.states.size(), 4U);
  EXPECT_EQ(all.scratch_copy_us, 8);  // of four repeats
  EXPECT_EQ(all.read_gb_per_s, 60);
  Append(measured({5}, 8, 40), &all);
  EXPECT_EQ(all.read_gb_per_s, 60);  // the best

  Measurement in_place;
  Append(measured({1}, std::nullopt, 1), &in_place);
  Append(measured({1}, std::nullopt, 1), &in_place);
  EXPECT_EQ(in_place.scratch_copy_us, std::nullopt);
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

TEST(Engines, OnDeviceGivesTheNamedOrAGpuOrTheCpu) {
  const auto both = Both();
  EXPECT_EQ((*both->OnDevice("cpu"))->kind(), EngineKind::kCpu);
  EXPECT_EQ((*both->OnDevice("cuda:0"))->kind(), EngineKind::kCuda);
  EXPECT_EQ((*both->OnDevice(""))->kind(), EngineKind::kCuda);
  EXPECT_EQ((*CpuOnly()->OnDevice(""))->kind(), EngineKind::kCpu);
  const absl::Status status = CpuOnly()->OnDevice("cuda\n" + std::string(1000, 'x')).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(MessageOf(status),
              AllOf(HasSubstr("device: got 'cuda\\nxxx"), HasSubstr("allowed: cpu;"), HasSubstr("no driver")));
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

TEST(Engines, DistributionsAreAnsweredWhereTheArrayIs) {
  const auto both = Both();
  ReduceSpec spec = SpecOf(1 << 30);
  EXPECT_EQ(KindOf(both->Place(spec, {})), EngineKind::kCuda);
  spec.ops.emplace_back(Op::kMedian);
  const auto placement = both->Place(spec, {});
  EXPECT_EQ(KindOf(placement), EngineKind::kCpu);
  EXPECT_THAT(placement->reason, HasSubstr("where the array is"));
  const int something = 0;
  const ArrayRef array{.data = &something, .space = MemorySpace::kDevice, .device = 0};
  EXPECT_EQ(KindOf(both->Place(spec, array)), EngineKind::kCuda);
  spec.engine = EngineKind::kCuda;
  EXPECT_EQ(KindOf(both->Place(spec, {})), EngineKind::kCuda);
}

TEST(Engines, DeviceMemoryIsReducedOnItsDevice) {
  const int something = 0;
  const ArrayRef array{.data = &something, .space = MemorySpace::kDevice, .device = 0};
  EXPECT_EQ(KindOf(Both()->Place(SpecOf(1), array)), EngineKind::kCuda);
  EXPECT_EQ(CpuOnly()->Place(SpecOf(1), array).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Engines, AutoTakesTheOnePredictedToBeDoneFirst) {
  const auto both = Both();
  const auto small = both->Place(SpecOf(4900), {});  // 19.6 KB: 2.96 us against 2.98
  EXPECT_EQ(KindOf(small), EngineKind::kCpu);
  EXPECT_THAT(small->reason, AllOf(HasSubstr("predicted"), HasSubstr("cpu 3.0 us, cuda:0 3.0 us")));
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

TEST(Engines, AnArrayOfADeviceCostsNoTransfer) {
  const Calibration calibration{.fixed_us = 2, .host_gb_per_s = 10, .held_gb_per_s = 1000};
  const ArrayRef held{.space = MemorySpace::kDevice, .device = 0};
  EXPECT_DOUBLE_EQ(ExpectedUs(calibration, SpecOf(2'500'000), {}), 1002);
  EXPECT_DOUBLE_EQ(ExpectedUs(calibration, SpecOf(2'500'000), held), 12);
}

TEST(Engines, SeveralGpusAreRankedByPredictedTimeAndWhatWaitsThere) {
  Fake busy = Gpu(0);
  busy.waiting_us = 5;
  const auto engines = EnginesOf({Fake{}, busy, Gpu(1)});
  const auto placed = engines->Place(SpecOf(1'000'000), {});
  EXPECT_EQ(NameOf(placed), "cuda:1");
  EXPECT_EQ(placed->reason, "predicted: cpu 401.0 us, cuda:0 207.0 us (5.0 us of it waiting), cuda:1 202.0 us");
  ReduceSpec spec = SpecOf(1);
  spec.engine = EngineKind::kCuda;
  const auto asked = engines->Place(spec, {});
  EXPECT_EQ(NameOf(asked), "cuda:1");
  EXPECT_EQ(asked->reason, "asked for by the request; predicted: cuda:0 7.0 us (5.0 us of it waiting), cuda:1 2.0 us");
  Fake hopeless = Gpu(0);
  hopeless.waiting_us = 1e6;
  EXPECT_EQ(NameOf(EnginesOf({Fake{}, hopeless})->Place(SpecOf(1'000'000), {})), "cpu");
}

TEST(Engines, ARequestCanNameADevice) {
  const auto engines = EnginesOf({Fake{}, Gpu(0), Gpu(1)});
  for (const std::string name : {"cpu", "cuda:0", "cuda:1"}) {
    ReduceSpec spec = SpecOf(1'000'000);
    spec.device = name;
    const auto placed = engines->Place(spec, {});
    EXPECT_EQ(NameOf(placed), name);
    EXPECT_EQ(placed->reason, "asked for by the request");
  }
  ReduceSpec spec = SpecOf(1);
  spec.device = "cuda:2";
  const absl::Status missing = engines->Place(spec, {}).status();
  EXPECT_EQ(missing, absl::FailedPreconditionError("device: got 'cuda:2'; allowed: cpu, cuda:0, cuda:1"));
  spec.device = "cuda:1";
  spec.engine = EngineKind::kCpu;
  const absl::Status other = engines->Place(spec, {}).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MessageOf(other),
            "device: got 'cuda:1'; allowed: a device of engine cpu, which the request's engine is of");
}

TEST(Engines, AnArrayOfAGpuIsReducedAtHome) {
  Fake busy = Gpu(1);
  busy.waiting_us = 1e6;
  const auto engines = EnginesOf({Fake{}, Gpu(0), busy});
  const ArrayRef array{.space = MemorySpace::kDevice, .device = 1};
  const auto placed = engines->Place(SpecOf(1), array);
  EXPECT_EQ(NameOf(placed), "cuda:1");
  EXPECT_EQ(placed->reason, "the array is in its memory");
  ReduceSpec spec = SpecOf(1);
  spec.engine = EngineKind::kCuda;
  EXPECT_EQ(NameOf(engines->Place(spec, array)), "cuda:1");
  spec.device = "cuda:0";
  EXPECT_EQ(engines->Place(spec, array).status(),
            absl::FailedPreconditionError("device: got cuda:0; allowed: cuda:1, whose memory holds the array"));
  spec = SpecOf(1);
  spec.engine = EngineKind::kCpu;
  EXPECT_EQ(engines->Place(spec, array).status(),
            absl::FailedPreconditionError(
                "engine: got cpu; allowed: a device of engine cuda, since the memory of cuda:1 holds the array"));
  spec = SpecOf(1);
  spec.pipeline = "sequential";
  EXPECT_EQ(engines->Place(spec, array).status().code(), absl::StatusCode::kFailedPrecondition);
  const ArrayRef elsewhere{.space = MemorySpace::kDevice, .device = 7};
  EXPECT_THAT(MessageOf(engines->Place(SpecOf(1), elsewhere).status()),
              AllOf(HasSubstr("cuda:7"), HasSubstr("allowed: in that of cpu, cuda:0, cuda:1")));
}

TEST(Engines, AnArrayWithoutADeviceGoesToTheGpuWithTheMostRoom) {
  Fake roomy = Gpu(1);
  roomy.room = 1000;
  EXPECT_EQ((*EnginesOf({Fake{}, Gpu(0), roomy, Gpu(2)})->OnDevice(""))->info().name, "cuda:1");
}

// cudaHostRegister takes a range once in a process, for all of its devices.
TEST(Engines, ARangeIsPinnedOnceForAllGpus) {
  std::set<const void*> registered;
  Fake first = Gpu(0);
  Fake second = Gpu(1);
  first.registered = second.registered = &registered;
  const auto engines = EnginesOf({Fake{}, first, second});
  const int range = 0;
  {
    const auto pin = engines->Pin(&range, sizeof(range));
    ASSERT_TRUE(pin.ok()) << pin.status();
    EXPECT_NE(*pin, nullptr);
    EXPECT_EQ(registered.size(), 1U);
    EXPECT_FALSE(engines->Pin(&range, sizeof(range)).ok());
  }
  EXPECT_TRUE(registered.empty());
  const auto none = CpuOnly()->Pin(&range, sizeof(range));
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(*none, nullptr);
}

TEST(Engines, SharedDeviceMemoryIsOpenedByTheGpuOfItsUuid) {
  Fake first = Gpu(0);
  Fake second = Gpu(1);
  first.uuid = std::string(16, '\x01');
  second.uuid = std::string(16, '\x02');
  const auto engines = EnginesOf({Fake{}, first, second});
  EXPECT_EQ(engines->Open({.device_uuid = first.uuid})->array.device, 0);
  EXPECT_EQ(engines->Open({.device_uuid = second.uuid})->array.device, 1);
  EXPECT_EQ(*static_cast<const int*>(engines->Import(second.uuid, 7)->get()), 107);
  for (const std::string& uuid : {std::string(), std::string(16, '\x03')}) {
    const absl::Status status = engines->Open({.device_uuid = uuid}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(MessageOf(status), AllOf(HasSubstr("device_uuid: got"), HasSubstr("0202020202020202")));
    EXPECT_EQ(engines->Import(uuid, 7).status(), status);
  }
  EXPECT_THAT(MessageOf(CpuOnly()->Open({}).status()), HasSubstr("no driver"));
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

// A process with these GPUs, each of which starts as `start` says.
absl::StatusOr<std::unique_ptr<Engines>> StartOn(absl::StatusOr<int> count, const EngineOptions& options,
                                                 absl::FunctionRef<absl::StatusOr<Fake>(int)> start) {
  return Engines::Start(options, {.count = [&] { return count; },
                                  .start = [&](int ordinal) -> absl::StatusOr<std::unique_ptr<Engine>> {
                                    const absl::StatusOr<Fake> fake = start(ordinal);
                                    if (!fake.ok()) return fake.status();
                                    return std::make_unique<FakeEngine>(*fake);
                                  }});
}

std::vector<std::string> NamesOf(const Engines& engines) {
  std::vector<std::string> names;
  for (const auto& engine : engines.all()) names.push_back(engine->info().name);
  return names;
}

TEST(Engines, EachGpuHasAnEngine) {
  EngineOptions options;
  const auto all = StartOn(3, options, Gpu);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(NamesOf(**all), ElementsAre("cpu", "cuda:0", "cuda:1", "cuda:2"));
  EXPECT_EQ((*all)->no_cuda_reason(), "");
  options.cuda_devices = {2, 0, 2};
  const auto some = StartOn(3, options, Gpu);
  ASSERT_TRUE(some.ok()) << some.status();
  EXPECT_THAT(NamesOf(**some), ElementsAre("cpu", "cuda:0", "cuda:2"));
  options.cuda_devices = {1, 3};
  EXPECT_EQ(StartOn(3, options, Gpu).status(), absl::InvalidArgumentError("cuda_devices: got 1,3; allowed: 0 to 2"));
}

TEST(Engines, AGpuThatCantStartIsLeftOutAndTheOthersServe) {
  const auto engines = StartOn(3, {}, [](int ordinal) -> absl::StatusOr<Fake> {
    if (ordinal == 0) return absl::ResourceExhaustedError("no memory left");
    if (ordinal == 2) return absl::FailedPreconditionError("no memory pools");
    return Gpu(ordinal);
  });
  ASSERT_TRUE(engines.ok()) << engines.status();
  EXPECT_THAT(NamesOf(**engines), ElementsAre("cpu", "cuda:1"));
  EXPECT_EQ((*engines)->no_cuda_reason(), "");
  ASSERT_EQ((*engines)->left_out().size(), 2U);
  EXPECT_EQ((*engines)->left_out()[0].name, "cuda:0");
  EXPECT_EQ((*engines)->left_out()[0].reason, "no memory left");
  EXPECT_EQ((*engines)->left_out()[1].name, "cuda:2");
  EXPECT_THAT(MessageOf((*engines)->OnDevice("cuda:2").status()), HasSubstr("cuda:2 is left out: no memory pools"));
}

TEST(Engines, WithoutAGpuThatStartsTheCpuServesAndSaysWhy) {
  const auto none = StartOn(absl::FailedPreconditionError("no driver"), {}, Gpu);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ((*none)->no_cuda_reason(), "no driver");
  const auto fail = [](int) -> absl::StatusOr<Fake> { return absl::UnavailableError("it failed"); };
  const auto failed = StartOn(2, {}, fail);
  ASSERT_TRUE(failed.ok()) << failed.status();
  EXPECT_THAT(NamesOf(**failed), ElementsAre("cpu"));
  EXPECT_EQ((*failed)->no_cuda_reason(), "cuda:0: it failed; cuda:1: it failed");
}

// A device that fails takes those of its process with it.
TEST(Engines, AGpuThatIsLostWhileOthersStartIsLeftOut) {
  const auto engines = StartOn(2, {}, [](int ordinal) -> absl::StatusOr<Fake> {
    if (ordinal == 1) return absl::UnavailableError("it failed");
    Fake lost = Gpu(0);
    lost.health = absl::UnavailableError("its context is lost");
    return lost;
  });
  ASSERT_TRUE(engines.ok()) << engines.status();
  EXPECT_THAT(NamesOf(**engines), ElementsAre("cpu"));
  EXPECT_EQ((*engines)->no_cuda_reason(), "cuda:1: it failed; cuda:0: its context is lost");
}

}  // namespace
}  // namespace reduced

// The rungs of the ladder, and every pipeline's measurement: each by name, at every block size, against the reference.
#include <algorithm>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "kernels/algebra/finalize.h"
#include "tests/contract/engine_fixture.h"
#include "tests/support/data.h"
#include "tests/support/oracle.h"
#ifdef REDUCED_HAVE_CUDA
#include "tests/contract/device_array.h"
#endif

namespace reduced {
void PrintTo(const PipelineRow* row, std::ostream* out) { *out << row->name; }
}  // namespace reduced

namespace reduced::test {
namespace {

using KindAndPipeline = std::tuple<EngineKind, const PipelineRow*>;

std::vector<const PipelineRow*> PipelinesOf(EngineKind kind, bool rungs_only) {
  std::vector<const PipelineRow*> rows;
  for (const PipelineRow& row : Pipelines()) {
    if (row.engine == kind && (row.rung || !rungs_only)) rows.push_back(&row);
  }
  return rows;
}

std::vector<int> BlockSizesOf(const PipelineRow& row) {
  std::vector<int> sizes = {0};
  if (row.block_sizes) sizes.insert(sizes.end(), kBlockSizes.begin(), kBlockSizes.end());
  return sizes;
}

class EnginePipelines : public EngineTest<KindAndPipeline> {
 protected:
  const PipelineRow& row() const { return *std::get<const PipelineRow*>(GetParam()); }

  ReduceSpec RungSpec(DType dtype, Op op, std::int64_t count, int block_size) const {
    ReduceSpec spec = Spec(dtype, count);
    spec.ops = {op};
    spec.pipeline = std::string(row().name);
    spec.block_size = block_size;
    return spec;
  }

  // Every op that the rung has for the dtype, on one array.
  void Check(DType dtype, DataKind kind, std::int64_t count, int block_size) {
    const Bytes array = MakeData(kind, dtype, count, static_cast<std::uint64_t>(count));
    const Facts facts = Study(dtype, array.data(), count);
    for (const OpRow& op : kOps) {
      if (!Supports(row(), op.op, dtype) || (count == 0 && op.error_if_empty)) continue;
      const ReduceSpec spec = RungSpec(dtype, op.op, count, block_size);
      ASSERT_TRUE(ValidateSpec(spec).ok()) << ValidateSpec(spec).ToString();
      const absl::StatusOr<Answer> result =
          ReduceAndWait(engine(), {.spec = spec, .array = {array.data(), MemorySpace::kHost}});
      ASSERT_TRUE(result.ok()) << result.status().ToString();
      EXPECT_EQ(result->ran.pipeline, row().name);
      CheckAnswers(facts, spec, result->state);
    }
  }
};

constexpr DType kRungDTypes[] = {DType::kI32, DType::kI64, DType::kU32, DType::kF32, DType::kF64};

class EngineRungs : public EnginePipelines {};

TEST_P(EngineRungs, SmallSizes) {
  int turn = 0;
  for (const DType dtype : kRungDTypes) {
    for (const std::int64_t count : {0, 1, 2, 31, 32, 33, 63, 64, 65, 127, 300, 513, 1023, 1025, 2049}) {
      const bool is_float = RowOf(dtype).is_float;
      const DataKind kinds[] = {is_float ? DataKind::kSomeNan : DataKind::kFactors, DataKind::kFull,
                                is_float ? DataKind::kSignedZeros : DataKind::kLarge, DataKind::kSmall};
      // Every block size and every kind with a part of the sizes.
      const std::vector<int> block_sizes = BlockSizesOf(row());
      for (int i = 0; i < 2; ++i, ++turn) {
        const int block_size = block_sizes[turn % block_sizes.size()];
        const DataKind kind = kinds[turn % 4];
        SCOPED_TRACE(Describe(RungSpec(dtype, Op::kSum, count, block_size), kDataKinds[static_cast<int>(kind)].name));
        Check(dtype, kind, count, block_size);
        if (HasFailure()) return;
      }
    }
  }
}

// Little enough for compute-sanitizer: two blocks, the second one of a few elements.
TEST_P(EngineRungs, EveryOpOnce) {
  for (const DType dtype : kRungDTypes) Check(dtype, DataKind::kSmall, kDefaultBlockSize + 5, 0);
}

// The least that has every barrier and every access to shared memory of each kernel; for racecheck, which is slow.
TEST_P(EngineRungs, ThreeBlocks) {
  for (const int block_size : {0, row().block_sizes ? 64 : 0}) {
    const std::int64_t count = 2 * (block_size == 0 ? kDefaultBlockSize : block_size) + 5;
    const Bytes array = MakeData(DataKind::kSmall, DType::kF32, count, 1);
    const ReduceSpec spec = RungSpec(DType::kF32, Op::kSum, count, block_size);
    const absl::StatusOr<Answer> result =
        ReduceAndWait(engine(), {.spec = spec, .array = {array.data(), MemorySpace::kHost}});
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    CheckAnswers(Study(DType::kF32, array.data(), count), spec, result->state);
  }
}

// Several chunks, and more blocks than one thread of the last pass takes.
TEST_P(EngineRungs, LargeSizes) {
  for (const DType dtype : kRungDTypes) {
    for (const std::int64_t count : {20'000, kSlowBuild ? 30'011 : 200'011}) {
      for (const int block_size : {0, row().block_sizes ? 64 : 0}) {
        SCOPED_TRACE(Describe(RungSpec(dtype, Op::kSum, count, block_size), "uniform"));
        Check(dtype, DataKind::kUniform, count, block_size);
        if (HasFailure()) return;
      }
    }
  }
}

class EngineMeasurements : public EnginePipelines {
 protected:
  absl::StatusOr<Measurement> MeasureAndWait(Job job, int repeats) {
    absl::Notification done;
    absl::StatusOr<Measurement> measurement = absl::UnknownError("not called");
    engine().Measure(std::move(job), repeats, [&](absl::StatusOr<Measurement> result) {
      measurement = std::move(result);
      done.Notify();
    });
    done.WaitForNotification();  // ends with the job: nothing in it waits for anyone
    return measurement;
  }
};

TEST_P(EngineMeasurements, RepeatsOfTheRightAnswer) {
  for (const int block_size : BlockSizesOf(row())) {
    const std::int64_t count = kSlowBuild ? 20'000 : 200'003;
    const Bytes array = MakeData(DataKind::kUniform, DType::kF32, count, 9);
    const ReduceSpec spec = RungSpec(DType::kF32, Op::kSum, count, block_size);
    const absl::StatusOr<Measurement> measured = MeasureAndWait({.spec = spec, .array = {array.data()}}, 3);
    ASSERT_TRUE(measured.ok()) << measured.status().ToString();
    EXPECT_EQ(measured->ran.pipeline, row().name);
    EXPECT_EQ(measured->kernel_us.size(), 3U);
    ASSERT_EQ(measured->states.size(), 3U);
    for (const double us : measured->kernel_us) EXPECT_GT(us, 0);
    const Facts facts = Study(DType::kF32, array.data(), count);
    for (const State& state : measured->states) {
      CheckAnswers(facts, spec, state);
      if (row().fixed_order) {
        EXPECT_EQ(state.partial.float_sum, measured->states[0].partial.float_sum);
      }
    }
    ASSERT_TRUE(measured->read_gb_per_s.has_value());
    EXPECT_GT(*measured->read_gb_per_s, 0);
    EXPECT_TRUE(std::isfinite(*measured->read_gb_per_s));
    ASSERT_EQ(measured->occupancy.has_value(), row().block_sizes);
    if (!measured->occupancy) continue;
    const Occupancy& occupancy = *measured->occupancy;
    EXPECT_EQ(occupancy.block_size, block_size == 0 ? kDefaultBlockSize : block_size);
    EXPECT_GT(occupancy.registers, 0);
    EXPECT_GE(occupancy.blocks_per_multiprocessor, 1);
    EXPECT_LE(occupancy.blocks_per_multiprocessor * occupancy.block_size, occupancy.max_threads_per_multiprocessor);
  }
}

TEST_P(EngineMeasurements, StopForTheCallerAndTheDeadline) {
  const std::vector<float> array(1000);
  Job job{.spec = RungSpec(DType::kF32, Op::kSum, 1000, 0), .array = {array.data()}};
  job.cancelled = std::make_shared<std::atomic<bool>>(true);
  EXPECT_EQ(MeasureAndWait(job, 1000).status().code(), absl::StatusCode::kCancelled);
  job.cancelled = nullptr;
  job.deadline = absl::Now();
  EXPECT_EQ(MeasureAndWait(job, 1000).status().code(), absl::StatusCode::kDeadlineExceeded);
}

#ifdef REDUCED_HAVE_CUDA
class EngineRungsOnDevice : public EnginePipelines {
 protected:
  void SetUp() override {
    if (kind() == EngineKind::kCpu) GTEST_SKIP() << "of the CUDA engine";
    EnginePipelines::SetUp();
  }
  // The answer to one op.
  Value AnswerTo(const ReduceSpec& spec, const ArrayRef& array) {
    const absl::StatusOr<Answer> result = ReduceAndWait(engine(), {.spec = spec, .array = array});
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    const absl::StatusOr<std::vector<Value>> values = Finalize(spec, result.ok() ? result->state : State());
    EXPECT_TRUE(values.ok()) << values.status().ToString();
    return values.ok() ? values->front() : Value{};
  }
};

TEST_P(EngineRungsOnDevice, LeaveTheArrayAlone) {
  for (const std::int64_t count : {1, 1000, 100'003, 4'194'305}) {
    const Bytes array = MakeData(DataKind::kUniform, DType::kI32, count, 2);
    const Facts facts = Study(DType::kI32, array.data(), count);
    DeviceArray device(array.size(), 4);
    ASSERT_NE(device.data(), nullptr);
    device.Write(0, array.data(), array.size());
    const Bytes before = device.Read();
    const ReduceSpec spec = RungSpec(DType::kI32, Op::kSum, count, 0);
    EXPECT_EQ(Mismatch(Expect(facts, spec, Op::kSum), AnswerTo(spec, device.array())), "");
    EXPECT_EQ(device.Read(), before) << "the array or what surrounds it was written to";
  }
}

class EngineRungsSlow : public EngineRungsOnDevice {};

TEST_P(EngineRungsSlow, MoreThan2To31) {
  constexpr std::int64_t kCount = (std::int64_t{1} << 31) + 12'345;
  DeviceArray array(static_cast<std::size_t>(kCount) * sizeof(std::uint32_t), 0);
  ASSERT_NE(array.data(), nullptr);
  array.FillAll(1);
  const std::uint32_t planted = 5;
  array.Write(static_cast<std::size_t>(kCount - 3) * sizeof(planted), &planted, sizeof(planted));
  constexpr std::uint64_t kOnes = 0x01010101;
  EXPECT_EQ(AnswerTo(RungSpec(DType::kU32, Op::kSum, kCount, 0), array.array()),
            (Value{DType::kU64, (kCount - 1) * kOnes + planted}));
  EXPECT_EQ(AnswerTo(RungSpec(DType::kU32, Op::kMin, kCount, 0), array.array()),
            (Value{DType::kU32, std::uint64_t{5}}));
}
#endif

template <class Info>
std::string NameOfPipeline(const Info& info) {
  return std::string(std::get<const PipelineRow*>(info.param)->name);
}

#define INSTANTIATE_BY_PIPELINE(prefix, kind, suite, rungs_only)                                               \
  INSTANTIATE_TEST_SUITE_P(prefix, suite,                                                                      \
                           ::testing::Combine(::testing::Values(EngineKind::kind),                             \
                                              ::testing::ValuesIn(PipelinesOf(EngineKind::kind, rungs_only))), \
                           [](const auto& info) { return NameOfPipeline(info); })
INSTANTIATE_BY_PIPELINE(Cpu, kCpu, EngineRungs, true);
INSTANTIATE_BY_PIPELINE(Cpu, kCpu, EngineMeasurements, false);
#ifdef REDUCED_HAVE_CUDA
INSTANTIATE_BY_PIPELINE(Cuda, kCuda, EngineRungs, true);
INSTANTIATE_BY_PIPELINE(Cuda, kCuda, EngineMeasurements, false);
INSTANTIATE_BY_PIPELINE(Cuda, kCuda, EngineRungsOnDevice, true);
INSTANTIATE_BY_PIPELINE(Cuda, kCuda, EngineRungsSlow, true);
#endif

}  // namespace
}  // namespace reduced::test

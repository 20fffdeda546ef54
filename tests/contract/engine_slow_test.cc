// Arrays of more than 2^31 elements.
#include <sys/mman.h>

#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/algebra/finalize.h"
#include "tests/contract/engine_fixture.h"
#ifdef REDUCED_HAVE_CUDA
#include "tests/contract/device_array.h"
#endif

namespace reduced::test {
namespace {

constexpr std::int64_t kCount = (std::int64_t{1} << 31) + 12'345;

class EngineSlow : public EngineTest<EngineKind> {
 protected:
  // The answers to spec's ops, from an engine with the default options.
  std::vector<Value> Answers(const ReduceSpec& spec, const ArrayRef& array) {
    const Started own = StartOwn(EngineOptions{});
    if (own.engine == nullptr) return std::vector<Value>(spec.ops.size());
    const absl::StatusOr<Answer> result = ReduceAndWait(*own.engine, {.spec = spec, .array = array});
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    const absl::StatusOr<std::vector<Value>> values = Finalize(spec, result.ok() ? result->state : State());
    EXPECT_TRUE(values.ok()) << values.status().ToString();
    return values.ok() ? *values : std::vector<Value>(spec.ops.size());
  }

  // i8: ones; near the end a 5 (twice: the first counts) and a -7.
  ReduceSpec I8Spec() const {
    ReduceSpec spec = Spec(DType::kI8, kCount);
    spec.ops = {Op::kSum, Op::kArgmax, Op::kArgmin, Op::kMax, Op::kMin, Op::kL1, Op::kCountNonzero, Op::kBitXor};
    return spec;
  }
  static constexpr std::int64_t kFive = kCount - 1'000;
  static constexpr std::int64_t kMinusSeven = kCount - 3;
  static void ExpectI8(const std::vector<Value>& values) {
    const std::int64_t ones = kCount - 3;
    EXPECT_EQ(values[0].value, Value({DType::kI64, ones + 5 + 5 - 7}).value);
    EXPECT_EQ(values[1].value, Value({DType::kU64, static_cast<std::uint64_t>(kFive)}).value);
    EXPECT_EQ(values[2].value, Value({DType::kU64, static_cast<std::uint64_t>(kMinusSeven)}).value);
    EXPECT_EQ(values[3].value, Value({DType::kI8, std::int64_t{5}}).value);
    EXPECT_EQ(values[4].value, Value({DType::kI8, std::int64_t{-7}}).value);
    EXPECT_EQ(values[5].value, Value({DType::kU64, static_cast<std::uint64_t>(ones + 17)}).value);
    EXPECT_EQ(values[6].value, Value({DType::kU64, static_cast<std::uint64_t>(kCount)}).value);
    const auto parity = static_cast<std::int8_t>(ones % 2 == 0 ? 0 : 1);
    EXPECT_EQ(values[7].value, Value({DType::kI8, std::int64_t{static_cast<std::int8_t>(parity ^ 5 ^ 5 ^ -7)}}).value);
  }

  // bool: false, but for one true near the end.
  ReduceSpec BoolSpec() const {
    ReduceSpec spec = Spec(DType::kBool, kCount);
    spec.ops = {Op::kArgmax, Op::kSum, Op::kAny, Op::kAll, Op::kCountNonzero, Op::kArgmin};
    return spec;
  }
  static constexpr std::int64_t kTrue = kCount - 2;
  static void ExpectBool(const std::vector<Value>& values) {
    EXPECT_EQ(values[0].value, Value({DType::kU64, static_cast<std::uint64_t>(kTrue)}).value);
    EXPECT_EQ(values[1].value, Value({DType::kU64, std::uint64_t{1}}).value);
    EXPECT_EQ(values[2].value, Value({DType::kBool, true}).value);
    EXPECT_EQ(values[3].value, Value({DType::kBool, false}).value);
    EXPECT_EQ(values[4].value, Value({DType::kU64, std::uint64_t{1}}).value);
    EXPECT_EQ(values[5].value, Value({DType::kU64, std::uint64_t{0}}).value);
  }
};

// Host memory that costs nothing until it is written to.
class LargeHostArray {
 public:
  LargeHostArray() : memory_(mmap(nullptr, kCount, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~LargeHostArray() {
    if (ok()) munmap(memory_, kCount);
  }
  LargeHostArray(const LargeHostArray&) = delete;
  LargeHostArray& operator=(const LargeHostArray&) = delete;
  bool ok() const { return memory_ != MAP_FAILED; }
  std::int8_t* data() const { return static_cast<std::int8_t*>(memory_); }

 private:
  void* const memory_;
};

TEST_P(EngineSlow, MoreThan2To31InHostMemory) {
  const LargeHostArray array;
  ASSERT_TRUE(array.ok()) << "no room for " << kCount << " bytes";
  array.data()[kTrue] = 3;  // any byte but 0 is true
  ExpectBool(Answers(BoolSpec(), {.data = array.data()}));
  std::memset(array.data(), 1, kCount);
  array.data()[kFive] = 5;
  array.data()[kFive + 500] = 5;
  array.data()[kMinusSeven] = -7;
  ExpectI8(Answers(I8Spec(), {.data = array.data()}));
}

#ifdef REDUCED_HAVE_CUDA
TEST_P(EngineSlow, MoreThan2To31InDeviceMemory) {
  if (kind() == EngineKind::kCpu) GTEST_SKIP() << "of the CUDA engine";
  DeviceArray array(kCount, 3);
  ASSERT_NE(array.data(), nullptr);
  const std::int8_t planted[] = {1, 5, -7};
  array.FillAll(0);
  array.Write(kTrue, &planted[0], 1);
  ExpectBool(Answers(BoolSpec(), array.array()));
  array.FillAll(1);
  array.Write(kFive, &planted[1], 1);
  array.Write(kFive + 500, &planted[1], 1);
  array.Write(kMinusSeven, &planted[2], 1);
  ExpectI8(Answers(I8Spec(), array.array()));
}

// Sums beyond 63 bits of elements that partial sums in 64 bits have room for.
TEST_P(EngineSlow, LargestU32SumInDeviceMemory) {
  if (kind() == EngineKind::kCpu) GTEST_SKIP() << "of the CUDA engine";
  DeviceArray array(static_cast<std::size_t>(kCount) * sizeof(std::uint32_t), 0);
  ASSERT_NE(array.data(), nullptr);
  array.FillAll(0xff);
  ReduceSpec spec = Spec(DType::kU32, kCount);
  spec.ops = {Op::kSum, Op::kMean, Op::kSumSquares, Op::kArgmax, Op::kBitXor};
  spec.overflow_policy = OverflowPolicy::kWrap;
  const std::vector<Value> values = Answers(spec, array.array());
  const auto n = static_cast<std::uint64_t>(kCount);
  EXPECT_EQ(values[0].value, Value({DType::kU64, n * 0xffffffffU}).value);
  EXPECT_EQ(values[1].value, Value({DType::kF64, double{0xffffffffU}}).value);
  EXPECT_EQ(values[2].value, Value({DType::kU64, n * 0xffffffffU * 0xffffffffU}).value);  // modulo 2^64
  EXPECT_EQ(values[3].value, Value({DType::kU64, std::uint64_t{0}}).value);
  EXPECT_EQ(values[4].value, Value({DType::kU32, std::uint64_t{0xffffffffU}}).value);  // an odd number of them
}
#endif

REDUCED_INSTANTIATE_BY_KIND(EngineSlow);

}  // namespace
}  // namespace reduced::test

// Exact sums of arrays in device memory: the same state, to the bit, as the CPU's, whatever the elements, their number
// and their address. Built with CUDA only.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/exact_tiles.h"
#include "kernels/exact/answers.h"
#include "tests/contract/device_array.h"
#include "tests/contract/engine_fixture.h"
#include "tests/support/data.h"

namespace reduced::test {
namespace {

class EngineExactDeviceMemory : public EngineTest<KindAndDType> {
 protected:
  DType dtype() const { return std::get<DType>(GetParam()); }

  void Check(const Bytes& array, std::size_t misalignment, const std::vector<OpCall>& ops, const std::string& what) {
    const std::int64_t count = static_cast<std::int64_t>(array.size()) / RowOf(dtype()).bytes;
    DeviceArray device(array.size(), misalignment);
    ASSERT_NE(device.data(), nullptr);
    device.Write(0, array.data(), array.size());
    ReduceSpec spec = Spec(dtype(), count);
    spec.ops = ops;
    spec.precision = Precision::kExact;
    ExactFolder folder(dtype(), ExactAccumulatorsFor(spec));
    folder.Fold(array.data(), count);
    for (int run = 0; run < 2; ++run) {  // the second finds what the first has left
      const absl::StatusOr<Answer> result = ReduceAndWait(engine(), {.spec = spec, .array = device.array()});
      ASSERT_TRUE(result.ok()) << result.status().ToString();
      ASSERT_NE(result->state.exact, nullptr);
      EXPECT_EQ(result->state.partial.count, count);
      EXPECT_TRUE(*result->state.exact == folder.sums())
          << RowOf(dtype()).name << "[" << count << "] " << what << ", " << misalignment << " bytes off, "
          << RowOf(ops.front()).name << " and " << ops.size() - 1 << " more, run " << run;
    }
  }
  void CheckAll(const Bytes& array, std::size_t misalignment, const std::string& what) {
    for (const std::vector<OpCall>& ops : std::vector<std::vector<OpCall>>{{Op::kSum},
                                                                           {Op::kL1},
                                                                           {Op::kL2},
                                                                           {Op::kVar},
                                                                           {Op::kMean, Op::kL1, Op::kStd, Op::kMin},
                                                                           {Op::kL1, Op::kL2}}) {
      Check(array, misalignment, ops, what);
      if (HasFatalFailure()) return;
    }
  }
};

TEST_P(EngineExactDeviceMemory, EverySizeAndKind) {
  std::vector<std::int64_t> counts = {31, 32, 33, 63, 64, 65, 255, 256, 257, 1023, 1025, 4097, 65'537, 1'000'007};
  for (std::int64_t count = 0; count < 18; ++count) counts.push_back(count);
  for (const std::int64_t count : counts) {
    for (const DataKindRow& kind : kDataKinds) {
      CheckAll(MakeData(kind.kind, dtype(), count, static_cast<std::uint64_t>(count)), 0, std::string(kind.name));
      if (HasFailure()) return;
    }
  }
}

TEST_P(EngineExactDeviceMemory, AnyByteAddress) {
  for (const std::int64_t count : {1, 3, 17, 64, 1025, 70'001}) {
    for (std::size_t misalignment = 0; misalignment < 130; misalignment += misalignment < 17 ? 1 : 11) {
      CheckAll(MakeData(DataKind::kFull, dtype(), count, misalignment), misalignment, "full");
      if (HasFailure()) return;
    }
  }
}

// Of magnitudes that the bins hold, don't hold, and that can't be anchored, in stretches of every length; some zeros,
// infinities and NaNs.
TEST_P(EngineExactDeviceMemory, AnyRange) {
  std::mt19937_64 random(3);
  for (int run = 0; run < 9; ++run) {
    constexpr std::int64_t kCount = 500'000;
    std::vector<double> values;
    while (static_cast<std::int64_t>(values.size()) < kCount) {
      const int low = std::uniform_int_distribution<int>(-1074, 1023)(random);
      const int high = std::min(1023, low + static_cast<int>(random() % (random() % 2 == 0 ? 60 : 1200)));
      for (std::uint64_t n = random() % 40'000; n > 0; --n) {
        double x = std::ldexp(1 + std::ldexp(static_cast<double>(random() >> 12), -52),
                              std::uniform_int_distribution<int>(low, high)(random));
        if (random() % 2 == 0) x = -x;
        if (random() % 1000 == 0) x = random() % 2 == 0 ? 0.0 : -0.0;
        if (run % 3 == 0 && random() % 20'000 == 0) x = random() % 3 == 0 ? NAN : x > 0 ? INFINITY : -INFINITY;
        values.push_back(x);
      }
    }
    values.resize(kCount);
    Bytes array(static_cast<std::size_t>(kCount * RowOf(dtype()).bytes));
    for (std::int64_t i = 0; i < kCount; ++i) {
      const auto narrow = static_cast<float>(std::copysign(std::pow(std::fabs(values[i]), 0.125), values[i]));
      const auto upper = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(narrow) >> 16);
      const void* const from = dtype() == DType::kF64   ? static_cast<const void*>(&values[i])
                               : dtype() == DType::kF32 ? static_cast<const void*>(&narrow)
                                                        : static_cast<const void*>(&upper);
      std::memcpy(array.data() + i * RowOf(dtype()).bytes, from, static_cast<std::size_t>(RowOf(dtype()).bytes));
    }
    CheckAll(array, 0, "run " + std::to_string(run));
    if (HasFailure()) return;
  }
}

// So many of the largest that bins must be emptied in time.
TEST_P(EngineExactDeviceMemory, FillsTheBins) {
  for (const double mantissa : {1.0, -1.9999}) {
    Bytes array(std::size_t{64} << 20);
    const std::int64_t count = static_cast<std::int64_t>(array.size()) / RowOf(dtype()).bytes;
    SetElement(dtype(), 0, mantissa, &array);
    const std::size_t width = static_cast<std::size_t>(RowOf(dtype()).bytes);
    for (std::int64_t i = 1; i < count; ++i) std::memcpy(&array[static_cast<std::size_t>(i) * width], &array[0], width);
    CheckAll(array, 0, "equal");
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, EngineExactDeviceMemory,
                         ::testing::Combine(::testing::Values(EngineKind::kCuda),
                                            ::testing::Values(DType::kF16, DType::kBF16, DType::kF32, DType::kF64)),
                         NameOfDType);

}  // namespace
}  // namespace reduced::test

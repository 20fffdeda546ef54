// Arrays whose elements do not lie next to each other, or have their bytes reversed: in host memory, and in that of a
// device. Each answer is that of a dense array with the same elements, bit for bit.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/system/gather.h"
#include "tests/contract/engine_fixture.h"
#include "tests/contract/partitions.h"
#include "tests/support/data.h"
#include "tests/support/oracle.h"

namespace reduced::test {
namespace {

// A layout of elements, within memory of its own.
struct Lying {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> steps;  // strides, in elements
  std::int64_t more = 0;            // bytes of each stride that is not negative
};
const Lying kLayouts[] = {
    {{}, {}},
    {{1}, {-3}},
    {{3000}, {2}},
    {{3000}, {-1}},
    {{2000}, {0}},
    {{60, 70}, {1, 60}},   // transposed
    {{60, 70}, {140, 2}},  // every second column
    {{40, 50, 30}, {-1500, 0, 1}},
    {{70, 90}, {91, -1}, 1},  // at odd addresses
    {{2, 3, 2, 3, 2, 3, 2, 3}, {3, 6, 1, 36, 18, 216, 108, 648}},
};

class EngineStrides : public EngineTest<KindAndDType> {
 protected:
  DType dtype() const { return std::get<DType>(GetParam()); }

  // Elements that are `dense` in C order, as they lie: with what reads them in host memory, and on the device.
  struct Array {
    std::vector<std::int64_t> shape;
    Bytes dense;
    Bytes memory;
    std::int64_t width = 0;
    std::unique_ptr<ArrayMemory> stored;
    std::unique_ptr<StridedReader> reader, on_device;
    ReadElements read;

    std::int64_t count() const { return std::ssize(dense) / width; }
    ArrayRef host() const { return {.read = &read}; }
    ArrayRef device() const {
      return {.space = MemorySpace::kDevice, .strided = on_device.get(), .device = stored->array().device};
    }
  };

  std::unique_ptr<Array> Make(const Lying& lying, bool swaps) {
    auto array = std::make_unique<Array>();
    array->shape = lying.shape;
    array->width = RowOf(dtype()).bytes;
    std::int64_t count = 1;
    for (const std::int64_t size : lying.shape) count *= size;
    StridedArray from{.width = array->width, .shape = lying.shape, .swaps = swaps};
    for (const std::int64_t step : lying.steps)
      from.strides.push_back(step * array->width + (step > 0 ? lying.more : 0));
    const ByteSpan span = SpanOf(from.shape, from.strides, from.width).value();
    array->memory = MakeData(DataKind::kUniform, dtype(), (span.end - span.begin) / array->width + 2, 3);
    array->dense.resize(static_cast<std::size_t>(count * array->width));
    from.data = array->memory.data() - span.begin;
    const Bytes elements = MakeData(DataKind::kUniform, dtype(), count, 5);
    Place(from, elements, array->memory.data() - span.begin);
    Gather(from, array->dense.data());  // which unit tests compare with the definition
    array->reader = std::make_unique<StridedReader>(from);
    array->read = [reader = array->reader.get()](std::int64_t offset, char* to, std::int64_t bytes) {
      reader->Read(offset / reader->width(), bytes / reader->width(), reinterpret_cast<std::byte*>(to));
      return absl::OkStatus();
    };
    if (kind() == EngineKind::kCpu) return array;
    array->stored = engine().Allocate(std::ssize(array->memory)).value();
    EXPECT_TRUE(array->stored->Write(0, array->memory.data(), std::ssize(array->memory)).ok());
    from.data = static_cast<const std::byte*>(array->stored->array().data) - span.begin;
    array->on_device = std::make_unique<StridedReader>(from);
    return array;
  }

  // Writes the elements to where they lie, those of the same place one after the other.
  static void Place(const StridedArray& to, const Bytes& elements, std::byte* data) {
    const std::int64_t count = std::ssize(elements) / to.width;
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t rest = i, at = 0;
      for (std::size_t d = to.shape.size(); d-- > 0; rest /= to.shape[d]) at += rest % to.shape[d] * to.strides[d];
      std::memcpy(data + at, elements.data() + i * to.width, static_cast<std::size_t>(to.width));
      if (to.swaps) std::reverse(data + at, data + at + to.width);
    }
  }

  // Calls check(array, ref) for every layout, byte order and memory.
  template <class Check>
  void ForEach(const Check& check) {
    for (const Lying& lying : kLayouts) {
      for (const bool swaps : {false, true}) {
        SCOPED_TRACE(::testing::Message() << ::testing::PrintToString(lying.shape) << " by "
                                          << ::testing::PrintToString(lying.steps) << (swaps ? " swapped" : ""));
        const std::unique_ptr<Array> array = Make(lying, swaps);
        check(*array, array->host());
        if (array->on_device != nullptr) {
          SCOPED_TRACE("on the device");
          check(*array, array->device());
        }
        if (HasFailure()) return;
      }
    }
  }

  // As of the dense array.
  void CheckPartition(const Array& array, const ArrayRef& ref, ReduceSpec spec, const Partition& partition,
                      const Bytes* other = nullptr, const ArrayRef* other_ref = nullptr) {
    Job job{.spec = std::move(spec), .array = {.data = array.dense.data()}};
    if (other != nullptr) job.y = OtherArray{.array = {dtype(), array.count(), {.data = other->data()}}};
    const Reply dense = ReducePartition(engine(), job, partition);
    job.array = ref;
    if (other != nullptr) job.y->array.array = *other_ref;
    const Reply lying = ReducePartition(engine(), job, partition);
    ASSERT_TRUE(dense.status.ok()) << dense.status;
    ASSERT_TRUE(lying.status.ok()) << lying.status;
    EXPECT_EQ(lying.keys, dense.keys);
    EXPECT_TRUE(lying.answers->memory == dense.answers->memory);
  }

  // Exact and integer ops, whose bits do not depend on how an engine cuts the array.
  ReduceSpec SpecOf(const Array& array) const {
    ReduceSpec spec = Spec(dtype(), array.count());
    spec.precision = Precision::kExact;
    spec.overflow_policy = OverflowPolicy::kWrap;
    std::erase_if(spec.ops, [](const OpCall& call) { return call.op == Op::kProd; });
    return spec;
  }
};

TEST_P(EngineStrides, WholeArrays) {
  ForEach([&](const Array& array, const ArrayRef& ref) {
    const ReduceSpec spec = Spec(dtype(), array.count());
    const absl::StatusOr<Answer> answer = ReduceAndWait(engine(), {.spec = spec, .array = ref});
    ASSERT_TRUE(answer.ok()) << answer.status();
    CheckAnswers(Study(dtype(), array.dense.data(), array.count()), spec, answer->state);
  });
}

TEST_P(EngineStrides, AlongAxes) {
  ForEach([&](const Array& array, const ArrayRef& ref) {
    for (std::size_t axis = 0; axis <= array.shape.size(); ++axis) {  // the last one: all of them
      std::vector<bool> axes(array.shape.size(), axis == array.shape.size());
      if (axis < axes.size()) axes[axis] = true;
      CheckPartition(array, ref, SpecOf(array), {.layout = LayoutOf(array.shape, axes)});
    }
  });
}

TEST_P(EngineStrides, OpsOfTheDistribution) {
  ForEach([&](const Array& array, const ArrayRef& ref) {
    ReduceSpec spec = Spec(dtype(), array.count());
    spec.ops = {Op::kMedian, Op::kDistinct, Op::kFingerprint};
    CheckPartition(array, ref, spec, {.layout = LayoutOf(array.shape, std::vector<bool>(array.shape.size(), true))});
  });
}

TEST_P(EngineStrides, ArraysBeside) {
  std::minstd_rand random(5);
  ForEach([&](const Array& array, const ArrayRef& ref) {
    if (array.shape.empty()) return;
    const std::int64_t rows = array.shape.front();
    std::vector<std::uint32_t> keys, spread(static_cast<std::size_t>(2 * rows));  // backwards, and big-endian
    std::vector<std::uint8_t> mask;
    for (std::int64_t i = 0; i < rows; ++i) {
      keys.push_back(random() % 5);
      spread[static_cast<std::size_t>(2 * (rows - 1 - i))] = __builtin_bswap32(keys.back());
    }
    for (std::int64_t i = 0; i < array.count(); ++i) mask.push_back(random() % 3 != 0);
    const Bytes dense_keys = BytesOf(keys);
    const StridedReader reader({.data = reinterpret_cast<const std::byte*>(spread.data() + 2 * (rows - 1)),
                                .width = 4,
                                .shape = {rows},
                                .strides = {-8},
                                .swaps = true});
    const ReadElements read = [&reader](std::int64_t offset, char* to, std::int64_t bytes) {
      reader.Read(offset / 4, bytes / 4, reinterpret_cast<std::byte*>(to));
      return absl::OkStatus();
    };
    std::vector<bool> first(array.shape.size(), false);
    first[0] = true;
    Partition partition{.layout = LayoutOf(array.shape, first), .rows = rows};
    partition.keys = Keys{.keys = SideOf(DType::kU32, dense_keys), .groups = 5};
    const Bytes mask_bytes = BytesOf(mask);
    partition.mask = Mask{.array = SideOf(DType::kBool, mask_bytes)};
    Job job{.spec = SpecOf(array), .array = {.data = array.dense.data()}};
    std::erase_if(job.spec.ops, [](const OpCall& call) {  // of which a group may have no element
      return call.op == Op::kMin || call.op == Op::kMax || call.op == Op::kArgmin || call.op == Op::kArgmax ||
             call.op == Op::kRange;
    });
    const Reply dense = ReducePartition(engine(), job, partition);
    partition.keys->keys.array = {.read = &read};
    job.array = ref;
    const Reply lying = ReducePartition(engine(), job, partition);
    ASSERT_TRUE(dense.status.ok()) << dense.status;
    ASSERT_TRUE(lying.status.ok()) << lying.status;
    EXPECT_TRUE(lying.answers->memory == dense.answers->memory);

    ReduceSpec spec = Spec(dtype(), array.count());
    spec.ops = {Op::kDot, Op::kCompare};
    spec.overflow_policy = OverflowPolicy::kWrap;
    const Partition whole{.layout = LayoutOf(array.shape, std::vector<bool>(array.shape.size(), true))};
    CheckPartition(array, ref, spec, whole, &array.dense, &ref);
  });
}

TEST_P(EngineStrides, AnErrorOfTheReaderEndsIt) {
  const ReadElements read = [](std::int64_t, char*, std::int64_t) { return absl::FailedPreconditionError("gone"); };
  const ReduceSpec spec = Spec(dtype(), 100'000);
  EXPECT_EQ(ReduceAndWait(engine(), {.spec = spec, .array = {.read = &read}}).status(),
            absl::FailedPreconditionError("gone"));
  const Partition halves{.layout = LayoutOf({{2, 50'000}}, {false, true})};
  EXPECT_EQ(ReducePartition(engine(), {.spec = spec, .array = {.read = &read}}, halves).status,
            absl::FailedPreconditionError("gone"));
}

INSTANTIATE_TEST_SUITE_P(Cpu, EngineStrides,
                         ::testing::Combine(::testing::Values(EngineKind::kCpu),
                                            ::testing::Values(DType::kU8, DType::kI16, DType::kF32, DType::kF64)),
                         NameOfDType);
REDUCED_INSTANTIATE_ON_CUDA(EngineStrides, DType::kU8, DType::kF8E5M2, DType::kI16, DType::kF32, DType::kF64);

}  // namespace
}  // namespace reduced::test

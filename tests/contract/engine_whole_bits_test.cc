// Fingerprints and comparisons of long arrays in the memory of a GPU, by kernels: the answers and the states are those
// of the CPU engine, byte for byte, whatever the bits, the lengths and the addresses.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/algebra/float_format.h"
#include "kernels/algebra/layout.h"
#include "tests/contract/engine_fixture.h"
#include "tests/contract/partitions.h"
#include "tests/support/data.h"

namespace reduced::test {
namespace {

class EngineWholeBits : public EngineTest<KindAndDType> {
 protected:
  DType dtype() const { return std::get<DType>(GetParam()); }
  std::int64_t width() const { return RowOf(dtype()).bytes; }

  // An array in the memory of the device, so many bytes behind what it begins with.
  struct Held {
    std::unique_ptr<ArrayMemory> memory;
    ArrayRef array;
  };
  Held Hold(const Bytes& bytes, std::int64_t offset) const {
    absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = engine().Allocate(std::ssize(bytes) + offset);
    if (!memory.ok()) ADD_FAILURE() << memory.status();
    if (!memory.ok()) return {};
    EXPECT_EQ((*memory)->Write(offset, bytes.data(), std::ssize(bytes)), absl::OkStatus());
    Held held{*std::move(memory), {}};
    held.array = held.memory->array();
    held.array.data = static_cast<const std::byte*>(held.array.data) + offset;
    return held;
  }

  // `y`: empty, if the ops have no other operand.
  void Check(const std::string& name, const Bytes& x, const Bytes& y, const std::vector<OpCall>& calls,
             std::int64_t x_offset, std::int64_t y_offset, NanPolicy policy = NanPolicy::kPropagate,
             std::vector<std::int64_t> shape = {}) const {
    SCOPED_TRACE(name + ", offsets " + std::to_string(x_offset) + " and " + std::to_string(y_offset) + ", policy " +
                 std::to_string(static_cast<int>(policy)));
    const std::int64_t count = std::ssize(x) / width();
    if (shape.empty()) shape = {count};
    std::vector<bool> axes(shape.size(), true);
    axes[0] = shape.size() == 1;
    const Partition partition{.layout = LayoutOf(shape, axes)};
    const Held held_x = Hold(x, x_offset), held_y = Hold(y.empty() ? x : y, y_offset);
    Job job{.spec = Spec(dtype(), count), .array = {x.data()}};
    job.spec.ops = calls;
    job.spec.nan_policy = policy;
    if (!y.empty()) job.y = OtherArray{SideOf(dtype(), y)};
    for (const bool wants_states : {false, true}) {
      std::vector<State> wanted_states, states;
      if (wants_states) job.states = &wanted_states;
      job.array = {x.data()};
      if (!y.empty()) job.y->array.array = {y.data()};
      const Reply wanted = ReducePartition(engine_for(1), job, partition);
      if (wants_states) job.states = &states;
      job.array = held_x.array;
      if (!y.empty()) job.y->array.array = held_y.array;
      const Reply got = ReducePartition(engine(), job, partition);
      ASSERT_EQ(wanted.status, absl::OkStatus());
      ASSERT_EQ(got.status, absl::OkStatus());
      for (std::size_t i = 0; i < calls.size(); ++i) {
        EXPECT_TRUE(got.answers->memory[i] == wanted.answers->memory[i]) << RowOf(calls[i].op).name << " " << i;
      }
      ASSERT_EQ(states.size(), wanted_states.size());
      for (std::size_t s = 0; s < states.size(); ++s) {
        EXPECT_EQ(states[s].partial.count, wanted_states[s].partial.count);
        ASSERT_EQ(states[s].entries.size(), wanted_states[s].entries.size());
        for (std::size_t i = 0; i < states[s].entries.size(); ++i) {
          const Entries &one = states[s].entries[i], &other = wanted_states[s].entries[i];
          EXPECT_TRUE(one.rule == other.rule && one.most == other.most && one.keys == other.keys &&
                      one.values == other.values)
              << "state of " << RowOf(calls[i].op).name << " " << i;
        }
      }
    }
  }
};

class EngineFingerprints : public EngineWholeBits {};

TEST_P(EngineFingerprints, AnyBitsLengthsAndAddresses) {
  for (const DataKind kind : {DataKind::kFull, DataKind::kEqual, DataKind::kSomeNan, DataKind::kSignedZeros}) {
    if (!Applies(kDataKinds[static_cast<int>(kind)], dtype())) continue;
    Check("data", MakeData(kind, dtype(), 70'001, 3), {}, {Op::kFingerprint}, 0, 0);
  }
  // Tiles of blocks and of warps, and one element more or less. The first one and the last one are in vectors of 16
  // bytes with others.
  for (const std::int64_t bytes : {std::int64_t{64} << 10, std::int64_t{96} << 10, std::int64_t{300} << 12}) {
    for (const std::int64_t more : {-1, 0, 1}) {
      if (bytes == std::int64_t{64} << 10 && more < 0) continue;  // which the host answers
      Check("lengths", MakeData(DataKind::kFull, dtype(), bytes / width() + more, 4), {}, {Op::kFingerprint}, 0, 0);
    }
  }
  const Bytes array = MakeData(DataKind::kFull, dtype(), (std::int64_t{100} << 10) / width() + 1, 5);
  for (std::int64_t offset = 0; offset < 18; ++offset) Check("addresses", array, {}, {Op::kFingerprint}, offset, 0);
  Bytes ones(std::size_t{200'000}, std::byte{0xff}), zeros(std::size_t{200'000});
  Check("all bits", ones, {}, {Op::kFingerprint}, 0, 0);
  Check("no bit", zeros, {}, {Op::kFingerprint}, 8, 0);
  // More tiles than there are warps on the device.
  if (!kSlowBuild) {
    Check("long", MakeData(DataKind::kFull, dtype(), (std::int64_t{40} << 20) / width() + 5, 6), {}, {Op::kFingerprint},
          8, 0);
  }
}

// Each at an address of another alignment, and beside other ops.
TEST_P(EngineFingerprints, LongRows) {
  Check("rows", MakeData(DataKind::kFull, dtype(), 3 * 70'001, 3), {},
        {Op::kFingerprint, {Op::kTopK, {.k = 3}}, Op::kCount, Op::kFingerprint}, 0, 0, NanPolicy::kPropagate,
        {3, 70'001});
}

TEST_P(EngineFingerprints, PartsOfLargerArrays) {
  struct PartRow {
    std::vector<std::int64_t> whole, offset, part;
  };
  const PartRow kParts[] = {{{200'000}, {77'777}, {100'001}},
                            {{9, 20'000}, {3, 0}, {5, 20'000}},
                            {{7, 40'000}, {2, 123}, {4, 33'001}},
                            {{3, 4, 20'001}, {1, 1, 0}, {2, 3, 20'001}},
                            {{500, 300}, {100, 200}, {400, 100}},
                            {{1, 100'000, 1}, {0, 5, 0}, {1, 80'000, 1}},
                            {{3, 5, 17'000}, {0, 2, 5}, {3, 2, 16'999}},
                            {{100'000, 2}, {0, 1}, {100'000, 1}}};
  for (const PartRow& row : kParts) {
    std::int64_t count = 1;
    for (const std::int64_t size : row.part) count *= size;
    const OpCall call(Op::kFingerprint, {.shard = Shard{.whole = row.whole, .offset = row.offset, .part = row.part}});
    Check("part", MakeData(DataKind::kFull, dtype(), count, 3), {}, {call}, 0, 0);
    Check("part", MakeData(DataKind::kFull, dtype(), count, 3), {}, {call, Op::kFingerprint}, 8, 0);
  }
}

REDUCED_INSTANTIATE_ON_CUDA(EngineFingerprints, DType::kF32, DType::kF64, DType::kBF16, DType::kI16, DType::kU8,
                            DType::kBool, DType::kI64, DType::kF8E4M3, DType::kF8E5M2, DType::kF8E8M0);

class EngineComparisons : public EngineWholeBits {
 protected:
  std::vector<OpCall> Calls() const {
    std::vector<OpCall> calls = {Op::kCompare,
                                 {Op::kCompare, {.rtol = 1e-3, .atol = 1e-6}},
                                 {Op::kCompare, {.rtol = 1e-7, .equal_nan = true}},
                                 {Op::kCompare, {.rtol = std::numeric_limits<double>::infinity()}},
                                 Op::kDistanceMax};
    for (OpCall& call : calls) call = call.With(dtype());
    return calls;
  }
  void CheckAll(const std::string& name, const Bytes& x, const Bytes& y, std::int64_t x_offset = 0,
                std::int64_t y_offset = 0) const {
    for (const NanPolicy policy : {NanPolicy::kPropagate, NanPolicy::kOmit}) {
      if (policy == NanPolicy::kOmit && !RowOf(dtype()).is_float) continue;
      Check(name, x, y, Calls(), x_offset, y_offset, policy);
    }
  }
  // Changes the last bit of an element, or its sign.
  void Flip(std::int64_t index, bool sign, Bytes* array) const {
    const std::int64_t at = sign ? (index + 1) * width() - 1 : index * width();
    (*array)[static_cast<std::size_t>(at)] ^= std::byte{static_cast<unsigned char>(sign ? 0x80 : 1)};
  }
  // A little longer than what the host answers.
  std::int64_t count() const { return (std::int64_t{68} << 10) / width() + 3; }
};

TEST_P(EngineComparisons, EachKindOfData) {
  for (const DataKindRow& data : kDataKinds) {
    if (!Applies(data, dtype())) continue;
    const std::string name(data.name);
    const Bytes x = MakeData(data.kind, dtype(), count(), 2);
    CheckAll(name + ", equal", x, x);
    Bytes y = x;
    for (const std::int64_t i : {std::int64_t{5}, std::int64_t{5}, count() / 2, count() / 3}) Flip(i, false, &y);
    Flip(count() / 5, true, &y);
    CheckAll(name + ", nearly", x, y);
    CheckAll(name + ", different", x, MakeData(data.kind, dtype(), count(), 5));
    CheckAll(name + " and uniform", x, MakeData(DataKind::kUniform, dtype(), count(), 4));
    CheckAll("uniform and " + name, MakeData(DataKind::kUniform, dtype(), count(), 4), x);
  }
}

// The launches of each way, as small as it takes.
TEST_P(EngineComparisons, LongRows) {
  const std::int64_t row = count();
  const Bytes x = MakeData(DataKind::kUniform, dtype(), 3 * row, 3);
  Bytes y = x;
  Flip(row + 5, false, &y);
  Check("nearly", x, y, Calls(), 0, width(), NanPolicy::kPropagate, {3, row});
  Check("different", x, MakeData(DataKind::kUniform, dtype(), 3 * row, 4), Calls(), 0, 0, NanPolicy::kPropagate,
        {3, row});
}

// One pair differs: each place in a vector, in the first and the last one, and where threads and blocks take turns. The
// figures are the same in several places, of which the first one counts.
TEST_P(EngineComparisons, WhereTheyDiffer) {
  const Bytes x = MakeData(DataKind::kUniform, dtype(), count(), 3);
  const std::int64_t last = count() - 1;
  for (const std::int64_t at : std::vector<std::int64_t>{0, 1, 2, 15, 16, 17, 4095, 4096, last - 17, last - 1, last}) {
    Bytes y = x;
    Flip(at, false, &y);
    Check("at " + std::to_string(at), x, y, Calls(), 0, 0);
    Check("at " + std::to_string(at), x, y, Calls(), 3 * width(), width());
  }
  Bytes y = x;
  for (std::int64_t i = 7; i < count(); i += 1009) {
    SetElement(dtype(), i, 1, &y);
  }
  Bytes same = x;
  for (std::int64_t i = 7; i < count(); i += 1009) SetElement(dtype(), i, 0, &same);
  CheckAll("ties", same, y);
  // As many pairs as the host adds up, and more.
  constexpr std::int64_t kMost = 1 << 14;
  const Bytes long_x = MakeData(DataKind::kUniform, dtype(), 6 * kMost + 1, 3);
  for (const std::int64_t most : {kMost, kMost + 1}) {
    Bytes many = long_x;
    for (std::int64_t i = 0; i < most; ++i) Flip(6 * i, false, &many);
    CheckAll("many", long_x, many);
  }
}

TEST_P(EngineComparisons, AnyAddresses) {
  const Bytes x = MakeData(DataKind::kFull, dtype(), count(), 3), z = MakeData(DataKind::kFull, dtype(), count(), 8);
  Bytes y = x;
  Flip(0, false, &y);
  Flip(count() - 1, false, &y);
  Flip(count() / 2, true, &y);
  for (std::int64_t offset = 0; offset < 16; ++offset) {
    CheckAll("nearly", x, y, offset, 0);
    CheckAll("nearly", x, y, 5, offset);
    Check("different", x, z, Calls(), offset, 0);
    Check("different", x, z, Calls(), width(), offset);
  }
  // More than the device has in flight.
  if (!kSlowBuild) {
    const std::int64_t many = (std::int64_t{24} << 20) / width() + 3;
    const Bytes large = MakeData(DataKind::kFull, dtype(), many, 3);
    Bytes other = large;
    Flip(many - 7, false, &other);
    Check("large", large, other, Calls(), width(), 0);
    Check("large", large, MakeData(DataKind::kFull, dtype(), many, 9), Calls(), 0, 0);
  }
}

REDUCED_INSTANTIATE_ON_CUDA(EngineComparisons, DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI8,
                            DType::kU8, DType::kI16, DType::kU16, DType::kI32, DType::kU32, DType::kI64, DType::kU64,
                            DType::kBool);

}  // namespace
}  // namespace reduced::test

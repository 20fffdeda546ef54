// Reductions by keys from few groups to many, of anything, in any order: each output is that of a segment with the same
// elements, bit for bit.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "tests/contract/answers.h"
#include "tests/contract/engine_fixture.h"
#include "tests/contract/partitions.h"
#include "tests/contract/shapes.h"
#include "tests/support/data.h"

namespace reduced::test {
namespace {

struct Keyed {
  std::vector<std::int64_t> keys;
  std::int64_t groups = 0;
  bool drop = false;
  std::vector<std::uint8_t> mask{};  // none: all rows are there
  DType key_dtype = DType::kI32;
  std::optional<std::int64_t> skipped{};  // elements and keys before those in the engine's memory; none: host memory

  std::int64_t rows() const { return std::ssize(keys); }
};

class EngineKeyTables : public EngineTest<KindAndDType> {
 protected:
  DType dtype() const { return std::get<DType>(GetParam()); }

  ReduceSpec SpecOf(std::int64_t rows, std::vector<OpCall> ops) const {
    ReduceSpec spec = Spec(dtype(), rows);
    spec.ops = std::move(ops);
    spec.overflow_policy = OverflowPolicy::kWrap;
    spec.empty_policy = EmptyPolicy::kFill;
    spec.precision = Precision::kExact;
    return spec;
  }

  static Bytes KeysAs(DType dtype, const std::vector<std::int64_t>& keys) {
    return VisitDType(dtype, [&]<class T>(std::type_identity<T>) -> Bytes {
      if constexpr (std::is_integral_v<T>) {
        return BytesOf(std::vector<T>(keys.begin(), keys.end()));
      } else {
        return {};
      }
    });
  }

  // A copy in the engine's own memory, `skip` bytes behind its begin.
  ArrayRef Resident(const Bytes& bytes, std::int64_t skip) {
    absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = engine().Allocate(std::ssize(bytes) + skip);
    EXPECT_TRUE(memory.ok() && (*memory)->Write(skip, bytes.data(), std::ssize(bytes)).ok()) << memory.status();
    if (!memory.ok()) return {};
    resident_.push_back(*std::move(memory));
    ArrayRef array = resident_.back()->array();
    array.data = static_cast<const std::byte*>(array.data) + skip;
    return array;
  }

  Reply Ask(Engine& engine, const Keyed& keyed, const Bytes& array, const ReduceSpec& spec) {
    const Bytes keys = KeysAs(keyed.key_dtype, keyed.keys);
    Partition partition{.layout = LayoutOf(Shape{keyed.rows()}, {true}),
                        .rows = keyed.rows(),
                        .keys = Keys{SideOf(keyed.key_dtype, keys), keyed.groups, keyed.drop}};
    const Bytes mask = BytesOf(keyed.mask);
    if (!mask.empty()) partition.mask = Mask{SideOf(DType::kBool, mask)};
    Job job{.spec = spec, .array = {array.data()}};
    if (keyed.skipped.has_value()) {
      job.array = Resident(array, *keyed.skipped * RowOf(dtype()).bytes);
      partition.keys->keys.array = Resident(keys, *keyed.skipped * RowOf(keyed.key_dtype).bytes);
    }
    Reply reply = ReducePartition(engine, job, partition);
    resident_.clear();
    return reply;
  }

  // Compares with the rows in the order of their keys, as segments.
  void Check(const Keyed& keyed, const Bytes& array, const ReduceSpec& spec) {
    const Reply reply = Ask(engine(), keyed, array, spec);
    ASSERT_TRUE(reply.status.ok()) << reply.status;
    ASSERT_EQ(reply.outputs, keyed.groups);
    std::vector<std::int64_t> offsets(static_cast<std::size_t>(keyed.groups) + 1), order;
    for (std::int64_t row = 0; row < keyed.rows(); ++row) {
      const auto at = static_cast<std::size_t>(row);
      if (!keyed.mask.empty() && keyed.mask[at] == 0) continue;
      if (keyed.keys[at] < 0 || keyed.keys[at] >= keyed.groups) continue;
      order.push_back(row);
      ++offsets[static_cast<std::size_t>(keyed.keys[at]) + 1];
    }
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      return keyed.keys[static_cast<std::size_t>(a)] < keyed.keys[static_cast<std::size_t>(b)];
    });
    std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
    const auto width = static_cast<std::size_t>(RowOf(dtype()).bytes);
    Bytes sorted(order.size() * width);
    for (std::size_t i = 0; i < order.size(); ++i) {
      std::memcpy(sorted.data() + i * width, array.data() + static_cast<std::size_t>(order[i]) * width, width);
    }
    const Bytes bounds = BytesOf(offsets);
    ReduceSpec of_sorted = spec;
    of_sorted.count = std::ssize(order);
    const Partition segments{.layout = LayoutOf(Shape{of_sorted.count}, {true}),
                             .rows = of_sorted.count,
                             .segments = Segments{SideOf(DType::kI64, bounds)}};
    const Reply right = ReducePartition(engine(), {.spec = of_sorted, .array = {sorted.data()}}, segments);
    ASSERT_TRUE(right.status.ok()) << right.status;
    for (std::size_t i = 0; i < spec.ops.size(); ++i) {
      const OpCall& op = spec.ops[i];
      const auto bytes = static_cast<std::size_t>(AnswerElements(op) * RowOf(ResultDType(op, dtype())).bytes);
      std::byte* const expected = right.answers->data[i];
      const auto groups = static_cast<std::size_t>(keyed.groups);
      if (std::memcmp(expected, reply.answers->data[i], groups * bytes) == 0 && op != Op::kArgmin &&
          op != Op::kArgmax) {
        continue;
      }
      for (std::size_t group = 0; group < groups; ++group) {
        std::byte* const at = expected + group * bytes;
        if (op == Op::kArgmin || op == Op::kArgmax) {  // of the row
          std::uint64_t position;
          std::memcpy(&position, at, sizeof position);
          if (position != std::numeric_limits<std::uint64_t>::max()) {
            const auto row = static_cast<std::uint64_t>(order[static_cast<std::size_t>(offsets[group]) + position]);
            std::memcpy(at, &row, sizeof row);
          }
        }
        ASSERT_EQ(std::memcmp(at, reply.answers->data[i] + group * bytes, bytes), 0)
            << RowOf(op.op).name << " of group " << group << ", " << offsets[group + 1] - offsets[group] << " rows";
      }
    }
  }

  std::vector<std::int64_t> RandomKeys(std::int64_t rows, std::int64_t least, std::int64_t most) {
    std::vector<std::int64_t> keys;
    std::uniform_int_distribution<std::int64_t> among(least, most);
    for (std::int64_t i = 0; i < rows; ++i) keys.push_back(among(random_));
    return keys;
  }
  std::vector<std::uint8_t> RandomMask(std::int64_t rows) {
    std::vector<std::uint8_t> mask;
    for (std::int64_t i = 0; i < rows; ++i) mask.push_back(random_() % 4 == 0 ? 0 : 1);
    return mask;
  }

  std::mt19937_64 random_{11};
  std::vector<std::unique_ptr<ArrayMemory>> resident_;
};

const std::vector<OpCall> kOpSets[] = {{Op::kSum},
                                       {Op::kArgmax, Op::kMin},
                                       {Op::kMean, Op::kCount},
                                       {Op::kMax},
                                       {Op::kArgmin, Op::kNanCount, Op::kCount},
                                       {Op::kSum, Op::kArgmin, Op::kMax, Op::kCount, Op::kMean, Op::kNanCount},
                                       {Op::kNanCount, Op::kCount},
                                       {Op::kRange, Op::kSum},
                                       {Op::kSum, Op::kNanCount},
                                       {Op::kMin}};

// Data of every kind by keys of every size, under both policies.
TEST_P(EngineKeyTables, FromOneGroupToMany) {
  const DType key_dtypes[] = {DType::kI32, DType::kI64, DType::kU32, DType::kU64, DType::kI16, DType::kU16};
  const std::int64_t rows = kSlowBuild ? 3001 : 20'003;
  int turn = 0;
  for (const std::int64_t groups : {1, 16, 4096, 5000, 20'000, 300'000}) {
    for (const DataKindRow& row : kDataKinds) {
      if (!Applies(row, dtype()) || ++turn % (groups > 100'000 || kSlowBuild ? 5 : 2) != 0) continue;
      SCOPED_TRACE(std::string(row.name) + ", " + std::to_string(groups) + " groups, turn " + std::to_string(turn));
      const bool narrow = groups < std::numeric_limits<std::int16_t>::max();
      Keyed keyed{.keys = RandomKeys(rows, 0, groups - 1),
                  .groups = groups,
                  .key_dtype = key_dtypes[turn % (narrow ? std::size(key_dtypes) : 4)]};
      if (turn % 3 == 0) keyed.mask = RandomMask(rows);
      if (turn % 4 == 0) keyed.skipped = turn / 4 % 5;
      if (turn % 5 == 0) {
        keyed.drop = true;
        for (std::int64_t i = 0; i < rows; i += 7) keyed.keys[static_cast<std::size_t>(i)] = groups + i % 3;
      }
      ReduceSpec spec = SpecOf(rows, kOpSets[static_cast<std::size_t>(turn) / 2 % std::size(kOpSets)]);
      spec.nan_policy = turn / 3 % 2 == 0 ? NanPolicy::kPropagate : NanPolicy::kOmit;
      Check(keyed, MakeData(row.kind, dtype(), rows, static_cast<std::uint64_t>(turn)), spec);
      if (HasFailure()) return;
    }
  }
}

// More groups than the caches of a GPU have sums of: rows come in the order of parts of them.
TEST_P(EngineKeyTables, MoreGroupsThanCachesHold) {
  const DType of_all_sizes[] = {DType::kI8, DType::kI16, DType::kF32, DType::kF64};
  if (std::find(std::begin(of_all_sizes), std::end(of_all_sizes), dtype()) == std::end(of_all_sizes)) return;
  const bool few = kSlowBuild || engine().kind() == EngineKind::kCpu;
  const std::int64_t groups = few ? 300'000 : 4'200'000, rows = few ? 3001 : 50'003;
  const DataKind kind = RowOf(dtype()).is_float ? DataKind::kSomeNan : DataKind::kUniform;
  const Bytes array = MakeData(kind, dtype(), rows, 1);
  Keyed keyed{.keys = RandomKeys(rows, 0, groups - 1), .groups = groups};
  keyed.keys[1] = keyed.keys[7] = groups - 1;
  Check(keyed, array, SpecOf(rows, {Op::kSum, Op::kNanCount}));
  keyed.mask = RandomMask(rows);
  keyed.skipped = 1;
  Check(keyed, array, SpecOf(rows, {Op::kMax, Op::kVar}));
  keyed.drop = true;
  for (std::int64_t i = 0; i < rows; i += 7) keyed.keys[static_cast<std::size_t>(i)] = groups - 1 + i % 3;
  ReduceSpec spec = SpecOf(rows, {Op::kMin, Op::kSum});
  spec.nan_policy = NanPolicy::kOmit;
  Check(keyed, array, spec);
  keyed.drop = false;
  keyed.mask.clear();
  keyed.keys = RandomKeys(rows, 0, groups - 1);
  keyed.keys[40] = keyed.keys[9000 % keyed.keys.size()] = groups;
  const Reply reply = Ask(engine(), keyed, array, spec);
  EXPECT_EQ(reply.status, absl::OutOfRangeError("keys[40]: got " + std::to_string(groups) + "; allowed: 0 to " +
                                                std::to_string(groups - 1) + ", or outside: DROP"));
}

// Every set of ops by few and by many keys.
TEST_P(EngineKeyTables, EveryOp) {
  const std::int64_t rows = kSlowBuild ? 2000 : 12'000;
  for (const std::int64_t groups : {50, 30'000}) {
    for (const std::vector<OpCall>& ops : kOpSets) {
      for (const DataKind kind : {DataKind::kUniform, DataKind::kSmall, DataKind::kSomeNan, DataKind::kInfinities}) {
        const bool floats = kind == DataKind::kSomeNan || kind == DataKind::kInfinities;
        if (floats && !RowOf(dtype()).is_float) continue;
        const Keyed keyed{.keys = RandomKeys(rows, 0, groups - 1), .groups = groups, .key_dtype = DType::kU16};
        ReduceSpec spec = SpecOf(rows, ops);
        for (const NanPolicy policy : {NanPolicy::kPropagate, NanPolicy::kOmit}) {
          spec.nan_policy = policy;
          Check(keyed, MakeData(kind, dtype(), rows, 3), spec);
          if (HasFailure()) return;
        }
      }
    }
  }
}

// What is unusual in keys: sorted, all the same, the same for most rows, narrow ones.
TEST_P(EngineKeyTables, KeysOfEveryKind) {
  const std::int64_t rows = kSlowBuild ? 5000 : 70'001;
  const std::vector<OpCall> ops = {Op::kSum, Op::kArgmax, Op::kCount};
  const Bytes array = MakeData(DataKind::kUniform, dtype(), rows, 1);
  for (const std::int64_t groups : {100, 6000, 70'000}) {
    std::vector<std::vector<std::int64_t>> all(3, RandomKeys(rows, 0, groups - 1));
    std::sort(all[0].begin(), all[0].end());
    std::fill(all[1].begin(), all[1].end(), groups - 1);
    for (std::size_t i = 0; i < all[2].size(); ++i) {
      if (i % 4 != 0) all[2][i] = groups / 2;
    }
    for (const std::vector<std::int64_t>& keys : all) Check({keys, groups}, array, SpecOf(rows, ops));
  }
  for (const DType narrow : {DType::kI8, DType::kU8}) {
    const std::int64_t groups = narrow == DType::kI8 ? 128 : 256;
    Keyed keyed{.keys = RandomKeys(rows, 0, groups - 1), .groups = groups, .key_dtype = narrow};
    Check(keyed, array, SpecOf(rows, ops));
    keyed.groups = 77;
    keyed.drop = true;
    if (narrow == DType::kI8) keyed.keys[5] = keyed.keys[6] = -1;
    keyed.skipped = 3;
    Check(keyed, array, SpecOf(rows, ops));
  }
}

// Where nearly all elements have exponents close to each other, and some do not; and where all have any.
TEST_P(EngineKeyTables, ExponentsFarApart) {
  if (!RowOf(dtype()).is_float) return;
  const std::int64_t rows = kSlowBuild ? 4000 : 50'000;
  const int widest = dtype() == DType::kF16 ? 14 : dtype() == DType::kF64 ? 1000 : 120;
  for (const int every : {1, 2, 5000}) {
    Bytes array = MakeData(DataKind::kUniform, dtype(), rows, 2);
    for (std::int64_t i = 0; i < rows; i += every) {
      const int exponent = static_cast<int>(random_() % static_cast<unsigned>(2 * widest)) - widest;
      SetElement(dtype(), i, std::ldexp(i % 3 == 0 ? -1.25 : 1.75, exponent), &array);
    }
    for (const std::int64_t groups : {40, 9000}) {
      for (const std::vector<OpCall>& ops : {std::vector<OpCall>{Op::kSum}, {Op::kMean, Op::kMax}}) {
        Check({RandomKeys(rows, 0, groups - 1), groups}, array, SpecOf(rows, ops));
        if (HasFailure()) return;
      }
    }
    // The counts are in a table with the sums or in one with the extrema.
    for (std::int64_t i = 5; i < rows; i += 997) {
      SetElement(dtype(), i, std::numeric_limits<double>::quiet_NaN(), &array);
    }
    for (const NanPolicy policy : {NanPolicy::kPropagate, NanPolicy::kOmit}) {
      for (const std::vector<OpCall>& ops : {std::vector<OpCall>{Op::kMean, Op::kMin},
                                             {Op::kCount, Op::kMean, Op::kMin},
                                             {Op::kMin, Op::kNanCount, Op::kMean},
                                             {Op::kMean, Op::kNanCount, Op::kMin}}) {
        ReduceSpec spec = SpecOf(rows, ops);
        spec.nan_policy = policy;
        spec.empty_policy = EmptyPolicy::kError;
        Check({RandomKeys(rows, 0, 39), 40}, array, spec);
        if (HasFailure()) return;
      }
    }
  }
}

// Sums that overflow, and extrema of no elements, are errors about the first such output.
TEST_P(EngineKeyTables, ErrorsOfOutputs) {
  const std::int64_t rows = 6000;
  for (const std::int64_t groups : {20, 30'000}) {
    Keyed keyed{.keys = RandomKeys(rows, 0, groups - 1), .groups = groups};
    for (std::int64_t& key : keyed.keys) key = key == 13 ? 12 : key;
    std::iota(keyed.keys.begin(), keyed.keys.begin() + 13, 0);
    ReduceSpec spec = SpecOf(rows, {Op::kCount, Op::kMin});
    spec.empty_policy = EmptyPolicy::kError;
    const Bytes array = MakeData(DataKind::kUniform, dtype(), rows, 1);
    const Reply reply = Ask(engine(), keyed, array, spec);
    EXPECT_EQ(reply.status,
              absl::InvalidArgumentError("output [13]: op min: got an empty array; allowed: at least 1 element"));
    if (dtype() != DType::kI64) continue;
    std::vector<std::int64_t> large(static_cast<std::size_t>(rows), 1);
    for (std::size_t i = 0; i < large.size(); ++i) {
      if (keyed.keys[i] == 11) keyed.keys[i] = 10;
    }
    large[100] = large[200] = std::numeric_limits<std::int64_t>::max();
    keyed.keys[100] = keyed.keys[200] = 11;
    spec.ops = {Op::kSum};
    spec.overflow_policy = OverflowPolicy::kError;
    const Reply sum = Ask(engine(), keyed, BytesOf(large), spec);
    EXPECT_EQ(sum.status, absl::OutOfRangeError(
                              "output [11]: integer overflow: the sum of this i64 array is 18446744073709551614, which "
                              "i64 doesn't hold; overflow policies wrap and saturate give a result"));
  }
}

// The first of some keys outside, behind a masked one.
TEST_P(EngineKeyTables, KeysOutside) {
  const std::int64_t rows = 40'000;
  const Bytes array = MakeData(DataKind::kSmall, dtype(), rows, 1);
  for (const std::int64_t groups : {20, 30'000}) {
    Keyed keyed{.keys = RandomKeys(rows, 0, groups - 1), .groups = groups, .mask = {}};
    keyed.mask.assign(static_cast<std::size_t>(rows), 1);
    for (const std::size_t row : {7, 30'001, 30'002, 39'999}) keyed.keys[row] = groups;
    keyed.keys[30'001] = -2;
    keyed.mask[7] = 0;
    for (const std::vector<OpCall>& ops : {std::vector<OpCall>{Op::kSum}, {Op::kMin}}) {
      const Reply reply = Ask(engine(), keyed, array, SpecOf(rows, ops));
      EXPECT_EQ(reply.status, absl::OutOfRangeError("keys[30001]: got -2; allowed: 0 to " + std::to_string(groups - 1) +
                                                    ", or outside: DROP"));
    }
    keyed.drop = true;
    Check(keyed, array, SpecOf(rows, {Op::kSum, Op::kArgmin}));
  }
}

// Whoever shares keys in the memory of a device may change them at any time.
TEST_P(EngineKeyTables, TheFirstKeyOutsideWhereExponentsAreFarApart) {
  if (!RowOf(dtype()).is_float) return;
  const std::int64_t rows = kSlowBuild ? 30'000 : 700'000;
  const int widest = dtype() == DType::kF16 ? 14 : 100;
  Bytes array = MakeData(DataKind::kUniform, dtype(), rows, 2);
  for (std::int64_t i = 0; i < rows; ++i) {
    const int exponent = static_cast<int>(random_() % static_cast<unsigned>(2 * widest)) - widest;
    SetElement(dtype(), i, std::ldexp(1.75, exponent), &array);
  }
  Keyed keyed{.keys = RandomKeys(rows, 0, 99), .groups = 100};
  keyed.keys[20'001] = -7;
  keyed.keys[static_cast<std::size_t>(rows) - 9000] = 100;
  const Reply reply = Ask(engine(), keyed, array, SpecOf(rows, {Op::kSum}));
  EXPECT_EQ(reply.status, absl::OutOfRangeError("keys[20001]: got -7; allowed: 0 to 99, or outside: DROP"));
}

// Tables of different sizes at once, by several lanes.
TEST_P(EngineKeyTables, SideBySide) {
  static const std::int64_t kRows = kSlowBuild ? 2000 : 30'000;
  const Bytes array = MakeData(DataKind::kUniform, dtype(), kRows, 3);
  std::vector<std::thread> threads;
  std::vector<absl::Status> statuses(4);
  for (std::size_t thread = 0; thread < statuses.size(); ++thread) {
    const std::int64_t groups = thread % 2 == 0 ? 10 : 20'000;
    const Bytes keys = BytesOf(std::vector<std::int32_t>(static_cast<std::size_t>(kRows), 3));
    threads.emplace_back([this, thread, groups, keys, &array, &statuses] {
      for (int turn = 0; turn < 20 && statuses[thread].ok(); ++turn) {
        const Partition keyed{
            .layout = LayoutOf(Shape{kRows}, {true}), .rows = kRows, .keys = Keys{SideOf(DType::kI32, keys), groups}};
        statuses[thread] =
            ReducePartition(engine(), {.spec = SpecOf(kRows, {Op::kSum, Op::kMin}), .array = {array.data()}}, keyed)
                .status;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

TEST_P(EngineKeyTables, KeysThatChangeMeanwhile) {
  if (kind() == EngineKind::kCpu || (dtype() != DType::kF32 && dtype() != DType::kI64)) return;
  constexpr std::int64_t kRows = 50'000;
  const Bytes array = MakeData(DataKind::kUniform, dtype(), kRows, 1);
  const Bytes first = BytesOf(std::vector<std::int32_t>(kRows, 3));
  absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = engine().Allocate(std::ssize(first));
  ASSERT_TRUE(memory.ok() && (*memory)->Write(0, first.data(), std::ssize(first)).ok());
  std::atomic<bool> stop = false;
  std::thread changer([&] {
    for (int turn = 0; !stop; ++turn) {
      std::vector<std::int32_t> keys(kRows);
      std::mt19937 random(static_cast<unsigned>(turn));
      for (std::int32_t& key : keys) key = static_cast<std::int32_t>(turn % 2 == 0 ? random() : random() % 50'000);
      EXPECT_TRUE((*memory)->Write(0, keys.data(), std::ssize(first)).ok());
    }
  });
  for (int turn = 0; turn < 20; ++turn) {
    const std::int64_t groups = turn % 2 == 0 ? 900 : 45'000;
    Partition keyed{.layout = LayoutOf(Shape{kRows}, {true}),
                    .rows = kRows,
                    .keys = Keys{{DType::kI32, kRows, (*memory)->array()}, groups, turn % 4 < 2}};
    const Reply reply = ReducePartition(
        engine(), {.spec = SpecOf(kRows, {Op::kSum, Op::kCount, Op::kArgmax}), .array = {array.data()}}, keyed);
    EXPECT_TRUE(reply.status.ok() || absl::IsOutOfRange(reply.status)) << reply.status;
  }
  stop = true;
  changer.join();
}

// Quantiles of so many elements that a GPU does not sort them.
class EngineKeyQuantiles : public EngineKeyTables {
 protected:
  static constexpr std::int64_t kRows = (std::int64_t{1} << 22) + 3;

  // Whether this engine and dtype do something of their own.
  bool IsTried() const {
    const DType tried[] = {DType::kF32, DType::kF64, DType::kI32, DType::kU64, DType::kBF16, DType::kI8};
    const auto* const end = kSlowBuild ? tried + 1 : std::end(tried);
    return engine().kind() == EngineKind::kCuda && std::find(tried, end, dtype()) != end;
  }
  ReduceSpec Quantiles(std::vector<OpCall> ops, NanPolicy policy) const {
    ReduceSpec spec = SpecOf(kRows, std::move(ops));
    spec.nan_policy = policy;
    return spec;
  }
};

const OpCall kQuartiles = {Op::kQuantile, {.quantiles = {0.75, 0.25, 0.5}}};

TEST_P(EngineKeyQuantiles, OfManyElements) {
  if (!IsTried()) GTEST_SKIP() << "as others";
  int turn = 0;
  for (const DataKindRow& row : kDataKinds) {
    if (!Applies(row, dtype()) || (kSlowBuild && turn++ % 4 != 0)) continue;
    SCOPED_TRACE(row.name);
    const std::int64_t groups = turn % 2 == 0 ? 61 : 3;
    Keyed keyed{.keys = RandomKeys(kRows, 0, groups - 1), .groups = groups};
    const std::vector<OpCall> ops[] = {
        {Op::kMedian},
        {kQuartiles, {Op::kQuantile, {.quantiles = {0, 0.5}, .method = QuantileMethod::kNearest}}},
        {{Op::kQuantile, {.quantiles = {1, 0.999}, .method = QuantileMethod::kLower}}}};
    Check(keyed, MakeData(row.kind, dtype(), kRows, static_cast<std::uint64_t>(turn)),
          Quantiles(ops[turn % 3], turn % 2 == 0 ? NanPolicy::kOmit : NanPolicy::kPropagate));
    if (HasFailure()) return;
    ++turn;
  }
}

// Rows that are masked, or whose keys are outside, groups without any and with few, keys of other widths.
TEST_P(EngineKeyQuantiles, OfSomeRows) {
  if (!IsTried()) GTEST_SKIP() << "as others";
  const Bytes array = MakeData(DataKind::kUniform, dtype(), kRows, 5);
  Keyed keyed{.keys = RandomKeys(kRows, -1, 20), .groups = 20, .drop = true, .key_dtype = DType::kI16, .skipped = 3};
  keyed.mask = RandomMask(kRows);
  for (std::int64_t& key : keyed.keys) {
    if (key == 7) key = 8;
    if (key == 11 && random_() % 100'000 != 0) key = 12;
  }
  Check(keyed, array, Quantiles({Op::kMedian}, NanPolicy::kOmit));
  keyed.key_dtype = DType::kI64;
  keyed.mask.clear();
  Check(keyed, array, Quantiles({kQuartiles}, NanPolicy::kPropagate));
}

// What the rows of the sample have, and no other, brackets nothing; half of the elements within one is too many.
TEST_P(EngineKeyQuantiles, SamplesThatMislead) {
  if (!IsTried() || dtype() != DType::kF32) GTEST_SKIP() << "as others";
  std::vector<float> elements;
  for (std::uint32_t row = 0; row < kRows; ++row) {
    const bool sampled = row / 4 % 64 == row / 256 * 2654435761U % 64;
    elements.push_back(sampled ? 1e9F : static_cast<float>(random_() % 1000));
  }
  const Keyed keyed{.keys = RandomKeys(kRows, 0, 4), .groups = 5};
  Check(keyed, BytesOf(elements), Quantiles({Op::kMedian}, NanPolicy::kPropagate));
  for (std::uint32_t row = 0; row < kRows; ++row) {
    const bool sampled = row / 4 % 64 == row / 256 * 2654435761U % 64;
    elements[row] = sampled ? static_cast<float>(random_() % 3) : 1 + static_cast<float>(random_() % 1000) / 1001;
  }
  Check(keyed, BytesOf(elements), Quantiles({Op::kMedian}, NanPolicy::kPropagate));
}

// Keys that are found answer as those that are given; the first key that is outside is named.
TEST_P(EngineKeyQuantiles, KeysThatAreFoundOrOutside) {
  if (!IsTried() || dtype() != DType::kF32) GTEST_SKIP() << "as others";
  const Bytes array = MakeData(DataKind::kUniform, dtype(), kRows, 6);
  Keyed keyed{.keys = RandomKeys(kRows, 0, 29), .groups = 30, .skipped = 0};
  const ReduceSpec spec = Quantiles({Op::kMedian}, NanPolicy::kPropagate);
  const Reply given = Ask(engine(), keyed, array, spec);
  ASSERT_TRUE(given.status.ok()) << given.status;
  Keyed found = keyed;
  found.groups = 0;
  const Reply reply = Ask(engine(), found, array, spec);
  ASSERT_TRUE(reply.status.ok()) << reply.status;
  ASSERT_EQ(reply.outputs, 30);
  EXPECT_EQ(std::memcmp(given.answers->data[0], reply.answers->data[0], 30 * sizeof(double)), 0);
  keyed.keys[4'000'000] = 30;
  keyed.keys[4'100'000] = -1;
  const Reply bad = Ask(engine(), keyed, array, spec);
  EXPECT_TRUE(absl::IsOutOfRange(bad.status)) << bad.status;
  EXPECT_NE(bad.status.message().find("4000000"), absl::string_view::npos) << bad.status;
}

REDUCED_INSTANTIATE_BY_KIND_AND_DTYPE(EngineKeyQuantiles);
REDUCED_INSTANTIATE_BY_KIND_AND_DTYPE(EngineKeyTables);

}  // namespace
}  // namespace reduced::test

// States of arrays of results: each output's is that of its elements alone, and those of parts of an array merge into
// those of the whole.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "kernels/algebra/finalize.h"
#include "tests/contract/answers.h"
#include "tests/contract/engine_fixture.h"
#include "tests/contract/shapes.h"
#include "tests/support/data.h"

namespace reduced::test {
namespace {

using States = std::vector<State>;

// Reduces along axes, for the answers, the states, or both.
void ReduceSlices(Engine& by, const ReduceSpec& spec, const Shape& shape, const std::vector<int>& axes,
                  const ArrayRef& array, Answers* answers, States* states) {
  const Answers none({}, 0);
  Job job{.spec = spec,
          .array = array,
          .partition = Partition{.layout = LayoutAlong(shape, axes)},
          .place = (answers == nullptr ? none : *answers).Place(),
          .states = states};
  job.spec.count = CountOf(shape);
  const absl::Status status = ReduceAndWait(by, std::move(job)).status();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(answers == nullptr || answers->GuardsStand());
}

class EngineStates : public EngineTest<KindAndDType> {
 protected:
  DType dtype() const { return std::get<DType>(GetParam()); }

  // Of every op whose answer does not depend on the order of the elements.
  ReduceSpec ExactSpec(std::int64_t count) const {
    ReduceSpec spec = Spec(dtype(), count);
    std::erase_if(spec.ops, [this](Op op) { return RowOf(dtype()).is_float && op == Op::kProd; });
    spec.precision = Precision::kExact;
    spec.overflow_policy = OverflowPolicy::kWrap;
    spec.empty_policy = EmptyPolicy::kFill;
    return spec;
  }

  // That the answers to `one` from each state are those.
  static void ExpectAnswers(const ReduceSpec& one, const States& states, const Answers& answers) {
    const Answers from_states(one, std::ssize(states));
    for (std::size_t output = 0; output < states.size(); ++output) {
      ReduceSpec of = one;
      of.count = states[output].partial.count;
      const absl::StatusOr<std::vector<Value>> values = Finalize(of, states[output]);
      ASSERT_TRUE(values.ok()) << values.status();
      for (std::size_t op = 0; op < values->size(); ++op) {
        StoreAnswer((*values)[op], from_states.data[op], static_cast<std::int64_t>(output));
      }
    }
    for (std::size_t i = 0; i < one.ops.size(); ++i) {
      EXPECT_TRUE(from_states.memory[i] == answers.memory[i]) << RowOf(one.ops[i]).name;
    }
  }

  // The states of the array as a whole, and those of parts cut along dimension 0, which is reduced, against the answers
  // without states.
  void Check(Engine& by, const Shape& shape, const std::vector<int>& axes, const std::vector<std::int64_t>& cuts) {
    SCOPED_TRACE(::testing::Message() << ::testing::PrintToString(shape) << " along "
                                      << ::testing::PrintToString(axes));
    const std::int64_t width = RowOf(dtype()).bytes;
    const Bytes array = MakeData(DataKind::kUniform, dtype(), CountOf(shape), 5);
    const ReduceSpec spec = ExactSpec(CountOf(shape));
    const Layout layout = LayoutAlong(shape, axes);
    Answers expected(spec, layout.outputs);
    ReduceSlices(by, spec, shape, axes, {array.data()}, &expected, nullptr);

    Answers answers(spec, layout.outputs);
    States states;
    ReduceSlices(by, spec, shape, axes, {array.data()}, &answers, &states);
    ASSERT_EQ(std::ssize(states), layout.outputs);
    EXPECT_EQ(answers.memory, expected.memory);
    ExpectAnswers(spec, states, expected);

    States merged(static_cast<std::size_t>(layout.outputs));
    std::int64_t begin = 0;
    for (const std::int64_t end : cuts) {
      Shape part = shape;
      part[0] = end - begin;
      const std::byte* const from = array.data() + begin * (CountOf(shape) / shape[0]) * width;
      ReduceSlices(by, spec, part, axes, {from}, nullptr, &states);
      ASSERT_EQ(states.size(), merged.size());
      for (std::size_t i = 0; i < states.size(); ++i) {
        Shift(merged[i].partial.count, &states[i]);
        Combine(states[i], &merged[i]);
      }
      begin = end;
    }
    ExpectAnswers(spec, merged, expected);
  }

  // The states of groups, against the answers beside them and, in exact precision, those without states.
  void Check(const Partition& partition, const Bytes& array, Precision precision = Precision::kExact) {
    ReduceSpec spec = ExactSpec(std::ssize(array) / RowOf(dtype()).bytes);
    spec.precision = precision;
    Check(partition, array, spec);
    for (const std::vector<OpCall>& ops : {std::vector<OpCall>{Op::kSum, Op::kMean}, {Op::kMin}}) {
      spec.ops = ops;
      Check(partition, array, spec);
    }
  }
  void Check(const Partition& partition, const Bytes& array, const ReduceSpec& spec) {
    const auto reduce = [&](const ReduceSpec& of, States* states) {
      auto answers = std::make_unique<Answers>(of, 0);
      Job job{.spec = of, .array = {array.data()}, .partition = partition, .states = states};
      job.place = [&](std::int64_t outputs, std::int64_t, const std::byte*) -> absl::StatusOr<std::vector<std::byte*>> {
        *answers = Answers(of, outputs);
        return answers->data;
      };
      const absl::Status status = ReduceAndWait(engine(), std::move(job)).status();
      EXPECT_TRUE(status.ok()) << status;
      return answers;
    };
    States states;
    const std::unique_ptr<Answers> without = reduce(spec, nullptr);
    const std::unique_ptr<Answers> with = reduce(spec, &states);
    if (spec.precision == Precision::kExact) {
      EXPECT_EQ(with->memory, without->memory);
    } else {
      for (const State& state : states) EXPECT_EQ(state.exact, nullptr);
    }
    ExpectAnswers(spec, states, *with);
    if (spec.ops != std::vector<OpCall>{Op::kMin}) return;
    ReduceSpec where = spec;  // which the state of an extremum tells, too
    where.ops = {Op::kArgmin};
    ExpectAnswers(where, states, *reduce(where, nullptr));
  }
};

TEST_P(EngineStates, AlongAxes) {
  Check(engine(), {12, 9, 5}, {0}, {4, 5, 12});
  Check(engine(), {12, 9, 5}, {0, 2}, {3, 11, 12});
  Check(engine(), {12, 9, 5}, {0, 1, 2}, {1, 2, 12});
  Check(engine(), {3000, 3}, {0}, {1, 2000, 3000});
  Check(engine(), {20, 700}, {0}, {0, 7, 20});  // a part without elements
}

// Long contiguous outputs of host memory, which a GPU reduces one after the other.
TEST_P(EngineStates, OfLongOutputs) {
  const std::int64_t count = (std::int64_t{4} << 20) / RowOf(dtype()).bytes + 3;
  const Shape shape = {2, count};
  const Bytes array = MakeData(DataKind::kUniform, dtype(), 2 * count, 6);
  ReduceSpec spec = ExactSpec(2 * count);
  Answers expected(spec, 2);
  ReduceSlices(engine(), spec, shape, {1}, {array.data()}, &expected, nullptr);
  Answers answers(spec, 2);
  States states;
  ReduceSlices(engine(), spec, shape, {1}, {array.data()}, &answers, &states);
  EXPECT_EQ(answers.memory, expected.memory);
  ExpectAnswers(spec, states, expected);
  ReduceSlices(engine(), spec, shape, {1}, {array.data()}, nullptr, &states);
  ExpectAnswers(spec, states, expected);
}

// A GPU that has no room for the array takes it in pieces, whose states are those of their outputs.
TEST_P(EngineStates, OfPieces) {
  EngineOptions options = Options();
  options.cuda_array_bytes = 16 << 10;
  const Started own = StartOwn(options);
  ASSERT_NE(own.engine, nullptr);
  const Shape shape = {300, 40, 7};
  const Bytes array = MakeData(DataKind::kUniform, dtype(), CountOf(shape), 7);
  const ReduceSpec spec = ExactSpec(CountOf(shape));
  Answers expected(spec, 300 * 7);
  ReduceSlices(engine(), spec, shape, {1}, {array.data()}, &expected, nullptr);
  Answers answers(spec, 300 * 7);
  States states;
  ReduceSlices(*own.engine, spec, shape, {1}, {array.data()}, &answers, &states);
  EXPECT_EQ(answers.memory, expected.memory);
  ExpectAnswers(spec, states, expected);
}

TEST_P(EngineStates, InF64) {
  const Shape shape = {400, 30};
  const Bytes array = MakeData(DataKind::kUniform, dtype(), CountOf(shape), 8);
  ReduceSpec spec = ExactSpec(CountOf(shape));
  spec.precision = Precision::kF64;
  for (const int axis : {0, 1}) {
    Answers answers(spec, shape[static_cast<std::size_t>(1 - axis)]);
    States states;
    ReduceSlices(engine(), spec, shape, {axis}, {array.data()}, &answers, &states);
    for (const State& state : states) EXPECT_EQ(state.exact, nullptr);
    ExpectAnswers(spec, states, answers);
  }
}

TEST_P(EngineStates, OfGroups) {
  constexpr std::int64_t kRows = 3000;
  constexpr std::int64_t kColumns = 3;
  const Bytes array = MakeData(DataKind::kUniform, dtype(), kRows * kColumns, 9);
  std::vector<std::int32_t> keys;
  std::vector<std::uint8_t> mask;
  for (std::int64_t i = 0; i < kRows; ++i) keys.push_back(static_cast<std::int32_t>(i * i % 101));
  for (std::int64_t i = 0; i < kRows * kColumns; ++i) mask.push_back(i % 5 != 0 && i < 2 * kRows ? 1 : 0);
  const Keys by{.keys = {.dtype = DType::kI32, .count = kRows, .array = {keys.data()}}};
  Keys given = by;
  given.groups = 105;  // some without elements
  const Mask where{.array = {.dtype = DType::kBool, .count = kRows * kColumns, .array = {mask.data()}}};

  const Partition rows{.layout = LayoutAlong({kRows, kColumns}, {0}), .rows = kRows};
  Partition partition = rows;
  partition.keys = by;
  Check(partition, array);
  partition.keys = given;
  Check(partition, array);
  partition.mask = where;
  Check(partition, array);
  Check(partition, array, Precision::kF64);
  partition = rows;
  partition.mask = where;
  Check(partition, array);
  Partition flat{.layout = LayoutAlong({kRows}, {0}), .rows = kRows, .keys = given};
  const Bytes rows_only(array.begin(), array.begin() + kRows * RowOf(dtype()).bytes);
  Check(flat, rows_only);
  Check(flat, rows_only, Precision::kF64);
}

// An overflow is an error of the answers, not of the states: parts without answers may merge into what has one.
class EngineStatesOfSums : public EngineTest<EngineKind> {};

TEST_P(EngineStatesOfSums, WithoutAnswersDoNotOverflow) {
  const std::vector<std::int64_t> elements = {INT64_MAX, 1, INT64_MAX, 2};
  ReduceSpec spec = Spec(DType::kI64, 4);
  spec.ops = {Op::kSum};
  States states;
  ReduceSlices(engine(), spec, {2, 2}, {0}, {elements.data()}, nullptr, &states);
  ASSERT_EQ(states.size(), 2U);
  spec.count = 2;
  EXPECT_EQ(Finalize(spec, states[0]).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(std::get<std::int64_t>(Finalize(spec, states[1]).value()[0].value), 3);
}

REDUCED_INSTANTIATE_BY_KIND_AND_DTYPE(EngineStates);
REDUCED_INSTANTIATE_BY_KIND(EngineStatesOfSums);

}  // namespace
}  // namespace reduced::test

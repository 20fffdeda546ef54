// Reductions of segments, of keys and of what a mask leaves: every output is what a reduction of its elements alone
// answers, bit for bit, and where they are.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "kernels/algebra/finalize.h"
#include "tests/contract/answers.h"
#include "tests/contract/engine_fixture.h"
#include "tests/contract/partitions.h"
#include "tests/contract/shapes.h"
#include "tests/support/data.h"

namespace reduced::test {
namespace {

// How an array falls apart, and what its outputs are by the definition: indexes of elements, one by one, with what
// answers call each.
struct Question {
  Shape shape;
  std::vector<int> axes{};  // without segments and keys
  std::optional<std::vector<std::int64_t>> offsets{};
  std::optional<std::vector<std::int64_t>> keys{};
  std::int64_t groups = 0;  // of keys; 0: those that there are
  bool drop = false;
  std::optional<std::vector<bool>> mask{};

  std::int64_t count() const { return CountOf(shape); }
  bool grouped() const { return offsets.has_value() || keys.has_value(); }
  Layout layout() const { return LayoutAlong(shape, grouped() ? std::vector<int>{0} : axes); }
};

struct Element {
  std::int64_t index;  // in the array
  std::int64_t name;   // that answers give it
};
using Outputs = std::vector<std::vector<Element>>;

bool Kept(const Question& question, std::int64_t index) {
  return !question.mask.has_value() || (*question.mask)[static_cast<std::size_t>(index)];
}

Outputs OutputsOf(const Question& question, std::vector<std::int64_t>* found) {
  Outputs outputs;
  const Layout layout = question.layout();
  if (!question.grouped()) {
    for (std::int64_t o = 0; o < layout.outputs; ++o) {
      outputs.emplace_back();
      for (std::int64_t i = 0; i < layout.elements; ++i) {
        const std::int64_t index = layout.Start(o) + layout.At(i);
        if (Kept(question, index)) outputs.back().push_back({index, i});
      }
    }
    return outputs;
  }
  const std::int64_t rows = question.shape[0], columns = layout.outputs;
  const auto add = [&](std::int64_t row, std::int64_t name, std::size_t group) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::int64_t index = row * columns + c;
      if (Kept(question, index)) outputs[group * static_cast<std::size_t>(columns) + c].push_back({index, name});
    }
  };
  if (question.offsets.has_value()) {
    const std::vector<std::int64_t>& offsets = *question.offsets;
    outputs.resize((offsets.size() - 1) * static_cast<std::size_t>(columns));
    for (std::size_t g = 0; g + 1 < offsets.size(); ++g) {
      for (std::int64_t row = offsets[g]; row < offsets[g + 1]; ++row) add(row, row - offsets[g], g);
    }
    return outputs;
  }
  std::map<std::int64_t, std::size_t> places;
  if (question.groups > 0) {
    for (std::int64_t key = 0; key < question.groups; ++key) places[key] = static_cast<std::size_t>(key);
  } else {
    for (std::int64_t row = 0; row < rows; ++row) {
      bool kept = columns == 0;
      for (std::int64_t c = 0; c < columns; ++c) kept = kept || Kept(question, row * columns + c);
      if (kept) places[(*question.keys)[static_cast<std::size_t>(row)]] = 0;
    }
    for (std::size_t place = 0; auto& [key, number] : places) {
      found->push_back(key);
      number = place++;
    }
  }
  outputs.resize(places.size() * static_cast<std::size_t>(columns));
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto place = places.find((*question.keys)[static_cast<std::size_t>(row)]);
    if (place != places.end()) add(row, row, place->second);
  }
  return outputs;
}

class EngineGroups : public EngineTest<KindAndDType> {
 protected:
  DType dtype() const { return std::get<DType>(GetParam()); }

  ReduceSpec SpecFor(const Question& question) const {
    ReduceSpec spec = Spec(dtype(), question.count());
    spec.overflow_policy = OverflowPolicy::kWrap;
    spec.empty_policy = EmptyPolicy::kFill;
    spec.precision = Precision::kExact;
    return spec;
  }

  // The forms that bounds, keys and masks may have, in turn.
  struct Forms {
    DType bounds = DType::kI64;
    bool lengths = false;
    DType keys = DType::kI32;
    std::optional<int> first_bit{};  // none: bytes
    bool resident = false;           // all arrays are in the engine's own memory
  };

  // A copy in the engine's own memory, `skip` bytes behind its begin.
  ArrayRef Resident(const Bytes& bytes, std::int64_t skip) {
    absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = engine().Allocate(std::ssize(bytes) + skip);
    EXPECT_TRUE(memory.ok() && (*memory)->Write(skip, bytes.data(), std::ssize(bytes)).ok()) << memory.status();
    if (!memory.ok()) return {};
    resident_.push_back(*std::move(memory));
    ArrayRef array = resident_.back()->array();
    if (array.data != nullptr) array.data = static_cast<const std::byte*>(array.data) + skip;
    return array;
  }

  // Compares each output with a reduction of a copy of its elements.
  void Check(const Question& question, const Bytes& array, const ReduceSpec& spec, const Forms& forms) {
    Partition partition{.layout = question.layout(), .rows = question.shape.empty() ? 1 : question.shape[0]};
    Bytes bounds, keys, mask;
    if (question.offsets.has_value()) {
      std::vector<std::int64_t> values = *question.offsets;
      if (forms.lengths) {
        for (std::size_t i = 0; i + 1 < values.size(); ++i) values[i] = values[i + 1] - values[i];
        values.pop_back();
      }
      bounds = forms.bounds == DType::kI64 ? BytesOf(values)
                                           : BytesOf(std::vector<std::int32_t>(values.begin(), values.end()));
      partition.segments = {SideOf(forms.bounds, bounds), forms.lengths};
    }
    if (question.keys.has_value()) {
      keys = VisitDType(forms.keys, [&]<class T>(std::type_identity<T>) -> Bytes {
        if constexpr (std::is_integral_v<T>) {
          return BytesOf(std::vector<T>(question.keys->begin(), question.keys->end()));
        } else {
          return {};
        }
      });
      partition.keys = {SideOf(forms.keys, keys), question.groups, question.drop};
    }
    if (question.mask.has_value()) {
      const std::vector<bool>& kept = *question.mask;
      if (forms.first_bit.has_value()) {
        mask.resize((static_cast<std::size_t>(*forms.first_bit) + kept.size() + 7) / 8, std::byte{0});
        for (std::size_t i = 0; i < kept.size(); ++i) {
          const std::size_t bit = static_cast<std::size_t>(*forms.first_bit) + i;
          if (kept[i]) mask[bit / 8] |= std::byte{1} << (bit % 8);
        }
        partition.mask = {SideOf(DType::kU8, mask), true, *forms.first_bit};
      } else {
        for (std::size_t i = 0; i < kept.size(); ++i) mask.push_back(kept[i] ? std::byte(1 + i % 255) : std::byte{0});
        partition.mask = {SideOf(DType::kBool, mask), false, 0};
      }
    }
    Job job{.spec = spec, .array = {array.data()}};
    if (forms.resident) {
      job.array = Resident(array, width_skipped_);
      if (partition.segments.has_value()) partition.segments->bounds.array = Resident(bounds, 3);
      if (partition.keys.has_value()) partition.keys->keys.array = Resident(keys, 1);
      if (partition.mask.has_value()) partition.mask->array.array = Resident(mask, 5);
    }
    const Reply reply = ReducePartition(engine(), job, partition);
    resident_.clear();
    ASSERT_TRUE(reply.status.ok()) << reply.status.ToString();
    std::vector<std::int64_t> found;
    const Outputs outputs = OutputsOf(question, &found);
    ASSERT_EQ(reply.keys, found);
    ASSERT_EQ(reply.outputs, std::ssize(outputs));
    const std::int64_t width = RowOf(dtype()).bytes;
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      ReduceSpec one = spec;
      one.precision = Precision::kExact;  // in either precision
      one.count = std::ssize(outputs[o]);
      Bytes elements(static_cast<std::size_t>(one.count * width));
      for (std::int64_t i = 0; i < one.count; ++i) {
        std::memcpy(elements.data() + i * width, array.data() + outputs[o][i].index * width, width);
      }
      // An array without elements has no extremum by itself, whatever the policy.
      State state;
      if (one.count > 0) {
        absl::StatusOr<Answer> alone =
            ReduceAndWait(engine_for(one.count), {.spec = one, .array = {elements.data(), MemorySpace::kHost}});
        ASSERT_TRUE(alone.ok()) << alone.status().ToString();
        state = std::move(alone->state);
      } else if (ExactAccumulatorsFor(one) != 0) {
        state.exact = std::make_unique<ExactSums>();
      }
      ExtremaState& extrema = state.partial.extrema;
      for (std::int64_t* const index : {&extrema.min_index, &extrema.max_index, &extrema.nan_index}) {
        if (*index != kNoIndex) *index = outputs[o][static_cast<std::size_t>(*index)].name;
      }
      const absl::StatusOr<std::vector<Value>> values = Finalize(one, state);
      ASSERT_TRUE(values.ok()) << values.status().ToString();
      for (std::size_t i = 0; i < values->size(); ++i) {
        const Value& value = (*values)[i];
        const std::byte* const got = reply.answers->data[i] + static_cast<std::int64_t>(o) * RowOf(value.dtype).bytes;
        ASSERT_TRUE(IsAnswer(kind(), one, spec.ops[i], value, got, elements))
            << "output " << o << ", " << one.count << " elements";
      }
    }
  }

  std::mt19937_64 random_{7};
  std::int64_t width_skipped_ = 0;  // bytes before a resident array
  std::vector<std::unique_ptr<ArrayMemory>> resident_;

  std::int64_t Random(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }
  std::vector<bool> RandomMask(std::int64_t count, int percent) {
    std::vector<bool> mask;
    for (std::int64_t i = 0; i < count; ++i) mask.push_back(Random(0, 99) < percent);
    return mask;
  }
  // Of `groups` segments: some without elements, some long, and something left out before and behind.
  std::vector<std::int64_t> RandomOffsets(std::int64_t rows, int groups) {
    std::vector<std::int64_t> offsets;
    for (int i = 0; i <= groups; ++i) offsets.push_back(Random(0, rows));
    if (groups > 2) offsets[1] = offsets[2];
    std::sort(offsets.begin(), offsets.end());
    return offsets;
  }
  std::vector<std::int64_t> RandomKeys(std::int64_t rows, std::int64_t least, std::int64_t most) {
    std::vector<std::int64_t> keys;
    for (std::int64_t i = 0; i < rows; ++i) keys.push_back(Random(least, most));
    return keys;
  }

  std::vector<Question> Questions() {
    std::vector<Question> questions;
    for (const Shape& shape : {Shape{1}, {40}, {700}, {5000}, {9, 3}, {300, 5}, {21, 2, 4}, {0}, {0, 2}, {3, 0}}) {
      const std::int64_t rows = shape[0];
      Question base{.shape = shape};
      const std::int64_t count = base.count();
      for (const int percent : {0, 50, 97, 100, -1}) {
        Question question = base;
        if (percent >= 0) question.mask = RandomMask(count, percent);
        if (percent >= 0) {
          questions.push_back(question);
          questions.back().axes = {0};
          if (shape.size() > 1) {
            questions.push_back(question);
            questions.back().axes = {1};
            questions.push_back(question);
            questions.back().axes = {};
          }
        }
        questions.push_back(question);
        questions.back().offsets = RandomOffsets(rows, 6);
        questions.push_back(question);
        questions.back().offsets = RandomOffsets(rows, static_cast<int>(rows / 4));
        questions.push_back(question);
        questions.back().keys = RandomKeys(rows, 0, 6);
        questions.back().groups = 9;
        questions.push_back(question);
        questions.back().keys = RandomKeys(rows, -3, 100);
        questions.back().groups = 70;
        questions.back().drop = true;
        questions.push_back(question);
        questions.back().keys = RandomKeys(rows, -5, 20);
      }
    }
    return questions;
  }
};

TEST_P(EngineGroups, AnswerAsAReductionOfEach) {
  const DType key_types[] = {DType::kI8, DType::kI16, DType::kI32, DType::kI64};
  int turn = 0;
  for (const Question& question : Questions()) {
    for (const DataKindRow& row : kDataKinds) {
      if (!Applies(row, dtype())) continue;
      // Every kind with one in so many questions, in turn: each takes all ops.
      if (++turn % (kSlowBuild ? 29 : 7) != 0) continue;
      SCOPED_TRACE(std::string(row.name) + ", turn " + std::to_string(turn));
      const Bytes array = MakeData(row.kind, dtype(), question.count(), static_cast<std::uint64_t>(turn));
      Forms forms{.bounds = turn % 2 == 0 ? DType::kI64 : DType::kI32, .keys = key_types[turn / 2 % 4]};
      forms.lengths = turn % 3 == 0 && question.offsets.has_value() && question.offsets->front() == 0 &&
                      question.offsets->back() == question.shape[0];
      if (turn % 2 == 0) forms.first_bit = turn % 13;
      ReduceSpec spec = SpecFor(question);
      spec.nan_policy = turn / 7 % 2 == 0 ? NanPolicy::kPropagate : NanPolicy::kOmit;
      Check(question, array, spec, forms);
      if (HasFailure()) return;
    }
  }
}

// Requests for nothing but ops that have folds on a GPU, of one kind or several, or too many of one.
TEST_P(EngineGroups, OpsWithFolds) {
  const std::vector<OpCall> sets[] = {
      {Op::kSum, Op::kMean},
      {Op::kArgmax, Op::kMin},
      {Op::kSum},
      {Op::kSum, Op::kCount, Op::kArgmin, Op::kMax, Op::kMean},
      {Op::kCount},
      {Op::kArgmin},
      {Op::kMin, Op::kCount},
      {Op::kVar, Op::kSum},
      {Op::kStd, Op::kMean, Op::kArgmax, Op::kCount},
      {Op::kL2},
      {Op::kL1, Op::kRange, Op::kSumSquares},
      {Op::kSumSquares, Op::kRange, Op::kAny},
      {Op::kAll, Op::kCountNonzero, Op::kVar, Op::kMean, Op::kL2, Op::kMax},
      {Op::kVar, Op::kSum, Op::kVar},
      {Op::kProd},
      {Op::kL1, Op::kSum},
      {Op::kProd, Op::kCount, Op::kL1},
      {Op::kMax, Op::kMin, Op::kMax, Op::kRange, Op::kArgmax, Op::kMin, Op::kMax, Op::kArgmin, Op::kMax},
      {Op::kNanCount, Op::kMin, Op::kMax, Op::kMean, Op::kStd, Op::kArgmin, Op::kArgmax}};
  int turn = 0;
  for (Question& question : Questions()) {
    for (const DataKindRow& row : kDataKinds) {
      if (!Applies(row, dtype()) || ++turn % (kSlowBuild ? 17 : 3) != 0) continue;
      SCOPED_TRACE(std::string(row.name) + ", turn " + std::to_string(turn));
      const Bytes array = MakeData(row.kind, dtype(), question.count(), static_cast<std::uint64_t>(turn));
      ReduceSpec spec = SpecFor(question);
      spec.ops = sets[static_cast<std::size_t>(turn / 3) % std::size(sets)];
      spec.nan_policy = turn / 5 % 2 == 0 ? NanPolicy::kPropagate : NanPolicy::kOmit;
      spec.ddof = turn / 7 % 4;
      Forms forms;
      if (turn % 2 == 0) forms.first_bit = 3;
      Check(question, array, spec, forms);
      if (HasFailure()) return;
    }
  }
}

TEST_P(EngineGroups, BitsByThemselves) {
  if (RowOf(dtype()).is_float) return;
  const std::vector<OpCall> sets[] = {{Op::kBitXor, Op::kBitAnd, Op::kBitOr}, {Op::kBitAnd}, {Op::kBitOr, Op::kSum}};
  int turn = 0;
  for (const Question& question : Questions()) {
    if (++turn % (kSlowBuild ? 5 : 1) != 0) continue;
    const Bytes array = MakeData(turn % 2 == 0 ? DataKind::kFull : DataKind::kSmall, dtype(), question.count(), 1);
    ReduceSpec spec = SpecFor(question);
    spec.ops = sets[static_cast<std::size_t>(turn) % std::size(sets)];
    Check(question, array, spec, {});
    if (HasFailure()) return;
  }
}

TEST_P(EngineGroups, LengthsAreArraysEndToEnd) {
  for (int groups : {1, 2, 30}) {
    Question question{.shape = {900}};
    question.offsets = RandomOffsets(900, groups);
    question.offsets->front() = 0;
    question.offsets->back() = 900;
    const Bytes array = MakeData(DataKind::kUniform, dtype(), 900, 1);
    for (const DType bounds : {DType::kI32, DType::kI64}) {
      Check(question, array, SpecFor(question), {.bounds = bounds, .lengths = true});
    }
  }
}

// Long outputs are cut into tasks. Sums are exact also where they need not be.
TEST_P(EngineGroups, SumsInF64) {
  if (!RowOf(dtype()).is_float) return;  // integers have no precision
  const std::int64_t rows = kSlowBuild ? 90'001 : 1'500'003;
  Question whole{.shape = {rows}, .axes = {0}, .mask = RandomMask(rows, 60)};
  Question skewed{.shape = {rows}, .offsets = std::vector<std::int64_t>{0, 5, rows / 2, rows - 1, rows}};
  Question both = skewed;
  both.mask = whole.mask;
  Question columns{.shape = {rows / 2, 2}, .axes = {0}, .mask = RandomMask(rows / 2 * 2, 80)};
  Question keyed{.shape = {rows}, .keys = RandomKeys(rows, 0, 1), .groups = 2, .mask = whole.mask};
  Question wide{.shape = {rows / 2, 2}, .keys = RandomKeys(rows / 2, 0, 1), .mask = columns.mask};
  for (const Question& question : {whole, skewed, both, columns, keyed, wide}) {
    const Bytes array = MakeData(DataKind::kFull, dtype(), question.count(), 5);
    ReduceSpec spec = SpecFor(question);
    spec.ops = {Op::kSum, Op::kVar, Op::kArgmax, Op::kMin};
    spec.precision = Precision::kF64;
    Check(question, array, spec, {.first_bit = 5});
    Check(question, array, spec, {});
    if (HasFailure()) return;
  }
}

// Keys that are found, of every dtype: few in a range, and anything.
TEST_P(EngineGroups, KeysOfEveryDType) {
  for (const DTypeRow& row : kDTypes) {
    if (row.is_float || row.dtype == DType::kBool) continue;
    SCOPED_TRACE(std::string(row.name));
    const bool is_signed = row.is_signed;
    const std::int64_t most = row.bytes == 8 ? std::numeric_limits<std::int64_t>::max()
                                             : (std::int64_t{1} << (8 * row.bytes - (is_signed ? 1 : 0))) - 1;
    const std::int64_t least = is_signed ? -most - 1 : 0;
    Question question{.shape = {600}, .keys = RandomKeys(600, least, most)};
    question.keys->front() = least;
    question.keys->back() = most;
    const Bytes array = MakeData(DataKind::kUniform, dtype(), 600, 1);
    ReduceSpec spec = SpecFor(question);
    spec.ops = {Op::kSum, Op::kArgmin, Op::kCount};
    Check(question, array, spec, {.keys = row.dtype});
    for (std::int64_t& key : *question.keys) key = most - (key & 15);
    Check(question, array, spec, {.keys = row.dtype});
  }
}

// Arrays, bounds, keys and masks in the memory of the engine's device, at any address.
TEST_P(EngineGroups, ResidentArrays) {
  int turn = 0;
  for (const Question& question : Questions()) {
    if (++turn % 11 != 0) continue;
    SCOPED_TRACE(turn);
    const Bytes array = MakeData(DataKind::kUniform, dtype(), question.count(), static_cast<std::uint64_t>(turn));
    width_skipped_ = turn % 2 == 0 ? 0 : 1;
    Forms forms{.bounds = turn % 2 == 0 ? DType::kI32 : DType::kI64, .resident = true};
    if (turn % 3 == 0) forms.first_bit = 6;
    ReduceSpec spec = SpecFor(question);
    if (turn % 2 == 0) spec.ops = {Op::kSum, Op::kArgmax, Op::kMean};
    Check(question, array, spec, forms);
    if (HasFailure()) return;
  }
}

// From no element to nearly all of them in one segment or group, and many of a few.
TEST_P(EngineGroups, SizesOfEveryMagnitude) {
  const std::int64_t rows = kSlowBuild ? 20'000 : 150'000;
  std::vector<std::int64_t> law = {0};
  for (std::int64_t size = 1; law.back() < rows; size = (size * 7 + 3) % (rows / 9)) {
    law.push_back(std::min(rows, law.back() + size % (law.size() % 40 == 0 ? rows : 65)));
  }
  Question segments{.shape = {rows}, .offsets = law};
  Question huge{.shape = {rows}, .offsets = std::vector<std::int64_t>{0, 0, 3, rows - 40, rows - 39, rows, rows}};
  Question keyed{.shape = {rows}, .keys = RandomKeys(rows, 0, 300), .groups = 301};
  for (std::size_t i = 0; i < keyed.keys->size(); ++i) {
    if (i % 8 != 0) (*keyed.keys)[i] = 17;
  }
  Question columns{.shape = {rows / 3, 3}, .offsets = std::vector<std::int64_t>{1, 2, 7, rows / 3 - 50, rows / 3}};
  int turn = 0;
  for (Question question : {segments, huge, keyed, columns}) {
    for (const int percent : {100, 60, 1}) {
      SCOPED_TRACE(++turn);
      if (percent < 100) question.mask = RandomMask(question.count(), percent);
      const Bytes array = MakeData(turn % 2 == 0 ? DataKind::kUniform : DataKind::kSmall, dtype(), question.count(), 1);
      ReduceSpec spec = SpecFor(question);
      for (const std::vector<OpCall>& ops : {std::vector<OpCall>{Op::kSum, Op::kMean, Op::kCount},
                                             {Op::kArgmin, Op::kMax},
                                             {Op::kL2, Op::kAny},
                                             {Op::kL1, Op::kProd},
                                             {Op::kVar}}) {
        spec.ops = ops;
        Check(question, array, spec, percent == 60 ? Forms{.first_bit = 3} : Forms{});
        if (HasFailure()) return;
      }
    }
  }
}

// What two doubles can't hold, and what has no sum, beside ordinary elements in other outputs.
TEST_P(EngineGroups, ElementsThatDoNotAddUpEasily) {
  if (!RowOf(dtype()).is_float) return;
  constexpr std::int64_t kRows = 4000;
  const double low = dtype() == DType::kF16 ? 0x1p-24 : dtype() == DType::kF64 ? 0x1p-1074 : 0x1p-133;
  Bytes array = MakeData(DataKind::kUniform, dtype(), kRows, 1);
  for (std::int64_t i = 0; i < kRows; ++i) {
    const double sign = Random(0, 1) == 0 ? 1 : -1;
    const std::int64_t tenth = i / (kRows / 10);
    double x = 0;
    if (tenth == 1) x = sign * std::ldexp(1 + Random(0, 100) / 128.0, static_cast<int>(Random(-30, 30)));
    if (tenth == 2) x = sign * low * static_cast<double>(Random(1, 9));
    if (tenth == 3) x = -0.0;
    if (tenth == 4) x = i % 400 == 7 ? std::numeric_limits<double>::quiet_NaN() : 1;
    if (tenth == 5) x = i % 400 == 9 ? std::numeric_limits<double>::infinity() : sign;
    if (tenth == 6) x = i % 400 < 2 ? std::numeric_limits<double>::infinity() * (i % 2 == 0 ? 1 : -1) : sign;
    if (tenth == 7) x = sign * (i % 2 == 0 ? 0x1p15 : low);
    if (tenth > 0 && tenth < 8) SetElement(dtype(), i, x, &array);
  }
  std::vector<std::int64_t> tenths, keys;
  for (int i = 0; i <= 10; ++i) tenths.push_back(i * kRows / 10);
  for (std::int64_t i = 0; i < kRows; ++i) keys.push_back(i / (kRows / 10));
  for (const Question& question :
       {Question{.shape = {kRows}, .offsets = tenths}, Question{.shape = {kRows}, .keys = keys, .groups = 10},
        Question{.shape = {10, kRows / 10}, .axes = {1}, .mask = RandomMask(kRows, 90)}}) {
    for (const NanPolicy policy : {NanPolicy::kPropagate, NanPolicy::kOmit}) {
      ReduceSpec spec = SpecFor(question);
      spec.nan_policy = policy;
      for (const std::vector<OpCall>& ops : {std::vector<OpCall>{Op::kSum, Op::kMean},
                                             {Op::kMin, Op::kArgmax},
                                             {Op::kSum, Op::kArgmin},
                                             {Op::kStd},
                                             {Op::kVar, Op::kMax, Op::kCount},
                                             {Op::kCount},
                                             {Op::kL1, Op::kL2}}) {
        spec.ops = ops;
        Check(question, array, spec, {});
        if (HasFailure()) return;
      }
    }
  }
}

// Up to 256 f64 in segments, of the magnitudes up to which two parts of them are added without rounding, and beyond:
// all bits are set, and one element is 2^34 to 2^40 times as small. Exponents reach the least and the largest.
TEST_P(EngineGroups, SegmentsAtTheLimitsOfTwoParts) {
  if (dtype() != DType::kF64) return;
  constexpr std::int64_t kSize = 256;
  std::vector<std::int64_t> offsets = {0};
  std::vector<double> elements;
  for (const int exponent : {-1074, -1022, -985, -984, -983, -900, 0, 900, 1005, 1006, 1007, 1008, 1014, 1023}) {
    for (int apart = 34; apart <= 40; ++apart) {
      for (const std::int64_t size : {std::int64_t{9}, kSize - 1, kSize}) {
        for (std::int64_t i = 0; i < size; ++i) {
          const double sign = apart % 2 == 0 && i % 3 == 0 ? -1 : 1;
          elements.push_back(sign * std::ldexp(2 - 0x1p-52, exponent - (i == size / 2 ? apart : 0)));
        }
        offsets.push_back(std::ssize(elements));
      }
    }
  }
  const Question question{.shape = {std::ssize(elements)}, .offsets = offsets};
  ReduceSpec spec = SpecFor(question);
  for (const std::vector<OpCall>& ops : {std::vector<OpCall>{Op::kSum, Op::kMean}, {Op::kL1}}) {
    spec.ops = ops;
    Check(question, BytesOf(elements), spec, {});
  }
}

// Far more of what an integer of some unit can't hold than elements that it can.
// NaNs and infinities here and there in outputs that a GPU answers in parts, beside short ones.
TEST_P(EngineGroups, NansInLongOutputs) {
  if (!RowOf(dtype()).is_float) return;
  constexpr std::int64_t kRows = 24'000;
  Bytes array = MakeData(DataKind::kUniform, dtype(), kRows, 1);
  for (std::int64_t i = 0; i < kRows; i += Random(1, 900)) {
    SetElement(dtype(), i, std::numeric_limits<double>::quiet_NaN(), &array);
  }
  SetElement(dtype(), 20'001, std::numeric_limits<double>::infinity(), &array);
  const std::vector<std::int64_t> offsets = {0, 7, 9000, 18'000, 23'990, kRows};
  std::vector<std::int64_t> keys;
  for (std::int64_t i = 0; i < kRows; ++i) keys.push_back(i % 50 == 0 ? 1 : i % 3);
  for (Question question :
       {Question{.shape = {kRows}, .offsets = offsets}, Question{.shape = {kRows}, .keys = keys, .groups = 3},
        Question{.shape = {kRows}, .axes = {0}}}) {
    for (const int percent : {100, 80}) {
      if (percent < 100 || !question.grouped()) question.mask = RandomMask(kRows, percent);
      for (const NanPolicy policy : {NanPolicy::kPropagate, NanPolicy::kOmit}) {
        ReduceSpec spec = SpecFor(question);
        spec.nan_policy = policy;
        for (const std::vector<OpCall>& ops : {std::vector<OpCall>{Op::kSum, Op::kMean},
                                               {Op::kMin, Op::kArgmax, Op::kNanCount, Op::kCount},
                                               {Op::kVar, Op::kRange},
                                               {Op::kL1, Op::kProd},
                                               {Op::kCount, Op::kNanCount, Op::kAll}}) {
          spec.ops = ops;
          Check(question, array, spec, {});
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST_P(EngineGroups, NegativeZerosByKey) {
  if (!RowOf(dtype()).is_float) return;
  const std::int64_t rows = 40'000;
  Bytes array(static_cast<std::size_t>(rows * RowOf(dtype()).bytes));
  for (std::int64_t i = 0; i < rows; ++i) SetElement(dtype(), i, i % 5000 == 77 ? 0.5 : -0.0, &array);
  Question question{.shape = {rows}, .keys = RandomKeys(rows, 0, 40), .groups = 50};
  ReduceSpec spec = SpecFor(question);
  spec.ops = {Op::kSum, Op::kMean};
  Check(question, array, spec, {});
}

// Whoever shares bounds, keys or a mask may change them at any time: answers may then be any, but nothing else is read
// or written.
TEST_P(EngineGroups, WhatChangesMeanwhileDoesNoHarm) {
  if (dtype() != DType::kF32 && dtype() != DType::kI8) return;  // the size of an element is all that matters
  constexpr std::int64_t kRows = 200'000;
  const Bytes array = MakeData(DataKind::kUniform, dtype(), kRows, 1);
  std::vector<std::uint32_t> shared(kRows + 1);
  const auto restore = [&](std::uint32_t step) {
    for (std::size_t i = 0; i < shared.size(); ++i) __atomic_store_n(&shared[i], i * step % 977, __ATOMIC_RELAXED);
  };
  restore(0);
  std::atomic<bool> stop = false;
  std::thread changer([&] {
    std::mt19937 random(3);
    for (int turn = 0; !stop; ++turn) {
      restore(static_cast<std::uint32_t>(turn % 3));
      for (int i = 0; i < 2000; ++i) __atomic_store_n(&shared[random() % shared.size()], random(), __ATOMIC_RELAXED);
    }
  });
  const auto side = [&](DType type, std::int64_t count) { return SideArray{type, count, {shared.data()}}; };
  ReduceSpec spec = SpecFor({.shape = {kRows}});
  int answered = 0;
  for (int turn = 0; turn < 60; ++turn) {
    spec.ops = turn % 2 == 0 ? std::vector<OpCall>{Op::kSum, Op::kMean} : std::vector<OpCall>{Op::kArgmax, Op::kMin, Op::kSum};
    Partition partition{.layout = LayoutOf(Shape{kRows}, {true}), .rows = kRows};
    if (turn % 4 == 0) partition.segments = Segments{side(DType::kI32, kRows + 1)};
    if (turn % 4 == 1) partition.keys = Keys{side(DType::kI32, kRows)};
    if (turn % 4 == 2) partition.keys = Keys{side(DType::kI32, kRows), 977, true};
    if (turn % 4 == 3 || turn % 8 > 3) {
      partition.mask = turn % 3 == 0 ? Mask{side(DType::kU8, kRows), true, 5} : Mask{side(DType::kBool, kRows)};
    }
    const Reply reply = ReducePartition(engine(), {.spec = spec, .array = {array.data()}}, partition);
    answered += reply.status.ok();
    EXPECT_TRUE(reply.status.ok() || absl::IsInvalidArgument(reply.status)) << reply.status.ToString();
  }
  stop = true;
  changer.join();
  EXPECT_GT(answered, 0);
}

REDUCED_INSTANTIATE_BY_KIND_AND_DTYPE(EngineGroups);

}  // namespace
}  // namespace reduced::test

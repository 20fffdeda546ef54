// Reductions along axes: every output is what a reduction of its elements alone answers, bit for bit.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/algebra/finalize.h"
#include "kernels/exact/answers.h"
#include "tests/contract/answers.h"
#include "tests/contract/engine_fixture.h"
#include "tests/contract/shapes.h"
#include "tests/support/data.h"

namespace reduced::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// A shape and the dimensions that are reduced.
struct Case {
  Shape shape;
  std::vector<int> axes;
};

Layout LayoutFor(const Case& which) { return LayoutAlong(which.shape, which.axes); }

std::string NameOf(const Case& which) {
  std::string name = "shape";
  for (const std::int64_t size : which.shape) name += " " + std::to_string(size);
  name += ", axes";
  for (const int axis : which.axes) name += " " + std::to_string(axis);
  return name;
}

absl::Status ReduceSlices(Engine& engine, Job job, const Layout& layout, const Answers& answers) {
  job.partition = Partition{.layout = layout};
  job.place = answers.Place();
  return ReduceAndWait(engine, std::move(job)).status();
}

class EngineSlices : public EngineTest<KindAndDType> {
 protected:
  DType dtype() const { return std::get<DType>(GetParam()); }

  // Compares each output, by that engine or the usual one, with a reduction of a copy of its elements, in that
  // precision or the same.
  void Check(const Case& which, const void* array, const ReduceSpec& spec, Engine* by = nullptr,
             std::optional<Precision> precision = std::nullopt) {
    CheckEach(which, array, spec, {spec.ops}, by, precision);
  }

  // Of a job with each of these lists of ops. The reduction that they are compared with has all of them.
  void CheckEach(const Case& which, const void* array, ReduceSpec spec, const std::vector<std::vector<OpCall>>& lists,
                 Engine* by = nullptr, std::optional<Precision> precision = std::nullopt) {
    SCOPED_TRACE(NameOf(which));
    const Layout layout = LayoutFor(which);
    const std::int64_t width = RowOf(dtype()).bytes;
    ReduceSpec one = spec;
    one.ops.clear();
    one.count = layout.elements;
    one.precision = precision.value_or(spec.precision);
    std::vector<std::byte*> answers;  // of each op of `one`
    std::vector<Answers> of_lists;
    for (const std::vector<OpCall>& ops : lists) {
      spec.ops = ops;
      of_lists.emplace_back(spec, layout.outputs);
      const Answers& own = of_lists.back();
      const absl::Status status =
          ReduceSlices(by != nullptr ? *by : engine(), {.spec = spec, .array = {array}}, layout, own);
      ASSERT_TRUE(status.ok()) << status.ToString();
      ASSERT_TRUE(own.GuardsStand());
      one.ops.insert(one.ops.end(), ops.begin(), ops.end());
      answers.insert(answers.end(), own.data.begin(), own.data.end());
    }
    Bytes slice(static_cast<std::size_t>(layout.elements * width));
    for (std::int64_t output = 0; output < layout.outputs; ++output) {
      for (std::int64_t i = 0; i < layout.elements; ++i) {
        std::memcpy(slice.data() + i * width,
                    static_cast<const std::byte*>(array) + (layout.Start(output) + layout.At(i)) * width, width);
      }
      const absl::StatusOr<Answer> alone =
          ReduceAndWait(engine_for(one.count), {.spec = one, .array = {slice.data(), MemorySpace::kHost}});
      ASSERT_TRUE(alone.ok()) << alone.status().ToString();
      const absl::StatusOr<std::vector<Value>> values = Finalize(one, alone->state);
      ASSERT_TRUE(values.ok()) << values.status().ToString();
      for (std::size_t i = 0; i < values->size(); ++i) {
        const Value& value = (*values)[i];
        const std::byte* const got = answers[i] + output * RowOf(value.dtype).bytes;
        ASSERT_TRUE(IsAnswer(kind(), one, one.ops[i], value, got, slice)) << "output " << output;
      }
    }
  }

  ReduceSpec SpecFor(const Case& which) const {
    ReduceSpec spec = Spec(dtype(), CountOf(which.shape));
    spec.overflow_policy = OverflowPolicy::kWrap;
    spec.empty_policy = EmptyPolicy::kFill;
    spec.precision = Precision::kExact;
    return spec;
  }
};

const Case kCases[] = {
    {{}, {}},
    {{1}, {0}},
    {{7}, {0}},
    {{7}, {}},
    {{3, 5}, {0}},
    {{3, 5}, {1}},
    {{3, 5}, {}},
    {{3, 5}, {0, 1}},
    {{2, 3, 4}, {1}},
    {{2, 3, 4}, {0, 2}},
    {{4, 1, 6}, {2}},
    {{33, 65}, {0}},
    {{65, 33}, {1}},
    {{5, 31, 3}, {1}},
    {{3, 2, 2, 3}, {1, 3}},
    {{2, 2100}, {1}},
    {{5, 4001}, {1}},  // of small elements, tiles that begin at any byte
    {{40, 1147}, {1}},
    {{2100, 2}, {0}},
    {{2, 2100, 3}, {1}},
    {{40, 3, 50}, {0, 2}},
    {{0, 3}, {0}},
    {{3, 0}, {0}},
    {{0}, {0}},
    {{2, 0, 3}, {1}},
    {{1, 1, 5}, {0, 1}},
};

TEST_P(EngineSlices, AnswerAsAReductionOfEach) {
  int turn = 0;
  for (const Case& which : kCases) {
    for (const DataKindRow& row : kDataKinds) {
      if (!Applies(row, dtype())) continue;
      // Every kind with one in three shapes, in turn: each takes all ops.
      if (++turn % (kSlowBuild ? 11 : 3) != 0) continue;
      const Bytes array = MakeData(row.kind, dtype(), CountOf(which.shape), static_cast<std::uint64_t>(turn));
      for (const NanPolicy policy : {NanPolicy::kPropagate, NanPolicy::kOmit}) {
        SCOPED_TRACE(std::string(row.name));
        ReduceSpec spec = SpecFor(which);
        spec.nan_policy = policy;
        Check(which, array.data(), spec);
        if (HasFailure()) return;
      }
    }
  }
}

// Requests of one kind of op have ways of their own.
TEST_P(EngineSlices, SumsAndExtremaByThemselves) {
  const Case cases[] = {
      {{300, 5}, {1}},   {{300, 1}, {1}},   {{150, 31}, {1}},      {{40, 63}, {1}},      {{40, 64}, {1}},
      {{33, 1000}, {1}}, {{3, 9000}, {1}},  {{31, 8}, {0}},        {{31, 15}, {0}},      {{7, 16}, {0}},
      {{9, 300}, {0}},   {{2000, 17}, {0}}, {{3, 20, 40}, {1}},    {{6, 40, 9}, {0, 1}}, {{4, 5, 6, 20}, {0, 2}},
      {{300, 3}, {0}},   {{200}, {}},       {{5, 30, 40}, {0, 2}}, {{3, 20, 9}, {0, 2}}, {{2, 3, 700}, {0, 2}},
      {{1, 40}, {0}},    {{600, 16}, {1}},  {{70, 128}, {1}},      {{300, 5, 16}, {1}},  {{35, 2500}, {0}}};
  int shapes = 0;
  for (const Case& which : cases) {
    // Every shape with every other kind of data, or with few where it takes long; the next dtype has the others.
    int turn = shapes++ + static_cast<int>(dtype());
    for (const DataKindRow& row : kDataKinds) {
      if (!Applies(row, dtype()) || ++turn % (kSlowBuild ? 9 : 2) != 0) continue;
      SCOPED_TRACE(std::string(row.name));
      const Bytes array = MakeData(row.kind, dtype(), CountOf(which.shape), static_cast<std::uint64_t>(turn));
      ReduceSpec spec = SpecFor(which);
      spec.nan_policy = turn / 2 % 2 == 0 ? NanPolicy::kPropagate : NanPolicy::kOmit;
      CheckEach(which, array.data(), spec,
                {{Op::kMean, Op::kSum},
                 {Op::kArgmax, Op::kMin},
                 {Op::kSum},
                 {Op::kMax, Op::kArgmax},
                 {Op::kArgmin},
                 {Op::kArgmax, Op::kMin, Op::kMax},
                 {Op::kCountNonzero, Op::kNanCount, Op::kAll, Op::kAny, Op::kCount},
                 {Op::kVar, Op::kL2},
                 {Op::kProd, Op::kCount},
                 {Op::kSum, Op::kL1},
                 {Op::kL1, Op::kRange, Op::kSumSquares},
                 {Op::kNanCount, Op::kMin, Op::kMax, Op::kMean, Op::kStd, Op::kArgmin}});
      if (HasFailure()) return;
    }
  }
}

TEST_P(EngineSlices, BitsByThemselves) {
  if (RowOf(dtype()).is_float) return;
  const Case cases[] = {{{90, 1}, {1}},  {{90, 7}, {1}},   {{20, 70}, {1}},       {{70, 31}, {1}},
                        {{50, 16}, {1}}, {{3, 5000}, {1}}, {{31, 9}, {0}},        {{7, 600}, {0}},
                        {{900, 3}, {0}}, {{50, 2}, {}},    {{5, 30, 40}, {0, 2}}, {{3, 20, 9}, {1}}};
  int turn = 0;
  for (const Case& which : cases) {
    for (const DataKind kind : {DataKind::kFull, DataKind::kSmall, DataKind::kEqual}) {
      const Bytes array = MakeData(kind, dtype(), CountOf(which.shape), static_cast<std::uint64_t>(++turn));
      ReduceSpec spec = SpecFor(which);
      CheckEach(which, array.data(), spec,
                {{Op::kBitXor, Op::kBitAnd, Op::kBitOr}, {Op::kBitOr}, {Op::kSum, Op::kBitAnd, Op::kArgmax}});
      if (HasFailure()) return;
    }
  }
}

// Columns that are so long, or so few, that they are answered in parts; and rows of every length up to some.
TEST_P(EngineSlices, SumsAndExtremaInParts) {
  static const int kScale = kSlowBuild ? 4 : 1;
  const Case cases[] = {{{180'000 / kScale, 3}, {0}}, {{9'001, 70}, {0}},         {{40, 15}, {0}},
                        {{3, 1'300, 2}, {1}},         {{30, 2, 31, 160}, {0, 2}}, {{2'600, 17, 9}, {0, 1}}};
  const DataKind kinds[] = {DataKind::kUniform, DataKind::kSmall,   DataKind::kEqual,      DataKind::kFull,
                            DataKind::kSomeNan, DataKind::kOutlier, DataKind::kInfinities, DataKind::kSignedZeros};
  int turn = 0;
  for (const Case& which : cases) {
    for (const DataKind kind : kinds) {
      const bool applies = RowOf(dtype()).is_float || (kind != DataKind::kSomeNan && kind < DataKind::kInfinities);
      // Each shape with every other kind, or with few where it takes long.
      if (++turn % (kSlowBuild ? 7 : 2) != 0 || !applies) continue;
      SCOPED_TRACE(turn);
      const Bytes array = MakeData(kind, dtype(), CountOf(which.shape), static_cast<std::uint64_t>(turn));
      ReduceSpec spec = SpecFor(which);
      CheckEach(
          which, array.data(), spec,
          {{Op::kSum, Op::kMean}, {Op::kArgmax, Op::kMin}, {Op::kArgmin}, {Op::kProd}, {Op::kL1, Op::kMax, Op::kVar}});
      if (HasFailure()) return;
    }
  }
}

TEST_P(EngineSlices, RowsOfEveryLength) {
  const DataKind kinds[] = {DataKind::kUniform, DataKind::kSmall, DataKind::kFull};
  for (std::int64_t elements = 1; elements <= 300; elements += elements < 70 ? 1 : 13) {
    const Case which{{39, elements}, {1}};
    const Bytes array = MakeData(kinds[elements % 3], dtype(), CountOf(which.shape), 1);
    ReduceSpec spec = SpecFor(which);
    CheckEach(which, array.data(), spec,
              {{Op::kSum, Op::kMean},
               {Op::kArgmax, Op::kArgmin, Op::kMax},
               {Op::kNanCount, Op::kProd},
               {Op::kVar, Op::kL1, Op::kRange}});
    if (HasFailure()) return;
  }
}

// What a GPU answers in registers: rows and columns at the bounds of how they are given to threads, and an output of
// many that can't be answered so. The ops of a request may take several kernels.
TEST_P(EngineSlices, OutputsOfEveryClass) {
  const Case cases[] = {{{70, 3}, {1}},
                        {{70, 4}, {1}},
                        {{33, 5}, {1}},
                        {{9, 31}, {1}},
                        {{9, 32}, {1}},
                        {{9, 33}, {1}},
                        {{5, 100}, {1}},
                        {{5, 128}, {1}},
                        {{3, 1000}, {1}},
                        {{2, 4096}, {1}},
                        {{1, 2, 9001}, {2}},
                        {{900, 1}, {0}},
                        {{1000, 2}, {0}},
                        {{999, 3}, {0}},
                        {{1001, 4}, {0}},
                        {{1003, 5}, {0}},
                        {{130, 31}, {0}},
                        {{130, 64}, {0}},
                        {{65, 100}, {0}},
                        {{9, 128}, {0}},
                        {{3, 50, 31}, {1}},
                        {{3, 4, 64}, {1}},
                        {{20, 3, 3}, {1}},
                        {{5, 30, 8}, {0, 1}},
                        {{5, 6, 3, 8}, {0, 2}},
                        {{30, 4, 40}, {0, 2}},
                        {{6, 3, 100, 33}, {1, 3}},
                        {{3, 2, 5, 2, 3}, {0, 2, 4}},
                        {{3, 2, 5, 2, 3}, {1, 3}}};
  const DataKind kinds[] = {DataKind::kUniform,     DataKind::kFull,       DataKind::kEqual,   DataKind::kLarge,
                            DataKind::kAscending,   DataKind::kDescending, DataKind::kSomeNan, DataKind::kInfinities,
                            DataKind::kSignedZeros, DataKind::kDenormals,  DataKind::kAllNan};
  int turn = 0;
  for (const Case& which : cases) {
    for (const DataKind kind : kinds) {
      const bool applies = RowOf(dtype()).is_float || kind < DataKind::kSomeNan;
      if (++turn % (kSlowBuild ? 9 : 4) != 0 || !applies) continue;
      Bytes array = MakeData(kind, dtype(), CountOf(which.shape), static_cast<std::uint64_t>(turn));
      if (kind == DataKind::kUniform) SetElement(dtype(), CountOf(which.shape) / 2, 0x1p60, &array);
      ReduceSpec spec = SpecFor(which);
      spec.nan_policy = turn % 8 == 0 ? NanPolicy::kPropagate : NanPolicy::kOmit;
      CheckEach(which, array.data(), spec,
                {{Op::kMean, Op::kCount, Op::kSum},
                 {Op::kArgmin, Op::kMax, Op::kRange, Op::kCount, Op::kArgmax},
                 {Op::kNanCount, Op::kMin, Op::kSum, Op::kAll, Op::kArgmax, Op::kMean},
                 {Op::kStd, Op::kMax, Op::kMean, Op::kVar, Op::kL2, Op::kSumSquares},
                 {Op::kNanCount, Op::kCount}});
      if (HasFailure()) return;
    }
  }
}

// Unlike those of other kinds of data, sums that f64 can't hold: of 60 powers of two, of what cancels, of nothing but
// -0.
TEST_P(EngineSlices, HardSumsAmongEasyOnes) {
  if (!RowOf(dtype()).is_float) return;
  for (const Case& which : {Case{{40, 24}, {1}}, {{24, 40}, {0}}, {{24, 6}, {0}}, {{3, 24, 16}, {1}}, {{9, 31}, {1}}}) {
    const Layout layout = LayoutFor(which);
    Bytes array = MakeData(DataKind::kUniform, dtype(), CountOf(which.shape), 7);
    const auto set = [&](std::int64_t output, std::int64_t i, double value) {
      SetElement(dtype(), layout.Start(output) + layout.At(i), value, &array);
    };
    const int most = dtype() == DType::kF16 ? 15 : 60;
    for (std::int64_t i = 0; i < layout.elements; ++i) {
      set(1, i, std::ldexp(1.5, static_cast<int>(i * 5 % most) - most / 2));
      set(2, i, -0.0);
      set(3, i, i % 2 == 0 ? 1.25 : -1.25);
      set(4, i, i == 3 ? 0x1p15 : i == 7 ? -0x1p15 : std::ldexp(1.25, -10));
    }
    if (dtype() == DType::kF64) {  // overflow on the way, but not in the end
      for (std::int64_t i = 0; i < 4; ++i) set(5, i, i < 2 ? 0x1.8p1023 : -0x1.8p1023);
    }
    ReduceSpec spec = SpecFor(which);
    CheckEach(which, array.data(), spec, {{Op::kSum, Op::kMean}, {Op::kVar, Op::kSum, Op::kL2}});
    if (HasFailure()) return;
  }
}

// NaNs and infinities in some outputs, at any place.
TEST_P(EngineSlices, SpecialsAmongNumbers) {
  if (!RowOf(dtype()).is_float) return;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double specials[] = {std::numeric_limits<double>::quiet_NaN(), kInfinity, -kInfinity};
  int turn = 0;
  for (const Case& which :
       {Case{{60, 37}, {1}}, {{37, 60}, {0}}, {{37, 5}, {0}}, {{9, 30, 20}, {1}}, {{8, 700}, {1}}}) {
    const Layout layout = LayoutFor(which);
    Bytes array = MakeData(DataKind::kUniform, dtype(), CountOf(which.shape), 9);
    for (std::int64_t output = 0; output < layout.outputs; output += 2) {
      for (std::int64_t n = 0; n <= output % 3; ++n) {
        const std::int64_t position = (output * 7 + n * 11) % layout.elements;
        SetElement(dtype(), layout.Start(output) + layout.At(position), specials[++turn / 2 % 3], &array);
      }
    }
    for (const NanPolicy policy : {NanPolicy::kPropagate, NanPolicy::kOmit}) {
      ReduceSpec spec = SpecFor(which);
      spec.nan_policy = policy;
      CheckEach(which, array.data(), spec,
                {{Op::kSum, Op::kMean, Op::kCount},
                 {Op::kStd, Op::kSumSquares, Op::kL2, Op::kL1, Op::kVar},
                 {Op::kArgmin, Op::kArgmax, Op::kMin, Op::kMax, Op::kRange},
                 {Op::kProd, Op::kCount, Op::kNanCount},
                 {Op::kNanCount, Op::kArgmax, Op::kMean, Op::kCount}});
      if (HasFailure()) return;
    }
  }
}

// Outputs of nothing but NaNs, or of those and -0, beside others; and stretches of them in outputs that are taken in
// parts.
TEST_P(EngineSlices, OutputsWithoutTheirNans) {
  if (!RowOf(dtype()).is_float) return;
  static const std::int64_t kScale = kSlowBuild ? 20 : 1;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Case& which : {Case{{60, 4}, {1}},
                            {{60, 37}, {1}},
                            {{37, 60}, {0}},
                            {{9, 30, 20}, {1}},
                            {{6, 700}, {1}},
                            {{3, 40'000 / kScale}, {1}},
                            {{90'000 / kScale, 3}, {0}},
                            {{3'000 / kScale, 80}, {0}},
                            {{90 / kScale + 1, 4, 800}, {0, 2}}}) {
    const Layout layout = LayoutFor(which);
    Bytes array = MakeData(DataKind::kUniform, dtype(), CountOf(which.shape), 9);
    for (std::int64_t output = 0; output < layout.outputs; ++output) {
      for (std::int64_t i = 0; i < layout.elements; ++i) {
        const std::int64_t element = layout.Start(output) + layout.At(i);
        const bool some = i * 3 > layout.elements || i % 5 == 0;
        if (output % 5 == 1 || (output % 5 == 2 && some)) SetElement(dtype(), element, i % 2 == 0 ? nan : -nan, &array);
        if (output % 5 == 3) SetElement(dtype(), element, i % 2 == 0 ? nan : -0.0, &array);
      }
    }
    ReduceSpec spec = SpecFor(which);
    spec.nan_policy = NanPolicy::kOmit;
    CheckEach(which, array.data(), spec,
              {{Op::kSum},
               {Op::kArgmin, Op::kArgmax, Op::kSum},
               {Op::kMean, Op::kNanCount, Op::kCountNonzero, Op::kAll},
               {Op::kVar, Op::kL1, Op::kMax, Op::kCount},
               {Op::kProd},
               {Op::kL2, Op::kRange}});
    if (HasFailure()) return;
  }
}

// Whoever shares an array may change it at any time: answers may then be any, but there are answers.
TEST_P(EngineSlices, ElementsThatChangeMeanwhile) {
  if (dtype() != DType::kF32 && dtype() != DType::kI8) return;
  constexpr std::int64_t kElements = 100'000;
  std::vector<std::uint32_t> shared(kElements);
  std::atomic<bool> stop = false;
  absl::Notification begun;
  std::thread changer([&] {
    for (std::uint32_t turn = 0; !stop; ++turn) {
      for (std::uint32_t& word : shared) __atomic_store_n(&word, turn * 0x9e3779b9U, __ATOMIC_RELAXED);
      if (turn == 0) begun.Notify();
    }
  });
  begun.WaitForNotification();
  const std::int64_t count = kElements * 4 / RowOf(dtype()).bytes;
  for (int turn = 0; turn < (kSlowBuild ? 60 : 2000); ++turn) {
    const std::int64_t some = turn % 2 == 0 ? 40 : 1000;
    const Case which = turn % 3 == 0   ? Case{{count / some, some}, {1}}
                       : turn % 3 == 1 ? Case{{some, count / some}, {0}}
                                       : Case{{count / some / 4, 4, some}, {0, 2}};
    ReduceSpec spec = SpecFor(which);
    spec.ops = turn % 4 < 2 ? std::vector<OpCall>{Op::kArgmax, Op::kArgmin}
                            : std::vector<OpCall>{Op::kVar, Op::kArgmin, Op::kSum};
    spec.nan_policy = turn % 5 < 3 ? NanPolicy::kPropagate : NanPolicy::kOmit;
    const Layout layout = LayoutFor(which);
    Answers answers(spec, layout.outputs);
    const absl::Status status = ReduceSlices(engine(), {.spec = spec, .array = {shared.data()}}, layout, answers);
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_TRUE(answers.GuardsStand());
  }
  stop = true;
  changer.join();
}

// More results than a GPU's lane has memory for, and so many rows that its warps take several at once.
TEST_P(EngineSlices, ManyOutputs) {
  if (dtype() != DType::kF32 && dtype() != DType::kU8) return;
  for (const std::int64_t elements : {2, 72}) {
    const std::int64_t outputs = (kSlowBuild ? 20'000 : 600'000) / (elements == 2 ? 1 : 3);
    const Case which{{outputs, elements}, {1}};
    const Bytes array = MakeData(DataKind::kSmall, dtype(), CountOf(which.shape), 1);
    ReduceSpec spec = SpecFor(which);
    spec.ops = {Op::kSum, Op::kArgmax, Op::kMin};
    Answers answers(spec, outputs);
    const absl::Status status =
        ReduceSlices(engine(), {.spec = spec, .array = {array.data()}}, LayoutFor(which), answers);
    ASSERT_TRUE(status.ok()) << status.ToString();
    ASSERT_TRUE(answers.GuardsStand());
    VisitDType(dtype(), [&]<class T>(std::type_identity<T>) {
      if constexpr (std::is_arithmetic_v<T>) {
        using Sum = std::conditional_t<std::is_floating_point_v<T>, double, std::uint64_t>;
        std::vector<T> row(static_cast<std::size_t>(elements));
        for (std::int64_t output = 0; output < outputs; ++output) {
          std::memcpy(row.data(), array.data() + output * elements * static_cast<std::int64_t>(sizeof(T)),
                      row.size() * sizeof(T));
          const auto below = [](T a, T b) {
            return a < b || (a == b && std::signbit(double(a)) > std::signbit(double(b)));
          };
          Sum sum = 0, got_sum;
          for (const T x : row) sum += static_cast<Sum>(x);
          const auto argmax = static_cast<std::uint64_t>(std::max_element(row.begin(), row.end(), below) - row.begin());
          std::uint64_t got_argmax;
          T got_min;
          std::memcpy(&got_sum, answers.data[0] + output * 8, sizeof(got_sum));
          std::memcpy(&got_argmax, answers.data[1] + output * 8, sizeof(got_argmax));
          std::memcpy(&got_min, answers.data[2] + output * static_cast<std::int64_t>(sizeof(T)), sizeof(got_min));
          ASSERT_EQ(got_sum, sum) << output;
          ASSERT_EQ(got_argmax, argmax) << output;
          ASSERT_EQ(got_min, *std::min_element(row.begin(), row.end(), below)) << output;
        }
      }
    });
  }
}

// An engine with chunks of the usual size has room to cut few outputs into many parts.
TEST_P(EngineSlices, ManyPartsOfFewOutputs) {
  if (dtype() != DType::kF32 && dtype() != DType::kI8 && dtype() != DType::kF64) return;
  const Started own = StartOwn(EngineOptions());
  ASSERT_NE(own.engine, nullptr);
  static const std::int64_t kScale = kSlowBuild ? 20 : 1;
  for (const Case& which : {Case{{300'000 / kScale, 3}, {0}},
                            {{5, 300'001 / kScale}, {1}},
                            {{4, 200'000 / kScale}, {1}},
                            {{30'000 / kScale, 40}, {0}},
                            {{4, 50'000 / kScale, 6}, {1}},
                            {{700 / kScale, 3, 400}, {0, 2}}}) {
    for (const DataKind kind : {DataKind::kUniform, DataKind::kSmall}) {
      const Bytes array = MakeData(kind, dtype(), CountOf(which.shape), 3);
      ReduceSpec spec = SpecFor(which);
      spec.ops = {Op::kSum, Op::kArgmax, Op::kVar, Op::kMean, Op::kCountNonzero, Op::kArgmin};
      Check(which, array.data(), spec, own.engine);
      if (HasFailure()) return;
    }
  }
}

// A GPU that has no room for the array takes it in pieces of whole outputs.
TEST_P(EngineSlices, ArraysLargerThanTheBudget) {
  if (dtype() != DType::kF32 && (kSlowBuild || (dtype() != DType::kI8 && dtype() != DType::kF64))) return;
  EngineOptions options;
  options.chunk_bytes = 64 << 10;
  options.cuda_array_bytes = 16 << 10;
  const Started small = StartOwn(options);
  options.cuda_array_bytes = 200 << 10;  // pieces of several chunks, which end within stretches
  const Started larger = StartOwn(options);
  ASSERT_TRUE(small.engine != nullptr && larger.engine != nullptr);
  const Case cases[] = {{{9000, 40}, {1}},   {{40, 9000}, {0}},         {{300, 700}, {}},          {{70, 50, 60}, {1}},
                        {{6, 50, 900}, {0}}, {{12, 14, 9, 60}, {0, 2}}, {{70, 12, 20, 9}, {1, 3}}, {{3, 60'000}, {1}}};
  int turn = 0;
  for (const Case& which : cases) {
    ASSERT_GT(CountOf(which.shape), 64 << 10);
    const DataKind kind = ++turn % 2 == 0 && RowOf(dtype()).is_float ? DataKind::kSomeNan : DataKind::kUniform;
    const Bytes array = MakeData(kind, dtype(), CountOf(which.shape), static_cast<std::uint64_t>(turn));
    ReduceSpec spec = SpecFor(which);
    spec.nan_policy = turn % 4 == 0 ? NanPolicy::kOmit : NanPolicy::kPropagate;
    for (const std::vector<OpCall>& ops :
         {std::vector<OpCall>{Op::kSum, Op::kArgmax, Op::kMean}, {Op::kVar, Op::kL1}}) {
      spec.ops = ops;
      Check(which, array.data(), spec, turn % 3 == 0 ? larger.engine : small.engine);
      if (HasFailure()) return;
    }
  }
  if (RowOf(dtype()).bytes != 4) return;
  // An output is more than a chunk, and more than there is room for.
  for (const Case& which : {Case{{30'000, 7}, {0}}, Case{{40, 5, 900}, {0, 2}}, Case{{7, 200, 150}, {1}},
                            Case{{2, 9000, 3}, {1}}, Case{{5, 2, 900, 4, 3}, {0, 2, 4}}, Case{{3, 20'000}, {0}}}) {
    const Bytes array = MakeData(DataKind::kUniform, dtype(), CountOf(which.shape), 1);
    ReduceSpec spec = SpecFor(which);
    spec.ops = {Op::kSum, Op::kArgmax};
    Check(which, array.data(), spec, larger.engine);
    Check(which, array.data(), spec, small.engine);
  }
}

// The first output with an error is named as one of the whole array, also where it is not in the first piece.
TEST_P(EngineSlices, ErrorsOfArraysLargerThanTheBudget) {
  if (dtype() != DType::kI64) return;
  EngineOptions options;
  options.chunk_bytes = 64 << 10;
  options.cuda_array_bytes = 16 << 10;
  const Started own = StartOwn(options);
  ASSERT_NE(own.engine, nullptr);
  for (const Case& which : {Case{{3000, 40}, {1}}, Case{{40, 3000}, {0}}, Case{{30, 40, 100}, {1}}}) {
    const Layout layout = LayoutFor(which);
    Bytes array = MakeData(DataKind::kSmall, dtype(), CountOf(which.shape), 1);
    for (const std::int64_t output : {layout.outputs - 1, layout.outputs * 3 / 4}) {
      for (std::int64_t i = 0; i < 2; ++i) {
        SetElement(dtype(), layout.Start(output) + layout.At(i), 0x1.8p62, &array);
      }
    }
    ReduceSpec spec = SpecFor(which);
    spec.overflow_policy = OverflowPolicy::kError;
    spec.ops = {Op::kSum};
    Answers answers(spec, layout.outputs);
    const absl::Status status = ReduceSlices(*own.engine, {.spec = spec, .array = {array.data()}}, layout, answers);
    EXPECT_TRUE(absl::IsOutOfRange(status)) << status.ToString();
    EXPECT_THAT(std::string(status.message()),
                StartsWith("output " + OutputName(layout, layout.outputs * 3 / 4) + ": integer overflow"));
    EXPECT_TRUE(answers.GuardsStand());
  }
}

TEST_P(EngineSlices, AnyByteAddress) {
  for (const Case& which : {Case{{9, 70}, {0}}, {{9, 70}, {1}}, {{5, 9, 14}, {1}}}) {
    const Bytes array = MakeData(DataKind::kUniform, dtype(), 630, 3);
    for (std::size_t misalignment : {1, 3, 7}) {
      const ExactArray copy(array, misalignment);
      Check(which, copy.data(), SpecFor(which));
      if (HasFailure()) return;
    }
  }
}

// Sums of outputs of more than 1 MiB that need not be exact have the order of a reduction of each, across tiles, blocks
// and tasks; those of outputs that are answered side by side are exact nevertheless.
TEST_P(EngineSlices, SumsInF64) {
  if (!RowOf(dtype()).is_float) return;  // integers have no precision
  const std::int64_t large = kSlowBuild && RowOf(dtype()).bytes > 1 ? 600'001 : 1'100'003;
  // Each output takes a reduction of its own to compare with, and the GPU's has a launch.
  const std::int64_t many = kSlowBuild || kind() == EngineKind::kCuda ? 5000 : 100'000;
  struct Sums {
    Case which;
    bool folded;
  };
  for (const auto& [which, folded] : {Sums{{{2, large}, {1}}, true},
                                      {{{large, 2}, {0}}, false},
                                      {{{2, many, 3}, {0, 2}}, false},
                                      {{{100, 41}, {0}}, false}}) {
    const Bytes array = MakeData(DataKind::kFull, dtype(), CountOf(which.shape), 5);
    ReduceSpec spec = SpecFor(which);
    spec.precision = Precision::kF64;
    for (const std::vector<OpCall>& ops :
         {std::vector<OpCall>{Op::kSum, Op::kVar, Op::kArgmax}, {Op::kMean, Op::kSum}}) {
      spec.ops = ops;
      Check(which, array.data(), spec, nullptr, folded ? Precision::kF64 : Precision::kExact);
      if (HasFailure()) return;
    }
  }
}

TEST_P(EngineSlices, OverflowNamesTheFirstOutput) {
  if (RowOf(dtype()).is_float || RowOf(dtype()).bytes < 8) return;  // sums of a few of them fit
  for (const Case& which : {Case{{300, 40}, {1}}, {{40, 300}, {0}}}) {
    Bytes array = MakeData(DataKind::kSmall, dtype(), CountOf(which.shape), 1);
    for (const int output : {299, 250, 40}) {  // and those that were set before
      for (const int element : {3, 4}) {
        SetElement(dtype(), which.axes[0] == 1 ? output * 40 + element : element * 300 + output, 9.2e18, &array);
        // Of u64 it takes more.
        SetElement(dtype(), which.axes[0] == 1 ? output * 40 + 5 : 5 * 300 + output, 9.2e18, &array);
      }
      ReduceSpec spec = SpecFor(which);
      spec.ops = {Op::kMax, Op::kSum};
      spec.overflow_policy = OverflowPolicy::kError;
      const Layout layout = LayoutFor(which);
      Answers answers(spec, layout.outputs);
      const absl::Status status = ReduceSlices(engine(), {.spec = spec, .array = {array.data()}}, layout, answers);
      EXPECT_TRUE(absl::IsOutOfRange(status)) << status.ToString();
      EXPECT_THAT(std::string(status.message()),
                  StartsWith("output [" + std::to_string(output) + "]: integer overflow: the sum of this"));
      EXPECT_TRUE(answers.GuardsStand());
    }
  }
}

// Products of so many twos that some fit in 64 bits and others do not, beside a zero or not, under every policy.
TEST_P(EngineSlices, ProductsThatOverflow) {
  if (RowOf(dtype()).is_float || dtype() == DType::kBool) return;
  constexpr std::int64_t kOutputs = 9, kElements = 70;
  const bool is_signed = RowOf(dtype()).is_signed;
  for (const Case& which : {Case{{kOutputs, kElements}, {1}}, {{kElements, kOutputs}, {0}}, {{3, kElements, 3}, {1}}}) {
    const Layout layout = LayoutFor(which);
    Bytes array(static_cast<std::size_t>(kOutputs * kElements * RowOf(dtype()).bytes));
    const auto set = [&](std::int64_t output, std::int64_t i, double value) {
      SetElement(dtype(), layout.Start(output) + layout.At(i), value, &array);
    };
    for (std::int64_t output = 0; output < kOutputs; ++output) {
      const std::int64_t twos = std::vector<std::int64_t>{61, 62, 63, 64, 65, 70, 70, 63, 64}[output];
      for (std::int64_t i = 0; i < kElements; ++i) set(output, i, i < twos ? 2 : 1);
      if (output == 6) set(output, 69, 0);
      if (output >= 7 && is_signed) set(output, 1, -2);
    }
    ReduceSpec spec = SpecFor(which);
    spec.ops = {Op::kProd};
    Check(which, array.data(), spec);
    spec.overflow_policy = OverflowPolicy::kSaturate;
    Check(which, array.data(), spec);
    if (HasFailure()) return;
    spec.overflow_policy = OverflowPolicy::kError;
    Answers answers(spec, kOutputs);
    const absl::Status status = ReduceSlices(engine(), {.spec = spec, .array = {array.data()}}, layout, answers);
    EXPECT_TRUE(absl::IsOutOfRange(status)) << status.ToString();
    EXPECT_THAT(std::string(status.message()),
                StartsWith("output " + OutputName(layout, is_signed ? 2 : 3) + ": integer overflow: the prod of this"));
    // With the largest product that fits, or of signed integers -2^63, in place of those that do not.
    for (const std::int64_t output : {2, 3, 4, 5, 8}) {
      for (std::int64_t i = 0; i < kElements; ++i) set(output, i, i < (is_signed ? 62 : 63) ? 2 : 1);
    }
    Check(which, array.data(), spec);
    if (HasFailure()) return;
  }
}

// The absolute value of the lowest integer is one that only the unsigned type has.
TEST_P(EngineSlices, MagnitudesOfTheLowestIntegers) {
  if (RowOf(dtype()).is_float || !RowOf(dtype()).is_signed) return;
  const double lowest = -std::ldexp(1, 8 * RowOf(dtype()).bytes - 1);
  for (const Case& which : {Case{{60, 1}, {1}}, {{40, 7}, {1}}, {{40, 16}, {1}}, {{3, 900}, {1}}, {{33, 17}, {0}}}) {
    Bytes array = MakeData(DataKind::kSmall, dtype(), CountOf(which.shape), 1);
    for (std::int64_t i = 0; i < CountOf(which.shape); i += i % 5 == 0 ? 1 : 3) SetElement(dtype(), i, lowest, &array);
    ReduceSpec spec = SpecFor(which);
    spec.ops = {Op::kL1, Op::kCount};
    Check(which, array.data(), spec);
    if (HasFailure()) return;
  }
}

TEST_P(EngineSlices, WithoutElements) {
  const Case which{{2, 0, 3}, {1}};
  ReduceSpec spec = SpecFor(which);
  spec.ops = {Op::kSum, Op::kMin};
  spec.empty_policy = EmptyPolicy::kError;
  const Layout layout = LayoutFor(which);
  Answers answers(spec, layout.outputs);
  const absl::Status status = ReduceSlices(engine(), {.spec = spec}, layout, answers);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("output [0, 0]: op min: got an empty array; allowed: at least 1 element"));
}

TEST_P(EngineSlices, StopWhenTheAnswerIsNotWanted) {
  const Case which{{2000, 500}, {1}};
  const Bytes array = MakeData(DataKind::kUniform, dtype(), CountOf(which.shape), 1);
  const Layout layout = LayoutFor(which);
  Answers answers(SpecFor(which), layout.outputs);
  Job job{.spec = SpecFor(which), .array = {array.data()}};
  job.cancelled = std::make_shared<std::atomic<bool>>(true);
  EXPECT_TRUE(absl::IsCancelled(ReduceSlices(engine(), job, layout, answers)));
  job.cancelled = nullptr;
  job.deadline = absl::Now();
  EXPECT_TRUE(absl::IsDeadlineExceeded(ReduceSlices(engine(), job, layout, answers)));
  EXPECT_TRUE(answers.GuardsStand());
}

REDUCED_INSTANTIATE_BY_KIND_AND_DTYPE(EngineSlices);

}  // namespace
}  // namespace reduced::test

// Folds of the elements of one output, cut and merged: what they answer is that of the whole, bit for bit. That it is
// right, tests/contract/engine_distributions_test.cc says.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/algebra/sort_key.h"
#include "kernels/cpu/tiles.h"
#include "kernels/folds/fold.h"
#include "kernels/folds/histogram_bins.h"
#include "kernels/folds/quantile_points.h"
#include "tests/support/data.h"
#include "tests/support/runs.h"
#include "tests/unit/kernels/only_target.h"

namespace reduced {
namespace {

const FoldLimits& NoLimit() {
  static const FoldLimits& limits = *new FoldLimits{.take = [](std::int64_t) { return absl::OkStatus(); },
                                                    .give = [](std::int64_t) {},
                                                    .why_stop = [] { return absl::OkStatus(); }};
  return limits;
}

// Memory of `most` bytes.
struct Budget {
  explicit Budget(std::int64_t most) : most(most) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  const std::int64_t most;
  std::int64_t taken = 0;
  bool refused = false;
  const FoldLimits limits{.take =
                              [this](std::int64_t bytes) {
                                refused = refused || taken + bytes > most;
                                if (taken + bytes > most) return absl::ResourceExhaustedError("as the test wants it");
                                taken += bytes;
                                return absl::OkStatus();
                              },
                          .give = [this](std::int64_t bytes) { taken -= bytes; },
                          .why_stop = [] { return absl::OkStatus(); }};
};

std::vector<std::byte> BytesOfAnswers(DistributionFold& fold, const OpCall& call, DType dtype) {
  std::vector<std::byte> answers(
      static_cast<std::size_t>(AnswerElements(call) * RowOf(ResultDType(call, dtype)).bytes));
  EXPECT_EQ(fold.Finish([](std::int64_t rank) { return rank; }, answers.data()), absl::OkStatus());
  return answers;
}

// Adds the elements by blocks, to as many parts; returns how many passes there were. `sample`: what the fold is shown.
int AddAll(const test::Bytes& array, DType dtype, int parts, DistributionFold* fold, const test::Bytes& sample = {}) {
  const std::int64_t width = RowOf(dtype).bytes, count = std::ssize(array) / width;
  EXPECT_EQ(fold->Begin(count), absl::OkStatus());
  if (!sample.empty()) {
    EXPECT_EQ(fold->Sample(sample.data(), std::ssize(sample) / width), absl::OkStatus());
  }
  int passes = 0;
  absl::StatusOr<bool> again = true;
  for (; again.ok() && *again; again = fold->NextPass()) {
    ++passes;
    if (parts == 1) {
      EXPECT_EQ(fold->Add(array.data(), nullptr, 0, count), absl::OkStatus());
      continue;
    }
    std::vector<std::unique_ptr<DistributionFold>> own;
    for (int i = 0; i < parts; ++i) own.push_back(fold->Part().value());
    constexpr std::int64_t kBlock = 777;
    for (std::int64_t begin = 0; begin < count; begin += kBlock) {
      const auto part = static_cast<std::size_t>(begin / kBlock * 7 % parts);
      EXPECT_EQ(own[part]->Add(array.data() + begin * width, nullptr, begin, std::min(kBlock, count - begin)),
                absl::OkStatus());
    }
    std::reverse(own.begin(), own.end());  // any order
    for (const auto& each : own) EXPECT_EQ(fold->Merge(*each), absl::OkStatus());
  }
  EXPECT_EQ(again.status(), absl::OkStatus());
  return passes;
}

std::vector<OpCall> CallsOf(DType dtype) {
  std::vector<OpCall> calls = {Op::kMedian,
                               Op::kDistinct,
                               Op::kDistinctExact,
                               {Op::kQuantile, {.quantiles = {0, 0.3, 0.31, 1}, .method = QuantileMethod::kLower}},
                               {Op::kHistogram, {.edges = {-3, -1, 0, 1, 2}}},
                               {Op::kTopK, {.k = 100}},
                               {Op::kArgTopK, {.k = 100}},
                               {Op::kArgBottomK, {.k = 1}}};
  if (RowOf(dtype).bytes <= 2) calls.push_back(Op::kMode);
  return calls;
}

TEST(Folds, MergedPartsAnswerAsTheWhole) {
  for (const DTypeRow& dtype : kDTypes) {
    for (const test::DataKindRow& data : test::kDataKinds) {
      if (!test::Applies(data, dtype.dtype)) continue;
      const test::Bytes array = test::MakeData(data.kind, dtype.dtype, 20'011, 3);
      for (const OpCall& call : CallsOf(dtype.dtype)) {
        const ReduceSpec spec{.dtype = dtype.dtype, .ops = {call}};
        const auto whole = MakeDistributionFold(call, spec, NoLimit());
        const auto cut = MakeDistributionFold(call, spec, NoLimit());
        AddAll(array, dtype.dtype, 1, whole.get());
        AddAll(array, dtype.dtype, 5, cut.get());
        EXPECT_EQ(BytesOfAnswers(*whole, call, dtype.dtype), BytesOfAnswers(*cut, call, dtype.dtype))
            << RowOf(call).name << " of " << dtype.name << ", " << data.name;
        // A fold that was used answers the next output as a new one does.
        const test::Bytes less(array.begin(), array.begin() + 500 * dtype.bytes);
        const auto fresh = MakeDistributionFold(call, spec, NoLimit());
        AddAll(less, dtype.dtype, 1, whole.get());
        AddAll(less, dtype.dtype, 1, fresh.get());
        EXPECT_EQ(BytesOfAnswers(*whole, call, dtype.dtype), BytesOfAnswers(*fresh, call, dtype.dtype))
            << RowOf(call).name << " of " << dtype.name << ", " << data.name;
      }
    }
  }
}

// Whatever the data, and with memory for keys or without.
TEST(Folds, QuantilesTakeFewPasses) {
  std::vector<double> many;
  for (int i = 0; i < 1024; ++i) many.push_back(i / 1023.0);
  for (const DType dtype : {DType::kF64, DType::kU64, DType::kF32, DType::kF16}) {
    for (const test::DataKind data :
         {test::DataKind::kFull, test::DataKind::kEqual, test::DataKind::kSmall, test::DataKind::kOutlier}) {
      if (test::kSlowBuild && dtype == DType::kU64) continue;  // as f64 does
      const test::Bytes array = test::MakeData(data, dtype, 1'100'000, 5);
      for (const OpCall& call : {OpCall(Op::kMedian), OpCall(Op::kQuantile, {.quantiles = many})}) {
        const ReduceSpec spec{.dtype = dtype, .ops = {call}, .nan_policy = NanPolicy::kOmit};
        const auto rich = MakeDistributionFold(call, spec, NoLimit());
        Budget budget(1'000'000);
        const auto poor = MakeDistributionFold(call, spec, budget.limits);
        const int most = RowOf(dtype).bytes == 8 ? 6 : RowOf(dtype).bytes == 4 ? 3 : 1;
        EXPECT_LE(AddAll(array, dtype, 1, rich.get()), 2) << RowOf(dtype).name << ", " << static_cast<int>(data);
        const int passes = AddAll(array, dtype, 1, poor.get());
        EXPECT_LE(passes, call.op == Op::kMedian ? most : 3 * most)
            << RowOf(dtype).name << ", " << static_cast<int>(data);
        EXPECT_EQ(BytesOfAnswers(*rich, call, dtype), BytesOfAnswers(*poor, call, dtype));
      }
    }
  }
}

// Their bits differ from those of infinities in the lowest ones only.
// `count` elements from all over an array, or, `misleading`, the first one as often.
test::Bytes SampleOf(const test::Bytes& array, std::int64_t width, std::int64_t count, bool misleading) {
  test::Bytes sample;
  const std::int64_t elements = std::ssize(array) / width;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto* const from = array.data() + (misleading ? 0 : i * elements / count * width);
    sample.insert(sample.end(), from, from + width);
  }
  return sample;
}

TEST(Folds, SamplesSavePassesAndChangeNoAnswer) {
  constexpr std::int64_t kCount = 150'001;
  const OpCall calls[] = {Op::kMedian,
                          {Op::kQuantile, {.quantiles = {0, 0.001, 0.5, 0.50001, 1}}},
                          {Op::kQuantile, {.quantiles = {0.25, 0.75}, .method = QuantileMethod::kHigher}}};
  for (const DTypeRow& row : kDTypes) {
    if (row.bytes < 4) continue;
    for (const test::DataKindRow& data : test::kDataKinds) {
      if (!test::Applies(data, row.dtype)) continue;
      SCOPED_TRACE(testing::Message() << row.name << ", " << data.name);
      const test::Bytes array = test::MakeData(data.kind, row.dtype, kCount, 11);
      for (const OpCall& call : calls) {
        const ReduceSpec spec{.dtype = row.dtype, .ops = {call}, .nan_policy = NanPolicy::kOmit};
        const auto plain = MakeDistributionFold(call, spec, NoLimit());
        const int passes = AddAll(array, row.dtype, 1, plain.get());
        const std::vector<std::byte> answers = BytesOfAnswers(*plain, call, row.dtype);
        for (const bool misleading : {false, true}) {
          for (const int parts : {1, 3}) {
            const auto fold = MakeDistributionFold(call, spec, NoLimit());
            const test::Bytes sample = SampleOf(array, row.bytes, misleading ? 3000 : 10'000, misleading);
            const int more = AddAll(array, row.dtype, parts, fold.get(), sample);
            EXPECT_EQ(BytesOfAnswers(*fold, call, row.dtype), answers) << misleading << " " << parts;
            EXPECT_LE(more, passes + 1);
            if (data.kind != test::DataKind::kFull || (misleading && call.op != Op::kMedian)) continue;
            EXPECT_EQ(more == 1, !misleading) << more << " passes";
          }
        }
      }
    }
  }
}

TEST(Folds, NansNextToInfinitiesAreNoInfinities) {
  Budget poor(500'000);  // too little for keys
  for (const FoldLimits* const limits : {&NoLimit(), &poor.limits}) {
    std::vector<std::uint64_t> bits;
    for (int i = 0; i < 30'000; ++i) {
      bits.push_back(i % 3 == 0 ? 0x7ff0000000000000 : i % 3 == 1 ? 0x7ff0000000000001 : 0xfff0000000000001);
    }
    bits.push_back(0xfff0000000000000);
    const OpCall call(Op::kQuantile, {.quantiles = {0, 0.5, 1}});
    const auto fold =
        MakeDistributionFold(call, {.dtype = DType::kF64, .ops = {call}, .nan_policy = NanPolicy::kOmit}, *limits);
    const auto* const begin = reinterpret_cast<const std::byte*>(bits.data());
    AddAll(test::Bytes(begin, begin + 8 * bits.size()), DType::kF64, 3, fold.get());
    double answers[3];
    std::memcpy(answers, BytesOfAnswers(*fold, call, DType::kF64).data(), sizeof answers);
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    EXPECT_EQ(answers[0], -kInfinity);
    EXPECT_EQ(answers[1], kInfinity);
    EXPECT_EQ(answers[2], kInfinity);
  }
}

TEST(Folds, ElementsThatChangeBetweenPassesDoNoHarm) {
  const OpCall call(Op::kQuantile, {.quantiles = {0, 0.2, 0.5, 0.9, 1}, .method = QuantileMethod::kLower});
  for (const DType dtype : {DType::kF64, DType::kI32}) {
    Budget poor(200'000);  // too little for keys
    for (const FoldLimits* const limits : {&NoLimit(), &poor.limits}) {
      const auto fold = MakeDistributionFold(call, {.dtype = dtype, .ops = {call}}, *limits);
      constexpr std::int64_t kCount = 10'000;
      EXPECT_EQ(fold->Begin(kCount), absl::OkStatus());
      std::uint64_t seed = 0;
      for (bool again = true; again; again = fold->NextPass().value()) {
        const auto kind = seed % 2 == 0 ? test::DataKind::kFull : test::DataKind::kEqual;
        const test::Bytes array = test::MakeData(kind, dtype, kCount, ++seed);
        EXPECT_EQ(fold->Add(array.data(), nullptr, 0, kCount), absl::OkStatus());
      }
      BytesOfAnswers(*fold, call, dtype);
    }
  }
}

// With any amount of memory a fold has the same answer or fails by RESOURCE_EXHAUSTED, and it gives all of its memory
// back.
TEST(Folds, KeepToTheirMemory) {
  std::vector<double> many, edges;
  for (int i = 0; i < 2000; ++i) many.push_back(i / 1999.0);
  for (int i = 0; i < 10'000; ++i) edges.push_back(i);
  for (const DType dtype : {DType::kF64, DType::kI32, DType::kF16, DType::kU8}) {
    std::vector<OpCall> calls = CallsOf(dtype);
    calls.push_back({Op::kQuantile, {.quantiles = many}});
    calls.push_back({Op::kHistogram, {.edges = edges}});
    calls.push_back({Op::kTopK, {.k = 1000}});
    const test::Bytes array = test::MakeData(test::DataKind::kFull, dtype, 20'011, 3);
    const std::int64_t width = RowOf(dtype).bytes;
    for (const OpCall& call : calls) {
      const ReduceSpec spec{.dtype = dtype, .ops = {call}, .nan_policy = NanPolicy::kOmit};
      const auto rich = MakeDistributionFold(call, spec, NoLimit());
      AddAll(array, dtype, 1, rich.get());
      const std::vector<std::byte> answer = BytesOfAnswers(*rich, call, dtype);
      bool answered = false, refused = false;
      for (std::int64_t most = 0; most < 3'000'000; most = most * 5 / 4 + 4096) {
        Budget budget(most);
        {
          const auto fold = MakeDistributionFold(call, spec, budget.limits);
          absl::Status status = fold->Begin(20'011);
          for (bool again = status.ok(); again;) {
            const auto part = fold->Part();
            const auto half = std::int64_t{10'000};
            status = fold->Add(array.data(), nullptr, 0, half);
            DistributionFold* const rest = part.ok() ? part->get() : fold.get();
            status.Update(rest->Add(array.data() + half * width, nullptr, half, 20'011 - half));
            if (part.ok()) status.Update(fold->Merge(**part));
            if (!status.ok()) break;
            const absl::StatusOr<bool> next = fold->NextPass();
            status.Update(next.status());
            again = next.ok() && *next;
          }
          if (status.ok()) {
            EXPECT_EQ(BytesOfAnswers(*fold, call, dtype), answer) << RowOf(call).name << " with " << most;
            answered = true;
          } else {
            EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
            refused = true;
          }
        }
        EXPECT_EQ(budget.taken, 0) << RowOf(call).name;
      }
      EXPECT_TRUE(answered && refused) << RowOf(call).name << " of " << RowOf(dtype).name;
    }
  }
}

TEST(Folds, LooksWhereItTakesLong) {
  const test::Bytes array = test::MakeData(test::DataKind::kFull, DType::kF64, 500'000, 1);
  int looks = 0;
  FoldLimits limits = NoLimit();
  limits.why_stop = [&looks] { return ++looks > 2 ? absl::CancelledError("as the test wants it") : absl::OkStatus(); };
  const ReduceSpec spec{.dtype = DType::kF64, .ops = {Op::kDistinctExact}};
  const auto fold = MakeDistributionFold(Op::kDistinctExact, spec, limits);
  EXPECT_EQ(fold->Begin(500'000), absl::OkStatus());
  EXPECT_EQ(fold->Add(array.data(), nullptr, 0, 500'000).code(), absl::StatusCode::kCancelled);
}

TEST(Folds, SketchesEstimateToWithinAFewPercent) {
  for (const std::int64_t different : {0, 1, 2, 100, 1000, 10'000, 50'000, 300'000, 2'000'000}) {
    std::vector<std::int64_t> values;
    for (std::int64_t i = 0; i < different; ++i) values.push_back(i * 1'000'003 - 17);
    const auto fold = MakeDistributionFold(Op::kDistinct, {.dtype = DType::kI64, .ops = {Op::kDistinct}}, NoLimit());
    EXPECT_EQ(fold->Begin(different), absl::OkStatus());
    for (int twice = 0; twice < 2; ++twice)
      EXPECT_EQ(fold->Add(values.data(), nullptr, 0, different), absl::OkStatus());
    const std::vector<std::byte> answer = BytesOfAnswers(*fold, Op::kDistinct, DType::kI64);
    std::uint64_t estimate;
    std::memcpy(&estimate, answer.data(), sizeof estimate);
    EXPECT_NEAR(static_cast<double>(estimate), static_cast<double>(different), 0.025 * static_cast<double>(different));
    if (different < 3) {
      EXPECT_EQ(estimate, static_cast<std::uint64_t>(different));
    }
  }
}

// Each bin against the comparison of the element with the edges, as doubles.
template <class T>
void ExpectBins(const std::vector<double>& edges, const std::vector<T>& elements) {
  const HistogramBins<T> bins(edges);
  std::vector<std::uint64_t> all(edges.size() - 1);
  for (const T x : elements) {
    std::vector<std::uint64_t> counts(edges.size());
    bins.Count(&x, 1, counts.data());
    // As devices count.
    const auto& finder = bins.finder();
    std::vector<std::uint64_t> found(edges.size());
    const auto compared = BinFinder<T>::ValueOf(x);
    if (finder.used > 0 && finder.Has(compared)) ++found[static_cast<std::size_t>(finder.BinOf(x, compared))];
    int told = 0;
    if (finder.used > 0 && finder.even && finder.PositionTells(x, &told)) {
      EXPECT_EQ(found[static_cast<std::size_t>(told)], 1u) << "bin " << told;
    }
    double value;
    if constexpr (kIsFloat<T>) {
      value = ToDouble(x);
    } else {
      value = static_cast<double>(ToInteger(x));
    }
    for (std::int64_t bin = 0; bin < bins.bins(); ++bin) {
      const bool last = bin + 1 == bins.bins();
      const double low = edges[static_cast<std::size_t>(bin)], high = edges[static_cast<std::size_t>(bin + 1)];
      EXPECT_EQ(bins.In(bin, counts.data()), value >= low && (value < high || (last && value == high)) ? 1u : 0u)
          << value << " in [" << edges[static_cast<std::size_t>(bin)] << ", "
          << edges[static_cast<std::size_t>(bin + 1)] << ")";
      EXPECT_EQ(bins.In(bin, found.data()), bins.In(bin, counts.data())) << value << " in bin " << bin;
      all[static_cast<std::size_t>(bin)] += bins.In(bin, counts.data());
    }
  }
  const OpCall call(Op::kHistogram, {.edges = edges});
  const ReduceSpec spec{.dtype = kDTypeOf<T>, .ops = {call}};
  test::Bytes bytes(elements.size() * sizeof(T)), counted(all.size() * sizeof(all[0]));
  std::memcpy(bytes.data(), elements.data(), bytes.size());
  std::memcpy(counted.data(), all.data(), counted.size());
  for (const std::int64_t target : VectorTargets()) {
    const test::OnlyTarget only(target);
    const auto fold = MakeDistributionFold(call, spec, NoLimit());
    AddAll(bytes, kDTypeOf<T>, 1, fold.get());
    EXPECT_EQ(BytesOfAnswers(*fold, call, kDTypeOf<T>), counted) << target;
  }
}

// By every vector target, against sorting; NaNs first, and of equal elements the first ones.
TEST(Folds, TheBestAreThoseOfSorting) {
  constexpr std::int64_t kCount = 3'000;
  for (const DTypeRow& dtype : kDTypes) {
    for (const test::DataKindRow& data : test::kDataKinds) {
      if (!test::Applies(data, dtype.dtype)) continue;
      const test::Bytes array = test::MakeData(data.kind, dtype.dtype, kCount, 6);
      for (const Op op : {Op::kArgTopK, Op::kArgBottomK}) {
        std::vector<std::uint64_t> right(kCount);
        VisitDType(dtype.dtype, [&]<class T>(std::type_identity<T>) {
          using Key = SortKey<T>;
          const auto key = [&](std::uint64_t i) {
            T x;
            std::memcpy(&x, array.data() + i * sizeof(T), sizeof(T));
            const typename Key::Type of = Key::Of(x);
            if (op == Op::kArgTopK) return static_cast<typename Key::Type>(~of);
            return kIsFloat<T> ? static_cast<typename Key::Type>(of + 1) : of;
          };
          std::iota(right.begin(), right.end(), 0U);
          std::ranges::stable_sort(right, {}, key);
        });
        for (const std::int64_t k : {1, 7, 100}) {
          const OpCall call(op, {.k = k});
          const ReduceSpec spec{.dtype = dtype.dtype, .ops = {call}};
          test::Bytes wanted(static_cast<std::size_t>(8 * k));
          std::memcpy(wanted.data(), right.data(), wanted.size());
          for (const std::int64_t target : VectorTargets()) {
            const test::OnlyTarget only(target);
            const auto fold = MakeDistributionFold(call, spec, NoLimit());
            AddAll(array, dtype.dtype, 1, fold.get());
            EXPECT_EQ(BytesOfAnswers(*fold, call, dtype.dtype), wanted)
                << RowOf(op).name << "(" << k << ") of " << dtype.name << ", " << data.name << ", target " << target;
          }
        }
      }
    }
  }
}

// In even bins the bin of most elements is told by their position alone, even next to an edge.
TEST(HistogramBins, PositionsTellTheBinsOfEdgesAndTheirNeighbours) {
  for (const double high : {1.0, 3.0, 1e-3, 1e5, 128.0}) {
    std::vector<double> edges;
    for (int i = 0; i <= 240; ++i) edges.push_back(-high + 2 * high / 240 * i);
    std::vector<float> floats;
    std::vector<double> doubles;
    for (const double edge : edges) {
      for (const double x : {std::nextafter(edge, -1e9), edge, std::nextafter(edge, 1e9), edge + high / 480}) {
        doubles.push_back(x);
        for (const float toward : {-1e9F, 1e9F}) floats.push_back(std::nextafter(static_cast<float>(x), toward));
      }
    }
    EXPECT_LT(HistogramBins<float>(edges).finder().margin, 0.5F);
    EXPECT_LT(HistogramBins<double>(edges).finder().margin, 0.5);
    ExpectBins(edges, floats);
    ExpectBins(edges, doubles);
  }
}

TEST(HistogramBins, BinsEndWhereTheirEdgesAre) {
  constexpr double kMost = std::numeric_limits<double>::max(), kLeast = std::numeric_limits<double>::denorm_min();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<std::vector<double>> edges = {
      {0, 1},
      {-0.0, kLeast},
      {-kLeast, 0},
      {-kLeast, 0, kLeast},
      {-kMost, kMost},
      {1e300, kMost},
      {-kMost, -1e300},
      {0, 0.1, 0.2, 0.3},
      {-1, 0, 1, 2, 3},
      {-1.5, -0.5, 0.5, 1.5},
      {254.5, 255.5},
      {0, 1, 255, 1000},
      {-128, 126, 127, 1e30},
      {0, 1, 4294967295.0, 1e30},
      {127, 127.5, 128, 300},
      {-200, -128, -127.5},
      {1.8446744073709549e19, 1.8446744073709552e19},
      {-9223372036854775808.0, 9223372036854774784.0, 9223372036854775808.0},
      {-5, -4},
      {65504, 65505, 65536}};
  for (const std::vector<double>& each : edges) {
    ExpectBins<std::uint8_t>(each, {0, 1, 2, 127, 128, 254, 255});
    ExpectBins<std::int8_t>(each, {-128, -127, -1, 0, 1, 126, 127});
    ExpectBins<Bool>(each, {Bool{0}, Bool{1}, Bool{7}});
    ExpectBins<std::int64_t>(each,
                             {std::numeric_limits<std::int64_t>::min(), -5, -4, -1, 0, 1, 255, 256, 9223372036854774783,
                              9223372036854774784, std::numeric_limits<std::int64_t>::max()});
    ExpectBins<std::uint64_t>(
        each, {0, 1, 3, 255, 18446744073709549567u, 18446744073709549568u, std::numeric_limits<std::uint64_t>::max()});
    ExpectBins<double>(each, {-kInfinity, -kMost, -1e300, -1.5, -kLeast, -0.0, 0.0, kLeast, 0.1, 0.2, 0.3, 1, 1e300,
                              kMost, kInfinity, std::nan("")});
    ExpectBins<float>(each, {-std::numeric_limits<float>::infinity(), -1.5F, -std::numeric_limits<float>::denorm_min(),
                             -0.0F, 0.0F, std::numeric_limits<float>::denorm_min(), 0.1F, 0.2F, 0.3F,
                             std::numeric_limits<float>::max(), std::numeric_limits<float>::infinity()});
    ExpectBins<Half>(each, {Half{0}, Half{1}, Half{0x8000}, Half{0x8001}, Half{0x7bff}, Half{0x7c00}, Half{0xfc00},
                            Half{0x7e00}, Half{0x3c00}, Half{0x2e66}});
  }
}

TEST(SortKey, OrdersElementsAndFindsThemAgain) {
  const std::vector<double> ascending = {
      -std::numeric_limits<double>::infinity(), -1,          -1e-310, -0.0, 0.0, 1e-310, 1,
      std::numeric_limits<double>::infinity(),  std::nan("")};
  for (std::size_t i = 0; i < ascending.size(); ++i) {
    const auto key = SortKey<double>::Of(ascending[i]);
    if (i > 0) {
      EXPECT_GT(key, SortKey<double>::Of(ascending[i - 1]));
    }
    if (!std::isnan(ascending[i])) {
      EXPECT_EQ(std::bit_cast<std::uint64_t>(SortKey<double>::Element(key)),
                std::bit_cast<std::uint64_t>(ascending[i]));
    }
  }
  EXPECT_EQ(SortKey<double>::Of(-std::nan("")), SortKey<double>::kNan);
  EXPECT_EQ(SortKey<double>::OfValue(-0.0), SortKey<double>::Of(0.0));
  EXPECT_EQ(SortKey<std::int8_t>::Element(SortKey<std::int8_t>::Of(-128)), -128);
  EXPECT_EQ(SortKey<std::uint8_t>::Of(255), 255);
}

TEST(QuantilePoints, AreNumPys) {
  const auto expect = [](double q, std::int64_t count, QuantileMethod method, std::int64_t lower, std::int64_t higher) {
    const QuantilePoint point = PointOf(q, count, method);
    EXPECT_EQ(point.lower, lower) << q << " of " << count;
    EXPECT_EQ(point.higher, higher) << q << " of " << count;
  };
  expect(0.5, 1, QuantileMethod::kLinear, 0, 0);
  expect(0.5, 2, QuantileMethod::kLinear, 0, 1);
  expect(0.5, 2, QuantileMethod::kNearest, 0, 0);  // ties to even
  expect(0.5, 4, QuantileMethod::kNearest, 2, 2);
  expect(0.5, 4, QuantileMethod::kLower, 1, 1);
  expect(0.5, 4, QuantileMethod::kHigher, 2, 2);
  expect(1, std::numeric_limits<std::int64_t>::max(), QuantileMethod::kLinear,
         std::numeric_limits<std::int64_t>::max() - 1, std::numeric_limits<std::int64_t>::max() - 1);
  EXPECT_EQ(Between(1, 3, 0.25), 1.5);
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Between(infinity, infinity, 0.5), infinity);
  EXPECT_EQ(Between(1, infinity, 0.25), infinity);
  EXPECT_TRUE(std::isnan(Between(-infinity, infinity, 0.5)));
}

TEST(QuantilePoints, WhatIsHalfwayIsRoundedOnce) {
  constexpr double kMost = std::numeric_limits<double>::max(), kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Halfway(kMost, kMost), kMost);
  EXPECT_EQ(Halfway(-kMost, kMost), 0);
  EXPECT_EQ(Halfway(1.0, kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(Halfway(-kInfinity, kInfinity)));
  EXPECT_EQ(Halfway(5e-324, 1e-323), 1e-323);  // 1.5 of the smallest steps: ties to even
  const std::uint64_t large = std::uint64_t{1} << 63;
  EXPECT_EQ(Halfway(large - 1, large + 1), 0x1p63);
  EXPECT_EQ(Halfway(std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()), -0.5);
}

}  // namespace
}  // namespace reduced

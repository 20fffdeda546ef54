// Ops about distributions, by a table: partitions x dtypes x data x policies x calls, against what sorting the elements
// of each output says.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/pipelines.h"
#include "tests/contract/engine_fixture.h"
#include "tests/contract/partitions.h"
#include "tests/support/data.h"
#include "tests/support/runs.h"

namespace reduced::test {
namespace {

using ::testing::HasSubstr;

// An element of any dtype: a long double holds each of them.
struct AnyElement {
  long double value = 0;
  bool nan = false;
  bool minus_zero = false;
  std::int64_t index = 0;  // as answers count it
  std::uint64_t bits = 0;
};

bool Before(const AnyElement& a, const AnyElement& b) {  // NaNs last
  if (a.nan || b.nan) return !a.nan;
  if (a.value != b.value) return a.value < b.value;
  return a.minus_zero && !b.minus_zero;
}
bool Same(const AnyElement& a, const AnyElement& b) {
  return a.nan == b.nan && (a.nan || (a.value == b.value && a.minus_zero == b.minus_zero));
}

AnyElement AnyElementOf(DType dtype, const std::byte* at) {
  return VisitDType(dtype, [&]<class T>(std::type_identity<T>) {
    T x;
    std::memcpy(&x, at, sizeof x);
    AnyElement element;
    std::memcpy(&element.bits, at, sizeof x);
    if constexpr (kIsFloat<T>) {
      element.value = ToDouble(x);
      element.nan = IsNan(x);
      element.minus_zero = element.value == 0 && std::signbit(ToDouble(x));
    } else {
      element.value = static_cast<long double>(ToInteger(x));
    }
    return element;
  });
}

// The answers of one call for one output. All numbers are exact as long doubles.
struct Wanted {
  std::vector<AnyElement> answers{};
  bool near = false;   // an estimate
  bool error = false;  // under EmptyPolicy::kError
};

AnyElement Number(long double value) {
  return {.value = value, .nan = std::isnan(value), .minus_zero = value == 0 && std::signbit(value)};
}

double Interpolated(double a, double b, double t) {
  if (a == b) return a;
  return t >= 0.5 ? b - (b - a) * (1 - t) : a + (b - a) * t;
}

// The double nearest to the mean.
double Halfway(const AnyElement& lower, const AnyElement& higher) {
  const auto a = static_cast<double>(lower.value), b = static_cast<double>(higher.value);
  if (std::isinf(a) || std::isinf(b)) return a + b;
  if (a == 0 && b == 0) return lower.minus_zero && higher.minus_zero ? -0.0 : 0.0;
  return static_cast<double>((static_cast<__float128>(lower.value) + static_cast<__float128>(higher.value)) / 2);
}

// The functions below that look for an order take the elements sorted, by Before.
std::int64_t CountNumbers(const std::vector<AnyElement>& sorted) {
  return std::partition_point(sorted.begin(), sorted.end(), [](const AnyElement& x) { return !x.nan; }) -
         sorted.begin();
}

Wanted WantQuantiles(const std::vector<AnyElement>& sorted, const std::vector<double>& quantiles, QuantileMethod method,
                     bool omits, bool is_float) {
  const bool in_f64 = method == QuantileMethod::kLinear || method == QuantileMethod::kMidpoint;
  const std::int64_t numbers = CountNumbers(sorted);
  Wanted wanted;
  for (const double q : quantiles) {
    if (numbers == 0 || (numbers < std::ssize(sorted) && !omits)) {
      wanted.answers.push_back(in_f64 || is_float ? AnyElement{.nan = true} : AnyElement{});
      wanted.error = !in_f64 && !is_float;
      continue;
    }
    const double at = static_cast<double>(numbers - 1) * q;
    const AnyElement& lower = sorted[static_cast<std::size_t>(std::floor(at))];
    const AnyElement& higher = sorted[static_cast<std::size_t>(std::ceil(at))];
    const auto a = static_cast<double>(lower.value), b = static_cast<double>(higher.value);
    switch (method) {
      case QuantileMethod::kLinear:
        wanted.answers.push_back(
            Number(Interpolated(lower.minus_zero ? -0.0 : a, higher.minus_zero ? -0.0 : b, at - std::floor(at))));
        break;
      case QuantileMethod::kMidpoint:
        wanted.answers.push_back(Number(Interpolated(lower.minus_zero ? -0.0 : a, higher.minus_zero ? -0.0 : b, 0.5)));
        break;
      case QuantileMethod::kLower:
        wanted.answers.push_back(lower);
        break;
      case QuantileMethod::kHigher:
        wanted.answers.push_back(higher);
        break;
      case QuantileMethod::kNearest:
        wanted.answers.push_back(sorted[static_cast<std::size_t>(std::nearbyint(at))]);
        break;
    }
  }
  return wanted;
}

Wanted WantMedian(const std::vector<AnyElement>& sorted, QuantileMethod method, bool omits, bool is_float) {
  if (method == QuantileMethod::kLinear || method == QuantileMethod::kMidpoint) {
    const Wanted lower = WantQuantiles(sorted, {0.5}, QuantileMethod::kLower, omits, is_float);
    const Wanted higher = WantQuantiles(sorted, {0.5}, QuantileMethod::kHigher, omits, is_float);
    if (lower.error || lower.answers[0].nan) return {.answers = {{.nan = true}}};
    return {.answers = {Number(Halfway(lower.answers[0], higher.answers[0]))}};
  }
  return WantQuantiles(sorted, {0.5}, method, omits, is_float);
}

Wanted WantHistogram(const std::vector<AnyElement>& elements, const std::vector<double>& edges) {
  std::vector<std::int64_t> counts(edges.size() - 1);
  for (const AnyElement& x : elements) {
    const auto value = static_cast<double>(x.value);  // rounds integers of 64 bits
    if (x.nan || value < edges.front() || value > edges.back()) continue;
    const auto above = std::upper_bound(edges.begin(), edges.end(), value);
    ++counts[std::min<std::size_t>(static_cast<std::size_t>(above - edges.begin()) - 1, counts.size() - 1)];
  }
  Wanted wanted;
  for (const std::int64_t count : counts) wanted.answers.push_back(Number(static_cast<long double>(count)));
  return wanted;
}

Wanted WantTop(std::vector<AnyElement> elements, const OpCall& call, DType dtype, bool omits) {
  const bool lowest = call.op == Op::kBottomK || call.op == Op::kArgBottomK;
  const bool index = call.op == Op::kArgTopK || call.op == Op::kArgBottomK;
  if (omits) std::erase_if(elements, [](const AnyElement& each) { return each.nan; });
  const auto k = static_cast<std::size_t>(call.given().k);
  const auto better = [lowest](const AnyElement& a, const AnyElement& b) {
    if (a.nan != b.nan) return a.nan;
    if (Same(a, b)) return a.index < b.index;
    return lowest ? Before(a, b) : Before(b, a);
  };
  const auto best = std::min(elements.size(), k);
  std::partial_sort(elements.begin(), elements.begin() + static_cast<std::ptrdiff_t>(best), elements.end(), better);
  Wanted wanted{.error = elements.size() < k};
  for (std::size_t i = 0; i < k; ++i) {
    if (i < elements.size()) {
      wanted.answers.push_back(index ? Number(static_cast<long double>(elements[i].index)) : elements[i]);
    } else if (index) {
      wanted.answers.push_back(Number(static_cast<long double>(~std::uint64_t{0})));
    } else {
      std::byte fill[8];
      StoreValue(EmptyValue(lowest ? Op::kMin : Op::kMax, dtype), fill);
      wanted.answers.push_back(AnyElementOf(dtype, fill));
    }
  }
  return wanted;
}

Wanted WantDistinct(const std::vector<AnyElement>& sorted, bool omits, bool estimated) {
  const std::int64_t numbers = CountNumbers(sorted);
  std::int64_t distinct = numbers < std::ssize(sorted) && !omits ? 1 : 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(numbers); ++i) {
    distinct += i == 0 || sorted[i].value != sorted[i - 1].value ? 1 : 0;
  }
  return {.answers = {Number(static_cast<long double>(distinct))}, .near = estimated};
}

Wanted WantMode(const std::vector<AnyElement>& elements, bool omits, bool is_float) {
  std::map<long double, std::int64_t> counts;
  for (const AnyElement& each : elements) {
    if (each.nan && !omits) return {.answers = {AnyElement{.nan = true}}};
    if (!each.nan) ++counts[each.value];
  }
  if (counts.empty()) return {.answers = {is_float ? AnyElement{.nan = true} : AnyElement{}}, .error = true};
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return {.answers = {Number(most->first + 0.0L)}};
}

// s + a (the sum of (w + 1) a^j) of the words w at places j, as reduced.proto has it, by remainders of 128 bits.
Wanted WantFingerprint(const std::vector<AnyElement>& elements, int bytes) {
  constexpr std::uint64_t kModulus = 2305843009213693951;
  Wanted wanted;
  for (const std::uint64_t base : {std::uint64_t{0x0d413cccfe779921}, std::uint64_t{0x176cf5d0b09954e7}}) {
    const auto times = [](std::uint64_t a, std::uint64_t b) {
      return static_cast<std::uint64_t>(static_cast<UInt128>(a) * b % kModulus);
    };
    std::uint64_t sum = 0;
    for (const AnyElement& each : elements) {
      const int words = bytes == 8 ? 2 : 1;
      std::uint64_t power = 1, square = base;
      for (auto left = static_cast<std::uint64_t>(each.index * words); left != 0; left /= 2) {
        if (left % 2 == 1) power = times(power, square);
        square = times(square, square);
      }
      for (int word = 0; word < words; ++word, power = times(power, base)) {
        const std::uint64_t bits = words == 1 ? each.bits : each.bits >> (32 * word) & 0xffffffff;
        sum = (sum + times(bits + 1, power)) % kModulus;
      }
    }
    const std::uint64_t answer = (static_cast<std::uint64_t>(bytes) + times(sum, base)) % kModulus;
    wanted.answers.push_back(Number(static_cast<long double>(answer)));
  }
  return wanted;
}

Wanted Want(const std::vector<AnyElement>& sorted, const OpCall& call, const ReduceSpec& spec) {
  const bool omits = spec.nan_policy == NanPolicy::kOmit;
  const bool is_float = RowOf(spec.dtype).is_float;
  const OpParameters& given = call.given();
  switch (call.op) {
    case Op::kMedian:
      return WantMedian(sorted, given.method, omits, is_float);
    case Op::kQuantile:
      return WantQuantiles(sorted, given.quantiles, given.method, omits, is_float);
    case Op::kHistogram:
      return WantHistogram(sorted, given.edges);
    case Op::kDistinct:
    case Op::kDistinctExact:
      return WantDistinct(sorted, omits, call.op == Op::kDistinct && RowOf(spec.dtype).bytes > 2);
    case Op::kMode:
      return WantMode(sorted, omits, is_float);
    case Op::kFingerprint:
      return WantFingerprint(sorted, RowOf(spec.dtype).bytes);
    case Op::kCount:
      return {.answers = {Number(static_cast<long double>(omits ? CountNumbers(sorted) : std::ssize(sorted)))}};
    default:
      return WantTop(sorted, call, spec.dtype, omits);
  }
}

std::vector<double> Even(double low, double high, int bins) {
  std::vector<double> edges;
  for (int i = 0; i <= bins; ++i) edges.push_back(i == bins ? high : low + (high - low) / bins * i);
  return edges;
}

std::vector<OpCall> CallsFor(DType dtype) {
  constexpr double kLargest = std::numeric_limits<double>::max();
  const std::vector<double> logarithmic = {1e-300, 1e-30, 1e-6, 1e-5,   1e-3, 0.5,  1,
                                           2,      4,     1e3,  70'000, 1e19, 1e39, kLargest};
  std::vector<OpCall> calls = {
      Op::kMedian,
      {Op::kMedian, {.method = QuantileMethod::kLower}},
      Op::kDistinct,
      Op::kCount,
      Op::kDistinctExact,
      Op::kFingerprint,
      {Op::kHistogram, {.edges = Even(-1, 1, 10)}},
      {Op::kHistogram, {.edges = Even(-128, 127, 255)}},
      {Op::kHistogram, {.edges = Even(0, 1e9, 7)}},
      {Op::kHistogram, {.edges = logarithmic}},
      {Op::kHistogram, {.edges = {-kLargest, -1e300, -2, -0.0, 1, 2, 3, kLargest}}},
      {Op::kHistogram, {.edges = {-9.3e18, -9223372036854775808.0, 9223372036854775807.0, 18446744073709551615.0}}},
      {Op::kHistogram, {.edges = {1e300, 2e300}}},
      {Op::kHistogram, {.edges = {-2, -1.5}}},
  };
  for (const QuantileMethod method : {QuantileMethod::kLinear, QuantileMethod::kLower, QuantileMethod::kHigher,
                                      QuantileMethod::kNearest, QuantileMethod::kMidpoint}) {
    calls.push_back({Op::kQuantile, {.quantiles = {0.5, 0, 1, 0.25, 0.9, 1.0 / 3, 0.75, 0.999}, .method = method}});
  }
  for (const Op op : {Op::kTopK, Op::kBottomK, Op::kArgTopK, Op::kArgBottomK}) {
    for (const std::int64_t k : {1, 3, 100}) calls.push_back({op, {.k = k}});
  }
  if (RowOf(dtype).bytes <= 2) calls.push_back(Op::kMode);
  return calls;
}

// The elements of each output: their indexes in the array, and what answers call these.
using ElementsOfOutputs = std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>>;

// A partition, and what it says in plain words.
struct PartitionCase {
  std::string name;
  std::vector<std::int64_t> shape;
  Partition partition{};
  std::vector<std::shared_ptr<const Bytes>> side{};  // has what the partition refers to
  std::function<ElementsOfOutputs()> outputs{};      // of a large array this takes longer than its answers
};

std::int64_t CountOf(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

PartitionCase Along(std::string name, std::vector<std::int64_t> shape, std::vector<bool> axes) {
  PartitionCase each{.name = std::move(name), .shape = shape};
  each.partition.layout = LayoutOf(shape, axes);
  each.outputs = [shape = std::move(shape), axes = std::move(axes)] {
    ElementsOfOutputs outputs;
    // Row-major over all elements: outputs and positions come in their order.
    for (std::int64_t i = 0; i < CountOf(shape); ++i) {
      std::size_t number = 0, stride = 1;
      std::int64_t left = i;
      for (std::size_t d = shape.size(); d-- > 0; left /= shape[d]) {
        if (axes[d]) continue;
        number += static_cast<std::size_t>(left % shape[d]) * stride;
        stride *= static_cast<std::size_t>(shape[d]);
      }
      if (number >= outputs.size()) outputs.resize(number + 1);
      outputs[number].emplace_back(i, std::ssize(outputs[number]));
    }
    return outputs;
  };
  return each;
}

Layout Columns(const std::vector<std::int64_t>& shape) {
  std::vector<bool> axes(shape.size(), false);
  axes[0] = true;
  return LayoutOf(shape, axes);
}

PartitionCase BySegments(std::string name, std::vector<std::int64_t> shape, const std::vector<std::int64_t>& offsets) {
  PartitionCase each{
      .name = std::move(name), .shape = shape, .side = {std::make_shared<const Bytes>(BytesOf(offsets))}};
  each.partition.layout = Columns(shape);
  each.partition.rows = shape[0];
  each.partition.segments = Segments{.bounds = SideOf(DType::kI64, *each.side[0])};
  each.outputs = [columns = CountOf(shape) / shape[0], offsets] {
    ElementsOfOutputs outputs;
    for (std::size_t s = 0; s + 1 < offsets.size(); ++s) {
      for (std::int64_t column = 0; column < columns; ++column) {
        auto& output = outputs.emplace_back();
        for (std::int64_t row = offsets[s]; row < offsets[s + 1]; ++row) {
          output.emplace_back(row * columns + column, row - offsets[s]);
        }
      }
    }
    return outputs;
  };
  return each;
}

PartitionCase ByKeys(std::string name, std::vector<std::int64_t> shape, bool given) {
  std::vector<std::int32_t> keys;
  for (std::int64_t row = 0; row < shape[0]; ++row) keys.push_back(static_cast<std::int32_t>(row * 7 % 11 % 5));
  PartitionCase each{.name = std::move(name), .shape = shape, .side = {std::make_shared<const Bytes>(BytesOf(keys))}};
  each.partition.layout = Columns(shape);
  each.partition.rows = shape[0];
  each.partition.keys = Keys{.keys = SideOf(DType::kI32, *each.side[0]), .groups = given ? 6 : 0};
  each.outputs = [rows = shape[0], columns = CountOf(shape) / shape[0], keys = std::move(keys), given] {
    ElementsOfOutputs outputs;
    for (std::int32_t group = 0; group < (given ? 6 : 5); ++group) {  // no row has key 5
      for (std::int64_t column = 0; column < columns; ++column) {
        auto& output = outputs.emplace_back();
        for (std::int64_t row = 0; row < rows; ++row) {
          if (keys[static_cast<std::size_t>(row)] == group) output.emplace_back(row * columns + column, row);
        }
      }
    }
    return outputs;
  };
  return each;
}

// The same under a mask that leaves two elements of three, or one of `sparse`.
PartitionCase Masked(PartitionCase each, bool bits, std::int64_t sparse = 0) {
  const std::int64_t count = CountOf(each.shape);
  std::vector<std::uint8_t> mask(static_cast<std::size_t>(bits ? count / 8 + 2 : count));
  const auto keeps = [sparse](std::int64_t i) { return sparse > 0 ? i % sparse == 5 : i % 3 != 1; };
  constexpr std::int64_t kFirstBit = 3;
  for (std::int64_t i = 0; i < count; ++i) {
    if (!keeps(i)) continue;
    const std::int64_t bit = kFirstBit + i;
    if (bits) {
      mask[static_cast<std::size_t>(bit / 8)] |= static_cast<std::uint8_t>(1 << (bit % 8));
    } else {
      mask[static_cast<std::size_t>(i)] = 1;
    }
  }
  each.name += bits ? " under bits" : " under a mask";
  each.side.push_back(std::make_shared<const Bytes>(BytesOf(mask)));
  each.partition.mask = Mask{.array = SideOf(bits ? DType::kU8 : DType::kBool, *each.side.back()),
                             .bits = bits,
                             .first_bit = bits ? kFirstBit : 0};
  each.outputs = [all = std::move(each.outputs), keeps] {
    ElementsOfOutputs outputs = all();
    for (auto& output : outputs) {
      std::erase_if(output, [&](const auto& element) { return !keeps(element.first); });
    }
    return outputs;
  };
  return each;
}

class EngineDistributionsTest : public EngineTest<KindAndDType> {
 protected:
  DType dtype() const { return std::get<DType>(GetParam()); }
  // For what differs by the width of elements and whether there may be NaNs, in builds where it takes long for each
  // dtype.
  bool IsLikeAnother() const {
    constexpr DType kOnes[] = {DType::kI8, DType::kU16, DType::kBF16, DType::kF32, DType::kI64, DType::kF64};
    return kSlowBuild && std::find(std::begin(kOnes), std::end(kOnes), dtype()) == std::end(kOnes);
  }

  void Check(const PartitionCase& each, DataKind data, std::uint64_t seed, NanPolicy policy,
             const std::vector<OpCall>& calls) const {
    const std::int64_t count = CountOf(each.shape);
    const Bytes array = MakeData(data, dtype(), count, seed);
    ReduceSpec spec = Spec(dtype(), count);
    spec.ops = calls;
    spec.nan_policy = policy;
    spec.empty_policy = EmptyPolicy::kFill;
    ASSERT_EQ(Validate(each.partition, spec), absl::OkStatus());
    const Reply reply = ReducePartition(engine(), {.spec = spec, .array = {array.data()}}, each.partition);
    ASSERT_EQ(reply.status, absl::OkStatus()) << each.name;
    const ElementsOfOutputs outputs = each.outputs();
    ASSERT_EQ(reply.outputs, std::ssize(outputs)) << each.name;
    const int width = RowOf(dtype()).bytes;
    for (std::size_t output = 0; output < outputs.size(); ++output) {
      std::vector<AnyElement> elements;
      for (const auto& [at, index] : outputs[output]) {
        elements.push_back(AnyElementOf(dtype(), array.data() + at * width));
        elements.back().index = index;
      }
      std::sort(elements.begin(), elements.end(), Before);
      for (std::size_t i = 0; i < calls.size(); ++i) {
        const Wanted wanted = Want(elements, calls[i], spec);
        const DType result = ResultDType(calls[i], dtype());
        ASSERT_EQ(std::ssize(wanted.answers), AnswerElements(calls[i]));
        const std::int64_t bytes = RowOf(result).bytes;
        const std::byte* const got =
            reply.answers->data[i] + static_cast<std::int64_t>(output) * AnswerElements(calls[i]) * bytes;
        for (std::size_t j = 0; j < wanted.answers.size(); ++j) {
          const AnyElement answer = AnyElementOf(result, got + static_cast<std::int64_t>(j) * bytes);
          const AnyElement& right = wanted.answers[j];
          const bool is_right =
              wanted.near ? std::abs(answer.value - right.value) <= 2 + 0.04L * right.value : Same(answer, right);
          ASSERT_TRUE(is_right) << each.name << ", " << RowOf(calls[i]).name << " " << i << " of output " << output
                                << "[" << j << "], data " << static_cast<int>(data) << ", policy "
                                << static_cast<int>(policy) << ": got " << static_cast<double>(answer.value)
                                << (answer.nan ? " nan" : "") << ", not " << static_cast<double>(right.value)
                                << (right.nan ? " nan" : "") << ", " << elements.size() << " elements";
        }
      }
    }
  }

  void CheckAll(const PartitionCase& each, std::uint64_t seed) const {
    for (const DataKindRow& data : kDataKinds) {
      if (!Applies(data, dtype())) continue;
      for (const NanPolicy policy : {NanPolicy::kPropagate, NanPolicy::kOmit}) {
        Check(each, data.kind, seed, policy, CallsFor(dtype()));
        if (HasFatalFailure()) return;
      }
    }
  }
};

TEST_P(EngineDistributionsTest, EachPartitionAnswersAsSortingSays) {
  const std::vector<PartitionCase> plain = {
      Along("whole", {61}, {true}),
      Along("one element", {1}, {true}),
      Along("two elements", {2}, {true}),
      Along("whole of two dimensions", {7, 9}, {true, true}),
      Along("rows", {5, 17}, {false, true}),
      Along("columns", {17, 5}, {true, false}),
      Along("the middle", {3, 11, 2}, {false, true, false}),
      Along("both ends", {3, 4, 5}, {true, false, true}),
      Along("no axis", {6}, {false}),
      BySegments("segments", {23}, {0, 1, 1, 9, 23}),
      BySegments("segments of columns", {23, 2}, {2, 2, 11, 20}),
      ByKeys("given keys", {41}, true),
      ByKeys("found keys", {41}, false),
      ByKeys("given keys of columns", {29, 3}, true),
      ByKeys("found keys of columns", {29, 3}, false),
  };
  for (const PartitionCase& each : plain) {
    CheckAll(each, 2);
    if (HasFatalFailure()) return;
    if (kSlowBuild && each.name.find("columns") == std::string::npos) continue;
    // Of found keys, whose rows a mask leaves out altogether, there may be none: 41 rows have several of each.
    CheckAll(Masked(each, false), 3);
    if (HasFatalFailure()) return;
    CheckAll(Masked(each, true), 4);
    if (HasFatalFailure()) return;
  }
}

// Outputs that take several passes, in tables of either size, and that are cut over threads.
TEST_P(EngineDistributionsTest, LongOutputsAnswerAsSortingSays) {
  if (IsLikeAnother()) GTEST_SKIP() << "another dtype does the same";
  const std::vector<OpCall> calls = {
      Op::kMedian,
      Op::kDistinct,
      Op::kDistinctExact,
      {Op::kQuantile, {.quantiles = {0.001, 0.5, 0.25, 0.75, 1}, .method = QuantileMethod::kHigher}},
      {Op::kHistogram, {.edges = Even(-1, 1, 100)}},
      {Op::kTopK, {.k = 1024}},
      {Op::kArgBottomK, {.k = 1024}},
  };
  const auto check = [&](const PartitionCase& each, DataKind data, NanPolicy policy) {
    if (Applies(kDataKinds[static_cast<int>(data)], dtype())) Check(each, data, 6, policy, calls);
  };
  const PartitionCase rows = Along("rows", {2, 9'000}, {false, true});
  const PartitionCase cut = Along("whole", {150'000}, {true});
  for (const DataKindRow& data : kDataKinds) {
    check(rows, data.kind, NanPolicy::kOmit);
    if (RowOf(dtype()).bytes == 8) check(cut, data.kind, NanPolicy::kPropagate);
    if (HasFatalFailure()) return;
  }
  const PartitionCase large = Along("large", {1'100'000}, {true});
  for (const DataKind data : {DataKind::kFull, DataKind::kSomeNan}) {
    check(large, data, NanPolicy::kOmit);
    if (HasFatalFailure()) return;
  }
  check(Masked(cut, true), DataKind::kFull, NanPolicy::kPropagate);
  check(Masked(large, false, 10'007), DataKind::kFull, NanPolicy::kPropagate);
  check(Masked(Along("columns", {60'000, 20}, {true, false}), true, 9001), DataKind::kFull, NanPolicy::kPropagate);
  check(Masked(ByKeys("keys", {100'000}, false), false), DataKind::kUniform, NanPolicy::kPropagate);
}

// So many elements that a sample of them pays.
TEST_P(EngineDistributionsTest, QuantilesOfManyElements) {
  constexpr DType kSampled[] = {DType::kF32, DType::kF64, DType::kI32, DType::kU64};
  if (std::find(std::begin(kSampled), std::end(kSampled), dtype()) == std::end(kSampled)) GTEST_SKIP() << "as others";
  const std::vector<OpCall> calls = {Op::kMedian, {Op::kQuantile, {.quantiles = {0, 0.25, 0.75, 0.999, 1}}}};
  for (const DataKind data : {DataKind::kFull, DataKind::kSmall, DataKind::kSomeNan}) {
    if (!Applies(kDataKinds[static_cast<int>(data)], dtype()) || (kSlowBuild && data != DataKind::kFull)) continue;
    Check(Along("whole", {1'300'007}, {true}), data, 9, NanPolicy::kOmit, calls);
    if (HasFatalFailure()) return;
  }
  Check(Along("rows", {2, 1'048'579}, {false, true}), DataKind::kFull, 10, NanPolicy::kPropagate, calls);
}

TEST_P(EngineDistributionsTest, ManyQuantilesAtOnce) {
  if (IsLikeAnother()) GTEST_SKIP() << "another dtype does the same";
  std::vector<double> quantiles;
  for (int i = 0; i < 1024; ++i) quantiles.push_back(i * 37 % 1024 / 1023.0);
  const std::vector<OpCall> calls = {{Op::kQuantile, {.quantiles = quantiles}},
                                     {Op::kHistogram, {.edges = Even(-1, 1, 65'536)}}};
  for (const std::int64_t count : {3, 5000, 400'000}) {
    Check(Along("whole", {count}, {true}), DataKind::kFull, 8, NanPolicy::kOmit, calls);
    Check(Along("whole", {count}, {true}), DataKind::kSmall, 8, NanPolicy::kOmit, calls);
    if (HasFatalFailure()) return;
  }
}

// What an op has no answer for is an error of it, and the others answer where they may.
TEST_P(EngineDistributionsTest, TooFewElementsAreAnErrorOfTheOp) {
  const PartitionCase each = BySegments("segments", {9}, {0, 4, 4, 9});
  const Bytes array = MakeData(DataKind::kSmall, dtype(), 9, 1);
  ReduceSpec spec = Spec(dtype(), 9);
  spec.ops = {Op::kCount, {Op::kTopK, {.k = 4}}, Op::kMedian, Op::kMax, {Op::kArgBottomK, {.k = 5}}};
  const Job job{.spec = spec, .array = {array.data()}};
  const Reply refused = ReducePartition(engine(), job, each.partition);
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kInvalidArgument) << refused.status;
  EXPECT_THAT(std::string(refused.status.message()), HasSubstr("[1]"));

  std::vector<absl::Status> errors;
  Job with_errors = job;
  with_errors.errors = &errors;
  const Reply reply = ReducePartition(engine(), with_errors, each.partition);
  ASSERT_EQ(reply.status, absl::OkStatus());
  ASSERT_EQ(errors.size(), spec.ops.size());
  EXPECT_EQ(errors[0], absl::OkStatus());
  EXPECT_EQ(errors[2], absl::OkStatus());
  EXPECT_EQ(errors[3].code(), absl::StatusCode::kInvalidArgument) << errors[3];
  EXPECT_THAT(std::string(errors[1].message()),
              HasSubstr("[1]: op topk: got no element; allowed: at least 4 elements"));
  EXPECT_THAT(std::string(errors[4].message()),
              HasSubstr("[0]: op argbottomk: got 4 elements; allowed: at least 5 elements"));
}

TEST_P(EngineDistributionsTest, NothingIsAnsweredByNanOrAnError) {
  const PartitionCase each = Along("nothing", {0}, {true});
  for (const OpCall& call : CallsFor(dtype())) {
    ReduceSpec spec = Spec(dtype(), 0);
    spec.ops = {call};
    const bool least = LeastElements(call, dtype()) > 0;
    EXPECT_EQ(Validate(each.partition, spec).ok(), !least) << RowOf(call).name;
    spec.empty_policy = EmptyPolicy::kFill;
    const Reply reply = ReducePartition(engine(), {.spec = spec, .array = {nullptr}}, each.partition);
    ASSERT_EQ(reply.status, absl::OkStatus()) << RowOf(call).name;
    const Wanted wanted = Want({}, call, spec);
    for (std::size_t j = 0; j < wanted.answers.size(); ++j) {
      const DType result = ResultDType(call, dtype());
      EXPECT_TRUE(Same(AnyElementOf(result, reply.answers->data[0] + j * static_cast<std::size_t>(RowOf(result).bytes)),
                       wanted.answers[j]))
          << RowOf(call).name;
    }
  }
}

TEST_P(EngineDistributionsTest, HaveStatesAndStopAtOnce) {
  const PartitionCase each = Along("whole", {600'000}, {true});
  const Bytes array = MakeData(DataKind::kFull, dtype(), 600'000, 1);
  ReduceSpec spec = Spec(dtype(), 600'000);
  spec.ops = {Op::kMedian, Op::kDistinctExact};
  EXPECT_EQ(ValidateSpec(spec).code(), absl::StatusCode::kUnimplemented);
  std::vector<State> states;
  Job job{.spec = spec, .array = {array.data()}, .states = &states};
  EXPECT_EQ(ReducePartition(engine(), job, each.partition).status, absl::OkStatus());
  ASSERT_EQ(states.size(), 1);
  ASSERT_EQ(states[0].entries.size(), 2);
  EXPECT_FALSE(states[0].entries[0].keys.empty());
  EXPECT_FALSE(states[0].entries[1].keys.empty());
  job.states = nullptr;
  job.cancelled = std::make_shared<std::atomic<bool>>(true);
  EXPECT_EQ(ReducePartition(engine(), job, each.partition).status.code(), absl::StatusCode::kCancelled);
  job.cancelled = nullptr;
  job.deadline = absl::Now() - absl::Seconds(1);
  EXPECT_EQ(ReducePartition(engine(), job, each.partition).status.code(), absl::StatusCode::kDeadlineExceeded);
}

// Once the answers have their places, for each op and however its elements lie.
TEST_P(EngineDistributionsTest, StopMidway) {
  if (IsLikeAnother()) GTEST_SKIP() << "another dtype does the same";
  const PartitionCase whole = Along("whole", {1'200'000}, {true});
  const PartitionCase kCases[] = {whole,
                                  Along("rows", {300, 4000}, {false, true}),
                                  Along("columns", {4000, 300}, {true, false}),
                                  BySegments("segments", {1'200'000}, {0, 5, 700'000, 1'200'000}),
                                  ByKeys("keys", {1'200'000}, true),
                                  Masked(whole, false),
                                  Masked(whole, true, 10'007)};
  const Bytes array = MakeData(DataKind::kFull, dtype(), 1'200'000, 1);
  for (const PartitionCase& each : kCases) {
    for (const OpCall& call : CallsFor(dtype())) {
      ReduceSpec spec = Spec(dtype(), 1'200'000);
      spec.ops = {call};
      spec.empty_policy = EmptyPolicy::kFill;
      Job job{.spec = spec, .array = {array.data()}, .cancelled = std::make_shared<std::atomic<bool>>(false)};
      job.partition = each.partition;
      std::vector<std::vector<std::byte>> answers;
      job.place = [&](std::int64_t outputs, std::int64_t, const std::byte*) {
        *job.cancelled = true;
        answers.emplace_back(static_cast<std::size_t>(outputs * AnswerElements(call) * 8));
        return std::vector<std::byte*>{answers.back().data()};
      };
      EXPECT_EQ(ReduceAndWait(engine(), job).status().code(), absl::StatusCode::kCancelled)
          << each.name << ", " << RowOf(call).name;
    }
  }
}

// With little memory an op answers as with much, or there is an error, and all memory is given back.
TEST_P(EngineDistributionsTest, KeepToTheBudget) {
  if (IsLikeAnother()) GTEST_SKIP() << "another dtype does the same";
  constexpr std::int64_t kCount = 1'200'000;
  const PartitionCase kCases[] = {Along("whole", {kCount}, {true}), Along("rows", {20, kCount / 20}, {false, true})};
  const Bytes array = MakeData(DataKind::kFull, dtype(), kCount, 1);
  struct Poor {
    std::shared_ptr<MemoryBudget> memory;
    Started own;
  };
  std::vector<Poor> all_poor;
  for (const std::int64_t limit : {10'000, 700'000, 3'000'000}) {
    EngineOptions options = Options();
    options.memory = std::make_shared<MemoryBudget>(limit);
    all_poor.push_back({options.memory, StartOwn(options)});
  }
  for (const PartitionCase& each : kCases) {
    for (const OpCall& call : CallsFor(dtype())) {
      ReduceSpec spec = Spec(dtype(), kCount);
      spec.ops = {call};
      spec.empty_policy = EmptyPolicy::kFill;
      const Job job{.spec = spec, .array = {array.data()}};
      const Reply rich = ReducePartition(engine(), job, each.partition);
      ASSERT_EQ(rich.status, absl::OkStatus());
      const std::int64_t bytes = rich.outputs * AnswerElements(call) * RowOf(ResultDType(call, dtype())).bytes;
      for (const Poor& poor : all_poor) {
        const Reply reply = ReducePartition(*poor.own.engine, job, each.partition);
        EXPECT_EQ(poor.memory->taken(), 0) << each.name << ", " << RowOf(call).name;
        if (!reply.status.ok()) {
          EXPECT_EQ(reply.status.code(), absl::StatusCode::kResourceExhausted) << reply.status;
          continue;
        }
        EXPECT_EQ(std::memcmp(reply.answers->data[0], rich.answers->data[0], static_cast<std::size_t>(bytes)), 0)
            << each.name << ", " << RowOf(call).name << " with " << poor.memory->limit();
      }
    }
  }
}

REDUCED_INSTANTIATE_BY_KIND_AND_DTYPE(EngineDistributionsTest);

}  // namespace
}  // namespace reduced::test

// Memory for the arrays of answers of an engine.
#ifndef REDUCED_TESTS_CONTRACT_ANSWERS_H_
#define REDUCED_TESTS_CONTRACT_ANSWERS_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <variant>
#include <vector>

#include "kernels/algebra/dtype.h"
#include "kernels/algebra/finalize.h"
#include "kernels/algebra/spec.h"
#include "kernels/engine/partition.h"
#include "kernels/exact/answers.h"
#include "tests/support/data.h"
#include "tests/support/oracle.h"

namespace reduced::test {

// The answers of an engine, with bytes around them that nobody may write.
struct Answers {
  Answers(const ReduceSpec& spec, std::int64_t outputs) {
    for (const OpCall& call : spec.ops) {
      const std::int64_t bytes = outputs * AnswerElements(call) * RowOf(ResultDType(call, spec.dtype)).bytes;
      memory.emplace_back(static_cast<std::size_t>(bytes) + 2 * kGuard, kCanary);
      data.push_back(memory.back().data() + kGuard);
    }
  }
  // Of a job with as many outputs.
  PlaceResults Place() const {
    return [answers = data](std::int64_t, std::int64_t, const std::byte*) { return answers; };
  }
  bool GuardsStand() const {
    const auto stands = [](std::byte each) { return each == kCanary; };
    return std::all_of(memory.begin(), memory.end(), [&](const Bytes& each) {
      return std::all_of(each.begin(), each.begin() + kGuard, stands) &&
             std::all_of(each.end() - kGuard, each.end(), stands);
    });
  }

  static constexpr std::size_t kGuard = 67;  // so that answers stand at odd addresses
  static constexpr std::byte kCanary{0xa5};
  std::vector<Bytes> memory;
  std::vector<std::byte*> data;
};

// The sum of magnitudes of what isn't NaN.
struct Magnitudes {
  double sum = 0;
  bool all_finite = true;
};
inline Magnitudes MagnitudesOf(DType dtype, const Bytes& elements) {
  Magnitudes magnitudes;
  VisitDType(dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (kIsFloat<T>) {
      for (std::size_t at = 0; at < elements.size(); at += sizeof(T)) {
        T element;
        std::memcpy(&element, elements.data() + at, sizeof(T));
        if (!IsNan(element)) magnitudes.sum += std::abs(ToDouble(element));
        if (!IsFinite(element)) magnitudes.all_finite = false;
      }
    }
  });
  return magnitudes;
}

// What depends on the order of the elements, products of floats and sums in f64, has another one on a GPU where there
// are several outputs: true if the answer, the f64 at `got`, is as good as `value`, for these elements.
inline bool MayDiffer(EngineKind kind, const ReduceSpec& spec, Op op, const Value& value, const std::byte* got,
                      const Bytes& elements) {
  const bool ordered = op == Op::kProd || (spec.precision == Precision::kF64 && IsExactOp(op, spec.dtype));
  if (kind != EngineKind::kCuda || !RowOf(spec.dtype).is_float || !ordered) return false;
  double x;
  std::memcpy(&x, got, sizeof x);
  const double expected = std::get<double>(value.value);
  const auto count = static_cast<double>(elements.size()) / RowOf(spec.dtype).bytes;
  const Magnitudes magnitudes = MagnitudesOf(spec.dtype, elements);
  double tolerance = 1e-9 * std::abs(expected);
  if (op == Op::kSum || op == Op::kMean) {  // they may cancel
    tolerance = 0x1p-52 * count * magnitudes.sum / (op == Op::kMean ? count : 1);
  }
  // Where finite elements overflow, whether the answer is infinite, or a NaN of two infinities, depends on the order,
  // too.
  if (!std::isfinite(tolerance)) {
    const bool has_sign = op == Op::kSum || op == Op::kMean;  // what is of squares is never negative
    return (op != Op::kProd && magnitudes.all_finite && (has_sign || !(x < 0))) ||
           std::isnan(x) == std::isnan(expected);
  }
  return std::abs(x - expected) <= tolerance || (std::isnan(x) && std::isnan(expected));
}

// Whether the answer at `got` to an op over those elements is `value`, bit for bit, or may differ from it.
inline ::testing::AssertionResult IsAnswer(EngineKind kind, const ReduceSpec& spec, Op op, const Value& value,
                                           const std::byte* got, const Bytes& elements) {
  std::byte expected[8] = {};
  StoreValue(value, expected);
  const auto bytes = static_cast<std::size_t>(RowOf(value.dtype).bytes);
  if (std::memcmp(expected, got, bytes) == 0 || MayDiffer(kind, spec, op, value, got, elements)) {
    return ::testing::AssertionSuccess();
  }
  std::uint64_t bits = 0;
  std::memcpy(&bits, got, bytes);
  return ::testing::AssertionFailure() << RowOf(op).name << " is bits 0x" << std::hex << bits << ", not "
                                       << ToString(value);
}

}  // namespace reduced::test

#endif  // REDUCED_TESTS_CONTRACT_ANSWERS_H_

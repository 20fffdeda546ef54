#include "client/reducectl/loadtest/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/reducectl/loadtest/distribution.h"
#include "client/reducectl/loadtest/schedule.h"
#include "client/reducectl/output/render.h"
#include "kernels/algebra/dtype.h"
#include "kernels/algebra/float_format.h"
#include "kernels/system/status_macros.h"
#include "reduced/host_array.h"
#include "reduced/ops.h"

namespace reduced::client {
namespace {

// Calls visit(T()) for the type of a dtype's elements.
template <class Visit>
auto WithType(const std::string& dtype, Visit visit) -> decltype(visit(float())) {
  if (const std::optional<DType> found = DTypeFromName(dtype)) {
    return VisitDType(*found, [&]<class T>(std::type_identity<T>) { return visit(T()); });
  }
  return absl::InvalidArgumentError(
      absl::StrCat("dtype: got \"", dtype, "\"; allowed: ", absl::StrJoin(DTypeNames(), ", ")));
}

// A float with a random sign and mantissa and an exponent of -1 or 0.
template <class T>
T RandomFloat(std::uint64_t random) {
  using Format = FloatFormat<T>;
  using Word = typename Format::Word;
  const auto mantissa = static_cast<Word>(random & ((std::uint64_t{1} << Format::kFraction) - 1));
  const auto exponent =
      static_cast<Word>(static_cast<Word>(Format::kBias - static_cast<int>(random >> 62 & 1)) << Format::kFraction);
  const auto sign = static_cast<Word>(Format::kSigned ? (random >> 63) << (8 * sizeof(Word) - 1) : 0);
  return std::bit_cast<T>(static_cast<Word>(mantissa | exponent | sign));
}

template <class T>
T RandomElement(std::uint64_t random) {
  if constexpr (std::is_same_v<T, Bool>) {
    return {static_cast<std::uint8_t>(random & 1)};
  } else if constexpr (kIsFloat<T>) {
    return RandomFloat<T>(random);
  } else {
    const auto magnitude = static_cast<std::int64_t>((random & 0xffff) | 1);
    const bool negative = std::is_signed_v<T> && (random >> 63) != 0;
    return static_cast<T>(negative ? -magnitude : magnitude);  // truncated to 8 or 16 bits it is still odd
  }
}

// The tolerance of a result that is accumulated in f64: that of a chain of so many additions, each rounded to one part
// in 2^53. A server adds in many lanes, so that its chains are far shorter. One element of 2^32 left out would exceed
// the tolerance.
constexpr double kChain = 65536;
constexpr double kUlp = 0x1p-53;

// Computes what all ops but the product need in one pass.
template <class T>
struct Pass {
  // Integers are exact; floats have 11 more bits than the server's f64.
  using Sum = std::conditional_t<kIsFloat<T>, long double, __int128>;
  using Wide =
      std::conditional_t<kIsFloat<T>, double, std::int64_t>;  // of an element; FillRandom makes no u64 above 2^16

  explicit Pass(const T* data, std::int64_t n) : elements(data), count(n) {
    for (std::int64_t i = 0; i < n; ++i) {
      const Wide x = At(i);
      sum += x;
      l1 += x < 0 ? -x : x;
      sum_squares += static_cast<Sum>(x) * static_cast<Sum>(x);
      nonzero += x != 0 ? 1 : 0;
      if (i == 0 || x < min) min = x, argmin = i;
      if (i == 0 || x > max) max = x, argmax = i;
      if constexpr (!kIsFloat<T>) {
        bit_and &= static_cast<std::uint64_t>(x);
        bit_or |= static_cast<std::uint64_t>(x);
        bit_xor ^= static_cast<std::uint64_t>(x);
      }
    }
  }

  Wide At(std::int64_t i) const {
    if constexpr (kIsFloat<T>) {
      return ToDouble(elements[i]);
    } else {
      return static_cast<Wide>(ToInteger(elements[i]));
    }
  }

  long double Mean() const { return static_cast<long double>(sum) / static_cast<long double>(count); }

  long double Variance() const {
    const long double mean = Mean();
    long double squares = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const long double deviation = static_cast<long double>(At(i)) - mean;
      squares += deviation * deviation;
    }
    return squares / static_cast<long double>(count);
  }

  // The exponent is kept separately, so that no order of the factors leaves the range of a float.
  double FloatProduct() const {
    long double mantissa = 1;
    std::int64_t exponent = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      int more = 0;
      mantissa = std::frexp(mantissa * static_cast<long double>(At(i)), &more);
      exponent += more;
    }
    constexpr std::int64_t kFar = 20'000;  // beyond any float
    return static_cast<double>(std::ldexp(mantissa, static_cast<int>(std::clamp(exponent, -kFar, kFar))));
  }

  std::uint64_t IntegerProduct() const {
    std::uint64_t product = 1;
    for (std::int64_t i = 0; i < count; ++i) product *= static_cast<std::uint64_t>(At(i));
    return product;
  }

  const T* const elements;
  const std::int64_t count;
  Sum sum = 0, l1 = 0, sum_squares = 0;
  Wide min = 0, max = 0;
  std::int64_t argmin = 0, argmax = 0, nonzero = 0;
  std::uint64_t bit_and = ~std::uint64_t{0}, bit_or = 0, bit_xor = 0;
};

// An integer in the result type of its dtype.
template <class T, class Integer>
RightAnswer OfSign(Integer value) {
  if constexpr (std::is_signed_v<T>) return {static_cast<std::int64_t>(value)};
  return {static_cast<std::uint64_t>(value)};
}
template <class T, class Integer>
RightAnswer OfElement(Integer value) {
  if constexpr (std::is_same_v<T, Bool>) return {(value & 1) != 0};
  return OfSign<T>(value);
}

// The elements of FillRandom are exact in f64.
template <class T>
std::vector<double> ElementsOf(const Pass<T>& pass) {
  std::vector<double> elements;
  elements.reserve(static_cast<std::size_t>(pass.count));
  for (std::int64_t i = 0; i < pass.count; ++i) elements.push_back(static_cast<double>(pass.At(i)));
  return elements;
}

template <class T>
std::optional<RightAnswer> AnswerOf(const Pass<T>& pass, const std::string& op) {
  const auto n = static_cast<double>(pass.count);
  const double rounding = std::min(n, kChain) * kUlp;
  const auto l1 = static_cast<double>(pass.l1);
  const auto squares = static_cast<double>(pass.sum_squares);
  const auto index = [](std::int64_t i) { return RightAnswer{static_cast<std::uint64_t>(i)}; };
  if (op == "mean") return RightAnswer{static_cast<double>(pass.Mean()), (rounding + 4 * kUlp) * l1 / n};
  if (op == "l2") return RightAnswer{std::sqrt(squares), (rounding + 4 * kUlp) * std::sqrt(squares)};
  if (op == "var" || op == "std") {
    const auto variance = static_cast<double>(pass.Variance());
    const double off = 4 * (rounding + 4 * kUlp) * squares / n;
    if (op == "var") return RightAnswer{variance, off};
    return RightAnswer{std::sqrt(variance), off / std::max(std::sqrt(variance), std::sqrt(off))};
  }
  if (op == "argmin") return index(pass.argmin);
  if (op == "argmax") return index(pass.argmax);
  if (op == "any") return RightAnswer{pass.nonzero > 0};
  if (op == "all") return RightAnswer{pass.nonzero == pass.count};
  if (op == "count") return index(pass.count);
  if (op == "count_nonzero") return index(pass.nonzero);
  if (op == "nan_count") return index(0);
  if constexpr (kIsFloat<T>) {
    if (op == "sum") return RightAnswer{static_cast<double>(pass.sum), rounding * l1};
    if (op == "l1") return RightAnswer{l1, rounding * l1};
    if (op == "sum_squares") return RightAnswer{squares, rounding * squares};
    if (op == "min") return RightAnswer{pass.min};
    if (op == "max") return RightAnswer{pass.max};
    if (op == "range") return RightAnswer{pass.max - pass.min};
    if (op == "prod") {
      const double product = pass.FloatProduct();
      // Outside the range of f64 the result must be infinite.
      return RightAnswer{product, std::isfinite(product) ? 2 * n * kUlp * std::abs(product) : 0};
    }
  } else {
    if (op == "sum") return OfSign<T>(pass.sum);
    if (op == "prod") return OfSign<T>(pass.IntegerProduct());
    if (op == "l1") return RightAnswer{static_cast<std::uint64_t>(pass.l1)};
    if (op == "sum_squares") return RightAnswer{static_cast<std::uint64_t>(pass.sum_squares)};
    if (op == "min") return OfElement<T>(pass.min);
    if (op == "max") return OfElement<T>(pass.max);
    if (op == "range") return RightAnswer{static_cast<std::uint64_t>(pass.max) - static_cast<std::uint64_t>(pass.min)};
    if (op == "bit_and") return OfElement<T>(static_cast<std::int64_t>(pass.bit_and));
    if (op == "bit_or") return OfElement<T>(static_cast<std::int64_t>(pass.bit_or));
    if (op == "bit_xor") return OfElement<T>(static_cast<std::int64_t>(pass.bit_xor));
  }
  return std::nullopt;
}

std::string ToText(const Scalar& value) { return Dump(ToJson(Value{"f64", value})); }

bool Near(const Scalar& expected, double tolerance, const Scalar& got) {
  if (expected.index() != got.index()) return false;
  const auto* const right = std::get_if<double>(&expected);
  if (right != nullptr && std::isnan(*right)) return std::isnan(std::get<double>(got));
  if (right != nullptr && std::isfinite(*right)) {
    return std::abs(*right - std::get<double>(got)) <= tolerance;  // false for NaN
  }
  const auto* const count = std::get_if<std::uint64_t>(&expected);
  if (count == nullptr || tolerance == 0) return expected == got;
  return std::abs(static_cast<double>(*count) - static_cast<double>(std::get<std::uint64_t>(got))) <= tolerance;
}

std::string Wrong(const std::string& op, const std::string& got, const Scalar& expected, double tolerance) {
  return absl::StrCat(op, " is ", got, ", expected ", ToText(expected),
                      tolerance > 0 ? absl::StrCat(" +- ", tolerance) : "");
}

// What is wrong with an array of results. Empty: nothing.
std::string Mismatch(const std::string& op, const RightAnswer& expected, const HostArray& got) {
  const auto size = static_cast<std::int64_t>(expected.array->size());
  if (got.shape != std::vector<std::int64_t>{size}) {
    return absl::StrCat(op, " has the shape (", absl::StrJoin(got.shape, ", "), "), expected (", size, ")");
  }
  for (std::int64_t i = 0; i < size; ++i) {
    const Scalar& right = (*expected.array)[static_cast<std::size_t>(i)];
    const Scalar element = got.At(i).value;
    if (!Near(right, expected.tolerance, element)) {
      return Wrong(absl::StrCat(op, "[", i, "]"), ToText(element), right, expected.tolerance);
    }
  }
  return "";
}

// As reduced.proto defines it, from the last word to the first.
RightAnswer Fingerprint(const void* data, std::size_t bytes, std::int64_t count) {
  constexpr std::uint64_t kModulus = (std::uint64_t{1} << 61) - 1;
  const std::size_t width = std::min<std::size_t>(bytes, 4);
  std::vector<Scalar> answer;
  for (const std::uint64_t base : {std::uint64_t{0x0d413cccfe779921}, std::uint64_t{0x176cf5d0b09954e7}}) {
    std::uint64_t sum = 0;
    for (std::size_t i = static_cast<std::size_t>(count) * (bytes / width); i-- > 0;) {
      std::uint64_t word = 0;
      std::memcpy(&word, static_cast<const char*>(data) + i * width, width);
      sum = static_cast<std::uint64_t>((static_cast<UInt128>(sum) * base + word + 1) % kModulus);
    }
    answer.emplace_back(static_cast<std::uint64_t>((static_cast<UInt128>(sum) * base + bytes) % kModulus));
  }
  return {.array = std::move(answer)};
}

}  // namespace

absl::Status FillRandom(const std::string& dtype, std::uint64_t seed, void* data, std::int64_t bytes) {
  return WithType(dtype, [&]<class T>(T) -> absl::Status {
    auto* const elements = static_cast<T*>(data);
    const auto count = bytes / static_cast<std::int64_t>(sizeof(T));
    std::uint64_t random = seed;
    for (std::int64_t i = 0; i < count; ++i) elements[i] = RandomElement<T>(NextRandom(&random));
    if constexpr (std::is_same_v<T, Bool>) {
      if (count > 0) elements[0] = {1};
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<RightAnswer>> Expected(const std::vector<std::string>& ops, const std::string& dtype,
                                                  const void* data, std::int64_t count) {
  return WithType(dtype, [&]<class T>(T) -> absl::StatusOr<std::vector<RightAnswer>> {
    const Pass<T> pass(static_cast<const T*>(data), count);
    std::vector<RightAnswer> answers;
    std::optional<Distribution> distribution;
    for (const std::string& op : ops) {
      if (op == RowOf(Op::kFingerprint).name) {
        answers.push_back(Fingerprint(data, sizeof(T), count));
        continue;
      }
      if (IsOfDistribution(op)) {
        if (!distribution.has_value()) distribution.emplace(*DTypeFromName(dtype), ElementsOf(pass));
        ASSIGN_OR_RETURN(RightAnswer sorted, distribution->Of(op));
        answers.push_back(std::move(sorted));
        continue;
      }
      const std::optional<RightAnswer> answer = AnswerOf(pass, op);
      if (!answer.has_value()) {
        return absl::UnimplementedError(absl::StrCat("op ", op, " of ", dtype, " can't be verified"));
      }
      answers.push_back(*answer);
    }
    return answers;
  });
}

bool Matches(const RightAnswer& expected, const Value& got) {
  return Near(expected.value, expected.tolerance, got.value);
}

std::string Mismatch(const std::vector<std::string>& ops, const std::vector<RightAnswer>& expected,
                     const Reply& reply) {
  if (const std::size_t got = reply.results.size() + reply.arrays.size(); got != expected.size()) {
    return absl::StrCat("got ", got, " results, expected ", expected.size());
  }
  // Values and arrays are in the order of the ops each. An error is among the values.
  auto result = reply.results.begin();
  auto array = reply.arrays.begin();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    std::string wrong;
    if (array != reply.arrays.end() && array->op == ops[i] && expected[i].array.has_value()) {
      wrong = Mismatch(ops[i], expected[i], array++->array);
    } else if (result == reply.results.end() || result->op != ops[i]) {
      wrong = absl::StrCat("got no result of ", ops[i]);
    } else if (const absl::StatusOr<Value>& got = (result++)->value; !got.ok()) {
      wrong = absl::StrCat(ops[i], " is ", std::string(got.status().message()));
    } else if (expected[i].array.has_value()) {
      wrong = absl::StrCat(ops[i], " is ", ToText(got->value), ", expected an array");
    } else if (!Matches(expected[i], *got)) {
      wrong = Wrong(ops[i], ToText(got->value), expected[i].value, expected[i].tolerance);
    }
    if (!wrong.empty()) return wrong;
  }
  return "";
}

}  // namespace reduced::client

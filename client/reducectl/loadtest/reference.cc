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
#include "client/reducectl/loadtest/schedule.h"
#include "client/reducectl/output/render.h"
#include "kernels/algebra/dtype.h"
#include "kernels/algebra/float_format.h"

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
  const auto sign = static_cast<Word>((random >> 63) << (8 * sizeof(Word) - 1));
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
Answer OfSign(Integer value) {
  if constexpr (std::is_signed_v<T>) return {static_cast<std::int64_t>(value)};
  return {static_cast<std::uint64_t>(value)};
}
template <class T, class Integer>
Answer OfElement(Integer value) {
  if constexpr (std::is_same_v<T, Bool>) return {(value & 1) != 0};
  return OfSign<T>(value);
}

// The elements of FillRandom are exact in f64.
template <class T>
double Median(const Pass<T>& pass) {
  std::vector<double> elements;
  elements.reserve(static_cast<std::size_t>(pass.count));
  for (std::int64_t i = 0; i < pass.count; ++i) elements.push_back(static_cast<double>(pass.At(i)));
  const auto upper = elements.begin() + pass.count / 2;
  std::nth_element(elements.begin(), upper, elements.end());
  if (pass.count % 2 != 0) return *upper;
  return (*upper + *std::max_element(elements.begin(), upper)) / 2;
}

template <class T>
std::optional<Answer> AnswerOf(const Pass<T>& pass, const std::string& op) {
  const auto n = static_cast<double>(pass.count);
  const double rounding = std::min(n, kChain) * kUlp;
  const auto l1 = static_cast<double>(pass.l1);
  const auto squares = static_cast<double>(pass.sum_squares);
  const auto index = [](std::int64_t i) { return Answer{static_cast<std::uint64_t>(i)}; };
  if (op == "mean") return Answer{static_cast<double>(pass.Mean()), (rounding + 4 * kUlp) * l1 / n};
  if (op == "l2") return Answer{std::sqrt(squares), (rounding + 4 * kUlp) * std::sqrt(squares)};
  if (op == "var" || op == "std") {
    const auto variance = static_cast<double>(pass.Variance());
    const double off = 4 * (rounding + 4 * kUlp) * squares / n;
    if (op == "var") return Answer{variance, off};
    return Answer{std::sqrt(variance), off / std::max(std::sqrt(variance), std::sqrt(off))};
  }
  if (op == "median" && pass.count > 0) return Answer{Median(pass)};
  if (op == "argmin") return index(pass.argmin);
  if (op == "argmax") return index(pass.argmax);
  if (op == "any") return Answer{pass.nonzero > 0};
  if (op == "all") return Answer{pass.nonzero == pass.count};
  if (op == "count") return index(pass.count);
  if (op == "count_nonzero") return index(pass.nonzero);
  if (op == "nan_count") return index(0);
  if constexpr (kIsFloat<T>) {
    if (op == "sum") return Answer{static_cast<double>(pass.sum), rounding * l1};
    if (op == "l1") return Answer{l1, rounding * l1};
    if (op == "sum_squares") return Answer{squares, rounding * squares};
    if (op == "min") return Answer{pass.min};
    if (op == "max") return Answer{pass.max};
    if (op == "range") return Answer{pass.max - pass.min};
    if (op == "prod") {
      const double product = pass.FloatProduct();
      // Outside the range of f64 the result must be infinite.
      return Answer{product, std::isfinite(product) ? 2 * n * kUlp * std::abs(product) : 0};
    }
  } else {
    if (op == "sum") return OfSign<T>(pass.sum);
    if (op == "prod") return OfSign<T>(pass.IntegerProduct());
    if (op == "l1") return Answer{static_cast<std::uint64_t>(pass.l1)};
    if (op == "sum_squares") return Answer{static_cast<std::uint64_t>(pass.sum_squares)};
    if (op == "min") return OfElement<T>(pass.min);
    if (op == "max") return OfElement<T>(pass.max);
    if (op == "range") return Answer{static_cast<std::uint64_t>(pass.max) - static_cast<std::uint64_t>(pass.min)};
    if (op == "bit_and") return OfElement<T>(static_cast<std::int64_t>(pass.bit_and));
    if (op == "bit_or") return OfElement<T>(static_cast<std::int64_t>(pass.bit_or));
    if (op == "bit_xor") return OfElement<T>(static_cast<std::int64_t>(pass.bit_xor));
  }
  return std::nullopt;
}

std::string ToText(const std::variant<double, std::int64_t, std::uint64_t, bool>& value) {
  return Dump(ToJson(Value{"f64", value}));
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

absl::StatusOr<std::vector<Answer>> Expected(const std::vector<std::string>& ops, const std::string& dtype,
                                             const void* data, std::int64_t count) {
  return WithType(dtype, [&]<class T>(T) -> absl::StatusOr<std::vector<Answer>> {
    const Pass<T> pass(static_cast<const T*>(data), count);
    std::vector<Answer> answers;
    for (const std::string& op : ops) {
      const std::optional<Answer> answer = AnswerOf(pass, op);
      if (!answer.has_value()) {
        return absl::UnimplementedError(absl::StrCat("op ", op, " of ", dtype, " can't be verified"));
      }
      answers.push_back(*answer);
    }
    return answers;
  });
}

bool Matches(const Answer& expected, const Value& got) {
  if (expected.value.index() != got.value.index()) return false;
  const auto* const right = std::get_if<double>(&expected.value);
  if (right == nullptr || !std::isfinite(*right)) return expected.value == got.value;
  return std::abs(*right - std::get<double>(got.value)) <= expected.tolerance;  // false for NaN
}

std::string Mismatch(const std::vector<Answer>& expected, const std::vector<Result>& results) {
  if (expected.size() != results.size()) {
    return absl::StrCat("got ", results.size(), " results, expected ", expected.size());
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    const absl::StatusOr<Value>& got = results[i].value;
    if (got.ok() && Matches(expected[i], *got)) continue;
    return absl::StrCat(results[i].op, " is ", got.ok() ? ToText(got->value) : std::string(got.status().message()),
                        ", expected ", ToText(expected[i].value),
                        expected[i].tolerance > 0 ? absl::StrCat(" +- ", expected[i].tolerance) : "");
  }
  return "";
}

}  // namespace reduced::client

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/algebra/dtype.h"
#include "kernels/algebra/float_format.h"
#include "reduced/array.h"
#include "reduced/result_array.h"

namespace reduced::client {
namespace {

// The double with the shortest decimal that reads back as x in T.
template <class T>
double Shortest(double x) {
  for (int digits = 1; digits < 17; ++digits) {
    const double candidate = std::strtod(absl::StrFormat("%.*g", digits, x).c_str(), nullptr);
    if (ToDouble(FromDouble<T>(candidate)) == x) return candidate;
  }
  return x;
}

double ShortestOf(double value, std::string_view dtype) {
  const std::optional<DType> type = DTypeFromName(dtype);
  if (!type.has_value()) return value;
  return VisitDType(*type, [value]<class T>(std::type_identity<T>) {
    // Of 8 bits all digits are shown: the shortest decimals are far from the values, such as 450 from 448.
    if constexpr (kIsFloat<T> && sizeof(T) < sizeof(double) && !kIsF8<T>) return Shortest<T>(value);
    return value;
  });
}

std::string TextOf(double value, std::string_view dtype) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), ShortestOf(value, dtype));
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";  // so that a float reads back as one
  return text;
}

}  // namespace

double Value::AsDouble() const {
  return std::visit([](auto exact) { return static_cast<double>(exact); }, value);
}

std::optional<std::int64_t> Value::AsInt64() const {
  return std::visit(
      []<class T>(T exact) -> std::optional<std::int64_t> {
        if constexpr (std::is_same_v<T, double>) {
          // 2^63 is a double, the largest int64 isn't.
          if (!(exact >= -0x1p63 && exact < 0x1p63) || exact != std::trunc(exact)) return std::nullopt;
        } else {
          if (!std::in_range<std::int64_t>(static_cast<std::conditional_t<std::is_same_v<T, bool>, int, T>>(exact))) {
            return std::nullopt;
          }
        }
        return static_cast<std::int64_t>(exact);
      },
      value);
}

std::string Value::Text() const {
  if (const double* const number = std::get_if<double>(&value)) return TextOf(*number, dtype);
  if (const bool* const truth = std::get_if<bool>(&value)) return *truth ? "true" : "false";
  if (const std::int64_t* const number = std::get_if<std::int64_t>(&value)) return absl::StrCat(*number);
  return absl::StrCat(std::get<std::uint64_t>(value));
}

Value HostArray::At(std::int64_t index) const {
  Value value{.dtype = dtype};
  const std::optional<DType> type = DTypeFromName(dtype);
  if (!type.has_value()) return value;
  VisitDType(*type, [&]<class T>(std::type_identity<T>) {
    T element;
    std::memcpy(&element, data.data() + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    if constexpr (kIsFloat<T>) {
      value.value = ToDouble(element);
    } else if constexpr (std::is_same_v<T, Bool>) {
      value.value = element.byte != 0;
    } else if constexpr (kIsSigned<T>) {
      value.value = static_cast<std::int64_t>(element);
    } else {
      value.value = static_cast<std::uint64_t>(element);
    }
  });
  return value;
}

const Value* FindResult(const std::vector<Result>& results, std::string_view op) {
  for (const Result& result : results) {
    if (result.op == op) return result.value.ok() ? &*result.value : nullptr;
  }
  return nullptr;
}

const HostArray* FindResult(const std::vector<ResultArray>& results, std::string_view op) {
  for (const ResultArray& result : results) {
    if (result.op == op) return result.error.ok() ? &result.array : nullptr;
  }
  return nullptr;
}

absl::Status FirstError(const std::vector<Result>& results) {
  absl::Status error;
  for (const Result& result : results) error.Update(result.value.status());
  return error;
}

}  // namespace reduced::client

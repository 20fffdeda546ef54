// Arrays in the caller's memory and where the server can read them, values, and the names of ops, dtypes and options.
#ifndef REDUCED_ARRAY_H_
#define REDUCED_ARRAY_H_

#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

#define REDUCED_EXPORT __attribute__((visibility("default")))

namespace reduced::client {

// An array in the caller's memory, row-major and dense. It doesn't own the memory.
struct ArrayView {
  // Any alignment. It may be null if the array has no elements.
  const void* data = nullptr;
  std::string dtype{};  // one of DTypeNames(): "f32", "bool", ...
  // The number of elements along each dimension. An array without dimensions is a scalar: it has one element.
  std::vector<std::int64_t> shape{};

  // A one-dimensional array of float, double, bool or fixed-width integers. f16 and bf16 have no C++ type: for them,
  // set the members directly.
  template <class T>
  static ArrayView Of(std::span<const T> elements) {
    return {elements.data(), NameOf<T>(), {static_cast<std::int64_t>(elements.size())}};
  }

 private:
  template <class T>
  static std::string NameOf() {
    static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8);
    if constexpr (std::is_same_v<T, bool>) return "bool";
    const char* const kind = std::is_floating_point_v<T> ? "f" : std::is_signed_v<T> ? "i" : "u";
    return std::string(kind).append(std::to_string(8 * sizeof(T)));
  }
};

// An array that the server reads where it is, so that no elements are sent: a resident array or a part of a region.
class RemoteArray {
 public:
  // A resident array, by ArrayInfo.id.
  static RemoteArray Resident(std::string id) {
    RemoteArray array;
    array.id_ = std::move(id);
    return array;
  }
  // The elements of a region that start at byte `offset`, at any alignment. Region::Array calls this.
  static RemoteArray InRegion(std::string token, std::int64_t offset, std::string dtype,
                              std::vector<std::int64_t> shape) {
    RemoteArray array;
    array.token_ = std::move(token);
    array.offset_ = offset;
    array.elements_ = {nullptr, std::move(dtype), std::move(shape)};
    return array;
  }

  const std::string& id() const { return id_; }  // empty: the array is in a region
  const std::string& token() const { return token_; }
  std::int64_t offset() const { return offset_; }
  const ArrayView& elements() const { return elements_; }  // dtype and shape, no data

 private:
  RemoteArray() = default;

  std::string id_;
  std::string token_;
  std::int64_t offset_ = 0;
  ArrayView elements_;
};

struct Value {
  std::string dtype{};  // of the result
  // double for f16, bf16, f32 and f64; int64 for i8 to i64; uint64 for u8 to u64; bool for bool.
  std::variant<double, std::int64_t, std::uint64_t, bool> value{};
};

struct Result {
  std::string op{};
  Value value{};
};

// The names that this library knows. A server of another version may know fewer or more: ServerInfo has those.
REDUCED_EXPORT std::vector<std::string> OpNames();
REDUCED_EXPORT std::vector<std::string> DTypeNames();
REDUCED_EXPORT std::vector<std::string> EngineNames();
REDUCED_EXPORT std::vector<std::string> PrecisionNames();
REDUCED_EXPORT std::vector<std::string> NanPolicyNames();
REDUCED_EXPORT std::vector<std::string> OverflowPolicyNames();
REDUCED_EXPORT std::vector<std::string> ViaNames();  // of ReduceOptions.via

// The bytes of one element. INVALID_ARGUMENT: there is no such dtype.
REDUCED_EXPORT absl::StatusOr<std::int64_t> DTypeBytes(const std::string& dtype);

// The bytes of a dense array. INVALID_ARGUMENT: there is no such dtype, a dimension is negative, or the array has more
// bytes than an int64 can hold.
REDUCED_EXPORT absl::StatusOr<std::int64_t> ArrayBytes(const std::string& dtype, std::span<const std::int64_t> shape);

}  // namespace reduced::client

#endif  // REDUCED_ARRAY_H_

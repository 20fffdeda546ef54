// Arrays in the caller's memory and where the server can read them, values, and the names of ops, dtypes and options.
#ifndef REDUCED_ARRAY_H_
#define REDUCED_ARRAY_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define REDUCED_EXPORT __attribute__((visibility("default")))

namespace reduced::client {

// Reads the elements of an array that isn't in memory, as they are sent: of a file that is larger than the memory, say.
struct ElementReader {
  // Writes the `bytes` bytes of the array that start at byte `offset` to `to`. An error ends the call, which returns
  // it. Runs on the thread of the call; several threads call it at once if the array is sent in parts. It may be asked
  // for the same bytes again, if the call is sent again.
  std::function<absl::Status(std::int64_t offset, char* to, std::int64_t bytes)> read{};
  // The bytes can only be read in order, each once: the array is then sent over one connection, and not sent again if
  // that is lost or the server stops: UNAVAILABLE.
  bool in_order = false;
  // The bytes are in memory, and reading them only puts them next to each other: LocalEngine then calls `read` on all
  // threads of its engine, where it must neither block nor wait for the thread of the call. Each call is for whole
  // elements.
  bool in_memory = false;
};

// An array in the caller's memory, row-major and dense. It doesn't own the memory.
struct ArrayView {
  // Any alignment. It may be null if the array has no elements, or a reader.
  const void* data = nullptr;
  std::string dtype{};  // one of DTypeNames(): "f32", "bool", ...
  // The number of elements along each dimension. An array without dimensions is a scalar: it has one element.
  std::vector<std::int64_t> shape{};
  // Used instead of `data` if reader.read is set, by Client::Reduce, Client::Put and Client::ReduceArray, and by those
  // of a Session if it is in_memory; of y and the weights only as a stream.
  ElementReader reader{};
  // The elements at `data`, if that is known, which Of sees to: then a shape of another number is INVALID_ARGUMENT.
  std::optional<std::int64_t> count{};

  // An array of float, double, bool or integers of up to 64 bits: of a vector, a span, an array, or another range that
  // lies in one piece of memory, which must outlive the view. `shape`: absent: one dimension. f16, bf16 and f8 have no
  // C++ type: for them, set the members directly.
  template <class Range>
  requires(!std::is_pointer_v<std::remove_cvref_t<Range>>) static ArrayView
      Of(Range&& elements, std::optional<std::vector<std::int64_t>> shape = std::nullopt) {
    static_assert(std::ranges::contiguous_range<Range> && std::ranges::sized_range<Range>,
                  "ArrayView::Of takes elements that lie in one piece of memory: a vector, a span, an array. A "
                  "std::vector<bool>, a list or a set does not.");
    static_assert(std::is_lvalue_reference_v<Range> || std::ranges::borrowed_range<Range>,
                  "ArrayView::Of does not copy: the elements must outlive the view, and a temporary does not.");
    const auto count = static_cast<std::int64_t>(std::ranges::size(elements));
    if (!shape.has_value()) shape = {count};
    return {std::ranges::data(elements), NameOf<std::ranges::range_value_t<Range>>(), *std::move(shape), {}, count};
  }
  // The same of `count` elements from an address on.
  template <class T>
  static ArrayView Of(const T* elements, std::int64_t count) {
    return {elements, NameOf<T>(), {count}, {}, count};
  }

 private:
  template <class T>
  static std::string NameOf() {
    static_assert(
        std::is_arithmetic_v<T> && sizeof(T) <= 8,
        "ArrayView::Of takes elements of type bool, float, double or an integer of up to 64 bits. For others, "
        "such as f16, set the members data, dtype and shape.");
    if constexpr (std::is_same_v<T, bool>) return "bool";
    const char* const kind = std::is_floating_point_v<T> ? "f" : std::is_signed_v<T> ? "i" : "u";
    return std::string(kind).append(std::to_string(8 * sizeof(T)));
  }
};

// Where the elements of an array in a region lie, and what they are. By default they lie next to each other, in
// row-major order, with the bytes of little-endian machines.
struct ElementLayout {
  // The bytes from an element to the next one along each dimension, of any sign; 0: every index along it has the same
  // element. As many as dimensions, of which there are 64 at most; else the call is INVALID_ARGUMENT. An element
  // outside of the region is OUT_OF_RANGE.
  std::optional<std::vector<std::int64_t>> strides{};
  bool big_endian = false;  // the most significant byte of each element comes first

  friend bool operator==(const ElementLayout&, const ElementLayout&) = default;
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
  // The elements of a region of which that with the indexes 0 is at byte `offset`, at any alignment. Region::Array
  // calls this.
  static RemoteArray InRegion(std::string token, std::int64_t offset, std::string dtype,
                              std::vector<std::int64_t> shape, ElementLayout layout = {}) {
    RemoteArray array;
    array.token_ = std::move(token);
    array.offset_ = offset;
    array.elements_ = {nullptr, std::move(dtype), std::move(shape), {}};
    array.layout_ = std::move(layout);
    return array;
  }

  const std::string& id() const { return id_; }  // empty: the array is in a region
  const std::string& token() const { return token_; }
  std::int64_t offset() const { return offset_; }
  const ArrayView& elements() const { return elements_; }  // dtype and shape, no data
  const ElementLayout& layout() const { return layout_; }

 private:
  RemoteArray() = default;

  std::string id_;
  std::string token_;
  std::int64_t offset_ = 0;
  ArrayView elements_;
  ElementLayout layout_;
};

struct Value {
  std::string dtype{};  // of the result
  // double for all floats; int64 for i8 to i64; uint64 for u8 to u64; bool for bool.
  std::variant<double, std::int64_t, std::uint64_t, bool> value{};

  // The nearest double; true is 1.
  REDUCED_EXPORT double AsDouble() const;
  // The same number. Absent: it isn't a whole number, or doesn't fit.
  REDUCED_EXPORT std::optional<std::int64_t> AsInt64() const;
  // For people: the shortest decimal that reads back as this number of this dtype, "NaN", "-Infinity", "true".
  REDUCED_EXPORT std::string Text() const;
};

struct Result {
  std::string op{};
  // Or why this op has none, while others have: OUT_OF_RANGE, an integer result that does not fit; INVALID_ARGUMENT, an
  // extremum of no element.
  absl::StatusOr<Value> value{};
};

// The value of an op; null: the op is not among the results, or has an error.
REDUCED_EXPORT const Value* FindResult(const std::vector<Result>& results, std::string_view op);

// The error of the first op that has one; OK: each has a value.
REDUCED_EXPORT absl::Status FirstError(const std::vector<Result>& results);

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

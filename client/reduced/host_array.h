// Arrays that own their elements, and arrays of results.
#ifndef REDUCED_HOST_ARRAY_H_
#define REDUCED_HOST_ARRAY_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "reduced/array.h"

namespace reduced::client {

class SharedBuffer;  // of shared.h

// An array that owns its elements: row-major and dense.
struct HostArray {
  std::string dtype{};  // one of DTypeNames()
  std::vector<std::int64_t> shape{};
  std::string data{};  // the elements' bytes

  // The elements, valid as long as this is and unchanged. Empty if T is not the C++ type of the dtype.
  template <class T>
  std::span<const T> As() const {
    if (ArrayView::Of(static_cast<const T*>(nullptr), 0).dtype != dtype) return {};
    return {reinterpret_cast<const T*>(data.data()), data.size() / sizeof(T)};
  }
  ArrayView View() const { return {data.data(), dtype, shape, {}}; }
  // Element `index` in row-major order, which must exist.
  REDUCED_EXPORT Value At(std::int64_t index) const;
};

// The results of one op.
struct ResultArray {
  std::string op{};
  // Why the op has no results, because one output or more has no answer; it names the first of them. The array is then
  // empty, without a dtype.
  absl::Status error{};
  HostArray array{};  // its data is empty if the results are elsewhere
  std::string id{};   // of the resident array that has them, for RemoteArray::Resident; empty: they are not kept
  std::optional<std::int64_t> written_at{};  // the byte of the region where they begin, for Region::Array

  // The elements in the buffer that was shared as that region (result_array.h). Empty if they are not written to a
  // region, if T is not the C++ type of the dtype, or if the buffer is another one, in which they have no room.
  template <class T>
  std::span<const T> In(const SharedBuffer& buffer) const;
};

// The array of an op; null: the op is not among the results, or has an error.
REDUCED_EXPORT const HostArray* FindResult(const std::vector<ResultArray>& results, std::string_view op);

}  // namespace reduced::client

#endif  // REDUCED_HOST_ARRAY_H_

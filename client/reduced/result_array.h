// Reductions along axes: what is asked, and arrays as answers.
//
//   auto reply = client->ReduceArray(ArrayView::Of(samples, {{1000, 3}}), {"mean", "argmax"}, {.axis = {0}});
//   if (reply.ok()) for (double mean : reply->Find("mean")->As<double>()) ...;
#ifndef REDUCED_RESULT_ARRAY_H_
#define REDUCED_RESULT_ARRAY_H_

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/time/time.h"
#include "reduced/array.h"
#include "reduced/types.h"

namespace reduced::client {

// Who owns results that stay on the server, and for how long: as in PutOptions.
struct KeepOptions {
  std::string owner{};
  absl::Duration ttl{};
};

struct AxesOptions {
  // The dimensions that are reduced, in any order, none twice: from 0, or negative from the last one, which is -1. None
  // at all: every element is a result of its own.
  std::vector<int> axis{};
  // The results have dimensions of 1 in place of those that were reduced.
  bool keepdims = false;
  // What min, max, argmin, argmax and range of no element are: one of EmptyPolicyNames(). "error": the call fails.
  // "fill": NaN for floats, what any element replaces for integers, 2^64 - 1 for an index.
  std::string empty = "error";
  // The results become resident arrays in the memory of the server's CPU, and are not sent. Whoever asked deletes them.
  std::optional<KeepOptions> keep{};
};

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
  HostArray array{};  // its data is empty if the results are kept
  std::string id{};   // of the resident array that has them, for RemoteArray::Resident; empty: they are in `array`
};

struct ArrayReply {
  std::string via{};                   // as Reply.via
  std::vector<ResultArray> results{};  // one for each op, in the order of the request
  std::int64_t count = 0;              // elements in the array
  Execution execution{};
  Timing timing{};
  int attempts = 1;  // how often the request was sent

  // The results of an op; null: it was not asked for.
  const HostArray* Find(std::string_view op) const {
    for (const ResultArray& result : results) {
      if (result.op == op) return &result.array;
    }
    return nullptr;
  }
};

// The names that AxesOptions.empty can have.
REDUCED_EXPORT std::vector<std::string> EmptyPolicyNames();

}  // namespace reduced::client

#endif  // REDUCED_RESULT_ARRAY_H_

// Reductions to arrays, along axes, of segments, by keys and under masks: what is asked, and arrays as answers.
//
//   auto reply = client->ReduceArray(ArrayView::Of(samples, {{1000, 3}}), {"mean", "argmax"}, {.axis = {0}});
//   if (reply.ok()) for (double mean : reply->Find("mean")->As<double>()) ...;
//
//   auto totals = client->ReduceArray(ArrayView::Of(prices), {"sum"}, {.keys = {{ArrayView::Of(shops)}}});
//   if (totals.ok()) Print(totals->keys.As<std::int32_t>(), totals->Find("sum")->As<double>());
//
// The answer of an op of the distribution (ops.h) can be an array by itself, which is the last dimension of the
// results:
//
//   auto quartiles = client->ReduceArray(ArrayView::Of(samples, {{1000, 3}}), {ops::Quantile({.25, .5, .75})},
//                                       {.axis = {0}});
//   if (quartiles.ok()) Print(quartiles->results[0].array.As<double>());  // 3 x 3, of each column
//
// Results in memory that is shared with a server on the same machine, so that none are sent:
//
//   auto buffer = SharedBuffer::AllocateForResults(1 << 20);
//   auto region = client->Share(*buffer, {.writable = true});
//   auto reply = client->ReduceArray(samples, {"mean"}, {.axis = {0}, .write_to = region->Place()});
//   if (reply.ok()) for (double mean : reply->results[0].In<double>(*buffer)) ...;
#ifndef REDUCED_RESULT_ARRAY_H_
#define REDUCED_RESULT_ARRAY_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "reduced/array.h"
#include "reduced/host_array.h"
#include "reduced/shared.h"
#include "reduced/types.h"

namespace reduced::client {

// Who owns results that stay on the server, and for how long: as in PutOptions.
struct KeepOptions {
  std::string owner{};
  absl::Duration ttl{};
};

// An array beside the one that is reduced: in the caller's memory, which a view must not need a reader for, or where
// the server can read it.
using SideArray = std::variant<ArrayView, RemoteArray>;
// One of the arrays of Client::ReduceMany, likewise.
using Operand = SideArray;

// Consecutive stretches of dimension 0, of i32 or i64 bounds.
struct Segments {
  // One more than segments, ascending, within dimension 0: segment i goes from offsets[i] to offsets[i + 1] - 1.
  SideArray offsets{};
  // They are lengths instead, one for each segment, which add up to the size of dimension 0.
  bool lengths = false;
};

// GROUP BY: what has the same key along dimension 0 is an output.
struct Keys {
  SideArray keys{};         // integers, as many as the size of dimension 0
  std::int64_t groups = 0;  // of keys 0 to groups - 1. 0: of those that there are, ascending: ArrayReply.keys
  // What has other keys is in no output. Else such a key is an error, OUT_OF_RANGE. With `groups` only.
  bool drop_outside = false;
};

// Which elements are there; for what is left out, indexes count on.
struct Mask {
  SideArray mask{};  // bool, of the shape of the array: true keeps an element
  // It is u8 of one dimension instead: a bit for each element, the least significant one of a byte first.
  bool bits = false;
  std::int64_t first_bit = 0;  // of `bits`: that of the first element
};

struct PartitionOptions {
  // The dimensions that are reduced, in any order, none twice: from 0, or negative from the last one, which is -1. None
  // at all: every element is a result of its own; with `where`, all dimensions are reduced.
  std::vector<int> axis{};
  // At most one of these, and then no axis: dimension 0 falls apart into outputs.
  std::optional<Segments> segments{};
  std::optional<Keys> keys{};
  std::optional<Mask> where{};
  // The other operand of ops about two arrays: dot, cov, corr, compare and the like take y, weighted_mean and the like
  // take weights; given if and only if an op takes it. Floats go with floats, integers with integers. Of the array's
  // shape, or one that broadcasts to it, as in NumPy.
  std::optional<SideArray> y{};
  std::optional<SideArray> weights{};
  // The results have dimensions of 1 in place of those that were reduced.
  bool keepdims = false;
  // All dimensions are reduced, also of a resident array whose shape is not known here: one output. Without axis,
  // segments and keys, and for such an array with an op of the distribution.
  bool whole = false;
  // What min, max, argmin, argmax and range of no element are: one of EmptyPolicyNames(). "error": the op has an error
  // in the place of its results. "fill": NaN for floats, what any element replaces for integers, 2^64 - 1 for an index.
  // Likewise mode, quantiles of integers, and what topk and the ops like it lack.
  std::string empty = "error";
  // The results become resident arrays in the memory of the server's CPU, and are not sent. Whoever asked deletes them,
  // by Client::DeleteArray or Client::Own.
  std::optional<KeepOptions> keep{};
  // The results are written to a region, one after the other, each at the next multiple of 64 bytes, and are not sent.
  // After an error the region may have some of them. Not with `keep`.
  std::optional<RegionPlace> write_to{};
};

// See host_array.h.
template <class T>
std::span<const T> ResultArray::In(const SharedBuffer& buffer) const {
  const absl::StatusOr<std::int64_t> bytes = ArrayBytes(array.dtype, array.shape);
  if (!bytes.ok() || !written_at.has_value() || *written_at < 0 || *written_at > buffer.bytes() ||
      *bytes > buffer.bytes() - *written_at || ArrayView::Of(static_cast<const T*>(nullptr), 0).dtype != array.dtype) {
    return {};
  }
  const auto* const first = static_cast<const std::byte*>(buffer.data()) + *written_at;
  return {reinterpret_cast<const T*>(first), static_cast<std::size_t>(*bytes) / sizeof(T)};
}

struct ArrayReply {
  std::string via{};  // as Reply.via
  // One for each op, in the order of the request. If no op has results, the call fails instead.
  std::vector<ResultArray> results{};
  ResultArray keys{};      // of the outputs, without an op; no dtype: there were none to be found
  std::int64_t count = 0;  // elements in the array
  // With ReduceOptions.return_state: of the array, which may be a part, for MergeArrayStates of merge.h. Not of
  // segments.
  std::string state{};
  Execution execution{};
  Timing timing{};
  int attempts = 1;  // how often the request was sent

  // The results of an op; null: it was not asked for, or has an error.
  const HostArray* Find(std::string_view op) const { return FindResult(results, op); }
};

// The names that PartitionOptions.empty can have.
REDUCED_EXPORT std::vector<std::string> EmptyPolicyNames();

}  // namespace reduced::client

#endif  // REDUCED_RESULT_ARRAY_H_

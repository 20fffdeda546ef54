// A request on its way into the ring of a session.
#ifndef REDUCED_CLIENT_LIB_RING_PLAN_H_
#define REDUCED_CLIENT_LIB_RING_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/lib/ring_memory.h"
#include "reduced/types.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced::client {

// What is to be sent through a ring.
struct RingPlan {
  // Room for a response with a state, and for its results.
  static constexpr std::uint64_t kReplyBytes = 8192;
  static constexpr std::uint64_t kReplyBytesPerOp = 64;

  v1::ReduceRequest request{};  // without the elements
  const void* data = nullptr;
  std::uint64_t bytes = 0;  // of the elements
  bool elements = false;    // that go through the arena
  std::string message{};    // the request, if it doesn't fit the fixed form
  absl::Duration timeout{};

  std::uint64_t reply_bytes() const {
    return message.empty() ? 0 : kReplyBytes + kReplyBytesPerOp * static_cast<std::uint64_t>(request.ops_size());
  }
  std::uint64_t elements_bytes() const {
    return (bytes + ArenaParts::kAlignment - 1) / ArenaParts::kAlignment * ArenaParts::kAlignment;
  }
  std::uint64_t arena_bytes() const { return elements_bytes() + message.size() + reply_bytes(); }
};

// `timeout`: if the options have none. INVALID_ARGUMENT: what the client can check.
absl::StatusOr<RingPlan> MakeRingPlan(const ArrayView& array, const std::vector<std::string>& ops,
                                      const ReduceOptions& options, absl::Duration timeout);
absl::StatusOr<RingPlan> MakeRingPlan(const RemoteArray& array, const std::vector<std::string>& ops,
                                      const ReduceOptions& options, absl::Duration timeout);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_RING_PLAN_H_

// A request on its way into the ring of a session.
#ifndef REDUCED_CLIENT_LIB_RING_PLAN_H_
#define REDUCED_CLIENT_LIB_RING_PLAN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/lib/answer.h"
#include "client/lib/ring_memory.h"
#include "proto/ring/layout.h"
#include "reduced/array.h"
#include "reduced/result_array.h"
#include "reduced/types.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced::client {

// What is asked: all of a request but its elements, its time, and its place in the ring.
struct RingQuestion {
  v1::ReduceRequest request{};
  Asked asked{};
  std::uint64_t bytes = 0;  // of the elements
  bool elements = false;    // that go through the arena
  ring::Submission form{};  // the kind, and the fields of the fixed form
  std::string message{};    // the request, if it doesn't fit the fixed form
  // Room for the response to the message. What the server alone knows the size of has none: it goes in a message of the
  // session.
  std::uint64_t reply_bytes = 0;
  std::vector<std::string> names{};  // of the ops, if they have parameters

  std::uint64_t elements_bytes() const {
    return (bytes + ArenaParts::kAlignment - 1) / ArenaParts::kAlignment * ArenaParts::kAlignment;
  }
  std::uint64_t arena_bytes() const { return elements_bytes() + message.size() + reply_bytes; }
};

// What is to be sent through a ring.
struct RingPlan {
  std::shared_ptr<const RingQuestion> question{};
  const void* data = nullptr;
  const ElementReader* reader = nullptr;  // of the array, used instead of `data` if there is one
  absl::Duration timeout{};
  v1::ReduceManyResponse* many = nullptr;  // takes the response about many arrays
};

// A message in the arena, which the server parses between the requests of other rings, has at most so many bytes.
inline constexpr std::int64_t kMostRingMessageBytes = std::int64_t{64} << 10;

// `timeout`: if the options have none. `partition`: null: there is none; its arrays go in the message.
// INVALID_ARGUMENT: what the client can check. A thread that asks the same as the last time, without a partition, gets
// the same question, which costs a fraction of a new one.
absl::StatusOr<RingPlan> MakeRingPlan(const ArrayView& array, const std::vector<std::string>& ops,
                                      const ReduceOptions& options, const PartitionOptions* partition,
                                      absl::Duration timeout);
absl::StatusOr<RingPlan> MakeRingPlan(const RemoteArray& array, const std::vector<std::string>& ops,
                                      const ReduceOptions& options, const PartitionOptions* partition,
                                      absl::Duration timeout);
// Of many arrays. `response`: takes the answer. A request of more than kMostRingMessageBytes has no room in any arena.
RingPlan MakeRingPlan(const v1::ReduceManyRequest& request, absl::Duration timeout, v1::ReduceManyResponse* response);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_RING_PLAN_H_

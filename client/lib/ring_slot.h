// What the sources of RingSession have in common.
#ifndef REDUCED_CLIENT_LIB_RING_SLOT_H_
#define REDUCED_CLIENT_LIB_RING_SLOT_H_

#include <chrono>
#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "client/lib/ring_session.h"

namespace reduced::client {

inline constexpr absl::Duration kLookEvery = absl::Milliseconds(50);  // whether the session has ended
using Clock = std::chrono::steady_clock;

// A completion, and the request that has it.
struct RingSession::Slot {
  std::uint32_t index = 0;
  ring::Patience patience{};  // of whoever waits for it
  std::uint64_t arena_offset = 0;
  std::uint64_t arena_bytes = 0;
  std::uint64_t id = 0;
  std::shared_ptr<const RingQuestion> question{};
  v1::ReduceResponse response{};           // keeps its memory from one answer to the next
  v1::ReduceManyResponse* many = nullptr;  // instead of it, of a request about many arrays
  std::uint64_t reply_offset = 0;
  std::uint64_t reply_bytes = 0;
  absl::Duration timeout{};
  absl::Time deadline{};
  Client::Done done{};  // null: a caller is waiting in Reduce
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_RING_SLOT_H_

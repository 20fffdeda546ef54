// The ring of a session: the requests of its client through shared memory. proto/ring/README.md is the protocol.
//
//   1. SessionCall makes a Ring for an OpenRing, offers its memory on the region socket, and adds it to the Poller.
//   2. The poller calls Serve, which copies a submission and looks at the copy only. Each request is a Reduction of one
//      array or of many, which is admitted like one that came in a message of the session. Small arrays are reduced
//      right there, in the arena. Others wait for a lane.
//   3. Answered, on the poller or on a lane, writes the completion, frees what the request held, and wakes the client
//      if it sleeps.
//   4. A client that breaks the protocol ends its session: Serve reports it once, and reads nothing more.
//   5. Close, by the session when it ends: nothing more is read, and `closed` runs once the poller has let go of the
//      ring and every request is answered. Elements in the arena keep its memory until their reduction is over.
#ifndef REDUCED_SERVER_CALLS_RING_H_
#define REDUCED_SERVER_CALLS_RING_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/server_context.h"
#include "kernels/engine/memory_budget.h"
#include "proto/ring/layout.h"
#include "proto/ring/wait.h"
#include "reduced/v1/reduced.pb.h"
#include "server/calls/backend.h"
#include "server/calls/poller.h"
#include "server/calls/session_caller.h"
#include "server/observe/call_record.h"
#include "server/sources/ring_memory.h"
#include "server/wire/encode.h"

namespace reduced::server {

class Ring final : public PolledRing, public std::enable_shared_from_this<Ring> {
 public:
  // What the ring needs of its session, which outlives the ring's last use of it: `closed`. So does the server, of
  // which the ring uses nothing afterwards.
  struct Session {
    const grpc::CallbackServerContext* context = nullptr;
    const CallTag* tag = nullptr;
    CallPayers payers{};
    absl::Time deadline = absl::InfiniteFuture();
    // Runs at most once, on the poller: the client has broken the protocol.
    absl::AnyInvocable<void(const absl::Status&) &&> broken{};
  };

  // INVALID_ARGUMENT, FAILED_PRECONDITION, RESOURCE_EXHAUSTED: as OpenRing of reduced.proto says. `reply`: is filled.
  static absl::StatusOr<std::shared_ptr<Ring>> Open(Backend& backend, const v1::OpenRing& request, Session session,
                                                    v1::Ring* reply);
  ~Ring() override;
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // Begins the end, once. `closed` runs on another thread, or before this returns.
  void Close(absl::AnyInvocable<void() &&> closed);
  // Cancels the requests under way. Thread-safe.
  void CancelAll();
  // How many submissions were read. Thread-safe.
  std::uint64_t served() const { return served_.load(std::memory_order_relaxed); }
  // Whether requests are under way. Thread-safe.
  bool busy() const { return users_.load(std::memory_order_relaxed) > 1; }

  // Of PolledRing, for the poller's thread.
  int doorbell() const override { return memory_->doorbell(); }
  bool HasWork() const override { return !broken_ && Sequence() != Before(); }
  void Serve() override;
  bool Doze() override;
  void WakeUp() override;
  ring::Patience& patience() override { return patience_; }
  void LetGo() override { Leave(); }

 private:
  struct Exchange;

  Ring(Backend& backend, Session session, std::shared_ptr<const RingMemory> memory, MemoryLease lease);
  // The sequence number in the slot of the next submission, and what it was before that came.
  std::uint64_t Sequence() const { return __atomic_load_n(&mapping_.submission(head_).sequence, __ATOMIC_ACQUIRE); }
  std::uint64_t Before() const { return head_ < mapping_.geometry.slots ? 0 : head_ + 1 - mapping_.geometry.slots; }
  absl::Status Take(const ring::Submission& submission);
  void Cancel(std::uint64_t id);
  absl::Status HoldArena(const ring::Submission& submission);
  absl::Status Parse(Exchange& exchange);
  absl::Status Within(const char* field, std::uint64_t offset, std::uint64_t bytes) const;
  void Answered(Exchange& exchange, const absl::Status& status);
  void Write(Exchange& exchange, const absl::Status& status);
  void Leave();

  Backend& backend_;
  Session session_;
  const std::shared_ptr<const RingMemory> memory_;
  MemoryLease lease_;  // for what is fixed, and for the arena as far as it was used; until the last use
  const ring::Mapping mapping_;
  Poller& poller_;
  std::string token_;
  // One for each completion. Those under way are the threads' that answer them, the others the poller's.
  std::vector<std::unique_ptr<Exchange>> exchanges_;
  absl::AnyInvocable<void() &&> closed_;
  std::atomic<int> users_ = 1;  // the poller, and the requests under way
  std::atomic<std::uint64_t> served_ = 0;

  // Used by the poller only.
  SessionCaller caller_;
  ring::Patience patience_;
  std::uint64_t head_ = 0;  // submissions that were read
  bool broken_ = false;
  std::uint64_t arena_held_ = 0;  // bytes of the arena, from its beginning, that lease_ is for

  absl::Mutex mutex_;  // guards the life of the reductions, which Cancel may find at any time
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_RING_H_

// A Session whose requests go through a ring: memory that this process and the server share. proto/ring/README.md is
// the protocol, and ring_session.cc the flow of a request.
#ifndef REDUCED_CLIENT_LIB_RING_SESSION_H_
#define REDUCED_CLIENT_LIB_RING_SESSION_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/lib/answer.h"
#include "client/lib/call.h"
#include "client/lib/ring_memory.h"
#include "client/lib/ring_plan.h"
#include "client/lib/session.h"
#include "proto/ring/layout.h"
#include "proto/ring/wait.h"
#include "reduced/client.h"

namespace reduced::client {

// Thread-safe.
class RingSession : public std::enable_shared_from_this<RingSession> {
 public:
  struct Options {
    std::string server{};
    std::string regions{};  // the path of the region socket
    // The same of the server that answers now, for the next ring.
    std::function<absl::StatusOr<std::string>(absl::Duration timeout)> find_regions{};
    std::int64_t arena_bytes = 0;
    absl::Duration timeout{};  // of requests without one
    absl::Duration close_timeout{};
    absl::Duration idle_timeout{};  // of the server; 0: none
  };

  // Opens the ring of a session that has none. The errors of OpenRing, of the region socket, and UNAVAILABLE.
  static absl::StatusOr<std::shared_ptr<RingSession>> Open(std::shared_ptr<SessionState> session, Options options);
  ~RingSession();

  // As those of Session. An array that has no room in the arena goes in a message of the session. So do requests that
  // the server has not answered when it ends the session, and those after it, until there is another ring.
  // `partition`, `arrays`: null, or a partition and what takes its response, as SessionState::Reduce has it.
  template <class Array>
  absl::StatusOr<Reply> Reduce(const Array& array, const std::vector<std::string>& ops, const ReduceOptions& options,
                               const PartitionOptions* partition = nullptr, v1::ReduceResponse* arrays = nullptr);
  // As SessionState::ReduceMany; in a message of the session, which takes the request, if that has no room in the
  // arena.
  absl::StatusOr<Reply> ReduceMany(v1::ReduceManyRequest& request, const ReduceOptions& options,
                                   v1::ReduceManyResponse* response);
  std::int64_t arena_bytes() const { return options_.arena_bytes; }
  template <class Array>
  Call ReduceAsync(const Array& array, const std::vector<std::string>& ops, const ReduceOptions& options,
                   Client::Done done);
  // Ends the ring, and the session. Must be called once, as the last.
  void Close();

 private:
  struct Slot;
  struct Cancellable;

  RingSession(std::shared_ptr<SessionState> session, Options options);

  absl::Status Attach(absl::Time deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasRoomFor(const RingPlan& plan) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsUsable(absl::Time deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Slot* TryTake(const RingPlan& plan, absl::Time deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Slot*> Take(const RingPlan& plan, absl::Time deadline, InterruptClock& clock);
  absl::StatusOr<ring::Submission> Fill(Slot& slot, RingPlan& plan);
  absl::Status Submit(const ring::Submission& submission);
  absl::Status Wait(Slot& slot, bool slept, absl::Time deadline, InterruptClock& clock);
  absl::StatusOr<Reply> Exchange(Slot& slot, RingPlan& plan, absl::Time deadline, InterruptClock& clock,
                                 v1::ReduceResponse* arrays = nullptr);
  absl::StatusOr<Reply> AnswerOf(Slot& slot, ring::Patience* patience) const;
  void GiveBack(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Abandon(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Sweep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Cancel(std::uint64_t id);
  void Enqueue(Client::Done done, absl::StatusOr<Reply> reply) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WhyEnded();
  void CollectAnswers(const absl::Status& ended) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Listen(absl::Time until);
  void RingOwnBell() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  SessionState::Message MessageOf(const Slot& slot) const;
  Call SendAsync(absl::StatusOr<SessionState::Message> message, const ReduceOptions& options, Client::Done done);
  void SendAgain(Slot& slot) ABSL_LOCKS_EXCLUDED(mutex_);
  void StartWorker() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Work();
  bool IsDone(const Slot& slot) const;

  const std::shared_ptr<SessionState> session_;
  const Options options_;
  const absl::Duration reopen_after_;  // as SessionState has it
  const int most_spinners_;            // threads that may spin at the same time
  std::atomic<int> spinners_ = 0;
  ring::Patience bell_patience_;       // the worker's
  std::optional<std::thread> worker_;  // runs the callbacks; started for the first one

  absl::Mutex mutex_;
  // Replaced only while no request uses it, which then needs no lock to read it.
  std::unique_ptr<RingMemory> memory_;
  std::uint64_t call_ = 0;                                   // of the session, to which the ring belongs
  std::atomic<bool> lost_ = false;                           // that call has ended
  std::vector<std::unique_ptr<Slot>> slots_;                 // by their completion
  std::vector<Slot*> free_ ABSL_GUARDED_BY(mutex_);          // the last one was used last
  std::vector<Slot*> abandoned_ ABSL_GUARDED_BY(mutex_);     // the server still uses them
  std::vector<Slot*> asynchronous_ ABSL_GUARDED_BY(mutex_);  // with callbacks
  std::optional<ArenaParts> arena_ ABSL_GUARDED_BY(mutex_);
  absl::CondVar given_back_;  // wakes who waits for a slot
  std::atomic<std::uint64_t> submitted_ = 0;
  std::uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time last_used_ ABSL_GUARDED_BY(mutex_);
  absl::Time next_attach_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();        // after one that failed
  absl::flat_hash_map<std::uint64_t, Call> sent_again_ ABSL_GUARDED_BY(mutex_);  // in messages, by id
  int in_messages_ ABSL_GUARDED_BY(mutex_) = 0;  // requests with callbacks that went in a message
  std::deque<std::pair<Client::Done, absl::StatusOr<Reply>>> finished_ ABSL_GUARDED_BY(mutex_);
  absl::Time listening_until_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();  // the worker, unless the bell rings
  bool delivering_ ABSL_GUARDED_BY(mutex_) = false;  // the worker has answers that are in no list
  bool listening_ ABSL_GUARDED_BY(mutex_) = false;   // the worker uses the memory, without the mutex
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::CondVar work_;  // wakes the worker while no request is in the ring
  absl::CondVar idle_;  // wakes Close
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_RING_SESSION_H_

// Admission: what every call passes before its request is looked at, in one order, and what it holds until it is over.
//
//   1. identity   UNAUTHENTICATED. First: an unknown caller learns nothing else, and the quota is the identity's.
//   2. deadline   DEADLINE_EXCEEDED. A call that is too late takes nothing.
//   3. gate       UNAVAILABLE while the server drains. Before the limits: a client goes to another server with
//                 UNAVAILABLE, but waits for this one with RESOURCE_EXHAUSTED.
//   4. quota      RESOURCE_EXHAUSTED: the identity, or the peer of an anonymous caller, has too many requests in
//                 progress, or sessions open. Before the slot: a caller that exceeds its quota takes no slot from
//                 others.
//   5. slot       RESOURCE_EXHAUSTED: the server has too many streams or sessions, or the caller has its share of them.
//   6. memory     RESOURCE_EXHAUSTED: of the call itself, whatever is in it, until gRPC has finished it.
//
// kRpcs (config/rpc.h) says which of 3 to 5 a kind of call has. RESOURCE_EXHAUSTED has a retry hint: see WithRetryHint.
// What depends on the request (its errors, room in an engine's queue, memory for an array) is checked after admission.
#ifndef REDUCED_SERVER_CALLS_ADMISSION_H_
#define REDUCED_SERVER_CALLS_ADMISSION_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/engines.h"
#include "kernels/engine/memory_budget.h"
#include "server/calls/backend.h"
#include "server/config/rpc.h"
#include "server/security/identity.h"
#include "server/security/quotas.h"
#include "server/wire/encode.h"

namespace reduced::server {

// The admission of one call. Not thread-safe. `backend` must outlive it.
class Admission {
 public:
  Admission(Rpc rpc, Backend& backend) : rpc_(rpc), backend_(backend) {}
  ~Admission() { Leave(); }
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  // Who pays the quota: the call, or the upload that it is a part of, which takes it by TakeQuota once.
  enum class Payer : std::uint8_t { kCall, kUpload };

  // Before Admit, of a call that waits for its first message: takes the memory of the call itself. RESOURCE_EXHAUSTED:
  // there is none. The error of `caller` is left to Admit.
  absl::Status Begin(const absl::StatusOr<Caller>& caller);
  // Admits the call, once. `caller`: as Backend::CallerOf. On an error nothing is held.
  absl::Status Admit(const absl::StatusOr<Caller>& caller, absl::Time deadline, Payer payer = Payer::kCall);
  // A lease of the caller's quota, after Admit. RESOURCE_EXHAUSTED: as above.
  absl::StatusOr<Quotas::Lease> TakeQuota();

  // After Admit: who was admitted; the identity of the caller, empty if it is anonymous; who pays; and the account's
  // key.
  const Caller& admitted() const { return caller_; }
  const std::string& caller() const { return caller_.identity; }
  const std::string& account() const { return caller_.account; }
  std::uint64_t key() const { return caller_.key; }
  // Who pays for memory that the call takes.
  CallPayers payers() const;

  // Returns quota and slot. Call it before the response is sent: the client may send its next request at once.
  void Release();
  // Returns everything; a draining server waits until here. Call it when gRPC has finished the call, or let the
  // destructor.
  void Leave();

 private:
  absl::Status HoldCall();  // the memory of the call itself, unless it is held

  const Rpc rpc_;
  Backend& backend_;
  Caller caller_;
  bool inside_ = false;  // the gate
  Quotas::Lease quota_;
  Slot slot_ = Slot::kNone;  // that is held
  MemoryLease memory_;       // of the call itself
};

// The messages of requests whose elements are reduced at once, and never wait for a lane.
inline constexpr std::int64_t kSmallMessageBytes = 256 << 10;
// Before a message of `bytes` is parsed. RESOURCE_EXHAUSTED: it is larger than that, and no engine has room for a
// request of the caller that must wait for a lane. The reason is that of the engine where it would wait least.
absl::Status CheckQueues(const Engines& engines, std::uint64_t caller, absl::Time deadline, std::size_t bytes);

// The retry hint of a full engine queue: the time until about half of what waits is done. From 1 ms to 1 s.
absl::Duration QueueRetryDelay(const Engine& engine);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_ADMISSION_H_

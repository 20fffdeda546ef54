// One Session from start to end:
//
//   1. gRPC calls RunSession, which makes a SessionCall. Admission: identity, deadline, a session slot. The call asks
//      for the first message. An open session is not inside the gate: a draining server does not wait for idle
//      sessions.
//   2. A message arrives: OnReadDone parses it into an Exchange, which owns the request, the response and the
//   Reduction.
//      A `reduce` or `reduce_many` starts the Reduction, with an admission of its own; a `cancel` sets the flag of the
//      request that it names. Then the next message is asked for, unless max_session_requests requests are unanswered:
//      the transport's flow control then stops the client.
//   3. The reduction ends: Answered runs on a lane or, for a small array, before Start returns. It encodes the response
//      and frees the request; the id may be used again. Responses queue up: one is written at a time.
//      The answer to `open_ring` goes the same way. Requests that then come through the ring don't concern this file:
//      see ring.h.
//   4. OnWriteDone ends the exchange (its Reduction leaves the gate), and the next response or read goes on.
//   5. After the half-close and the last response the ring is closed, if there is one, and then the call is finished:
//      exactly once, and last. A message or a submission that breaks the protocol, or a client that went away, cancels
//      the reductions in progress; when all have ended, their responses are dropped and the call is finished.
//      The watchdog ends a session that is idle for too long, or whose client does not read.
//   6. OnDone, after every other callback, deletes the call.
//
// Every event changes the state under the mutex, which then determines the Next actions; they run without the mutex,
// since a reduction may be answered at once. While OnReadDone works, reading_ prevents the next read and the end.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/engine/memory_budget.h"
#include "kernels/engine/stopwatch.h"
#include "kernels/system/status_macros.h"
#include "server/calls/admission.h"
#include "server/calls/calls.h"
#include "server/calls/reduction.h"
#include "server/calls/ring.h"
#include "server/calls/session_caller.h"
#include "server/calls/watchdog.h"
#include "server/wire/encode.h"
#include "server/wire/session_id.h"
#include "server/wire/status.h"

namespace reduced::server {
namespace {

// Exchanges that a session keeps for reuse: enough for a client that waits for each response, and a few more.
constexpr std::size_t kSpares = 4;

// A larger message is admitted before it is parsed.
constexpr std::size_t kLargeMessage = 64 << 10;

// One request, from its arrival until its response is written.
struct Exchange {
  Exchange() : arena(arena_start, sizeof(arena_start)) {}

  void Begin(Backend& backend) {
    reduction.emplace(Rpc::kSessionReduce, backend);
    request = google::protobuf::Arena::CreateMessage<v1::SessionRequest>(&arena);
    response = google::protobuf::Arena::CreateMessage<v1::SessionResponse>(&arena);
  }
  void FreeMessages() {
    request = nullptr;
    response = nullptr;
    arena.Reset();
  }

  // The messages of a small request, without its elements, fit into the first block, without an allocation.
  alignas(std::max_align_t) char arena_start[2048];
  google::protobuf::Arena arena;
  v1::SessionRequest* request = nullptr;
  v1::SessionResponse* response = nullptr;
  std::optional<Reduction> reduction;
  grpc::ByteBuffer answer;  // encoded
};

}  // namespace

class SessionCall final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  SessionCall(Backend& backend, grpc::CallbackServerContext* context)
      : backend_(backend),
        context_(context),
        tag_(backend.observer.Begin(context)),
        admission_(Rpc::kSession, backend),
        watch_(backend.watchdog, context, [this](const absl::Status& why) { Stalled(why); }) {
    absl::Status status = admission_.Admit(caller_.Now(), deadline_);
    if (status.ok()) {
      const std::int64_t bytes = backend_.limits.max_session_requests * std::int64_t{sizeof(Exchange)};
      status = memory_.Resize(admission_.payers().Of(bytes), bytes, "the requests of a session");
      if (!status.ok()) status = WithRetryHint(status, kMemoryRetryDelay);
    }
    if (backend_.draining) status.Update(SessionDrained());
    if (status.ok()) {
      watch_.Await(Wait::kRequest);
      StartRead(&message_);
    } else {
      End(status);
    }
  }

  void OnReadDone(bool ok) override {
    {
      const absl::MutexLock lock(&mutex_);
      if (over_) return;  // Stalled() has ended the call
      handling_ = true;
    }
    const absl::Status status = ok ? Take() : absl::OkStatus();
    Next next;
    {
      const absl::MutexLock lock(&mutex_);
      reading_ = handling_ = false;
      ended_ = ended_ || !ok || !status.ok();
      if (!status.ok()) {
        if (status_.ok()) status_ = status;
        DropAll();
      }
      next = WhatIsNext();
    }
    Do(std::move(next));
  }

  void OnWriteDone(bool ok) override {
    Next next;
    {
      const absl::MutexLock lock(&mutex_);
      if (ok) {
        Retire(std::move(writing_));
      } else {
        Drop(std::move(writing_));
        DropAll();  // the client does not receive the others
      }
      next = WhatIsNext();
    }
    Do(std::move(next));
  }

  void OnCancel() override {
    Next next;
    {
      const absl::MutexLock lock(&mutex_);
      if (status_.ok()) status_ = absl::CancelledError("the client cancelled the call, or went away");
      DropAll();
      next = WhatIsNext();
    }
    Do(std::move(next));
  }

  void OnDone() override { delete this; }

 private:
  using ExchangePointer = std::unique_ptr<Exchange>;

  // The actions that follow from the state.
  struct Next {
    grpc::ByteBuffer* write = nullptr;
    bool read = false;
    std::shared_ptr<Ring> close{};
    bool end = false;
    absl::Status status{};  // of the end
  };

  // Handles the message that has arrived. An error: it breaks the protocol.
  absl::Status Take() {
    RETURN_IF_ERROR(CheckMessageSize(message_.Length(), backend_.limits.max_message_bytes));
    ExchangePointer exchange = NewExchange();
    exchange->Begin(backend_);
    v1::SessionRequest& request = *exchange->request;
    const std::size_t bytes = message_.Length();
    const bool large = bytes > kLargeMessage;
    absl::Status status = large ? Admit(*exchange, deadline_, bytes) : absl::OkStatus();
    const bool admitted = status.ok();
    if (admitted) status = Decode(&message_, admission_.payers(), exchange->reduction->message_memory(), &request);
    if (!admitted || absl::IsResourceExhausted(status)) {
      request.set_id(IdOf(message_));
      message_.Clear();
      return Enter(std::move(exchange), [&](Exchange& entered) { Refuse(entered, status); });
    }
    if (!status.ok()) return status;
    if (request.timeout_ms() < 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("request %d: timeout_ms: got %d; allowed: 0 or more", request.id(), request.timeout_ms()));
    }
    switch (request.request_case()) {
      case v1::SessionRequest::kReduce:
      case v1::SessionRequest::kReduceMany:
        return Enter(std::move(exchange), [&](Exchange& entered) { Start(entered, large ? 0 : bytes); });
      case v1::SessionRequest::kOpenRing:
        return Enter(std::move(exchange), [&](Exchange& entered) { OpenRing(entered); });
      case v1::SessionRequest::kCancel:
        Cancel(std::move(exchange));
        return absl::OkStatus();
      case v1::SessionRequest::REQUEST_NOT_SET:
        break;
    }
    return absl::InvalidArgumentError(
        absl::StrFormat("request %d: got none; allowed: reduce, cancel, open_ring, reduce_many", request.id()));
  }

  absl::Status Admit(Exchange& exchange, absl::Time deadline, std::size_t bytes) {
    return exchange.reduction->Admit(context_, &tag_, caller_.Now(), deadline, bytes);
  }

  // Adds a request to those in progress and starts it, unless the session ends.
  absl::Status Enter(ExchangePointer added, absl::FunctionRef<void(Exchange&)> start) {
    const std::uint64_t id = added->request->id();
    Exchange* const exchange = added.get();
    {
      const absl::MutexLock lock(&mutex_);
      if (dropping_) return absl::OkStatus();  // OnCancel ran before
      if (!in_progress_.try_emplace(id, std::move(added)).second) {
        return absl::InvalidArgumentError(
            absl::StrFormat("id: got %d; allowed: an id without a request in progress", id));
      }
      ++unanswered_;
    }
    start(*exchange);
    return absl::OkStatus();
  }

  // `bytes`: of the message that are to be admitted; 0: it has been.
  void Start(Exchange& exchange, std::size_t bytes) {
    Reduction& reduction = *exchange.reduction;
    absl::Time deadline = deadline_;
    if (const std::int64_t ms = exchange.request->timeout_ms(); ms > 0) {
      deadline = std::min(deadline, absl::Now() + absl::Milliseconds(ms));
    }
    if (bytes > 0) {
      const absl::Status admitted = Admit(exchange, deadline, bytes);
      if (!admitted.ok()) return Refuse(exchange, admitted);
    }
    const auto start = [&](const auto& request, auto* response) {
      reduction.Start(&request, response, deadline, reduction.micros(),
                      [this, &exchange](const absl::Status& status) { Answered(&exchange, status); });
    };
    exchange.request->has_reduce_many()
        ? start(exchange.request->reduce_many(), exchange.response->mutable_many_response())
        : start(exchange.request->reduce(), exchange.response->mutable_response());
  }

  void OpenRing(Exchange& exchange) {
    absl::StatusOr<std::shared_ptr<Ring>> ring = absl::FailedPreconditionError("open_ring: the session has a ring");
    if (!HasRing()) {
      ring = Ring::Open(backend_, exchange.request->open_ring(),
                        {.context = context_,
                         .tag = &tag_,
                         .payers = admission_.payers(),
                         .deadline = deadline_,
                         .broken = [this](const absl::Status& why) { Broken(why); }},
                        exchange.response->mutable_ring());
    }
    if (ring.ok()) {
      const absl::MutexLock lock(&mutex_);
      ring_ = *ring;
    }
    Answered(&exchange, ring.status());
  }

  bool HasRing() {
    const absl::MutexLock lock(&mutex_);
    return ring_ != nullptr;
  }

  // The client has written something into its ring that it must not.
  void Broken(const absl::Status& why) {
    Next next;
    {
      const absl::MutexLock lock(&mutex_);
      if (status_.ok()) status_ = why;
      abandoned_ = true;
      DropAll();
      next = WhatIsNext();
    }
    Do(std::move(next));
  }

  void RingClosed() {
    Next next;
    {
      const absl::MutexLock lock(&mutex_);
      ring_ = nullptr;
      closing_ring_ = false;
      next = WhatIsNext();
    }
    Do(std::move(next));
  }

  void Refuse(Exchange& exchange, const absl::Status& why) {
    exchange.reduction->Refuse(why, [this, &exchange](const absl::Status& status) { Answered(&exchange, status); });
  }

  // Ends the request with the same id, if it is in progress.
  void Cancel(ExchangePointer exchange) {
    const absl::MutexLock lock(&mutex_);
    const auto found = in_progress_.find(exchange->request->id());
    if (found != in_progress_.end()) found->second->reduction->Cancel();
    Keep(std::move(exchange));
  }

  // The client has made no progress. One that does not read gets no status: the watchdog resets the call, which ends
  // the read and the write.
  void Stalled(const absl::Status& why) {
    Next next;
    {
      const absl::MutexLock lock(&mutex_);
      const bool idle = unanswered_ == 0 && !handling_;
      if (over_ || (writing_ == nullptr && !idle)) return;
      if (!backend_.draining) {
        if (writing_ == nullptr && RingWasUsed()) return watch_.Await(Wait::kRequest);
        if (status_.ok()) status_ = why;
        DropAll();
        if (writing_ != nullptr) return;
        abandoned_ = true;
      }
      next = WhatIsNext();
    }
    Do(std::move(next));
  }

  // Whether a request has come through the ring since this was asked before, or is in progress there.
  bool RingWasUsed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (ring_ == nullptr) return false;
    const std::uint64_t served = ring_->served();
    return std::exchange(ring_served_, served) != served || ring_->busy();
  }

  void Answered(Exchange* exchange, absl::Status status) {
    const std::uint64_t id = exchange->request->id();
    Reduction& reduction = *exchange->reduction;
    v1::SessionResponse& response = *exchange->response;
    response.set_id(id);
    if (status.ok()) {
      status = Encode(response, reduction.payers(), reduction.answer_memory(), &exchange->answer);
      if (!status.ok()) reduction.Cancel();  // the client does not learn of arrays that were kept
    }
    bool encoded = status.ok();
    if (!encoded) {
      response.Clear();
      response.set_id(id);
      response.set_code(static_cast<int>(status.code()));
      response.set_message(std::string(status.message()));
      if (const auto delay = RetryHint(status)) response.set_retry_after_ms(absl::ToInt64Milliseconds(*delay));
      encoded = EncodeUncounted(response, &exchange->answer).ok();
    }
    exchange->FreeMessages();
    reduction.ReturnMemory();
    Next next;
    {
      const absl::MutexLock lock(&mutex_);
      const auto found = in_progress_.find(id);
      answers_.push_back(std::move(found->second));
      in_progress_.erase(found);
      if (!encoded) {
        if (status_.ok()) status_ = absl::InternalError("a response cannot be encoded");
        DropAll();
      }
      next = WhatIsNext();
    }
    Do(std::move(next));
  }

  Next WhatIsNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Next next;
    if (backend_.draining && !over_) {
      if (status_.ok() && !ended_) status_ = SessionDrained();
      ended_ = abandoned_ = true;
    }
    if (dropping_) {
      for (ExchangePointer& answer : answers_) Drop(std::move(answer));
      answers_.clear();
      ended_ = true;
    }
    if (writing_ == nullptr && !answers_.empty()) {
      writing_ = std::move(answers_.front());
      answers_.pop_front();
      next.write = &writing_->answer;
    }
    if (!reading_ && !ended_ && unanswered_ < backend_.limits.max_session_requests) {
      reading_ = true;
      next.read = true;
    }
    const bool read = !reading_ || (abandoned_ && !handling_);  // what there was to be read
    if (read && ended_ && unanswered_ == 0 && !over_) {
      if (ring_ != nullptr) {
        if (!std::exchange(closing_ring_, true)) next.close = ring_;
      } else {
        over_ = true;
        next.end = true;
        next.status = status_;
      }
    }
    if (over_) return next;
    if (next.write != nullptr) {
      watch_.Await(Wait::kResponse, admission_.key());
    } else if (writing_ == nullptr) {
      watch_.Await(unanswered_ == 0 ? Wait::kRequest : Wait::kNothing);
    }
    return next;
  }

  // The last step of an event: the call may be deleted before this returns.
  void Do(Next next) {
    if (next.write != nullptr) StartWrite(next.write);
    if (next.read) StartRead(&message_);
    if (next.close != nullptr) next.close->Close([this] { RingClosed(); });
    if (next.end) End(next.status);
  }

  void End(const absl::Status& status) {
    admission_.Release();
    backend_.observer.End({.rpc = Rpc::kSession,
                           .tag = &tag_,
                           .context = context_,
                           .caller = &admission_.admitted(),
                           .client_us = watch_.waited_us(),
                           .total_us = since_start_.micros(),
                           .status = status});
    watch_.Await(Wait::kResponse, admission_.key());
    Finish(ToGrpc(status, context_));
  }

  // Cancels the requests in progress; nothing more is read or answered.
  void DropAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    dropping_ = true;
    for (const auto& [id, exchange] : in_progress_) exchange->reduction->Cancel();
    if (ring_ != nullptr) ring_->CancelAll();
  }

  // Ends an exchange whose answer its client does not receive, nor learn of arrays that were kept.
  void Drop(ExchangePointer exchange) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    exchange->reduction->Cancel();
    Retire(std::move(exchange));
  }

  // Ends an exchange that was answered.
  void Retire(ExchangePointer exchange) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    --unanswered_;
    Keep(std::move(exchange));
  }

  void Keep(ExchangePointer exchange) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    exchange->reduction.reset();
    exchange->answer.Clear();
    exchange->FreeMessages();
    if (spares_.size() < kSpares) spares_.push_back(std::move(exchange));
  }

  ExchangePointer NewExchange() {
    const absl::MutexLock lock(&mutex_);
    if (spares_.empty()) return std::make_unique<Exchange>();
    ExchangePointer exchange = std::move(spares_.back());
    spares_.pop_back();
    return exchange;
  }

  Backend& backend_;
  grpc::CallbackServerContext* const context_;
  const CallTag tag_;
  const absl::Time deadline_ = absl::FromChrono(context_->deadline());
  const Stopwatch since_start_;
  Admission admission_;
  MemoryLease memory_;  // for the exchanges
  // Used by the reading thread only.
  grpc::ByteBuffer message_;
  SessionCaller caller_{backend_, *context_};

  absl::Mutex mutex_;
  absl::flat_hash_map<std::uint64_t, ExchangePointer> in_progress_ ABSL_GUARDED_BY(mutex_);  // by id
  std::deque<ExchangePointer> answers_ ABSL_GUARDED_BY(mutex_);                              // to be written, in order
  ExchangePointer writing_ ABSL_GUARDED_BY(mutex_);
  int unanswered_ ABSL_GUARDED_BY(mutex_) = 0;  // in progress, queued, or being written
  std::vector<ExchangePointer> spares_ ABSL_GUARDED_BY(mutex_);
  bool reading_ ABSL_GUARDED_BY(mutex_) = true;    // a message is awaited or handled
  bool handling_ ABSL_GUARDED_BY(mutex_) = false;  // a message is handled
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;     // nothing more is read
  bool dropping_ ABSL_GUARDED_BY(mutex_) = false;  // nothing more is answered
  bool over_ ABSL_GUARDED_BY(mutex_) = false;      // the call is finished
  // The client is not waited for any more: a message that is still being read is not.
  bool abandoned_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<Ring> ring_ ABSL_GUARDED_BY(mutex_);     // null: there is none, or none any more
  bool closing_ring_ ABSL_GUARDED_BY(mutex_) = false;      // until it is null
  std::uint64_t ring_served_ ABSL_GUARDED_BY(mutex_) = 0;  // see RingWasUsed()
  absl::Status status_ ABSL_GUARDED_BY(mutex_);            // of the end: the first error
  Watch watch_;                                            // last: calls Stalled()
};

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* RunSession(Backend& backend,
                                                                        grpc::CallbackServerContext* context) {
  return new SessionCall(backend, context);  // OnDone deletes it
}

}  // namespace reduced::server

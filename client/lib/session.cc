// The flow of one request of a session:
//
//   1. The caller's thread builds the message, gives it an id and writes it, or appends it to the queue: gRPC takes one
//      write at a time.
//   2. The events of gRPC (written, an answer, the end) arrive at the session's own completion queue, which one thread
//      at a time pumps. A caller that waits in Reduce pumps itself, so that its answer wakes it and no other thread.
//      The other callers are followers: they sleep until their answer has arrived or until it is their turn to pump.
//      The worker pumps while all requests in flight have callbacks. Nobody pumps a session without requests in flight.
//   3. An answer is matched by its id. Callbacks run on the worker: if they ran on the thread of a caller that pumps,
//      they could wait for a lock that this caller holds. The answer of a request that was cancelled or missed its
//      deadline finds no request and is dropped.
//   4. When the server ends the call since it stops, or the connection is lost, a new call is opened, which waits for a
//      server, and the requests in flight are sent again: reductions are pure. A request gets the reason once it was
//      sent ClientOptions.max_attempts times, or if the reason will not pass.
//   5. The server ends a session that is idle for too long. Nobody would notice, and the next request would fail: a
//      request after half of that time opens a new call instead, and the old one is cancelled.
//
// Close half-closes the call, pumps to its end (after close_timeout it cancels the call) and ends the worker. After
// that nothing of the session is left in gRPC.
#include "client/lib/session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/lib/checks.h"
#include "client/lib/convert.h"
#include "client/lib/credentials.h"
#include "client/lib/errors.h"
#include "client/lib/retry.h"
#include "client/lib/via.h"
#include "kernels/system/status_macros.h"

namespace reduced::client {

struct SessionState::Request {
  Request(absl::Duration time, Client::Done callback)
      : timeout(time), deadline(absl::Now() + time), done(std::move(callback)) {}

  const absl::Duration timeout;
  const absl::Time deadline;
  std::uint64_t id = 0;
  v1::SessionRequest message;  // until it is answered
  int attempts = 1;
  Asked asked;
  std::vector<std::string> names{};        // SessionState::Message.names
  OpenedRing* ring = nullptr;              // is set to the ring that was asked for instead of a reduction
  v1::ReduceResponse* arrays = nullptr;    // takes the response to a partition
  v1::ReduceManyResponse* many = nullptr;  // likewise, about many arrays
  std::optional<absl::StatusOr<Reply>> reply;
  Client::Done done;   // null: a caller is waiting in Reduce
  absl::CondVar wake;  // wakes that caller
};

struct SessionState::Cancellable final : Call::State {
  void Cancel() override {
    if (const auto state = session.lock()) state->Cancel(id);
  }
  std::weak_ptr<SessionState> session;
  std::uint64_t id = 0;
};

std::shared_ptr<SessionState> SessionState::Open(std::shared_ptr<const Connection> connection, const Options& options) {
  return std::shared_ptr<SessionState>(new SessionState(std::move(connection), options));
}

SessionState::SessionState(std::shared_ptr<const Connection> connection, const Options& options)
    : connection_(std::move(connection)),
      server_(connection_->options.server),
      options_(options),
      reopen_after_(options.idle_timeout > absl::ZeroDuration() ? options.idle_timeout / 2 : absl::InfiniteDuration()) {
  const absl::MutexLock lock(&mutex_);
  StartCall();
}

SessionState::~SessionState() = default;

void SessionState::StartCall() {
  call_.reset();  // before its context
  watch_.reset();
  context_ = std::make_unique<grpc::ClientContext>();
  if (connection_->token != nullptr) context_->AddMetadata("authorization", connection_->token->Authorization());
  context_->set_wait_for_ready(true);  // each request has its own deadline
  const Backend& to = elsewhere_ ? connection_->parts.front() : connection_->home;
  call_ = to.stub->PrepareAsyncSession(context_.get(), &queue_);
  call_->StartCall(ToVoid(Tag::kWritten));
  ++number_;
  watch_.emplace(connection_->peers, absl::InfiniteFuture());
  watch_->Started();
}

void SessionState::CancelCall() {
  context_->TryCancel();
  watch_->Cancelled();
}

// Replaces the call by one that begins with the requests in flight. No thread pumps; what the old call still owes comes
// at once, since it has ended or is cancelled.
void SessionState::Reopen() {
  CancelCall();
  while (writing_ || reading_) {
    void* tag = nullptr;
    bool ok = false;
    if (!queue_.Next(&tag, &ok)) return;
    switch (static_cast<Tag>(reinterpret_cast<std::uintptr_t>(tag))) {
      case Tag::kWritten:
        writing_ = false;
        break;
      case Tag::kRead:
        reading_ = false;
        break;
      case Tag::kWoken:
        waking_ = false;
        break;
      case Tag::kReopen:
        reopening_ = false;
        break;
      case Tag::kFinished:  // is not asked for, or has come
        break;
    }
  }
  outgoing_.clear();
  for (const auto& [id, request] : in_flight_) outgoing_.emplace_back(request, &request->message);
  std::sort(outgoing_.begin(), outgoing_.end(), [](const auto& a, const auto& b) { return a->id() < b->id(); });
  started_ = half_closed_ = finishing_ = over_ = false;
  writing_ = true;
  refused_ = absl::OkStatus();
  StartCall();
}

absl::StatusOr<Reply> SessionState::Reduce(absl::StatusOr<Message> message, const ReduceOptions& options,
                                           v1::ReduceResponse* arrays) {
  if (!message.ok()) return message.status();
  const auto request = std::make_shared<Request>(options.timeout.value_or(options_.timeout), nullptr);
  request->arrays = arrays;
  return Await(*std::move(message), request, options.interrupted);
}

absl::StatusOr<Reply> SessionState::ReduceMany(v1::ReduceManyRequest& many, const ReduceOptions& options,
                                               v1::ReduceManyResponse* response) {
  const auto request = std::make_shared<Request>(options.timeout.value_or(options_.timeout), nullptr);
  request->many = response;
  Message message;
  message.request.mutable_reduce_many()->Swap(&many);
  RETURN_IF_ERROR(Prepare(request->timeout, &message.request));
  return Await(std::move(message), request, options.interrupted);
}

absl::StatusOr<SessionState::OpenedRing> SessionState::OpenRing(std::int64_t arena_bytes, absl::Time deadline) {
  OpenedRing ring;
  Message message;
  message.request.mutable_open_ring()->set_arena_bytes(arena_bytes);
  const auto request = std::make_shared<Request>(deadline - absl::Now(), nullptr);
  request->ring = &ring;
  ASSIGN_OR_RETURN(const Reply reply, Await(std::move(message), request, nullptr));
  if (IsId(ring.ring.token())) return ring;
  return WrongAnswer(server_, absl::InternalError("ring.token: got none; allowed: the token of a ring"));
}

absl::StatusOr<Reply> SessionState::Await(Message message, const std::shared_ptr<Request>& request,
                                          const Interrupted& interrupted) {
  const absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(Add(std::move(message), request));
  const auto answered = [&] { return request->reply.has_value(); };
  InterruptClock clock(interrupted);
  while (!Drive(std::min(request->deadline, clock.due()), answered, &request->wake)) {
    if (absl::Now() >= request->deadline) {
      Withdraw(request, LateError(*request));
    } else if (Ask(clock) && !answered()) {
      Withdraw(request, InterruptedError());
    }
  }
  HandOver();
  return *std::move(request->reply);
}

// Others may use the session meanwhile.
bool SessionState::Ask(InterruptClock& clock) {
  HandOver();
  mutex_.Unlock();
  const bool interrupted = clock.Ask();
  mutex_.Lock();
  return interrupted;
}

Call SessionState::ReduceAsync(absl::StatusOr<Message> message, const ReduceOptions& options, Client::Done done) {
  Call call;
  if (!message.ok()) {
    std::move(done)(message.status());
    return call;
  }
  const auto request = std::make_shared<Request>(options.timeout.value_or(options_.timeout), std::move(done));
  {
    const absl::MutexLock lock(&mutex_);
    absl::Status status = Add(*std::move(message), request);
    if (status.ok()) {
      ++asynchronous_;
      next_late_ = std::min(next_late_, request->deadline);
      if (!worker_.has_value()) worker_.emplace([this] { Work(); });
      if (!pumping_) {
        work_.Signal();
      } else if (request->deadline < pumping_until_ && !waking_) {
        waking_ = true;
        alarm_.Set(&queue_, std::chrono::system_clock::now(), ToVoid(Tag::kWoken));
      }
      auto cancellable = std::make_shared<Cancellable>();
      cancellable->session = weak_from_this();
      cancellable->id = request->id;
      call.state_ = std::move(cancellable);
      return call;
    }
    request->reply = std::move(status);
  }
  std::move(request->done)(*std::move(request->reply));
  return call;
}

absl::Status SessionState::Add(Message message, const std::shared_ptr<Request>& request) {
  if (ended_) return status_;
  const absl::Time now = absl::Now();
  const bool idle = IsIdle(now);
  last_used_ = now;
  request->id = ++last_id_;
  request->asked = Asked(message.request.reduce());
  request->message = std::move(message.request);
  request->names = std::move(message.names);
  request->message.set_id(request->id);
  in_flight_.emplace(request->id, request);
  if (over_) {
    ReopenAt(now);
  } else if (idle) {
    Reopen();
  } else {
    outgoing_.emplace_back(request, &request->message);
    Write();
  }
  return absl::OkStatus();
}

// Whether the server may have ended the call because nobody used it.
bool SessionState::IsIdle(absl::Time now) const {
  return in_flight_.empty() && !pumping_ && !over_ && !closing_ && !finishing_ && now - last_used_ > reopen_after_;
}

void SessionState::Touch(absl::Time used) { IdleSince(used); }

bool SessionState::IdleSince(absl::Time used) {
  const absl::MutexLock lock(&mutex_);
  last_used_ = std::max(last_used_, used);
  return IsIdle(absl::Now());
}

// Whether the call goes on; 0: any, that a server has accepted.
bool SessionState::IsCall(std::uint64_t call) const {
  return !ended_ && !over_ && (call == 0 ? started_ : number_ == call);
}

bool SessionState::IsOpen(std::uint64_t call) {
  const absl::MutexLock lock(&mutex_);
  if (!ended_ && !pumping_) {
    Pump(absl::Now());
    HandOver();
  }
  return IsCall(call);
}

absl::Status SessionState::AwaitEnd(std::uint64_t call, absl::Time deadline) {
  const absl::MutexLock lock(&mutex_);
  absl::CondVar wake;
  Drive(
      deadline, [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !IsCall(call); }, &wake);
  HandOver();
  return IsCall(call) ? absl::OkStatus() : status_;
}

void SessionState::Complete(const std::shared_ptr<Request>& request, absl::StatusOr<Reply> reply) {
  request->reply = std::move(reply);
  in_flight_.erase(request->id);
  last_used_ = absl::Now();
  if (request->done == nullptr) {
    request->wake.Signal();
    return;
  }
  --asynchronous_;
  done_.push_back(request);
  work_.Signal();
}

// Completes a request and has the server cancel it.
void SessionState::Withdraw(const std::shared_ptr<Request>& request, const absl::Status& status) {
  Complete(request, status);
  if (over_) return;
  const auto message = std::make_shared<v1::SessionRequest>();
  message->set_id(request->id);
  message->mutable_cancel();
  outgoing_.push_back(message);
  Write();
}

absl::Status SessionState::LateError(const Request& request) const {
  if (!started_ && absl::IsUnavailable(status_)) {
    return absl::UnavailableError(
        absl::StrCat(status_.message(), "; waited for a server for ", absl::FormatDuration(request.timeout)));
  }
  return ErrorOf(grpc::StatusCode::DEADLINE_EXCEEDED, "", server_, request.timeout, std::nullopt);
}

void SessionState::Cancel(std::uint64_t id) {
  const absl::MutexLock lock(&mutex_);
  const auto found = in_flight_.find(id);
  if (found == in_flight_.end()) return;
  const std::shared_ptr<Request> request = found->second;
  Withdraw(request, absl::CancelledError("the request was cancelled by its caller"));
}

// Withdraws the requests with callbacks that have missed their deadline. A caller in Reduce checks its own deadline.
void SessionState::WithdrawLate() {
  const absl::Time now = absl::Now();
  if (now < next_late_) return;
  next_late_ = absl::InfiniteFuture();
  std::vector<std::shared_ptr<Request>> late;
  for (const auto& [id, request] : in_flight_) {
    if (request->done == nullptr) continue;
    if (request->deadline <= now) {
      late.push_back(request);
    } else {
      next_late_ = std::min(next_late_, request->deadline);
    }
  }
  for (const std::shared_ptr<Request>& request : late) Withdraw(request, LateError(*request));
}

// Pumps, or waits while another thread pumps, until over() (returns true) or `until` (returns false).
bool SessionState::Drive(absl::Time until, absl::FunctionRef<bool()> over, absl::CondVar* wake) {
  while (!over()) {
    if (absl::Now() >= until) return false;
    if (!pumping_) {
      Pump(until);
      continue;
    }
    followers_.push_back(wake);
    wake->WaitWithDeadline(&mutex_, until);
    followers_.erase(std::find(followers_.begin(), followers_.end(), wake));
  }
  return true;
}

// Handles the next event, if there is one before `until`.
void SessionState::Pump(absl::Time until) {
  pumping_ = true;
  pumping_until_ = std::min(until, next_late_);
  if (started_ && !reading_ && !finishing_) {
    reading_ = true;
    call_->Read(&incoming_, ToVoid(Tag::kRead));
  }
  const auto deadline = absl::ToChronoTime(pumping_until_);
  mutex_.Unlock();
  void* tag = nullptr;
  bool ok = false;
  const bool event = queue_.AsyncNext(&tag, &ok, deadline) == grpc::CompletionQueue::GOT_EVENT;
  mutex_.Lock();
  pumping_ = false;
  if (event) Handle(static_cast<Tag>(reinterpret_cast<std::uintptr_t>(tag)), ok);
  WithdrawLate();
}

// Lets another thread pump: a follower if there is one, else the worker if it has callbacks to wait for.
void SessionState::HandOver() {
  if (pumping_) return;
  if (!followers_.empty()) {
    followers_.front()->Signal();
  } else if (asynchronous_ > 0) {
    work_.Signal();
  }
}

void SessionState::Handle(Tag tag, bool ok) {
  switch (tag) {
    case Tag::kWritten:
      writing_ = false;
      if (over_) return;
      started_ = started_ || ok;
      if (!started_) return Finish();
      if (ok) return Write();
      half_closed_ = true;  // the call has ended, which the next read reports
      outgoing_.clear();
      return;
    case Tag::kRead:
      reading_ = false;
      return ok ? TakeAnswer() : Finish();
    case Tag::kFinished:
      return Ended(finished_with_);
    case Tag::kReopen:
      reopening_ = false;
      if (over_ && !ended_ && !in_flight_.empty()) Reopen();
      return;
    case Tag::kWoken:
      waking_ = false;
      return;
  }
}

// The call has ended.
void SessionState::Ended(const grpc::Status& status) {
  over_ = true;
  started_ = false;
  if (!wrong_.ok()) return EndAll(wrong_);
  if (closing_ && in_flight_.empty()) return EndAll(absl::UnavailableError("the session was closed"));
  absl::Status why = ErrorOf(status.error_code(), status.error_message(), server_, options_.timeout, std::nullopt);
  // CANCELLED, unless Close has: by a proxy, or a server that stops. DEADLINE_EXCEEDED: it was idle for too long.
  const bool cut_off = status.ok() || (absl::IsCancelled(why) && !closing_) || absl::IsDeadlineExceeded(why);
  if (cut_off) why = absl::UnavailableError(absl::StrCat(server_, " ended the session"));
  if (!refused_.ok()) why = refused_;
  const auto hint = RetryHintOf(*context_);
  if (!absl::IsUnavailable(why) && !(absl::IsResourceExhausted(why) && hint.has_value())) return EndAll(why);
  SendAgain(why, hint);
}

// Prepares another call for the requests in flight, except for those that were sent often enough.
void SessionState::SendAgain(const absl::Status& why, std::optional<absl::Duration> hint) {
  status_ = why;
  std::vector<std::shared_ptr<Request>> finished;
  int attempts = 1;
  for (const auto& [id, request] : in_flight_) {
    if (request->ring != nullptr || request->attempts >= connection_->options.max_attempts) {
      finished.push_back(request);
    } else {
      attempts = std::max(attempts, request->attempts++);
      connection_->retries.fetch_add(1, std::memory_order_relaxed);
    }
  }
  for (const std::shared_ptr<Request>& request : finished) {
    Complete(request, request->attempts == 1
                          ? why
                          : WithMessage(why, absl::StrCat(why.message(), "; tried ", request->attempts, " times")));
  }
  if (in_flight_.empty()) return closing_ ? EndAll(why) : void();
  ReopenAt(absl::Now() + std::max(hint.value_or(absl::ZeroDuration()), RetryDelay(attempts)));
}

// By the thread that pumps then, unless it is to be done already.
void SessionState::ReopenAt(absl::Time when) {
  if (std::exchange(reopening_, true)) return;
  reopen_alarm_.Set(&queue_, absl::ToChronoTime(when), ToVoid(Tag::kReopen));
}

// The session is over, with the requests in flight.
void SessionState::EndAll(const absl::Status& why) {
  ended_ = true;
  status_ = why;
  while (!in_flight_.empty()) {
    const std::shared_ptr<Request> request = in_flight_.begin()->second;
    Complete(request, status_);
  }
}

// Leaves a server that refuses a request, since it stops.
void SessionState::Move(const absl::Status& why) {
  if (!refused_.ok()) return;
  refused_ = why;
  if (connection_->target.several) elsewhere_ = !elsewhere_;
  CancelCall();
}

void SessionState::TakeAnswer() {
  if ((incoming_.id() == 0 || incoming_.id() > last_id_) && wrong_.ok()) {
    // The server doesn't follow the protocol: which of its answers belong to which request is anybody's guess.
    wrong_ = WrongAnswer(server_, absl::InternalError(absl::StrCat("id: got ", incoming_.id(), "; allowed: 1 to ",
                                                                   last_id_, ", the ids of the requests")));
    CancelCall();
  }
  const auto found = in_flight_.find(incoming_.id());
  if (found == in_flight_.end() || !wrong_.ok()) return;
  const std::shared_ptr<Request> request = found->second;
  if (incoming_.code() == 0 && request->ring != nullptr) {
    *request->ring = {.ring = incoming_.ring(), .call = number_};
    return Complete(request, Reply());
  }
  if (incoming_.code() == 0 && request->many != nullptr) {
    request->many->Swap(incoming_.mutable_many_response());
    return Complete(request, Reply{.via = std::string(kSession), .attempts = request->attempts});
  }
  if (incoming_.code() == 0) {
    absl::StatusOr<Reply> reply =
        ToReply(server_, request->asked, *incoming_.mutable_response(), kSession, request->names);
    if (reply.ok()) reply->attempts = request->attempts;
    if (reply.ok() && request->arrays != nullptr) request->arrays->Swap(incoming_.mutable_response());
    return Complete(request, std::move(reply));
  }
  const absl::Status error = ErrorOf(incoming_.code(), incoming_.message(), server_, request->timeout,
                                     absl::Milliseconds(incoming_.retry_after_ms()));
  if (absl::IsUnavailable(error) && request->ring == nullptr) return Move(error);
  Complete(request, error);
}

// Starts the next write, unless one is in progress.
void SessionState::Write() {
  if (writing_ || half_closed_ || finishing_ || over_) return;
  if (!outgoing_.empty()) {
    writing_ = true;
    call_->Write(*outgoing_.front(), ToVoid(Tag::kWritten));
    outgoing_.pop_front();
  } else if (closing_) {
    writing_ = true;
    half_closed_ = true;
    call_->WritesDone(ToVoid(Tag::kWritten));
  }
}

void SessionState::Finish() {
  finishing_ = true;
  outgoing_.clear();
  call_->Finish(&finished_with_, ToVoid(Tag::kFinished));
}

// The thread that runs the callbacks.
void SessionState::Work() {
  const absl::MutexLock lock(&mutex_);
  for (;;) {
    if (!done_.empty()) {
      const std::shared_ptr<Request> request = std::move(done_.front());
      done_.pop_front();
      HandOver();
      mutex_.Unlock();
      std::move(request->done)(*std::move(request->reply));
      request->done = nullptr;
      mutex_.Lock();
    } else if (asynchronous_ > 0 && !pumping_) {
      Pump(absl::InfiniteFuture());
    } else if (stopping_) {
      return;
    } else {
      HandOver();
      work_.Wait(&mutex_);
    }
  }
}

void SessionState::Close() {
  {
    const absl::MutexLock lock(&mutex_);
    closing_ = true;
    Write();
    absl::CondVar wake;
    const auto over = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return ended_; };
    if (over_ && in_flight_.empty()) EndAll(absl::UnavailableError("the session was closed"));
    const bool waits = !started_ && absl::IsUnavailable(status_);  // for a server
    if (waits && in_flight_.empty()) CancelCall();
    if (!Drive(absl::Now() + options_.close_timeout, over, &wake)) {
      CancelCall();
      if (over_) EndAll(absl::CancelledError("the session was closed"));
      Drive(absl::InfiniteFuture(), over, &wake);
    }
    reopen_alarm_.Cancel();
    stopping_ = true;
    work_.Signal();
  }
  if (worker_.has_value()) worker_->join();
  watch_->Cancelled();  // a write may be left of a call that has ended
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
  watch_->Ended();
}

}  // namespace reduced::client

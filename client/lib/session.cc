// One request of a session, start to end:
//
//   1. The caller's thread makes the message, gives it an id and writes it, or leaves it in the queue of those that
//      wait for their turn: one is written at a time.
//   2. What gRPC has to say (written, an answer, the end) comes through the session's own completion queue, which one
//      thread at a time pumps: a caller that waits in Reduce does so itself, so that its answer wakes it and nobody
//      else. Other callers follow: they sleep until their answer is here, or until it is their turn to pump. The worker
//      pumps while there are only callbacks to wait for. Nobody pumps a session that has nothing under way.
//   3. The answer is matched by its id. A callback is left to the worker: on the thread of a caller that happens to
//      pump it could wait for a lock that the caller holds. The answer of a request that was cancelled, or given up
//      because it is late, finds no one and is dropped.
//   4. When the call ends, each request under way gets the reason.
//
// Close half-closes, pumps to the end (from some time on cancelled), and ends the worker: afterwards gRPC has nothing
// of the session left.
#include "client/lib/session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/lib/convert.h"
#include "client/lib/credentials.h"

namespace reduced::client {

namespace {

void SetTimeout(absl::Duration timeout, v1::SessionRequest* message) {
  if (timeout == absl::InfiniteDuration()) return;
  message->set_timeout_ms(absl::ToInt64Milliseconds(absl::Ceil(timeout, absl::Milliseconds(1))));
}

}  // namespace

struct SessionState::Request {
  Request(absl::Duration time, Client::Done callback)
      : timeout(time), deadline(absl::Now() + time), done(std::move(callback)) {}

  const absl::Duration timeout;
  const absl::Time deadline;
  std::uint64_t id = 0;
  std::optional<absl::StatusOr<Reply>> reply;
  Client::Done done;   // null: a caller waits
  absl::CondVar wake;  // for that caller
};

struct SessionState::Cancellable final : Call::State {
  void Cancel() override {
    if (const auto state = session.lock()) state->Cancel(id);
  }
  std::weak_ptr<SessionState> session;
  std::uint64_t id = 0;
};

std::shared_ptr<SessionState> SessionState::Open(std::shared_ptr<v1::Reduction::Stub> stub, std::string server,
                                                 Token* token, absl::Duration timeout, absl::Duration close_timeout,
                                                 std::int64_t max_message_bytes) {
  return std::shared_ptr<SessionState>(
      new SessionState(std::move(stub), std::move(server), token, timeout, close_timeout, max_message_bytes));
}

SessionState::SessionState(std::shared_ptr<v1::Reduction::Stub> stub, std::string server, Token* token,
                           absl::Duration timeout, absl::Duration close_timeout, std::int64_t max_message_bytes)
    : stub_(std::move(stub)),
      server_(std::move(server)),
      timeout_(timeout),
      close_timeout_(close_timeout),
      max_message_bytes_(max_message_bytes),
      call_(stub_->PrepareAsyncSession(&context_, &queue_)) {
  if (token != nullptr) context_.AddMetadata("authorization", token->Authorization());
  call_->StartCall(ToVoid(Tag::kWritten));
}

SessionState::~SessionState() = default;

absl::StatusOr<v1::SessionRequest> SessionState::Ask(const ArrayView& array, const std::vector<std::string>& ops,
                                                     const ReduceOptions& options) const {
  const absl::Duration timeout = options.timeout.value_or(timeout_);
  v1::SessionRequest message;
  absl::Status status = CheckTimeout(timeout);
  status.Update(ToProto(array, message.mutable_reduce()->mutable_array()));
  status.Update(ToProto(ops, options, message.mutable_reduce()));
  if (!status.ok()) return status;
  const std::int64_t bytes = *ArrayBytes(array.dtype, array.shape);
  const absl::StatusOr<absl::string_view> via = ChooseVia(options.via == "auto" ? kInline : options.via, bytes);
  if (!via.ok()) return via.status();
  if (*via != kInline) {
    return absl::InvalidArgumentError(absl::StrCat("via \"", *via, "\" is not for a session; allowed: auto, inline"));
  }
  std::int64_t size = bytes;
  if (size <= max_message_bytes_) {
    message.mutable_reduce()->set_inline_data(array.data, static_cast<std::size_t>(bytes));
    SetTimeout(timeout, &message);
    message.set_id(~std::uint64_t{0});  // of the greatest size
    size = static_cast<std::int64_t>(message.ByteSizeLong());
  }
  if (size <= max_message_bytes_) return message;
  return absl::ResourceExhaustedError(
      absl::StrCat("the request is larger than ", server_, " takes: ", size, " bytes, at most ", max_message_bytes_));
}

absl::StatusOr<v1::SessionRequest> SessionState::Ask(const RemoteArray& array, const std::vector<std::string>& ops,
                                                     const ReduceOptions& options) const {
  const absl::Duration timeout = options.timeout.value_or(timeout_);
  v1::SessionRequest message;
  absl::Status status = CheckTimeout(timeout);
  status.Update(ToProto(array, message.mutable_reduce()));
  status.Update(ToProto(ops, options, message.mutable_reduce()));
  if (!status.ok()) return status;
  SetTimeout(timeout, &message);
  return message;
}

absl::StatusOr<Reply> SessionState::Reduce(absl::StatusOr<v1::SessionRequest> message, const ReduceOptions& options) {
  if (!message.ok()) return message.status();
  const auto request = std::make_shared<Request>(options.timeout.value_or(timeout_), nullptr);
  const absl::MutexLock lock(&mutex_);
  const absl::Status status = Add(*std::move(message), request);
  if (!status.ok()) return status;
  const auto answered = [&] { return request->reply.has_value(); };
  if (!Drive(request->deadline, answered, &request->wake)) Withdraw(request, LateError(*request));
  HandOn();
  return *std::move(request->reply);
}

Call SessionState::ReduceAsync(absl::StatusOr<v1::SessionRequest> message, const ReduceOptions& options,
                               Client::Done done) {
  Call call;
  if (!message.ok()) {
    std::move(done)(message.status());
    return call;
  }
  const auto request = std::make_shared<Request>(options.timeout.value_or(timeout_), std::move(done));
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

absl::Status SessionState::Add(v1::SessionRequest message, const std::shared_ptr<Request>& request) {
  if (over_) return status_;
  request->id = ++last_id_;
  message.set_id(request->id);
  under_way_.emplace(request->id, request);
  outgoing_.push_back(std::move(message));
  Write();
  return absl::OkStatus();
}

void SessionState::Complete(const std::shared_ptr<Request>& request, absl::StatusOr<Reply> reply) {
  request->reply = std::move(reply);
  under_way_.erase(request->id);
  if (request->done == nullptr) {
    request->wake.Signal();
    return;
  }
  --asynchronous_;
  done_.push_back(request);
  work_.Signal();
}

// Completes a request and tells the server that nobody waits for it any more.
void SessionState::Withdraw(const std::shared_ptr<Request>& request, const absl::Status& status) {
  Complete(request, status);
  v1::SessionRequest message;
  message.set_id(request->id);
  message.mutable_cancel();
  outgoing_.push_back(std::move(message));
  Write();
}

absl::Status SessionState::LateError(const Request& request) const {
  return ErrorOf(grpc::StatusCode::DEADLINE_EXCEEDED, "", server_, request.timeout, "");
}

void SessionState::Cancel(std::uint64_t id) {
  const absl::MutexLock lock(&mutex_);
  const auto found = under_way_.find(id);
  if (found == under_way_.end()) return;
  const std::shared_ptr<Request> request = found->second;
  Withdraw(request, absl::CancelledError("the request was cancelled by its caller"));
}

// Of the asynchronous requests: a caller that waits looks after its own.
void SessionState::WithdrawLate() {
  const absl::Time now = absl::Now();
  if (now < next_late_) return;
  next_late_ = absl::InfiniteFuture();
  std::vector<std::shared_ptr<Request>> late;
  for (const auto& [id, request] : under_way_) {
    if (request->done == nullptr) continue;
    if (request->deadline <= now) {
      late.push_back(request);
    } else {
      next_late_ = std::min(next_late_, request->deadline);
    }
  }
  for (const std::shared_ptr<Request>& request : late) Withdraw(request, LateError(*request));
}

// Pumps, or lets another thread do it, until over(): true, or false after `until`.
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

// Handles what comes next, or nothing by `until`.
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

// Who pumped and has no more reason to leaves it to another one who has.
void SessionState::HandOn() {
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
      started_ = started_ || ok;
      if (!started_) return Finish();
      if (ok) return Write();
      half_closed_ = true;  // the call has ended: the next read says so
      outgoing_.clear();
      return;
    case Tag::kRead:
      reading_ = false;
      return ok ? TakeAnswer() : Finish();
    case Tag::kFinished: {
      over_ = true;
      status_ = ErrorOf(finished_with_.error_code(), finished_with_.error_message(), server_, timeout_, "");
      if (status_.ok()) status_ = absl::UnavailableError(absl::StrCat(server_, " ended the session"));
      while (!under_way_.empty()) {
        const std::shared_ptr<Request> request = under_way_.begin()->second;
        Complete(request, status_);
      }
      return;
    }
    case Tag::kWoken:
      waking_ = false;
      return;
  }
}

void SessionState::TakeAnswer() {
  const auto found = under_way_.find(incoming_.id());
  if (found == under_way_.end()) return;
  const std::shared_ptr<Request> request = found->second;
  if (incoming_.code() == 0) return Complete(request, ReplyOf(incoming_.response(), kSession));
  const std::string retry = incoming_.retry_after_ms() > 0 ? absl::StrCat(incoming_.retry_after_ms()) : "";
  Complete(request, ErrorOf(incoming_.code(), incoming_.message(), server_, request->timeout, retry));
}

// Writes what is next, if nothing is being written.
void SessionState::Write() {
  if (writing_ || half_closed_ || finishing_) return;
  if (!outgoing_.empty()) {
    writing_ = true;
    call_->Write(outgoing_.front(), ToVoid(Tag::kWritten));
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

// The worker.
void SessionState::Work() {
  const absl::MutexLock lock(&mutex_);
  for (;;) {
    if (!done_.empty()) {
      const std::shared_ptr<Request> request = std::move(done_.front());
      done_.pop_front();
      HandOn();
      mutex_.Unlock();
      std::move(request->done)(*std::move(request->reply));
      request->done = nullptr;
      mutex_.Lock();
    } else if (asynchronous_ > 0 && !pumping_) {
      Pump(absl::InfiniteFuture());
    } else if (stopping_) {
      return;
    } else {
      HandOn();
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
    const auto over = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return over_; };
    if (!Drive(absl::Now() + close_timeout_, over, &wake)) {
      context_.TryCancel();
      Drive(absl::InfiniteFuture(), over, &wake);
    }
    stopping_ = true;
    work_.Signal();
  }
  if (worker_.has_value()) worker_->join();
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

Session::~Session() { state_->Close(); }

absl::StatusOr<Reply> Session::Reduce(const ArrayView& array, const std::vector<std::string>& ops,
                                      const ReduceOptions& options) {
  return state_->Reduce(state_->Ask(array, ops, options), options);
}

Call Session::ReduceAsync(const ArrayView& array, const std::vector<std::string>& ops, const ReduceOptions& options,
                          Client::Done done) {
  return state_->ReduceAsync(state_->Ask(array, ops, options), options, std::move(done));
}

absl::StatusOr<Reply> Session::Reduce(const RemoteArray& array, const std::vector<std::string>& ops,
                                      const ReduceOptions& options) {
  return state_->Reduce(state_->Ask(array, ops, options), options);
}

Call Session::ReduceAsync(const RemoteArray& array, const std::vector<std::string>& ops, const ReduceOptions& options,
                          Client::Done done) {
  return state_->ReduceAsync(state_->Ask(array, ops, options), options, std::move(done));
}

}  // namespace reduced::client

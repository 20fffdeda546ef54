// The requests of a RingSession with callbacks, and the worker, which waits for their answers.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "client/lib/ring_session.h"
#include "client/lib/ring_slot.h"
#include "proto/ring/wait.h"

namespace reduced::client {

struct RingSession::Cancellable final : Call::State {
  void Cancel() override {
    if (const auto state = session.lock()) state->Cancel(id);
  }
  std::weak_ptr<RingSession> session;
  std::uint64_t id = 0;
};

template <class Array>
Call RingSession::ReduceAsync(const Array& array, const std::vector<std::string>& ops, const ReduceOptions& options,
                              Client::Done done) {
  Call call;
  absl::StatusOr<RingPlan> plan = MakeRingPlan(array, ops, options, /*partition=*/nullptr, options_.timeout);
  if (!plan.ok()) {
    std::move(done)(plan.status());
    return call;
  }
  Slot* slot = nullptr;
  {
    const absl::MutexLock lock(&mutex_);
    const absl::Time deadline = absl::Now() + plan->timeout;
    if (HasRoomFor(*plan) && IsUsable(deadline)) slot = TryTake(*plan, deadline);
  }
  if (slot == nullptr) return SendAsync(session_->Ask(array, ops, options), options, std::move(done));
  absl::StatusOr<ring::Submission> submission = Fill(*slot, *plan);
  absl::Status status = submission.status();
  {
    const absl::MutexLock lock(&mutex_);
    slot->deadline = absl::Now() + plan->timeout;
    if (status.ok()) {
      submission->flags |= ring::kRingBell;
      status = Submit(*submission);
    }
    if (status.ok()) {
      slot->done = std::exchange(done, nullptr);
      memory_->Knock();
      asynchronous_.push_back(slot);
      StartWorker();
      if (slot->deadline < listening_until_) RingOwnBell();
    } else {
      GiveBack(*slot);
    }
  }
  if (!status.ok()) return SendAsync(session_->Ask(array, ops, options), options, std::move(done));
  auto cancellable = std::make_shared<Cancellable>();
  cancellable->session = weak_from_this();
  cancellable->id = submission->id;
  call.state_ = std::move(cancellable);
  return call;
}

// In a message of the session. The callback runs on the worker, as the others do.
Call RingSession::SendAsync(absl::StatusOr<SessionState::Message> message, const ReduceOptions& options,
                            Client::Done done) {
  {
    const absl::MutexLock lock(&mutex_);
    ++in_messages_;
    StartWorker();
  }
  return session_->ReduceAsync(
      std::move(message), options,
      [self = shared_from_this(), done = std::move(done)](absl::StatusOr<Reply> reply) mutable {
        const absl::MutexLock lock(&self->mutex_);
        --self->in_messages_;
        self->Enqueue(std::move(done), std::move(reply));
      });
}

// The message for a request that is in the ring.
SessionState::Message RingSession::MessageOf(const Slot& slot) const {
  const RingQuestion& question = *slot.question;
  SessionState::Message made{.names = question.names};
  v1::SessionRequest& message = made.request;
  *message.mutable_reduce() = question.request;
  if (question.elements) {
    message.mutable_reduce()->set_inline_data(memory_->mapping().arena() + slot.arena_offset, question.bytes);
  }
  if (slot.deadline != absl::InfiniteFuture()) {
    message.set_timeout_ms(std::max<std::int64_t>(absl::ToInt64Milliseconds(slot.deadline - absl::Now()), 1));
  }
  return made;
}

// Sends a request with a callback in a message, without the mutex: a session that has ended calls back at once. The
// slot stays taken, until there is another ring.
void RingSession::SendAgain(Slot& slot) {
  const std::uint64_t id = slot.id;
  ReduceOptions options;
  options.timeout = std::max(slot.deadline - absl::Now(), absl::Milliseconds(1));
  {
    const absl::MutexLock lock(&mutex_);
    ++in_messages_;
    sent_again_.emplace(id, Call());
  }
  Call call = session_->ReduceAsync(
      MessageOf(slot), options,
      [self = shared_from_this(), id, done = std::move(slot.done)](absl::StatusOr<Reply> reply) mutable {
        const absl::MutexLock lock(&self->mutex_);
        --self->in_messages_;
        self->sent_again_.erase(id);
        self->Enqueue(std::move(done), std::move(reply));
      });
  const absl::MutexLock lock(&mutex_);
  const auto found = sent_again_.find(id);
  if (found != sent_again_.end()) found->second = std::move(call);
  Abandon(slot);
}

void RingSession::StartWorker() {
  if (!worker_.has_value()) worker_.emplace([this] { Work(); });
  work_.Signal();
}

// Ends one request with a callback, if it is in the ring.
void RingSession::Cancel(std::uint64_t id) {
  const absl::MutexLock lock(&mutex_);
  const auto found =
      std::find_if(asynchronous_.begin(), asynchronous_.end(), [id](Slot* slot) { return slot->id == id; });
  if (found == asynchronous_.end()) {
    const auto again = sent_again_.find(id);
    if (again != sent_again_.end()) again->second.Cancel();
    return;
  }
  Slot& slot = **found;
  asynchronous_.erase(found);
  Enqueue(std::move(slot.done), absl::CancelledError("the request was cancelled by its caller"));
  Abandon(slot);
}

// Has the worker run a callback.
void RingSession::Enqueue(Client::Done done, absl::StatusOr<Reply> reply) {
  finished_.emplace_back(std::move(done), std::move(reply));
  work_.Signal();
  RingOwnBell();
}

// Wakes the worker if it waits for answers.
void RingSession::RingOwnBell() {
  std::uint32_t& bell = memory_->mapping().header().bell;
  if (ring::Shared(bell).exchange(ring::kRung) == ring::kListener) ring::FutexWake(bell);
}

// Returns once the bell has rung since the last time, or `until` has passed.
void RingSession::Listen(absl::Time until) {
  std::uint32_t& word = memory_->mapping().header().bell;
  const auto bell = ring::Shared(word);
  if (bell.exchange(ring::kQuiet) == ring::kRung) return;
  const Clock::time_point start = Clock::now();
  if (spinners_.fetch_add(1, std::memory_order_relaxed) < most_spinners_) {
    ring::Spin spin;
    while (bell.load(std::memory_order_relaxed) == ring::kQuiet && Clock::now() - start < bell_patience_.now()) {
      spin.Pause();
    }
  }
  spinners_.fetch_sub(1, std::memory_order_relaxed);
  std::uint32_t quiet = ring::kQuiet;
  if (bell.compare_exchange_strong(quiet, ring::kListener)) {
    const absl::Duration sleep = std::max(until - absl::Now(), absl::Microseconds(1));
    ring::FutexWait(word, ring::kListener, absl::ToChronoNanoseconds(sleep));
  }
  bell.exchange(ring::kQuiet);
}

// Ends the requests with callbacks that are answered or late. Those who send more need not wait for that.
void RingSession::CollectAnswers(const absl::Status& ended) {
  const absl::Time now = absl::Now();
  std::vector<Slot*> waiting, answered, again;
  for (Slot* const slot : asynchronous_) {
    if (IsDone(*slot)) {
      answered.push_back(slot);
    } else if (absl::IsUnavailable(ended) && slot->deadline > now) {
      again.push_back(slot);
    } else if (!ended.ok() || slot->deadline <= now) {
      finished_.emplace_back(
          std::move(slot->done),
          ended.ok() ? ErrorOf(grpc::StatusCode::DEADLINE_EXCEEDED, "", options_.server, slot->timeout, {}) : ended);
      Abandon(*slot);
    } else {
      waiting.push_back(slot);
    }
  }
  asynchronous_ = std::move(waiting);
  delivering_ = true;
  mutex_.Unlock();
  for (Slot* const slot : again) SendAgain(*slot);
  std::vector<absl::StatusOr<Reply>> replies;
  replies.reserve(answered.size());
  for (Slot* const slot : answered) replies.push_back(AnswerOf(*slot, &bell_patience_));
  mutex_.Lock();
  delivering_ = false;
  for (std::size_t i = 0; i < answered.size(); ++i) {
    finished_.emplace_back(std::move(answered[i]->done), std::move(replies[i]));
    GiveBack(*answered[i]);
  }
}

// The thread that runs the callbacks.
void RingSession::Work() {
  const absl::MutexLock lock(&mutex_);
  absl::Time look = absl::Now() + kLookEvery;
  for (;;) {
    if (!finished_.empty()) {
      auto finished = std::exchange(finished_, {});
      delivering_ = true;
      mutex_.Unlock();
      for (auto& [done, reply] : finished) {
        std::move(done)(std::move(reply));
        done = nullptr;
      }
      mutex_.Lock();
      delivering_ = false;
    } else if (!asynchronous_.empty()) {
      const absl::Time now = absl::Now();
      const bool look_now = now >= look;
      if (look_now) look = now + kLookEvery;
      listening_until_ = look;
      for (const Slot* const slot : asynchronous_) listening_until_ = std::min(listening_until_, slot->deadline);
      const absl::Time until = listening_until_;
      listening_ = true;
      mutex_.Unlock();
      Listen(until);
      const bool ended = lost_ || memory_->ended() || (look_now && !session_->IsOpen(call_));
      const absl::Status why = ended ? WhyEnded() : absl::OkStatus();
      mutex_.Lock();
      listening_ = false;
      CollectAnswers(why);
    } else if (stopping_) {
      return;
    } else {
      idle_.SignalAll();
      work_.Wait(&mutex_);
    }
  }
}

template Call RingSession::ReduceAsync(const ArrayView&, const std::vector<std::string>&, const ReduceOptions&,
                                       Client::Done);
template Call RingSession::ReduceAsync(const RemoteArray&, const std::vector<std::string>&, const ReduceOptions&,
                                       Client::Done);

}  // namespace reduced::client

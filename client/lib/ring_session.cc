// The flow of one request:
//
//   1. The caller's thread builds the request, takes a completion that is free and a part of the arena, or waits until
//      there are some, copies the elements into the arena, and submits.
//   2. If the server sleeps, the thread rings its doorbell. Threads that submit while it is awake need no system call.
//   3. A caller in Reduce waits for its own completion: it spins as long as that is likely to pay, and then sleeps on
//   its
//      word. Answers to requests with callbacks ring the bell of the ring, which the worker waits for in the same way.
//   4. A request that was cancelled or missed its deadline is answered at once. Its completion and its part of the
//   arena
//      stay taken until the server has answered, too.
//   5. Who sleeps wakes up several times a second to see whether the session has ended: a server that was killed wakes
//      nobody.
//   6. A request that is in the ring when its session ends, since the server stops, goes in a message of the session,
//   as
//      all others do until the session's next call has another ring.
//   7. After half of the server's limit on idle sessions the next request opens a new call with a new ring.
#include "client/lib/ring_session.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/lib/convert.h"
#include "client/lib/via.h"
#include "kernels/system/status_macros.h"
#include "proto/ring/codec.h"
#include "proto/ring/wait.h"

namespace reduced::client {
namespace {

constexpr absl::Duration kLookEvery = absl::Milliseconds(50);  // whether the session has ended
constexpr absl::Duration kAttachEvery = absl::Seconds(1);      // after an attempt that failed
constexpr absl::Duration kSweepEvery = absl::Milliseconds(1);  // whether an abandoned slot is free again
constexpr double kLongUs = 1e6;                                // longer times of the server make no difference
using Clock = std::chrono::steady_clock;

}  // namespace

// A completion, and the request that has it.
struct RingSession::Slot {
  std::uint32_t index = 0;
  ring::Patience patience{};  // of whoever waits for it
  std::uint64_t arena_offset = 0;
  std::uint64_t arena_bytes = 0;
  std::uint64_t id = 0;
  std::shared_ptr<const RingQuestion> question{};
  v1::ReduceResponse response{};  // keeps its memory from one answer to the next
  std::uint64_t reply_offset = 0;
  std::uint64_t reply_bytes = 0;
  absl::Duration timeout{};
  absl::Time deadline{};
  Client::Done done{};  // null: a caller is waiting in Reduce
};

struct RingSession::Cancellable final : Call::State {
  void Cancel() override {
    if (const auto state = session.lock()) state->Cancel(id);
  }
  std::weak_ptr<RingSession> session;
  std::uint64_t id = 0;
};

absl::StatusOr<std::shared_ptr<RingSession>> RingSession::Open(std::shared_ptr<SessionState> session, Options options) {
  const std::shared_ptr<RingSession> ring(new RingSession(std::move(session), std::move(options)));
  const absl::MutexLock lock(&ring->mutex_);
  RETURN_IF_ERROR(ring->Attach(absl::Now() + ring->options_.timeout));
  return ring;
}

RingSession::RingSession(std::shared_ptr<SessionState> session, Options options)
    : session_(std::move(session)),
      options_(std::move(options)),
      reopen_after_(options_.idle_timeout > absl::ZeroDuration() ? options_.idle_timeout / 2
                                                                 : absl::InfiniteDuration()),
      most_spinners_(ring::Processors() - 1) {}

RingSession::~RingSession() = default;

// Opens a ring. No request is in the one before.
absl::Status RingSession::Attach(absl::Time deadline) {
  absl::StatusOr<std::string> regions = options_.regions;
  if (memory_ != nullptr) regions = options_.find_regions(deadline - absl::Now());  // it may be another server
  if (!regions.ok()) return regions.status();
  ASSIGN_OR_RETURN(const SessionState::OpenedRing opened, session_->OpenRing(options_.arena_bytes, deadline));
  ASSIGN_OR_RETURN(memory_, RingMemory::Take(*regions, opened.ring, deadline));
  call_ = opened.call;
  lost_ = false;
  slots_.clear();
  free_.clear();
  abandoned_.clear();
  for (std::uint32_t i = 0; i < memory_->mapping().geometry.slots; ++i) {
    slots_.push_back(std::make_unique<Slot>());
    slots_.back()->index = i;
    free_.push_back(slots_.back().get());
  }
  arena_.emplace(memory_->mapping().geometry.arena_bytes);
  submitted_ = 0;
  last_used_ = absl::Now();
  return absl::OkStatus();
}

// Whether the arena is large enough. If not, the request goes in a message of the same session.
bool RingSession::HasRoomFor(const RingPlan& plan) {
  if (plan.question->arena_bytes() <= memory_->mapping().geometry.arena_bytes) return true;
  session_->Touch(last_used_);  // it isn't idle, even if no message has come for long
  return false;
}

// Whether requests can go through the ring. If its call has ended, another one is opened as soon as no request uses the
// memory. After a loss the first message opens a call, which waits for a server; after a long pause this does.
bool RingSession::IsUsable(absl::Time deadline) {
  if (!lost_ && !memory_->ended()) return true;
  lost_ = true;
  const absl::Time now = absl::Now();
  if (free_.size() + abandoned_.size() < slots_.size() || listening_ || delivering_) return false;
  const bool after_pause = now - last_used_ > reopen_after_;
  if (now < next_attach_ || !(after_pause || session_->IsOpen(0))) return false;
  if (Attach(deadline).ok()) return true;
  next_attach_ = now + kAttachEvery;
  return false;
}

// A completion and a part of the arena, which belong to the caller until GiveBack or Abandon. Null: there is none now.
RingSession::Slot* RingSession::TryTake(const RingPlan& plan, absl::Time deadline) {
  if (!abandoned_.empty()) Sweep();
  const absl::Time now = absl::Now();
  const bool unused = free_.size() == slots_.size() && !listening_;
  if (unused && now - last_used_ > reopen_after_ && session_->IdleSince(last_used_)) {
    Attach(deadline).IgnoreError();
  }
  last_used_ = now;
  const auto offset = free_.empty() ? std::nullopt : arena_->Take(plan.question->arena_bytes());
  if (!offset.has_value()) return nullptr;
  Slot* const slot = free_.back();
  free_.pop_back();
  slot->arena_offset = *offset;
  slot->arena_bytes = plan.question->arena_bytes();
  slot->id = ++last_id_;
  return slot;
}

// Likewise; waits until there is one. Null: the arena is too small, or there is no ring now.
absl::StatusOr<RingSession::Slot*> RingSession::Take(const RingPlan& plan, absl::Time deadline, InterruptClock& clock) {
  const absl::MutexLock lock(&mutex_);
  for (;;) {
    if (!HasRoomFor(plan) || !IsUsable(deadline)) return nullptr;
    if (Slot* const slot = TryTake(plan, deadline); slot != nullptr) return slot;
    const absl::Time now = absl::Now();
    if (now >= deadline) return ErrorOf(grpc::StatusCode::DEADLINE_EXCEEDED, "", options_.server, plan.timeout, {});
    const absl::Duration most = abandoned_.empty() ? kLookEvery : kSweepEvery;
    given_back_.WaitWithDeadline(&mutex_, std::min({deadline, clock.due(), now + most}));
    const std::uint64_t call = call_;
    mutex_.Unlock();
    const bool interrupted = clock.Ask();
    const bool open = session_->IsOpen(call);
    mutex_.Lock();
    if (interrupted) return InterruptedError();
    if (!open && call == call_) lost_ = true;
  }
}

// Copies the elements and the message into the arena. The submission, which is left to be published.
ring::Submission RingSession::Fill(Slot& slot, RingPlan& plan) {
  std::byte* const arena = memory_->mapping().arena();
  const RingQuestion& question = *plan.question;
  ring::Submission submission = question.form;
  submission.id = slot.id;
  submission.completion = slot.index;
  submission.kind = static_cast<std::uint8_t>(ring::Kind::kReduce);
  if (plan.timeout != absl::InfiniteDuration()) {
    submission.timeout_us =
        static_cast<std::uint64_t>(std::max<std::int64_t>(absl::ToInt64Microseconds(plan.timeout), 1));
  }
  if (question.elements) {
    submission.source = static_cast<std::uint8_t>(ring::Source::kArena);
    submission.offset = slot.arena_offset;
    submission.bytes = question.bytes;
    if (question.bytes > 0) std::memcpy(arena + slot.arena_offset, plan.data, question.bytes);
  }
  slot.reply_bytes = question.reply_bytes;
  if (const std::string& message = question.message; !message.empty()) {
    submission.message_offset = slot.arena_offset + question.elements_bytes();
    submission.message_bytes = message.size();
    std::memcpy(arena + submission.message_offset, message.data(), message.size());
    submission.reply_offset = slot.reply_offset = submission.message_offset + message.size();
    submission.reply_bytes = slot.reply_bytes;
  }
  slot.timeout = plan.timeout;
  slot.question = std::move(plan.question);
  ring::Shared(memory_->mapping().completion(slot.index).state).store(ring::kPending, std::memory_order_relaxed);
  return submission;
}

// Publishes a submission. Several threads may, without a lock: the server waits for them in the order of their numbers.
// UNAVAILABLE: the server doesn't take those before it.
absl::Status RingSession::Submit(const ring::Submission& submission) {
  const ring::Mapping& mapping = memory_->mapping();
  std::optional<absl::Time> patience;
  std::uint64_t number = submitted_.load(std::memory_order_relaxed);
  for (;;) {
    if (number - ring::Shared(mapping.header().taken).load(std::memory_order_acquire) < mapping.geometry.slots) {
      if (submitted_.compare_exchange_weak(number, number + 1, std::memory_order_relaxed)) break;
      continue;
    }
    // There is room, unless many requests were cancelled at once: the server takes submissions faster than they come.
    if (!patience.has_value()) patience = absl::Now() + absl::Seconds(1);
    if (memory_->ended() || absl::Now() > *patience) {
      return absl::UnavailableError(absl::StrCat(options_.server, " takes no requests from the ring"));
    }
    memory_->Knock();
    sched_yield();
    number = submitted_.load(std::memory_order_relaxed);
  }
  ring::Submission& slot = mapping.submission(number);
  // All but the sequence number, which is first.
  std::memcpy(reinterpret_cast<char*>(&slot) + sizeof(slot.sequence),
              reinterpret_cast<const char*>(&submission) + sizeof(slot.sequence),
              sizeof(slot) - sizeof(slot.sequence) - sizeof(slot.unused));
  ring::Shared(slot.sequence).store(number + 1, std::memory_order_release);
  return absl::OkStatus();
}

// Whether the server has written its state, which may be none: see AnswerOf.
bool RingSession::IsDone(const Slot& slot) const {
  const std::uint32_t state =
      ring::Shared(memory_->mapping().completion(slot.index).state).load(std::memory_order_acquire);
  return state != ring::kPending && state != ring::kSleeping;
}

// Waits until the request is answered: OK. DEADLINE_EXCEEDED, CANCELLED, or why the session ended.
// `slept`: the server, when the request was sent.
absl::Status RingSession::Wait(Slot& slot, bool slept, absl::Time deadline, InterruptClock& clock) {
  const Clock::time_point start = Clock::now();
  const auto patience = slept ? slot.patience.with_wake() : slot.patience.now();
  if (spinners_.fetch_add(1, std::memory_order_relaxed) < most_spinners_) {
    ring::Spin spin;
    while (!IsDone(slot) && Clock::now() - start < patience) spin.Pause();
  }
  spinners_.fetch_sub(1, std::memory_order_relaxed);
  std::uint32_t& state = memory_->mapping().completion(slot.index).state;
  absl::Time look = absl::InfinitePast();
  while (!IsDone(slot)) {
    const absl::Time now = absl::Now();
    if (look == absl::InfinitePast()) look = now + kLookEvery;
    if (now >= deadline) return ErrorOf(grpc::StatusCode::DEADLINE_EXCEEDED, "", options_.server, slot.timeout, {});
    if (clock.Ask()) return InterruptedError();
    if (lost_ || memory_->ended() || (now >= look && !session_->IsOpen(call_))) {
      if (IsDone(slot)) break;
      return WhyEnded();
    }
    if (now >= look) look = now + kLookEvery;
    std::uint32_t pending = ring::kPending;
    ring::Shared(state).compare_exchange_strong(pending, ring::kSleeping);
    const absl::Duration sleep = std::min({deadline, clock.due(), look}) - now;
    ring::FutexWait(state, ring::kSleeping, absl::ToChronoNanoseconds(std::max(sleep, absl::Microseconds(1))));
  }
  return absl::OkStatus();
}

// Of a request that the server has answered.
absl::StatusOr<Reply> RingSession::AnswerOf(Slot& slot, ring::Patience* patience) const {
  const ring::Mapping& mapping = memory_->mapping();
  const ring::Completion answer = ring::CopyOut(mapping.completion(slot.index));
  if (answer.state != ring::kDone) {
    return WrongAnswer(
        options_.server,
        absl::InternalError(absl::StrCat("state: got ", answer.state, "; allowed: ", static_cast<int>(ring::kDone))));
  }
  if (answer.id != slot.id) {
    return WrongAnswer(options_.server,
                       absl::InternalError(absl::StrCat("id: got ", answer.id, "; allowed: ", slot.id)));
  }
  if (answer.code != 0) {
    return ErrorOf(static_cast<int>(answer.code), ring::TextOf(answer), options_.server, slot.timeout,
                   absl::Milliseconds(answer.retry_after_ms));
  }
  v1::ReduceResponse& response = slot.response;
  if (slot.reply_bytes == 0) {
    response.Clear();
    ring::FromCompletion(answer, slot.question->request, &response);
  } else {
    const std::string copy(reinterpret_cast<const char*>(mapping.arena() + slot.reply_offset),
                           std::min<std::uint64_t>(answer.reply_bytes, slot.reply_bytes));
    if (answer.reply_bytes > slot.reply_bytes || !response.ParseFromString(copy)) {
      return WrongAnswer(options_.server, absl::InternalError(absl::StrCat("reply: got ", answer.reply_bytes,
                                                                           " bytes; allowed: a ReduceResponse")));
    }
  }
  // What the server needs; a sleep, and waking up, would take longer than that and look like the reason to sleep.
  if (const double us = response.timing().total_us(); us >= 0) {
    patience->Took(std::chrono::nanoseconds(static_cast<std::int64_t>(std::min(us, kLongUs) * 1e3)));
  }
  return ToReply(options_.server, slot.question->asked, response, kRing, slot.question->names);
}

void RingSession::GiveBack(Slot& slot) {
  arena_->Give(slot.arena_offset, slot.arena_bytes);
  free_.push_back(&slot);
  last_used_ = absl::Now();
  given_back_.Signal();
}

// Has the server cancel a request whose caller doesn't wait any more.
void RingSession::Abandon(Slot& slot) {
  abandoned_.push_back(&slot);
  if (lost_) return;
  ring::Submission cancel{};
  cancel.kind = static_cast<std::uint8_t>(ring::Kind::kCancel);
  cancel.id = slot.id;
  if (Submit(cancel).ok()) memory_->Knock();
}

// Gives back what the server doesn't use any more.
void RingSession::Sweep() {
  const auto done = std::partition(abandoned_.begin(), abandoned_.end(), [this](Slot* slot) { return !IsDone(*slot); });
  for (auto each = done; each != abandoned_.end(); ++each) GiveBack(**each);
  abandoned_.erase(done, abandoned_.end());
}

// UNAVAILABLE: what the server has not answered goes in messages.
absl::Status RingSession::WhyEnded() {
  lost_ = true;
  const absl::Status status = session_->AwaitEnd(call_, absl::Now() + options_.close_timeout);
  return status.ok() ? absl::UnavailableError(absl::StrCat(options_.server, " ended the session's ring")) : status;
}

template <class Array>
absl::StatusOr<Reply> RingSession::Reduce(const Array& array, const std::vector<std::string>& ops,
                                          const ReduceOptions& options, const PartitionOptions* partition,
                                          v1::ReduceResponse* arrays) {
  ASSIGN_OR_RETURN(RingPlan plan, MakeRingPlan(array, ops, options, partition, options_.timeout));
  const absl::Time deadline = absl::Now() + plan.timeout;
  InterruptClock clock(options.interrupted);
  ASSIGN_OR_RETURN(Slot* const taken, Take(plan, deadline, clock));
  if (taken == nullptr) return session_->Reduce(session_->Ask(array, ops, options, partition), options, arrays);
  Slot& slot = *taken;
  absl::Status status = Submit(Fill(slot, plan));
  const bool submitted = status.ok();
  if (submitted) status = Wait(slot, memory_->Knock(), deadline, clock);
  absl::StatusOr<Reply> reply = status.ok() ? AnswerOf(slot, &slot.patience) : status;
  if (arrays != nullptr && reply.ok()) arrays->Swap(&slot.response);
  {
    const absl::MutexLock lock(&mutex_);
    if (status.ok() || !submitted) {
      GiveBack(slot);
    } else {
      Abandon(slot);
    }
  }
  if (!absl::IsUnavailable(reply.status())) return reply;
  ReduceOptions rest = options;
  rest.timeout = std::max(deadline - absl::Now(), absl::Milliseconds(1));
  return session_->Reduce(session_->Ask(array, ops, rest, partition), rest, arrays);
}

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
  ring::Submission submission = Fill(*slot, *plan);
  submission.flags |= ring::kRingBell;
  absl::Status status;
  {
    const absl::MutexLock lock(&mutex_);
    slot->deadline = absl::Now() + plan->timeout;
    status = Submit(submission);
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
  cancellable->id = submission.id;
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

void RingSession::Close() {
  {
    const absl::MutexLock lock(&mutex_);
    const auto idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return asynchronous_.empty() && finished_.empty() && !delivering_ && in_messages_ == 0;
    };
    for (const absl::Time end = absl::Now() + options_.close_timeout; !idle() && absl::Now() < end;) {
      idle_.WaitWithDeadline(&mutex_, end);
    }
    for (Slot* const slot : std::exchange(asynchronous_, {})) {
      Enqueue(std::move(slot->done), absl::CancelledError("the session was closed"));
      Abandon(*slot);
    }
  }
  session_->Close();  // its callbacks need the worker
  {
    const absl::MutexLock lock(&mutex_);
    stopping_ = true;
    work_.Signal();
  }
  if (worker_.has_value()) worker_->join();
}

template absl::StatusOr<Reply> RingSession::Reduce(const ArrayView&, const std::vector<std::string>&,
                                                   const ReduceOptions&, const PartitionOptions*, v1::ReduceResponse*);
template absl::StatusOr<Reply> RingSession::Reduce(const RemoteArray&, const std::vector<std::string>&,
                                                   const ReduceOptions&, const PartitionOptions*, v1::ReduceResponse*);
template Call RingSession::ReduceAsync(const ArrayView&, const std::vector<std::string>&, const ReduceOptions&,
                                       Client::Done);
template Call RingSession::ReduceAsync(const RemoteArray&, const std::vector<std::string>&, const ReduceOptions&,
                                       Client::Done);

}  // namespace reduced::client

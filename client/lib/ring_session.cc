// The flow of one request:
//
//   1. The caller's thread builds the request, takes a completion that is free and a part of the arena, or waits until
//      there are some, copies the elements into the arena, and submits.
//   2. If the server sleeps, the thread rings its doorbell. Threads that submit while it is awake need no system call.
//   3. A caller in Reduce waits for its own completion: it spins as long as that is likely to pay, and then sleeps on
//      its word. Answers to requests with callbacks ring the bell of the ring, which the worker waits for in the same
//      way: see ring_callbacks.cc.
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
#include "client/lib/ring_slot.h"
#include "client/lib/via.h"
#include "kernels/system/status_macros.h"
#include "proto/ring/codec.h"
#include "proto/ring/wait.h"

namespace reduced::client {
namespace {

constexpr absl::Duration kAttachEvery = absl::Seconds(1);      // after an attempt that failed
constexpr absl::Duration kSweepEvery = absl::Milliseconds(1);  // whether an abandoned slot is free again
constexpr double kLongUs = 1e6;                                // longer times of the server make no difference

}  // namespace

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

// Copies the elements and the message into the arena. The submission, which is left to be published. Errors of the
// array's reader.
absl::StatusOr<ring::Submission> RingSession::Fill(Slot& slot, RingPlan& plan) {
  std::byte* const arena = memory_->mapping().arena();
  const RingQuestion& question = *plan.question;
  ring::Submission submission = question.form;
  submission.id = slot.id;
  submission.completion = slot.index;
  if (plan.timeout != absl::InfiniteDuration()) {
    submission.timeout_us =
        static_cast<std::uint64_t>(std::max<std::int64_t>(absl::ToInt64Microseconds(plan.timeout), 1));
  }
  if (question.elements) {
    submission.source = static_cast<std::uint8_t>(ring::Source::kArena);
    submission.offset = slot.arena_offset;
    submission.bytes = question.bytes;
    std::byte* const to = arena + slot.arena_offset;
    if (plan.reader != nullptr) {
      RETURN_IF_ERROR(plan.reader->read(0, reinterpret_cast<char*>(to), static_cast<std::int64_t>(question.bytes)));
    } else if (question.bytes > 0) {
      std::memcpy(to, plan.data, question.bytes);
    }
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
  slot.many = plan.many;
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
  google::protobuf::Message& message =
      slot.many == nullptr ? static_cast<google::protobuf::Message&>(response) : *slot.many;
  if (slot.reply_bytes == 0) {
    response.Clear();
    ring::FromCompletion(answer, slot.question->request, &response);
  } else {
    const std::string copy(reinterpret_cast<const char*>(mapping.arena() + slot.reply_offset),
                           std::min<std::uint64_t>(answer.reply_bytes, slot.reply_bytes));
    if (answer.reply_bytes > slot.reply_bytes || !message.ParseFromString(copy)) {
      return WrongAnswer(options_.server,
                         absl::InternalError(absl::StrCat("reply: got ", answer.reply_bytes, " bytes; allowed: a ",
                                                          message.GetDescriptor()->name())));
    }
  }
  // What the server needs; a sleep, and waking up, would take longer than that and look like the reason to sleep.
  const v1::Timing& timing = slot.many == nullptr ? response.timing() : slot.many->timing();
  if (const double us = timing.total_us(); us >= 0) {
    patience->Took(std::chrono::nanoseconds(static_cast<std::int64_t>(std::min(us, kLongUs) * 1e3)));
  }
  if (slot.many != nullptr) return Reply{.via = std::string(kRing)};
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

// Sends a request that has a slot, and gives that back. UNAVAILABLE: it goes in a message. `arrays`: as Reduce has it.
absl::StatusOr<Reply> RingSession::Exchange(Slot& slot, RingPlan& plan, absl::Time deadline, InterruptClock& clock,
                                            v1::ReduceResponse* arrays) {
  const absl::StatusOr<ring::Submission> submission = Fill(slot, plan);
  absl::Status status = submission.ok() ? Submit(*submission) : submission.status();
  const bool submitted = status.ok();
  if (submitted) status = Wait(slot, memory_->Knock(), deadline, clock);
  absl::StatusOr<Reply> reply = status.ok() ? AnswerOf(slot, &slot.patience) : status;
  if (arrays != nullptr && reply.ok()) arrays->Swap(&slot.response);
  const absl::MutexLock lock(&mutex_);
  if (status.ok() || !submitted) {
    GiveBack(slot);
  } else {
    Abandon(slot);
  }
  return reply;
}

template <class Array>
absl::StatusOr<Reply> RingSession::Reduce(const Array& array, const std::vector<std::string>& ops,
                                          const ReduceOptions& options, const PartitionOptions* partition,
                                          v1::ReduceResponse* arrays) {
  ASSIGN_OR_RETURN(RingPlan plan, MakeRingPlan(array, ops, options, partition, options_.timeout));
  const absl::Time deadline = absl::Now() + plan.timeout;
  InterruptClock clock(options.interrupted);
  ASSIGN_OR_RETURN(Slot* const slot, Take(plan, deadline, clock));
  if (slot == nullptr) return session_->Reduce(session_->Ask(array, ops, options, partition), options, arrays);
  absl::StatusOr<Reply> reply = Exchange(*slot, plan, deadline, clock, arrays);
  if (!absl::IsUnavailable(reply.status())) return reply;
  ReduceOptions rest = options;
  rest.timeout = std::max(deadline - absl::Now(), absl::Milliseconds(1));
  return session_->Reduce(session_->Ask(array, ops, rest, partition), rest, arrays);
}

absl::StatusOr<Reply> RingSession::ReduceMany(v1::ReduceManyRequest& request, const ReduceOptions& options,
                                              v1::ReduceManyResponse* response) {
  RingPlan plan = MakeRingPlan(request, options.timeout.value_or(options_.timeout), response);
  const absl::Time deadline = absl::Now() + plan.timeout;
  InterruptClock clock(options.interrupted);
  ASSIGN_OR_RETURN(Slot* const slot, Take(plan, deadline, clock));
  if (slot == nullptr) return session_->ReduceMany(request, options, response);
  absl::StatusOr<Reply> reply = Exchange(*slot, plan, deadline, clock);
  if (!absl::IsUnavailable(reply.status())) return reply;
  ReduceOptions rest = options;
  rest.timeout = std::max(deadline - absl::Now(), absl::Milliseconds(1));
  return session_->ReduceMany(request, rest, response);
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

}  // namespace reduced::client

#include "server/calls/ring.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "google/protobuf/arena.h"
#include "kernels/system/status_macros.h"
#include "proto/ring/codec.h"
#include "server/calls/reduction.h"
#include "server/wire/encode.h"
#include "server/wire/status.h"

namespace reduced::server {
namespace {

constexpr std::int64_t kDefaultArenaBytes = std::int64_t{1} << 20;
// Of a message, which the poller parses while other rings wait. Elements need not be in it.
constexpr std::uint64_t kMaxMessageBytes = std::uint64_t{64} << 10;

absl::Status Broken(const char* field, std::uint64_t got, std::uint64_t allowed, const char* of = "") {
  return absl::InvalidArgumentError(absl::StrFormat("ring: %s: got %d; allowed: %d%s", field, got, allowed, of));
}

}  // namespace

// One request, from its submission until its completion is written.
struct Ring::Exchange {
  Exchange() : arena(arena_start, sizeof(arena_start)) {}

  // Set by the poller, and cleared by who answers, when nothing but the completion is left to be written.
  std::atomic<bool> under_way = false;
  ring::Submission submission;  // a copy
  std::uint32_t index = 0;      // of the completion
  // The messages of a small request fit into the first block, without an allocation.
  alignas(std::max_align_t) char arena_start[2048];
  google::protobuf::Arena arena;
  // One of each, by the kind of the submission.
  v1::ReduceRequest* request = nullptr;
  v1::ReduceResponse* response = nullptr;
  v1::ReduceManyRequest* many_request = nullptr;
  v1::ReduceManyResponse* many_response = nullptr;
  std::optional<Reduction> reduction;

  bool many() const { return static_cast<ring::Kind>(submission.kind) == ring::Kind::kReduceMany; }
};

absl::StatusOr<std::shared_ptr<Ring>> Ring::Open(Backend& backend, const v1::OpenRing& request, Session session,
                                                 v1::Ring* reply) {
  const std::int64_t most = backend.limits.max_ring_bytes;
  if (most == 0) return absl::FailedPreconditionError("open_ring: the server has no rings (--max_ring_bytes=0)");
  if (request.slots() < 0) {
    return absl::InvalidArgumentError(absl::StrFormat("open_ring.slots: got %d; allowed: 0 or more", request.slots()));
  }
  if (request.arena_bytes() < 0 || request.arena_bytes() > most) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "open_ring.arena_bytes: got %d; allowed: 0 to %d (--max_ring_bytes)", request.arena_bytes(), most));
  }
  const int limit = std::min(backend.limits.max_session_requests, static_cast<int>(ring::kMaxSlots));
  const int slots = request.slots() == 0 ? limit : std::min(request.slots(), limit);
  const std::int64_t arena = request.arena_bytes() == 0 ? std::min(kDefaultArenaBytes, most) : request.arena_bytes();
  ring::Geometry geometry{.slots = std::bit_floor(static_cast<std::uint32_t>(slots))};
  geometry.arena_bytes =
      (static_cast<std::uint64_t>(arena) + ring::kPageBytes - 1) / ring::kPageBytes * ring::kPageBytes;
  const std::int64_t fixed_bytes =
      static_cast<std::int64_t>(geometry.arena()) + geometry.slots * std::int64_t{sizeof(Exchange)};
  absl::StatusOr<MemoryLease> lease = MemoryLease::Take(session.payers.large, fixed_bytes, "a ring");
  if (!lease.ok()) return WithRetryHint(lease.status(), kMemoryRetryDelay);
  ASSIGN_OR_RETURN(std::shared_ptr<const RingMemory> memory, RingMemory::Create(geometry));
  ASSIGN_OR_RETURN(const std::string token, backend.regions.OfferRing(memory));
  const std::shared_ptr<Ring> ring(new Ring(backend, std::move(session), std::move(memory), *std::move(lease)));
  ring->token_ = token;
  if (const absl::Status status = ring->poller_.Add(ring); !status.ok()) {
    backend.regions.WithdrawRing(token);
    return status;
  }
  reply->set_token(token);
  reply->set_bytes(static_cast<std::int64_t>(geometry.bytes()));
  return ring;
}

Ring::Ring(Backend& backend, Session session, std::shared_ptr<const RingMemory> memory, MemoryLease lease)
    : backend_(backend),
      session_(std::move(session)),
      memory_(std::move(memory)),
      lease_(std::move(lease)),
      mapping_(memory_->mapping()),
      poller_(backend.pollers.Next()),
      caller_(backend, *session_.context) {
  for (std::uint32_t i = 0; i < mapping_.geometry.slots; ++i) {
    exchanges_.push_back(std::make_unique<Exchange>());
    exchanges_.back()->index = i;
  }
}

Ring::~Ring() = default;

void Ring::Serve() {
  if (broken_) return;
  const std::uint64_t sequence = Sequence();
  if (sequence == Before()) return;
  absl::Status status;
  if (sequence == head_ + 1) {
    const ring::Submission copy = ring::CopyOut(mapping_.submission(head_));
    ++head_;
    served_.store(head_, std::memory_order_relaxed);
    ring::Shared(mapping_.header().taken).store(head_, std::memory_order_release);
    status = Take(copy);
  } else {
    status = Broken("sequence", sequence, head_ + 1);
  }
  if (status.ok()) return;
  broken_ = true;
  std::move(session_.broken)(status);
}

bool Ring::Doze() {
  ring::Shared(mapping_.header().asleep).store(1, std::memory_order_seq_cst);
  // The client stores its sequence number first, and then looks whether this sleeps.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!HasWork()) return true;
  WakeUp();
  return false;
}

void Ring::WakeUp() { ring::Shared(mapping_.header().asleep).store(0, std::memory_order_relaxed); }

// An error: it breaks the protocol.
absl::Status Ring::Take(const ring::Submission& submission) {
  const auto kind = static_cast<ring::Kind>(submission.kind);
  if (kind == ring::Kind::kCancel) {
    Cancel(submission.id);
    return absl::OkStatus();
  }
  if (kind != ring::Kind::kReduce && kind != ring::Kind::kReduceMany) {
    return Broken("kind", submission.kind, 1, " (reduce), 2 (cancel), 3 (reduce many)");
  }
  if (submission.completion >= exchanges_.size()) {
    return Broken("completion", submission.completion, 0, absl::StrFormat(" to %d", exchanges_.size() - 1).c_str());
  }
  Exchange& exchange = *exchanges_[submission.completion];
  if (exchange.under_way.load(std::memory_order_acquire)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "ring: completion: got %d, of a request under way; allowed: one without", submission.completion));
  }
  exchange.under_way.store(true, std::memory_order_relaxed);
  users_.fetch_add(1, std::memory_order_relaxed);
  exchange.submission = submission;
  {
    const absl::MutexLock lock(&mutex_);
    exchange.reduction.emplace(Rpc::kSessionReduce, backend_);
  }
  using google::protobuf::Arena;
  if (exchange.many()) {
    exchange.many_request = Arena::CreateMessage<v1::ReduceManyRequest>(&exchange.arena);
    exchange.many_response = Arena::CreateMessage<v1::ReduceManyResponse>(&exchange.arena);
  } else {
    exchange.request = Arena::CreateMessage<v1::ReduceRequest>(&exchange.arena);
    exchange.response = Arena::CreateMessage<v1::ReduceResponse>(&exchange.arena);
  }
  Reduction& reduction = *exchange.reduction;
  const auto answer = [this, &exchange](const absl::Status& status) { Answered(exchange, status); };
  absl::Time deadline = session_.deadline;
  if (submission.timeout_us > 0) {
    constexpr std::uint64_t kYears = std::uint64_t{1} << 50;  // 35 of them, in us
    deadline = std::min(deadline, absl::Now() + absl::Microseconds(std::min(submission.timeout_us, kYears)));
  }
  absl::Status status =
      reduction.Admit(session_.context, session_.tag, caller_.Now(), deadline, submission.message_bytes);
  if (status.ok()) status = HoldArena(submission);
  if (status.ok()) status = Parse(exchange);
  if (!status.ok()) {
    reduction.Refuse(status, answer);
    return absl::OkStatus();
  }
  if (exchange.many()) {
    reduction.Start(exchange.many_request, exchange.many_response, deadline, reduction.micros(), answer);
    return absl::OkStatus();
  }
  std::optional<OutsideElements> elements;
  if (static_cast<ring::Source>(submission.source) == ring::Source::kArena) {
    // The client may change them meanwhile, as it may those of a region.
    elements = OutsideElements{.elements = {.array = {.data = mapping_.arena() + submission.offset}, .held = memory_},
                               .bytes = static_cast<std::int64_t>(submission.bytes)};
  }
  reduction.Start(exchange.request, exchange.response, deadline, reduction.micros(), answer, std::move(elements));
  return absl::OkStatus();
}

// Holds the arena up to the last byte that the submission names: the server will touch its pages, which then exist
// until the ring ends. What is beyond the arena is left to Parse.
absl::Status Ring::HoldArena(const ring::Submission& submission) {
  std::uint64_t end = 0;
  const auto extend = [&](std::uint64_t offset, std::uint64_t bytes) {
    if (mapping_.geometry.Has(offset, bytes)) end = std::max(end, offset + bytes);
  };
  if (static_cast<ring::Source>(submission.source) == ring::Source::kArena) extend(submission.offset, submission.bytes);
  if (submission.message_bytes > 0) {
    extend(submission.message_offset, submission.message_bytes);
    extend(submission.reply_offset, submission.reply_bytes);
  }
  if (end <= arena_held_) return absl::OkStatus();
  const std::uint64_t pages = (end + ring::kPageBytes - 1) / ring::kPageBytes * ring::kPageBytes;
  const absl::Status status =
      lease_.Grow(session_.payers.large, static_cast<std::int64_t>(pages - arena_held_), "a ring's arena");
  if (!status.ok()) return WithRetryHint(status, kMemoryRetryDelay);
  arena_held_ = pages;
  return absl::OkStatus();
}

// The request of a submission that was admitted, and whether what it names is in the arena.
absl::Status Ring::Parse(Exchange& exchange) {
  const ring::Submission& submission = exchange.submission;
  if (exchange.many() && submission.source != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("source: got %d with kind 3 (reduce many); allowed: 0", submission.source));
  }
  if (exchange.many() && submission.message_bytes == 0) {
    return absl::InvalidArgumentError("message: got none with kind 3 (reduce many); allowed: a ReduceManyRequest");
  }
  if (static_cast<ring::Source>(submission.source) == ring::Source::kArena) {
    RETURN_IF_ERROR(Within("elements", submission.offset, submission.bytes));
  }
  if (submission.message_bytes == 0) return ring::FromSubmission(submission, exchange.request);
  if (submission.message_bytes > kMaxMessageBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("message: got %d bytes; allowed: %d, with the elements in the arena (source 1)",
                        submission.message_bytes, kMaxMessageBytes));
  }
  absl::Status status = Within("message", submission.message_offset, submission.message_bytes);
  status.Update(Within("reply", submission.reply_offset, submission.reply_bytes));
  if (!status.ok()) return status;
  // The parser may read a byte twice, so that it needs a copy that nobody changes.
  std::string copy(submission.message_bytes, '\0');
  std::memcpy(copy.data(), mapping_.arena() + submission.message_offset, copy.size());
  const auto parse = [&]<class Message>(Message* message) {
    absl::Status held = HoldDecoded<Message>(copy, session_.payers, exchange.reduction->message_memory());
    if (held.ok() && !message->ParseFromString(copy)) held = MalformedMessage(Message::descriptor()->name());
    return held;
  };
  return exchange.many() ? parse(exchange.many_request) : parse(exchange.request);
}

absl::Status Ring::Within(const char* field, std::uint64_t offset, std::uint64_t bytes) const {
  if (mapping_.geometry.Has(offset, bytes)) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrFormat("%s: got %d bytes from byte %d on; allowed: within the %d bytes of the arena", field, bytes,
                      offset, mapping_.geometry.arena_bytes));
}

void Ring::Cancel(std::uint64_t id) {
  const absl::MutexLock lock(&mutex_);
  for (const auto& exchange : exchanges_) {
    if (exchange->reduction.has_value() && exchange->submission.id == id) exchange->reduction->Cancel();
  }
}

void Ring::CancelAll() {
  const absl::MutexLock lock(&mutex_);
  for (const auto& exchange : exchanges_) {
    if (exchange->reduction.has_value()) exchange->reduction->Cancel();
  }
}

// Called by the reduction, which this ends: nothing of the caller is left afterwards.
void Ring::Answered(Exchange& exchange, const absl::Status& status) {
  Write(exchange, status);
  const std::uint32_t flags = exchange.submission.flags;
  ring::Completion& completion = mapping_.completion(exchange.index);
  exchange.arena.Reset();
  {
    const absl::MutexLock lock(&mutex_);
    exchange.reduction.reset();  // leaves the gate, and returns the memory of the messages
  }
  exchange.under_way.store(false, std::memory_order_release);  // from here on the exchange is the poller's
  if (ring::Shared(completion.state).exchange(ring::kDone, std::memory_order_acq_rel) == ring::kSleeping) {
    ring::FutexWake(completion.state);
  }
  if ((flags & ring::kRingBell) != 0) {
    std::uint32_t& bell = mapping_.header().bell;
    if (ring::Shared(bell).exchange(ring::kRung, std::memory_order_acq_rel) == ring::kListener) ring::FutexWake(bell);
  }
  Leave();
}

// Writes the completion but for its state.
void Ring::Write(Exchange& exchange, const absl::Status& status) {
  const ring::Submission& submission = exchange.submission;
  ring::Completion& completion = mapping_.completion(exchange.index);
  completion.id = submission.id;
  completion.retry_after_ms = 0;
  completion.reply_bytes = 0;
  absl::Status error = status;
  if (error.ok() && submission.message_bytes == 0) return ring::ToCompletion(*exchange.response, &completion);
  if (error.ok()) {
    using google::protobuf::Message;
    const Message& response =
        exchange.many() ? static_cast<const Message&>(*exchange.many_response) : *exchange.response;
    std::string reply;
    if (const std::size_t bytes = response.ByteSizeLong(); bytes > submission.reply_bytes) {
      error = absl::OutOfRangeError(absl::StrFormat("reply: got %d bytes for an answer of %d; allowed: as many or more",
                                                    submission.reply_bytes, bytes));
    } else if (!response.SerializeToString(&reply)) {
      error = absl::InternalError("the response cannot be encoded");
    } else {
      std::memcpy(mapping_.arena() + submission.reply_offset, reply.data(), reply.size());
      completion.code = 0;
      completion.reply_bytes = static_cast<std::uint32_t>(reply.size());
      return;
    }
  }
  exchange.reduction->Cancel();  // the client does not learn of arrays that were kept
  ring::ToCompletion(error, &completion);
  if (const auto delay = RetryHint(error)) {
    completion.retry_after_ms = static_cast<std::uint32_t>(absl::ToInt64Milliseconds(*delay));
  }
}

void Ring::Close(absl::AnyInvocable<void() &&> closed) {
  closed_ = std::move(closed);
  backend_.regions.WithdrawRing(token_);
  poller_.Remove(this);
}

// The poller, or a request, doesn't use the ring any more. The last one ends it.
void Ring::Leave() {
  if (users_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  const std::shared_ptr<Ring> self = shared_from_this();  // the session gives up its own
  ring::Shared(mapping_.header().ended).store(1, std::memory_order_seq_cst);
  for (std::uint32_t i = 0; i < mapping_.geometry.slots; ++i) ring::FutexWake(mapping_.completion(i).state);
  ring::FutexWake(mapping_.header().bell);
  lease_ = {};  // the server may be gone once the session has ended
  auto closed = std::move(closed_);
  std::move(closed)();
}

}  // namespace reduced::server

#include "server/calls/admission.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "kernels/engine/fair_limit.h"
#include "server/wire/status.h"

namespace reduced::server {
namespace {

constexpr absl::Duration kQuotaRetryDelay = absl::Milliseconds(100);

// A kind of slots: how many are taken, how many there are, and how soon one becomes free.
struct SlotRow {
  Slot slot;
  const char* what;
  const char* flag;
  FairLimit Backend::*limit;
  absl::Duration retry_delay;
};
constexpr SlotRow kSlots[] = {
    {Slot::kStream, "ReduceStream, PutArray and GetArray calls in progress", "--max_streams", &Backend::streams,
     absl::Milliseconds(100)},
    {Slot::kSession, "open sessions", "--max_sessions", &Backend::sessions, absl::Seconds(1)},
};

const SlotRow* FindSlot(Slot slot) {
  const auto* const found =
      std::find_if(std::begin(kSlots), std::end(kSlots), [slot](const SlotRow& row) { return row.slot == slot; });
  return found == std::end(kSlots) ? nullptr : found;
}

absl::Status TakeSlot(Backend& backend, const SlotRow& row, std::uint64_t caller) {
  FairLimit& slots = backend.*row.limit;
  std::string why;
  switch (slots.Take(caller, 1)) {
    case FairLimit::Outcome::kTaken:
      return absl::OkStatus();
    case FairLimit::Outcome::kFull:
      why = absl::StrFormat("the server has %d %s; allowed: %d (%s)", slots.limit(), row.what, slots.limit(), row.flag);
      break;
    case FairLimit::Outcome::kOverShare:
      why = absl::StrFormat(
          "this caller has %d %s; allowed: %d, its share of what others leave of %d (--caller_share, %s)",
          slots.TakenBy(caller), row.what, slots.ShareOf(caller), slots.limit(), row.flag);
      break;
  }
  return WithRetryHint(absl::ResourceExhaustedError(why), row.retry_delay);
}

// What a call takes by itself: its objects, and what of its messages is not counted.
constexpr std::int64_t kCallBytes = 8 << 10;

}  // namespace

absl::Status Admission::Begin(const absl::StatusOr<Caller>& caller) {
  if (!caller.ok()) return absl::OkStatus();
  caller_ = *caller;
  return HoldCall();
}

absl::Status Admission::HoldCall() {
  if (memory_.bytes() > 0) return absl::OkStatus();
  const absl::Status status = memory_.Resize(payers().small, kCallBytes, "a call");
  return status.ok() ? status : WithRetryHint(status, kMemoryRetryDelay);
}

absl::Status Admission::Admit(const absl::StatusOr<Caller>& caller, absl::Time deadline, Payer payer) {
  if (!caller.ok()) return caller.status();
  caller_ = *caller;
  if (deadline <= absl::Now()) return absl::DeadlineExceededError("the deadline passed before the call began");
  const RpcRow& row = RowOf(rpc_);
  absl::Status status;
  if (row.gate) {
    status = backend_.gate.Enter();
    inside_ = status.ok();
  }
  if (status.ok() && (row.quota || row.slot == Slot::kSession) && payer == Payer::kCall) {
    absl::StatusOr<Quotas::Lease> quota = TakeQuota();
    status = quota.status();
    if (quota.ok()) quota_ = *std::move(quota);
  }
  if (const SlotRow* const slot = FindSlot(row.slot); status.ok() && slot != nullptr) {
    status = TakeSlot(backend_, *slot, caller_.key);
    if (status.ok()) slot_ = row.slot;
  }
  // A session has the memory of its requests.
  if (status.ok() && rpc_ != Rpc::kSessionReduce) status = HoldCall();
  if (!status.ok()) Leave();
  return status;
}

absl::StatusOr<Quotas::Lease> Admission::TakeQuota() {
  if (backend_.security == nullptr) return Quotas::Lease();
  Quotas& quotas = backend_.security->quotas();
  absl::StatusOr<Quotas::Lease> quota =
      RowOf(rpc_).slot == Slot::kSession ? quotas.TakeSession(caller_.account) : quotas.TakeRequest(caller_.account);
  if (!quota.ok()) return WithRetryHint(quota.status(), kQuotaRetryDelay);
  return quota;
}

CallPayers Admission::payers() const {
  MemoryBudget& large = RowOf(rpc_).pays == Pays::kSmall ? *backend_.small_memory : *backend_.memory;
  return {.small = {backend_.small_memory.get(), caller_.key}, .large = {&large, caller_.key}};
}

void Admission::Release() {
  quota_.Return();
  if (const SlotRow* const row = FindSlot(std::exchange(slot_, Slot::kNone)); row != nullptr) {
    (backend_.*row->limit).Give(caller_.key, 1);
  }
}

void Admission::Leave() {
  Release();
  memory_.Return();
  if (std::exchange(inside_, false)) backend_.gate.Leave();
}

absl::Status CheckQueues(const Engines& engines, std::uint64_t caller, absl::Time deadline, std::size_t bytes) {
  if (bytes <= kSmallMessageBytes) return absl::OkStatus();
  const Engine* shortest = nullptr;
  absl::Status why;
  for (const auto& engine : engines.all()) {
    absl::Status status = engine->CheckRoom(caller, deadline);
    if (status.ok()) return status;
    if (shortest != nullptr && engine->waiting_us(kSmallMessageBytes) >= shortest->waiting_us(kSmallMessageBytes)) {
      continue;
    }
    shortest = engine.get();
    why = std::move(status);
  }
  return shortest == nullptr ? why : WithRetryHint(std::move(why), QueueRetryDelay(*shortest));
}

absl::Duration QueueRetryDelay(const Engine& engine) {
  const double ms = engine.waiting_us(std::numeric_limits<std::int64_t>::max()) / 2 / 1e3;
  return absl::Milliseconds(static_cast<int>(std::clamp(ms, 1.0, 1000.0)));
}

}  // namespace reduced::server

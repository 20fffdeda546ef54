#include "server/calls/admission.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "server/wire/status.h"

namespace reduced::server {
namespace {

constexpr absl::Duration kQuotaRetryDelay = absl::Milliseconds(100);

// A kind of slots: how many are taken, how many there are, and how soon one becomes free.
struct SlotRow {
  Slot slot;
  const char* what;
  const char* flag;
  std::atomic<int> Backend::*taken;
  int RequestLimits::*limit;
  absl::Duration retry_delay;
};
constexpr SlotRow kSlots[] = {
    {Slot::kStream, "ReduceStream and PutArray calls in progress", "--max_streams", &Backend::streams,
     &RequestLimits::max_streams, absl::Milliseconds(100)},
    {Slot::kSession, "open sessions", "--max_sessions", &Backend::sessions, &RequestLimits::max_sessions,
     absl::Seconds(1)},
};

const SlotRow* FindSlot(Slot slot) {
  const auto* const found =
      std::find_if(std::begin(kSlots), std::end(kSlots), [slot](const SlotRow& row) { return row.slot == slot; });
  return found == std::end(kSlots) ? nullptr : found;
}

absl::Status TakeSlot(Backend& backend, const SlotRow& row) {
  const int limit = backend.limits.*row.limit;
  if ((backend.*row.taken).fetch_add(1) < limit) return absl::OkStatus();
  (backend.*row.taken).fetch_sub(1);
  return WithRetryHint(absl::ResourceExhaustedError(
                           absl::StrFormat("the server has %d %s; allowed: %d (%s)", limit, row.what, limit, row.flag)),
                       row.retry_delay);
}

}  // namespace

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
    status = TakeSlot(backend_, *slot);
    if (status.ok()) slot_ = row.slot;
  }
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

void Admission::Release() {
  quota_.Return();
  if (const SlotRow* const row = FindSlot(std::exchange(slot_, Slot::kNone)); row != nullptr) {
    (backend_.*row->taken).fetch_sub(1);
  }
}

void Admission::Leave() {
  Release();
  if (std::exchange(inside_, false)) backend_.gate.Leave();
}

absl::Duration QueueRetryDelay(const Engine& engine) {
  const double ms = engine.waiting_us(std::numeric_limits<std::int64_t>::max()) / 2 / 1e3;
  return absl::Milliseconds(static_cast<int>(std::clamp(ms, 1.0, 1000.0)));
}

}  // namespace reduced::server

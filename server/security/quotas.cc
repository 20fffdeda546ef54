#include "server/security/quotas.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_format.h"

namespace reduced::server {
namespace {

struct LimitRow {
  std::int64_t Quotas::Limits::*what;
  const char* name;
  const char* flag;
};
constexpr LimitRow kLimits[] = {
    {&Quotas::Limits::requests, "requests in progress", "--max_identity_requests"},
    {&Quotas::Limits::sessions, "open sessions", "--max_identity_sessions"},
    {&Quotas::Limits::arrays, "resident arrays", "--max_identity_arrays"},
    {&Quotas::Limits::array_bytes, "bytes of resident arrays", "--max_identity_array_bytes"},
};

bool IsNothing(const Quotas::Limits& amounts) {
  return std::all_of(std::begin(kLimits), std::end(kLimits),
                     [&amounts](const LimitRow& row) { return amounts.*row.what == 0; });
}

absl::Status Exhausted(const LimitRow& row, const std::string& account, std::int64_t taken, std::int64_t amount,
                       std::int64_t limit) {
  const std::string more = amount == 1 ? "" : absl::StrFormat(" and asks for %d more", amount);
  return absl::ResourceExhaustedError(
      absl::StrFormat("%s has %d %s%s; allowed: %d (%s)", account, taken, row.name, more, limit, row.flag));
}

}  // namespace

Quotas::Lease& Quotas::Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  Return();
  quotas_ = std::exchange(other.quotas_, nullptr);
  account_ = std::move(other.account_);
  amounts_ = other.amounts_;
  return *this;
}

void Quotas::Lease::GiveBack() {
  Quotas* const quotas = std::exchange(quotas_, nullptr);
  const absl::MutexLock lock(&quotas->mutex_);
  const auto found = quotas->taken_.find(account_);
  for (const LimitRow& row : kLimits) found->second.*row.what -= amounts_.*row.what;
  if (IsNothing(found->second)) quotas->taken_.erase(found);
}

absl::StatusOr<Quotas::Lease> Quotas::Take(const std::string& account, Limits amounts) {
  Lease lease;
  for (const LimitRow& row : kLimits) {
    if (limits_.*row.what == 0) amounts.*row.what = 0;  // not counted
  }
  if (account.empty() || IsNothing(amounts)) return lease;
  const absl::MutexLock lock(&mutex_);
  const auto found = taken_.find(account);
  Limits taken = found == taken_.end() ? Limits() : found->second;
  for (const LimitRow& row : kLimits) {
    const std::int64_t limit = limits_.*row.what;
    const std::int64_t amount = amounts.*row.what;
    if (amount > limit - taken.*row.what) return Exhausted(row, account, taken.*row.what, amount, limit);
    taken.*row.what += amount;
  }
  taken_[account] = taken;
  lease.quotas_ = this;
  lease.account_ = account;
  lease.amounts_ = amounts;
  return lease;
}

}  // namespace reduced::server

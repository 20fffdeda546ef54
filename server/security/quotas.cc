#include "server/security/quotas.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"

namespace reduced::server {

Quotas::Lease& Quotas::Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  Return();
  quotas_ = std::exchange(other.quotas_, nullptr);
  identity_ = std::move(other.identity_);
  what_ = other.what_;
  amount_ = other.amount_;
  return *this;
}

void Quotas::Lease::Return() {
  Quotas* const quotas = std::exchange(quotas_, nullptr);
  if (quotas == nullptr) return;
  const absl::MutexLock lock(&quotas->mutex_);
  const auto found = quotas->taken_.find(identity_);
  Limits& taken = found->second;
  taken.*what_ -= amount_;
  if (taken.requests == 0 && taken.array_bytes == 0) quotas->taken_.erase(found);
}

absl::StatusOr<Quotas::Lease> Quotas::Take(const std::string& identity, std::int64_t Limits::*what,
                                           std::int64_t amount) {
  Lease lease;
  const std::int64_t limit = limits_.*what;
  if (identity.empty() || limit == 0 || amount == 0) return lease;
  {
    const absl::MutexLock lock(&mutex_);
    const auto found = taken_.find(identity);
    const std::int64_t taken = found == taken_.end() ? 0 : found->second.*what;
    if (amount <= limit - taken) {
      taken_[identity].*what += amount;
      lease.quotas_ = this;
      lease.identity_ = identity;
      lease.what_ = what;
      lease.amount_ = amount;
      return lease;
    }
    const std::string name = absl::CHexEscape(identity);
    if (what == &Limits::requests) {
      return absl::ResourceExhaustedError(absl::StrFormat(
          "identity '%s' has %d requests in progress; allowed: %d (--max_identity_requests)", name, taken, limit));
    }
    return absl::ResourceExhaustedError(
        absl::StrFormat("resident arrays of identity '%s' take %d bytes, and this array %d; allowed: %d bytes "
                        "(--max_identity_array_bytes)",
                        name, taken, amount, limit));
  }
}

}  // namespace reduced::server

// Quotas: what one caller may use at once: an identity or, of anonymous callers, a peer.
#ifndef REDUCED_SERVER_SECURITY_QUOTAS_H_
#define REDUCED_SERVER_SECURITY_QUOTAS_H_

#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace reduced::server {

// Thread-safe. Outlives its leases. Stores only accounts (as Caller::account) that use something.
class Quotas {
 public:
  // As limits, 0 stands for any number.
  struct Limits {
    std::int64_t requests = 0;     // in progress
    std::int64_t sessions = 0;     // open
    std::int64_t arrays = 0;       // resident
    std::int64_t array_bytes = 0;  // of resident arrays
  };

  // What was taken, until it is returned or destroyed. Move-only. A default-constructed lease holds nothing.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept { *this = static_cast<Lease&&>(other); }
    Lease& operator=(Lease&& other) noexcept;
    ~Lease() { Return(); }
    void Return() {
      if (quotas_ != nullptr) GiveBack();  // most leases hold nothing
    }

   private:
    friend class Quotas;
    void GiveBack();

    Quotas* quotas_ = nullptr;
    std::string account_;
    Limits amounts_;
  };

  explicit Quotas(const Limits& limits) : limits_(limits) {}

  // RESOURCE_EXHAUSTED: names the limit. The account "" has no limit: the lease is empty.
  absl::StatusOr<Lease> TakeRequest(const std::string& account) { return Take(account, {.requests = 1}); }
  absl::StatusOr<Lease> TakeSession(const std::string& account) { return Take(account, {.sessions = 1}); }
  absl::StatusOr<Lease> TakeArray(const std::string& account, std::int64_t bytes) {
    return Take(account, {.arrays = 1, .array_bytes = bytes});
  }

 private:
  absl::StatusOr<Lease> Take(const std::string& account, Limits amounts);

  const Limits limits_;
  absl::Mutex mutex_;
  absl::flat_hash_map<std::string, Limits> taken_ ABSL_GUARDED_BY(mutex_);  // by account
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_SECURITY_QUOTAS_H_

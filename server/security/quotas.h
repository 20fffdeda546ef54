// Quotas: what one identity may use at once.
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

// Thread-safe. Outlives its leases. Stores only identities that use something.
class Quotas {
 public:
  struct Limits {
    std::int64_t requests = 0;     // in progress; 0: any number
    std::int64_t array_bytes = 0;  // of resident arrays; 0: any number
  };

  // What was taken, until it is returned or destroyed. Move-only. A default-constructed lease holds nothing.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept { *this = static_cast<Lease&&>(other); }
    Lease& operator=(Lease&& other) noexcept;
    ~Lease() { Return(); }
    void Return();

   private:
    friend class Quotas;
    Quotas* quotas_ = nullptr;
    std::string identity_;
    std::int64_t Limits::*what_ = nullptr;
    std::int64_t amount_ = 0;
  };

  explicit Quotas(const Limits& limits) : limits_(limits) {}

  // RESOURCE_EXHAUSTED: names the limit. Anonymous callers ("") have no limit: the lease is empty.
  absl::StatusOr<Lease> TakeRequest(const std::string& identity) { return Take(identity, &Limits::requests, 1); }
  absl::StatusOr<Lease> TakeArrayBytes(const std::string& identity, std::int64_t bytes) {
    return Take(identity, &Limits::array_bytes, bytes);
  }

 private:
  absl::StatusOr<Lease> Take(const std::string& identity, std::int64_t Limits::*what, std::int64_t amount);

  const Limits limits_;
  absl::Mutex mutex_;
  absl::flat_hash_map<std::string, Limits> taken_ ABSL_GUARDED_BY(mutex_);  // by identity
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_SECURITY_QUOTAS_H_

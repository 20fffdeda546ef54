// Limits repeated warnings: the first few of a period are logged, the others counted.
#ifndef REDUCED_SERVER_OBSERVE_REPEATS_H_
#define REDUCED_SERVER_OBSERVE_REPEATS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace reduced::server {

// Thread-safe.
class Repeats {
 public:
  // Of each kind of warning, the first `most` of a period are logged.
  Repeats(int most, absl::Duration period) : most_(most), period_(period) {}

  // Whether to log a warning of this kind. Beyond kMaxKinds kinds at once, further ones count as one.
  bool Admit(std::string_view kind, absl::Time now) {
    const absl::MutexLock lock(&mutex_);
    auto found = kinds_.find(kind);
    if (found == kinds_.end()) {
      if (kinds_.size() >= kMaxKinds) kind = "others";
      found = kinds_.try_emplace(std::string(kind), Kind{now, 0}).first;
    }
    return ++found->second.count <= most_;
  }

  struct Suppressed {
    std::string kind;
    std::int64_t count = 0;
  };
  // The warnings that were not logged in periods that have ended by `now`, each once.
  std::vector<Suppressed> TakeSuppressed(absl::Time now) {
    const absl::MutexLock lock(&mutex_);
    std::vector<Suppressed> over;
    for (auto each = kinds_.begin(); each != kinds_.end();) {
      if (now - each->second.began < period_) {
        ++each;
        continue;
      }
      if (each->second.count > most_) over.push_back({each->first, each->second.count - most_});
      each = kinds_.erase(each);
    }
    return over;
  }

  absl::Duration period() const { return period_; }

 private:
  static constexpr std::size_t kMaxKinds = 256;

  struct Kind {
    absl::Time began;
    std::int64_t count = 0;
  };

  const int most_;
  const absl::Duration period_;
  absl::Mutex mutex_;
  std::map<std::string, Kind, std::less<>> kinds_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_OBSERVE_REPEATS_H_

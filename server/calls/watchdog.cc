#include "server/calls/watchdog.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace reduced::server {
namespace {

struct WaitRow {
  Wait wait;
  const char* what = nullptr;  // that did not happen
  const char* flag = nullptr;
  absl::Duration Timeouts::*limit = nullptr;  // null: none
};
constexpr WaitRow kWaits[] = {
    {Wait::kNothing},
    {Wait::kHeader, "no header", "--header_timeout", &Timeouts::header},
    {Wait::kMessage, "no message", "--progress_timeout", &Timeouts::progress},
    {Wait::kParts, "other parts of the upload have not begun", "--progress_timeout", &Timeouts::progress},
    {Wait::kRequest, "no request", "--session_idle_timeout", &Timeouts::session_idle},
    {Wait::kResponse, "the client has not read its response", "--progress_timeout", &Timeouts::progress},
};
static_assert(
    [] {
      for (std::size_t i = 0; i < std::size(kWaits); ++i) {
        if (kWaits[i].wait != static_cast<Wait>(i)) return false;
      }
      return true;
    }(),
    "the rows are in the order of the enum");

const WaitRow& RowOf(Wait wait) { return kWaits[static_cast<std::size_t>(wait)]; }

constexpr auto kNever = std::numeric_limits<std::chrono::steady_clock::rep>::max();
// A call ends up to a quarter of its limit late.
constexpr int kChecksPerLimit = 4;
constexpr absl::Duration kLongestPause = absl::Seconds(1);
// A response of a caller beyond its share of memory may be unread for such a part of the limit.
constexpr int kPartOfShare = 10;

std::chrono::steady_clock::rep ToTicks(absl::Duration duration) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(absl::ToChronoNanoseconds(duration)).count();
}

}  // namespace

absl::Status SessionDrained() {
  return absl::UnavailableError("the server is draining: it ends sessions, and has answered what it took");
}

Watchdog::Watchdog(const Timeouts& timeouts, const std::shared_ptr<MemoryBudget>& memory)
    : timeouts_(timeouts), memory_(memory), thread_([this] { Run(); }) {}

Watchdog::~Watchdog() {
  {
    const absl::MutexLock lock(&mutex_);
    stopping_ = true;
    wake_.Signal();
  }
  thread_.join();
}

void Watchdog::Run() {
  const absl::Duration shortest = std::min({timeouts_.header, timeouts_.progress, timeouts_.session_idle});
  const absl::Duration pause = std::min(shortest / kChecksPerLimit, kLongestPause);
  const absl::MutexLock lock(&mutex_);
  while (!stopping_) {
    wake_.WaitWithTimeout(&mutex_, pause);
    EndStalled();
  }
}

void Watchdog::Drain() {
  const absl::MutexLock lock(&mutex_);
  draining_ = true;
  wake_.Signal();
}

void Watchdog::EndStalled() {
  const Clock::rep now = Clock::now().time_since_epoch().count();
  const Clock::rep soon = now + ToTicks(timeouts_.progress / kPartOfShare * (kPartOfShare - 1));
  std::vector<std::pair<Watch*, Clock::rep>> stalled;
  absl::flat_hash_map<std::uint64_t, Watch*> unread;  // by caller beyond its share, who waits longest
  for (Watch* const watch : watches_) {
    const Clock::rep deadline = watch->deadline_.load();
    if (deadline <= now || EndsForDrain(*watch)) {
      stalled.emplace_back(watch, now);
    } else if (const std::uint64_t caller = watch->caller_.load(); deadline <= soon &&
                                                                   watch->wait_.load() == Wait::kResponse &&
                                                                   caller != 0 && memory_->IsOverShare(caller)) {
      Watch*& first = unread[caller];
      if (first == nullptr || deadline < first->deadline_.load()) first = watch;
    }
  }
  for (const auto& [caller, watch] : unread) stalled.emplace_back(watch, soon);
  for (const auto& [watch, before] : stalled) {
    if (watches_.contains(watch)) Tell(*watch, now, before);
  }
}

bool Watchdog::EndsForDrain(const Watch& watch) const {
  return draining_ && watch.wait_.load() == Wait::kRequest && watch.deadline_.load() != kNever;
}

void Watchdog::Tell(Watch& watch, Clock::rep now, Clock::rep before) {
  const Wait wait = watch.wait_.load();
  Clock::rep deadline = watch.deadline_.load();
  const bool drained = EndsForDrain(watch);
  if (!drained && (deadline > before || (deadline > now && wait != Wait::kResponse))) return;
  const bool late = deadline <= now;
  if (!watch.deadline_.compare_exchange_strong(deadline, kNever)) return;
  const WaitRow& row = RowOf(wait);
  if (row.limit == nullptr) return;  // it came meanwhile
  const absl::Status why =
      drained ? SessionDrained()
      : late
          ? absl::DeadlineExceededError(
                absl::StrCat(row.what, " for ", absl::FormatDuration(timeouts_.*row.limit), "; see ", row.flag))
          : absl::ResourceExhaustedError(absl::StrCat(
                row.what, ", and this caller takes more memory than its share, which others need; see --caller_share"));
  watch.why_.Update(why);
  told_ = &watch;
  mutex_.Unlock();
  if (watch.stalled_ != nullptr) watch.stalled_(why);
  if (wait == Wait::kResponse) watch.context_->TryCancel();
  mutex_.Lock();
  told_ = nullptr;
  untold_.SignalAll();
}

Watch::Watch(Watchdog& watchdog, grpc::CallbackServerContext* context, Stalled stalled)
    : watchdog_(watchdog), context_(context), stalled_(std::move(stalled)), deadline_(kNever) {
  const absl::MutexLock lock(&watchdog_.mutex_);
  watchdog_.watches_.insert(this);
}

void Watch::Await(Wait wait, std::uint64_t caller) {
  const Wait before = wait_.load();
  if (before == Wait::kNothing && wait == Wait::kNothing) return;
  const Watchdog::Clock::time_point now = Watchdog::Clock::now();
  const Watchdog::Clock::rep since = since_.exchange(now.time_since_epoch().count());
  if (before != Wait::kNothing) waited_.fetch_add(now.time_since_epoch().count() - since);
  const WaitRow& row = RowOf(wait);
  Watchdog::Clock::rep deadline = kNever;
  if (row.limit != nullptr) {
    deadline = now.time_since_epoch().count() + ToTicks(watchdog_.timeouts_.*row.limit);
  }
  caller_.store(caller, std::memory_order_relaxed);
  wait_.store(wait);
  deadline_.store(deadline);
}

double Watch::waited_us() const {
  Watchdog::Clock::rep waited = waited_.load();
  if (wait_.load() != Wait::kNothing) waited += Watchdog::Clock::now().time_since_epoch().count() - since_.load();
  return std::chrono::duration<double, std::micro>(Watchdog::Clock::duration(waited)).count();
}

absl::Status Watch::why() const {
  const absl::MutexLock lock(&watchdog_.mutex_);
  return why_;
}

void Watch::Stop() {
  const absl::MutexLock lock(&watchdog_.mutex_);
  watchdog_.watches_.erase(this);
  while (watchdog_.told_ == this) watchdog_.untold_.Wait(&watchdog_.mutex_);
}

}  // namespace reduced::server

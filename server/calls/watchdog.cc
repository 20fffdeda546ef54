#include "server/calls/watchdog.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

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

}  // namespace

absl::Status SessionDrained() {
  return absl::UnavailableError("the server is draining: it ends sessions, and has answered what it took");
}

Watchdog::Watchdog(const Timeouts& timeouts) : timeouts_(timeouts), thread_([this] { Run(); }) {}

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
  std::vector<Watch*> stalled;
  for (Watch* const watch : watches_) {
    if (watch->deadline_.load() <= now || EndsForDrain(*watch)) stalled.push_back(watch);
  }
  for (Watch* const watch : stalled) {
    if (watches_.contains(watch)) Tell(*watch, now);
  }
}

bool Watchdog::EndsForDrain(const Watch& watch) const {
  return draining_ && watch.wait_.load() == Wait::kRequest && watch.deadline_.load() != kNever;
}

void Watchdog::Tell(Watch& watch, Clock::rep now) {
  const Wait wait = watch.wait_.load();
  Clock::rep deadline = watch.deadline_.load();
  const bool drained = EndsForDrain(watch);
  if ((deadline > now && !drained) || !watch.deadline_.compare_exchange_strong(deadline, kNever)) return;
  const WaitRow& row = RowOf(wait);
  if (row.limit == nullptr) return;  // it came meanwhile
  const absl::Status why =
      drained ? SessionDrained()
              : absl::DeadlineExceededError(
                    absl::StrCat(row.what, " for ", absl::FormatDuration(timeouts_.*row.limit), "; see ", row.flag));
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

void Watch::Await(Wait wait) {
  const WaitRow& row = RowOf(wait);
  Watchdog::Clock::rep deadline = kNever;
  if (row.limit != nullptr) {
    const auto limit = absl::ToChronoNanoseconds(watchdog_.timeouts_.*row.limit);
    deadline = (Watchdog::Clock::now() + std::chrono::duration_cast<Watchdog::Clock::duration>(limit))
                   .time_since_epoch()
                   .count();
  }
  wait_.store(wait);
  deadline_.store(deadline);
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

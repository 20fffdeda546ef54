#include "client/reducectl/loadtest/sender.h"

#include <sys/prctl.h>

#include <cerrno>
#include <chrono>
#include <ctime>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "kernels/system/status_macros.h"

namespace reduced::client {
namespace {

void SleepUntilNs(Ns until) {
  const timespec at = {until / 1'000'000'000, until % 1'000'000'000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) == EINTR) {
  }
}

Ns ToNs(const std::optional<double>& us) { return static_cast<Ns>(us.value_or(0) * 1e3); }

}  // namespace

Ns NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

absl::Status Sender::AddSlot(Work& work, std::size_t number) {
  ASSIGN_OR_RETURN(slots_.emplace_back().caller, Caller::Make(work, number));
  return absl::OkStatus();
}

void Sender::Run() {
  prctl(PR_SET_TIMERSLACK, 1);  // nanoseconds; the default, 50 us, is as long as a request
  slots_.size() == 1 ? RunOne(slots_.front()) : RunMany();
}

void Sender::Take(Tally* into) {
  {
    const absl::MutexLock lock(&tally_mutex_);
    std::swap(tally_, spare_);
  }
  into->Merge(*spare_);
  spare_->Clear();
}

void Sender::RunOne(Slot& slot) {
  while (plan_.Next(&slot.turn)) {
    bool slept = false;
    for (Ns now = NowNs(); plan_.open() && now < slot.turn.due; now = NowNs()) {
      slept = true;
      if (slot.turn.due >= plan_.end()) return;  // the step ends before
      SleepUntilNs(std::min(slot.turn.due, now + kPatience));
    }
    if (!Begin(slot, slept)) continue;
    slot.reply = slot.caller->Reduce(slot.item);
    slot.answered = NowNs();
    Count(slot);
  }
}

void Sender::RunMany() {
  std::vector<Slot*> idle;
  for (Slot& slot : slots_) idle.push_back(&slot);
  std::vector<Slot*> answered;
  answered.reserve(slots_.size());
  {
    const absl::MutexLock lock(&answers_mutex_);
    answers_.reserve(slots_.size());
  }
  Turn turn;
  bool over = false, pending = false, slept = false;
  while (!over || idle.size() < slots_.size()) {
    while (!over && !idle.empty()) {
      if (!pending) {
        over = !plan_.Next(&turn);
        pending = !over;
        slept = false;
      }
      if (pending && plan_.open() && turn.due >= plan_.end()) over = true;  // the step ends before
      if (over) break;
      if (plan_.open() && NowNs() < turn.due) {
        slept = true;
        break;
      }
      pending = false;
      Slot& slot = *idle.back();
      slot.turn = turn;
      if (!Begin(slot, slept)) continue;
      idle.pop_back();
      slot.caller->ReduceAsync(slot.item, [this, &slot](absl::StatusOr<Reply> reply) {
        slot.answered = NowNs();
        slot.reply = std::move(reply);
        const absl::MutexLock lock(&answers_mutex_);
        answers_.push_back(&slot);
        some_answered_.Signal();
      });
    }
    {
      const absl::MutexLock lock(&answers_mutex_);
      const bool waits_for_turn = !over && !idle.empty();
      const Ns until = waits_for_turn ? std::min(turn.due, NowNs() + kPatience) : kNever;
      while (answers_.empty() && NowNs() < until && !(over && idle.size() == slots_.size())) {
        some_answered_.WaitWithTimeout(&answers_mutex_,
                                       until == kNever ? absl::Seconds(1) : absl::Nanoseconds(until - NowNs()));
      }
      answered.swap(answers_);
    }
    for (Slot* const slot : answered) {
      Count(*slot);
      idle.push_back(slot);
    }
    answered.clear();
  }
}

// Returns false if the step ended before the turn.
bool Sender::Begin(Slot& slot, bool slept) {
  slot.begun = plan_.open() ? NowNs() : slot.turn.due;
  if (const Ns end = plan_.end(); slot.begun >= end) {
    if (!slot.turn.measured) return false;
    const absl::MutexLock lock(&tally_mutex_);
    ++tally_->unsent;
    tally_->corrected.Record(end - slot.turn.due);
    return false;
  }
  if (slept && slot.turn.measured) {
    const absl::MutexLock lock(&tally_mutex_);
    tally_->lateness.Record(slot.begun - slot.turn.due);
  }
  slot.item = work_.Draw(slot.turn.index);
  slot.sent = slot.begun;
  if (include_fill_) {
    slot.caller->Fill(slot.item);
    slot.sent = NowNs();
  }
  return true;
}

void Sender::Count(Slot& slot) {
  if (!slot.turn.measured) return;
  const Item& item = work_.items()[slot.item];
  const absl::StatusOr<Reply>& reply = *slot.reply;
  const absl::Status error = reply.ok() ? FirstError(reply->results) : reply.status();
  bool verified = false;
  std::string wrong;
  verify_due_ += verify_;
  if (error.ok() && verify_ > 0 && verify_due_ >= 1) {
    verify_due_ -= 1;
    verified = true;
    wrong = Mismatch(item.ops, item.expected, *reply);
  }
  const absl::MutexLock lock(&tally_mutex_);
  Tally& tally = *tally_;
  if (!error.ok()) {
    const std::size_t code = std::min(static_cast<std::size_t>(error.raw_code()), kCodes - 1);
    if (tally.errors[code]++ == 0) tally.messages[code] = std::string(error.message());
    return;
  }
  ++tally.answered;
  tally.bytes += item.bytes;
  tally.verified += verified ? 1 : 0;
  if (!wrong.empty() && tally.wrong++ == 0) tally.first_wrong = wrong;
  tally.corrected.Record(slot.answered - slot.turn.due);
  tally.uncorrected.Record(slot.answered - slot.begun);
  CountStages(slot, reply->timing, &tally);
}

void Sender::CountStages(const Slot& slot, const Timing& timing, Tally* tally) const {
  const Ns total = ToNs(timing.total_us);
  if (plan_.open() || include_fill_) tally->stages[kClientStage].Record(slot.sent - slot.turn.due);
  tally->stages[kNetworkStage].Record(slot.answered - slot.sent - total);
  Ns rest = total;
  for (std::size_t i = kServerStages; i + 1 < kStages; ++i) {
    std::optional<double> us;
    for (const auto part : kStageRows[i].parts) {
      if (part != nullptr && (timing.*part).has_value()) us = us.value_or(0) + *(timing.*part);
    }
    if (!us.has_value()) continue;
    tally->stages[i].Record(ToNs(us));
    rest -= ToNs(us);
  }
  if (total > 0) tally->stages[kStages - 1].Record(rest);
}

}  // namespace reduced::client

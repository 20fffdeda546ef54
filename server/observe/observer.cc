#include "server/observe/observer.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/observe/call_line.h"
#include "server/observe/log.h"
#include "spdlog/spdlog.h"

namespace reduced::server {
namespace {

constexpr absl::Duration kTick = absl::Seconds(1);
constexpr std::size_t kMaxListedErrorBytes = 300;
constexpr std::size_t kMaxMethodBytes = 100;
constexpr char kSeveralPeers[] = "several peers";

// Whether an operator should see it: the server's own failures, and exhausted limits.
bool IsWorthAWarning(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
      return true;
    default:
      return false;
  }
}

std::string ErrorText(const absl::Status& status) {
  return Printable({status.message().data(), status.message().size()}, kMaxListedErrorBytes);
}

std::string_view FromMetadata(const grpc::CallbackServerContext& context, const char* key) {
  const auto found = context.client_metadata().find(key);
  if (found == context.client_metadata().end()) return {};
  return {found->second.data(), found->second.size()};
}

}  // namespace

Observer::Observer(const ObserverOptions& options, PeerOf peer_of)
    : options_(options),
      peer_of_(std::move(peer_of)),
      log_(spdlog::default_logger()->clone(kCallLogger)),
      ticking_([this] { Run(); }) {}

Observer::~Observer() {
  {
    const absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  ticking_.join();
}

CallTag Observer::Begin(grpc::CallbackServerContext* context) {
  CallTag tag;
  if (!options_.request_ids) return tag;
  const std::string_view id = FromMetadata(*context, kRequestIdKey);
  tag.request_id = IsRequestId(id) ? std::string(id) : ids_.Next();
  context->AddTrailingMetadata(kRequestIdKey, tag.request_id);
  if (const std::string_view parent = FromMetadata(*context, kTraceparentKey); IsTraceparent(parent)) {
    tag.traceparent = std::string(parent.substr(0, 55));
  }
  return tag;
}

void Observer::End(const CallRecord& record) {
  if (options_.metrics && record.status.ok()) {
    metrics_.Record(record, record.caller);
  } else if (options_.metrics) {
    const std::string peer = PeerIn(record);
    const Caller of_peer("", peer);
    const bool known = record.caller != nullptr && !record.caller->account.empty();
    metrics_.Record(record, known ? record.caller : &of_peer);
    const absl::MutexLock lock(&errors_mutex_);
    Remember({absl::Now(), std::string(RowOf(record.rpc).name), peer, record.status.code(), ErrorText(record.status),
              record.tag == nullptr ? "" : record.tag->request_id});
  }
  Log(record);
}

std::string Observer::PeerIn(const CallRecord& record) const {
  return peer_of_ && record.context != nullptr ? peer_of_(*record.context) : "";
}

void Observer::Log(const CallRecord& record) {
  const bool slow = options_.slow_request > absl::ZeroDuration() && RowOf(record.rpc).reduction &&
                    absl::Microseconds(record.server_us()) >= options_.slow_request;
  const bool warning = slow || IsWorthAWarning(record.status.code());
  const auto level = warning ? spdlog::level::warn : spdlog::level::debug;
  if (!log_->should_log(level)) return;
  if (warning) {
    const std::string kind = absl::StrCat(slow ? "slow " : "", std::string(RowOf(record.rpc).name), " ",
                                          absl::StatusCodeToString(record.status.code()));
    if (!repeats_.Admit(kind, absl::Now())) return;
  }
  const std::string peer = PeerIn(record);
  if (options_.json_log) {
    log_->log(level, absl::StrCat(slow ? "\"slow\":true," : "", JsonMembers(record, peer)));
  } else {
    log_->log(level, absl::StrCat(slow ? "slow: " : "", TextLine(record, peer)));
  }
}

void Observer::Refused(std::string_view method, const std::string& peer, const absl::Status& why) {
  CallError error{absl::Now(), Printable(method, kMaxMethodBytes), peer, why.code(), ErrorText(why)};
  const std::string kind =
      absl::StrCat("refused a call of ", peer.empty() ? "an unknown peer" : peer, ": ", error.message);
  if (refusals_.Admit(kind, error.when)) LogText(absl::StrCat(kind, "; method ", error.rpc));
  if (!options_.metrics) return;
  metrics_.RecordUnauthenticated(peer.empty() ? Caller() : Caller("", peer));
  const absl::MutexLock lock(&errors_mutex_);
  // A client without a token may call thousands of times a second, and from many addresses: it must not push all other
  // errors out of the list.
  const auto find = [&](std::string_view by) {
    return std::find_if(errors_.begin(), errors_.end(), [&](const CallError& of) {
      return of.request_id.empty() && of.code == error.code && of.message == error.message && of.peer == by;
    });
  };
  auto before = find(peer);
  const auto refusals = std::count_if(errors_.begin(), errors_.end(), [&error](const CallError& of) {
    return of.request_id.empty() && of.code == error.code;
  });
  if (before == errors_.end() && static_cast<std::size_t>(refusals) >= kMaxRefusals) {
    error.peer = kSeveralPeers;
    before = find(error.peer);
  }
  if (before != errors_.end()) {
    error.count += before->count;
    errors_.erase(before);
  }
  Remember(std::move(error));
}

void Observer::LogText(const std::string& text) { log_->warn(options_.json_log ? JsonMessage(text) : text); }

void Observer::Remember(CallError error) {
  errors_.push_front(std::move(error));
  if (errors_.size() > kMaxErrors) errors_.pop_back();
}

std::vector<CallError> Observer::errors() const {
  const absl::MutexLock lock(&errors_mutex_);
  return {errors_.begin(), errors_.end()};
}

std::vector<HistorySample> Observer::history() const {
  const absl::MutexLock lock(&mutex_);
  return {history_.begin(), history_.end()};
}

void Observer::Run() {
  for (absl::Time next = absl::Now() + kTick;; next += kTick) {
    {
      const absl::MutexLock lock(&mutex_);
      if (mutex_.AwaitWithDeadline(absl::Condition(&stopping_), next)) break;
    }
    Tick(absl::Now());
  }
  Tick(absl::InfiniteFuture());  // logs what was suppressed
}

void Observer::Tick(absl::Time now) {
  for (Repeats* const repeats : {&repeats_, &refusals_}) {
    for (const Repeats::Suppressed& each : repeats->TakeSuppressed(now)) {
      LogText(absl::StrCat("repeated ", each.count, " times more within ", absl::FormatDuration(repeats->period()),
                           ": ", each.kind));
    }
  }
  metrics_.Tick();
  HistorySample sample;
  const std::uint64_t calls = metrics_.calls();
  const std::uint64_t errors = metrics_.errors();
  sample.calls = calls - std::exchange(last_calls_, calls);
  sample.errors = errors - std::min(errors, std::exchange(last_errors_, errors));
  for (std::size_t i = 0; i < kStages; ++i) {
    const StageCounts counts = metrics_.ReadStage(i);
    const StageCounts since = counts.Since(std::exchange(last_stages_[i], counts));
    sample.stages[i] = {Quantile(since, kTimeBoundsNs, 0.5) / 1e3, Quantile(since, kTimeBoundsNs, 0.99) / 1e3};
  }
  const absl::MutexLock lock(&mutex_);
  history_.push_back(sample);
  if (history_.size() > kHistorySeconds) history_.pop_front();
}

}  // namespace reduced::server

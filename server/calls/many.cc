#include "server/calls/many.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "server/calls/admission.h"
#include "server/calls/backend.h"
#include "server/calls/operand.h"
#include "server/wire/response.h"
#include "server/wire/status.h"

namespace reduced::server {
namespace {

// What an operand takes besides the messages, each of its results as a message, and its state, at most.
constexpr std::int64_t kOperandBytes = 4096;
constexpr std::int64_t kResultMessageBytes = 256;
constexpr std::int64_t kStateMessageBytes = 8192;
// As many operands are reduced on the gRPC thread, if they are small.
constexpr std::size_t kAtOnce = 64;

// INVALID_ARGUMENT: the question has what operands do not share.
absl::Status CheckQuestion(const v1::ReduceRequest& question) {
  const struct {
    const char* name;
    bool given;
  } fields[] = {
      {"array", question.has_array()}, {"source", question.source_case() != v1::ReduceRequest::SOURCE_NOT_SET},
      {"axes", question.has_axes()},   {"segments", question.has_segments()},
      {"keys", question.has_keys()},   {"where", question.has_where()},
      {"keep", question.has_keep()},   {"write_to", question.has_write_to()},
      {"y", question.has_y()},         {"weights", question.has_weights()}};
  for (const auto& [name, given] : fields) {
    if (!given) continue;
    return absl::InvalidArgumentError(absl::StrCat("question.", name,
                                                   ": got it; allowed: ops, calls, options, return_state, "
                                                   "omit_results, op_errors, empty, which all operands share"));
  }
  return absl::OkStatus();
}

// The error of an operand with its index; that of the call as it is.
absl::Status OfOperand(std::size_t index, const absl::Status& status) {
  if (status.ok() || absl::IsDeadlineExceeded(status) || absl::IsCancelled(status) ||
      absl::IsResourceExhausted(status) || absl::IsUnavailable(status)) {
    return status;
  }
  return {status.code(), absl::StrCat("operands[", index, "]: ", status.message())};
}

}  // namespace

void ManyReduction::Start(std::optional<double> receive_us, Done done) {
  receive_us_ = receive_us;
  done_ = std::move(done);
  if (const absl::Status status = Prepare(); !status.ok()) return End(status);
  if (!TakesLane()) return Continue();
  Job all{.spec = {.dtype = DType::kU8, .count = cpu_bytes_},
          .deadline = call_.deadline,
          .cancelled = call_.cancelled,
          .caller = call_.admission.key()};
  Engine& cpu = *operands_[order_.front()].engine();
  cpu.OnLane(all, [this, &cpu, since = Stopwatch()](const absl::Status& lane) {
    if (!lane.ok()) {
      return End(absl::IsResourceExhausted(lane) ? WithRetryHint(lane, QueueRetryDelay(cpu)) : lane);
    }
    timing_.queue_us = since.micros();
    admitted_ = true;
    Continue();
  });
}

// Finds every error that does not depend on the elements.
absl::Status ManyReduction::Prepare() {
  const v1::ReduceRequest& question = request_.question();
  const int count = request_.operands_size();
  if (count < 1 || count > call_.backend.limits.max_operands) {
    return absl::InvalidArgumentError(
        absl::StrFormat("operands: got %d; allowed: 1 to %d", count, call_.backend.limits.max_operands));
  }
  if (absl::Status status = CheckQuestion(question); !status.ok()) return status;
  const std::int64_t results = question.ops_size() + question.calls_size();
  const std::int64_t bytes =
      count * (kOperandBytes + kResultMessageBytes * results + (question.return_state() ? kStateMessageBytes : 0));
  absl::Status memory = objects_.Resize(call_.admission.payers().Of(bytes), bytes, "the operands of a request");
  if (!memory.ok()) return WithRetryHint(memory, kMemoryRetryDelay);
  response_.mutable_responses()->Reserve(count);
  std::vector<std::size_t> others;
  double expected_us = 0;
  for (int i = 0; i < count; ++i) {
    ArrayReduction& each = operands_.emplace_back(call_);
    absl::StatusOr<Operand> operand = ResolveSide(absl::StrCat("operands[", i, "]").c_str(), request_.operands(i),
                                                  call_.backend, call_.admission.caller());
    if (!operand.ok()) return operand.status();
    const absl::Status status = each.Prepare(question, *std::move(operand), response_.add_responses());
    if (!status.ok()) return OfOperand(static_cast<std::size_t>(i), status);
    const bool cpu = each.engine()->kind() == EngineKind::kCpu;
    (cpu ? order_ : others).push_back(static_cast<std::size_t>(i));
    if (cpu) cpu_bytes_ += each.bytes();
    bytes_ += each.bytes();
    elements_ += each.spec().count;
    expected_us += each.expected_us();
  }
  std::stable_sort(others.begin(), others.end(), [this](std::size_t a, std::size_t b) {
    return std::less<>()(operands_[a].together(), operands_[b].together());
  });
  order_.insert(order_.end(), others.begin(), others.end());
  if (const absl::Duration predicted = absl::Microseconds(expected_us); predicted > call_.backend.limits.max_run_time) {
    return absl::InvalidArgumentError(
        absl::StrFormat("operands: got %d elements, which take about %s; allowed: %s (--max_run_time)", elements_,
                        absl::FormatDuration(absl::Trunc(predicted, absl::Milliseconds(1))),
                        absl::FormatDuration(call_.backend.limits.max_run_time)));
  }
  return absl::OkStatus();
}

// Whether the operands of the CPU would keep a gRPC thread for too long, or each take a hand-off.
bool ManyReduction::TakesLane() const {
  const ArrayReduction& first = operands_[order_.front()];
  return first.engine()->kind() == EngineKind::kCpu &&
         (order_.size() > kAtOnce || cpu_bytes_ > kSmallMessageBytes || !AnsweredByAccumulators(first.spec()) ||
          !first.spec().pipeline.empty());
}

// Reduces the operands from the next one on, until some go to a lane of their own, whose thread goes on.
void ManyReduction::Continue() {
  call_.limit.Start();
  while (status_.ok() && next_ < order_.size()) {
    steps_.store(0, std::memory_order_relaxed);
    since_ = Stopwatch();
    Engine* const together = operands_[order_[next_]].together();
    std::size_t end = next_ + 1;
    while (together != nullptr && end < order_.size() && operands_[order_[end]].together() == together) ++end;
    const bool admitted = std::exchange(admitted_, true);
    if (end - next_ > 1) {
      ReduceTogether(*together, end, admitted);
    } else {
      operands_[order_[next_]].Reduce(admitted, [this](const absl::StatusOr<reduced::Answer>& answer) {
        Answered(answer);
        Step();
      });
    }
    if (steps_.fetch_add(1, std::memory_order_acq_rel) == 0) return;
  }
  End(status_);
}

// Whoever comes second goes on: this, or Continue, whose call of the engine has not returned yet.
void ManyReduction::Step() {
  if (steps_.fetch_add(1, std::memory_order_acq_rel) == 1) Continue();
}

void ManyReduction::ReduceTogether(Engine& engine, std::size_t end, bool admitted) {
  std::vector<Job> jobs;
  for (std::size_t i = next_; i < end; ++i) jobs.push_back(operands_[order_[i]].TakeJob(admitted));
  engine.ReduceMany(std::move(jobs), [this](std::size_t failed, absl::StatusOr<std::vector<reduced::Answer>> answers) {
    if (!answers.ok()) {
      next_ += failed;
      Answered(answers.status());
    } else {
      for (reduced::Answer& answer : *answers) {
        since_ = Stopwatch();
        const double kernel_us = answer.timing.kernel_us.value_or(0);
        if (status_.ok()) Answered(std::move(answer), kernel_us);
      }
    }
    Step();
  });
}

// `reduced_us`: the operand's share of the time before since_.
void ManyReduction::Answered(const absl::StatusOr<reduced::Answer>& answer, double reduced_us) {
  const std::size_t index = order_[next_++];
  ArrayReduction& each = operands_[index];
  v1::ReduceResponse& response = *response_.mutable_responses(static_cast<int>(index));
  status_ = OfOperand(index, each.Finish(answer, /*receive_us=*/std::nullopt));
  if (status_.ok()) status_ = CheckResults(index, response);
  if (status_.ok()) response.mutable_timing()->set_total_us(reduced_us + since_.micros());
  Add(each.timing(), &timing_);
  each.Release(status_.ok());
}

// INVALID_ARGUMENT: the arrays and states up to this response are more than one may have.
absl::Status ManyReduction::CheckResults(std::size_t index, const v1::ReduceResponse& response) {
  if (response.arrays().empty() && !request_.question().return_state()) return absl::OkStatus();
  result_bytes_ += static_cast<std::int64_t>(response.ByteSizeLong());
  if (result_bytes_ <= call_.backend.limits.max_result_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("operands[%d]: got %d bytes of results and states up to it; allowed: %d (--max_result_bytes)",
                      index, result_bytes_, call_.backend.limits.max_result_bytes));
}

CallRecord ManyReduction::Record() const {
  return {
      .spec = &spec_, .source = source_, .engine = engine_, .pipeline = pipeline_, .bytes = bytes_, .timing = timing_};
}

void ManyReduction::End(const absl::Status& status) {
  for (ArrayReduction& each : operands_) each.Release(status.ok());
  if (!operands_.empty()) {
    const ArrayReduction& first = operands_.front();
    spec_ = first.spec();
    spec_.count = elements_;
    pipeline_ = first.ran().pipeline;
    source_ = SourceOf(rpc_, request_.operands(0));
    if (first.engine() != nullptr) engine_ = first.engine()->kind();
  }
  operands_.clear();
  if (status.ok()) FillTiming(timing_, receive_us_, bytes_, timing());
  Done done = std::move(done_);
  std::move(done)(status);
}

}  // namespace reduced::server

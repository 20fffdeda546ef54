// One ReduceMany from start to end:
//
//   1. gRPC has the bytes of the message and calls RunReduceMany, which makes a SimpleCall. Admission, room in a queue
//      and memory, once for all operands; then the message is decoded.
//   2. Every operand is found, the question about it parsed, and its engine chosen: see ArrayReduction::Prepare.
//   3. If there is more than a little for the CPU's engine, the call waits for one of its lanes, once. The gRPC thread
//      returns.
//   4. The operands are reduced one after the other, those of the CPU first: on the lane, without a further hand-off,
//      or on the gRPC thread. One that an engine reduces on a lane of its own goes on with the next one there. Those of
//      a GPU are one job of its engine.
//   5. The response is encoded, everything else is freed, and the call ends.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "kernels/engine/stopwatch.h"
#include "reduced/v1/reduced.pb.h"
#include "server/calls/array_reduction.h"
#include "server/calls/calls.h"
#include "server/calls/operand.h"
#include "server/calls/simple_call.h"
#include "server/wire/encode.h"
#include "server/wire/request.h"
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

// One call. It deletes itself at its end.
class ManyReduction {
 public:
  ManyReduction(Backend& backend, SimpleCall* call, grpc::ByteBuffer* encoded)
      : backend_(backend), call_(*call), encoded_(encoded) {}

  void Start(grpc::ByteBuffer* bytes) {
    absl::Status status = Admit(*bytes);
    if (status.ok()) status = call_.Decode(bytes, request_);
    bytes->Clear();
    receive_us_ = call_.micros();
    if (status.ok()) status = Prepare();
    if (!status.ok()) return End(status);
    if (!TakesLane()) return Continue();
    Job all{.spec = {.dtype = DType::kU8, .count = cpu_bytes_},
            .deadline = shared_.deadline,
            .cancelled = shared_.cancelled,
            .caller = call_.key()};
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

 private:
  absl::Status Admit(const grpc::ByteBuffer& bytes) {
    const absl::Status status = call_.Admit(bytes);
    return status.ok() ? CheckQueues(backend_.engines, call_.key(), call_.deadline(), bytes.Length()) : status;
  }

  // Finds every error that does not depend on the elements.
  absl::Status Prepare() {
    const v1::ReduceRequest& question = request_->question();
    const int count = request_->operands_size();
    if (count < 1 || count > backend_.limits.max_operands) {
      return absl::InvalidArgumentError(
          absl::StrFormat("operands: got %d; allowed: 1 to %d", count, backend_.limits.max_operands));
    }
    if (absl::Status status = CheckQuestion(question); !status.ok()) return status;
    const std::int64_t results = question.ops_size() + question.calls_size();
    const std::int64_t bytes =
        count * (kOperandBytes + kResultMessageBytes * results + (question.return_state() ? kStateMessageBytes : 0));
    absl::Status memory = objects_.Resize(payers().Of(bytes), bytes, "the operands of a request");
    if (!memory.ok()) return WithRetryHint(memory, kMemoryRetryDelay);
    response_->mutable_responses()->Reserve(count);
    std::vector<std::size_t> others;
    double expected_us = 0;
    for (int i = 0; i < count; ++i) {
      ArrayReduction& each = operands_.emplace_back(shared_);
      absl::StatusOr<Operand> operand = ResolveSide(absl::StrCat("operands[", i, "]").c_str(), request_->operands(i),
                                                    backend_, call_.admission().caller());
      if (!operand.ok()) return operand.status();
      const absl::Status status = each.Prepare(question, *std::move(operand), response_->add_responses());
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
    if (const absl::Duration predicted = absl::Microseconds(expected_us); predicted > backend_.limits.max_run_time) {
      return absl::InvalidArgumentError(
          absl::StrFormat("operands: got %d elements, which take about %s; allowed: %s (--max_run_time)", elements_,
                          absl::FormatDuration(absl::Trunc(predicted, absl::Milliseconds(1))),
                          absl::FormatDuration(backend_.limits.max_run_time)));
    }
    return absl::OkStatus();
  }

  // Whether the operands of the CPU would keep a gRPC thread for too long, or each take a hand-off.
  bool TakesLane() const {
    const ArrayReduction& first = operands_[order_.front()];
    return first.engine()->kind() == EngineKind::kCpu &&
           (order_.size() > kAtOnce || cpu_bytes_ > kSmallMessageBytes || !AnsweredByAccumulators(first.spec()) ||
            !first.spec().pipeline.empty());
  }

  // Reduces the operands from the next one on, until some go to a lane of their own, whose thread goes on.
  void Continue() {
    shared_.limit.Start();
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
  void Step() {
    if (steps_.fetch_add(1, std::memory_order_acq_rel) == 1) Continue();
  }

  void ReduceTogether(Engine& engine, std::size_t end, bool admitted) {
    std::vector<Job> jobs;
    for (std::size_t i = next_; i < end; ++i) jobs.push_back(operands_[order_[i]].TakeJob(admitted));
    engine.ReduceMany(std::move(jobs),
                      [this](std::size_t failed, absl::StatusOr<std::vector<reduced::Answer>> answers) {
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
  void Answered(const absl::StatusOr<reduced::Answer>& answer, double reduced_us = 0) {
    const std::size_t index = order_[next_++];
    ArrayReduction& each = operands_[index];
    v1::ReduceResponse& response = *response_->mutable_responses(static_cast<int>(index));
    status_ = OfOperand(index, each.Finish(answer, /*receive_us=*/std::nullopt));
    if (status_.ok()) status_ = CheckResults(index, response);
    if (status_.ok()) response.mutable_timing()->set_total_us(reduced_us + since_.micros());
    Add(each.timing(), &timing_);
    each.Release(status_.ok());
  }

  // INVALID_ARGUMENT: the arrays and states up to this response are more than one may have.
  absl::Status CheckResults(std::size_t index, const v1::ReduceResponse& response) {
    if (response.arrays().empty() && !request_->question().return_state()) return absl::OkStatus();
    result_bytes_ += static_cast<std::int64_t>(response.ByteSizeLong());
    if (result_bytes_ <= backend_.limits.max_result_bytes) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrFormat("operands[%d]: got %d bytes of results and states up to it; allowed: %d (--max_result_bytes)",
                        index, result_bytes_, backend_.limits.max_result_bytes));
  }

  CallPayers payers() const { return call_.admission().payers(); }

  void End(absl::Status status) {
    const std::unique_ptr<ManyReduction> self(this);
    SimpleCall& call = call_;
    for (ArrayReduction& each : operands_) each.Release(status.ok());
    if (status.ok()) {
      FillTiming(timing_, receive_us_, bytes_, response_->mutable_timing());
      response_->mutable_timing()->set_total_us(call.micros());
      status = Encode(*response_, payers(), &shared_.answer_memory, encoded_);
    }
    ReduceSpec spec;
    std::string pipeline;
    CallRecord record{.bytes = bytes_, .receive_us = receive_us_, .timing = timing_};
    if (!operands_.empty()) {
      const ArrayReduction& first = operands_.front();
      spec = first.spec();
      spec.count = elements_;
      pipeline = first.ran().pipeline;
      record.source = SourceOf(request_->operands(0));
      if (first.engine() != nullptr) record.engine = first.engine()->kind();
    }
    record.spec = &spec;
    record.pipeline = pipeline;
    operands_.clear();  // their messages are the arena's
    arena_.Reset();
    shared_.answer_memory.Return();
    objects_.Return();
    call.End(status, record);
  }

  Backend& backend_;
  SimpleCall& call_;
  grpc::ByteBuffer* const encoded_;  // the response's bytes, gRPC's
  google::protobuf::Arena arena_;
  v1::ReduceManyRequest* const request_ = google::protobuf::Arena::CreateMessage<v1::ReduceManyRequest>(&arena_);
  v1::ReduceManyResponse* const response_ = google::protobuf::Arena::CreateMessage<v1::ReduceManyResponse>(&arena_);
  ReducingCall shared_{backend_, call_.admission(), call_.cancelled(), call_.deadline()};
  MemoryLease objects_;                  // for the operands
  std::deque<ArrayReduction> operands_;  // in the order of the request
  std::vector<std::size_t> order_;       // in which they are reduced
  std::size_t next_ = 0;                 // of these
  bool admitted_ = false;                // by the queue of an engine: later ones are part of what runs
  std::int64_t cpu_bytes_ = 0;           // of the operands that the CPU reduces
  std::int64_t bytes_ = 0;
  std::int64_t elements_ = 0;
  std::int64_t result_bytes_ = 0;  // of the arrays and states so far
  double receive_us_ = 0;
  Timing timing_;               // of all so far
  Stopwatch since_;             // the operand that is reduced
  absl::Status status_;         // the first error
  std::atomic<int> steps_ = 0;  // that have ended, of that operand: its answer, and the call that asked for it
};

}  // namespace

grpc::ServerUnaryReactor* RunReduceMany(Backend& backend, grpc::CallbackServerContext* context,
                                        grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  auto* const call = new SimpleCall(Rpc::kReduceMany, backend, context);
  (new ManyReduction(backend, call, response))->Start(request);
  return call;
}

}  // namespace reduced::server

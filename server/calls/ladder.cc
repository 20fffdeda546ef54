// One Ladder, start to end:
//
//   1. gRPC has parsed the message and calls Run, which makes a Call. ParseLadder checks everything, down to
//      which engine measures which pipeline with which block size. Nothing has been taken so far.
//   2. The call is counted in; a draining server refuses it. A deadline that has passed ends it here.
//   3. It gets the lane, or waits for it among a few others; if they are too many it is refused. The gRPC thread goes
//      back to gRPC. From here on OnCancel (the client went away, the deadline passed, the server stops) sets the flag
//      that everything below looks at.
//   4. On the lane's thread the array is made, in host memory. The default pipeline of the CPU engine reduces it: that
//      is the expected answer. LadderStart is written.
//   5. Rung by rung, an engine measures one pipeline; its answers are compared with the expected one and a LadderStep
//      is written. The next rung begins when gRPC has taken the message: writing doesn't disturb its times, and nothing
//      is measured for a client that doesn't read.
//   6. The array is given back, then the call is finished: exactly once, and the last thing the lane does with it,
//      since then it belongs to gRPC again.
//   7. OnDone, after every other callback, counts the call out and deletes it.
#include "server/calls/ladder.h"

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/algebra/finalize.h"
#include "kernels/engine/stopwatch.h"
#include "server/sources/generated_array.h"
#include "server/wire/request.h"

namespace reduced::server {
namespace {

// Starts what calls back with a T, once, and waits for it.
template <class T, class Start>
T Await(Start start) {
  T result{};
  absl::Notification there;
  start([&](T value) {
    result = std::move(value);
    there.Notify();
  });
  there.WaitForNotification();
  return result;
}

// Unlike ==, tells -0 from +0, and is true of a NaN and itself.
bool SameBits(const Value& a, const Value& b) {
  const auto* const x = std::get_if<double>(&a.value);
  const auto* const y = std::get_if<double>(&b.value);
  if (x == nullptr || y == nullptr) return a == b;
  return a.dtype == b.dtype && std::bit_cast<std::uint64_t>(*x) == std::bit_cast<std::uint64_t>(*y);
}

// What a right answer is: the expected one, or one that rounding in another order can make of it.
struct Expected {
  Value value;
  std::optional<double> tolerance{};  // absent: no rounding, the same bits or any NaN

  bool Allows(const Value& answer) const {
    if (SameBits(answer, value)) return true;
    const auto* const x = std::get_if<double>(&answer.value);
    const auto* const y = std::get_if<double>(&value.value);
    if (x == nullptr || y == nullptr) return false;
    if (std::isnan(*x) && std::isnan(*y)) return true;
    // An infinity is not near anything.
    return tolerance.has_value() && std::isfinite(*y) && std::abs(*x - *y) <= *tolerance;
  }
};

// True if the op's answer is accumulated in f64, so that it depends on the order in the last places.
bool IsRounded(Op op, DType dtype) {
  constexpr AccumulatorSet kRounded = SetOf(Accumulator::kSum) | SetOf(Accumulator::kAbsSum) |
                                      SetOf(Accumulator::kSumSquares) | SetOf(Accumulator::kMoments) |
                                      SetOf(Accumulator::kProduct);
  return RowOf(dtype).is_float && (kRounded & SetOf(RowOf(op).accumulator)) != 0;
}

// What the CPU engine is asked for the expected answer of `op`: the op, and for float sums, whose terms may cancel, l1.
std::vector<Op> OpsForExpected(Op op, DType dtype) {
  const bool may_cancel = RowOf(dtype).is_float && RowOf(op).accumulator == Accumulator::kSum;
  return may_cancel ? std::vector<Op>{op, Op::kL1} : std::vector<Op>{op};
}

// From the values of OpsForExpected(). n additions round by at most 2^-53 of the sum of the terms' magnitudes each; a
// factor or a deviation is rounded too, so products and variances by twice that. A root halves the error.
Expected ExpectedOf(const ReduceSpec& spec, const std::vector<Value>& values) {
  const Op op = spec.ops.front();
  if (!IsRounded(op, spec.dtype)) return {values.front()};
  const auto n = static_cast<double>(spec.count);
  double magnitude = std::abs(std::get<double>(values.back().value));
  if (op == Op::kMean) magnitude /= n;
  const Accumulator accumulator = RowOf(op).accumulator;
  if (accumulator == Accumulator::kProduct || accumulator == Accumulator::kMoments) magnitude *= 2;
  // Results below the normal numbers have places of one size, whatever they are.
  return {values.front(), n * 0x1p-53 * magnitude + std::numeric_limits<double>::denorm_min()};
}

void FillOccupancy(const Occupancy& occupancy, v1::Occupancy* out) {
  out->set_block_size(occupancy.block_size);
  out->set_registers(occupancy.registers);
  out->set_shared_bytes(occupancy.shared_bytes);
  out->set_blocks_per_multiprocessor(occupancy.blocks_per_multiprocessor);
  out->set_max_threads_per_multiprocessor(occupancy.max_threads_per_multiprocessor);
}

// Fills an empty `step`.
absl::Status FillStep(const ReduceSpec& spec, const Measurement& measured, const Expected& expected,
                      v1::LadderStep* step) {
  step->set_pipeline(measured.ran.pipeline);
  step->set_engine(ToProto(measured.ran.engine));
  step->set_device(measured.ran.device);
  step->mutable_kernel_us()->Add(measured.kernel_us.begin(), measured.kernel_us.end());
  if (measured.scratch_copy_us) step->set_scratch_copy_us(*measured.scratch_copy_us);
  if (measured.read_gb_per_s) step->set_read_gb_per_s(*measured.read_gb_per_s);
  if (measured.occupancy) FillOccupancy(*measured.occupancy, step->mutable_occupancy());

  bool correct = true;
  bool same_bits = true;
  std::optional<Value> last;
  for (const State& state : measured.states) {
    const absl::StatusOr<std::vector<Value>> values = Finalize(spec, state);
    if (!values.ok()) return values.status();
    const Value& value = values->front();
    correct = correct && expected.Allows(value);
    same_bits = same_bits && (!last.has_value() || SameBits(*last, value));
    last = value;
  }
  if (!last.has_value()) return absl::InternalError(absl::StrCat("no answer of pipeline ", measured.ran.pipeline));
  ToProto(*last, step->mutable_value());
  step->set_correct(correct);
  step->set_same_bits(same_bits);
  return absl::OkStatus();
}

}  // namespace

// One call. gRPC calls OnWriteDone after each StartWrite, OnCancel at any time until OnDone.
class Ladders::Call final : public grpc::ServerWriteReactor<v1::LadderReply> {
 public:
  Call(Ladders& ladders, grpc::CallbackServerContext* context)
      : ladders_(ladders), context_(context), tag_(ladders.backend_.observer.Begin(context)) {}

  // Steps 1 to 3. The call finishes itself.
  void Start(const v1::LadderRequest& request) {
    const absl::Status status = Begin(request);
    if (!status.ok()) return End(status);
    ladders_.lanes_.Submit([this](absl::StatusOr<int> lane) {
      if (!lane.ok()) context_->AddTrailingMetadata("grpc-retry-pushback-ms", kRetryAfterMs);
      End(lane.ok() ? Climb() : lane.status());
    });
  }

  void OnCancel() override { cancelled_->store(true, std::memory_order_relaxed); }
  void OnWriteDone(bool ok) override {
    auto written = std::move(written_);  // the lane sets the next one as soon as this one is called
    std::move(written)(ok);
  }
  void OnDone() override {
    if (entered_) ladders_.backend_.gate.Leave();
    delete this;
  }

 private:
  // When a refused client should try again: ladders take seconds.
  static constexpr char kRetryAfterMs[] = "1000";

  absl::Status Begin(const v1::LadderRequest& request) {
    absl::StatusOr<ParsedLadder> parsed = ParseLadder(request, ladders_.backend_.engines, ladders_.backend_.limits);
    if (!parsed.ok()) return parsed.status();
    ladder_ = *std::move(parsed);
    const absl::StatusOr<Engine*> cpu = ladders_.backend_.engines.Get(EngineKind::kCpu);
    if (!cpu.ok()) return cpu.status();
    cpu_ = *cpu;

    const absl::Status entered = ladders_.backend_.gate.Enter();
    if (!entered.ok()) return entered;
    entered_ = true;
    const absl::StatusOr<std::string> caller = ladders_.backend_.CallerOf(*context_);
    if (!caller.ok()) return caller.status();
    absl::StatusOr<Quotas::Lease> quota = ladders_.backend_.TakeRequest(*caller);
    if (!quota.ok()) {
      context_->AddTrailingMetadata("grpc-retry-pushback-ms", kRetryAfterMs);
      return quota.status();
    }
    quota_ = *std::move(quota);
    return WhyStop(cancelled_, deadline_);
  }

  // Steps 4 and 5.
  absl::Status Climb() {
    const std::int64_t bytes = ladder_.spec.count * RowOf(ladder_.spec.dtype).bytes;
    const absl::StatusOr<MadeArray> made = MadeArray::Make(ladder_.contents, bytes, cpu_->info().parallel_units,
                                                           [this] { return WhyStop(cancelled_, deadline_); });
    if (!made.ok()) return made.status();
    const ArrayRef array{made->data(), MemorySpace::kHost};
    const absl::StatusOr<Expected> expected = Expect(array);
    if (!expected.ok()) return expected.status();

    v1::LadderReply reply;
    reply.mutable_start()->set_bytes(bytes);
    reply.mutable_start()->set_steps(static_cast<int>(ladder_.rungs.size()));
    ToProto(expected->value, reply.mutable_start()->mutable_expected());
    absl::Status status = Write(reply);
    for (const LadderRung& rung : ladder_.rungs) {
      if (!status.ok()) break;
      status = ClimbRung(rung, array, *expected);
    }
    return status;
  }

  absl::StatusOr<Expected> Expect(const ArrayRef& array) {
    ReduceSpec spec = ladder_.spec;
    spec.ops = OpsForExpected(spec.ops.front(), spec.dtype);
    spec.engine = EngineKind::kCpu;
    const auto result = Await<absl::StatusOr<EngineResult>>(
        [&](Engine::Done done) { cpu_->Reduce(JobOf(spec, array), std::move(done)); });
    if (!result.ok()) return result.status();
    const absl::StatusOr<std::vector<Value>> values = Finalize(spec, result->state);
    if (!values.ok()) return values.status();
    return ExpectedOf(spec, *values);
  }

  absl::Status ClimbRung(const LadderRung& rung, const ArrayRef& array, const Expected& expected) {
    const auto measured = Await<absl::StatusOr<Measurement>>([&](Engine::Measured done) {
      rung.engine->Measure(JobOf(rung.spec, array), ladder_.repeats, std::move(done));
    });
    if (!measured.ok()) return measured.status();
    v1::LadderReply reply;
    const absl::Status status = FillStep(rung.spec, *measured, expected, reply.mutable_step());
    return status.ok() ? Write(reply) : status;
  }

  absl::Status Write(const v1::LadderReply& reply) {
    const bool ok = Await<bool>([&](absl::AnyInvocable<void(bool) &&> written) {
      written_ = std::move(written);
      StartWrite(&reply);
    });
    if (ok) return absl::OkStatus();
    const absl::Status why = WhyStop(cancelled_, deadline_);
    return why.ok() ? absl::CancelledError("the client went away") : why;
  }

  Job JobOf(const ReduceSpec& spec, const ArrayRef& array) const { return {spec, array, deadline_, cancelled_}; }

  // Step 6.
  void End(const absl::Status& status) {
    ladders_.backend_.observer.End({.rpc = Rpc::kLadder,
                                    .tag = &tag_,
                                    .context = context_,
                                    .spec = &ladder_.spec,
                                    .total_us = since_call_.micros(),
                                    .status = status});
    quota_.Return();
    Finish(ToGrpc(status));
  }

  const Stopwatch since_call_;
  Ladders& ladders_;
  grpc::CallbackServerContext* const context_;
  const CallTag tag_;
  const absl::Time deadline_ = absl::FromChrono(context_->deadline());
  const CancelFlag cancelled_ = std::make_shared<std::atomic<bool>>(false);
  ParsedLadder ladder_;
  Engine* cpu_ = nullptr;
  bool entered_ = false;
  Quotas::Lease quota_;
  absl::AnyInvocable<void(bool) &&> written_;  // of the message that is being written
};

grpc::ServerWriteReactor<v1::LadderReply>* Ladders::Run(grpc::CallbackServerContext* context,
                                                        const v1::LadderRequest& request) {
  auto* const call = new Call(*this, context);  // OnDone deletes it
  call->Start(request);
  return call;
}

}  // namespace reduced::server

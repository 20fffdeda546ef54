// One Ladder from start to end:
//
//   1. gRPC has the bytes of the message and calls Run, which makes a Call. Admission: identity, deadline, gate, quota.
//      Then the message is parsed, and ParseLadder checks the request, including which engine measures which pipeline
//      with which block size.
//   2. The call gets the ladders' only lane, waits for it in a short queue, or is refused. The gRPC thread returns.
//      From here on OnCancel (the client went away, the deadline passed, the server stops) sets the flag that every
//      step below checks.
//   3. The lane's thread generates the array in host memory. The default pipeline of the CPU engine reduces it, which
//      gives the expected value. LadderStart is written.
//   4. Rung by rung, an engine measures one pipeline; its values are compared with the expected one, and a LadderStep
//      is written. The next rung begins when gRPC has taken the message, so that writing does not disturb its times,
//      and nothing is measured for a client that does not read. Rungs of the CPU take turns instead: some repeats of
//      each, then of each again. Whatever else runs on the host slows them all down alike.
//      Of matrix products (matmul_ladder.h) the matrices are generated, and every element is compared.
//   5. The array is freed, then the call is finished: exactly once, and as the lane's last action, since from then on
//      it belongs to gRPC.
//   6. OnDone, after every other callback, deletes the call, which leaves the gate.
#include "server/calls/ladder.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
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
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/algebra/finalize.h"
#include "kernels/engine/memory_budget.h"
#include "kernels/engine/pipelines.h"
#include "kernels/engine/stopwatch.h"
#include "kernels/engine/why_stop.h"
#include "kernels/system/status_macros.h"
#include "proto/codec/values.h"
#include "server/calls/admission.h"
#include "server/calls/await.h"
#include "server/calls/matmul_ladder.h"
#include "server/calls/watchdog.h"
#include "server/sources/generated_array.h"
#include "server/wire/encode.h"
#include "server/wire/ladder.h"
#include "server/wire/status.h"

namespace reduced::server {
namespace {

// In so many turns the rungs of the CPU are measured: enough that a burst of other work, often a second long, is not
// one rung's alone, and few enough that the repeats before each turn, which are not timed, add little.
constexpr int kTurns = 4;

// Unlike ==, distinguishes -0 from +0, and finds a NaN equal to itself.
bool SameBits(const Value& a, const Value& b) {
  const auto* const x = std::get_if<double>(&a.value);
  const auto* const y = std::get_if<double>(&b.value);
  if (x == nullptr || y == nullptr) return a == b;
  return a.dtype == b.dtype && std::bit_cast<std::uint64_t>(*x) == std::bit_cast<std::uint64_t>(*y);
}

// The correct values: the expected one, and those that differ from it only by rounding in another order.
struct Expected {
  Value value;
  std::optional<double> tolerance{};  // absent: the value is not rounded; only the same bits, or any NaN, are correct

  bool Allows(const Value& answer) const {
    if (SameBits(answer, value)) return true;
    const auto* const x = std::get_if<double>(&answer.value);
    const auto* const y = std::get_if<double>(&value.value);
    if (x == nullptr || y == nullptr) return false;
    if (std::isnan(*x) && std::isnan(*y)) return true;
    // Nothing is near an infinity.
    return tolerance.has_value() && std::isfinite(*y) && std::abs(*x - *y) <= *tolerance;
  }
};

// Whether the op is accumulated in f64, so that its last digits depend on the order of the elements.
bool IsRounded(Op op, DType dtype) {
  constexpr AccumulatorSet kRounded = SetOf(Accumulator::kSum) | SetOf(Accumulator::kAbsSum) |
                                      SetOf(Accumulator::kSumSquares) | SetOf(Accumulator::kMoments) |
                                      SetOf(Accumulator::kProduct);
  return RowOf(dtype).is_float && (kRounded & SetOf(RowOf(op).accumulator)) != 0;
}

// The ops that give the expected value of `op`: the op, and l1 for sums of floats, whose terms may cancel.
std::vector<OpCall> OpsForExpected(Op op, DType dtype) {
  const bool may_cancel = RowOf(dtype).is_float && RowOf(op).accumulator == Accumulator::kSum;
  return may_cancel ? std::vector<OpCall>{op, Op::kL1} : std::vector<OpCall>{op};
}

// The expected value and its tolerance from the values of OpsForExpected(). Each of n additions rounds by at most 2^-53
// of the sum of the terms' magnitudes. Factors and deviations are rounded, too: products and variances get twice that.
// A root halves the error.
Expected ExpectedOf(const ReduceSpec& spec, const std::vector<Value>& values) {
  const Op op = spec.ops.front();
  if (!IsRounded(op, spec.dtype)) return {values.front()};
  const auto n = static_cast<double>(spec.count);
  double magnitude = std::abs(std::get<double>(values.back().value));
  if (op == Op::kMean) magnitude /= n;
  const Accumulator accumulator = RowOf(op).accumulator;
  if (accumulator == Accumulator::kProduct || accumulator == Accumulator::kMoments) magnitude *= 2;
  // Subnormal results all have the same spacing.
  return {values.front(), n * 0x1p-53 * magnitude + std::numeric_limits<double>::denorm_min()};
}

// Fills an empty `step`.
absl::Status FillStep(const ReduceSpec& spec, const Measurement& measured, const Expected& expected,
                      v1::LadderStep* step) {
  step->set_pipeline(measured.ran.pipeline);
  step->set_engine(ToProto(measured.ran.engine));
  step->set_device(measured.ran.device);
  step->mutable_kernel_us()->Add(measured.kernel_us.begin(), measured.kernel_us.end());
  step->set_read_bytes(measured.read_bytes);
  if (measured.scratch_copy_us) step->set_scratch_copy_us(*measured.scratch_copy_us);
  if (measured.read_gb_per_s) step->set_read_gb_per_s(*measured.read_gb_per_s);
  const PipelineRow* const row = FindPipeline(measured.ran.pipeline);
  if (row != nullptr && row->active_threads) step->set_active_threads(*row->active_threads);
  if (measured.occupancy) ToProto(*measured.occupancy, step->mutable_occupancy());

  bool correct = true;
  bool same_bits = true;
  std::optional<Value> last;
  for (const State& state : measured.states) {
    ASSIGN_OR_RETURN(const std::vector<Value> values, Finalize(spec, state));
    const Value& value = values.front();
    correct = correct && expected.Allows(value);
    same_bits = same_bits && (!last.has_value() || SameBits(*last, value));
    last = value;
  }
  if (!last.has_value())
    return absl::InternalError(absl::StrCat("pipeline ", measured.ran.pipeline, " returned no value"));
  ToProto(*last, step->mutable_value());
  step->set_correct(correct);
  step->set_same_bits(same_bits);
  return absl::OkStatus();
}

}  // namespace

// One call. gRPC calls OnWriteDone after each StartWrite, OnCancel at any time until OnDone.
class Ladders::Call final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  Call(Ladders& ladders, grpc::CallbackServerContext* context)
      : ladders_(ladders),
        context_(context),
        tag_(ladders.backend_.observer.Begin(context)),
        admission_(Rpc::kLadder, ladders.backend_),
        watch_(ladders.backend_.watchdog, context) {}

  // Steps 1 and 2. The call finishes itself.
  void Start(grpc::ByteBuffer* request) {
    const absl::Status status = Begin(request);
    if (!status.ok()) return End(status);
    ladders_.lanes_.Submit(
        [this](absl::StatusOr<int> lane) {
          limit_.Start();
          End(lane.ok() ? Climb() : WhyRefused(lane.status()));
        },
        {.cancelled = cancelled_, .deadline = deadline_, .caller = admission_.key()});
  }

  void OnCancel() override { cancelled_->store(true, std::memory_order_relaxed); }
  void OnWriteDone(bool ok) override {
    auto written = std::move(written_);  // the lane sets the next callback as soon as this one runs
    std::move(written)(ok);
  }
  void OnDone() override { delete this; }

 private:
  static constexpr absl::Duration kRetryDelay = absl::Seconds(1);  // ladders take seconds

  static absl::Status WhyRefused(const absl::Status& status) {
    return absl::IsResourceExhausted(status) ? WithRetryHint(status, kRetryDelay) : status;
  }

  absl::Status Begin(grpc::ByteBuffer* bytes) {
    absl::Status status = admission_.Admit(ladders_.backend_.CallerOf(*context_), deadline_);
    if (status.ok()) status = CheckMessageSize(bytes->Length(), ladders_.backend_.limits.max_message_bytes);
    MemoryLease lease;
    v1::LadderRequest request;
    if (status.ok()) status = Decode(bytes, admission_.payers(), &lease, &request);
    if (!status.ok()) return status;
    ASSIGN_OR_RETURN(ladder_, ParseLadder(request, ladders_.backend_.engines, ladders_.backend_.limits));
    ASSIGN_OR_RETURN(cpu_, ladders_.backend_.engines.Get(EngineKind::kCpu));
    return absl::OkStatus();
  }

  // Steps 3 and 4.
  absl::Status Climb() {
    if (ladder_.matmul.has_value()) {
      return ClimbMatmul(
          ladder_, *cpu_,
          {.deadline = deadline_, .cancelled = cancelled_, .limit = limit_, .payer = admission_.payers().large},
          [this](const v1::LadderReply& reply) { return Write(reply); });
    }
    const std::int64_t bytes = ladder_.spec.count * RowOf(ladder_.spec.dtype).bytes;
    const absl::StatusOr<MemoryLease> memory =
        MemoryLease::Take(admission_.payers().Of(bytes), bytes, "the array of a ladder");
    if (!memory.ok()) return WithRetryHint(memory.status(), kRetryDelay);
    const absl::StatusOr<GeneratedArray> generated =
        GeneratedArray::Generate(ladder_.contents, bytes, cpu_->info().parallel_units,
                                 [this] { return WhyStop(cancelled_, deadline_, limit_); });
    if (!generated.ok()) return generated.status();
    const ArrayRef array{generated->data(), MemorySpace::kHost};
    ASSIGN_OR_RETURN(const Expected expected, Expect(array));

    v1::LadderReply reply;
    reply.mutable_start()->set_bytes(bytes);
    reply.mutable_start()->set_steps(static_cast<int>(ladder_.rungs.size()));
    ToProto(expected.value, reply.mutable_start()->mutable_expected());
    absl::Status status = Write(reply);
    for (absl::Span<const LadderRung> rest = ladder_.rungs; status.ok() && !rest.empty();) {
      const absl::Span<const LadderRung> rungs = rest.first(RungsAtOnce(rest));
      rest.remove_prefix(rungs.size());
      status = ClimbRungs(rungs, array, expected);
    }
    return status;
  }

  absl::StatusOr<Expected> Expect(const ArrayRef& array) {
    ReduceSpec spec = ladder_.spec;
    spec.ops = OpsForExpected(spec.ops.front(), spec.dtype);
    spec.engine = EngineKind::kCpu;
    const auto result =
        Await<absl::StatusOr<Answer>>([&](Engine::Done done) { cpu_->Reduce(JobOf(spec, array), std::move(done)); });
    if (!result.ok()) return result.status();
    ASSIGN_OR_RETURN(const std::vector<Value> values, Finalize(spec, result->state));
    return ExpectedOf(spec, values);
  }

  // How many of the next rungs are measured in turns.
  std::size_t RungsAtOnce(absl::Span<const LadderRung> rest) const {
    if (rest.front().engine->kind() != EngineKind::kCpu || ladder_.repeats == 1) return 1;
    const auto of_another = [&rest](const LadderRung& rung) { return rung.engine != rest.front().engine; };
    return static_cast<std::size_t>(std::find_if(rest.begin(), rest.end(), of_another) - rest.begin());
  }

  absl::Status ClimbRungs(absl::Span<const LadderRung> rungs, const ArrayRef& array, const Expected& expected) {
    std::vector<Measurement> measured(rungs.size());
    const int turns = rungs.size() == 1 ? 1 : std::min(kTurns, ladder_.repeats);
    for (int turn = 0; turn < turns; ++turn) {
      const int repeats = ladder_.repeats * (turn + 1) / turns - ladder_.repeats * turn / turns;
      for (std::size_t i = 0; i < rungs.size(); ++i) {
        auto part = Await<absl::StatusOr<Measurement>>([&](Engine::Measured done) {
          rungs[i].engine->Measure(JobOf(rungs[i].spec, array), repeats, std::move(done));
        });
        if (!part.ok()) return part.status();
        Append(*std::move(part), &measured[i]);
      }
    }
    absl::Status status;
    for (std::size_t i = 0; i < rungs.size() && status.ok(); ++i) {
      v1::LadderReply reply;
      status = FillStep(rungs[i].spec, measured[i], expected, reply.mutable_step());
      if (status.ok()) status = Write(reply);
    }
    return status;
  }

  absl::Status Write(const v1::LadderReply& reply) {
    grpc::ByteBuffer encoded;
    MemoryLease lease;
    RETURN_IF_ERROR(Encode(reply, admission_.payers(), &lease, &encoded));
    const bool ok = Await<bool>([&](absl::AnyInvocable<void(bool) &&> written) {
      written_ = std::move(written);
      watch_.Await(Wait::kResponse, admission_.key());
      StartWrite(&encoded);
    });
    watch_.Await(Wait::kNothing);
    if (ok) return absl::OkStatus();
    cancelled_->store(true, std::memory_order_relaxed);
    const absl::Status stalled = watch_.why();
    return stalled.ok() ? WhyStop(cancelled_, deadline_) : stalled;
  }

  Job JobOf(const ReduceSpec& spec, const ArrayRef& array) const {
    return {spec, array, deadline_, cancelled_, /*admitted=*/false, admission_.key(), limit_};
  }

  // Step 5.
  void End(const absl::Status& status) {
    ladders_.backend_.observer.End({.rpc = Rpc::kLadder,
                                    .tag = &tag_,
                                    .context = context_,
                                    .caller = &admission_.admitted(),
                                    .spec = &ladder_.spec,
                                    .client_us = watch_.waited_us(),
                                    .total_us = since_call_.micros(),
                                    .status = status});
    admission_.Release();
    watch_.Await(Wait::kResponse, admission_.key());
    Finish(ToGrpc(status, context_));
  }

  const Stopwatch since_call_;
  Ladders& ladders_;
  grpc::CallbackServerContext* const context_;
  const CallTag tag_;
  const absl::Time deadline_ = absl::FromChrono(context_->deadline());
  const CancelFlag cancelled_ = std::make_shared<std::atomic<bool>>(false);
  RunLimit limit_{ladders_.backend_.limits.max_run_time};  // of all rungs together, from when the call has the lane
  Admission admission_;
  ParsedLadder ladder_;
  Engine* cpu_ = nullptr;
  absl::AnyInvocable<void(bool) &&> written_;  // called when the current message is written
  Watch watch_;                                // last: OnDone ends it first
};

grpc::ServerWriteReactor<grpc::ByteBuffer>* Ladders::Run(grpc::CallbackServerContext* context,
                                                         grpc::ByteBuffer* request) {
  auto* const call = new Call(*this, context);  // OnDone deletes it
  call->Start(request);
  return call;
}

}  // namespace reduced::server

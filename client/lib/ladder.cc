// Client::Ladder.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/lib/answer.h"
#include "client/lib/call.h"
#include "client/lib/checks.h"
#include "client/lib/convert.h"
#include "client/lib/names.h"
#include "client/lib/retry.h"
#include "kernels/algebra/op.h"
#include "kernels/system/quoted.h"
#include "kernels/system/status_macros.h"
#include "reduced/client.h"
#include "reduced/v1/reduced.grpc.pb.h"

namespace reduced::client {
namespace {

void ToProto(const MatmulOptions& options, v1::Matmul* matmul) {
  matmul->set_m(options.m);
  matmul->set_n(options.n);
  matmul->set_k(options.k);
  matmul->set_tile(options.tile);
  for (const BlockShape& block : options.blocks) {
    v1::BlockShape* const to = matmul->add_blocks();
    to->set_x(block.x);
    to->set_y(block.y);
  }
  matmul->set_sweep_blocks(options.sweep_blocks);
  matmul->set_source_fill(options.source_fill);
}

absl::Status ToProto(const LadderOptions& options, v1::LadderRequest* request) {
  v1::DType dtype = v1::DTYPE_UNSPECIFIED;
  v1::Op op = v1::OP_UNSPECIFIED;
  absl::Status status = Parse("dtype", options.dtype, &dtype);
  if (options.matmul.has_value()) {
    ToProto(*options.matmul, request->mutable_matmul());
  } else {
    status.Update(Parse("op", options.op, &op));
  }
  if (!status.ok()) return status;

  request->set_dtype(dtype);
  request->set_count(options.count);
  request->set_op(op);
  if (options.fill.has_value()) request->set_fill(*options.fill);
  request->set_seed(options.seed);
  request->mutable_pipelines()->Assign(options.pipelines.begin(), options.pipelines.end());
  request->mutable_block_sizes()->Assign(options.block_sizes.begin(), options.block_sizes.end());
  request->set_repeats(options.repeats);
  return absl::OkStatus();
}

LadderStart FromProto(const v1::LadderStart& from) {
  LadderStart to{.bytes = from.bytes(), .steps = from.steps(), .operations = from.operations()};
  if (from.has_expected()) to.expected = client::FromProto(from.expected());
  return to;
}

LadderStep FromProto(const v1::LadderStep& from) {
  LadderStep to{.pipeline = from.pipeline(),
                .engine = NameOf(from.engine()),
                .device = from.device(),
                .kernel_us = {from.kernel_us().begin(), from.kernel_us().end()},
                .read_bytes = from.read_bytes(),
                .correct = from.correct(),
                .same_bits = from.same_bits()};
  if (from.has_value()) to.value = client::FromProto(from.value());
  if (from.has_peak_gflops()) to.peak_gflops = from.peak_gflops();
  if (from.has_bank_conflicts()) to.bank_conflicts = from.bank_conflicts();
  if (from.has_block()) to.block = {from.block().x(), from.block().y()};
  if (from.has_active_threads()) to.active_threads = from.active_threads();
  if (from.has_scratch_copy_us()) to.scratch_copy_us = from.scratch_copy_us();
  if (from.has_read_gb_per_s()) to.read_gb_per_s = from.read_gb_per_s();
  if (from.has_occupancy()) {
    to.occupancy = {.block_size = from.occupancy().block_size(),
                    .registers = from.occupancy().registers(),
                    .shared_bytes = from.occupancy().shared_bytes(),
                    .blocks_per_multiprocessor = from.occupancy().blocks_per_multiprocessor(),
                    .max_threads_per_multiprocessor = from.occupancy().max_threads_per_multiprocessor()};
  }
  return to;
}

// The messages of a ladder, in order: a start, and then as many steps as it announces.
class LadderCheck {
 public:
  explicit LadderCheck(const v1::LadderRequest& asked) : asked_(asked) {}

  absl::Status Next(const v1::LadderReply& reply) {
    if (reply.has_start()) {
      const absl::Status status = CheckStart(reply.start());
      announced_ = reply.start().steps();
      return Within("start", status);
    }
    if (!announced_.has_value()) return Wrong("reply", reply.has_step() ? "a step" : "nothing", "a start first");
    if (!reply.has_step()) return Wrong("reply", "nothing", "a step");
    if (steps_ == *announced_) return Wrong("steps", steps_ + 1, *announced_);
    return Within(Element("steps", steps_++), CheckStep(reply.step()));
  }

  // After the last message of a ladder that ended with OK.
  absl::Status End() const {
    if (!announced_.has_value()) return Wrong("start", "none", "one, which is the first message");
    return steps_ == *announced_ ? absl::OkStatus() : Wrong("steps", steps_, *announced_);
  }

 private:
  absl::Status CheckStart(const v1::LadderStart& start) const {
    if (announced_.has_value()) return Wrong("start", "two", "one, which is the first message");
    const std::optional<DType> dtype = DTypeFromNumber(asked_.dtype());
    const std::optional<Op> op = OpFromNumber(asked_.op());
    if (asked_.has_matmul() && dtype.has_value()) return CheckProduct(start, RowOf(*dtype).bytes);
    if (!dtype.has_value() || !op.has_value()) return absl::OkStatus();
    if (start.bytes() / RowOf(*dtype).bytes != asked_.count() || start.bytes() % RowOf(*dtype).bytes != 0) {
      return Wrong("bytes", start.bytes(), absl::StrCat(asked_.count(), " times ", RowOf(*dtype).bytes));
    }
    if (start.steps() < 1) return Wrong("steps", start.steps(), "1 and more");
    absl::Status status = CheckValue(start.expected());
    if (status.ok() && start.expected().dtype() != static_cast<int>(ResultDType(*op, *dtype))) {
      status = Wrong("value.dtype", NameOf(start.expected().dtype()), DTypeName(ResultDType(*op, *dtype)));
    }
    return Within("expected", status);
  }

  absl::Status CheckProduct(const v1::LadderStart& start, std::int64_t element_bytes) const {
    constexpr std::int64_t kMostSide = std::int64_t{1} << 20;
    const std::int64_t m = asked_.matmul().m();
    const std::int64_t n = asked_.matmul().n();
    const std::int64_t k = asked_.matmul().k();
    for (const std::int64_t side : {m, n, k}) {
      if (side < 0 || side > kMostSide) return Wrong("start", absl::StrCat("one for a side of ", side), "an error");
    }
    const std::int64_t bytes = (m * k + k * n + m * n) * element_bytes;
    if (start.bytes() != bytes) return Wrong("bytes", start.bytes(), bytes);
    const auto operations =
        static_cast<std::int64_t>(2 * static_cast<std::uint64_t>(m * n) * static_cast<std::uint64_t>(k));
    if (start.operations() != operations) return Wrong("operations", start.operations(), operations);
    return start.steps() < 1 ? Wrong("steps", start.steps(), "1 and more") : absl::OkStatus();
  }

  absl::Status CheckStep(const v1::LadderStep& step) const {
    absl::Status status = CheckName("pipeline", step.pipeline());
    const auto& chosen = asked_.pipelines();
    if (!chosen.empty() && std::find(chosen.begin(), chosen.end(), step.pipeline()) == chosen.end()) {
      status.Update(Wrong("pipeline", Quoted(step.pipeline()), absl::StrJoin(chosen, ", ")));
    }
    if (step.engine() == v1::ENGINE_AUTO) status.Update(Wrong("engine", "auto", "cpu, cuda"));
    status.Update(CheckName("device", step.device()));
    constexpr int kDefaultRepeats = 20;  // LadderRequest.repeats
    const int repeats = asked_.repeats() == 0 ? kDefaultRepeats : asked_.repeats();
    // The host may take too long for all repeats of a product.
    const int least = asked_.has_matmul() && step.engine() == v1::ENGINE_CPU ? 1 : repeats;
    if (step.kernel_us_size() < least || step.kernel_us_size() > repeats) {
      status.Update(Wrong("kernel_us", step.kernel_us_size(), repeats));
    }
    for (const double us : step.kernel_us()) status.Update(CheckAmounts({{"kernel_us", us}}));
    if (!asked_.has_matmul()) status.Update(CheckValue(step.value()));
    status.Update(CheckAmounts(step));
    status.Update(Within("block", CheckAmounts(step.block())));
    status.Update(Within("occupancy", CheckAmounts(step.occupancy())));
    return status;
  }

  const v1::LadderRequest& asked_;
  std::optional<int> announced_;  // absent until the start
  int steps_ = 0;
};

absl::StatusOr<LadderStart> CallLadder(RpcState& state, const v1::LadderRequest& request,
                                       absl::FunctionRef<void(const LadderStart&, const LadderStep&)> on_step) {
  LadderStart start;
  LadderCheck check(request);
  absl::Status right;
  v1::LadderReply reply;
  const auto reader = state.backend.stub->Ladder(&state.context, request);
  state.watch.Started();
  while (right.ok() && reader->Read(&reply)) {
    right = check.Next(reply);
    if (!right.ok()) {
      state.Cancel();
    } else if (reply.has_start()) {
      start = FromProto(reply.start());
    } else {
      state.repeatable = false;  // a step is reported once
      on_step(start, FromProto(reply.step()));
    }
  }
  const absl::Status status = state.Outcome(state.Seen(reader->Finish()));
  if (right.ok() && status.ok()) right = check.End();
  if (!right.ok()) return WrongAnswer(state.server, right);
  if (!status.ok()) return status;
  return start;
}

}  // namespace

absl::StatusOr<LadderStart> Client::Ladder(const LadderOptions& options,
                                           absl::FunctionRef<void(const LadderStart&, const LadderStep&)> on_step) {
  v1::LadderRequest request;
  RETURN_IF_ERROR(ToProto(options, &request));
  return CallAgain(*connection_, connection_->home, options.timeout, /*interrupted=*/nullptr, /*attempts=*/nullptr,
                   [&](RpcState& state) { return CallLadder(state, request, on_step); });
}

}  // namespace reduced::client

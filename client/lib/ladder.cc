// Client::Ladder.
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/lib/answer.h"
#include "client/lib/call.h"
#include "client/lib/convert.h"
#include "client/lib/names.h"
#include "client/lib/retry.h"
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

}  // namespace

namespace {

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
  if (const absl::Status status = ToProto(options, &request); !status.ok()) return status;
  return CallAgain(*connection_, connection_->home, options.timeout, /*interrupted=*/nullptr, /*attempts=*/nullptr,
                   [&](RpcState& state) { return CallLadder(state, request, on_step); });
}

}  // namespace reduced::client

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
#include "reduced/client.h"
#include "reduced/v1/reduced.grpc.pb.h"

namespace reduced::client {
namespace {

absl::Status ToProto(const LadderOptions& options, v1::LadderRequest* request) {
  v1::DType dtype = v1::DTYPE_UNSPECIFIED;
  v1::Op op = v1::OP_UNSPECIFIED;
  absl::Status status = Parse("dtype", options.dtype, &dtype);
  status.Update(Parse("op", options.op, &op));
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
  return {.bytes = from.bytes(), .steps = from.steps(), .expected = client::FromProto(from.expected())};
}

LadderStep FromProto(const v1::LadderStep& from) {
  LadderStep to{.pipeline = from.pipeline(),
                .engine = NameOf(from.engine()),
                .device = from.device(),
                .kernel_us = {from.kernel_us().begin(), from.kernel_us().end()},
                .value = client::FromProto(from.value()),
                .correct = from.correct(),
                .same_bits = from.same_bits()};
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

absl::StatusOr<LadderStart> Client::Ladder(const LadderOptions& options,
                                           absl::FunctionRef<void(const LadderStart&, const LadderStep&)> on_step) {
  RpcState state(*connection_, connection_->home, options.timeout);
  v1::LadderRequest request;
  absl::Status status = CheckTimeout(state.timeout);
  status.Update(ToProto(options, &request));
  if (!status.ok()) return status;
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
      on_step(start, FromProto(reply.step()));
    }
  }
  status = state.Outcome(reader->Finish());
  if (right.ok() && status.ok()) right = check.End();
  if (!right.ok()) return WrongAnswer(state.server, right);
  if (!status.ok()) return status;
  return start;
}

}  // namespace reduced::client

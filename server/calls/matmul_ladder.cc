#include "server/calls/matmul_ladder.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/matmul/host.h"
#include "kernels/system/status_macros.h"
#include "proto/codec/values.h"
#include "server/calls/await.h"
#include "server/sources/generated_array.h"
#include "server/wire/encode.h"
#include "server/wire/status.h"

namespace reduced::server {
namespace {

constexpr absl::Duration kRetryDelay = absl::Seconds(1);  // ladders take seconds

// The host memory of one ladder: the matrices, and what the product is compared with.
struct Matrices {
  GeneratedArray a;
  GeneratedArray b;
  GeneratedArray c;
  std::optional<GeneratedArray> values;  // absent: the product has a closed form
  ExpectedProduct expected;
};

std::int64_t HostBytes(const ParsedMatmul& matmul) {
  const std::int64_t values = matmul.source_fill ? 0 : ExpectedProduct::ValuesBytesOf(matmul.spec);
  return matmul.bytes() + ExpectedProduct::BytesOf(matmul.spec) + values;
}

// Elements of the source's fill, if it is asked for and there are any; else random ones, of another seed for B.
Contents ContentsOf(const ParsedLadder& ladder, bool of_b) {
  Contents contents = ladder.contents;
  if (of_b) contents.seed = ~contents.seed;
  if (!ladder.matmul->source_fill || ladder.matmul->spec.k == 0) return contents;
  const auto fill = of_b ? &FillSourceB : &FillSourceA;
  contents.elements = [fill, spec = ladder.matmul->spec](std::int64_t begin, std::int64_t end, void* array) {
    fill(spec, begin, end, array);
  };
  return contents;
}

absl::StatusOr<Matrices> MakeMatrices(const ParsedLadder& ladder, int threads,
                                      absl::FunctionRef<absl::Status()> why_stop) {
  const ParsedMatmul& matmul = *ladder.matmul;
  const auto make = [&](const Contents& contents, std::int64_t bytes) {
    return GeneratedArray::Generate(contents, std::max<std::int64_t>(bytes, 1), threads, why_stop);
  };
  const Contents zeros{.dtype = matmul.spec.dtype, .fill = 0};
  ASSIGN_OR_RETURN(GeneratedArray a, make(ContentsOf(ladder, /*of_b=*/false), matmul.spec.bytes_a()));
  ASSIGN_OR_RETURN(GeneratedArray b, make(ContentsOf(ladder, /*of_b=*/true), matmul.spec.bytes_b()));
  ASSIGN_OR_RETURN(GeneratedArray c, make(zeros, matmul.spec.bytes_c()));
  Matrices matrices{std::move(a), std::move(b), std::move(c), std::nullopt, ExpectedProduct(matmul.spec)};
  const void* const left = matrices.a.data();
  const void* const right = matrices.b.data();
  absl::Status status = matrices.expected.Study(left, right, why_stop);
  if (status.ok() && !matmul.source_fill) {
    ASSIGN_OR_RETURN(matrices.values, make(zeros, ExpectedProduct::ValuesBytesOf(matmul.spec)));
    status = matrices.expected.Multiply(left, right, threads, matrices.values->data(), why_stop);
  }
  if (!status.ok()) return status;
  return matrices;
}

v1::LadderReply StepOf(const MatmulRung& rung, const MatmulMeasurement& measured) {
  v1::LadderReply reply;
  v1::LadderStep& step = *reply.mutable_step();
  step.set_pipeline(measured.ran.pipeline);
  step.set_engine(ToProto(measured.ran.engine));
  step.set_device(measured.ran.device);
  step.mutable_kernel_us()->Add(measured.kernel_us.begin(), measured.kernel_us.end());
  step.set_correct(measured.correct);
  step.set_same_bits(measured.same_bits);
  if (measured.peak_gflops) step.set_peak_gflops(*measured.peak_gflops);
  if (const std::optional<int> ways = BankConflictsOf(rung.spec)) step.set_bank_conflicts(*ways);
  if (measured.occupancy) ToProto(*measured.occupancy, step.mutable_occupancy());
  if (rung.spec.row->blocks) {
    step.mutable_block()->set_x(rung.spec.block.x);
    step.mutable_block()->set_y(rung.spec.block.y);
  }
  return reply;
}

}  // namespace

absl::Status ClimbMatmul(const ParsedLadder& ladder, Engine& cpu, const MatmulCall& call,
                         absl::FunctionRef<absl::Status(const v1::LadderReply&)> write) {
  const ParsedMatmul& matmul = *ladder.matmul;
  const absl::StatusOr<MemoryLease> lease =
      MemoryLease::Take(call.payer, HostBytes(matmul), "the matrices of a ladder");
  if (!lease.ok()) return WithRetryHint(lease.status(), kRetryDelay);
  const auto why_stop = [&call] { return WhyStop(call.cancelled, call.deadline, call.limit); };
  ASSIGN_OR_RETURN(Matrices matrices, MakeMatrices(ladder, cpu.info().parallel_units, why_stop));

  v1::LadderReply start;
  start.mutable_start()->set_bytes(matmul.bytes());
  start.mutable_start()->set_steps(static_cast<int>(matmul.rungs.size()));
  start.mutable_start()->set_operations(matmul.spec.operations());
  absl::Status status = write(start);
  for (const MatmulRung& rung : matmul.rungs) {
    if (!status.ok()) break;
    MatmulJob job{
        .spec = rung.spec,
        .a = matrices.a.data(),
        .b = matrices.b.data(),
        .c = matrices.c.data(),
        .is_right = [&] { return matrices.expected.Allows(matrices.c.data(), [&] { return !why_stop().ok(); }); },
        .deadline = call.deadline,
        .cancelled = call.cancelled,
        .limit = call.limit,
        .caller = call.payer.caller};
    const auto measured = Await<absl::StatusOr<MatmulMeasurement>>([&](Engine::MatmulMeasured done) {
      rung.engine->MeasureMatmul(std::move(job), ladder.repeats, std::move(done));
    });
    status = measured.ok() ? write(StepOf(rung, *measured)) : measured.status();
  }
  return status;
}

}  // namespace reduced::server

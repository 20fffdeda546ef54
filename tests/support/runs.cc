#include "tests/support/runs.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "kernels/algebra/finalize.h"

namespace reduced::test {

absl::StatusOr<Answer> ReduceAndWait(Engine& engine, Job job) {
  absl::Notification done;
  std::optional<absl::StatusOr<Answer>> answer;
  engine.Reduce(std::move(job), [&](absl::StatusOr<Answer> result) {
    answer = std::move(result);
    done.Notify();
  });
  if (!done.WaitForNotificationWithTimeout(absl::Minutes(2))) {
    std::fputs("a reduction was not answered within 2 minutes\n", stderr);
    std::abort();
  }
  return *std::move(answer);
}

std::vector<OpCall> OpsOf(DType dtype) {
  std::vector<OpCall> ops;
  for (const OpRow& row : kOps) {
    if (Supports(row.op, dtype) && HasAccumulator(row.op)) ops.push_back(row.op);
  }
  return ops;
}

std::string Describe(const ReduceSpec& spec, std::string_view kind) {
  return absl::StrFormat("%s[%d] %s, NaN policy %d", RowOf(spec.dtype).name, spec.count, kind,
                         static_cast<int>(spec.nan_policy));
}

bool CheckAnswers(const Facts& facts, const ReduceSpec& spec, const State& state) {
  bool right = state.partial.count == spec.count;
  EXPECT_EQ(state.partial.count, spec.count);
  for (const Op op : spec.ops) {
    for (const OverflowPolicy policy : {OverflowPolicy::kError, OverflowPolicy::kWrap, OverflowPolicy::kSaturate}) {
      for (const std::int64_t ddof : {std::int64_t{0}, std::int64_t{1}, spec.count}) {
        if (ddof != 0 && (RowOf(op).accumulator != Accumulator::kMoments || policy != OverflowPolicy::kError)) continue;
        ReduceSpec one = spec;
        one.ops = {op};
        one.overflow_policy = policy;
        one.ddof = ddof;
        absl::StatusOr<std::vector<Value>> values = Finalize(one, state);
        const absl::StatusOr<Value> got = values.ok() ? absl::StatusOr<Value>(values->at(0)) : values.status();
        const std::string wrong = Mismatch(Expect(facts, one, op), got);
        if (wrong.empty()) continue;
        right = false;
        ADD_FAILURE() << RowOf(op).name << " of " << RowOf(spec.dtype).name << "[" << spec.count
                      << "], overflow policy " << static_cast<int>(policy) << ", ddof " << ddof << ": " << wrong;
        break;
      }
    }
  }
  return right;
}

}  // namespace reduced::test

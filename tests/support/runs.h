// Running reductions to their end in a test.
#ifndef REDUCED_TESTS_SUPPORT_RUNS_H_
#define REDUCED_TESTS_SUPPORT_RUNS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/engine/engine.h"
#include "tests/support/oracle.h"

namespace reduced::test {

// True in builds that run many times slower, and over the fake device: the tests take smaller arrays.
extern const bool kSlowBuild;

// Ends the process with a message if `done` isn't called within 2 minutes: the job's array can't be freed then.
absl::StatusOr<Answer> ReduceAndWait(Engine& engine, Job job);

// Every op that dtype has, in the order of the table.
std::vector<OpCall> OpsOf(DType dtype);

// "f32[1025] some_nan", for the trace of a failure.
std::string Describe(const ReduceSpec& spec, std::string_view kind);

// Compares `state`, which answers spec.ops, with what the definitions say of the array: each op by itself, under
// every overflow policy and several ddof. Adds a test failure for each op that is wrong; returns true if none is.
bool CheckAnswers(const Facts& facts, const ReduceSpec& spec, const State& state);

}  // namespace reduced::test

#endif  // REDUCED_TESTS_SUPPORT_RUNS_H_

// What is asked of the kernels and what they answer: plain structs, no behaviour.
#ifndef REDUCED_KERNELS_ALGEBRA_SPEC_H_
#define REDUCED_KERNELS_ALGEBRA_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kernels/algebra/dtype.h"
#include "kernels/algebra/op.h"
#include "kernels/algebra/op_call.h"

namespace reduced {

// The numbers of these enums are those of the proto.
enum class EngineKind : std::uint8_t { kAuto = 0, kCpu = 1, kCuda = 2 };
enum class NanPolicy : std::uint8_t {
  kPropagate = 1,  // a NaN makes sums, means, extrema... NaN; argmin and argmax give the first NaN
  kOmit = 2,       // as if the NaNs weren't there; nan_count counts them all the same
};
enum class OverflowPolicy : std::uint8_t {
  kError = 1,     // OUT_OF_RANGE
  kWrap = 2,      // modulo 2^64
  kSaturate = 3,  // the nearest value the result type holds
};

// Of float sums, and of what is computed from them: see IsExactOp in exact/answers.h.
enum class Precision : std::uint8_t {
  kF64 = 1,    // each addition rounded, in a fixed order; of arrays of results they may be exact
  kExact = 2,  // the exact sums, rounded once: the same bits on every engine, in any order
};

// What min, max, argmin, argmax and range of an output without (counted) elements are.
enum class EmptyPolicy : std::uint8_t {
  kError = 1,  // INVALID_ARGUMENT
  kFill = 2,   // a value that says so: see EmptyValue in finalize.h
};

struct ReduceSpec {
  DType dtype = DType::kF32;
  std::int64_t count = 0;     // elements in the array, >= 0
  std::vector<OpCall> ops{};  // at least one, each supported for dtype
  NanPolicy nan_policy = NanPolicy::kPropagate;
  OverflowPolicy overflow_policy = OverflowPolicy::kError;  // of integer sums and products
  EmptyPolicy empty_policy = EmptyPolicy::kError;
  std::int64_t ddof = 0;  // of var and std, >= 0
  Precision precision = Precision::kF64;
  EngineKind engine = EngineKind::kAuto;
  std::string device{};    // that the array is to be reduced on, as DeviceInfo names it; empty: any
  std::string pipeline{};  // by name; empty: the default of the engine that runs it
  int block_size = 0;      // threads of a block, for pipelines that take it; 0: their default

  friend bool operator==(const ReduceSpec&, const ReduceSpec&) = default;
};

// Whether accumulators answer all of spec's ops.
bool AnsweredByAccumulators(const ReduceSpec& spec);

// The accumulators that answer spec's ops, but for those that ExactAccumulatorsFor(spec) answers. Leaving NaNs out
// takes the counts too, but not for exact sums, which count NaNs themselves.
AccumulatorSet AccumulatorsFor(const ReduceSpec& spec);

// One answer, in the type ResultDType says: f16, bf16 and f32 results are held as the double of the same value, signed
// integers as int64, unsigned ones as uint64.
struct Value {
  DType dtype = DType::kF64;
  std::variant<double, std::int64_t, std::uint64_t, bool> value;

  friend bool operator==(const Value&, const Value&) = default;
};

// Where the time of one reduction went, in microseconds. A stage that did not happen is absent.
struct Timing {
  std::optional<double> queue_us;           // waiting for a lane
  std::optional<double> host_copy_us;       // copying into pinned memory, on the host
  std::optional<double> host_to_device_us;  // on the device's clock
  std::optional<double> scratch_copy_us;    // copying to where a pipeline reduces in place
  std::optional<double> kernel_us;          // reducing: the device's clock, or the CPU engine's wall time
  std::optional<double> device_to_host_us;  // on the device's clock
};

// The stages of Timing in the order in which they happen. What adds up, sends or shows the stages walks this table.
struct TimingStage {
  std::string_view name;  // of the proto's field, without `_us`
  std::optional<double> Timing::*micros;
};
inline constexpr TimingStage kTimingStages[] = {
    {"queue", &Timing::queue_us},
    {"host_copy", &Timing::host_copy_us},
    {"host_to_device", &Timing::host_to_device_us},
    {"scratch_copy", &Timing::scratch_copy_us},
    {"kernel", &Timing::kernel_us},
    {"device_to_host", &Timing::device_to_host_us},
};

// What ran.
struct Execution {
  EngineKind engine = EngineKind::kCpu;
  std::string device;    // as the engine's info() names it
  std::string pipeline;  // by name
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_ALGEBRA_SPEC_H_

// What the client library takes and gives: arrays, options, results and the description of a server. Plain structs.
#ifndef REDUCED_TYPES_H_
#define REDUCED_TYPES_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#define REDUCED_EXPORT __attribute__((visibility("default")))

namespace reduced::client {

// An array in the caller's memory, row-major and dense. Doesn't own it.
struct ArrayView {
  const void* data = nullptr;         // any alignment; may be null if there is no element
  std::string dtype{};                // "f32", "bool", ...
  std::vector<std::int64_t> shape{};  // elements along each dimension; none: a scalar, one element

  // A one-dimensional array of float, double, bool or a fixed-width integer. f16 and bf16 have no C++ type: fill in
  // `data`.
  template <class T>
  static ArrayView Of(std::span<const T> elements) {
    return {elements.data(), NameOf<T>(), {static_cast<std::int64_t>(elements.size())}};
  }

 private:
  template <class T>
  static std::string NameOf() {
    static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8);
    if constexpr (std::is_same_v<T, bool>) return "bool";
    const char* const kind = std::is_floating_point_v<T> ? "f" : std::is_signed_v<T> ? "i" : "u";
    return std::string(kind).append(std::to_string(8 * sizeof(T)));
  }
};

// An array that the server can reach by itself: nothing of it is sent.
class RemoteArray {
 public:
  // One that the server keeps, by its id: ArrayInfo.id.
  static RemoteArray Kept(std::string id) {
    RemoteArray array;
    array.id_ = std::move(id);
    return array;
  }
  // The elements of a region from byte `offset` on, any alignment, by its token: see Region::Array.
  static RemoteArray InRegion(std::string token, std::int64_t offset, std::string dtype,
                              std::vector<std::int64_t> shape) {
    RemoteArray array;
    array.token_ = std::move(token);
    array.offset_ = offset;
    array.elements_ = {nullptr, std::move(dtype), std::move(shape)};
    return array;
  }

  const std::string& id() const { return id_; }  // empty: it is in a region
  const std::string& token() const { return token_; }
  std::int64_t offset() const { return offset_; }
  const ArrayView& elements() const { return elements_; }  // dtype and shape, no data

 private:
  RemoteArray() = default;

  std::string id_;
  std::string token_;
  std::int64_t offset_ = 0;
  ArrayView elements_;
};

// How far sending an array has come: bytes of its elements.
using OnProgress = std::function<void(std::int64_t sent, std::int64_t total)>;

struct ReduceOptions {
  std::string engine = "auto";            // "auto", "cpu" or "cuda"
  std::string device{};                   // a name of ServerInfo.devices, such as "cuda:1"; empty: any
  std::string pipeline{};                 // a name of ServerInfo.pipelines; empty: the engine's default
  std::string precision{};                // of float sums: "f64" or "exact"; empty: exact, if the pipeline has it
  std::string nan_policy = "propagate";   // or "omit"
  std::string overflow_policy = "error";  // of integer sums and products; or "wrap" or "saturate"
  std::int64_t ddof = 0;                  // of var and std: they divide by n - ddof
  int block_size = 0;                     // threads, of PipelineInfo.block_sizes; 0: the pipeline's own
  // How the elements of an ArrayView get to the server: "inline" in one message, of less than 2 GiB and within the
  // server's max_message_bytes; "stream" in chunks, of any size; "auto": whichever is faster for the array's size.
  std::string via = "auto";
  std::optional<absl::Duration> timeout{};  // instead of ClientOptions.timeout; may be infinite
  bool return_state = false;                // the reply has Reply.state
  // Called between the chunks of a stream, within Client::Reduce; not by ReduceAsync. By one thread at a time, but by
  // several if the array goes in parts (ClientOptions.connections).
  OnProgress on_progress{};
};

struct Value {
  std::string dtype{};  // of the result
  // double for f16, bf16, f32 and f64; int64 for i8 to i64; uint64 for u8 to u64; bool for bool.
  std::variant<double, std::int64_t, std::uint64_t, bool> value{};
};

struct Result {
  std::string op{};
  Value value{};
};

struct Execution {
  std::string engine{};  // "cpu" or "cuda"
  std::string device{};
  std::string pipeline{};
  std::string precision{};
  std::string reason{};  // why this engine, for people
};

// Microseconds on the server; a stage that did not happen is absent. See Timing in reduced.proto.
struct Timing {
  std::optional<double> receive_us{};
  std::optional<double> queue_us{};
  std::optional<double> host_copy_us{};
  std::optional<double> host_to_device_us{};
  std::optional<double> scratch_copy_us{};  // for the pipelines that reduce in place
  std::optional<double> kernel_us{};
  std::optional<double> device_to_host_us{};
  std::optional<double> total_us{};
  std::int64_t bytes = 0;                   // of the array
  std::optional<double> kernel_gb_per_s{};  // 10^9 bytes a second
};

struct Reply {
  // How the elements got there: "inline", "stream" or "session"; or "array" or "shm", kept or shared memory,
  // of which nothing was sent.
  std::string via{};
  std::vector<Result> results{};  // one for each op, in the order asked
  std::int64_t count = 0;         // elements in the array
  Execution execution{};
  Timing timing{};
  // What is known of the array, for Client::Merge: a message State of reduced.proto, encoded. With
  // ReduceOptions.return_state; else empty.
  std::string state{};
};

struct MergeOptions {
  bool return_state = false;                // the reply has MergeReply.state
  std::optional<absl::Duration> timeout{};  // as ReduceOptions.timeout
};

// What is said of all parts of an array together.
struct MergeReply {
  std::vector<Result> results{};  // one for each op that the states are of
  std::int64_t count = 0;         // elements
  std::string state{};            // of all of them, if asked for
};

// Where an array is kept, and for how long.
struct PutOptions {
  std::string device{};  // a name of ServerInfo.devices; empty: the first GPU, or the CPU's memory where there is none
  std::string owner{};   // at most 64 bytes, for people; who deletes the array says the same
  absl::Duration ttl{};  // it goes when it has not been used for so long; zero: ServerInfo.default_array_ttl
  std::optional<absl::Duration> timeout{};  // as ReduceOptions.timeout
  OnProgress on_progress{};                 // called between the chunks, within Client::Put
};

// An array that a server keeps.
struct ArrayInfo {
  std::string id{};  // can't be guessed: who knows it can use the array
  std::string dtype{};
  std::vector<std::int64_t> shape{};
  std::int64_t bytes = 0;
  std::string device{};
  std::string owner{};
  absl::Duration age{};         // since it was put
  absl::Duration expires_in{};  // unless it is used before
  int users = 0;                // reductions that read it now
};

// An array that the server makes, and what to time on it.
struct LadderOptions {
  std::string dtype{};
  std::int64_t count = 0;  // elements, at least 1; ServerInfo.max_ladder_bytes limits their bytes
  std::string op = "sum";
  std::optional<double> fill{};             // what every element is; default: random ones
  std::uint64_t seed = 0;                   // of the random ones: the same seed, the same array
  std::vector<std::string> pipelines{};     // names of ServerInfo.pipelines; none: all that support the op and dtype
  std::vector<int> block_sizes{};           // threads; each pipeline with each that it has; none: with its own
  int repeats = 0;                          // timed runs, 1 to 1000; 0: 20
  std::optional<absl::Duration> timeout{};  // as ReduceOptions.timeout, of the whole ladder
};

// What all the steps of a ladder have in common.
struct LadderStart {
  std::int64_t bytes = 0;  // of the array
  int steps = 0;           // that follow
  Value expected{};        // the answer, by the CPU engine's default pipeline
};

// How many blocks of a kernel fit on one multiprocessor, and what they take.
struct Occupancy {
  int block_size = 0;    // threads
  int registers = 0;     // of a thread
  int shared_bytes = 0;  // of a block
  int blocks_per_multiprocessor = 0;
  int max_threads_per_multiprocessor = 0;
};

// One pipeline, with one block size.
struct LadderStep {
  std::string pipeline{};
  std::string engine{};
  std::string device{};
  std::vector<double> kernel_us{};          // of each repeat: device clock, or wall time on the CPU
  std::optional<double> scratch_copy_us{};  // before each repeat, on average; absent if the pipeline needs none
  std::optional<double> read_gb_per_s{};    // of a kernel that only reads, between the repeats; absent on the CPU
  Value value{};                            // of the last repeat
  bool correct = false;                  // every repeat's; for float sums and products see LadderStep in reduced.proto
  bool same_bits = false;                // in every repeat
  std::optional<Occupancy> occupancy{};  // absent on the CPU, and if the pipeline chooses its launch itself
};

struct DeviceInfo {
  std::string name{};
  std::string engine{};
  std::string model{};
  std::int64_t memory_bytes = 0;
  int parallel_units = 0;  // threads, or multiprocessors
  std::string details{};
  int lanes = 0;  // reductions that can run at once
  int lanes_busy = 0;
  int queue_limit = 0;  // reductions that can wait for a lane
  int queue_length = 0;
  double fixed_us = 0;                 // calibration of engine "auto": an array in host memory takes
  double host_gb_per_s = 0;            // fixed_us + bytes / host_gb_per_s
  std::int64_t array_bytes = 0;        // that arrays take that are kept there
  std::int64_t array_bytes_limit = 0;  // that they may take together
};

struct OpInfo {
  std::string name{};
  std::string summary{};
  std::vector<std::string> dtypes{};  // that it is defined for
};

struct PipelineInfo {
  std::string name{};
  std::string engine{};
  std::string summary{};
  std::string origin{};
  bool default_of_engine = false;
  std::vector<std::string> ops{};  // that it supports, for these dtypes, where the op is defined for the dtype
  std::vector<std::string> dtypes{};
  bool fused = false;              // any ops together, NaNs left out if asked; else one op, NaNs propagate
  bool fixed_order = false;        // float sums, too, have the same bits run after run
  bool exact = false;              // has precision "exact"
  std::vector<int> block_sizes{};  // that ReduceOptions.block_size may choose from; none: no choice
};

// What is in use now.
struct Usage {
  int streams = 0;   // arrays that stream in
  int sessions = 0;  // open
  int arrays = 0;    // kept
  int regions = 0;   // shared by the processes of the server's machine
};

// A flag of the server and who said so: "default", "--NAME", "REDUCED_FLAG_NAME" or "FILE:LINE".
struct ServerFlag {
  std::string name{};
  std::string value{};  // empty, too, if it isn't told: of files with tokens or keys
  std::string source{};
};

// What a server says of its health.
enum class Health {
  kServing,
  kNotServing,  // it is going away, or a device failed: go elsewhere
  kUnknown,     // it doesn't know the service
};

// A GPU that the server doesn't use, and why.
struct LeftOutDevice {
  std::string name{};  // "cuda:1"
  std::string reason{};
};

struct ServerInfo {
  std::string version{};
  absl::Duration uptime{};
  std::int64_t max_message_bytes = 0;
  std::int64_t max_elements = 0;
  int max_ops = 0;
  std::int64_t max_ladder_bytes = 0;
  int max_streams = 0;           // at once
  int max_sessions = 0;          // open at once
  int max_session_requests = 0;  // of one session, under way at once; 0: the server has no sessions
  absl::Duration default_array_ttl{};
  absl::Duration max_array_ttl{};
  std::string region_socket{};  // where memory can be shared; empty: nowhere
  Usage usage{};
  std::vector<DeviceInfo> devices{};
  std::string no_cuda_reason{};  // empty if there is a CUDA engine
  std::vector<LeftOutDevice> left_out{};
  std::vector<OpInfo> ops{};
  std::vector<std::string> dtypes{};
  std::vector<PipelineInfo> pipelines{};
  std::vector<ServerFlag> flags{};  // by name
};

// The names this library knows. A server of another version may know fewer or more: see ServerInfo.
REDUCED_EXPORT std::vector<std::string> OpNames();
REDUCED_EXPORT std::vector<std::string> DTypeNames();
REDUCED_EXPORT std::vector<std::string> EngineNames();
REDUCED_EXPORT std::vector<std::string> PrecisionNames();
REDUCED_EXPORT std::vector<std::string> NanPolicyNames();
REDUCED_EXPORT std::vector<std::string> OverflowPolicyNames();
REDUCED_EXPORT std::vector<std::string> ViaNames();

// Bytes of one element. INVALID_ARGUMENT: no such dtype.
REDUCED_EXPORT absl::StatusOr<std::int64_t> DTypeBytes(const std::string& dtype);

// Bytes of a dense array. INVALID_ARGUMENT: no such dtype, a negative dimension, or more bytes than an int64 holds.
REDUCED_EXPORT absl::StatusOr<std::int64_t> ArrayBytes(const std::string& dtype, std::span<const std::int64_t> shape);

}  // namespace reduced::client

#endif  // REDUCED_TYPES_H_

// The plain structs of the client library: options, replies, resident arrays; with array.h, ladder.h and server_info.h.
#ifndef REDUCED_TYPES_H_
#define REDUCED_TYPES_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "reduced/array.h"
#include "reduced/host_array.h"
#include "reduced/ladder.h"
#include "reduced/server_info.h"

namespace reduced::client {

// Called as the elements of an array are sent, with the bytes sent so far and the bytes of the whole array.
using OnProgress = std::function<void(std::int64_t sent, std::int64_t total)>;

// Asked some 20 times a second, on the thread that waits for a call, whether to give up: true ends the call with
// CANCELLED, on the server, too. For programs that must react to signals while they wait.
using Interrupted = std::function<bool()>;

struct ReduceOptions {
  // The engine that reduces the array: one of EngineNames().
  std::string engine = "auto";
  // The device that reduces the array: a name of ServerInfo.devices, such as "cuda:1". Empty: any.
  std::string device{};
  // A name of ServerInfo.pipelines. Empty: the default pipeline of the engine.
  std::string pipeline{};
  // The precision of float sums: one of PrecisionNames(). Empty: exact, if the pipeline supports it.
  std::string precision{};
  // What NaNs do to the results: one of NanPolicyNames().
  std::string nan_policy = "propagate";
  // What happens if the sum or product of integers doesn't fit its type: one of OverflowPolicyNames(). "error": the op
  // has an error in the place of its value.
  std::string overflow_policy = "error";
  // var and std divide by n - ddof.
  std::int64_t ddof = 0;
  // Threads per block, one of PipelineInfo.block_sizes. 0: the pipeline's default.
  int block_size = 0;
  // How the elements of an ArrayView reach the server: one of ViaNames(). "inline": in one message, of less than 2 GiB
  // and at most ServerInfo.max_message_bytes. "stream": in chunks, of any size. "auto": whichever is faster for the
  // size of the array. Of Client::ReduceArray "auto" is never "stream".
  std::string via = "auto";
  // Overrides ClientOptions.timeout. It may be infinite.
  std::optional<absl::Duration> timeout{};
  // Fills in Reply.state.
  bool return_state = false;
  // False, with return_state only: Reply.results stays empty, and what has no results by itself, such as a part of an
  // array with nothing but NaNs that are omitted, is no error.
  bool results = true;
  // Called after each chunk of a stream, by Client::Reduce but not by ReduceAsync. Calls never overlap, but they come
  // from several threads if the array is sent in parts (ClientOptions.connections).
  OnProgress on_progress{};
  // Ends Reduce of a Client or a Session early, but not ReduceAsync, which returns a Call for that. Null: never.
  Interrupted interrupted{};
};

// What ran on the server.
struct Execution {
  std::string engine{};  // "cpu" or "cuda"
  std::string device{};  // a name of ServerInfo.devices
  std::string pipeline{};
  std::string precision{};
  std::string reason{};  // why this engine was chosen, for people
};

// How long each stage took on the server, in microseconds. A stage that did not happen is absent. reduced.proto says
// what each one covers.
struct Timing {
  std::optional<double> receive_us{};
  std::optional<double> queue_us{};
  std::optional<double> host_copy_us{};
  std::optional<double> host_to_device_us{};
  std::optional<double> scratch_copy_us{};
  std::optional<double> kernel_us{};
  std::optional<double> device_to_host_us{};
  std::optional<double> total_us{};
  std::int64_t bytes = 0;                   // of the array
  std::optional<double> kernel_gb_per_s{};  // 10^9 bytes per second
};

// The stages of Timing, in the order in which they happen, and the total. `name` is that of the field in the message
// Timing of reduced.proto, without "_us".
struct TimingStage {
  const char* name;
  std::optional<double> Timing::*us;
};
inline constexpr TimingStage kTimingStages[] = {{"receive", &Timing::receive_us},
                                                {"queue", &Timing::queue_us},
                                                {"host_copy", &Timing::host_copy_us},
                                                {"host_to_device", &Timing::host_to_device_us},
                                                {"scratch_copy", &Timing::scratch_copy_us},
                                                {"kernel", &Timing::kernel_us},
                                                {"device_to_host", &Timing::device_to_host_us},
                                                {"total", &Timing::total_us}};

struct Reply {
  // The source of the elements: "inline", "stream" or "session", if they were sent; "ring", if the request went through
  // the ring of a session; "resident" or "region", if the server had them.
  std::string via{};
  // One for each op, in the order of the request; none without ReduceOptions.results. If no op has a value, the call
  // fails instead.
  std::vector<Result> results{};
  // Instead of that, of each op whose answer is an array, such as quantile or topk: see ops.h.
  std::vector<ResultArray> arrays{};
  std::int64_t count = 0;  // elements in the array
  Execution execution{};
  Timing timing{};
  // The state of the array, for Client::Merge: a message State of reduced.proto, encoded. With an op of the
  // distribution (ops.h) it is for Client::MergeArrays: an ArraysState. Empty unless ReduceOptions.return_state is set.
  std::string state{};
  int attempts = 1;  // how often the request was sent: see ClientOptions.max_attempts

  // The value of an op; null: it was not asked for, or has an error, which `results` has.
  const Value* Find(std::string_view op) const { return FindResult(results, op); }
  // The array of an op, likewise.
  const HostArray* FindArray(std::string_view op) const { return FindResult(arrays, op); }
};

struct MergeOptions {
  bool return_state = false;                // fills in MergeReply.state
  bool results = true;                      // fills in MergeReply.results: see MergeStatesOptions.results
  std::optional<absl::Duration> timeout{};  // overrides ClientOptions.timeout
};

// The results of several parts of an array together.
struct MergeReply {
  std::vector<Result> results{};  // one for each op of the states, as in Reply; none without MergeOptions.results
  // Instead of that, of ops whose answers are arrays, as in Reply: by Allreduce of mpi.h.
  std::vector<ResultArray> arrays{};
  std::int64_t count = 0;  // elements in all parts
  std::string state{};     // of all parts together; empty unless MergeOptions.return_state is set

  // The value of an op; null: the states don't have it, or it has an error.
  const Value* Find(std::string_view op) const { return FindResult(results, op); }
  // The array of an op, likewise.
  const HostArray* FindArray(std::string_view op) const { return FindResult(arrays, op); }
};

// Where an array is stored, and for how long.
struct PutOptions {
  // A name of ServerInfo.devices. Empty: the GPU with the most room, or the CPU's memory if there is no GPU. "cuda:*":
  // cut along the first dimension over all GPUs, which reduce it at the same time: see ArrayInfo.shards.
  std::string device{};
  // At most 64 bytes. Whoever deletes the array gives the same owner. See Client::DefaultOwner.
  std::string owner{};
  // The array expires when it is idle for this long. Zero: ServerInfo.default_array_ttl.
  absl::Duration ttl{};
  std::optional<absl::Duration> timeout{};  // overrides ClientOptions.timeout
  OnProgress on_progress{};                 // called after each chunk, by Client::Put
  Interrupted interrupted{};                // ends Client::Put early; null: never
};

// A resident array: one that a server stores.
// The part of a sharded array that one device has: of the array's first dimension `indexes` from `first_index` on.
struct ArrayShard {
  std::string device{};
  std::int64_t first_index = 0;
  std::int64_t indexes = 0;
  std::int64_t count = 0;  // elements
};

struct ArrayInfo {
  std::string id{};  // can't be guessed: whoever knows it can use the array
  std::string dtype{};
  std::vector<std::int64_t> shape{};
  std::int64_t bytes = 0;
  std::string device{};
  std::string owner{};
  absl::Duration age{};         // since it was put
  absl::Duration expires_in{};  // unless it is used before
  int users = 0;                // reductions that are reading it
  // In the order of their elements, one for each GPU, also those that have none; none: the array is not sharded.
  std::vector<ArrayShard> shards{};
};

}  // namespace reduced::client

#endif  // REDUCED_TYPES_H_

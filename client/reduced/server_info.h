// The description of a server, as Client::GetServerInfo returns it, and its health.
#ifndef REDUCED_SERVER_INFO_H_
#define REDUCED_SERVER_INFO_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace reduced::client {

struct DeviceInfo {
  std::string name{};
  std::string engine{};
  std::string model{};
  std::int64_t memory_bytes = 0;
  int parallel_units = 0;  // threads, or multiprocessors
  std::string details{};
  int lanes = 0;  // reductions that can run at the same time
  int lanes_busy = 0;
  int queue_limit = 0;  // reductions that can wait for a lane
  int queue_length = 0;
  // The calibration of engine "auto": an array in host memory takes fixed_us + bytes / host_gb_per_s.
  double fixed_us = 0;
  double host_gb_per_s = 0;
  std::int64_t array_bytes = 0;        // of the resident arrays on the device
  std::int64_t array_bytes_limit = 0;  // that they may use together
  // Since the server started: reductions that the device has answered, and the bytes of their arrays.
  std::int64_t reductions = 0;
  std::int64_t reduced_bytes = 0;
  // How a GPU reaches the memory of the server's other GPUs: "NVLink x18, peer access: cuda:1, cuda:2". Empty: there is
  // no other, or the driver does not tell.
  std::vector<std::string> links{};
};

struct OpInfo {
  std::string name{};
  std::string summary{};
  std::vector<std::string> dtypes{};  // that the op is defined for
  std::string usage{};                // how it is written with its parameters: "topk(K)"; empty: it has none
};

struct PipelineInfo {
  std::string name{};
  std::string engine{};
  std::string summary{};
  std::string origin{};
  bool default_of_engine = false;
  std::vector<std::string> ops{};  // that it supports for these dtypes, where the op is defined for the dtype
  std::vector<std::string> dtypes{};
  bool fused = false;              // it computes any ops together and can omit NaNs; else one op, NaNs propagate
  bool fixed_order = false;        // float sums have the same bits in every run, too
  bool exact = false;              // it supports precision "exact"
  std::vector<int> block_sizes{};  // that ReduceOptions.block_size may choose from; none: there is no choice
};

// What is in use now.
struct Usage {
  int streams = 0;   // arrays that are being streamed
  int sessions = 0;  // open sessions
  int arrays = 0;    // resident arrays
  int regions = 0;   // shared by the processes of the server's machine
  int rings = 0;     // open, at most one for each session
};

// A flag of the server.
struct ServerFlag {
  std::string name{};
  std::string value{};   // empty, too, for flags that name files with tokens or keys
  std::string source{};  // what set it: "default", "--NAME", "REDUCED_FLAG_NAME" or "FILE:LINE"
};

// The health of a server, as grpc.health.v1 reports it.
enum class Health {
  kServing,
  kNotServing,  // the server is draining or a device failed: use another one
  kUnknown,     // the server doesn't know the service
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
  std::int64_t max_result_bytes = 0;  // of one request along axes, unless they are kept; 0: the server has none
  int max_streams = 0;
  int max_sessions = 0;
  std::int64_t max_ring_bytes = 0;        // of the arena of one session's ring; 0: the server has no rings
  int max_operands = 0;                   // of one ReduceMany; 0: the server has none
  int max_session_requests = 0;           // in flight in one session; 0: the server has no sessions
  absl::Duration session_idle_timeout{};  // after which a session without a request ends; 0: never
  absl::Duration default_array_ttl{};
  absl::Duration max_array_ttl{};
  std::string region_socket{};  // the path of the Unix socket for regions; empty: there is none
  Usage usage{};
  std::vector<DeviceInfo> devices{};
  std::string no_cuda_reason{};  // empty if there is a CUDA engine
  std::vector<LeftOutDevice> left_out{};
  std::vector<OpInfo> ops{};
  std::vector<std::string> dtypes{};
  std::vector<PipelineInfo> pipelines{};
  std::vector<ServerFlag> flags{};  // by name
};

}  // namespace reduced::client

#endif  // REDUCED_SERVER_INFO_H_

// The kinds of calls: their names, and what each must pass and holds. A new RPC is a row here.
#ifndef REDUCED_SERVER_CONFIG_RPC_H_
#define REDUCED_SERVER_CONFIG_RPC_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace reduced::server {

// A session is a call, and so is each of its requests.
enum class Rpc : std::uint8_t {
  kReduce,
  kReduceMany,
  kReduceStream,
  kSession,
  kSessionReduce,
  kPutArray,
  kListArrays,
  kGetArray,
  kDeleteArray,
  kMerge,
  kLadder,
  kGetServerInfo,
};

// Limited resources that calls hold.
enum class Slot : std::uint8_t { kNone, kStream, kSession };

// Which budget pays for the memory of a call.
enum class Pays : std::uint8_t {
  kBySize,  // that of small requests, or that of large ones
  kSmall,   // that of small requests: the call asks about memory, or gives it back
};

struct RpcRow {
  Rpc rpc;
  std::string_view name;   // in metrics and logs
  bool reduction = false;  // each call is one reduction
  // Steps of admission: see calls/admission.h.
  bool gate = false;   // refused while the server drains, which waits for those that are in progress
  bool quota = false;  // counts as a request of its identity
  Slot slot = Slot::kNone;
  Pays pays = Pays::kBySize;
};
inline constexpr RpcRow kRpcs[] = {
    {.rpc = Rpc::kReduce, .name = "reduce", .reduction = true, .gate = true, .quota = true},
    {.rpc = Rpc::kReduceMany, .name = "reduce_many", .reduction = true, .gate = true, .quota = true},
    {.rpc = Rpc::kReduceStream,
     .name = "reduce_stream",
     .reduction = true,
     .gate = true,
     .quota = true,
     .slot = Slot::kStream},
    // An open session is idle; each of its requests is admitted.
    {.rpc = Rpc::kSession, .name = "session", .slot = Slot::kSession},
    {.rpc = Rpc::kSessionReduce, .name = "session_reduce", .reduction = true, .gate = true, .quota = true},
    {.rpc = Rpc::kPutArray, .name = "put_array", .gate = true, .quota = true, .slot = Slot::kStream},
    // Clients list and delete their arrays while the server drains, too.
    {.rpc = Rpc::kListArrays, .name = "list_arrays", .pays = Pays::kSmall},
    {.rpc = Rpc::kGetArray, .name = "get_array", .gate = true, .quota = true, .slot = Slot::kStream},
    {.rpc = Rpc::kDeleteArray, .name = "delete_array", .pays = Pays::kSmall},
    {.rpc = Rpc::kMerge, .name = "merge", .gate = true, .quota = true},
    {.rpc = Rpc::kLadder, .name = "ladder", .gate = true, .quota = true},
    {.rpc = Rpc::kGetServerInfo, .name = "get_server_info", .pays = Pays::kSmall},
};

static_assert(
    [] {
      for (std::size_t i = 0; i < std::size(kRpcs); ++i) {
        if (kRpcs[i].rpc != static_cast<Rpc>(i)) return false;
      }
      return true;
    }(),
    "the rows are in the order of the enum");

constexpr const RpcRow& RowOf(Rpc rpc) { return kRpcs[static_cast<std::size_t>(rpc)]; }

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CONFIG_RPC_H_

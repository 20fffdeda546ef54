// ReduceMany: which operands go together, by whatever way, and whose error an error is.
#ifndef REDUCED_CLIENT_LIB_MANY_H_
#define REDUCED_CLIENT_LIB_MANY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "reduced/client.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced::client {

// How operands reach a server.
struct ManyRoute {
  const std::string& server;  // the address that the user gave
  absl::Duration timeout{};   // of requests without one
  // What one request carries: more of them would not be faster, and any server takes as much by default.
  std::int64_t bytes = std::int64_t{4} << 20;
  int operands = 1024;
  // An array in memory with more bytes goes by itself, as one does that Client::Reduce would stream.
  std::int64_t most_bytes_together = bytes;
  // Sends a request, which it may take. `stored`: the server has one of its operands. The reply has `attempts` and
  // `via`, which may be empty: then that of each operand is its source.
  absl::FunctionRef<absl::StatusOr<Reply>(v1::ReduceManyRequest& request, bool stored, const ReduceOptions& options,
                                          v1::ReduceManyResponse* response)>
      send;
  // Reduces an array that goes by itself.
  absl::FunctionRef<absl::StatusOr<Reply>(const ArrayView& array, const ReduceOptions& options)> alone;
};

// As Client::ReduceMany.
absl::StatusOr<std::vector<Reply>> ReduceManyBy(const ManyRoute& route, const std::vector<Operand>& operands,
                                                const std::vector<std::string>& ops, const ReduceOptions& options);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_MANY_H_

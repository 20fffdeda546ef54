// Reduces arrays in this process, by the CPU engine that a server has: the same answers, bit for bit, without a server.
//
//   reduced::client::LocalEngine engine;
//   auto reply = engine.Reduce(ArrayView::Of(samples), {"sum", "argmax"});
#ifndef REDUCED_CLIENT_LOCAL_LOCAL_H_
#define REDUCED_CLIENT_LOCAL_LOCAL_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/engine/engine.h"
#include "reduced/result_array.h"
#include "reduced/server_info.h"
#include "reduced/types.h"

namespace reduced::client {

// An engine with a thread for each core that this process may use. Thread-safe. After a fork() the child must make
// another one, and must not destroy this.
class LocalEngine {
 public:
  LocalEngine();  // takes some 50 ms: the engine measures itself

  // As Client::Reduce, of an array in memory where it lies; one with a reader is read piece by piece, in order, within
  // this call. Nothing is sent, and Reply.via is "local". Of the options, `via` has no meaning; the timeout is infinite
  // if it is absent; `on_progress` is called as an array with a reader is read. Errors are those of a server, and of
  // the reader; FAILED_PRECONDITION: the engine, device or pipeline is another than the CPU engine's.
  absl::StatusOr<Reply> Reduce(const ArrayView& array, const std::vector<std::string>& ops,
                               const ReduceOptions& options = {}) const;

  // As Client::ReduceMany, of arrays as Reduce takes them. Small ones do not each wait for another thread.
  absl::StatusOr<std::vector<Reply>> ReduceMany(const std::vector<ArrayView>& arrays,
                                                const std::vector<std::string>& ops,
                                                const ReduceOptions& options = {}) const;

  // As Client::ReduceArray of an array in memory. Of PartitionOptions, `keep` and `write_to` must
  // be absent: there is no server.
  absl::StatusOr<ArrayReply> ReduceArray(const ArrayView& array, const std::vector<std::string>& ops,
                                         const PartitionOptions& partition, const ReduceOptions& options = {}) const;

  // What a server says of the same engine: its version, the device, ops, dtypes and pipelines. The rest is absent.
  ServerInfo Info() const;

 private:
  struct Reduced;
  // With an op of the distribution. An array with a reader is read into memory, unless it is there.
  absl::StatusOr<Reply> ReduceWhole(const ArrayView& array, const std::vector<std::string>& ops,
                                    const ReduceOptions& options) const;
  absl::StatusOr<Reduced> Run(const ArrayView& array, const std::vector<std::string>& ops,
                              const ReduceOptions& options) const;

  const std::unique_ptr<Engine> engine_;
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LOCAL_LOCAL_H_

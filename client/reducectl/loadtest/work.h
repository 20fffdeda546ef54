// What a load is made of: connections, the arrays that are asked about, and how one request is made.
#ifndef REDUCED_CLIENT_REDUCECTL_LOADTEST_WORK_H_
#define REDUCED_CLIENT_REDUCECTL_LOADTEST_WORK_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/reducectl/loadtest/device.h"
#include "client/reducectl/loadtest/options.h"
#include "client/reducectl/loadtest/reference.h"
#include "reduced/client.h"

namespace reduced::client {

struct LoadConnection {
  std::unique_ptr<Client> client{};
  std::unique_ptr<Session> session{};  // null: no kind of request goes by one
};

// One array, and what is asked of it. Made before the clock starts, so that a request costs nothing but itself.
struct Item {
  ArrayView view{};
  std::vector<std::string> ops{};
  ReduceOptions options{};
  std::string via{};                    // one of kWays
  std::optional<RemoteArray> remote{};  // if nothing is sent
  std::int64_t bytes = 0;
  std::vector<Answer> expected{};  // empty if answers aren't verified
};

struct WorkOptions {
  std::uint64_t seed = 1;
  bool verify = true;
  bool include_fill = false;
  int connections = 1;
  ClientOptions client{};  // of each
};

// Everything that is asked, over some connections. Thread-safe once it is made; destroyed after what uses it, it takes
// the arrays off the server.
class Work {
 public:
  // INVALID_ARGUMENT: what the kinds say fits no array or op. Else the server's word.
  static absl::StatusOr<std::unique_ptr<Work>> Prepare(const std::vector<Kind>& kinds, const WorkOptions& options);

  // Asks once about each array, over each connection once at least; verifies the answers. DATA_LOSS: one is wrong.
  absl::Status Probe();

  const std::vector<Item>& items() const { return items_; }
  // The n-th request: items in the proportion of their kinds' weights, shuffled by the seed.
  std::size_t Draw(std::uint64_t n) const { return deck_[n % deck_.size()]; }
  LoadConnection& connection(std::size_t slot) { return connections_[slot % connections_.size()]; }
  std::int64_t max_bytes() const { return max_bytes_; }
  const WorkOptions& options() const { return options_; }

 private:
  explicit Work(WorkOptions options) : options_(std::move(options)) {}
  absl::Status Connect(const std::vector<Kind>& kinds);
  absl::Status AddItems(const Kind& kind, std::uint64_t* random);
  absl::Status MakeArrays();
  void Shuffle(const std::vector<Kind>& kinds, const std::vector<std::size_t>& first, std::uint64_t random);

  const WorkOptions options_;
  std::vector<LoadConnection> connections_;
  std::map<std::string, SharedBuffer> elements_;  // by dtype; each array is a stretch of it
  std::vector<Region> regions_;
  std::map<std::string, std::unique_ptr<DeviceBuffer>> device_elements_;  // by dtype, a copy, if a kind goes by ipc
  std::vector<ResidentArray> kept_;
  std::vector<Item> items_;
  std::vector<std::uint32_t> deck_;
  std::int64_t max_bytes_ = 0;
};

// Makes requests, one at a time. Outlived by the Work. Thread-compatible.
class Caller {
 public:
  static absl::StatusOr<std::unique_ptr<Caller>> Make(Work& work, std::size_t slot);

  // Writes the elements where they are sent from, or read: what a producer would do. Nothing unless
  // WorkOptions.include_fill.
  void Fill(std::size_t item);
  absl::StatusOr<Reply> Reduce(std::size_t item);
  void ReduceAsync(std::size_t item, Client::Done done);

 private:
  Caller(Work& work, std::size_t slot) : work_(work), connection_(work.connection(slot)) {}

  Work& work_;
  LoadConnection& connection_;
  std::optional<SharedBuffer> buffer_;  // with include_fill: this caller's own array
  std::optional<Region> region_;
  std::unique_ptr<DeviceBuffer> device_buffer_;  // likewise
  absl::Status filled_{};                        // into it
  std::vector<ArrayView> views_;                 // of each item, likewise
  std::vector<RemoteArray> remotes_;
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_LOADTEST_WORK_H_

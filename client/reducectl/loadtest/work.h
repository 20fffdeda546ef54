// The connections, arrays and requests of a load.
#ifndef REDUCED_CLIENT_REDUCECTL_LOADTEST_WORK_H_
#define REDUCED_CLIENT_REDUCECTL_LOADTEST_WORK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
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
  // By ViaRow.session, those that some kind of request uses.
  std::map<std::string, std::unique_ptr<Session>, std::less<>> sessions{};
};

// One array and the request for it. Prepared before the measurement, so that only the requests take time.
struct Item {
  ArrayView view{};
  std::vector<std::string> ops{};
  ReduceOptions options{};
  const ViaRow* via = &kVias[0];
  std::optional<RemoteArray> remote{};  // if the server reads the array where it is
  std::int64_t bytes = 0;
  std::vector<RightAnswer> expected{};  // empty if results aren't verified
};

struct WorkOptions {
  std::uint64_t seed = 1;
  bool verify = true;
  bool include_fill = false;
  int connections = 1;
  ClientOptions client{};  // of each connection
};

// All requests of a load and its connections. Thread-safe after Prepare. It must outlive the Callers. The destructor
// deletes the resident arrays.
class Work {
 public:
  // INVALID_ARGUMENT: a size doesn't fit a dtype. Other errors are those of the server.
  static absl::StatusOr<std::unique_ptr<Work>> Prepare(const std::vector<Kind>& kinds, const WorkOptions& options);

  // Sends one request for each array, and at least one over each connection, and verifies the results. DATA_LOSS: one
  // is wrong.
  absl::Status Probe();

  const std::vector<Item>& items() const { return items_; }
  // The item of the n-th request. Items are used in proportion to the weights of their kinds, shuffled by the seed.
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
  std::map<std::string, SharedBuffer> elements_;  // by dtype; each array is a part of it
  std::vector<Region> regions_;
  std::map<std::string, std::unique_ptr<DeviceBuffer>> device_elements_;  // by dtype, a copy for device_region
  std::vector<ResidentArray> kept_;
  std::vector<Item> items_;
  std::vector<std::uint32_t> deck_;
  std::int64_t max_bytes_ = 0;
};

// Sends requests, one at a time. Thread-compatible.
class Caller {
 public:
  static absl::StatusOr<std::unique_ptr<Caller>> Make(Work& work, std::size_t slot);

  // Writes the elements to where they are sent from or read, as a producer would. Does nothing unless
  // WorkOptions.include_fill is set.
  void Fill(std::size_t item);
  absl::StatusOr<Reply> Reduce(std::size_t item);
  void ReduceAsync(std::size_t item, Client::Done done);

 private:
  Caller(Work& work, std::size_t slot) : work_(work), connection_(work.connection(slot)) {}

  Session* SessionOf(const Item& item) const;
  template <class Array>
  absl::StatusOr<Reply> Send(const Item& item, const Array& array);
  template <class Array>
  void SendAsync(const Item& item, const Array& array, Client::Done done);

  Work& work_;
  LoadConnection& connection_;
  std::optional<SharedBuffer> buffer_;  // with include_fill: an array of its own
  std::optional<Region> region_;
  std::unique_ptr<DeviceBuffer> device_buffer_;  // likewise
  absl::Status filled_{};                        // of the device buffer
  std::vector<ArrayView> views_;                 // of each item in the buffer
  std::vector<RemoteArray> remotes_;
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_LOADTEST_WORK_H_

// A complete server: engines, service, listeners, health, metrics. main() runs one, and tests start them in-process.
//
//   1. Start: checks the options, starts the engines and checks an answer of each, opens the region socket, binds every
//      address, serves, sets health to SERVING, writes the ready file.
//   2. Withdraw: health is NOT_SERVING. Everything else goes on, so that clients can move without losing a request.
//   3. Dismiss: health is NOT_SERVING, the listeners are closed, and every connection gets a GOAWAY, so that clients
//      make their next calls elsewhere. What still arrives is served; sessions end once they have answered what they
//      took.
//   4. Drain: health is NOT_SERVING, new requests are refused with UNAVAILABLE, running requests go on.
//   5. Shutdown: dismisses, waits until no call has run for a moment, or for the timeout, drains, ends the connections,
//      so that gRPC's own shutdown has no call left to answer, removes the ready file, closes the regions. Metrics are
//      served to the end.
//
// Connections take this way: a socket of ListenSockets, the thread of the Acceptor, gRPC.
//
// A server has the services reduced.v1.Reduction, grpc.health.v1.Health (for "" and "reduced.v1.Reduction") and
// reflection. ServerOptions.security determines who may connect and call: see security.h.
#ifndef REDUCED_SERVER_SERVER_H_
#define REDUCED_SERVER_SERVER_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/server.h"
#include "kernels/engine/engines.h"
#include "kernels/system/nvml.h"
#include "server/acceptor.h"
#include "server/calls/backend.h"
#include "server/calls/service.h"
#include "server/config/options.h"
#include "server/observe/http_server.h"
#include "server/security/security.h"

namespace reduced::server {

// Thread-safe except Shutdown, which one thread calls, and after which no other method may be called.
class Server {
 public:
  // INVALID_ARGUMENT: an option, or a file that it names. FAILED_PRECONDITION: an address that can't be bound, or a
  // ready file that can't be written; or several MIG instances. INTERNAL: an engine's answer is wrong. Or an error of
  // Engines::Start.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options);
  // With engines that have been started, and that it does not check; options.engines is not used.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options, std::unique_ptr<Engines> engines);

  ~Server();  // Shutdown without waiting, unless it was called
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // The addresses, in the order and spelling of options.listen, with the ports that were bound.
  const std::vector<std::string>& addresses() const { return addresses_; }
  const Engines& engines() const { return *engines_; }
  // The address of metrics over HTTP, with the port that was bound; empty: none.
  std::string metrics_address() const { return http_ == nullptr ? "" : http_->address(); }

  // Checks that every engine's device works. UNAVAILABLE: one failed, permanently; the server has drained, and its
  // process should end. To be called several times a second.
  absl::Status CheckEngines();

  // Reads certificates and tokens again, now instead of after credentials_refresh, on another thread.
  void Reload() { security_->Reload(); }
  // Sets health to NOT_SERVING while clients cannot connect: see Acceptor::Accepts. To be called several times a
  // second.
  void CheckListeners();
  // No request is in progress. An open session without requests is idle, too.
  bool IsIdle() { return backend_.gate.IsEmpty(); }

  void Withdraw();
  void Dismiss();
  void Drain();
  void Shutdown(absl::Duration timeout);

 private:
  Server(const ServerOptions& options, std::unique_ptr<Engines> engines, std::unique_ptr<Security> security);
  absl::Status Listen();
  Snapshot TakeSnapshot(Detail detail) const;
  // Loads NVML and finds the links between the GPUs. Before the first call.
  void LookAtGpus();
  absl::Status ListenForRegions();
  absl::Status ListenForMetrics();
  absl::Status WriteReadyFile();

  // Destroyed in reverse order: gRPC ends its calls before the service and the engines that they use.
  const ServerOptions options_;
  const std::unique_ptr<Engines> engines_;
  const std::unique_ptr<Security> security_;
  Backend backend_;
  const std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<grpc::Server> grpc_;
  std::unique_ptr<Acceptor> acceptor_;
  std::atomic<bool> accepts_ = true;
  std::vector<std::string> addresses_;
  bool ready_file_written_ = false;
  std::atomic<bool> withdrawn_ = false;  // see Withdraw()
  std::unique_ptr<Nvml> nvml_;           // null: there is no NVML, or no GPU
  std::unique_ptr<HttpServer> http_;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_SERVER_H_

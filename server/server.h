// A whole server in one object: engines, service, listeners, health. What main() runs, and what tests start in-process.
//
//   1. Start: checks the options, starts the engines, has each reduce something known, opens the region socket, binds
//      every address, serves, says so in the health service, writes the ready file.
//   2. Withdraw: health says NOT_SERVING. All else goes on, so that clients can go elsewhere without losing a request.
//   3. Drain: health says NOT_SERVING, new reductions are refused with UNAVAILABLE, what runs goes on.
//   4. Shutdown: drains, waits for what runs, cancels what still does after the timeout, closes the listeners, removes
//      the ready file, lets go of regions. Metrics are served to the end.
//
// Besides reduced.v1.Reduction a server has grpc.health.v1.Health (for "" and "reduced.v1.Reduction") and reflection.
// Who may connect and call is up to ServerOptions.security: see security.h.
#ifndef REDUCED_SERVER_SERVER_H_
#define REDUCED_SERVER_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/server.h"
#include "kernels/engine/engines.h"
#include "kernels/system/nvml.h"
#include "server/calls/backend.h"
#include "server/calls/service.h"
#include "server/config/options.h"
#include "server/observe/http_server.h"
#include "server/security/security.h"

namespace reduced::server {

// Thread-safe, but for Shutdown: one thread calls it, and from then on nobody anything else.
class Server {
 public:
  // INVALID_ARGUMENT: an option, or a file that it names. FAILED_PRECONDITION: an address that can't be bound, a ready
  // file that can't be written. INTERNAL: an engine's answer is wrong. Else what Engines::Start says.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options);
  // With engines that are already there, and taken to work; options.engines is left alone.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options, std::unique_ptr<Engines> engines);

  ~Server();  // Shutdown with no time to wait, if it wasn't yet
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Where it listens, in the order and spelling of options.listen, with the ports that were bound.
  const std::vector<std::string>& addresses() const { return addresses_; }
  const Engines& engines() const { return *engines_; }
  // Where metrics are served over HTTP, with the port that was bound; empty: nowhere.
  std::string metrics_address() const { return http_ == nullptr ? "" : http_->address(); }

  // Whether every engine's device still works. UNAVAILABLE: one doesn't, for good; the server has drained, and its
  // process should end. To be asked several times a second.
  absl::Status CheckEngines();

  void Withdraw();
  void Drain();
  void Shutdown(absl::Duration timeout);

 private:
  Server(const ServerOptions& options, std::unique_ptr<Engines> engines, std::unique_ptr<Security> security);
  absl::Status Listen();
  absl::Status ListenForRegions();
  absl::Status ListenForMetrics();
  absl::Status WriteReadyFile();

  // Destroyed in reverse: gRPC ends its calls before the service and the engines that they use go.
  const ServerOptions options_;
  const std::unique_ptr<Engines> engines_;
  const std::unique_ptr<Security> security_;
  Backend backend_;
  ReductionService service_;
  std::unique_ptr<grpc::Server> grpc_;
  std::vector<std::string> addresses_;
  bool ready_file_written_ = false;
  std::unique_ptr<Nvml> nvml_;  // null: there is none, or no GPU to ask it about
  std::unique_ptr<HttpServer> http_;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_SERVER_H_

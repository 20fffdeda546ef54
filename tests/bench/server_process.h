// A server in a process of its own, as clients have it: gRPC has one set of pollers a process, which a client in the
// server's would share.
#ifndef REDUCED_TESTS_BENCH_SERVER_PROCESS_H_
#define REDUCED_TESTS_BENCH_SERVER_PROCESS_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "grpcpp/grpcpp.h"
#include "kernels/engine/engines.h"
#include "server/calls/service.h"

namespace reduced::server {

class ServerProcess {
 public:
  // Forks: to be made before the process has a second thread. `start` runs in the child, starts a server that listens
  // at the address and returns what keeps it; it ends the process if it can't. Returns when it serves; ends the process
  // if it doesn't.
  explicit ServerProcess(const std::function<std::shared_ptr<void>(const std::string& address)>& start);
  // Ends the child and waits for it. It ends, too, when this process does.
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // "unix:PATH"
  const std::string& address() const { return address_; }
  pid_t process() const { return process_; }

 private:
  std::string folder_;
  std::string address_;
  pid_t process_ = -1;
  int alive_ = -1;  // a pipe that the child reads: it ends when this end is closed
};

// What a bench's child serves: reductions, and beside them, on the same server, the bench's own baseline; null: none.
class BenchServer {
 public:
  // Ends the process if it can't listen at `address` or has no engine.
  BenchServer(const std::string& address, std::unique_ptr<grpc::Service> beside, const EngineOptions& engines = {});

 private:
  std::unique_ptr<Engines> engines_;
  std::optional<Backend> backend_;
  std::unique_ptr<grpc::Service> reduction_;
  const std::unique_ptr<grpc::Service> beside_;
  std::unique_ptr<grpc::Server> server_;  // last: it calls the services
};

}  // namespace reduced::server

#endif  // REDUCED_TESTS_BENCH_SERVER_PROCESS_H_

#include "tests/bench/server_process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "grpcpp/resource_quota.h"

namespace reduced::server {

ServerProcess::ServerProcess(const std::function<std::shared_ptr<void>(const std::string& address)>& start) {
  std::string folder = std::filesystem::temp_directory_path() / "reduced_bench_XXXXXX";
  int alive[2];
  int serving[2];
  if (mkdtemp(folder.data()) == nullptr || pipe(alive) != 0 || pipe(serving) != 0) {
    std::perror("the bench's server");
    std::exit(EXIT_FAILURE);
  }
  folder_ = folder;
  address_ = "unix:" + folder_ + "/socket";
  process_ = fork();
  if (process_ < 0) {
    std::perror("fork");
    std::exit(EXIT_FAILURE);
  }
  char byte = 0;
  if (process_ == 0) {
    close(alive[1]);
    close(serving[0]);
    const std::shared_ptr<void> server = start(address_);
    if (write(serving[1], &byte, 1) != 1) _exit(EXIT_FAILURE);
    while (read(alive[0], &byte, 1) > 0) {
    }
    _exit(EXIT_SUCCESS);  // with all that it has: nobody waits for an answer
  }
  close(alive[0]);
  close(serving[1]);
  alive_ = alive[1];
  const bool serves = read(serving[0], &byte, 1) == 1;
  close(serving[0]);
  if (!serves) {
    std::fprintf(stderr, "the bench's server did not start\n");
    std::exit(EXIT_FAILURE);
  }
}

ServerProcess::~ServerProcess() {
  close(alive_);
  waitpid(process_, nullptr, 0);
  std::filesystem::remove_all(folder_);
}

BenchServer::BenchServer(const std::string& address, std::unique_ptr<grpc::Service> beside,
                         const EngineOptions& engines)
    : beside_(std::move(beside)) {
  absl::StatusOr<std::unique_ptr<Engines>> started = Engines::Start(engines);
  if (!started.ok()) {
    std::fprintf(stderr, "the bench's engines: %s\n", std::string(started.status().message()).c_str());
    _exit(EXIT_FAILURE);
  }
  engines_ = *std::move(started);
  backend_.emplace(*engines_);
  reduction_ = MakeService(*backend_);
  grpc::ServerBuilder builder;
  builder.RegisterService(reduction_.get());
  if (beside_ != nullptr) builder.RegisterService(beside_.get());
  builder.SetMaxReceiveMessageSize(static_cast<int>(backend_->limits.max_message_bytes));
  builder.SetResourceQuota(grpc::ResourceQuota("bench").Resize(std::size_t{1} << 30));  // as Server does
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    std::fprintf(stderr, "the bench's server can't listen on %s\n", address.c_str());
    _exit(EXIT_FAILURE);
  }
}

}  // namespace reduced::server

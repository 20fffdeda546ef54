#include "server/server.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "grpc/grpc.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/server_builder.h"
#include "reduced/v1/reduced.grpc.pb.h"
#include "server/config/listener.h"
#include "server/observe/pages.h"
#include "server/self_check.h"
#include "spdlog/spdlog.h"

namespace reduced::server {
namespace {

// After the last request: time for health watchers to be notified, and for late responses to leave.
constexpr absl::Duration kCloseTimeout = absl::Milliseconds(200);

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options) {
  const absl::Status valid = ValidateOptions(options);
  if (!valid.ok()) return valid;
  absl::StatusOr<std::unique_ptr<Engines>> engines = Engines::Start(options.engines);
  if (!engines.ok()) return engines.status();
  const absl::Status checked = SelfCheck(**engines);
  if (!checked.ok()) return checked;
  return Start(options, *std::move(engines));
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options, std::unique_ptr<Engines> engines) {
  absl::Status status = ValidateOptions(options);
  if (!status.ok()) return status;
  absl::StatusOr<std::unique_ptr<Security>> security = Security::Load(options.security);
  if (!security.ok()) return security.status();
  auto server = std::unique_ptr<Server>(new Server(options, std::move(engines), *std::move(security)));
  {
    const SocketMode mode(options.unix_socket_mode);
    const absl::Status regions = server->ListenForRegions();  // first: a client that is served may use it at once
    status = server->Listen();
    status.Update(regions);
  }
  if (status.ok()) status = server->ListenForMetrics();
  if (status.ok()) status = server->WriteReadyFile();
  if (!status.ok()) return status;
  for (const auto& engine : server->engines_->all()) {
    const DeviceInfo device = engine->info();
    spdlog::info("engine {}: {} ({}), {} lanes", device.name, device.model, device.details, device.lanes);
  }
  for (const LeftOutDevice& device : server->engines_->left_out()) {
    spdlog::warn("{} is left out: {}", device.name, device.reason);
  }
  if (!server->engines_->no_cuda_reason().empty()) spdlog::info("no CUDA: {}", server->engines_->no_cuda_reason());
  if (!server->backend_.regions.path().empty()) {
    spdlog::info("region socket: {}", server->backend_.regions.path());
  }
  if (server->http_ != nullptr) {
    spdlog::info("{} at http://{}/", options.status_page ? "metrics and the status page" : "metrics",
                 server->metrics_address());
  }
  spdlog::info("reduced {} serves on {}", REDUCED_VERSION, absl::StrJoin(server->addresses_, ", "));
  return server;
}

Server::Server(const ServerOptions& options, std::unique_ptr<Engines> engines, std::unique_ptr<Security> security)
    : options_(options),
      engines_(std::move(engines)),
      security_(std::move(security)),
      backend_(*engines_, options_.limits, options_.regions, security_->has_identities() ? security_.get() : nullptr,
               ObserverOptionsOf(options_)),
      service_(MakeService(backend_)) {
  backend_.flags = options_.flags;
  security_->SetRefusalListener([this](absl::string_view method, const absl::Status& why) {
    backend_.observer.Refused({method.data(), method.size()}, why);
  });
}

Server::~Server() { Shutdown(absl::ZeroDuration()); }

absl::Status Server::Listen() {
  // gRPC frees a call a moment after its response has left. If gRPC's last user ends in between, gRPC's clean-up waits
  // 10 seconds for that call. This user never ends, so that a drained server ends at once.
  [[maybe_unused]] static const bool kept = (grpc_init(), true);

  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();

  grpc::ServerBuilder builder;
  builder.RegisterService(service_.get());
  builder.SetMaxReceiveMessageSize(static_cast<int>(options_.limits.max_message_bytes));
  builder.SetResourceQuota(
      grpc::ResourceQuota("reduced").Resize(static_cast<std::size_t>(options_.memory_quota_bytes)));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options_.max_concurrent_streams);
  // Otherwise two servers could bind one port and share its connections.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);

  std::vector<ListenAddress> listen;
  for (const std::string& text : options_.listen) {
    listen.push_back(*ParseListenAddress(text));  // ValidateOptions has checked it
  }
  const absl::StatusOr<SocketFolderLock> lock = SocketFolderLock::Take(listen);  // until all addresses are bound
  if (!lock.ok()) return lock.status();
  for (const ListenAddress& address : listen) {
    absl::Status unused = CheckUnixPath(address);
    if (!unused.ok()) return unused;
  }
  std::vector<int> ports(listen.size(), 0);
  for (std::size_t i = 0; i < listen.size(); ++i) {
    auto credentials = security_->CredentialsFor(listen[i]);
    if (!credentials.ok()) return credentials.status();
    builder.AddListeningPort(listen[i].text, *std::move(credentials), &ports[i]);
  }
  grpc_ = builder.BuildAndStart();
  for (std::size_t i = 0; i < listen.size(); ++i) {
    if (ports[i] <= 0) return WhyNotBound(listen[i]);  // gRPC stops at the first address that it can't bind
    addresses_.push_back(BoundAddress(listen[i], ports[i]));
  }
  if (grpc_ == nullptr) return absl::InternalError("gRPC could not start the server");
  grpc_->GetHealthCheckService()->SetServingStatus(v1::Reduction::service_full_name(), true);
  return absl::OkStatus();
}

absl::Status Server::ListenForRegions() {
  std::string path = options_.region_socket;
  if (path == "auto") {
    path.clear();
    for (const std::string& text : options_.listen) {
      const ListenAddress address = *ParseListenAddress(text);
      if (address.unix_path.empty()) continue;
      path = absl::StrCat(address.unix_path, ".regions");
      break;
    }
  }
  return path.empty() ? absl::OkStatus() : backend_.regions.Start(path);
}

absl::Status Server::ListenForMetrics() {
  if (options_.metrics_listen.empty()) return absl::OkStatus();
  for (const auto& engine : engines_->all()) {
    if (engine->kind() != EngineKind::kCuda || nvml_ != nullptr) continue;
    absl::StatusOr<std::unique_ptr<Nvml>> nvml = Nvml::Load();
    if (nvml.ok()) {
      nvml_ = *std::move(nvml);
    } else {
      spdlog::warn("NVML can't be used: {}; the metrics have no memory and utilisation of GPUs",
                   std::string(nvml.status().message()));
    }
  }
  const bool any = options_.metrics_listen == "auto";
  absl::StatusOr<std::unique_ptr<HttpServer>> http =
      HttpServer::Start(any ? "127.0.0.1:9464" : options_.metrics_listen,
                        MakePages(
                            backend_.observer, [this](Detail detail) { return backend_.TakeSnapshot(detail); },
                            nvml_.get(), options_.status_page));
  if (http.ok()) {
    http_ = *std::move(http);
  } else if (any) {
    spdlog::warn("metrics are not served: {}; set --metrics_listen to another address",
                 std::string(http.status().message()));
  } else {
    return http.status();
  }
  return absl::OkStatus();
}

absl::Status Server::WriteReadyFile() {
  if (options_.ready_file.empty()) return absl::OkStatus();
  // A reader sees the complete file or none.
  const std::string unfinished = absl::StrCat(options_.ready_file, ".", getpid());
  {
    std::ofstream file(unfinished);
    for (const std::string& address : addresses_) file << address << '\n';
    file.close();
    if (file && std::rename(unfinished.c_str(), options_.ready_file.c_str()) == 0) ready_file_written_ = true;
  }
  if (ready_file_written_) return absl::OkStatus();
  const int error = errno;
  unlink(unfinished.c_str());
  return absl::FailedPreconditionError(absl::StrFormat("--ready_file: cannot write %s: %s",
                                                       absl::CHexEscape(options_.ready_file), std::strerror(error)));
}

absl::Status Server::CheckEngines() {
  for (const auto& engine : engines_->all()) {
    const absl::Status health = engine->Health();
    if (health.ok()) continue;
    Drain();
    return absl::UnavailableError(absl::StrCat(engine->info().name, ": ", health.message()));
  }
  return absl::OkStatus();
}

void Server::Withdraw() {
  grpc_->GetHealthCheckService()->Shutdown();  // NOT_SERVING for every name, for good
}

void Server::Drain() {
  Withdraw();
  backend_.gate.Close();
}

void Server::Shutdown(absl::Duration timeout) {
  if (grpc_ == nullptr) return;
  Drain();
  if (ready_file_written_) unlink(options_.ready_file.c_str());
  ready_file_written_ = false;
  if (!backend_.gate.AwaitEmpty(timeout)) {
    spdlog::warn("requests were still running after {}: they are cancelled", absl::FormatDuration(timeout));
  }
  grpc_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(kCloseTimeout));
  grpc_->Wait();
  grpc_.reset();
  backend_.regions.Stop();
  http_.reset();
  spdlog::info("reduced stopped");
}

}  // namespace reduced::server

#include "server/server.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "grpc/grpc.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/server_builder.h"
#include "kernels/engine/memory_budget.h"
#include "kernels/system/failpoint.h"
#include "kernels/system/memory.h"
#include "kernels/system/mig.h"
#include "kernels/system/status_macros.h"
#include "reduced/v1/reduced.grpc.pb.h"
#include "server/config/descriptors.h"
#include "server/config/listener.h"
#include "server/connection_peer.h"
#include "server/observe/pages.h"
#include "server/self_check.h"
#include "spdlog/spdlog.h"

namespace reduced::server {
namespace {

// Without a call, after which no client is expected to make another one over a connection that got a GOAWAY.
constexpr absl::Duration kQuiet = absl::Milliseconds(100);

// After the last request: time for clients to close their connections.
constexpr absl::Duration kCloseTimeout = absl::Milliseconds(200);

// A client may ping this often, with or without calls. Those of gRPC do so every 10 seconds at most.
constexpr absl::Duration kMinClientPing = absl::Seconds(5);

void AddConnectionArguments(const ConnectionOptions& options, grpc::ServerBuilder* builder) {
  const struct {
    const char* name;
    absl::Duration value;  // 0: no limit, as by default
  } times[] = {
      {GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, options.handshake_timeout},
      {GRPC_ARG_MAX_CONNECTION_IDLE_MS, options.max_idle},
      {GRPC_ARG_MAX_CONNECTION_AGE_MS, options.max_age},
      {GRPC_ARG_KEEPALIVE_TIME_MS, options.keepalive_time},
      {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, options.keepalive_timeout},
      {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinClientPing},
  };
  for (const auto& each : times) {
    if (each.value == absl::ZeroDuration()) continue;
    builder->AddChannelArgument(each.name, static_cast<int>(absl::ToInt64Milliseconds(each.value)));
  }
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
}

// Of all Unix sockets that the server binds, and others.
std::vector<ListenAddress> SocketAddresses(const ServerOptions& options) {
  std::vector<ListenAddress> addresses;
  for (const std::string& text : options.listen) addresses.push_back(*ParseListenAddress(text));
  addresses.push_back({.text = "", .unix_path = RegionSocket(options), .host = ""});
  return addresses;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options) {
  RETURN_IF_ERROR(ValidateOptions(options));
  ServerOptions with_memory = options;
  const MemoryShares memory = SharesOf(options, UsableMemory());
  with_memory.engines.memory = std::make_shared<MemoryBudget>(memory.requests, options.limits.caller_share);
  spdlog::info("memory: {} MiB for requests, {} MiB for the transport's buffers", memory.requests >> 20,
               memory.transport >> 20);
  ASSIGN_OR_RETURN(std::unique_ptr<Engines> engines, Engines::Start(with_memory.engines));
  if (engines->Get(EngineKind::kCuda).ok()) {
    const absl::Status mig = CheckMig(std::getenv("CUDA_VISIBLE_DEVICES"), [] {
      const absl::StatusOr<std::unique_ptr<Nvml>> nvml = Nvml::Load();
      return nvml.ok() ? (*nvml)->CountMigInstances() : 0;
    });
    if (!mig.ok()) return mig;
  }
  RETURN_IF_ERROR(SelfCheck(*engines, options.engines.on_hang));
  return Start(with_memory, std::move(engines));
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options, std::unique_ptr<Engines> engines) {
  absl::Status status = ValidateOptions(options);
  if (status.ok()) status = CheckAddresses(options);
  if (!status.ok()) return status;
  ASSIGN_OR_RETURN(std::unique_ptr<Security> security, Security::Load(options.security));
  auto server = std::unique_ptr<Server>(new Server(options, std::move(engines), std::move(security)));
  server->LookAtGpus();
  {
    const SocketMode mode(options.unix_socket_mode);
    // Until all sockets are bound: of servers that start together, one gets them all.
    ASSIGN_OR_RETURN(const SocketFolderLock lock, SocketFolderLock::Take(SocketAddresses(options)));
    const absl::Status regions = server->ListenForRegions();  // first: a client that is served may use it at once
    status = server->Listen();
    status.Update(regions);
  }
  if (status.ok()) status = server->ListenForMetrics();
  if (status.ok()) status = server->WriteReadyFile();
  if (!status.ok()) return status;
  for (const auto& engine : server->engines_->all()) {
    const DeviceInfo device = engine->info();
    spdlog::info("engine {}: {} ({}), {} lanes, {} MiB for resident arrays", device.name, device.model, device.details,
                 device.lanes, device.array_bytes_limit >> 20);
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
      backend_(*engines_, options_.limits, options_.regions, security_.get(), ObserverOptionsOf(options_)),
      service_(MakeService(backend_)) {
  backend_.flags = options_.flags;
  backend_.memory = options_.engines.memory;
  backend_.small_memory = Backend::SmallMemory(*backend_.memory, options_.limits.caller_share);
  security_->SetRefusalListener([this](absl::string_view method, const std::string& peer, const absl::Status& why) {
    backend_.observer.Refused({method.data(), method.size()}, peer, why);
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
  builder.SetMaxReceiveMessageSize(-1);  // the calls have the limit: see CheckMessageSize
  builder.SetResourceQuota(
      grpc::ResourceQuota("reduced").Resize(static_cast<std::size_t>(SharesOf(options_, UsableMemory()).transport)));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options_.max_concurrent_streams);
  AddConnectionArguments(options_.connections, &builder);

  std::vector<ListenAddress> listen;
  for (const std::string& text : options_.listen) {
    listen.push_back(*ParseListenAddress(text));  // ValidateOptions has checked it
  }
  std::vector<Acceptor::Listener> listeners;
  for (const ListenAddress& address : listen) {
    std::vector<std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor>> acceptors;  // by slot
    for (int slot = 0; slot < security_->SlotsFor(address); ++slot) {
      ASSIGN_OR_RETURN(auto credentials, security_->CredentialsFor(address, slot));
      acceptors.push_back(builder.experimental().AddExternalConnectionAcceptor(
          grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, std::move(credentials)));
    }
    ASSIGN_OR_RETURN(auto sockets, ListenSockets::Bind(address, options_.connections.keepalive_timeout));
    addresses_.push_back(BoundAddress(address, sockets.port()));
    listeners.push_back({std::move(sockets),
                         [acceptors = std::move(acceptors), &peers = security_->peers()](
                             int listener, int connection, const std::string& peer, const Connections& open) {
                           const auto connected = [&open](const std::string& of) { return open.Has(of); };
                           const int slot = acceptors.size() == 1 ? 0 : peers.Assign(peer, connected);
                           grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
                           parameters.listener_fd = listener;
                           parameters.fd = connection;
                           const ConnectionPeer of_new_connection(peer);
                           acceptors[static_cast<std::size_t>(slot)]->HandleNewConnection(&parameters);
                         },
                         security_->Encrypts(address)});
  }
  grpc_ = builder.BuildAndStart();
  if (grpc_ == nullptr) return absl::InternalError("gRPC could not start the server");
  grpc_->GetHealthCheckService()->SetServingStatus(v1::Reduction::service_full_name(), true);
  const ConnectionLimits limits =
      LimitsOf(options_.connections, options_.region_socket.empty() ? 0 : options_.regions.max_connections,
               DescriptorLimit(), OpenDescriptors());
  if (limits.connections < options_.connections.max_connections) {
    spdlog::warn("--max_connections: got {}; the process may have {} descriptors, which allow {}",
                 options_.connections.max_connections, DescriptorLimit(), limits.connections);
  }
  acceptor_ = std::make_unique<Acceptor>(std::move(listeners), limits);
  return absl::OkStatus();
}

Snapshot Server::TakeSnapshot(Detail detail) const {
  Snapshot snapshot = backend_.TakeSnapshot(detail);
  snapshot.draining = withdrawn_;
  snapshot.serving = accepts_ && !withdrawn_;
  snapshot.certificate_expiry = security_->CertificateExpiry();
  snapshot.failed_reloads = security_->FailedReloads();
  snapshot.usage.push_back(
      {"connections", "Open connections.", acceptor_->connections(), acceptor_->limits().connections});
  for (std::size_t i = 0; i < kRefusals.size(); ++i) {
    snapshot.refused_connections.emplace_back(kRefusals[i].name, acceptor_->refused(static_cast<Refusal>(i)));
  }
  snapshot.refused_connections.emplace_back("regions", backend_.regions.refused_connections());
  return snapshot;
}

absl::Status Server::ListenForRegions() {
  const std::string path = RegionSocket(options_);
  if (!path.empty()) return backend_.regions.Start(path);
  const auto is_unix = [](const std::string& text) { return absl::StartsWith(text, "unix:"); };
  if (options_.region_socket == "auto" && std::any_of(options_.listen.begin(), options_.listen.end(), is_unix)) {
    spdlog::warn(
        "no region socket: its path, that of the Unix socket and two bytes, would exceed {} bytes; set "
        "--region_socket to a shorter one",
        kMaxUnixPath);
  }
  return absl::OkStatus();
}

void Server::LookAtGpus() {
  std::vector<DeviceInfo> gpus;
  for (const auto& engine : engines_->all()) {
    if (engine->kind() == EngineKind::kCuda) gpus.push_back(engine->info());
  }
  if (gpus.empty()) return;
  absl::StatusOr<std::unique_ptr<Nvml>> nvml = Nvml::Load();
  if (!nvml.ok()) {
    spdlog::warn("NVML can't be used: {}; the metrics have no memory and utilisation of GPUs",
                 std::string(nvml.status().message()));
    return;
  }
  nvml_ = *std::move(nvml);
  for (const DeviceInfo& from : gpus) {
    std::map<std::string, std::vector<std::string>> peers;  // by link
    for (const DeviceInfo& to : gpus) {
      if (to.name == from.name) continue;
      const absl::StatusOr<std::string> link = nvml_->LinkBetween(from.uuid, to.uuid);
      if (link.ok()) peers[*link].push_back(to.name);
    }
    for (const auto& [link, names] : peers) {
      backend_.links[from.name].push_back(absl::StrCat(link, ": ", absl::StrJoin(names, ", ")));
    }
  }
}

absl::Status Server::ListenForMetrics() {
  if (options_.metrics_listen.empty()) return absl::OkStatus();
  const bool any = options_.metrics_listen == "auto";
  absl::StatusOr<std::unique_ptr<HttpServer>> http =
      HttpServer::Start(any ? "127.0.0.1:9464" : options_.metrics_listen,
                        MakePages(
                            backend_.observer, [this](Detail detail) { return TakeSnapshot(detail); }, nvml_.get(),
                            options_.status_page));
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
    if (FAILPOINT("ready_file/write") && failpoint::SetErrno(ENOSPC)) file.setstate(std::ios::badbit);
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
    Dismiss();
    Drain();
    return absl::UnavailableError(absl::StrCat(engine->info().name, ": ", health.message()));
  }
  return absl::OkStatus();
}

void Server::CheckListeners() {
  const bool accepts = acceptor_->Accepts();
  if (accepts_.exchange(accepts) == accepts) return;
  if (accepts) {
    spdlog::info("clients can connect again: health is SERVING");
  } else {
    spdlog::error("clients cannot connect: health is NOT_SERVING until they can");
  }
  grpc_->GetHealthCheckService()->SetServingStatus(accepts);  // for every name
}

void Server::Withdraw() {
  withdrawn_ = true;
  grpc_->GetHealthCheckService()->Shutdown();  // NOT_SERVING for every name, for good
}

void Server::Dismiss() {
  Withdraw();
  if (acceptor_ != nullptr) acceptor_->Drain();
  backend_.Drain();
}

void Server::Drain() {
  Withdraw();
  backend_.gate.Close();
}

void Server::Shutdown(absl::Duration timeout) {
  if (grpc_ == nullptr) return;
  Dismiss();
  if (ready_file_written_) unlink(options_.ready_file.c_str());
  ready_file_written_ = false;
  if (!backend_.gate.AwaitQuiet(kQuiet, absl::Now() + timeout)) {
    spdlog::warn("requests were still running after {}: they are cancelled", absl::FormatDuration(timeout));
  }
  Drain();
  if (acceptor_ != nullptr) acceptor_->Stop();  // first: a gRPC server that shuts down does not close what it is given
  grpc_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(kCloseTimeout));
  grpc_->Wait();
  // gRPC is done with every call, but a thread that combined an upload may still own some of them.
  backend_.gate.AwaitQuiet(absl::ZeroDuration(), absl::InfiniteFuture());
  grpc_.reset();
  backend_.regions.Stop();
  http_.reset();
  spdlog::info("reduced stopped");
}

}  // namespace reduced::server

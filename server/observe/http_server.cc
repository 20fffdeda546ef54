#include "server/observe/http_server.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "civetweb.h"
#include "kernels/system/failpoint.h"
#include "server/config/descriptors.h"
#include "server/config/listener.h"

namespace reduced::server {
namespace {

int Send(mg_connection* connection, int status, const char* reason, const HttpAnswer& answer, absl::string_view more,
         bool with_body) {
  const std::string head = absl::StrFormat(
      "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nCache-Control: no-store\r\n"
      "Content-Security-Policy: %s\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n"
      "Referrer-Policy: no-referrer\r\nConnection: close\r\n%s\r\n",
      status, reason, answer.type, answer.body.size(), answer.policy, more);
  mg_disable_keep_alive(connection);
  if (FAILPOINT_ERRNO("http/write", EPIPE, mg_write(connection, head.data(), head.size())) < 0) return status;
  if (with_body) mg_write(connection, answer.body.data(), answer.body.size());
  return status;
}

// Wakes the thread that accepts connections at `address`: connects and disconnects.
void WakeAcceptor(const std::string& address) {
  const ListenAddress at = *ParseListenAddress(address);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(at.host.c_str(), absl::StrCat(at.port).c_str(), &hints, &found) != 0) return;
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0) {
    static_cast<void>(connect(fd, found->ai_addr, found->ai_addrlen));  // nothing depends on it
    close(fd);
  }
  freeaddrinfo(found);
}

bool IsIpAddress(const std::string& host) {
  in6_addr any{};
  return inet_pton(AF_INET, host.c_str(), &any) == 1 || inet_pton(AF_INET6, host.c_str(), &any) == 1;
}

bool IsLoopback(const std::string& host) {
  in_addr ipv4{};
  if (inet_pton(AF_INET, host.c_str(), &ipv4) == 1) return ntohl(ipv4.s_addr) >> 24 == IN_LOOPBACKNET;
  in6_addr ipv6{};
  if (inet_pton(AF_INET6, host.c_str(), &ipv6) == 1) return IN6_IS_ADDR_LOOPBACK(&ipv6);
  return absl::EqualsIgnoreCase(host, "localhost");
}

}  // namespace

bool HostIsHere(absl::string_view host, absl::string_view configured) {
  if (absl::StartsWith(host, "[")) {
    const std::size_t end = host.find(']');
    return end != absl::string_view::npos && IsIpAddress(std::string(host.substr(1, end - 1)));
  }
  host = host.substr(0, host.find(':'));
  return absl::EqualsIgnoreCase(host, "localhost") || absl::EqualsIgnoreCase(host, configured) ||
         IsIpAddress(std::string(host));
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& address, HttpPages pages) {
  const absl::StatusOr<ListenAddress> listen = ParseHttpAddress("metrics_listen", address);
  if (!listen.ok()) return listen.status();
  [[maybe_unused]] static const unsigned kept = mg_init_library(MG_FEATURES_DEFAULT);
  auto server = std::unique_ptr<HttpServer>(new HttpServer(std::move(pages)));
  // The library's thread that accepts connections spins while there is no descriptor for one. So it never has more
  // connections than half of the descriptors that other clients leave it.
  const std::string at_once = absl::StrCat(std::clamp(SpareDescriptors(DescriptorLimit()) / 4, 2, 16));
  // A slow client occupies one of these threads for up to half a second at a time, and never delays a reduction. Only
  // more slow clients than there are threads delay monitoring.
  const char* const options[] = {"listening_ports",
                                 address.c_str(),
                                 "num_threads",
                                 at_once.c_str(),
                                 "request_timeout_ms",
                                 "500",
                                 "keep_alive_timeout_ms",
                                 "0",
                                 "enable_directory_listing",
                                 "no",
                                 "max_request_size",
                                 "8192",
                                 "connection_queue",
                                 at_once.c_str(),
                                 nullptr};
  mg_callbacks callbacks{};
  callbacks.http_error = &HttpServer::HandleError;
  server->context_ = mg_start(&callbacks, nullptr, const_cast<const char**>(options));
  if (server->context_ == nullptr) {
    const absl::Status why = WhyNotBound(*listen);
    return absl::FailedPreconditionError(absl::StrCat("--metrics_listen: ", why.message()));
  }
  mg_server_port port{};
  mg_get_server_ports(server->context_, 1, &port);
  server->address_ = BoundAddress(*listen, port.port);
  if (IsLoopback(listen->host)) server->loopback_host_ = listen->host;
  mg_set_request_handler(server->context_, "/", &HttpServer::Handle, server.get());
  return server;
}

HttpServer::~HttpServer() {
  if (context_ == nullptr) return;
  // mg_stop takes effect when the accepting thread wakes: every 2 seconds, or when a client connects.
  std::atomic<bool> stopped = false;
  std::thread waking([&] {
    for (; !stopped.load(); absl::SleepFor(absl::Milliseconds(2))) WakeAcceptor(address_);
  });
  mg_stop(context_);
  stopped.store(true);
  waking.join();
}

int HttpServer::Handle(mg_connection* connection, void* server) {
  return static_cast<const HttpServer*>(server)->Answer(connection);
}

// Answers requests that the library rejects. The library's own page would reveal its version, lack our headers, and
// call gmtime(), whose buffer its threads share.
int HttpServer::HandleError(mg_connection* connection, int status, const char* /*what*/) {
  const char* const reason = mg_get_response_code_text(connection, status);
  Send(connection, status, reason, {"text/plain", absl::StrCat(reason, "\n")}, "", true);
  return 0;
}

int HttpServer::Answer(mg_connection* connection) const {
  const mg_request_info& request = *mg_get_request_info(connection);
  const std::string_view method = request.request_method;
  if (method != "GET" && method != "HEAD") {
    return Send(connection, 405, "Method Not Allowed", {"text/plain", "method not allowed; allowed: GET, HEAD\n"},
                "Allow: GET, HEAD\r\n", true);
  }
  const auto page = pages_.find(std::string_view(request.local_uri));
  if (page == pages_.end()) {
    const std::string paths =
        absl::StrJoin(pages_, ", ", [](std::string* out, const auto& each) { out->append(each.first); });
    return Send(connection, 404, "Not Found", {"text/plain", absl::StrCat("no such page; there are ", paths, "\n")}, "",
                method == "GET");
  }
  if (!loopback_host_.empty() && !page->second.for_any_host) {
    const char* const host = mg_get_header(connection, "Host");
    if (!HostIsHere(host == nullptr ? "" : host, loopback_host_)) {
      return Send(connection, 403, "Forbidden",
                  {"text/plain", "the Host header must be an IP address or localhost for this page\n"}, "",
                  method == "GET");
    }
  }
  return Send(connection, 200, "OK", page->second.make(), "", method == "GET");
}

}  // namespace reduced::server

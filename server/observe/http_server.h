// A small HTTP server for monitoring: it answers GET and HEAD requests for a fixed set of pages.
#ifndef REDUCED_SERVER_OBSERVE_HTTP_SERVER_H_
#define REDUCED_SERVER_OBSERVE_HTTP_SERVER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct mg_context;
struct mg_connection;

namespace reduced::server {

struct HttpAnswer {
  std::string type;  // of the body, as Content-Type has it
  std::string body;
  std::string policy = "default-src 'none'";  // Content-Security-Policy
};
struct HttpPage {
  std::function<HttpAnswer()> make;
  bool for_any_host = false;  // if false, a listener on loopback requires a Host header that passes HostIsHere
};
using HttpPages = std::map<std::string, HttpPage, std::less<>>;  // by path

// Whether the Host header of a request ("" if there is none; its port is ignored) names a server on loopback: an IP
// address, localhost, or the configured name. Any other name may be one that an attacker's DNS resolves to this
// machine, so that the attacker's page could read this server from a browser here (DNS rebinding).
bool HostIsHere(absl::string_view host, absl::string_view configured);

class HttpServer {
 public:
  // Serves on 16 threads of its own, fewer where the process may have fewer than 256 descriptors, until it is
  // destroyed; they make pages concurrently. INVALID_ARGUMENT: not "host:port" or "[ipv6]:port". FAILED_PRECONDITION:
  // the address can't be bound.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address, HttpPages pages);
  ~HttpServer();  // waits for requests in progress
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // The address as given, with the port that was bound.
  const std::string& address() const { return address_; }

 private:
  explicit HttpServer(HttpPages pages) : pages_(std::move(pages)) {}
  static int Handle(mg_connection* connection, void* server);
  static int HandleError(mg_connection* connection, int status, const char* what);
  int Answer(mg_connection* connection) const;

  const HttpPages pages_;
  std::string address_;
  std::string loopback_host_;  // the configured host; empty: the server is not bound to loopback
  mg_context* context_ = nullptr;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_OBSERVE_HTTP_SERVER_H_

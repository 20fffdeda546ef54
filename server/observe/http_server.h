// A small HTTP server for people and monitors: it only answers GET and HEAD of the paths it was given.
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
  bool for_any_host = false;  // else, on loopback, only for a Host that is this machine: see HostIsHere
};
using HttpPages = std::map<std::string, HttpPage, std::less<>>;  // by path

// Whether a request with that Host header (its port is not looked at; "": none) means a server on loopback that was
// given the name `configured`: an IP address, localhost or that name. Any other name may be one that somebody else has
// made point here, so that their page, in a browser, reads what this server says.
bool HostIsHere(absl::string_view host, absl::string_view configured);

class HttpServer {
 public:
  // Serves on 16 threads of its own until it is destroyed. Pages are made by any of them, several at once.
  // INVALID_ARGUMENT: not "host:port" or "[ipv6]:port". FAILED_PRECONDITION: it can't be bound.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address, HttpPages pages);
  ~HttpServer();  // waits for what is being answered
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // As it was given, with the port that was bound.
  const std::string& address() const { return address_; }

 private:
  explicit HttpServer(HttpPages pages) : pages_(std::move(pages)) {}
  static int Handle(mg_connection* connection, void* server);
  static int HandleError(mg_connection* connection, int status, const char* what);
  int Answer(mg_connection* connection) const;

  const HttpPages pages_;
  std::string address_;
  std::string loopback_host_;  // as it was given; empty: it isn't bound to loopback
  mg_context* context_ = nullptr;
};

// INVALID_ARGUMENT, naming the flag: not an address that an HttpServer takes.
absl::Status CheckHttpAddress(absl::string_view flag, const std::string& address);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_OBSERVE_HTTP_SERVER_H_

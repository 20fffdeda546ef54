// A small HTTP server for monitoring: it answers GET and HEAD requests for a fixed set of pages.
//
// One thread waits for all connections. A connection takes no thread and is answered as soon as its request is there,
// so that connections without one, or that are slow to send it or to read the answer, delay nobody. Once there are as
// many as there may be, a new one takes the place of the oldest that is not being answered.
#ifndef REDUCED_SERVER_OBSERVE_HTTP_SERVER_H_
#define REDUCED_SERVER_OBSERVE_HTTP_SERVER_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/config/listener.h"

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
  // Serves on a thread of its own, which makes the pages, until it is destroyed. INVALID_ARGUMENT: not "host:port" or
  // "[ipv6]:port". FAILED_PRECONDITION: the address can't be bound, or there is no descriptor or thread.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address, HttpPages pages);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // The address as given, with the port that was bound.
  const std::string& address() const { return address_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Connection;

  HttpServer(HttpPages pages, ListenSockets sockets);
  void Run();
  void Accept(int listener);
  void MakeRoom();
  bool Proceed(Connection& connection) const;
  std::string AnswerTo(absl::string_view head) const;

  const HttpPages pages_;
  const ListenSockets sockets_;
  const std::size_t max_connections_;
  std::string address_;
  std::string loopback_host_;  // the configured host; empty: the server is not bound to loopback
  int wake_ = -1;              // an eventfd: the thread ends

  // Used by the thread only.
  std::list<Connection> connections_;  // the oldest first
  Clock::time_point accept_after_{};   // there was no descriptor for a connection: not before

  std::thread thread_;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_OBSERVE_HTTP_SERVER_H_

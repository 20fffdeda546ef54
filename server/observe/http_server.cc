#include "server/observe/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "kernels/system/failpoint.h"
#include "kernels/system/status_macros.h"
#include "server/config/descriptors.h"

namespace reduced::server {
namespace {

constexpr std::size_t kMaxHeadBytes = 8192;
constexpr std::chrono::seconds kMostTime(10);  // of a connection
constexpr std::chrono::milliseconds kNoDescriptorPause(100);

// `more`: further headers.
std::string Encode(absl::string_view status, const HttpAnswer& answer, absl::string_view more, bool with_body) {
  return absl::StrFormat(
      "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nCache-Control: no-store\r\n"
      "Content-Security-Policy: %s\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n"
      "Referrer-Policy: no-referrer\r\nConnection: close\r\n%s\r\n%s",
      status, answer.type, answer.body.size(), answer.policy, more,
      with_body ? absl::string_view(answer.body) : absl::string_view());
}

std::string Refuse(absl::string_view status, absl::string_view text, bool with_body = true,
                   absl::string_view more = "") {
  return Encode(status, {"text/plain", absl::StrCat(text, "\n")}, more, with_body);
}

// The bytes of a request's head, with the empty line that ends it; npos: it has not come yet.
std::size_t HeadBytes(absl::string_view request) {
  const std::size_t crlf = request.find("\n\r\n");
  const std::size_t lf = request.find("\n\n");
  return crlf < lf ? crlf + 3 : lf == absl::string_view::npos ? lf : lf + 2;
}

// The value of the header in the lines after the request's first; empty: there is none.
absl::string_view HeaderOf(absl::string_view head, absl::string_view name) {
  for (const absl::string_view line : absl::StrSplit(head, '\n')) {
    const std::pair<absl::string_view, absl::string_view> field = absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (absl::EqualsIgnoreCase(field.first, name)) return absl::StripAsciiWhitespace(field.second);
  }
  return "";
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

// Its request arrives, then its answer leaves; then it waits until the client closes it, since closing it before could
// take the answer from the client.
struct HttpServer::Connection {
  Connection(int fd, Clock::time_point end) : fd(fd), end(end) {}
  ~Connection() { close(fd); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool answering() const { return sent < answer.size(); }

  const int fd;
  const Clock::time_point end;
  std::string request{};
  std::string answer{};
  std::size_t sent = 0;  // bytes of the answer
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& address, HttpPages pages) {
  ASSIGN_OR_RETURN(const ListenAddress listen, ParseHttpAddress("metrics_listen", address));
  absl::StatusOr<ListenSockets> sockets = ListenSockets::Bind(listen, absl::FromChrono(kMostTime));
  if (!sockets.ok()) {
    return absl::FailedPreconditionError(absl::StrCat("--metrics_listen: ", sockets.status().message()));
  }
  const int port = sockets->port();
  auto server = std::unique_ptr<HttpServer>(new HttpServer(std::move(pages), *std::move(sockets)));
  server->address_ = BoundAddress(listen, port);
  if (IsLoopback(listen.host)) server->loopback_host_ = listen.host;
  server->wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (server->wake_ < 0) {
    return absl::FailedPreconditionError(absl::StrCat("--metrics_listen: eventfd: ", std::strerror(errno)));
  }
  try {
    server->thread_ = std::thread([raw = server.get()] { raw->Run(); });
  } catch (const std::system_error& error) {
    return absl::FailedPreconditionError(absl::StrCat("--metrics_listen: no thread: ", error.what()));
  }
  return server;
}

// At most half of the descriptors that other clients leave are for connections of monitoring.
HttpServer::HttpServer(HttpPages pages, ListenSockets sockets)
    : pages_(std::move(pages)),
      sockets_(std::move(sockets)),
      max_connections_(static_cast<std::size_t>(std::clamp(SpareDescriptors(DescriptorLimit()) / 2, 2, 32))) {}

HttpServer::~HttpServer() {
  if (thread_.joinable()) {
    eventfd_write(wake_, 1);
    thread_.join();
  }
  if (wake_ >= 0) close(wake_);
}

void HttpServer::Run() {
  std::vector<pollfd> waiting;
  for (;;) {
    const Clock::time_point now = Clock::now();
    while (!connections_.empty() && connections_.front().end <= now) connections_.pop_front();
    const bool accepts = accept_after_ <= now;
    waiting.assign(1, {wake_, POLLIN, 0});
    for (const int listener : sockets_.files()) waiting.push_back({accepts ? listener : -1, POLLIN, 0});
    const std::size_t others = waiting.size();
    for (const Connection& each : connections_) {
      waiting.push_back({each.fd, static_cast<short>(each.answering() ? POLLOUT : POLLIN), 0});
    }
    Clock::time_point next = connections_.empty() ? Clock::time_point::max() : connections_.front().end;
    if (!accepts) next = std::min(next, accept_after_);
    const int timeout_ms = next == Clock::time_point::max()
                               ? -1
                               : static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(next - now).count());
    if (poll(waiting.data(), waiting.size(), timeout_ms) < 0) continue;
    if (waiting.front().revents != 0) return;
    std::size_t i = others;
    for (auto each = connections_.begin(); each != connections_.end(); ++i) {
      each = waiting[i].revents == 0 || Proceed(*each) ? std::next(each) : connections_.erase(each);
    }
    for (i = 1; i < others; ++i) {
      if (waiting[i].revents != 0) Accept(waiting[i].fd);
    }
  }
}

void HttpServer::Accept(int listener) {
  constexpr int kAtOnce = 16;
  for (int i = 0; i < kAtOnce; ++i) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      // Others than these mean that none has come, or has gone again.
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        accept_after_ = Clock::now() + kNoDescriptorPause;
      }
      return;
    }
    if (connections_.size() >= max_connections_) MakeRoom();
    Connection& added = connections_.emplace_back(fd, Clock::now() + kMostTime);
    if (!Proceed(added)) connections_.pop_back();  // its request is often there
  }
}

void HttpServer::MakeRoom() {
  const auto idle =
      std::find_if(connections_.begin(), connections_.end(), [](const Connection& each) { return !each.answering(); });
  connections_.erase(idle == connections_.end() ? connections_.begin() : idle);
}

// Reads from the socket and writes to it until either would block. False: the connection is over.
bool HttpServer::Proceed(Connection& connection) const {
  const auto would_block = [] { return errno == EAGAIN || errno == EINTR; };
  while (!connection.answering()) {
    std::array<char, kMaxHeadBytes> buffer;
    const ssize_t got = recv(connection.fd, buffer.data(), buffer.size(), 0);
    if (got <= 0) return got < 0 && would_block();
    if (!connection.answer.empty()) continue;  // it has all of it
    connection.request.append(buffer.data(), static_cast<std::size_t>(got));
    const std::size_t head = HeadBytes(connection.request);
    if (head <= kMaxHeadBytes) {
      connection.answer = AnswerTo(absl::string_view(connection.request).substr(0, head));
    } else if (connection.request.size() > kMaxHeadBytes) {
      connection.answer = Refuse("431 Request Header Fields Too Large", "the request's headers are too long");
    }
  }
  while (connection.answering()) {
    const ssize_t sent = FAILPOINT_ERRNO("http/write", EPIPE,
                                         send(connection.fd, connection.answer.data() + connection.sent,
                                              connection.answer.size() - connection.sent, MSG_NOSIGNAL));
    if (sent < 0) return would_block();
    connection.sent += static_cast<std::size_t>(sent);
  }
  return shutdown(connection.fd, SHUT_WR) == 0;
}

std::string HttpServer::AnswerTo(absl::string_view head) const {
  const std::size_t line_end = head.find('\n');
  const std::vector<absl::string_view> words = absl::StrSplit(absl::StripSuffix(head.substr(0, line_end), "\r"), ' ');
  if (words.size() != 3 || words[0].empty() || !absl::StartsWith(words[2], "HTTP/1.")) {
    return Refuse("400 Bad Request", "Bad Request");
  }
  const bool with_body = words[0] == "GET";
  if (!with_body && words[0] != "HEAD") {
    return Refuse("405 Method Not Allowed", "method not allowed; allowed: GET, HEAD", /*with_body=*/true,
                  "Allow: GET, HEAD\r\n");
  }
  const auto page = pages_.find(std::string(words[1].substr(0, words[1].find('?'))));
  if (page == pages_.end()) {
    const std::string paths =
        absl::StrJoin(pages_, ", ", [](std::string* out, const auto& each) { out->append(each.first); });
    return Refuse("404 Not Found", absl::StrCat("no such page; there are ", paths), with_body);
  }
  if (!loopback_host_.empty() && !page->second.for_any_host &&
      !HostIsHere(HeaderOf(head.substr(line_end + 1), "Host"), loopback_host_)) {
    return Refuse("403 Forbidden", "the Host header must be an IP address or localhost for this page", with_body);
  }
  return Encode("200 OK", page->second.make(), "", with_body);
}

}  // namespace reduced::server

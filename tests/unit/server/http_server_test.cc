#include "server/observe/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/runs.h"

namespace reduced::server {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr int kPatienceMs = 60'000;

std::unique_ptr<HttpServer> StartServer() {
  HttpPages pages;
  pages["/a"] = {[] { return HttpAnswer{"text/plain", "page a"}; }, /*for_any_host=*/true};
  pages["/"].make = [] { return HttpAnswer{"text/html", std::string(1 << 20, 'x')}; };
  auto server = HttpServer::Start("127.0.0.1:0", std::move(pages));
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

// A connection that has sent `text`; -1: it can't.
int Send(const HttpServer& server, const std::string& text) {
  const int port = std::atoi(server.address().substr(server.address().rfind(':') + 1).c_str());
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0 &&
      send(fd, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size())) {
    return fd;
  }
  close(fd);
  return -1;
}

// All that comes until the server closes the connection.
std::string Ask(const HttpServer& server, const std::string& request) {
  const int fd = Send(server, request);
  EXPECT_GE(fd, 0);
  const absl::Cleanup close_fd = [fd] { close(fd); };
  std::string answer;
  std::vector<char> buffer(1 << 16);
  for (;;) {
    pollfd readable{fd, POLLIN, 0};
    if (poll(&readable, 1, kPatienceMs) != 1) break;
    const ssize_t got = recv(fd, buffer.data(), buffer.size(), 0);
    if (got <= 0) break;
    answer.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return answer;
}

TEST(HttpServerTest, AnswersItsPages) {
  const auto server = StartServer();
  EXPECT_THAT(Ask(*server, "GET /a HTTP/1.1\r\nHost: x\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n"),
                    HasSubstr("Content-Security-Policy: default-src 'none'\r\n"), EndsWith("\r\n\r\npage a")));
  EXPECT_THAT(Ask(*server, "HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n"),
              AllOf(HasSubstr("200 OK"), Not(HasSubstr("page a"))));
  EXPECT_GT(Ask(*server, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").size(), std::size_t{1} << 20);
}

TEST(HttpServerTest, RefusesWhatIsNot) {
  const auto server = StartServer();
  EXPECT_THAT(Ask(*server, "GET /b HTTP/1.1\r\nHost: x\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 404 Not Found"), EndsWith("no such page; there are /, /a\n")));
  EXPECT_THAT(Ask(*server, "GET /a/../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n"), Not(HasSubstr("root:")));
  for (const std::string method : {"POST", "PUT", "DELETE", "OPTIONS"}) {
    EXPECT_THAT(Ask(*server, method + " /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"),
                AllOf(StartsWith("HTTP/1.1 405"), HasSubstr("Allow: GET, HEAD\r\n")))
        << method;
  }
  EXPECT_THAT(Ask(*server, "\x16\x03\x01 not HTTP\r\n\r\n"), Not(HasSubstr("200 OK")));
  EXPECT_THAT(Ask(*server, "GET /" + std::string(100'000, 'x') + " HTTP/1.1\r\n\r\n"), Not(HasSubstr("200 OK")));
  EXPECT_THAT(Ask(*server, "GET /a HTTP/1.1\r\nHost: x\r\n\r\n"), HasSubstr("200 OK")) << "it goes on";
}

TEST(HttpServerTest, OnLoopbackAPageIsNotForWhoNamesAnotherHost) {
  const auto server = StartServer();
  const auto ask = [&server](const std::string& path, const std::string& headers) {
    return Ask(*server, "GET " + path + " HTTP/1.1\r\n" + headers + "\r\n");
  };
  for (const std::string host : {"127.0.0.1:9464", "127.0.0.1", "LocalHost:1", "[::1]:9464", "[::1]", "192.0.2.1"}) {
    EXPECT_THAT(ask("/", "Host: " + host + "\r\n"), StartsWith("HTTP/1.1 200 OK")) << host;
  }
  for (const std::string host :
       {"example.com:9464", "127.0.0.1.example.com", "localhost.example.com", "[x]:1", "[::1"}) {
    EXPECT_THAT(ask("/", "Host: " + host + "\r\n"), AllOf(StartsWith("HTTP/1.1 403 Forbidden"), Not(HasSubstr("xxxx")),
                                                          EndsWith("or localhost for this page\n")))
        << host;
    EXPECT_THAT(ask("/a", "Host: " + host + "\r\n"), StartsWith("HTTP/1.1 200 OK")) << host;
  }
  EXPECT_THAT(ask("/", ""), Not(HasSubstr("200 OK")));
  EXPECT_TRUE(HostIsHere("Node-7:9464", "node-7"));
  EXPECT_FALSE(HostIsHere("node-8:9464", "node-7"));
  EXPECT_FALSE(HostIsHere("", "127.0.0.1"));
}

TEST(HttpServerTest, BeyondLoopbackAnyHostWillDo) {
  HttpPages pages;
  pages["/"].make = [] { return HttpAnswer{"text/plain", "page"}; };
  const auto server = HttpServer::Start("0.0.0.0:0", std::move(pages)).value();
  EXPECT_THAT(Ask(*server, "GET / HTTP/1.1\r\nHost: node-7\r\n\r\n"), EndsWith("page"));
}

// A client that asks for nothing, or does not finish asking, or does not read its answer, delays nobody. More of them
// than there can be connections, which are 32. Each may have an answer of 1 MiB, for which slow builds take 30 ms.
const int kCrowd = test::kSlowBuild ? 50 : 200;

class HttpServerCrowdTest : public testing::TestWithParam<std::string> {};

TEST_P(HttpServerCrowdTest, DelaysNobody) {
  const auto server = StartServer();
  std::vector<int> crowd;
  for (int i = 0; i < kCrowd; ++i) crowd.push_back(Send(*server, GetParam()));
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_THAT(Ask(*server, "GET /a HTTP/1.1\r\nHost: x\r\n\r\n"), HasSubstr("200 OK"));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
    crowd.push_back(Send(*server, GetParam()));
  }
  for (const int fd : crowd) close(fd);
}

INSTANTIATE_TEST_SUITE_P(Crowds, HttpServerCrowdTest,
                         testing::Values("", "G", "GET /a HT", "GET /a HTTP/1.1\r\nHost: x\r\n",
                                         "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
                                         "GET / HTTP/1.1\r\nHost: localhost\r\n\r\nand more"));

TEST(HttpServerTest, ARequestMayComeInPieces) {
  const auto server = StartServer();
  const int fd = Send(*server, "GET /a HTTP/1.1\r");
  EXPECT_THAT(Ask(*server, "GET /a HTTP/1.1\r\nHost: x\r\n\r\n"), HasSubstr("200 OK"));
  for (const std::string piece : {"\nHo", "st: x\r\n\r", "\n"}) send(fd, piece.data(), piece.size(), MSG_NOSIGNAL);
  char answer[16] = {};
  EXPECT_EQ(recv(fd, answer, 15, MSG_WAITALL), 15);
  EXPECT_STREQ(answer, "HTTP/1.1 200 OK");
  close(fd);
}

// Several at once, for what their threads may share.
TEST(HttpServerTest, WhatIsNoRequestIsAnsweredAsPagesAre) {
  const auto server = StartServer();
  std::vector<std::thread> asking;
  for (int i = 0; i < 8; ++i) {
    asking.emplace_back([&server] {
      EXPECT_THAT(Ask(*server, "no request\r\n\r\n"),
                  AllOf(StartsWith("HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n"),
                        HasSubstr("Content-Security-Policy: default-src 'none'\r\n"), EndsWith("\r\n\r\nBad Request\n"),
                        Not(HasSubstr("Date: "))));
    });
  }
  for (std::thread& each : asking) each.join();
}

TEST(HttpServerTest, AddressesThatItCannotServe) {
  for (const std::string bad :
       {"nowhere", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536", ":9464", "unix:/tmp/x", "9464"}) {
    EXPECT_EQ(HttpServer::Start(bad, {}).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  const auto server = StartServer();
  const absl::Status taken = HttpServer::Start(server->address(), {}).status();
  EXPECT_EQ(taken.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(taken.message()), HasSubstr("Address already in use"));
}

}  // namespace
}  // namespace reduced::server

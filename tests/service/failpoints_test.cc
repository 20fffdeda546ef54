// Every failpoint of the server and of the kernels without CUDA fires, what handles the fault answers honestly, and all
// works once the fault is over.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/system/failpoint.h"
#include "kernels/system/memory.h"
#include "kernels/system/read_file.h"
#include "reduced/client.h"
#include "server/config/listener.h"
#include "server/observe/http_server.h"
#include "server/observe/queued_sink.h"
#include "server/sources/generated_array.h"
#include "spdlog/logger.h"
#include "tests/service/test_server.h"
#include "tests/support/becomes.h"

namespace reduced::server::faults {
namespace {

using client::Client;
using client::Region;
using client::Reply;
using client::SharedBuffer;
using failpoint::Armed;
using ::testing::HasSubstr;

constexpr std::int64_t kMany = 1'000'000;  // elements: a stream, several blocks

std::vector<std::int32_t> Numbers() {
  std::vector<std::int32_t> numbers(kMany);
  std::iota(numbers.begin(), numbers.end(), 1);
  return numbers;
}

int OpenFiles() { return static_cast<int>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {})); }

// A memfd that holds `text`.
int MemoryOf(std::string_view text) {
  const int file = memfd_create("test", MFD_CLOEXEC);
  EXPECT_EQ(write(file, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  return file;
}

// A server and a client that sends nothing twice.
struct Served {
  explicit Served(const ServerOptions& options = {}) : server(options) {}

  absl::StatusOr<std::int64_t> Sum(const std::string& via) {
    const std::vector<std::int32_t> numbers = Numbers();
    const absl::StatusOr<Reply> reply =
        client->Reduce(client::ArrayView::Of(std::span<const std::int32_t>(numbers)), {"sum"}, {.via = via});
    if (!reply.ok()) return reply.status();
    return std::get<std::int64_t>(reply->results.at(0).value->value);
  }
  absl::StatusOr<Region> Share() {
    SharedBuffer buffer = SharedBuffer::Allocate(kMany).value();
    std::memset(buffer.data(), 1, kMany);
    absl::StatusOr<Region> region = client->Share(buffer);
    if (region.ok()) {
      const absl::StatusOr<Reply> reply = client->Reduce(region->Array("u8", {kMany}), {"sum"});
      EXPECT_TRUE(reply.ok()) << reply.status();
      if (reply.ok()) {
        EXPECT_EQ(std::get<std::uint64_t>(reply->results.at(0).value->value), std::uint64_t{kMany});
      }
    }
    return region;
  }
  absl::Status ResultsInRegion() {
    const SharedBuffer buffer = SharedBuffer::AllocateForResults(64).value();
    const Region region = client->Share(buffer, {.writable = true}).value();
    const std::vector<float> samples = {1, 2};
    const auto reply =
        client->ReduceArray(client::ArrayView::Of(samples), {"max"}, {.axis = {0}, .write_to = region.Place()});
    if (reply.ok()) {
      EXPECT_EQ(buffer.As<float>()[0], 2);
    }
    return reply.status();
  }
  absl::Status Ladder() {
    return client
        ->Ladder({.dtype = "f32", .count = kMany, .pipelines = {"tiled_simd"}, .repeats = 1},
                 [](const client::LadderStart&, const client::LadderStep& step) { EXPECT_TRUE(step.correct); })
        .status();
  }
  void ExpectIdle() {
    EXPECT_TRUE(Becomes(kPatience, [&] { return client->GetServerInfo()->usage.regions == 0; }));
    EXPECT_EQ(server.server().engines().all().front()->info().array_bytes, 0);
  }

  TestServer server;
  std::unique_ptr<Client> client =
      Client::Create({.server = server.address(), .timeout = kPatience, .max_attempts = 1}).value();
};

constexpr std::int64_t kSum = kMany * (kMany + 1) / 2;

absl::StatusCode ShareFails(std::string_view name, const char* says) {
  Served served;
  EXPECT_TRUE(served.Share().ok());
  served.ExpectIdle();
  const int files = OpenFiles();
  absl::Status status;
  {
    const Armed fault(name, {.times = 1});
    status = served.Share().status();
  }
  EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  const absl::Status later = served.Share().status();
  EXPECT_TRUE(later.ok()) << later;
  served.ExpectIdle();
  constexpr int kHelper = 2;  // the sockets of the process that closes descriptors, which there was none of before
  EXPECT_TRUE(Becomes(kPatience, [&] { return OpenFiles() <= files + kHelper; }))
      << files << " before, now " << OpenFiles();
  return status.code();
}

// A session that gets no ring says why, and leaves nothing; the next one has a ring.
void RingFails(std::string_view name, const char* says) {
  Served served;
  EXPECT_EQ((*served.client->OpenSession({.via = "ring"}))->via(), "ring");
  {
    const Armed fault(name, {.times = 1});
    const auto session = served.client->OpenSession({.via = "auto"});
    ASSERT_TRUE(session.ok()) << session.status();
    EXPECT_EQ((*session)->via(), "session");
    EXPECT_THAT((*session)->why_not_ring(), HasSubstr(says));
  }
  EXPECT_EQ((*served.client->OpenSession({.via = "ring"}))->via(), "ring");
  const auto unused = [&] {
    v1::GetServerInfoResponse info;
    return served.server.client().Info(&info).ok() && info.usage().rings() == 0;
  };
  EXPECT_TRUE(Becomes(kPatience, unused));
}

absl::Status ReduceFile(int file) {
  absl::Status status;
  absl::Notification done;
  CpuEngine().Reduce(Job{.spec = {.dtype = DType::kU8, .count = 1 << 20, .ops = {Op::kSum}},
                         .array = {.space = MemorySpace::kFile, .file = file}},
                     [&](absl::StatusOr<Answer> result) {
                       status = result.status();
                       done.Notify();
                     });
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
  return status;
}

// What is read in a file of ten bytes while the fault happens once.
absl::Status ReadTen(std::string_view name) {
  const int file = MemoryOf("0123456789");
  const absl::Cleanup close_file = [file] { close(file); };
  std::string text(10, ' ');
  const Armed fault(name, {.times = 1});
  const absl::Status status = ReadFile(file, 0, 10, text.data());
  if (status.ok()) {
    EXPECT_EQ(text, "0123456789");
  }
  return status;
}

// Tokens that cannot be read again stay as they are.
void TokensStay(std::string_view name) {
  const TempDir dir;
  std::ofstream(dir / "tokens")
      << "alice 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\n";  // secret
  ServerOptions options;
  options.security.token_file = dir / "tokens";
  options.security.credentials_refresh = absl::Milliseconds(10);
  const TestServer server(options);
  const auto ask = [&] {
    grpc::ClientContext context;
    SetContextDeadline(&context);
    context.AddMetadata("authorization", "Bearer secret");
    v1::ReduceResponse response;
    return server.client().Reduce(&context, SmallSum(), &response).error_message();
  };
  EXPECT_EQ(ask(), "");
  const std::int64_t before = failpoint::Fired(name);
  const Armed fault(name);
  EXPECT_TRUE(Becomes(kPatience, [&] { return failpoint::Fired(name) > before + 1; }));
  EXPECT_EQ(ask(), "");
}

std::string Get(const HttpServer& server) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(server.address().substr(server.address().rfind(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const absl::Cleanup close_socket = [socket] { close(socket); };
  const timeval patience{.tv_sec = absl::ToInt64Seconds(kPatience), .tv_usec = 0};
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  EXPECT_EQ(connect(socket, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  const std::string request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  EXPECT_EQ(send(socket, request.data(), request.size(), MSG_NOSIGNAL), static_cast<ssize_t>(request.size()));
  std::string answer(1000, ' ');
  const ssize_t bytes = recv(socket, answer.data(), answer.size(), MSG_WAITALL);
  answer.resize(static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
  return answer;
}

// A client connects while these happen, some of them only after others.
void Connects(const std::vector<std::string_view>& names) {
  TestServer server;
  {
    std::vector<std::unique_ptr<Armed>> faults;
    for (const std::string_view name : names) {
      faults.push_back(std::make_unique<Armed>(name, failpoint::Plan{.times = 2}));
    }
    const TestClient late(server.address());
    EXPECT_TRUE(Becomes(kPatience, [&] {
      v1::ReduceResponse response;
      return TestClient(server.address()).Reduce(SmallSum(), &response).ok() &&
             std::all_of(names.begin(), names.end(), [](std::string_view name) { return failpoint::Fired(name) > 0; });
    }));
  }
  v1::ReduceResponse response;
  EXPECT_TRUE(TestClient(server.address()).Reduce(SmallSum(), &response).ok());
}

// A descriptor that is not memory arrives while no process that closes it can be started.
void NotMemory(std::string_view name) {
  Served served;
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  {
    const Armed fault(name, {.times = 2});
    EXPECT_EQ(served.client->Share(ends[0]).status().code(), absl::StatusCode::kInvalidArgument);
    const absl::Status later = served.Share().status();  // once it is closed
    EXPECT_TRUE(later.ok()) << later;
  }
  close(ends[0]);
  EXPECT_TRUE(Becomes(kPatience, [&] { return write(ends[1], "", 1) < 0; })) << "the server still has the pipe";
  close(ends[1]);
  served.ExpectIdle();
}

struct Scenario {
  std::string_view name;
  void (*run)();
};
const Scenario kScenarios[] = {
    {"acceptor/accept", [] { Connects({"acceptor/accept"}); }},
    {"acceptor/reserve",
     [] {
       Connects({"acceptor/accept", "acceptor/reserve"});
     }},
    {"acceptor/socket",
     [] {
       Connects({"acceptor/accept", "acceptor/socket"});
     }},
    {"cpu/block_buffer",
     [] {
       const int file = MemoryOf(std::string(1 << 20, 'x'));
       {
         const Armed fault("cpu/block_buffer", {.times = 1});
         EXPECT_EQ(ReduceFile(file).code(), absl::StatusCode::kResourceExhausted);
       }
       EXPECT_TRUE(ReduceFile(file).ok());
       close(file);
     }},
    {"cpu/map",
     [] {
       {
         const Armed fault("cpu/map", {.times = 1});
         EXPECT_EQ(CpuEngine().Allocate(100).status().code(), absl::StatusCode::kResourceExhausted);
       }
       EXPECT_EQ(CpuEngine().info().array_bytes, 0);
       EXPECT_TRUE(CpuEngine().Allocate(100).ok());
     }},
    {"http/write",
     [] {
       HttpPages pages;
       pages["/"] = {[] { return HttpAnswer{"text/plain", "the page"}; }, /*for_any_host=*/true};
       const auto server = HttpServer::Start("127.0.0.1:0", std::move(pages));
       ASSERT_TRUE(server.ok()) << server.status();
       {
         const Armed fault("http/write", {.times = 1});
         EXPECT_EQ(Get(**server), "");
       }
       EXPECT_THAT(Get(**server), HasSubstr("the page"));
     }},
    {"ladder/map",
     [] {
       Served served;
       {
         const Armed fault("ladder/map", {.times = 1});
         EXPECT_EQ(served.Ladder().code(), absl::StatusCode::kResourceExhausted);
       }
       EXPECT_TRUE(served.Ladder().ok());
     }},
    {"ladder/thread",
     [] {
       constexpr std::int64_t kBytes = 64 << 20;
       const auto generate = [] {
         return GeneratedArray::Generate({.seed = 7}, kBytes, /*threads=*/4, [] { return absl::OkStatus(); });
       };
       const Armed fault("ladder/thread", {.after = 1, .times = 1});
       const absl::StatusOr<GeneratedArray> few = generate();
       ASSERT_TRUE(few.ok()) << few.status();
       const absl::StatusOr<GeneratedArray> all = generate();
       EXPECT_EQ(std::memcmp(few->data(), all->data(), kBytes), 0);
     }},
    {"listener/bind",
     [] {
       const TempDir dir;
       const ListenAddress address = *ParseListenAddress(absl::StrCat("unix:", dir / "socket"));
       {
         const Armed fault("listener/bind", {.times = 1});
         const absl::Status status = ListenSockets::Bind(address, absl::Seconds(1)).status();
         EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
         EXPECT_THAT(std::string(status.message()), HasSubstr("Address already in use"));
       }
       EXPECT_TRUE(ListenSockets::Bind(address, absl::Seconds(1)).ok());
     }},
    {"log/write",
     [] {
       const int file = MemoryOf("");
       const auto sink = std::make_shared<QueuedSink>(file);
       spdlog::logger log("test", sink);
       {
         const Armed fault("log/write", {.times = 1});
         log.info("one");
         EXPECT_TRUE(Becomes(kPatience, [&] { return sink->dropped() == 1; }));
       }
       log.info("two");
       sink->flush();
       std::string text(1000, '\0');
       EXPECT_GT(pread(file, text.data(), text.size(), 0), 0);
       EXPECT_THAT(text, HasSubstr("1 lines of the log were dropped"));
       EXPECT_THAT(text, HasSubstr("two"));
       close(file);
     }},
    {"memory/cgroup",
     [] {
       const TempDir dir;
       std::filesystem::create_directories(dir / "proc/self");
       std::filesystem::create_directories(dir / "sys/fs/cgroup");
       std::ofstream(dir / "proc/self/cgroup") << "0::/\n";
       std::ofstream(dir / "sys/fs/cgroup/memory.max") << "1000\n";
       const std::string root = dir / "";
       EXPECT_EQ(ControlGroupMemory(root), 1000);
       const Armed fault("memory/cgroup");
       EXPECT_EQ(ControlGroupMemory(root), std::nullopt);
     }},
    {"read/open", [] { TokensStay("read/open"); }},
    {"read/pread", [] { EXPECT_EQ(ReadTen("read/pread").code(), absl::StatusCode::kFailedPrecondition); }},
    {"read/read", [] { TokensStay("read/read"); }},
    {"read/short", [] { EXPECT_TRUE(ReadTen("read/short").ok()); }},
    {"read/shrunk", [] { EXPECT_THAT(std::string(ReadTen("read/shrunk").message()), HasSubstr("has shrunk")); }},
    {"ready_file/write",
     [] {
       const TempDir dir;
       ServerOptions options;
       options.listen = {absl::StrCat("unix:", dir / "socket")};
       options.metrics_listen.clear();
       options.ready_file = dir / "ready";
       const Armed fault("ready_file/write", {.times = 1});
       const absl::Status status = Server::Start(options, SharedEngines()).status();
       EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
       EXPECT_THAT(std::string(status.message()), HasSubstr("No space left on device"));
       EXPECT_TRUE(std::filesystem::is_empty(dir / "")) << "files are left";
     }},
    {"regions/accept",
     [] {
       Served served;
       const Armed fault("regions/accept", {.times = 3});
       EXPECT_TRUE(served.Share().ok());
     }},
    {"regions/examine",
     [] { EXPECT_EQ(ShareFails("regions/examine", "Input/output error"), absl::StatusCode::kInvalidArgument); }},
    {"regions/files_lost",
     [] { EXPECT_EQ(ShareFails("regions/files_lost", "no file descriptor"), absl::StatusCode::kResourceExhausted); }},
    {"regions/helper", [] { NotMemory("regions/helper"); }},
    {"regions/map",
     [] { EXPECT_EQ(ShareFails("regions/map", "Cannot allocate memory"), absl::StatusCode::kResourceExhausted); }},
    {"regions/poll",
     [] {
       Served served;
       const Armed fault("regions/poll", {.probability = 0.5});
       EXPECT_TRUE(served.Share().ok());
       EXPECT_TRUE(served.Share().ok());
       EXPECT_TRUE(Becomes(kPatience, [&] { return served.Share().ok() && failpoint::Fired("regions/poll") > 0; }));
     }},
    {"regions/receive",
     [] { EXPECT_EQ(ShareFails("regions/receive", "region socket"), absl::StatusCode::kUnavailable); }},
    {"regions/send", [] { EXPECT_EQ(ShareFails("regions/send", "region socket"), absl::StatusCode::kUnavailable); }},
    {"results/copy",
     [] {
       Served served;
       {
         const Armed fault("results/copy", {.times = 1});
         EXPECT_EQ(served.ResultsInRegion().code(), absl::StatusCode::kFailedPrecondition);
       }
       EXPECT_TRUE(served.ResultsInRegion().ok());
       served.ExpectIdle();
     }},
    {"results/memory",
     [] {
       Served served;
       {
         const Armed fault("results/memory", {.times = 1});
         const absl::Status status = served.ResultsInRegion();
         EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
         EXPECT_THAT(std::string(status.message()), HasSubstr("memfd_create: Too many open files"));
       }
       EXPECT_TRUE(served.ResultsInRegion().ok());
       served.ExpectIdle();
     }},
    {"ring/doorbell", [] { RingFails("ring/doorbell", "eventfd: Too many open files"); }},
    {"ring/epoll", [] { RingFails("ring/epoll", "epoll_ctl: No space left on device"); }},
    {"ring/map", [] { RingFails("ring/map", "mmap: Cannot allocate memory"); }},
    {"ring/memory", [] { RingFails("ring/memory", "memfd_create: Too many open files"); }},
    {"regions/socketpair", [] { NotMemory("regions/socketpair"); }},
    {"staging/allocate",
     [] {
       Served served;
       {
         const Armed fault("staging/allocate", {.after = 1, .times = 1});
         EXPECT_EQ(served.Sum("stream").status().code(), absl::StatusCode::kResourceExhausted);
       }
       EXPECT_EQ(served.Sum("stream").value(), kSum);
     }},
};

class FailpointsTest : public ::testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override { std::signal(SIGPIPE, SIG_IGN); }
};

TEST_P(FailpointsTest, Fires) {
  const auto scenario = std::find_if(std::begin(kScenarios), std::end(kScenarios),
                                     [](const Scenario& each) { return each.name == GetParam(); });
  ASSERT_NE(scenario, std::end(kScenarios)) << "nothing makes it fire";
  const std::int64_t before = failpoint::Fired(GetParam());
  scenario->run();
  EXPECT_GT(failpoint::Fired(GetParam()), before);
}

// Those of cuda/ fire in tests/fake_cuda/faults_test.cc.
std::vector<std::string_view> NamesHere() {
  std::vector<std::string_view> names;
  for (const std::string_view name : failpoint::kNames) {
    if (!name.starts_with("cuda/")) names.push_back(name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, FailpointsTest, ::testing::ValuesIn(NamesHere()), [](const auto& info) {
  std::string name(info.param);
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
});

TEST(ArmAllTest, HoldsUntilTheProcessEnds) {
  EXPECT_EXIT(
      {
        const bool armed = failpoint::ArmAll("log/write=1,read/short=0;seed=3").ok();
        const bool fires = failpoint::Fires(failpoint::IndexOf("log/write"));
        _exit(armed && fires && !failpoint::Fires(failpoint::IndexOf("read/short")) ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(ArmAllTest, SaysWhatIsWrong) {
  EXPECT_TRUE(failpoint::ArmAll("").ok());
  for (const char* wrong : {"log/write", "log/write=2", "log/write=x", "nothing=1", ";seed=x", ";color=3"}) {
    const absl::Status status = failpoint::ArmAll(wrong);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(std::string(status.message()), HasSubstr("REDUCED_FAILPOINTS: ")) << wrong;
    EXPECT_THAT(std::string(status.message()), HasSubstr("allowed: ")) << wrong;
  }
}

TEST(ArmedTest, FiresAsPlanned) {
  const auto fire = [](const failpoint::Plan& plan, int passes) {
    const Armed armed("read/short", plan);
    std::string fired;
    for (int i = 0; i < passes; ++i) fired += failpoint::Fires(failpoint::IndexOf("read/short")) ? '!' : '.';
    return fired;
  };
  EXPECT_EQ(fire({.after = 2, .times = 3}, 7), "..!!!..");
  EXPECT_EQ(fire({.probability = 0}, 5), ".....");
  const std::string half = fire({.probability = 0.5, .seed = 5}, 1000);
  EXPECT_EQ(fire({.probability = 0.5, .seed = 5}, 1000), half);
  EXPECT_NE(fire({.probability = 0.5, .seed = 6}, 1000), half);
  EXPECT_NEAR(static_cast<double>(std::count(half.begin(), half.end(), '!')), 500, 100);
  EXPECT_FALSE(failpoint::Fires(failpoint::IndexOf("read/short")));  // nobody has armed it
}

}  // namespace
}  // namespace reduced::server::faults

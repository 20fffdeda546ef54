// Seeded schedules of faults against a server with live traffic of every kind. Each request gets one answer, right or
// an honest error; once the faults are over, all works, and nothing is left in use.
//
// A short number of schedules by default. For more, from a seed of your own:
//   REDUCED_SCHEDULES=5000 REDUCED_SEED=7 build/native/tests/service/service_test --source=schedules_test.cc
// A schedule that fails names its seed: REDUCED_SCHEDULES=1 and that REDUCED_SEED repeat its choices.
//
// fake_device_test has it, too: there the server has a GPU, the fake one.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "kernels/system/failpoint.h"
#include "reduced/client.h"
#include "tests/service/test_server.h"
#include "tests/support/becomes.h"
#include "tests/support/runs.h"
#ifdef REDUCED_HAVE_CUDA
#include "kernels/cuda/engine.h"
#endif

namespace reduced::server::schedules {
namespace {

using client::ArrayView;
using client::Client;
using client::Reply;
using failpoint::Armed;

constexpr absl::Duration kTimeout = absl::Seconds(30);  // no request takes as long: it would be one without an answer
constexpr std::int64_t kMany = 300'000;                 // elements: more than a message of the stream has

std::int64_t FromEnvironment(const char* name, std::int64_t otherwise) {
  const char* const text = std::getenv(name);
  std::int64_t value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

const std::vector<std::int32_t>& Numbers() {  // 1, 2, 3...
  static const auto* const numbers = [] {
    auto* const all = new std::vector<std::int32_t>(kMany);
    std::iota(all->begin(), all->end(), 1);
    return all;
  }();
  return *numbers;
}
ArrayView First(std::int64_t count) {
  return ArrayView::Of(std::span<const std::int32_t>(Numbers()).first(static_cast<std::size_t>(count)));
}

// What the descriptors of this process are. Without TCP sockets, which only monitoring has: its library forgets one at
// times that connects while it stops, as it does when the process ends.
std::multiset<std::string> OpenFiles() {
  std::multiset<std::string> files;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    int domain = 0;
    socklen_t size = sizeof(domain);
    const int descriptor = std::stoi(each.path().filename());
    if (getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_INET) continue;
    std::error_code gone;
    const std::string file = std::filesystem::read_symlink(each, gone);
    files.insert(file.substr(0, file.find('[')));  // without numbers, as of sockets
  }
  return files;
}

// An engine of the process in the place of one that a server has for itself: starting one takes a while.
class Lent final : public Engine {
 public:
  explicit Lent(Engine& engine) : engine_(engine) {}
  EngineKind kind() const override { return engine_.kind(); }
  DeviceInfo info() const override { return engine_.info(); }
  Calibration calibration() const override { return engine_.calibration(); }
  double waiting_us(std::int64_t bytes) const override { return engine_.waiting_us(bytes); }
  absl::Status Health() override { return engine_.Health(); }
  void Reduce(Job job, Done done) override { engine_.Reduce(std::move(job), std::move(done)); }
  std::int64_t staging_bytes() const override { return engine_.staging_bytes(); }
  StagingBuffer Stage(std::int64_t bytes) override { return engine_.Stage(bytes); }
  absl::StatusOr<std::shared_ptr<const void>> Pin(const void* data, std::int64_t bytes) override {
    return engine_.Pin(data, bytes);
  }
  absl::StatusOr<HeldArray> Open(const SharedDeviceMemory& memory) override { return engine_.Open(memory); }
  void Measure(Job job, int repeats, Measured done) override {
    engine_.Measure(std::move(job), repeats, std::move(done));
  }
  absl::StatusOr<std::unique_ptr<ArrayMemory>> Allocate(std::int64_t bytes, std::uint64_t caller) override {
    return engine_.Allocate(bytes, caller);
  }

 private:
  Engine& engine_;
};

#ifdef REDUCED_HAVE_CUDA
constexpr bool kGpu = true;
Engine& GpuEngine() {
  static Engine* const engine = [] {
    EngineOptions options;
    options.chunk_bytes = 64 << 10;
    return MakeCudaEngine(options, 0)->release();
  }();
  return *engine;
}
#else
constexpr bool kGpu = false;
#endif

std::unique_ptr<Engines> LentEngines() {
  std::vector<std::unique_ptr<Engine>> engines;
  engines.push_back(std::make_unique<Lent>(CpuEngine()));
#ifdef REDUCED_HAVE_CUDA
  engines.push_back(std::make_unique<Lent>(GpuEngine()));
#endif
  return Engines::Of(std::move(engines), "a test");
}

// What may fail while a server runs and no device is lost for good.
std::vector<std::string_view> Candidates() {
  std::vector<std::string_view> names;
  for (const std::string_view name : failpoint::kNames) {
    if (name == "cuda/lost" || name == "cuda/slab" || (!kGpu && name.starts_with("cuda/"))) continue;
    names.push_back(name);
  }
  return names;
}

using Random = std::mt19937_64;
std::int64_t Pick(Random& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

// One client, which makes requests of every kind.
class Traffic {
 public:
  Traffic(const std::string& address, const std::string& pages, std::uint64_t seed)
      : pages_(pages),
        random_(seed),
        client_(Client::Create({.server = address, .timeout = kTimeout, .max_attempts = 1}).value()) {}

  void Do() { (this->*kKinds[Pick(random_, 0, std::ssize(kKinds) - 1)])(); }
  void DoAll() {  // without faults: all of them succeed
    must_succeed_ = true;
    for (const auto kind : kKinds) (this->*kind)();
  }

 private:
  // Whether there is an answer. If not, that its status says why.
  bool Check(const absl::Status& status, const char* what) const {
    if (status.ok()) return true;
    EXPECT_FALSE(must_succeed_) << what << ", though no fault is left: " << status;
    EXPECT_FALSE(status.message().empty()) << what;
    constexpr absl::StatusCode kHonest[] = {absl::StatusCode::kUnavailable, absl::StatusCode::kResourceExhausted,
                                            absl::StatusCode::kFailedPrecondition, absl::StatusCode::kInvalidArgument,
                                            absl::StatusCode::kNotFound};
    EXPECT_TRUE(std::find(std::begin(kHonest), std::end(kHonest), status.code()) != std::end(kHonest))
        << what << ": " << status;
    return false;
  }
  bool CheckSum(const absl::StatusOr<Reply>& reply, std::int64_t count, const char* what) const {
    if (!Check(reply.status(), what)) return false;
    EXPECT_EQ(std::get<std::int64_t>(reply->results.at(0).value->value), count * (count + 1) / 2) << what;
    return true;
  }
  client::ReduceOptions Options(const std::string& via = "auto") {
    client::ReduceOptions options;
    options.via = via;
    if (kGpu) options.engine = Pick(random_, 0, 1) == 0 ? "auto" : "cuda";
    return options;
  }

  // Several at once: each callback once.
  void Inline() {
    constexpr int kAtOnce = 8;
    std::atomic<int> answers[kAtOnce] = {};
    std::atomic<int> left = kAtOnce;
    absl::Notification all;
    for (int i = 0; i < kAtOnce; ++i) {
      const std::int64_t count = Pick(random_, 0, 1) == 0 ? Pick(random_, 0, 2000) : kMany;
      client_->ReduceAsync(First(count), {"sum"}, Options("inline"), [&, i, count](const absl::StatusOr<Reply>& reply) {
        CheckSum(reply, count, "inline");
        ++answers[i];
        if (--left == 0) all.Notify();
      });
    }
    EXPECT_TRUE(all.WaitForNotificationWithTimeout(kPatience)) << left << " without an answer";
    for (const auto& each : answers) EXPECT_EQ(each, 1);
  }
  void Stream() { CheckSum(client_->Reduce(First(kMany), {"sum"}, Options("stream")), kMany, "stream"); }
  void Session() {
    const absl::StatusOr<std::unique_ptr<client::Session>> session = client_->OpenSession({.via = "auto"});
    if (!Check(session.status(), "session")) return;
    for (int i = 0; i < 5; ++i) {
      const std::int64_t count = Pick(random_, 1, 10'000);
      CheckSum((*session)->Reduce(First(count), {"sum"}, Options()), count, "a request of a session");
    }
  }
  void Put() {
    absl::StatusOr<client::ResidentArray> array = client_->Put(First(kMany));
    if (!Check(array.status(), "put")) return;
    CheckSum(client_->Reduce(*array, {"sum"}), kMany, "resident");
    Check(client_->ListArrays().status(), "list");
    if (Check(client_->DeleteArray(array->id()), "delete")) array->Release();
  }
  void Share() {
    absl::StatusOr<client::Region> region = client_->Share(First(kMany));
    if (!Check(region.status(), "share")) return;
    CheckSum(client_->Reduce(region->Array("i32", {kMany}), {"sum"}, Options()), kMany, "region");
  }
  void ShareFile() {  // that may shrink, and so is read
    const int file = memfd_create("test", MFD_CLOEXEC);
    const absl::Cleanup close_file = [file] { close(file); };
    const auto bytes = static_cast<ssize_t>(kMany * sizeof(std::int32_t));
    EXPECT_EQ(write(file, Numbers().data(), static_cast<std::size_t>(bytes)), bytes);
    absl::StatusOr<client::Region> region = client_->Share(file);
    if (!Check(region.status(), "share")) return;
    CheckSum(client_->Reduce(region->Array("i32", {kMany}), {"sum"}, Options()), kMany, "a region that is read");
  }
  void ShareOther() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return;
    EXPECT_FALSE(client_->Share(ends[0]).ok());
    close(ends[0]);
    close(ends[1]);
  }
  void Merge() {
    std::vector<std::string> states;
    client::ReduceOptions options = Options("inline");
    options.return_state = true;
    for (const std::int64_t count : {1000, 70'000}) {
      const absl::StatusOr<Reply> reply = client_->Reduce(First(count), {"sum"}, options);
      if (!CheckSum(reply, count, "inline")) return;
      states.push_back(reply->state);
    }
    const absl::StatusOr<client::MergeReply> merged = client_->Merge(states);
    if (!Check(merged.status(), "merge")) return;
    EXPECT_EQ(std::get<std::int64_t>(merged->results.at(0).value->value),
              1000 * 1001 / 2 + std::int64_t{70'000} * 70'001 / 2);
  }
  void Ladder() {
    const absl::StatusOr<client::LadderStart> start = client_->Ladder(
        {.dtype = "i32", .count = 200'000, .pipelines = {"recursive_pairs", "tiled_simd"}, .repeats = 1},
        [](const client::LadderStart&, const client::LadderStep& step) { EXPECT_TRUE(step.correct) << step.pipeline; });
    Check(start.status(), "ladder");
  }
  void Pages() { EXPECT_TRUE(!must_succeed_ || !GetMetrics(pages_).empty()); }

  static constexpr void (Traffic::*kKinds[])() = {
      &Traffic::Inline,    &Traffic::Stream,     &Traffic::Session, &Traffic::Put,    &Traffic::Share,
      &Traffic::ShareFile, &Traffic::ShareOther, &Traffic::Merge,   &Traffic::Ladder, &Traffic::Pages};

 public:
  // The metrics that "HOST:PORT" serves; empty: it failed.
  static std::string GetMetrics(const std::string& pages) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(pages.substr(pages.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const absl::Cleanup close_socket = [socket] { close(socket); };
    const timeval patience{.tv_sec = absl::ToInt64Seconds(kPatience), .tv_usec = 0};
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    const std::string request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    std::string text;
    if (connect(socket, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0 ||
        send(socket, request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size())) {
      return text;
    }
    char piece[4096];
    for (ssize_t got = 0; (got = recv(socket, piece, sizeof(piece), 0)) > 0;) text.append(piece, got);
    return text;
  }

 private:
  const std::string pages_;
  Random random_;
  const std::unique_ptr<Client> client_;
  bool must_succeed_ = false;
};

// The gauges of what is in use that aren't 0.
std::string LeftInUse(const std::string& metrics) {
  std::string left;
  for (const auto& line : absl::StrSplit(metrics, '\n')) {
    for (const char* name :
         {"reduced_memory_bytes ", "reduced_array_bytes{", "reduced_lanes_busy{", "reduced_queue_length{",
          "reduced_arrays ", "reduced_regions ", "reduced_rings ", "reduced_streams ", "reduced_sessions "}) {
      if (absl::StartsWith(line, name) && !absl::EndsWith(line, " 0")) absl::StrAppend(&left, line, "\n");
    }
  }
  return metrics.find("reduced_lanes_busy") == std::string::npos ? "no metrics" : left;
}

// The schedule of a seed.
void RunSchedule(std::uint64_t seed) {
  SCOPED_TRACE(absl::StrCat("REDUCED_SEED=", seed));
  Random random(seed);
  ServerOptions options;
  options.metrics_listen = "127.0.0.1:0";
  TestServer server(options, LentEngines());
  const std::string pages = server.server().metrics_address();
  {
    std::vector<std::string_view> names = Candidates();
    std::shuffle(names.begin(), names.end(), random);
    names.resize(static_cast<std::size_t>(Pick(random, 1, 12)));
    std::vector<std::unique_ptr<Armed>> faults;
    for (const std::string_view name : names) {
      const double probabilities[] = {0.01, 0.1, 0.5, 1};
      faults.push_back(std::make_unique<Armed>(name, failpoint::Plan{.after = Pick(random, 0, 20),
                                                                     .times = Pick(random, 1, 20),
                                                                     .probability = probabilities[Pick(random, 0, 3)],
                                                                     .seed = seed}));
    }
    std::vector<std::thread> clients;
    for (std::uint64_t i = 0; i < 3; ++i) {
      clients.emplace_back([&, client_seed = random()] {
        Traffic traffic(server.address(), pages, client_seed);
        for (int j = 0; j < 6; ++j) traffic.Do();
      });
    }
    for (std::thread& client : clients) client.join();
  }
  Traffic(server.address(), pages, seed).DoAll();
  std::string left;
  EXPECT_TRUE(Becomes(kPatience, [&] { return (left = LeftInUse(Traffic::GetMetrics(pages))).empty(); })) << left;
}

TEST(SchedulesTest, EveryRequestHasOneHonestAnswerAndNothingIsLeft) {
  std::signal(SIGPIPE, SIG_IGN);
  const std::int64_t first = FromEnvironment("REDUCED_SEED", 1);
  const std::int64_t count = FromEnvironment("REDUCED_SCHEDULES", test::kSlowBuild ? 8 : 25);
  RunSchedule(static_cast<std::uint64_t>(first) - 1);  // what is made once per process, is there
  const std::multiset<std::string> files = OpenFiles();
  std::int64_t fired = 0;
  for (const std::string_view name : failpoint::kNames) fired -= failpoint::Fired(name);
  for (std::int64_t i = 0; i < count && !HasFailure(); ++i) {
    RunSchedule(static_cast<std::uint64_t>(first + i));
    EXPECT_TRUE(Becomes(kPatience, [&] { return OpenFiles().size() <= files.size(); }))
        << "REDUCED_SEED=" << first + i << ": files before: " << absl::StrJoin(files, " ")
        << "; now: " << absl::StrJoin(OpenFiles(), " ");
  }
  for (const std::string_view name : failpoint::kNames) fired += failpoint::Fired(name);
  EXPECT_GE(fired, count) << "the schedules have next to no faults";
  RecordProperty("faults", std::to_string(fired));
}

}  // namespace
}  // namespace reduced::server::schedules

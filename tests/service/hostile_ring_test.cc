// A server that writes anything into the memory of a ring: its client answers with an error, and goes on. The server is
// a real one whose engine holds each request, while the test writes the answer.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "proto/ring/layout.h"
#include "proto/ring/wait.h"
#include "reduced/client.h"
#include "tests/service/held_engine.h"

namespace reduced::server {
namespace {

using client::ArrayView;
using client::Client;
using client::ReduceOptions;
using client::Reply;
using client::Session;
using ::testing::HasSubstr;

// The memory of the only ring of this process, as its server has it.
class RingOfThisProcess {
 public:
  RingOfThisProcess() {
    for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      if (std::filesystem::read_symlink(file, gone).string().find("reduced_ring") == std::string::npos) continue;
      const int memory = open(file.path().c_str(), O_RDWR | O_CLOEXEC);
      bytes_ = static_cast<std::size_t>(std::filesystem::file_size(file.path()));
      void* const mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
      close(memory);
      if (mapped == MAP_FAILED) continue;
      const auto& header = *static_cast<const ring::Header*>(mapped);
      mapping_ = {static_cast<std::byte*>(mapped), {.slots = header.slots, .arena_bytes = header.arena_bytes}};
      return;
    }
  }
  ~RingOfThisProcess() {
    if (mapping_.data != nullptr) munmap(mapping_.data, bytes_);
  }
  RingOfThisProcess(const RingOfThisProcess&) = delete;
  RingOfThisProcess& operator=(const RingOfThisProcess&) = delete;

  const ring::Mapping& mapping() const { return mapping_; }

 private:
  ring::Mapping mapping_;
  std::size_t bytes_ = 0;
};

class HostileRingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = (*Client::Create({.server = server_->address(), .timeout = kPatience}))->OpenSession({.via = "ring"});
    ASSERT_TRUE(opened.ok()) << opened.status();
    session_ = *std::move(opened);
    memory_.emplace();
    ASSERT_NE(memory_->mapping().data, nullptr);
  }

  // What the client makes of an answer that `spoil` has changed, which is an honest one before. Then the server may
  // answer, too, so that the next request is one.
  absl::StatusOr<Reply> Spoiled(const std::function<void(ring::Completion&)>& spoil,
                                const ReduceOptions& options = {}) {
    std::optional<absl::StatusOr<Reply>> reply;
    std::thread caller([&] { reply = session_->Reduce(ArrayView::Of(ten_), {"sum", "argmax"}, options); });
    EXPECT_TRUE(server_.engine().AwaitHeld(1, kPatience));
    const ring::Submission& submission = memory_->mapping().submission(sent_++);
    ring::Completion& completion = memory_->mapping().completion(submission.completion);
    Honest(submission, &completion);
    spoil(completion);
    std::uint32_t& state = completion.state;
    const std::uint32_t done = given_state_.value_or(ring::kDone);
    if (ring::Shared(state).exchange(done) == ring::kSleeping) ring::FutexWake(state);
    caller.join();
    ring::Shared(state).store(ring::kPending);
    server_.engine().ReleaseFirst();
    const absl::Time end = absl::Now() + kPatience;
    while (ring::Shared(state).load() != ring::kDone && absl::Now() < end) std::this_thread::yield();
    return *reply;
  }

  static void Honest(const ring::Submission& submission, ring::Completion* completion) {
    completion->id = submission.id;
    completion->code = 0;
    completion->count = 10;
    completion->bytes = 80;
    completion->retry_after_ms = completion->reply_bytes = 0;
    completion->engine = 1;     // cpu
    completion->precision = 2;  // exact
    completion->result_count = 2;
    completion->dtypes[0] = submission.dtype;
    completion->dtypes[1] = 9;  // u64
    for (double& us : completion->micros) us = std::numeric_limits<double>::quiet_NaN();
    const double sum = 55;
    std::memcpy(&completion->values[0], &sum, sizeof(sum));
    completion->values[1] = 9;
    std::strcpy(completion->device, "cpu");
    std::strcpy(completion->pipeline, "tiled_simd");
    std::strcpy(completion->text, "why");
  }

  const std::vector<double> ten_ = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  HeldServer server_{8};
  std::unique_ptr<Session> session_;
  std::optional<RingOfThisProcess> memory_;
  std::uint64_t sent_ = 0;
  std::optional<std::uint32_t> given_state_;
};

TEST_F(HostileRingTest, AnAnswerThatIsNoneIsAnError) {
  const auto honest = Spoiled([](auto&) {});
  ASSERT_TRUE(honest.ok()) << honest.status();
  EXPECT_EQ(honest->Find("argmax")->AsDouble(), 9);
  const struct {
    const char* error;
    std::function<void(ring::Completion&)> spoil;
  } kCases[] = {
      {"id: got 12345; allowed: ", [](auto& completion) { completion.id = 12345; }},
      {"count: got -1; allowed: 10", [](auto& completion) { completion.count = -1; }},
      {"bytes: got 79; allowed: 80", [](auto& completion) { completion.bytes = 79; }},
      {"results: got 0; allowed: 2", [](auto& completion) { completion.result_count = 0; }},
      {"results: got 16; allowed: 2", [](auto& completion) { completion.result_count = 255; }},
      {"value", [](auto& completion) { completion.dtypes[0] = 255; }},
      {"value", [](auto& completion) { completion.values[1] = 10; }},
      {"engine: got auto", [](auto& completion) { completion.engine = 0; }},
      {"precision: got default", [](auto& completion) { completion.precision = 0; }},
      {"total_us", [](auto& completion) { completion.micros[ring::kTotal] = -1; }},
      {"kernel_us",
       [](auto& completion) { completion.micros[ring::kKernel] = std::numeric_limits<double>::infinity(); }},
      {"device", [](auto& completion) { completion.device[0] = 0; }},
      {"pipeline", [](auto& completion) { completion.pipeline[0] = 0; }},
  };
  for (const auto& each : kCases) {
    const auto reply = Spoiled(each.spoil);
    EXPECT_EQ(reply.status().code(), absl::StatusCode::kInternal) << each.error;
    EXPECT_THAT(std::string(reply.status().message()), HasSubstr(each.error));
  }
  // An error of a code that there isn't, whose text has no end.
  const auto reply = Spoiled([](auto& completion) {
    completion.code = 0xffffffff;
    std::memset(completion.text, 'x', sizeof(completion.text));
  });
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kUnknown);
  EXPECT_LE(reply.status().message().size(), sizeof(ring::Completion{}.text) + 200);
  // A name without an end is one of as many bytes as there are.
  const auto endless =
      Spoiled([](auto& completion) { std::memset(completion.pipeline, 'x', sizeof(completion.pipeline)); });
  ASSERT_TRUE(endless.ok()) << endless.status();
  EXPECT_EQ(endless->execution.pipeline, std::string(sizeof(ring::Completion{}.pipeline), 'x'));
  EXPECT_TRUE(Spoiled([](auto&) {}).ok()) << "the session goes on";
}

TEST_F(HostileRingTest, AReplyThatIsNoneIsAnError) {
  for (const std::uint32_t bytes : {std::uint32_t{3}, std::numeric_limits<std::uint32_t>::max()}) {
    const auto reply = Spoiled([&](auto& completion) { completion.reply_bytes = bytes; }, {.return_state = true});
    EXPECT_EQ(reply.status().code(), absl::StatusCode::kInternal);
  }
}

TEST_F(HostileRingTest, AStateThatIsNoneIsAnError) {
  given_state_ = 77;
  const auto reply = Spoiled([](auto&) {});
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(reply.status().message()), HasSubstr("state: got 77; allowed: 2"));
}

TEST_F(HostileRingTest, NoBytesEndTheClient) {
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    const auto reply = Spoiled([&](auto& completion) {
      // Some of its bytes, or all; the state is the last to be written.
      auto* const bytes = reinterpret_cast<unsigned char*>(&completion);
      const std::size_t changes = i % 3 == 0 ? sizeof(completion) : random() % 32;
      for (std::size_t n = 0; n < changes; ++n) {
        bytes[4 + random() % (sizeof(completion) - 4)] = static_cast<unsigned char>(random());
      }
    });
    if (!reply.ok()) continue;
    EXPECT_EQ(reply->results.size(), 2);
  }
  EXPECT_TRUE(Spoiled([](auto&) {}).ok());
}

// The request then goes in a message, which this server does not answer either.
TEST_F(HostileRingTest, AServerThatTakesNothingGetsAMessage) {
  const auto& header = memory_->mapping().header();
  ring::Shared(const_cast<ring::Header&>(header).taken).store(1, std::memory_order_relaxed);  // more than were sent
  const auto reply = session_->Reduce(ArrayView::Of(ten_), {"sum"}, {.timeout = absl::Seconds(2)});
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kDeadlineExceeded) << reply.status();
}

TEST_F(HostileRingTest, CallbacksGetErrorsToo) {
  absl::Notification done;
  session_->ReduceAsync(ArrayView::Of(ten_), {"sum"}, {}, [&](const absl::StatusOr<Reply>& reply) {
    EXPECT_EQ(reply.status().code(), absl::StatusCode::kInternal);
    done.Notify();
  });
  ASSERT_TRUE(server_.engine().AwaitHeld(1, kPatience));
  const ring::Mapping& mapping = memory_->mapping();
  ring::Shared(mapping.completion(mapping.submission(0).completion).state).store(3);
  ring::Shared(mapping.header().bell).store(0xdead);
  ring::FutexWake(mapping.header().bell);
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
}

}  // namespace
}  // namespace reduced::server

// The library's Session over a ring: as one in messages, and how it finds out that it cannot have one.
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "reduced/client.h"
#include "tests/service/held_engine.h"
#include "tests/service/ring_client.h"
#include "tests/service/test_server.h"
#include "tests/support/becomes.h"

namespace reduced::server::ring_session {
namespace {

using client::ArrayView;
using client::Client;
using client::Reply;
using client::Session;
using client::SessionOptions;
using ::testing::HasSubstr;

std::unique_ptr<Session> OpenRing(const std::string& address, SessionOptions options = {}) {
  options.via = "ring";
  auto opened = (*Client::Create({.server = address, .timeout = kPatience}))->OpenSession(options);
  EXPECT_TRUE(opened.ok()) << opened.status();
  return opened.ok() ? *std::move(opened) : nullptr;
}

std::vector<double> Numbers(int count) {
  std::vector<double> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 1);
  return numbers;
}

// 1 to 10, for as long as the process lives.
const std::vector<double>& Ten() {
  static const auto* const ten = new std::vector<double>(Numbers(10));
  return *ten;
}

double SumOf(const absl::StatusOr<Reply>& reply) {
  EXPECT_TRUE(reply.ok()) << reply.status();
  return reply.ok() ? reply->Find("sum")->AsDouble() : -1;
}

// What is answered with arrays: through the ring, or in a message where the request or its answer has no room there.
TEST(RingSessionTest, AnswersWithArraysAsAClientDoes) {
  TestServer server;
  const auto client = *Client::Create({.server = server.address(), .timeout = kPatience});
  const auto resident = client->Put(ArrayView::Of(Ten()));
  ASSERT_TRUE(resident.ok()) << resident.status();
  const std::vector<double> many = Numbers(100'000), few = Numbers(12);
  const std::vector<std::int32_t> keys = {3, 1, 3, 1, 3, 1, 0, 0, 0, 7, 7, 7};
  const std::vector<std::int64_t> offsets = {0, 5, 5, 12};
  const std::vector<std::int64_t> long_keys(many.size(), 5);
  const std::vector<std::string> ops = {"median", "topk( 2 )", "sum", "max"};
  const client::PartitionOptions along{.axis = {-1}}, whole{.whole = true},
      by_key{.keys = {{.keys = ArrayView::Of(keys)}}},
      of_groups{.keys = {{.keys = ArrayView::Of(keys), .groups = 1'000'000}}, .empty = "fill"},
      of_segments{.segments = {{.offsets = ArrayView::Of(offsets)}}, .empty = "fill"},
      by_long_keys{.keys = {{.keys = ArrayView::Of(long_keys)}}};
  struct Case {
    client::ArrayView array;
    const client::PartitionOptions* partition;
    const char* via;  // of a ring
  };
  const auto session = *client->OpenSession({.via = "session"});
  const auto ring = OpenRing(server.address(), {.ring_bytes = 1 << 20});
  ASSERT_NE(ring, nullptr);
  for (const auto& [array, partition, via] :
       {Case{ArrayView::Of(few, {{3, 4}}), &along, "ring"}, Case{ArrayView::Of(few), &whole, "ring"},
        Case{ArrayView::Of(many), &whole, "ring"}, Case{ArrayView::Of(few), &by_key, "ring"},
        Case{ArrayView::Of(few), &of_segments, "ring"}, Case{ArrayView::Of(few), &of_groups, "session"},
        Case{ArrayView::Of(many, {{50'000, 2}}), &along, "session"},
        Case{ArrayView::Of(many), &by_long_keys, "session"}}) {
    const auto expected = client->ReduceArray(array, ops, *partition);
    ASSERT_TRUE(expected.ok()) << expected.status();
    for (Session* const each : {session.get(), ring.get()}) {
      const auto reply = each->ReduceArray(array, ops, *partition);
      ASSERT_TRUE(reply.ok()) << reply.status();
      EXPECT_EQ(reply->via, each == ring.get() ? via : "session");
      EXPECT_EQ(reply->count, expected->count);
      EXPECT_EQ(reply->keys.array.data, expected->keys.array.data);
      ASSERT_EQ(reply->results.size(), ops.size());
      for (std::size_t i = 0; i < ops.size(); ++i) {
        EXPECT_EQ(reply->results[i].op, ops[i]);
        EXPECT_EQ(reply->results[i].array.shape, expected->results[i].array.shape);
        EXPECT_EQ(reply->results[i].array.data, expected->results[i].array.data);
      }
    }
  }
  for (Session* const each : {session.get(), ring.get()}) {
    // Of a whole array, with names as they were written; in a ring also of one that the server has.
    for (const bool there : {false, true}) {
      const auto reply = there ? each->Reduce(*resident, {"topk( 2 )", "median"})
                               : each->Reduce(ArrayView::Of(Ten()), {"topk( 2 )", "median"});
      ASSERT_TRUE(reply.ok()) << reply.status();
      EXPECT_EQ(reply->via, each->via());
      EXPECT_EQ(reply->Find("median")->AsDouble(), 5.5);
      ASSERT_NE(reply->FindArray("topk( 2 )"), nullptr);
      EXPECT_EQ(reply->FindArray("topk( 2 )")->As<double>()[1], 9);
    }
    absl::Notification called;
    absl::StatusOr<Reply> reply;
    each->ReduceAsync(ArrayView::Of(Ten()), {"quantile(0, 1)"}, {}, [&](absl::StatusOr<Reply> answer) {
      reply = std::move(answer);
      called.Notify();
    });
    ASSERT_TRUE(called.WaitForNotificationWithTimeout(kPatience));
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->FindArray("quantile(0, 1)")->As<double>()[1], 10);
    // How many outputs a resident array has, and how large a state is, only the server knows.
    const auto outputs = each->ReduceArray(*resident, {"sum"}, {.axis = {0}});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_EQ(outputs->via, "session");
    const auto state = each->Reduce(ArrayView::Of(Ten()), {"median"}, {.return_state = true, .results = false});
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_EQ(state->via, "session");
    EXPECT_TRUE(client::IsArrayState(state->state));
    // Errors are those of a client.
    for (const std::vector<std::string>& wrong : {std::vector<std::string>{"topk(11)"}, {"mode"}, {"quantile(2)"}}) {
      const absl::Status status = each->Reduce(ArrayView::Of(Ten()), wrong).status();
      const absl::Status expected = client->Reduce(ArrayView::Of(Ten()), wrong).status();
      EXPECT_EQ(status.code(), expected.code());
      EXPECT_EQ(status.message(), expected.message());
    }
  }
}

TEST(RingSessionTest, AnswersAsASessionDoes) {
  TestServer server;
  const auto ring = OpenRing(server.address());
  ASSERT_NE(ring, nullptr);
  EXPECT_EQ(ring->via(), "ring");
  const auto session = *(*Client::Create({.server = server.address()}))->OpenSession({.via = "session"});
  EXPECT_EQ(session->via(), "session");
  const std::vector<std::string> ops = {"sum", "mean", "std", "argmax", "min", "any", "nan_count"};
  for (const int count : {1, 2, 1000, 100'000}) {
    const std::vector<double> numbers = Numbers(count);
    for (const char* const precision : {"", "f64"}) {
      for (const char* const pipeline : {"", "tiled_simd"}) {  // which takes the fixed form and the message
        const client::ReduceOptions options{
            .pipeline = pipeline, .precision = precision, .return_state = *pipeline != 0};
        const auto expected = session->Reduce(ArrayView::Of(numbers), ops, options);
        const auto reply = ring->Reduce(ArrayView::Of(numbers), ops, options);
        ASSERT_TRUE(expected.ok() && reply.ok()) << reply.status();
        EXPECT_EQ(reply->via, "ring");
        EXPECT_EQ(reply->count, count);
        EXPECT_EQ(reply->state, expected->state);
        EXPECT_EQ(reply->execution.pipeline, "tiled_simd");
        EXPECT_EQ(reply->execution.precision, expected->execution.precision);
        EXPECT_EQ(reply->execution.reason, expected->execution.reason);
        EXPECT_EQ(reply->timing.bytes, 8 * count);
        EXPECT_GT(reply->timing.total_us.value_or(0), 0);
        for (const std::string& op : ops) EXPECT_EQ(reply->Find(op)->Text(), expected->Find(op)->Text()) << op;
      }
    }
  }
  // Errors, too.
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"sun"}, {"bit_and"}, {}}) {
    const auto expected = session->Reduce(ArrayView::Of(Ten()), wrong);
    EXPECT_EQ(ring->Reduce(ArrayView::Of(Ten()), wrong).status(), expected.status());
  }
  const std::vector<double> nothing;
  const auto expected = session->Reduce(ArrayView::Of(nothing), {"min"});
  EXPECT_EQ(ring->Reduce(ArrayView::Of(nothing), {"min"}).status(), expected.status());
}

TEST(RingSessionTest, WhatHasNoRoomGoesInAMessage) {
  TestServer server;
  const auto ring = OpenRing(server.address(), {.ring_bytes = 4096});
  ASSERT_NE(ring, nullptr);
  const std::vector<double> numbers = Numbers(1000);
  const auto reply = ring->Reduce(ArrayView::Of(numbers), {"sum"});
  EXPECT_EQ(SumOf(reply), 500'500);
  EXPECT_EQ(reply->via, "session");
  EXPECT_EQ(ring->Reduce(ArrayView::Of(Ten()), {"sum"})->via, "ring");
  absl::Notification done;
  ring->ReduceAsync(ArrayView::Of(numbers), {"sum"}, {}, [&](const absl::StatusOr<Reply>& answer) {
    EXPECT_EQ(SumOf(answer), 500'500);
    done.Notify();
  });
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
}

TEST(RingSessionTest, ResidentArraysAndRegions) {
  TestServer server;
  const auto client = *Client::Create({.server = server.address(), .timeout = kPatience});
  const auto ring = *client->OpenSession({.via = "ring"});
  const std::vector<double> numbers = Numbers(1000);
  const auto array = client->Put(ArrayView::Of(numbers));
  ASSERT_TRUE(array.ok());
  EXPECT_EQ(SumOf(ring->Reduce(*array, {"sum"})), 500'500);
  const auto region = client->Share(ArrayView::Of(numbers));
  ASSERT_TRUE(region.ok());
  EXPECT_EQ(SumOf(ring->Reduce(region->Array("f64", {10}, 8), {"sum"})), 65);
  EXPECT_EQ(SumOf(ring->Reduce(region->Array("f64", {2, 5}, 8), {"sum"}, {.pipeline = "tiled_simd"})), 65);
}

TEST(RingSessionTest, ThreadsShareIt) {
  ServerOptions options;
  options.limits.max_session_requests = 4;  // fewer than there are threads
  TestServer server(options);
  const auto ring = OpenRing(server.address(), {.ring_bytes = 64 << 10});
  ASSERT_NE(ring, nullptr);
  std::vector<std::thread> threads;
  for (int t = 1; t <= 8; ++t) {
    threads.emplace_back([&ring, t] {
      for (int i = 0; i < 200; ++i) {
        const std::vector<double> numbers(static_cast<std::size_t>(10 * t + i % 50), t);
        ASSERT_EQ(SumOf(ring->Reduce(ArrayView::Of(numbers), {"sum"})), static_cast<double>(numbers.size()) * t);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(RingSessionTest, CallbacksRunOneAtATimeAndMaySendMore) {
  TestServer server;
  const auto ring = OpenRing(server.address());
  ASSERT_NE(ring, nullptr);
  constexpr int kRequests = 500;
  absl::BlockingCounter left(2 * kRequests);
  std::atomic<int> running = 0;
  const std::vector<double> numbers = Numbers(10);
  for (int i = 0; i < kRequests; ++i) {  // more than there are slots
    ring->ReduceAsync(ArrayView::Of(numbers), {"sum"}, {}, [&](const absl::StatusOr<Reply>& reply) {
      EXPECT_EQ(running.fetch_add(1), 0);
      EXPECT_EQ(SumOf(reply), 55);
      ring->ReduceAsync(ArrayView::Of(numbers), {"sum"}, {}, [&](const absl::StatusOr<Reply>& second) {
        EXPECT_EQ(SumOf(second), 55);
        left.DecrementCount();
      });
      running.fetch_sub(1);
      left.DecrementCount();
    });
  }
  left.Wait();
}

TEST(RingSessionTest, TimeoutsAndCancellationsEndTheirOwnRequest) {
  HeldServer server(8);
  const auto ring = OpenRing(server->address());
  ASSERT_NE(ring, nullptr);
  const std::vector<double> numbers = Numbers(10);
  const auto late = ring->Reduce(ArrayView::Of(numbers), {"sum"}, {.timeout = absl::Milliseconds(50)});
  EXPECT_EQ(late.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ring->Reduce(ArrayView::Of(numbers), {"sum"}, {.interrupted = [] { return true; }}).status().code(),
            absl::StatusCode::kCancelled);
  absl::Notification cancelled, timed_out, answered;
  client::Call call = ring->ReduceAsync(ArrayView::Of(numbers), {"sum"}, {}, [&](const absl::StatusOr<Reply>& reply) {
    EXPECT_EQ(reply.status().code(), absl::StatusCode::kCancelled);
    cancelled.Notify();
  });
  ring->ReduceAsync(ArrayView::Of(numbers), {"sum"}, {.timeout = absl::Milliseconds(30)},
                    [&](const absl::StatusOr<Reply>& reply) {
                      EXPECT_EQ(reply.status().code(), absl::StatusCode::kDeadlineExceeded);
                      timed_out.Notify();
                    });
  ring->ReduceAsync(ArrayView::Of(numbers), {"sum"}, {}, [&](const absl::StatusOr<Reply>& reply) {
    EXPECT_EQ(SumOf(reply), 55);
    answered.Notify();
  });
  call.Cancel();
  call.Cancel();
  EXPECT_TRUE(cancelled.WaitForNotificationWithTimeout(kPatience));
  EXPECT_TRUE(timed_out.WaitForNotificationWithTimeout(kPatience));
  EXPECT_FALSE(answered.HasBeenNotified());
  // Those that were given up reach the engine as cancelled.
  server.engine().Release();
  EXPECT_TRUE(answered.WaitForNotificationWithTimeout(kPatience));
}

TEST(RingSessionTest, WithoutARingItSaysWhy) {
  ServerOptions options;
  options.limits.max_ring_bytes = 0;
  TestServer none(options);
  const auto client = *Client::Create({.server = none.address(), .timeout = kPatience});
  const auto refused = client->OpenSession({.via = "ring"});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("--max_ring_bytes=0"));
  const auto session = client->OpenSession({.via = "auto"});
  ASSERT_TRUE(session.ok());
  EXPECT_EQ((*session)->via(), "session");
  EXPECT_THAT((*session)->why_not_ring(), HasSubstr("--max_ring_bytes=0"));
  EXPECT_EQ((*session)->Reduce(ArrayView::Of(Ten()), {"sum"})->via, "session");
  EXPECT_THAT(std::string(client->OpenSession({.via = "inline"}).status().message()),
              HasSubstr("via: got \"inline\"; allowed: auto, session, ring"));
  EXPECT_FALSE(client->OpenSession({.via = "ring", .ring_bytes = 0}).ok());

  TestServer with;
  const auto ring = (*Client::Create({.server = with.address()}))->OpenSession();
  ASSERT_TRUE(ring.ok());
  EXPECT_EQ((*ring)->via(), "ring");
  EXPECT_EQ((*ring)->why_not_ring(), "");
  const std::string regions = (*Client::Create({.server = with.address()}))->GetServerInfo()->region_socket;
  std::filesystem::rename(regions, regions + ".elsewhere");
  const auto far = (*Client::Create({.server = with.address()}))->OpenSession();
  ASSERT_TRUE(far.ok());
  EXPECT_EQ((*far)->via(), "session");
  EXPECT_THAT((*far)->why_not_ring(), HasSubstr("this machine has no socket " + regions));
  std::filesystem::rename(regions + ".elsewhere", regions);

  // A server with less room than the default is no reason to have none.
  options.limits.max_ring_bytes = 64 << 10;
  TestServer small(options);
  const auto small_ring = (*Client::Create({.server = small.address()}))->OpenSession();
  ASSERT_TRUE(small_ring.ok());
  EXPECT_EQ((*small_ring)->via(), "ring");
  EXPECT_EQ(SumOf((*small_ring)->Reduce(ArrayView::Of(Ten()), {"sum"})), 55);
  const auto info = (*Client::Create({.server = small.address()}))->GetServerInfo();
  EXPECT_EQ(info->max_ring_bytes, 64 << 10);
  EXPECT_EQ(info->usage.rings, 1);
}

TEST(RingSessionTest, OpensAnotherOneAfterALongPause) {
  ServerOptions options;
  options.limits.timeouts.session_idle = absl::Milliseconds(100);
  TestServer server(options);
  const auto ring = OpenRing(server.address(), {.ring_bytes = 8192});
  ASSERT_NE(ring, nullptr);
  const std::vector<double> large = Numbers(2000);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(SumOf(ring->Reduce(ArrayView::Of(Ten()), {"sum"})), 55);
    EXPECT_TRUE(AwaitRings(server, 0)) << "the server ends idle sessions";
    EXPECT_EQ(ring->Reduce(ArrayView::Of(Ten()), {"sum"})->via, "ring");
    EXPECT_EQ(SumOf(ring->Reduce(ArrayView::Of(large), {"sum"})), 2'001'000) << "in a message of the same session";
  }
}

TEST(RingSessionTest, TheEndOfTheServerIsAnErrorOfEveryRequest) {
  auto server = std::make_unique<HeldServer>(8);
  const auto ring = OpenRing((*server)->address());
  ASSERT_NE(ring, nullptr);
  const std::vector<double> numbers = Numbers(10);
  const client::ReduceOptions soon{.timeout =
                                       absl::Seconds(2)};  // until then another server could take the place of this one
  absl::Notification ended;
  ring->ReduceAsync(ArrayView::Of(numbers), {"sum"}, soon, [&](const absl::StatusOr<Reply>& reply) {
    EXPECT_FALSE(reply.ok());
    ended.Notify();
  });
  ASSERT_TRUE(server->engine().AwaitHeld(1, kPatience));
  std::thread shutdown([&] { (*server)->server().Shutdown(absl::ZeroDuration()); });
  const CancelFlag flag = server->engine().cancelled(0);
  EXPECT_TRUE(AwaitTrue(*flag));
  server->engine().Release();
  shutdown.join();
  EXPECT_TRUE(ended.WaitForNotificationWithTimeout(kPatience));
  EXPECT_FALSE(ring->Reduce(ArrayView::Of(numbers), {"sum"}, soon).ok());
}

TEST(RingSessionTest, ClosingWaitsForWhatIsInFlightAndCancelsTheRest) {
  HeldServer server(8);
  auto ring = OpenRing(server->address(), {.close_timeout = absl::Milliseconds(50)});
  ASSERT_NE(ring, nullptr);
  std::atomic<int> cancelled = 0;
  for (int i = 0; i < 3; ++i) {
    ring->ReduceAsync(ArrayView::Of(Ten()), {"sum"}, {}, [&](const absl::StatusOr<Reply>& reply) {
      if (reply.status().code() == absl::StatusCode::kCancelled) ++cancelled;
    });
  }
  ASSERT_TRUE(server.engine().AwaitHeld(3, kPatience));
  std::thread release([&] {
    EXPECT_TRUE(AwaitTrue(*server.engine().cancelled(0)));
    server.engine().Release();
  });
  ring.reset();
  release.join();
  EXPECT_EQ(cancelled, 3);
  EXPECT_TRUE(AwaitRings(*server, 0));
}

}  // namespace
}  // namespace reduced::server::ring_session

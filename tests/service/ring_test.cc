// Rings, byte by byte: answers and errors of every kind, what a session's limits mean for them, and clients that write
// what they must not, or go away.
#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/array_calls.h"
#include "tests/service/held_engine.h"
#include "tests/service/identities.h"
#include "tests/service/ring_client.h"
#include "tests/support/becomes.h"

namespace reduced::server {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class RingTest : public ::testing::Test {
 protected:
  ~RingTest() override { EXPECT_TRUE(AwaitRings(server_, 0)); }
  std::string socket() { return InfoOf(server_).region_socket(); }

  TestServer server_;
};

TEST_F(RingTest, AnswersOneAfterTheOther) {
  RingClient ring(server_.client());
  ASSERT_NO_FATAL_FAILURE(ring.Open(socket(), 4));
  EXPECT_EQ(ring.mapping().geometry.slots, 4);
  EXPECT_EQ(InfoOf(server_).usage().rings(), 1);
  std::int64_t sum = 0;
  std::vector<std::int32_t> elements;
  for (std::int32_t i = 1; i <= 300; ++i) {
    elements.push_back(i);
    sum += i;
    const std::uint32_t slot = static_cast<std::uint32_t>(i) % 3;
    ASSERT_EQ(ring.Reduce(ring.SumOf(elements, slot)), absl::StrCat("i64:", sum));
    const ring::Completion answer = ring::CopyOut(ring.mapping().completion(slot));
    EXPECT_EQ(answer.id, 100 + slot);
    EXPECT_EQ(answer.count, i);
    EXPECT_EQ(answer.bytes, 4 * i);
    EXPECT_EQ(std::string(answer.device), "cpu");
    EXPECT_EQ(std::string(answer.pipeline), "tiled_simd");
    EXPECT_GT(answer.micros[ring::kTotal], 0);
  }
  EXPECT_TRUE(ring.End(/*half_close=*/true).ok());
  EXPECT_TRUE(ring.ended());
}

TEST_F(RingTest, LargeArraysWaitForALaneAndAreReducedInTheArena) {
  RingClient ring(server_.client());
  ASSERT_NO_FATAL_FAILURE(ring.Open(socket(), 2, 8 << 20));
  EXPECT_EQ(ring.Reduce(ring.SumOf(std::vector<std::int32_t>(1'000'000, 3))), "i64:3000000");
}

TEST_F(RingTest, ReducesResidentArraysAndRegions) {
  RingClient ring(server_.client());
  ASSERT_NO_FATAL_FAILURE(ring.Open(socket()));
  const v1::ArrayInfo array = PutBytes(server_.client(), 1000);
  ring::Submission submission = ring.SumOf({});
  submission.source = static_cast<std::uint8_t>(ring::Source::kResident);
  std::memcpy(submission.name, array.id().data(), array.id().size());
  EXPECT_EQ(ring.Reduce(submission), "u64:1000");

  Sharer sharer(socket());
  const Descriptor memory(NumbersInMemory(1000, kSeals));
  const std::string token = sharer.Share(memory).token();
  submission.source = static_cast<std::uint8_t>(ring::Source::kRegion);
  std::memcpy(submission.name, token.data(), token.size());
  submission.count = 999;
  submission.offset = 4;
  EXPECT_EQ(ring.Reduce(submission), "i64:500499");
  submission.count = 1000;
  EXPECT_THAT(ring.Reduce(submission), StartsWith("11 region: got an array of 4000 bytes"));
  submission.name[0] = '?';
  EXPECT_THAT(ring.Reduce(submission), StartsWith("5 region.token: got one of no shared region"));
}

// Answers that are arrays need a message, and room for the response: without it nothing is kept.
TEST_F(RingTest, AnswersThatAreArrays) {
  RingClient ring(server_.client());
  ASSERT_NO_FATAL_FAILURE(ring.Open(socket()));
  ring::Submission fixed = ring.SumOf({1, 2, 3});
  fixed.ops[0] = v1::OP_MEDIAN;
  EXPECT_EQ(ring.Reduce(fixed),
            "3 ops[0]: got OP_MEDIAN, whose answer is an array, in the fixed form; allowed: in a message");

  v1::ReduceRequest request = RequestOf<std::int32_t>(v1::DTYPE_I32, {5, 1, 3, 2, 9, 4}, {});
  request.mutable_array()->clear_shape();
  request.mutable_array()->add_shape(2);
  request.mutable_array()->add_shape(3);
  request.add_calls()->set_op(v1::OP_MEDIAN);
  request.mutable_calls()->Add()->set_op(v1::OP_TOPK);
  request.mutable_calls(1)->mutable_top()->set_k(2);
  request.mutable_axes()->add_axis(1);
  v1::ReduceResponse expected;
  ASSERT_TRUE(server_.client().Reduce(request, &expected).ok());
  const auto submit = [&](std::uint64_t reply_bytes) {
    const std::string message = request.SerializeAsString();
    ring::Submission submission = ring.SumOf({});
    submission.source = 0;
    submission.message_offset = 1000;
    submission.message_bytes = message.size();
    submission.reply_offset = 2000;
    submission.reply_bytes = reply_bytes;
    std::memcpy(ring.mapping().arena() + 1000, message.data(), message.size());
    return ring.Reduce(submission);
  };
  submit(4096);
  const ring::Completion answer = ring::CopyOut(ring.mapping().completion(0));
  ASSERT_EQ(answer.code, 0) << ring::TextOf(answer);
  v1::ReduceResponse response;
  ASSERT_TRUE(response.ParseFromArray(ring.mapping().arena() + 2000, static_cast<int>(answer.reply_bytes)));
  ASSERT_EQ(response.arrays_size(), 2);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(response.arrays(i).data(), expected.arrays(i).data());

  EXPECT_THAT(submit(8), StartsWith("11 reply: got 8 bytes for an answer of "));
  request.mutable_keep();
  EXPECT_THAT(submit(8), StartsWith("11 reply: got 8 bytes for an answer of "));
  EXPECT_EQ(InfoOf(server_).usage().arrays(), 0);
  submit(4096);
  EXPECT_EQ(InfoOf(server_).usage().arrays(), 2);
}

TEST_F(RingTest, MessagesHaveWhatTheFixedFormLacks) {
  RingClient ring(server_.client());
  ASSERT_NO_FATAL_FAILURE(ring.Open(socket()));
  v1::ReduceRequest request = RequestOf<float>(v1::DTYPE_F32, {1, 2, 3.5}, {v1::OP_SUM});
  request.set_return_state(true);
  request.mutable_options()->set_pipeline("tiled_simd");
  v1::ReduceResponse expected;
  ASSERT_TRUE(server_.client().Reduce(request, &expected).ok());
  for (const bool in_arena : {false, true}) {
    ring::Submission submission = ring.SumOf({});
    submission.source = 0;
    if (in_arena) {
      submission.source = static_cast<std::uint8_t>(ring::Source::kArena);
      submission.offset = 64;
      submission.bytes = request.inline_data().size();
      std::memcpy(ring.mapping().arena() + 64, request.inline_data().data(), request.inline_data().size());
      request.clear_inline_data();
    }
    const std::string message = request.SerializeAsString();
    submission.message_offset = 1000;
    submission.message_bytes = message.size();
    submission.reply_offset = 2000;
    submission.reply_bytes = 4096;
    std::memcpy(ring.mapping().arena() + 1000, message.data(), message.size());
    ring.Reduce(submission);
    const ring::Completion answer = ring::CopyOut(ring.mapping().completion(0));
    ASSERT_EQ(answer.code, 0) << ring::TextOf(answer);
    v1::ReduceResponse response;
    ASSERT_TRUE(response.ParseFromArray(ring.mapping().arena() + 2000, static_cast<int>(answer.reply_bytes)));
    EXPECT_EQ(Texts(response), Texts(expected));
    EXPECT_EQ(response.state().SerializeAsString(), expected.state().SerializeAsString());
    submission.reply_bytes = 10;
    EXPECT_THAT(ring.Reduce(submission), StartsWith("11 reply: got 10 bytes for an answer of"));
  }
}

TEST_F(RingTest, ErrorsAreThoseOfTheirRequest) {
  RingClient ring(server_.client());
  ASSERT_NO_FATAL_FAILURE(ring.Open(socket(), 8, 1 << 16));
  const std::uint64_t arena = ring.mapping().geometry.arena_bytes;
  const ring::Submission right = ring.SumOf({1, 2, 3});
  for (int byte = 100; byte < 3000; ++byte)
    ring.mapping().arena()[byte] = static_cast<std::byte>(byte % 2 == 0 ? 0x7a : 0);
  struct Row {
    void (*change)(ring::Submission&);
    const char* error;
  };
  const Row rows[] = {
      {[](auto& s) { s.dtype = 99; }, "3 array.dtype: got 99"},
      {[](auto& s) { s.op_count = 0; }, "3 ops: got 0 operations"},
      {[](auto& s) { s.op_count = 17; }, "3 op_count: got 17; allowed: 1 to 16"},
      {[](auto& s) { s.ops[0] = 200; }, "3 ops[0]: got 200"},
      {[](auto& s) { s.engine = 7; }, "3 options.engine: got 7"},
      {[](auto& s) { s.precision = 7; }, "3 options.precision: got 7"},
      {[](auto& s) { s.nan_policy = 255; }, "3 options.nan_policy: got 255"},
      {[](auto& s) { s.overflow_policy = 7; }, "3 options.overflow_policy: got 7"},
      {[](auto& s) { s.ddof = -1; }, "3 "},
      {[](auto& s) { s.count = -1; }, "3 array.shape[0]: got -1"},
      {[](auto& s) { s.count = 4; }, "3 elements: got 12 bytes; allowed: 4 x 4 bytes"},
      {[](auto& s) { s.source = 0; }, "3 source: got 0 without a message"},
      {[](auto& s) { s.source = 4; }, "3 source: got 4 without a message"},
      {[](auto& s) { s.offset = ~std::uint64_t{0}; }, "11 elements: got 12 bytes from byte 18446744073709551615 on"},
      {[](auto& s) { s.bytes = ~std::uint64_t{0}; }, "11 elements: got 18446744073709551615 bytes"},
      {[](auto& s) { s.offset = (1 << 16) - 11; }, "11 elements: got 12 bytes from byte 65525 on"},
      {[](auto& s) { s.message_bytes = std::uint64_t{1} << 40; }, "8 message: got 1099511627776 bytes"},
      {[](auto& s) { s.message_bytes = 1 << 17; }, "3 message: got 131072 bytes; allowed: 65536"},
      {[](auto& s) { s.message_bytes = 100, s.message_offset = (1 << 16) - 99; }, "11 message: got 100 bytes"},
      {[](auto& s) { s.message_bytes = 9, s.reply_bytes = ~0UL; }, "11 reply: got 18446744073709551615 bytes"},
      {[](auto& s) { s.message_bytes = 9; }, "3 message: got bytes that are not a ReduceRequest"},
      {[](auto& s) { s.message_bytes = 2900, s.message_offset = 100; },
       "3 ReduceRequest: got more than 1000 unknown fields; allowed: 1000"},
      {[](auto& s) { s.source = 2; }, "5 "},
  };
  EXPECT_EQ(arena, 1U << 16);
  for (const Row& row : rows) {
    ring::Submission wrong = right;
    row.change(wrong);
    EXPECT_THAT(ring.Reduce(wrong), StartsWith(row.error));
    EXPECT_EQ(ring.Reduce(right), "i64:6") << "after: " << row.error;
  }
}

TEST_F(RingTest, OpenRingHasItsErrors) {
  RingClient ring(server_.client());
  EXPECT_THAT(ring.Ask(-1).message(), StartsWith("open_ring.slots: got -1"));
  EXPECT_THAT(ring.Ask(0, -1).message(), StartsWith("open_ring.arena_bytes: got -1"));
  EXPECT_THAT(ring.Ask(0, std::int64_t{1} << 40).message(), HasSubstr("allowed: 0 to 67108864 (--max_ring_bytes)"));
  ASSERT_NO_FATAL_FAILURE(ring.Open(socket(), 7, 1));
  EXPECT_EQ(ring.mapping().geometry.slots, 4) << "a power of two";
  EXPECT_EQ(ring.mapping().geometry.arena_bytes, 4096) << "whole pages";
  EXPECT_THAT(ring.Ask().message(), HasSubstr("the session has a ring"));
  EXPECT_EQ(ring.Reduce(ring.SumOf({1, 2})), "i64:3");
}

TEST_F(RingTest, ATokenIsForOne) {
  RingClient ring(server_.client());
  const v1::SessionResponse response = ring.Ask();
  ASSERT_EQ(response.code(), 0) << response.message();
  EXPECT_EQ(ring.Take(socket(), "guessed").code(), grpc::StatusCode::NOT_FOUND);
  ASSERT_EQ(ring.Take(socket(), response.ring().token()).code(), 0);
  EXPECT_THAT(ring.Take(socket(), response.ring().token()).message(), HasSubstr("of no ring that waits for it"));
  EXPECT_EQ(ring.Reduce(ring.SumOf({1, 2})), "i64:3");
  RingClient other(server_.client());
  const std::string token = other.Ask().ring().token();
  EXPECT_TRUE(other.End(/*half_close=*/true).ok());
  EXPECT_EQ(other.Take(socket(), token).code(), grpc::StatusCode::NOT_FOUND) << "its session is over";
}

// The server must survive, and end this client only.
TEST_F(RingTest, WhatBreaksTheProtocolEndsTheSession) {
  struct Row {
    void (*change)(ring::Submission&);
    std::uint64_t sequence;
    const char* error;
  };
  const Row rows[] = {
      {[](auto& s) { s.kind = 9; }, 1, "ring: kind: got 9; allowed: 1 (reduce), 2 (cancel)"},
      {[](auto& s) { s.completion = 8; }, 1, "ring: completion: got 8; allowed: 0 to 7"},
      {[](auto& s) { s.completion = 0xffffffff; }, 1, "ring: completion: got 4294967295"},
      {[](auto&) {}, 2, "ring: sequence: got 2; allowed: 1"},
      {[](auto&) {}, 0x8000000000000000, "ring: sequence: got 9223372036854775808; allowed: 1"},
  };
  RingClient other(server_.client());
  ASSERT_NO_FATAL_FAILURE(other.Open(socket(), 8));
  for (const Row& row : rows) {
    RingClient ring(server_.client());
    ASSERT_NO_FATAL_FAILURE(ring.Open(socket(), 8));
    ring::Submission wrong = ring.SumOf({1});
    row.change(wrong);
    ring.Publish(wrong, row.sequence);
    const grpc::Status status = ring.End();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr(row.error));
    EXPECT_TRUE(ring.AwaitEnded());
    EXPECT_EQ(other.Reduce(other.SumOf({1, 2})), "i64:3");
  }
}

TEST_F(RingTest, RandomBytesAtRandomTimes) {
  RingClient other(server_.client());
  ASSERT_NO_FATAL_FAILURE(other.Open(socket(), 8));
  std::mt19937_64 random(1);
  for (int round = 0; round < 30; ++round) {
    RingClient ring(server_.client());
    ASSERT_NO_FATAL_FAILURE(ring.Open(socket(), 4, 1 << 16));
    const std::uint64_t bytes = ring.mapping().geometry.arena();
    std::atomic<bool> stop = false;
    std::thread writer([&, seed = random()] {  // also over what the server has written
      std::mt19937_64 choice(seed);
      while (!stop) {
        std::uint64_t at = choice() % (bytes / 8) * 8;
        // Of the submissions mostly the fields, so that some are taken.
        if (at >= ring::kPageBytes && at % sizeof(ring::Submission) == 0 && choice() % 4 != 0) at += 8;
        __atomic_store_n(reinterpret_cast<std::uint64_t*>(ring.mapping().data + at), choice() >> (choice() % 64),
                         __ATOMIC_RELAXED);
      }
    });
    for (std::uint32_t i = 0; i < 50 && !ring.ended(); ++i) {
      ring::Submission submission = ring.SumOf({1, 2, 3}, i % 4);
      reinterpret_cast<unsigned char*>(&submission)[8 + random() % (sizeof(submission) - 8)] =
          static_cast<unsigned char>(random());
      ring.Submit(submission);
    }
    stop = true;
    writer.join();
    ring.Vanish();
    ASSERT_EQ(other.Reduce(other.SumOf({1, 2})), "i64:3");
  }
}

// The elements of a region may change during a reduction, and so may these.
TEST_F(RingTest, MemoryThatIsPunchedOutOrChangesIsJustOther) {
  RingClient ring(server_.client());
  ASSERT_NO_FATAL_FAILURE(ring.Open(socket(), 4, 1 << 20));
  EXPECT_LT(ftruncate(ring.memory(), 4096), 0) << "it could shrink";
  EXPECT_LT(ftruncate(ring.memory(), 1 << 30), 0) << "it could grow";
  const ring::Submission submission = ring.SumOf(std::vector<std::int32_t>(100'000, 7));
  std::atomic<bool> stop = false;
  std::thread puncher([&] {
    while (!stop) {
      fallocate(ring.memory(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                static_cast<off_t>(ring.mapping().geometry.arena()), 1 << 20);
    }
  });
  for (int i = 0; i < 50; ++i) EXPECT_THAT(ring.Reduce(submission), StartsWith("i64:"));
  stop = true;
  puncher.join();
  EXPECT_EQ(ring.Reduce(ring.SumOf({1, 2})), "i64:3");
}

TEST_F(RingTest, IdleRingsAreWokenByTheirDoorbell) {
  std::vector<std::unique_ptr<RingClient>> rings;
  for (int i = 0; i < 20; ++i) {
    rings.push_back(std::make_unique<RingClient>(server_.client()));
    ASSERT_NO_FATAL_FAILURE(rings.back()->Open(socket(), 2, 4096));
  }
  for (const auto& ring : rings) {
    const auto asleep = [&] { return ring::Shared(ring->mapping().header().asleep).load() == 1; };
    EXPECT_TRUE(Becomes(kPatience, asleep));
  }
  for (int round = 0; round < 3; ++round) {
    for (const auto& ring : rings) EXPECT_EQ(ring->Reduce(ring->SumOf({round, 2})), absl::StrCat("i64:", round + 2));
  }
}

TEST(RingHeldTest, CancelsTheOneThatIsNamedAndEndsByTheTimeout) {
  HeldServer server(8);
  RingClient ring(server->client());
  ASSERT_NO_FATAL_FAILURE(ring.Open(InfoOf(*server).region_socket()));
  ring::Submission cancel{};
  cancel.kind = static_cast<std::uint8_t>(ring::Kind::kCancel);
  cancel.completion = 0xffffffff;
  cancel.id = 100;
  ring.Submit(cancel);  // before it is there: nothing happens
  ring.Submit(ring.SumOf({1, 2}, 0));
  ring.Submit(ring.SumOf({1, 2}, 1));
  ASSERT_TRUE(server.engine().AwaitHeld(2, kPatience));
  const CancelFlag first = server.engine().cancelled(0);
  ring.Submit(cancel);
  EXPECT_TRUE(Becomes(kPatience, [&] { return first->load(); }));
  EXPECT_FALSE(*server.engine().cancelled(1));
  server.engine().Release();
  EXPECT_THAT(ring.Await(0), StartsWith("1 "));
  EXPECT_EQ(ring.Await(1), "i64:3");

  ring::Submission late = ring.SumOf({1, 2});
  late.timeout_us = 1;
  EXPECT_THAT(ring.Reduce(late), StartsWith("4 "));
}

TEST(RingHeldTest, ACompletionIsForOneRequest) {
  HeldServer server(8);
  RingClient ring(server->client());
  ASSERT_NO_FATAL_FAILURE(ring.Open(InfoOf(*server).region_socket()));
  ring.Submit(ring.SumOf({1, 2}, 3));
  ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
  const CancelFlag first = server.engine().cancelled(0);
  ring.Submit(ring.SumOf({1, 2}, 3));
  EXPECT_TRUE(Becomes(kPatience, [&] { return first->load(); })) << "the session ends";
  server.engine().Release();
  EXPECT_THAT(ring.End().error_message(), HasSubstr("ring: completion: got 3, of a request under way"));
  EXPECT_TRUE(AwaitRings(*server, 0));
}

TEST(RingHeldTest, AClientThatGoesAwayIsReapedOnceItsWorkIsDone) {
  HeldServer server(8);
  {
    RingClient ring(server->client());
    ASSERT_NO_FATAL_FAILURE(ring.Open(InfoOf(*server).region_socket()));
    ring.Submit(ring.SumOf({1, 2}, 0));
    ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
    const CancelFlag flag = server.engine().cancelled(0);
    ring.Vanish();
    ring.Unmap();
    EXPECT_TRUE(Becomes(kPatience, [&] { return flag->load(); }));
    EXPECT_EQ(InfoOf(*server).usage().sessions(), 1) << "the request still uses its memory";
  }
  server.engine().Release();
  EXPECT_TRUE(AwaitRings(*server, 0));
}

TEST(RingHeldTest, ADrainFinishesWhatIsThereAndRefusesTheRest) {
  HeldServer server(8);
  RingClient ring(server->client());
  ASSERT_NO_FATAL_FAILURE(ring.Open(InfoOf(*server).region_socket()));
  ring.Submit(ring.SumOf({1, 2}, 0));
  ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
  server->server().Drain();
  EXPECT_THAT(ring.Reduce(ring.SumOf({1, 2}, 1)), StartsWith("14 the server is draining"));
  std::thread shutdown([&server] { server->server().Shutdown(kPatience); });
  server.engine().Release();
  EXPECT_EQ(ring.Await(0), "i64:3");
  shutdown.join();
  EXPECT_TRUE(ring.AwaitEnded());
}

TEST(RingLimitsTest, AreThoseOfSessionsAndOfMemory) {
  ServerOptions options;
  options.limits.max_sessions = 2;
  options.limits.max_session_requests = 3;
  options.engines.memory = std::make_shared<MemoryBudget>(1 << 20);
  TestServer server(options);
  const std::string socket = InfoOf(server).region_socket();
  RingClient first(server.client());
  ASSERT_NO_FATAL_FAILURE(first.Open(socket, 0, 600 << 10));
  EXPECT_EQ(first.mapping().geometry.slots, 2);
  RingClient second(server.client());
  ASSERT_NO_FATAL_FAILURE(second.Open(socket, 0, 600 << 10)) << "an arena takes nothing until it is used";
  RingClient third(server.client());
  EXPECT_EQ(third.Ask().code(), -1);
  EXPECT_EQ(third.End().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  const std::vector<std::int32_t> many(140 << 10, 1);
  EXPECT_EQ(first.Reduce(first.SumOf(many)), absl::StrCat("i64:", many.size()));
  EXPECT_GE(options.engines.memory->taken(), 560 << 10);
  const std::string full = second.Reduce(second.SumOf(many));
  EXPECT_THAT(full, StartsWith("8 the server has no memory for a ring's arena, 573440 bytes"));
  EXPECT_EQ(second.Reduce(second.SumOf({1})), "i64:1");
  EXPECT_EQ(first.Reduce(first.SumOf({1})), "i64:1");
  first.End(/*half_close=*/true);
  ASSERT_TRUE(AwaitRings(server, 1));
  EXPECT_EQ(second.Reduce(second.SumOf(many)), absl::StrCat("i64:", many.size()));
}

TEST(RingLimitsTest, AServerCanHaveNone) {
  ServerOptions options;
  options.limits.max_ring_bytes = 0;
  TestServer none(options);
  RingClient ring(none.client());
  EXPECT_EQ(ring.Ask().code(), grpc::StatusCode::FAILED_PRECONDITION);
  options = {};
  options.region_socket = "";
  TestServer no_socket(options);
  RingClient without(no_socket.client());
  EXPECT_THAT(without.Ask().message(), HasSubstr("--region_socket"));
}

TEST(RingLimitsTest, ARingThatIsUsedIsNotIdle) {
  ServerOptions options;
  options.limits.timeouts.session_idle = absl::Milliseconds(300);
  TestServer server(options);
  RingClient ring(server.client());
  ASSERT_NO_FATAL_FAILURE(ring.Open(InfoOf(server).region_socket()));
  for (const absl::Time end = absl::Now() + absl::Milliseconds(1200); absl::Now() < end;) {
    ASSERT_EQ(ring.Reduce(ring.SumOf({1})), "i64:1");
  }
  EXPECT_TRUE(ring.AwaitEnded()) << "once it is idle";
  EXPECT_EQ(ring.End().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(AwaitRings(server, 0));
}

using RingSecurityTest = SecurityTest;

TEST_F(RingSecurityTest, ARingIsItsSessionsCaller) {
  ServerOptions options = Options();
  options.security.max_identity_sessions = 1;
  TestServer server(options);
  std::string id;
  ASSERT_TRUE(Put(server, kAsAlice, "", &id).ok());
  const auto as = [&](const char* token) { return std::make_unique<RingClient>(server.client(), kPatience, token); };
  EXPECT_EQ(as("")->End().error_code(), grpc::StatusCode::UNAUTHENTICATED);
  const auto alice = as(kAliceToken);
  const auto bob = as(kBobToken);
  // GetServerInfo needs a token here.
  const std::string socket = server.address().substr(5) + ".regions";
  ASSERT_NO_FATAL_FAILURE(alice->Open(socket));
  ASSERT_NO_FATAL_FAILURE(bob->Open(socket));
  const auto second = as(kAliceToken);
  EXPECT_EQ(second->Ask().code(), -1);
  EXPECT_THAT(second->End().error_message(), HasSubstr("--max_identity_sessions"));
  for (RingClient* const ring : {alice.get(), bob.get()}) {
    ring::Submission submission = ring->SumOf({});
    submission.source = static_cast<std::uint8_t>(ring::Source::kResident);
    std::memcpy(submission.name, id.data(), id.size());
    EXPECT_THAT(ring->Reduce(submission), StartsWith(ring == alice.get() ? "u64:" : "7 "));
  }
  Write(kBob);  // alice's token is withdrawn
  EXPECT_TRUE(Becomes(kPatience, [&] { return alice->Reduce(alice->SumOf({1})).substr(0, 3) == "16 "; }));
  EXPECT_EQ(bob->Reduce(bob->SumOf({1})), "i64:1");
}

}  // namespace
}  // namespace reduced::server

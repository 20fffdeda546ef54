// Clients that make no progress: their calls end, what they hold returns, and nobody else notices. Where the server is
// to blame, calls go on.
#include <malloc.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/chunk_stream.h"
#include "tests/service/held_engine.h"
#include "tests/service/test_server.h"
#include "tests/service/unread_call.h"
#include "tests/support/becomes.h"

namespace reduced::server {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kManyCalls = std::int64_t{1} << 20;  // elements

// One of the timeouts is short, the others are as long as no test takes.
ServerOptions With(absl::Duration Timeouts::*timeout, absl::Duration limit = absl::Milliseconds(200)) {
  ServerOptions options;
  options.limits.timeouts = {.header = 2 * kPatience, .progress = 2 * kPatience, .session_idle = 2 * kPatience};
  options.limits.timeouts.*timeout = limit;
  return options;
}

v1::ReduceRequest StreamHeader() { return HeaderOf(v1::DTYPE_F32, kManyCalls, {v1::OP_SUM}); }

v1::PutArrayHeader PutHeader(std::int64_t elements) {
  v1::PutArrayHeader header;
  header.mutable_array()->set_dtype(v1::DTYPE_U8);
  header.mutable_array()->add_shape(elements);
  return header;
}

void ExpectEnded(const grpc::Status& status, const std::string& why) {
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(status.error_message(), why);
}

// Waits until nothing is in use: false after kPatience.
bool AwaitIdle(const TestClient& client) {
  const absl::Time deadline = absl::Now() + kPatience;
  v1::GetServerInfoResponse info;
  do {
    if (absl::Now() > deadline) return false;
    info.Clear();
    if (!const_cast<TestClient&>(client).Info(&info).ok()) return false;
  } while (info.usage().streams() + info.usage().sessions() > 0);
  return true;
}

TEST(TimeoutsTest, AStreamWithoutAHeader) {
  TestServer server(With(&Timeouts::header));
  ReduceStreamCall stream(server.client());
  PutArrayCall put(server.client());
  ExpectEnded(stream.Await(), "no header for 200ms; see --header_timeout");
  ExpectEnded(put.Await(), "no header for 200ms; see --header_timeout");
}

TEST(TimeoutsTest, StalledStreamsReturnTheirSlots) {
  ServerOptions options = With(&Timeouts::progress);
  options.limits.max_streams = 2;
  TestServer server(options);
  const std::string elements = ElementsOf(DType::kF32, kManyCalls);
  for (const std::string& begin : {std::string(), elements.substr(0, 1 << 20)}) {
    ReduceStreamCall first(server.client());
    PutArrayCall second(server.client());
    ASSERT_TRUE(first.Header(StreamHeader()));
    ASSERT_TRUE(second.Header(PutHeader(kManyCalls)));
    if (!begin.empty()) {
      ASSERT_TRUE(first.Chunk(begin));
      ASSERT_TRUE(second.Chunk(begin.substr(1)));
    }
    ExpectEnded(first.Await(), "no message for 200ms; see --progress_timeout");
    ExpectEnded(second.Await(), "no message for 200ms; see --progress_timeout");
  }
  ReduceStreamCall honest(server.client());
  ASSERT_TRUE(honest.Header(StreamHeader()));
  ASSERT_TRUE(honest.Chunk(elements));
  EXPECT_TRUE(honest.End().ok());
  EXPECT_TRUE(AwaitIdle(server.client()));
}

// A header alone reserves the memory of its array.
TEST(TimeoutsTest, AStalledPutReturnsItsMemory) {
  TestServer server(With(&Timeouts::progress));
  const DeviceInfo device = CpuEngine().info();
  const std::int64_t all = device.array_bytes_limit - device.array_bytes;
  PutArrayCall stalled(server.client());
  ASSERT_TRUE(stalled.Header(PutHeader(all)));
  ExpectEnded(stalled.Await(), "no message for 200ms; see --progress_timeout");
  EXPECT_EQ(CpuEngine().info().array_bytes, device.array_bytes);
}

TEST(TimeoutsTest, APartWhoseOthersNeverCome) {
  TestServer server(With(&Timeouts::progress));
  ReduceStreamCall part(server.client());
  v1::ReduceStreamRequest first;
  *first.mutable_header() = StreamHeader();
  first.mutable_stream_part()->set_upload("u");
  first.mutable_stream_part()->set_parts(2);
  first.mutable_stream_part()->set_count(1024);
  ASSERT_TRUE(part.Write(first));
  ASSERT_TRUE(part.Chunk(ElementsOf(DType::kF32, 1024)));
  ExpectEnded(part.End(), "other parts of the upload have not begun for 200ms; see --progress_timeout");
  EXPECT_TRUE(AwaitIdle(server.client()));
}

// A part that is done waits for as long as the engine has another part.
TEST(TimeoutsTest, APartWaitsForTheOthersOnceTheyHaveBegun) {
  HeldServer server(8, With(&Timeouts::progress));
  constexpr int kParts = 2;
  constexpr std::int64_t kElements = 1024;  // of each
  ReduceStreamCall parts[kParts] = {ReduceStreamCall(server->client()), ReduceStreamCall(server->client())};
  for (int i = 0; i < kParts; ++i) {
    v1::ReduceStreamRequest first;
    *first.mutable_header() = HeaderOf(v1::DTYPE_U8, kParts * kElements, {v1::OP_SUM});
    v1::StreamPart& part = *first.mutable_stream_part();
    part.set_upload("u");
    part.set_parts(kParts);
    part.set_index(i);
    part.set_first(i * kElements);
    part.set_count(kElements);
    ASSERT_TRUE(parts[i].Write(first));
    ASSERT_TRUE(parts[i].Chunk(std::string(kElements, '\1')));
    parts[i].HalfClose();
    ASSERT_TRUE(server.engine().AwaitHeld(i + 1, kPatience));
  }
  server.engine().ReleaseFirst();
  for (int i = 0; i < 3; ++i) {  // each takes as long as a part may wait for others that have not begun
    ReduceStreamCall stalled(server->client());
    ASSERT_TRUE(stalled.Header(StreamHeader()));
    EXPECT_EQ(stalled.Await().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  }
  server.engine().Release();
  for (ReduceStreamCall& part : parts) {
    const grpc::Status status = part.Await();
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(Text(part.response().results(0).value()), "u64:2048");
  }
  EXPECT_TRUE(AwaitIdle(server->client()));
}

// While the engine has as much as the stream may have, its next message is not read: that is not the client's fault.
TEST(TimeoutsTest, AStreamThatWaitsForTheEngineGoesOn) {
  HeldServer server(8, With(&Timeouts::progress));
  const std::int64_t count = 3 * CpuEngine().staging_bytes() / 4;
  const std::string elements = ElementsOf(DType::kF32, count);
  ReduceStreamCall patient(server->client());
  ASSERT_TRUE(patient.Header(HeaderOf(v1::DTYPE_F32, count, {v1::OP_SUM})));
  std::thread sender([&] {
    for (std::size_t at = 0; at < elements.size(); at += 1 << 20) patient.Chunk(elements.substr(at, 1 << 20));
    patient.HalfClose();
  });
  EXPECT_TRUE(server.engine().AwaitHeld(1, kPatience));
  for (int i = 0; i < 3; ++i) {  // each takes as long as a stream may stall
    ReduceStreamCall stalled(server->client());
    ASSERT_TRUE(stalled.Header(StreamHeader()));
    EXPECT_EQ(stalled.Await().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  }
  server.engine().Release();
  sender.join();
  EXPECT_TRUE(patient.Await().ok());
}

using SessionStream = std::unique_ptr<grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionResponse>>;

v1::SessionRequest SumInSession(std::uint64_t id) {
  v1::SessionRequest request;
  request.set_id(id);
  *request.mutable_reduce() = SmallSum();
  return request;
}

TEST(TimeoutsTest, IdleSessionsEndAndBusyOnesDoNot) {
  ServerOptions options = With(&Timeouts::session_idle);
  options.limits.max_sessions = 2;
  HeldServer server(8, options);
  const auto stub = v1::Reduction::NewStub(server->client().channel());
  grpc::ClientContext busy_context;
  SetContextDeadline(&busy_context);
  const SessionStream busy = stub->Session(&busy_context);
  ASSERT_TRUE(busy->Write(SumInSession(7)));
  ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
  v1::SessionResponse response;
  for (int i = 0; i < 3; ++i) {
    grpc::ClientContext context;
    SetContextDeadline(&context);
    const SessionStream idle = stub->Session(&context);
    EXPECT_FALSE(idle->Read(&response));
    ExpectEnded(idle->Finish(), "no request for 200ms; see --session_idle_timeout");
  }
  server.engine().Release();
  ASSERT_TRUE(busy->Read(&response));
  EXPECT_EQ(response.id(), 7);
  EXPECT_FALSE(busy->Read(&response));  // idle from now on
  ExpectEnded(busy->Finish(), "no request for 200ms; see --session_idle_timeout");
  EXPECT_TRUE(AwaitIdle(server->client()));
}

// One whose response is larger than a window.
v1::ReduceRequest ManySums() {
  v1::ReduceRequest request = SmallSum();
  while (request.ops_size() < 4096) request.add_ops(v1::OP_SUM);
  return request;
}

TEST(TimeoutsTest, ASessionWhoseAnswersNobodyReads) {
  ServerOptions options = With(&Timeouts::progress);
  options.limits.max_ops = 4096;
  TestServer server(options);
  v1::SessionRequest request;
  *request.mutable_reduce() = ManySums();
  UnreadCall unread(NarrowChannel(server.address()), "Session", request);
  ASSERT_TRUE(unread.AwaitResponse());
  EXPECT_TRUE(AwaitIdle(server.client()));
  unread.Cancel();
  EXPECT_FALSE(unread.Await().ok());
}

// Its steps are larger than a window.
class LoquaciousEngine final : public SharedEngine {
 public:
  void Measure(Job job, int repeats, Measured done) override {
    SharedEngine::Measure(std::move(job), repeats,
                          [done = std::move(done)](absl::StatusOr<Measurement> measured) mutable {
                            if (measured.ok()) measured->kernel_us.resize(20'000);
                            std::move(done)(std::move(measured));
                          });
  }
};

// One ladder runs at a time: whoever does not read holds up the others.
TEST(TimeoutsTest, ALadderThatNobodyReads) {
  TestServer server(With(&Timeouts::progress, absl::Seconds(1)), OnlyEngine(std::make_unique<LoquaciousEngine>()));
  v1::LadderRequest request;
  request.set_dtype(v1::DTYPE_F32);
  request.set_op(v1::OP_SUM);
  request.set_count(1000);
  request.set_repeats(1);
  UnreadCall unread(NarrowChannel(server.address()), "Ladder", request);
  ASSERT_TRUE(unread.AwaitResponse());
  grpc::ClientContext context;
  SetContextDeadline(&context);
  const auto reader = v1::Reduction::NewStub(server.client().channel())->Ladder(&context, request);
  v1::LadderReply reply;
  while (reader->Read(&reply)) {
  }
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  unread.Cancel();
  EXPECT_FALSE(unread.Await().ok());
}

TEST(TimeoutsTest, AResponseThatNobodyReads) {
  ServerOptions options = With(&Timeouts::progress);
  options.limits.max_ops = 4096;
  TestServer server(options);
  UnreadCall unread(NarrowChannel(server.address()), "Reduce", ManySums());
  ASSERT_TRUE(unread.AwaitResponse());
  EXPECT_TRUE(Becomes(kPatience, [&] { return server.server().IsIdle(); }));
  unread.Cancel();
  EXPECT_FALSE(unread.Await().ok());
}

std::int64_t HeapInUse() {
  const struct mallinfo2 heap = mallinfo2();
  return static_cast<std::int64_t>(heap.uordblks + heap.hblkhd);
}

TEST(TimeoutsTest, UnreadListsTakeLittleMemory) {
  TestServer server(With(&Timeouts::progress, 2 * kPatience));
  for (int i = 0; i < 1000; ++i) {
    PutArrayCall put(server.client());
    put.Header(PutHeader(0));
    ASSERT_TRUE(put.End().ok());
  }
  const std::shared_ptr<grpc::Channel> channel = NarrowChannel(server.address());
  const std::int64_t before = HeapInUse();
  std::deque<UnreadCall> calls;
  for (int i = 0; i < 100; ++i) calls.emplace_back(channel, "ListArrays", v1::ListArraysRequest());
  for (UnreadCall& call : calls) EXPECT_TRUE(call.AwaitResponse());
  const std::int64_t taken = HeapInUse() - before;  // of both sides
  RecordProperty("heap_bytes", std::to_string(taken));
  EXPECT_LT(taken, std::int64_t{16} << 20);
  for (UnreadCall& call : calls) {
    call.Cancel();
    call.Await();
  }
}

}  // namespace
}  // namespace reduced::server

// Arrays that come in parts, each a ReduceStream of its own: the answers of one stream, whatever comes first; parts
// that don't fit together; and parts that fail, stall or never come.
#include "server/sources/uploads.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/chunk_stream.h"
#include "tests/service/held_engine.h"
#include "tests/service/test_server.h"
#include "tests/support/becomes.h"
#include "tests/support/data.h"

namespace reduced::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kUpload[] = "0123456789abcdef0123456789abcdef";

v1::StreamPart PartOf(int parts, int index, std::int64_t first, std::int64_t count,
                      const std::string& upload = kUpload) {
  v1::StreamPart part;
  part.set_upload(upload);
  part.set_parts(parts);
  part.set_index(index);
  part.set_first(first);
  part.set_count(count);
  return part;
}

v1::ReduceStreamRequest FirstOf(const v1::ReduceRequest& header, const v1::StreamPart& part) {
  v1::ReduceStreamRequest first;
  *first.mutable_header() = header;
  *first.mutable_stream_part() = part;
  return first;
}

// One part of an array of bytes, over a connection of its own. Elements come in chunks of 100,000 bytes.
class PartCall {
 public:
  PartCall(const TestServer& server, const v1::ReduceRequest& header, const v1::StreamPart& part,
           absl::Duration timeout = kPatience)
      : client_(server.address()), stream_(client_, timeout) {
    stream_.Write(FirstOf(header, part));
  }

  ReduceStreamCall& operator*() { return stream_; }
  ReduceStreamCall* operator->() { return &stream_; }

  void Send(const std::string& elements) {
    constexpr std::size_t kChunk = 100'000;
    for (std::size_t i = 0; i < elements.size(); i += kChunk) {
      if (!stream_.Chunk(elements.substr(i, kChunk))) return;
    }
  }

 private:
  TestClient client_;
  ReduceStreamCall stream_;
};

// An array cut at the elements given, sent in the order given, each part by a thread that begins when the one before
// has sent all it has; and what every part is answered.
std::vector<v1::ReduceResponse> SendInParts(const TestServer& server, const v1::ReduceRequest& header,
                                            const std::string& elements, std::int64_t width,
                                            const std::vector<std::int64_t>& cuts, const std::vector<int>& order) {
  const int parts = static_cast<int>(cuts.size()) + 1;
  std::vector<std::int64_t> bounds = {0};
  bounds.insert(bounds.end(), cuts.begin(), cuts.end());
  bounds.push_back(static_cast<std::int64_t>(elements.size()) / width);
  std::deque<PartCall> calls;
  std::vector<v1::ReduceResponse> responses(order.size());
  std::vector<std::thread> threads;
  for (const int index : order) {
    const std::int64_t first = bounds[static_cast<std::size_t>(index)];
    const std::int64_t count = bounds[static_cast<std::size_t>(index) + 1] - first;
    PartCall& call = calls.emplace_back(server, header, PartOf(parts, index, first, count));
    call.Send(elements.substr(static_cast<std::size_t>(first * width), static_cast<std::size_t>(count * width)));
    threads.emplace_back([&call, &response = responses[static_cast<std::size_t>(index)]] {
      const grpc::Status status = call->End();
      EXPECT_TRUE(status.ok()) << status.error_code() << ": " << status.error_message();
      response = call->response();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return responses;
}

// Waits until the server counts so many streams: false after kPatience.
bool AwaitStreams(TestClient& client, int streams) {
  v1::GetServerInfoResponse info;
  return Becomes(kPatience, [&] { return client.Info(&info).ok() && info.usage().streams() == streams; });
}

class UploadsTest : public ::testing::Test {
 protected:
  void ExpectNothingIsLeft() {
    EXPECT_TRUE(AwaitStreams(server_.client(), 0));
    server_.server().Shutdown(kPatience);
  }

  TestServer server_;
};

TEST_F(UploadsTest, AnswersAsReduceDoes) {
  for (const DTypeRow& dtype : kDTypes) {
    std::vector<v1::Op> ops;
    for (const OpRow& op : kOps) {
      if (Supports(op.op, dtype.dtype) && HasAccumulator(op.op)) ops.push_back(static_cast<v1::Op>(op.op));
    }
    const std::int64_t count = 1001;
    const std::string elements = ElementsOf(dtype.dtype, count);
    v1::ReduceRequest header = HeaderOf(static_cast<v1::DType>(dtype.dtype), count, ops);
    header.mutable_options()->set_overflow_policy(v1::OVERFLOW_POLICY_WRAP);
    v1::ReduceRequest inline_request = header;
    inline_request.set_inline_data(elements);
    v1::ReduceResponse expected;
    ASSERT_TRUE(server_.client().Reduce(inline_request, &expected).ok());
    for (const v1::ReduceResponse& response :
         SendInParts(server_, header, elements, dtype.bytes, {1, 500, 500}, {2, 0, 3, 1})) {
      EXPECT_EQ(Texts(response), Texts(expected)) << dtype.name;
      EXPECT_EQ(response.count(), count);
      EXPECT_EQ(response.timing().bytes(), count * dtype.bytes);
      EXPECT_GT(response.timing().total_us(), 0);
      EXPECT_GE(response.timing().total_us(), response.timing().receive_us());
      EXPECT_EQ(response.execution().pipeline(), expected.execution().pipeline());
    }
  }
  ExpectNothingIsLeft();
}

TEST_F(UploadsTest, FloatsHaveTheSameBitsWhateverComesFirst) {
  constexpr std::int64_t kCount = 1'000'001;
  const std::string elements = ElementsOf(DType::kF32, kCount);
  const v1::ReduceRequest header = HeaderOf(v1::DTYPE_F32, kCount, {v1::OP_SUM, v1::OP_VAR, v1::OP_PROD});
  std::vector<int> order = {0, 1, 2};
  std::vector<std::string> bits;
  do {
    for (const v1::ReduceResponse& response : SendInParts(server_, header, elements, 4, {300'000, 600'007}, order)) {
      std::string these;
      for (const v1::Result& result : response.results()) absl::StrAppend(&these, result.value().SerializeAsString());
      bits.push_back(these);
    }
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(bits.size(), 18);
  for (const std::string& these : bits) EXPECT_EQ(these, bits.front());
}

TEST_F(UploadsTest, IndexesCountFromTheStartOfTheArray) {
  constexpr std::int64_t kCount = 900'000;
  std::vector<std::int32_t> values(kCount);
  const auto answers = [&] {
    const std::string elements(reinterpret_cast<const char*>(values.data()), 4 * kCount);
    return Texts(SendInParts(server_, HeaderOf(v1::DTYPE_I32, kCount, {v1::OP_ARGMIN, v1::OP_ARGMAX}), elements, 4,
                             {200'000, 450'000}, {1, 2, 0})
                     .front());
  };
  values[199'999] = 7;
  values[450'000] = -7;
  EXPECT_THAT(answers(), ElementsAre("u64:450000", "u64:199999"));
  // The first of those that are equal, though their part comes last.
  values[3] = -7;
  values[899'999] = 7;
  EXPECT_THAT(answers(), ElementsAre("u64:3", "u64:199999"));
}

TEST_F(UploadsTest, EmptyArrays) {
  const v1::ReduceRequest header = HeaderOf(v1::DTYPE_F64, 0, {v1::OP_SUM, v1::OP_ALL});
  for (const v1::ReduceResponse& response : SendInParts(server_, header, "", 8, {0, 0}, {2, 1, 0})) {
    EXPECT_THAT(Texts(response), ElementsAre("f64:0", "bool:true"));
    EXPECT_EQ(response.execution().device(), "cpu");
  }
  // What only the whole array can tell: every part hears it.
  const v1::ReduceRequest min = HeaderOf(v1::DTYPE_F64, 0, {v1::OP_MIN});
  PartCall first(server_, min, PartOf(2, 0, 0, 0));
  std::thread second([&] {
    PartCall call(server_, min, PartOf(2, 1, 0, 0));
    EXPECT_EQ(call->End().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  });
  EXPECT_EQ(first->End().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  second.join();
  ExpectNothingIsLeft();
}

TEST_F(UploadsTest, SeveralAtOnceAreKeptApart) {
  const v1::ReduceRequest header = HeaderOf(v1::DTYPE_U8, 2, {v1::OP_SUM});
  std::deque<PartCall> calls;
  for (int index = 0; index < 2; ++index) {
    for (int upload = 0; upload < 5; ++upload) {
      calls.emplace_back(server_, header, PartOf(2, index, index, 1, absl::StrCat("upload ", upload)));
      calls.back().Send(std::string(1, static_cast<char>(10 * upload + index)));
    }
  }
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    threads.emplace_back([i, &call = calls[i]] {
      EXPECT_TRUE(call->End().ok());
      EXPECT_THAT(Texts(call->response()), ElementsAre(absl::StrCat("u64:", 20 * (i % 5) + 1)));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

struct Misfit {
  std::string name;
  v1::StreamPart part;
  std::string message;
};

TEST_F(UploadsTest, PartsThatAreWrongByThemselves) {
  const v1::ReduceRequest header = HeaderOf(v1::DTYPE_U8, 10, {v1::OP_SUM});
  const std::vector<Misfit> misfits = {
      {"no id", PartOf(2, 0, 0, 5, ""), "stream_part.upload: got 0 bytes; allowed: 1 to 64"},
      {"a long id", PartOf(2, 0, 0, 5, std::string(65, 'x')), "stream_part.upload: got 65 bytes"},
      {"one part", PartOf(1, 0, 0, 10, "1"), "stream_part.parts: got 1; allowed: 2 to 64"},
      {"many parts", PartOf(65, 0, 0, 10, "2"), "stream_part.parts: got 65; allowed: 2 to 64"},
      {"a negative index", PartOf(2, -1, 0, 5, "3"), "stream_part.index: got -1; allowed: 0 to 1"},
      {"an index beyond", PartOf(2, 2, 0, 5, "4"), "stream_part.index: got 2; allowed: 0 to 1"},
      {"a negative first", PartOf(2, 0, -1, 5, "5"), "stream_part.first: got -1; allowed: 0 or more"},
      {"a negative count", PartOf(2, 0, 0, -5, "6"), "stream_part.count: got -5; allowed: 0 or more"},
      {"too many elements", PartOf(3, 1, 4, 7, "7"),
       "stream_part.count: got 7 from element 4 on in part 1; allowed: up to element 10"},
      {"a sum that overflows", PartOf(3, 1, INT64_MAX, INT64_MAX, "8"), "allowed: up to element 10"},
      {"a late start", PartOf(2, 0, 1, 5, "9"), "stream_part.first: got 1 in part 0; allowed: 0"},
      {"an early end", PartOf(2, 1, 5, 4, "10"),
       "stream_part.count: got 4 in part 1, the last; allowed: up to element 10"},
  };
  for (const Misfit& misfit : misfits) {
    PartCall call(server_, header, misfit.part);
    const grpc::Status status = call->Await();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << misfit.name;
    EXPECT_THAT(status.error_message(), HasSubstr(misfit.message)) << misfit.name;
  }
  ExpectNothingIsLeft();
}

// A part that waits for the others, and one that has sent only some of its elements; both are told why they end.
TEST_F(UploadsTest, PartsThatDoNotFitTogether) {
  const v1::ReduceRequest header = HeaderOf(v1::DTYPE_U8, 9, {v1::OP_SUM});
  v1::ReduceRequest other = header;
  other.mutable_options()->set_ddof(1);
  struct Case {
    std::string name;
    v1::ReduceRequest header;
    v1::StreamPart part;
    std::string message;
  };
  const std::vector<Case> cases = {
      {"another question", other, PartOf(4, 3, 8, 1),
       "header: got another dtype, shape, ops or options than the upload's other parts"},
      {"other parts", header, PartOf(5, 3, 8, 0),
       "stream_part.parts: got 5; allowed: 4, as in the upload's other parts"},
      {"the same part", header, PartOf(4, 2, 4, 2), "stream_part.index: got 2 a second time"},
      {"a gap", header, PartOf(4, 3, 7, 2), "stream_part.first: got 7 in part 3; allowed: 6, where part 2 ends"},
      {"an overlap", header, PartOf(4, 3, 5, 4), "stream_part.first: got 5 in part 3; allowed: 6, where part 2 ends"},
      {"a gap after it", header, PartOf(4, 1, 2, 1),
       "stream_part.first: got 4 in part 2; allowed: 3, where part 1 ends"},
      {"an overlap after it", header, PartOf(4, 1, 2, 3),
       "stream_part.first: got 4 in part 2; allowed: 5, where part 1 ends"},
      {"a wrong header", HeaderOf(v1::DTYPE_U8, 9, {}), PartOf(4, 3, 6, 3), "ops: got 0 operations"},
      {"a wrong part", header, PartOf(4, 4, 6, 3), "stream_part.index: got 4"},
  };
  for (const Case& each : cases) {
    const auto part = [&](int index, std::int64_t first, std::int64_t count) {
      return PartOf(4, index, first, count, each.name);
    };
    PartCall waiting(server_, header, part(0, 0, 2));
    waiting.Send("ab");
    waiting->HalfClose();
    PartCall sending(server_, header, part(2, 4, 2));
    sending.Send("a");
    ASSERT_TRUE(AwaitStreams(server_.client(), 2));
    v1::StreamPart wrong = each.part;
    wrong.set_upload(each.name);
    PartCall misfit(server_, each.header, wrong);
    const grpc::Status status = misfit->Await();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << each.name;
    EXPECT_THAT(status.error_message(), HasSubstr(each.message)) << each.name;
    PartCall late(server_, header, part(1, 2, 2));
    for (PartCall* const told : {&waiting, &sending, &late}) {
      const grpc::Status aborted = (*told)->Await();
      EXPECT_EQ(aborted.error_code(), grpc::StatusCode::ABORTED) << each.name;
      EXPECT_THAT(aborted.error_message(), HasSubstr(absl::StrCat("part ", wrong.index(), " of the upload failed: ")));
      EXPECT_THAT(aborted.error_message(), HasSubstr(each.message)) << each.name;
    }
  }
  ExpectNothingIsLeft();
}

// One part has all it needs and waits, one is on the way: when a third fails, both end at once.
class FailureTest : public UploadsTest {
 protected:
  void SetUp() override {
    waiting_.Send("ab");
    waiting_->HalfClose();
    sending_.Send("c");
    ASSERT_TRUE(AwaitStreams(server_.client(), 2));
  }

  void ExpectAborted(const std::string& why) {
    for (PartCall* const told : {&waiting_, &sending_}) {
      const grpc::Status status = (*told)->Await();
      EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
      EXPECT_THAT(status.error_message(), HasSubstr(why));
    }
    ExpectNothingIsLeft();
  }

  const v1::ReduceRequest header_ = HeaderOf(v1::DTYPE_U8, 6, {v1::OP_SUM});
  PartCall waiting_{server_, header_, PartOf(3, 0, 0, 2)};
  PartCall sending_{server_, header_, PartOf(3, 1, 2, 2)};
};

TEST_F(FailureTest, TooFewElements) {
  PartCall call(server_, header_, PartOf(3, 2, 4, 2));
  call.Send("x");
  const grpc::Status status = call->End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "chunk: got 1 bytes in all; allowed: 2, as the header declares");
  ExpectAborted("part 2 of the upload failed: chunk: got 1 bytes in all; allowed: 2");
}

TEST_F(FailureTest, TooManyElements) {
  PartCall call(server_, header_, PartOf(3, 2, 4, 2));
  call.Send("xyz");
  EXPECT_EQ(call->Await().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  ExpectAborted("part 2 of the upload failed: chunk: got 3 bytes in all; allowed: 2");
}

TEST_F(FailureTest, AClientThatGoesAwayOnTheWay) {
  PartCall call(server_, header_, PartOf(3, 2, 4, 2));
  ASSERT_TRUE(AwaitStreams(server_.client(), 3));
  call->Cancel();
  ExpectAborted("part 2 of the upload failed: the caller cancelled the call");
}

TEST_F(FailureTest, AClientThatGoesAwayWhileItsPartWaits) {
  PartCall call(server_, header_, PartOf(3, 2, 4, 2));
  call.Send("ef");
  call->HalfClose();
  ASSERT_TRUE(AwaitStreams(server_.client(), 3));
  call->Cancel();
  ExpectAborted("part 2 of the upload failed: the caller cancelled the call");
}

TEST_F(FailureTest, ADeadline) {
  PartCall call(server_, header_, PartOf(3, 2, 4, 2), absl::Milliseconds(100));
  EXPECT_EQ(call->Await().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  ExpectAborted("part 2 of the upload failed: the ");  // its server may see the deadline, or its client going away
}

TEST_F(FailureTest, AnotherAttemptIsOnItsOwn) {
  waiting_->Cancel();
  EXPECT_EQ(sending_->Await().error_code(), grpc::StatusCode::ABORTED);
  PartCall late(server_, header_, PartOf(3, 2, 4, 2));
  EXPECT_EQ(late->Await().error_code(), grpc::StatusCode::ABORTED);
  std::deque<PartCall> calls;
  for (const int index : {0, 1}) {
    calls.emplace_back(server_, header_, PartOf(2, index, 3 * index, 3, "another"));
    calls.back().Send("\x01\x02\x03");
    calls.back()->HalfClose();
  }
  for (PartCall& call : calls) {
    EXPECT_TRUE(call->Await().ok());
    EXPECT_THAT(Texts(call->response()), ElementsAre("u64:12"));
  }
}

TEST_F(UploadsTest, PartsThatNeverComeLeaveTheOthersToTheirDeadlines) {
  PartCall call(server_, HeaderOf(v1::DTYPE_U8, 2, {v1::OP_SUM}), PartOf(2, 0, 0, 1), absl::Milliseconds(200));
  call.Send("a");
  EXPECT_EQ(call->End().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  ExpectNothingIsLeft();
}

// A caller without an identity can't get at an upload of one who has one by the id it chooses.
TEST(UploadKeys, TellTheCallerFromTheId) {
  const std::vector<std::pair<std::string, std::string>> all = {
      {"", "id"},        {"alice", "id"},     {"", "alice\nid"}, {"", "5:alice\nid"}, {"alice", "\nid"},
      {"alice\n", "id"}, {"alic", "e\nid"},   {"", ""},          {"", "\n"},          {"0:", "\nid"},
      {"0", ":\nid"},    {"5:alice\n", "id"}, {"1", "1:x\nid"},  {"11", ":x\nid"},
  };
  std::set<std::string> keys;
  for (const auto& [caller, upload] : all) keys.insert(UploadKey(caller, upload));
  EXPECT_EQ(keys.size(), all.size());
}

TEST(UploadLimits, APartCountsAsAStreamUntilItIsAnswered) {
  ServerOptions options;
  options.limits.max_streams = 2;
  TestServer server(options);
  const v1::ReduceRequest header = HeaderOf(v1::DTYPE_U8, 3, {v1::OP_SUM});
  std::deque<PartCall> calls;
  for (const int index : {0, 1}) {
    calls.emplace_back(server, header, PartOf(3, index, index, 1));
    calls.back().Send("a");
    calls.back()->HalfClose();
  }
  ASSERT_TRUE(AwaitStreams(server.client(), 2));
  PartCall third(server, header, PartOf(3, 2, 2, 1));
  const grpc::Status status = third->Await();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(third->context().GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 1);
  for (PartCall& call : calls) EXPECT_EQ(call->Await().error_code(), grpc::StatusCode::ABORTED);
  EXPECT_TRUE(AwaitStreams(server.client(), 0));
}

TEST(UploadLimits, APartThatTheEngineHasIsToldTo) {
  HeldServer server(4);
  const v1::ReduceRequest header = HeaderOf(v1::DTYPE_U8, 4, {v1::OP_SUM});
  PartCall reducing(*server, header, PartOf(3, 0, 0, 2));
  reducing.Send("ab");
  ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
  PartCall failing(*server, header, PartOf(3, 1, 2, 1));
  EXPECT_EQ(failing->End().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(AwaitTrue(*server.engine().cancelled()));
  server.engine().Release();
  EXPECT_EQ(reducing->Await().error_code(), grpc::StatusCode::ABORTED);
  EXPECT_TRUE(AwaitStreams(server->client(), 0));
}

TEST(UploadLimits, ADismissedUploadThatLacksPartsEnds) {
  TestServer server;
  const v1::ReduceRequest header = HeaderOf(v1::DTYPE_U8, 2, {v1::OP_SUM});
  PartCall first(server, header, PartOf(2, 0, 0, 1));
  first.Send("a");
  first->HalfClose();
  ASSERT_TRUE(AwaitStreams(server.client(), 1));
  server.server().Dismiss();
  const grpc::Status status = first->Await();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("the server is draining"));
}

TEST(UploadLimits, AServerThatDrainsFailsWhatIsNotComplete) {
  TestServer server;
  const v1::ReduceRequest header = HeaderOf(v1::DTYPE_U8, 2, {v1::OP_SUM});
  PartCall first(server, header, PartOf(2, 0, 0, 1));
  first.Send("a");
  first->HalfClose();
  ASSERT_TRUE(AwaitStreams(server.client(), 1));
  server.server().Drain();
  ReduceStreamCall second(server.client());
  second.Write(FirstOf(header, PartOf(2, 1, 1, 1)));
  EXPECT_EQ(second.Await().error_code(), grpc::StatusCode::UNAVAILABLE);
  const grpc::Status status = first->Await();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_THAT(status.error_message(), HasSubstr("part 1 of the upload failed: the server is draining"));
  server.server().Shutdown(kPatience);
}

}  // namespace
}  // namespace reduced::server

// Calls: what is sent, what is made of the answer, deadlines, cancellation, threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "reduced/client.h"
#include "tests/unit/client/fake_server.h"

namespace reduced::client {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(CallTest, SendsWhatIsAsked) {
  v1::ReduceRequest seen;
  service_.on_reduce = [&](const v1::ReduceRequest& request, v1::ReduceResponse*) {
    seen = request;
    return grpc::Status::OK;
  };
  const ReduceOptions options{.engine = "cuda",
                              .pipeline = "p",
                              .precision = "exact",
                              .nan_policy = "omit",
                              .overflow_policy = "saturate",
                              .ddof = 3,
                              .block_size = 256};
  ASSERT_TRUE(client_->Reduce({elements_.data(), "f32", {3, 1}}, {"argmax", "sum_squares"}, options).ok());
  EXPECT_EQ(seen.array().dtype(), v1::DTYPE_F32);
  EXPECT_THAT(seen.array().shape(), ElementsAre(3, 1));
  EXPECT_THAT(seen.ops(), ElementsAre(v1::OP_ARGMAX, v1::OP_SUM_SQUARES));
  EXPECT_EQ(seen.inline_data(), std::string(reinterpret_cast<const char*>(elements_.data()), 12));
  EXPECT_EQ(seen.options().engine(), v1::ENGINE_CUDA);
  EXPECT_EQ(seen.options().pipeline(), "p");
  EXPECT_EQ(seen.options().precision(), v1::PRECISION_EXACT);
  EXPECT_EQ(seen.options().nan_policy(), v1::NAN_POLICY_OMIT);
  EXPECT_EQ(seen.options().overflow_policy(), v1::OVERFLOW_POLICY_SATURATE);
  EXPECT_EQ(seen.options().ddof(), 3);
  EXPECT_EQ(seen.options().block_size(), 256);
}

TEST_F(CallTest, MergesStates) {
  const v1::State known = SumState(3);
  service_.on_reduce = [&](const v1::ReduceRequest& request, v1::ReduceResponse* response) {
    if (request.return_state()) *response->mutable_state() = known;
    return grpc::Status::OK;
  };
  const ArrayView array{elements_.data(), "i32", {3}};
  EXPECT_TRUE(client_->Reduce(array, {"sum"})->state.empty());
  const absl::StatusOr<Reply> reply = client_->Reduce(array, {"sum"}, {.return_state = true});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->state, known.SerializeAsString());

  service_.on_merge = [&](const v1::MergeRequest& request, v1::MergeResponse* response) {
    response->set_count(request.states_size() * 3);
    if (request.return_state()) *response->mutable_state() = SumState(6);
    if (request.omit_results()) return grpc::Status::OK;
    response->add_results()->set_op(v1::OP_SUM);
    response->mutable_results(0)->mutable_value()->set_dtype(v1::DTYPE_I64);
    response->mutable_results(0)->mutable_value()->set_i(15);
    return grpc::Status::OK;
  };
  const absl::StatusOr<MergeReply> merged = client_->Merge({reply->state, reply->state}, {.return_state = true});
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->count, 6);
  EXPECT_EQ(merged->results[0].op, "sum");
  EXPECT_EQ(std::get<std::int64_t>(merged->results[0].value->value), 15);
  EXPECT_EQ(merged->state, SumState(6).SerializeAsString());
  EXPECT_TRUE(client_->Merge({reply->state})->state.empty());
  const auto without = client_->Merge({reply->state, reply->state}, {.return_state = true, .results = false});
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_TRUE(without->results.empty());
  EXPECT_EQ(without->state, merged->state);

  EXPECT_EQ(client_->Merge({}).status().code(), absl::StatusCode::kInvalidArgument);
  const absl::Status bad = client_->Merge({reply->state, "not one"}).status();
  EXPECT_EQ(bad.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(bad.message()), HasSubstr("states[1]: got 7 bytes that aren't a state"));
}

TEST_F(CallTest, ATokenMayChange) {
  std::vector<std::string> sent;
  service_.on_reduce = [](const v1::ReduceRequest&, v1::ReduceResponse*) { return grpc::Status::OK; };
  service_.on_context = [&](grpc::CallbackServerContext* context) {
    const auto [first, last] = context->client_metadata().equal_range("authorization");
    for (auto each = first; each != last; ++each) sent.emplace_back(each->second.data(), each->second.size());
  };
  std::string folder = ::testing::TempDir() + "/reduced_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string file = folder + "/token";
  const auto call = [&](Client& client, const std::string& text) {
    std::ofstream(file, std::ios::binary) << text;
    ASSERT_TRUE(client.Reduce({elements_.data(), "f32", {3}}, {"sum"}).ok());
  };
  std::ofstream(file, std::ios::binary) << "first";
  const auto client = Client::Create({.server = address_, .token_file = file, .token_refresh = {}}).value();
  const auto later = Client::Create({.server = address_, .token_file = file, .token_refresh = absl::Hours(1)}).value();
  call(*client, "first");
  call(*client, "second\n");
  call(*client, "not one");
  call(*client, "");
  call(*client, "third");
  call(*later, "fourth");  // who doesn't look yet
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(client->Reduce({elements_.data(), "f32", {3}}, {"sum"}).ok());
  EXPECT_THAT(sent, ElementsAre("Bearer first", "Bearer second", "Bearer second", "Bearer second", "Bearer third",
                                "Bearer first", "Bearer third"));
}

TEST_F(CallTest, GivesWhatIsAnswered) {
  service_.on_reduce = [](const v1::ReduceRequest&, v1::ReduceResponse* response) {
    const auto add = [&](v1::Op op, v1::DType dtype) {
      response->add_results()->set_op(op);
      auto* value = response->mutable_results()->rbegin()->mutable_value();
      value->set_dtype(dtype);
      return value;
    };
    add(v1::OP_MEAN, v1::DTYPE_F64)->set_f(0.5);
    add(v1::OP_PROD, v1::DTYPE_I64)->set_i(INT64_MIN);
    add(v1::OP_RANGE, v1::DTYPE_U64)->set_u(UINT64_MAX);
    add(v1::OP_ANY, v1::DTYPE_BOOL)->set_b(true);
    response->set_count(3);
    response->mutable_execution()->set_engine(v1::ENGINE_CPU);
    response->mutable_execution()->set_device("cpu");
    response->mutable_execution()->set_precision(v1::PRECISION_F64);
    response->mutable_execution()->set_reason("because");
    response->mutable_timing()->set_queue_us(0);
    response->mutable_timing()->set_kernel_us(2.5);
    response->mutable_timing()->set_scratch_copy_us(1.5);
    response->mutable_timing()->set_bytes(12);
    return grpc::Status::OK;
  };
  const absl::StatusOr<Reply> reply = client_->Reduce({elements_.data(), "i32", {3}}, {"mean", "prod", "range", "any"});
  ASSERT_TRUE(reply.ok()) << reply.status();
  std::vector<std::string> ops;
  for (const Result& result : reply->results) ops.push_back(result.op);
  EXPECT_THAT(ops, ElementsAre("mean", "prod", "range", "any"));
  EXPECT_EQ(std::get<double>(reply->results[0].value->value), 0.5);
  EXPECT_EQ(std::get<std::int64_t>(reply->results[1].value->value), INT64_MIN);
  EXPECT_EQ(std::get<std::uint64_t>(reply->results[2].value->value), UINT64_MAX);
  EXPECT_TRUE(std::get<bool>(reply->results[3].value->value));
  EXPECT_EQ(reply->results[1].value->dtype, "i64");
  EXPECT_EQ(reply->via, "inline");
  EXPECT_EQ(reply->count, 3);
  EXPECT_EQ(reply->execution.engine, "cpu");
  EXPECT_EQ(reply->execution.precision, "f64");
  EXPECT_EQ(reply->execution.reason, "because");
  EXPECT_EQ(reply->timing.queue_us, 0);
  EXPECT_EQ(reply->timing.kernel_us, 2.5);
  EXPECT_EQ(reply->timing.scratch_copy_us, 1.5);
  EXPECT_EQ(reply->timing.host_copy_us, std::nullopt);
  EXPECT_EQ(reply->timing.bytes, 12);
}

TEST_F(CallTest, ChecksNamesBeforeSending) {
  service_.on_reduce = [](const auto&, auto*) { return grpc::Status(grpc::StatusCode::INTERNAL, "was sent"); };
  const auto error = [&](const ArrayView& array, const std::vector<std::string>& ops, const ReduceOptions& options) {
    const absl::Status status = client_->Reduce(array, ops, options).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(error(array_, {"sum", "medium"}, {}), HasSubstr("op: got \"medium\"; allowed: sum, prod, "));
  EXPECT_THAT(error(array_, {}, {}), HasSubstr("ops: got none; allowed: sum, "));
  EXPECT_THAT(error({elements_.data(), "f24", {3}}, {"sum"}, {}), HasSubstr("dtype: got \"f24\"; allowed: bool, "));
  EXPECT_THAT(error({elements_.data(), "f32", {-3}}, {"sum"}, {}), HasSubstr("shape: got (-3)"));
  EXPECT_THAT(error({elements_.data(), "f32", {1 << 30}}, {"sum"}, {.via = "inline"}),
              HasSubstr("via: got inline for an array of 4294967296 bytes; allowed: "));
  EXPECT_THAT(error(array_, {"sum"}, {.via = "pigeon"}), "via: got \"pigeon\"; allowed: auto, inline, stream");
  EXPECT_THAT(error(array_, {"sum"}, {.engine = "tpu"}), "engine: got \"tpu\"; allowed: auto, cpu, cuda");
  EXPECT_THAT(error(array_, {"sum"}, {.nan_policy = "default"}),
              "nan_policy: got \"default\"; allowed: propagate, omit");
  EXPECT_THAT(error(array_, {"sum"}, {.overflow_policy = ""}), HasSubstr("overflow_policy: got \"\"; allowed: "));
  EXPECT_THAT(error(array_, {"sum"}, {.timeout = -absl::Seconds(1)}), HasSubstr("timeout: got -1s; allowed: "));
}

TEST_F(CallTest, PassesTheServersStatusOn) {
  service_.on_reduce = [](const auto&, auto*) {
    return grpc::Status(grpc::StatusCode::OUT_OF_RANGE, "sum doesn't fit in i64");
  };
  EXPECT_EQ(client_->Reduce(array_, {"sum"}).status(), absl::OutOfRangeError("sum doesn't fit in i64"));
}

TEST_F(CallTest, SaysWhenToTryAgain) {
  service_.on_context = [](grpc::CallbackServerContext* context) {
    context->AddTrailingMetadata("grpc-retry-pushback-ms", "250");
  };
  service_.on_reduce = [](const auto&, auto*) {
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "the queue is full");
  };
  const auto once = Client::Create({.server = address_, .timeout = kLong, .max_attempts = 1}).value();
  const absl::Status full = once->Reduce(array_, {"sum"}).status();
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  EXPECT_EQ(full.message(), "the queue is full; try again in 250 ms");
  EXPECT_EQ(RetryAfterOf(full), absl::Milliseconds(250));
}

TEST_F(CallTest, AServerThatGoesAwayIsNamed) {
  service_.on_reduce = [](const auto&, auto*) { return grpc::Status(grpc::StatusCode::UNAVAILABLE, "draining"); };
  EXPECT_EQ(client_->Reduce(array_, {"sum"}).status(), absl::UnavailableError(address_ + ": draining; tried 4 times"));
}

TEST_F(CallTest, SaysThatARequestIsTooLarge) {
  const std::vector<std::uint8_t> large(9 << 20);
  const absl::Status status =
      client_->Reduce(ArrayView::Of(std::span<const std::uint8_t>(large)), {"sum"}, {.via = "inline"}).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("the request is larger than " + address_ + " accepts"), HasSubstr("8388608")));
}

TEST_F(CallTest, KeepsTheDeadline) {
  service_.answer = false;
  const absl::Status status = client_->Reduce(array_, {"sum"}, {.timeout = absl::Milliseconds(50)}).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_EQ(status.message(), "no answer from " + address_ + " within 50ms");
  EXPECT_TRUE(service_.cancelled.WaitForNotificationWithTimeout(kLong));
}

// Whatever waits: a message, a stream that is not read, its parts, an upload, and the delay before another attempt.
TEST_F(CallTest, CanBeInterrupted) {
  service_.answer = false;
  int asked = 0;
  const Interrupted third_time = [&, caller = std::this_thread::get_id()] {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    return ++asked % 3 == 0;
  };
  const absl::Status interrupted = absl::CancelledError("the call was interrupted by its caller");
  EXPECT_EQ(client_->Reduce(array_, {"sum"}, {.interrupted = third_time}).status(), interrupted);
  EXPECT_TRUE(service_.cancelled.WaitForNotificationWithTimeout(kLong));
  EXPECT_EQ(client_->Reduce(RemoteArray::Resident("a"), {"sum"}, {.interrupted = third_time}).status(), interrupted);
  const std::vector<std::uint8_t> large(50 << 20);
  const ArrayView array = ArrayView::Of(std::span<const std::uint8_t>(large));
  EXPECT_EQ(client_->Reduce(array, {"sum"}, {.interrupted = third_time}).status(), interrupted);
  EXPECT_EQ(client_->Put(array, {.interrupted = third_time}).status(), interrupted);
  const auto several = Client::Create({.server = address_, .timeout = kLong, .connections = 3}).value();
  EXPECT_EQ(several->Reduce(array, {"sum"}, {.interrupted = third_time}).status(), interrupted);
  EXPECT_EQ(asked, 15);

  service_.answer = true;
  service_.on_reduce = [](const auto&, auto*) { return grpc::Status::OK; };
  EXPECT_TRUE(client_->Reduce(array_, {"sum"}, {.interrupted = third_time}).ok());
  service_.on_context = [](grpc::CallbackServerContext* context) {
    context->AddTrailingMetadata("grpc-retry-pushback-ms", "20000");
  };
  service_.on_reduce = [](const auto&, auto*) { return grpc::Status(grpc::StatusCode::UNAVAILABLE, "later"); };
  EXPECT_EQ(client_->Reduce(array_, {"sum"}, {.interrupted = third_time}).status(), interrupted);
}

TEST_F(CallTest, CanBeCancelled) {
  service_.answer = false;
  absl::Notification finished;
  absl::Status status;
  Call call = client_->ReduceAsync(array_, {"sum"}, {}, [&](absl::StatusOr<Reply> reply) {
    status = reply.status();
    finished.Notify();
  });
  call.Cancel();
  ASSERT_TRUE(finished.WaitForNotificationWithTimeout(kLong));
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  call.Cancel();  // no effect
  Call().Cancel();
}

TEST_F(CallTest, StreamsInChunks) {
  v1::ReduceRequest header;
  std::string elements;
  int chunks = 0;
  service_.on_stream = [&](const v1::ReduceStreamRequest& request) {
    if (request.has_header()) {
      EXPECT_EQ(chunks, 0);
      header = request.header();
    } else {
      ++chunks;
      elements += request.chunk();
    }
    return grpc::Status::OK;
  };
  std::string large(2'500'001, '\0');
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * i >> 7);
  const auto size = static_cast<std::int64_t>(large.size());
  absl::StatusOr<Reply> reply = client_->Reduce({large.data(), "u8", {size}}, {"sum"}, {.ddof = 2});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->via, "stream");
  EXPECT_EQ(reply->count, size);
  EXPECT_THAT(header.array().shape(), ElementsAre(size));
  EXPECT_EQ(header.options().ddof(), 2);
  EXPECT_EQ(header.source_case(), v1::ReduceRequest::SOURCE_NOT_SET);
  EXPECT_EQ(chunks, 3);
  EXPECT_TRUE(elements == large);

  for (const std::int64_t count : {0, 1, 127, 128, 16'384, 1'000'000}) {
    elements.clear();
    chunks = 0;
    reply = client_->Reduce({large.data(), "u8", {count}}, {"sum"}, {.via = "stream"});
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_TRUE(elements == large.substr(0, static_cast<std::size_t>(count))) << count;
    EXPECT_EQ(chunks, count == 0 ? 0 : 1);
  }
}

// Elements that are read as they are sent: inline, in one stream and in parts.
TEST_F(CallTest, ReadsElementsAsTheyAreSent) {
  // The server may still be at a call that the client has ended, when the test is over.
  const auto streamed = std::make_shared<std::atomic<std::int64_t>>(0);
  std::string inline_data;
  service_.on_reduce = [&](const v1::ReduceRequest& request, v1::ReduceResponse*) {
    inline_data = request.inline_data();
    return grpc::Status::OK;
  };
  service_.on_stream = [streamed](const v1::ReduceStreamRequest& request) {
    *streamed += std::accumulate(request.chunk().begin(), request.chunk().end(), std::int64_t{0});
    return grpc::Status::OK;
  };
  const auto read = [](std::int64_t offset, char* to, std::int64_t bytes) {
    for (std::int64_t i = 0; i < bytes; ++i) to[i] = static_cast<char>((offset + i) % 100);
    return absl::OkStatus();
  };
  ArrayView array{.dtype = "u8", .shape = {5}, .reader = {.read = read}};
  ASSERT_TRUE(client_->Reduce(array, {"sum"}).ok());
  EXPECT_EQ(inline_data, std::string("\0\1\2\3\4", 5));
  ASSERT_TRUE(client_->Reduce(array, {"sum"}, {.via = "stream"}).ok());
  EXPECT_EQ(*streamed, 10);
  array.shape = {3'000'000};
  *streamed = 0;
  ASSERT_TRUE(client_->Reduce(array, {"sum"}, {.timeout = kLong}).ok());
  EXPECT_EQ(*streamed, 4950 * 30'000);

  // An error of the reader is that of the call.
  array.reader.read = [&](std::int64_t offset, char*, std::int64_t) {
    return offset == 0 ? absl::OkStatus() : absl::DataLossError("a bad sector");
  };
  const absl::Status status = client_->Reduce(array, {"sum"}, {.timeout = kLong}).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
}

TEST_F(CallTest, ElementsThatAreNowhereAreAnError) {
  const ArrayView array{.dtype = "f32", .shape = {3}};
  EXPECT_THAT(client_->Reduce(array, {"sum"}).status().message(),
              HasSubstr("data: got null for an array of 12 bytes; allowed: its elements"));
  EXPECT_TRUE(absl::IsInvalidArgument(client_->Reduce(array, {"sum"}, {.via = "stream"}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(client_->Put(array).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(client_->Share(array).status()));
  absl::Status status;
  client_->ReduceAsync(array, {"sum"}, {}, [&](absl::StatusOr<Reply> reply) { status = reply.status(); });
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  // A callback can't wait for a reader.
  ArrayView read = array;
  read.reader.read = [](std::int64_t, char*, std::int64_t) { return absl::OkStatus(); };
  client_->ReduceAsync(read, {"sum"}, {}, [&](absl::StatusOr<Reply> reply) { status = reply.status(); });
  EXPECT_THAT(status.message(), HasSubstr("reader: got one; allowed: in Client::Reduce and Client::Put"));
}

TEST_F(CallTest, SaysHowFarAnUploadHasCome) {
  service_.on_stream = [](const auto&) { return grpc::Status::OK; };
  service_.on_put = [](const auto&) { return grpc::Status::OK; };
  service_.on_reduce = [](const auto&, auto*) { return grpc::Status::OK; };
  service_.on_delete = [](const auto&) { return grpc::Status::OK; };
  const std::vector<std::uint8_t> large(5 << 20);
  const ArrayView array = ArrayView::Of(std::span<const std::uint8_t>(large));
  std::vector<std::int64_t> seen;
  const auto on_progress = [&, caller = std::this_thread::get_id()](std::int64_t sent, std::int64_t total) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(total, 5 << 20);
    seen.push_back(sent);
  };
  const auto check = [&] {
    EXPECT_GT(seen.size(), 3U);
    EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
    EXPECT_EQ(seen.back(), 5 << 20);
    seen.clear();
  };
  ASSERT_TRUE(client_->Reduce(array, {"sum"}, {.on_progress = on_progress}).ok());
  check();
  ASSERT_TRUE(client_->Put(array, {.on_progress = on_progress}).ok());
  check();
  ASSERT_TRUE(client_->Reduce(array, {"sum"}, {.via = "inline", .on_progress = on_progress}).ok());
  EXPECT_THAT(seen, IsEmpty());
}

TEST_F(CallTest, AStreamCanBeRefusedOnTheWay) {
  service_.on_stream = [&](const v1::ReduceStreamRequest& request) {
    return request.has_header() ? grpc::Status::OK : grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "no more");
  };
  const std::vector<std::uint8_t> large(50 << 20);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(client_->Reduce(ArrayView::Of(std::span<const std::uint8_t>(large)), {"sum"}).status(),
              absl::ResourceExhaustedError("no more"));
  }
}

TEST_F(CallTest, AStreamThatIsNotReadKeepsTheDeadlineAndCanBeCancelled) {
  service_.answer = false;
  const std::vector<std::uint8_t> large(50 << 20);
  const ArrayView array = ArrayView::Of(std::span<const std::uint8_t>(large));
  const absl::Status late = client_->Reduce(array, {"sum"}, {.timeout = absl::Milliseconds(100)}).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;

  absl::Notification finished;
  absl::Status status;
  Call call = client_->ReduceAsync(array, {"sum"}, {}, [&](absl::StatusOr<Reply> reply) {
    status = reply.status();
    finished.Notify();
  });
  call.Cancel();
  ASSERT_TRUE(finished.WaitForNotificationWithTimeout(kLong));
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  call.Cancel();  // no effect
}

TEST_F(CallTest, AnswersThoughTheClientAndTheCallAreGone) {
  absl::Notification go;
  service_.on_reduce = [&](const auto&, auto*) {
    go.WaitForNotificationWithTimeout(kLong);
    return grpc::Status::OK;
  };
  absl::Notification finished;
  absl::StatusOr<Reply> answer;
  const std::vector<float> elements(1000);
  client_->ReduceAsync(ArrayView::Of(std::span<const float>(elements)), {"sum"}, {}, [&](absl::StatusOr<Reply> reply) {
    answer = std::move(reply);
    finished.Notify();
  });
  client_.reset();
  go.Notify();
  ASSERT_TRUE(finished.WaitForNotificationWithTimeout(kLong));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->count, 1000);
}

TEST_F(CallTest, CanBeSharedByThreads) {
  service_.on_reduce = [](const v1::ReduceRequest& request, v1::ReduceResponse* response) {
    response->set_count(static_cast<std::int64_t>(request.inline_data().size()));
    return grpc::Status::OK;
  };
  std::vector<std::thread> threads;
  for (std::size_t t = 1; t <= 8; ++t) {
    threads.emplace_back([&, t] {
      const std::vector<std::uint8_t> bytes(t);
      for (int i = 0; i < 50; ++i) {
        const auto reply = client_->Reduce(ArrayView::Of(std::span<const std::uint8_t>(bytes)), {"sum"});
        ASSERT_TRUE(reply.ok()) << reply.status();
        EXPECT_EQ(reply->count, static_cast<std::int64_t>(t));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(CallTest, DescribesTheServer) {
  const absl::StatusOr<ServerInfo> info = client_->GetServerInfo();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->version, "1.2.3");
  EXPECT_EQ(info->uptime, absl::Milliseconds(1500));
  EXPECT_EQ(info->max_message_bytes, 77);
  EXPECT_EQ(info->max_ladder_bytes, 88);
  EXPECT_EQ(info->max_streams, 99);
  EXPECT_EQ(info->max_sessions, 66);
  EXPECT_EQ(info->max_session_requests, 55);
  EXPECT_EQ(info->default_array_ttl, absl::Seconds(2));
  EXPECT_EQ(info->max_array_ttl, absl::Seconds(3));
  EXPECT_EQ(info->region_socket, "/somewhere");
  EXPECT_EQ(info->usage.streams, 1);
  EXPECT_EQ(info->usage.sessions, 2);
  EXPECT_EQ(info->usage.arrays, 3);
  EXPECT_EQ(info->usage.regions, 4);
  ASSERT_EQ(info->devices.size(), 1);
  EXPECT_EQ(info->devices[0].engine, "cuda");
  EXPECT_EQ(info->devices[0].lanes, 4);
  EXPECT_EQ(info->devices[0].array_bytes, 5);
  EXPECT_EQ(info->devices[0].array_bytes_limit, 6);
  EXPECT_EQ(info->devices[0].reductions, 7);
  EXPECT_EQ(info->devices[0].reduced_bytes, 8);
  EXPECT_EQ(info->devices[0].links, std::vector<std::string>{"NVLink x18, peer access: cuda:1"});
  ASSERT_EQ(info->ops.size(), 1);
  EXPECT_THAT(info->ops[0].dtypes, ElementsAre("bool", "u64"));
  ASSERT_EQ(info->pipelines.size(), 1);
  EXPECT_THAT(info->pipelines[0].ops, ElementsAre("sum_squares"));
  EXPECT_TRUE(info->pipelines[0].default_of_engine);
  EXPECT_TRUE(info->pipelines[0].fused);
  EXPECT_TRUE(info->pipelines[0].fixed_order);
  EXPECT_THAT(info->pipelines[0].block_sizes, ElementsAre(64, 128));
}

TEST_F(CallTest, SaysWhereNobodyAnswers) {
  TearDown();
  const auto client = Client::Create({.server = address_, .timeout = kLong}).value();
  EXPECT_EQ(
      client->Reduce(array_, {"sum"}).status(),
      absl::UnavailableError("no reduced server answers at " + address_ + " (connection refused); tried 4 times"));
}

TEST(Unreachable, NamesThePathOrTheHost) {
  const auto path = Client::Create({.server = "unix:/does/not/exist"}).value();
  EXPECT_EQ(path->GetServerInfo().status(),
            absl::UnavailableError(
                "no reduced server answers at unix:/does/not/exist (no such file or directory); tried 4 times"));
}

}  // namespace
}  // namespace reduced::client

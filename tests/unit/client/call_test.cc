// Calls, against a server within the process that answers what each test says.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "reduced/client.h"
#include "reduced/v1/reduced.grpc.pb.h"

namespace reduced::client {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kLong = absl::Seconds(30);

class FakeService final : public v1::Reduction::CallbackService {
 public:
  // Fills in the answer.
  std::function<grpc::Status(const v1::ReduceRequest&, v1::ReduceResponse*)> on_reduce;
  std::function<void(grpc::CallbackServerContext*)> on_context = [](auto*) {};
  // Sees every message of a stream, in order; OK: reads on. After the last, or what is not OK, the stream ends so.
  std::function<grpc::Status(const v1::ReduceStreamRequest&)> on_stream;
  // Instead, if it is there; told who sends it.
  std::function<grpc::Status(const std::string& peer, const v1::ReduceStreamRequest&)> on_part;
  // The same of a PutArray, which is answered with what `put` is then.
  std::function<grpc::Status(const v1::PutArrayRequest&)> on_put;
  v1::ArrayInfo put;
  std::function<grpc::Status(const v1::ListArraysRequest&, v1::ListArraysResponse*)> on_list;
  std::function<grpc::Status(const v1::DeleteArrayRequest&)> on_delete;
  // Writes the answer.
  std::function<grpc::Status(const v1::LadderRequest&, std::vector<v1::LadderReply>*)> on_ladder;
  bool answer = true;  // false: a call ends only when its client cancels it or its deadline passes
  absl::Notification cancelled;

  grpc::ServerUnaryReactor* Reduce(grpc::CallbackServerContext* context, const v1::ReduceRequest* request,
                                   v1::ReduceResponse* response) override {
    struct Waiting : grpc::ServerUnaryReactor {
      explicit Waiting(absl::Notification* to) : cancelled(to) {}
      void OnCancel() override {
        if (!cancelled->HasBeenNotified()) cancelled->Notify();
        Finish(grpc::Status::CANCELLED);
      }
      void OnDone() override { delete this; }
      absl::Notification* const cancelled;
    };
    if (!answer) return new Waiting(&cancelled);
    on_context(context);
    auto* reactor = context->DefaultReactor();
    reactor->Finish(on_reduce(*request, response));
    return reactor;
  }

  // Reads requests until one isn't OK.
  template <class Request>
  struct Reading : grpc::ServerReadReactor<Request> {
    Reading(bool reads, std::function<grpc::Status(const Request&)> sees, std::function<void()> when_read)
        : answers(reads), on_request(std::move(sees)), at_end(std::move(when_read)) {
      if (answers) this->StartRead(&request);
    }
    void OnReadDone(bool ok) override {
      if (!ok) {
        at_end();
        return this->Finish(grpc::Status::OK);
      }
      const grpc::Status status = on_request(request);
      if (!status.ok()) return this->Finish(status);
      this->StartRead(&request);
    }
    void OnCancel() override {
      if (!answers) this->Finish(grpc::Status::CANCELLED);
    }
    void OnDone() override { delete this; }
    const bool answers;
    const std::function<grpc::Status(const Request&)> on_request;
    const std::function<void()> at_end;
    Request request;
  };

  grpc::ServerReadReactor<v1::ReduceStreamRequest>* ReduceStream(grpc::CallbackServerContext* context,
                                                                 v1::ReduceResponse* response) override {
    auto sees = on_stream;
    if (on_part) {
      sees = [this, peer = context->peer()](const v1::ReduceStreamRequest& request) { return on_part(peer, request); };
    }
    return new Reading<v1::ReduceStreamRequest>(answer, sees, [response] { response->set_count(7); });
  }

  grpc::ServerReadReactor<v1::PutArrayRequest>* PutArray(grpc::CallbackServerContext*,
                                                         v1::PutArrayResponse* response) override {
    return new Reading<v1::PutArrayRequest>(answer, on_put, [this, response] { *response->mutable_array() = put; });
  }

  grpc::ServerUnaryReactor* ListArrays(grpc::CallbackServerContext* context, const v1::ListArraysRequest* request,
                                       v1::ListArraysResponse* response) override {
    auto* reactor = context->DefaultReactor();
    reactor->Finish(on_list(*request, response));
    return reactor;
  }

  grpc::ServerUnaryReactor* DeleteArray(grpc::CallbackServerContext* context, const v1::DeleteArrayRequest* request,
                                        v1::DeleteArrayResponse*) override {
    auto* reactor = context->DefaultReactor();
    reactor->Finish(on_delete(*request));
    return reactor;
  }

  grpc::ServerWriteReactor<v1::LadderReply>* Ladder(grpc::CallbackServerContext*,
                                                    const v1::LadderRequest* request) override {
    struct Writing : grpc::ServerWriteReactor<v1::LadderReply> {
      void Next() { written < replies.size() ? StartWrite(&replies[written++]) : Finish(status); }
      void OnWriteDone(bool) override { Next(); }
      void OnDone() override { delete this; }
      std::vector<v1::LadderReply> replies;
      std::size_t written = 0;
      grpc::Status status;
    };
    auto* writing = new Writing;
    writing->status = on_ladder(*request, &writing->replies);
    writing->Next();
    return writing;
  }

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context, const v1::GetServerInfoRequest*,
                                          v1::GetServerInfoResponse* response) override {
    response->set_version("1.2.3");
    response->set_uptime_ms(1500);
    response->mutable_limits()->set_max_message_bytes(77);
    response->mutable_limits()->set_max_ladder_bytes(88);
    response->mutable_limits()->set_max_streams(99);
    response->mutable_limits()->set_max_sessions(66);
    response->mutable_limits()->set_max_session_requests(55);
    response->mutable_limits()->set_default_array_ttl_ms(2000);
    response->mutable_limits()->set_max_array_ttl_ms(3000);
    response->set_region_socket("/somewhere");
    response->mutable_usage()->set_streams(1);
    response->mutable_usage()->set_sessions(2);
    response->mutable_usage()->set_arrays(3);
    response->mutable_usage()->set_regions(4);
    auto* device = response->add_devices();
    device->set_name("cuda:0");
    device->set_engine(v1::ENGINE_CUDA);
    device->set_lanes(4);
    device->set_array_bytes(5);
    device->set_array_bytes_limit(6);
    auto* op = response->add_ops();
    op->set_name("bit_and");
    op->add_dtypes(v1::DTYPE_BOOL);
    op->add_dtypes(v1::DTYPE_U64);
    auto* pipeline = response->add_pipelines();
    pipeline->set_name("p");
    pipeline->set_engine(v1::ENGINE_CPU);
    pipeline->add_ops(v1::OP_SUM_SQUARES);
    pipeline->set_default_of_engine(true);
    pipeline->set_fused(true);
    pipeline->set_fixed_order(true);
    pipeline->add_block_sizes(64);
    pipeline->add_block_sizes(128);
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

class CallTest : public ::testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.SetMaxReceiveMessageSize(8 << 20);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    address_ = absl::StrCat("127.0.0.1:", port_);
    client_ = Client::Create({.server = address_, .timeout = kLong}).value();
  }
  void TearDown() override {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5));
    server_.reset();
  }

  FakeService service_;
  int port_ = 0;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Client> client_;
  const std::vector<float> elements_ = {1, 2, 4};
  const ArrayView array_ = ArrayView::Of(std::span<const float>(elements_));
};

TEST_F(CallTest, SendsWhatIsAsked) {
  v1::ReduceRequest seen;
  service_.on_reduce = [&](const v1::ReduceRequest& request, v1::ReduceResponse*) {
    seen = request;
    return grpc::Status::OK;
  };
  const ReduceOptions options{.engine = "cuda",
                              .pipeline = "p",
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
  EXPECT_EQ(seen.options().nan_policy(), v1::NAN_POLICY_OMIT);
  EXPECT_EQ(seen.options().overflow_policy(), v1::OVERFLOW_POLICY_SATURATE);
  EXPECT_EQ(seen.options().ddof(), 3);
  EXPECT_EQ(seen.options().block_size(), 256);
}

TEST_F(CallTest, GivesWhatIsAnswered) {
  service_.on_reduce = [](const v1::ReduceRequest&, v1::ReduceResponse* response) {
    const auto add = [&](v1::Op op, v1::DType dtype) {
      response->add_results()->set_op(op);
      auto* value = response->mutable_results()->rbegin()->mutable_value();
      value->set_dtype(dtype);
      return value;
    };
    add(v1::OP_SUM, v1::DTYPE_F64)->set_f(0.5);
    add(v1::OP_PROD, v1::DTYPE_I64)->set_i(INT64_MIN);
    add(v1::OP_ARGMIN, v1::DTYPE_U64)->set_u(UINT64_MAX);
    add(v1::OP_ANY, v1::DTYPE_BOOL)->set_b(true);
    add(static_cast<v1::Op>(99), v1::DTYPE_F64)->set_f(1);  // of a newer server
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
  const absl::StatusOr<Reply> reply = client_->Reduce(array_, {"sum"});
  ASSERT_TRUE(reply.ok()) << reply.status();
  std::vector<std::string> ops;
  for (const Result& result : reply->results) ops.push_back(result.op);
  EXPECT_THAT(ops, ElementsAre("sum", "prod", "argmin", "any", "99"));
  EXPECT_EQ(std::get<double>(reply->results[0].value.value), 0.5);
  EXPECT_EQ(std::get<std::int64_t>(reply->results[1].value.value), INT64_MIN);
  EXPECT_EQ(std::get<std::uint64_t>(reply->results[2].value.value), UINT64_MAX);
  EXPECT_TRUE(std::get<bool>(reply->results[3].value.value));
  EXPECT_EQ(reply->results[1].value.dtype, "i64");
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
  EXPECT_THAT(error(array_, {"sum", "median"}, {}), HasSubstr("unknown op \"median\"; allowed: sum, prod, "));
  EXPECT_THAT(error(array_, {}, {}), HasSubstr("no op; allowed: sum, "));
  EXPECT_THAT(error({elements_.data(), "f24", {3}}, {"sum"}, {}), HasSubstr("unknown dtype \"f24\"; allowed: bool, "));
  EXPECT_THAT(error({elements_.data(), "f32", {-3}}, {"sum"}, {}), HasSubstr("negative dimension"));
  EXPECT_THAT(error({elements_.data(), "f32", {1 << 30}}, {"sum"}, {.via = "inline"}),
              HasSubstr("4294967296 bytes; an inline request can hold"));
  EXPECT_THAT(error(array_, {"sum"}, {.via = "pigeon"}), "unknown via \"pigeon\"; allowed: auto, inline, stream");
  EXPECT_THAT(error(array_, {"sum"}, {.engine = "tpu"}), "unknown engine \"tpu\"; allowed: auto, cpu, cuda");
  EXPECT_THAT(error(array_, {"sum"}, {.nan_policy = "default"}),
              "unknown NaN policy \"default\"; allowed: propagate, omit");
  EXPECT_THAT(error(array_, {"sum"}, {.overflow_policy = ""}), HasSubstr("unknown overflow policy \"\"; allowed: "));
  EXPECT_THAT(error(array_, {"sum"}, {.timeout = -absl::Seconds(1)}), HasSubstr("timeout -1s is not allowed"));
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
  EXPECT_EQ(client_->Reduce(array_, {"sum"}).status(),
            absl::ResourceExhaustedError("the queue is full; try again in 250 ms"));
}

TEST_F(CallTest, AServerThatGoesAwayIsNamed) {
  service_.on_reduce = [](const auto&, auto*) { return grpc::Status(grpc::StatusCode::UNAVAILABLE, "draining"); };
  EXPECT_EQ(client_->Reduce(array_, {"sum"}).status(), absl::UnavailableError(address_ + ": draining"));
}

TEST_F(CallTest, SaysThatARequestIsTooLarge) {
  const std::vector<std::uint8_t> large(9 << 20);
  const absl::Status status =
      client_->Reduce(ArrayView::Of(std::span<const std::uint8_t>(large)), {"sum"}, {.via = "inline"}).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("the request is larger than " + address_ + " takes"), HasSubstr("8388608")));
}

TEST_F(CallTest, KeepsTheDeadline) {
  service_.answer = false;
  const absl::Status status = client_->Reduce(array_, {"sum"}, {.timeout = absl::Milliseconds(50)}).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_EQ(status.message(), "no answer from " + address_ + " within 50ms");
  EXPECT_TRUE(service_.cancelled.WaitForNotificationWithTimeout(kLong));
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
  EXPECT_EQ(reply->count, 7);
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

// Streams of parts, whose server sees each part's messages by themselves.
class PartsTest : public CallTest {
 protected:
  // What came of one part.
  struct Seen {
    v1::ReduceStreamRequest first;
    std::string peer;
    std::string elements;
  };

  void SetUp() override {
    CallTest::SetUp();
    client_ = Client::Create({.server = address_, .timeout = kLong, .connections = 3}).value();
    for (std::size_t i = 0; i < large_.size(); ++i) large_[i] = static_cast<std::uint16_t>(i * i >> 7);
    service_.on_part = [this](const std::string& peer, const v1::ReduceStreamRequest& request) {
      const absl::MutexLock lock(&mutex_);
      Seen& seen = seen_[peer];
      if (request.has_header()) {
        seen.first = request;
      } else {
        seen.elements += request.chunk();
      }
      const int index = seen.first.stream_part().index();
      return index == refused_ ? refusal_ : others_;
    };
  }

  std::vector<Seen> SeenInOrder() {
    const absl::MutexLock lock(&mutex_);
    std::vector<Seen> seen;
    for (auto& [peer, part] : seen_) seen.push_back(std::move(part));
    std::sort(seen.begin(), seen.end(), [](const Seen& a, const Seen& b) {
      return a.first.stream_part().index() < b.first.stream_part().index();
    });
    seen_.clear();
    return seen;
  }

  // From now on.
  void Answer(int refused, grpc::Status refusal, grpc::Status others) {
    const absl::MutexLock lock(&mutex_);
    refused_ = refused;
    refusal_ = std::move(refusal);
    others_ = std::move(others);
  }

  std::vector<std::uint16_t> large_ = std::vector<std::uint16_t>((33 << 19) + 1);  // 33 MiB and 2 bytes
  const ArrayView view_ = ArrayView::Of(std::span<const std::uint16_t>(large_));
  absl::Mutex mutex_;
  std::map<std::string, Seen> seen_ ABSL_GUARDED_BY(mutex_);  // by peer
  int refused_ ABSL_GUARDED_BY(mutex_) = -1;                  // the part
  grpc::Status refusal_ ABSL_GUARDED_BY(mutex_);
  grpc::Status others_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(PartsTest, CutsALargeArrayOneForEachConnection) {
  std::vector<std::string> uploads;
  for (int round = 0; round < 2; ++round) {
    const absl::StatusOr<Reply> reply = client_->Reduce(view_, {"sum"}, {.ddof = 2});
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->via, "stream");
    EXPECT_EQ(reply->count, 7);
    const std::vector<Seen> seen = SeenInOrder();
    ASSERT_EQ(seen.size(), 3);  // as many connections
    std::string elements;
    std::int64_t next = 0;
    for (int i = 0; i < 3; ++i) {
      const v1::ReduceStreamRequest& first = seen[static_cast<std::size_t>(i)].first;
      EXPECT_THAT(first.header().array().shape(), ElementsAre(static_cast<std::int64_t>(large_.size())));
      EXPECT_EQ(first.header().options().ddof(), 2);
      const v1::StreamPart& part = first.stream_part();
      EXPECT_EQ(part.upload(), seen[0].first.stream_part().upload());
      EXPECT_EQ(part.upload().size(), 32);
      EXPECT_EQ(part.parts(), 3);
      EXPECT_EQ(part.index(), i);
      EXPECT_EQ(part.first(), next);
      EXPECT_EQ(part.first() % (2 << 20), 0);  // 4 MiB
      EXPECT_EQ(seen[static_cast<std::size_t>(i)].elements.size(), 2 * static_cast<std::size_t>(part.count()));
      next += part.count();
      elements += seen[static_cast<std::size_t>(i)].elements;
    }
    EXPECT_TRUE(elements == std::string(reinterpret_cast<const char*>(large_.data()), 2 * large_.size()));
    uploads.push_back(seen[0].first.stream_part().upload());
  }
  EXPECT_NE(uploads[0], uploads[1]);
}

TEST_F(PartsTest, OneConnectionIsEnoughForAllElse) {
  const ArrayView small{large_.data(), "u8", {(32 << 20) - 1}};
  EXPECT_TRUE(client_->Reduce(small, {"sum"}).ok());
  absl::Notification finished;
  client_->ReduceAsync(view_, {"sum"}, {}, [&](const absl::StatusOr<Reply>& reply) {
    EXPECT_TRUE(reply.ok()) << reply.status();
    finished.Notify();
  });
  ASSERT_TRUE(finished.WaitForNotificationWithTimeout(kLong));
  const std::vector<Seen> seen = SeenInOrder();
  ASSERT_EQ(seen.size(), 1);
  EXPECT_FALSE(seen[0].first.has_stream_part());
  EXPECT_EQ(seen[0].elements.size(), (32 << 20) - 1 + 2 * large_.size());
}

TEST_F(PartsTest, TheCauseIsWhatTheCallerGets) {
  const grpc::Status full(grpc::StatusCode::RESOURCE_EXHAUSTED, "no more");
  const grpc::Status aborted(grpc::StatusCode::ABORTED, "part 1 of the upload failed: no more");
  for (int part = 0; part < 3; ++part) {
    Answer(part, full, aborted);
    EXPECT_EQ(client_->Reduce(view_, {"sum"}).status(), absl::ResourceExhaustedError("no more")) << part;
  }
  // The others go on: they are cancelled.
  Answer(1, full, grpc::Status::OK);
  EXPECT_EQ(client_->Reduce(view_, {"sum"}).status(), absl::ResourceExhaustedError("no more"));
  // There is no cause.
  Answer(1, aborted, aborted);
  EXPECT_EQ(client_->Reduce(view_, {"sum"}).status(), absl::AbortedError("part 1 of the upload failed: no more"));
}

TEST_F(PartsTest, KeepTheDeadline) {
  service_.answer = false;
  const absl::Status status = client_->Reduce(view_, {"sum"}, {.timeout = absl::Milliseconds(100)}).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
}

TEST_F(PartsTest, SoManyConnectionsAndNoMore) {
  for (const int connections : {-1, 0, 65}) {
    EXPECT_EQ(Client::Create({.server = address_, .connections = connections}).status(),
              absl::InvalidArgumentError(
                  absl::StrCat("connections ", connections, " is not allowed; it must be from 1 to 64")));
  }
  EXPECT_TRUE(Client::Create({.server = address_, .connections = 64}).ok());
}

TEST_F(CallTest, AnswersThoughTheClientAndTheCallAreGone) {
  absl::Notification go;
  service_.on_reduce = [&](const v1::ReduceRequest& request, v1::ReduceResponse* response) {
    go.WaitForNotificationWithTimeout(kLong);
    response->set_count(static_cast<std::int64_t>(request.inline_data().size()));
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
  EXPECT_EQ(answer->count, 4000);
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

// Puts `array_`, having noted what was sent.
class ArrayTest : public CallTest {
 protected:
  void SetUp() override {
    CallTest::SetUp();
    service_.put.set_id("0123456789abcdef");
    service_.put.mutable_array()->set_dtype(v1::DTYPE_F32);
    service_.put.mutable_array()->add_shape(3);
    service_.put.set_bytes(12);
    service_.put.set_device("cuda:0");
    service_.put.set_owner("me");
    service_.put.set_expires_in_ms(1500);
    service_.on_put = [this](const v1::PutArrayRequest& request) {
      if (request.has_header()) {
        header_ = request.header();
      } else {
        elements_sent_ += request.chunk();
      }
      return grpc::Status::OK;
    };
    service_.on_delete = [this](const v1::DeleteArrayRequest& request) {
      deleted_.push_back(absl::StrCat(request.owner(), "/", request.id()));
      return grpc::Status::OK;
    };
  }

  v1::PutArrayHeader header_;
  std::string elements_sent_;
  std::vector<std::string> deleted_;
};

TEST_F(ArrayTest, IsPutReducedAndDeleted) {
  {
    const absl::StatusOr<ResidentArray> array =
        client_->Put(array_, {.device = "cuda:0", .owner = "me", .ttl = absl::Milliseconds(1500)});
    ASSERT_TRUE(array.ok()) << array.status();
    EXPECT_EQ(header_.array().dtype(), v1::DTYPE_F32);
    EXPECT_THAT(header_.array().shape(), ElementsAre(3));
    EXPECT_EQ(header_.device(), "cuda:0");
    EXPECT_EQ(header_.owner(), "me");
    EXPECT_EQ(header_.ttl_ms(), 1500);
    EXPECT_EQ(elements_sent_, std::string(reinterpret_cast<const char*>(elements_.data()), 12));
    EXPECT_EQ(array->id(), "0123456789abcdef");
    EXPECT_EQ(array->device(), "cuda:0");
    EXPECT_EQ(array->info().dtype, "f32");
    EXPECT_THAT(array->info().shape, ElementsAre(3));
    EXPECT_EQ(array->info().bytes, 12);
    EXPECT_EQ(array->info().expires_in, absl::Milliseconds(1500));

    v1::ReduceRequest seen;
    service_.on_reduce = [&](const v1::ReduceRequest& request, v1::ReduceResponse* response) {
      seen = request;
      response->set_count(3);
      return grpc::Status::OK;
    };
    const absl::StatusOr<Reply> reply = client_->Reduce(*array, {"sum"}, {.ddof = 2});
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->via, "array");
    EXPECT_EQ(reply->count, 3);
    EXPECT_EQ(seen.array_id(), "0123456789abcdef");
    EXPECT_FALSE(seen.has_array());
    EXPECT_THAT(seen.ops(), ElementsAre(v1::OP_SUM));
    EXPECT_EQ(seen.options().ddof(), 2);

    absl::Notification finished;
    absl::StatusOr<Reply> answer;
    client_->ReduceAsync(*array, {"max"}, {}, [&](absl::StatusOr<Reply> later) {
      answer = std::move(later);
      finished.Notify();
    });
    ASSERT_TRUE(finished.WaitForNotificationWithTimeout(kLong));
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->via, "array");
    EXPECT_THAT(seen.ops(), ElementsAre(v1::OP_MAX));
    EXPECT_THAT(deleted_, IsEmpty());
  }
  EXPECT_THAT(deleted_, ElementsAre("me/0123456789abcdef"));
}

TEST_F(ArrayTest, IsDeletedOnceByWhoHasIt) {
  {
    absl::StatusOr<ResidentArray> first = client_->Put(array_);
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(header_.owner(), "");
    EXPECT_EQ(header_.ttl_ms(), 0);
    ResidentArray moved = *std::move(first);
    service_.put.set_id("second");
    absl::StatusOr<ResidentArray> second = client_->Put(array_);
    ASSERT_TRUE(second.ok());
    moved = *std::move(second);
    EXPECT_THAT(deleted_, ElementsAre("me/0123456789abcdef"));
    EXPECT_EQ(moved.id(), "second");
    client_.reset();  // it needs no client
  }
  EXPECT_THAT(deleted_, ElementsAre("me/0123456789abcdef", "me/second"));
}

TEST_F(ArrayTest, StaysIfItIsReleased) {
  {
    absl::StatusOr<ResidentArray> array = client_->Put(array_);
    ASSERT_TRUE(array.ok());
    EXPECT_EQ(array->Release(), "0123456789abcdef");
  }
  EXPECT_THAT(deleted_, IsEmpty());
  service_.on_list = [this](const v1::ListArraysRequest& request, v1::ListArraysResponse* response) {
    EXPECT_EQ(request.owner(), "me");
    *response->add_arrays() = service_.put;
    response->mutable_arrays(0)->set_age_ms(7);
    response->mutable_arrays(0)->set_users(2);
    return grpc::Status::OK;
  };
  const auto listed = client_->ListArrays("me");
  ASSERT_TRUE(listed.ok()) << listed.status();
  ASSERT_EQ(listed->size(), 1U);
  EXPECT_EQ(listed->front().id, "0123456789abcdef");
  EXPECT_EQ(listed->front().owner, "me");
  EXPECT_EQ(listed->front().age, absl::Milliseconds(7));
  EXPECT_EQ(listed->front().users, 2);
  EXPECT_TRUE(client_->DeleteArray("0123456789abcdef", "me").ok());
  EXPECT_THAT(deleted_, ElementsAre("me/0123456789abcdef"));
}

TEST_F(ArrayTest, ErrorsAreTheServersOrSeenBeforeSending) {
  EXPECT_THAT(std::string(client_->Put({nullptr, "f24", {0}}).status().message()), HasSubstr("unknown dtype"));
  EXPECT_THAT(std::string(client_->Put(array_, {.ttl = -absl::Seconds(1)}).status().message()),
              HasSubstr("ttl -1s is not allowed"));
  EXPECT_THAT(std::string(client_->Put(array_, {.timeout = absl::ZeroDuration()}).status().message()),
              HasSubstr("timeout 0 is not allowed"));
  EXPECT_TRUE(absl::IsInvalidArgument(client_->Reduce(RemoteArray::Kept("x"), {}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(client_->DeleteArray("x", "", absl::ZeroDuration())));
  EXPECT_EQ(header_.ByteSizeLong(), 0U);  // nothing was sent
  ASSERT_TRUE(client_->Put(array_, {.ttl = absl::Nanoseconds(1)}).ok());
  EXPECT_EQ(header_.ttl_ms(), 1);  // not 0, the default

  service_.on_put = [](const auto&) { return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full"); };
  EXPECT_EQ(client_->Put(array_).status(), absl::ResourceExhaustedError("full"));
  service_.on_delete = [](const auto&) { return grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "theirs"); };
  EXPECT_EQ(client_->DeleteArray("x", "me"), absl::PermissionDeniedError("theirs"));
  service_.answer = false;
  EXPECT_TRUE(absl::IsDeadlineExceeded(client_->Put(array_, {.timeout = absl::Milliseconds(50)}).status()));
}

TEST_F(CallTest, SendsWhatALadderIsOf) {
  v1::LadderRequest seen;
  service_.on_ladder = [&](const v1::LadderRequest& request, auto*) {
    seen = request;
    return grpc::Status::OK;
  };
  const auto ladder = [&](const LadderOptions& options) {
    EXPECT_TRUE(client_->Ladder(options, [](const auto&, const auto&) {}).ok());
  };
  ladder({.dtype = "i16", .count = 7, .seed = 5});
  EXPECT_EQ(seen.dtype(), v1::DTYPE_I16);
  EXPECT_EQ(seen.count(), 7);
  EXPECT_EQ(seen.op(), v1::OP_SUM);
  EXPECT_FALSE(seen.has_fill());
  EXPECT_EQ(seen.seed(), 5);
  EXPECT_THAT(seen.pipelines(), IsEmpty());
  EXPECT_THAT(seen.block_sizes(), IsEmpty());
  EXPECT_EQ(seen.repeats(), 0);
  ladder({.dtype = "f64",
          .count = 1,
          .op = "max",
          .fill = 0,
          .pipelines = {"p", "q"},
          .block_sizes = {64, 1024},
          .repeats = 3});
  EXPECT_EQ(seen.op(), v1::OP_MAX);
  EXPECT_TRUE(seen.has_fill());
  EXPECT_THAT(seen.pipelines(), ElementsAre("p", "q"));
  EXPECT_THAT(seen.block_sizes(), ElementsAre(64, 1024));
  EXPECT_EQ(seen.repeats(), 3);
}

// Fills in a start that announces two steps, and those.
void AddTwoSteps(std::vector<v1::LadderReply>* replies) {
  replies->resize(3);
  auto* start = (*replies)[0].mutable_start();
  start->set_bytes(8);
  start->set_steps(2);
  start->mutable_expected()->set_dtype(v1::DTYPE_I64);
  start->mutable_expected()->set_i(-3);
  auto* first = (*replies)[1].mutable_step();
  first->set_pipeline("p");
  first->set_engine(v1::ENGINE_CUDA);
  first->set_device("cuda:0");
  first->add_kernel_us(2);
  first->add_kernel_us(1);
  first->set_scratch_copy_us(0.5);
  first->set_read_gb_per_s(4000);
  first->mutable_value()->set_dtype(v1::DTYPE_I64);
  first->mutable_value()->set_i(-4);
  first->set_same_bits(true);
  first->mutable_occupancy()->set_block_size(256);
  first->mutable_occupancy()->set_registers(32);
  first->mutable_occupancy()->set_shared_bytes(1024);
  first->mutable_occupancy()->set_blocks_per_multiprocessor(8);
  first->mutable_occupancy()->set_max_threads_per_multiprocessor(2048);
  auto* second = (*replies)[2].mutable_step();
  second->set_pipeline("q");
  second->set_engine(v1::ENGINE_CPU);
  second->set_correct(true);
}

TEST_F(CallTest, GivesALadderStepByStep) {
  service_.on_ladder = [](const auto&, std::vector<v1::LadderReply>* replies) {
    AddTwoSteps(replies);
    return grpc::Status::OK;
  };
  std::vector<LadderStep> steps;
  const absl::StatusOr<LadderStart> start =
      client_->Ladder({.dtype = "i32", .count = 2}, [&](const LadderStart& start, const LadderStep& step) {
        EXPECT_EQ(start.steps, 2);
        steps.push_back(step);
      });
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_EQ(start->bytes, 8);
  EXPECT_EQ(std::get<std::int64_t>(start->expected.value), -3);
  ASSERT_EQ(steps.size(), 2);
  EXPECT_EQ(steps[0].pipeline, "p");
  EXPECT_EQ(steps[0].engine, "cuda");
  EXPECT_EQ(steps[0].device, "cuda:0");
  EXPECT_THAT(steps[0].kernel_us, ElementsAre(2, 1));
  EXPECT_EQ(steps[0].scratch_copy_us, 0.5);
  EXPECT_EQ(steps[0].read_gb_per_s, 4000);
  EXPECT_EQ(std::get<std::int64_t>(steps[0].value.value), -4);
  EXPECT_FALSE(steps[0].correct);
  EXPECT_TRUE(steps[0].same_bits);
  ASSERT_TRUE(steps[0].occupancy.has_value());
  EXPECT_EQ(steps[0].occupancy->block_size, 256);
  EXPECT_EQ(steps[0].occupancy->registers, 32);
  EXPECT_EQ(steps[0].occupancy->shared_bytes, 1024);
  EXPECT_EQ(steps[0].occupancy->blocks_per_multiprocessor, 8);
  EXPECT_EQ(steps[0].occupancy->max_threads_per_multiprocessor, 2048);
  EXPECT_EQ(steps[1].engine, "cpu");
  EXPECT_TRUE(steps[1].correct);
  EXPECT_EQ(steps[1].scratch_copy_us, std::nullopt);
  EXPECT_EQ(steps[1].read_gb_per_s, std::nullopt);
  EXPECT_FALSE(steps[1].occupancy.has_value());
}

TEST_F(CallTest, ALadderCanFailOnTheWay) {
  service_.on_ladder = [](const auto&, std::vector<v1::LadderReply>* replies) {
    AddTwoSteps(replies);
    return grpc::Status(grpc::StatusCode::INTERNAL, "the device is gone");
  };
  int steps = 0;
  const auto count = [&](const auto&, const auto&) { ++steps; };
  EXPECT_EQ(client_->Ladder({.dtype = "i32", .count = 2}, count).status(), absl::InternalError("the device is gone"));
  EXPECT_EQ(steps, 2);
  const auto error = [&](const LadderOptions& options) {
    return std::string(client_->Ladder(options, count).status().message());
  };
  EXPECT_THAT(error({.dtype = "f24"}), HasSubstr("unknown dtype \"f24\"; allowed: bool, "));
  EXPECT_THAT(error({.dtype = "f32", .op = "median"}), HasSubstr("unknown op \"median\"; allowed: sum, "));
  EXPECT_THAT(error({.dtype = "f32", .timeout = absl::ZeroDuration()}), HasSubstr("timeout 0 is not allowed"));
  EXPECT_EQ(steps, 2);
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
  EXPECT_EQ(client->Reduce(array_, {"sum"}).status(),
            absl::UnavailableError("no reduced server answers at " + address_ + " (connection refused)"));
}

TEST(Unreachable, NamesThePathOrTheHost) {
  const auto path = Client::Create({.server = "unix:/does/not/exist"}).value();
  EXPECT_EQ(path->GetServerInfo().status(),
            absl::UnavailableError("no reduced server answers at unix:/does/not/exist (no such file or directory)"));
}

}  // namespace
}  // namespace reduced::client

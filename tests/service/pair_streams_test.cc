// ReduceStreams of ops about two arrays: the answers of Reduce, in whatever order the chunks of the arrays come; how
// far one may be ahead; and streams that go wrong.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/engine/memory_budget.h"
#include "reduced/client.h"
#include "reduced/ops.h"
#include "tests/service/array_calls.h"
#include "tests/service/chunk_stream.h"
#include "tests/service/held_engine.h"
#include "tests/service/test_server.h"
#include "tests/support/becomes.h"

namespace reduced::server::pair_streams {
namespace {

using client::ArrayView;
using ::testing::HasSubstr;
using Code = grpc::StatusCode;
using Stream = ReduceStreamCall;

// The elements of one array of a stream, and where its chunks go.
struct Part {
  void (*set)(v1::ReduceStreamRequest* request, std::string bytes);
  std::string bytes;
  std::size_t sent = 0;
};
void SetX(v1::ReduceStreamRequest* request, std::string bytes) { request->set_chunk(std::move(bytes)); }
void SetY(v1::ReduceStreamRequest* request, std::string bytes) { request->set_y_chunk(std::move(bytes)); }
void SetWeights(v1::ReduceStreamRequest* request, std::string bytes) { request->set_weights_chunk(std::move(bytes)); }

// Writes the next bytes of an array; false: the stream has ended.
bool SendNext(Stream& stream, Part* part, std::size_t bytes) {
  v1::ReduceStreamRequest request;
  part->set(&request, part->bytes.substr(part->sent, bytes));
  part->sent = std::min(part->bytes.size(), part->sent + bytes);
  return stream.Write(request);
}

template <class T>
std::string Random(std::int64_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string bytes(static_cast<std::size_t>(count) * sizeof(T), '\0');
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const std::uint64_t number = random();
    const T value = std::is_integral_v<T> ? static_cast<T>(number)
                                          : static_cast<T>(static_cast<double>(number % 20'001) / 16 - 400);
    std::memcpy(&bytes[i * sizeof(T)], &value, sizeof(T));
  }
  return bytes;
}

// A header of `count` pairs.
v1::ReduceRequest PairHeader(v1::DType dtype, v1::DType other, std::int64_t count, const std::vector<v1::Op>& ops,
                             bool weights = false) {
  v1::ReduceRequest header = HeaderOf(dtype, count, ops);
  v1::ArraySpec& array = *(weights ? header.mutable_weights() : header.mutable_y())->mutable_array();
  array.set_dtype(other);
  array.add_shape(count);
  return header;
}

// What Reduce answers.
v1::ReduceResponse Wanted(const TestServer& server, v1::ReduceRequest request, const std::string& x,
                          const std::string& y, const std::string& weights) {
  request.set_inline_data(x);
  if (request.has_y()) request.mutable_y()->set_inline_data(y);
  if (request.has_weights()) request.mutable_weights()->set_inline_data(weights);
  v1::ReduceResponse response;
  const grpc::Status status = server.client().Reduce(request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response;
}

void ExpectSame(const v1::ReduceResponse& got, const v1::ReduceResponse& wanted) {
  ASSERT_EQ(got.arrays_size(), wanted.arrays_size());
  for (int i = 0; i < got.arrays_size(); ++i) {
    EXPECT_EQ(got.arrays(i).SerializeAsString(), wanted.arrays(i).SerializeAsString())
        << v1::Op_Name(got.arrays(i).op());
  }
  EXPECT_EQ(got.count(), wanted.count());
}

TEST(PairStreams, AnswerAsReduceDoesInAnyOrderOfChunks) {
  const TestServer server;
  constexpr std::int64_t kCount = 300'007;
  const std::string x = Random<double>(kCount, 1), y = Random<float>(kCount, 2), weights = Random<double>(kCount, 3);
  v1::ReduceRequest header = PairHeader(v1::DTYPE_F64, v1::DTYPE_F32, kCount,
                                        {v1::OP_DOT, v1::OP_CORR, v1::OP_COMPARE, v1::OP_DISTANCE_MAX,
                                         v1::OP_WEIGHTED_MEAN, v1::OP_SUM, v1::OP_ARGMAX, v1::OP_DISTINCT});
  header.mutable_weights()->mutable_array()->set_dtype(v1::DTYPE_F64);
  header.mutable_weights()->mutable_array()->add_shape(kCount);
  const v1::ReduceResponse wanted = Wanted(server, header, x, y, weights);
  std::mt19937_64 random(4);
  for (const std::size_t most : {std::size_t{1000}, std::size_t{100'003}, std::size_t{kMiB}}) {
    Stream stream(server.client());
    ASSERT_TRUE(stream.Header(header));
    std::vector<Part> parts = {{SetX, x}, {SetY, y}, {SetWeights, weights}};
    // Any array that is not far ahead.
    for (;;) {
      std::erase_if(parts, [](const Part& part) { return part.sent == part.bytes.size(); });
      if (parts.empty()) break;
      const auto share = [](const Part& part) {
        return static_cast<double>(part.sent) / static_cast<double>(part.bytes.size());
      };
      Part* next = &parts[random() % parts.size()];
      const Part& last = *std::min_element(parts.begin(), parts.end(),
                                           [&](const Part& a, const Part& b) { return share(a) < share(b); });
      if (share(*next) > share(last) + 0.8) continue;
      ASSERT_TRUE(SendNext(stream, next, 1 + random() % most));
    }
    const grpc::Status status = stream.End();
    ASSERT_TRUE(status.ok()) << status.error_message();
    ExpectSame(stream.response(), wanted);
  }
}

// All of one array, and then all of the other one.
TEST(PairStreams, OneArrayMayBe4MiBAhead) {
  const TestServer server;
  constexpr std::int64_t kCount = 4 * kMiB;  // bytes of x
  const std::string x = Random<std::int8_t>(kCount, 5), y = Random<std::int16_t>(kCount, 6);
  const v1::ReduceRequest header = PairHeader(v1::DTYPE_I8, v1::DTYPE_I16, kCount, {v1::OP_DOT});
  const v1::ReduceResponse wanted = Wanted(server, header, x, y, "");
  {
    Stream stream(server.client());
    ASSERT_TRUE(stream.Header(header));
    Part all_x{SetX, x}, all_y{SetY, y};
    while (all_x.sent < x.size()) ASSERT_TRUE(SendNext(stream, &all_x, kMiB));
    while (all_y.sent < y.size()) ASSERT_TRUE(SendNext(stream, &all_y, kMiB));
    const grpc::Status status = stream.End();
    ASSERT_TRUE(status.ok()) << status.error_message();
    ExpectSame(stream.response(), wanted);
  }
  Stream stream(server.client());
  ASSERT_TRUE(stream.Header(header));
  Part all_y{SetY, y};
  while (all_y.sent < y.size() && SendNext(stream, &all_y, kMiB)) continue;
  const grpc::Status status = stream.End();
  EXPECT_EQ(status.error_code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message().substr(0, status.error_message().find(" (")),
            "y_chunk: got 5242880 bytes ahead of the array; allowed: 4194304, so that the arrays come interleaved");
}

TEST(PairStreams, Refusals) {
  TestServer server;
  const v1::ReduceRequest header = PairHeader(v1::DTYPE_F64, v1::DTYPE_F32, 3, {v1::OP_DOT});
  const std::string x(24, '\0'), y(12, '\0');
  const auto edited = [&](const auto& edit) {
    v1::ReduceRequest other = header;
    edit(&other);
    return other;
  };
  const struct {
    const char* name;
    v1::ReduceRequest header;
    std::vector<Part> parts;
    Code code;
    const char* message;
  } kCases[] = {
      {"y is short",
       header,
       {{SetX, x}, {SetY, y.substr(4)}},
       Code::INVALID_ARGUMENT,
       "y_chunk: got 8 bytes in all; allowed: 12, as the header declares"},
      {"no y", header, {{SetX, x}}, Code::INVALID_ARGUMENT, "y_chunk: got 0 bytes in all; allowed: 12"},
      {"no x", header, {{SetY, y}}, Code::INVALID_ARGUMENT, "chunk: got 0 bytes in all; allowed: 24"},
      {"y is long",
       header,
       {{SetX, x}, {SetY, y + "a"}},
       Code::INVALID_ARGUMENT,
       "y_chunk: got 13 bytes in all; allowed: 12"},
      {"weights instead",
       header,
       {{SetX, x}, {SetWeights, y}},
       Code::INVALID_ARGUMENT,
       "weights_chunk: got one; allowed: none, since the header has no such array"},
      {"of one array",
       HeaderOf(v1::DTYPE_F64, 3, {v1::OP_SUM}),
       {{SetX, x}, {SetY, y}},
       Code::INVALID_ARGUMENT,
       "y_chunk: got one; allowed: none, since the header has no such array"},
      {"y without an op",
       edited([](auto* other) { other->set_ops(0, v1::OP_MEDIAN); }),
       {},
       Code::INVALID_ARGUMENT,
       "y: got an array without an op that takes it; allowed: none"},
      {"no y in the header",
       edited([](auto* other) { other->clear_y(); }),
       {},
       Code::INVALID_ARGUMENT,
       "y: got none with op dot; allowed: an array"},
      {"another shape",
       edited([](auto* other) { other->mutable_y()->mutable_array()->set_shape(0, 1); }),
       {},
       Code::UNIMPLEMENTED,
       "y: got shape [1] in a stream; allowed: [3], that of the array"},
      {"a source",
       edited([](auto* other) { other->mutable_y()->set_inline_data("abc"); }),
       {},
       Code::UNIMPLEMENTED,
       "y: got a source in a stream; allowed: none, since the elements follow in chunks of y_chunk"},
      {"integers",
       edited([](auto* other) { other->mutable_y()->mutable_array()->set_dtype(v1::DTYPE_I8); }),
       {},
       Code::INVALID_ARGUMENT,
       "y: got dtype i8 with an array of f64; allowed: floats"},
      {"no dtype",
       edited([](auto* other) { other->mutable_y()->clear_array(); }),
       {},
       Code::INVALID_ARGUMENT,
       "y.array.dtype: got 0"},
      {"a weighted median",
       PairHeader(v1::DTYPE_F64, v1::DTYPE_F64, 3, {v1::OP_WEIGHTED_MEDIAN}, /*weights=*/true),
       {},
       Code::UNIMPLEMENTED,
       "got weighted_median in a stream"},
      {"axes",
       edited([](auto* other) { other->mutable_axes()->add_axis(0); }),
       {},
       Code::UNIMPLEMENTED,
       "axes: got some in a stream"},
      {"a large chunk",
       header,
       {{SetY, std::string((4 << 20) + 1, 'x')}},
       Code::INVALID_ARGUMENT,
       "y_chunk: got 4194305 bytes; allowed: 4194304"},
  };
  for (const auto& each : kCases) {
    Stream stream(server.client());
    stream.Header(each.header);
    for (Part part : each.parts) SendNext(stream, &part, part.bytes.size());
    const grpc::Status status = stream.End();
    EXPECT_EQ(status.error_code(), each.code) << each.name << ": " << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(each.message)) << each.name;
  }
  server.server().Shutdown(kPatience);  // nothing of them is left
}

TEST(PairStreams, EmptyArraysAndUnknownFields) {
  const TestServer server;
  Stream stream(server.client());
  ASSERT_TRUE(stream.Header(PairHeader(v1::DTYPE_F64, v1::DTYPE_F64, 0, {v1::OP_DOT})));
  ASSERT_TRUE(stream.End().ok());
  ASSERT_EQ(stream.response().arrays_size(), 1);
  EXPECT_EQ(stream.response().arrays(0).data(), std::string(8, '\0'));

  Stream other(server.client());
  ASSERT_TRUE(other.Header(PairHeader(v1::DTYPE_U8, v1::DTYPE_U8, 2, {v1::OP_DOT})));
  v1::ReduceStreamRequest request;
  request.set_y_chunk(std::string("\x03\x04", 2));
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(1000, 1);
  ASSERT_TRUE(other.Write(request));
  ASSERT_TRUE(other.Chunk(std::string("\x01\x02", 2)));
  ASSERT_TRUE(other.End().ok());
  EXPECT_EQ(other.response().arrays(0).data(), std::string("\x0b\0\0\0\0\0\0\0", 8));
}

// The parts of an upload have a stretch of both arrays each.
TEST(PairStreams, PartsOfAnUpload) {
  const TestServer server;
  constexpr std::int64_t kCount = 100'000, kCut = 30'001;
  const std::string x = Random<double>(kCount, 7), y = Random<double>(kCount, 8);
  const v1::ReduceRequest header =
      PairHeader(v1::DTYPE_F64, v1::DTYPE_F64, kCount, {v1::OP_COSINE, v1::OP_COMPARE, v1::OP_SUM});
  const TestClient other(server.address());
  Stream streams[] = {Stream(server.client()), Stream(other)};
  for (int i = 0; i < 2; ++i) {
    v1::ReduceStreamRequest first;
    *first.mutable_header() = header;
    v1::StreamPart& part = *first.mutable_stream_part();
    part.set_upload("pairs");
    part.set_parts(2);
    part.set_index(i);
    part.set_first(i == 0 ? 0 : kCut);
    part.set_count(i == 0 ? kCut : kCount - kCut);
    ASSERT_TRUE(streams[i].Write(first));
    const auto begin = static_cast<std::size_t>(8 * part.first()), bytes = static_cast<std::size_t>(8 * part.count());
    Part of_x{SetX, x.substr(begin, bytes)}, of_y{SetY, y.substr(begin, bytes)};
    ASSERT_TRUE(SendNext(streams[i], &of_y, bytes) && SendNext(streams[i], &of_x, bytes));
    streams[i].HalfClose();
  }
  const v1::ReduceResponse wanted = Wanted(server, header, x, y, "");
  for (Stream& stream : streams) {
    const grpc::Status status = stream.Await();
    ASSERT_TRUE(status.ok()) << status.error_message();
    ExpectSame(stream.response(), wanted);
  }
}

TEST(PairStreams, MemoryIsSetAsideAndGivenBack) {
  ServerOptions options;
  options.engines.memory = std::make_shared<MemoryBudget>(64 * kMiB);
  const MemoryBudget& memory = *options.engines.memory;
  const TestServer server(options);
  const auto header = [](std::int64_t count) { return PairHeader(v1::DTYPE_F64, v1::DTYPE_F64, count, {v1::OP_DOT}); };
  const auto none_taken = [&] { return Becomes(kPatience, [&] { return memory.taken() == 0; }); };
  {
    Stream stream(server.client());  // ahead, and then cancelled
    ASSERT_TRUE(stream.Header(header(8 * kMiB)));
    Part x{SetX, std::string(4 * kMiB, '\0')};
    while (x.sent < x.bytes.size()) ASSERT_TRUE(SendNext(stream, &x, kMiB));
    EXPECT_TRUE(Becomes(kPatience, [&] { return memory.taken() >= static_cast<std::int64_t>(24 * kMiB); }));
    stream.Cancel();
    EXPECT_EQ(stream.End().error_code(), Code::CANCELLED);
  }
  EXPECT_TRUE(none_taken()) << memory.taken();
  {
    Stream stream(server.client(), absl::Milliseconds(200));
    stream.Header(header(8 * kMiB));
    Part y{SetY, std::string(kMiB, '\0')};
    SendNext(stream, &y, kMiB);
    EXPECT_EQ(stream.Await().error_code(), Code::DEADLINE_EXCEEDED);
  }
  EXPECT_TRUE(none_taken()) << memory.taken();
  Stream streams[] = {Stream(server.client()), Stream(server.client()), Stream(server.client())};
  for (Stream& stream : streams) stream.Header(header(64 * kMiB));  // of which two fit
  int refused = 0;
  for (Stream& stream : streams) {
    stream.Chunk(std::string(8, '\0'));
    const grpc::Status status = stream.End();
    EXPECT_FALSE(status.ok());
    refused += status.error_code() == Code::RESOURCE_EXHAUSTED ? 1 : 0;
  }
  EXPECT_LE(refused, 2);
  EXPECT_TRUE(none_taken()) << memory.taken();
  Stream stream(server.client());
  ASSERT_TRUE(stream.Header(header(1)) && stream.Chunk(std::string(8, '\0')));
  Part y{SetY, std::string(8, '\0')};
  ASSERT_TRUE(SendNext(stream, &y, 8));
  EXPECT_TRUE(stream.End().ok());
  EXPECT_TRUE(none_taken()) << memory.taken();
}

// While the engine has a stretch.
TEST(PairStreams, AClientThatGoesAwayLeavesNothing) {
  HeldServer server(4);
  Stream stream(server->client());
  ASSERT_TRUE(stream.Header(PairHeader(v1::DTYPE_U8, v1::DTYPE_U8, 10 << 20, {v1::OP_DOT})));
  Part x{SetX, std::string(kMiB, 'x')}, y{SetY, std::string(kMiB, 'y')};
  ASSERT_TRUE(SendNext(stream, &x, kMiB) && SendNext(stream, &y, kMiB));
  ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
  const CancelFlag cancelled = server.engine().cancelled();
  stream.Cancel();
  EXPECT_TRUE(AwaitTrue(*cancelled));
  EXPECT_EQ(stream.End().error_code(), Code::CANCELLED);
  server.engine().Release();
  server->server().Shutdown(kPatience);
}

// ---- the client library

class PairStreamClient : public ::testing::Test {
 protected:
  TestServer server_;
  const std::unique_ptr<client::Client> client_ =
      client::Client::Create({.server = server_.address(), .timeout = kPatience}).value();
};

template <class T>
ArrayView ViewOf(const std::string& bytes, std::vector<std::int64_t> shape) {
  return {.data = bytes.data(), .dtype = sizeof(T) == 8 ? "f64" : "f32", .shape = std::move(shape)};
}

TEST_F(PairStreamClient, AnswersAsAnInlineRequest) {
  constexpr std::int64_t kCount = 3'000'000;  // several chunks of each, in turns
  const std::string x = Random<double>(kCount, 1), y = Random<float>(kCount, 2);
  const ArrayView of_x = ViewOf<double>(x, {1000, kCount / 1000}), of_y = ViewOf<float>(y, {1000, kCount / 1000});
  const std::vector<std::string> ops = {"dot", client::ops::Compare(1e-3), "weighted_mean", "sum"};
  const client::PartitionOptions partition{.y = of_y, .weights = of_x, .whole = true};
  const auto wanted = client_->ReduceArray(of_x, ops, partition);
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  std::int64_t sent = 0, total = 0;
  const auto got = client_->ReduceArray(of_x, ops, partition,
                                        {.via = "stream", .on_progress = [&](std::int64_t done, std::int64_t all) {
                                           sent = done;
                                           total = all;
                                         }});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->via, "stream");
  EXPECT_EQ(total, 20 * kCount);
  EXPECT_EQ(sent, total);
  ASSERT_EQ(got->results.size(), ops.size());
  for (std::size_t i = 0; i < ops.size(); ++i) {
    EXPECT_EQ(got->results[i].op, wanted->results[i].op);
    EXPECT_EQ(got->results[i].array.data, wanted->results[i].array.data) << ops[i];
    EXPECT_EQ(got->results[i].array.shape, wanted->results[i].array.shape);
  }
  const auto all_axes = client_->ReduceArray(of_x, {"dot"}, {.axis = {1, 0}, .y = of_y}, {.via = "stream"});
  ASSERT_TRUE(all_axes.ok()) << all_axes.status();
  EXPECT_EQ(all_axes->results[0].array.data, wanted->results[0].array.data);
}

// Elements that can be read once, and states.
TEST_F(PairStreamClient, ReadersAndStates) {
  constexpr std::int64_t kCount = 500'000;
  const std::string x = Random<double>(kCount, 3), y = Random<double>(kCount, 4);
  const auto reading = [](const std::string& bytes) {
    ArrayView view = ViewOf<double>(bytes, {kCount});
    view.data = nullptr;
    view.reader = {.read =
                       [&bytes, next = std::int64_t{0}](std::int64_t at, char* to, std::int64_t size) mutable {
                         if (at != next) return absl::InternalError("read twice");
                         next = at + size;
                         std::memcpy(to, bytes.data() + at, static_cast<std::size_t>(size));
                         return absl::OkStatus();
                       },
                   .in_order = true};
    return view;
  };
  const auto got = client_->ReduceArray(reading(x), {"corr"}, {.y = reading(y), .whole = true},
                                        {.via = "stream", .return_state = true});
  ASSERT_TRUE(got.ok()) << got.status();
  const auto wanted =
      client_->ReduceArray(ViewOf<double>(x, {kCount}), {"corr"}, {.y = ViewOf<double>(y, {kCount}), .whole = true});
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  EXPECT_EQ(got->results[0].array.data, wanted->results[0].array.data);
  const auto merged = client_->MergeArrays({got->state});
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->results[0].array.data, wanted->results[0].array.data);

  ArrayView broken = reading(y);
  broken.reader.read = [](std::int64_t, char*, std::int64_t) { return absl::DataLossError("the pipe broke"); };
  EXPECT_EQ(client_->ReduceArray(reading(x), {"corr"}, {.y = broken, .whole = true}, {.via = "stream"}).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(PairStreamClient, WhatIsRefused) {
  const std::vector<double> x = {1, 2, 3, 4}, one = {1};
  const ArrayView rows = ArrayView::Of(x, {{2, 2}});
  const auto message = [&](const std::vector<std::string>& ops, const client::PartitionOptions& partition) {
    return std::string(client_->ReduceArray(rows, ops, partition, {.via = "stream"}).status().message());
  };
  EXPECT_THAT(message({"dot"}, {.axis = {1}, .y = rows}), HasSubstr("axes: got some in a stream"));
  EXPECT_THAT(message({"dot"}, {.axis = {1, 1}, .y = rows}), HasSubstr("axes: got some in a stream"));
  EXPECT_THAT(message({"dot"}, {.y = ArrayView::Of(one), .whole = true}), HasSubstr("y: got shape [1] in a stream"));
  const client::ResidentArray resident = client_->Put(rows).value();
  EXPECT_THAT(message({"dot"}, {.y = client::RemoteArray::Resident(resident.id()), .whole = true}),
              HasSubstr("y: got a source in a stream"));
  EXPECT_THAT(message({"weighted_median"}, {.weights = rows, .whole = true}),
              HasSubstr("got weighted_median in a stream"));
  EXPECT_THAT(message({"dot"}, {.whole = true}), HasSubstr("y: got none with op dot"));
}

}  // namespace
}  // namespace reduced::server::pair_streams

// Limits of resident arrays, arrays that are in use, and those of a GPU.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/array_calls.h"
#include "tests/service/chunk_stream.h"
#include "tests/service/held_engine.h"
#include "tests/service/test_server.h"

namespace reduced::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ArrayLimits, SoManyArraysAndNoMore) {
  ServerOptions options;
  options.limits.max_arrays = 1;
  TestServer server(options);
  const v1::ArrayInfo only = PutBytes(server.client(), 4);
  PutArrayCall second(server.client());
  second.Header(PutHeaderOf(v1::DTYPE_U8, 4));
  const grpc::Status status = second.Await();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("the server has 1 resident arrays; allowed: 1"));
  EXPECT_TRUE(DeleteArray(server.client(), only.id()).ok());
  PutBytes(server.client(), 4);
}

TEST(ArrayLimits, TheyCountAmongTheStreams) {
  ServerOptions options;
  options.limits.max_streams = 1;
  TestServer server(options);
  PutArrayCall first(server.client());
  ASSERT_TRUE(first.Header(PutHeaderOf(v1::DTYPE_U8, 4)));
  ASSERT_TRUE(AwaitThat([&server] { return InfoOf(server).usage().streams() == 1; }));
  PutArrayCall second(server.client());
  second.Header(PutHeaderOf(v1::DTYPE_U8, 4));
  const grpc::Status status = second.Await();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(),
              HasSubstr("the server has 1 ReduceStream, PutArray and GetArray calls in progress; allowed: 1"));
  EXPECT_EQ(second.context().GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 1);
  ASSERT_TRUE(first.Chunk("abcd"));
  EXPECT_TRUE(first.End().ok());
  EXPECT_EQ(InfoOf(server).usage().streams(), 0);
  PutBytes(server.client(), 4);
}

TEST(ArrayUse, DeletionWaitsForTheUsers) {
  HeldServer server(4);
  const v1::ArrayInfo array = PutBytes(server->client(), 300'000);
  PendingReduce running(server->client(), RequestForArray(array.id(), {v1::OP_SUM}));
  ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
  EXPECT_EQ(ListArrays(server->client()).at(0).users(), 1);
  {
    Deletion deletion(server->client(), array.id());
    EXPECT_TRUE(AwaitThat([&server] { return ListArrays(server->client()).empty(); }));
    v1::ReduceResponse response;
    EXPECT_EQ(server->client().Reduce(RequestForArray(array.id(), {v1::OP_SUM}), &response).error_code(),
              grpc::StatusCode::NOT_FOUND);
    EXPECT_FALSE(deletion.answered());
    EXPECT_EQ(InfoOf(*server).devices(0).array_bytes(), 300'000);
    server.engine().ReleaseFirst();
    EXPECT_TRUE(deletion.Await().ok());
    EXPECT_EQ(InfoOf(*server).devices(0).array_bytes(), 0);
  }
  EXPECT_TRUE(running.Join().ok());
  EXPECT_THAT(Texts(running.response()), ElementsAre("u64:300000"));
}

TEST(ArrayUse, ADeletionThatIsCancelledDeletesAllTheSame) {
  HeldServer server(4);
  const v1::ArrayInfo array = PutBytes(server->client(), 1000);
  PendingReduce running(server->client(), RequestForArray(array.id(), {v1::OP_SUM}));
  ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
  {
    Deletion deletion(server->client(), array.id());
    EXPECT_TRUE(AwaitThat([&server] { return ListArrays(server->client()).empty(); }));
    deletion.Cancel();
    EXPECT_EQ(deletion.Await().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_EQ(InfoOf(*server).devices(0).array_bytes(), 1000);
  server.engine().ReleaseFirst();
  EXPECT_TRUE(running.Join().ok());
  EXPECT_TRUE(AwaitThat([&server] { return Idle(*server); }));
}

TEST(ArrayUse, AServerStopsWhileADeletionWaits) {
  HeldServer server(4);
  const v1::ArrayInfo array = PutBytes(server->client(), 1000);
  PendingReduce running(server->client(), RequestForArray(array.id(), {v1::OP_SUM}));
  ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
  Deletion deletion(server->client(), array.id());
  EXPECT_TRUE(AwaitThat([&server] { return ListArrays(server->client()).empty(); }));
  std::thread shutdown([&server] { server->server().Shutdown(kPatience); });
  server.engine().Release();
  shutdown.join();
  EXPECT_TRUE(running.Join().ok());
  EXPECT_TRUE(deletion.Await().ok());
}

TEST(ArrayUse, WhatIsUsedDoesNotExpire) {
  HeldServer server(4);
  const v1::ArrayInfo used = PutBytes(server->client(), 1000, /*ttl_ms=*/2000);
  PendingReduce running(server->client(), RequestForArray(used.id(), {v1::OP_SUM}));
  ASSERT_TRUE(server.engine().AwaitHeld(1, kPatience));
  PutBytes(server->client(), 10, /*ttl_ms=*/2050);
  // When the second one has gone, the first one's time is over too.
  EXPECT_TRUE(AwaitThat([&server] { return ListArrays(server->client()).size() == 1; }));
  EXPECT_EQ(ListArrays(server->client()).at(0).id(), used.id());
  server.engine().ReleaseFirst();
  EXPECT_TRUE(running.Join().ok());
  EXPECT_TRUE(AwaitThat([&server] { return Idle(*server); }));
}

TEST(ArrayUse, DrainingRefusesNewOnesAndStillDeletes) {
  TestServer server;
  const v1::ArrayInfo array = PutBytes(server.client(), 4);
  PutArrayCall running(server.client());
  ASSERT_TRUE(running.Header(PutHeaderOf(v1::DTYPE_U8, 4)));
  ASSERT_TRUE(AwaitThat([&server] { return InfoOf(server).usage().streams() == 1; }));
  server.server().Drain();
  PutArrayCall refused(server.client());
  refused.Header(PutHeaderOf(v1::DTYPE_U8, 4));
  const grpc::Status status = refused.Await();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("draining"));
  v1::ReduceResponse response;
  EXPECT_EQ(server.client().Reduce(RequestForArray(array.id(), {v1::OP_SUM}), &response).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ListArrays(server.client()).at(0).users(), 0);
  EXPECT_TRUE(DeleteArray(server.client(), array.id()).ok());
  ASSERT_TRUE(running.Chunk("abcd"));  // what runs may finish
  EXPECT_TRUE(running.End().ok());
  server.server().Shutdown(kPatience);
}

// Stands for a GPU: host memory that it calls its own.
class FakeGpu final : public SharedEngine {
 public:
  EngineKind kind() const override { return EngineKind::kCuda; }
  DeviceInfo info() const override {
    DeviceInfo device = CpuEngine().info();
    device.name = "cuda:0";
    device.ordinal = 0;
    return device;
  }
  void Reduce(Job job, Done done) override {
    job.array.space = MemorySpace::kHost;
    CpuEngine().Reduce(std::move(job), std::move(done));
  }
  absl::StatusOr<std::unique_ptr<ArrayMemory>> Allocate(std::int64_t bytes, std::uint64_t /*caller*/) override {
    absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = CpuEngine().Allocate(bytes);
    if (!memory.ok()) return memory.status();
    return std::make_unique<Memory>(*std::move(memory), largest_write, reads);
  }

  std::shared_ptr<std::int64_t> largest_write = std::make_shared<std::int64_t>(0);
  // After so many the device fails.
  std::shared_ptr<std::atomic<int>> reads = std::make_shared<std::atomic<int>>(1'000'000);

 private:
  class Memory final : public ArrayMemory {
   public:
    Memory(std::unique_ptr<ArrayMemory> memory, std::shared_ptr<std::int64_t> largest_write,
           std::shared_ptr<std::atomic<int>> reads)
        : memory_(std::move(memory)), largest_write_(std::move(largest_write)), reads_(std::move(reads)) {}
    ArrayRef array() const override {
      return {.data = memory_->array().data, .space = MemorySpace::kDevice, .device = 0};
    }
    absl::Status Write(std::int64_t offset, const void* data, std::int64_t bytes) override {
      *largest_write_ = std::max(*largest_write_, bytes);
      return memory_->Write(offset, data, bytes);
    }
    absl::Status Read(std::int64_t offset, std::int64_t bytes, void* to) const override {
      if ((*reads_)-- <= 0) return absl::UnavailableError("the device failed");
      return memory_->Read(offset, bytes, to);
    }

   private:
    const std::unique_ptr<ArrayMemory> memory_;
    const std::shared_ptr<std::int64_t> largest_write_;
    const std::shared_ptr<std::atomic<int>> reads_;
  };
};

TEST(ArraysOnAGpu, AreNotHeldByACallWhoseDeviceFails) {
  auto gpu = std::make_unique<FakeGpu>();
  const std::shared_ptr<std::atomic<int>> reads = gpu->reads;
  std::vector<std::unique_ptr<Engine>> engines;
  engines.push_back(std::make_unique<SharedEngine>());
  engines.push_back(std::move(gpu));
  TestServer server({}, Engines::Of(std::move(engines), ""));
  const std::int64_t count = 1'000'003;  // four chunks
  v1::ArrayInfo array;
  ASSERT_TRUE(
      PutElements(server.client(), PutHeaderOf(v1::DTYPE_I32, count), ElementsOf(DType::kI32, count), 1 << 20, &array)
          .ok());
  *reads = 2;
  v1::ArrayInfo sent;
  std::vector<std::string> chunks;
  const grpc::Status status = GetArray(server.client(), array.id(), &sent, &chunks);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "the device failed");
  EXPECT_EQ(chunks.size(), 2U);
  EXPECT_TRUE(DeleteArray(server.client(), array.id()).ok());  // when nobody uses it any more
}

TEST(ArraysOnAGpu, AreItsByDefaultAndReducedThere) {
  auto gpu = std::make_unique<FakeGpu>();
  const std::shared_ptr<std::int64_t> largest_write = gpu->largest_write;
  std::vector<std::unique_ptr<Engine>> engines;
  engines.push_back(std::make_unique<SharedEngine>());
  engines.push_back(std::move(gpu));
  TestServer server({}, Engines::Of(std::move(engines), ""));
  const std::int64_t count = 1'000'003;
  const std::string elements = ElementsOf(DType::kI32, count);
  v1::ReduceRequest inline_request = RequestForArray("", {v1::OP_SUM, v1::OP_ARGMAX, v1::OP_BIT_XOR});
  *inline_request.mutable_array() = PutHeaderOf(v1::DTYPE_I32, count).array();
  inline_request.set_inline_data(elements);
  v1::ReduceResponse expected;
  ASSERT_TRUE(server.client().Reduce(inline_request, &expected).ok());
  for (const std::string device : {"", "cuda:0", "cpu"}) {
    for (const std::size_t chunk : {100'001, 3'000'000}) {
      v1::PutArrayHeader header = PutHeaderOf(v1::DTYPE_I32, count);
      header.set_device(device);
      v1::ArrayInfo array;
      ASSERT_TRUE(PutElements(server.client(), header, elements, chunk, &array).ok());
      const bool on_gpu = device != "cpu";
      EXPECT_EQ(array.device(), on_gpu ? "cuda:0" : "cpu");
      EXPECT_TRUE(GetElements(server.client(), array.id()) == elements);
      v1::ReduceResponse response;
      v1::ReduceRequest request = RequestForArray(array.id(), {v1::OP_SUM, v1::OP_ARGMAX, v1::OP_BIT_XOR});
      ASSERT_TRUE(server.client().Reduce(request, &response).ok());
      EXPECT_EQ(Texts(response), Texts(expected));
      if (on_gpu) {
        EXPECT_EQ(response.execution().reason(), "the array is in its memory");
      }
      request.mutable_options()->set_engine(v1::ENGINE_CPU);
      const grpc::Status status = server.client().Reduce(request, &response);
      EXPECT_EQ(status.error_code(), on_gpu ? grpc::StatusCode::FAILED_PRECONDITION : grpc::StatusCode::OK);
      EXPECT_TRUE(DeleteArray(server.client(), array.id()).ok());
    }
  }
  EXPECT_EQ(*largest_write, 1 << 20);  // however small the slices that it came in
  v1::ArrayInfo empty;
  ASSERT_TRUE(PutElements(server.client(), PutHeaderOf(v1::DTYPE_F32, 0), "", 1, &empty).ok());
  v1::ReduceResponse response;
  ASSERT_TRUE(server.client().Reduce(RequestForArray(empty.id(), {v1::OP_SUM}), &response).ok());
  EXPECT_THAT(Texts(response), ElementsAre("f64:0"));
}

}  // namespace
}  // namespace reduced::server

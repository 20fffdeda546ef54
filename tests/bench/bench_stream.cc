// Arrays that stream in over a Unix socket, against what the transport can do: a stream of the same chunks, raw, to a
// method of the same server that reads them and does nothing, in turn. Then the client library's two ways, inline and
// stream, by size: what its choice of one goes by. Goal: at least 0.9 of the bare stream.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "google/protobuf/empty.pb.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/resource_quota.h"
#include "kernels/engines.h"
#include "reduced/client.h"
#include "reduced/v1/reduced.grpc.pb.h"
#include "server/service.h"

namespace {

constexpr char kBareMethod[] = "/reduced.bench.Bare/Stream";
constexpr char kReduceMethod[] = "/reduced.v1.Reduction/ReduceStream";
constexpr std::int64_t kBytes = std::int64_t{256} << 20;
constexpr std::int64_t kChunkBytes = std::int64_t{1} << 20;
constexpr int kRounds = 7;
constexpr double kGoal = 0.9;

[[noreturn]] void Fail(const std::string& why) {
  std::fprintf(stderr, "bench_stream: %s\n", why.c_str());
  std::exit(EXIT_FAILURE);
}

// A service of one method that reads a stream of anything to its end, as the code that protoc generates would have it.
class BareService final : public grpc::Service {
 public:
  BareService() {
    AddMethod(new grpc::internal::RpcServiceMethod(kBareMethod, grpc::internal::RpcMethod::CLIENT_STREAMING, nullptr));
    MarkMethodRawCallback(0, new grpc::internal::CallbackClientStreamingHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
                                 [](grpc::CallbackServerContext*, grpc::ByteBuffer* response) {
                                   *response = grpc::ByteBuffer(nullptr, 0);
                                   return new Reader;
                                 }));
  }

 private:
  class Reader final : public grpc::ServerReadReactor<grpc::ByteBuffer> {
   public:
    Reader() { StartRead(&message_); }
    void OnReadDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::OK);
      message_.Clear();
      StartRead(&message_);
    }
    void OnDone() override { delete this; }

   private:
    grpc::ByteBuffer message_;
  };
};

// Sends messages, each of the slices given, over and over the same array.
class Writer final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Writer(const std::shared_ptr<grpc::Channel>& channel, const char* method, const grpc::ByteBuffer& first,
         const char* data)
      : data_(data), message_(first) {
    grpc::GenericStub(channel).PrepareBidiStreamingCall(&context_, method, {}, this);
    StartWrite(&message_);
    StartRead(&response_);
    StartCall();
  }
  void OnWriteDone(bool ok) override {
    message_.Clear();
    if (!ok || sent_ == kBytes) return;
    static const std::string prefix = {0x12, static_cast<char>(0x80), static_cast<char>(0x80), 0x40};  // field 2, 1 MiB
    const grpc::Slice slices[] = {grpc::Slice(prefix),
                                  grpc::Slice(
                                      const_cast<char*>(data_ + sent_), kChunkBytes, [](void*) {}, nullptr)};
    message_ = grpc::ByteBuffer(slices, 2);
    sent_ += kChunkBytes;
    if (sent_ == kBytes) {
      StartWriteLast(&message_, grpc::WriteOptions());
    } else {
      StartWrite(&message_);
    }
  }
  void OnDone(const grpc::Status& status) override {
    status_ = status;
    done_.Notify();
  }
  void Await() {
    done_.WaitForNotification();
    if (!status_.ok()) Fail(status_.error_message());
  }

 private:
  const char* const data_;
  grpc::ClientContext context_;
  grpc::ByteBuffer message_;
  grpc::ByteBuffer response_;
  std::int64_t sent_ = 0;
  grpc::Status status_;
  absl::Notification done_;
};

template <class Work>
double SecondsOf(Work work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void AgainstBare(const std::shared_ptr<grpc::Channel>& channel, const std::vector<float>& elements) {
  reduced::v1::ReduceStreamRequest request;
  request.mutable_header()->mutable_array()->set_dtype(reduced::v1::DTYPE_F32);
  request.mutable_header()->mutable_array()->add_shape(kBytes / 4);
  request.mutable_header()->add_ops(reduced::v1::OP_SUM);
  const grpc::Slice slice(request.SerializeAsString());
  const grpc::ByteBuffer header(&slice, 1);
  const auto* const data = reinterpret_cast<const char*>(elements.data());
  std::vector<double> bare;
  std::vector<double> reduce;
  for (int round = 0; round <= kRounds; ++round) {  // the first to warm up
    const double bare_s = SecondsOf([&] { Writer(channel, kBareMethod, header, data).Await(); });
    const double reduce_s = SecondsOf([&] { Writer(channel, kReduceMethod, header, data).Await(); });
    if (round == 0) continue;
    bare.push_back(bare_s);
    reduce.push_back(reduce_s);
  }
  const double ratio = Median(bare) / Median(reduce);
  std::printf("256 MiB in chunks of 1 MiB, one connection: bare stream %.2f GB/s, ReduceStream f32 sum %.2f GB/s\n",
              kBytes / Median(bare) / 1e9, kBytes / Median(reduce) / 1e9);
  std::printf("ratio ReduceStream / bare: %.3f (goal: at least %.2f)\n", ratio, kGoal);
}

void BySize(const std::string& address, const std::vector<float>& elements) {
  const auto client = reduced::client::Client::Create({.server = address, .timeout = absl::Seconds(60)});
  if (!client.ok()) Fail(std::string(client.status().message()));
  for (std::int64_t bytes = 4 << 10; bytes <= 16 << 20; bytes *= 4) {
    const auto array =
        reduced::client::ArrayView::Of(std::span<const float>(elements.data(), static_cast<std::size_t>(bytes / 4)));
    double us[2];
    const char* const ways[] = {"inline", "stream"};
    std::vector<double> samples[2];
    const int repeats = static_cast<int>(std::clamp<std::int64_t>((std::int64_t{128} << 20) / bytes, 20, 1000));
    for (int i = 0; i < repeats; ++i) {
      for (int way = 0; way < 2; ++way) {
        samples[way].push_back(SecondsOf([&] {
          const auto reply = (*client)->Reduce(array, {"sum"}, {.via = ways[way]});
          if (!reply.ok()) Fail(std::string(reply.status().message()));
        }));
      }
    }
    for (int way = 0; way < 2; ++way) us[way] = 1e6 * Median(samples[way]);
    std::printf("%6lld KiB: inline %9.1f us, stream %9.1f us\n", static_cast<long long>(bytes >> 10), us[0], us[1]);
  }
}

}  // namespace

int main() {
  mallopt(M_TRIM_THRESHOLD, 32 << 20);  // as reduced and reducectl do
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  const auto engines = reduced::Engines::Start({});
  if (!engines.ok()) Fail(std::string(engines.status().message()));
  reduced::Backend backend(**engines);
  reduced::ReductionService reduction(backend);
  BareService bare;
  const std::string address =
      "unix:" + (std::filesystem::temp_directory_path() / ("bench_stream." + std::to_string(getpid()))).string();
  grpc::ServerBuilder builder;
  builder.RegisterService(&reduction);
  builder.RegisterService(&bare);
  builder.SetMaxReceiveMessageSize(64 << 20);
  builder.SetResourceQuota(grpc::ResourceQuota("bench").Resize(std::size_t{1} << 30));  // as Server does
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) Fail("cannot listen on " + address);

  std::vector<float> elements(kBytes / 4);
  std::uint32_t state = 1;
  for (float& x : elements) x = static_cast<float>((state = state * 1664525 + 1013904223) >> 8) * 0x1p-24F;
  AgainstBare(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()), elements);
  BySize(address, elements);
  server->Shutdown();
  return EXIT_SUCCESS;
}

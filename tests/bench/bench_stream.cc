// Arrays that stream in over a Unix socket, against what the transport can do: a stream of the same chunks, raw, to a
// method of the same server that reads them and does nothing, in turn; over one connection, then in parts over four.
// Then the client library's ways, inline, stream and parts, by size: what its choice of one goes by; and how much
// memory the server takes meanwhile for an array of 64 GiB. Goals: at least 0.9 of the bare stream; at most 256 MiB.
//
//   bench_stream [GIB]   of the last array, default 64; 0: none
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "google/protobuf/empty.pb.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "reduced/client.h"
#include "reduced/v1/reduced.grpc.pb.h"
#include "tests/bench/server_process.h"

namespace {

constexpr char kBareMethod[] = "/reduced.bench.Bare/Stream";
constexpr char kReduceMethod[] = "/reduced.v1.Reduction/ReduceStream";
constexpr std::int64_t kBytes = std::int64_t{256} << 20;
constexpr std::int64_t kChunkBytes = std::int64_t{1} << 20;
constexpr int kMaxMessageBytes = 64 << 20;
constexpr int kRounds = 7;
constexpr double kGoal = 0.9;
constexpr double kFourGoal = 14;  // GB/s, on 16 cores
constexpr double kMemoryGoalMib = 256;

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

// Sends an array, cut into chunks, after a first message; one of more than kBytes repeats what is at `data`.
class Writer final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Writer(const std::shared_ptr<grpc::Channel>& channel, const char* method, const grpc::ByteBuffer& first,
         const char* data, std::int64_t bytes)
      : data_(data), bytes_(bytes), message_(first) {
    grpc::GenericStub(channel).PrepareBidiStreamingCall(&context_, method, {}, this);
    StartWrite(&message_);
    StartRead(&response_);
    StartCall();
  }
  void OnWriteDone(bool ok) override {
    message_.Clear();
    if (!ok || sent_ == bytes_) return;
    static const std::string prefix = {0x12, static_cast<char>(0x80), static_cast<char>(0x80), 0x40};  // field 2, 1 MiB
    const grpc::Slice slices[] = {grpc::Slice(prefix),
                                  grpc::Slice(
                                      const_cast<char*>(data_ + sent_ % kBytes), kChunkBytes, [](void*) {}, nullptr)};
    message_ = grpc::ByteBuffer(slices, 2);
    sent_ += kChunkBytes;
    if (sent_ == bytes_) {
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
  const std::int64_t bytes_;
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

reduced::v1::ReduceStreamRequest SumOf(std::int64_t bytes) {
  reduced::v1::ReduceStreamRequest request;
  request.mutable_header()->mutable_array()->set_dtype(reduced::v1::DTYPE_F32);
  request.mutable_header()->mutable_array()->add_shape(bytes / 4);
  request.mutable_header()->add_ops(reduced::v1::OP_SUM);
  return request;
}

// A stream of its own over each of the channels, at once, of kBytes: an array of as many times that.
void Send(const std::vector<std::shared_ptr<grpc::Channel>>& channels, const char* method,
          const std::vector<float>& elements) {
  static int uploads = 0;
  const auto parts = static_cast<std::int64_t>(channels.size());
  reduced::v1::ReduceStreamRequest first = SumOf(kBytes * parts);
  const std::string upload = std::to_string(++uploads);
  std::deque<Writer> writers;
  for (std::int64_t i = 0; i < parts; ++i) {
    if (parts > 1) {
      reduced::v1::StreamPart& part = *first.mutable_stream_part();
      part.set_upload(upload);
      part.set_parts(static_cast<std::int32_t>(parts));
      part.set_index(static_cast<std::int32_t>(i));
      part.set_first(i * (kBytes / 4));
      part.set_count(kBytes / 4);
    }
    const grpc::Slice slice(first.SerializeAsString());
    writers.emplace_back(channels[static_cast<std::size_t>(i)], method, grpc::ByteBuffer(&slice, 1),
                         reinterpret_cast<const char*>(elements.data()), kBytes);
  }
  for (Writer& writer : writers) writer.Await();
}

// What both take over so many connections, GB/s.
struct Rates {
  double bare = 0;
  double reduce = 0;
};

Rates AgainstBare(const std::string& address, int connections, const std::vector<float>& elements) {
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
  for (int i = 0; i < connections; ++i) {
    channels.push_back(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  }
  std::vector<double> bare;
  std::vector<double> reduce;
  for (int round = 0; round <= kRounds; ++round) {  // the first to warm up
    const double bare_s = SecondsOf([&] { Send(channels, kBareMethod, elements); });
    const double reduce_s = SecondsOf([&] { Send(channels, kReduceMethod, elements); });
    if (round == 0) continue;
    bare.push_back(bare_s);
    reduce.push_back(reduce_s);
  }
  const double bytes = static_cast<double>(kBytes) * connections;
  return {bytes / Median(bare) / 1e9, bytes / Median(reduce) / 1e9};
}

void AgainstBare(const std::string& address, const std::vector<float>& elements) {
  const Rates one = AgainstBare(address, 1, elements);
  std::printf("256 MiB in chunks of 1 MiB, one connection: bare stream %.2f GB/s, ReduceStream f32 sum %.2f GB/s\n",
              one.bare, one.reduce);
  std::printf("ratio ReduceStream / bare: %.3f (goal: at least %.2f)\n", one.reduce / one.bare, kGoal);
  const Rates four = AgainstBare(address, 4, elements);
  std::printf(
      "1 GiB over 4 connections: ReduceStream %.2f GB/s (goal: at least %.0f); bare stream %.2f GB/s; ratio %.3f\n",
      four.reduce, kFourGoal, four.bare, four.reduce / four.bare);
}

void BySize(const std::string& address, const std::vector<float>& elements) {
  // From `from` bytes on, below `below`: where it is possible, or makes a difference.
  struct Way {
    const char* name;
    const char* via;
    int connections;
    std::int64_t from;
    std::int64_t below;
  };
  constexpr Way kWays[] = {{"inline", "inline", 1, 0, kMaxMessageBytes},
                           {"stream", "stream", 1, 0, INT64_MAX},
                           {"4 connections", "stream", 4, 32 << 20, INT64_MAX}};
  std::vector<std::unique_ptr<reduced::client::Client>> clients;
  for (const Way& way : kWays) {
    auto client = reduced::client::Client::Create(
        {.server = address, .timeout = absl::Seconds(60), .connections = way.connections});
    if (!client.ok()) Fail(std::string(client.status().message()));
    clients.push_back(*std::move(client));
  }
  for (std::int64_t bytes = 4 << 10; bytes <= kBytes; bytes *= 4) {
    const auto array =
        reduced::client::ArrayView::Of(std::span<const float>(elements.data(), static_cast<std::size_t>(bytes / 4)));
    std::vector<double> samples[std::size(kWays)];
    const int repeats = static_cast<int>(std::clamp<std::int64_t>((std::int64_t{128} << 20) / bytes, 20, 1000));
    for (int i = 0; i < repeats; ++i) {
      for (std::size_t way = 0; way < std::size(kWays); ++way) {
        if (bytes < kWays[way].from || bytes >= kWays[way].below) continue;
        samples[way].push_back(SecondsOf([&] {
          const auto reply = clients[way]->Reduce(array, {"sum"}, {.via = kWays[way].via});
          if (!reply.ok()) Fail(std::string(reply.status().message()));
        }));
      }
    }
    std::string line;
    for (std::size_t way = 0; way < std::size(kWays); ++way) {
      if (samples[way].empty()) continue;
      absl::StrAppendFormat(&line, "%s %s %9.1f us", line.empty() ? "" : ",", kWays[way].name,
                            1e6 * Median(samples[way]));
    }
    std::printf("%6lld KiB:%s\n", static_cast<long long>(bytes >> 10), line.c_str());
  }
}

// What the process has in memory, MiB: now, and at most since its peak was last reset.
struct Resident {
  double now_mib = 0;
  double peak_mib = 0;
};

Resident ResidentOf(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  Resident resident;
  for (std::string line; std::getline(status, line);) {
    const auto mib = [&line] { return std::atof(line.substr(line.find(':') + 1).c_str()) / 1024; };
    if (line.rfind("VmRSS:", 0) == 0) resident.now_mib = mib();
    if (line.rfind("VmHWM:", 0) == 0) resident.peak_mib = mib();
  }
  return resident;
}

// A fresh server's, so that nothing of the streams before is in what it has when idle.
void MemoryOfAStream(const reduced::server::ServerProcess& server, const std::vector<float>& elements,
                     std::int64_t gib) {
  const auto channel = grpc::CreateChannel(server.address(), grpc::InsecureChannelCredentials());
  if (!channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(30))) Fail("no connection");
  std::ofstream("/proc/" + std::to_string(server.process()) + "/clear_refs") << 5;  // the peak, of its start, is reset
  const Resident idle = ResidentOf(server.process());
  const std::int64_t bytes = gib << 30;
  const grpc::Slice first(SumOf(bytes).SerializeAsString());
  const double seconds = SecondsOf([&] {
    Writer(channel, kReduceMethod, grpc::ByteBuffer(&first, 1), reinterpret_cast<const char*>(elements.data()), bytes)
        .Await();
  });
  const Resident after = ResidentOf(server.process());
  std::printf(
      "one stream of %lld GiB, %.2f GB/s: the server's memory %.0f MiB before it, at most %.0f MiB during it, %.0f MiB "
      "more (goal: at most %.0f)\n",
      static_cast<long long>(gib), static_cast<double>(bytes) / seconds / 1e9, idle.now_mib, after.peak_mib,
      after.peak_mib - idle.now_mib, kMemoryGoalMib);
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t gib = argc > 1 ? std::atoll(argv[1]) : 64;
  mallopt(M_TRIM_THRESHOLD, 32 << 20);  // as reduced and reducectl do
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  const auto start = [](const std::string& address) {
    return std::make_shared<reduced::server::BenchServer>(address, std::make_unique<BareService>());
  };
  const reduced::server::ServerProcess server(start);
  const reduced::server::ServerProcess fresh(start);
  std::vector<float> elements(kBytes / 4);
  std::uint32_t state = 1;
  for (float& x : elements) x = static_cast<float>((state = state * 1664525 + 1013904223) >> 8) * 0x1p-24F;
  AgainstBare(server.address(), elements);
  BySize(server.address(), elements);
  if (gib > 0) MemoryOfAStream(fresh, elements, gib);
  return EXIT_SUCCESS;
}

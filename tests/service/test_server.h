// What the service tests share: a server in this process, requests, and calls that always end.
#ifndef REDUCED_TESTS_SERVICE_TEST_SERVER_H_
#define REDUCED_TESTS_SERVICE_TEST_SERVER_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "google/protobuf/wrappers.pb.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "kernels/algebra/dtype.h"
#include "reduced/v1/reduced.grpc.pb.h"
#include "server/server.h"

namespace reduced::server {

// No call and no wait of a test takes longer; far beyond what any needs, so that only a fault reaches it.
inline constexpr absl::Duration kPatience = absl::Seconds(60);
inline constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// A directory of its own, removed with all it has.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  std::string operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// A client's side: one connection and the stubs on it.
class TestClient {
 public:
  explicit TestClient(const std::string& address);

  // Each within kPatience, or `timeout`.
  grpc::Status Reduce(const v1::ReduceRequest& request, v1::ReduceResponse* response,
                      absl::Duration timeout = kPatience);
  grpc::Status Reduce(grpc::ClientContext* context, const v1::ReduceRequest& request, v1::ReduceResponse* response);
  grpc::Status Info(v1::GetServerInfoResponse* info);
  // A call of any unary method. The messages of grpc.health.v1 have the encoding of protobuf's wrappers of one field,
  // which saves their .proto: HealthCheckRequest is a StringValue, HealthCheckResponse an Int32Value.
  grpc::Status Health(const std::string& service, int* status);

  // A call of reduced.v1.Reduction with the bytes of one message, within kPatience.
  grpc::Status Call(grpc::ClientContext* context, const std::string& method, const std::string& message) const;

  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

 private:
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Reduction::Stub> stub_;
};

inline constexpr int kServing = 1;  // of grpc.health.v1.HealthCheckResponse.ServingStatus
inline constexpr int kNotServing = 2;

// grpc.health.v1.Health.Watch, as a blocking read of one status after the other.
class HealthWatch {
 public:
  HealthWatch(const TestClient& client, const std::string& service);
  ~HealthWatch();
  int Next();  // the next status; -1: the stream ended, or nothing came within kPatience

 private:
  bool Step();

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<google::protobuf::StringValue, google::protobuf::Int32Value>> call_;
};

// The one CPU engine of this process, for its whole life: an engine measures itself when it starts, which takes seconds
// under a sanitizer.
Engine& CpuEngine();
// An engine that leaves everything to CpuEngine(), but for what a test overrides.
class SharedEngine : public Engine {
 public:
  EngineKind kind() const override { return EngineKind::kCpu; }
  DeviceInfo info() const override { return CpuEngine().info(); }
  Calibration calibration() const override { return CpuEngine().calibration(); }
  void Reduce(Job job, Done done) override { CpuEngine().Reduce(std::move(job), std::move(done)); }
  void OnLane(const Job& all, Work work) override { CpuEngine().OnLane(all, std::move(work)); }
  void Measure(Job job, int repeats, Measured done) override {
    CpuEngine().Measure(std::move(job), repeats, std::move(done));
  }
  void MeasureMatmul(MatmulJob job, int repeats, MatmulMeasured done) override {
    CpuEngine().MeasureMatmul(std::move(job), repeats, std::move(done));
  }
  absl::StatusOr<std::unique_ptr<ArrayMemory>> Allocate(std::int64_t bytes, std::uint64_t caller) override {
    return CpuEngine().Allocate(bytes, caller);
  }
};
// That engine and no other.
std::unique_ptr<Engines> OnlyEngine(std::unique_ptr<Engine> engine);
std::unique_ptr<Engines> SharedEngines();  // a SharedEngine

// A server on a Unix socket of its own and a client of it.
class TestServer {
 public:
  // `options` as they are, but for `listen`.
  explicit TestServer(const ServerOptions& options = {}) : TestServer(options, SharedEngines()) {}
  TestServer(ServerOptions options, std::unique_ptr<Engines> engines);

  Server& server() { return *server_; }
  TestClient& client() const { return *client_; }
  const std::string& address() const { return address_; }

 private:
  TempDir dir_;
  std::string address_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<TestClient> client_;
};

void SetContextDeadline(grpc::ClientContext* context, absl::Duration timeout = kPatience);

// A request for ops of the elements, as a one-dimensional array.
template <class T>
v1::ReduceRequest RequestOf(v1::DType dtype, const std::vector<T>& elements, const std::vector<v1::Op>& ops) {
  v1::ReduceRequest request;
  request.mutable_array()->set_dtype(dtype);
  request.mutable_array()->add_shape(static_cast<std::int64_t>(elements.size()));
  request.set_inline_data(elements.data(), elements.size() * sizeof(T));
  for (const v1::Op op : ops) request.add_ops(op);
  return request;
}

v1::ReduceRequest SmallSum();  // of four f32

// The first message of a stream of so many elements: a request without its elements.
v1::ReduceRequest HeaderOf(v1::DType dtype, std::int64_t count, const std::vector<v1::Op>& ops);

// So many small whole numbers, the same in every call, as bytes.
std::string ElementsOf(DType dtype, std::int64_t count);

// "f64:2.5", "i64:-3", "bool:true": dtype and value, floats to 12 digits.
std::string Text(const v1::Value& value);
std::vector<std::string> Texts(const v1::ReduceResponse& response);  // of all results

// A Reduce in a thread of its own, which ends within kPatience. The client must outlive it.
class PendingReduce {
 public:
  explicit PendingReduce(const TestClient& client, v1::ReduceRequest request = SmallSum());
  ~PendingReduce() { Join(); }
  grpc::Status Join();
  grpc::ClientContext& context() { return context_; }
  const v1::ReduceResponse& response() const { return response_; }  // after Join

 private:
  grpc::ClientContext context_;
  v1::ReduceResponse response_;
  grpc::Status status_;
  std::thread thread_;
};

}  // namespace reduced::server

#endif  // REDUCED_TESTS_SERVICE_TEST_SERVER_H_

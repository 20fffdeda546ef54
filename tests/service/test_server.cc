#include "tests/service/test_server.h"

#include <chrono>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "kernels/cpu/engine.h"
#include "tests/support/data.h"

namespace reduced::server {

TempDir::TempDir() {
  std::string name = std::filesystem::temp_directory_path() / "reduced_test_XXXXXX";
  if (mkdtemp(name.data()) == nullptr) std::abort();
  path_ = name;
}

TempDir::~TempDir() { std::filesystem::remove_all(path_); }

void SetContextDeadline(grpc::ClientContext* context, absl::Duration timeout) {
  context->set_deadline(absl::ToChronoTime(absl::Now() + timeout));
}

TestClient::TestClient(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
  arguments.SetMaxReceiveMessageSize(-1);
  channel_ = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  stub_ = v1::Reduction::NewStub(channel_);
}

grpc::Status TestClient::Reduce(const v1::ReduceRequest& request, v1::ReduceResponse* response,
                                absl::Duration timeout) {
  grpc::ClientContext context;
  SetContextDeadline(&context, timeout);
  return stub_->Reduce(&context, request, response);
}

grpc::Status TestClient::Reduce(grpc::ClientContext* context, const v1::ReduceRequest& request,
                                v1::ReduceResponse* response) {
  return stub_->Reduce(context, request, response);
}

grpc::Status TestClient::Call(grpc::ClientContext* context, const std::string& method,
                              const std::string& message) const {
  SetContextDeadline(context);
  const grpc::Slice slice(message);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  grpc::Status status;
  absl::Notification done;
  grpc::GenericStub(channel_).UnaryCall(context, absl::StrCat("/reduced.v1.Reduction/", method), {}, &request,
                                        &response, [&](grpc::Status result) {
                                          status = std::move(result);
                                          done.Notify();
                                        });
  done.WaitForNotification();
  return status;
}

grpc::Status TestClient::Info(v1::GetServerInfoResponse* info) {
  grpc::ClientContext context;
  SetContextDeadline(&context);
  return stub_->GetServerInfo(&context, {}, info);
}

grpc::Status TestClient::Health(const std::string& service, int* status) {
  grpc::TemplatedGenericStub<google::protobuf::StringValue, google::protobuf::Int32Value> stub(channel_);
  grpc::ClientContext context;
  SetContextDeadline(&context);
  google::protobuf::StringValue request;
  google::protobuf::Int32Value response;
  request.set_value(service);
  grpc::Status result;
  absl::Notification done;
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", {}, &request, &response, [&](grpc::Status status_of_call) {
    result = std::move(status_of_call);
    done.Notify();
  });
  done.WaitForNotification();
  *status = response.value();
  return result;
}

HealthWatch::HealthWatch(const TestClient& client, const std::string& service) {
  grpc::TemplatedGenericStub<google::protobuf::StringValue, google::protobuf::Int32Value> stub(client.channel());
  call_ = stub.PrepareCall(&context_, "/grpc.health.v1.Health/Watch", &queue_);
  google::protobuf::StringValue request;
  request.set_value(service);
  call_->StartCall(nullptr);
  EXPECT_TRUE(Step());
  call_->WriteLast(request, {}, nullptr);
  EXPECT_TRUE(Step());
}

HealthWatch::~HealthWatch() {
  context_.TryCancel();
  grpc::Status status;
  call_->Finish(&status, nullptr);
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

int HealthWatch::Next() {
  google::protobuf::Int32Value status;
  call_->Read(&status, nullptr);
  return Step() ? status.value() : -1;
}

bool HealthWatch::Step() {
  void* tag = nullptr;
  bool ok = false;
  const auto deadline = absl::ToChronoTime(absl::Now() + kPatience);
  if (queue_.AsyncNext(&tag, &ok, deadline) == grpc::CompletionQueue::GOT_EVENT) return ok;
  context_.TryCancel();  // ends the operation that is under way, which still uses its buffer
  queue_.Next(&tag, &ok);
  return false;
}

Engine& CpuEngine() {
  static Engine* const engine = MakeCpuEngine(EngineOptions{}).release();
  return *engine;
}

std::unique_ptr<Engines> OnlyEngine(std::unique_ptr<Engine> engine) {
  std::vector<std::unique_ptr<Engine>> engines;
  engines.push_back(std::move(engine));
  return Engines::Of(std::move(engines), "a test");
}

std::unique_ptr<Engines> SharedEngines() { return OnlyEngine(std::make_unique<SharedEngine>()); }

TestServer::TestServer(ServerOptions options, std::unique_ptr<Engines> engines)
    : address_(absl::StrCat("unix:", dir_ / "socket")) {
  options.listen = {address_};
  if (options.metrics_listen == "auto") options.metrics_listen.clear();  // servers of other tests run beside it
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(options, std::move(engines));
  EXPECT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
  client_ = std::make_unique<TestClient>(address_);
}

v1::ReduceRequest SmallSum() { return RequestOf<float>(v1::DTYPE_F32, {1, 2, 3, 4}, {v1::OP_SUM}); }

v1::ReduceRequest HeaderOf(v1::DType dtype, std::int64_t count, const std::vector<v1::Op>& ops) {
  v1::ReduceRequest header;
  header.mutable_array()->set_dtype(dtype);
  header.mutable_array()->add_shape(count);
  for (const v1::Op op : ops) header.add_ops(op);
  return header;
}

std::string ElementsOf(DType dtype, std::int64_t count) {
  const test::Bytes bytes = test::MakeData(test::DataKind::kSmall, dtype, count, 7);
  return {reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(count * RowOf(dtype).bytes)};
}

std::string Text(const v1::Value& value) {
  const std::string dtype =
      DTypeFromNumber(value.dtype()) ? std::string(RowOf(*DTypeFromNumber(value.dtype())).name) : "?";
  switch (value.value_case()) {
    case v1::Value::kF:
      return absl::StrFormat("%s:%.12g", dtype, value.f());
    case v1::Value::kI:
      return absl::StrCat(dtype, ":", value.i());
    case v1::Value::kU:
      return absl::StrCat(dtype, ":", value.u());
    case v1::Value::kB:
      return absl::StrCat(dtype, ":", value.b() ? "true" : "false");
    case v1::Value::VALUE_NOT_SET:
      break;
  }
  return dtype + ":unset";
}

std::vector<std::string> Texts(const v1::ReduceResponse& response) {
  std::vector<std::string> texts;
  for (const v1::Result& result : response.results()) texts.push_back(Text(result.value()));
  return texts;
}

PendingReduce::PendingReduce(const TestClient& client, v1::ReduceRequest request)
    : thread_([this, &client, request = std::move(request)] {
        SetContextDeadline(&context_);
        status_ = v1::Reduction::NewStub(client.channel())->Reduce(&context_, request, &response_);
      }) {}

grpc::Status PendingReduce::Join() {
  if (thread_.joinable()) thread_.join();
  return status_;
}

}  // namespace reduced::server

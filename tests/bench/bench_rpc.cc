// A reduction of 1,024 f32 over a Unix socket, as a unary Reduce and as a request of a Session that waits for each
// answer, against an empty unary call and a stream of as many bytes that are answered with nothing: on the same server
// over the same connection, taking turns; and by the client library's Session. What a small reduction costs beyond the
// RPC itself, and what a session saves. Goals: Reduce at most 1.25 of the empty call, a session's request at most 0.65
// of Reduce.
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "google/protobuf/empty.pb.h"
#include "google/protobuf/wrappers.pb.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/impl/codegen/client_unary_call.h"
#include "reduced/client.h"
#include "reduced/v1/reduced.grpc.pb.h"
#include "tests/bench/server_process.h"

namespace {

using google::protobuf::BytesValue;
using google::protobuf::Empty;

constexpr char kEmptyMethod[] = "/reduced.bench.Empty/Call";
constexpr char kPingPongMethod[] = "/reduced.bench.Empty/PingPong";
constexpr int kElements = 1024;
constexpr double kGoal = 1.25;         // of Reduce to the empty call
constexpr double kSessionGoal = 0.65;  // of a session's request to Reduce

// A service of a unary method that takes nothing and answers nothing, and of a stream that answers each message of
// bytes with nothing, as the code that protoc generates would have it.
class EmptyService final : public grpc::Service {
 public:
  EmptyService() {
    AddMethod(new grpc::internal::RpcServiceMethod(kEmptyMethod, grpc::internal::RpcMethod::NORMAL_RPC, nullptr));
    MarkMethodCallback(0, new grpc::internal::CallbackUnaryHandler<Empty, Empty>(
                              [](grpc::CallbackServerContext* context, const Empty*, Empty*) {
                                grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
                                reactor->Finish(grpc::Status::OK);
                                return reactor;
                              }));
    AddMethod(
        new grpc::internal::RpcServiceMethod(kPingPongMethod, grpc::internal::RpcMethod::BIDI_STREAMING, nullptr));
    MarkMethodCallback(1, new grpc::internal::CallbackBidiHandler<BytesValue, Empty>(
                              [](grpc::CallbackServerContext*) { return new Echo; }));
  }

 private:
  class Echo final : public grpc::ServerBidiReactor<BytesValue, Empty> {
   public:
    Echo() { StartRead(&message_); }
    void OnReadDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::OK);
      StartWrite(&answer_);
    }
    void OnWriteDone(bool ok) override { ok ? StartRead(&message_) : Finish(grpc::Status::OK); }
    void OnDone() override { delete this; }

   private:
    BytesValue message_;
    const Empty answer_;
  };
};

[[noreturn]] void Fail(const std::string& why) {
  std::fprintf(stderr, "bench_rpc: %s\n", why.c_str());
  std::exit(EXIT_FAILURE);
}

double MicrosOf(const std::function<grpc::Status()>& call) {
  const auto start = std::chrono::steady_clock::now();
  const grpc::Status status = call();
  const auto end = std::chrono::steady_clock::now();
  if (!status.ok()) Fail(status.error_message());
  return std::chrono::duration<double, std::micro>(end - start).count();
}

double Percentile(std::vector<double>& sorted_later, double part) {
  std::sort(sorted_later.begin(), sorted_later.end());
  return sorted_later[static_cast<std::size_t>(part * static_cast<double>(sorted_later.size() - 1))];
}

}  // namespace

int main(int argc, char** argv) {
  mallopt(M_TRIM_THRESHOLD, 32 << 20);  // as reduced does
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  const int calls = argc > 1 ? std::atoi(argv[1]) : 20'000;
  if (calls < 1) Fail("usage: bench_rpc [calls of each kind, 20000 by default]");

  const reduced::server::ServerProcess server([](const std::string& address) {
    return std::make_shared<reduced::server::BenchServer>(address, std::make_unique<EmptyService>(),
                                                          reduced::EngineOptions{.cuda = false});
  });

  const auto channel = grpc::CreateChannel(server.address(), grpc::InsecureChannelCredentials());
  const auto stub = reduced::v1::Reduction::NewStub(channel);
  const grpc::internal::RpcMethod method(kEmptyMethod, grpc::internal::RpcMethod::NORMAL_RPC, channel);
  const auto call_empty = [&] {
    grpc::ClientContext context;
    Empty answer;
    return grpc::internal::BlockingUnaryCall<Empty, Empty>(channel.get(), method, &context, Empty(), &answer);
  };
  const grpc::internal::RpcMethod ping_pong(kPingPongMethod, grpc::internal::RpcMethod::BIDI_STREAMING, channel);
  grpc::ClientContext ping_pong_context;
  const std::unique_ptr<grpc::ClientReaderWriter<BytesValue, Empty>> stream(
      grpc::internal::ClientReaderWriterFactory<BytesValue, Empty>::Create(channel.get(), ping_pong,
                                                                           &ping_pong_context));
  BytesValue bytes;
  bytes.set_value(std::string(kElements * sizeof(float), 'x'));
  const auto call_ping_pong = [&] {
    Empty answer;
    return stream->Write(bytes) && stream->Read(&answer) ? grpc::Status::OK : stream->Finish();
  };
  reduced::v1::ReduceRequest request;
  request.mutable_array()->set_dtype(reduced::v1::DTYPE_F32);
  request.mutable_array()->add_shape(kElements);
  request.add_ops(reduced::v1::OP_SUM);
  const std::vector<float> ones(kElements, 1.0F);
  request.set_inline_data(ones.data(), ones.size() * sizeof(float));
  std::vector<double> server_us;
  const auto call_reduce = [&] {
    grpc::ClientContext context;
    reduced::v1::ReduceResponse answer;
    grpc::Status status = stub->Reduce(&context, request, &answer);
    if (status.ok() && answer.results(0).value().f() != kElements) Fail("the sum is wrong");
    server_us.push_back(answer.timing().total_us());
    return status;
  };
  grpc::ClientContext session_context;
  const auto session = stub->Session(&session_context);
  reduced::v1::SessionRequest session_request;
  *session_request.mutable_reduce() = request;
  std::vector<double> session_server_us;
  const auto call_session = [&] {
    reduced::v1::SessionResponse answer;
    session_request.set_id(session_request.id() + 1);
    if (!session->Write(session_request) || !session->Read(&answer)) return session->Finish();
    if (answer.id() != session_request.id() || answer.code() != 0) Fail("session: " + answer.message());
    if (answer.response().results(0).value().f() != kElements) Fail("the sum is wrong");
    session_server_us.push_back(answer.response().timing().total_us());
    return grpc::Status::OK;
  };

  const auto client = reduced::client::Client::Create({.server = server.address()});
  auto client_session = (*client)->OpenSession({.via = "session"});
  if (!client_session.ok()) Fail("session: " + std::string(client_session.status().message()));
  const auto call_library = [&] {
    const auto reply = (*client_session)->Reduce(reduced::client::ArrayView::Of(std::span<const float>(ones)), {"sum"});
    if (!reply.ok()) Fail("session: " + std::string(reply.status().message()));
    if (std::get<double>(reply->results[0].value->value) != kElements) Fail("the sum is wrong");
    return grpc::Status::OK;
  };

  std::vector<double> library_us;
  std::vector<double> session_us;
  std::vector<double> empty_us;
  std::vector<double> ping_pong_us;
  std::vector<double> reduce_us;
  for (int i = 0; i < calls / 10 + 1; ++i) {  // warm up
    MicrosOf(call_empty);
    MicrosOf(call_ping_pong);
    MicrosOf(call_reduce);
    MicrosOf(call_session);
    MicrosOf(call_library);
  }
  server_us.clear();
  session_server_us.clear();
  for (int i = 0; i < calls; ++i) {
    empty_us.push_back(MicrosOf(call_empty));
    ping_pong_us.push_back(MicrosOf(call_ping_pong));
    reduce_us.push_back(MicrosOf(call_reduce));
    session_us.push_back(MicrosOf(call_session));
    library_us.push_back(MicrosOf(call_library));
  }
  client_session->reset();
  stream->WritesDone();
  if (const grpc::Status status = stream->Finish(); !status.ok()) Fail("ping-pong: " + status.error_message());
  session->WritesDone();
  if (const grpc::Status status = session->Finish(); !status.ok()) Fail("session: " + status.error_message());

  const double ratio = Percentile(reduce_us, 0.5) / Percentile(empty_us, 0.5);
  std::printf("empty unary         p50 %7.1f us   p99 %7.1f us\n", Percentile(empty_us, 0.5),
              Percentile(empty_us, 0.99));
  std::printf("stream %d bytes  p50 %7.1f us   p99 %7.1f us\n", kElements * 4, Percentile(ping_pong_us, 0.5),
              Percentile(ping_pong_us, 0.99));
  std::printf("reduce %d x f32   p50 %7.1f us   p99 %7.1f us   (server's total_us p50 %.1f)\n", kElements,
              Percentile(reduce_us, 0.5), Percentile(reduce_us, 0.99), Percentile(server_us, 0.5));
  std::printf("session %d x f32  p50 %7.1f us   p99 %7.1f us   (server's total_us p50 %.1f)\n", kElements,
              Percentile(session_us, 0.5), Percentile(session_us, 0.99), Percentile(session_server_us, 0.5));
  std::printf("  by the library    p50 %7.1f us   p99 %7.1f us\n", Percentile(library_us, 0.5),
              Percentile(library_us, 0.99));
  std::printf("ratio reduce / empty, p50: %.3f (goal: at most %.2f)\n", ratio, kGoal);
  std::printf("ratio session / unary, p50: %.3f (goal: at most %.2f); stream of as many bytes / unary: %.3f\n",
              Percentile(session_us, 0.5) / Percentile(reduce_us, 0.5), kSessionGoal,
              Percentile(ping_pong_us, 0.5) / Percentile(reduce_us, 0.5));
  return EXIT_SUCCESS;
}

// Unary Reduce of 1,024 f32 over a Unix socket, against an empty unary call on the same server over the same
// connection, one after the other in turn: what a small reduction costs beyond the RPC itself. Goal: a ratio of at
// most 1.25.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "google/protobuf/empty.pb.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/impl/codegen/client_unary_call.h"
#include "grpcpp/resource_quota.h"
#include "kernels/engines.h"
#include "reduced/v1/reduced.grpc.pb.h"
#include "server/service.h"

namespace {

using google::protobuf::Empty;

constexpr char kEmptyMethod[] = "/reduced.bench.Empty/Call";
constexpr int kElements = 1024;
constexpr double kGoal = 1.25;

// A service of one unary method that takes nothing and answers nothing, as the code that protoc generates would have
// it.
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
  }
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
  const int calls = argc > 1 ? std::atoi(argv[1]) : 20'000;
  if (calls < 1) Fail("usage: bench_rpc [calls of each kind, 20000 by default]");

  const auto engines = reduced::Engines::Start({.cuda = false});
  if (!engines.ok()) Fail(std::string(engines.status().message()));
  reduced::Backend backend(**engines);
  reduced::ReductionService reduction(backend);
  EmptyService empty;
  const std::string path = std::filesystem::temp_directory_path() / ("bench_rpc." + std::to_string(getpid()));
  grpc::ServerBuilder builder;
  builder.RegisterService(&reduction);
  builder.RegisterService(&empty);
  builder.SetResourceQuota(grpc::ResourceQuota("bench").Resize(std::size_t{1} << 30));  // as Server does
  builder.AddListeningPort("unix:" + path, grpc::InsecureServerCredentials());
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) Fail("cannot listen on " + path);

  const auto channel = grpc::CreateChannel("unix:" + path, grpc::InsecureChannelCredentials());
  const auto stub = reduced::v1::Reduction::NewStub(channel);
  const grpc::internal::RpcMethod method(kEmptyMethod, grpc::internal::RpcMethod::NORMAL_RPC, channel);
  const auto call_empty = [&] {
    grpc::ClientContext context;
    Empty answer;
    return grpc::internal::BlockingUnaryCall<Empty, Empty>(channel.get(), method, &context, Empty(), &answer);
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

  std::vector<double> empty_us;
  std::vector<double> reduce_us;
  for (int i = 0; i < calls / 10 + 1; ++i) {  // warm up
    MicrosOf(call_empty);
    MicrosOf(call_reduce);
  }
  server_us.clear();
  for (int i = 0; i < calls; ++i) {
    empty_us.push_back(MicrosOf(call_empty));
    reduce_us.push_back(MicrosOf(call_reduce));
  }
  server->Shutdown();

  const double ratio = Percentile(reduce_us, 0.5) / Percentile(empty_us, 0.5);
  std::printf("empty unary         p50 %7.1f us   p99 %7.1f us\n", Percentile(empty_us, 0.5),
              Percentile(empty_us, 0.99));
  std::printf("reduce %d x f32   p50 %7.1f us   p99 %7.1f us   (server's total_us p50 %.1f)\n", kElements,
              Percentile(reduce_us, 0.5), Percentile(reduce_us, 0.99), Percentile(server_us, 0.5));
  std::printf("ratio reduce / empty, p50: %.3f (goal: at most %.2f)\n", ratio, kGoal);
  return EXIT_SUCCESS;
}

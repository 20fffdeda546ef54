// Arrays that are cut over the GPUs of a node, against one GPU and the CPU: the same bits from 1 to all GPUs, for every
// op and dtype; and the time of a sum of 1 GiB and of GIB, by a session's ring, as ratios of one run.
//
//   bench_shards [GPUS [GIB]]   by default 4 and 16; each number of GPUs has a server of its own
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "kernels/algebra/dtype.h"
#include "kernels/algebra/op.h"
#include "reduced/client.h"
#include "reduced/result_array.h"
#include "server/server.h"
#include "spdlog/spdlog.h"
#include "tests/bench/server_process.h"
#include "tests/support/data.h"

namespace reduced::server {
namespace {

using client::ArrayView;
using client::Client;
using client::RemoteArray;
using client::ResidentArray;

[[noreturn]] void Fail(const std::string& why) {
  std::fprintf(stderr, "bench_shards: %s\n", why.c_str());
  std::exit(EXIT_FAILURE);
}

template <class T>
T Must(absl::StatusOr<T> result, const std::string& what) {
  if (!result.ok()) Fail(what + ": " + result.status().ToString());
  return *std::move(result);
}

double MedianOf(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// Numbers from -1 to 1, by all processors: the first touch of so much memory takes longer than making them.
std::unique_ptr<float[]> RandomNumbers(std::int64_t count) {
  auto numbers = std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(count));
  std::vector<std::jthread> threads;
  const std::int64_t parts = std::max(1U, std::thread::hardware_concurrency());
  for (std::int64_t part = 0; part < parts; ++part) {
    threads.emplace_back([=, at = numbers.get()] {
      std::uint64_t state = static_cast<std::uint64_t>(part) * 0x9e3779b97f4a7c15 + 1;
      for (std::int64_t i = count * part / parts; i < count * (part + 1) / parts; ++i) {
        state = state * 6364136223846793005 + 1442695040888963407;
        at[i] = static_cast<float>(static_cast<std::int32_t>(state >> 32)) * 0x1p-31F;
      }
    });
  }
  return numbers;
}

// The call of an op that needs parameters, as text.
std::string CallOf(const OpRow& row) {
  const std::string name(row.name);
  if (row.op == Op::kQuantile || row.op == Op::kWeightedQuantile) return name + "(0.1,0.9)";
  if (row.op == Op::kHistogram) return name + "(-2,4,7)";
  if (row.op >= Op::kTopK && row.op <= Op::kArgBottomK) return name + "(5)";
  if (row.op == Op::kCovMatrix || row.op == Op::kCorrMatrix) return name + "(8)";
  return name;
}

// The answers' bytes, or the error.
std::string BitsOf(Client& client, const ResidentArray& array, const ResidentArray& y, const OpRow& row,
                   const std::vector<int>& axis) {
  client::PartitionOptions partition{.axis = axis, .whole = axis.empty(), .empty = "fill"};
  const RemoteArray other = RemoteArray::Resident(y.id());
  if (OtherOf(row.op) == OtherOperand::kY) partition.y = other;
  if (OtherOf(row.op) == OtherOperand::kWeights) partition.weights = other;
  const auto reply = client.ReduceArray(RemoteArray::Resident(array.id()), {CallOf(row)}, partition);
  if (!reply.ok()) {
    const std::string error = reply.status().ToString();
    return error.substr(0, error.find(" [reduced/request_id"));  // what differs from call to call
  }
  const auto& bytes = reply->results.at(0).array.data;
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Of every op and dtype. How many differ from the CPU's.
int CompareBits(Client& client, int gpus) {
  constexpr std::int64_t kRows = 4099, kColumns = 8, kCount = kRows * kColumns;
  int compared = 0, wrong = 0, refused = 0;
  for (const DTypeRow& dtype : kDTypes) {
    const test::Bytes x = test::MakeData(test::DataKind::kFactors, dtype.dtype, kCount, 1);
    const test::Bytes y = test::MakeData(test::DataKind::kEqual, dtype.dtype, kCount, 2);
    std::vector<ResidentArray> cut, whole;
    for (const test::Bytes* bytes : {&x, &y}) {
      const ArrayView view{bytes->data(), std::string(dtype.name), {kRows, kColumns}, {}, kCount};
      cut.push_back(Must(client.Put(view, {.device = "cuda:*"}), "put on GPUs"));
      whole.push_back(Must(client.Put(view, {.device = "cpu"}), "put on the CPU"));
    }
    for (const OpRow& row : kOps) {
      if (!Supports(row.op, dtype.dtype)) continue;
      for (const std::vector<int>& axis : std::vector<std::vector<int>>{{}, {0}, {1}}) {
        const std::string got = BitsOf(client, cut[0], cut[1], row, axis);
        const std::string expected = BitsOf(client, whole[0], whole[1], row, axis);
        ++compared;
        if (got == expected) continue;
        if (got.find("UNIMPLEMENTED") == 0) {
          ++refused;
          continue;
        }
        ++wrong;
        std::fprintf(stderr, "%d GPUs: %s of %s along %zu axes differs%s%s\n", gpus, std::string(row.name).c_str(),
                     std::string(dtype.name).c_str(), axis.size(), got.size() > 64 ? ": " : "",
                     got.size() > 64 ? got.substr(0, 200).c_str() : "");
      }
    }
  }
  std::printf("%d GPUs: %d answers compared with the CPU's, %d differ, %d are UNIMPLEMENTED\n", gpus, compared, wrong,
              refused);
  return wrong;
}

struct Times {
  double call_us = 0;    // of the client
  double total_us = 0;   // of the server
  double kernel_us = 0;  // of the slowest device, and joining
};

// The exact sum, which must be `expected`.
Times TimeSum(client::Session& session, const ResidentArray& array, const client::Value& expected) {
  std::vector<double> call, total, kernel;
  for (int round = 0; round < 31; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    const client::Reply reply = Must(session.Reduce(RemoteArray::Resident(array.id()), {"sum"}), "sum");
    call.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
    total.push_back(reply.timing.total_us.value_or(0));
    kernel.push_back(reply.timing.kernel_us.value_or(0));
    if (reply.results.at(0).value->value != expected.value) Fail("a wrong sum");
  }
  return {MedianOf(call), MedianOf(total), MedianOf(kernel)};
}

int Main(int gpus, std::int64_t gib) {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  spdlog::set_level(spdlog::level::warn);
  std::deque<ServerProcess> servers;  // before this process has a second thread
  for (int count = 1; count <= gpus; ++count) {
    servers.emplace_back([count](const std::string& address) {
      ServerOptions options;
      options.listen = {address};
      options.metrics_listen.clear();
      for (int i = 0; i < count; ++i) options.engines.cuda_devices.insert(i);
      options.engines.cuda_array_bytes = std::int64_t{64} << 30;
      return std::shared_ptr<Server>(Must(Server::Start(options), "server"));
    });
  }
  std::deque<std::unique_ptr<Client>> clients;
  for (const ServerProcess& server : servers) {
    clients.push_back(Must(Client::Create({.server = server.address(), .timeout = absl::Seconds(100)}), "client"));
  }
  const std::unique_ptr<float[]> numbers = RandomNumbers(gib << 28);
  int wrong = 0;
  for (const std::int64_t size : {std::int64_t{1}, gib}) {
    const ArrayView view{numbers.get(), "f32", {size << 28}, {}, size << 28};
    // Of the server's CPU engine.
    const client::Reply local = Must(clients.front()->Reduce(view, {"sum"}, {.engine = "cpu"}), "sum of the CPU");
    const client::Value expected = *local.results.at(0).value;
    Times one;
    for (int count = 1; count <= gpus; ++count) {
      if (count != 1 && count != gpus && size != 1) continue;
      Client& client = *clients[static_cast<std::size_t>(count - 1)];
      const ResidentArray array = Must(client.Put(view, {.device = "cuda:*"}), "put");
      const auto session = Must(client.OpenSession(), "session");
      const Times times = TimeSum(*session, array, expected);
      if (count == 1) one = times;
      std::printf(
          "%lld GiB over %d GPUs: call %.1f us, %.0f GB/s, %.2f times one; in the server %.1f us; slowest shard "
          "and joining %.1f us; beyond these %.1f us, %.1f more than one\n",
          static_cast<long long>(size), count, times.call_us, static_cast<double>(size << 30) / times.call_us / 1e3,
          one.call_us / times.call_us, times.total_us, times.kernel_us, times.call_us - times.kernel_us,
          times.call_us - times.kernel_us - (one.call_us - one.kernel_us));
      std::fflush(stdout);
    }
  }
  for (int count = 1; count <= gpus; ++count) {
    wrong += CompareBits(*clients[static_cast<std::size_t>(count - 1)], count);
    std::fflush(stdout);
  }
  return wrong == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace reduced::server

int main(int argc, char** argv) {
  const int gpus = argc > 1 ? std::atoi(argv[1]) : 4;
  const int gib = argc > 2 ? std::atoi(argv[2]) : 16;
  if (gpus < 1 || gib < 1) {
    std::fprintf(stderr, "bench_shards [GPUS [GIB]]\n");
    return 2;
  }
  return reduced::server::Main(gpus, gib);
}

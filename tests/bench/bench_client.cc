// The C++ library's calls of one kind after the other: the median of each, in microseconds, as one line of JSON.
// bench_python.py compares the Python package with it.
//
// usage: bench_client SERVER SECONDS SOURCE BYTES    SOURCE: inline, session, ring, stream, region, or gpu: memory of
// this process's GPU, by CUDA IPC with an event, through a ring
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "reduced/client.h"
#ifdef REDUCED_HAVE_CUDA
#include "reduced/cuda.h"
#endif

namespace {

using reduced::client::ArrayView;
using reduced::client::Client;
using reduced::client::Reply;

// The value, or the end of the program.
template <class T>
T Must(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::cerr << "bench_client: " << value.status() << "\n";
  std::exit(1);
}

double MedianUs(double seconds, const std::function<absl::StatusOr<Reply>()>& call) {
  using Clock = std::chrono::steady_clock;
  Must(call());
  std::vector<double> times;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < end || times.size() < 3) {
    const auto began = Clock::now();
    Must(call());
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - began).count());
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

#ifdef REDUCED_HAVE_CUDA
// As by a program whose stream writes the elements: the event is recorded before each call, unless the stream has
// nothing to do.
double GpuMedianUs(Client& client, double seconds, std::int64_t bytes) {
  void* memory = nullptr;
  cudaEvent_t event = nullptr;
  if (cudaMalloc(&memory, static_cast<std::size_t>(bytes)) != cudaSuccess ||
      cudaMemset(memory, 0, static_cast<std::size_t>(bytes)) != cudaSuccess ||
      cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming) != cudaSuccess) {
    std::cerr << "bench_client: no GPU\n";
    std::exit(1);
  }
  const auto session = Must(client.OpenSession({.via = "ring"}));
  const auto region = Must(reduced::client::ShareDevice(client, memory, bytes, event));
  return MedianUs(seconds, [&] {
    if (cudaStreamQuery(nullptr) != cudaSuccess) cudaEventRecord(event);
    return session->Reduce(region.Array("f32", {bytes / 4}), {"sum"});
  });
}
#else
double GpuMedianUs(Client&, double, std::int64_t) { return 0; }
#endif

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: bench_client SERVER SECONDS SOURCE BYTES\n";
    return 2;
  }
  const double seconds = std::stod(argv[2]);
  const std::string source = argv[3];
  const std::int64_t count = std::stoll(argv[4]) / 4;
  const auto client = Must(Client::Create({.server = argv[1], .timeout = absl::Seconds(60)}));
  const auto buffer = Must(reduced::client::SharedBuffer::Allocate(count * 4));
  std::ranges::fill(buffer.As<float>(), 1.0F);
  const std::vector<std::string> ops = {"sum"};
  double median_us = 0;
  if (source == "region") {
    const auto region = Must(client->Share(buffer));
    median_us = MedianUs(seconds, [&] { return client->Reduce(region.Array("f32", {count}), ops); });
  } else if (source == "gpu") {
    median_us = GpuMedianUs(*client, seconds, count * 4);
  } else if (source == "session" || source == "ring") {
    const auto session = Must(client->OpenSession({.via = source}));
    median_us = MedianUs(seconds, [&] { return session->Reduce(ArrayView::Of(buffer.As<float>()), ops); });
  } else {
    median_us =
        MedianUs(seconds, [&] { return client->Reduce(ArrayView::Of(buffer.As<float>()), ops, {.via = source}); });
  }
  std::cout << "{\"median_us\": " << median_us << "}\n";
  return 0;
}

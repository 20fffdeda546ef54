// A process that shares device memory: `ipc_exporter BYTES OFFSET BUSY_MS`.
//
// Allocates OFFSET + BYTES bytes on device 0, zeros, then on a stream: keeps busy for BUSY_MS, sets the last BYTES to 1
// and records an event. Meanwhile prints a line "HANDLE UUID EVENT", in hexadecimal, of the memory, the device and the
// event. Lives until its standard input ends.
#include <cuda_runtime.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

#define CHECK(call)                                                                     \
  do {                                                                                  \
    if (const cudaError_t error = (call); error != cudaSuccess) {                       \
      std::fprintf(stderr, "ipc_exporter: %s: %s\n", #call, cudaGetErrorString(error)); \
      std::exit(1);                                                                     \
    }                                                                                   \
  } while (false)

__global__ void KeepBusy(unsigned long long nanoseconds) {
  unsigned long long start;
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < nanoseconds);
}

template <class Handle>
std::string Hex(const Handle& handle) {
  std::string text;
  for (std::size_t i = 0; i < sizeof(handle); ++i) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", reinterpret_cast<const unsigned char*>(&handle)[i]);
    text += digits;
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::size_t bytes = std::strtoull(argv[1], nullptr, 10);
  const std::size_t offset = std::strtoull(argv[2], nullptr, 10);
  const unsigned long long busy_ms = std::strtoull(argv[3], nullptr, 10);
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, offset + bytes));
  CHECK(cudaMemset(memory, 0, offset + bytes));
  cudaEvent_t event;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaDeviceSynchronize());
  KeepBusy<<<1, 1, 0, stream>>>(busy_ms * 1'000'000);
  CHECK(cudaGetLastError());
  CHECK(cudaMemsetAsync(static_cast<unsigned char*>(memory) + offset, 1, bytes, stream));
  CHECK(cudaEventRecord(event, stream));

  cudaIpcMemHandle_t handle;
  CHECK(cudaIpcGetMemHandle(&handle, memory));
  cudaIpcEventHandle_t event_handle;
  CHECK(cudaIpcGetEventHandle(&event_handle, event));
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  std::printf("%s %s %s\n", Hex(handle).c_str(), Hex(properties.uuid).c_str(), Hex(event_handle).c_str());
  std::fflush(stdout);
  char unused;
  while (read(STDIN_FILENO, &unused, 1) > 0) {
  }
  return 0;
}

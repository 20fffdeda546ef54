#include <cuda_runtime.h>

#include "tests/contract/lost_context.h"

namespace reduced::test {
namespace {

__global__ void WriteTo(int* address) { *address = 1; }

}  // namespace

std::string LoseContext() {
  cudaSetDevice(0);
  WriteTo<<<1, 1>>>(reinterpret_cast<int*>(16));  // nobody's
  return cudaGetErrorName(cudaDeviceSynchronize());
}

}  // namespace reduced::test

// Functions of CUDA's driver that the runtime has no equal of, without being linked to the driver.
#ifndef REDUCED_KERNELS_CUDA_DRIVER_FUNCTION_H_
#define REDUCED_KERNELS_CUDA_DRIVER_FUNCTION_H_

#include <cuda_runtime.h>

namespace reduced {

// DriverFunction<decltype(&cuMemMap)>("cuMemMap", 10020): as the driver has had it since CUDA 10.2. Null: it has none.
template <class Function>
Function DriverFunction(const char* name, unsigned since) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result;
  if (cudaGetDriverEntryPointByVersion(name, &function, since, cudaEnableDefault, &result) != cudaSuccess ||
      result != cudaDriverEntryPointSuccess) {
    return nullptr;
  }
  return reinterpret_cast<Function>(function);
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_DRIVER_FUNCTION_H_

#include "kernels/matmul/cublas.h"

#include <dlfcn.h>

#include <map>
#include <memory>
#include <string>
#include <type_traits>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "kernels/matmul/launch.h"

namespace reduced {
namespace {

// What is used of cublas_v2.h, whose interface is C: enumerators are ints, a handle is a pointer.
using Handle = void*;
constexpr int kSuccess = 0;
constexpr int kNotTransposed = 0;
constexpr int kPedanticMath = 2;  // CUBLAS_PEDANTIC_MATH: no TF32

constexpr const char* kLibraries[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11", "libcublas.so"};

template <class T>
using Gemm = int (*)(Handle, int, int, int, int, int, const T* alpha, const T* a, int lda, const T* b, int ldb,
                     const T* beta, T* c, int ldc);

struct Functions {
  int (*create)(Handle*) = nullptr;
  int (*set_stream)(Handle, cudaStream_t) = nullptr;
  int (*set_math_mode)(Handle, int) = nullptr;
  Gemm<float> sgemm = nullptr;
  Gemm<double> dgemm = nullptr;
};

absl::StatusOr<Functions> Load() {
  void* library = nullptr;
  for (const char* const name : kLibraries) {
    if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("no cuBLAS on the library path of this server: looked for ", absl::StrJoin(kLibraries, ", ")));
  }
  Functions functions;
  std::string missing;
  const auto find = [&](const char* name, auto* function) {
    void* const symbol = dlsym(library, name);
    if (symbol == nullptr) missing = name;
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(symbol);
  };
  find("cublasCreate_v2", &functions.create);
  find("cublasSetStream_v2", &functions.set_stream);
  find("cublasSetMathMode", &functions.set_math_mode);
  find("cublasSgemm_v2", &functions.sgemm);
  find("cublasDgemm_v2", &functions.dgemm);
  if (!missing.empty()) return absl::FailedPreconditionError(absl::StrCat("this cuBLAS has no ", missing));
  return functions;
}

const absl::StatusOr<Functions>& Loaded() {
  static const auto* const functions = new absl::StatusOr<Functions>(Load());
  return *functions;
}

// A handle for each device, kept until the process ends: making one takes a second.
class Handles {
 public:
  // The handle of the current device, or null.
  Handle Get(const Functions& functions) {
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess) return nullptr;
    const absl::MutexLock lock(&mutex_);
    Handle& handle = handles_[device];
    if (handle == nullptr && functions.create(&handle) != kSuccess) handle = nullptr;
    return handle;
  }
  absl::Mutex& mutex() { return mutex_; }

 private:
  absl::Mutex mutex_;
  std::map<int, Handle> handles_ ABSL_GUARDED_BY(mutex_);
};

Handles& AllHandles() {
  static auto* const handles = new Handles;
  return *handles;
}

// cuBLAS has matrices by columns. Row-major C = A B is the same memory as column-major C' = B' A'.
template <class T>
int Multiply(Handle handle, Gemm<T> gemm, const MatmulLaunch& launch) {
  const T one = 1;
  const T zero = 0;
  const int m = static_cast<int>(launch.m);
  const int n = static_cast<int>(launch.n);
  const int k = static_cast<int>(launch.k);
  return gemm(handle, kNotTransposed, kNotTransposed, n, m, k, &one, static_cast<const T*>(launch.b), n,
              static_cast<const T*>(launch.a), k > 0 ? k : 1, &zero, static_cast<T*>(launch.c), n);
}

cudaError_t Run(const MatmulLaunch& launch) {
  if (launch.k == 0) {  // cuBLAS would scale what is in C by 0, which a NaN survives
    return cudaMemsetAsync(launch.c, 0, static_cast<std::size_t>(launch.m * launch.n * RowOf(launch.dtype).bytes),
                           launch.stream);
  }
  const absl::StatusOr<Functions>& functions = Loaded();
  const Handle handle = functions.ok() ? AllHandles().Get(*functions) : nullptr;
  if (handle == nullptr) return cudaErrorInitializationError;
  const absl::MutexLock lock(&AllHandles().mutex());  // a handle is one thread's at a time
  if (functions->set_stream(handle, launch.stream) != kSuccess) return cudaErrorUnknown;
  if (functions->set_math_mode(handle, kPedanticMath) != kSuccess) return cudaErrorUnknown;
  const int code = launch.dtype == DType::kF64 ? Multiply(handle, functions->dgemm, launch)
                                               : Multiply(handle, functions->sgemm, launch);
  return code == kSuccess ? cudaSuccess : cudaErrorUnknown;
}

}  // namespace

absl::Status CublasStatus() { return Loaded().status(); }

const MatmulKernel kMatmulCublas = {&Run, nullptr};

}  // namespace reduced

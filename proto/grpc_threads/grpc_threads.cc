#include "proto/grpc_threads/grpc_threads.h"

#include <sched.h>

#include <algorithm>

#include "grpc/support/cpu.h"
#include "grpcpp/version_info.h"
#include "proto/ring/wait.h"

namespace reduced {

int GrpcProcessors(int usable) {
  constexpr int kMost = 12;  // 6 threads
  return std::clamp(usable, 1, kMost);
}

}  // namespace reduced

#if GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR < 66

// gRPC has arrays by processor, so both functions are defined here: the second one's range is the first one's value,
// which stays as it was at the first call.
extern "C" unsigned gpr_cpu_num_cores() {
  static const int processors = reduced::GrpcProcessors(reduced::ring::Processors());
  return static_cast<unsigned>(processors);
}

extern "C" unsigned gpr_cpu_current_cpu() {
  const int processor = sched_getcpu();
  return processor < 0 ? 0 : static_cast<unsigned>(processor) % gpr_cpu_num_cores();
}

#endif

// reducectl: the command line of reduced.
#include <malloc.h>

#include <cstdlib>
#include <iostream>

#include "absl/synchronization/mutex.h"
#include "client/reducectl/commands/commands.h"

int main(int argc, char** argv) {
  // Returning the pages of large messages to the system after each message would halve the throughput.
  mallopt(M_TRIM_THRESHOLD, 32 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
#ifdef NDEBUG
  // gRPC uses Abseil's mutexes. Debian's build of them looks for deadlocks at every lock, which costs small requests 10
  // to 20%.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
#endif
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);  // the errors of the calls have what matters to the user
  const int code = reduced::client::RunCommand(argc, argv);
  if (!std::cout.flush()) {
    std::cerr << "reducectl: can't write to standard output\n";
    return code == 0 ? reduced::client::kOutput : code;
  }
  return code;
}

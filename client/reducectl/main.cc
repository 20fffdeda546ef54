// reducectl: the command line of reduced.
#include <malloc.h>

#include <cstdlib>
#include <iostream>

#include "absl/synchronization/mutex.h"
#include "client/reducectl/command_line/command_line.h"
#include "client/reducectl/commands/commands.h"

namespace reduced::client {
namespace {

// In the order of --help.
constexpr void (*kCommands[])(CommandLine&) = {AddReduce, AddMerge,     AddArrays, AddLadder, AddLoadtest,  AddInfo,
                                               AddOps,    AddPipelines, AddHealth, AddDoctor, AddCompletion};

ExitCode Main(int argc, char** argv) {
  CommandLine line;
  line.app.set_version_flag("--version", REDUCED_VERSION);
  for (const auto& add : kCommands) add(line);
  return line.ParseAndRun(argc, argv);
}

}  // namespace
}  // namespace reduced::client

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
  const int code = reduced::client::Main(argc, argv);
  if (!std::cout.flush()) {
    std::cerr << "reducectl: can't write to standard output\n";
    return code == 0 ? reduced::client::kOutput : code;
  }
  return code;
}

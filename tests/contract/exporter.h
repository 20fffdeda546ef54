// The process ipc_exporter, beside this one's program.
#ifndef REDUCED_TESTS_CONTRACT_EXPORTER_H_
#define REDUCED_TESTS_CONTRACT_EXPORTER_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "kernels/engine/engine.h"

namespace reduced::test {

class Exporter {
 public:
  // See ipc_exporter.cu.
  Exporter(std::int64_t bytes, std::int64_t offset, int busy_ms);
  ~Exporter() { Kill(); }
  Exporter(const Exporter&) = delete;
  Exporter& operator=(const Exporter&) = delete;

  // Why it didn't start; empty if it did.
  const std::string& error() const { return error_; }
  // Its memory, as Engine::Open takes it, with the event.
  const SharedDeviceMemory& memory() const { return memory_; }

  // SIGKILL, and waits until it is gone.
  void Kill();

 private:
  pid_t process_ = -1;
  int input_ = -1;
  std::string error_;
  SharedDeviceMemory memory_;
};

}  // namespace reduced::test

#endif  // REDUCED_TESTS_CONTRACT_EXPORTER_H_

// Which processors are near a PCI device, and keeping threads there. By the kernel's files in /sys, without a library.
#ifndef REDUCED_KERNELS_SYSTEM_NUMA_H_
#define REDUCED_KERNELS_SYSTEM_NUMA_H_

#include <sched.h>

#include <optional>
#include <string>

namespace reduced {

// The processors of the device's NUMA node that this process may use. `pci_address`: "0000:17:00.0". Absent, so that
// nothing is to be kept anywhere: the machine has one node, the kernel does not know the device's, or the process may
// use none of its processors. `sysfs`: where sysfs is mounted.
std::optional<cpu_set_t> ProcessorsNear(const std::string& pci_address, const std::string& sysfs = "/sys");

// While it lives, the thread that made it and the threads that this one starts run on these processors, so that memory
// that they touch first is of their node. The started threads stay there. Absent: nothing changes. One thread uses it.
class OnProcessors {
 public:
  explicit OnProcessors(const std::optional<cpu_set_t>& processors);
  ~OnProcessors();
  OnProcessors(const OnProcessors&) = delete;
  OnProcessors& operator=(const OnProcessors&) = delete;

 private:
  std::optional<cpu_set_t> before_;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_SYSTEM_NUMA_H_

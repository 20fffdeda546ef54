// Stands in for the driver's management library: one GPU that can be read, and three that only have links: over two
// NVLinks of the first GPU's four, over an NVLink switch, and over PCIe. The first GPU has two MIG instances.
#include <cstring>
#include <string_view>

namespace {
constexpr char kUuid[] = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f";
int device;
constexpr std::string_view kLinked = "GPU-00000000-0000-0000-0000-00000000000";  // and "1", "2" or "3"
int direct, switched, far;

struct PciInfo {
  char legacy_bus_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
}  // namespace

extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int code) { return code == 6 ? "Not Found" : "Unknown Error"; }
int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  const std::string_view text = uuid;
  if (text == kUuid) {
    *handle = &device;
  } else if (text.substr(0, kLinked.size()) == kLinked && text.back() >= '1' && text.back() <= '3') {
    *handle = text.back() == '1' ? &direct : text.back() == '2' ? &switched : &far;
  } else {
    return 6;
  }
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* handle, unsigned long long* memory) {
  if (handle != &device) return 999;
  memory[0] = 1000;  // total
  memory[1] = 600;   // free
  memory[2] = 400;   // used
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  if (index != 0) return 15;  // the GPU is lost
  *handle = &device;
  return 0;
}
int nvmlDeviceGetName(void* handle, char* name, unsigned bytes) {
  if (handle != &device) return 999;
  std::strncpy(name, "a stand-in", bytes);
  return 0;
}
int nvmlDeviceGetTotalEccErrors(void* handle, int kind, int counter, unsigned long long* errors) {
  if (handle != &device || kind != 1 || counter != 0) return 999;
  *errors = 3;
  return 0;
}
int nvmlDeviceGetComputeMode(void* handle, int* mode) {
  if (handle != &device) return 999;
  *mode = 3;  // one process only
  return 0;
}
int nvmlDeviceGetUtilizationRates(void* handle, unsigned int* rates) {
  if (handle != &device) return 999;
  rates[0] = 75;
  rates[1] = 12;
  return 0;
}
int nvmlDeviceGetP2PStatus(void*, void* other, int what, int* status) {
  *status = other == &far ? 5 : 0;  // not supported
  if (what == 0 && other == &switched) *status = 2;
  return 0;
}
int nvmlDeviceGetTopologyCommonAncestor(void*, void*, int* level) {
  *level = 30;
  return 0;
}
int nvmlDeviceGetNvLinkState(void*, unsigned link, int* active) {
  *active = link != 3;
  return link < 5 ? 0 : 2;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void*, unsigned link, PciInfo* pci) {
  *pci = {};
  pci->bus = link < 2 ? 7 : 9;
  return 0;
}
int nvmlDeviceGetPciInfo_v3(void* handle, PciInfo* pci) {
  *pci = {};
  pci->bus = handle == &direct ? 7 : 8;
  return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(void*, unsigned* count) {
  *count = 7;
  return 0;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void*, unsigned index, void** handle) {
  if (index != 0 && index != 4) return 6;
  *handle = &device;
  return 0;
}
}

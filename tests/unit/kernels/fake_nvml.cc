// Stands in for the driver's management library: one GPU.
#include <cstring>

namespace {
constexpr char kUuid[] = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f";
int device;
}  // namespace

extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int code) { return code == 6 ? "Not Found" : "Unknown Error"; }
int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  if (std::strcmp(uuid, kUuid) != 0) return 6;
  *handle = &device;
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
}

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
int nvmlDeviceGetUtilizationRates(void* handle, unsigned int* rates) {
  if (handle != &device) return 999;
  rates[0] = 75;
  rates[1] = 12;
  return 0;
}
}

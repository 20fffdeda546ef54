// Tells ThreadSanitizer that what a thread does before it hands something to gRPC comes before what another does once
// gRPC has given it something. The distribution's gRPC isn't instrumented and hands over without locks, so that without
// this every callback seems to race with the call that asked for it. One clock stands for all of gRPC: that orders more
// than gRPC does, and leaves races to be found wherever no gRPC call lies between. Linked as abseil.cc is.
#include <dlfcn.h>
#include <grpc/grpc.h>
#include <sanitizer/tsan_interface.h>

namespace {

char grpc_clock;

// Calls gRPC's own definition of the function called `name`.
template <class F, class... Args>
auto Call(F*, const char* name, Args... args) {
  auto* const original = reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
  struct Acquire {
    ~Acquire() { __tsan_acquire(&grpc_clock); }
  } const afterwards;
  __tsan_release(&grpc_clock);
  return original(args...);
}

}  // namespace

extern "C" {

grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t count, void* tag, void* reserved) {
  return Call(&grpc_call_start_batch, __func__, call, ops, count, tag, reserved);
}

grpc_call_error grpc_server_request_registered_call(grpc_server* server, void* method, grpc_call** call,
                                                    gpr_timespec* deadline, grpc_metadata_array* metadata,
                                                    grpc_byte_buffer** payload, grpc_completion_queue* bound,
                                                    grpc_completion_queue* notified, void* tag) {
  return Call(&grpc_server_request_registered_call, __func__, server, method, call, deadline, metadata, payload, bound,
              notified, tag);
}

grpc_call_error grpc_call_cancel(grpc_call* call, void* reserved) {
  return Call(&grpc_call_cancel, __func__, call, reserved);
}

// What a call's last callback did, the reactor's OnDone, comes before the end of its server.
void grpc_call_unref(grpc_call* call) { Call(&grpc_call_unref, __func__, call); }
void grpc_server_destroy(grpc_server* server) { Call(&grpc_server_destroy, __func__, server); }

// What the callbacks of the C++ library run after.
grpc_event grpc_completion_queue_next(grpc_completion_queue* queue, gpr_timespec deadline, void* reserved) {
  return Call(&grpc_completion_queue_next, __func__, queue, deadline, reserved);
}

grpc_event grpc_completion_queue_pluck(grpc_completion_queue* queue, void* tag, gpr_timespec deadline, void* reserved) {
  return Call(&grpc_completion_queue_pluck, __func__, queue, tag, deadline, reserved);
}

}  // extern "C"

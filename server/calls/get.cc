// One GetArray from start to end:
//
//   1. gRPC has the bytes of the message and calls RunGetArray, which makes a GetCall. Admission: identity, deadline,
//      gate, quota, a stream slot. The message is parsed, and the array found: it gets one more user.
//   2. Messages are written one by one: what the array is, then its elements in chunks, each copied from the array's
//      memory, a GPU's or the host's, when the one before was taken. A client that does not read holds one chunk and
//      the array; the watchdog ends its call.
//   3. After the last chunk the array loses its user, and the call is finished: exactly once.
//   4. OnDone, after every other callback, leaves the gate and deletes the call.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/engine/memory_budget.h"
#include "kernels/engine/stopwatch.h"
#include "kernels/engine/why_stop.h"
#include "kernels/system/status_macros.h"
#include "server/calls/admission.h"
#include "server/calls/calls.h"
#include "server/calls/watchdog.h"
#include "server/wire/arrays.h"
#include "server/wire/encode.h"
#include "server/wire/status.h"

namespace reduced::server {
namespace {

constexpr std::int64_t kChunkBytes = std::int64_t{1} << 20;  // of a message

}  // namespace

class GetCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  GetCall(Backend& backend, grpc::CallbackServerContext* context)
      : backend_(backend),
        context_(context),
        tag_(backend.observer.Begin(context)),
        admission_(Rpc::kGetArray, backend),
        watch_(backend.watchdog, context) {}

  // The call finishes itself.
  void Start(grpc::ByteBuffer* request) {
    const absl::Status status = Begin(request);
    if (!status.ok()) return End(status);
    ToProto(description_, message_.mutable_array());
    Write();
  }

  void OnWriteDone(bool ok) override {
    watch_.Await(Wait::kNothing);
    if (!ok) {
      const absl::Status stalled = watch_.why();
      return End(stalled.ok() ? absl::CancelledError("the client cancelled the call, or went away") : stalled);
    }
    const absl::Status why = WhyStop(nullptr, deadline_);
    if (!why.ok() || sent_ == array_->bytes) return End(why);
    const std::int64_t bytes = std::min(kChunkBytes, array_->bytes - sent_);
    std::string& chunk = *message_.mutable_chunk();
    chunk.resize(static_cast<std::size_t>(bytes));
    if (absl::Status read = array_->memory->Read(sent_, bytes, chunk.data()); !read.ok()) return End(read);
    sent_ += bytes;
    Write();
  }
  void OnDone() override { delete this; }

 private:
  absl::Status Begin(grpc::ByteBuffer* bytes) {
    absl::Status status = admission_.Admit(backend_.CallerOf(*context_), deadline_);
    if (status.ok()) status = CheckMessageSize(bytes->Length(), backend_.limits.max_message_bytes);
    MemoryLease lease;
    v1::GetArrayRequest request;
    if (status.ok()) status = Decode(bytes, admission_.payers(), &lease, &request);
    if (!status.ok()) return status;
    ASSIGN_OR_RETURN(std::shared_ptr<const ResidentArray> array,
                     backend_.arrays.Find(request.id(), admission_.caller(), &description_));
    // A message, its encoding, and the encoding before it, which the transport may still have.
    const std::int64_t held = 3 * std::min(kChunkBytes, array->bytes) + kUncountedBytes;
    absl::StatusOr<MemoryLease> memory =
        MemoryLease::Take(admission_.payers().Of(held), held, "the chunks of an array");
    if (!memory.ok()) return WithRetryHint(memory.status(), kMemoryRetryDelay);
    memory_ = MemoryLease::Share(*std::move(memory));
    array_ = std::move(array);
    return absl::OkStatus();
  }

  void Write() {
    encoded_.Clear();
    const absl::Status status = EncodeUncounted(message_, &encoded_);
    if (!status.ok()) return End(status);
    HoldUntilSent(memory_, &encoded_);
    watch_.Await(Wait::kResponse, admission_.key());
    StartWrite(&encoded_);
  }

  void End(const absl::Status& status) {
    array_.reset();
    message_.Clear();
    admission_.Release();
    backend_.observer.End({.rpc = Rpc::kGetArray,
                           .tag = &tag_,
                           .context = context_,
                           .caller = &admission_.admitted(),
                           .bytes = sent_,
                           .client_us = watch_.waited_us(),
                           .total_us = since_call_.micros(),
                           .status = status});
    watch_.Await(Wait::kResponse, admission_.key());
    Finish(ToGrpc(status, context_));
  }

  const Stopwatch since_call_;
  Backend& backend_;
  grpc::CallbackServerContext* const context_;
  const CallTag tag_;
  const absl::Time deadline_ = absl::FromChrono(context_->deadline());
  Admission admission_;
  std::shared_ptr<const MemoryLease> memory_;
  std::shared_ptr<const ResidentArray> array_;
  ArrayDescription description_;
  std::int64_t sent_ = 0;         // bytes
  v1::GetArrayResponse message_;  // that is written
  grpc::ByteBuffer encoded_;
  Watch watch_;  // last: OnDone ends it first
};

grpc::ServerWriteReactor<grpc::ByteBuffer>* RunGetArray(Backend& backend, grpc::CallbackServerContext* context,
                                                        grpc::ByteBuffer* request) {
  auto* const call = new GetCall(backend, context);  // OnDone deletes it
  call->Start(request);
  return call;
}

}  // namespace reduced::server

// One PutArray from start to end:
//
//   1. gRPC calls RunPut, which makes a PutCall and asks for the first message: the header. Admission: identity,
//   deadline,
//      gate, quota, a stream slot. ParsePut checks everything that does not depend on the elements, and the memory is
//      allocated, which the identity's quota of bytes and the device's limit may refuse.
//   2. Messages arrive one by one, as the slices of memory that the transport read them into. A chunk is written to the
//      array's memory before the next message is asked for: to a GPU through a buffer, since each transfer has a fixed
//      cost.
//      The watchdog ends the call if the next message does not arrive in time, which frees the memory.
//   3. At the half-close everything that the header declares must have arrived. The array gets its id, and the call is
//      finished: exactly once. After an error the memory is freed with the call.
//   4. OnDone, after every other callback, deletes the array if the client is known to have gone away before the
//   response
//      reached it, leaves the gate and deletes the call.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kernels/engine/stopwatch.h"
#include "kernels/engine/why_stop.h"
#include "kernels/system/status_macros.h"
#include "server/calls/admission.h"
#include "server/calls/calls.h"
#include "server/calls/chunk_feeder.h"
#include "server/calls/watchdog.h"
#include "server/wire/arrays.h"
#include "server/wire/encode.h"
#include "server/wire/status.h"

namespace reduced::server {
namespace {

constexpr std::int64_t kStagingBytes = std::int64_t{1} << 20;  // of one transfer to a GPU

}  // namespace

class PutCall final : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  PutCall(Backend& backend, grpc::CallbackServerContext* context, grpc::ByteBuffer* response)
      : backend_(backend),
        context_(context),
        response_(response),
        tag_(backend.observer.Begin(context)),
        admission_(Rpc::kPutArray, backend),
        watch_(backend.watchdog, context, [this](const absl::Status& why) {
          if (Resume()) End(why);
        }) {
    const absl::Status status = admission_.Begin(backend_.CallerOf(*context_));
    if (status.ok()) {
      Read();
    } else {
      End(status);
    }
  }

  void OnReadDone(bool ok) override {
    if (!Resume()) return;
    if (!ok) return End(Store());
    const absl::Status status = Take();
    if (!status.ok()) return End(status);
    feeder_.DropChunk();
    Read();
  }
  void OnCancel() override { cancelled_->store(true); }
  void OnDone() override {
    if (cancelled_->load() && !id_.empty()) {
      backend_.arrays.Delete(
          id_, owner_, [](const absl::Status&) {}, admission_.caller());
    }
    delete this;
  }

 private:
  // Asks for the next message, under the lock: gRPC must not be asked once the watchdog has ended the call.
  void Read() {
    const absl::MutexLock lock(&mutex_);
    reading_ = true;
    watch_.Await(feeder_.has_header() ? Wait::kMessage : Wait::kHeader);
    StartRead(&message_);
  }

  // Whether the calling thread goes on with the call that waited for a message: false if another thread has ended it.
  bool Resume() {
    const absl::MutexLock lock(&mutex_);
    watch_.Await(Wait::kNothing);
    return std::exchange(reading_, false);
  }

  // Handles the message that has arrived.
  absl::Status Take() {
    RETURN_IF_ERROR(CheckMessageSize(message_.Length(), backend_.limits.max_message_bytes));
    MemoryLease lease;
    v1::PutArrayRequest request;
    ASSIGN_OR_RETURN(const auto got, feeder_.Take(message_, admission_.payers(), &lease, &request));
    return got == ChunkFeeder<v1::PutArrayRequest>::Got::kHeader ? Begin(request.header()) : Write();
  }

  absl::Status Begin(const v1::PutArrayHeader& header) {
    absl::Status status = admission_.Admit(backend_.CallerOf(*context_), deadline_);
    if (!status.ok()) return status;
    ASSIGN_OR_RETURN(array_, ParsePut(header, backend_.limits, admission_.caller()));
    feeder_.Declare(array_.bytes);
    if (array_.device != kAllGpus) {
      const absl::StatusOr<Engine*> engine = backend_.engines.OnDevice(array_.device);
      if (!engine.ok() && backend_.engines.Get(EngineKind::kCuda).ok()) {
        return {engine.status().code(),
                absl::StrCat(std::string(engine.status().message()), "; or ", kAllGpus, ", for all GPUs")};
      }
      if (!engine.ok()) return engine.status();
      engine_ = *engine;
      array_.device = engine_->info().name;
    }

    status = backend_.arrays.CheckRoom();
    if (!status.ok()) return status;
    if (backend_.security != nullptr) {
      ASSIGN_OR_RETURN(array_.quota, backend_.security->quotas().TakeArray(admission_.account(), array_.bytes));
    }
    return array_.device == kAllGpus ? AllocateShards() : Allocate();
  }

  absl::Status Allocate() {
    ASSIGN_OR_RETURN(array_.memory, engine_->Allocate(array_.bytes, admission_.key()));
    return absl::OkStatus();
  }
  absl::Status AllocateShards() {
    ASSIGN_OR_RETURN(std::unique_ptr<ShardedArray> memory,
                     ShardedArray::Allocate(backend_.engines, array_.shape, array_.count, RowOf(array_.dtype).bytes,
                                            admission_.key()));
    engine_ = memory->shards().front().engine;
    array_.sharded = memory.get();
    array_.memory = std::move(memory);
    return absl::OkStatus();
  }

  // Writes the chunk to the array's memory, except for what a GPU's buffer collects.
  absl::Status Write() {
    const bool staged = array_.memory->array().space == MemorySpace::kDevice;
    absl::Status status;
    while (status.ok() && feeder_.chunk().left() > 0) {
      if (!staged) {
        status = Append(feeder_.chunk().Next(feeder_.chunk().left()));
        continue;
      }
      const absl::StatusOr<bool> full =
          staging_.Fill(feeder_.chunk(), std::min(array_.bytes - written_, kStagingBytes), *engine_);
      status = full.status();
      if (full.ok() && *full) {
        status = Append({staging_.data(), static_cast<std::size_t>(staging_.filled())});
        staging_.Clear();
      }
    }
    return status;
  }
  absl::Status Append(std::string_view bytes) {
    const auto count = static_cast<std::int64_t>(bytes.size());
    absl::Status status = array_.memory->Write(written_, bytes.data(), count);
    written_ += count;
    return status;
  }

  // After the half-close: makes the array resident.
  absl::Status Store() {
    if (context_->IsCancelled()) cancelled_->store(true);
    absl::Status status = WhyStop(cancelled_, deadline_);
    if (status.ok()) status = feeder_.CheckComplete();
    if (!status.ok()) return status;
    owner_ = array_.owner;
    ASSIGN_OR_RETURN(ArrayDescription stored, backend_.arrays.Add(std::move(array_)));
    id_ = stored.id;
    v1::PutArrayResponse answer;
    ToProto(stored, answer.mutable_array());
    MemoryLease lease;
    return Encode(answer, admission_.payers(), &lease, response_);
  }

  void End(const absl::Status& status) {
    array_.sharded = nullptr;
    array_.memory.reset();
    array_.quota.Return();
    staging_ = ChunkBuffer();
    feeder_.DropChunk();
    admission_.Release();
    backend_.observer.End({.rpc = Rpc::kPutArray,
                           .tag = &tag_,
                           .context = context_,
                           .caller = &admission_.admitted(),
                           .engine = engine_ == nullptr ? EngineKind::kAuto : engine_->kind(),
                           .bytes = feeder_.received(),
                           .client_us = watch_.waited_us(),
                           .total_us = since_call_.micros(),
                           .status = status});
    watch_.Await(Wait::kResponse, admission_.key());
    Finish(ToGrpc(status, context_));
  }

  const Stopwatch since_call_;
  Backend& backend_;
  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const response_;
  const CallTag tag_;
  const absl::Time deadline_ = absl::FromChrono(context_->deadline());
  const CancelFlag cancelled_ = std::make_shared<std::atomic<bool>>(false);
  Admission admission_;
  grpc::ByteBuffer message_;
  ChunkFeeder<v1::PutArrayRequest> feeder_;
  ResidentArray array_;
  Engine* engine_ = nullptr;  // null until it is chosen; of a sharded array that of the first shard
  ChunkBuffer staging_;       // of a GPU's array
  std::int64_t written_ = 0;  // bytes in the array's memory
  std::string owner_;
  std::string id_;  // of the resident array; empty until there is one

  absl::Mutex mutex_;
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;  // a message is awaited
  Watch watch_;                                   // last: calls the others
};

grpc::ServerReadReactor<grpc::ByteBuffer>* RunPut(Backend& backend, grpc::CallbackServerContext* context,
                                                  grpc::ByteBuffer* response) {
  return new PutCall(backend, context, response);  // OnDone deletes it
}

}  // namespace reduced::server

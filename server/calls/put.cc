// One PutArray, start to end:
//
//   1. gRPC calls RunPut, which makes a PutCall and asks for the first message. It has the header: ParsePut checks
//      everything that can be checked without the elements, the call is counted in, among the streams too, and the
//      memory is allocated. A draining server refuses it, and one that is full in any respect.
//   2. Messages come in one after the other, as the slices of memory that the transport read them into. What a chunk
//      has is written to the array's memory before the next message is asked for: to a GPU by way of a buffer, since a
//      transfer takes some time however small it is.
//   3. At the half-close everything that the header declared must have come. The array gets its id, and the call is
//      finished: exactly once. Whatever goes wrong before, the memory is freed with the call.
//   4. OnDone, after every other callback, deletes the array again if its client is known to have gone away before the
//      answer reached it, counts the call out and deletes it.
#include "server/calls/put.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "kernels/engine/stopwatch.h"
#include "server/wire/chunks.h"
#include "server/wire/request.h"
#include "server/wire/response.h"

namespace reduced::server {
namespace {

// Of what is written to a GPU at a time.
constexpr std::int64_t kStagingBytes = std::int64_t{1} << 20;

}  // namespace

class PutCall final : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  PutCall(Backend& backend, grpc::CallbackServerContext* context, grpc::ByteBuffer* response)
      : backend_(backend), context_(context), response_(response), tag_(backend.observer.Begin(context)) {
    StartRead(&message_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return End(Keep());
    const absl::Status status = Take();
    if (!status.ok()) return End(status);
    message_.Clear();
    reader_ = ChunkReader();
    StartRead(&message_);
  }
  void OnCancel() override { cancelled_.store(true); }
  void OnDone() override {
    if (cancelled_.load() && !id_.empty()) {
      backend_.arrays.Delete(
          id_, owner_, [](const absl::Status&) {}, identity_);
    }
    if (entered_) backend_.gate.Leave();
    delete this;
  }

 private:
  // Takes in the message that has come.
  absl::Status Take() {
    v1::PutArrayRequest request;
    const absl::Status status = ReadMessage(message_, &request, &reader_);
    if (!status.ok()) return status;
    if (request.has_header()) return Begin(request.header());
    if (!began_) return absl::InvalidArgumentError("the first message has no header");
    received_ += static_cast<std::int64_t>(reader_.left());
    if (received_ <= put_.array.bytes) return Store();
    return absl::InvalidArgumentError(
        absl::StrFormat("%d bytes have come, but the header declares %d", received_, put_.array.bytes));
  }

  absl::Status Begin(const v1::PutArrayHeader& header) {
    if (began_) return absl::InvalidArgumentError("a second header has come");
    began_ = true;
    const absl::StatusOr<std::string> caller = backend_.CallerOf(*context_);
    if (!caller.ok()) return caller.status();
    absl::StatusOr<ParsedPut> parsed = ParsePut(header, backend_.engines, backend_.limits, *caller);
    if (!parsed.ok()) return parsed.status();
    put_ = *std::move(parsed);

    absl::Status status = backend_.gate.Enter();
    if (!status.ok()) return status;
    entered_ = true;
    absl::StatusOr<Quotas::Lease> quota = backend_.TakeRequest(*caller);
    if (!quota.ok()) {
      AddRetryHint(kIdentityRetryAfter, context_);
      return quota.status();
    }
    quota_ = *std::move(quota);
    status = backend_.EnterStream();
    running_ = status.ok();
    if (!running_) {
      AddRetryHint(RetryAfter(*put_.engine, put_.array.bytes), context_);
      return status;
    }
    status = backend_.arrays.CheckRoom();
    if (!status.ok()) return status;
    quota = backend_.TakeArrayBytes(*caller, put_.array.bytes);
    if (!quota.ok()) return quota.status();
    put_.array.quota = *std::move(quota);
    absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = put_.engine->Allocate(put_.array.bytes);
    if (!memory.ok()) return memory.status();
    put_.array.memory = *std::move(memory);
    if (put_.array.memory->array().space == MemorySpace::kDevice) {
      staging_ = put_.engine->Stage(std::min(put_.array.bytes, kStagingBytes));
    }
    return absl::OkStatus();
  }

  // Writes the chunk, all but what waits in the buffer for the next one.
  absl::Status Store() {
    while (reader_.left() > 0) {
      std::string_view next;
      if (staging_.data() == nullptr) {
        next = reader_.Next(reader_.left());
      } else {
        const std::int64_t full = std::min(put_.array.bytes - written_, kStagingBytes);
        const std::int64_t take = std::min(full - staged_, static_cast<std::int64_t>(reader_.left()));
        reader_.Read(staging() + staged_, static_cast<std::size_t>(take));
        staged_ += take;
        if (staged_ < full) break;
        next = {staging(), static_cast<std::size_t>(std::exchange(staged_, 0))};
      }
      const auto bytes = static_cast<std::int64_t>(next.size());
      const absl::Status status = put_.array.memory->Write(written_, next.data(), bytes);
      if (!status.ok()) return status;
      written_ += bytes;
    }
    return absl::OkStatus();
  }

  // No more messages come.
  absl::Status Keep() {
    if (absl::Now() >= deadline_) return absl::DeadlineExceededError("the deadline passed before the array was here");
    if (cancelled_.load() || context_->IsCancelled()) return absl::CancelledError("the client went away");
    if (!began_) return absl::InvalidArgumentError("the stream ended without a header");
    if (received_ != put_.array.bytes) {
      return absl::InvalidArgumentError(
          absl::StrFormat("the stream ended after %d bytes, but the header declares %d", received_, put_.array.bytes));
    }
    owner_ = put_.array.owner;
    identity_ = put_.array.identity;
    absl::StatusOr<v1::ArrayInfo> kept = backend_.arrays.Add(std::move(put_.array));
    if (!kept.ok()) return kept.status();
    id_ = kept->id();
    v1::PutArrayResponse answer;
    *answer.mutable_array() = *std::move(kept);
    bool own_buffer = false;
    const grpc::Status encoded =
        grpc::SerializationTraits<v1::PutArrayResponse>::Serialize(answer, response_, &own_buffer);
    return encoded.ok() ? absl::OkStatus() : absl::InternalError("the answer can't be encoded");
  }

  void End(const absl::Status& status) {
    put_.array.memory.reset();
    put_.array.quota.Return();
    quota_.Return();
    staging_ = {};
    reader_ = ChunkReader();
    message_.Clear();
    if (running_) backend_.LeaveStream();
    backend_.observer.End({.rpc = Rpc::kPutArray,
                           .tag = &tag_,
                           .context = context_,
                           .engine = put_.engine == nullptr ? EngineKind::kAuto : put_.engine->kind(),
                           .bytes = received_,
                           .total_us = since_call_.micros(),
                           .status = status});
    Finish(ToGrpc(status));
  }

  char* staging() const { return reinterpret_cast<char*>(staging_.data()); }

  const Stopwatch since_call_;
  Backend& backend_;
  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const response_;
  const CallTag tag_;
  const absl::Time deadline_ = absl::FromChrono(context_->deadline());
  std::atomic<bool> cancelled_ = false;
  grpc::ByteBuffer message_;
  ChunkReader reader_;  // of message_
  bool began_ = false;  // a header has come
  bool entered_ = false;
  Quotas::Lease quota_;  // of this call
  bool running_ = false;
  ParsedPut put_;
  StagingBuffer staging_;      // what is written next to a GPU; null for the CPU
  std::int64_t staged_ = 0;    // bytes in it
  std::int64_t written_ = 0;   // bytes of the array in its memory
  std::int64_t received_ = 0;  // bytes of the array that have come
  std::string owner_;
  std::string identity_;
  std::string id_;  // of the array that is kept
};

grpc::ServerReadReactor<grpc::ByteBuffer>* RunPut(Backend& backend, grpc::CallbackServerContext* context,
                                                  grpc::ByteBuffer* response) {
  return new PutCall(backend, context, response);  // OnDone deletes it
}

}  // namespace reduced::server

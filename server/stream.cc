// One ReduceStream, start to end:
//
//   1. gRPC calls RunStream, which makes a StreamCall and asks for the first message. It has the header: ParseHeader
//   checks
//      everything that can be checked without the elements, the call is counted in, an engine is picked. A draining
//      server refuses it, and one that has as many streams as it takes.
//   2. Messages come in one after the other, as the slices of memory that the transport read them into. A chunk is
//      copied once, into the buffer that is being filled: StretchBytes(), or what is left of the array.
//   3. A full buffer goes to the engine as an array of its own, a stretch, and filling goes on in the other buffer.
//   Only
//      one stretch is with the engine at a time; when the other buffer is full too, nothing more is read until it is
//      back: the transport's flow control holds the client. The partials are combined in array order.
//   4. At the half-close everything that the header declared must have come. The last stretch is reduced, the answers
//   are
//      read off the combined partial, and the call is finished: exactly once.
//   5. OnDone, after every other callback, counts the call out and deletes it.
//
// Step 2 to 4 are Drive(), which one thread runs at a time: gRPC's when a message is there, or the lane's that brings
// back the stretch that Drive() had to wait for. The first error ends the call at the next step. When the
// client goes away, the deadline passes or the server stops, the read fails, and OnCancel sets the flag that the lane
// looks at.
#include "server/stream.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "kernels/partial.h"
#include "kernels/stopwatch.h"
#include "server/answer.h"
#include "server/chunks.h"
#include "server/request.h"

namespace reduced {
namespace {

// A stretch: what the CPU engine reduces on the calling thread, in its cache, without a hand-off; for a GPU, enough to
// be worth one. A multiple of every element's size.
constexpr std::int64_t StretchBytes(EngineKind engine) {
  return engine == EngineKind::kCpu ? std::int64_t{256} << 10 : std::int64_t{4} << 20;
}

void Add(const std::optional<double>& later, std::optional<double>* sum) {
  if (later.has_value()) *sum = sum->value_or(0) + *later;
}

void Add(const Timing& later, Timing* sum) {
  Add(later.queue_us, &sum->queue_us);
  Add(later.host_copy_us, &sum->host_copy_us);
  Add(later.host_to_device_us, &sum->host_to_device_us);
  Add(later.scratch_copy_us, &sum->scratch_copy_us);
  Add(later.kernel_us, &sum->kernel_us);
  Add(later.device_to_host_us, &sum->device_to_host_us);
}

class StreamCall final : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  StreamCall(Backend& backend, grpc::CallbackServerContext* context, grpc::ByteBuffer* response)
      : backend_(backend), context_(context), response_(response) {
    StartRead(&message_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      receive_us_ = since_header_.micros();
      ended_ = true;
    } else if (const absl::Status status = Take(); !status.ok()) {
      Fail(status);
    }
    Drive();
  }
  void OnCancel() override { cancelled_->store(true, std::memory_order_relaxed); }
  void OnDone() override {
    if (entered_) backend_.gate.Leave();
    delete this;
  }

 private:
  // Takes in the message that has come: the header at once, of a chunk only where it is.
  absl::Status Take() {
    v1::ReduceStreamRequest request;
    const absl::Status status = ReadMessage(message_, &request, &reader_);
    if (!status.ok()) return status;
    if (request.has_header()) return Begin(request.header());
    if (!began_) return absl::InvalidArgumentError("the first message has no header");
    received_ += static_cast<std::int64_t>(reader_.left());
    if (received_ <= bytes_) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrFormat("%d bytes have come, but the header declares %d", received_, bytes_));
  }

  absl::Status Begin(const v1::ReduceRequest& header) {
    if (began_) return absl::InvalidArgumentError("a second header has come");
    began_ = true;
    since_header_ = Stopwatch();
    absl::StatusOr<ParsedRequest> parsed = ParseHeader(header, backend_.limits);
    if (!parsed.ok()) return parsed.status();
    spec_ = std::move(parsed->spec);
    bytes_ = parsed->bytes;
    width_ = RowOf(spec_.dtype).bytes;

    const absl::Status entered = backend_.gate.Enter();
    if (!entered.ok()) return entered;
    entered_ = true;
    absl::StatusOr<Placement> place = backend_.engines.Place(spec_, {nullptr, MemorySpace::kHost});
    if (!place.ok()) return place.status();
    engine_ = place->engine;
    stretch_ = StretchBytes(engine_->kind());
    answer_.mutable_execution()->set_reason(std::move(place->reason));
    const absl::Status running = backend_.EnterStream();
    running_ = running.ok();
    if (!running_) AddRetryHint(RetryAfter(*engine_, bytes_), context_);
    return running;
  }

  void Drive() {
    for (;;) {
      const std::int64_t room = std::min(stretch_, bytes_ - sent_);  // of the buffer that is being filled
      const std::int64_t take = std::min(room - filled_, static_cast<std::int64_t>(reader_.left()));
      if (take > 0 && !failed()) {
        if (filling_ == nullptr) filling_.reset(new char[static_cast<std::size_t>(room)]);
        reader_.Read(filling_.get() + filled_, static_cast<std::size_t>(take));
        filled_ += take;
      }
      const bool full = began_ && filled_ == room && (room > 0 || (ended_ && !reduced_any_));
      if (!full || failed()) {
        if (failed() || ended_) return End();
        message_.Clear();
        reader_ = ChunkReader();
        return StartRead(&message_);
      }
      {
        const absl::MutexLock lock(&mutex_);
        if (flying_) {
          waiting_ = true;
          return;
        }
        flying_ = true;
      }
      std::swap(filling_, reducing_);
      Reduce(std::exchange(filled_, 0));
    }
  }

  // Gives the buffer of the stretch that follows what was sent before to the engine.
  void Reduce(std::int64_t bytes) {
    ReduceSpec stretch = spec_;
    stretch.count = bytes / width_;
    const std::int64_t begin = sent_ / width_;
    sent_ += bytes;
    const bool admitted = std::exchange(reduced_any_, true);
    engine_->Reduce(Job{std::move(stretch), {reducing_.get(), MemorySpace::kHost}, deadline_, cancelled_, admitted},
                    [this, begin](absl::StatusOr<EngineResult> result) { Done(begin, std::move(result)); });
  }

  void Done(std::int64_t begin, absl::StatusOr<EngineResult> result) {
    if (result.ok()) {
      MoveTo(begin, &result->partial);
      Combine(result->partial, &total_.partial);
      Add(result->timing, &total_.timing);
      total_.ran = std::move(result->ran);
    } else {
      if (absl::IsResourceExhausted(result.status())) AddRetryHint(RetryAfter(*engine_, bytes_), context_);
      Fail(result.status());
    }
    {
      const absl::MutexLock lock(&mutex_);
      flying_ = false;
      if (!std::exchange(waiting_, false)) return;
    }
    Drive();
  }

  // Finishes the call, if the engine has nothing of it any more; else Drive comes here again.
  void End() {
    {
      const absl::MutexLock lock(&mutex_);
      if (flying_) {
        waiting_ = true;
        return;
      }
    }
    absl::Status status = Outcome();
    if (status.ok()) status = FillAnswer(spec_, total_, receive_us_, bytes_, &answer_);
    const double total_us = since_header_.micros();
    if (status.ok()) {
      answer_.mutable_timing()->set_total_us(total_us);
      bool own_buffer = false;
      const grpc::Status encoded =
          grpc::SerializationTraits<v1::ReduceResponse>::Serialize(answer_, response_, &own_buffer);
      if (!encoded.ok()) status = absl::InternalError("the answer can't be encoded");
    }
    filling_.reset();
    reducing_.reset();
    reader_ = ChunkReader();
    message_.Clear();
    if (running_) backend_.LeaveStream();
    LogReduce("reduce_stream", *context_, spec_, engine_, status, total_us);
    Finish(ToGrpc(status));
  }

  absl::Status Outcome() {
    {
      const absl::MutexLock lock(&mutex_);
      if (!status_.ok()) return status_;
    }
    if (absl::Now() >= deadline_) return absl::DeadlineExceededError("the deadline passed before the array was here");
    if (cancelled_->load(std::memory_order_relaxed) || context_->IsCancelled()) {
      return absl::CancelledError("the client went away");
    }
    if (!began_) return absl::InvalidArgumentError("the stream ended without a header");
    if (received_ == bytes_) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrFormat("the stream ended after %d bytes, but the header declares %d", received_, bytes_));
  }

  // The first error stays.
  void Fail(const absl::Status& status) {
    const absl::MutexLock lock(&mutex_);
    if (status_.ok()) status_ = status;
    failed_.store(true, std::memory_order_release);
  }
  bool failed() const { return failed_.load(std::memory_order_acquire); }

  Backend& backend_;
  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const response_;
  const absl::Time deadline_ = absl::FromChrono(context_->deadline());
  const CancelFlag cancelled_ = std::make_shared<std::atomic<bool>>(false);

  // Of whoever drives.
  Stopwatch since_header_;
  grpc::ByteBuffer message_;
  ChunkReader reader_;  // of message_
  bool began_ = false;  // a header has come
  bool entered_ = false;
  bool running_ = false;
  bool ended_ = false;  // the client has half-closed, or is gone
  bool reduced_any_ = false;
  ReduceSpec spec_;
  std::int64_t bytes_ = 0;  // of the array
  std::int64_t width_ = 1;  // of an element
  Engine* engine_ = nullptr;
  std::int64_t stretch_ = 0;
  double receive_us_ = 0;
  std::int64_t received_ = 0;  // bytes of all the chunks
  std::int64_t sent_ = 0;      // of these, those that went to the engine
  std::unique_ptr<char[]> filling_;
  std::int64_t filled_ = 0;
  v1::ReduceResponse answer_;

  // Of the engine while flying_.
  std::unique_ptr<char[]> reducing_;
  EngineResult total_;

  absl::Mutex mutex_;
  bool flying_ ABSL_GUARDED_BY(mutex_) = false;   // a stretch is with the engine
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;  // its return drives on
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> failed_ = false;
};

}  // namespace

grpc::ServerReadReactor<grpc::ByteBuffer>* RunStream(Backend& backend, grpc::CallbackServerContext* context,
                                                     grpc::ByteBuffer* response) {
  return new StreamCall(backend, context, response);  // OnDone deletes it
}

}  // namespace reduced

// One ReduceStream, start to end:
//
//   1. gRPC calls RunStream, which makes a StreamCall and asks for the first message. It has the header: ParseHeader
//      checks everything that can be checked without the elements, the call is counted in, an engine is picked. A
//      draining server refuses it, and one that has as many streams as it takes. One that brings a part of an array
//      joins the upload that the part belongs to, which says where it is reduced.
//   2. Messages come in one after the other, as the slices of memory that the transport read them into. A chunk is
//      copied once, into the buffer that is being filled: Engine::staging_bytes(), or what is left of the array.
//   3. A full buffer goes to the engine as an array of its own, a stretch, and filling goes on in the other buffer.
//      Only one stretch is with the engine at a time; when the other buffer is full too, nothing more is read until it
//      is back: the transport's flow control holds the client. The partials are combined in array order.
//   4. At the half-close everything that the header declared must have come. The last stretch is reduced. The partial
//      of a part goes to the upload, and the call waits, without its buffers, for Over(): the upload has the other
//      parts too, and all their partials are combined.
//   5. The answers are read off the combined partial, and the call is finished: exactly once.
//   6. OnDone, after every other callback, counts the call out and lets go of it.
//
// Step 2 to 5 are driven by one thread at a time: gRPC's when a message is there, or the lane's that brings back the
// stretch that had to be waited for. The first error ends the call at the next step. When the client goes away, the
// deadline passes or the server stops, the read fails, and OnCancel sets the flag that the lane looks at.
//
// A part that ends with an error fails its upload, whose other parts are told by Over(), on the thread of the first. If
// one of them has a thread that drives it, that comes upon the error at its next step. Else it waits for a message or
// for Over(), and is driven to its end at once; a message that comes after that is let go.
#include "server/calls/stream.h"

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
#include "kernels/algebra/state.h"
#include "kernels/engine/stopwatch.h"
#include "server/sources/uploads.h"
#include "server/wire/chunks.h"
#include "server/wire/request.h"
#include "server/wire/response.h"

namespace reduced::server {

class StreamCall final : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  StreamCall(Backend& backend, grpc::CallbackServerContext* context, grpc::ByteBuffer* response)
      : backend_(backend), context_(context), response_(response), tag_(backend.observer.Begin(context)) {}

  // `self`: kept until the call is over; an upload may hold it longer.
  void Start(std::shared_ptr<StreamCall> self) {
    self_ = std::move(self);
    Read();
  }

  void OnReadDone(bool ok) override {
    {
      const absl::MutexLock lock(&mutex_);
      if (!std::exchange(reading_, false)) return;  // Over() has ended the call
    }
    if (!ok) {
      receive_us_ = since_header_.micros();
      ended_ = true;
    } else if (const absl::Status status = Take(); !status.ok()) {
      Fail(status);
    }
    message_.Clear();
    Drive();
  }
  void OnCancel() override {
    cancelled_->store(true);
    {
      const absl::MutexLock lock(&mutex_);
      if (!std::exchange(parked_, false)) return;
    }
    End();
  }
  void OnDone() override {
    if (entered_) backend_.gate.Leave();
    self_.reset();
  }

 private:
  // Takes in the message that has come: the header at once, of a chunk only where it is.
  absl::Status Take() {
    v1::ReduceStreamRequest request;
    const absl::Status status = ReadMessage(message_, &request, &reader_);
    if (!status.ok()) return status;
    if (request.has_header()) return Begin(request);
    if (!began_) return absl::InvalidArgumentError("the first message has no header");
    received_ += static_cast<std::int64_t>(reader_.left());
    if (received_ <= bytes_) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrFormat("%d bytes have come, but the header declares %d", received_, bytes_));
  }

  absl::Status Begin(const v1::ReduceStreamRequest& first) {
    if (began_) return absl::InvalidArgumentError("a second header has come");
    began_ = true;
    since_header_ = Stopwatch();
    const absl::StatusOr<std::string> caller = backend_.CallerOf(*context_);
    if (!caller.ok()) return caller.status();
    if (first.has_stream_part()) {
      const v1::StreamPart& part = first.stream_part();
      const absl::Status status = CheckPart(part);
      if (part.upload().empty() || part.upload().size() > kMaxUploadId) return status;  // no upload that could fail
      part_ = part;
      part_->set_upload(UploadKey(*caller, part.upload()));
      if (!status.ok()) return status;
    }
    absl::StatusOr<ParsedRequest> parsed = ParseHeader(first.header(), backend_.limits);
    if (!parsed.ok()) return parsed.status();
    spec_ = std::move(parsed->spec);
    return_state_ = first.header().return_state();
    bytes_ = parsed->bytes;
    width_ = RowOf(spec_.dtype).bytes;

    const absl::Status entered = backend_.gate.Enter();
    if (!entered.ok()) return entered;
    entered_ = true;
    const auto take_request = [&] {
      absl::StatusOr<Quotas::Lease> quota = backend_.TakeRequest(*caller);
      if (!quota.ok()) AddRetryHint(kIdentityRetryAfter, context_);
      return quota;
    };
    if (!part_.has_value()) {
      absl::StatusOr<Quotas::Lease> quota = take_request();
      if (!quota.ok()) return quota.status();
      quota_ = *std::move(quota);
    }
    absl::StatusOr<Placement> place = backend_.engines.Place(spec_, {nullptr, MemorySpace::kHost});
    if (!place.ok()) return place.status();
    if (part_.has_value()) {
      auto joined = backend_.uploads.Join(*part_, spec_, *std::move(place), take_request,
                                          [self = self_](const auto& whole) { self->Over(whole); });
      if (!joined.ok()) return joined.status();
      upload_ = std::move(joined->upload);
      place = std::move(joined->place);
      bytes_ = part_->count() * width_;
    }
    engine_ = place->engine;
    stretch_ = engine_->staging_bytes();
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
        if (filling_.data() == nullptr) filling_ = engine_->Stage(room);
        reader_.Read(reinterpret_cast<char*>(filling_.data()) + filled_, static_cast<std::size_t>(take));
        filled_ += take;
      }
      const bool full = began_ && filled_ == room && (room > 0 || (ended_ && !reduced_any_));
      if (!full || failed()) {
        if (failed() || ended_) return End();
        reader_ = ChunkReader();
        return Read();
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

  // Asks for the next message. Under the lock: a call that Over() has ended must not be asked any more.
  void Read() {
    {
      const absl::MutexLock lock(&mutex_);
      if (status_.ok()) {
        reading_ = true;
        return StartRead(&message_);
      }
    }
    End();
  }

  // Gives the buffer of the stretch that follows what was sent before to the engine.
  void Reduce(std::int64_t bytes) {
    ReduceSpec stretch = spec_;
    stretch.count = bytes / width_;
    const std::int64_t begin = (part_.has_value() ? part_->first() : 0) + sent_ / width_;
    sent_ += bytes;
    const bool admitted = std::exchange(reduced_any_, true);
    engine_->Reduce(Job{std::move(stretch), reducing_.array(), deadline_, cancelled_, admitted},
                    [this, begin](absl::StatusOr<EngineResult> result) { Done(begin, std::move(result)); });
  }

  void Done(std::int64_t begin, absl::StatusOr<EngineResult> result) {
    if (result.ok()) {
      Shift(begin, &result->state);
      Combine(*result, &total_);
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

  // Nothing more of the array is needed: finishes the call, or hands what came of the part to its upload. If the engine
  // has a stretch of it, Drive comes here again.
  void End() {
    {
      const absl::MutexLock lock(&mutex_);
      if (flying_) {
        waiting_ = true;
        return;
      }
    }
    filling_ = {};
    reducing_ = {};
    reader_ = ChunkReader();
    const absl::Status status = Outcome();
    if (!part_.has_value() || whole_) return Answer(status);
    if (status.ok()) return Park();
    backend_.uploads.Fail(*part_, status);
    Answer(status);
  }

  // Leaves the call to Over() or OnCancel().
  void Park() {
    const std::shared_ptr<StreamCall> self = self_;  // which may be over as soon as it is parked
    part_timing_ = total_.timing;
    EngineResult part = std::move(total_);
    bool parked = false;
    {
      const absl::MutexLock lock(&mutex_);
      parked = parked_ = status_.ok() && !cancelled_->load();
    }
    if (!parked) return End();
    backend_.uploads.Finish(*upload_, part_->index(), std::move(part));
  }

  // What became of the upload.
  void Over(const absl::StatusOr<EngineResult>& whole) {
    if (!whole.ok()) {
      Fail(whole.status());
      cancelled_->store(true);
    }
    {
      const absl::MutexLock lock(&mutex_);
      const bool reading = std::exchange(reading_, false);
      const bool parked = std::exchange(parked_, false);
      if (!reading && !parked) return;  // a thread drives it, or has ended it
    }
    if (whole.ok()) {
      total_ = *whole;
      whole_ = true;
    }
    End();
  }

  void Answer(absl::Status status) {
    if (status.ok()) status = FillAnswer(spec_, total_, receive_us_, spec_.count * width_, return_state_, &answer_);
    const double total_us = since_header_.micros();
    if (status.ok()) {
      answer_.mutable_timing()->set_total_us(total_us);
      bool own_buffer = false;
      const grpc::Status encoded =
          grpc::SerializationTraits<v1::ReduceResponse>::Serialize(answer_, response_, &own_buffer);
      if (!encoded.ok()) status = absl::InternalError("the answer can't be encoded");
    }
    if (running_) backend_.LeaveStream();
    quota_.Return();
    backend_.observer.End({.rpc = Rpc::kReduceStream,
                           .tag = &tag_,
                           .context = context_,
                           .spec = &spec_,
                           .source = Source::kStream,
                           .engine = engine_ == nullptr ? EngineKind::kAuto : engine_->kind(),
                           .pipeline = total_.ran.pipeline,
                           .bytes = bytes_,
                           .receive_us = receive_us_ > 0 ? std::optional(receive_us_) : std::nullopt,
                           .timing = whole_ ? part_timing_ : total_.timing,
                           .total_us = total_us,
                           .status = status});
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
  const CallTag tag_;
  const absl::Time deadline_ = absl::FromChrono(context_->deadline());
  const CancelFlag cancelled_ = std::make_shared<std::atomic<bool>>(false);

  std::shared_ptr<StreamCall> self_;

  // Of whoever drives.
  Stopwatch since_header_;
  grpc::ByteBuffer message_;
  ChunkReader reader_;  // of message_
  bool began_ = false;  // a header has come
  bool entered_ = false;
  Quotas::Lease quota_;  // of a part: none, its upload has it
  bool running_ = false;
  bool ended_ = false;  // the client has half-closed, or is gone
  bool reduced_any_ = false;
  ReduceSpec spec_;
  bool return_state_ = false;
  std::optional<v1::StreamPart> part_;  // that the stream has of the array
  std::shared_ptr<Uploads::Upload> upload_;
  bool whole_ = false;      // total_ is of the whole upload ...
  Timing part_timing_;      // ... and this of the part: so each stage is counted once
  std::int64_t bytes_ = 0;  // of the array, or the part
  std::int64_t width_ = 1;  // of an element
  Engine* engine_ = nullptr;
  std::int64_t stretch_ = 0;
  double receive_us_ = 0;
  std::int64_t received_ = 0;  // bytes of all the chunks
  std::int64_t sent_ = 0;      // of these, those that went to the engine
  StagingBuffer filling_;
  std::int64_t filled_ = 0;
  v1::ReduceResponse answer_;

  // Of the engine while flying_.
  StagingBuffer reducing_;
  EngineResult total_;

  absl::Mutex mutex_;
  // What the next to drive is called by; of reading_, waiting_ and parked_, one at most is set.
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;  // a message, or Over()
  bool flying_ ABSL_GUARDED_BY(mutex_) = false;   // a stretch is with the engine ...
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;  // ... whose return it is
  bool parked_ ABSL_GUARDED_BY(mutex_) = false;   // Over() or OnCancel()
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> failed_ = false;
};

grpc::ServerReadReactor<grpc::ByteBuffer>* RunStream(Backend& backend, grpc::CallbackServerContext* context,
                                                     grpc::ByteBuffer* response) {
  auto call = std::make_shared<StreamCall>(backend, context, response);
  call->Start(call);
  return call.get();  // keeps itself until OnDone
}

}  // namespace reduced::server

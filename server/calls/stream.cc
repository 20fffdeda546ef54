// One ReduceStream from start to end:
//
//   1. gRPC calls RunStream, which makes a StreamCall and asks for the first message: the header. Admission: identity,
//      deadline, gate, quota, a stream slot. ParseHeader checks everything that does not depend on the elements, and an
//      engine is chosen. A part of an upload joins the upload, which pays the quota and chose the engine.
//   2. Messages arrive one by one, as the slices of memory that the transport read them into. A chunk is copied once,
//      into the buffer of the next stretch. Of ops about two arrays each array has such buffers, and chunks of its own;
//      what is ahead of another array is copied twice.
//   3. A full buffer goes to the engine, and the next chunks go into a second buffer. The engine has one stretch at a
//      time: when the second buffer is full, too, nothing more is read until the first is back, and the transport's
//      flow control stops the client.
//   4. At the half-close everything that the header declares must have arrived. The last stretch is reduced. The result
//      of a part goes to its upload, and the call waits, without buffers, for Over(): the upload has the other parts,
//      too, and combines all results.
//   5. The response is filled from the combined result, and the call is finished: exactly once.
//   6. OnDone, after every other callback, releases the call. The last owner, which may be a part of the same upload on
//      another thread, deletes it, and so leaves the gate.
//
// One thread at a time drives the call. What the call waits for is its state:
//
//   state     waits for                                    next
//   kReading  a message, or the end of its upload          OnReadDone, Over, Stalled: kDriving
//   kDriving  nothing: a thread drives it                  Read: kReading; Fly, End: kWaiting; Park: kParked; Answer
//   kWaiting  the engine, which has a stretch              Done: kDriving
//   kParked   the other parts, or the client's cancel      Over, OnCancel, Stalled: kDriving
//
// The first error ends the call at the driver's next step. The watchdog calls Stalled() if the client makes no
// progress. When the client goes away, the deadline passes or the server stops, the read fails, and OnCancel sets the
// flag that the lane checks. A part that ends with an error fails its upload, which calls Over() of the other parts on
// the thread of the first: a driven part finds the error at its next step, one that waits for a message or is parked
// ends at once, and its late message is ignored.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kernels/engine/memory_budget.h"
#include "kernels/engine/stopwatch.h"
#include "kernels/engine/why_stop.h"
#include "kernels/folds/fold.h"
#include "kernels/system/status_macros.h"
#include "server/calls/admission.h"
#include "server/calls/calls.h"
#include "server/calls/chunk_feeder.h"
#include "server/calls/stretches.h"
#include "server/calls/watchdog.h"
#include "server/sources/uploads.h"
#include "server/wire/encode.h"
#include "server/wire/request.h"
#include "server/wire/response.h"
#include "server/wire/status.h"

namespace reduced::server {
namespace {

constexpr std::int64_t kBufferBytes = 8 << 20;  // of one stream: two stretches, and messages on their way

}  // namespace

class StreamCall final : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  StreamCall(Backend& backend, grpc::CallbackServerContext* context, grpc::ByteBuffer* response)
      : backend_(backend),
        context_(context),
        response_(response),
        tag_(backend.observer.Begin(context)),
        admission_(Rpc::kReduceStream, backend),
        watch_(backend.watchdog, context, [this](const absl::Status& why) { Stalled(why); }) {}

  // `self`: owns the call until OnDone; an upload may own it longer.
  void Start(std::shared_ptr<StreamCall> self) {
    self_ = std::move(self);
    Fail(admission_.Begin(backend_.CallerOf(*context_)));
    Read();
  }

  void OnReadDone(bool ok) override {
    if (!Resume({State::kReading})) return;  // Over() or Stalled() has ended the call
    watch_.Await(Wait::kNothing);
    if (!ok) {
      receive_us_ = since_header_.micros();
      half_closed_ = true;
    } else if (const absl::Status status = Take(); !status.ok()) {
      Fail(status);
    }
    Drive();
  }
  void OnCancel() override {
    cancelled_->store(true);
    if (Resume({State::kParked})) End();
  }
  void OnDone() override {
    watch_.Stop();
    self_.reset();
  }

 private:
  enum class State : std::uint8_t { kReading, kDriving, kWaiting, kParked };

  // Handles the message that has arrived.
  absl::Status Take() {
    RETURN_IF_ERROR(CheckMessageSize(message_.Length(), backend_.limits.max_message_bytes));
    MemoryLease lease;
    v1::ReduceStreamRequest request;
    ASSIGN_OR_RETURN(const auto got, feeder_.Take(message_, admission_.payers(), &lease, &request));
    return got == ChunkFeeder<v1::ReduceStreamRequest>::Got::kHeader ? Begin(request) : absl::OkStatus();
  }

  absl::Status Begin(const v1::ReduceStreamRequest& first) {
    since_header_ = Stopwatch();
    header_wait_us_ = watch_.waited_us();
    const absl::StatusOr<Caller> caller = backend_.CallerOf(*context_);
    absl::Status part_status;
    if (first.has_stream_part()) {
      UploadPart part = ToPart(first.stream_part());
      part_status = CheckPart(part);
      // Without a caller or a valid id there is no upload that could fail.
      if (caller.ok() && IsUploadId(part.upload)) {
        part.upload = UploadKey(caller->identity, part.upload);
        part_ = std::move(part);
      }
    }
    RETURN_IF_ERROR(admission_.Admit(caller, deadline_,
                                     first.has_stream_part() ? Admission::Payer::kUpload : Admission::Payer::kCall));
    if (!part_status.ok()) return part_status;

    ArrayShape shape;
    ASSIGN_OR_RETURN(Question question, ParseHeader(first.header(), backend_.limits, &shape));
    spec_ = std::move(question.spec);
    wanted_ = question.wanted;
    bytes_ = shape.bytes;
    StreamDTypes others;
    if (question.y.has_value()) others.y = question.y->array.dtype;
    if (question.weights.has_value()) others.weights = question.weights->array.dtype;
    const std::int64_t buffers = BufferMemory(others) + EntriesMemory();
    absl::StatusOr<MemoryLease> memory =
        MemoryLease::Take(admission_.payers().Of(buffers), buffers, "the buffers of a stream");
    if (!memory.ok()) return WithRetryHint(memory.status(), kMemoryRetryDelay);
    memory_ = *std::move(memory);
    absl::StatusOr<Placement> place = backend_.engines.Place(spec_, {nullptr, MemorySpace::kHost});
    if (!place.ok()) return place.status();
    std::int64_t count = spec_.count;
    if (part_.has_value()) {
      auto joined = backend_.uploads.Join(
          *part_, spec_, *std::move(place), [this] { return admission_.TakeQuota(); },
          [self = self_](const auto& whole) { self->Over(whole); });
      if (!joined.ok()) return joined.status();
      upload_ = std::move(joined->upload);
      place = std::move(joined->place);
      count = part_->count;
      bytes_ = count * RowOf(spec_.dtype).bytes;
    }
    engine_ = place->engine;
    answer_.mutable_execution()->set_reason(std::move(place->reason));
    ForArrays(others, [&](std::size_t array, std::int64_t width) { feeder_.Declare(count * width, array, width); });
    stretches_.emplace(*engine_, spec_, others, part_.has_value() ? part_->first : 0, count, deadline_, cancelled_,
                       admission_.key());
    return absl::OkStatus();
  }

  // Calls `visit` with the number of each array of the stream (wire/chunks.h), and the bytes of an element.
  template <class Visit>
  void ForArrays(const StreamDTypes& others, const Visit& visit) const {
    const std::optional<DType> dtypes[kStreamArrays] = {spec_.dtype, others.y, others.weights};
    for (std::size_t i = 0; i < kStreamArrays; ++i) {
      if (dtypes[i].has_value()) visit(i, std::int64_t{RowOf(*dtypes[i]).bytes});
    }
  }

  // What the arrays take at most before they are reduced.
  std::int64_t BufferMemory(const StreamDTypes& others) const {
    const std::int64_t most = kBufferBytes + (others.y.has_value() || others.weights.has_value() ? kMaxSkewBytes : 0);
    std::int64_t bytes = 0;
    ForArrays(others, [&](std::size_t, std::int64_t width) {
      bytes += spec_.count > most / width ? most : spec_.count * width;
    });
    return bytes;
  }

  // What ops of the distribution take at most: as states, as messages and as answers.
  std::int64_t EntriesMemory() const {
    constexpr std::int64_t kEntryBytes = 96;
    std::int64_t entries = 0;
    for (const OpCall& call : spec_.ops) {
      if (!HasAccumulator(call)) entries += MostEntries(call, spec_.dtype).value_or(0);
    }
    return entries * kEntryBytes;
  }

  void Drive() {
    while (!failed() && stretches_.has_value()) {
      const absl::StatusOr<bool> complete = stretches_->Fill(feeder_.chunk(), feeder_.array(), half_closed_);
      if (!complete.ok()) Fail(complete.status());
      if (!complete.ok() || !*complete) break;
      if (!Fly()) return;
      stretches_->Reduce([this](const absl::Status& status) { Done(status); });
    }
    if (failed() || half_closed_) return End();
    feeder_.DropChunk();
    Read();
  }

  // Asks for the next message, under the lock: gRPC must not be asked once Over() has ended the call.
  void Read() {
    {
      const absl::MutexLock lock(&mutex_);
      if (status_.ok()) {
        state_ = State::kReading;
        // While the engine works, nobody waits for the client.
        watch_.Await(flying_ ? Wait::kNothing : feeder_.has_header() ? Wait::kMessage : Wait::kHeader);
        return StartRead(&message_);
      }
    }
    End();
  }

  // Whether the engine can have the next stretch now; if not, Done drives the call on.
  bool Fly() {
    const absl::MutexLock lock(&mutex_);
    if (std::exchange(flying_, true)) {
      state_ = State::kWaiting;
      return false;
    }
    return true;
  }

  // The engine has returned a stretch.
  void Done(const absl::Status& status) {
    if (absl::IsResourceExhausted(status)) {
      Fail(WithRetryHint(status, QueueRetryDelay(*engine_)));
    } else {
      Fail(status);
    }
    {
      // One step: once flying_ is false, a driver may end the call, and it may be deleted.
      const absl::MutexLock lock(&mutex_);
      flying_ = false;
      if (state_ == State::kReading) watch_.Await(Wait::kMessage);
      if (state_ != State::kWaiting) return;
      state_ = State::kDriving;
    }
    Drive();
  }

  // Ends the call, or hands the result of the part to its upload. If the engine has a stretch, Drive comes here again.
  void End() {
    {
      const absl::MutexLock lock(&mutex_);
      if (flying_) {
        state_ = State::kWaiting;
        return;
      }
    }
    feeder_.DropChunk();
    if (stretches_.has_value()) result_ = stretches_->TakeResult();
    stretches_.reset();
    if (AnsweredByAccumulators(spec_)) memory_.Return();
    const absl::Status status = Outcome();
    if (!part_.has_value() || whole_) return Answer(status);
    if (status.ok()) return Park();
    backend_.uploads.Fail(*part_, status);
    Answer(status);
  }

  // Hands the result to the upload, and the call to Over() or OnCancel().
  void Park() {
    const std::shared_ptr<StreamCall> self = self_;  // as soon as the call is parked, another thread may end it
    part_timing_ = result_.timing;
    reduced::Answer part = std::move(result_);
    bool parked = false;
    {
      const absl::MutexLock lock(&mutex_);
      parked = status_.ok() && !cancelled_->load();
      if (parked) {
        state_ = State::kParked;
        watch_.Await(Wait::kParts);
      }
    }
    if (!parked) return End();
    backend_.uploads.Finish(*upload_, part_->index, std::move(part));
  }

  // The upload is over.
  void Over(const absl::StatusOr<reduced::Answer>& whole) {
    if (!whole.ok()) {
      Fail(whole.status());
      cancelled_->store(true);
    }
    if (!Resume({State::kReading, State::kParked})) return;  // a thread drives the call, or has ended it
    if (whole.ok()) {
      result_ = *whole;
      whole_ = true;
    }
    End();
  }

  // The client has made no progress. A part waits as long as the other parts of its upload make progress.
  void Stalled(const absl::Status& why) {
    {
      const absl::MutexLock lock(&mutex_);
      if (state_ == State::kParked && backend_.uploads.HaveAllJoined(*upload_)) return;
      if (state_ != State::kReading && state_ != State::kParked) return;
      state_ = State::kDriving;
      status_.Update(why);
    }
    cancelled_->store(true);
    End();
  }

  void Answer(absl::Status status) {
    if (status.ok()) {
      status = FillAnswer(spec_, result_, receive_us_, spec_.count * RowOf(spec_.dtype).bytes, wanted_, &answer_);
    }
    const double total_us = since_header_.micros();
    if (status.ok()) {
      answer_.mutable_timing()->set_total_us(total_us);
      status = Encode(answer_, admission_.payers(), &memory_, response_);
    }
    admission_.Release();
    backend_.observer.End({.rpc = Rpc::kReduceStream,
                           .tag = &tag_,
                           .context = context_,
                           .caller = &admission_.admitted(),
                           .spec = &spec_,
                           .source = Source::kStream,
                           .engine = engine_ == nullptr ? EngineKind::kAuto : engine_->kind(),
                           .pipeline = result_.ran.pipeline,
                           .bytes = bytes_,
                           .receive_us = receive_us_ > 0 ? std::optional(receive_us_) : std::nullopt,
                           .timing = whole_ ? part_timing_ : result_.timing,
                           .client_us = watch_.waited_us() - header_wait_us_,
                           .total_us = total_us,
                           .status = status});
    watch_.Await(Wait::kResponse, admission_.key());
    Finish(ToGrpc(status, context_));
  }

  // The call's own outcome, once nothing more of the array is needed.
  absl::Status Outcome() {
    {
      const absl::MutexLock lock(&mutex_);
      if (!status_.ok()) return status_;
    }
    if (context_->IsCancelled()) cancelled_->store(true);
    const absl::Status stopped = WhyStop(cancelled_, deadline_);
    return stopped.ok() ? feeder_.CheckComplete() : stopped;
  }

  // Sets the error of the call, unless there is one. OK changes nothing.
  void Fail(const absl::Status& status) {
    const absl::MutexLock lock(&mutex_);
    status_.Update(status);
  }
  bool failed() {
    const absl::MutexLock lock(&mutex_);
    return !status_.ok();
  }

  // If the call is in one of these states, the calling thread drives it from now on.
  bool Resume(std::initializer_list<State> from) {
    const absl::MutexLock lock(&mutex_);
    for (const State state : from) {
      if (state_ != state) continue;
      state_ = State::kDriving;
      return true;
    }
    return false;
  }

  Backend& backend_;
  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const response_;
  const CallTag tag_;
  const absl::Time deadline_ = absl::FromChrono(context_->deadline());
  const CancelFlag cancelled_ = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<StreamCall> self_;

  // Used by the driver only.
  Admission admission_;  // destroyed after what uses the backend: once it leaves the gate, the server may end
  MemoryLease memory_;   // for the buffers
  grpc::ByteBuffer message_;
  ChunkFeeder<v1::ReduceStreamRequest> feeder_;
  Stopwatch since_header_;
  double header_wait_us_ = 0;  // until since_header_ began
  double receive_us_ = 0;      // 0 until the half-close
  bool half_closed_ = false;
  ReduceSpec spec_;
  Wanted wanted_;
  std::int64_t bytes_ = 0;                   // of the array, or of the part
  Engine* engine_ = nullptr;                 // null until it is chosen
  std::optional<Stretches> stretches_;       // from the header until the end
  reduced::Answer result_;                   // from then on
  std::optional<UploadPart> part_;           // absent: the stream has the whole array
  std::shared_ptr<Uploads::Upload> upload_;  // that the part has joined
  Timing part_timing_;                       // of the part, so that each stage is counted once
  bool whole_ = false;                       // result_ is that of the whole upload
  v1::ReduceResponse answer_;

  absl::Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kDriving;
  bool flying_ ABSL_GUARDED_BY(mutex_) = false;  // the engine has a stretch, in any state but kParked
  absl::Status status_ ABSL_GUARDED_BY(mutex_);  // the first error
  Watch watch_;                                  // last: calls Stalled()
};

grpc::ServerReadReactor<grpc::ByteBuffer>* RunStream(Backend& backend, grpc::CallbackServerContext* context,
                                                     grpc::ByteBuffer* response) {
  auto call = std::make_shared<StreamCall>(backend, context, response);
  call->Start(call);
  return call.get();  // owns itself until OnDone
}

}  // namespace reduced::server

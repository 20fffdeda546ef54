// The reduction of an array while it arrives: stretch by stretch, on one engine.
#ifndef REDUCED_SERVER_CALLS_STRETCHES_H_
#define REDUCED_SERVER_CALLS_STRETCHES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/engine/engine.h"
#include "server/calls/chunk_feeder.h"
#include "server/wire/chunks.h"

namespace reduced::server {

// The dtypes of y and of the weights of a stream; absent: it has none.
struct StreamDTypes {
  std::optional<DType> y{};
  std::optional<DType> weights{};
};

// Collects elements in a buffer. A full buffer, a stretch, goes to the engine as an array of its own, and the next
// elements go into a second buffer. The results are combined in array order. Of ops about two arrays each array has
// such buffers, and a stretch is complete when all of them are full; what arrives of one before that is set aside.
//
// One thread at a time calls the methods. Until the callback of Reduce runs, only Fill may be called.
class Stretches {
 public:
  // `spec`: of the whole array. `others`: the dtypes of y and of the weights, if there are any. `count` elements will
  // arrive, from element `first` on. `engine` must outlive the object. `caller`: as Job::caller.
  Stretches(Engine& engine, const ReduceSpec& spec, const StreamDTypes& others, std::int64_t first, std::int64_t count,
            absl::Time deadline, CancelFlag cancelled, std::uint64_t caller);

  // Copies from `chunk`, of the array of that number (wire/chunks.h), until it is empty: false; or a stretch is
  // complete and must be given to Reduce: true. `ended`: no more chunks follow, so that an array without elements is
  // complete, too. RESOURCE_EXHAUSTED: the server has no memory for the stretch.
  absl::StatusOr<bool> Fill(ChunkReader& chunk, std::size_t array, bool ended);

  // Reduces the stretch that is complete. `done` is called once, as Engine::Done, with the error if there is one.
  void Reduce(absl::AnyInvocable<void(const absl::Status&) &&> done);

  // The result of all stretches so far, whose indexes count from the start of the whole array.
  Answer TakeResult() { return std::move(total_); }

 private:
  struct Array {
    DType dtype;
    ChunkBuffer filling{};
    ChunkBuffer reducing{};  // used by the engine until `done`
    AheadBytes ahead{};      // what follows the elements of `filling`

    SideArray side() const { return {dtype, reducing.filled() / RowOf(dtype).bytes, reducing.array()}; }
  };

  // Elements of the next stretch.
  std::int64_t SizeOfNext() const;

  Engine& engine_;
  const ReduceSpec spec_;
  const std::int64_t first_;
  const std::int64_t count_;
  const absl::Time deadline_;
  const CancelFlag cancelled_;
  const std::uint64_t caller_;
  std::int64_t sent_ = 0;  // elements given to the engine
  bool reduced_any_ = false;
  std::array<std::optional<Array>, kStreamArrays> arrays_;
  Answer total_;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_STRETCHES_H_

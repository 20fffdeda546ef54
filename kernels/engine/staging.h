// Host memory in which an array that arrives in pieces is put together before an engine reduces it.
//
// A CUDA device copies pinned memory several times as fast as ordinary memory, and without another copy on the host.
// But pinned memory takes milliseconds to allocate and is taken from the whole machine: so an engine pins one slab when
// it starts and lends pieces of it.
#ifndef REDUCED_KERNELS_ENGINE_STAGING_H_
#define REDUCED_KERNELS_ENGINE_STAGING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kernels/engine/array.h"

namespace reduced {

class StagingPool;

// A buffer, uninitialised; it goes back to its pool, or is freed, when it is destroyed. Moves only.
class StagingBuffer {
 public:
  StagingBuffer() = default;  // no buffer
  // Ordinary memory of `bytes` bytes; no buffer if there is none.
  explicit StagingBuffer(std::int64_t bytes);

  // Null: no buffer.
  std::byte* data() const { return memory_.get(); }
  // What is in the buffer, as an array. kPinnedHost: the buffer is a piece of a pool.
  ArrayRef array() const { return {data(), pinned() ? MemorySpace::kPinnedHost : MemorySpace::kHost}; }
  bool pinned() const { return memory_.get_deleter().pool != nullptr; }

 private:
  friend class StagingPool;
  struct Release {
    Release() : pool(nullptr) {}
    explicit Release(StagingPool* from) : pool(from) {}
    StagingPool* pool;  // null: ordinary memory
    void operator()(std::byte* memory) const;
  };

  std::unique_ptr<std::byte[], Release> memory_;
};

// The pieces of one slab of pinned memory. Thread-safe. Outlives the buffers that it lends.
class StagingPool {
 public:
  // `slab`: `pieces` times `piece_bytes` bytes, which outlive the pool. Null, with 0 pieces: every buffer is ordinary.
  StagingPool(std::byte* slab, std::int64_t piece_bytes, int pieces);

  // A piece of the slab; ordinary memory if `bytes` is more than a piece has, or no piece is free; no buffer if there
  // is none, either.
  StagingBuffer Take(std::int64_t bytes);

 private:
  friend class StagingBuffer;
  void GiveBack(std::byte* piece);

  const std::int64_t piece_bytes_;
  absl::Mutex mutex_;
  std::vector<std::byte*> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_ENGINE_STAGING_H_

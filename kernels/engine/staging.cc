#include "kernels/engine/staging.h"

#include <new>

#include "kernels/system/failpoint.h"

namespace reduced {

StagingBuffer::StagingBuffer(std::int64_t bytes) {
  if (!FAILPOINT("staging/allocate")) memory_.reset(new (std::nothrow) std::byte[static_cast<std::size_t>(bytes)]);
}

void StagingBuffer::Release::operator()(std::byte* memory) const {
  if (pool != nullptr) {
    pool->GiveBack(memory);
  } else {
    delete[] memory;
  }
}

StagingPool::StagingPool(std::byte* slab, std::int64_t piece_bytes, int pieces) : piece_bytes_(piece_bytes) {
  free_.reserve(static_cast<std::size_t>(pieces));
  for (int i = pieces - 1; i >= 0; --i) free_.push_back(slab + i * piece_bytes);
}

StagingBuffer StagingPool::Take(std::int64_t bytes) {
  StagingBuffer buffer;
  {
    const absl::MutexLock lock(&mutex_);
    if (bytes <= piece_bytes_ && !free_.empty()) {
      buffer.memory_ = {free_.back(), StagingBuffer::Release(this)};
      free_.pop_back();
      return buffer;
    }
  }
  return StagingBuffer(bytes);
}

void StagingPool::GiveBack(std::byte* piece) {
  const absl::MutexLock lock(&mutex_);
  free_.push_back(piece);
}

}  // namespace reduced

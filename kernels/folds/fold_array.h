// Memory of folds. It is counted before it is allocated, and given back by destructors. What is not counted is a few
// KiB in each thread: the folds themselves, and lists that a comment bounds.
#ifndef REDUCED_KERNELS_FOLDS_FOLD_ARRAY_H_
#define REDUCED_KERNELS_FOLDS_FOLD_ARRAY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "kernels/folds/fold.h"

namespace reduced {

// Bytes that are counted for one fold. Not thread-safe.
class FoldLease {
 public:
  explicit FoldLease(const FoldLimits& limits) : limits_(&limits) {}
  FoldLease(FoldLease&& other) noexcept : limits_(other.limits_), bytes_(std::exchange(other.bytes_, 0)) {}
  FoldLease& operator=(FoldLease&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~FoldLease() { Release(); }

  std::int64_t bytes() const { return bytes_; }

  // Counts `bytes` from now on, instead of what it counted; nothing, if they are refused: RESOURCE_EXHAUSTED.
  absl::Status Hold(std::int64_t bytes) {
    if (bytes == bytes_) return absl::OkStatus();
    Release();
    absl::Status status = limits_->take(bytes);
    if (status.ok()) bytes_ = bytes;
    return status;
  }
  void Release() {
    if (bytes_ > 0) limits_->give(std::exchange(bytes_, 0));
  }

 private:
  const FoldLimits* limits_;
  std::int64_t bytes_ = 0;
};

// An array of numbers. Not thread-safe.
template <class T>
class FoldArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit FoldArray(const FoldLimits& limits) : lease_(limits) {}

  std::int64_t size() const { return size_; }
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  T& operator[](std::size_t i) { return data_.get()[i]; }
  const T& operator[](std::size_t i) const { return data_.get()[i]; }

  // Has `size` elements of undefined value from now on. It keeps its memory if that is not far too much.
  // RESOURCE_EXHAUSTED: it has none.
  absl::Status Resize(std::int64_t size) {
    bool fresh = false;
    return Allocate(size, &fresh);
  }
  // The same, with zeros.
  absl::Status Zero(std::int64_t size) {
    bool fresh = false;
    absl::Status status = Allocate(size, &fresh);
    if (!fresh) std::fill_n(data(), size_, T{});
    return status;
  }
  void Clear() {
    data_.reset();
    size_ = 0;
    lease_.Release();
  }

 private:
  static constexpr std::int64_t kFarTooMuch = 16;  // times as much as is needed, in
  static constexpr std::int64_t kLarge = 1 << 20;  // bytes and more

  // `fresh`: whether the memory is new, and so has zeros.
  absl::Status Allocate(std::int64_t size, bool* fresh) {
    const std::int64_t bytes = size * static_cast<std::int64_t>(sizeof(T));
    size_ = size;
    if (bytes <= lease_.bytes() && (lease_.bytes() < kLarge || lease_.bytes() / kFarTooMuch <= bytes)) {
      return absl::OkStatus();
    }
    Clear();
    if (absl::Status status = lease_.Hold(bytes); !status.ok()) return status;
    data_.reset(static_cast<T*>(std::calloc(static_cast<std::size_t>(size), sizeof(T))));  // large ones are not touched
    if (data_ == nullptr) {
      lease_.Release();
      return absl::ResourceExhaustedError(
          absl::StrFormat("memory of ops: got no room for %d bytes; allowed: what this machine has", bytes));
    }
    size_ = size;
    *fresh = true;
    return absl::OkStatus();
  }

  struct Free {
    void operator()(T* data) const { std::free(data); }
  };
  FoldLease lease_;
  std::unique_ptr<T[], Free> data_;
  std::int64_t size_ = 0;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_FOLDS_FOLD_ARRAY_H_

// Arrays whose elements do not lie next to each other, or have their bytes in the other order: where they are, and
// copies of them in C order.
#ifndef REDUCED_KERNELS_SYSTEM_GATHER_H_
#define REDUCED_KERNELS_SYSTEM_GATHER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"

namespace reduced {

// As many dimensions as NumPy's arrays can have.
inline constexpr std::size_t kMostStrides = 64;

// Elements of 1, 2, 4 or 8 bytes at any address, `strides` bytes apart along each dimension.
struct StridedArray {
  const std::byte* data = nullptr;  // the element whose indexes are all 0
  std::int64_t width = 0;
  std::vector<std::int64_t> shape{};    // at most kMostStrides
  std::vector<std::int64_t> strides{};  // as many as dimensions, of any sign
  bool swaps = false;                   // the bytes of each element are in reverse order
};

// The bytes that the elements of an array take: from `begin`, at most 0, to before `end`, counted from the element
// whose indexes are all 0.
struct ByteSpan {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
// Of any shape and as many strides, also hostile ones. Absent: 64 bits do not count the bytes.
std::optional<ByteSpan> SpanOf(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides,
                               std::int64_t width);

// Copies the elements to `to` in C order, on as many threads as the process may use and the array is worth. It takes
// memory only for shapes. Thread-safe.
void Gather(const StridedArray& from, std::byte* to);

// The same of a part at a time, on the calling thread. Thread-safe.
class StridedReader {
 public:
  // A dimension of more than one element. Neighbouring ones that are one in memory are joined.
  struct Dimension {
    std::int64_t size, stride;
  };

  // It has one element at least.
  explicit StridedReader(const StridedArray& array);

  // Copies elements [first, first + count) of the array, in C order.
  void Read(std::int64_t first, std::int64_t count, std::byte* to) const;
  // The same of an array in a file: `data` is null, and the first element is at byte `offset`. Elements up to some
  // hundred bytes apart are read together, others by a call of the system each. Errors: as reduced::ReadFile.
  absl::Status ReadFrom(int file, std::int64_t offset, std::int64_t first, std::int64_t count, std::byte* to) const;

  // The elements lie in C order, next to each other, and are as they are.
  bool dense() const { return !swaps_ && dimensions_.size() == 1 && dimensions_.front().stride == width_; }
  const std::byte* data() const { return data_; }
  std::int64_t width() const { return width_; }
  bool swaps() const { return swaps_; }
  // One at least, from the outermost.
  const std::vector<Dimension>& dimensions() const { return dimensions_; }

 private:
  // Calls run(offset, count) for neighbours along the last dimension, until it returns an error: `offset` is that of
  // the first, in bytes from `data_`.
  template <class Run>
  absl::Status ForRuns(std::int64_t first, std::int64_t count, const Run& run) const;

  const std::byte* const data_;
  const std::int64_t width_;
  const bool swaps_;
  std::vector<Dimension> dimensions_;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_SYSTEM_GATHER_H_

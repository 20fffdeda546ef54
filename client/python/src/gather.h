// Copies of arrays whose elements do not lie next to each other.
#ifndef REDUCED_CLIENT_PYTHON_SRC_GATHER_H_
#define REDUCED_CLIENT_PYTHON_SRC_GATHER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace reduced::python {

// Elements of 1, 2, 4 or 8 bytes at any address, `strides` bytes apart along each dimension.
struct Strided {
  const std::byte* data = nullptr;
  std::int64_t width = 0;
  std::vector<std::int64_t> shape{};
  std::vector<std::int64_t> strides{};  // as many as dimensions
};

// Copies the elements to `to` in C order, with their bytes reversed if `swaps`, on as many threads as the process may
// use and the array is worth. It takes memory only for shapes. Thread-safe.
void Gather(const Strided& from, bool swaps, std::byte* to);

// The same of a part at a time, on the calling thread. Thread-safe.
class StridedReader {
 public:
  StridedReader(const Strided& array, bool swaps);

  // Copies elements [first, first + count) of the array, in C order.
  void Read(std::int64_t first, std::int64_t count, std::byte* to) const;

 private:
  struct Dimension {
    std::int64_t size, stride;
  };

  const std::byte* const data_;
  const std::int64_t width_;
  const bool swaps_;
  std::vector<Dimension> dimensions_;  // at least one
};

}  // namespace reduced::python

#endif  // REDUCED_CLIENT_PYTHON_SRC_GATHER_H_

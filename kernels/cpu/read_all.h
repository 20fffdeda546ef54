// Reading memory and nothing else: what the pipelines of the CPU engine are measured against.
#ifndef REDUCED_KERNELS_CPU_READ_ALL_H_
#define REDUCED_KERNELS_CPU_READ_ALL_H_

#include <cstddef>
#include <cstdint>

namespace reduced {

// The ways to read there are: which one is the fastest depends on the processor.
inline constexpr int kReadWays = 2;

// Loads every byte of [data, data + bytes) with the machine's widest vectors, on the calling thread, by way 0 to
// kReadWays - 1. Returns the bitwise or of its 8-byte words, the last one filled up with zeros: the same by every way,
// so that no load can be left out.
std::uint64_t ReadAll(const std::byte* data, std::int64_t bytes, int way);

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_READ_ALL_H_

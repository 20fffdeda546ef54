// Generated arrays, for ladders: one element repeated, random elements, or those of a function of their index.
//
// Every dtype's size divides 8, so an array is a sequence of 8-byte words, each a function of its index: threads
// generate stretches in any order, and equal contents are equal bytes on every machine.
#ifndef REDUCED_SERVER_SOURCES_GENERATED_ARRAY_H_
#define REDUCED_SERVER_SOURCES_GENERATED_ARRAY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/algebra/dtype.h"

namespace reduced::server {

// The contents of a generated array.
struct Contents {
  DType dtype = DType::kF32;
  std::optional<std::uint64_t> fill{};  // every word; absent: random elements
  std::uint64_t seed = 0;               // of random elements
  // If set, writes elements [begin, end) of the array that starts at `array`; called by several threads.
  std::function<void(std::int64_t begin, std::int64_t end, void* array)> elements{};
};

// `value` as an element of dtype, repeated to 8 bytes. Float dtypes round to nearest, ties to even. INVALID_ARGUMENT:
// not a whole number for an integer dtype, or out of the dtype's range; the message says what is allowed.
absl::StatusOr<std::uint64_t> FillWord(DType dtype, double value);

// An array in host memory that it owns. Move-only.
class GeneratedArray {
 public:
  // Generates an array of `bytes` >= 1 bytes with up to `threads` threads. RESOURCE_EXHAUSTED: not enough memory. The
  // threads call `why_stop` every few milliseconds; its first error ends the generation and is returned.
  static absl::StatusOr<GeneratedArray> Generate(const Contents& contents, std::int64_t bytes, int threads,
                                                 absl::FunctionRef<absl::Status()> why_stop);

  const void* data() const { return memory_.get(); }
  void* data() { return memory_.get(); }

 private:
  struct Unmap {
    std::size_t bytes = 0;
    void operator()(void* memory) const;
  };
  using Memory = std::unique_ptr<void, Unmap>;

  explicit GeneratedArray(Memory memory) : memory_(std::move(memory)) {}

  Memory memory_;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_SOURCES_GENERATED_ARRAY_H_

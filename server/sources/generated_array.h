// Arrays that the server makes itself, for ladders: one element over and over, or random ones.
//
// Every dtype's size divides 8, so an array is a sequence of 8-byte words, each a function of its index: threads can
// make stretches of it in any order, and the same contents are the same bytes on any machine.
#ifndef REDUCED_SERVER_SOURCES_GENERATED_ARRAY_H_
#define REDUCED_SERVER_SOURCES_GENERATED_ARRAY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/algebra/dtype.h"

namespace reduced::server {

// What an array is made of.
struct Contents {
  DType dtype = DType::kF32;
  std::optional<std::uint64_t> fill{};  // every word; absent: random elements
  std::uint64_t seed = 0;               // of random ones
};

// `value` as an element of dtype, repeated to 8 bytes. Floats take the nearest they have, with ties to even.
// INVALID_ARGUMENT: not a whole number, or out of the range of the dtype; the message says what is allowed.
absl::StatusOr<std::uint64_t> FillWord(DType dtype, double value);

// Host memory of its own. Moves only.
class MadeArray {
 public:
  // An array of `bytes` bytes, at least 1, made by up to `threads` threads. RESOURCE_EXHAUSTED: no memory for it. Else
  // what `why_stop` says, which is asked again and again, on any of the threads, until it isn't OK any more.
  static absl::StatusOr<MadeArray> Make(const Contents& contents, std::int64_t bytes, int threads,
                                        absl::FunctionRef<absl::Status()> why_stop);

  const void* data() const { return memory_.get(); }

 private:
  struct Unmap {
    std::size_t bytes = 0;
    void operator()(void* memory) const;
  };
  using Memory = std::unique_ptr<void, Unmap>;

  explicit MadeArray(Memory memory) : memory_(std::move(memory)) {}

  Memory memory_;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_SOURCES_GENERATED_ARRAY_H_

// What the fuzz targets share: how a target is written, and how it takes its input apart.
//
// A target is a source file with one function body:
//
//   FUZZ_TARGET(npy) {            // of type void(Input input)
//     Require(..., "what must hold");
//   }
//
// It fails by ending the process: through a sanitizer, through Require, or through libFuzzer's limits of time and
// memory. With clang and -fsanitize=fuzzer (preset fuzz) it is a program that searches for inputs that do so. In every
// other build replay.cc runs the same code over the inputs in corpus/ and crashes/, as a test.
#ifndef REDUCED_TESTS_FUZZ_FUZZ_H_
#define REDUCED_TESTS_FUZZ_FUZZ_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace reduced::fuzz {

// The bytes of an input, taken from the front. What is missing at the end counts as 0.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}
  explicit Input(absl::string_view bytes) : rest_(bytes) {}

  bool empty() const { return rest_.empty(); }
  absl::string_view rest() const { return rest_; }

  // Little-endian.
  template <class T = std::uint8_t>
  T Number() {
    T number{};
    const absl::string_view bytes = Take(sizeof(T));
    std::memcpy(&number, bytes.data(), bytes.size());
    return number;
  }
  // From 0 to `count` - 1.
  std::size_t Choice(std::size_t count) { return Number() % count; }

  absl::string_view Take(std::size_t bytes) {
    const absl::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  // What a number of two bytes says the length of.
  absl::string_view TakePiece() { return Take(Number<std::uint16_t>()); }
  // The text up to `end`, which is skipped.
  absl::string_view TakeUntil(char end) {
    const absl::string_view taken = Take(rest_.find(end));
    Take(1);
    return taken;
  }

 private:
  absl::string_view rest_;
};

// Ends the process, unless it `holds`.
inline void Require(bool holds, absl::string_view what, absl::string_view got = "") {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %.*s\ngot: %.*s\n", static_cast<int>(what.size()), what.data(),
               static_cast<int>(std::min<std::size_t>(got.size(), 4096)), got.data());
  std::abort();
}

// An error for people says something, and is short: a status travels in a header of HTTP/2.
inline void RequireGoodError(const absl::Status& status, std::size_t most_bytes = 1024) {
  if (status.ok()) return;
  Require(!status.message().empty(), "an error has a message");
  Require(status.message().size() <= most_bytes, "an error is short", status.message());
}

// The same, of a server: its errors quote what clients send, and are logged.
inline void RequirePrintableError(const absl::Status& status) {
  RequireGoodError(status);
  const auto printable = [](char c) { return c >= ' ' && c <= '~'; };
  Require(std::all_of(status.message().begin(), status.message().end(), printable), "an error is printable ASCII",
          status.message());
}

}  // namespace reduced::fuzz

#ifdef REDUCED_LIBFUZZER
#define REDUCED_FUZZ_ENTRY(name) LLVMFuzzerTestOneInput
#else
#define REDUCED_FUZZ_ENTRY(name) reduced_fuzz_##name
#endif

#define FUZZ_TARGET(name)                                                               \
  static void name##Target(::reduced::fuzz::Input input);                               \
  extern "C" int REDUCED_FUZZ_ENTRY(name)(const std::uint8_t* data, std::size_t size) { \
    name##Target({data, size});                                                         \
    return 0;                                                                           \
  }                                                                                     \
  static void name##Target([[maybe_unused]] ::reduced::fuzz::Input input)

#endif  // REDUCED_TESTS_FUZZ_FUZZ_H_

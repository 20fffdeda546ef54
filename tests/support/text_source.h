// A text in memory, as a source of bytes.
#ifndef REDUCED_TESTS_SUPPORT_TEXT_SOURCE_H_
#define REDUCED_TESTS_SUPPORT_TEXT_SOURCE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/reducectl/input/bytes.h"

namespace reduced::client {

// Thread-compatible.
class TextSource final : public ByteSource {
 public:
  explicit TextSource(absl::string_view text) : text_(text) {}
  absl::StatusOr<std::size_t> Read(char* to, std::size_t size) override {
    const std::size_t got = text_.copy(to, size, at_);
    at_ += got;
    return got;
  }

 private:
  const std::string text_;
  std::size_t at_ = 0;
};

}  // namespace reduced::client

#endif  // REDUCED_TESTS_SUPPORT_TEXT_SOURCE_H_

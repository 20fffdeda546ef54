#include "client/reducectl/output/printable.h"

#include <cstddef>

#include "absl/strings/str_format.h"

namespace reduced::client {

std::string Printable(absl::string_view text) {
  std::string printable;
  printable.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // Control characters of ISO 6429: C0, DEL, and C1, which UTF-8 encodes as C2 80 to C2 9F.
    const bool c0 = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f;
    const unsigned char next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    const bool c1 = byte == 0xc2 && next >= 0x80 && next < 0xa0;
    if (c0) {
      absl::StrAppendFormat(&printable, "\\x%02x", byte);
    } else if (c1) {
      absl::StrAppendFormat(&printable, "\\x%02x", next);
      ++i;
    } else {
      printable += text[i];
    }
  }
  return printable;
}

}  // namespace reduced::client

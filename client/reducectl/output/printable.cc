#include "client/reducectl/output/printable.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "absl/strings/str_format.h"

namespace reduced::client {
namespace {

struct CodeRange {
  std::uint32_t first, last;
};

// The code points that a terminal, or the layout of text, obeys.
constexpr CodeRange kObeyed[] = {
    {0x00, 0x08},     {0x0a, 0x1f},     {0x7f, 0x9f},  // control characters of ISO 6429: C0 but tab, DEL, C1
    {0x061c, 0x061c},                                  // marks of direction: Unicode's Bidi_Control
    {0x200e, 0x200f}, {0x2028, 0x202e},                // separators of lines and paragraphs; more marks of direction
    {0x2066, 0x2069},
};

bool IsObeyed(std::uint32_t code) {
  return std::any_of(std::begin(kObeyed), std::end(kObeyed),
                     [code](const CodeRange& range) { return range.first <= code && code <= range.last; });
}

struct Character {
  std::size_t bytes = 1;  // of its encoding
  std::uint32_t code = 0;
  bool valid = false;
};

// The first character of a text in UTF-8 that isn't empty.
Character FirstOf(absl::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  Character character{.code = lead, .valid = lead < 0x80};
  if (character.valid) return character;
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return character;
  std::uint32_t code = lead & (0xffU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xc0) != 0x80) return character;
    code = code << 6 | (byte & 0x3fU);
  }
  constexpr std::uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kSmallest[bytes] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return character;
  return {.bytes = bytes, .code = code, .valid = true};
}

std::string Escape(absl::string_view text, bool json) {
  std::string printable;
  printable.reserve(text.size());
  while (!text.empty()) {
    const Character character = FirstOf(text);
    if (character.valid && !IsObeyed(character.code)) {
      printable.append(text.data(), character.bytes);
    } else if (json || character.code > 0xff) {
      absl::StrAppendFormat(&printable, "\\u%04x", character.code);
    } else {
      absl::StrAppendFormat(&printable, "\\x%02x", character.code);
    }
    text.remove_prefix(character.bytes);
  }
  return printable;
}

}  // namespace

std::string Printable(absl::string_view text) { return Escape(text, /*json=*/false); }

std::string PrintableJson(absl::string_view json) { return Escape(json, /*json=*/true); }

}  // namespace reduced::client

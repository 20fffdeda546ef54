// Integers of several words, two's complement, least significant word first, as the bytes that states have: see
// StateNumber in reduced.proto.
#ifndef REDUCED_SERVER_WIRE_WORD_BYTES_H_
#define REDUCED_SERVER_WIRE_WORD_BYTES_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace reduced::server {

// Without the bytes at the end that only repeat the sign.
inline std::string Encode(std::span<const std::uint64_t> words) {
  static_assert(std::endian::native == std::endian::little);
  std::string bytes(reinterpret_cast<const char*>(words.data()), words.size_bytes());
  const char fill = words.back() >> 63 != 0 ? '\xff' : '\0';
  while (!bytes.empty() && bytes.back() == fill) {
    if (bytes.size() > 1 ? ((bytes[bytes.size() - 2] ^ fill) & 0x80) != 0 : fill != 0) break;
    bytes.pop_back();
  }
  return bytes;
}

// The same back; false: too long for so many words.
inline bool Decode(const std::string& bytes, std::span<std::uint64_t> words) {
  if (bytes.size() > words.size_bytes()) return false;
  const bool negative = !bytes.empty() && (bytes.back() & 0x80) != 0;
  std::fill(words.begin(), words.end(), negative ? ~std::uint64_t{0} : 0);
  std::memcpy(words.data(), bytes.data(), bytes.size());
  return true;
}

// How many bits the integer takes, but for its sign.
inline int BitsOf(std::span<const std::uint64_t> words) {
  const std::uint64_t fill = words.back() >> 63 != 0 ? ~std::uint64_t{0} : 0;
  for (std::size_t i = words.size(); i-- > 0;) {
    if (words[i] != fill) return static_cast<int>(i) * 64 + std::bit_width(words[i] ^ fill);
  }
  return 0;
}

}  // namespace reduced::server

#endif  // REDUCED_SERVER_WIRE_WORD_BYTES_H_

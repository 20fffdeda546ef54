// Integers of several words (two's complement, least significant word first) as the bytes of StateNumber in
// reduced.proto.
#ifndef REDUCED_PROTO_CODEC_WORD_BYTES_H_
#define REDUCED_PROTO_CODEC_WORD_BYTES_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace reduced {

// Encodes the integer without the bytes at its end that only repeat the sign.
inline std::string EncodeWords(std::span<const std::uint64_t> words) {
  static_assert(std::endian::native == std::endian::little);
  std::string bytes(reinterpret_cast<const char*>(words.data()), words.size_bytes());
  const char fill = words.back() >> 63 != 0 ? '\xff' : '\0';
  while (!bytes.empty() && bytes.back() == fill) {
    if (bytes.size() > 1 ? ((bytes[bytes.size() - 2] ^ fill) & 0x80) != 0 : fill != 0) break;
    bytes.pop_back();
  }
  return bytes;
}

// Decodes such bytes. Returns false if they are too many for so many words.
inline bool DecodeWords(const std::string& bytes, std::span<std::uint64_t> words) {
  if (bytes.size() > words.size_bytes()) return false;
  const bool negative = !bytes.empty() && (bytes.back() & 0x80) != 0;
  std::fill(words.begin(), words.end(), negative ? ~std::uint64_t{0} : 0);
  std::memcpy(words.data(), bytes.data(), bytes.size());
  return true;
}

// Returns how many bits the integer takes without its sign.
inline int BitWidth(std::span<const std::uint64_t> words) {
  const std::uint64_t fill = words.back() >> 63 != 0 ? ~std::uint64_t{0} : 0;
  for (std::size_t i = words.size(); i-- > 0;) {
    if (words[i] != fill) return static_cast<int>(i) * 64 + std::bit_width(words[i] ^ fill);
  }
  return 0;
}

}  // namespace reduced

#endif  // REDUCED_PROTO_CODEC_WORD_BYTES_H_

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

// Whether the integer's magnitude is at most `count` times 2^bits.
inline bool IsWithin(std::span<const std::uint64_t> words, std::uint64_t count, int bits) {
  const bool negative = words.back() >> 63 != 0;
  const auto whole = static_cast<std::size_t>(bits / 64);
  const int part = bits % 64;
  std::uint64_t times = 0;  // what is left of the magnitude without its last `bits` bits,
  bool below = false;       // whether any of these is set,
  bool above = false;       // and any that `times` has no room for
  bool carry = negative;    // the magnitude of a negative number is its complement plus 1
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::uint64_t word = negative ? ~words[i] + (carry ? 1 : 0) : words[i];
    carry = carry && words[i] == 0;
    if (i < whole) {
      below = below || word != 0;
    } else if (i == whole) {
      times = word >> part;
      below = below || (part > 0 && word << (64 - part) != 0);
    } else if (i == whole + 1 && part > 0) {
      times |= word << (64 - part);
      above = above || word >> part != 0;
    } else {
      above = above || word != 0;
    }
  }
  return !above && (times < count || (times == count && !below));
}

}  // namespace reduced

#endif  // REDUCED_PROTO_CODEC_WORD_BYTES_H_

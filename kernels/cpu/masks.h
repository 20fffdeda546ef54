// Masks of elements as they lie in memory, and copies of the elements that one keeps.
#ifndef REDUCED_KERNELS_CPU_MASKS_H_
#define REDUCED_KERNELS_CPU_MASKS_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/engine/groups.h"

namespace reduced {

// Copies elements at `indices` of the array. Word: of an element's size.
template <class Word>
void Pick(const std::byte* data, const std::int64_t* indices, std::int64_t count, std::byte* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(out + i * sizeof(Word), data + indices[i] * static_cast<std::int64_t>(sizeof(Word)), sizeof(Word));
  }
}

// Copies those of neighbouring elements that are kept; returns how many. `out` has room for all.
template <class Word>
std::int64_t Keep(const std::byte* data, const std::uint8_t* kept, std::int64_t count, std::byte* out) {
  std::int64_t n = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(out + n * sizeof(Word), data + i * sizeof(Word), sizeof(Word));
    n += kept[i] != 0;
  }
  return n;
}

// By the size of an element.
struct Moves {
  void (*pick)(const std::byte* data, const std::int64_t* indices, std::int64_t count, std::byte* out);
  std::int64_t (*keep)(const std::byte* data, const std::uint8_t* kept, std::int64_t count, std::byte* out);
};
inline Moves MovesOf(std::int64_t width) {
  switch (width) {
    case 1:
      return {&Pick<std::uint8_t>, &Keep<std::uint8_t>};
    case 2:
      return {&Pick<std::uint16_t>, &Keep<std::uint16_t>};
    case 4:
      return {&Pick<std::uint32_t>, &Keep<std::uint32_t>};
    default:
      return {&Pick<std::uint64_t>, &Keep<std::uint64_t>};
  }
}

// A mask in memory. Others may change it meanwhile.
class MaskView {
 public:
  MaskView() = default;
  MaskView(const Mask& mask, const std::byte* data)
      : data_(reinterpret_cast<const std::uint8_t*>(data)), bits_(mask.bits), first_bit_(mask.first_bit) {}

  explicit operator bool() const { return data_ != nullptr; }

  bool Keeps(std::int64_t index) const {
    if (!bits_) return data_[index] != 0;
    const std::int64_t bit = first_bit_ + index;
    return (data_[bit / 8] >> (bit % 8) & 1) != 0;
  }

  // How many of the elements from `index` on are kept.
  std::int64_t Count(std::int64_t index, std::int64_t count) const {
    std::int64_t kept = 0;
    if (!bits_) {
      for (std::int64_t i = 0; i < count; ++i) kept += data_[index + i] != 0;
      return kept;
    }
    std::int64_t i = 0;
    for (; i < count && (first_bit_ + index + i) % 8 != 0; ++i) kept += Keeps(index + i);
    for (; i + 64 <= count; i += 64) {
      std::uint64_t word;
      std::memcpy(&word, data_ + (first_bit_ + index + i) / 8, sizeof(word));
      kept += std::popcount(word);
    }
    for (; i < count; ++i) kept += Keeps(index + i);
    return kept;
  }

  // The mask of neighbouring elements, a byte each; in `room`, which has as many bytes, if it isn't there already.
  const std::uint8_t* Bytes(std::int64_t index, std::int64_t count, std::uint8_t* room) const {
    if (!bits_) return data_ + index;
    std::int64_t i = 0;
    for (; i < count && (first_bit_ + index + i) % 8 != 0; ++i) room[i] = Keeps(index + i);
    for (; i + 8 <= count; i += 8) {
      // Bit j of the byte, in byte j of a word.
      const std::uint64_t spread =
          data_[(first_bit_ + index + i) / 8] * std::uint64_t{0x0101010101010101} & 0x8040201008040201;
      std::memcpy(room + i, &spread, sizeof(spread));
    }
    for (; i < count; ++i) room[i] = Keeps(index + i);
    return room;
  }

 private:
  const std::uint8_t* data_ = nullptr;
  bool bits_ = false;
  std::int64_t first_bit_ = 0;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_MASKS_H_

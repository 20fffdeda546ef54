// Rows of a few elements transposed, once for each vector target: no include guard but Highway's.
#if defined(REDUCED_KERNELS_CPU_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REDUCED_KERNELS_CPU_TRANSPOSE_INL_H_
#undef REDUCED_KERNELS_CPU_TRANSPOSE_INL_H_
#else
#define REDUCED_KERNELS_CPU_TRANSPOSE_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace reduced {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// Rows that are transposed together.
constexpr std::int64_t kAcross = 16;

// An unsigned integer of an element's size.
template <class T>
using WordOf = std::conditional_t<sizeof(T) == 1, std::uint8_t,
                                  std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                                     std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>>;

// A vector whose blocks of 16 bytes are those at p, p + stride, ...
template <class D>
HWY_INLINE hn::Vec<D> LoadBlocks(D d, const std::byte* p, std::int64_t stride) {
  constexpr std::int64_t kBlocks = hn::MaxLanes(D()) * sizeof(hn::TFromD<D>) / 16;
  if constexpr (kBlocks == 1) {
    return hn::LoadU(d, reinterpret_cast<const hn::TFromD<D>*>(p));
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, LoadBlocks(half, p + kBlocks / 2 * stride, stride), LoadBlocks(half, p, stride));
  }
}

// Whether as many rows as are transposed together, of at least a byte each, follow those from row g on.
HWY_INLINE bool MayReadOn(std::int64_t g, std::int64_t count) { return g + 2 * kAcross <= count; }

// Writes element i of row r, of kAcross rows of at least one element each that lie one after the other, to
// out[i * kAcross + r]. `more`: the 16 bytes after the last row may be read.
template <class Word>
HWY_INLINE void TransposeRows(const std::byte* rows, std::int64_t elements, bool more, Word* out) {
  using D = hn::CappedTag<Word, kAcross>;
  constexpr D kTag;
  constexpr std::int64_t kLanes = hn::MaxLanes(D());
  constexpr std::int64_t kPiece = 16 / sizeof(Word);  // elements of a row in a block of a vector
  const std::int64_t row = elements * static_cast<std::int64_t>(sizeof(Word));
  std::byte padded[kAcross * 16 + 16];
  const std::byte* from = rows;
  if (elements < kPiece && !more) {  // what is read of the last row lies beyond it
    std::memset(padded + kAcross * row, 0, 16);
    std::memcpy(padded, rows, static_cast<std::size_t>(kAcross * row));
    from = padded;
  }
  const std::int64_t last = std::max<std::int64_t>(elements - kPiece, 0);
  for (std::int64_t i = 0;; i = std::min(i + kPiece, last)) {
    const std::int64_t have = std::min(kPiece, elements);
    for (std::int64_t r = 0; r < kAcross; r += kLanes) {
      // Block b of vector k has the elements from i on of row r + b x kPiece + k.
      hn::Vec<D> v[kPiece];
      for (std::int64_t k = 0; k < kPiece; ++k) {
        v[k] = LoadBlocks(kTag, from + (r + k) * row + i * static_cast<std::int64_t>(sizeof(Word)), kPiece * row);
      }
      // Each turn rotates the bits of (vector, lane of a block) by one: in the end they have changed places.
      for (std::int64_t turn = 1; turn < kPiece; turn *= 2) {
        hn::Vec<D> next[kPiece];
        for (std::int64_t k = 0; k < kPiece / 2; ++k) {
          next[2 * k] = hn::InterleaveLower(kTag, v[k], v[k + kPiece / 2]);
          next[2 * k + 1] = hn::InterleaveUpper(kTag, v[k], v[k + kPiece / 2]);
        }
        for (std::int64_t k = 0; k < kPiece; ++k) v[k] = next[k];
      }
      for (std::int64_t k = 0; k < have; ++k) hn::StoreU(v[k], kTag, out + (i + k) * kAcross + r);
    }
    if (i == last) return;
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace reduced
HWY_AFTER_NAMESPACE();

#endif  // include guard

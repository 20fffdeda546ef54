// The smallest and largest element of a tile that a thread holds in registers, two or more elements to an instruction
// where they are narrow.
#ifndef REDUCED_KERNELS_CUDA_TILE_EXTREMA_CUH_
#define REDUCED_KERNELS_CUDA_TILE_EXTREMA_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>

#include "kernels/algebra/accumulator.h"
#include "kernels/cuda/vector16.cuh"

namespace reduced {

template <class T>
struct TileExtrema {
  typename OrderKey<T>::Type min_key;  // meaningless if there is a NaN
  typename OrderKey<T>::Type max_key;
  bool has_nan = false;
};

// min and max of two pairs of 16-bit integers. PTX has them as one instruction from sm_90 on.
template <bool kSigned>
__device__ inline unsigned Min2(unsigned a, unsigned b) {
#if __CUDA_ARCH__ >= 900
  unsigned result;
  if constexpr (kSigned) {
    asm("min.s16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  } else {
    asm("min.u16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  }
  return result;
#else
  return kSigned ? __vmins2(a, b) : __vminu2(a, b);
#endif
}
template <bool kSigned>
__device__ inline unsigned Max2(unsigned a, unsigned b) {
#if __CUDA_ARCH__ >= 900
  unsigned result;
  if constexpr (kSigned) {
    asm("max.s16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  } else {
    asm("max.u16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  }
  return result;
#else
  return kSigned ? __vmaxs2(a, b) : __vmaxu2(a, b);
#endif
}

// 8- and 16-bit integers and bool, in pairs of 16 bits. Bytes are compared as the upper halves of such pairs: the odd
// ones where they stand, the even ones shifted up. What stands below only decides between equal bytes.
template <class T, int kVectors>
__device__ inline TileExtrema<T> ExtremaOfNarrow(const Vector16<T> (&tile)[kVectors]) {
  constexpr bool kSigned = kIsSigned<T>;
  unsigned lowest = kSigned ? 0x7fff7fffu : 0xffffffffu;
  unsigned highest = ~lowest;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
#pragma unroll
    for (unsigned word : tile[v].Words().word) {
      if constexpr (std::is_same_v<T, Bool>) word = __vsetne4(word, 0u);
      lowest = Min2<kSigned>(lowest, word);
      highest = Max2<kSigned>(highest, word);
      if constexpr (sizeof(T) == 1) {
        lowest = Min2<kSigned>(lowest, word << 8);
        highest = Max2<kSigned>(highest, word << 8);
      }
    }
  }
  lowest = Min2<kSigned>(lowest, lowest >> 16);
  highest = Max2<kSigned>(highest, highest >> 16);
  using Half16 = std::conditional_t<kSigned, std::int16_t, std::uint16_t>;
  constexpr int kBelow = 16 - 8 * static_cast<int>(sizeof(T));
  using Key = typename OrderKey<T>::Type;
  return {static_cast<Key>(static_cast<Half16>(lowest) >> kBelow),
          static_cast<Key>(static_cast<Half16>(highest) >> kBelow), false};
}

// Two f16 or bf16 elements as the type that CUDA's paired instructions take.
template <class T>
using PairOf = std::conditional_t<std::is_same_v<T, Half>, __half2, __nv_bfloat162>;

template <class Pair>
__device__ inline Pair PairFromWord(unsigned word) {
  Pair pair;
  memcpy(&pair, &word, sizeof(pair));
  return pair;
}

// f16 and bf16, in pairs, by the instructions that put -0 below +0 and return NaN if there is one.
template <class T, int kVectors>
__device__ inline TileExtrema<T> ExtremaOfHalves(const Vector16<T> (&tile)[kVectors]) {
  using Pair = PairOf<T>;
  Pair lowest = PairFromWord<Pair>(tile[0].Words().word[0]);
  Pair highest = lowest;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
#pragma unroll
    for (const unsigned word : tile[v].Words().word) {
      lowest = __hmin2_nan(lowest, PairFromWord<Pair>(word));
      highest = __hmax2_nan(highest, PairFromWord<Pair>(word));
    }
  }
  T low[2];
  T high[2];
  memcpy(low, &lowest, sizeof(low));
  memcpy(high, &highest, sizeof(high));
  const auto low0 = OrderKey<T>::Of(low[0]);
  const auto low1 = OrderKey<T>::Of(low[1]);
  const auto high0 = OrderKey<T>::Of(high[0]);
  const auto high1 = OrderKey<T>::Of(high[1]);
  return {low0 < low1 ? low0 : low1, high0 > high1 ? high0 : high1, IsNan(low[0]) || IsNan(low[1])};
}

__device__ inline float MinNan(float a, float b) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
__device__ inline float MaxNan(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

template <int kVectors>
__device__ inline TileExtrema<float> ExtremaOfFloats(const Vector16<float> (&tile)[kVectors]) {
  float lowest = tile[0].element[0];
  float highest = lowest;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
#pragma unroll
    for (const float x : tile[v].element) {
      lowest = MinNan(lowest, x);
      highest = MaxNan(highest, x);
    }
  }
  return {OrderKey<float>::Of(lowest), OrderKey<float>::Of(highest), IsNan(lowest)};
}

// The rest by their keys. A NaN's key lies beyond those of the infinities.
template <class T, int kVectors>
__device__ inline TileExtrema<T> ExtremaByKey(const Vector16<T> (&tile)[kVectors]) {
  using Key = typename OrderKey<T>::Type;
  Key lowest = OrderKey<T>::Of(tile[0].element[0]);
  Key highest = lowest;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
#pragma unroll
    for (const T x : tile[v].element) {
      const Key key = OrderKey<T>::Of(x);
      lowest = key < lowest ? key : lowest;
      highest = key > highest ? key : highest;
    }
  }
  bool has_nan = false;
  if constexpr (kIsFloat<T>) {
    has_nan = lowest < OrderKey<T>::Of(-std::numeric_limits<T>::infinity()) ||
              highest > OrderKey<T>::Of(std::numeric_limits<T>::infinity());
  }
  return {lowest, highest, has_nan};
}

template <class T, int kVectors>
__device__ inline TileExtrema<T> ExtremaOfTile(const Vector16<T> (&tile)[kVectors]) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return ExtremaOfHalves(tile);
  } else if constexpr (std::is_same_v<T, float>) {
    return ExtremaOfFloats(tile);
  } else if constexpr (sizeof(T) < 4) {
    return ExtremaOfNarrow(tile);
  } else {
    return ExtremaByKey(tile);
  }
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_TILE_EXTREMA_CUH_

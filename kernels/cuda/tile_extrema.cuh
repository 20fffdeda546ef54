// The smallest and largest element of a tile that a thread holds in registers, two or more elements to an instruction
// where they are narrow.
#ifndef REDUCED_KERNELS_CUDA_TILE_EXTREMA_CUH_
#define REDUCED_KERNELS_CUDA_TILE_EXTREMA_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/algebra/accumulator.h"
#include "kernels/cuda/vector16.cuh"

namespace reduced {

template <class T>
struct TileExtrema {
  typename OrderKey<T>::Type
      min_key;  // meaningless if there is a NaN, unless NaNs are left out, and if there is nothing
  typename OrderKey<T>::Type max_key;
  bool has_nan = false;
  bool has_number = true;  // something that isn't NaN
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
          static_cast<Key>(static_cast<Half16>(highest) >> kBelow)};
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

// The extrema by key of `count` values, some of which may be NaN.
template <class T, int kCount>
__device__ inline TileExtrema<T> ExtremaOfSome(const T (&low)[kCount], const T (&high)[kCount]) {
  using Key = typename OrderKey<T>::Type;
  TileExtrema<T> extrema{std::numeric_limits<Key>::max(), std::numeric_limits<Key>::min(), false, false};
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (IsNan(low[i])) {
      extrema.has_nan = true;
      continue;
    }
    extrema.has_number = true;
    const Key low_key = OrderKey<T>::Of(low[i]);
    const Key high_key = OrderKey<T>::Of(high[i]);
    if (low_key < extrema.min_key) extrema.min_key = low_key;
    if (high_key > extrema.max_key) extrema.max_key = high_key;
  }
  return extrema;
}

// f16 and bf16, in pairs, by the instructions that put -0 below +0. Those that return NaN if there is one tell of it;
// the others, which return the number, are taken if there is.
template <class T, int kVectors>
__device__ inline TileExtrema<T> ExtremaOfHalves(const Vector16<T> (&tile)[kVectors], bool omit_nan) {
  using Pair = PairOf<T>;
  const auto extrema_by = [](const auto& tile, auto least, auto largest) {
    Pair lowest = PairFromWord<Pair>(tile[0].Words().word[0]);
    Pair highest = lowest;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (const unsigned word : tile[v].Words().word) {
        lowest = least(lowest, PairFromWord<Pair>(word));
        highest = largest(highest, PairFromWord<Pair>(word));
      }
    }
    T low[2];
    T high[2];
    memcpy(low, &lowest, sizeof(low));
    memcpy(high, &highest, sizeof(high));
    return ExtremaOfSome(low, high);
  };
  TileExtrema<T> extrema = extrema_by(
      tile, [](Pair a, Pair b) { return __hmin2_nan(a, b); }, [](Pair a, Pair b) { return __hmax2_nan(a, b); });
  if (omit_nan && extrema.has_nan) {
    extrema = Again(tile, [&](const auto& again) {
      return extrema_by(
          again, [](Pair a, Pair b) { return __hmin2(a, b); }, [](Pair a, Pair b) { return __hmax2(a, b); });
    });
    extrema.has_nan = true;
  }
  return extrema;
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
__device__ inline TileExtrema<float> ExtremaOfFloats(const Vector16<float> (&tile)[kVectors], bool omit_nan) {
  const auto extrema_by = [](const auto& tile, auto least, auto largest) {
    float low[1] = {tile[0].element[0]};
    float high[1] = {low[0]};
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (const float x : tile[v].element) {
        low[0] = least(low[0], x);
        high[0] = largest(high[0], x);
      }
    }
    return ExtremaOfSome(low, high);
  };
  TileExtrema<float> extrema = extrema_by(tile, MinNan, MaxNan);
  if (omit_nan && extrema.has_nan) {
    extrema = Again(tile, [&](const auto& again) {
      return extrema_by(
          again, [](float a, float b) { return fminf(a, b); }, [](float a, float b) { return fmaxf(a, b); });
    });
    extrema.has_nan = true;
  }
  return extrema;
}

// The rest by their keys. A NaN's key lies beyond those of the infinities.
template <class T, int kVectors>
__device__ inline TileExtrema<T> ExtremaByKey(const Vector16<T> (&tile)[kVectors], bool omit_nan) {
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
    has_nan = lowest < OrderKey<T>::Of(-std::numeric_limits<T>::infinity()) || highest > kInfinityKey<T>;
    if (omit_nan && has_nan) {
      return Again(tile, [](const auto& again) {
        constexpr int kElements = Vector16<T>::kElements;
        T elements[kVectors * kElements];
#pragma unroll
        for (int i = 0; i < kVectors * kElements; ++i) elements[i] = again[i / kElements].element[i % kElements];
        return ExtremaOfSome(elements, elements);
      });
    }
  }
  return {lowest, highest, has_nan};
}

template <class T, int kVectors>
__device__ inline TileExtrema<T> ExtremaOfTile(const Vector16<T> (&tile)[kVectors], bool omit_nan) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return ExtremaOfHalves(tile, omit_nan);
  } else if constexpr (std::is_same_v<T, float>) {
    return ExtremaOfFloats(tile, omit_nan);
  } else if constexpr (sizeof(T) < 4) {
    return ExtremaOfNarrow(tile);
  } else {
    return ExtremaByKey(tile, omit_nan);
  }
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_TILE_EXTREMA_CUH_

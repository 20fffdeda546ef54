// Element types. One row of REDUCED_DTYPES is all that defines one: its enumerator (the number is the one of the proto
// enum), its name on the wire and the command line, and the C++ type that has its size, alignment and bits.
//
// All types are little-endian and naturally aligned in size; arrays of them may start at any byte address.
#ifndef REDUCED_KERNELS_ALGEBRA_DTYPE_H_
#define REDUCED_KERNELS_ALGEBRA_DTYPE_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include "kernels/algebra/portable.h"
#ifdef __CUDACC__
#include <cuda_fp16.h>
#endif

namespace reduced {

// A boolean of one byte; any non-zero byte is true.
struct Bool {
  std::uint8_t byte;
};

// IEEE 754 binary16, as bits.
struct Half {
  std::uint16_t bits;
};

// bfloat16: the upper half of an IEEE 754 binary32, as bits.
struct BFloat16 {
  std::uint16_t bits;
};

// Floats of 8 bits, as bits: two of the OCP 8-bit Floating Point Specification (OFP8), of which E4M3 has no infinities,
// and one NaN of either sign; and the scales of the OCP Microscaling Formats (MX), 2^(bits - 127), of which the last is
// NaN, and none is zero or negative.
struct F8E4M3 {
  std::uint8_t bits;
};
struct F8E5M2 {
  std::uint8_t bits;
};
struct F8E8M0 {
  std::uint8_t bits;
};

// X(enumerator, number, name, C++ type): those that GPUs have kernels for. They count the bytes of the others.
#define REDUCED_DEVICE_DTYPES(X)   \
  X(kBool, 1, "bool", Bool)        \
  X(kI8, 2, "i8", std::int8_t)     \
  X(kI16, 3, "i16", std::int16_t)  \
  X(kI32, 4, "i32", std::int32_t)  \
  X(kI64, 5, "i64", std::int64_t)  \
  X(kU8, 6, "u8", std::uint8_t)    \
  X(kU16, 7, "u16", std::uint16_t) \
  X(kU32, 8, "u32", std::uint32_t) \
  X(kU64, 9, "u64", std::uint64_t) \
  X(kF16, 10, "f16", Half)         \
  X(kBF16, 11, "bf16", BFloat16)   \
  X(kF32, 12, "f32", float)        \
  X(kF64, 13, "f64", double)
#define REDUCED_DTYPES(X)             \
  REDUCED_DEVICE_DTYPES(X)            \
  X(kF8E4M3, 14, "f8_e4m3fn", F8E4M3) \
  X(kF8E5M2, 15, "f8_e5m2", F8E5M2)   \
  X(kF8E8M0, 16, "f8_e8m0fnu", F8E8M0)

enum class DType : std::uint8_t {
#define REDUCED_X(enumerator, number, name, type) enumerator = number,
  REDUCED_DTYPES(REDUCED_X)
#undef REDUCED_X
};

struct DTypeRow {
  DType dtype;
  std::string_view name;
  int bytes;
  bool is_float;
  bool is_signed;
};

template <class T>
inline constexpr bool kIsF8 = std::is_same_v<T, F8E4M3> || std::is_same_v<T, F8E5M2> || std::is_same_v<T, F8E8M0>;

template <class T>
inline constexpr bool kIsFloat =
    std::is_floating_point_v<T> || std::is_same_v<T, Half> || std::is_same_v<T, BFloat16> || kIsF8<T>;

template <class T>
inline constexpr bool kIsSigned = kIsFloat<T> || std::is_signed_v<T>;

inline constexpr DTypeRow kDTypes[] = {
#define REDUCED_X(enumerator, number, name, type) \
  {DType::enumerator, name, sizeof(type), kIsFloat<type>, kIsSigned<type>},
    REDUCED_DTYPES(REDUCED_X)
#undef REDUCED_X
};

// The row of a valid dtype.
constexpr const DTypeRow& RowOf(DType dtype) { return kDTypes[static_cast<int>(dtype) - 1]; }

// The dtype called `name`, or nothing.
constexpr std::optional<DType> DTypeFromName(std::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

// The dtype with that number, or nothing.
constexpr std::optional<DType> DTypeFromNumber(int number) {
  for (const DTypeRow& row : kDTypes) {
    if (static_cast<int>(row.dtype) == number) return row.dtype;
  }
  return std::nullopt;
}

template <class T>
struct DTypeOfImpl;
#define REDUCED_X(enumerator, number, name, type)      \
  template <>                                          \
  struct DTypeOfImpl<type> {                           \
    static constexpr DType kValue = DType::enumerator; \
  };
REDUCED_DTYPES(REDUCED_X)
#undef REDUCED_X

template <class T>
inline constexpr DType kDTypeOf = DTypeOfImpl<T>::kValue;

// Whether engines of GPUs have kernels for the dtype.
constexpr bool HasKernels(DType dtype) { return dtype <= DType::kF64; }

// Calls visit(std::type_identity<T>{}) for the C++ type of `dtype` and returns what it returns. In .cu files `dtype` is
// one that has kernels, so that none are compiled for others.
#ifdef __CUDACC__
#define REDUCED_VISITED_DTYPES REDUCED_DEVICE_DTYPES
#else
#define REDUCED_VISITED_DTYPES REDUCED_DTYPES
#endif
template <class Visitor>
constexpr decltype(auto) VisitDType(DType dtype, Visitor&& visit) {
  switch (dtype) {
#define REDUCED_X(enumerator, number, name, type) \
  case DType::enumerator:                         \
    return visit(std::type_identity<type>{});
    REDUCED_VISITED_DTYPES(REDUCED_X)
#undef REDUCED_X
    default:
      __builtin_unreachable();
  }
}

// The value of a float element as a double: exact.
REDUCED_HD double ToDouble(float x) { return x; }
REDUCED_HD double ToDouble(double x) { return x; }
REDUCED_HD double ToDouble(BFloat16 x) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(static_cast<unsigned>(x.bits) << 16);
#else
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
#endif
}
REDUCED_HD double ToDouble(Half x) {
#ifdef __CUDA_ARCH__
  return __half2float(__ushort_as_half(x.bits));
#else
  const std::uint64_t sign = static_cast<std::uint64_t>(x.bits & 0x8000u) << 48;
  const std::uint64_t exponent = (x.bits >> 10) & 0x1fu;
  const std::uint64_t fraction = x.bits & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: fraction x 2^-24
    const double magnitude = static_cast<double>(fraction) * 0x1p-24;
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint64_t wide = exponent == 0x1f ? 0x7ffu : exponent + (1023 - 15);
  return std::bit_cast<double>(sign | (wide << 52) | (fraction << 42));
#endif
}
REDUCED_HD double ToDouble(F8E5M2 x) { return ToDouble(Half{static_cast<std::uint16_t>(x.bits << 8)}); }
REDUCED_HD double ToDouble(F8E4M3 x) {
  const int magnitude = x.bits & 0x7f;
  if (magnitude == 0x7f) return ToDouble(Half{0x7e00});
  // A Half has 8 more in its exponents' bias, and as many more bits of fraction as it has fewer of exponent.
  return ToDouble(Half{static_cast<std::uint16_t>((x.bits & 0x80) << 8 | magnitude << 7)}) * 0x1p8;
}
REDUCED_HD double ToDouble(F8E8M0 x) {
  if (x.bits == 0xff) return ToDouble(Half{0x7e00});
  return x.bits == 0 ? 0x1p-127 : ToDouble(BFloat16{static_cast<std::uint16_t>(x.bits << 7)});
}

REDUCED_HD bool IsNan(float x) { return x != x; }
REDUCED_HD bool IsNan(double x) { return x != x; }
REDUCED_HD bool IsNan(Half x) { return (x.bits & 0x7fffu) > 0x7c00u; }
REDUCED_HD bool IsNan(BFloat16 x) { return (x.bits & 0x7fffu) > 0x7f80u; }
REDUCED_HD bool IsNan(F8E4M3 x) { return (x.bits & 0x7fu) == 0x7fu; }
REDUCED_HD bool IsNan(F8E5M2 x) { return (x.bits & 0x7fu) > 0x7cu; }
REDUCED_HD bool IsNan(F8E8M0 x) { return x.bits == 0xffu; }
template <class T>
requires(!kIsFloat<T>) REDUCED_HD bool IsNan(T) { return false; }

// True for every element but infinities and NaNs.
REDUCED_HD bool IsFinite(float x) { return x - x == 0; }
REDUCED_HD bool IsFinite(double x) { return x - x == 0; }
REDUCED_HD bool IsFinite(Half x) { return (x.bits & 0x7fffu) < 0x7c00u; }
REDUCED_HD bool IsFinite(BFloat16 x) { return (x.bits & 0x7fffu) < 0x7f80u; }
REDUCED_HD bool IsFinite(F8E4M3 x) { return !IsNan(x); }
REDUCED_HD bool IsFinite(F8E5M2 x) { return (x.bits & 0x7fu) < 0x7cu; }
REDUCED_HD bool IsFinite(F8E8M0 x) { return !IsNan(x); }
template <class T>
requires(!kIsFloat<T>) REDUCED_HD bool IsFinite(T) { return true; }

// True for every element but zero (of either sign); NaN is non-zero.
REDUCED_HD bool IsNonzero(Bool x) { return x.byte != 0; }
REDUCED_HD bool IsNonzero(Half x) { return (x.bits & 0x7fffu) != 0; }
REDUCED_HD bool IsNonzero(BFloat16 x) { return (x.bits & 0x7fffu) != 0; }
REDUCED_HD bool IsNonzero(F8E4M3 x) { return (x.bits & 0x7fu) != 0; }
REDUCED_HD bool IsNonzero(F8E5M2 x) { return (x.bits & 0x7fu) != 0; }
REDUCED_HD bool IsNonzero(F8E8M0) { return true; }
template <class T>
requires std::is_arithmetic_v<T> REDUCED_HD bool IsNonzero(T x) { return x != 0; }

// The value of an integer or bool element, as the C++ integer that holds it.
REDUCED_HD std::uint8_t ToInteger(Bool x) { return x.byte != 0 ? 1 : 0; }
template <class T>
requires std::is_integral_v<T> REDUCED_HD T ToInteger(T x) { return x; }

}  // namespace reduced

#endif  // REDUCED_KERNELS_ALGEBRA_DTYPE_H_

#include "tests/support/data.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <random>
#include <type_traits>

namespace reduced::test {
namespace {

using Random = std::mt19937_64;

// In [-1, 1).
double Uniform(Random& random) { return std::ldexp(static_cast<double>(static_cast<std::int64_t>(random())), -63); }

// `x`, not NaN, as a T: towards zero, numbers beyond T's range to its bounds, and infinities, too, if T has none. A
// type without signs has the magnitude, or its least number.
template <class T>
T Convert(double x) {
  if constexpr (kIsF8<T>) {
    constexpr bool kSigned = !std::is_same_v<T, F8E8M0>;
    static const std::vector<double> kNumbers = [] {  // of bits without a sign; they ascend as the bits do
      std::vector<double> numbers;
      for (int bits = 0; bits < (kSigned ? 128 : 256); ++bits) {
        const T each{static_cast<std::uint8_t>(bits)};
        if (!IsNan(each)) numbers.push_back(ToDouble(each));
      }
      return numbers;
    }();
    const auto larger = std::upper_bound(kNumbers.begin() + 1, kNumbers.end(), std::fabs(x));
    T nearest{static_cast<std::uint8_t>(larger - kNumbers.begin() - 1)};
    if (kSigned && std::signbit(x)) nearest.bits |= 0x80;
    return nearest;
  } else if constexpr (std::is_same_v<T, Bool>) {
    return Bool{static_cast<std::uint8_t>(x != 0 ? 1 : 0)};
  } else if constexpr (std::is_integral_v<T>) {
    if (x >= std::ldexp(1.0, std::numeric_limits<T>::digits)) return std::numeric_limits<T>::max();
    if (x <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
    return static_cast<T>(x);
  } else if constexpr (std::is_same_v<T, double>) {
    return x;
  } else if constexpr (std::is_same_v<T, Half>) {
    const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
    const double magnitude = std::fabs(x);
    if (std::isinf(x)) return Half{static_cast<std::uint16_t>(sign | 0x7c00)};
    if (magnitude >= 65504) return Half{static_cast<std::uint16_t>(sign | 0x7bff)};
    const int exponent = magnitude == 0 ? -14 : std::max(std::ilogb(magnitude), -14);
    const auto steps = static_cast<int>(std::ldexp(magnitude, 10 - exponent));  // with the leading one, if there is one
    return Half{static_cast<std::uint16_t>(sign | (((exponent + 14) << 10) + steps))};
  } else {
    constexpr double kLargest = std::numeric_limits<float>::max();
    const auto single = static_cast<float>(std::isinf(x) ? x : std::clamp(x, -kLargest, kLargest));
    if constexpr (std::is_same_v<T, float>) {
      return single;
    } else {
      return BFloat16{static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(single) >> 16)};
    }
  }
}

// The bits of a float format.
template <class T>
struct Format;
template <>
struct Format<Half> {
  using Bits = std::uint16_t;
  static constexpr int kFraction = 10;
};
template <>
struct Format<BFloat16> {
  using Bits = std::uint16_t;
  static constexpr int kFraction = 7;
};
template <>
struct Format<float> {
  using Bits = std::uint32_t;
  static constexpr int kFraction = 23;
};
template <>
struct Format<double> {
  using Bits = std::uint64_t;
  static constexpr int kFraction = 52;
};

template <>
struct Format<F8E5M2> {
  using Bits = std::uint8_t;
  static constexpr int kFraction = 2;
};
// No exponent is special: the NaNs have all bits.
template <>
struct Format<F8E4M3> {
  using Bits = std::uint8_t;
  static constexpr int kFraction = 3;
};
template <>
struct Format<F8E8M0> {
  using Bits = std::uint8_t;
  static constexpr int kFraction = 0;
};

template <class T>
constexpr auto kFractionMask = static_cast<typename Format<T>::Bits>((std::uint64_t{1} << Format<T>::kFraction) - 1);
template <class T>
constexpr auto kExponentMask = static_cast<typename Format<T>::Bits>(
    (std::numeric_limits<typename Format<T>::Bits>::max() >> 1) & ~kFractionMask<T>);

template <class T>
T RandomNan(Random& random) {
  using Bits = typename Format<T>::Bits;
  if constexpr (std::is_same_v<T, F8E4M3>) return T{static_cast<Bits>(random() | 0x7f)};
  if constexpr (std::is_same_v<T, F8E8M0>) return T{0xff};
  auto bits = static_cast<Bits>(random()) | kExponentMask<T>;
  if ((bits & kFractionMask<T>) == 0) bits |= 1;
  return std::bit_cast<T>(static_cast<Bits>(bits));
}

template <class T>
T RandomDenormal(Random& random) {
  using Bits = typename Format<T>::Bits;
  if constexpr (std::is_same_v<T, F8E8M0>) return T{static_cast<Bits>(random() % 3)};  // next to the least number
  return std::bit_cast<T>(static_cast<Bits>(static_cast<Bits>(random()) & static_cast<Bits>(~kExponentMask<T>)));
}

template <class T>
T AnyFinite(Random& random) {
  if constexpr (kIsFloat<T>) {
    using Bits = typename Format<T>::Bits;
    auto bits = static_cast<Bits>(random());
    if constexpr (kIsF8<T>) return IsFinite(T{bits}) ? T{bits} : T{static_cast<Bits>(bits - 4)};
    if ((bits & kExponentMask<T>) == kExponentMask<T>) bits ^= Bits{1} << Format<T>::kFraction;
    return std::bit_cast<T>(bits);
  } else {
    return std::bit_cast<T>(
        static_cast<std::make_unsigned_t<std::conditional_t<std::is_integral_v<T>, T, char>>>(random()));
  }
}

// The largest finite value.
template <class T>
constexpr double Largest() {
  if constexpr (std::is_same_v<T, Bool>) return 1;
  if constexpr (std::is_same_v<T, Half>) return 65504;
  if constexpr (std::is_same_v<T, BFloat16>) return 0x1.fep127;
  if constexpr (std::is_same_v<T, F8E4M3>) return 448;
  if constexpr (std::is_same_v<T, F8E5M2>) return 57344;
  if constexpr (std::is_same_v<T, F8E8M0>) return 0x1p127;
  if constexpr (std::is_arithmetic_v<T>) return static_cast<double>(std::numeric_limits<T>::max());
}

template <class T>
T FloatElement(DataKind kind, std::uint64_t seed, Random& random) {
  switch (kind) {
    case DataKind::kSomeNan:
      return random() % 8 == 0 ? RandomNan<T>(random) : Convert<T>(Uniform(random));
    case DataKind::kInfinities: {
      const double infinity = std::numeric_limits<double>::infinity();
      if (random() % 64 != 0) return Convert<T>(Uniform(random));
      return Convert<T>(seed % 2 == 0 && random() % 2 == 0 ? -infinity : infinity);
    }
    case DataKind::kSignedZeros:
      if (random() % 64 == 0) return Convert<T>(Uniform(random));
      return Convert<T>(random() % 2 == 0 ? -0.0 : 0.0);
    case DataKind::kDenormals:
      return RandomDenormal<T>(random);
    default:
      return RandomNan<T>(random);  // kAllNan
  }
}

template <class T>
T MakeElement(DataKind kind, std::int64_t i, std::int64_t count, std::uint64_t seed, Random& random) {
  constexpr double kLargest = Largest<T>();
  const double coin = static_cast<double>(random() % 2);
  const double side = kIsSigned<T> && coin == 0 ? -1 : 1;
  switch (kind) {
    case DataKind::kUniform:
      if constexpr (std::is_integral_v<T>) return static_cast<T>(AnyFinite<T>(random) >> (4 * sizeof(T)));
      return Convert<T>(kIsFloat<T> ? Uniform(random) : coin);
    case DataKind::kFull:
      return AnyFinite<T>(random);
    case DataKind::kSmall:
      return Convert<T>(kIsSigned<T> ? static_cast<double>(random() % 5) - 2 : static_cast<double>(random() % 4));
    case DataKind::kFactors:
      return Convert<T>(seed % 2 == 0 && i % (count / 60 + 1) == 0 ? 2 * side : side);
    case DataKind::kLarge:
      return Convert<T>((kIsSigned<T> && seed % 2 != 0 ? -1 : 1) * (kLargest - kLargest / 4 * coin));
    case DataKind::kEqual:
      return Convert<T>(kIsFloat<T> ? 0.1 : kIsSigned<T> ? -7 : 7);
    case DataKind::kAscending:
      return Convert<T>(static_cast<double>(i) / 4 - (kIsSigned<T> ? 25 : 0));
    case DataKind::kDescending:
      return Convert<T>(static_cast<double>(count - 1 - i) / 4 - (kIsSigned<T> ? 25 : 0));
    case DataKind::kOutlier:
      if (i == 0) return Convert<T>(std::min(1e6, kLargest));
      return Convert<T>(kIsFloat<T> ? Uniform(random) * 1e-3 : coin);
    case DataKind::kFarFromZero:
      if constexpr (std::is_same_v<T, double>) return 1e9 + 1e-3 * Uniform(random);
      return Convert<T>(kIsFloat<T> ? 1000 + Uniform(random) : kLargest - kLargest / 64 * coin);
    default:
      if constexpr (kIsFloat<T>) return FloatElement<T>(kind, seed, random);
      return T{};
  }
}

// Aborts with what went wrong: the tests can do nothing without memory.
void Require(bool ok, const char* what) {
  if (ok) return;
  std::perror(what);
  std::abort();
}

}  // namespace

Bytes MakeData(DataKind kind, DType dtype, std::int64_t count, std::uint64_t seed) {
  Random random(seed * 1000003 + static_cast<std::uint64_t>(kind) * 101 + static_cast<std::uint64_t>(dtype));
  return VisitDType(dtype, [&]<class T>(std::type_identity<T>) {
    Bytes bytes(static_cast<std::size_t>(count) * sizeof(T));
    for (std::int64_t i = 0; i < count; ++i) {
      const T x = MakeElement<T>(kind, i, count, seed, random);
      std::memcpy(bytes.data() + static_cast<std::size_t>(i) * sizeof(T), &x, sizeof(T));
    }
    return bytes;
  });
}

void SetElement(DType dtype, std::int64_t index, double value, Bytes* array) {
  VisitDType(dtype, [&]<class T>(std::type_identity<T>) {
    T x;
    if constexpr (kIsFloat<T>) {
      if (std::isnan(value)) {
        Random random(static_cast<std::uint64_t>(index));
        x = RandomNan<T>(random);
      } else {
        x = Convert<T>(value);
      }
    } else {
      x = Convert<T>(value);
    }
    std::memcpy(array->data() + static_cast<std::size_t>(index) * sizeof(T), &x, sizeof(T));
  });
}

GuardedArray::GuardedArray(const Bytes& array, Against against, std::size_t gap_bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t body = std::max((array.size() + gap_bytes + page - 1) / page, std::size_t{1}) * page;
  region_bytes_ = body + 2 * page;
  void* const region = mmap(nullptr, region_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  Require(region != MAP_FAILED, "mmap");
  region_ = static_cast<std::byte*>(region);
  std::byte* const start = region_ + page;
  Require(mprotect(start, body, PROT_READ | PROT_WRITE) == 0, "mprotect");
  std::memset(start, 0xff, body);
  data_ = against == Against::kPageBefore ? start + gap_bytes : start + body - gap_bytes - array.size();
  if (!array.empty()) std::memcpy(data_, array.data(), array.size());
  Require(mprotect(start, body, PROT_READ) == 0, "mprotect");
}

GuardedArray::~GuardedArray() { munmap(region_, region_bytes_); }

ExactArray::ExactArray(const Bytes& array, std::size_t misalignment)
    : memory_(static_cast<std::byte*>(::operator new (misalignment + array.size(), std::align_val_t{64}))) {
  std::memset(memory_.get(), 0xff, misalignment);
  data_ = memory_.get() + misalignment;
  if (!array.empty()) std::memcpy(data_, array.data(), array.size());
}

}  // namespace reduced::test

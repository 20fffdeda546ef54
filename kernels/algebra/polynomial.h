// What a fingerprint is computed with: integers modulo the prime p = 2^61 - 1, and powers of two bases.
//
// The bases are the first 61 bits after the point of the square roots of 2 and 3. Both generate the multiplicative
// group modulo p, so that no two of the first 2^61 - 2 powers of a base are equal.
#ifndef REDUCED_KERNELS_ALGEBRA_POLYNOMIAL_H_
#define REDUCED_KERNELS_ALGEBRA_POLYNOMIAL_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/algebra/portable.h"

namespace reduced {

inline constexpr int kPrimeBits = 61;
inline constexpr std::uint64_t kPrime = (std::uint64_t{1} << kPrimeBits) - 1;
inline constexpr std::array<std::uint64_t, 2> kPolynomialBases = {0x0d413cccfe779921, 0x176cf5d0b09954e7};

// A number for each base. Residue takes any number, other functions take numbers below 2^62; all return numbers below
// p.
using Residues = std::array<std::uint64_t, kPolynomialBases.size()>;

constexpr std::uint64_t Residue(std::uint64_t x) {
  const std::uint64_t once = (x & kPrime) + (x >> kPrimeBits);
  return once >= kPrime ? once - kPrime : once;
}

constexpr std::uint64_t ResidueOfProduct(std::uint64_t a, std::uint64_t b) {
  const UInt128 product = static_cast<UInt128>(a) * b;
  return Residue((static_cast<std::uint64_t>(product) & kPrime) + static_cast<std::uint64_t>(product >> kPrimeBits));
}

// x * y + z, for each base.
constexpr Residues MultipliedAndAdded(const Residues& x, const Residues& y, const Residues& z) {
  Residues result{};
  for (std::size_t b = 0; b < result.size(); ++b) result[b] = Residue(ResidueOfProduct(x[b], y[b]) + z[b]);
  return result;
}

// Each base to that power.
Residues PowersOfBases(std::uint64_t exponent);

}  // namespace reduced

#endif  // REDUCED_KERNELS_ALGEBRA_POLYNOMIAL_H_

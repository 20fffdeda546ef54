// The inner loop of fingerprints: the polynomial of a stretch of words, at both bases.
#ifndef REDUCED_KERNELS_FOLDS_FINGERPRINT_TILES_H_
#define REDUCED_KERNELS_FOLDS_FINGERPRINT_TILES_H_

#include <cstddef>
#include <cstdint>

#include "kernels/algebra/polynomial.h"

namespace reduced {

// The sum of words[j] * a^j modulo p for each base a, of `count` unsigned words of `bytes` bytes (1, 2 or 4) each, at
// any address. On the calling thread, by Highway's vectors.
Residues PolynomialOfWords(const std::byte* words, int bytes, std::int64_t count);

}  // namespace reduced

#endif  // REDUCED_KERNELS_FOLDS_FINGERPRINT_TILES_H_

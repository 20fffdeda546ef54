// What kernels of fingerprints need of the fold: where the elements of a part are, and what each word has besides
// itself.
#ifndef REDUCED_KERNELS_FOLDS_FINGERPRINT_H_
#define REDUCED_KERNELS_FOLDS_FINGERPRINT_H_

#include <cstdint>

#include "kernels/algebra/layout.h"
#include "kernels/algebra/op_call.h"
#include "kernels/algebra/polynomial.h"

namespace reduced {

// Where the elements of a part are in the whole array.
struct PlaceOfPart {
  std::int64_t begin = 0;
  Layout layout{};  // of the part, all of whose dimensions are reduced: how far each element lies behind the first one
};
PlaceOfPart PlaceOf(const Shard& shard);

// The sum of a^j modulo p for each base a, for j from 0 to before `count`: what adding 1 to so many words adds.
Residues SumOfPowers(std::uint64_t count);

}  // namespace reduced

#endif  // REDUCED_KERNELS_FOLDS_FINGERPRINT_H_

// Answers of exact sums of terms.
#ifndef REDUCED_KERNELS_FOLDS_PAIR_SUMS_H_
#define REDUCED_KERNELS_FOLDS_PAIR_SUMS_H_

#include <cstdint>

#include "kernels/algebra/op.h"
#include "kernels/folds/term_sums.h"

namespace reduced {

// What an op of TermsOf answers in f64, rounded once, of the sums of its terms.
double PairSumsAnswer(Op op, const TermSums& sums, std::int64_t ddof);

}  // namespace reduced

#endif  // REDUCED_KERNELS_FOLDS_PAIR_SUMS_H_

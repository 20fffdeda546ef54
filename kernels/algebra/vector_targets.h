// Which vector targets are built; included before any header of Highway.
//
// SSE4 runs on every x86-64 server of the last 15 years and in virtual machines that hide AVX; AVX2 and AVX3 (AVX-512)
// are what most have. SSSE3 would add hardware that no one runs; a NEON build needs no SVE, whose vectors have no fixed
// size and can't be members of structs. Each target costs the build of every function again. Where none of them is
// there, the element by element loops of accumulator.h run, and not Highway's emulation of vectors, which clang would
// have: it makes numbers of the infinities and NaNs of f16.
//
// REDUCED_VECTOR_TARGETS: those of the three that are built, for instance (HWY_AVX2 | HWY_AVX3). Builds for one machine
// have its best alone; builds with sanitizers and static analysis have AVX2 alone. They don't see what only another
// target compiles. That no target reads beyond an array is tested with guard pages in builds without sanitizers.
#ifndef REDUCED_KERNELS_ALGEBRA_VECTOR_TARGETS_H_
#define REDUCED_KERNELS_ALGEBRA_VECTOR_TARGETS_H_

#define HWY_BROKEN_EMU128 1
#define REDUCED_ALL_VECTOR_TARGETS (HWY_SSE4 | HWY_AVX2 | HWY_AVX3)
#ifndef REDUCED_VECTOR_TARGETS
#define REDUCED_VECTOR_TARGETS REDUCED_ALL_VECTOR_TARGETS
#endif
#define HWY_DISABLED_TARGETS                                                             \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | \
   (REDUCED_ALL_VECTOR_TARGETS & ~(REDUCED_VECTOR_TARGETS)))

#endif  // REDUCED_KERNELS_ALGEBRA_VECTOR_TARGETS_H_

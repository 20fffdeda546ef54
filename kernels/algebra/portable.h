// What lets one piece of code compile for the host and, inside a .cu file, for the device too.
#ifndef REDUCED_KERNELS_ALGEBRA_PORTABLE_H_
#define REDUCED_KERNELS_ALGEBRA_PORTABLE_H_

#ifdef __CUDACC__
#define REDUCED_HD __host__ __device__ inline
#else
#define REDUCED_HD inline
#endif

namespace reduced {

// 128-bit integers: a compiler extension that g++, clang and nvcc share.
__extension__ typedef __int128 Int128;
__extension__ typedef unsigned __int128 UInt128;

}  // namespace reduced

#endif  // REDUCED_KERNELS_ALGEBRA_PORTABLE_H_

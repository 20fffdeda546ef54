// Matrix multiply-accumulate of f64 by tensor cores, which round each product and sum as f64 does.
//
// Source: PTX ISA, "Matrix multiply-accumulate operation using mma instruction", shapes m8n8k4 and m16n8k8 of .f64.
#ifndef REDUCED_KERNELS_MATMUL_TENSOR_F64_CUH_
#define REDUCED_KERNELS_MATMUL_TENSOR_F64_CUH_

namespace reduced {

// C[16][8] += A[16][8] B[8][8] by one warp. With g = lane / 4 and t = lane % 4 a thread has
//   a[i]: A[g + 8 (i % 2)][t + 4 (i / 2)],  b[i]: B[t + 4 i][g],  c[i]: C[g + 8 (i / 2)][2 t + i % 2].
// As one instruction since compute capability 9.0, and as four of m8n8k4 on 8.x, where that is the only shape.
__device__ inline void MultiplyTensorF64(const double (&a)[4], const double (&b)[2], double (&c)[4]) {
#if __CUDA_ARCH__ >= 900 && !defined(REDUCED_MATMUL_M8N8K4)
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
               : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#elif __CUDA_ARCH__ >= 800
#pragma unroll
  for (int step = 0; step < 2; ++step) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                   : "+d"(c[2 * half]), "+d"(c[2 * half + 1])
                   : "d"(a[2 * step + half]), "d"(b[step]));
    }
  }
#endif
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_MATMUL_TENSOR_F64_CUH_

// The matrix product on the host: the rung `matmul_host`, and what the other rungs are checked with.
#ifndef REDUCED_KERNELS_MATMUL_HOST_H_
#define REDUCED_KERNELS_MATMUL_HOST_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/matmul/matmul.h"

namespace reduced {

// By one thread. `transposed`: memory for spec.bytes_b(). `stop` is asked every millisecond or so; once it is true, the
// product is of no use.
void MultiplyOnHost(const MatmulSpec& spec, const void* a, const void* b, void* transposed, void* c,
                    absl::FunctionRef<bool()> stop);

// The fill of the lecture that the ladder comes from, whose product has a closed form: a[i][k] = 2 k + i,
// b[k][j] = j - k. Elements [begin, end) of A and of B.
void FillSourceA(const MatmulSpec& spec, std::int64_t begin, std::int64_t end, void* a);
void FillSourceB(const MatmulSpec& spec, std::int64_t begin, std::int64_t end, void* b);

// The right product, and how far from it rounding may lead: k roundings of each term's magnitude, whose sum is at most
// the product of the lengths of the row and the column (Cauchy and Schwarz). Integers have to be equal modulo 2^32.
class ExpectedProduct {
 public:
  // What it holds besides `values`.
  static std::int64_t BytesOf(const MatmulSpec& spec) { return (spec.m + spec.n) * 8; }
  // What Multiply needs for `values`: 8 bytes for each element of C.
  static std::int64_t ValuesBytesOf(const MatmulSpec& spec) { return spec.m * spec.n * 8; }

  explicit ExpectedProduct(const MatmulSpec& spec) : spec_(spec) {}

  // Takes the lengths of A's rows and B's columns. Returns the first error of `why_stop`, as Multiply does.
  absl::Status Study(const void* a, const void* b, absl::FunctionRef<absl::Status()> why_stop);
  // Multiplies in f64, integers modulo 2^32, on `threads` threads; without it the closed form of the source's fill is
  // what is expected. `values` outlives this object. Returns the first error of `why_stop`, which threads call often.
  absl::Status Multiply(const void* a, const void* b, int threads, void* values,
                        absl::FunctionRef<absl::Status()> why_stop);

  // False, too, once `stop` says so, which is asked every row.
  bool Allows(
      const void* c, absl::FunctionRef<bool()> stop = [] { return false; }) const;

 private:
  MatmulSpec spec_;
  const void* values_ = nullptr;
  std::vector<double> row_lengths_, column_lengths_;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_MATMUL_HOST_H_

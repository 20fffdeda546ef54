// Deterministic arrays for the tests, and memory to put them in where a wrong access is noticed.
#ifndef REDUCED_TESTS_SUPPORT_DATA_H_
#define REDUCED_TESTS_SUPPORT_DATA_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "kernels/algebra/dtype.h"

namespace reduced::test {

enum class DataKind {
  kUniform,
  kFull,
  kSmall,
  kFactors,
  kLarge,
  kEqual,
  kAscending,
  kDescending,
  kOutlier,
  kFarFromZero,
  kSomeNan,
  kInfinities,
  kSignedZeros,
  kDenormals,
  kAllNan,
};

struct DataKindRow {
  DataKind kind;
  std::string_view name;
  bool floats_only;
  std::string_view summary;
};

inline constexpr DataKindRow kDataKinds[] = {
    {DataKind::kUniform, "uniform", false, "floats in [-1, 1); integers of half their width"},
    {DataKind::kFull, "full", false, "any finite bit pattern"},
    {DataKind::kSmall, "small", false, "whole numbers from -2 to 2, from 0 to 3 if unsigned"},
    {DataKind::kFactors, "factors", false, "magnitude 1 but for at most 60 twos; the product fits"},
    {DataKind::kLarge, "large", false, "close to the largest value, or on odd seeds the lowest: sums overflow"},
    {DataKind::kEqual, "equal", false, "one value throughout"},
    {DataKind::kAscending, "ascending", false, "never falling"},
    {DataKind::kDescending, "descending", false, "never rising"},
    {DataKind::kOutlier, "outlier", false, "the first element is far from the others, which are close together"},
    {DataKind::kFarFromZero, "far_from_zero", false, "the mean is large, the spread tiny"},
    {DataKind::kSomeNan, "some_nan", true, "one NaN in 8, of any sign and payload"},
    {DataKind::kInfinities, "infinities", true, "one infinity in 64, on even seeds of both signs"},
    {DataKind::kSignedZeros, "signed_zeros", true, "-0 and +0, one other number in 64"},
    {DataKind::kDenormals, "denormals", true, "subnormal numbers of both signs"},
    {DataKind::kAllNan, "all_nan", true, "nothing but NaNs"},
};

inline bool Applies(const DataKindRow& row, DType dtype) { return !row.floats_only || RowOf(dtype).is_float; }

using Bytes = std::vector<std::byte>;

// `count` elements. The same arguments always give the same bytes.
Bytes MakeData(DataKind kind, DType dtype, std::int64_t count, std::uint64_t seed);

// Writes `value`, converted to dtype (towards zero, and to the nearest bound), as element `index`.
void SetElement(DType dtype, std::int64_t index, double value, Bytes* array);

// A copy of an array in pages of its own: it can't be written to, and the pages before and after it can't be read. It
// ends `gap_bytes` before the page that follows, or starts that far after the one before. The gap is filled with 0xff,
// a NaN to every float.
class GuardedArray {
 public:
  enum class Against { kPageBefore, kPageAfter };
  GuardedArray(const Bytes& array, Against against, std::size_t gap_bytes);
  ~GuardedArray();
  GuardedArray(const GuardedArray&) = delete;
  GuardedArray& operator=(const GuardedArray&) = delete;

  const void* data() const { return data_; }

 private:
  std::byte* region_ = nullptr;
  std::size_t region_bytes_ = 0;
  std::byte* data_ = nullptr;
};

// A copy of an array on the heap, `misalignment` bytes (0 to 63) past a multiple of 64, that ends where its allocation
// does: AddressSanitizer sees reads past it. The bytes before it are 0xff.
class ExactArray {
 public:
  ExactArray(const Bytes& array, std::size_t misalignment);

  const void* data() const { return data_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{64}); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::byte* data_ = nullptr;
};

}  // namespace reduced::test

#endif  // REDUCED_TESTS_SUPPORT_DATA_H_

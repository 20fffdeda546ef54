// The answers of many outputs from quick sums, extrema and bits (quick_sums.h, quick_extrema.h, quick_bits.h): which
// ops are answered so, what they take, and what NaNs and infinities make of them. Outputs whose answers are not known
// so are left to the caller, who reduces them one by one.
#ifndef REDUCED_KERNELS_CPU_QUICK_ANSWERS_H_
#define REDUCED_KERNELS_CPU_QUICK_ANSWERS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/algebra/answer.h"
#include "kernels/algebra/float_format.h"
#include "kernels/algebra/spec.h"
#include "kernels/cpu/quick_bits.h"
#include "kernels/cpu/quick_extrema.h"
#include "kernels/cpu/quick_sums.h"
#include "kernels/cpu/widen.h"

namespace reduced {

// Of rows or segments that are answered in one go, about as many bytes, which stay in the cache.
inline constexpr std::int64_t kQuickBytes = std::int64_t{256} << 10;

// Of at most kQuickOutputs outputs; only what a request takes is set.
struct QuickFound {
  QuickSums sums[kTerms];  // by Term
  QuickExtrema extrema;
  QuickBits bits[3];  // by op, from kBitAnd on

  QuickSums& of(Term term) { return sums[static_cast<int>(term)]; }
  const QuickSums& of(Term term) const { return sums[static_cast<int>(term)]; }
};

// The NaNs and infinities among the elements of an output.
struct Specials {
  std::optional<std::int64_t> first_nan;  // its position
  bool positive_infinity = false;
  bool negative_infinity = false;

  SpecialValues values() const { return {first_nan.has_value(), positive_infinity, negative_infinity}; }
};

// How the ops of a request are answered. Immutable, so thread-safe.
class QuickAnswers {
 public:
  // Absent if one of spec's ops is not answered so.
  static std::optional<QuickAnswers> For(const ReduceSpec& spec);

  // What has to be found.
  bool takes(Term term) const { return sums_[static_cast<std::size_t>(term)].rows != nullptr; }
  bool takes_extrema() const { return extrema_.store != nullptr; }
  bool takes_bits() const;
  bool omits_nans() const;
  // Whether elements may be copied to be found.
  bool may_copy() const { return omits_nans() || widen_ != nullptr; }
  Positions positions() const { return positions_; }

  // Find it, of columns, rows or segments: see quick_sums.h. Clear and Merge: a Way of columns.h. Where NaNs are
  // omitted, they are left out of everything but kNonzero and kNan. If they may be copied, rows and segments should lie
  // within few kQuickBytes.
  void FindColumns(const Layout& layout, const std::byte* start, std::int64_t count, QuickFound* found) const;
  void FindRows(const std::byte* start, std::int64_t elements, std::int64_t count, QuickFound* found) const;
  void FindSegments(const std::byte* start, const std::int64_t* bounds, std::int64_t count, QuickFound* found) const;
  void Clear(std::int64_t count, QuickFound* found) const;
  void Merge(const QuickFound& from, std::int64_t at, std::int64_t count, std::int64_t offset, std::int64_t step,
             QuickFound* found) const;

  // Writes the answers of `count` outputs, of which output i has elements[i], to the ops' `answers` from output `first`
  // on. Where one of them is not known, known[i] becomes false, and its answers are undefined.
  void Store(const QuickFound& found, const std::int64_t* elements, std::int64_t count,
             const std::vector<std::byte*>& answers, std::int64_t first, bool* known) const;

  // Whether the output of which `found` has what was found at i may have NaNs or infinities.
  bool MayBeSpecial(const QuickFound& found, std::int64_t i) const;
  // Looks for NaNs, unless they are omitted, and infinities among `count` elements that are `stride` bytes apart, the
  // first of which has that position in its output, up to the first NaN.
  void Look(const std::byte* elements, std::int64_t count, std::int64_t stride, std::int64_t position,
            Specials* specials) const;
  // Writes the answers of output `output`, of so many elements, with those specials: what was found of it is at `i`.
  // False: they are not known, and what is written is undefined.
  bool StoreSpecial(const QuickFound& found, std::int64_t i, const Specials& specials, std::int64_t elements,
                    const std::vector<std::byte*>& answers, std::int64_t output) const;

 private:
  explicit QuickAnswers(const ReduceSpec& spec) : spec_(spec), given_(spec.dtype), widen_(WidenElementsOf(spec.dtype)) {
    spec_.dtype = WideDType(spec.dtype);
  }
  // The same as the public ones, of elements that are widened.
  void FindInColumns(const Layout& layout, const std::byte* start, std::int64_t count, QuickFound* found) const;
  void FindInRows(const std::byte* start, std::int64_t elements, std::int64_t count, QuickFound* found) const;
  void FindInSegments(const std::byte* start, const std::int64_t* bounds, std::int64_t count, QuickFound* found) const;
  void StoreExtrema(const QuickExtrema& extrema, Op op, std::int64_t first, std::int64_t count, std::byte* out) const;
  // Where `omits` says that there are NaNs which are omitted, the first finds what counts elements, and the second sums
  // of elements, magnitudes and squares, of a copy without; otherwise the first finds all sums.
  template <class Find>
  void FindSums(std::int64_t count, bool omits, const Find& find, QuickFound* found) const;
  template <class Find>
  void FindSumsOfCopy(const Find& find, QuickFound* found) const;
  std::int64_t BytesOf(Op op) const;
  template <class Function>
  void ForTerms(const Function& function) const;
  template <class Function>
  void ForBits(const Function& function) const;
  void StoreSums(Op op, const QuickSums& sums, std::int64_t count, std::byte* out, bool* known) const;
  std::int64_t Counted(const QuickFound& found, Term term, std::int64_t i) const;
  // Of outputs from `first` on, of which output first + g has elements[g].
  void StoreCounts(Op op, const QuickFound& found, std::int64_t first, std::int64_t count, const std::int64_t* elements,
                   std::byte* out) const;

  ReduceSpec spec_;  // of widened elements
  DType given_;
  WidenElements widen_;  // null: elements are found as they are
  std::array<QuickSumsOf, kTerms> sums_{};
  QuickExtremaOf extrema_{};
  std::array<QuickBitsOf, 3> bits_{};
  Positions positions_{};
  QuickStores stores_{};
  bool copies_ = false;  // sums are found in a copy if there are NaNs
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CPU_QUICK_ANSWERS_H_

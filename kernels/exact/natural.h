// Natural numbers of any size, for the last step of exact answers: products, quotients and roots that are rounded once.
#ifndef REDUCED_KERNELS_EXACT_NATURAL_H_
#define REDUCED_KERNELS_EXACT_NATURAL_H_

#include <cstdint>
#include <span>
#include <vector>

namespace reduced {

class Natural {
 public:
  Natural() = default;  // 0
  explicit Natural(std::uint64_t value);
  // The magnitude of a two's complement number, least significant word first.
  static Natural MagnitudeOf(std::span<const std::uint64_t> words);

  bool zero() const { return words_.empty(); }
  int bits() const;  // from the first one that is set; 0 has none
  bool bit(int index) const;
  // The `count` <= 64 bits from `index` on, those below 0 or beyond the end being 0.
  std::uint64_t Bits(int index, int count) const;
  bool AnyBitBelow(int index) const;
  bool LessThan(const Natural& other) const;

  Natural Plus(const Natural& other) const;
  Natural Times(const Natural& other) const;
  Natural Minus(const Natural& other) const;  // which must not be larger
  Natural ShiftedLeft(int by) const;
  // Leaves out the words of zeros below the first other one; returns how many bits these were.
  int DropLowZeros();
  // Divides by `divisor` > 0; returns the remainder.
  std::uint64_t Divide(std::uint64_t divisor);
  // The quotient by `divisor` > 0; sets `more` to whether there is a remainder.
  Natural Over(const Natural& divisor, bool* more) const;

 private:
  void Trim();

  std::vector<std::uint64_t> words_;  // least significant first; the last isn't 0
};

// The double nearest to number x 2^exponent, ties to even; if `more`, of a little more than that, but less than one
// unit of `number`, which then must have 55 bits at least. Beyond the largest double: infinity.
double RoundToDouble(const Natural& number, int exponent, bool more = false);

// The same of its square root; if `more`, `number` must have 126 bits at least.
double RoundRootToDouble(const Natural& number, int exponent, bool more = false);

}  // namespace reduced

#endif  // REDUCED_KERNELS_EXACT_NATURAL_H_

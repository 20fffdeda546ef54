#include "kernels/algebra/polynomial.h"

namespace reduced {
namespace {

constexpr int kDigitBits = 8;
constexpr std::size_t kDigits = 64 / kDigitBits;
using PowersOfDigits = std::array<std::array<Residues, std::size_t{1} << kDigitBits>, kDigits>;

// [d][i]: the bases to the power i * 2^(8 d).
constexpr PowersOfDigits MakePowers() {
  PowersOfDigits powers{};
  Residues step = kPolynomialBases;
  for (auto& of_digit : powers) {
    of_digit[0].fill(1);
    for (std::size_t i = 1; i < of_digit.size(); ++i) of_digit[i] = MultipliedAndAdded(of_digit[i - 1], step, {});
    step = MultipliedAndAdded(of_digit.back(), step, {});
  }
  return powers;
}

constexpr PowersOfDigits kPowers = MakePowers();

}  // namespace

Residues PowersOfBases(std::uint64_t exponent) {
  Residues power = kPowers[0][exponent & 0xff];
  for (std::size_t digit = 1; (exponent >>= kDigitBits) != 0; ++digit) {
    power = MultipliedAndAdded(power, kPowers[digit][exponent & 0xff], {});
  }
  return power;
}

}  // namespace reduced

// What a GPU answers an op by (kernels/cuda/quick_kinds.h), on the host: the answers that its folds know are those of a
// state of the same elements.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <type_traits>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "kernels/algebra/accumulator.h"
#include "kernels/algebra/arithmetic.h"
#include "kernels/algebra/finalize.h"
#include "kernels/algebra/float_format.h"
#include "kernels/cuda/quick_kinds.h"
#include "kernels/exact/answers.h"
#include "kernels/exact/sums.h"

namespace reduced {
namespace {

TEST(QuickOpsTest, OpsHaveAKindAndAFold) {
  for (const DTypeRow& dtype : kDTypes) {
    for (const OpRow& op : kOps) {
      if (!HasKernels(dtype.dtype) || !Supports(op.op, dtype.dtype) || !HasAccumulator(op.op)) continue;
      const std::vector<QuickOps> kinds = QuickOpsOf({.dtype = dtype.dtype, .ops = {op.op}});
      ASSERT_EQ(kinds.size(), 1u) << op.name << " of " << dtype.name;
      EXPECT_TRUE(VisitQuickFold(kinds[0].kind, dtype.dtype, false, [](auto) { return true; }))
          << op.name << " of " << dtype.name;
    }
  }
}

TEST(QuickOpsTest, OpsBesideSquaresAreOneKind) {
  for (const DType dtype : {DType::kF32, DType::kI16, DType::kI64, DType::kU64}) {
    EXPECT_EQ(QuickOpsOf({.dtype = dtype, .ops = {Op::kMean, Op::kStd, Op::kCount, Op::kSum, Op::kL2}}).size(), 1u);
  }
}

TEST(QuickOpsTest, SumsAndMagnitudesOfUnsignedIntegersAreOneKind) {
  EXPECT_EQ(QuickOpsOf({.dtype = DType::kU16, .ops = {Op::kSum, Op::kL1, Op::kCount}}).size(), 1u);
  EXPECT_EQ(QuickOpsOf({.dtype = DType::kI16, .ops = {Op::kSum, Op::kL1, Op::kCount}}).size(), 2u);
}

// Elements in tiles of kAtOnce, in so many shares that are merged. kScattered: some of a tile are not there, anywhere
// in it, as in groups; else only the last tile of a share may be so, as along axes.
template <class Fold, int kAtOnce, bool kScattered, class T>
Fold FoldOf(const std::vector<T>& elements, const QuickElements& of, std::size_t shares) {
  using Word = typename Fold::Word;
  const auto count = elements.size();
  const auto word = [&](std::size_t at) { return PreparedWord(BitsAs<Word>(elements[at]), of); };
  Fold all;
  for (std::size_t share = 0; share < shares; ++share) {
    Fold fold;
    const std::size_t step = kScattered ? kAtOnce - 1 : kAtOnce;
    for (std::size_t at = share * step; at < count; at += shares * step) {
      QuickTile<Word, kAtOnce> x{};
      std::uint32_t position[kAtOnce];
      const Word padding = Fold::Padding(word(at), of);
      int n = 0;
      for (int i = 0; i < kAtOnce; ++i) {
        const bool gap = kScattered && i == static_cast<int>(at / step % kAtOnce);
        const bool there = !gap && at + static_cast<std::size_t>(n) < count;
        x.Set(i, there ? word(at + static_cast<std::size_t>(n)) : padding);
        position[i] = static_cast<std::uint32_t>(there ? at + static_cast<std::size_t>(n) : at);
        n += there ? 1 : 0;
      }
      fold.Add(
          x, kScattered ? kAtOnce : n, [&](int i) { return position[i]; }, of);
      if constexpr (kScattered && requires { Fold::kCountsPadding; }) fold.Forget(kAtOnce - n, padding, of);
    }
    all.Merge(fold);
  }
  return all;
}

// What a state of the elements answers.
template <class T>
absl::StatusOr<Value> Expected(const ReduceSpec& spec, const std::vector<T>& elements) {
  State state;
  state.exact = std::make_unique<ExactSums>();
  const bool omit = spec.nan_policy == NanPolicy::kOmit;
  AllAccumulators<T>::ForEach([&]<class A>(std::type_identity<A>) {
    typename A::Local local;
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const bool left_out = omit && IsNan(elements[i]) && A::kAccumulator != Accumulator::kCounts;
      if (!left_out) A::Add(local, elements[i], static_cast<std::int64_t>(i));
    }
    A::Store(A::Settle(local), &state.partial);
  });
  if constexpr (kIsFloat<T>) {
    for (const T x : elements) Add(ToDouble(x), kExactAccumulators, false, state.exact.get());
  }
  state.partial.count = static_cast<std::int64_t>(elements.size());
  const absl::StatusOr<std::vector<Value>> values = Finalize(spec, state);
  if (!values.ok()) return values.status();
  return values->front();
}

// Whether an answer is beyond its type, or so close to the bound that f64 may not tell. A sum of squares tells exactly;
// so does one of elements, but for -2^63.
template <class T>
bool NearlyOverflows(Op op, const std::vector<T>& elements) {
  long double product = 1, sum = 0;
  UInt128 squares = 0;
  Int128 total = 0;
  for (const T x : elements) {
    const UInt128 magnitude = Magnitude(x), square = magnitude * magnitude;
    squares = square < ~squares ? squares + square : ~UInt128{0};
    total += IsNegative(x) ? -static_cast<Int128>(magnitude) : static_cast<Int128>(magnitude);
    product *= static_cast<long double>(ToInteger(x));
    sum += static_cast<long double>(Magnitude(x));
  }
  const long double nearly = 1 - 0x1p-38L;
  if (op == Op::kSumSquares) return squares >> 64 != 0;
  if (op == Op::kSum) return static_cast<UInt128>(total < 0 ? -total : total) >> (kIsSigned<T> ? 63 : 64) != 0;
  if (op == Op::kL1) return sum > 0x1p64L * nearly;
  return op == Op::kProd && std::abs(product) > (kIsSigned<T> || std::is_same_v<T, Bool> ? 0x1p63L : 0x1p64L) * nearly;
}

// Asks for one answer, of folds of every shape, and compares them with that of a state.
template <class T>
void Ask(const ReduceSpec& spec, const std::vector<T>& elements) {
  const Op op = spec.ops[0];
  const std::vector<QuickOps> kinds = QuickOpsOf(spec);
  ASSERT_EQ(kinds.size(), 1u);
  QuickElements of = kinds[0].elements;
  of.count = static_cast<std::int64_t>(elements.size());
  const absl::StatusOr<Value> expected = Expected(spec, elements);
  const auto check = [&](const auto& fold) {
    std::byte got[8] = {}, right[8] = {};
    const QuickAnswer answer{op, got};
    if (!fold.Finish(&answer, 1, 0, of)) {
      // Sums of floats may be the host's to say; what is of integers only if it is an error, or nearly so.
      if constexpr (!kIsFloat<T>) {
        const bool may_be = spec.overflow_policy == OverflowPolicy::kError ||
                            (op == Op::kProd && spec.overflow_policy == OverflowPolicy::kSaturate);
        EXPECT_TRUE(may_be && NearlyOverflows(op, elements)) << "not known";
      } else {
        EXPECT_EQ(op, Op::kL1) << "not known";
      }
      return;
    }
    ASSERT_TRUE(expected.ok()) << "known, but " << expected.status();
    StoreValue(*expected, right);
    double x, y;
    std::memcpy(&x, got, sizeof(x));
    std::memcpy(&y, right, sizeof(y));
    if (op == Op::kProd && kIsFloat<T>) {
      const bool same = std::isnan(x)
                            ? std::isnan(y)
                            : std::signbit(x) == std::signbit(y) && (x == y || std::abs(x - y) <= 1e-13 * std::abs(y));
      EXPECT_TRUE(same) << "got " << x << ", not " << y;
    } else {
      EXPECT_EQ(std::memcmp(got, right, sizeof(got)), 0)
          << "got " << BitsAs<std::uint64_t>(x) << ", not " << BitsAs<std::uint64_t>(y);
    }
  };
  VisitQuickFold(kinds[0].kind, spec.dtype, 0, [&]<class Fold>(std::type_identity<Fold>) {
    if constexpr (sizeof(typename Fold::Word) == sizeof(T)) {
      check(FoldOf<Fold, 1, false>(elements, of, 1));
      check(FoldOf<Fold, 2, false>(elements, of, 2));
      check(FoldOf<Fold, 4, false>(elements, of, 1));
      check(FoldOf<Fold, 8, false>(elements, of, 3));
      check(FoldOf<Fold, 16, false>(elements, of, 2));
      check(FoldOf<Fold, 4, true>(elements, of, 1));
      check(FoldOf<Fold, 4, true>(elements, of, 3));
    }
    return 0;
  });
}

// Elements of every sort, some of which are on purpose at the end of a tile that is not full.
template <class T>
std::vector<std::vector<T>> AllElements(std::size_t count, std::mt19937_64& random) {
  constexpr auto from_bits = [](std::uint64_t bits) {
    T x;
    std::memcpy(&x, &bits, sizeof(x));
    return x;
  };
  std::vector<std::vector<T>> all;
  const auto add = [&](auto element) {
    std::vector<T>& elements = all.emplace_back();
    for (std::size_t i = 0; i < count; ++i) elements.push_back(element(i));
  };
  add([&](std::size_t) { return from_bits(random()); });
  if constexpr (kIsFloat<T>) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity(),
                     kNan = std::numeric_limits<double>::quiet_NaN();
    const auto number = [](double x) { return FromDouble<T>(x); };
    add([&](std::size_t) {
      return number(static_cast<double>(static_cast<std::int64_t>(random() % 2001) - 1000) / 256);
    });
    add([&](std::size_t) { return number(-0.0); });
    add([&](std::size_t i) { return number(i + 1 == count ? kNan : -1.5); });
    add([&](std::size_t i) { return number(i % 3 == 0 ? -kNan : i % 3 == 1 ? 1.5 : -0.75); });
    add([&](std::size_t) { return number(kNan); });
    add([&](std::size_t i) { return number(i == count / 2 ? -kInfinity : -2); });
    add([&](std::size_t i) { return number(i == 0 ? kInfinity : i == 1 ? 0 : 1); });
    add([&](std::size_t i) { return number(i == 0 ? 0 : i + 1 == count ? -kInfinity : i == 2 ? kNan : 1); });
    // The largest, then the least of numbers, so that the product leaves what f64 has and comes back.
    const double largest = ToDouble(from_bits(FloatFormat<T>::kInfinity - 1)), least = ToDouble(from_bits(1));
    add([&](std::size_t i) { return number(i < count / 2 ? -largest : least); });
    add([&](std::size_t i) { return number(i % 2 == 0 ? largest : -1 / largest); });
  } else {
    add([&](std::size_t) { return from_bits(random() % 3); });
    add([&](std::size_t) { return from_bits(random() % 2 * 2 + 1); });  // 1 and 3
    add([&](std::size_t) {
      return from_bits(random() % 4 == 0 ? ~std::uint64_t{1} : 1);
    });                                                                                    // -2, or the highest but one
    add([&](std::size_t) { return from_bits(std::uint64_t{1} << (8 * sizeof(T) - 1)); });  // the lowest
    add([&](std::size_t i) { return from_bits(i + 1 == count ? 0 : ~std::uint64_t{0} >> 1); });
    add([&](std::size_t i) { return from_bits(i == 0 ? 0 : 100); });
    add([&](std::size_t i) { return from_bits(i < 62 ? 2 : 1); });
    add([&](std::size_t i) { return from_bits(i < 63 ? 2 : 1); });
    add([&](std::size_t i) { return from_bits(i < 64 ? 2 : 1); });
  }
  return all;
}

template <class T>
void AskAll() {
  std::mt19937_64 random(1);
  for (std::size_t count = 1; count <= 100; count += count < 20 ? 1 : 8) {
    int which = 0;
    for (const std::vector<T>& elements : AllElements<T>(count, random)) {
      SCOPED_TRACE(testing::Message() << count << " elements of sort " << which++);
      for (const Op op : {Op::kL1, Op::kProd, Op::kBitAnd, Op::kBitOr, Op::kBitXor}) {
        if (!Supports(op, kDTypeOf<T>)) continue;
        for (const OverflowPolicy overflow :
             {OverflowPolicy::kError, OverflowPolicy::kWrap, OverflowPolicy::kSaturate}) {
          for (const NanPolicy nans : {NanPolicy::kPropagate, NanPolicy::kOmit}) {
            SCOPED_TRACE(RowOf(op).name);
            Ask<T>({.dtype = kDTypeOf<T>,
                    .count = static_cast<std::int64_t>(count),
                    .ops = {op},
                    .nan_policy = nans,
                    .overflow_policy = overflow,
                    .precision = Precision::kExact},
                   elements);
            if (::testing::Test::HasFailure()) return;
          }
        }
      }
    }
  }
}

TEST(QuickOpsTest, AnswerAsAStateOfEveryDType) {
  for (const DTypeRow& row : kDTypes) {
    if (!HasKernels(row.dtype)) continue;
    SCOPED_TRACE(row.name);
    VisitDType(row.dtype, []<class T>(std::type_identity<T>) {
      if constexpr (!kIsF8<T>) AskAll<T>();
    });
  }
}

// At the bounds of 64 bits: what fits by one, and what does not by one.
TEST(QuickOpsTest, ProductsAtTheBound) {
  constexpr std::int64_t kHalf = std::int64_t{1} << 32, kLowest = std::numeric_limits<std::int64_t>::min();
  for (const OverflowPolicy policy : {OverflowPolicy::kError, OverflowPolicy::kWrap, OverflowPolicy::kSaturate}) {
    SCOPED_TRACE(static_cast<int>(policy));
    const ReduceSpec spec{.dtype = DType::kI64, .count = 2, .ops = {Op::kProd}, .overflow_policy = policy};
    ReduceSpec unsigned_spec = spec;
    unsigned_spec.dtype = DType::kU64;
    for (const std::vector<std::int64_t>& factors :
         std::vector<std::vector<std::int64_t>>{{kHalf, kHalf / 2},              // 2^63
                                                {-kHalf, kHalf / 2},             // -2^63
                                                {3'037'000'499, 3'037'000'499},  // less than 2^63
                                                {3'037'000'500, 3'037'000'500},  // more
                                                {kHalf - 1, kHalf + 1},          // 2^64 - 1
                                                {kHalf, kHalf},                  // 2^64
                                                {7, 1'317'624'576'693'539'401},  // 2^63 - 1
                                                {kLowest, 1},
                                                {kLowest, -1},
                                                {kLowest, kLowest, 0, -1},
                                                {-1, -1, -1, kLowest, kLowest, kLowest}}) {
      Ask<std::int64_t>(spec, factors);
      Ask<std::uint64_t>(unsigned_spec, {factors.begin(), factors.end()});
      if (HasFailure()) return;
    }
  }
}

// Sums with sums of squares, of 64-bit integers of every size, also far from zero.
template <class T>
std::vector<std::vector<T>> AllWideElements(std::size_t count, std::mt19937_64& random) {
  constexpr T kLowest = std::numeric_limits<T>::min(), kHighest = std::numeric_limits<T>::max();
  std::vector<std::vector<T>> all;
  const auto add = [&](auto element) {
    std::vector<T>& elements = all.emplace_back();
    for (std::size_t i = 0; i < count; ++i) elements.push_back(static_cast<T>(element(i)));
  };
  // Of 53 bits, so that no norm of one element, and no deviation of two, is halfway between two doubles.
  add([&](std::size_t) { return random() & ~std::uint64_t{0x7ff}; });
  add([&](std::size_t) { return random() % 1001; });
  add([&](std::size_t) { return random() % 2001 - 1000; });  // of both signs; of u64 at both ends
  add([&](std::size_t) { return 1'000'000'000 + random() % 1000; });
  add([&](std::size_t) { return 1'700'000'000'000'000'000 + random() % 1'000'000'000; });  // times in nanoseconds
  add([&](std::size_t) { return kHighest - static_cast<T>(random() % 3); });
  add([&](std::size_t) { return kLowest + static_cast<T>(random() % 3); });
  add([&](std::size_t) { return kLowest; });
  add([&](std::size_t) { return kHighest; });
  add([&](std::size_t i) { return i % 2 == 0 ? kLowest : kHighest; });
  add([&](std::size_t) { return T{12'345}; });
  add([&](std::size_t) { return T{0}; });
  add([&](std::size_t i) { return i == 0 ? 1 : 0; });
  add([&](std::size_t i) { return (std::uint64_t{1} << (random() % 64)) - i % 2; });
  return all;
}

template <class T>
void AskWideMoments() {
  std::mt19937_64 random(1);
  for (std::size_t count = 1; count <= 300; count += count < 20 ? 1 : 56) {
    int which = 0;
    for (const std::vector<T>& elements : AllWideElements<T>(count, random)) {
      SCOPED_TRACE(testing::Message() << count << " elements of sort " << which++);
      for (const Op op : {Op::kSumSquares, Op::kL2, Op::kVar, Op::kStd, Op::kSum, Op::kMean}) {
        for (const std::int64_t ddof : {std::int64_t{0}, std::int64_t{1}, std::int64_t{7}, std::int64_t{1} << 40}) {
          SCOPED_TRACE(testing::Message() << RowOf(op).name << ", ddof " << ddof);
          Ask<T>({.dtype = kDTypeOf<T>, .count = static_cast<std::int64_t>(count), .ops = {op}, .ddof = ddof},
                 elements);
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(QuickOpsTest, MomentsOfI64) { AskWideMoments<std::int64_t>(); }
TEST(QuickOpsTest, MomentsOfU64) { AskWideMoments<std::uint64_t>(); }

// A fold of three elements, merged with itself until it has nearly as many as a fold may have.
template <class T>
void AskManyTimesThree(const T (&three)[3]) {
  QuickOps ops = QuickOpsOf({.dtype = kDTypeOf<T>, .ops = {Op::kVar}})[0];
  ops.elements.ddof = 1;
  QuickWideMoments fold = FoldOf<QuickWideMoments, 2, false>(std::vector<T>(three, three + 3), ops.elements, 1);
  Partial partial;
  for (const T x : three) {
    const UInt128 square = static_cast<UInt128>(Magnitude(x)) * Magnitude(x);
    partial.int_sum += static_cast<Int128>(x);
    Increase(partial.int_sum_squares,
             UInt192{{static_cast<std::uint64_t>(square), static_cast<std::uint64_t>(square >> 64), 0}});
  }
  partial.count = 3;
  for (; partial.count < EndOfQuickElements(QuickKind::kMoments, kDTypeOf<T>); partial.count *= 2) {
    ops.elements.count = partial.count;
    for (const Op op : {Op::kMean, Op::kVar, Op::kStd, Op::kL2}) {
      double got;
      const QuickAnswer answer{op, reinterpret_cast<std::byte*>(&got)};
      ASSERT_TRUE(fold.Finish(&answer, 1, 0, ops.elements)) << RowOf(op).name << " of " << partial.count;
      EXPECT_EQ(got, IntegerAnswer({.dtype = kDTypeOf<T>, .ddof = 1}, op, partial))
          << RowOf(op).name << " of " << partial.count;
    }
    fold.Merge(QuickWideMoments(fold));
    partial.int_sum *= 2;
    Increase(partial.int_sum_squares, UInt192(partial.int_sum_squares));
  }
}

TEST(QuickOpsTest, MomentsOfAsManyAsAFoldMayHave) {
  constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min(), kHighest = ~kLowest;
  constexpr std::uint64_t kMost = ~std::uint64_t{0};
  AskManyTimesThree<std::int64_t>({kLowest, kLowest, kLowest});
  AskManyTimesThree<std::int64_t>({kLowest, kHighest, 5});
  AskManyTimesThree<std::int64_t>({kHighest, kHighest, kHighest - 1});
  AskManyTimesThree<std::uint64_t>({0, 0, 0});
  AskManyTimesThree<std::uint64_t>({kMost, kMost, kMost});
  AskManyTimesThree<std::uint64_t>({kMost, 0, kMost - 1});
}

TEST(QuickOpsTest, SumsOfSquaresAtTheBound) {
  constexpr std::int64_t kHalf = std::int64_t{1} << 32;
  for (const OverflowPolicy policy : {OverflowPolicy::kError, OverflowPolicy::kWrap, OverflowPolicy::kSaturate}) {
    SCOPED_TRACE(static_cast<int>(policy));
    ReduceSpec spec{.dtype = DType::kI64, .ops = {Op::kSumSquares}, .overflow_policy = policy};
    for (const std::vector<std::int64_t>& elements :
         std::vector<std::vector<std::int64_t>>{{kHalf - 1},
                                                {kHalf},  // 2^64
                                                {3'037'000'499, 1},
                                                {-kHalf / 2, kHalf / 2},  // 2^63
                                                {kHalf / 2, kHalf / 2, kHalf / 2, kHalf / 2},
                                                {kHalf - 1, 92'681, 370, 173},     // 2^64 - 1
                                                {kHalf - 1, 92'681, 370, 173, 1},  // 2^64
                                                {1 - kHalf, -92'681, -370, -173}}) {
      spec.count = static_cast<std::int64_t>(elements.size());
      spec.dtype = DType::kI64;
      Ask<std::int64_t>(spec, elements);
      spec.dtype = DType::kU64;
      Ask<std::uint64_t>(spec, {elements.begin(), elements.end()});
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace reduced

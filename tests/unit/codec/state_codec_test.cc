// The codec of states, without a server: bytes that are for good, round trips, and what is refused.
#include "proto/codec/state_codec.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/algebra/finalize.h"
#include "kernels/exact/answers.h"
#include "proto/codec/merge.h"
#include "proto/codec/word_bytes.h"
#include "tests/support/data.h"
#include "tests/support/fold.h"
#include "tests/support/oracle.h"
#include "tests/support/runs.h"

namespace reduced {
namespace {

using ::testing::HasSubstr;

// States as version 1 has always written them.
constexpr struct {
  const char* what;
  const char* bytes;  // hexadecimal
} kEncoded[] = {
    {"f32 in f64, a NaN omitted",
     "0801100c18062210010203040508090a0b0c0d0e0f10060728013002380282010909000000e0c2ee42468a010909000000e0"
     "c2ee4246920109094084cd662167964c9a011d080511000000000000f83f2166666666d14a1e4629cd69a4b81aec914ca201"
     "0710cc0118012001aa01100801100520818080810828aed8bba10eba010408041001"},
    {"f64 in f64, an infinity",
     "0801100d18052210010203040508090a0b0c0d0e0f10060728013002380282010909000000000000f07f8a01090900000000"
     "0000f07f92010909000000000000f07f9a011d0805119c7500883ce4377e21000000000000f07f29000000000000f8ffa201"
     "1009000000000000f0ff10df1018012001aa01190801100320b3cdc7aff887b7a5032880808080808080f0ff01ba01020805"},
    {"empty, f64",
     "0801100d22070105090a0610022801300238028201090900000000000000008a010909000000000000000092010909000000"
     "00000000009a0100a2010d09000000000000f03f18012001ba0100"},
    {"empty, exact",
     "0801100d22070105090a0610022802300238028201021a008a01021a009201021a00a2010d09000000000000f03f18012001"
     "ba0100c20100"},
    {"i8",
     "0801100218052211010203040508090a0b0c0d0e0f101112132801300138028201031201038a01041202050192010412021b"
     "7fa2010f09000000000000f03f2080fb043001aa010a0800100120ff0128fe01b2011211ffffffffffffffff190500000000"
     "000000ba01020804"},
    {"u64",
     "0801100918032211010203040508090a0b0c0d0e0f1011121328013001380282010b12090000000000000080018a010b1209"
     "00000000000000800192011312110200000000000000feffffffffffff3f01a2012109000000000000f03f18808080808080"
     "8080800120808080808080808080013801aa011a0802100020fdffffffffffffffff0128feffffffffffffffff01b2011211"
     "ffffffffffffffff19feffffffffffff7fba01020803"},
    {"i64",
     "0801100518042211010203040508090a0b0c0d0e0f1011121328013001380282010a120802000000000000808a010b120902"
     "000000000000800192011312110a00000000000000ffffffffffffffbf00a2010b09000000000000f03f3801aa011a080010"
     "0120ffffffffffffffffff0128feffffffffffffffff01b2011211ffffffffffffffff19fcffffffffffff7fba01020804"},
    {"bool",
     "0801100118032211010203040508090a0b0c0d0e0f101112132801300138028201031201028a0103120102920103120102a2"
     "010d09000000000000f03f20013001aa0106080110002802b20109110100000000000000ba01020802"},
    {"u32",
     "0801100818032211010203040508090a0b0c0d0e0f101112132801300138028201071205fdffffff028a01071205fdffffff"
     "0292010b120903000000faffffff02a2011709000000000000f03f18ffffffff2f20ffffffff2f3801aa01100800100020fe"
     "ffffff1f28feffffff1fb2011b09ffffffff0000000011ffffffff0000000019ffffffff00000000ba01020803"},
};

TEST(StateCodec, ReadsAndWritesTheBytesOfVersion1) {
  for (const auto& each : kEncoded) {
    const std::string bytes = absl::HexStringToBytes(each.bytes);
    v1::State state;
    ASSERT_TRUE(state.ParseFromString(bytes)) << each.what;
    const absl::StatusOr<StateOfSpec> read = ParseState(state, StateLimits());
    ASSERT_TRUE(read.ok()) << each.what << ": " << read.status().ToString();
    v1::State written;
    ToProto(read->spec, read->state, &written);
    EXPECT_EQ(absl::BytesToHexString(written.SerializeAsString()), each.bytes) << each.what;
  }
}

State StateOf(const ReduceSpec& spec, const test::Bytes& array) {
  State state = test::Fold(spec, array.data(), 0, spec.count);
  const AccumulatorSet exact = ExactAccumulatorsFor(spec);
  if (exact == 0) return state;
  state.exact = std::make_unique<ExactSums>();
  VisitDType(spec.dtype, [&]<class T>(std::type_identity<T>) {
    for (std::int64_t i = 0; i < spec.count; ++i) {
      T x;
      std::memcpy(&x, array.data() + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
      if constexpr (kIsFloat<T>) Add(ToDouble(x), exact, false, state.exact.get());
    }
  });
  return state;
}

TEST(StateCodec, WhatIsReadAnswersAsWhatWasWritten) {
  for (const DTypeRow& dtype : kDTypes) {
    for (const test::DataKindRow& kind : test::kDataKinds) {
      if (!test::Applies(kind, dtype.dtype)) continue;
      for (const Precision precision : {Precision::kF64, Precision::kExact}) {
        for (const NanPolicy policy : {NanPolicy::kPropagate, NanPolicy::kOmit}) {
          constexpr std::int64_t kCount = 300;
          const ReduceSpec spec{.dtype = dtype.dtype,
                                .count = kCount,
                                .ops = test::OpsOf(dtype.dtype),
                                .nan_policy = policy,
                                .overflow_policy = OverflowPolicy::kWrap,
                                .precision = precision};
          SCOPED_TRACE(test::Describe(spec, kind.name));
          const State state = StateOf(spec, test::MakeData(kind.kind, dtype.dtype, kCount, 1));
          v1::State message;
          ToProto(spec, state, &message);
          const absl::StatusOr<StateOfSpec> read = ParseState(message, StateLimits());
          ASSERT_TRUE(read.ok()) << read.status().ToString();
          EXPECT_EQ(read->spec.ops, spec.ops);
          EXPECT_EQ(read->state.partial.count, kCount);
          const absl::StatusOr<std::vector<Value>> before = Finalize(spec, state);
          const absl::StatusOr<std::vector<Value>> after = Finalize(read->spec, read->state);
          ASSERT_EQ(before.status(), after.status());
          if (!before.ok()) continue;  // nothing but NaNs
          for (std::size_t i = 0; i < before->size(); ++i) {
            EXPECT_TRUE(test::SameBits(before->at(i), after->at(i))) << RowOf(spec.ops[i]).name;
          }
          v1::State again;
          ToProto(read->spec, read->state, &again);
          EXPECT_EQ(again.SerializeAsString(), message.SerializeAsString());
        }
      }
    }
  }
}

// No array has such a state, although each field by itself is one that some array has.
TEST(StateCodec, ContradictionsAreRefused) {
  struct Case {
    DType dtype;
    Precision precision;
    const char* message;
    std::function<void(State*)> spoil;
  };
  const auto integers = [](const char* message, std::function<void(Partial*)> spoil) {
    return Case{DType::kI8, Precision::kF64, message, [spoil](State* state) { spoil(&state->partial); }};
  };
  const auto floats = [](const char* message, std::function<void(Partial*)> spoil) {
    return Case{DType::kF32, Precision::kF64, message, [spoil](State* state) { spoil(&state->partial); }};
  };
  const auto exact = [](const char* message, std::function<void(ExactSums*)> spoil) {
    return Case{DType::kF32, Precision::kExact, message, [spoil](State* state) { spoil(state->exact.get()); }};
  };
  const Case cases[] = {
      integers("sum.integer: got a number of", [](Partial* p) { p->int_sum = Int128{1} << 60; }),
      integers("sum_squares: got less than the square of sum", [](Partial* p) { p->int_sum = -500; }),
      integers("sum_squares: got less than the square of abs_sum", [](Partial* p) { p->int_abs_sum = 500; }),
      integers("abs_sum: got less than the magnitude of sum", [](Partial* p) { p->int_sum = 5, p->int_abs_sum = 0; }),
      integers("product.magnitude: got 0", [](Partial* p) { p->int_product.magnitude = 0; }),
      integers("product.wrapped: got 7", [](Partial* p) { p->int_product.wrapped = 7; }),
      integers("product.wrapped", [](Partial* p) { p->int_product.zero = true; }),
      integers("bits: got", [](Partial* p) { p->bits_xor = 1, p->bits_or = 0; }),
      integers("extrema: got no min_index", [](Partial* p) { p->extrema.min_index = p->extrema.max_index = kNoIndex; }),
      integers("extrema: got keys", [](Partial* p) { p->extrema.max_index = p->extrema.min_index; }),
      integers("extrema: got keys", [](Partial* p) { p->extrema.max_key = p->extrema.min_key; }),
      integers("extrema: got keys", [](Partial* p) { std::swap(p->extrema.min_key, p->extrema.max_key); }),
      integers("extrema.nan_index", [](Partial* p) { p->extrema.nan_index = p->extrema.min_index; }),
      integers("counts.nan", [](Partial* p) { p->nonzero = 0, p->nan = 1; }),
      floats("abs_sum.f64: got -1", [](Partial* p) { p->float_abs_sum = -1; }),
      floats("sum_squares.f64: got -1", [](Partial* p) { p->float_sum_squares = -1; }),
      floats("moments.m2: got -1.25", [](Partial* p) { p->moments.m2 = -1.25; }),
      floats("moments: got values of no element", [](Partial* p) { p->moments.count = 0; }),
      floats("product.mantissa: got 3", [](Partial* p) { p->float_product.mantissa = 3; }),
      exact("sum_squares: got less than the square of", [](ExactSums* s) { s->sum_squares = {}; }),
      exact("abs_sum: got less than the magnitude of sum", [](ExactSums* s) { s->abs_sum = {}; }),
      exact("sum.fixed_point: got a number of", [](ExactSums* s) { s->sum.word[31] = 1 << 14; }),
      exact("non_finite.negative_infinity",
            [](ExactSums* s) { s->positive_infinities = s->negative_infinities = 200; }),
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.message);
    const ReduceSpec spec{.dtype = each.dtype,
                          .count = 300,
                          .ops = test::OpsOf(each.dtype),
                          .overflow_policy = OverflowPolicy::kWrap,
                          .precision = each.precision};
    const auto kind = RowOf(each.dtype).is_float ? test::DataKind::kUniform : test::DataKind::kFactors;
    State state = StateOf(spec, test::MakeData(kind, each.dtype, spec.count, 1));
    v1::State message;
    ToProto(spec, state, &message);
    ASSERT_TRUE(ParseState(message, StateLimits()).ok());
    each.spoil(&state);
    message.Clear();
    ToProto(spec, state, &message);
    const absl::Status status = ParseState(message, StateLimits()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(each.message));
  }
}

// A bound on the magnitude: whatever two states are accepted, the sum of their sums is, too.
TEST(StateCodec, SumsAreWithinWhatElementsCanSumTo) {
  const auto read = [](std::int64_t count, std::int64_t sum) {
    const ReduceSpec spec{.dtype = DType::kI8, .count = count, .ops = {Op::kSum}};
    State state;
    state.partial.int_sum = sum;
    v1::State message;
    ToProto(spec, state, &message);
    return ParseState(message, StateLimits()).status();
  };
  EXPECT_TRUE(read(0, 0).ok());
  EXPECT_THAT(std::string(read(0, -1).message()),
              HasSubstr("sum.integer: got a number of 1 bits; allowed: what 0 elements can sum to, at most 0 x 2^8"));
  EXPECT_FALSE(read(0, 1).ok());
  for (const std::int64_t count : {1, 2, 3, 255, 256}) {
    for (const int sign : {1, -1}) {
      EXPECT_TRUE(read(count, sign * count * 256).ok()) << count;
      EXPECT_FALSE(read(count, sign * (count * 256 + 1)).ok()) << count;
    }
  }
}

TEST(WordBytes, AreWithinMultiplesOfPowersOfTwo) {
  using Words = std::array<std::uint64_t, 3>;
  constexpr std::uint64_t kAll = ~std::uint64_t{0};
  constexpr std::uint64_t kTop = std::uint64_t{1} << 63;
  for (const int bits : {0, 1, 63, 64, 65, 127, 128}) {
    for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{5}, std::uint64_t{1} << 40}) {
      if (bits + 41 > 190) continue;
      Words most{};
      most[static_cast<std::size_t>(bits / 64)] = count << (bits % 64);
      if (bits % 64 > 0 && bits / 64 < 2) most[static_cast<std::size_t>(bits / 64) + 1] = count >> (64 - bits % 64);
      Words more = most;
      for (std::size_t i = 0; ++more[i] == 0; ++i) {
      }
      const auto negated = [](Words words) {
        for (std::uint64_t& word : words) word = ~word;
        for (std::size_t i = 0; i < words.size() && ++words[i] == 0; ++i) {
        }
        return words;
      };
      EXPECT_TRUE(IsWithin(most, count, bits)) << bits << " " << count;
      EXPECT_FALSE(IsWithin(more, count, bits)) << bits << " " << count;
      EXPECT_TRUE(IsWithin(negated(most), count, bits)) << bits << " " << count;
      EXPECT_FALSE(IsWithin(negated(more), count, bits)) << bits << " " << count;
    }
  }
  EXPECT_TRUE(IsWithin(Words{}, 0, 8));
  EXPECT_FALSE(IsWithin(Words{kAll, kAll, kAll}, 0, 8));
  EXPECT_TRUE(IsWithin(Words{kAll, kAll, kAll}, 1, 0));
  EXPECT_FALSE(IsWithin(Words{0, 0, kTop}, kAll, 64));
}

TEST(MergeStates, NamesTheStateThatIsWrong) {
  v1::MergeRequest request;
  for (const char* const bytes : {kEncoded[3].bytes, kEncoded[3].bytes}) {
    ASSERT_TRUE(request.add_states()->ParseFromString(absl::HexStringToBytes(bytes)));
  }
  v1::MergeResponse response;
  ASSERT_TRUE(MergeStates(request, StateLimits(), {}, &response).ok());
  request.mutable_states(1)->set_ddof(3);
  const auto message = [&](const std::vector<std::string>& names) {
    const absl::Status status = MergeStates(request, StateLimits(), names, &response);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(message({}), HasSubstr("states[1]: ddof"));
  EXPECT_THAT(message({"a.state", "b.state"}), HasSubstr("b.state: ddof"));
}

TEST(MergeStates, LimitsHold) {
  v1::MergeRequest request;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(request.add_states()->ParseFromString(absl::HexStringToBytes(kEncoded[4].bytes)));
  }
  const std::int64_t count = request.states(0).count();
  v1::MergeResponse response;
  EXPECT_TRUE(MergeStates(request, {.max_elements = 2 * count}, {}, &response).ok());
  EXPECT_EQ(response.count(), 2 * count);
  EXPECT_FALSE(MergeStates(request, {.max_elements = 2 * count - 1}, {}, &response).ok());
  EXPECT_FALSE(MergeStates(request, {.max_ops = 3}, {}, &response).ok());
}

}  // namespace
}  // namespace reduced

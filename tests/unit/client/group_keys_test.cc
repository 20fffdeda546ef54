// Codes of GROUP BY keys, beside a std::map of what each row's key is.
#include "reduced/group_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "client/lib/key_encoder.h"
#include "client/lib/key_rows.h"

namespace reduced::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The keys of a row as the oracle compares them: missing ones last, numbers as numbers, text by its characters.
using Cell = std::tuple<bool, long double, std::u32string>;  // whether it is missing
constexpr long double kNoNumber = 0;
Cell NoCell() { return {true, kNoNumber, {}}; }
Cell Number(long double number) { return {false, number, {}}; }
// Each byte a character: they order as bytes do.
Cell Bytes(const std::string& text) {
  std::u32string characters;
  for (const char c : text) characters.push_back(static_cast<unsigned char>(c));
  return {false, kNoNumber, characters};
}
using Rows = std::vector<std::vector<Cell>>;  // by row, then by column

struct ExpectedKeys {
  std::vector<std::int64_t> codes, first;
};

class Oracle {
 public:
  explicit Oracle(const Rows& rows) {
    for (const std::vector<Cell>& row : rows) {
      first_.push_back(keys_.try_emplace(row, std::ssize(first_)).first->second);
    }
  }
  ExpectedKeys Expect(bool sort, bool drop) const {
    ExpectedKeys expected;
    for (const auto& [key, first] : keys_) {
      const bool missing = std::any_of(key.begin(), key.end(), [](const Cell& cell) { return std::get<0>(cell); });
      if (!missing || !drop) expected.first.push_back(first);
    }
    if (!sort) std::sort(expected.first.begin(), expected.first.end());
    std::vector<std::int64_t> code(first_.size(), -1);  // by first row
    for (std::size_t g = 0; g < expected.first.size(); ++g) {
      code[static_cast<std::size_t>(expected.first[g])] = static_cast<std::int64_t>(g);
    }
    for (const std::int64_t first : first_) expected.codes.push_back(code[static_cast<std::size_t>(first)]);
    return expected;
  }

 private:
  std::map<std::vector<Cell>, std::int64_t> keys_;  // ascending; the first row of each
  std::vector<std::int64_t> first_;                 // the first row with the key of each row
};

std::vector<std::int64_t> Codes(const KeyCodes& codes) {
  return codes.Visit([&](const auto* each) { return std::vector<std::int64_t>(each, each + codes.rows()); });
}

// Not by EXPECT_EQ of whole vectors: a difference would print millions of numbers.
void ExpectSame(const KeyCodes& codes, const ExpectedKeys& expected) {
  EXPECT_TRUE(codes.first == expected.first) << codes.groups() << " groups, not " << expected.first.size();
  const std::vector<std::int64_t> got = Codes(codes);
  ASSERT_EQ(got.size(), expected.codes.size());
  const auto [at, wanted] = std::mismatch(got.begin(), got.end(), expected.codes.begin());
  if (at != got.end()) ADD_FAILURE() << "row " << at - got.begin() << " has code " << *at << ", not " << *wanted;
}

void ExpectAsOracle(const std::vector<KeyColumn>& columns, const Rows& rows) {
  const Oracle oracle(rows);
  for (const bool sort : {true, false}) {
    for (const std::string& missing : MissingKeyNames()) {
      SCOPED_TRACE(testing::Message() << rows.size() << " rows, sort: " << sort << ", missing: " << missing);
      const absl::StatusOr<KeyCodes> codes = EncodeKeys(columns, {.sort = sort, .missing = missing});
      ASSERT_TRUE(codes.ok()) << codes.status();
      EXPECT_EQ(codes->View().dtype, "i32");
      ExpectSame(*codes, oracle.Expect(sort, missing == "drop"));
    }
  }
}

// The columns of a test keep their memory.
template <class Offset>
struct TextColumn {
  std::vector<Offset> offsets{0};
  std::string data;
  std::vector<std::uint8_t> valid;
  std::vector<std::uint8_t> valid_bits;

  explicit TextColumn(const std::vector<std::optional<std::string>>& texts) : valid_bits(texts.size() / 8 + 2) {
    for (const std::optional<std::string>& text : texts) {
      // What a missing key has in the place of text is no key.
      data += text.value_or("?");
      const std::size_t bit = valid.size() + 3;
      if (text.has_value()) valid_bits[bit / 8] |= static_cast<std::uint8_t>(1U << (bit % 8));
      valid.push_back(text.has_value() ? 7 : 0);
      offsets.push_back(static_cast<Offset>(data.size()));
    }
  }
  KeyColumn ByBytes() const { return KeyColumn::Utf8(offsets, data, {.data = valid.data()}); }
  KeyColumn ByBits() const {
    return KeyColumn::Utf8(offsets, data, {.data = valid_bits.data(), .bits = true, .first_bit = 3});
  }
};

Rows RowsOfTexts(const std::vector<std::optional<std::string>>& texts) {
  Rows rows;
  for (const auto& text : texts) rows.push_back({text.has_value() ? Bytes(*text) : NoCell()});
  return rows;
}

void ExpectTexts(const std::vector<std::optional<std::string>>& texts) {
  const Rows rows = RowsOfTexts(texts);
  const TextColumn<std::int32_t> narrow(texts);
  const TextColumn<std::int64_t> wide(texts);
  ExpectAsOracle({narrow.ByBytes()}, rows);
  ExpectAsOracle({narrow.ByBits()}, rows);
  ExpectAsOracle({wide.ByBits()}, rows);
}

// `rows` texts, of so many different ones.
std::vector<std::optional<std::string>> RandomTexts(std::size_t rows, std::uint64_t distinct,
                                                    const std::string& prefix) {
  std::mt19937_64 random(rows + distinct);
  std::vector<std::optional<std::string>> texts;
  for (std::size_t i = 0; i < rows; ++i) {
    const std::uint64_t number = random() % distinct;
    texts.push_back(prefix + std::to_string(number * number % 1000003));
    if (number % 17 == 3) texts.back() = std::nullopt;
  }
  return texts;
}

TEST(GroupKeysTest, TextsOfAFewRows) {
  ExpectTexts({});
  ExpectTexts({"one"});
  ExpectTexts({std::nullopt});
  ExpectTexts({std::nullopt, std::nullopt, std::nullopt});
  ExpectTexts({"b", "a", "", "b", std::nullopt, "ab", "a"});
  // NULs within, before and after; a byte that is no UTF-8; a prefix of another; the same first 8 and more bytes.
  using namespace std::string_literals;
  ExpectTexts({"a"s, "a\0"s, "a\0\0"s, "\0a"s, "\0"s, ""s, "a\0b"s, "a"s, "a\0"s});
  ExpectTexts({"\xff", "\xed\xa0\x80", "\xc3\xa9", "z", "\xf0\x9f\x98\x80", "\xef\xbf\xbd", "\xff"});
  ExpectTexts({"customer-000017", "customer-000018", "customer-0000170", "customer-00001", "customer-000017"});
}

TEST(GroupKeysTest, TextsByTablesAndByParts) {
  for (const std::uint64_t distinct : {1ULL, 1000ULL, 30000ULL}) {
    const std::vector<std::optional<std::string>> texts =
        RandomTexts(40001, distinct, std::string(distinct / 1000, 'x'));
    ExpectAsOracle({TextColumn<std::int32_t>(texts).ByBits()}, RowsOfTexts(texts));
  }
}

TEST(GroupKeysTest, LongTexts) {
  std::vector<std::optional<std::string>> texts;
  for (int i = 0; i < 40; ++i) {
    texts.push_back(std::string(1 << 16, 'a'));
    texts.back()->at(static_cast<std::size_t>(i % 7) << 13) = 'b';
  }
  ExpectTexts(texts);
}

template <class T>
class NumbersTest : public testing::Test {};
using NumberTypes = testing::Types<bool, std::int8_t, std::int16_t, std::int32_t, std::int64_t, std::uint8_t,
                                   std::uint16_t, std::uint32_t, std::uint64_t, float, double>;
TYPED_TEST_SUITE(NumbersTest, NumberTypes);

TYPED_TEST(NumbersTest, AsTheOracle) {
  using T = TypeParam;
  std::mt19937_64 random(7);
  for (const std::size_t count : {0, 1, 5, 1025, 40000}) {
    for (const std::uint64_t distinct : {1, 5000, 60000}) {
      // unique_ptr instead of vector: of bool.
      const auto numbers = std::make_unique<T[]>(count + 1);
      std::vector<std::uint8_t> valid;
      Rows rows;
      for (std::size_t i = 0; i < count; ++i) {
        // Near each other, far apart, and the limits.
        const std::uint64_t key = random() % distinct;
        numbers[i] = static_cast<T>(key % 2 == 0 ? key : key * 0x9E3779B97F4A7C15);
        if constexpr (std::is_floating_point_v<T>) {
          if (key % 5 == 1) numbers[i] = -numbers[i] / 3;
          if (key % 97 == 1) numbers[i] = std::numeric_limits<T>::quiet_NaN();
          if (key % 97 == 2) numbers[i] = -std::numeric_limits<T>::infinity();
          if (key % 97 == 3) numbers[i] = key % 2 == 0 ? T{0} : -T{0};
          if (key % 97 == 4) numbers[i] = std::numeric_limits<T>::denorm_min();
        } else {
          if (key % 97 == 1) numbers[i] = std::numeric_limits<T>::max();
          if (key % 97 == 2) numbers[i] = std::numeric_limits<T>::min();
        }
        valid.push_back(key % 11 != 5 ? 1 : 0);
        const auto number = static_cast<long double>(numbers[i]);
        rows.push_back({valid.back() == 0 || std::isnan(number) ? NoCell() : Number(number)});
      }
      const ArrayView view = ArrayView::Of(numbers.get(), static_cast<std::int64_t>(count));
      ExpectAsOracle({KeyColumn::Numbers(view, {.data = valid.data()})}, rows);
    }
  }
}

TEST(GroupKeysTest, KeysThatAreSortedOrConstant) {
  std::vector<std::int64_t> sorted, constant;
  Rows of_sorted, of_constant;
  for (std::int64_t i = 0; i < 50000; ++i) {
    sorted.push_back((i / 7) * 1000000007 - 5);
    constant.push_back(std::numeric_limits<std::int64_t>::min());
    of_sorted.push_back({Number(static_cast<long double>(sorted.back()))});
    of_constant.push_back({Number(static_cast<long double>(constant.back()))});
  }
  ExpectAsOracle({KeyColumn::Numbers(ArrayView::Of(sorted))}, of_sorted);
  std::swap(sorted.back(), sorted[40000]);  // and nearly sorted
  std::swap(of_sorted.back(), of_sorted[40000]);
  ExpectAsOracle({KeyColumn::Numbers(ArrayView::Of(sorted))}, of_sorted);
  std::vector<std::optional<std::string>> texts;
  for (int i = 0; i < 40000; ++i) texts.push_back(std::string(static_cast<std::size_t>(i / 1000), 'x'));
  ExpectTexts(texts);
  texts[20000] = std::nullopt;
  ExpectTexts(texts);
  ExpectAsOracle({KeyColumn::Numbers(ArrayView::Of(constant))}, of_constant);
}

TEST(GroupKeysTest, ElementsAtAnyAddressAndAnyByteOfABool) {
  std::vector<char> memory(1 + 4 * sizeof(double));
  const double numbers[] = {2, 1, 2, -1};
  std::memcpy(memory.data() + 1, numbers, sizeof(numbers));
  const ArrayView view = {.data = memory.data() + 1, .dtype = "f64", .shape = {4}};
  auto codes = EncodeKeys({{KeyColumn::Numbers(view)}});
  ASSERT_TRUE(codes.ok()) << codes.status();
  EXPECT_THAT(Codes(*codes), ElementsAre(2, 1, 2, 0));
  const std::uint8_t bools[] = {0, 2, 1, 255};
  codes = EncodeKeys({{KeyColumn::Numbers({.data = bools, .dtype = "bool", .shape = {4}})}});
  ASSERT_TRUE(codes.ok()) << codes.status();
  EXPECT_THAT(Codes(*codes), ElementsAre(0, 1, 1, 1));
}

TEST(GroupKeysTest, FixedWidth) {
  std::mt19937_64 random(3);
  for (const std::size_t count : {0, 1, 30, 50000}) {
    constexpr std::size_t kWidth = 5;
    std::string bytes(count * kWidth, '\0');
    std::vector<char32_t> characters(count * kWidth);
    Rows of_bytes, of_characters;
    for (std::size_t i = 0; i < count; ++i) {
      std::u32string text;
      std::string text_bytes;
      // Characters whose bytes order otherwise than they do, half of a surrogate pair, and NULs in between.
      constexpr char32_t kAny[] = {0, 1, 0x100, 0xff, 0xd800, 0x1F600, 0xffff, 'a'};
      for (std::size_t j = random() % (kWidth + 1); j > 0; --j) {
        text.push_back(kAny[random() % 8]);
        text_bytes.push_back(static_cast<char>(random() % 3 == 0 ? 0xe9 : random() % 3));
      }
      std::copy(text.begin(), text.end(), characters.begin() + static_cast<std::int64_t>(i * kWidth));
      text_bytes.copy(bytes.data() + i * kWidth, kWidth);
      while (!text.empty() && text.back() == 0) text.pop_back();
      while (!text_bytes.empty() && text_bytes.back() == 0) text_bytes.pop_back();
      of_characters.push_back({{false, kNoNumber, text}});
      of_bytes.push_back({Bytes(text_bytes)});
    }
    const auto rows = static_cast<std::int64_t>(count);
    ExpectAsOracle({KeyColumn::Bytes(bytes.data(), rows, kWidth)}, of_bytes);
    ExpectAsOracle({KeyColumn::Ucs4(characters.data(), rows, kWidth)}, of_characters);
  }
  auto codes = EncodeKeys({{KeyColumn::Bytes(nullptr, 3, 0)}});
  ASSERT_TRUE(codes.ok()) << codes.status();
  EXPECT_THAT(Codes(*codes), ElementsAre(0, 0, 0));
}

TEST(GroupKeysTest, SeveralColumns) {
  for (const std::size_t count : {0, 1, 1000, 20000}) {
    std::mt19937_64 random(count);
    std::vector<std::optional<std::string>> texts = RandomTexts(count, 300, "shop ");
    std::vector<std::int32_t> years;
    std::vector<double> prices;
    Rows rows = RowsOfTexts(texts);
    for (std::size_t i = 0; i < count; ++i) {
      years.push_back(static_cast<std::int32_t>(random() % 30) - 15);
      prices.push_back(random() % 50 == 0 ? std::nan("") : static_cast<double>(random() % 4000) / 7);
      rows[i].push_back(Number(years.back()));
      rows[i].push_back(std::isnan(prices.back()) ? NoCell() : Number(prices.back()));
    }
    const TextColumn<std::int32_t> text(texts);
    const std::vector<KeyColumn> columns = {text.ByBits(), KeyColumn::Numbers(ArrayView::Of(years)),
                                            KeyColumn::Numbers(ArrayView::Of(prices))};
    ExpectAsOracle(columns, rows);
    ExpectAsOracle({columns[1], columns[0]}, [&] {
      Rows swapped;
      for (const std::vector<Cell>& row : rows) swapped.push_back({row[1], row[0]});
      return swapped;
    }());
  }
}

// More combinations than a number of 64 bits has: five columns of 2^14 different keys each.
TEST(GroupKeysTest, ColumnsOfManyCombinations) {
  constexpr std::size_t kRows = 1 << 14;
  std::vector<std::vector<std::int64_t>> numbers(5);
  Rows rows(kRows);
  for (std::size_t column = 0; column < numbers.size(); ++column) {
    for (std::size_t i = 0; i < kRows; ++i) {
      numbers[column].push_back(static_cast<std::int64_t>(i * (2 * column + 1) * 40503 % kRows));
      rows[i].push_back(Number(static_cast<long double>(numbers[column].back())));
    }
  }
  std::vector<KeyColumn> columns;
  for (const std::vector<std::int64_t>& column : numbers) columns.push_back(KeyColumn::Numbers(ArrayView::Of(column)));
  ExpectAsOracle(columns, rows);
}

// Keys whose hashes are the same are told apart all the same, by every way through the encoder.
TEST(GroupKeysTest, HashesThatCollide) {
  const std::vector<std::optional<std::string>> texts = RandomTexts(10000, 500, "k");
  const TextColumn<std::int32_t> column(texts);
  auto rows = RowsOf(column.ByBytes(), "keys[0]");
  ASSERT_TRUE(rows.ok()) << rows.status();
  const ExpectedKeys expected = Oracle(RowsOfTexts(texts)).Expect(true, true);
  for (const std::uint64_t mask : {0ULL, 1ULL << 63, 0xff00ULL}) {
    for (const std::int64_t few_groups : {0, 1 << 20}) {
      const KeyEncoding how = {.hash_mask = mask, .few_groups = few_groups};
      ExpectSame(EncodeRows<std::string_view, std::int32_t>(*std::get<TextRows>(*rows), how), expected);
    }
  }
}

TEST(GroupKeysTest, CodesOf64Bits) {
  const std::vector<std::optional<std::string>> texts = RandomTexts(50000, 20000, "k");
  const TextColumn<std::int32_t> column(texts);
  std::vector<std::int64_t> numbers;
  for (const auto& text : texts) numbers.push_back(text.has_value() ? std::stoll(text->substr(1)) : -1);
  auto of_texts = RowsOf(column.ByBytes(), "keys[0]");
  auto of_numbers = RowsOf(KeyColumn::Numbers(ArrayView::Of(numbers)), "keys[0]");
  ASSERT_TRUE(of_texts.ok() && of_numbers.ok());
  Rows rows;
  for (const std::int64_t number : numbers) rows.push_back({Number(static_cast<long double>(number))});
  for (const std::int64_t few_groups : {0, 1 << 20}) {
    const KeyEncoding how = {.sort = false, .few_groups = few_groups};
    const KeyCodes codes = EncodeRows<std::string_view, std::int64_t>(*std::get<TextRows>(*of_texts), how);
    EXPECT_EQ(codes.View().dtype, "i64");
    ExpectSame(codes, Oracle(RowsOfTexts(texts)).Expect(false, true));
    ExpectSame(EncodeRows<std::uint64_t, std::int64_t>(*std::get<NumberRows>(*of_numbers), how),
               Oracle(rows).Expect(false, true));
  }
}

TEST(GroupKeysTest, CodesAreKeysOfAPartition) {
  const std::vector<std::int32_t> numbers = {5, 3, 5};
  const auto codes = EncodeKeys({{KeyColumn::Numbers(ArrayView::Of(numbers))}});
  ASSERT_TRUE(codes.ok()) << codes.status();
  const Keys keys = codes->AsKeys();
  EXPECT_EQ(keys.groups, 2);
  EXPECT_TRUE(keys.drop_outside);
  EXPECT_EQ(std::get<ArrayView>(keys.keys).dtype, "i32");
}

TEST(GroupKeysTest, WhatIsRefused) {
  const std::vector<std::int32_t> three = {1, 2, 3}, two = {1, 2};
  const std::vector<std::int64_t> descending = {0, 2, 1, 3}, too_long = {0, 4}, negative = {-1, 2};
  const std::vector<std::int32_t> none;
  const auto error = [](std::vector<KeyColumn> columns, const EncodeOptions& options = {}) {
    const absl::StatusOr<KeyCodes> codes = EncodeKeys(columns, options);
    EXPECT_EQ(codes.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(codes.status().message());
  };
  const KeyColumn numbers = KeyColumn::Numbers(ArrayView::Of(three));
  EXPECT_EQ(error({}), "keys: got no column; allowed: one or more");
  EXPECT_EQ(error({numbers, KeyColumn::Numbers(ArrayView::Of(two))}), "keys[1]: got 2 rows; allowed: the 3 of keys[0]");
  EXPECT_EQ(error({numbers}, {.missing = "keep"}), "missing: got keep; allowed: drop, group");
  EXPECT_EQ(error({KeyColumn::Numbers({.data = two.data(), .dtype = "f16", .shape = {4}})}),
            "keys[0]: got dtype f16; allowed: bool, i8 to i64, u8 to u64, f32, f64");
  EXPECT_EQ(error({KeyColumn::Numbers(ArrayView::Of(two, {{2, 1}}))}),
            "keys[0]: got shape [2, 1]; allowed: one dimension");
  EXPECT_THAT(error({KeyColumn::Numbers(ArrayView::Of(two, {{4}}))}), HasSubstr("keys[0]: got 4 elements"));
  EXPECT_EQ(error({KeyColumn::Bytes("", 1, -1)}), "keys[0]: got 1 rows of width -1; allowed: 0 or more");
  EXPECT_THAT(error({KeyColumn::Utf8(descending, "abc")}), HasSubstr("descend"));
  EXPECT_THAT(error({KeyColumn::Utf8(too_long, "abc")}), HasSubstr("the 3 bytes of the data"));
  EXPECT_THAT(error({KeyColumn::Utf8(negative, "abc")}), HasSubstr("got offsets from -1 to 2"));
  EXPECT_EQ(error({KeyColumn::Utf8(none, "abc")}), "keys[0]: got no offsets; allowed: rows + 1");
}

}  // namespace
}  // namespace reduced::client

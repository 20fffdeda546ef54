// The readers of .npy, raw and CSV inputs, and what they say of bad ones.
#include "client/reducectl/input/input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/reducectl/input/number.h"
#include "client/reducectl/input/text.h"
#include "tests/support/text_source.h"

namespace reduced::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

template <class T>
std::string ErrorOf(const absl::StatusOr<T>& result) {
  return result.ok() ? "OK" : std::string(result.status().message());
}

// A .npy file with this header and data.
std::string Npy(const std::string& header, const std::string& data, char major = 1) {
  std::string file = std::string("\x93NUMPY") + major + '\0';
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i) file += static_cast<char>(header.size() >> (8 * i));
  return file + header + data;
}

std::string Header(const std::string& descr, const std::string& shape, const std::string& fortran = "False") {
  return "{'descr': " + descr + ", 'fortran_order': " + fortran + ", 'shape': " + shape + ", }          \n";
}

std::string Data(std::size_t bytes) { return std::string(bytes, '\x01'); }

std::string DataOf(const Input& input) { return std::string(input.memory.bytes().substr(input.layout.offset)); }

TEST(Npy, ReadsEveryDType) {
  const struct {
    std::string descr, dtype;
    std::size_t bytes;
  } kCases[] = {{"'|b1'", "bool", 1}, {"'|i1'", "i8", 1},  {"'<i2'", "i16", 2}, {"'<i4'", "i32", 4},
                {"'<i8'", "i64", 8},  {"'|u1'", "u8", 1},  {"'<u2'", "u16", 2}, {"'<u4'", "u32", 4},
                {"'<u8'", "u64", 8},  {"'<f2'", "f16", 2}, {"'<f4'", "f32", 4}, {"'<f8'", "f64", 8}};
  for (const auto& [descr, dtype, bytes] : kCases) {
    const std::string data = Data(6 * bytes);
    const std::string file = Npy(Header(descr, "(2, 3)"), data);
    const absl::StatusOr<Layout> layout = ParseNpy(file);
    ASSERT_TRUE(layout.ok()) << descr << ErrorOf(layout);
    EXPECT_EQ(layout->dtype, dtype);
    EXPECT_THAT(layout->shape, ElementsAre(2, 3));
    EXPECT_EQ(file.substr(layout->offset), data);
  }
}

TEST(Npy, ReadsVersionTwoScalarsVectorsAndEmptyOnes) {
  EXPECT_THAT(ParseNpy(Npy(Header("'<f4'", "(3,)"), Data(12), 2))->shape, ElementsAre(3));
  EXPECT_THAT(ParseNpy(Npy(Header("'<f4'", "()"), Data(4)))->shape, IsEmpty());
  EXPECT_THAT(ParseNpy(Npy(Header("'<f4'", "(0,)"), ""))->shape, ElementsAre(0));
  EXPECT_THAT(ParseNpy(Npy("{\"shape\": (1,), \"fortran_order\": False, \"descr\": \"<f4\"}", Data(4)))->shape,
              ElementsAre(1));
}

TEST(Npy, KnowsOtherOrdersAndBf16) {
  const Layout layout = *ParseNpy(Npy(Header("'>i2'", "(2, 3)", "True"), Data(12), 3));
  EXPECT_TRUE(layout.fortran && layout.big_endian);
  EXPECT_EQ(layout.dtype, "i16");
  EXPECT_EQ(ParseNpy(Npy(Header("'<V2'", "(3,)"), Data(6)))->dtype, "bf16");
}

struct BadNpy {
  std::string name, file, message;
};
void PrintTo(const BadNpy& bad, std::ostream* out) { *out << bad.name; }

class BadNpyTest : public ::testing::TestWithParam<BadNpy> {};

TEST_P(BadNpyTest, SaysWhatIsWrong) {
  const absl::StatusOr<Layout> layout = ParseNpy(GetParam().file);
  EXPECT_TRUE(absl::IsInvalidArgument(layout.status()));
  EXPECT_THAT(ErrorOf(layout), HasSubstr(GetParam().message));
}

const std::string kGood = Npy(Header("'<f4'", "(3,)"), Data(12));

INSTANTIATE_TEST_SUITE_P(
    All, BadNpyTest,
    ::testing::Values(
        BadNpy{"Empty", "", "isn't a .npy file"},
        BadNpy{"Text", "hello, world", "isn't a .npy file: it starts with \"hello,\", not \"\\x93NUMPY\""},
        BadNpy{"NoVersion", kGood.substr(0, 7), "got 7 bytes of preamble; allowed: 8"},
        BadNpy{"NoLength", kGood.substr(0, 9), "got 9 bytes of preamble; allowed: 10"},
        BadNpy{"HalfHeader", kGood.substr(0, 30), "got 20 bytes of header; allowed: "},
        BadNpy{"HalfData", kGood.substr(0, kGood.size() - 5), "got 7 bytes of data; allowed: 12"},
        BadNpy{"TooLong", kGood + "??", "data: got 14 bytes; allowed: 12"},
        BadNpy{"Version4", Npy(Header("'<f4'", "(3,)"), Data(12), 4),
               "format version: got 4.0; allowed: 1.0, 2.0 and 3.0"},
        BadNpy{"Version1_1", std::string(kGood).replace(7, 1, "\x01"),
               "format version: got 1.1; allowed: 1.0, 2.0 and 3.0"},
        BadNpy{"HugeHeader", Npy(std::string(70000, ' '), "", 2), "header: got 70000 bytes; allowed: 65536"},
        BadNpy{"Object", Npy(Header("'|O'", "(3,)"), Data(12)), "dtype: got Python objects"},
        BadNpy{"Void", Npy(Header("'|V2'", "(3,)"), Data(6)), "dtype: got '|V2'; allowed: "},
        BadNpy{"Complex", Npy(Header("'<c8'", "(3,)"), Data(24)), "dtype: got '<c8'; allowed: b1, i1, i2"},
        BadNpy{"Text32", Npy(Header("'<U3'", "(3,)"), Data(36)), "dtype: got '<U3'; allowed: "},
        BadNpy{"Structured", Npy(Header("[('a', '<f4'), ('b', '<i4')]", "(3,)"), Data(24)),
               "dtype: got [('a', '<f4'), ('b', '<i4')]; allowed: "},
        BadNpy{"NegativeShape", Npy(Header("'<f4'", "(-3,)"), Data(12)), "'shape' has an item that isn't a length"},
        BadNpy{"HugeShape", Npy(Header("'<f8'", "(4294967296, 4294967296)"), Data(12)), "allowed: at most"},
        BadNpy{"NumberAsShape", Npy(Header("'<f4'", "3"), Data(12)), "'shape' is not a tuple"},
        BadNpy{"NoShape", Npy("{'descr': '<f4', 'fortran_order': False}", Data(12)),
               "'descr', 'fortran_order' or 'shape' is missing"},
        BadNpy{"NoDict", Npy("hello", Data(12)), "bad .npy header: no dictionary in \"hello\""},
        BadNpy{"OddBrackets", Npy("{'descr': ((('<f4', )}", Data(12)), "bad .npy header: "},
        BadNpy{"OddOrder", Npy(Header("'<f4'", "(3,)", "Maybe"), Data(12)), "neither True nor False"}),
    [](const auto& info) { return info.param.name; });

// Whatever byte of a header is lost or changed, the reader answers, and never reads more than there is.
TEST(Npy, SurvivesDamage) {
  for (std::size_t i = 0; i < kGood.size() - 12; ++i) {
    EXPECT_FALSE(ParseNpy(kGood.substr(0, i)).ok()) << i;
    for (const char c : {'\0', '\'', '(', ')', '{', ',', '9', '\xff'}) {
      std::string damaged = kGood;
      damaged[i] = c;
      const absl::StatusOr<Layout> layout = ParseNpy(damaged);
      if (layout.ok()) {
        EXPECT_EQ(damaged.size() - layout->offset, ArrayBytes(layout->dtype, layout->shape).value());
      }
    }
  }
}

TEST(Raw, TakesWhatFollowsTheOffset) {
  const absl::StatusOr<Layout> layout = ParseRaw(10, {.dtype = "bf16", .offset = 2});
  ASSERT_TRUE(layout.ok()) << ErrorOf(layout);
  EXPECT_EQ(layout->dtype, "bf16");
  EXPECT_THAT(layout->shape, ElementsAre(4));
  EXPECT_EQ(layout->offset, 2);
}

TEST(Raw, ChecksSizes) {
  InputOptions options{.dtype = "f32"};
  EXPECT_EQ(ErrorOf(ParseRaw(10, options)), "got 10 bytes after offset 0; allowed: multiples of the 4 bytes of f32");
  options.offset = 11;
  EXPECT_EQ(ErrorOf(ParseRaw(10, options)), "offset: got 11; allowed: 0 to 10, the bytes of the file");
  options.offset = 2;
  options.shape = {1, 3};
  EXPECT_EQ(ErrorOf(ParseRaw(10, options)),
            "got 8 bytes after offset 2; allowed: 12, the bytes of shape (1, 3) of f32");
  options.shape = {2, 1};
  EXPECT_THAT(ParseRaw(10, options)->shape, ElementsAre(2, 1));
  options.dtype = "f33";
  EXPECT_THAT(ErrorOf(ParseRaw(10, options)), HasSubstr("dtype: got \"f33\""));
}

// The columns of a text: each as "NAME DTYPE: ELEMENTS", with spaces between them.
absl::StatusOr<std::vector<std::string>> Columns(const std::string& text, const InputOptions& options = {},
                                                 std::vector<std::string>* notes = nullptr) {
  auto reader = TextReader::Open(std::make_shared<TextSource>(text), options);
  if (!reader.ok()) return reader.status();
  const auto more = (*reader)->Read(std::numeric_limits<std::size_t>::max());
  if (!more.ok()) return more.status();
  std::vector<std::string> columns;
  for (TextReader::Column& column : (*reader)->columns()) {
    const std::string dtype = column.numbers.dtype();
    std::string shown = absl::StrCat(column.name, " ", dtype, ":");
    const Memory memory = column.numbers.Take();
    const absl::string_view bytes = memory.bytes();
    const std::size_t width = static_cast<std::size_t>(*DTypeBytes(dtype));
    for (std::size_t at = 0; at < bytes.size(); at += width) {
      double f64 = 0;
      float f32 = 0;
      std::int64_t integer = 0;
      std::memcpy(dtype == "f64"   ? static_cast<void*>(&f64)
                  : dtype == "f32" ? static_cast<void*>(&f32)
                                   : &integer,
                  bytes.data() + at, width);
      absl::StrAppend(&shown, " ",
                      dtype == "f64"   ? absl::StrCat(f64)
                      : dtype == "f32" ? absl::StrCat(f32)
                                       : absl::StrCat(integer));
    }
    columns.push_back(shown);
  }
  if (notes != nullptr) *notes = (*reader)->notes();
  return columns;
}

std::string ColumnsText(const std::string& text, const InputOptions& options = {}) {
  const auto columns = Columns(text, options);
  return columns.ok() ? absl::StrJoin(*columns, "; ") : std::string(columns.status().message());
}

TEST(Text, ReadsColumnsByNameOrIndex) {
  const std::string text = "date,co2\n1958,316.1\n1959,\n1960,NaN\n1961, +3e2 \n";
  EXPECT_EQ(ColumnsText(text, {.columns = {"co2"}}), "co2 f64: 316.1 nan nan 300");
  EXPECT_EQ(ColumnsText(text, {.columns = {"1"}}), "co2 f64: 316.1 nan nan 300");
  EXPECT_EQ(ColumnsText(text, {.columns = {"date"}}), "date i64: 1958 1959 1960 1961");
  EXPECT_EQ(ColumnsText(text, {.columns = {"co2", "0"}}), "co2 f64: 316.1 nan nan 300; date i64: 1958 1959 1960 1961");
  EXPECT_EQ(ColumnsText("a,b\n1,2\n", {.columns = {"all"}}), "a i64: 1; b i64: 2");
}

TEST(Text, LeavesOutColumnsOfTextOnlyIfAllAreAskedFor) {
  std::vector<std::string> notes;
  const std::string text = "name,n\nada,1\nbob,2\n";
  EXPECT_EQ(absl::StrJoin(*Columns(text, {.all_columns = true}, &notes), "; "), "n i64: 1 2");
  EXPECT_THAT(notes, ElementsAre("column \"name\" isn't numbers, and is left out"));
  EXPECT_THAT(ColumnsText(text, {.columns = {"name"}}), HasSubstr("line 2: column \"name\": got \"ada\""));
  EXPECT_THAT(ColumnsText("x,y\n1,2\nb,3\n", {.all_columns = true}), HasSubstr("line 3: column \"x\": got \"b\""));
  EXPECT_EQ(ColumnsText("x\na\n", {.columns = {"all"}}), "no column has numbers");
}

TEST(Text, FindsOutAboutTheHeader) {
  EXPECT_EQ(ColumnsText("x\n1\n2\n"), "x i64: 1 2");
  EXPECT_EQ(ColumnsText("1\n2\n"), "0 i64: 1 2");
  EXPECT_EQ(ColumnsText("x\n"), "x f64:");
  // Labels, as pandas writes them.
  EXPECT_EQ(ColumnsText("2019,2020\n1.5,2.5\n", {.columns = {"2020"}}), "2020 f64: 2.5");
  EXPECT_EQ(ColumnsText("2019,2020\n1.5,2.5\n", {.columns = {"all"}}), "2019 f64: 1.5; 2020 f64: 2.5");
  EXPECT_EQ(ColumnsText(",0,1\n0,1.5,2.5\n", {.columns = {"1"}}), "1 f64: 2.5");
  EXPECT_EQ(ColumnsText("country,2019,2020\nDE,1,2\n", {.columns = {"2020"}}), "2020 i64: 2");
  // Data.
  EXPECT_EQ(ColumnsText("1,2\n3,4\n", {.columns = {"1"}}), "1 i64: 2 4");
  EXPECT_EQ(ColumnsText("2019.5,2020.5\n1,2\n", {.columns = {"0"}}), "0 f64: 2019.5 1");
  // What can be either.
  EXPECT_EQ(ColumnsText("a,7\nb,2\n", {.columns = {"1"}}),
            "line 1: header: got both text and numbers (a, 7); add --header yes if this line has the names of the "
            "columns, else --header no");
  EXPECT_EQ(ColumnsText("a,7\nb,2\n", {.columns = {"1"}, .header = Header::kNo}), "1 i64: 7 2");
  EXPECT_EQ(ColumnsText("a,7\nb,2\n", {.columns = {"1"}, .header = Header::kYes}), "7 i64: 2");
  EXPECT_EQ(ColumnsText("a,7\nb,2\n", {.columns = {"7"}}), "7 i64: 2");
  std::vector<std::string> notes;
  ASSERT_TRUE(Columns("0,1\n2,3\n", {.columns = {"all"}}, &notes).ok());
  EXPECT_THAT(notes, ElementsAre(StartsWith("line 1 (0, 1) is taken as the header; ")));
}

TEST(Text, FindsTheDelimiter) {
  EXPECT_EQ(ColumnsText("a;b\n1,5;2\n", {.columns = {"b"}}), "b i64: 2");
  EXPECT_EQ(ColumnsText("a;b\n1,5;2\n", {.columns = {"a"}, .comma = Comma::kDecimal}), "a f64: 1.5");
  EXPECT_EQ(ColumnsText("1,5\n2,5\n", {.comma = Comma::kDecimal}), "0 f64: 1.5 2.5");
  EXPECT_EQ(ColumnsText("a;b\n1,500;2\n", {.columns = {"a"}, .comma = Comma::kThousands}), "a i64: 1500");
  for (const std::string no_thousands : {"1234,567", "1,50", "1,5000", ",500", "1,500,00", "1,500.5,000"}) {
    EXPECT_THAT(ColumnsText("a;b\n" + no_thousands + ";2\n", {.columns = {"a"}, .comma = Comma::kThousands}),
                HasSubstr("got \"" + no_thousands + "\"; allowed: "));
  }
  EXPECT_THAT(ColumnsText("a;b\n1,5;2\n", {.columns = {"a"}}),
              HasSubstr("got \"1,5\"; allowed: numbers in the range of f64; add --decimal , if the comma"));
  EXPECT_THAT(ColumnsText("a;b\n1,500;2\n", {.columns = {"a"}}), HasSubstr("--decimal . if it separates thousands"));
  EXPECT_EQ(ColumnsText("a\tb\n1\t2\n", {.columns = {"b"}}), "b i64: 2");
  EXPECT_EQ(ColumnsText("a|b\n1|2\n", {.columns = {"b"}}), "b i64: 2");
  EXPECT_EQ(ColumnsText("  1.5   2\n 3\t 4  \n", {.columns = {"1"}}), "1 i64: 2 4");
  EXPECT_EQ(ColumnsText("sepal length\n1\n2\n"), "sepal length i64: 1 2");
  EXPECT_EQ(ColumnsText("\"x; y\",b\n1,2\n", {.columns = {"b"}}), "b i64: 2");
  EXPECT_EQ(ColumnsText("a:b\n1:2\n", {.columns = {"b"}, .delimiter = ':'}), "b i64: 2");
}

TEST(Text, FindsTheType) {
  EXPECT_EQ(ColumnsText("9007199254740993\n-9223372036854775808\n9223372036854775807\n"),
            "0 i64: 9007199254740993 -9223372036854775808 9223372036854775807");
  EXPECT_EQ(ColumnsText("1\n2.5\n3\n"), "0 f64: 1 2.5 3");
  EXPECT_EQ(ColumnsText("1.5\n2\n\"\"\n3\n"), "0 f64: 1.5 2 nan 3");
  EXPECT_EQ(ColumnsText("1\nNA\n2\n"), "0 f64: 1 nan 2");
  EXPECT_EQ(ColumnsText("x\nNA\n2\n"), "x f64: nan 2");
  EXPECT_EQ(ColumnsText("True\nFALSE\n"), "0 bool: 1 0");
  EXPECT_EQ(ColumnsText("x\nTrue\nnull\n3\n"), "x f64: 1 nan 3");
  EXPECT_THAT(
      ColumnsText("x\n1\n9223372036854775808\n"),
      HasSubstr("line 3: column \"x\": got \"9223372036854775808\"; allowed: whole numbers from -2^63 to 2^63 - 1"));
  EXPECT_EQ(ColumnsText("18446744073709551615\n", {.dtype = "u64"}), "0 u64: -1");  // as its bits are shown here
  EXPECT_EQ(ColumnsText("9223372036854775808\n", {.dtype = "f64"}), "0 f64: 9.22337e+18");
  EXPECT_EQ(ColumnsText("x\n1\nTrue\n0.1\n", {.dtype = "f32"}), "x f32: 1 1 0.1");
  EXPECT_EQ(ColumnsText("1\n-3\n", {.dtype = "i16"}), "0 i16: 1 65533");
  for (const auto& [text, dtype] : {std::pair{"300", "u8"},
                                    {"-1", "u8"},
                                    {"1.5", "i32"},
                                    {"NA", "i32"},
                                    {"1e39", "f32"},
                                    {"2", "bool"},
                                    {"7e4", "f16"}}) {
    EXPECT_THAT(ColumnsText(absl::StrCat("x\n", text), {.dtype = dtype}),
                HasSubstr(absl::StrCat("numbers that ", dtype, " can hold")))
        << text;
  }
}

// Decimals are the nearest f64, however they are written and however many digits they have.
TEST(Text, DecimalsAreTheNearestF64) {
  std::vector<std::string> texts = {"0.0",
                                    "-0.0",
                                    "0.1",
                                    "-0.3",
                                    "1.",
                                    ".5",
                                    "00.10",
                                    "9007199254740993.0",
                                    "9007199254740992.5",
                                    "900719925474.0993",
                                    "0.000000000000000001",
                                    "0.9007199254740993",
                                    "123456789012345678.0",
                                    "1234567890.12345678",
                                    "0.12345678901234567890",
                                    "179769313486231570000.5",
                                    "1.5e3",
                                    "2.5E-3"};
  std::mt19937_64 generator(16);
  for (int i = 0; i < 20'000; ++i) {
    std::string digits = absl::StrCat(generator() >> generator() % 60);
    const std::size_t point = generator() % (digits.size() + 1);
    texts.push_back(absl::StrCat(generator() % 2 == 0 ? "-" : "", point == 0 ? "0" : digits.substr(0, point), ".",
                                 digits.substr(point), "0"));
  }
  NumberColumn column("", Comma::kDefault);
  for (const std::string& text : texts) ASSERT_EQ(column.Append(text), nullptr) << text;
  ASSERT_EQ(column.dtype(), "f64");
  const Memory memory = column.Take();
  ASSERT_EQ(memory.bytes().size(), texts.size() * sizeof(double));
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const double expected = std::strtod(texts[i].c_str(), nullptr);
    double number = 0;
    std::memcpy(&number, memory.bytes().data() + i * sizeof(double), sizeof(double));
    EXPECT_EQ(std::bit_cast<std::uint64_t>(number), std::bit_cast<std::uint64_t>(expected)) << texts[i];
  }
}

TEST(Text, TakesWhatPeopleWrite) {
  EXPECT_EQ(ColumnsText("\xEF\xBB\xBF\"a, b\",c\r\n\"1\",2\r\n\r\n3,4", {.columns = {"a, b"}}), "a, b i64: 1 3");
  EXPECT_EQ(ColumnsText("inf\n-Infinity\n1e-3\n1e-400\n"), "0 f64: inf -inf 0.001 0");
  EXPECT_EQ(ColumnsText("n,m\n\"1,234\",1\n\"-12,345,678.5\",2\n", {.columns = {"n"}}), "n f64: 1234 -1.23457e+07");
  EXPECT_THAT(ColumnsText("n,m\n\"1,23\",1\n", {.columns = {"n"}}), HasSubstr("got \"1,23\""));
  EXPECT_EQ(ColumnsText("# a comment, with commas\nx\n# another\n1\n#N/A\n2\n"), "x f64: 1 nan 2");
  EXPECT_EQ(ColumnsText("x,y\nNA,1\nN/A,1\nnull,1\nNone,1\n,1\n", {.columns = {"x"}}), "x f64: nan nan nan nan nan");
  EXPECT_EQ(ColumnsText("x,y\n\"two\nlines\",1\n\"5\"\" pipe\",2\n6\" pipe,3\n", {.columns = {"y"}}), "y i64: 1 2 3");
}

std::string Repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(Text, SaysWhatIsWrong) {
  EXPECT_EQ(ColumnsText("date,co2\n1958,316\n\n1959,many\n", {.columns = {"co2"}}),
            "line 4: column \"co2\": got \"many\"; allowed: numbers in the range of f64");
  EXPECT_EQ(ColumnsText("a,b\n\"x\ny\",1\n3,4x\n", {.columns = {"b"}}),
            "line 4: column \"b\": got \"4x\"; allowed: numbers in the range of f64");
  EXPECT_THAT(ColumnsText("x\n1e999\n"), HasSubstr("line 2: column \"x\": got \"1e999\""));
  EXPECT_EQ(ColumnsText("a,b\n1\n", {.columns = {"b"}}), "line 2: got 1 fields; allowed: 2, as line 1 has");
  EXPECT_EQ(ColumnsText("a,b\n1,2\n3,4,5\n", {.columns = {"a"}}), "line 3: got 3 fields; allowed: 2, as line 1 has");
  EXPECT_EQ(ColumnsText("a,b\n1,2\n", {.columns = {"c"}}), "line 1: column: got \"c\"; allowed: a, b, or 0 to 1");
  EXPECT_EQ(ColumnsText("a,b\n1,2\n", {.columns = {"2"}}), "line 1: column: got \"2\"; allowed: a, b, or 0 to 1");
  EXPECT_EQ(ColumnsText("a,a\n1,2\n", {.columns = {"a"}}),
            "line 1: column: got \"a\", which several columns are called; allowed: 0 to 1");
  EXPECT_EQ(ColumnsText("a,b\n1,2\n"), "line 1: got 2 columns (a, b); choose with --column, or --column all");
  const std::string many = absl::StrCat("a\x1b[2J", std::string(10'000, 'b'), Repeated(",c", 100'000), "\n1\n");
  EXPECT_LT(ColumnsText(many).size(), 2000U);
  EXPECT_LT(ColumnsText(many, {.columns = {"d"}}).size(), 2000U);
  EXPECT_THAT(ColumnsText(many, {.columns = {"d"}}), HasSubstr("c, ..., or 0 to 100000"));
  EXPECT_EQ(ColumnsText("a\n\"1\n2\n"), "line 2: bad CSV: a quoted field isn't closed");
  EXPECT_EQ(ColumnsText("a\n\"1\"2\n"), "line 2: bad CSV: text follows a quoted field");
  EXPECT_EQ(ColumnsText("a\r1\r2\r"),
            "line 1: got a carriage return within a line; allowed: lines that end with LF or CR LF");
  EXPECT_EQ(ColumnsText(""), "got an empty text; allowed: at least one row");
  EXPECT_EQ(ColumnsText("\n\n"), "got an empty text; allowed: at least one row");
  EXPECT_THAT(ColumnsText(std::string("\xff\xfe"
                                      "1\0\n\0",
                                      6)),
              HasSubstr("got UTF-16; allowed: UTF-8"));
  EXPECT_THAT(ColumnsText(std::string("1\n2\0003\n", 6)), HasSubstr("isn't text: it has a NUL byte"));
}

// Rows that end beyond the reader's buffer, wherever its pieces end.
TEST(Text, ReadsLongTexts) {
  std::string text = "a,b,c\n";
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < 400'000; ++i) {
    absl::StrAppend(&text, i, i % 7 == 0 ? ",\"a \"\"quoted\"\" one, with a comma\"," : ",text,", i * i % 1000, "\n");
    sum += i * i % 1000;
  }
  auto reader = *TextReader::Open(std::make_shared<TextSource>(text), {.columns = {"a", "c"}});
  std::int64_t got = 0, rows = 0;
  for (bool more = true; more;) {
    more = *reader->Read(10'000);
    rows += static_cast<std::int64_t>(reader->columns()[0].numbers.count());
    for (TextReader::Column& column : reader->columns()) {
      const Memory memory = column.numbers.Take();
      std::vector<std::int64_t> numbers(memory.bytes().size() / 8);
      if (!numbers.empty()) std::memcpy(numbers.data(), memory.bytes().data(), memory.bytes().size());
      for (const std::int64_t number : numbers) got += column.name == "c" ? number : 0;
    }
  }
  EXPECT_EQ(rows, 400'000);
  EXPECT_EQ(got, sum);
}

class ReadInputTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& bytes) {
    const std::string path = ::testing::TempDir() + "/reducectl_input_test_" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
};

TEST_F(ReadInputTest, TellsTheFormat) {
  EXPECT_EQ(ReadInput(Write("a.bin", kGood), {})->layout.dtype, "f32");
  EXPECT_EQ(ReadInput(Write("a.csv", "1\n2\n"), {})->layout.dtype, "i64");
  EXPECT_EQ(ReadInput(Write("a.txt", "1\n2.5\n"), {})->layout.dtype, "f64");
  EXPECT_EQ(ReadInput(Write("a.csv", "1\n2\n"), {.dtype = "u8"})->layout.shape.at(0), 2);
  EXPECT_EQ(ReadInput(Write("a.txt", "1\n2\n"), {.dtype = "u8"})->layout.dtype, "u8");
  EXPECT_EQ(ReadInput(Write("a.npy", kGood), {.format = "raw", .dtype = "u8"})->layout.dtype, "u8");
}

TEST_F(ReadInputTest, SaysWhatIsWrong) {
  EXPECT_THAT(ErrorOf(ReadInput(Write("b.npy", "nothing"), {})), HasSubstr("isn't a .npy file"));
  EXPECT_THAT(
      ErrorOf(ReadInput(Write("b.bin",
                              "\x7f"
                              "ELF\x01"),
                        {})),
      HasSubstr("has an unknown format: it begins with \"\\x7f\\x45LF\\x01\", which isn't text; allowed: .npy"));
  EXPECT_THAT(ErrorOf(ReadInput(Write("b.npz", "nothing"), {})), HasSubstr("bad .npz file: Not a zip archive"));
  EXPECT_THAT(ErrorOf(ReadInput("/dev/zero", {})), HasSubstr("unknown format"));
  EXPECT_THAT(ErrorOf(ReadInput(Write("c.npy", kGood), {.dtype = "f32"})),
              HasSubstr("is a .npy file, which has its own dtype"));
  EXPECT_THAT(ErrorOf(ReadInput(::testing::TempDir(), {})), HasSubstr("Is a directory"));
  EXPECT_THAT(ErrorOf(ReadInput("/does/not/exist", {})), HasSubstr("No such file or directory"));
}

// Wherever it is held, it is the same.
TEST_F(ReadInputTest, HoldsItWhereItIsAskedTo) {
  const std::string numbers(16, '\0');  // 1 and 2 of f64
  for (const Hold hold : {Hold::kOwn, Hold::kShareLarge, Hold::kShare}) {
    for (const auto& [name, bytes, dtype, data] :
         {std::tuple{"d.npy", kGood, "", Data(12)}, std::tuple{"d.bin", Data(6), "u8", Data(6)},
          std::tuple{"empty.bin", std::string(), "f64", std::string()},
          std::tuple{"zeros.csv", std::string("0\n0.0\n"), "", numbers}}) {
      const absl::StatusOr<Input> input = ReadInput(Write(name, bytes), {.dtype = dtype, .hold = hold});
      ASSERT_TRUE(input.ok()) << name << ErrorOf(input);
      EXPECT_EQ(DataOf(*input), data) << name;
      EXPECT_EQ(input->memory.shared() != nullptr, hold == Hold::kShare) << name;
      if (!data.empty()) {
        EXPECT_EQ(std::memcmp(input->View().data, data.data(), data.size()), 0);
      }
    }
  }
}

TEST_F(ReadInputTest, SharesWhatIsLarge) {
  const std::string path = Write("large.bin", Data(64 << 20));
  const absl::StatusOr<Input> input = ReadInput(path, {.dtype = "u8", .hold = Hold::kShareLarge});
  ASSERT_NE(input->memory.shared(), nullptr);
  EXPECT_EQ(input->memory.shared()->bytes(), 64 << 20);
  EXPECT_EQ(DataOf(*input), Data(64 << 20));
  EXPECT_EQ(ReadInput(path, {.dtype = "u8"})->memory.shared(), nullptr);
}

// Files of /proc say that they have none.
TEST_F(ReadInputTest, SharesWhatHasNoSize) {
  const absl::StatusOr<Input> input = ReadInput("/proc/self/stat", {.dtype = "u8", .hold = Hold::kShare});
  ASSERT_TRUE(input.ok()) << ErrorOf(input);
  ASSERT_NE(input->memory.shared(), nullptr);
  EXPECT_GT(input->memory.shared()->bytes(), 0);
}

TEST_F(ReadInputTest, ReadsMoreThanOnePieceFromWhatHasNoSize) {
  const std::string path = Write("large.bin", Data(3000000));
  ASSERT_EQ(ReadInput(path, {.dtype = "u8"})->layout.shape.at(0), 3000000);
}

}  // namespace
}  // namespace reduced::client

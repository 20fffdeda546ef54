// The readers of .npy, raw and CSV inputs, and what they say of bad ones.
#include "client/reducectl/input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

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

std::string DataOf(const Input& input) { return input.bytes.substr(input.data_offset); }

std::vector<double> Numbers(const Input& input) {
  const std::string data = DataOf(input);
  std::vector<double> numbers(data.size() / sizeof(double));
  if (!numbers.empty()) std::memcpy(numbers.data(), data.data(), numbers.size() * sizeof(double));
  return numbers;
}

TEST(Npy, ReadsEveryDType) {
  const struct {
    std::string descr, dtype;
    std::size_t bytes;
  } kCases[] = {{"'|b1'", "bool", 1}, {"'|i1'", "i8", 1},  {"'<i2'", "i16", 2}, {"'<i4'", "i32", 4},
                {"'<i8'", "i64", 8},  {"'|u1'", "u8", 1},  {"'<u2'", "u16", 2}, {"'<u4'", "u32", 4},
                {"'<u8'", "u64", 8},  {"'<f2'", "f16", 2}, {"'<f4'", "f32", 4}, {"'<f8'", "f64", 8}};
  for (const auto& [descr, dtype, bytes] : kCases) {
    const std::string data = Data(6 * bytes);
    const absl::StatusOr<Input> input = ParseNpy(Npy(Header(descr, "(2, 3)"), data));
    ASSERT_TRUE(input.ok()) << descr << ErrorOf(input);
    EXPECT_EQ(input->dtype, dtype);
    EXPECT_THAT(input->shape, ElementsAre(2, 3));
    EXPECT_EQ(DataOf(*input), data);
    EXPECT_EQ(input->View().data, input->bytes.data() + input->data_offset);
  }
}

TEST(Npy, ReadsVersionTwoScalarsVectorsAndEmptyOnes) {
  EXPECT_THAT(ParseNpy(Npy(Header("'<f4'", "(3,)"), Data(12), 2))->shape, ElementsAre(3));
  EXPECT_THAT(ParseNpy(Npy(Header("'<f4'", "()"), Data(4)))->shape, IsEmpty());
  EXPECT_THAT(ParseNpy(Npy(Header("'<f4'", "(0,)"), ""))->shape, ElementsAre(0));
  EXPECT_THAT(ParseNpy(Npy("{\"shape\": (1,), \"fortran_order\": False, \"descr\": \"<f4\"}", Data(4)))->shape,
              ElementsAre(1));
}

struct BadNpy {
  std::string name, file, message;
};
void PrintTo(const BadNpy& bad, std::ostream* out) { *out << bad.name; }

class BadNpyTest : public ::testing::TestWithParam<BadNpy> {};

TEST_P(BadNpyTest, SaysWhatIsWrong) {
  const absl::StatusOr<Input> input = ParseNpy(GetParam().file);
  EXPECT_TRUE(absl::IsInvalidArgument(input.status()));
  EXPECT_THAT(ErrorOf(input), HasSubstr(GetParam().message));
}

const std::string kGood = Npy(Header("'<f4'", "(3,)"), Data(12));

INSTANTIATE_TEST_SUITE_P(
    All, BadNpyTest,
    ::testing::Values(
        BadNpy{"Empty", "", "is not a .npy file"},
        BadNpy{"Text", "hello, world", "is not a .npy file: it starts with \"hello,\", not \"\\x93NUMPY\""},
        BadNpy{"NoVersion", kGood.substr(0, 7), "its preamble should have 8 bytes, but there are 7"},
        BadNpy{"NoLength", kGood.substr(0, 9), "its preamble should have 10 bytes, but there are 9"},
        BadNpy{"HalfHeader", kGood.substr(0, 30), " bytes, but there are 20"},
        BadNpy{"HalfData", kGood.substr(0, kGood.size() - 5), "its data should have 12 bytes, but there are 7"},
        BadNpy{"TooLong", kGood + "??", "has 2 bytes too many after its 12 bytes of data"},
        BadNpy{"Version3", Npy(Header("'<f4'", "(3,)"), Data(12), 3),
               "has .npy format version 3.0; versions 1.0 and 2.0 are read"},
        BadNpy{"HugeHeader", Npy(std::string(70000, ' '), "", 2), "header of 70000 bytes; at most 65536"},
        BadNpy{"Fortran", Npy(Header("'<f4'", "(3, 1)", "True"), Data(12)),
               "is in Fortran order; only C order is read"},
        BadNpy{"Object", Npy(Header("'|O'", "(3,)"), Data(12)), "holds Python objects"},
        BadNpy{"BigEndian", Npy(Header("'>f4'", "(3,)"), Data(12)), "is big-endian ('>f4'); only little-endian"},
        BadNpy{"Complex", Npy(Header("'<c8'", "(3,)"), Data(24)), "has dtype '<c8'; allowed: b1, i1, i2"},
        BadNpy{"Text32", Npy(Header("'<U3'", "(3,)"), Data(36)), "has dtype '<U3'; allowed: "},
        BadNpy{"Structured", Npy(Header("[('a', '<f4'), ('b', '<i4')]", "(3,)"), Data(24)),
               "has dtype [('a', '<f4'), ('b', '<i4')]; allowed: "},
        BadNpy{"NegativeShape", Npy(Header("'<f4'", "(-3,)"), Data(12)), "'shape' has something else than lengths"},
        BadNpy{"HugeShape", Npy(Header("'<f8'", "(4294967296, 4294967296)"), Data(12)), "more than"},
        BadNpy{"NumberAsShape", Npy(Header("'<f4'", "3"), Data(12)), "'shape' is not a tuple"},
        BadNpy{"NoShape", Npy("{'descr': '<f4', 'fortran_order': False}", Data(12)), "no 'descr', 'fortran_order' or"},
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
      const absl::StatusOr<Input> input = ParseNpy(damaged);
      if (input.ok()) {
        EXPECT_EQ(DataOf(*input).size(), ArrayBytes(input->dtype, input->shape).value());
      }
    }
  }
}

TEST(Raw, TakesWhatFollowsTheOffset) {
  const absl::StatusOr<Input> input = ParseRaw("xxabcdefgh", {.dtype = "bf16", .offset = 2});
  ASSERT_TRUE(input.ok()) << ErrorOf(input);
  EXPECT_EQ(input->dtype, "bf16");
  EXPECT_THAT(input->shape, ElementsAre(4));
  EXPECT_EQ(DataOf(*input), "abcdefgh");
}

TEST(Raw, ChecksSizes) {
  InputOptions options{.dtype = "f32"};
  EXPECT_EQ(ErrorOf(ParseRaw(Data(10), options)), "has 10 bytes after offset 0, not a multiple of the 4 of f32");
  options.offset = 11;
  EXPECT_EQ(ErrorOf(ParseRaw(Data(10), options)), "offset 11 is not within its 10 bytes");
  options.offset = 2;
  options.shape = {1, 3};
  EXPECT_EQ(ErrorOf(ParseRaw(Data(10), options)), "has 8 bytes after offset 2, but shape (1, 3) of f32 is 12");
  options.shape = {2, 1};
  EXPECT_THAT(ParseRaw(Data(10), options)->shape, ElementsAre(2, 1));
  options.dtype = "f33";
  EXPECT_THAT(ErrorOf(ParseRaw(Data(10), options)), HasSubstr("unknown dtype \"f33\""));
}

TEST(Csv, ReadsAColumnByNameOrIndex) {
  const std::string text = "date,co2\n1958,316.1\n1959,\n1960,NaN\n1961, +3e2 \n";
  for (const char* column : {"co2", "1"}) {
    const absl::StatusOr<Input> input = ParseCsv(text, column);
    ASSERT_TRUE(input.ok()) << ErrorOf(input);
    EXPECT_EQ(input->dtype, "f64");
    EXPECT_THAT(input->shape, ElementsAre(4));
    EXPECT_THAT(Numbers(*input), ElementsAre(316.1, ::testing::IsNan(), ::testing::IsNan(), 300));
  }
  EXPECT_THAT(Numbers(*ParseCsv(text, "date")), ElementsAre(1958, 1959, 1960, 1961));
}

TEST(Csv, FindsOutAboutTheHeader) {
  EXPECT_THAT(Numbers(*ParseCsv("x\n1\n2\n", "")), ElementsAre(1, 2));
  EXPECT_THAT(Numbers(*ParseCsv("1\n2\n", "")), ElementsAre(1, 2));
  EXPECT_THAT(Numbers(*ParseCsv("a,1\nb,2\n", "1")), ElementsAre(1, 2));
  EXPECT_THAT(Numbers(*ParseCsv("x\n", "")), IsEmpty());
}

TEST(Csv, TakesQuotesBlankLinesCarriageReturnsAndNoLastLineFeed) {
  EXPECT_THAT(Numbers(*ParseCsv("\xEF\xBB\xBF\"a, b\",c\r\n\"1\",2\r\n\r\n3,4", "a, b")), ElementsAre(1, 3));
  EXPECT_THAT(Numbers(*ParseCsv("inf\n-Infinity\n1e-3\n", "0")), ElementsAre(INFINITY, -INFINITY, 0.001));
}

TEST(Csv, SaysWhatIsWrong) {
  EXPECT_EQ(ErrorOf(ParseCsv("date,co2\n1958,316\n\n1959,n/a\n", "co2")),
            "line 4: column \"co2\" has \"n/a\", which is not a number that f64 holds");
  EXPECT_EQ(ErrorOf(ParseCsv("1,2\n3,4x\n", "1")),
            "line 2: column \"1\" has \"4x\", which is not a number that f64 holds");
  EXPECT_THAT(ErrorOf(ParseCsv("x\n1e999\n", "")), HasSubstr("line 2: column \"x\" has \"1e999\""));
  EXPECT_EQ(ErrorOf(ParseCsv("a,b\n1\n", "b")), "line 2: no column \"b\": it has 1 fields, expected at least 2");
  EXPECT_EQ(ErrorOf(ParseCsv("a,b\n1,2\n", "c")), "line 1: no column \"c\"; allowed: a, b, or 0 to 1");
  EXPECT_EQ(ErrorOf(ParseCsv("a,b\n1,2\n", "2")), "line 1: no column \"2\"; allowed: a, b, or 0 to 1");
  EXPECT_EQ(ErrorOf(ParseCsv("a,b\n1,2\n", "")), "line 1: has 2 columns (a, b); choose one with --column");
  EXPECT_EQ(ErrorOf(ParseCsv("a\n\"1\n2\n", "")), "line 3: bad CSV: a quoted field doesn't end");
  EXPECT_THAT(ErrorOf(ParseCsv("a\n\"1\"2\n", "")), StartsWith("line 2: bad CSV: "));
  EXPECT_EQ(ErrorOf(ParseCsv("", "")), "is an empty CSV file");
  EXPECT_EQ(ErrorOf(ParseCsv("\n\n", "x")), "is an empty CSV file");
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
  EXPECT_EQ(ReadInput(Write("a.bin", kGood), {})->dtype, "f32");
  EXPECT_EQ(ReadInput(Write("a.csv", "1\n2\n"), {})->dtype, "f64");
  EXPECT_EQ(ReadInput(Write("a.txt", "1\n2\n"), {.format = "csv"})->dtype, "f64");
  EXPECT_EQ(ReadInput(Write("a.txt", "1\n2\n"), {.dtype = "u8"})->dtype, "u8");
  EXPECT_EQ(ReadInput(Write("a.npy", kGood), {.format = "raw", .dtype = "u8"})->dtype, "u8");
}

TEST_F(ReadInputTest, SaysWhatIsWrong) {
  EXPECT_THAT(ErrorOf(ReadInput(Write("b.npy", "nothing"), {})), HasSubstr("is not a .npy file"));
  EXPECT_THAT(ErrorOf(ReadInput(Write("b.bin", "nothing"), {})), HasSubstr("is of no known format"));
  EXPECT_THAT(ErrorOf(ReadInput(Write("c.npy", kGood), {.dtype = "f32"})),
              HasSubstr("is a .npy file, which says its dtype itself"));
  EXPECT_THAT(ErrorOf(ReadInput(::testing::TempDir(), {})), HasSubstr("Is a directory"));
  EXPECT_THAT(ErrorOf(ReadInput("/does/not/exist", {})), HasSubstr("No such file or directory"));
}

TEST_F(ReadInputTest, ReadsMoreThanOnePieceFromWhatHasNoSize) {
  const std::string path = Write("large.bin", Data(3000000));
  ASSERT_EQ(ReadInput(path, {.dtype = "u8"})->shape.at(0), 3000000);
}

}  // namespace
}  // namespace reduced::client

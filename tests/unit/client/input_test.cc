// The readers of .npy and raw inputs, how formats are told, and what the readers say of bad inputs.
#include "client/reducectl/input/input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"

namespace reduced::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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
        BadNpy{"Text", "hello, world", "isn't a .npy file: it starts with 'hello,', not '\\x93NUMPY'"},
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
        BadNpy{"NoDict", Npy("hello", Data(12)), "bad .npy header: no dictionary in 'hello'"},
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
  const std::string text = Write("a.txt", "1\n2\n");
  EXPECT_THAT(ErrorOf(ReadInput(text, {.dtype = "u8"})),
              HasSubstr("dtype: got u8 for what looks like text; add --format csv or jsonl if it is, or --format raw"));
  EXPECT_EQ(ReadInput(text, {.format = "csv", .dtype = "u8"})->layout.shape.at(0), 2);
  EXPECT_EQ(ReadInput(text, {.format = "raw", .dtype = "u8"})->layout.shape.at(0), 4);
  EXPECT_EQ(ReadInput(Write("a.txt", "{\"x\": 1}\n"), {})->column, "x");
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
  const absl::StatusOr<Input> input =
      ReadInput("/proc/self/stat", {.format = "raw", .dtype = "u8", .hold = Hold::kShare});
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

// Containers of arrays: compressed files, zip archives, .npz files, and headers of .npy files as others write them.
#include <bzlib.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lzma.h>
#include <zip.h>
#include <zlib.h>
#include <zstd.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/reducectl/input/compressed.h"
#include "client/reducectl/input/foreign.h"
#include "client/reducectl/input/input.h"
#include "tests/support/text_source.h"

namespace reduced::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

template <class T>
std::string ReadErrorOf(const absl::StatusOr<T>& result) {
  return result.ok() ? "OK" : std::string(result.status().message());
}

std::string Gzip(const std::string& bytes) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, bytes.size()) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string Zstandard(const std::string& bytes, int window_log = 0) {
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  if (window_log > 0) {  // a frame of unknown size, whose window is not made smaller
    ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log);
    ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
  }
  std::string out(ZSTD_compressBound(bytes.size()) + 32, '\0');
  out.resize(ZSTD_compress2(context, out.data(), out.size(), bytes.data(), bytes.size()));
  ZSTD_freeCCtx(context);
  return out;
}

// The smallest dictionary, as the smallest block below: a sanitizer takes long to get and mark the memory for others.
std::string Xz(const std::string& bytes) {
  std::string out(lzma_stream_buffer_bound(bytes.size()), '\0');
  std::size_t size = 0;
  EXPECT_EQ(lzma_easy_buffer_encode(0, LZMA_CHECK_CRC64, nullptr, reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                    bytes.size(), reinterpret_cast<std::uint8_t*>(out.data()), &size, out.size()),
            LZMA_OK);
  out.resize(size);
  return out;
}

std::string Bzip2(const std::string& bytes) {
  std::string out(bytes.size() + bytes.size() / 50 + 700, '\0');
  auto size = static_cast<unsigned>(out.size());
  EXPECT_EQ(BZ2_bzBuffToBuffCompress(out.data(), &size, const_cast<char*>(bytes.data()),
                                     static_cast<unsigned>(bytes.size()), 1, 0, 0),
            BZ_OK);
  out.resize(size);
  return out;
}

struct Compressor {
  const char* name;
  std::string (*compress)(const std::string&);
};
const Compressor kCompressors[] = {
    {"gzip", Gzip},
    {"Zstandard", [](const std::string& bytes) { return Zstandard(bytes); }},
    {"xz", Xz},
    {"bzip2", Bzip2},
};

// Numbers that don't compress to almost nothing.
std::string Numbers(int count) {
  std::string text;
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(count); ++i) {
    absl::StrAppend(&text, i * 2654435761U % 1000000, "\n");
  }
  return text;
}

absl::StatusOr<std::string> Decompressed(const std::string& bytes, std::size_t step = 1 << 16) {
  const char* const compression = CompressionOf(bytes);
  if (compression == nullptr) return absl::NotFoundError("isn't compressed");
  const std::unique_ptr<ByteSource> source = Decompress(compression, std::make_unique<TextSource>(bytes));
  std::string all;
  for (std::string part(step, '\0');;) {
    const absl::StatusOr<std::size_t> got = source->Read(part.data(), step);
    if (!got.ok()) return got.status();
    all.append(part, 0, *got);
    if (*got < step) return all;
  }
}

void PrintTo(const Compressor& compressor, std::ostream* out) { *out << compressor.name; }

class CompressedTest : public ::testing::TestWithParam<Compressor> {
 protected:
  std::string Compress(const std::string& bytes) const { return GetParam().compress(bytes); }
};

TEST_P(CompressedTest, MembersFollowEachOther) {
  const std::string text = Numbers(100000);
  const std::string one = Compress(text), two = Compress(text.substr(0, 1000)) + Compress(text.substr(1000));
  EXPECT_STREQ(CompressionOf(one.substr(0, kCompressionHead)), GetParam().name);
  for (const std::size_t step :
       {std::size_t{1} << 22, text.size(), text.size() + 1, std::size_t{4096}, std::size_t{7}}) {
    EXPECT_EQ(Decompressed(one, step).value(), text) << step;
    EXPECT_EQ(Decompressed(two, step).value(), text) << step;
  }
  EXPECT_EQ(Decompressed(Compress("")).value(), "");
  EXPECT_EQ(Decompressed(Compress("") + one + Compress("")).value(), text);
}

TEST_P(CompressedTest, ZerosAfterMembersArePadding) {
  const std::string text = Numbers(1000), one = Compress(text);
  for (const std::size_t zeros : {1, 3, 512, 300000}) {
    const std::string padding(zeros, '\0');
    EXPECT_EQ(Decompressed(one + padding).value(), text);
    EXPECT_EQ(Decompressed(absl::StrCat(one, padding, one, padding)).value(), text + text);
    EXPECT_THAT(ReadErrorOf(Decompressed(one + padding + "x")),
                HasSubstr(absl::StrCat("bad ", GetParam().name, " data: ")));
  }
  EXPECT_THAT(ReadErrorOf(Decompressed(one + "2021-01-01,1,2,3")), HasSubstr(", in what follows member 1"));
}

// Whatever is cut off or changed: never fewer or other bytes without an error.
TEST_P(CompressedTest, DamageIsAnError) {
  const std::string text = Numbers(300), one = Compress(text), two = one + one;
  for (std::size_t size = kCompressionHead; size < two.size(); ++size) {
    if (size == one.size()) continue;
    EXPECT_EQ(ReadErrorOf(Decompressed(two.substr(0, size))),
              absl::StrCat("bad ", GetParam().name, " data: it is truncated",
                           size > one.size() ? ", in what follows member 1" : ""))
        << size;
  }
  for (std::size_t i = 0; i < one.size(); ++i) {
    for (const int bit : {0, 3, 7}) {
      std::string damaged = one;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      const absl::StatusOr<std::string> got = Decompressed(damaged);
      if (got.ok()) {
        EXPECT_EQ(*got, text) << i << " " << bit;  // a date in a header, say
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CompressedTest, ::testing::ValuesIn(kCompressors),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Compressed, FramesOfZstandardAreSkipped) {
  const std::string text = Numbers(1000), frame = Zstandard(text);
  const std::string skipped("\x50\x2a\x4d\x18\x04\0\0\0abcd", 12), other("\x5f\x2a\x4d\x18\0\0\0\0", 8);
  EXPECT_STREQ(CompressionOf(skipped), "Zstandard");
  EXPECT_EQ(Decompressed(skipped + frame + other + skipped + frame + other).value(), text + text);
  EXPECT_THAT(ReadErrorOf(Decompressed(frame + skipped.substr(0, 10))), HasSubstr("it is truncated"));
}

TEST(Compressed, WindowsOfZstandardMayBeLarge) {
  const std::string text = Numbers(1000);
  EXPECT_EQ(Decompressed(Zstandard(text, 28)).value(), text);   // libzstd's own limit is 27
  const std::string huge("\x28\xb5\x2f\xfd\0\xf8\x01\0\0", 9);  // 2^41
  EXPECT_THAT(ReadErrorOf(Decompressed(huge)), HasSubstr("its window is larger than "));
}

TEST(Compressed, TextIsNot) {
  for (const char* const text : {"BZh", "BZh9 is a name\n1\n", "(\xb5", "P*M\n", "1\n2\n", ""}) {
    EXPECT_EQ(CompressionOf(text), nullptr) << text;
  }
}

TEST(Compressed, IsToldByTheNameForRawElements) {
  for (const char* const name : {"a.gz", "a.csv.GZ", "a.zst", "a.xz", "a.bz2"}) EXPECT_TRUE(IsCompressedName(name));
  for (const char* const name : {"a.csv", "gz", "a.gz.csv", "a.zip"}) EXPECT_FALSE(IsCompressedName(name));
}

TEST(Foreign, FormatsHaveNames) {
  std::string tar(257, 'x');
  for (const auto& [head, name] : std::vector<std::pair<std::string, std::string>>{
           {"\x89HDF\r\n\x1a\n....", "an HDF5 or NetCDF-4 file"},
           {"PAR1\x15", "a Parquet file"},
           {"ARROW1\1\1", "an Arrow or Feather file"},
           {std::string("\x5d\0\0\x80", 4), "compressed with LZMA (.lzma)"},
           {"\x04\x22\x4d\x18@", "compressed with LZ4"},
           {tar + "ustar", "a tar archive"}}) {
    ASSERT_NE(ForeignFormat(head), nullptr) << name;
    EXPECT_EQ(ForeignFormat(head), name);
  }
  EXPECT_EQ(ForeignFormat("1\n2\n"), nullptr);
  EXPECT_EQ(ForeignFormat(""), nullptr);
}

// A .npy file with this header.
std::string Npy(const std::string& descr, const std::string& shape, const std::string& data) {
  const std::string header = absl::StrCat("{'descr': ", descr, ", 'fortran_order': False, 'shape': ", shape, ", }\n");
  std::string file("\x93NUMPY\1\0", 8);
  file += static_cast<char>(header.size() & 0xff);
  file += static_cast<char>(header.size() >> 8);
  return file + header + data;
}

TEST(NpyHeaders, ShapesOfOtherWriters) {
  const std::string data(48, '\0');
  for (const char* const shape : {"(3L, 2L)", "(3L,2L,)", "(np.int64(3), np.int64(2))",
                                  "(numpy.int32( 3 ), np.intp(2))", "( 3 , 2 )", "(np.uint8(3), 2L)"}) {
    const absl::StatusOr<Layout> layout = ParseNpy(Npy("'<f8'", shape, data));
    ASSERT_TRUE(layout.ok()) << shape << ReadErrorOf(layout);
    EXPECT_THAT(layout->shape, ElementsAre(3, 2));
  }
  EXPECT_THAT(ParseNpy(Npy("'<f8'", "(np.int64(6),)", data))->shape, ElementsAre(6));
  for (const char* const shape : {"(L,)", "(np.int64(),)", "(np.int64(-6),)", "(np.float64(6),)", "(np.int64(6,)",
                                  "(6.0,)", "(int(6),)", "(6LL,)", "(np.int64(np.int64(6)),)", "(6,,)"}) {
    EXPECT_FALSE(ParseNpy(Npy("'<f8'", shape, data)).ok()) << shape;
  }
}

TEST(NpyHeaders, DTypesThatNumPyReads) {
  const std::string data(48, '\0');
  for (const char* const descr : {"'<f8'", "'=f8'", "'f8'", "'float64'", "'d'", "u'<f8'", "u\"<f8\""}) {
    const absl::StatusOr<Layout> layout = ParseNpy(Npy(descr, "(6,)", data));
    ASSERT_TRUE(layout.ok()) << descr << ReadErrorOf(layout);
    EXPECT_EQ(layout->dtype, "f64");
    EXPECT_FALSE(layout->big_endian);
  }
  EXPECT_TRUE(ParseNpy(Npy("'>i'", "(12,)", data))->big_endian);
  EXPECT_EQ(ParseNpy(Npy("'?'", "(48,)", data))->dtype, "bool");
  EXPECT_EQ(ParseNpy(Npy("'B'", "(48,)", data))->dtype, "u8");
  // Whose size is that of the machine that wrote it, and others.
  for (const char* const descr : {"'l'", "'<l'", "'L'", "'g'", "''", "'<'", "b'<f8'", "'f16'", "'M8[ns]'", "'|S3'"}) {
    EXPECT_THAT(ReadErrorOf(ParseNpy(Npy(descr, "(6,)", data))), HasSubstr("dtype: got ")) << descr;
  }
}

TEST(NpyHeaders, FloatsOf8Bits) {
  EXPECT_EQ(ParseNpyHeader(Npy("'<f1'", "(3,)", "abc"))->dtype, "f8_e5m2");  // as ml_dtypes saves it
  EXPECT_EQ(ParseNpyHeader(Npy("'<f1'", "(3,)", "abc"), "f8_e5m2")->dtype, "f8_e5m2");
  EXPECT_THAT(ReadErrorOf(ParseNpyHeader(Npy("'<f1'", "(3,)", ""), "f8_e4m3fn")), HasSubstr("its own dtype, f8_e5m2"));
  for (const char* const any : {"'<V1'", "'|V1'"}) {
    const std::string file = Npy(any, "(3,)", "abc");
    EXPECT_THAT(ReadErrorOf(ParseNpyHeader(file)), HasSubstr("with --dtype f8_e4m3fn, f8_e5m2 or f8_e8m0fnu"));
    EXPECT_THAT(ReadErrorOf(ParseNpyHeader(file, "bf16")), HasSubstr("dtype: got '"));
    for (const char* const dtype : {"f8_e4m3fn", "f8_e5m2", "f8_e8m0fnu"}) {
      EXPECT_EQ(ParseNpyHeader(file, dtype)->dtype, dtype);
      EXPECT_THAT(NpyHeader(dtype, {3}), HasSubstr("'descr': '|V1'"));
      EXPECT_EQ(ParseNpyHeader(NpyHeader(dtype, {3}), dtype)->dtype, dtype);
    }
  }
  EXPECT_THAT(ReadErrorOf(ParseNpyHeader(Npy("'<V2'", "(3,)", ""), "f8_e4m3fn")), HasSubstr("dtype: got '<V2'"));
}

TEST(NpyHeaders, Bf16WithoutAType) {
  const std::string file = Npy("'|V2'", "(3,)", "abcdef");
  EXPECT_THAT(ReadErrorOf(ParseNpyHeader(file)), HasSubstr("dtype: got '|V2'; allowed: "));
  EXPECT_THAT(ReadErrorOf(ParseNpyHeader(file)), HasSubstr("|V2 with --dtype bf16"));
  EXPECT_EQ(ParseNpyHeader(file, "bf16")->dtype, "bf16");
  EXPECT_EQ(ParseNpyHeader(Npy("'<V2'", "(3,)", "abcdef"), "bf16")->dtype, "bf16");
  for (const char* const other : {"'|V1'", "'>V2'", "'|V4'"}) {
    EXPECT_THAT(ReadErrorOf(ParseNpyHeader(Npy(other, "(3,)", ""), "bf16")), HasSubstr("dtype: got '")) << other;
  }
  EXPECT_EQ(
      ReadErrorOf(ParseNpyHeader(Npy("'<f4'", "(3,)", ""), "bf16")),
      "dtype: got bf16 for a .npy file, which has its own dtype, f32; to read it as raw elements, add --format raw");
}

class FileTest : public ::testing::Test {
 protected:
  static std::string Write(const std::string& name, const std::string& content) {
    const std::string path = ::testing::TempDir() + name;
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

  // A zip archive of these files, in this order.
  static std::string Zip(const std::string& name, const std::vector<std::pair<std::string, std::string>>& files) {
    const std::string path = Write(name, "");
    int error = 0;
    zip_t* const zip = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &error);
    for (const auto& [file, content] : files) {
      if (file.back() == '/') {
        zip_dir_add(zip, file.c_str(), 0);
      } else {
        zip_file_add(zip, file.c_str(), zip_source_buffer(zip, content.data(), content.size(), 0), 0);
      }
    }
    EXPECT_EQ(zip_close(zip), 0);
    return path;
  }

  static std::string Content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // For each array: "NAME DTYPE (SHAPE)", or the error.
  static std::vector<std::string> Arrays(const std::string& path, const InputOptions& options = {},
                                         std::vector<std::string>* notes = nullptr) {
    const auto reader = InputReader::Open(path, options);
    if (!reader.ok()) return {ReadErrorOf(reader)};
    std::vector<std::string> arrays;
    for (;;) {
      absl::StatusOr<std::optional<Piece>> piece = (*reader)->Next();
      if (notes != nullptr) *notes = (*reader)->notes();
      if (!piece.ok()) arrays.push_back(ReadErrorOf(piece));
      if (!piece.ok() || !piece->has_value()) return arrays;
      const Input& input = (*piece)->input;
      arrays.push_back(input.status.ok() ? absl::StrCat(input.array, input.column, " ", input.layout.dtype, " (",
                                                        absl::StrJoin(input.layout.shape, ", "), ")")
                                         : std::string(input.status.message()));
    }
  }
};

const std::string kThree = Npy("'<f4'", "(3,)", std::string(12, '\0'));
const std::string kText = Npy("'<U1'", "(1,)", std::string(4, '\0'));

TEST_F(FileTest, CompressedTextsAndArrays) {
  for (const Compressor& each : kCompressors) {
    EXPECT_THAT(Arrays(Write("a.csv", each.compress("n\n1\n2\n"))), ElementsAre("n i64 (2)")) << each.name;
    EXPECT_THAT(Arrays(Write("a.bin", each.compress(kThree))), ElementsAre(" f32 (3)")) << each.name;
    EXPECT_THAT(Arrays(Write("a.bin.xz", each.compress("123456")), {.dtype = "i16"}), ElementsAre(" i16 (3)"));
    EXPECT_THAT(Arrays(Write("a.gz", each.compress(Gzip("1\n")))),
                ElementsAre(absl::StrCat("is gzip data within ", each.name, " data; allowed: compressed once")));
  }
  EXPECT_THAT(Arrays(Write("a.bin.gz", "123456"), {.dtype = "i16"}),
              ElementsAre(HasSubstr("isn't compressed, as its name")));
  EXPECT_THAT(Arrays(Write("a.bin.gz", "123456"), {.format = "raw", .dtype = "i16"}), ElementsAre(" i16 (3)"));
  EXPECT_THAT(Arrays(Write("a.csv", "PAR1\x15\x04")), ElementsAre(HasSubstr("is a Parquet file; allowed: .npy")));
}

TEST_F(FileTest, AZipOfOneFile) {
  EXPECT_THAT(Arrays(Zip("a.csv.zip", {{"d/", ""}, {"d/a.csv", "n\n1\n2\n"}, {"__MACOSX/d/._a.csv", "x"}})),
              ElementsAre("n i64 (2)"));
  EXPECT_THAT(Arrays(Zip("a.zip", {{"a.txt", "n\n1\n2\n"}}), {.columns = {"n"}}), ElementsAre("n i64 (2)"));
  EXPECT_THAT(Arrays(Zip("a.zip", {{"a.bin", "123456"}}), {.dtype = "i16"}), ElementsAre(" i16 (3)"));
  EXPECT_THAT(Arrays(Zip("a.zip", {{"a.npy", kThree}})), ElementsAre("a f32 (3)"));
  EXPECT_THAT(Arrays(Zip("a.zip", {{"a.csv", "1\n"}, {"b.csv", "2\n"}, {"c.csv", "3\n"}})),
              ElementsAre("is a zip archive of 3 files (a.csv, b.csv, ...); allowed: one file, or .npy files"));
  EXPECT_THAT(Arrays(Zip("a.zip", {{"a/", ""}})), ElementsAre(HasSubstr("is a zip archive without .npy files")));
  EXPECT_THAT(Arrays(Zip("a.zip", {{"a.csv", ""}})), ElementsAre("got an empty text; allowed: at least one row"));
  EXPECT_THAT(Arrays(Zip("a.zip", {{"a.bin", "\x7f"}})), ElementsAre(HasSubstr("has an unknown format")));
  const std::string zip = Content(Zip("a.zip", {{"a.csv", Numbers(10000)}}));
  EXPECT_THAT(Arrays(Write("b.zip", zip.substr(0, zip.size() - 30))), ElementsAre(HasSubstr("bad zip archive: ")));
  std::string damaged = zip;
  damaged[zip.size() / 2] = static_cast<char>(damaged[zip.size() / 2] ^ 1);
  EXPECT_THAT(Arrays(Write("b.zip", damaged)), ElementsAre(HasSubstr("bad zip archive: ")));
  EXPECT_THAT(Arrays(Write("b.zip.gz", Gzip(zip))), ElementsAre("0 i64 (10000)"));
}

TEST_F(FileTest, OneArrayOfManyThatCanNotBeRead) {
  const std::string cut = kThree.substr(0, kThree.size() - 1);
  const std::string huge = Npy("'<f8'", "(100000, 100000)", "");
  const std::string path =
      Zip("a.npz", {{"a.npy", kThree}, {"b.npy", kText}, {"c.npy", cut}, {"d.npy", huge}, {"e.npy", kThree}});
  EXPECT_THAT(Arrays(path),
              ElementsAre("a f32 (3)", HasSubstr("array \"b\": dtype: got '<U1'; allowed: b1"),
                          "array \"c\": is truncated: got 11 bytes of data; allowed: 12",
                          "array \"d\": is truncated: got 0 bytes of data; allowed: 80000000000", "e f32 (3)"));
  EXPECT_THAT(Arrays(path, {.arrays = {"e", "b"}}), ElementsAre("e f32 (3)", HasSubstr("array \"b\"")));
  EXPECT_THAT(Arrays(path, {.arrays = {"f"}}), ElementsAre("array: got \"f\"; allowed: a, b, c, d, e"));
  EXPECT_THAT(ReadErrorOf(ReadInput(path, {.part = "b"})), HasSubstr("array \"b\": dtype"));
  EXPECT_EQ(ReadInput(path, {.part = "e"})->layout.dtype, "f32");
  EXPECT_THAT(Arrays(path, {.format = "csv"}), ElementsAre("format: got csv for a .npz file; allowed: npz, raw"));
  EXPECT_THAT(Arrays(Write("a.npy", kThree), {.format = "npz"}),
              ElementsAre(HasSubstr("bad .npz file: Not a zip archive")));
  const std::string bf16 = Npy("'|V2'", "(3,)", "abcdef");
  EXPECT_THAT(Arrays(Zip("v.npz", {{"a.npy", bf16}, {"b.npy", kThree}}), {.dtype = "bf16"}),
              ElementsAre("a bf16 (3)", HasSubstr("array \"b\": dtype: got bf16 for a .npy file")));
}

TEST_F(FileTest, WhatIsNoArrayInANpzFile) {
  std::vector<std::string> notes;
  EXPECT_THAT(Arrays(Zip("a.npz", {{"a.npy", kThree}, {"notes.txt", "x"}}), {}, &notes), ElementsAre("a f32 (3)"));
  EXPECT_THAT(notes, ElementsAre("is read as a .npz file, without what isn't .npy in it: notes.txt"));
  Arrays(Zip("a.npz", {{"a.npy", kThree}}), {}, &notes);
  EXPECT_THAT(notes, IsEmpty());
}

TEST_F(FileTest, SeveralArraysWereAskedFor) {
  const auto several = [](const std::string& path, const InputOptions& options) {
    return (*InputReader::Open(path, options))->several();
  };
  const std::string two = Zip("a.npz", {{"a.npy", kThree}, {"b.npy", kThree}});
  EXPECT_TRUE(several(two, {}));
  EXPECT_FALSE(several(two, {.arrays = {"b"}}));
  EXPECT_FALSE(several(Write("a.npy", kThree), {}));
  const std::string text = Write("a.csv", "a,b\n1,2\n");
  EXPECT_TRUE(several(text, {.columns = {"all"}}));
  EXPECT_TRUE(several(text, {.columns = {"a", "b"}}));
  EXPECT_FALSE(several(text, {.columns = {"a"}}));
}

TEST_F(FileTest, TwoArraysInOneNpyFile) {
  for (const std::string& path : {Write("a.npy", kThree + kThree), Write("a.npy.gz", Gzip(kThree + kThree))}) {
    const absl::StatusOr<Input> input = ReadInput(path, {});
    EXPECT_THAT(ReadErrorOf(input), HasSubstr("data: got another array after the first one, as a second numpy.save"))
        << path;
  }
  EXPECT_THAT(ReadErrorOf(ReadInput(Write("a.npy", kThree + "?"), {})), HasSubstr("data: got 13 bytes; allowed: 12"));
  EXPECT_THAT(ReadErrorOf(ReadInput(Write("a.npy.gz", Gzip(kThree + "?")), {})),
              HasSubstr("data: got more bytes than the array has"));
}

// What a header claims is not allocated before it is there.
TEST_F(FileTest, SizesThatAreNotThere) {
  const std::string huge = Npy("'<f8'", "(1000000000, 1000000)", "x");
  EXPECT_THAT(ReadErrorOf(ReadInput(Write("a.npy.xz", Xz(huge)), {})),
              HasSubstr("a third of the memory that is available"));
}

}  // namespace
}  // namespace reduced::client

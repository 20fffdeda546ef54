#include "client/reducectl/input/compressed.h"

#include <bzlib.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/reducectl/input/memory.h"
#include "kernels/system/status_macros.h"

namespace reduced::client {
namespace {

// The most bytes that a decoder writes at once.
constexpr std::size_t kMostOut = std::size_t{1} << 20;
constexpr std::size_t kIn = std::size_t{256} << 10;

template <class T>
struct Range {
  T* at = nullptr;
  T* end = nullptr;

  bool empty() const { return at == end; }
  std::size_t size() const { return static_cast<std::size_t>(end - at); }
};

// What a decoder did with its input and output, whose ranges are shorter by what it took and wrote.
enum class MemberStep { kMore, kEnd };  // kEnd: of a member

// Decompresses members, one after the other. Errors say what is wrong with the bytes.
class Decoder {
 public:
  Decoder() = default;
  virtual ~Decoder() = default;
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  virtual absl::Status Start() = 0;  // a member
  // `in` is empty at the end of the source, where a decoder may still have something to write.
  virtual absl::StatusOr<MemberStep> Next(Range<const char>* in, Range<char>* out) = 0;
};

absl::Status Corrupt(absl::string_view why) { return absl::InvalidArgumentError(why); }
absl::Status NoMemory() { return absl::ResourceExhaustedError("there is no memory to decompress it"); }

// Of a window that the bytes ask for.
absl::Status LargeWindow(std::uint64_t limit) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "its window is larger than ", limit, " bytes; allowed: at most that, half of the memory that is available"));
}
std::uint64_t WindowLimit() { return static_cast<std::uint64_t>(AvailableMemory()) / 2; }

class Gzip final : public Decoder {
 public:
  ~Gzip() override { inflateEnd(&stream_); }

  absl::Status Start() override {
    constexpr int kGzipOnly = 16;
    if (!std::exchange(begun_, true))
      return inflateInit2(&stream_, kGzipOnly + MAX_WBITS) == Z_OK ? absl::OkStatus() : NoMemory();
    return inflateReset(&stream_) == Z_OK ? absl::OkStatus() : NoMemory();
  }

  absl::StatusOr<MemberStep> Next(Range<const char>* in, Range<char>* out) override {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in->at));
    stream_.avail_in = static_cast<uInt>(in->size());
    stream_.next_out = reinterpret_cast<Bytef*>(out->at);
    stream_.avail_out = static_cast<uInt>(out->size());
    const int result = inflate(&stream_, Z_NO_FLUSH);
    in->at = in->end - stream_.avail_in;
    out->at = out->end - stream_.avail_out;
    if (result == Z_STREAM_END) return MemberStep::kEnd;
    if (result == Z_OK || result == Z_BUF_ERROR) return MemberStep::kMore;
    if (result == Z_MEM_ERROR) return NoMemory();
    return Corrupt(stream_.msg == nullptr ? "it can't be decompressed" : stream_.msg);
  }

 private:
  z_stream stream_{};
  bool begun_ = false;
};

// A member is a frame, also one that is skipped, as pzstd writes it.
class Zstandard final : public Decoder {
 public:
  ~Zstandard() override { ZSTD_freeDCtx(context_); }

  absl::Status Start() override {
    if (context_ == nullptr) return NoMemory();
    const ZSTD_bounds bounds = ZSTD_dParam_getBounds(ZSTD_d_windowLogMax);
    window_log_ = std::clamp(static_cast<int>(std::bit_width(WindowLimit())) - 1, bounds.lowerBound, bounds.upperBound);
    ZSTD_DCtx_reset(context_, ZSTD_reset_session_only);
    ZSTD_DCtx_setParameter(context_, ZSTD_d_windowLogMax, window_log_);
    return absl::OkStatus();
  }

  absl::StatusOr<MemberStep> Next(Range<const char>* in, Range<char>* out) override {
    ZSTD_inBuffer from{in->at, in->size(), 0};
    ZSTD_outBuffer to{out->at, out->size(), 0};
    const std::size_t result = ZSTD_decompressStream(context_, &to, &from);
    in->at += from.pos;
    out->at += to.pos;
    if (ZSTD_isError(result) == 0) return result == 0 ? MemberStep::kEnd : MemberStep::kMore;
    const ZSTD_ErrorCode code = ZSTD_getErrorCode(result);
    if (code == ZSTD_error_frameParameter_windowTooLarge) return LargeWindow(std::uint64_t{1} << window_log_);
    if (code == ZSTD_error_memory_allocation) return NoMemory();
    return Corrupt(ZSTD_getErrorName(result));
  }

 private:
  ZSTD_DCtx* const context_ = ZSTD_createDCtx();
  int window_log_ = 0;
};

class Xz final : public Decoder {
 public:
  ~Xz() override { lzma_end(&stream_); }

  absl::Status Start() override {
    limit_ = WindowLimit();
    return lzma_stream_decoder(&stream_, limit_, LZMA_TELL_UNSUPPORTED_CHECK) == LZMA_OK ? absl::OkStatus()
                                                                                         : NoMemory();
  }

  absl::StatusOr<MemberStep> Next(Range<const char>* in, Range<char>* out) override {
    stream_.next_in = reinterpret_cast<const std::uint8_t*>(in->at);
    stream_.avail_in = in->size();
    stream_.next_out = reinterpret_cast<std::uint8_t*>(out->at);
    stream_.avail_out = out->size();
    const lzma_ret result = lzma_code(&stream_, LZMA_RUN);
    in->at = in->end - stream_.avail_in;
    out->at = out->end - stream_.avail_out;
    switch (result) {
      case LZMA_STREAM_END:
        return MemberStep::kEnd;
      case LZMA_OK:
      case LZMA_BUF_ERROR:
        return MemberStep::kMore;
      case LZMA_MEMLIMIT_ERROR:
        return LargeWindow(limit_);
      case LZMA_MEM_ERROR:
        return NoMemory();
      case LZMA_FORMAT_ERROR:
        return Corrupt("it doesn't begin as such");
      case LZMA_OPTIONS_ERROR:
      case LZMA_UNSUPPORTED_CHECK:
        return Corrupt("it was written in a way that this liblzma doesn't know");
      default:
        return Corrupt("it is corrupt");
    }
  }

 private:
  lzma_stream stream_ = LZMA_STREAM_INIT;
  std::uint64_t limit_ = 0;
};

class Bzip2 final : public Decoder {
 public:
  ~Bzip2() override { BZ2_bzDecompressEnd(&stream_); }

  absl::Status Start() override {
    BZ2_bzDecompressEnd(&stream_);
    stream_ = {};
    return BZ2_bzDecompressInit(&stream_, /*verbosity=*/0, /*small=*/0) == BZ_OK ? absl::OkStatus() : NoMemory();
  }

  absl::StatusOr<MemberStep> Next(Range<const char>* in, Range<char>* out) override {
    stream_.next_in = const_cast<char*>(in->at);
    stream_.avail_in = static_cast<unsigned>(in->size());
    stream_.next_out = out->at;
    stream_.avail_out = static_cast<unsigned>(out->size());
    const int result = BZ2_bzDecompress(&stream_);
    in->at = in->end - stream_.avail_in;
    out->at = out->end - stream_.avail_out;
    if (result == BZ_STREAM_END) return MemberStep::kEnd;
    if (result == BZ_OK) return MemberStep::kMore;
    if (result == BZ_MEM_ERROR) return NoMemory();
    return Corrupt(result == BZ_DATA_ERROR_MAGIC ? "it doesn't begin as such" : "it is corrupt");
  }

 private:
  bz_stream stream_{};
};

class Decompressed final : public ByteSource {
 public:
  Decompressed(const char* compression, std::unique_ptr<Decoder> decoder, std::unique_ptr<ByteSource> source)
      : compression_(compression), decoder_(std::move(decoder)), source_(std::move(source)) {}

  absl::StatusOr<std::size_t> Read(char* to, std::size_t size) override {
    const Range<char> all{to, to + size};
    for (char* at = to; at < all.end;) {
      RETURN_IF_ERROR(Fill());
      if (!within_member_) {
        if (members_ > 0) in_.at = std::find_if(in_.at, in_.end, [](char c) { return c != '\0'; });
        if (in_.empty() && last_) return static_cast<std::size_t>(at - to);
        if (in_.empty()) continue;
        if (const absl::Status status = decoder_->Start(); !status.ok()) return Bad(status);
        within_member_ = true;
      }
      Range<char> out{at, at + std::min(kMostOut, static_cast<std::size_t>(all.end - at))};
      const absl::StatusOr<MemberStep> step = decoder_->Next(&in_, &out);
      if (!step.ok()) return Bad(step.status());
      const bool progress = std::exchange(at, out.at) != at;
      if (*step == MemberStep::kEnd) {
        within_member_ = false;
        ++members_;
      } else if (last_ && in_.empty() && !progress) {
        return Bad(Corrupt("it is truncated"));
      }
    }
    return size;
  }

 private:
  // Reads the next compressed bytes if none are left, unless the source is at its end.
  absl::Status Fill() {
    if (!in_.empty() || last_) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::size_t got, source_->Read(buffer_.data(), buffer_.size()));
    in_ = {buffer_.data(), buffer_.data() + got};
    last_ = got < buffer_.size();
    return absl::OkStatus();
  }

  // What follows a member that is right is another one, damaged, or something else that was appended.
  absl::Status Bad(const absl::Status& why) const {
    return absl::Status(why.code(),
                        absl::StrCat("bad ", compression_, " data: ", why.message(),
                                     members_ > 0 ? absl::StrCat(", in what follows member ", members_) : ""));
  }

  const char* const compression_;
  const std::unique_ptr<Decoder> decoder_;
  const std::unique_ptr<ByteSource> source_;
  std::vector<char> buffer_ = std::vector<char>(kIn);
  Range<const char> in_;  // what the decoder has not taken
  bool last_ = false;     // nothing follows it
  bool within_member_ = false;
  std::int64_t members_ = 0;
};

template <class D>
std::unique_ptr<Decoder> Make() {
  return std::make_unique<D>();
}

bool IsBzip2(absl::string_view head) {
  if (!absl::StartsWith(head, "BZh") || head.size() < kCompressionHead || head[3] < '1' || head[3] > '9') return false;
  return head.substr(4, 6) == "\x31\x41\x59\x26\x53\x59" || head.substr(4, 6) == "\x17\x72\x45\x38\x50\x90";
}

// A frame, or one that is skipped.
bool IsZstandard(absl::string_view head) {
  if (absl::StartsWith(head, "\x28\xb5\x2f\xfd")) return true;
  return head.size() >= 4 && (head[0] & '\xf0') == '\x50' && head.substr(1, 3) == "\x2a\x4d\x18";
}

constexpr struct {
  const char* name;
  bool (*begins)(absl::string_view head);
  std::unique_ptr<Decoder> (*make)();
} kCompressions[] = {
    {"gzip", [](absl::string_view head) { return absl::StartsWith(head, "\x1f\x8b\x08"); }, Make<Gzip>},
    {"Zstandard", IsZstandard, Make<Zstandard>},
    {"xz",
     [](absl::string_view head) {
       return absl::StartsWith(head, absl::string_view("\xfd"
                                                       "7zXZ\0",
                                                       6));
     },
     Make<Xz>},
    {"bzip2", IsBzip2, Make<Bzip2>},
};

}  // namespace

const char* CompressionOf(absl::string_view head) {
  for (const auto& each : kCompressions) {
    if (each.begins(head)) return each.name;
  }
  return nullptr;
}

bool IsCompressedName(absl::string_view name) {
  constexpr absl::string_view kSuffixes[] = {".gz", ".bgz", ".zst", ".zstd", ".xz", ".bz2"};
  return std::any_of(std::begin(kSuffixes), std::end(kSuffixes),
                     [name](absl::string_view suffix) { return absl::EndsWithIgnoreCase(name, suffix); });
}

std::unique_ptr<ByteSource> Decompress(const char* compression, std::unique_ptr<ByteSource> source) {
  const auto* const found = std::find_if(std::begin(kCompressions), std::end(kCompressions),
                                         [=](const auto& each) { return each.name == absl::string_view(compression); });
  return std::make_unique<Decompressed>(compression, found->make(), std::move(source));
}

}  // namespace reduced::client

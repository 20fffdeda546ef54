// Finds the frames of HTTP/2 (RFC 9113, 4.1) in the bytes of one direction of a connection.
#ifndef REDUCED_SERVER_FRAME_CURSOR_H_
#define REDUCED_SERVER_FRAME_CURSOR_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace reduced::server {

enum FrameType : std::uint8_t { kData = 0, kHeaders = 1, kReset = 3, kWindowUpdate = 8, kContinuation = 9 };
inline constexpr std::uint8_t kEndStream = 1;   // flag of kData and kHeaders
inline constexpr std::uint8_t kEndHeaders = 4;  // flag of kHeaders and kContinuation

// Not thread-safe.
class FrameCursor {
 public:
  // `preface`: bytes before the first frame.
  explicit FrameCursor(std::size_t preface = 0) : skip_(preface) {}

  // Advances `next` to the end of the next header of a frame: true, and the accessors are about that frame. False: the
  // bytes ended before.
  bool Next(const std::uint8_t** next, const std::uint8_t* end) {
    const std::size_t skipped = std::min(skip_, static_cast<std::size_t>(end - *next));
    skip_ -= skipped;
    *next += skipped;
    if (got_ == 0 && static_cast<std::size_t>(end - *next) >= header_.size()) {  // the whole header, as nearly always
      std::copy_n(*next, header_.size(), header_.begin());
      *next += header_.size();
      skip_ = length();
      return true;
    }
    const std::size_t here = std::min(header_.size() - got_, static_cast<std::size_t>(end - *next));
    std::copy_n(*next, here, header_.begin() + static_cast<std::ptrdiff_t>(got_));
    *next += here;
    got_ += here;
    if (got_ < header_.size()) return false;
    got_ = 0;
    skip_ = length();
    return true;
  }

  std::size_t length() const {
    return std::size_t{header_[0]} << 16 | std::size_t{header_[1]} << 8 | std::size_t{header_[2]};
  }
  std::uint8_t type() const { return header_[3]; }
  bool has(std::uint8_t flag) const { return (header_[4] & flag) != 0; }

  // Whether the next byte begins a frame.
  bool between_frames() const { return skip_ == 0 && got_ == 0; }

 private:
  std::size_t skip_;     // bytes until the next header
  std::size_t got_ = 0;  // bytes of that header
  std::array<std::uint8_t, 9> header_{};
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_FRAME_CURSOR_H_

// Where a GOAWAY goes among the frames of a connection, and what happens if it does not go whole.
#include "server/goaway.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace reduced::server {
namespace {

std::string FrameOf(FrameType type, std::uint8_t flags, std::string_view payload) {
  std::string frame = {0, 0, static_cast<char>(payload.size()), static_cast<char>(type), static_cast<char>(flags), 0, 0,
                       0, 1};
  return frame.append(payload);
}

const std::string kGoaway("\0\0\x08\x07\0\0\0\0\0\x7f\xff\xff\xff\0\0\0\0", 17);
const std::string kSettingsFrame = std::string("\0\0\0\x04\0\0\0\0\0", 9);

// A connection, to which gRPC writes.
struct Wire {
  Wire() { goaway.Begin(); }

  // Writes as much of the bytes as `most` says; false: gRPC is to try again.
  bool Write(std::string_view bytes, bool due, std::size_t most = 1000) {
    const ssize_t written = goaway.Send(due, frame(), [&](Goaway::Sent& sent) {
      const std::string_view first = bytes.substr(0, most);
      sent.Add(first.data(), first.size());
      got += first;
      return static_cast<ssize_t>(first.size());
    });
    EXPECT_TRUE(written >= 0 || errno == EAGAIN);
    return written >= 0;
  }
  Goaway::Write frame() { return take; }

  Goaway goaway;
  std::string got;
  std::size_t room = 1000;  // for the frame
  std::function<ssize_t(std::string_view)> take = [this](std::string_view bytes) -> ssize_t {
    if (room == 0) {
      errno = EAGAIN;
      return -1;
    }
    const std::string_view first = bytes.substr(0, room);
    got += first;
    room -= first.size();
    return static_cast<ssize_t>(first.size());
  };
};

TEST(GoawayTest, GoesOnceBetweenTwoFramesAfterTheSettings) {
  Wire wire;
  wire.goaway.SendAlone(wire.frame());
  EXPECT_EQ(wire.got, "");
  const std::string data = FrameOf(FrameType::kData, 0, "elements");
  EXPECT_TRUE(wire.Write(kSettingsFrame, true));
  EXPECT_TRUE(wire.Write(data, true));
  EXPECT_TRUE(wire.Write(data, true));
  wire.goaway.SendAlone(wire.frame());
  EXPECT_EQ(wire.got, kSettingsFrame + kGoaway + data + data);
}

TEST(GoawayTest, NotWhileItIsNotDue) {
  Wire wire;
  EXPECT_TRUE(wire.Write(kSettingsFrame, false));
  EXPECT_TRUE(wire.Write(kSettingsFrame, false));
  wire.goaway.SendAlone(wire.frame());
  EXPECT_EQ(wire.got, kSettingsFrame + kSettingsFrame + kGoaway);
}

TEST(GoawayTest, NotWithinAFrame) {
  const std::string data = FrameOf(FrameType::kData, 0, "elements");
  for (std::size_t cut = 1; cut < data.size(); ++cut) {
    Wire wire;
    wire.Write(kSettingsFrame, false);
    EXPECT_TRUE(wire.Write(data, false, cut));
    wire.goaway.SendAlone(wire.frame());
    EXPECT_TRUE(wire.Write(std::string_view(data).substr(cut), true));
    EXPECT_TRUE(wire.Write(data, true));
    EXPECT_EQ(wire.got, absl::StrCat(kSettingsFrame, data, kGoaway, data)) << cut;
  }
}

TEST(GoawayTest, NotWithinABlockOfHeaders) {
  Wire wire;
  wire.Write(kSettingsFrame, false);
  const std::string first = FrameOf(FrameType::kHeaders, kEndStream, "ab");
  const std::string more = FrameOf(FrameType::kContinuation, 0, "cd");
  const std::string last = FrameOf(FrameType::kContinuation, kEndHeaders, "ef");
  EXPECT_TRUE(wire.Write(first, false));
  wire.goaway.SendAlone(wire.frame());
  EXPECT_TRUE(wire.Write(more, true));
  EXPECT_TRUE(wire.Write(last, true));
  EXPECT_TRUE(wire.Write(first, true));
  EXPECT_EQ(wire.got, kSettingsFrame + first + more + last + kGoaway + first);
}

TEST(GoawayTest, WhatDidNotGoIsFirst) {
  for (std::size_t room = 0; room < kGoaway.size(); ++room) {
    Wire wire;
    wire.Write(kSettingsFrame, false);
    wire.room = room;
    EXPECT_FALSE(wire.Write(kSettingsFrame, true));
    EXPECT_FALSE(wire.Write(kSettingsFrame, true));
    wire.room = 1000;
    EXPECT_TRUE(wire.Write(kSettingsFrame, true));
    EXPECT_EQ(wire.got, absl::StrCat(kSettingsFrame, kGoaway, kSettingsFrame)) << room;
  }
}

}  // namespace
}  // namespace reduced::server

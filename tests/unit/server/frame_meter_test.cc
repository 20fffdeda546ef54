// What a connection may send, frame by frame; that of real connections is tested in tests/e2e/http2_test.py.
#include "server/frame_meter.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace reduced::server {
namespace {

enum Type : char {
  kData = 0,
  kHeaders = 1,
  kReset = 3,
  kSettings = 4,
  kPing = 6,
  kWindowUpdate = 8,
  kContinuation = 9
};
constexpr char kEndStream = 1;
constexpr char kEndHeaders = 4;

std::string Frame(Type type, std::size_t bytes, char flags = 0) {
  std::string frame;
  for (const int shift : {16, 8, 0}) frame.push_back(static_cast<char>(bytes >> shift));
  frame.append({type, flags, 0, 0, 0, 1});
  return frame.append(bytes, 'x');
}
const std::string kPreface(24, 'p');
const std::string kCall = Frame(kHeaders, 50, kEndHeaders);

std::string Times(int count, const std::string& frames) {
  std::string all;
  for (int i = 0; i < count; ++i) all += frames;
  return all;
}

class FrameMeterTest : public ::testing::Test {
 protected:
  FrameMeterTest() { meter_.Begin(allowance_); }
  bool Feed(const std::string& bytes) { return meter_.Feed(bytes.data(), bytes.size(), now_); }

  const std::shared_ptr<std::atomic<std::uint64_t>> ended_ = std::make_shared<std::atomic<std::uint64_t>>(0);
  const std::shared_ptr<FrameAllowance> allowance_ = std::make_shared<FrameAllowance>("a peer", ended_);
  FrameBucket::Clock::time_point now_ = FrameBucket::Clock::now();
  FrameMeter meter_;
};

TEST_F(FrameMeterTest, HalfOfTheCallsMayBeReset) {
  ASSERT_TRUE(Feed(kPreface));
  for (int i = 0; i < 10'000; ++i) ASSERT_TRUE(Feed(kCall + kCall + Frame(kReset, 4))) << i;
  // All of them: those that are left over are 10 of the connection and 1,000 of the peer, and each pair takes half of
  // one.
  ASSERT_TRUE(Feed(Times(2020, kCall + Frame(kReset, 4))));
  EXPECT_FALSE(Feed(kCall + Frame(kReset, 4)));
  EXPECT_FALSE(Feed(kCall));
  EXPECT_EQ(*ended_, 1);
}

TEST_F(FrameMeterTest, TheAllowanceComesBackWithTime) {
  ASSERT_TRUE(Feed(kPreface + Times(1010, Frame(kReset, 4))));
  now_ += std::chrono::seconds(2);
  ASSERT_TRUE(Feed(Times(400, Frame(kReset, 4))));
  EXPECT_FALSE(Feed(Times(10, Frame(kReset, 4))));
  EXPECT_FALSE(allowance_->IsFull(now_ + std::chrono::seconds(4)));
  EXPECT_TRUE(allowance_->IsFull(now_ + std::chrono::seconds(5)));
}

TEST_F(FrameMeterTest, ConnectionsOfAPeerShareAndEachHasSomeOfItsOwn) {
  ASSERT_TRUE(Feed(kPreface + Times(1010, Frame(kReset, 4)) + Times(1030, Frame(kPing, 8))));
  FrameMeter other;
  other.Begin(allowance_);
  const std::string honest = kPreface + Times(30, Frame(kSettings, 0)) + Times(10, Frame(kReset, 4));
  EXPECT_TRUE(other.Feed(honest.data(), honest.size(), now_));
  const std::string one = Frame(kPing, 8);
  EXPECT_FALSE(other.Feed(one.data(), one.size(), now_));
  EXPECT_TRUE(Feed(kCall)) << "the first one sends what it likes, as long as that is calls";
}

TEST_F(FrameMeterTest, FramesThatBringNothing) {
  for (const std::string& frame : {Frame(kPing, 8), Frame(kSettings, 6), Frame(kData, 0), Frame(Type{99}, 3)}) {
    FrameMeter meter;
    const auto allowance = std::make_shared<FrameAllowance>("a peer", ended_);
    meter.Begin(allowance);
    // Four frames of data pay for one.
    const std::string paid_one = absl::StrCat(Times(4, Frame(kData, 5)), frame);
    const std::string paid = absl::StrCat(kPreface, Times(5000, paid_one), Times(1030, frame));
    EXPECT_TRUE(meter.Feed(paid.data(), paid.size(), now_)) << int{frame[3]};
    EXPECT_FALSE(meter.Feed(frame.data(), frame.size(), now_)) << int{frame[3]};
  }
}

// What gRPC's own clients send with each call.
TEST_F(FrameMeterTest, EndsOfCallsAreFreeAndSomeWindows) {
  EXPECT_TRUE(Feed(kPreface + Times(5000, Frame(kHeaders, 50, kEndHeaders) + Frame(kData, 0, kEndStream) +
                                              Frame(kWindowUpdate, 4) + Frame(kWindowUpdate, 4))));
  EXPECT_TRUE(allowance_->IsFull(now_));
  EXPECT_TRUE(Feed(Times(10'290, Frame(kWindowUpdate, 4))));
  EXPECT_FALSE(Feed(Times(20, Frame(kWindowUpdate, 4))));
}

TEST_F(FrameMeterTest, HeaderBlocksEnd) {
  ASSERT_TRUE(Feed(kPreface + Frame(kHeaders, 100) + Times(62, Frame(kContinuation, 1000)) +
                   Frame(kContinuation, 1000, kEndHeaders)));
  ASSERT_TRUE(Feed(kCall + Frame(kHeaders, 1) + Times(63, Frame(kContinuation, 0)))) << "another block";
  EXPECT_FALSE(Feed(Frame(kContinuation, 0)));
  meter_.Begin(allowance_);
  ASSERT_TRUE(Feed(kPreface + Frame(kHeaders, 1) + Times(4, Frame(kContinuation, 16'000))));
  EXPECT_FALSE(Feed(Frame(kContinuation, 16'000)));
}

// In pieces of any size, with payloads that look like frames.
TEST_F(FrameMeterTest, BytesComeInAnyPieces) {
  std::string bytes = kPreface;
  for (int i = 0; i < 3000; ++i) {
    std::string data = Frame(kData, 2000);
    data.replace(9, 13, Frame(kReset, 4));
    bytes += data;
  }
  bytes += Times(1010, Frame(kReset, 4));
  for (std::size_t at = 0, size = 1; at < bytes.size(); at += size, size = size * 3 % 4001) {
    ASSERT_TRUE(Feed(bytes.substr(at, size))) << at;
  }
  EXPECT_FALSE(Feed(Frame(kReset, 4)));
}

TEST_F(FrameMeterTest, WhatIsNotMeteredGoesOn) {
  meter_.Stop();
  EXPECT_TRUE(Feed(Times(5000, Frame(kReset, 4))));
  EXPECT_EQ(*ended_, 0);
}

}  // namespace
}  // namespace reduced::server

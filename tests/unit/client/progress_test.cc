// The line that shows how far an upload has come: what it says, and when it is drawn.
#include "client/reducectl/output/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace reduced::client {
namespace {

using ::testing::IsEmpty;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

TEST(FormatProgress, SaysHowMuchHowFastAndHowLong) {
  EXPECT_EQ(FormatProgress(64 * kMiB, 256 * kMiB, absl::Seconds(2)), "64.0 MiB of 256 MiB, 25.0%, 33.6 MB/s, 6s left");
  EXPECT_EQ(FormatProgress(2048 * kMiB, 8192 * kMiB, absl::Seconds(1)),
            "2.00 GiB of 8.00 GiB, 25.0%, 2.15 GB/s, 3s left");
  EXPECT_EQ(FormatProgress(kMiB, 3 * kMiB, absl::Milliseconds(1500)),
            "1.00 MiB of 3.00 MiB, 33.3%, 0.70 MB/s, 3s left");
  EXPECT_EQ(FormatProgress(1000, 360'001'000, absl::Seconds(1)), "1000 bytes of 343 MiB, 0.0%, 0.00 MB/s, 100h left");
}

TEST(FormatProgress, HasNoRateAtFirstAndNothingLeftAtLast) {
  EXPECT_EQ(FormatProgress(0, kMiB, absl::Seconds(2)), "0 bytes of 1.00 MiB, 0.0%");
  EXPECT_EQ(FormatProgress(kMiB, kMiB, absl::ZeroDuration()), "1.00 MiB of 1.00 MiB, 100.0%");
  EXPECT_EQ(FormatProgress(kMiB, kMiB, absl::Seconds(1)), "1.00 MiB of 1.00 MiB, 100.0%, 1.05 MB/s, 0 left");
  EXPECT_EQ(FormatProgress(kMiB, 0, absl::Seconds(1)), "1.00 MiB, 1.05 MB/s");  // of what has no known size
}

class ProgressLineTest : public ::testing::Test {
 protected:
  std::string DrawAfter(std::int64_t ms) { return line_.Draw(1, 2, start_ + absl::Milliseconds(ms)); }

  const absl::Time start_ = absl::UnixEpoch();
  ProgressLine line_{start_};
};

TEST_F(ProgressLineTest, IsDrawnAfterASecondAndTenTimesASecond) {
  EXPECT_THAT(DrawAfter(0), IsEmpty());
  EXPECT_THAT(DrawAfter(999), IsEmpty());
  EXPECT_EQ(DrawAfter(1000), "\r\x1b[K1 bytes of 2 bytes, 50.0%, 0.00 MB/s, 1s left");
  EXPECT_THAT(DrawAfter(1099), IsEmpty());
  int drawn = 0;
  for (std::int64_t ms = 1100; ms < 2100; ++ms) drawn += DrawAfter(ms).empty() ? 0 : 1;
  EXPECT_EQ(drawn, 10);
}

TEST_F(ProgressLineTest, IsTakenAwayOnceIfItWasDrawn) {
  DrawAfter(999);
  EXPECT_THAT(line_.Clear(), IsEmpty());
  DrawAfter(1500);
  EXPECT_EQ(line_.Clear(), "\r\x1b[K");
  EXPECT_THAT(line_.Clear(), IsEmpty());
}

}  // namespace
}  // namespace reduced::client

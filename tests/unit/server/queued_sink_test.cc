#include "server/observe/queued_sink.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "spdlog/logger.h"

namespace reduced::server {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kSoon = absl::Seconds(5);

// A pipe of one page that is read only when a test says so.
class Pipe {
 public:
  Pipe() {
    EXPECT_EQ(pipe2(ends_.data(), O_CLOEXEC), 0);
    EXPECT_GT(fcntl(ends_[1], F_SETPIPE_SZ, 4096), 0);
  }
  ~Pipe() {
    CloseReader();
    close(ends_[1]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int writer() const { return ends_[1]; }
  void CloseReader() {
    if (ends_[0] >= 0) close(ends_[0]);
    ends_[0] = -1;
  }
  // Lines, until one has `text` in it.
  std::vector<std::string> ReadUntil(const std::string& text) {
    std::string all;
    while (all.find(text) == std::string::npos || all.back() != '\n') {
      std::array<char, 1000> piece;
      const ssize_t size = read(ends_[0], piece.data(), piece.size());
      if (size <= 0) break;
      all.append(piece.data(), static_cast<std::size_t>(size));
    }
    std::vector<std::string> lines;
    std::istringstream in(all);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

struct Log {
  explicit Log(int fd, std::size_t max_bytes) : sink(std::make_shared<QueuedSink>(fd, max_bytes)) {
    sink->set_pattern("%v");
  }
  const std::shared_ptr<QueuedSink> sink;
  spdlog::logger logger{"test", sink};
};

TEST(QueuedSinkTest, WritesWholeLinesInOrder) {
  Pipe pipe;
  Log log(pipe.writer(), QueuedSink::kMaxBytes);
  const std::string longer(20'000, 'x');  // than the pipe takes at once
  log.logger.info("first");
  log.logger.info("{}", longer);
  log.logger.info("last");
  EXPECT_THAT(pipe.ReadUntil("last"), testing::ElementsAre("first", longer, "last"));
  EXPECT_EQ(log.sink->dropped(), 0U);
}

TEST(QueuedSinkTest, DropsAndCountsWhatNobodyReads) {
  Pipe pipe;
  Log log(pipe.writer(), 10'000);
  const absl::Time start = absl::Now();
  for (int i = 0; i < 1000; ++i) log.logger.info("{:099}", i);  // 100 bytes
  EXPECT_LT(absl::Now() - start, kSoon);
  // The pipe has 40 lines, the queue 100.
  const std::uint64_t dropped = log.sink->dropped();
  EXPECT_GE(dropped, 1000U - 40 - 100);
  EXPECT_LE(dropped, 1000U - 100);

  const std::vector<std::string> lines = pipe.ReadUntil("dropped");
  ASSERT_EQ(lines.size(), 1000 - dropped + 1);
  for (std::size_t i = 0; i + 1 < lines.size(); ++i) EXPECT_EQ(std::stoul(lines[i]), i);
  EXPECT_THAT(lines.back(), HasSubstr(absl::StrCat(dropped, " lines of the log were dropped")));

  log.logger.info("it goes on");
  EXPECT_THAT(pipe.ReadUntil("goes on"), testing::ElementsAre("it goes on"));
}

TEST(QueuedSinkTest, NothingFollowsAGapBeforeItIsReported) {
  Pipe pipe;
  Log log(pipe.writer(), 10'050);
  for (int i = 0; i < 1000; ++i) log.logger.info("{:099}", i);
  const std::uint64_t dropped = log.sink->dropped();
  log.logger.info("short");  // for which there is room
  EXPECT_EQ(log.sink->dropped(), dropped + 1);
  EXPECT_THAT(pipe.ReadUntil("dropped"), testing::Not(testing::Contains("short")));
}

TEST(QueuedSinkTest, NeitherFlushNorTheEndWaitForever) {
  Pipe pipe;
  const absl::Time start = absl::Now();
  {
    Log log(pipe.writer(), 10'000);
    for (int i = 0; i < 100; ++i) log.logger.info("{:099}", i);
    log.logger.flush();
    EXPECT_GE(absl::Now() - start, absl::Milliseconds(400));
  }
  EXPECT_LT(absl::Now() - start, kSoon);
}

TEST(QueuedSinkTest, FlushWaitsForWhatIsRead) {
  Pipe pipe;
  Log log(pipe.writer(), QueuedSink::kMaxBytes);
  log.logger.info("a line");
  log.logger.flush();
  EXPECT_EQ(fcntl(pipe.writer(), F_GETFL) & O_NONBLOCK, 0) << "the file is not the sink's alone";
  EXPECT_THAT(pipe.ReadUntil("line"), testing::ElementsAre("a line"));
}

TEST(QueuedSinkTest, AFileThatTakesNothing) {
  Pipe gone;
  gone.CloseReader();
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  for (const int fd : {gone.writer(), full, -1}) {
    const absl::Time start = absl::Now();
    Log log(fd, QueuedSink::kMaxBytes);
    log.logger.info("one");
    log.logger.flush();
    log.logger.info("two");
    log.logger.flush();
    EXPECT_EQ(log.sink->dropped(), 2U) << fd;
    EXPECT_LT(absl::Now() - start, kSoon);
  }
  close(full);
}

}  // namespace
}  // namespace reduced::server

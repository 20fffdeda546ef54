#include "server/sources/closer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace reduced::server {
namespace {

constexpr uid_t kUser = 1000;
constexpr absl::Duration kCloseTimeout = absl::Seconds(30);

// Whether all is closed in time.
bool Finishes(Closer& closer) {
  const absl::Time deadline = absl::Now() + kCloseTimeout;
  while (closer.Waits() && absl::Now() < deadline) {
    std::vector<pollfd> polled;
    closer.AddTo(&polled);
    poll(polled.data(), polled.size(), Closer::kPollMs);
    closer.Poll();
  }
  return !closer.Waits();
}

TEST(CloserTest, ClosesDescriptorsOfThisProcess) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const absl::Cleanup close_end = [&] { close(ends[0]); };
  Closer closer;
  closer.Close(kUser, {ends[1]});
  EXPECT_TRUE(closer.IsBusy(kUser));
  EXPECT_FALSE(closer.IsBusy(kUser + 1));
  EXPECT_TRUE(Finishes(closer));
  EXPECT_FALSE(closer.IsBusy(kUser));
  char byte = 0;
  EXPECT_EQ(read(ends[0], &byte, 1), 0) << "no end of the pipe's other side";
  EXPECT_EQ(fcntl(ends[1], F_GETFD), -1);
  EXPECT_EQ(errno, EBADF);
}

// Locks the mutex: each `path` is another call stack.
template <bool odd>
[[gnu::noinline]] int Lock(std::mutex& mutex, std::size_t path, int depth) {
  if (depth > 0) {
    return 1 + (path % 2 != 0 ? Lock<true>(mutex, path / 2, depth - 1) : Lock<false>(mutex, path / 2, depth - 1));
  }
  const std::lock_guard<std::mutex> lock(mutex);
  return 0;
}

// A process has the locks of the moment when it was forked, and nobody there to release them. Such are those of memory
// allocation, and of ThreadSanitizer for each new call stack.
TEST(CloserTest, ProcessesNeedNoLockOfOtherThreads) {
  constexpr int kDepth = 16;
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  const absl::Cleanup end = [&] {
    stop = true;
    for (std::thread& thread : threads) thread.join();
  };
  for (std::size_t first : {0, 1 << 15}) {
    threads.emplace_back([&stop, first] {
      for (std::size_t path = first; !stop;) {
        std::vector<std::mutex> mutexes(500);
        for (std::mutex& mutex : mutexes) Lock<false>(mutex, path++, kDepth);
      }
    });
  }
  for (int i = 0; i < 50; ++i) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    Closer closer;
    closer.Close(kUser, {ends[0], ends[1]});
    ASSERT_TRUE(Finishes(closer)) << "process " << i;
  }
}

}  // namespace
}  // namespace reduced::server

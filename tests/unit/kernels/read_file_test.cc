#include "kernels/system/read_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace reduced {
namespace {

using ::testing::HasSubstr;

TEST(ReadFile, ARangeOfADescriptor) {
  const int file = memfd_create("test", MFD_CLOEXEC);
  ASSERT_EQ(write(file, "0123456789", 10), 10);
  std::string text(4, '\0');
  EXPECT_TRUE(ReadFile(file, 3, 4, text.data()).ok());
  EXPECT_EQ(text, "3456");
  EXPECT_TRUE(ReadFile(file, 20, 0, nullptr).ok());
  const absl::Status shrunk = ReadFile(file, 8, 4, text.data());
  EXPECT_EQ(shrunk.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(shrunk.message()), HasSubstr("ends at byte 10, but the array has 2 bytes more"));
  close(file);
  const absl::Status closed = ReadFile(file, 0, 4, text.data());
  EXPECT_THAT(std::string(closed.message()), HasSubstr("Bad file descriptor"));
}

TEST(ReadSmallFile, AllOfItOrWhyNot) {
  const std::string path = ::testing::TempDir() + "/read_file_test";
  std::ofstream(path) << std::string(20'000, 'x');
  EXPECT_EQ(*ReadSmallFile(path, 20'000, Pipes::kRefuse), std::string(20'000, 'x'));
  EXPECT_EQ(ReadSmallFile(path, 19'999, Pipes::kRefuse).status(),
            absl::InvalidArgumentError("has more than 19999 bytes"));
  std::ofstream(path, std::ios::trunc).close();
  EXPECT_EQ(*ReadSmallFile(path, 10, Pipes::kWait), "");
  unlink(path.c_str());
  EXPECT_EQ(ReadSmallFile(path, 10, Pipes::kWait).status(),
            absl::InvalidArgumentError("can't be read: No such file or directory"));
  EXPECT_EQ(ReadSmallFile("/", 10, Pipes::kWait).status(), absl::InvalidArgumentError("can't be read: Is a directory"));
  EXPECT_EQ(ReadSmallFile("/dev/zero", 10, Pipes::kWait).status(),
            absl::InvalidArgumentError("has more than 10 bytes"));
}

TEST(ReadSmallFile, APipeIsWaitedForOrRefused) {
  const std::string path = ::testing::TempDir() + "/read_file_test_pipe";
  unlink(path.c_str());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const int writer = open(path.c_str(), O_RDWR | O_CLOEXEC);  // without waiting for a reader
  EXPECT_THAT(std::string(ReadSmallFile(path, 10, Pipes::kRefuse).status().message()), HasSubstr("can't be read"));
  close(writer);
  EXPECT_EQ(*ReadSmallFile(path, 10, Pipes::kRefuse), "");  // no writer: nothing to read
  unlink(path.c_str());
}

}  // namespace
}  // namespace reduced

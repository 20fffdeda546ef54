// Regions: the socket that memory is shared through, and reductions of what was shared.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "reduced/v1/regions.pb.h"
#include "tests/service/sharer.h"
#include "tests/service/test_server.h"

namespace reduced::server {
namespace {

using ::testing::HasSubstr;

class RegionsTest : public ::testing::Test {
 protected:
  RegionsTest() : RegionsTest(Patient()) {}
  explicit RegionsTest(const ServerOptions& options) : server_(options) {}
  ~RegionsTest() override { EXPECT_EQ(InUse(), 0) << "the server holds regions that nobody shares"; }

  // No array takes too long, in a build with sanitizers, either.
  static ServerOptions Patient() {
    ServerOptions options;
    options.limits.max_run_time = absl::Hours(1000);
    return options;
  }
  std::string path() { return Info().region_socket(); }
  v1::GetServerInfoResponse Info() {
    v1::GetServerInfoResponse info;
    EXPECT_TRUE(server_.client().Info(&info).ok());
    return info;
  }
  // Regions in use, once they are none or kPatience is over: the server learns of a closed connection in its own time.
  int InUse() {
    const absl::Time end = absl::Now() + kPatience;
    int regions = 0;
    do {
      regions = Info().usage().regions();
    } while (regions != 0 && absl::Now() < end);
    return regions;
  }
  // The sum, or the status.
  std::string Sum(const v1::ReduceRequest& request) {
    v1::ReduceResponse response;
    const grpc::Status status = server_.client().Reduce(request, &response);
    if (status.ok()) return Text(response.results(0).value());
    return absl::StrFormat("%s: %s", absl::StatusCodeToString(static_cast<absl::StatusCode>(status.error_code())),
                           status.error_message());
  }

  TestServer server_;
};

TEST_F(RegionsTest, AreBesideTheServersSocket) { EXPECT_EQ("unix:" + path(), server_.address() + ".regions"); }

TEST_F(RegionsTest, AnswerAsInlineElementsDo) {
  Sharer sharer(path());
  // Small and large; not sealed, sealed against other sizes only, sealed.
  for (const std::int32_t count : {1, 1000, 3'000'001}) {
    for (const int seals : {0, F_SEAL_SHRINK | F_SEAL_GROW, kSeals}) {
      SCOPED_TRACE(::testing::Message() << count << " elements, seals " << seals);
      const Descriptor memory(NumbersInMemory(count, seals));
      const v1::RegionReply reply = sharer.Share(memory);
      EXPECT_EQ(reply.code(), 0) << reply.message();
      EXPECT_EQ(reply.bytes(), count * 4);
      EXPECT_EQ(reply.token().size(), 32U);
      EXPECT_EQ(Sum(SumOfRegion(reply.token(), count)), SumTo(count));
      EXPECT_EQ(Sum(SumOfRegion(reply.token(), count - 1, 4)),
                absl::StrFormat("i64:%d", count * (count + 1LL) / 2 - 1));
      EXPECT_EQ(Sum(SumOfRegion(reply.token(), 0, 4L * count)), "i64:0");
      EXPECT_EQ(sharer.Release(reply.token()).code(), 0);
    }
  }
  const Descriptor holes(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(holes, 1 << 20), 0);
  ASSERT_EQ(fcntl(holes, F_ADD_SEALS, kSeals), 0);
  EXPECT_EQ(Sum(SumOfRegion(sharer.Share(holes).token(), 1 << 18)), "i64:0");
  struct stat status;
  ASSERT_EQ(fstat(holes, &status), 0);
  EXPECT_EQ(status.st_blocks, 0) << "reading a hole has filled it";
}

TEST_F(RegionsTest, ElementsNeedNoAlignment) {
  Sharer sharer(path());
  const Descriptor memory(memfd_create("test", MFD_CLOEXEC));
  const double numbers[] = {0.5, 0.25};
  ASSERT_EQ(pwrite(memory, numbers, sizeof(numbers), 3), static_cast<ssize_t>(sizeof(numbers)));
  EXPECT_EQ(Sum(SumOfRegion(sharer.Share(memory).token(), 2, 3, v1::DTYPE_F64)), "f64:0.75");
}

TEST_F(RegionsTest, PosixSharedMemoryIsMemory) {
  Sharer sharer(path());
  const std::string name = absl::StrFormat("/reduced_test_%d", getpid());
  const Descriptor memory(shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600));
  ASSERT_EQ(shm_unlink(name.c_str()), 0);
  const std::int32_t numbers[] = {20, 3};
  ASSERT_EQ(pwrite(memory, numbers, sizeof(numbers), 0), static_cast<ssize_t>(sizeof(numbers)));
  EXPECT_EQ(Sum(SumOfRegion(sharer.Share(memory).token(), 2)), "i64:23");
}

TEST_F(RegionsTest, PinNeedsSealsAndNoHoles) {
  Sharer sharer(path());
  const Descriptor sealed(NumbersInMemory(1000, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE));
  const v1::RegionReply reply = sharer.Share(sealed, /*pin=*/true);
  EXPECT_EQ(reply.code(), 0) << reply.message();
  EXPECT_EQ(Sum(SumOfRegion(reply.token(), 1000)), SumTo(1000));

  for (const int seals : {0, F_SEAL_SHRINK, F_SEAL_FUTURE_WRITE}) {
    const Descriptor open(NumbersInMemory(1000, seals));
    const v1::RegionReply refused = sharer.Share(open, /*pin=*/true);
    EXPECT_EQ(refused.code(), grpc::FAILED_PRECONDITION);
    EXPECT_THAT(refused.message(), HasSubstr("F_SEAL_SHRINK"));
  }

  const Descriptor holes(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(holes, 1 << 20), 0);
  ASSERT_EQ(fcntl(holes, F_ADD_SEALS, kSeals), 0);
  EXPECT_EQ(sharer.Share(holes, /*pin=*/true).code(), grpc::FAILED_PRECONDITION);
}

// Its holes are faults where the system has no huge page left: mapped only if there can't be any.
TEST_F(RegionsTest, HugePagesArePinnedIfNobodyCanWrite) {
  const Descriptor memory(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  constexpr std::size_t kBytes = 2 << 20;
  void* data = ftruncate(memory, kBytes) == 0 ? mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0)
                                              : MAP_FAILED;
  if (data == MAP_FAILED) GTEST_SKIP() << "this machine has no huge pages of 2 MiB set aside";
  *static_cast<std::int32_t*>(data) = 23;
  munmap(data, kBytes);
  Sharer sharer(path());
  ASSERT_EQ(fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  const v1::RegionReply refused = sharer.Share(memory, /*pin=*/true);
  EXPECT_EQ(refused.code(), grpc::FAILED_PRECONDITION);
  EXPECT_THAT(refused.message(), HasSubstr("not sealed"));
  EXPECT_EQ(Sum(SumOfRegion(sharer.Share(memory).token(), kBytes / 4)), "i64:23");
  ASSERT_EQ(fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE), 0);
  const v1::RegionReply pinned = sharer.Share(memory, /*pin=*/true);
  EXPECT_EQ(pinned.code(), 0) << pinned.message();
  EXPECT_EQ(Sum(SumOfRegion(pinned.token(), kBytes / 4)), "i64:23");
}

// Pipelines that need all of the array in memory don't take more of it than the CPU's arrays may.
TEST_F(RegionsTest, AHugeRegionFillsNoMemory) {
  Sharer sharer(path());
  const Descriptor memory(memfd_create("test", MFD_CLOEXEC));
  constexpr std::int64_t kBytes = std::int64_t{1} << 42;
  ASSERT_EQ(ftruncate(memory, kBytes), 0);
  const std::string token = sharer.Share(memory).token();
  for (const char* pipeline : {"sequential", "recursive_pairs"}) {
    v1::ReduceRequest request = SumOfRegion(token, kBytes / 4);
    request.mutable_options()->set_pipeline(pipeline);
    EXPECT_THAT(Sum(request), HasSubstr(absl::StrFormat("RESOURCE_EXHAUSTED: pipeline %s needs memory", pipeline)));
  }
}

TEST_F(RegionsTest, ADescriptorThatTheServerHasNoPlaceForIsRefused) {
  Sharer sharer(path());
  EXPECT_EQ(sharer.Release("x").code(), grpc::NOT_FOUND);  // by now it is connected
  const Descriptor memory(NumbersInMemory(10));
  const int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
  close(next);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit none_left = limit;
  none_left.rlim_cur = static_cast<rlim_t>(next);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none_left), 0);
  const v1::RegionReply refused = sharer.Share(memory);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(refused.code(), grpc::RESOURCE_EXHAUSTED) << refused.message();
  EXPECT_THAT(refused.message(), HasSubstr("no file descriptor left"));
  const v1::RegionReply reply = sharer.Share(memory);
  EXPECT_EQ(Sum(SumOfRegion(reply.token(), 10)), SumTo(10));
}

TEST_F(RegionsTest, MemoryMayChangeWhileItIsShared) {
  Sharer sharer(path());
  const std::int32_t count = 1'000'000;
  const Descriptor memory(NumbersInMemory(count));
  const std::string token = sharer.Share(memory).token();
  // A hole: zeros from then on.
  ASSERT_EQ(fallocate(memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
  EXPECT_EQ(Sum(SumOfRegion(token, count)), absl::StrFormat("i64:%d", count * (count + 1L) / 2 - 1024 * 1025 / 2));
  // More of it: the region stays as large as it was.
  ASSERT_EQ(ftruncate(memory, 8L * count), 0);
  EXPECT_THAT(Sum(SumOfRegion(token, 2 * count)), HasSubstr("OUT_OF_RANGE"));
  // Less: what is gone can't be read.
  ASSERT_EQ(ftruncate(memory, 2L * count), 0);
  EXPECT_THAT(Sum(SumOfRegion(token, count)), HasSubstr("FAILED_PRECONDITION: the array's memory has shrunk"));
  EXPECT_EQ(Sum(SumOfRegion(token, 1, 4096)), "i64:1025");
}

// Truncated and extended all the while: each answer is some sum or FAILED_PRECONDITION, and the server lives.
TEST_F(RegionsTest, MemoryMayShrinkWhileItIsRead) {
  Sharer sharer(path());
  const std::int32_t count = 1'000'000;
  const Descriptor memory(NumbersInMemory(count));
  const std::string token = sharer.Share(memory).token();
  std::atomic<bool> stop = false;
  std::thread changer([&] {
    while (!stop.load()) {
      EXPECT_EQ(ftruncate(memory, 0), 0);
      EXPECT_EQ(ftruncate(memory, 4L * count), 0);
    }
  });
  for (int i = 0; i < 50; ++i) {
    const std::string sum = Sum(SumOfRegion(token, count));
    EXPECT_TRUE(sum.rfind("i64:", 0) == 0 || sum.rfind("FAILED_PRECONDITION", 0) == 0) << sum;
  }
  stop = true;
  changer.join();
  EXPECT_EQ(Sum(SumOfRegion(token, count)), "i64:0");
}

TEST_F(RegionsTest, OnlyReadableMemoryIsTaken) {
  Sharer sharer(path());
  TempDir dir;
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Descriptor read_end(ends[0]);
  const Descriptor write_end(ends[1]);
  const Descriptor memory(NumbersInMemory(10));
  const std::string again = absl::StrFormat("/proc/self/fd/%d", static_cast<int>(memory));
  struct Case {
    int file;
    const char* why;
  };
  const Case cases[] = {
      {read_end, "got a pipe"},
      {open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC), "got a directory"},
      {open("/dev/null", O_RDONLY | O_CLOEXEC), "got a device"},
      {socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "got a socket"},
      {open(again.c_str(), O_WRONLY | O_CLOEXEC), "not open for reading"},
      {open(again.c_str(), O_PATH | O_CLOEXEC), "not open for reading"},
      {open("/proc/self/exe", O_RDONLY | O_CLOEXEC), "a file on disk"},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.why);
    ASSERT_GE(each.file, 0) << std::strerror(errno);
    const v1::RegionReply reply = sharer.Share(each.file);
    EXPECT_EQ(reply.code(), grpc::INVALID_ARGUMENT);
    EXPECT_THAT(reply.message(), HasSubstr(each.why));
    if (each.file != read_end) close(each.file);
  }
}

TEST_F(RegionsTest, PacketsThatBreakTheProtocolAreAnswered) {
  Sharer sharer(path());
  const Descriptor memory(NumbersInMemory(10));
  struct Case {
    std::string text;
    std::vector<int> files;
    const char* why;
  };
  const Case cases[] = {
      {"hello", {}, "a RegionRequest in JSON"},
      {"{}", {}, "request: got none"},
      {R"({"shareMemory": {}})", {}, "got no descriptor"},
      {R"({"shareMemory": {}})", {memory, memory}, "one descriptor"},
      {R"({"shareMemory": {}})", std::vector<int>(9, memory), "one descriptor"},
      {R"({"release": {"token": "x"}})", {memory}, "without shareMemory"},
      {R"({"shareDevice": {}})", {}, "device_uuid: got ; allowed: none"},
      {R"({"unknown": {}})", {}, "a RegionRequest in JSON"},
      {std::string(5000, ' '), {}, "at most 4096 bytes"},
  };
  EXPECT_EQ(sharer.Release("x").code(), grpc::NOT_FOUND);  // by now it is connected
  const int files = DescriptorsInUse();
  for (const Case& each : cases) {
    SCOPED_TRACE(each.why);
    const v1::RegionReply reply = sharer.Ask(each.text, each.files);
    EXPECT_NE(reply.code(), 0);
    EXPECT_THAT(reply.message(), HasSubstr(each.why));
    EXPECT_EQ(reply.token(), "");
  }
  EXPECT_TRUE(DescriptorsReturnTo(files)) << "descriptors that were refused stay open";
  EXPECT_EQ(sharer.Share(memory).code(), 0);
}

TEST_F(RegionsTest, RequestsMustFitTheRegion) {
  Sharer sharer(path());
  const Descriptor memory(NumbersInMemory(10));
  const std::string token = sharer.Share(memory).token();
  for (const std::int64_t offset :
       {std::int64_t{1}, std::int64_t{40}, std::int64_t{41}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::max(),
        std::numeric_limits<std::int64_t>::min()}) {
    EXPECT_THAT(Sum(SumOfRegion(token, 10, offset)), HasSubstr("OUT_OF_RANGE")) << offset;
  }
  EXPECT_THAT(Sum(SumOfRegion(token, std::int64_t{1} << 39)), HasSubstr("OUT_OF_RANGE"));
  EXPECT_THAT(Sum(SumOfRegion("", 10)), HasSubstr("NOT_FOUND"));
  EXPECT_THAT(Sum(SumOfRegion(std::string(32, '0'), 10)), HasSubstr("NOT_FOUND"));
  EXPECT_EQ(Sum(SumOfRegion(token, 10)), SumTo(10));
}

TEST_F(RegionsTest, BelongToTheirConnection) {
  Sharer mine(path());
  const Descriptor memory(NumbersInMemory(10));
  const std::string token = mine.Share(memory).token();
  {
    Sharer other(path());
    const v1::RegionReply refused = other.Release(token);
    EXPECT_EQ(refused.code(), grpc::PERMISSION_DENIED);
    EXPECT_THAT(refused.message(), HasSubstr("another connection"));
    EXPECT_EQ(other.Release(std::string(32, '0')).code(), grpc::NOT_FOUND);
  }
  EXPECT_EQ(Sum(SumOfRegion(token, 10)), SumTo(10));
  EXPECT_EQ(mine.Release(token).code(), 0);
  EXPECT_EQ(mine.Release(token).code(), grpc::NOT_FOUND);
  EXPECT_THAT(Sum(SumOfRegion(token, 10)), HasSubstr("NOT_FOUND"));
}

TEST_F(RegionsTest, GoWithTheirConnection) {
  const std::string at = path();
  const int files = DescriptorsInUse();  // the call's connection among them
  std::string token;
  {
    Sharer sharer(at);
    const Descriptor memory(NumbersInMemory(10));
    token = sharer.Share(memory).token();
    EXPECT_EQ(Info().usage().regions(), 1);
    EXPECT_EQ(Sum(SumOfRegion(token, 10)), SumTo(10));
  }
  EXPECT_EQ(InUse(), 0);
  EXPECT_THAT(Sum(SumOfRegion(token, 10)), HasSubstr("NOT_FOUND"));
  EXPECT_TRUE(DescriptorsReturnTo(files));
}

}  // namespace
}  // namespace reduced::server

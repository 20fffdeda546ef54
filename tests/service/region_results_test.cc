// Results that are written to a region: where they go, what is refused, and what the region's owner may do meanwhile.
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "reduced/client.h"
#include "tests/service/array_calls.h"
#include "tests/service/sharer.h"
#include "tests/service/test_server.h"

namespace reduced::server::region_results {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Matcher;
using Code = grpc::StatusCode;

constexpr std::int64_t kBytes = 4096;
constexpr char kShare[] = R"({"shareMemory": {"writable": true}})";

// A memfd whose bytes are all '#'.
int MemoryForResults(std::int64_t bytes, int seals = F_SEAL_SHRINK | F_SEAL_GROW) {
  const int file = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const std::string filled(static_cast<std::size_t>(bytes), '#');
  EXPECT_EQ(pwrite(file, filled.data(), filled.size(), 0), bytes);
  EXPECT_EQ(fcntl(file, F_ADD_SEALS, seals), 0);
  return file;
}

std::string BytesAt(int file, std::int64_t offset, std::int64_t bytes) {
  std::string text(static_cast<std::size_t>(bytes), '\0');
  EXPECT_EQ(pread(file, text.data(), text.size(), offset), bytes);
  return text;
}

template <class T>
std::vector<T> At(int file, std::int64_t offset, std::int64_t count) {
  const std::string bytes = BytesAt(file, offset, count * static_cast<std::int64_t>(sizeof(T)));
  std::vector<T> elements(static_cast<std::size_t>(count));
  std::memcpy(elements.data(), bytes.data(), bytes.size());
  return elements;
}

// 1 to 6 of shape (2, 3), along the last dimension.
v1::ReduceRequest RowsOfSix(const std::vector<v1::Op>& ops, const std::string& token, std::int64_t offset) {
  v1::ReduceRequest request = RequestOf(v1::DTYPE_I32, std::vector<std::int32_t>{1, 2, 3, 4, 5, 6}, ops);
  request.mutable_array()->mutable_shape()->Clear();
  request.mutable_array()->add_shape(2);
  request.mutable_array()->add_shape(3);
  request.mutable_axes()->add_axis(-1);
  request.mutable_write_to()->set_token(token);
  request.mutable_write_to()->set_offset(offset);
  return request;
}

class RegionResultsTest : public ::testing::Test {
 protected:
  static ServerOptions Options() {
    ServerOptions options;
    options.limits.max_result_bytes = 1 << 20;
    options.regions.allow_disk_files = true;
    options.engines.memory = std::make_shared<MemoryBudget>(64 << 20);
    return options;
  }

  std::string path() { return InfoOf(server_).region_socket(); }
  std::string Share(int file) {
    const v1::RegionReply reply = sharer_.Ask(kShare, {file});
    EXPECT_EQ(reply.code(), 0) << reply.message();
    return reply.token();
  }
  v1::ReduceResponse Reduce(const v1::ReduceRequest& request) {
    v1::ReduceResponse response;
    const grpc::Status status = server_.client().Reduce(request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  void ExpectRefused(const v1::ReduceRequest& request, Code code, const std::string& message) {
    v1::ReduceResponse response;
    const grpc::Status status = server_.client().Reduce(request, &response);
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(message));
  }

  const ServerOptions options_ = Options();
  TestServer server_{options_};
  Sharer sharer_{path()};
};

TEST_F(RegionResultsTest, OneAfterTheOtherAndNothingElse) {
  const Descriptor memory(MemoryForResults(kBytes));
  const std::string token = Share(memory);
  const v1::ReduceResponse response = Reduce(RowsOfSix({v1::OP_SUM, v1::OP_MAX, v1::OP_MEAN}, token, 64));
  ASSERT_EQ(response.arrays_size(), 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(response.arrays(i).where_case(), v1::ArrayResult::kWrittenAt);
    EXPECT_EQ(response.arrays(i).written_at(), 64 * (i + 1));
    EXPECT_EQ(response.arrays(i).array().shape(0), 2);
  }
  EXPECT_THAT(At<std::int64_t>(memory, 64, 2), ElementsAre(6, 15));
  EXPECT_THAT(At<std::int32_t>(memory, 128, 2), ElementsAre(3, 6));
  EXPECT_THAT(At<double>(memory, 192, 2), ElementsAre(2, 5));
  for (const auto& [begin, end] : {std::pair(0, 64), {64 + 16, 128}, {128 + 8, 192}, {192 + 16, 4096}}) {
    EXPECT_THAT(BytesAt(memory, begin, end - begin), Each('#')) << begin;
  }
  EXPECT_EQ(options_.engines.memory->taken(), 0);
  // The region is also a source: the maxima of the sums that were written.
  v1::ReduceRequest next = SumOfRegion(token, 2, 64, v1::DTYPE_I64);
  EXPECT_EQ(Text(Reduce(next).results(0).value()), "i64:21");
}

TEST_F(RegionResultsTest, KeysFollow) {
  const Descriptor memory(MemoryForResults(kBytes));
  v1::ReduceRequest request = RequestOf(v1::DTYPE_F32, std::vector<float>{1, 2, 4, 8}, {v1::OP_SUM, v1::OP_COUNT});
  const std::int16_t keys[] = {9, -3, 9, 5};
  v1::SideArray& side = *request.mutable_keys()->mutable_keys();
  side.mutable_array()->set_dtype(v1::DTYPE_I16);
  side.mutable_array()->add_shape(4);
  side.set_inline_data(keys, sizeof(keys));
  request.mutable_write_to()->set_token(Share(memory));
  const v1::ReduceResponse response = Reduce(request);
  EXPECT_EQ(response.keys().written_at(), 128);
  EXPECT_THAT(At<double>(memory, 0, 3), ElementsAre(2, 8, 5));
  EXPECT_THAT(At<std::uint64_t>(memory, 64, 3), ElementsAre(1, 1, 2));
  EXPECT_THAT(At<std::int16_t>(memory, 128, 3), ElementsAre(-3, 5, 9));
}

TEST_F(RegionResultsTest, OfTheDistribution) {
  const Descriptor memory(MemoryForResults(kBytes));
  v1::ReduceRequest request = RowsOfSix({}, Share(memory), 64);
  request.add_calls()->set_op(v1::OP_MEDIAN);
  v1::OpCall& top = *request.add_calls();
  top.set_op(v1::OP_TOPK);
  top.mutable_top()->set_k(2);
  EXPECT_EQ(Reduce(request).arrays(1).written_at(), 128);
  EXPECT_THAT(At<double>(memory, 64, 2), ElementsAre(2, 5));
  EXPECT_THAT(At<std::int32_t>(memory, 128, 4), ElementsAre(3, 2, 6, 5));
  request.clear_axes();  // the whole array
  EXPECT_EQ(Reduce(request).arrays(0).array().shape_size(), 0);
  EXPECT_THAT(At<double>(memory, 64, 1), ElementsAre(3.5));
  EXPECT_THAT(At<std::int32_t>(memory, 128, 2), ElementsAre(6, 5));
}

TEST_F(RegionResultsTest, PosixSharedMemory) {
  const std::string name = absl::StrFormat("/reduced_results_%d", getpid());
  const Descriptor memory(shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600));
  ASSERT_EQ(shm_unlink(name.c_str()), 0);
  ASSERT_EQ(posix_fallocate(memory, 0, 100), 0);
  const std::string token = Share(memory);
  Reduce(RowsOfSix({v1::OP_SUM}, token, 64));
  EXPECT_THAT(At<std::int64_t>(memory, 64, 2), ElementsAre(6, 15));
  ExpectRefused(RowsOfSix({v1::OP_SUM, v1::OP_SUM}, token, 64), Code::OUT_OF_RANGE, "within the 100 bytes");
}

// What does not fit in a response: a result of 8 bytes for each of 2^18 outputs.
TEST_F(RegionResultsTest, LargerThanAResponse) {
  constexpr std::int64_t kOutputs = 1 << 18;
  const Descriptor memory(MemoryForResults(8 * kOutputs));
  v1::ReduceRequest request = RequestOf(v1::DTYPE_U8, std::vector<std::uint8_t>(kOutputs, 7), {v1::OP_SUM});
  request.mutable_axes();
  ExpectRefused(request, Code::INVALID_ARGUMENT, "larger ones can be kept on the server or written to a region");
  request.mutable_write_to()->set_token(Share(memory));
  Reduce(request);
  EXPECT_THAT(At<std::uint64_t>(memory, 0, kOutputs), Each(7U));
  // Nor more than the server has memory for.
  const Descriptor huge(MemoryForResults(80 << 20));
  v1::ReduceRequest large = request;
  large.clear_ops();
  for (int i = 0; i < 32; ++i) large.add_ops(v1::OP_SUM);
  large.mutable_write_to()->set_token(Share(huge));
  ExpectRefused(large, Code::RESOURCE_EXHAUSTED, "no memory for the results of a request");
  EXPECT_THAT(BytesAt(huge, 0, 1 << 20), Each('#'));
}

TEST_F(RegionResultsTest, WrongRequests) {
  const Descriptor memory(MemoryForResults(kBytes));
  const Descriptor constant(NumbersInMemory(1000, kSeals));
  const std::string token = Share(memory);
  const std::string read_only = sharer_.Share(constant).token();
  using Change = std::function<void(v1::ReduceRequest*)>;
  const struct {
    Code code;
    std::string message;
    Change change;
  } cases[] = {
      {Code::NOT_FOUND, "write_to.token: got one of no shared region",
       [](auto* r) { r->mutable_write_to()->set_token(std::string(32, '0')); }},
      {Code::NOT_FOUND, "write_to.token: got one of no shared region", [](auto* r) { r->mutable_write_to()->Clear(); }},
      {Code::FAILED_PRECONDITION, "write_to.token: got that of a region that is not writable",
       [&](auto* r) { r->mutable_write_to()->set_token(read_only); }},
      {Code::INVALID_ARGUMENT, "write_to.offset: got 8; allowed: multiples of 64 from 0 on",
       [](auto* r) { r->mutable_write_to()->set_offset(8); }},
      {Code::INVALID_ARGUMENT, "write_to.offset: got -64; allowed: multiples of 64 from 0 on",
       [](auto* r) { r->mutable_write_to()->set_offset(-64); }},
      {Code::OUT_OF_RANGE, "write_to: got results of 16 bytes from byte 4096 on; allowed: within the 4096 bytes",
       [](auto* r) { r->mutable_write_to()->set_offset(4096); }},
      {Code::OUT_OF_RANGE, "write_to: got results of 80 bytes from byte 4032 on",
       [](auto* r) { r->mutable_write_to()->set_offset(4032), r->add_ops(v1::OP_SUM); }},
      {Code::OUT_OF_RANGE, "write_to: got results",
       [](auto* r) { r->mutable_write_to()->set_offset(std::int64_t{1} << 62); }},
      {Code::INVALID_ARGUMENT, "write_to: got it beside keep; allowed: one of them",
       [](auto* r) { r->mutable_keep(); }},
      {Code::INVALID_ARGUMENT, "write_to: got it without axes", [](auto* r) { r->clear_axes(); }},
  };
  for (const auto& each : cases) {
    SCOPED_TRACE(each.message);
    v1::ReduceRequest request = RowsOfSix({v1::OP_SUM}, token, 0);
    each.change(&request);
    ExpectRefused(request, each.code, each.message);
  }
  // An error that depends on the elements: none of the results is written.
  v1::ReduceRequest overflow =
      RequestOf(v1::DTYPE_I64, std::vector<std::int64_t>{1, INT64_MAX, 1}, {v1::OP_MAX, v1::OP_SUM});
  overflow.mutable_axes()->add_axis(0);
  overflow.mutable_write_to()->set_token(token);
  ExpectRefused(overflow, Code::OUT_OF_RANGE, "integer overflow");
  EXPECT_THAT(BytesAt(memory, 0, kBytes), Each('#'));
  // Or those of the op alone.
  overflow.set_op_errors(true);
  v1::ReduceResponse response;
  ASSERT_TRUE(server_.client().Reduce(overflow, &response).ok());
  EXPECT_EQ(response.arrays(0).written_at(), 0);
  EXPECT_EQ(response.arrays(1).error().code(), Code::OUT_OF_RANGE);
  std::int64_t max = 0;
  std::memcpy(&max, BytesAt(memory, 0, sizeof(max)).data(), sizeof(max));
  EXPECT_EQ(max, INT64_MAX);
  EXPECT_THAT(BytesAt(memory, 64, kBytes - 64), Each('#'));
  EXPECT_EQ(sharer_.Release(token).code(), 0);
  ExpectRefused(RowsOfSix({v1::OP_SUM}, token, 0), Code::NOT_FOUND, "write_to.token");
}

TEST_F(RegionResultsTest, OnlyWritableMemoryIsTaken) {
  const TempDir dir;
  const Descriptor whole(MemoryForResults(kBytes, 0));
  const Descriptor again(open(absl::StrFormat("/proc/self/fd/%d", static_cast<int>(whole)).c_str(), O_RDONLY));
  const Descriptor sealed(MemoryForResults(kBytes, F_SEAL_FUTURE_WRITE));
  const Descriptor constant(MemoryForResults(kBytes, F_SEAL_WRITE));
  const Descriptor empty(MemoryForResults(0));
  const Descriptor holes(memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(holes, 1 << 20), 0);
  const Descriptor disk(open((dir / "file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(write(disk, "12345678", 8), 8);
  const struct {
    int file;
    const char* why;
  } cases[] = {{again, "a descriptor that is not open for writing"},
               {sealed, "memory that is sealed against writing"},
               {constant, "memory that is sealed against writing"},
               {empty, "empty memory"},
               {holes, "memory with holes"},
               {disk, "a file on disk"}};
  for (const auto& each : cases) {
    SCOPED_TRACE(each.why);
    const v1::RegionReply reply = sharer_.Ask(kShare, {each.file});
    EXPECT_EQ(reply.code(), Code::FAILED_PRECONDITION);
    EXPECT_THAT(reply.message(), HasSubstr(absl::StrFormat("writable: got %s; allowed", each.why)));
  }
  const v1::RegionReply pinned = sharer_.Ask(R"({"shareMemory": {"pin": true, "writable": true}})", {whole});
  EXPECT_EQ(pinned.code(), Code::FAILED_PRECONDITION) << pinned.message();
  EXPECT_EQ(InfoOf(server_).usage().regions(), 0);
}

// Its owner cannot seal it meanwhile, so that the mapping stays writable; a shorter region is an error, and stays
// short.
TEST_F(RegionResultsTest, TheRegionMayShrink) {
  const Descriptor memory(MemoryForResults(kBytes, 0));
  const std::string token = Share(memory);
  EXPECT_EQ(fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_EQ(errno, EBUSY);
  ASSERT_EQ(ftruncate(memory, 0), 0);
  ExpectRefused(RowsOfSix({v1::OP_SUM}, token, 64), Code::FAILED_PRECONDITION,
                "write_to: byte 64 of the region can't be written, because it has shrunk");
  ASSERT_EQ(ftruncate(memory, 70), 0);  // the rest of its page can be written to, and is lost
  ExpectRefused(RowsOfSix({v1::OP_SUM}, token, 64), Code::FAILED_PRECONDITION,
                "write_to: the region has shrunk to 70 bytes, while 80 were written");
  struct stat now {};
  ASSERT_EQ(fstat(memory, &now), 0);
  EXPECT_EQ(now.st_size, 70);
  EXPECT_EQ(options_.engines.memory->taken(), 0);
}

// Truncated and extended all the while: each answer is right or FAILED_PRECONDITION, and the server lives.
TEST_F(RegionResultsTest, TheRegionMayShrinkWhileItIsWritten) {
  constexpr std::int64_t kOutputs = 1 << 15;
  const Descriptor memory(MemoryForResults(8 * kOutputs, 0));
  v1::ReduceRequest request = RequestOf(v1::DTYPE_U8, std::vector<std::uint8_t>(kOutputs, 7), {v1::OP_SUM});
  request.mutable_axes();
  request.mutable_write_to()->set_token(Share(memory));
  std::atomic<bool> stop = false;
  std::thread changer([&] {
    while (!stop.load()) {
      EXPECT_EQ(ftruncate(memory, 0), 0);
      EXPECT_EQ(ftruncate(memory, 8 * kOutputs), 0);
    }
  });
  for (int i = 0; i < 100; ++i) {
    v1::ReduceResponse response;
    const grpc::Status status = server_.client().Reduce(request, &response);
    EXPECT_TRUE(status.ok() || status.error_code() == Code::FAILED_PRECONDITION) << status.error_message();
  }
  stop = true;
  changer.join();
  Reduce(request);
  EXPECT_THAT(At<std::uint64_t>(memory, 0, kOutputs), Each(7U));
}

// A write() whose source never comes holds the lock of the region's file. What copies results needs no such lock.
TEST_F(RegionResultsTest, AWriterThatNeverEndsIsNotWaitedFor) {
  const int faults = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC));
  if (faults < 0) GTEST_SKIP() << "userfaultfd: " << std::strerror(errno);
  const Descriptor close_faults(faults);
  uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
  ASSERT_EQ(ioctl(faults, UFFDIO_API, &api), 0);
  void* const missing = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(missing, MAP_FAILED);
  uffdio_register range{};
  range.range = {.start = reinterpret_cast<std::uint64_t>(missing), .len = kBytes};
  range.mode = UFFDIO_REGISTER_MODE_MISSING;
  ASSERT_EQ(ioctl(faults, UFFDIO_REGISTER, &range), 0);

  const Descriptor memory(MemoryForResults(kBytes));
  const std::string token = Share(memory);
  std::atomic<bool> written = false;
  std::thread writer([&] {
    EXPECT_EQ(pwrite(memory, missing, 64, 2048), 64);
    written = true;
  });
  uffd_msg fault{};
  ASSERT_EQ(read(faults, &fault, sizeof(fault)), static_cast<ssize_t>(sizeof(fault)));  // the writer waits for the page
  Reduce(RowsOfSix({v1::OP_SUM}, token, 64));
  EXPECT_THAT(At<std::int64_t>(memory, 64, 2), ElementsAre(6, 15));
  EXPECT_FALSE(written.load());
  uffdio_zeropage zeros{};
  zeros.range = range.range;
  EXPECT_EQ(ioctl(faults, UFFDIO_ZEROPAGE, &zeros), 0);
  writer.join();
  munmap(missing, kBytes);
}

TEST_F(RegionResultsTest, TheClientLibrary) {
  using client::SharedBuffer;
  const auto connection = client::Client::Create({.server = server_.address(), .timeout = kPatience}).value();
  const SharedBuffer buffer = SharedBuffer::AllocateForResults(kBytes).value();
  EXPECT_FALSE(connection->Share(SharedBuffer::Allocate(kBytes).value(), {.writable = true}).ok());
  const client::Region region = connection->Share(buffer, {.writable = true}).value();
  const std::vector<float> samples = {1, 2, 3, 4, 5, 6};
  const auto reply = connection->ReduceArray(client::ArrayView::Of(samples, {{2, 3}}), {"max", "sum"},
                                             {.axis = {0}, .write_to = region.Place(128)});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(reply->Find("max")->data.empty());
  EXPECT_EQ(reply->results[1].written_at, 192);
  EXPECT_THAT(reply->results[0].In<float>(buffer), ElementsAre(4, 5, 6));
  EXPECT_THAT(reply->results[1].In<double>(buffer), ElementsAre(5, 7, 9));
  EXPECT_TRUE(reply->results[1].In<float>(buffer).empty());
  EXPECT_TRUE(reply->results[1].In<double>(SharedBuffer::AllocateForResults(200).value()).empty());
  // They feed the next request.
  const auto next = connection->Reduce(region.Array("f64", {3}, *reply->results[1].written_at), {"max"});
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(next->Find("max")->AsDouble(), 9);
  const auto small = connection->ReduceArray(client::ArrayView::Of(samples, {{2, 3}}), {"sum"},
                                             {.axis = {0}, .write_to = region.Place(kBytes)});
  EXPECT_TRUE(absl::IsOutOfRange(small.status())) << small.status();
}

// A stranger could make the server use memory.
TEST(RegionOwnersTest, OnlyMemoryOfTheServersUserAndOfRootUnlessAllowed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  constexpr uid_t kStranger = 12345;
  for (const bool allowed : {false, true}) {
    ServerOptions options;
    options.unix_socket_mode = "0666";
    options.regions.allow_writable_regions = allowed;
    TestServer server(options);
    const std::string path = InfoOf(server).region_socket();
    ASSERT_EQ(chmod(std::filesystem::path(path).parent_path().c_str(), 0755), 0);
    ASSERT_EQ(seteuid(kStranger), 0);
    Sharer stranger(path);
    ASSERT_EQ(seteuid(0), 0);
    const Descriptor memory(MemoryForResults(kBytes));
    const v1::RegionReply reply = stranger.Ask(kShare, {memory});
    EXPECT_EQ(reply.code(), allowed ? 0 : static_cast<int>(Code::PERMISSION_DENIED));
    const Matcher<std::string> refusal = HasSubstr("writable: got memory of uid 12345; allowed: of uid 0");
    EXPECT_THAT(reply.message(), allowed ? Matcher<std::string>(IsEmpty()) : refusal);
  }
}

}  // namespace
}  // namespace reduced::server::region_results

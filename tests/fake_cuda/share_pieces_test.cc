// Memory of CUDA's virtual memory management through the region socket, by packets and by reduced/cuda.h: the exporter,
// the server and the fake GPU are in this process.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "reduced/cuda.h"
#include "tests/fake_cuda/fake_cuda.h"
#include "tests/service/sharer.h"
#include "tests/service/test_server.h"

namespace reduced::server {
namespace {

using ::testing::HasSubstr;

constexpr auto kPiece = static_cast<std::int64_t>(fake_cuda::kGranularity);
constexpr std::int64_t kNumbers = kPiece / std::int64_t{sizeof(std::int32_t)};  // in kPiece bytes

std::int64_t SumOf(std::int64_t first, std::int64_t count) { return count * (2 * first + count - 1) / 2; }

// Pieces with the numbers 0, 1, 2... as i32.
class Exported {
 public:
  explicit Exported(const std::vector<std::size_t>& bytes, fake_cuda::Pieces kind = fake_cuda::Pieces::kShared)
      : base_(fake_cuda::MakePieces(bytes, kind)) {
    const std::size_t all = std::accumulate(bytes.begin(), bytes.end(), std::size_t{0});
    auto* const numbers = reinterpret_cast<std::int32_t*>(base_);
    std::iota(numbers, numbers + all / sizeof(std::int32_t), 0);
    for (std::size_t at = 0, i = 0; i < bytes.size(); at += bytes[i++]) {
      files_.push_back(std::make_unique<Descriptor>(kind == fake_cuda::Pieces::kWithoutHandles
                                                        ? open("/dev/null", O_RDONLY | O_CLOEXEC)
                                                        : fake_cuda::ExportPiece(base_ + at)));
    }
  }
  ~Exported() { fake_cuda::FreePieces(base_); }
  Exported(const Exported&) = delete;
  Exported& operator=(const Exported&) = delete;

  const std::byte* base() const { return base_; }
  std::vector<int> files(std::size_t begin, std::size_t count) const {
    std::vector<int> some;
    for (std::size_t i = begin; i < begin + count; ++i) some.push_back(*files_[i]);
    return some;
  }

 private:
  std::byte* const base_;
  std::vector<std::unique_ptr<Descriptor>> files_;
};

// A request for a region of such pieces.
std::string ShareDeviceOf(const std::vector<std::int64_t>& pieces, std::int64_t offset, std::int64_t bytes,
                          const std::string& more = "", const std::string& uuid = fake_cuda::kUuid) {
  return absl::StrCat(R"({"shareDevice": {"deviceUuid": ")", absl::Base64Escape(uuid), R"(", "pieces": [)",
                      absl::StrJoin(pieces, ", "), R"(], "offset": )", offset, R"(, "bytes": )", bytes, more, "}}");
}

class SharePiecesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_cuda::Heal();
    EngineOptions options;
    options.cuda_array_bytes = std::int64_t{64} << 20;
    absl::StatusOr<std::unique_ptr<Engines>> engines = Engines::Start(options);
    ASSERT_TRUE(engines.ok()) << engines.status();
    ServerOptions server;
    server.limits.max_run_time = absl::Hours(1000);
    server_ = std::make_unique<TestServer>(server, *std::move(engines));
    client_ = client::Client::Create({.server = server_->address(), .timeout = kPatience}).value();
    v1::GetServerInfoResponse info;
    ASSERT_TRUE(server_->client().Info(&info).ok());
    path_ = info.region_socket();
    before_ = fake_cuda::Use();
  }
  void TearDown() override {
    client_.reset();
    // The server learns of a closed connection in its own time.
    EXPECT_TRUE(Becomes(kPatience, [this] { return Held() == Held(before_); })) << fake_cuda::Use();
  }
  // What regions hold of the device; the server's own streams and events come and go.
  static std::pair<int, int> Held(const fake_cuda::InUse& in_use = fake_cuda::Use()) {
    return {in_use.pieces, in_use.ranges};
  }

  std::string Sum(const std::string& token, std::int64_t count, std::int64_t offset = 0) {
    v1::ReduceResponse response;
    const grpc::Status status = server_->client().Reduce(SumOfRegion(token, count, offset), &response);
    return status.ok() ? Text(response.results(0).value()) : status.error_message();
  }
  std::int64_t Sum(const client::Region& region, std::int64_t count) {
    const absl::StatusOr<client::Reply> reply = client_->Reduce(region.Array("i32", {count}), {"sum"});
    EXPECT_TRUE(reply.ok()) << reply.status();
    if (!reply.ok()) return -1;
    EXPECT_EQ(reply->execution.device, "cuda:0");
    return std::get<std::int64_t>(reply->results.at(0).value->value);
  }

  std::unique_ptr<TestServer> server_;
  std::unique_ptr<client::Client> client_;
  std::string path_;
  fake_cuda::InUse before_;
};

TEST_F(SharePiecesTest, OfOnePacket) {
  const Exported memory({kPiece, 2 * kPiece, kPiece});
  const auto exported = Held();
  Sharer sharer(path_);
  const v1::RegionReply reply =
      sharer.Ask(ShareDeviceOf({kPiece, 2 * kPiece, kPiece}, kPiece / 2, 3 * kPiece), memory.files(0, 3));
  ASSERT_EQ(reply.code(), 0) << reply.message();
  EXPECT_EQ(reply.bytes(), 3 * kPiece);
  EXPECT_EQ(Sum(reply.token(), 3 * kNumbers), absl::StrCat("i64:", SumOf(kNumbers / 2, 3 * kNumbers)));
  EXPECT_EQ(Sum(reply.token(), 2, kPiece / 2 - 4), absl::StrCat("i64:", SumOf(kNumbers - 1, 2)));
  EXPECT_THAT(Sum(reply.token(), 3 * kNumbers + 1), HasSubstr("within the 196608 bytes of the region"));
  EXPECT_EQ(sharer.Release(reply.token()).code(), 0);
  const int files = DescriptorsInUse();
  EXPECT_EQ(sharer.Ask(ShareDeviceOf({kPiece, 2 * kPiece}, 0, 4), memory.files(0, 2)).code(), 0);
  EXPECT_TRUE(DescriptorsReturnTo(files)) << "the server keeps no descriptor of what is mapped";
  sharer.Close();
  EXPECT_TRUE(Becomes(kPatience, [&] { return Held() == exported; }));
}

TEST_F(SharePiecesTest, OfSeveralPackets) {
  const Exported memory({kPiece, kPiece, kPiece, kPiece, kPiece});
  Sharer sharer(path_);
  v1::RegionReply reply = sharer.Ask(ShareDeviceOf({kPiece, kPiece}, 0, 0, R"(, "more": true)"), memory.files(0, 2));
  EXPECT_EQ(reply.code(), 0) << reply.message();
  EXPECT_EQ(reply.token(), "");
  const Descriptor host(NumbersInMemory(10));
  EXPECT_EQ(Sum(sharer.Share(host).token(), 10), SumTo(10)) << "another request may lie between";
  reply = sharer.Ask(ShareDeviceOf({kPiece}, 0, 0, R"(, "piecesBefore": 2, "more": true)"), memory.files(2, 1));
  EXPECT_EQ(reply.code(), 0) << reply.message();
  reply = sharer.Ask(ShareDeviceOf({kPiece, kPiece}, 4, 5 * kPiece - 4, R"(, "piecesBefore": 3)"), memory.files(3, 2));
  ASSERT_EQ(reply.code(), 0) << reply.message();
  EXPECT_EQ(Sum(reply.token(), 5 * kNumbers - 1), absl::StrCat("i64:", SumOf(1, 5 * kNumbers - 1)));
}

TEST_F(SharePiecesTest, BrokenSeriesAreRefusedAndForgotten) {
  const Exported memory({kPiece, kPiece, kPiece});
  const auto exported = Held();
  Sharer sharer(path_);
  const std::string first = ShareDeviceOf({kPiece}, 0, 0, R"(, "more": true)");
  const struct {
    std::string second;
    int files;
    const char* why;
  } cases[] = {
      {ShareDeviceOf({kPiece}, 0, 4, R"(, "piecesBefore": 2)"), 1, "piecesBefore: got 2; allowed: 0, or the 1"},
      {ShareDeviceOf({kPiece}, 0, 4, R"(, "piecesBefore": -1)"), 1, "piecesBefore: got -1"},
      {ShareDeviceOf({kPiece}, 0, 4, R"(, "piecesBefore": 1)", std::string(16, 'b')), 1, "deviceUuid: got another"},
      {ShareDeviceOf({kPiece}, 0, 2 * kPiece + 1, R"(, "piecesBefore": 1)"), 1, "not within the allocation, of 131072"},
      {ShareDeviceOf({kPiece + 1}, 0, 4, R"(, "piecesBefore": 1)"), 1, "pieces[1]: got 65537 bytes"},
  };
  for (const auto& [second, files, why] : cases) {
    SCOPED_TRACE(why);
    EXPECT_EQ(sharer.Ask(first, memory.files(0, 1)).code(), 0);
    EXPECT_NE(Held(), exported);
    const v1::RegionReply reply = sharer.Ask(second, memory.files(1, static_cast<std::size_t>(files)));
    EXPECT_EQ(reply.code(), grpc::INVALID_ARGUMENT);
    EXPECT_THAT(reply.message(), HasSubstr(why));
    EXPECT_EQ(Held(), exported);
  }
  // A series that begins anew drops the one before; one that is left open ends with its connection.
  EXPECT_EQ(sharer.Ask(first, memory.files(0, 1)).code(), 0);
  EXPECT_EQ(sharer.Ask(first, memory.files(1, 1)).code(), 0);
  const v1::RegionReply reply =
      sharer.Ask(ShareDeviceOf({kPiece}, 0, 2 * kPiece, R"(, "piecesBefore": 1)"), memory.files(2, 1));
  EXPECT_EQ(Sum(reply.token(), 2 * kNumbers), absl::StrCat("i64:", SumOf(kNumbers, 2 * kNumbers)));
  EXPECT_EQ(sharer.Ask(first, memory.files(0, 1)).code(), 0);
  sharer.Close();
  EXPECT_TRUE(Becomes(kPatience, [&] { return Held() == exported; }));
}

TEST_F(SharePiecesTest, HostilePacketsAreRefused) {
  const Exported memory({kPiece, kPiece});
  const Exported elsewhere({kPiece}, fake_cuda::Pieces::kOther);
  const auto exported = Held();
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Descriptor read_end(ends[0]), write_end(ends[1]);
  const Descriptor plain(NumbersInMemory(10)), null(open("/dev/null", O_RDWR | O_CLOEXEC)),
      disk(open("/proc/self/exe", O_RDONLY | O_CLOEXEC)), folder(open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
      socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const std::vector<int> both = memory.files(0, 2), one = memory.files(0, 1);
  const std::string uuid = std::string(16, 'b');
  const struct {
    std::string request;
    std::vector<int> files;
    int code;
    const char* why;
  } cases[] = {
      {ShareDeviceOf({kPiece, kPiece}, 0, 4), one, grpc::INVALID_ARGUMENT, "pieces: got 2 with 1 descriptors"},
      {ShareDeviceOf({kPiece, kPiece}, 0, 4), {}, grpc::INVALID_ARGUMENT, "pieces: got 2 with 0 descriptors"},
      {ShareDeviceOf({kPiece}, 0, 4), both, grpc::INVALID_ARGUMENT, "pieces: got 1 with 2 descriptors"},
      {ShareDeviceOf({}, 0, 4), one, grpc::INVALID_ARGUMENT, "without shareMemory; allowed: none"},
      {ShareDeviceOf({}, 0, 4), both, grpc::INVALID_ARGUMENT, "at most 4096 bytes and one descriptor"},
      {ShareDeviceOf({}, 0, 4, R"(, "more": true)"), {}, grpc::INVALID_ARGUMENT, "pieces: got none"},
      {ShareDeviceOf({}, 0, 4, R"(, "piecesBefore": 1)"), {}, grpc::INVALID_ARGUMENT, "pieces: got none"},
      {ShareDeviceOf({kPiece}, 0, 4, R"(, "piecesBefore": 1)"), one, grpc::INVALID_ARGUMENT,
       "got 1; allowed: 0, or the 0"},
      {ShareDeviceOf({kPiece, kPiece}, 0, 4, "", uuid), both, grpc::FAILED_PRECONDITION, "device_uuid: got 6262"},
      {ShareDeviceOf({kPiece, kPiece}, 0, 2 * kPiece + 1), both, grpc::INVALID_ARGUMENT, "not within the allocation"},
      {ShareDeviceOf({kPiece, kPiece}, -4, 4), both, grpc::INVALID_ARGUMENT, "not within the allocation"},
      {ShareDeviceOf({kPiece, kPiece}, 0, -4), both, grpc::INVALID_ARGUMENT, "not within the allocation"},
      {ShareDeviceOf({kPiece, 2 * kPiece}, 0, 4), both, grpc::INVALID_ARGUMENT, "pieces[1]: got 131072 bytes"},
      {ShareDeviceOf({kPiece, 100}, 0, 4), both, grpc::INVALID_ARGUMENT, "multiples of 65536"},
      {ShareDeviceOf({kPiece, std::numeric_limits<std::int64_t>::max() / kPiece * kPiece}, 0, 4), both,
       grpc::INVALID_ARGUMENT, "more bytes together than the GPU has"},
      {ShareDeviceOf({kPiece, kPiece}, 0, 4),
       {one[0], plain},
       grpc::INVALID_ARGUMENT,
       "pieces[1]: got a descriptor that CUDA"},
      {ShareDeviceOf({kPiece, kPiece}, 0, 4),
       {one[0], null},
       grpc::INVALID_ARGUMENT,
       "pieces[1]: got a descriptor that CUDA"},
      {ShareDeviceOf({kPiece, kPiece}, 0, 4), {read_end, one[0]}, grpc::INVALID_ARGUMENT, "pieces[0]: got a pipe"},
      {ShareDeviceOf({kPiece}, 0, 4), {disk}, grpc::INVALID_ARGUMENT, "pieces[0]: got a file on disk"},
      {ShareDeviceOf({kPiece}, 0, 4), {folder}, grpc::INVALID_ARGUMENT, "pieces[0]: got a directory"},
      {ShareDeviceOf({kPiece}, 0, 4), {socket}, grpc::INVALID_ARGUMENT, "pieces[0]: got a socket"},
      {ShareDeviceOf({kPiece}, 0, 4), elsewhere.files(0, 1), grpc::INVALID_ARGUMENT,
       "pieces[0]: got memory that is elsewhere"},
      {ShareDeviceOf({kPiece}, 0, 4, R"(, "handle": "aGFuZGxl")"), one, grpc::INVALID_ARGUMENT, "beside pieces"},
      {ShareDeviceOf({kPiece}, 0, 4, R"(, "event": "ZXZlbnQ=")"), one, grpc::INVALID_ARGUMENT,
       "IPC handle of the event"},
  };
  Sharer sharer(path_);
  EXPECT_EQ(sharer.Release("x").code(), grpc::NOT_FOUND);  // by now it is connected
  // One descriptor that is no memory first: the process that closes such has descriptors of its own.
  EXPECT_NE(sharer.Ask(ShareDeviceOf({kPiece}, 0, 4), {read_end}).code(), 0);
  EXPECT_EQ(sharer.Release("x").code(), grpc::NOT_FOUND);
  const int files = DescriptorsInUse();
  for (const auto& [request, with, code, why] : cases) {
    SCOPED_TRACE(why);
    const v1::RegionReply reply = sharer.Ask(request, with);
    EXPECT_EQ(reply.code(), code) << reply.message();
    EXPECT_THAT(reply.message(), HasSubstr(why));
    EXPECT_EQ(reply.token(), "");
    EXPECT_EQ(Held(), exported);
  }
  EXPECT_TRUE(DescriptorsReturnTo(files)) << "descriptors that were refused stay open";
  EXPECT_EQ(sharer.Ask(ShareDeviceOf({kPiece, kPiece}, 0, 4), both).code(), 0);
}

// A user has a budget of pieces, whatever they are in; it is given back with the regions.
TEST_F(SharePiecesTest, OfAUserAreCounted) {
  constexpr int kMost = 65'536, kPerPacket = 250;
  const Exported memory({kPiece});
  const std::vector<int> files(kPerPacket, memory.files(0, 1).front());
  const std::vector<std::int64_t> pieces(kPerPacket, kPiece);
  Sharer first(path_), second(path_);
  for (int round = 0; round < 2; ++round) {
    int shared = 0;
    for (; shared + kPerPacket <= kMost; shared += kPerPacket) {
      const std::string more = absl::StrCat(R"(, "more": true, "piecesBefore": )", shared);
      ASSERT_EQ(first.Ask(ShareDeviceOf(pieces, 0, 0, more), files).code(), 0) << shared;
    }
    const v1::RegionReply reply = second.Ask(ShareDeviceOf(pieces, 0, 4), files);
    EXPECT_EQ(reply.code(), grpc::RESOURCE_EXHAUSTED);
    EXPECT_THAT(reply.message(), HasSubstr("pieces: got more; allowed: 65536 for all regions of a user"));
    EXPECT_EQ(second.Ask(ShareDeviceOf({kPiece}, 0, 4), {files[0]}).code(), 0) << "there is room for a few";
    // It begins anew, and so gives all of them back.
    EXPECT_EQ(first.Ask(ShareDeviceOf({kPiece}, 0, 4), {files[0]}).code(), 0);
    const v1::RegionReply whole = second.Ask(ShareDeviceOf(pieces, 0, 4), files);
    EXPECT_EQ(whole.code(), 0) << whole.message();
    EXPECT_EQ(second.Release(whole.token()).code(), 0);
  }
}

TEST_F(SharePiecesTest, ByTheClient) {
  // More than one packet has, so that a region takes three of them.
  const std::vector<std::size_t> sizes(300, kPiece);
  const Exported memory(sizes);
  const std::int64_t first = kNumbers + 7, count = 297 * kNumbers;
  {
    const absl::StatusOr<client::Region> region =
        client::ShareDevice(*client_, memory.base() + 4 * first, 4 * count, nullptr);
    ASSERT_TRUE(region.ok()) << region.status();
    EXPECT_EQ(region->bytes(), 4 * count);
    EXPECT_EQ(Sum(*region, count), SumOf(first, count));
    EXPECT_TRUE(absl::IsOutOfRange(client_->Reduce(region->Array("i32", {count + 1}), {"sum"}).status()));
  }
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  const absl::StatusOr<client::Region> region = client::ShareDevice(*client_, memory.base(), kPiece, event);
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_EQ(Sum(*region, kNumbers), SumOf(0, kNumbers));
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(SharePiecesTest, ByTheClientWithErrors) {
  const Exported memory({kPiece, kPiece});
  const Exported without({kPiece}, fake_cuda::Pieces::kWithoutHandles);
  const auto exported = Held();
  absl::Status status = client::ShareDevice(*client_, memory.base() + 100, 2 * kPiece).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("bytes: got 131072; allowed: the 130972 that are mapped"));
  status = client::ShareDevice(*client_, without.base(), kPiece).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("CUDA can't share, such as a stream-ordered pool's"));
  status = client::ShareDevice(*client_, memory.base(), -1).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  fake_cuda::FailCall("cuMemExportToShareableHandle", 2, cudaErrorOperatingSystem);
  status = client::ShareDevice(*client_, memory.base(), 2 * kPiece).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(Held(), exported);
  EXPECT_TRUE(client::ShareDevice(*client_, memory.base(), 2 * kPiece).ok());
}

}  // namespace
}  // namespace reduced::server

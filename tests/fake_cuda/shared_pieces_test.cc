// Memory of CUDA's virtual memory management that another process shares by descriptors: the engine maps its pieces,
// and whatever comes in place of them is refused and leaves nothing behind.
#include "kernels/cuda/shared_pieces.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/algebra/finalize.h"
#include "kernels/cuda/engine.h"
#include "tests/fake_cuda/fake_cuda.h"

namespace reduced::test::pieces {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr auto kPiece = static_cast<std::int64_t>(fake_cuda::kGranularity);
constexpr std::int64_t kNumbers = kPiece / std::int64_t{sizeof(std::int32_t)};  // in kPiece bytes

EngineOptions Small() {
  EngineOptions options;
  options.cuda_lanes = 2;
  options.chunk_bytes = 16 << 10;
  options.cuda_staging_bytes = 8 << 20;
  options.cuda_array_bytes = std::int64_t{8} << 30;
  options.cuda_keeps = absl::InfiniteDuration();
  return options;
}

class SharedPiecesTest : public ::testing::Test {
 protected:
  SharedPiecesTest() {
    fake_cuda::Heal();
    engine_ = *MakeCudaEngine(Small(), 0);
    before_ = fake_cuda::Use();
  }
  ~SharedPiecesTest() override {
    fake_cuda::Heal();
    if (memory_ != nullptr) fake_cuda::FreePieces(memory_);
    EXPECT_EQ(fake_cuda::Use(), before_);
  }

  // Pieces of the exporter with the numbers 0, 1, 2... as i32.
  void Export(const std::vector<std::size_t>& bytes, fake_cuda::Pieces kind = fake_cuda::Pieces::kShared) {
    bytes_ = bytes;
    memory_ = fake_cuda::MakePieces(bytes, kind);
    ASSERT_NE(memory_, nullptr);
    const std::size_t all = std::accumulate(bytes.begin(), bytes.end(), std::size_t{0});
    auto* const numbers = reinterpret_cast<std::int32_t*>(memory_);
    std::iota(numbers, numbers + all / sizeof(std::int32_t), 0);
  }
  // All pieces, imported, as the region of so many bytes.
  SharedDeviceMemory Import(std::int64_t offset, std::int64_t bytes) {
    SharedDeviceMemory memory{.device_uuid = engine_->info().uuid, .offset = offset, .bytes = bytes};
    const std::byte* address = memory_;
    for (const std::size_t each : bytes_) {
      const int file = fake_cuda::ExportPiece(address);
      absl::StatusOr<std::shared_ptr<const void>> piece = engine_->Import(file);
      close(file);
      EXPECT_TRUE(piece.ok()) << piece.status();
      if (piece.ok()) memory.pieces.push_back({*std::move(piece), static_cast<std::int64_t>(each)});
      address += each;
    }
    return memory;
  }
  // The sum of so many numbers in an array.
  std::int64_t Sum(const HeldArray& array, std::int64_t count) {
    const ReduceSpec spec{.dtype = DType::kI32, .count = count, .ops = {Op::kSum}, .engine = EngineKind::kCuda};
    absl::StatusOr<Answer> answer = absl::InternalError("no answer");
    absl::Notification done;
    engine_->Reduce({.spec = spec, .array = array.array}, [&](absl::StatusOr<Answer> result) {
      answer = std::move(result);
      done.Notify();
    });
    EXPECT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? static_cast<std::int64_t>(answer->state.partial.int_sum) : -1;
  }
  static std::int64_t SumOf(std::int64_t first, std::int64_t count) { return count * (2 * first + count - 1) / 2; }

  std::unique_ptr<Engine> engine_;
  fake_cuda::InUse before_;
  std::vector<std::size_t> bytes_;
  std::byte* memory_ = nullptr;
};

TEST_F(SharedPiecesTest, AreReducedWhereTheyAre) {
  Export({kPiece, 3 * kPiece, kPiece, 2 * kPiece});
  const fake_cuda::InUse exported = fake_cuda::Use();
  const struct {
    std::int64_t first, count;
  } ranges[] = {
      {0, 7 * kNumbers},             // all
      {0, kNumbers},                 // a piece
      {kNumbers / 2, kNumbers},      // from the middle of one to the middle of the next
      {5, 6 * kNumbers},             // from the first to the last, over others
      {kNumbers - 1, 2},             // the boundary
      {4 * kNumbers, kNumbers + 1},  // from a boundary on
      {7 * kNumbers - 1, 1},         // the last
  };
  for (const auto& [first, count] : ranges) {
    SCOPED_TRACE(testing::Message() << count << " from " << first << " on");
    const SharedDeviceMemory memory = Import(4 * first, 4 * count);
    const absl::StatusOr<HeldArray> array = engine_->Open(memory);
    ASSERT_TRUE(array.ok()) << array.status();
    EXPECT_EQ(array->array.space, MemorySpace::kDevice);
    EXPECT_EQ(Sum(*array, count), SumOf(first, count));
  }
  EXPECT_EQ(fake_cuda::Use(), exported) << "all that was imported and mapped is gone";
}

TEST_F(SharedPiecesTest, OfNoBytes) {
  Export({kPiece});
  for (const std::int64_t offset : {std::int64_t{0}, kPiece}) {
    EXPECT_TRUE(engine_->Open(Import(offset, 0)).ok());
  }
}

// Physical memory exists as long as it is mapped anywhere.
TEST_F(SharedPiecesTest, OutliveTheirExporter) {
  Export({kPiece, kPiece});
  absl::StatusOr<HeldArray> array = engine_->Open(Import(0, 2 * kPiece));
  ASSERT_TRUE(array.ok()) << array.status();
  fake_cuda::FreePieces(std::exchange(memory_, nullptr));
  EXPECT_EQ(Sum(*array, 2 * kNumbers), SumOf(0, 2 * kNumbers));
}

// Each opening has a mapping of its own; what the exporter writes is seen in all of them.
TEST_F(SharedPiecesTest, AreOpenedTwiceAndClosedOnce) {
  Export({kPiece, kPiece});
  const SharedDeviceMemory memory = Import(0, 2 * kPiece);
  const absl::StatusOr<HeldArray> first = engine_->Open(memory);
  ASSERT_TRUE(first.ok()) << first.status();
  {
    const absl::StatusOr<HeldArray> second = engine_->Open(memory);
    ASSERT_TRUE(second.ok()) << second.status();
    EXPECT_NE(first->array.data, second->array.data);
  }
  *reinterpret_cast<std::int32_t*>(memory_ + kPiece) += 1000;
  EXPECT_EQ(Sum(*first, 2 * kNumbers), SumOf(0, 2 * kNumbers) + 1000);
}

TEST_F(SharedPiecesTest, WaitForTheEvent) {
  Export({kPiece});
  SharedDeviceMemory memory = Import(0, kPiece);
  memory.event = fake_cuda::EventHandle();
  const absl::StatusOr<HeldArray> array = engine_->Open(memory);
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_NE(array->array.ready, nullptr);
  memory.event = "short";
  const absl::Status status = engine_->Open(memory).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
}

// Reading is enough, but for a driver that has nothing less than both.
TEST_F(SharedPiecesTest, AreMappedForWritingIfTheDriverHasNothingLess) {
  Export({kPiece});
  fake_cuda::FailCall("cuMemSetAccess", 1, cudaErrorNotSupported);
  const absl::StatusOr<HeldArray> array = engine_->Open(Import(0, kPiece));
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_TRUE(fake_cuda::HasFailed());
  EXPECT_EQ(Sum(*array, kNumbers), SumOf(0, kNumbers));
}

TEST_F(SharedPiecesTest, OfWrongSizesAreRefused) {
  Export({kPiece, 2 * kPiece});
  const fake_cuda::InUse exported = fake_cuda::Use();
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const struct {
    std::int64_t first, second;
    const char* why;
  } cases[] = {
      {0, 2 * kPiece, "pieces[0]: got 0 bytes; allowed: multiples of 65536, one at least"},
      {kPiece, -kPiece, "pieces[1]: got -65536 bytes"},
      {kPiece, std::numeric_limits<std::int64_t>::min(), "pieces[1]: got -9223372036854775808 bytes"},
      {kPiece + 4096, 2 * kPiece, "pieces[0]: got 69632 bytes"},
      {kPiece, kPiece, "pieces[1]: got 65536 bytes; allowed: the size of its memory"},
      {2 * kPiece, kPiece, "pieces[0]: got 131072 bytes; allowed: the size of its memory"},
      {kPiece, 3 * kPiece, "pieces[1]: got 196608 bytes"},
      {kMost - kPiece + 1, 2 * kPiece,
       "pieces: got more bytes together than the GPU has; allowed: at most those, 17179869184"},
      {std::int64_t{8} << 30, (std::int64_t{8} << 30) + kPiece, "pieces: got more bytes together"},
  };
  for (const auto& [first, second, why] : cases) {
    SCOPED_TRACE(why);
    SharedDeviceMemory memory = Import(0, 4);
    memory.pieces[0].bytes = first;
    memory.pieces[1].bytes = second;
    const absl::Status status = engine_->Open(memory).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  }
  EXPECT_EQ(fake_cuda::Use(), exported);
}

TEST_F(SharedPiecesTest, AreNotReadBeyondTheirEnd) {
  Export({kPiece, kPiece});
  const std::int64_t all = 2 * kPiece;
  for (const auto& [offset, bytes] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, all}, {0, all + 1}, {-1, 1}, {0, -1}, {all + 1, 0}, {INT64_MAX, INT64_MAX}, {INT64_MIN, 4}}) {
    const absl::Status status = engine_->Open(Import(offset, bytes)).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("not within the allocation, of 131072"));
  }
}

TEST_F(SharedPiecesTest, OfAnotherDeviceOrBesideAHandleAreRefused) {
  Export({kPiece});
  SharedDeviceMemory memory = Import(0, kPiece);
  memory.handle = std::string(64, 'h');
  EXPECT_THAT(std::string(engine_->Open(memory).status().message()), HasSubstr("handle: got one beside pieces"));
  memory.handle.clear();
  memory.device_uuid[0] = static_cast<char>(memory.device_uuid[0] + 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(engine_->Open(memory).status()));
}

TEST_F(SharedPiecesTest, OtherDescriptorsAreRefused) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const int plain = memfd_create("plain", MFD_CLOEXEC);
  std::byte* const elsewhere = fake_cuda::MakePieces({kPiece}, fake_cuda::Pieces::kOther);
  const int other = fake_cuda::ExportPiece(elsewhere);
  const fake_cuda::InUse before = fake_cuda::Use();
  for (const int file : {ends[0], plain, -1, 1'000'000}) {
    const absl::Status status = engine_->Import(file).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("allowed: those of cuMemExportToShareableHandle"));
  }
  const absl::Status status = engine_->Import(other).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("memory that is elsewhere"));
  EXPECT_EQ(fake_cuda::Use(), before);
  fake_cuda::FreePieces(elsewhere);
  for (const int file : {ends[0], ends[1], plain, other}) close(file);
}

// Each call of the driver fails once: what was imported, reserved and mapped before is given back.
TEST_F(SharedPiecesTest, LeaveNothingBehindWhenACallFails) {
  Export({kPiece, kPiece, kPiece});
  const fake_cuda::InUse exported = fake_cuda::Use();
  const struct {
    const char* function;
    int calls;
    absl::StatusCode refused, no_memory;
  } cases[] = {
      {"cuMemGetAllocationGranularity", 1, absl::StatusCode::kUnavailable, absl::StatusCode::kResourceExhausted},
      {"cudaMemGetInfo", 1, absl::StatusCode::kUnavailable, absl::StatusCode::kResourceExhausted},
      {"cuMemAddressReserve", 1, absl::StatusCode::kResourceExhausted, absl::StatusCode::kResourceExhausted},
      {"cuMemMap", 3, absl::StatusCode::kInvalidArgument, absl::StatusCode::kResourceExhausted},
  };
  for (const auto& [function, calls, refused, no_memory] : cases) {
    for (int call = 1; call <= calls; ++call) {
      for (const cudaError_t error : {cudaErrorNotSupported, cudaErrorMemoryAllocation}) {
        SCOPED_TRACE(testing::Message() << "call " << call << " of " << function << " returns " << error);
        const SharedDeviceMemory memory = Import(0, 3 * kPiece);
        const fake_cuda::InUse imported = fake_cuda::Use();
        fake_cuda::FailCall(function, call, error);
        const absl::Status status = engine_->Open(memory).status();
        EXPECT_TRUE(fake_cuda::HasFailed());
        EXPECT_EQ(status.code(), error == cudaErrorMemoryAllocation ? no_memory : refused) << status;
        EXPECT_EQ(fake_cuda::Use(), imported);
        fake_cuda::Heal();
        EXPECT_TRUE(engine_->Open(memory).ok()) << "it goes on";
      }
    }
  }
  const int file = fake_cuda::ExportPiece(memory_);
  for (const auto& [function, code] : std::vector<std::pair<const char*, absl::StatusCode>>{
           {"cuMemImportFromShareableHandle", absl::StatusCode::kResourceExhausted},
           {"cuMemGetAllocationPropertiesFromHandle", absl::StatusCode::kInvalidArgument}}) {
    fake_cuda::FailCall(function, 1, cudaErrorMemoryAllocation);
    EXPECT_EQ(engine_->Import(file).status().code(), code) << function;
  }
  close(file);
  EXPECT_EQ(fake_cuda::Use(), exported);
}

}  // namespace
}  // namespace reduced::test::pieces

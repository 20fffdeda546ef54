// Host arrays that aren't plain memory: files, mapped or not, and memory registered with the engine.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/contract/engine_fixture.h"
#include "tests/support/data.h"
#include "tests/support/oracle.h"

namespace reduced::test {
namespace {

// A memfd with `before` bytes of rubbish and then the array; mapped for reading.
class MemoryFile {
 public:
  MemoryFile(const Bytes& array, std::int64_t before)
      : file_(memfd_create("test", MFD_CLOEXEC)), bytes_(before + static_cast<std::int64_t>(array.size())) {
    const Bytes rubbish(static_cast<std::size_t>(before), std::byte{0xff});
    EXPECT_EQ(pwrite(file_, rubbish.data(), rubbish.size(), 0), before);
    EXPECT_EQ(pwrite(file_, array.data(), array.size(), before), static_cast<ssize_t>(array.size()));
    if (bytes_ > 0) mapping_ = mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_READ, MAP_SHARED, file_, 0);
    EXPECT_NE(mapping_, MAP_FAILED);
  }
  ~MemoryFile() {
    if (mapping_ != nullptr) munmap(mapping_, static_cast<std::size_t>(bytes_));
    close(file_);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int file() const { return file_; }
  const std::byte* mapping() const { return static_cast<const std::byte*>(mapping_); }
  std::int64_t bytes() const { return bytes_; }

 private:
  const int file_;
  const std::int64_t bytes_;
  void* mapping_ = nullptr;
};

class EnginePlaces : public EngineTest<KindAndDType> {
 protected:
  DType dtype() const { return std::get<DType>(GetParam()); }

  void Check(const Bytes& array, std::int64_t count, const ArrayRef& ref, const char* place) {
    SCOPED_TRACE(place);
    ReduceSpec spec = Spec(dtype(), count);
    const absl::StatusOr<Answer> result = ReduceAndWait(engine(), {.spec = spec, .array = ref});
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    CheckAnswers(Study(dtype(), array.data(), count), spec, result->state);
  }
};

TEST_P(EnginePlaces, AnswerAsPlainMemoryDoes) {
  for (const std::int64_t count : {0, 1, 1000, 4099, 300'007}) {
    for (const std::int64_t before : {0, 4096, 4097}) {
      SCOPED_TRACE(::testing::Message() << count << " elements from byte " << before);
      const Bytes array = MakeData(DataKind::kUniform, dtype(), count, 5);
      const MemoryFile memory(array, before);
      Check(array, count, {.space = MemorySpace::kFile, .file = memory.file(), .offset = before}, "file");
      if (memory.bytes() == 0) continue;
      const std::byte* const data = memory.mapping() + before;
      Check(array, count, {.data = data, .space = MemorySpace::kFile, .file = memory.file(), .offset = before},
            "mapped file");
      const auto pin = engine().Pin(memory.mapping(), memory.bytes());
      ASSERT_TRUE(pin.ok()) << pin.status();
      EXPECT_EQ(*pin != nullptr, kind() == EngineKind::kCuda);
      Check(array, count, {.data = data, .space = MemorySpace::kPinnedHost}, "pinned");
      if (HasFailure()) return;
    }
  }
}

// What arrives in pieces, in buffers that the engine gives: more of them than a CUDA engine has pinned ones, and one
// that is larger than those are.
TEST_P(EnginePlaces, BuffersOfTheEngineAreReducedWhereTheyAre) {
  constexpr int kBuffers = 40;
  const std::int64_t count = engine().staging_bytes() / RowOf(dtype()).bytes;
  const Bytes array = MakeData(DataKind::kUniform, dtype(), count, 7);
  std::vector<StagingBuffer> buffers;
  int pinned = 0;
  for (int i = 0; i < kBuffers; ++i) {
    buffers.push_back(engine().Stage(static_cast<std::int64_t>(array.size())));
    std::memcpy(buffers.back().data(), array.data(), array.size());
    pinned += buffers.back().pinned() ? 1 : 0;
  }
  EXPECT_EQ(pinned, kind() == EngineKind::kCuda ? 16 : 0);  // 64 MiB in pieces of 4 MiB
  for (const int i : {0, kBuffers - 1}) Check(array, count, buffers[i].array(), "buffer");
  const StagingBuffer larger = engine().Stage(engine().staging_bytes() + 1);
  EXPECT_FALSE(larger.pinned());
  buffers.clear();
  EXPECT_EQ(engine().Stage(1).pinned(), kind() == EngineKind::kCuda);  // they have come back
}

// The file ends early: before the array, in its first chunk, in a later one.
TEST_P(EnginePlaces, AShrunkFileIsAnError) {
  const std::int64_t count = 300'007;
  const Bytes array = MakeData(DataKind::kUniform, dtype(), count, 6);
  const auto bytes = static_cast<std::int64_t>(array.size());
  for (const std::int64_t left : {std::int64_t{0}, std::int64_t{100}, bytes / 2, bytes - 1}) {
    SCOPED_TRACE(left);
    const MemoryFile memory(array, 0);
    ASSERT_EQ(ftruncate(memory.file(), left), 0);
    const absl::StatusOr<Answer> result = ReduceAndWait(
        engine(),
        {.spec = Spec(dtype(), count), .array = {.space = MemorySpace::kFile, .file = memory.file(), .offset = 0}});
    EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition) << result.status();
    EXPECT_NE(result.status().message().find("has shrunk"), std::string::npos) << result.status();
  }
  // The engine is none the worse.
  Check(array, count, {.data = array.data()}, "memory");
}

REDUCED_INSTANTIATE_BY_KIND_AND_DTYPE(EnginePlaces);

class EngineHandles : public EngineTest<EngineKind> {};

TEST_P(EngineHandles, ForgedOnesAreRefused) {
  SharedDeviceMemory memory{.handle = std::string(64, '\x5a'), .device_uuid = engine().info().uuid, .bytes = 4};
  if (kind() == EngineKind::kCpu) {
    EXPECT_EQ(engine().Open(memory).status().code(), absl::StatusCode::kFailedPrecondition);
    return;
  }
  EXPECT_EQ(engine().Open(memory).status().code(), absl::StatusCode::kInvalidArgument)
      << engine().Open(memory).status();
  memory.handle.resize(63);
  EXPECT_EQ(engine().Open(memory).status().code(), absl::StatusCode::kInvalidArgument)
      << engine().Open(memory).status();
  memory = {.handle = std::string(64, '\x5a'), .device_uuid = std::string(16, '\0'), .bytes = 4};
  EXPECT_EQ(engine().Open(memory).status().code(), absl::StatusCode::kFailedPrecondition);
  // The device is none the worse.
  const std::vector<float> array(1000, 1.0F);
  ReduceSpec spec = Spec(DType::kF32, 1000);
  const absl::StatusOr<Answer> result = ReduceAndWait(engine(), {.spec = spec, .array = {.data = array.data()}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->state.partial.float_sum, 1000);
}

TEST_P(EngineHandles, MemoryThatIsNotThereCantBePinned) {
  const auto pin = engine().Pin(reinterpret_cast<const void*>(std::uintptr_t{4096}), 4096);
  if (kind() == EngineKind::kCpu) {
    ASSERT_TRUE(pin.ok());
    EXPECT_EQ(*pin, nullptr);
  } else {
    EXPECT_EQ(pin.status().code(), absl::StatusCode::kFailedPrecondition) << pin.status();
  }
}

REDUCED_INSTANTIATE_BY_KIND(EngineHandles);

}  // namespace
}  // namespace reduced::test

#include "kernels/system/gather.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace reduced {
namespace {

using Bytes = std::vector<std::byte>;
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();

// The elements one by one, by their indexes.
Bytes Naive(const StridedArray& array) {
  std::int64_t count = 1;
  for (const std::int64_t size : array.shape) count *= size;
  Bytes to(static_cast<std::size_t>(count * array.width));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::byte* from = array.data;
    std::int64_t rest = i;
    for (std::size_t d = array.shape.size(); d-- > 0; rest /= array.shape[d]) {
      from += rest % array.shape[d] * array.strides[d];
    }
    std::byte* const element = to.data() + i * array.width;
    std::memcpy(element, from, static_cast<std::size_t>(array.width));
    if (array.swaps) std::reverse(element, element + array.width);
  }
  return to;
}

// Memory in the middle of which arrays begin, and the same as a file.
class GatherTest : public ::testing::Test {
 protected:
  static constexpr std::int64_t kBytes = 1 << 20;

  GatherTest() : memory_(kBytes), file_(memfd_create("test", MFD_CLOEXEC)) {
    std::minstd_rand random(7);
    for (std::byte& byte : memory_) byte = static_cast<std::byte>(random() >> 8);
    EXPECT_EQ(pwrite(file_, memory_.data(), kBytes, 0), kBytes);
  }
  ~GatherTest() override { close(file_); }

  void Check(StridedArray array, std::int64_t at) const {
    SCOPED_TRACE(::testing::Message() << ::testing::PrintToString(array.shape) << " by "
                                      << ::testing::PrintToString(array.strides) << " of " << array.width
                                      << (array.swaps ? " swapped" : ""));
    const std::optional<ByteSpan> span = SpanOf(array.shape, array.strides, array.width);
    ASSERT_TRUE(span.has_value() && at + span->begin >= 0 && at + span->end <= kBytes);
    array.data = memory_.data() + at;
    const Bytes expected = Naive(array);
    Bytes got(expected.size());
    Gather(array, got.data());
    EXPECT_TRUE(got == expected) << "Gather";
    const StridedReader reader(array);
    EXPECT_TRUE(!reader.dense() || std::equal(expected.begin(), expected.end(), array.data));
    array.data = nullptr;
    const StridedReader of_file(array);
    const std::int64_t count = std::ssize(expected) / array.width;
    for (const std::int64_t piece : {count, count / 3 + 1, std::int64_t{1}}) {
      if (piece == 1 && count > 2000) continue;
      for (const bool from_file : {false, true}) {
        std::fill(got.begin(), got.end(), std::byte{});
        for (std::int64_t first = 0; first < count; first += piece) {
          const std::int64_t some = std::min(piece, count - first);
          std::byte* const to = got.data() + first * array.width;
          if (from_file) {
            ASSERT_TRUE(of_file.ReadFrom(file_, at, first, some, to).ok());
          } else {
            reader.Read(first, some, to);
          }
        }
        EXPECT_TRUE(got == expected) << "pieces of " << piece << (from_file ? " of a file" : "");
      }
    }
  }

  Bytes memory_;
  const int file_;
};

TEST_F(GatherTest, EveryLayout) {
  for (const std::int64_t width : {1, 2, 4, 8}) {
    for (const bool swaps : {false, true}) {
      const auto check = [&](std::vector<std::int64_t> shape, std::vector<std::int64_t> strides, std::int64_t at) {
        Check({nullptr, width, std::move(shape), std::move(strides), swaps}, at);
      };
      check({}, {}, 3);
      check({1, 1}, {kMost, kLeast}, 5);  // of one index there is no next one
      check({100}, {width}, 0);
      check({100}, {2 * width}, 1);
      check({100}, {-width}, 5000);
      check({100}, {0}, 7);
      check({50, 40}, {40 * width, width}, 0);
      check({50, 20}, {40 * width, 2 * width}, 0);  // every second column
      check({40, 50}, {width, 40 * width}, 0);      // transposed
      check({5, 40, 7}, {-280 * width, 0, width}, 4 * 280 * width);
      check({3, 4, 5}, {20 * width + 1, 5 * width + 1, width + 1}, 9);  // at odd addresses
      check({300, 50}, {1000, -width}, 50 * width);                     // further apart than a window of a file
      check(std::vector<std::int64_t>(64, 1), std::vector<std::int64_t>(64, 12345), 11);
      std::vector<std::int64_t> shape(64, 1), strides(64, 99);
      shape[3] = shape[40] = shape[63] = 6;
      strides[3] = -8, strides[40] = 1024, strides[63] = 48;
      check(shape, strides, 4000);
    }
  }
}

TEST_F(GatherTest, RandomLayouts) {
  std::minstd_rand random(11);
  const auto below = [&random](std::int64_t most) { return static_cast<std::int64_t>(random()) % most; };
  for (int i = 0; i < 500; ++i) {
    StridedArray array{.width = std::int64_t{1} << below(4), .swaps = below(2) == 1};
    for (std::int64_t dimensions = below(6); dimensions > 0; --dimensions) {
      array.shape.push_back(1 + below(9));
      array.strides.push_back(below(3) == 0 ? array.width * (below(7) - 3) : below(6000) - 3000);
    }
    Check(std::move(array), kBytes / 2);
    if (HasFailure()) return;
  }
}

TEST(StridedReader, IsDenseInCOrderOnly) {
  const auto dense = [](std::vector<std::int64_t> shape, std::vector<std::int64_t> strides, bool swaps = false) {
    return StridedReader({nullptr, 4, std::move(shape), std::move(strides), swaps}).dense();
  };
  EXPECT_TRUE(dense({}, {}));
  EXPECT_TRUE(dense({1, 1}, {0, -7}));
  EXPECT_TRUE(dense({3, 1, 5}, {20, 99, 4}));
  EXPECT_FALSE(dense({3, 5}, {20, 4}, /*swaps=*/true));
  EXPECT_FALSE(dense({3, 5}, {24, 4}));
  EXPECT_FALSE(dense({5, 3}, {4, 20}));
  EXPECT_FALSE(dense({3}, {-4}));
  EXPECT_FALSE(dense({3}, {0}));
  EXPECT_TRUE(StridedReader({nullptr, 1, {3}, {1}, /*swaps=*/true}).dense());  // of one byte there is one order
}

TEST_F(GatherTest, LargeArraysByManyThreads) {
  Check({nullptr, 8, {128, 64, 16}, {8, 16 * 1024, 1024}, true}, 0);
  Check({nullptr, 4, {512, 512}, {4, 2048}, false}, 0);
}

TEST(SpanOf, CountsTheBytesOfHostileStrides) {
  const auto span = [](std::vector<std::int64_t> shape, std::vector<std::int64_t> strides) -> std::string {
    const std::optional<ByteSpan> found = SpanOf(shape, strides, 4);
    return found.has_value() ? std::to_string(found->begin) + " to " + std::to_string(found->end) : "none";
  };
  EXPECT_EQ(span({}, {}), "0 to 4");
  EXPECT_EQ(span({3, 0}, {kMost, kMost}), "0 to 0");
  EXPECT_EQ(span({1}, {kLeast}), "0 to 4");
  EXPECT_EQ(span({3, 5}, {-20, 4}), "-40 to 20");
  EXPECT_EQ(span({2}, {kLeast}), "-9223372036854775808 to 4");
  EXPECT_EQ(span({2}, {kMost}), "none");
  EXPECT_EQ(span({2}, {kMost - 4}), "0 to 9223372036854775807");
  EXPECT_EQ(span({2, 2}, {kMost - 4, 1}), "none");
  EXPECT_EQ(span({2, 2}, {kLeast, -1}), "none");
  EXPECT_EQ(span({3}, {kLeast}), "none");
  EXPECT_EQ(span({kMost}, {2}), "none");
  EXPECT_EQ(span({kMost}, {0}), "0 to 4");
}

TEST_F(GatherTest, AFileThatIsTooShort) {
  const StridedReader reader({.width = 8, .shape = {4}, .strides = {kBytes / 2}});
  std::byte to[32];
  EXPECT_EQ(reader.ReadFrom(file_, 0, 0, 4, to).code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace reduced

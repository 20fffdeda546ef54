// The rungs of the ladder that run on the host: what the contract suite of the engines can't reach.
#include "kernels/ladder/host_rungs.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/engine/pipelines.h"
#include "tests/support/data.h"
#include "tests/support/oracle.h"
#include "tests/support/runs.h"

namespace reduced {
namespace {

bool GoOn() { return false; }  // never a reason to stop

// A value of a rung has 64 bits for a sum of 32-bit elements: a longer array is cut, and the parts' sums are added in
// 128.
TEST(HostRungs, StretchesCombineIntoTheAnswersOfTheWhole) {
  static_assert(static_cast<UInt128>(kLongestStretch) * std::numeric_limits<std::uint32_t>::max() <
                static_cast<UInt128>(std::numeric_limits<std::int64_t>::max()));
  constexpr std::int64_t kCount = 1001;
  for (const HostRung* const rung : {&kSequential, &kRecursivePairs}) {
    for (const DTypeRow& dtype : kDTypes) {
      for (const OpRow& op : kOps) {
        if (!RungSupports(op.op, dtype.dtype)) continue;
        const test::Bytes array = test::MakeData(test::DataKind::kFull, dtype.dtype, kCount, 3);
        const ReduceSpec spec{.dtype = dtype.dtype, .count = kCount, .ops = {op.op}};
        std::vector<std::max_align_t> scratch(kCount * 3);
        for (const std::int64_t longest : {std::int64_t{1}, std::int64_t{7}, kCount - 1, kCount, kLongestStretch}) {
          if (rung->prepare != nullptr) {
            ASSERT_LE(rung->scratch_bytes(spec), scratch.size() * sizeof(std::max_align_t));
            rung->prepare(spec, array.data(), scratch.data(), GoOn);
          }
          const Partial partial = rung->reduce(spec, array.data(), scratch.data(), longest, GoOn);
          EXPECT_TRUE(test::CheckAnswers(test::Study(dtype.dtype, array.data(), kCount), spec, partial))
              << "by " << longest;
        }
      }
    }
  }
}

// An array of more than 2^31 elements without its memory: the same pages again and again.
class RepeatedPages {
 public:
  RepeatedPages(std::int64_t period_bytes, std::int64_t periods) : bytes_(period_bytes * periods) {
    const int file = memfd_create("pages", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(file, period_bytes), 0);
    data_ = static_cast<std::byte*>(
        mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    EXPECT_NE(data_, MAP_FAILED);
    for (std::int64_t i = 0; i < periods; ++i) {
      EXPECT_NE(mmap(data_ + i * period_bytes, static_cast<std::size_t>(period_bytes), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_FIXED, file, 0),
                MAP_FAILED);
    }
    close(file);
  }
  ~RepeatedPages() { munmap(data_, static_cast<std::size_t>(bytes_)); }
  RepeatedPages(const RepeatedPages&) = delete;
  RepeatedPages& operator=(const RepeatedPages&) = delete;
  std::byte* data() const { return data_; }

 private:
  const std::int64_t bytes_;
  std::byte* data_ = nullptr;
};

TEST(HostRungs, SumsOfMoreThan2To31ElementsDontOverflow) {
  if (test::kSlowBuild) GTEST_SKIP() << "2^31 additions";
  constexpr std::int64_t kPeriodBytes = std::int64_t{64} << 20;
  constexpr std::int64_t kPeriods = 129;
  const RepeatedPages pages(kPeriodBytes, kPeriods);
  std::memset(pages.data(), 0xff, kPeriodBytes);
  const ReduceSpec spec{.dtype = DType::kU32, .count = kPeriodBytes * kPeriods / 4, .ops = {Op::kSum}};
  const Partial partial = kSequential.reduce(spec, pages.data(), nullptr, kLongestStretch, GoOn);
  EXPECT_TRUE(partial.int_sum == static_cast<Int128>(spec.count) * std::numeric_limits<std::uint32_t>::max());
}

}  // namespace
}  // namespace reduced

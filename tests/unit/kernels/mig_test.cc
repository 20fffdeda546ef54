#include "kernels/system/mig.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace reduced {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kNeverAsked = -1;

absl::Status Check(const char* visible, int instances) {
  return CheckMig(visible, [&] {
    EXPECT_NE(instances, kNeverAsked);
    return instances;
  });
}

TEST(MigTest, OneInstanceOrNone) {
  EXPECT_TRUE(Check(nullptr, 0).ok());
  EXPECT_TRUE(Check(nullptr, 1).ok());
  for (const char* const visible : {"", "-1", "0,1,2,3", "MIG-4a1b", "GPU-1,GPU-2", "0,MIG-4a1b"}) {
    EXPECT_TRUE(Check(visible, kNeverAsked).ok()) << visible;
  }
}

TEST(MigTest, SeveralAreRefused) {
  for (const char* const visible : {"MIG-4a1b,MIG-77ff", "0, MIG-4a1b, MIG-77ff"}) {
    const absl::Status status = Check(visible, kNeverAsked);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("CUDA_VISIBLE_DEVICES: got "), HasSubstr(visible), HasSubstr("a server for each")));
  }
  const absl::Status status = Check(nullptr, 7);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("got 7 instances"), HasSubstr("MIG-UUID")));
}

}  // namespace
}  // namespace reduced

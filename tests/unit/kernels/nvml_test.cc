#include "kernels/system/nvml.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace reduced {
namespace {

using testing::HasSubstr;

const std::string kUuid("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f", 16);

TEST(NvmlTest, UuidAsTheLibraryWritesIt) {
  EXPECT_EQ(NvmlUuid(kUuid), "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
  EXPECT_EQ(NvmlUuid(""), "");
}

TEST(NvmlTest, AGpu) {
  if (!std::filesystem::exists(FAKE_NVML)) GTEST_SKIP() << "the stand-in is not installed with the tests";
  const auto nvml = Nvml::Load(FAKE_NVML);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  const absl::StatusOr<GpuUsage> usage = (*nvml)->Read(kUuid);
  ASSERT_TRUE(usage.ok()) << usage.status();
  EXPECT_EQ(usage->memory_used_bytes, 400U);
  EXPECT_EQ(usage->memory_total_bytes, 1000U);
  EXPECT_EQ(usage->utilisation, 0.75);
  const absl::Status other = (*nvml)->Read(std::string(16, 'x')).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(other.message()), HasSubstr("Not Found"));
}

TEST(NvmlTest, EveryGpu) {
  if (!std::filesystem::exists(FAKE_NVML)) GTEST_SKIP() << "the stand-in is not installed with the tests";
  const auto nvml = Nvml::Load(FAKE_NVML);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  const std::vector<GpuFacts> gpus = (*nvml)->List();
  ASSERT_EQ(gpus.size(), 1U);  // the second one can't be read
  EXPECT_EQ(gpus[0].name, "a stand-in");
  EXPECT_EQ(gpus[0].memory_bytes, 1000);
  EXPECT_EQ(gpus[0].free_bytes, 600);
  EXPECT_EQ(gpus[0].uncorrected_errors, 3);
  EXPECT_TRUE(gpus[0].exclusive);
}

TEST(NvmlTest, LinksAndInstances) {
  if (!std::filesystem::exists(FAKE_NVML)) GTEST_SKIP() << "the stand-in is not installed with the tests";
  const auto nvml = Nvml::Load(FAKE_NVML);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  const auto link = [&](char to) {
    std::string uuid(16, '\0');
    uuid.back() = to;
    const absl::StatusOr<std::string> text = (*nvml)->LinkBetween(kUuid, uuid);
    return text.ok() ? *text : text.status().ToString();
  };
  EXPECT_EQ(link(1), "NVLink x2, peer access");
  EXPECT_EQ(link(2), "NVLink x4, no peer access") << "through a switch: all that are active";
  EXPECT_EQ(link(3), "PCIe through a host bridge, no peer access");
  EXPECT_EQ(link(4), "NOT_FOUND: Not Found");
  EXPECT_EQ((*nvml)->CountMigInstances(), 2);
}

TEST(NvmlTest, NoneOrAnotherLibrary) {
  const absl::Status none = Nvml::Load("libno-such-library.so.1").status();
  EXPECT_EQ(none.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(none.message()), HasSubstr("libno-such-library.so.1"));
  const absl::Status other = Nvml::Load("libm.so.6").status();
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.message()), HasSubstr("libm.so.6 has no nvml"));
}

}  // namespace
}  // namespace reduced

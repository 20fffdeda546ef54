#include "kernels/system/numa.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "gtest/gtest.h"

namespace reduced {
namespace {

constexpr char kDevice[] = "0000:17:00.0";

cpu_set_t Usable() {
  cpu_set_t usable;
  EXPECT_EQ(sched_getaffinity(0, sizeof(usable), &usable), 0);
  return usable;
}

int FirstUsable() {
  const cpu_set_t usable = Usable();
  int first = 0;
  while (!CPU_ISSET(static_cast<unsigned>(first), &usable)) ++first;
  return first;
}

// A folder like /sys, of a machine with one device.
class NumaTest : public testing::Test {
 protected:
  NumaTest() {
    std::string name = testing::TempDir() + "/sysfs_XXXXXX";
    sysfs_ = mkdtemp(name.data());
  }
  ~NumaTest() override { std::filesystem::remove_all(sysfs_); }

  void Make(int nodes, const std::string& node, const std::string& processors) {
    for (int i = 0; i < nodes; ++i) {
      std::filesystem::create_directories(sysfs_ + "/devices/system/node/node" + std::to_string(i));
    }
    std::filesystem::create_directories(sysfs_ + "/devices/system/node/power");
    const std::string device = sysfs_ + "/bus/pci/devices/" + kDevice;
    std::filesystem::create_directories(device);
    std::ofstream(device + "/numa_node") << node << "\n";
    std::ofstream(device + "/local_cpulist") << processors << "\n";
  }
  std::optional<cpu_set_t> Near() const { return ProcessorsNear(kDevice, sysfs_); }

  std::string sysfs_;
};

TEST_F(NumaTest, ThoseOfTheNodeThatTheProcessMayUse) {
  const std::string first = std::to_string(FirstUsable());
  for (const std::string& list : {first, first + "-" + first, "1000-1010," + first, first + ",1023"}) {
    Make(2, "1", list);
    const std::optional<cpu_set_t> near = Near();
    ASSERT_TRUE(near.has_value()) << list;
    EXPECT_TRUE(CPU_ISSET(static_cast<unsigned>(FirstUsable()), &*near)) << list;
    EXPECT_EQ(CPU_COUNT(&*near), 1) << list;
  }
}

TEST_F(NumaTest, NoneWhereThereIsNothingToChoose) {
  const std::string first = std::to_string(FirstUsable());
  EXPECT_FALSE(Near().has_value()) << "no sysfs";
  Make(1, "0", first);
  EXPECT_FALSE(Near().has_value()) << "one node";
  Make(2, "-1", first);
  EXPECT_FALSE(Near().has_value()) << "the kernel does not know the node";
  for (const std::string list : {"", "all", "3-1", "-1", "0,,1", "0-99999999999", "1022-1023"}) {
    Make(2, "1", list);
    EXPECT_FALSE(Near().has_value()) << list;
  }
  EXPECT_FALSE(ProcessorsNear("0000:99:00.0", sysfs_).has_value()) << "no such device";
}

TEST_F(NumaTest, ThreadsStayThereAndTheCallerReturns) {
  const cpu_set_t before = Usable();
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<unsigned>(FirstUsable()), &one);
  std::thread started;
  {
    const OnProcessors here(one);
    const cpu_set_t inside = Usable();
    EXPECT_TRUE(CPU_EQUAL(&inside, &one));
    started = std::thread([&] {
      const cpu_set_t there = Usable();
      EXPECT_TRUE(CPU_EQUAL(&there, &one));
    });
    const OnProcessors nowhere(std::nullopt);
  }
  started.join();
  const cpu_set_t after = Usable();
  EXPECT_TRUE(CPU_EQUAL(&after, &before));
}

}  // namespace
}  // namespace reduced

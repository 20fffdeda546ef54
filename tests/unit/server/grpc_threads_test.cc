#include "proto/grpc_threads/grpc_threads.h"

#include <dlfcn.h>

#include <utility>

#include "grpc/support/cpu.h"
#include "gtest/gtest.h"
#include "proto/ring/wait.h"

namespace reduced {
namespace {

TEST(GrpcThreadsTest, TwelveProcessorsAtMost) {
  for (const auto& [usable, told] : {std::pair(0, 1), {1, 1}, {2, 2}, {12, 12}, {16, 12}, {64, 12}}) {
    EXPECT_EQ(GrpcProcessors(usable), told) << usable;
  }
}

// What libgrpc calls is what the dynamic linker finds first.
TEST(GrpcThreadsTest, GrpcAsksTheProgram) {
  Dl_info info{};
  ASSERT_NE(dladdr(dlsym(RTLD_DEFAULT, "gpr_cpu_num_cores"), &info), 0);
  Dl_info here{};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&GrpcProcessors), &here), 0);
  EXPECT_EQ(info.dli_fbase, here.dli_fbase) << info.dli_fname;
  EXPECT_EQ(gpr_cpu_num_cores(), static_cast<unsigned>(GrpcProcessors(ring::Processors())));
  EXPECT_LT(gpr_cpu_current_cpu(), gpr_cpu_num_cores());
}

}  // namespace
}  // namespace reduced

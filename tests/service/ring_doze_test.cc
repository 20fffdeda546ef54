// What a ring looks at before it goes to sleep.
#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "grpcpp/server_context.h"
#include "gtest/gtest.h"
#include "proto/ring/layout.h"
#include "proto/ring/wait.h"
#include "server/calls/backend.h"
#include "server/calls/ring.h"
#include "tests/service/sharer.h"
#include "tests/service/test_server.h"

namespace reduced::server {
namespace {

// A client that submits just before the ring says that it sleeps does not ring the doorbell. The poller has let go of
// this ring, so that the test is the only one that looks at it.
TEST(RingDozeTest, ARingWithASubmissionStaysAwake) {
  const TempDir dir;
  const std::unique_ptr<Engines> engines = SharedEngines();
  Backend backend(*engines);
  ASSERT_TRUE(backend.regions.Start(dir / "regions").ok());
  const grpc::CallbackServerContext context;
  v1::OpenRing request;
  request.set_slots(2);
  v1::Ring reply;
  const auto opened =
      Ring::Open(backend, request,
                 {.context = &context, .payers = {{backend.small_memory.get()}, {backend.memory.get()}}}, &reply);
  ASSERT_TRUE(opened.ok()) << opened.status();
  Ring& ring = **opened;
  std::vector<int> files;
  Sharer(backend.regions.path())
      .AskForFiles(absl::StrCat(R"({"takeRing": {"token": ")", reply.token(), R"("}})"), &files);
  ASSERT_EQ(files.size(), 2U);
  const Descriptor memory(files[0]);
  const Descriptor doorbell(files[1]);
  absl::Notification closed;
  ring.Close([&closed] { closed.Notify(); });
  ASSERT_TRUE(closed.WaitForNotificationWithTimeout(kPatience));

  const auto bytes = static_cast<std::size_t>(reply.bytes());
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  ASSERT_NE(mapped, MAP_FAILED) << std::strerror(errno);
  ring::Mapping mapping{};
  mapping.data = static_cast<std::byte*>(mapped);
  mapping.geometry = {mapping.header().slots, mapping.header().arena_bytes};
  const auto asleep = [&mapping] { return ring::Shared(mapping.header().asleep).load(); };
  EXPECT_TRUE(ring.Doze());
  EXPECT_EQ(asleep(), 1U);
  ring.WakeUp();
  EXPECT_EQ(asleep(), 0U);
  ring::Shared(mapping.submission(0).sequence).store(1);
  EXPECT_FALSE(ring.Doze());
  EXPECT_EQ(asleep(), 0U);
  munmap(mapped, bytes);
}

}  // namespace
}  // namespace reduced::server

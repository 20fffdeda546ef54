// The client library's shared memory, with the server in the same process.
#include "reduced/shared.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "reduced/client.h"
#include "tests/service/test_server.h"

namespace reduced::server {
namespace {

using client::Client;
using client::Region;
using client::Reply;
using client::SharedBuffer;

// The numbers from 1 on, as i32.
SharedBuffer Numbers(std::int64_t count) {
  SharedBuffer buffer = SharedBuffer::Allocate(count * std::int64_t{sizeof(std::int32_t)}).value();
  const std::span numbers(static_cast<std::int32_t*>(buffer.data()), static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 1);
  return buffer;
}

class SharedTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::int64_t> Sum(const client::RemoteArray& array) {
    const absl::StatusOr<Reply> reply = client_->Reduce(array, {"sum"});
    if (!reply.ok()) return reply.status();
    EXPECT_EQ(reply->via, "region");
    return std::get<std::int64_t>(reply->results.at(0).value->value);
  }

  TestServer server_;
  const std::unique_ptr<Client> client_ = Client::Create({.server = server_.address(), .timeout = kPatience}).value();
};

TEST_F(SharedTest, IsReducedWhereItIs) {
  constexpr std::int64_t kCount = 100'000;
  const SharedBuffer buffer = Numbers(kCount);
  const absl::StatusOr<Region> region = client_->Share(buffer);
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_EQ(region->bytes(), buffer.bytes());
  EXPECT_EQ(Sum(region->Array("i32", {kCount})).value(), kCount * (kCount + 1) / 2);
  EXPECT_EQ(Sum(region->Array("i32", {2, 2}, 4)).value(), 2 + 3 + 4 + 5);
  EXPECT_EQ(Sum(region->Array("i32", {0}, buffer.bytes())).value(), 0);
  EXPECT_EQ(Sum(region->Array("i32", {kCount}, 4)).status().code(), absl::StatusCode::kOutOfRange);
  // What is written later is seen.
  std::memset(buffer.data(), 0, static_cast<std::size_t>(buffer.bytes()));
  EXPECT_EQ(Sum(region->Array("i32", {kCount})).value(), 0);
}

TEST_F(SharedTest, GoesWithTheRegion) {
  const SharedBuffer buffer = Numbers(10);
  std::string token;
  {
    const Region region = client_->Share(buffer).value();
    token = region.token();
    EXPECT_EQ(client_->GetServerInfo()->usage.regions, 1);
  }
  EXPECT_EQ(client_->GetServerInfo()->usage.regions, 0);
  EXPECT_TRUE(absl::IsNotFound(Sum(client::RemoteArray::InRegion(token, 0, "i32", {10})).status()));
}

TEST_F(SharedTest, OutlivesTheBuffer) {
  absl::StatusOr<Region> region;
  {
    const SharedBuffer buffer = Numbers(10);
    region = client_->Share(buffer);
  }
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_EQ(Sum(region->Array("i32", {10})).value(), 55);
}

TEST_F(SharedTest, ElementsOfAnyMemoryAreCopied) {
  std::vector<std::int32_t> numbers = {1, 2, 3};
  const absl::StatusOr<Region> region = client_->Share(client::ArrayView::Of(std::span<const std::int32_t>(numbers)));
  ASSERT_TRUE(region.ok()) << region.status();
  numbers.assign(3, 100);
  EXPECT_EQ(Sum(region->Array("i32", {3})).value(), 6);
  EXPECT_EQ(Sum(client_->Share(client::ArrayView{nullptr, "i32", {0}})->Array("i32", {0})).value(), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(client_->Share(client::ArrayView{nullptr, "i33", {0}}).status()));
}

TEST_F(SharedTest, EmptyAndUnwritten) {
  const SharedBuffer empty = SharedBuffer::Allocate(0).value();
  EXPECT_EQ(Sum(client_->Share(empty)->Array("i32", {0})).value(), 0);
  const SharedBuffer zeros = SharedBuffer::Allocate(1 << 20).value();
  EXPECT_EQ(Sum(client_->Share(zeros)->Array("i32", {1 << 18})).value(), 0);
}

TEST_F(SharedTest, OnlyMemoryIsTaken) {
  const absl::Status status = client_->Share(0).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
}

}  // namespace
}  // namespace reduced::server

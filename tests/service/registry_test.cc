// The registry of resident arrays, by itself: users, owners, expiry, and when the memory goes.
#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/sources/arrays.h"
#include "tests/service/test_server.h"
#include "tests/support/becomes.h"

namespace reduced::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

// Says when it is freed.
class FakeMemory final : public ArrayMemory {
 public:
  explicit FakeMemory(std::shared_ptr<absl::Notification> freed) : freed_(std::move(freed)) {}
  ~FakeMemory() override { freed_->Notify(); }
  ArrayRef array() const override { return {this, MemorySpace::kHost}; }
  absl::Status Write(std::int64_t, const void*, std::int64_t) override { return absl::OkStatus(); }
  absl::Status Read(std::int64_t, std::int64_t, void*) const override { return absl::OkStatus(); }

 private:
  const std::shared_ptr<absl::Notification> freed_;
};

struct Added {
  std::string id;
  std::shared_ptr<absl::Notification> freed = std::make_shared<absl::Notification>();

  bool AwaitFreed() const { return freed->WaitForNotificationWithTimeout(kPatience); }
};

constexpr absl::Duration kLong = absl::Hours(1);
constexpr absl::string_view kAnonymous = "";

Added Add(ResidentArrays& arrays, absl::Duration ttl = kLong, const std::string& owner = "me",
          const std::string& identity = "") {
  Added added;
  ResidentArray array;
  array.shape = {7};
  array.dtype = DType::kU8;
  array.count = array.bytes = 7;
  array.device = "cpu";
  array.owner = owner;
  array.identity = identity;
  array.ttl = ttl;
  array.memory = std::make_unique<FakeMemory>(added.freed);
  const absl::StatusOr<ArrayDescription> info = arrays.Add(std::move(array));
  EXPECT_TRUE(info.ok()) << info.status();
  if (info.ok()) added.id = info->id;
  return added;
}

std::vector<std::string> Ids(const ResidentArrays& arrays, const std::string& owner = "") {
  std::vector<std::string> ids;
  for (const ArrayDescription& info : arrays.List(owner, kAnonymous)) ids.push_back(info.id);
  return ids;
}

// What a Delete that needn't wait answers.
absl::Status Delete(ResidentArrays& arrays, const std::string& id, const std::string& owner = "me") {
  absl::Status answer = absl::UnknownError("not answered");
  arrays.Delete(
      id, owner, [&answer](const absl::Status& status) { answer = status; }, kAnonymous);
  return answer;
}

TEST(Registry, KeepsWhatIsAdded) {
  ResidentArrays arrays(10);
  const Added first = Add(arrays);
  const Added second = Add(arrays, absl::Seconds(10), "you");
  const Added third = Add(arrays);
  EXPECT_EQ(arrays.count(), 3);
  EXPECT_EQ((std::set<std::string>{first.id, second.id, third.id}).size(), 3U);
  EXPECT_THAT(Ids(arrays), ElementsAre(first.id, second.id, third.id));
  EXPECT_THAT(Ids(arrays, "me"), ElementsAre(first.id, third.id));
  const ArrayDescription info = arrays.List("you", kAnonymous).at(0);
  EXPECT_THAT(info.id, MatchesRegex("[0-9a-f]{32}"));
  EXPECT_EQ(info.dtype, DType::kU8);
  EXPECT_THAT(info.shape, ElementsAre(7));
  EXPECT_EQ(info.bytes, 7);
  EXPECT_EQ(info.device, "cpu");
  EXPECT_EQ(info.owner, "you");
  EXPECT_GE(info.age, absl::ZeroDuration());
  EXPECT_GT(info.expires_in, absl::ZeroDuration());
  EXPECT_LE(info.expires_in, absl::Seconds(10));
  EXPECT_EQ(info.users, 0);
  const auto found = arrays.Find(second.id, kAnonymous);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ((*found)->count, 7);
  EXPECT_EQ((*found)->dtype, DType::kU8);
  EXPECT_EQ(arrays.List("you", kAnonymous).at(0).users, 1);
}

TEST(Registry, CallersHaveTheirOwnAndWhoRunsTheServerSeesAll) {
  ResidentArrays arrays(10);
  const Added first = Add(arrays, kLong, "me");
  const Added second = Add(arrays, kLong, "alice", "alice");
  const Added third = Add(arrays, kLong, "bob", "bob");
  const auto ids = [](const std::vector<ArrayDescription>& infos) {
    std::vector<std::string> ids;
    for (const ArrayDescription& info : infos) ids.push_back(info.id);
    return ids;
  };
  EXPECT_THAT(ids(arrays.List("", kAnonymous)), ElementsAre(first.id));
  EXPECT_THAT(ids(arrays.List("", "alice")), ElementsAre(second.id));
  EXPECT_THAT(ids(arrays.List("alice", kAnonymous)), ElementsAre());
  EXPECT_THAT(ids(arrays.ListAll()), ElementsAre(first.id, second.id, third.id));
}

TEST(Registry, UnknownIdsAreShownShortAndEscaped) {
  ResidentArrays arrays(10);
  const absl::Status status = arrays.Find("a\nb" + std::string(1000, 'x'), kAnonymous).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'a\\nbxxx"));
  EXPECT_LT(status.message().size(), 200U);
  EXPECT_EQ(Delete(arrays, "").code(), absl::StatusCode::kNotFound);
}

TEST(Registry, OnlyItsOwnerDeletesAnArray) {
  ResidentArrays arrays(10);
  const Added mine = Add(arrays);
  for (const std::string& owner : {std::string("you\n"), std::string(), std::string(1000, 'x')}) {
    const absl::Status status = Delete(arrays, mine.id, owner);
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_THAT(std::string(status.message()), HasSubstr("allowed: the array's owner, 'me'"));
    EXPECT_LT(status.message().size(), 200U);
  }
  EXPECT_FALSE(mine.freed->HasBeenNotified());
  EXPECT_TRUE(Delete(arrays, mine.id).ok());
  EXPECT_TRUE(mine.freed->HasBeenNotified());
  EXPECT_EQ(Delete(arrays, mine.id).code(), absl::StatusCode::kNotFound);
}

TEST(Registry, ADeletedArrayStaysForItsUsers) {
  ResidentArrays arrays(10);
  const Added added = Add(arrays);
  auto first = arrays.Find(added.id, kAnonymous);
  auto second = arrays.Find(added.id, kAnonymous);
  ASSERT_TRUE(first.ok() && second.ok());
  bool freed_before = false;
  absl::Notification deleted;
  const auto done = [&](const absl::Status& status) {
    EXPECT_TRUE(status.ok());
    freed_before = added.freed->HasBeenNotified();
    deleted.Notify();
  };
  arrays.Delete(added.id, "me", done, kAnonymous);
  EXPECT_EQ(arrays.count(), 0);
  EXPECT_EQ(arrays.Find(added.id, kAnonymous).status().code(), absl::StatusCode::kNotFound);
  first->reset();
  EXPECT_FALSE(deleted.HasBeenNotified());
  EXPECT_FALSE(added.freed->HasBeenNotified());
  EXPECT_NE((*second)->memory, nullptr);
  second->reset();
  EXPECT_TRUE(deleted.HasBeenNotified());
  EXPECT_TRUE(freed_before);
}

TEST(Registry, SoManyAndNoMore) {
  ResidentArrays arrays(1);
  EXPECT_TRUE(arrays.CheckRoom().ok());
  const Added only = Add(arrays);
  EXPECT_EQ(arrays.CheckRoom().code(), absl::StatusCode::kResourceExhausted);
  ResidentArray another;
  const auto freed = std::make_shared<absl::Notification>();
  another.memory = std::make_unique<FakeMemory>(freed);
  const absl::Status refused = arrays.Add(std::move(another)).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("1 resident arrays"));
  EXPECT_TRUE(freed->HasBeenNotified());
  EXPECT_TRUE(Delete(arrays, only.id).ok());
  EXPECT_TRUE(arrays.CheckRoom().ok());
}

TEST(Registry, WhatIsNotUsedExpires) {
  ResidentArrays arrays(10);
  const Added stays = Add(arrays);
  const Added later = Add(arrays, absl::Milliseconds(60));
  const Added sooner = Add(arrays, absl::Milliseconds(1));
  EXPECT_TRUE(sooner.AwaitFreed());
  EXPECT_TRUE(later.AwaitFreed());
  EXPECT_THAT(Ids(arrays), ElementsAre(stays.id));
  EXPECT_EQ(arrays.Find(later.id, kAnonymous).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(stays.freed->HasBeenNotified());
}

TEST(Registry, WhatIsUsedDoesNotExpireUntilItsUserIsGone) {
  ResidentArrays arrays(10);
  const Added used = Add(arrays, absl::Milliseconds(100));
  auto user = arrays.Find(used.id, kAnonymous);
  if (!user.ok()) GTEST_SKIP() << "this machine was too slow to use the array in time";
  const Added unused = Add(arrays, absl::Milliseconds(150));
  EXPECT_TRUE(unused.AwaitFreed());  // by now the other one's time is over too
  EXPECT_THAT(Ids(arrays), ElementsAre(used.id));
  EXPECT_FALSE(used.freed->HasBeenNotified());
  user->reset();
  EXPECT_TRUE(used.AwaitFreed());
}

TEST(Registry, UseBeginsTheTimeAnew) {
  ResidentArrays arrays(10);
  const Added added = Add(arrays, absl::Seconds(100));
  const auto info = [&arrays] { return arrays.List("", kAnonymous).at(0); };
  ASSERT_TRUE(Becomes(kPatience, [&] { return info().age >= absl::Milliseconds(20); }));
  EXPECT_LE(info().age + info().expires_in, absl::Milliseconds(100'001));
  EXPECT_TRUE(arrays.Find(added.id, kAnonymous).ok());
  EXPECT_GE(info().age + info().expires_in, absl::Milliseconds(100'015));
}

TEST(Registry, FreesAllWhenItGoes) {
  Added kept;
  {
    ResidentArrays arrays(10);
    kept = Add(arrays);
  }
  EXPECT_TRUE(kept.freed->HasBeenNotified());
}

// Whatever happens at once, each array is freed exactly once (else its memory would notify twice) and each Delete is
// answered exactly once.
TEST(Registry, Storm) {
  std::vector<Added> added;
  absl::Mutex mutex;
  std::atomic<int> asked = 0;
  std::atomic<int> answered = 0;
  {
    ResidentArrays arrays(1 << 20);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(t);
        std::vector<std::shared_ptr<const ResidentArray>> users;
        for (int i = 0; i < 500; ++i) {
          const Added mine = Add(arrays, random() % 2 == 0 ? absl::Milliseconds(1 + random() % 5) : kLong);
          std::string any;
          {
            const absl::MutexLock lock(&mutex);
            added.push_back(mine);
            any = added[random() % added.size()].id;
          }
          if (auto user = arrays.Find(any, kAnonymous); user.ok()) users.push_back(*std::move(user));
          if (random() % 2 == 0) {
            ++asked;
            arrays.Delete(
                any, "me", [&answered](const absl::Status&) { ++answered; }, kAnonymous);
          }
          if (random() % 16 == 0) users.clear();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(asked.load(), answered.load());
  }
  for (const Added& each : added) EXPECT_TRUE(each.freed->HasBeenNotified());
}

}  // namespace
}  // namespace reduced::server

#include "server/observe/call_tag.h"

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace reduced::server {
namespace {

constexpr char kParent[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(RequestIdTest, WhatAClientMaySay) {
  for (const std::string good : {"a", "0123-ABC_x.y:z/+=@", "7f3c1c2e-8f7b-4b8e-9a57-1f2a3b4c5d6e"}) {
    EXPECT_TRUE(IsRequestId(good)) << good;
  }
  EXPECT_TRUE(IsRequestId(std::string(kMaxRequestIdBytes, 'x')));
  for (const std::string bad : {"", "a b", "a\nb", "\"", "{x}", "ü", "a\\", "<b>"})
    EXPECT_FALSE(IsRequestId(bad)) << bad;
  EXPECT_FALSE(IsRequestId(std::string(kMaxRequestIdBytes + 1, 'x')));
  EXPECT_FALSE(IsRequestId(std::string("a\0b", 3)));
}

TEST(RequestIdTest, MadeOnesAreGoodAndAllDifferent) {
  constexpr int kThreads = 4;
  constexpr int kEach = 1000;
  RequestIds ids;
  RequestIds of_another_server;
  std::vector<std::vector<std::string>> made(kThreads);
  std::vector<std::thread> threads;
  for (auto& mine : made) {
    threads.emplace_back([&ids, &mine] {
      for (int i = 0; i < kEach; ++i) mine.push_back(ids.Next());
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<std::string> all = {of_another_server.Next()};
  for (const auto& some : made) {
    for (const std::string& id : some) {
      EXPECT_TRUE(IsRequestId(id)) << id;
      all.insert(id);
    }
  }
  EXPECT_EQ(all.size(), kThreads * kEach + 1);
}

TEST(TraceparentTest, Version00) {
  EXPECT_TRUE(IsTraceparent(kParent));
  EXPECT_FALSE(IsTraceparent(absl::StrCat(kParent, "-more")));
  EXPECT_FALSE(IsTraceparent(""));
  for (std::size_t i = 0; i < sizeof(kParent) - 1; ++i) {
    std::string changed = kParent;
    changed[i] = kParent[i] == '-' ? '0' : 'G';
    EXPECT_FALSE(IsTraceparent(changed)) << changed;
    EXPECT_FALSE(IsTraceparent(std::string(kParent).substr(0, i))) << i;
  }
  std::string upper = kParent;
  upper[3] = 'F';
  EXPECT_FALSE(IsTraceparent(upper));
  EXPECT_FALSE(IsTraceparent("00-00000000000000000000000000000000-00f067aa0ba902b7-01"));
  EXPECT_FALSE(IsTraceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01"));
}

TEST(TraceparentTest, LaterVersionsMayHaveMore) {
  const std::string later = "cc" + std::string(kParent).substr(2);
  EXPECT_TRUE(IsTraceparent(later));
  EXPECT_TRUE(IsTraceparent(later + "-what-is-to-come"));
  EXPECT_FALSE(IsTraceparent(later + "x"));
  EXPECT_FALSE(IsTraceparent("ff" + std::string(kParent).substr(2)));
}

}  // namespace
}  // namespace reduced::server

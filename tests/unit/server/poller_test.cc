#include "server/calls/poller.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/support/becomes.h"

namespace reduced::server {
namespace {

constexpr absl::Duration kRingPatience = absl::Seconds(60);
constexpr int kMostWaitUs = 100'000;

// A ring whose submissions take `cost` each. `time`: what those of all rings have taken.
class FakeRing final : public PolledRing {
 public:
  FakeRing(std::atomic<int>& time_us, int cost_us, bool endless)
      : time_us_(time_us), cost_us_(cost_us), endless_(endless) {}
  ~FakeRing() override { close(doorbell_); }

  // Adds a submission and, if the ring sleeps, rings. How much of the poller's time the others have until it is served;
  // nullopt: it is never served.
  std::optional<int> AwaitTurn() {
    pending_.store(true);
    const int before_us = time_us_.load();
    if (asleep_.load()) eventfd_write(doorbell_, 1);
    if (!Becomes(kRingPatience, [this] { return !pending_.load(); })) return std::nullopt;
    return served_at_us_.load() - before_us;
  }
  bool AwaitSleep() const {
    return Becomes(kRingPatience, [this] { return asleep_.load(); });
  }
  bool AwaitEnd() const {
    return Becomes(kRingPatience, [this] { return gone_.load(); });
  }
  int turns() const { return turns_.load(); }

  int doorbell() const override { return doorbell_; }
  bool HasWork() const override { return endless_ || pending_.load(); }
  void Serve() override {
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(cost_us_);
    while (std::chrono::steady_clock::now() < end) {
    }
    served_at_us_.store(time_us_.fetch_add(cost_us_));
    ++turns_;
    pending_.store(false);
  }
  bool Doze() override {
    asleep_.store(true);
    if (!HasWork()) return true;
    asleep_.store(false);
    return false;
  }
  void WakeUp() override { asleep_.store(false); }
  ring::Patience& patience() override { return patience_; }
  void LetGo() override { gone_.store(true); }

 private:
  std::atomic<int>& time_us_;
  const int cost_us_;
  const bool endless_;
  const int doorbell_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  ring::Patience patience_;
  std::atomic<bool> pending_ = false;
  std::atomic<bool> asleep_ = false;
  std::atomic<int> turns_ = 0;
  std::atomic<int> served_at_us_ = 0;  // the time before its last submission
  std::atomic<bool> gone_ = false;
};

// A poller with rings that always have submissions, and one that seldom has.
class PollerTest : public testing::Test {
 protected:
  void Start(int busy, int cost_us) {
    for (int i = 0; i < busy; ++i) Add(std::make_shared<FakeRing>(time_us_, cost_us, /*endless=*/true));
    Add(quiet_);
  }
  void Add(const std::shared_ptr<FakeRing>& ring) {
    rings_.push_back(ring);
    ASSERT_TRUE(poller_.Add(ring).ok());
  }
  void TearDown() override {
    for (const auto& ring : rings_) poller_.Remove(ring.get());
    for (const auto& ring : rings_) EXPECT_TRUE(ring->AwaitEnd());
    EXPECT_EQ(poller_.count(), 0);
  }

  std::atomic<int> time_us_ = 0;
  std::vector<std::shared_ptr<FakeRing>> rings_;
  std::shared_ptr<FakeRing> quiet_ = std::make_shared<FakeRing>(time_us_, 5, /*endless=*/false);
  Poller poller_;
};

struct Crowd {
  int rings;
  int cost_us;
};
class PollerCrowdTest : public PollerTest, public testing::WithParamInterface<Crowd> {};

TEST_P(PollerCrowdTest, ASleepingRingWaitsShortly) {
  Start(GetParam().rings, GetParam().cost_us);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(quiet_->AwaitSleep());
    const auto waited = quiet_->AwaitTurn();
    ASSERT_TRUE(waited.has_value());
    EXPECT_LE(*waited, kMostWaitUs);
  }
}

TEST_P(PollerCrowdTest, ARingThatIsAwakeWaitsShortly) {
  Start(GetParam().rings, GetParam().cost_us);
  for (int i = 0; i < 20; ++i) {
    const auto waited = quiet_->AwaitTurn();
    ASSERT_TRUE(waited.has_value());
    EXPECT_LE(*waited, kMostWaitUs);
  }
}

INSTANTIATE_TEST_SUITE_P(Crowds, PollerCrowdTest,
                         testing::Values(Crowd{1, 10'000}, Crowd{20, 4000}, Crowd{240, 20}, Crowd{240, 300},
                                         Crowd{600, 50}));

TEST(PollersTest, ThereAreMoreOfThemOnMoreProcessorsWithMoreGpus) {
  const struct {
    int processors, gpu_lanes, count;
  } rows[] = {{1, 4, 1},  {2, 4, 1},  {7, 16, 1},   {16, 0, 4},   {16, 16, 4},   {64, 0, 4},
              {64, 4, 4}, {64, 8, 8}, {64, 16, 16}, {48, 16, 12}, {256, 128, 16}};
  for (const auto& row : rows) {
    EXPECT_EQ(Pollers::CountFor(row.processors, row.gpu_lanes), row.count) << row.processors << " " << row.gpu_lanes;
  }
}

// What a ring has used while no other wanted the time is not held against it.
TEST_F(PollerTest, ARingThatWasBusyAloneIsServedAlsoOnceOthersAre) {
  const auto alone = std::make_shared<FakeRing>(time_us_, 100, /*endless=*/true);
  Add(alone);
  Add(quiet_);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(quiet_->AwaitTurn().has_value());
  ASSERT_TRUE(Becomes(kRingPatience, [&] { return alone->turns() > 3000; }));
  for (int i = 0; i < 50; ++i) Add(std::make_shared<FakeRing>(time_us_, 300, /*endless=*/true));
  ASSERT_TRUE(quiet_->AwaitTurn().has_value());
  for (int i = 0; i < 5; ++i) {
    const int turns = alone->turns(), before_us = time_us_.load();
    ASSERT_TRUE(Becomes(kRingPatience, [&] { return alone->turns() > turns; }));
    EXPECT_LE(time_us_.load() - before_us, 2 * kMostWaitUs);
  }
}

TEST_F(PollerTest, BusyRingsHaveEqualTime) {
  const auto cheap = std::make_shared<FakeRing>(time_us_, 100, /*endless=*/true);
  const auto dear = std::make_shared<FakeRing>(time_us_, 1000, /*endless=*/true);
  Add(cheap);
  Add(dear);
  Add(quiet_);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(quiet_->AwaitTurn().has_value());
  const int before_cheap = cheap->turns(), before_dear = dear->turns();
  while (dear->turns() < before_dear + 50) ASSERT_TRUE(quiet_->AwaitTurn().has_value());
  const double ratio = static_cast<double>(cheap->turns() - before_cheap) / (dear->turns() - before_dear);
  EXPECT_GT(ratio, 5);
  EXPECT_LT(ratio, 20);
}

}  // namespace
}  // namespace reduced::server

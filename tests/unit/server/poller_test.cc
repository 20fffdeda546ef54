#include "server/calls/poller.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace reduced::server {
namespace {

using std::chrono::microseconds;

constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr microseconds kMostWait = std::chrono::milliseconds(100);

// Counts what all rings of a test do.
struct Served {
  absl::Mutex mutex;
  microseconds time{};  // of all submissions
};

// A ring whose submissions take `cost` each.
class FakeRing final : public PolledRing {
 public:
  FakeRing(Served& served, microseconds cost, bool endless) : served_(served), cost_(cost), endless_(endless) {}
  ~FakeRing() override { close(doorbell_); }

  // Adds a submission and, if the ring sleeps, rings. How much of the poller's time the other rings have until it is
  // served; nullopt: it is never served.
  std::optional<microseconds> AwaitTurn() {
    const absl::MutexLock lock(&served_.mutex);
    const microseconds before = served_.time;
    pending_.store(true);
    if (asleep_.load()) eventfd_write(doorbell_, 1);
    const auto served = [this] { return !pending_.load(); };
    if (!served_.mutex.AwaitWithTimeout(absl::Condition(&served), kPatience)) return std::nullopt;
    return at_ - before;
  }
  bool AwaitSleep() {
    const absl::MutexLock lock(&served_.mutex);
    const auto asleep = [this] { return asleep_.load(); };
    return served_.mutex.AwaitWithTimeout(absl::Condition(&asleep), kPatience);
  }
  bool AwaitEnd() {
    const absl::MutexLock lock(&served_.mutex);
    return served_.mutex.AwaitWithTimeout(absl::Condition(&gone_), kPatience);
  }
  int turns() const { return turns_.load(); }

  int doorbell() const override { return doorbell_; }
  bool HasWork() const override { return endless_ || pending_.load(); }
  void Serve() override {
    const auto end = std::chrono::steady_clock::now() + cost_;
    while (std::chrono::steady_clock::now() < end) {
    }
    const absl::MutexLock lock(&served_.mutex);
    at_ = served_.time;
    served_.time += cost_;
    pending_.store(false);
    ++turns_;
  }
  bool Doze() override {
    const absl::MutexLock lock(&served_.mutex);
    if (HasWork()) return false;
    asleep_.store(true);
    return true;
  }
  void WakeUp() override { asleep_.store(false); }
  ring::Patience& patience() override { return patience_; }
  void LetGo() override {
    const absl::MutexLock lock(&served_.mutex);
    gone_ = true;
  }

 private:
  Served& served_;
  const microseconds cost_;
  const bool endless_;
  const int doorbell_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  ring::Patience patience_;
  std::atomic<bool> pending_ = false;
  std::atomic<bool> asleep_ = false;
  std::atomic<int> turns_ = 0;
  microseconds at_{};  // Served::time before its last submission
  bool gone_ = false;
};

// A poller with rings that always have submissions, and one that seldom has.
class PollerTest : public testing::Test {
 protected:
  void Start(int busy, microseconds cost) {
    for (int i = 0; i < busy; ++i) Add(std::make_shared<FakeRing>(served_, cost, /*endless=*/true));
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

  Served served_;
  std::vector<std::shared_ptr<FakeRing>> rings_;
  std::shared_ptr<FakeRing> quiet_ = std::make_shared<FakeRing>(served_, microseconds(5), /*endless=*/false);
  Poller poller_;
};

struct Crowd {
  int rings;
  microseconds cost;
};
class PollerCrowdTest : public PollerTest, public testing::WithParamInterface<Crowd> {};

TEST_P(PollerCrowdTest, ASleepingRingWaitsShortly) {
  Start(GetParam().rings, GetParam().cost);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(quiet_->AwaitSleep());
    const auto waited = quiet_->AwaitTurn();
    ASSERT_TRUE(waited.has_value());
    EXPECT_LE(*waited, kMostWait);
  }
}

TEST_P(PollerCrowdTest, ARingThatIsAwakeWaitsShortly) {
  Start(GetParam().rings, GetParam().cost);
  for (int i = 0; i < 20; ++i) {
    const auto waited = quiet_->AwaitTurn();
    ASSERT_TRUE(waited.has_value());
    EXPECT_LE(*waited, kMostWait);
  }
}

INSTANTIATE_TEST_SUITE_P(Crowds, PollerCrowdTest,
                         testing::Values(Crowd{1, microseconds(10'000)}, Crowd{20, microseconds(4000)},
                                         Crowd{240, microseconds(20)}, Crowd{240, microseconds(300)},
                                         Crowd{1000, microseconds(50)}));

TEST_F(PollerTest, BusyRingsHaveEqualTime) {
  const auto cheap = std::make_shared<FakeRing>(served_, microseconds(100), /*endless=*/true);
  const auto dear = std::make_shared<FakeRing>(served_, microseconds(1000), /*endless=*/true);
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

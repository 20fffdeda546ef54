#include "kernels/engine/lanes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace reduced {

Lanes::Lanes(int lanes, int queue_limit) : queue_limit_(queue_limit), in_use_(lanes) {
  threads_.reserve(lanes);
  for (int lane = 0; lane < lanes; ++lane) threads_.emplace_back([this, lane] { Run(lane); });
}

Lanes::~Lanes() {
  std::deque<Job> dropped;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    dropped.swap(queue_);
  }
  for (Job& job : dropped) std::move(job)(absl::CancelledError("the engine stopped before a lane was free"));
  for (std::thread& thread : threads_) thread.join();
}

void Lanes::Submit(Job job, bool admitted) {
  {
    absl::MutexLock lock(&mutex_);
    const int free_lanes = count() - busy_;
    if (admitted || static_cast<int>(queue_.size()) - free_lanes < queue_limit_) {
      queue_.push_back(std::move(job));
      return;
    }
  }
  std::move(job)(absl::ResourceExhaustedError(
      absl::StrCat("the queue is full: ", count(), " reductions run and ", queue_limit_, " wait, the most allowed")));
}

std::optional<int> Lanes::TryBorrow() {
  absl::MutexLock lock(&mutex_);
  if (!queue_.empty()) return std::nullopt;
  const auto free = std::find_if(in_use_.begin(), in_use_.end(), [](const auto& since) { return !since.has_value(); });
  if (free == in_use_.end()) return std::nullopt;
  free->emplace();
  ++busy_;
  return static_cast<int>(free - in_use_.begin());
}

void Lanes::GiveBack(int lane) {
  absl::MutexLock lock(&mutex_);
  constexpr double kWeight = 1.0 / 8;  // of the latest job
  typical_us_ += kWeight * (in_use_[lane]->micros() - typical_us_);
  in_use_[lane].reset();
  --busy_;
}

int Lanes::busy() const {
  absl::MutexLock lock(&mutex_);
  return busy_;
}

int Lanes::queue_length() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(queue_.size());
}

double Lanes::waiting_us() const {
  absl::MutexLock lock(&mutex_);
  return typical_us_ * (busy_ + static_cast<double>(queue_.size())) / count();
}

void Lanes::Run(int lane) {
  const auto wanted = [this, lane]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || (!queue_.empty() && !in_use_[lane].has_value());
  };
  while (true) {
    Job job;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&wanted));
      if (queue_.empty()) return;
      job = std::move(queue_.front());
      queue_.pop_front();
      in_use_[lane].emplace();
      ++busy_;
    }
    std::move(job)(lane);
    job = nullptr;
    GiveBack(lane);
  }
}

}  // namespace reduced

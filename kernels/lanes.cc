#include "kernels/lanes.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace reduced {

Lanes::Lanes(int lanes, int queue_limit) : queue_limit_(queue_limit) {
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

void Lanes::Submit(Job job) {
  {
    absl::MutexLock lock(&mutex_);
    const int free_lanes = count() - busy_;
    if (static_cast<int>(queue_.size()) - free_lanes < queue_limit_) {
      queue_.push_back(std::move(job));
      return;
    }
  }
  std::move(job)(absl::ResourceExhaustedError(
      absl::StrCat("the queue is full: ", count(), " reductions run and ", queue_limit_, " wait, the most allowed")));
}

int Lanes::busy() const {
  absl::MutexLock lock(&mutex_);
  return busy_;
}

int Lanes::queue_length() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(queue_.size());
}

void Lanes::Run(int lane) {
  while (true) {
    Job job;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(
          +[](Lanes* lanes)
               ABSL_EXCLUSIVE_LOCKS_REQUIRED(lanes->mutex_) { return lanes->stopping_ || !lanes->queue_.empty(); },
          this));
      if (queue_.empty()) return;
      job = std::move(queue_.front());
      queue_.pop_front();
      ++busy_;
    }
    std::move(job)(lane);
    job = nullptr;
    absl::MutexLock lock(&mutex_);
    --busy_;
  }
}

}  // namespace reduced

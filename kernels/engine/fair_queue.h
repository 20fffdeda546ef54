// A queue that serves callers in turn, not first in, first out: whoever waits gets an equal share of the time, however
// much the others have queued.
//
// Start-time fair queueing (Goyal, Vin and Cheng, 1996), with one clock, in units of cost. Each caller that waits has a
// tag: what it has been served, in cost, counted from the clock at which it came. The caller with the smallest tag is
// next, with its oldest job; the clock is then at that tag, which grows by the job's cost. Who comes to the queue
// starts at the clock: it pays nothing for the past, and saves nothing up. When the queue is empty everybody is even.
#ifndef REDUCED_KERNELS_ENGINE_FAIR_QUEUE_H_
#define REDUCED_KERNELS_ENGINE_FAIR_QUEUE_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace reduced {

// Two classes of jobs: a lane may be there for short ones only. Those of a caller share its tag.
enum class JobClass : std::uint8_t { kShort, kLong };

// Job: movable, with the members
//   std::uint64_t caller     whose it is: any number
//   double cost              its time, at least 0
//   JobClass job_class
//   bool stays               Displace leaves it alone
//
// Not thread-safe. Push, Pop and Charge take O(log n) of the callers that wait.
template <class Job>
class FairQueue {
 public:
  bool empty() const { return size_ == 0; }
  int size() const { return size_; }
  int size(JobClass of) const { return class_sizes_[Index(of)]; }
  double cost() const { return cost_; }  // of all jobs

  void Push(Job job) {
    Flow& flow = flows_.try_emplace(job.caller, Flow{.tag = clock_}).first->second;
    Unlist(flow);
    if (flow.count == 0) flow.tag = std::max(flow.tag, clock_);
    Count(flow, job, 1);
    auto& jobs = flow.jobs[Index(job.job_class)];
    jobs.push_back({next_serial_++, std::move(job)});
    List(flow);
  }

  // The next job; `long_too`: of either class, else a short one. nullopt: there is none.
  std::optional<Job> Pop(bool long_too) {
    const std::optional<std::pair<Flow*, std::size_t>> next = Next(long_too);
    if (!next.has_value()) return std::nullopt;
    Flow& flow = *next->first;
    Unlist(flow);
    std::deque<Entry>& jobs = flow.jobs[next->second];
    Job job = std::move(jobs.front().job);
    jobs.pop_front();
    clock_ = std::max(clock_, flow.tag);
    flow.tag += job.cost;
    Count(flow, job, -1);
    List(flow);
    if (empty()) Forget();
    return job;
  }
  bool HasNext(bool long_too) const { return size(JobClass::kShort) > 0 || (long_too && size(JobClass::kLong) > 0); }

  // That a job of the caller took more than its cost.
  void Charge(std::uint64_t caller, double cost) {
    const auto found = flows_.find(caller);
    if (found == flows_.end()) return;
    Unlist(found->second);
    found->second.tag += cost;
    List(found->second);
  }

  // Whether the caller has jobs.
  bool Waits(std::uint64_t caller) const {
    const auto found = flows_.find(caller);
    return found != flows_.end() && found->second.count > 0;
  }

  // What another job of the caller would wait for, in cost: at most all that there is; at most what each of the others
  // gets while this caller gets what it has queued, and what it is behind the clock.
  double CostBefore(std::uint64_t caller) const {
    const auto found = flows_.find(caller);
    if (found == flows_.end()) return 0;
    const Flow& flow = found->second;
    const int others = waiting_ - (flow.count > 0 ? 1 : 0);
    const double share = flow.cost + std::max(0.0, flow.tag - clock_);
    return std::min(cost_, flow.cost + others * share);
  }

  // Whether Displace would find a job. O(n) of the callers, if this one has less than its share of the places.
  bool MayDisplace(std::uint64_t caller, std::optional<JobClass> of = std::nullopt) const {
    return FindHeaviest(caller, of) != nullptr;
  }
  // Removes the newest job of the caller that has most places, if that leaves it at least as many as this caller will
  // then have. `of`: counts and removes jobs of the class only.
  std::optional<Job> Displace(std::uint64_t caller, std::optional<JobClass> of = std::nullopt) {
    const Flow* const found = FindHeaviest(caller, of);
    if (found == nullptr) return std::nullopt;
    Flow& flow = const_cast<Flow&>(*found);
    std::pair<std::deque<Entry>*, typename std::deque<Entry>::iterator> newest{nullptr, {}};
    for (std::size_t i = 0; i < kClasses; ++i) {
      if (of.has_value() && Index(*of) != i) continue;
      std::deque<Entry>& jobs = flow.jobs[i];
      const auto last = std::find_if(jobs.rbegin(), jobs.rend(), [](const Entry& each) { return !each.job.stays; });
      if (last == jobs.rend()) continue;
      const auto at = std::prev(last.base());
      if (newest.first == nullptr || at->serial > newest.second->serial) newest = {&jobs, at};
    }
    if (newest.first == nullptr) return std::nullopt;
    Unlist(flow);
    Job job = std::move(newest.second->job);
    newest.first->erase(newest.second);
    Count(flow, job, -1);
    List(flow);
    return job;
  }

  // Removes the jobs that `wanted` is false for. O(n).
  template <class Wanted>
  std::vector<Job> RemoveUnless(Wanted wanted) {
    std::vector<Job> removed;
    for (auto each = flows_.begin(); each != flows_.end();) {
      Flow& flow = each->second;
      Unlist(flow);
      for (std::deque<Entry>& jobs : flow.jobs) {
        const auto in_vain =
            std::stable_partition(jobs.begin(), jobs.end(), [&](const Entry& entry) { return wanted(entry.job); });
        for (auto entry = in_vain; entry != jobs.end(); ++entry) {
          Count(flow, entry->job, -1);
          removed.push_back(std::move(entry->job));
        }
        jobs.erase(in_vain, jobs.end());
      }
      List(flow);
      const bool even = flow.count == 0 && flow.tag <= clock_;  // nothing of it need be remembered
      each = even ? flows_.erase(each) : std::next(each);
    }
    if (empty()) Forget();
    return removed;
  }

 private:
  static constexpr std::size_t kClasses = 2;
  static std::size_t Index(JobClass of) { return static_cast<std::size_t>(of); }

  struct Entry {
    std::uint64_t serial;
    Job job;
  };
  struct Flow {  // of one caller
    double tag = 0;
    double cost = 0;  // of its jobs
    int count = 0;
    std::array<std::deque<Entry>, kClasses> jobs{};  // by class, oldest first
    std::array<int, kClasses> displaceable{};

    int size(std::optional<JobClass> of) const {
      return of.has_value() ? static_cast<int>(jobs[Index(*of)].size()) : count;
    }
    bool MayLose(std::optional<JobClass> of) const {
      return of.has_value() ? displaceable[Index(*of)] > 0 : displaceable[0] + displaceable[1] > 0;
    }
  };

  // Puts the flow where its tag and its oldest jobs belong. Whoever changes these calls Unlist before.
  void List(Flow& flow) {
    for (std::size_t i = 0; i < kClasses; ++i) {
      if (!flow.jobs[i].empty()) order_[i].insert({flow.tag, flow.jobs[i].front().serial, &flow});
    }
  }
  void Unlist(Flow& flow) {
    for (std::size_t i = 0; i < kClasses; ++i) {
      if (!flow.jobs[i].empty()) order_[i].erase({flow.tag, flow.jobs[i].front().serial, &flow});
    }
  }

  std::optional<std::pair<Flow*, std::size_t>> Next(bool long_too) const {
    const auto& of_short = order_[Index(JobClass::kShort)];
    const auto& of_long = order_[Index(JobClass::kLong)];
    const bool take_long = long_too && !of_long.empty() && (of_short.empty() || *of_long.begin() < *of_short.begin());
    const auto& from = take_long ? of_long : of_short;
    if (from.empty()) return std::nullopt;
    return std::pair(std::get<Flow*>(*from.begin()), Index(take_long ? JobClass::kLong : JobClass::kShort));
  }

  const Flow* FindHeaviest(std::uint64_t caller, std::optional<JobClass> of) const {
    const auto own = flows_.find(caller);
    const int held = own == flows_.end() ? 0 : own->second.size(of);
    const int callers = waiting_ + (own == flows_.end() || own->second.count == 0 ? 1 : 0);
    if (!of.has_value() && static_cast<std::int64_t>(held + 1) * callers > size_) return nullptr;  // has its share
    const Flow* heaviest = nullptr;
    for (const auto& [of_caller, flow] : flows_) {
      if (!flow.MayLose(of) || flow.size(of) <= held + 1) continue;
      if (heaviest == nullptr || flow.size(of) > heaviest->size(of)) heaviest = &flow;
    }
    return heaviest;
  }

  // `sign`: 1 when the job comes, -1 when it goes.
  void Count(Flow& flow, const Job& job, int sign) {
    if (sign > 0 && flow.count == 0) ++waiting_;
    flow.count += sign;
    if (sign < 0 && flow.count == 0) --waiting_;
    size_ += sign;
    class_sizes_[Index(job.job_class)] += sign;
    cost_ += sign * job.cost;
    flow.cost += sign * job.cost;
    if (!job.stays) flow.displaceable[Index(job.job_class)] += sign;
  }
  void Forget() {
    flows_.clear();
    clock_ = cost_ = 0;  // no error of rounding stays
  }

  std::map<std::uint64_t, Flow> flows_;  // by caller: those that wait, and those whose tag is ahead of the clock
  std::array<std::set<std::tuple<double, std::uint64_t, Flow*>>, kClasses> order_;  // by class: tag, oldest job
  double clock_ = 0;
  double cost_ = 0;
  int size_ = 0;
  int waiting_ = 0;  // callers with jobs
  std::array<int, kClasses> class_sizes_{};
  std::uint64_t next_serial_ = 0;
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_ENGINE_FAIR_QUEUE_H_

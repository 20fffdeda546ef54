// Items of work on the threads of this machine.
#ifndef REDUCED_CLIENT_LIB_FOR_EACH_H_
#define REDUCED_CLIENT_LIB_FOR_EACH_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace reduced::client {

// As many workers as `items` items of work can have at once: at least one.
inline std::int64_t WorkersFor(std::int64_t items) {
  return std::clamp<std::int64_t>(items, 1, std::max(1U, std::thread::hardware_concurrency()));
}

// Calls run(worker, item) for items 0 to items - 1, each once: on this thread, which is worker 0, and on others, up to
// WorkersFor(items) together. Those of one worker ascend. Fewer threads do it where the system refuses more. Throws
// std::bad_alloc on this thread if a call did; then some items are left out.
template <class Run>
void ForEach(std::int64_t items, const Run& run) {
  std::atomic<std::int64_t> next = 0;
  std::atomic<bool> out_of_memory = false;
  const auto work = [&](std::int64_t worker) {
    try {
      for (std::int64_t item = next++; item < items; item = next++) run(worker, item);
    } catch (const std::bad_alloc&) {
      out_of_memory = true;
      next = items;
    }
  };
  std::vector<std::thread> others;
  const std::int64_t workers = WorkersFor(items);
  others.reserve(static_cast<std::size_t>(workers - 1));
  try {
    for (std::int64_t worker = 1; worker < workers; ++worker) others.emplace_back(work, worker);
  } catch (const std::system_error&) {
  } catch (const std::bad_alloc&) {
  }
  work(0);
  for (std::thread& other : others) other.join();
  if (out_of_memory) throw std::bad_alloc();
}

// Sorts on the threads of this machine: stretches, which are then merged in pairs. No two items are equal.
template <class T, class Less>
void SortOnThreads(std::vector<T>* items, const Less& less) {
  constexpr std::int64_t kLeast = 1 << 14;  // items for which a thread pays
  const auto count = static_cast<std::int64_t>(items->size());
  std::int64_t stretches = WorkersFor(count / kLeast);
  const auto at = [&](std::int64_t stretch) { return items->begin() + count * stretch / stretches; };
  ForEach(stretches, [&](std::int64_t /*worker*/, std::int64_t s) { std::sort(at(s), at(s + 1), less); });
  for (std::int64_t width = 1; width < stretches; width *= 2) {
    ForEach((stretches + 2 * width - 1) / (2 * width), [&](std::int64_t /*worker*/, std::int64_t pair) {
      const std::int64_t begin = 2 * width * pair;
      std::inplace_merge(at(begin), at(std::min(begin + width, stretches)), at(std::min(begin + 2 * width, stretches)),
                         less);
    });
  }
}

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_FOR_EACH_H_

#ifndef REDUCED_KERNELS_ENGINE_STOPWATCH_H_
#define REDUCED_KERNELS_ENGINE_STOPWATCH_H_

#include <chrono>

namespace reduced {

// Time since it was made, on the monotonic clock.
class Stopwatch {
 public:
  double micros() const {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_ENGINE_STOPWATCH_H_

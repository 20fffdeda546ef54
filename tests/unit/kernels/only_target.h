// Tests of vectors, one instruction set at a time.
#ifndef REDUCED_TESTS_UNIT_KERNELS_ONLY_TARGET_H_
#define REDUCED_TESTS_UNIT_KERNELS_ONLY_TARGET_H_

#include <cstdint>

#include "hwy/targets.h"

namespace reduced::test {

// Makes one target the best there is, while it lives.
class OnlyTarget {
 public:
  explicit OnlyTarget(std::int64_t target) { Set(target); }
  ~OnlyTarget() { Set(0); }

 private:
  static void Set(std::int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().DeInit();
  }
};

}  // namespace reduced::test

#endif  // REDUCED_TESTS_UNIT_KERNELS_ONLY_TARGET_H_

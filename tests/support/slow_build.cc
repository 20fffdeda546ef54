// A source of its own, so that a program can have another value, and the same tests.
#include "tests/support/runs.h"

namespace reduced::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
const bool kSlowBuild = true;
#else
const bool kSlowBuild = false;
#endif

}  // namespace reduced::test

// The fake device reduces elements one by one.
#include "tests/support/runs.h"

namespace reduced::test {

const bool kSlowBuild = true;

}  // namespace reduced::test

// A GPU's context that is lost, as by a kernel with a fault.
#ifndef REDUCED_TESTS_CONTRACT_LOST_CONTEXT_H_
#define REDUCED_TESTS_CONTRACT_LOST_CONTEXT_H_

#include <string>

namespace reduced::test {

// For this process, for good. Gives the name of the error.
std::string LoseContext();

}  // namespace reduced::test

#endif  // REDUCED_TESTS_CONTRACT_LOST_CONTEXT_H_

// The main function of every test program: GoogleTest's, with two additions.
//
//   --source=FILE   runs the tests that are written in FILE, and fails if there are none.
//                   A --gtest_filter takes precedence.
//
// ctest runs each source file of a test program by --source, as a process of its own: no test sees what the tests of
// another file did to the process. Death tests that run the program again add a --gtest_filter.
//
// A run that skipped all of its tests exits with 77, which ctest shows as skipped.
#include <iostream>
#include <string>
#include <string_view>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

using ::testing::TestInfo;
using ::testing::TestSuite;
using ::testing::UnitTest;

// The GoogleTest filter that selects every test of the source file `name`; empty if there are none.
std::string FilterFor(std::string_view name) {
  const std::string ending = std::string("/").append(name);
  const UnitTest& unit_test = *UnitTest::GetInstance();
  std::string filter;
  for (int i = 0; i < unit_test.total_test_suite_count(); ++i) {
    const TestSuite& suite = *unit_test.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const TestInfo& test = *suite.GetTestInfo(j);
      if (!std::string_view(test.file()).ends_with(ending)) continue;
      if (!filter.empty()) filter += ':';
      filter += std::string(suite.name()) + "." + test.name();
    }
  }
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    constexpr std::string_view kSource = "--source=";
    const std::string_view argument = argv[i];
    if (!argument.starts_with(kSource)) {
      std::cerr << "argument: got " << argument << "; allowed: --source=FILE, flags of GoogleTest\n";
      return 2;
    }
    const std::string filter = FilterFor(argument.substr(kSource.size()));
    if (filter.empty()) {
      std::cerr << "--source: got " << argument.substr(kSource.size()) << ", which has no tests in this program\n";
      return 2;
    }
    if (GTEST_FLAG_GET(filter) == "*") GTEST_FLAG_SET(filter, filter);
  }
  const int status = RUN_ALL_TESTS();
  const UnitTest& unit_test = *UnitTest::GetInstance();
  if (status == 0 && unit_test.successful_test_count() == 0 && unit_test.skipped_test_count() > 0) return 77;
  return status;
}

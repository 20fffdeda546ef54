// GoogleTest's main, but that a run in which nothing was tested, because all was skipped, exits with 77: ctest shows it
// as skipped.
#include "gtest/gtest.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const int status = RUN_ALL_TESTS();
  const ::testing::UnitTest& unit_test = *::testing::UnitTest::GetInstance();
  if (status == 0 && unit_test.successful_test_count() == 0 && unit_test.skipped_test_count() > 0) return 77;
  return status;
}

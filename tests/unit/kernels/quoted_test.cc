#include "kernels/system/quoted.h"

#include <string>

#include "gtest/gtest.h"

namespace reduced {
namespace {

TEST(QuotedTest, IsOneLineOfPrintableText) {
  EXPECT_EQ(Quoted(""), "''");
  EXPECT_EQ(Quoted("alice"), "'alice'");
  EXPECT_EQ(Quoted("it's \\n"), "'it\\'s \\\\n'");
  EXPECT_EQ(Quoted(std::string("\n\t\0\x1b[2J\x7f", 8)), "'\\n\\t\\x00\\x1b[2J\\x7f'");
  EXPECT_EQ(Quoted("caf\xc3\xa9 \xff\x9b"), "'caf\\xc3\\xa9 \\xff\\x9b'");
}

TEST(QuotedTest, IsOfLimitedLength) {
  EXPECT_EQ(Quoted(std::string(64, 'x')), "'" + std::string(64, 'x') + "'");
  EXPECT_EQ(Quoted(std::string(65, 'x')), "'" + std::string(64, 'x') + "...' (65 bytes)");
  EXPECT_EQ(Quoted("abc", 2), "'ab...' (3 bytes)");
  EXPECT_LT(Quoted(std::string(100'000, '\1')).size(), 300U);
}

}  // namespace
}  // namespace reduced

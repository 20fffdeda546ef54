// The files that options name, through the shared library alone: what is wrong with one is an error, never an
// exception.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reduced/client.h"

namespace reduced::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class SecureTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(mkdtemp(folder_.data()), nullptr); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string File(const std::string& text) const {
    const std::string path = folder_ + "/file";
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  static absl::Status Create(ClientOptions options) {
    options.server = "127.0.0.1:1";  // where nothing is asked
    return Client::Create(std::move(options)).status();
  }

  std::string folder_ = ::testing::TempDir() + "/reduced_XXXXXX";
};

TEST_F(SecureTest, NamesWhatCannotBeRead) {
  struct Option {
    std::string name;
    ClientOptions (*of)(const std::string& path, const std::string& folder);
  };
  const std::vector<Option> options = {
      {"token_file", [](const auto& path, const auto&) { return ClientOptions{.token_file = path}; }},
      {"tls_ca", [](const auto& path, const auto&) { return ClientOptions{.tls_ca = path}; }},
      {"tls_cert",
       [](const auto& path, const auto&) {
         return ClientOptions{.tls_ca = std::string(kSystemCa), .tls_cert = path, .tls_key = path};
       }},
      {"tls_key",
       [](const auto& path, const auto& folder) {
         const std::string cert = folder + "/cert";
         std::ofstream(cert) << "-----BEGIN CERTIFICATE-----\n";
         return ClientOptions{.tls_ca = std::string(kSystemCa), .tls_cert = cert, .tls_key = path};
       }},
  };
  for (const Option& option : options) {
    const auto message = [&](const std::string& path) {
      const absl::Status status = Create(option.of(path, folder_));
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << option.name;
      return std::string(status.message());
    };
    const auto says = [&](const std::string& path, const std::string& why) {
      return HasSubstr(absl::StrCat(option.name, " \"", path, "\" ", why));
    };
    EXPECT_THAT(message(folder_), says(folder_, "can't be read: Is a directory"));
    EXPECT_THAT(message(folder_ + "/none"), says(folder_ + "/none", "can't be read: No such file or directory"));
    const std::string empty = File("");
    EXPECT_THAT(message(empty), AllOf(says(empty, ""), HasSubstr("has no ")));
    EXPECT_THAT(message("/dev/zero"), says("/dev/zero", "has more than"));
  }
}

TEST_F(SecureTest, ATokenFile) {
  const auto create = [this](const std::string& text) { return Create({.token_file = File(text)}); };
  EXPECT_TRUE(create("secret").ok());
  EXPECT_TRUE(create(" secret\r\n").ok());
  EXPECT_TRUE(create(std::string(4096, 'x')).ok());
  EXPECT_THAT(std::string(create("").message()), HasSubstr("is empty: it has no token"));
  for (const std::string& bad : {std::string("\n"), std::string("two words"), std::string(4097, 'x')}) {
    EXPECT_THAT(std::string(create(bad).message()), HasSubstr("has no token: 1 to 4096 printable")) << bad.size();
  }
}

}  // namespace
}  // namespace reduced::client

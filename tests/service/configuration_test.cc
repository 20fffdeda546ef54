// Flags from the command line, the environment and a file: who has its way, and what is refused.
#include "server/config/configuration.h"

#include <unistd.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/check_config.h"
#include "server/config/flags.h"
#include "tests/service/test_server.h"

namespace reduced::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ConfigurationTest : public ::testing::Test {
 protected:
  std::string File(const std::string& text) {
    std::ofstream(dir_ / "reduced.conf") << text;
    return dir_ / "reduced.conf";
  }

  // As main() does it, but for absl::ParseCommandLine.
  absl::StatusOr<std::vector<FlagValue>> Run(const std::vector<std::string>& arguments,
                                             std::vector<std::string> environment = {}) {
    for (const std::string& argument : arguments) {
      std::string why;
      const std::size_t equals = argument.find('=');
      EXPECT_TRUE(
          absl::FindCommandLineFlag(argument.substr(2, equals - 2))->ParseFrom(argument.substr(equals + 1), &why))
          << why;
    }
    std::vector<char*> pointers;
    for (std::string& variable : environment) pointers.push_back(variable.data());
    pointers.push_back(nullptr);
    return Configure(arguments, pointers.data());
  }

  // "VALUE from SOURCE" of a flag, or the error.
  std::string Of(const absl::StatusOr<std::vector<FlagValue>>& flags, const std::string& name) {
    if (!flags.ok()) return std::string(flags.status().message());
    for (const FlagValue& flag : *flags) {
      if (flag.name == name) return absl::StrCat(flag.value, " from ", flag.source);
    }
    return "none";
  }

  const TempDir dir_;
  const absl::FlagSaver saver_;
};

TEST_F(ConfigurationTest, CommandLineThenEnvironmentThenFileThenDefault) {
  const std::string file = File("# ours\n\nmax_ops = 1\nmax_regions=2  # as many\n  max_arrays =3\nlog_level = off\n");
  const auto flags = Run({absl::StrCat("--config_file=", file), "--max_ops=7"},
                         {"REDUCED_FLAG_MAX_REGIONS=6", "REDUCED_FLAG_MAX_OPS=5", "HOME=/", "REDUCED_SERVER=x:1",
                          "REDUCED_PORT_50051_TCP=tcp://10.0.0.1:50051", "REDUCED_TOKEN_FILE=/x", "REDUCED_TLS_CA=/x"});
  EXPECT_EQ(Of(flags, "max_ops"), "7 from --max_ops");
  EXPECT_EQ(Of(flags, "max_regions"), "6 from REDUCED_FLAG_MAX_REGIONS");
  EXPECT_EQ(Of(flags, "max_arrays"), absl::StrCat("3 from ", file, ":5"));
  EXPECT_EQ(Of(flags, "max_streams"), "64 from default");
  EXPECT_EQ(Of(flags, "config_file"), absl::StrCat(file, " from --config_file"));
  const absl::StatusOr<ServerOptions> options = OptionsFromFlags();
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->limits.max_ops, 7);
  EXPECT_EQ(options->regions.max_regions, 6);
  EXPECT_EQ(options->limits.max_arrays, 3);
  EXPECT_EQ(options->log_level, "off");
}

// Once: Abseil's own words for a number that is none quote it again, however long it is.
TEST_F(ConfigurationTest, RefusedValuesAreQuotedOnceWithWhatIsAllowed) {
  EXPECT_EQ(Of(Run({}, {"REDUCED_FLAG_MAX_OPS=1x"}), ""),
            "REDUCED_FLAG_MAX_OPS: --max_ops: got '1x'; allowed: a whole number of 32 bits");
  EXPECT_EQ(Of(Run({}, {"REDUCED_FLAG_CUDA=ja"}), ""), "REDUCED_FLAG_CUDA: --cuda: got 'ja'; allowed: true or false");
  EXPECT_EQ(Of(Run({}, {"REDUCED_FLAG_MAX_OPS=allowed: x\033"}), ""),
            "REDUCED_FLAG_MAX_OPS: --max_ops: got 'allowed: x\\x1b'; allowed: a whole number of 32 bits");
  EXPECT_EQ(Of(Run({}, {"REDUCED_FLAG_DRAIN_TIMEOUT=allowed: y"}), "").find("specified"), std::string::npos);
  EXPECT_LT(Of(Run({}, {absl::StrCat("REDUCED_FLAG_MAX_OPS=1", std::string(4000, 'x'))}), "").size(), 500);
}

TEST_F(ConfigurationTest, TheFileCanBeNamedByTheEnvironment) {
  const std::string file = File("cuda = false\nready_file =\nlisten = 127.0.0.1:0,unix:/tmp/x#y\ntoken_file =#none\n");
  const auto flags = Run({}, {absl::StrCat("REDUCED_FLAG_CONFIG_FILE=", file)});
  EXPECT_EQ(Of(flags, "cuda"), absl::StrCat("false from ", file, ":1"));
  EXPECT_EQ(Of(flags, "ready_file"), absl::StrCat(" from ", file, ":2"));
  EXPECT_EQ(Of(flags, "listen"), absl::StrCat("127.0.0.1:0,unix:/tmp/x#y from ", file, ":3"));
  EXPECT_EQ(Of(flags, "token_file"), absl::StrCat(" from ", file, ":4"));
}

TEST_F(ConfigurationTest, EveryFlagIsListedAndTheListIsAFile) {
  const auto flags = Run({"--max_ops=7"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->size() + 2, ServerFlags().size());  // but for check_config and print_config
  const std::string text = ConfigurationText(*flags);
  EXPECT_THAT(text, AllOf(HasSubstr("drain_timeout = 10s "), HasSubstr("# default\n"), HasSubstr("# --max_ops\n")));
  const auto again = Run({}, {absl::StrCat("REDUCED_FLAG_CONFIG_FILE=", File(text))});
  ASSERT_TRUE(again.ok()) << again.status();
  for (std::size_t i = 0; i < flags->size(); ++i) {
    if ((*flags)[i].name == "config_file") continue;
    EXPECT_EQ((*again)[i].value, (*flags)[i].value) << (*flags)[i].name;
  }
}

TEST_F(ConfigurationTest, BadFilesAreErrorsWithTheirLine) {
  for (const auto& [text, says] : std::vector<std::pair<std::string, std::string>>{
           {"max_ops = 1\nno_such = 2\n", ":2: unknown flag 'no_such'"},
           {"max_ops\n", ":1: got 'max_ops'; allowed: name = value"},
           {"\n\nmax_ops = many\n", ":3: --max_ops: got 'many'"},
           {"chunk_bytes = 1MB\n", "such as 64MiB"},
           {"drain_timeout = 30\n", ":1: --drain_timeout: got '30'; allowed: a time with its unit, such as 500ms, 30s"},
           {"max_ops = 1\nmax_ops = 2\n", ":2: max_ops is set a second time"},
           {"config_file = x\n", ":1: config_file is allowed on the command line only"},
           {"print_config = true\n", ":1: print_config is allowed on the command line only"},
           {"v = 1\n", ":1: unknown flag 'v'"},  // of a library
           {"= 1\n", ":1: unknown flag ''"}}) {
    EXPECT_THAT(Of(Run({absl::StrCat("--config_file=", File(text))}), ""), HasSubstr(says));
  }
  EXPECT_THAT(Of(Run({"--config_file=/no/such"}), ""), HasSubstr("cannot read /no/such: No such file"));
  EXPECT_THAT(Of(Run({"--config_file=/tmp"}), ""), HasSubstr("cannot read /tmp: Is a directory"));
  // Good or bad, whether or not it is overridden.
  EXPECT_THAT(Of(Run({absl::StrCat("--config_file=", File("max_ops = x\n")), "--max_ops=3"}), ""),
              HasSubstr(":1: --max_ops: got 'x'"));
}

TEST_F(ConfigurationTest, BadVariablesAreErrors) {
  for (const auto& [variable, says] : std::vector<std::pair<std::string, std::string>>{
           {"REDUCED_FLAG_NO_SUCH=1", "REDUCED_FLAG_NO_SUCH: unknown flag 'no_such'"},
           {"REDUCED_FLAG_max_ops=1", "unknown flag 'max_ops'"},
           {"REDUCED_FLAG_=1", "unknown flag ''"},
           {"REDUCED_FLAG_MAX_OPS=1x", "REDUCED_FLAG_MAX_OPS: --max_ops: got '1x'"},
           {"REDUCED_FLAG_CHECK_CONFIG=true", "is allowed on the command line only"},
           {"REDUCED_LISTEN=x", "REDUCED_LISTEN has no effect: the variable of --listen is REDUCED_FLAG_LISTEN"}}) {
    EXPECT_THAT(Of(Run({}, {variable}), ""), HasSubstr(says));
  }
  const std::string name(4000, 'X');
  EXPECT_LT(Of(Run({}, {absl::StrCat("REDUCED_FLAG_", name, "=1")}), "").size(), 500);
  EXPECT_LT(Of(Run({}, {absl::StrCat("REDUCED_FLAG_CONFIG_FILE=/", name)}), "").size(), 500);
}

TEST_F(ConfigurationTest, OtherWaysToReadFlagsAreRefused) {
  for (const std::string argument : {"--flagfile=x", "-flagfile", "--fromenv=listen", "--tryfromenv=listen"}) {
    EXPECT_THAT(std::string(CheckArguments({"--max_ops=1", argument}).message()), HasSubstr("is not supported"));
  }
  EXPECT_TRUE(CheckArguments({"--max_ops=1", "--", "--flagfile=x"}).ok());
}

TEST_F(ConfigurationTest, FilesThatAreNamedAreChecked) {
  ServerOptions options;
  EXPECT_TRUE(CheckFiles(options).ok());
  options.ready_file = dir_ / "ready";
  options.listen = {absl::StrCat("unix:", dir_ / "socket")};
  options.region_socket = dir_ / "regions";
  EXPECT_TRUE(CheckFiles(options).ok()) << CheckFiles(options);
  const auto message = [&options](auto change) {
    ServerOptions bad = options;
    change(&bad);
    return std::string(CheckFiles(bad).message());
  };
  EXPECT_THAT(message([this](ServerOptions* o) { o->security.token_file = dir_ / "none"; }),
              AllOf(HasSubstr("--token_file"), HasSubstr("No such file")));
  EXPECT_THAT(message([this](ServerOptions* o) { o->security.token_file = File("x"); }), HasSubstr(":1"));
  EXPECT_THAT(message([this](ServerOptions* o) { o->security.tls_cert = o->security.tls_key = dir_ / "none"; }),
              AllOf(HasSubstr("--tls_cert"), HasSubstr("No such file")));
  EXPECT_THAT(message([](ServerOptions* o) { o->listen = {"0.0.0.0:0"}; }), HasSubstr("--allow_plaintext"));
  EXPECT_THAT(message([](ServerOptions* o) { o->ready_file = "/no/such/ready"; }), HasSubstr("--ready_file"));
  EXPECT_THAT(message([](ServerOptions* o) { o->ready_file = "/tmp"; }), HasSubstr("is a directory, not a file"));
  EXPECT_THAT(message([this](ServerOptions* o) { o->ready_file = dir_ / std::string(300, 'a'); }),
              AllOf(HasSubstr("--ready_file"), HasSubstr("name too long")));
  EXPECT_THAT(message([](ServerOptions* o) { o->listen = {"unix:/no/such/socket"}; }), HasSubstr("No such file"));
  EXPECT_THAT(message([this](ServerOptions* o) { o->region_socket = dir_ / "reduced.conf"; }),
              HasSubstr("exists and is not a socket"));
  // Links that go round: as the file itself, which is replaced, and as its folder.
  const std::string round = dir_ / "round";
  ASSERT_EQ(symlink(round.c_str(), round.c_str()), 0);
  EXPECT_EQ(message([&](ServerOptions* o) { o->ready_file = round; }), "");
  EXPECT_THAT(message([&](ServerOptions* o) { o->ready_file = round + "/ready"; }),
              AllOf(HasSubstr("--ready_file"), HasSubstr("Too many levels of symbolic links")));
}

TEST(FlagsInInfoTest, AreReportedExceptSecrets) {
  ServerOptions options;
  options.flags = {{"max_ops", "7", "--max_ops"}, {"token_file", "/etc/tokens", "default"}};
  TestServer server(options);
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(server.client().Info(&info).ok());
  ASSERT_EQ(info.flags_size(), 2);
  EXPECT_EQ(info.flags(0).name(), "max_ops");
  EXPECT_EQ(info.flags(0).value(), "7");
  EXPECT_EQ(info.flags(0).source(), "--max_ops");
  EXPECT_EQ(info.flags(1).name(), "token_file");
  EXPECT_EQ(info.flags(1).value(), "***");
}

}  // namespace
}  // namespace reduced::server

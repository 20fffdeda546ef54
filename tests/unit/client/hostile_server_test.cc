// A server whose texts are meant for the terminal of whoever reads them: no output of reducectl passes them on as they
// are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/reducectl/commands/commands.h"
#include "reduced/client.h"
#include "tests/unit/client/fake_server.h"

namespace reduced::client {
namespace {

// Clears the screen, sets the title, C1's control sequence introducer, right to left, a line and an element of HTML.
const std::string& Hostile() {
  static const std::string text =
      absl::StrCat("<b>\x1b[2J\x1b]0;title\x07\r\n", "\xc2\x9b", "31m\x7f", "\xe2\x80\xae", "x");
  return text;
}

class HostileServerTest : public CallTest {
 protected:
  void SetUp() override {
    CallTest::SetUp();
    const auto op = [](const auto&, v1::ReduceResponse* answer) {
      answer->mutable_execution()->set_device(Hostile());
      answer->mutable_execution()->set_pipeline(Hostile());
      answer->mutable_execution()->set_reason(Hostile());
      return grpc::Status::OK;
    };
    service_.on_reduce = op;
    service_.on_list = [](const auto&, v1::ListArraysResponse* answer) {
      v1::PutArrayHeader header;
      header.mutable_array()->set_dtype(v1::DTYPE_F32);
      v1::ArrayInfo* const array = answer->add_arrays();
      array->set_device(Hostile());
      array->set_owner(Hostile());
      Complete(header, array);
      return grpc::Status::OK;
    };
    service_.spoil_info = [](v1::GetServerInfoResponse* info) {
      info->set_version(Hostile());
      info->set_no_cuda_reason(Hostile());
      info->set_region_socket(Hostile());
      v1::DeviceInfo* const device = info->mutable_devices(0);
      device->set_name(Hostile());
      device->set_model(Hostile());
      device->set_details(Hostile());
      info->mutable_ops(0)->set_name(Hostile());
      info->mutable_ops(0)->set_summary(Hostile());
      info->add_dtypes()->set_name(Hostile());
      v1::PipelineInfo* const pipeline = info->mutable_pipelines(0);
      pipeline->set_name(Hostile());
      pipeline->set_summary(Hostile());
      pipeline->set_origin(Hostile());
      v1::Flag* const flag = info->add_flags();
      flag->set_name(Hostile());
      flag->set_value(Hostile());
      flag->set_source(Hostile());
      info->add_left_out()->set_name(Hostile());
      info->mutable_left_out(0)->set_reason(Hostile());
    };
    service_.on_ladder = [](const v1::LadderRequest& request, std::vector<v1::LadderReply>* replies) {
      replies->resize(2);
      v1::LadderStart* const start = (*replies)[0].mutable_start();
      start->set_bytes(4 * request.count());
      start->set_steps(1);
      SetZero(DType::kI64, start->mutable_expected());
      v1::LadderStep* const step = (*replies)[1].mutable_step();
      step->set_pipeline(Hostile());
      step->set_engine(v1::ENGINE_CPU);
      step->set_device(Hostile());
      step->add_kernel_us(1);
      SetZero(DType::kI64, step->mutable_value());
      return grpc::Status::OK;
    };
    folder_ = ::testing::TempDir() + "/reduced_XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    std::ofstream(folder_ + "/data.bin", std::ios::binary) << std::string(12, '\0');
  }
  void TearDown() override {
    CallTest::TearDown();
    std::filesystem::remove_all(folder_);
  }

  // What a command prints, on both streams.
  std::string Output(const std::vector<std::string>& arguments) {
    std::vector<std::string> all = {"reducectl", "--server", address_};
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& each : all) pointers.push_back(each.data());
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    RunCommand(static_cast<int>(pointers.size()), pointers.data());
    std::cout << std::flush;
    std::cerr << std::flush;
    std::string out = ::testing::internal::GetCapturedStdout();
    return out + ::testing::internal::GetCapturedStderr();
  }

  static void ExpectHarmless(const std::string& text, const std::string& where) {
    for (const char* bad : {"\x1b", "\x07", "\r", "\x7f", "\xc2\x9b", "\xe2\x80\xae", "\n\\x9b", "\n\\u009b"}) {
      EXPECT_EQ(text.find(bad), std::string::npos) << where << ": " << ::testing::PrintToString(bad) << "\n" << text;
    }
  }

  std::string folder_;
};

TEST_F(HostileServerTest, EveryCommandPrintsTextAndNothingElse) {
  const std::string data = folder_ + "/data.bin";
  const std::string run = folder_ + "/run.json";
  std::ofstream(run) << Output({"--json", "ladder", "--dtype", "i32", "--n", "8", "--repeats", "1"});
  const std::vector<std::vector<std::string>> commands = {
      {"info"},
      {"ops"},
      {"pipelines"},
      {"doctor"},
      {"health"},
      {"reduce", data, "--dtype", "f32", "--op", "min"},
      {"reduce", "--array", "0123456789abcdef", "--op", "min"},
      {"arrays", "list"},
      {"ladder", "--dtype", "i32", "--n", "8", "--repeats", "1"},
      {"ladder", "--dtype", "i32", "--n", "8", "--repeats", "1", "--csv"},
      {"ladder", "--from", run},
      {"ladder", "--from", run, "--csv"},
      {"loadtest", "--via", "inline", "--op", "nan_count", "--count", "20", "--warmup", "0s", "--concurrency", "1",
       "--verify", "0"},
  };
  for (const std::vector<std::string>& command : commands) {
    for (const bool json : {false, true}) {
      std::vector<std::string> arguments = command;
      if (json) arguments.insert(arguments.begin(), "--json");
      const std::string text = Output(arguments);
      EXPECT_FALSE(text.empty()) << absl::StrJoin(arguments, " ");
      ExpectHarmless(text, absl::StrJoin(arguments, " "));
    }
  }
}

TEST_F(HostileServerTest, APlotHasNothingThatABrowserObeys) {
  const std::string svg = folder_ + "/plot.svg";
  Output({"ladder", "--dtype", "i32", "--n", "8", "--repeats", "1", "--svg", svg});
  std::ifstream file(svg, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  ASSERT_FALSE(text.empty());
  ExpectHarmless(text, svg);
  EXPECT_EQ(text.find("<b>"), std::string::npos);
}

TEST_F(HostileServerTest, SoAreTheErrorsOfCalls) {
  const std::string data = folder_ + "/data.bin";
  const grpc::Status refusal(grpc::StatusCode::INVALID_ARGUMENT, Hostile());
  service_.on_reduce = [&](const auto&, auto*) { return refusal; };
  service_.on_list = [&](const auto&, auto*) { return refusal; };
  service_.on_ladder = [&](const auto&, auto*) { return refusal; };
  service_.on_info = [&] { return refusal; };
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"info"},
           {"reduce", data, "--dtype", "f32"},
           {"reduce", data, "--dtype", "f32", "--via", "session"},
           {"arrays", "list"},
           {"ladder", "--dtype", "i32", "--n", "8"},
           {"loadtest", "--via", "inline", "--count", "20", "--warmup", "0s"},
           {"doctor"},
       }) {
    ExpectHarmless(Output(command), absl::StrJoin(command, " "));
  }
}

}  // namespace
}  // namespace reduced::client

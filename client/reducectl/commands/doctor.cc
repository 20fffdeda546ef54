// reducectl doctor.

#include "client/reducectl/doctor/doctor.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/reducectl/command_line/client.h"
#include "client/reducectl/command_line/command_line.h"
#include "client/reducectl/commands/commands.h"
#include "client/reducectl/output/health.h"
#include "client/reducectl/output/render.h"

namespace reduced::client {
namespace {

std::string NameOf(Level level) {
  constexpr const char* kNames[] = {"ok", "warn", "fail"};
  return kNames[static_cast<int>(level)];
}

ExitCode RunDoctor(const CommonOptions& common) {
  const std::unique_ptr<Client> client = MakeClient(common, kHealthTimeout);
  if (client == nullptr) return kUsage;
  const Facts facts{.gpu = GatherGpuStack(), .system = GatherSystem(), .server = GatherServer(common, *client)};
  const std::vector<Finding> findings = Examine(facts);
  std::vector<std::vector<std::string>> rows;
  for (const Finding& finding : findings) {
    if (common.json) {
      std::cout << Dump(Json{{"check", finding.check},
                             {"level", NameOf(finding.level)},
                             {"text", finding.text},
                             {"remedy", finding.remedy}})
                << "\n";
      continue;
    }
    rows.push_back({NameOf(finding.level), finding.check, finding.text});
    if (!finding.remedy.empty()) rows.push_back({"", "", absl::StrCat("-> ", finding.remedy)});
  }
  if (!common.json) std::cout << FormatTable(rows);
  const bool failed = std::any_of(findings.begin(), findings.end(),
                                  [](const Finding& finding) { return finding.level == Level::kFailure; });
  return failed ? kUnhealthy : kOk;
}

}  // namespace

void AddDoctor(CommandLine& line) {
  line.Add("doctor", "check this machine and the server, and print what to do about each problem", RunDoctor);
}

}  // namespace reduced::client

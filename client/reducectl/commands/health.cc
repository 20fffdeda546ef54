// reducectl health.

#include "client/reducectl/output/health.h"

#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/reducectl/command_line/client.h"
#include "client/reducectl/command_line/command_line.h"
#include "client/reducectl/commands/commands.h"
#include "client/reducectl/output/render.h"
#include "reduced/client.h"

namespace reduced::client {
namespace {

void Print(const CommonOptions& common, Health health) {
  if (common.json) {
    std::cout << Dump(Json{{"server", common.server}, {"health", TextOf(health)}}) << std::endl;
  } else {
    std::cout << TextOf(health) << std::endl;  // flushed: a program may be waiting for it
  }
}

ExitCode CodeOf(Health health) { return health == Health::kServing ? kOk : kUnhealthy; }

ExitCode Run(const CommonOptions& common, bool watch) {
  const std::unique_ptr<Client> client = MakeClient(common, kHealthTimeout);
  if (client == nullptr) return kUsage;
  if (!watch) {
    const absl::StatusOr<Health> health = client->CheckHealth();
    if (!health.ok()) return ReportCallError("health", health.status());
    Print(common, *health);
    return CodeOf(*health);
  }
  std::optional<Health> last;
  const absl::Status status = client->WatchHealth(
      [&](Health health) {
        Print(common, health);
        last = health;
        return std::cout.good();
      },
      common.timeout.value_or(absl::InfiniteDuration()));
  if (status.ok()) return kOutput;
  if (absl::IsDeadlineExceeded(status) && last.has_value()) return CodeOf(*last);
  return ReportCallError("health", status);
}

}  // namespace

void AddHealth(CommandLine& line) {
  const auto watch = std::make_shared<bool>(false);
  line.Add("health", "print the health of the server; the exit code has it, too",
           [watch](const CommonOptions& common) { return Run(common, *watch); })
      ->add_flag("--watch", *watch, "print each change, until the server ends the call or --timeout has passed");
}

}  // namespace reduced::client

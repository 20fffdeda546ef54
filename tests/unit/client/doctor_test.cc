// reducectl doctor: what facts mean. And that gathering them works here, whatever they are.
#include "client/reducectl/doctor/doctor.h"

#include <algorithm>
#include <cerrno>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace reduced::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

// "LEVEL CHECK: TEXT -> REMEDY", a line each, of those that aren't OK; or of all.
std::string Lines(const std::vector<Finding>& findings, bool all = false) {
  std::string lines;
  for (const Finding& finding : findings) {
    if (finding.level == Level::kOk && !all) continue;
    const char* const level = finding.level == Level::kOk ? "ok" : finding.level == Level::kWarning ? "warn" : "fail";
    absl::StrAppend(&lines, level, " ", finding.check, ": ", finding.text, " -> ", finding.remedy, "\n");
  }
  return lines;
}

GpuStack GoodGpu() {
  return {.on_bus = true,
          .kernel_module = "580.95.05",
          .device_files = true,
          .device_files_usable = true,
          .driver_cuda_version = 13000,
          .devices = 1,
          .gpus = {{"NVIDIA H200", 141 * kGiB, 140 * kGiB, 0, false}}};
}

SystemFacts GoodSystem() {
  return {.memory_bytes = 32 * kGiB,
          .available_bytes = 30 * kGiB,
          .shm_bytes = 16 * kGiB,
          .shm_free_bytes = 16 * kGiB,
          .files_limit = 1024,
          .files_hard_limit = 1 << 20,
          .clock_synchronized = true,
          .clock_known = true,
          .year = 2026,
          .clock_source = "tsc"};
}

ServerFacts GoodServer() {
  ServerFacts server{
      .address = "unix:/run/reduced/socket",
      .named = true,
      .version = "1.2.3",
      .health = Health::kServing,
      .socket = SocketFacts{.path = "/run/reduced/socket", .same_ipc_namespace = true, .same_pid_namespace = true},
      .region_socket =
          SocketFacts{.path = "/run/reduced/socket.regions", .same_ipc_namespace = true, .same_pid_namespace = true}};
  server.info.version = "1.2.3";
  server.info.region_socket = "/run/reduced/socket.regions";
  server.info.devices = {{.name = "cpu", .engine = "cpu"}, {.name = "cuda:0", .engine = "cuda"}};
  return server;
}

TEST(DoctorTest, AGoodMachineHasNothingToDo) {
  const std::vector<Finding> findings = Examine({GoodGpu(), GoodSystem(), GoodServer()});
  EXPECT_THAT(Lines(findings), IsEmpty());
  for (const Finding& finding : findings) EXPECT_THAT(finding.remedy, IsEmpty()) << finding.check;
  const std::string all = Lines(findings, true);
  for (const std::string part : {"ok driver: version 580.95.05, for CUDA 13.0, 1 device", "ok gpu 0: NVIDIA H200: 140",
                                 "ok memory: ", "ok shm: ", "ok limits: open files: 1024, at most 1048576",
                                 "ok limits: locked memory: unlimited", "ok clock: synchronized, source tsc",
                                 "ok socket: ", "ok server: unix:/run/reduced/socket, version 1.2.3",
                                 "ok health: SERVING", "ok engines: cpu, cuda:0", "ok regions: ", "ok namespaces: "}) {
    EXPECT_THAT(all, HasSubstr(part));
  }
}

TEST(DoctorTest, WithoutAGpuThatIsSaidAndFine) {
  const GpuStack none{.no_library = "libcuda.so.1: cannot open shared object file", .no_nvml = "likewise"};
  const std::vector<Finding> findings = CheckGpuStack(none, {});
  EXPECT_THAT(Lines(findings), IsEmpty());
  EXPECT_THAT(Lines(findings, true), HasSubstr("no NVIDIA GPU and no driver found"));
}

TEST(DoctorTest, GpusThatCantBeUsedHaveARemedy) {
  using Change = std::function<void(GpuStack*)>;
  for (const auto& [change, says] : std::vector<std::pair<Change, std::vector<std::string>>>{
           {[](GpuStack* gpu) { *gpu = {.on_bus = true, .no_library = "none"}; },
            {"fail driver: there is an NVIDIA GPU", "its driver isn't loaded", "modprobe nvidia"}},
           {[](GpuStack* gpu) { gpu->no_library = "not found"; },
            {"fail driver: libcuda.so.1 can't be loaded: not found", "libcuda1"}},
           {[](GpuStack* gpu) { gpu->device_files_usable = false; }, {"fail driver: /dev/nvidiactl", "access"}},
           {[](GpuStack* gpu) { gpu->init_error = 100; }, {"CUDA_ERROR_NO_DEVICE 100", "--gpus all"}},
           {[](GpuStack* gpu) { gpu->init_error = 802; }, {"NOT_READY", "nvidia-fabricmanager"}},
           {[](GpuStack* gpu) { gpu->init_error = 4711; }, {"CUDA can't be used: error 4711", "dmesg"}},
           {[](GpuStack* gpu) { gpu->driver_cuda_version = 11080; }, {"warn driver", "CUDA 11.8", "CUDA 12"}},
           {[](GpuStack* gpu) { gpu->gpus[0].uncorrected_errors = 3; }, {"fail gpu 0", "3 errors", "--gpu-reset"}},
           {[](GpuStack* gpu) { gpu->gpus[0].exclusive = true; }, {"warn gpu 0", "one process", "-c DEFAULT"}},
           {[](GpuStack* gpu) { gpu->gpus[0].free_bytes = kGiB; }, {"warn gpu 0", "1.00 GiB of 141", "nvidia-smi"}},
           {[](GpuStack* gpu) {
              gpu->gpus.clear();
              gpu->no_nvml = "not found";
            },
            {"warn nvml: NVML can't be used: not found", "libnvidia-ml1"}}}) {
    GpuStack gpu = GoodGpu();
    change(&gpu);
    const std::string lines = Lines(CheckGpuStack(gpu, {}));
    for (const std::string& part : says) EXPECT_THAT(lines, HasSubstr(part));
    EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 1) << lines;
  }
  // What the server has taken is its own.
  GpuStack full = GoodGpu();
  full.gpus[0].free_bytes = 0;
  EXPECT_THAT(Lines(CheckGpuStack(full, GoodServer())), IsEmpty());
}

TEST(DoctorTest, WhatTheSystemLacks) {
  using Change = std::function<void(SystemFacts*)>;
  for (const auto& [change, says] : std::vector<std::pair<Change, std::vector<std::string>>>{
           {[](SystemFacts* system) { system->available_bytes = 1 << 20; }, {"warn memory", "--memory_quota_bytes"}},
           {[](SystemFacts* system) { system->cgroup_limit_bytes = 64 << 20; }, {"warn memory", "64.0 MiB allowed"}},
           {[](SystemFacts* system) { system->memory_bytes.reset(); }, {"warn memory", "/proc"}},
           {[](SystemFacts* system) { system->shm_bytes = 64 << 20; }, {"warn shm", "--shm-size"}},
           {[](SystemFacts* system) { system->shm_bytes.reset(); }, {"warn shm", "tmpfs"}},
           {[](SystemFacts* system) { system->files_hard_limit = 1024; }, {"warn limits", "at most 1024", "nofile"}},
           {[](SystemFacts* system) { system->clock_synchronized = false; }, {"warn clock", "chrony"}},
           {[](SystemFacts* system) { system->clock_source = "hpet"; }, {"warn clock", "hpet", "clocksource=tsc"}},
           {[](SystemFacts* system) { system->year = 1970; }, {"fail clock", "1970"}}}) {
    SystemFacts system = GoodSystem();
    change(&system);
    const std::string lines = Lines(CheckSystem(system));
    for (const std::string& part : says) EXPECT_THAT(lines, HasSubstr(part));
    EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 1) << lines;
  }
}

TEST(DoctorTest, WhatTheServerLacks) {
  using Change = std::function<void(ServerFacts*)>;
  for (const auto& [change, says] : std::vector<std::pair<Change, std::vector<std::string>>>{
           {[](ServerFacts* server) { server->reachable = absl::UnavailableError("nobody"); },
            {"fail server: nobody", "--server"}},
           {[](ServerFacts* server) {
              server->reachable = absl::UnavailableError("nobody");
              server->named = false;
            },
            {"fail server: nobody, the default address", "REDUCED_SERVER"}},
           {[](ServerFacts* server) { server->version = "1.3.0"; },
            {"warn server", "the version of reducectl is 1.3.0"}},
           {[](ServerFacts* server) {
              server->info.left_out = {{"cuda:1", "no memory left"}};
            },
            {"warn engines: cuda:1 is left out: no memory left", "--cuda_devices"}},
           {[](ServerFacts* server) { server->health = Health::kNotServing; }, {"fail health: NOT_SERVING", "log"}},
           {[](ServerFacts* server) {
              server->health.reset();
              server->no_health = "not allowed";
            },
            {"fail health: not allowed"}},
           {[](ServerFacts* server) {
              server->region_socket->problem = "Permission denied";
              server->region_socket->error = EACCES;
            },
            {"fail regions", "Permission denied", "write access"}},
           {[](ServerFacts* server) {
              server->info.region_socket.clear();
              server->region_socket.reset();
            },
            {"warn regions", "--region_socket"}},
           {[](ServerFacts* server) { server->region_socket->same_ipc_namespace = false; },
            {"warn namespaces", "IPC differ", "--ipc=host"}}}) {
    ServerFacts server = GoodServer();
    change(&server);
    const std::string lines = Lines(CheckServer(server));
    for (const std::string& part : says) EXPECT_THAT(lines, HasSubstr(part));
    EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 1) << lines;
  }
  ServerFacts denied = GoodServer();
  denied.socket->problem = "Permission denied";
  denied.socket->error = EACCES;
  denied.reachable = absl::UnavailableError("permission denied");
  EXPECT_THAT(Lines(CheckServer(denied)),
              AllOf(HasSubstr("fail socket: /run/reduced/socket: Permission denied"), HasSubstr("fail server")));
  // Without a GPU there is nothing that the namespaces would keep out.
  ServerFacts without = GoodServer();
  without.info.devices.pop_back();
  without.region_socket->same_ipc_namespace = false;
  EXPECT_THAT(Lines(CheckServer(without)), IsEmpty());
}

TEST(DoctorTest, FactsOfThisMachine) {
  const SystemFacts system = GatherSystem();
  EXPECT_GT(system.memory_bytes.value_or(0), kGiB / 16);
  EXPECT_GT(system.available_bytes.value_or(0), 0);
  EXPECT_LE(*system.available_bytes, *system.memory_bytes);
  EXPECT_GT(system.year, 2024);
  EXPECT_THAT(Lines(CheckSystem(system), true), AllOf(HasSubstr(" memory: "), HasSubstr(" clock: ")));
  const GpuStack gpu = GatherGpuStack();
  const std::string lines = Lines(CheckGpuStack(gpu, {}), true);
  EXPECT_THAT(lines, HasSubstr(" driver: "));
  EXPECT_EQ(gpu.gpus.empty(), !absl::StrContains(lines, "gpu 0"));
  // Nobody is there: said, and nothing more.
  const CommonOptions common{.server = "unix:/no/such/socket", .server_given = true, .timeout = absl::Seconds(2)};
  const auto client = Client::Create({.server = common.server});
  ASSERT_TRUE(client.ok());
  const ServerFacts server = GatherServer(common, **client);
  EXPECT_EQ(server.socket->error, ENOENT);
  EXPECT_THAT(Lines(CheckServer(server)), AllOf(HasSubstr("fail socket: /no/such/socket: No such file"),
                                                HasSubstr("fail server: no reduced server answers")));
}

}  // namespace
}  // namespace reduced::client

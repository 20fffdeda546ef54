#include "client/reducectl/loadtest/loadtest.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <csignal>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/reducectl/input/input.h"
#include "client/reducectl/loadtest/device.h"
#include "client/reducectl/loadtest/report.h"
#include "client/reducectl/loadtest/run.h"
#include "client/reducectl/loadtest/server.h"
#include "client/reducectl/loadtest/work.h"
#include "client/reducectl/output/printable.h"
#include "kernels/system/status_macros.h"
#include "reduced/client.h"

namespace reduced::client {
namespace {

// The first Ctrl-C ends the run early, with what it has measured. The second one ends the process.
std::atomic<bool> interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);

class InterruptHandler {
 public:
  InterruptHandler() {
    interrupted = false;
    struct sigaction action {};
    action.sa_handler = [](int) { interrupted = true; };
    action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
    sigaction(SIGINT, &action, &old_int_);
    sigaction(SIGTERM, &action, &old_term_);
  }
  ~InterruptHandler() {
    sigaction(SIGINT, &old_int_, nullptr);
    sigaction(SIGTERM, &old_term_, nullptr);
  }
  InterruptHandler(const InterruptHandler&) = delete;
  InterruptHandler& operator=(const InterruptHandler&) = delete;

 private:
  struct sigaction old_int_ {};
  struct sigaction old_term_ {};
};

// The kinds of requests: of the profile, or of the options.
absl::StatusOr<std::vector<Kind>> KindsOf(const LoadtestArguments& arguments) {
  const std::vector<std::vector<std::string>> op_sets =
      arguments.op_sets.empty() ? std::vector<std::vector<std::string>>{arguments.kind.ops} : arguments.op_sets;
  const std::vector<std::string> dtypes =
      arguments.dtypes.empty() ? std::vector<std::string>{arguments.kind.dtype} : arguments.dtypes;
  std::vector<Kind> kinds;
  for (const std::vector<std::string>& ops : op_sets) {
    for (const std::string& dtype : dtypes) {
      kinds.push_back(arguments.kind);
      kinds.back().ops = ops;
      kinds.back().dtype = dtype;
    }
  }
  if (arguments.profile.empty()) return kinds;
  ASSIGN_OR_RETURN(const Memory text, ReadSource(arguments.profile));
  return ParseProfile(std::string(text.bytes()), kinds.front());
}

class Loadtest {
 public:
  Loadtest(CommonOptions common, const LoadtestArguments& arguments)
      : common_(std::move(common)), run_{.arguments = arguments} {
    if (common_.json && run_.arguments.json.empty()) run_.arguments.json.push_back('-');
    run_.date = absl::FormatTime(absl::RFC3339_sec, absl::Now(), absl::UTCTimeZone());
    std::array<char, 256> host{};
    if (gethostname(host.data(), host.size() - 1) == 0) run_.host = host.data();
    run_.command = common_.command_line;
  }

  ExitCode Run() {
    absl::StatusOr<std::vector<Kind>> kinds = KindsOf(run_.arguments);
    if (!kinds.ok()) return ReportError(run_.arguments.profile, kinds.status().message(), kData);
    run_.kinds = *std::move(kinds);
    if (const std::string error = Contradiction(); !error.empty()) return ReportError("loadtest", error, kUsage);
    if (const ExitCode code = FindAddress(); code != kOk) return code;
    const ExitCode code = Measure();
    work_.reset();  // must be destroyed before the server
    client_.reset();
    return code;
  }

 private:
  LoadtestArguments& arguments() { return run_.arguments; }

  int MaxConcurrency() const {
    const LoadtestArguments& arguments = run_.arguments;
    const bool open = !arguments.rates.empty() || arguments.find_max;
    if (arguments.concurrency.empty()) return static_cast<int>(open ? kOpenConcurrency : kConcurrency);
    return static_cast<int>(*std::max_element(arguments.concurrency.begin(), arguments.concurrency.end()));
  }

  // An error message if options contradict each other; else empty.
  std::string Contradiction() {
    const bool puts = std::any_of(run_.kinds.begin(), run_.kinds.end(),
                                  [](const Kind& kind) { return ViaOf(kind.via).elements == "resident"; });
    const int threads = arguments().threads > 0 ? arguments().threads : 64;
    if (puts && arguments().include_fill && threads < MaxConcurrency()) {
      return absl::StrCat("--threads: got ", threads,
                          " with --via resident and --include-fill; allowed: ", MaxConcurrency(),
                          " or more, one for each request in flight");
    }
    const auto on_device = std::find_if(run_.kinds.begin(), run_.kinds.end(),
                                        [](const Kind& kind) { return ViaOf(kind.via).elements == "device_region"; });
    const absl::Status available = on_device != run_.kinds.end() ? DeviceBuffer::Available() : absl::OkStatus();
    if (!available.ok()) return absl::StrCat("--via ", on_device->via, ": ", available.message());
    if (common_.server_given && !arguments().server_flags.empty()) {
      return "--server-flag: got it with --server or REDUCED_SERVER; allowed: for a server that loadtest starts";
    }
    return "";
  }

  ExitCode FindAddress() {
    if (common_.server_given) {
      run_.address = common_.server;
      return kOk;
    }
    const absl::StatusOr<std::string> program = FindServer();
    if (!program.ok()) return ReportError("loadtest", program.status().message(), kConnection);
    absl::StatusOr<std::unique_ptr<SpawnedServer>> server = SpawnedServer::Start(*program, arguments().server_flags);
    if (!server.ok()) return ReportError("loadtest", server.status().message(), kConnection);
    server_ = *std::move(server);
    run_.spawned = true;
    run_.address = server_->address();
    return kOk;
  }

  ExitCode Measure() {
    const InterruptHandler handler;
    common_.server = run_.address;
    client_ = MakeClient(common_);
    if (client_ == nullptr) return kUsage;
    absl::StatusOr<ServerInfo> info = client_->GetServerInfo();
    if (!info.ok()) return ReportCallError("loadtest", info.status());
    run_.before = *std::move(info);
    if (const ExitCode code = Prepare(); code != kOk) return code;
    if (!Quiet()) std::cout << HeadText(run_) << std::flush;
    const absl::Status status = arguments().find_max ? Search() : Sweep();
    ShowProgress("");
    if (!status.ok()) return ReportCallError("loadtest", status);
    info = client_->GetServerInfo();
    if (!info.ok()) return ReportCallError("loadtest", info.status());
    run_.after = *std::move(info);
    if (!Quiet()) std::cout << SummaryText(run_) << std::flush;
    const ExitCode written = WriteFiles();
    const ExitCode verdict = Verdict();
    return verdict == kOk ? written : verdict;
  }

  ExitCode Prepare() {
    absl::StatusOr<std::unique_ptr<Work>> work = Work::Prepare(run_.kinds, {.seed = arguments().seed,
                                                                            .verify = arguments().verify > 0,
                                                                            .include_fill = arguments().include_fill,
                                                                            .connections = arguments().connections,
                                                                            .client = ClientOptionsOf(common_)});
    if (!work.ok()) return ReportCallError("loadtest", work.status());
    work_ = *std::move(work);
    const absl::Status status = work_->Probe();
    if (status.ok()) return kOk;
    if (!absl::IsDataLoss(status)) return ReportCallError("loadtest", status);
    return ReportError("loadtest", absl::StrCat("wrong result: ", status.message()), kWrong);
  }

  absl::Status RunOne(int concurrency, double rate) {
    StepOptions options;
    options.concurrency = concurrency;
    options.rate = rate;
    options.arrivals = arguments().arrivals;
    options.warmup = arguments().warmup;
    options.duration = arguments().duration.value_or(arguments().find_max ? kSearchDuration : kDuration);
    options.count = arguments().count;
    options.threads = arguments().threads;
    options.verify = arguments().verify;
    options.seed = arguments().seed;
    options.interrupt = &interrupted;
    const std::string name = rate > 0 ? absl::StrFormat("rate %g", rate) : absl::StrCat("concurrency ", concurrency);
    if (isatty(STDERR_FILENO) == 1) {
      options.on_progress = [&](const StepProgress& progress) {
        ShowProgress(progress.elapsed < absl::ZeroDuration()
                         ? absl::StrCat(name, ": warming up")
                         : absl::StrFormat("%s: %.0f requests/s, p50 %s, p99 %s, %d errors, %d s", name, progress.per_s,
                                           FormatMicros(progress.p50_us), FormatMicros(progress.p99_us),
                                           progress.failed, absl::ToInt64Seconds(progress.elapsed)));
      };
    }
    ASSIGN_OR_RETURN(StepResult result, RunStep(*work_, options));
    run_.steps.push_back(std::move(result));
    ShowProgress("");
    if (!Quiet()) std::cout << StepText(run_, run_.steps.back()) << std::flush;
    return absl::OkStatus();
  }

  // Measures one load after the other. An interrupt prevents further ones, but not the first.
  absl::Status Sweep() {
    const bool open = !arguments().rates.empty();
    std::vector<double> loads = open ? arguments().rates : arguments().concurrency;
    if (loads.empty()) loads.push_back(MaxConcurrency());
    for (const double load : loads) {
      if (interrupted && !run_.steps.empty()) break;
      RETURN_IF_ERROR(open ? RunOne(MaxConcurrency(), load) : RunOne(static_cast<int>(load), 0));
    }
    return absl::OkStatus();
  }

  enum class Outcome { kMet, kMissed, kUnclear };

  // What a step says about its rate. An unstable one says nothing: a rate that was met might not be, and a pause of the
  // machine makes any rate miss an objective. Only if requests failed or the rate was not held it was too high.
  Outcome OutcomeOf(const StepResult& step) const {
    if (step.tally.failed() > 0 || step.tally.wrong > 0 || !step.RateHeld()) return Outcome::kMissed;
    if (step.Empty() || step.Spread() > run_.arguments.max_spread) return Outcome::kUnclear;
    return Missed(step, run_.arguments.objectives).empty() ? Outcome::kMet : Outcome::kMissed;
  }

  // Measures a rate, again if that was unclear.
  absl::StatusOr<Outcome> Try(double rate) {
    constexpr int kMostTries = 3;
    for (int i = 0; i < kMostTries; ++i) {
      RETURN_IF_ERROR(RunOne(MaxConcurrency(), rate));
      const Outcome outcome = OutcomeOf(run_.steps.back());
      if (outcome != Outcome::kUnclear || interrupted) return outcome;
    }
    return Outcome::kUnclear;
  }

  // Bisects between a rate that meets the objectives and one that doesn't, until they are 5% apart. Without --rate,
  // starts at half the rate of a closed loop and doubles or halves it until there are both.
  absl::Status Search() {
    constexpr double kClose = 1.05;
    constexpr int kMostSteps = 24;
    double good = 0, bad = 0;  // 0: none yet
    double low = 0, high = 0, next = 0;
    if (!arguments().rates.empty()) {
      low = *std::min_element(arguments().rates.begin(), arguments().rates.end());
      high = *std::max_element(arguments().rates.begin(), arguments().rates.end());
      next = low;
    } else {
      RETURN_IF_ERROR(RunOne(std::min(MaxConcurrency(), 16), 0));
      const double capacity = run_.steps.back().PerSecond();
      if (run_.steps.back().Empty()) {
        run_.no_verdict = absl::StrCat("no request was measured at ", run_.steps.back().Name());
        return absl::OkStatus();
      }
      low = capacity / 1024;
      high = capacity * 4;
      next = capacity / 2;
    }
    for (int i = 0; i < kMostSteps && next > 0 && !interrupted; ++i) {
      ASSIGN_OR_RETURN(const Outcome outcome, Try(next));
      if (outcome == Outcome::kUnclear) {
        run_.no_verdict =
            run_.steps.back().Empty()
                ? absl::StrFormat("no request was measured at %s", run_.steps.back().Name())
                : absl::StrCat(run_.steps.back().Name(), " was not stable; see --duration and --stability");
        return absl::OkStatus();
      }
      const bool met = outcome == Outcome::kMet;
      (met ? good : bad) = next;
      run_.met_rate = good;
      if (met && next >= high) break;
      if (!met && next <= low) break;
      if (good > 0 && bad > 0) {
        next = bad / good <= kClose ? 0 : std::sqrt(good * bad);
      } else {
        next = met ? std::min(next * 2, high) : std::max(next / 2, low);
      }
    }
    if (interrupted) {
      run_.no_verdict = "the search was interrupted";
    } else {
      run_.max_rate = good;
    }
    return absl::OkStatus();
  }

  bool Quiet() { return arguments().json == "-" || arguments().csv == "-"; }

  // Overwrites the last line of standard error, if that is a terminal.
  static void ShowProgress(absl::string_view text) {
    static const bool terminal = isatty(STDERR_FILENO) == 1;
    if (terminal) std::cerr << "\r\033[K" << Printable(text) << std::flush;
  }

  ExitCode WriteFiles() {
    ExitCode code = kOk;
    const auto write = [&](const std::string& path, auto make) {
      if (path.empty()) return;
      if (path == "-") {
        std::cout << make() << std::flush;
        return;
      }
      if (WriteFile(path, make()) != kOk) code = kOutput;
    };
    write(arguments().json, [&] { return Dump(ToJson(run_)) + "\n"; });
    write(arguments().csv, [&] { return ToCsv(run_); });
    write(arguments().html, [&] { return ToHtml(run_); });
    write(arguments().histogram, [&] { return ToHistogramLog(run_); });
    return code;
  }

  ExitCode Verdict() const {
    bool wrong = false, failed = false, missed = false, unstable = false, empty = false;
    for (const StepResult& step : run_.steps) {
      wrong = wrong || step.tally.wrong > 0;
      failed = failed || step.tally.failed() > 0;
      empty = empty || step.Empty();
      missed = missed || !Missed(step, run_.arguments.objectives).empty();
      unstable = unstable || step.Spread() > run_.arguments.max_spread;
    }
    if (wrong) return kWrong;
    if (interrupted) return kInterrupted;
    // A search exceeds the objectives on purpose.
    if (run_.max_rate.has_value()) return *run_.max_rate > 0 ? kOk : kMissed;
    if (!run_.no_verdict.empty()) return empty ? kServer : kUnstable;
    if (failed || empty) return kServer;
    if (missed) return kMissed;
    return unstable ? kUnstable : kOk;
  }

  CommonOptions common_;
  LoadtestRun run_;
  std::unique_ptr<SpawnedServer> server_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Work> work_;
};

}  // namespace

ExitCode RunLoadtest(const CommonOptions& common, const LoadtestArguments& arguments) {
  return Loadtest(common, arguments).Run();
}

ExitCode CompareLoadtests(const CommonOptions& common, const std::string& first, const std::string& second) {
  std::array<std::vector<std::string>, 2> sides;
  for (std::size_t i = 0; i < sides.size(); ++i) {
    for (const absl::string_view path : absl::StrSplit(i == 0 ? first : second, ',')) {
      const absl::StatusOr<Memory> text =
          ReadSource(std::string(path), common.timeout.value_or(absl::InfiniteDuration()));
      if (!text.ok()) return ReportError(path, text.status().message(), kData);
      sides[i].emplace_back(text->bytes());
    }
  }
  const absl::StatusOr<Comparison> comparison = Compare(sides[0], sides[1]);
  if (!comparison.ok()) return ReportError("loadtest compare", comparison.status().message(), kData);
  std::cout << comparison->text;
  return comparison->worse ? kMissed : kOk;
}

}  // namespace reduced::client

#include "kernels/system/failpoint.h"

#include <algorithm>
#include <cstdlib>
#include <random>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"

namespace reduced::failpoint {
namespace {

struct State {
  absl::Mutex mutex;
  Plan plan ABSL_GUARDED_BY(mutex);
  std::mt19937_64 random ABSL_GUARDED_BY(mutex);
  std::int64_t passes ABSL_GUARDED_BY(mutex) = 0;  // since it was armed
  std::int64_t left ABSL_GUARDED_BY(mutex) = 0;    // times that it may still fire
  std::int64_t fired_in_all ABSL_GUARDED_BY(mutex) = 0;
};

State& StateOf(std::size_t index) {
  static auto* const states = new std::array<State, kNames.size()>;
  return (*states)[index];
}

// kNames.size(): there is none.
std::size_t Find(std::string_view name) {
  return static_cast<std::size_t>(std::find(kNames.begin(), kNames.end(), name) - kNames.begin());
}

std::size_t MustFind(std::string_view name) {
  const std::size_t index = Find(name);
  if (index == kNames.size()) std::abort();
  return index;
}

void Arm(std::size_t index, const Plan& plan) {
  State& state = StateOf(index);
  const absl::MutexLock lock(&state.mutex);
  if (armed[index].load()) std::abort();
  state.plan = plan;
  state.random.seed(plan.seed + index);  // those of one seed differ
  state.passes = 0;
  state.left = plan.times;
  armed[index].store(true);
}

}  // namespace

bool Pass(std::size_t index) {
  State& state = StateOf(index);
  const absl::MutexLock lock(&state.mutex);
  if (!armed[index].load() || state.passes++ < state.plan.after || state.left == 0) return false;
  if (std::uniform_real_distribution<double>(0, 1)(state.random) >= state.plan.probability) return false;
  --state.left;
  ++state.fired_in_all;
  return true;
}

Armed::Armed(std::string_view name, const Plan& plan) : index_(MustFind(name)) { Arm(index_, plan); }

Armed::~Armed() { armed[index_].store(false); }

std::int64_t Fired(std::string_view name) {
  State& state = StateOf(MustFind(name));
  const absl::MutexLock lock(&state.mutex);
  return state.fired_in_all;
}

absl::Status ArmAll(std::string_view text) {
  const auto wrong = [](absl::string_view what, absl::string_view got, absl::string_view allowed) {
    return absl::InvalidArgumentError(
        absl::StrCat("REDUCED_FAILPOINTS: ", what, ": got '", absl::CHexEscape(got), "'; allowed: ", allowed));
  };
  const std::vector<std::string> parts = absl::StrSplit(absl::string_view(text.data(), text.size()), ';');
  Plan plan;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::vector<std::string> words = absl::StrSplit(parts[i], '=');
    if (words.size() != 2 || words[0] != "seed" || !absl::SimpleAtoi(words[1], &plan.seed)) {
      return wrong("after ;", parts[i], "seed=NUMBER");
    }
  }
  std::vector<std::pair<std::size_t, double>> wanted;
  for (const auto& each : absl::StrSplit(parts[0], ',', absl::SkipEmpty())) {
    const std::vector<std::string> words = absl::StrSplit(each, '=');
    double probability = -1;
    if (words.size() != 2 || !absl::SimpleAtod(words[1], &probability) || !(probability >= 0 && probability <= 1)) {
      return wrong("failpoint", each, "NAME=PROBABILITY, from 0 to 1");
    }
    const std::size_t index = Find(words[0]);
    if (index == kNames.size()) {
      const auto append = [](std::string* out, std::string_view name) { out->append(name); };
      return wrong("name", words[0], absl::StrJoin(kNames, ", ", append));
    }
    wanted.emplace_back(index, probability);
  }
  for (const auto& [index, probability] : wanted) {
    plan.probability = probability;
    if (!armed[index].load()) Arm(index, plan);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ArmFromEnvironment() {
  const char* const text = std::getenv("REDUCED_FAILPOINTS");
  if (text == nullptr) return std::string();
  const absl::Status status = ArmAll(text);
  if (!status.ok()) return status;
  return std::string(text);
}

}  // namespace reduced::failpoint

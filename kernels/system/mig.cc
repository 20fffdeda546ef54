#include "kernels/system/mig.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "kernels/system/quoted.h"

namespace reduced {
namespace {

constexpr char kRemedy[] =
    "one instance, since CUDA shows a process no more: start a server for each, with CUDA_VISIBLE_DEVICES=MIG-UUID "
    "(nvidia-smi -L lists them)";

}  // namespace

absl::Status CheckMig(const char* visible, absl::FunctionRef<int()> count) {
  if (visible != nullptr) {
    const std::vector<std::string> named = absl::StrSplit(visible, ',');
    const auto is_instance = [](const std::string& name) {
      return absl::StartsWith(absl::StripAsciiWhitespace(name), "MIG-");
    };
    if (std::count_if(named.begin(), named.end(), is_instance) < 2) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrFormat("CUDA_VISIBLE_DEVICES: got %s; allowed: %s", Quoted(visible), kRemedy));
  }
  const int instances = count();
  if (instances < 2) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("MIG: got %d instances and no CUDA_VISIBLE_DEVICES; allowed: %s", instances, kRemedy));
}

}  // namespace reduced

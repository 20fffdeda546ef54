#include "client/reducectl/loadtest/schedule.h"

#include <cmath>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace reduced::client {
namespace {

constexpr std::size_t kMaxLoads = 1000;

std::optional<double> ParseNumber(absl::string_view text) {
  double value = 0;
  if (!absl::SimpleAtod(text, &value) || !std::isfinite(value) || value <= 0) return std::nullopt;
  return value;
}

// Appends the loads of one item. Returns false if it isn't one, or there are too many loads.
bool AppendItem(absl::string_view item, std::vector<double>* loads) {
  const std::pair<absl::string_view, absl::string_view> ends = absl::StrSplit(item, absl::MaxSplits("..", 1));
  const std::optional<double> first = ParseNumber(ends.first);
  if (!first.has_value()) return false;
  loads->push_back(*first);
  if (ends.first.size() == item.size()) return true;
  const std::pair<absl::string_view, absl::string_view> rest = absl::StrSplit(ends.second, absl::MaxSplits(':', 1));
  const std::optional<double> last = ParseNumber(rest.first);
  if (!last.has_value() || *last < *first) return false;
  std::optional<double> step;
  if (rest.first.size() != ends.second.size()) {
    step = ParseNumber(rest.second);
    if (!step.has_value()) return false;
  }
  for (int i = 1; loads->back() < *last; ++i) {
    const double next = step.has_value() ? *first + i * *step : loads->back() * 2;
    loads->push_back(std::min(next, *last));
    if (loads->size() > kMaxLoads) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<std::vector<double>> ParseLoads(const std::string& text) {
  std::vector<double> loads;
  for (const absl::string_view item : absl::StrSplit(text, ',')) {
    if (AppendItem(item, &loads) && loads.size() <= kMaxLoads) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("got \"", text, "\"; allowed: loads like 8, 1,2,4..64 (doubling) or ",
                     "1000..20000:1000 (in steps), all above 0, at most ", kMaxLoads, " of them"));
  }
  return loads;
}

std::uint64_t NextRandom(std::uint64_t* state) {
  std::uint64_t z = *state += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

double NextUniform(std::uint64_t* state) { return std::ldexp(static_cast<double>(NextRandom(state) >> 11), -53); }

Arrivals::Arrivals(ArrivalKind kind, double per_s, std::uint64_t seed)
    : kind_(kind), gap_ns_(1e9 / per_s), random_(seed) {}

std::int64_t Arrivals::Next() {
  if (kind_ == ArrivalKind::kConstant) {
    return std::llround(static_cast<double>(index_++) * gap_ns_);  // a sum of gaps would drift
  }
  last_ns_ -= std::log1p(-NextUniform(&random_)) * gap_ns_;
  return std::llround(last_ns_);
}

}  // namespace reduced::client

#include "client/reducectl/output/progress.h"

#include <unistd.h>

#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/reducectl/output/render.h"

namespace reduced::client {
namespace {

constexpr char kToStartAndErase[] = "\r\x1b[K";

}  // namespace

std::string FormatProgress(std::int64_t sent, std::int64_t total, absl::Duration elapsed) {
  std::string line = FormatBytes(sent);
  if (total > 0) {
    const double fraction = static_cast<double>(sent) / static_cast<double>(total);
    absl::StrAppend(&line, " of ", FormatBytes(total), ", ", FormatPercent(fraction));
  }
  if (sent == 0 || elapsed <= absl::ZeroDuration()) return line;
  const double per_s = static_cast<double>(sent) / absl::ToDoubleSeconds(elapsed);
  absl::StrAppend(&line, ", ", FormatScaled(per_s / (per_s < 1e9 ? 1e6 : 1e9)), per_s < 1e9 ? " MB/s" : " GB/s");
  if (total == 0) return line;
  line += ", ";
  const absl::Duration left = absl::Seconds(static_cast<double>(total - sent) / per_s);
  absl::StrAppend(&line, absl::FormatDuration(absl::Ceil(left, absl::Seconds(1))), " left");
  return line;
}

std::string ProgressLine::Draw(std::int64_t sent, std::int64_t total, absl::Time now) {
  if (now < next_) return "";
  next_ = now + kPeriod;
  drawn_ = true;
  return absl::StrCat(kToStartAndErase, FormatProgress(sent, total, now - start_));
}

std::string ProgressLine::Clear() { return std::exchange(drawn_, false) ? kToStartAndErase : ""; }

UploadProgress::UploadProgress(bool wanted) : shown_(wanted && isatty(STDERR_FILENO) == 1), line_(absl::Now()) {}

UploadProgress::~UploadProgress() { Clear(); }

void UploadProgress::Clear() { std::cerr << line_.Clear() << std::flush; }

OnProgress UploadProgress::hook() {
  if (!shown_) return nullptr;
  return [this](std::int64_t sent, std::int64_t total) {
    std::cerr << line_.Draw(sent, total, absl::Now()) << std::flush;
  };
}

}  // namespace reduced::client

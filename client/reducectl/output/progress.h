// The progress of an upload, shown on a terminal.
#ifndef REDUCED_CLIENT_REDUCECTL_OUTPUT_PROGRESS_H_
#define REDUCED_CLIENT_REDUCECTL_OUTPUT_PROGRESS_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "reduced/types.h"

namespace reduced::client {

// "64.0 MiB of 256 MiB, 25.0%, 1.23 GB/s, 2s left", after `elapsed`. Without speed and time left if nothing has been
// sent. "64.0 MiB, 1.23 GB/s" if `total` is 0, for unknown.
std::string FormatProgress(std::int64_t sent, std::int64_t total, absl::Duration elapsed);

// A line that is redrawn in place. Returns what to write to the terminal. Thread-compatible.
class ProgressLine {
 public:
  static constexpr absl::Duration kPatience = absl::Seconds(1);       // until it is drawn first
  static constexpr absl::Duration kPeriod = absl::Milliseconds(100);  // until it is drawn again

  explicit ProgressLine(absl::Time start) : start_(start), next_(start + kPatience) {}

  // Empty if it isn't time to draw.
  std::string Draw(std::int64_t sent, std::int64_t total, absl::Time now);
  // Erases the line.
  std::string Clear();

 private:
  const absl::Time start_;
  absl::Time next_;
  bool drawn_ = false;
};

// Shows such a line on standard error while this exists, if that is a terminal and `wanted` is true.
class UploadProgress {
 public:
  explicit UploadProgress(bool wanted);
  ~UploadProgress();
  UploadProgress(const UploadProgress&) = delete;
  UploadProgress& operator=(const UploadProgress&) = delete;

  // For ReduceOptions and PutOptions. Null if no line is shown. This must outlive it.
  OnProgress hook();
  // Erases the line until there is more progress.
  void Clear();

 private:
  const bool shown_;
  ProgressLine line_;
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_OUTPUT_PROGRESS_H_

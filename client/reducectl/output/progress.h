// How far an upload has come, for who waits for it at a terminal.
#ifndef REDUCED_CLIENT_REDUCECTL_OUTPUT_PROGRESS_H_
#define REDUCED_CLIENT_REDUCECTL_OUTPUT_PROGRESS_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "reduced/types.h"

namespace reduced::client {

// "64.0 MiB of 256 MiB, 25.0%, 1.23 GB/s, 2s left", after `elapsed`. Nothing sent: no word of how long it will take.
std::string FormatProgress(std::int64_t sent, std::int64_t total, absl::Duration elapsed);

// One line, drawn over and over: what to write to the terminal for it. Thread-compatible.
class ProgressLine {
 public:
  static constexpr absl::Duration kPatience = absl::Seconds(1);       // before it is drawn at all
  static constexpr absl::Duration kPeriod = absl::Milliseconds(100);  // before it is drawn again

  explicit ProgressLine(absl::Time start) : start_(start), next_(start + kPatience) {}

  // Empty: not yet, or not again.
  std::string Draw(std::int64_t sent, std::int64_t total, absl::Time now);
  // Takes the line away.
  std::string Clear();

 private:
  const absl::Time start_;
  absl::Time next_;
  bool drawn_ = false;
};

// Such a line on standard error, for the life of this, if that is a terminal and `wanted`.
class UploadProgress {
 public:
  explicit UploadProgress(bool wanted);
  ~UploadProgress();
  UploadProgress(const UploadProgress&) = delete;
  UploadProgress& operator=(const UploadProgress&) = delete;

  // For ReduceOptions and PutOptions, as long as this is there; null if there is no line.
  OnProgress hook();

 private:
  const bool shown_;
  ProgressLine line_;
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_OUTPUT_PROGRESS_H_

#include "server/sources/uploads.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/system/status_macros.h"

namespace reduced::server {
namespace {

constexpr std::size_t kFailedRemembered = 256;

absl::Status Drained() {
  return absl::UnavailableError("the server is draining: other parts of the upload go to another one");
}

}  // namespace

absl::Status CheckPart(const UploadPart& part) {
  if (!IsUploadId(part.upload)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("stream_part.upload: got %d bytes; allowed: 1 to %d", part.upload.size(), kMaxUploadId));
  }
  constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
  const struct {
    const char* field;
    std::int64_t value, low, high;
  } ranges[] = {{"parts", part.parts, 2, kMaxParts},
                {"index", part.index, 0, std::int64_t{part.parts} - 1},
                {"first", part.first, 0, kAny},
                {"count", part.count, 0, kAny}};
  for (const auto& range : ranges) {
    if (range.value >= range.low && range.value <= range.high) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("stream_part.", range.field, ": got ", range.value, "; allowed: ", range.low,
                     range.high == kAny ? std::string(" or more") : absl::StrCat(" to ", range.high)));
  }
  return absl::OkStatus();
}

// The size separates the two, whatever characters they have.
std::string UploadKey(absl::string_view caller, absl::string_view upload) {
  return absl::StrCat(caller.size(), ":", caller, "\n", upload);
}

// Guarded by the mutex of its registry.
class Uploads::Upload {
 public:
  struct Part {
    std::int64_t first = 0;  // of the array's elements
    std::int64_t end = 0;
    Over over;
    std::optional<Answer> result{};
  };

  Upload(std::string name, const ReduceSpec& whole, int count, Placement where)
      : id(std::move(name)), spec(whole), place(std::move(where)), parts(static_cast<std::size_t>(count)) {}

  // Checks that a part fits the array and the parts next to it that have joined. If every part does, they make up the
  // array.
  absl::Status Check(const UploadPart& part, const ReduceSpec& its_spec) const {
    if (!(its_spec == spec)) {
      return absl::InvalidArgumentError(
          "header: got another dtype, shape, ops or options than the upload's other parts; allowed: the same");
    }
    if (part.parts != static_cast<int>(parts.size())) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "stream_part.parts: got %d; allowed: %d, as in the upload's other parts", part.parts, parts.size()));
    }
    const auto index = static_cast<std::size_t>(part.index);
    if (parts[index].has_value()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("stream_part.index: got %d a second time; allowed: each part once", index));
    }
    if (part.first > spec.count || part.count > spec.count - part.first) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "stream_part.count: got %d from element %d on in part %d; allowed: up to element %d, the array's end",
          part.count, part.first, index, spec.count));
    }
    const std::int64_t end = part.first + part.count;
    if (index == 0 && part.first != 0) {
      return absl::InvalidArgumentError(absl::StrFormat("stream_part.first: got %d in part 0; allowed: 0", part.first));
    }
    if (index > 0 && parts[index - 1].has_value()) {
      RETURN_IF_ERROR(CheckJoint(index, parts[index - 1]->end, part.first));
    }
    if (index + 1 == parts.size()) {
      if (end == spec.count) return absl::OkStatus();
      return absl::InvalidArgumentError(
          absl::StrFormat("stream_part.count: got %d in part %d, the last; allowed: up to element %d, the array's end",
                          part.count, index, spec.count));
    }
    return parts[index + 1].has_value() ? CheckJoint(index + 1, end, parts[index + 1]->first) : absl::OkStatus();
  }

  bool complete() const {
    return std::all_of(parts.begin(), parts.end(), [](const auto& part) { return part.has_value(); });
  }

  const std::string id;
  const ReduceSpec spec;
  const Placement place;
  std::vector<std::optional<Part>> parts;
  Quotas::Lease quota;
  std::size_t finished = 0;
  bool over = false;  // removed from the registry, and `parts` were taken

 private:
  static absl::Status CheckJoint(std::size_t index, std::int64_t end, std::int64_t begin) {
    if (begin == end) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrFormat(
        "stream_part.first: got %d in part %d; allowed: %d, where part %d ends", begin, index, end, index - 1));
  }
};

absl::StatusOr<Uploads::Joined> Uploads::Join(const UploadPart& part, const ReduceSpec& spec, Placement place,
                                              TakeRequest take, Over over) {
  const absl::MutexLock lock(&mutex_);
  absl::Status status = WhyFailed(part.upload);
  if (!status.ok()) return status;
  const auto found = uploads_.find(part.upload);
  std::shared_ptr<Upload> upload;
  if (found != uploads_.end()) {
    upload = found->second;
  } else if (draining_) {
    return Drained();
  } else {
    ASSIGN_OR_RETURN(Quotas::Lease quota, take());
    upload = std::make_shared<Upload>(part.upload, spec, part.parts, std::move(place));
    upload->quota = std::move(quota);
    uploads_.emplace(upload->id, upload);
  }
  status = upload->Check(part, spec);
  if (!status.ok()) return status;  // the caller calls Fail(), which removes an upload that was added here
  upload->parts[static_cast<std::size_t>(part.index)] =
      Upload::Part{part.first, part.first + part.count, std::move(over)};
  return Joined{upload->place, upload};
}

void Uploads::Finish(Upload& upload, int index, Answer result) {
  std::vector<std::optional<Upload::Part>> parts;
  {
    const absl::MutexLock lock(&mutex_);
    if (upload.over) return;
    upload.parts[static_cast<std::size_t>(index)]->result = std::move(result);
    if (++upload.finished < upload.parts.size()) return;
    upload.over = true;
    upload.quota.Return();  // before the responses: a client that has one may send its next request
    parts = std::move(upload.parts);
    uploads_.erase(upload.id);
  }
  absl::StatusOr<Answer> whole = Answer();
  for (const std::optional<Upload::Part>& part : parts) Combine(*part->result, &*whole);
  for (std::optional<Upload::Part>& part : parts) std::move(part->over)(whole);
}

bool Uploads::HaveAllJoined(const Upload& upload) const {
  const absl::MutexLock lock(&mutex_);
  return upload.complete();
}

void Uploads::Drain() {
  std::vector<std::optional<Upload::Part>> parts;
  {
    const absl::MutexLock lock(&mutex_);
    draining_ = true;
    absl::erase_if(uploads_, [&parts](auto& each) {
      Upload& upload = *each.second;
      if (upload.complete()) return false;
      upload.over = true;
      upload.quota.Return();
      std::move(upload.parts.begin(), upload.parts.end(), std::back_inserter(parts));
      return true;
    });
  }
  for (std::optional<Upload::Part>& each : parts) {
    if (each.has_value()) std::move(each->over)(Drained());
  }
}

void Uploads::Fail(const UploadPart& part, const absl::Status& why) {
  const absl::StatusOr<Answer> told =
      absl::AbortedError(absl::StrFormat("part %d of the upload failed: %s", part.index, why.message()));
  std::vector<std::optional<Upload::Part>> parts;
  {
    const absl::MutexLock lock(&mutex_);
    if (!WhyFailed(part.upload).ok()) return;
    failed_.emplace_back(part.upload, told.status());
    if (failed_.size() > kFailedRemembered) failed_.pop_front();
    const auto found = uploads_.find(part.upload);
    if (found == uploads_.end()) return;
    found->second->over = true;
    found->second->quota.Return();
    parts = std::move(found->second->parts);
    uploads_.erase(found);
  }
  for (std::optional<Upload::Part>& each : parts) {
    if (each.has_value()) std::move(each->over)(told);
  }
}

// OK: the upload is not known to have failed.
absl::Status Uploads::WhyFailed(const std::string& id) const {
  for (const auto& [failed, why] : failed_) {
    if (failed == id) return why;
  }
  return absl::OkStatus();
}

}  // namespace reduced::server

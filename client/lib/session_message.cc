// The messages of a session's requests.
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/lib/call.h"
#include "client/lib/convert.h"
#include "client/lib/session.h"
#include "client/lib/via.h"
#include "kernels/system/status_macros.h"

namespace reduced::client {

absl::Status SessionState::TooLarge(std::int64_t bytes) const {
  return absl::ResourceExhaustedError(absl::StrCat("the request is larger than ", server_, " accepts: got ", bytes,
                                                   " bytes; allowed: ", options_.max_message_bytes));
}

absl::Status SessionState::Prepare(absl::Duration timeout, v1::SessionRequest* message) const {
  if (timeout != absl::InfiniteDuration()) {
    message->set_timeout_ms(absl::ToInt64Milliseconds(absl::Ceil(timeout, absl::Milliseconds(1))));
  }
  message->set_id(~std::uint64_t{0});  // the id with the largest encoding
  const auto size = static_cast<std::int64_t>(message->ByteSizeLong());
  return size > options_.max_message_bytes ? TooLarge(size) : absl::OkStatus();
}

// The arrays beside the one that is reduced go in the message, too.
absl::Status SessionState::SetPartition(const PartitionOptions* partition, v1::ReduceRequest* request) const {
  if (partition == nullptr) return absl::OkStatus();
  return ToProto(*partition, request, [this](const ArrayView& side, v1::SideArray* to) {
    const std::int64_t bytes = *ArrayBytes(side.dtype, side.shape);
    if (bytes > options_.max_message_bytes) return TooLarge(bytes);
    to->set_inline_data(side.data, static_cast<std::size_t>(bytes));
    return absl::OkStatus();
  });
}

absl::StatusOr<SessionState::Message> SessionState::Ask(const ArrayView& array, const std::vector<std::string>& ops,
                                                        const ReduceOptions& options,
                                                        const PartitionOptions* partition) const {
  const absl::Duration timeout = options.timeout.value_or(options_.timeout);
  v1::SessionRequest message;
  absl::Status status = CheckTimeout(timeout);
  status.Update(ToProto(array, message.mutable_reduce()->mutable_array()));
  if (array.reader.read != nullptr || array.data == nullptr) {
    status.Update(CheckElements(array, /*may_have_reader=*/array.reader.in_memory));
  }
  status.Update(ToProto(ops, options, message.mutable_reduce()));
  if (status.ok()) status = SetPartition(partition, message.mutable_reduce());
  if (!status.ok()) return status;
  const std::int64_t bytes = *ArrayBytes(array.dtype, array.shape);
  ASSIGN_OR_RETURN(const absl::string_view via, ChooseVia(options.via == "auto" ? kInline : options.via, bytes));
  if (via != kInline) {
    return absl::InvalidArgumentError(absl::StrCat("via: got \"", via, "\" in a session; allowed: auto, inline"));
  }
  if (bytes > options_.max_message_bytes) return TooLarge(bytes);
  RETURN_IF_ERROR(SetElements(array, bytes, message.mutable_reduce()));
  RETURN_IF_ERROR(Prepare(timeout, &message));
  std::vector<std::string> names = NamesFor(message.reduce(), ops);
  return Message{std::move(message), std::move(names)};
}

absl::StatusOr<SessionState::Message> SessionState::Ask(const RemoteArray& array, const std::vector<std::string>& ops,
                                                        const ReduceOptions& options,
                                                        const PartitionOptions* partition) const {
  const absl::Duration timeout = options.timeout.value_or(options_.timeout);
  v1::SessionRequest message;
  absl::Status status = CheckTimeout(timeout);
  status.Update(ToProto(array, message.mutable_reduce()));
  status.Update(ToProto(ops, options, message.mutable_reduce()));
  if (status.ok()) status = SetPartition(partition, message.mutable_reduce());
  if (!status.ok()) return status;
  RETURN_IF_ERROR(Prepare(timeout, &message));
  std::vector<std::string> names = NamesFor(message.reduce(), ops);
  return Message{std::move(message), std::move(names)};
}

}  // namespace reduced::client

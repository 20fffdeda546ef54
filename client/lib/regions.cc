// Regions: Client::Share, Client::ShareDevice, and the handle.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/lib/answer.h"
#include "client/lib/call.h"
#include "client/lib/checks.h"
#include "client/lib/connection.h"
#include "client/lib/convert.h"
#include "client/lib/region_connection.h"
#include "kernels/system/quoted.h"
#include "kernels/system/status_macros.h"
#include "reduced/client.h"

namespace reduced::client {
namespace {

constexpr absl::Duration kReleaseTimeout = absl::Seconds(10);

// A region of so many bytes; -1: any number.
absl::Status Check(const v1::RegionReply& reply, std::int64_t bytes) {
  if (!IsId(reply.token())) {
    return Wrong("token", Quoted(reply.token()), kIds);
  }
  if (bytes >= 0 && reply.bytes() != bytes) return Wrong("bytes", reply.bytes(), bytes);
  return CheckAmounts(reply);
}

}  // namespace

absl::StatusOr<Region> Client::Share(int file, const ShareOptions& options) {
  v1::RegionRequest request;
  request.mutable_share_memory()->set_pin(options.pin);
  request.mutable_share_memory()->set_writable(options.writable);
  return ShareAs(request, file, options, nullptr);
}

absl::StatusOr<Region> Client::Share(const SharedBuffer& buffer, const ShareOptions& options) {
  return Share(buffer.file(), options);
}

absl::StatusOr<Region> Client::Share(const ArrayView& array, const ShareOptions& options) {
  ASSIGN_OR_RETURN(const std::int64_t bytes, ArrayBytes(array.dtype, array.shape));
  RETURN_IF_ERROR(CheckElements(array));
  ASSIGN_OR_RETURN(const SharedBuffer buffer, SharedBuffer::Allocate(bytes));
  if (bytes > 0) std::memcpy(buffer.data(), array.data, static_cast<std::size_t>(bytes));
  return Share(buffer, options);
}

absl::StatusOr<Region> Client::ShareDevice(const DeviceMemory& memory, const ShareOptions& options) {
  v1::RegionRequest request;
  v1::ShareDevice& device = *request.mutable_share_device();
  device.set_handle(memory.handle);
  device.set_device_uuid(memory.device_uuid);
  device.set_offset(memory.offset);
  device.set_bytes(memory.bytes);
  device.set_event(memory.event);
  return ShareAs(request, -1, options, &memory);
}

// Of host memory, behind the descriptor `file`, or of `memory`.
absl::StatusOr<Region> Client::ShareAs(const v1::RegionRequest& request, int file, const ShareOptions& options,
                                       const DeviceMemory* memory) {
  const absl::Duration timeout = options.timeout.value_or(connection_->options.timeout);
  RETURN_IF_ERROR(CheckTimeout(timeout));
  const absl::Time deadline = absl::Now() + timeout;
  ASSIGN_OR_RETURN(std::shared_ptr<Region::Connection> regions, Regions(deadline));
  const std::vector<int> files(file < 0 ? 0 : 1, file);
  ASSIGN_OR_RETURN(const v1::RegionReply reply, memory != nullptr && !memory->pieces.empty()
                                                    ? regions->AskWithPieces(request, *memory, deadline)
                                                    : regions->Ask(request, files, deadline));
  const std::int64_t bytes = request.has_share_device() ? request.share_device().bytes() : -1;
  if (const absl::Status right = Check(reply, bytes); !right.ok()) {
    return WrongAnswer("the region socket", right);
  }
  return Region(std::move(regions), reply.token(), reply.bytes());
}

// The connection to the region socket. Opens one if there is none or it is closed.
absl::StatusOr<std::shared_ptr<Region::Connection>> Client::Regions(absl::Time deadline) {
  const absl::MutexLock lock(&connection_->mutex);
  std::shared_ptr<Region::Connection>& regions = connection_->regions;
  if (regions != nullptr && !regions->closed()) return regions;
  const absl::Duration left = deadline - absl::Now();
  if (left <= absl::ZeroDuration()) {
    return absl::DeadlineExceededError("the deadline passed before the region socket was connected");
  }
  ASSIGN_OR_RETURN(const ServerInfo info, GetServerInfo(left));
  const std::string& server = connection_->options.server;
  if (info.region_socket.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(server, " has no region socket: memory can't be shared with it"));
  }
  auto opened = Region::Connection::Open(RegionPath(server, info.region_socket), deadline);
  if (opened.ok()) regions = *opened;
  return opened;
}

Region::Region(std::shared_ptr<Connection> connection, std::string token, std::int64_t bytes)
    : connection_(std::move(connection)), token_(std::move(token)), bytes_(bytes) {}

Region::Region(Region&& other) noexcept = default;

Region& Region::operator=(Region&& other) noexcept {
  std::swap(connection_, other.connection_);
  std::swap(token_, other.token_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Region::~Region() { Release(); }

void Region::Release() {
  if (connection_ == nullptr) return;
  v1::RegionRequest request;
  request.mutable_release()->set_token(token_);
  // If this fails, the connection is closed, which ends the region, too.
  connection_->Ask(request, {}, absl::Now() + kReleaseTimeout).IgnoreError();
  connection_.reset();
}

RemoteArray Region::Array(std::string dtype, std::vector<std::int64_t> shape, std::int64_t offset,
                          ElementLayout layout) const {
  return RemoteArray::InRegion(token_, offset, std::move(dtype), std::move(shape), std::move(layout));
}

}  // namespace reduced::client

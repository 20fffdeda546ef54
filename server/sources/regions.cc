#include "server/sources/regions.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "google/protobuf/util/json_util.h"
#include "server/config/listener.h"
#include "server/security/random_id.h"
#include "spdlog/spdlog.h"

namespace reduced::server {
namespace {

constexpr std::size_t kMaxPacketBytes = 4096;

// Closes the descriptor, if there is one.
void Close(int* file) {
  if (*file >= 0) close(*file);
  *file = -1;
}

const char* KindOf(mode_t mode) {
  if (S_ISREG(mode)) return "a file on disk";
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "something other than memory";
}

// The memory behind a descriptor.
struct Memory {
  std::int64_t bytes = 0;
  bool sealed = false;  // can't shrink
  bool holes = false;
  bool huge_pages = false;
  bool stays_whole = false;  // nobody can punch holes into it
};

// INVALID_ARGUMENT: the descriptor isn't of memory, or can't be read.
absl::StatusOr<Memory> Examine(int file, bool allow_disk_files) {
  const int flags = fcntl(file, F_GETFL);
  if ((flags & O_PATH) != 0 || (flags & O_ACCMODE) == O_WRONLY) {
    return absl::InvalidArgumentError("descriptor: got one that is not open for reading; allowed: one that is");
  }
  // Memory is what can have seals. Of anything else only what is known without asking its file system, which may be
  // a process that never answers.
  const int seals = fcntl(file, F_GET_SEALS);
  if (seals < 0) {
    struct statx known {};
    if (statx(file, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &known) != 0) known.stx_mode = 0;
    const bool disk_file = S_ISREG(known.stx_mode);
    if (!disk_file || !allow_disk_files) {
      return absl::InvalidArgumentError(
          absl::StrCat("descriptor: got ", KindOf(known.stx_mode), "; allowed: memfds, POSIX shared memory",
                       disk_file ? ", and files on disk if the server runs with --allow_disk_files" : ""));
    }
  }
  struct stat status;
  struct statfs system;
  if (fstat(file, &status) != 0 || fstatfs(file, &system) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("descriptor: cannot be examined: ", std::strerror(errno)));
  }
  return Memory{.bytes = status.st_size,
                .sealed = seals >= 0 && (seals & F_SEAL_SHRINK) != 0,
                .holes = static_cast<std::int64_t>(status.st_blocks) * 512 < status.st_size,
                .huge_pages = static_cast<std::uint64_t>(system.f_type) == HUGETLBFS_MAGIC,
                .stays_whole = seals >= 0 && (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0};
}

// What keeps the memory from being mapped, so that reading it is never a fault, whatever its owner does. Null: nothing.
const char* WhyNotMapped(const Memory& memory) {
  if (!memory.sealed) return "memory that is not sealed";
  if (memory.bytes == 0) return "empty memory";
  if (memory.holes) return "memory with holes";
  // A hole in it that no huge page is left for is a fault.
  if (memory.huge_pages && !memory.stays_whole) return "huge pages that are not sealed against writing (F_SEAL_WRITE)";
  return nullptr;
}

// A packet and the descriptors that came with it.
struct Packet {
  std::string text;
  std::vector<int> files;
  bool cut = false;         // there was more text
  bool files_lost = false;  // there were more descriptors
};

// The next packet. Nothing: the connection has ended.
absl::StatusOr<Packet> Receive(int socket) {
  constexpr std::size_t kMaxFiles = 8;
  Packet packet;
  packet.text.resize(kMaxPacketBytes);
  iovec part{packet.text.data(), packet.text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFiles * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t bytes = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (bytes < 0) return absl::ErrnoToStatus(errno, "recvmsg");
  for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr; each = CMSG_NXTHDR(&message, each)) {
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (each->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int file = -1;
      std::memcpy(&file, CMSG_DATA(each) + i * sizeof(int), sizeof(int));
      packet.files.push_back(file);
    }
  }
  packet.cut = (message.msg_flags & MSG_TRUNC) != 0;
  packet.files_lost = (message.msg_flags & MSG_CTRUNC) != 0;
  packet.text.resize(static_cast<std::size_t>(bytes));
  return packet;
}

}  // namespace

// What was shared, until nobody uses it any more.
class Regions::Region {
 public:
  // Host memory: takes the descriptor over.
  Region(int file, std::int64_t bytes) : bytes_(bytes), file_(file) {}
  // Device memory.
  Region(HeldArray device, std::int64_t bytes) : bytes_(bytes), device_(std::move(device)) {}
  ~Region() {
    pin_.reset();
    if (mapping_ != nullptr) munmap(mapping_, static_cast<std::size_t>(bytes_));
    Close(&file_);
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  // Of memory that can't shrink and has no holes, which reading would fill.
  absl::Status Map() {
    mapping_ = mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_READ, MAP_SHARED, file_, 0);
    if (mapping_ != MAP_FAILED) return absl::OkStatus();
    mapping_ = nullptr;
    return absl::ResourceExhaustedError(absl::StrCat("cannot map ", bytes_, " bytes: ", std::strerror(errno)));
  }

  // Registers the mapping with the GPUs.
  absl::Status Pin(const Engines& engines) {
    absl::StatusOr<std::shared_ptr<const void>> pin = engines.Pin(mapping_, bytes_);
    if (!pin.ok()) return pin.status();
    pin_ = *std::move(pin);
    return absl::OkStatus();
  }

  std::int64_t bytes() const { return bytes_; }

  ArrayRef At(std::int64_t offset) const {
    if (file_ < 0) {
      ArrayRef array = device_.array;
      array.data = static_cast<const std::byte*>(array.data) + offset;
      return array;
    }
    const void* const data = mapping_ == nullptr ? nullptr : static_cast<const std::byte*>(mapping_) + offset;
    return {.data = data,
            .space = pin_ == nullptr ? MemorySpace::kFile : MemorySpace::kPinnedHost,
            .file = file_,
            .offset = offset};
  }

 private:
  const std::int64_t bytes_;
  int file_ = -1;
  void* mapping_ = nullptr;
  std::shared_ptr<const void> pin_;
  HeldArray device_;
};

struct Regions::Connection {
  int socket = -1;
  std::int64_t number = 0;
  ucred peer{};
};

Regions::Regions(const Engines& engines, const RegionOptions& options) : engines_(engines), options_(options) {}

Regions::~Regions() { Stop(); }

absl::Status Regions::Start(const std::string& path) {
  const absl::StatusOr<ListenAddress> address = ParseListenAddress(absl::StrCat("unix:", path));
  if (!address.ok()) return address.status();
  const absl::StatusOr<SocketFolderLock> lock = SocketFolderLock::Take({*address});
  if (!lock.ok()) return lock.status();
  absl::Status status = CheckUnixPath(*address, SOCK_SEQPACKET);
  if (!status.ok()) return status;
  unlink(path.c_str());
  listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const sockaddr_un at = UnixAddress(path);
  if (listener_ < 0 || bind(listener_, reinterpret_cast<const sockaddr*>(&at), sizeof(at)) != 0 ||
      listen(listener_, 64) != 0) {
    status =
        absl::FailedPreconditionError(absl::StrCat("cannot listen for regions at ", path, ": ", std::strerror(errno)));
    Close(&listener_);
    return status;
  }
  path_ = path;
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  max_all_regions_ = static_cast<std::size_t>(files.rlim_cur / 2);
  stop_ = eventfd(0, EFD_CLOEXEC);
  if (stop_ < 0) return absl::ErrnoToStatus(errno, "eventfd");
  thread_ = std::thread([this] { Serve(); });
  return absl::OkStatus();
}

void Regions::Stop() {
  if (thread_.joinable()) {
    eventfd_write(stop_, 1);
    thread_.join();
  }
  if (!path_.empty()) unlink(path_.c_str());
  path_.clear();
  Close(&listener_);
  Close(&stop_);
}

int Regions::count() const {
  const absl::MutexLock lock(&mutex_);
  return static_cast<int>(shared_.size());
}

absl::StatusOr<HeldArray> Regions::Find(const v1::RegionPart& part, std::int64_t bytes) const {
  std::shared_ptr<const Region> region;
  {
    const absl::MutexLock lock(&mutex_);
    if (const auto found = shared_.find(part.token()); found != shared_.end()) region = found->second.region;
  }
  if (region == nullptr)
    return absl::NotFoundError(
        "region.token: got one of no shared region; allowed: the token of a region that is shared now");
  if (part.offset() < 0 || part.offset() > region->bytes() || bytes > region->bytes() - part.offset()) {
    return absl::OutOfRangeError(
        absl::StrFormat("region: got an array of %d bytes from byte %d on; allowed: within the %d bytes of the region",
                        bytes, part.offset(), region->bytes()));
  }
  return HeldArray{region->At(part.offset()), region};
}

// The thread, until Stop.
void Regions::Serve() {
  constexpr int kPauseMs = 100;
  bool pause = false;  // the process has no descriptor left: who connects waits a moment
  for (;;) {
    std::vector<pollfd> polled = {{stop_, POLLIN, 0}};
    const bool full = static_cast<int>(connections_.size()) >= options_.max_connections;
    polled.push_back({full || pause ? -1 : listener_, POLLIN, 0});  // those beyond wait to be accepted
    for (const auto& [socket, connection] : connections_) polled.push_back({socket, POLLIN, 0});
    if (poll(polled.data(), polled.size(), std::exchange(pause, false) ? kPauseMs : -1) < 0) continue;  // EINTR
    if (polled[0].revents != 0) break;
    if (polled[1].revents != 0) pause = !Accept();
    for (std::size_t i = 2; i < polled.size(); ++i) {
      if (polled[i].revents == 0) continue;
      Connection& connection = connections_.at(polled[i].fd);
      if (Answer(connection)) continue;
      Forget(connection);
      close(connection.socket);
      connections_.erase(polled[i].fd);
    }
  }
  for (const auto& [socket, connection] : connections_) {
    Forget(connection);
    close(socket);
  }
  connections_.clear();
}

// False: there is no descriptor for it, it has to wait.
bool Regions::Accept() {
  const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (socket < 0) return errno != EMFILE && errno != ENFILE;
  Connection& connection = connections_[socket];
  connection = {.socket = socket, .number = ++last_connection_};
  socklen_t size = sizeof(connection.peer);
  getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &connection.peer, &size);
  return true;
}

// Answers one packet: true, or false if the connection has ended or doesn't take its answers.
bool Regions::Answer(Connection& connection) {
  absl::StatusOr<Packet> packet = Receive(connection.socket);
  if (!packet.ok()) return absl::IsUnavailable(packet.status());  // nothing there after all
  if (packet->text.empty() && packet->files.empty()) return false;
  const absl::Cleanup close_files = [&] {
    for (int& file : packet->files) Close(&file);
  };
  v1::RegionReply reply;
  absl::StatusOr<v1::RegionReply> handled =
      absl::InvalidArgumentError("packet: got more; allowed: at most 4096 bytes and one descriptor");
  if (packet->files_lost && packet->files.empty()) {
    handled = absl::ResourceExhaustedError("the server has no file descriptor left");
  } else if (!packet->files_lost && !packet->cut && packet->files.size() <= 1) {
    handled = Handle(connection, packet->text, packet->files.empty() ? nullptr : &packet->files.front());
  }
  if (handled.ok()) {
    reply = *std::move(handled);
  } else {
    reply.set_code(handled.status().raw_code());
    reply.set_message(std::string(handled.status().message()));
  }
  if (spdlog::should_log(spdlog::level::debug)) {
    spdlog::debug("region pid={} uid={} status={} bytes={}{}", connection.peer.pid, connection.peer.uid,
                  absl::StatusCodeToString(static_cast<absl::StatusCode>(reply.code())), reply.bytes(),
                  reply.message().empty() ? "" : ": " + reply.message());
  }
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(reply, &text).ok()) return false;
  return send(connection.socket, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(text.size());
}

// `file`: the descriptor that came with the packet, or null. Set to -1 if the region keeps it.
absl::StatusOr<v1::RegionReply> Regions::Handle(const Connection& connection, const std::string& packet, int* file) {
  v1::RegionRequest request;
  if (!google::protobuf::util::JsonStringToMessage(packet, &request).ok()) {
    return absl::InvalidArgumentError("packet: got something else; allowed: a RegionRequest in JSON");
  }
  if (request.has_share_memory() != (file != nullptr)) {
    return absl::InvalidArgumentError(file == nullptr ? "shareMemory: got no descriptor; allowed: one"
                                                      : "descriptor: got one without shareMemory; allowed: none");
  }
  v1::RegionReply reply;
  if (request.has_release()) {
    const absl::Status status = Release(connection, request.release().token());
    if (!status.ok()) return status;
    return reply;
  }
  if (!request.has_share_memory() && !request.has_share_device()) {
    return absl::InvalidArgumentError("request: got none; allowed: shareMemory, shareDevice, release");
  }
  {
    const absl::MutexLock lock(&mutex_);
    const auto its = [&](const auto& entry) { return entry.second.connection == connection.number; };
    if (std::count_if(shared_.begin(), shared_.end(), its) >= options_.max_regions) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("regions: got one more; allowed: %d for a connection", options_.max_regions));
    }
    if (shared_.size() >= max_all_regions_) {
      return absl::ResourceExhaustedError(absl::StrFormat(
          "regions: got one more; allowed: %d for all connections, half of the server's file descriptors",
          max_all_regions_));
    }
  }
  absl::StatusOr<std::shared_ptr<const Region>> region =
      request.has_share_memory() ? ShareMemory(request.share_memory(), file) : ShareDevice(request.share_device());
  if (!region.ok()) return region.status();
  reply.set_token(RandomId());
  reply.set_bytes((*region)->bytes());
  const absl::MutexLock lock(&mutex_);
  shared_[reply.token()] = {connection.number, *std::move(region)};
  return reply;
}

absl::StatusOr<std::shared_ptr<const Regions::Region>> Regions::ShareMemory(const v1::ShareMemory& request,
                                                                            int* file) const {
  const absl::StatusOr<Memory> memory = Examine(*file, options_.allow_disk_files);
  if (!memory.ok()) return memory.status();
  const char* const why_not = WhyNotMapped(*memory);
  if (request.pin() && why_not != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("pin: got ", why_not,
                     "; allowed: memory that is sealed against shrinking (F_SEAL_SHRINK), not empty, without holes"));
  }
  const auto region = std::make_shared<Region>(std::exchange(*file, -1), memory->bytes);
  absl::Status status;
  if (why_not == nullptr) status = region->Map();
  if (status.ok() && request.pin()) status = region->Pin(engines_);
  if (!status.ok()) return status;
  return region;
}

absl::StatusOr<std::shared_ptr<const Regions::Region>> Regions::ShareDevice(const v1::ShareDevice& request) const {
  const SharedDeviceMemory memory{.handle = request.handle(),
                                  .device_uuid = request.device_uuid(),
                                  .offset = request.offset(),
                                  .bytes = request.bytes(),
                                  .event = request.event()};
  absl::StatusOr<HeldArray> array = engines_.Open(memory);
  if (!array.ok()) return array.status();
  return std::make_shared<const Region>(*std::move(array), memory.bytes);
}

absl::Status Regions::Release(const Connection& connection, const std::string& token) {
  std::shared_ptr<const Region> last;  // destroyed after the lock is released
  const absl::MutexLock lock(&mutex_);
  const auto found = shared_.find(token);
  if (found == shared_.end())
    return absl::NotFoundError(
        "release.token: got one of no shared region; allowed: the token of a region that is shared now");
  if (found->second.connection != connection.number) {
    return absl::PermissionDeniedError(
        "release.token: got that of another connection; allowed: a region that this connection shared");
  }
  last = std::move(found->second.region);
  shared_.erase(found);
  return absl::OkStatus();
}

// The regions of a connection that has ended.
void Regions::Forget(const Connection& connection) {
  std::vector<std::shared_ptr<const Region>> last;  // go outside the lock
  const absl::MutexLock lock(&mutex_);
  for (auto each = shared_.begin(); each != shared_.end();) {
    if (each->second.connection == connection.number) {
      last.push_back(std::move(each->second.region));
      each = shared_.erase(each);
    } else {
      ++each;
    }
  }
}

}  // namespace reduced::server

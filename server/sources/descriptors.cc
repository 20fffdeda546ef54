#include "server/sources/descriptors.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/system/failpoint.h"

namespace reduced::server {
namespace {

constexpr std::size_t kMaxFiles = 253;  // of one packet: the kernel's SCM_MAX_FD

const char* KindOf(mode_t mode) {
  if (S_ISREG(mode)) return "a file on disk";
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "something other than memory";
}

// Whether a page of the memory doesn't exist, or was never written. The number of blocks wouldn't tell: there may be
// some beyond the end.
bool HasHoles(int file, std::int64_t bytes) {
  const off_t position = lseek(file, 0, SEEK_CUR);  // the sender's, too
  const off_t hole = lseek(file, 0, SEEK_HOLE);
  lseek(file, position, SEEK_SET);
  return hole < bytes;
}

}  // namespace

absl::StatusOr<Packet> Receive(int socket) {
  Packet packet;
  packet.text.resize(kMaxPacketBytes);
  iovec part{packet.text.data(), packet.text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFiles * sizeof(int)) + CMSG_SPACE(sizeof(ucred))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  // While the packet is in the queue, the kernel closes nothing for good.
  const ssize_t bytes = FAILPOINT_ERRNO("regions/receive", ENOBUFS,
                                        recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC));
  if (bytes < 0) return absl::ErrnoToStatus(errno, "recvmsg");
  packet.end = bytes == 0 && message.msg_controllen == 0;
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
  packet.files_lost = (message.msg_flags & MSG_CTRUNC) != 0 || FAILPOINT("regions/files_lost");
  packet.text.resize(static_cast<std::size_t>(bytes));
  if (!packet.end && !packet.files_lost) recv(socket, nullptr, 0, MSG_DONTWAIT);  // all it has is ours, too
  return packet;
}

ssize_t Send(int socket, const std::string& text, const std::vector<int>& files) {
  constexpr std::size_t kMostFiles = 2;
  iovec part{const_cast<char*>(text.data()), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostFiles * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!files.empty()) {
    const std::size_t bytes = std::min(files.size(), kMostFiles) * sizeof(int);
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(header), files.data(), bytes);
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool HasPackets(int socket) {
  for (int attempt = 0; attempt < 2; ++attempt) {  // an error, such as that of unread replies, is reported once
    msghdr message{};
    if (recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT) == 0) return message.msg_flags != 0;  // else it is the end
  }
  return true;
}

bool IsMemory(int file) { return fcntl(file, F_GET_SEALS) >= 0; }  // only memory can have seals

absl::Status CheckDevice(int file) {
  if (IsMemory(file)) return absl::OkStatus();
  struct statx known {};
  if (statx(file, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &known) == 0 && S_ISCHR(known.stx_mode)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("got ", KindOf(known.stx_mode), "; allowed: descriptors of cuMemExportToShareableHandle"));
}

absl::StatusOr<Memory> Examine(int file, bool allow_disk_files) {
  const int flags = fcntl(file, F_GETFL);
  if ((flags & O_PATH) != 0 || (flags & O_ACCMODE) == O_WRONLY) {
    return absl::InvalidArgumentError("descriptor: got one that is not open for reading; allowed: one that is");
  }
  const int seals = fcntl(file, F_GET_SEALS);
  // Of anything but memory only what is known without asking its file system, which may be a process that never
  // answers.
  struct statx known {};
  constexpr unsigned kWanted = STATX_TYPE | STATX_SIZE | STATX_BLOCKS;
  if (FAILPOINT_ERRNO("regions/examine", EIO, statx(file, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, kWanted, &known)) !=
      0) {
    return absl::InvalidArgumentError(absl::StrCat("descriptor: cannot be examined: ", std::strerror(errno)));
  }
  Memory memory{.bytes = static_cast<std::int64_t>(known.stx_size),
                .memory = seals >= 0,
                .writable = (flags & O_ACCMODE) == O_RDWR,
                .constant = seals >= 0 && (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0};
  if (!memory.memory) {
    const bool disk_file = S_ISREG(known.stx_mode);
    if (disk_file && allow_disk_files) return memory;
    return absl::InvalidArgumentError(
        absl::StrCat("descriptor: got ", KindOf(known.stx_mode), "; allowed: memfds, POSIX shared memory",
                     disk_file ? ", and files on disk if the server runs with --allow_disk_files" : ""));
  }
  struct statfs system;
  if (fstatfs(file, &system) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("descriptor: cannot be examined: ", std::strerror(errno)));
  }
  memory.stays = (seals & F_SEAL_SHRINK) != 0 && memory.constant;
  memory.huge_pages = static_cast<std::uint64_t>(system.f_type) == HUGETLBFS_MAGIC;
  memory.holes = static_cast<std::int64_t>(known.stx_blocks) * 512 < memory.bytes ||
                 (memory.stays && !memory.huge_pages && HasHoles(file, memory.bytes));
  return memory;
}

const char* WhyNotMapped(const Memory& memory) {
  if (!memory.stays) return "memory that is not sealed";
  if (memory.bytes == 0) return "empty memory";
  if (memory.holes) return "memory with holes";
  return nullptr;
}

const char* WhyNotWritable(const Memory& memory) {
  if (!memory.memory) return "a file on disk";
  if (memory.huge_pages) return "memory of huge pages";
  if (!memory.writable) return "a descriptor that is not open for writing";
  if (memory.constant) return "memory that is sealed against writing";
  if (memory.bytes == 0) return "empty memory";
  if (memory.holes) return "memory with holes";
  return nullptr;
}

}  // namespace reduced::server

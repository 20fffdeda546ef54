// Descriptors that other processes send: what arrives with a packet, what is behind a descriptor, and whether it can be
// mapped. Nothing here waits, neither for a sender nor for a file system.
#ifndef REDUCED_SERVER_SOURCES_DESCRIPTORS_H_
#define REDUCED_SERVER_SOURCES_DESCRIPTORS_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace reduced::server {

inline constexpr std::size_t kMaxPacketBytes = 4096;

// A packet and the descriptors that came with it, which the receiver has to close.
struct Packet {
  std::string text;
  std::vector<int> files;
  bool end = false;  // of the connection: there is no packet
  bool cut = false;  // there was more text
  // There were more descriptors, for which this process has no place. The packet is still in the socket's queue: if it
  // is discarded, the kernel closes them, which may take any time.
  bool files_lost = false;
};

// The next packet of a Unix socket of type SOCK_SEQPACKET with SO_PASSCRED, by which it tells an empty packet from the
// end. UNAVAILABLE: there is none yet.
absl::StatusOr<Packet> Receive(int socket);

// Sends a packet with copies of the descriptors, at most two, unless it would have to wait. What send() returns.
ssize_t Send(int socket, const std::string& text, const std::vector<int>& files);

// Whether such a socket, which is shut down, still has packets that were sent before.
bool HasPackets(int socket);

// Whether the descriptor is of memory (memfd, POSIX shared memory, huge pages), so that neither its use nor its close
// involves a file system.
bool IsMemory(int file);

// What is behind a descriptor.
struct Memory {
  std::int64_t bytes = 0;
  bool memory = false;      // not a file on disk
  bool writable = false;    // the descriptor is open for writing
  bool constant = false;    // nothing can be written to it through a descriptor
  bool stays = false;       // it can't shrink, and nobody can punch a hole into it
  bool holes = false;       // some page of it doesn't exist
  bool huge_pages = false;  // whose holes may be faults
};

// INVALID_ARGUMENT: the descriptor isn't of memory, or can't be read.
absl::StatusOr<Memory> Examine(int file, bool allow_disk_files);

// INVALID_ARGUMENT: the descriptor is neither of a device nor of memory. So it is none of CUDA's, and CUDA must not be
// asked about it, who would ask its file system.
absl::Status CheckDevice(int file);

// What keeps the memory from being mapped, so that reading it neither faults nor allocates memory, whatever its owner
// does. Null: nothing.
const char* WhyNotMapped(const Memory& memory);

// What keeps results from being written to the memory through a mapping. Null: nothing.
const char* WhyNotWritable(const Memory& memory);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_SOURCES_DESCRIPTORS_H_

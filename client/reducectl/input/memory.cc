#include "client/reducectl/input/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <fstream>
#include <limits>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/system/status_macros.h"

namespace reduced::client {

absl::string_view Memory::bytes() const {
  if (const SharedBuffer* const buffer = shared()) return {static_cast<const char*>(buffer->data()), size_};
  if (const auto* const words = std::get_if<std::vector<std::uint64_t>>(&owner_)) {
    return {reinterpret_cast<const char*>(words->data()), words->size() * sizeof(std::uint64_t)};
  }
  if (const auto* const borrowed = std::get_if<Borrowed>(&owner_)) return borrowed->bytes;
  return std::get<std::string>(owner_);
}

absl::StatusOr<Memory> Memory::Map(const std::string& path) {
  const auto failed = [](const char* what) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": ", std::strerror(errno)));
  };
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return failed("can't be opened");
  const absl::Cleanup close_file = [fd] { close(fd); };
  struct stat file {};
  if (fstat(fd, &file) != 0) return failed("can't be read");
  const auto size = static_cast<std::size_t>(file.st_size);
  if (size == 0) return Memory();
  void* const data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED) return failed("can't be mapped");
  madvise(data, size, MADV_SEQUENTIAL);
  const std::shared_ptr<const void> owner(data, [size](const void* at) { munmap(const_cast<void*>(at), size); });
  return Memory(owner, {static_cast<const char*>(data), size});
}

absl::StatusOr<Memory> Memory::Of(Memory memory, Hold hold) {
  if (hold != Hold::kShare || memory.shared() != nullptr) return memory;
  const absl::string_view bytes = memory.bytes();
  ASSIGN_OR_RETURN(SharedBuffer buffer, SharedBuffer::Allocate(static_cast<std::int64_t>(bytes.size())));
  std::copy(bytes.begin(), bytes.end(), static_cast<char*>(buffer.data()));
  return Memory(std::move(buffer), bytes.size());
}

absl::StatusOr<Memory> Memory::Allocate(std::int64_t bytes, bool share) {
  if (share) {
    ASSIGN_OR_RETURN(SharedBuffer buffer, SharedBuffer::Allocate(bytes));
    return Memory(std::move(buffer), static_cast<std::size_t>(bytes));
  }
  try {
    std::string own;
    own.resize(static_cast<std::size_t>(bytes));
    return Memory(std::move(own));
  } catch (const std::exception&) {  // std::bad_alloc, std::length_error
    return absl::ResourceExhaustedError("is too large for the memory of this process");
  }
}

std::int64_t AvailableMemory() {
  std::ifstream file("/proc/meminfo");  // "MemAvailable:   24657412 kB"
  std::int64_t limit = std::numeric_limits<std::int64_t>::max();
  for (std::string line; std::getline(file, line);) {
    std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    std::int64_t kib = 0;
    if (words.size() > 1 && words[0] == "MemAvailable:" && absl::SimpleAtoi(words[1], &kib)) limit = kib << 10;
  }
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::int64_t bytes = 0;
    if (std::ifstream(path) >> bytes) limit = std::min(limit, bytes);
  }
  rlimit space{};
  if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur < static_cast<rlim_t>(limit)) {
    limit = static_cast<std::int64_t>(space.rlim_cur);
  }
  return limit;
}

std::int64_t UnsizedLimit() { return AvailableMemory() / 3; }

}  // namespace reduced::client

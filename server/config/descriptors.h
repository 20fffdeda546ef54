// The file descriptors of this process, and what of them is for which purpose.
#ifndef REDUCED_SERVER_CONFIG_DESCRIPTORS_H_
#define REDUCED_SERVER_CONFIG_DESCRIPTORS_H_

#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <system_error>

namespace reduced::server {

// How many this process may have (RLIMIT_NOFILE), at most 2^24.
inline int DescriptorLimit() {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  return static_cast<int>(std::min<rlim_t>(files.rlim_cur, 1 << 24));
}

// How many it has; 0 if /proc is not mounted.
inline int OpenDescriptors() {
  std::error_code error;
  const std::filesystem::directory_iterator files("/proc/self/fd", error);
  return error ? 0 : static_cast<int>(std::distance(files, std::filesystem::directory_iterator()));
}

// How many of `limit` no connection of a client gets, so that monitoring is answered, and files can be read, whatever
// clients do.
inline int SpareDescriptors(int limit) { return std::clamp(limit / 4, 8, 64); }

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CONFIG_DESCRIPTORS_H_

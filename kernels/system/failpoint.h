// Failpoints: places where a test, or a test run of the server, makes happen what the system seldom does.
//
//   const int file = FAILPOINT_ERRNO("regions/accept", EMFILE, accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
//   if (FAILPOINT("read/shrunk")) ...                           // true where the fault happens now
//   failpoint::Armed fault("regions/accept", {.times = 1});     // in a test: the next accept4 fails, once
//   REDUCED_FAILPOINTS='regions/accept=0.01,log/write=0.5;seed=7' reduced ...
//
// A failpoint stands where the system is called, so that what handles the error is what runs. It costs one relaxed load
// while it is not armed, and only builds with the CMake option REDUCED_FAILPOINTS can arm one: others link
// no_failpoints.cc in place of failpoint.cc. All other sources are compiled the same for both, so that ccache knows
// them. To add one: a row of kNames, the place, and what makes it fire in the test that lists them all
// (tests/service/failpoints_test.cc, or tests/fake_cuda/faults_test.cc for those of cuda/).
#ifndef REDUCED_KERNELS_SYSTEM_FAILPOINT_H_
#define REDUCED_KERNELS_SYSTEM_FAILPOINT_H_

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace reduced::failpoint {

// Every failpoint, by what fails there.
inline constexpr std::array kNames = std::to_array<std::string_view>({
    "acceptor/accept",      // accept4: EMFILE
    "acceptor/reserve",     // opening the spare descriptor, which accepts a connection when no other is left
    "acceptor/socket",      // the socket that shows that there are descriptors again
    "cpu/block_buffer",     // allocation of what a part of a file is read into
    "cpu/map",              // mmap of a resident array, or of a rung's scratch memory
    "cuda/allocate_array",  // device memory of a resident array
    "cuda/copy",            // the transfer of a chunk
    "cuda/event",           // CUDA's answer whether an event has passed
    "cuda/hang",            // a kernel never ends: its wait takes until the failpoint is disarmed
    "cuda/launch",          // a kernel's launch
    "cuda/lost",            // the device, for good
    "cuda/open",            // an IPC handle
    "cuda/pin",             // host memory of a region cannot be registered
    "cuda/scratch",         // device memory of a rung
    "cuda/slab",            // pinned memory for uploads
    "http/write",           // the client of a page has gone
    "ladder/map",           // mmap of a generated array
    "ladder/thread",        // a thread that generates one cannot be started
    "listener/bind",        // bind: EADDRINUSE
    "log/write",            // ENOSPC
    "memory/cgroup",        // the limits of the control group cannot be read
    "read/open",            // open of a small file: flags, tokens, certificates
    "read/pread",           // EIO
    "read/read",            // of a small file: EIO
    "read/short",           // pread gives one byte
    "read/shrunk",          // pread finds the end of the file
    "ready_file/write",     // ENOSPC
    "regions/accept",       // accept4: EMFILE
    "regions/examine",      // statx: EIO
    "regions/files_lost",   // no descriptor is left for those of a packet
    "regions/helper",       // the process that closes descriptors cannot be started
    "regions/map",          // mmap: ENOMEM
    "regions/poll",         // ppoll: EINTR
    "regions/receive",      // recvmsg: ENOBUFS
    "regions/send",         // a client that does not read its replies: EAGAIN
    "regions/socketpair",   // EMFILE
    "results/copy",         // the region that results are copied to has shrunk: EFAULT
    "results/memory",       // memfd_create: EMFILE
    "ring/doorbell",        // eventfd: EMFILE
    "ring/epoll",           // epoll_ctl: ENOSPC
    "ring/map",             // mmap: ENOMEM
    "ring/memory",          // memfd_create: EMFILE
    "staging/allocate",     // host memory in which an upload's elements are collected
});

// The position of a name in kNames. An unknown name does not compile.
consteval std::size_t IndexOf(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return i;
  }
  throw "a failpoint that is not in kNames";
}

// When an armed failpoint fires.
struct Plan {
  std::int64_t after = 0;                                         // passes before the first that may fire
  std::int64_t times = std::numeric_limits<std::int64_t>::max();  // it fires at most
  double probability = 1;                                         // of each pass after those
  std::uint64_t seed = 1;                                         // of the choice
};

inline std::array<std::atomic<bool>, kNames.size()> armed{};
bool Pass(std::size_t index);  // an armed one: whether it fires

// Whether the fault happens now. Thread-safe.
inline bool Fires(std::size_t index) { return armed[index].load(std::memory_order_relaxed) && Pass(index); }

inline bool SetErrno(int error) { return errno = error, true; }

// Arms a failpoint of kNames, which nothing else has armed, until it is destroyed. The process ends if there is none of
// that name.
class Armed {
 public:
  explicit Armed(std::string_view name, const Plan& plan = {});
  ~Armed();
  Armed(const Armed&) = delete;
  Armed& operator=(const Armed&) = delete;

 private:
  const std::size_t index_;
};

// How often the failpoint of that name has fired in this process. Thread-safe.
std::int64_t Fired(std::string_view name);

// Arms what the text, as in REDUCED_FAILPOINTS, says, until the process ends: `NAME=PROBABILITY,...[;seed=N]`.
// INVALID_ARGUMENT: it is something else.
absl::Status ArmAll(std::string_view text);

// ArmAll of the environment's REDUCED_FAILPOINTS, which is returned; empty: there is none, or this build arms none.
absl::StatusOr<std::string> ArmFromEnvironment();

#define FAILPOINT(name) ::reduced::failpoint::Fires(::reduced::failpoint::IndexOf(name))

// `call`, or -1 with this errno where the fault happens.
#define FAILPOINT_ERRNO(name, error, call) (FAILPOINT(name) && ::reduced::failpoint::SetErrno(error) ? -1 : (call))

}  // namespace reduced::failpoint

#endif  // REDUCED_KERNELS_SYSTEM_FAILPOINT_H_

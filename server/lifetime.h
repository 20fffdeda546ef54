// The life of a process that serves, from when it does until its exit status.
#ifndef REDUCED_SERVER_LIFETIME_H_
#define REDUCED_SERVER_LIFETIME_H_

#include <csignal>

#include "absl/time/time.h"
#include "server/server.h"

namespace reduced::server {

inline constexpr int kDeviceFailed = 2;  // exit status: a device failed, for good

// SIGTERM and SIGINT, blocked for this thread and those that it starts: call it before there are others.
sigset_t BlockStopSignals();

// Until one of them comes, or a device fails.
//
//   A signal: health says NOT_SERVING; after drain_delay new requests are refused; what runs has drain_timeout to
//   finish; gives 0. A second signal ends the process at once. What hangs ends it with 1, 5 seconds after
//   drain_timeout. A failure, before a signal or after: health says NOT_SERVING and new requests are refused; what runs
//   elsewhere has a moment to finish; ends the process with kDeviceFailed, within 5 seconds whatever hangs.
// From a signal on a thread looks on until the process ends: it is about to.
int ServeUntilStopped(Server& server, const sigset_t& stop, absl::Duration drain_delay, absl::Duration drain_timeout);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_LIFETIME_H_

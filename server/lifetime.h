// The lifetime of the process of a server: from its start until its exit status.
#ifndef REDUCED_SERVER_LIFETIME_H_
#define REDUCED_SERVER_LIFETIME_H_

#include <csignal>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/server.h"

namespace reduced::server {

inline constexpr int kDeviceFailed = 2;  // exit status after a device failed permanently

// Blocks SIGTERM, SIGINT and SIGHUP for this thread and the threads that it starts, and returns those that stop a
// server: SIGTERM and SIGINT. Call it before other threads start.
sigset_t BlockStopSignals();

// Logs that a device hangs, and ends the process with kDeviceFailed: for EngineOptions.on_hang.
void EndHung(const absl::Status& why);

// Serves until a signal of `stop` arrives, or a device fails. SIGHUP makes it read certificates and tokens again.
//
//   Signal: health becomes NOT_SERVING; after drain_delay clients are sent elsewhere; running requests have
//   drain_timeout to finish; returns 0. A second signal ends the process at once. If something hangs, the process exits
//   with 1, 5 seconds after drain_timeout. Device failure, before or after a signal: health becomes NOT_SERVING, and
//   new requests are refused; requests on other devices have 2 seconds to finish; the process exits with kDeviceFailed
//   within 5 seconds, even if something hangs.
//
// After a signal a thread watches until the process ends, which it assumes to happen soon.
int ServeUntilStopped(Server& server, const sigset_t& stop, absl::Duration drain_delay, absl::Duration drain_timeout);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_LIFETIME_H_

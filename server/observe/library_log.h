// The messages of gRPC and libprotobuf, as lines of the log.
#ifndef REDUCED_SERVER_OBSERVE_LIBRARY_LOG_H_
#define REDUCED_SERVER_OBSERVE_LIBRARY_LOG_H_

namespace reduced::server {

// From now on what these libraries say goes to spdlog's default logger instead of standard error. Errors are warnings
// there, because a client that breaks the protocol causes them, and limited in number as repeats.h says; all else is
// debug. Call it before other threads start.
void LogLibraries();

}  // namespace reduced::server

#endif  // REDUCED_SERVER_OBSERVE_LIBRARY_LOG_H_

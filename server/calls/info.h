// What a server is, has, can do and allows, as GetServerInfo tells it.
#ifndef REDUCED_SERVER_CALLS_INFO_H_
#define REDUCED_SERVER_CALLS_INFO_H_

#include "reduced/v1/reduced.pb.h"
#include "server/calls/backend.h"

namespace reduced::server {

// Fills an empty `info`. Thread-safe; how busy the devices are is as of this call.
void FillServerInfo(const Backend& backend, v1::GetServerInfoResponse* info);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_INFO_H_

// The line of the log for a call.
#ifndef REDUCED_SERVER_OBSERVE_CALL_LINE_H_
#define REDUCED_SERVER_OBSERVE_CALL_LINE_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "server/observe/call_record.h"

namespace reduced::server {

// Longest text of an error in a line; the rest is cut.
inline constexpr std::size_t kMaxErrorBytes = 500;

// `text` as one line of ASCII: unprintable bytes are escaped, and text beyond max_bytes is replaced by "...".
std::string Printable(std::string_view text, std::size_t max_bytes);

// "reduce request_id=... caller=alice peer=... dtype=f32 count=4 ops=sum status=OK engine=cpu total_us=12.3
// kernel_us=1.0". caller: its identity, in which spaces, backslashes and unprintable bytes are escaped; omitted if it
// has none. peer: "ipv4:192.0.2.1:1234" or, of a Unix socket, "unix:uid=1000". server_us: what the server took of
// total_us, if it waited for the client. `peer`: of the call, as Security::ExactPeerOf.
std::string TextLine(const CallRecord& record, std::string_view peer = {});

// The same as the members of a JSON object, without its braces.
std::string JsonMembers(const CallRecord& record, std::string_view peer = {});

}  // namespace reduced::server

#endif  // REDUCED_SERVER_OBSERVE_CALL_LINE_H_

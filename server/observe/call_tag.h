// Request ids and trace parents: which ones of clients are valid, and the ids that the server generates.
#ifndef REDUCED_SERVER_OBSERVE_CALL_TAG_H_
#define REDUCED_SERVER_OBSERVE_CALL_TAG_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace reduced::server {

inline constexpr char kRequestIdKey[] = "x-request-id";   // of the metadata and the trailer
inline constexpr char kTraceparentKey[] = "traceparent";  // of the metadata
inline constexpr std::size_t kMaxRequestIdBytes = 64;

// 1 to kMaxRequestIdBytes letters, digits and "-_.:/+=@", which need no escaping anywhere.
bool IsRequestId(std::string_view text);

// The traceparent header of W3C Trace Context: version, trace id, parent id and flags in lower-case hexadecimal, with
// both ids nonzero. Versions after 00 may append more after a hyphen; version ff is invalid.
bool IsTraceparent(std::string_view text);

// Generates ids that are unique across servers. Thread-safe.
class RequestIds {
 public:
  RequestIds();
  std::string Next();  // a random prefix of the server and a count; no system call

 private:
  const std::string prefix_;
  std::atomic<std::uint64_t> generated_ = 0;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_OBSERVE_CALL_TAG_H_

// Request ids and trace parents: what a client may say, and what the server makes where it says nothing.
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

// 1 to kMaxRequestIdBytes letters, digits and "-_.:/+=@": what needs no escaping anywhere.
bool IsRequestId(std::string_view text);

// The header of W3C Trace Context: version, trace id, parent id and flags in lower-case hexadecimal, neither id zero.
// Versions later than 00 may have more after a hyphen; the version ff is not one.
bool IsTraceparent(std::string_view text);

// Makes ids that no other call has, of this server or another. Thread-safe.
class RequestIds {
 public:
  RequestIds();
  std::string Next();  // without a system call: a random part of the server's, and a count

 private:
  const std::string prefix_;
  std::atomic<std::uint64_t> made_ = 0;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_OBSERVE_CALL_TAG_H_

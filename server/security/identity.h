// Identities: the names of callers, as tokens or client certificates prove them. An anonymous caller has the identity
// "".
#ifndef REDUCED_SERVER_SECURITY_IDENTITY_H_
#define REDUCED_SERVER_SECURITY_IDENTITY_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace reduced::server {

// Longest identity, and longest owner that a client may name.
inline constexpr std::size_t kMaxIdentityBytes = 64;

// Who makes a call.
struct Caller {
  Caller() = default;
  // `peer`: as Security::PeerOf.
  explicit Caller(std::string of, std::string peer = "");

  std::string identity;   // empty: anonymous
  std::string account;    // who pays for what the call uses: "identity 'alice'" or, of an anonymous caller, the peer
  std::uint64_t key = 0;  // of the account, as Job::caller
};

// The owner of an array of which a request says that `owner` owns it: for an identified caller always the caller, for
// an anonymous one what the request says. PERMISSION_DENIED: an identified caller named another owner.
absl::StatusOr<std::string> OwnerFor(absl::string_view owner, absl::string_view caller);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_SECURITY_IDENTITY_H_

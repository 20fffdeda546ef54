#include "server/security/identity.h"

#include <utility>

#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/system/quoted.h"

namespace reduced::server {

Caller::Caller(std::string of, std::string peer)
    : identity(std::move(of)),
      account(identity.empty() ? std::move(peer) : absl::StrCat("identity ", Quoted(identity))),
      key(absl::HashOf(account)) {}

absl::StatusOr<std::string> OwnerFor(absl::string_view owner, absl::string_view caller) {
  if (caller.empty() || owner == caller) return std::string(owner);
  if (owner.empty()) return std::string(caller);
  return absl::PermissionDeniedError(
      absl::StrFormat("owner: got %s; allowed: your identity, %s", Quoted(owner), Quoted(caller)));
}

}  // namespace reduced::server

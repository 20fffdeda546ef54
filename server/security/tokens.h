// Bearer tokens: who may call, and by which name. The file has hashes only, so that reading it lets nobody in.
//
//   # identity   SHA-256 of the token: printf %s "$token" | sha256sum
//   alice        5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8
//
// Anything after a # is a comment. One identity may have several tokens, so that they can be changed without a gap.
#ifndef REDUCED_SERVER_SECURITY_TOKENS_H_
#define REDUCED_SERVER_SECURITY_TOKENS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace reduced::server {

// Immutable.
class Tokens {
 public:
  // INVALID_ARGUMENT, naming `file` and the line, but quoting none of it: someone may have put a token there. A file
  // without any token is an error, too.
  static absl::StatusOr<Tokens> Parse(absl::string_view text, absl::string_view file);

  // Whose token it is that the value of the metadata `authorization` has, "Bearer <token>"; null: nobody's. What is
  // compared is digests, in constant time.
  const std::string* IdentityOf(absl::string_view authorization) const;

  std::size_t size() const { return identities_.size(); }

 private:
  using Digest = std::array<std::uint8_t, 32>;
  static Digest DigestOf(absl::string_view token);
  // Which slots are looked at depends on the digest of what the caller sent, which it knows; the digests in them don't
  // show in the time that comparing takes.
  struct SameInConstantTime {
    bool operator()(const Digest& a, const Digest& b) const;
  };
  absl::flat_hash_map<Digest, std::string, absl::Hash<Digest>, SameInConstantTime> identities_;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_SECURITY_TOKENS_H_

// Bearer tokens: which callers are allowed, and their identities. The file has only hashes, so that who reads it learns
// no token.
//
//   # identity   SHA-256 of the token: printf %s "$token" | sha256sum
//   alice        5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8
//
// A # begins a comment. One identity may have several tokens, so that a token can be replaced without downtime.
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
  // INVALID_ARGUMENT: names `file` and the line, but does not quote it, since it may contain a token. A file without
  // tokens is none: it has size() 0, and no identity.
  static absl::StatusOr<Tokens> Parse(absl::string_view text, absl::string_view file);

  // The identity of the token in the metadata value `authorization`, "Bearer <token>"; null: an unknown token. Digests
  // are compared, in constant time.
  const std::string* IdentityOf(absl::string_view authorization) const;

  std::size_t size() const { return identities_.size(); }

 private:
  using Digest = std::array<std::uint8_t, 32>;
  static Digest DigestOf(absl::string_view token);
  // The caller's own digest determines which slots are compared, so that timing reveals nothing about the digests in
  // them.
  struct SameInConstantTime {
    bool operator()(const Digest& a, const Digest& b) const;
  };
  absl::flat_hash_map<Digest, std::string, absl::Hash<Digest>, SameInConstantTime> identities_;
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_SECURITY_TOKENS_H_

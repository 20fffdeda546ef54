#include "server/security/tokens.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "server/security/identity.h"

namespace reduced::server {
namespace {

constexpr absl::string_view kScheme = "bearer ";
constexpr std::size_t kMaxAuthorizationBytes = 8192;  // longer values are not hashed

}  // namespace

bool Tokens::SameInConstantTime::operator()(const Digest& a, const Digest& b) const {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Tokens::Digest Tokens::DigestOf(absl::string_view token) {
  Digest digest{};
  static const EVP_MD* const sha256 = EVP_MD_fetch(nullptr, "SHA256", nullptr);  // once: it takes a lock
  unsigned int size = 0;
  if (EVP_Digest(token.data(), token.size(), digest.data(), &size, sha256, nullptr) != 1 || size != digest.size()) {
    std::abort();  // without SHA-256 there is no OpenSSL
  }
  return digest;
}

absl::StatusOr<Tokens> Tokens::Parse(absl::string_view text, absl::string_view file) {
  Tokens tokens;
  int number = 0;
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--token_file: %s:%d: %s; allowed: an identity and the SHA-256 of its token in 64 hexadecimal "
                        "digits, as sha256sum prints it",
                        absl::CHexEscape(file), number, what));
  };
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    const absl::string_view content = line.substr(0, line.find('#'));
    const std::vector<absl::string_view> words =
        absl::StrSplit(content, absl::ByAnyChar(" \t\r\v\f"), absl::SkipEmpty());
    if (words.empty()) continue;
    if (words.size() != 2) return wrong(absl::StrFormat("got %d words", words.size()));
    const absl::string_view identity = words[0];
    const auto printable = [](unsigned char c) { return absl::ascii_isgraph(c); };
    if (identity.size() > kMaxIdentityBytes || !std::all_of(identity.begin(), identity.end(), printable)) {
      return wrong(absl::StrFormat("the identity is not 1 to %d printable ASCII characters", kMaxIdentityBytes));
    }
    const auto hexadecimal = [](unsigned char c) { return absl::ascii_isxdigit(c); };
    if (words[1].size() != 2 * Digest().size() || !std::all_of(words[1].begin(), words[1].end(), hexadecimal)) {
      return wrong("the second word is not 64 hexadecimal digits");
    }
    const std::string bytes = absl::HexStringToBytes(words[1]);
    Digest digest;
    std::copy(bytes.begin(), bytes.end(), digest.begin());
    const auto [added, is_new] = tokens.identities_.try_emplace(digest, identity);
    if (!is_new && added->second != identity) return wrong("another identity has the same token");
  }
  return tokens;
}

const std::string* Tokens::IdentityOf(absl::string_view authorization) const {
  if (authorization.size() > kMaxAuthorizationBytes || !absl::StartsWithIgnoreCase(authorization, kScheme)) {
    return nullptr;
  }
  const auto found = identities_.find(DigestOf(authorization.substr(kScheme.size())));
  return found == identities_.end() ? nullptr : &found->second;
}

}  // namespace reduced::server

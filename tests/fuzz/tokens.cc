// Files of tokens. The input is a caller's authorization, a line feed, and the file.
#include "server/security/tokens.h"

#include <cctype>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/security/identity.h"
#include "tests/fuzz/fuzz.h"

namespace reduced::fuzz {

FUZZ_TARGET(tokens) {
  const std::string authorization(input.TakeUntil('\n'));
  const auto tokens = server::Tokens::Parse(input.rest(), "tokens");
  RequirePrintableError(tokens.status());
  if (!tokens.ok()) {
    // The error says nothing of what may be a token.
    for (const absl::string_view word :
         absl::StrSplit(input.rest(), absl::ByAnyChar(" \t\r\v\f\n"), absl::SkipEmpty())) {
      Require(word.size() < 16 || tokens.status().message().find(word) == absl::string_view::npos,
              "an error does not quote the file", tokens.status().message());
    }
    return;
  }
  if (const std::string* const identity = tokens->IdentityOf(authorization)) {
    Require(!identity->empty() && identity->size() <= server::kMaxIdentityBytes, "an identity is short");
    Require(input.rest().find(*identity) != absl::string_view::npos, "an identity is one of the file");
  }
  Require(tokens->IdentityOf("") == nullptr && tokens->IdentityOf("Bearer ") == nullptr, "no token is no identity");
}

}  // namespace reduced::fuzz

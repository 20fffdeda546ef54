// The files of a TLS server: its certificate and key, and who may sign those of its clients.
#ifndef REDUCED_SERVER_SECURITY_TLS_FILES_H_
#define REDUCED_SERVER_SECURITY_TLS_FILES_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace reduced::server {

// What the files say, all in PEM, and checked.
struct TlsFiles {
  std::string certificates;  // the server's own first, then those between it and a root
  std::string key;           // of the first
  std::string client_ca;     // certificates that sign clients'; empty: clients need none

  bool operator==(const TlsFiles& other) const = default;
};

// INVALID_ARGUMENT, naming the flag and the file: one that can't be read or isn't PEM of that kind, a key that is
// encrypted or isn't the certificate's, or what OpenSSL won't use, as too short a key. `client_ca` may be empty.
absl::StatusOr<TlsFiles> ReadTlsFiles(const std::string& cert, const std::string& key, const std::string& client_ca);

// When the server's certificate ends.
absl::Time ExpiryOf(const TlsFiles& files);

// All of the file that `flag` names. INVALID_ARGUMENT, naming both: it can't be read or has more than 4 MiB.
absl::StatusOr<std::string> ReadFlagFile(absl::string_view flag, const std::string& path);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_SECURITY_TLS_FILES_H_

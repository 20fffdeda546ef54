// The files of a TLS server: its certificate and key, and the certificates that sign its clients' certificates.
#ifndef REDUCED_SERVER_SECURITY_TLS_FILES_H_
#define REDUCED_SERVER_SECURITY_TLS_FILES_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace reduced::server {

// The contents of the files, in PEM, validated.
struct TlsFiles {
  std::string certificates;  // the server's own first, then its intermediates
  std::string key;           // of the first
  std::string client_ca;     // certificates that sign clients' certificates; empty: clients need none

  bool operator==(const TlsFiles& other) const = default;
};

// Reads and validates the files. `client_ca` may be empty. INVALID_ARGUMENT: names the flag and the file, which can't
// be read, is not PEM of that kind, is an encrypted key or not the certificate's key, or which OpenSSL rejects (a key
// that is too short, for example).
absl::StatusOr<TlsFiles> ReadTlsFiles(const std::string& cert, const std::string& key, const std::string& client_ca);

// When the server's certificate expires.
absl::Time ExpiryOf(const TlsFiles& files);

// Logs a warning if the permissions of the file that `flag` names let any user of the machine write it or, if it is
// `secret`, read it. An empty path names none.
void WarnOfPermissions(absl::string_view flag, const std::string& path, bool secret);

// The contents of the file that `flag` names. INVALID_ARGUMENT: names both; it can't be read or exceeds 4 MiB.
absl::StatusOr<std::string> ReadFlagFile(absl::string_view flag, const std::string& path);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_SECURITY_TLS_FILES_H_

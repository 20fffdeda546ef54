// Who may connect, who a call comes from, and what keeps that up to date.
//
//   1. Load reads the certificates and the tokens; anything wrong with them is an error, and the server doesn't start.
//   2. CredentialsFor gives each listener what gRPC needs: TLS for TCP, if there are certificates, and, if there are
//      tokens, a check of every call before any service sees it: those of health and reflection, too, and those of
//      methods that don't exist.
//   3. CallerOf tells a service whose call it has: the token's identity, else the common name of the certificate that
//      the client presented, else "", nobody in particular.
//   4. A thread reads the files again from time to time. What has changed and is right is used from then on: tokens for
//      the next call, certificates for the next connection. What is wrong is logged, and what there was stays.
#ifndef REDUCED_SERVER_SECURITY_SECURITY_H_
#define REDUCED_SERVER_SECURITY_SECURITY_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_context.h"
#include "server/config/listener.h"
#include "server/security/quotas.h"
#include "server/security/tls_files.h"
#include "server/security/tokens.h"

namespace reduced::server {

struct SecurityOptions {
  // Files in PEM. With a certificate, which needs its key, TCP listeners speak TLS only; Unix sockets never do. With
  // client_ca, their clients must have a certificate that it signed.
  std::string tls_cert{};
  std::string tls_key{};
  std::string tls_client_ca{};
  std::string token_file{};  // see tokens.h; with one, every call needs a token
  bool open_health = false;
  bool allow_plaintext = false;  // on TCP addresses beyond loopback
  absl::Duration credentials_refresh = absl::Seconds(10);
  // Of each identity, at once; 0: any number.
  std::int64_t max_identity_requests = 0;
  std::int64_t max_identity_array_bytes = 0;
};

// OK, or INVALID_ARGUMENT naming the flag: what can be seen without reading a file.
absl::Status ValidateSecurity(const SecurityOptions& options);

// Thread-safe. Outlives the gRPC servers that have its credentials.
class Security {
 public:
  // INVALID_ARGUMENT: as ReadTlsFiles and Tokens::Parse.
  static absl::StatusOr<std::unique_ptr<Security>> Load(const SecurityOptions& options);
  ~Security();
  Security(const Security&) = delete;
  Security& operator=(const Security&) = delete;

  // Not after the server that they are for has started. FAILED_PRECONDITION: plaintext that isn't allowed.
  absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> CredentialsFor(const ListenAddress& address);

  // False: every caller is nobody in particular.
  bool has_identities() const { return !options_.token_file.empty() || !options_.tls_client_ca.empty(); }
  // UNAUTHENTICATED: the token isn't known any more, or the certificate's common name is too long.
  absl::StatusOr<std::string> CallerOf(const grpc::ServerContextBase& context) const;
  // Another number than before: who was known may not be any more.
  std::uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

  // Calls so far that had no token that is known, and that no service saw therefore.
  std::uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }

  Quotas& quotas() { return quotas_; }

 private:
  struct TlsFeed;
  struct TokenCheck;

  explicit Security(const SecurityOptions& options);
  void Refresh();
  void RefreshTls();
  void RefreshTokens();
  void WarnOfExpiry();
  void KeepFresh();
  const std::string* IdentityOf(absl::string_view authorization) const;
  std::shared_ptr<const Tokens> tokens() const;
  std::shared_ptr<const TlsFiles> tls() const;

  const SecurityOptions options_;
  Quotas quotas_;
  std::vector<std::unique_ptr<TlsFeed>> feeds_;
  std::atomic<std::uint64_t> generation_;           // of tokens_; no two in a process are the same
  mutable std::atomic<std::uint64_t> refused_ = 0;  // see refused()

  // Of the thread, once it runs.
  std::string last_token_text_;  // as last read, right or wrong
  std::string last_error_tls_;   // that was logged; empty: none
  std::string last_error_tokens_;
  absl::Time warned_of_ = absl::InfinitePast();  // the expiry that the last warning told
  absl::Time warned_ = absl::InfinitePast();
  bool warned_expired_ = false;

  mutable absl::Mutex mutex_;
  std::shared_ptr<const TlsFiles> tls_ ABSL_GUARDED_BY(mutex_);   // null: plaintext
  std::shared_ptr<const Tokens> tokens_ ABSL_GUARDED_BY(mutex_);  // null: calls need none
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread refreshing_;  // last: uses the rest
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_SECURITY_SECURITY_H_

// Authentication: who may connect, and whose call it is. Certificates and tokens are reloaded while the server runs.
//
//   1. Load reads the certificates and the tokens. An error in them is an error of the server's start.
//   2. CredentialsFor gives each listener its gRPC credentials: TLS for TCP, if there are certificates, and, if there
//      are tokens, a check of every call before any service sees it, including calls of health, of reflection and of
//      methods that don't exist.
//   3. CallerOf returns the identity of a call: that of its token, else the common name of the client's certificate,
//      else "" for an anonymous caller.
//   4. A thread reloads the files periodically, and when Reload asks for it. Valid changes apply from the next call
//      (tokens) or the next connection (certificates). Invalid ones are logged, and the previous contents stay in use.
#ifndef REDUCED_SERVER_SECURITY_SECURITY_H_
#define REDUCED_SERVER_SECURITY_SECURITY_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
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
#include "server/config/options.h"
#include "server/security/peers.h"
#include "server/security/quotas.h"
#include "server/security/tls_files.h"
#include "server/security/tokens.h"

namespace reduced::server {

// Thread-safe. Outlives the gRPC servers that have its credentials.
class Security {
 public:
  // INVALID_ARGUMENT: as ReadTlsFiles and Tokens::Parse.
  static absl::StatusOr<std::unique_ptr<Security>> Load(const SecurityOptions& options);
  ~Security();
  Security(const Security&) = delete;
  Security& operator=(const Security&) = delete;

  // The credentials of a listener, before its server starts; it has as many as SlotsFor says: see UnixPeers.
  // FAILED_PRECONDITION: plaintext that is not allowed.
  absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> CredentialsFor(const ListenAddress& address, int slot = 0);
  int SlotsFor(const ListenAddress& address) const;

  // False: every caller is anonymous.
  bool has_identities() const { return !options_.token_file.empty() || !options_.tls_client_ca.empty(); }
  // The identity of the caller. UNAUTHENTICATED: its token was removed meanwhile, or the common name is too long.
  absl::StatusOr<std::string> CallerOf(const grpc::ServerContextBase& context) const;
  // Whether connections to the listener are encrypted.
  bool Encrypts(const ListenAddress& address) const;
  // The peer of a call: "uid 1000", "192.0.2.1", "2001:db8::/64".
  std::string PeerOf(const grpc::ServerContextBase& context) const;
  // The same for people to read: without a limit to how many users of Unix sockets are told apart. Slower.
  std::string ExactPeerOf(const grpc::ServerContextBase& context) const;
  UnixPeers& peers() { return peers_; }
  // Changes when the tokens change: an identity that was found before may not be valid any more.
  std::uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

  // When the server's certificate expires; absent: it has none.
  std::optional<absl::Time> CertificateExpiry() const;
  // Of the kinds of files that there are, "certificates" and "tokens", whether the last reading of them failed, so that
  // the previous contents stay in use.
  std::vector<std::pair<std::string_view, bool>> FailedReloads() const;

  // Calls refused so far for their token, before any service saw them.
  std::uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }

  // Calls `listener` with every call that is refused from now on, from gRPC's threads. Set it before the servers start;
  // it must be valid until they have shut down. `peer`: as PeerOf; empty: it is not known.
  using RefusalListener =
      std::function<void(absl::string_view method, const std::string& peer, const absl::Status& why)>;
  void SetRefusalListener(RefusalListener listener) { on_refused_ = std::move(listener); }

  // Makes the thread reload the files now.
  void Reload();

  Quotas& quotas() { return quotas_; }

 private:
  struct TlsFeed;
  struct TokenCheck;

  explicit Security(const SecurityOptions& options);
  // Reads the files again. Whether what was read is new: a change, an error, or the end of one.
  bool RefreshTls();
  bool RefreshTokens();
  void WarnOfExpiry();
  void WarnOfFiles() const;
  void KeepFresh();
  const std::string* IdentityOf(absl::string_view authorization) const;
  std::shared_ptr<const Tokens> tokens() const;
  std::shared_ptr<const TlsFiles> tls() const;

  const SecurityOptions options_;
  Quotas quotas_;
  UnixPeers peers_;
  RefusalListener on_refused_;
  std::vector<std::unique_ptr<TlsFeed>> feeds_;
  std::atomic<std::uint64_t> generation_;           // of tokens_; unique in the process
  mutable std::atomic<std::uint64_t> refused_ = 0;  // see refused()

  std::atomic<bool> tls_failed_ = false;  // see FailedReloads()
  std::atomic<bool> tokens_failed_ = false;

  // Used by the thread only, once it runs.
  std::string last_token_text_;  // that is in use
  std::string last_error_tls_;   // the last that was logged; empty: none
  std::string last_error_tokens_;
  absl::Time warned_of_ = absl::InfinitePast();  // the expiry in the last warning
  absl::Time warned_ = absl::InfinitePast();
  bool warned_expired_ = false;

  mutable absl::Mutex mutex_;
  std::shared_ptr<const TlsFiles> tls_ ABSL_GUARDED_BY(mutex_);   // null: plaintext
  std::shared_ptr<const Tokens> tokens_ ABSL_GUARDED_BY(mutex_);  // null: calls need none
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool reload_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread refreshing_;  // last: uses the rest
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_SECURITY_SECURITY_H_

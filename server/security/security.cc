#include "server/security/security.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <netdb.h>
#include <netinet/in.h>
#include <openssl/crypto.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "kernels/system/status_macros.h"
#include "server/security/identity.h"
#include "server/security/listener_credentials.h"
#include "spdlog/spdlog.h"

namespace reduced::server {
namespace {

constexpr absl::string_view kAuthorization = "authorization";
constexpr absl::string_view kHealthMethods = "/grpc.health.v1.Health/";
constexpr char kTokenNeeded[] = "this server requires a token: the metadata 'authorization' must be 'Bearer TOKEN'";
constexpr char kTokenUnknown[] = "the token is unknown to this server";
constexpr absl::Duration kExpiresSoon = absl::Hours(7 * 24);
constexpr absl::Duration kWarnAgain = absl::Hours(24);

absl::string_view View(const grpc_slice& slice) {
  return {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)), GRPC_SLICE_LENGTH(slice)};
}

// Whether only this machine can connect to the address. FAILED_PRECONDITION: the name can't be resolved.
absl::StatusOr<bool> IsLoopback(const ListenAddress& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failure = getaddrinfo(address.host.c_str(), nullptr, &hints, &found);
  if (failure != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot listen on ", absl::CHexEscape(address.text), ": ", gai_strerror(failure)));
  }
  const absl::Cleanup free_found = [found] { freeaddrinfo(found); };
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    bool loopback = false;
    if (each->ai_family == AF_INET) {
      const auto* const in = reinterpret_cast<const sockaddr_in*>(each->ai_addr);
      loopback = ntohl(in->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    } else if (each->ai_family == AF_INET6) {
      loopback = IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(each->ai_addr)->sin6_addr);
    }
    if (!loopback) return false;
  }
  return true;
}

// Logs the error of a file that was reloaded, unless it is `last`, which was logged before. Whether it is new.
bool LogOnce(const absl::Status& status, const char* what, std::string* last) {
  const std::string error(status.message());
  if (std::exchange(*last, error) == error) return false;
  spdlog::error("{}; the previous {} stay in use", error, what);
  return true;
}

// Reads the file of tokens. One without tokens is read again a moment later: perhaps its new contents were being
// written.
absl::StatusOr<Tokens> ReadTokens(const std::string& path, std::string* text) {
  constexpr absl::Duration kMoment = absl::Milliseconds(100);
  absl::StatusOr<Tokens> tokens = absl::UnknownError("not read");
  for (int i = 0; i < 2; ++i) {
    if (i > 0) absl::SleepFor(kMoment);
    ASSIGN_OR_RETURN(*text, ReadFlagFile("token_file", path));
    tokens = Tokens::Parse(*text, path);
    if (!tokens.ok() || tokens->size() > 0) break;
  }
  return tokens;
}

std::uint64_t NextGeneration() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

}  // namespace

// The certificates of one listener. gRPC fetches them before each connection, from one thread at a time.
struct Security::TlsFeed {
  const Security& security;
  std::shared_ptr<const TlsFiles> given{};

  static grpc_ssl_certificate_config_reload_status Fetch(void* user_data, grpc_ssl_server_certificate_config** config) {
    TlsFeed& feed = *static_cast<TlsFeed*>(user_data);
    std::shared_ptr<const TlsFiles> files = feed.security.tls();
    if (files == feed.given) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const grpc_ssl_pem_key_cert_pair pair{files->key.c_str(), files->certificates.c_str()};
    // gRPC requires some, and ignores them where clients are not asked for a certificate.
    const std::string& client_ca = files->client_ca.empty() ? files->certificates : files->client_ca;
    *config = grpc_ssl_server_certificate_config_create(client_ca.c_str(), &pair, 1);
    feed.given = std::move(files);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }
};

// Checks the token of every call, on the thread that read its headers.
struct Security::TokenCheck {
  static void Process(void* state, grpc_auth_context* context, const grpc_metadata* metadata, std::size_t count,
                      grpc_process_auth_metadata_done_cb done, void* user_data) {
    const Security& security = *static_cast<const Security*>(state);
    absl::string_view path;
    absl::string_view authorization;
    int authorizations = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const absl::string_view key = View(metadata[i].key);
      if (key == ":path") path = View(metadata[i].value);
      if (key != kAuthorization) continue;
      authorization = View(metadata[i].value);
      ++authorizations;
    }
    const char* refusal = nullptr;
    if (!security.options_.open_health || !absl::StartsWith(path, kHealthMethods)) {
      if (authorizations != 1) {
        refusal = kTokenNeeded;
      } else if (security.IdentityOf(authorization) == nullptr) {
        refusal = kTokenUnknown;
      }
    }
    if (refusal != nullptr) {
      security.refused_.fetch_add(1, std::memory_order_relaxed);
      if (security.on_refused_) {
        security.on_refused_(path, ConnectionPeerOf(context), absl::UnauthenticatedError(refusal));
      }
    }
    done(user_data, nullptr, 0, nullptr, 0, refusal == nullptr ? GRPC_STATUS_OK : GRPC_STATUS_UNAUTHENTICATED, refusal);
  }
};

Security::Security(const SecurityOptions& options)
    : options_(options),
      quotas_({.requests = options.max_identity_requests,
               .sessions = options.max_identity_sessions,
               .arrays = options.max_identity_arrays,
               .array_bytes = options.max_identity_array_bytes}),
      generation_(NextGeneration()) {}

Security::~Security() {
  {
    const absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (refreshing_.joinable()) refreshing_.join();
}

absl::StatusOr<std::unique_ptr<Security>> Security::Load(const SecurityOptions& options) {
  std::unique_ptr<Security> security(new Security(options));
  if (!options.tls_cert.empty()) {
    ASSIGN_OR_RETURN(TlsFiles files, ReadTlsFiles(options.tls_cert, options.tls_key, options.tls_client_ca));
    const absl::MutexLock lock(&security->mutex_);
    security->tls_ = std::make_shared<const TlsFiles>(std::move(files));
  }
  if (!options.token_file.empty()) {
    std::string text;
    ASSIGN_OR_RETURN(Tokens tokens, ReadTokens(options.token_file, &text));
    if (tokens.size() == 0) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "--token_file: %s has no tokens, so that every call would be refused", absl::CHexEscape(options.token_file)));
    }
    spdlog::info("{} tokens: every call needs one{}", tokens.size(),
                 options.open_health ? " except health checks" : "");
    const absl::MutexLock lock(&security->mutex_);
    security->last_token_text_ = std::move(text);
    security->tokens_ = std::make_shared<const Tokens>(std::move(tokens));
  }
  security->WarnOfFiles();
  security->WarnOfExpiry();
  if (security->tls() != nullptr || security->tokens() != nullptr) {
    security->refreshing_ = std::thread([raw = security.get()] { raw->KeepFresh(); });
  }
  return security;
}

int Security::SlotsFor(const ListenAddress& address) const {
  return address.unix_path.empty() || tokens() != nullptr ? 1 : UnixPeers::kSlots;
}

bool Security::Encrypts(const ListenAddress& address) const { return tls() != nullptr && address.unix_path.empty(); }

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> Security::CredentialsFor(const ListenAddress& address,
                                                                                  int slot) {
  const bool encrypted = Encrypts(address);
  const bool checked = tokens() != nullptr;
  if (!encrypted && address.unix_path.empty() && !options_.allow_plaintext) {
    ASSIGN_OR_RETURN(const bool loopback, IsLoopback(address));
    if (!loopback) {
      return absl::FailedPreconditionError(absl::StrCat(
          "--listen: got ", absl::CHexEscape(address.text),
          ", which other machines reach without encryption; set --tls_cert and --tls_key, listen on a loopback address "
          "such as 127.0.0.1, or set --allow_plaintext where the network is trusted or a proxy encrypts"));
    }
  }
  if (slot > 0) return peers_.CredentialsOf(slot);
  if (!encrypted && !checked) return grpc::InsecureServerCredentials();
  grpc_server_credentials* credentials = nullptr;
  if (encrypted) {
    feeds_.push_back(std::make_unique<TlsFeed>(TlsFeed{*this}));
    credentials =
        grpc_ssl_server_credentials_create_with_options(grpc_ssl_server_credentials_create_options_using_config_fetcher(
            options_.tls_client_ca.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                                           : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY,
            &TlsFeed::Fetch, feeds_.back().get()));
  } else {
    credentials = grpc_insecure_server_credentials_create();
  }
  if (checked) grpc_server_credentials_set_auth_metadata_processor(credentials, {&TokenCheck::Process, nullptr, this});
  return std::make_shared<ListenerCredentials>(credentials);
}

absl::StatusOr<std::string> Security::CallerOf(const grpc::ServerContextBase& context) const {
  if (!options_.token_file.empty()) {
    // The call had a valid token a moment ago, but the tokens may have changed since.
    const auto found = context.client_metadata().find(grpc::string_ref(kAuthorization.data(), kAuthorization.size()));
    const std::string* identity = nullptr;
    if (found != context.client_metadata().end()) {
      identity = IdentityOf({found->second.data(), found->second.size()});
    }
    if (identity == nullptr) return absl::UnauthenticatedError(kTokenUnknown);
    return *identity;
  }
  if (options_.tls_client_ca.empty()) return std::string();
  const auto names = context.auth_context()->FindPropertyValues(GRPC_X509_CN_PROPERTY_NAME);
  if (names.empty()) return std::string();  // a Unix socket, or a certificate without a common name
  if (names.front().size() > kMaxIdentityBytes) {
    return absl::UnauthenticatedError(absl::StrFormat("common name of the certificate: got %d bytes; allowed: %d",
                                                      names.front().size(), kMaxIdentityBytes));
  }
  return std::string(names.front().data(), names.front().size());
}

std::string Security::PeerOf(const grpc::ServerContextBase& context) const {
  const std::string uri = context.peer();
  return absl::StartsWith(uri, "unix") ? peers_.Of(context) : PeerOfUri(uri);
}

std::string Security::ExactPeerOf(const grpc::ServerContextBase& context) const {
  const auto authentication = context.auth_context();
  if (authentication != nullptr) {
    const auto names = authentication->FindPropertyValues(kConnectionPeer);
    if (!names.empty()) return {names.front().data(), names.front().size()};
  }
  return PeerOf(context);
}

// Each call is looked up twice, by gRPC and by its service, mostly on one thread, and most calls of a client use one
// connection: each thread caches its last lookup, which saves a digest. The result is valid until the thread's next
// lookup.
const std::string* Security::IdentityOf(absl::string_view authorization) const {
  struct Last {
    std::uint64_t generation = 0;
    std::shared_ptr<const Tokens> tokens{};
    std::string authorization{};
    const std::string* identity = nullptr;  // null: nothing was found yet
  };
  static thread_local Last last;
  if (const std::uint64_t now = generation(); last.generation != now) last = {now, tokens()};
  const bool same = last.identity != nullptr && last.authorization.size() == authorization.size() &&
                    CRYPTO_memcmp(last.authorization.data(), authorization.data(), authorization.size()) == 0;
  if (same) return last.identity;
  const std::string* const identity = last.tokens->IdentityOf(authorization);
  if (identity == nullptr) return nullptr;
  last.authorization = std::string(authorization);
  return last.identity = identity;
}

std::shared_ptr<const Tokens> Security::tokens() const {
  const absl::ReaderMutexLock lock(&mutex_);
  return tokens_;
}

std::shared_ptr<const TlsFiles> Security::tls() const {
  const absl::ReaderMutexLock lock(&mutex_);
  return tls_;
}

std::optional<absl::Time> Security::CertificateExpiry() const {
  const std::shared_ptr<const TlsFiles> files = tls();
  if (files == nullptr) return std::nullopt;
  return ExpiryOf(*files);
}

std::vector<std::pair<std::string_view, bool>> Security::FailedReloads() const {
  std::vector<std::pair<std::string_view, bool>> failed;
  if (tls() != nullptr) failed.emplace_back("certificates", tls_failed_.load());
  if (tokens() != nullptr) failed.emplace_back("tokens", tokens_failed_.load());
  return failed;
}

void Security::Reload() {
  const absl::MutexLock lock(&mutex_);
  reload_ = true;
}

// Files are read completely and compared: Kubernetes replaces a secret through a symbolic link, others write in place,
// and the time stamp of a new file can be older than that of the old one.
bool Security::RefreshTls() {
  const std::shared_ptr<const TlsFiles> before = tls();
  if (before == nullptr) return false;
  absl::StatusOr<TlsFiles> files = ReadTlsFiles(options_.tls_cert, options_.tls_key, options_.tls_client_ca);
  tls_failed_ = !files.ok();
  if (!files.ok()) {  // perhaps only one of several files is new yet
    return LogOnce(files.status(), "certificates", &last_error_tls_);
  }
  const bool failed = !std::exchange(last_error_tls_, "").empty();
  if (*files == *before) {
    if (failed) spdlog::info("the certificates can be read again, and are the ones in use");
    return failed;
  }
  spdlog::info("new certificates from {}, which expire on {}: new connections use them",
               absl::CHexEscape(options_.tls_cert),
               absl::FormatTime(absl::RFC3339_sec, ExpiryOf(*files), absl::UTCTimeZone()));
  const absl::MutexLock lock(&mutex_);
  tls_ = std::make_shared<const TlsFiles>(*std::move(files));
  return true;
}

bool Security::RefreshTokens() {
  if (tokens() == nullptr) return false;
  std::string text;
  absl::StatusOr<Tokens> tokens = ReadTokens(options_.token_file, &text);
  tokens_failed_ = !tokens.ok();
  if (!tokens.ok()) return LogOnce(tokens.status(), "tokens", &last_error_tokens_);
  const bool failed = !std::exchange(last_error_tokens_, "").empty();
  if (text == last_token_text_) {
    if (failed) spdlog::info("the tokens can be read again, and are the ones in use");
    return failed;
  }
  last_token_text_ = std::move(text);
  const std::size_t count = tokens->size();
  {
    const absl::MutexLock lock(&mutex_);
    tokens_ = std::make_shared<const Tokens>(*std::move(tokens));
  }
  generation_.store(NextGeneration(), std::memory_order_release);
  if (count == 0) {
    spdlog::warn("--token_file: {} has no tokens any more: every call is refused",
                 absl::CHexEscape(options_.token_file));
  } else {
    spdlog::info("{} new tokens from {}", count, absl::CHexEscape(options_.token_file));
  }
  return true;
}

void Security::WarnOfFiles() const {
  WarnOfPermissions("tls_cert", options_.tls_cert, /*secret=*/false);
  WarnOfPermissions("tls_key", options_.tls_key, /*secret=*/true);
  WarnOfPermissions("tls_client_ca", options_.tls_client_ca, /*secret=*/false);
  WarnOfPermissions("token_file", options_.token_file, /*secret=*/false);
}

void Security::WarnOfExpiry() {
  const std::shared_ptr<const TlsFiles> files = tls();
  if (files == nullptr) return;
  const absl::Time now = absl::Now();
  const absl::Time expiry = ExpiryOf(*files);
  if (expiry > now + kExpiresSoon) return;
  // Warn once a day, for a new certificate, and when it expires.
  const bool expired = expiry <= now;
  if (expiry == warned_of_ && expired == warned_expired_ && now < warned_ + kWarnAgain) return;
  warned_of_ = expiry;
  warned_expired_ = expired;
  warned_ = now;
  spdlog::warn("--tls_cert: {}: the certificate {} on {}{}", absl::CHexEscape(options_.tls_cert),
               expired ? "expired" : "expires", absl::FormatTime(absl::RFC3339_sec, expiry, absl::UTCTimeZone()),
               expired ? ": clients refuse it" : "");
}

void Security::KeepFresh() {
  for (;;) {
    bool asked_for = false;
    {
      const absl::MutexLock lock(&mutex_);
      const auto asked = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_ || reload_; };
      asked_for = mutex_.AwaitWithTimeout(absl::Condition(&asked), options_.credentials_refresh);
      if (stopping_) return;
      reload_ = false;
    }
    const bool new_tls = RefreshTls();
    const bool news = RefreshTokens() || new_tls;
    if (news) WarnOfFiles();
    WarnOfExpiry();
    const bool failed = tls_failed_.load() || tokens_failed_.load();
    if (asked_for && !news && !failed) {
      spdlog::info("certificates and tokens were read again, as asked: nothing has changed");
    }
  }
}

}  // namespace reduced::server

#include "client/lib/credentials.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/system/read_file.h"
#include "kernels/system/status_macros.h"

namespace reduced::client {
namespace {

constexpr std::size_t kMaxTokenBytes = 4096;
constexpr std::int64_t kMaxFileBytes = std::int64_t{16} << 20;  // certificates of a whole system are a few 100 KB

absl::Status Bad(absl::string_view option, absl::string_view file, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(option, " \"", file, "\" ", why));
}

// An empty file has no text, which isn't an error here.
absl::StatusOr<std::string> ReadOptionFile(absl::string_view option, const std::string& path) {
  absl::StatusOr<std::string> text = ReadSmallFile(path, kMaxFileBytes, Pipes::kWait);
  return text.ok() ? std::move(text) : Bad(option, path, text.status().message());
}

absl::StatusOr<std::string> ReadPem(absl::string_view option, const std::string& path, absl::string_view what) {
  absl::StatusOr<std::string> text = ReadOptionFile(option, path);
  if (text.ok() && !absl::StrContains(*text, absl::StrCat(what, "-----"))) {
    return Bad(option, path, absl::StrCat("has no ", absl::AsciiStrToLower(what), " in PEM format"));
  }
  return text;
}

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadOptionFile("token_file", path));
  if (text.empty()) return Bad("token_file", path, "is empty: it has no token");
  const absl::string_view token = absl::StripAsciiWhitespace(text);
  const auto printable = [](unsigned char c) { return absl::ascii_isgraph(c); };
  if (token.empty() || token.size() > kMaxTokenBytes || !std::all_of(token.begin(), token.end(), printable)) {
    return Bad("token_file", path,
               absl::StrCat("has no token: 1 to ", kMaxTokenBytes, " printable ASCII characters without spaces"));
  }
  return std::string(token);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> TlsOf(const ClientOptions& options) {
  grpc::SslCredentialsOptions ssl;
  absl::StatusOr<std::string> text;
  if (options.tls_ca != kSystemCa) {
    text = ReadPem("tls_ca", options.tls_ca, "CERTIFICATE");
    if (!text.ok()) return text.status();
    ssl.pem_root_certs = *std::move(text);
  }
  if (!options.tls_cert.empty()) {
    text = ReadPem("tls_cert", options.tls_cert, "CERTIFICATE");
    if (!text.ok()) return text.status();
    ssl.pem_cert_chain = *std::move(text);
    text = ReadPem("tls_key", options.tls_key, "PRIVATE KEY");
    if (!text.ok()) return text.status();
    ssl.pem_private_key = *std::move(text);
  }
  return grpc::SslCredentials(ssl);
}

}  // namespace

Token::Token(std::string file, absl::Duration refresh, std::string token)
    : file_(std::move(file)), refresh_(refresh), token_(std::move(token)) {}

absl::StatusOr<std::shared_ptr<Token>> Token::Read(const std::string& file, absl::Duration refresh) {
  ASSIGN_OR_RETURN(std::string token, ReadToken(file));
  return std::shared_ptr<Token>(new Token(file, refresh, std::move(token)));
}

std::string Token::Authorization() {
  const auto now = std::chrono::steady_clock::now();
  bool due = false;
  {
    const absl::MutexLock lock(&mutex_);
    due = absl::FromChrono(now - read_) >= refresh_;
    if (due) read_ = now;
  }
  std::error_code unused;
  if (due && std::filesystem::is_regular_file(file_, unused)) {  // reading a pipe would block
    absl::StatusOr<std::string> token = ReadToken(file_);
    const absl::MutexLock lock(&mutex_);
    if (token.ok()) token_ = *std::move(token);
  }
  const absl::MutexLock lock(&mutex_);
  return absl::StrCat("Bearer ", token_);
}

absl::StatusOr<Secured> Secure(const ClientOptions& options, const Target& target) {
  const bool encrypted = !options.tls_ca.empty() && !target.unix_socket;
  const struct {
    bool missing;
    const char* message;
  } requirements[] = {
      {!options.tls_cert.empty() && options.tls_key.empty(), "tls_cert requires tls_key"},
      {!options.tls_key.empty() && options.tls_cert.empty(), "tls_key requires tls_cert"},
      {!options.tls_cert.empty() && options.tls_ca.empty(), "tls_cert requires tls_ca, which turns TLS on"},
      {!options.tls_server_name.empty() && options.tls_ca.empty(),
       "tls_server_name requires tls_ca, which turns TLS on"},
      {encrypted && absl::StrContains(target.uri, ',') && options.tls_server_name.empty(),
       "tls_ca with a list of servers requires tls_server_name: the name that the certificates of all of them have"},
  };
  for (const auto& requirement : requirements) {
    if (requirement.missing) return absl::InvalidArgumentError(requirement.message);
  }
  Secured secured;
  if (encrypted) {
    ASSIGN_OR_RETURN(secured.credentials, TlsOf(options));
    secured.server_name = options.tls_server_name;
  } else {
    secured.credentials = grpc::InsecureChannelCredentials();
  }
  if (options.token_file.empty()) return secured;
  ASSIGN_OR_RETURN(std::shared_ptr<Token> token, Token::Read(options.token_file, options.token_refresh));
  if (!encrypted && !target.loopback) {
    return absl::InvalidArgumentError(absl::StrCat(
        "token_file: got a token for ", options.server,
        " without TLS, where others could read it; allowed: TLS (tls_ca), a Unix socket, a loopback address"));
  }
  secured.token = std::move(token);
  return secured;
}

}  // namespace reduced::client

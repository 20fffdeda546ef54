#include "server/security/tls_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <cstdint>
#include <ctime>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/system/read_file.h"
#include "kernels/system/status_macros.h"
#include "spdlog/spdlog.h"

namespace reduced::server {
namespace {

constexpr std::int64_t kMaxFileBytes = std::int64_t{4} << 20;

template <auto kFree>
struct Freer {
  template <class T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Bio = std::unique_ptr<BIO, Freer<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Freer<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using Context = std::unique_ptr<SSL_CTX, Freer<SSL_CTX_free>>;

absl::Status Bad(absl::string_view flag, const std::string& path, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrFormat("--%s: %s: %s", flag, absl::CHexEscape(path), why));
}

Bio Reading(const std::string& text) { return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

// The reason of OpenSSL's last error; clears the error queue.
std::string WhyOpenSsl() {
  const std::uint64_t error = ERR_peek_last_error();
  const char* const reason = ERR_reason_error_string(error);
  ERR_clear_error();
  return reason == nullptr ? "unknown error" : reason;
}

// Without it OpenSSL would ask for the password at the terminal.
int NoPassword(char*, int, int, void*) { return -1; }

// All certificates of a PEM file, at least one.
absl::StatusOr<std::vector<Certificate>> ParseCertificates(absl::string_view flag, const std::string& path,
                                                           const std::string& pem) {
  const Bio bio = Reading(pem);
  std::vector<Certificate> certificates;
  for (;;) {
    Certificate next(PEM_read_bio_X509(bio.get(), nullptr, NoPassword, nullptr));
    if (next == nullptr) break;
    certificates.push_back(std::move(next));
  }
  // Text after the last certificate is no error.
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  const std::string why = WhyOpenSsl();
  if (certificates.empty() && at_end) return Bad(flag, path, "has no certificate in PEM format");
  if (!at_end) return Bad(flag, path, absl::StrCat("has a certificate that can't be read: ", why));
  return certificates;
}

}  // namespace

void WarnOfPermissions(absl::string_view flag, const std::string& path, bool secret) {
  struct stat status {};
  if (path.empty() || stat(path.c_str(), &status) != 0) return;
  const bool writable = (status.st_mode & S_IWOTH) != 0;
  if (!writable && (!secret || (status.st_mode & S_IROTH) == 0)) return;
  spdlog::warn("--{}: {}: every user of this machine can {} it (mode {:04o}): chmod {} it", std::string(flag),
               absl::CHexEscape(path), writable ? "write" : "read", status.st_mode & 07777U, secret ? "o-rwx" : "o-w");
}

absl::StatusOr<std::string> ReadFlagFile(absl::string_view flag, const std::string& path) {
  absl::StatusOr<std::string> text = ReadSmallFile(path, kMaxFileBytes, Pipes::kRefuse);
  return text.ok() ? std::move(text) : Bad(flag, path, text.status().message());
}

absl::StatusOr<TlsFiles> ReadTlsFiles(const std::string& cert, const std::string& key, const std::string& client_ca) {
  TlsFiles files;
  struct File {
    absl::string_view flag;
    const std::string& path;
    std::string* text;
  };
  for (const File& file : {File{"tls_cert", cert, &files.certificates}, File{"tls_key", key, &files.key},
                           File{"tls_client_ca", client_ca, &files.client_ca}}) {
    if (file.path.empty()) continue;
    ASSIGN_OR_RETURN(*file.text, ReadFlagFile(file.flag, file.path));
  }

  ERR_clear_error();
  ASSIGN_OR_RETURN(const auto certificates, ParseCertificates("tls_cert", cert, files.certificates));
  const Key private_key(PEM_read_bio_PrivateKey(Reading(files.key).get(), nullptr, NoPassword, nullptr));
  if (private_key == nullptr) {
    return Bad("tls_key", key, absl::StrCat("has no private key in PEM format, unencrypted: ", WhyOpenSsl()));
  }
  if (X509_check_private_key(certificates.front().get(), private_key.get()) != 1) {
    ERR_clear_error();
    return Bad("tls_key", key, absl::StrCat("is not the key of the first certificate in ", absl::CHexEscape(cert)));
  }
  std::vector<Certificate> authorities;
  if (!client_ca.empty()) {
    ASSIGN_OR_RETURN(authorities, ParseCertificates("tls_client_ca", client_ca, files.client_ca));
  }

  // Use them as gRPC will, since gRPC would not report what is wrong: OpenSSL has a minimum length of keys, for
  // example.
  const Context context(SSL_CTX_new(TLS_server_method()));
  if (context == nullptr) return absl::InternalError(absl::StrCat("OpenSSL has no TLS: ", WhyOpenSsl()));
  const auto unusable = [](absl::string_view flag, const std::string& path) {
    return Bad(flag, path, absl::StrCat("is rejected by OpenSSL: ", WhyOpenSsl()));
  };
  for (const Certificate& each : certificates) {
    const bool used = each == certificates.front() ? SSL_CTX_use_certificate(context.get(), each.get()) == 1
                                                   : SSL_CTX_add1_chain_cert(context.get(), each.get()) == 1;
    if (!used) return unusable("tls_cert", cert);
  }
  if (SSL_CTX_use_PrivateKey(context.get(), private_key.get()) != 1) return unusable("tls_key", key);
  for (const Certificate& each : authorities) {  // a duplicate is no error
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), each.get()) != 1) {
      return unusable("tls_client_ca", client_ca);
    }
  }
  return files;
}

absl::Time ExpiryOf(const TlsFiles& files) {
  const Certificate certificate(PEM_read_bio_X509(Reading(files.certificates).get(), nullptr, NoPassword, nullptr));
  std::tm when{};
  if (certificate == nullptr || ASN1_TIME_to_tm(X509_get0_notAfter(certificate.get()), &when) != 1) {
    return absl::InfiniteFuture();
  }
  return absl::FromTM(when, absl::UTCTimeZone());
}

}  // namespace reduced::server

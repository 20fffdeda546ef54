// TLS and the token of a client.
#ifndef REDUCED_CLIENT_LIB_CREDENTIALS_H_
#define REDUCED_CLIENT_LIB_CREDENTIALS_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/lib/target.h"
#include "reduced/options.h"

namespace reduced::client {

// The token in a file, whose content may change. Thread-safe.
class Token {
 public:
  // INVALID_ARGUMENT: the file can't be read, or contains no token.
  static absl::StatusOr<std::shared_ptr<Token>> Read(const std::string& file, absl::Duration refresh);

  // The value of the metadata `authorization`. Reads the file again if the last time was `refresh` ago.
  std::string Authorization();

 private:
  Token(std::string file, absl::Duration refresh, std::string token);

  const std::string file_;
  const absl::Duration refresh_;
  absl::Mutex mutex_;
  std::string token_ ABSL_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point read_ ABSL_GUARDED_BY(mutex_) = std::chrono::steady_clock::now();
};

struct Secured {
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  std::string server_name;       // that the server's certificate must have; empty: the host of the address
  std::shared_ptr<Token> token;  // sent with every call; null: none
};

// Reads the files. INVALID_ARGUMENT, with the option and the file: a file can't be read or has the wrong content, an
// option requires another one, or the token would be sent where others can read it.
absl::StatusOr<Secured> Secure(const ClientOptions& options, const Target& target);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_CREDENTIALS_H_

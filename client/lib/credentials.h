// What a connection needs to be allowed in: TLS and a token.
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
#include "reduced/client.h"

namespace reduced::client {

// The token in a file, which may change. Thread-safe.
class Token {
 public:
  // INVALID_ARGUMENT: the file can't be read, or has none.
  static absl::StatusOr<std::shared_ptr<Token>> Read(const std::string& file, absl::Duration refresh);

  // For the metadata `authorization`. Reads the file again if that was not done for `refresh`.
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
  std::string server_name;       // that the server's certificate is for; empty: as in its address
  std::shared_ptr<Token> token;  // of every call; null: none
};

// Reads the files. INVALID_ARGUMENT, naming the option and the file: one that can't be read or isn't what it should be,
// options that don't go together, or a token that would be sent where others can read it.
absl::StatusOr<Secured> Secure(const ClientOptions& options);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_CREDENTIALS_H_

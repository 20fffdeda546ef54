// Identifiers that nobody can guess.
#ifndef REDUCED_SERVER_SECURITY_RANDOM_ID_H_
#define REDUCED_SERVER_SECURITY_RANDOM_ID_H_

#include <sys/random.h>

#include <cstdlib>
#include <string>

#include "absl/strings/escaping.h"

namespace reduced::server {

// 128 bits from the kernel's generator, as 32 hexadecimal digits.
inline std::string RandomId() {
  std::string bits(16, '\0');
  if (getrandom(bits.data(), bits.size(), 0) != static_cast<ssize_t>(bits.size())) std::abort();  // never for 16 bytes
  return absl::BytesToHexString(bits);
}

}  // namespace reduced::server

#endif  // REDUCED_SERVER_SECURITY_RANDOM_ID_H_

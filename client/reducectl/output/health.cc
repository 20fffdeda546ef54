#include "client/reducectl/output/health.h"

namespace reduced::client {

std::string TextOf(Health health) {
  switch (health) {
    case Health::kServing:
      return "SERVING";
    case Health::kNotServing:
      return "NOT_SERVING";
    case Health::kUnknown:
      break;
  }
  return "SERVICE_UNKNOWN";
}

}  // namespace reduced::client

// Calls that say who they are.
#ifndef REDUCED_TESTS_SERVICE_TAGGED_CALL_H_
#define REDUCED_TESTS_SERVICE_TAGGED_CALL_H_

#include <string>
#include <utility>
#include <vector>

#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "server/observe/call_tag.h"
#include "tests/service/test_server.h"

namespace reduced::server {

using Metadata = std::vector<std::pair<std::string, std::string>>;
struct TaggedCall {
  explicit TaggedCall(const Metadata& metadata) {
    SetContextDeadline(&context);
    for (const auto& [key, value] : metadata) context.AddMetadata(key, value);
  }
  std::string id() const {
    const auto& trailer = context.GetServerTrailingMetadata();
    EXPECT_EQ(trailer.count(kRequestIdKey), 1U);
    const auto found = trailer.find(kRequestIdKey);
    return found == trailer.end() ? "" : std::string(found->second.data(), found->second.size());
  }
  grpc::ClientContext context;
};

}  // namespace reduced::server

#endif  // REDUCED_TESTS_SERVICE_TAGGED_CALL_H_

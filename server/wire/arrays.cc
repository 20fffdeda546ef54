#include "server/wire/arrays.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "kernels/system/status_macros.h"
#include "proto/codec/values.h"
#include "server/security/identity.h"
#include "server/wire/request.h"

namespace reduced::server {
namespace {

// Arrays of one page: at most about 200 KiB, and 25 KiB if they have one dimension.
constexpr int kMaxPage = 256;

}  // namespace

absl::StatusOr<ResidentArray> ParsePut(const v1::PutArrayHeader& header, const RequestLimits& limits,
                                       absl::string_view caller) {
  ASSIGN_OR_RETURN(const ArrayShape shape, ParseArray(header.array(), limits));
  if (header.array().shape_size() > kMaxDimensions) {
    return absl::InvalidArgumentError(
        absl::StrFormat("array.shape: got %d dimensions; allowed: %d", header.array().shape_size(), kMaxDimensions));
  }
  if (header.owner().size() > kMaxIdentityBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("owner: got %d bytes; allowed: %d", header.owner().size(), kMaxIdentityBytes));
  }
  ASSIGN_OR_RETURN(std::string owner, OwnerFor(header.owner(), caller));
  const std::int64_t max_ttl_ms = absl::ToInt64Milliseconds(limits.max_array_ttl);
  if (header.ttl_ms() < 0 || header.ttl_ms() > max_ttl_ms) {
    return absl::InvalidArgumentError(absl::StrFormat("ttl_ms: got %d; allowed: 0 (the default, %d) to %d",
                                                      header.ttl_ms(), absl::ToInt64Milliseconds(limits.array_ttl),
                                                      max_ttl_ms));
  }
  ResidentArray array;
  array.dtype = shape.dtype;
  array.shape.assign(header.array().shape().begin(), header.array().shape().end());
  array.count = shape.count;
  array.bytes = shape.bytes;
  array.device = header.device();
  array.identity = std::string(caller);
  array.owner = std::move(owner);
  array.ttl = header.ttl_ms() == 0 ? limits.array_ttl : absl::Milliseconds(header.ttl_ms());
  return array;
}

absl::StatusOr<ArrayPage> ParsePage(const v1::ListArraysRequest& request) {
  if (request.page_size() < 0 || request.page_size() > kMaxPage) {
    return absl::InvalidArgumentError(absl::StrFormat("page_size: got %d; allowed: 0 (the default, %d) to %d",
                                                      request.page_size(), kMaxPage, kMaxPage));
  }
  ArrayPage page{.owner = request.owner()};
  page.size = static_cast<std::size_t>(request.page_size() == 0 ? kMaxPage : request.page_size());
  if (!request.page_token().empty() && !absl::SimpleAtoi(request.page_token(), &page.first_serial)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("page_token: got %d bytes that are no token; allowed: next_page_token of the previous page",
                        request.page_token().size()));
  }
  return page;
}

void ToProto(const ArrayDescription& array, v1::ArrayInfo* info) {
  info->set_id(array.id);
  info->mutable_array()->set_dtype(ToProto(array.dtype));
  info->mutable_array()->mutable_shape()->Add(array.shape.begin(), array.shape.end());
  info->set_bytes(array.bytes);
  info->set_device(array.device);
  info->set_owner(array.owner);
  info->set_age_ms(absl::ToInt64Milliseconds(array.age));
  info->set_expires_in_ms(absl::ToInt64Milliseconds(array.expires_in));
  info->set_users(array.users);
  for (const ShardDescription& shard : array.shards) {
    v1::ArrayShard* const to = info->add_shards();
    to->set_device(shard.device);
    to->set_first_index(shard.first_row);
    to->set_indexes(shard.rows);
    to->set_count(shard.count);
  }
}

}  // namespace reduced::server

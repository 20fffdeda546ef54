#include "server/calls/operand.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/system/status_macros.h"
#include "server/sources/strided_region.h"

namespace reduced::server {
namespace {

// Messages that name an array, ReduceRequest and SideArray, have the same fields for that.
template <class Message>
absl::Span<const std::int64_t> DimensionsOf(const Message& message) {
  return {message.array().shape().data(), static_cast<std::size_t>(message.array().shape_size())};
}

template <class Message>
absl::StatusOr<Operand> Inline(const Message& message, Backend& backend, absl::string_view /*caller*/) {
  ASSIGN_OR_RETURN(const ArrayShape shape, ParseArray(message.array(), backend.limits));
  const auto bytes = static_cast<std::int64_t>(message.inline_data().size());
  RETURN_IF_ERROR(CheckElementBytes("inline_data", bytes, message.array(), shape));
  return Operand{shape, DimensionsOf(message), {.array = {message.inline_data().data(), MemorySpace::kHost}}};
}

template <class Message>
absl::StatusOr<Operand> Resident(const Message& message, Backend& backend, absl::string_view caller) {
  if (message.has_array()) {
    return absl::InvalidArgumentError("array: got one beside array_id; allowed: none, since the array has its own");
  }
  ASSIGN_OR_RETURN(std::shared_ptr<const ResidentArray> array, backend.arrays.Find(message.array_id(), caller));
  Operand operand{{array->dtype, array->count, array->bytes}, array->shape, {.array = array->memory->array()}};
  if (const ShardedArray* const sharded = array->sharded) {
    const std::vector<ArrayShard>& shards = sharded->shards();
    const auto has_elements = [](const ArrayShard& shard) { return shard.count > 0; };
    if (std::count_if(shards.begin(), shards.end(), has_elements) > 1) {
      operand.sharded = sharded;
    } else {  // an array of one device, whichever
      operand.elements.array = shards.front().memory->array();
    }
  }
  operand.elements.held = std::move(array);
  return operand;
}

template <class Message>
absl::StatusOr<Operand> Region(const Message& message, Backend& backend, absl::string_view /*caller*/) {
  ASSIGN_OR_RETURN(const ArrayShape shape, ParseArray(message.array(), backend.limits));
  const absl::Span<const std::int64_t> dimensions = DimensionsOf(message);
  const bool strided = !message.region().strides().empty() || message.region().big_endian();
  absl::StatusOr<HeldArray> elements = strided ? FindStrided(backend.regions, message.region(), shape.dtype, dimensions)
                                               : backend.regions.Find(message.region(), {.end = shape.bytes});
  if (!elements.ok()) return elements.status();
  return Operand{shape, dimensions, *std::move(elements)};
}

// A source that a message can name.
template <class Message>
struct SourceRow {
  typename Message::SourceCase field;
  Source source;
  absl::StatusOr<Operand> (*resolve)(const Message&, Backend&, absl::string_view caller);
};
template <class Message>
constexpr SourceRow<Message> kSources[] = {
    {Message::kInlineData, Source::kInline, &Inline<Message>},
    {Message::kArrayId, Source::kResident, &Resident<Message>},
    {Message::kRegion, Source::kRegion, &Region<Message>},
};

template <class Message>
const SourceRow<Message>* FindSource(const Message& message) {
  for (const SourceRow<Message>& row : kSources<Message>) {
    if (row.field == message.source_case()) return &row;
  }
  return nullptr;
}

template <class Message>
absl::StatusOr<Operand> Resolve(const Message& message, Backend& backend, absl::string_view caller) {
  const SourceRow<Message>* const row = FindSource(message);
  if (row != nullptr) return row->resolve(message, backend, caller);
  return absl::InvalidArgumentError("source: got none; allowed: inline_data, array_id, region");
}

template <class Message>
Source NamedSource(Rpc rpc, const Message& message) {
  const SourceRow<Message>* const row = FindSource(message);
  if (row == nullptr) return Source::kNone;
  return row->source == Source::kInline && rpc == Rpc::kSessionReduce ? Source::kSession : row->source;
}

}  // namespace

Source SourceOf(Rpc rpc, const v1::ReduceRequest& request, bool outside) {
  return outside ? Source::kRing : NamedSource(rpc, request);
}

Source SourceOf(Rpc rpc, const v1::SideArray& operand) { return NamedSource(rpc, operand); }

absl::StatusOr<Operand> ResolveOperand(const v1::ReduceRequest& request, Backend& backend, absl::string_view caller) {
  return Resolve(request, backend, caller);
}

absl::StatusOr<Operand> ResolveSide(const char* field, const v1::SideArray& side, Backend& backend,
                                    absl::string_view caller) {
  absl::StatusOr<Operand> operand = Resolve(side, backend, caller);
  if (operand.ok()) return operand;
  return absl::Status(operand.status().code(), absl::StrCat(field, ".", std::string(operand.status().message())));
}

absl::StatusOr<Operand> ResolveOperand(const v1::ReduceRequest& request, OutsideElements outside,
                                       const RequestLimits& limits) {
  if (FindSource(request) != nullptr) {
    return absl::InvalidArgumentError("source: got one beside elements in the arena; allowed: none");
  }
  ASSIGN_OR_RETURN(const ArrayShape shape, ParseArray(request.array(), limits));
  RETURN_IF_ERROR(CheckElementBytes("elements", outside.bytes, request.array(), shape));
  return Operand{shape, request.array().shape(), std::move(outside.elements)};
}

}  // namespace reduced::server

#include "server/calls/operand.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"

namespace reduced::server {
namespace {

absl::Span<const std::int64_t> DimensionsOf(const v1::ReduceRequest& request) {
  return {request.array().shape().data(), static_cast<std::size_t>(request.array().shape_size())};
}

absl::StatusOr<Operand> Inline(const v1::ReduceRequest& request, Backend& backend, absl::string_view /*caller*/) {
  const absl::StatusOr<ArrayShape> shape = ParseArray(request.array(), backend.limits);
  if (!shape.ok()) return shape.status();
  const absl::Status status = CheckInlineData(request, *shape);
  if (!status.ok()) return status;
  return Operand{*shape, DimensionsOf(request), {.array = {request.inline_data().data(), MemorySpace::kHost}}};
}

absl::StatusOr<Operand> Resident(const v1::ReduceRequest& request, Backend& backend, absl::string_view caller) {
  if (request.has_array()) {
    return absl::InvalidArgumentError("array: got one beside array_id; allowed: none, since the array has its own");
  }
  absl::StatusOr<std::shared_ptr<const ResidentArray>> array = backend.arrays.Find(request.array_id(), caller);
  if (!array.ok()) return array.status();
  Operand operand{
      {(*array)->dtype, (*array)->count, (*array)->bytes}, (*array)->shape, {.array = (*array)->memory->array()}};
  operand.elements.held = *std::move(array);
  return operand;
}

absl::StatusOr<Operand> Region(const v1::ReduceRequest& request, Backend& backend, absl::string_view /*caller*/) {
  const absl::StatusOr<ArrayShape> shape = ParseArray(request.array(), backend.limits);
  if (!shape.ok()) return shape.status();
  absl::StatusOr<HeldArray> elements = backend.regions.Find(request.region(), shape->bytes);
  if (!elements.ok()) return elements.status();
  return Operand{*shape, DimensionsOf(request), *std::move(elements)};
}

// A source that a request can name.
struct SourceRow {
  v1::ReduceRequest::SourceCase field;
  Source source;
  absl::StatusOr<Operand> (*resolve)(const v1::ReduceRequest&, Backend&, absl::string_view caller);
};
constexpr SourceRow kSources[] = {
    {v1::ReduceRequest::kInlineData, Source::kInline, &Inline},
    {v1::ReduceRequest::kArrayId, Source::kResident, &Resident},
    {v1::ReduceRequest::kRegion, Source::kRegion, &Region},
};

const SourceRow* FindSource(const v1::ReduceRequest& request) {
  for (const SourceRow& row : kSources) {
    if (row.field == request.source_case()) return &row;
  }
  return nullptr;
}

}  // namespace

Source SourceOf(Rpc rpc, const v1::ReduceRequest& request, bool outside) {
  if (outside) return Source::kRing;
  const SourceRow* const row = FindSource(request);
  if (row == nullptr) return Source::kNone;
  return row->source == Source::kInline && rpc == Rpc::kSessionReduce ? Source::kSession : row->source;
}

absl::StatusOr<Operand> ResolveOperand(const v1::ReduceRequest& request, Backend& backend, absl::string_view caller) {
  const SourceRow* const row = FindSource(request);
  if (row != nullptr) return row->resolve(request, backend, caller);
  return absl::InvalidArgumentError("source: got none; allowed: inline_data, array_id, region");
}

absl::StatusOr<Operand> ResolveOperand(const v1::ReduceRequest& request, OutsideElements outside,
                                       const RequestLimits& limits) {
  if (FindSource(request) != nullptr) {
    return absl::InvalidArgumentError("source: got one beside elements in the arena; allowed: none");
  }
  const absl::StatusOr<ArrayShape> shape = ParseArray(request.array(), limits);
  if (!shape.ok()) return shape.status();
  const absl::Status status = CheckElementBytes("elements", outside.bytes, request, *shape);
  if (!status.ok()) return status;
  return Operand{*shape, request.array().shape(), std::move(outside.elements)};
}

}  // namespace reduced::server

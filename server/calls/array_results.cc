#include "server/calls/array_results.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/system/memory.h"
#include "kernels/system/status_macros.h"
#include "proto/codec/op_call.h"
#include "proto/codec/values.h"
#include "server/wire/arrays.h"
#include "server/wire/status.h"

namespace reduced::server {
namespace {

constexpr std::int64_t kBetweenStops = 8 << 20;  // bytes that are copied between two calls of why_stop

}  // namespace

absl::Status ArrayResults::Prepare(const v1::ReduceRequest& request, const ReduceSpec& spec, const Form& form,
                                   const Admission& admission, MemoryLease* answer,
                                   absl::FunctionRef<absl::Status()> why_stop, v1::ReduceResponse* response) {
  const std::int64_t key_bytes = form.keys == nullptr ? 0 : RowOf(form.key_dtype).bytes;
  ASSIGN_OR_RETURN(const std::int64_t bytes,
                   CheckResultBytes(request, spec, form.outputs, form.groups, key_bytes, backend_.limits));
  if (request.has_write_to()) {
    std::vector<std::int64_t> sizes;
    for (const OpCall& op : spec.ops) sizes.push_back(form.outputs * ResultBytes(op, spec.dtype));
    if (form.keys != nullptr) sizes.push_back(form.groups * key_bytes);
    RETURN_IF_ERROR(PrepareRegion(request.write_to(), sizes, admission.payers()));
  } else if (!request.has_keep()) {
    // As fields of the response, and encoded.
    const absl::Status status = answer->Grow(admission.payers().Of(2 * bytes), 2 * bytes, "the results of a request");
    if (!status.ok()) return WithRetryHint(status, kMemoryRetryDelay);
  }
  v1::PutArrayHeader header;  // the same of all results, but for the dtype and the shape
  header.set_owner(request.keep().owner());
  header.set_ttl_ms(request.keep().ttl_ms());
  for (const OpCall& op : spec.ops) {
    const std::vector<std::int64_t> answer = AnswerShape(op);
    header.mutable_array()->mutable_shape()->Assign(form.shape.begin(), form.shape.end());
    header.mutable_array()->mutable_shape()->Add(answer.begin(), answer.end());
    header.mutable_array()->set_dtype(ToProto(ResultDType(op, spec.dtype)));
    v1::ArrayResult* const result = response->add_arrays();
    result->set_op(ToProto(op.op));
    ASSIGN_OR_RETURN(std::byte* const data, Add(request, header, admission, result));
    data_.push_back(data);
  }
  if (form.keys == nullptr) return absl::OkStatus();
  header.mutable_array()->clear_shape();
  header.mutable_array()->add_shape(form.groups);
  header.mutable_array()->set_dtype(ToProto(form.key_dtype));
  ASSIGN_OR_RETURN(std::byte* const keys, Add(request, header, admission, response->mutable_keys()));
  const std::int64_t end = form.groups * key_bytes;
  for (std::int64_t done = 0; done < end; done += kBetweenStops) {
    RETURN_IF_ERROR(why_stop());
    std::memcpy(keys + done, form.keys + done, static_cast<std::size_t>(std::min(kBetweenStops, end - done)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::byte*> ArrayResults::Add(const v1::ReduceRequest& request, const v1::PutArrayHeader& header,
                                             const Admission& admission, v1::ArrayResult* result) {
  *result->mutable_array() = header.array();
  ASSIGN_OR_RETURN(ResidentArray array, ParsePut(header, backend_.limits, admission.caller()));
  if (request.has_write_to()) {
    const Piece& piece = pieces_[added_++];
    result->set_written_at(part_.offset + piece.at);
    return collected_->data() + piece.at;
  }
  if (!request.has_keep()) {
    FillWithZeros(static_cast<std::size_t>(array.bytes), result->mutable_data());
    return reinterpret_cast<std::byte*>(result->mutable_data()->data());
  }
  ASSIGN_OR_RETURN(Engine* const cpu, backend_.engines.Get(EngineKind::kCpu));
  array.device = cpu->info().name;
  RETURN_IF_ERROR(backend_.arrays.CheckRoom());
  if (backend_.security != nullptr) {
    ASSIGN_OR_RETURN(array.quota, backend_.security->quotas().TakeArray(admission.account(), array.bytes));
  }
  ASSIGN_OR_RETURN(array.memory, cpu->Allocate(array.bytes, admission.key()));
  // Host memory of the array's own, which nobody else knows yet.
  auto* const data = static_cast<std::byte*>(const_cast<void*>(array.memory->array().data));
  keep_.push_back(std::move(array));
  results_.push_back(result);
  return data;
}

absl::Status ArrayResults::PrepareRegion(const v1::RegionPart& write_to, const std::vector<std::int64_t>& bytes,
                                         const CallPayers& payers) {
  std::int64_t end = 0;
  for (const std::int64_t each : bytes) {
    // The sum of all bytes is within 63 bits; what rounding adds need not be.
    std::int64_t at = 0;
    if (__builtin_add_overflow(end, kResultAlignment - 1, &at) ||
        __builtin_add_overflow(at / kResultAlignment * kResultAlignment, each, &end)) {
      return absl::InvalidArgumentError("write_to: got results of 2^63 bytes or more; allowed: fewer");
    }
    pieces_.push_back({.at = end - each, .bytes = each});
  }
  ASSIGN_OR_RETURN(part_, backend_.regions.FindWritable(write_to, end));
  absl::StatusOr<MemoryLease> memory = MemoryLease::Take(payers.Of(end), end, "the results of a request");
  if (!memory.ok()) return WithRetryHint(memory.status(), kMemoryRetryDelay);
  memory_ = *std::move(memory);
  ASSIGN_OR_RETURN(collected_, RegionResults::Allocate(end));
  return absl::OkStatus();
}

absl::Status ArrayResults::Answer(const std::vector<absl::Status>& errors, absl::FunctionRef<absl::Status()> why_stop,
                                  v1::ReduceResponse* response) {
  const auto has_error = [&errors](std::size_t op) { return op < errors.size() && !errors[op].ok(); };
  std::size_t failed = 0;
  for (std::size_t op = 0; op < errors.size(); ++op) {
    if (!has_error(op)) continue;
    ++failed;
    reduced::ToProto(errors[op],
                     response->mutable_arrays(static_cast<int>(op))->mutable_error());  // in the place of results
  }
  if (failed > 0 && failed == errors.size()) return errors.front();
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (has_error(i)) continue;
    const Piece& piece = pieces_[i];
    RETURN_IF_ERROR(collected_->CopyTo(part_, piece.at, piece.bytes, why_stop));
  }
  if (collected_.has_value()) {
    collected_.reset();
    memory_ = {};
    part_ = {};
  }
  for (std::size_t i = 0; i < keep_.size(); ++i) {
    if (has_error(i)) continue;
    owner_ = keep_[i].owner;
    caller_ = keep_[i].identity;
    const absl::StatusOr<ArrayDescription> stored = backend_.arrays.Add(std::move(keep_[i]));
    if (!stored.ok()) {
      Forget();
      return stored.status();
    }
    kept_.push_back(stored->id);
    ToProto(*stored, results_[i]->mutable_kept());
  }
  keep_.clear();
  return absl::OkStatus();
}

void ArrayResults::Forget() {
  for (const std::string& id : kept_) {
    backend_.arrays.Delete(
        id, owner_, [](const absl::Status&) {}, caller_);
  }
  kept_.clear();
}

}  // namespace reduced::server

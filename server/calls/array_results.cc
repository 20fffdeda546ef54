#include "server/calls/array_results.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "proto/codec/values.h"
#include "server/wire/arrays.h"
#include "server/wire/status.h"

namespace reduced::server {

absl::Status ArrayResults::Prepare(const v1::ReduceRequest& request, const SlicesQuestion& question,
                                   const Admission& admission, v1::ReduceResponse* response) {
  v1::PutArrayHeader header;  // the same of all results
  header.mutable_array()->mutable_shape()->Add(question.shape.begin(), question.shape.end());
  header.set_owner(request.keep().owner());
  header.set_ttl_ms(request.keep().ttl_ms());
  if (!request.has_keep()) {
    // As fields of the response, and encoded.
    absl::StatusOr<MemoryLease> memory =
        MemoryLease::Take(*backend_.memory, 2 * question.result_bytes, "the results of a request");
    if (!memory.ok()) return WithRetryHint(memory.status(), kMemoryRetryDelay);
    memory_ = *std::move(memory);
  }
  for (const Op op : question.spec.ops) {
    const DType dtype = ResultDType(op, question.spec.dtype);
    header.mutable_array()->set_dtype(ToProto(dtype));
    v1::ArrayResult* const result = response->add_arrays();
    result->set_op(ToProto(op));
    *result->mutable_array() = header.array();
    if (!request.has_keep()) {
      std::string* const data = result->mutable_data();
      data->resize(static_cast<std::size_t>(question.layout.outputs * RowOf(dtype).bytes));
      data_.push_back(reinterpret_cast<std::byte*>(data->data()));
      continue;
    }
    absl::StatusOr<ResidentArray> array = ParsePut(header, backend_.limits, admission.caller());
    if (!array.ok()) return array.status();
    const absl::StatusOr<Engine*> cpu = backend_.engines.Get(EngineKind::kCpu);
    if (!cpu.ok()) return cpu.status();
    array->device = (*cpu)->info().name;
    absl::Status status = backend_.arrays.CheckRoom();
    if (!status.ok()) return status;
    if (backend_.security != nullptr) {
      auto quota = backend_.security->quotas().TakeArray(admission.account(), array->bytes);
      if (!quota.ok()) return quota.status();
      array->quota = *std::move(quota);
    }
    absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = (*cpu)->Allocate(array->bytes);
    if (!memory.ok()) return memory.status();
    array->memory = *std::move(memory);
    // Host memory of the array's own, which nobody else knows yet.
    data_.push_back(static_cast<std::byte*>(const_cast<void*>(array->memory->array().data)));
    keep_.push_back(*std::move(array));
  }
  return absl::OkStatus();
}

absl::Status ArrayResults::Answer(v1::ReduceResponse* response) {
  for (std::size_t i = 0; i < keep_.size(); ++i) {
    owner_ = keep_[i].owner;
    caller_ = keep_[i].identity;
    const absl::StatusOr<ArrayDescription> stored = backend_.arrays.Add(std::move(keep_[i]));
    if (!stored.ok()) {
      Forget();
      return stored.status();
    }
    kept_.push_back(stored->id);
    ToProto(*stored, response->mutable_arrays(static_cast<int>(i))->mutable_kept());
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

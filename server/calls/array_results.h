// The results of a reduction to arrays: where the engine writes them, and how they are answered: in the response, as
// resident arrays in the memory of the CPU, or in a region.
#ifndef REDUCED_SERVER_CALLS_ARRAY_RESULTS_H_
#define REDUCED_SERVER_CALLS_ARRAY_RESULTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/engine/memory_budget.h"
#include "reduced/v1/reduced.pb.h"
#include "server/calls/admission.h"
#include "server/calls/backend.h"
#include "server/sources/arrays.h"
#include "server/sources/region_results.h"
#include "server/wire/request.h"

namespace reduced::server {

// Of one request. Not thread-safe. `backend` must outlive it. Memory that is not answered with is freed with this.
class ArrayResults {
 public:
  explicit ArrayResults(Backend& backend) : backend_(backend) {}
  ArrayResults(const ArrayResults&) = delete;
  ArrayResults& operator=(const ArrayResults&) = delete;

  // What the results are.
  struct Form {
    std::int64_t outputs = 0;
    std::vector<std::int64_t> shape{};
    // Of groups whose keys are answered with: how many, the keys' dtype, and them; null: none are.
    std::int64_t groups = 0;
    DType key_dtype = DType::kI64;
    const std::byte* keys = nullptr;
  };

  // Sets memory aside, within the budgets and the caller's quotas, and stores the keys. That of results which the
  // response will have goes to `answer`. The pointers must stay valid until Answer. RESOURCE_EXHAUSTED: there is none.
  // INVALID_ARGUMENT, PERMISSION_DENIED: of `keep`, as those of a PutArrayHeader; INVALID_ARGUMENT: as
  // CheckResultBytes. Those of Regions::FindWritable, of `write_to`.
  // The first error of `why_stop`, which is asked every few milliseconds.
  absl::Status Prepare(const v1::ReduceRequest& request, const ReduceSpec& spec, const Form& form,
                       const Admission& admission, MemoryLease* answer, absl::FunctionRef<absl::Status()> why_stop,
                       v1::ReduceResponse* response);

  // Where the engine writes the results of each op.
  const std::vector<std::byte*>& data() const { return data_; }

  // Once they are written: makes them resident or copies them to the region, if that is wanted. The response then has
  // all of them, or the errors of ops, `errors`, which may be none. The first of these if no op has results.
  // RESOURCE_EXHAUSTED: the server has too many arrays; then none is kept. FAILED_PRECONDITION: as
  // RegionResults::CopyTo. Those of `why_stop`, likewise.
  absl::Status Answer(const std::vector<absl::Status>& errors, absl::FunctionRef<absl::Status()> why_stop,
                      v1::ReduceResponse* response);

  // Deletes what was kept, because its client did not learn of it.
  void Forget();

 private:
  // Results in the region, as bytes of `part_`.
  struct Piece {
    std::int64_t at = 0;
    std::int64_t bytes = 0;
  };

  // Adds the results that the header describes; where to write them.
  absl::StatusOr<std::byte*> Add(const v1::ReduceRequest& request, const v1::PutArrayHeader& header,
                                 const Admission& admission, v1::ArrayResult* result);
  // Finds room in the region, and memory to collect the results in. `bytes`: of the results of each op, then of the
  // keys.
  absl::Status PrepareRegion(const v1::RegionPart& write_to, const std::vector<std::int64_t>& bytes,
                             const CallPayers& payers);

  Backend& backend_;
  MemoryLease memory_;  // of results that go to a region, until they are there
  std::vector<std::byte*> data_;
  std::vector<ResidentArray> keep_;         // of each result; empty: none is kept
  std::vector<v1::ArrayResult*> results_;   // of the response, likewise
  std::vector<std::string> kept_;           // ids of resident arrays
  std::string owner_, caller_;              // of these
  WritablePart part_;                       // of the region that they are written to, if that is wanted
  std::optional<RegionResults> collected_;  // likewise
  std::vector<Piece> pieces_;               // of each result, and of the keys
  std::size_t added_ = 0;                   // of the pieces
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_ARRAY_RESULTS_H_

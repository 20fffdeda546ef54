#include "kernels/engine/memory_budget.h"

#include "absl/strings/str_format.h"

namespace reduced {

absl::Status MemoryBudget::Take(std::uint64_t caller, std::int64_t bytes, std::string_view what) {
  switch (bytes_.Take(caller, bytes)) {
    case FairLimit::Outcome::kTaken:
      return absl::OkStatus();
    case FairLimit::Outcome::kFull:
      return absl::ResourceExhaustedError(
          absl::StrFormat("the server has no memory for %s, %d bytes: requests take %d of the %d bytes that they may "
                          "take; see --memory_bytes",
                          what, bytes, taken(), limit()));
    case FairLimit::Outcome::kOverShare:
      break;
  }
  return absl::ResourceExhaustedError(absl::StrFormat(
      "the server has no memory for %s, %d bytes: this caller takes %d bytes and may take %d, its share "
      "of what others leave of %d; see --caller_share and --memory_bytes",
      what, bytes, bytes_.TakenBy(caller), bytes_.ShareOf(caller), limit()));
}

absl::StatusOr<MemoryLease> MemoryLease::Take(const MemoryPayer& payer, std::int64_t bytes, std::string_view what) {
  MemoryLease lease;
  if (absl::Status status = lease.Resize(payer, bytes, what); !status.ok()) return status;
  return lease;
}

absl::Status MemoryLease::Resize(const MemoryPayer& payer, std::int64_t bytes, std::string_view what) {
  if (bytes_ == 0) payer_ = payer;
  if (bytes > bytes_) {
    if (absl::Status status = payer_.budget->Take(payer_.caller, bytes - bytes_, what); !status.ok()) return status;
  } else {
    payer_.budget->Give(payer_.caller, bytes_ - bytes);
  }
  bytes_ = bytes;
  return absl::OkStatus();
}

absl::Status MemoryLease::Grow(const MemoryPayer& payer, std::int64_t bytes, std::string_view what) {
  // What does not fit into 64 bits does not fit into a budget either.
  std::int64_t all = 0;
  if (__builtin_add_overflow(bytes_, bytes, &all)) return payer.budget->Take(payer.caller, bytes, what);
  return Resize(payer, all, what);
}

MemoryLease MemoryLease::Split(std::int64_t bytes) {
  MemoryLease part;
  part.payer_ = payer_;
  part.bytes_ = bytes;
  bytes_ -= bytes;
  return part;
}

void MemoryLease::Return() {
  if (bytes_ > 0) payer_.budget->Give(payer_.caller, bytes_);  // one of nothing may outlive its budget
  bytes_ = 0;
}

std::shared_ptr<const MemoryLease> MemoryLease::Share(MemoryLease lease) {
  struct Shared {
    std::shared_ptr<MemoryBudget> budget;
    MemoryLease lease;
  };
  auto shared = std::make_shared<Shared>();
  if (lease.payer_.budget != nullptr) shared->budget = lease.payer_.budget->weak_from_this().lock();
  shared->lease = std::move(lease);
  return {shared, &shared->lease};
}

}  // namespace reduced

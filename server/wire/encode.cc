#include "server/wire/encode.h"

#include <utility>
#include <vector>

#include "grpcpp/support/slice.h"

namespace reduced::server {
namespace {

// Keeps a slice, whose bytes another slice shows, and the lease.
struct HeldSlice {
  grpc::Slice slice;
  std::shared_ptr<const MemoryLease> lease;
};

}  // namespace

void HoldUntilSent(std::shared_ptr<const MemoryLease> lease, grpc::ByteBuffer* bytes) {
  std::vector<grpc::Slice> slices;
  if (!bytes->Dump(&slices).ok()) return;
  for (grpc::Slice& slice : slices) {
    auto* const held = new HeldSlice{std::move(slice), lease};
    slice = grpc::Slice(
        const_cast<std::uint8_t*>(held->slice.begin()), held->slice.size(),
        [](void* done) { delete static_cast<HeldSlice*>(done); }, held);
  }
  *bytes = grpc::ByteBuffer(slices.data(), slices.size());
}

}  // namespace reduced::server

// Arrays that are cut over several GPUs along their first dimension: each GPU has consecutive indexes of it, as many as
// the others or one more.
#ifndef REDUCED_SERVER_SOURCES_SHARDED_ARRAY_H_
#define REDUCED_SERVER_SOURCES_SHARDED_ARRAY_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/engine/engines.h"

namespace reduced::server {

// The device of such an array, for requests and answers.
inline constexpr char kAllGpus[] = "cuda:*";

// The part of a sharded array that one device has. It may be empty.
struct ArrayShard {
  Engine* engine = nullptr;
  std::string device{};
  std::int64_t first_row = 0;  // index along dimension 0; of a scalar 0
  std::int64_t rows = 0;
  std::int64_t first = 0;  // element of the whole array
  std::int64_t count = 0;  // elements
  std::unique_ptr<ArrayMemory> memory{};
};

// `status` with the name of the device at fault, unless it has it.
absl::Status OfDevice(const absl::Status& status, absl::string_view device);

// The memory of such an array. Thread-safe as ArrayMemory. The engines must outlive it.
class ShardedArray final : public ArrayMemory {
 public:
  // Memory on every GPU that has an engine, at least one, for an array of that shape, of at least 0 elements, each of
  // `width` bytes. FAILED_PRECONDITION: there is no GPU. RESOURCE_EXHAUSTED, with the name of the device: it has no
  // room for its shard; then nothing is allocated. `caller`: as Engine::Allocate.
  static absl::StatusOr<std::unique_ptr<ShardedArray>> Allocate(const Engines& engines,
                                                                std::span<const std::int64_t> shape, std::int64_t count,
                                                                std::int64_t width, std::uint64_t caller);

  // Memory of devices without an address: jobs are about the shards.
  ArrayRef array() const override { return {.space = MemorySpace::kDevice}; }
  absl::Status Write(std::int64_t offset, const void* data, std::int64_t bytes) override;
  absl::Status Read(std::int64_t offset, std::int64_t bytes, void* to) const override;

  // In the order of their elements.
  const std::vector<ArrayShard>& shards() const { return shards_; }
  std::int64_t rows() const { return rows_; }  // of all shards
  // "cuda:0, cuda:1": the devices of shards that are not empty.
  std::string DeviceNames() const;

 private:
  ShardedArray(std::vector<ArrayShard> shards, std::int64_t rows, std::int64_t width)
      : shards_(std::move(shards)), rows_(rows), width_(width) {}

  // Calls `use` for the part of each shard that is in the range, with where it begins in the shard and in the range,
  // until one call has an error, which it returns with the name of the device.
  absl::Status ForRange(
      std::int64_t offset, std::int64_t bytes,
      absl::FunctionRef<absl::Status(ArrayMemory&, std::int64_t at, std::int64_t done, std::int64_t part)> use) const;

  const std::vector<ArrayShard> shards_;
  const std::int64_t rows_;
  const std::int64_t width_;  // bytes of an element
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_SOURCES_SHARDED_ARRAY_H_

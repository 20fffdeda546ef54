#include "server/sources/sharded_array.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace reduced::server {

absl::Status OfDevice(const absl::Status& status, absl::string_view device) {
  if (status.ok() || absl::StrContains(status.message(), device)) return status;
  return {status.code(), absl::StrCat(device, ": ", status.message())};
}

absl::StatusOr<std::unique_ptr<ShardedArray>> ShardedArray::Allocate(const Engines& engines,
                                                                     std::span<const std::int64_t> shape,
                                                                     std::int64_t count, std::int64_t width,
                                                                     std::uint64_t caller) {
  std::vector<Engine*> gpus;
  for (const auto& engine : engines.all()) {
    if (engine->kind() == EngineKind::kCuda) gpus.push_back(engine.get());
  }
  if (gpus.empty()) return engines.OnDevice(kAllGpus).status();
  const std::int64_t rows = shape.empty() ? 1 : shape.front();
  const std::int64_t row = count == 0 ? 0 : count / rows;  // elements
  const auto number = static_cast<std::int64_t>(gpus.size());
  std::vector<ArrayShard> shards;
  std::int64_t next = 0;
  for (std::int64_t i = 0; i < number; ++i) {
    Engine& engine = *gpus[static_cast<std::size_t>(i)];
    const std::int64_t part = rows / number + (i < rows % number ? 1 : 0);
    ArrayShard& shard = shards.emplace_back(ArrayShard{.engine = &engine,
                                                       .device = engine.info().name,
                                                       .first_row = next,
                                                       .rows = part,
                                                       .first = next * row,
                                                       .count = part * row});
    next += part;
    absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = engine.Allocate(shard.count * width, caller);
    if (!memory.ok()) return OfDevice(memory.status(), shard.device);
    shard.memory = *std::move(memory);
  }
  return std::unique_ptr<ShardedArray>(new ShardedArray(std::move(shards), rows, width));
}

absl::Status ShardedArray::ForRange(
    std::int64_t offset, std::int64_t bytes,
    absl::FunctionRef<absl::Status(ArrayMemory&, std::int64_t, std::int64_t, std::int64_t)> use) const {
  for (const ArrayShard& shard : shards_) {
    const std::int64_t first = shard.first * width_;
    const std::int64_t begin = std::max(offset, first);
    const std::int64_t end = std::min(offset + bytes, first + shard.count * width_);
    if (begin >= end) continue;
    const absl::Status status = use(*shard.memory, begin - first, begin - offset, end - begin);
    if (!status.ok()) return OfDevice(status, shard.device);
  }
  return absl::OkStatus();
}

absl::Status ShardedArray::Write(std::int64_t offset, const void* data, std::int64_t bytes) {
  return ForRange(offset, bytes, [&](ArrayMemory& memory, std::int64_t at, std::int64_t done, std::int64_t part) {
    return memory.Write(at, static_cast<const std::byte*>(data) + done, part);
  });
}

absl::Status ShardedArray::Read(std::int64_t offset, std::int64_t bytes, void* to) const {
  return ForRange(offset, bytes, [&](ArrayMemory& memory, std::int64_t at, std::int64_t done, std::int64_t part) {
    return memory.Read(at, part, static_cast<std::byte*>(to) + done);
  });
}

std::string ShardedArray::DeviceNames() const {
  std::vector<absl::string_view> names;
  for (const ArrayShard& shard : shards_) {
    if (shard.count > 0) names.push_back(shard.device);
  }
  return absl::StrJoin(names, ", ");
}

}  // namespace reduced::server

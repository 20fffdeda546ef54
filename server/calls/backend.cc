#include "server/calls/backend.h"

#include <cstddef>

#include "server/config/configuration.h"
#include "server/observe/log.h"

namespace reduced::server {
namespace {

constexpr std::size_t kIdPrefix = 6;  // characters of an array's id that the status page shows

}  // namespace

Snapshot Backend::TakeSnapshot(Detail detail) const {
  Snapshot snapshot{
      .started = started,
      .devices = {},
      .left_out = engines.left_out(),
      .no_cuda_reason = engines.no_cuda_reason(),
      .usage = {{"streams", "ReduceStream, PutArray and GetArray calls in progress.", streams.taken(),
                 limits.max_streams},
                {"sessions", "Open sessions.", sessions.taken(), limits.max_sessions},
                {"arrays", "Resident arrays.", arrays.count(), limits.max_arrays},
                {"regions", "Open regions of shared memory.", regions.count()},
                {"rings", "Open rings of sessions.", pollers.count(),
                 limits.max_ring_bytes == 0 ? 0 : limits.max_sessions},
                {"memory_bytes", "Host memory that requests take, in bytes.", memory->taken() + small_memory->taken(),
                 memory->limit() == MemoryBudget().limit() ? 0 : memory->limit()}},
      .refused_calls = security == nullptr ? 0 : security->refused(),
      .dropped_log_lines = DroppedLogLines(),
      .flags = {},
      .arrays = {}};
  for (const auto& engine : engines.all()) snapshot.devices.push_back(engine->info());
  if (detail == Detail::kCounts) return snapshot;
  for (const FlagValue& flag : flags) snapshot.flags.push_back({flag.name, RedactedValue(flag), flag.source});
  for (const ArrayDescription& array : arrays.ListAll()) {
    snapshot.arrays.push_back({.id_prefix = array.id.substr(0, kIdPrefix),
                               .owner = array.owner,
                               .device = array.device,
                               .dtype = RowOf(array.dtype).name,
                               .shape = array.shape,
                               .bytes = array.bytes});
  }
  return snapshot;
}

}  // namespace reduced::server

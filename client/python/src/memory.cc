#include "client/python/src/memory.h"

#include <iterator>
#include <utility>
#include <vector>

#include "kernels/system/status_macros.h"

namespace reduced::python {
namespace {

// The memory of this process, by its address. It is never destroyed: arrays may outlive the interpreter's modules.
struct Memories {
  absl::Mutex mutex;
  std::map<const char*, std::weak_ptr<Memory>> by_address ABSL_GUARDED_BY(mutex);
};

Memories& All() {
  static auto* const all = new Memories;
  return *all;
}

}  // namespace

absl::StatusOr<client::RemoteArray> Memory::Share(client::Client& client, const HostArray& array) {
  const absl::MutexLock lock(&mutex_);
  auto found = regions_.find(&client);
  if (found != regions_.end() && found->second.get_deleter().forked()) {
    regions_.erase(found);
    found = regions_.end();
  }
  if (found == regions_.end()) {
    ASSIGN_OR_RETURN(client::Region region, client.Share(buffer_));
    found = regions_.emplace(&client, MakeOwned(std::move(region))).first;
  }
  const auto* const first =
      array.strided == nullptr ? static_cast<const std::byte*>(array.data) : array.strided->data();
  return found->second->Array(array.dtype, array.shape, first - static_cast<const std::byte*>(data()), array.layout);
}

void Memory::Forget(const client::Client& client) {
  const absl::MutexLock lock(&mutex_);
  regions_.erase(&client);
}

absl::StatusOr<std::shared_ptr<Memory>> Allocate(std::int64_t bytes) {
  ASSIGN_OR_RETURN(client::SharedBuffer buffer, client::SharedBuffer::Allocate(bytes));
  Memories& all = All();
  const auto forget_and_delete = [&all](Memory* memory) {
    {
      const absl::MutexLock lock(&all.mutex);
      all.by_address.erase(static_cast<const char*>(memory->data()));
    }
    delete memory;
  };
  const std::shared_ptr<Memory> memory(new Memory(std::move(buffer)), forget_and_delete);
  if (memory->data() != nullptr) {
    const absl::MutexLock lock(&all.mutex);
    all.by_address[static_cast<const char*>(memory->data())] = memory;
  }
  return memory;
}

std::shared_ptr<Memory> Find(const void* data, std::int64_t bytes) {
  Memories& all = All();
  std::shared_ptr<Memory> memory;  // released after the lock, which its end takes
  const absl::MutexLock lock(&all.mutex);
  const auto after = all.by_address.upper_bound(static_cast<const char*>(data));
  if (after == all.by_address.begin()) return nullptr;
  memory = std::prev(after)->second.lock();
  if (memory == nullptr) return nullptr;
  const auto offset = static_cast<const char*>(data) - static_cast<const char*>(memory->data());
  return bytes <= memory->bytes() - offset ? memory : nullptr;
}

void ForgetAll(const client::Client& client) {
  std::vector<std::shared_ptr<Memory>> memories;
  {
    Memories& all = All();
    const absl::MutexLock lock(&all.mutex);
    for (const auto& [address, memory] : all.by_address) {
      if (std::shared_ptr<Memory> there = memory.lock(); there != nullptr) memories.push_back(std::move(there));
    }
  }
  for (const std::shared_ptr<Memory>& memory : memories) memory->Forget(client);
}

}  // namespace reduced::python

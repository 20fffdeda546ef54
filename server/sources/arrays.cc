#include "server/sources/arrays.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "kernels/system/quoted.h"
#include "kernels/system/status_macros.h"
#include "server/security/identity.h"
#include "server/security/random_id.h"
#include "spdlog/spdlog.h"

namespace reduced::server {
namespace {

absl::Status NotFound(absl::string_view id) {
  return absl::NotFoundError(absl::StrFormat(
      "array_id: got %s, of no resident array; allowed: that of one that has not expired or been deleted", Quoted(id)));
}

absl::Status NotYours() {
  return absl::PermissionDeniedError("array_id: got one that belongs to another identity; allowed: your own");
}

}  // namespace

struct ResidentArrays::Entry {
  bool Expired(absl::Time now) const { return users == 0 && last_used + array.ttl <= now; }

  ArrayDescription Describe(absl::Time now) const {
    const absl::Duration left = users > 0 ? array.ttl : last_used + array.ttl - now;
    ArrayDescription description{.id = id,
                                 .dtype = array.dtype,
                                 .shape = array.shape,
                                 .bytes = array.bytes,
                                 .device = array.device,
                                 .owner = array.owner,
                                 .age = now - added,
                                 .expires_in = std::max(left, absl::ZeroDuration()),
                                 .users = users,
                                 .serial = serial,
                                 .shards = {}};
    if (array.sharded == nullptr) return description;
    for (const ArrayShard& shard : array.sharded->shards()) {
      description.shards.push_back({shard.device, shard.first_row, shard.rows, shard.count});
    }
    return description;
  }

  // Called once the array has no users and no id.
  void Free() {
    array.memory.reset();
    array.quota.Return();
    if (on_free != nullptr) std::move(on_free)(absl::OkStatus());
  }

  std::string id;
  ResidentArray array;
  std::uint64_t serial = 0;  // ascending with age
  absl::Time added;
  // Guarded by the registry's mutex.
  absl::Time last_used;
  int users = 0;
  bool deleted = false;
  Deleted on_free;  // may be null
};

ResidentArrays::ResidentArrays(int max_arrays) : max_arrays_(max_arrays), expiring_([this] { Expire(); }) {}

ResidentArrays::~ResidentArrays() {
  {
    const absl::MutexLock lock(&mutex_);
    stopping_ = true;
    wake_.Signal();
  }
  expiring_.join();
}

absl::Status ResidentArrays::CheckRoom() const {
  const absl::MutexLock lock(&mutex_);
  return CheckRoomLocked();
}

absl::Status ResidentArrays::CheckRoomLocked() const {
  if (static_cast<int>(entries_.size()) < max_arrays_) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrFormat("the server has %d resident arrays; allowed: %d (--max_arrays)", entries_.size(), max_arrays_));
}

absl::StatusOr<ArrayDescription> ResidentArrays::Add(ResidentArray array) {
  const auto entry = std::make_shared<Entry>();
  entry->id = RandomId();
  entry->array = std::move(array);
  const absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(CheckRoomLocked());
  entry->added = entry->last_used = absl::Now();
  entry->serial = added_++;
  entries_.emplace(entry->id, entry);
  if (entry->last_used + entry->array.ttl < next_expiry_) wake_.Signal();
  return entry->Describe(entry->added);
}

absl::StatusOr<std::shared_ptr<const ResidentArray>> ResidentArrays::Find(absl::string_view id,
                                                                          absl::string_view caller) {
  return Find(id, caller, nullptr);
}

absl::StatusOr<std::shared_ptr<const ResidentArray>> ResidentArrays::Find(absl::string_view id,
                                                                          absl::string_view caller,
                                                                          ArrayDescription* description) {
  const absl::MutexLock lock(&mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return NotFound(id);
  const std::shared_ptr<Entry> entry = found->second;
  if (entry->array.identity != caller) return NotYours();
  ++entry->users;
  if (description != nullptr) *description = entry->Describe(absl::Now());
  return std::shared_ptr<const ResidentArray>(&entry->array, [this, entry](const ResidentArray*) { Leave(entry); });
}

// Ends one use of the array.
void ResidentArrays::Leave(const std::shared_ptr<Entry>& entry) {
  {
    const absl::MutexLock lock(&mutex_);
    entry->last_used = absl::Now();
    if (--entry->users > 0) return;
    if (!entry->deleted) {
      // The thread ignored the array while it was in use.
      if (entry->last_used + entry->array.ttl < next_expiry_) wake_.Signal();
      return;
    }
  }
  entry->Free();
}

std::vector<ArrayDescription> ResidentArrays::List(absl::string_view owner, absl::string_view caller,
                                                   std::uint64_t first, std::size_t limit) const {
  const auto wanted = [&](const Entry& entry) {
    return entry.serial >= first && entry.array.identity == caller && (owner.empty() || owner == entry.array.owner);
  };
  return ListWhere(wanted, limit);
}

std::vector<ArrayDescription> ResidentArrays::ListAll() const {
  return ListWhere([](const Entry&) { return true; }, std::numeric_limits<std::size_t>::max());
}

std::vector<ArrayDescription> ResidentArrays::ListWhere(absl::FunctionRef<bool(const Entry&)> wanted,
                                                        std::size_t limit) const {
  const absl::MutexLock lock(&mutex_);
  std::vector<const Entry*> listed;
  for (const auto& [id, entry] : entries_) {
    if (wanted(*entry)) listed.push_back(entry.get());
  }
  std::sort(listed.begin(), listed.end(), [](const Entry* a, const Entry* b) { return a->serial < b->serial; });
  if (listed.size() > limit) listed.resize(limit);
  const absl::Time now = absl::Now();
  std::vector<ArrayDescription> infos;
  infos.reserve(listed.size());
  for (const Entry* const entry : listed) infos.push_back(entry->Describe(now));
  return infos;
}

void ResidentArrays::Delete(absl::string_view id, absl::string_view owner, Deleted done, absl::string_view caller) {
  absl::Status status;
  std::shared_ptr<Entry> unused;
  {
    const absl::MutexLock lock(&mutex_);
    const auto found = entries_.find(id);
    if (found == entries_.end()) {
      status = NotFound(id);
    } else if (found->second->array.identity != caller) {
      status = NotYours();
    } else if (const std::string& theirs = found->second->array.owner; theirs != owner) {
      status = absl::PermissionDeniedError(
          absl::StrFormat("owner: got %s; allowed: the array's owner, %s", Quoted(owner), Quoted(theirs)));
    } else {
      const std::shared_ptr<Entry> entry = std::move(found->second);
      entries_.erase(found);
      entry->deleted = true;
      if (entry->users > 0) {  // the last user frees it
        entry->on_free = std::move(done);
        return;
      }
      unused = entry;
    }
  }
  if (unused != nullptr) unused->Free();
  std::move(done)(status);
}

int ResidentArrays::count() const {
  const absl::MutexLock lock(&mutex_);
  return static_cast<int>(entries_.size());
}

// Runs on its own thread: waits until the next array expires.
void ResidentArrays::Expire() {
  for (;;) {
    std::vector<std::shared_ptr<Entry>> expired;
    {
      const absl::MutexLock lock(&mutex_);
      while (!stopping_ && (expired = TakeExpired()).empty()) wake_.WaitWithDeadline(&mutex_, next_expiry_);
      if (stopping_) return;
    }
    for (const std::shared_ptr<Entry>& entry : expired) {
      spdlog::debug("resident array of {} bytes on {}, owner {}, expired after {}", entry->array.bytes,
                    entry->array.device, Quoted(entry->array.owner), absl::FormatDuration(entry->array.ttl));
      entry->Free();
    }
  }
}

// Removes the expired arrays from the registry, and sets next_expiry_.
std::vector<std::shared_ptr<ResidentArrays::Entry>> ResidentArrays::TakeExpired() {
  const absl::Time now = absl::Now();
  std::vector<std::shared_ptr<Entry>> expired;
  next_expiry_ = absl::InfiniteFuture();
  for (auto each = entries_.begin(); each != entries_.end();) {
    const Entry& entry = *each->second;
    if (entry.Expired(now)) {
      expired.push_back(each->second);
      each = entries_.erase(each);
      continue;
    }
    if (entry.users == 0) next_expiry_ = std::min(next_expiry_, entry.last_used + entry.array.ttl);
    ++each;
  }
  return expired;
}

}  // namespace reduced::server

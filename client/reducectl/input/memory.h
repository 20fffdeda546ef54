// The memory that bytes of inputs are in.
#ifndef REDUCED_CLIENT_REDUCECTL_INPUT_MEMORY_H_
#define REDUCED_CLIENT_REDUCECTL_INPUT_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "reduced/shared.h"

namespace reduced::client {

// Where the bytes of an input are stored.
enum class Hold {
  kOwn,         // in memory of this process, or nowhere: they are read as they are sent
  kShare,       // in a SharedBuffer, which a server can read; an error if that is impossible
  kShareLarge,  // large files in a SharedBuffer if that is possible, others as kOwn
};

// The bytes of an input, which it owns. Bytes that are read as they are sent are none.
class Memory {
 public:
  Memory() = default;
  explicit Memory(std::string bytes) : owner_(std::move(bytes)) {}
  explicit Memory(std::vector<std::uint64_t> words) : owner_(std::move(words)) {}
  Memory(SharedBuffer buffer, std::size_t size) : owner_(std::move(buffer)), size_(size) {}
  // Bytes of others, which live as long as `owner`, and are only read.
  Memory(std::shared_ptr<const void> owner, absl::string_view bytes) : owner_(Borrowed{std::move(owner), bytes}) {}
  // A regular file, mapped: a part that is cut off later ends the process when it is read. INVALID_ARGUMENT: it cannot
  // be mapped.
  static absl::StatusOr<Memory> Map(const std::string& path);
  // Copies the bytes to a SharedBuffer if `hold` is kShare and they are not in one.
  static absl::StatusOr<Memory> Of(Memory memory, Hold hold);
  // Memory for `bytes` bytes; `share`: in a SharedBuffer. RESOURCE_EXHAUSTED: there is none.
  static absl::StatusOr<Memory> Allocate(std::int64_t bytes, bool share);

  absl::string_view bytes() const;
  char* data() { return const_cast<char*>(bytes().data()); }
  // Null: they are in memory of this process.
  const SharedBuffer* shared() const { return std::get_if<SharedBuffer>(&owner_); }

 private:
  struct Borrowed {
    std::shared_ptr<const void> owner;
    absl::string_view bytes;
  };

  std::variant<std::string, std::vector<std::uint64_t>, SharedBuffer, Borrowed> owner_;
  std::size_t size_ = 0;
};

// The bytes of memory that this process could get now.
std::int64_t AvailableMemory();
// The most bytes that are read into memory of a source of unknown size: a third of AvailableMemory(), because making
// room for more takes up to twice the bytes for a moment.
std::int64_t UnsizedLimit();

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_INPUT_MEMORY_H_

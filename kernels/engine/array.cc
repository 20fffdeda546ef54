#include "kernels/engine/array.h"

#include <cstring>

#include "kernels/system/read_file.h"

namespace reduced {

absl::Status CopyElements(const ArrayRef& array, std::int64_t begin, std::int64_t bytes, std::byte* to) {
  if (array.read != nullptr) return (*array.read)(array.offset + begin, reinterpret_cast<char*>(to), bytes);
  if (array.space == MemorySpace::kFile) return ReadFile(array.file, array.offset + begin, bytes, to);
  std::memcpy(to, static_cast<const std::byte*>(array.data) + begin, static_cast<std::size_t>(bytes));
  return absl::OkStatus();
}

}  // namespace reduced

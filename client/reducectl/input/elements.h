// The elements of one array: read now or as they are sent, in the order and the byte order that servers take.
#ifndef REDUCED_CLIENT_REDUCECTL_INPUT_ELEMENTS_H_
#define REDUCED_CLIENT_REDUCECTL_INPUT_ELEMENTS_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/reducectl/input/bytes.h"
#include "client/reducectl/input/input.h"

namespace reduced::client {

// Where the bytes of an array of a known size are: in order in `source`, or in `file`, which is then the same.
struct Elements {
  std::shared_ptr<PeekedBytes> source;
  const FileBytes* file = nullptr;
  std::int64_t bytes = 0;
};

// The array whose elements these are. RESOURCE_EXHAUSTED: they come from a source of unknown size, and are more than
// UnsizedLimit(), or than there is memory.
absl::StatusOr<Input> Load(Elements elements, Layout layout, const InputOptions& options);

// Reads `bytes` bytes. INVALID_ARGUMENT: there are fewer.
absl::Status ReadExactly(ByteSource& source, char* to, std::int64_t bytes);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_INPUT_ELEMENTS_H_

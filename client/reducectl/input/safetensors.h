// .safetensors files: a number of 8 bytes, so many bytes of JSON, and the elements of each tensor, end to end. Models
// in several files have an index, .safetensors.index.json, that says which file has which tensor.
#ifndef REDUCED_CLIENT_REDUCECTL_INPUT_SAFETENSORS_H_
#define REDUCED_CLIENT_REDUCECTL_INPUT_SAFETENSORS_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/reducectl/input/input.h"
#include "client/reducectl/input/memory.h"

namespace reduced::client {

struct TensorDType {
  absl::string_view name;   // as files have it, such as "BF16"
  absl::string_view dtype;  // one of DTypeNames(); empty: there is none
  int bits;                 // of an element
};
// Null: it is unknown.
const TensorDType* FindTensorDType(absl::string_view name);

struct Tensor {
  std::string name{};
  std::string dtype{};  // as the file has it
  std::vector<std::int64_t> shape{};
  std::size_t begin = 0, end = 0;  // in the file
};

// The tensors of a file, in the order of their elements. INVALID_ARGUMENT: its header is more than 100 MB, no JSON, or
// no such header; a name occurs twice; a tensor has other bytes than its dtype and shape take; bytes of the file are in
// no tensor, or in two, or missing.
absl::StatusOr<std::vector<Tensor>> ParseSafetensors(absl::string_view file);
// The name and the file of each tensor, in the order of an index. INVALID_ARGUMENT: it is none, a name occurs twice, or
// a file is not in the folder of the index.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ParseSafetensorsIndex(absl::string_view text);

// Whether a file is one of the two, by its name or its first bytes.
bool IsSafetensors(absl::string_view name, absl::string_view head);
bool IsSafetensorsIndex(absl::string_view name);

// The tensors that are asked for, of a file or an index at `path`. A tensor whose dtype `reduced` lacks is a Piece
// with a status, unless InputOptions.raw_dtypes is set.
absl::StatusOr<std::unique_ptr<InputReader>> OpenSafetensors(const std::string& path, absl::StatusOr<Memory> file,
                                                             const InputOptions& options);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_INPUT_SAFETENSORS_H_

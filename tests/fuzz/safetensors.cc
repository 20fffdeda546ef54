// .safetensors files and their indexes.
#include "client/reducectl/input/safetensors.h"

#include <cstdint>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "tests/fuzz/fuzz.h"

namespace reduced::fuzz {

FUZZ_TARGET(safetensors) {
  const absl::string_view file = input.rest();
  const auto tensors = client::ParseSafetensors(file);
  RequireGoodError(tensors.status());
  if (tensors.ok()) {
    // The elements are the rest of the file, each once.
    std::size_t next = tensors->empty() ? file.size() : tensors->front().begin;
    std::set<std::string> names;
    for (const client::Tensor& tensor : *tensors) {
      Require(tensor.begin == next && tensor.end >= tensor.begin, "tensors lie end to end");
      Require(names.insert(tensor.name).second, "names differ", tensor.name);
      next = tensor.end;
    }
    Require(next == file.size(), "the elements are the rest of the file");
  }
  const auto index = client::ParseSafetensorsIndex(file);
  RequireGoodError(index.status());
  if (!index.ok()) return;
  for (const auto& [name, path] : *index) {
    Require(!path.empty() && path.find('/') == std::string::npos && path != "..", "files are in the folder", path);
  }
}

}  // namespace reduced::fuzz

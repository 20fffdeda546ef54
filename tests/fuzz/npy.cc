// .npy files, and the layout of raw ones.
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "client/reducectl/input/input.h"
#include "tests/fuzz/fuzz.h"

namespace reduced::fuzz {
namespace {

// The elements extend from the offset to the end of the file, neither more nor less.
void CheckLayout(const absl::StatusOr<client::Layout>& layout, absl::string_view file) {
  RequireGoodError(layout.status());
  if (!layout.ok()) return;
  const absl::StatusOr<std::int64_t> bytes = client::ArrayBytes(layout->dtype, layout->shape);
  Require(bytes.ok(), "a layout has a size");
  Require(layout->offset <= file.size() && static_cast<std::uint64_t>(*bytes) == file.size() - layout->offset,
          "the elements are the rest of the file");
}

}  // namespace

FUZZ_TARGET(npy) {
  const absl::string_view file = input.rest();
  CheckLayout(client::ParseNpy(file), file);
  client::InputOptions options;
  const std::vector<std::string> dtypes = client::DTypeNames();
  options.dtype = dtypes[input.Choice(dtypes.size())];
  options.offset = input.Number<std::int64_t>();
  if (input.Choice(2) == 1) {
    options.shape.emplace();
    for (std::size_t dimensions = input.Choice(5); dimensions > 0; --dimensions) {
      options.shape->push_back(input.Number<std::int64_t>());
    }
  }
  CheckLayout(client::ParseRaw(static_cast<std::int64_t>(file.size()), options), file);
}

}  // namespace reduced::fuzz

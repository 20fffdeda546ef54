// Compressed files, and zip archives. The input is the file.
#include "client/reducectl/input/compressed.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "client/reducectl/input/archive.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/text_source.h"

namespace reduced::fuzz {
namespace {

// Reads a source in steps, up to a limit, as bytes may become a thousand times as many.
absl::StatusOr<std::string> Read(client::ByteSource& source, std::size_t step) {
  constexpr std::size_t kMost = std::size_t{1} << 20;
  std::string all;
  for (std::string part(step, '\0'); all.size() < kMost;) {
    const absl::StatusOr<std::size_t> got = source.Read(part.data(), step);
    if (!got.ok()) return got.status();
    Require(*got <= step, "no more is read than there is room for");
    all.append(part, 0, *got);
    if (*got < step) break;
  }
  return all.substr(0, kMost);
}

absl::StatusOr<std::string> Decompressed(absl::string_view file, const char* compression, std::size_t step) {
  return Read(*client::Decompress(compression, std::make_unique<client::TextSource>(file)), step);
}

}  // namespace

FUZZ_TARGET(compressed) {
  const absl::string_view file = input.rest();
  if (const char* const compression = client::CompressionOf(file)) {
    const absl::StatusOr<std::string> at_once = Decompressed(file, compression, std::size_t{1} << 20);
    const absl::StatusOr<std::string> in_steps = Decompressed(file, compression, 1 << 10);
    RequireGoodError(at_once.status());
    // In which words a library refuses damage may depend on the room that it has.
    const bool same = at_once.ok() ? at_once == in_steps : at_once.status().code() == in_steps.status().code();
    Require(same, "the size of a read changes neither the bytes nor whether there is an error");
  }
  if (!client::IsZip(file)) return;
  const auto archive = client::Archive::Open("", client::Memory(std::string(file)));
  RequireGoodError(archive.status());
  if (!archive.ok()) return;
  for (const auto* const files : {&(*archive)->arrays(), &(*archive)->others()}) {
    for (const client::Archive::File& each : *files) {
      const auto source = client::Archive::Read(*archive, each);
      RequireGoodError(source.ok() ? Read(**source, 997).status() : source.status());
    }
  }
}

}  // namespace reduced::fuzz

// Compressed bytes: gzip, Zstandard, xz, bzip2.
#ifndef REDUCED_CLIENT_REDUCECTL_INPUT_COMPRESSED_H_
#define REDUCED_CLIENT_REDUCECTL_INPUT_COMPRESSED_H_

#include <memory>

#include "absl/strings/string_view.h"
#include "client/reducectl/input/bytes.h"

namespace reduced::client {

// How many of the first bytes of a file CompressionOf() looks at.
inline constexpr std::size_t kCompressionHead = 10;

// How bytes are compressed, by the first of them; null: they are not.
const char* CompressionOf(absl::string_view head);  // "gzip", "Zstandard", "xz", "bzip2"
// Whether the name of a file says that it is compressed: "a.csv.gz".
bool IsCompressedName(absl::string_view name);

// What the bytes of `source` are, which are compressed so: one or more members, streams or frames that follow each
// other. NULs after one are padding, as tapes and disks add it. Anything else that follows, and an end within one, is
// an error: what was read before is then not all. The memory stays bounded whatever window the bytes ask for.
std::unique_ptr<ByteSource> Decompress(const char* compression, std::unique_ptr<ByteSource> source);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_INPUT_COMPRESSED_H_

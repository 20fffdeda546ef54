#include "client/lib/via.h"

#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reduced/array.h"

namespace reduced::client {
namespace {

// A protobuf message has less than 2 GiB. One MiB is left for everything but the elements.
constexpr std::int64_t kMaxInlineBytes = std::numeric_limits<std::int32_t>::max() - (std::int64_t{1} << 20);
// From here on a stream is faster than one message: tests/bench/bench_stream.
constexpr std::int64_t kStreamFromBytes = std::int64_t{512} << 10;

}  // namespace

std::vector<std::string> ViaNames() { return {"auto", std::string(kInline), std::string(kStream)}; }

absl::StatusOr<absl::string_view> ChooseVia(absl::string_view via, std::int64_t bytes) {
  if (via == "auto") return bytes < kStreamFromBytes ? kInline : kStream;
  if (via == kStream) return kStream;
  if (via != kInline) {
    return absl::InvalidArgumentError(
        absl::StrCat("via: got \"", via, "\"; allowed: ", absl::StrJoin(ViaNames(), ", ")));
  }
  if (bytes <= kMaxInlineBytes) return kInline;
  return absl::InvalidArgumentError(absl::StrCat("via: got inline for an array of ", bytes,
                                                 " bytes; allowed: inline up to ", kMaxInlineBytes,
                                                 " bytes, stream for any size"));
}

}  // namespace reduced::client

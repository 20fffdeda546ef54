// How the elements of an array reach the server.
#ifndef REDUCED_CLIENT_LIB_VIA_H_
#define REDUCED_CLIENT_LIB_VIA_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace reduced::client {

// The values of ReduceOptions.via but for "auto", and of Reply.via.
inline constexpr absl::string_view kInline = "inline";
inline constexpr absl::string_view kStream = "stream";
inline constexpr absl::string_view kSession = "session";
inline constexpr absl::string_view kResident = "resident";
inline constexpr absl::string_view kRegion = "region";
inline constexpr absl::string_view kRing = "ring";

// How Client::Reduce sends an array of so many bytes: kInline or kStream. INVALID_ARGUMENT: `via` is no value of
// ReduceOptions.via, or the array is too large for it.
absl::StatusOr<absl::string_view> ChooseVia(absl::string_view via, std::int64_t bytes);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_VIA_H_

#include "server/observe/call_tag.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/security/random_id.h"

namespace reduced::server {
namespace {

constexpr std::size_t kTraceparentBytes = 55;  // of version 00

bool IsLowerHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}
bool IsZero(std::string_view text) { return text.find_first_not_of('0') == std::string_view::npos; }

}  // namespace

bool IsRequestId(std::string_view text) {
  constexpr std::string_view kPunctuation = "-_.:/+=@";
  return !text.empty() && text.size() <= kMaxRequestIdBytes && std::all_of(text.begin(), text.end(), [&](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || kPunctuation.find(c) != std::string_view::npos;
  });
}

bool IsTraceparent(std::string_view text) {
  if (text.size() < kTraceparentBytes || text[2] != '-' || text[35] != '-' || text[52] != '-') return false;
  const std::string_view version = text.substr(0, 2);
  const std::string_view trace = text.substr(3, 32);
  const std::string_view parent = text.substr(36, 16);
  if (!IsLowerHex(version) || !IsLowerHex(trace) || !IsLowerHex(parent) || !IsLowerHex(text.substr(53, 2)))
    return false;
  if (version == "ff" || IsZero(trace) || IsZero(parent)) return false;
  if (text.size() == kTraceparentBytes) return true;
  return version != "00" && text[kTraceparentBytes] == '-';
}

RequestIds::RequestIds() : prefix_(RandomId().substr(0, 12) + "-") {}

std::string RequestIds::Next() {
  return absl::StrCat(prefix_, absl::Hex(generated_.fetch_add(1, std::memory_order_relaxed) + 1));
}

}  // namespace reduced::server

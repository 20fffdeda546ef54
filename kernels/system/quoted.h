// Text that came from elsewhere, in messages: names, ids, addresses, paths.
#ifndef REDUCED_KERNELS_SYSTEM_QUOTED_H_
#define REDUCED_KERNELS_SYSTEM_QUOTED_H_

#include <cstddef>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace reduced {

// The text in single quotes, as C writes it: everything but printable ASCII is escaped, so that neither a terminal nor
// a log takes a part of it for something else. Of a text of more than `most` bytes the first ones, and how many there
// are.
inline std::string Quoted(absl::string_view text, std::size_t most = 64) {
  const std::string shown = absl::CHexEscape(text.substr(0, most));
  return text.size() <= most ? absl::StrCat("'", shown, "'")
                             : absl::StrCat("'", shown, "...' (", text.size(), " bytes)");
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_SYSTEM_QUOTED_H_

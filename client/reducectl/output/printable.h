// Text from elsewhere, for a terminal.
#ifndef REDUCED_CLIENT_REDUCECTL_OUTPUT_PRINTABLE_H_
#define REDUCED_CLIENT_REDUCECTL_OUTPUT_PRINTABLE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace reduced::client {

// The text with every control character but line feeds and tabs as \xNN, so that a file name, a column's name or the
// message of a server cannot move the cursor, change the terminal's title or hide what was printed before.
std::string Printable(absl::string_view text);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_OUTPUT_PRINTABLE_H_

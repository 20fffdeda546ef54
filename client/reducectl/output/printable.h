// Text from elsewhere, for a terminal.
#ifndef REDUCED_CLIENT_REDUCECTL_OUTPUT_PRINTABLE_H_
#define REDUCED_CLIENT_REDUCECTL_OUTPUT_PRINTABLE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace reduced::client {

// The text on one line, without what a terminal obeys: so that a file name, a column's name or what a server says can't
// move the cursor, change the title, hide what was printed before, look like a line of its own, or change the order of
// the text around it. Control characters but tabs and bytes that are not UTF-8 become \xNN; the marks that change the
// direction of text, and the separators of lines and paragraphs, \uNNNN.
std::string Printable(absl::string_view text);

// The same for a text that is JSON in UTF-8, which stays the same JSON: only characters that JSON needn't escape, but a
// terminal obeys, become \uNNNN.
std::string PrintableJson(absl::string_view json);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_OUTPUT_PRINTABLE_H_

// Formats that are not read, so that an error can say what a file is.
#ifndef REDUCED_CLIENT_REDUCECTL_INPUT_FOREIGN_H_
#define REDUCED_CLIENT_REDUCECTL_INPUT_FOREIGN_H_

#include "absl/strings/string_view.h"

namespace reduced::client {

// "an HDF5 file": what begins with these bytes, of which 512 are enough; null: no such format.
const char* ForeignFormat(absl::string_view head);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_INPUT_FOREIGN_H_

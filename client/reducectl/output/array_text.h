// Arrays as text.
#ifndef REDUCED_CLIENT_REDUCECTL_OUTPUT_ARRAY_TEXT_H_
#define REDUCED_CLIENT_REDUCECTL_OUTPUT_ARRAY_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "client/reducectl/output/render.h"
#include "reduced/result_array.h"

namespace reduced::client {

// Whether an op's answers are fingerprints: two numbers each, in the last dimension, which are shown as one text.
bool IsFingerprint(absl::string_view op);

// The elements in brackets, a row a line, as NumPy prints them: of an array with more than 1000 only the first and last
// three along each dimension. A line break at the end.
std::string ArrayText(const HostArray& array, bool fingerprints = false);

// All elements, as nested lists. Of a scalar: its value; without elements: an empty list.
Json ToJson(const HostArray& array, bool fingerprints = false);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_OUTPUT_ARRAY_TEXT_H_

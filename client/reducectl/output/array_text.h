// Arrays as text.
#ifndef REDUCED_CLIENT_REDUCECTL_OUTPUT_ARRAY_TEXT_H_
#define REDUCED_CLIENT_REDUCECTL_OUTPUT_ARRAY_TEXT_H_

#include <string>

#include "client/reducectl/output/render.h"
#include "reduced/result_array.h"

namespace reduced::client {

// The elements in brackets, a row a line, as NumPy prints them: of an array with more than 1000 only the first and last
// three along each dimension. A line break at the end.
std::string ArrayText(const HostArray& array);

// All elements, as nested lists. Of a scalar: its value; without elements: an empty list.
Json ToJson(const HostArray& array);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_OUTPUT_ARRAY_TEXT_H_

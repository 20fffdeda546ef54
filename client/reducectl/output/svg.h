// Elements of SVG as text. Lengths are in pixels. `style` is a class.
#ifndef REDUCED_CLIENT_REDUCECTL_OUTPUT_SVG_H_
#define REDUCED_CLIENT_REDUCECTL_OUTPUT_SVG_H_

#include <string>

#include "absl/strings/string_view.h"

namespace reduced::client {

std::string SvgEscape(absl::string_view text);  // for HTML, too
std::string SvgText(double x, double y, absl::string_view style, absl::string_view text);
std::string SvgVerticalLine(double x, double top, double bottom, absl::string_view style);
std::string SvgHorizontalLine(double y, double left, double right, absl::string_view style);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_OUTPUT_SVG_H_

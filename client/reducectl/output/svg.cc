#include "client/reducectl/output/svg.h"

#include "absl/strings/str_format.h"
#include "client/reducectl/output/printable.h"

namespace reduced::client {

std::string SvgEscape(absl::string_view text) {
  std::string out;
  for (const char c : Printable(text)) {  // XML has no control characters either
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:  // XML has no control characters
        out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
  }
  return out;
}

std::string SvgText(double x, double y, absl::string_view style, absl::string_view text) {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">%s</text>\n", x, y, style, SvgEscape(text));
}

std::string SvgVerticalLine(double x, double top, double bottom, absl::string_view style) {
  return absl::StrFormat("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n", x, top, x, bottom,
                         style);
}

std::string SvgHorizontalLine(double y, double left, double right, absl::string_view style) {
  return absl::StrFormat("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n", left, y, right, y,
                         style);
}

}  // namespace reduced::client

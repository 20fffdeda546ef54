// The page of a load test.
#ifndef REDUCED_CLIENT_REDUCECTL_LOADTEST_HTML_H_
#define REDUCED_CLIENT_REDUCECTL_LOADTEST_HTML_H_

#include "absl/strings/string_view.h"

namespace reduced::client {

// page.html. It draws the plots from the JSON that stands where it has "@DATA@".
extern const absl::string_view kLoadtestPage;

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_LOADTEST_HTML_H_

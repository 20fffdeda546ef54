// Runs load tests.
#ifndef REDUCED_CLIENT_REDUCECTL_LOADTEST_LOADTEST_H_
#define REDUCED_CLIENT_REDUCECTL_LOADTEST_LOADTEST_H_

#include <string>

#include "client/reducectl/command_line/client.h"
#include "client/reducectl/loadtest/options.h"

namespace reduced::client {

// Measures the server that `common` names, or one that it starts if none is named. Prints the results and writes the
// files that `arguments` asks for.
ExitCode RunLoadtest(const CommonOptions& common, const LoadtestArguments& arguments);

// Compares files that --json wrote, and prints the comparison. Each side is a file, or several with commas between
// them. kMissed: the second side is worse.
ExitCode CompareLoadtests(const CommonOptions& common, const std::string& first, const std::string& second);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_LOADTEST_LOADTEST_H_

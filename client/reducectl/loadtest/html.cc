#include "client/reducectl/loadtest/html.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/reducectl/loadtest/report.h"

namespace reduced::client {

std::string ToHtml(const LoadtestRun& run) {
  Json stages = Json::array(), percentiles = Json::array();
  for (const StageRow& stage : kStageRows) stages.push_back(stage.name);
  for (const double percent : kPercentiles) percentiles.push_back(PercentileName(percent));
  const Json data = {{"title", NameOf(run.kinds.front())},
                     {"head", std::vector<std::string>(absl::StrSplit(HeadText(run), '\n', absl::SkipEmpty()))},
                     {"stages", std::move(stages)},
                     {"percentiles", std::move(percentiles)},
                     {"run", ToJson(run)}};
  // In JSON, "<" only stands in strings. Escaped, it can't end the script element.
  return absl::StrReplaceAll(kLoadtestPage, {{"@DATA@", absl::StrReplaceAll(Dump(data), {{"<", "\\u003c"}})}});
}

}  // namespace reduced::client

#include "server/observe/pages.h"

#include <iterator>
#include <sstream>
#include <utility>

#include "absl/strings/str_replace.h"
#include "absl/strings/substitute.h"
#include "prometheus/text_serializer.h"
#include "server/observe/gauges.h"
#include "server/observe/process.h"
#include "server/security/random_id.h"

namespace reduced::server {

std::string MetricsText(const Observer& observer, const Snapshot& snapshot, const Nvml* nvml) {
  std::vector<prometheus::MetricFamily> families = observer.metrics().Collect();
  std::vector<prometheus::MetricFamily> gauges = CollectGauges(snapshot, nvml);
  std::vector<prometheus::MetricFamily> process = CollectProcess();
  for (auto* const more : {&gauges, &process}) {
    families.insert(families.end(), std::make_move_iterator(more->begin()), std::make_move_iterator(more->end()));
  }
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, families);
  return text.str();
}

HttpPages MakePages(const Observer& observer, SnapshotSource take_snapshot, const Nvml* nvml, bool status_page) {
  HttpPages pages;
  // For any host name, since monitoring may use any name of this machine; the page has no text that clients made up.
  pages["/metrics"] = {[&observer, take_snapshot, nvml] {
                         return HttpAnswer{"text/plain; version=0.0.4; charset=utf-8",
                                           MetricsText(observer, take_snapshot(Detail::kCounts), nvml)};
                       },
                       /*for_any_host=*/true};
  if (!status_page) return pages;
  pages["/"].make = [] {
    const std::string nonce = RandomId();
    return HttpAnswer{
        "text/html; charset=utf-8",
        absl::StrReplaceAll(absl::string_view(kStatusPage.data(), kStatusPage.size()), {{"@NONCE@", nonce}}),
        absl::Substitute("default-src 'none'; style-src 'nonce-$0'; script-src 'nonce-$0'; "
                         "connect-src 'self'; base-uri 'none'; form-action 'none'",
                         nonce)};
  };
  pages["/status.json"].make = [&observer, take_snapshot, nvml] {
    return HttpAnswer{"application/json", StatusJson(observer, take_snapshot(Detail::kFull), nvml)};
  };
  return pages;
}

}  // namespace reduced::server

#include "server/observe/pages.h"

#include <iterator>
#include <sstream>
#include <utility>

#include "absl/strings/str_replace.h"
#include "absl/strings/substitute.h"
#include "prometheus/text_serializer.h"
#include "server/observe/gauges.h"
#include "server/sources/random_id.h"

namespace reduced::server {

std::string MetricsText(const Backend& backend, const Nvml* nvml) {
  std::vector<prometheus::MetricFamily> families = backend.observer.metrics().Collect();
  std::vector<prometheus::MetricFamily> gauges = CollectGauges(backend, nvml);
  families.insert(families.end(), std::make_move_iterator(gauges.begin()), std::make_move_iterator(gauges.end()));
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, families);
  return text.str();
}

HttpPages MakePages(const Backend& backend, const Nvml* nvml, bool status_page) {
  HttpPages pages;
  // Whatever name monitoring has for this machine; there is nothing of a client in it.
  pages["/metrics"] = {[&backend, nvml] {
                         return HttpAnswer{"text/plain; version=0.0.4; charset=utf-8", MetricsText(backend, nvml)};
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
  pages["/status.json"].make = [&backend, nvml] { return HttpAnswer{"application/json", StatusJson(backend, nvml)}; };
  return pages;
}

}  // namespace reduced::server

#include "server/observe/pages.h"

#include <iterator>
#include <sstream>

#include "prometheus/text_serializer.h"
#include "server/observe/gauges.h"

namespace reduced {

std::string MetricsText(const Backend& backend, const Nvml* nvml) {
  std::vector<prometheus::MetricFamily> families = backend.observer.metrics().Collect();
  std::vector<prometheus::MetricFamily> gauges = CollectGauges(backend, nvml);
  families.insert(families.end(), std::make_move_iterator(gauges.begin()), std::make_move_iterator(gauges.end()));
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, families);
  return text.str();
}

HttpPages MakePages(const Backend& backend, const Nvml* nvml, bool /*status_page*/, FlagValues /*flags*/) {
  HttpPages pages;
  pages["/metrics"] = [&backend, nvml] {
    return HttpAnswer{"text/plain; version=0.0.4; charset=utf-8", MetricsText(backend, nvml)};
  };
  return pages;
}

}  // namespace reduced

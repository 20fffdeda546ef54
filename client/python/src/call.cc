#include "client/python/src/call.h"

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "reduced/errors.h"

namespace reduced::python {

namespace nb = nanobind;

void Raise(const absl::Status& status) {
  const std::optional<absl::Duration> retry_after = client::RetryAfterOf(status);
  const std::string message(status.message());
  const std::string request_id = client::RequestIdOf(status);
  nb::module_::import_("reduced._errors")
      .attr("raise_status")(static_cast<int>(status.code()), nb::bytes(message.data(), message.size()),
                            nb::str(request_id.c_str()),
                            retry_after.has_value() ? nb::cast(absl::ToDoubleSeconds(*retry_after)) : nb::none());
  throw nb::type_error("raise_status returned");
}

}  // namespace reduced::python

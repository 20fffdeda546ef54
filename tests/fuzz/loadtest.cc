// What a load test reads: profiles, sizes, objectives and the results of another run. The first byte says which.
#include "client/reducectl/loadtest/options.h"
#include "client/reducectl/loadtest/report.h"
#include "tests/fuzz/fuzz.h"

namespace reduced::fuzz {

FUZZ_TARGET(loadtest) {
  // An error quotes the text, which is the user's own.
  const std::size_t most_bytes = 1024 + 5 * input.rest().size();
  switch (input.Choice(4)) {
    case 0: {
      const auto kinds = client::ParseProfile(std::string(input.rest()), {});
      RequireGoodError(kinds.status(), most_bytes);
      if (!kinds.ok()) return;
      Require(!kinds->empty(), "a profile has a kind");
      for (const client::Kind& kind : *kinds) {
        Require(kind.weight > 0 && !kind.ops.empty(), "a kind has a weight and an op");
        Require(
            kind.sizes.high > 0 ? kind.sizes.low >= 1 && kind.sizes.low <= kind.sizes.high : !kind.sizes.list.empty(),
            "a kind has a size");
      }
      return;
    }
    case 1:
      RequireGoodError(client::ParseSizes(std::string(input.rest())).status(), most_bytes);
      return;
    case 2: {
      const auto objectives = client::ParseObjectives(std::string(input.rest()));
      RequireGoodError(objectives.status(), most_bytes);
      RequireGoodError(client::ParsePercentage(std::string(input.rest())).status(), most_bytes);
      if (!objectives.ok()) return;
      for (const client::Objective& objective : *objectives) {
        Require(objective.percent > 0 && objective.percent <= 100 && objective.ms > 0, "an objective can be met",
                objective.text);
      }
      return;
    }
    default: {
      const std::string first(input.TakePiece());
      const auto comparison = client::Compare({first}, {std::string(input.rest())});
      RequireGoodError(comparison.status(), most_bytes);
      // A run is no worse than itself.
      const auto same = client::Compare({first}, {first});
      if (same.ok()) Require(!same->worse, "a run is no worse than itself", same->text);
    }
  }
}

}  // namespace reduced::fuzz

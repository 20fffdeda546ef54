// States: what is accepted is written as it was read, and has answers that an array can have.
#include <cmath>
#include <variant>

#include "absl/strings/str_format.h"
#include "kernels/algebra/finalize.h"
#include "proto/codec/state_codec.h"
#include "reduced/v1/reduced.pb.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/oracle.h"

namespace reduced::fuzz {
namespace {

constexpr StateLimits kStateLimits{.max_elements = std::int64_t{1} << 40, .max_ops = 32};

std::string Written(const StateOfSpec& state) {
  v1::State message;
  ToProto(state.spec, state.state, &message);
  return message.SerializeAsString();
}

// Whether some array has this answer, as far as the op alone tells.
bool IsSane(Op op, const Value& value, std::int64_t count) {
  const auto* const real = std::get_if<double>(&value.value);
  const auto* const whole = std::get_if<std::uint64_t>(&value.value);
  const auto elements = static_cast<std::uint64_t>(count);
  switch (op) {
    case Op::kVar:
    case Op::kStd:
    case Op::kL2:
    case Op::kL1:
    case Op::kSumSquares:
    case Op::kRange:
      return real == nullptr || !(*real < 0);
    case Op::kArgmin:
    case Op::kArgmax:
      return whole != nullptr && *whole < elements;
    case Op::kCountNonzero:
    case Op::kNanCount:
    case Op::kCount:
      return whole != nullptr && *whole <= elements;
    default:
      return true;
  }
}

}  // namespace

FUZZ_TARGET(state) {
  v1::State message;
  if (!message.ParseFromArray(input.rest().data(), static_cast<int>(input.rest().size()))) return;
  const absl::StatusOr<StateOfSpec> state = ParseState(message, kStateLimits);
  RequirePrintableError(state.status());
  if (!state.ok()) return;

  const std::string written = Written(*state);
  v1::State again;
  Require(again.ParseFromString(written), "what is written is a message");
  const absl::StatusOr<StateOfSpec> read = ParseState(again, kStateLimits);
  Require(read.ok(), "what is written is a state", read.status().message());
  Require(Written(*read) == written, "a state is written as it was read", again.DebugString());

  const absl::StatusOr<std::vector<Value>> values = Finalize(state->spec, state->state);
  RequirePrintableError(values.status());
  if (!values.ok()) return;
  Require(values->size() == state->spec.ops.size(), "every op has an answer");
  for (std::size_t i = 0; i < values->size(); ++i) {
    const Op op = state->spec.ops[i];
    Require((*values)[i].dtype == ResultDType(op, state->spec.dtype), "an answer has the dtype of its op");
    Require(IsSane(op, (*values)[i], state->spec.count), "an array can have this answer",
            absl::StrFormat("%s %s", RowOf(op).name, test::ToString((*values)[i])));
  }
}

}  // namespace reduced::fuzz

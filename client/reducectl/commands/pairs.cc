#include "client/reducectl/commands/pairs.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/reducectl/commands/answer.h"
#include "kernels/algebra/dtype.h"
#include "kernels/algebra/portable.h"
#include "kernels/system/status_macros.h"
#include "reduced/ops.h"

namespace reduced::client {
namespace {

bool HasFloats(const Input& input) { return RowOf(*DTypeFromName(input.layout.dtype)).is_float; }

// Elements as f64, and NaN in the places of missing ones.
absl::StatusOr<HostArray> Doubles(const Input& input) {
  const ArrayView view = input.View();
  const auto count = static_cast<std::size_t>(*ArrayBytes("f64", view.shape)) / sizeof(double);
  std::vector<double> doubles(count);
  absl::Status status;
  VisitDType(*DTypeFromName(view.dtype), [&]<class T>(std::type_identity<T>) {
    for (std::size_t i = 0; i < count; ++i) {
      T element;
      std::memcpy(&element, static_cast<const char*>(view.data) + i * sizeof(T), sizeof(T));
      if constexpr (kIsFloat<T>) {
        doubles[i] = ToDouble(element);
      } else {
        const Int128 exact = ToInteger(element);
        doubles[i] = static_cast<double>(exact);
        if (static_cast<Int128>(doubles[i]) == exact) continue;
        const std::string got = exact < 0 ? absl::StrCat(static_cast<std::int64_t>(exact))
                                          : absl::StrCat(static_cast<std::uint64_t>(exact));
        status.Update(absl::InvalidArgumentError(absl::StrCat(
            "got ", got, " beside floats or missing elements; allowed: integers that f64 holds, or integers only")));
      }
    }
  });
  if (!status.ok()) return status;
  for (const std::uint64_t position : input.missing) doubles[position] = std::numeric_limits<double>::quiet_NaN();
  HostArray array{.dtype = "f64", .shape = view.shape};
  array.data.assign(reinterpret_cast<const char*>(doubles.data()), count * sizeof(double));
  return array;
}

// Weights that have the dimensions that are reduced alone get all of `shape`.
absl::Status PlaceWeights(const PartitionOptions& partition, const std::vector<std::int64_t>& shape,
                          ArrayView* weights) {
  std::vector<int> axes = partition.axis;
  if (partition.keys.has_value() || partition.segments.has_value()) axes = {0};
  const int ndim = static_cast<int>(shape.size());
  if (axes.empty() || weights->shape.size() != axes.size() || axes.size() == shape.size()) return absl::OkStatus();
  std::vector<std::int64_t> wanted, placed(shape.size(), 1);
  for (int& axis : axes) {
    if (axis < -ndim || axis >= ndim) return absl::OkStatus();  // an error of the request
    if (axis < 0) axis += ndim;
    wanted.push_back(shape[static_cast<std::size_t>(axis)]);
    placed[static_cast<std::size_t>(axis)] = wanted.back();
  }
  if (wanted != weights->shape || !std::is_sorted(axes.begin(), axes.end())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "weights: got shape (", absl::StrJoin(weights->shape, ", "), ") for reduced dimensions of (",
        absl::StrJoin(wanted, ", "), "); allowed: these, in ascending order, or as many dimensions as the array has"));
  }
  weights->shape = placed;
  return absl::OkStatus();
}

}  // namespace

std::vector<Input> ReadArrays(const std::string& source, InputOptions options, bool json, ExitCode* code,
                              std::vector<std::string>* notes) {
  const auto fail = [&](ExitCode failure) {
    if (*code == kOk) *code = failure;
  };
  options.one_piece = options.in_memory = options.positions = true;
  std::vector<Input> arrays;
  const absl::StatusOr<std::unique_ptr<InputReader>> reader = InputReader::Open(source, options);
  if (!reader.ok()) {
    fail(ReportError(source, reader.status().message(), kData));
    return arrays;
  }
  Notes said(source, json);
  for (;;) {
    absl::StatusOr<std::optional<Piece>> piece = (*reader)->Next();
    said.Add(**reader);
    if (!piece.ok()) fail(ReportError(source, piece.status().message(), kData));
    if (!piece.ok() || !piece->has_value()) return arrays;
    Input& input = (*piece)->input;
    if (!input.status.ok()) {
      fail(ReportUnread(source, input.status));
      continue;
    }
    said.InLine(input.notes);
    if (json) notes->insert(notes->end(), input.notes.begin(), input.notes.end());
    arrays.push_back(std::move(input));
  }
}

absl::StatusOr<std::vector<HostArray>> AlikeDoubles(const std::vector<const Input*>& inputs, bool one_dtype) {
  std::vector<HostArray> doubles(inputs.size());
  const bool floats = std::any_of(inputs.begin(), inputs.end(), [](const Input* input) { return HasFloats(*input); });
  const bool missing =
      std::any_of(inputs.begin(), inputs.end(), [](const Input* input) { return !input->missing.empty(); });
  const bool all = one_dtype && std::any_of(inputs.begin(), inputs.end(), [&](const Input* input) {
                     return input->layout.dtype != inputs.front()->layout.dtype;
                   });
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!all && (HasFloats(*inputs[i]) || !(floats || missing))) continue;
    ASSIGN_OR_RETURN(doubles[i], Doubles(*inputs[i]));
  }
  return doubles;
}

ArrayView ViewOf(const Input& input, const HostArray& doubles) {
  return doubles.dtype.empty() ? input.View() : doubles.View();
}

absl::Status PairUp(const Input& input, const SideFiles& sides, const std::vector<std::string>& ops,
                    const PartitionOptions& options, Paired* paired) {
  paired->partition = options;
  std::vector<std::optional<SideArray>*> others;
  std::vector<const Input*> inputs = {&input};
  for (const auto& [side, file] :
       {std::pair(&paired->partition.y, &sides.y), {&paired->partition.weights, &sides.weights}}) {
    if (!side->has_value() || !std::holds_alternative<ArrayView>(**side)) continue;  // none, or resident
    others.push_back(side);
    inputs.push_back(file);
  }
  ASSIGN_OR_RETURN(paired->doubles, AlikeDoubles(inputs));
  const auto of_one =
      std::find_if(ops.begin(), ops.end(), [](const std::string& op) { return OtherOperandName(op).empty(); });
  if (!paired->doubles[0].dtype.empty() && of_one != ops.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("op: got ", *of_one, " of ", input.layout.dtype,
                     " beside floats or missing elements; allowed: ops about two arrays"));
  }
  paired->x = ViewOf(input, paired->doubles[0]);
  for (std::size_t i = 0; i < others.size(); ++i) {
    ArrayView view = ViewOf(*inputs[i + 1], paired->doubles[i + 1]);
    if (others[i] == &paired->partition.weights) {
      RETURN_IF_ERROR(PlaceWeights(options, input.layout.shape, &view));
    }
    *others[i] = std::move(view);
  }
  return absl::OkStatus();
}

absl::StatusOr<ArrayReply> AskWhole(const Place& place, const ArrayView& x, const std::optional<ArrayView>& y,
                                    const std::string& op, const ReduceOptions& options) {
  PartitionOptions partition{.whole = true};
  if (y.has_value()) partition.y = *y;
  return place.ReduceArray(x, {op}, partition, options);
}

}  // namespace reduced::client

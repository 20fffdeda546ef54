#include "proto/codec/op_call.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "proto/codec/enums.h"

namespace reduced {
namespace {

template <class... What>
absl::Status Wrong(absl::string_view field, const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat(field, what...));
}

// A number as people write it.
std::string Text(double number) {
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof(buffer), number).ptr};
}

// ---- messages

absl::Status ParseQuantile(absl::string_view field, const v1::OpCall& call, OpParameters* to) {
  const v1::QuantileParameters& from = call.quantile();
  if (call.op() == v1::OP_WEIGHTED_QUANTILE && (from.method() != v1::QUANTILE_METHOD_DEFAULT || from.has_counts())) {
    return Wrong(field, from.has_counts() ? ".counts" : ".method", ": got it with OP_WEIGHTED_QUANTILE; allowed: none");
  }
  if (!v1::QuantileMethod_IsValid(from.method())) return UnknownValue(absl::StrCat(field, ".method"), from.method());
  if (from.method() != v1::QUANTILE_METHOD_DEFAULT) to->method = static_cast<QuantileMethod>(from.method());
  if (call.op() == v1::OP_MEDIAN && !from.q().empty()) {
    return Wrong(field, ".q: got ", from.q_size(), " of them with OP_MEDIAN; allowed: none");
  }
  to->quantiles.assign(from.q().begin(), from.q().end());
  const v1::KeyCounts& counts = from.counts();
  to->counts = {counts.bits(), counts.within_bits(), {counts.within().begin(), counts.within().end()}};
  return absl::OkStatus();
}

// The edges of numpy.linspace(low, high, bins + 1).
std::vector<double> UniformEdges(double low, double high, std::int64_t bins) {
  std::vector<double> edges(static_cast<std::size_t>(bins) + 1);
  const double width = high - low, step = width / static_cast<double>(bins);
  for (std::size_t i = 0; i < edges.size(); ++i) {
    const auto number = static_cast<double>(i);
    edges[i] = (step == 0 ? number / static_cast<double>(bins) * width : number * step) + low;
  }
  edges.back() = high;
  return edges;
}

// Those of numpy.geomspace.
std::vector<double> LogarithmicEdges(double low, double high, std::int64_t bins) {
  std::vector<double> edges = UniformEdges(std::log10(low), std::log10(high), bins);
  for (double& edge : edges) edge = std::pow(10.0, edge);
  edges.front() = low;
  edges.back() = high;
  return edges;
}

absl::Status ParseBins(absl::string_view field, const v1::UniformBins& from, bool logarithmic, OpParameters* to) {
  if (from.bins() < 1 || static_cast<std::size_t>(from.bins()) > kMaxBins) {
    return Wrong(field, ".bins: got ", from.bins(), "; allowed: 1 to ", kMaxBins);
  }
  if (!std::isfinite(from.low()) || (logarithmic && from.low() <= 0)) {
    return Wrong(field, ".low: got ", Text(from.low()),
                 logarithmic ? "; allowed: positive, finite numbers" : "; allowed: finite numbers");
  }
  if (!(from.high() > from.low() && std::isfinite(from.high() - from.low()))) {
    return Wrong(field, ".high: got ", Text(from.high()), " with low ", Text(from.low()),
                 "; allowed: finite numbers above it, whose distance is finite");
  }
  to->edges = logarithmic ? LogarithmicEdges(from.low(), from.high(), from.bins())
                          : UniformEdges(from.low(), from.high(), from.bins());
  for (std::size_t i = 1; i < to->edges.size(); ++i) {
    if (to->edges[i] > to->edges[i - 1]) continue;
    return Wrong(field, ".bins: got ", from.bins(), " from ", Text(from.low()), " to ", Text(from.high()),
                 ", some without a width in f64; allowed: fewer bins, or a wider range");
  }
  return absl::OkStatus();
}

absl::Status ParseHistogram(absl::string_view field, const v1::OpCall& call, OpParameters* to) {
  const v1::HistogramParameters& from = call.histogram();
  switch (from.bins_case()) {
    case v1::HistogramParameters::kUniform:
      return ParseBins(absl::StrCat(field, ".uniform"), from.uniform(), /*logarithmic=*/false, to);
    case v1::HistogramParameters::kLogarithmic:
      return ParseBins(absl::StrCat(field, ".logarithmic"), from.logarithmic(), /*logarithmic=*/true, to);
    case v1::HistogramParameters::kEdges:
      to->edges.assign(from.edges().edge().begin(), from.edges().edge().end());
      return absl::OkStatus();
    case v1::HistogramParameters::BINS_NOT_SET:
      break;
  }
  return Wrong(field, ".bins: got none; allowed: uniform, logarithmic, edges");
}

absl::Status ParseTop(absl::string_view /*field*/, const v1::OpCall& call, OpParameters* to) {
  to->k = call.top().k();
  return absl::OkStatus();
}

absl::Status ParseMatrix(absl::string_view /*field*/, const v1::OpCall& call, OpParameters* to) {
  to->columns = call.matrix().columns();
  return absl::OkStatus();
}

absl::Status ParseCompare(absl::string_view /*field*/, const v1::OpCall& call, OpParameters* to) {
  to->rtol = call.compare().rtol();
  to->atol = call.compare().atol();
  to->equal_nan = call.compare().equal_nan();
  return absl::OkStatus();
}

absl::Status ParseFingerprint(absl::string_view field, const v1::OpCall& call, OpParameters* to) {
  const v1::FingerprintParameters& from = call.fingerprint();
  if (from.shape().empty() && !from.offset().empty()) {
    return Wrong(field, ".offset: got ", from.offset_size(), " numbers without shape; allowed: none, or with it");
  }
  if (from.shape().empty()) return absl::OkStatus();
  to->shard.emplace(Shard{.whole = {from.shape().begin(), from.shape().end()},
                          .offset = {from.offset().begin(), from.offset().end()}});
  return absl::OkStatus();
}

// ---- texts

// The arguments between parentheses: numbers, and what keys have.
struct Arguments {
  std::vector<std::string> numbers{};
  std::map<std::string, std::vector<std::string>> named{};

  bool has_only(std::initializer_list<absl::string_view> names) const {
    return std::all_of(named.begin(), named.end(), [&](const auto& each) {
      return std::find(names.begin(), names.end(), each.first) != names.end();
    });
  }
  // The value of a key that has one.
  absl::string_view value(const std::string& name, absl::string_view otherwise) const {
    const auto found = named.find(name);
    return found == named.end() ? otherwise : found->second.front();
  }
};

std::optional<Arguments> ParseArguments(absl::string_view text) {
  Arguments arguments;
  std::vector<std::string>* list = &arguments.numbers;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find_first_of(",;", begin), text.size());
    const absl::string_view item = absl::StripAsciiWhitespace(text.substr(begin, end - begin));
    begin = end + 1;
    const std::size_t equals = item.find('=');
    if (equals == absl::string_view::npos) {
      list->emplace_back(item);
      continue;
    }
    const std::string key(absl::StripAsciiWhitespace(item.substr(0, equals)));
    const auto [named, is_new] = arguments.named.try_emplace(key);
    if (!is_new) return std::nullopt;
    named->second.emplace_back(absl::StripAsciiWhitespace(item.substr(equals + 1)));
    const bool is_list = key == "edges" || key == "within" || key == "shape" || key == "offset";
    list = is_list ? &named->second : &arguments.numbers;
  }
  // "median(method=lower)" and "quantile()" have no numbers.
  if (arguments.numbers.size() == 1 && arguments.numbers.front().empty()) arguments.numbers.clear();
  return arguments;
}

template <class To>
bool AddNumbers(const std::vector<std::string>& from, To* to) {
  for (const std::string& item : from) {
    double number = 0;
    if (!absl::SimpleAtod(item, &number)) return false;
    to->Add(number);
  }
  return true;
}

bool SetCounts(const Arguments& from, v1::KeyCounts* to) {
  std::int32_t bits = 0, within_bits = 0;
  if (!absl::SimpleAtoi(from.value("bits", "0"), &bits)) return false;
  if (!absl::SimpleAtoi(from.value("within_bits", "0"), &within_bits)) return false;
  to->set_bits(bits);
  to->set_within_bits(within_bits);
  const auto within = from.named.find("within");
  if (within == from.named.end()) return true;
  for (const std::string& item : within->second) {
    std::uint64_t prefix = 0;
    if (!absl::SimpleAtoi(item, &prefix)) return false;
    to->add_within(prefix);
  }
  return true;
}

bool SetQuantile(const Arguments& from, v1::OpCall* to) {
  v1::QuantileParameters& quantile = *to->mutable_quantile();
  if (!from.has_only({"method", "bits", "within_bits", "within"})) return false;
  if (to->op() == v1::OP_WEIGHTED_QUANTILE && !from.named.empty()) return false;
  if (from.named.contains("method")) {
    const std::string name = absl::StrCat("QUANTILE_METHOD_", absl::AsciiStrToUpper(from.value("method", "")));
    v1::QuantileMethod method = v1::QUANTILE_METHOD_DEFAULT;
    if (!v1::QuantileMethod_Parse(name, &method) || method == v1::QUANTILE_METHOD_DEFAULT) return false;
    quantile.set_method(method);
  }
  if (from.named.size() > from.named.count("method") && !SetCounts(from, quantile.mutable_counts())) return false;
  return from.numbers.empty() == (to->op() == v1::OP_MEDIAN) && AddNumbers(from.numbers, quantile.mutable_q());
}

bool SetHistogram(const Arguments& from, v1::OpCall* to) {
  v1::HistogramParameters& histogram = *to->mutable_histogram();
  if (const auto edges = from.named.find("edges"); edges != from.named.end()) {
    return from.numbers.empty() && from.has_only({"edges"}) &&
           AddNumbers(edges->second, histogram.mutable_edges()->mutable_edge());
  }
  const absl::string_view scale = from.value("scale", "linear");
  if (from.numbers.size() != 3 || !from.has_only({"scale"}) || (scale != "log" && scale != "linear")) return false;
  v1::UniformBins& bins = scale == "log" ? *histogram.mutable_logarithmic() : *histogram.mutable_uniform();
  double low = 0, high = 0;
  std::int32_t count = 0;
  if (!absl::SimpleAtod(from.numbers[0], &low) || !absl::SimpleAtod(from.numbers[1], &high) ||
      !absl::SimpleAtoi(from.numbers[2], &count)) {
    return false;
  }
  bins.set_low(low);
  bins.set_high(high);
  bins.set_bins(count);
  return true;
}

// One whole number.
bool SetNumber(const Arguments& from, std::int64_t* to) {
  return from.named.empty() && from.numbers.size() == 1 && absl::SimpleAtoi(from.numbers.front(), to);
}

bool SetTop(const Arguments& from, v1::OpCall* to) {
  std::int64_t k = 0;
  const bool right = SetNumber(from, &k);
  to->mutable_top()->set_k(k);
  return right;
}

bool SetMatrix(const Arguments& from, v1::OpCall* to) {
  std::int64_t columns = 0;
  const bool right = SetNumber(from, &columns);
  to->mutable_matrix()->set_columns(columns);
  return right;
}

bool SetCompare(const Arguments& from, v1::OpCall* to) {
  v1::CompareParameters& compare = *to->mutable_compare();
  double rtol = 0, atol = 0;
  bool equal_nan = false;
  const bool right = from.numbers.empty() && from.has_only({"rtol", "atol", "equal_nan"}) &&
                     absl::SimpleAtod(from.value("rtol", "0"), &rtol) &&
                     absl::SimpleAtod(from.value("atol", "0"), &atol) &&
                     absl::SimpleAtob(from.value("equal_nan", "false"), &equal_nan);
  compare.set_rtol(rtol);
  compare.set_atol(atol);
  compare.set_equal_nan(equal_nan);
  return right;
}

bool SetFingerprint(const Arguments& from, v1::OpCall* to) {
  v1::FingerprintParameters& fingerprint = *to->mutable_fingerprint();
  const auto set = [&from](const char* name, google::protobuf::RepeatedField<std::int64_t>* numbers) {
    const auto found = from.named.find(name);
    return found == from.named.end() ||
           std::all_of(found->second.begin(), found->second.end(),
                       [&](const std::string& item) { return absl::SimpleAtoi(item, numbers->Add()); });
  };
  return from.numbers.empty() && from.has_only({"shape", "offset"}) && set("shape", fingerprint.mutable_shape()) &&
         set("offset", fingerprint.mutable_offset());
}

// ---- ops

// An op that has parameters: as a field of OpCall, and as arguments of its text.
struct ParametersRow {
  Op op;
  bool required;  // else they have defaults
  v1::OpCall::ParametersCase number;
  absl::string_view field;
  absl::Status (*parse)(absl::string_view field, const v1::OpCall& call, OpParameters* to);
  bool (*set)(const Arguments& from, v1::OpCall* to);  // false: they are not as `usage` says
  absl::string_view usage;
};
constexpr ParametersRow kParameters[] = {
    {Op::kMedian, false, v1::OpCall::kQuantile, "quantile", ParseQuantile, SetQuantile, "median(method=NAME)"},
    {Op::kQuantile, true, v1::OpCall::kQuantile, "quantile", ParseQuantile, SetQuantile,
     "quantile(Q,...;method=linear|lower|higher|nearest|midpoint)"},
    {Op::kWeightedQuantile, true, v1::OpCall::kQuantile, "quantile", ParseQuantile, SetQuantile,
     "weighted_quantile(Q,...)"},
    {Op::kHistogram, true, v1::OpCall::kHistogram, "histogram", ParseHistogram, SetHistogram,
     "histogram(LOW,HIGH,BINS;scale=linear|log) or histogram(edges=X,...)"},
    {Op::kTopK, true, v1::OpCall::kTop, "top", ParseTop, SetTop, "topk(K)"},
    {Op::kBottomK, true, v1::OpCall::kTop, "top", ParseTop, SetTop, "bottomk(K)"},
    {Op::kArgTopK, true, v1::OpCall::kTop, "top", ParseTop, SetTop, "argtopk(K)"},
    {Op::kArgBottomK, true, v1::OpCall::kTop, "top", ParseTop, SetTop, "argbottomk(K)"},
    {Op::kCompare, false, v1::OpCall::kCompare, "compare", ParseCompare, SetCompare,
     "compare(rtol=X,atol=X,equal_nan=true|false)"},
    {Op::kCovMatrix, true, v1::OpCall::kMatrix, "matrix", ParseMatrix, SetMatrix, "cov_matrix(COLUMNS)"},
    {Op::kCorrMatrix, true, v1::OpCall::kMatrix, "matrix", ParseMatrix, SetMatrix, "corr_matrix(COLUMNS)"},
    {Op::kFingerprint, false, v1::OpCall::kFingerprint, "fingerprint", ParseFingerprint, SetFingerprint,
     "fingerprint(shape=N,...;offset=N,...)"},
};

const ParametersRow* ParametersOf(Op op) {
  for (const ParametersRow& row : kParameters) {
    if (row.op == op) return &row;
  }
  return nullptr;
}

}  // namespace

bool AsksForDistribution(const v1::ReduceRequest& request) {
  return std::any_of(request.ops().begin(), request.ops().end(), IsOfDistribution) ||
         std::any_of(request.calls().begin(), request.calls().end(),
                     [](const v1::OpCall& call) { return IsOfDistribution(call.op()); });
}

absl::StatusOr<OpCall> ParseCall(absl::string_view field, v1::Op number) {
  const absl::StatusOr<Op> op = ParseOp(field, number);
  if (!op.ok()) return op.status();
  const ParametersRow* const row = ParametersOf(*op);
  if (row == nullptr || !row->required) return OpCall(*op);
  return Wrong(field, ": got ", v1::Op_Name(number), " without parameters; allowed: in calls, with ", row->field);
}

absl::StatusOr<OpCall> ParseCall(absl::string_view field, const v1::OpCall& call) {
  const absl::StatusOr<Op> op = ParseOp(absl::StrCat(field, ".op"), call.op());
  if (!op.ok()) return op.status();
  const ParametersRow* const row = ParametersOf(*op);
  const v1::OpCall::ParametersCase got = call.parameters_case();
  const bool wrong = row == nullptr ? got != v1::OpCall::PARAMETERS_NOT_SET
                                    : got != row->number && (row->required || got != v1::OpCall::PARAMETERS_NOT_SET);
  if (wrong) {
    const google::protobuf::FieldDescriptor* const given = v1::OpCall::descriptor()->FindFieldByNumber(got);
    return Wrong(field, ": got ", given == nullptr ? "no parameters" : given->name(), " with ", v1::Op_Name(call.op()),
                 "; allowed: ", row == nullptr ? "none" : row->field);
  }
  OpParameters parameters;
  absl::Status status;
  if (got != v1::OpCall::PARAMETERS_NOT_SET) {
    status = row->parse(absl::StrCat(field, ".", row->field), call, &parameters);
  }
  if (status.ok() && call.other() != v1::DTYPE_UNSPECIFIED) {
    const std::string name = absl::StrCat(field, ".other");
    const absl::StatusOr<DType> other = ParseDType(name, call.other());
    status = other.status();
    if (status.ok() && OtherOf(*op) == OtherOperand::kNone) {
      status = Wrong(name, ": got ", v1::DType_Name(call.other()), " with ", v1::Op_Name(call.op()), "; allowed: none");
    }
    if (status.ok()) parameters.other = *other;
  }
  if (!status.ok()) return status;
  return parameters == OpParameters() ? OpCall(*op) : OpCall(*op, std::move(parameters));
}

void ToProto(const OpCall& from, v1::OpCall* to) {
  to->set_op(static_cast<v1::Op>(from.op));
  if (from.given().other.has_value()) to->set_other(static_cast<v1::DType>(*from.given().other));
  const ParametersRow* const row = ParametersOf(from.op);
  if (row == nullptr || (from.parameters == nullptr && !row->required)) return;
  const OpParameters& given = from.given();
  switch (row->number) {
    case v1::OpCall::kQuantile: {
      v1::QuantileParameters& quantile = *to->mutable_quantile();
      quantile.mutable_q()->Assign(given.quantiles.begin(), given.quantiles.end());
      if (from.op != Op::kWeightedQuantile) quantile.set_method(static_cast<v1::QuantileMethod>(given.method));
      if (given.counts == KeyCounts()) return;
      quantile.mutable_counts()->set_bits(given.counts.bits);
      quantile.mutable_counts()->set_within_bits(given.counts.within_bits);
      quantile.mutable_counts()->mutable_within()->Assign(given.counts.within.begin(), given.counts.within.end());
      return;
    }
    case v1::OpCall::kHistogram:
      to->mutable_histogram()->mutable_edges()->mutable_edge()->Assign(given.edges.begin(), given.edges.end());
      return;
    case v1::OpCall::kTop:
      to->mutable_top()->set_k(given.k);
      return;
    case v1::OpCall::kCompare:
      if (given.rtol != 0) to->mutable_compare()->set_rtol(given.rtol);
      if (given.atol != 0) to->mutable_compare()->set_atol(given.atol);
      if (given.equal_nan) to->mutable_compare()->set_equal_nan(true);
      return;
    case v1::OpCall::kMatrix:
      to->mutable_matrix()->set_columns(given.columns);
      return;
    case v1::OpCall::kFingerprint:  // the offset is that of a part
      if (given.shard.has_value()) {
        to->mutable_fingerprint()->mutable_shape()->Assign(given.shard->whole.begin(), given.shard->whole.end());
      }
      return;
    case v1::OpCall::PARAMETERS_NOT_SET:
      return;
  }
}

std::string OpText(const OpCall& call, bool counts) {
  const OpParameters& given = call.given();
  const auto append = [](std::string* out, double number) { out->append(Text(number)); };
  std::vector<std::string> arguments;
  if (!given.quantiles.empty()) arguments.push_back(absl::StrJoin(given.quantiles, ",", append));
  if (!given.edges.empty()) arguments.push_back(absl::StrCat("edges=", absl::StrJoin(given.edges, ",", append)));
  if (given.k > 0) arguments.push_back(absl::StrCat(given.k));
  if (given.columns > 0) arguments.push_back(absl::StrCat(given.columns));
  if (given.method != QuantileMethod::kLinear) {
    const std::string& name = v1::QuantileMethod_Name(static_cast<v1::QuantileMethod>(given.method));
    arguments.push_back(absl::StrCat("method=", absl::AsciiStrToLower(absl::StripPrefix(name, "QUANTILE_METHOD_"))));
  }
  if (given.rtol != 0) arguments.push_back(absl::StrCat("rtol=", Text(given.rtol)));
  if (given.atol != 0) arguments.push_back(absl::StrCat("atol=", Text(given.atol)));
  if (given.equal_nan) arguments.push_back("equal_nan=true");
  // The offset is that of a part.
  if (given.shard.has_value()) arguments.push_back(absl::StrCat("shape=", absl::StrJoin(given.shard->whole, ",")));
  if (counts && given.counts.bits > 0) arguments.push_back(absl::StrCat("bits=", given.counts.bits));
  if (counts && !given.counts.within.empty()) {
    arguments.push_back(absl::StrCat("within_bits=", given.counts.within_bits));
    arguments.push_back(absl::StrCat("within=", absl::StrJoin(given.counts.within, ",")));
  }
  const std::string name(RowOf(call.op).name);
  return arguments.empty() ? name : absl::StrCat(name, "(", absl::StrJoin(arguments, ";"), ")");
}

absl::StatusOr<v1::OpCall> ParseOpText(absl::string_view text) {
  const absl::string_view trimmed = absl::StripAsciiWhitespace(text);
  const std::size_t open = std::min(trimmed.find('('), trimmed.size());
  const absl::string_view name = absl::StripAsciiWhitespace(trimmed.substr(0, open));
  const std::optional<Op> op = OpFromName({name.data(), name.size()});
  if (!op.has_value()) {
    const auto append_name = [](std::string* out, const OpRow& row) { absl::StrAppend(out, std::string(row.name)); };
    return Wrong("op: got \"", name, "\"; allowed: ", absl::StrJoin(kOps, ", ", append_name));
  }
  v1::OpCall call;
  call.set_op(static_cast<v1::Op>(*op));
  const ParametersRow* const row = ParametersOf(*op);
  if (open == trimmed.size() && (row == nullptr || !row->required)) return call;
  if (row == nullptr) return Wrong("op: got \"", trimmed, "\"; allowed: ", name, ", which has no parameters");
  const bool closed = open < trimmed.size() && trimmed.back() == ')';
  const std::optional<Arguments> arguments =
      closed ? ParseArguments(trimmed.substr(open + 1, trimmed.size() - open - 2)) : std::nullopt;
  if (!arguments.has_value() || !row->set(*arguments, &call)) {
    constexpr std::size_t kQuoted = 256;
    return Wrong("op: got \"", trimmed.substr(0, kQuoted), "\"; allowed: ", row->usage);
  }
  return call;
}

absl::Status ValidateCall(absl::string_view field, const OpCall& call, DType dtype) {
  const ParametersRow* const row = ParametersOf(call.op);
  if (row == nullptr && !call.given().other.has_value()) return absl::OkStatus();
  return Validate(call, dtype, row == nullptr ? "" : absl::StrCat(field, ".", row->field));
}

absl::StatusOr<std::vector<OpCall>> ParseCalls(const google::protobuf::RepeatedPtrField<v1::OpCall>& from,
                                               std::optional<DType> dtype) {
  std::vector<OpCall> calls;
  std::size_t parameters = 0;
  for (int i = 0; i < from.size(); ++i) {
    const std::string field = absl::StrCat("calls[", i, "]");
    absl::StatusOr<OpCall> call = ParseCall(field, from[i]);
    absl::Status status = call.status();
    if (status.ok() && dtype.has_value()) status = ValidateCall(field, *call, *dtype);
    if (!status.ok()) return status;
    // A few bytes of a message can ask for many bins, which take memory until it is answered.
    parameters += call->given().quantiles.size() + call->given().edges.size();
    if (parameters > kMaxBins + 1) {
      return Wrong(field, ": got ", parameters, " quantiles and edges with those before it; allowed: ", kMaxBins + 1,
                   " in a request");
    }
    calls.push_back(*std::move(call));
  }
  return calls;
}

absl::string_view OpUsage(Op op) {
  const ParametersRow* const row = ParametersOf(op);
  return row == nullptr ? "" : row->usage;
}

std::vector<std::string> SplitOps(absl::string_view list) {
  std::vector<std::string> ops(1);
  int open = 0;
  for (const char c : list) {
    open += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (c == ',' && open <= 0) {
      ops.emplace_back();
    } else {
      ops.back() += c;
    }
  }
  return ops;
}

}  // namespace reduced

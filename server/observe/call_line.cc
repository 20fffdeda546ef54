#include "server/observe/call_line.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "kernels/algebra/dtype.h"
#include "kernels/algebra/op.h"
#include "kernels/engine/engines.h"
#include "nlohmann/json.hpp"

namespace reduced::server {
namespace {

bool IsParsed(const CallRecord& record) { return record.spec != nullptr && !record.spec->ops.empty(); }

// An identity as one word. The common name of a certificate may have any bytes; different ones give different words.
std::string Word(std::string_view identity) {
  const std::string escaped = absl::StrReplaceAll({identity.data(), identity.size()}, {{"\\", "\\\\"}, {" ", "\\x20"}});
  return Printable(escaped, kMaxErrorBytes);
}

// gRPC knows the port of a TCP connection, but not the user of a Unix socket.
std::string PeerIn(const CallRecord& record, std::string_view peer) {
  const std::string uri = record.context == nullptr ? "" : record.context->peer();
  if (!uri.empty() && !absl::StartsWith(uri, "unix")) return absl::CHexEscape(uri);
  return peer.empty() ? uri : absl::StrCat("unix:", absl::StrReplaceAll({peer.data(), peer.size()}, {{" ", "="}}));
}

absl::string_view CallerIn(const CallRecord& record) {
  return record.caller == nullptr ? absl::string_view() : absl::string_view(record.caller->identity);
}

std::string_view EngineName(const CallRecord& record) {
  return record.engine == EngineKind::kAuto ? "none" : NameOf(record.engine);
}

std::string Error(const CallRecord& record) {
  const absl::string_view message = record.status.message();
  return Printable({message.data(), message.size()}, kMaxErrorBytes);
}

// Calls visit(name, us) for each stage that ran, but total.
template <class Visitor>
void ForEachStage(const CallRecord& record, Visitor visit) {
  for (std::size_t stage = 0; stage < kTotalStage; ++stage) {
    if (const auto us = record.StageMicros(stage)) visit(std::string(kStageNames[stage]), *us);
  }
}

}  // namespace

std::string Printable(std::string_view text, std::size_t max_bytes) {
  std::string line;
  for (const char c : text) {
    if (line.size() >= max_bytes) return line + "...";
    if (absl::ascii_isprint(static_cast<unsigned char>(c))) {
      line += c;
    } else {
      line += absl::CHexEscape(absl::string_view(&c, 1));
    }
  }
  return line;
}

std::string TextLine(const CallRecord& record, std::string_view peer) {
  std::string line(RowOf(record.rpc).name);
  if (record.tag != nullptr) {
    if (!record.tag->request_id.empty()) absl::StrAppend(&line, " request_id=", record.tag->request_id);
    if (!record.tag->traceparent.empty()) absl::StrAppend(&line, " traceparent=", record.tag->traceparent);
  }
  if (const absl::string_view caller = CallerIn(record); !caller.empty()) {
    absl::StrAppend(&line, " caller=", Word({caller.data(), caller.size()}));
  }
  absl::StrAppend(&line, " peer=", PeerIn(record, peer));
  if (IsParsed(record)) {
    const ReduceSpec& spec = *record.spec;
    const auto name = [](std::string* out, Op op) { out->append(RowOf(op).name); };
    absl::StrAppend(&line, " dtype=", std::string(RowOf(spec.dtype).name), " count=", spec.count,
                    " ops=", absl::StrJoin(spec.ops, ",", name));
  }
  absl::StrAppend(&line, " status=", absl::StatusCodeToString(record.status.code()));
  if (IsParsed(record)) {
    absl::StrAppend(&line, " engine=", std::string(EngineName(record)));
  }
  absl::StrAppendFormat(&line, " total_us=%.1f", record.total_us);
  if (record.client_us.has_value()) absl::StrAppendFormat(&line, " server_us=%.1f", record.server_us());
  ForEachStage(record,
               [&](const std::string& name, double us) { absl::StrAppendFormat(&line, " %s_us=%.1f", name, us); });
  if (record.bytes > 0) absl::StrAppend(&line, " bytes=", record.bytes);
  if (!record.status.ok()) absl::StrAppend(&line, ": ", Error(record));
  return line;
}

std::string JsonMembers(const CallRecord& record, std::string_view peer) {
  nlohmann::ordered_json line;
  line["message"] = "call";
  line["rpc"] = RowOf(record.rpc).name;
  if (record.tag != nullptr) {
    if (!record.tag->request_id.empty()) line["request_id"] = record.tag->request_id;
    if (!record.tag->traceparent.empty()) line["traceparent"] = record.tag->traceparent;
  }
  if (const absl::string_view caller = CallerIn(record); !caller.empty()) {
    line["caller"] = Printable({caller.data(), caller.size()}, kMaxErrorBytes);
  }
  line["peer"] = PeerIn(record, peer);
  if (IsParsed(record)) {
    const ReduceSpec& spec = *record.spec;
    line["dtype"] = RowOf(spec.dtype).name;
    line["count"] = spec.count;
    for (const Op op : spec.ops) line["ops"].push_back(RowOf(op).name);
    line["engine"] = EngineName(record);
  }
  if (record.source != Source::kNone) line["source"] = NameOf(record.source);
  if (!record.pipeline.empty()) line["pipeline"] = record.pipeline;
  if (record.bytes > 0) line["bytes"] = record.bytes;
  line["status"] = absl::StatusCodeToString(record.status.code());
  line["total_us"] = record.total_us;
  if (record.client_us.has_value()) line["server_us"] = record.server_us();
  ForEachStage(record, [&](const std::string& name, double us) { line["stages_us"][name] = us; });
  if (!record.status.ok()) line["error"] = Error(record);
  std::string text = line.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
  return text.substr(1, text.size() - 2);
}

}  // namespace reduced::server

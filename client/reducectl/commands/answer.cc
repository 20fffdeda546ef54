#include "client/reducectl/commands/answer.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/reducectl/command_line/client.h"

namespace reduced::client {
namespace {

std::string Joined(const Answer& answer, absl::string_view column, absl::string_view array) {
  return absl::StrCat(answer.source, answer.column.empty() ? "" : column, answer.column,
                      answer.array.empty() ? "" : array, answer.array);
}

}  // namespace

Answer AnswerOf(const std::string& source, const Input& input, const InputReader& reader) {
  Answer answer{.source = source,
                .column = input.column,
                .array = input.array,
                .dtype = input.raw_dtype.empty() ? input.layout.dtype : input.raw_dtype,
                .shape = input.layout.shape,
                .missing = input.missing,
                .several = reader.several(),
                .notes = input.notes,
                .words = input.words,
                .read_us = absl::ToDoubleMicroseconds(input.ReadTime())};
  if (input.words.has_value()) {
    answer.dtype = "text";
    answer.shape = {input.words->count + input.words->missing};
  }
  if (!answer.missing.empty()) answer.shape.front() += static_cast<std::int64_t>(answer.missing.size());
  return answer;
}

std::string SubjectOf(const Answer& answer) { return Joined(answer, ": column ", ": array "); }
std::string TitleOf(const Answer& answer) { return Joined(answer, ", column ", ", array "); }
std::string NameOf(const Answer& answer) { return answer.column.empty() ? answer.array : answer.column; }

std::vector<OpError> ErrorsOf(const std::vector<Result>& results) {
  std::vector<OpError> errors;
  for (const Result& result : results) {
    if (!result.value.ok()) errors.push_back({result.op, result.value.status()});
  }
  return errors;
}

std::vector<OpError> ErrorsOf(const std::vector<ResultArray>& results) {
  std::vector<OpError> errors;
  for (const ResultArray& result : results) {
    if (!result.error.ok()) errors.push_back({result.op, result.error});
  }
  return errors;
}

std::string TextOf(const Result& result) { return result.value.ok() ? result.value->Text() : "-"; }
Json JsonOf(const Result& result) { return result.value.ok() ? ToJson(*result.value) : Json(); }

void AddErrors(const std::vector<OpError>& errors, Json* json) {
  for (const auto& [op, error] : errors) {
    (*json)["errors"][op] = {{"code", absl::StatusCodeToString(error.code())},
                             {"message", std::string(error.message())}};
  }
}

ExitCode ReportErrors(const std::string& subject, const std::vector<OpError>& errors) {
  ExitCode code = kOk;
  for (const OpError& each : errors) code = ReportCallError(subject, each.error);
  return code;
}

std::string JsonLine(const Answer& answer, Json results, const Json& more) {
  const Reply& reply = answer.reply;
  Json timing = Json::object();
  if (answer.read_us > 0) timing["read"] = answer.read_us;
  timing.update(ToJson(reply.timing));
  if (answer.round_trip_us > 0) timing["round_trip"] = answer.round_trip_us;
  Json json = {{"source", answer.source}};
  if (!answer.column.empty()) json["column"] = answer.column;
  if (!answer.array.empty()) json["array"] = answer.array;
  if (!answer.dtype.empty()) json.update({{"dtype", answer.dtype}, {"shape", answer.shape}});
  json.update({{"count", reply.count}, {"via", reply.via}, {"results", std::move(results)}});
  json.update(more);
  AddErrors(ErrorsOf(reply.results), &json);
  if (answer.nans.has_value()) json["nan_count"] = *answer.nans;
  json.update({{"engine", reply.execution.engine},
               {"device", reply.execution.device},
               {"pipeline", reply.execution.pipeline},
               {"precision", reply.execution.precision},
               {"reason", reply.execution.reason},
               {"timing_us", std::move(timing)},
               {"bytes", reply.timing.bytes},
               {"attempts", reply.attempts}});
  if (!answer.notes.empty()) json["notes"] = answer.notes;
  return Dump(json) + "\n";
}

void Notes::Add(const InputReader& reader) {
  notes_ = reader.notes();
  if (!json_) Print();
}

void Notes::InLine(const std::vector<std::string>& notes) {
  if (json_) said_.insert(notes.begin(), notes.end());
}

void Notes::Print() {
  for (const std::string& note : notes_) {
    if (said_.insert(note).second) ReportError(source_, note, kOk);
  }
}

ExitCode ReportUnread(const std::string& source, const absl::Status& status) {
  const bool missing = absl::IsFailedPrecondition(status);
  return ReportError(source, absl::StrCat(status.message(), missing ? ", and --nan omit leaves it out" : ""), kData);
}

ExitCode ReportFailure(const Answer& answer, const Input& input, const absl::Status& status) {
  if (input.reading != nullptr) {
    const absl::MutexLock lock(&input.reading->mutex);
    if (!input.reading->error.ok()) return ReportError(SubjectOf(answer), input.reading->error.message(), kData);
  }
  return ReportCallError(SubjectOf(answer), status);
}

}  // namespace reduced::client

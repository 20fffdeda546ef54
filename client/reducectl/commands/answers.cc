#include "client/reducectl/commands/answers.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "client/reducectl/commands/missing.h"
#include "client/reducectl/output/printable.h"
#include "client/reducectl/output/progress.h"
#include "kernels/algebra/dtype.h"
#include "reduced/merge.h"

namespace reduced::client {
namespace {

// How long sharing an input may take if it could be sent instead.
constexpr absl::Duration kShareTimeout = absl::Seconds(1);
// Without --timeout a large array has a second more for each so many bytes.
constexpr std::int64_t kBytesPerSecond = std::int64_t{64} << 20;
// The number of inputs that are read and sent over a session before the answer to the first of them is printed.
constexpr std::size_t kAhead = 8;

constexpr char kNanCount[] = "nan_count";

bool HasNan(const Reply& reply) {
  return std::any_of(reply.results.begin(), reply.results.end(), [](const Result& result) {
    const double* const value = result.value.ok() ? std::get_if<double>(&result.value->value) : nullptr;
    return value != nullptr && std::isnan(*value);
  });
}

// `timing` and that of another request for the same array.
void Add(const Timing& more, Timing* timing) {
  for (const auto& [name, us] : kTimingStages) {
    if ((more.*us).has_value()) (timing->*us) = (timing->*us).value_or(0) + *(more.*us);
  }
  timing->bytes += more.bytes;
  timing->kernel_gb_per_s.reset();
}

class Asker {
 public:
  Asker(Place place, const CommonOptions& common, Question question, const PrintAnswer& print)
      : place_(std::move(place)), common_(common), question_(std::move(question)), print_(print) {}

  ExitCode Run() {
    if (question_.in_session()) return RunSession();
    for (const std::string& source : question_.sources) KeepFirst(AskSource(source), &failure_);
    if (question_.sources.empty()) {
      for (const std::string& id : question_.arrays) KeepFirst(AskResident(id), &failure_);
    }
    return failure_;
  }

 private:
  // Asks again how many NaNs there are, if there may be any. `reduce` makes a call with these ops.
  template <class Reduce>
  void CountNans(const Reduce& reduce, Answer* answer) {
    if (question_.options.nan_policy != "propagate" || !HasNan(answer->reply)) return;
    const auto take = [answer](const Reply& reply) {
      const Value* const value = reply.Find(kNanCount);
      if (value != nullptr) answer->nans = value->AsInt64();
      return value != nullptr;
    };
    if (take(answer->reply)) return;
    const absl::StatusOr<Reply> reply = reduce({kNanCount});
    if (reply.ok()) take(*reply);
  }

  // The answers to all ops, by `reduce`, which makes a call with these. Of a lenient question the ops of the
  // distribution are left out, and `source` named, where only they cannot be answered: of an array that is too large to
  // be read as a whole, say.
  template <class Reduce>
  absl::StatusOr<Reply> ReduceAll(const std::string& source, const Reduce& reduce) {
    absl::StatusOr<Reply> reply = reduce(question_.ops);
    const bool lacks = absl::IsUnimplemented(reply.status()) || absl::IsResourceExhausted(reply.status());
    std::vector<std::string> others = question_.ops;
    if (!lacks || !question_.lenient || std::erase_if(others, IsOfDistribution) == 0) return reply;
    ReportError(source, absl::StrCat("without quartiles: ", std::string(reply.status().message())), kOk);
    return reduce(others);
  }

  ExitCode AskResident(const std::string& id) {
    Answer answer{.source = id};
    const auto reduce = [&](const std::vector<std::string>& ops) {
      return place_.server->Reduce(RemoteArray::Resident(id), ops, question_.options);
    };
    const absl::Time start = absl::Now();
    absl::StatusOr<Reply> reply = ReduceAll(id, reduce);
    if (!reply.ok()) return ReportCallError(id, reply.status());
    answer.round_trip_us = absl::ToDoubleMicroseconds(absl::Now() - start);
    answer.reply = *std::move(reply);
    CountNans(reduce, &answer);
    return Print(answer);
  }

  // Of a server: shares the input if it is in memory that can be shared, else sends it.
  // `whole`: the input has all elements of its array; else its state is asked for.
  absl::StatusOr<Reply> Reduce(const Input& input, const std::vector<std::string>& ops, bool whole,
                               UploadProgress& progress) {
    ReduceOptions options = question_.options;
    options.return_state = options.return_state || !whole;
    // A piece may have no results by itself; those of floats say whether there are NaNs to be counted.
    options.results =
        whole || (RowOf(*DTypeFromName(input.layout.dtype)).is_float && options.nan_policy == "propagate");
    options.on_progress = progress.hook();
    if (const SharedBuffer* const buffer = input.memory.shared()) {
      ShareOptions sharing;
      if (question_.via != Question::kRegion)
        sharing.timeout = std::min(kShareTimeout, common_.timeout.value_or(kShareTimeout));
      const absl::StatusOr<Region> region = place_.server->Share(*buffer, sharing);
      const Layout& layout = input.layout;
      if (region.ok()) {
        return place_.server->Reduce(
            region->Array(layout.dtype, layout.shape, static_cast<std::int64_t>(layout.offset)), ops, options);
      }
      if (question_.via == Question::kRegion) return region.status();
    }
    options.via = question_.via == Question::kRegion ? "auto" : question_.via;
    return place_.Reduce(input.View(), ops, options);
  }

  // Asks about all arrays of a source, also if one of them can't be read or reduced. Those that come in pieces are put
  // together from their states.
  ExitCode AskSource(const std::string& source) {
    InputOptions options = question_.input;
    UploadProgress reading(!common_.json);
    options.on_read = reading.hook();
    const absl::StatusOr<std::unique_ptr<InputReader>> reader = InputReader::Open(source, options);
    if (!reader.ok()) return ReportError(source, reader.status().message(), kData);
    std::map<std::size_t, Answer> unfinished;
    std::set<std::size_t> failed;  // arrays, whose other pieces are of no use
    Notes notes(source, common_.json);
    ExitCode failure = kOk;
    bool first = true;
    for (;;) {
      absl::StatusOr<std::optional<Piece>> piece = (*reader)->Next();
      reading.Clear();
      notes.Add(**reader);
      if (!piece.ok()) {
        KeepFirst(ReportError(source, piece.status().message(), kData), &failure);
        return failure;
      }
      if (!piece->has_value()) return failure;
      if (question_.one && !std::exchange(first, false) && (*piece)->array > 0) {
        return ReportError(source, "got several arrays; allowed: one with --state", kData);
      }
      if ((*piece)->restart) unfinished.clear();
      Answer answer = AnswerOf(source, (*piece)->input, **reader);
      if (failed.count((*piece)->array) > 0) continue;
      if (answer.words.has_value()) {
        notes.InLine(answer.notes);
        KeepFirst(print_(answer), &failure);
        continue;
      }
      const absl::Status& unread = (*piece)->input.status;
      const ExitCode code =
          unread.ok() ? AskPiece(std::move(answer), **piece, &notes, &unfinished) : ReportUnread(source, unread);
      if (code != kOk) failed.insert((*piece)->array);
      KeepFirst(code, &failure);
    }
  }

  ExitCode AskPiece(Answer answer, const Piece& piece, Notes* notes, std::map<std::size_t, Answer>* unfinished) {
    if (question_.one && !answer.missing.empty() && StateLacksMissing(question_.ops, question_.options)) {
      return ReportError(answer.source, "got missing elements; allowed: none with --state and ops that count them",
                         kData);
    }
    const absl::Time start = absl::Now();
    // A piece all of whose elements are missing is nothing.
    if (piece.whole || answer.missing.empty() || piece.input.layout.shape.front() > 0) {
      UploadProgress progress(!common_.json);
      const bool again = piece.input.reader.read == nullptr || !piece.input.reader.in_order;
      absl::StatusOr<Reply> reply = ReduceAll(SubjectOf(answer), [&](const std::vector<std::string>& ops) {
        return Reduce(piece.input, ops, piece.whole, progress);
      });
      if (!reply.ok()) return ReportFailure(answer, piece.input, reply.status());
      answer.reply = *std::move(reply);
      answer.round_trip_us = absl::ToDoubleMicroseconds(absl::Now() - start);
      answer.read_us = absl::ToDoubleMicroseconds(piece.input.ReadTime());
      if (again)
        CountNans([&](const std::vector<std::string>& ops) { return Reduce(piece.input, ops, true, progress); },
                  &answer);
    }
    if (piece.whole) return Print(answer, notes);
    const auto before = unfinished->find(piece.array);
    if (before == unfinished->end()) {
      (*unfinished)[piece.array] = std::move(answer);
    } else if (absl::Status status = Append(std::move(answer), &before->second); !status.ok()) {
      return ReportError(before->second.source, status.message(), kServer);
    }
    if (!piece.last) return kOk;
    Answer& all = unfinished->at(piece.array);
    if (all.reply.state.empty()) {  // nor has any other
      Piece none;
      none.input.layout = piece.input.layout;
      return AskPiece(Answer(std::move(all)), none, notes, unfinished);
    }
    absl::StatusOr<MergeReply> merged = MergeStates({all.reply.state});
    if (!merged.ok()) return ReportCallError(SubjectOf(all), merged.status());
    all.reply.results = std::move(merged->results);
    return Print(all, notes);
  }

  ExitCode Print(Answer& answer, Notes* notes) {
    notes->InLine(answer.notes);
    return Print(answer);
  }

  ExitCode Print(Answer& answer) const {
    CountMissing(answer.missing, question_.options, &answer.reply);
    const ExitCode code = print_(answer);
    const std::vector<OpError> errors = ErrorsOf(answer.reply.results);
    if (code != kOk || !question_.lenient) return code == kOk ? ReportErrors(SubjectOf(answer), errors) : code;
    for (const auto& [op, error] : errors) {
      if (absl::IsOutOfRange(error)) ReportError(SubjectOf(answer), error.message(), kOk);
    }
    return kOk;
  }

  // Adds the next piece to the state of the pieces before it.
  static absl::Status Append(Answer next, Answer* answer) {
    if (answer->reply.state.empty()) std::swap(answer->reply, next.reply);
    if (!next.reply.state.empty()) {
      absl::StatusOr<MergeReply> merged =
          MergeStates({answer->reply.state, next.reply.state}, {.return_state = true, .results = false, .names = {}});
      if (!merged.ok()) return merged.status();
      answer->reply.count = merged->count;
      answer->reply.state = std::move(merged->state);
      Add(next.reply.timing, &answer->reply.timing);
    }
    const auto rows = static_cast<std::uint64_t>(answer->shape.front());
    for (const std::uint64_t position : next.missing) answer->missing.push_back(rows + position);
    answer->shape.front() += next.shape.front();
    answer->read_us += next.read_us;
    answer->round_trip_us += next.round_trip_us;
    if (next.nans.has_value()) answer->nans = answer->nans.value_or(0) + *next.nans;
    answer->notes = std::move(next.notes);  // of all pieces so far
    return absl::OkStatus();
  }

  // One request of a session and its outcome.
  struct Item {
    Answer answer;
    Input input;
    absl::Status unread{};  // why there is no input
    absl::Time start = absl::Now();
    absl::StatusOr<Reply> reply;
    absl::Time end;
    absl::Notification answered;
  };

  // Sends all inputs over one session. Prints the answers in the order of the inputs.
  ExitCode RunSession() {
    std::deque<Item> items;  // sent, in order; must outlive the session, whose callbacks write to them
    const absl::StatusOr<std::unique_ptr<Session>> session = place_.server->OpenSession({.via = question_.via});
    if (!session.ok()) return ReportCallError("reduce", session.status());
    const auto print_first = [&] {
      Item& item = items.front();
      item.answered.WaitForNotification();  // the request has a timeout
      KeepFirst(PrintItem(item), &failure_);
      items.pop_front();
    };
    for (const std::string& source : question_.sources) {
      absl::StatusOr<std::unique_ptr<InputReader>> reader = InputReader::Open(source, question_.input);
      Notes notes(source, common_.json);
      for (bool more = true; more;) {
        absl::StatusOr<std::optional<Piece>> piece = std::nullopt;
        if (reader.ok()) {
          piece = (*reader)->Next();
          notes.Add(**reader);
        } else {
          piece = reader.status();
        }
        if (piece.ok() && !piece->has_value()) break;
        more = piece.ok();
        if (items.size() == kAhead) print_first();
        Item& item = items.emplace_back();
        if (more) item.input = std::move((*piece)->input);
        item.unread = more ? item.input.status : piece.status();
        item.answer = more ? AnswerOf(source, item.input, **reader) : Answer{.source = source};
        if (!item.unread.ok()) {
          item.answered.Notify();
          continue;
        }
        notes.InLine(item.answer.notes);
        item.start = absl::Now();
        (*session)->ReduceAsync(item.input.View(), question_.ops, question_.options,
                                [&item](absl::StatusOr<Reply> reply) {
                                  item.end = absl::Now();
                                  item.reply = std::move(reply);
                                  item.answered.Notify();
                                });
      }
    }
    while (!items.empty()) print_first();
    return failure_;
  }

  ExitCode PrintItem(Item& item) {
    if (!item.unread.ok()) return ReportUnread(item.answer.source, item.unread);
    if (!item.reply.ok()) return ReportCallError(SubjectOf(item.answer), item.reply.status());
    item.answer.reply = *std::move(item.reply);
    item.answer.round_trip_us = absl::ToDoubleMicroseconds(item.end - item.start);
    return Print(item.answer);
  }

  const Place place_;
  const CommonOptions& common_;
  const Question question_;
  const PrintAnswer& print_;
  ExitCode failure_ = kOk;
};

std::optional<Place> NeedsServer(absl::string_view got, absl::string_view allowed) {
  std::cerr << "reducectl: got " << got << " with --server local:; allowed: " << allowed << "\n";
  return std::nullopt;
}

}  // namespace

absl::Duration TimeoutOf(const ArrayView& array) {
  return ClientOptions().timeout + absl::Seconds(ArrayBytes(array.dtype, array.shape).value_or(0) / kBytesPerSecond);
}

absl::StatusOr<Reply> Place::Reduce(const ArrayView& array, const std::vector<std::string>& ops,
                                    ReduceOptions options) const {
  options.timeout = TimeFor(array);
  return local != nullptr ? local->Reduce(array, ops, options) : server->Reduce(array, ops, options);
}

absl::StatusOr<ArrayReply> Place::ReduceArray(const ArrayView& array, const std::vector<std::string>& ops,
                                              const PartitionOptions& partition, ReduceOptions options) const {
  options.timeout = TimeFor(array);
  for (const auto* const side : {&partition.y, &partition.weights}) {
    const auto* const sent = side->has_value() ? std::get_if<ArrayView>(&**side) : nullptr;
    if (sent != nullptr && local == nullptr && !timeout.has_value()) *options.timeout += TimeoutOf(*sent);
  }
  return local != nullptr ? local->ReduceArray(array, ops, partition, options)
                          : server->ReduceArray(array, ops, partition, options);
}

std::optional<absl::Duration> Place::TimeFor(const ArrayView& array) const {
  return timeout.has_value() || local != nullptr ? timeout : TimeoutOf(array);
}

std::optional<Place> PlaceOf(const CommonOptions& common, const Question& question) {
  Place place{.timeout = common.timeout};
  if (common.server == kLocal) {
    if (question.sources.empty()) return NeedsServer("--array without files", "files");
    if (question.via != "auto") return NeedsServer(absl::StrCat("--via ", question.via), "auto");
    place.local = std::make_unique<LocalEngine>();
  } else {
    place.server = MakeClient(common, ClientOptions().timeout, question.connections);
    if (place.server == nullptr) return std::nullopt;
  }
  return place;
}

ExitCode Ask(const CommonOptions& common, Question question, const PrintAnswer& print) {
  std::optional<Place> place = PlaceOf(common, question);
  if (!place.has_value()) return kUsage;
  InputOptions& input = question.input;
  input.timeout = common.timeout.value_or(absl::InfiniteDuration());
  // No answer is put together from states of arrays.
  const bool as_a_whole = std::any_of(question.ops.begin(), question.ops.end(), IsOfDistribution);
  input.in_memory = question.in_session() || (as_a_whole && place->local != nullptr);
  input.one_piece = question.in_session() || as_a_whole;
  if (!question.sources.empty()) input.arrays = question.arrays;
  input.missing = MissingFor(question.ops, question.options, Missing::kDropped);
  input.positions = std::any_of(question.ops.begin(), question.ops.end(), AnswersIndexes);
  if (question.via == Question::kRegion) input.hold = Hold::kShare;
  if (question.via == "auto" && UnixSocketPath(common.server).has_value()) input.hold = Hold::kShareLarge;
  return Asker(*std::move(place), common, std::move(question), print).Run();
}

}  // namespace reduced::client

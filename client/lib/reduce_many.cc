// ReduceMany of a Client and of a Session.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/lib/answer.h"
#include "client/lib/call.h"
#include "client/lib/convert.h"
#include "client/lib/errors.h"
#include "client/lib/many.h"
#include "client/lib/retry.h"
#include "client/lib/ring_session.h"
#include "client/lib/session.h"
#include "client/lib/via.h"
#include "kernels/system/status_macros.h"
#include "reduced/client.h"
#include "reduced/v1/reduced.grpc.pb.h"

namespace reduced::client {
namespace {

constexpr absl::string_view kOperands = "operands[";
// Of a field within a message: its number, and its size of less than 2 GiB.
constexpr std::int64_t kFieldBytes = 6;
// Of a ring: larger arrays cost less by themselves, copied into the arena once.
constexpr std::int64_t kMostBytesInRing = std::int64_t{16} << 10;

// The same error with the caller's index in the place of the one in a request, whose operands have these indexes.
absl::Status WithIndex(const absl::Status& error, const std::vector<std::size_t>& indexes) {
  absl::string_view rest = error.message();
  std::size_t index = 0;
  if (!absl::ConsumePrefix(&rest, kOperands)) return error;
  const std::size_t end = rest.find(']');
  if (end == absl::string_view::npos || !absl::SimpleAtoi(rest.substr(0, end), &index) || index >= indexes.size()) {
    return error;
  }
  return WithMessage(error, absl::StrCat(kOperands, indexes[index], rest.substr(end)));
}

// One ReduceManyRequest to be sent, which operands are added to.
class ManyCall {
 public:
  // `question`: what is asked of each. All must stay valid.
  ManyCall(const ManyRoute& route, const v1::ReduceRequest& question, const std::vector<std::string>& names,
           std::vector<Reply>* replies)
      : route_(route),
        question_(question),
        asked_(question),
        names_(names),
        replies_(*replies),
        question_bytes_(static_cast<std::int64_t>(question.ByteSizeLong()) + kFieldBytes) {}

  // Adds the caller's operand `index`. If it has no room beside those before, these are sent first.
  absl::Status Add(std::size_t index, const Operand& operand, const ReduceOptions& options, absl::Time deadline) {
    v1::SideArray side;
    absl::string_view via = kInline;
    if (const auto* const remote = std::get_if<RemoteArray>(&operand)) {
      via = remote->id().empty() ? kRegion : kResident;
      RETURN_IF_ERROR(OfOperand(index, ToProto(*remote, &side)));
    } else {
      const auto& view = std::get<ArrayView>(operand);
      RETURN_IF_ERROR(OfOperand(index, ToProto(view, side.mutable_array())));
      side.set_inline_data(view.data, static_cast<std::size_t>(*ArrayBytes(view.dtype, view.shape)));
    }
    const std::int64_t bytes = static_cast<std::int64_t>(side.ByteSizeLong()) + kFieldBytes;
    if (request_.operands_size() == route_.operands || question_bytes_ + bytes_ + bytes > route_.bytes) {
      RETURN_IF_ERROR(Send(options, deadline));
    }
    asked_.SetArray(side);
    added_.push_back({.via = via, .dtype = asked_.dtype, .count = asked_.count});
    indexes_.push_back(index);
    stored_ = stored_ || via != kInline;
    bytes_ += bytes;
    *request_.add_operands() = std::move(side);
    return absl::OkStatus();
  }

  // Sends the request, if it has operands, and puts their answers among the replies. Afterwards it has no operands.
  absl::Status Send(const ReduceOptions& options, absl::Time deadline) {
    if (added_.empty()) return absl::OkStatus();
    *request_.mutable_question() = question_;
    google::protobuf::Arena arena;
    auto& response = *google::protobuf::Arena::CreateMessage<v1::ReduceManyResponse>(&arena);
    ReduceOptions own = options;
    own.timeout = TimeLeft(deadline);
    const absl::StatusOr<Reply> sent = route_.send(request_, stored_, own, &response);
    const absl::Status status = sent.ok() ? Take(*sent, response) : WithIndex(sent.status(), indexes_);
    request_.Clear();
    added_.clear();
    indexes_.clear();
    bytes_ = 0;
    stored_ = false;
    return status;
  }

 private:
  // What the answer about an operand is compared with.
  struct Added {
    absl::string_view via{};
    int dtype = 0;
    std::optional<std::int64_t> count{};
  };

  absl::Status Take(const Reply& sent, v1::ReduceManyResponse& response) {
    if (response.responses_size() != static_cast<int>(added_.size())) {
      return WrongAnswer(route_.server, absl::InternalError(absl::StrCat("responses: got ", response.responses_size(),
                                                                         "; allowed: ", added_.size())));
    }
    for (std::size_t i = 0; i < added_.size(); ++i) {
      const Added& added = added_[i];
      asked_.dtype = added.dtype;
      asked_.count = added.count;
      ASSIGN_OR_RETURN(Reply reply, ToReply(route_.server, asked_, *response.mutable_responses(static_cast<int>(i)),
                                            sent.via.empty() ? added.via : sent.via, names_));
      reply.attempts = sent.attempts;
      replies_[indexes_[i]] = std::move(reply);
    }
    return absl::OkStatus();
  }

  const ManyRoute& route_;
  const v1::ReduceRequest& question_;
  Asked asked_;
  const std::vector<std::string>& names_;
  std::vector<Reply>& replies_;
  const std::int64_t question_bytes_;
  v1::ReduceManyRequest request_;
  std::vector<Added> added_;
  std::vector<std::size_t> indexes_;  // of the operands in the caller's list
  std::int64_t bytes_ = 0;            // of the encoded operands
  bool stored_ = false;               // whether one is on the server
};

}  // namespace

absl::StatusOr<std::vector<Reply>> ReduceManyBy(const ManyRoute& route, const std::vector<Operand>& operands,
                                                const std::vector<std::string>& ops, const ReduceOptions& options) {
  if (operands.empty()) return absl::InvalidArgumentError("operands: got none; allowed: 1 or more");
  const absl::Duration timeout = options.timeout.value_or(route.timeout);
  v1::ReduceRequest question;
  absl::Status status = CheckTimeout(timeout);
  status.Update(ToProto(ops, options, &question));
  if (!status.ok()) return status;
  const absl::Time deadline = absl::Now() + timeout;
  const std::vector<std::string> names = NamesFor(question, ops);
  std::vector<Reply> replies(operands.size());
  // Before anything is sent: what is wrong with an array, and which ones go by themselves.
  std::vector<std::size_t> alone;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const auto* const view = std::get_if<ArrayView>(&operands[i]);
    if (view == nullptr) continue;
    const absl::StatusOr<std::int64_t> bytes = ArrayBytes(view->dtype, view->shape);
    status = bytes.status();
    status.Update(CheckElements(*view, /*may_have_reader=*/true));
    if (!status.ok()) return OfOperand(i, status);
    ASSIGN_OR_RETURN(const absl::string_view via, ChooseVia(options.via, *bytes));
    if (via != kInline || view->reader.read != nullptr || *bytes > route.most_bytes_together) alone.push_back(i);
  }
  ManyCall call(route, question, names, &replies);
  auto next_alone = alone.begin();
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (next_alone == alone.end() || *next_alone != i) {
      RETURN_IF_ERROR(call.Add(i, operands[i], options, deadline));
      continue;
    }
    ++next_alone;
    ReduceOptions own = options;
    own.timeout = TimeLeft(deadline);
    absl::StatusOr<Reply> reply = route.alone(std::get<ArrayView>(operands[i]), own);
    if (!reply.ok()) return OfOperand(i, reply.status());
    replies[i] = *std::move(reply);
  }
  RETURN_IF_ERROR(call.Send(options, deadline));
  return replies;
}

absl::StatusOr<std::vector<Reply>> Client::ReduceMany(const std::vector<Operand>& operands,
                                                      const std::vector<std::string>& ops,
                                                      const ReduceOptions& options) {
  const Connection& connection = *connection_;
  const auto send = [&](const v1::ReduceManyRequest& request, bool stored, const ReduceOptions& own,
                        v1::ReduceManyResponse* response) -> absl::StatusOr<Reply> {
    Reply reply;
    RETURN_IF_ERROR(CallAgainAndWait(connection, stored ? connection.home : connection.parts.front(), *own.timeout,
                                     &v1::Reduction::Stub::PrepareAsyncReduceMany, request, response, own.interrupted,
                                     &reply.attempts));
    return reply;
  };
  const auto alone = [&](const ArrayView& array, const ReduceOptions& own) { return Reduce(array, ops, own); };
  return ReduceManyBy(
      {.server = connection.options.server, .timeout = connection.options.timeout, .send = send, .alone = alone},
      operands, ops, options);
}

absl::StatusOr<std::vector<Reply>> Session::ReduceMany(const std::vector<Operand>& operands,
                                                       const std::vector<std::string>& ops,
                                                       const ReduceOptions& options) {
  const SessionState::Options& limits = state_->options();
  const std::string& server = connection_->options.server;
  if (limits.max_operands == 0) {
    return absl::UnimplementedError(absl::StrCat(server, " has no requests of many arrays: it is of an older version"));
  }
  const auto send = [&](v1::ReduceManyRequest& request, bool /*stored*/, const ReduceOptions& own,
                        v1::ReduceManyResponse* response) {
    return ring_ != nullptr ? ring_->ReduceMany(request, own, response) : state_->ReduceMany(request, own, response);
  };
  const auto alone = [&](const ArrayView& array, const ReduceOptions& own) -> absl::StatusOr<Reply> {
    ASSIGN_OR_RETURN(const std::int64_t bytes, ArrayBytes(array.dtype, array.shape));
    ASSIGN_OR_RETURN(const absl::string_view via, ChooseVia(own.via, bytes));
    const bool in_ring =
        ring_ != nullptr && own.via != kStream && (array.reader.read == nullptr || array.reader.in_memory);
    if (in_ring && (via == kInline || bytes <= ring_->arena_bytes())) return ring_->Reduce(array, ops, own);
    return Client(connection_).Reduce(array, ops, own);
  };
  ManyRoute route{.server = server, .timeout = limits.timeout, .send = send, .alone = alone};
  route.operands = std::min(route.operands, limits.max_operands);
  route.bytes = std::min(route.bytes, limits.max_message_bytes - SessionState::kFrameBytes);
  if (ring_ != nullptr) {
    route.bytes = std::min(route.bytes, kMostRingMessageBytes);
    route.most_bytes_together = kMostBytesInRing;
  }
  return ReduceManyBy(route, operands, ops, options);
}

}  // namespace reduced::client

// Client::ReduceMany.
#include <cstddef>
#include <cstdint>
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
#include "client/lib/retry.h"
#include "client/lib/via.h"
#include "kernels/system/status_macros.h"
#include "reduced/client.h"
#include "reduced/v1/reduced.grpc.pb.h"

namespace reduced::client {
namespace {

// What one call carries: more of them would not be faster, and any server takes as much by default.
constexpr std::int64_t kCallBytes = std::int64_t{4} << 20;
constexpr int kCallOperands = 1024;

constexpr absl::string_view kOperands = "operands[";

// The same error with the caller's index in the place of the one in a call, whose operands have these indexes.
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

// One ReduceMany to be sent, which operands are added to.
class ManyCall {
 public:
  // `request`: what is asked of each. The pointers must stay valid.
  ManyCall(const Connection& connection, const v1::ReduceRequest& request, const std::vector<std::string>& names,
           std::vector<Reply>* replies)
      : connection_(connection), asked_(request), names_(names), replies_(*replies) {
    *request_.mutable_question() = request;
  }

  bool HasRoomFor(std::int64_t bytes) const {
    return request_.operands_size() == 0 || (request_.operands_size() < kCallOperands && bytes <= kCallBytes - bytes_);
  }
  // Adds the caller's operand `index`.
  absl::Status Add(std::size_t index, const Operand& operand) {
    v1::SideArray& to = *request_.add_operands();
    indexes_.push_back(index);
    if (const auto* const remote = std::get_if<RemoteArray>(&operand)) {
      stored_ = true;
      via_.push_back(remote->id().empty() ? kRegion : kResident);
      return ToProto(*remote, &to);
    }
    const auto& view = std::get<ArrayView>(operand);
    via_.push_back(kInline);
    RETURN_IF_ERROR(ToProto(view, to.mutable_array()));
    const std::int64_t bytes = *ArrayBytes(view.dtype, view.shape);
    to.set_inline_data(view.data, static_cast<std::size_t>(bytes));
    bytes_ += bytes;
    return absl::OkStatus();
  }

  // Sends the call, if it has operands, and puts their answers among the replies. Afterwards it has no operands.
  absl::Status Send(const ReduceOptions& options, absl::Time deadline) {
    if (request_.operands_size() == 0) return absl::OkStatus();
    google::protobuf::Arena arena;
    auto& response = *google::protobuf::Arena::CreateMessage<v1::ReduceManyResponse>(&arena);
    int attempts = 1;
    absl::Status status = CallAgainAndWait(connection_, stored_ ? connection_.home : connection_.parts.front(),
                                           TimeLeft(deadline), &v1::Reduction::Stub::PrepareAsyncReduceMany, request_,
                                           &response, options.interrupted, &attempts);
    status = status.ok() ? Take(attempts, response) : WithIndex(status, indexes_);
    request_.clear_operands();
    indexes_.clear();
    via_.clear();
    bytes_ = 0;
    stored_ = false;
    return status;
  }

 private:
  absl::Status Take(int attempts, v1::ReduceManyResponse& response) {
    const std::string& server = connection_.options.server;
    if (response.responses_size() != request_.operands_size()) {
      return WrongAnswer(server, absl::InternalError(absl::StrCat("responses: got ", response.responses_size(),
                                                                  "; allowed: ", request_.operands_size())));
    }
    for (int i = 0; i < response.responses_size(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      asked_.SetArray(request_.operands(i));
      ASSIGN_OR_RETURN(Reply reply, ToReply(server, asked_, *response.mutable_responses(i), via_[at], names_));
      reply.attempts = attempts;
      replies_[indexes_[at]] = std::move(reply);
    }
    return absl::OkStatus();
  }

  const Connection& connection_;
  Asked asked_;
  const std::vector<std::string>& names_;
  std::vector<Reply>& replies_;
  v1::ReduceManyRequest request_;
  std::vector<std::size_t> indexes_;    // of the operands in the caller's list
  std::vector<absl::string_view> via_;  // of each
  std::int64_t bytes_ = 0;              // of inline elements
  bool stored_ = false;                 // whether one is on the server
};

}  // namespace

absl::StatusOr<std::vector<Reply>> Client::ReduceMany(const std::vector<Operand>& operands,
                                                      const std::vector<std::string>& ops,
                                                      const ReduceOptions& options) {
  if (operands.empty()) return absl::InvalidArgumentError("operands: got none; allowed: 1 or more");
  const absl::Duration timeout = options.timeout.value_or(connection_->options.timeout);
  v1::ReduceRequest request;
  absl::Status status = CheckTimeout(timeout);
  status.Update(ToProto(ops, options, &request));
  if (!status.ok()) return status;
  const absl::Time deadline = absl::Now() + timeout;
  const std::vector<std::string> names = NamesFor(request, ops);
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
    if (via != kInline || view->reader.read != nullptr) alone.push_back(i);
  }
  ManyCall call(*connection_, request, names, &replies);
  auto next_alone = alone.begin();
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const auto* const view = std::get_if<ArrayView>(&operands[i]);
    if (next_alone != alone.end() && *next_alone == i) {
      ++next_alone;
      ReduceOptions own = options;
      own.timeout = TimeLeft(deadline);
      absl::StatusOr<Reply> reply = Reduce(*view, ops, own);
      if (!reply.ok()) return OfOperand(i, reply.status());
      replies[i] = *std::move(reply);
      continue;
    }
    const std::int64_t bytes = view == nullptr ? 0 : *ArrayBytes(view->dtype, view->shape);
    if (!call.HasRoomFor(bytes)) status = call.Send(options, deadline);
    if (status.ok()) status = OfOperand(i, call.Add(i, operands[i]));
    if (!status.ok()) return status;
  }
  status = call.Send(options, deadline);
  if (!status.ok()) return status;
  return replies;
}

}  // namespace reduced::client

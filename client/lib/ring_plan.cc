#include "client/lib/ring_plan.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/lib/call.h"
#include "client/lib/convert.h"
#include "client/lib/via.h"
#include "kernels/algebra/op_call.h"
#include "kernels/system/status_macros.h"
#include "proto/ring/codec.h"

namespace reduced::client {
namespace {

using Question = std::shared_ptr<const RingQuestion>;

// Whether both ask the same of an array. A field that is new here has to be named.
bool Same(const ReduceOptions& a, const ReduceOptions& b) {
  const auto key = [](const ReduceOptions& options) {
    const auto& [engine, device, pipeline, precision, nan_policy, overflow_policy, ddof, block_size, via, timeout,
                 return_state, results, on_progress, interrupted] = options;
    return std::tie(engine, device, pipeline, precision, nan_policy, overflow_policy, ddof, block_size, via,
                    return_state, results);
  };
  return key(a) == key(b);
}
// Whether both have as many elements of the same type, wherever these are.
bool Same(const ArrayView& a, const ArrayView& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.count == b.count;
}
bool Same(const RemoteArray& a, const RemoteArray& b) {
  return a.id() == b.id() && a.token() == b.token() && a.offset() == b.offset() && a.layout() == b.layout() &&
         Same(a.elements(), b.elements());
}

// A request of this size or more has no room in any arena, and goes in a message of the session.
constexpr std::uint64_t kNoRoom = std::uint64_t{1} << 62;
// Of a response, without the results: with the state of a whole array, and without one.
constexpr std::int64_t kReplyBytes = 8192;
constexpr std::int64_t kReplyBytesWithoutState = 2048;

// How many elements an array beside the one that is reduced has; absent: only the server knows.
std::optional<std::int64_t> CountOf(const v1::SideArray& side) {
  if (!side.has_array()) return std::nullopt;
  std::int64_t count = 1;
  for (const std::int64_t size : side.array().shape()) {
    if (__builtin_mul_overflow(count, size, &count)) return std::nullopt;
  }
  return count;
}

// At most how many outputs a partition has; absent: only the server knows.
std::optional<std::int64_t> MostOutputs(const v1::ReduceRequest& request) {
  const auto& shape = request.array().shape();
  std::vector<bool> reduced(static_cast<std::size_t>(shape.size()), request.has_where() && !request.has_axes());
  std::optional<std::int64_t> outputs = 1;
  if (request.has_segments()) {
    const v1::Segments& segments = request.segments();
    outputs = CountOf(segments.has_lengths() ? segments.lengths() : segments.offsets());
  } else if (request.has_keys()) {
    outputs = request.keys().groups() > 0 ? request.keys().groups() : CountOf(request.keys().keys());
  }
  if (request.has_segments() || request.has_keys()) {
    reduced.assign(reduced.size(), false);
    if (!reduced.empty()) reduced[0] = true;
  } else if (!request.has_array()) {
    return request.has_axes() ? std::nullopt : outputs;
  }
  for (const int axis : request.axes().axis()) {
    const std::int64_t at = axis < 0 ? axis + std::ssize(reduced) : axis;
    if (at >= 0 && at < std::ssize(reduced)) reduced[static_cast<std::size_t>(at)] = true;
  }
  // By keys and of segments a resident array may have further dimensions, which are not known here.
  if (!outputs.has_value() || !request.has_array()) return std::nullopt;
  for (std::size_t i = 0; i < reduced.size(); ++i) {
    const std::int64_t size = reduced[i] ? 1 : shape[static_cast<int>(i)];
    if (__builtin_mul_overflow(*outputs, size, &*outputs)) return std::nullopt;
  }
  return outputs;
}

// Room for the response to a request that does not fit the fixed form. `rest`: of all but the results.
std::uint64_t ReplyBytes(const RingQuestion& question, std::int64_t rest) {
  constexpr std::int64_t kBytesPerOp = 320;  // a result, or why there is none
  constexpr std::int64_t kDimensionBytes = 10, kElementBytes = 8, kKeyBytes = 8;
  constexpr std::int64_t kMostElements = std::int64_t{1} << 32;  // of an answer
  const v1::ReduceRequest& request = question.request;
  const Asked& asked = question.asked;
  const auto ops = static_cast<std::int64_t>(asked.ops.size());
  std::int64_t bytes = rest + kBytesPerOp * ops;
  if (!asked.arrays) return static_cast<std::uint64_t>(bytes);
  if (asked.return_state) return kNoRoom;  // of counts, and of many outputs
  std::int64_t elements = 0;               // of all answers for one output
  for (std::size_t i = 0; i < asked.ops.size(); ++i) {
    // One with wrong parameters is the server's to refuse.
    elements += i < asked.calls.size() ? std::clamp(AnswerElements(asked.calls[i]), std::int64_t{1}, kMostElements) : 1;
  }
  const std::optional<std::int64_t> outputs = asked.partition ? MostOutputs(request) : 1;
  if (!outputs.has_value() || __builtin_mul_overflow(*outputs, kElementBytes * elements + kKeyBytes, &elements)) {
    return kNoRoom;
  }
  bytes += kDimensionBytes * (request.array().shape_size() + 2) * ops;
  if (__builtin_add_overflow(bytes, elements, &bytes)) return kNoRoom;
  return std::min(static_cast<std::uint64_t>(bytes), kNoRoom);
}

absl::StatusOr<Question> Complete(RingQuestion question, const std::vector<std::string>& ops) {
  question.asked = Asked(question.request);
  question.form.kind = static_cast<std::uint8_t>(ring::Kind::kReduce);
  if (ring::FitsFixedForm(question.request)) {
    ring::ToSubmission(question.request, &question.form);
  } else {
    question.names = NamesFor(question.request, ops);
    question.message = question.request.SerializeAsString();
    question.reply_bytes =
        question.message.size() <= kMostRingMessageBytes ? ReplyBytes(question, kReplyBytes) : kNoRoom;
  }
  return std::make_shared<const RingQuestion>(std::move(question));
}

// `partition`: null: there is none.
absl::Status SetPartition(const PartitionOptions* partition, RingQuestion* question) {
  if (partition == nullptr) return absl::OkStatus();
  return ToProto(*partition, &question->request, [](const ArrayView& side, v1::SideArray* to) {
    // A larger one has no room in the message, which then goes by the session.
    const auto bytes =
        std::min(static_cast<std::uint64_t>(*ArrayBytes(side.dtype, side.shape)), std::uint64_t{kMostRingMessageBytes});
    to->set_inline_data(side.data, static_cast<std::size_t>(bytes));
    return absl::OkStatus();
  });
}

absl::StatusOr<Question> Ask(const ArrayView& array, const std::vector<std::string>& ops, const ReduceOptions& options,
                             const PartitionOptions* partition) {
  RingQuestion question{.elements = true};
  absl::Status status = ToProto(array, question.request.mutable_array());
  status.Update(ToProto(ops, options, &question.request));
  if (status.ok() && options.via != "auto" && options.via != kInline) {
    status =
        absl::InvalidArgumentError(absl::StrCat("via: got \"", options.via, "\" in a session; allowed: auto, inline"));
  }
  if (status.ok()) status = SetPartition(partition, &question);
  if (!status.ok()) return status;
  question.bytes = static_cast<std::uint64_t>(*ArrayBytes(array.dtype, array.shape));
  return Complete(std::move(question), ops);
}

absl::StatusOr<Question> Ask(const RemoteArray& array, const std::vector<std::string>& ops,
                             const ReduceOptions& options, const PartitionOptions* partition) {
  RingQuestion question;
  absl::Status status = ToProto(array, &question.request);
  status.Update(ToProto(ops, options, &question.request));
  if (status.ok()) status = SetPartition(partition, &question);
  if (!status.ok()) return status;
  return Complete(std::move(question), ops);
}

// The question of the calling thread, which asks for it often: one after the other of arrays that are alike.
template <class Array>
absl::StatusOr<Question> AskAgain(const Array& array, const std::vector<std::string>& ops,
                                  const ReduceOptions& options) {
  struct Last {
    Array array;
    std::vector<std::string> ops{};
    ReduceOptions options{};
    Question question{};
  };
  thread_local std::optional<Last> last;
  if (last.has_value() && last->ops == ops && Same(last->options, options) && Same(last->array, array)) {
    return last->question;
  }
  absl::StatusOr<Question> question = Ask(array, ops, options, nullptr);
  if (!question.ok()) return question;
  last.emplace(Last{.array = array, .ops = ops, .options = options, .question = *question});
  last->options.on_progress = nullptr;  // what they hold is the caller's
  last->options.interrupted = nullptr;
  return question;
}

template <class Array>
absl::StatusOr<RingPlan> PlanOf(const Array& array, const std::vector<std::string>& ops, const ReduceOptions& options,
                                const PartitionOptions* partition, absl::Duration timeout) {
  RingPlan plan{.timeout = options.timeout.value_or(timeout)};
  absl::Status status = CheckTimeout(plan.timeout);
  if constexpr (std::is_same_v<Array, ArrayView>) {
    plan.data = array.data;
    if (array.reader.read != nullptr) plan.reader = &array.reader;
    if (plan.reader != nullptr || array.data == nullptr) {
      status.Update(CheckElements(array, /*may_have_reader=*/array.reader.in_memory));
    }
  }
  if (!status.ok()) return status;
  ASSIGN_OR_RETURN(plan.question,
                   partition == nullptr ? AskAgain(array, ops, options) : Ask(array, ops, options, partition));
  return plan;
}

}  // namespace

absl::StatusOr<RingPlan> MakeRingPlan(const ArrayView& array, const std::vector<std::string>& ops,
                                      const ReduceOptions& options, const PartitionOptions* partition,
                                      absl::Duration timeout) {
  return PlanOf(array, ops, options, partition, timeout);
}

absl::StatusOr<RingPlan> MakeRingPlan(const RemoteArray& array, const std::vector<std::string>& ops,
                                      const ReduceOptions& options, const PartitionOptions* partition,
                                      absl::Duration timeout) {
  return PlanOf(array, ops, options, partition, timeout);
}

RingPlan MakeRingPlan(const v1::ReduceManyRequest& request, absl::Duration timeout, v1::ReduceManyResponse* response) {
  RingQuestion question{.request = request.question(), .asked = Asked(request.question()), .reply_bytes = kNoRoom};
  question.form.kind = static_cast<std::uint8_t>(ring::Kind::kReduceMany);
  if (request.ByteSizeLong() <= kMostRingMessageBytes) {
    question.message = request.SerializeAsString();
    const std::int64_t bytes = question.asked.return_state ? kReplyBytes : kReplyBytesWithoutState;
    question.reply_bytes = std::min(ReplyBytes(question, bytes), kNoRoom / kMostRingMessageBytes) *
                           static_cast<std::uint64_t>(request.operands_size());
  }
  return {.question = std::make_shared<const RingQuestion>(std::move(question)), .timeout = timeout, .many = response};
}

}  // namespace reduced::client

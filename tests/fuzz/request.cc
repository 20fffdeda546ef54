// Requests, from their bytes to the kernels' types. The first byte says of which call.
#include "server/wire/request.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "google/protobuf/stubs/logging.h"
#include "kernels/engine/pipelines.h"
#include "kernels/matmul/matmul.h"
#include "proto/question/question.h"
#include "reduced/v1/reduced.pb.h"
#include "server/wire/arrays.h"
#include "server/wire/decoded_bytes.h"
#include "server/wire/ladder.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/no_engine.h"

namespace reduced::fuzz {
namespace {

const server::RequestLimits kRequestLimits;

void CheckShape(const server::ArrayShape& shape) {
  Require(shape.count >= 0 && shape.count <= kRequestLimits.max_elements, "an array has at most the elements allowed");
  Require(shape.bytes == shape.count * RowOf(shape.dtype).bytes, "an array has the bytes of its elements");
}

void CheckQuestion(const absl::StatusOr<Question>& question, const v1::ReduceRequest& request,
                   const server::ArrayShape& shape) {
  RequirePrintableError(question.status());
  if (!question.ok()) return;
  const ReduceSpec& spec = question->spec;
  Require(spec.dtype == shape.dtype && spec.count == shape.count, "the question is about the array");
  const int ops = request.ops_size() + request.calls_size();
  Require(static_cast<int>(spec.ops.size()) == ops && ops <= kRequestLimits.max_ops,
          "the question has the ops of the request");
  Require(question->partition.has_value() == (ArraysField(request) != nullptr),
          "a partition is what answers with arrays");
  const bool valid =
      question->partition.has_value() ? Validate(*question->partition, spec).ok() : ValidateSpec(spec).ok();
  Require(valid, "the question is valid");
}

absl::StatusOr<FoundSide> FindSide(const char* /*field*/, const v1::SideArray& side) {
  const auto shape = server::ParseArray(side.array(), kRequestLimits);
  if (!shape.ok()) return shape.status();
  return FoundSide{{shape->dtype, shape->count}, {side.array().shape().begin(), side.array().shape().end()}};
}

void CheckReduce(const v1::ReduceRequest& request) {
  const auto shape = server::ParseArray(request.array(), kRequestLimits);
  RequirePrintableError(shape.status());
  if (shape.ok()) {
    CheckShape(*shape);
    CheckQuestion(
        ParseQuestion(request, {shape->dtype, shape->count, request.array().shape()}, kRequestLimits.max_ops, FindSide),
        request, *shape);
    const absl::Status data = server::CheckElementBytes(
        "inline_data", static_cast<std::int64_t>(request.inline_data().size()), request.array(), *shape);
    RequirePrintableError(data);
    Require(data.ok() == (static_cast<std::int64_t>(request.inline_data().size()) == shape->bytes),
            "the elements are as many bytes as their array");
  }
  server::ArrayShape streamed;
  CheckQuestion(server::ParseHeader(request, kRequestLimits, &streamed), request, streamed);
}

void CheckPut(const v1::PutArrayHeader& header, absl::string_view caller) {
  const auto array = server::ParsePut(header, kRequestLimits, caller);
  RequirePrintableError(array.status());
  if (!array.ok()) return;
  CheckShape({array->dtype, array->count, array->bytes});
  Require(array->ttl > absl::ZeroDuration() && array->ttl <= kRequestLimits.max_array_ttl, "an array expires");
}

void CheckLadder(const v1::LadderRequest& request) {
  const auto ladder = server::ParseLadder(request, NoEngines(), kRequestLimits);
  RequirePrintableError(ladder.status());
  if (!ladder.ok()) return;
  Require(ladder->repeats >= 1 && ladder->repeats <= 1000, "a ladder has repeats");
  Require(ladder->spec.count * RowOf(ladder->spec.dtype).bytes <= kRequestLimits.max_ladder_bytes,
          "a ladder is bounded");
  if (ladder->matmul.has_value()) {
    Require(ladder->rungs.empty() && !ladder->matmul->rungs.empty(), "a ladder of products has rungs of products");
    for (const server::MatmulRung& rung : ladder->matmul->rungs) {
      Require(ValidateMatmul(rung.spec).ok(), "a rung of products is valid");
    }
    return;
  }
  Require(!ladder->rungs.empty(), "a ladder has rungs");
  for (const server::LadderRung& rung : ladder->rungs) Require(ValidateSpec(rung.spec).ok(), "a rung is valid");
}

void CheckPart(const v1::StreamPart& part) { RequirePrintableError(server::CheckPart(server::ToPart(part))); }

template <class Message, class Check>
void Parse(Input input, Check check) {
  const absl::StatusOr<std::int64_t> bytes = server::DecodedBytes(input.rest(), *Message::descriptor());
  RequirePrintableError(bytes.status());
  Message message;
  if (!message.ParseFromArray(input.rest().data(), static_cast<int>(input.rest().size()))) return;
  if (bytes.ok()) {
    Require(*bytes >= static_cast<std::int64_t>(message.SpaceUsedLong()), "a message takes what was predicted");
  } else {
    Require(absl::StrContains(bytes.status().message(), "unknown fields"), "what protobuf accepts is accepted",
            bytes.status().message());
  }
  check(message);
}

}  // namespace

FUZZ_TARGET(request) {
  google::protobuf::SetLogHandler(nullptr);  // it prints what is not UTF-8
  switch (input.Choice(4)) {
    case 0:
      return Parse<v1::ReduceRequest>(input, CheckReduce);
    case 1: {
      const absl::string_view caller = input.Choice(2) == 0 ? "" : "alice";
      return Parse<v1::PutArrayHeader>(input, [&](const auto& header) { CheckPut(header, caller); });
    }
    case 2:
      return Parse<v1::LadderRequest>(input, CheckLadder);
    default:
      return Parse<v1::StreamPart>(input, CheckPart);
  }
}

}  // namespace reduced::fuzz

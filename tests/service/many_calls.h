// ReduceMany, as a client calls it, and what its answers are compared with.
#ifndef REDUCED_TESTS_SERVICE_MANY_CALLS_H_
#define REDUCED_TESTS_SERVICE_MANY_CALLS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "kernels/algebra/dtype.h"
#include "tests/service/test_server.h"

namespace reduced::server {

// Adds an operand of so many elements, inline.
inline void AddOperand(DType dtype, std::int64_t count, v1::ReduceManyRequest* request) {
  v1::SideArray& operand = *request->add_operands();
  operand.mutable_array()->set_dtype(static_cast<v1::DType>(dtype));
  operand.mutable_array()->add_shape(count);
  operand.set_inline_data(ElementsOf(dtype, count));
}

// The same question about one operand.
inline v1::ReduceRequest Alone(const v1::ReduceManyRequest& request, int i) {
  v1::ReduceRequest alone = request.question();
  const v1::SideArray& operand = request.operands(i);
  if (operand.has_array()) *alone.mutable_array() = operand.array();
  if (operand.has_inline_data()) alone.set_inline_data(operand.inline_data());
  if (operand.has_array_id()) alone.set_array_id(operand.array_id());
  return alone;
}

// An answer without what differs from call to call.
inline std::string Answered(v1::ReduceResponse response) {
  response.clear_timing();
  response.mutable_execution()->clear_reason();
  return response.ShortDebugString();
}

inline grpc::Status ReduceMany(const TestClient& client, const v1::ReduceManyRequest& request,
                               v1::ReduceManyResponse* response, absl::Duration timeout = kPatience) {
  grpc::ClientContext context;
  SetContextDeadline(&context, timeout);
  return v1::Reduction::NewStub(client.channel())->ReduceMany(&context, request, response);
}

// Every operand's answer is that of a Reduce.
inline void ExpectAsAlone(TestClient& client, const v1::ReduceManyRequest& request) {
  v1::ReduceManyResponse many;
  const grpc::Status status = ReduceMany(client, request, &many);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(many.responses_size(), request.operands_size());
  std::int64_t bytes = 0;
  for (int i = 0; i < many.responses_size(); ++i) {
    v1::ReduceResponse alone;
    ASSERT_TRUE(client.Reduce(Alone(request, i), &alone).ok()) << i;
    EXPECT_EQ(Answered(many.responses(i)), Answered(alone)) << i;
    EXPECT_EQ(many.responses(i).timing().has_kernel_us(), alone.timing().has_kernel_us());
    EXPECT_TRUE(many.responses(i).timing().has_total_us());
    EXPECT_FALSE(many.responses(i).timing().has_receive_us());
    bytes += many.responses(i).timing().bytes();
  }
  EXPECT_EQ(many.timing().bytes(), bytes);
  double kernel_us = 0;
  for (const v1::ReduceResponse& each : many.responses()) kernel_us += each.timing().kernel_us();
  EXPECT_NEAR(many.timing().kernel_us(), kernel_us, 1e-6 * kernel_us + 1e-3);
  EXPECT_TRUE(many.timing().has_receive_us());
  EXPECT_GT(many.timing().total_us(), 0);
}

inline void AddOps(const std::vector<v1::Op>& ops, v1::ReduceManyRequest* request) {
  for (const v1::Op op : ops) request->mutable_question()->add_ops(op);
}

}  // namespace reduced::server

#endif  // REDUCED_TESTS_SERVICE_MANY_CALLS_H_

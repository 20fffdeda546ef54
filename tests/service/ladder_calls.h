// Ladders, as a client calls them.
#ifndef REDUCED_TESTS_SERVICE_LADDER_CALLS_H_
#define REDUCED_TESTS_SERVICE_LADDER_CALLS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"
#include "kernels/engine/pipelines.h"
#include "tests/service/test_server.h"

namespace reduced::server {

inline v1::LadderRequest LadderOf(v1::DType dtype, std::int64_t count, v1::Op op, int repeats = 2) {
  v1::LadderRequest request;
  request.set_dtype(dtype);
  request.set_count(count);
  request.set_op(op);
  request.set_repeats(repeats);
  return request;
}

inline v1::LadderRequest ProductOf(v1::DType dtype, std::int64_t m, std::int64_t n, std::int64_t k, int repeats = 2) {
  v1::LadderRequest request;
  request.set_dtype(dtype);
  request.set_repeats(repeats);
  request.mutable_matmul()->set_m(m);
  request.mutable_matmul()->set_n(n);
  request.mutable_matmul()->set_k(k);
  return request;
}

// One Ladder, read message by message; ended, if it isn't yet, when it goes out of scope.
class LadderStream {
 public:
  LadderStream(TestClient& client, const v1::LadderRequest& request, absl::Duration timeout = kPatience)
      : stub_(v1::Reduction::NewStub(client.channel())) {
    SetContextDeadline(&context_, timeout);
    reader_ = stub_->Ladder(&context_, request);
  }
  ~LadderStream() {
    context_.TryCancel();
    if (reader_ != nullptr) Finish();
  }

  bool Read(v1::LadderReply* reply) { return reader_->Read(reply); }
  // What comes until it ends.
  std::vector<v1::LadderReply> ReadAll() {
    std::vector<v1::LadderReply> replies;
    for (v1::LadderReply reply; Read(&reply);) replies.push_back(reply);
    return replies;
  }
  // After all has been read. Once.
  grpc::Status Finish() {
    const grpc::Status status = reader_->Finish();
    reader_.reset();
    return status;
  }
  grpc::ClientContext& context() { return context_; }

 private:
  std::unique_ptr<v1::Reduction::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::LadderReply>> reader_;
};

// A whole ladder.
struct Climbed {
  grpc::Status status;
  v1::LadderStart start;
  std::vector<v1::LadderStep> steps;
};

inline Climbed Climb(TestServer& server, const v1::LadderRequest& request) {
  LadderStream stream(server.client(), request);
  Climbed climbed;
  const std::vector<v1::LadderReply> replies = stream.ReadAll();
  for (std::size_t i = 0; i < replies.size(); ++i) {
    EXPECT_EQ(replies[i].has_start(), i == 0);
    if (i == 0) climbed.start = replies[i].start();
    if (i > 0) climbed.steps.push_back(replies[i].step());
  }
  climbed.status = stream.Finish();
  EXPECT_TRUE(!climbed.status.ok() || climbed.start.steps() == static_cast<int>(climbed.steps.size()));
  return climbed;
}

}  // namespace reduced::server

#endif  // REDUCED_TESTS_SERVICE_LADDER_CALLS_H_

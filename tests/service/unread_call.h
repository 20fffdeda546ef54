// A call whose client reads no response, so that the server waits with one in its hands.
#ifndef REDUCED_TESTS_SERVICE_UNREAD_CALL_H_
#define REDUCED_TESTS_SERVICE_UNREAD_CALL_H_

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "google/protobuf/message.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/service/test_server.h"

namespace reduced::server {

// A connection whose window does not grow: the server may send so many bytes of a response before its client reads it.
// At least 5, which are what gRPC puts before a message.
inline std::shared_ptr<grpc::Channel> NarrowChannel(const std::string& address, int window_bytes = 64 << 10) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, window_bytes);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

// A call that sends one message and reads no response. `authorization`: of its metadata; empty: none.
class UnreadCall {
 public:
  UnreadCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
             const google::protobuf::Message& message, const std::string& authorization = "") {
    SetContextDeadline(&context_);
    if (!authorization.empty()) context_.AddMetadata("authorization", authorization);
    call_ = grpc::GenericStub(channel).PrepareCall(&context_, absl::StrCat("/reduced.v1.Reduction/", method), &queue_);
    call_->StartCall(nullptr);
    EXPECT_TRUE(Step());
    const grpc::Slice slice(message.SerializeAsString());
    call_->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    EXPECT_TRUE(Step());
  }
  void HalfClose() {
    call_->WritesDone(nullptr);
    EXPECT_TRUE(Step());
  }
  // Waits until the server has begun to respond.
  bool AwaitResponse() {
    call_->ReadInitialMetadata(nullptr);
    return Step();
  }
  void Cancel() { context_.TryCancel(); }
  // The status, when there is one. Call it once, as the last.
  grpc::Status Await() {
    grpc::Status status;
    call_->Finish(&status, nullptr);
    EXPECT_TRUE(Step());
    queue_.Shutdown();
    EXPECT_FALSE(Step());
    return status;
  }

 private:
  bool Step() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;  // ends with the deadline of the call
  }

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

}  // namespace reduced::server

#endif  // REDUCED_TESTS_SERVICE_UNREAD_CALL_H_

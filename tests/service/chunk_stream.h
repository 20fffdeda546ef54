// One call whose messages are a header, then chunks, by the stub that protoc generates, as any client would have it.
#ifndef REDUCED_TESTS_SERVICE_CHUNK_STREAM_H_
#define REDUCED_TESTS_SERVICE_CHUNK_STREAM_H_

#include <memory>
#include <string>
#include <utility>

#include "grpcpp/grpcpp.h"
#include "reduced/v1/reduced.grpc.pb.h"
#include "tests/service/test_server.h"

namespace reduced::server {

// Method: of the stub, &v1::Reduction::Stub::ReduceStream or PutArray.
template <class Request, class Response, auto Method>
class ChunkStream {
 public:
  explicit ChunkStream(const TestClient& client, absl::Duration timeout = kPatience)
      : stub_(v1::Reduction::NewStub(client.channel())) {
    SetContextDeadline(&context_, timeout);
    writer_ = ((*stub_).*Method)(&context_, &response_);
  }

  template <class MessageHeader>
  bool Header(const MessageHeader& header) {
    Request request;
    *request.mutable_header() = header;
    return writer_->Write(request);
  }
  bool Chunk(std::string bytes) {
    Request request;
    request.set_chunk(std::move(bytes));
    return writer_->Write(request);
  }
  bool Write(const Request& request) { return writer_->Write(request); }
  void Cancel() { context_.TryCancel(); }
  void HalfClose() { writer_->WritesDone(); }
  grpc::Status End() {
    HalfClose();
    return Await();
  }
  grpc::Status Await() { return writer_->Finish(); }  // without a half-close

  const Response& response() const { return response_; }
  const grpc::ClientContext& context() const { return context_; }

 private:
  std::unique_ptr<v1::Reduction::Stub> stub_;
  grpc::ClientContext context_;
  Response response_;
  std::unique_ptr<grpc::ClientWriter<Request>> writer_;
};

using ReduceStreamCall = ChunkStream<v1::ReduceStreamRequest, v1::ReduceResponse, &v1::Reduction::Stub::ReduceStream>;
using PutArrayCall = ChunkStream<v1::PutArrayRequest, v1::PutArrayResponse, &v1::Reduction::Stub::PutArray>;

}  // namespace reduced::server

#endif  // REDUCED_TESTS_SERVICE_CHUNK_STREAM_H_

// Calls that send an array as a header and then its elements in chunks: ReduceStream and PutArray.
#ifndef REDUCED_CLIENT_LIB_STREAM_H_
#define REDUCED_CLIENT_LIB_STREAM_H_

#include <google/protobuf/message_lite.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "client/lib/call.h"
#include "reduced/client.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced::client {

// The messages of one such call, in order. They are encoded here, so that the elements are copied once. The copy is
// necessary: if a call fails, gRPC may hold what it sends for longer than the call.
class StreamMessages {
 public:
  // `first` has the header; `data` has `bytes` bytes and must outlive this.
  StreamMessages(const google::protobuf::MessageLite& first, const void* data, std::int64_t bytes);

  bool done() const { return !header_.Valid() && left_ == 0; }
  std::int64_t left() const { return left_; }  // bytes of the elements that are not in a message yet

  grpc::ByteBuffer Next();

 private:
  grpc::ByteBuffer header_;  // until Next() has returned it
  const char* next_ = nullptr;
  std::int64_t left_ = 0;
};

// Sends an array on this thread alone: when this returns, gRPC has nothing left to do for the call. `on_progress` may
// be null.
absl::StatusOr<v1::ReduceResponse> ReduceStreamAndWait(RpcState& state, StreamMessages messages,
                                                       const OnProgress& on_progress);
absl::StatusOr<v1::PutArrayResponse> PutArrayAndWait(RpcState& state, StreamMessages messages,
                                                     const OnProgress& on_progress);

// Starts a ReduceStream and returns. Calls `done` when it ends.
std::shared_ptr<Call::State> StartReduceStream(const Connection& connection, const ReduceOptions& options,
                                               StreamMessages messages, Client::Done done);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_STREAM_H_

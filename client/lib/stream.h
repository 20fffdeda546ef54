// Calls that send an array as a header and then its elements in chunks: ReduceStream and PutArray.
#ifndef REDUCED_CLIENT_LIB_STREAM_H_
#define REDUCED_CLIENT_LIB_STREAM_H_

#include <google/protobuf/message_lite.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "client/lib/call.h"
#include "reduced/client.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced::client {

// The messages of one such call, in order. They are encoded here, so that the elements are copied once. The copy is
// necessary: if a call fails, gRPC may hold what it sends for longer than the call.
class StreamMessages {
 public:
  // `first` has the header; `array` has the `bytes` bytes from byte `from` on. Its data, or what its reader
  // uses, must outlive this.
  StreamMessages(const google::protobuf::MessageLite& first, const ArrayView& array, std::int64_t from,
                 std::int64_t bytes);

  // Adds an array whose elements go with those of the first one, in chunks of the field of that number: they take
  // turns. All of it is sent.
  void Add(int field, const ArrayView& array);

  // Whether elements that are in messages now cannot be read again.
  bool spent() const;
  bool done() const { return !header_.Valid() && left() == 0; }
  std::int64_t left() const;  // bytes of the elements that are not in a message yet

  // An error is that of the reader of an array.
  absl::StatusOr<grpc::ByteBuffer> Next();

 private:
  struct Array {
    int field = 0;                                                          // of its chunks
    std::int64_t width = 1;                                                 // bytes of an element
    const char* data = nullptr;                                             // of the whole array
    std::function<absl::Status(std::int64_t, char*, std::int64_t)> read{};  // used instead if it isn't null
    bool in_order = false;                                                  // it can read each byte only once
    std::int64_t from = 0;
    std::int64_t next = 0;  // the byte of the array
    std::int64_t left = 0;
  };
  static Array ArrayOf(int field, const ArrayView& array, std::int64_t from, std::int64_t bytes);

  grpc::ByteBuffer header_;  // until Next() has returned it
  std::vector<Array> arrays_;
};

// Sends an array on this thread alone: when this returns, gRPC has nothing left to do for the call. `on_progress` and
// `interrupted` may be null.
absl::StatusOr<v1::ReduceResponse> ReduceStreamAndWait(RpcState& state, StreamMessages messages,
                                                       const OnProgress& on_progress, const Interrupted& interrupted);
absl::StatusOr<v1::PutArrayResponse> PutArrayAndWait(RpcState& state, StreamMessages messages,
                                                     const OnProgress& on_progress, const Interrupted& interrupted);

// UNAVAILABLE of a call that has sent so many of its bytes: says so.
absl::Status AfterBytes(const absl::Status& outcome, std::int64_t sent, std::int64_t total);

// Starts an attempt of a ReduceStream, and returns. Calls `done` when it ends, with how many bytes of the elements were
// sent. `state` and `response` must outlive it.
void StartReduceStream(RpcState& state, StreamMessages messages, grpc::ByteBuffer* response,
                       std::function<void(const grpc::Status&, std::int64_t)> done);
// The response of one that has succeeded. INTERNAL: it is none.
absl::StatusOr<v1::ReduceResponse> StreamResponse(const RpcState& state, grpc::ByteBuffer* encoded);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_LIB_STREAM_H_

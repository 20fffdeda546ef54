// The service reduced.v1.Reduction, on gRPC's callback API. The flow of a Reduce is written down in service.cc, that of
// a ReduceStream in stream.cc, that of a Session in session.cc, that of a PutArray in put.cc, that of a Ladder in
// ladder.cc.
#ifndef REDUCED_SERVER_CALLS_SERVICE_H_
#define REDUCED_SERVER_CALLS_SERVICE_H_

#include <memory>

#include "absl/time/time.h"
#include "kernels/engine/engines.h"
#include "reduced/v1/reduced.grpc.pb.h"
#include "server/calls/backend.h"
#include "server/calls/ladder.h"
#include "server/calls/put.h"
#include "server/calls/session.h"
#include "server/calls/stream.h"

namespace reduced::server {

// The messages of ReduceStream and PutArray are handled raw, so that chunks are copied once; those of Session: see
// session.h.
using RawMethods = v1::Reduction::WithRawCallbackMethod_ReduceStream<v1::Reduction::WithRawCallbackMethod_PutArray<
    v1::Reduction::WithRawCallbackMethod_Session<v1::Reduction::Service>>>;
using ArrayMethods =
    v1::Reduction::WithCallbackMethod_ListArrays<v1::Reduction::WithCallbackMethod_DeleteArray<RawMethods>>;
using ReductionMethods = v1::Reduction::WithCallbackMethod_Reduce<v1::Reduction::WithCallbackMethod_Merge<
    v1::Reduction::WithCallbackMethod_Ladder<v1::Reduction::WithCallbackMethod_GetServerInfo<ArrayMethods>>>>;

// Thread-safe. Must outlive the gRPC server it is registered with.
class ReductionService final : public ReductionMethods {
 public:
  // `backend` must outlive the service.
  explicit ReductionService(Backend& backend);

  grpc::ServerUnaryReactor* Reduce(grpc::CallbackServerContext* context, const v1::ReduceRequest* request,
                                   v1::ReduceResponse* response) override;
  grpc::ServerReadReactor<grpc::ByteBuffer>* ReduceStream(grpc::CallbackServerContext* context,
                                                          grpc::ByteBuffer* response) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Session(grpc::CallbackServerContext* context) override;
  grpc::ServerReadReactor<grpc::ByteBuffer>* PutArray(grpc::CallbackServerContext* context,
                                                      grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ListArrays(grpc::CallbackServerContext* context, const v1::ListArraysRequest* request,
                                       v1::ListArraysResponse* response) override;
  grpc::ServerUnaryReactor* DeleteArray(grpc::CallbackServerContext* context, const v1::DeleteArrayRequest* request,
                                        v1::DeleteArrayResponse* response) override;
  grpc::ServerUnaryReactor* Merge(grpc::CallbackServerContext* context, const v1::MergeRequest* request,
                                  v1::MergeResponse* response) override;
  grpc::ServerWriteReactor<v1::LadderReply>* Ladder(grpc::CallbackServerContext* context,
                                                    const v1::LadderRequest* request) override;
  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context, const v1::GetServerInfoRequest* request,
                                          v1::GetServerInfoResponse* response) override;

  // From now on whatever is work is refused: UNAVAILABLE.
  void Drain() { backend_.gate.Close(); }
  // Waits until nothing of it runs or waits any more: true, or false after `timeout`.
  bool AwaitIdle(absl::Duration timeout) { return backend_.gate.AwaitEmpty(timeout); }

 private:
  class ReduceCall;
  class CallAllocator;

  Backend& backend_;
  const std::unique_ptr<grpc::MessageAllocator<v1::ReduceRequest, v1::ReduceResponse>> allocator_;
  Ladders ladders_{backend_};
};

}  // namespace reduced::server

#endif  // REDUCED_SERVER_CALLS_SERVICE_H_

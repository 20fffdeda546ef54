// The service reduced.v1.Reduction, on gRPC's callback API. The flow of a request is written down in service.cc.
#ifndef REDUCED_SERVER_SERVICE_H_
#define REDUCED_SERVER_SERVICE_H_

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kernels/engines.h"
#include "reduced/v1/reduced.grpc.pb.h"
#include "server/options.h"

namespace reduced {

// Thread-safe. Must outlive the gRPC server it is registered with.
class ReductionService final : public v1::Reduction::CallbackService {
 public:
  // `engines` must outlive the service.
  ReductionService(const Engines& engines, const RequestLimits& limits);

  grpc::ServerUnaryReactor* Reduce(grpc::CallbackServerContext* context, const v1::ReduceRequest* request,
                                   v1::ReduceResponse* response) override;
  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context, const v1::GetServerInfoRequest* request,
                                          v1::GetServerInfoResponse* response) override;

  // From now on reductions are refused: UNAVAILABLE.
  void Drain();
  // Waits until no reduction runs or waits any more: true, or false after `timeout`.
  bool AwaitIdle(absl::Duration timeout);

 private:
  class ReduceCall;
  class CallAllocator;

  // Counts a reduction in, unless draining: false.
  bool Enter();
  void Leave();

  const Engines& engines_;
  const RequestLimits limits_;
  const absl::Time started_ = absl::Now();
  const std::unique_ptr<grpc::MessageAllocator<v1::ReduceRequest, v1::ReduceResponse>> allocator_;

  absl::Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace reduced

#endif  // REDUCED_SERVER_SERVICE_H_

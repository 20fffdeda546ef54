// What reduces arrays for Python: a server, a session of one, or the engine of this process.
#ifndef REDUCED_CLIENT_PYTHON_SRC_REDUCER_H_
#define REDUCED_CLIENT_PYTHON_SRC_REDUCER_H_

#include <atomic>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "client/local/local.h"
#include "client/python/src/cuda.h"
#include "client/python/src/elements.h"
#include "client/python/src/fork.h"
#include "kernels/system/status_macros.h"
#include "reduced/client.h"

namespace reduced::python {

using Ops = std::vector<std::string>;

// How an array falls apart into outputs.
struct Partition {
  // An array beside it that is in memory of a GPU of this process, and the one of the options that it stands for.
  struct CudaSide {
    CudaArray array;
    client::SideArray& (*place)(client::PartitionOptions& options);
  };
  client::PartitionOptions options{};
  std::vector<CudaSide> cuda{};
};

// An array: in host memory, on a server, or in memory of a GPU of this process.
using Operand = std::variant<HostArray, client::RemoteArray, CudaArray>;

// Thread-safe. Every call is FAILED_PRECONDITION after Close. Python destroys them, with the GIL, which the destructors
// release while they wait for the server.
class Reducer {
 public:
  virtual ~Reducer() = default;

  virtual absl::StatusOr<client::Reply> Reduce(const Operand& array, const Ops& ops,
                                               const client::ReduceOptions& options) = 0;
  // To arrays.
  virtual absl::StatusOr<client::ArrayReply> ReduceArray(const Operand& array, const Ops& ops,
                                                         const Partition& partition,
                                                         const client::ReduceOptions& options) = 0;
  // As client::Client::ReduceMany.
  virtual absl::StatusOr<std::vector<client::Reply>> ReduceMany(const std::vector<Operand>& operands, const Ops& ops,
                                                                const client::ReduceOptions& options) = 0;
  // As client::Client::Own. INVALID_ARGUMENT: the engine of this process keeps nothing.
  virtual absl::StatusOr<client::ResidentArray> Own(const client::ResultArray& kept, const std::string& owner);
  // Ends what it holds at the server. May be called any number of times.
  virtual void Close() = 0;
};

// A session of a Remote. In a fork of the process calls are FAILED_PRECONDITION: the session is the parent's. An array,
// with those beside it, that is larger than a message goes to the server by calls of the client: streamed, or stored
// for the time of the request.
class RemoteSession final : public Reducer {
 public:
  // `client`: it is the session's, and shares memory of GPUs for it.
  RemoteSession(std::unique_ptr<client::Session> session, std::shared_ptr<client::Client> client);
  // As those of client::Session.
  const std::string& via() const { return via_; }
  const std::string& why_not_ring() const { return why_not_ring_; }
  ~RemoteSession() override;

  absl::StatusOr<client::Reply> Reduce(const Operand& array, const Ops& ops,
                                       const client::ReduceOptions& options) override;
  absl::StatusOr<client::ArrayReply> ReduceArray(const Operand& array, const Ops& ops, const Partition& partition,
                                                 const client::ReduceOptions& options) override;
  // As client::Session::ReduceMany. What the server reads where it is, is shared by the client.
  absl::StatusOr<std::vector<client::Reply>> ReduceMany(const std::vector<Operand>& operands, const Ops& ops,
                                                        const client::ReduceOptions& options) override;
  absl::StatusOr<client::ResidentArray> Own(const client::ResultArray& kept, const std::string& owner) override;
  void Close() override;

 private:
  struct Open {
    std::shared_ptr<client::Session> session;  // null: closed
    std::shared_ptr<client::Client> client;
  };
  absl::StatusOr<Open> Use();

  const std::string via_;
  const std::string why_not_ring_;
  const int generation_ = ForkGeneration();
  absl::Mutex mutex_;
  Open open_ ABSL_GUARDED_BY(mutex_);
};

// A connection to a server. In a fork of the process it is another one, by the same options, which the first call
// makes; that of the parent is left alone.
class Remote final : public Reducer {
 public:
  explicit Remote(client::ClientOptions options);
  ~Remote() override;

  // Arrays in memory of Allocate are read where they are, if the server can and `via` is "auto" or "region"; else they
  // are sent. Memory of a GPU is read where it is, by CUDA IPC; `via` is one of these.
  absl::StatusOr<client::Reply> Reduce(const Operand& array, const Ops& ops,
                                       const client::ReduceOptions& options) override;
  absl::StatusOr<client::ArrayReply> ReduceArray(const Operand& array, const Ops& ops, const Partition& partition,
                                                 const client::ReduceOptions& options) override;
  // Arrays in memory of Allocate, and of a GPU, as those of Reduce.
  absl::StatusOr<std::vector<client::Reply>> ReduceMany(const std::vector<Operand>& operands, const Ops& ops,
                                                        const client::ReduceOptions& options) override;
  void Close() override;

  // The client of this process, which is made if there is none. Errors: of Client::Create, and of CheckGrpcWorks.
  absl::StatusOr<std::shared_ptr<client::Client>> Use();
  // Calls `call` with it. The result: that of `call`, which is a StatusOr.
  template <class Call>
  auto With(const Call& call) -> decltype(call(std::declval<client::Client&>())) {
    ASSIGN_OR_RETURN(const std::shared_ptr<client::Client> client, Use());
    return call(*client);
  }
  absl::StatusOr<client::ResidentArray> Own(const client::ResultArray& kept, const std::string& owner) override;
  absl::StatusOr<std::unique_ptr<RemoteSession>> OpenSession(const std::string& via);

 private:
  absl::StatusOr<client::Reply> ReduceRegion(client::Client& client, const HostArray& array, const Ops& ops,
                                             const client::ReduceOptions& options);

  const client::ClientOptions options_;
  absl::Mutex mutex_;
  int generation_ ABSL_GUARDED_BY(mutex_) = ForkGeneration();       // of the process that client_ is of
  std::shared_ptr<client::Client> client_ ABSL_GUARDED_BY(mutex_);  // null before the first use, and once closed
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> shares_ = true;  // false: the server can't read this process's memory
};

// The engine of this process, which all Locals share. In a fork of the process it is a new one.
class Local final : public Reducer {
 public:
  absl::StatusOr<client::Reply> Reduce(const Operand& array, const Ops& ops,
                                       const client::ReduceOptions& options) override;
  absl::StatusOr<client::ArrayReply> ReduceArray(const Operand& array, const Ops& ops, const Partition& partition,
                                                 const client::ReduceOptions& options) override;
  absl::StatusOr<std::vector<client::Reply>> ReduceMany(const std::vector<Operand>& operands, const Ops& ops,
                                                        const client::ReduceOptions& options) override;
  void Close() override {}

 private:
  static const client::LocalEngine& Engine();
};

}  // namespace reduced::python

#endif  // REDUCED_CLIENT_PYTHON_SRC_REDUCER_H_

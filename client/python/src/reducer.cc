#include "client/python/src/reducer.h"

#include <nanobind/nanobind.h>
#include <pthread.h>

#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "client/python/src/call.h"
#include "client/python/src/memory.h"
#include "kernels/system/status_macros.h"

namespace reduced::python {
namespace {

constexpr char kRegion[] = "region";

absl::Status Closed() { return absl::FailedPreconditionError("the connection is closed"); }

// Leaves in a fork what is its parent's: a destructor would use it.
template <class T>
void Abandon(std::shared_ptr<T>& held) {
  new std::shared_ptr<T>(std::move(held));  // never deleted
}

// Memory of a GPU, which the client shares, by `reduce`, which takes it as a RemoteArray and options for it.
template <class Reduce>
auto ReduceCuda(client::Client& client, const CudaArray& array, const client::ReduceOptions& options, Reduce reduce)
    -> decltype(reduce(std::declval<client::RemoteArray>(), options)) {
  if (options.via != "auto" && options.via != kRegion) {
    return absl::InvalidArgumentError("via: got " + options.via +
                                      " for an array in memory of a GPU; allowed: auto, region");
  }
  client::ReduceOptions own = options;
  own.via = "auto";
  for (bool again = true;; again = false) {
    ASSIGN_OR_RETURN(const client::RemoteArray shared, array.Share(client));
    auto reply = reduce(shared, own);
    if (!again || !absl::IsNotFound(reply.status())) return reply;
    array.Forget(client);  // the server has been restarted since
  }
}

// The memory of Allocate that an array lies in. Null: it lies elsewhere.
std::shared_ptr<Memory> MemoryOf(const HostArray& array) {
  if (array.strided != nullptr) {
    return Find(array.strided->data() + array.bytes.begin, array.bytes.end - array.bytes.begin);
  }
  const absl::StatusOr<std::int64_t> bytes = client::ArrayBytes(array.dtype, array.shape);
  return bytes.ok() ? Find(array.data, *bytes) : nullptr;
}

// Calls `reduce` with the options, in which arrays of a GPU are as the client's server reads them. `shares`: y and the
// weights too, if they lie in memory of Allocate.
template <class Reduce>
absl::StatusOr<client::ArrayReply> ReduceBeside(client::Client& client, const Partition& partition, Reduce reduce,
                                                bool shares = false) {
  for (bool again = true;; again = false) {
    client::PartitionOptions options = partition.options;
    std::vector<std::shared_ptr<Memory>> memories;
    for (std::optional<client::SideArray>* const other : {&options.y, &options.weights}) {
      const auto* const view = shares && other->has_value() ? std::get_if<client::ArrayView>(&**other) : nullptr;
      std::shared_ptr<Memory> memory = view == nullptr ? nullptr : MemoryOf(*view);
      if (memory == nullptr) continue;
      absl::StatusOr<client::RemoteArray> shared = memory->Share(client, *view);
      if (!shared.ok()) continue;  // it is sent
      **other = *std::move(shared);
      memories.push_back(std::move(memory));
    }
    for (const Partition::CudaSide& side : partition.cuda) {
      ASSIGN_OR_RETURN(side.place(options), side.array.Share(client));
    }
    absl::StatusOr<client::ArrayReply> reply = reduce(options);
    again = again && !(partition.cuda.empty() && memories.empty());
    if (!again || !absl::IsNotFound(reply.status())) return reply;
    for (const Partition::CudaSide& side : partition.cuda) side.array.Forget(client);
    for (const std::shared_ptr<Memory>& memory : memories) memory->Forget(client);
  }
}

// The error of one of many arrays.
absl::Status OfOperand(std::size_t index, const absl::Status& error) {
  return {error.code(), "operands[" + std::to_string(index) + "]: " + std::string(error.message())};
}

// Many arrays, of which the client's server reads where they are what it can: memory of Allocate, if `shares`, and of a
// GPU. `by`: what reduces them, the client or a session of it.
template <class By>
absl::StatusOr<std::vector<client::Reply>> ReduceOperands(client::Client& client, By& by,
                                                          const std::vector<Operand>& operands, const Ops& ops,
                                                          const client::ReduceOptions& options, bool shares) {
  const bool must = options.via == kRegion;
  client::ReduceOptions own = options;
  if (must) own.via = "auto";
  for (bool again = true;; again = false) {
    std::vector<client::Operand> readable;
    std::vector<std::shared_ptr<Memory>> memories;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (const auto* const cuda = std::get_if<CudaArray>(&operands[i])) {
        absl::StatusOr<client::RemoteArray> shared = cuda->Share(client);
        if (!shared.ok()) return OfOperand(i, shared.status());
        readable.emplace_back(*std::move(shared));
        continue;
      }
      const auto* const view = std::get_if<HostArray>(&operands[i]);
      if (view == nullptr) {
        readable.emplace_back(std::get<client::RemoteArray>(operands[i]));
        continue;
      }
      std::shared_ptr<Memory> memory = must || (shares && options.via == "auto") ? MemoryOf(*view) : nullptr;
      absl::StatusOr<client::RemoteArray> shared =
          absl::InvalidArgumentError("via: got region for an array in other memory; allowed: arrays of reduced.empty");
      if (memory != nullptr) shared = memory->Share(client, *view);
      if (!shared.ok() && must) return OfOperand(i, shared.status());
      if (!shared.ok()) {  // it is sent, and so are others, if the server reads none of this process's memory
        if (absl::IsFailedPrecondition(shared.status())) shares = false;
        readable.emplace_back(*view);
        continue;
      }
      readable.emplace_back(*std::move(shared));
      memories.push_back(std::move(memory));
    }
    absl::StatusOr<std::vector<client::Reply>> replies = by.ReduceMany(readable, ops, own);
    if (!again || !absl::IsNotFound(replies.status())) return replies;
    // The server may have been restarted since.
    for (const std::shared_ptr<Memory>& memory : memories) memory->Forget(client);
    for (const Operand& operand : operands) {
      if (const auto* const cuda = std::get_if<CudaArray>(&operand)) cuda->Forget(client);
    }
  }
}

// OK, if the engine of this process reads the array.
absl::Status CheckIsHere(const Operand& array) {
  if (std::holds_alternative<HostArray>(array)) return absl::OkStatus();
  return absl::InvalidArgumentError(std::holds_alternative<CudaArray>(array)
                                        ? "array: got memory of a GPU with local:; allowed: host memory"
                                        : "array: got a resident array of a server; allowed: arrays of local:");
}

// Whether a session refuses a request before it sends it, since it has no room in a message.
bool IsTooLarge(const absl::Status& status) {
  return absl::IsResourceExhausted(status) && absl::StrContains(status.message(), "the request is larger than");
}

}  // namespace

absl::StatusOr<client::ResidentArray> Reducer::Own(const client::ResultArray& /*kept*/, const std::string& /*owner*/) {
  return absl::InvalidArgumentError("keep: got an array with local:; allowed: of a server");
}

Remote::Remote(client::ClientOptions options) : options_(std::move(options)) {}

Remote::~Remote() {
  const Released released;
  Close();
}

absl::StatusOr<std::shared_ptr<client::Client>> Remote::Use() {
  RETURN_IF_ERROR(CheckGrpcWorks());
  const absl::MutexLock lock(&mutex_);
  if (closed_) return Closed();
  if (client_ != nullptr && generation_ == ForkGeneration()) return client_;
  PrepareGrpcForForks();
  ASSIGN_OR_RETURN(std::unique_ptr<client::Client> client, client::Client::Create(options_));
  if (client_ != nullptr) Abandon(client_);
  client_ = std::move(client);
  generation_ = ForkGeneration();
  return client_;
}

void Remote::Close() {
  if (!CheckGrpcWorks().ok()) return Abandon(client_);
  std::shared_ptr<client::Client> client;
  {
    const absl::MutexLock lock(&mutex_);
    closed_ = true;
    if (generation_ != ForkGeneration()) return Abandon(client_);
    client = std::move(client_);
  }
  if (client == nullptr) return;
  ForgetAll(*client);
  ForgetAllCuda(*client);
}

absl::StatusOr<client::Reply> Remote::ReduceRegion(client::Client& client, const HostArray& array, const Ops& ops,
                                                   const client::ReduceOptions& options) {
  const bool must = options.via == kRegion;
  RETURN_IF_ERROR(client::ArrayBytes(array.dtype, array.shape).status());
  const std::shared_ptr<Memory> memory = MemoryOf(array);
  if (memory == nullptr && must) {
    return absl::InvalidArgumentError("via: got region for an array in other memory; allowed: arrays of reduced.empty");
  }
  client::ReduceOptions sent = options;
  sent.via = "auto";
  if (memory == nullptr || (!must && !shares_)) return client.Reduce(array, ops, sent);
  for (bool again : {true, false}) {
    const absl::StatusOr<client::RemoteArray> shared = memory->Share(client, array);
    if (!shared.ok()) {
      if (must) return shared.status();
      if (absl::IsFailedPrecondition(shared.status())) shares_ = false;
      break;
    }
    absl::StatusOr<client::Reply> reply = client.Reduce(*shared, ops, sent);
    if (!again || !absl::IsNotFound(reply.status())) return reply;
    memory->Forget(client);  // the server has been restarted since
  }
  return client.Reduce(array, ops, sent);
}

absl::StatusOr<client::Reply> Remote::Reduce(const Operand& array, const Ops& ops,
                                             const client::ReduceOptions& options) {
  return With([&](client::Client& client) -> absl::StatusOr<client::Reply> {
    const auto reduce = [&](const auto& each, const client::ReduceOptions& own) {
      return client.Reduce(each, ops, own);
    };
    if (const auto* const cuda = std::get_if<CudaArray>(&array)) return ReduceCuda(client, *cuda, options, reduce);
    if (const auto* const remote = std::get_if<client::RemoteArray>(&array)) return reduce(*remote, options);
    const auto& view = std::get<HostArray>(array);
    if (options.via == "auto" || options.via == kRegion) return ReduceRegion(client, view, ops, options);
    return reduce(view, options);
  });
}

absl::StatusOr<client::ArrayReply> Remote::ReduceArray(const Operand& array, const Ops& ops, const Partition& partition,
                                                       const client::ReduceOptions& options) {
  return With([&](client::Client& client) -> absl::StatusOr<client::ArrayReply> {
    const bool in_memory = std::holds_alternative<HostArray>(array);
    const bool shares = shares_ && (!in_memory || options.via == "auto");
    const auto reduce = [&](const auto& each, const client::ReduceOptions& own) {
      return ReduceBeside(
          client, partition,
          [&](const client::PartitionOptions& readable) { return client.ReduceArray(each, ops, readable, own); },
          shares);
    };
    if (const auto* const cuda = std::get_if<CudaArray>(&array)) return ReduceCuda(client, *cuda, options, reduce);
    if (const auto* const remote = std::get_if<client::RemoteArray>(&array)) return reduce(*remote, options);
    const auto& view = std::get<HostArray>(array);
    if (const std::shared_ptr<Memory> memory = shares ? MemoryOf(view) : nullptr; memory != nullptr) {
      const absl::StatusOr<client::RemoteArray> shared = memory->Share(client, view);
      if (shared.ok()) return reduce(*shared, options);
    }
    return reduce(view, options);
  });
}

absl::StatusOr<std::vector<client::Reply>> Remote::ReduceMany(const std::vector<Operand>& operands, const Ops& ops,
                                                              const client::ReduceOptions& options) {
  return With([&](client::Client& client) { return ReduceOperands(client, client, operands, ops, options, shares_); });
}

absl::StatusOr<client::ResidentArray> Remote::Own(const client::ResultArray& kept, const std::string& owner) {
  return With([&](client::Client& client) { return client.Own(kept, owner); });
}

absl::StatusOr<std::unique_ptr<RemoteSession>> Remote::OpenSession(const std::string& via) {
  const absl::StatusOr<std::shared_ptr<client::Client>> client = Use();
  if (!client.ok()) return client.status();
  ASSIGN_OR_RETURN(std::unique_ptr<client::Session> session, (*client)->OpenSession({.via = via}));
  return std::make_unique<RemoteSession>(std::move(session), *client);
}

RemoteSession::RemoteSession(std::unique_ptr<client::Session> session, std::shared_ptr<client::Client> client)
    : via_(session->via()),
      why_not_ring_(session->why_not_ring()),
      open_{.session = std::move(session), .client = std::move(client)} {}

RemoteSession::~RemoteSession() {
  const Released released;
  Close();
}

absl::StatusOr<RemoteSession::Open> RemoteSession::Use() {
  if (generation_ != ForkGeneration()) {
    return absl::FailedPreconditionError(
        "fork: got a session of the process that forked this one; allowed: sessions that this process opens");
  }
  const absl::MutexLock lock(&mutex_);
  if (open_.session == nullptr) return Closed();
  return open_;
}

void RemoteSession::Close() {
  if (generation_ != ForkGeneration()) {
    Abandon(open_.session);
    return Abandon(open_.client);
  }
  Open open;
  const absl::MutexLock lock(&mutex_);
  open = std::exchange(open_, {});
}

absl::StatusOr<client::Reply> RemoteSession::Reduce(const Operand& array, const Ops& ops,
                                                    const client::ReduceOptions& options) {
  ASSIGN_OR_RETURN(const Open open, Use());
  const auto reduce = [&](const auto& each, const client::ReduceOptions& own) {
    return open.session->Reduce(each, ops, own);
  };
  if (const auto* const cuda = std::get_if<CudaArray>(&array)) return ReduceCuda(*open.client, *cuda, options, reduce);
  if (const auto* const remote = std::get_if<client::RemoteArray>(&array)) return reduce(*remote, options);
  const auto& view = std::get<HostArray>(array);
  absl::StatusOr<client::Reply> reply = reduce(view, options);
  return IsTooLarge(reply.status()) ? open.client->Reduce(view, ops, options) : std::move(reply);
}

absl::StatusOr<client::ArrayReply> RemoteSession::ReduceArray(const Operand& array, const Ops& ops,
                                                              const Partition& partition,
                                                              const client::ReduceOptions& options) {
  ASSIGN_OR_RETURN(const Open open, Use());
  const auto reduce = [&](const auto& each, const client::ReduceOptions& own) {
    return ReduceBeside(*open.client, partition, [&](const client::PartitionOptions& readable) {
      absl::StatusOr<client::ArrayReply> reply = open.session->ReduceArray(each, ops, readable, own);
      return IsTooLarge(reply.status()) ? open.client->ReduceArray(each, ops, readable, own) : std::move(reply);
    });
  };
  if (const auto* const cuda = std::get_if<CudaArray>(&array)) return ReduceCuda(*open.client, *cuda, options, reduce);
  if (const auto* const remote = std::get_if<client::RemoteArray>(&array)) return reduce(*remote, options);
  return reduce(std::get<HostArray>(array), options);
}

absl::StatusOr<std::vector<client::Reply>> RemoteSession::ReduceMany(const std::vector<Operand>& operands,
                                                                     const Ops& ops,
                                                                     const client::ReduceOptions& options) {
  ASSIGN_OR_RETURN(const Open open, Use());
  return ReduceOperands(*open.client, *open.session, operands, ops, options, /*shares=*/true);
}

absl::StatusOr<client::ResidentArray> RemoteSession::Own(const client::ResultArray& kept, const std::string& owner) {
  ASSIGN_OR_RETURN(const Open open, Use());
  return open.client->Own(kept, owner);
}

const client::LocalEngine& Local::Engine() {
  struct Holder {
    std::once_flag once;
    const client::LocalEngine* engine = nullptr;
  };
  // Never deleted: the engine's threads end with the process. Those of a fork's parent are not there.
  static std::atomic<Holder*> holder = new Holder;
  [[maybe_unused]] static const int renewed = pthread_atfork(nullptr, nullptr, [] { holder = new Holder; });
  Holder* const mine = holder;
  std::call_once(mine->once, [mine] { mine->engine = new client::LocalEngine; });
  return *mine->engine;
}

absl::StatusOr<client::Reply> Local::Reduce(const Operand& array, const Ops& ops,
                                            const client::ReduceOptions& options) {
  RETURN_IF_ERROR(CheckIsHere(array));
  return Engine().Reduce(std::get<HostArray>(array), ops, options);
}

absl::StatusOr<client::ArrayReply> Local::ReduceArray(const Operand& array, const Ops& ops, const Partition& partition,
                                                      const client::ReduceOptions& options) {
  RETURN_IF_ERROR(CheckIsHere(array));
  return Engine().ReduceArray(std::get<HostArray>(array), ops, partition.options, options);
}

absl::StatusOr<std::vector<client::Reply>> Local::ReduceMany(const std::vector<Operand>& operands, const Ops& ops,
                                                             const client::ReduceOptions& options) {
  std::vector<client::ArrayView> views;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const auto* const view = std::get_if<HostArray>(&operands[i]);
    if (view == nullptr) {
      return OfOperand(i, absl::InvalidArgumentError("array: got one of a server or a GPU; allowed: arrays of local:"));
    }
    views.push_back(*view);
  }
  return Engine().ReduceMany(views, ops, options);
}

}  // namespace reduced::python

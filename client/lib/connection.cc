#include "client/lib/connection.h"

#include <grpcpp/generic/generic_stub.h>

#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace reduced::client {

std::shared_ptr<Connection> Connect(ClientOptions options, Target target, Secured secured) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxAnswerBytes);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // channels don't share a connection
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);          // arrays are sent to the server itself
  // gRPC's own defaults, 1 s and 120 s, would keep a client from a server that has long come back.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  if (!secured.server_name.empty()) arguments.SetSslTargetNameOverride(secured.server_name);
  const auto open = [&] {
    auto channel = grpc::CreateCustomChannel(target.uri, secured.credentials, arguments);
    return Backend{channel, v1::Reduction::NewStub(channel)};
  };
  auto connection = std::make_shared<Connection>();
  if (target.several) {
    connection->home = open();
    arguments.SetLoadBalancingPolicyName("round_robin");
  }
  const int parts = target.several ? 1 : options.connections;  // one channel has connections to all servers
  for (int i = 0; i < parts; ++i) connection->parts.push_back(open());
  if (!target.several) connection->home = connection->parts.front();
  connection->options = std::move(options);
  connection->peers = PeersOf(target);
  connection->target = std::move(target);
  connection->token = std::move(secured.token);
  return connection;
}

// gRPC's callbacks run on threads that gRPC ends with the last channel that has used them. If that channel is destroyed
// in one of those callbacks, the threads still use memory that is freed. So one channel, whose only call fails at once,
// is never destroyed.
void KeepCallbackThreads() {
  struct Kept {
    const std::shared_ptr<grpc::Channel> channel =
        grpc::CreateChannel("unix:/dev/null", grpc::InsecureChannelCredentials());
    grpc::ClientContext context;
    const grpc::Slice nothing{};
    const grpc::ByteBuffer request{&nothing, 1};
    grpc::ByteBuffer answer{};
    absl::Notification over{};
  };
  // [[gnu::used]]: the compiler must keep the pointer, by which a leak checker finds the object.
  [[gnu::used]] static const Kept* const kept = [] {
    auto* const first = new Kept;
    first->context.set_deadline(absl::ToChronoTime(absl::Now()));
    grpc::GenericStub(first->channel)
        .UnaryCall(&first->context, "/", {}, &first->request, &first->answer,
                   [first](const grpc::Status&) { first->over.Notify(); });
    first->over.WaitForNotificationWithTimeout(absl::Seconds(1));
    return first;
  }();
}

}  // namespace reduced::client

// The options of a Client and of a Session.
#ifndef REDUCED_OPTIONS_H_
#define REDUCED_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "reduced/array.h"

namespace reduced::client {

inline constexpr char kSystemCa[] = "system";  // a value of ClientOptions.tls_ca

struct ClientOptions {
  // The address of a server: "host:port", "[ipv6]:port", or a gRPC target: "unix:/path", "unix-abstract:name",
  // "ipv4:address:port", "ipv6:[address]:port", "dns:///name:port".
  //
  // Several equal servers: a list "host:port,host:port,...", whose names Create resolves, or a DNS name with several
  // addresses ("dns:" is optional). Requests that need nothing that a server stores are then distributed round robin,
  // and so are the parts of large arrays, unless they can only be read in order: Reduce cuts them from 32 MiB on, and
  // merges the states that the servers answer with. What is exact has the bits of one server. Requests of resident
  // arrays, regions and sessions all go to one of the servers. Use one of these addresses for all processes that share
  // resident arrays.
  std::string server = "127.0.0.1:50051";
  // The timeout of calls that don't have one of their own. The first call includes connecting.
  absl::Duration timeout = absl::Seconds(5);
  // How many connections one Reduce of a large array may use, 1 to 64: from 32 MiB on the array is cut into as many
  // parts, which are sent at the same time. Each part uses one of the server's streams and, while it is sent, a thread.
  // Several connections are faster if both sides have cores for them. 0: 4 on a machine of 8 cores or more, else 1. Of
  // several servers: how many parts are sent at the same time at least, over one connection to each server; without
  // this as many as the list has addresses, or 4 of a DNS name.
  int connections = 0;

  // How often one call is sent at most, 1 to 10; 1: never again. A call is sent again after UNAVAILABLE: the server
  // stops, its device failed, or the connection was lost. So a server that restarts loses no reduction. A call that the
  // server or a proxy cancels counts as UNAVAILABLE. It is also sent again after RESOURCE_EXHAUSTED if the server said
  // when to try again, except for single requests of a session. The delay is then that time and up to half of it more,
  // else 100 ms doubled for each attempt, at most 1 s, of which a random part of up to half is left out. If the timeout
  // would pass meanwhile, the error is returned at once. Reply.attempts and Client::retries count. If there are several
  // servers, an attempt that one of them has refused is followed by one at another.
  //
  // A client that has reached a server waits for one: each attempt but the first goes as soon as a server answers
  // again, until the timeout, which therefore should be longer than a restart takes. At a client's first call, when no
  // server may ever have been there, attempts without a connection fail at once.
  //
  // What is sent again: Reduce of any kind, Put, GetArray, DeleteArray, ListArrays, Merge, GetServerInfo and the
  // requests of sessions that are not answered, in a new call. Reductions are pure. If only the answer of a Put was
  // lost, there may be another array, which expires; a later attempt of DeleteArray that finds no array succeeds. Not
  // sent again: elements that can be read only once (ElementReader.in_order), once some have been read; a Ladder that
  // has reported a step; CheckHealth and WatchHealth, which say how a server is now; Share. Resident arrays, kept
  // results and regions end with their server: NOT_FOUND afterwards.
  int max_attempts = 4;

  // TLS: the file of the CA certificates, in PEM, that the server's certificate is checked against, or kSystemCa for
  // those that this machine trusts. Empty: no TLS. Unix sockets don't use TLS: for them this and the next three options
  // are ignored.
  std::string tls_ca{};
  // The files, in PEM, of the client certificate and its private key. Empty: none.
  std::string tls_cert{};
  std::string tls_key{};
  // The name that the server's certificate must have. Empty: the host in `server`. Required for a list of servers.
  std::string tls_server_name{};
  // The file of the token that is sent with every call. Tokens are only sent over TLS, to a Unix socket or to a
  // loopback address. Empty: none. Create reads all of these files. The first call after each token_refresh reads the
  // token file again, so that the token may change; if that fails, the client uses the old token. Each call of a
  // session keeps the token that it started with.
  std::string token_file{};
  absl::Duration token_refresh = absl::Seconds(10);
};

struct SessionOptions {
  std::optional<absl::Duration> timeout{};          // of requests without one; absent: ClientOptions.timeout
  absl::Duration close_timeout = absl::Seconds(1);  // until ~Session cancels the requests in flight
  // How requests reach the server. "session": in messages of one gRPC call. "ring": through memory that the server, on
  // this machine, shares with this process, for a fraction of what a message costs; it needs the server's region
  // socket, and a waiting thread spins for up to 50 us, or 100 us if the server slept. "auto": "ring" where that works,
  // else "session", and Session::why_not_ring() has the reason.
  std::string via = "auto";
  // Shared memory for the elements of the requests in flight, in bytes, up to the server's --max_ring_bytes.
  std::int64_t ring_bytes = std::int64_t{4} << 20;
};

// The path of the Unix socket that a ClientOptions.server names by the scheme unix:, else nothing.
REDUCED_EXPORT std::optional<std::string> UnixSocketPath(const std::string& server);

}  // namespace reduced::client

#endif  // REDUCED_OPTIONS_H_

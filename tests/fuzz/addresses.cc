// Short texts that flags and headers have: listening addresses, modes of sockets, sizes, request ids, trace parents.
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/config/flags.h"
#include "server/config/listener.h"
#include "server/observe/call_tag.h"
#include "tests/fuzz/fuzz.h"

namespace reduced::fuzz {

FUZZ_TARGET(addresses) {
  const absl::string_view text = input.rest();
  const auto address = server::ParseListenAddress(text);
  RequirePrintableError(address.status());
  if (address.ok()) {
    Require(address->text == text, "an address is kept as it is written");
    if (address->unix_path.empty()) {
      Require(!address->host.empty() && address->port >= 0 && address->port <= 65535,
              "a TCP address has host and port");
      const auto bound = server::ParseListenAddress(server::BoundAddress(*address, 4242));
      Require(bound.ok() && bound->host == address->host, "a bound address has the same host");
      Require(address->port != 0 || bound->port == 4242, "a bound address has its port");
    } else {
      Require(server::UnixAddress(address->unix_path).sun_path ==
                  address->unix_path.substr(0, address->unix_path.find('\0')),
              "the path of a Unix socket fits");
    }
  }
  const auto http = server::ParseHttpAddress("metrics_listen", text);
  RequirePrintableError(http.status());
  Require(http.ok() == (address.ok() && address->unix_path.empty()), "HTTP is served on TCP");

  const auto mode = server::ParseSocketMode(text);
  RequirePrintableError(mode.status());
  if (mode.ok() && mode->has_value()) Require(**mode <= 0777, "a mode has permissions only");

  server::ByteSize size;
  std::string why;
  if (server::AbslParseFlag(text, &size, &why)) {
    Require(size.bytes >= 0, "a size is not negative");
    server::ByteSize again;
    Require(server::AbslParseFlag(server::AbslUnparseFlag(size), &again, &why) && again.bytes == size.bytes,
            "a size is read as it is written");
  }

  if (server::IsRequestId(std::string(text))) {
    Require(!text.empty() && text.size() <= server::kMaxRequestIdBytes, "a request id is short");
    Require(text.find_first_of(absl::string_view(" \"\\\r\n\0", 6)) == absl::string_view::npos,
            "a request id needs no escaping");
  }
  if (server::IsTraceparent(std::string(text))) Require(text.size() >= 55, "a trace parent has its two ids");
}

}  // namespace reduced::fuzz

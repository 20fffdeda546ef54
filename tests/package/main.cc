// Asks the server of argv[1] for the sum and the maximum of 1, 2, ... 1000, and exits with 0 if both are right.
#include <cstdint>
#include <iostream>
#include <numeric>
#include <vector>

#include "reduced/client.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: consumer unix:/path|host:port\n";
    return 2;
  }
  const auto client = reduced::client::Client::Create({.server = argv[1]});
  if (!client.ok()) {
    std::cerr << client.status() << "\n";
    return 1;
  }
  std::vector<std::int32_t> elements(1000);
  std::iota(elements.begin(), elements.end(), 1);
  const auto reply = (*client)->Reduce(reduced::client::ArrayView::Of(elements), {"sum", "max"});
  if (!reply.ok()) {
    std::cerr << reply.status() << "\n";
    return 1;
  }
  const bool right = reply->Find("sum")->AsInt64() == 500500 && reply->Find("max")->AsInt64() == 1000;
  std::cout << (right ? "sum 500500, max 1000\n" : "wrong sum or max\n");
  return right ? 0 : 1;
}

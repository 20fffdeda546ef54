// A ring: what a client may write into it, at what time.
//
// The input, for each step: what it is (a number of kSteps); for kSlot the fields of a submission, whose sequence
// number is right; for kWrite an offset (4 bytes), the length (2 bytes) and the bytes that go there.
#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/time/clock.h"
#include "tests/fuzz/server.h"
#include "tests/service/ring_client.h"

namespace reduced::fuzz {
namespace {

enum Step { kSlot, kSum, kWrite, kPunch, kVanish, kSteps };

const std::string& RegionSocket() {
  static const auto* const path = [] {
    v1::GetServerInfoResponse info;
    Require(TheServer().client().Info(&info).ok(), "the server serves");
    return new std::string(info.region_socket());
  }();
  return *path;
}

}  // namespace

FUZZ_TARGET(ring) {
  {
    server::RingClient client(TheServer().client());
    const v1::SessionResponse opened = client.Ask(4, 1 << 16);
    Require(opened.code() == 0, "a session has a ring", opened.message());
    Require(client.Take(RegionSocket(), opened.ring().token()).code() == 0, "a token is for one ring");
    const ring::Mapping mapping = client.mapping();
    const std::uint64_t bytes = mapping.geometry.bytes();
    for (int steps = 0; !input.empty() && steps < 64; ++steps) {
      switch (static_cast<Step>(input.Choice(kSteps))) {
        case kSlot: {
          ring::Submission submission = client.SumOf({1, 2, 3});
          const absl::string_view fields = input.TakePiece().substr(0, sizeof(submission) - 8);
          std::memcpy(reinterpret_cast<char*>(&submission) + 8, fields.data(), fields.size());
          client.Submit(submission);
          break;
        }
        case kSum:
          client.Submit(client.SumOf({1, 2, 3}, input.Number() % 4));
          break;
        case kWrite: {
          const std::uint64_t offset = input.Number<std::uint32_t>() % bytes;
          const absl::string_view text = input.TakePiece();
          std::memcpy(mapping.data + offset, text.data(), std::min<std::uint64_t>(text.size(), bytes - offset));
          client.Knock();
          break;
        }
        case kPunch:
          fallocate(client.memory(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes));
          break;
        default:
          client.Vanish();
          break;
      }
    }
  }
  const absl::Time patience = absl::Now() + absl::Seconds(20);
  for (v1::GetServerInfoResponse info;;) {
    Require(TheServer().client().Info(&info).ok() && absl::Now() < patience, "rings end with their sessions");
    if (info.usage().rings() == 0) break;
  }
  RequireServing();
}

}  // namespace reduced::fuzz

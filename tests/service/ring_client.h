// A client of a session's ring that knows the layout and nothing of the library, and that can break every rule.
#ifndef REDUCED_TESTS_SERVICE_RING_CLIENT_H_
#define REDUCED_TESTS_SERVICE_RING_CLIENT_H_

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "proto/ring/codec.h"
#include "proto/ring/layout.h"
#include "proto/ring/wait.h"
#include "tests/service/array_calls.h"
#include "tests/service/sharer.h"
#include "tests/service/test_server.h"

namespace reduced::server {

class RingClient {
 public:
  // `authorization`: of the call's metadata; empty: none.
  explicit RingClient(const TestClient& client, absl::Duration timeout = kPatience,
                      const std::string& authorization = "")
      : stub_(v1::Reduction::NewStub(client.channel())) {
    SetContextDeadline(&context_, timeout);
    if (!authorization.empty()) context_.AddMetadata("authorization", authorization);
    call_ = stub_->Session(&context_);
  }
  ~RingClient() {
    Unmap();
    if (doorbell_ >= 0) close(doorbell_);
    if (memory_ >= 0) close(memory_);
    if (!finished_) context_.TryCancel();
  }
  RingClient(const RingClient&) = delete;
  RingClient& operator=(const RingClient&) = delete;

  // Asks the session for a ring; the answer, also if it is an error.
  v1::SessionResponse Ask(int slots = 0, std::int64_t arena_bytes = 0) {
    v1::SessionRequest request;
    request.set_id(1);
    request.mutable_open_ring()->set_slots(slots);
    request.mutable_open_ring()->set_arena_bytes(arena_bytes);
    v1::SessionResponse response;
    if (!call_->Write(request) || !call_->Read(&response)) response.set_code(-1);
    return response;
  }
  // Takes the descriptors of a ring, and maps it. The reply of the region socket.
  v1::RegionReply Take(const std::string& socket, const std::string& token) {
    Sharer sharer(socket);
    std::vector<int> files;
    const v1::RegionReply reply =
        sharer.AskForFiles(absl::StrCat(R"({"takeRing": {"token": ")", token, R"("}})"), &files);
    if (files.size() != 2) return reply;
    memory_ = files[0];
    doorbell_ = files[1];
    void* const mapped =
        mmap(nullptr, static_cast<std::size_t>(reply.bytes()), PROT_READ | PROT_WRITE, MAP_SHARED, memory_, 0);
    EXPECT_NE(mapped, MAP_FAILED) << std::strerror(errno);
    mapping_.data = static_cast<std::byte*>(mapped);
    mapping_.geometry = {mapping_.header().slots, mapping_.header().arena_bytes};
    return reply;
  }
  // Both, with errors that end the test.
  void Open(const std::string& socket, int slots = 0, std::int64_t arena_bytes = 0) {
    const v1::SessionResponse response = Ask(slots, arena_bytes);
    ASSERT_EQ(response.code(), 0) << response.message();
    const v1::RegionReply reply = Take(socket, response.ring().token());
    ASSERT_EQ(reply.code(), 0) << reply.message();
    ASSERT_EQ(reply.bytes(), response.ring().bytes());
  }

  const ring::Mapping& mapping() const { return mapping_; }
  int memory() const { return memory_; }
  void Knock() const { eventfd_write(doorbell_, 1); }

  // A sum of i32 at the start of the arena.
  ring::Submission SumOf(const std::vector<std::int32_t>& elements, std::uint32_t completion = 0) const {
    std::copy(elements.begin(), elements.end(), reinterpret_cast<std::int32_t*>(mapping_.arena()));
    ring::Submission submission{};
    submission.id = 100 + completion;
    submission.completion = completion;
    submission.kind = static_cast<std::uint8_t>(ring::Kind::kReduce);
    submission.source = static_cast<std::uint8_t>(ring::Source::kArena);
    submission.dtype = v1::DTYPE_I32;
    submission.op_count = 1;
    submission.ops[0] = v1::OP_SUM;
    submission.count = static_cast<std::int64_t>(elements.size());
    submission.bytes = elements.size() * sizeof(std::int32_t);
    return submission;
  }
  void Submit(const ring::Submission& submission) {
    if (submission.completion < mapping_.geometry.slots) {
      ring::Shared(mapping_.completion(submission.completion).state).store(ring::kPending);
    }
    Publish(submission, next_ + 1);
    ++next_;
  }
  // With whatever sequence number.
  void Publish(const ring::Submission& submission, std::uint64_t sequence) const {
    ring::Submission& slot = mapping_.submission(next_);
    std::array<std::uint64_t, sizeof(slot) / 8> words;
    std::memcpy(words.data(), &submission, sizeof(slot));
    for (std::size_t i = 1; i < words.size(); ++i) {  // where a test may have another thread that writes, too
      __atomic_store_n(reinterpret_cast<std::uint64_t*>(&slot) + i, words[i], __ATOMIC_RELAXED);
    }
    ring::Shared(slot.sequence).store(sequence);
    Knock();
  }
  // "VALUE" of the first result, "CODE TEXT", or "nothing" after kPatience, or once the ring has ended.
  std::string Await(std::uint32_t completion = 0) const {
    std::uint32_t& state = mapping_.completion(completion).state;
    for (const absl::Time end = absl::Now() + kPatience; ring::Shared(state).load() != ring::kDone;) {
      if (absl::Now() > end || ended()) return "nothing";
      std::uint32_t pending = ring::kPending;
      ring::Shared(state).compare_exchange_strong(pending, ring::kSleeping);
      ring::FutexWait(state, ring::kSleeping, std::chrono::milliseconds(10));
    }
    const ring::Completion answer = ring::CopyOut(mapping_.completion(completion));
    if (answer.code != 0) return absl::StrCat(answer.code, " ", ring::TextOf(answer));
    v1::ReduceRequest request;
    request.add_ops(v1::OP_SUM);
    v1::ReduceResponse response;
    ring::FromCompletion(answer, request, &response);
    return response.results().empty() ? "no result" : Text(response.results(0).value());
  }
  std::string Reduce(const ring::Submission& submission) {
    Submit(submission);
    return Await(submission.completion);
  }
  bool ended() const { return ring::Shared(mapping_.header().ended).load() != 0; }
  bool AwaitEnded() const {
    for (const absl::Time end = absl::Now() + kPatience; !ended(); absl::SleepFor(absl::Milliseconds(1))) {
      if (absl::Now() > end) return false;
    }
    return true;
  }

  // Of the session.
  grpc::Status End(bool half_close = false) {
    if (half_close) call_->WritesDone();
    v1::SessionResponse unread;
    while (call_->Read(&unread)) {
    }
    finished_ = true;
    return call_->Finish();
  }
  void Vanish() { context_.TryCancel(); }
  void Unmap() {
    if (mapping_.data != nullptr) munmap(mapping_.data, mapping_.geometry.bytes());
    mapping_.data = nullptr;
  }

 private:
  std::unique_ptr<v1::Reduction::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionResponse>> call_;
  bool finished_ = false;
  int memory_ = -1;
  int doorbell_ = -1;
  ring::Mapping mapping_{};
  std::uint64_t next_ = 0;
};

// Waits until so many rings are open, and as many sessions: false after kPatience.
inline bool AwaitRings(TestServer& server, int count) {
  const absl::Time end = absl::Now() + kPatience;
  for (v1::Usage usage;; absl::SleepFor(absl::Milliseconds(1))) {
    usage = InfoOf(server).usage();
    if (usage.rings() == count && usage.sessions() == count) return true;
    if (absl::Now() > end) return false;
  }
}

}  // namespace reduced::server

#endif  // REDUCED_TESTS_SERVICE_RING_CLIENT_H_

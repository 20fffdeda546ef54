// The messages of a Session, as raw bytes: every request has one answer, and a bad message ends the session.
//
// The input, for each message: its length (2 bytes) and its bytes.
#include <chrono>
#include <memory>
#include <set>
#include <string>

#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "reduced/v1/reduced.pb.h"
#include "tests/fuzz/server.h"

namespace reduced::fuzz {
namespace {

// One step of the call after the other.
class RawSession {
 public:
  RawSession() {
    server::SetContextDeadline(&context_, absl::Seconds(20));
    grpc::GenericStub stub(TheServer().client().channel());
    call_ = stub.PrepareCall(&context_, "/reduced.v1.Reduction/Session", &queue_);
    call_->StartCall(nullptr);
    Step();
  }
  ~RawSession() {
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }
  RawSession(const RawSession&) = delete;
  RawSession& operator=(const RawSession&) = delete;

  bool Write(absl::string_view message) {
    const grpc::Slice slice(message.data(), message.size());
    call_->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    return Step();
  }
  void WritesDone() {
    call_->WritesDone(nullptr);
    Step();
  }
  bool Read(v1::SessionResponse* response) {
    grpc::ByteBuffer message;
    call_->Read(&message, nullptr);
    if (!Step()) return false;
    Require(grpc::SerializationTraits<v1::SessionResponse>::Deserialize(&message, response).ok(),
            "an answer is a SessionResponse");
    return true;
  }
  grpc::Status Finish() {
    grpc::Status status;
    call_->Finish(&status, nullptr);
    Step();
    return status;
  }

 private:
  bool Step() {
    void* tag = nullptr;
    bool ok = false;
    Require(queue_.Next(&tag, &ok), "a step of a call ends");  // by the deadline of the call
    return ok;
  }

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

}  // namespace

FUZZ_TARGET(session) {
  static int runs = 0;
  if (++runs % 512 == 0) RequireServing();

  RawSession session;
  std::multiset<std::uint64_t> asked;
  bool good = true;
  // Fewer than the server has in progress at once, so that it needs no reader.
  for (int messages = 0; !input.empty() && messages < 32; ++messages) {
    const absl::string_view message = input.TakePiece();
    v1::SessionRequest request;
    const bool parses = request.ParseFromArray(message.data(), static_cast<int>(message.size()));
    good = good && parses && request.timeout_ms() >= 0 && request.request_case() != v1::SessionRequest::REQUEST_NOT_SET;
    if (good && !request.has_cancel()) asked.insert(request.id());
    if (!session.Write(message)) break;
  }
  session.WritesDone();
  v1::SessionResponse response;
  const std::size_t requests = asked.size();
  std::size_t answers = 0;
  while (session.Read(&response)) {
    const auto found = asked.find(response.id());
    Require(found != asked.end(), "an answer is of a request", response.ShortDebugString());
    asked.erase(found);
    ++answers;
    Require(response.code() == 0 ? response.has_response() || response.has_many_response() || response.has_ring()
                                 : !response.message().empty(),
            "an answer says something", response.ShortDebugString());
  }
  const grpc::Status status = session.Finish();
  Require(status.error_code() == grpc::StatusCode::OK || status.error_code() == grpc::StatusCode::INVALID_ARGUMENT,
          "a session ends well, or because of its client", status.error_message());
  Require(good || !status.ok(), "a bad message ends the session");
  if (status.ok()) Require(answers == requests, "every request has an answer");
}

}  // namespace reduced::fuzz

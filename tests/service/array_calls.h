// PutArray, GetArray, ListArrays and DeleteArray, as a client calls them.
#ifndef REDUCED_TESTS_SERVICE_ARRAY_CALLS_H_
#define REDUCED_TESTS_SERVICE_ARRAY_CALLS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "tests/service/chunk_stream.h"
#include "tests/service/test_server.h"
#include "tests/support/becomes.h"

namespace reduced::server {

inline v1::PutArrayHeader PutHeaderOf(v1::DType dtype, std::int64_t count, const std::string& owner = "me") {
  v1::PutArrayHeader header;
  header.mutable_array()->set_dtype(dtype);
  header.mutable_array()->add_shape(count);
  header.set_owner(owner);
  return header;
}

// The whole call, the elements in chunks of `chunk` bytes.
inline grpc::Status PutElements(const TestClient& client, const v1::PutArrayHeader& header, const std::string& elements,
                                std::size_t chunk, v1::ArrayInfo* array) {
  PutArrayCall call(client);
  bool open = call.Header(header);
  for (std::size_t i = 0; open && i < elements.size(); i += chunk) open = call.Chunk(elements.substr(i, chunk));
  const grpc::Status status = call.End();
  *array = call.response().array();
  return status;
}

// What GetArray sends of an array; its chunks are added to `chunks`.
inline grpc::Status GetArray(const TestClient& client, const std::string& id, v1::ArrayInfo* array,
                             std::vector<std::string>* chunks) {
  grpc::ClientContext context;
  SetContextDeadline(&context);
  v1::GetArrayRequest request;
  request.set_id(id);
  const auto stub = v1::Reduction::NewStub(client.channel());
  const auto reader = stub->GetArray(&context, request);
  v1::GetArrayResponse part;
  while (reader->Read(&part)) {
    if (part.has_array()) *array = part.array();
    if (part.has_chunk()) chunks->push_back(part.chunk());
  }
  return reader->Finish();
}
inline std::string GetElements(const TestClient& client, const std::string& id) {
  v1::ArrayInfo array;
  std::vector<std::string> chunks;
  const grpc::Status status = GetArray(client, id, &array, &chunks);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(array.id(), id);
  return absl::StrJoin(chunks, "");
}

inline v1::ArrayInfo PutBytes(const TestClient& client, std::int64_t bytes, std::int64_t ttl_ms = 0) {
  v1::ArrayInfo array;
  v1::PutArrayHeader header = PutHeaderOf(v1::DTYPE_U8, bytes);
  header.set_ttl_ms(ttl_ms);
  const grpc::Status status =
      PutElements(client, header, std::string(static_cast<std::size_t>(bytes), '\1'), 1 << 20, &array);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return array;
}

inline std::vector<v1::ArrayInfo> ListArrays(const TestClient& client, const std::string& owner = "") {
  std::vector<v1::ArrayInfo> arrays;
  v1::ListArraysRequest request;
  request.set_owner(owner);
  do {
    grpc::ClientContext context;
    SetContextDeadline(&context);
    v1::ListArraysResponse response;
    const grpc::Status status = v1::Reduction::NewStub(client.channel())->ListArrays(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    arrays.insert(arrays.end(), response.arrays().begin(), response.arrays().end());
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  return arrays;
}

// One DeleteArray, which may wait.
class Deletion {
 public:
  Deletion(const TestClient& client, const std::string& id, const std::string& owner = "me")
      : stub_(v1::Reduction::NewStub(client.channel())) {
    SetContextDeadline(&context_);
    request_.set_id(id);
    request_.set_owner(owner);
    stub_->async()->DeleteArray(&context_, &request_, &response_, [this](grpc::Status status) {
      status_ = std::move(status);
      answered_.Notify();
    });
  }
  ~Deletion() { answered_.WaitForNotification(); }
  void Cancel() { context_.TryCancel(); }
  bool answered() const { return answered_.HasBeenNotified(); }
  grpc::Status Await() {
    answered_.WaitForNotification();  // ends with the deadline of the call
    return status_;
  }

 private:
  std::unique_ptr<v1::Reduction::Stub> stub_;
  grpc::ClientContext context_;
  v1::DeleteArrayRequest request_;
  v1::DeleteArrayResponse response_;
  grpc::Status status_;
  absl::Notification answered_;
};

inline grpc::Status DeleteArray(const TestClient& client, const std::string& id, const std::string& owner = "me") {
  return Deletion(client, id, owner).Await();
}

inline v1::ReduceRequest RequestForArray(const std::string& id, const std::vector<v1::Op>& ops) {
  v1::ReduceRequest request;
  request.set_array_id(id);
  for (const v1::Op op : ops) request.add_ops(op);
  return request;
}

inline v1::GetServerInfoResponse InfoOf(TestServer& server) {
  v1::GetServerInfoResponse info;
  EXPECT_TRUE(server.client().Info(&info).ok());
  return info;
}

// Waits for what another thread of the server does: false after kPatience.
inline bool AwaitThat(const std::function<bool()>& condition) { return Becomes(kPatience, condition); }

// Nothing is kept, nothing streams in, no memory is taken.
inline bool Idle(TestServer& server) {
  const v1::GetServerInfoResponse info = InfoOf(server);
  return info.usage().arrays() == 0 && info.usage().streams() == 0 && info.devices(0).array_bytes() == 0;
}

}  // namespace reduced::server

#endif  // REDUCED_TESTS_SERVICE_ARRAY_CALLS_H_
